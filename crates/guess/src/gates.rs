//! Gates: what must hold beside the weight before an answer is exact.
//!
//! Invariant: a gate only doubts; none makes an answer surer.

use std::collections::BTreeSet;

use md::Level;

use crate::candidate::Candidate;
use crate::case::Case;
use crate::points::Set;
use crate::redundancy::{Support, compare, dense};
use crate::shape::Place;

/// Gates that need no more reading.
pub(crate) fn gates(
    case: &Case,
    best: &Candidate,
    support: Option<Support>,
    doubts: &mut Vec<String>,
) {
    if best.direct < 6 {
        doubts.push(format!("only {} blocks state their own address", best.direct));
    }
    let mut regions: Vec<(usize, u64)> = case
        .set
        .points()
        .iter()
        .filter(|it| it.strong)
        .map(|it| (it.member, it.at >> 16))
        .collect();
    regions.sort_unstable();
    regions.dedup();
    if regions.len() < 2 {
        doubts.push("all of them lie in one place".into());
    }
    if best.contradictions >= 2 && best.contradictions * 100 > best.direct * 3 {
        doubts.push(format!(
            "{} blocks contradict the layout: it may be one that is not known here",
            best.contradictions
        ));
    }
    if let Some(count) = elsewhere(case.set, best) {
        doubts.push(format!(
            "{count} blocks of the file system lie at another distance, all at the same: copies, \
             or another geometry"
        ));
    }
    if let Some(member) = left_over(case, best) {
        doubts.push(format!("member {member} holds blocks of the array, but has no place in it"));
    }
    if support == Some(Support::Refuted) {
        doubts.push("the redundancy does not agree".into());
    }
    if !best.is_whole() {
        doubts.push("too many members are missing to read all of it".into());
    }
    let proven = best.order.iter().flatten().count();
    if best.shape.level == Level::Raid1 && proven < 2 && case.members > 1 {
        doubts.push("all of it lies on one member".into());
    }
}

/// Blocks that the best does not explain, but another data offset all together, if they are many:
/// the first of far copies, where the second looks like an array of its own. Copies in a journal
/// are of one part of the file system; those are of all parts.
fn elsewhere(set: &Set, best: &Candidate) -> Option<usize> {
    let mut places = Vec::new();
    // The distance of each, and the part of the file system that it is of.
    let mut distances: Vec<(u64, u64)> = Vec::new();
    let mut parts = BTreeSet::new();
    let last = set.points().iter().map(|it| it.address).max()?;
    for point in set.points().iter().filter(|it| it.strong && !it.either) {
        best.shape.places(point.address, &mut places);
        let usual = best.offsets.first().copied().unwrap_or(0);
        let part = (u128::from(point.address) * 16 / (u128::from(last) + 1)) as u64;
        if places.iter().all(|it| usual + it.at != point.at) {
            let distance = places.first().and_then(|it| point.at.checked_sub(it.at));
            distances.extend(distance.map(|distance| (distance, part)));
        } else {
            parts.insert(part);
        }
    }
    distances.sort_unstable();
    let alike = distances.chunk_by(|one, other| one.0 == other.0);
    let most = alike.max_by_key(|alike| alike.len())?;
    let mut of_parts: Vec<u64> = most.iter().map(|it| it.1).collect();
    of_parts.dedup();
    let is_spread = of_parts.len() * 4 >= parts.len();
    (most.len() >= 8 && most.len() * 4 >= best.direct && is_spread).then_some(most.len())
}

/// A member without a slot that holds blocks of the array in the right rows.
fn left_over(case: &Case, best: &Candidate) -> Option<usize> {
    let mut places = Vec::new();
    (0..case.members).filter(|member| !best.order.contains(&Some(*member))).find(|&member| {
        let own = case.set.points().iter().filter(|it| it.member == member && it.strong);
        let in_row = own.filter(|point| {
            best.shape.places(point.address, &mut places);
            let usual = best.offsets.first().copied().unwrap_or(0);
            places.iter().any(|place| point.at == usual + place.at)
        });
        in_row.count() >= 3
    })
}

/// Slots whose member neither witnesses nor what was read puts there. Of copies, and with parity
/// always in one place, some members hold nothing of their own.
pub(crate) fn unproven(case: &Case, best: &Candidate, read: &[f64]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut proven = read.to_vec();
    for point in case.set.points() {
        best.shape.places(point.address, &mut places);
        for place in places.iter() {
            let here = best.member(place.slot) == Some(point.member);
            if here && point.at == best.offsets[place.slot] + place.at {
                proven[place.slot] += point.weight;
            }
        }
    }
    // Where a member of a linear array begins, the one before it ends: if that fits the size of the
    // one before, a single block is no chance.
    if let (Level::Linear, Some(sizes)) = (best.shape.level, &best.shape.sizes) {
        for slot in 1..sizes.len() {
            let Some(before) = best.member(slot - 1) else { continue };
            let room = case.pages.size(before).saturating_sub(best.offsets[slot - 1]);
            let fits = room >= sizes[slot - 1] && room - sizes[slot - 1] <= 1 << 20;
            if fits && proven[slot] >= 1.0 {
                proven[slot] += 1.0;
            }
        }
    }
    let holds_data = |slot: usize| match best.shape.geometry().kind() {
        md::Kind::Parity(parity) => (0..parity.rotation() as u64)
            .any(|row| matches!(parity.row(md::StripeNo(row)).role[slot], md::RowRole::Data(_))),
        _ => true,
    };
    let there = (0..proven.len()).filter(|&slot| best.member(slot).is_some() && holds_data(slot));
    there.filter(|&slot| proven[slot] < 1.5).collect()
}

