//! Which members serve, and since when.
//!
//! Invariant: a failed member gets no further I/O from this shard, and no member is dropped whose
//! loss would make data unavailable (as md keeps the last working copy). Every loss begins a new
//! epoch; `recorded` trails `epoch` until the control plane has made the loss durable, and writes
//! are acknowledged only when the two are equal.

use md::{Geometry, MemberIdx};

use crate::{ControlEvent, Effect, Effects, IoError, MemberSet};

pub(crate) struct Health {
    failed: MemberSet,
    epoch: u64,
    recorded: u64,
    /// The losses so far cannot be recorded.
    unrecordable: bool,
    /// Writes are refused, and nothing is repaired.
    read_only: bool,
    /// Copies are in sync below this position.
    in_sync_below: u64,
    /// Number of out-of-sync reports that this shard has sent.
    reports: u64,
}

impl Health {
    pub(crate) fn new(missing: MemberSet, in_sync_below: u64) -> Health {
        Health {
            failed: missing,
            epoch: 0,
            recorded: 0,
            unrecordable: false,
            read_only: false,
            in_sync_below,
            reports: 0,
        }
    }

    #[inline]
    pub(crate) fn failed(&self) -> MemberSet {
        self.failed
    }

    #[inline]
    pub(crate) fn is_failed(&self, member: u16) -> bool {
        self.failed.contains(member)
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.recorded == self.epoch
    }

    pub(crate) fn record(&mut self, epoch: u64) {
        self.recorded = self.recorded.max(epoch.min(self.epoch));
    }

    pub(crate) fn is_unrecordable(&self) -> bool {
        self.unrecordable
    }

    pub(crate) fn give_up_recording(&mut self) {
        self.unrecordable = true;
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    pub(crate) fn make_read_only(&mut self) {
        self.read_only = true;
    }

    #[inline]
    pub(crate) fn in_sync_below(&self) -> u64 {
        self.in_sync_below
    }

    /// Copies may differ from `position` on; a report is sent to the metadata manager.
    pub(crate) fn report_out_of_sync(&mut self, position: u64) {
        self.in_sync_below = self.in_sync_below.min(position);
        self.reports += 1;
    }

    /// Applies a command of the metadata manager, which had processed `reports` of the reports. If
    /// some are missing, the command has crossed them: then it may lower the position, and a later
    /// command raises it. Returns whether it accounts for all reports.
    pub(crate) fn set_in_sync_below(&mut self, position: u64, reports: u64) -> bool {
        let known = reports == self.reports;
        self.in_sync_below = if known { position } else { self.in_sync_below.min(position) };
        known
    }

    /// Drops a member if the array can run without it; returns whether the member is out of service
    /// now.
    pub(crate) fn drop_member(
        &mut self,
        geometry: &Geometry,
        member: u16,
        error: Option<IoError>,
        out: &mut Effects,
    ) -> bool {
        if self.failed.contains(member) {
            return true;
        }
        let stays = |other: MemberIdx| other.0 != member && !self.failed.contains(other.0);
        if !geometry.enough(stays) {
            return false;
        }
        self.failed.insert(member);
        self.epoch += 1;
        let member = MemberIdx(member);
        let event = ControlEvent::MemberFailed { member, error, epoch: self.epoch };
        out.list.push(Effect::Control(event));
        true
    }
}
