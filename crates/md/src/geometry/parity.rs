//! Placement with parity: RAID 4, 5 and 6, all of md's layouts.
//!
//! Invariant: every row has one P, on RAID 6 one Q, and each data index once; exponents of a row
//! differ. The rows repeat with a short period, so they are laid out once, when the geometry is
//! made, and a request costs a shift, a division and an index.
//!
//! RAID 5 left-symmetric on four members; a row is one chunk of every member:
//!
//! ```text
//!   stripe 0   D0 D1 D2 P        array chunk = stripe x data disks + data index
//!   stripe 1   D1 D2 P  D0       member sector = stripe x chunk + offset, for data, P and Q
//!   stripe 2   D2 P  D0 D1
//!   stripe 3   P  D0 D1 D2
//! ```
//!
//! Formulas: docs/format/geometry.md, RAID 4 and 5, RAID 6, P and Q. Called by the engine for each
//! request and each row.

use super::chunk::{Chunk, Divisor};
use super::spec::{GeometryError, GeometrySpec, checked_array_sectors};
use crate::layout::{Layout, Raid5Layout, Raid6Layout};
use crate::units::{MemberIdx, Sector, StripeNo};

/// Where an array sector lies among the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPos {
    /// The row.
    pub stripe: StripeNo,
    /// Which data chunk of the row, `0..data_disks()`; [`Row::data`] says on which member.
    pub index: u16,
    /// Sectors into the chunk.
    pub offset: u64,
}

/// The contents of a member's chunk in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RowRole {
    /// The data chunk of this index.
    Data(u16),
    /// XOR of the data chunks.
    P,
    /// Sum over the data chunks of 2^exponent x chunk, in GF(2^8) with 0x11d.
    Q,
}

/// One row: which member holds what. Read-only to callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The member with P.
    pub p: MemberIdx,
    /// The member with Q (RAID 6).
    pub q: Option<MemberIdx>,
    /// The member of each data index.
    pub data: Vec<MemberIdx>,
    /// The exponent of each data index in Q. Not always the data index: in asymmetric layouts md
    /// counts slots behind Q, and DDF layouts use the slot number, with holes where P and Q are.
    /// RAID 4 and 5: the data index, unused.
    pub exponent: Vec<u8>,
    /// The role of each member.
    pub role: Vec<RowRole>,
    /// The data indices in ascending order of exponent.
    pub by_exponent: Vec<u16>,
}

/// RAID 4, 5 or 6.
#[derive(Clone, Debug)]
pub struct Parity {
    chunk: Chunk,
    data_disks: u64,
    stripes: u64,
    /// One period of rows.
    rows: Vec<Row>,
    by_data_disks: Divisor,
    by_rows: Divisor,
}

impl Parity {
    pub(super) fn new(spec: &GeometrySpec) -> Result<Parity, GeometryError> {
        let members = spec.member_sectors.len() as u64;
        let parities = if matches!(spec.layout, Layout::Raid6(_)) { 2 } else { 1 };
        let data_disks = members - parities;
        let chunk = Chunk::new(spec.chunk_sectors);
        let (member, sectors) = spec.smallest_member();
        let stripes = sectors / chunk.sectors;
        if stripes == 0 {
            return Err(GeometryError::MemberTooSmall { member, sectors, least: chunk.sectors });
        }
        checked_array_sectors(
            u128::from(stripes) * u128::from(chunk.sectors) * u128::from(data_disks),
        )?;
        let rows: Vec<Row> = (0..period(spec.layout, members))
            .map(|stripe| {
                let members = members as usize;
                match spec.layout {
                    Layout::Raid6(layout) => row_with_q(layout, members, stripe as usize),
                    Layout::Raid5(layout) => row_with_p(layout, members, stripe as usize),
                    _ => row_with_p(Raid5Layout::ParityLast, members, stripe as usize),
                }
            })
            .collect();
        let (by_data_disks, by_rows) = (Divisor::new(data_disks), Divisor::new(rows.len() as u64));
        Ok(Parity { chunk, data_disks, stripes, rows, by_data_disks, by_rows })
    }

