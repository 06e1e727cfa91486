//! Fields and numbers of the structures; docs/format/ddf.md has their meaning.
//!
//! Invariant: all of them are big-endian.

use crate::ondisk::{Field, fields};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 512;
/// Bytes at the start of the sections with lists of disks.
pub(super) const SECTION_BYTES: usize = 64;
/// Bytes of an entry of such a list.
pub(super) const ENTRY_BYTES: usize = 64;
/// Bytes of a configuration record before its lists.
pub const CONFIG_BYTES: usize = 512;
/// Bytes of a GUID.
pub(super) const GUID_BYTES: usize = 24;

/// What structures begin with.
pub const MAGICS: &[(&str, u64)] = &[
    ("header", 0xde11_de11),
    ("physical disks", 0x2222_2222),
    ("virtual disks", 0xdddd_dddd),
    ("configuration", 0xeeee_eeee),
    ("spares", 0x5555_5555),
    ("own disk", 0x3333_3333),
];

pub(super) const MAGIC_HEADER: u32 = 0xde11_de11;
pub(super) const MAGIC_DISKS: u32 = 0x2222_2222;
pub(super) const MAGIC_VIRTUALS: u32 = 0xdddd_dddd;
pub(super) const MAGIC_CONFIG: u32 = 0xeeee_eeee;
pub(super) const MAGIC_SPARES: u32 = 0x5555_5555;
pub(super) const MAGIC_OWN: u32 = 0x3333_3333;

fields! {
    /// All fields of a header.
    pub const HEADER_FIELDS = {
        MAGIC: "magic" at 0, 4;
        CRC: "crc" at 4, 4;
        GUID: "guid" at 8, 24;
        REVISION: "revision" at 32, 8;
        SEQUENCE: "sequence" at 40, 4;
        TIMESTAMP: "timestamp" at 44, 4;
        OPEN: "open" at 48, 1;
        FOREIGN: "foreign" at 49, 1;
        GROUPING: "grouping" at 50, 1;
        RESERVED_1: "reserved_1" at 51, 13;
        EXTENSION: "extension" at 64, 32;
        PRIMARY: "primary_lba" at 96, 8;
        SECONDARY: "secondary_lba" at 104, 8;
        TYPE: "type" at 112, 1;
        RESERVED_2: "reserved_2" at 113, 3;
        WORKSPACE_LENGTH: "workspace_length" at 116, 4;
        WORKSPACE: "workspace_lba" at 120, 8;
        MAX_DISKS: "max_disks" at 128, 2;
        MAX_VIRTUALS: "max_virtuals" at 130, 2;
        MAX_PARTITIONS: "max_partitions" at 132, 2;
        RECORD_LENGTH: "record_length" at 134, 2;
        MAX_ELEMENTS: "max_elements" at 136, 2;
        RESERVED_3: "reserved_3" at 138, 54;
        CONTROLLER: "controller" at 192, 8;
        DISKS: "disks" at 200, 8;
        VIRTUALS: "virtuals" at 208, 8;
        CONFIGS: "configurations" at 216, 8;
        OWN: "own_disk" at 224, 8;
        BAD_BLOCKS: "bad_blocks" at 232, 8;
        DIAGNOSTICS: "diagnostics" at 240, 8;
        VENDOR: "vendor" at 248, 8;
        RESERVED_4: "reserved_4" at 256, 256;
    }
}

fields! {
    /// All fields of the start of a list of physical or virtual disks.
    pub const SECTION_FIELDS = {
        SECTION_MAGIC: "magic" at 0, 4;
        SECTION_CRC: "crc" at 4, 4;
        USED: "used" at 8, 2;
        MAX: "max" at 10, 2;
        SECTION_RESERVED: "reserved" at 12, 52;
    }
}

fields! {
    /// All fields of an entry of the list of physical disks.
    pub const DISK_FIELDS = {
        DISK_GUID: "guid" at 0, 24;
        DISK_REFERENCE: "reference" at 24, 4;
        DISK_TYPE: "type" at 28, 2;
        DISK_STATE: "state" at 30, 2;
        DISK_SIZE: "configured_size" at 32, 8;
        DISK_PATH: "path" at 40, 18;
        DISK_BLOCK: "block_size" at 58, 2;
        DISK_RESERVED: "reserved" at 60, 4;
    }
}

