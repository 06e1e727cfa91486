//! Two records side by side, cell by cell, with a verdict that respects the noise.
//!
//! ```text
//!   records A and B -> cells that measured the same -> ratio, interval -> verdict
//! ```
//!
//! Invariant: "no difference" and "too few runs" are valid results. Runs are compared, never the
//! samples of one run, which are correlated; a verdict is never given from fewer runs than can
//! support it. Called by `raidlab compare`.

mod rank;
mod text;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use results::host::Host;
use results::record::{Cell, Record};
use results::settings::{Identity, SETTINGS, identity};
use serde::Serialize;
use spec::units;

use crate::pivot;
use crate::work_names::work_names;
use spec::shown::counted;

pub use rank::{ALPHA, Ratio, holm, p_value, ratio, runs_needed};
pub use text::{markdown, text};

/// Family-wise error rate of the exit code: chance that any cell is reported as slower than allowed
/// although nothing differs.
pub const FAMILY_ALPHA: f64 = 0.05;

/// The verdict that the runs support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// B is faster.
    Faster,
    /// B is slower.
    Slower,
    /// The runs do not show a difference.
    NoDifference,
    /// There are too few runs to show any.
    TooFewRuns,
}

impl Verdict {
    /// Name for display.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifference => "no difference",
            Verdict::TooFewRuns => "too few runs",
        }
    }
}

/// One array under one workload, in both records.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Identity of both cells: `RAID 5 64KiB x4, seq-read 1 MiB x 4`.
    pub what: String,
    /// `MB/s` or `per second`.
    pub unit: &'static str,
    /// Median of A's runs.
    pub a: f64,
    /// Median of B's runs.
    pub b: f64,
    /// Number of runs of each.
    pub runs: (usize, usize),
    /// Number of samples of each, of all runs together.
    pub samples: (usize, usize),
    /// B over A; `None` where there are too few runs.
    pub ratio: Option<Ratio>,
    /// p-value of the rank test.
    pub p_value: Option<f64>,
    /// The verdict of the rank test.
    pub verdict: Verdict,
    /// CPU seconds per GiB of each, where known.
    pub cpu_s_per_gib: (Option<f64>, Option<f64>),
    /// Rate of background work beside the workload, MB/s of each member; where there is one.
    pub background_mb_per_s: (Option<f64>, Option<f64>),
    /// Whether B is slower by more than the tolerance, and significantly so, corrected for the
    /// number of cells.
    pub failed: bool,
}

/// The comparison of all cells of two records.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Slowdown that is allowed: 0.05 is 5 %.
    pub max_slowdown: f64,
    /// Chance that an interval misses the true ratio, and of a false verdict, for each cell.
    pub alpha: f64,
    /// Chance of a false exit code, over all cells.
    pub family_alpha: f64,
    /// Runs that each side needs, before the exit code can call one of these cells slower.
    pub runs_needed: usize,
    /// In the order of A.
    pub pairs: Vec<Pair>,
    /// Cells that only A has.
    pub only_a: Vec<String>,
    /// Cells that only B has.
    pub only_b: Vec<String>,
    /// Warnings about the comparison.
    pub warnings: Vec<String>,
}

impl Comparison {
    /// Compares two records; B may be slower than A by `max_slowdown` (0.05: 5 %).
    pub fn new(a: &Record, b: &Record, max_slowdown: f64) -> Comparison {
        // Labels distinguish the cells of both records together.
        let all: Vec<Cell> = a.cells.iter().chain(&b.cells).cloned().collect();
        let labels = pivot::labels(&all, true);
        let works = work_names(&all.iter().collect::<Vec<_>>());
        let (of_a, of_b) = labels.split_at(a.cells.len());
        let (works_a, works_b) = works.split_at(a.cells.len());
        let of_a = Side::gather(a, of_a, works_a);
        let of_b = Side::gather(b, of_b, works_b);
        let mut pairs: Vec<Pair> = Vec::new();
        let mut only_a = Vec::new();
        for one in &of_a.cells {
            match of_b.find(&one.key) {
                Some(other) => pairs.push(pair(one, other, max_slowdown)),
                None => only_a.push(one.what.clone()),
            }
        }
        let only_b = of_b.cells.iter().filter(|one| of_a.find(&one.key).is_none());
        let only_b = only_b.map(|one| one.what.clone()).collect();
        let p_values: Vec<f64> = pairs.iter().map(|pair| pair.p_value.unwrap_or(1.0)).collect();
        for (pair, believed) in pairs.iter_mut().zip(holm(&p_values, FAMILY_ALPHA)) {
            pair.failed &= believed;
        }
        let mut warnings = warnings(a, b);
        warnings.extend(different_ways(&of_a, &of_b));
        Comparison {
            max_slowdown,
            alpha: ALPHA,
            family_alpha: FAMILY_ALPHA,
            runs_needed: runs_needed(pairs.len(), FAMILY_ALPHA),
            pairs,
            only_a,
            only_b,
            warnings,
        }
    }