    /// Sectors per chunk, a power of two.
    pub fn chunk_sectors(&self) -> u64 {
        self.chunk.sectors
    }

    /// Data chunks per row.
    pub fn data_disks(&self) -> usize {
        self.data_disks as usize
    }

    /// Whether rows have a Q (RAID 6).
    pub fn has_q(&self) -> bool {
        self.rows[0].q.is_some()
    }

    /// Rows in the array.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// How many rows there are until placement repeats; [`Parity::row`] depends on the row number
    /// modulo this.
    pub fn rotation(&self) -> usize {
        self.rows.len()
    }

    /// The row, data index and offset of array sector `at`. The chunk ends
    /// `chunk_sectors() - offset` sectors further on.
    ///
    /// # Panics
    /// If `at` is not below the array's size.
    #[inline]
    pub fn locate(&self, at: Sector) -> DataPos {
        let (number, offset) = self.chunk.split(at.0);
        let (stripe, index) = self.by_data_disks.split(number);
        assert!(stripe < self.stripes, "sector {at} is outside of the array");
        DataPos { stripe: StripeNo(stripe), index: index as u16, offset }
    }

    /// The role of each member in a row.
    #[inline]
    pub fn row(&self, stripe: StripeNo) -> &Row {
        &self.rows[self.by_rows.split(stripe.0).1 as usize]
    }

    /// The array sector of `offset` sectors into data chunk `index` of a row: the inverse of
    /// [`Parity::locate`].
    #[inline]
    pub fn array_sector(&self, stripe: StripeNo, index: u16, offset: u64) -> Sector {
        debug_assert!(u64::from(index) < self.data_disks && offset < self.chunk.sectors);
        Sector((stripe.0 * self.data_disks + u64::from(index)) * self.chunk.sectors + offset)
    }

    /// The member sector of `offset` sectors into a row, the same on all members.
    #[inline]
    pub fn member_sector(&self, stripe: StripeNo, offset: u64) -> Sector {
        Sector(stripe.0 * self.chunk.sectors + offset)
    }

    /// The row and offset of a member's sector, the inverse of [`Parity::member_sector`].
    #[inline]
    pub fn row_of(&self, member_sector: Sector) -> (StripeNo, u64) {
        let (stripe, offset) = self.chunk.split(member_sector.0);
        (StripeNo(stripe), offset)
    }

    pub(super) fn array_sectors(&self) -> u64 {
        self.stripes * self.data_disks * self.chunk.sectors
    }

    pub(super) fn used(&self) -> u64 {
        self.stripes * self.chunk.sectors
    }
}

/// Rows until placement repeats.
fn period(layout: Layout, members: u64) -> u64 {
    match layout {
        Layout::Raid5(Raid5Layout::ParityFirst | Raid5Layout::ParityLast) => 1,
        Layout::Raid5(_) => members,
        Layout::Raid6(layout) => match layout {
            Raid6Layout::ParityFirst | Raid6Layout::ParityLast | Raid6Layout::ParityFirst6 => 1,
            Raid6Layout::LeftAsymmetric6
            | Raid6Layout::RightAsymmetric6
            | Raid6Layout::LeftSymmetric6
            | Raid6Layout::RightSymmetric6 => members - 1,
            _ => members,
        },
        _ => 1,
    }
}

/// P's slot and the data slots of RAID 5 over `n` members.
fn place_with_p(layout: Raid5Layout, n: usize, stripe: usize) -> (usize, Vec<usize>) {
    let turn = stripe % n;
    let p = match layout {
        Raid5Layout::LeftAsymmetric | Raid5Layout::LeftSymmetric => n - 1 - turn,
        Raid5Layout::RightAsymmetric | Raid5Layout::RightSymmetric => turn,
        Raid5Layout::ParityFirst => 0,
        Raid5Layout::ParityLast => n - 1,
    };
    let data = |i: usize| match layout {
        Raid5Layout::LeftSymmetric | Raid5Layout::RightSymmetric => (p + 1 + i) % n,
        _ if i >= p => i + 1,
        _ => i,
    };
    (p, (0..n - 1).map(data).collect())
}

