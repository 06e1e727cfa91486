//! The contents of an array, by ranges of bytes.
//!
//! Invariant: members are opened read-only. A range is given whole or not at all: neither lost
//! bytes nor, unless no comparison was requested, bytes that contradict their redundancy.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use admin::rescue::{Check, Rescue};
use md::SECTOR_BYTES;

use super::words::Options;
use super::{Failure, Kind, Result};
use crate::commands::source::{self, Opened, ReadOptions, SourceArguments};

/// Why a range is not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRead {
    /// Bytes that no member has, and no redundancy brings back.
    Lost(Vec<Range<u64>>),
    /// Bytes that contradict their redundancy: one of the members is wrong.
    Differs(Vec<Range<u64>>),
}

/// An array that can be read.
pub struct Contents {
    rescue: Rescue,
    /// Sectors that contradict their redundancy: first, and behind the last.
    differing: Mutex<BTreeMap<u64, u64>>,
}

impl Contents {
    /// Opens the members, with the options of `raidlab dump` that say what is read.
    ///
    /// With `checked` what is read is compared with its redundancy, where that is known to be in
    /// sync; with `partial` an array is opened of which a part is lost.
    ///
    /// # Errors
    /// The array cannot be read like this.
    pub fn open(
        members: &[OsString],
        options: &Options,
        checked: bool,
        partial: bool,
    ) -> Result<Contents> {
        let arguments: SourceArguments = options.parsed("dump", members)?;
        let check = if checked { Check::InSync } else { Check::Nothing };
        let read = ReadOptions { check, correct: false, partial };
        let opened = source::members(&arguments)
            .and_then(|members| source::open(&arguments, &read, &members));
        match opened.map_err(Failure::or(Kind::Usage))? {
            Opened::Array(rescue) => {
                let doubts = rescue.all_doubts();
                let rescue = Rescue { view: rescue.view.tracking(), doubts, ..*rescue };
                Ok(Contents { rescue, differing: Mutex::default() })
            }
            Opened::NotExact(text) => {
                let text = text.trim_end().to_string();
                Err(Failure { kind: Kind::Refused, text, context: Vec::new(), path: None })
            }
        }
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

    /// Fills `buffer`, whole sectors, from a sector on.
    ///
    /// # Errors
    /// Not all of it is certain; ranges are bytes of the array.
    ///
    /// # Panics
    /// When the range is outside of the array, or is not of whole sectors.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> std::result::Result<(), NotRead> {
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
