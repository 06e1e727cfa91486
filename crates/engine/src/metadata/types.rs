//! Inputs and effects of the metadata manager: plain values.
//!
//! Records describe the array's current state; the executor encodes them with the codecs of
//! `md::ondisk`, and determines their location on each device.

use std::sync::Arc;

use md::ondisk::superblock::ArrayState;
use md::{Geometry, MemberIdx};

use crate::{Control, ControlEvent, IoError, MemberFlags, MemberSet, RequestError};

/// A resync's progress is recorded at least this often: 5 minutes, as md does.
pub const DEFAULT_CHECKPOINT_NANOS: u64 = 300_000_000_000;

/// Bits are set as far ahead of requests that they need not be set more often than about ten times
/// a second: writes wait for that, and members flush.
pub const DEFAULT_BITS_AHEAD_NANOS: u64 = 100_000_000;

/// Bitmaps are written in pages of this size; page 0 begins with the header (256 bytes).
pub const BITMAP_PAGE_BYTES: usize = 4096;

/// md's permanent device number (`dev_number`): the index in the table of roles, not a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u32);

/// Token that links a completion to its [`MetadataEffect::WriteMeta`] or [`MetadataEffect::Flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetaToken(pub u64);

/// A device with the array's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedDevice {
    /// Number of the device, which never changes.
    pub number: DeviceNumber,
    /// The slot that it serves, or is rebuilt for (its state has a recovery offset); `None`: a
    /// spare, or a device that is not in sync and gets no writes (its state has a slot).
    pub slot: Option<MemberIdx>,
    /// It replaces the slot's member, which still serves.
    pub replaces: bool,
    /// The event count of its own superblock.
    pub events: u64,
    /// It is a spare that may take any slot.
    pub is_spare: bool,
}

/// The write-intent bitmap as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedBitmap {
    /// Positions per bit: see [`crate::IntentMap::bitmap`].
    pub chunk_sectors: u64,
    /// The header's `daemon_sleep`.
    pub daemon_sleep_nanos: u64,
    /// The header's `events_cleared`.
    pub events_cleared: u64,
    /// The bits as on disk, from bit 0, least significant first; missing ones count as set.
    pub bits: Vec<u8>,
    /// The bitmap is older than the superblocks (or marked stale): every bit counts as set.
    pub stale: bool,
}

/// Initial state of a metadata manager, from the assembly.
#[derive(Clone, Debug)]
pub struct MetadataConfig {
    /// The array's geometry.
    pub geometry: Geometry,
    /// Number of shards that serve it.
    pub shards: u16,
    /// The devices to write to: serving devices, and spares. Missing members are not included.
    pub devices: Vec<ManagedDevice>,
    /// The state that the array is started with: event count, resync position, policy, and all
    /// device numbers, with the `recovery_offset` of devices under rebuild.
    pub state: ArrayState,
    /// The state in the freshest superblock, for members that are behind it. It may have another
    /// resync position, or another role of a device: a start may be forced, or have replayed a log.
    pub found: ArrayState,
    /// The bitmap, if the array has one.
    pub bitmap: Option<ManagedBitmap>,
    /// A superblock is longer than an atomic write of the members: written to one member after the
    /// other, so that a crash tears one copy at most.
    pub superblocks_in_turn: bool,
    /// Interval of resync checkpoints; see [`DEFAULT_CHECKPOINT_NANOS`].
    pub checkpoint_nanos: u64,
    /// Bits are set ahead of requests where they are set more often than this; see
    /// [`DEFAULT_BITS_AHEAD_NANOS`]. 0: none is.
    pub bits_ahead_nanos: u64,
}

/// The changing fields of the bitmap's header; the others stay as read, with the stale bit of the
/// state cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapHeader {
    /// At least the event count of the superblocks.
    pub events: u64,
    /// Event count at which bits were last cleared while the array was complete.
    pub events_cleared: u64,
}

/// A page of the bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapPage {
    /// Page of the bitmap, header included: byte `page * 4096` of its area.
    pub page: u32,
    /// On page 0, the header in front of the bits; `None` there: the header on disk is unchanged,
    /// that of a stale bitmap with its stale event count or state.
    pub header: Option<BitmapHeader>,
    /// The page's bits: from byte 256 of page 0, from byte 0 of every other page. Whole bytes; the
    /// last page ends with the byte of the last bit, later bytes on disk are undefined.
    pub bits: Vec<u8>,
}

