//! Nodes of btrfs's trees: a header that states the logical address, then items or pointers.

use super::superblock::Superblock;
use crate::field::{le32, le64};

/// Bytes of a header.
pub const HEADER: usize = 101;
const ITEM: usize = 25;
const POINTER: usize = 33;

/// The logical address that a node states; `rest` begins with its header.
#[inline]
pub fn stated(superblock: &Superblock, rest: &[u8]) -> Option<u64> {
    let header = rest.first_chunk::<HEADER>()?;
    if header[32..48] != superblock.meta_uuid {
        return None;
    }
    let logical = le64(header, 48);
    let is = logical.is_multiple_of(superblock.sector.into()) && header[100] < 8;
    // The superblock has its UUID at the same place, and another magic number behind it.
    (is && &header[64..72] != b"_BHRfS_M" && !is_zero(header)).then_some(logical)
}

fn is_zero(header: &[u8]) -> bool {
    le64(header, 80) == 0
}

/// Whether these bytes are the node of a logical address, with the generation that its parent
/// gives, and its checksum where it is computed here.
pub fn is(superblock: &Superblock, node: &[u8], logical: u64, generation: Option<u64>) -> bool {
    stated(superblock, node) == Some(logical)
        && generation.is_none_or(|generation| le64(node, 80) == generation)
        && (superblock.checksum_type != 0 || crc32c::crc32c(&node[32..]) == le32(node, 0))
}

/// The tree that a node is of.
pub fn owner(node: &[u8]) -> u64 {
    le64(node, 88)
}

/// 0 for leaves.
pub fn level(node: &[u8]) -> u8 {
    node.get(100).copied().unwrap_or(0)
}

/// The key of an item or pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub object: u64,
    pub kind: u8,
    pub offset: u64,
}

fn key(bytes: &[u8]) -> Key {
    Key { object: le64(bytes, 0), kind: bytes[8], offset: le64(bytes, 9) }
}

/// Items of a leaf.
pub fn items(node: &[u8]) -> impl Iterator<Item = (Key, &[u8])> {
    let body = node.get(HEADER..).unwrap_or_default();
    let count = if level(node) == 0 { le32(node, 96) as usize } else { 0 };
    body.chunks_exact(ITEM).take(count).filter_map(move |item| {
        let (at, len) = (le32(item, 17) as usize, le32(item, 21) as usize);
        Some((key(item), body.get(at..)?.get(..len)?))
    })
}

/// Children of a node that is no leaf: (logical address, generation).
pub fn children(node: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let body = node.get(HEADER..).unwrap_or_default();
    let count = if level(node) > 0 { le32(node, 96) as usize } else { 0 };
    body.chunks_exact(POINTER).take(count).map(|pointer| (le64(pointer, 17), le64(pointer, 25)))
}
