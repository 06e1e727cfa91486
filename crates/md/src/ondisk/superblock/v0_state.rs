//! Conversion between an array's state and a member's superblock 0.90.
//!
//! Invariant: descriptors are numbered as the kernel does it. A member in sync has its slot's
//! number; all others come after the slots, in order of device number; a slot without a
//! member in sync is "removed, faulty". So a member's number changes when its rebuild ends.

use super::v0::{DISK_ACTIVE, DISK_FAILFAST, DISK_FAULTY, DISK_REMOVED, DISK_SYNC};
use super::v0::{DISK_WRITE_MOSTLY, STATE_BITMAP, STATE_CLEAN};
use super::{ArrayState, DISKS_MAX, DeviceState, DiskV0, Policy, StateError, SuperblockV0};
use crate::ondisk::{Role, Timestamp};

/// "Complete", in `recovery_cp`.
const COMPLETE: u32 = u32::MAX;

/// The bits that say what a disk is; the others say how to treat it.
const KIND: u32 = DISK_FAULTY | DISK_ACTIVE | DISK_SYNC | DISK_REMOVED;

impl SuperblockV0 {
    /// The superblock of device `dev_number` of an array in this state.
    pub fn with_state(
        &self,
        state: &ArrayState,
        dev_number: usize,
    ) -> Result<SuperblockV0, StateError> {
        state.device(dev_number)?;
        let mut next = self.clone();
        next.events = state.events;
        next.utime = u32::try_from(state.updated.seconds).unwrap_or(u32::MAX);
        // The offset is valid only if both counts match.
        next.cp_events = state.events;
        next.recovery_cp = match state.resync_offset {
            None => COMPLETE,
            // A checkpoint that does not fit is rounded down: less is known to be in sync.
            Some(offset) => u32::try_from(offset).unwrap_or(COMPLETE).min(COMPLETE - 1),
        };
        let flag = |bit: u32, on: bool| if on { bit } else { 0 };
        next.state &= !(STATE_CLEAN | STATE_BITMAP);
        next.state |= flag(STATE_CLEAN, state.resync_offset.is_none());
        next.state |= flag(STATE_BITMAP, has_bitmap(state.policy)?);
        next.describe(state, dev_number)?;
        Ok(next)
    }

    /// All descriptors and the counts.
    fn describe(&mut self, state: &ArrayState, dev_number: usize) -> Result<(), StateError> {
        let slots = self.raid_disks as usize;
        let before = std::mem::take(&mut self.disks);
        let mine = self.this_disk;
        let mut next_spare = slots;
        (self.nr_disks, self.active_disks, self.spare_disks) = (0, 0, 0);
        for (index, device) in state.devices.iter().enumerate() {
            let Some(device) = device else { continue };
            let serves = self.slot_in_sync(device)?;
            let number = serves.unwrap_or_else(|| {
                next_spare += 1;
                next_spare - 1
            });
            let disk = self.disks.get_mut(number).ok_or_else(|| StateError::TooManyDevices {
                devices: number + 1,
                most: DISKS_MAX,
            })?;
            if disk.state != 0 {
                return Err(StateError::Slot { slot: number as u16 });
            }
            *disk = descriptor(device, number, serves.is_some());
            let known = if index == dev_number { &mine } else { &before[number] };
            // Device numbers are informational only; those of another device would be misleading.
            if index == dev_number || known.state & KIND == disk.state & KIND {
                (disk.major, disk.minor) = (known.major, known.minor);
            }
            if index == dev_number {
                self.this_disk = *disk;
            }
            self.nr_disks += 1;
            self.active_disks += u32::from(disk.has(DISK_ACTIVE));
            self.spare_disks += u32::from(disk.state & KIND == 0);
        }
        self.working_disks = self.active_disks + self.spare_disks;
        self.mark_missing(slots);
        Ok(())
    }

    /// The slot that a device serves, by which it is numbered.
    fn slot_in_sync(&self, device: &DeviceState) -> Result<Option<usize>, StateError> {
        refuse_v1_only(device)?;
        let Role::Slot(slot) = device.role else { return Ok(None) };
        if u32::from(slot) >= self.raid_disks || usize::from(slot) >= DISKS_MAX {
            return Err(StateError::Slot { slot });
        }
        // A reshape records its new members, a rebuild does not.
        let in_sync = device.recovery_offset.is_none() || self.reshapes();
        Ok(in_sync.then_some(usize::from(slot)))
    }

    fn mark_missing(&mut self, slots: usize) {
        self.failed_disks = 0;
        for (slot, disk) in self.disks.iter_mut().enumerate().take(slots) {
            if disk.state == 0 {
                let number = slot as u32;
                let state = DISK_REMOVED | DISK_FAULTY;
                *disk = DiskV0 { number, raid_disk: number, state, ..DiskV0::default() };
                self.failed_disks += 1;
            }
        }
    }

    /// The state that this superblock tells of: device numbers are those of its descriptors.
    pub fn state(&self) -> ArrayState {
        let metadata = self.metadata();
        let own = self.this_disk.number as usize;
        let device = |index: usize| {
            let disk = &self.disks[index];
            (index == own || self.is_described(index)).then(|| DeviceState {
                recovery_offset: self.recovery_offset_of(disk),
                write_mostly: disk.has(DISK_WRITE_MOSTLY),
                failfast: disk.has(DISK_FAILFAST),
                ..DeviceState::new(self.role_of(disk))
            })
        };
        let mut devices: Vec<Option<DeviceState>> = (0..DISKS_MAX).map(device).collect();
        devices.truncate(devices.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        ArrayState {
            events: self.events,
            updated: Timestamp { seconds: u64::from(self.utime), micros: 0 },
            resync_offset: metadata.resync_offset,
            policy: if metadata.bitmap.is_some() { Policy::Bitmap } else { Policy::Resync },
            devices,
        }
    }
}

fn descriptor(device: &DeviceState, number: usize, serves: bool) -> DiskV0 {
    let flag = |bit: u32, on: bool| if on { bit } else { 0 };
    let kind = match device.role {
        Role::Faulty => DISK_FAULTY,
        _ if serves => DISK_ACTIVE | flag(DISK_SYNC, device.recovery_offset.is_none()),
        _ => 0,
    };
    let treated = flag(DISK_WRITE_MOSTLY, device.write_mostly);
    let state = kind | treated | flag(DISK_FAILFAST, device.failfast);
    let number = number as u32;
    DiskV0 { number, raid_disk: number, state, ..DiskV0::default() }
}

fn has_bitmap(policy: Policy) -> Result<bool, StateError> {
    match policy {
        Policy::Resync => Ok(false),
        Policy::Bitmap => Ok(true),
        Policy::Ppl => Err(StateError::NotInV0 { what: "partial parity log" }),
        Policy::Journal => Err(StateError::NotInV0 { what: "journal" }),
    }
}

fn refuse_v1_only(device: &DeviceState) -> Result<(), StateError> {
    match device {
        DeviceState { role: Role::Journal, .. } => Err(StateError::NotInV0 { what: "journal" }),
        DeviceState { replacement: true, .. } => Err(StateError::NotInV0 { what: "replacement" }),
        DeviceState { bad_blocks_in_use: true, .. } => {
            Err(StateError::NotInV0 { what: "bad-block log" })
        }
        _ => Ok(()),
    }
}
