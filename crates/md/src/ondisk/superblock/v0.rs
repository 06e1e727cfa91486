//! Superblock 0.90 (0.91 while reshaping) as it is on disk: words, plain value, both ways.
//!
//! Format: `docs/format/superblock-0.90.md`. Invariant: every one of the 1024 words is kept, so
//! that what was decoded encodes to the same bytes. The words are in the byte order of the machine
//! that wrote them; both orders are decoded, and encoded as they came.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::Checksum;
use super::checksum::fold;
use super::v1::MAGIC_WORD;
use crate::ondisk::{DecodeError, Field, Uuid, fields};

/// Length of the whole superblock.
pub const V0_BYTES: usize = 4096;

/// Devices that it can describe.
pub const DISKS_MAX: usize = 27;

const STRUCTURE: &str = "superblock-0.90";

fields! {
    /// All fields.
    pub const FIELDS = {
        MAGIC: "md_magic" at 0, 4;
        MAJOR_VERSION: "major_version" at 4, 4;
        MINOR_VERSION: "minor_version" at 8, 4;
        PATCH_VERSION: "patch_version" at 12, 4;
        GVALID_WORDS: "gvalid_words" at 16, 4;
        SET_UUID0: "set_uuid0" at 20, 4;
        CTIME: "ctime" at 24, 4;
        LEVEL: "level" at 28, 4;
        SIZE: "size" at 32, 4;
        NR_DISKS: "nr_disks" at 36, 4;
        RAID_DISKS: "raid_disks" at 40, 4;
        MD_MINOR: "md_minor" at 44, 4;
        NOT_PERSISTENT: "not_persistent" at 48, 4;
        SET_UUID1: "set_uuid1" at 52, 4;
        SET_UUID2: "set_uuid2" at 56, 4;
        SET_UUID3: "set_uuid3" at 60, 4;
        CONSTANT_RESERVED: "constant_reserved" at 64, 64;
        UTIME: "utime" at 128, 4;
        STATE: "state" at 132, 4;
        ACTIVE_DISKS: "active_disks" at 136, 4;
        WORKING_DISKS: "working_disks" at 140, 4;
        FAILED_DISKS: "failed_disks" at 144, 4;
        SPARE_DISKS: "spare_disks" at 148, 4;
        SB_CSUM: "sb_csum" at 152, 4;
        EVENTS: "events" at 156, 8;
        CP_EVENTS: "cp_events" at 164, 8;
        RECOVERY_CP: "recovery_cp" at 172, 4;
        RESHAPE_POSITION: "reshape_position" at 176, 8;
        NEW_LEVEL: "new_level" at 184, 4;
        DELTA_DISKS: "delta_disks" at 188, 4;
        NEW_LAYOUT: "new_layout" at 192, 4;
        NEW_CHUNK: "new_chunk" at 196, 4;
        STATE_RESERVED: "state_reserved" at 200, 56;
        LAYOUT: "layout" at 256, 4;
        CHUNK_SIZE: "chunk_size" at 260, 4;
        PERSONALITY_RESERVED: "personality_reserved" at 264, 248;
        DISKS: "disks" at 512, 3456;
        THIS_DISK: "this_disk" at 3968, 128;
    }
}

/// A descriptor in `disks` and `this_disk`.
pub const DISK_FIELDS: &[Field] = &[
    Field { name: "number", offset: 0, size: 4 },
    Field { name: "major", offset: 4, size: 4 },
    Field { name: "minor", offset: 8, size: 4 },
    Field { name: "raid_disk", offset: 12, size: 4 },
    Field { name: "state", offset: 16, size: 4 },
    Field { name: "reserved", offset: 20, size: 108 },
];

const DISK_BYTES: usize = 128;

/// `state` of the array: its redundancy holds everywhere.
pub(super) const STATE_CLEAN: u32 = 1 << 0;
/// `state` of the array: there is a bitmap.
pub(super) const STATE_BITMAP: u32 = 1 << 8;

/// The bits of the array's `state` by name.
pub const STATES: &[(&str, u64)] = &[
    ("clean", STATE_CLEAN as u64),
    ("errors", 1 << 1),
    ("clustered", 1 << 5),
    ("bitmap present", STATE_BITMAP as u64),
];

pub(super) const DISK_FAULTY: u32 = 1 << 0;
pub(super) const DISK_ACTIVE: u32 = 1 << 1;
pub(super) const DISK_SYNC: u32 = 1 << 2;
pub(super) const DISK_REMOVED: u32 = 1 << 3;
pub(super) const DISK_WRITE_MOSTLY: u32 = 1 << 9;
pub(super) const DISK_FAILFAST: u32 = 1 << 10;

