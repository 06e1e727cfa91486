//! Findings are provoked by real measurements, one by one.

use std::time::Duration;

use raidlab_bench::blocks;
use results::findings::find;
use results::record::Cell;
use spec::buses::Buses;
use spec::case::RunConfig;
use spec::matrix::{self, Options};
use spec::workload::Kind;

/// One cell, for real.
fn run(level: &str, members: &str, kind: Kind, more: Options) -> Cell {
    let cell = measured(level, members, kind, more);
    let series = cell.measured.series.as_ref().expect("it was watched");
    let steps = series.members[0].read_mb_per_s.len();
    let covered = steps as f64 * series.step_s;
    let seconds: f64 = cell.measured.samples.iter().map(|sample| sample.seconds).sum();
    assert!((covered / seconds - 1.0).abs() < 0.2, "{covered} of {seconds} seconds");
    cell
}

/// The same on a clock that does not run on while others use the machine.
fn run_in_model_time(level: &str, members: &str, kind: Kind, more: Options) -> Cell {
    let _clock = host::sys::ModelClock::start();
    measured(level, members, kind, more)
}

fn measured(level: &str, members: &str, kind: Kind, more: Options) -> Cell {
    let options = more.with(|it| {
        it.arrays.level = vec![level.parse().expect("a level")];
        it.engine.members = vec![members.parse().expect("a set")];
        it.workloads = vec![kind];
        if it.sizes.is_empty() {
            it.sizes = vec![32 << 20];
        }
    });
    let settings = RunConfig {
        warm_up: Duration::from_millis(100),
        sample: Duration::from_millis(200),
        sample_given: true,
        runs: 3,
        ..RunConfig::quick()
    };
    let plan = matrix::plan(&options).expect("a plan");
    let (record, ended) = blocks::run(&plan, &settings, &|| false, &mut |_| {});
    ended.expect("it runs");
    assert_eq!(record.cells.len(), 1);
    let cell = record.cells[0].clone();
    println!(
        "{:?}\n{:?} {:?}",
        cell.derived.findings, cell.measured.per_member, cell.measured.member_load
    );
    assert_eq!(cell.derived.findings, find(&cell), "a finished cell gives the same again");
    cell
}

fn has(cell: &Cell, name: &str) -> bool {
    cell.derived.findings.iter().any(|finding| finding.name == name)
}

const PACED: &str = "paced:hdd-2007:mem";

#[test]
fn a_real_shared_bus_is_found() {
    let bus = |rate: u64| Options::default().with(|it| it.engine.bus = vec![Buses::shared(rate)]);
    let slow = run("raid0", PACED, Kind::SeqRead, bus(60_000_000));
    assert!(has(&slow, "shared-bus"));
    let fast = run("raid0", PACED, Kind::SeqRead, bus(4_000_000_000));
    assert!(!has(&fast, "shared-bus"));
}

/// Random reads on quarters of a disk, on four disks of a channel, and on disks for themselves. On
/// members larger than the drives' caches, which would hide what the head does.
#[test]
fn a_real_shared_disk_and_a_real_shared_channel_are_found() {
    let stretched = "paced:hdd-2007@stretch:mem";
    let run = |options| {
        let options = Options { sizes: vec![512 << 20], ..options };
        run("raid0", stretched, Kind::RandRead, options)
    };
    let disk = run(Options::default().with(|it| it.engine.spindle = vec![4]));
    assert!(has(&disk, "shared-spindle") && !has(&disk, "shared-channel"), "{disk:?}");
    let channel = run(Options::default().with(|it| it.engine.channel = vec![4]));
    assert!(has(&channel, "shared-channel") && !has(&channel, "shared-spindle"), "{channel:?}");
    let apart = run(Options::default().with(|it| it.engine.spindle = vec![1]));
    assert!(!has(&apart, "shared-spindle") && !has(&apart, "shared-channel"));
    assert!(
        disk.derived.mb_per_s < apart.derived.mb_per_s / 2.0
            && channel.derived.mb_per_s < apart.derived.mb_per_s / 2.0
    );
}

#[test]
fn a_real_slow_member_is_found() {
    let set = "paced:hdd-2007:mem*3+paced:hdd-2007@1.0:mem";
    // Where others use the machine the rest of the members is late, too.
    let slow = || {
        let cell = run("raid0", set, Kind::SeqRead, Options::default());
        cell.derived.findings.into_iter().find(|finding| finding.name == "one-slow-member")
    };
    let found = (0..5).find_map(|_| slow()).expect("it is found");
    assert_eq!(found.evidence["member"], 3.0);
    let even = run("raid0", PACED, Kind::SeqRead, Options::default());
    assert!(!has(&even, "one-slow-member"));
}

#[test]
fn a_real_read_modify_write_is_found() {
    let small = run("raid5", PACED, Kind::RandWrite, Options::default());
    assert!(has(&small, "read-modify-write"));
    let whole = run("raid5", PACED, Kind::SeqWrite, Options::default());
    assert!(!has(&whole, "read-modify-write"));
}

