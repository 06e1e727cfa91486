//! What must stand where in XFS.

use super::headers;
use super::inode;
use super::known::Xfs;
use super::superblock::Superblock;
use super::tree::{Chunk, FREE, FREE_BY_SIZE, INODES, Tree};
use crate::bytes::{Bytes, take};
use crate::field::be32;
use crate::files;
use crate::prediction::{Prediction, PredictionKind, thin};

impl Xfs {
    /// Predictions from what was learned.
    pub fn predictions(&self) -> Vec<Prediction> {
        let superblock = &self.superblock;
        let inodes = self.inodes.iter();
        let mut found: Vec<Prediction> =
            inodes.flat_map(|(number, head)| from_inode(superblock, *number, head)).collect();
        let directories = self.directories.keys();
        found.extend(directories.filter_map(|number| inode_prediction(superblock, *number)));
        found
    }

    /// Predictions from what is read: headers of groups, roots of trees, inodes in use, and what
    /// they name.
    pub fn predictions_through(&self, through: &dyn Bytes, limit: usize) -> Vec<Prediction> {
        let superblock = &self.superblock;
        let mut groups: Vec<u32> = (0..superblock.groups.min(1 << 20)).collect();
        thin(&mut groups, limit / 6 + 1);
        let per_group = (2 * limit / groups.len().max(1)).max(4);
        let mut found = Vec::new();
        for group in groups {
            found.extend(headers_of(superblock, group));
            found.extend(roots(superblock, through, group));
            let mut inodes = used_inodes(superblock, through, group);
            thin(&mut inodes, per_group);
            for number in inodes {
                let Some(prediction) = inode_prediction(superblock, number) else { continue };
                let (address, len) = (prediction.address, prediction.len as usize);
                let head = take(through, address, len).filter(|head| prediction.holds(head));
                let more = head.map(|head| from_inode(superblock, number, &head));
                found.extend(more.into_iter().flatten());
                found.push(match superblock.version {
                    5 => prediction,
                    _ => prediction.weak(0.5),
                });
            }
        }
        found.retain(|prediction| prediction.kind != PredictionKind::FileStart);
        found
    }
}

/// The superblock and the headers of a group.
fn headers_of(superblock: &Superblock, group: u32) -> Vec<Prediction> {
    let (start, sector) = (u64::from(group) * superblock.group_bytes(), superblock.sector);
    let new = |sectors: u64, holds: fn(&Superblock, u32, &[u8]) -> bool| {
        let own = superblock.clone();
        let address = start + sectors * u64::from(sector);
        let holds = move |bytes: &[u8]| holds(&own, group, bytes);
        Prediction::new(PredictionKind::Header, address, sector, holds)
    };
    vec![
        new(0, |own, _, bytes| {
            Superblock::decode(bytes).is_some_and(|found| found.uuid == own.uuid)
        }),
        new(1, |own, group, bytes| headers::free_space_group(own, bytes) == Some(group)),
        new(2, |own, group, bytes| headers::inode_group(own, bytes) == Some(group)),
    ]
}

/// The numbers that a group's headers give: the sector of free space, of inodes.
pub fn header(
    superblock: &Superblock,
    through: &dyn Bytes,
    group: u32,
    which: u64,
) -> Option<Vec<u8>> {
    let sector = u64::from(superblock.sector);
    let at = u64::from(group) * superblock.group_bytes() + which * sector;
    let bytes = take(through, at, superblock.sector as usize)?;
    let is = match which {
        1 => headers::free_space_group(superblock, &bytes) == Some(group),
        _ => headers::inode_group(superblock, &bytes) == Some(group),
    };
    is.then_some(bytes)
}

