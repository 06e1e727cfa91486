//! A walk over ranges of positions (see [`crate::IntentMap`]): which are next, and how far it has
//! come.
//!
//! ```text
//! positions   |========== done =========|-- in flight --|~~~~~~ to come ~~~~~~|
//!                                position()           next                  span
//! ```
//! Each range becomes a request to the shard that owns it. Called from `background_loop`.
//!
//! Invariant: everything below `position` is done. Of a resync or a rebuild, a range that failed
//! holds the position at its start; ranges behind it are done all the same, and then it is retried,
//! at increasing intervals while it fails. A scrub skips it.

use std::collections::VecDeque;
use std::ops::Range;

use md::Sector;

use crate::{BackgroundProgress, GRANULE_SECTORS, RequestError};

/// Default number of positions per request: 512 KiB.
pub const DEFAULT_RESYNC_STEP: u64 = 1024;

/// Default number of requests in flight.
pub(crate) const DEFAULT_DEPTH: usize = 8;

/// Interval before failed ranges are retried: 1 s at first, doubled each time.
const RETRY_NANOS: u64 = 1_000_000_000;

/// Longest retry interval after a lack of space.
const LONGEST_FOR_SPACE_NANOS: u64 = 64 * RETRY_NANOS;

/// Longest retry interval of unreadable ranges, which may be many and are mostly permanent.
const LONGEST_NANOS: u64 = 4096 * RETRY_NANOS;

/// Limit on separate failed ranges; adjacent ones are merged above it.
const FAILED_PIECES: usize = 64;

/// What becomes of ranges that failed.
#[derive(Clone, Copy)]
enum Failures {
    Retry,
    Skip,
}

/// A walk over ranges; see the module documentation.
pub struct Walk {
    run: u32,
    failures: Failures,
    /// Ranges that were not sent yet, in ascending order.
    left: VecDeque<Range<u64>>,
    /// Ranges in flight.
    open: Vec<Range<u64>>,
    /// Ranges that failed and are to be retried.
    failed: Vec<Range<u64>>,
    /// Positions of ranges that failed and are skipped.
    skipped: u64,
    /// Error of the last range that failed.
    error: Option<RequestError>,
    /// Positions of ranges that succeeded.
    succeeded: u64,
    retry_nanos: u64,
    /// Set while only failed ranges are left.
    retry_at: Option<u64>,
    span: u64,
    /// Where it ends: behind all ranges, or where it was stopped.
    end: u64,
    step: u64,
    /// No range crosses a multiple of this.
    unit: u64,
    depth: usize,
}

impl Walk {
    /// A resync or a rebuild of ascending ranges; the gaps between them are in sync.
    pub(crate) fn of_ranges(
        run: u32,
        ranges: impl IntoIterator<Item = Range<u64>>,
        span: u64,
    ) -> Walk {
        Walk {
            run,
            failures: Failures::Retry,
            left: merge(ranges, span),
            open: Vec::new(),
            failed: Vec::new(),
            skipped: 0,
            error: None,
            succeeded: 0,
            retry_nanos: RETRY_NANOS,
            retry_at: None,
            span,
            end: span,
            step: DEFAULT_RESYNC_STEP,
            unit: u64::MAX,
            depth: DEFAULT_DEPTH,
        }
    }

