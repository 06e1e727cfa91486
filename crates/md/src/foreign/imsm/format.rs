//! Fields and numbers of the metadata; docs/format/imsm.md has their meaning.
//!
//! Invariant: all of them are little-endian. Lengths and addresses count blocks of the disk: of 512
//! bytes, or of 4096 where the disk has such.

use crate::ondisk::fields;

/// What the metadata begin with.
pub const SIGNATURE: &[u8; 24] = b"Intel Raid ISM Cfg Sig. ";

/// Bytes before the table of disks.
pub const HEADER_BYTES: usize = 216;
/// Bytes of an entry of the table of disks.
pub(super) const DISK_BYTES: usize = 48;
/// Bytes of a volume before its map.
pub(super) const VOLUME_BYTES: usize = 112;
/// Bytes of a map before its table of slots.
pub(super) const MAP_BYTES: usize = 48;
/// Bytes of an entry of the table of slots: the disk's index, and flags in its last byte.
pub(super) const SLOT_BYTES: usize = 4;

fields! {
    /// All fields of the header.
    pub const FIELDS = {
        SIG: "signature" at 0, 24;
        VERSION: "version" at 24, 8;
        CHECK_SUM: "check_sum" at 32, 4;
        SIZE: "size" at 36, 4;
        FAMILY: "family" at 40, 4;
        GENERATION: "generation" at 44, 4;
        ERROR_LOG_SIZE: "error_log_size" at 48, 4;
        ATTRIBUTE_BITS: "attributes" at 52, 4;
        DISKS: "disks" at 56, 1;
        VOLUMES: "volumes" at 57, 1;
        ERROR_LOG_POS: "error_log_pos" at 58, 1;
        FILL: "fill" at 59, 1;
        CACHE_SIZE: "cache_size" at 60, 4;
        ORIG_FAMILY: "orig_family" at 64, 4;
        POWER_CYCLES: "power_cycles" at 68, 4;
        BAD_BLOCK_LOG_SIZE: "bad_block_log_size" at 72, 4;
        VOLUMES_CREATED: "volumes_created" at 76, 2;
        FILLER: "filler" at 78, 2;
        CREATED: "created" at 80, 8;
        RESERVED: "reserved" at 88, 128;
    }
}

fields! {
    /// All fields of an entry of the table of disks.
    pub const DISK_FIELDS = {
        SERIAL: "serial" at 0, 16;
        TOTAL_LOW: "total_blocks_low" at 16, 4;
        SCSI_ID: "scsi_id" at 20, 4;
        STATUS: "status" at 24, 4;
        OWNER: "owner" at 28, 4;
        TOTAL_HIGH: "total_blocks_high" at 32, 4;
        DISK_FILLER: "filler" at 36, 12;
    }
}

fields! {
    /// All fields of a volume before its map.
    pub const VOLUME_FIELDS = {
        NAME: "name" at 0, 16;
        SIZE_LOW: "size_low" at 16, 4;
        SIZE_HIGH: "size_high" at 20, 4;
        VOLUME_STATUS: "status" at 24, 4;
        RESERVED_BLOCKS: "reserved_blocks" at 28, 4;
        VOLUME_RESERVED: "reserved" at 32, 48;
        MIGRATION_UNIT: "migration_unit" at 80, 4;
        CHECKPOINT: "checkpoint" at 84, 4;
        MIGRATING: "migrating" at 88, 1;
        MIGRATION: "migration" at 89, 1;
        DIRTY: "dirty" at 90, 1;
        FILE_SYSTEM: "file_system_state" at 91, 1;
        VERIFY_ERRORS: "verify_errors" at 92, 2;
        BAD_BLOCKS: "bad_blocks" at 94, 2;
        MIGRATION_UNIT_HIGH: "migration_unit_high" at 96, 4;
        VOLUME_FILLER: "filler" at 100, 12;
    }
}

fields! {
    /// All fields of a map before its table of slots.
    pub const MAP_FIELDS = {
        OFFSET_LOW: "offset_low" at 0, 4;
        MEMBER_LOW: "member_blocks_low" at 4, 4;
        STRIPES_LOW: "stripes_low" at 8, 4;
        STRIP: "strip_blocks" at 12, 2;
        STATE: "state" at 14, 1;
        LEVEL: "level" at 15, 1;
        MEMBERS: "members" at 16, 1;
        DOMAINS: "domains" at 17, 1;
        FAILED: "failed_slot" at 18, 1;
        DDF: "ddf" at 19, 1;
        OFFSET_HIGH: "offset_high" at 20, 4;
        MEMBER_HIGH: "member_blocks_high" at 24, 4;
        STRIPES_HIGH: "stripes_high" at 28, 4;
        MAP_FILLER: "filler" at 32, 16;
    }
}

/// Bits of a disk's `status`.
pub const DISK_STATES: &[(&str, u64)] =
    &[("spare", 0x1), ("configured", 0x2), ("failed", 0x4), ("journal", 0x200_0000)];

/// States of a map.
pub const MAP_STATES: &[(&str, u64)] =
    &[("normal", 0), ("uninitialized", 1), ("degraded", 2), ("failed", 3)];

/// Kinds of a volume's migration.
pub const MIGRATIONS: &[(&str, u64)] = &[
    ("initialization", 0),
    ("rebuild", 1),
    ("verification", 2),
    ("general migration", 3),
    ("state change", 4),
    ("repair", 5),
];

pub(super) const DISK_SPARE: u32 = 0x1;
pub(super) const DISK_FAILED: u32 = 0x4;
pub(super) const STATE_UNINITIALIZED: u8 = 1;
pub(super) const MIGRATION_INIT: u8 = 0;
pub(super) const MIGRATION_REBUILD: u8 = 1;
pub(super) const MIGRATION_VERIFY: u8 = 2;
pub(super) const MIGRATION_REPAIR: u8 = 5;
/// A slot whose disk does not hold its data yet.
pub(super) const SLOT_REBUILD: u8 = 1;
