//! `detail` and `status` of golden arrays.

use serde_json::{Value, json};

use crate::corpus::{self, Case};
use crate::support::{Dir, raidlab};

fn value<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(label));
    line.and_then(|line| line.split_once(" : ")).map(|(_, value)| value.trim())
}

/// Arrays that were stopped cleanly and changed no more after mdadm looked at them.
fn settled(case: &&Case) -> bool {
    case.json["clean"] == true && !case.name.contains("reshape")
}

#[test]
fn golden_arrays_are_shown_as_mdadm_showed_them() {
    let labels = [
        "Version",
        "Creation Time",
        "Raid Level",
        "Array Size",
        "Used Dev Size",
        "Raid Devices",
        "Persistence",
        "Intent Bitmap",
        "Layout",
        "Chunk Size",
        "Consistency Policy",
        "Name",
        "UUID",
    ];
    let mut compared = 0;
    for case in corpus::all().iter().filter(settled) {
        let ran = raidlab(&format!("detail --homehost corpus {}", case.images.join(" ")));
        assert!(ran.code == 0 || ran.code == 1, "{}: {}", case.name, ran.stderr);
        for label in labels {
            let theirs = value(case.text("mdadm_detail"), label);
            assert_eq!(value(&ran.stdout, label), theirs, "{}: {label}", case.name);
            compared += usize::from(theirs.is_some());
        }
    }
    println!("{compared} lines compared");
    assert!(compared > 70);
}

#[test]
fn healthy_arrays_end_with_0_and_degraded_ones_with_1() {
    let ran = raidlab(&format!("detail {}", corpus::case("raid1-2d-v12").images.join(" ")));
    let ran = ran.code(0);
    assert_eq!(value(&ran.stdout, "State"), Some("clean"));
    assert_eq!(value(&ran.stdout, "To run it"), Some("complete, can be started"));
    let degraded = corpus::case("raid5-3d-degraded-missing");
    let ran = raidlab(&format!("detail {}", degraded.images.join(" "))).code(1);
    assert_eq!(value(&ran.stdout, "State"), Some("clean, degraded"));
    assert!(ran.stdout.contains("missing"), "{}", ran.stdout);
    let lost = &corpus::case("raid6-5d-la-c64").images[..2];
    let ran = raidlab(&format!("detail --json {}", lost.join(" "))).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let array = &json["arrays"][0];
    assert_eq!(array["to_run"]["can"], false);
    assert_eq!(array["missing_slots"].as_array().map(Vec::len), Some(3));
    assert_eq!(array["state"][1], "FAILED");
}

/// A copy of the golden RAID 1, whose second member lists these sectors as bad.
fn with_bad_blocks(dir: &Dir, entries: &[(u64, u64)]) -> [String; 2] {
    let paths = [dir.file("first.img"), dir.file("second.img")];
    for (path, original) in paths.iter().zip(&corpus::case("raid1-2d-v12").images) {
        std::fs::copy(original, path).expect("a copy");
    }
    let mut image = std::fs::read(&paths[1]).expect("an image");
    corpus::list_bad_blocks(&mut image, entries);
    std::fs::write(&paths[1], image).expect("an image");
    paths
}

#[test]
fn what_members_list_as_bad_is_counted() {
    let dir = Dir::new();
    let paths = with_bad_blocks(&dir, &[(5000, 3), (9000, 512), (9512, 8)]);
    let names = paths.join(" ");
    let listed = "second.img: 2 ranges, 523 sectors";
    let detail = raidlab(&format!("detail {names}")).code(0).stdout;
    let shown = value(&detail, "Bad Blocks").expect("a line");
    assert!(shown.ends_with(listed), "{detail}");
    let status = raidlab(&format!("status {names}")).code(0).stdout;
    let mut lines = status.lines().filter(|line| line.contains("bad blocks"));
    assert!(lines.next().is_some_and(|line| line.ends_with(listed)), "{status}");
    assert_eq!(lines.next(), None, "the other member lists nothing");

    let json = |command: &str| -> Value {
        let text = raidlab(&format!("{command} --json {names}")).code(0).stdout;
        serde_json::from_str(&text).expect("JSON")
    };
    let count = |ranges: u64, sectors: u64| json!({"ranges": ranges, "sectors": sectors});
    let detail = json("detail");
    let members = detail["arrays"][0]["members"].as_array().expect("a list");
    let listed: Vec<&Value> = members.iter().map(|member| &member["bad_blocks"]).collect();
    assert_eq!(listed, [&count(0, 0), &count(2, 523)]);
    let expected = json!([{"member": paths[1], "ranges": 2, "sectors": 523}]);
    assert_eq!(json("status")["arrays"][0]["bad_blocks"], expected);
    let without = corpus::case("raid1-2d-v090").images.join(" ");
    let without = raidlab(&format!("detail --json {without}")).stdout;
    let without: Value = serde_json::from_str(&without).expect("JSON");
    assert_eq!(without["arrays"][0]["members"][0]["bad_blocks"], Value::Null, "no room for a log");
}

#[test]
fn a_damaged_list_of_bad_blocks_is_a_doubt() {
    let dir = Dir::new();
    let paths = with_bad_blocks(&dir, &[(5000, 0)]);
    let names = paths.join(" ");
    for command in ["detail", "status"] {
        let text = raidlab(&format!("{command} {names}")).code(1).stdout;
        assert!(text.contains("second.img: its list of bad blocks cannot be used: "), "{text}");
        let json = raidlab(&format!("{command} --json {names}")).code(1).stdout;
        let json: Value = serde_json::from_str(&json).expect("JSON");
        let array = &json["arrays"][0];
        let listed = match command {
            "detail" => &array["members"][1]["bad_blocks"],
            _ => &array["bad_blocks"][0],
        };
        assert!(listed["error"].is_string(), "{json}");
        assert_eq!(array["doubts"].as_array().map(Vec::len), Some(1), "{json}");
    }
}

#[test]
fn status_shows_all_arrays_of_a_directory() {
    let ran = raidlab(&format!("status {}", corpus::case("raid6-5d-la-c64").images.join(" ")));
    let ran = ran.code(0);
    assert!(ran.stdout.contains("[5/5] [UUUUU]"), "{}", ran.stdout);
    let kernel = corpus::case("raid6-5d-la-c64").text("mdstat");
    let line = kernel.lines().find(|line| line.contains("blocks super")).expect("mdstat");
    assert!(ran.stdout.contains(line.trim()), "{line}: {}", ran.stdout);
    let image = &corpus::case("raid6-5d-la-c64").images[0];
    let directory = std::path::Path::new(image).parent().expect("a directory");
    let ran = raidlab(&format!("status {} --json", directory.display()));
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let arrays = json["arrays"].as_array().expect("a list");
    assert_eq!(arrays.len(), corpus::slice().len(), "{}", ran.stderr);
    let degraded = arrays.iter().find(|array| array["slots"] == "U_U");
    assert!(degraded.is_some(), "{}", ran.stdout);
}
