//! Records of the MFT: their fix-up, and the attributes that say where things lie.

use crate::field::{le16, le32};

/// Attribute types.
pub const VOLUME_NAME: u32 = 0x60;
/// The contents of a file.
pub const DATA: u32 = 0x80;
/// The index blocks of a directory.
pub const INDEX_ALLOCATION: u32 = 0xa0;

/// Undoes the fix-up of a record or index block in place: the last two bytes of each sector of 512
/// stand in an array at its head. False if they do not match: the block is torn, or not one.
pub fn undo_fix_up(block: &mut [u8]) -> bool {
    let (at, count) = (usize::from(le16(block, 4)), usize::from(le16(block, 6)));
    let sectors = block.len() / 512;
    if sectors == 0 || count != sectors + 1 || at % 2 != 0 || at + 2 * count > 512 - 2 {
        return false;
    }
    let mark = le16(block, at);
    for sector in 0..sectors {
        let end = sector * 512 + 510;
        if le16(block, end) != mark {
            return false;
        }
        let from = at + 2 + 2 * sector;
        block.copy_within(from..from + 2, end);
    }
    true
}

/// An attribute of a record.
#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    pub kind: u32,
    pub resident: bool,
    pub named: bool,
    /// All of it, with its header.
    pub bytes: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The value of a resident one.
    pub fn value(&self) -> Option<&'a [u8]> {
        if !self.resident {
            return None;
        }
        let (len, at) = (le32(self.bytes, 16) as usize, usize::from(le16(self.bytes, 20)));
        self.bytes.get(at..)?.get(..len)
    }
}

/// The attributes of a record whose fix-up is undone.
pub fn attributes(record: &[u8]) -> impl Iterator<Item = Attribute<'_>> {
    let mut at = usize::from(le16(record, 20));
    std::iter::from_fn(move || {
        let rest = record.get(at..)?;
        let (kind, len) = (le32(rest, 0), le32(rest, 4) as usize);
        if kind == u32::MAX || len < 24 || len % 8 != 0 {
            return None;
        }
        let bytes = rest.get(..len)?;
        at += len;
        Some(Attribute { kind, resident: bytes[8] == 0, named: bytes[9] != 0, bytes })
    })
}
