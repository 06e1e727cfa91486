//! Placement of copies: RAID 1 and RAID 10.
//!
//! Invariant: the copies of a sector are on different members, and a place holds one sector only.
//! Layouts that would break it are refused when the geometry is made.
//!
//! RAID 10 on three members, chunks A B C ...:
//!
//! ```text
//!   near 2 (n2)      far 2 (f2)        offset 2 (o2)
//!   A  A  B          A  B  C           A  B  C
//!   B  C  C          D  E  F           C  A  B
//!   D  D  E          ..half way..      D  E  F
//!   E  F  F          C  A  B           F  D  E
//!                    F  D  E
//! ```
//!
//! Formulas: docs/format/geometry.md, RAID 1 and RAID 10. Called by the engine for each request
//! and, backwards, by rebuild.

use std::ops::Range;

use super::chunk::{Chunk, whole_units};
use super::spec::{GeometryError, GeometrySpec, checked_array_sectors};
use crate::layout::{FarSets, Layout, Raid10Layout};
use crate::level::Level;
use crate::units::{MemberIdx, Sector};

/// The place of one copy of an array sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// The member.
    pub member: MemberIdx,
    /// The sector in the member's data area.
    pub sector: Sector,
}

/// RAID 1 or RAID 10.
#[derive(Clone, Debug)]
pub struct Mirrored {
    members: usize,
    copies: usize,
    array_sectors: u64,
    used: u64,
    /// `None`: RAID 1, the identity on all members.
    striping: Option<Striping>,
}

/// How RAID 10 spreads chunks.
#[derive(Clone, Debug)]
struct Striping {
    chunk: Chunk,
    near: u64,
    far: u64,
    /// Far copies in the next rows, not in sections of the member.
    offset: bool,
    /// Member rows from one array row to the next: `far` with offset copies, else 1.
    row_step: u64,
    /// Member sectors from one far copy to the next.
    stride: u64,
    /// `[far copy][slot of the near copy] -> slot of the far copy`, flattened.
    far_slot: Vec<u16>,
    /// The inverse: `[far copy][slot] -> slot of the near copy`.
    near_slot: Vec<u16>,
}

impl Mirrored {
    pub(super) fn new(spec: &GeometrySpec) -> Result<Mirrored, GeometryError> {
        match (spec.level, spec.layout) {
            (Level::Raid1, _) => Mirrored::raid1(spec),
            (Level::Raid10, Layout::Raid10(layout)) => Mirrored::raid10(spec, layout),
            (level, layout) => unreachable!("{level} {layout} is not mirrored"),
        }
    }

    fn raid1(spec: &GeometrySpec) -> Result<Mirrored, GeometryError> {
        let members = spec.member_sectors.len();
        let (member, sectors) = spec.smallest_member();
        if sectors == 0 {
            return Err(GeometryError::MemberTooSmall { member, sectors, least: 1 });
        }
        Ok(Mirrored {
            members,
            copies: members,
            array_sectors: sectors,
            used: sectors,
            striping: None,
        })
    }

    fn raid10(spec: &GeometrySpec, layout: Raid10Layout) -> Result<Mirrored, GeometryError> {
        let members = spec.member_sectors.len();
        let copies = layout.copies();
        if copies < 2 || copies > members {
            let layout = Layout::Raid10(layout);
            return Err(GeometryError::Copies { layout, copies, members });
        }
        check_raid10_safe(layout, members)?;

        let chunk = Chunk::new(spec.chunk_sectors);
        let (near, far) = (u64::from(layout.near), u64::from(layout.far));
        let (member, sectors) = spec.smallest_member();
        let slots = members as u128;
        // Array chunks, then the rows that hold all their copies, as md rounds them.
        let chunks = u128::from(sectors / chunk.sectors / far) * slots / u128::from(near);
        let rows = (chunks * copies as u128).div_ceil(slots) as u64;
        assert!(rows.is_multiple_of(far), "rounding loses less than one row of each far copy");
        let array_chunks = u128::from(rows / far) * slots / u128::from(near);
        if array_chunks == 0 {
            let least = chunk.sectors * far;
            return Err(GeometryError::MemberTooSmall { member, sectors, least });
        }
        let array_sectors = checked_array_sectors(array_chunks * u128::from(chunk.sectors))?;
        let far_slot = far_slots(layout, members);
        let near_slot = inverse(&far_slot, members);
        let striping = Striping {
            chunk,
            near,
            far,
            offset: layout.offset,
            row_step: if layout.offset { far } else { 1 },
            stride: if layout.offset { chunk.sectors } else { rows / far * chunk.sectors },
            far_slot,
            near_slot,
        };
        let used = rows * chunk.sectors;
        Ok(Mirrored { members, copies, array_sectors, used, striping: Some(striping) })
    }

