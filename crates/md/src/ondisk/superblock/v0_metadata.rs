//! The contents of a superblock 0.90 as version-independent metadata.
//!
//! Invariant: a device's own entry is `disks[this_disk.number]`, as for the kernel; the copy in
//! `this_disk` and the device numbers are ignored.

use super::v0::{DISK_ACTIVE, DISK_FAILFAST, DISK_FAULTY, DISK_REMOVED, DISK_SYNC};
use super::v0::{DISK_WRITE_MOSTLY, STATE_BITMAP, STATE_CLEAN};
use super::{DiskV0, SuperblockV0};
use crate::ondisk::{Area, MemberMetadata, ReshapeState, Role, Timestamp, Version};

/// From the superblock to the bitmap: behind its 4096 bytes.
const BITMAP_OFFSET: u64 = 8;
/// Rest of the superblock's 64 KiB: the maximum size of a bitmap, in sectors.
const BITMAP_SECTORS: u64 = 120;

/// More cannot be recorded in KiB: 2^32 of them.
const DATA_SECTORS_MAX: u64 = 1 << 33;

/// The minor version of a reshape.
pub(super) const MINOR_RESHAPE: u32 = 91;

/// The reserved word in which a reshape of raidlab's has the microseconds of the update.
pub(super) const UTIME_MICROS: usize = 0;

impl SuperblockV0 {
    /// In units and terms that do not depend on the version.
    pub fn metadata(&self) -> MemberMetadata {
        let own = self.own_disk();
        let flag = |bit: u32| own.is_some_and(|disk| disk.has(bit));
        MemberMetadata {
            version: Version::V0_90,
            set_uuid: self.set_uuid,
            device_uuid: None,
            name: String::new(),
            created: Timestamp { seconds: u64::from(self.ctime), micros: 0 },
            updated: Timestamp { seconds: u64::from(self.utime), micros: self.updated_micros() },
            level: self.level,
            layout: if self.level == 0 { 0 } else { self.layout },
            chunk_sectors: self.chunk_size / 512,
            raid_disks: self.raid_disks,
            used_sectors: u64::from(self.size) * 2,
            data_offset: 0,
            data_sectors: self.data_sectors(),
            super_sector: self.sector,
            events: self.events,
            resync_offset: self.resync_offset(),
            dev_number: self.this_disk.number,
            role: own.map_or(Role::Spare, |disk| self.role_of(disk)),
            roles: self.disks.iter().map(|disk| self.role_of(disk)).collect(),
            recovery_offset: own.and_then(|disk| self.recovery_offset_of(disk)),
            replacement: false,
            write_mostly: flag(DISK_WRITE_MOSTLY),
            failfast: flag(DISK_FAILFAST),
            bitmap: (self.state & STATE_BITMAP != 0).then(|| Area {
                sector: self.sector.saturating_add(BITMAP_OFFSET),
                sectors: BITMAP_SECTORS,
            }),
            bad_blocks: None,
            ppl: None,
            log_area: None,
            has_journal: false,
            journal_tail: None,
            reshape: self.reshape(),
            foreign: None,
        }
    }

    /// In a reshape only; no other version has the word.
    fn updated_micros(&self) -> u32 {
        if self.minor_version < MINOR_RESHAPE { 0 } else { self.state_reserved[UTIME_MICROS] }
    }

    /// The descriptor of this device, if its number is one.
    pub(super) fn own_disk(&self) -> Option<&DiskV0> {
        self.disks.get(usize::try_from(self.this_disk.number).ok()?)
    }

    /// Whether `disks[index]` describes a device: not removed, and not the zeroes of an entry that
    /// was never used.
    pub(super) fn is_described(&self, index: usize) -> bool {
        let disk = &self.disks[index];
        let unused = disk.state == 0 && (disk.number as usize != index || index == 0);
        !disk.has(DISK_REMOVED) && !unused
    }

    pub(super) fn role_of(&self, disk: &DiskV0) -> Role {
        // "Active" without "sync" is a new member of a reshape; before, there was no such thing.
        let serves = DISK_SYNC | if self.reshapes() { DISK_ACTIVE } else { 0 };
        let slot = u16::try_from(disk.raid_disk).ok();
        match disk.state {
            state if state & DISK_REMOVED != 0 => Role::Spare,
            state if state & DISK_FAULTY != 0 => Role::Faulty,
            state if state & serves != 0 => slot.map_or(Role::Spare, Role::Slot),
            _ => Role::Spare,
        }
    }

    pub(super) fn reshapes(&self) -> bool {
        self.minor_version >= MINOR_RESHAPE
    }

    fn data_sectors(&self) -> u64 {
        match self.level {
            1.. if self.sector >= DATA_SECTORS_MAX => DATA_SECTORS_MAX - 2,
            _ => self.sector,
        }
    }

    fn resync_offset(&self) -> Option<u64> {
        match self.state & STATE_CLEAN != 0 {
            true => None,
            // A checkpoint that is older than the superblock says nothing.
            false if self.cp_events != self.events => Some(0),
            false => Some(u64::from(self.recovery_cp)),
        }
    }

    /// A member that joins in a reshape is in sync up to where the reshape is.
    pub(super) fn recovery_offset_of(&self, disk: &DiskV0) -> Option<u64> {
        let joins = disk.has(DISK_ACTIVE) && disk.state & (DISK_SYNC | DISK_FAULTY) == 0;
        (self.reshapes() && joins && !disk.has(DISK_REMOVED)).then_some(0)
    }

    fn reshape(&self) -> Option<ReshapeState> {
        self.reshapes().then_some(ReshapeState {
            position: self.reshape_position,
            backwards: self.delta_disks < 0,
            delta_disks: self.delta_disks,
            new_level: self.new_level,
            new_layout: self.new_layout,
            new_chunk_sectors: self.new_chunk / 512,
            new_data_offset: 0,
        })
    }
}
