//! Lists of sector ranges.
//!
//! Invariant: no list has an empty range; lists that are added to have no adjacent ones.

use std::ops::Range;

/// Maximum of ranges kept, of an array or of all members.
const MAX_RANGES: usize = 1000;

/// Ranges added in any order: sorted, merged where adjacent, bounded.
#[derive(Clone, Default)]
pub(super) struct Ranges {
    pub(super) list: Vec<Range<u64>>,
    /// Number of ranges that are not in the list.
    pub(super) more: u64,
}

impl Ranges {
    pub(super) fn insert(&mut self, range: Range<u64>) {
        self.insert_below(range, MAX_RANGES);
    }

    /// Inserts a range, however many there are: for the ranges of one row.
    pub(super) fn insert_all(&mut self, range: Range<u64>) {
        self.insert_below(range, usize::MAX);
    }

    /// Inserts all of another list.
    pub(super) fn add(&mut self, other: Ranges) {
        self.more += other.more;
        other.list.into_iter().for_each(|range| self.insert(range));
    }

    /// Inserts a range if the list has fewer than `room` ranges.
    pub(super) fn insert_below(&mut self, range: Range<u64>, room: usize) {
        let first = self.list.partition_point(|old| old.end < range.start);
        let last = self.list.partition_point(|old| old.start <= range.end);
        if first == last && self.list.len() >= room {
            self.more += 1;
            return;
        }
        let start =
            self.list[first..last].first().map_or(range.start, |it| it.start.min(range.start));
        let end = self.list[first..last].last().map_or(range.end, |it| it.end.max(range.end));
        self.list.splice(first..last, std::iter::once(start..end));
    }
}

/// The range minus others.
pub(super) fn without<'r>(
    range: Range<u64>,
    others: impl Iterator<Item = &'r Range<u64>>,
) -> Vec<Range<u64>> {
    others.fold(vec![range], |rest, other| {
        let cut = |range: Range<u64>| {
            let before = range.start..range.end.min(other.start);
            [before, range.start.max(other.end)..range.end]
        };
        rest.into_iter().flat_map(cut).filter(|range| range.start < range.end).collect()
    })
}

/// All of two sorted lists: sorted and disjoint.
pub(super) fn union(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    if one.is_empty() || other.is_empty() {
        return if one.is_empty() { other.to_vec() } else { one.to_vec() };
    }
    let mut all: Vec<Range<u64>> = one.iter().chain(other).cloned().collect();
    all.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in all {
        match joined.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// What is in two sorted lists of disjoint ranges.
pub(super) fn intersection(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut both, mut i, mut j) = (Vec::new(), 0, 0);
    while let (Some(a), Some(b)) = (one.get(i), other.get(j)) {
        add_range(&mut both, a.start.max(b.start)..a.end.min(b.end).max(a.start.max(b.start)));
        if a.end < b.end {
            i += 1;
        } else {
            j += 1;
        }
    }
    both
}

/// The ranges of a list minus those of another, both sorted.
pub(super) fn without_all(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    ranges.iter().flat_map(|range| without(range.clone(), others.iter())).collect()
}

/// Appends a range to the list; merged with the last one if adjacent.
pub(super) fn add_range(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    match list.last_mut().filter(|last| last.end == range.start) {
        Some(last) => last.end = range.end,
        None => list.push(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lists_have_a_union_and_an_intersection() {
        let (one, other) = ([0..4, 6..9, 20..30], [2..7, 9..10, 22..24, 25..40]);
        assert_eq!(union(&one, &other), [0..10, 20..40]);
        assert_eq!(intersection(&one, &other), [2..4, 6..7, 22..24, 25..30]);
        assert_eq!(without_all(&one, &other), [0..2, 7..9, 20..22, 24..25]);
        assert_eq!((union(&[], &one), intersection(&one, &[])), (one.to_vec(), Vec::new()));
    }

    #[test]
    fn ranges_in_any_order_are_joined_where_they_touch() {
        let mut ranges = Ranges::default();
        for at in [9, 3, 5, 4, 7, 8] {
            ranges.insert_below(at..at + 1, 3);
        }
        assert_eq!((ranges.list.as_slice(), ranges.more), ([3..6, 7..10].as_slice(), 0));
        ranges.insert_below(20..21, 3);
        ranges.insert_below(30..31, 3);
        assert_eq!((ranges.list.len(), ranges.more), (3, 1));
        ranges.insert_below(0..40, 3);
        assert_eq!((ranges.list.len(), &ranges.list[0]), (1, &(0..40)));
    }
}
