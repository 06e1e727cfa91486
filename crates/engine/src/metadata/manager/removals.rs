//! Spares that come, and devices that leave, while the array runs.
//!
//! Invariant: a device leaves when its loss is on record, so that it is stale by any rule; and its
//! number is free when no superblock lists it. Called only from `manager` and `work`.

use md::MemberIdx;
use md::ondisk::Role;
use md::ondisk::superblock::DeviceState;

use super::{Lost, MetadataManager, is_passed_by};
use crate::MemberFlags;
use crate::metadata::types::{
    DeviceNumber, JoinRefusal, ManagedDevice, MetadataEffect, MetadataMode, RemoveRefusal,
};

/// A device that is to leave the array.
pub(super) struct Leaving {
    device: usize,
    /// The change of the table with which it does, once that is made.
    change: Option<u64>,
}

impl MetadataManager {
    /// The first number behind the slots that no device has, and no superblock lists.
    pub fn free_number(&self) -> DeviceNumber {
        let has =
            |number: u32| self.devices.iter().any(|it| !it.has_left && it.kept.number.0 == number);
        let is_listed = |number: u32| {
            let state = self.states.get(number as usize).and_then(Option::as_ref);
            state.is_some_and(|state| state.role != Role::Spare)
        };
        let mut numbers = self.geometry.members() as u32..;
        let free = numbers.find(|number| !has(*number) && !is_listed(*number));
        DeviceNumber(free.expect("some number is free"))
    }

    /// Whether a device with this number can become a spare now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_add_spare(&self, number: DeviceNumber) -> Result<(), JoinRefusal> {
        self.takes_devices(number)
    }

    pub(super) fn add_spare(&mut self, number: DeviceNumber, flags: MemberFlags) {
        if self.may_add_spare(number).is_err() {
            return;
        }
        self.touched = true;
        self.wanted.changes += 1;
        let at = self.add_device(number);
        self.devices[at].kept.is_spare = true;
        self.devices[at].change = self.wanted.changes;
        let MemberFlags { write_mostly, failfast } = flags;
        let state = DeviceState { write_mostly, failfast, ..DeviceState::new(Role::Spare) };
        self.list(number, Some(state));
        self.take_spare();
    }

    fn list(&mut self, number: DeviceNumber, state: Option<DeviceState>) {
        let number = number.0 as usize;
        if self.states.len() <= number {
            self.states.resize(number + 1, None);
        }
        self.states[number] = state;
    }

    /// Whether a device can leave the array now.
    ///
    /// # Errors
    /// Why not.
    pub fn may_remove(&self, number: DeviceNumber) -> Result<(), RemoveRefusal> {
        if !self.updates() {
            return Err(RemoveRefusal::NoRedundancy);
        }
        let at = self.with_number(number).ok_or(RemoveRefusal::Unknown)?;
        if self.mode != MetadataMode::Running {
            return Err(RemoveRefusal::NotRunning);
        }
        if self.devices[at].failed {
            return Ok(());
        }
        if let Some(joining) = self.joining.iter().find(|joining| joining.device == at) {
            return Err(match joining.replaces {
                true => RemoveRefusal::Replaces(joining.slot),
                false => RemoveRefusal::Rebuilding(joining.slot),
            });
        }
        let ManagedDevice { slot, replaces, .. } = self.devices[at].kept;
        match slot {
            None => Ok(()),
            Some(slot) if replaces => Err(RemoveRefusal::Replaces(slot)),
            Some(slot) if self.devices[at].is_in_sync() => Err(RemoveRefusal::InSync(slot)),
            Some(slot) => Err(RemoveRefusal::Rebuilding(slot)),
        }
    }

    /// The device that has a number now: the last one that got it.
    fn with_number(&self, number: DeviceNumber) -> Option<usize> {
        self.devices.iter().rposition(|it| it.kept.number == number && !it.has_left)
    }

    pub(super) fn remove(&mut self, number: DeviceNumber, out: &mut Vec<MetadataEffect>) {
        if self.may_remove(number).is_err() {
            return;
        }
        let device = self.with_number(number).expect("it may leave");
        if self.leaving.iter().any(|leaving| leaving.device == device) {
            return;
        }
        if is_passed_by(&self.devices[device].kept, &self.states) {
            // It records how far it is in sync, and has missed writes below that.
            self.lose(device, None, Lost::Metadata, out);
        } else if !self.devices[device].failed {
            // A spare: no slot for it any more, and no superblock.
            self.devices[device].failed = true;
            if let Some(job) = &mut self.job {
                job.drop_device(device);
            }
        }
        self.leaving.push(Leaving { device, change: None });
        self.touched = true;
    }

    /// Takes devices out of the table whose losses are on record. An update that repeats an older
    /// state comes first.
    pub(super) fn take_out(&mut self) {
        if self.leaving.is_empty() || !self.is_recorded() || self.unfinished.is_some() {
            return;
        }
        let mut leaving = std::mem::take(&mut self.leaving);
        for it in leaving.iter_mut().filter(|it| it.change.is_none()) {
            self.wanted.changes += 1;
            it.change = Some(self.wanted.changes);
            let number = self.devices[it.device].kept.number;
            self.list(number, None);
        }
        self.leaving = leaving;
    }

    /// A device has joined. An update under way does not list it, and so does not write it: its
    /// superblock, as it was a spare, may list devices that are to leave. They leave with the next
    /// update, which is written there, too.
    pub(super) fn leave_with_next_update(&mut self) {
        if self.leaving.iter().any(|it| it.change.is_some()) {
            self.wanted.changes += 1;
        }
        for change in self.leaving.iter_mut().filter_map(|it| it.change.as_mut()) {
            *change = self.wanted.changes;
        }
    }

    /// An update is durable: devices that it does not list any more have left.
    pub(super) fn have_left(&mut self, out: &mut Vec<MetadataEffect>) {
        let recorded = self.recorded.changes;
        let has_left = |it: &mut Leaving| it.change.is_some_and(|change| change <= recorded);
        let gone: Vec<Leaving> = self.leaving.extract_if(.., has_left).collect();
        for Leaving { device, .. } in gone {
            let ManagedDevice { number, slot, .. } = self.devices[device].kept;
            let place = slot.map(|_| self.devices[device].place);
            let place = place.filter(|place| !self.has_successor(*place));
            out.push(MetadataEffect::Removed { device: number, place });
            // Others with its number have failed before.
            for device in self.devices.iter_mut().filter(|it| it.kept.number == number) {
                device.has_left = true;
            }
        }
    }

    /// Whether another device is in service at a place, or is being put there.
    fn has_successor(&self, place: MemberIdx) -> bool {
        let mut joining = self.joining.iter();
        self.device_at(place).is_some()
            || joining.any(|joining| joining.place == place && joining.is_ordered)
    }

    /// Whether a number is being given up: superblocks still list it.
    pub(super) fn is_leaving(&self, number: DeviceNumber) -> bool {
        self.leaving.iter().any(|leaving| self.devices[leaving.device].kept.number == number)
    }

    /// Forgets devices that have left, when nothing refers to them.
    pub(super) fn forget(&mut self) {
        if self.job.is_none() && self.joining.is_empty() && self.leaving.is_empty() {
            self.devices.retain(|device| !device.has_left);
        }
    }
}
