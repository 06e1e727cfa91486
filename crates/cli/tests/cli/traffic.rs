//! What the members move, taken below the engine.

use serde_json::Value;

use crate::support::{bench, moved, total};

/// Whole stripes: what a layout writes per byte, and not a read.
#[test]
fn whole_stripes_cost_what_the_layout_costs() {
    for (array, written, by) in [
        ("--level raid0 --disks 4", 1, 1),
        ("--level raid1 --disks 3", 3, 1),
        ("--level raid4 --disks 4", 4, 3),
        ("--level raid5 --disks 4", 4, 3),
        ("--level raid6 --disks 5", 5, 3),
        ("--level raid10 --disks 4", 2, 1),
    ] {
        let words = "--chunk 64K --size 48M --block 768K --workload seq-write --members mem";
        let cell = bench(&format!("{array} {words}")).code(0).cell();
        let user = moved(&cell);
        assert!(user > 0, "{array}");
        assert_eq!(total(&cell, "read_bytes"), 0, "{array}");
        // At the edges of the samples, requests in flight are written and not yet counted.
        let (got, wanted) = (total(&cell, "written_bytes"), user * written / by);
        let edge = 4 * (768 << 10) * written / by;
        assert!(got.abs_diff(wanted) <= edge, "{array}: {got} for {wanted}");
    }
}

#[test]
fn reads_come_from_the_members_once() {
    for array in ["raid0", "raid1", "raid5", "raid6", "raid10"] {
        let words = format!("--level {array} --size 48M --workload rand-read --members mem");
        let cell = bench(&words).code(0).cell();
        assert_eq!(total(&cell, "written_bytes"), 0, "{array}");
        assert!(total(&cell, "read_bytes").abs_diff(moved(&cell)) <= 32 * 4096, "{array}");
        assert!(total(&cell, "reads") * 4096 == total(&cell, "read_bytes"), "{array}");
    }
}

/// The issue's own figure: small sequential writes become full stripes.
#[test]
fn sequential_writes_merge_into_full_stripes() {
    // Whole rows of 5 x 64 KiB, so that the stream wraps where a stripe ends, and once at most.
    let words = "--level raid5 --disks 6 --chunk 64K --size 320M --block 64K --depth 32 \
                 --workload seq-write --members mem --seconds 0.2";
    let ran = crate::support::raidlab(&format!("bench --runs 1 --warm-up 0.1 --json {words}"));
    let cell = ran.code(0).cell();
    let (read, written) = (total(&cell, "read_bytes"), total(&cell, "written_bytes"));
    // 0.1 %, and a row wherever a stream starts, before it is detected.
    assert!(read <= written / 1000 + 2 * 6 * 65536, "{read} bytes read for {written} written");
}

#[test]
fn small_random_writes_read_two_and_write_two() {
    let words = "--level raid5 --disks 6 --size 256M --workload rand-write --members mem";
    let cell = bench(words).code(0).cell();
    let samples = cell["samples"].as_array().expect("a list");
    let ops: u64 = samples.iter().map(|sample| sample["ops"].as_u64().expect("a number")).sum();
    for counter in ["reads", "writes"] {
        let each = total(&cell, counter) as f64 / ops as f64;
        // A little less where two writes met in a row, or its parity was still in memory.
        assert!((1.8..=2.05).contains(&each), "{each} {counter} per write");
    }
}

#[test]
fn a_missing_member_moves_nothing_and_is_made_up_for() {
    let words = "--level raid5 --disks 4 --degraded 1 --size 24M --members mem";
    let cell = bench(&format!("{words} --workload rand-read")).code(0).cell();
    assert_eq!((&cell["degraded"], &cell["verified"]), (&1.into(), &Value::Bool(true)));
    assert_eq!(cell["per_member"][0]["read_bytes"], 0);
    assert_eq!(cell["per_member"][0]["written_bytes"], 0);
    // A quarter of the blocks is on the missing member and is read from three others: 1.5 in all.
    let each = total(&cell, "read_bytes") as f64 / moved(&cell) as f64;
    assert!((1.3..1.7).contains(&each), "{each} bytes per byte");
}