#[test]
fn a_real_queue_of_one_is_found() {
    let depth = |depth: u32| Options::default().with(|it| it.blocks.depth = vec![depth]);
    let one = run("raid0", PACED, Kind::RandRead, depth(1));
    assert!(has(&one, "queue-never-deeper-than-one"));
    let sixteen = run("raid0", PACED, Kind::RandRead, depth(16));
    assert!(!has(&sixteen, "queue-never-deeper-than-one"));
}

#[test]
fn a_real_queue_too_shallow_and_ncq_off_are_found() {
    let with = |depth: u32, queue_depth: &[u32]| {
        Options::default().with(|it| {
            it.blocks.depth = vec![depth];
            it.arrays.disks = vec![8];
            it.engine.queue_depth = queue_depth.to_vec();
        })
    };
    let four = run_in_model_time("raid0", PACED, Kind::RandRead, with(4, &[]));
    assert!(has(&four, "queue-too-shallow"), "{:?}", four.derived.findings);
    let many = run_in_model_time("raid0", PACED, Kind::RandRead, with(64, &[]));
    assert!(!has(&many, "queue-too-shallow") && !has(&many, "one-command-each"));
    let one = run_in_model_time("raid0", PACED, Kind::RandRead, with(64, &[1]));
    assert!(has(&one, "one-command-each"), "{:?}", one.derived.findings);
}

/// Of members in memory, and of paced ones, one answers 20 ms later than it could.
#[test]
fn a_real_member_that_answers_late_is_found() {
    for (set, base) in [("mem*3+fault:delay=20ms:mem", "mem"), (SICK_PACED, PACED)] {
        let deep = || Options::default().with(|it| it.blocks.depth = vec![16]);
        let late = |_: u32| run("raid5", set, Kind::RandRead, deep());
        let found = (0..3).map(late).find(|cell| has(cell, "one-slow-member"));
        let found = found.expect(set).derived.findings;
        let found = found.iter().find(|finding| finding.name == "one-slow-member");
        assert_eq!(found.map(|finding| finding.evidence["member"]), Some(3.0), "{set}");
        assert!(!has(&run("raid5", base, Kind::RandRead, deep()), "one-slow-member"), "{base}");
    }
}

const SICK_PACED: &str = "paced:hdd-2007:mem*3+fault:delay=200ms:paced:hdd-2007:mem";

#[test]
fn a_real_read_ahead_that_is_too_small_is_found() {
    let ahead = |bytes: u64| {
        Options::default().with(|it| {
            it.blocks.depth = vec![1];
            it.blocks.block = vec![64 << 10];
            it.blocks.read_ahead = vec![bytes];
        })
    };
    let none = run("raid0", PACED, Kind::SeqRead, ahead(0));
    assert!(has(&none, "read-ahead-too-small"));
    let enough = run("raid0", PACED, Kind::SeqRead, ahead(4 << 20));
    assert!(!has(&enough, "read-ahead-too-small"));
}

#[test]
fn a_real_parity_member_is_unbalanced() {
    let parity = run("raid4", PACED, Kind::RandRead, Options::default());
    assert!(has(&parity, "unbalanced-members"), "the parity member serves no reads");
    let even = run("raid0", PACED, Kind::SeqRead, Options::default());
    assert!(!has(&even, "unbalanced-members"));
}

/// Whether other processes took so much that no thread has a CPU for itself.
fn disturbed(cell: &Cell) -> bool {
    cell.measured.others_cpus.is_some_and(|cpus| cpus > 0.3)
}

/// Members that store nothing leave nothing to do but filling what is written.
#[test]
fn a_real_limit_of_the_generator_is_found() {
    let nothing = |_| run("raid0", "null", Kind::SeqWrite, Options::default());
    let cells: Vec<Cell> = (0..5).map(nothing).collect();
    match cells.iter().all(disturbed) {
        true => println!("skipped: other processes use the machine"),
        false => assert!(cells.iter().any(|cell| has(cell, "generator-bound"))),
    }
    assert!(cells.iter().all(|cell| !has(cell, "generator-bound") || !has(cell, "cpu-bound")));
    let paced = run("raid0", PACED, Kind::SeqWrite, Options::default());
    assert!(!has(&paced, "generator-bound"), "{:?}", paced.derived.findings);
}

#[test]
fn a_real_limit_of_the_cpu_is_found() {
    // Where others use the machine the thread does not get all of its CPU each time.
    let parity = |_| run("raid6", "mem", Kind::RandWrite, Options::default());
    let cells: Vec<Cell> = (0..5).map(parity).collect();
    match cells.iter().all(disturbed) {
        true => println!("skipped: other processes use the machine"),
        false => assert!(cells.iter().any(|cell| has(cell, "cpu-bound"))),
    }
    let paced = run("raid0", PACED, Kind::RandRead, Options::default());
    assert!(!has(&paced, "cpu-bound"), "{:?}", paced.derived.findings);
}
