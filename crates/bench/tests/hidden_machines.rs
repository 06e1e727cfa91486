//! Machines whose drives and buses are hidden from what measures them: calibrated by probes alone,
//! then predicted, and compared with what the engine does on them. See docs/perf/calibrate.md:
//! `RAIDLAB_TEST=all cargo test -p raidlab-bench --test hidden_machines -- --nocapture`
//! prints its table.
//!
//! Everything runs on a model clock ([`host::sys::ModelClock`]): the same seed gives the same table
//! on every machine. Three of them are also calibrated and measured in real time, but only with
//! `RAIDLAB_TEST=all`: that takes minutes, and is as good as the machine is idle.

use std::path::Path;
use std::time::Duration;

use array::{Member, NullMember, PaceControl, PacedMember};
use drive::{Placement, Profile};
use host::sys::ModelClock;
use predict::calibrate::{Machine, Modelled, Scratch, Settings, WiringFigures};
use raidlab_bench::probed::ProbedDisks;
use results::record::Record;
use results::stats::median;
use spec::case::RunConfig;
use spec::matrix::{self, Options};
use spec::workload::Kind;
use testkit::Rng;

#[path = "hidden/mod.rs"]
mod hidden;

/// What a seed hides.
struct Hidden {
    class: &'static str,
    profile: Profile,
    document: String,
    disks: usize,
    /// The rate of a bus, and the number of disks on it; the others are attached directly.
    buses: Vec<(u64, usize)>,
}

/// Seeds of the table in docs/perf/calibrate.md.
const MACHINES: u64 = 20;

const ROTATING: [&str; 5] = ["hdd-2007", "hdd-2009", "hdd-2016", "hdd-2018", "hdd-2020"];
const SOLID: [&str; 5] = ["sata-ssd", "sata-ssd-2021", "sata-ssd-plp", "nvme-ssd", "nvme-ssd-2019"];

impl Hidden {
    fn new(seed: u64) -> Hidden {
        let rng = &mut Rng::new(seed);
        // Three of ten are solid.
        let class = match seed % 10 {
            0..7 => ROTATING[rng.index(ROTATING.len())],
            _ => SOLID[rng.index(SOLID.len())],
        };
        let (profile, document) = hidden::drive_of(class, rng);
        let disks = 4 + rng.index(3);
        let rate = profile.media_rate_at(0.0).min(profile.link_bytes_per_s() as f64);
        let buses = match rng.index(4) {
            0 => vec![((rate * hidden::between(rng, 1.2, disks as f64)) as u64, disks)],
            1 => vec![((rate * hidden::between(rng, 1.1, 1.9)) as u64, 2)],
            _ => Vec::new(),
        };
        Hidden { class, profile, document, disks, buses }
    }

    fn machine(&self) -> Modelled {
        let mut bus_of = Vec::new();
        for (number, (_, disks)) in self.buses.iter().enumerate() {
            bus_of.resize(bus_of.len() + disks, Some(number));
        }
        bus_of.resize(self.disks, None);
        let disks: Vec<_> = bus_of.into_iter().map(|bus| (&self.profile, bus)).collect();
        let rates: Vec<u64> = self.buses.iter().map(|(rate, _)| *rate).collect();
        Modelled::new(&disks, &rates)
    }

    fn scratch(&self) -> Scratch {
        let at = self.profile.capacity_bytes() / 2 / (1 << 20) * (1 << 20);
        Scratch { disk: 0, at, bytes: 16 << 30 }
    }
}

impl Hidden {
    /// Asserts that the hidden buses were found, and no other: their disks, and their rates.
    fn assert_found(&self, seed: u64, wiring: &WiringFigures) {
        let mut found: Vec<_> = wiring.buses.iter().collect();
        found.sort_by_key(|bus| bus.disks.clone());
        assert_eq!(found.len(), self.buses.len(), "{seed}: {found:?}");
        let mut first = 0;
        for (bus, (rate, disks)) in found.iter().zip(&self.buses) {
            assert_eq!(bus.disks, (first..first + disks).collect::<Vec<_>>(), "{seed}");
            let ratio = bus.mb_per_s * 1e6 / *rate as f64;
            assert!((ratio - 1.0).abs() < 0.01, "{seed}: {} of {rate}", bus.mb_per_s);
            first += disks;
        }
    }
}

/// A disk with its name.
type Named = (String, Box<dyn Member>);

/// Seeds that are also probed and measured in real time: two disks with a bus and without, and
/// flash.
const PACED: [u64; 3] = [4, 10, 7];

