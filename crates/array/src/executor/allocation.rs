//! What of an array is stored, as its members know it.
//!
//! Invariant: a range is a hole only if every way to read it gives zeroes: its member is in sync
//! everywhere and has a hole there; of copies, all that could be read have one. Nothing is read
//! for it. NBD's block status is made from it. Part of `executor`.

use std::ops::Range;

use md::{Kind, MemberIdx, Sector};

use super::Executor;
use crate::member::Known;

/// The most chunks, or parts of them, that are looked at in one call.
const MOST_LOOKS: usize = 4096;
/// The most calls of members in one call, system calls each: the shard does nothing else
/// until they have returned.
const MOST_CALLS: usize = 256;

/// Consecutive sectors of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayExtent {
    /// How many, not 0.
    pub sectors: u64,
    /// Nothing is stored for them, and they read as zeroes. Otherwise there may be data.
    pub is_hole: bool,
}

impl ArrayExtent {
    /// Adds sectors behind extents, to the last one if that is alike; `false`: there would be more
    /// than `most`.
    pub fn push_to(extents: &mut Vec<ArrayExtent>, new: ArrayExtent, most: usize) -> bool {
        let is_full = extents.len() >= most;
        match extents.last_mut().filter(|last| last.is_hole == new.is_hole) {
            Some(last) => last.sectors += new.sectors,
            None if is_full => return false,
            None => extents.push(new),
        }
        true
    }
}

impl Executor {
    /// What is known of a range that is inside the array, from its start on, at most `most`
    /// extents; they may end before it does, but not before they begin.
    pub(crate) fn allocation(&self, range: Range<u64>, most: usize) -> Vec<ArrayExtent> {
        let known = vec![None; self.geometry().members()];
        let mut look = Look { executor: self, left: 0, calls: 0, known };
        let mut extents: Vec<ArrayExtent> = Vec::new();
        let mut at = range.start;
        for _ in 0..MOST_LOOKS {
            if at >= range.end || look.calls >= MOST_CALLS {
                break;
            }
            look.left = range.end - at;
            let (sectors, is_hole) = look.at(at, look.left);
            at += sectors;
            if !ArrayExtent::push_to(&mut extents, ArrayExtent { sectors, is_hole }, most) {
                break;
            }
        }
        extents
    }
}

/// One look at an array.
struct Look<'a> {
    executor: &'a Executor,
    /// Sectors of the range that are left: no member has more of it.
    left: u64,
    calls: usize,
    /// Of each slot, what was found last, and where it began.
    known: Vec<Option<(u64, Known)>>,
}

impl Look<'_> {
    /// What is at a sector, and how many sectors that holds for, up to `left`.
    fn at(&mut self, at: u64, left: u64) -> (u64, bool) {
        let executor = self.executor;
        let lacking = executor.lacking();
        match executor.geometry().kind() {
            Kind::Striped(striped) => {
                let extent = striped.locate(Sector(at));
                let run = extent.sectors.min(left);
                self.of_member(
                    extent.member,
                    extent.sector.0,
                    run,
                    lacking.contains(extent.member.0),
                )
            }
            Kind::Parity(parity) => {
                let pos = parity.locate(Sector(at));
                let member = parity.row(pos.stripe).data[usize::from(pos.index)];
                let sector = parity.member_sector(pos.stripe, pos.offset).0;
                let run = (parity.chunk_sectors() - pos.offset).min(left);
                self.of_member(member, sector, run, lacking.contains(member.0))
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![md::geometry::Copy::default(); mirrored.copies()];
                let mut run = mirrored.locate(Sector(at), &mut copies).min(left);
                let failed = executor.failed();
                let mut any = false;
                // One that is being rebuilt is read where it is in sync.
                for copy in copies.iter().filter(|copy| !failed.contains(copy.member.0)) {
                    let (there, is_hole) = self.of_member(copy.member, copy.sector.0, run, false);
                    if !is_hole {
                        return (there, false);
                    }
                    run = run.min(there);
                    any |= !lacking.contains(copy.member.0);
                }
                (run, any)
            }
        }
    }

    fn of_member(&mut self, member: MemberIdx, sector: u64, run: u64, lacks: bool) -> (u64, bool) {
        if lacks {
            return (run, false);
        }
        let slot = member.index();
        let place = self.executor.shard.place_of(member).index();
        let known = match self.known[slot] {
            Some((from, known)) if (from..known.end.0).contains(&sector) => known,
            _ => {
                let used = self.executor.geometry().member_used_sectors(member);
                let limit = used.min(sector + self.left);
                let Some(member) = &self.executor.slots[place].member else { return (run, false) };
                self.calls += 1;
                let known = member.known(Sector(sector), Sector(limit));
                self.known[slot] = Some((sector, known));
                known
            }
        };
        let there = known.end.0.saturating_sub(sector);
        if there == 0 { (run, false) } else { (run.min(there), known.is_hole) }
    }
}
