//! The superblock of XFS: the first sector of each allocation group. All numbers are big endian.
//!
//! Offsets: "XFS Algorithms & Data Structures". A copy does not state its group; the header of the
//! free space, one sector later, does.

use crate::crc::crc32c_without;
use crate::field::{be16, be32, be64, le32, uuid};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::text;

const INCOMPAT_SPARSE_INODES: u32 = 0x2;
const INCOMPAT_META_UUID: u32 = 0x4;

/// A superblock whose numbers fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub uuid: [u8; 16],
    /// The UUID that metadata blocks carry.
    pub meta_uuid: [u8; 16],
    pub label: Option<String>,
    /// 4 or 5; 5 has checksums.
    pub version: u8,
    pub block: u32,
    pub sector: u32,
    pub inode_bytes: u32,
    pub blocks: u64,
    pub group_blocks: u32,
    pub groups: u32,
    /// Bits of a block number inside its group.
    pub group_block_bits: u32,
    /// Bits of an inode's number inside its block.
    pub inode_in_block_bits: u32,
    pub directory_block: u32,
    pub log_start: u64,
    pub log_blocks: u32,
    pub inodes: u64,
    pub free_inodes: u64,
    pub free_blocks: u64,
    pub root_inode: u64,
    /// Whether chunks of inodes may have holes.
    pub has_sparse_inodes: bool,
    pub checksum: Checksum,
}

impl Superblock {
    /// Decodes a sector of at least 512 bytes.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        if bytes.len() < 512 || !bytes.starts_with(b"XFSB") {
            return None;
        }
        let version = (be16(bytes, 100) & 0xf) as u8;
        let log2 = |at: usize| u32::from(bytes[at]);
        let superblock = Superblock {
            uuid: uuid(bytes, 32),
            meta_uuid: match version == 5 && be32(bytes, 216) & INCOMPAT_META_UUID != 0 {
                true => uuid(bytes, 248),
                false => uuid(bytes, 32),
            },
            label: text::label(&bytes[108..120]),
            version,
            block: be32(bytes, 4),
            sector: be16(bytes, 102).into(),
            inode_bytes: be16(bytes, 104).into(),
            blocks: be64(bytes, 8),
            group_blocks: be32(bytes, 84),
            groups: be32(bytes, 88),
            group_block_bits: log2(124),
            inode_in_block_bits: log2(123),
            directory_block: be32(bytes, 4).checked_shl(log2(192)).unwrap_or(0),
            log_start: be64(bytes, 48),
            log_blocks: be32(bytes, 96),
            inodes: be64(bytes, 128),
            free_inodes: be64(bytes, 136),
            free_blocks: be64(bytes, 144),
            root_inode: be64(bytes, 56),
            has_sparse_inodes: version == 5 && be32(bytes, 216) & INCOMPAT_SPARSE_INODES != 0,
            checksum: Checksum::Absent,
        };
        let logs_fit = 1_u32.checked_shl(log2(120)) == Some(superblock.block)
            && 1_u32.checked_shl(log2(121)) == Some(superblock.sector);
        if !logs_fit || !superblock.fits_together() {
            return None;
        }
        let checksum = match (version, bytes.get(..superblock.sector as usize)) {
            (5, Some(sector)) if crc32c_without(sector, 224) == le32(sector, 224) => Checksum::Good,
            (5, Some(_)) => Checksum::Bad,
            _ => Checksum::Absent,
        };
        Some(Superblock { checksum, ..superblock })
    }

    fn fits_together(&self) -> bool {
        let pow2 =
            |number: u32, least, most| number.is_power_of_two() && (least..=most).contains(&number);
        let before_last = u64::from(self.groups.saturating_sub(1)) * u64::from(self.group_blocks);
        matches!(self.version, 4 | 5)
            && pow2(self.block, 512, 65536)
            && pow2(self.sector, 512, 32768)
            && pow2(self.inode_bytes, 256, 2048)
            && pow2(self.directory_block, self.block, 65536)
            && self.sector <= self.block
            && self.inode_bytes <= self.block
            && self.group_blocks >= 64
            && self.groups >= 1
            && self.blocks > before_last
            && self.blocks <= before_last + u64::from(self.group_blocks)
            && self.blocks <= i64::MAX as u64 / u64::from(self.block)
            && self.group_block_bits <= 32
            && u64::from(self.group_blocks).next_power_of_two() == 1 << self.group_block_bits
            && self.block / self.inode_bytes == 1 << self.inode_in_block_bits.min(31)
    }

    /// Bytes of the file system without a log or a realtime part elsewhere.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block)
    }

    /// Bytes of an allocation group.
    pub fn group_bytes(&self) -> u64 {
        u64::from(self.group_blocks) * u64::from(self.block)
    }

    /// Bits of an inode's number inside its group.
    pub fn inode_bits_in_group(&self) -> u32 {
        self.group_block_bits + self.inode_in_block_bits
    }

    /// The number of an inode from its group and its number there.
    pub fn inode_number(&self, group: u32, in_group: u32) -> u64 {
        u64::from(group) << self.inode_bits_in_group() | u64::from(in_group)
    }

    /// The byte address of an inode; `None` outside of the file system.
    pub fn inode_address(&self, number: u64) -> Option<u64> {
        let group = u32::try_from(number >> self.inode_bits_in_group()).ok()?;
        let block = number >> self.inode_in_block_bits & ((1 << self.group_block_bits) - 1);
        let slot = number & ((1 << self.inode_in_block_bits) - 1);
        let address = self.group_block_address(group, u32::try_from(block).ok()?)?;
        Some(address + slot * u64::from(self.inode_bytes))
    }

    /// The byte address of a block of a group; `None` outside of the file system.
    pub fn group_block_address(&self, group: u32, block: u32) -> Option<u64> {
        if group >= self.groups || block >= self.group_blocks {
            return None;
        }
        let number = u64::from(group) * u64::from(self.group_blocks) + u64::from(block);
        (number < self.blocks).then(|| number * u64::from(self.block))
    }

    /// The byte address of a block by its number, whose high bits are its group.
    pub fn block_address(&self, number: u64) -> Option<u64> {
        let group = u32::try_from(number >> self.group_block_bits).ok()?;
        let block = u32::try_from(number & ((1 << self.group_block_bits) - 1)).ok()?;
        self.group_block_address(group, block)
    }

    /// The group of a block counted from the start of the file system, and its number there.
    pub fn group_of(&self, block: u64) -> (u32, u32) {
        let size = u64::from(self.group_blocks);
        ((block / size) as u32, (block % size) as u32)
    }

    /// What blkid says of it.
    pub fn identified(&self) -> Identified {
        Identified {
            kind: Kind::Xfs,
            label: self.label.clone(),
            uuid: text::uuid(self.uuid),
            bytes: Some(self.bytes()),
            checksum: self.checksum,
        }
    }
}