fn row_with_p(layout: Raid5Layout, n: usize, stripe: usize) -> Row {
    let (p, data) = place_with_p(layout, n, stripe);
    let exponent = (0..n - 1).collect();
    row(n, p, None, data, exponent)
}

/// P's slot, Q's slot and the data slots of RAID 6 over `n` members.
fn place_with_q(layout: Raid6Layout, n: usize, stripe: usize) -> (usize, usize, Vec<usize>) {
    use Raid6Layout as L;
    let turn = stripe % n;
    let down = n - 1 - turn;
    // Data in slot order around a P and Q that are neighbours, Q perhaps wrapped to slot 0.
    let around = |p: usize| {
        let slot = move |i: usize| match i {
            _ if p == n - 1 => i + 1,
            _ if i < p => i,
            _ => i + 2,
        };
        (p, (p + 1) % n, (0..n - 2).map(slot).collect())
    };
    // Data behind the parities, wrapping.
    let behind =
        |p: usize, q: usize, first: usize| (p, q, (0..n - 2).map(|i| (first + i) % n).collect());
    let raid5_and_q = |layout: Raid5Layout| {
        let (p, data) = place_with_p(layout, n - 1, stripe);
        (p, n - 1, data)
    };
    match layout {
        L::LeftAsymmetric => around(down),
        L::RightAsymmetric | L::DdfZeroRestart => around(turn),
        L::DdfNRestart => around(n - 1 - (stripe + 1) % n),
        L::LeftSymmetric => behind(down, (down + 1) % n, down + 2),
        L::RightSymmetric => behind(turn, (turn + 1) % n, turn + 2),
        L::DdfNContinue => behind(down, (down + n - 1) % n, down + 1),
        L::ParityFirst => behind(0, 1, 2),
        L::ParityLast => behind(n - 2, n - 1, 0),
        L::LeftAsymmetric6 => raid5_and_q(Raid5Layout::LeftAsymmetric),
        L::RightAsymmetric6 => raid5_and_q(Raid5Layout::RightAsymmetric),
        L::LeftSymmetric6 => raid5_and_q(Raid5Layout::LeftSymmetric),
        L::RightSymmetric6 => raid5_and_q(Raid5Layout::RightSymmetric),
        L::ParityFirst6 => raid5_and_q(Raid5Layout::ParityFirst),
    }
}

fn row_with_q(layout: Raid6Layout, n: usize, stripe: usize) -> Row {
    let (p, q, data) = place_with_q(layout, n, stripe);
    // md counts the data slots from the one behind Q; DDF takes the slot number.
    let mut exponent_of_slot: Vec<usize> = (0..n).collect();
    if !layout.is_ddf() {
        let walk = (1..n).map(|step| (q + step) % n).filter(|&slot| slot != p);
        for (exponent, slot) in walk.enumerate() {
            exponent_of_slot[slot] = exponent;
        }
    }
    let exponent = data.iter().map(|&slot| exponent_of_slot[slot]).collect();
    row(n, p, Some(q), data, exponent)
}

/// Packs a row. Slots and exponents fit: a parity array has at most 255 members.
fn row(n: usize, p: usize, q: Option<usize>, data: Vec<usize>, exponent: Vec<usize>) -> Row {
    let member = |slot: usize| MemberIdx(slot as u16);
    let mut role = vec![RowRole::P; n];
    if let Some(q) = q {
        role[q] = RowRole::Q;
    }
    for (index, &slot) in data.iter().enumerate() {
        role[slot] = RowRole::Data(index as u16);
    }
    let mut by_exponent: Vec<u16> = (0..data.len() as u16).collect();
    by_exponent.sort_by_key(|&index| exponent[usize::from(index)]);
    Row {
        p: member(p),
        q: q.map(member),
        data: data.into_iter().map(member).collect(),
        exponent: exponent.into_iter().map(|e| e as u8).collect(),
        role,
        by_exponent,
    }
}
