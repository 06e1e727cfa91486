//! What is known of one ext file system, and its blocks in windows.
//!
//! Inodes prove their number by their checksum; where it lies, the group descriptors say. Of file
//! systems without checksums, a directory's first block names its inode.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::group::{self, Group};
use super::inode::{self, Runs};
use super::superblock::{Protection, Superblock};
use crate::bytes::{Bytes, take};
use crate::prediction::thin;
use crate::undo::Undo;
use crate::witness::{Block, Fact, FactKind, Finds, Place, WitnessKind};

/// Versions of a thing that are kept: a stale member may have another.
const VERSIONS_MAX: usize = 4;
/// Blocks of descriptors that are read: those of 256 TiB.
const DESCRIPTOR_BLOCKS_MAX: u64 = 1 << 15;
/// Inodes of files that are kept.
const FILES_MAX: usize = 1 << 16;

/// A file system and what was learned of it.
#[derive(Clone, Debug)]
pub struct Ext {
    pub superblock: Superblock,
    undo: Option<Arc<Undo>>,
    /// Blocks of descriptors by index, each in the versions that were seen.
    pub descriptors: BTreeMap<u64, Vec<Box<[u8]>>>,
    /// Heads of inodes that proved their number.
    pub inodes: BTreeMap<u32, Vec<Box<[u8]>>>,
    /// Inodes of which a directory was seen.
    pub directories: BTreeMap<u32, ()>,
}

impl Ext {
    /// A file system of which only a superblock is known.
    pub fn new(superblock: Superblock) -> Ext {
        let proves = superblock.protection == Protection::Crc32c && superblock.inode_bytes >= 160;
        Ext {
            undo: proves.then(|| Arc::new(inode::undo(superblock.inode_bytes))),
            superblock,
            descriptors: BTreeMap::new(),
            inodes: BTreeMap::new(),
            directories: BTreeMap::new(),
        }
    }

    /// Whether another superblock is of the same file system.
    pub fn is(&self, other: &Superblock) -> bool {
        let of = |s: &Superblock| (s.uuid, s.block, s.blocks_per_group, s.inodes_per_group);
        of(&self.superblock) == of(other)
    }

