//! Machines with one injected bottleneck each, and healthy ones: `diagnose` gets figures, settings
//! and probes, and names the bottleneck, or nothing. See docs/perf/diagnose.md:
//! `RAIDLAB_TEST=all cargo test -p raidlab-bench --test sick_machines -- --nocapture`
//! prints its table.
//!
//! Everything runs on a model clock ([`host::sys::ModelClock`]): the same seed gives the same table
//! on every machine. Invariant: nothing of a machine's disks, wiring or host reaches the decision
//! but by a counter or a probe.

#[path = "../hidden/mod.rs"]
mod hidden;
mod load;
mod machine;

use host::sys::ModelClock;
use machine::{Fleet, Kind, Machine, SICK, Sickness, sick_flash};
use md::Level;
use predict::diagnose::{Case, Diagnosis, Probe, ProbeFigures, State, diagnose};
use predict::fitted::Fitted;
use predict::law::{Access, Array, Machine as LawMachine, Media, Single, Work, WriteBack};

/// Sick machines of the table in docs/perf/diagnose.md, and healthy ones.
const MACHINES: u64 = 40;
const HEALTHY: u64 = 40;

/// What is known of a machine before it is probed.
fn case(machine: &Machine, ran: &load::Ran) -> Case {
    let load = &machine.load;
    let work = match load.kind {
        Kind::SeqRead => Work::Read,
        Kind::SeqWrite => Work::Write,
        Kind::StreamsWrite => Work::StreamsWrite,
        Kind::RandRead => Work::RandomRead,
        Kind::RandWrite => Work::RandomWrite,
    };
    let media = match machine.disks[0].kind() {
        drive::Kind::Solid => Media::Flash,
        drive::Kind::Rotating => Media::Rotating { rpm: 7200.0 },
    };
    let mut law = LawMachine::new(media);
    law.stripe_cache = machine.stripe_cache as f64;
    law.read_ahead_kib = load.read_ahead_kib.map(|kib| kib as f64);
    let mut array = Array::new(machine.level, machine.disks.len() as u32, machine.chunk_kib as f64);
    array.missing = u32::from(machine.missing);
    let access = Access {
        depth: load.depth as f64,
        direct: load.read_ahead_kib.is_none(),
        ..Access::new(work, WriteBack::Raw)
    };
    Case {
        md: None,
        ours: true,
        array,
        machine: law,
        access,
        depth_is_unknown: false,
        request_kib: Some(load.block as f64 / 1024.0),
        single: Single::default(),
        measured: ran.figure,
        state: State { bitmap: Some(machine.bitmap), ..State::default() },
        sample: Some(ran.sample.clone()),
        probes: ProbeFigures::default(),
    }
}

/// Diagnoses as `raidlab diagnose --probe` does: probe by probe.
fn diagnosed(machine: &Machine, ran: &load::Ran) -> (Case, Diagnosis, Vec<Probe>) {
    let fitted = Fitted::built_in();
    let mut case = case(machine, ran);
    let mut probes = load::Probes::new(machine, &|| false);
    let mut order = Vec::new();
    loop {
        let found = diagnose(&case, &fitted);
        let Some(probe) = found.next_probe else {
            if found.needs_writes && case.probes.cached_write_us.is_none() {
                written(&mut case.probes, &mut probes);
                continue;
            }
            return (case, found, order);
        };
        assert!(order.len() < 2 * Probe::ALL.len(), "{order:?}");
        predict::diagnose::run(probe, &mut probes, &mut case.probes).expect("it runs");
        order.push(probe);
    }
}

/// What `raidlab calibrate --scratch` adds.
fn written(figures: &mut ProbeFigures, probes: &mut load::Probes<'_>) {
    let settings = predict::calibrate::Settings::quick();
    let found = predict::calibrate::measure(probes, settings, &mut |_| {}).expect("it runs");
    let found = ProbeFigures::of_calibration(&found);
    figures.write_mb_per_s = found.write_mb_per_s;
    figures.random_write_iops = found.random_write_iops;
    figures.cached_write_us = found.cached_write_us.or(Some(0.0));
    figures.sync_ms = found.sync_ms;
}

