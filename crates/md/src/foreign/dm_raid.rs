//! dm-raid's superblock, at the start of the metadata volume of each leg of one of LVM's RAID
//! volumes: recognised and named. Where the data are is in LVM's own metadata.

use serde::Serialize;

use crate::ondisk::{DecodeError, fields};

/// Bytes that are read.
pub const READ_BYTES: usize = 512;

/// "DmRd", as the bytes lie on the disk.
pub const MAGIC: &[u8; 4] = b"DmRd";

fields! {
    /// The fields that are read.
    pub const FIELDS = {
        MAGIC_FIELD: "magic" at 0, 4;
        COMPAT: "compat_features" at 4, 4;
        DEVICES: "num_devices" at 8, 4;
        POSITION: "array_position" at 12, 4;
        EVENTS: "events" at 16, 8;
        FAILED: "failed_devices" at 24, 8;
        RECOVERY: "disk_recovery_offset" at 32, 8;
        RESYNC: "array_resync_offset" at 40, 8;
        LEVEL: "level" at 48, 4;
        LAYOUT: "layout" at 52, 4;
        CHUNK: "stripe_sectors" at 56, 4;
    }
}

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Superblock {
    /// Legs of the volume.
    pub devices: u32,
    /// Which of them it is.
    pub position: u32,
    /// Event count.
    pub events: u64,
    /// A bit for each leg that failed.
    #[serde(rename = "failed_devices")]
    pub failed: u64,
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout.
    pub layout: u32,
    /// Sectors of a chunk.
    pub chunk_sectors: u32,
}

impl Superblock {
    /// The superblock in the first bytes of a volume.
    ///
    /// # Errors
    /// The magic, or too few bytes.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
        if bytes.len() < READ_BYTES || !bytes.starts_with(MAGIC) {
            let (structure, field, offset) = ("dm-raid", MAGIC_FIELD.name, MAGIC_FIELD.offset);
            return Err(DecodeError {
                structure,
                field,
                offset,
                problem: "it is not there".into(),
            });
        }
        Ok(Superblock {
            devices: DEVICES.u32(bytes),
            position: POSITION.u32(bytes),
            events: EVENTS.u64(bytes),
            failed: FAILED.u64(bytes),
            level: LEVEL.i32(bytes),
            layout: LAYOUT.u32(bytes),
            chunk_sectors: CHUNK.u32(bytes),
        })
    }
}
