//! The label of an LVM2 physical volume: one of its first four sectors, most often the second.
//!
//! Format: LVM2's `lib/format_text/layout.h` describes it; in own words in the comments below.

use crate::bytes::{Bytes, take};
use crate::crc;
use crate::field::{le32, le64};

/// Bytes of a label.
pub const BYTES: usize = 512;

/// A label whose checksum holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The sector of the volume that holds it.
    pub sector: u64,
    /// 32 characters that name the physical volume.
    pub id: [u8; 32],
    /// Bytes of the device that it is on.
    pub bytes: u64,
    /// Byte ranges (start, size) of metadata areas.
    pub areas: Vec<(u64, u64)>,
}

impl Label {
    /// The label of a volume.
    pub fn find(from: &dyn Bytes) -> Option<Label> {
        (0..4).find_map(|sector| {
            let label = Label::decode(&take(from, sector * BYTES as u64, BYTES)?)?;
            (label.sector == sector).then_some(label)
        })
    }

    /// Decodes a sector; one whose checksum does not hold is none.
    pub fn decode(bytes: &[u8]) -> Option<Label> {
        let bytes = bytes.get(..BYTES)?;
        if !bytes.starts_with(b"LABELONE") || &bytes[24..32] != b"LVM2 001" {
            return None;
        }
        // Of everything behind the checksum.
        if crc::lvm(&bytes[20..]) != le32(bytes, 16) {
            return None;
        }
        let header = bytes.get(le32(bytes, 20) as usize..).filter(|rest| rest.len() >= 40)?;
        let id = *header.first_chunk::<32>()?;
        if !id.iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        // Two lists of ranges, each ended by an empty one: of data, then of metadata.
        let mut ranges = header[40..].chunks_exact(16).map(|pair| (le64(pair, 0), le64(pair, 8)));
        let data = ranges.by_ref().take_while(|range| range.0 != 0).count();
        let areas = ranges.take_while(|range| range.0 != 0).collect();
        let _ = data;
        Some(Label { sector: le64(bytes, 8), id, bytes: le64(header, 32), areas })
    }

    /// The volume's name with LVM's dashes.
    pub fn uuid(&self) -> String {
        let id = String::from_utf8_lossy(&self.id);
        let cuts = [0, 6, 10, 14, 18, 22, 26, 32];
        let parts: Vec<&str> = cuts.windows(2).map(|cut| &id[cut[0]..cut[1]]).collect();
        parts.join("-")
    }
}