fn level(machine: &Machine) -> String {
    let name = match machine.level {
        Level::Raid0 => "RAID 0",
        Level::Raid10 => "RAID 10",
        Level::Raid5 => "RAID 5",
        Level::Raid6 => "RAID 6",
        _ => "?",
    };
    format!("{name} x{}", machine.disks.len())
}

/// The machine of a seed that its sickness costs a fifth or more, as others are not sick; a healthy
/// one that loses no tenth to what is above and between its disks.
fn made(seed: u64, sickness: Sickness, fleet: Fleet) -> (Machine, load::Ran, f64) {
    for attempt in 0..50 {
        let (machine, other) = Machine::new(seed + 1_000_003 * attempt, sickness, fleet);
        let ran = load::run(&machine);
        let share = ran.figure / load::run(&other).figure;
        let healthy = sickness == Sickness::None;
        if healthy && share > 0.9 || !healthy && share < 0.8 {
            return (machine, ran, share);
        }
    }
    panic!("{sickness:?}: 50 machines that are not as they should be");
}

/// A row of the table; whether it is right.
fn row(seed: u64, sickness: Sickness, fleet: Fleet) -> bool {
    let (machine, ran, share) = made(seed, sickness, fleet);
    let (case, found, probes) = diagnosed(&machine, &ran);
    let named = found.cause();
    let right = named == sickness.cause();
    let injected = sickness.cause().map_or("-", predict::diagnose::Cause::name);
    let named = named.map_or(found.verdict.name(), predict::diagnose::Cause::name);
    let members =
        found.ceilings.iter().find(|line| line.cause == predict::diagnose::Cause::Members);
    let members = members.map_or("-".to_string(), |line| format!("{:.0}", line.rate));
    let probes: Vec<&str> = probes.iter().map(|probe| probe.name()).collect();
    println!(
        "| {seed} | `{}` | {} | {} | {:.0} {} | {} | {members} | {injected} | {named}{} | {} |",
        machine.class,
        level(&machine),
        case.access.work.name(),
        case.measured,
        case.access.work.unit(),
        format_args!("{:.0} %", share * 100.0),
        if right { "" } else { " **wrong**" },
        probes.join(", ")
    );
    if !right {
        println!("    {:?} {:?} {:?}", machine.load, machine.host, machine.buses);
        println!("    {:?}", case.sample);
        println!("    {:?}", case.probes);
        println!("    {:?} {:?} {:?}", found.because, found.ceilings, found.signs);
    }
    right
}

/// The table of a set of machines.
fn table(fleet: Fleet, kinds: &[Sickness]) {
    let _clock = ModelClock::start();
    let all = testkit::runs_all();
    let sick = if all { MACHINES } else { 5 };
    let healthy = if all { HEALTHY } else { 5 };
    testkit::print_sample("sick and healthy machines", sick + healthy, MACHINES + HEALTHY);
    // Other machines: RAIDLAB_FIRST_MACHINE=100000.
    let first =
        std::env::var("RAIDLAB_FIRST_MACHINE").map_or(0, |text| text.parse().expect("a seed"));
    let (mut right, mut alarms) = (0, 0);
    // A sample has different ones of them, at equal distances.
    for seed in (0..sick).map(|at| at * MACHINES / sick) {
        right += u64::from(row(first + seed, kinds[seed as usize % kinds.len()], fleet));
    }
    for seed in (0..healthy).map(|at| 1000 + at * HEALTHY / healthy) {
        alarms += u64::from(!row(first + seed, Sickness::None, fleet));
    }
    println!("named: {right} of {sick}; false alarms: {alarms} of {healthy}");
    assert!(right * 10 >= sick * 9, "{right} of {sick}");
    assert!(alarms * 20 <= healthy, "{alarms} of {healthy}");
}

#[test]
fn injected_bottlenecks_are_named_and_healthy_machines_are_not_accused() {
    table(Fleet::Mixed, &SICK);
}

#[test]
fn the_same_of_machines_of_flash() {
    table(Fleet::Flash, &sick_flash());
}
