//! Distributions of latencies: bars in the terminal, and what fio's own tool reads of our json+.

use std::process::Command;

use serde_json::Value;

use crate::support::{Dir, raidlab};

/// Two cells of a stated load, stored in a file, and a phase of a program.
fn records(dir: &Dir) -> [String; 2] {
    let [blocks, program] = ["blocks.json", "program.json"].map(|name| dir.file(name));
    let words = "--members mem --size 8M --level raid5 --workload rand-read,rand-write --runs 1";
    raidlab(&format!("bench {words} --seconds 0.2 --rate-iops 500 --json={blocks}")).code(0);
    let words = format!("--target path:{} --size 8M --workload dd", dir.path());
    raidlab(&format!("bench {words} --json={program}")).code(0);
    [blocks, program]
}

#[test]
fn a_histogram_has_all_requests_also_of_a_stored_record() {
    let dir = Dir::new();
    let [blocks, _] = records(&dir);
    let ran = raidlab(&format!("report {blocks} --histogram")).code(0);
    for part in ["rand-read, response time of ", " reads\n", " writes\n", "p50", "p99.9 max "] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    let words = "--members mem --size 8M --level raid0 --workload seq-read --runs 1 --seconds 0.05";
    let ran = raidlab(&format!("bench {words} --histogram --json")).code(0);
    assert!(ran.stderr.contains("seq-read, latency of "), "JSON has stdout: {}", ran.stderr);
    let ran = raidlab(&format!("bench {words} --histogram")).code(0);
    assert!(ran.stdout.contains("seq-read, latency of "), "{}", ran.stdout);
    raidlab(&format!("report {blocks} --histogram --csv -")).code(2);
}

/// The first column at which the cumulative share reaches `percent`, and the number of requests.
fn of_csv(text: &str, column: &str, percent: f64) -> (f64, u64) {
    let mut lines = text.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let heads = lines.next().expect("a heading");
    let at = |name: &str| heads.iter().position(|head| *head == name).expect(name);
    let (share, count) = (format!("{column}_percentile"), format!("{column}_count"));
    let (share, count) = (at(&share), at(&count));
    let rows: Vec<_> = lines.filter(|row| row.get(share).is_some_and(|s| !s.is_empty())).collect();
    let reached = |row: &&Vec<&str>| row[share].parse::<f64>().expect("a share") >= percent / 100.0;
    let ns = rows.iter().find(reached).expect("100 % are reached")[0].parse().expect("ns");
    (ns, rows.iter().map(|row| row[count].parse::<u64>().expect("a count")).sum())
}

#[test]
fn fios_own_tool_reads_our_json_plus_and_finds_our_percentiles() {
    const TOOL: &str = "fio_jsonplus_clat2csv";
    if Command::new(TOOL).arg("--help").output().is_err() {
        println!("skipped: {TOOL} is not installed (Debian: fio)");
        return;
    }
    let dir = Dir::new();
    for record in records(&dir) {
        let fio = dir.file("fio.json");
        raidlab(&format!("report {record} --fio-json {fio}")).code(0);
        let csv = dir.file("out.csv");
        for validate in [&[][..], &["--validate"][..]] {
            let ran = Command::new(TOOL).args([&fio, &csv]).args(validate).output().expect("runs");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            let said = String::from_utf8_lossy(&ran.stdout).into_owned();
            assert!(validate.is_empty() || said.contains("validated"), "{said}");
            assert!(!said.contains("mismatch"), "{said}");
        }
        let text = std::fs::read_to_string(&record).expect("the record");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        let cells = record["cells"].as_array().expect("cells").iter();
        let cells = cells.filter(|cell| cell["mb_per_s"].as_f64() > Some(0.0));
        for (job, cell) in cells.enumerate() {
            let csv = std::fs::read_to_string(dir.file(&format!("out_job{job}.csv")));
            let csv = csv.expect("a file for each job");
            let writes = cell["workload"].as_str().is_some_and(|kind| kind.ends_with("write"));
            let direction = if writes { "write" } else { "read" };
            let ops = |sample: &Value| sample["ops"].as_u64().expect("a count");
            let ops: u64 = cell["samples"].as_array().expect("samples").iter().map(ops).sum();
            let completion = if cell["service_us"].is_null() { "latency_us" } else { "service_us" };
            for (figure, column) in [(completion, "clat_ns"), ("latency_us", "lat_ns")] {
                for (name, percent) in [("p50", 50.0), ("p99", 99.0), ("p999", 99.9)] {
                    let ours = cell[figure][name].as_f64().expect("a latency") * 1e3;
                    let (ns, count) = of_csv(&csv, &format!("{direction}_{column}"), percent);
                    assert!((ns / ours - 1.0).abs() < 0.016, "{column} {name}: {ns}, {ours} here");
                    assert_eq!(count, ops, "{column}");
                }
            }
        }
    }
}
