//! The resyncs of an array, one after the other: when one begins, how many ranges are in flight,
//! what is reported of it.
//!
//! ```text
//! MetadataManager --resync()--> ResyncLoop --next_range()--> HostOp::Resync requests
//!        ^                       |     ^                              |
//!        +------- ResyncAt ------+     +------------ done() ----------+
//! ```
//! Sans-io: an executor submits the ranges of [`ResyncLoop::next_range`], passes their results to
//! [`ResyncLoop::done`], calls [`ResyncLoop::tick`] when [`ResyncLoop::deadline`] has passed, and
//! performs the effects.
//!
//! Invariant: ranges in flight belong to one run; the next run begins when they have completed. The
//! position of a run is reported to the metadata manager whenever a range has completed. One that
//! was cancelled has its position recorded, and no other begins until it is ordered to.

use md::Sector;

use crate::{
    BackgroundProgress, BackgroundState, DEFAULT_RESYNC_DEPTH, MetadataInput, MetadataManager,
    RequestError, Resync,
};

/// Parts of an array whose completion is an event, [`ResyncEffect::Progress`].
pub const RESYNC_PARTS: u64 = 16;

/// An effect of the loop.
#[derive(Clone, Debug)]
pub enum ResyncEffect {
    /// Pass this to the metadata manager.
    Report(MetadataInput),
    /// A run has begun.
    Began {
        /// Its number.
        run: u32,
        /// Everything below is in sync.
        position: u64,
    },
    /// A run has completed another part of the array.
    Progress {
        /// Its number.
        run: u32,
        /// Everything below is in sync.
        position: u64,
        /// Completed parts of [`RESYNC_PARTS`].
        parts: u64,
    },
    /// A run has stalled, for another reason than last time or with more or fewer ranges: a note
    /// for the administrator.
    Stalled {
        /// Error of the last range that could not be synced.
        why: RequestError,
    },
    /// A run has ended: everything is in sync.
    Completed {
        /// Its number.
        run: u32,
    },
}

/// The loop; see the module documentation.
pub struct ResyncLoop {
    resync: Option<Resync>,
    step: u64,
    unit: u64,
    /// A run should begin when the current one has completed its ranges in flight.
    is_needed: bool,
    in_flight: usize,
    /// Error and failed positions of the last [`ResyncEffect::Stalled`].
    stalled: Option<(RequestError, u64)>,
    /// Completed parts of the current run as last reported.
    parts: u64,
    is_paused: bool,
    is_cancelled: bool,
    has_stopped: bool,
}

impl ResyncLoop {
    /// The loop of an array that is being started; the metadata manager decides whether it needs a
    /// resync. `step` is the maximum of positions per request, see [`Resync::set_pace`]; no range
    /// crosses a multiple of `unit`, see [`Resync::keep_within`].
    pub fn new(step: u64, unit: u64) -> ResyncLoop {
        ResyncLoop {
            resync: None,
            step,
            unit,
            is_needed: true,
            in_flight: 0,
            stalled: None,
            parts: 0,
            is_paused: false,
            is_cancelled: false,
            has_stopped: false,
        }
    }

    /// [`crate::MetadataEffect::ResyncNeeded`]: the current run no longer covers everything.
    pub fn needed(&mut self) {
        self.is_needed = true;
    }

    /// [`crate::MetadataEffect::BecameReadOnly`]: the current run is dropped.
    pub fn became_read_only(&mut self) {
        self.resync = None;
    }

    /// [`crate::MetadataEffect::Stopped`]: no run begins any more.
    pub fn stopped(&mut self) {
        self.has_stopped = true;
    }

    /// Pauses or resumes. Ranges in flight complete.
    pub fn pause(&mut self, paused: bool) {
        self.is_paused = paused;
    }