/// A typed piece of metadata for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The device's superblock, encoded by `Superblock::with_state`. The executor sets the time
    /// (`updated`), one for all devices: [`super::UpdateTimes`]. The policy changes from PPL to
    /// resync while a resync is needed: the executor
    /// keeps the location of the log.
    Superblock(Arc<ArrayState>),
    /// A page of the device's bitmap.
    Bitmap(Arc<BitmapPage>),
    /// A header without entries at the start of the device's partial parity log, newer than all
    /// others.
    EndPpl,
    /// Zeroes behind that header.
    EmptyPpl,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataInput {
    /// An event of a shard. Irrelevant events are ignored.
    FromShard {
        /// Number of the shard.
        shard: u16,
        /// Event of that shard.
        event: ControlEvent,
    },
    /// A metadata write or a flush completed.
    MetaDone {
        /// Token of the effect.
        token: MetaToken,
        /// Result of the operation.
        result: Result<(), IoError>,
    },
    /// The time set with [`MetadataEffect::SetTimer`] has passed.
    Timer,
    /// Progress of a resync: see [`crate::Walk::position`].
    ResyncAt {
        /// [`crate::Walk::run`]; reports of an earlier run are ignored.
        run: u32,
        /// Everything below is in sync.
        position: u64,
        /// Error of a stalled resync; see [`crate::Walk::stalled`].
        stalled: Option<RequestError>,
    },
    /// Progress of a rebuild: see [`crate::BackgroundLoop`].
    RebuildAt {
        /// Number of the run; reports of an earlier one are ignored.
        run: u32,
        /// Its place (see [`crate::Effect`]); `None`: all that are being rebuilt.
        member: Option<MemberIdx>,
        /// Everything below is in sync, in sectors of the data area.
        position: u64,
        /// Error of a stalled rebuild.
        stalled: Option<RequestError>,
    },
    /// Record how far resyncs and rebuilds have come, without waiting for more: they are cancelled.
    /// Superblocks of a dirty array have no position of a resync; then it is the next clean ones
    /// that have it.
    Checkpoint,
    /// A device for an empty slot, which no superblock lists: it is rebuilt. Ignored where
    /// [`crate::MetadataManager::may_join`] refuses it.
    Join {
        /// Its number, which no other device in service has.
        number: DeviceNumber,
        /// The slot.
        member: MemberIdx,
        /// Its flags, which its superblock is to have.
        flags: MemberFlags,
        /// It was the slot's member, in sync, and has missed what came after this event count: what
        /// the bitmap marks is rebuilt, where the bitmap covers that
        /// ([`crate::MetadataManager::bitmap_covers`]). `None`: all of it.
        former: Option<u64>,
    },
    /// A device that no superblock lists becomes a spare of the array, which the superblocks
    /// record. Ignored where [`crate::MetadataManager::may_add_spare`] refuses it.
    AddSpare {
        /// Its number, which no other device in service has.
        number: DeviceNumber,
        /// Its flags, which its superblock is to have.
        flags: MemberFlags,
    },
    /// A failed device or a spare leaves the array: answered by [`MetadataEffect::Removed`] when
    /// the superblocks of the others do not list it any more. Ignored where
    /// [`crate::MetadataManager::may_remove`] refuses it.
    Remove {
        /// Number of the device.
        number: DeviceNumber,
    },
    /// A device that is to replace the member of a slot: a spare, or one that no superblock lists.
    /// Ignored where [`crate::MetadataManager::may_replace`] refuses it.
    Replace {
        /// Its number: a spare's, or one that no other device in service has.
        number: DeviceNumber,
        /// The slot.
        member: MemberIdx,
        /// Its flags, unless it is a spare.
        flags: MemberFlags,
    },
    /// What replaces the member of this slot, or is to do so, is taken out of service. Ignored if
    /// there is nothing.
    CancelReplacement {
        /// The slot.
        member: MemberIdx,
    },
    /// A device that [`MetadataEffect::Join`] named for this place cannot be bound to it: no shard
    /// has.
    JoinFailed {
        /// The place.
        place: MemberIdx,
    },
    /// Stop: all host requests have completed. The metadata are marked clean; answered by
    /// [`MetadataEffect::Stopped`].
    Stop,
    /// Become read-only: the metadata are marked clean; answered by
    /// [`MetadataEffect::BecameReadOnly`].
    ReadOnly,
}

