//! The decisions about a member's bad-block log: which reads are refused, when a sector gets into
//! the log, and when it leaves it.
//!
//! ```text
//! write           begin -> member -> done: good in memory
//! flush           begin -> member -> done: LogWrite -> log_written -> completion
//! write with FUA  begin -> member -> done: good in memory, LogWrite -> log_written -> completion
//! AddBadBlocks    add: LogWrite -> log_written: listed in memory -> completion
//! ```
//! Sans-io: an executor calls [`BadBlockLog::begin`] before it passes an operation to the member
//! and [`BadBlockLog::done`] afterwards, writes the log that `done` returns, and completes the
//! operation with the result of [`BadBlockLog::log_written`].
//!
//! Invariant: a listed sector is never read; its data are recovered from the other members. A write
//! that covers it is attempted; once it has succeeded and is durable, the sector is removed from
//! the log: with FUA before the write completes, otherwise with the next flush. The log on disk may
//! name sectors that are good again, never the reverse. Sectors are added where a rebuild has
//! nothing to compute them from; a failed write, which adds some in Linux, takes the member out of
//! service here.

use std::ops::Range;

use md::Sector;
use md::ondisk::BadBlockArea;
use md::ondisk::bad_blocks::{BadBlocks, LOG_SECTORS_MAX};

use crate::{IoError, MemberError, MemberOp};

/// The bad-block log of one member; see the module documentation.
#[derive(Clone)]
pub struct BadBlockLog {
    place: BadBlockArea,
    /// Start of the member's data area: the log counts sectors of the device.
    data_offset: u64,
    bad: BadBlocks,
    /// The log as it is on disk.
    on_disk: BadBlocks,
    /// Incremented by every change of `bad`.
    version: u64,
    /// The latest version that a flush has brought to the disk.
    written: u64,
    /// Whether a [`LogWrite`] has not been answered.
    is_writing: bool,
}

/// The change of the log when an operation succeeds; see [`BadBlockLog::begin`].
#[derive(Clone, Debug)]
pub struct BadBlockChange(Change);

#[derive(Clone, Debug)]
enum Change {
    /// These sectors have been written.
    Good(Range<u64>),
    /// These sectors have been written, and are durable.
    GoodAndDurable(Range<u64>),
    /// All writes that had completed when the flush began are durable: this version of the log, in
    /// which these sectors are good.
    Durable(u64, Vec<Range<u64>>),
}

/// The next step after an operation of the member.
#[derive(Debug)]
pub enum BadBlockStep {
    /// Complete the operation with this result.
    Complete(Result<(), IoError>),
    /// Write the log, and complete the operation with the result of [`BadBlockLog::log_written`].
    Write(LogWrite),
}

/// A log to be written and made durable.
#[derive(Debug)]
pub struct LogWrite {
    /// First sector of the log on the device.
    pub sector: u64,
    /// The log, as long as its area.
    pub bytes: Vec<u8>,
    bad: BadBlocks,
    /// The version that this write brings to the disk; `None`: only a part of one.
    version: Option<u64>,
    /// Sectors of the device that are listed from this write on.
    added: Option<Range<u64>>,
}

impl LogWrite {
    /// Number of separate ranges that the log lists.
    pub fn ranges(&self) -> usize {
        self.bad.ranges().len()
    }
}

impl BadBlockLog {
    /// The log at `place` that holds `bad`, of a member whose data area starts at sector
    /// `data_offset` of the device.
    pub fn new(bad: BadBlocks, place: BadBlockArea, data_offset: u64) -> BadBlockLog {
        let on_disk = bad.clone();
        BadBlockLog { place, data_offset, bad, on_disk, version: 0, written: 0, is_writing: false }
    }

    /// Whether no sector is listed.
    pub fn is_empty(&self) -> bool {
        self.bad.is_empty()
    }

    /// The listed ranges, in sectors of the data area.
    pub fn listed(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let in_data = |sector: u64| sector.saturating_sub(self.data_offset);
        let ranges = self.bad.within(self.data_offset..u64::MAX);
        ranges.map(move |range| in_data(range.start)..in_data(range.end))
    }

    /// An operation is about to be passed to the member. `fua`: it is a write that is durable when
    /// it completes; `at`: its first sector in the data area. Returns the change to pass to
    /// [`BadBlockLog::done`]; `None`: the operation changes nothing, and its result is final.
    ///
    /// # Errors
    /// A listed sector would be read: the operation fails, and is not passed to the member.
    pub fn begin(
        &self,
        op: MemberOp,
        fua: bool,
        at: Sector,
        sectors: u64,
    ) -> Result<Option<BadBlockChange>, MemberError> {
        let start = self.data_offset.saturating_add(at.0);
        let sectors = start..start.saturating_add(sectors);
        let change = match op {
            MemberOp::Read if self.bad.overlaps(sectors.clone()) => {
                return Err(MemberError::BadBlock);
            }
            MemberOp::Write if fua => Change::GoodAndDurable(sectors),
            MemberOp::Write | MemberOp::WriteZeroes => Change::Good(sectors),
            MemberOp::Flush if self.version > self.written => {
                Change::Durable(self.version, self.good())
            }
            MemberOp::Read | MemberOp::Discard | MemberOp::Flush | MemberOp::Metadata => {
                return Ok(None);
            }
        };
        Ok(Some(BadBlockChange(change)))
    }

