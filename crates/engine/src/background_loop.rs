//! The resyncs or the rebuilds of an array, one after the other, or a scrub: which ranges are next,
//! how many are in flight, what is reported of them.
//!
//! ```text
//! MetadataManager --runs--> BackgroundLoop --next_range()--> HostOp::{Resync, Rebuild, Scrub}
//!        ^                    |     ^                              |
//!        +---- ResyncAt, -----+     +------------ done() ----------+
//!              RebuildAt
//! ```
//! A resync is one run over all positions, and so is a scrub. A rebuild on RAID 4, 5 and 6 is one
//! run for all members that need it, over the rows. On RAID 1 and 10 each member has a run of its
//! own, in the order of its sectors, so that it is written sequentially and its progress is a
//! recovery offset of md.
//!
//! Sans-io: an executor submits the ranges of [`BackgroundLoop::next_range`], passes their results
//! to [`BackgroundLoop::done`], calls [`BackgroundLoop::tick`] when [`BackgroundLoop::deadline`]
//! has passed, and performs the effects.
//!
//! Invariant: everything below a run's position is in sync, on its members; of a scrub, it was
//! compared, or skipped with an error. Ranges in flight belong to the current runs; others begin
//! when they have completed, and if they were cancelled, when that is ordered. The position is
//! reported to the metadata manager whenever a range has completed, and recorded when the loop was
//! cancelled; of a scrub it is neither.

use md::{Geometry, MemberIdx, Sector};

use crate::walk::DEFAULT_DEPTH;
use crate::{
    BackgroundProgress, BackgroundRun, BackgroundState, HostOp, IntentMap, MetadataInput,
    RequestError, Walk,
};

/// Parts of an array whose resync is an event, [`BackgroundEffect::Progress`].
pub const RESYNC_PARTS: u64 = 16;

/// Rebuilt positions that are in flight at least, in sectors: 4 MiB.
const IN_FLIGHT_SECTORS: u64 = 8192;
/// Bounds of the number of requests in flight of a rebuild.
const DEPTHS: (u64, u64) = (8, 32);

/// A range of background work: submit a request with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundRange {
    /// The operation: [`HostOp::Resync`], [`HostOp::Rebuild`] or [`HostOp::Scrub`].
    pub op: HostOp,
    /// First position.
    pub at: Sector,
    /// Number of positions.
    pub sectors: u64,
    /// The run, and the first of its positions: of a rebuild a sector of the members.
    key: (usize, Sector),
}

/// An effect of the loop.
#[derive(Clone, Debug)]
pub enum BackgroundEffect {
    /// Pass this to the metadata manager.
    Report(MetadataInput),
    /// Runs have begun.
    Began {
        /// Number of the runs.
        run: u32,
        /// Everything below is in sync.
        position: u64,
        /// Number of positions that are out of sync: of a rebuild sectors of members.
        sectors: u64,
    },
    /// A resync has completed another part of the array.
    Progress {
        /// The run's number.
        run: u32,
        /// Everything below is in sync.
        position: u64,
        /// Completed parts of [`RESYNC_PARTS`].
        parts: u64,
    },
    /// No run can continue, for another reason than last time or with more or fewer ranges: a note
    /// for the administrator.
    Stalled {
        /// Error of the last range that failed.
        why: RequestError,
        /// Number of positions that failed.
        sectors: u64,
    },
    /// All runs have ended.
    Completed {
        /// Number of the runs.
        run: u32,
    },
}

/// The loop; see the module documentation.
pub struct BackgroundLoop {
    op: HostOp,
    geometry: Geometry,
    runs: Vec<BackgroundRun>,
    /// The first of the runs that have ended last.
    ended: Option<Walk>,
    step: u64,
    unit: u64,
    /// Runs should begin when those in flight have completed.
    is_needed: bool,
    /// Its runs are given at the start, and no others ever.
    is_only: bool,
    in_flight: usize,
    /// Error and failed positions of the last [`BackgroundEffect::Stalled`].
    stalled: Option<(RequestError, u64)>,
    /// Completed parts of a resync as last reported.
    parts: u64,
    is_paused: bool,
    is_cancelled: bool,
    has_stopped: bool,
}

