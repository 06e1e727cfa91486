//! Inputs of the engine: requests, completions, time and commands.

use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;

use md::{MemberIdx, Sector};

use crate::{MemberSet, ScrubMode, Token, Verdict};

/// A slice of one of the executor's buffer regions. The engine only computes with its position, and
/// never accesses the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufSlice {
    /// Number of the region, assigned by the executor, except [`REGION_ZERO`].
    pub region: u16,
    /// Length in bytes.
    pub len: u32,
    /// First byte inside the region.
    pub offset: u64,
}

/// A region of zeroes; a slice of it always has offset 0 and at most [`crate::MAX_SPAN_SECTORS`]
/// sectors.
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

/// Operation of a host request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOp {
    /// Read into the request's buffer.
    Read,
    /// Write from the request's buffer; with `fua` it is durable when it completes.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Makes everything durable that completed before this was submitted. Only shard 0 takes
    /// flushes: it collects the written members of the others.
    Flush,
    /// Discards the range. Advisory: see `ShardConfig::discard_zeroes`.
    Discard,
    /// Makes the range read as zeroes.
    WriteZeroes,
    /// Restores redundancy: parity is compared with the data and computed where it differs, or the
    /// copy that reads use is written to the others. Not for hosts; see [`crate::BackgroundLoop`].
    /// Its range is in *positions* (see [`crate::IntentMap`]): member sectors on RAID 4, 5 and 6.
    Resync,
    /// Writes what belongs there to members that are rebuilt; see [`crate::BackgroundLoop`]. Not
    /// for hosts. Its range is in positions; on RAID 1 and 10 it has working memory of its length.
    Rebuild,
    /// Compares redundancy with the data; see [`ScrubMode`]. Not for hosts. Its range is in
    /// positions. Fails with [`RequestError::Io`] where members are missing, or redundancy is out
    /// of sync.
    Scrub(ScrubMode),
}

impl HostOp {
    /// The longest request with this operation, in sectors.
    pub fn max_sectors(self) -> u64 {
        match self {
            HostOp::Discard => crate::MAX_DISCARD_SECTORS,
            _ => crate::MAX_REQUEST_SECTORS,
        }
    }
}

/// One host request. `tag` is returned in [`crate::Effect::Complete`].
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The host's tag of the request.
    pub tag: u64,
    /// Read, write, flush, or background work.
    pub op: HostOp,
    /// First array sector.
    pub at: Sector,
    /// Length in sectors, at most [`HostOp::max_sectors`]; 0 for a flush.
    pub sectors: u64,
    /// Buffer of reads and writes: exactly `sectors` long. Working memory of that length for a
    /// resync on RAID 1 and 10 (RAID 4, 5 and 6 use their stripe memory), of that length for each
    /// copy for a scrub. The executor must not change it until the request completes.
    pub buf: BufSlice,
}

/// Why a member operation failed, as far as the engine's decisions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberError {
    /// The range cannot be read; the rest of the member works.
    Medium,
    /// The range is in the member's bad-block log: what should be there is not on the member. It
    /// can be written.
    BadBlock,
    /// No completion in time, or an earlier operation has not completed in time: see
    /// [`Input::Late`].
    Timeout,
    /// The member no longer exists.
    Gone,
    /// The backing store is full; nothing of the operation was written. Never fails a member.
    NoSpace,
    /// The backing store is full, and a part of the range may have been written. Never fails a
    /// member.
    ShortWrite,
    /// The system has no memory for the operation; a part of a write may have been written. Never
    /// fails a member.
    NoMemory,
    /// The member refused the operation as invalid.
    Invalid,
    /// The operation failed for a reason that says nothing about the medium: the path to the device
    /// is lost, access is denied.
    Other,
}

impl MemberError {
    /// Whether a read with this error takes the member out of service: not after a bad block, which
    /// a write may repair, nor after a lack of space or memory, which is not the member's fault.
    pub(crate) fn fails_reader(self) -> bool {
        !self.is_unreadable() && self.lacks().is_none()
    }

    /// Whether a read with this error would end with it again: only a write can change that.
    pub(crate) fn is_unreadable(self) -> bool {
        matches!(self, MemberError::Medium | MemberError::BadBlock)
    }

    /// The error of a request that failed for a lack of space or memory: such an error never fails
    /// a member.
    pub fn lacks(self) -> Option<RequestError> {
        match self {
            MemberError::NoSpace | MemberError::ShortWrite => Some(RequestError::NoSpace),
            MemberError::NoMemory => Some(RequestError::NoMemory),
            _ => None,
        }
    }
}

