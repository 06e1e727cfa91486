//! What must stand where, from descriptors and inodes.

use super::group::{self, Group};
use super::inode::{self, Runs};
use super::known::Ext;
use super::superblock::{Protection, Superblock};
use crate::bytes::{Bytes, take};
use crate::crc::raw32c;
use crate::field::le32;
use crate::files;
use crate::prediction::{Prediction, PredictionKind, thin};

/// A bitmap of blocks or inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitmap {
    Blocks,
    Inodes,
}

/// What a descriptor says of a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The block that holds it.
    pub block: u64,
    /// Bits, and how many of them are free.
    pub bits: u64,
    pub free: u64,
    /// Its checksum, if it has one: of this number of bytes.
    crc: Option<(u32, usize)>,
    /// Bits of the checksum that are stored.
    crc_mask: u32,
}

impl Said {
    /// `None` if the bitmap is not initialised.
    pub fn of(superblock: &Superblock, number: u64, group: &Group, which: Bitmap) -> Option<Said> {
        let (has_blocks, has_inodes) = group.has_bitmaps();
        let per_group = superblock.blocks_per_group / superblock.cluster_blocks;
        let (has, block, bits, free, crc, summed) = match which {
            Bitmap::Blocks => {
                let bits = Group::clusters(superblock, number);
                let free = group.free_blocks.into();
                (has_blocks, group.block_bitmap, bits, free, group.block_bitmap_crc, per_group)
            }
            Bitmap::Inodes => {
                let bits = u64::from(superblock.inodes_per_group);
                let free = group.free_inodes.into();
                (has_inodes, group.inode_bitmap, bits, free, group.inode_bitmap_crc, bits)
            }
        };
        let has_crc = superblock.protection == Protection::Crc32c;
        let fits = has && bits <= 8 * u64::from(superblock.block) && free <= bits;
        fits.then_some(Said {
            block,
            bits,
            free,
            crc: has_crc.then_some((crc, summed as usize / 8)),
            crc_mask: if superblock.descriptor_bytes >= 64 { !0 } else { 0xffff },
        })
    }

    /// Whether `bytes`, a block, are that bitmap. Without a checksum, by the number of free bits.
    pub fn is(&self, seed: u32, bytes: &[u8]) -> bool {
        match self.crc {
            Some((crc, len)) => bytes
                .get(..len)
                .is_some_and(|summed| (raw32c(seed, summed) ^ crc) & self.crc_mask == 0),
            None => self.free_in(bytes) == self.free,
        }
    }

    /// Free bits of a bitmap.
    pub fn free_in(&self, bytes: &[u8]) -> u64 {
        let whole = (self.bits / 8) as usize;
        let used: u32 = bytes[..whole.min(bytes.len())].iter().map(|byte| byte.count_ones()).sum();
        let last = bytes.get(whole).map_or(0, |byte| byte & ((1 << (self.bits % 8)) - 1));
        self.bits.saturating_sub(u64::from(used + last.count_ones()))
    }

    /// Whether other groups have the same contents: nothing, or everything is free.
    fn is_common(&self) -> bool {
        self.free == 0 || self.free == self.bits
    }
}

/// What was said of one bitmap by all versions of the descriptor that were seen.
fn bitmap(superblock: &Superblock, said: Vec<Said>, kind: PredictionKind) -> Option<Prediction> {
    let block = said.first()?.block;
    let (seed, len) = (superblock.seed, superblock.block);
    let has_crc = said[0].crc.is_some();
    let holds = move |bytes: &[u8]| said.iter().any(|said| said.is(seed, bytes));
    let prediction = Prediction::new(kind, block * u64::from(len), len, holds);
    Some(if has_crc { prediction } else { prediction.weak(0.7) })
}

