//! The answer for programs.

use predict::advise::{Candidate, Decides, Outlook, Question, in_years};
use predict::disks::{Disk, FailureRate};
use serde::Serialize;

use super::asked::DepthFrom;
use super::verify::{self, Verification};
use super::{Answer, cost_per_tb};
use crate::commands::predict::{Input, inputs, level_name};

/// All of it.
#[derive(Serialize)]
pub struct Document {
    recommendation: Recommendation,
    disks: Option<usize>,
    bought: Vec<Bought>,
    cost: Option<f64>,
    mix: Vec<Share>,
    named_mix: Option<&'static str>,
    depth: f64,
    depth_from: Option<&'static str>,
    jobs: f64,
    survive: u32,
    usable_bytes: Option<u64>,
    years: f64,
    budget: Option<f64>,
    price: Option<f64>,
    inputs: Vec<Input>,
    assumptions: Assumptions,
    candidates: Vec<Ranked>,
    left_out: Vec<LeftOut>,
    verified: Option<verify::Document>,
}

#[derive(Serialize)]
struct Recommendation {
    place: usize,
    array: String,
    sentences: Vec<String>,
    alternatives: Vec<Alternative>,
    changes: Vec<Change>,
    outlook: Option<Chance>,
}

#[derive(Serialize)]
struct Alternative {
    what: &'static str,
    place: usize,
    array: String,
}

#[derive(Serialize)]
struct Change {
    what: &'static str,
    value: f64,
    to: String,
}

#[derive(Serialize)]
struct Chance {
    chance: f64,
    low: f64,
    high: f64,
    words: String,
    decides: Option<Decider>,
}

#[derive(Serialize)]
struct Decider {
    assumption: &'static str,
    best: End,
    worst: End,
}

#[derive(Serialize)]
struct End {
    value: f64,
    chance: f64,
}

#[derive(Serialize)]
struct Bought {
    count: u32,
    #[serde(flatten)]
    disk: Disk,
}

#[derive(Serialize)]
struct Share {
    workload: &'static str,
    weight: f64,
}

#[derive(Serialize)]
struct Assumptions {
    annual_failure_rate: f64,
    failures: FailureRate,
    errors_per_bit: f64,
    correlation: f64,
    replacement_hours: f64,
    machine: Vec<String>,
}

#[derive(Serialize)]
struct Speed {
    workload: &'static str,
    unit: &'static str,
    healthy: f64,
    degraded: Option<f64>,
}

#[derive(Serialize)]
struct Ranked {
    level: &'static str,
    array: String,
    members: u32,
    chunk_kib: Option<f64>,
    capacity_bytes: u64,
    stacked_bytes: u64,
    score: f64,
    confidence: &'static str,
    speeds: Vec<Speed>,
    tolerates: u32,
    rebuild_hours: Option<f64>,
    loss_in_rebuild: Option<f64>,
    unreadable_in_rebuild: Option<f64>,
    second_failure_loses: Option<f64>,
    no_rebuild: Option<String>,
    loss_in_year: Option<f64>,
    anything_in_year: Option<f64>,
    anything_in_year_low: Option<f64>,
    anything_in_year_high: Option<f64>,
    cost: Option<f64>,
    cost_per_tb: Option<f64>,
}

#[derive(Serialize)]
struct LeftOut {
    level: &'static str,
    array: String,
    why: String,
}

