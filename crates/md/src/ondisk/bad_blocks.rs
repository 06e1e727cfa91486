//! The bad-block log of a member (metadata 1.x): sectors that it cannot read.
//!
//! `docs/format/bad-blocks.md` is normative. [`BadBlocks`] is a set of sectors of the device; the
//! log is one way to write it down.
//!
//! Invariant: the ranges of the set are sorted, not empty, and do not touch. What the log's units
//! or the length of its entries cannot express is rounded outwards, never inwards.

use std::fmt;
use std::ops::Range;

use super::{DecodeError, Field};
use crate::units::SECTOR_BYTES;

/// Most sectors of a log: one page.
pub const LOG_SECTORS_MAX: u64 = 8;
/// Bytes of an entry, a little-endian number: start << 10 | length.
pub const ENTRY_BYTES: usize = 8;
/// Most entries of a log.
pub const ENTRIES_MAX: usize = 512;
/// Longest entry that is written, in units; up to 1023 are read.
pub const ENTRY_UNITS_MAX: u64 = 512;

const LENGTH_BITS: u32 = 10;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
/// Behind the last entry, and everywhere after it.
const END: u64 = u64::MAX;

/// Sectors of a member's device that are bad.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlocks {
    ranges: Vec<Range<u64>>,
}

/// Why a set cannot be written into a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBlocksError {
    /// It needs more entries than there is room for; md then fails the member.
    Full {
        /// Entries needed.
        entries: usize,
        /// Entries that fit.
        room: usize,
    },
    /// A sector is beyond what an entry can say.
    Beyond {
        /// The end of the range.
        sector: u64,
    },
}

impl fmt::Display for BadBlocksError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadBlocksError::Full { entries, room } => {
                write!(f, "bad-block log: {entries} entries, room for {room}")
            }
            BadBlocksError::Beyond { sector } => {
                write!(f, "bad-block log: sector {sector} is beyond what an entry can say")
            }
        }
    }
}

impl std::error::Error for BadBlocksError {}

