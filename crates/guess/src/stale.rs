//! Who is out of date, where redundancy agrees in most places but not in all.
//!
//! Invariant: a member is left out only for a reason that holds for it alone; without one the
//! answer stays open. Checksums of single blocks are no reason: an old block is right in itself.

use std::ops::Range;

use content::{CrossChecks, FileSystems, Part};
use md::{Kind, Level};

use crate::candidate::Candidate;
use crate::points::Set;
use crate::redundancy::{Bad, Masks, Redundancy, compare, one_region};
use crate::source::Pages;
use crate::view::View;

/// Comparisons inside of a file system for each exclusion.
const CROSS_CHECKS: usize = 600;

/// What explains the blocks that disagree.
pub(crate) enum Settled {
    /// Nothing disagrees.
    Agrees,
    /// A member is out of date; the candidate without it, and why.
    Stale { candidate: Box<Candidate>, member: usize, why: String },
    /// A region was written over.
    Damaged { range: Range<u64>, why: String },
    /// Nothing explains it: each exclusion that is possible.
    Open { candidates: Vec<Candidate>, why: String },
}

/// What is needed to ask.
pub(crate) struct Asked<'a> {
    pub pages: &'a Pages<'a>,
    pub set: &'a Set,
    pub file_systems: &'a FileSystems,
    pub masks: &'a Masks,
    /// Positions that were compared.
    pub positions: &'a [u64],
    /// Whether superblocks of another create were found.
    pub recreated: bool,
}

/// Explains what a comparison gave.
pub(crate) fn settle(asked: &Asked, candidate: &Candidate, found: &Redundancy) -> Settled {
    if found.bad.is_empty() {
        return Settled::Agrees;
    }
    if let Some((member, bad)) = blamed(candidate, &found.bad) {
        let rest = compare(&candidate.without(member), asked.pages, asked.positions, asked.masks);
        let all = found.bad.len();
        let why = format!("{bad} of {all} blocks where the redundancy disagrees are its");
        if rest.bad.is_empty() {
            let candidate = Box::new(candidate.without(member));
            return Settled::Stale { candidate, member, why };
        }
    }
    if let Some(range) = written_over(asked, candidate, &found.bad) {
        let bad = found.bad.len();
        let why = format!("{bad} blocks in one region disagree, no member alone explains them");
        return Settled::Damaged { range, why };
    }
    by_cross_checks(asked, candidate, found)
}

/// The member that most of the bad blocks name, with how many do.
fn blamed(candidate: &Candidate, bad: &[Bad]) -> Option<(usize, usize)> {
    let members = candidate.order.iter().flatten();
    let mut counts: Vec<(usize, usize)> = members
        .map(|&member| (bad.iter().filter(|it| it.blame == Some(member)).count(), member))
        .collect();
    counts.sort_unstable_by_key(|&it| std::cmp::Reverse(it));
    let (most, member) = *counts.first()?;
    let second = counts.get(1).map_or(0, |it| it.0);
    let clear = most * 10 >= bad.len() * 6 && second * 10 <= bad.len() * 2;
    (clear && candidate.without(member).is_whole()).then_some((member, most))
}

/// A resync in another order writes both parities of RAID 6 over data: one region, no culprit.
fn written_over(asked: &Asked, candidate: &Candidate, bad: &[Bad]) -> Option<Range<u64>> {
    let has_q = candidate.shape.level == Level::Raid6;
    let unexplained = bad.iter().filter(|it| it.blame.is_none()).count();
    let range = one_region(bad)?;
    (has_q && asked.recreated && unexplained * 2 > bad.len()).then_some(range)
}

