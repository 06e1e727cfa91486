//! The contents of a volume, as ranges of arrays.
//!
//! ```text
//! Layer::Logical --> Layer::Part --> Layer::Array      vg/lv on a partition of an array
//!            \-----> Layer::Array                      and on another array
//! ```
//! Invariant: every sector of a layer is one of an array, or missing. Missing sectors are lost,
//! never zeroes without a report.

use std::ops::Range;
use std::sync::Arc;

use content::lvm::Mapping;
use md::SECTOR_BYTES;

use crate::rescue::{Compared, Failure, Readable, ReadableArray};

/// Where the sectors of a volume lie.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    /// All of an array.
    Array {
        /// Index of the array.
        index: usize,
        /// Size in sectors.
        sectors: u64,
    },
    /// A range of a layer; inside of it.
    Part {
        /// The layer.
        of: Arc<Layer>,
        /// First sector there.
        first: u64,
        /// Size in sectors.
        sectors: u64,
    },
    /// A logical volume.
    Logical {
        /// Where its sectors lie.
        mapping: Mapping,
        /// By index of physical volume; `None` where it is missing.
        on: Vec<Option<Arc<Layer>>>,
    },
}

/// A run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The array and its sector; `None`: they are missing.
    pub(super) at: Option<(usize, u64)>,
    /// Number of sectors, at least 1.
    pub(super) sectors: u64,
}

impl Layer {
    pub(super) fn sectors(&self) -> u64 {
        match self {
            Layer::Array { sectors, .. } | Layer::Part { sectors, .. } => *sectors,
            Layer::Logical { mapping, .. } => mapping.sectors(),
        }
    }

    /// Where a sector lies; it is in the layer.
    pub(super) fn locate(&self, sector: u64) -> Run {
        match self {
            Layer::Array { index, sectors } => {
                Run { at: Some((*index, sector)), sectors: sectors - sector }
            }
            Layer::Part { of, first, sectors } => {
                let run = of.locate(first + sector);
                Run { sectors: run.sectors.min(sectors - sector), ..run }
            }
            Layer::Logical { mapping, on } => {
                let there = mapping.locate(sector);
                let missing = Run { at: None, sectors: there.sectors };
                match &on[there.physical] {
                    Some(below) if there.sector < below.sectors() => {
                        let run = below.locate(there.sector);
                        Run { sectors: run.sectors.min(there.sectors), ..run }
                    }
                    _ => missing,
                }
            }
        }
    }

    /// The sectors of the layer that lie in a range of an array.
    fn found_in(&self, array: usize, range: &Range<u64>) -> Vec<Range<u64>> {
        match self {
            Layer::Array { index, .. } if *index == array => vec![range.clone()],
            Layer::Array { .. } => Vec::new(),
            Layer::Part { of, first, sectors } => {
                let all = *first..first + sectors;
                let clip = |found: Range<u64>| found.start.max(all.start)..found.end.min(all.end);
                let found = of.found_in(array, range).into_iter().map(clip);
                let found = found.filter(|found| found.start < found.end);
                found.map(|found| found.start - first..found.end - first).collect()
            }
            Layer::Logical { mapping, on } => {
                let each = on.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?)));
                let found = each.flat_map(|(physical, below)| {
                    let ranges = below.found_in(array, range).into_iter();
                    ranges.flat_map(move |range| mapping.found_in(physical, &range))
                });
                found.collect()
            }
        }
    }

    /// The arrays that it lies on, in order and once each.
    pub(super) fn arrays(&self) -> Vec<usize> {
        let mut all = match self {
            Layer::Array { index, .. } => vec![*index],
            Layer::Part { of, .. } => of.arrays(),
            Layer::Logical { mapping, on } => {
                let used = mapping.areas().filter_map(|(physical, _)| on[physical].as_ref());
                used.flat_map(|below| below.arrays()).collect()
            }
        };
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// A volume that can be read.
pub struct VolumeView {
    pub(super) arrays: Arc<Vec<Option<ReadableArray>>>,
    pub(super) layer: Layer,
}

impl VolumeView {
    /// Read errors of members so far, and the number of further ranges that are not in the list.
    pub fn failures(&self) -> (Vec<Failure>, u64) {
        let all = self.used().map(|(_, array)| array.failures());
        all.fold((Vec::new(), 0), |(mut list, more), (next, others)| {
            list.extend(next);
            (list, more + others)
        })
    }

    /// The result of the comparison so far, in sectors of the volume.
    pub fn comparison(&self) -> Compared {
        let mut all = Compared::default();
        for (index, array) in self.used() {
            let compared = array.comparison();
            all.sectors += compared.sectors;
            all.more += compared.more;
            all.wrong.extend(compared.wrong);
            all.wrong_more += compared.wrong_more;
            all.zeroes.extend(compared.zeroes);
            all.corrected_sectors += compared.corrected_sectors;
            let found = compared.differing.iter();
            all.differing.extend(found.flat_map(|range| self.layer.found_in(index, range)));
        }
        all.differing.sort_by_key(|range| range.start);
        all.differing.dedup_by(|next, range| {
            let touches = next.start <= range.end;
            range.end = if touches { range.end.max(next.end) } else { range.end };
            touches
        });
        all
    }

    fn used(&self) -> impl Iterator<Item = (usize, &ReadableArray)> {
        let used = self.layer.arrays().into_iter();
        used.filter_map(|index| Some((index, self.arrays[index].as_ref()?)))
    }

    fn array(&self, index: usize) -> Option<&ReadableArray> {
        self.arrays[index].as_ref()
    }
}

impl Readable for VolumeView {
    fn sectors(&self) -> u64 {
        self.layer.sectors()
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
        let mut lost: Vec<Range<u64>> = Vec::new();
        let mut add = |range: Range<u64>| match lost.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => lost.push(range),
        };
        let (mut here, mut rest) = (at, buf);
        while !rest.is_empty() {
            let run = self.layer.locate(here);
            let sectors = run.sectors.min(rest.len() as u64 / SECTOR_BYTES);
            let (part, behind) = rest.split_at_mut((sectors * SECTOR_BYTES) as usize);
            let array = run.at.and_then(|(index, sector)| Some((self.array(index)?, sector)));
            match array {
                Some((array, sector)) => {
                    let lost = array.read(sector, part).into_iter();
                    let to_here = |it: u64| it - sector + here;
                    lost.for_each(|range| add(to_here(range.start)..to_here(range.end)));
                }
                None => {
                    part.fill(0);
                    add(here..here + sectors);
                }
            }
            here += sectors;
            rest = behind;
        }
        lost
    }

    fn hole_end(&self, at: u64, limit: u64) -> u64 {
        let mut here = at;
        while here < limit {
            let run = self.layer.locate(here);
            let array = run.at.and_then(|(index, sector)| Some((self.array(index)?, sector)));
            let Some((array, sector)) = array else { break };
            let end = sector + run.sectors.min(limit - here);
            let hole = array.hole_end(sector, end);
            here += hole - sector;
            if hole < end {
                break;
            }
        }
        here
    }

    fn stripe_sectors(&self) -> Option<u64> {
        self.used().filter_map(|(_, array)| array.stripe_sectors()).max()
    }

    fn piece_end(&self, at: u64, sectors: u64) -> u64 {
        let run = self.layer.locate(at);
        match run.at {
            // Whole rows of the array below, unless runs are shorter than pieces.
            Some((index, sector)) if run.sectors >= sectors => {
                let end = self.array(index).map(|array| array.piece_end(sector, sectors));
                at + end.map_or(sectors, |end| end - sector)
            }
            _ => at + sectors,
        }
    }
}
