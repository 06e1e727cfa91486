//! Superblock 1.x as it is on disk: fields, plain value, bytes to value and back.
//!
//! Format: `docs/format/superblock-1.md`. Invariant: no byte that the checksum covers is lost;
//! what was decoded encodes to the same bytes, reserved and unknown ones included. Whether the
//! values make sense is not judged here (`refusal`), nor what they mean (`v1_metadata`).

use std::borrow::Cow;

use serde::Serialize;

use super::Checksum;
use super::checksum::fold;
use crate::ondisk::{DecodeError, Timestamp, Uuid, Version, fields};

/// First word of every superblock, of 0.90 too.
pub(super) const MAGIC_WORD: u32 = 0xa92b_4efc;

/// Length without the roles.
pub const HEADER_BYTES: usize = 256;

/// Roles that fit into the 4096 bytes which are read.
pub const ROLES_MAX: usize = (4096 - HEADER_BYTES) / 2;

const STRUCTURE: &str = "superblock-1";

fields! {
    /// All fields in front of the roles.
    pub const FIELDS = {
        MAGIC: "magic" at 0, 4;
        MAJOR_VERSION: "major_version" at 4, 4;
        FEATURE_MAP: "feature_map" at 8, 4;
        PAD0: "pad0" at 12, 4;
        SET_UUID: "set_uuid" at 16, 16;
        SET_NAME: "set_name" at 32, 32;
        CTIME: "ctime" at 64, 8;
        LEVEL: "level" at 72, 4;
        LAYOUT: "layout" at 76, 4;
        SIZE: "size" at 80, 8;
        CHUNKSIZE: "chunksize" at 88, 4;
        RAID_DISKS: "raid_disks" at 92, 4;
        BITMAP_OFFSET: "bitmap_offset" at 96, 4;
        NEW_LEVEL: "new_level" at 100, 4;
        RESHAPE_POSITION: "reshape_position" at 104, 8;
        DELTA_DISKS: "delta_disks" at 112, 4;
        NEW_LAYOUT: "new_layout" at 116, 4;
        NEW_CHUNK: "new_chunk" at 120, 4;
        NEW_OFFSET: "new_offset" at 124, 4;
        DATA_OFFSET: "data_offset" at 128, 8;
        DATA_SIZE: "data_size" at 136, 8;
        SUPER_OFFSET: "super_offset" at 144, 8;
        RECOVERY_OFFSET: "recovery_offset" at 152, 8;
        DEV_NUMBER: "dev_number" at 160, 4;
        CNT_CORRECTED_READ: "cnt_corrected_read" at 164, 4;
        DEVICE_UUID: "device_uuid" at 168, 16;
        DEVFLAGS: "devflags" at 184, 1;
        BBLOG_SHIFT: "bblog_shift" at 185, 1;
        BBLOG_SIZE: "bblog_size" at 186, 2;
        BBLOG_OFFSET: "bblog_offset" at 188, 4;
        UTIME: "utime" at 192, 8;
        EVENTS: "events" at 200, 8;
        RESYNC_OFFSET: "resync_offset" at 208, 8;
        SB_CSUM: "sb_csum" at 216, 4;
        MAX_DEV: "max_dev" at 220, 4;
        LOGICAL_BLOCK_SIZE: "logical_block_size" at 224, 4;
        PAD3: "pad3" at 228, 28;
    }
}

/// Bits of `feature_map`.
pub mod feature {
    /// There is an internal bitmap at `bitmap_offset`.
    pub const BITMAP_OFFSET: u32 = 0x1;
    /// This member is in sync only below `recovery_offset`.
    pub const RECOVERY_OFFSET: u32 = 0x2;
    /// A reshape is in progress.
    pub const RESHAPE_ACTIVE: u32 = 0x4;
    /// The bad-block log has entries.
    pub const BAD_BLOCKS: u32 = 0x8;
    /// This member replaces another of the same slot.
    pub const REPLACEMENT: u32 = 0x10;
    /// The reshape runs from the end to the start.
    pub const RESHAPE_BACKWARDS: u32 = 0x20;
    /// `new_offset` holds.
    pub const NEW_OFFSET: u32 = 0x40;
    /// The recovery follows the bitmap.
    pub const RECOVERY_BITMAP: u32 = 0x80;
    /// Clustered md.
    pub const CLUSTERED: u32 = 0x100;
    /// The array has, or should have, a journal.
    pub const JOURNAL: u32 = 0x200;
    /// One partial parity log.
    pub const PPL: u32 = 0x400;
    /// A ring of partial parity logs.
    pub const MULTIPLE_PPLS: u32 = 0x800;
    /// RAID 0: `layout` holds.
    pub const RAID0_LAYOUT: u32 = 0x1000;
    /// All feature bits known to the kernel (6.12).
    pub const KNOWN: u32 = 0x1fff;
}

