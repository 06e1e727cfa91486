//! What published texts say without figures: which of two arrays or settings does better.
//!
//! ```text
//!   a claim: more, less, of what -> the cells of both sides that agree in all else -> it holds?
//! ```
//!
//! Invariant: a claim holds only where both sides were measured, under the same work in the same
//! place. Pure; called by `reproduced`.

use std::cell::LazyCell;

use results::record::{Cell, Record};
use serde::{Deserialize, Serialize};

use super::{Fields, Figure};

/// Two figures that a text calls alike may be this far apart.
pub const ALIKE: f64 = 1.1;
/// One figure is above another from here on: less is what two runs of the same differ by.
pub const ABOVE: f64 = 1.02;

/// The CPUs of the machine that were busy, on average.
pub const MACHINE_CPUS: &str = "machine_cpus";

fn machine_cpus(cell: &Cell) -> Option<f64> {
    let seconds: f64 = cell.measured.samples.iter().map(|sample| sample.seconds).sum();
    cell.measured.cpu_system_s.filter(|_| seconds > 0.0).map(|busy| busy / seconds)
}

/// A sentence of a published text that compares two measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The sentence, or what it says.
    pub says: String,
    /// What is compared: the name of a number in the record's cells, or [`MACHINE_CPUS`].
    #[serde(default = "rate")]
    pub of: String,
    /// How the sides compare.
    #[serde(default)]
    pub relation: Relation,
    /// The side that has more, or the first of two that are alike: a figure without a value.
    pub more: Figure,
    /// The side that has less, or the second.
    pub less: Figure,
}

fn rate() -> String {
    "mb_per_s".to_string()
}

/// How the sides of a claim compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// `more` is above `less`, by 2 % at least.
    #[default]
    Above,
    /// Both are within a tenth.
    Alike,
}

/// What came out of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimOutcome {
    /// The sentence.
    pub says: String,
    /// What is compared.
    pub of: String,
    /// How the sides should compare.
    pub relation: Relation,
    /// Our figures, `more` first; `None`: at least one was not run, or only on a busy machine.
    pub here: Option<[f64; 2]>,
    /// Whether it holds here; `None`: it was not run.
    pub holds: Option<bool>,
}

impl Claim {
    /// What the cells of a record say of it.
    pub fn outcome(&self, record: &Record) -> ClaimOutcome {
        let here = self.here(record);
        let holds = here.map(|[more, less]| match self.relation {
            Relation::Above => more >= ABOVE * less,
            Relation::Alike => (more / less).max(less / more) <= ALIKE,
        });
        ClaimOutcome {
            says: self.says.clone(),
            of: self.of.clone(),
            relation: self.relation,
            here,
            holds,
        }
    }

    /// Figures of the first two cells of one work. What else they must agree in, the figures of the
    /// claim say.
    fn here(&self, record: &Record) -> Option<[f64; 2]> {
        let (more, less) = (self.measured(&self.more, record), self.measured(&self.less, record));
        let pair = |(cell, one): &(&Cell, f64)| {
            let mut others = less.iter().filter(|(other, _)| !std::ptr::eq(*cell, *other));
            let other = others.find(|(other, _)| same_work(cell, other))?;
            Some([*one, other.1])
        };
        more.iter().find_map(pair)
    }

    fn measured<'c>(&self, side: &Figure, record: &'c Record) -> Vec<(&'c Cell, f64)> {
        let value = |cell: &'c Cell| {
            let fields = LazyCell::new(|| Fields::of(cell));
            // What was measured beside others' load judges nothing.
            let fits = !cell.had_a_busy_machine() && side.fits(cell, &fields);
            let value = || match self.of.as_str() {
                MACHINE_CPUS => machine_cpus(cell),
                of => fields.get(of).as_f64(),
            };
            let value = fits.then(value).flatten();
            Some((cell, value.filter(|value| *value > 0.0)?))
        };
        record.cells.iter().filter_map(value).collect()
    }
}

/// Whether two cells are of one program, phase and kind of access, with the same concurrency.
pub(crate) fn same_work(one: &Cell, two: &Cell) -> bool {
    let what = |cell: &Cell| {
        let program = (cell.case.program.clone(), cell.case.item.clone(), cell.case.phase.clone());
        (program, cell.case.workload.clone(), cell.case.depth, cell.case.jobs)
    };
    what(one) == what(two)
}

