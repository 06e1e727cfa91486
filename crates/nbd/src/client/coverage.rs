//! Which bytes of a READ have come.
//!
//! *Invariant*: the ranges are disjoint, in order, and not adjacent; there are at most
//! [`MAX_RANGES`] of them.

use std::ops::Range;

/// Holes between the pieces that a server may leave at a time.
const MAX_RANGES: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Coverage(Vec<Range<u64>>);

impl Coverage {
    /// Adds a range; false when it overlaps with one that came before, or there are too many.
    pub(super) fn add(&mut self, new: Range<u64>) -> bool {
        let at = self.0.partition_point(|range| range.end <= new.start);
        if self.0.get(at).is_some_and(|next| next.start < new.end) {
            return false;
        }
        let joins_before = at > 0 && self.0[at - 1].end == new.start;
        let joins_after = self.0.get(at).is_some_and(|next| next.start == new.end);
        match (joins_before, joins_after) {
            (true, true) => self.0[at - 1].end = self.0.remove(at).end,
            (true, false) => self.0[at - 1].end = new.end,
            (false, true) => self.0[at].start = new.start,
            (false, false) if self.0.len() == MAX_RANGES => return false,
            (false, false) => self.0.insert(at, new),
        }
        true
    }

    /// Whether nothing but `whole` is covered, and all of it.
    pub(super) fn is(&self, whole: Range<u64>) -> bool {
        self.0 == [whole]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_in_any_order_become_the_whole() {
        let mut coverage = Coverage::default();
        for piece in [10..20, 40..50, 20..30, 0..10, 30..40] {
            assert!(!coverage.is(0..50));
            assert!(coverage.add(piece));
        }
        assert!(coverage.is(0..50));
        for again in [0..1, 49..50, 0..50, 20..30, 49..60] {
            assert!(!coverage.add(again.clone()), "{again:?}");
        }
        assert!(coverage.add(50..60));
        assert!(coverage.is(0..60));
    }

    #[test]
    fn a_server_cannot_make_it_grow_for_ever() {
        let mut coverage = Coverage::default();
        let taken = (0..10_000_u64).filter(|at| coverage.add(2 * at..2 * at + 1)).count();
        assert_eq!(taken, MAX_RANGES);
    }
}
