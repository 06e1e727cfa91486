//! The superblock of ext2, ext3 and ext4: 1024 bytes at byte 1024, with copies in other groups.
//!
//! Offsets: kernel documentation, "ext4 superblock". A decoded one satisfies every relation that
//! later arithmetic depends on.

use crate::crc::raw32c;
use crate::field::{le16, le32, uuid};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::text;

/// Bytes of a superblock.
pub const BYTES: usize = 1024;

const COMPAT_JOURNAL: u32 = 0x4;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEVICE: u32 = 0x8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const INCOMPAT_FLEX_BG: u32 = 0x200;
const INCOMPAT_SEED: u32 = 0x2000;
/// What ext3 knows: file types, recovery, meta_bg; sparse superblocks, large files, btree.
const INCOMPAT_EXT3: u32 = 0x2 | 0x4 | INCOMPAT_META_BG;
const RO_COMPAT_EXT3: u32 = 0x7;
const RO_COMPAT_GROUP_CRC: u32 = 0x10;
const RO_COMPAT_BIGALLOC: u32 = 0x200;
const RO_COMPAT_METADATA_CRC: u32 = 0x400;

/// How group descriptors and other metadata are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Not at all: ext2, ext3.
    None,
    /// CRC-16 of descriptors (`uninit_bg`).
    Crc16,
    /// CRC-32C of everything (`metadata_csum`).
    Crc32c,
}

/// A superblock whose numbers fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub kind: Kind,
    pub uuid: [u8; 16],
    pub label: Option<String>,
    /// Bytes of a block: 1 KiB to 64 KiB.
    pub block: u32,
    pub blocks: u64,
    pub first_data_block: u64,
    pub blocks_per_group: u64,
    /// Blocks that a bit of the block bitmap stands for; 1 but with bigalloc.
    pub cluster_blocks: u64,
    pub groups: u64,
    pub inodes: u32,
    pub inodes_per_group: u32,
    pub inode_bytes: u32,
    pub descriptor_bytes: u32,
    pub reserved_descriptor_blocks: u64,
    /// Groups whose bitmaps and tables lie together; 1 without flex_bg.
    pub flex_groups: u64,
    pub has_64bit: bool,
    pub has_meta_bg: bool,
    pub free_blocks: u64,
    pub free_inodes: u32,
    /// First inode that is no reserved one.
    pub first_inode: u32,
    pub protection: Protection,
    /// Start value of the checksums of metadata.
    pub seed: u32,
    /// The group whose copy this is.
    pub group: u64,
    pub written: Option<u64>,
    /// Whether it was unmounted, and no journal has to be replayed.
    pub is_clean: bool,
    pub checksum: Checksum,
}

