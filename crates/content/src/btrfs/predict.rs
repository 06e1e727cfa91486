//! What must stand where in btrfs: nodes with the generation that their parents give, and data with
//! the checksums of the tree of checksums.

use std::collections::HashSet;

use super::known::Btrfs;
use super::node;
use super::superblock::{ADDRESSES, BYTES, Superblock};
use crate::bytes::{Bytes, take};
use crate::field::{le32, le64};
use crate::prediction::{CrossChecks, Prediction, PredictionKind, thin};

const ROOT_ITEM: u8 = 132;
const EXTENT_CSUM: u8 = 128;
/// Nodes that are read for predictions, at most this many times the limit.
const NODES_PER_PREDICTION: usize = 4;
/// Checksums of one run of data that are looked at.
const SUMS_OF_RUN: usize = 64;

/// A node that another names.
#[derive(Clone, Copy, Debug)]
struct Named {
    logical: u64,
    generation: u64,
}

/// What a walk through the trees found.
#[derive(Default)]
struct Walk {
    named: Vec<Named>,
    /// Logical address of a sector of data, and its checksum.
    data: Vec<(u64, u32)>,
}

impl Btrfs {
    /// Predictions from what was learned: the roots that the superblock names.
    pub fn predictions(&self) -> Vec<Prediction> {
        let roots = [self.superblock.root, self.superblock.chunk_root];
        roots.into_iter().flat_map(|logical| self.nodes(logical, None)).collect()
    }

    /// Predictions from what is read: superblocks, nodes, data.
    pub fn predictions_through(&self, through: &dyn Bytes, limit: usize) -> Vec<Prediction> {
        let mut walk = self.walk(through, limit);
        thin(&mut walk.named, limit / 2 + 1);
        let left = limit.saturating_sub(walk.named.len());
        thin(&mut walk.data, left);
        let mut found = self.superblocks();
        let named = walk.named.iter();
        found.extend(named.flat_map(|named| self.nodes(named.logical, Some(named.generation))));
        found.extend(walk.data.iter().flat_map(|(logical, crc)| self.data(*logical, *crc)));
        found
    }

    /// The copies of the superblock, which state their address.
    fn superblocks(&self) -> Vec<Prediction> {
        let (own, size) = (self.superblock.uuid, self.superblock.device_bytes);
        let inside = ADDRESSES.into_iter().filter(|at| at + BYTES as u64 <= size);
        let one = |address: u64| {
            let holds = move |bytes: &[u8]| {
                let found = Superblock::decode(bytes);
                found.is_some_and(|found| found.uuid == own && found.address == address)
            };
            Prediction::new(PredictionKind::Header, address, BYTES as u32, holds)
        };
        inside.map(one).collect()
    }

    /// A node at each of its places.
    fn nodes(&self, logical: u64, generation: Option<u64>) -> Vec<Prediction> {
        let Some((first, second)) = self.chunks.places(logical) else { return Vec::new() };
        let one = |address: u64| {
            let own = self.superblock.clone();
            let holds = move |bytes: &[u8]| node::is(&own, bytes, logical, generation);
            Prediction::new(PredictionKind::Node, address, self.superblock.node, holds)
        };
        [Some(first), second].into_iter().flatten().map(one).collect()
    }

    /// A sector of data at each of its places.
    fn data(&self, logical: u64, crc: u32) -> Vec<Prediction> {
        let Some((first, second)) = self.chunks.places(logical) else { return Vec::new() };
        let one = |address: u64| {
            let holds = move |bytes: &[u8]| crc32c::crc32c(bytes) == crc;
            Prediction::new(PredictionKind::Data, address, self.superblock.sector, holds)
        };
        [Some(first), second].into_iter().flatten().map(one).collect()
    }

    /// Walks the trees from both roots, breadth first: a part of a large file system.
    fn walk(&self, through: &dyn Bytes, limit: usize) -> Walk {
        let mut walk = Walk::default();
        let superblock = &self.superblock;
        let mut seen = HashSet::new();
        let mut level: Vec<(u64, Option<u64>)> =
            vec![(superblock.root, None), (superblock.chunk_root, None)];
        let mut left = NODES_PER_PREDICTION * limit.max(1);
        while !level.is_empty() && left > 0 {
            thin(&mut level, left);
            left -= level.len();
            let mut next = Vec::new();
            for (logical, generation) in level {
                if !seen.insert(logical) {
                    continue;
                }
                let Some(found) = self.node(through, logical, generation) else { continue };
                let below = node::children(&found).chain(node::items(&found).filter_map(root));
                next.extend(below.map(|(logical, generation)| (logical, Some(generation))));
                walk.data.extend(self.checksums(&found));
            }
            walk.named.extend(next.iter().filter_map(|(logical, generation)| {
                Some(Named { logical: *logical, generation: (*generation)? })
            }));
            level = next;
        }
        walk
    }

    /// Checksums of data in a leaf, of some sectors of each run.
    fn checksums(&self, leaf: &[u8]) -> Vec<(u64, u32)> {
        if self.superblock.checksum_type != 0 {
            return Vec::new();
        }
        let sector = u64::from(self.superblock.sector);
        let items = node::items(leaf).filter(|(key, _)| key.kind == EXTENT_CSUM);
        let sums = items.flat_map(|(key, item)| {
            let step = (item.len() / 4).div_ceil(SUMS_OF_RUN).max(1);
            let sums = (0..).zip(item.chunks_exact(4)).step_by(step);
            sums.map(move |(at, sum): (u64, &[u8])| {
                (key.offset.wrapping_add(at * sector), le32(sum, 0))
            })
        });
        // All of one value are zeroes, most often.
        let zeroes = crc32c::crc32c(&vec![0; self.superblock.sector as usize]);
        sums.filter(|(_, crc)| *crc != zeroes).collect()
    }

    /// Whether what the trees name is there, at each place: with copies on write, a member that is
    /// out of date lacks what is new.
    pub fn cross_checks(&self, through: &dyn Bytes, limit: usize) -> CrossChecks {
        let mut checks = CrossChecks::default();
        for prediction in self.predictions_through(through, limit) {
            let Some(bytes) = take(through, prediction.address, prediction.len as usize) else {
                checks.unreadable += 1;
                continue;
            };
            checks.compare(prediction.holds(&bytes), prediction.address, || {
                let what = match prediction.kind {
                    PredictionKind::Data => "data do not have the checksum that is recorded",
                    PredictionKind::Header => "a copy of the superblock is missing",
                    _ => "not the node that its parent names",
                };
                what.to_string()
            });
        }
        checks
    }
}

/// The root of a tree that an item of the root tree names: (logical address, generation).
fn root((key, item): (node::Key, &[u8])) -> Option<(u64, u64)> {
    // Behind an inode of 160 bytes: generation, directory, address.
    let is_root = key.kind == ROOT_ITEM && item.len() >= 239;
    is_root.then(|| (le64(item, 176), le64(item, 160)))
}
