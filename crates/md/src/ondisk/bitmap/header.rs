//! The bitmap's header: 256 bytes, the bits follow.
//!
//! Invariant: decoding refuses only what is no bitmap header at all; whether md would run with it
//! is for [`BitmapHeader::check`] to say, so that `examine` can show a header that is refused.

use std::fmt;

use serde::Serialize;

use crate::ondisk::{DecodeError, Uuid, Version, fields};

/// Bytes of the header; bit 0 is in the byte behind it.
pub const HEADER_BYTES: usize = 256;

/// `bitm`, read as a little-endian number.
pub const MAGIC_NUMBER: u32 = 0x6d74_6962;

fields! {
    /// All fields of the header.
    pub const BITMAP_FIELDS = {
        MAGIC: "magic" at 0, 4;
        VERSION: "version" at 4, 4;
        UUID: "uuid" at 8, 16;
        EVENTS: "events" at 24, 8;
        EVENTS_CLEARED: "events_cleared" at 32, 8;
        SYNC_SIZE: "sync_size" at 40, 8;
        STATE: "state" at 48, 4;
        CHUNKSIZE: "chunksize" at 52, 4;
        DAEMON_SLEEP: "daemon_sleep" at 56, 4;
        WRITE_BEHIND: "write_behind" at 60, 4;
        SECTORS_RESERVED: "sectors_reserved" at 64, 4;
        NODES: "nodes" at 68, 4;
        CLUSTER_NAME: "cluster_name" at 72, 64;
        PAD: "pad" at 136, 120;
    }
}

/// State bit: the bitmap missed updates, its bits mean nothing.
pub const STATE_STALE: u32 = 0x2;
/// State bit: writing the bitmap failed; kept in memory by md, not expected on disk.
pub const STATE_WRITE_ERROR: u32 = 0x4;
/// State bit of version 6: not used yet, the kernel fills in the states.
pub const STATE_FIRST_USE: u32 = 0x8;
/// State bit of version 6: the array was stopped clean.
pub const STATE_CLEAN: u32 = 0x10;
/// State bit: bits are in longs of the machine that wrote them.
pub const STATE_HOST_ENDIAN: u32 = 0x8000;

/// The bits of `state`, as `docs/format` names them.
pub const BITMAP_STATES: &[(&str, u64)] = &[
    ("stale", STATE_STALE as u64),
    ("write_error", STATE_WRITE_ERROR as u64),
    ("first_use", STATE_FIRST_USE as u64),
    ("clean", STATE_CLEAN as u64),
    ("host_endian", STATE_HOST_ENDIAN as u64),
];

const VERSION_HOST_ENDIAN: u32 = 3;
const VERSION_PLAIN: u32 = 4;
const VERSION_CLUSTERED: u32 = 5;
const VERSION_LOCKLESS: u32 = 6;

/// The values of `version`, as `docs/format` names them.
pub const BITMAP_VERSIONS: &[(&str, u64)] = &[
    ("host-endian", VERSION_HOST_ENDIAN as u64),
    ("plain", VERSION_PLAIN as u64),
    ("clustered", VERSION_CLUSTERED as u64),
    ("lockless", VERSION_LOCKLESS as u64),
];

/// Smallest number of bytes that a bit can stand for.
pub(super) const MIN_CHUNK_BYTES: u32 = 512;
/// Largest `write_behind` that md accepts.
const MAX_WRITE_BEHIND: u32 = 16383;
/// Seconds after which idle bits are cleared, mdadm's choice.
const DAEMON_SLEEP_S: u32 = 5;

/// The kind of bitmap of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapKind {
    /// 3, obsolete: the order of bits is that of the machine that made it, and not recorded.
    HostEndian,
    /// 4: what mdadm makes; bit i is bit i % 8 of byte i / 8.
    Plain,
    /// 5 with nodes: one bitmap for each node of a cluster.
    Clustered,
    /// 6 (kernel 6.18): a byte of state where the others have a bit.
    Lockless,
}