impl Superblock {
    /// Decodes the first 1024 bytes; `None` if it is no superblock, or its numbers contradict each
    /// other.
    pub fn decode(bytes: &[u8]) -> Option<Superblock> {
        let bytes = bytes.get(..BYTES)?;
        if le16(bytes, 56) != 0xef53 || le32(bytes, 24) > 6 {
            return None;
        }
        let revised = le32(bytes, 76) >= 1;
        let features = |at| if revised { le32(bytes, at) } else { 0 };
        let (compat, incompat, ro_compat) = (features(92), features(96), features(100));
        let has_64bit = incompat & INCOMPAT_64BIT != 0;
        let high =
            |low: u64, at| if has_64bit { low | u64::from(le32(bytes, at)) << 32 } else { low };
        let protection = match ro_compat {
            all if all & RO_COMPAT_METADATA_CRC != 0 => Protection::Crc32c,
            all if all & RO_COMPAT_GROUP_CRC != 0 => Protection::Crc16,
            _ => Protection::None,
        };
        let checksum = match protection {
            Protection::Crc32c if raw32c(!0, &bytes[..1020]) == le32(bytes, 1020) => Checksum::Good,
            Protection::Crc32c => Checksum::Bad,
            _ => Checksum::Absent,
        };
        let uuid = uuid(bytes, 104);
        let has_seed = incompat & INCOMPAT_SEED != 0;
        let bigalloc = ro_compat & RO_COMPAT_BIGALLOC != 0;
        let flex = (incompat & INCOMPAT_FLEX_BG != 0).then(|| bytes[372].min(31));
        let (wtime, wtime_high) = (le32(bytes, 48), bytes[628]);
        let mut superblock = Superblock {
            kind: kind(compat, incompat, ro_compat),
            uuid,
            label: text::label(&bytes[120..136]),
            block: 1024 << le32(bytes, 24),
            blocks: high(le32(bytes, 4).into(), 336),
            first_data_block: le32(bytes, 20).into(),
            blocks_per_group: le32(bytes, 32).into(),
            cluster_blocks: 1,
            groups: 0,
            inodes: le32(bytes, 0),
            inodes_per_group: le32(bytes, 40),
            inode_bytes: if revised { le16(bytes, 88).into() } else { 128 },
            descriptor_bytes: if has_64bit { le16(bytes, 254).into() } else { 32 },
            reserved_descriptor_blocks: le16(bytes, 206).into(),
            flex_groups: 1 << flex.unwrap_or(0),
            has_64bit,
            has_meta_bg: incompat & INCOMPAT_META_BG != 0,
            free_blocks: high(le32(bytes, 12).into(), 344),
            free_inodes: le32(bytes, 16),
            first_inode: if revised { le32(bytes, 84) } else { 11 },
            protection,
            seed: if has_seed { le32(bytes, 624) } else { raw32c(!0, &uuid) },
            group: if revised { le16(bytes, 90).into() } else { 0 },
            written: (wtime != 0).then(|| u64::from(wtime_high) << 32 | u64::from(wtime)),
            is_clean: le16(bytes, 58) & 3 == 1 && incompat & INCOMPAT_RECOVER == 0,
            checksum,
        };
        if superblock.kind == Kind::ExtJournal {
            return (superblock.blocks > 0).then_some(superblock);
        }
        if bigalloc {
            let log_cluster = le32(bytes, 28);
            let more = log_cluster.checked_sub(le32(bytes, 24)).filter(|more| *more <= 20)?;
            superblock.cluster_blocks = 1 << more;
        }
        superblock.fits_together().then_some(superblock)
    }

    /// Checks the relations that arithmetic depends on, and counts the groups.
    fn fits_together(&mut self) -> bool {
        let block = u64::from(self.block);
        let first = if self.block == 1024 && self.cluster_blocks == 1 { 1 } else { 0 };
        let per_group_max = 8 * block * self.cluster_blocks;
        let sane = self.first_data_block == first
            && (8..=per_group_max).contains(&self.blocks_per_group)
            && self.blocks > first
            && self.blocks <= i64::MAX as u64 / block
            && (128..=self.block).contains(&self.inode_bytes)
            && self.inode_bytes.is_power_of_two()
            && (32..=1024.min(self.block)).contains(&self.descriptor_bytes)
            && self.descriptor_bytes.is_power_of_two()
            && (1..=8 * self.block).contains(&self.inodes_per_group);
        if !sane {
            return false;
        }
        self.groups = (self.blocks - first).div_ceil(self.blocks_per_group);
        self.groups.checked_mul(self.inodes_per_group.into()) == Some(self.inodes.into())
            && self.group < self.groups
    }

    /// Bytes of the file system.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block)
    }

    /// Byte address of the copy in `group`.
    pub fn address_in(&self, group: u64) -> u64 {
        match group {
            0 => 1024,
            _ => (self.first_data_block + group * self.blocks_per_group) * u64::from(self.block),
        }
    }

    /// Byte address at which this copy stands.
    pub fn address(&self) -> u64 {
        self.address_in(self.group)
    }

    /// What blkid says of it.
    pub fn identified(&self) -> Identified {
        Identified {
            kind: self.kind,
            label: self.label.clone(),
            uuid: text::uuid(self.uuid),
            bytes: Some(self.blocks.saturating_mul(self.block.into())),
            checksum: self.checksum,
        }
    }
}

fn kind(compat: u32, incompat: u32, ro_compat: u32) -> Kind {
    if incompat & INCOMPAT_JOURNAL_DEVICE != 0 {
        return Kind::ExtJournal;
    }
    if incompat & !INCOMPAT_EXT3 != 0 || ro_compat & !RO_COMPAT_EXT3 != 0 {
        return Kind::Ext4;
    }
    if compat & COMPAT_JOURNAL != 0 { Kind::Ext3 } else { Kind::Ext2 }
}
