//! Scrubs: when one may begin, and how far it has come.
//!
//! Invariant: a scrub that is stopped, or whose driver stops, ends with the ranges in flight. Part
//! of `driver`.

use engine::{
    BackgroundLoop, BackgroundWork, DEFAULT_RESYNC_STEP, HostOp, Mismatch, RequestError, ScrubMode,
};
use md::Kind;

use super::Driver;
use crate::executor::Report;

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
        let step = match self.geometry().kind() {
            Kind::Striped(_) => return false,
            Kind::Mirrored(mirrored) if mirrored.copies() < 2 => return false,
            Kind::Mirrored(mirrored) => self.background_step(mirrored.copies() as u64),
            Kind::Parity(_) => DEFAULT_RESYNC_STEP,
        };
        let is_running = self.loop_of(BackgroundWork::Check).is_some_and(BackgroundLoop::is_active);
        if step == 0 || is_running {
            return false;
        }
        self.begin_once(HostOp::Scrub(mode), step, from);
        true
    }

    /// How far the last scrub has come.
    pub fn scrub(&self) -> Option<ScrubStatus> {
        let walk = self.loop_of(BackgroundWork::Check)?.walk()?;
        let (skipped, error) = walk.skipped();
        Some(ScrubStatus {
            position: walk.position(),
            span: walk.span(),
            checked: walk.succeeded(),
            skipped,
            error,
            is_done: walk.is_done(),
        })
    }

    /// Ends a scrub once its ranges in flight have ended: [`ScrubStatus::position`] is where it can
    /// be resumed.
    pub fn stop_scrub(&mut self) {
        self.cancel(BackgroundWork::Check);
    }

    /// What scrubs have found in this shard since the last call.
    pub fn take_mismatches(&mut self) -> Vec<Report<Mismatch>> {
        self.executor.take_mismatches()
    }
}
