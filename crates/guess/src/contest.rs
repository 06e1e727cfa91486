//! What decides between two geometries that explain as much: what stands where they read different
//! bytes.
//!
//! Invariant: only where the two read different bytes anything counts. Witnesses add to what was
//! predicted and never stand against it: an old block is right in itself, and a parity may look
//! like a block.

use content::Prediction;

use crate::candidate::Candidate;
use crate::case::Case;
use crate::shape::Role;
use crate::through::{Questions, Through, ask, questions};
use crate::view::View;

/// Bytes of a witness that are compared: less than the smallest of them has.
const OF_WITNESS: usize = 128;
/// Witnesses that are read.
const WITNESSES: usize = 400;
/// The least weight that decides.
const DECIDES: f64 = 2.0;

/// A leader, and what must stand where if it is right.
pub(crate) struct Contest<'a> {
    case: &'a Case<'a>,
    lead: Candidate,
    pub questions: Questions,
    /// What the leader reads.
    pub through: Through,
    /// What it reads without a member that may be out of date.
    best: (Candidate, Through),
}

/// What was found where two geometries read different bytes, by weight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub own: f64,
    pub theirs: f64,
    pub differ: f64,
}

impl Outcome {
    /// Whether the leader finds what must be there, and the other does not.
    pub fn refutes(&self) -> bool {
        decides(self.own, self.theirs)
    }

    /// The reverse.
    pub fn is_refuted(&self) -> bool {
        decides(self.theirs, self.own)
    }

    /// By how much the leader leads, if it refutes the other together with witnesses that each
    /// finds. Those say less than a prediction, since the order was chosen to explain as many as
    /// possible, and nothing against one.
    fn with(&self, (own, theirs): (f64, f64)) -> Option<f64> {
        let more = if decides(own, theirs) { (own - theirs).min(8.0) * 0.5 } else { 0.0 };
        let refutes = decides(self.own + more, self.theirs) && self.theirs <= self.own * 0.4;
        refutes.then_some(self.own + more * 0.5 - self.theirs)
    }
}

fn decides(own: f64, theirs: f64) -> bool {
    own >= DECIDES && theirs <= own * 0.4
}

impl<'a> Contest<'a> {
    pub fn of(case: &'a Case<'a>, lead: &Candidate) -> Contest<'a> {
        let questions = questions(case.file_systems, case.set, lead, case.pages);
        let through = ask(&questions.asked, case.bytes(), lead, case.pages);
        let best = reading(case, &questions.asked, lead);
        Contest { case, lead: lead.clone(), questions, through, best }
    }

    /// Compares the leader with another.
    pub fn against(&self, other: &Candidate) -> Outcome {
        let asked = &self.questions.asked;
        let (there, theirs) = reading(self.case, asked, other);
        let (own, theirs, differ) = self.best.1.compare(&theirs, asked);
        let mut outcome = Outcome { own, theirs, differ };
        if outcome.refutes() || outcome.is_refuted() {
            return outcome;
        }
        let spare = self.spare(&there);
        let bytes = self.case.bytes();
        let ours = ask(&spare, bytes, &self.best.0, self.case.pages);
        let (own, theirs, differ) =
            ours.compare(&ask(&spare, bytes, &there, self.case.pages), &spare);
        outcome.own += own;
        outcome.theirs += theirs;
        outcome.differ += differ;
        outcome
    }

    /// By how much the leader leads, if another is refuted by all that is known.
    pub fn refutes(&self, outcome: &Outcome, other: &Candidate) -> Option<f64> {
        if outcome.refutes() {
            return Some(outcome.own - outcome.theirs);
        }
        let may = outcome.theirs <= outcome.own * 0.4;
        may.then(|| outcome.with(self.witnesses(other)))?
    }

    /// Spare questions at places that the two read from different members.
    fn spare(&self, other: &Candidate) -> Vec<Prediction> {
        let differ = self.questions.spare.iter().filter(|question| {
            let of = |it: &Candidate| source(it, it.base + question.address);
            of(&self.best.0) != of(other)
        });
        differ.cloned().collect()
    }

    /// The weight of witnesses that each reads where they must stand, of those that only one has
    /// there as data.
    fn witnesses(&self, other: &Candidate) -> (f64, f64) {
        let set = self.case.set;
        let mut sums = (0.0, 0.0);
        let has = |candidate: &Candidate, point: &crate::points::Point| {
            source(candidate, point.address) == Some((point.member, point.at))
        };
        let groups = set.groups().filter_map(|group| {
            let mut strong = group.iter().filter(|it| it.strong && !it.either);
            strong.find(|it| has(&self.lead, it) != has(other, it)).map(|_| group)
        });
        for group in groups.take(WITNESSES) {
            let read = |candidate: &Candidate| {
                let mut bytes = vec![0; OF_WITNESS];
                let view = View::new(candidate, self.case.pages);
                content::Bytes::read(&view, group[0].address, &mut bytes).ok()?;
                Some(bytes)
            };
            let (own, theirs) = (read(&self.lead), read(other));
            if own == theirs {
                continue;
            }
            let stands = |bytes: &Option<Vec<u8>>| {
                let mut strong = group.iter().filter(|it| it.strong && !it.either);
                let pages = self.case.pages;
                bytes.is_some()
                    && strong.any(|it| pages.take(it.member, it.at, OF_WITNESS) == *bytes)
            };
            sums.0 += if stands(&own) { group[0].weight } else { 0.0 };
            sums.1 += if stands(&theirs) { group[0].weight } else { 0.0 };
        }
        sums
    }
}

/// The member and offset from which a candidate reads an address of the array.
fn source(candidate: &Candidate, address: u64) -> Option<(usize, u64)> {
    let mut places = Vec::new();
    candidate.shape.places(address, &mut places);
    let mut data = places.iter().filter(|place| place.role == Role::Data);
    data.find_map(|it| Some((candidate.member(it.slot)?, candidate.offsets[it.slot] + it.at)))
}

/// What a candidate reads at best: a member that is out of date may be in it.
fn reading(case: &Case, questions: &[Prediction], candidate: &Candidate) -> (Candidate, Through) {
    let bytes = case.bytes();
    let mut best = (candidate.clone(), ask(questions, bytes, candidate, case.pages));
    if best.1.holds == best.1.of || !candidate.shape.redundant() {
        return best;
    }
    for member in candidate.order.iter().flatten() {
        let without = candidate.without(*member);
        if without.is_whole() {
            let other = ask(questions, bytes, &without, case.pages);
            if other.score() > best.1.score() + 1.5 {
                best = (without, other);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn witnesses_add_to_predictions_but_never_stand_against_them() {
        let outcome = |own, theirs, witnesses| {
            let outcome = Outcome { own, theirs, differ: own + theirs };
            (outcome.refutes(), outcome.with(witnesses).is_some(), outcome.is_refuted())
        };
        assert_eq!(outcome(2.0, 0.0, (0.0, 0.0)), (true, true, false));
        assert_eq!(outcome(2.0, 1.0, (0.0, 0.0)), (false, false, false));
        assert_eq!(outcome(0.0, 2.0, (0.0, 0.0)), (false, false, true));
        // A little of both.
        assert_eq!(outcome(0.8, 0.0, (3.0, 0.0)), (false, true, false));
        assert_eq!(outcome(0.8, 0.0, (3.0, 2.0)), (false, false, false));
        // Predictions that the other finds are not outvoted.
        assert_eq!(outcome(0.4, 1.2, (100.0, 0.0)), (false, false, false));
        assert_eq!(outcome(0.4, 2.0, (100.0, 0.0)), (false, false, true));
    }
}
