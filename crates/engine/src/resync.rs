//! One run of a resync: which ranges are next, and how far it has come.
//!
//! ```text
//! positions   |======== in sync ========|--- at work ---|~~~~~~ to come ~~~~~~|
//!                                position()           next                  span
//! ```
//! Each range becomes a [`crate::HostOp::Resync`] request to the shard that owns it. Called from
//! `background_loop`, which reports the position to the metadata manager.
//!
//! Invariant: everything below `position` is in sync. A range that could not be synced holds the
//! position at its start; ranges behind it are synced all the same, and then it is retried, at
//! increasing intervals while it fails.

use std::collections::VecDeque;
use std::ops::Range;

use md::Sector;

use crate::{BackgroundProgress, GRANULE_SECTORS, RequestError};

/// Default number of positions per request: 512 KiB.
pub const DEFAULT_RESYNC_STEP: u64 = 1024;

/// Default number of resync requests in flight.
pub(crate) const DEFAULT_RESYNC_DEPTH: usize = 8;

/// Interval before failed ranges are retried: 1 s at first, doubled each time.
const RETRY_NANOS: u64 = 1_000_000_000;

/// Longest retry interval after a lack of space.
const LONGEST_FOR_SPACE_NANOS: u64 = 64 * RETRY_NANOS;

/// Longest retry interval of unreadable ranges, which may be many and are mostly permanent.
const LONGEST_NANOS: u64 = 4096 * RETRY_NANOS;

/// Limit on separate failed ranges; adjacent ones are merged above it.
const FAILED_PIECES: usize = 64;

/// One run of a resync; see the module documentation.
pub struct Resync {
    run: u32,
    /// Ranges that were not sent yet, in ascending order.
    left: VecDeque<Range<u64>>,
    /// Ranges in flight.
    open: Vec<Range<u64>>,
    /// Ranges that could not be synced.
    failed: Vec<Range<u64>>,
    /// Error of the last of them.
    trouble: Option<RequestError>,
    retry_nanos: u64,
    /// Set while only failed ranges are left.
    retry_at: Option<u64>,
    span: u64,
    step: u64,
    /// No range crosses a multiple of this.
    unit: u64,
    depth: usize,
}

impl Resync {
    /// Over ascending ranges; the gaps between them are in sync.
    pub(crate) fn of_ranges(
        run: u32,
        ranges: impl IntoIterator<Item = Range<u64>>,
        span: u64,
    ) -> Resync {
        Resync {
            run,
            left: merge(ranges, span),
            open: Vec::new(),
            failed: Vec::new(),
            trouble: None,
            retry_nanos: RETRY_NANOS,
            retry_at: None,
            span,
            step: DEFAULT_RESYNC_STEP,
            unit: u64::MAX,
            depth: DEFAULT_RESYNC_DEPTH,
        }
    }

    /// Of everything; for arrays without metadata.
    pub fn whole(span: u64) -> Resync {
        Resync::of_ranges(0, std::iter::once(0..span), span)
    }

    /// How far it has come.
    pub fn progress(&self) -> BackgroundProgress {
        let (position, remaining) = (self.position(), self.remaining());
        BackgroundProgress { position, total: self.span, remaining }
    }

    /// The number of the run, for [`crate::MetadataInput::ResyncAt`].
    pub fn run(&self) -> u32 {
        self.run
    }

    /// Number of positions of the array, whether the resync visits them or not.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Sets the positions per request (at most [`crate::MAX_REQUEST_SECTORS`]; whole granules) and
    /// the number of requests in flight. Takes effect with the next range.
    ///
    /// # Panics
    /// If the step is out of bounds.
    pub fn set_pace(&mut self, step: u64, depth: usize) {
        let sound =
            step > 0 && step.is_multiple_of(GRANULE_SECTORS) && step <= crate::MAX_REQUEST_SECTORS;
        assert!(sound, "{step} sectors are no step of a resync");
        self.step = step;
        self.depth = depth;
    }

    /// Lets no range cross a multiple of `positions`, so that each belongs to one shard: see
    /// [`crate::IntentMap::unit_positions`] and [`crate::IntentMap::array_sector`].
    ///
    /// # Panics
    /// If it is 0.
    pub fn keep_within(&mut self, positions: u64) {
        assert!(positions > 0, "a unit has positions");
        self.unit = positions;
    }

