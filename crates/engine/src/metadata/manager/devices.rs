//! What each device of the array does for it.
//!
//! Invariant: reads only. Called only from outside, between batches.

use super::{MetadataManager, is_passed_by};
use crate::metadata::types::{DeviceCondition, DeviceStatus, ManagedDevice};

impl MetadataManager {
    /// The devices of the array, those that have failed since its start included: by number. A
    /// number that another device has got since is that one's.
    pub fn devices(&self) -> Vec<DeviceStatus> {
        let mut all: Vec<DeviceStatus> = Vec::new();
        for at in 0..self.devices.len() {
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
            (None, _) => DeviceCondition::Spare,
        };
        DeviceStatus { condition, ..is_known }
    }
}
