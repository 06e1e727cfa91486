//! Predictions and advice for many configurations.
//!
//! Invariant: a configuration that makes no sense is an error; one that the law has no number for
//! has a reason. What many configurations share, the machine, is read once.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use ::predict::advise::{Candidate, Question, advise, recommended};
use ::predict::fitted::Fitted;
use ::predict::law::Work;

use super::words::Options;
use raidlab::{Kind, Result};

use super::failure;
use crate::commands::advise::{AdviseArguments, Asked, cost_per_tb};
use crate::commands::predict::{
    ArrayArguments, Described, MachineArguments, fitted, level_name, parse_work,
};

/// Workloads with an equation: the name in options, and the unit of its figures.
pub fn workloads() -> Vec<(String, &'static str)> {
    Work::ALL.into_iter().map(|work| (work.option_name(), work.unit())).collect()
}

/// An array and what runs on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration<'c> {
    /// As in `raid5`.
    pub level: &'c str,
    /// Of RAID 10: `n2`, `f2`, `o2`; that of other levels makes no difference.
    pub layout: Option<&'c str>,
    /// Members; unknown where the machine's options count them.
    pub disks: Option<u32>,
    /// Chunk, KiB; md's default is 512.
    pub chunk_kib: Option<f64>,
    /// Members that are missing.
    pub missing: u32,
    /// As in `seq-read`.
    pub workload: &'c str,
}

/// What is predicted of a configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predicted {
    /// `MB/s` or `/s`.
    pub unit: &'static str,
    /// MB/s or operations per second.
    pub value: Option<f64>,
    /// What healthy machines deliver, 80 % of them.
    pub interval: Option<(f64, f64)>,
    /// What limits.
    pub limit: Option<&'static str>,
    /// What would limit next, and at which rate.
    pub next: Option<(&'static str, f64)>,
    /// The naive rule.
    pub naive: Option<f64>,
    /// Why there is no value.
    pub why_not: Option<String>,
}

/// Predicts configurations of any number of machines.
pub struct Predictor {
    fitted: Fitted,
    machines: HashMap<Options, Rc<Described>>,
}

impl Predictor {
    /// With the constants of a file, or the built-in ones.
    ///
    /// # Errors
    /// The file cannot be read, or holds none.
    pub fn new(constants: Option<&Path>) -> Result<Predictor> {
        let fitted = fitted(constants).map_err(failure::or(Kind::Invalid))?;
        Ok(Predictor { fitted, machines: HashMap::new() })
    }

    /// Predicts what an array delivers on a machine, which the options of `raidlab predict`
    /// describe.
    ///
    /// # Errors
    /// A configuration that makes no sense.
    pub fn predict(&mut self, machine: &Options, array: &Configuration<'_>) -> Result<Predicted> {
        let described = self.described(machine)?;
        let work = parse_work(array.workload).map_err(failure::or(Kind::Usage))?;
        let of_row =
            ArrayArguments::of_row(array.level, array.layout, array.disks, array.chunk_kib);
        let made = of_row.and_then(|row| row.array(&described));
        let mut made = made.map_err(failure::or(Kind::Usage))?;
        made.missing = array.missing;
        let answer = described.question.answer(&made, work, &self.fitted);
        let unit = work.unit();
        Ok(match &answer.found {
            Ok(found) => Predicted {
                unit,
                value: Some(found.value),
                interval: answer.interval,
                limit: Some(found.limit().name()),
                next: found.next().map(|(next, rate)| (next.name(), rate)),
                naive: answer.naive,
                why_not: None,
            },
            Err(why) => Predicted {
                unit,
                naive: answer.naive,
                why_not: Some(why.to_string()),
                ..Predicted::default()
            },
        })
    }

    fn described(&mut self, machine: &Options) -> Result<Rc<Described>> {
        if let Some(described) = self.machines.get(machine) {
            return Ok(described.clone());
        }
        let arguments: MachineArguments = machine.parsed("predict", &[])?;
        let described = arguments.described().map_err(failure::or(Kind::Usage))?;
        let described = Rc::new(described);
        self.machines.insert(machine.clone(), described.clone());
        Ok(described)
    }
}

