//! Finds the sectors of an array that can be read from the members of a plan.
//!
//! Invariant: a run that is called readable can be served, directly or by redundancy, from sources
//! that are trusted there; one that is not, cannot. Used to read damaged arrays.

use super::candidate::Source;
use super::shape::Shape;
use super::types::Plan;
use crate::geometry::{Copy, Geometry, Kind, Parity};
use crate::units::{MemberIdx, Sector};

/// Readability of a sector and those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readable {
    /// Whether they can be served.
    pub readable: bool,
    /// Number of sectors that this applies to, at least 1.
    pub sectors: u64,
}

impl Plan {
    /// Whether array sector `at` can be served from this plan's slots, and for how many sectors: at
    /// most to the end of the chunk.
    ///
    /// # Panics
    /// If `at` is not below the array's size.
    pub fn readable(&self, shape: &Shape, at: Sector) -> Readable {
        let whole_or = |slot: MemberIdx, partly: &dyn Fn(&Source) -> u64| {
            self.slots
                .get(slot.index())
                .and_then(Option::as_ref)
                .map_or(0, |source| if source.is_whole() { u64::MAX } else { partly(source) })
        };
        match shape {
            Shape::Settled(geometry) => {
                readable(geometry, at, &|slot| whole_or(slot, &|source| source.valid_sectors))
            }
            Shape::Reshaping(reshaping) => {
                let (generation, together) = reshaping.locate(at);
                // A device that joined for the reshape has what has been moved; behind that, where
                // the old geometry holds, its sectors are beyond what it has.
                let geometry = reshaping.geometry(generation);
                let partly = |source: &Source| source.valid_sectors;
                let found = readable(geometry, at, &|slot| whole_or(slot, &partly));
                Readable { sectors: found.sectors.min(together), ..found }
            }
        }
    }
}

/// `valid` gives the sectors of a member's data area that can be trusted.
fn readable(geometry: &Geometry, at: Sector, valid: &dyn Fn(MemberIdx) -> u64) -> Readable {
    let left = |member: MemberIdx, sector: Sector| valid(member).saturating_sub(sector.0);
    match geometry.kind() {
        Kind::Striped(striped) => {
            let extent = striped.locate(at);
            match left(extent.member, extent.sector) {
                0 => Readable { readable: false, sectors: extent.sectors },
                left => Readable { readable: true, sectors: extent.sectors.min(left) },
            }
        }
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            let run = mirrored.locate(at, &mut copies);
            let best = copies.iter().map(|copy| left(copy.member, copy.sector)).max();
            match best.unwrap_or(0) {
                0 => Readable { readable: false, sectors: run },
                best => Readable { readable: true, sectors: run.min(best) },
            }
        }
        Kind::Parity(parity) => in_row(parity, at, geometry.tolerates(), &left),
    }
}

fn in_row(
    parity: &Parity,
    at: Sector,
    tolerates: usize,
    left: &dyn Fn(MemberIdx, Sector) -> u64,
) -> Readable {
    let pos = parity.locate(at);
    let run = parity.chunk_sectors() - pos.offset;
    let sector = parity.member_sector(pos.stripe, pos.offset);
    let row = parity.row(pos.stripe);
    let own = left(row.data[usize::from(pos.index)], sector);
    if own > 0 {
        return Readable { readable: true, sectors: run.min(own) };
    }
    let rest = || (0..row.role.len()).map(|slot| left(MemberIdx(slot as u16), sector));
    let readable = rest().filter(|&left| left == 0).count() <= tolerates;
    // Behind the nearest end of what is trusted, one more member is lost.
    let nearest = rest().filter(|&left| left > 0).min().unwrap_or(run);
    Readable { readable, sectors: if readable { run.min(nearest) } else { run } }
}
