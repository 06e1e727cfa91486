//! The write-intent bitmap: which parts of an array may have members that differ.
//!
//! `docs/format/bitmap.md` is normative. [`BitmapHeader`] is the 256 bytes at its start,
//! [`BitmapShape`] the arithmetic of bits and pages, [`Bitmap`] the bits, [`sync_sectors`] and
//! [`touched_by_write`] what they stand for in each level, [`BitmapPlacement`] where a new one is.

mod bits;
mod coverage;
mod header;
mod lockless;
mod placement;

pub use bits::{Bitmap, BitmapShape, PAGE_BYTES};
pub use coverage::{Resync, StartState, WhyEverything, sync_sectors, touched_by_write};
pub use header::{
    BITMAP_FIELDS, BITMAP_STATES, BITMAP_VERSIONS, BitmapHeader, BitmapKind, BitmapProblem,
    HEADER_BYTES, MAGIC_NUMBER, STATE_HOST_ENDIAN, STATE_STALE, STATE_WRITE_ERROR, uuid_on_disk,
};
pub use lockless::{LOCKLESS_STATES_AT, LocklessStates};
pub use placement::{BitmapPlacement, PlacementError, room_sectors};
