//! Model time: of the engine on modelled disks, and of a Linux kernel's md on them.
//!
//! Those of the kernel say "skipped: why" where `scripts/linux-lab` has not built it.

use serde_json::Value;

use crate::support::{Ran, raidlab, raidlab_with};

/// What a run of the same command measures again.
fn measured(ran: &Ran) -> Vec<Value> {
    let of_this_machine = ["cpu_process_s", "cpu_s_per_gib", "cpu_threads", "generator_ns_per_op"];
    let mut cells = ran.cells();
    for cell in &mut cells {
        let cell = cell.as_object_mut().expect("a cell");
        of_this_machine.iter().for_each(|name| drop(cell.remove(*name)));
    }
    cells
}

fn rate(cell: &Value) -> f64 {
    cell["mb_per_s"].as_f64().expect("a rate")
}

const SMALL: &str = "--chunk 64K --size 64M --runs 3 --json";

#[test]
fn the_engine_on_modelled_disks_measures_the_same_twice() {
    let words = format!("bench {SMALL} --level raid1,raid5 --disks 3 --members paced:hdd-2007:mem");
    let (first, second) = (raidlab(&words).code(0), raidlab(&words).code(0));
    assert_eq!(measured(&first), measured(&second));
    for cell in first.cells() {
        assert_eq!((&cell["model_time"], &cell["verified"]), (&true.into(), &true.into()));
        assert!(cell["cpu_system_s"].is_null() && cell["cpu_process_share"].is_null());
    }
    let other = raidlab(&format!("{words} --seed 2")).code(0);
    assert_ne!(measured(&first), measured(&other), "random addresses are others");
}

#[test]
fn real_time_is_kept_where_it_is_wanted_or_needed() {
    let short = "--size 16M --runs 1 --seconds 0.05 --warm-up 0 --workload seq-read --json";
    for words in [
        "--real-time --members paced:sata-ssd:mem",
        "--members paced:sata-ssd:mem+mem",
        "--members paced:sata-ssd:mem --cores 1",
        "--members mem",
    ] {
        let ran = raidlab(&format!("bench {short} --level raid1 --disks 2 {words}")).code(0);
        assert_eq!(ran.cell()["model_time"], false, "{words}");
    }
    let refused =
        raidlab("bench --real-time --target device:/dev/null --workload seq-read").code(2);
    assert!(
        refused.stderr.contains("--real-time: no block workload runs on an array of the engine")
    );
}

#[test]
fn a_kernel_that_was_not_built_is_named_before_anything_runs() {
    let without = [("RAIDLAB_LINUX", "/nonexistent/lab")];
    for words in ["", "--dry-run"] {
        let refused =
            raidlab_with(&format!("bench --target linux --level raid1 {words}"), &without);
        let refused = refused.code(2).stderr;
        assert!(refused.contains("/nonexistent/lab: no kernel for --target linux"), "{refused}");
        assert!(refused.contains("scripts/linux-lab"), "{refused}");
    }
}

#[test]
fn what_a_kernel_in_model_time_does_not_do_is_refused() {
    for (words, said) in [
        ("--level raid5 --background scrub", "--background: linux: "),
        ("--level raid5 --members mem", "modelled ones, as in --members paced:hdd-2007"),
        ("--level raid5 --members fault:gone@5:paced:hdd-2007", "modelled ones, as in"),
        ("--array raid1(raid0(2),raid0(2))", "nested arrays are not supported there"),
        ("--level raid5 --stripe-cache 1M", "--stripe-cache: give stripe-cache=PAGES after linux"),
        ("--level raid5 --cores 1", "--cores"),
        ("--level raid5 --parity-impl portable", "--parity-impl: no --target has an array"),
    ] {
        let refused = raidlab(&format!("bench --target linux {words}")).code(2).stderr;
        assert!(refused.contains(said), "{words}: {refused}");
    }
    let program = raidlab("bench --target fs:ext4,on=linux,cpu=free --level raid5 --workload dd");
    let program = program.code(2).stderr;
    assert!(program.contains("cpu=free is for block workloads"), "{program}");
}

/// Whether there is a kernel here.
fn is_built() -> bool {
    let found = raidlab("bench --target linux --level raid1 --dry-run");
    if found.code == 0 {
        return true;
    }
    println!("skipped: {}", found.stderr.trim());
    false
}

#[test]
fn md_of_a_kernel_measures_the_same_twice_and_near_the_engine() {
    if !is_built() {
        return;
    }
    let words = format!(
        "bench {SMALL} --level raid5 --disks 3 --degraded 0,1 --workload seq-read,rand-write"
    );
    let linux = || raidlab(&format!("{words} --target linux")).code(0);
    let (first, second) = (linux(), linux());
    let cells = first.cells();
    assert_eq!(cells, second.cells(), "every sample, byte, request and CPU time");
    let engine = raidlab(&format!("{words} --target engine --members paced:hdd-2007:mem")).code(0);
    assert_eq!(cells.len(), 4);
    for cell in &cells {
        assert_eq!((&cell["target"], &cell["verified"]), (&"linux".into(), &true.into()));
        assert_eq!(cell["members"], "paced:hdd-2007");
        assert!(cell["place"]["kernel"].is_string() && cell["model_time"] == true);
        let same = |other: &&Value| {
            ["workload", "degraded"].iter().all(|name| other[*name] == cell[*name])
        };
        let engine = engine.cells();
        let engine = engine.iter().find(same).expect("a cell of the engine");
        // Random writes of a degraded array are where they differ most.
        let near = if cell["workload"] == "seq-read" { 0.1 } else { 0.35 };
        let ratio = rate(cell) / rate(engine);
        assert!((ratio - 1.0).abs() < near, "{ratio}: {} {}", cell["workload"], cell["degraded"]);
    }
}

#[test]
fn a_program_runs_on_a_file_system_of_a_kernel() {
    if !is_built() {
        return;
    }
    let words = "bench --target fs:ext4,on=linux --level raid1 --disks 2 --size 64M --json \
                 --workload dd:bs=1M";
    let ran = raidlab(words).code(0);
    let cells = ran.cells();
    assert_eq!(cells.iter().map(|cell| &cell["phase"]).collect::<Vec<_>>(), ["write", "read"]);
    for cell in cells {
        assert_eq!(
            (&cell["verified"], &cell["place"]["file_system"]),
            (&true.into(), &"ext4".into())
        );
        assert!(rate(&cell) > 20.0 && cell["cpu_process_s"].as_f64().is_some_and(|cpu| cpu > 0.0));
    }
}
