//! `advise --verify`: the engine on paced members, beside what was predicted for Linux md.
//!
//! Invariant: a measured figure is one of the engine on modelled drives that keep real time; it
//! says whether the order holds for another implementation, and nothing about Linux md.

use anyhow::{Error, Result, bail};
use bench::{blocks, model_time};
use md::Level;
use predict::advise::{Advice, Candidate, Question, Share};
use predict::law::Work;
use predict::score::PROBABLE;
use serde::Serialize;
use spec::buses::Buses;
use spec::case::{BenchLevel, RunConfig};
use spec::matrix::{self, Options, Plan};
use spec::members::MemberSet;
use spec::target::TargetExpr;
use spec::units::digits;
use spec::workload::Kind;

use super::words::array_name;
use crate::commands::bench::fastest_kernels;
use crate::commands::predict::level_name;
use crate::console::{columns, say};
use crate::progress::Reporter;

/// How many candidates are run: the first of the list.
pub const TOP: usize = 3;

/// The modelled drives.
pub struct Drives {
    /// One for each disk.
    pub members: MemberSet,
    /// Paths that they share.
    pub buses: Option<Buses>,
}

/// A candidate under a workload of the mix.
pub struct Verified {
    array: String,
    work: Work,
    /// The law, of Linux md.
    law: f64,
    /// The engine in model time.
    model: f64,
    /// The engine on paced members.
    measured: f64,
}

/// What was run.
pub struct Verification {
    /// By candidate, then workload.
    pub rows: Vec<Verified>,
    /// The candidates by what was measured, the best first, with the mix of each relative to the
    /// first candidate of the list.
    order: Vec<(String, f64)>,
    /// How it compares with the law's order.
    held: Held,
    /// Workloads of the mix that no block workload stands for.
    not_run: Vec<Work>,
}

/// How an order by what was measured compares with the law's, of the same workloads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// As predicted, where the law says what is faster.
    AsPredicted,
    /// Two that the law ranks are the other way round.
    Other,
    /// The law calls all of them too close to call.
    TooClose,
}

impl Held {
    /// `measured` and `law`: the mix of each candidate, of that of the first. Pairs below the ratio
    /// from which on the law calls one probably better have no predicted order.
    fn of(measured: &[f64], law: &[f64]) -> Held {
        let mut held = Held::TooClose;
        for (slower, slower_law) in law.iter().enumerate() {
            for (faster, faster_law) in law.iter().enumerate() {
                if *faster_law < PROBABLE * slower_law {
                    continue;
                }
                if measured[faster] <= measured[slower] {
                    return Held::Other;
                }
                held = Held::AsPredicted;
            }
        }
        held
    }

    const fn name(self) -> &'static str {
        match self {
            Held::AsPredicted => "as predicted",
            Held::Other => "other than predicted",
            Held::TooClose => "which the law calls too close to call",
        }
    }

    /// Null: nothing was predicted.
    const fn as_predicted(self) -> Option<bool> {
        match self {
            Held::AsPredicted => Some(true),
            Held::Other => Some(false),
            Held::TooClose => None,
        }
    }
}

/// The block workload of a workload of the law.
fn kind(work: Work) -> Option<Kind> {
    match work {
        Work::Read | Work::DirectRead => Some(Kind::SeqRead),
        Work::Write | Work::DirectWrite => Some(Kind::SeqWrite),
        Work::RandomRead => Some(Kind::RandRead),
        Work::RandomWrite => Some(Kind::RandWrite),
        _ => None,
    }
}

fn plan(question: &Question<'_>, one: &Candidate, drives: &Drives, work: Work) -> Result<Plan> {
    let kind = kind(work).expect("chosen before");
    let direct = matches!(work, Work::DirectRead | Work::DirectWrite);
    let jobs = if kind.is_sequential() && !direct { 1 } else { question.jobs as u32 };
    let depth = (question.depth / question.jobs) as u32;
    let array = &one.array;
    let ten = array.level == Level::Raid10;
    let options = Options::default().with(|it| {
        it.arrays.level = vec![BenchLevel::Md(array.level)];
        it.arrays.layout =
            if ten { vec![level_name(array).replace("raid10 ", "")] } else { Vec::new() };
        it.arrays.disks = vec![array.members];
        it.arrays.chunk = match array.level.has_chunks() {
            true => vec![(array.chunk_kib * 1024.0) as u64],
            false => Vec::new(),
        };
        it.engine.members = vec![drives.members.clone()];
        it.engine.bus = drives.buses.iter().copied().collect();
        it.workloads = vec![kind];
        it.blocks.depth =
            if kind.is_sequential() { Vec::new() } else { vec![depth.clamp(1, 1024)] };
        it.blocks.jobs = vec![jobs.clamp(1, 256)];
    });
    // The drives are what is paced; bytes are not kept.
    Ok(model_time::modelled(&matrix::plan(&options)?)?)
}

