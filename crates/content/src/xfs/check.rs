//! What XFS says twice: the headers of a group, its trees, its inodes.
//!
//! The log of a file system that was not unmounted may hold newer versions of any of them.

use super::inode;
use super::known::Xfs;
use super::predict::{header, is_directory};
use super::tree::{Chunk, FREE, FREE_BY_SIZE, INODES};
use crate::bytes::{Bytes, take};
use crate::field::be32;
use crate::files;
use crate::prediction::{CrossChecks, thin};

impl Xfs {
    /// At most about `limit` comparisons.
    pub fn cross_checks(&self, through: &dyn Bytes, limit: usize) -> CrossChecks {
        let mut checks = CrossChecks::default();
        let mut groups: Vec<u32> = (0..self.superblock.groups.min(1 << 20)).collect();
        thin(&mut groups, limit / 8 + 1);
        let per_group = limit / groups.len().max(1);
        for group in groups {
            let free = self.free_space(through, group, &mut checks);
            // Each is compared in about three ways.
            self.inodes(through, group, per_group / 3 + 1, &free, &mut checks);
        }
        checks
    }

    /// Free space by block, by size, and by the header: (first block, blocks).
    fn free_space(
        &self,
        through: &dyn Bytes,
        group: u32,
        checks: &mut CrossChecks,
    ) -> Vec<(u32, u32)> {
        let superblock = &self.superblock;
        let Some(header) = header(superblock, through, group, 1) else {
            checks.unreadable += 1;
            return Vec::new();
        };
        let free = |at: usize, tree: super::tree::Tree| {
            let walk = tree.walk(superblock, through, group, be32(&header, at));
            let runs = walk.records.iter().map(|record| (be32(record, 0), be32(record, 4)));
            (runs.collect::<Vec<_>>(), walk.sound, walk.is_cut)
        };
        let (mut by_block, sound, is_cut) = free(16, FREE);
        let (mut by_size, sound_too, is_cut_too) = free(20, FREE_BY_SIZE);
        if !sound || !sound_too {
            checks.unreadable += 1;
        }
        if !sound || !sound_too || is_cut || is_cut_too {
            return by_block;
        }
        let (said, sum) =
            (be32(&header, 52), by_block.iter().map(|run| u64::from(run.1)).sum::<u64>());
        let address = u64::from(group) * superblock.group_bytes() + u64::from(superblock.sector);
        checks.compare(u64::from(said) == sum, address, || {
            format!("group {group}: {sum} blocks are free, its header says {said}")
        });
        by_block.sort_unstable();
        by_size.sort_unstable();
        checks.compare(by_block == by_size, address, || {
            format!("group {group}: free space by block and by size differ")
        });
        by_block
    }

    fn inodes(
        &self,
        through: &dyn Bytes,
        group: u32,
        limit: usize,
        free: &[(u32, u32)],
        checks: &mut CrossChecks,
    ) {
        let superblock = &self.superblock;
        let Some(header) = header(superblock, through, group, 2) else {
            checks.unreadable += 1;
            return;
        };
        let walk = INODES.walk(superblock, through, group, be32(&header, 20));
        let chunks = walk.records.iter().map(|record| Chunk::decode(superblock, record));
        let chunks: Vec<Chunk> = chunks.collect();
        if walk.is_whole() {
            let sum = |of: fn(&Chunk) -> u32| chunks.iter().map(|c| u64::from(of(c))).sum::<u64>();
            let found = (sum(|chunk| chunk.count), sum(|chunk| chunk.free_count));
            let said = (u64::from(be32(&header, 16)), u64::from(be32(&header, 28)));
            let address =
                u64::from(group) * superblock.group_bytes() + 2 * u64::from(superblock.sector);
            checks.compare(found == said, address, || {
                let ((all, free), (all_said, free_said)) = (found, said);
                format!(
                    "group {group}: {free} of {all} inodes are free, its header says {free_said} \
                     of {all_said}"
                )
            });
        } else if !walk.sound {
            checks.unreadable += 1;
        }
        let bits = chunks.iter().flat_map(|chunk| {
            let is_there = move |bit: &u32| chunk.count == 64 || chunk.free >> bit & 1 == 0;
            let bits = (0..64_u32).filter(is_there);
            bits.map(move |bit| (chunk.first.wrapping_add(bit), chunk.free >> bit & 1 == 0))
        });
        let mut inodes: Vec<(u32, bool)> = bits.collect();
        thin(&mut inodes, limit);
        for (inode, in_use) in inodes {
            self.inode(through, superblock.inode_number(group, inode), in_use, free, checks);
        }
    }

    fn inode(
        &self,
        through: &dyn Bytes,
        number: u64,
        in_use: bool,
        free: &[(u32, u32)],
        checks: &mut CrossChecks,
    ) {
        let superblock = &self.superblock;
        let Some(address) = superblock.inode_address(number) else { return };
        let Some(bytes) = take(through, address, superblock.inode_bytes as usize) else {
            checks.unreadable += 1;
            return;
        };
        let is_own = match superblock.version {
            5 => inode::is_number(superblock, &bytes, number),
            _ => inode::is_inode(&bytes),
        };
        checks.compare(is_own && inode::is_used(&bytes) == in_use, address, || {
            let tree = if in_use { "in use" } else { "free" };
            format!("inode {number}: its group says that it is {tree}, it says otherwise")
        });
        if !is_own || !inode::is_used(&bytes) || !in_use {
            return;
        }
        let runs = inode::runs(superblock, &bytes);
        let own_group = number >> superblock.inode_bits_in_group();
        for &(_, at, _) in runs.iter().take(2) {
            let block = at / u64::from(superblock.block);
            let (group, block) = superblock.group_of(block);
            if u64::from(group) != own_group {
                continue;
            }
            let is_free = free
                .iter()
                .any(|(first, count)| (*first..first.saturating_add(*count)).contains(&block));
            checks.compare(!is_free, at, || {
                format!("block {block} of group {group} is free, and belongs to inode {number}")
            });
        }
        if inode::is_file(&bytes) {
            self.file_end(through, number, inode::size(&bytes), &runs, checks);
        }
        if inode::is_directory(&bytes)
            && let Some(at) = inode::block(superblock, &runs, 0)
            && let Some(block) = take(through, at, superblock.block as usize)
        {
            checks.compare(is_directory(superblock, &block, at, number), at, || {
                format!("the block at which directory {number} begins does not name it")
            });
        }
    }

    /// Zeroes follow the end of a file: what is read wrongly is noise there.
    fn file_end(
        &self,
        through: &dyn Bytes,
        number: u64,
        size: u64,
        runs: &[(u64, u64, u64)],
        checks: &mut CrossChecks,
    ) {
        let len = u64::from(self.superblock.block);
        let last = size.checked_sub(1).map(|last| last / len);
        let Some(at) = last.and_then(|last| inode::block(&self.superblock, runs, last)) else {
            return;
        };
        let Some(bytes) = take(through, at, len as usize) else {
            checks.unreadable += 1;
            return;
        };
        let Some(ends) = files::ends(&bytes, (size % len) as usize) else { return };
        checks.compare(ends, at, || {
            format!("the file of inode {number} ends here, something follows it")
        });
    }
}
