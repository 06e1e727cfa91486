//! The partition table in the first sector of a disk.

use crate::field::le32;

/// A boot record with at least one partition that a disk can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mbr {
    pub serial: u32,
    pub partitions: Vec<Partition>,
}

/// A primary partition; numbers are sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// From 1 on.
    pub number: u32,
    pub kind: u8,
    pub start: u32,
    pub sectors: u32,
}

/// The type of the one partition that covers a disk with a GUID table.
const PROTECTIVE: u8 = 0xee;

impl Mbr {
    /// Decodes 512 bytes. The boot sectors of FAT, exFAT and NTFS are none.
    pub fn decode(bytes: &[u8]) -> Option<Mbr> {
        let bytes = bytes.get(..512)?;
        if bytes[510..] != [0x55, 0xaa] || is_boot_sector_of_a_volume(bytes) {
            return None;
        }
        let mut partitions: Vec<Partition> = Vec::new();
        for (entry, number) in bytes[446..510].chunks_exact(16).zip(1..) {
            let (kind, start, sectors) = (entry[4], le32(entry, 8), le32(entry, 12));
            if !matches!(entry[0], 0 | 0x80) {
                return None;
            }
            if kind == 0 && sectors == 0 {
                continue;
            }
            let end = u64::from(start) + u64::from(sectors);
            let apart = |other: &Partition| {
                let other_end = u64::from(other.start) + u64::from(other.sectors);
                end <= u64::from(other.start) || u64::from(start) >= other_end
            };
            if kind == 0 || start == 0 || sectors == 0 || !partitions.iter().all(apart) {
                return None;
            }
            partitions.push(Partition { number, kind, start, sectors });
        }
        let serial = le32(bytes, 440);
        (!partitions.is_empty()).then_some(Mbr { serial, partitions })
    }

    /// Whether it only guards a GUID table.
    pub fn is_protective(&self) -> bool {
        self.partitions.iter().any(|partition| partition.kind == PROTECTIVE)
    }
}

fn is_boot_sector_of_a_volume(bytes: &[u8]) -> bool {
    let is_fat = |at: usize| bytes[at..at + 3] == *b"FAT";
    matches!(&bytes[3..11], b"NTFS    " | b"EXFAT   " | b"-FVE-FS-") || is_fat(54) || is_fat(82)
}
