//! What is wrong is found, and what is only worth knowing is said.

use serde_json::Value;

use crate::support::{QUICK, bench, raidlab, raidlab_with, warnings};

const SMALL: &str = "--size 16M --chunk 64K --workload seq-read";

/// Places in the first stripe rows: data, parity, P and Q in their turns.
const PLACES: [&str; 5] = ["0", "100K", "129K", "255K", "1M"];

#[test]
fn a_flipped_bit_is_found_wherever_it_is() {
    for level in ["raid1", "raid5", "raid6", "raid10"] {
        for (at, slot) in PLACES.into_iter().zip([0, 1, 2, 3, 0]) {
            let mut members = ["mem"; 4].map(str::to_string);
            members[slot] = format!("fault:flip@{at}:mem");
            let members = members.join("+");
            let ran = bench(&format!("{SMALL} --level {level} --members {members}"));
            let cell = ran.code(1).cell();
            assert_eq!(cell["verified"], Value::Bool(false), "{level}, {at}");
            let warnings = warnings(&cell);
            let said = warnings.contains("corrupts data silently")
                || warnings.contains("copies or parity are wrong");
            assert!(said, "{level}, {at}: {warnings}");
        }
    }
}

#[test]
fn the_log_names_a_member_that_fails_and_why() {
    let words =
        format!("bench {QUICK} {SMALL} --level raid5 --members mem*3+fault:gone@3:mem --json");
    let ran = raidlab_with(&words, &[("RAIDLAB_LOG", "info")]).code(0);
    let failed = ran.stderr.lines().find(|line| line.contains("member failed")).expect("logged");
    assert!(failed.contains("ERROR raidlab_array::executor"), "{failed}");
    assert!(failed.contains(": member failed: read of "), "{failed}");
    assert!(failed.contains("ENODEV (No such device)"), "{failed}");
    assert!(failed.contains("member=3") && failed.contains("errno=19"), "{failed}");
    let why = warnings(&ran.cell());
    assert!(why.contains("member 3 failed (read of ") && why.contains("ENODEV"), "{why}");

    let silent = raidlab(&words).code(0);
    assert!(!silent.stderr.contains("ERROR"), "{}", silent.stderr);
    for of_crate in ["array=error", "raidlab_array=error"] {
        let ran = raidlab_with(&words, &[("RAIDLAB_LOG", of_crate)]).code(0);
        assert!(ran.stderr.contains("member failed"), "{of_crate}: {}", ran.stderr);
    }
    let refused = raidlab_with("status x", &[("RAIDLAB_LOG", "array=loud")]).code(2);
    assert!(refused.stderr.contains("RAIDLAB_LOG=array=loud: "), "{}", refused.stderr);
}

#[test]
fn a_flipped_bit_of_a_lonely_disk_is_found_under_every_workload() {
    let words = "--level single,raid0 --disks 2 --members fault:flip@1M:mem --size 4M --runs 1";
    let ran = bench_all(words);
    assert_eq!(ran.len(), 8);
    for cell in ran {
        assert_eq!(cell["verified"], Value::Bool(false), "{cell}");
        assert!(
            warnings(&cell).contains("the first at byte 1048576 of the array")
                || cell["level"] == "raid0"
        );
    }
}

/// The demonstration of the README, in less time: its place holds data, so that every pass over the
/// array meets it. One that holds parity may be put right by a write that reads it.
#[test]
fn the_silent_corruption_in_the_readme_is_found_every_time() {
    let readme = include_str!("../../../../README.md");
    let line = readme.lines().find(|line| line.contains("silent corruption")).expect("a line");
    let words = line.split('#').next().expect("the command").replace('\'', "");
    let words = words.trim().strip_prefix("raidlab ").expect("a command").to_string();
    for seed in 1..=5 {
        let short = format!("--seconds 0.05 --warm-up 0 --runs 2 --size 16M --seed {seed}");
        let cells = raidlab(&format!("{words} {short} --json")).code(1).cells();
        let wrong = cells.iter().filter(|cell| cell["verified"] == Value::Bool(false));
        assert_eq!((cells.len(), wrong.count()), (4, 4), "seed {seed}");
    }
}

fn bench_all(words: &str) -> Vec<Value> {
    let words = format!("bench --seconds 0.02 --warm-up 0 --json {words}");
    crate::support::raidlab(&words).code(1).cells()
}