    /// Cancels: no range begins until [`ResyncLoop::begin_again`]. Those in flight complete, then
    /// the position is recorded.
    pub fn cancel(&mut self, out: &mut Vec<ResyncEffect>) {
        if !std::mem::replace(&mut self.is_cancelled, true) && self.in_flight == 0 {
            out.push(ResyncEffect::Report(MetadataInput::Checkpoint));
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

    /// Retries failed ranges whose time has come.
    pub fn tick(&mut self, now: u64) {
        if let Some(resync) = &mut self.resync {
            resync.tick(now);
        }
    }

    /// When [`ResyncLoop::tick`] must be called.
    pub fn deadline(&self) -> Option<u64> {
        let is_held = self.is_paused || self.is_cancelled;
        self.resync.as_ref().filter(|_| !is_held).and_then(Resync::retry_at)
    }

    /// The next range, if there is one: submit a request with this position and length, and pass
    /// its result to [`ResyncLoop::done`]. Begins a run that is needed.
    pub fn next_range(
        &mut self,
        manager: &mut MetadataManager,
        out: &mut Vec<ResyncEffect>,
    ) -> Option<(Sector, u64)> {
        if self.is_cancelled {
            return None;
        }
        if self.is_needed && self.in_flight == 0 && !self.has_stopped && !self.is_paused {
            self.is_needed = false;
            self.begin(manager.resync(), out);
        }
        let resync = self.resync.as_mut().filter(|_| !self.is_paused && !self.is_needed)?;
        let next = resync.next_range()?;
        self.in_flight += 1;
        Some(next)
    }

    fn begin(&mut self, resync: Option<Resync>, out: &mut Vec<ResyncEffect>) {
        self.parts = 0;
        self.resync = resync;
        if let Some(resync) = &mut self.resync {
            resync.set_pace(self.step, DEFAULT_RESYNC_DEPTH);
            resync.keep_within(self.unit);
            out.push(ResyncEffect::Began { run: resync.run(), position: resync.position() });
        }
        self.report(out);
    }

    /// The range from `at` ended at time `now`; `Ok`: it is in sync.
    ///
    /// # Panics
    /// If no such range is in flight.
    pub fn done(
        &mut self,
        now: u64,
        at: Sector,
        result: Result<(), RequestError>,
        out: &mut Vec<ResyncEffect>,
    ) {
        self.in_flight = self.in_flight.checked_sub(1).expect("the range is in flight");
        let Some(resync) = &mut self.resync else { return };
        resync.done(now, at, result);
        if let Some(why) = resync.stalled() {
            let reported = self.stalled.replace((why, resync.failed()));
            if reported != self.stalled {
                out.push(ResyncEffect::Stalled { why });
            }
        }
        self.report(out);
        if self.is_at_rest() {
            out.push(ResyncEffect::Report(MetadataInput::Checkpoint));
        }
    }

    /// Reports the position, and drops a run that has ended.
    fn report(&mut self, out: &mut Vec<ResyncEffect>) {
        let Some(resync) = &self.resync else { return };
        let (run, position, stalled) = (resync.run(), resync.position(), resync.stalled());
        out.push(ResyncEffect::Report(MetadataInput::ResyncAt { run, position, stalled }));
        let parts = position / (resync.span() / RESYNC_PARTS).max(1);
        if resync.is_done() {
            out.push(ResyncEffect::Completed { run });
            self.resync = None;
        } else if parts > self.parts {
            self.parts = parts;
            out.push(ResyncEffect::Progress { run, position, parts });
        }
    }

    /// The current run, if there is one: whether it makes progress, and how far it has come.
    pub fn progress(&self) -> Option<(BackgroundState, BackgroundProgress)> {
        let resync = self.resync.as_ref()?;
        let state = match resync.stalled() {
            _ if self.is_at_rest() => BackgroundState::Cancelled,
            _ if self.is_paused => BackgroundState::Paused,
            Some(why) => BackgroundState::Stalled(why),
            None => BackgroundState::Running,
        };
        Some((state, resync.progress()))
    }

    /// Whether ranges are in flight.
    pub fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether a run has not ended, in progress or paused, or should begin; not one that was
    /// cancelled.
    pub fn is_active(&self) -> bool {
        (self.resync.is_some() || self.is_needed) && !self.is_at_rest()
    }

    /// Whether [`ResyncLoop::next_range`] should be called although no range completes.
    pub fn has_next(&self) -> bool {
        let has_next = self.is_needed || self.resync.as_ref().is_some_and(Resync::has_next);
        let is_held = self.is_paused || self.is_cancelled || self.has_stopped;
        has_next && !is_held && self.in_flight == 0
    }
}