/// One effect of the metadata manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataEffect {
    /// Writes a record. It must be durable when it is reported complete: FUA, or a write and a
    /// flush. Writes in flight may be performed in any order.
    WriteMeta {
        /// Token of the completion.
        token: MetaToken,
        /// The device to write to.
        device: DeviceNumber,
        /// The record.
        record: Record,
    },
    /// Makes everything that the device has completed durable.
    Flush {
        /// Token of the completion.
        token: MetaToken,
        /// The device to flush.
        device: DeviceNumber,
    },
    /// Requests [`MetadataInput::Timer`] at or after `at`. A later one replaces an earlier one.
    SetTimer {
        /// Nanoseconds of the clock that `handle` is called with.
        at: u64,
    },
    /// Sends a command to a shard.
    ToShard {
        /// Number of the shard.
        shard: u16,
        /// The command.
        control: Control,
    },
    /// A device is out of service: its metadata could not be written, or a shard dropped it. It is
    /// not written any more.
    DeviceFailed {
        /// The failed device.
        device: DeviceNumber,
        /// The slot that it served, or was to serve in place of its member.
        slot: Option<MemberIdx>,
        /// It was to replace the slot's member.
        replaces: bool,
        /// The error, or `None` if it was failed on request.
        error: Option<IoError>,
        /// The shard that dropped it; `None`: its metadata could not be written.
        by: Option<u16>,
    },
    /// Bind this device to a place (see [`crate::Effect`]) in every shard, when nothing there is in
    /// service, and nothing in flight: each gets [`Control::BeginRebuild`], and must have dropped
    /// the slot's former member; or [`Control::BeginReplacement`].
    Join {
        /// The device.
        device: DeviceNumber,
        /// The place.
        place: MemberIdx,
        /// It is to replace the slot's member.
        replaces: bool,
    },
    /// A device has left the array: no superblock lists it, nothing is written to it any more, and
    /// its number may be given to another one.
    Removed {
        /// The device.
        device: DeviceNumber,
        /// The place where shards have had it, if no other device has been put there since.
        place: Option<MemberIdx>,
    },
    /// Other members are to be rebuilt than before: new [`crate::MetadataManager::rebuilds`] should
    /// replace the running ones.
    RebuildNeeded,
    /// A member that was being rebuilt is in sync, and the metadata record it; or a replacement has
    /// taken the slot of the member that it replaces, which is faulty from now on.
    MemberInSync {
        /// Number of the device.
        device: DeviceNumber,
        /// Slot of the device.
        member: MemberIdx,
    },
    /// Redundancy was lost (a write failed half-way): a new [`crate::MetadataManager::resync`]
    /// should replace the running one.
    ResyncNeeded,
    /// The array is read-only now.
    BecameReadOnly {
        /// The reason.
        why: ReadOnlyReason,
    },
    /// Answer to [`MetadataInput::Stop`]; the metadata manager does nothing more.
    Stopped {
        /// Whether the superblocks are clean. Otherwise the next start treats the array as after a
        /// crash.
        clean: bool,
    },
}

/// Why the array is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnlyReason {
    /// By order of the host.
    Ordered,
    /// Too few members can hold the metadata: without this one the array could not be assembled.
    MetadataUnwritable {
        /// The last device whose metadata could not be written.
        device: DeviceNumber,
    },
    /// Too many members failed: the array cannot be assembled from the others.
    TooFewMembers {
        /// The last device that failed.
        device: DeviceNumber,
    },
}

impl std::fmt::Display for ReadOnlyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadOnlyReason::Ordered => write!(f, "on request"),
            ReadOnlyReason::MetadataUnwritable { device } => write!(
                f,
                "metadata of device {} cannot be written, and without it too few members are left",
                device.0
            ),
            ReadOnlyReason::TooFewMembers { device } => {
                write!(f, "device {} failed, and without it too few members are left", device.0)
            }
        }
    }
}

/// Operating mode of the metadata manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataMode {
    /// Writes are permitted.
    Running,
    /// No more writes; the metadata are being marked clean.
    Closing,
    /// No writes.
    ReadOnly(ReadOnlyReason),
    /// Stopped: no more inputs are processed.
    Stopped,
}

/// Why no device can replace the member of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplaceRefusal {
    /// The slot has no member that is in sync.
    NoMember,
    /// Something replaces it already, or is to do so.
    Replaced,
    /// The array has a partial parity log.
    PartialParityLog,
    /// There are not as many places as that takes.
    TooManyMembers,
    /// The level has no redundancy, and its superblocks are never written.
    NoRedundancy,
    /// The array is read-only, is being stopped, or cannot make its data durable.
    NotRunning,
}

