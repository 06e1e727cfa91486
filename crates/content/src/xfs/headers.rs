//! Blocks of XFS that state where they stand. Version 5 says it in every block of metadata; version
//! 4 only in the headers of allocation groups.

use super::superblock::Superblock;
use crate::crc::crc32c_without;
use crate::field::{be16, be32, be64, le32, uuid};
use crate::witness::WitnessKind;

/// What a block states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    pub kind: WitnessKind,
    /// Byte address in the file system.
    pub address: u64,
}

/// The group whose free space header this sector is.
pub fn free_space_group(superblock: &Superblock, sector: &[u8]) -> Option<u32> {
    group(superblock, sector, b"XAGF", Some(64))
}

/// The group whose inode header this sector is.
pub fn inode_group(superblock: &Superblock, sector: &[u8]) -> Option<u32> {
    group(superblock, sector, b"XAGI", Some(296))
}

/// Both headers have version, number and length at the same places.
fn group(
    superblock: &Superblock,
    sector: &[u8],
    magic: &[u8],
    uuid_at: Option<usize>,
) -> Option<u32> {
    if !sector.starts_with(magic) || sector.len() < 512 || be32(sector, 4) != 1 {
        return None;
    }
    let (number, length) = (be32(sector, 8), be32(sector, 12));
    let before = u64::from(number) * u64::from(superblock.group_blocks);
    let expected = u64::from(superblock.group_blocks).min(superblock.blocks.checked_sub(before)?);
    let is_own = superblock.version == 4
        || uuid_at.is_some_and(|at| uuid(sector, at) == superblock.meta_uuid);
    (number < superblock.groups && u64::from(length) == expected && is_own).then_some(number)
}

/// What the block says that begins at the start of `rest`, a multiple of 512 bytes.
pub fn stated(superblock: &Superblock, rest: &[u8]) -> Option<Stated> {
    let head = rest.first_chunk::<512>()?;
    let sector = u64::from(superblock.sector);
    let in_group = |group: u32, sectors: u64| Stated {
        kind: WitnessKind::GroupHeader,
        address: u64::from(group) * superblock.group_bytes() + sectors * sector,
    };
    match &head[..4] {
        b"XAGF" => return Some(in_group(free_space_group(superblock, head)?, 1)),
        b"XAGI" => return Some(in_group(inode_group(superblock, head)?, 2)),
        b"XAFL" if superblock.version == 5 => {
            let group = be32(head, 4);
            let is_own = uuid(head, 8) == superblock.meta_uuid && group < superblock.groups;
            return is_own.then(|| in_group(group, 3));
        }
        _ => {}
    }
    if superblock.version != 5 {
        return None;
    }
    let (kind, address) = if head.starts_with(b"IN") {
        let is_own = head[4] == 3 && uuid(head, 160) == superblock.meta_uuid;
        (WitnessKind::Inode, is_own.then(|| superblock.inode_address(be64(head, 152)))??)
    } else {
        let (block_at, uuid_at) = places(head)?;
        if uuid(head, uuid_at) != superblock.meta_uuid {
            return None;
        }
        (WitnessKind::Node, be64(head, block_at).checked_mul(512)?)
    };
    (address < superblock.bytes()).then_some(Stated { kind, address })
}

/// Where a block of version 5 keeps its number, in units of 512 bytes, and its UUID.
fn places(head: &[u8]) -> Option<(usize, usize)> {
    match &head[..4] {
        b"AB3B" | b"AB3C" | b"IAB3" | b"FIB3" | b"RMB3" | b"R3FC" => Some((16, 32)),
        b"BMA3" => Some((24, 40)),
        b"XDB3" | b"XDD3" | b"XDF3" => Some((8, 24)),
        b"XSLM" | b"XARM" => Some((40, 16)),
        // Nodes and leaves of directories and attributes begin with their neighbours.
        _ => matches!(be16(head, 8), 0x3df1 | 0x3dff | 0x3ebe | 0x3bee).then_some((16, 32)),
    }
}

/// Whether `block` is a block of version 5 with this magic number that states this address, with
/// its checksum.
pub fn is_node(superblock: &Superblock, block: &[u8], magic: &[u8], address: u64) -> bool {
    let crc_at = match magic {
        b"BMA3" => 64,
        b"XDB3" | b"XDD3" | b"XDF3" => 4,
        _ => 52,
    };
    block.starts_with(magic)
        && stated(superblock, block).is_some_and(|stated| stated.address == address)
        && crc32c_without(block, crc_at) == le32(block, crc_at)
}
