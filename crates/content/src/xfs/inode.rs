//! Inodes of XFS: what one says of itself, and where its file lies.

use super::superblock::Superblock;
use crate::crc::crc32c_without;
use crate::field::{be16, be32, be64, le32, uuid};

/// What of an inode is kept as a fact.
pub const HEAD: usize = 256;

const FORMAT_EXTENTS: u8 = 2;
const FLAG_UNWRITTEN: u64 = 1 << 63;
const FLAG2_LARGE_COUNTS: u64 = 1 << 4;

/// Whether these bytes are an inode.
pub fn is_inode(bytes: &[u8]) -> bool {
    bytes.len() >= 176 && bytes.starts_with(b"IN") && matches!(bytes[4], 1..=3)
}

/// Whether an inode of version 5 is this one, by its own words and its checksum.
pub fn is_number(superblock: &Superblock, bytes: &[u8], number: u64) -> bool {
    is_inode(bytes)
        && bytes[4] == 3
        && be64(bytes, 152) == number
        && uuid(bytes, 160) == superblock.meta_uuid
        && crc32c_without(bytes, 100) == le32(bytes, 100)
}

/// Whether it is in use.
pub fn is_used(bytes: &[u8]) -> bool {
    be16(bytes, 2) != 0
}

/// Whether it is a directory.
pub fn is_directory(bytes: &[u8]) -> bool {
    be16(bytes, 2) >> 12 == 4
}

/// Whether it is a file.
pub fn is_file(bytes: &[u8]) -> bool {
    be16(bytes, 2) >> 12 == 8
}

/// Size in bytes.
pub fn size(bytes: &[u8]) -> u64 {
    be64(bytes, 56)
}

/// Runs of written blocks as far as the inode itself lists them: (first block in the file, byte
/// address in the file system, blocks).
pub fn runs(superblock: &Superblock, bytes: &[u8]) -> Vec<(u64, u64, u64)> {
    let (version, format) = (bytes[4], bytes[5]);
    if format != FORMAT_EXTENTS {
        return Vec::new();
    }
    let fork = if version == 3 { 176 } else { 100 };
    let large = version == 3 && be64(bytes, 120) & FLAG2_LARGE_COUNTS != 0;
    let count = if large { be64(bytes, 24) } else { be32(bytes, 76).into() };
    let records = bytes.get(fork..).unwrap_or_default().chunks_exact(16);
    let records = records.take(usize::try_from(count).unwrap_or(usize::MAX));
    records.filter_map(|record| run(superblock, be64(record, 0), be64(record, 8))).collect()
}

/// 1 bit: not written; 54 bits: block in the file; 52 bits: block; 21 bits: count.
fn run(superblock: &Superblock, high: u64, low: u64) -> Option<(u64, u64, u64)> {
    let in_file = high >> 9 & ((1 << 54) - 1);
    let block = (high & 0x1ff) << 43 | low >> 21;
    let count = low & ((1 << 21) - 1);
    let address = superblock.block_address(block)?;
    let end = address.checked_add(count.checked_mul(superblock.block.into())?)?;
    let is_written = high & FLAG_UNWRITTEN == 0 && count > 0 && end <= superblock.bytes();
    is_written.then_some((in_file, address, count))
}

/// The byte address of a block of a file.
pub fn block(superblock: &Superblock, runs: &[(u64, u64, u64)], number: u64) -> Option<u64> {
    let found = runs.iter().find(|(first, _, count)| (*first..first + count).contains(&number))?;
    Some(found.1 + (number - found.0) * u64::from(superblock.block))
}

/// The inode that the first block of a directory of version 4 names: its first entry is `.`.
pub fn of_directory(block: &[u8]) -> Option<u64> {
    let head = block.first_chunk::<32>()?;
    let is_first = matches!(&head[..4], b"XD2B" | b"XD2D") && head[24] == 1 && head[25] == b'.';
    is_first.then(|| be64(head, 16))
}
