//! The law beside the engine in model time, over every built-in drive profile: two models of one
//! drive may differ, but not by more than a stated factor beyond the law's interval, unless the law
//! says that it has no number.
//!
//! CPU time, md's threads and md's locks are not in the engine's model time: of the law's ceilings
//! the disks' is compared.

use std::time::Duration;

use drive::Profile;
use md::Level;
use predict::fitted::Fitted;
use predict::intervals::Class;
use predict::law::{Access, Array, Ceiling, Copies, Machine, Sheet, Source, WhyNot, Work};
use predict::law::{WriteBack, predict};
use raidlab_bench::model_time;
use results::record::Cell;
use spec::case::{BenchLevel, RunConfig};
use spec::matrix::{self, Options};

/// How far beyond an end of the law's interval the engine may be.
const FACTOR: f64 = 1.5;
const DISKS: u32 = 4;
/// Without `RAIDLAB_TEST=all`: one of each kind, those of NVMe take minutes.
const SAMPLED: [&str; 3] = ["hdd-2007", "hdd-smr", "sata-ssd"];

/// The cells of a drive: RAID 5 and RAID 10 of four, the four block workloads.
fn engine(drive: &str) -> Vec<Cell> {
    let options = Options::default().with(|it| {
        it.arrays.level = vec![BenchLevel::Md(Level::Raid5), BenchLevel::Md(Level::Raid10)];
        it.arrays.disks = vec![DISKS];
        it.engine.members = vec![format!("paced:{drive}").parse().expect("a set")];
    });
    let plan = matrix::plan(&options).expect("a plan");
    // NVMe drives do millions of requests in that time; an eighth of it gives the same rates.
    let profile = Profile::named(drive).expect("built in");
    let part = if profile.queue_depth() > 32 { 8 } else { 1 };
    let config = RunConfig {
        warm_up: Duration::from_secs(2) / part,
        sample: Duration::from_secs(4) / part,
        runs: 1,
        ..RunConfig::quick()
    };
    let (record, ended) =
        model_time::run(&plan, &config, &|| false, &mut |_| {}).expect("modelled drives");
    ended.expect("all of it runs");
    record.cells
}

fn work(cell: &Cell) -> Work {
    match &*cell.case.workload.text() {
        "seq-read" => Work::Read,
        "seq-write" => Work::Write,
        "rand-read" => Work::RandomRead,
        "rand-write" => Work::RandomWrite,
        other => panic!("{other}: not asked for"),
    }
}

/// What the law has of the disks of a cell, with its interval.
fn law(drive: &str, cell: &Cell, fitted: &Fitted) -> Result<(f64, f64, f64), WhyNot> {
    let in_flight = f64::from(cell.case.depth) * f64::from(cell.case.jobs);
    let sheet = Sheet::of(Profile::named(drive).expect("built in"), in_flight);
    let mut machine = Machine::new(sheet.media);
    machine.kernel = predict::law::Kernel::parse("6.1");
    machine.is_shingled = sheet.is_shingled;
    let level = cell.md_level().expect("a level of md");
    let chunk_kib = cell.case.chunk_kib.map_or(512.0, |kib| kib as f64);
    let array = Array { copies: Copies::Near(2), ..Array::new(level, DISKS, chunk_kib) };
    let work = work(cell);
    let is_random = matches!(work, Work::RandomRead | Work::RandomWrite);
    let access = Access {
        depth: if is_random { in_flight } else { 1.0 },
        depth_is_stated: is_random,
        jobs: f64::from(cell.case.jobs),
        // Near copies are read in turn.
        direct: true,
        in_flight_bytes: Some(in_flight * cell.case.block_kib * 1024.0),
        ..Access::new(work, WriteBack::Raw)
    };
    let found = predict(&array, &machine, &access, &sheet.single, &fitted.constants)?;
    let disks = found.ceilings().iter().find(|(ceiling, _)| *ceiling == Ceiling::Disks);
    let disks = disks.expect("disks are a ceiling of these workloads").1;
    let class = Class::of(&array, &machine, &access);
    let (low, high) = fitted.intervals.around(class, disks, Source::Sheet, Ceiling::Disks);
    Ok((disks, low, high))
}

/// How much faster a drive writes for seconds, into its SLC cache, than the law says, which counts
/// what it sustains.
fn cached(drive: &str) -> f64 {
    let profile = Profile::named(drive).expect("built in");
    let number = |field: &str| {
        let found = profile.numbers().iter().find(|number| number.field == field);
        found.map_or(0.0, |number| number.value)
    };
    match number("slc_cache_gb") > 0.0 {
        true => (number("write_mb_per_s") / number("direct_write_mb_per_s")).max(1.0),
        false => 1.0,
    }
}

#[test]
fn the_law_and_the_engine_agree_on_every_drive_or_the_law_is_outside() {
    let fitted = Fitted::built_in();
    let (mut compared, mut outside, mut apart) = (0, Vec::new(), Vec::new());
    let all: Vec<&str> = Profile::names().collect();
    let drives = if testkit::runs_all() { &all[..] } else { &SAMPLED };
    testkit::print_sample("drives", drives.len() as u64, all.len() as u64);
    for drive in drives {
        for cell in engine(drive) {
            let name = format!("{drive} {} {}", cell.case.level, cell.case.workload);
            let ours = cell.rate();
            match law(drive, &cell, &fitted) {
                Err(why) => {
                    println!("{name:44} engine {ours:10.1}, law: {why}");
                    outside.push((name, why));
                }
                Ok((disks, low, high)) => {
                    println!("{name:44} engine {ours:10.1}, law {disks:10.1}, {low:.1}..{high:.1}");
                    compared += 1;
                    let most = high * FACTOR * if cell.writes() { cached(drive) } else { 1.0 };
                    if !(low / FACTOR..=most).contains(&ours) {
                        apart.push(format!("{name}: engine {ours:.1}, law {low:.1} to {high:.1}"));
                    }
                }
            }
        }
    }
    assert!(apart.is_empty(), "{apart:#?}");
    // What was found wrong by a factor of thirty, and said nothing: shingled disks.
    let shingled = |name: &str| (name.to_string(), WhyNot::Shingled(Work::RandomWrite));
    let expected = ["hdd-smr raid5 rand-write", "hdd-smr raid10 rand-write"].map(shingled);
    assert_eq!(outside, expected, "all others have a number");
    assert_eq!(compared, 8 * drives.len() - 2);
}