/// The bits of `feature_map` by name.
pub const FEATURES: &[(&str, u64)] = &[
    ("BITMAP_OFFSET", feature::BITMAP_OFFSET as u64),
    ("RECOVERY_OFFSET", feature::RECOVERY_OFFSET as u64),
    ("RESHAPE_ACTIVE", feature::RESHAPE_ACTIVE as u64),
    ("BAD_BLOCKS", feature::BAD_BLOCKS as u64),
    ("REPLACEMENT", feature::REPLACEMENT as u64),
    ("RESHAPE_BACKWARDS", feature::RESHAPE_BACKWARDS as u64),
    ("NEW_OFFSET", feature::NEW_OFFSET as u64),
    ("RECOVERY_BITMAP", feature::RECOVERY_BITMAP as u64),
    ("CLUSTERED", feature::CLUSTERED as u64),
    ("JOURNAL", feature::JOURNAL as u64),
    ("PPL", feature::PPL as u64),
    ("MULTIPLE_PPLS", feature::MULTIPLE_PPLS as u64),
    ("RAID0_LAYOUT", feature::RAID0_LAYOUT as u64),
];

/// A role that is no slot: it waits, or the entry is empty.
pub(super) const ROLE_SPARE: u16 = 0xffff;
/// It failed.
pub(super) const ROLE_FAULTY: u16 = 0xfffe;
/// It is the journal.
pub(super) const ROLE_JOURNAL: u16 = 0xfffd;

/// The roles that are no slots, by name.
pub const ROLES: &[(&str, u64)] = &[
    ("journal", ROLE_JOURNAL as u64),
    ("faulty", ROLE_FAULTY as u64),
    ("spare", ROLE_SPARE as u64),
];

/// `devflags`: reads should go elsewhere.
pub(super) const FLAG_WRITE_MOSTLY: u8 = 1;
/// `devflags`: failfast, the first error fails the device.
pub(super) const FLAG_FAILFAST: u8 = 2;

