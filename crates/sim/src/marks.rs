//! Which states of the engine a run has reached, as seen from outside: in effects, events, commands
//! and results.
//!
//! Invariant: the engine has no hook for this. A mark is what an executor can tell from what it is
//! given.

use std::fmt;

use engine::{
    BackgroundEffect, BackgroundWork, Control, ControlEvent, MemberFlags, MetadataEffect, Mismatch,
    REGION_ZERO, ReadOnlyReason, Record, RequestError, Source,
};

use crate::memory::Memory;
use crate::operation::{Operation, Work};

macro_rules! marks {
    ($($mark:ident $text:literal,)*) => {
        /// A state that a run can reach.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mark {
            $(#[doc = $text] $mark,)*
        }

        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$(Mark::$mark,)*];

            /// In words.
            pub fn text(self) -> &'static str {
                match self {
                    $(Mark::$mark => $text,)*
                }
            }
        }
    };
}

marks! {
    DirectRead "read of a healthy range",
    ReadInPlace "read whose bytes stay in place",
    FuaWrite "member write with FUA",
    MemberFlush "member flush",
    MemberDiscard "member discard",
    MemberZeroes "member write of zeroes",
    RowsDiscard "member discard of several rows",
    RowsZeroes "member write of zeroes to several rows",
    FullStripe "parity write: full stripe",
    ReconstructWrite "parity write: reconstruct-write",
    ReadModifyWrite "parity write: read-modify-write",
    FullStripeDegraded "parity write, a member is missing: full stripe",
    ReconstructWriteDegraded "parity write, a member is missing: reconstruct-write",
    ReadModifyWriteDegraded "parity write, a member is missing: read-modify-write",
    WithoutP "parity write without P: its member is missing",
    WithoutQ "parity write without Q: its member is missing",
    ZeroesInRow "parity write of zeroes",
    LogPartial "log with partial parity",
    LogFullStripe "log of full stripes",
    LogOfMany "log of several writes",
    LogDegraded "log, a member is missing",
    LogReplayed "start: logs replayed",
    LogsMend "start: logs replayed, and no resync is needed",
    StartByLog "start: dirty and degraded, with logs",
    DoubtRecorded "logs released after a write that failed half-way",
    StripeMemoryGrew "stripe memory was short, and grew",
    RecoverFromP "block recovered from P",
    RecoverFromQ "block recovered from Q",
    RecoverTwo "two blocks recovered",
    ResyncParity "parity computed by a resync",
    ResyncParityDegraded "parity computed by a resync, a member is missing",
    ResyncCopies "copies written by a resync",
    RebuildBegan "rebuild began",
    RebuildStalled "rebuild stalled",
    RebuildCompleted "rebuild completed",
    RebuildNeeded "rebuild needed again: a member that was being rebuilt has failed",
    MemberJoined "device put into the slot of a lost member, beside the load",
    ResyncCancelled "resync cancelled",
    RebuildCancelled "rebuild cancelled",
    BegunAgain "cancelled resync or rebuild begun again",
    FlagsSet "device put into a slot with flags of its own",
    MemberInSync "rebuilt member recorded as in sync",
    RebuiltBelow "progress of a rebuild",
    StartRebuild "start: a rebuild continues",
    StartAddition "start: a new device in an empty slot",
    StartReplacement "start: a new device replaces a member",
    StartReplacing "start: a replacement continues",
    TakenOver "replacement recorded in place of the member that it has replaced",
    ReplacementGetsSlot "replacement takes the slot of a member that has failed",
    ReplacementFailed "replacement out of service",
    ReplacementJoined "device put in to replace a member, beside the load",
    SpareAdded "superblock of a spare written",
    SpareTaken "spare taken for the slot of a lost member",
    SpareReplaces "spare taken to replace a member",
    SpareFailed "spare out of service",
    SpareRemoved "spare has left the array",
    DeviceRemoved "failed device has left the array",
    FormerPutBack "former member put back while the array runs, by the bitmap",
    NumberGivenAgain "number of a device that has left given to another one",
    StartSpare "start: a spare is there",
    StartSpareTaken "start: a spare takes an empty slot",
    ReplacementLate "operation of a replacement late",
    ReplacedLate "operation of a member late that is being replaced",
    StartByBitmap "start: a former member is brought up to date by the bitmap",
    MemberFailed "member failed: an error",
    MemberFailedOnRequest "member failed: on request",
    IntentRequested "intent requested",
    IntentReleased "intent released",
    OutOfSync "range out of sync after a failed write",
    NotDurable "flush failed on a member that must stay",
    FlushOfShards "flush over several shards",
    Corrected "unreadable range corrected",
    BadBlocksAdded "what no source can be read of is in a new device's bad-block log",
    StartBadBlocks "start: a member with a bad-block log",
    OperationLate "operation of a member late",
    LateReleased "late operation has completed",
    BufferHeld "request completed, its buffer in use by a late operation",
    ReadAnew "read begun anew with another buffer",
    ScrubComparesRow "scrub compares data and parity",
    ScrubComparesCopies "scrub compares copies",
    MismatchNamed "mismatch found: the wrong block is known",
    MismatchUnknown "mismatch found: which block is wrong cannot be known",
    MismatchRepaired "mismatch repaired",
    FailOrdered "shard ordered to fail a member",
    LossRecorded "loss of a member recorded",
    LossNotRecorded "loss of a member not recorded",
    IntentGranted "intent granted",
    IntentNotGranted "intent not granted: no space",
    NoSpaceToRecord "loss of a member not recorded yet: no space",
    ShardReadOnly "shard ordered to be read-only",
    InSyncBelow "reads of all copies up to a position",
    SuperblockDirty "superblock round: dirty",
    SuperblockClean "superblock round: clean",
    BitmapPage "bitmap page written",
    BitmapHeader "bitmap header written",
    DeviceFailedByShard "device out of service: dropped by a shard",
    DeviceFailedByMetadata "device out of service: metadata cannot be written",
    ResyncNeeded "resync needed again",
    ReadOnlyMetadata "read-only: too few members hold the metadata",
    ReadOnlyMembers "read-only: too few members",
    StoppedClean "stopped clean",
    StoppedDirty "stopped dirty",
    ResyncBegan "resync began",
    ResyncStalled "resync stalled",
    ResyncCompleted "resync completed",
    RequestIo "request failed: EIO",
    RequestNoSpace "request failed: ENOSPC",
    RequestReadOnly "request failed: EROFS",
    StartClean "start: clean, complete",
    StartDirty "start: dirty, complete",
    StartDegraded "start: degraded",
    StartDirtyDegraded "start: dirty and degraded",
    StartStaleBitmap "start: bitmap older than the superblocks",
    StartTorn "start: a superblock is torn",
    StartRefused "start refused: dirty and degraded",
    StartForced "start by force: dirty and degraded",
    StartRefusedTorn "start refused: dirty, and the superblock of the first copy is torn",
    StaleMemberBack "start: a stale member is back and left out",
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// What is known of an operation's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowState {
    /// The same operation of the engine has read before.
    pub has_read: bool,
    /// A member is missing.
    pub is_degraded: bool,
    /// The level has Q.
    pub has_q: bool,
}

