//! Which arrays suit disks and a mix of workloads: capacity, speed, and what failures cost.
//!
//! ```text
//!   candidates (level x layout x chunk) -> law (healthy, degraded)
//!        \-> capacity -> risk (Markov chains) -> ranked, each compared with the best
//! ```
//!
//! Invariant: an order is called clear only from a predicted ratio of 1.2 on, as `score` judges it.

mod capacity;
mod needs;
mod outlook;
mod recommend;
mod risk;

use md::Level;

pub use capacity::{Capacity, capacity};
pub use needs::{Count, NAMED_MIXES, NamedMix, Needs, YEARS, named_mix};
pub use outlook::{Assumption, Decides, Outlook, Ranges, in_years, outlook, years};
pub use recommend::{Alternative, AtDepth, Change, Condition, alternatives, changes, recommended};
pub use risk::{Assumptions, Rebuild, Risk, risk};

use std::fmt;

use crate::law::{Access, Array, Copies, Machine, Single, Work, WriteBack, one_disk, predict};
use crate::law::{Ceiling, Constants, Prediction, WhyNot};
use crate::score::{CLEAR, PROBABLE};
use spec::units::short;

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
    /// Capacity of each disk, bytes; where their number is for the advice to find, of as many equal
    /// ones as there may be.
    pub bytes: &'a [u64],
    /// The mix.
    pub mix: &'a [Share],
    /// The file system's write-back.
    pub write_back: WriteBack,
    /// Requests in flight of random workloads, of all jobs.
    pub depth: f64,
    /// Bytes of the array that random requests reach, where that is not all of it.
    pub area_bytes: Option<f64>,
    /// Jobs.
    pub jobs: f64,
    /// What an array must have to be ranked.
    pub needs: Needs,
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
    /// Rate of a rebuild at the outer edge, MB/s, or why it is not known.
    pub rebuild_mb_per_s: Result<f64, WhyNot>,
    /// What failures cost.
    pub risk: Risk,
}

/// What is ranked, and what is not.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The fastest for the mix first; one at least.
    pub candidates: Vec<Candidate>,
    /// Levels and layouts that are not among them.
    pub left_out: Vec<LeftOut>,
}

/// A level or layout without advice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeftOut {
    /// The array that it would be.
    pub array: Array,
    /// Why.
    pub why: WhyLeftOut,
}

/// Why a level or layout is not ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhyLeftOut {
    /// The law gives no number.
    Law(WhyNot),
    /// A mirror of very many members is no advice, and its chain of failures is long.
    LargeMirror,
    /// RAID 4 has RAID 5's capacity and risk, and one member writes all of the parity.
    ParityMember,
    /// It survives the failure of no more than N disks, whichever they are.
    Survives(u32),
    /// It holds less than is needed: bytes, and the disks that it has.
    Holds(u64, u32),
    /// Its disks cost more than the budget.
    Costs(f64),
}

/// Why nothing is ranked.
#[derive(Clone, Debug, PartialEq)]
pub enum NoAdvice {
    /// The law gives no number of any array.
    Law(WhyNot),
    /// No array has what is needed; each with its reason.
    Needs(Vec<LeftOut>),
}

impl fmt::Display for NoAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = match self {
            NoAdvice::Law(why) => return why.fmt(f),
            NoAdvice::Needs(left_out) => left_out,
        };
        f.write_str("no array has what is needed")?;
        let mut said: Vec<Level> = Vec::new();
        for one in left_out {
            let level = one.array.level;
            let of_need = match one.why {
                WhyLeftOut::Holds(..) | WhyLeftOut::Costs(_) => true,
                WhyLeftOut::Survives(failures) => failures > 0,
                _ => false,
            };
            // Of a level's layouts the first, which holds most.
            if of_need && !said.contains(&level) {
                write!(f, "{}{} {}", if said.is_empty() { ": " } else { "; " }, level, one.why)?;
                said.push(level);
            }
        }
        Ok(())
    }
}

impl std::error::Error for NoAdvice {}

impl fmt::Display for WhyLeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WhyLeftOut::Law(why) => why.fmt(f),
            WhyLeftOut::LargeMirror => {
                write!(f, "a mirror of more than {MIRROR_MAX} disks is not considered")
            }
            WhyLeftOut::ParityMember => {
                f.write_str("as raid5, but one member writes all of the parity")
            }
            WhyLeftOut::Survives(0) => {
                f.write_str("survives the failure of no disk (--survive 0 ranks it)")
            }
            WhyLeftOut::Survives(failures) => {
                let plural = if failures == &1 { "" } else { "s" };
                write!(f, "survives any {failures} failure{plural}, fewer than --survive")
            }
            WhyLeftOut::Holds(bytes, disks) => {
                let held = short(*bytes as f64 / 1e12);
                write!(f, "holds {held} TB of {disks} disks, less than --usable")
            }
            WhyLeftOut::Costs(cost) => write!(f, "costs {}, more than --budget", short(*cost)),
        }
    }
}

/// Members of RAID 1 that are still considered.
const MIRROR_MAX: u32 = 8;

const CHUNKS_KIB: [f64; 6] = [512.0, 64.0, 128.0, 256.0, 1024.0, 32.0];

