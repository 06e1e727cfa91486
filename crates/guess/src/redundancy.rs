//! Does the redundancy of a candidate agree with its data, and if not, which member is outside?
//!
//! Invariant: only blocks that hold something count; what was overwritten by a known superblock is
//! left out; a block that disagrees is always reported.

use std::ops::Range;

use md::geometry::{Parity, Row};
use md::{Kind, SECTOR_BYTES, Sector};
use parity::{Kernels, Verdict};

use crate::candidate::Candidate;
use crate::points::Set;
use crate::shape::Place;
use crate::source::{ByteRange, Pages};
use crate::view::blocks;

/// What is compared at once.
pub(crate) const BLOCK: u64 = 4096;
/// Data areas up to this size are compared whole.
const WHOLE: u64 = 64 << 20;
/// Blocks on an even grid over larger ones.
const GRID: u64 = 4000;
/// Blocks around witnesses in larger ones.
const NEAR_WITNESSES: usize = 4000;

/// Bytes of members that are known to be overwritten.
pub(crate) type Masks = Vec<(usize, Range<u64>)>;

/// What a comparison gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redundancy {
    /// Blocks that hold something and were compared.
    pub compared: usize,
    /// Where they are; positions.
    pub filled: Vec<u64>,
    /// Those that disagree.
    pub bad: Vec<Bad>,
}

/// A block in which the redundancy does not agree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bad {
    /// Bytes from the start of the data areas; for copies of the array.
    pub at: u64,
    /// The member that alone explains it.
    pub blame: Option<usize>,
}

/// What redundancy says of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Support {
    /// More than half of the blocks agree.
    Supported,
    /// They do not.
    Refuted,
    /// There is none, or too little to compare.
    Unasked,
}

impl Redundancy {
    pub fn support(&self) -> Support {
        match self.compared {
            0..8 => Support::Unasked,
            all if self.bad.len() * 2 < all => Support::Supported,
            _ => Support::Refuted,
        }
    }

    pub fn agree(&self) -> usize {
        self.compared - self.bad.len()
    }
}

/// The length of what positions count in: the data area, for copies the array. Only as far as the
/// file system goes: the used size of the members is known no better.
fn extent(candidate: &Candidate, set: &Set) -> u64 {
    let shape = &candidate.shape;
    match shape.geometry().kind() {
        Kind::Parity(parity) => {
            let used = shape.geometry().member_used_sectors(md::MemberIdx(0)) * SECTOR_BYTES;
            let row = shape.chunk * parity.data_disks() as u64;
            used.min(set.end.div_ceil(row) * shape.chunk)
        }
        _ => shape.bytes().min(set.end.next_multiple_of(BLOCK)),
    }
}

/// Where the witnesses of a set lie, as positions.
fn near_witnesses(candidate: &Candidate, set: &Set, most: usize) -> Vec<u64> {
    let parity = matches!(candidate.shape.geometry().kind(), Kind::Parity(_));
    let step = set.points().len().div_ceil(most.max(1)).max(1);
    let mut places = Vec::new();
    let positions = set.points().iter().step_by(step).filter_map(|point| {
        candidate.shape.places(point.address, &mut places);
        let at = if parity { places.first()?.at } else { point.address };
        Some(at / BLOCK * BLOCK)
    });
    let mut positions: Vec<u64> = positions.collect();
    positions.sort_unstable();
    positions.dedup();
    positions
}

/// A few positions, for a first look: an even grid, and some around witnesses for arrays that are
/// almost empty. What lies around witnesses is written most; a stale member is not refuted by it.
pub(crate) fn few(candidate: &Candidate, set: &Set) -> (Vec<u64>, Vec<u64>) {
    let extent = extent(candidate, set) / BLOCK;
    let grid = extent.min(256);
    let grid = (0..grid).map(|step| step * extent / grid.max(1) * BLOCK).collect();
    (grid, near_witnesses(candidate, set, 160))
}

/// How many positions there are.
pub(crate) fn positions(candidate: &Candidate, set: &Set) -> u64 {
    extent(candidate, set) / BLOCK
}

