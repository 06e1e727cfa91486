//! Which parity kernels run: `--parity-impl` for an array, `bench kernels` for the kernels alone.
//!
//! What this CPU lacks is asked of `parity`, never guessed: the same tests hold on any machine.

use parity::Kernels;
use serde_json::Value;

use crate::support::{bench, raidlab};

/// As few samples as can be; the shapes are those of every run.
const QUICK_TABLE: &str = "bench kernels --runs 1";

const OPERATIONS: [&str; 8] = [
    "xor_gen",
    "xor_update",
    "pq_gen",
    "pq_update",
    "recover_d_p",
    "recover_d_q",
    "recover_dd",
    "check",
];

fn available() -> Vec<&'static str> {
    Kernels::available().map(Kernels::name).collect()
}

#[test]
fn an_array_runs_with_the_kernels_that_were_asked_for_and_the_record_says_so() {
    for name in available() {
        let ran = bench(&format!(
            "--parity-impl {name} --level raid6 --members mem --size 4M --chunk 64K \
             --workload seq-write,rand-write"
        ));
        let ran = ran.code(0);
        assert_eq!(ran.record()["host"]["parity_kernel"], name);
        for cell in ran.cells() {
            assert_eq!(cell["verified"], true, "{name}: {cell}");
        }
    }
}

#[test]
fn without_a_name_the_choice_is_one_of_this_cpu() {
    let ran = bench("--level raid5 --members mem --size 4M --workload seq-read").code(0);
    let record = ran.record();
    let chosen = record["host"]["parity_kernel"].as_str().expect("a name");
    assert!(available().contains(&chosen), "{chosen}");
    assert_ne!(chosen, "reference", "the reference is to compare with, not to use");
}

#[test]
fn kernels_that_this_cpu_lacks_are_refused_with_what_they_need() {
    let missing: Vec<_> =
        Kernels::NAMES.into_iter().filter(|name| !available().contains(name)).collect();
    if missing.is_empty() {
        println!("skipped: this CPU runs every variant");
        return;
    }
    for name in missing {
        for words in ["bench --members mem", "bench kernels"] {
            let ran = raidlab(&format!("{words} --parity-impl {name}")).code(2);
            assert_eq!(ran.stdout, "");
            for part in ["--parity-impl", name, "needs", "CPU"] {
                assert!(ran.stderr.contains(part), "'{part}' is not named: {}", ran.stderr);
            }
        }
    }
}

#[test]
fn the_table_has_every_operation_and_the_limits() {
    // Not the reference: it would need minutes for the large blocks.
    let mut columns = vec!["portable", Kernels::best().name()];
    columns.dedup();
    let ran = raidlab(&format!("{QUICK_TABLE} --parity-impl {}", columns.join(","))).code(0);
    let text = &ran.stdout;
    for name in OPERATIONS {
        let lines = text.lines().filter(|line| line.split_whitespace().next() == Some(name));
        let lines: Vec<&str> = lines.collect();
        assert!(!lines.is_empty(), "{name}: {text}");
        for line in lines {
            let figures: Vec<f64> =
                line.split_whitespace().skip(1).map(|w| w.parse().expect("a number")).collect();
            assert_eq!(figures.len(), columns.len(), "{line}");
            // Where others have the CPU, a figure may round to nothing.
            assert!(figures.iter().all(|figure| (0.0..1e4).contains(figure)), "{line}");
            assert!(figures.iter().any(|figure| *figure > 0.0), "{line}");
        }
    }
    let parts = ["GB/s", "memcpy", "read", "8 data blocks of 64 KiB"];
    for part in parts.iter().chain(&columns) {
        assert!(text.contains(part), "'{part}' is missing: {text}");
    }
}

#[test]
fn the_json_of_the_table_is_what_was_promised() {
    let ran = raidlab(&format!("{QUICK_TABLE} --parity-impl portable --json")).code(0);
    let table: Value = serde_json::from_str(&ran.stdout).expect("stdout is one document");
    let figures = table["kernels"].as_array().expect("a list");
    let mut operations: Vec<&str> = Vec::new();
    for figure in figures {
        let op = figure["op"].as_str().expect("a text");
        if !operations.contains(&op) {
            operations.push(op);
        }
        assert_eq!(figure["variant"], "portable");
        for count in ["data_blocks", "block_bytes"] {
            assert!(figure[count].as_u64().is_some_and(|n| n > 0), "{count}: {figure}");
        }
        let samples = figure["samples"].as_array().expect("a list");
        assert_eq!(samples.len(), 1, "{figure}");
        assert!(figure["gb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
        assert_eq!(figure["gb_per_s"], samples[0], "the median of one sample");
    }
    assert_eq!(operations, OPERATIONS);
    for block_bytes in [4096, 16384, 65536, 16 << 20] {
        let there = |figure: &&Value| {
            figure["op"] == "pq_gen"
                && figure["data_blocks"] == 8
                && figure["block_bytes"] == block_bytes
        };
        assert_eq!(figures.iter().filter(there).count(), 1, "8 blocks of {block_bytes}");
    }
    let limits = table["limits"].as_array().expect("a list");
    for op in ["memcpy", "read"] {
        assert!(limits.iter().any(|limit| limit["op"] == op), "{op}");
    }
}

#[test]
fn the_kernels_are_measured_without_an_array() {
    for words in ["--level raid5", "--members mem", "--html report.html", "--block 4K"] {
        let ran = raidlab(&format!("bench kernels {words}")).code(2);
        let option = words.split(' ').next().expect("an option");
        let wanted = format!("unexpected argument '{option}'");
        assert!(ran.stderr.contains(&wanted), "{}", ran.stderr);
    }
}