/// Superblock 1.0, 1.1 or 1.2, field by field. `sb_csum` is not among them: decoding gives a
/// verdict on it, encoding computes it. `max_dev` is the number of `dev_roles`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockV1 {
    /// The minor version is not stored: it is where the superblock was found, or will be.
    pub version: Version,
    /// Bits of [`feature`].
    pub feature_map: u32,
    /// 0, or the kernel refuses it.
    pub pad0: u32,
    /// UUID of the array.
    #[serde(rename = "array_uuid")]
    pub set_uuid: Uuid,
    /// Text, filled up with NUL.
    #[serde(rename = "name_bytes")]
    pub set_name: [u8; 32],
    /// When the array was made.
    #[serde(skip)]
    pub ctime: Timestamp,
    /// -1 linear, 0, 1, 4, 5, 6, 10.
    pub level: i32,
    /// RAID 5, 6, 10; RAID 0 with [`feature::RAID0_LAYOUT`].
    pub layout: u32,
    /// Sectors of each member that the array uses; 0 for linear and RAID 0.
    #[serde(rename = "used_sectors")]
    pub size: u64,
    /// Chunk size in sectors.
    #[serde(rename = "chunk_sectors")]
    pub chunksize: u32,
    /// Slots; during a reshape the new number.
    pub raid_disks: u32,
    /// Sectors from the superblock to the bitmap; with a partial parity log, see
    /// [`SuperblockV1::ppl_offset`].
    #[serde(rename = "bitmap_offset_sectors")]
    pub bitmap_offset: i32,
    /// This and the next five hold only during a reshape; else they are stale.
    pub new_level: i32,
    /// Array sector.
    #[serde(rename = "reshape_position_sectors")]
    pub reshape_position: u64,
    /// New minus old number of slots.
    pub delta_disks: i32,
    /// Layout to come.
    pub new_layout: u32,
    /// Chunk to come, sectors.
    #[serde(rename = "new_chunk_sectors")]
    pub new_chunk: u32,
    /// New minus old data offset of this member.
    #[serde(rename = "new_offset_sectors")]
    pub new_offset: i32,
    /// Sector of the device where its data starts.
    #[serde(rename = "data_offset_sectors")]
    pub data_offset: u64,
    /// Sectors that it has for data.
    #[serde(rename = "data_sectors")]
    pub data_size: u64,
    /// Sector of this superblock.
    #[serde(rename = "super_offset_sectors")]
    pub super_offset: u64,
    /// Member sectors in sync ([`feature::RECOVERY_OFFSET`]); on a journal, its tail.
    #[serde(rename = "recovery_offset_sectors")]
    pub recovery_offset: u64,
    /// Index of this device in `dev_roles`.
    pub dev_number: u32,
    /// Number of corrected read errors, a statistic.
    #[serde(rename = "corrected_reads")]
    pub cnt_corrected_read: u32,
    /// UUID of the member.
    pub device_uuid: Uuid,
    /// Bit 0 write-mostly, bit 1 failfast.
    #[serde(rename = "device_flags")]
    pub devflags: u8,
    /// Bad blocks count in units of 2^shift sectors.
    #[serde(rename = "bad_block_log_shift")]
    pub bblog_shift: u8,
    /// Sectors of the bad-block log.
    #[serde(rename = "bad_block_log_sectors")]
    pub bblog_size: u16,
    /// Sectors from the superblock to it; 0: there is none.
    #[serde(rename = "bad_block_log_offset_sectors")]
    pub bblog_offset: i32,
    /// When this superblock was written.
    #[serde(skip)]
    pub utime: Timestamp,
    /// Update counter.
    pub events: u64,
    /// Up to where the redundancy holds; `u64::MAX`: everywhere.
    #[serde(skip)]
    pub resync_offset: u64,
    /// Of the array, in bytes, by kernels from 6.19 on; older ones refuse anything but 0.
    #[serde(rename = "logical_block_bytes")]
    pub logical_block_size: u32,
    /// 0, or the kernel refuses it.
    pub pad3: [u8; 28],
    /// What each device number is: a slot, or one of [`ROLES`].
    pub dev_roles: Vec<u16>,
}

impl SuperblockV1 {
    /// Sectors from the superblock to the partial parity log: the first half of `bitmap_offset`.
    pub fn ppl_offset(&self) -> i16 {
        let [a, b, _, _] = self.bitmap_offset.to_le_bytes();
        i16::from_le_bytes([a, b])
    }

    /// Sectors of the partial parity log: the second half of `bitmap_offset`.
    pub fn ppl_size(&self) -> u16 {
        let [_, _, a, b] = self.bitmap_offset.to_le_bytes();
        u16::from_le_bytes([a, b])
    }

    /// Where the partial parity log is; it takes the place of `bitmap_offset`.
    pub fn set_ppl(&mut self, offset: i16, size: u16) {
        let ([a, b], [c, d]) = (offset.to_le_bytes(), size.to_le_bytes());
        self.bitmap_offset = i32::from_le_bytes([a, b, c, d]);
    }

    /// Whether all of these bits of `feature_map` are set.
    pub fn has(&self, bits: u32) -> bool {
        self.feature_map & bits == bits
    }