    /// The next range, if the depth allows one: submit a request with this position and length, and
    /// pass its result to [`Resync::done`].
    pub fn next_range(&mut self) -> Option<(Sector, u64)> {
        if self.open.len() >= self.depth {
            return None;
        }
        let range = self.left.front_mut()?;
        // Steps end at multiples of themselves, so that chunks are not cut needlessly.
        let behind = |unit: u64| (range.start / unit + 1).saturating_mul(unit);
        let end = behind(self.step).min(behind(self.unit)).min(range.end);
        let part = range.start..end;
        range.start = end;
        if range.is_empty() {
            self.left.pop_front();
        }
        self.open.push(part.clone());
        Some((Sector(part.start), part.end - part.start))
    }

    /// The range from `at` ended at time `now`; `Ok`: it is in sync.
    ///
    /// # Panics
    /// If no such range is in flight.
    pub fn done(&mut self, now: u64, at: Sector, result: Result<(), RequestError>) {
        let part = self.open.iter().position(|part| part.start == at.0);
        let part = self.open.swap_remove(part.expect("the range is at work"));
        match result {
            Ok(()) => self.retry_nanos = RETRY_NANOS,
            Err(error) => {
                self.failed.push(part);
                self.trouble = Some(error);
                if self.failed.len().is_multiple_of(FAILED_PIECES) {
                    self.gather_failed();
                }
            }
        }
        if self.left.is_empty() && self.open.is_empty() && !self.failed.is_empty() {
            self.retry_at = Some(now + self.retry_nanos);
            let longest = match self.trouble {
                Some(RequestError::NoSpace | RequestError::NoMemory) => LONGEST_FOR_SPACE_NANOS,
                _ => LONGEST_NANOS,
            };
            self.retry_nanos = (2 * self.retry_nanos).min(longest);
        }
    }

    fn gather_failed(&mut self) {
        self.failed.sort_unstable_by_key(|range| range.start);
        self.failed = merge(self.failed.drain(..), self.span).into();
    }

    /// Queues failed ranges again when their retry is due.
    pub fn tick(&mut self, now: u64) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.gather_failed();
            self.left = std::mem::take(&mut self.failed).into();
        }
    }

    /// When [`Resync::tick`] must be called.
    pub fn retry_at(&self) -> Option<u64> {
        self.retry_at
    }

    /// Everything below is in sync.
    pub fn position(&self) -> u64 {
        let next = self.left.front().map_or(self.span, |range| range.start);
        let others = self.open.iter().chain(&self.failed).map(|range| range.start);
        others.fold(next, u64::min)
    }

    /// Whether a range could be sent now.
    pub fn has_next(&self) -> bool {
        !self.left.is_empty() && self.open.len() < self.depth
    }

    /// Whether everything is in sync.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.open.is_empty() && self.failed.is_empty()
    }

    /// Why it is stalled: all ranges have been tried, and some could not be synced. They are
    /// retried; see [`Resync::retry_at`].
    pub fn stalled(&self) -> Option<RequestError> {
        self.retry_at.and(self.trouble)
    }

    /// Number of positions that could not be synced.
    pub fn failed(&self) -> u64 {
        self.failed.iter().map(|range| range.end - range.start).sum()
    }

    /// The ranges that could not be synced, in no order.
    pub(crate) fn failed_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.failed.iter().cloned()
    }

    /// Number of positions that are not in sync yet.
    pub fn remaining(&self) -> u64 {
        let all = self.open.iter().chain(&self.left).chain(&self.failed);
        all.map(|range| range.end - range.start).sum()
    }
}

