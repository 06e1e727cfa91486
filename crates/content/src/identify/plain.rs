//! Formats that a magic number and a few fields identify.
//!
//! Offsets are from each format's own description.

use crate::bytes::{Bytes, take};
use crate::field::{be16, be64, le16, le32, le64, uuid};
use crate::identified::Identified;
use crate::kind::Kind;
use crate::text;

/// LUKS: a header of version 1, or one of the two of version 2.
pub fn luks(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 0, 512)?;
    if !header.starts_with(b"LUKS\xba\xbe") {
        return None;
    }
    let (kind, label) = match be16(&header, 6) {
        1 => (Kind::Luks1, None),
        2 if be64(&header, 8) >= 4096 => (Kind::Luks2, text::label(&header[24..72])),
        _ => return None,
    };
    let uuid = text::label(&header[168..208]);
    Some(Identified { label, uuid, ..Identified::only(kind) })
}

/// Swap space, or the image of a suspended system in it.
pub fn swap(from: &dyn Bytes) -> Option<Identified> {
    // The page of the machine that made it.
    [4096_u64, 8192, 16 << 10, 32 << 10, 64 << 10].into_iter().find_map(|page| {
        let magic = take(from, page - 10, 10)?;
        let kind = match &magic[..] {
            b"SWAPSPACE2" => Kind::Swap,
            b"SWAP-SPACE" => return Some(Identified::only(Kind::Swap)),
            b"S1SUSPEND\0" | b"S2SUSPEND\0" | b"ULSUSPEND\0" => Kind::Hibernation,
            _ => return None,
        };
        let header = take(from, 1024, 44)?;
        let (version, last_page) = (le32(&header, 0), le32(&header, 4));
        if version != 1 || last_page == 0 {
            return None;
        }
        Some(Identified {
            label: text::label(&header[28..44]),
            uuid: text::uuid(uuid(&header, 12)),
            bytes: Some((u64::from(last_page) + 1) * page),
            ..Identified::only(kind)
        })
    })
}

const MD_MAGIC: u32 = 0xa92b_4efc;

/// A member of an md array: metadata 1.1, 1.2, 1.0 or 0.90.
pub fn md_member(from: &dyn Bytes) -> Option<Identified> {
    let size = from.size();
    let near_end = (size >= 16 << 10).then(|| ((size / 512 - 16) & !7) * 512);
    for at in [Some(0), Some(4096), near_end].into_iter().flatten() {
        let Some(header) = take(from, at, 256) else { continue };
        let own_sector = le64(&header, 144);
        if le32(&header, 0) == MD_MAGIC && le32(&header, 4) == 1 && own_sector == at / 512 {
            return Some(Identified {
                label: text::label(&header[32..64]),
                uuid: text::uuid(uuid(&header, 16)),
                ..Identified::only(Kind::MdMember)
            });
        }
    }
    let header = take(from, (size & !0xffff).checked_sub(0x1_0000)?, 256)?;
    if le32(&header, 0) != MD_MAGIC || le32(&header, 4) != 0 {
        return None;
    }
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&header[20..24]);
    uuid[4..].copy_from_slice(&header[52..64]);
    Some(Identified { uuid: text::uuid(uuid), ..Identified::only(Kind::MdMember) })
}

/// What holds others and is known by a magic number: bcache, BitLocker.
pub fn magic_of_a_store(from: &dyn Bytes) -> Option<Identified> {
    const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let is = |at, magic: &[u8]| take(from, at, magic.len()).is_some_and(|bytes| bytes == magic);
    if is(4096 + 24, BCACHE) {
        let uuid = text::uuid(uuid(&take(from, 4096 + 40, 16)?, 0));
        return Some(Identified { uuid, ..Identified::only(Kind::Bcache) });
    }
    if is(3, b"-FVE-FS-") {
        return Some(Identified::only(Kind::BitLocker));
    }
    None
}

