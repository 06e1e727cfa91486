//! Start and end of the partitions of a disk, from its partition table.
//!
//! ```text
//! block 0    1        2 ...                             ... last-1     last
//!       | MBR | header | entries |     partitions       | entries | header |     GPT
//!       | MBR | partitions, one extended: | EBR | logical | EBR | logical |      MBR
//! ```
//! A block is the disk's logical sector: 512 or 4096 bytes. An image does not record which of them
//! it had; the position of the header shows it for a GPT, an MBR may be read both ways.
//!
//! Invariant: nothing is written, and all input is validated. Reads are bounded, sums cannot
//! overflow, a partition is inside of the disk or is known to be cut off by its end, and partition
//! names, which are arbitrary text, are not read at all. Called when a whole disk is given as a
//! member, and for a part of one that is given without its size.
//!
//! Formats: UEFI specification 2.10, chapter 5 (GPT, protective MBR); for MBR and the chain of
//! extended boot records there is no standard but practice.

use std::io;
use std::ops::Range;

use crc32fast::hash as crc32;
use md::SECTOR_BYTES;

use crate::disk::{Disk, beyond_the_end, read_only_error};
use crate::signature::bytes;

/// Type of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A GPT with valid checksums.
    Gpt,
    /// The backup GPT at the end of the disk: the primary one is damaged.
    GptBackup,
    /// An MBR.
    Mbr,
}

impl std::fmt::Display for TableKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TableKind::Gpt => "GPT partition table",
            TableKind::GptBackup => "GPT partition table (the copy at its end)",
            TableKind::Mbr => "MBR partition table",
        })
    }
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Partition number as in the kernel: logical ones of an MBR from 5 on.
    pub number: u32,
    /// Its sectors of 512 bytes. Limited to the end of the disk, for truncated images.
    pub sectors: Range<u64>,
    /// Where the table says that it ends; behind `sectors` where the disk is too short for it: the
    /// image is truncated, or the table is that of something larger.
    pub ends: u64,
}

impl Partition {
    /// Whether the disk ends before it does.
    pub fn is_cut(&self) -> bool {
        self.ends > self.sectors.end
    }
}

/// A partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// Type of the table.
    pub kind: TableKind,
    /// Block size of its addresses in bytes.
    pub block_bytes: u64,
    /// Partitions that begin on the disk, in the order of the table.
    pub partitions: Vec<Partition>,
}

/// All interpretations of the partition table of a disk, the likelier first; empty if it has none.
/// Blocks of 4096 bytes are no interpretation of an MBR of which only those of 512 are on the disk.
pub fn partition_tables(disk: &dyn Disk) -> Vec<PartitionTable> {
    let record = bytes(disk, 0..SECTOR_BYTES).and_then(|record| boot_record(&record));
    match record {
        // A GPT that is left over behind an MBR is ignored.
        Some(entries) if !entries.iter().any(|entry| entry.kind == PROTECTIVE) => {
            let blocks = match disk.logical_block() {
                4096 => &[4096][..],
                _ => &BLOCK_BYTES,
            };
            let mut tables: Vec<_> =
                blocks.iter().map(|&block| mbr(disk, &entries, block)).collect();
            if let [(_, true), (_, false)] = tables.as_slice() {
                tables.truncate(1);
            }
            tables.into_iter().map(|(table, _)| table).collect()
        }
        // Also if the first block cannot be read, or was overwritten.
        _ => {
            let first = BLOCK_BYTES.iter().filter_map(|&block| gpt(disk, block, Copy::First));
            let last = BLOCK_BYTES.iter().filter_map(|&block| gpt(disk, block, Copy::Last));
            first.chain(last).take(1).collect()
        }
    }
}

/// A whole disk that is read for its table, before a part of it is opened.
pub(crate) struct WholeDisk<R> {
    /// Length in sectors.
    pub sectors: u64,
    /// Its logical block in bytes.
    pub block: u32,
    /// Reads from a byte on.
    pub read: R,
}

impl<R: Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync> Disk for WholeDisk<R> {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn logical_block(&self) -> u32 {
        self.block
    }

