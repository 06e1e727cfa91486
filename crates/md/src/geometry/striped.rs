//! Placement without redundancy: linear and RAID 0.
//!
//! Invariant: every array sector has exactly one place, and no place has two array sectors.
//! Called by the engine for each request, and by the executors for sizes.
//!
//! RAID 0 over members of different sizes is cut into zones; the longest members live on alone:
//!
//! ```text
//!   slot 0  |0 3 6|                 zone 0: all three, sectors [0, smallest)
//!   slot 1  |1 4 7|9  11|           zone 1: slots 1 and 2, up to the next smallest
//!   slot 2  |2 5 8|10 12|13 14|     zone 2: slot 2
//! ```

use std::ops::Range;

use super::chunk::{Chunk, whole_units};
use super::spec::{GeometryError, GeometrySpec, checked_array_sectors};
use crate::layout::{Layout, Raid0Layout};
use crate::level::Level;
use crate::units::{MemberIdx, Sector};

/// A contiguous range of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The member.
    pub member: MemberIdx,
    /// The sector in the member's data area.
    pub sector: Sector,
    /// Sectors, from this one on, that follow each other on the member and in the array: up to the
    /// end of the chunk (RAID 0), of the member (linear), of the array. At least 1.
    pub sectors: u64,
}

/// A part of the array that is spread evenly over the same members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// First array sector.
    pub start: Sector,
    /// First array sector behind it.
    pub end: Sector,
    /// Where the zone begins on each of its members.
    pub member_start: Sector,
    /// Its members in slot order.
    pub members: Vec<MemberIdx>,
    /// Which of `members` takes the first chunk: 0, or rotated in RAID 0's original layout.
    pub first: u64,
}

/// Linear or RAID 0.
#[derive(Clone, Debug)]
pub struct Striped {
    array_sectors: u64,
    /// Sectors used of each member.
    used: Vec<u64>,
    /// Chunks of RAID 0; `None` in linear, where each member is one zone without chunks.
    chunk: Option<Chunk>,
    zones: Vec<Zone>,
    layout_matters: bool,
}

impl Striped {
    pub(super) fn new(spec: &GeometrySpec) -> Result<Striped, GeometryError> {
        match spec.level {
            Level::Linear => Striped::linear(spec),
            Level::Raid0 => Striped::raid0(spec),
            level => unreachable!("{level} is not striped without redundancy"),
        }
    }

    /// docs/format/geometry.md, Linear.
    fn linear(spec: &GeometrySpec) -> Result<Striped, GeometryError> {
        let used = rounded_sizes(spec, spec.chunk_sectors.max(1))?;
        let array_sectors = checked_array_sectors(used.iter().map(|&u| u128::from(u)).sum())?;
        let mut zones = Vec::with_capacity(used.len());
        let mut start = Sector::ZERO;
        for (slot, &sectors) in used.iter().enumerate() {
            let end = start + sectors;
            let members = vec![MemberIdx(slot as u16)];
            zones.push(Zone { start, end, member_start: Sector::ZERO, members, first: 0 });
            start = end;
        }
        Ok(Striped { array_sectors, used, chunk: None, zones, layout_matters: false })
    }

    /// docs/format/geometry.md, RAID 0.
    fn raid0(spec: &GeometrySpec) -> Result<Striped, GeometryError> {
        let chunk = Chunk::new(spec.chunk_sectors);
        let used = rounded_sizes(spec, chunk.sectors)?;
        // md masks instead of dividing, so with chunks that are no power of two the array is a
        // little shorter than its zones. The mapping itself does not change. Never 0: a size not
        // below the chunk has a bit that chunk - 1 has not.
        let mask = !(chunk.sectors - 1);
        let masked = used.iter().map(|&sectors| u128::from(sectors & mask)).sum();
        let array_sectors = checked_array_sectors(masked)?;
        let mut zones = zones_of(&used);
        let layout_matters = zones
            .iter()
            .any(|zone| !(zone.start.0 / chunk.sectors).is_multiple_of(zone.members.len() as u64));
        match spec.layout {
            Layout::Raid0(Raid0Layout::Unrecorded) if layout_matters => {
                return Err(GeometryError::Raid0LayoutUnrecorded);
            }
            Layout::Raid0(Raid0Layout::Original) => {
                for zone in &mut zones {
                    zone.first = zone.start.0 / chunk.sectors % zone.members.len() as u64;
                }
            }
            _ => {}
        }
        Ok(Striped { array_sectors, used, chunk: Some(chunk), zones, layout_matters })
    }

