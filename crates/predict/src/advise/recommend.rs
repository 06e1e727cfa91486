//! Which array is recommended, what else there is, and what would change it.
//!
//! The rule: of the arrays that have what is needed, those count that lose anything at most once in
//! the years that are needed; where there are none, those as safe as the safest. Of them the
//! fastest for the mix, by disk where their number is to be found; but one that is no more than too
//! close to call behind it comes first if it has no parity on shingled disks, whose updates and
//! rebuilds have no figure; else if it survives more failures, of two; else if it takes fewer
//! disks; else if it holds more; else if it is less likely to lose anything.
//!
//! Invariant: what is said to change it was tried: the question was put again, and another array
//! was recommended.

use std::cmp::Ordering;

use super::{
    Advice, Assumption, Candidate, Confidence, Count, Needs, Question, Ranges, Share, advise,
};
use crate::law::{Array, Constants, Single, WhyNot, Work};

/// The place of the recommended array.
pub fn recommended(advice: &Advice, needs: &Needs) -> usize {
    let all = &advice.candidates;
    let chance = |one: &Candidate| one.risk.anything_in_year;
    let safest = all.iter().filter_map(chance).reduce(f64::min);
    let is_safe = |one: &Candidate| match (chance(one), safest) {
        (Some(chance), Some(safest)) => chance <= (1.0 / needs.years).max(AS_SAFE * safest),
        // Nothing is known of any.
        (_, None) => true,
        (None, Some(_)) => false,
    };
    let speed = |one: &Candidate| match needs.count {
        // Each disk is to be bought.
        Count::Fewest => one.score / f64::from(one.array.members),
        Count::Given | Count::Affordable => one.score,
    };
    let mut safe: Vec<(usize, &Candidate)> =
        all.iter().enumerate().filter(|(_, one)| is_safe(one)).collect();
    safe.sort_by(|(_, a), (_, b)| speed(b).total_cmp(&speed(a)));
    let Some((mut best, top)) = safe.first().copied() else { return 0 };
    for (place, one) in safe {
        let close = Confidence::of(speed(top) / speed(one)) == Confidence::TooClose;
        if close && compare(one, &all[best]) == Ordering::Less {
            best = place;
        }
    }
    best
}

/// Chances up to this multiple of the smallest count as the same.
const AS_SAFE: f64 = 2.0;

/// Less: the first is preferred, at about the same speed. Who survives two failures, and is as safe
/// as needed, gains more by room than by a third.
fn compare(a: &Candidate, b: &Candidate) -> Ordering {
    let survives = |one: &Candidate| one.risk.tolerates.min(2);
    let chance = |one: &Candidate| one.risk.anything_in_year.unwrap_or(0.0);
    let by_failures = survives(b).cmp(&survives(a));
    let by_disks = a.array.members.cmp(&b.array.members);
    let by_room = b.capacity.bytes.cmp(&a.capacity.bytes);
    // What updates and rebuilds of parity cost on shingles is known of none, and is much of each.
    let is_open = |one: &Candidate| {
        one.array.parities() > 0 && matches!(one.rebuild_mb_per_s, Err(WhyNot::Shingled(_)))
    };
    let by_shingles = is_open(a).cmp(&is_open(b));
    by_shingles.then(by_failures).then(by_disks).then(by_room).then(chance(a).total_cmp(&chance(b)))
}

/// What another array has that the recommended one has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alternative {
    /// It is faster at the mix.
    Faster,
    /// It survives more failures.
    Safer,
    /// It holds more.
    Larger,
    /// It takes fewer disks.
    Fewer,
}

impl Alternative {
    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Alternative::Faster => "faster",
            Alternative::Safer => "safer",
            Alternative::Larger => "larger",
            Alternative::Fewer => "fewer disks",
        }
    }
}

/// The fastest array of all, that survives more (than one failure), that takes fewer disks, that
/// holds more, with their places; each array once.
pub fn alternatives(advice: &Advice, place: usize) -> Vec<(Alternative, usize)> {
    let own = &advice.candidates[place];
    let first = |better: &dyn Fn(&Candidate) -> bool| advice.candidates.iter().position(better);
    let faster = (place > 0 && advice.candidates[0].score > 1.05 * own.score).then_some(0);
    // Who survives two has what there is to gain.
    let safer = first(&|one| one.risk.tolerates > own.risk.tolerates && own.risk.tolerates < 2);
    let fewer = first(&|one| one.array.members < own.array.members);
    let larger = first(&|one| one.capacity.bytes as f64 > 1.05 * own.capacity.bytes as f64);
    // Where the disks are to be counted, all hold what is needed.
    let counted = advice.candidates.iter().any(|one| one.array.members != own.array.members);
    let larger = larger.filter(|_| !counted);
    let mut all: Vec<(Alternative, usize)> = Vec::new();
    for (what, found) in [
        (Alternative::Faster, faster),
        (Alternative::Safer, safer),
        (Alternative::Fewer, fewer),
        (Alternative::Larger, larger),
    ] {
        if let Some(found) = found.filter(|found| all.iter().all(|(_, there)| there != found)) {
            all.push((what, found));
        }
    }
    all
}

/// What would have to be different.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// More writes than this share of the mix.
    WritesAbove(f64),
    /// Fewer.
    WritesBelow(f64),
    /// N random requests in flight.
    Depth(f64),
    /// N failures are to be survived.
    Survive(u32),
    /// An assumption at one end of its range.
    Assumed(Assumption, f64),
}

