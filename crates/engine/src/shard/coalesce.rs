//! Merges the chunks of one request into as few member I/Os as possible.
//!
//! ```text
//! request   | c0 | c1 | c2 | c3 |          member 0   reads c0 c2 in one go, into two slices
//!             m0   m1   m0   m1            member 1   reads c1 c3
//! ```
//! Invariant: the runs that come out cover exactly the pieces that went in, and each run is
//! contiguous on its member. Used by `non_parity` and by the direct reads of `stripe`.

use std::ops::Range;

use md::{MemberIdx, Sector};

use crate::slab::Key;
use crate::token::Kind;
use crate::{BufSlice, Effect, Effects, Token};

struct Piece {
    member: u16,
    sector: u64,
    slice: BufSlice,
}

/// A contiguous member range and the slices that it fills or is filled from.
pub(crate) struct Run {
    pub(crate) member: u16,
    pub(crate) sector: u64,
    pub(crate) sectors: u64,
    pub(crate) slices: Range<u32>,
}

impl Run {
    /// The direct read of this run, for the request of `key`.
    pub(crate) fn read(self, key: Key) -> Effect {
        Effect::Read {
            token: Token::new(Kind::Read, self.member, key),
            member: MemberIdx(self.member),
            sector: Sector(self.sector),
            slices: self.slices,
            in_place_ok: false,
        }
    }
}

/// Collects pieces; empty between requests.
#[derive(Default)]
pub(crate) struct Coalescer {
    pieces: Vec<Piece>,
}

impl Coalescer {
    /// Adds a piece, in any order.
    pub(crate) fn add(&mut self, member: u16, sector: u64, slice: BufSlice) {
        self.pieces.push(Piece { member, sector, slice });
    }

    /// Drops all pieces.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
    }

    /// Passes each run to `emit`, by member and address, and becomes empty.
    pub(crate) fn drain(&mut self, out: &mut Effects, mut emit: impl FnMut(Run, &mut Effects)) {
        // Copies of one request do not come in the order of the members' addresses.
        self.pieces.sort_unstable_by_key(|piece| (piece.member, piece.sector));
        let mut rest = self.pieces.as_slice();
        while let Some(Piece { member, sector, .. }) = rest.first() {
            let (first_slice, mut end) = (out.slices.len() as u32, *sector);
            while let Some(piece) = rest.first().filter(|p| (p.member, p.sector) == (*member, end))
            {
                push_joined(&mut out.slices, first_slice, piece.slice);
                end += piece.slice.sectors();
                rest = &rest[1..];
            }
            let slices = first_slice..out.slices.len() as u32;
            emit(Run { member: *member, sector: *sector, sectors: end - sector, slices }, out);
        }
        self.pieces.clear();
    }
}

/// Appends a slice, or extends the last one of the same run if they are adjacent in memory.
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
    fn merges_pieces_that_are_contiguous_on_the_member() {
        let (mut scatter, mut out) = (Coalescer::default(), Effects::new());
        scatter.add(0, 8, slice(8192));
        scatter.add(1, 0, slice(4096));
        scatter.add(0, 0, slice(0));
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
