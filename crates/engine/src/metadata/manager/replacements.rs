//! Devices that replace members which still serve.
//!
//! Invariant: a replacement is no redundancy until the superblocks give it the slot. Its own says
//! so before those of the others do, and all of it is durable by then; an update gives one slot.
//! Shards write the former member until its superblock is stale by any rule. Called only from
//! `manager`, `rebuilds` and `work`.

use std::ops::Range;

use md::ondisk::Role;
use md::ondisk::superblock::{ArrayState, DeviceState, Policy};
use md::{Geometry, MemberIdx};

use super::rebuilds::Joining;
use super::{Device, Lost, MetadataManager, lacking};
use crate::metadata::bits::Bits;
use crate::metadata::job::Update;
use crate::metadata::types::{
    DeviceNumber, ManagedDevice, MetadataEffect, MetadataMode, ReplaceRefusal,
};
use crate::{Control, IntentMap, MAX_MEMBERS, MemberFlags, MemberSet};

/// Where shards have a device at the start.
pub(super) fn place(geometry: &Geometry, kept: &ManagedDevice) -> MemberIdx {
    let slot = kept.slot.unwrap_or_default();
    let second = if kept.replaces { geometry.members() as u16 } else { 0 };
    MemberIdx(slot.0 + second)
}

/// What a start has on ranges that writes in flight may have left half-way.
pub(super) struct Doubtful<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) map: &'a IntentMap,
    /// The first position, if the array was not stopped clean.
    pub(super) from: Option<u64>,
}

impl Doubtful<'_> {
    /// A write in flight may have reached the member and not its replacement, or the other way
    /// round: what is in doubt is copied again. The position that the superblocks record until then
    /// is the begin of that.
    pub(super) fn copy_again(
        &self,
        device: &mut Device,
        bits: Option<&Bits>,
        states: &mut [Option<DeviceState>],
    ) {
        let Some((slot, below)) = device.kept.slot.zip(device.rebuilt) else { return };
        let Some(from) = self.from else { return };
        let is_needed = |bit: u32| match bits {
            Some(bits) => bits.has(bit) || bits.is_needed(bit),
            None => self.map.positions(bit).end > from,
        };
        let end = self.geometry.member_used_sectors(slot);
        let mut again = lacking::under(self.geometry, self.map, slot, 0..below.min(end), is_needed);
        again.append(&mut device.out_of_sync);
        device.out_of_sync = joined(again);
        let first = device.out_of_sync.first().map_or(end, |range| range.start).min(below);
        device.recorded_too_far = first < below;
        (device.rebuilt, device.rebuilt_recorded) = (Some(first), Some(first));
        if let Some(Some(state)) = states.get_mut(device.kept.number.0 as usize) {
            state.recovery_offset = Some(first);
        }
    }
}

/// Ascending ranges, those side by side as one.
fn joined(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        match all.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => all.push(range),
        }
    }
    all
}

impl MetadataManager {
    /// Slots whose members are being replaced, with the ranges that the replacements lack; for
    /// [`crate::ShardConfig::replacing`].
    pub fn replacing(&self) -> Vec<(MemberIdx, Vec<Range<u64>>)> {
        self.lacking(true)
            .filter_map(|(device, ranges)| Some((device.kept.slot?, ranges)))
            .collect()
    }

    /// Slots whose members are being replaced, or that shards still write to after that.
    pub(super) fn replaced(&self) -> MemberSet {
        let devices = self.serving().map(|at| &self.devices[at].kept);
        let slots = devices.filter(|kept| kept.replaces).filter_map(|kept| kept.slot);
        let taken_over = self.taken_over.iter().map(|place| self.slot_of(*place));
        slots.chain(taken_over).map(|slot| slot.0).collect()
    }

