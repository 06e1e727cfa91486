//! The contents of a superblock 1.x: fields, interpreted by the feature bits.
//!
//! Invariant: a field whose bit is off is never interpreted; md leaves stale values in it. An area
//! that is promised but cannot be (before the device's start, no room) is reported with no sectors
//! and not left out: "no bitmap" would be the wrong conclusion.

use super::v1::{FLAG_FAILFAST, FLAG_WRITE_MOSTLY, ROLE_FAULTY, ROLE_JOURNAL, ROLE_SPARE};
use super::v1::{SuperblockV1, feature};
use crate::ondisk::{Area, BadBlockArea, MemberMetadata, PplArea, ReshapeState, Role, Version};

/// Minimum number of sectors from the start of a 1.0 superblock to the end of the device.
const TAIL_SECTORS: u64 = 16;

impl SuperblockV1 {
    /// In units and terms that do not depend on the version.
    pub fn metadata(&self) -> MemberMetadata {
        let roles: Vec<Role> = self.dev_roles.iter().map(|&role| role_of(role)).collect();
        let role = roles.get(self.dev_number as usize).copied().unwrap_or(Role::Spare);
        let recovers = self.has(feature::RECOVERY_OFFSET) && matches!(role, Role::Slot(_));
        // RAID 0 always stores a number; without the feature bit the kernel ignores it.
        let has_layout = self.level != 0 || self.has(feature::RAID0_LAYOUT);
        MemberMetadata {
            version: self.version,
            set_uuid: self.set_uuid,
            device_uuid: Some(self.device_uuid),
            name: self.name(),
            created: self.ctime,
            updated: self.utime,
            level: self.level,
            layout: if has_layout { self.layout } else { 0 },
            chunk_sectors: self.chunksize,
            raid_disks: self.raid_disks,
            used_sectors: self.size,
            data_offset: self.data_offset,
            data_sectors: self.data_size,
            super_sector: self.super_offset,
            events: self.events,
            resync_offset: (self.resync_offset != u64::MAX).then_some(self.resync_offset),
            dev_number: self.dev_number,
            role,
            roles,
            recovery_offset: recovers.then_some(self.recovery_offset),
            replacement: self.has(feature::REPLACEMENT),
            write_mostly: self.devflags & FLAG_WRITE_MOSTLY != 0,
            failfast: self.devflags & FLAG_FAILFAST != 0,
            bitmap: self.bitmap_area(),
            bad_blocks: self.bad_block_area(),
            ppl: self.ppl_area(),
            log_area: self.log_area(),
            has_journal: self.has(feature::JOURNAL),
            journal_tail: (role == Role::Journal).then_some(self.recovery_offset),
            reshape: self.reshape(),
            foreign: None,
        }
    }

    /// The name up to its first NUL; bytes that are no UTF-8 become U+FFFD.
    pub fn name(&self) -> String {
        let end = self.set_name.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&self.set_name[..end.unwrap_or(32)]).into_owned()
    }

    fn reshape(&self) -> Option<ReshapeState> {
        let moved = if self.has(feature::NEW_OFFSET) { self.new_offset } else { 0 };
        let backwards =
            self.delta_disks < 0 || self.delta_disks == 0 && self.has(feature::RESHAPE_BACKWARDS);
        self.has(feature::RESHAPE_ACTIVE).then_some(ReshapeState {
            position: self.reshape_position,
            backwards,
            delta_disks: self.delta_disks,
            new_level: self.new_level,
            new_layout: self.new_layout,
            new_chunk_sectors: self.new_chunk,
            new_data_offset: self.data_offset.saturating_add_signed(i64::from(moved)),
        })
    }

    /// With an offset of 0 the kernel sees no bitmap, whatever the bit says.
    fn bitmap_area(&self) -> Option<Area> {
        let exists = self.has(feature::BITMAP_OFFSET) && self.bitmap_offset != 0;
        exists.then(|| self.area(i64::from(self.bitmap_offset), None))
    }

    fn log_area(&self) -> Option<Area> {
        let is_of_bitmap = self.has(feature::BITMAP_OFFSET);
        let has_place = self.ppl_offset() != 0 && self.ppl_size() != 0;
        (has_place && !is_of_bitmap)
            .then(|| self.area(i64::from(self.ppl_offset()), Some(u64::from(self.ppl_size()))))
    }

    fn ppl_area(&self) -> Option<PplArea> {
        let exists = self.feature_map & (feature::PPL | feature::MULTIPLE_PPLS) != 0;
        exists.then(|| PplArea {
            area: self.area(i64::from(self.ppl_offset()), Some(u64::from(self.ppl_size()))),
            multiple: self.has(feature::MULTIPLE_PPLS),
        })
    }

    fn bad_block_area(&self) -> Option<BadBlockArea> {
        let in_use = self.has(feature::BAD_BLOCKS);
        let has_room = self.bblog_offset != 0 && self.bblog_size != 0;
        let size = if self.bblog_offset == 0 { 0 } else { u64::from(self.bblog_size) };
        (in_use || has_room).then(|| BadBlockArea {
            area: self.area(i64::from(self.bblog_offset), Some(size)),
            shift: self.bblog_shift,
            in_use,
        })
    }

    /// The area at `offset` from the superblock; without a length it ends where the next thing
    /// begins: data, superblock, bad-block log, or the end of the device.
    fn area(&self, offset: i64, sectors: Option<u64>) -> Area {
        let Some(sector) = self.super_offset.checked_add_signed(offset) else {
            return Area { sector: 0, sectors: 0 };
        };
        let bad_blocks = match self.bblog_offset {
            0 => None,
            offset => self.super_offset.checked_add_signed(i64::from(offset)),
        };
        let at_the_end = self.version == Version::V1_0;
        let device_end = at_the_end.then(|| self.super_offset.saturating_add(TAIL_SECTORS));
        let next = [Some(self.data_offset), Some(self.super_offset), bad_blocks, device_end];
        let next = next.into_iter().flatten().filter(|&next| next > sector).min();
        let room = next.map_or(0, |next| next - sector);
        Area { sector, sectors: sectors.unwrap_or(room) }
    }
}

pub(super) fn role_of(raw: u16) -> Role {
    match raw {
        ROLE_SPARE => Role::Spare,
        ROLE_FAULTY => Role::Faulty,
        ROLE_JOURNAL => Role::Journal,
        slot => Role::Slot(slot),
    }
}

pub(super) fn raw_role(role: Role) -> u16 {
    match role {
        Role::Spare => ROLE_SPARE,
        Role::Faulty => ROLE_FAULTY,
        Role::Journal => ROLE_JOURNAL,
        Role::Slot(slot) => slot,
    }
}