    /// Adds sectors of the data area, which no operation in flight writes. Write the log that is
    /// returned, and complete with the result of [`BadBlockLog::log_written`]: if it fails, nothing
    /// has been added.
    ///
    /// # Errors
    /// There is no room for the entry, or the log's units cannot express it: never are more sectors
    /// listed than these.
    ///
    /// # Panics
    /// If an earlier [`LogWrite`] has not been answered.
    pub fn add(&mut self, at: Sector, sectors: u64) -> Result<LogWrite, MemberError> {
        assert!(!self.is_writing, "a log write is in flight");
        let start = self.data_offset.saturating_add(at.0);
        let added = start..start.saturating_add(sectors);
        let BadBlockArea { area, shift, .. } = self.place;
        let unit = 1_u64.checked_shl(shift.into()).unwrap_or(u64::MAX);
        let is_whole = start.is_multiple_of(unit) && sectors.is_multiple_of(unit);
        let mut bad = self.on_disk.clone();
        bad.insert(added.clone());
        let has_area = (1..=LOG_SECTORS_MAX).contains(&area.sectors);
        let bytes = (has_area && is_whole).then(|| bad.encode(area.sectors, shift).ok()).flatten();
        let bytes = bytes.ok_or(MemberError::NoSpace)?;
        self.is_writing = true;
        let (sector, version, added) = (area.sector, None, Some(added));
        Ok(LogWrite { sector, bytes, bad, version, added })
    }

    /// The member has completed the operation of `change`.
    ///
    /// # Panics
    /// If an earlier [`LogWrite`] has not been answered: one that is based on another log than the
    /// disk's could list a sector again, or overwrite a later log.
    pub fn done(&mut self, change: BadBlockChange, result: Result<(), IoError>) -> BadBlockStep {
        assert!(!self.is_writing, "a log write is in flight");
        if result.is_err() {
            return BadBlockStep::Complete(result);
        }
        let write = match change.0 {
            Change::Good(sectors) => {
                self.remove(sectors);
                None
            }
            // The log is written before the completion: otherwise a start after a crash would not
            // read the sectors.
            Change::GoodAndDurable(sectors) => {
                self.remove(sectors.clone());
                let is_listed = self.on_disk.overlaps(sectors.clone());
                is_listed.then(|| self.write_without(&[sectors], None)).flatten()
            }
            Change::Durable(version, _) if version <= self.written => None,
            Change::Durable(version, good) => self.write_without(&good, Some(version)),
        };
        write.map_or(BadBlockStep::Complete(Ok(())), BadBlockStep::Write)
    }

    /// The log of `done` is durable, or could not be written (`result`). Returns the result of the
    /// operation: it fails with an error of the metadata, although its own data are durable, and
    /// the log on disk counts as unchanged. It is written again with the next flush.
    pub fn log_written(
        &mut self,
        write: LogWrite,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        self.is_writing = false;
        result.map_err(|error| IoError::of_metadata(error.kind, error.errno))?;
        self.on_disk = write.bad;
        self.written = write.version.unwrap_or(self.written);
        if let Some(added) = write.added {
            self.bad.insert(added);
        }
        Ok(())
    }

    fn remove(&mut self, sectors: Range<u64>) {
        if self.bad.remove(sectors) {
            self.version += 1;
        }
    }

    /// Sectors that are in the log on disk and good by now.
    fn good(&self) -> Vec<Range<u64>> {
        let mut good = self.on_disk.clone();
        for range in self.bad.ranges() {
            good.remove(range.clone());
        }
        good.ranges().to_vec()
    }

    /// The log on disk without sectors whose data are durable. Not `self.bad`: that also lacks
    /// sectors whose data are volatile.
    fn write_without(&mut self, good: &[Range<u64>], version: Option<u64>) -> Option<LogWrite> {
        let mut bad = self.on_disk.clone();
        for range in good {
            bad.remove(range.clone());
            // What has been added since the flush began stays.
            bad.extend(self.bad.within(range.clone()));
        }
        let Ok(bytes) = bad.encode(self.place.area.sectors, self.place.shift) else {
            // Fewer sectors can need more entries. If the area has no room for them, the log on
            // disk is kept: it lists more, until a later version fits.
            self.written = version.unwrap_or(self.written);
            return None;
        };
        self.is_writing = true;
        let sector = self.place.area.sector;
        Some(LogWrite { sector, bytes, bad, version, added: None })
    }
}
