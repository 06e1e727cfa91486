//! FAT and exFAT: their boot sectors, and the label in the root directory.

use crate::bytes::{Bytes, take};
use crate::field::{le16, le32, le64};
use crate::identified::{Checksum, Identified};
use crate::kind::Kind;
use crate::text;

/// FAT12, FAT16 and FAT32, by the name that the boot sector gives.
pub fn fat(from: &dyn Bytes) -> Option<Identified> {
    let boot = take(from, 0, 512)?;
    let has_name = |at: usize| boot[at..at + 3] == *b"FAT" && boot[at + 5..at + 8] == *b"   ";
    let is_32 = has_name(82);
    if boot[510..] != [0x55, 0xaa] || !(is_32 || has_name(54)) {
        return None;
    }
    let sector = u64::from(le16(&boot, 11));
    let cluster = sector * u64::from(boot[13]);
    if !sector.is_power_of_two() || !(512..=4096).contains(&sector) || !cluster.is_power_of_two() {
        return None;
    }
    let sectors = match le16(&boot, 19) {
        0 => u64::from(le32(&boot, 32)),
        sectors => sectors.into(),
    };
    let (copies, reserved) = (u64::from(boot[16]), u64::from(le16(&boot, 14)));
    let table = if is_32 { le32(&boot, 36).into() } else { u64::from(le16(&boot, 22)) };
    let behind_tables = (reserved + copies * table) * sector;
    let (root, bytes) = match is_32 {
        true => {
            let first = u64::from(le32(&boot, 44)).checked_sub(2)?;
            (behind_tables.checked_add(first.checked_mul(cluster)?)?, cluster)
        }
        false => (behind_tables, u64::from(le16(&boot, 17)) * 32),
    };
    let (serial, name) = if is_32 { (67, 71) } else { (39, 43) };
    let serial = le32(&boot, serial);
    // A label in the root directory is newer than the boot sector's.
    let label = root_label(from, root, bytes.min(64 << 10) as usize).or_else(|| {
        let in_boot = &boot[name..name + 11];
        (in_boot != b"NO NAME    ").then(|| text::label(in_boot)).flatten()
    });
    Some(Identified {
        kind: Kind::Fat,
        label,
        uuid: (serial != 0).then(|| format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)),
        bytes: sectors.checked_mul(sector),
        checksum: Checksum::Absent,
    })
}

fn root_label(from: &dyn Bytes, at: u64, len: usize) -> Option<String> {
    let directory = take(from, at, len)?;
    let entries = directory.chunks_exact(32).take_while(|entry| entry[0] != 0);
    // Neither deleted, nor a part of a long name.
    let is_label =
        |entry: &&[u8]| entry[0] != 0xe5 && entry[11] & 0x3f != 0xf && entry[11] & 8 != 0;
    text::label(&entries.into_iter().find(is_label)?[..11])
}

/// exFAT.
pub fn exfat(from: &dyn Bytes) -> Option<Identified> {
    let boot = take(from, 0, 512)?;
    if &boot[3..11] != b"EXFAT   " || boot[510..] != [0x55, 0xaa] {
        return None;
    }
    let (sector_bits, cluster_bits) = (u32::from(boot[108]), u32::from(boot[109]));
    if !(9..=12).contains(&sector_bits) || cluster_bits > 25 - sector_bits {
        return None;
    }
    let serial = le32(&boot, 100);
    let cluster = 1_u64 << (sector_bits + cluster_bits);
    let root = u64::from(le32(&boot, 96))
        .checked_sub(2)
        .map(|first| (u64::from(le32(&boot, 88)) << sector_bits) + first * cluster);
    let root = root.and_then(|at| take(from, at, cluster.min(64 << 10) as usize));
    let label = root.and_then(|directory| {
        let mut entries = directory.chunks_exact(32).take_while(|entry| entry[0] != 0);
        let entry = entries.find(|entry| entry[0] == 0x83)?;
        text::label16(entry.get(2..2 + 2 * usize::from(entry[1].min(11)))?)
    });
    Some(Identified {
        kind: Kind::ExFat,
        label,
        uuid: Some(format!("{:04X}-{:04X}", serial >> 16, serial & 0xffff)),
        bytes: le64(&boot, 72).checked_mul(1 << sector_bits),
        checksum: boot_checksum(from, 1 << sector_bits),
    })
}

/// The twelfth sector repeats a sum of the eleven before it.
fn boot_checksum(from: &dyn Bytes, sector: usize) -> Checksum {
    let Some(region) = take(from, 0, 12 * sector) else { return Checksum::Bad };
    let (summed, sums) = region.split_at(11 * sector);
    let mut sum = 0_u32;
    for (at, byte) in summed.iter().enumerate() {
        // Flags and the part in use change without the sum.
        if !matches!(at, 106 | 107 | 112) {
            sum = sum.rotate_right(1).wrapping_add(u32::from(*byte));
        }
    }
    match sums.chunks_exact(4).all(|word| le32(word, 0) == sum) {
        true => Checksum::Good,
        false => Checksum::Bad,
    }
}