impl std::fmt::Display for MemberError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MemberError::Medium => "medium error",
            MemberError::BadBlock => "listed in the member's bad-block log",
            MemberError::Timeout => "no completion in time",
            MemberError::Gone => "member is gone",
            MemberError::NoSpace => "no space left on the member's backing store",
            MemberError::ShortWrite => "short write: no space left on the member's backing store",
            MemberError::NoMemory => "the system is out of memory",
            MemberError::Invalid => "member refused the operation as invalid",
            MemberError::Other => "I/O error that is not the medium's",
        })
    }
}

/// Operation of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberOp {
    /// Read of data.
    Read,
    /// Write of data.
    Write,
    /// Flush of the volatile cache.
    Flush,
    /// Discard.
    Discard,
    /// Write of zeroes.
    WriteZeroes,
    /// Write or flush of the metadata: its sectors are not in the data area.
    Metadata,
}

impl std::fmt::Display for MemberOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            MemberOp::Read => "read",
            MemberOp::Write => "write",
            MemberOp::Flush => "flush",
            MemberOp::Discard => "discard",
            MemberOp::WriteZeroes => "write of zeroes",
            MemberOp::Metadata => "metadata write",
        })
    }
}

/// A failed operation of a member: which one, and why. The engine decides by `kind` alone and
/// passes the rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError {
    /// Kind of the error.
    pub kind: MemberError,
    /// The operation.
    pub op: MemberOp,
    /// The system's error number, if the system reported the error.
    pub errno: Option<NonZeroU16>,
    /// Length in sectors, at most `u32::MAX`; 0 for flushes and metadata.
    pub sectors: u32,
    /// First sector in the member's data area; 0 for flushes and metadata.
    pub sector: Sector,
}

// Every completion has room for it.
const _: () = assert!(size_of::<Result<(), IoError>>() == 16);

impl IoError {
    /// An error of a write or flush of the metadata.
    pub fn of_metadata(kind: MemberError, errno: Option<NonZeroU16>) -> IoError {
        IoError { kind, op: MemberOp::Metadata, errno, sectors: 0, sector: Sector(0) }
    }
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// Too few members work to serve or to store this range (EIO).
    Io,
    /// A member's backing store is full (ENOSPC). No acknowledged data are lost.
    NoSpace,
    /// The system has no memory for a member's operation (ENOMEM). No acknowledged data are lost.
    NoMemory,
    /// Outside the array, not aligned to the logical block, too long, or not completely owned by
    /// this shard (EINVAL).
    Invalid,
    /// The array is read-only (EROFS).
    ReadOnly,
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RequestError::Io => "input/output error: too few members can serve the range",
            RequestError::NoSpace => "no space left on a member's backing store",
            RequestError::NoMemory => "the system is out of memory",
            RequestError::Invalid => "request is outside the array or not aligned",
            RequestError::ReadOnly => "the array is read-only",
        })
    }
}

impl std::error::Error for RequestError {}

/// Flags of md that say how a member of RAID 1 and 10 is used: see
/// [`crate::ShardConfig::write_mostly`] and [`crate::ShardConfig::failfast`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberFlags {
    /// Read only where no other copy can serve.
    pub write_mostly: bool,
    /// Taken out of service by a bad block, unless it is the last with the data.
    pub failfast: bool,
}