/// Ascending ranges in whole granules (a member's block may be as large); adjacent ones are merged.
fn merge(ranges: impl IntoIterator<Item = Range<u64>>, span: u64) -> VecDeque<Range<u64>> {
    let mut merged: VecDeque<Range<u64>> = VecDeque::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        let start = range.start / GRANULE_SECTORS * GRANULE_SECTORS;
        let range = start..range.end.next_multiple_of(GRANULE_SECTORS).min(span);
        match merged.back_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push_back(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next ranges, at most `room`.
    fn next(resync: &mut Resync, room: usize) -> Vec<(Sector, u64)> {
        std::iter::from_fn(|| resync.next_range()).take(room).collect()
    }

    #[test]
    fn position_trails_the_oldest_range_at_work() {
        let mut resync = Resync::of_ranges(1, std::iter::once(104..5000), 5000);
        let mut ranges = next(&mut resync, 3);
        assert_eq!(ranges, [(Sector(104), 920), (Sector(1024), 1024), (Sector(2048), 1024)]);
        resync.done(0, Sector(1024), Ok(()));
        assert_eq!(resync.position(), 104);
        resync.done(0, Sector(104), Ok(()));
        assert_eq!(resync.position(), 2048);
        ranges.extend(next(&mut resync, 9));
        for (at, _) in ranges.drain(2..) {
            assert!(!resync.is_done());
            resync.done(0, at, Ok(()));
        }
        assert!(resync.is_done());
        assert_eq!((resync.position(), resync.remaining()), (5000, 0));
    }

    #[test]
    fn a_range_that_fails_holds_the_position_and_is_tried_again_later_and_later() {
        let mut resync = Resync::of_ranges(1, std::iter::once(0..4096), 4096);
        for (at, _) in next(&mut resync, 9) {
            assert_eq!(resync.stalled(), None, "something is still at work");
            let full = Err(RequestError::NoSpace);
            resync.done(100, at, if at.0 == 1024 { full } else { Ok(()) });
        }
        assert_eq!((resync.position(), resync.failed(), resync.is_done()), (1024, 1024, false));
        assert_eq!(resync.stalled(), Some(RequestError::NoSpace));
        let mut now = 100;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128] {
            assert_eq!(resync.retry_at(), Some(now + seconds * RETRY_NANOS));
            now += seconds * RETRY_NANOS;
            resync.tick(now - 1);
            assert!(!resync.has_next());
            resync.tick(now);
            assert!(resync.has_next() && resync.stalled().is_none());
            assert_eq!(next(&mut resync, 9), [(Sector(1024), 1024)]);
            resync.done(now, Sector(1024), Err(RequestError::Io));
            assert_eq!(resync.stalled(), Some(RequestError::Io));
        }
        resync.tick(now + 256 * RETRY_NANOS);
        next(&mut resync, 9);
        resync.done(0, Sector(1024), Ok(()));
        assert!(resync.is_done());
        assert_eq!((resync.position(), resync.retry_at()), (4096, None));
    }

    #[test]
    fn failed_ranges_are_kept_in_few_pieces() {
        let mut resync = Resync::of_ranges(1, std::iter::once(0..1 << 20), 1 << 20);
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            while resync.has_next() {
                for (at, _) in next(&mut resync, 8) {
                    resync.done(now, at, Err(RequestError::NoSpace));
                    assert!(resync.failed.len() <= FAILED_PIECES);
                }
            }
            assert_eq!(resync.retry_at(), Some(now + seconds * RETRY_NANOS));
            assert_eq!((resync.failed(), resync.remaining()), (1 << 20, 1 << 20));
            now += seconds * RETRY_NANOS;
            resync.tick(now);
        }
    }

    #[test]
    fn no_range_belongs_to_two_shards() {
        let mut resync = Resync::of_ranges(1, std::iter::once(0..3000), 3000);
        resync.keep_within(1000);
        let starts: Vec<u64> = next(&mut resync, 9).iter().map(|(at, _)| at.0).collect();
        assert_eq!(starts, [0, 1000, 1024, 2000, 2048]);
    }

    #[test]
    fn only_ranges_that_need_a_resync_are_walked() {
        let ranges = [64..128, 128..192, 1024..1088];
        let mut resync = Resync::of_ranges(1, ranges, 1 << 20);
        assert_eq!(resync.position(), 64);
        assert_eq!(next(&mut resync, 9), [(Sector(64), 128), (Sector(1024), 64)]);
        resync.done(0, Sector(64), Ok(()));
        assert_eq!(resync.position(), 1024);
        resync.done(0, Sector(1024), Ok(()));
        assert_eq!(resync.position(), 1 << 20);
    }
}
