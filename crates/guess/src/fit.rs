//! Who is where: for a geometry, the order of members that explains most witnesses.
//!
//! Invariant: a witness on P or Q counts only where the member with the data holds the same block,
//! and never contradicts: with a member missing, RAID 5 would explain every RAID 0 otherwise, and a
//! P over inode tables satisfies their checksums, since a CRC is linear.

use std::collections::HashMap;

use md::{FarSets, Layout, Level, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};

use crate::assign::assign;
use crate::candidate::Candidate;
use crate::classes::{Class, Rows, huge};
use crate::known::Known;
use crate::points::{Point, Set};
use crate::shape::{Place, Role, Shape};
use crate::source::Pages;

/// The part of a copy on P or Q in a vote.
const PARITY_COPY: f64 = 0.6;

/// A geometry whose order is not known yet, with the weight of each member in each slot.
pub(crate) struct Fit {
    pub shape: Shape,
    /// Data offset of each member.
    pub offsets: Vec<u64>,
    votes: Vec<Vec<f64>>,
}

/// All geometries of a class that can be made of `members` members.
pub(crate) fn shapes(class: &Class, members: usize, known: &Known) -> Vec<Shape> {
    let mut all: Vec<(Level, Layout, usize)> = Vec::new();
    match class.rows {
        Rows::Data(1) => all.extend((2..=members + 2).map(|n| (Level::Raid1, Layout::None, n))),
        Rows::Data(data) => {
            let data = data as usize;
            let raid0 = Layout::Raid0(Raid0Layout::Original);
            all.push((Level::Raid0, raid0, data));
            all.extend(Raid5Layout::all().map(|it| (Level::Raid5, Layout::Raid5(it), data + 1)));
            all.push((Level::Raid4, Layout::None, data + 1));
            all.extend(Raid6Layout::all().map(|it| (Level::Raid6, Layout::Raid6(it), data + 2)));
            for copies in [2, 3_u8] {
                let near = Layout::Raid10(Raid10Layout::near(copies));
                all.push((Level::Raid10, near, data * usize::from(copies)));
                all.push((Level::Raid10, Layout::Raid10(Raid10Layout::far(copies)), data));
            }
        }
        Rows::Copies(layout, slots) => all.push((Level::Raid10, Layout::Raid10(layout), slots)),
    }
    all.retain(|&(level, layout, slots)| {
        let most =
            if level == Level::Raid10 { (members + 2).max(2 * members) } else { members + 2 };
        let far_sets = matches!(layout, Layout::Raid10(it) if it.far_sets != FarSets::None);
        slots <= most
            && slots + 2 >= members
            && !far_sets
            && (known.allows(level, layout, slots)
                || level == Level::Raid0 && known.level == Some(level))
    });
    let shapes = all.into_iter();
    shapes.filter_map(|(level, layout, slots)| huge(level, layout, slots, class.chunk)).collect()
}

impl Fit {
    /// Counts the votes; `None` if no witness fits.
    pub fn new(set: &Set, shape: Shape, offsets: &[u64], members: usize) -> Option<Fit> {
        let shape = with_stride(set, shape, offsets)?;
        let mut votes = vec![vec![0.0; members]; shape.slots];
        let mut places = Vec::new();
        for group in set.groups() {
            shape.places(group[0].address, &mut places);
            for place in &places {
                let fitting = |it: &&Point| it.at == offsets[it.member] + place.at;
                let weight = match place.role {
                    Role::Data => 1.0,
                    Role::P | Role::Q { plain: true }
                        if group.iter().filter(fitting).count() > 1 =>
                    {
                        PARITY_COPY
                    }
                    _ => continue,
                };
                for point in group.iter().filter(fitting) {
                    votes[place.slot][point.member] += weight * point.weight;
                }
            }
        }
        let any = votes.iter().flatten().any(|&it| it > 0.0);
        any.then(|| Fit { shape, offsets: offsets.to_vec(), votes })
    }

    /// The best order, `forbidden` (slot, member) pairs left out.
    pub fn best(&self, set: &Set, forbidden: &[(usize, usize)]) -> Option<Candidate> {
        let mut votes = self.votes.clone();
        // Of equal choices, a member rather than none.
        votes.iter_mut().flatten().for_each(|vote| *vote += 1e-6);
        for &(slot, member) in forbidden {
            votes[slot][member] = f64::NEG_INFINITY;
        }
        let order = assign(&votes, self.shape.tolerates())?;
        let voted = |slot: usize| order[slot].is_some_and(|member| self.votes[slot][member] > 0.0);
        // At least half of the members must be there by evidence.
        if (0..order.len()).filter(|&slot| voted(slot)).count() * 2 < order.len() {
            return None;
        }
        Some(self.candidate(set, order))
    }