impl BackgroundLoop {
    /// The resyncs or the rebuilds of an array that is being started: [`HostOp::Resync`] or
    /// [`HostOp::Rebuild`]. A request has `step` positions at most, whole granules up to
    /// [`crate::MAX_REQUEST_SECTORS`], and crosses no multiple of `unit` positions.
    pub fn new(op: HostOp, geometry: Geometry, step: u64, unit: u64) -> BackgroundLoop {
        BackgroundLoop {
            op,
            geometry,
            runs: Vec::new(),
            ended: None,
            step,
            unit,
            is_needed: true,
            is_only: false,
            in_flight: 0,
            stalled: None,
            parts: 0,
            is_paused: false,
            is_cancelled: false,
            has_stopped: false,
        }
    }

    /// One run, begun at once and never replaced by another one: a scrub from this position on, or
    /// a resync of an array without metadata. As [`BackgroundLoop::new`] otherwise.
    pub fn once(op: HostOp, geometry: Geometry, step: u64, unit: u64, from: u64) -> BackgroundLoop {
        let span = IntentMap::whole_array(&geometry).span();
        let ranges = match op {
            HostOp::Scrub(_) => Walk::of_scrub(from, span),
            _ => Walk::of_ranges(0, std::iter::once(from..span), span),
        };
        let mut background = BackgroundLoop::new(op, geometry, step, unit);
        (background.is_needed, background.is_only) = (false, true);
        let mut effects = Vec::new();
        background.begin(vec![BackgroundRun { member: None, ranges }], &mut effects);
        background.end_if_done(&mut effects);
        background
    }

    /// The operation of its ranges.
    pub fn op(&self) -> HostOp {
        self.op
    }

    /// [`crate::MetadataEffect::ResyncNeeded`], [`crate::MetadataEffect::RebuildNeeded`]: the
    /// current runs no longer cover everything.
    pub fn needed(&mut self) {
        self.is_needed = true;
    }

    /// [`crate::MetadataEffect::BecameReadOnly`]: the current runs are dropped.
    pub fn became_read_only(&mut self) {
        self.runs.clear();
    }

    /// [`crate::MetadataEffect::Stopped`]: no range begins any more.
    pub fn stopped(&mut self) {
        self.has_stopped = true;
    }

    /// Pauses or resumes. Ranges in flight complete.
    pub fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    /// Cancels: no range begins until [`BackgroundLoop::begin_again`]. Those in flight complete,
    /// then the positions are recorded. A scrub ends with them, and does not begin again.
    pub fn cancel(&mut self, out: &mut Vec<BackgroundEffect>) {
        if let HostOp::Scrub(_) = self.op {
            self.runs.iter_mut().for_each(|run| run.ranges.stop());
            return self.end_if_done(out);
        }
        if !std::mem::replace(&mut self.is_cancelled, true) && self.in_flight == 0 {
            out.push(BackgroundEffect::Report(MetadataInput::Checkpoint));
        }
    }

    /// What was cancelled begins again, where it was. Returns whether it was cancelled.
    pub fn begin_again(&mut self) -> bool {
        let was = std::mem::take(&mut self.is_cancelled);
        self.is_needed |= was && !self.is_only;
        was
    }

    /// Whether it was cancelled, and no range is in flight any more.
    fn is_at_rest(&self) -> bool {
        self.is_cancelled && self.in_flight == 0
    }

    /// True: no range begins.
    fn is_held(&self) -> bool {
        self.is_paused || self.is_cancelled || self.has_stopped
    }

    /// Retries failed ranges whose time has come.
    pub fn tick(&mut self, now: u64) {
        self.runs.iter_mut().for_each(|run| run.ranges.tick(now));
    }

    /// When [`BackgroundLoop::tick`] must be called.
    pub fn deadline(&self) -> Option<u64> {
        let runs = self.runs.iter().filter(|_| !self.is_paused && !self.is_cancelled);
        runs.filter_map(|run| run.ranges.retry_at()).min()
    }