/// The bits of a disk's `state` by name.
pub const DISK_STATES: &[(&str, u64)] = &[
    ("faulty", DISK_FAULTY as u64),
    ("active", DISK_ACTIVE as u64),
    ("sync", DISK_SYNC as u64),
    ("removed", DISK_REMOVED as u64),
    ("write-mostly", DISK_WRITE_MOSTLY as u64),
    ("failfast", DISK_FAILFAST as u64),
];

/// The order of the bytes in each word, and of the two words of a 64-bit number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// x86, ARM, RISC-V.
    Little,
    /// SPARC, older POWER and MIPS. A little-endian kernel does not see such a superblock.
    Big,
}

/// One device of a superblock 0.90.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskV0 {
    /// Its place in `disks`.
    pub number: u32,
    /// Device number, ignored by all.
    pub major: u32,
    /// Device number, ignored by all.
    pub minor: u32,
    /// Its slot, or `number` again.
    pub raid_disk: u32,
    /// Bits of [`DISK_STATES`].
    pub state: u32,
    /// Reserved, zero.
    pub reserved: [u32; 27],
}

impl DiskV0 {
    /// Whether all of these bits of `state` are set.
    pub fn has(&self, bits: u32) -> bool {
        self.state & bits == bits
    }
}

/// Superblock 0.90, field by field. `sb_csum` is not among them: decoding gives a verdict on it,
/// encoding computes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperblockV0 {
    /// Sector where it was found, or will be; not stored.
    #[serde(rename = "super_offset_sectors")]
    pub sector: u64,
    /// Of the machine that wrote it; seen in the magic.
    pub byte_order: ByteOrder,
    /// 90, or 91 during a reshape.
    pub minor_version: u32,
    /// 0.
    pub patch_version: u32,
    /// 0; must be the same on all members.
    pub gvalid_words: u32,
    /// UUID of the array: four words, each shown with the highest byte first.
    #[serde(rename = "array_uuid")]
    pub set_uuid: Uuid,
    /// Seconds since 1970.
    #[serde(rename = "created_unix_s")]
    pub ctime: u32,
    /// -1 linear, 0, 1, 4, 5, 6, 10.
    pub level: i32,
    /// KiB of each member that the array uses; 0 for linear and RAID 0.
    #[serde(rename = "used_kib")]
    pub size: u32,
    /// Devices described.
    pub nr_disks: u32,
    /// Slots; during a reshape the new number.
    pub raid_disks: u32,
    /// Preferred minor number; must be the same on all members.
    pub md_minor: u32,
    /// 0.
    pub not_persistent: u32,
    /// Zero; compared between members.
    pub constant_reserved: [u32; 16],
    /// When this superblock was written, seconds since 1970.
    #[serde(rename = "updated_unix_s")]
    pub utime: u32,
    /// Bits of [`STATES`].
    pub state: u32,
    /// Members in sync.
    pub active_disks: u32,
    /// Members in sync, and spares.
    pub working_disks: u32,
    /// Slots without a member, and members that failed.
    pub failed_disks: u32,
    /// Number of spares.
    pub spare_disks: u32,
    /// Update counter.
    pub events: u64,
    /// The counter when `recovery_cp` was right.
    #[serde(rename = "checkpoint_events")]
    pub cp_events: u64,
    /// Resync checkpoint, sectors; all ones: complete.
    #[serde(rename = "resync_checkpoint_sectors")]
    pub recovery_cp: u32,
    /// This and the next four hold only with minor version 91. Array sector.
    #[serde(rename = "reshape_position_sectors")]
    pub reshape_position: u64,
    /// Level to come.
    pub new_level: i32,
    /// New minus old number of slots.
    pub delta_disks: i32,
    /// Layout to come.
    pub new_layout: u32,
    /// Chunk to come, bytes.
    #[serde(rename = "new_chunk_bytes")]
    pub new_chunk: u32,
    /// Reserved, zero.
    pub state_reserved: [u32; 14],
    /// md's number of the layout.
    pub layout: u32,
    /// Chunk size in bytes.
    #[serde(rename = "chunk_bytes")]
    pub chunk_size: u32,
    /// Reserved, zero.
    #[serde(serialize_with = "words")]
    pub personality_reserved: [u32; 62],
    /// By number.
    #[serde(skip)]
    pub disks: [DiskV0; DISKS_MAX],
    /// This device's descriptor, again.
    #[serde(skip)]
    pub this_disk: DiskV0,
}

fn words<S: Serializer>(words: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    words.serialize(serializer)
}