    fn name(&self) -> String {
        "the disk".into()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        let sectors = (buf.len() as u64).div_ceil(SECTOR_BYTES);
        match sector.checked_add(sectors).is_some_and(|end| end <= self.sectors) {
            true => (self.read)(sector * SECTOR_BYTES, buf),
            false => Err(beyond_the_end(&self.name(), sector, sectors, self.sectors)),
        }
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(read_only_error(&self.name()))
    }

    fn write_zeroes(&self, _: Range<u64>) -> io::Result<()> {
        Err(read_only_error(&self.name()))
    }

    fn sync(&self) -> io::Result<()> {
        Err(read_only_error(&self.name()))
    }

    fn hole_end(&self, sector: u64) -> u64 {
        sector
    }
}

const BLOCK_BYTES: [u64; 2] = [512, 4096];

/// Type of the protective MBR entry of a GPT.
const PROTECTIVE: u8 = 0xee;

/// Types of partitions that contain a chain of logical ones.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];

/// Maximum of logical partitions; a chain may be a ring.
const LOGICAL_MAX: u32 = 128;

/// Usual are 128 entries, in 16 KiB.
const GPT_ENTRIES_BYTES_MAX: u64 = 256 << 10;

/// An entry of a boot record, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    kind: u8,
    start: u64,
    blocks: u64,
}

impl Entry {
    fn is_used(self) -> bool {
        self.kind != 0 && self.start != 0 && self.blocks != 0
    }

    fn is_extended(self) -> bool {
        self.is_used() && EXTENDED.contains(&self.kind)
    }
}

/// The four entries of a boot record, if it has a valid partition. The boot record of a file system
/// has text or code in their place.
fn boot_record(record: &[u8]) -> Option<[Entry; 4]> {
    let flags_are_sane = record[446..510].chunks(16).all(|entry| matches!(entry[0], 0 | 0x80));
    if record[510..512] != [0x55, 0xaa] || !flags_are_sane {
        return None;
    }
    let entry = |index: usize| {
        let bytes = &record[446 + 16 * index..];
        let (start, blocks) = (word(bytes, 8).into(), word(bytes, 12).into());
        Entry { kind: bytes[4], start, blocks }
    };
    let entries = [entry(0), entry(1), entry(2), entry(3)];
    entries.iter().any(|entry| entry.is_used()).then_some(entries)
}

/// The end of the partition that begins at this sector, if the disk has a table that lists one; of
/// several readings of a table, the first that does. Never behind the end of the disk.
pub(crate) fn partition_end(disk: &dyn Disk, first: u64) -> Option<u64> {
    let tables = partition_tables(disk).into_iter();
    let mut partitions = tables.flat_map(|table| table.partitions);
    let begins_there = partitions.find(|partition| partition.sectors.start == first);
    begins_there.map(|partition| partition.sectors.end)
}

/// The table, and whether all that it lists is on the disk.
fn mbr(disk: &dyn Disk, entries: &[Entry; 4], block: u64) -> (PartitionTable, bool) {
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries) {
        if entry.is_used() && !entry.is_extended() {
            partitions.extend(on_disk(disk, number, entry.start, entry.blocks, block));
        }
    }
    let mut is_whole = entries.iter().filter(|entry| entry.is_used()).all(|entry| {
        let end = entry.start.saturating_add(entry.blocks).checked_mul(block / SECTOR_BYTES);
        end.is_some_and(|end| end <= disk.sectors())
    });
    for extended in entries.iter().filter(|entry| entry.is_extended()) {
        is_whole &= logical(disk, extended.start, block, &mut partitions);
    }
    is_whole &= !partitions.iter().any(Partition::is_cut);
    (PartitionTable { kind: TableKind::Mbr, block_bytes: block, partitions }, is_whole)
}

/// Follows the chain of boot records in an extended partition: each has its own partition, relative
/// to itself, and the address of the next, relative to the extended partition. Whether the first of
/// them is there.
fn logical(disk: &dyn Disk, extended: u64, block: u64, partitions: &mut Vec<Partition>) -> bool {
    let mut at = extended;
    for number in 5..5 + LOGICAL_MAX {
        let byte = at * block;
        let record = bytes(disk, byte..byte + SECTOR_BYTES);
        let Some(entries) = record.and_then(|record| boot_record(&record)) else {
            return at != extended;
        };
        let is_logical = |entry: &&Entry| entry.is_used() && !entry.is_extended();
        if let Some(entry) = entries.iter().find(is_logical) {
            partitions.extend(on_disk(disk, number, at + entry.start, entry.blocks, block));
        }
        let Some(next) = entries.iter().find(|entry| entry.is_extended()) else { break };
        at = extended + next.start;
    }
    true
}