/// Where parity stays on one member, as it does for the first rows of controllers that move it
/// late: how many of the blocks that hold something lie behind the last block of a known place, if
/// it is many and that one is near the start. Q would contradict.
pub(crate) fn stays(
    set: &Set,
    best: &Candidate,
    held: &[u64],
    filled: &[u64],
) -> Option<(usize, usize)> {
    /// Rows after which such controllers have moved it.
    const ROWS: u64 = 64;
    let md::Kind::Parity(parity) = best.shape.geometry().kind() else { return None };
    if parity.rotation() > 1 || parity.has_q() {
        return None;
    }
    let mut places = Vec::new();
    let mut rows: Vec<u64> = Vec::new();
    let mut row = |address: u64, found: Option<(usize, u64)>| {
        best.shape.places(address, &mut places);
        let there = |it: &Place| (best.member(it.slot), best.offsets[it.slot] + it.at);
        let first = places
            .first()
            .filter(|it| found.is_none_or(|(member, at)| there(it) == (Some(member), at)));
        rows.extend(first.map(|it| it.at / best.shape.chunk));
    };
    let strong = set.points().iter().filter(|it| it.strong);
    strong.for_each(|it| row(it.address, Some((it.member, it.at))));
    held.iter().for_each(|&address| row(best.base + address, None));
    // Two of them, that one false one does not count.
    rows.sort_unstable();
    let last = rows.iter().rev().nth(1).copied().unwrap_or(0);
    let unknown = filled.iter().filter(|&&at| at / best.shape.chunk > last).count();
    (last < ROWS && unknown * 3 > filled.len()).then_some((unknown, filled.len()))
}

/// Whether the parity proves that all members belong together: the last one then belongs into the
/// last slot.
pub(crate) fn the_last_belongs(case: &Case, best: &Candidate) -> bool {
    let md::Kind::Parity(_) = best.shape.geometry().kind() else { return false };
    let positions = dense(best, case.set, false);
    let found = compare(best, case.pages, &positions, case.masks);
    found.compared >= 24 && found.bad.is_empty()
}

#[cfg(test)]
mod tests {
    use md::{Layout, Raid0Layout, Raid5Layout};

    use super::*;
    use crate::points::Point;
    use crate::shape::Shape;

    const CHUNK: u64 = 64 << 10;

    fn candidate(level: Level, layout: Layout) -> Candidate {
        let shape = Shape::new(level, layout, 4, CHUNK, 64 << 20).expect("an array");
        Candidate {
            shape,
            order: (0..4).map(Some).collect(),
            offsets: vec![1 << 20; 4],
            exclude: Vec::new(),
            base: 0,
            weight: 0.0,
            direct: 20,
            parity_copies: 0,
            contradictions: 0,
            witnesses: 0,
        }
    }

    /// Blocks where the candidate has them, `shift` bytes further on.
    fn blocks(
        candidate: &Candidate,
        addresses: impl Iterator<Item = u64>,
        shift: u64,
    ) -> Vec<Point> {
        let mut places = Vec::new();
        let blocks = addresses.map(|address| {
            candidate.shape.places(address, &mut places);
            let (member, at) = (places[0].slot, (1 << 20) + places[0].at + shift);
            Point { member, at, address, weight: 1.0, strong: true, either: false }
        });
        blocks.collect()
    }

    #[test]
    fn parity_that_stays_is_believed_only_as_far_as_blocks_are_known() {
        let first = candidate(Level::Raid5, Layout::Raid5(Raid5Layout::ParityFirst));
        let rows = |rows: u64| (0..rows * 3).map(|chunk| chunk * CHUNK);
        let filled: Vec<u64> = (0..400).map(|row| row * CHUNK).collect();
        let known = |candidate: &Candidate, last| {
            let set = Set::new(0, 0, 64 << 20, blocks(candidate, rows(last), 0));
            stays(&set, candidate, &[], &filled)
        };
        assert_eq!(known(&first, 16), Some((400 - 16, 400)));
        assert_eq!(known(&first, 65), None, "controllers have moved it before");
        // Nothing is behind them.
        let set = Set::new(0, 0, 64 << 20, blocks(&first, rows(16), 0));
        assert_eq!(stays(&set, &first, &[], &filled[..20]), None);
        // What was read through the array counts as well.
        let held: Vec<u64> = rows(80).skip(238).collect();
        assert_eq!(stays(&set, &first, &held, &filled), None);
        let rotating = candidate(Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric));
        assert_eq!(known(&rotating, 16), None);
    }

    #[test]
    fn blocks_that_agree_on_another_distance_are_a_doubt() {
        let raid0 = candidate(Level::Raid0, Layout::Raid0(Raid0Layout::Original));
        let addresses = || (0..40).map(|block| block * 96 * 4096);
        let mut points = blocks(&raid0, addresses(), 0);
        assert_eq!(elsewhere(&Set::new(0, 0, 1 << 26, points.clone()), &raid0), None);
        points.extend(blocks(&raid0, addresses().take(10), 7 << 20));
        assert_eq!(elsewhere(&Set::new(0, 0, 1 << 26, points.clone()), &raid0), Some(10));
        // Some at places of their own are journals and old file systems.
        points.truncate(40);
        points.extend(
            (0..10).flat_map(|it| blocks(&raid0, addresses().skip(it as usize).take(1), it << 21)),
        );
        assert_eq!(elsewhere(&Set::new(0, 0, 1 << 26, points), &raid0), None);
    }
}
