//! Facts in a file: what is read, and what is refused with its field.

use raidlab_predict::diagnose::Document;
use raidlab_predict::law::Work;
use serde_json::json;

/// The example of the page.
fn example() -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/models/diagnose.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let (_, rest) = page.split_once("```json\n").expect("an example");
    rest.split_once("```").expect("its end").0.to_string()
}

#[test]
fn the_example_of_the_page_is_read() {
    let document = Document::parse(&example(), false).expect("it is valid");
    assert_eq!(document.ignored, Vec::<String>::new());
    let array = document.array.expect("an array");
    assert_eq!((array.members, array.chunk_kib), (6, 512.0));
    let measured = document.measured.expect("a figure");
    assert_eq!((measured.access.work, measured.value), (Work::Read, 380.0));
    let machine = document.machine.expect("facts of it");
    assert_eq!(machine.buses[0].mb_per_s, 390.0);
    assert_eq!(machine.read_ahead_kib, Some(6144.0));
    assert_eq!(document.state.bitmap, Some(true));
    assert_eq!(document.state.write_cache, Some(true));
    let sample = document.sample.expect("a sample");
    assert_eq!(sample.members[0].traffic.busy, Some(0.99));
    assert_eq!(sample.cpu.expect("CPUs").threads[0].name, "md0_raid5");
}

#[test]
fn toml_says_the_same() {
    let text = "[array]\nlevel = \"raid10\"\nlayout = \"f2\"\ndisks = 4\n[measured]\n\
                workload = \"4k random read qd32\"\nvalue = \"1.2 kIOPS\"\n[facts]\n\
                kernel = \"5.15\"\nbitmap = false\nsync_action = \"check\"\n";
    let document = Document::parse(text, true).expect("it is valid");
    let measured = document.measured.expect("a figure");
    assert_eq!((measured.value, measured.access.depth), (1200.0, 32.0));
    assert_eq!(document.state.bitmap, Some(false));
    assert_eq!(document.state.sync.expect("a check").action, "check");
}

