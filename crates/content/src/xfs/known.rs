//! What is known of one XFS, and its blocks in windows.

use std::collections::BTreeMap;

use super::headers;
use super::inode;
use super::superblock::Superblock;
use crate::field::be64;
use crate::witness::{Block, Fact, FactKind, Finds, Place, WitnessKind};

/// Inodes that are kept.
const INODES_MAX: usize = 1 << 16;

/// A file system and what was learned of it.
#[derive(Clone, Debug)]
pub struct Xfs {
    pub superblock: Superblock,
    /// Heads of inodes of version 5.
    pub inodes: BTreeMap<u64, Box<[u8]>>,
    /// Inodes of which a directory of version 4 was seen.
    pub directories: BTreeMap<u64, ()>,
}

impl Xfs {
    /// A file system of which only a superblock is known.
    pub fn new(superblock: Superblock) -> Xfs {
        Xfs { superblock, inodes: BTreeMap::new(), directories: BTreeMap::new() }
    }

    /// Whether another superblock is of the same file system.
    pub fn is(&self, other: &Superblock) -> bool {
        let of = |s: &Superblock| (s.uuid, s.meta_uuid, s.block, s.group_blocks, s.version);
        of(&self.superblock) == of(other)
    }

    /// Looks at a place, a multiple of 512 bytes; `rest` is the window from there on.
    pub fn scan_sector(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        if let Some(stated) = headers::stated(&self.superblock, rest) {
            let (kind, number) = (stated.kind, stated.address);
            finds.block(Block { at, file_system: index, len: 512, kind, number });
            if kind == WitnessKind::Inode && (inode::is_file(rest) || inode::is_directory(rest)) {
                let head = &rest[..rest.len().min(inode::HEAD)];
                finds.fact(index, FactKind::Inode, be64(rest, 152), head);
            }
        } else if self.superblock.version == 4
            && let Some(number) = inode::of_directory(rest)
            && self.superblock.inode_address(number).is_some()
        {
            finds.fact(index, FactKind::Directory, number, &[]);
        }
    }

    /// Takes a fact.
    pub fn learn(&mut self, fact: &Fact) {
        match fact.kind {
            FactKind::Inode if self.inodes.len() < INODES_MAX => {
                self.inodes.insert(fact.number, fact.bytes.clone());
            }
            FactKind::Directory if self.directories.len() < INODES_MAX => {
                self.directories.insert(fact.number, ());
            }
            _ => {}
        }
    }

    /// Where a block that was found must stand.
    pub fn place(&self, block: &Block) -> Option<Place> {
        Some(Place::at(block.number))
    }
}

impl Superblock {
    /// The group of a superblock by the header behind it; `rest` begins with the superblock.
    pub fn group(&self, rest: &[u8]) -> Option<u32> {
        headers::free_space_group(self, rest.get(self.sector as usize..)?)
    }
}
