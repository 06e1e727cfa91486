//! From what an array is to a member's next superblock 1.x, and what a superblock says it was.
//!
//! Invariant: `feature_map` is made from the state, as the kernel does at each write; only the bits
//! that the state does not speak of (reshape, cluster, RAID 0 layout, unknown) are kept.

use super::v1::{FLAG_FAILFAST, FLAG_WRITE_MOSTLY, HEADER_BYTES, ROLE_SPARE, ROLES_MAX};
use super::v1::{SuperblockV1, feature};
use super::v1_metadata::raw_role;
use super::{ArrayState, DeviceState, Policy, StateError};
use crate::ondisk::Role;

/// Bits that a state decides.
const DECIDED: u32 = feature::BITMAP_OFFSET
    | feature::RECOVERY_OFFSET
    | feature::BAD_BLOCKS
    | feature::REPLACEMENT
    | feature::RECOVERY_BITMAP
    | feature::JOURNAL
    | feature::PPL
    | feature::MULTIPLE_PPLS;

/// From here on a partial parity log is a ring: room for two of 128 KiB with their headers.
const PPL_RING_SECTORS: u16 = 528;

impl SuperblockV1 {
    /// The superblock of device `dev_number` of an array in this state.
    pub fn with_state(
        &self,
        state: &ArrayState,
        dev_number: usize,
    ) -> Result<SuperblockV1, StateError> {
        let me = state.device(dev_number)?;
        let devices = state.devices.len();
        if devices > ROLES_MAX {
            return Err(StateError::TooManyDevices { devices, most: ROLES_MAX });
        }
        let mut next = self.clone();
        next.dev_number = dev_number as u32;
        next.events = state.events;
        next.utime = state.updated;
        next.resync_offset = state.resync_offset.unwrap_or(u64::MAX);
        next.feature_map = self.feature_map & !DECIDED | self.policy_bits(state.policy)?;
        next.set_own(me);
        // Never shorter: a member with a high number may come back.
        if devices > next.dev_roles.len() {
            next.dev_roles.resize(roles_for(devices), ROLE_SPARE);
        }
        for (number, role) in next.dev_roles.iter_mut().enumerate() {
            let device = state.devices.get(number).and_then(Option::as_ref);
            *role = device.map_or(ROLE_SPARE, |device| raw_role(device.role));
        }
        if next.has(feature::BAD_BLOCKS) && next.bblog_offset == 0 {
            return Err(StateError::NoPlace { what: "bad-block log" });
        }
        Ok(next)
    }

    /// A bitmap and a log say in the same bytes where they are: while one of them is on, these
    /// say nothing of the other.
    fn policy_bits(&self, policy: Policy) -> Result<u32, StateError> {
        let is_of_log = self.feature_map & (feature::PPL | feature::MULTIPLE_PPLS) != 0;
        let has_bitmap = self.bitmap_offset != 0 && !is_of_log;
        let is_of_bitmap = self.has(feature::BITMAP_OFFSET) && !is_of_log;
        let has_log = self.ppl_offset() != 0 && self.ppl_size() != 0 && !is_of_bitmap;
        match policy {
            Policy::Resync => Ok(0),
            Policy::Bitmap if !has_bitmap => Err(StateError::NoPlace { what: "bitmap" }),
            Policy::Bitmap => Ok(feature::BITMAP_OFFSET),
            Policy::Ppl if !has_log => Err(StateError::NoPlace { what: "partial parity log" }),
            Policy::Ppl if self.ppl_size() >= PPL_RING_SECTORS => Ok(feature::MULTIPLE_PPLS),
            Policy::Ppl => Ok(feature::PPL),
            Policy::Journal => Ok(feature::JOURNAL),
        }
    }

    /// Fields that are specific to this member.
    fn set_own(&mut self, me: &DeviceState) {
        let mut set = |bit: u32, on: bool| self.feature_map |= if on { bit } else { 0 };
        let recovers = me.recovery_offset.filter(|_| matches!(me.role, Role::Slot(_)));
        set(feature::RECOVERY_OFFSET, recovers.is_some());
        set(feature::RECOVERY_BITMAP, recovers.is_some() && me.recovery_by_bitmap);
        set(feature::REPLACEMENT, me.replacement);
        set(feature::BAD_BLOCKS, me.bad_blocks_in_use);
        // One field holds a journal's tail or a member's recovery offset. An unknown tail leaves
        // the field unchanged: 0 would replay from the wrong place.
        self.recovery_offset = match me.role {
            Role::Journal => me.journal_tail.unwrap_or(self.recovery_offset),
            _ => recovers.unwrap_or(0),
        };
        let flag = |bit: u8, on: bool| if on { bit } else { 0 };
        self.devflags &= !(FLAG_WRITE_MOSTLY | FLAG_FAILFAST);
        self.devflags |= flag(FLAG_WRITE_MOSTLY, me.write_mostly);
        self.devflags |= flag(FLAG_FAILFAST, me.failfast);
    }

    /// The array state in this superblock: complete for its own device; for the others only their
    /// roles.
    pub fn state(&self) -> ArrayState {
        let metadata = self.metadata();
        let mut devices: Vec<Option<DeviceState>> = metadata
            .roles
            .iter()
            .map(|&role| (role != Role::Spare).then(|| DeviceState::new(role)))
            .collect();
        let me = self.dev_number as usize;
        // A number beyond the roles is a spare's; one that cannot be stored is left out.
        if me < ROLES_MAX {
            devices.resize(devices.len().max(me + 1), None);
            devices[me] = Some(DeviceState {
                role: metadata.role,
                recovery_offset: metadata.recovery_offset,
                recovery_by_bitmap: metadata.recovery_offset.is_some()
                    && self.has(feature::RECOVERY_BITMAP),
                replacement: metadata.replacement,
                write_mostly: metadata.write_mostly,
                failfast: metadata.failfast,
                bad_blocks_in_use: self.has(feature::BAD_BLOCKS),
                journal_tail: metadata.journal_tail,
            });
        }
        devices.truncate(devices.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        let policy = if metadata.has_journal {
            Policy::Journal
        } else if metadata.ppl.is_some() {
            Policy::Ppl
        } else if metadata.bitmap.is_some() {
            Policy::Bitmap
        } else {
            Policy::Resync
        };
        let (events, updated) = (self.events, self.utime);
        ArrayState { events, updated, resync_offset: metadata.resync_offset, policy, devices }
    }
}

/// As mdadm makes room: up to the next 512 bytes.
pub(super) fn roles_for(devices: usize) -> usize {
    let bytes = (HEADER_BYTES + 2 * devices).next_multiple_of(512);
    ((bytes - HEADER_BYTES) / 2).min(ROLES_MAX)
}