impl Hidden {
    /// The same disks in real time, and a scratch area in the middle of the first.
    fn paced(&self) -> (Vec<Named>, Box<dyn Member>) {
        let pace = PaceControl::default();
        let bytes = self.profile.capacity_bytes() / (1 << 20) * (1 << 20);
        let buses: Vec<_> = self.buses.iter().map(|(rate, _)| pace.add_bus(*rate)).collect();
        let mut bus_of = Vec::new();
        for (bus, (_, disks)) in buses.iter().zip(&self.buses) {
            bus_of.resize(bus_of.len() + disks, Some(*bus));
        }
        bus_of.resize(self.disks, None);
        let member = |bytes: u64| Box::new(NullMember::new(bytes / 512));
        let (mut disks, mut scratch) = (Vec::new(), None);
        for (number, bus) in bus_of.into_iter().enumerate() {
            let place = Placement::Window { at: 0.0 };
            let disk = pace.add_disk(&self.profile, place, bytes, bus, None);
            let paced = PacedMember::part(member(bytes), &pace, disk, 0);
            disks.push((number.to_string(), Box::new(paced) as Box<dyn Member>));
            let Scratch { at, bytes, .. } = self.scratch();
            scratch.get_or_insert_with(|| {
                Box::new(PacedMember::part(member(bytes), &pace, disk, at)) as Box<dyn Member>
            });
        }
        (disks, scratch.expect("there is a disk"))
    }
}

/// Calibrates a machine by the engine's I/O, on the clock of this thread, and compares what the
/// engine does on its disks, on that clock, with what it does on the drives that were found: the
/// errors, what the engine did, and the buses that were found.
fn by_the_engines_io(seed: u64, directory: &Path) -> (Vec<f64>, Record, WiringFigures) {
    let (hidden, settings) = (Hidden::new(seed), Settings::default());
    let solid = hidden.profile.kind() == drive::Kind::Solid;
    let (disks, scratch) = hidden.paced();
    let mut machine = ProbedDisks::new(disks, Some(scratch), &|| false).expect("disks");
    // Where on a disk a scratch file lies is not known.
    let area = machine.scratch();
    let begin = std::time::Instant::now();
    let figures =
        predict::calibrate::measure(&mut machine, settings, &mut |_| {}).expect("it runs");
    drop(machine);
    let probed = begin.elapsed();
    let fitted = predict::calibrate::fit(&figures, area, settings);
    let wiring = figures.wiring.expect("several disks");
    let truth = directory.join(format!("hidden-{seed}.toml"));
    let guess = directory.join(format!("found-{seed}.toml"));
    std::fs::write(&truth, &hidden.document).expect("written");
    std::fs::write(&guess, fitted[0].document("found", "fitted")).expect("written");
    let measured = engine(&truth, hidden.disks, buses_text(&hidden.buses), solid);
    // The prediction is always one of model time.
    let (count, buses) = (hidden.disks, wiring.as_option());
    let predicted = std::thread::spawn(move || {
        let _clock = ModelClock::start();
        engine(&guess, count, buses, solid)
    });
    let predicted = predicted.join().expect("it runs");
    println!(
        "{seed} {} x{} buses {:?} found {:?}; probed in {probed:?}, all {:?}",
        hidden.class,
        hidden.disks,
        hidden.buses,
        wiring.buses,
        begin.elapsed()
    );
    (errors(&measured, &predicted), measured, wiring)
}

/// The path of `raidlab calibrate`: requests through the engine's members instead of the model.
#[test]
fn machines_are_predicted_from_probes_by_the_engines_io() {
    let directory = tempfile::tempdir().expect("a directory");
    let _clock = ModelClock::start();
    let count = if testkit::runs_all() { PACED.len() } else { 1 };
    testkit::print_sample("hidden machines", count as u64, PACED.len() as u64);
    for seed in &PACED[..count] {
        let (errors, _, wiring) = by_the_engines_io(*seed, directory.path());
        Hidden::new(*seed).assert_found(*seed, &wiring);
        let median = median(&errors).expect("errors");
        assert!(median <= 0.08, "{seed}: {median}");
    }
}

