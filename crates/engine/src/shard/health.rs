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
//!
//! A slot has two *places* for devices: `s` and `members + s`. One is that of its member, the other
//! that of a device which replaces it. A replacement is never read and is no redundancy; if the
//! member fails, it is the slot's member, being rebuilt from where it is.

use std::ops::Range;

use md::{Geometry, MemberIdx};

use super::in_sync::{InSync, SyncMap};
use crate::{ControlEvent, Effect, Effects, IoError, MemberSet};

/// A member that is being rebuilt, or a replacement that is being filled.
struct Rebuilding {
    /// Slot of the member.
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
    /// Devices that replace members.
    replacing: Vec<Rebuilding>,
    /// Slots whose members are at the second place.
    moved: MemberSet,
    /// Slots that have had a device at the second place: from then on, operations are of places.
    placed: MemberSet,
    /// Number of slots.
    slots: u16,
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
    /// How often devices have got or lost a slot or a place.
    changes: u64,
}

impl Health {
    pub(crate) fn new(missing: MemberSet, slots: u16, in_sync_below: u64) -> Health {
        Health {
            failed: missing,
            lacking: missing,
            rebuilding: Vec::new(),
            replacing: Vec::new(),
            moved: MemberSet::EMPTY,
            placed: MemberSet::EMPTY,
            slots,
            epoch: 0,
            recorded: 0,
            unrecordable: false,
            read_only: false,
            in_sync_below,
            reports: 0,
            changes: 0,
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

    /// The slot of a place.
    #[inline]
    pub(crate) fn slot_of(&self, place: u16) -> u16 {
        if place < self.slots { place } else { place - self.slots }
    }

    /// The place of a slot's member.
    pub(crate) fn place(&self, slot: u16) -> u16 {
        if self.moved.contains(slot) { slot + self.slots } else { slot }
    }

    /// The place of what replaces a slot's member, whether there is anything.
    pub(crate) fn second_place(&self, slot: u16) -> u16 {
        if self.moved.contains(slot) { slot } else { slot + self.slots }
    }

    /// Whether places are not simply slots.
    #[inline]
    pub(crate) fn has_places(&self) -> bool {
        !self.placed.is_empty()
    }

    /// Whether the operations on a slot are of places.
    pub(crate) fn is_placed(&self, slot: u16) -> bool {
        self.placed.contains(slot)
    }

    /// Whether the device at a place is in service: the slot's member, or what replaces it.
    pub(crate) fn is_in_service(&self, place: u16) -> bool {
        let slot = self.slot_of(place);
        match self.place(slot) == place {
            true => !self.failed.contains(slot),
            false => self.is_replaced(slot),
        }
    }

    /// Whether a replacement has taken a slot whose member has failed.
    fn is_taken_over(&self, slot: u16) -> bool {
        self.lacking.contains(slot) && !self.failed.contains(slot)
    }

    /// Whether a slot that was in sync has a replacement, or one that has taken it since.
    pub(crate) fn has_second(&self, slot: u16) -> bool {
        self.is_replaced(slot) || self.is_taken_over(slot)
    }

    /// The place that a part of a copy goes to.
    pub(crate) fn copy_place(&self, slot: u16) -> u16 {
        match !self.is_replaced(slot) && self.is_taken_over(slot) {
            true => self.place(slot),
            false => self.second_place(slot),
        }
    }

    /// Whether a slot's member is being replaced.
    pub(crate) fn is_replaced(&self, slot: u16) -> bool {
        self.replacing.iter().any(|other| other.member == slot)
    }

    /// Slots whose members are being replaced.
    pub(crate) fn replacing(&self) -> MemberSet {
        self.replacing.iter().map(|other| other.member).collect()
    }

    /// A device at the second place of a slot replaces its member: it lacks these ranges.
    pub(crate) fn begin_replacement(&mut self, slot: u16, lacks: &[Range<u64>], block: u64) {
        let map = SyncMap::new(lacks, block, MemberSet::EMPTY);
        self.replacing.retain(|other| other.member != slot);
        self.replacing.push(Rebuilding { member: slot, map, since: self.epoch });
        self.changes += 1;
        self.placed.insert(slot);
    }

    /// Of members that are being replaced: those whose replacement lacks some of these sectors.
    pub(crate) fn to_copy(&self, sectors: Range<u64>) -> MemberSet {
        let lacks = |other: &&Rebuilding| {
            !self.failed.contains(other.member) && other.map.state(sectors.clone()) != InSync::All
        };
        self.replacing.iter().filter(lacks).map(|other| other.member).collect()
    }

    /// A range of a replacement has been written, by an operation that began in this epoch.
    pub(crate) fn set_copied(&mut self, slot: u16, sectors: Range<u64>, epoch: u64) {
        // Where the member has failed in the meantime, the replacement has its slot.
        let both = self.replacing.iter_mut().chain(&mut self.rebuilding);
        let mut mine = both.filter(|other| other.member == slot && other.since <= epoch);
        mine.next().into_iter().for_each(|other| other.map.set(sectors.clone()));
    }

    /// The replacement of a slot's member is out.
    pub(crate) fn drop_replacement(
        &mut self,
        slot: u16,
        error: Option<IoError>,
        out: &mut Effects,
    ) {
        if !self.is_replaced(slot) {
            return;
        }
        self.replacing.retain(|other| other.member != slot);
        self.epoch += 1;
        self.changes += 1;
        let member = MemberIdx(self.second_place(slot));
        let event = ControlEvent::MemberFailed { member, error, epoch: self.epoch };
        out.list.push(Effect::Control(event));
    }

    /// The metadata record that the device at this place is the slot's member, and in sync. If this
    /// shard has dropped it, the slot is empty, unless the array needs the former member. Returns
    /// the place of the former member, if it leaves now.
    pub(crate) fn end_replacement(&mut self, geometry: &Geometry, place: u16) -> Option<u16> {
        let slot = self.slot_of(place);
        let former = self.place(slot);
        if former == place {
            // The former member has failed here.
            self.end_rebuild(slot);
            return None;
        }
        if !self.is_replaced(slot) {
            let stays = |other: MemberIdx| other.0 != slot && !self.lacking.contains(other.0);
            if !geometry.enough(stays) {
                return None;
            }
            self.failed.insert(slot);
            self.lacking.insert(slot);
        }
        self.replacing.retain(|other| other.member != slot);
        self.move_to(place);
        Some(former)
    }

    fn move_to(&mut self, place: u16) {
        self.changes += 1;
        match place < self.slots {
            true => self.moved.remove(place),
            false => self.moved.insert(place - self.slots),
        }
    }

    /// A new member of a slot that was empty: out of sync in these ranges of its data area.
    pub(crate) fn begin_rebuild(&mut self, place: u16, out_of_sync: &[Range<u64>], block: u64) {
        let member = self.slot_of(place);
        debug_assert!(!self.lacking.contains(member) || self.failed.contains(member));
        self.move_to(place);
        if place != member {
            self.placed.insert(member);
        }
        let map = SyncMap::new(out_of_sync, block, MemberSet::EMPTY);
        self.failed.remove(member);
        self.lacking.insert(member);
        self.rebuilding.retain(|other| other.member != member);
        self.rebuilding.push(Rebuilding { member, map, since: self.epoch });
    }

    /// A member that has been put into its slot again lacks these ranges alone. Nothing of it has
    /// been rebuilt so far.
    pub(crate) fn out_of_sync_only(&mut self, place: u16, ranges: &[Range<u64>], block: u64) {
        let member = self.slot_of(place);
        if self.place(member) != place {
            return;
        }
        let mine = self.rebuilding.iter_mut().find(|other| other.member == member);
        if let Some(rebuilding) = mine {
            rebuilding.map = SyncMap::new(ranges, block, MemberSet::EMPTY);
            // What was decided without it may be readable now.
            self.changes += 1;
        }
    }

    /// All of a member is in sync, and recorded so.
    pub(crate) fn end_rebuild(&mut self, member: u16) {
        let before = self.rebuilding.len();
        self.rebuilding.retain(|other| other.member != member);
        if self.rebuilding.len() < before {
            self.lacking.remove(member);
        }
    }

    /// Below this sector, all of a device that is being rebuilt, or replaces another, is in sync.
    pub(crate) fn rebuilt_below(&mut self, place: u16, sector: u64) {
        let member = self.slot_of(place);
        let of_slot = match self.place(member) == place {
            true => &mut self.rebuilding,
            false => &mut self.replacing,
        };
        let mine = of_slot.iter_mut().find(|other| other.member == member);
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

    /// How often devices have got or lost a slot or a place: an operation during which that has
    /// not changed has read what serves now.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
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

    /// Number of out-of-sync reports that this shard has sent.
    pub(crate) fn reports(&self) -> u64 {
        self.reports
    }

    /// Applies a command of the metadata manager, which had processed `reports` of the reports. If
    /// some are missing, the command has crossed them: then it may lower the position, and a later
    /// command raises it. Returns whether it accounts for all reports.
    pub(crate) fn set_in_sync_below(&mut self, position: u64, reports: u64) -> bool {
        let known = reports == self.reports;
        self.in_sync_below = if known { position } else { self.in_sync_below.min(position) };
        known
    }

    /// Drops what is at a place, if it is in service and the array can run without it.
    pub(crate) fn drop_place(&mut self, geometry: &Geometry, place: u16, out: &mut Effects) {
        let slot = self.slot_of(place);
        match self.place(slot) == place {
            true => drop(self.drop_member(geometry, slot, None, out)),
            false => self.drop_replacement(slot, None, out),
        }
    }

    /// Drops a member if the array can run without it; returns whether the member is out of service
    /// now. What replaces it has its slot then.
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
        self.lacking.insert(member);
        self.rebuilding.retain(|other| other.member != member);
        self.epoch += 1;
        self.changes += 1;
        let place = MemberIdx(self.place(member));
        match self.replacing.iter().position(|other| other.member == member) {
            Some(at) => {
                let replacement = self.replacing.swap_remove(at);
                self.move_to(self.second_place(member));
                self.rebuilding.push(replacement);
            }
            None => self.failed.insert(member),
        }
        let event = ControlEvent::MemberFailed { member: place, error, epoch: self.epoch };
        out.list.push(Effect::Control(event));
        true
    }
}