/// Commands of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Take what is at this place (see [`crate::Effect`]) out of service, as `mdadm --fail` does.
    /// Ignored if nothing there is in service.
    FailMember(MemberIdx),
    /// Answer to [`crate::ControlEvent::MemberFailed`]: the failure is durable in the metadata, so
    /// writes that rely on it may be acknowledged.
    Recorded {
        /// Epoch of the answered event.
        epoch: u64,
    },
    /// Negative answer: the failure cannot be recorded, so writes that rely on it fail.
    NotRecorded {
        /// Epoch of the answered event.
        epoch: u64,
    },
    /// Answer to [`crate::ControlEvent::Intent`]: the write intents are recorded on the members.
    Granted {
        /// First bit.
        first_bit: u32,
        /// Number of bits.
        bits: u32,
    },
    /// Negative answer: a member has no space to record the intents. Writes that wait for these
    /// bits fail with [`RequestError::NoSpace`]; the next one requests them again.
    NotGranted {
        /// First bit.
        first_bit: u32,
        /// Number of bits.
        bits: u32,
    },
    /// A member has no space for the record of a loss, which is retried later: writes and flushes
    /// that wait for it fail with [`RequestError::NoSpace`].
    NoSpaceToRecord,
    /// Become read-only: writes that wait for their intents fail with [`RequestError::ReadOnly`],
    /// those in flight complete, and intents are released without delay. Nothing is repaired on
    /// members any more.
    ReadOnly,
    /// The superblocks say that a resync is needed, regardless of partial parity logs: these may
    /// drop rows in doubt.
    DoubtRecorded {
        /// Number of [`crate::ControlEvent::OutOfSync`] of this shard that are accounted for.
        reports: u64,
    },
    /// A flush is in progress: answer with [`crate::ControlEvent::Written`]. Not for shard 0.
    TakeDirtyMembers,
    /// A flush has failed on a member that the array cannot run without: parity and data of any row
    /// may be of different ages, and nothing is recovered from a row before it is written again.
    NotDurable,
    /// For shard 0: the answer of another shard. All of them must answer.
    Written {
        /// Members with completed writes of the shard that may be volatile.
        members: MemberSet,
        /// The shard's acknowledged writes are durable once these members are flushed.
        kept: bool,
    },
    /// A member has been put into a slot that was empty: it is out of sync everywhere. Answered by
    /// [`crate::ControlEvent::RebuildBegan`]; the requests that rebuild it follow. The executor has
    /// bound it, and no operation on the slot's former member is in flight.
    BeginRebuild(MemberIdx),
    /// A member that has been put into a slot was there before: it is out of sync in these ranges
    /// of its data area alone. The intents of writes that are granted from now on are not among
    /// them.
    OutOfSyncOnly {
        /// Place of the device (see [`crate::Effect`]).
        member: MemberIdx,
        /// Ascending ranges, in sectors.
        ranges: Arc<[Range<u64>]>,
    },
    /// A device that has joined, or has replaced a member, has these flags. It had none before.
    SetFlags {
        /// Place of the device. Ignored if it has not the slot.
        member: MemberIdx,
        /// The flags from now on.
        flags: MemberFlags,
    },
    /// A device has been put into this place (see [`crate::Effect`]) to replace the slot's member:
    /// it is out of sync everywhere. If the member has failed, the device has the slot, as after
    /// [`Control::BeginRebuild`]. Answered by [`crate::ControlEvent::RebuildBegan`]. The executor
    /// has bound it, and no operation on a device that was there before is in flight.
    BeginReplacement(MemberIdx),
    /// A member that is being rebuilt, or a replacement, is in sync below this sector of its data
    /// area.
    RebuiltBelow {
        /// Place of the device (see [`crate::Effect`]).
        member: MemberIdx,
        /// Sectors that are in sync, from the start of the data area.
        sector: u64,
    },
    /// All of a member that was being rebuilt is in sync, and the metadata record it. By its place.
    EndRebuild(MemberIdx),
    /// The metadata record that the device at this place, which has replaced the slot's member, is
    /// the slot's member now, and that the former one is faulty.
    EndReplacement(MemberIdx),
    /// Copies are in sync below this position and may differ above; see
    /// [`crate::ShardConfig::in_sync_below`].
    InSyncBelow {
        /// First position that may differ; `u64::MAX`: none.
        position: u64,
        /// Number of [`crate::ControlEvent::OutOfSync`] of this shard that the metadata manager had
        /// processed. A command that does not account for all of them raises nothing: it crossed
        /// the last one.
        reports: u64,
    },
}

/// One input. Requests must be admitted within [`crate::Shard::room`].
#[derive(Clone, Debug)]
pub enum Input {
    /// A host request.
    Request(Request),
    /// A member's read, write, flush, discard or write of zeroes completed.
    IoDone {
        /// Token of the effect.
        token: Token,
        /// Result of the operation.
        result: Result<(), IoError>,
    },
    /// A member's operation has ended for the array with this result, and has not completed: its
    /// buffers are in use until [`Input::Released`] follows. With [`MemberError::Timeout`] it has
    /// not completed in time. Operations with equal tokens are late together.
    Late {
        /// Token of the effect.
        token: Token,
        /// Result for the array.
        result: Result<(), IoError>,
    },
    /// An operation that was late has completed: its buffers are free.
    Released {
        /// Token of the effect.
        token: Token,
        /// Result of the operation. It changes nothing, except that a flush may have lost data.
        result: Result<(), IoError>,
    },
    /// A computation completed.
    ComputeDone {
        /// Token of the effect.
        token: Token,
    },
    /// A [`crate::Compute::Check`] or [`crate::Compute::Compare`] completed.
    Checked {
        /// Token of the effect.
        token: Token,
        /// Agreement, or the blocks that are wrong.
        verdict: Verdict,
    },
    /// The time set with [`crate::Effect::SetTimer`] has passed.
    Timer,
    /// A command of the control plane.
    Control(Control),
}
