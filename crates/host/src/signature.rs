//! Detects existing data on a device before it is overwritten: by signatures in its first and last
//! sectors, or else by a sample of its contents.
//!
//! Invariant: nothing is written, and unreadable places count as empty. A signature is evidence of
//! data in use; the absence of signatures is no evidence of the contrary. md's own superblocks are
//! not detected here but decoded (`md::ondisk`).
//!
//! Offsets are from each format's own description: ext4 (kernel documentation, "ext4 superblock"),
//! XFS, Btrfs, LVM2 label, LUKS (cryptsetup's on-disk format), UEFI for GPT, and so on.

use std::fmt;
use std::io;
use std::ops::Range;

use md::SECTOR_BYTES;

use crate::disk::Disk;

/// A detected signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name of the format: `ext4`, `LVM physical volume`, `GPT partition table`.
    pub what: &'static str,
    /// Byte offset of the signature on the device.
    pub at: u64,
    /// Its label or name, if it is easy to read.
    pub label: Option<String>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match &self.label {
            Some(label) => write!(f, " '{label}'"),
            None => Ok(()),
        }
    }
}

/// A fixed signature at a fixed offset.
struct Sign {
    what: &'static str,
    at: At,
    magic: &'static [u8],
    /// Byte range of the label on the device.
    label: Option<Range<u64>>,
}

enum At {
    Start(u64),
    /// Bytes before the end.
    End(u64),
}

const fn sign(what: &'static str, at: u64, magic: &'static [u8]) -> Sign {
    Sign { what, at: At::Start(at), magic, label: None }
}

const fn labelled(what: &'static str, at: u64, magic: &'static [u8], label: Range<u64>) -> Sign {
    Sign { what, at: At::Start(at), magic, label: Some(label) }
}