#[test]
fn three_paced_machines_are_predicted_from_probes_in_real_time() {
    if !testkit::runs_all() {
        println!("skipped: calibrates three machines in real time: RAIDLAB_TEST=all");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (mut all, mut cells) = (Vec::new(), Vec::new());
    for seed in PACED {
        // A disturbed machine may hide a bus: the median says what that costs.
        let (errors, measured, _) = by_the_engines_io(seed, directory.path());
        all.extend(errors);
        cells.extend(measured.cells);
    }
    let median = median(&all).expect("errors");
    println!("median of {} figures: {:.1} %", all.len(), median * 100.0);
    // A thread that waits for a CPU is late, and a probe takes that for the disk.
    let disturbed =
        cells.iter().filter(|cell| cell.measured.others_cpus.is_some_and(|cpus| cpus > 0.3));
    match disturbed.count() > cells.len() / 4 {
        true => println!("skipped: other processes use the machine"),
        false => assert!(median <= 0.08, "{median}"),
    }
}

/// Prints both figures of each cell, and returns how far they are apart.
fn errors(measured: &Record, predicted: &Record) -> Vec<f64> {
    let mut errors = Vec::new();
    for (real, guess) in measured.cells.iter().zip(&predicted.cells) {
        let error = (guess.derived.mb_per_s / real.derived.mb_per_s - 1.0).abs();
        println!(
            "  {:7} {:10} {:9.1} {:9.1} {:5.1} %",
            real.case.level.text(),
            real.case.workload.text(),
            real.derived.mb_per_s,
            guess.derived.mb_per_s,
            error * 100.0
        );
        errors.push(error);
    }
    println!("  median {:.1} %", median(&errors).unwrap_or(0.0) * 100.0);
    errors
}

/// The buses as `--bus` has them.
fn buses_text(buses: &[(u64, usize)]) -> Option<String> {
    let parts = buses.iter().map(|(rate, disks)| format!("{:.1}MB/s*{disks}", *rate as f64 / 1e6));
    (!buses.is_empty()).then(|| parts.collect::<Vec<_>>().join("+"))
}

/// What the engine does on disks of this profile.
fn engine(path: &Path, disks: usize, buses: Option<String>, solid: bool) -> Record {
    let members = format!("paced:{}:null", path.display());
    let options = Options::default().with(|it| {
        it.arrays.level = ["single", "raid0", "raid1", "raid10", "raid5", "raid6"]
            .map(|level| level.parse().expect("a level"))
            .to_vec();
        it.arrays.disks = vec![disks as u32];
        it.engine.members = vec![members.parse().expect("a set")];
        it.engine.bus = buses.iter().map(|text| text.parse().expect("buses")).collect();
        it.workloads = vec![Kind::SeqRead, Kind::SeqWrite, Kind::RandRead, Kind::RandWrite];
    });
    let plan = matrix::plan(&options).expect("a plan");
    let settings = RunConfig {
        warm_up: Duration::from_millis(if solid { 40 } else { 300 }),
        sample: Duration::from_millis(if solid { 60 } else { 700 }),
        sample_given: false,
        runs: 5,
        ..RunConfig::quick()
    };
    let (record, ended) = raidlab_bench::blocks::run(&plan, &settings, &|| false, &mut |_| {});
    ended.expect("it runs");
    record
}

#[test]
fn machines_are_predicted_from_their_probes() {
    let directory = tempfile::tempdir().expect("a directory");
    let _clock = ModelClock::start();
    let mut all = Vec::new();
    let settings = Settings::default();
    // All of them in `make test-all`.
    let count = if testkit::runs_all() { MACHINES } else { 2 };
    testkit::print_sample("hidden machines", count, MACHINES);
    // Both kinds in a sample: 7, 8 and 9 are solid.
    for seed in (0..MACHINES).map(|seed| (seed + 6) % MACHINES).take(count as usize) {
        let hidden = Hidden::new(seed);
        let mut machine = hidden.machine().with_scratch(hidden.scratch());
        let solid = hidden.profile.kind() == drive::Kind::Solid;
        let begin = std::time::Instant::now();
        let figures =
            predict::calibrate::measure(&mut machine, settings, &mut |_| {}).expect("it runs");
        let probed = begin.elapsed();
        let disks = predict::calibrate::fit(&figures, Some(hidden.scratch()), settings);
        let fitted = begin.elapsed();
        let wiring = figures.wiring.expect("several disks");
        hidden.assert_found(seed, &wiring);
        let truth = directory.path().join(format!("hidden-{seed}.toml"));
        let guess = directory.path().join(format!("found-{seed}.toml"));
        std::fs::write(&truth, &hidden.document).expect("written");
        std::fs::write(&guess, disks[0].document("found", "fitted")).expect("written");
        let measured = engine(&truth, hidden.disks, buses_text(&hidden.buses), solid);
        let predicted = engine(&guess, hidden.disks, wiring.as_option(), solid);
        println!(
            "{seed} {} x{} buses {:?} found {:?}; {probed:?} {fitted:?} {:?}",
            hidden.class,
            hidden.disks,
            hidden.buses,
            wiring.buses,
            begin.elapsed()
        );
        for number in hidden.profile.numbers() {
            let own = disks[0].numbers.iter().find(|own| own.field == number.field);
            let own = own.map_or(f64::NAN, |own| own.value);
            if (own / number.value - 1.0).abs() > 0.05 {
                println!("    {:24} {:12.3} {own:12.3}", number.field, number.value);
            }
        }
        all.extend(errors(&measured, &predicted));
    }
    let median = median(&all).expect("errors");
    println!("median of {} figures: {:.1} %", all.len(), median * 100.0);
    assert!(median <= 0.08, "{median}");
}