impl Condition {
    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Condition::WritesAbove(_) => "writes_above",
            Condition::WritesBelow(_) => "writes_below",
            Condition::Depth(_) => "depth",
            Condition::Survive(_) => "survive",
            Condition::Assumed(assumption, _) => assumption.name(),
        }
    }

    /// The value that it names.
    pub fn value(self) -> f64 {
        match self {
            Condition::WritesAbove(value)
            | Condition::WritesBelow(value)
            | Condition::Depth(value)
            | Condition::Assumed(_, value) => value,
            Condition::Survive(failures) => f64::from(failures),
        }
    }
}

/// What would change the recommendation, and to what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// What would have to be different.
    pub condition: Condition,
    /// What would be recommended then.
    pub to: Array,
}

/// One disk with another number of random requests in flight; `None`: it is not known.
pub type AtDepth<'d> = &'d dyn Fn(f64) -> Option<Single>;

/// The share of writes is varied in steps of it.
const STEP: f64 = 0.05;

/// Random requests in flight that are tried: fewer, and more.
const DEPTHS: [[f64; 2]; 2] = [[4.0, 1.0], [16.0, 128.0]];

/// What would change the recommendation: the share of writes, the requests in flight, the failures
/// to survive, each assumption at the ends of its range. Each is varied alone.
pub fn changes(
    question: &Question<'_>,
    chosen: &Array,
    at_depth: AtDepth<'_>,
    ranges: &Ranges,
    constants: &Constants,
) -> Vec<Change> {
    let other = |question: &Question<'_>| {
        let advice = advise(question, constants).ok()?;
        let one = &advice.candidates[recommended(&advice, &question.needs)];
        (!one.is_like(chosen)).then_some(one.array)
    };
    let mut found = Vec::new();
    let mut add = |condition: Condition, to: Option<Array>| {
        found.extend(to.map(|to| Change { condition, to }));
        to.is_some()
    };
    let writes = share_of_writes(question.mix);
    for up in [true, false] {
        let mut share = writes;
        while let Some(now) = share {
            let next = if up { now + STEP } else { now - STEP };
            // On whole steps.
            let next = (next / STEP).round() * STEP;
            if !(0.0..=1.0).contains(&next) {
                break;
            }
            let mix = with_writes(question.mix, next);
            let edge = if up { (next - STEP).max(0.0) } else { (next + STEP).min(1.0) };
            let condition =
                if up { Condition::WritesAbove(edge) } else { Condition::WritesBelow(edge) };
            if add(condition, other(&Question { mix: &mix, ..question.clone() })) {
                break;
            }
            share = Some(next);
        }
    }
    let is_random = |share: &Share| matches!(share.work, Work::RandomRead | Work::RandomWrite);
    if question.mix.iter().any(is_random) {
        for (deeper, depths) in [false, true].into_iter().zip(DEPTHS) {
            for depth in depths {
                if (depth > question.depth) != deeper || depth == question.depth {
                    continue;
                }
                let Some(single) = at_depth(depth) else { continue };
                let varied = Question { depth, single: &single, ..question.clone() };
                if add(Condition::Depth(depth), other(&varied)) {
                    break;
                }
            }
        }
    }
    let survive = question.needs.survive + 1;
    let needs = Needs { survive, ..question.needs };
    add(Condition::Survive(survive), other(&Question { needs, ..question.clone() }));
    for assumption in Assumption::ALL {
        let (from, to) = ranges.of(assumption);
        for value in [from, to] {
            let assumptions = assumption.set(&question.assumptions, value);
            let varied = Question { assumptions, ..question.clone() };
            if from != to && add(Condition::Assumed(assumption, value), other(&varied)) {
                break;
            }
        }
    }
    found
}

fn writes(work: Work) -> bool {
    matches!(
        work,
        Work::Write | Work::RandomWrite | Work::StreamsWrite | Work::SyncWrite | Work::DirectWrite
    )
}

/// The share of writes; `None` of a mix of one kind, whose other kind is not known.
pub(super) fn share_of_writes(mix: &[Share]) -> Option<f64> {
    let total: f64 = mix.iter().map(|share| share.weight).sum();
    let of_writes = mix.iter().filter(|share| writes(share.work));
    let share = of_writes.map(|share| share.weight).sum::<f64>() / total;
    (share > 0.0 && share < 1.0).then_some(share)
}

/// The mix with that share of writes; reads and writes keep their proportions.
fn with_writes(mix: &[Share], share: f64) -> Vec<Share> {
    let now = share_of_writes(mix).unwrap_or(0.5);
    let total: f64 = mix.iter().map(|share| share.weight).sum();
    let scaled = mix.iter().map(|one| {
        let factor = if writes(one.work) { share / now } else { (1.0 - share) / (1.0 - now) };
        Share { weight: one.weight / total * factor, ..*one }
    });
    scaled.filter(|one| one.weight > 1e-9).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_take_their_share_and_keep_their_proportions() {
        let of = |work, weight| Share { work, weight };
        let mix = [of(Work::Read, 30.0), of(Work::RandomRead, 10.0), of(Work::Write, 60.0)];
        assert!((share_of_writes(&mix).expect("both") - 0.6).abs() < 1e-12);
        let less = with_writes(&mix, 0.2);
        let weights: Vec<f64> = less.iter().map(|one| one.weight).collect();
        for (found, expected) in weights.iter().zip([0.6, 0.2, 0.2]) {
            assert!((found - expected).abs() < 1e-12, "{weights:?}");
        }
        assert_eq!(with_writes(&mix, 0.0).len(), 2);
        assert_eq!(share_of_writes(&mix[..2]), None);
    }
}