/// The fields of the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BitmapHeader {
    /// 4 in new ones.
    pub version: u32,
    /// UUID of the array as stored: [`uuid_on_disk`] of the array's.
    pub uuid: Uuid,
    /// The array's event count when the header was written; written before the superblocks.
    pub events: u64,
    /// The event count when bits were last cleared while no member was missing.
    pub events_cleared: u64,
    /// Sectors covered; informative, md uses the array's own number.
    #[serde(rename = "sync_sectors")]
    pub sync_size: u64,
    /// State bits.
    pub state: u32,
    /// Bytes of the covered space that a bit stands for.
    pub chunk_bytes: u32,
    /// Seconds between rounds of clearing idle bits.
    pub daemon_sleep_s: u32,
    /// Writes that may be outstanding to write-mostly members.
    pub write_behind: u32,
    /// Room for the bitmap; 0: not recorded.
    pub sectors_reserved: u32,
    /// Nodes of the cluster.
    pub nodes: u32,
    /// Its name, NUL padded.
    #[serde(skip)]
    pub cluster_name: [u8; 64],
}

/// Why md refuses to start an array with this bitmap (docs/format/bitmap.md, Header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapProblem {
    /// Not 3, 4 or 5.
    Version(u32),
    /// Less than 512 bytes a bit.
    ChunkTooSmall(u32),
    /// Bytes a bit are no power of two.
    ChunkNotPowerOfTwo(u32),
    /// 0 seconds.
    DaemonSleep,
    /// More than 16383.
    WriteBehind(u32),
    /// It belongs to another array.
    Uuid {
        /// As found.
        found: Uuid,
        /// What this array's bitmap would have.
        expected: Uuid,
    },
}

impl BitmapProblem {
    fn field(self) -> crate::ondisk::Field {
        match self {
            BitmapProblem::Version(_) => VERSION,
            BitmapProblem::ChunkTooSmall(_) | BitmapProblem::ChunkNotPowerOfTwo(_) => CHUNKSIZE,
            BitmapProblem::DaemonSleep => DAEMON_SLEEP,
            BitmapProblem::WriteBehind(_) => WRITE_BEHIND,
            BitmapProblem::Uuid { .. } => UUID,
        }
    }

    fn problem(self) -> String {
        match self {
            BitmapProblem::Version(VERSION_LOCKLESS) => {
                "6, lockless (Linux 6.18): the array can be read here, not started".to_string()
            }
            BitmapProblem::Version(version) => format!("{version}, none of 3, 4, 5"),
            BitmapProblem::ChunkTooSmall(bytes) => format!("{bytes} bytes, less than 512"),
            BitmapProblem::ChunkNotPowerOfTwo(bytes) => {
                format!("{bytes} bytes, not a power of two")
            }
            BitmapProblem::DaemonSleep => "0 seconds".to_string(),
            BitmapProblem::WriteBehind(writes) => {
                format!("{writes}, more than {MAX_WRITE_BEHIND}")
            }
            BitmapProblem::Uuid { found, expected } => {
                format!("{found}, this array's is {expected}")
            }
        }
    }
}

impl fmt::Display for BitmapProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DecodeError::from(*self).fmt(f)
    }
}

impl std::error::Error for BitmapProblem {}

impl From<BitmapProblem> for DecodeError {
    fn from(problem: BitmapProblem) -> DecodeError {
        error(problem.field(), problem.problem())
    }
}

pub(super) fn error(field: crate::ondisk::Field, problem: String) -> DecodeError {
    DecodeError {
        structure: "bitmap",
        field: field.name,
        offset: field.offset,
        problem: problem.into(),
    }
}

/// The identity that a bitmap of this array carries. 1.x: the array's bytes. 0.90: its four words
/// as they are in memory, each group of [`Uuid`]'s order reversed.
pub fn uuid_on_disk(set_uuid: Uuid, version: Version) -> Uuid {
    let mut uuid = set_uuid;
    if version == Version::V0_90 {
        uuid.0.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    }
    uuid
}

impl BitmapHeader {
    /// The header of a new bitmap, as mdadm makes it: nothing was cleared yet.
    pub fn new(uuid: Uuid, events: u64, sync_size: u64, chunk_bytes: u32) -> BitmapHeader {
        BitmapHeader {
            version: VERSION_PLAIN,
            uuid,
            events,
            events_cleared: events,
            sync_size,
            state: 0,
            chunk_bytes,
            daemon_sleep_s: DAEMON_SLEEP_S,
            write_behind: 0,
            sectors_reserved: 0,
            nodes: 0,
            cluster_name: [0; 64],
        }
    }