    /// Location of array sector `at`, and the length of the contiguous range from there.
    ///
    /// # Panics
    /// If `at` is not below the array's size.
    #[inline]
    pub fn locate(&self, at: Sector) -> Extent {
        assert!(at.0 < self.array_sectors, "sector {at} is outside of the array");
        let zone = match self.zones.as_slice() {
            [only] => only,
            zones => &zones[zones.partition_point(|zone| zone.end <= at)],
        };
        let in_zone = at - zone.start;
        let Some(chunk) = self.chunk else {
            let sectors = zone.end - at;
            return Extent { member: zone.members[0], sector: Sector(in_zone), sectors };
        };
        let (number, offset) = chunk.split(in_zone);
        let width = zone.members.len() as u64;
        let row = number / width;
        let mut turn = number - row * width + zone.first;
        if turn >= width {
            turn -= width;
        }
        Extent {
            member: zone.members[turn as usize],
            sector: zone.member_start + row * chunk.sectors + offset,
            sectors: (chunk.sectors - offset).min(self.array_sectors - at.0),
        }
    }

    /// Passes the places of an array range to `emit`, as member ranges: whole rows of a zone at
    /// once, so that there are few however long the range is. In no order; neighbours may follow
    /// each other.
    ///
    /// # Panics
    /// If the range is not inside the array.
    pub fn member_ranges(&self, range: Range<u64>, mut emit: impl FnMut(MemberIdx, Sector, u64)) {
        assert!(range.end <= self.array_sectors, "{range:?} is outside of the array");
        for zone in &self.zones {
            let (from, to) = (range.start.max(zone.start.0), range.end.min(zone.end.0));
            if from >= to {
                continue;
            }
            let width = zone.members.len() as u64;
            let row = self.chunk.as_ref().map_or(1, |chunk| chunk.sectors * width);
            let whole = whole_units(from - zone.start.0..to - zone.start.0, row);
            let edges = [from..zone.start.0 + whole.start, zone.start.0 + whole.end..to];
            for edge in edges {
                let mut at = edge.start;
                while at < edge.end {
                    let Extent { member, sector, sectors } = self.locate(Sector(at));
                    let sectors = sectors.min(edge.end - at);
                    emit(member, sector, sectors);
                    at += sectors;
                }
            }
            if !whole.is_empty() {
                let sectors = (whole.end - whole.start) / width;
                for member in &zone.members {
                    emit(*member, zone.member_start + whole.start / width, sectors);
                }
            }
        }
    }

    /// The zones, in array order. Linear: one per member.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// Whether RAID 0's original and alternate layouts differ for these members. If not, the
    /// layout need not be recorded.
    pub fn layout_matters(&self) -> bool {
        self.layout_matters
    }

    pub(super) fn array_sectors(&self) -> u64 {
        self.array_sectors
    }

    pub(super) fn used(&self, member: MemberIdx) -> u64 {
        self.used[member.index()]
    }
}

/// Each member's sectors, rounded down to whole units.
fn rounded_sizes(spec: &GeometrySpec, unit: u64) -> Result<Vec<u64>, GeometryError> {
    let round = |(slot, &sectors): (usize, &u64)| {
        let whole = sectors / unit * unit;
        if whole > 0 {
            return Ok(whole);
        }
        let member = MemberIdx(slot as u16);
        Err(GeometryError::MemberTooSmall { member, sectors, least: unit })
    };
    spec.member_sectors.iter().enumerate().map(round).collect()
}

/// Zone z has the members that are longer than zone z-1 reaches, up to the shortest of them.
fn zones_of(used: &[u64]) -> Vec<Zone> {
    let mut zones = Vec::new();
    let (mut start, mut limit) = (Sector::ZERO, 0);
    loop {
        let longer = |&(_, &sectors): &(usize, &u64)| sectors > limit;
        let members: Vec<MemberIdx> = used
            .iter()
            .enumerate()
            .filter(longer)
            .map(|(slot, _)| MemberIdx(slot as u16))
            .collect();
        let Some(next) = members.iter().map(|member| used[member.index()]).min() else {
            return zones;
        };
        let end = start + (next - limit) * members.len() as u64;
        zones.push(Zone { start, end, member_start: Sector(limit), members, first: 0 });
        (start, limit) = (end, next);
    }
}