/// The bitmaps of a group by its descriptors.
fn bitmaps(superblock: &Superblock, number: u64, groups: &[Group]) -> Vec<Prediction> {
    let kinds = [
        (Bitmap::Blocks, PredictionKind::BlockBitmap),
        (Bitmap::Inodes, PredictionKind::InodeBitmap),
    ];
    let one = |(which, kind)| {
        let said = groups.iter().filter_map(|group| Said::of(superblock, number, group, which));
        let said: Vec<Said> = said.filter(|said| !said.is_common()).collect();
        let block = said.first()?.block;
        bitmap(superblock, said.into_iter().filter(|said| said.block == block).collect(), kind)
    };
    kinds.into_iter().filter_map(one).collect()
}

/// What an inode, of which the head is given, says of other blocks.
fn from_inode(superblock: &Superblock, number: u32, head: &[u8]) -> Vec<Prediction> {
    let runs = Runs::of(superblock, head);
    let mut found = Vec::new();
    if inode::is_directory(head) {
        found.extend(runs.block(0).map(|block| directory(superblock, block, number)));
    } else if inode::is_file(head) {
        found.extend(file(superblock, head, &runs));
    }
    if superblock.protection == Protection::Crc32c {
        let nodes = runs.nodes.iter();
        found.extend(nodes.map(|block| extent_node(superblock, *block, number, head)));
    }
    found
}

fn directory(superblock: &Superblock, block: u64, number: u32) -> Prediction {
    let holds = move |bytes: &[u8]| inode::of_directory(bytes) == Some(number);
    let (len, kind) = (superblock.block, PredictionKind::Directory);
    Prediction::new(kind, block * u64::from(len), len, holds)
}

fn file(superblock: &Superblock, head: &[u8], runs: &Runs) -> Vec<Prediction> {
    let (size, block) = (inode::size(head), u64::from(superblock.block));
    let first = runs.block(0).filter(|_| size >= 8);
    let start = first.map(|first| files::start(first * block, superblock.block));
    let last = (size > 0).then(|| runs.block((size - 1) / block)).flatten();
    let end =
        last.and_then(|last| files::end(last * block, superblock.block, (size % block) as u32));
    start.into_iter().chain(end).collect()
}

/// A node of an extent tree: its checksum is behind its last place for an entry.
fn extent_node(superblock: &Superblock, block: u64, number: u32, head: &[u8]) -> Prediction {
    let state = raw32c(raw32c(superblock.seed, &number.to_le_bytes()), &head[100..104]);
    let holds = move |bytes: &[u8]| {
        let end = 12 + 12 * usize::from(crate::field::le16(bytes, 4));
        bytes.starts_with(b"\x0a\xf3")
            && bytes.get(..end).is_some_and(|node| raw32c(state, node) == le32(bytes, end))
    };
    let (len, kind) = (superblock.block, PredictionKind::Node);
    Prediction::new(kind, block * u64::from(len), len, holds)
}

impl Ext {
    /// An inode that must stand there; if it is a directory, then its first block.
    fn inode_prediction(&self, number: u32) -> Option<Prediction> {
        let address = self.inode_address(number.into())?;
        let len = self.superblock.inode_bytes;
        let superblock = self.superblock.clone();
        let then = move |bytes: &[u8]| {
            let runs = Runs::of(&superblock, bytes);
            let block = runs.block(0).filter(|_| inode::is_directory(bytes))?;
            Some(directory(&superblock, block, number))
        };
        let kind = PredictionKind::Inode;
        let prediction = match self.proof() {
            Some(proves) => {
                let holds = move |bytes: &[u8]| proves(bytes) == number;
                Prediction::new(kind, address, len, holds)
            }
            None => Prediction::new(kind, address, len, inode::is_plausible).weak(0.0),
        };
        Some(prediction.and_then(then))
    }

