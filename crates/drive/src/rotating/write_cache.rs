//! Owns the write cache: dirty extents, room for more, and when destaging becomes urgent.
//!
//! ```text
//!   write -> [waiters] -> reserved (crossing the link) -> dirty extents -> writing -> medium
//!                         acknowledged here ---------------^
//! ```
//!
//! Extents that touch are merged; the number of extents is bounded as well as their bytes, because
//! the bound on extents is the bound on what their order can gain for random writes. What is next
//! is chosen as for queued commands: by the shortest positioning time, rotation included.
//!
//! Invariant: extents are disjoint, do not touch, and sum to `dirty`. Called by `drive`.

use std::collections::{BTreeMap, VecDeque};

use crate::op::Nanos;

/// Maximum number of extents considered per choice, upwards from the head position.
const CHOICE_MAX: usize = 256;

/// The largest gap inside a run of extents, as a multiple of the extent behind it.
const GAP_MAX: u64 = 4;

/// The most that is destaged between two decisions.
const SLICE_MAX: u64 = 256 << 10;

/// The write cache of one drive.
#[derive(Debug)]
pub(crate) struct WriteCache {
    bytes_max: u64,
    extents_max: usize,
    /// Start -> end.
    extents: BTreeMap<u64, u64>,
    dirty: u64,
    reserved: Vec<(u64, u64)>,
    writing: Option<(u64, u64)>,
    pressed: bool,
    /// Writes that wait for room, in order: key, start, end.
    pub waiters: VecDeque<(u32, u64, u64)>,
    /// Flushes that wait until the cache is clean.
    pub flushes: Vec<u32>,
}

impl WriteCache {
    pub fn new(bytes_max: u64, extents_max: usize) -> WriteCache {
        WriteCache {
            bytes_max,
            extents_max,
            extents: BTreeMap::new(),
            dirty: 0,
            reserved: Vec::new(),
            writing: None,
            pressed: false,
            waiters: VecDeque::new(),
            flushes: Vec::new(),
        }
    }

    fn used(&self) -> u64 {
        let bytes = |&(at, end): &(u64, u64)| end - at;
        self.dirty + self.reserved.iter().chain(&self.writing).map(bytes).sum::<u64>()
    }

    /// Reserves room for a write, if there is room. One write alone always fits.
    pub fn reserve(&mut self, at: u64, end: u64) -> bool {
        let used = self.used();
        if used > 0 && used + (end - at) > self.bytes_max {
            return false;
        }
        if self.extents.len() + self.reserved.len() >= self.extents_max && !self.joins(at, end) {
            return false;
        }
        self.reserved.push((at, end));
        true
    }

    /// Whether a write would extend something that is already here.
    fn joins(&self, at: u64, end: u64) -> bool {
        let before = self.extents.range(..=end).next_back();
        before.is_some_and(|(_, &other)| other >= at)
            || self.reserved.iter().any(|&(start, stop)| start <= end && at <= stop)
    }

    /// The data of a reserved write are here.
    pub fn arrive(&mut self, at: u64, end: u64) {
        let index = self.reserved.iter().position(|&range| range == (at, end));
        self.reserved.swap_remove(index.expect("a write reserves before it arrives"));
        if at < end {
            self.insert(at, end);
        }
    }

    fn insert(&mut self, mut at: u64, mut end: u64) {
        while let Some((&start, &stop)) = self.extents.range(..=end).next_back() {
            if stop < at {
                break;
            }
            self.extents.remove(&start);
            self.dirty -= stop - start;
            (at, end) = (at.min(start), end.max(stop));
        }
        self.extents.insert(at, end);
        self.dirty += end - at;
    }

    /// Forgets what is dirty in a range: newer data are on the medium, or it was discarded.
    pub fn forget(&mut self, at: u64, end: u64) {
        while let Some((&start, &stop)) = self.extents.range(..end).next_back() {
            if stop <= at {
                break;
            }
            self.extents.remove(&start);
            self.dirty -= stop - start;
            for (start, stop) in [(start, at), (end, stop)] {
                if start < stop {
                    self.extents.insert(start, stop);
                    self.dirty += stop - start;
                }
            }
        }
    }

    /// Whether all of `at..end` is here.
    pub fn covers(&self, at: u64, end: u64) -> bool {
        let before = self.extents.range(..=at).next_back();
        before.is_some_and(|(_, &stop)| end <= stop)
            || self.writing.is_some_and(|(start, stop)| start <= at && end <= stop)
    }

    pub fn has_dirty(&self) -> bool {
        self.dirty > 0
    }

    /// Nothing is dirty, or in flight to the medium or into the cache.
    pub fn is_clean(&self) -> bool {
        self.dirty == 0 && self.writing.is_none() && self.reserved.is_empty()
    }

    /// Whether destaging is urgent: a command waits for it, or the cache is above three quarters
    /// full and has not come down to half since.
    pub fn pressed(&mut self) -> bool {
        let quarters = |n: u64| {
            self.used() * 4 > self.bytes_max * n
                || self.extents.len() as u64 * 4 > self.extents_max as u64 * n
        };
        let level = if self.pressed { 2 } else { 3 };
        self.pressed = quarters(level);
        self.pressed || !self.waiters.is_empty() || !self.flushes.is_empty()
    }