/// Roots of the trees of a group.
fn roots(superblock: &Superblock, through: &dyn Bytes, group: u32) -> Vec<Prediction> {
    let places: [(u64, usize, Tree); 3] = [(1, 16, FREE), (1, 20, FREE_BY_SIZE), (2, 20, INODES)];
    let root = |(which, at, tree): (u64, usize, Tree)| {
        let root = be32(&header(superblock, through, group, which)?, at);
        let address = superblock.group_block_address(group, root)?;
        let own = superblock.clone();
        let holds = move |bytes: &[u8]| tree.is(&own, bytes, address);
        let prediction = Prediction::new(PredictionKind::Node, address, superblock.block, holds);
        Some(if superblock.version == 5 { prediction } else { prediction.weak(0.7) })
    };
    places.into_iter().filter_map(root).collect()
}

/// The inodes of a group that are in use by its tree.
fn used_inodes(superblock: &Superblock, through: &dyn Bytes, group: u32) -> Vec<u64> {
    let Some(header) = header(superblock, through, group, 2) else { return Vec::new() };
    let walk = INODES.walk(superblock, through, group, be32(&header, 20));
    let chunks = walk.records.iter().map(|record| Chunk::decode(superblock, record));
    let used = chunks.flat_map(|chunk| {
        let used = (0..64).filter(move |bit| chunk.free >> bit & 1 == 0);
        used.map(move |bit| superblock.inode_number(group, chunk.first.wrapping_add(bit)))
    });
    used.collect()
}

/// An inode that must stand there; if it is a directory of version 4, then its first block.
fn inode_prediction(superblock: &Superblock, number: u64) -> Option<Prediction> {
    let (address, len) = (superblock.inode_address(number)?, superblock.inode_bytes);
    let own = superblock.clone();
    let then = move |bytes: &[u8]| {
        let address = inode::block(&own, &inode::runs(&own, bytes), 0)?;
        inode::is_directory(bytes).then(|| directory(&own, address, number))
    };
    let (kind, own) = (PredictionKind::Inode, superblock.clone());
    let prediction = match superblock.version {
        5 => {
            let holds = move |bytes: &[u8]| inode::is_number(&own, bytes, number);
            Prediction::new(kind, address, len, holds)
        }
        _ => {
            let holds = |bytes: &[u8]| inode::is_inode(bytes) && inode::is_used(bytes);
            Prediction::new(kind, address, len, holds).weak(0.0)
        }
    };
    Some(prediction.and_then(then))
}

/// What an inode, of which the head is given, says of other blocks.
fn from_inode(superblock: &Superblock, number: u64, head: &[u8]) -> Vec<Prediction> {
    if !inode::is_inode(head) {
        return Vec::new();
    }
    let runs = inode::runs(superblock, head);
    let first = inode::block(superblock, &runs, 0);
    if inode::is_directory(head) {
        return first.map(|at| directory(superblock, at, number)).into_iter().collect();
    }
    if !inode::is_file(head) {
        return Vec::new();
    }
    let (size, block) = (inode::size(head), u64::from(superblock.block));
    let start = first.filter(|_| size >= 8).map(|at| files::start(at, superblock.block));
    let last = (size > 0).then(|| inode::block(superblock, &runs, (size - 1) / block)).flatten();
    let end = last.and_then(|at| files::end(at, superblock.block, (size % block) as u32));
    start.into_iter().chain(end).collect()
}

/// The first block of a directory: of version 5 with its owner.
fn directory(superblock: &Superblock, address: u64, number: u64) -> Prediction {
    let own = superblock.clone();
    let holds = move |bytes: &[u8]| is_directory(&own, bytes, address, number);
    Prediction::new(PredictionKind::Directory, address, superblock.block, holds)
}

/// Whether a block is the first of a directory.
pub fn is_directory(superblock: &Superblock, bytes: &[u8], address: u64, number: u64) -> bool {
    match superblock.version {
        5 => {
            matches!(bytes.get(..4), Some(b"XDB3" | b"XDD3"))
                && crate::field::be64(bytes, 40) == number
                && headers::stated(superblock, bytes).is_some_and(|found| found.address == address)
        }
        _ => inode::of_directory(bytes) == Some(number),
    }
}
