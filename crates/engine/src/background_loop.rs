//! The resyncs or the rebuilds of an array, one after the other: which ranges are next, how many
//! are in flight, what is reported of them.
//!
//! ```text
//! MetadataManager --runs--> BackgroundLoop --next_range()--> HostOp::Resync, HostOp::Rebuild
//!        ^                    |     ^                              |
//!        +---- ResyncAt, -----+     +------------ done() ----------+
//!              RebuildAt
//! ```
//! A resync is one run over all positions. A rebuild on RAID 4, 5 and 6 is one run for all members
//! that need it, over the rows. On RAID 1 and 10 each member has a run of its own, in the order of
//! its sectors, so that it is written sequentially and its progress is a recovery offset of md.
//!
//! Sans-io: an executor submits the ranges of [`BackgroundLoop::next_range`], passes their results
//! to [`BackgroundLoop::done`], calls [`BackgroundLoop::tick`] when [`BackgroundLoop::deadline`]
//! has passed, and performs the effects.
//!
//! Invariant: everything below a run's position is in sync, on its members. Ranges in flight belong
//! to the current runs; others begin when they have completed, and if they were cancelled, when
//! that is ordered. The position is reported to the metadata manager whenever a range has
//! completed, and recorded when the loop was cancelled.

use md::{Geometry, MemberIdx, Sector};

use crate::resync::DEFAULT_RESYNC_DEPTH;
use crate::{
    BackgroundProgress, BackgroundRun, BackgroundState, MetadataInput, RequestError, Resync,
};

/// Parts of an array whose resync is an event, [`BackgroundEffect::Progress`].
pub const RESYNC_PARTS: u64 = 16;

/// Rebuilt positions that are in flight at least, in sectors: 4 MiB.
const IN_FLIGHT_SECTORS: u64 = 8192;
/// Bounds of the number of requests in flight of a rebuild.
const DEPTHS: (u64, u64) = (8, 32);

/// A range that is to be resynced or rebuilt: submit a request with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundRange {
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
        /// Their number.
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
    /// All runs have ended: everything is in sync.
    Completed {
        /// Their number.
        run: u32,
    },
}

/// What a loop's runs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Resync,
    Rebuild,
}

/// The loop; see the module documentation.
pub struct BackgroundLoop {
    kind: Kind,
    geometry: Geometry,
    runs: Vec<BackgroundRun>,
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
    /// The resyncs of an array that is being started. `step`: maximum of positions per request, see
    /// [`crate::Resync::set_pace`]; no request crosses a multiple of `unit` positions.
    pub fn of_resyncs(geometry: Geometry, step: u64, unit: u64) -> BackgroundLoop {
        BackgroundLoop::new(Kind::Resync, geometry, step, unit)
    }

    /// The rebuilds of an array that is being started; as [`BackgroundLoop::of_resyncs`].
    pub fn of_rebuilds(geometry: Geometry, step: u64, unit: u64) -> BackgroundLoop {
        BackgroundLoop::new(Kind::Rebuild, geometry, step, unit)
    }

    /// A resync that is begun at once, and never replaced by another one; for arrays without
    /// metadata.
    pub fn of_resync(
        geometry: Geometry,
        step: u64,
        unit: u64,
        resync: Resync,
        out: &mut Vec<BackgroundEffect>,
    ) -> BackgroundLoop {
        let mut background = BackgroundLoop::new(Kind::Resync, geometry, step, unit);
        (background.is_needed, background.is_only) = (false, true);
        background.begin(BackgroundRun::of_resync(Some(resync)), out);
        background
    }

    fn new(kind: Kind, geometry: Geometry, step: u64, unit: u64) -> BackgroundLoop {
        BackgroundLoop {
            kind,
            geometry,
            runs: Vec::new(),
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
    /// then the positions are recorded.
    pub fn cancel(&mut self, out: &mut Vec<BackgroundEffect>) {
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

    /// Whether nothing begins.
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
        let run = self.runs.first().map(|run| run.ranges.run());
        if let Some(run) = run.filter(|_| self.runs.iter().all(|run| run.ranges.is_done())) {
            self.runs.clear();
            out.push(BackgroundEffect::Completed { run });
        }
    }

    fn begin(&mut self, runs: Vec<BackgroundRun>, out: &mut Vec<BackgroundEffect>) {
        self.parts = 0;
        self.runs = runs;
        // On RAID 10, what follows on a member lies apart in the array.
        let chunk = match (self.kind, self.geometry.kind()) {
            (Kind::Rebuild, md::Kind::Mirrored(_)) if self.geometry.chunk_sectors() > 0 => {
                self.geometry.chunk_sectors()
            }
            _ => u64::MAX,
        };
        let depth = match self.kind {
            Kind::Resync => DEFAULT_RESYNC_DEPTH,
            Kind::Rebuild => {
                let least = self.step.min(chunk).max(1);
                (IN_FLIGHT_SECTORS / least).clamp(DEPTHS.0, DEPTHS.1) as usize
            }
        };
        for run in &mut self.runs {
            run.ranges.set_pace(self.step, depth);
            run.ranges.keep_within(self.unit.min(chunk));
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
            let key = (run, first);
            let (md::Kind::Mirrored(mirrored), Some(place)) = (self.geometry.kind(), *member)
            else {
                return Some(BackgroundRange { at: first, sectors, key });
            };
            let member = MemberIdx(place.0 % self.geometry.members() as u16);
            // The last row may have blocks that the array does not use.
            if let Some(at) = mirrored.array_sector_of(member, first) {
                let sectors = sectors.min(self.geometry.array_sectors() - at.0);
                return Some(BackgroundRange { at, sectors, key });
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
        out.push(BackgroundEffect::Report(match self.kind {
            Kind::Resync => MetadataInput::ResyncAt { run, position, stalled },
            Kind::Rebuild => {
                let member = *member;
                MetadataInput::RebuildAt { run, member, position, stalled }
            }
        }));
        let parts = position / (ranges.span() / RESYNC_PARTS).max(1);
        if self.kind == Kind::Resync && parts > self.parts && !ranges.is_done() {
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
