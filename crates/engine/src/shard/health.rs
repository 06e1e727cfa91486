//! Which members serve, and since when.
//!
//! Invariant: a failed member gets no further I/O from this shard, and no member is dropped whose
//! loss would make data unavailable (as md keeps the last working copy). Every loss begins a new
//! epoch; `recorded` trails `epoch` until the control plane has made the loss durable, and writes
//! are acknowledged only when the two are equal.
//!
//! A member that is being rebuilt serves the ranges that are in sync, and is *absent* elsewhere:
//! not read, and need not be written. As redundancy it counts when all of it is in sync, and the
//! control plane has recorded that.

use std::ops::Range;

use md::{Geometry, MemberIdx};

use super::in_sync::{InSync, SyncMap};
use crate::{ControlEvent, Effect, Effects, IoError, MemberSet};

/// A member that is being rebuilt.
struct Rebuilding {
    member: u16,
    /// Which sectors of its data area are in sync.
    map: SyncMap,
    /// Epoch in which it began.
    since: u64,
}

pub(crate) struct Health {
    failed: MemberSet,
    /// The failed members, and those that are being rebuilt.
    lacking: MemberSet,
    rebuilding: Vec<Rebuilding>,
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
            lacking: missing,
            rebuilding: Vec::new(),
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

    /// Members that are not in sync everywhere: failed, or being rebuilt.
    #[inline]
    pub(crate) fn lacking(&self) -> MemberSet {
        self.lacking
    }

    /// A new member of a slot that was empty: out of sync in these ranges of its data area.
    pub(crate) fn begin_rebuild(&mut self, member: u16, out_of_sync: &[Range<u64>], block: u64) {
        debug_assert!(!self.lacking.contains(member) || self.failed.contains(member));
        let map = SyncMap::new(out_of_sync, block, MemberSet::EMPTY);
        self.failed.remove(member);
        self.lacking.insert(member);
        self.rebuilding.retain(|other| other.member != member);
        self.rebuilding.push(Rebuilding { member, map, since: self.epoch });
    }

    /// All of a member is in sync, and recorded so.
    pub(crate) fn end_rebuild(&mut self, member: u16) {
        let before = self.rebuilding.len();
        self.rebuilding.retain(|other| other.member != member);
        if self.rebuilding.len() < before {
            self.lacking.remove(member);
        }
    }

    /// Below this sector, all of a member that is being rebuilt is in sync.
    pub(crate) fn rebuilt_below(&mut self, member: u16, sector: u64) {
        let mine = self.rebuilding.iter_mut().find(|other| other.member == member);
        mine.into_iter().for_each(|rebuilding| rebuilding.map.resynced_below(sector));
    }

    /// A range of a member has been rebuilt, by an operation that chose it in this epoch: if it was
    /// lost since, that is not the member that has the slot now.
    pub(crate) fn set_rebuilt(&mut self, member: u16, sectors: Range<u64>, epoch: u64) {
        let is_it = |other: &&mut Rebuilding| other.member == member && other.since <= epoch;
        let mine = self.rebuilding.iter_mut().find(is_it);
        mine.into_iter().for_each(|rebuilding| rebuilding.map.set(sectors.clone()));
    }

    /// How much of a range of a member that is in service is in sync.
    #[inline]
    pub(crate) fn member_in_sync(&self, member: u16, sectors: Range<u64>) -> InSync {
        if self.rebuilding.is_empty() {
            return InSync::All;
        }
        let mine = self.rebuilding.iter().find(|other| other.member == member);
        mine.map_or(InSync::All, |rebuilding| rebuilding.map.state(sectors))
    }

    /// Whether a member has failed, or is being rebuilt and not all of these sectors is in sync.
    #[inline]
    pub(crate) fn is_absent(&self, member: u16, at: u64, sectors: u64) -> bool {
        self.lacking.contains(member)
            && (self.failed.contains(member)
                || self.member_in_sync(member, at..at + sectors) != InSync::All)
    }

    /// The members that are absent in these sectors of their data areas.
    pub(crate) fn absent(&self, sectors: Range<u64>) -> MemberSet {
        let mut absent = self.failed;
        for Rebuilding { member, map, .. } in &self.rebuilding {
            if map.state(sectors.clone()) != InSync::All {
                absent.insert(*member);
            }
        }
        absent
    }

    /// Whether a member is being rebuilt of which a part of these sectors is in sync, and another
    /// is not.
    pub(crate) fn is_partly_rebuilt(&self, sectors: Range<u64>) -> bool {
        self.rebuilding.iter().any(|other| other.map.state(sectors.clone()) == InSync::Part)
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
        let stays = |other: MemberIdx| other.0 != member && !self.lacking.contains(other.0);
        if !geometry.enough(stays) {
            return false;
        }
        self.failed.insert(member);
        self.lacking.insert(member);
        self.rebuilding.retain(|other| other.member != member);
        self.epoch += 1;
        let member = MemberIdx(member);
        let event = ControlEvent::MemberFailed { member, error, epoch: self.epoch };
        out.list.push(Effect::Control(event));
        true
    }
}
