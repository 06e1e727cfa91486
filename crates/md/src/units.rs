//! The integers of an array, as types that cannot be swapped.
//!
//! Invariant: a sector is always 512 bytes, also on drives with 4 KiB blocks; md counts everything
//! in it. Used by every crate above this one.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// Bytes in one sector, for md always 512.
pub const SECTOR_BYTES: u64 = 512;

/// A size in the largest fitting unit: `2.06 MiB` of 4224 sectors.
pub fn show_size(sectors: impl Into<u128>) -> String {
    let sectors = sectors.into();
    if sectors < 2 {
        return format!("{}B", sectors * u128::from(SECTOR_BYTES));
    }
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut size, mut unit) = (sectors as f64 / 2.0, 0);
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.2} {}", units[unit])
}

/// A position in 512-byte sectors: in the array, or in a member's data area (relative to its
/// `data_offset`), as the field or function that carries it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sector(pub u64);

impl Sector {
    /// The first sector.
    pub const ZERO: Sector = Sector(0);

    /// The position in bytes. Never overflows below [`crate::geometry::MAX_SECTORS`].
    pub const fn bytes(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

impl Add<u64> for Sector {
    type Output = Sector;
    fn add(self, sectors: u64) -> Sector {
        Sector(self.0 + sectors)
    }
}

impl AddAssign<u64> for Sector {
    fn add_assign(&mut self, sectors: u64) {
        self.0 += sectors;
    }
}

impl Sub<u64> for Sector {
    type Output = Sector;
    fn sub(self, sectors: u64) -> Sector {
        Sector(self.0 - sectors)
    }
}

impl SubAssign<u64> for Sector {
    fn sub_assign(&mut self, sectors: u64) {
        self.0 -= sectors;
    }
}

/// The distance between two positions, in sectors.
impl Sub<Sector> for Sector {
    type Output = u64;
    fn sub(self, earlier: Sector) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A member's place in the array (md: slot, role), `0..members`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIdx(pub u16);

impl MemberIdx {
    /// The slot as an index into per-member tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for MemberIdx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A chunk row of a parity array: the chunks at the same position of all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeNo(pub u64);

impl Add<u64> for StripeNo {
    type Output = StripeNo;
    fn add(self, rows: u64) -> StripeNo {
        StripeNo(self.0 + rows)
    }
}

impl AddAssign<u64> for StripeNo {
    fn add_assign(&mut self, rows: u64) {
        self.0 += rows;
    }
}

/// The distance between two rows.
impl Sub<StripeNo> for StripeNo {
    type Output = u64;
    fn sub(self, earlier: StripeNo) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Display for StripeNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