/// How many cross-checks fail without each member.
fn by_cross_checks(asked: &Asked, candidate: &Candidate, found: &Redundancy) -> Settled {
    let suspects = suspects(candidate, &found.bad);
    let is_alone = suspects.len() == 1;
    let mut tried: Vec<(usize, Candidate, CrossChecks)> = Vec::new();
    for member in suspects {
        let without = candidate.without(member);
        if !without.is_whole() {
            continue;
        }
        let checks = cross_checks(asked, &without);
        tried.push((member, without, checks));
    }
    let is_mirror = matches!(candidate.shape.geometry().kind(), Kind::Mirrored(_));
    let decided = if is_mirror { only(&tried, is_alone) } else { fewest(&tried) };
    let all = found.bad.len();
    if let Some((at, why)) = decided {
        let (member, without, _) = tried.swap_remove(at);
        let rest = compare(&without, asked.pages, asked.positions, asked.masks);
        if rest.bad.is_empty() {
            let why = format!("the redundancy disagrees in {all} blocks; {why}");
            return Settled::Stale { candidate: Box::new(without), member, why };
        }
    }
    // Each copy is whole: the one that a file system wrote last comes first, and decides nothing.
    if is_mirror {
        tried.sort_by_key(|it| std::cmp::Reverse(it.2.written));
    }
    let candidates = tried.into_iter().map(|(_, without, _)| without).collect();
    let compared = found.compared;
    let what = if is_mirror { "copies disagree" } else { "redundancy disagrees" };
    let why = format!(
        "the {what} in {all} of {compared} blocks, and nothing says which member is out of date"
    );
    Settled::Open { candidates, why }
}

/// Members that take part in every bad block; of copies often two.
fn suspects(candidate: &Candidate, bad: &[Bad]) -> Vec<usize> {
    let members: Vec<usize> = candidate.order.iter().flatten().copied().collect();
    let Kind::Mirrored(_) = candidate.shape.geometry().kind() else { return members };
    let mut places = Vec::new();
    let mut left = members;
    for it in bad {
        candidate.shape.places(it.at, &mut places);
        left.retain(|&member| {
            places.iter().any(|place| candidate.order[place.slot] == Some(member))
        });
    }
    left
}

/// What the file system says twice, read through a candidate.
pub(crate) fn cross_checks(asked: &Asked, candidate: &Candidate) -> CrossChecks {
    let view = View::new(candidate, asked.pages);
    let bytes = asked.file_systems.list()[asked.set.file_system].bytes;
    let part = Part::new(&view, candidate.base, bytes);
    asked.file_systems.cross_checks(asked.set.file_system, &part, CROSS_CHECKS)
}

/// The exclusion with clearly the fewest failures.
fn fewest(tried: &[(usize, Candidate, CrossChecks)]) -> Option<(usize, String)> {
    let failures = |at: usize| tried[at].2.failed + tried[at].2.unreadable;
    let mut order: Vec<usize> = (0..tried.len()).collect();
    order.sort_by_key(|&at| failures(at));
    let (&best, &next) = (order.first()?, order.get(1)?);
    let (least, second) = (failures(best), failures(next));
    // One failure more may be chance: two, or no failure at all against some.
    let clear = second >= least + 2 && least * 3 <= second;
    // Only what is read without the stale member has the newest superblock, if it had a part of it.
    let written = |at: usize| tried[at].2.written;
    let is_newest = order.iter().skip(1).all(|&other| {
        let failed = failures(other);
        failed >= least + 2 && least * 3 <= failed || written(best) > written(other)
    });
    if !clear && is_newest {
        let compared = tried[best].2.compared;
        let why = format!(
            "without it {least} of {compared} cross-checks of the file system fail, without others \
             more, or the superblock is older"
        );
        return Some((best, why));
    }
    let compared = tried[best].2.compared;
    let why = format!(
        "without it {least} of {compared} cross-checks of the file system fail, without any other \
         at least {second}"
    );
    clear.then_some((best, why))
}

/// Of copies, the only member that takes part in every block that disagrees. Of two that are each
/// consistent, none: the one that was mounted or checked later may be the older one. Nor is it
/// another one that takes part in them and cannot be left out, because a member is missing.
fn only(tried: &[(usize, Candidate, CrossChecks)], is_alone: bool) -> Option<(usize, String)> {
    (is_alone && tried.len() == 1).then(|| (0, "it takes part in every one of them".into()))
}