    /// A scrub from this position on.
    pub(crate) fn of_scrub(from: u64, span: u64) -> Walk {
        let failures = Failures::Skip;
        Walk { failures, ..Walk::of_ranges(0, std::iter::once(from..span), span) }
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

    /// Number of positions, whether the walk visits them or not.
    pub fn span(&self) -> u64 {
        self.span
    }

    /// Limits the positions per request to `step` (at most [`crate::MAX_REQUEST_SECTORS`]; whole
    /// granules) and the requests in flight to `depth`. No range crosses a multiple of `unit`, so
    /// that each belongs to one shard: see [`crate::IntentMap::unit_positions`]. Takes effect with
    /// the next range.
    ///
    /// # Panics
    /// If the step is out of bounds, or the unit is 0.
    pub(crate) fn limit(&mut self, step: u64, unit: u64, depth: usize) {
        let sound =
            step > 0 && step.is_multiple_of(GRANULE_SECTORS) && step <= crate::MAX_REQUEST_SECTORS;
        assert!(sound, "{step} sectors are no step of a walk");
        assert!(unit > 0, "a unit has positions");
        (self.step, self.unit, self.depth) = (step, unit, depth);
    }

    /// The next range, if the depth allows one: submit a request with this position and length, and
    /// pass its result to [`Walk::done`].
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

    /// The range from `at` ended at time `now`; an error: not all of it could be done.
    ///
    /// # Panics
    /// If no such range is in flight.
    pub fn done(&mut self, now: u64, at: Sector, result: Result<(), RequestError>) {
        let part = self.open.iter().position(|part| part.start == at.0);
        let part = self.open.swap_remove(part.expect("the range is in flight"));
        self.error = result.err().or(self.error);
        match (result, self.failures) {
            (Ok(()), _) => {
                self.succeeded += part.end - part.start;
                self.retry_nanos = RETRY_NANOS;
            }
            (Err(_), Failures::Skip) => self.skipped += part.end - part.start,
            (Err(_), Failures::Retry) => {
                self.failed.push(part);
                if self.failed.len().is_multiple_of(FAILED_PIECES) {
                    self.gather_failed();
                }
            }
        }
        if self.left.is_empty() && self.open.is_empty() && !self.failed.is_empty() {
            self.retry_at = Some(now + self.retry_nanos);
            let longest = match self.error {
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

    /// When [`Walk::tick`] must be called.
    pub fn retry_at(&self) -> Option<u64> {
        self.retry_at
    }

    /// Begins no more ranges: [`Walk::position`] is where another walk can continue once those in
    /// flight have ended.
    pub(crate) fn stop(&mut self) {
        self.end = self.left.front().map_or(self.end, |range| range.start);
        self.left.clear();
    }

    /// Everything below is done, or was skipped.
    pub fn position(&self) -> u64 {
        let next = self.left.front().map_or(self.end, |range| range.start);
        let others = self.open.iter().chain(&self.failed).map(|range| range.start);
        others.fold(next, u64::min)
    }

    /// Whether a range could be sent now.
    pub fn has_next(&self) -> bool {
        !self.left.is_empty() && self.open.len() < self.depth
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.open.is_empty() && self.failed.is_empty()
    }

    /// Why it is stalled: all ranges have been tried, and some failed. They are retried; see
    /// [`Walk::retry_at`].
    pub fn stalled(&self) -> Option<RequestError> {
        self.retry_at.and(self.error)
    }

    /// Positions of ranges that succeeded.
    pub fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// Positions of ranges that failed and are not retried, and the last error.
    pub fn skipped(&self) -> (u64, Option<RequestError>) {
        (self.skipped, self.error)
    }

    /// Positions of ranges that failed and are retried.
    pub fn failed(&self) -> u64 {
        self.failed.iter().map(|range| range.end - range.start).sum()
    }

    /// The ranges that failed and are retried, in no order.
    pub(crate) fn failed_ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.failed.iter().cloned()
    }

    /// Positions that are not done yet.
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
    fn next(walk: &mut Walk, room: usize) -> Vec<(Sector, u64)> {
        std::iter::from_fn(|| walk.next_range()).take(room).collect()
    }

    #[test]
    fn position_trails_the_oldest_range_in_flight() {
        let mut walk = Walk::of_ranges(1, std::iter::once(104..5000), 5000);
        let mut ranges = next(&mut walk, 3);
        assert_eq!(ranges, [(Sector(104), 920), (Sector(1024), 1024), (Sector(2048), 1024)]);
        walk.done(0, Sector(1024), Ok(()));
        assert_eq!(walk.position(), 104);
        walk.done(0, Sector(104), Ok(()));
        assert_eq!(walk.position(), 2048);
        ranges.extend(next(&mut walk, 9));
        for (at, _) in ranges.drain(2..) {
            assert!(!walk.is_done());
            walk.done(0, at, Ok(()));
        }
        assert!(walk.is_done());
        assert_eq!((walk.position(), walk.remaining()), (5000, 0));
    }

    #[test]
    fn a_range_that_fails_holds_the_position_and_is_tried_again_later_and_later() {
        let mut walk = Walk::of_ranges(1, std::iter::once(0..4096), 4096);
        for (at, _) in next(&mut walk, 9) {
            assert_eq!(walk.stalled(), None, "something is still in flight");
            let full = Err(RequestError::NoSpace);
            walk.done(100, at, if at.0 == 1024 { full } else { Ok(()) });
        }
        assert_eq!((walk.position(), walk.failed(), walk.is_done()), (1024, 1024, false));
        assert_eq!(walk.stalled(), Some(RequestError::NoSpace));
        let mut now = 100;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128] {
            assert_eq!(walk.retry_at(), Some(now + seconds * RETRY_NANOS));
            now += seconds * RETRY_NANOS;
            walk.tick(now - 1);
            assert!(!walk.has_next());
            walk.tick(now);
            assert!(walk.has_next() && walk.stalled().is_none());
            assert_eq!(next(&mut walk, 9), [(Sector(1024), 1024)]);
            walk.done(now, Sector(1024), Err(RequestError::Io));
            assert_eq!(walk.stalled(), Some(RequestError::Io));
        }
        walk.tick(now + 256 * RETRY_NANOS);
        next(&mut walk, 9);
        walk.done(0, Sector(1024), Ok(()));
        assert!(walk.is_done());
        assert_eq!((walk.position(), walk.retry_at()), (4096, None));
    }

    #[test]
    fn failed_ranges_are_kept_in_few_pieces() {
        let mut walk = Walk::of_ranges(1, std::iter::once(0..1 << 20), 1 << 20);
        let mut now = 0;
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            while walk.has_next() {
                for (at, _) in next(&mut walk, 8) {
                    walk.done(now, at, Err(RequestError::NoSpace));
                    assert!(walk.failed.len() <= FAILED_PIECES);
                }
            }
            assert_eq!(walk.retry_at(), Some(now + seconds * RETRY_NANOS));
            assert_eq!((walk.failed(), walk.remaining()), (1 << 20, 1 << 20));
            now += seconds * RETRY_NANOS;
            walk.tick(now);
        }
    }

    #[test]
    fn no_range_belongs_to_two_shards() {
        let mut walk = Walk::of_ranges(1, std::iter::once(0..3000), 3000);
        walk.limit(1024, 1000, 8);
        let starts: Vec<u64> = next(&mut walk, 9).iter().map(|(at, _)| at.0).collect();
        assert_eq!(starts, [0, 1000, 1024, 2000, 2048]);
    }

    #[test]
    fn only_ranges_that_need_a_resync_are_walked() {
        let ranges = [64..128, 128..192, 1024..1088];
        let mut walk = Walk::of_ranges(1, ranges, 1 << 20);
        assert_eq!(walk.position(), 64);
        assert_eq!(next(&mut walk, 9), [(Sector(64), 128), (Sector(1024), 64)]);
        walk.done(0, Sector(64), Ok(()));
        assert_eq!(walk.position(), 1024);
        walk.done(0, Sector(1024), Ok(()));
        assert_eq!(walk.position(), 1 << 20);
    }

    #[test]
    fn a_scrub_skips_what_fails_and_is_stopped_behind_what_is_in_flight() {
        let mut walk = Walk::of_scrub(104, 1000);
        walk.limit(256, 640, 2);
        assert_eq!(next(&mut walk, 9), [(Sector(104), 152), (Sector(256), 256)], "two in flight");
        walk.done(0, Sector(256), Ok(()));
        assert_eq!((walk.position(), walk.succeeded()), (104, 256));
        assert_eq!(walk.next_range(), Some((Sector(512), 128)), "a unit ends");
        walk.done(0, Sector(104), Err(RequestError::Io));
        assert_eq!((walk.position(), walk.stalled()), (512, None));
        assert_eq!(walk.skipped(), (152, Some(RequestError::Io)));
        walk.stop();
        assert_eq!((walk.next_range(), walk.is_done()), (None, false));
        walk.done(0, Sector(512), Ok(()));
        assert!(walk.is_done() && walk.retry_at().is_none());
        walk.stop();
        assert_eq!((walk.position(), walk.span()), (640, 1000));
    }
}
