//! The contents of an array that does not run, by ranges of bytes.
//!
//! Invariant: members are opened read-only. A range is given whole or not at all: neither lost
//! bytes nor, unless no comparison was requested, bytes that contradict their redundancy.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use admin::rescue::{Check, Rescue, RescueOptions, rescue};
use md::SECTOR_BYTES;
use md::assemble::Options;
use parity::Kernels;

use crate::error::{Error, Kind};
use crate::members::FoundArray;

/// How an array is read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Compare what is read with its redundancy, where that is known to be in sync; default: true.
    pub check: bool,
    /// Also an array of which a part is lost: reads of that part fail; default: false.
    pub partial: bool,
    /// Use members with older event counts where no other is left: their data may be stale;
    /// default: false.
    pub ignore_events: bool,
    /// Read what is refused as too risky; implies `ignore_events`; default: false.
    pub force: bool,
}

impl Default for ReadOptions {
    fn default() -> ReadOptions {
        ReadOptions { check: true, partial: false, ignore_events: false, force: false }
    }
}

impl FoundArray<'_> {
    /// Makes the contents readable, also without members that redundancy can do without. Nothing
    /// is written.
    ///
    /// # Errors
    /// The array cannot be read like this: the text says what is missing, and at which risk it
    /// could be.
    pub fn read(&self, options: &ReadOptions) -> crate::Result<Contents> {
        let wanted = RescueOptions {
            // Named, its members are not doubted for what else they carry.
            array: (self.members.arrays().count() > 1).then(|| self.uuid()),
            assemble: Options {
                ignore_events: options.ignore_events,
                force: options.force,
                partial: options.partial,
                ..Options::default()
            },
            order: None,
            check: if options.check { Check::InSync } else { Check::Nothing },
            correct: false,
        };
        let rescue = rescue(&self.members.opened, &wanted, Kernels::best());
        Ok(Contents::of(rescue.map_err(Error::from_error(Kind::Usage))?))
    }
}

/// Why a range is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRead {
    /// It is outside of the array.
    Outside {
        /// Size of the array.
        bytes: u64,
    },
    /// Bytes that no member has, and no redundancy brings back.
    Lost(Vec<Range<u64>>),
    /// Bytes that contradict their redundancy: one of the members is wrong.
    Differs(Vec<Range<u64>>),
}

impl fmt::Display for NotRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranges, what) = match self {
            NotRead::Outside { bytes } => {
                return write!(f, "outside of the array, which has {bytes} bytes");
            }
            NotRead::Lost(ranges) => (ranges, "lost"),
            NotRead::Differs(ranges) => (ranges, "different from their redundancy"),
        };
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let first = ranges.first().map_or(0, |range| range.start);
        write!(f, "{bytes} bytes are {what}, the first at {first}")
    }
}

impl std::error::Error for NotRead {}

/// An array that can be read.
pub struct Contents {
    rescue: Rescue,
    /// Sectors that contradict their redundancy: first, and behind the last.
    differing: Mutex<BTreeMap<u64, u64>>,
}

impl Contents {
    /// What a rescue gives.
    #[doc(hidden)]
    pub fn of(rescue: Rescue) -> Contents {
        let doubts = rescue.all_doubts();
        let rescue = Rescue { view: rescue.view.tracking(), doubts, ..rescue };
        Contents { rescue, differing: Mutex::default() }
    }

    /// The array's name in messages.
    pub fn name(&self) -> &str {
        &self.rescue.name
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.rescue.view.sectors() * SECTOR_BYTES
    }

    /// Notes about the contents: degraded slots, members left out.
    pub fn notes(&self) -> &[String] {
        &self.rescue.notes
    }

    /// Reasons why the contents may be wrong.
    pub fn doubts(&self) -> &[String] {
        &self.rescue.doubts
    }

    /// Fills `buffer` from byte `offset` on.
    ///
    /// # Errors
    /// Not all of it is certain, or in the array; ranges are bytes of the array.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), NotRead> {
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= self.bytes());
        let Some(end) = end else { return Err(NotRead::Outside { bytes: self.bytes() }) };
        if buffer.is_empty() {
            return Ok(());
        }
        let sectors = offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES);
        if sectors.start * SECTOR_BYTES == offset && sectors.end * SECTOR_BYTES == end {
            return self.read(sectors.start, buffer);
        }
        let mut whole = vec![0; ((sectors.end - sectors.start) * SECTOR_BYTES) as usize];
        self.read(sectors.start, &mut whole)?;
        let skipped = (offset - sectors.start * SECTOR_BYTES) as usize;
        buffer.copy_from_slice(&whole[skipped..skipped + buffer.len()]);
        Ok(())
    }

    /// Fills `buffer`, whole sectors, from a sector on.
    ///
    /// # Errors
    /// Not all of it is certain; ranges are bytes of the array.
    ///
    /// # Panics
    /// When the range is outside of the array, or is not of whole sectors.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> Result<(), NotRead> {
        let sectors = buffer.len() as u64 / SECTOR_BYTES;
        let end = sector + sectors;
        assert!(end <= self.rescue.view.sectors(), "outside of the array");
        assert!((buffer.len() as u64).is_multiple_of(SECTOR_BYTES), "whole sectors");
        let bytes = |range: &Range<u64>| {
            let (start, end) = (range.start.max(sector), range.end.min(end));
            (start < end).then(|| start * SECTOR_BYTES..end * SECTOR_BYTES)
        };
        let lost = self.rescue.view.read(sector, buffer);
        if !lost.is_empty() {
            return Err(NotRead::Lost(lost.iter().filter_map(bytes).collect()));
        }
        let mut differing = self.differing.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken with the lock held: what another thread has taken is in the list by then.
        for range in self.rescue.view.take_differing() {
            let last = differing.entry(range.start).or_default();
            *last = range.end.max(*last);
        }
        let here = differing.range(..end).map(|(start, end)| *start..*end);
        let here: Vec<_> = here.filter_map(|range| bytes(&range)).collect();
        if here.is_empty() { Ok(()) } else { Err(NotRead::Differs(here)) }
    }
}
