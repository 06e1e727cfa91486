//! What is known of one btrfs, and its nodes in windows.
//!
//! Nodes state logical addresses. The superblock maps the chunks that hold the tree of chunks; that
//! maps all others.

use super::chunks::{CHUNK_ITEM, Chunks};
use super::node;
use super::superblock::Superblock;
use crate::bytes::{Bytes, take};
use crate::witness::{Block, Fact, FactKind, Finds, Place, WitnessKind};

/// The tree of chunks.
const CHUNK_TREE: u64 = 3;
/// Nodes of a tree that are read at most.
const NODES_MAX: usize = 4096;

/// A file system and what was learned of it.
#[derive(Clone, Debug)]
pub struct Btrfs {
    pub superblock: Superblock,
    pub chunks: Chunks,
}

impl Btrfs {
    /// A file system of which only a superblock is known.
    pub fn new(superblock: Superblock) -> Btrfs {
        let mut known = Btrfs { chunks: Chunks::default(), superblock };
        known.chunks.learn_array(&known.superblock.system_chunks, known.superblock.device);
        known
    }

    /// Whether another superblock is of the same file system on the same device.
    pub fn is(&self, other: &Superblock) -> bool {
        let of = |s: &Superblock| (s.uuid, s.meta_uuid, s.device, s.node, s.sector);
        of(&self.superblock) == of(other)
    }

    /// Takes a newer superblock.
    pub fn renew(&mut self, newer: Superblock) {
        self.chunks.learn_array(&newer.system_chunks, newer.device);
        self.superblock = newer;
    }

    /// Looks at a place, a multiple of 512 bytes; `rest` is the window from there on.
    pub fn scan_sector(&self, rest: &[u8], at: u64, index: u32, finds: &mut Finds) {
        let Some(number) = node::stated(&self.superblock, rest) else { return };
        let len = node::HEADER as u32;
        finds.block(Block { at, file_system: index, len, kind: WitnessKind::Node, number });
        if node::owner(rest) == CHUNK_TREE
            && let Some(whole) = rest.get(..self.superblock.node as usize)
            && node::is(&self.superblock, whole, number, None)
        {
            finds.fact(index, FactKind::Chunks, number, whole);
        }
    }

    /// Takes a fact.
    pub fn learn(&mut self, fact: &Fact) {
        if fact.kind == FactKind::Chunks {
            self.learn_node(&fact.bytes);
        }
    }

    fn learn_node(&mut self, node: &[u8]) {
        for (key, item) in node::items(node).filter(|(key, _)| key.kind == CHUNK_ITEM) {
            self.chunks.learn(key.offset, item, self.superblock.device);
        }
    }

    /// Reads the tree of chunks through a hypothesis; true if there are more chunks than before.
    pub fn learn_through(&mut self, through: &dyn Bytes) -> bool {
        let before = self.chunks.len();
        let mut nodes = vec![(self.superblock.chunk_root, None)];
        let mut read = 0;
        while let Some((logical, generation)) = nodes.pop() {
            read += 1;
            if read > NODES_MAX {
                break;
            }
            if let Some(found) = self.node(through, logical, generation) {
                self.learn_node(&found);
                nodes.extend(node::children(&found).map(|(at, generation)| (at, Some(generation))));
            }
        }
        self.chunks.len() > before
    }

    /// A node, from the first of its copies that is right.
    pub fn node(
        &self,
        through: &dyn Bytes,
        logical: u64,
        generation: Option<u64>,
    ) -> Option<Vec<u8>> {
        let (first, second) = self.chunks.places(logical)?;
        [Some(first), second].into_iter().flatten().find_map(|at| {
            let found = take(through, at, self.superblock.node as usize)?;
            node::is(&self.superblock, &found, logical, generation).then_some(found)
        })
    }

    /// Where a block that was found must stand.
    pub fn place(&self, block: &Block) -> Option<Place> {
        if block.kind == WitnessKind::Superblock {
            return Some(Place::at(block.number));
        }
        let (address, also) = self.chunks.places(block.number)?;
        Some(Place { address, also, strong: true })
    }
}