    /// The same without members that hardly any witness puts where they are, and with those in
    /// empty slots, if the level allows it: a foreign member may stand in for a missing one, and a
    /// member with nothing but parity for one with data. They count as much as the full order.
    pub fn variants(&self, set: &Set, full: &Candidate) -> Vec<Candidate> {
        let vote = |slot: usize| full.order[slot].map_or(0.0, |member| self.votes[slot][member]);
        let slots = full.order.len();
        let usual = (0..slots).map(vote).sum::<f64>() / slots as f64;
        let weak: Vec<usize> = (0..slots)
            .filter(|&slot| full.order[slot].is_some() && vote(slot) < usual * 0.25)
            .collect();
        let empty: Vec<usize> = (0..slots).filter(|&slot| full.order[slot].is_none()).collect();
        let mut orders = Vec::new();
        let without = |slot: usize| {
            let mut order = full.order.clone();
            (order[slot].take(), order)
        };
        for &slot in weak.iter().take(3) {
            let (member, order) = without(slot);
            for &to in empty.iter().take(2) {
                let mut moved = order.clone();
                moved[to] = member;
                orders.push(moved);
            }
            orders.push(order);
        }
        if weak.len() > 1 {
            let there = |slot: usize| full.order[slot].filter(|_| !weak.contains(&slot));
            orders.push((0..slots).map(there).collect());
        }
        let missing = |order: &[Option<usize>]| order.iter().filter(|it| it.is_none()).count();
        orders.retain(|order| missing(order) <= self.shape.tolerates());
        let weight = full.weight - 0.1;
        let made =
            orders.into_iter().map(|order| Candidate { weight, ..self.candidate(set, order) });
        made.collect()
    }

    /// RAID 0 over members of different sizes.
    pub fn unequal(&self, set: &Set, equal: &Candidate, pages: &Pages) -> Option<Candidate> {
        let sizes: Vec<u64> = (0..pages.members()).map(|member| pages.size(member)).collect();
        unequal(set, equal, &sizes)
    }

    /// The candidate of an order, with what it explains.
    pub fn candidate(&self, set: &Set, order: Vec<Option<usize>>) -> Candidate {
        let usual = self.offsets.first().copied().unwrap_or(0);
        let offsets = order.iter().map(|member| member.map_or(usual, |it| self.offsets[it]));
        let mut candidate = Candidate {
            offsets: offsets.collect(),
            shape: self.shape.clone(),
            order,
            exclude: Vec::new(),
            base: set.base,
            weight: 0.0,
            direct: 0,
            parity_copies: 0,
            contradictions: 0,
            witnesses: 0,
        };
        explain(set, &mut candidate);
        candidate
    }
}

/// Counts what a candidate explains.
pub(crate) fn explain(set: &Set, candidate: &mut Candidate) {
    let slot_of: HashMap<usize, usize> = candidate
        .order
        .iter()
        .enumerate()
        .filter_map(|(slot, member)| Some(((*member)?, slot)))
        .collect();
    let (mut weight, mut direct, mut copies, mut contradictions) = (0.0, 0, 0, 0);
    let mut places: Vec<Place> = Vec::new();
    let mut witnesses = 0;
    for group in set.groups() {
        candidate.shape.places(group[0].address, &mut places);
        witnesses += group.iter().filter(|it| it.strong && !it.either).count();
        let stands = |point: &Point, place: &Place| {
            slot_of.get(&point.member) == Some(&place.slot)
                && point.at == candidate.offsets[place.slot] + place.at
        };
        let is_data = |point: &Point| {
            places.iter().any(|place| place.role == Role::Data && stands(point, place))
        };
        let data = group.iter().any(is_data);
        for point in group {
            if is_data(point) {
                weight += point.weight;
                direct += usize::from(point.strong);
                // Of two addresses one is right: what stands at neither is of another time.
                witnesses += usize::from(point.strong && point.either);
                continue;
            }
            let Some(&slot) = slot_of.get(&point.member) else { continue };
            let in_row = places.iter().any(|it| point.at == candidate.offsets[slot] + it.at);
            let on_parity = places.iter().find(|it| it.role != Role::Data && it.slot == slot);
            match on_parity.map(|place| place.role) {
                Some(Role::P | Role::Q { plain: true }) if in_row && data => {
                    weight += PARITY_COPY * point.weight;
                    copies += 1;
                }
                None if in_row && point.strong && !point.either => contradictions += 1,
                _ => {}
            }
        }
    }
    // A level without parity explains the data of one with parity, but not the parity's blocks.
    candidate.weight = weight - contradictions as f64;
    candidate.direct = direct;
    candidate.parity_copies = copies;
    candidate.contradictions = contradictions;
    candidate.witnesses = witnesses;
}

