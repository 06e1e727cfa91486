//! What a reshape that is carried out without the kernel makes of a member's superblock: a new
//! position, the way back, the end.
//!
//! Invariant: an update is derived from the member's own superblock and changes only what it says;
//! those of all members together are one state of the array. Rules: docs/format/geometry.md,
//! Reshape.

use super::v0::{DISK_ACTIVE, DISK_FAULTY, DISK_REMOVED, DISK_SYNC, STATE_CLEAN};
use super::v0_metadata::{MINOR_RESHAPE, UTIME_MICROS};
use super::v1::{ROLE_SPARE, ROLES_MAX, feature};
use super::{DiskV0, Superblock, SuperblockV0, SuperblockV1};
use crate::ondisk::Timestamp;

/// The last minor version of 0.90 without a reshape.
const MINOR_SETTLED: u32 = 90;

/// What becomes of the reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReshapeStage {
    /// It has come to this array sector.
    At(u64),
    /// It turns round at this array sector: what was the new geometry becomes the old one.
    Reversed(u64),
    /// It is over, and the new geometry is that of the array.
    Finished,
}

/// What is recorded of the rebuild of a member that the reshape fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// As it was.
    AsBefore,
    /// Its first sectors of the data area are in sync.
    UpTo(u64),
    /// All of it.
    All,
}

/// One update of all members of a reshape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshapeUpdate {
    /// Event count.
    pub events: u64,
    /// Time of the update. While the reshape is not over, its microseconds are not 0: they say that
    /// Linux, which writes 0, has not updated the superblock since.
    pub updated: Timestamp,
    /// The stage.
    pub stage: ReshapeStage,
    /// Resync offset; the outer `None`: as it was.
    pub resync_offset: Option<Option<u64>>,
    /// Numbers of the devices that are there; the others lose their slots.
    pub present: Vec<u32>,
}

impl Superblock {
    /// The superblock after an update of the reshape. `recovered`: of this member.
    pub fn reshaped(&self, update: &ReshapeUpdate, recovered: Recovered) -> Superblock {
        match self {
            Superblock::V0(superblock) => superblock.reshaped(update).into(),
            Superblock::V1(superblock) => superblock.reshaped(update, recovered).into(),
        }
    }
}

impl SuperblockV1 {
    fn reshaped(&self, update: &ReshapeUpdate, recovered: Recovered) -> SuperblockV1 {
        let mut next = self.clone();
        next.events = update.events;
        next.utime = update.updated;
        if let Some(resync) = update.resync_offset {
            next.resync_offset = resync.unwrap_or(u64::MAX);
        }
        match recovered {
            Recovered::AsBefore => {}
            Recovered::UpTo(sectors) => next.recovery_offset = sectors,
            Recovered::All => {
                next.feature_map &= !(feature::RECOVERY_OFFSET | feature::RECOVERY_BITMAP);
                next.recovery_offset = 0;
            }
        }
        for (number, role) in next.dev_roles.iter_mut().enumerate() {
            let is_slot = usize::from(*role) < ROLES_MAX;
            if is_slot && !update.present.contains(&(number as u32)) {
                *role = ROLE_SPARE;
            }
        }
        match update.stage {
            ReshapeStage::At(position) => next.reshape_position = position,
            ReshapeStage::Reversed(position) => next.reverse(position),
            ReshapeStage::Finished => next.finish(),
        }
        next
    }

    fn reverse(&mut self, position: u64) {
        let backwards =
            self.delta_disks < 0 || self.delta_disks == 0 && self.has(feature::RESHAPE_BACKWARDS);
        self.reshape_position = position;
        self.raid_disks = self.raid_disks.wrapping_sub_signed(self.delta_disks);
        self.delta_disks = self.delta_disks.wrapping_neg();
        self.feature_map &= !feature::RESHAPE_BACKWARDS;
        self.feature_map |= if backwards { 0 } else { feature::RESHAPE_BACKWARDS };
        std::mem::swap(&mut self.level, &mut self.new_level);
        std::mem::swap(&mut self.layout, &mut self.new_layout);
        std::mem::swap(&mut self.chunksize, &mut self.new_chunk);
        if self.has(feature::NEW_OFFSET) {
            self.move_data();
            self.new_offset = self.new_offset.wrapping_neg();
        }
    }

    /// The data begin where they were to begin; the room behind them changes with it.
    fn move_data(&mut self) {
        let moved = i64::from(self.new_offset);
        self.data_offset = self.data_offset.saturating_add_signed(moved);
        self.data_size = self.data_size.saturating_add_signed(-moved);
    }