    /// The header at the start of `bytes`.
    ///
    /// # Errors
    /// Fewer than 256 bytes, or another magic number. Nothing else is judged here.
    pub fn decode(bytes: &[u8]) -> Result<BitmapHeader, DecodeError> {
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            return Err(error(PAD, format!("{} bytes, the header has 256", bytes.len())));
        };
        let magic = MAGIC.u32(bytes);
        if magic != MAGIC_NUMBER {
            return Err(error(MAGIC, format!("{magic:#010x}, not {MAGIC_NUMBER:#010x}")));
        }
        Ok(BitmapHeader {
            version: VERSION.u32(bytes),
            uuid: Uuid(UUID.array(bytes)),
            events: EVENTS.u64(bytes),
            events_cleared: EVENTS_CLEARED.u64(bytes),
            sync_size: SYNC_SIZE.u64(bytes),
            state: STATE.u32(bytes),
            chunk_bytes: CHUNKSIZE.u32(bytes),
            daemon_sleep_s: DAEMON_SLEEP.u32(bytes),
            write_behind: WRITE_BEHIND.u32(bytes),
            sectors_reserved: SECTORS_RESERVED.u32(bytes),
            nodes: NODES.u32(bytes),
            cluster_name: CLUSTER_NAME.array(bytes),
        })
    }

    /// The header's bytes; the padding is 0.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        MAGIC.put(&mut bytes, &MAGIC_NUMBER.to_le_bytes());
        VERSION.put(&mut bytes, &self.version.to_le_bytes());
        UUID.put(&mut bytes, &self.uuid.0);
        EVENTS.put(&mut bytes, &self.events.to_le_bytes());
        EVENTS_CLEARED.put(&mut bytes, &self.events_cleared.to_le_bytes());
        SYNC_SIZE.put(&mut bytes, &self.sync_size.to_le_bytes());
        STATE.put(&mut bytes, &self.state.to_le_bytes());
        CHUNKSIZE.put(&mut bytes, &self.chunk_bytes.to_le_bytes());
        DAEMON_SLEEP.put(&mut bytes, &self.daemon_sleep_s.to_le_bytes());
        WRITE_BEHIND.put(&mut bytes, &self.write_behind.to_le_bytes());
        SECTORS_RESERVED.put(&mut bytes, &self.sectors_reserved.to_le_bytes());
        NODES.put(&mut bytes, &self.nodes.to_le_bytes());
        CLUSTER_NAME.put(&mut bytes, &self.cluster_name);
        bytes
    }

    /// Whether md 6.12 would start the array with it; `uuid` is [`uuid_on_disk`] of the array's.
    ///
    /// # Errors
    /// The first problem, in the order of the fields.
    pub fn check(&self, uuid: Uuid) -> Result<(), BitmapProblem> {
        if matches!(self.kind(), None | Some(BitmapKind::Lockless)) {
            return Err(BitmapProblem::Version(self.version));
        }
        if self.uuid != uuid {
            return Err(BitmapProblem::Uuid { found: self.uuid, expected: uuid });
        }
        check_chunk(self.chunk_bytes)?;
        if self.daemon_sleep_s == 0 {
            return Err(BitmapProblem::DaemonSleep);
        }
        if self.write_behind > MAX_WRITE_BEHIND {
            return Err(BitmapProblem::WriteBehind(self.write_behind));
        }
        Ok(())
    }

    /// What the version stands for; version 5 without nodes works as 4. `None`: unknown.
    pub fn kind(&self) -> Option<BitmapKind> {
        match self.version {
            VERSION_HOST_ENDIAN => Some(BitmapKind::HostEndian),
            VERSION_PLAIN => Some(BitmapKind::Plain),
            VERSION_CLUSTERED if self.nodes == 0 => Some(BitmapKind::Plain),
            VERSION_CLUSTERED => Some(BitmapKind::Clustered),
            VERSION_LOCKLESS => Some(BitmapKind::Lockless),
            _ => None,
        }
    }

    /// Whether updates of the array passed it by. More events than the superblock's are no problem:
    /// the bitmap is written first.
    pub fn is_stale(&self, superblock_events: u64) -> bool {
        self.events < superblock_events || self.state & STATE_STALE != 0
    }

    /// Whether a member whose last event count is `member_events` can come back with only the set
    /// bits recovered: no bit was cleared since it left.
    pub fn covers_since(&self, member_events: u64) -> bool {
        member_events >= self.events_cleared
    }
}

pub(super) fn check_chunk(chunk_bytes: u32) -> Result<(), BitmapProblem> {
    if chunk_bytes < MIN_CHUNK_BYTES {
        return Err(BitmapProblem::ChunkTooSmall(chunk_bytes));
    }
    if !chunk_bytes.is_power_of_two() {
        return Err(BitmapProblem::ChunkNotPowerOfTwo(chunk_bytes));
    }
    Ok(())
}
