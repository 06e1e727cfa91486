//! What an ext file system says twice: where two places differ, one of them is out of date.
//!
//! Checksums of single blocks are no part of this: an old block is right in itself.

use std::collections::HashMap;

use super::group::Group;
use super::inode::{self, Runs};
use super::known::Ext;
use super::predict::{Bitmap, Said, is_set};
use super::superblock::{self, Superblock};
use crate::bytes::{Bytes, take};
use crate::field::{le16, le32};
use crate::files;
use crate::prediction::{CrossChecks, thin};

/// A file system while it is compared.
struct Checker<'a> {
    ext: &'a Ext,
    through: &'a dyn Bytes,
    groups: HashMap<u64, Group>,
    bitmaps: HashMap<(u64, bool), Option<Vec<u8>>>,
    checks: CrossChecks,
    limit: usize,
}

impl Ext {
    /// At most `limit` comparisons.
    pub fn cross_checks(&self, through: &dyn Bytes, limit: usize) -> CrossChecks {
        let mut groups = self.groups_through(through, usize::MAX);
        let mut checker = Checker {
            ext: self,
            through,
            groups: groups.iter().copied().collect(),
            bitmaps: HashMap::new(),
            checks: CrossChecks::default(),
            limit,
        };
        checker.descriptors(limit / 8 + 1);
        checker.superblock(&groups);
        thin(&mut groups, limit / 4 + 1);
        for (number, group) in &groups {
            checker.free(*number, group, Bitmap::Blocks);
            checker.free(*number, group, Bitmap::Inodes);
        }
        let left = limit.saturating_sub(checker.checks.compared as usize);
        let per_group = left / 2 / groups.len().max(1) + 1;
        for (number, group) in &groups {
            checker.inodes(*number, group, per_group);
        }
        checker.checks
    }
}

