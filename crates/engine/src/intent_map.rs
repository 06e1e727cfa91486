//! Maps a range of the array to the write-intent bits that a write needs.
//!
//! ```text
//! with a bitmap     one bit per bitmap chunk of *positions*
//! without           bit 0 is the whole array; on disk it is the superblock's resync_offset
//! ```
//! A *position* is md's unit of resyncs and bitmaps: a member sector on RAID 1, 4, 5 and 6, an
//! array sector on RAID 10. A write to RAID 4, 5 or 6 takes the bits of the whole chunk rows that
//! it touches, as in md.
//!
//! Invariant: two writes that can leave the same copies or the same parity inconsistent share a
//! bit. Used by `intent` (per shard) and by the `metadata` manager, which must agree.

use std::ops::Range;

use md::{Geometry, Kind, MemberIdx, Sector};

/// Maximum number of bits of a bitmap; md's own limit is far below.
pub const MAX_INTENT_BITS: u32 = 1 << 24;

/// Maps array sectors to intent bits. A plain value, cheap to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentMap {
    bits: u32,
    /// Positions per bit are 2 to this power; 63 if one bit covers the whole array.
    shift: u32,
    /// Number of positions.
    span: u64,
    /// Levels with parity: array sectors and positions of a chunk row.
    row: Option<(u64, u64)>,
}

/// Shift for a single bit.
const WHOLE: u32 = 63;

impl IntentMap {
    /// One bit for the whole array: arrays without a bitmap.
    pub fn whole_array(geometry: &Geometry) -> IntentMap {
        IntentMap { bits: 1, shift: WHOLE, span: span(geometry), row: row(geometry) }
    }

    /// One bit per `chunk_sectors` positions, a power of two: arrays with a bitmap. `None` if md
    /// supports no bitmap (linear, RAID 0), the chunk is not a power of two, or there would be more
    /// than [`MAX_INTENT_BITS`].
    pub fn bitmap(geometry: &Geometry, chunk_sectors: u64) -> Option<IntentMap> {
        if !chunk_sectors.is_power_of_two() || matches!(geometry.kind(), Kind::Striped(_)) {
            return None;
        }
        let span = span(geometry);
        let bits = u32::try_from(span.div_ceil(chunk_sectors)).ok()?;
        let shift = chunk_sectors.trailing_zeros();
        (bits <= MAX_INTENT_BITS).then(|| IntentMap { bits, shift, span, row: row(geometry) })
    }

    /// Number of bits.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Number of positions: the end of a resync.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// The bits that a write of `sectors` (at least one) array sectors from `at` needs.
    #[inline]
    pub fn of_write(&self, at: Sector, sectors: u64) -> Range<u32> {
        debug_assert!(sectors > 0);
        if self.shift == WHOLE {
            return 0..1;
        }
        let (first, end) = self.positions_of(at, sectors);
        (first >> self.shift) as u32..((end - 1) >> self.shift) as u32 + 1
    }

    /// The first position of a write and the one behind its last.
    fn positions_of(&self, at: Sector, sectors: u64) -> (u64, u64) {
        let end = at.0 + sectors;
        match self.row {
            Some((array, positions)) => {
                (at.0 / array * positions, (end - 1) / array * positions + positions)
            }
            None => (at.0, end),
        }
    }

    /// The first position that a write at `at` may leave inconsistent.
    pub(crate) fn position_of(&self, at: Sector) -> u64 {
        self.positions_of(at, 1).0
    }

    /// The first array sector of a position: its owner owns the position.
    pub fn array_sector(&self, position: u64) -> Sector {
        Sector(self.row.map_or(position, |(array, positions)| position / positions * array))
    }

    /// Number of positions of a run of array sectors, in whole rows if the level has any:
    /// [`crate::Sharding::unit_sectors`] in positions.
    pub fn unit_positions(&self, array_sectors: u64) -> u64 {
        self.row.map_or(array_sectors, |(array, positions)| array_sectors / array * positions)
    }

    /// The positions that a bit covers.
    pub fn positions(&self, bit: u32) -> Range<u64> {
        if self.shift == WHOLE {
            return 0..self.span;
        }
        let start = u64::from(bit) << self.shift;
        start..(start + (1 << self.shift)).min(self.span)
    }

    /// The bit that covers a position.
    pub fn bit_at(&self, position: u64) -> u32 {
        if self.shift == WHOLE { 0 } else { (position >> self.shift) as u32 }
    }
}

/// Number of positions of an array.
pub(crate) fn span(geometry: &Geometry) -> u64 {
    match geometry.kind() {
        Kind::Parity(_) => geometry.member_used_sectors(MemberIdx(0)),
        _ => geometry.array_sectors(),
    }
}

fn row(geometry: &Geometry) -> Option<(u64, u64)> {
    match geometry.kind() {
        Kind::Parity(parity) => {
            let chunk = parity.chunk_sectors();
            Some((chunk * parity.data_disks() as u64, chunk))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use md::{GeometrySpec, Layout, Level, Raid5Layout, Raid10Layout};

    use super::*;

    fn geometry(level: Level, layout: Layout, chunk: u64, members: usize) -> Geometry {
        let member_sectors = vec![65_536; members];
        Geometry::new(&GeometrySpec { level, layout, chunk_sectors: chunk, member_sectors })
            .expect("sound")
    }

    /// The bits that the kernel set for the same writes (docs/format/bitmap.md, Bits):
    /// array blocks of 4 KiB 67, 1207 and 2827, chunks and bits of 64 KiB.
    #[test]
    fn takes_the_bits_that_the_kernel_took() {
        let blocks = [67u64, 1207, 2827];
        let bits = |map: &IntentMap| blocks.map(|block| map.of_write(Sector(block * 8), 8));
        let raid5 = geometry(Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 128, 3);
        let map = IntentMap::bitmap(&raid5, 128).expect("a bitmap");
        assert_eq!(bits(&map), [2..3, 37..38, 88..89]);
        let raid10 = geometry(Level::Raid10, Layout::Raid10(Raid10Layout::near(2)), 128, 4);
        let map = IntentMap::bitmap(&raid10, 128).expect("a bitmap");
        assert_eq!(bits(&map), [4..5, 75..76, 176..177]);
    }

    #[test]
    fn one_bit_or_bits_of_whole_rows() {
        let raid5 = geometry(Level::Raid5, Layout::Raid5(Raid5Layout::LeftSymmetric), 128, 3);
        let whole = IntentMap::whole_array(&raid5);
        assert_eq!((whole.bits(), whole.of_write(Sector(9999), 777)), (1, 0..1));
        assert_eq!(whole.positions(0), 0..65_536);
        // Bits smaller than the chunk: a sector takes all bits of its row, two rows take both.
        let map = IntentMap::bitmap(&raid5, 32).expect("a bitmap");
        assert_eq!(map.of_write(Sector(0), 1), 0..4);
        assert_eq!(map.of_write(Sector(255), 2), 0..8);
        assert_eq!((map.positions(5), map.bit_at(191)), (160..192, 5));
        assert_eq!((map.array_sector(130), map.unit_positions(512)), (Sector(256), 256));
        let raid0 = geometry(Level::Raid0, Layout::Raid0(md::Raid0Layout::Original), 128, 2);
        assert_eq!(IntentMap::bitmap(&raid0, 128), None);
        assert_eq!(IntentMap::bitmap(&raid5, 96), None);
    }
}