    /// The next range, if there is one: pass its result to [`BackgroundLoop::done`]. Begins the
    /// runs that are needed: `runs` gives them ([`crate::MetadataManager::resync`],
    /// [`crate::MetadataManager::rebuilds`]).
    pub fn next_range(
        &mut self,
        runs: impl FnOnce() -> Vec<BackgroundRun>,
        out: &mut Vec<BackgroundEffect>,
    ) -> Option<BackgroundRange> {
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

    fn end_if_done(&mut self, out: &mut Vec<BackgroundEffect>) {
        let is_done = self.runs.iter().all(|run| run.ranges.is_done());
        if is_done && let Some(first) = self.runs.drain(..).next() {
            out.push(BackgroundEffect::Completed { run: first.ranges.run() });
            self.ended = Some(first.ranges);
        }
    }

    fn begin(&mut self, runs: Vec<BackgroundRun>, out: &mut Vec<BackgroundEffect>) {
        self.parts = 0;
        self.runs = runs;
        // On RAID 10, what follows on a member lies apart in the array.
        let chunk = match (self.op, self.geometry.kind()) {
            (HostOp::Rebuild, md::Kind::Mirrored(_)) if self.geometry.chunk_sectors() > 0 => {
                self.geometry.chunk_sectors()
            }
            _ => u64::MAX,
        };
        let depth = match self.op {
            HostOp::Rebuild => {
                let least = self.step.min(chunk).max(1);
                (IN_FLIGHT_SECTORS / least).clamp(DEPTHS.0, DEPTHS.1) as usize
            }
            _ => DEFAULT_DEPTH,
        };
        for run in &mut self.runs {
            run.ranges.limit(self.step, self.unit.min(chunk), depth);
        }
        let sectors = self.runs.iter().map(|run| run.ranges.remaining()).sum();
        if let Some(first) = self.runs.first() {
            let (run, position) = (first.ranges.run(), first.ranges.position());
            out.push(BackgroundEffect::Began { run, position, sectors });
        }
        // Of members that lack nothing, no range will end.
        (0..self.runs.len()).for_each(|run| self.report(run, out));
    }

    fn next_of(&mut self, run: usize, out: &mut Vec<BackgroundEffect>) -> Option<BackgroundRange> {
        loop {
            let BackgroundRun { member, ranges } = &mut self.runs[run];
            let (first, sectors) = ranges.next_range()?;
            let (op, key) = (self.op, (run, first));
            let (md::Kind::Mirrored(mirrored), Some(place)) = (self.geometry.kind(), *member)
            else {
                return Some(BackgroundRange { op, at: first, sectors, key });
            };
            let member = MemberIdx(place.0 % self.geometry.members() as u16);
            // The last row may have blocks that the array does not use.
            if let Some(at) = mirrored.array_sector_of(member, first) {
                let sectors = sectors.min(self.geometry.array_sectors() - at.0);
                return Some(BackgroundRange { op, at, sectors, key });
            }
            ranges.done(0, first, Ok(()));
            self.report(run, out);
        }
    }

    /// A range has ended at time `now`; `Ok`: it is in sync, or compared.
    ///
    /// # Panics
    /// If the range is not in flight.
    pub fn done(
        &mut self,
        now: u64,
        range: BackgroundRange,
        result: Result<(), RequestError>,
        out: &mut Vec<BackgroundEffect>,
    ) {
        self.in_flight = self.in_flight.checked_sub(1).expect("the range is in flight");
        let (run, first) = range.key;
        // Dropped when the array became read-only.
        let Some(BackgroundRun { ranges, .. }) = self.runs.get_mut(run) else { return };
        ranges.done(now, first, result);
        let failed = self.runs.iter().map(|run| run.ranges.failed()).sum();
        let stalled = self.stalled().map(|why| (why, failed));
        if let Some((why, sectors)) = stalled.filter(|_| stalled != self.stalled) {
            self.stalled = stalled;
            out.push(BackgroundEffect::Stalled { why, sectors });
        }
        self.report(run, out);
        self.end_if_done(out);
        if self.is_at_rest() {
            out.push(BackgroundEffect::Report(MetadataInput::Checkpoint));
        }
    }

    /// Error of a run that is stalled, when no other can continue either.
    fn stalled(&self) -> Option<RequestError> {
        let goes_on = |run: &BackgroundRun| !run.ranges.is_done() && run.ranges.stalled().is_none();
        let mut stalled = self.runs.iter().filter_map(|run| run.ranges.stalled());
        stalled.next().filter(|_| !self.runs.iter().any(goes_on))
    }

    fn report(&mut self, run: usize, out: &mut Vec<BackgroundEffect>) {
        let BackgroundRun { member, ranges } = &self.runs[run];
        let (run, position, stalled) = (ranges.run(), ranges.position(), self.stalled());
        out.push(BackgroundEffect::Report(match self.op {
            HostOp::Resync => MetadataInput::ResyncAt { run, position, stalled },
            HostOp::Rebuild => {
                let member = *member;
                MetadataInput::RebuildAt { run, member, position, stalled }
            }
            _ => return,
        }));
        let parts = position / (ranges.span() / RESYNC_PARTS).max(1);
        if self.op == HostOp::Resync && parts > self.parts && !ranges.is_done() {
            self.parts = parts;
            out.push(BackgroundEffect::Progress { run, position, parts });
        }
    }

    /// Ranges that failed so far: the member (`None`: all that are being rebuilt; by its place, see
    /// [`crate::Effect`]), first position, number of positions.
    pub fn failed(&self) -> Vec<(Option<MemberIdx>, Sector, u64)> {
        let mut failed = Vec::new();
        for BackgroundRun { member, ranges } in &self.runs {
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

    /// The walk of a loop with one run: of the current one, or of the last one.
    pub fn walk(&self) -> Option<&Walk> {
        self.runs.first().map(|run| &run.ranges).or(self.ended.as_ref())
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

    /// Whether [`BackgroundLoop::next_range`] should be called although no range completes.
    pub fn has_next(&self) -> bool {
        self.has_room() && !self.is_in_flight()
    }

    /// Whether one more range could be in flight.
    pub fn has_room(&self) -> bool {
        let is_due = self.is_needed && self.in_flight == 0;
        let has_next = || !self.is_needed && self.runs.iter().any(|run| run.ranges.has_next());
        (is_due || has_next()) && !self.is_held()
    }
}

#[cfg(test)]
mod tests {
    use md::{GeometrySpec, Layout, Level};

    use super::*;

    #[test]
    fn a_scrub_skips_what_fails_and_has_ended_when_it_was_cancelled() {
        let spec = GeometrySpec {
            level: Level::Raid1,
            layout: Layout::None,
            chunk_sectors: 0,
            member_sectors: vec![4096; 2],
        };
        let op = HostOp::Scrub(crate::ScrubMode::Repair);
        let geometry = Geometry::new(&spec).expect("a valid array");
        let mut scrub = BackgroundLoop::once(op, geometry, 1024, u64::MAX, 1024);
        let mut effects = Vec::new();
        let next = |scrub: &mut BackgroundLoop| scrub.next_range(Vec::new, &mut Vec::new());
        let first = next(&mut scrub).expect("a range");
        assert_eq!((first.op, first.at, first.sectors), (op, Sector(1024), 1024));
        scrub.pause(true);
        assert_eq!(next(&mut scrub), None);
        scrub.done(0, first, Err(RequestError::Io), &mut effects);
        let (state, progress) = scrub.progress().expect("it has not ended");
        assert_eq!((state, progress.position), (BackgroundState::Paused, 2048));
        scrub.pause(false);
        let second = next(&mut scrub).expect("a range");
        scrub.cancel(&mut effects);
        assert!(next(&mut scrub).is_none() && scrub.is_active() && effects.is_empty());
        scrub.done(0, second, Ok(()), &mut effects);
        assert!(matches!(effects[..], [BackgroundEffect::Completed { .. }]));
        assert!(!scrub.is_active() && scrub.progress().is_none() && !scrub.begin_again());
        let walk = scrub.walk().expect("the last one");
        assert_eq!((walk.position(), walk.succeeded()), (3072, 1024));
        assert_eq!(walk.skipped(), (1024, Some(RequestError::Io)));
    }
}
