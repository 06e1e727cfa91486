//! What bits stand for: which sectors a bitmap covers, which of them a write touches, and which
//! must be made equal again when an array starts.
//!
//! Invariant: whatever two members may differ in after a crash is covered by [`touched_by_write`]
//! of the writes in flight. Formulas: docs/format/bitmap.md, Bits and Rules.

use std::ops::Range;

use super::bits::Bitmap;
use super::header::BitmapKind;
use crate::geometry::{Geometry, Kind};
use crate::level::Level;
use crate::units::{MemberIdx, Sector};

/// Sectors that the bitmap of an array covers: of each member's data area, for RAID 10 of the
/// array. `None`: linear and RAID 0 have no bitmap.
pub fn sync_sectors(geometry: &Geometry) -> Option<u64> {
    match geometry.kind() {
        Kind::Striped(_) => None,
        _ if geometry.level() == Level::Raid10 => Some(geometry.array_sectors()),
        Kind::Mirrored(_) | Kind::Parity(_) => Some(geometry.member_used_sectors(MemberIdx(0))),
    }
}

/// The covered sectors that a write of `sectors` from array sector `at` touches: with parity, the
/// whole rows. Always one range; `None`: no bitmap.
///
/// # Panics
/// If the write is empty or not inside the array.
pub fn touched_by_write(geometry: &Geometry, at: Sector, sectors: u64) -> Option<Range<u64>> {
    let end = at.0.checked_add(sectors).expect("the write ends");
    assert!(sectors > 0 && end <= geometry.array_sectors(), "{sectors} sectors from {at}");
    match geometry.kind() {
        Kind::Striped(_) => None,
        Kind::Mirrored(_) => Some(at.0..end),
        Kind::Parity(parity) => {
            let first = parity.locate(at).stripe;
            let last = parity.locate(Sector(end - 1)).stripe;
            Some(parity.member_sector(first, 0).0..parity.member_sector(last + 1, 0).0)
        }
    }
}

/// State of the superblocks at the start of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartState {
    /// Event count of the superblocks.
    pub events: u64,
    /// Sectors below this are in sync; `None`: all (clean).
    pub resync_offset: Option<u64>,
    /// No member is missing or being rebuilt.
    pub complete: bool,
}

/// Why the bits are ignored and everything is resynced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyEverything {
    /// The array was written to without updating the bitmap.
    Stale,
    /// Version 3: the order of the bits is unknown.
    UnknownBitOrder,
}

/// Ranges to resync; sectors as [`sync_sectors`] counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resync {
    /// All covered sectors.
    Everything(WhyEverything),
    /// These, in order and apart from each other; empty: nothing.
    Ranges(Vec<Range<u64>>),
}

impl Bitmap {
    /// The ranges to resync at the start of an array, by the bits.
    ///
    /// In a clean, complete array nothing, whatever is set: bits are cleared late. In a degraded
    /// one set bits are kept for the member that comes back, so all of them count, unless nothing
    /// happened since bits were last cleared.
    pub fn resync(&self, state: StartState) -> Resync {
        if self.header.is_stale(state.events) {
            return Resync::Everything(WhyEverything::Stale);
        }
        let keep = !state.complete && self.header.events_cleared != state.events;
        let start = match state.resync_offset {
            _ if keep => 0,
            Some(offset) => offset,
            None => return Resync::Ranges(Vec::new()),
        };
        if self.header.kind() == Some(BitmapKind::HostEndian) {
            return Resync::Everything(WhyEverything::UnknownBitOrder);
        }
        // md takes the bit that ends at `start` along.
        let from = start.div_ceil(self.shape().chunk_sectors()).saturating_sub(1);
        let ranges = self.runs().filter(|run| run.end > from);
        let needed = ranges.map(|run| self.shape().sectors_of(run.start.max(from)..run.end));
        Resync::Ranges(needed.collect())
    }
}
