//! Background work beside a load on a model clock: what each leaves the other, alike on every
//! machine. See docs/perf/background.md.
//!
//! The engine, the bytes and the modelled drives are those of `raidlab bench`; only waiting takes
//! no time ([`host::sys::ModelClock`]).

use std::time::Duration;

use host::sys::ModelClock;
use raidlab_bench::blocks as bench;
use results::record::{Cell, Record};
use spec::case::RunConfig;
use spec::matrix::{self, Options};
use spec::workload::{BackgroundWork, Kind};

/// Sequential rate of a member at its outer edge, MB/s.
const OUTER: f64 = 83.0;

/// `mib`: size of a member; a pass of the work is as long.
fn run(members: &str, mib: u64, workloads: &[Kind], backgrounds: &[BackgroundWork]) -> Record {
    let options = Options::default().with(|it| {
        it.arrays.level = vec!["raid5".parse().expect("a level")];
        it.arrays.disks = vec![4];
        it.engine.members = vec![members.parse().expect("a set")];
        it.sizes = vec![(3 * mib) << 20];
        it.blocks.depth = vec![1];
        it.workloads = workloads.to_vec();
        it.background.background = backgrounds.to_vec();
    });
    let plan = matrix::plan(&options).expect("a plan");
    let settings = RunConfig {
        warm_up: Duration::from_millis(300),
        sample: Duration::from_secs(4),
        runs: 3,
        ..RunConfig::quick()
    };
    let _clock = ModelClock::start();
    let (record, ended) = bench::run(&plan, &settings, &|| false, &mut |_| {});
    ended.expect("all of it runs");
    record
}

/// Prints a cell as a row of the page.
fn print(cell: &Cell) {
    let alone = cell.measured.foreground_alone.clone().unwrap_or_default();
    let p99 = |us: Option<results::stats::Latency>| us.map_or(0.0, |us| us.p99 / 1000.0);
    println!(
        "| {} | {} | {} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} % | {:.1} | {:.1} |",
        cell.case.background.as_deref().unwrap_or_default(),
        cell.case.workload.text(),
        cell.case.placement.as_deref().unwrap_or_default(),
        cell.measured.background_idle_mb_per_s.unwrap_or_default(),
        cell.measured.background_mb_per_s.unwrap_or_default(),
        alone.iops,
        cell.derived.iops,
        cell.derived.foreground_share.unwrap_or_default() * 100.0,
        p99(alone.latency_us),
        p99(cell.measured.latency_us),
    );
    assert_eq!(cell.measured.verified, Some(true), "{:?}", cell.derived.warnings);
}

#[test]
fn background_work_alone_is_as_fast_as_the_members() {
    let works = [BackgroundWork::Rebuild, BackgroundWork::Scrub, BackgroundWork::Resync];
    let record = run("paced:hdd-2007:mem", 512, &[Kind::None], &works);
    for cell in &record.cells {
        print(cell);
        assert!(
            cell.derived.mb_per_s >= 0.9 * OUTER,
            "{:?}: {}",
            cell.case.background,
            cell.derived.mb_per_s
        );
    }
}

#[test]
fn a_load_of_depth_1_keeps_its_share_and_the_work_continues() {
    for (members, works, least_share) in [
        ("paced:hdd-2007:mem", &BackgroundWork::ALL[..], 0.7),
        ("paced:hdd-2007@0:mem", &BackgroundWork::ALL[..], 0.7),
        ("paced:sata-ssd-2021:mem", &[BackgroundWork::Rebuild][..], 0.65),
    ] {
        let kinds = [Kind::RandRead, Kind::RandWrite];
        let record = run(members, 128, &kinds, works);
        record.cells.iter().for_each(print);
        for cell in &record.cells {
            let what = format!("{members}, {:?}, {}", cell.case.background, cell.case.workload);
            let share = cell.derived.foreground_share.expect("measured");
            assert!(share >= least_share, "{what}: {share:.2} of the rate");
            let p99 = |us: Option<results::stats::Latency>| us.expect("requests").p99;
            let alone = cell.measured.foreground_alone.clone().expect("measured");
            let times = p99(cell.measured.latency_us) / p99(alone.latency_us);
            assert!(times <= 2.5, "{what}: p99 {times:.1} times");
            let rate = cell.measured.background_mb_per_s.expect("measured");
            let idle = cell.measured.background_idle_mb_per_s.expect("measured");
            assert!(rate >= 0.1 * idle, "{what}: {rate:.1} of {idle:.1} MB/s");
        }
    }
}