    /// Takes the next slice for the medium: where the head is soonest. `wait` says how long the
    /// head would take to an address, `run_end` bounds a slice to a contiguous run.
    pub fn take_slice(
        &mut self,
        head: u64,
        wait: impl Fn(u64) -> Nanos,
        run_end: impl Fn(u64) -> u64,
    ) -> (u64, u64) {
        assert!(self.writing.is_none(), "one slice at a time");
        let upwards = self.extents.range(head..).chain(self.extents.range(..head));
        let best = upwards.take(CHOICE_MAX).map(|(&at, _)| (wait(at), at)).min();
        let (soonest, at) = best.expect("has_dirty()");
        let at = if soonest == 0 { at } else { self.first_of_run(at) };
        let end = self.extents[&at];
        let stop = end.min(at + SLICE_MAX).min(run_end(at));
        self.extents.remove(&at);
        if stop < end {
            self.extents.insert(stop, end);
        }
        self.dirty -= stop - at;
        self.writing = Some((at, stop));
        (at, stop)
    }

    /// The first of the extents that lead up to the chosen one with small gaps between them: what
    /// is entered in its middle would be written backwards, a turn for each piece.
    fn first_of_run(&self, chosen: u64) -> u64 {
        let mut first = chosen;
        while let Some((&at, &end)) = self.extents.range(..first).next_back() {
            if end + (self.extents[&first] - first) * GAP_MAX < first {
                break;
            }
            first = at;
        }
        first
    }

    /// The slice taken last is on the medium.
    pub fn slice_done(&mut self) {
        self.writing.take().expect("a slice was taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(ranges: &[(u64, u64)]) -> WriteCache {
        let mut cache = WriteCache::new(1 << 20, 4);
        for &(at, end) in ranges {
            assert!(cache.reserve(at, end));
            cache.arrive(at, end);
        }
        cache
    }

    fn extents(cache: &WriteCache) -> Vec<(u64, u64)> {
        cache.extents.iter().map(|(&at, &end)| (at, end)).collect()
    }

    #[test]
    fn touching_and_overlapping_writes_merge() {
        let cache = filled(&[(10, 20), (30, 40), (20, 25), (50, 60), (35, 55), (12, 14)]);
        assert_eq!(extents(&cache), [(10, 25), (30, 60)]);
        assert_eq!(cache.dirty, 45);
        assert!(cache.covers(12, 25) && !cache.covers(12, 26) && !cache.covers(27, 28));
    }

    #[test]
    fn forgetting_splits_an_extent() {
        let mut cache = filled(&[(0, 10), (20, 50)]);
        cache.forget(5, 30);
        assert_eq!(extents(&cache), [(0, 5), (30, 50)]);
        cache.forget(35, 36);
        assert_eq!(extents(&cache), [(0, 5), (30, 35), (36, 50)]);
        assert_eq!(cache.dirty, 24);
    }

    #[test]
    fn room_is_bounded_by_bytes_and_by_extents() {
        let mut cache = filled(&[(0, 1), (10, 11), (20, 21), (30, 31)]);
        assert!(!cache.reserve(40, 41), "a fifth extent");
        assert!(cache.reserve(31, 41), "joins the fourth");
        assert!(cache.reserve(41, 42), "joins the one that is still on the link");
        assert!(!cache.reserve(42, 42 + (1 << 20)), "too many bytes");
        let mut cache = filled(&[]);
        assert!(cache.reserve(0, 1 << 30), "alone, any size");
    }

    #[test]
    fn the_extent_that_the_head_reaches_first_is_next_and_a_run_is_entered_at_its_beginning() {
        let mut cache = WriteCache::new(1 << 20, 8);
        for at in [10u64, 1_000, 2_000, 2_012, 2_024, 5_000] {
            assert!(cache.reserve(at, at + 10));
            cache.arrive(at, at + 10);
        }
        // Nearest first, but where the head gets to the middle of a run.
        let places = [1_000, 2_024, 10, 5_000, 2_012, 2_000];
        let wait = |at: u64| {
            let place = places.iter().position(|place| *place == at);
            1 + place.expect("an extent begins there") as u64
        };
        let mut order = Vec::new();
        while cache.has_dirty() {
            let (at, _) = cache.take_slice(0, wait, |_| u64::MAX);
            assert!(!cache.is_clean());
            cache.slice_done();
            order.push(at);
        }
        assert_eq!(order, [1_000, 2_000, 2_012, 2_024, 10, 5_000]);
        assert!(cache.is_clean());
    }

    #[test]
    fn pressure_has_hysteresis() {
        let mut cache = WriteCache::new(100, 1000);
        assert!(cache.reserve(0, 80) && cache.pressed());
        cache.arrive(0, 80);
        cache.forget(0, 20);
        assert!(cache.pressed(), "60 of 100, coming down");
        cache.forget(0, 35);
        assert!(!cache.pressed());
        cache.insert(0, 30);
        assert!(!cache.pressed(), "75 of 100, going up");
    }
}
