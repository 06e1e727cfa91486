//! The superblock of btrfs: 4096 bytes at 64 KiB, with copies at 64 MiB and 256 GiB. Each states
//! its address.
//!
//! Offsets: the btrfs documentation, "On-disk format".

use crate::field::{le16, le32, le64, uuid};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::text;

/// Bytes of a superblock.
pub const BYTES: usize = 4096;
/// Byte addresses at which one may stand.
pub const ADDRESSES: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
/// Where the array of system chunks begins, and how long it may be.
const CHUNKS_AT: usize = 811;
const CHUNKS_MAX: usize = 2048;

const INCOMPAT_METADATA_UUID: u64 = 1 << 10;

/// A superblock whose numbers fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub uuid: [u8; 16],
    /// The UUID that nodes carry.
    pub meta_uuid: [u8; 16],
    pub label: Option<String>,
    /// The address that it states.
    pub address: u64,
    pub generation: u64,
    /// Logical address and level of the root of roots, of the chunk tree.
    pub root: u64,
    pub chunk_root: u64,
    pub total_bytes: u64,
    pub used_bytes: u64,
    pub sector: u32,
    pub node: u32,
    /// Of nodes and superblocks; 0 is CRC-32C.
    pub checksum_type: u16,
    pub device: u64,
    pub device_bytes: u64,
    /// Chunk items of the chunks that hold the chunk tree.
    pub system_chunks: Vec<u8>,
    pub checksum: Checksum,
}

impl Superblock {
    /// Decodes 4096 bytes.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let bytes = bytes.get(..BYTES)?;
        if &bytes[64..72] != b"_BHRfS_M" {
            return None;
        }
        let checksum_type = le16(bytes, 196);
        let chunks = bytes[CHUNKS_AT..CHUNKS_AT + CHUNKS_MAX].get(..le32(bytes, 160) as usize)?;
        let superblock = Superblock {
            uuid: uuid(bytes, 32),
            meta_uuid: match le64(bytes, 188) & INCOMPAT_METADATA_UUID != 0 {
                true => uuid(bytes, 571),
                false => uuid(bytes, 32),
            },
            label: text::label(&bytes[299..555]),
            address: le64(bytes, 48),
            generation: le64(bytes, 72),
            root: le64(bytes, 80),
            chunk_root: le64(bytes, 88),
            total_bytes: le64(bytes, 112),
            used_bytes: le64(bytes, 120),
            sector: le32(bytes, 144),
            node: le32(bytes, 148),
            checksum_type,
            device: le64(bytes, 201),
            device_bytes: le64(bytes, 209),
            system_chunks: chunks.to_vec(),
            checksum: match checksum_type {
                0 if crc32c::crc32c(&bytes[32..]) == le32(bytes, 0) => Checksum::Good,
                0 => Checksum::Bad,
                _ => Checksum::Absent,
            },
        };
        let pow2 = |number: u32| number.is_power_of_two() && (512..=65536).contains(&number);
        let sane = pow2(superblock.sector)
            && pow2(superblock.node)
            && ADDRESSES.contains(&superblock.address)
            && superblock.device_bytes > 0
            && superblock.device_bytes <= i64::MAX as u64;
        sane.then_some(superblock)
    }

    /// What blkid says of it. The size is that of the device which this copy describes.
    pub fn identified(&self) -> Identified {
        Identified {
            kind: Kind::Btrfs,
            label: self.label.clone(),
            uuid: text::uuid(self.uuid),
            bytes: Some(self.device_bytes),
            checksum: self.checksum,
        }
    }
}