/// File systems of which only the name, the label, the UUID and the size are read.
pub fn file_system(from: &dyn Bytes) -> Option<Identified> {
    let recognise: [fn(&dyn Bytes) -> Option<Identified>; 8] =
        [f2fs, reiserfs, jfs, iso9660, squashfs, erofs, vmfs, zfs];
    recognise.into_iter().find_map(|recognise| recognise(from))
}

fn f2fs(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 1024, 1280)?;
    let log_block = le32(&header, 16);
    if le32(&header, 0) != 0xf2f5_2010 || log_block > 16 {
        return None;
    }
    Some(Identified {
        label: text::label16(&header[124..124 + 1024]),
        uuid: text::uuid(uuid(&header, 108)),
        bytes: le64(&header, 36).checked_mul(1 << log_block),
        ..Identified::only(Kind::F2fs)
    })
}

fn reiserfs(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 64 << 10, 128)?;
    if !matches!(&header[52..61], b"ReIsErFs\0" | b"ReIsEr2Fs" | b"ReIsEr3Fs") {
        return None;
    }
    Some(Identified {
        label: text::label(&header[100..116]),
        uuid: text::uuid(uuid(&header, 84)),
        bytes: Some(u64::from(le32(&header, 0)) * u64::from(le16(&header, 44))),
        ..Identified::only(Kind::ReiserFs)
    })
}

fn jfs(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 32 << 10, 184)?;
    if !header.starts_with(b"JFS1") {
        return None;
    }
    Some(Identified {
        label: text::label(&header[152..168]),
        uuid: text::uuid(uuid(&header, 136)),
        // In blocks of the device.
        bytes: le64(&header, 8).checked_mul(u64::from(le32(&header, 24))),
        ..Identified::only(Kind::Jfs)
    })
}

fn iso9660(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 32 << 10, 2048)?;
    if &header[1..6] != b"CD001" || header[0] != 1 {
        return None;
    }
    // When it was changed, else when it was made: 16 digits, of which blkid makes a name.
    let date = [830, 813].into_iter().find_map(|at| {
        let digits = std::str::from_utf8(&header[at..at + 16]).ok()?;
        let is_date = digits.bytes().all(|digit| digit.is_ascii_digit());
        (is_date && digits.bytes().any(|digit| digit != b'0')).then_some(digits)
    });
    let uuid = date.map(|date| {
        let cuts = [0, 4, 6, 8, 10, 12, 14, 16];
        let parts: Vec<&str> = cuts.windows(2).map(|cut| &date[cut[0]..cut[1]]).collect();
        parts.join("-")
    });
    Some(Identified {
        label: text::label(&header[40..72]),
        uuid,
        bytes: Some(u64::from(le32(&header, 80)) * u64::from(le16(&header, 128))),
        ..Identified::only(Kind::Iso9660)
    })
}

fn squashfs(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 0, 96)?;
    if !header.starts_with(b"hsqs") || le16(&header, 28) != 4 {
        return None;
    }
    Some(Identified { bytes: Some(le64(&header, 40)), ..Identified::only(Kind::SquashFs) })
}

fn erofs(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 1024, 128)?;
    let log_block = header[12];
    if le32(&header, 0) != 0xe0f5_e1e2 || !(9..=16).contains(&log_block) {
        return None;
    }
    Some(Identified {
        label: text::label(&header[64..80]),
        uuid: text::uuid(uuid(&header, 48)),
        bytes: Some(u64::from(le32(&header, 36)) << log_block),
        ..Identified::only(Kind::Erofs)
    })
}

fn vmfs(from: &dyn Bytes) -> Option<Identified> {
    let magic = take(from, 1 << 20, 4)?;
    (magic == b"\x0d\xd0\x01\xc0").then(|| Identified::only(Kind::VmfsVolume))
}

/// A ring of uberblocks from 128 KiB on, in either byte order.
fn zfs(from: &dyn Bytes) -> Option<Identified> {
    let ring = take(from, 128 << 10, 128 << 10)?;
    let is_uberblock = |block: &[u8]| [le64(block, 0), be64(block, 0)].contains(&0x00ba_b10c);
    ring.chunks_exact(1024).any(is_uberblock).then(|| Identified::only(Kind::ZfsMember))
}
