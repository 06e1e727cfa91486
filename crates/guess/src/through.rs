//! Reads predicted contents through the array: the last gate.
//!
//! Invariant: all candidates get the same questions.

use std::collections::BTreeMap;

use content::{Bytes, FileSystems, Part, Prediction, PredictionKind};

use crate::candidate::Candidate;
use crate::points::Set;
use crate::shape::Role;
use crate::source::Pages;
use crate::view::View;

/// Predictions that are taken.
const WANTED: usize = 480;
/// Predictions of one kind that each candidate gets: hundreds of inodes side by side say no
/// more than a few.
const OF_A_KIND: usize = 48;

/// What was found where it must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Through {
    /// Predictions that hold.
    pub holds: usize,
    /// Predictions in all.
    pub of: usize,
    /// The same by weight.
    weight: (f64, f64),
    /// Kinds of strong predictions of which fewer hold than of right answers.
    pub failing: Vec<String>,
    /// Of each question whether it holds, and what was read, as a sum.
    answers: Vec<(bool, u64)>,
    /// The least share that holds in an eighth of the file system that has 6 or more; in percent.
    pub least_eighth: usize,
}

impl Through {
    /// Percent that hold, by weight.
    pub fn percent(&self) -> usize {
        match self.weight {
            (_, 0.0) => 0,
            (holds, of) => (holds * 100.0 / of) as usize,
        }
    }

    /// The weight of those that hold.
    pub fn score(&self) -> f64 {
        self.weight.0
    }

    /// Where two candidates read different bytes: the weight of what holds of the one and of the
    /// other, and of all there.
    pub fn compare(&self, other: &Through, questions: &[Prediction]) -> (f64, f64, f64) {
        let mut sums = (0.0, 0.0, 0.0);
        for ((question, own), theirs) in questions.iter().zip(&self.answers).zip(&other.answers) {
            if own.1 != theirs.1 {
                let weight = f64::from(question.weight);
                sums.0 += if own.0 { weight } else { 0.0 };
                sums.1 += if theirs.0 { weight } else { 0.0 };
                sums.2 += weight;
            }
        }
        sums
    }

    /// The addresses of questions that hold.
    pub fn held<'a>(&'a self, questions: &'a [Prediction]) -> impl Iterator<Item = u64> + 'a {
        let answers = questions.iter().zip(&self.answers);
        answers.filter(|(_, answer)| answer.0).map(|(question, _)| question.address)
    }

    /// The weight of questions that hold on each slot.
    pub fn proven(&self, questions: &[Prediction], candidate: &Candidate) -> Vec<f64> {
        let mut proven = vec![0.0; candidate.order.len()];
        let mut places = Vec::new();
        for (question, answer) in questions.iter().zip(&self.answers) {
            candidate.shape.places(candidate.base + question.address, &mut places);
            let read = places.iter().find(|it| candidate.member(it.slot).is_some());
            if let Some(place) = read.filter(|it| answer.0 && it.role == Role::Data) {
                proven[place.slot] += f64::from(question.weight);
            }
        }
        proven
    }
}

/// What must stand where.
pub(crate) struct Questions {
    /// For every candidate.
    pub asked: Vec<Prediction>,
    /// More of the same kinds, and hints, for two candidates that read different bytes there.
    pub spare: Vec<Prediction>,
}

/// What must stand where, by what was learned and by what the candidate reads.
pub(crate) fn questions(
    file_systems: &FileSystems,
    set: &Set,
    candidate: &Candidate,
    pages: &Pages,
) -> Questions {
    let bytes = file_systems.list()[set.file_system].bytes;
    let view = View::new(candidate, pages);
    let part = Part::new(&view, candidate.base, bytes);
    let mut all = file_systems.predictions_through(set.file_system, &part, WANTED);
    // What single members say may be of another time, or false: only where there is no better.
    if all.iter().filter(|it| it.kind != PredictionKind::Inode).count() < 12 {
        all.extend(file_systems.predictions(set.file_system, WANTED));
    }
    all.retain(|it| it.weight > 0.0);
    all.sort_by_key(|it| (it.kind, it.address));
    all.dedup_by_key(|it| (it.kind, it.address));
    let mut found = Questions { asked: Vec::new(), spare: Vec::new() };
    for kind in all.chunk_by(|one, other| one.kind == other.kind) {
        // Most files begin with no magic number: only one that is there says something.
        let most = if kind[0].kind == PredictionKind::FileStart { 0 } else { OF_A_KIND };
        let count = kind.len().min(most);
        for (index, question) in kind.iter().enumerate() {
            // One of them falls into each step of len / count.
            let is_asked = index * count / kind.len() != (index + 1) * count / kind.len();
            let to = if is_asked { &mut found.asked } else { &mut found.spare };
            to.push(question.clone());
        }
    }
    found
}

/// Questions whose answers were not written over.
pub(crate) fn undamaged(
    questions: &[Prediction],
    candidate: &Candidate,
    damaged: &[(u64, u64)],
) -> Vec<Prediction> {
    let mut places = Vec::new();
    let intact = questions.iter().filter(|it| {
        candidate.shape.places(candidate.base + it.address, &mut places);
        let hit =
            |at: u64| damaged.iter().any(|&(from, to)| at + u64::from(it.len) > from && at < to);
        !places.iter().any(|place| hit(place.at))
    });
    intact.cloned().collect()
}

/// Puts the questions to a candidate.
pub(crate) fn ask(
    questions: &[Prediction],
    bytes: u64,
    candidate: &Candidate,
    pages: &Pages,
) -> Through {
    let view = View::new(candidate, pages);
    view.prefetch(questions.iter().map(|it| (candidate.base + it.address, it.len as usize)));
    let mut through = Through { of: questions.len(), ..Through::default() };
    let mut eighths = [(0, 0); 8];
    let mut kinds: BTreeMap<PredictionKind, (usize, usize)> = BTreeMap::new();
    for question in questions {
        let mut there = vec![0; question.len as usize];
        let read = view.read(candidate.base + question.address, &mut there);
        let holds = read.is_ok() && question.holds(&there);
        let eighth = (question.address as u128 * 8 / u128::from(bytes.max(1))).min(7) as usize;
        eighths[eighth].0 += usize::from(holds);
        eighths[eighth].1 += 1;
        through.holds += usize::from(holds);
        through.answers.push((holds, sum(&there)));
        let weight = f64::from(question.weight);
        through.weight.0 += if holds { weight } else { 0.0 };
        through.weight.1 += weight;
        // The ends of files are found by almost all right answers, too.
        if question.strong || question.kind == PredictionKind::FileEnd {
            let (hold, of) = kinds.entry(question.kind).or_default();
            *hold += usize::from(holds);
            *of += 1;
        }
    }
    let shares = eighths.iter().filter(|(_, of)| *of >= 6).map(|(holds, of)| holds * 100 / of);
    through.least_eighth = shares.min().unwrap_or(100);
    let failing = kinds.iter().filter(|(_, (holds, of))| *of >= 5 && holds * 100 < of * 88);
    through.failing = failing
        .map(|(kind, (holds, of))| format!("{holds} of {of} of the kind {kind:?}"))
        .collect();
    through
}

/// A sum that differs where bytes do (FNV-1a).
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
