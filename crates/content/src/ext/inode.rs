//! Inodes: how one proves its number, and where its file lies.

use super::superblock::Superblock;
use crate::crc::raw32c;
use crate::field::{le16, le32};
use crate::undo::Undo;

/// What of an inode is kept as a fact: up to the checksum's high half and the extra size.
pub const HEAD: usize = 160;

const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;
const CRC_LOW: usize = 0x7c;
const CRC_HIGH: usize = 0x82;

/// The map from the checksum of an inode of this size to its number; behind the number come the
/// generation and the inode.
pub fn undo(inode_bytes: u32) -> Undo {
    Undo::zeroes(4 + 4 + inode_bytes as usize)
}

/// Whether these may be the first 132 bytes of an inode in use with a whole checksum: the cheap
/// test of what most bytes fail.
#[inline]
pub fn may_be(bytes: &[u8]) -> bool {
    // The extra part of Linux (32 bytes) and of older versions (28).
    matches!(le16(bytes, 128), 28 | 32) && is_plausible(bytes)
}

/// A directory, file or link that is not deleted.
pub fn is_plausible(bytes: &[u8]) -> bool {
    matches!(le16(bytes, 0) >> 12, 4 | 8 | 10)
        && (1..=2000).contains(&le16(bytes, 26))
        && le32(bytes, 20) == 0
}

/// The number that an inode proves by its checksum, whatever it is; `bytes` is an inode.
pub fn number(superblock: &Superblock, undo: &Undo, bytes: &[u8]) -> u32 {
    let mut copy = [0; 4 + 4096];
    let copy = &mut copy[..4 + bytes.len()];
    copy[..4].copy_from_slice(&bytes[100..104]);
    copy[4..].copy_from_slice(bytes);
    copy[4 + CRC_LOW..][..2].fill(0);
    copy[4 + CRC_HIGH..][..2].fill(0);
    let crc = u32::from(le16(bytes, CRC_LOW)) | u32::from(le16(bytes, CRC_HIGH)) << 16;
    undo.undo(crc ^ raw32c(0, copy)) ^ superblock.seed
}

/// Whether an inode is a directory.
pub fn is_directory(bytes: &[u8]) -> bool {
    le16(bytes, 0) >> 12 == 4
}

/// Whether an inode is a file.
pub fn is_file(bytes: &[u8]) -> bool {
    le16(bytes, 0) >> 12 == 8
}

/// Size in bytes.
pub fn size(bytes: &[u8]) -> u64 {
    let high = if is_file(bytes) { u64::from(le32(bytes, 108)) } else { 0 };
    high << 32 | u64::from(le32(bytes, 4))
}

/// Where a file's blocks lie, as far as the inode itself says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// (first block in the file, first block in the file system, count); initialised ones only.
    pub runs: Vec<(u64, u64, u64)>,
    /// Blocks of the file system that hold the rest of the extent tree.
    pub nodes: Vec<u64>,
}

impl Runs {
    /// Decodes the map of an inode; at most twelve runs.
    pub fn of(superblock: &Superblock, bytes: &[u8]) -> Runs {
        let flags = le32(bytes, 32);
        let map = bytes.get(40..100).unwrap_or_default();
        if flags & FLAG_INLINE != 0 {
            return Runs::default();
        }
        let mut found = match flags & FLAG_EXTENTS {
            0 => Runs::direct(superblock, bytes, map),
            _ => Runs::extents(map),
        };
        let inside = |block: u64, count: u64| {
            block > superblock.first_data_block
                && block.checked_add(count).is_some_and(|end| end <= superblock.blocks)
        };
        found.runs.retain(|&(_, block, count)| inside(block, count));
        found.nodes.retain(|&block| inside(block, 1));
        found
    }

    /// The extents in a node: in the inode's map, or in a block of the tree.
    pub fn extents(node: &[u8]) -> Runs {
        let (entries, depth) = (usize::from(le16(node, 2)), le16(node, 6));
        if le16(node, 0) != 0xf30a || entries > usize::from(le16(node, 4)) {
            return Runs::default();
        }
        let mut found = Runs::default();
        for entry in node.get(12..).unwrap_or_default().chunks_exact(12).take(entries) {
            let file_block = u64::from(le32(entry, 0));
            if depth > 0 {
                found.nodes.push(u64::from(le16(entry, 8)) << 32 | u64::from(le32(entry, 4)));
                continue;
            }
            let count = u64::from(le16(entry, 4));
            // Longer ones are reserved and not written yet.
            if count > 0 && count <= 0x8000 {
                let block = u64::from(le16(entry, 6)) << 32 | u64::from(le32(entry, 8));
                found.runs.push((file_block, block, count));
            }
        }
        found
    }

    fn direct(superblock: &Superblock, bytes: &[u8], map: &[u8]) -> Runs {
        let blocks = size(bytes).div_ceil(superblock.block.into());
        // Short links and devices keep other things in the map.
        let is_mapped = is_directory(bytes) || is_file(bytes);
        let count = if is_mapped { blocks.min(12) } else { 0 };
        let pointers = (0..count).map(|index| (index, le32(map, 4 * index as usize).into(), 1));
        Runs { runs: pointers.filter(|(_, block, _)| *block != 0).collect(), nodes: Vec::new() }
    }

    /// The block of the file system that holds a block of the file.
    pub fn block(&self, file_block: u64) -> Option<u64> {
        let run = self.runs.iter().find(|(first, _, count)| {
            (*first..first.saturating_add(*count)).contains(&file_block)
        })?;
        Some(run.1 + (file_block - run.0))
    }
}

/// The number of the inode to which a directory's first block belongs: `.` and `..` at its head.
#[inline]
pub fn of_directory(block: &[u8]) -> Option<u32> {
    let block = block.first_chunk::<24>()?;
    // An entry of 12 bytes, a name of 1, and in ext2's oldest form no type.
    if !matches!(le32(block, 4), 0x0201_000c | 0x0001_000c) || &block[8..12] != b".\0\0\0" {
        return None;
    }
    let (parent, len) = (le32(block, 12), le16(block, 16));
    let is_parent = len >= 12 && len % 4 == 0 && block[18] == 2 && &block[20..22] == b"..";
    (is_parent && parent != 0).then(|| le32(block, 0)).filter(|number| *number != 0)
}

/// The inodes that the entries of a directory's first block name, without `.` and `..`. An index of
/// a large directory looks like one entry up to the end.
pub fn entries(block: &[u8]) -> Vec<u32> {
    let mut found = Vec::new();
    let mut at = 12 + usize::from(le16(block, 16));
    while let Some(entry) = block.get(at..).filter(|rest| rest.len() >= 12) {
        let (number, len) = (le32(entry, 0), usize::from(le16(entry, 4)));
        let is_entry = len >= 12 && len % 4 == 0 && usize::from(entry[6]) + 8 <= len;
        if !is_entry || at + len > block.len() {
            break;
        }
        // A name of no bytes is the checksum at the end.
        if number != 0 && entry[6] != 0 {
            found.push(number);
        }
        at += len;
    }
    found
}
