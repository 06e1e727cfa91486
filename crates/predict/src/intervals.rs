//! Intervals: how far healthy machines lie from the law, by class of workload.
//!
//! What is seen is the spread inside tables, in logarithms, each table with weight 1, beside half a
//! table of a prior. To it comes what a table from elsewhere adds: an offset of its own, which a
//! handful of tables cannot show. docs/models/intervals.md has the numbers.
//!
//! Invariant: an interval contains the point, and both ends are finite and positive.

use serde_json::{Map, Value};

use crate::law::{Access, Array, Ceiling, ConstantsError, Machine, Source, Work};

/// Kinds of figures that err alike.
const KINDS: [(&str, f64); 4] =
    [("read", 0.15), ("write", 0.22), ("rewrite", 0.22), ("random", 0.22)];

/// What a table from elsewhere adds, in logarithms.
const OFFSET: f64 = 0.20;

/// Standard deviations of 80 %: 1.28 of a normal distribution, more for its longer tails.
const DEVIATIONS: f64 = 1.4;

/// The class of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    kind: usize,
    parity: bool,
    old: bool,
}

impl Class {
    const COUNT: usize = KINDS.len() * 4;

    /// The class of a configuration.
    pub fn of(array: &Array, machine: &Machine, access: &Access) -> Class {
        let kind = match access.work {
            Work::Read | Work::StreamsRead | Work::DirectRead | Work::Check => 0,
            Work::Write | Work::StreamsWrite | Work::DirectWrite | Work::Resync => 1,
            Work::Rewrite => 2,
            Work::Seeks | Work::RandomRead | Work::RandomWrite | Work::SyncWrite => 3,
        };
        let old = machine.kernel.is_some_and(|kernel| !kernel.has_aligned_reads());
        Class { kind, parity: array.parities() > 0, old }
    }

    fn index(self) -> usize {
        self.kind * 4 + usize::from(self.parity) * 2 + usize::from(self.old)
    }

    fn all() -> impl Iterator<Item = Class> {
        let flags = [(false, false), (false, true), (true, false), (true, true)];
        (0..KINDS.len())
            .flat_map(move |kind| flags.map(|(parity, old)| Class { kind, parity, old }))
    }

    /// `write, parity`; `read, plain, before 2.6.20`.
    pub fn name(self) -> String {
        let parity = if self.parity { "parity" } else { "plain" };
        let old = if self.old { ", before 2.6.20" } else { "" };
        format!("{}, {parity}{old}", KINDS[self.kind].0)
    }

    /// Spread inside a table before any is seen.
    fn prior(self) -> f64 {
        let parity = if self.parity { 1.15 } else { 1.0 };
        let old = if self.old { 1.4 } else { 1.0 };
        KINDS[self.kind].1 * parity * old
    }
}

/// How far a figure lay from its prediction.
#[derive(Clone, Copy, Debug)]
pub struct Residual {
    /// Its class.
    pub class: Class,
    /// Its table.
    pub table: usize,
    /// Logarithm of measured over predicted.
    pub log: f64,
}

/// Half widths of the 80 % intervals, in logarithms, by class.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    halves: [f64; Class::COUNT],
}

impl Intervals {
    /// From residuals of leave-one-table-out.
    pub fn of(residuals: &[Residual]) -> Intervals {
        let mut halves = [0.0; Class::COUNT];
        for class in Class::all() {
            let of_class = || residuals.iter().filter(|residual| residual.class == class);
            let mut tables: Vec<usize> = of_class().map(|residual| residual.table).collect();
            tables.sort_unstable();
            tables.dedup();
            let spread = |table: &usize| {
                let logs: Vec<f64> = of_class()
                    .filter(|residual| residual.table == *table)
                    .map(|residual| residual.log)
                    .collect();
                logs.iter().map(|log| log * log).sum::<f64>() / logs.len() as f64
            };
            let seen: f64 = tables.iter().map(spread).sum();
            let weight = tables.len() as f64 + 0.5;
            let inside = (seen + 0.5 * class.prior().powi(2)) / weight;
            halves[class.index()] = DEVIATIONS * (inside + OFFSET * OFFSET).sqrt();
        }
        Intervals { halves }
    }

    /// The 80 % interval around a value; inputs that were not measured make it wider, and so does a
    /// ceiling that differs between machines.
    pub fn around(&self, class: Class, value: f64, source: Source, limit: Ceiling) -> (f64, f64) {
        let input: f64 = match source {
            Source::Measured | Source::OtherDepth | Source::StandIn => 0.0,
            Source::Sheet => 0.15,
            Source::Assumed => 0.25,
        };
        let more = input.hypot(limit.deviation());
        let half = self.halves[class.index()].hypot(DEVIATIONS * more);
        (value * (-half).exp(), value * half.exp())
    }

    /// The document's part: half widths by the names of the classes.
    pub fn document(&self) -> Value {
        let rounded = |half: f64| (half * 1e4).round() / 1e4;
        let all =
            Class::all().map(|class| (class.name(), rounded(self.halves[class.index()]).into()));
        Value::Object(all.collect::<Map<_, _>>())
    }

    /// Reads it; classes that are not named keep their prior.
    ///
    /// # Errors
    /// The first entry that is unknown or no half width.
    pub fn parse(value: &Value) -> Result<Intervals, ConstantsError> {
        let error = |name: &str, problem: &str| ConstantsError {
            name: name.to_string(),
            problem: problem.to_string(),
        };
        let mut intervals = Intervals::of(&[]);
        let Some(map) = value.as_object() else {
            return Err(error("intervals", "not an object"));
        };
        for (name, value) in map {
            let class = Class::all().find(|class| class.name() == *name);
            let class = class.ok_or_else(|| error(name, "there is no such class of figures"))?;
            let half = value.as_f64().filter(|half| (0.0..3.0).contains(half));
            let half = half.ok_or_else(|| error(name, "not within 0 and 3"))?;
            intervals.halves[class.index()] = half;
        }
        Ok(intervals)
    }
}
