//! The loop of a resync: which ranges next, and how far it has come.
//!
//! ```text
//! positions   |======== in sync ========|--- at work ---|~~~~~~ to come ~~~~~~|
//!                                position()           next                  span
//! ```
//! Sans-io: an executor asks for ranges, sends each as a [`crate::HostOp::Resync`] request to the
//! shard that owns it, reports how it ended, and now and then tells the keeper the position.
//!
//! Invariant: everything below `position` is in sync. A range that could not be synced holds the
//! position at its start for good; what lies behind it is synced all the same.

use std::collections::VecDeque;
use std::ops::Range;

use md::Sector;

use crate::GRANULE_SECTORS;

/// Positions of one request unless told otherwise: 512 KiB.
pub const DEFAULT_RESYNC_STEP: u64 = 1024;

/// Requests of a resync that are at work together unless told otherwise.
pub const DEFAULT_RESYNC_DEPTH: usize = 8;

struct Part {
    range: Range<u64>,
    ended: bool,
}

/// See the module's documentation.
pub struct Resync {
    run: u32,
    /// What is left to be sent, in ascending order.
    left: VecDeque<Range<u64>>,
    /// What was sent, in ascending order, from the first that has not ended.
    open: VecDeque<Part>,
    at_work: usize,
    span: u64,
    step: u64,
    /// No range crosses a multiple of this.
    unit: u64,
    depth: usize,
    paused: bool,
    stuck_at: Option<u64>,
    failed: u64,
}

impl Resync {
    pub(crate) fn new(run: u32, from: u64, span: u64) -> Resync {
        Resync::of_ranges(run, std::iter::once(from..span).collect(), span)
    }

    /// Over ascending ranges; what lies between them is in sync.
    pub(crate) fn of_ranges(run: u32, ranges: VecDeque<Range<u64>>, span: u64) -> Resync {
        let mut left: VecDeque<Range<u64>> = VecDeque::new();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            // Whole granules: a member's block may be as large.
            let start = range.start / GRANULE_SECTORS * GRANULE_SECTORS;
            let range = start..range.end.next_multiple_of(GRANULE_SECTORS).min(span);
            match left.back_mut() {
                Some(last) if last.end >= range.start => last.end = range.end,
                _ => left.push_back(range),
            }
        }
        Resync {
            run,
            left,
            open: VecDeque::new(),
            at_work: 0,
            span,
            step: DEFAULT_RESYNC_STEP,
            unit: u64::MAX,
            depth: DEFAULT_RESYNC_DEPTH,
            paused: false,
            stuck_at: None,
            failed: 0,
        }
    }

    /// Goes into [`crate::KeeperInput::ResyncAt`].
    pub fn run(&self) -> u32 {
        self.run
    }

    /// Sets the positions of one request (at most [`crate::MAX_REQUEST_SECTORS`]; whole granules)
    /// and how many may be at work together. Takes effect with the next range.
    ///
    /// # Panics
    /// If the step is not within its bounds.
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

    /// Sends no more, or goes on. What is at work ends.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Adds the next ranges to `out`, at most `room`: for each, a request with this position and
    /// length, whose outcome goes to [`Resync::done`].
    pub fn next(&mut self, room: usize, out: &mut Vec<(Sector, u64)>) {
        let room = room.min(self.depth.saturating_sub(self.at_work));
        for _ in 0..if self.paused { 0 } else { room } {
            let Some(range) = self.left.front_mut() else { return };
            // Steps end at multiples of themselves, so that chunks are not cut needlessly.
            let behind = |unit: u64| (range.start / unit + 1).saturating_mul(unit);
            let end = behind(self.step).min(behind(self.unit)).min(range.end);
            let part = range.start..end;
            range.start = end;
            if range.is_empty() {
                self.left.pop_front();
            }
            out.push((Sector(part.start), part.end - part.start));
            self.open.push_back(Part { range: part, ended: false });
            self.at_work += 1;
        }
    }

    /// The range from `at` ended; `in_sync`: it is in sync now.
    ///
    /// # Panics
    /// If no such range is at work.
    pub fn done(&mut self, at: Sector, in_sync: bool) {
        let part = self.open.iter_mut().find(|part| part.range.start == at.0 && !part.ended);
        let part = part.expect("the range is at work");
        part.ended = true;
        self.at_work -= 1;
        if !in_sync {
            self.failed += part.range.end - part.range.start;
            self.stuck_at = Some(self.stuck_at.map_or(at.0, |stuck| stuck.min(at.0)));
        }
        while self.open.front().is_some_and(|part| part.ended) {
            self.open.pop_front();
        }
    }

    /// Everything below is in sync.
    pub fn position(&self) -> u64 {
        let open = self.open.front().map(|part| part.range.start);
        let next = self.left.front().map_or(self.span, |range| range.start);
        open.unwrap_or(next).min(self.stuck_at.unwrap_or(u64::MAX))
    }

    /// Whether nothing is left to do.
    pub fn is_done(&self) -> bool {
        self.left.is_empty() && self.open.is_empty()
    }

    /// Positions that could not be synced.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Positions in requests that have not ended or not begun.
    pub fn remaining(&self) -> u64 {
        let open = self.open.iter().filter(|part| !part.ended).map(|part| &part.range);
        open.chain(&self.left).map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_trails_the_oldest_range_at_work() {
        let mut resync = Resync::new(1, 104, 5000);
        let mut ranges = Vec::new();
        resync.next(3, &mut ranges);
        assert_eq!(ranges, [(Sector(104), 920), (Sector(1024), 1024), (Sector(2048), 1024)]);
        resync.done(Sector(1024), true);
        assert_eq!(resync.position(), 104);
        resync.done(Sector(104), true);
        assert_eq!(resync.position(), 2048);
        resync.pause(true);
        resync.next(9, &mut ranges);
        assert_eq!(ranges.len(), 3);
        resync.pause(false);
        resync.next(9, &mut ranges);
        for (at, _) in ranges.drain(2..) {
            assert!(!resync.is_done());
            resync.done(at, true);
        }
        assert!(resync.is_done());
        assert_eq!((resync.position(), resync.remaining()), (5000, 0));
    }

    #[test]
    fn a_range_that_fails_holds_the_position_for_good() {
        let mut resync = Resync::new(1, 0, 4096);
        let mut ranges = Vec::new();
        resync.next(9, &mut ranges);
        for (at, _) in ranges {
            resync.done(at, at.0 != 1024);
        }
        assert!(resync.is_done());
        assert_eq!((resync.position(), resync.failed()), (1024, 1024));
    }

    #[test]
    fn no_range_belongs_to_two_shards() {
        let mut resync = Resync::new(1, 0, 3000);
        resync.keep_within(1000);
        let mut ranges = Vec::new();
        resync.next(9, &mut ranges);
        let starts: Vec<u64> = ranges.iter().map(|(at, _)| at.0).collect();
        assert_eq!(starts, [0, 1000, 1024, 2000, 2048]);
    }

    #[test]
    fn only_what_is_in_need_is_walked() {
        let ranges = VecDeque::from([64..128, 128..192, 1024..1088]);
        let mut resync = Resync::of_ranges(1, ranges, 1 << 20);
        assert_eq!(resync.position(), 64);
        let mut ranges = Vec::new();
        resync.next(9, &mut ranges);
        assert_eq!(ranges, [(Sector(64), 128), (Sector(1024), 64)]);
        resync.done(Sector(64), true);
        assert_eq!(resync.position(), 1024);
        resync.done(Sector(1024), true);
        assert_eq!(resync.position(), 1 << 20);
    }
}
