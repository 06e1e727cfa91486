//! Where a geometry has the sectors of an array on its members: bounds of the places.
//!
//! Invariant: `first` and `end` bound all places, parity and copies included, of the sectors from
//! `at` on and below `at`; whole rows count. Formulas: docs/format/geometry.md. Called by `plan`.

use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::units::MemberIdx;

/// The rows of a geometry: chunk `k` of the array begins in row `k * copies / width` of the
/// members, each `depth` sectors long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    /// Sectors of a chunk.
    pub(super) chunk: u64,
    /// Near copies of a chunk; 1 with parity.
    copies: u64,
    /// Chunks of a row: data members; RAID 10: members.
    pub(super) width: u64,
    /// Sectors of a row on a member.
    depth: u64,
    /// Rows of the whole geometry end here.
    used: u64,
}

impl Rows {
    /// The rows of RAID 4, 5, 6, and of RAID 10 without far copies; `None` for others.
    pub(super) fn of(geometry: &Geometry) -> Option<Rows> {
        let chunk = geometry.chunk_sectors();
        let used = geometry.member_used_sectors(MemberIdx(0));
        let (copies, width, depth) = match geometry.layout() {
            Layout::Raid10(layout) if layout.far > 1 && !layout.offset => return None,
            Layout::Raid10(layout) => {
                let depth = chunk.checked_mul(u64::from(layout.far))?;
                (u64::from(layout.near), geometry.members() as u64, depth)
            }
            _ if geometry.level().has_parity() => (1, geometry.data_members() as u64, chunk),
            _ => return None,
        };
        Some(Rows { chunk, copies, width, depth, used })
    }

    /// The first member sector that array sectors from `at` on use.
    pub(super) fn first(&self, at: u64) -> u64 {
        let row = u128::from(at / self.chunk) * u128::from(self.copies) / u128::from(self.width);
        (row as u64).saturating_mul(self.depth)
    }

    /// The member sector behind all that array sectors below `at` use.
    pub(super) fn end(&self, at: u64) -> u64 {
        let chunks = u128::from(at.div_ceil(self.chunk)) * u128::from(self.copies);
        let row = chunks.div_ceil(u128::from(self.width));
        (row as u64).saturating_mul(self.depth).min(self.used)
    }

    /// The last array sector below which all use only the first `sectors` of a member: the inverse
    /// of [`Rows::end`].
    pub(super) fn within(&self, sectors: u64) -> u64 {
        if sectors >= self.used {
            return u64::MAX;
        }
        let rows = u128::from(sectors / self.depth);
        let chunks = rows * u128::from(self.width) / u128::from(self.copies);
        (chunks as u64).saturating_mul(self.chunk)
    }

    /// The first array sector from which on nothing uses the first `sectors` of a member: the
    /// inverse of [`Rows::first`].
    pub(super) fn behind(&self, sectors: u64) -> u64 {
        let rows = u128::from(sectors.div_ceil(self.depth));
        let chunks = (rows * u128::from(self.width)).div_ceil(u128::from(self.copies));
        (chunks as u64).saturating_mul(self.chunk)
    }
}