/// RAID 10 far: the distance of the copies, from those that the first copies do not explain.
fn with_stride(set: &Set, shape: Shape, offsets: &[u64]) -> Option<Shape> {
    if shape.stride.is_none() {
        return Some(shape);
    }
    let (chunk, slots) = (shape.chunk, shape.slots as u64);
    let mut distances: Vec<u64> = Vec::new();
    for point in set.points() {
        let row = point.address / (slots * chunk) * chunk + point.address % chunk;
        let first = offsets[point.member] + row;
        if point.at > first && (point.at - first).is_multiple_of(chunk) {
            distances.push(point.at - first);
        }
    }
    distances.sort_unstable();
    let runs = distances.chunk_by(|one, other| one == other);
    let distance = runs.max_by_key(|run| run.len()).filter(|run| run.len() > 1)?[0];
    let Layout::Raid10(layout) = shape.layout else { return None };
    // With three copies, the nearest distance explains one of two.
    Shape::new(shape.level, shape.layout, shape.slots, chunk, distance * u64::from(layout.far))
}

/// Linear: each member's constant distance says where it begins.
pub(crate) fn linear(set: &Set, sizes: &[u64]) -> Option<Candidate> {
    let members = sizes.len();
    let mut starts: Vec<(i64, usize)> = Vec::new();
    for member in 0..members {
        let own = set.points().iter().filter(|it| it.member == member);
        let mut values: Vec<i64> = own.map(|it| it.at as i64 - it.address as i64).collect();
        values.sort_unstable();
        let mode = values.chunk_by(|one, other| one == other).max_by_key(|run| run.len())?;
        starts.push((mode[0], member));
    }
    // The first member's distance is the data offset, the greatest.
    starts.sort_by_key(|it| std::cmp::Reverse(it.0));
    let offset = u64::try_from(starts.first()?.0).ok()?;
    if !offset.is_multiple_of(512) {
        return None;
    }
    let mut areas = Vec::new();
    for (place, &(start, member)) in starts.iter().enumerate() {
        let room = sizes[member].checked_sub(offset)?;
        let area = match starts.get(place + 1) {
            Some(&(next, _)) => u64::try_from(start - next).ok()?,
            None => room / 4096 * 4096,
        };
        if area == 0 || area > room || area % 512 != 0 {
            return None;
        }
        areas.push(area);
    }
    let shape = Shape::unequal(Level::Linear, Layout::None, 0, areas)?;
    let order: Vec<Option<usize>> = starts.iter().map(|&(_, member)| Some(member)).collect();
    let fit = Fit { shape, offsets: vec![offset; members], votes: Vec::new() };
    Some(fit.candidate(set, order))
}

/// RAID 0 over members of different sizes: the sizes that explain most, for an order.
fn unequal(set: &Set, equal: &Candidate, sizes: &[u64]) -> Option<Candidate> {
    const TAILS: [u64; 6] = [0, 4 << 10, 8 << 10, 64 << 10, 128 << 10, 1 << 20];
    let chunk = equal.shape.chunk;
    let mut best: Option<(Candidate, u64)> = None;
    for tail in TAILS {
        let area = |(slot, member): (usize, &Option<usize>)| {
            // The sum of all members has no size of its own.
            let size = sizes.get((*member)?)?;
            Some(size.checked_sub(equal.offsets[slot] + tail)? / chunk * chunk)
        };
        let areas: Option<Vec<u64>> = equal.order.iter().enumerate().map(area).collect();
        let Some(areas) = areas.filter(|areas| areas.iter().all(|&area| area > 0)) else {
            continue;
        };
        if areas.iter().all(|area| *area == areas[0]) {
            return None;
        }
        for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
            let layout = Layout::Raid0(layout);
            let Some(shape) = Shape::unequal(Level::Raid0, layout, chunk, areas.clone()) else {
                continue;
            };
            let Some(spare) = shape.bytes().checked_sub(set.end) else { continue };
            let mut candidate = Candidate { shape, ..equal.clone() };
            explain(set, &mut candidate);
            let better = |(old, room): &(Candidate, u64)| {
                candidate.weight > old.weight || candidate.weight == old.weight && spare < *room
            };
            if best.as_ref().is_none_or(better) {
                best = Some((candidate, spare));
            }
        }
    }
    best.map(|(candidate, _)| candidate)
}