    /// Whether a device can replace the member of a slot now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_replace(&self, slot: MemberIdx) -> Result<(), ReplaceRefusal> {
        if !self.updates() {
            return Err(ReplaceRefusal::NoRedundancy);
        }
        if self.policy == Policy::Ppl {
            return Err(ReplaceRefusal::PartialParityLog);
        }
        if 2 * self.geometry.members() > MAX_MEMBERS {
            return Err(ReplaceRefusal::TooManyMembers);
        }
        if self.mode != MetadataMode::Running || self.not_durable {
            return Err(ReplaceRefusal::NotRunning);
        }
        let is_joining = self.joining.iter().any(|joining| joining.slot == slot);
        if is_joining || self.replacement_of(slot).is_some() {
            return Err(ReplaceRefusal::Replaced);
        }
        let member = self.device_of(slot).filter(|at| self.devices[*at].is_in_sync());
        member.map(drop).ok_or(ReplaceRefusal::NoMember)
    }

    pub(super) fn replace(&mut self, number: DeviceNumber, slot: MemberIdx, flags: MemberFlags) {
        let has_number = |device: &Device| device.kept.number == number && !device.failed;
        let known = self.devices.iter().position(has_number);
        if self.may_replace(slot).is_err() || known.is_some_and(|at| !self.is_free_spare(at)) {
            return;
        }
        let member = self.device_of(slot).expect("it can be replaced");
        let slots = self.geometry.members() as u16;
        let place = MemberIdx((self.devices[member].place.0 + slots) % (2 * slots));
        let (device, flags) = match known {
            Some(spare) => (spare, self.flags(spare)),
            None => (self.add_device(number), flags),
        };
        self.want(device, slot, place, flags);
    }

    pub(super) fn cancel_replacement(&mut self, slot: MemberIdx, out: &mut Vec<MetadataEffect>) {
        if let Some(at) = self.replacement_of(slot) {
            return self.lose(at, None, Lost::Metadata, out);
        }
        let is_it = |joining: &Joining| joining.slot == slot && joining.replaces;
        let Some(at) = self.joining.iter().position(is_it) else { return };
        if self.joining[at].is_ordered {
            // Shards may have bound it.
            self.joining[at].dropped.get_or_insert((Lost::Metadata, None));
            return;
        }
        let Joining { device, .. } = self.joining.swap_remove(at);
        // A spare stays one.
        if !self.devices[device].kept.is_spare {
            self.not_joined(device, out);
        }
        self.take_spare();
    }

    /// What replaces the member of a slot.
    fn replacement_of(&self, slot: MemberIdx) -> Option<usize> {
        let is_it = |device: &Device| {
            !device.failed && device.kept.slot == Some(slot) && device.kept.replaces
        };
        self.devices.iter().position(is_it)
    }

    fn slot_of(&self, place: MemberIdx) -> MemberIdx {
        let slots = self.geometry.members() as u16;
        MemberIdx(if place.0 < slots { place.0 } else { place.0 - slots })
    }

    /// The device in service at a place.
    pub(super) fn device_at(&self, place: MemberIdx) -> Option<usize> {
        let is_there =
            |device: &Device| !device.failed && device.kept.slot.is_some() && device.place == place;
        self.devices.iter().position(is_there)
    }

    /// A slot's member is lost: what was to replace it has the slot, rebuilt from where it is.
    pub(super) fn replacement_gets(
        &mut self,
        slot: Option<MemberIdx>,
        out: &mut Vec<MetadataEffect>,
    ) {
        let replaces =
            |device: &Device| device.kept.replaces && !device.failed && device.kept.slot == slot;
        let Some(at) = self.devices.iter().position(replaces) else { return };
        self.flags_to_shards(at, out);
        let device = &mut self.devices[at];
        device.kept.replaces = false;
        if let Some(Some(state)) = self.states.get_mut(device.kept.number.0 as usize) {
            state.replacement = false;
        }
        // Reports of the running rebuilds do not account for it.
        self.rebuild_run.number += 1;
        out.push(MetadataEffect::RebuildNeeded);
    }

    /// Whether a device gets the slot of what it replaces by this state.
    pub(super) fn takes_over(&self, at: usize, state: &ArrayState) -> bool {
        let kept = &self.devices[at].kept;
        let own = state.devices.get(kept.number.0 as usize).and_then(Option::as_ref);
        let role = kept.slot.map(|slot| Role::Slot(slot.0));
        kept.replaces && own.is_some_and(|own| !own.replacement && Some(own.role) == role)
    }

    /// Whether no device in service has a superblock of this update, and none but the one that was
    /// refused it for want of space may have it.
    pub(super) fn no_device_has(&self, refused: usize, state: &ArrayState) -> bool {
        // What has joined since is not written.
        let mut gets = self.serving().filter(|at| self.is_listed(*at, state));
        gets.all(|at| match self.devices[at].events {
            Some(events) => events != state.events,
            None => at == refused,
        })
    }

    /// Whether a device is faulty by this state: it gets no superblock any more.
    pub(super) fn is_faulty_in(&self, at: usize, state: &ArrayState) -> bool {
        let number = self.devices[at].kept.number.0 as usize;
        let own = state.devices.get(number).and_then(Option::as_ref);
        own.is_some_and(|own| own.role == Role::Faulty)
    }

    /// Whether this state lists a device, as one that is not faulty. It does not if the device came
    /// since.
    pub(super) fn is_known_in(&self, at: usize, state: &ArrayState) -> bool {
        let number = self.devices[at].kept.number.0 as usize;
        let own = state.devices.get(number).and_then(Option::as_ref);
        own.is_some_and(|own| own.role != Role::Faulty)
    }

    /// Whether a device has its slot by this state: one that has joined since has not.
    pub(super) fn is_listed(&self, at: usize, state: &ArrayState) -> bool {
        let Device { kept, has_joined, .. } = &self.devices[at];
        let own = state.devices.get(kept.number.0 as usize).and_then(Option::as_ref);
        let role = kept.slot.map(|slot| Role::Slot(slot.0));
        !has_joined || own.map(|own| own.role) == role
    }

    /// A replacement has failed while the superblocks gave it its slot: the former member, which
    /// has everything, keeps it, and gets the next update. What it has missed is no reason to bring
    /// it up to what the start found.
    pub(super) fn put_back(&mut self, update: &Update) {
        for at in self.serving().collect::<Vec<usize>>() {
            if self.is_faulty_in(at, &update.state) {
                self.devices[at].has_joined = true;
            }
        }
    }

    /// The superblocks give a replacement its slot: the former member is out. It has the event
    /// count of before, which must become stale.
    pub(super) fn take_over(&mut self, at: usize) {
        let slot = self.devices[at].kept.slot;
        if let Some(former) = slot.and_then(|slot| self.device_of(slot)) {
            let Device { kept, failed, .. } = &mut self.devices[former];
            *failed = true;
            if let Some(Some(state)) = self.states.get_mut(kept.number.0 as usize) {
                *state = DeviceState::new(Role::Faulty);
            }
            self.wanted.losses += 1;
            self.counts.lost();
        }
        self.devices[at].kept.replaces = false;
        self.taken_over.push(self.devices[at].place);
        self.touched = true;
    }

    /// Shards stop writing to former members that are stale by now.
    pub(super) fn answer_taken_over(&mut self, out: &mut Vec<MetadataEffect>) {
        if !self.is_recorded() {
            return;
        }
        for place in std::mem::take(&mut self.taken_over) {
            self.to_shards(Control::EndReplacement(place), out);
            if let Some(at) = self.device_at(place) {
                self.flags_to_shards(at, out);
            }
        }
    }
}
