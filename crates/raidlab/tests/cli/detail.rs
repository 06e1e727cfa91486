//! `detail` and `status` of golden arrays.

use serde_json::Value;

use crate::corpus::{self, Case};
use crate::support::raidlab;

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
