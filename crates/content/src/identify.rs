//! What lies at the start of a device, a partition or a volume.

use crate::bytes::{Bytes, take};
use crate::field::{le16, le32};
use crate::kind::Kind;
use crate::text;

/// What was recognised, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// What it is.
    pub kind: Kind,
    /// Its label or name; can be printed.
    pub label: Option<String>,
    /// Its UUID or serial number, in the form that blkid prints.
    pub uuid: Option<String>,
    /// Size in bytes that it says it has; `None` if it does not say.
    pub bytes: Option<u64>,
    /// Whether the checksum of its superblock holds.
    pub checksum: Checksum,
}

/// Whether a checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Checksum {
    /// It holds.
    Good,
    /// The format, or this version of it, has none.
    Absent,
    /// It does not hold: the superblock is damaged.
    Bad,
}

/// Recognises what begins at byte 0 of `from`. Of several, the one that is in use: a file system
/// before a partition table. `None` if nothing is known there, or it cannot be read.
pub fn identify(from: &dyn Bytes) -> Option<Identified> {
    luks(from).or_else(|| swap(from))
}

fn swap(from: &dyn Bytes) -> Option<Identified> {
    // The page size of the machine that made it.
    [4096_u64, 8192, 16 << 10, 32 << 10, 64 << 10].into_iter().find_map(|page| {
        let magic = take(from, page - 10, 10)?;
        let kind = match &magic[..] {
            b"SWAPSPACE2" | b"SWAP-SPACE" => Kind::Swap,
            b"S1SUSPEND\0" | b"S2SUSPEND\0" | b"ULSUSPEND\0" => Kind::Hibernation,
            _ => return None,
        };
        let header = take(from, 1024, 44)?;
        let pages = u64::from(le32(&header, 4)) + 1;
        Some(Identified {
            kind,
            label: text::label(&header[28..44]),
            uuid: text::uuid(crate::field::uuid(&header, 12)),
            bytes: pages.checked_mul(page),
            checksum: Checksum::Absent,
        })
    })
}

fn luks(from: &dyn Bytes) -> Option<Identified> {
    let header = take(from, 0, 512)?;
    if !header.starts_with(b"LUKS\xba\xbe") {
        return None;
    }
    let (kind, label) = match le16(&header, 6).swap_bytes() {
        1 => (Kind::Luks1, None),
        2 => (Kind::Luks2, text::label(&header[24..72])),
        _ => return None,
    };
    let uuid = text::label(&header[168..208]);
    Some(Identified { kind, label, uuid, bytes: None, checksum: Checksum::Absent })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_header_says_its_size() {
        let mut bytes = vec![0; 8192];
        bytes[4086..4096].copy_from_slice(b"SWAPSPACE2");
        bytes[1024] = 1;
        bytes[1028] = 7;
        bytes[1052..1056].copy_from_slice(b"swap");
        let found = identify(&bytes).expect("swap");
        assert_eq!((found.kind, found.bytes), (Kind::Swap, Some(8 * 4096)));
        assert_eq!((found.label.as_deref(), found.uuid), (Some("swap"), None));
        assert_eq!(identify(&vec![0; 8192]), None);
    }

    #[test]
    fn a_luks_header_names_its_version() {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(b"LUKS\xba\xbe\0\x02");
        bytes[24..28].copy_from_slice(b"safe");
        bytes[168..174].copy_from_slice(b"c0ffee");
        let found = identify(&bytes).expect("LUKS");
        assert_eq!((found.kind, found.kind.name()), (Kind::Luks2, "crypto_LUKS"));
        assert_eq!(found.label.as_deref(), Some("safe"));
        bytes[7] = 3;
        assert_eq!(identify(&bytes), None);
    }
}