impl Checker<'_> {
    fn is_done(&self) -> bool {
        self.checks.compared as usize >= self.limit
    }

    /// Descriptors prove their groups.
    fn descriptors(&mut self, limit: usize) {
        // With meta_bg they lie elsewhere.
        if self.ext.superblock.has_meta_bg {
            return;
        }
        for index in self.ext.descriptor_blocks(limit) {
            let address = self.ext.descriptors_address(index);
            let proves = self.ext.descriptors_through(self.through, index).is_some();
            self.checks.compare(proves, address, || {
                format!("block {index} of group descriptors does not prove their groups")
            });
        }
    }

    /// The sum of what all groups have free, on a file system that was unmounted.
    fn superblock(&mut self, groups: &[(u64, Group)]) {
        let bytes = take(self.through, 1024, superblock::BYTES);
        let Some(bytes) = bytes else {
            self.checks.unreadable += 1;
            return;
        };
        let Some(found) = Superblock::decode(&bytes).filter(|found| self.ext.is(found)) else {
            return;
        };
        self.checks.written = found.written;
        if found.groups != groups.len() as u64 || !found.is_clean {
            return;
        }
        let blocks: u64 = groups.iter().map(|(_, group)| u64::from(group.free_blocks)).sum();
        let inodes: u64 = groups.iter().map(|(_, group)| u64::from(group.free_inodes)).sum();
        let sums = [
            ("blocks", blocks * found.cluster_blocks, found.free_blocks),
            ("inodes", inodes, found.free_inodes.into()),
        ];
        for (what, sum, said) in sums {
            self.checks.compare(sum == said, 1024, || {
                format!("all groups have {sum} {what} free, the superblock says {said}")
            });
        }
    }

    /// The free bits of a bitmap, and what the descriptor says of them.
    fn free(&mut self, number: u64, group: &Group, which: Bitmap) {
        let Some(said) = Said::of(&self.ext.superblock, number, group, which) else { return };
        let address = said.block * u64::from(self.ext.superblock.block);
        let seed = self.ext.superblock.seed;
        let Some(bitmap) = self.bitmap(number, which) else {
            self.checks.unreadable += 1;
            return;
        };
        let free = said.free_in(bitmap);
        // The checksum stands in the descriptor, too.
        let agrees = free == said.free && said.is(seed, bitmap);
        let what = if which == Bitmap::Blocks { "blocks" } else { "inodes" };
        self.checks.compare(agrees, address, || {
            let said = said.free;
            match free == said {
                true => format!("bitmap of group {number}, {what}: not the one that is recorded"),
                false => format!(
                    "bitmap of group {number}: {free} {what} free, its descriptor says {said}"
                ),
            }
        });
    }

    /// A bitmap, read once.
    fn bitmap(&mut self, number: u64, which: Bitmap) -> Option<&[u8]> {
        let superblock = &self.ext.superblock;
        let said = Said::of(superblock, number, self.groups.get(&number)?, which)?;
        let read = || {
            take(self.through, said.block * u64::from(superblock.block), superblock.block as usize)
        };
        let key = (number, which == Bitmap::Blocks);
        self.bitmaps.entry(key).or_insert_with(read).as_deref()
    }

    /// Inodes of a group: whether they are in use, and what they name.
    fn inodes(&mut self, number: u64, group: &Group, limit: usize) {
        let superblock = &self.ext.superblock;
        let per_group = superblock.inodes_per_group;
        if Said::of(superblock, number, group, Bitmap::Inodes).is_none() {
            return;
        }
        let in_table = per_group.saturating_sub(group.unused_inodes);
        let first = number as u32 * per_group + 1;
        let inodes = (first..first + in_table)
            .filter(|number| *number == 2 || *number >= superblock.first_inode);
        let Some(bitmap) = self.bitmap(number, Bitmap::Inodes) else { return };
        let in_use = |inode: &u32| is_set(bitmap, u64::from(inode - first));
        // Those in use, the newest of them too, and the next that is not.
        let (mut used, mut free): (Vec<u32>, Vec<u32>) = inodes.partition(in_use);
        let newest: Vec<u32> = used.iter().rev().take(limit / 4 + 1).copied().collect();
        thin(&mut used, limit);
        used.extend(newest);
        free.truncate(limit / 4 + 1);
        used.sort_unstable();
        used.dedup();
        for inode in used {
            self.inode(inode, true);
        }
        for inode in free {
            self.inode(inode, false);
        }
    }

    fn inode(&mut self, number: u32, in_use: bool) {
        if self.is_done() {
            return;
        }
        let superblock = &self.ext.superblock;
        let Some(address) = self.ext.inode_address(number.into()) else { return };
        let Some(bytes) = take(self.through, address, superblock.inode_bytes as usize) else {
            self.checks.unreadable += 1;
            return;
        };
        let is_used = le16(&bytes, 0) != 0 && le16(&bytes, 26) != 0 && le32(&bytes, 20) == 0;
        let proves = self.ext.proof().is_none_or(|proves| !is_used || proves(&bytes) == number);
        self.checks.compare(is_used == in_use && proves, address, || {
            let bitmap = if in_use { "in use" } else { "free" };
            format!("inode {number}: its bitmap says that it is {bitmap}, it says otherwise")
        });
        if !is_used || !in_use {
            return;
        }
        let runs = Runs::of(superblock, &bytes);
        for &(_, block, _) in runs.runs.iter().take(2) {
            self.block_is_used(number, block);
        }
        if inode::is_directory(&bytes) {
            if let Some(block) = runs.block(0) {
                self.directory(number, block);
            }
        } else if inode::is_file(&bytes) {
            self.file_end(number, inode::size(&bytes), &runs);
        }
    }

    /// Zeroes follow the end of a file: what is read wrongly is noise there.
    fn file_end(&mut self, number: u32, size: u64, runs: &Runs) {
        let len = u64::from(self.ext.superblock.block);
        let Some(block) = size.checked_sub(1).and_then(|last| runs.block(last / len)) else {
            return;
        };
        let (address, used) = (block * len, (size % len) as usize);
        let Some(bytes) = take(self.through, address, len as usize) else {
            self.checks.unreadable += 1;
            return;
        };
        let Some(ends) = files::ends(&bytes, used) else { return };
        self.checks.compare(ends, address, || {
            format!("the file of inode {number} ends here, something follows it")
        });
    }

    /// A block of a file is in use by the bitmap of its group.
    fn block_is_used(&mut self, inode: u32, block: u64) {
        let superblock = &self.ext.superblock;
        let Some(from_first) = block.checked_sub(superblock.first_data_block) else { return };
        let group = from_first / superblock.blocks_per_group;
        let bit = from_first % superblock.blocks_per_group / superblock.cluster_blocks;
        let address = block * u64::from(superblock.block);
        let Some(bitmap) = self.bitmap(group, Bitmap::Blocks) else { return };
        let is_used = is_set(bitmap, bit);
        self.checks.compare(is_used, address, || {
            format!("block {block} of inode {inode} is free by the bitmap of group {group}")
        });
    }

    /// A directory names its inode, and names only inodes that are in use.
    fn directory(&mut self, number: u32, block: u64) {
        let superblock = &self.ext.superblock;
        let (address, len) = (block * u64::from(superblock.block), superblock.block as usize);
        let Some(bytes) = take(self.through, address, len) else {
            self.checks.unreadable += 1;
            return;
        };
        let is_own = inode::of_directory(&bytes) == Some(number);
        self.checks.compare(is_own, address, || {
            format!("the block at which directory {number} begins does not name it")
        });
        if !is_own {
            return;
        }
        let per_group = superblock.inodes_per_group;
        let mut free = None;
        for entry in inode::entries(&bytes) {
            if !(1..=superblock.inodes).contains(&entry) {
                continue;
            }
            let group = u64::from((entry - 1) / per_group);
            let bit = u64::from((entry - 1) % per_group);
            let bitmap = self.bitmap(group, Bitmap::Inodes);
            if bitmap.is_some_and(|bitmap| !is_set(bitmap, bit)) {
                free = Some(entry);
            }
        }
        self.checks.compare(free.is_none(), address, || {
            let entry = free.unwrap_or(0);
            format!("directory {number} names inode {entry}, which is free by its bitmap")
        });
    }
}
