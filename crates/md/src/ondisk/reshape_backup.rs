//! mdadm's backup of what a reshape is about to write over (`--backup-file`, or on new members).
//!
//! Format: `docs/format/reshape-backup.md`. Invariant: what is decoded has both checksums right
//! where they count, and ranges that do not overflow; whether it belongs to an array, and is of any
//! use at its position, is for [`crate::reshape`] to say.

use std::borrow::Cow;
use std::ops::Range;

use super::{DecodeError, Field, Uuid, fields};

/// Length of the header.
pub const BACKUP_HEADER_BYTES: usize = 512;

/// Sectors from the header to the first copy, in a file.
pub const BACKUP_DATA_SECTOR: u64 = 8;

const STRUCTURE: &str = "reshape-backup";

fields! {
    /// All fields.
    pub const BACKUP_FIELDS = {
        MAGIC: "magic" at 0, 16;
        SET_UUID: "set_uuid" at 16, 16;
        MTIME: "mtime" at 32, 8;
        DEVSTART: "devstart" at 40, 8;
        ARRAYSTART: "arraystart" at 48, 8;
        LENGTH: "length" at 56, 8;
        SB_CSUM: "sb_csum" at 64, 4;
        PAD1: "pad1" at 68, 4;
        DEVSTART2: "devstart2" at 72, 8;
        ARRAYSTART2: "arraystart2" at 80, 8;
        LENGTH2: "length2" at 88, 8;
        SB_CSUM2: "sb_csum2" at 96, 4;
        MARK: "mark" at 100, 12;
        EVENTS: "events" at 112, 8;
        PAD2: "pad2" at 120, 392;
    }
}

const MAGIC_1: &[u8; 16] = b"md_backup_data-1";
const MAGIC_2: &[u8; 16] = b"md_backup_data-2";

/// What raidlab writes where mdadm has padding.
const RAIDLAB: &[u8; 12] = b"raidlab-made";

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupCopy {
    /// Array sectors that it holds; empty: none.
    pub array: Range<u64>,
    /// Where it begins, in sectors of the file or device.
    pub at: u64,
}

/// The header of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeBackup {
    /// The array, as its superblocks store it.
    pub set_uuid: [u8; 16],
    /// When it was written, seconds since 1970.
    pub written: u64,
    /// One copy, or two.
    pub copies: Vec<BackupCopy>,
    /// raidlab wrote it, when the array had this event count. `None`: mdadm.
    pub events: Option<u64>,
}

/// The UUID of an array as a backup stores it: 1.x as it is; 0.90 has words, which are stored in
/// the order of a little-endian machine.
pub fn backup_uuid(uuid: Uuid, is_words: bool) -> [u8; 16] {
    let mut bytes = uuid.0;
    if is_words {
        bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    }
    bytes
}

