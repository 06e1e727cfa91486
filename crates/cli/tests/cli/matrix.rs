//! Options: their product, what makes no sense, and what each of them does.

use serde_json::{Value, json};

use crate::support::{Dir, bench, raidlab, total};

fn fields(cells: &[Value], name: &str) -> Vec<Value> {
    cells.iter().map(|cell| cell[name].clone()).collect()
}

#[test]
fn lists_multiply() {
    let ran = raidlab(
        "bench --seconds 0.01 --runs 1 --warm-up 0 --json --members mem,null --size 8M \
         --level raid0 --level raid5,raid6 --disks 4,5 --chunk 64K,128K \
         --workload rand-read,rand-write --depth 1,4 --jobs 1,2",
    )
    .code(0);
    assert_eq!(ran.cells().len(), 2 * 3 * 2 * 2 * 2 * 2 * 2);
    assert!(ran.stderr.contains("24 arrays, 192 cells"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("left out"));
}

#[test]
fn what_makes_no_sense_is_left_out_and_named() {
    let ran = bench(
        "--members mem --size 8M --level raid0,raid1,raid6 --disks 2,4 --degraded 0,2 \
         --workload seq-read",
    )
    .code(0);
    let left_out: Vec<&str> =
        ran.stderr.lines().filter(|line| line.starts_with("left out: ")).collect();
    // RAID 0 without members, twice; a mirror of two without two; RAID 6 of two, twice.
    assert_eq!(left_out.len(), 5, "{left_out:#?}");
    assert!(left_out.iter().any(|line| line.contains("raid0(2): --degraded 2")), "{left_out:#?}");
    assert!(left_out.iter().any(|line| line.contains("raid6(2): members")), "{left_out:#?}");
    assert_eq!(ran.cells().len(), 12 - 5);
}

#[test]
fn knobs_multiply_only_where_they_mean_something() {
    let ran = bench(
        "--members mem --size 8M --level single,raid0,raid5 --stripe-cache 1M,8M --bus 50MB/s \
         --read-ahead 0,1M --workload seq-read,rand-read",
    )
    .code(0);
    let cells = ran.cells();
    // One single, one RAID 0, two RAID 5: each with two sequential cells and a random one.
    assert_eq!(cells.len(), 4 * 3, "{}", ran.stderr);
    assert!(fields(&cells, "bus_mb_per_s").iter().all(Value::is_null), "no member is paced");
    assert!(ran.stderr.contains("raid0(4): --bus: no member of 'mem' is paced"), "{}", ran.stderr);
    let caches = fields(&cells[6..], "stripe_cache_kib");
    assert_eq!(caches, [1024, 1024, 1024, 8192, 8192, 8192].map(Value::from));
    assert_eq!(cells[1]["read_ahead_kib"], json!(1024));
    assert_eq!(cells[2]["read_ahead_kib"], Value::Null);
}

#[test]
fn a_dry_run_of_every_bench_shows_its_cells_and_makes_nothing() {
    let dir = Dir::new();
    let words = "--level raid5 --members file --workload rand-read --rate-iops 100,200";
    let ran = raidlab(&format!("bench --dry-run {words} --dir {}", dir.path())).code(0);
    assert!(ran.stdout.contains("rand-read at 200/s linear"), "{}", ran.stdout);
    let modified = std::fs::metadata(dir.path()).expect("it is there").modified().expect("known");
    raidlab(&format!("bench --dry-run {words} --dir {}", dir.path())).code(0);
    let after = std::fs::metadata(dir.path()).expect("it is there").modified().expect("known");
    assert_eq!(modified, after, "not even a probe");
    raidlab(&format!("bench --dry-run {words} --dir {}/none", dir.path())).code(2);
    let ran = raidlab("bench kernels --dry-run --parity-impl portable").code(0);
    assert!(ran.stdout.contains("kernels: portable\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains(" figures, about "), "{}", ran.stdout);
}

#[test]
fn without_a_terminal_there_are_no_escape_codes() {
    let dir = Dir::new();
    let words = "--members mem --size 8M --level raid5 --workload rand-read";
    let program = format!("--target path:{} --size 8M --workload dd", dir.path());
    for words in [words, &program] {
        let ran = raidlab(&format!("bench --runs 1 {words}")).code(0);
        assert!(!ran.stderr.contains('\x1b') && !ran.stderr.contains('\r'), "{:?}", ran.stderr);
    }
}

#[test]
fn a_directory_as_it_is_records_its_area_and_the_settings_of_the_run() {
    let dir = Dir::new();
    let words = format!(
        "bench --target path:{} --size 4M,8M --workload rand-read --runs 1 --seconds 0.02 \
         --warm-up 0 --until-steady 5 --cores 1 --json",
        dir.path()
    );
    let ran = raidlab(&words).code(0);
    let cells = ran.cells();
    assert_eq!(fields(&cells, "file_bytes"), [4 << 20, 8 << 20].map(Value::from));
    assert_eq!(fields(&cells, "cores"), [1, 1].map(Value::from));
    assert_eq!(fields(&cells, "rounds_max"), [5, 5].map(Value::from));
}

#[test]
fn stated_loads_multiply_and_their_figures_are_in_the_record() {
    let words = "bench --seconds 0.2 --runs 1 --warm-up 0 --json --members mem --size 8M \
                 --level raid5 --workload rand-read,seq-write --rate-iops";
    let ran = raidlab(&format!("{words} 50,200 --rate-process poisson")).code(0);
    let cells = ran.cells();
    assert_eq!(fields(&cells, "rate_iops"), [50, 200, 50, 200].map(Value::from));
    for cell in &cells {
        assert_eq!(cell["rate_process"], json!("poisson"));
        let (response, service) = (&cell["latency_us"], &cell["service_us"]);
        assert!(response["max"].as_f64() >= service["max"].as_f64(), "{cell}");
        assert!(cell["arrivals"].is_u64() && cell["waiting"].is_u64(), "{cell}");
    }
    let closed = bench("--members mem --size 8M --level raid5 --workload rand-read").code(0).cell();
    for name in ["rate_iops", "rate_process", "service_us", "arrivals", "waiting"] {
        assert!(closed[name].is_null(), "{name}: {closed}");
    }
    let words = "bench --members mem --size 8M --level raid5";
    for (wrong, why) in [
        ("--rate-process poisson", "--rate-iops"),
        ("--rate-iops 0", "requests per second, 1 to 10000000"),
        ("--rate-iops 9 --rate-process often", "linear (equal intervals)"),
        ("--rate-iops 9 --workload dd", "--rate-iops: applies to block workloads only"),
    ] {
        let ran = raidlab(&format!("{words} {wrong}")).code(2);
        assert!(ran.stderr.contains(why), "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn background_work_is_measured_alone_and_beside_workloads() {
    let words = "--members mem --size 8M --level raid5,raid0 --background rebuild,scrub \
                 --workload none,rand-read --foreground-share 50";
    let ran = bench(words).code(0);
    let cells = ran.cells();
    assert_eq!(
        fields(&cells, "background"),
        ["rebuild", "rebuild", "scrub", "scrub"].map(Value::from)
    );
    assert_eq!(
        fields(&cells, "workload"),
        ["none", "rand-read", "none", "rand-read"].map(Value::from)
    );
    for cell in &cells {
        assert!(cell["background_idle_mb_per_s"].as_f64() > Some(0.0), "{cell}");
        assert_eq!((&cell["verified"], &cell["degraded"]), (&json!(true), &json!(0)));
        let beside = ["background_mb_per_s", "foreground_share"].map(|name| cell[name].as_f64());
        match cell["workload"] == "none" {
            true => assert_eq!(beside, [None, None]),
            false => {
                assert!(beside.iter().all(|figure| *figure > Some(0.0)), "{cell}");
                assert_eq!(cell["foreground_percent"], json!(50));
                assert!(cell["foreground_alone"]["latency_us"]["p99"].as_f64() > Some(0.0));
            }
        }
    }
    assert!(ran.stderr.contains("left out: raid0(4): --background rebuild: the array has no"));
    assert!(ran.stderr.contains("Background work: rates of each member"), "{}", ran.stderr);
    let dry = raidlab(&format!("bench --dry-run {words}")).code(0);
    assert!(dry.stdout.contains("rand-read during scrub (50 % for it)"), "{}", dry.stdout);
    for (wrong, why) in [
        ("--foreground-share 50", "--background"),
        ("--background reshape", "there are rebuild, scrub and resync"),
        (
            "--background scrub --target path:/tmp",
            "arrays of the engine and of md, without a file system",
        ),
        ("--background scrub --workload dd", "beside block workloads only"),
        ("--workload none", "no --background work that could be measured alone"),
    ] {
        let ran = raidlab(&format!("bench --members mem --level raid5 {wrong}")).code(2);
        assert!(ran.stderr.contains(why), "{wrong}: {}", ran.stderr);
    }
}

#[test]
fn mixed_workloads_have_their_reads_and_writes_apart() {
    let words = "--members mem --size 8M --level raid5 --workload seq-mixed,rand-mixed,seq-read \
                 --read-percent 60,90";
    let ran = bench(words).code(0);
    let cells = ran.cells();
    assert_eq!(
        fields(&cells, "read_percent"),
        [json!(60), json!(90), json!(60), json!(90), json!(null)]
    );
    for cell in &cells[..4] {
        let part = |name: &str, figure: &str| cell[name][figure].as_f64().expect("a number");
        for figure in ["mb_per_s", "iops"] {
            let parts = part("reads_apart", figure) + part("writes_apart", figure);
            let whole = cell[figure].as_f64().expect("a number");
            assert!((parts / whole - 1.0).abs() < 1e-9, "{parts} of {whole}");
        }
        let share = part("reads_apart", "iops") / cell["iops"].as_f64().expect("a number");
        let stated = cell["read_percent"].as_f64().expect("a number") / 100.0;
        assert!((share - stated).abs() < 0.08, "{share} for {stated}");
        for part in ["reads_apart", "writes_apart"] {
            assert!(cell[part]["latency_us"]["p99"].as_f64() > Some(0.0), "{cell}");
        }
        assert_eq!((&cell["verified"], &cell["bound_mb_per_s"]), (&json!(true), &json!(null)));
        assert!(total(cell, "read_bytes") > 0 && total(cell, "written_bytes") > 0);
    }
    assert!(cells[4]["reads_apart"].is_null() && cells[4]["writes_apart"].is_null());
    assert!(ran.stderr.contains("Reads and writes apart"), "{}", ran.stderr);
    // Of modelled disks there is a bound of reads and of writes, and none of both.
    let paced = bench("--size 8M --level raid1 --disks 2 --workload rand-mixed").code(0).cell();
    assert_eq!((&paced["read_percent"], &paced["bound_share"]), (&json!(70), &json!(null)));
    assert!(paced["bound_note"].as_str().is_some_and(|note| note.starts_with("no bound: ")));
    // Wrong data is found in the reads of the samples, or when all is read back.
    let flips =
        bench("--members mem+fault:flip@100:mem --size 8M --level raid0 --workload rand-mixed");
    assert_eq!(flips.code(1).cell()["verified"], json!(false));
    let words = "bench --members mem --size 8M --level raid5";
    for (wrong, why) in [
        ("--read-percent 50", "applies to seq-mixed and rand-mixed only"),
        ("--read-percent 50 --workload dd,rand-read", "applies to seq-mixed and rand-mixed only"),
        ("--workload rand-mixed --read-percent 0", "0 is not in 1..=99"),
        ("--workload rand-mixed --read-percent 100", "100 is not in 1..=99"),
        ("--rw randmixed", "there are seq-read, rand-read, seq-write, rand-write, seq-mixed"),
    ] {
        let ran = raidlab(&format!("{words} {wrong}")).code(2);
        assert!(ran.stderr.contains(why), "{wrong}: {}", ran.stderr);
    }
    let ran = bench("--members mem --size 8M --level raid5 --rw randrw --rwmixread 40").code(0);
    assert_eq!(ran.cell()["read_percent"], json!(40));
    assert!(ran.stderr.contains("70 % reads unless --read-percent is given (fio: 50 %)"));
}

#[test]
fn naming_disks_means_every_level_with_them() {
    let ran = bench("--members mem --size 8M --disks 3,4 --workload seq-read").code(0);
    // linear is not among the defaults; RAID 6 needs four.
    let named: Vec<_> =
        ran.cells().iter().map(|c| (c["level"].clone(), c["disks"].clone())).collect();
    let levels = ["raid0", "raid1", "raid4", "raid5", "raid6", "raid10"];
    for level in levels {
        for disks in [3, 4] {
            let there = named.contains(&(level.into(), disks.into()));
            assert_eq!(there, (level, disks) != ("raid6", 3), "{level} of {disks}");
        }
    }
    assert!(ran.stderr.contains("left out: raid6(3)"));
}

#[test]
fn arrays_are_nested() {
    let ran = bench(
        "--members mem --size 16M --workload seq-read,rand-write \
         --array raid1(raid0(2),raid0(2)),raid0(raid1(2),raid1(2)) \
         --array raid0(raid5,64K(3),raid5,64K(3))",
    )
    .code(0);
    let cells = ran.cells();
    let arrays = ["raid1(raid0(2),raid0(2))", "raid0(raid1(2),raid1(2))"];
    assert_eq!(cells[0]["array"], arrays[0]);
    assert_eq!(cells[2]["array"], arrays[1]);
    assert_eq!(cells[4]["array"], "raid0(raid5,64K(3),raid5,64K(3))");
    assert_eq!(fields(&cells, "level"), ["raid1", "raid1", "raid0", "raid0", "raid0", "raid0"]);
    assert_eq!(fields(&cells, "disks"), [4, 4, 4, 4, 6, 6]);
    assert!(cells.iter().all(|cell| cell["verified"] == true));
    assert_eq!(cells[4]["per_member"].as_array().expect("a list").len(), 6);
    // An outermost member that is taken out is a whole array.
    let cell = bench(
        "--members mem --size 16M --workload rand-write --degraded 1 \
         --array raid1(raid0(2),raid0(2))",
    )
    .code(0)
    .cell();
    let written: Vec<bool> = (0..4).map(|slot| cell["per_member"][slot]["writes"] == 0).collect();
    assert_eq!(written, [true, true, false, false]);
}

#[test]
fn sets_may_be_mixed_and_files_leave_no_trace() {
    let dir = Dir::new();
    let set = format!("mem+file:{}+paced:nvme-ssd+paced:sata-ssd@0.5:mem", dir.path());
    let words = format!("--level raid5 --size 16M --members {set} --dir {}", dir.path());
    let ran = bench(&words).code(0);
    let cells = ran.cells();
    assert_eq!(cells.len(), 4);
    for cell in &cells {
        assert_eq!((&cell["members"], &cell["verified"]), (&set.clone().into(), &true.into()));
        assert_eq!(cell["checked_every"].as_u64().unwrap_or(1), 1, "not all of it is memory");
        assert!(cell["late_ops"].is_u64() && cell["bound_mb_per_s"].is_null());
    }
    assert!(ran.record()["host"]["backing"].is_object());
    assert_eq!(dir.names(), [""; 0], "member files are left behind");
}

#[test]
fn files_are_verified_and_leave_no_trace() {
    let dir = Dir::new();
    let words = format!("--level single,raid10 --size 16M --members file --dir {}", dir.path());
    let cells = bench(&words).code(0).cells();
    assert_eq!(cells.len(), 8);
    assert!(cells.iter().all(|cell| cell["verified"] == true));
    assert_eq!(dir.names(), [""; 0], "member files are left behind");
}

#[test]
fn a_bus_holds_paced_members_back() {
    let ran = raidlab(
        "bench --seconds 0.3 --runs 1 --warm-up 0.1 --json --size 64M --level raid0 --disks 2 \
         --members paced:hdd-2007:mem --bus 20MB/s,1GB/s --workload seq-read",
    )
    .code(0);
    let cells = ran.cells();
    let rate = |cell: &Value| cell["mb_per_s"].as_f64().expect("a number");
    assert_eq!(cells[0]["bus_mb_per_s"].as_f64(), Some(20.0));
    assert!(rate(&cells[0]) < 30.0, "{}", rate(&cells[0]));
    assert!(rate(&cells[1]) > 2.0 * rate(&cells[0]), "{} without", rate(&cells[1]));
}

#[test]
fn queue_depth_holds_operations_back_and_nothing_else() {
    let words = "--members mem --size 16M --level raid5 --queue-depth 1,2";
    let cells = bench(words).code(0).cells();
    assert_eq!(cells.len(), 8);
    assert!(cells.iter().all(|cell| cell["verified"] == true));
    assert_eq!((&cells[0]["queue_depth"], &cells[4]["queue_depth"]), (&1.into(), &2.into()));
}

#[test]
fn jobs_blocks_and_depths_of_every_size() {
    let cells = bench("--members mem --size 16M --level raid5 --jobs 3 --depth 2").code(0).cells();
    assert!(cells.iter().all(|cell| cell["verified"] == true && cell["jobs"] == 3));
    // Sectors, blocks that are no power of two, and the largest there is.
    for block in ["512B", "6K", "1536K", "16M"] {
        let words =
            format!("--members mem --size 64M --level raid5,raid1 --block {block} --depth 3");
        let cells = bench(&words).code(0).cells();
        assert_eq!(cells.len(), 8, "{block}");
        assert!(cells.iter().all(|cell| cell["verified"] == true), "{block}");
    }
    let cell = bench("--members mem --size 1M --level raid0 --block 512B --workload rand-write")
        .code(0)
        .cell();
    assert_eq!(cell["block_kib"], json!(0.5));
    // A larger depth than the number of blocks must not deadlock.
    let words = "--members mem --size 64K --level single,raid5 --block 4K --depth 1024";
    let cells = bench(words).code(0).cells();
    assert_eq!(cells.len(), 8);
    assert!(cells.iter().all(|cell| cell["verified"] == true));
}

#[test]
fn read_ahead_asks_for_more_at_once() {
    let words = "--members paced:hdd-2007:mem --size 32M --level raid0 --disks 2 --block 64K \
                 --depth 1 --workload seq-read --read-ahead 0,2M";
    let cells = bench(words).code(0).cells();
    assert_eq!(fields(&cells, "read_ahead_kib"), [Value::Null, json!(2048)]);
    assert!(total(&cells[1], "read_bytes") > 0);
}

#[test]
fn the_data_is_the_seeds_and_one_cpu_is_enough() {
    let words = "--members mem --size 8M --level raid6 --seed 18446744073709551615 --cores 1";
    let cells = bench(words).code(0).cells();
    assert!(cells.iter().all(|cell| cell["verified"] == true && cell["cores"] == 1));
}

#[test]
fn two_cores_have_a_lane_each_and_all_of_the_array_is_verified() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: two CPUs are wanted");
        return;
    }
    let words = "--members mem --size 64M --level raid5,raid10 --cores 2";
    let cells = bench(words).code(0).cells();
    assert_eq!(cells.len(), 8);
    let (mut all_used, mut all_process) = (0.0, 0.0);
    for cell in &cells {
        assert_eq!((&cell["verified"], &cell["cores"]), (&json!(true), &json!(2)), "{cell}");
        let names: Vec<&str> =
            cell["cpu_threads"].as_array().into_iter().flatten().filter_map(name).collect();
        assert!(names.contains(&"lane-0") && names.contains(&"lane-1"), "{names:?}");
        let used = cell["cpu_threads"].as_array().expect("a list");
        let used: f64 = used.iter().filter_map(|thread| thread["seconds"].as_f64()).sum();
        let process = cell["cpu_process_s"].as_f64().expect("a number");
        assert!(used > 0.0, "{cell}");
        (all_used, all_process) = (all_used + used, all_process + process);
    }
    // A lane that gets a CPU later than the other is measured later, too: in all it is the same.
    assert!(all_used < all_process * 1.5 + 0.2, "{all_used} of {all_process}");
    // A member that lies is found by the lanes too, and a degraded array is one to all of them.
    let words = "--members mem*3+fault:flip@1M:mem --size 64M --level raid5 --cores 2 \
                 --workload rand-read";
    assert!(bench(words).code(1).cells().iter().all(|cell| cell["verified"] == false));
    let words = "--members mem --size 64M --level raid6 --degraded 2 --cores 2";
    let cells = bench(words).code(0).cells();
    for cell in &cells {
        assert_eq!((&cell["verified"], &cell["degraded"]), (&json!(true), &json!(2)), "{cell}");
        let out = cell["per_member"].as_array().expect("a list");
        assert!(out[..2].iter().all(|member| member["reads"] == 0), "{cell}");
    }
}

fn name(thread: &Value) -> Option<&str> {
    thread["name"].as_str()
}

#[test]
fn arrays_in_arrays_run_on_one_core() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: two CPUs are wanted");
        return;
    }
    let ran = raidlab("bench --members mem --size 8M --array raid1(raid0(2),raid0(2)) --cores 2");
    let ran = ran.code(2);
    assert!(ran.stderr.contains("runs in one shard only; 2 were requested"), "{}", ran.stderr);
}