impl SuperblockV0 {
    /// The value of any bytes, of which there must be 4096; `sector` is where they were found.
    pub fn decode(bytes: &[u8], sector: u64) -> Result<(SuperblockV0, Checksum), DecodeError> {
        let byte_order = check_frame(bytes)?;
        let words = Words { bytes, byte_order };
        let disk = |index: usize| words.disk(DISKS.offset + index * DISK_BYTES);
        let value = SuperblockV0 {
            sector,
            byte_order,
            minor_version: words.at(MINOR_VERSION),
            patch_version: words.at(PATCH_VERSION),
            gvalid_words: words.at(GVALID_WORDS),
            set_uuid: words.uuid(),
            ctime: words.at(CTIME),
            level: words.at(LEVEL).cast_signed(),
            size: words.at(SIZE),
            nr_disks: words.at(NR_DISKS),
            raid_disks: words.at(RAID_DISKS),
            md_minor: words.at(MD_MINOR),
            not_persistent: words.at(NOT_PERSISTENT),
            constant_reserved: words.list(CONSTANT_RESERVED.offset),
            utime: words.at(UTIME),
            state: words.at(STATE),
            active_disks: words.at(ACTIVE_DISKS),
            working_disks: words.at(WORKING_DISKS),
            failed_disks: words.at(FAILED_DISKS),
            spare_disks: words.at(SPARE_DISKS),
            events: words.long(EVENTS),
            cp_events: words.long(CP_EVENTS),
            recovery_cp: words.at(RECOVERY_CP),
            reshape_position: words.long(RESHAPE_POSITION),
            new_level: words.at(NEW_LEVEL).cast_signed(),
            delta_disks: words.at(DELTA_DISKS).cast_signed(),
            new_layout: words.at(NEW_LAYOUT),
            new_chunk: words.at(NEW_CHUNK),
            state_reserved: words.list(STATE_RESERVED.offset),
            layout: words.at(LAYOUT),
            chunk_size: words.at(CHUNK_SIZE),
            personality_reserved: words.list(PERSONALITY_RESERVED.offset),
            disks: std::array::from_fn(disk),
            this_disk: words.disk(THIS_DISK.offset),
        };
        let (stored, computed) = (words.at(SB_CSUM), words.checksum());
        let verdict = match fold_to_16(stored) == fold_to_16(computed) {
            true => Checksum::Correct { stored },
            false => Checksum::Wrong { stored, computed },
        };
        Ok((value, verdict))
    }

    /// The bytes to write at `sector`: always 4096.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out { bytes: vec![0; V0_BYTES], byte_order: self.byte_order };
        let uuid = self.uuid_words();
        out.put(MAGIC, MAGIC_WORD);
        out.put(MAJOR_VERSION, 0);
        out.put(MINOR_VERSION, self.minor_version);
        out.put(PATCH_VERSION, self.patch_version);
        out.put(GVALID_WORDS, self.gvalid_words);
        out.put(SET_UUID0, uuid[0]);
        out.put(CTIME, self.ctime);
        out.put(LEVEL, self.level.cast_unsigned());
        out.put(SIZE, self.size);
        out.put(NR_DISKS, self.nr_disks);
        out.put(RAID_DISKS, self.raid_disks);
        out.put(MD_MINOR, self.md_minor);
        out.put(NOT_PERSISTENT, self.not_persistent);
        out.put(SET_UUID1, uuid[1]);
        out.put(SET_UUID2, uuid[2]);
        out.put(SET_UUID3, uuid[3]);
        out.list(CONSTANT_RESERVED.offset, &self.constant_reserved);
        out.put(UTIME, self.utime);
        out.put(STATE, self.state);
        out.put(ACTIVE_DISKS, self.active_disks);
        out.put(WORKING_DISKS, self.working_disks);
        out.put(FAILED_DISKS, self.failed_disks);
        out.put(SPARE_DISKS, self.spare_disks);
        out.long(EVENTS, self.events);
        out.long(CP_EVENTS, self.cp_events);
        out.put(RECOVERY_CP, self.recovery_cp);
        out.long(RESHAPE_POSITION, self.reshape_position);
        out.put(NEW_LEVEL, self.new_level.cast_unsigned());
        out.put(DELTA_DISKS, self.delta_disks.cast_unsigned());
        out.put(NEW_LAYOUT, self.new_layout);
        out.put(NEW_CHUNK, self.new_chunk);
        out.list(STATE_RESERVED.offset, &self.state_reserved);
        out.put(LAYOUT, self.layout);
        out.put(CHUNK_SIZE, self.chunk_size);
        out.list(PERSONALITY_RESERVED.offset, &self.personality_reserved);
        for (index, disk) in self.disks.iter().enumerate() {
            out.disk(DISKS.offset + index * DISK_BYTES, disk);
        }
        out.disk(THIS_DISK.offset, &self.this_disk);
        let words = Words { bytes: &out.bytes, byte_order: self.byte_order };
        let checksum = words.checksum();
        out.put(SB_CSUM, checksum);
        out.bytes
    }

    fn uuid_words(&self) -> [u32; 4] {
        let (words, _) = self.set_uuid.0.as_chunks::<4>();
        std::array::from_fn(|index| u32::from_be_bytes(words[index]))
    }
}