    /// Whether any cell is slower than allowed.
    pub fn failed(&self) -> bool {
        self.pairs.iter().any(|pair| pair.failed)
    }

    /// Number of pairs with the verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.pairs.iter().filter(|pair| pair.verdict == verdict).count()
    }
}

/// The runs of all cells of a record with the same identity.
struct Gathered {
    key: String,
    what: String,
    unit: &'static str,
    /// The figure of each run.
    values: Vec<f64>,
    samples: usize,
    cpu: Vec<f64>,
    background: Vec<f64>,
    /// Settings of the measurement that may differ.
    way: Way,
}

/// The cells of one side, in the order of the record.
#[derive(Default)]
struct Side {
    cells: Vec<Gathered>,
    /// Index of each key: records of sweeps have thousands of cells.
    at: HashMap<String, usize>,
}

/// Settings that may differ between comparable cells; a difference is reported.
#[derive(Default)]
struct Way {
    sample_s: BTreeSet<String>,
    drives: BTreeSet<String>,
    /// Of each setting whose differences are reported.
    settings: BTreeMap<&'static str, BTreeSet<String>>,
    /// One of each run, where it is known.
    seeds: Vec<u64>,
}

impl Way {
    fn add(&mut self, cell: &Cell) {
        let seconds: f64 = cell.measured.samples.iter().map(|sample| sample.seconds).sum();
        // A program's phase takes as long as it takes.
        if cell.case.program.is_none() && !cell.measured.samples.is_empty() {
            self.sample_s.insert(format!("{:.1} s", seconds / cell.measured.samples.len() as f64));
        }
        let reported = SETTINGS.iter().filter(|setting| setting.identity == Identity::Reported);
        for setting in reported {
            self.settings.entry(setting.label).or_default().extend(setting.shown(cell));
        }
        for drive in cell.case.place.iter().flat_map(|place| &place.drives) {
            let model = drive.model.as_deref().unwrap_or("of an unknown model");
            let firmware = drive.firmware.as_ref().map(|firmware| format!(" ({firmware})"));
            self.drives.insert(format!("{model}{}", firmware.unwrap_or_default()));
        }
        self.seeds.extend(cell.case.random_seed);
    }
}

