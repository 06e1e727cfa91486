//! What the metadata manager is told and what it wants done: plain values.
//!
//! Records say what the array is now; whoever performs the effects turns them into bytes with the
//! codecs of `md::ondisk`, and knows where on which device they go.

use std::sync::Arc;

use md::ondisk::superblock::ArrayState;
use md::{Geometry, MemberIdx};

use crate::{Control, ControlEvent, MemberError, RequestError};

/// A resync's progress is recorded at least this often: 5 minutes, as md does.
pub const DEFAULT_CHECKPOINT_NANOS: u64 = 300_000_000_000;

/// Bitmaps are written in pages of this size; page 0 begins with the header (256 bytes).
pub const BITMAP_PAGE_BYTES: usize = 4096;

/// md's permanent number of a device (`dev_number`): the index in the table of roles, not a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u32);

/// Comes back with the outcome of a [`MetadataEffect::WriteMeta`] or [`MetadataEffect::Flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetaToken(pub u64);

/// A device that carries the array's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManagedDevice {
    /// Its permanent number.
    pub number: DeviceNumber,
    /// The slot that it serves; `None`: a spare, or one that is not in sync and that writes pass by
    /// (its state has a slot).
    pub slot: Option<MemberIdx>,
    /// The count of its own superblock.
    pub events: u64,
}

/// The write-intent bitmap as it was read.
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
    /// The bitmap is older than the superblocks (or says so): every bit counts as set.
    pub stale: bool,
}

/// What a metadata manager starts from: what the assembly found.
#[derive(Clone, Debug)]
pub struct MetadataConfig {
    /// The array.
    pub geometry: Geometry,
    /// Shards that serve it, numbered from 0.
    pub shards: u16,
    /// The devices to write to: those that serve, and spares. Who is missing is not among them.
    pub devices: Vec<ManagedDevice>,
    /// What the array is started as: events, resync position, policy, and all device numbers, with
    /// the `recovery_offset` of who is being rebuilt.
    pub state: ArrayState,
    /// What the freshest superblock says, which may be another resync position, or another role of
    /// a device: a start may be forced, or have replayed a log. For members that are behind it.
    pub found: ArrayState,
    /// The bitmap, where the array has one.
    pub bitmap: Option<ManagedBitmap>,
    /// A superblock is longer than the members' atomic sector: written to one member after the
    /// other, so that a crash tears one copy at most.
    pub superblocks_in_turn: bool,
    /// See [`DEFAULT_CHECKPOINT_NANOS`].
    pub checkpoint_nanos: u64,
}

/// The changing fields of the bitmap's header; the others stay as they were read, with the state's
/// stale bit cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapHeader {
    /// At least the superblocks' count.
    pub events: u64,
    /// Count at which bits were last cleared while the array was complete.
    pub events_cleared: u64,
}

/// A page of the bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitmapPage {
    /// Page of the bitmap, header included: byte `page * 4096` of its area.
    pub page: u32,
    /// On page 0, to be put in front of the bits; `None` there: the header stays as it was read,
    /// that of a stale bitmap with its stale count or state.
    pub header: Option<BitmapHeader>,
    /// The page's bits: byte 256 of page 0, byte 0 of every other page onwards. Whole bytes; the
    /// last page ends with the last bit's byte, what follows on disk does not matter.
    pub bits: Vec<u8>,
}

/// A typed piece of metadata for one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The device's superblock: what `Superblock::with_state` makes of this. The time (`updated`)
    /// is left to whoever has a clock. The policy turns from PPL to resync while the array is
    /// dirty, and back at a clean stop: who encodes remembers where the log was.
    Superblock(Arc<ArrayState>),
    /// A page of the device's bitmap.
    Bitmap(Arc<BitmapPage>),
    /// A PPL header without entries, at the start of the device's log.
    EmptyPpl,
}