    /// The value of any bytes; they must hold all roles, and may hold more (4096 always do).
    /// `version` is that of the place where they were found; 0.90 is a bug of the caller.
    pub fn decode(bytes: &[u8], version: Version) -> Result<(SuperblockV1, Checksum), DecodeError> {
        assert_ne!(version, Version::V0_90, "0.90 is another structure");
        let max_dev = check_frame(bytes)?;
        let covered = &bytes[..HEADER_BYTES + 2 * max_dev];
        let value = SuperblockV1 {
            version,
            feature_map: FEATURE_MAP.u32(covered),
            pad0: PAD0.u32(covered),
            set_uuid: Uuid(SET_UUID.array(covered)),
            set_name: SET_NAME.array(covered),
            ctime: timestamp(CTIME.u64(covered)),
            level: LEVEL.i32(covered),
            layout: LAYOUT.u32(covered),
            size: SIZE.u64(covered),
            chunksize: CHUNKSIZE.u32(covered),
            raid_disks: RAID_DISKS.u32(covered),
            bitmap_offset: BITMAP_OFFSET.i32(covered),
            new_level: NEW_LEVEL.i32(covered),
            reshape_position: RESHAPE_POSITION.u64(covered),
            delta_disks: DELTA_DISKS.i32(covered),
            new_layout: NEW_LAYOUT.u32(covered),
            new_chunk: NEW_CHUNK.u32(covered),
            new_offset: NEW_OFFSET.i32(covered),
            data_offset: DATA_OFFSET.u64(covered),
            data_size: DATA_SIZE.u64(covered),
            super_offset: SUPER_OFFSET.u64(covered),
            recovery_offset: RECOVERY_OFFSET.u64(covered),
            dev_number: DEV_NUMBER.u32(covered),
            cnt_corrected_read: CNT_CORRECTED_READ.u32(covered),
            device_uuid: Uuid(DEVICE_UUID.array(covered)),
            devflags: DEVFLAGS.u8(covered),
            bblog_shift: BBLOG_SHIFT.u8(covered),
            bblog_size: BBLOG_SIZE.u16(covered),
            bblog_offset: BBLOG_OFFSET.i32(covered),
            utime: timestamp(UTIME.u64(covered)),
            events: EVENTS.u64(covered),
            resync_offset: RESYNC_OFFSET.u64(covered),
            logical_block_size: LOGICAL_BLOCK_SIZE.u32(covered),
            pad3: PAD3.array(covered),
            dev_roles: covered[HEADER_BYTES..]
                .chunks_exact(2)
                .map(|role| u16::from_le_bytes([role[0], role[1]]))
                .collect(),
        };
        let (stored, computed) = (SB_CSUM.u32(covered), checksum(covered));
        let verdict = match stored == computed {
            true => Checksum::Correct { stored },
            false => Checksum::Wrong { stored, computed },
        };
        Ok((value, verdict))
    }

    /// The bytes to write at `super_offset`: all roles, rounded up to the device's logical block
    /// (as the kernel does; mdadm to 512). What is behind the roles is zero.
    ///
    /// # Panics
    /// With more than [`ROLES_MAX`] roles, or a logical block that is no power of two of 512 to
    /// 4096 bytes.
    pub fn encode(&self, logical_block: usize) -> Vec<u8> {
        assert!(self.dev_roles.len() <= ROLES_MAX, "{} roles", self.dev_roles.len());
        assert!(logical_block.is_power_of_two() && (512..=4096).contains(&logical_block));
        let covered = self.covered_bytes();
        let mut bytes = vec![0; covered.next_multiple_of(logical_block)];
        self.put_header(&mut bytes);
        for (role, bytes) in self.dev_roles.iter().zip(bytes[HEADER_BYTES..].chunks_exact_mut(2)) {
            bytes.copy_from_slice(&role.to_le_bytes());
        }
        let checksum = checksum(&bytes[..covered]);
        SB_CSUM.put(&mut bytes, &checksum.to_le_bytes());
        bytes
    }

    /// Length with all roles: what the checksum covers.
    pub fn covered_bytes(&self) -> usize {
        HEADER_BYTES + 2 * self.dev_roles.len()
    }

