//! Whether the redundancy agrees with what is read.
//!
//! Invariant: only what members really hold is compared: not what was recovered with the same
//! redundancy, nor what lies where redundancy was never made. Bytes that are served are not
//! changed. Called from `view` and `rows`.

use std::ops::Range;
use std::sync::Mutex;

use md::{Row, SECTOR_BYTES};
use parity::{Block, Kernels};

/// What is told apart: 4 KiB.
const GRANULE_SECTORS: u64 = 8;

/// Ranges that are kept at most, of an array or of all members.
const MAX_RANGES: usize = 1000;

/// What came of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Sectors of the array that redundancy was compared for.
    pub sectors: u64,
    /// Array sectors whose redundancy says something else: sorted, apart from each other. One of
    /// the members that hold them, or their redundancy, is wrong.
    pub differing: Vec<Range<u64>>,
    /// How many more ranges there were that are not in the list.
    pub more: u64,
}

/// Compares as it is read.
pub(super) struct Comparison {
    /// Redundancy holds below this sector: of each member with parity, else of the array.
    below: u64,
    kernels: Kernels,
    found: Mutex<(u64, Ranges)>,
}

impl Comparison {
    pub(super) fn new(below: u64, kernels: Kernels) -> Comparison {
        Comparison { below, kernels, found: Mutex::default() }
    }

    /// How many of `sectors` from `sector` on have redundancy that holds.
    pub(super) fn covered(&self, sector: u64, sectors: u64) -> u64 {
        self.below.saturating_sub(sector).min(sectors)
    }

    /// What has been found so far.
    pub(super) fn get(&self) -> Compared {
        let (sectors, ranges) = &*self.found.lock().expect("the list lock is not poisoned");
        Compared { sectors: *sectors, differing: ranges.list.clone(), more: ranges.more }
    }

    /// Two copies of the array's sectors from `at` on.
    pub(super) fn copies(&self, at: u64, one: &[u8], other: &[u8]) {
        let differing = self.differing(one, other);
        let differing = differing.into_iter().map(|range| at + range.start..at + range.end);
        self.note(one.len() as u64 / SECTOR_BYTES, differing);
    }

    /// The data blocks of a row's run, the parities that there are, and where in the array each
    /// block begins.
    pub(super) fn row(
        &self,
        row: &Row,
        data: &[&[u8]],
        p: Option<&[u8]>,
        q: Option<&[u8]>,
        starts: &[u64],
    ) {
        let bytes = data.first().map_or(0, |block| block.len());
        let mut differing = Ranges::default();
        let mut made = vec![0; bytes];
        if let Some(p) = p {
            self.kernels.xor_gen(&mut made, data);
            self.differing(&made, p).into_iter().for_each(|range| differing.insert(range));
        }
        if let Some(q) = q {
            let blocks: Vec<Block<'_>> = row
                .by_exponent
                .iter()
                .map(|index| usize::from(*index))
                .map(|index| Block { exponent: row.exponent[index], bytes: data[index] })
                .collect();
            self.kernels.q_gen(&mut made, &blocks);
            self.differing(&made, q).into_iter().for_each(|range| differing.insert(range));
        }
        let sectors = bytes as u64 / SECTOR_BYTES * starts.len() as u64;
        let of_all = starts.iter().flat_map(|start| {
            differing.list.iter().map(move |range| start + range.start..start + range.end)
        });
        self.note(sectors, of_all);
    }

    /// Sectors that differ, in granules.
    fn differing(&self, one: &[u8], other: &[u8]) -> Vec<Range<u64>> {
        if self.kernels.equal(one, other) {
            return Vec::new();
        }
        let granule = (GRANULE_SECTORS * SECTOR_BYTES) as usize;
        let mut ranges = Vec::new();
        let pairs = one.chunks(granule).zip(other.chunks(granule));
        for (at, (one, other)) in pairs.enumerate().filter(|(_, (one, other))| one != other) {
            let (start, sectors) =
                (at as u64 * GRANULE_SECTORS, one.len().max(other.len()) as u64 / SECTOR_BYTES);
            super::readable_array::add_range(&mut ranges, start..start + sectors);
        }
        ranges
    }

    fn note(&self, sectors: u64, differing: impl Iterator<Item = Range<u64>>) {
        let (all, ranges) = &mut *self.found.lock().expect("the list lock is not poisoned");
        *all += sectors;
        differing.for_each(|range| ranges.insert(range));
    }
}

/// Ranges that come in any order: sorted, joined where they touch, bounded.
#[derive(Clone, Default)]
pub(super) struct Ranges {
    pub(super) list: Vec<Range<u64>>,
    /// How many are not in the list.
    pub(super) more: u64,
}

impl Ranges {
    pub(super) fn insert(&mut self, range: Range<u64>) {
        self.insert_below(range, MAX_RANGES);
    }

    /// The same with room for so many ranges.
    pub(super) fn insert_below(&mut self, range: Range<u64>, room: usize) {
        let first = self.list.partition_point(|old| old.end < range.start);
        let last = self.list.partition_point(|old| old.start <= range.end);
        if first == last && self.list.len() >= room {
            self.more += 1;
            return;
        }
        let start =
            self.list[first..last].first().map_or(range.start, |it| it.start.min(range.start));
        let end = self.list[first..last].last().map_or(range.end, |it| it.end.max(range.end));
        self.list.splice(first..last, std::iter::once(start..end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_any_order_are_joined_where_they_touch() {
        let mut ranges = Ranges::default();
        for at in [9, 3, 5, 4, 7, 8] {
            ranges.insert_below(at..at + 1, 3);
        }
        assert_eq!((ranges.list.as_slice(), ranges.more), ([3..6, 7..10].as_slice(), 0));
        ranges.insert_below(20..21, 3);
        ranges.insert_below(30..31, 3);
        assert_eq!((ranges.list.len(), ranges.more), (3, 1));
        ranges.insert_below(0..40, 3);
        assert_eq!((ranges.list.len(), &ranges.list[0]), (1, &(0..40)));
    }
}
