//! The rebuilds of an array: which ranges of members are next, and what is reported of them.
//!
//! ```text
//! MetadataManager --rebuilds()--> RebuildLoop --next_range()--> HostOp::Rebuild requests
//!        ^                         |     ^                              |
//!        +------- RebuildAt -------+     +------------ done() ----------+
//! ```
//! On RAID 4, 5 and 6 one run rebuilds all members that need it in one pass over the rows. On RAID
//! 1 and 10 each member has a run of its own, in the order of its sectors, so that it is written
//! sequentially and its progress is a recovery offset of md. Sans-io: see [`crate::ResyncLoop`].
//!
//! Invariant: everything below a run's position is in sync on its members. Ranges in flight belong
//! to the current runs; others begin when they have completed, and if they were cancelled, when
//! that is ordered.

use md::{Geometry, Kind, MemberIdx, Sector};

use crate::rebuild::Rebuild;
use crate::{BackgroundProgress, BackgroundState, MetadataInput, RequestError};

/// Rebuilt positions that are in flight at least, in sectors: 4 MiB.
const IN_FLIGHT_SECTORS: u64 = 8192;
/// Bounds of the number of requests in flight.
const DEPTHS: (u64, u64) = (8, 32);

/// A range that is to be rebuilt: submit [`crate::HostOp::Rebuild`] with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RebuildRange {
    /// First position.
    pub at: Sector,
    /// Number of positions.
    pub sectors: u64,
    /// The run, and the first sector of the members.
    key: (usize, Sector),
}

/// An effect of the loop.
#[derive(Clone, Debug)]
pub enum RebuildEffect {
    /// Pass this to the metadata manager.
    Report(MetadataInput),
    /// Runs have begun.
    Began {
        /// Number of sectors of members that are out of sync.
        sectors: u64,
    },
    /// A run has stalled, for another reason than last time or with more or fewer ranges: a note
    /// for the administrator.
    Stalled {
        /// Error of the last range that could not be rebuilt.
        why: RequestError,
        /// Sectors that could not be rebuilt.
        sectors: u64,
    },
    /// All runs have ended.
    Completed,
}

/// The loop; see the module documentation.
pub struct RebuildLoop {
    geometry: Geometry,
    runs: Vec<Rebuild>,
    step: u64,
    unit: u64,
    /// Runs should begin when those in flight have completed.
    is_needed: bool,
    in_flight: usize,
    stalled: Option<(RequestError, u64)>,
    is_paused: bool,
    is_cancelled: bool,
    has_stopped: bool,
}

impl RebuildLoop {
    /// The loop of an array that is being started. `step`: maximum of positions per request; no
    /// request crosses a multiple of `unit` positions.
    pub fn new(geometry: Geometry, step: u64, unit: u64) -> RebuildLoop {
        RebuildLoop {
            geometry,
            runs: Vec::new(),
            step,
            unit,
            is_needed: true,
            in_flight: 0,
            stalled: None,
            is_paused: false,
            is_cancelled: false,
            has_stopped: false,
        }
    }

    /// [`crate::MetadataEffect::RebuildNeeded`]: other members are to be rebuilt than before.
    pub fn needed(&mut self) {
        self.is_needed = true;
    }

    /// [`crate::MetadataEffect::BecameReadOnly`]: the current runs are dropped.
    pub fn became_read_only(&mut self) {
        self.runs.clear();
    }

    /// [`crate::MetadataEffect::Stopped`]: no run begins any more.
    pub fn stopped(&mut self) {
        self.has_stopped = true;
    }

    /// Pauses or resumes. Ranges in flight complete.
    pub fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    /// Cancels: no range begins until [`RebuildLoop::begin_again`]. Those in flight complete, then
    /// the positions are recorded.
    pub fn cancel(&mut self, out: &mut Vec<RebuildEffect>) {
        if !std::mem::replace(&mut self.is_cancelled, true) && self.in_flight == 0 {
            out.push(RebuildEffect::Report(MetadataInput::Checkpoint));
        }
    }