fields! {
    /// All fields of an entry of the list of virtual disks.
    pub const VIRTUAL_FIELDS = {
        VIRTUAL_GUID: "guid" at 0, 24;
        VIRTUAL_NUMBER: "number" at 24, 2;
        VIRTUAL_RESERVED_1: "reserved_1" at 26, 2;
        VIRTUAL_TYPE: "type" at 28, 4;
        VIRTUAL_STATE: "state" at 32, 1;
        VIRTUAL_INIT: "init_state" at 33, 1;
        VIRTUAL_RESERVED_2: "reserved_2" at 34, 14;
        VIRTUAL_NAME: "name" at 48, 16;
    }
}

fields! {
    /// All fields of a configuration record before its lists.
    pub const CONFIG_FIELDS = {
        CONFIG_MAGIC: "magic" at 0, 4;
        CONFIG_CRC: "crc" at 4, 4;
        CONFIG_GUID: "guid" at 8, 24;
        CONFIG_TIMESTAMP: "timestamp" at 32, 4;
        CONFIG_SEQUENCE: "sequence" at 36, 4;
        CONFIG_RESERVED_1: "reserved_1" at 40, 24;
        ELEMENTS: "elements" at 64, 2;
        STRIP: "strip_shift" at 66, 1;
        LEVEL: "level" at 67, 1;
        QUALIFIER: "qualifier" at 68, 1;
        SECONDARY_COUNT: "secondary_elements" at 69, 1;
        SECONDARY_SEQUENCE: "secondary_number" at 70, 1;
        SECONDARY_LEVEL: "secondary_level" at 71, 1;
        BLOCKS: "blocks" at 72, 8;
        ARRAY_BLOCKS: "array_blocks" at 80, 8;
        CONFIG_BLOCK: "block_size" at 88, 2;
        ROTATE: "rotate_count" at 90, 1;
        CONFIG_RESERVED_2: "reserved_2" at 91, 5;
        SPARE_REFERENCES: "spares" at 96, 32;
        CACHE: "cache_policies" at 128, 8;
        BACKGROUND_RATE: "background_rate" at 136, 1;
        CONFIG_RESERVED_3: "reserved_3" at 137, 247;
        VENDOR_SPACE: "vendor" at 384, 128;
    }
}

fields! {
    /// All fields of a disk's own record.
    pub const OWN_FIELDS = {
        OWN_MAGIC: "magic" at 0, 4;
        OWN_CRC: "crc" at 4, 4;
        OWN_GUID: "guid" at 8, 24;
        OWN_REFERENCE: "reference" at 32, 4;
        OWN_FORCED_REFERENCE: "forced_reference" at 36, 1;
        OWN_FORCED_GUID: "forced_guid" at 37, 1;
        OWN_VENDOR: "vendor" at 38, 32;
        OWN_RESERVED: "reserved" at 70, 442;
    }
}

/// Bits of a physical disk's state.
pub const DISK_STATES: &[(&str, u64)] = &[
    ("online", 0x1),
    ("failed", 0x2),
    ("rebuilding", 0x4),
    ("in transition", 0x8),
    ("predicted to fail", 0x10),
    ("has unrecovered errors", 0x20),
    ("missing", 0x40),
];

/// Numbers of a virtual disk's state, and two bits beside them.
pub const VIRTUAL_STATES: &[(&str, u64)] = &[
    ("optimal", 0),
    ("degraded", 1),
    ("deleted", 2),
    ("missing", 3),
    ("failed", 4),
    ("partially optimal", 5),
    ("offline", 6),
    ("morphing", 0x8),
    ("not consistent", 0x10),
];

pub(super) const ONLINE: u16 = 0x1;
pub(super) const FAILED: u16 = 0x2;
pub(super) const REBUILDING: u16 = 0x4;
pub(super) const MISSING: u16 = 0x40;
pub(super) const STATE_MASK: u8 = 0x7;
pub(super) const DELETED: u8 = 2;
pub(super) const MORPHING: u8 = 0x8;
pub(super) const NOT_CONSISTENT: u8 = 0x10;
pub(super) const INIT_MASK: u8 = 0x3;
pub(super) const INIT_FULL: u8 = 2;

/// Big-endian.
pub(super) fn be16(field: Field, bytes: &[u8]) -> u16 {
    u16::from_be_bytes(field.array(bytes))
}

/// Big-endian.
pub(super) fn be32(field: Field, bytes: &[u8]) -> u32 {
    u32::from_be_bytes(field.array(bytes))
}

/// Big-endian.
pub(super) fn be64(field: Field, bytes: &[u8]) -> u64 {
    u64::from_be_bytes(field.array(bytes))
}
