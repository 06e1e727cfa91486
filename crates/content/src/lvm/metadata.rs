//! What a physical volume says of itself: its label, and its metadata areas, each with a header and
//! a ring in which the newest text stands.
//!
//! ```text
//! | header, 512 bytes | ...end of the text |  older texts  | the text begins... |
//! ```
//! Invariant: a text is read only if its place is inside the area, and returned only if its
//! checksum is right.

use thiserror::Error;

use crate::bytes::{Bytes, take};
use crate::crc::lvm as checksum;
use crate::field::{le32, le64};
use crate::tables::lvm;

/// A physical volume by its label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its UUID, as LVM prints it.
    pub uuid: String,
    /// Byte ranges (start, size) that may hold copies of the metadata: as recorded, wherever they
    /// lie.
    pub areas: Vec<(u64, u64)>,
}

/// The label of a physical volume; `None` where there is no valid one.
pub fn label(device: &dyn Bytes) -> Option<Label> {
    let label = lvm::Label::find(device)?;
    Some(Label { uuid: label.uuid(), areas: label.areas })
}

/// Why an area has no usable text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("LVM metadata area at byte {at}: {problem}")]
pub struct MetadataError {
    /// First byte of the area on the physical volume.
    pub at: u64,
    /// What is wrong.
    pub problem: MetadataProblem,
}

/// What is wrong with a metadata area.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MetadataProblem {
    /// It cannot be read, or lies beyond the end.
    #[error("it cannot be read")]
    Unreadable,
    /// The magic, the version or the place of its header is another.
    #[error("header: {0}")]
    Header(&'static str),
    /// A checksum is wrong.
    #[error("{what}: checksum {stored:08x}, computed {computed:08x}")]
    Checksum {
        /// Of what.
        what: &'static str,
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
    /// The text lies outside of the area, or is too long to be one.
    #[error("text: {0}")]
    Place(&'static str),
}

const HEADER: usize = 512;
const MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
/// The longest text that is read. LVM's areas are of 1 MiB by default; 10,000 volumes need 5 MB.
const TEXT_MAX: u64 = 16 << 20;
/// Flag of a text that is not used.
const IGNORED: u32 = 1;

/// The copies of the metadata on a physical volume, and why others are not there. Areas that are
/// empty or marked as not used give nothing. Texts are without the NUL at their end.
pub fn texts(device: &dyn Bytes, label: &Label) -> (Vec<Vec<u8>>, Vec<MetadataError>) {
    let (mut texts, mut errors) = (Vec::new(), Vec::new());
    for &(at, _) in &label.areas {
        match text(device, at) {
            Ok(text) => texts.extend(text),
            Err(problem) => errors.push(MetadataError { at, problem }),
        }
    }
    (texts, errors)
}

fn text(device: &dyn Bytes, at: u64) -> Result<Option<Vec<u8>>, MetadataProblem> {
    let header = take(device, at, HEADER).ok_or(MetadataProblem::Unreadable)?;
    if header[4..20] != *MAGIC {
        return Err(MetadataProblem::Header("not LVM's magic"));
    }
    let (stored, computed) = (le32(&header, 0), checksum(&header[4..]));
    if stored != computed {
        return Err(MetadataProblem::Checksum { what: "header", stored, computed });
    }
    if le32(&header, 20) != 1 {
        return Err(MetadataProblem::Header("an unknown version"));
    }
    if le64(&header, 24) != at {
        return Err(MetadataProblem::Header("it is of another place"));
    }
    let size = le64(&header, 32);
    let (offset, length) = (le64(&header, 40), le64(&header, 48));
    let (stored, flags) = (le32(&header, 56), le32(&header, 60));
    if offset == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    if at.checked_add(size).is_none_or(|end| end > device.size()) {
        return Err(MetadataProblem::Header("the area ends beyond the device"));
    }
    let ring = HEADER as u64..size;
    if !ring.contains(&offset) || length == 0 || length > size - ring.start {
        return Err(MetadataProblem::Place("it lies outside of the area"));
    }
    if length > TEXT_MAX {
        return Err(MetadataProblem::Place("longer than 16 MiB"));
    }
    // Both parts are inside of the device, and together no longer than `TEXT_MAX`.
    let first = length.min(size - offset);
    let unreadable = MetadataProblem::Unreadable;
    let mut bytes = take(device, at + offset, first as usize).ok_or(unreadable.clone())?;
    let rest = (length - first) as usize;
    bytes.extend(take(device, at + ring.start, rest).ok_or(unreadable)?);
    let computed = checksum(&bytes);
    if stored != computed {
        return Err(MetadataProblem::Checksum { what: "text", stored, computed });
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Ok(Some(bytes))
}