    /// What was cancelled begins again, where it was. Returns whether it was cancelled.
    pub fn begin_again(&mut self) -> bool {
        let was = std::mem::take(&mut self.is_cancelled);
        self.is_needed |= was;
        was
    }

    /// Whether it was cancelled, and no range is in flight any more.
    fn is_at_rest(&self) -> bool {
        self.is_cancelled && self.in_flight == 0
    }

    /// Whether nothing begins.
    fn is_held(&self) -> bool {
        self.is_paused || self.is_cancelled || self.has_stopped
    }

    /// Retries failed ranges whose time has come.
    pub fn tick(&mut self, now: u64) {
        self.runs.iter_mut().for_each(|run| run.ranges.tick(now));
    }

    /// When [`RebuildLoop::tick`] must be called.
    pub fn deadline(&self) -> Option<u64> {
        let runs = self.runs.iter().filter(|_| !self.is_paused && !self.is_cancelled);
        runs.filter_map(|run| run.ranges.retry_at()).min()
    }

    /// The next range, if there is one: pass its result to [`RebuildLoop::done`]. Begins the runs
    /// that are needed: `runs` gives them ([`crate::MetadataManager::rebuilds`]).
    pub fn next_range(
        &mut self,
        runs: impl FnOnce() -> Vec<Rebuild>,
        out: &mut Vec<RebuildEffect>,
    ) -> Option<RebuildRange> {
        if self.is_held() {
            return None;
        }
        if self.is_needed && self.in_flight == 0 {
            self.is_needed = false;
            self.begin(runs(), out);
        }
        if self.is_needed {
            return None;
        }
        for run in 0..self.runs.len() {
            if let Some(range) = self.next_of(run, out) {
                self.in_flight += 1;
                return Some(range);
            }
        }
        self.end_if_done(out);
        None
    }

    fn end_if_done(&mut self, out: &mut Vec<RebuildEffect>) {
        if !self.runs.is_empty() && self.runs.iter().all(|run| run.ranges.is_done()) {
            self.runs.clear();
            out.push(RebuildEffect::Completed);
        }
    }

    fn begin(&mut self, runs: Vec<Rebuild>, out: &mut Vec<RebuildEffect>) {
        self.runs = runs;
        let sectors = self.runs.iter().map(|run| run.ranges.remaining()).sum();
        // On RAID 10, what follows on a member lies apart in the array.
        let chunk = match self.geometry.kind() {
            Kind::Mirrored(_) if self.geometry.chunk_sectors() > 0 => self.geometry.chunk_sectors(),
            _ => u64::MAX,
        };
        for run in &mut self.runs {
            let least = self.step.min(chunk).max(1);
            let depth = (IN_FLIGHT_SECTORS / least).clamp(DEPTHS.0, DEPTHS.1);
            run.ranges.set_pace(self.step, depth as usize);
            run.ranges.keep_within(self.unit.min(chunk));
        }
        if !self.runs.is_empty() {
            out.push(RebuildEffect::Began { sectors });
        }
        // Of members that lack nothing, no range will end.
        (0..self.runs.len()).for_each(|run| self.report(run, out));
    }

    fn next_of(&mut self, run: usize, out: &mut Vec<RebuildEffect>) -> Option<RebuildRange> {
        loop {
            let Rebuild { member, ranges } = &mut self.runs[run];
            let (first, sectors) = ranges.next_range()?;
            let key = (run, first);
            let (Kind::Mirrored(mirrored), Some(place)) = (self.geometry.kind(), *member) else {
                return Some(RebuildRange { at: first, sectors, key });
            };
            let member = MemberIdx(place.0 % self.geometry.members() as u16);
            // The last row may have blocks that the array does not use.
            if let Some(at) = mirrored.array_sector_of(member, first) {
                let sectors = sectors.min(self.geometry.array_sectors() - at.0);
                return Some(RebuildRange { at, sectors, key });
            }
            ranges.done(0, first, Ok(()));
            self.report(run, out);
        }
    }