impl std::fmt::Display for ReplaceRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ReplaceRefusal::NoMember => "the slot has no member that is in sync",
            ReplaceRefusal::Replaced => "the slot's member is being replaced already",
            ReplaceRefusal::PartialParityLog => {
                "an array with a partial parity log replaces no members, because a log counts only \
                 while its device has its slot"
            }
            ReplaceRefusal::TooManyMembers => "members of arrays of up to 127 can be replaced",
            ReplaceRefusal::NoRedundancy => "members of this level cannot be replaced",
            ReplaceRefusal::NotRunning => "the array takes no writes any more",
        })
    }
}

impl std::error::Error for ReplaceRefusal {}

/// Why no device can be put into a slot, or become a spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// The slot has a member, or one is being put into it.
    NotEmpty,
    /// A device of the array has the number.
    Number,
    /// The level has no redundancy, and its superblocks are never written.
    NoRedundancy,
    /// The array is read-only, is being stopped, or cannot make its data durable.
    NotRunning,
}

/// Why a device cannot leave the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveRefusal {
    /// The array has no device with this number.
    Unknown,
    /// It is in sync in this slot.
    InSync(MemberIdx),
    /// It is being rebuilt for this slot, or is being put into it.
    Rebuilding(MemberIdx),
    /// It is to replace the member of this slot.
    Replaces(MemberIdx),
    /// The level has no redundancy, and its superblocks are never written.
    NoRedundancy,
    /// The array is read-only, is being stopped, or cannot make its data durable.
    NotRunning,
}

impl std::fmt::Display for RemoveRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RemoveRefusal::Unknown => write!(f, "the array has no such device"),
            RemoveRefusal::InSync(slot) => {
                write!(f, "is in sync in slot {}: fail it first", slot.0)
            }
            RemoveRefusal::Rebuilding(slot) => {
                write!(f, "is being rebuilt for slot {}: fail it first", slot.0)
            }
            RemoveRefusal::Replaces(slot) => write!(
                f,
                "is to replace the member of slot {}: cancel the replacement first",
                slot.0
            ),
            RemoveRefusal::NoRedundancy => write!(f, "no member of this level can be missing"),
            RemoveRefusal::NotRunning => write!(f, "the array takes no writes any more"),
        }
    }
}

impl std::error::Error for RemoveRefusal {}

/// Status of the metadata manager, for monitoring and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataStatus {
    /// Current mode.
    pub mode: MetadataMode,
    /// Event count on the members.
    pub events: u64,
    /// The superblocks are marked dirty.
    pub dirty: bool,
    /// The superblocks say active as they were found, although no resync is to be done: nothing has
    /// been written since a start by force, which makes a guess of what is lost.
    pub found_active: bool,
    /// The array is in sync below this position; `None`: everywhere.
    pub resync_offset: Option<u64>,
    /// Error of a stalled resync, if it is stalled.
    pub resync_stalled: Option<RequestError>,
    /// Members that are being rebuilt.
    pub rebuilding: MemberSet,
    /// Members that are being replaced, until the superblocks record the end of that.
    pub replacing: MemberSet,
    /// Sectors of these members and replacements that were out of sync when their rebuilds began,
    /// all together, and how many of them are in sync.
    pub rebuild_sectors: (u64, u64),
    /// Error of a stalled rebuild, if it is stalled.
    pub rebuild_stalled: Option<RequestError>,
    /// Number of devices that are being put into slots.
    pub joining: usize,
    /// Number of slots that are not served, or not completely.
    pub degraded: usize,
    /// Number of intents that shards hold.
    pub held: u64,
    /// Number of bits that may be set in the bitmap.
    pub bits_set: Option<u64>,
}

/// A device of the array, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Number of the device, which never changes.
    pub number: DeviceNumber,
    /// The slot that it serves or is to get; of a failed one, the slot that it had.
    pub slot: Option<MemberIdx>,
    /// It replaces the slot's member, or is to do so.
    pub replaces: bool,
    /// What it does for the array.
    pub condition: DeviceCondition,
}

/// What a device does for its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCondition {
    /// It serves its slot, and the superblocks record that all of it is in sync.
    InSync,
    /// It is being rebuilt, or filled as a replacement.
    Rebuilding {
        /// All below this sector of its data area is in sync.
        position: u64,
        /// Sectors of its data area that the array uses.
        sectors: u64,
    },
    /// It is being put into its slot, or is to be a spare and is not recorded yet.
    Joining,
    /// It waits for a slot.
    Spare,
    /// The superblocks give it a slot that it does not serve: it is not in sync, and gets no
    /// writes.
    PassedBy,
    /// It is out of service.
    Failed,
}
