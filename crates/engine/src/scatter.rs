//! Joins the chunks of one request into as few member I/Os as possible.
//!
//! ```text
//! request   | c0 | c1 | c2 | c3 |          member 0   reads c0 c2 in one go, into two slices
//!             m0   m1   m0   m1            member 1   reads c1 c3
//! ```
//! Invariant: the runs that come out cover exactly the pieces that went in, and each run is
//! contiguous on its member. Used by `flat` and by the direct reads of `stripe`.

use std::ops::Range;

use crate::{BufSlice, Effects};

const NONE: u32 = u32::MAX;

struct Piece {
    sector: u64,
    slice: BufSlice,
    next: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

/// A contiguous member range and the slices that it fills or is filled from.
pub(crate) struct Run {
    pub(crate) member: u16,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    pub(crate) slices: Range<u32>,
}

/// Collects pieces per member; empty between requests.
pub(crate) struct Scatter {
    pieces: Vec<Piece>,
    lists: Vec<List>,
    touched: Vec<u16>,
}

impl Scatter {
    pub(crate) fn new(members: usize) -> Scatter {
        Scatter {
            pieces: Vec::new(),
            lists: vec![List { first: NONE, last: NONE }; members],
            touched: Vec::new(),
        }
    }

    /// Adds a piece; the pieces of one member must come in the order of its addresses for them to be
    /// joined.
    pub(crate) fn add(&mut self, member: u16, sector: u64, slice: BufSlice) {
        let at = self.pieces.len() as u32;
        self.pieces.push(Piece { sector, slice, next: NONE });
        let list = &mut self.lists[usize::from(member)];
        if list.first == NONE {
            list.first = at;
            self.touched.push(member);
        } else {
            self.pieces[list.last as usize].next = at;
        }
        list.last = at;
    }

    /// Gives each run to `emit` and forgets everything.
    pub(crate) fn drain(&mut self, out: &mut Effects, mut emit: impl FnMut(Run, &mut Effects)) {
        for member in self.touched.drain(..) {
            let list = &mut self.lists[usize::from(member)];
            let mut at = list.first;
            *list = List { first: NONE, last: NONE };
            while at != NONE {
                let start = &self.pieces[at as usize];
                let (sector, first_slice) = (start.sector, out.slices.len() as u32);
                let mut end = sector;
                while at != NONE && self.pieces[at as usize].sector == end {
                    let piece = &self.pieces[at as usize];
                    push_joined(&mut out.slices, first_slice, piece.slice);
                    end += piece.slice.sectors();
                    at = piece.next;
                }
                let slices = first_slice..out.slices.len() as u32;
                emit(Run { member, sector, sectors: end - sector, slices }, out);
            }
        }
        self.pieces.clear();
    }
}

/// Appends a slice, or lengthens the last one of the same run when they are neighbours in memory.
fn push_joined(slices: &mut Vec<BufSlice>, first: u32, slice: BufSlice) {
    if slices.len() > first as usize {
        let last = slices.last_mut().expect("the run has a slice");
        let adjacent = last.region == slice.region
            && last.offset + u64::from(last.len) == slice.offset
            && slice.region != crate::REGION_ZERO;
        if adjacent {
            last.len += slice.len;
            return;
        }
    }
    slices.push(slice);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(offset: u64) -> BufSlice {
        BufSlice { region: 3, len: 4096, offset }
    }

    #[test]
    fn joins_what_is_contiguous_on_the_member() {
        let (mut scatter, mut out) = (Scatter::new(2), Effects::new());
        scatter.add(0, 0, slice(0));
        scatter.add(1, 0, slice(4096));
        scatter.add(0, 8, slice(8192));
        scatter.add(1, 16, slice(12288));
        scatter.add(0, 16, slice(12288));
        let mut runs = Vec::new();
        scatter.drain(&mut out, |run, out| {
            runs.push((run.member, run.sector, run.sectors, out.slices(&run.slices).to_vec()));
        });
        // Member 0: one run, its last two slices are neighbours in memory too. Member 1: a gap.
        let joined = BufSlice { len: 8192, ..slice(8192) };
        assert_eq!(runs[0], (0, 0, 24, vec![slice(0), joined]));
        assert_eq!(runs[1], (1, 0, 8, vec![slice(4096)]));
        assert_eq!(runs[2], (1, 16, 8, vec![slice(12288)]));
        scatter.drain(&mut out, |_, _| panic!("nothing is left"));
    }
}