    /// How many copies of every sector there are: RAID 1 the members, RAID 10 near x far.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Fills `out[..copies()]` with the places of array sector `at`; the first is the one that md
    /// would read from when nothing else decides. Returns how many sectors, from this one on,
    /// follow each other in all copies: to the end of the chunk (RAID 10) or of the array (RAID 1).
    ///
    /// Order in RAID 10: for each near copy, its far copies by distance.
    ///
    /// # Panics
    /// If `at` is not below the array's size, or `out` is too short.
    #[inline]
    pub fn locate(&self, at: Sector, out: &mut [Copy]) -> u64 {
        assert!(at.0 < self.array_sectors, "sector {at} is outside of the array");
        let out = &mut out[..self.copies];
        let Some(striping) = &self.striping else {
            for (slot, copy) in out.iter_mut().enumerate() {
                *copy = Copy { member: MemberIdx(slot as u16), sector: at };
            }
            return self.array_sectors - at.0;
        };
        striping.locate(at, self.members as u64, out)
    }

    /// Passes the places of all copies of an array range to `emit`, as member ranges: whole rounds
    /// of the placement at once, so that there are few however long the range is. In no order;
    /// neighbours may follow each other.
    ///
    /// # Panics
    /// If the range is not inside the array.
    pub fn member_ranges(&self, range: Range<u64>, mut emit: impl FnMut(MemberIdx, Sector, u64)) {
        assert!(range.end <= self.array_sectors, "{range:?} is outside of the array");
        if range.is_empty() {
            return;
        }
        let all = (0..self.members as u16).map(MemberIdx);
        let Some(striping) = &self.striping else {
            return all
                .for_each(|member| emit(member, Sector(range.start), range.end - range.start));
        };
        let (round, rows) = striping.round(self.members as u64);
        let whole = whole_units(range.clone(), round * striping.chunk.sectors);
        let mut copies = vec![Copy::default(); self.copies];
        for edge in [range.start..whole.start, whole.end..range.end] {
            let mut at = edge.start;
            while at < edge.end {
                let sectors = self.locate(Sector(at), &mut copies).min(edge.end - at);
                copies.iter().for_each(|copy| emit(copy.member, copy.sector, sectors));
                at += sectors;
            }
        }
        if whole.is_empty() {
            return;
        }
        // Whole rounds fill whole rows of the members, in each section of far copies.
        let to_member = |at: u64| at / round * rows * striping.row_step;
        let (start, end) = (to_member(whole.start), to_member(whole.end));
        let sections = if striping.offset { 1 } else { striping.far };
        for (member, section) in all.flat_map(|member| (0..sections).map(move |at| (member, at))) {
            emit(member, Sector(start + section * striping.stride), end - start);
        }
    }

    /// The array sector that a member's sector holds a copy of; `None` for slack that the array
    /// does not use (the last row, when members or copies do not divide).
    pub fn array_sector_of(&self, member: MemberIdx, sector: Sector) -> Option<Sector> {
        assert!(member.index() < self.members, "member {member} is outside of the array");
        if sector.0 >= self.used {
            return None;
        }
        let at = match &self.striping {
            None => sector,
            Some(striping) => striping.array_sector_of(member, sector, self.members as u64),
        };
        (at.0 < self.array_sectors).then_some(at)
    }

    /// Sectors from a member's `sector` on that stay in one chunk of it (or in the array), for
    /// walking a member with [`Mirrored::array_sector_of`].
    pub fn member_run(&self, sector: Sector) -> u64 {
        let left = self.used.saturating_sub(sector.0);
        match &self.striping {
            None => left,
            Some(striping) => {
                let (_, offset) = striping.chunk.split(sector.0);
                left.min(striping.chunk.sectors - offset)
            }
        }
    }

    pub(super) fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether every sector has a copy on a present member.
    ///
    /// RAID 10: exact, by placement. The kernel's own test ignores far sets and can be too lenient
    /// or too strict with them; for all other layouts the two agree.
    pub(super) fn enough(&self, present: &dyn Fn(MemberIdx) -> bool) -> bool {
        let slots = 0..self.members;
        let Some(striping) = &self.striping else {
            return slots.into_iter().any(|slot| present(MemberIdx(slot as u16)));
        };
        let mut first = 0;
        loop {
            let served = striping
                .slots_from(first, self.members as u64)
                .any(|slot| present(MemberIdx(slot)));
            if !served {
                return false;
            }
            first = (first + striping.near) % self.members as u64;
            if first == 0 {
                return true;
            }
        }
    }
}

impl Striping {
    /// After how many array chunks the placement of near copies repeats, and how many rows they
    /// take.
    fn round(&self, members: u64) -> (u64, u64) {
        let (mut divisor, mut rest) = (members, self.near);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        (members / divisor, self.near / divisor)
    }

