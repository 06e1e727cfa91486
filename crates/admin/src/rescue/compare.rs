//! Verifies the redundancy against the data that are read.
//!
//! Invariant: only data that members really hold are compared: no data recovered from the same
//! redundancy, and no ranges where redundancy was never generated. The bytes that are served are
//! unchanged. Called from `readable_array` and `rows`.

use std::ops::Range;
use std::sync::Mutex;

use md::{Row, SECTOR_BYTES};
use parity::{Block, Kernels};

use super::ranges::{Ranges, add_range};

/// Resolution of the comparison: 4 KiB.
const GRANULE_SECTORS: u64 = 8;

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Array sectors whose redundancy was compared.
    pub sectors: u64,
    /// Array sectors that differ from their redundancy: sorted and disjoint. One of the members
    /// that hold the data or the redundancy is wrong.
    pub differing: Vec<Range<u64>>,
    /// Number of further ranges that are not in the list.
    pub more: u64,
}

/// Compares while the array is read.
pub(super) struct Comparison {
    /// Redundancy is valid below this sector: of each member for parity levels, else of the array.
    below: u64,
    kernels: Kernels,
    found: Mutex<(u64, Ranges)>,
}

impl Comparison {
    pub(super) fn new(below: u64, kernels: Kernels) -> Comparison {
        Comparison { below, kernels, found: Mutex::default() }
    }

    /// How many of `sectors` from `sector` on have valid redundancy.
    pub(super) fn covered(&self, sector: u64, sectors: u64) -> u64 {
        self.below.saturating_sub(sector).min(sectors)
    }

    /// The result so far.
    pub(super) fn get(&self) -> Compared {
        let (sectors, ranges) = &*self.found.lock().expect("the list lock is not poisoned");
        Compared { sectors: *sectors, differing: ranges.list.clone(), more: ranges.more }
    }

    /// Compares two copies of the array's sectors from `at` on.
    pub(super) fn copies(&self, at: u64, one: &[u8], other: &[u8]) {
        let differing = self.differing(one, other);
        let differing = differing.into_iter().map(|range| at + range.start..at + range.end);
        self.note(one.len() as u64 / SECTOR_BYTES, differing);
    }

    /// Compares the data blocks of a run of a row with the parities that are available; with the
    /// array address of each block.
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
            add_range(&mut ranges, start..start + sectors);
        }
        ranges
    }

    fn note(&self, sectors: u64, differing: impl Iterator<Item = Range<u64>>) {
        let (all, ranges) = &mut *self.found.lock().expect("the list lock is not poisoned");
        *all += sectors;
        differing.for_each(|range| ranges.insert(range));
    }
}