/// Warnings about different settings of A and B, each once.
fn different_ways(a: &Side, b: &Side) -> Vec<String> {
    let mut said = BTreeSet::new();
    let mut one_way = false;
    for one in &a.cells {
        let Some(other) = b.find(&one.key) else { continue };
        let (one, other) = (&one.way, &other.way);
        let list = |names: &BTreeSet<String>| {
            names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let mut both = vec![
            ("length of a sample", &one.sample_s, &other.sample_s),
            ("drives", &one.drives, &other.drives),
        ];
        let settings = one.settings.iter();
        both.extend(settings.filter_map(|(what, a)| Some((*what, a, other.settings.get(what)?))));
        for (what, a, b) in both {
            if a != b && !(a.is_empty() || b.is_empty()) {
                said.insert(format!("the {what} differs: {} and {}", list(a), list(b)));
            }
        }
        let sorted = |seeds: &[u64]| {
            let mut seeds = seeds.to_vec();
            seeds.sort_unstable();
            seeds
        };
        let (a, b) = (sorted(&one.seeds), sorted(&other.seeds));
        if a.len() == b.len() && a != b {
            let show =
                |seeds: &[u64]| seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            said.insert(format!("the seeds differ: {} and {}", show(&a), show(&b)));
        }
        one_way |= [a, b].iter().any(|seeds| seeds.windows(2).any(|pair| pair[0] == pair[1]));
    }
    if one_way {
        said.insert(
            "several runs have one seed: they used the same addresses, and how much these \
             matter cannot be seen; --repeat takes others"
                .into(),
        );
    }
    said.into_iter().collect()
}

impl Side {
    /// `labels`: the label of each cell's array; `works`: the name of its work.
    fn gather(record: &Record, labels: &[String], works: &[String]) -> Side {
        let mut side = Side::default();
        for ((cell, label), work) in record.cells.iter().zip(labels).zip(works) {
            // More bytes at the members may be copies, parity or I/O of another process; and a
            // phase in which nothing was done has no rate.
            if cell.measured.program_bytes.is_none() && cell.did_something() {
                side.of(cell, label, work).add(cell);
            }
        }
        side
    }

    /// The entry of a cell's identity, which is made when it is missing.
    fn of(&mut self, cell: &Cell, label: &str, work: &str) -> &mut Gathered {
        let key = identity(cell);
        let at = *self.at.entry(key.clone()).or_insert(self.cells.len());
        if at == self.cells.len() {
            let (what, unit) = (in_words(cell, label, work), cell.unit());
            let (values, samples, cpu, way) = (Vec::new(), 0, Vec::new(), Way::default());
            let background = Vec::new();
            self.cells.push(Gathered { key, what, unit, values, samples, cpu, background, way });
        }
        &mut self.cells[at]
    }

    fn find(&self, key: &str) -> Option<&Gathered> {
        Some(&self.cells[*self.at.get(key)?])
    }
}

impl Gathered {
    fn add(&mut self, cell: &Cell) {
        let samples = cell.measured.samples.iter().map(|sample| cell.rate_of(sample));
        match cell.case.samples_are_runs {
            true => self.values.extend(samples.filter(|rate| *rate > 0.0)),
            false => self.values.extend(Some(cell.rate()).filter(|rate| *rate > 0.0)),
        }
        self.samples += cell.measured.samples.len();
        self.cpu.extend(cell.derived.cpu_s_per_gib);
        self.background.extend(cell.measured.background_mb_per_s);
        self.way.add(cell);
    }
}

fn in_words(cell: &Cell, label: &str, work: &str) -> String {
    let mut text = pivot::with_disks(label, cell);
    match &cell.case.program {
        Some(_) => text.push_str(&format!(", {work}")),
        None => text.push_str(&format!(
            ", {} {} x {}",
            cell.case.workload,
            units::kib(cell.case.block_kib),
            u64::from(cell.case.depth) * u64::from(cell.case.jobs)
        )),
    }
    if let Some(work) = &cell.case.background {
        text.push_str(&format!(", during {work}"));
    }
    text
}

fn pair(a: &Gathered, b: &Gathered, max_slowdown: f64) -> Pair {
    let ratio = ratio(&a.values, &b.values);
    let verdict = match &ratio {
        None => Verdict::TooFewRuns,
        Some(ratio) if ratio.low > 1.0 => Verdict::Faster,
        Some(ratio) if ratio.high < 1.0 => Verdict::Slower,
        Some(_) => Verdict::NoDifference,
    };
    let median = |values: &[f64]| results::stats::median(values).unwrap_or(0.0);
    let slow = ratio.as_ref().is_some_and(|ratio| ratio.estimate < 1.0 - max_slowdown);
    Pair {
        what: a.what.clone(),
        unit: a.unit,
        a: median(&a.values),
        b: median(&b.values),
        runs: (a.values.len(), b.values.len()),
        samples: (a.samples, b.samples),
        p_value: ratio.as_ref().and_then(|_| p_value(&a.values, &b.values)),
        ratio,
        verdict,
        cpu_s_per_gib: (results::stats::median(&a.cpu), results::stats::median(&b.cpu)),
        background_mb_per_s: (
            results::stats::median(&a.background),
            results::stats::median(&b.background),
        ),
        failed: verdict == Verdict::Slower && slow,
    }
}

fn warnings(a: &Record, b: &Record) -> Vec<String> {
    let mut warnings = Vec::new();
    type Fact = fn(&Host) -> Option<&str>;
    let of_hosts: [(&str, Fact); 3] = [
        ("the CPU", |host| host.cpu.as_deref()),
        ("the kernel", |host| host.kernel.as_deref()),
        ("the parity kernel", |host| host.parity_kernel.as_deref()),
    ];
    for (what, of) in of_hosts {
        let [a, b] = [a, b].map(|record| {
            let all = record.machines().iter().filter_map(of).map(String::from);
            all.collect::<BTreeSet<String>>()
        });
        if !a.is_empty() && !b.is_empty() && a != b {
            let list = |names: BTreeSet<String>| Vec::from_iter(names).join(", ");
            warnings.push(format!("{what} differs: {} and {}", list(a), list(b)));
        }
    }
    for (name, record) in [("A", a), ("B", b)] {
        if !record.verified() {
            warnings.push(format!(
                "{name} has reads that returned wrong data: its figures are meaningless"
            ));
        }
        let of_members =
            record.cells.iter().filter(|cell| cell.measured.program_bytes.is_some()).count();
        if of_members > 0 {
            warnings.push(format!(
                "{name} has {} that were measured at the members: they are not compared, because \
                 they include copies, parity and other use of the disks",
                counted(of_members, "cell")
            ));
        }
        let unsteady =
            record.cells.iter().filter(|cell| cell.derived.steady == Some(false)).count();
        if unsteady > 0 {
            let cells = counted(unsteady, "cell");
            warnings.push(format!("{name} has {cells} that were not steady"));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use crate::fixture;
    use results::record::Sample;

    use super::*;

    type Change = fn(&mut Cell);

    /// Seven runs of each cell, of five samples each, a little apart.
    fn with_samples(record: &mut Record, factor: f64) {
        let mut cells = Vec::new();
        for repetition in 0..7_usize {
            for (index, cell) in record.cells.iter().enumerate() {
                let base = cell.derived.mb_per_s * 1e6;
                let wobble = |at: usize| 1.0 + ((index * 7 + at * 13) % 11) as f64 / 1000.0;
                let sample = |at: usize| Sample {
                    seconds: 1.0,
                    bytes: (base * factor * wobble(at + repetition)) as u64,
                    ops: (base * factor * wobble(at + repetition) / 4096.0) as u64,
                };
                let mut cell =
                    cell.clone().with(|it| it.measured.samples = (0..5).map(sample).collect());
                cell.case.repetition = Some(repetition as u32 + 1);
                cell.case.random_seed = Some(repetition as u64 + 1);
                cell.summarise();
                cells.push(cell);
            }
        }
        record.cells = cells;
    }

    /// Different cells.
    fn pairs_of(record: &Record) -> usize {
        crate::repeat::folded(record).cells.len()
    }

    #[test]
    fn samples_of_one_run_are_one_value_and_too_few() {
        let mut record = fixture::record();
        with_samples(&mut record, 1.0);
        let one_run = |factor: f64| {
            let mut one = record.clone();
            one.cells.retain(|cell| cell.case.repetition == Some(1));
            for cell in &mut one.cells {
                let slower = |bytes: u64| (bytes as f64 * factor) as u64;
                cell.measured
                    .samples
                    .iter_mut()
                    .for_each(|sample| sample.bytes = slower(sample.bytes));
                cell.summarise();
            }
            one
        };
        let both = Comparison::new(&one_run(1.0), &one_run(0.5), 0.05);
        assert_eq!(both.count(Verdict::TooFewRuns), both.pairs.len());
        assert!(!both.failed() && both.pairs.iter().all(|pair| pair.runs == (1, 1)));
        let text = text(&both).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("too few runs (1 and 1)"), "{text}");
        assert!(text.contains("52 cells that takes 7 runs a side: --repeat 7"), "{text}");
        // A program that was run seven times has a run in each sample.
        let mut programs = one_run(1.0);
        programs.cells.truncate(1);
        let cell = &mut programs.cells[0];
        (cell.case.samples_are_runs, cell.case.program) = (true, Some("dd".into()));
        let both = Comparison::new(&programs, &programs, 0.05);
        assert_eq!((both.pairs[0].runs, both.pairs[0].verdict), ((5, 5), Verdict::NoDifference));
    }

    /// Five runs can give a verdict of one cell, but not an exit code for 52.
    #[test]
    fn the_exit_code_is_corrected_for_the_number_of_cells() {
        let (mut a, mut b) = (fixture::record(), fixture::record());
        with_samples(&mut a, 1.0);
        with_samples(&mut b, 0.8);
        for record in [&mut a, &mut b] {
            record.cells.retain(|cell| cell.case.repetition <= Some(5));
        }
        let five = Comparison::new(&a, &b, 0.05);
        assert_eq!((five.pairs.len(), five.count(Verdict::Slower)), (52, 52));
        assert!(!five.failed() && five.runs_needed == 7);
        let key = identity(&a.cells[0]);
        for record in [&mut a, &mut b] {
            record.cells.retain(|cell| identity(cell) == key);
        }
        assert!(Comparison::new(&a, &b, 0.05).failed(), "of one cell they are enough");
    }

    #[test]
    fn what_was_measured_otherwise_is_said() {
        let mut a = fixture::record();
        with_samples(&mut a, 1.0);
        let drive = |model: &str, firmware: &str| results::record::DriveFacts {
            model: Some(model.into()),
            firmware: Some(firmware.into()),
            ..Default::default()
        };
        let place = |drive| results::record::Place { drives: vec![drive], ..Default::default() };
        a.cells.iter_mut().for_each(|cell| cell.case.warm_up_s = Some(0.3));
        a.cells[0].case.place = Some(place(drive("X", "1.0")));
        let changes: [(Change, &str); 4] = [
            (
                |cell| cell.measured.samples.iter_mut().for_each(|sample| sample.seconds = 10.0),
                "the length of a sample differs: 1.0 s and 10.0 s",
            ),
            (|cell| cell.case.warm_up_s = Some(3.0), "the warm-up differs: 0.3 s and 3 s"),
            (
                |cell| {
                    let drives = cell.case.place.iter_mut().flat_map(|place| &mut place.drives);
                    drives.for_each(|drive| drive.firmware = Some("2.0".into()));
                },
                "the drives differs: X (1.0) and X (2.0)",
            ),
            (|cell| cell.case.random_seed = Some(3), "several runs have one seed"),
        ];
        assert_eq!(Comparison::new(&a, &a, 0.05).warnings, Vec::<String>::new());
        for (change, named) in changes {
            let mut b = a.clone();
            b.cells.iter_mut().for_each(change);
            let warnings = Comparison::new(&a, &b, 0.05).warnings;
            assert!(warnings.iter().any(|said| said.contains(named)), "{named}: {warnings:?}");
        }
    }

    #[test]
    fn the_same_record_twice_shows_no_difference() {
        let mut record = fixture::record();
        with_samples(&mut record, 1.0);
        let same = Comparison::new(&record, &record, 0.05);
        assert_eq!(same.pairs.len(), pairs_of(&record));
        assert_eq!(same.count(Verdict::NoDifference), pairs_of(&record));
        assert!(!same.failed() && same.only_a.is_empty() && same.only_b.is_empty());
    }

    #[test]
    fn a_slowdown_counts_when_it_is_more_than_allowed() {
        let (mut a, mut b) = (fixture::record(), fixture::record());
        with_samples(&mut a, 1.0);
        with_samples(&mut b, 0.8);
        let slower = Comparison::new(&a, &b, 0.05);
        assert_eq!(slower.count(Verdict::Slower), pairs_of(&a));
        assert!(slower.failed());
        let allowed = Comparison::new(&a, &b, 0.3);
        assert_eq!(allowed.count(Verdict::Slower), pairs_of(&a));
        assert!(!allowed.failed(), "20 % slower, 30 % allowed");
        let faster = Comparison::new(&b, &a, 0.05);
        assert_eq!(faster.count(Verdict::Faster), pairs_of(&a));
        assert!(!faster.failed());
    }

    /// dd without, and dd with a sync behind it, which took twice as long: neither is slower.
    #[test]
    fn a_program_that_was_run_otherwise_is_not_compared() {
        let ran = |change: Change, factor| {
            let mut record = fixture::record();
            record.cells.truncate(1);
            let cell = &mut record.cells[0];
            (cell.case.program, cell.case.phase) = (Some("dd".into()), Some("write".into()));
            cell.case.item = Some("dd:bs=64K".into());
            change(cell);
            with_samples(&mut record, factor);
            record
        };
        let usual = ran(|_| (), 1.0);
        assert_eq!(Comparison::new(&usual, &ran(|_| (), 0.5), 0.05).count(Verdict::Slower), 1);
        let otherwise: [(Change, &str); 4] = [
            (
                |cell| cell.case.item = Some("dd:bs=64K:fdatasync".into()),
                "dd:bs=64K:fdatasync write",
            ),
            (|cell| cell.case.caches_dropped = Some(true), "caches dropped"),
            (|cell| cell.case.steady_window = true, "while all worked"),
            (|cell| cell.case.read_off_s = Some(1.0), "sampled every 1 s"),
        ];
        for (change, named) in otherwise {
            let both = Comparison::new(&usual, &ran(change, 0.5), 0.05);
            assert!(!both.failed() && both.pairs.is_empty(), "{named}: {both:?}");
            assert_eq!((both.only_a.len(), both.only_b.len()), (1, 1), "{named}");
            assert!(both.only_b[0].contains(named), "{named}: {:?}", both.only_b);
        }
        let kept = ran(|cell| cell.case.caches_dropped = Some(false), 1.0);
        assert_eq!(
            Comparison::new(&usual, &kept, 0.05).pairs.len(),
            1,
            "older records say nothing"
        );
    }

    #[test]
    fn a_place_without_a_known_array_is_called_by_its_name() {
        let mut record = fixture::record();
        record.cells.truncate(1);
        let cell = &mut record.cells[0];
        (cell.case.level, cell.case.disks, cell.case.target) = ("".into(), 0, "path".into());
        (cell.case.program, cell.case.phase) = (Some("dd".into()), Some("read".into()));
        cell.case.place =
            Some(results::record::Place { name: "path:DIR".into(), ..Default::default() });
        let both = Comparison::new(&record, &record, 0.05);
        assert_eq!(both.pairs[0].what, "path:DIR, dd read");
    }

    #[test]
    fn figures_measured_at_the_members_are_not_compared() {
        let ran = |factor| {
            let mut record = fixture::record();
            record.cells.truncate(2);
            record.cells[0].measured.program_bytes = Some(1);
            with_samples(&mut record, factor);
            record
        };
        let both = Comparison::new(&ran(1.0), &ran(0.5), 0.05);
        assert_eq!((both.pairs.len(), both.only_a.len()), (1, 0));
        let of_members = |text: &&String| text.contains("measured at the members");
        assert_eq!(both.warnings.iter().filter(of_members).count(), 2);
    }

    #[test]
    fn cells_are_matched_by_what_they_measured_and_too_few_runs_are_said() {
        let (a, mut b) = (fixture::record(), fixture::record());
        b.cells.reverse();
        b.cells[0].case.chunk_kib = Some(128);
        let three = Comparison::new(&a, &b, 0.05);
        assert_eq!(three.pairs.len(), a.cells.len() - 1);
        assert_eq!((three.only_a.len(), three.only_b.len()), (1, 1));
        assert!(three.only_b[0].contains("128KiB"), "{:?}", three.only_b);
        assert_eq!(three.count(Verdict::TooFewRuns), three.pairs.len(), "one run each");
        assert!(!three.failed());
        let both = |bus_mb_per_s| {
            let mut record = fixture::record();
            let array =
                record.cells.iter().find(|cell| cell.md_level() == Some(md::Level::Raid0)).cloned();
            let array = array.expect("a RAID 0");
            let wired = array.clone().with(|it| {
                it.case.bus_mb_per_s = bus_mb_per_s;
                it.case.disks_per_channel = Some(2);
            });
            record.cells = vec![array, wired];
            record
        };
        let wires = Comparison::new(&both(Some(60.0)), &both(None), 0.05);
        let what = wires.pairs[0].what.as_str();
        assert!(!what.contains("bus") && !what.contains("channel"), "{what}");
        assert!(wires.only_a[0].starts_with("RAID 0 bus=60MB/s 2/channel x"), "{wires:?}");
        assert!(wires.only_b[0].starts_with("RAID 0 2/channel x"), "{wires:?}");
        // Cells that were measured again are runs of one.
        let mut twice = fixture::record();
        with_samples(&mut twice, 1.0);
        let again = twice.cells[0].clone();
        twice.cells = vec![again.clone(), again];
        let both = Comparison::new(&twice, &twice, 0.05);
        let pair = &both.pairs[0];
        assert_eq!((both.pairs.len(), pair.runs, pair.samples), (1, (2, 2), (10, 10)));
    }
}
