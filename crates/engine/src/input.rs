//! What the engine is told: requests, outcomes, time and orders.

use md::{MemberIdx, Sector};

use crate::{MemberSet, Token};

/// A piece of one of the executor's buffer regions. The engine does arithmetic on it and never
/// looks inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufSlice {
    /// Which region: the executor's own numbering, except [`REGION_ZERO`].
    pub region: u16,
    /// Length in bytes.
    pub len: u32,
    /// First byte inside the region.
    pub offset: u64,
}

/// The region that reads as zeroes everywhere; a slice of it always has offset 0 and at most
/// [`crate::MAX_SPAN_SECTORS`] sectors.
pub const REGION_ZERO: u16 = u16::MAX;

impl BufSlice {
    /// The part that begins `skip` sectors into the slice and is `sectors` long.
    #[must_use]
    pub(crate) fn part(self, skip: u64, sectors: u64) -> BufSlice {
        debug_assert!(
            self.region == REGION_ZERO
                || (skip + sectors) * md::SECTOR_BYTES <= u64::from(self.len)
        );
        let offset = match self.region {
            REGION_ZERO => 0,
            _ => self.offset + skip * md::SECTOR_BYTES,
        };
        BufSlice { region: self.region, len: (sectors * md::SECTOR_BYTES) as u32, offset }
    }

    /// The slice's length in sectors.
    pub(crate) fn sectors(self) -> u64 {
        u64::from(self.len) / md::SECTOR_BYTES
    }
}

/// What a host may ask of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Read into the request's buffer.
    Read,
    /// Write from the request's buffer; with `fua` it is durable when it completes.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Everything that completed before this was submitted is durable when it completes. Only shard
    /// 0 takes flushes: it asks the others.
    Flush,
    /// The range's contents no longer matter. Advisory: see `ShardConfig::discard_zeroes`.
    Discard,
    /// The range reads as zeroes from now on.
    WriteZeroes,
    /// Makes redundancy true again: parity is computed from the data, or the copy that a read would
    /// take is written to the others. No host asks for this; see [`crate::Resync`]. Its range is
    /// in *positions* (see [`crate::IntentMap`]): member sectors on RAID 4, 5 and 6.
    Resync,
}

/// One request of a host. `tag` comes back in [`crate::Effect::Complete`].
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The host's own name for the request.
    pub tag: u64,
    /// What to do.
    pub op: HostOp,
    /// First array sector.
    pub at: Sector,
    /// Length in sectors, at most [`crate::MAX_REQUEST_SECTORS`]; 0 for a flush.
    pub sectors: u64,
    /// The data, for reads and writes: exactly `sectors` long. Working memory of that length for a
    /// resync on RAID 1 and 10 (RAID 4, 5 and 6 use their stripe memory). The executor leaves it
    /// untouched until the request completes.
    pub buf: BufSlice,
}

/// Why a member did not do what it was told. The names are the design's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// This range cannot be read; the rest of the member works.
    Medium,
    /// No answer in time.
    Timeout,
    /// The member is not there any more.
    Gone,
    /// The backing store is full; nothing of the operation was written. Never fails a member.
    NoSpace,
    /// The backing store is full, and a part of the range may have been written. Never fails a
    /// member.
    ShortWrite,
    /// The member says that the operation makes no sense.
    Invalid,
}

impl MemberError {
    /// Whether a read that ends so costs the member its place: a bad block or a full store does
    /// not, because a write may mend the one, and nobody is to blame for the other.
    pub(crate) fn fails_reader(self) -> bool {
        self != MemberError::Medium && !self.is_no_space()
    }

    /// Whether the backing store is full.
    pub fn is_no_space(self) -> bool {
        matches!(self, MemberError::NoSpace | MemberError::ShortWrite)
    }
}

impl std::fmt::Display for MemberError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MemberError::Medium => "medium error",
            MemberError::Timeout => "timeout",
            MemberError::Gone => "member is gone",
            MemberError::NoSpace => "no space left on the member's backing store",
            MemberError::ShortWrite => "short write: no space left on the member's backing store",
            MemberError::Invalid => "member refused the operation as invalid",
        })
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Too few members answer to serve or to keep this range (EIO).
    Io,
    /// A member's backing store is full (ENOSPC). Nothing that was acknowledged is lost.
    NoSpace,
    /// Outside the array, not aligned to the logical block, or too long (EINVAL); or not all of it
    /// this shard's.
    Invalid,
    /// The array takes no writes (EROFS).
    ReadOnly,
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RequestError::Io => "input/output error: too few members can serve the range",
            RequestError::NoSpace => "no space left on a member's backing store",
            RequestError::Invalid => "request is outside the array or not aligned",
            RequestError::ReadOnly => "the array is read-only",
        })
    }
}

impl std::error::Error for RequestError {}

/// Orders from the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Take this member out of service, as `mdadm --fail` does.
    FailMember(MemberIdx),
    /// Answer to [`crate::ControlEvent::MemberFailed`]: the failure is durable in the metadata, so
    /// writes that rely on it may be acknowledged.
    Recorded {
        /// The epoch of the event that is answered.
        epoch: u64,
    },
    /// The other answer: the failure cannot be recorded, so writes that rely on it fail.
    NotRecorded {
        /// The epoch of the event that is answered.
        epoch: u64,
    },
    /// Answer to [`crate::ControlEvent::Intent`]: the members say that writes may be under way
    /// here.
    Granted {
        /// First bit.
        first_bit: u32,
        /// How many.
        bits: u32,
    },
    /// The other answer: some member has no space to say so. Writes that wait for these bits fail
    /// with [`RequestError::NoSpace`]; the next one asks again.
    NotGranted {
        /// First bit.
        first_bit: u32,
        /// How many.
        bits: u32,
    },
    /// A member has no space for the record of a loss, which is tried again later: writes and
    /// flushes that wait for it fail with [`RequestError::NoSpace`].
    NoSpaceToRecord,
    /// Take no more writes: those that wait for their intents fail with [`RequestError::ReadOnly`],
    /// those under way end, and intents are given back without delay. Nothing is repaired on
    /// members any more.
    ReadOnly,
    /// A flush is under way: answer with [`crate::ControlEvent::Written`]. Not for shard 0.
    TakeDirtyMembers,
    /// A flush has failed on a member that the array cannot do without: parity and data of any row
    /// may be of different ages, and nothing is recovered from a row before it is written anew.
    NotDurable,
    /// For shard 0: what another shard has answered. All of them must.
    Written {
        /// Members that completed writes of the shard lie on, perhaps volatile.
        members: MemberSet,
        /// What the shard has acknowledged is safe once these are flushed.
        kept: bool,
    },
    /// Copies are alike below this position and may differ above; see
    /// [`crate::ShardConfig::in_sync_below`].
    InSyncBelow {
        /// In positions; `u64::MAX`: everywhere.
        position: u64,
        /// How many [`crate::ControlEvent::OutOfSync`] of this shard the metadata manager knew of. A position
        /// that does not take account of all of them raises nothing: it crossed the last one.
        reports: u64,
    },
}

/// One input. Requests must be admitted within [`crate::Shard::room`].
#[derive(Clone, Copy, Debug)]
pub enum Input {
    /// A host asks.
    Request(Request),
    /// A member's read, write, flush, discard or write of zeroes ended.
    IoDone {
        /// From the effect.
        token: Token,
        /// How it ended.
        result: Result<(), MemberError>,
    },
    /// A computation ended.
    ComputeDone {
        /// From the effect.
        token: Token,
    },
    /// The time asked for with [`crate::Effect::SetTimer`] has come.
    Timer,
    /// An order.
    Control(Control),
}
