//! The decisions about the bitmap of a read-write start: which one is read, whether it can be used,
//! and whether its bits are valid.
//!
//! Invariant: pure. The caller reads the header, then the bits, from the area that
//! [`StartPlan::bitmap`] names; nothing is written. Called by `admin`, and by simulations of a
//! start.

use std::fmt;

use super::start::StartPlan;
use crate::level::Level;
use crate::ondisk::bitmap::{
    BitmapHeader, BitmapKind, BitmapProblem, BitmapShape, HEADER_BYTES, sync_sectors, uuid_on_disk,
};
use crate::ondisk::{Area, DecodeError};
use crate::units::SECTOR_BYTES;

/// Why a bitmap cannot be used: a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitmapRefusal {
    /// Its header has a wrong format.
    Format(DecodeError),
    /// Its header does not fit the array.
    Header(BitmapProblem),
    /// It is of a type that is only read.
    Kind,
    /// It does not fit its area.
    Area,
}

impl fmt::Display for BitmapRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BitmapRefusal::Format(error) => error.fmt(f),
            BitmapRefusal::Header(problem) => problem.fmt(f),
            BitmapRefusal::Kind => {
                f.write_str("bitmaps of this type are supported for reading only")
            }
            BitmapRefusal::Area => f.write_str("it is longer than the area reserved for it"),
        }
    }
}

impl std::error::Error for BitmapRefusal {}

/// A bitmap that a start uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartBitmap {
    /// Header of the bitmap.
    pub header: BitmapHeader,
    /// Sectors of header and bits, from the start of its area.
    pub sectors: u64,
    /// Its bits are not valid: all count as set.
    pub stale: bool,
    bytes: usize,
}

impl StartBitmap {
    /// The bits in `file`: header and bits, [`StartBitmap::sectors`] long.
    ///
    /// # Panics
    /// If it is shorter.
    pub fn bits<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        &file[HEADER_BYTES..self.bytes]
    }
}

impl StartPlan<'_> {
    /// The bitmap of the member that defines the array: its candidate, and where it is. `None`:
    /// there is none, or the level has no redundancy to keep in sync.
    pub fn bitmap(&self) -> Option<(usize, Area)> {
        let area = self.defining().bitmap?;
        (self.geometry().level() > Level::Raid0).then_some((self.defining_candidate(), area))
    }

    /// Decides about the bitmap in `area` whose file begins with `head`: at least the header.
    ///
    /// # Errors
    /// It cannot be used; the array is then not started.
    pub fn check_bitmap(&self, area: Area, head: &[u8]) -> Result<StartBitmap, BitmapRefusal> {
        let defining = self.defining();
        let header = BitmapHeader::decode(head).map_err(BitmapRefusal::Format)?;
        let checked = header.check(uuid_on_disk(defining.set_uuid, defining.version));
        checked.map_err(BitmapRefusal::Header)?;
        if header.kind() != Some(BitmapKind::Plain) {
            return Err(BitmapRefusal::Kind);
        }
        let covered = sync_sectors(self.geometry()).unwrap_or(0);
        let shape = BitmapShape::new(covered, header.chunk_bytes).map_err(BitmapRefusal::Header)?;
        let sectors = shape.file_bytes().div_ceil(SECTOR_BYTES);
        if sectors > area.sectors {
            return Err(BitmapRefusal::Area);
        }
        let stale = header.is_stale(defining.events) || !self.by_bitmap();
        Ok(StartBitmap { header, sectors, stale, bytes: shape.file_bytes() as usize })
    }
}