impl Answer<'_> {
    /// The answer for programs.
    pub fn document(&self) -> Document {
        let Answer { arguments, asked, question, advice, found, verified } = self;
        let needs = &question.needs;
        let is_given = !super::words::is_counted(needs.count);
        let disks = is_given.then_some(question.bytes.len());
        let each = advice.candidates.iter().zip(&found.outlooks);
        let left_out = advice.left_out.iter().map(|one| LeftOut {
            level: one.array.level.name(),
            array: level_name(&one.array),
            why: one.why.to_string(),
        });
        let of_mix = |share: &predict::advise::Share| Share {
            workload: share.work.name(),
            weight: share.weight,
        };
        let bought = asked.described.bought.iter();
        Document {
            recommendation: self.recommendation(),
            disks,
            bought: bought
                .map(|(disk, count)| Bought { count: *count, disk: disk.clone() })
                .collect(),
            cost: disks.and_then(|disks| needs.cost(disks as u32)),
            mix: question.mix.iter().map(of_mix).collect(),
            named_mix: arguments.named_mix.map(|mix| mix.name),
            depth: question.depth,
            depth_from: asked.depth_from.map(DepthFrom::name),
            jobs: question.jobs,
            survive: needs.survive,
            usable_bytes: needs.usable,
            years: needs.years,
            budget: needs.budget,
            price: needs.price,
            inputs: inputs(&asked.described),
            assumptions: self.assumptions(),
            candidates: each
                .map(|(one, outlook)| ranked(one, outlook.as_ref(), question))
                .collect(),
            left_out: left_out.collect(),
            verified: verified.as_ref().map(Verification::document),
        }
    }

    fn recommendation(&self) -> Recommendation {
        let found = &self.found;
        let array = |place: usize| level_name(&self.advice.candidates[place].array);
        let alternatives = found.alternatives.iter().map(|(what, place)| Alternative {
            what: what.name(),
            place: place + 1,
            array: array(*place),
        });
        let changes = found.changes.iter().map(|change| Change {
            what: change.condition.name(),
            value: change.condition.value(),
            to: level_name(&change.to),
        });
        Recommendation {
            place: found.place + 1,
            array: array(found.place),
            sentences: self.sentences().all().cloned().collect(),
            alternatives: alternatives.collect(),
            changes: changes.collect(),
            outlook: found.outlooks[found.place].as_ref().map(chance),
        }
    }

    fn assumptions(&self) -> Assumptions {
        let assumed = self.question.assumptions;
        Assumptions {
            annual_failure_rate: assumed.annual_failure_rate,
            failures: self.asked.failures.clone(),
            errors_per_bit: assumed.errors_per_bit,
            correlation: assumed.correlation,
            replacement_hours: assumed.replacement_h,
            machine: self.asked.described.assumed.clone(),
        }
    }
}

fn chance(outlook: &Outlook) -> Chance {
    let end = |(value, chance): (f64, f64)| End { value, chance };
    let decider = |decides: &Decides| Decider {
        assumption: decides.assumption.name(),
        best: end(decides.best),
        worst: end(decides.worst),
    };
    Chance {
        chance: outlook.chance,
        low: outlook.low,
        high: outlook.high,
        words: in_years(outlook.chance),
        decides: outlook.decides.as_ref().map(decider),
    }
}

fn ranked(one: &Candidate, outlook: Option<&Outlook>, question: &Question<'_>) -> Ranked {
    let rebuild = one.risk.rebuild;
    let speed = |speed: &predict::advise::Speed| Speed {
        workload: speed.work.name(),
        unit: speed.work.unit(),
        healthy: speed.healthy,
        degraded: speed.degraded,
    };
    Ranked {
        level: one.array.level.name(),
        array: level_name(&one.array),
        members: one.array.members,
        chunk_kib: one.array.level.has_chunks().then_some(one.array.chunk_kib),
        capacity_bytes: one.capacity.bytes,
        stacked_bytes: one.capacity.stacked,
        score: one.score,
        confidence: one.confidence.name(),
        speeds: one.speeds.iter().map(speed).collect(),
        tolerates: one.risk.tolerates,
        rebuild_hours: rebuild.map(|rebuild| rebuild.hours),
        loss_in_rebuild: rebuild.map(|rebuild| rebuild.loss),
        unreadable_in_rebuild: rebuild.map(|rebuild| rebuild.unreadable),
        second_failure_loses: rebuild.map(|rebuild| rebuild.second_failure),
        no_rebuild: one.risk.why_no_rebuild(),
        loss_in_year: one.risk.loss_in_year,
        anything_in_year: outlook.map(|outlook| outlook.chance),
        anything_in_year_low: outlook.map(|outlook| outlook.low),
        anything_in_year_high: outlook.map(|outlook| outlook.high),
        cost: question.needs.cost(one.array.members),
        cost_per_tb: cost_per_tb(one, question),
    }
}