#[test]
fn a_torn_write_is_found() {
    for level in ["single", "raid0", "raid1", "raid5"] {
        // Inside a chunk and a granule; the last of four members.
        let fault = "fault:torn@1030K:mem";
        let set = if level == "single" { fault.to_string() } else { format!("mem*3+{fault}") };
        let words = format!("--size 6M --chunk 64K --workload seq-write --level {level}");
        let cell = bench(&format!("{words} --members {set}")).code(1).cell();
        assert_eq!(cell["verified"], Value::Bool(false), "{level}");
    }
}

#[test]
fn redundant_levels_live_on_without_a_member_and_say_so() {
    for level in ["raid1", "raid4", "raid5", "raid6", "raid10"] {
        for after in ["40", "0"] {
            let members = format!("mem*3+fault:gone@{after}:mem");
            let words = format!("--size 16M --level {level} --members {members}");
            let ran = bench(&format!("{words} --workload rand-write --seed 7")).code(0);
            let cell = ran.cell();
            assert_eq!(cell["verified"], Value::Bool(true), "{level}, {after}");
            let warnings = warnings(&cell);
            assert!(warnings.contains("member 3 failed"), "{level}, {after}: {warnings}");
            assert!(ran.stderr.contains("member 3 failed"), "the table tells it too");
        }
    }
}

#[test]
fn failed_requests_are_a_finding_and_no_throughput() {
    let words = "--size 16M --level raid0 --members mem*3+fault:gone@40:mem";
    let ran = bench(&format!("{words} --workload rand-read")).code(1);
    let cell = ran.cell();
    assert_eq!(cell["verified"], Value::Bool(false));
    let warnings = warnings(&cell);
    assert!(warnings.contains("request(s) failed"), "{warnings}");
}

#[test]
fn unreadable_blocks_are_corrected_and_reported() {
    // In row 18 of 64 KiB the last of four members holds data.
    let set = "mem*3+fault:read-error@1152K..1156K:mem --chunk 64K";
    for level in ["raid5", "raid6"] {
        let words = format!("--size 8M --level {level} --workload seq-read --members {set}");
        let cell = bench(&words).code(0).cell();
        assert_eq!(cell["verified"], Value::Bool(true), "{level}");
        let warnings = warnings(&cell);
        assert!(warnings.contains("unreadable range(s) were reconstructed"), "{level}: {warnings}");
    }
    // The other copy is read, or the bad place is detected without one: reported either way.
    for level in ["raid1", "raid10"] {
        let words = format!("--size 8M --level {level} --workload seq-read --members {set}");
        let cell = bench(&words).code(0).cell();
        assert_eq!(cell["verified"], Value::Bool(true), "{level}");
        assert!(
            warnings(&cell).contains("unreadable range(s) were reconstructed")
                || warnings(&cell).contains("unreadable sectors")
        );
    }
    // An ordinary disk has nothing to correct it from.
    let words = "--size 4M --level single --workload seq-read";
    let cell = bench(&format!("{words} --members fault:read-error@1M..1028K:mem")).code(1).cell();
    assert!(warnings(&cell).contains("request(s) failed"), "{cell}");
}

#[test]
fn a_failed_leaf_of_a_nested_array_is_reported() {
    let set = "--members mem*3+fault:gone@0:mem";
    let words = "--size 16M --array raid0(raid1(2),raid1(2)) --workload rand-write";
    let cell = bench(&format!("{words} {set}")).code(0).cell();
    assert!(warnings(&cell).contains("leaf 3 of a nested array failed"), "{cell}");
}

#[test]
fn a_write_error_costs_the_member_not_the_data() {
    let words = "--size 16M --level raid5 --members mem*3+fault:write-error@1M..2M:mem";
    let cell = bench(&format!("{words} --workload seq-write")).code(0).cell();
    assert_eq!(cell["verified"], Value::Bool(true));
    assert!(warnings(&cell).contains("member 3 failed"), "{cell}");
}

#[test]
fn nothing_is_claimed_of_members_that_store_nothing() {
    let ran = bench("--size 16M --members null --level raid5,single").code(0);
    assert_eq!(ran.cells().len(), 8);
    for cell in ran.cells() {
        assert_eq!(cell["verified"], Value::Null);
        assert_eq!(cell["checked_every"], Value::Null);
        assert!(warnings(&cell).contains("nothing could be verified"), "{cell}");
        assert!(cell["mb_per_s"].as_f64().expect("a number") > 0.0);
    }
}
