//! Group descriptors: where a group's bitmaps and inodes lie.

use super::superblock::{Protection, Superblock};
use crate::crc::{crc16, raw32c};
use crate::field::{le16, le32};

/// No inode of the group was ever used: bitmap and table may hold anything.
pub const INODES_UNINITIALIZED: u16 = 1;
/// The same of its blocks: the bitmap follows from the layout.
pub const BLOCKS_UNINITIALIZED: u16 = 2;

/// A group's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
    /// In clusters.
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
    pub flags: u16,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    pub block_bitmap_crc: u32,
    pub inode_bitmap_crc: u32,
}

impl Group {
    /// Decodes a descriptor of the superblock's size.
    pub fn decode(superblock: &Superblock, bytes: &[u8]) -> Group {
        let wide = superblock.has_64bit && superblock.descriptor_bytes >= 64;
        let join = |low: u32, at: usize, shift: u32| {
            if wide { low | u32::from(le16(bytes, at)) << shift } else { low }
        };
        let block = |low: usize, high: usize| {
            let high = if wide { u64::from(le32(bytes, high)) << 32 } else { 0 };
            high | u64::from(le32(bytes, low))
        };
        let half = |low: usize, high: usize| join(le16(bytes, low).into(), high, 16);
        Group {
            block_bitmap: block(0, 32),
            inode_bitmap: block(4, 36),
            inode_table: block(8, 40),
            free_blocks: half(12, 44),
            free_inodes: half(14, 46),
            directories: half(16, 48),
            flags: le16(bytes, 18),
            unused_inodes: half(28, 50),
            block_bitmap_crc: half(24, 56),
            inode_bitmap_crc: half(26, 58),
        }
    }

    /// Whether its numbers can be those of a group.
    pub fn fits(&self, superblock: &Superblock) -> bool {
        let tables = u64::from(superblock.inodes_per_group) * u64::from(superblock.inode_bytes);
        let table_blocks = tables.div_ceil(superblock.block.into());
        let inside = |block: u64| block > superblock.first_data_block && block < superblock.blocks;
        let table = self.inode_table..self.inode_table.saturating_add(table_blocks);
        inside(self.block_bitmap)
            && inside(self.inode_bitmap)
            && inside(table.start)
            && table.end <= superblock.blocks
            && self.block_bitmap != self.inode_bitmap
            && !table.contains(&self.block_bitmap)
            && !table.contains(&self.inode_bitmap)
            && self.flags & !7 == 0
            && u64::from(self.free_blocks) <= superblock.blocks_per_group
            && self.free_inodes <= superblock.inodes_per_group
            && self.directories <= superblock.inodes_per_group
            && self.unused_inodes <= superblock.inodes_per_group
    }

    /// Whether it has an initialised bitmap of blocks, of inodes.
    pub fn has_bitmaps(&self) -> (bool, bool) {
        let has = |flag| self.flags & flag == 0;
        (has(BLOCKS_UNINITIALIZED), has(INODES_UNINITIALIZED))
    }

    /// Clusters of a group, of which the last has fewer.
    pub fn clusters(superblock: &Superblock, group: u64) -> u64 {
        let start = superblock.first_data_block + group * superblock.blocks_per_group;
        let blocks = superblock.blocks_per_group.min(superblock.blocks.saturating_sub(start));
        blocks.div_ceil(superblock.cluster_blocks)
    }
}

/// Whether a descriptor is that of `group`, by its checksum; without one, by its numbers.
pub fn proves(superblock: &Superblock, group: u64, bytes: &[u8]) -> bool {
    let number = (group as u32).to_le_bytes();
    match superblock.protection {
        Protection::Crc32c => {
            let state = raw32c(raw32c(superblock.seed, &number), &bytes[..30]);
            let state = raw32c(raw32c(state, &[0; 2]), &bytes[32..]);
            state as u16 == le16(bytes, 30)
        }
        Protection::Crc16 => {
            let state = crc16(crc16(!0, &superblock.uuid), &number);
            crc16(crc16(state, &bytes[..30]), &bytes[32..]) == le16(bytes, 30)
        }
        Protection::None => {
            let decoded = Group::decode(superblock, bytes);
            let start = superblock.first_data_block + group * superblock.blocks_per_group;
            let own = start..start + superblock.blocks_per_group;
            let inside = [decoded.block_bitmap, decoded.inode_bitmap, decoded.inode_table]
                .iter()
                .all(|block| own.contains(block));
            decoded.fits(superblock) && (inside || superblock.flex_groups > 1)
        }
    }
}

/// Descriptors in a block.
pub fn per_block(superblock: &Superblock) -> u64 {
    u64::from(superblock.block / superblock.descriptor_bytes)
}

/// Which block of descriptors this is: every descriptor in it proves its group. `bytes` is a block.
pub fn index_of_block(superblock: &Superblock, bytes: &[u8]) -> Option<u64> {
    let first = Group::decode(superblock, bytes);
    // The cheap test of what most blocks fail.
    if first.flags & !7 != 0 || first.block_bitmap == 0 || !first.fits(superblock) {
        return None;
    }
    let per_block = per_block(superblock);
    let blocks = superblock.groups.div_ceil(per_block);
    let near = (first.block_bitmap - superblock.first_data_block) / superblock.blocks_per_group;
    // Bitmaps lie in their group, or in the first of their flex group; of grown file systems
    // anywhere, so that a few others are tried.
    let likely = near / per_block..(near + superblock.flex_groups).div_ceil(per_block).min(blocks);
    let others = (0..blocks.min(64)).filter(|index| !likely.contains(index));
    let candidates = likely.clone().take(64).chain(others);
    candidates.into_iter().find(|index| proves_block(superblock, *index, bytes))
}

/// Whether every descriptor of a block proves its group.
pub fn proves_block(superblock: &Superblock, index: u64, bytes: &[u8]) -> bool {
    let size = superblock.descriptor_bytes as usize;
    let groups = index * per_block(superblock)..superblock.groups;
    let mut pairs = groups.zip(bytes.chunks_exact(size)).peekable();
    pairs.peek().is_some()
        && pairs.all(|(group, bytes)| {
            proves(superblock, group, bytes) && Group::decode(superblock, bytes).fits(superblock)
        })
}