/// A level, layout and chunk of an advice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Advised {
    /// `raid10 f2`; `None`: the whole question has no answer.
    pub array: Option<String>,
    /// `raid10`.
    pub level: Option<&'static str>,
    /// Why it is not ranked.
    pub why_not: Option<String>,
    /// Place, from 1, and figures.
    pub ranked: Option<(u64, Figures)>,
    /// Whether it is the one that is recommended.
    pub is_recommended: bool,
}

/// Figures of a ranked array.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Disks that it takes.
    pub members: u32,
    /// Chunk, KiB; `None`: the level has none.
    pub chunk_kib: Option<f64>,
    /// What md makes of whole disks.
    pub capacity_bytes: u64,
    /// Of arrays stacked by size.
    pub stacked_bytes: u64,
    /// Geometric mean of the speeds, of one disk's, weighted by the mix.
    pub score: f64,
    /// How sure it is that the best is better.
    pub confidence: &'static str,
    /// Workload, unit, healthy and degraded speed, in the order of the mix.
    pub speeds: Vec<(String, &'static str, f64, Option<f64>)>,
    /// Members that may fail.
    pub tolerates: u32,
    /// Hours, chance of loss, of unreadable sectors, and that one more failure loses the array.
    pub rebuild: Option<[f64; 4]>,
    /// Why there is no rebuild.
    pub no_rebuild: Option<String>,
    /// Chance that the array is lost within a year; `None`: the rate of a rebuild is not known.
    pub loss_in_year: Option<f64>,
    /// Chance that anything is lost within a year: the array, or a sector in a rebuild.
    pub anything_in_year: Option<f64>,
    /// Price of a terabyte.
    pub cost_per_tb: Option<f64>,
}

/// Advises on any number of questions.
pub struct Adviser {
    fitted: Fitted,
}

impl Adviser {
    /// With the constants of a file, or the built-in ones.
    ///
    /// # Errors
    /// The file cannot be read, or holds none.
    pub fn new(constants: Option<&Path>) -> Result<Adviser> {
        Ok(Adviser { fitted: fitted(constants).map_err(failure::or(Kind::Invalid))? })
    }

    /// Answers a question, which the options of `raidlab advise` describe: the ranked arrays, the
    /// best first, then those that are not ranked.
    ///
    /// # Errors
    /// A question that makes no sense.
    pub fn advise(&self, question: &Options) -> Result<Vec<Advised>> {
        let arguments: AdviseArguments = question.parsed("advise", &[])?;
        let asked = Asked::of(&arguments).map_err(failure::or(Kind::Usage))?;
        let question = asked.question();
        let advice = match advise(&question, &self.fitted.constants) {
            Ok(advice) => advice,
            Err(why) => {
                let why_not = Some(why.to_string());
                return Ok(vec![Advised { why_not, ..Advised::default() }]);
            }
        };
        let chosen = recommended(&advice, &question.needs) as u64 + 1;
        let ranked = advice.candidates.iter().zip(1..).map(|(one, place)| Advised {
            array: Some(level_name(&one.array)),
            level: Some(one.array.level.name()),
            why_not: None,
            ranked: Some((place, figures(one, &question))),
            is_recommended: place == chosen,
        });
        let left_out = advice.left_out.iter().map(|one| Advised {
            array: Some(level_name(&one.array)),
            level: Some(one.array.level.name()),
            why_not: Some(one.why.to_string()),
            ..Advised::default()
        });
        Ok(ranked.chain(left_out).collect())
    }
}

fn figures(one: &Candidate, question: &Question<'_>) -> Figures {
    let speed = |speed: &::predict::advise::Speed| {
        (speed.work.option_name(), speed.work.unit(), speed.healthy, speed.degraded)
    };
    let rebuild = one.risk.rebuild;
    Figures {
        members: one.array.members,
        chunk_kib: one.array.level.has_chunks().then_some(one.array.chunk_kib),
        capacity_bytes: one.capacity.bytes,
        stacked_bytes: one.capacity.stacked,
        score: one.score,
        confidence: one.confidence.name(),
        speeds: one.speeds.iter().map(speed).collect(),
        tolerates: one.risk.tolerates,
        rebuild: rebuild.map(|it| [it.hours, it.loss, it.unreadable, it.second_failure]),
        no_rebuild: one.risk.why_no_rebuild(),
        loss_in_year: one.risk.loss_in_year,
        anything_in_year: one.risk.anything_in_year,
        cost_per_tb: cost_per_tb(one, question),
    }
}