/// A partition in sectors of 512 bytes; `None` if it does not begin on the disk.
fn on_disk(disk: &dyn Disk, number: u32, start: u64, blocks: u64, block: u64) -> Option<Partition> {
    let sectors = block / SECTOR_BYTES;
    let first = start.checked_mul(sectors).filter(|&first| first < disk.sectors())?;
    let ends = first.saturating_add(blocks.saturating_mul(sectors));
    let end = ends.min(disk.sectors());
    (first < end).then_some(Partition { number, sectors: first..end, ends })
}

/// Which copy of a GPT.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copy {
    First,
    Last,
}

/// One copy of a GPT; `None` if a checksum is wrong, or it is not the copy of this place.
fn gpt(disk: &dyn Disk, block: u64, copy: Copy) -> Option<PartitionTable> {
    let blocks = disk.sectors() * SECTOR_BYTES / block;
    let at = match copy {
        Copy::First => 1,
        Copy::Last => blocks.checked_sub(1)?,
    };
    let mut header = bytes(disk, at * block..at * block + SECTOR_BYTES)?;
    let length = word(&header, 12) as usize;
    if header[..8] != *b"EFI PART" || !(92..=SECTOR_BYTES as usize).contains(&length) {
        return None;
    }
    let checksum = word(&header, 16);
    header[16..20].fill(0);
    if crc32(&header[..length]) != checksum || long(&header, 24) != at {
        return None;
    }
    let (entries_at, count) = (long(&header, 72), u64::from(word(&header, 80)));
    let entry_bytes = u64::from(word(&header, 84));
    let table_bytes = count.checked_mul(entry_bytes)?;
    // Multiples of 128 according to the specification.
    let sane = entry_bytes >= 128 && entry_bytes.is_multiple_of(8);
    if !sane || table_bytes > GPT_ENTRIES_BYTES_MAX || entries_at >= blocks {
        return None;
    }
    let entries = bytes(disk, entries_at * block..entries_at * block + table_bytes)?;
    if crc32(&entries) != word(&header, 88) {
        return None;
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(entries.chunks(entry_bytes as usize)) {
        let (first, last) = (long(entry, 32), long(entry, 40));
        let is_used = entry[..16] != [0; 16] && first != 0 && last >= first;
        if is_used {
            let blocks = (last - first).saturating_add(1);
            partitions.extend(on_disk(disk, number, first, blocks, block));
        }
    }
    let kind = if copy == Copy::First { TableKind::Gpt } else { TableKind::GptBackup };
    Some(PartitionTable { kind, block_bytes: block, partitions })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::MemoryDisk;

    fn boot_record_of(entries: &[(u8, u32, u32)]) -> Vec<u8> {
        let mut record = vec![0; 512];
        for (index, &(kind, start, blocks)) in entries.iter().enumerate() {
            let at = 446 + 16 * index;
            record[at + 4] = kind;
            record[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
            record[at + 12..at + 16].copy_from_slice(&blocks.to_le_bytes());
        }
        record[510..].copy_from_slice(&[0x55, 0xaa]);
        record
    }

    const BLOCKS: u64 = 256;

    /// A disk of [`BLOCKS`] blocks with both copies of a GPT.
    fn gpt_disk(block: u64, partitions: &[(u64, u64)]) -> Vec<u8> {
        let mut disk = vec![0; (BLOCKS * block) as usize];
        disk[..512].copy_from_slice(&boot_record_of(&[(PROTECTIVE, 1, BLOCKS as u32 - 1)]));
        let mut entries = vec![0; 128 * 128];
        for (index, &(first, last)) in partitions.iter().enumerate() {
            let entry = &mut entries[128 * index..][..128];
            entry[..32].fill(7);
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let table_blocks = entries.len() as u64 / block;
        for (at, entries_at) in [(1, 2), (BLOCKS - 1, BLOCKS - 1 - table_blocks)] {
            let mut header = vec![0; 92];
            header[..8].copy_from_slice(b"EFI PART");
            header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
            header[24..32].copy_from_slice(&at.to_le_bytes());
            header[72..80].copy_from_slice(&entries_at.to_le_bytes());
            header[80..88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
            header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
            let checksum = crc32(&header);
            header[16..20].copy_from_slice(&checksum.to_le_bytes());
            disk[(at * block) as usize..][..92].copy_from_slice(&header);
            disk[(entries_at * block) as usize..][..entries.len()].copy_from_slice(&entries);
        }
        disk
    }

    type Listed = (TableKind, u64, Vec<(u32, Range<u64>)>);

    fn listed(disk: &[u8]) -> Vec<Listed> {
        let tables = partition_tables(&MemoryDisk::new("image", disk.to_vec())).into_iter();
        let partition = |it: Partition| (it.number, it.sectors);
        let list = |table: PartitionTable| table.partitions.into_iter().map(partition).collect();
        tables.map(|table| (table.kind, table.block_bytes, list(table))).collect()
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_gpt_is_read_with_either_block_and_from_either_copy() {
        for (block, first) in [(512, 1), (4096, 8)] {
            let mut disk = gpt_disk(block, &[(40, 99), (100, 1 << 60), (300, 400)]);
            // The second ends with the disk, the third is behind it.
            let ranges = vec![(1, 40 * first..100 * first), (2, 100 * first..BLOCKS * first)];
            assert_eq!(listed(&disk), [(TableKind::Gpt, block, ranges.clone())]);
            let header = block as usize;
            disk[header + 60] ^= 1;
            assert_eq!(listed(&disk), [(TableKind::GptBackup, block, ranges.clone())]);
            disk[header + 60] ^= 1;
            disk[2 * header] ^= 1;
            assert_eq!(listed(&disk), [(TableKind::GptBackup, block, ranges.clone())]);
            // Without its boot record.
            disk[..512].fill(0);
            assert_eq!(listed(&disk), [(TableKind::GptBackup, block, ranges)]);
            let last = ((BLOCKS - 1) * block) as usize;
            disk[last + 16] ^= 1;
            assert_eq!(listed(&disk), []);
        }
    }

    #[test]
    fn an_mbr_rules_over_a_gpt_that_was_left() {
        let mut disk = gpt_disk(512, &[(40, 99)]);
        disk[..512].copy_from_slice(&boot_record_of(&[(0xfd, 50, 20)]));
        let tables = listed(&disk);
        assert_eq!(tables[0], (TableKind::Mbr, 512, vec![(1, 50..70)]));
        // In blocks of 4096 bytes it would begin behind the end.
        assert_eq!(tables.len(), 1);
    }

    #[test]
    fn blocks_of_4096_bytes_are_a_reading_only_where_all_of_the_table_is_on_the_disk() {
        let mut disk = vec![0; 80 << 10];
        let table = |disk: &mut Vec<u8>, entries: &[(u8, u32, u32)]| {
            disk[..512].copy_from_slice(&boot_record_of(entries));
            listed(disk).iter().map(|table| table.1).collect::<Vec<_>>()
        };
        assert_eq!(table(&mut disk, &[(0xfd, 2, 8)]), [512, 4096]);
        assert_eq!(table(&mut disk, &[(0xfd, 2, 40)]), [512], "cut off");
        assert_eq!(table(&mut disk, &[(0xfd, 2, 8), (0xfd, 30, 9)]), [512], "behind the end");
        assert_eq!(table(&mut disk, &[(0xfd, 2, 800)]), [512, 4096], "neither is on it");
        // The first logical partition says in which blocks it is.
        disk[8 * 512..9 * 512].copy_from_slice(&boot_record_of(&[(0xfd, 1, 2)]));
        assert_eq!(table(&mut disk, &[(0x05, 8, 12)]), [512]);
        disk[8 * 512..9 * 512].fill(0);
        disk[8 * 4096..8 * 4096 + 512].copy_from_slice(&boot_record_of(&[(0xfd, 1, 2)]));
        assert_eq!(table(&mut disk, &[(0x05, 8, 12)]), [512, 4096]);
    }

    #[test]
    fn a_partition_that_ends_behind_the_disk_is_known_to() {
        let mut disk = gpt_disk(512, &[(40, 99), (100, 400)]);
        let parts = |disk: &[u8]| {
            let tables = partition_tables(&MemoryDisk::new("image", disk.to_vec()));
            let parts = tables[0].partitions.iter();
            parts.map(|it| (it.sectors.end, it.ends, it.is_cut())).collect::<Vec<_>>()
        };
        assert_eq!(parts(&disk), [(100, 100, false), (256, 401, true)]);
        disk[..512].copy_from_slice(&boot_record_of(&[(0xfd, 50, 20), (0xfd, 200, 57)]));
        assert_eq!(parts(&disk), [(70, 70, false), (256, 257, true)]);
        let disk = MemoryDisk::new("image", disk);
        let ends = [50, 200, 51, 0].map(|first| partition_end(&disk, first));
        assert_eq!(ends, [Some(70), Some(256), None, None]);
    }

    #[test]
    fn logical_partitions_are_found_and_a_ring_of_them_ends() {
        let mut disk = vec![0; 256 * 512];
        disk[..512].copy_from_slice(&boot_record_of(&[(0x83, 8, 8), (0x0f, 20, 200)]));
        let first = boot_record_of(&[(0xfd, 4, 10), (0x05, 40, 50)]);
        disk[20 * 512..21 * 512].copy_from_slice(&first);
        disk[60 * 512..61 * 512].copy_from_slice(&boot_record_of(&[(0xfd, 2, 9)]));
        let ranges = vec![(1, 8..16), (5, 24..34), (6, 62..71)];
        assert_eq!(listed(&disk)[0], (TableKind::Mbr, 512, ranges));
        let ring = boot_record_of(&[(0xfd, 2, 9), (0x05, 40, 50)]);
        disk[60 * 512..61 * 512].copy_from_slice(&ring);
        assert_eq!(listed(&disk)[0].2.len(), 1 + LOGICAL_MAX as usize);
    }

    #[test]
    fn a_file_systems_boot_record_is_no_table() {
        let mut disk = vec![0; 64 * 512];
        disk[..512].copy_from_slice(&boot_record_of(&[(0x83, 8, 8)]));
        disk[446 + 16] = b'N';
        assert_eq!(listed(&disk), []);
    }

    proptest! {
        /// Damage anywhere: no panic, no partition that is not on the disk.
        #[test]
        fn damaged_tables_are_survived(
            block in prop::sample::select(vec![512u64, 4096]),
            is_gpt: bool,
            damage in prop::collection::vec((0usize..3 * 4096, any::<u8>()), 0..6),
            repaired: bool,
            cut in 0usize..1 << 20,
        ) {
            let mut disk = match is_gpt {
                true => gpt_disk(block, &[(40, 99), (100, 200)]),
                false => {
                    let mut disk = vec![0; (BLOCKS * block) as usize];
                    let record = boot_record_of(&[(0x83, 8, 8), (0x05, 20, 200)]);
                    disk[..512].copy_from_slice(&record);
                    let next = boot_record_of(&[(0xfd, 4, 10), (0x05, 40, 50)]);
                    disk[(20 * block) as usize..][..512].copy_from_slice(&next);
                    disk
                }
            };
            for (at, byte) in damage {
                disk[at] = byte;
            }
            if repaired {
                // Damage that a checksum does not show.
                let header = &mut disk[block as usize..][..92];
                header[16..20].fill(0);
                let checksum = crc32(header).to_le_bytes();
                header[16..20].copy_from_slice(&checksum);
            }
            let length = disk.len().saturating_sub(cut).max(512) / 512 * 512;
            disk.truncate(length);
            let disk = MemoryDisk::new("image", disk);
            for table in partition_tables(&disk) {
                for Partition { sectors, .. } in table.partitions {
                    prop_assert!(sectors.start < sectors.end && sectors.end <= disk.sectors());
                    prop_assert!(sectors.start > 0);
                }
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 4096..16384)) {
            let mut bytes = bytes;
            bytes.truncate(bytes.len() / 512 * 512);
            bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
            for flag in 0..4 {
                bytes[446 + 16 * flag] &= 0x80;
            }
            let disk = MemoryDisk::new("image", bytes);
            for table in partition_tables(&disk) {
                prop_assert!(table.partitions.iter().all(|it| it.sectors.end <= disk.sectors()));
            }
        }
    }
}
