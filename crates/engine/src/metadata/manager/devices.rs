//! The devices of the array: what the metadata manager keeps of each, and what each does for the
//! array.
//!
//! Invariant: decides nothing. Called from `manager` and its parts, and from outside between
//! batches.

use std::ops::Range;

use md::MemberIdx;
use md::ondisk::Role;
use md::ondisk::superblock::DeviceState;

use super::MetadataManager;
use crate::metadata::types::{DeviceCondition, DeviceStatus, ManagedDevice};

pub(super) struct Device {
    pub(super) kept: ManagedDevice,
    /// Where shards have it, if it has a slot: see [`crate::Effect`].
    pub(super) place: MemberIdx,
    pub(super) failed: bool,
    /// It has left the array: nothing refers to it but the job and what shards still report.
    pub(super) has_left: bool,
    /// The change of the table of devices with which it came.
    pub(super) change: u64,
    /// Event count of its durable superblock; `None`: a write of it failed, or there was none.
    pub(super) events: Option<u64>,
    /// It has joined the running array: no older superblock concerns it.
    pub(super) has_joined: bool,
    /// Of a device that is being rebuilt: all below this sector is in sync; `None`: everything is.
    pub(super) rebuilt: Option<u64>,
    /// What the superblocks record of that.
    pub(super) rebuilt_recorded: Option<u64>,
    /// Its own superblock has a position further than that until an update.
    pub(super) recorded_too_far: bool,
    /// Ascending ranges of its data area that were out of sync when its rebuild began.
    pub(super) out_of_sync: Vec<Range<u64>>,
}

impl MetadataManager {
    /// The devices of the array, those that have failed since its start included: by number. A
    /// number that another device has got since is that one's.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        let mut all: Vec<DeviceStatus> = Vec::new();
        for at in (0..self.devices.len()).filter(|at| !self.devices[*at].has_left) {
            let status = self.device_status(at);
            // The later of two devices with one number, of which the earlier one has failed.
            all.retain(|earlier| earlier.number != status.number);
            all.push(status);
        }
        all.sort_by_key(|status| status.number);
        all
    }

    fn device_status(&self, at: usize) -> DeviceStatus {
        let device = &self.devices[at];
        let ManagedDevice { number, slot, replaces, .. } = device.kept;
        let is_known = DeviceStatus { number, slot, replaces, condition: DeviceCondition::Failed };
        if device.failed {
            return is_known;
        }
        if let Some(joining) = self.joining.iter().find(|joining| joining.device == at) {
            let (slot, replaces) = (Some(joining.slot), joining.replaces);
            return DeviceStatus { number, slot, replaces, condition: DeviceCondition::Joining };
        }
        let condition = match (slot, device.rebuilt.or(device.rebuilt_recorded)) {
            (Some(slot), Some(position)) => {
                let sectors = self.geometry.member_used_sectors(slot);
                DeviceCondition::Rebuilding { position: position.min(sectors), sectors }
            }
            (Some(_), None) => DeviceCondition::InSync,
            (None, _) if is_passed_by(&device.kept, &self.states) => DeviceCondition::PassedBy,
            (None, _) if device.change > self.recorded.changes => DeviceCondition::Joining,
            (None, _) => DeviceCondition::Spare,
        };
        DeviceStatus { condition, ..is_known }
    }
}

/// Whether a device has a slot that it does not serve.
pub(super) fn is_passed_by(kept: &ManagedDevice, states: &[Option<DeviceState>]) -> bool {
    let state = states.get(kept.number.0 as usize).and_then(Option::as_ref);
    kept.slot.is_none() && state.is_some_and(|state| matches!(state.role, Role::Slot(_)))
}

pub(super) fn in_service(kept: ManagedDevice, rebuilt: Option<u64>) -> Device {
    let rebuilt = rebuilt.filter(|_| kept.slot.is_some());
    Device {
        place: kept.slot.unwrap_or_default(),
        failed: false,
        has_left: false,
        change: 0,
        events: Some(kept.events),
        has_joined: false,
        rebuilt,
        rebuilt_recorded: rebuilt,
        recorded_too_far: false,
        out_of_sync: Vec::new(),
        kept,
    }
}

impl Device {
    /// Whether it serves its slot and is recorded as in sync.
    pub(super) fn is_in_sync(&self) -> bool {
        let serves = self.kept.slot.is_some() && !self.kept.replaces;
        !self.failed && serves && self.rebuilt_recorded.is_none()
    }
}