/// Runs the first candidates; `None`: stopped.
///
/// # Errors
/// A mix of which nothing can be run; an array that the engine cannot make, or that did nothing.
pub fn run(
    question: &Question<'_>,
    advice: &Advice,
    drives: &Drives,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Verification>> {
    let (run, left): (Vec<Share>, Vec<Share>) =
        question.mix.iter().copied().partition(|share| kind(share.work).is_some());
    if run.is_empty() {
        bail!("--verify: no block workload stands for {}: nothing can be run", names(&left));
    }
    let config = RunConfig {
        warm_up: std::time::Duration::from_millis(300),
        sample: std::time::Duration::from_millis(700),
        sample_given: false,
        runs: 3,
        kernels: fastest_kernels(),
        ..RunConfig::quick()
    };
    let top = &advice.candidates[..advice.candidates.len().min(TOP)];
    let mut plans = Vec::new();
    for one in top {
        for share in &run {
            plans.push((one, *share, plan(question, one, drives, share.work)?));
        }
    }
    let seconds: f64 = plans
        .iter()
        .map(|(.., plan)| blocks::estimate_seconds(&TargetExpr::Engine, plan, &config))
        .sum();
    say(format_args!("verifying {} arrays on paced members, about {seconds:.0} s", top.len()));
    let mut reporter = Reporter::new(plans.len(), 0, seconds);
    let mut rows = Vec::new();
    for (one, share, plan) in &plans {
        let (model, ended) = model_time::run(plan, &config, stop, &mut |_| {})?;
        ended.map_err(Error::from)?;
        let (paced, ended) =
            blocks::run(plan, &config, stop, &mut |progress| reporter.show(&progress));
        ended.map_err(Error::from)?;
        let (Some(model), Some(paced)) = (model.cells.first(), paced.cells.first()) else {
            return Ok(None);
        };
        let law = one.speeds.iter().find(|speed| speed.work == share.work);
        let law = law.expect("the law has each workload of the mix").healthy;
        if paced.rate() <= 0.0 {
            let (array, work) = (array_name(one), share.work.name());
            bail!("--verify: {array}: {work} got nothing done in the time of its samples");
        }
        rows.push(Verified {
            array: array_name(one),
            work: share.work,
            law,
            model: model.rate(),
            measured: paced.rate(),
        });
    }
    reporter.finish();
    if stop() {
        return Ok(None);
    }
    Ok(Some(Verification::of(rows, &run, &left)))
}

/// The workloads of shares, as options have them.
fn names(shares: &[Share]) -> String {
    shares.iter().map(|share| share.work.option_name()).collect::<Vec<_>>().join(", ")
}

/// The mix of an array, of that of another, by a figure of its rows.
fn relative(
    rows: &[Verified],
    mix: &[Share],
    (array, to): (&str, &str),
    figure: fn(&Verified) -> f64,
) -> f64 {
    let of = |array: &str, work| {
        let row = rows.iter().find(|row| row.array == array && row.work == work);
        figure(row.expect("each array has run each workload"))
    };
    let weights: f64 = mix.iter().map(|share| share.weight).sum();
    let logs = mix.iter().map(|one| one.weight * (of(array, one.work) / of(to, one.work)).ln());
    (logs.sum::<f64>() / weights).exp()
}

const HEADS: [&str; 6] =
    ["array", "workload", "law, Linux md", "engine, model time", "engine, paced", "paced of law"];

impl Verified {
    /// Cells below [`HEADS`].
    fn row(&self) -> [String; 6] {
        let unit = self.work.unit();
        let rate = |rate: f64| format!("{} {unit}", digits(rate));
        [
            self.array.clone(),
            self.work.option_name(),
            rate(self.law),
            rate(self.model),
            rate(self.measured),
            format!("{:.2}", self.measured / self.law),
        ]
    }
}

impl Verification {
    /// The order by what was measured of `run`; the law's is that of the same shares, which is not
    /// that of the list where some could not be run.
    fn of(rows: Vec<Verified>, run: &[Share], left: &[Share]) -> Verification {
        let mut arrays: Vec<String> = rows.iter().map(|row| row.array.clone()).collect();
        arrays.dedup();
        let all = |figure: fn(&Verified) -> f64| -> Vec<f64> {
            arrays.iter().map(|array| relative(&rows, run, (array, &arrays[0]), figure)).collect()
        };
        let measured = all(|row| row.measured);
        let held = Held::of(&measured, &all(|row| row.law));
        let mut order: Vec<(String, f64)> = arrays.iter().cloned().zip(measured).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let not_run = left.iter().map(|share| share.work).collect();
        Verification { rows, order, held, not_run }
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut out = "\nVerified: the engine of raidlab on paced members:\n".to_string();
        out += &columns(HEADS, self.rows.iter().map(Verified::row), &[2, 3, 4, 5]);
        out += &self.order_in_words();
        out += "\n";
        out
    }

    fn order_in_words(&self) -> String {
        let order = self.order.iter().map(|(name, of_first)| format!("{name} x {of_first:.2}"));
        let order = order.collect::<Vec<_>>().join("; ");
        let held = self.held.name();
        let mut out = format!("Order by what was measured, {held}: {order}.");
        if !self.not_run.is_empty() {
            let names = self.not_run.iter().map(|work| work.option_name());
            let names = names.collect::<Vec<_>>().join(", ");
            out += &format!(" Not run, because no block workload stands for it: {names}.");
        }
        out
    }

    /// For a page.
    pub fn table(&self) -> report::doc::Table {
        let rows = self.rows.iter().map(|row| row.row().to_vec());
        report::doc::Table::of_texts(
            "Verified on paced members",
            self.order_in_words(),
            HEADS,
            rows,
        )
    }

    /// For programs.
    pub fn document(&self) -> Document {
        let row = |row: &Verified| Row {
            array: row.array.clone(),
            workload: row.work.name(),
            unit: row.work.unit(),
            law: row.law,
            engine_model_time: row.model,
            engine_paced: row.measured,
        };
        let place = |(array, of_first): &(String, f64)| Place {
            array: array.clone(),
            mix_of_first: *of_first,
        };
        Document {
            rows: self.rows.iter().map(row).collect(),
            order: self.order.iter().map(place).collect(),
            as_predicted: self.held.as_predicted(),
            not_run: self.not_run.iter().map(|work| work.name()).collect(),
        }
    }
}

/// A verification for programs.
#[derive(Serialize)]
pub struct Document {
    rows: Vec<Row>,
    order: Vec<Place>,
    as_predicted: Option<bool>,
    not_run: Vec<&'static str>,
}

#[derive(Serialize)]
struct Row {
    array: String,
    workload: &'static str,
    unit: &'static str,
    law: f64,
    engine_model_time: f64,
    engine_paced: f64,
}

#[derive(Serialize)]
struct Place {
    array: String,
    mix_of_first: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_that_the_law_ranks_have_an_order() {
        // A near tie of the law may be measured either way.
        assert_eq!(Held::of(&[1.0, 1.02], &[1.0, 0.95]), Held::TooClose);
        assert_eq!(Held::of(&[1.0, 1.02, 0.5], &[1.0, 0.95, 0.6]), Held::AsPredicted);
        assert_eq!(Held::of(&[1.0, 0.9, 0.9], &[1.0, 0.95, 0.6]), Held::Other);
        assert_eq!(Held::of(&[1.0, 1.3], &[1.0, 1.2]), Held::AsPredicted);
        assert_eq!(Held::of(&[1.0], &[1.0]), Held::TooClose);
    }

    #[test]
    fn the_order_of_what_was_run_counts() {
        let row = |array: &str, law, measured| Verified {
            array: array.to_string(),
            work: Work::Read,
            law,
            model: law,
            measured,
        };
        let share = |work, weight| Share { work, weight };
        let run = [share(Work::Read, 1.0)];
        // Seeks put the first one first; it reads slower, and that is what the law says, too.
        let rows = vec![row("raid1", 100.0, 101.0), row("raid0", 200.0, 199.0)];
        let found = Verification::of(rows, &run, &[share(Work::Seeks, 9.0)]);
        assert_eq!((found.held, &*found.order[0].0), (Held::AsPredicted, "raid0"));
        assert_eq!(found.document().not_run, ["seeks"]);
    }
}