/// Whether these bytes can be a superblock 0.90 at all, and in which order.
fn check_frame(bytes: &[u8]) -> Result<ByteOrder, DecodeError> {
    let error = |field: Field, problem: Cow<'static, str>| {
        Err(DecodeError { structure: STRUCTURE, field: field.name, offset: field.offset, problem })
    };
    if bytes.len() < V0_BYTES {
        return error(MAGIC, format!("only {} bytes to read", bytes.len()).into());
    }
    let byte_order = match MAGIC.u32(bytes) {
        MAGIC_WORD => ByteOrder::Little,
        swapped if swapped.swap_bytes() == MAGIC_WORD => ByteOrder::Big,
        other => return error(MAGIC, format!("{other:#010x} is not {MAGIC_WORD:#010x}").into()),
    };
    let major = Words { bytes, byte_order }.at(MAJOR_VERSION);
    match major {
        0 => Ok(byte_order),
        other => error(MAJOR_VERSION, format!("{other} instead of 0").into()),
    }
}

/// Twice, because the first sum may have 17 bits. Old kernels stored only this.
fn fold_to_16(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}

struct Words<'a> {
    bytes: &'a [u8],
    byte_order: ByteOrder,
}

impl Words<'_> {
    fn word(&self, offset: usize) -> u32 {
        let bytes = self.bytes[offset..offset + 4].try_into().expect("four bytes");
        match self.byte_order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    fn at(&self, field: Field) -> u32 {
        self.word(field.offset)
    }

    /// Two words, the lower one first on little-endian machines only.
    fn long(&self, field: Field) -> u64 {
        let (first, second) = (self.word(field.offset), self.word(field.offset + 4));
        let (low, high) = match self.byte_order {
            ByteOrder::Little => (first, second),
            ByteOrder::Big => (second, first),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    fn list<const N: usize>(&self, offset: usize) -> [u32; N] {
        std::array::from_fn(|index| self.word(offset + 4 * index))
    }

    fn uuid(&self) -> Uuid {
        let mut uuid = Uuid::default();
        let (bytes, _) = uuid.0.as_chunks_mut::<4>();
        let fields = [SET_UUID0, SET_UUID1, SET_UUID2, SET_UUID3];
        for (bytes, field) in bytes.iter_mut().zip(fields) {
            *bytes = self.at(field).to_be_bytes();
        }
        uuid
    }

    fn disk(&self, offset: usize) -> DiskV0 {
        let [number, major, minor, raid_disk, state] = self.list(offset);
        DiskV0 { number, major, minor, raid_disk, state, reserved: self.list(offset + 20) }
    }

    fn checksum(&self) -> u32 {
        let offsets = (0..V0_BYTES).step_by(4).filter(|&offset| offset != SB_CSUM.offset);
        fold(offsets.map(|offset| self.word(offset)))
    }
}

struct Out {
    bytes: Vec<u8>,
    byte_order: ByteOrder,
}

impl Out {
    fn word(&mut self, offset: usize, word: u32) {
        let bytes = match self.byte_order {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        };
        self.bytes[offset..offset + 4].copy_from_slice(&bytes);
    }

    fn put(&mut self, field: Field, word: u32) {
        self.word(field.offset, word);
    }

    fn long(&mut self, field: Field, value: u64) {
        let (low, high) = (value as u32, (value >> 32) as u32);
        let pair = match self.byte_order {
            ByteOrder::Little => [low, high],
            ByteOrder::Big => [high, low],
        };
        self.list(field.offset, &pair);
    }

    fn list(&mut self, offset: usize, words: &[u32]) {
        for (index, &word) in words.iter().enumerate() {
            self.word(offset + 4 * index, word);
        }
    }

    fn disk(&mut self, offset: usize, disk: &DiskV0) {
        let DiskV0 { number, major, minor, raid_disk, state, reserved } = disk;
        self.list(offset, &[*number, *major, *minor, *raid_disk, *state]);
        self.list(offset + 20, reserved);
    }
}
