//! Which arrays suit disks and a mix of workloads: capacity, speed, and what failures cost.
//!
//! ```text
//!   candidates (level x layout x chunk) -> law (healthy), arithmetic (degraded)
//!        \-> capacity -> risk (Markov chains) -> ranked, each compared with the best
//! ```
//!
//! Invariant: an order is called clear only from a predicted ratio of 1.2 on, as `score` judges it.

mod capacity;
mod degraded;
mod risk;

use md::Level;

pub use capacity::{Capacity, capacity};
pub use risk::{Assumptions, Risk, risk};

use crate::law::{Access, Array, Copies, Machine, Single, Work, WriteBack, predict};
use crate::law::{Constants, WhyNot};
use crate::score::{CLEAR, PROBABLE};

/// A workload and its weight in the mix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The workload.
    pub work: Work,
    /// Its weight; any positive number.
    pub weight: f64,
}

/// What advice is for.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// One disk, the slowest.
    pub single: &'a Single,
    /// Capacity of each disk, bytes.
    pub bytes: &'a [u64],
    /// The mix.
    pub mix: &'a [Share],
    /// The file system's write-back.
    pub write_back: WriteBack,
    /// Requests in flight of random workloads, of all jobs.
    pub depth: f64,
    /// Jobs.
    pub jobs: f64,
    /// Failure rates and their like.
    pub assumptions: Assumptions,
}

/// How sure an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// From a predicted ratio of 1.2 on.
    Clear,
    /// From 1.1 on.
    Probable,
    /// Below.
    TooClose,
}

impl Confidence {
    /// That of a predicted ratio, whichever way.
    pub fn of(ratio: f64) -> Confidence {
        match ratio.max(1.0 / ratio) {
            ratio if ratio >= CLEAR => Confidence::Clear,
            ratio if ratio >= PROBABLE => Confidence::Probable,
            _ => Confidence::TooClose,
        }
    }

    /// `clear`, `probable`, `too close to call`.
    pub const fn name(self) -> &'static str {
        match self {
            Confidence::Clear => "clear",
            Confidence::Probable => "probable",
            Confidence::TooClose => "too close to call",
        }
    }
}

/// A workload on a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// The workload.
    pub work: Work,
    /// MB/s or operations per second, healthy.
    pub healthy: f64,
    /// The same with one member missing, by arithmetic; `None`: there is no data then.
    pub degraded: Option<f64>,
}

/// An array that is possible with the disks.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The array.
    pub array: Array,
    /// Its capacity.
    pub capacity: Capacity,
    /// Speed of each workload of the mix.
    pub speeds: Vec<Speed>,
    /// Geometric mean of the speeds, of one disk's, weighted by the mix.
    pub score: f64,
    /// How sure it is that the best candidate is better.
    pub confidence: Confidence,
    /// What failures cost.
    pub risk: Risk,
}

/// Members of RAID 1 that are still considered.
const MIRROR_MAX: u32 = 8;

const CHUNKS_KIB: [f64; 6] = [512.0, 64.0, 128.0, 256.0, 1024.0, 32.0];

/// All candidates, the fastest for the mix first; for each level and layout its best chunk, where
/// md's default counts unless another is better by 2 %.
///
/// # Errors
/// Why there is none: a workload of the mix has no figure of one disk, or is outside the law.
pub fn advise(question: &Question<'_>, constants: &Constants) -> Result<Vec<Candidate>, WhyNot> {
    let n = question.bytes.len() as u32;
    let mut all: Vec<Candidate> = Vec::new();
    let mut why = WhyNot::TooFew;
    for (level, copies) in SHAPES {
        let mut best: Option<Candidate> = None;
        for chunk_kib in CHUNKS_KIB {
            let array = Array { level: *level, copies: *copies, members: n, chunk_kib, missing: 0 };
            // A mirror of very many members is no advice, and its chain of failures is long.
            let too_many = *level == Level::Raid1 && n > MIRROR_MAX;
            if !array.has_enough_members() || too_many {
                continue;
            }
            match candidate(question, array, constants) {
                Ok(found) if best.as_ref().is_none_or(|best| found.score > 1.02 * best.score) => {
                    best = Some(found);
                }
                Ok(_) => {}
                Err(found) => why = found,
            }
        }
        all.extend(best);
    }
    all.sort_by(|a, b| b.score.total_cmp(&a.score));
    let top = all.first().ok_or(why)?.score;
    for candidate in &mut all {
        candidate.confidence = Confidence::of(top / candidate.score);
    }
    Ok(all)
}

const SHAPES: &[(Level, Copies)] = &[
    (Level::Raid0, Copies::Near(2)),
    (Level::Raid1, Copies::Near(2)),
    (Level::Raid10, Copies::Near(2)),
    (Level::Raid10, Copies::Far(2)),
    (Level::Raid10, Copies::Near(3)),
    (Level::Raid5, Copies::Near(2)),
    (Level::Raid6, Copies::Near(2)),
];

fn candidate(
    question: &Question<'_>,
    array: Array,
    constants: &Constants,
) -> Result<Candidate, WhyNot> {
    let mut speeds = Vec::new();
    let (mut logs, mut weights) = (0.0, 0.0);
    for share in question.mix {
        let random = matches!(share.work, Work::RandomRead | Work::RandomWrite);
        let access = Access {
            work: share.work,
            depth: if random { question.depth } else { question.jobs },
            jobs: question.jobs,
            write_back: question.write_back,
            direct: matches!(share.work, Work::DirectRead | Work::DirectWrite),
        };
        let (machine, single) = (question.machine, question.single);
        let found = predict(&array, machine, &access, single, constants)?;
        let one = single.get(share.work).map_or(1.0, |one| one.rate);
        logs += share.weight * (found.value / one).ln();
        weights += share.weight;
        let degraded = degraded::speed(&array, share.work, found.value, single);
        speeds.push(Speed { work: share.work, healthy: found.value, degraded });
    }
    let resync = Access::new(Work::Resync, WriteBack::Raw);
    let rebuild = predict(&array, question.machine, &resync, question.single, constants)?;
    let smallest = question.bytes.iter().copied().min().unwrap_or(0);
    Ok(Candidate {
        array,
        capacity: capacity(&array, question.bytes),
        speeds,
        score: (logs / weights).exp(),
        confidence: Confidence::TooClose,
        risk: risk(&array, question.machine, smallest, rebuild.value, &question.assumptions),
    })
}