    /// A group of descriptors that must stand there.
    fn descriptors_prediction(&self, index: u64) -> Prediction {
        let superblock = self.superblock.clone();
        let (address, len) = (self.descriptors_address(index), superblock.block);
        let holds = move |bytes: &[u8]| group::proves_block(&superblock, index, bytes);
        Prediction::new(PredictionKind::GroupDescriptors, address, len, holds)
    }

    /// Predictions from what was learned.
    pub fn predictions(&self) -> Vec<Prediction> {
        let superblock = &self.superblock;
        let mut found = Vec::new();
        let per_block = group::per_block(superblock);
        for index in self.descriptors.keys() {
            for number in index * per_block..((index + 1) * per_block).min(superblock.groups) {
                let groups: Vec<Group> = self.groups(number).collect();
                found.extend(bitmaps(superblock, number, &groups));
            }
        }
        for (number, heads) in &self.inodes {
            found.extend(heads.iter().flat_map(|head| from_inode(superblock, *number, head)));
        }
        let unseen = self.directories.keys().filter(|number| !self.inodes.contains_key(number));
        found.extend(unseen.filter_map(|number| self.inode_prediction(*number)));
        found
    }

    /// Predictions from what is read: of descriptors, bitmaps, inodes in use, and what they name.
    pub fn predictions_through(&self, through: &dyn Bytes, limit: usize) -> Vec<Prediction> {
        let superblock = &self.superblock;
        let mut found = Vec::new();
        let mut groups = self.groups_through(through, limit);
        let blocks: Vec<u64> = group_blocks(superblock, &groups);
        if !superblock.has_meta_bg {
            found.extend(blocks.iter().map(|index| self.descriptors_prediction(*index)));
        }
        thin(&mut groups, limit / 2 + 1);
        let per_group = (2 * limit / groups.len().max(1)).max(4);
        for (number, group) in &groups {
            found.extend(bitmaps(superblock, *number, std::slice::from_ref(group)));
            let mut inodes = self.used_inodes(*number, group, through);
            thin(&mut inodes, per_group);
            for number in inodes {
                let Some(prediction) = self.inode_prediction(number) else { continue };
                let (address, len) = (prediction.address, prediction.len as usize);
                let head = take(through, address, len).filter(|head| prediction.holds(head));
                found.extend(
                    head.map(|head| from_inode(superblock, number, &head)).into_iter().flatten(),
                );
                found.push(prediction);
            }
        }
        // Most files begin with no magic number: its absence says nothing.
        found.retain(|prediction| prediction.kind != PredictionKind::FileStart);
        found
    }

    /// Inodes of a group that are in use by its bitmap, without reserved ones but the root.
    pub fn used_inodes(&self, number: u64, group: &Group, through: &dyn Bytes) -> Vec<u32> {
        let superblock = &self.superblock;
        let Some(said) = Said::of(superblock, number, group, Bitmap::Inodes) else {
            return Vec::new();
        };
        let block = u64::from(superblock.block);
        let bytes = take(through, said.block * block, superblock.block as usize);
        let Some(bytes) = bytes.filter(|bytes| said.is(superblock.seed, bytes)) else {
            return Vec::new();
        };
        let in_table = superblock.inodes_per_group.saturating_sub(group.unused_inodes);
        let first = number as u32 * superblock.inodes_per_group + 1;
        let used = (0..in_table).filter(|index| is_set(&bytes, (*index).into()));
        let used = used.map(|index| first + index);
        used.filter(|number| *number == 2 || *number >= superblock.first_inode).collect()
    }
}

/// Whether a bit of a bitmap is set.
pub fn is_set(bitmap: &[u8], bit: u64) -> bool {
    bitmap.get((bit / 8) as usize).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
}

fn group_blocks(superblock: &Superblock, groups: &[(u64, Group)]) -> Vec<u64> {
    let per_block = group::per_block(superblock);
    let mut blocks: Vec<u64> = groups.iter().map(|(number, _)| number / per_block).collect();
    blocks.dedup();
    thin(&mut blocks, 64);
    blocks
}