/// One input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataInput {
    /// A shard says something. Events that are not for the metadata manager are ignored.
    FromShard {
        /// Which.
        shard: u16,
        /// What.
        event: ControlEvent,
    },
    /// A write of metadata or a flush ended.
    MetaDone {
        /// From the effect.
        token: MetaToken,
        /// How it ended.
        result: Result<(), MemberError>,
    },
    /// The time asked for with [`MetadataEffect::SetTimer`] has come.
    Timer,
    /// A resync has come so far: see [`crate::Resync::position`].
    ResyncAt {
        /// [`crate::Resync::run`]; reports of a run that is out of date are ignored.
        run: u32,
        /// Everything below is in sync.
        position: u64,
        /// See [`crate::Resync::stalled`].
        stalled: Option<RequestError>,
    },
    /// Hosts are gone and their requests have ended: make the metadata clean, answer
    /// [`MetadataEffect::Stopped`].
    Stop,
    /// No more writes: make the metadata clean, answer [`MetadataEffect::BecameReadOnly`].
    ReadOnly,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetadataEffect {
    /// Write a record. It is durable when it is reported done: FUA, or a write and a flush. Writes
    /// that are out together may be performed in any order.
    WriteMeta {
        /// Comes back with the outcome.
        token: MetaToken,
        /// Whom.
        device: DeviceNumber,
        /// What.
        record: Record,
    },
    /// Make everything that the device has completed durable.
    Flush {
        /// Comes back with the outcome.
        token: MetaToken,
        /// Whom.
        device: DeviceNumber,
    },
    /// Send [`MetadataInput::Timer`] at or after `at`. A later one replaces an earlier one.
    SetTimer {
        /// In the clock that `handle` is called with.
        at: u64,
    },
    /// For a shard.
    ToShard {
        /// Which.
        shard: u16,
        /// What.
        control: Control,
    },
    /// A device is out: its metadata could not be written, or a shard dropped it. Nothing is
    /// written to it any more.
    DeviceFailed {
        /// Who.
        device: DeviceNumber,
        /// The slot that it served.
        slot: Option<MemberIdx>,
        /// What it did, or `None` when it was told to go.
        error: Option<MemberError>,
        /// The shard that dropped it; `None`: its metadata could not be written.
        by: Option<u16>,
    },
    /// Redundancy was lost somewhere (a write ended half-way): a new [`crate::MetadataManager::resync`]
    /// should take the place of what runs.
    ResyncNeeded,
    /// Nothing is written any more.
    BecameReadOnly {
        /// Why.
        why: ReadOnlyReason,
    },
    /// Answer to [`MetadataInput::Stop`]; the metadata manager does nothing more.
    Stopped {
        /// The metadata says that the array was stopped cleanly. Otherwise the next start does what
        /// it does after a crash.
        clean: bool,
    },
}

/// Why nothing is written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOnlyReason {
    /// The host asked for it.
    Ordered,
    /// Too few members can hold the metadata: without this one the array could not be assembled.
    MetadataUnwritable {
        /// Whose metadata could not be written last.
        device: DeviceNumber,
    },
    /// Shards lost so many members that the array cannot be assembled from the others.
    TooFewMembers {
        /// Who went last.
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

/// What the metadata manager lets happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataMode {
    /// Writes.
    Running,
    /// No more writes; the metadata is being made clean.
    Closing,
    /// No writes.
    ReadOnly(ReadOnlyReason),
    /// Nothing.
    Stopped,
}

/// What the metadata manager knows, for people and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataStatus {
    /// What it lets happen.
    pub mode: MetadataMode,
    /// Event count on the members.
    pub events: u64,
    /// The members say that writes are under way.
    pub dirty: bool,
    /// Redundancy holds below this position; `None`: everywhere.
    pub resync_offset: Option<u64>,
    /// Why the resync does not come further for now, where it does not.
    pub resync_stalled: Option<RequestError>,
    /// Slots that nobody serves, or not all of it.
    pub degraded: usize,
    /// Intents that shards hold.
    pub held: u64,
    /// Bits that may be set in the bitmap.
    pub bits_set: u64,
}