impl ReshapeBackup {
    /// The header in the first 512 bytes.
    ///
    /// # Errors
    /// Names the field.
    pub fn decode(bytes: &[u8]) -> Result<ReshapeBackup, DecodeError> {
        let error = |field: Field, problem: Cow<'static, str>| DecodeError {
            structure: STRUCTURE,
            field: field.name,
            offset: field.offset,
            problem,
        };
        if bytes.len() < BACKUP_HEADER_BYTES {
            return Err(error(MAGIC, format!("only {} bytes to read", bytes.len()).into()));
        }
        let magic: [u8; 16] = MAGIC.array(bytes);
        let has_two = match &magic {
            MAGIC_1 => false,
            MAGIC_2 => true,
            _ => return Err(error(MAGIC, "it is not that of a backup".into())),
        };
        let checked = |field: Field| {
            let (stored, computed) = (field.u32(bytes), checksum(bytes[0], field.offset));
            match stored == computed {
                true => Ok(()),
                false => {
                    Err(error(field, format!("{stored:#010x} instead of {computed:#010x}").into()))
                }
            }
        };
        checked(SB_CSUM)?;
        let base = DEVSTART.u64(bytes);
        let copy = |start: Field, length: Field, at: u64| {
            let first = start.u64(bytes);
            let end = first.checked_add(length.u64(bytes));
            let end = end.ok_or_else(|| error(length, "it goes beyond all arrays".into()))?;
            let sectors = end - first;
            if at.checked_add(sectors).is_none_or(|end| end > u64::MAX >> 9) {
                return Err(error(length, "it goes beyond all devices".into()));
            }
            Ok(BackupCopy { array: first..end, at })
        };
        let mut copies = vec![copy(ARRAYSTART, LENGTH, base)?];
        if has_two {
            checked(SB_CSUM2)?;
            let second = base.checked_add(DEVSTART2.u64(bytes));
            let second =
                second.ok_or_else(|| error(DEVSTART2, "it goes beyond all devices".into()))?;
            copies.push(copy(ARRAYSTART2, LENGTH2, second)?);
        }
        let (set_uuid, written) = (SET_UUID.array(bytes), MTIME.u64(bytes));
        let is_ours = &MARK.array(bytes) == RAIDLAB;
        let events = is_ours.then(|| EVENTS.u64(bytes));
        Ok(ReshapeBackup { set_uuid, written, copies, events })
    }

    /// The bytes of a header.
    ///
    /// # Panics
    /// Without a copy, with more than two, or with a second one that is before the first.
    pub fn encode(&self) -> [u8; BACKUP_HEADER_BYTES] {
        let mut bytes = [0; BACKUP_HEADER_BYTES];
        let first = &self.copies[0];
        assert!(self.copies.len() <= 2, "{} copies", self.copies.len());
        MAGIC.put(&mut bytes, if self.copies.len() == 2 { MAGIC_2 } else { MAGIC_1 });
        SET_UUID.put(&mut bytes, &self.set_uuid);
        let mut put = |field: Field, value: u64| field.put(&mut bytes, &value.to_le_bytes());
        put(MTIME, self.written);
        put(DEVSTART, first.at);
        put(ARRAYSTART, first.array.start);
        put(LENGTH, first.array.end - first.array.start);
        if let Some(second) = self.copies.get(1) {
            put(
                DEVSTART2,
                second.at.checked_sub(first.at).expect("the second is behind the first"),
            );
            put(ARRAYSTART2, second.array.start);
            put(LENGTH2, second.array.end - second.array.start);
        }
        if let Some(events) = self.events {
            MARK.put(&mut bytes, RAIDLAB);
            EVENTS.put(&mut bytes, &events.to_le_bytes());
        }
        let sum = checksum(bytes[0], SB_CSUM.offset);
        SB_CSUM.put(&mut bytes, &sum.to_le_bytes());
        if self.copies.len() == 2 {
            let sum = checksum(bytes[0], SB_CSUM2.offset);
            SB_CSUM2.put(&mut bytes, &sum.to_le_bytes());
        }
        bytes
    }
}

/// mdadm's checksum of the `len` bytes in front: it uses the first byte for each of them.
fn checksum(first: u8, len: usize) -> u32 {
    (0..len).fold(0_u32, |sum, _| (sum << 3).wrapping_add(u32::from(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> ReshapeBackup {
        let copies = vec![
            BackupCopy { array: 3072..6144, at: 8 },
            BackupCopy { array: 6144..9216, at: 8 + 3072 },
        ];
        let set_uuid = *b"0123456789abcdef";
        ReshapeBackup { set_uuid, written: 1_700_000_000, copies, events: None }
    }

    #[test]
    fn a_header_reads_back_with_one_copy_and_with_two() {
        let one = ReshapeBackup { copies: two().copies[..1].to_vec(), ..two() };
        let ours = ReshapeBackup { events: Some(1 << 40), ..one.clone() };
        for backup in [one, two(), ours] {
            assert_eq!(ReshapeBackup::decode(&backup.encode()).unwrap(), backup);
        }
    }

    #[test]
    fn what_is_no_header_names_the_field() {
        let good = two().encode();
        let changed = |at: usize, bytes: &[u8]| {
            let mut header = good;
            header[at..at + bytes.len()].copy_from_slice(bytes);
            ReshapeBackup::decode(&header).unwrap_err().field
        };
        assert_eq!(ReshapeBackup::decode(&good[..511]).unwrap_err().field, "magic");
        assert_eq!(changed(0, b"M"), "magic");
        assert_eq!(changed(15, b"3"), "magic");
        assert_eq!(changed(64, &[1]), "sb_csum");
        assert_eq!(changed(96, &[1]), "sb_csum2");
        assert_eq!(changed(56, &u64::MAX.to_le_bytes()), "length");
        assert_eq!(changed(40, &(1_u64 << 63).to_le_bytes()), "length");
        assert_eq!(changed(72, &u64::MAX.to_le_bytes()), "devstart2");
        assert_eq!(changed(88, &(u64::MAX - 6144).to_le_bytes()), "length2");
    }

    #[test]
    fn words_are_stored_little_endian() {
        let uuid = Uuid(*b"abcdefghijklmnop");
        assert_eq!(&backup_uuid(uuid, false), b"abcdefghijklmnop");
        assert_eq!(&backup_uuid(uuid, true), b"dcbahgfelkjiponm");
    }
}
