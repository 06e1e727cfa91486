//! The header of a GUID partition table (UEFI specification, "GPT Disk Layout").

use crate::field::{le32, le64, uuid};

/// A header whose checksum holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The block that holds it, and the block that holds the other one.
    pub block: u64,
    pub other: u64,
    pub last_usable: u64,
    pub guid: [u8; 16],
    pub entries_at: u64,
    pub entries: u32,
    pub entry_bytes: u32,
    pub entries_crc: u32,
}

impl Header {
    /// Decodes a block; one whose checksum does not hold is none.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        if !bytes.starts_with(b"EFI PART") {
            return None;
        }
        let header = bytes.get(..le32(bytes, 12) as usize).filter(|header| header.len() >= 92)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header[..16]);
        hasher.update(&[0; 4]);
        hasher.update(&header[20..]);
        if hasher.finalize() != le32(header, 16) {
            return None;
        }
        Some(Header {
            block: le64(header, 24),
            other: le64(header, 32),
            last_usable: le64(header, 48),
            guid: uuid(header, 56),
            entries_at: le64(header, 72),
            entries: le32(header, 80),
            entry_bytes: le32(header, 84),
            entries_crc: le32(header, 88),
        })
    }

    /// The GUID as text: its first three parts are little endian.
    pub fn uuid(&self) -> Option<String> {
        let mut guid = self.guid;
        guid[..4].reverse();
        guid[4..6].reverse();
        guid[6..8].reverse();
        crate::text::uuid(guid)
    }
}

/// Entries that are read at most; tools make 128.
pub const ENTRIES_MAX: usize = 1024;

/// Bytes of all entries; `None` if there are too many, or they are too large.
pub fn entries_bytes(header: &Header) -> Option<usize> {
    let sane = header.entries as usize <= ENTRIES_MAX && header.entry_bytes <= 4096;
    sane.then_some(header.entries as usize * header.entry_bytes as usize)
}
