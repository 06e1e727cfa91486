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
    assert!(refused.stderr.contains("--real-time: nothing here runs in model time"));
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
        ("--level raid1 --target fs:ext4,on=linux --background scrub", "without a file system"),
        ("--level raid5 --background scrub --foreground-share 50", "sync-speed-min=KIB and"),
        ("--level raid5 --members mem", "modelled ones, as in --members paced:hdd-2007"),
        ("--level raid5 --members fault:gone@5:paced:hdd-2007", "modelled ones, as in"),
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

#[test]
fn a_kernel_rebuilds_at_the_limit_that_md_is_given() {
    if !is_built() {
        return;
    }
    // md keeps the limit on average: over a second there is none to see.
    let words = "bench --target linux,sync-speed-max=20000 --level raid5 --disks 3 --chunk 64K \
                 --size 1G --workload none --background rebuild --seconds 20 --runs 1 --json";
    let cell = raidlab(words).code(0).cell();
    assert_eq!((&cell["background"], &cell["verified"]), (&"rebuild".into(), &true.into()));
    assert!(cell["foreground_percent"].is_null(), "{cell}");
    let ratio = rate(&cell) / (20_000.0 * 1024.0 / 1e6);
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}: {cell}");
    assert_eq!(cell["place"]["knobs"]["md/sync_speed_max"], "20000");
}

#[test]
fn a_kernel_has_arrays_in_arrays_and_a_bitmap() {
    if !is_built() {
        return;
    }
    let words = "bench --target linux,bitmap=internal --array raid1(raid0(2),raid0(2)) --chunk 64K \
                 --size 64M --runs 1 --seconds 1 --workload seq-write --json";
    let cell = raidlab(words).code(0).cell();
    assert_eq!((&cell["array"], &cell["disks"]), (&"raid1(raid0(2),raid0(2))".into(), &4.into()));
    assert_eq!(cell["verified"], true);
    // Two disks' rate, written twice.
    assert!((140.0..180.0).contains(&rate(&cell)), "{cell}");
    for (words, said) in [
        ("linux,sync-speed-max=1000 --level single", "sync-speed-max: it is no array of md"),
        ("linux,stripe-cache=512 --level raid1", "md: raid1 has no stripe-cache"),
    ] {
        let ran = raidlab(&format!("bench --target {words} --workload seq-read")).code(2);
        assert!(ran.stderr.contains(said), "{words}: {}", ran.stderr);
    }
}

/// Real time takes as long as it says: a second or two.
#[test]
fn a_kernel_in_real_time_measures_what_it_measures_in_model_time() {
    if !is_built() {
        return;
    }
    let words = format!("bench {SMALL} --target linux --level raid1 --disks 2 --workload seq-read");
    let (model, real) = (raidlab(&words).code(0), raidlab(&format!("{words} --real-time")).code(0));
    let (model, real) = (model.cell(), real.cell());
    assert_eq!((&model["model_time"], &real["model_time"]), (&true.into(), &false.into()));
    assert_eq!(real["verified"], true);
    assert!(real["cpu_system_s"].is_null(), "the detour of its calls is no cost of md");
    // A busy machine delays the kernel, and none lets it read faster than its disks.
    let ratio = rate(&real) / rate(&model);
    assert!((0.3..1.05).contains(&ratio), "{ratio}");
}

/// The law, from a drive's sheet alone, beside md on that drive: no farther off than the engine may
/// be (`law_and_engine` of `bench`). Shingled writes have no number.
#[test]
fn md_of_a_kernel_is_where_predict_expects_it() {
    if !is_built() {
        return;
    }
    let all: Vec<&str> = drive::Profile::names().collect();
    let drives = if testkit::runs_all() { &all[..] } else { &["hdd-2007"] };
    testkit::print_sample("drives", drives.len() as u64, all.len() as u64);
    let mut apart = Vec::new();
    for drive in drives {
        let measured = raidlab(&format!(
            "bench --target linux --members paced:{drive} --level raid5,raid10 --disks 4 \
             --chunk 64K --runs 1 --seconds 4 --json"
        ));
        let cells = measured.code(0).cells();
        assert_eq!(cells.len(), 8, "{drive}: two levels, four workloads");
        for cell in cells {
            let text = |name: &str| cell[name].as_str().expect("a word").to_string();
            let number = |name: &str| cell[name].as_f64().expect("a number");
            let (level, workload) = (text("level"), text("workload").replace("rand-", "random-"));
            let expected = raidlab(&format!(
                "predict --members {drive}*4 --level {level} --chunk 64K --fs none --bitmap none \
                 --kernel 6.12 --workload {workload} --depth {} --jobs {} --json",
                number("depth"),
                number("jobs"),
            ));
            let expected = expected.code(0).record()["predictions"][0].clone();
            let rate = match workload.starts_with("random") {
                true => number("iops"),
                false => number("mb_per_s"),
            };
            println!("{drive} {level} {workload}: md {rate:.1}, {expected}");
            let (low, high) = (expected["low"].as_f64(), expected["high"].as_f64());
            match low.zip(high) {
                None => assert!(*drive == "hdd-smr" && workload == "random-write", "{expected}"),
                Some((low, high)) if (low / 1.5..=high * 1.5).contains(&rate) => {}
                Some((low, high)) => {
                    apart.push(format!(
                        "{drive} {level} {workload}: {rate:.1}, {low:.1}..{high:.1}"
                    ));
                }
            }
        }
    }
    assert!(apart.is_empty(), "{apart:#?}");
}