/// Whether two cells are of one phase of one program, whatever its options: a sweep may choose
/// these for each array, as blocks by the read-ahead that the kernel gives it.
pub(crate) fn same_phase(one: &Cell, two: &Cell) -> bool {
    let what = |cell: &Cell| {
        (cell.case.program.clone(), cell.case.phase.clone(), cell.case.workload.clone())
    };
    one.case.program.is_some() && what(one) == what(two)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use results::host::Host;

    use super::*;

    fn chunk(kib: u64, mb_per_s: f64) -> Cell {
        Cell::default().with(|it| {
            it.case.level = "raid5".into();
            it.case.disks = 4;
            it.case.chunk_kib = Some(kib);
            it.case.workload = "seq-read".into();
            it.derived.mb_per_s = mb_per_s;
        })
    }

    fn record(cells: Vec<Cell>) -> Record {
        let mut record = Record::new(Host::default(), UNIX_EPOCH);
        record.cells = cells;
        record
    }

    fn claim(relation: &str) -> Claim {
        let text = format!(
            r#"{{"says": "bigger chunks read faster", "relation": "{relation}",
                "more": {{"level": "raid5", "chunk_kib": 1024}},
                "less": {{"level": "raid5", "chunk_kib": 64}}}}"#
        );
        let mut claim: Claim = serde_json::from_str(&text).expect("a claim");
        for side in [&mut claim.more, &mut claim.less] {
            (side.disks, side.workload) = (4, "seq-read".into());
        }
        claim
    }

    #[test]
    fn a_claim_holds_fails_or_was_not_run() {
        let above = claim("above");
        let ran = record(vec![chunk(64, 100.0), chunk(1024, 105.0)]);
        let outcome = above.outcome(&ran);
        assert_eq!((outcome.holds, outcome.here), (Some(true), Some([105.0, 100.0])));
        assert_eq!(claim("alike").outcome(&ran).holds, Some(true));
        let close = record(vec![chunk(64, 100.0), chunk(1024, 101.0)]);
        assert_eq!(above.outcome(&close).holds, Some(false), "too close to be above");
        let far = record(vec![chunk(64, 120.0), chunk(1024, 105.0)]);
        assert_eq!(above.outcome(&far).holds, Some(false));
        assert_eq!(claim("alike").outcome(&far).holds, Some(false));
        assert_eq!(above.outcome(&record(vec![chunk(64, 120.0)])).holds, None);
        // A cell that both sides describe is no pair.
        let mut same = claim("alike");
        same.less.chunk_kib = Some(1024);
        assert_eq!(same.outcome(&ran).holds, None);
        // Another depth is another work.
        let other = record(vec![chunk(64, 100.0), chunk(1024, 200.0).with(|it| it.case.depth = 9)]);
        assert_eq!(above.outcome(&other).holds, None);
    }

    #[test]
    fn the_machines_cpus_may_be_compared() {
        let busy = |kib, seconds| {
            chunk(kib, 9.0).with(|it| {
                it.measured.cpu_system_s = Some(seconds);
                it.measured.samples =
                    vec![results::record::Sample { seconds: 2.0, bytes: 1, ops: 1 }];
            })
        };
        let claim = Claim { of: MACHINE_CPUS.into(), ..claim("above") };
        let outcome = claim.outcome(&record(vec![busy(64, 0.5), busy(1024, 1.5)]));
        assert_eq!((outcome.holds, outcome.here), (Some(true), Some([0.75, 0.25])));
        assert_eq!(claim.outcome(&record(vec![chunk(64, 9.0), chunk(1024, 9.0)])).holds, None);
    }

    #[test]
    fn a_side_may_name_any_setting_of_the_record() {
        let mut claim = claim("above");
        claim.less.chunk_kib = Some(1024);
        claim.of = "cpu_s_per_gib".into();
        claim.more.cell.insert("queue_depth".into(), 1.into());
        claim.less.cell.insert("queue_depth".into(), serde_json::Value::Null);
        let queue = |queue_depth, cpu| {
            let mut cell = chunk(1024, 9.0).with(|it| it.derived.cpu_s_per_gib = Some(cpu));
            cell.case.knobs.queue_depth = queue_depth;
            cell
        };
        let outcome = claim.outcome(&record(vec![queue(None, 1.0), queue(Some(1), 2.0)]));
        assert_eq!(outcome.here, Some([2.0, 1.0]));
    }
}