    fn put_header(&self, bytes: &mut [u8]) {
        let mut put = |field: crate::ondisk::Field, value: &[u8]| field.put(bytes, value);
        put(MAGIC, &MAGIC_WORD.to_le_bytes());
        put(MAJOR_VERSION, &1_u32.to_le_bytes());
        put(FEATURE_MAP, &self.feature_map.to_le_bytes());
        put(PAD0, &self.pad0.to_le_bytes());
        put(SET_UUID, &self.set_uuid.0);
        put(SET_NAME, &self.set_name);
        put(CTIME, &raw_time(self.ctime).to_le_bytes());
        put(LEVEL, &self.level.to_le_bytes());
        put(LAYOUT, &self.layout.to_le_bytes());
        put(SIZE, &self.size.to_le_bytes());
        put(CHUNKSIZE, &self.chunksize.to_le_bytes());
        put(RAID_DISKS, &self.raid_disks.to_le_bytes());
        put(BITMAP_OFFSET, &self.bitmap_offset.to_le_bytes());
        put(NEW_LEVEL, &self.new_level.to_le_bytes());
        put(RESHAPE_POSITION, &self.reshape_position.to_le_bytes());
        put(DELTA_DISKS, &self.delta_disks.to_le_bytes());
        put(NEW_LAYOUT, &self.new_layout.to_le_bytes());
        put(NEW_CHUNK, &self.new_chunk.to_le_bytes());
        put(NEW_OFFSET, &self.new_offset.to_le_bytes());
        put(DATA_OFFSET, &self.data_offset.to_le_bytes());
        put(DATA_SIZE, &self.data_size.to_le_bytes());
        put(SUPER_OFFSET, &self.super_offset.to_le_bytes());
        put(RECOVERY_OFFSET, &self.recovery_offset.to_le_bytes());
        put(DEV_NUMBER, &self.dev_number.to_le_bytes());
        put(CNT_CORRECTED_READ, &self.cnt_corrected_read.to_le_bytes());
        put(DEVICE_UUID, &self.device_uuid.0);
        put(DEVFLAGS, &[self.devflags]);
        put(BBLOG_SHIFT, &[self.bblog_shift]);
        put(BBLOG_SIZE, &self.bblog_size.to_le_bytes());
        put(BBLOG_OFFSET, &self.bblog_offset.to_le_bytes());
        put(UTIME, &raw_time(self.utime).to_le_bytes());
        put(EVENTS, &self.events.to_le_bytes());
        put(RESYNC_OFFSET, &self.resync_offset.to_le_bytes());
        put(MAX_DEV, &(self.dev_roles.len() as u32).to_le_bytes());
        put(LOGICAL_BLOCK_SIZE, &self.logical_block_size.to_le_bytes());
        put(PAD3, &self.pad3);
    }
}

/// Whether these bytes can be a superblock 1.x at all; the number of its roles.
fn check_frame(bytes: &[u8]) -> Result<usize, DecodeError> {
    let error = |field: crate::ondisk::Field, problem: Cow<'static, str>| {
        Err(DecodeError { structure: STRUCTURE, field: field.name, offset: field.offset, problem })
    };
    if bytes.len() < HEADER_BYTES {
        return error(MAGIC, format!("only {} bytes to read", bytes.len()).into());
    }
    let magic = MAGIC.u32(bytes);
    if magic != MAGIC_WORD {
        return error(MAGIC, format!("{magic:#010x} instead of {MAGIC_WORD:#010x}").into());
    }
    let major = MAJOR_VERSION.u32(bytes);
    if major != 1 {
        return error(MAJOR_VERSION, format!("{major} instead of 1").into());
    }
    let max_dev = MAX_DEV.u32(bytes) as usize;
    if max_dev > ROLES_MAX {
        return error(MAX_DEV, format!("{max_dev} is more than {ROLES_MAX}").into());
    }
    if bytes.len() < HEADER_BYTES + 2 * max_dev {
        let problem = format!("{max_dev} roles do not fit into {} bytes", bytes.len());
        return error(MAX_DEV, problem.into());
    }
    Ok(max_dev)
}

/// The checksum of the bytes that it covers, whatever is stored in them.
fn checksum(covered: &[u8]) -> u32 {
    let (words, rest) = covered.as_chunks::<4>();
    let stored_at = SB_CSUM.offset / 4;
    let others = words.iter().enumerate().filter(|&(index, _)| index != stored_at);
    let others = others.map(|(_, word)| u32::from_le_bytes(*word));
    // An odd number of roles leaves two bytes.
    let rest = (!rest.is_empty()).then(|| u32::from(u16::from_le_bytes([rest[0], rest[1]])));
    fold(others.chain(rest))
}

const SECONDS_BITS: u32 = 40;
const SECONDS_MASK: u64 = (1 << SECONDS_BITS) - 1;

/// Bits 0 to 39 seconds, 40 to 63 microseconds.
fn timestamp(raw: u64) -> Timestamp {
    Timestamp { seconds: raw & SECONDS_MASK, micros: (raw >> SECONDS_BITS) as u32 }
}

fn raw_time(time: Timestamp) -> u64 {
    time.seconds & SECONDS_MASK | u64::from(time.micros) << SECONDS_BITS
}