    #[inline]
    fn locate(&self, at: Sector, members: u64, out: &mut [Copy]) -> u64 {
        let (number, offset) = self.chunk.split(at.0);
        let first = number * self.near;
        let mut row = first / members;
        let mut slot = first - row * members;
        row *= self.row_step;
        for near_copy in out.chunks_exact_mut(self.far as usize) {
            let mut sector = row * self.chunk.sectors + offset;
            let mut turn = slot;
            for copy in near_copy {
                *copy = Copy {
                    member: MemberIdx(self.far_slot[turn as usize]),
                    sector: Sector(sector),
                };
                sector += self.stride;
                turn += members;
            }
            slot += 1;
            if slot == members {
                slot = 0;
                row += 1;
            }
        }
        self.chunk.sectors - offset
    }

    /// Near copies fill rows one after the other; so row x members + slot, divided by the number of
    /// near copies, is the chunk. A far copy first goes back to the slot and row it was made from.
    ///
    /// `sector` is below the used size, which is a whole number of rows for each far copy; the
    /// result may lie behind the array's end.
    fn array_sector_of(&self, member: MemberIdx, sector: Sector, members: u64) -> Sector {
        let (member_row, offset) = self.chunk.split(sector.0);
        let (copy, row) = if self.offset {
            (member_row % self.far, member_row / self.far)
        } else {
            let (section, within) = (sector.0 / self.stride, sector.0 % self.stride);
            (section, self.chunk.split(within).0)
        };
        let slot = self.near_slot[copy as usize * members as usize + member.index()];
        let number = (row * members + u64::from(slot)) / self.near;
        Sector(number * self.chunk.sectors + offset)
    }

    /// The slots of the copies of a chunk whose first near copy is on slot `first`.
    fn slots_from(&self, first: u64, members: u64) -> impl Iterator<Item = u16> + '_ {
        (0..self.near).flat_map(move |near| {
            let slot = (first + near) % members;
            (0..self.far).map(move |far| self.far_slot[(far * members + slot) as usize])
        })
    }
}

/// Refuses what would put two copies on one member, or two chunks on one place.
fn check_raid10_safe(layout: Raid10Layout, members: usize) -> Result<(), GeometryError> {
    let refuse = |problem| {
        let layout = Layout::Raid10(layout);
        Err(GeometryError::LayoutUnsafe { layout, members, problem })
    };
    let near = usize::from(layout.near);
    if layout.offset && layout.far > 1 && near > 1 && !members.is_multiple_of(near) {
        return refuse("a near copy that wraps into the next row would overwrite an offset copy");
    }
    if far_set(layout, members) < layout.copies() {
        return refuse("a far set is smaller than the number of copies: two on one member");
    }
    // With several near copies and a larger last set, md lets far copies cross into the last set.
    let mut taken = vec![false; members];
    let far_slots = far_slots(layout, members);
    for copy in far_slots.chunks_exact(members) {
        taken.fill(false);
        for &slot in copy {
            if std::mem::replace(&mut taken[usize::from(slot)], true) {
                return refuse("far copies would overwrite each other where far sets meet");
            }
        }
    }
    Ok(())
}

/// Members in a far set, except the last set, which also takes the remaining ones.
fn far_set(layout: Raid10Layout, members: usize) -> usize {
    match layout.far_sets {
        FarSets::None => members,
        FarSets::Old => members / usize::from(layout.far),
        FarSets::Current => layout.copies(),
    }
}

/// `[far copy][slot of the near copy] -> slot`: each far copy moves on by the number of near
/// copies, around its far set (docs/format/geometry.md, RAID 10, with what it does at the edge of
/// the last set).
fn far_slots(layout: Raid10Layout, members: usize) -> Vec<u16> {
    let near = usize::from(layout.near);
    let set = far_set(layout, members);
    let last = (members / set - 1) * set;
    let last_width = set + members % set;
    let next = |slot: usize| {
        let on = slot + near;
        if !members.is_multiple_of(set) && on > last {
            last + (on - last) % last_width
        } else {
            on % set + slot / set * set
        }
    };
    let mut slots: Vec<u16> = (0..members as u16).collect();
    for copy in 1..usize::from(layout.far) {
        for slot in 0..members {
            let before = slots[(copy - 1) * members + slot];
            slots.push(next(usize::from(before)) as u16);
        }
    }
    slots
}

/// Inverts each far copy's permutation of the slots.
fn inverse(far_slots: &[u16], members: usize) -> Vec<u16> {
    let mut near_slots = vec![0; far_slots.len()];
    for (index, &slot) in far_slots.iter().enumerate() {
        let copy = index / members;
        near_slots[copy * members + usize::from(slot)] = (index % members) as u16;
    }
    near_slots
}
