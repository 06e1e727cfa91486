//! From logical addresses, which all pointers are, to bytes of the device.

use std::collections::BTreeMap;

use crate::field::{le16, le64};

/// The most chunks that are kept: those of 64 TiB.
const CHUNKS_MAX: usize = 1 << 16;
/// Copies of which the place is kept.
const COPIES_MAX: usize = 2;

/// Type bits: striped over devices.
const STRIPED: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8;

/// The key and item type of a chunk.
pub const CHUNK_ITEM: u8 = 228;

/// Chunks by their logical start.
#[derive(Clone, Debug, Default)]
pub struct Chunks(BTreeMap<u64, Chunk>);

/// Where the copies of a chunk begin on this device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Chunk {
    bytes: u64,
    copies: Vec<u64>,
}

impl Chunks {
    /// Number of chunks known.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the array of a superblock: keys, each with its item.
    pub fn learn_array(&mut self, array: &[u8], device: u64) {
        let mut rest = array;
        while rest.len() >= 17 + 48 && rest[8] == CHUNK_ITEM {
            let start = le64(rest, 9);
            let len = 48 + 32 * usize::from(le16(rest, 17 + 44));
            let Some(item) = rest.get(17..17 + len) else { break };
            self.learn(start, item, device);
            rest = &rest[17 + len..];
        }
    }

    /// Takes a chunk item. Striped ones are left out: they need all devices.
    pub fn learn(&mut self, start: u64, item: &[u8], device: u64) {
        let (bytes, kind) = (le64(item, 0), le64(item, 24));
        let stripes = item.get(48..).unwrap_or_default().chunks_exact(32);
        let stripes = stripes.take(le16(item, 44).into());
        let own = stripes.filter(|stripe| le64(stripe, 0) == device);
        let copies: Vec<u64> = own.map(|stripe| le64(stripe, 8)).take(COPIES_MAX).collect();
        let fits = |at: &u64| at.checked_add(bytes).is_some_and(|end| end <= i64::MAX as u64);
        let sane = item.len() >= 48
            && bytes > 0
            && start.checked_add(bytes).is_some()
            && !copies.is_empty()
            && copies.iter().all(fits);
        if sane && kind & STRIPED == 0 && self.0.len() < CHUNKS_MAX {
            self.0.insert(start, Chunk { bytes, copies });
        }
    }

    /// Where bytes at a logical address lie: one or two places.
    pub fn places(&self, logical: u64) -> Option<(u64, Option<u64>)> {
        let (start, chunk) = self.0.range(..=logical).next_back()?;
        let offset = logical - start;
        if offset >= chunk.bytes {
            return None;
        }
        let second = chunk.copies.get(1).map(|at| at + offset);
        Some((chunk.copies[0] + offset, second))
    }
}
