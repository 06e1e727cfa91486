//! The result of a read whose bytes may stay where they are: in members in memory.
//!
//! ```text
//! a host's buffer   | own  |      | own |
//!                          | lent |          a member's memory, in a region of its own
//! ```
//! Invariant: a lent part holds the region that it is in, so that its memory is neither freed nor
//! used for anything else while it is held. A write that ends before the holder is done with the
//! part may change it: the read has not ended for its client then, and may have the old or the new
//! bytes. So the process does not read a lent part, but has the kernel send it ([`OutSlice`]).
//! Which reads are lent memory is decided in `executor`.

use host::sys::OutSlice;

use super::lease::Lease;
use super::lent::LentPart;

/// What a read has returned; see the module documentation.
pub struct Filled {
    lease: Lease,
    /// In order, disjoint, inside the lease.
    lent: Vec<LentPart>,
}

impl Filled {
    /// What a read has returned in this lease, whether it was [borrowed](Lease::borrow) or not.
    ///
    /// # Panics
    /// When parts of it overlap: a bug of the driver.
    pub fn new(mut lease: Lease) -> Filled {
        let mut lent = lease.take_lent();
        lent.sort_unstable_by_key(|part| part.at);
        let mut end = 0;
        for part in &lent {
            assert!(part.at >= end && part.at + part.len <= lease.len(), "parts that overlap");
            end = part.at + part.len;
        }
        Filled { lease, lent }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.lease.len()
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.lease.is_empty()
    }

    /// Whether a part of it is in a member's memory.
    pub fn is_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Its bytes, if none of them is in a member's memory.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.lent.is_empty().then(|| self.lease.bytes())
    }

    /// Its bytes, in order, to be sent.
    pub fn out_slices(&self) -> impl Iterator<Item = OutSlice<'_>> {
        let own = self.lease.bytes();
        let ends = self.lent.iter().map(|part| part.at + part.len);
        let behind = std::iter::once(0).chain(ends);
        let before = self.lent.iter().map(|part| part.at).chain([own.len()]);
        let gaps = behind.zip(before).map(|(from, to)| OutSlice::new(&own[from..to]));
        let lent = self.lent.iter().map(Some).chain([None]);
        gaps.zip(lent)
            .flat_map(|(gap, part)| [Some(gap), part.map(LentPart::out_slice)])
            .flatten()
            .filter(|slice| !slice.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::BufSlice;

    use super::*;
    use crate::buf::{LeasePool, Region};

    /// What a buffer of 8 pages is after what was done with these slices, a letter a page: its own,
    /// or the lender's.
    fn filled(done: &[(u64, u32, bool)]) -> String {
        let region = |pages: u64| Arc::new(Region::new(pages * 4096).expect("memory"));
        let pool = LeasePool::new(0, 8 * 4096, 2, 2, false).expect("memory");
        let member = region(16);
        let mut lease = pool.take(8 * 4096).expect("a buffer");
        let first = lease.slice().offset;
        let slice = |page: u64, pages: u32| {
            let (len, offset) = (pages * 4096, first + page * 4096);
            BufSlice { region: 0, len, offset }
        };
        assert!(!pool.borrows(slice(0, 8)), "it was not asked for");
        lease.borrow();
        for &(page, pages, lent) in done {
            assert!(pool.borrows(slice(page, pages)));
            match lent {
                true => pool.lend(slice(page, pages), member.clone(), page * 4096),
                false => pool.fill(slice(page, pages)),
            }
        }
        let filled = Filled::new(lease);
        assert!(!pool.borrows(slice(0, 8)), "it has ended");
        let mut at = 0;
        let mut letters = String::new();
        for slice in filled.out_slices() {
            let own = filled.lent.iter().all(|part| part.at != at);
            letters += &if own { "o" } else { "L" }.repeat(slice.len() / 4096);
            at += slice.len();
        }
        assert_eq!(at, filled.len());
        letters
    }

    #[test]
    fn parts_of_a_read_that_is_begun_anew_are_where_they_were_put_last() {
        assert_eq!(filled(&[]), "oooooooo");
        assert_eq!(filled(&[(4, 4, true), (0, 4, true)]), "LLLLLLLL");
        assert_eq!(filled(&[(2, 3, true), (6, 1, true)]), "ooLLLoLo");
        assert_eq!(filled(&[(0, 4, true), (0, 4, true)]), "LLLLoooo");
        assert_eq!(filled(&[(0, 4, true), (4, 2, true), (0, 4, false)]), "ooooLLoo");
    }

    #[test]
    fn what_is_lent_is_released_with_the_buffer() {
        let region = |pages: u64| Arc::new(Region::new(pages * 4096).expect("memory"));
        let (pool, member) = (LeasePool::new(0, 4096, 1, 1, false).expect("memory"), region(1));
        let mut lease = pool.take(4096).expect("a buffer");
        lease.borrow();
        pool.lend(lease.slice(), member.clone(), 0);
        // The request has failed.
        drop(lease);
        assert_eq!(Arc::strong_count(&member), 1);
        let lease = pool.take(4096).expect("a buffer");
        assert!(!pool.borrows(lease.slice()) && !Filled::new(lease).is_lent());
    }
}
