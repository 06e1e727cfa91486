//! What a disk holds: superblocks, and anything else that would be lost if it were overwritten.
//!
//! Invariant: nothing is written; a place that cannot be read counts as holding something, since
//! its contents are unknown. Called before members are assembled, and before disks are overwritten.

use md::foreign::Detected;
use md::ondisk::superblock::{Detection, Outcome, READ_BYTES, detect};

use crate::partitions::WholeDisk;
use crate::{Disk, packed_as, partition_tables, signatures};

/// Reads all places of a disk where superblocks can be.
pub fn superblocks(disk: &dyn Disk) -> Detection {
    detect(disk.sectors(), |candidate| {
        let mut bytes = vec![0; READ_BYTES];
        disk.read(candidate.sector, &mut bytes).map(|()| bytes)
    })
}

/// Reads all places of a disk where metadata of other formats than md's can be.
pub fn foreign(disk: &dyn Disk) -> Detected {
    md::foreign::detect(disk.sectors(), |sector, bytes| disk.read(sector, bytes))
}

/// Signs that a disk may be a member of an array: a clause for each superblock, or what looks like
/// one, as in `is a member of md array UUID (metadata 1.2)`.
pub fn member_signs(disk: &dyn Disk) -> Vec<String> {
    let mut seen = Vec::new();
    for (place, outcome) in superblocks(disk).outcomes {
        match outcome {
            Outcome::NoMagic => {}
            Outcome::Found { superblock, .. } => {
                let metadata = superblock.metadata();
                let (uuid, version) = (metadata.set_uuid, metadata.version);
                seen.push(format!("is a member of md array {uuid} (metadata {version})"));
            }
            other => {
                let sector = place.sector;
                seen.push(format!("may be a member of an md array: sector {sector}: {other}"));
            }
        }
    }
    let foreign = foreign(disk);
    if let Some(metadata) = foreign.metadata {
        seen.push(format!("is a member of an array with {}", metadata.name()));
    }
    if let Some(problem) = foreign.problem {
        seen.push(format!("may be a member of a BIOS RAID array: {problem}"));
    }
    seen
}

/// Signs that a partition of a disk may be a member of an array: its number, and clauses as those
/// of [`member_signs`]. Tables that may be read in two ways are read in both.
pub fn partition_signs(disk: &dyn Disk) -> Vec<(u32, String)> {
    let tables = partition_tables(disk);
    let signs = tables.iter().flat_map(|table| &table.partitions).flat_map(|partition| {
        let first = partition.sectors.start;
        let part = WholeDisk {
            sectors: partition.sectors.end - first,
            block: disk.logical_block(),
            read: |byte: u64, buf: &mut [u8]| disk.read(first + byte / md::SECTOR_BYTES, buf),
        };
        member_signs(&part).into_iter().map(|what| (partition.number, what))
    });
    signs.collect()
}

/// Data that a disk holds, by the signatures at its beginning and end: a clause for each finding,
/// as in `holds an ext4 file system`.
pub fn data_signs(disk: &dyn Disk) -> Vec<String> {
    let mut seen: Vec<String> =
        signatures(disk).iter().map(|what| format!("holds {what}")).collect();
    if let Some(what) = packed_as(disk) {
        // Only the type; the advice after the colon is for readers of the file.
        seen.push(format!("is {}", what.split(':').next().unwrap_or(what)));
    }
    seen.extend(member_signs(disk));
    seen
}