/// Positions that are compared before a candidate may be called exact: all, or an even grid and
/// what lies around the witnesses, where metadata changes first.
pub(crate) fn dense(candidate: &Candidate, set: &Set, all: bool) -> Vec<u64> {
    let extent = extent(candidate, set);
    let area = candidate.shape.geometry().member_used_sectors(md::MemberIdx(0)) * SECTOR_BYTES;
    if all || area <= WHOLE {
        return (0..extent / BLOCK).map(|block| block * BLOCK).collect();
    }
    let blocks = extent / BLOCK;
    let mut positions = near_witnesses(candidate, set, NEAR_WITNESSES);
    positions.extend((0..GRID).map(|step| step * blocks / GRID * BLOCK));
    positions.sort_unstable();
    positions.dedup();
    positions
}

/// Compares a candidate's redundancy at these positions.
pub(crate) fn compare(
    candidate: &Candidate,
    pages: &Pages,
    positions: &[u64],
    masks: &Masks,
) -> Redundancy {
    let mut found = Redundancy::default();
    if !candidate.shape.redundant() || !can_compare(candidate) {
        return found;
    }
    let mut compare = Compare { candidate, pages, masks, kernels: Kernels::best() };
    for batch in positions.chunks(2048) {
        compare.prefetch(batch);
        for &at in batch {
            let Some(agreement) = compare.block(at) else { continue };
            found.compared += 1;
            found.filled.push(at);
            if let Agreement::No(blame) = agreement {
                found.bad.push(Bad { at, blame });
            }
        }
    }
    found
}

fn can_compare(candidate: &Candidate) -> bool {
    match candidate.shape.geometry().kind() {
        Kind::Parity(_) => candidate.missing() < candidate.shape.geometry().tolerates(),
        _ => true,
    }
}

enum Agreement {
    Yes,
    No(Option<usize>),
}

struct Compare<'a> {
    candidate: &'a Candidate,
    pages: &'a Pages<'a>,
    masks: &'a Masks,
    kernels: Kernels,
}

impl Compare<'_> {
    /// The blocks of a position: slot, member and offset on it.
    fn blocks(&self, at: u64, places: &mut Vec<Place>) -> Vec<(usize, usize, u64)> {
        let candidate = self.candidate;
        let block = |slot: usize, at: u64| {
            Some((slot, candidate.member(slot)?, candidate.offsets[slot] + at))
        };
        if let Kind::Parity(_) = candidate.shape.geometry().kind() {
            return (0..candidate.order.len()).filter_map(|slot| block(slot, at)).collect();
        }
        candidate.shape.places(at, places);
        places.iter().filter_map(|place| block(place.slot, place.at)).collect()
    }

    fn prefetch(&mut self, positions: &[u64]) {
        let mut places = Vec::new();
        let blocks = positions.iter().flat_map(|&at| self.blocks(at, &mut places));
        let ranges = blocks.map(|(_, member, at)| ByteRange { member, at, len: BLOCK as usize });
        let ranges: Vec<ByteRange> = ranges.collect();
        self.pages.prefetch(&ranges);
    }

    /// Whether a position agrees; `None` if it cannot be compared, or nothing is there.
    fn block(&mut self, at: u64) -> Option<Agreement> {
        let blocks = self.blocks(at, &mut Vec::new());
        let masked = blocks.iter().any(|&(_, member, at)| {
            let of = self.masks.iter().filter(|(masked, _)| *masked == member);
            of.into_iter().any(|(_, range)| at < range.end && range.start < at + BLOCK)
        });
        if masked || blocks.len() < 2 {
            return None;
        }
        let mut bytes: Vec<Option<Vec<u8>>> = vec![None; self.candidate.order.len()];
        for &(slot, member, at) in &blocks {
            bytes[slot] = Some(self.pages.take(member, at, BLOCK as usize)?);
        }
        if bytes.iter().flatten().all(|it| self.kernels.is_zero(it)) {
            return None;
        }
        match self.candidate.shape.geometry().kind() {
            Kind::Parity(parity) => {
                let (stripe, _) = parity.row_of(Sector(at / SECTOR_BYTES));
                self.row(parity, parity.row(stripe), &bytes)
            }
            _ => Some(copies(&blocks, &bytes)),
        }
    }

    fn row(&self, parity: &Parity, row: &Row, bytes: &[Option<Vec<u8>>]) -> Option<Agreement> {
        let agreement = |agrees, blame| if agrees { Agreement::Yes } else { Agreement::No(blame) };
        let slot = |member: md::MemberIdx| bytes[member.index()].as_ref();
        let data: Vec<Option<Vec<u8>>> = row.data.iter().map(|&it| slot(it).cloned()).collect();
        let lost = data.iter().filter(|it| it.is_none()).count();
        if !parity.has_q() {
            let sources: Vec<&[u8]> = data.iter().map(|it| it.as_deref()).collect::<Option<_>>()?;
            return Some(agreement(self.kernels.check_p(&sources, slot(row.p)?), None));
        }
        let (p, q) = (slot(row.p), row.q.and_then(slot));
        let there = blocks(row, &data);
        match (lost, p, q) {
            (0, Some(p), Some(q)) => {
                let blamed = match self.kernels.check(&there, p, q) {
                    Verdict::Agree => return Some(Agreement::Yes),
                    Verdict::PDiffers => Some(row.p),
                    Verdict::QDiffers => row.q,
                    Verdict::Data { index } => Some(row.data[usize::from(row.by_exponent[index])]),
                    Verdict::Unexplained => None,
                };
                let blame = blamed.and_then(|it| self.candidate.member(it.index()));
                Some(Agreement::No(blame))
            }
            (0, Some(p), None) => {
                let sources: Vec<&[u8]> = data.iter().flatten().map(Vec::as_slice).collect();
                Some(agreement(self.kernels.check_p(&sources, p), None))
            }
            (0, None, Some(q)) => {
                let mut sum = vec![0; q.len()];
                self.kernels.q_gen(&mut sum, &there);
                Some(agreement(sum == *q, None))
            }
            (1, Some(p), Some(q)) => {
                // What P gives for the lost one, as Q sees it.
                let index = data.iter().position(Option::is_none)?;
                let others: Vec<&[u8]> = data.iter().flatten().map(Vec::as_slice).collect();
                let mut by_p = vec![0; p.len()];
                self.kernels.recover_d_p(&mut by_p, &others, p);
                let mut by_q = vec![0; p.len()];
                self.kernels.recover_d_q(&mut by_q, row.exponent[index], &there, q);
                Some(agreement(by_p == by_q, None))
            }
            _ => None,
        }
    }
}