const SIGNS: [Sign; 31] = [
    labelled("XFS", 0, b"XFSB", 108..120),
    labelled("Btrfs", 0x1_0040, b"_BHRfS_M", 0x1_012b..0x1_022b),
    labelled("swap", 4086, b"SWAPSPACE2", 1052..1068),
    labelled("swap", 4086, b"SWAP-SPACE", 1052..1068),
    sign("hibernation image", 4086, b"S1SUSPEND"),
    labelled("LUKS 2 volume", 0, b"LUKS\xba\xbe\x00\x02", 24..72),
    sign("LUKS volume", 0, b"LUKS\xba\xbe"),
    sign("LVM physical volume", 0x18, b"LVM2 001"),
    sign("LVM physical volume", 0x218, b"LVM2 001"),
    sign("LVM physical volume", 0x418, b"LVM2 001"),
    sign("LVM physical volume", 0x618, b"LVM2 001"),
    sign("NTFS", 3, b"NTFS    "),
    sign("exFAT", 3, b"EXFAT   "),
    labelled("FAT", 82, b"FAT32   ", 71..82),
    labelled("FAT", 54, b"FAT16   ", 43..54),
    labelled("FAT", 54, b"FAT12   ", 43..54),
    sign("BitLocker volume", 3, b"-FVE-FS-"),
    sign("F2FS", 1024, b"\x10\x20\xf5\xf2"),
    sign(
        "bcache device",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    sign("ISO 9660", 0x8001, b"CD001"),
    sign("ReiserFS", 0x1_0034, b"ReIsEr"),
    sign("JFS", 0x8000, b"JFS1"),
    sign("UFS2", 0x1_055c, b"\x19\x01\x54\x19"),
    sign("EROFS", 1024, b"\xe2\xe1\xf5\xe0"),
    sign("SquashFS", 0, b"hsqs"),
    sign("GPT partition table", 512, b"EFI PART"),
    sign("GPT partition table", 4096, b"EFI PART"),
    Sign {
        what: "backup of a GPT partition table",
        at: At::End(512),
        magic: b"EFI PART",
        label: None,
    },
    Sign {
        what: "BIOS RAID (Intel)",
        at: At::End(1024),
        magic: b"Intel Raid ISM Cfg Sig. ",
        label: None,
    },
    Sign {
        what: "BIOS RAID (Intel)",
        at: At::End(8192),
        magic: b"Intel Raid ISM Cfg Sig. ",
        label: None,
    },
    sign("metadata of an LVM RAID volume (dm-raid)", 0, b"DmRd"),
];

/// All signatures on a device, in the order of the table; md superblocks are left to `md::ondisk`.
pub fn signatures(disk: &dyn Disk) -> Vec<Signature> {
    let mut found = Vec::new();
    for sign in &SIGNS {
        let at = match sign.at {
            At::Start(at) => Some(at),
            At::End(before) => (disk.sectors() * SECTOR_BYTES).checked_sub(before),
        };
        let Some(at) = at else { continue };
        let end = at + sign.magic.len() as u64;
        if bytes(disk, at..end).is_none_or(|bytes| bytes != sign.magic) {
            continue;
        }
        let label = sign.label.clone().and_then(|range| text(disk, range));
        let more = Signature { what: sign.what, at, label };
        // The short signature of a format is redundant after its long one.
        if !found.iter().any(|seen: &Signature| seen.at == at && seen.what.starts_with("LUKS")) {
            found.push(more);
        }
    }
    found.extend(ext(disk));
    found.extend(zfs(disk));
    found.extend(ddf(disk));
    // The boot record of a file system, or a protective MBR, is not a partition table.
    if found.is_empty() {
        found.extend(mbr(disk));
    }
    found
}

/// The bytes of a range; `None` if it is not on the disk, or cannot be read.
pub(crate) fn bytes(disk: &dyn Disk, range: Range<u64>) -> Option<Vec<u8>> {
    let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
    if sectors.end > disk.sectors() {
        return None;
    }
    let mut bytes = vec![0; ((sectors.end - sectors.start) * SECTOR_BYTES) as usize];
    disk.read(sectors.start, &mut bytes).ok()?;
    let skip = (range.start % SECTOR_BYTES) as usize;
    Some(bytes[skip..skip + (range.end - range.start) as usize].to_vec())
}

fn text(disk: &dyn Disk, range: Range<u64>) -> Option<String> {
    let bytes = bytes(disk, range).filter(|bytes| !bytes.is_empty())?;
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(bytes).trim().to_string();
    let shows = !text.is_empty() && !text.chars().any(char::is_control);
    shows.then_some(text)
}

/// ext2, 3 and 4 share their magic; the features tell them apart.
fn ext(disk: &dyn Disk) -> Option<Signature> {
    let superblock = bytes(disk, 1024..2048)?;
    if superblock[56..58] != [0x53, 0xef] {
        return None;
    }
    let word = |at: usize| u32::from_le_bytes(superblock[at..at + 4].try_into().expect("four"));
    let (compat, incompat, ro_compat) = (word(92), word(96), word(100));
    let has_journal = compat & 0x4 != 0;
    let only_ext4 = incompat & 0x3c0 != 0 || ro_compat & 0x478 != 0;
    let what = match (has_journal, only_ext4) {
        (_, true) => "ext4",
        (true, false) => "ext3",
        (false, false) => "ext2",
    };
    Some(Signature { what, at: 1024 + 56, label: text(disk, 1024 + 120..1024 + 136) })
}

/// ZFS labels hold a ring of uberblocks from 128 KiB on, in either byte order.
fn zfs(disk: &dyn Disk) -> Option<Signature> {
    let magic = 0x00ba_b10c_u64;
    let ring = bytes(disk, 128 << 10..256 << 10)?;
    let at = ring.chunks(1024).position(|block| {
        let word: [u8; 8] = block[..8].try_into().expect("eight");
        u64::from_le_bytes(word) == magic || u64::from_be_bytes(word) == magic
    })?;
    Some(Signature { what: "ZFS pool member", at: (128 << 10) + at as u64 * 1024, label: None })
}

/// The DDF anchor is in the last sector, or 128 KiB before the end on some controllers.
fn ddf(disk: &dyn Disk) -> Option<Signature> {
    let end = disk.sectors() * SECTOR_BYTES;
    [512, 257 * 512].into_iter().find_map(|before| {
        let at = end.checked_sub(before)?;
        let magic = bytes(disk, at..at + 4)?;
        let is = magic == [0xde, 0x11, 0xde, 0x11];
        is.then_some(Signature { what: "BIOS RAID (DDF)", at, label: None })
    })
}

/// A boot record with at least one plausible partition.
fn mbr(disk: &dyn Disk) -> Option<Signature> {
    let record = bytes(disk, 0..512)?;
    if record[510..] != [0x55, 0xaa] {
        return None;
    }
    let partitions = record[446..510].chunks(16);
    let sane = |entry: &[u8]| matches!(entry[0], 0 | 0x80);
    let used = |entry: &[u8]| {
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().expect("four"));
        entry[4] != 0 && word(8) != 0 && word(12) != 0
    };
    let is_table = partitions.clone().all(sane) && partitions.clone().any(used);
    let count = record[446..510].chunks(16).filter(|entry| used(entry)).count();
    let label = Some(format!("{count} partition(s)"));
    is_table.then_some(Signature { what: "MBR partition table", at: 510, label })
}