    /// The number that an inode proves, if inodes of this file system do.
    pub fn proof(&self) -> Option<impl Fn(&[u8]) -> u32 + Send + Sync + 'static> {
        let (superblock, undo) = (self.superblock.clone(), self.undo.clone()?);
        Some(move |bytes: &[u8]| inode::number(&superblock, &undo, bytes))
    }

    /// Byte address of a block of descriptors, without meta_bg.
    pub fn descriptors_address(&self, index: u64) -> u64 {
        let block = self.superblock.first_data_block + 1 + index;
        block * u64::from(self.superblock.block)
    }

    /// Reads the descriptors through a hypothesis; true if some are new.
    pub fn learn_through(&mut self, through: &dyn Bytes) -> bool {
        let before = self.descriptors.len();
        let blocks = self.superblock.groups.div_ceil(group::per_block(&self.superblock));
        for index in 0..blocks.min(DESCRIPTOR_BLOCKS_MAX) {
            if let Some(block) = self.descriptors_through(through, index) {
                keep(self.descriptors.entry(index), &block);
            }
        }
        self.descriptors.len() > before
    }

    /// A block of descriptors that proves its groups.
    pub fn descriptors_through(&self, through: &dyn Bytes, index: u64) -> Option<Vec<u8>> {
        if self.superblock.has_meta_bg {
            return None;
        }
        let len = self.superblock.block as usize;
        let block = take(through, self.descriptors_address(index), len)?;
        group::proves_block(&self.superblock, index, &block).then_some(block)
    }

    /// The indices of at most `limit` blocks of descriptors, spread.
    pub fn descriptor_blocks(&self, limit: usize) -> Vec<u64> {
        let blocks = self.superblock.groups.div_ceil(group::per_block(&self.superblock));
        let mut indices: Vec<u64> = (0..blocks.min(DESCRIPTOR_BLOCKS_MAX)).collect();
        thin(&mut indices, limit.max(1));
        indices
    }

    /// At most about `limit` groups, spread: as they are read, else as they were seen.
    pub fn groups_through(&self, through: &dyn Bytes, limit: usize) -> Vec<(u64, Group)> {
        let superblock = &self.superblock;
        let per_block = group::per_block(superblock);
        let mut found = Vec::new();
        for index in self.descriptor_blocks(limit) {
            let numbers = index * per_block..((index + 1) * per_block).min(superblock.groups);
            match self.descriptors_through(through, index) {
                Some(block) => {
                    let descriptors = block.chunks_exact(superblock.descriptor_bytes as usize);
                    let groups = descriptors.map(|bytes| Group::decode(superblock, bytes));
                    found.extend(numbers.zip(groups));
                }
                None => found.extend(
                    numbers.filter_map(|number| Some((number, self.groups(number).next()?))),
                ),
            }
        }
        found
    }

    /// Looks at a place, a multiple of 512 bytes; `rest` is the window from there on.
    pub fn scan_sector(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        if let Some(number) = inode::of_directory(rest)
            && (2..=self.superblock.inodes).contains(&number)
        {
            let kind = WitnessKind::Directory;
            let (number, len) = (number.into(), 24);
            finds.block(Block { at, file_system: index, len, kind, number });
            finds.fact(index, FactKind::Directory, number, &[]);
        }
        if let Some(block) = rest.get(..self.superblock.block as usize)
            && let Some(number) = group::index_of_block(&self.superblock, block)
        {
            finds.fact(index, FactKind::GroupDescriptors, number, block);
        }
    }

    /// Looks at a place, a multiple of 256 bytes, where an inode may begin.
    pub fn scan_inode(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        let Some(undo) = &self.undo else { return };
        let Some(bytes) = rest.get(..self.superblock.inode_bytes as usize) else { return };
        let number = inode::number(&self.superblock, undo, bytes);
        if number == 0 || number > self.superblock.inodes {
            return;
        }
        // Two inodes of a block differ by whole inodes also in a member, where blocks begin at
        // multiples of 512.
        let in_sector = (u64::from(number) - 1) * self.inode_bytes() % 512;
        if at % 512 != in_sector {
            return;
        }
        let len = self.superblock.inode_bytes;
        let (kind, number) = (WitnessKind::Inode, u64::from(number));
        finds.block(Block { at, file_system: index, len, kind, number });
        if inode::is_directory(bytes) || inode::is_file(bytes) {
            finds.fact(index, FactKind::Inode, number, &bytes[..inode::HEAD]);
        }
    }

    fn inode_bytes(&self) -> u64 {
        self.superblock.inode_bytes.into()
    }

    /// Takes a fact.
    pub fn learn(&mut self, fact: &Fact) {
        let number = u32::try_from(fact.number).unwrap_or(0);
        match fact.kind {
            FactKind::GroupDescriptors => {
                keep(self.descriptors.entry(fact.number), &fact.bytes);
            }
            FactKind::Inode if self.inodes.len() < FILES_MAX => {
                keep(self.inodes.entry(number), &fact.bytes);
            }
            FactKind::Directory if self.directories.len() < FILES_MAX => {
                self.directories.insert(number, ());
            }
            _ => {}
        }
    }

    /// Where a block that was found must stand.
    pub fn place(&self, block: &Block) -> Option<Place> {
        match block.kind {
            WitnessKind::Superblock => Some(Place::at(block.number)),
            WitnessKind::Inode => self.inode_address(block.number).map(Place::at),
            WitnessKind::Directory => self.directory_place(u32::try_from(block.number).ok()?),
            _ => None,
        }
    }

    /// The descriptors of a group that were seen, of which most are equal.
    pub fn groups(&self, group: u64) -> impl Iterator<Item = Group> {
        let size = self.superblock.descriptor_bytes as usize;
        let per_block = group::per_block(&self.superblock);
        let versions = self.descriptors.get(&(group / per_block)).into_iter().flatten();
        let at = (group % per_block) as usize * size;
        let found = versions.filter_map(move |block| block.get(at..at + size));
        found.map(|bytes| Group::decode(&self.superblock, bytes))
    }

    /// The first block of a group's inodes.
    pub fn inode_table(&self, group: u64) -> Option<u64> {
        match self.groups(group).next() {
            Some(found) => Some(found.inode_table),
            None => self.usual_inode_table(group),
        }
    }

    /// Where mke2fs puts the tables of the first flex group: behind the superblock, the
    /// descriptors, the blocks that are reserved for more of them, and the bitmaps of all groups of
    /// the flex group, as if all were there. For file systems whose descriptors are lost.
    fn usual_inode_table(&self, group: u64) -> Option<u64> {
        let superblock = &self.superblock;
        let flex = superblock.flex_groups;
        if flex == 1 || group >= flex || superblock.has_meta_bg {
            return None;
        }
        let descriptors = superblock.groups.div_ceil(group::per_block(superblock));
        let reserved = superblock.reserved_descriptor_blocks;
        let before = superblock.first_data_block + 1 + descriptors + reserved;
        Some(before + 2 * flex + group * self.table_blocks())
    }

    /// Blocks of a group's inodes.
    pub fn table_blocks(&self) -> u64 {
        let bytes = u64::from(self.superblock.inodes_per_group) * self.inode_bytes();
        bytes.div_ceil(self.superblock.block.into())
    }

    /// The byte address of an inode.
    pub fn inode_address(&self, number: u64) -> Option<u64> {
        let index = number.checked_sub(1)?;
        let per_group = u64::from(self.superblock.inodes_per_group);
        let table = self.inode_table(index / per_group)?;
        let address = table.checked_mul(self.superblock.block.into())?;
        let address = address.checked_add(index % per_group * self.inode_bytes())?;
        (address < self.superblock.bytes()).then_some(address)
    }

    /// The block at which a directory begins, by the inodes that were seen. More than one version
    /// names one of two places.
    fn directory_place(&self, number: u32) -> Option<Place> {
        let versions = self.inodes.get(&number)?.iter();
        let directories = versions.filter(|bytes| inode::is_directory(bytes));
        let mut starts: Vec<u64> = directories
            .filter_map(|bytes| Runs::of(&self.superblock, bytes).block(0))
            .map(|block| block * u64::from(self.superblock.block))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let address = *starts.first()?;
        Some(Place { address, also: starts.get(1).copied(), strong: starts.len() <= 2 })
    }
}

/// Keeps another version, if it is one.
fn keep<K: Ord>(entry: Entry<'_, K, Vec<Box<[u8]>>>, bytes: &[u8]) {
    let versions = entry.or_default();
    if versions.len() < VERSIONS_MAX && versions.iter().all(|known| **known != *bytes) {
        versions.push(bytes.into());
    }
}