/// How often each mark was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks([u64; Mark::ALL.len()]);

impl Default for Marks {
    fn default() -> Marks {
        Marks([0; Mark::ALL.len()])
    }
}

impl Marks {
    /// Counts a mark.
    pub fn reach(&mut self, mark: Mark) {
        self.0[mark as usize] += 1;
    }

    /// How often it was reached.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0[mark as usize]
    }

    /// Adds others.
    pub fn add(&mut self, others: &Marks) {
        self.0.iter_mut().zip(&others.0).for_each(|(count, more)| *count += more);
    }

    /// Those that were not reached.
    pub fn missing(&self) -> Vec<Mark> {
        Mark::ALL.iter().copied().filter(|mark| self.count(*mark) == 0).collect()
    }

    pub(crate) fn event(&mut self, event: &ControlEvent) {
        self.reach(match event {
            ControlEvent::MemberFailed { error: Some(_), .. } => Mark::MemberFailed,
            ControlEvent::MemberFailed { error: None, .. } => Mark::MemberFailedOnRequest,
            ControlEvent::Intent { .. } => Mark::IntentRequested,
            ControlEvent::Released { .. } => Mark::IntentReleased,
            ControlEvent::OutOfSync { .. } => Mark::OutOfSync,
            ControlEvent::NotDurable { .. } => Mark::NotDurable,
            ControlEvent::CollectDirtyMembers | ControlEvent::Written { .. } => Mark::FlushOfShards,
            ControlEvent::Corrected { .. } => Mark::Corrected,
            ControlEvent::BadBlocksAdded { .. } => Mark::BadBlocksAdded,
            ControlEvent::RebuildBegan { .. } => Mark::MemberJoined,
            ControlEvent::Mismatch(Mismatch { repaired: true, .. }) => Mark::MismatchRepaired,
            ControlEvent::Mismatch(Mismatch { member: Some(_), .. }) => Mark::MismatchNamed,
            ControlEvent::Mismatch(_) => Mark::MismatchUnknown,
        });
    }

    pub(crate) fn control(&mut self, control: &Control) {
        self.reach(match control {
            Control::FailMember(_) => Mark::FailOrdered,
            Control::Recorded { .. } => Mark::LossRecorded,
            Control::NotRecorded { .. } => Mark::LossNotRecorded,
            Control::Granted { .. } => Mark::IntentGranted,
            Control::NotGranted { .. } => Mark::IntentNotGranted,
            Control::DoubtRecorded { .. } => Mark::DoubtRecorded,
            Control::NoSpaceToRecord => Mark::NoSpaceToRecord,
            Control::ReadOnly => Mark::ShardReadOnly,
            Control::TakeDirtyMembers | Control::Written { .. } => Mark::FlushOfShards,
            Control::NotDurable => Mark::NotDurable,
            Control::InSyncBelow { .. } => Mark::InSyncBelow,
            Control::BeginRebuild(_) => return,
            Control::OutOfSyncOnly { .. } => Mark::FormerPutBack,
            Control::SetFlags { flags, .. } if *flags == MemberFlags::default() => return,
            Control::SetFlags { .. } => Mark::FlagsSet,
            Control::BeginReplacement(_) => Mark::ReplacementJoined,
            Control::RebuiltBelow { .. } => Mark::RebuiltBelow,
            Control::EndRebuild(_) => Mark::MemberInSync,
            Control::EndReplacement(_) => Mark::TakenOver,
        });
    }

    pub(crate) fn metadata(&mut self, effect: &MetadataEffect) {
        let mark = match effect {
            MetadataEffect::WriteMeta { record: Record::Superblock(state), .. } => {
                match state.resync_offset {
                    Some(_) => Mark::SuperblockDirty,
                    None => Mark::SuperblockClean,
                }
            }
            MetadataEffect::WriteMeta { record: Record::Bitmap(page), .. } => match page.header {
                Some(_) => Mark::BitmapHeader,
                None => Mark::BitmapPage,
            },
            MetadataEffect::DeviceFailed { by: Some(_), .. } => Mark::DeviceFailedByShard,
            MetadataEffect::DeviceFailed { by: None, .. } => Mark::DeviceFailedByMetadata,
            MetadataEffect::ResyncNeeded => Mark::ResyncNeeded,
            MetadataEffect::RebuildNeeded => Mark::RebuildNeeded,
            MetadataEffect::BecameReadOnly { why } => match why {
                ReadOnlyReason::TooFewMembers { .. } => Mark::ReadOnlyMembers,
                _ => Mark::ReadOnlyMetadata,
            },
            MetadataEffect::Stopped { clean: true } => Mark::StoppedClean,
            MetadataEffect::Stopped { clean: false } => Mark::StoppedDirty,
            _ => return,
        };
        self.reach(mark);
    }

    pub(crate) fn background(&mut self, work: BackgroundWork, effect: &BackgroundEffect) {
        let is_resync = work == BackgroundWork::Resync;
        let mark = match effect {
            BackgroundEffect::Began { .. } if is_resync => Mark::ResyncBegan,
            BackgroundEffect::Began { .. } => Mark::RebuildBegan,
            BackgroundEffect::Stalled { .. } if is_resync => Mark::ResyncStalled,
            BackgroundEffect::Stalled { .. } => Mark::RebuildStalled,
            BackgroundEffect::Completed { .. } if is_resync => Mark::ResyncCompleted,
            BackgroundEffect::Completed { .. } => Mark::RebuildCompleted,
            _ => return,
        };
        self.reach(mark);
    }

    pub(crate) fn result(&mut self, result: Result<(), RequestError>) {
        match result {
            Err(RequestError::Io) => self.reach(Mark::RequestIo),
            Err(RequestError::NoSpace) => self.reach(Mark::RequestNoSpace),
            Err(RequestError::ReadOnly) => self.reach(Mark::RequestReadOnly),
            _ => {}
        }
    }

    /// Counts an operation.
    pub(crate) fn operation(&mut self, operation: &Operation, row: RowState) {
        match &operation.work {
            Work::Read { in_place: true } => self.reach(Mark::ReadInPlace),
            Work::Read { in_place: false } => {
                if operation.takes_no_lock() {
                    self.reach(Mark::DirectRead);
                }
            }
            Work::Write { fua: true } => self.reach(Mark::FuaWrite),
            Work::Write { .. } => {
                if operation.is_of_copies_resync() {
                    self.reach(Mark::ResyncCopies);
                }
            }
            Work::WriteLog { entries, .. } => {
                let logs = entries.iter().filter(|entry| entry.pp_bytes > 0).count();
                if logs > 0 {
                    self.reach(Mark::LogPartial);
                }
                if logs < entries.len() {
                    self.reach(Mark::LogFullStripe);
                }
                if logs > 1 {
                    self.reach(Mark::LogOfMany);
                }
                if row.is_degraded {
                    self.reach(Mark::LogDegraded);
                }
            }
            Work::Xor { .. } | Work::AddBadBlocks => {}
            Work::Flush { .. } => self.reach(Mark::MemberFlush),
            Work::Discard if operation.is_of_rows() => self.reach(Mark::RowsDiscard),
            Work::WriteZeroes if operation.is_of_rows() => self.reach(Mark::RowsZeroes),
            Work::Discard => self.reach(Mark::MemberDiscard),
            Work::WriteZeroes => self.reach(Mark::MemberZeroes),
            Work::Generate { p, q, sources } => {
                self.generate(p.is_some(), q.is_some(), sources, row);
            }
            Work::Update { p, q, .. } => {
                self.reach(match row.is_degraded {
                    false => Mark::ReadModifyWrite,
                    true => Mark::ReadModifyWriteDegraded,
                });
                self.without(p.is_some(), q.is_some(), row);
            }
            Work::FromP { .. } => self.reach(Mark::RecoverFromP),
            Work::FromQ { .. } => self.reach(Mark::RecoverFromQ),
            Work::Two { .. } => self.reach(Mark::RecoverTwo),
            Work::Check { .. } => self.reach(Mark::ScrubComparesRow),
            Work::Compare { .. } => self.reach(Mark::ScrubComparesCopies),
        }
    }

    fn generate(&mut self, p: bool, q: bool, sources: &[Source], row: RowState) {
        let zeroes = |source: &Source| source.slice.region == REGION_ZERO;
        let of_host = |source: &Source| Memory::is_host(source.slice.region);
        if sources.iter().any(zeroes) {
            self.reach(Mark::ZeroesInRow);
        } else if !sources.iter().any(of_host) {
            return self.reach(match row.is_degraded {
                false => Mark::ResyncParity,
                true => Mark::ResyncParityDegraded,
            });
        }
        self.reach(match (row.has_read, row.is_degraded) {
            (false, false) => Mark::FullStripe,
            (false, true) => Mark::FullStripeDegraded,
            (true, false) => Mark::ReconstructWrite,
            (true, true) => Mark::ReconstructWriteDegraded,
        });
        self.without(p, q, row);
    }

    fn without(&mut self, p: bool, q: bool, row: RowState) {
        if !p {
            self.reach(Mark::WithoutP);
        } else if !q && row.has_q {
            self.reach(Mark::WithoutQ);
        }
    }
}