impl BadBlocks {
    /// No bad sectors.
    pub fn new() -> BadBlocks {
        BadBlocks::default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The bad ranges, sorted and apart from each other.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Number of bad sectors.
    pub fn sectors(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The bad parts of `sectors`, in order.
    pub fn within(&self, sectors: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|range| range.end <= sectors.start);
        let Range { start, end } = sectors;
        self.ranges[first..]
            .iter()
            .take_while(move |range| range.start < end)
            .map(move |range| range.start.max(start)..range.end.min(end))
            .filter(|range| !range.is_empty())
    }

    /// Whether any of `sectors` is bad.
    pub fn overlaps(&self, sectors: Range<u64>) -> bool {
        self.within(sectors).next().is_some()
    }

    /// Adds bad sectors; whether that changed anything.
    pub fn insert(&mut self, sectors: Range<u64>) -> bool {
        if sectors.is_empty() {
            return false;
        }
        // The ranges that touch the new one become part of it.
        let first = self.ranges.partition_point(|range| range.end < sectors.start);
        let last = self.ranges.partition_point(|range| range.start <= sectors.end);
        let touching = &self.ranges[first..last];
        if let [only] = touching
            && only.start <= sectors.start
            && sectors.end <= only.end
        {
            return false;
        }
        let start = touching.first().map_or(sectors.start, |range| range.start.min(sectors.start));
        let end = touching.last().map_or(sectors.end, |range| range.end.max(sectors.end));
        self.ranges.splice(first..last, std::iter::once(start..end));
        true
    }

    /// Takes sectors out that are good again: they were written. Whether that changed anything.
    pub fn remove(&mut self, sectors: Range<u64>) -> bool {
        if !self.overlaps(sectors.clone()) {
            return false;
        }
        let first = self.ranges.partition_point(|range| range.end <= sectors.start);
        let last = self.ranges.partition_point(|range| range.start < sectors.end);
        let before = self.ranges[first].start..sectors.start;
        let after = sectors.end..self.ranges[last - 1].end;
        let left = [before, after].into_iter().filter(|range| !range.is_empty());
        self.ranges.splice(first..last, left);
        true
    }

    /// The set that `log` holds: the log's room, at most a page, read because the superblock says
    /// that there are entries. Units are 2^`shift` sectors.
    ///
    /// Entries may be unsorted and may overlap, as md accepts them.
    ///
    /// # Errors
    /// What md refuses: an entry of length 0 (so also a log of zeroes), a shift of 64 or more, a
    /// log of more than a page; besides, an entry that 64 bits of sectors cannot reach.
    pub fn decode(log: &[u8], shift: u8) -> Result<BadBlocks, DecodeError> {
        if log.len() as u64 > LOG_SECTORS_MAX * SECTOR_BYTES {
            return Err(error(0, format!("{} bytes of log, more than a page", log.len())));
        }
        if shift >= 64 {
            return Err(error(0, format!("units of 2^{shift} sectors")));
        }
        let mut bad = BadBlocks::new();
        for (index, bytes) in log.chunks_exact(ENTRY_BYTES).enumerate() {
            let entry = u64::from_le_bytes(bytes.try_into().expect("chunks of 8"));
            if entry == END {
                break;
            }
            let (start, length) = (entry >> LENGTH_BITS, entry & LENGTH_MASK);
            if length == 0 {
                return Err(error(index, format!("{entry:#x} has length 0")));
            }
            let sector = |unit: u64| unit.checked_mul(1 << shift);
            let (Some(start), Some(end)) = (sector(start), sector(start + length)) else {
                return Err(error(index, format!("{entry:#x} << {shift} is beyond any device")));
            };
            bad.insert(start..end);
        }
        Ok(bad)
    }

    /// The entries for units of 2^`shift` sectors: sorted, each of at most 512 units.
    fn entries(&self, shift: u8) -> Result<Vec<u64>, BadBlocksError> {
        let unit = 1_u64.checked_shl(shift.into()).unwrap_or(u64::MAX);
        let mut units = BadBlocks::new();
        for range in &self.ranges {
            units.insert(range.start / unit..range.end.div_ceil(unit));
        }
        let mut entries = Vec::new();
        for range in &units.ranges {
            if range.end > END >> LENGTH_BITS {
                return Err(BadBlocksError::Beyond { sector: range.end.saturating_mul(unit) });
            }
            let mut start = range.start;
            while start < range.end {
                let length = (range.end - start).min(ENTRY_UNITS_MAX);
                entries.push(start << LENGTH_BITS | length);
                start += length;
                if entries.len() > 2 * ENTRIES_MAX {
                    // Long ranges have millions of entries; enough is known.
                    let entries = entries.len();
                    return Err(BadBlocksError::Full { entries, room: ENTRIES_MAX });
                }
            }
        }
        Ok(entries)
    }

    /// The log of `log_sectors` (1 to 8) that holds the set, filled up with 0xff.
    ///
    /// # Errors
    /// It does not fit: the member must then be failed, as md does.
    ///
    /// # Panics
    /// If the log is longer than a page: superblocks that say so are refused.
    pub fn encode(&self, log_sectors: u64, shift: u8) -> Result<Vec<u8>, BadBlocksError> {
        assert!(log_sectors <= LOG_SECTORS_MAX, "a log of {log_sectors} sectors");
        let mut log = vec![0xff; (log_sectors * SECTOR_BYTES) as usize];
        let entries = self.entries(shift)?;
        let room = log.len() / ENTRY_BYTES;
        if entries.len() > room {
            return Err(BadBlocksError::Full { entries: entries.len(), room });
        }
        for (place, entry) in log.chunks_exact_mut(ENTRY_BYTES).zip(entries) {
            place.copy_from_slice(&entry.to_le_bytes());
        }
        Ok(log)
    }
}

impl Extend<Range<u64>> for BadBlocks {
    fn extend<I: IntoIterator<Item = Range<u64>>>(&mut self, ranges: I) {
        for range in ranges {
            self.insert(range);
        }
    }
}

fn error(index: usize, problem: String) -> DecodeError {
    let field = Field { name: "entry", offset: index * ENTRY_BYTES, size: ENTRY_BYTES };
    DecodeError {
        structure: "bad-blocks",
        field: field.name,
        offset: field.offset,
        problem: problem.into(),
    }
}
