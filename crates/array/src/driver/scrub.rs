//! Scrubs: the driver submits the ranges of one, as it does those of a resync.
//!
//! Invariant: ranges of a scrub leave room for hosts: more than one are in flight only while there
//! is room for requests, and none where hosts have all buffers. A scrub waits for resyncs and
//! rebuilds: what is out of sync proves nothing. One that is stopped, or whose driver stops, ends
//! the ranges in flight. Part of `driver`.

use engine::{BackgroundProgress, BackgroundState, BackgroundWork};
use engine::{DEFAULT_RESYNC_STEP, HostOp, Mismatch, RequestError, Scrub};
use engine::{IntentMap, ScrubMode};
use md::{Kind, Sector};

use super::{Driver, OwnRange};
use crate::executor::Report;

/// Ranges of a scrub in flight at most.
const DEPTH: usize = 8;

/// A scrub of an array.
pub(super) struct RunningScrub {
    mode: ScrubMode,
    ranges: Scrub,
    /// Copies of each block; a request's buffer has room for all of them. 0: it needs none.
    copies: u64,
    /// Hosts have all buffers.
    lacks_buffer: bool,
    is_paused: bool,
}

/// How far a scrub has come, in positions: sectors of a member on RAID 4, 5 and 6, of the array on
/// RAID 1 and 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Everything below was compared, or skipped with an error.
    pub position: u64,
    /// The end.
    pub span: u64,
    /// Positions that were compared.
    pub checked: u64,
    /// Positions of requests that ended with an error.
    pub skipped: u64,
    /// The last of these errors.
    pub error: Option<RequestError>,
    /// Whether nothing is left to do.
    pub is_done: bool,
}

impl Driver {
    /// Begins a scrub at this position, in place of one that has ended. `false`: the array has no
    /// redundancy, a scrub is running, or host buffers are too small for 4 KiB of each copy.
    pub fn start_scrub(&mut self, mode: ScrubMode, from: u64) -> bool {
        let is_running = self.scrub.as_ref().is_some_and(|scrub| !scrub.ranges.is_done());
        let geometry = self.geometry();
        let copies = match geometry.kind() {
            Kind::Striped(_) => return false,
            Kind::Mirrored(mirrored) if mirrored.copies() < 2 => return false,
            Kind::Mirrored(mirrored) => mirrored.copies() as u64,
            Kind::Parity(_) => 0,
        };
        if is_running {
            return false;
        }
        let map = IntentMap::whole_array(geometry);
        let unit = self.background_unit();
        let lease = self.leases.lease_bytes() as u64 / md::SECTOR_BYTES;
        let step = match copies {
            0 => DEFAULT_RESYNC_STEP,
            copies => (lease / copies).min(DEFAULT_RESYNC_STEP) / 8 * 8,
        };
        if step == 0 {
            return false;
        }
        let ranges = Scrub::new(from, map.span(), step, unit, DEPTH);
        tracing::info!(?mode, from, span = map.span(), "scrub started");
        self.scrub =
            Some(RunningScrub { mode, ranges, copies, lacks_buffer: false, is_paused: false });
        true
    }

    /// How far the last scrub has come.
    pub fn scrub(&self) -> Option<ScrubStatus> {
        let RunningScrub { ranges, .. } = self.scrub.as_ref()?;
        let (skipped, error) = ranges.skipped();
        Some(ScrubStatus {
            position: ranges.position(),
            span: ranges.span(),
            checked: ranges.checked(),
            skipped,
            error,
            is_done: ranges.is_done(),
        })
    }

    /// Ends a scrub once its ranges in flight have ended: [`ScrubStatus::position`] is where it can
    /// be resumed.
    pub fn stop_scrub(&mut self) {
        if let Some(scrub) = &mut self.scrub {
            scrub.ranges.stop();
        }
    }

    /// Pauses or resumes a scrub. Ranges in flight complete. One that is stopped is not paused any
    /// more.
    pub fn pause_scrub(&mut self, paused: bool) {
        if let Some(scrub) = &mut self.scrub {
            tracing::debug!(paused, "scrub paused or resumed");
            scrub.is_paused = paused;
        }
    }

    /// A scrub that has not ended, and how far it has come.
    pub(super) fn scrub_progress(
        &self,
    ) -> Option<(BackgroundWork, BackgroundState, BackgroundProgress)> {
        let scrub = self.scrub.as_ref().filter(|scrub| !scrub.ranges.is_done())?;
        let work = match scrub.mode {
            ScrubMode::Check => BackgroundWork::Check,
            ScrubMode::Repair | ScrubMode::RepairOrResync => BackgroundWork::Repair,
        };
        let state = match scrub.is_paused {
            true => BackgroundState::Paused,
            false => BackgroundState::Running,
        };
        Some((work, state, scrub.ranges.progress()))
    }

    /// What scrubs have found in this shard since the last call.
    pub fn take_mismatches(&mut self) -> Vec<Report<Mismatch>> {
        self.executor.take_mismatches()
    }

    pub(super) fn is_scrubbing(&self) -> bool {
        self.scrub.as_ref().is_some_and(|scrub| scrub.ranges.is_in_flight())
    }

    /// Whether `poll` would submit a range although nothing has completed.
    pub(super) fn is_scrub_due(&self) -> bool {
        let lacks_buffer = self.scrub.as_ref().is_some_and(|scrub| scrub.lacks_buffer);
        self.may_scrub() && !self.is_scrubbing() && !lacks_buffer
    }

    /// Whether there are ranges to submit.
    pub(super) fn may_scrub(&self) -> bool {
        let has_next = |scrub: &RunningScrub| !scrub.is_paused && scrub.ranges.has_next();
        self.scrub.as_ref().is_some_and(has_next) && !self.is_before_scrub()
    }

    /// Issues the next ranges.
    pub(super) fn feed_scrub(&mut self) {
        while self.may_scrub() && self.may_begin_range(self.io.now) {
            let Some(scrub) = &mut self.scrub else { return };
            let mut lease = None;
            if scrub.copies > 0 {
                lease = self.leases.take(self.leases.lease_bytes());
                scrub.lacks_buffer = lease.is_none();
                if lease.is_none() {
                    return;
                }
            }
            let Some((at, sectors)) = scrub.ranges.next_range() else { return };
            let op = HostOp::Scrub(scrub.mode);
            if let Some(lease) = &mut lease {
                lease.set_len((scrub.copies * sectors * md::SECTOR_BYTES) as usize);
            }
            self.submit_range(OwnRange::Scrub(at, sectors), op, (at, sectors), lease);
        }
    }

    pub(super) fn scrub_done(&mut self, at: Sector, result: Result<(), RequestError>) {
        let scrub = self.scrub.as_mut().expect("its range has ended");
        scrub.ranges.done(at, result);
        if scrub.ranges.is_done() {
            let (checked, (skipped, _)) = (scrub.ranges.checked(), scrub.ranges.skipped());
            tracing::info!(checked, skipped, "scrub ended");
        }
    }
}