/// The image format or compression that the first bytes indicate, with advice. A member may begin
/// with any data, so this is no evidence where there is metadata.
pub fn packed_as(disk: &dyn Disk) -> Option<&'static str> {
    let table: [(usize, &[u8], &str); 9] = [
        (0, b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first (zstd -d)"),
        (0, b"\x1f\x8b\x08", "a gzip file: unpack it first (gunzip)"),
        (0, b"\xfd7zXZ\0", "an xz file: unpack it first (unxz)"),
        (0, b"BZh", "a bzip2 file: unpack it first (bunzip2)"),
        (0, b"\x04\x22\x4d\x18", "an lz4 file: unpack it first (lz4 -d)"),
        (0, b"QFI\xfb", "a qcow2 image: make it raw first (qemu-img convert -O raw)"),
        (0, b"KDMV", "a VMDK image: make it raw first (qemu-img convert -O raw)"),
        (0, b"vhdxfile", "a VHDX image: make it raw first (qemu-img convert -O raw)"),
        (64, b"\x7f\x10\xda\xbe", "a VDI image: make it raw first (qemu-img convert -O raw)"),
    ];
    let start = bytes(disk, 0..SECTOR_BYTES)?;
    table.iter().find_map(|(at, magic, what)| start[*at..].starts_with(magic).then_some(*what))
}

/// Bytes read from the start of a device without signatures, so that small files and files with
/// little data are read completely.
const DATA_BYTES: u64 = 64 << 20;
/// Bytes read from its end.
const END_BYTES: u64 = 1 << 20;
/// Number of samples in between.
const SAMPLES: u64 = 256;
const SAMPLE_BYTES: u64 = 4096;

/// The first data that is not zero in the first 64 MiB that are no hole, in the last MiB, in
/// `areas` (ranges of sectors), and in a sample of the rest: where, in bytes of the device, and
/// what.
///
/// # Errors
/// A read error: the contents are unknown.
pub fn some_data(disk: &dyn Disk, areas: &[Range<u64>]) -> io::Result<Option<(u64, [u8; 8])>> {
    let sectors = disk.sectors();
    let mut looks = vec![
        (0..sectors, DATA_BYTES / SECTOR_BYTES),
        (sectors.saturating_sub(END_BYTES / SECTOR_BYTES)..sectors, u64::MAX),
    ];
    looks.extend(areas.iter().map(|area| (area.start..area.end.min(sectors), u64::MAX)));
    looks.extend((1..=SAMPLES).map(|sample| {
        let at = (u128::from(sectors) * u128::from(sample) / u128::from(SAMPLES + 1)) as u64;
        (at..(at + SAMPLE_BYTES / SECTOR_BYTES).min(sectors), u64::MAX)
    }));
    for (look, most) in looks {
        if let Some(found) = data_in(disk, look, most)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The first data that is not zero in one range, of which at most `most` sectors are read.
fn data_in(disk: &dyn Disk, range: Range<u64>, most: u64) -> io::Result<Option<(u64, [u8; 8])>> {
    let (mut at, mut left) = (range.start, most);
    let mut bytes = vec![0; 256 << 10];
    while at < range.end && left > 0 {
        let data = disk.hole_end(at);
        if data > at {
            at = data;
            continue;
        }
        let part = (range.end - at).min(left).min(bytes.len() as u64 / SECTOR_BYTES);
        let read = &mut bytes[..(part * SECTOR_BYTES) as usize];
        disk.read(at, read)?;
        if let Some(first) = read.iter().position(|&byte| byte != 0) {
            let start = first / 8 * 8;
            let word = read[start..start + 8].try_into().expect("eight bytes");
            return Ok(Some((at * SECTOR_BYTES + start as u64, word)));
        }
        at += part;
        left -= part;
    }
    Ok(None)
}
