//! Background work of an array, begun anew whenever a pass has ended.
//!
//! Invariant: at most one pass runs. Made by `background`; the runner calls [`BackgroundRun::tend`]
//! between two polls of shard 0.

use array::{BackgroundWork, Driver, Member, ScrubMode};
use md::MemberIdx;

use crate::provision::MdSync;

/// Block of a measurement of background work alone, bytes: that of its ranges.
pub const RANGE_BYTES: u64 = 512 << 10;

/// Background work of an array, pass after pass.
pub enum BackgroundRun {
    /// Of the engine's array.
    Engine(EngineRun),
    /// Of an array of md below the target.
    Md(MdSync),
}

impl BackgroundRun {
    /// Bytes of each member that the work has passed so far.
    pub fn member_bytes(&self, driver: &Driver) -> u64 {
        match self {
            BackgroundRun::Engine(run) => run.member_bytes(driver),
            BackgroundRun::Md(sync) => sync.member_bytes(),
        }
    }

    /// Begins another pass if the last one has ended. Of shard 0.
    pub fn tend(&mut self, driver: &mut Driver) {
        match self {
            BackgroundRun::Engine(run) => run.tend(driver),
            BackgroundRun::Md(sync) => sync.tend(),
        }
    }
}

/// Background work of the engine.
pub struct EngineRun {
    pub(crate) work: BackgroundWork,
    /// Of a rebuild: the slot, and the member that gets it in each pass.
    pub(crate) joining: Option<(MemberIdx, Box<dyn Member>)>,
    pub(crate) is_joining: bool,
    /// Positions of a member for each position of the work.
    pub(crate) of_member: f64,
    /// Members that lack before a rebuild begins, besides the one that is rebuilt.
    pub(crate) degraded: usize,
}

impl EngineRun {
    fn member_bytes(&self, driver: &Driver) -> u64 {
        let sectors = driver.background_done(self.work) as f64 * self.of_member;
        (sectors * md::SECTOR_BYTES as f64) as u64
    }

    pub(crate) fn tend(&mut self, driver: &mut Driver) {
        let is_running = match self.work {
            BackgroundWork::Resync => driver.is_resyncing(),
            BackgroundWork::Rebuild | BackgroundWork::Replace => driver.is_rebuilding(),
            BackgroundWork::Check | BackgroundWork::Repair => {
                driver.scrub().is_some_and(|scrub| !scrub.is_done)
            }
        };
        if is_running {
            self.is_joining = false;
            return;
        }
        match (self.work, &self.joining) {
            (BackgroundWork::Resync, _) => drop(driver.start_resync()),
            (BackgroundWork::Check | BackgroundWork::Repair, _) => {
                driver.start_scrub(ScrubMode::Check, 0);
            }
            (BackgroundWork::Rebuild, Some((slot, member))) => {
                if !driver.failed().contains(slot.0) {
                    driver.fail_member(*slot);
                } else if !self.is_joining
                    && let Some(member) = member.share()
                {
                    // Not yet where a shard has not dropped the former one.
                    self.is_joining = driver.add_member(*slot, member).is_ok();
                }
            }
            (BackgroundWork::Rebuild | BackgroundWork::Replace, _) => {}
        }
    }
}