    /// A range has ended at time `now`; `Ok`: it is in sync.
    ///
    /// # Panics
    /// If the range is not in flight.
    pub fn done(
        &mut self,
        now: u64,
        range: RebuildRange,
        result: Result<(), RequestError>,
        out: &mut Vec<RebuildEffect>,
    ) {
        self.in_flight = self.in_flight.checked_sub(1).expect("the range is in flight");
        let (run, first) = range.key;
        // Dropped when the array became read-only.
        let Some(Rebuild { ranges, .. }) = self.runs.get_mut(run) else { return };
        ranges.done(now, first, result);
        let failed = self.runs.iter().map(|run| run.ranges.failed()).sum();
        let stalled = self.stalled().map(|why| (why, failed));
        if let Some((why, sectors)) = stalled.filter(|_| stalled != self.stalled) {
            self.stalled = stalled;
            out.push(RebuildEffect::Stalled { why, sectors });
        }
        self.report(run, out);
        self.end_if_done(out);
        if self.is_at_rest() {
            out.push(RebuildEffect::Report(MetadataInput::Checkpoint));
        }
    }

    /// Error of a run that is stalled, when no other can continue either.
    fn stalled(&self) -> Option<RequestError> {
        let goes_on = |run: &Rebuild| !run.ranges.is_done() && run.ranges.stalled().is_none();
        let mut stalled = self.runs.iter().filter_map(|run| run.ranges.stalled());
        stalled.next().filter(|_| !self.runs.iter().any(goes_on))
    }

    fn report(&self, run: usize, out: &mut Vec<RebuildEffect>) {
        let Rebuild { member, ranges } = &self.runs[run];
        let (run, position, stalled) = (ranges.run(), ranges.position(), self.stalled());
        let member = *member;
        out.push(RebuildEffect::Report(MetadataInput::RebuildAt {
            run,
            member,
            position,
            stalled,
        }));
    }

    /// Ranges that could not be rebuilt so far, in sectors of the members: the member (`None`: all
    /// that are being rebuilt; by its place, see [`crate::Effect`]), first sector, length.
    pub fn failed(&self) -> Vec<(Option<MemberIdx>, Sector, u64)> {
        let mut failed = Vec::new();
        for Rebuild { member, ranges } in &self.runs {
            failed.extend(
                ranges
                    .failed_ranges()
                    .map(|range| (*member, Sector(range.start), range.end - range.start)),
            );
        }
        failed
    }

    /// Whether the runs make progress, and how far they have come together; `None` without any.
    pub fn progress(&self) -> Option<(BackgroundState, BackgroundProgress)> {
        let mut runs = self.runs.iter().map(|run| run.ranges.progress());
        let first = runs.next()?;
        let progress = runs.fold(first, |all, run| BackgroundProgress {
            position: all.position + run.position,
            total: all.total + run.total,
            remaining: all.remaining + run.remaining,
        });
        let state = match self.stalled() {
            _ if self.is_at_rest() => BackgroundState::Cancelled,
            _ if self.is_paused => BackgroundState::Paused,
            Some(why) => BackgroundState::Stalled(why),
            None => BackgroundState::Running,
        };
        Some((state, progress))
    }

    /// Whether ranges are in flight.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether runs have not ended, in progress or paused, or should begin; not if they were
    /// cancelled.
    pub fn is_active(&self) -> bool {
        (!self.runs.is_empty() || self.is_needed) && !self.is_at_rest()
    }

    /// Whether [`RebuildLoop::next_range`] should be called although no range completes.
    pub fn has_next(&self) -> bool {
        let has_next = self.is_needed || self.runs.iter().any(|run| run.ranges.has_next());
        has_next && !self.is_held() && self.in_flight == 0
    }

    /// Whether one more range could be in flight.
    pub fn has_room(&self) -> bool {
        let is_due = self.is_needed && self.in_flight == 0;
        let has_next = || !self.is_needed && self.runs.iter().any(|run| run.ranges.has_next());
        (is_due || has_next()) && !self.is_held()
    }
}