#[test]
fn what_is_wrong_is_refused_by_its_field() {
    let array = json!({"level": "raid5", "disks": 4});
    for (value, field) in [
        (json!(7), ""),
        (json!({"arrays": {}}), "arrays"),
        (json!({"array": []}), "array"),
        (json!({"array": {"disks": 4}}), "array.level"),
        (json!({"array": {"level": "linear", "disks": 4}}), "array.level"),
        (json!({"array": {"level": "raid5", "disks": 1}}), "array.disks"),
        (json!({"array": {"level": "raid5", "disks": 4.5}}), "array.disks"),
        (json!({"array": {"level": "raid5", "disks": "four"}}), "array.disks"),
        (json!({"array": {"level": "raid5", "disks": 4, "chunk_kib": -64}}), "array.chunk_kib"),
        (json!({"array": {"level": "raid5", "disks": 4, "missing": 5}}), "array.missing"),
        (json!({"array": {"level": "raid5", "disks": 4, "chunk": 64}}), "array.chunk"),
        (json!({"array": array, "measured": {"value": 3}}), "measured.workload"),
        (json!({"measured": {"workload": "dance", "value": 3}}), "measured.workload"),
        (json!({"measured": {"workload": "seq read"}}), "measured.value"),
        (json!({"measured": {"workload": "seq read", "value": 0}}), "measured.value"),
        (
            json!({"measured": {"workload": "seq read", "value": 3, "unit": "IOPS"}}),
            "measured.value",
        ),
        (json!({"facts": {"read_ahead_kib": "fast"}}), "facts.read_ahead_kib"),
        (json!({"facts": {"stripe_cache": -1}}), "facts.stripe_cache"),
        (json!({"facts": {"disks": 7}}), "facts.disks"),
        (json!({"facts": {"disks": [{"rpm": -7200}]}}), "facts.disks[0].rpm"),
        (json!({"facts": {"buses": [1]}}), "facts.buses[0]"),
        (json!({"facts": {"single": {"seq read": "fast"}}}), "facts.single.seq read"),
        (json!({"facts": {"single": {"dance": 7}}}), "facts.single.dance"),
        (json!({"facts": {"write_cache": "maybe"}}), "facts.write_cache"),
        (json!({"facts": {"bitmap": 7}}), "facts.bitmap"),
        (json!({"sample": {}}), "sample.array"),
        (json!({"sample": {"array": {"busy": -1}}}), "sample.array.busy"),
        (json!({"sample": {"array": {}, "members": [{"reads": 1}]}}), "sample.members[0].reads"),
        (json!({"probes": {"alone_mb_per_s": [100, "x"]}}), "probes.alone_mb_per_s"),
        (json!({"probes": {"seeks": [{"q1_per_s": 80}]}}), "probes.seeks[0].q4_per_s"),
        (
            json!({"probes": {"buses": [{"members": [-1], "mb_per_s": 100}]}}),
            "probes.buses[0].members",
        ),
    ] {
        let error = Document::parse(&value.to_string(), false).expect_err(field);
        assert_eq!(error.field, field, "{value}: {error}");
    }
    let unknown = json!({"facts": {"colour": "blue"}}).to_string();
    assert_eq!(Document::parse(&unknown, false).expect("read").ignored, ["facts.colour"]);
    let disk = r#"{"count": 2, "type": "ssd", "seqReadMbs": 500, "random_read_iops": 9}"#;
    for (disks, expected) in [
        (format!("[{disk}]"), "facts.disks[0].random_read_iops"),
        (disk.to_string(), "facts.disks.random_read_iops"),
    ] {
        let text = format!(r#"{{"facts": {{"disks": {disks}}}}}"#);
        assert_eq!(Document::parse(&text, false).expect("read").ignored, [expected]);
    }
    assert!(Document::parse("[array", true).expect_err("TOML").problem.contains("no TOML"));
}

#[test]
fn a_network_has_bits_or_bytes_and_says_which() {
    let of = |rate: &str| {
        let text = json!({"facts": {"network_mb_per_s": rate}}).to_string();
        Document::parse(&text, false)
    };
    // Of bits, heads of frames are a part.
    for (rate, payload) in [("1Gb/s", 117.5), ("1 Gbit/s", 117.5), ("125MB/s", 125.0)] {
        assert_eq!(of(rate).expect(rate).state.network_mb_per_s, Some(payload), "{rate}");
    }
    let refused = of("1gb/s").expect_err("either");
    assert_eq!(refused.field, "facts.network_mb_per_s");
    assert!(refused.problem.contains("1GB/s") && refused.problem.contains("1Gb/s"), "{refused}");
}

#[test]
fn any_value_in_any_place_is_an_error_or_a_document() {
    let whole = json!({
        "array": {"level": "raid5", "disks": 4, "chunk_kib": 64, "missing": 0},
        "measured": {"workload": "seq read", "value": 3, "unit": "MB/s", "depth": 3, "jobs": 2,
                     "direct": true, "fs": "ext4", "block_kib": 4},
        "facts": {"kernel": "6.1", "disks": [{"rpm": 7200}], "buses": [{"mb_per_s": 3}],
                  "single": {"seq read": 100}, "bitmap": "none", "write_cache": "on",
                  "sync_action": "check", "network_mb_per_s": 117},
        "sample": {"array": {"reads_per_s": 1}, "members": [{"name": "a", "queue": 1}],
                   "cpu": {"busy": 0.1, "cpus": 2, "threads": [{"name": "a", "cpus": 1}]},
                   "network": {"mb_per_s": 1, "limit_mb_per_s": 2}},
        "probes": {"alone_mb_per_s": [1], "buses": [{"members": [0], "mb_per_s": 1}],
                   "seeks": [{"q1_per_s": 1, "q4_per_s": 1, "q32_per_s": 1}],
                   "transfer": [{"request_us": 1, "mb_per_s": 1}], "gap_ms": 0},
    });
    Document::parse(&whole.to_string(), false).expect("it is valid");
    let odd = [json!(null), json!(true), json!(-1), json!(1e300), json!("x"), json!([]), json!({})];
    let mut paths = Vec::new();
    collect(&whole, String::new(), &mut paths);
    assert!(paths.len() > 40);
    for path in paths {
        for value in &odd {
            let mut changed = whole.clone();
            *changed.pointer_mut(&path).expect("a place") = value.clone();
            // It ends, whatever it says.
            let _ = Document::parse(&changed.to_string(), false);
        }
    }
}

fn collect(value: &serde_json::Value, path: String, out: &mut Vec<String>) {
    if let Some(map) = value.as_object() {
        for (key, value) in map {
            collect(value, format!("{path}/{}", key.replace('/', "~1")), out);
        }
    }
    if let Some(list) = value.as_array() {
        for (index, value) in list.iter().enumerate() {
            collect(value, format!("{path}/{index}"), out);
        }
    }
    out.push(path);
}

#[test]
fn figures_of_a_calibration_are_probes() {
    let profile = drive_profile();
    let text = format!(
        "{profile}\n[calibration]\n[[calibration.disks]]\nbytes = 1\nrotates = true\n\
         outer_mb_per_s = 150.0\nrandom_ms = 12.5\nrandom_q4_iops = 120.0\n\
         random_q32_iops = 200.0\n[calibration.scratch]\ncached_write_us = 8000.0\n"
    );
    let found = raidlab_predict::diagnose::calibration_of(&text).expect("a calibration");
    assert_eq!(found.alone_mb_per_s, Some(vec![150.0]));
    assert_eq!(found.seeks.expect("seeks")[0].q1, 80.0);
    assert_eq!(found.cached_write_us, Some(8000.0));
    assert!(raidlab_predict::diagnose::calibration_of(&profile).is_err(), "a profile alone");
    assert!(raidlab_predict::diagnose::calibration_of("[").is_err(), "no TOML");
}

/// The text of a built-in profile.
fn drive_profile() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../drive/profiles/hdd-2009.toml");
    std::fs::read_to_string(path).expect("a profile")
}