/// All candidates, the fastest for the mix first; for each level and layout its best chunk, where
/// md's default counts unless another is better by 2 %, and the number of disks that is needed
/// where it is not given. Every other level and layout has its reason.
///
/// # Errors
/// Why there is no candidate: a workload of the mix has no figure of one disk, or is outside the
/// law; or no array has what is needed.
pub fn advise(question: &Question<'_>, constants: &Constants) -> Result<Advice, NoAdvice> {
    let most = question.bytes.len() as u32;
    let (mut candidates, mut left_out) = (Vec::new(), Vec::new());
    for (level, copies) in SHAPES {
        let array = Array { copies: *copies, ..Array::new(*level, most, CHUNKS_KIB[0]) };
        match best_chunk(question, array, constants) {
            Ok(best) => candidates.push(best),
            Err(why) => left_out.push(LeftOut { array, why }),
        }
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
    let Some(top) = candidates.first().map(|first| first.score) else {
        let of_the_law = left_out.iter().find_map(|one| match one.why {
            WhyLeftOut::Law(why) if !matches!(why, WhyNot::TooFew | WhyNot::Level) => Some(why),
            _ => None,
        });
        return Err(of_the_law.map_or(NoAdvice::Needs(left_out), NoAdvice::Law));
    };
    for candidate in &mut candidates {
        candidate.confidence = Confidence::of(top / candidate.score);
    }
    Ok(Advice { candidates, left_out })
}

/// The array with the chunk that suits the mix best.
fn best_chunk(
    question: &Question<'_>,
    array: Array,
    constants: &Constants,
) -> Result<Candidate, WhyLeftOut> {
    match array.level {
        Level::Raid4 => return Err(WhyLeftOut::ParityMember),
        Level::Linear => return Err(WhyLeftOut::Law(WhyNot::Level)),
        _ => {}
    }
    let array = question.needs.array(array, question.bytes)?;
    if array.level == Level::Raid1 && array.members > MIRROR_MAX {
        return Err(WhyLeftOut::LargeMirror);
    }
    let with = |chunk_kib| {
        let found = candidate(question, Array { chunk_kib, ..array }, constants);
        found.map_err(WhyLeftOut::Law)
    };
    // What is outside the law with one chunk is outside with all.
    let mut best = with(CHUNKS_KIB[0])?;
    for chunk_kib in &CHUNKS_KIB[1..] {
        let found = with(*chunk_kib)?;
        if found.score > 1.02 * best.score {
            best = found;
        }
    }
    Ok(best)
}

const SHAPES: &[(Level, Copies)] = &[
    (Level::Raid0, Copies::Near(2)),
    (Level::Raid1, Copies::Near(2)),
    (Level::Raid10, Copies::Near(2)),
    (Level::Raid10, Copies::Far(2)),
    (Level::Raid10, Copies::Offset(2)),
    (Level::Raid10, Copies::Near(3)),
    (Level::Raid4, Copies::Near(2)),
    (Level::Raid5, Copies::Near(2)),
    (Level::Raid6, Copies::Near(2)),
    (Level::Linear, Copies::Near(2)),
];

fn candidate(
    question: &Question<'_>,
    array: Array,
    constants: &Constants,
) -> Result<Candidate, WhyNot> {
    let mut speeds = Vec::new();
    let (mut logs, mut weights) = (0.0, 0.0);
    for share in question.mix {
        let each = question.depth / question.jobs;
        let access = Access {
            area_bytes: question.area_bytes,
            ..Access::of_jobs(share.work, question.write_back, question.jobs, each)
        };
        let (machine, single) = (question.machine, question.single);
        let found = predict(&array, machine, &access, single, constants)?;
        let one =
            one_disk(&access, machine, single, constants).ok_or(WhyNot::NoSingle(share.work))?;
        logs += share.weight * (found.value / one).ln();
        weights += share.weight;
        let lost = Array { missing: 1, ..array };
        let degraded = predict(&lost, machine, &access, single, constants).ok();
        let degraded = degraded.map(|found| found.value);
        speeds.push(Speed { work: share.work, healthy: found.value, degraded });
    }
    let resync = Access::new(Work::Resync, WriteBack::Raw);
    let rebuild = predict(&array, question.machine, &resync, question.single, constants);
    // md's limit is one of the mean rate, not of that at the edge: `risk` has it.
    let others = |found: Prediction| {
        let others = found.ceilings().iter().filter(|(name, _)| *name != Ceiling::SyncSpeed);
        others.map(|(_, rate)| *rate).fold(f64::INFINITY, f64::min)
    };
    let mut found = Candidate {
        array,
        capacity: capacity(&array, question.disks_of(&array)),
        speeds,
        score: (logs / weights).exp(),
        confidence: Confidence::TooClose,
        rebuild_mb_per_s: rebuild.map(others),
        risk: Risk::default(),
    };
    found.risk = found.risk_with(question, &question.assumptions);
    Ok(found)
}

impl Question<'_> {
    /// The disks of an array.
    pub fn disks_of(&self, array: &Array) -> &[u64] {
        &self.bytes[..self.bytes.len().min(array.members as usize)]
    }
}

impl Candidate {
    /// What failures cost under other assumptions.
    pub fn risk_with(&self, question: &Question<'_>, assumptions: &Assumptions) -> Risk {
        let smallest = question.disks_of(&self.array).iter().copied().min().unwrap_or(0);
        risk(&self.array, question.machine, smallest, self.rebuild_mb_per_s, assumptions)
    }

    /// Whether it is of the same level and layout as another array.
    pub fn is_like(&self, other: &Array) -> bool {
        (self.array.level, self.array.copies) == (other.level, other.copies)
    }
}