/// Copies of one block: equal, or the one that differs from all others.
fn copies(blocks: &[(usize, usize, u64)], bytes: &[Option<Vec<u8>>]) -> Agreement {
    let of = |slot: usize| bytes[slot].as_deref();
    if blocks.iter().all(|&(slot, ..)| of(slot) == of(blocks[0].0)) {
        return Agreement::Yes;
    }
    let alone = blocks.iter().filter(|(slot, ..)| {
        let mut others = blocks.iter().filter(|(other, ..)| other != slot);
        let first = others.next().map(|it| of(it.0));
        blocks.len() > 2 && first.is_some_and(|first| others.all(|other| of(other.0) == first))
    });
    let mut alone = alone.map(|&(_, member, _)| member);
    let blame = alone.next();
    Agreement::No(blame.filter(|_| alone.next().is_none()))
}

/// Whether bad positions are one region that was written over: at least half of its blocks.
pub(crate) fn one_region(bad: &[Bad]) -> Option<Range<u64>> {
    let first = bad.iter().map(|it| it.at).min()?;
    let end = bad.iter().map(|it| it.at).max()? + BLOCK;
    (bad.len() as u64 * 2 * BLOCK >= end - first && end - first <= 256 << 20).then_some(first..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_three_copies_the_odd_one_is_named() {
        let blocks = [(0, 10, 0), (1, 11, 0), (2, 12, 0)];
        let bytes = |last: u8| vec![Some(vec![1]), Some(vec![1]), Some(vec![last])];
        assert!(matches!(copies(&blocks, &bytes(1)), Agreement::Yes));
        assert!(matches!(copies(&blocks, &bytes(2)), Agreement::No(Some(12))));
        let two = [Some(vec![1]), Some(vec![2]), None];
        assert!(matches!(copies(&blocks[..2], &two), Agreement::No(None)));
    }

    #[test]
    fn a_region_is_dense() {
        let bad = |at: &[u64]| -> Vec<Bad> {
            at.iter().map(|&at| Bad { at: at * BLOCK, blame: None }).collect()
        };
        assert_eq!(one_region(&bad(&[3, 4, 6])), Some(3 * BLOCK..7 * BLOCK));
        assert_eq!(one_region(&bad(&[3, 4, 60])), None);
        assert_eq!(one_region(&[]), None);
    }
}