    fn finish(&mut self) {
        if !self.has(feature::RESHAPE_ACTIVE) {
            return;
        }
        if self.has(feature::NEW_OFFSET) {
            self.move_data();
        }
        (self.level, self.layout, self.chunksize) =
            (self.new_level, self.new_layout, self.new_chunk);
        self.feature_map &=
            !(feature::RESHAPE_ACTIVE | feature::RESHAPE_BACKWARDS | feature::NEW_OFFSET);
        (self.delta_disks, self.new_offset, self.reshape_position) = (0, 0, 0);
        let slots = self.raid_disks;
        for role in &mut self.dev_roles {
            if usize::from(*role) < ROLES_MAX && u32::from(*role) >= slots {
                *role = ROLE_SPARE;
            }
        }
        let own = self.dev_roles.get(self.dev_number as usize).copied().unwrap_or(ROLE_SPARE);
        if own == ROLE_SPARE {
            self.feature_map &= !(feature::RECOVERY_OFFSET | feature::RECOVERY_BITMAP);
            self.recovery_offset = 0;
        }
    }
}

impl SuperblockV0 {
    fn reshaped(&self, update: &ReshapeUpdate) -> SuperblockV0 {
        let mut next = self.clone();
        next.events = update.events;
        next.cp_events = update.events;
        next.utime = u32::try_from(update.updated.seconds).unwrap_or(u32::MAX);
        next.state_reserved[UTIME_MICROS] = update.updated.micros;
        match update.resync_offset {
            None => {}
            Some(None) => {
                next.state |= STATE_CLEAN;
                next.recovery_cp = u32::MAX;
            }
            Some(Some(offset)) => {
                next.state &= !STATE_CLEAN;
                next.recovery_cp = u32::try_from(offset).unwrap_or(u32::MAX).min(u32::MAX - 1);
            }
        }
        for (number, disk) in next.disks.iter_mut().enumerate() {
            let serves = disk.state & (DISK_ACTIVE | DISK_SYNC) != 0;
            if serves && !update.present.contains(&(number as u32)) {
                let number = number as u32;
                let state = DISK_FAULTY | DISK_REMOVED;
                *disk = DiskV0 { number, raid_disk: number, state, ..DiskV0::default() };
            }
        }
        match update.stage {
            ReshapeStage::At(position) => next.reshape_position = position,
            ReshapeStage::Reversed(position) => next.reverse(position),
            ReshapeStage::Finished => next.finish(),
        }
        next.count();
        next
    }

    fn reverse(&mut self, position: u64) {
        self.reshape_position = position;
        self.raid_disks = self.raid_disks.wrapping_sub_signed(self.delta_disks);
        self.delta_disks = self.delta_disks.wrapping_neg();
        std::mem::swap(&mut self.level, &mut self.new_level);
        std::mem::swap(&mut self.layout, &mut self.new_layout);
        std::mem::swap(&mut self.chunk_size, &mut self.new_chunk);
    }

    fn finish(&mut self) {
        if self.minor_version < MINOR_RESHAPE {
            return;
        }
        (self.level, self.layout, self.chunk_size) =
            (self.new_level, self.new_layout, self.new_chunk);
        self.minor_version = MINOR_SETTLED;
        (self.delta_disks, self.reshape_position) = (0, 0);
        (self.new_level, self.new_layout, self.new_chunk) = (0, 0, 0);
        let slots = self.raid_disks;
        for disk in &mut self.disks {
            if disk.state & (DISK_ACTIVE | DISK_SYNC) == 0 || disk.state & DISK_REMOVED != 0 {
                continue;
            }
            let kind = DISK_ACTIVE | DISK_SYNC;
            // What follows the position is in sync at the end; the others wait as spares.
            disk.state = disk.state & !kind | if disk.raid_disk < slots { kind } else { 0 };
        }
    }

    fn count(&mut self) {
        let slots = self.raid_disks as usize;
        let own = self.this_disk.number as usize;
        (self.nr_disks, self.active_disks, self.spare_disks, self.failed_disks) = (0, 0, 0, 0);
        for index in 0..self.disks.len() {
            let disk = self.disks[index];
            let is_faulty = disk.state & (DISK_FAULTY | DISK_REMOVED) != 0;
            if is_faulty {
                self.failed_disks += u32::from(index < slots);
            } else if disk.state & (DISK_ACTIVE | DISK_SYNC) != 0 {
                self.nr_disks += 1;
                self.active_disks += 1;
            } else if self.is_described(index) || index == own {
                self.nr_disks += 1;
                self.spare_disks += 1;
            }
        }
        self.working_disks = self.active_disks + self.spare_disks;
        if let Some(disk) = self.disks.get(own) {
            self.this_disk = *disk;
        }
    }
}
