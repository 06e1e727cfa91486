//! B+trees of an allocation group, walked through a hypothesis: free space and inodes.

use super::headers;
use super::superblock::Superblock;
use crate::bytes::{Bytes, take};
use crate::field::{be16, be32, be64};

/// Blocks of one tree that are read at most.
const BLOCKS_MAX: usize = 64;

/// A tree of short pointers: (magic of version 4, of version 5, bytes of a record).
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    pub magic: [&'static [u8]; 2],
    record: usize,
}

/// Free space by block.
pub const FREE: Tree = Tree { magic: [b"ABTB", b"AB3B"], record: 8 };
/// Free space by size.
pub const FREE_BY_SIZE: Tree = Tree { magic: [b"ABTC", b"AB3C"], record: 8 };
/// Inodes.
pub const INODES: Tree = Tree { magic: [b"IABT", b"IAB3"], record: 16 };

/// The records of all leaves that were read.
pub struct Walk {
    pub records: Vec<Vec<u8>>,
    /// Whether all blocks were what they must be.
    pub sound: bool,
    /// Whether there are more blocks than are read.
    pub is_cut: bool,
}

impl Walk {
    /// Whether these are all records.
    pub fn is_whole(&self) -> bool {
        self.sound && !self.is_cut
    }
}

impl Tree {
    /// The magic number in this file system.
    pub fn own_magic(&self, superblock: &Superblock) -> &'static [u8] {
        self.magic[usize::from(superblock.version == 5)]
    }

    /// Whether a block at an address is one of this tree.
    pub fn is(&self, superblock: &Superblock, block: &[u8], address: u64) -> bool {
        let magic = self.own_magic(superblock);
        match superblock.version {
            5 => headers::is_node(superblock, block, magic, address),
            _ => block.starts_with(magic) && be16(block, 4) < 16,
        }
    }

    /// Walks the tree from its root in a group.
    pub fn walk(self, superblock: &Superblock, through: &dyn Bytes, group: u32, root: u32) -> Walk {
        let mut walk = Walk { records: Vec::new(), sound: true, is_cut: false };
        let mut blocks = vec![(root, None)];
        let mut read = 0;
        while let Some((block, level)) = blocks.pop() {
            if read == BLOCKS_MAX {
                walk.is_cut = true;
                break;
            }
            read += 1;
            let Some(found) = self.node(superblock, through, group, block, level) else {
                walk.sound = false;
                continue;
            };
            let header = if superblock.version == 5 { 56 } else { 16 };
            let (level, count) = (be16(&found, 4), usize::from(be16(&found, 6)));
            let body = &found[header..];
            if level == 0 {
                let records = body.chunks_exact(self.record).take(count);
                walk.records.extend(records.map(<[u8]>::to_vec));
                continue;
            }
            // Keys, then pointers, each with room for as many as fit. Keys of free space have two
            // numbers, those of inodes one.
            let key = self.record / if self.record == 16 { 4 } else { 1 };
            let most = body.len() / (key + 4);
            let pointers = body.get(most * key..).unwrap_or_default().chunks_exact(4);
            let children = pointers.take(count.min(most)).map(|bytes| be32(bytes, 0));
            blocks.extend(children.map(|child| (child, Some(level - 1))));
        }
        walk
    }

    fn node(
        self,
        superblock: &Superblock,
        through: &dyn Bytes,
        group: u32,
        block: u32,
        level: Option<u16>,
    ) -> Option<Vec<u8>> {
        let address = superblock.group_block_address(group, block)?;
        let found = take(through, address, superblock.block as usize)?;
        let is = self.is(superblock, &found, address)
            && level.is_none_or(|level| be16(&found, 4) == level);
        is.then_some(found)
    }
}

/// A chunk of 64 inodes.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    /// Number of the first inode in its group.
    pub first: u32,
    /// Bits of the inodes that are free or not there.
    pub free: u64,
    pub count: u32,
    pub free_count: u32,
}

impl Chunk {
    /// Decodes a record; with sparse chunks it has two more counts.
    pub fn decode(superblock: &Superblock, record: &[u8]) -> Chunk {
        let (count, free_count) = match superblock.has_sparse_inodes {
            true => (record[6].into(), record[7].into()),
            false => (64, be32(record, 4)),
        };
        Chunk { first: be32(record, 0), free: be64(record, 8), count, free_count }
    }
}
