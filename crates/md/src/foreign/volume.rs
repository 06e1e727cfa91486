//! What the formats have in common on their way to candidates: what is known of a member besides
//! its metadata, a geometry in md's terms, and metadata that say nothing yet.

use crate::level::Level;
use crate::ondisk::{ForeignVolume, MemberMetadata, Role, Timestamp, Uuid, Version};

/// What is known of a member besides its metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    /// The caller's name for it.
    pub label: &'a str,
    /// Size of the device in sectors.
    pub device_sectors: u64,
    /// Its serial number, where the system has it.
    pub serial: Option<&'a str>,
    /// The name of the file, of an image.
    pub file_name: Option<&'a str>,
}

/// A volume's geometry in md's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout.
    pub layout: u32,
    /// Sectors of a chunk; 0 without chunks.
    pub chunk_sectors: u32,
    /// Sectors that each member's part of the volume has.
    pub component_sectors: u64,
}

/// Sectors on each member of a volume of `sectors` over `data_members`, in whole chunks.
pub(super) fn component(sectors: u64, data_members: u64, chunk: u64) -> Option<u64> {
    let each = sectors.div_ceil(std::num::NonZero::new(data_members)?.get());
    if chunk == 0 { Some(each) } else { each.checked_next_multiple_of(chunk) }
}

/// What a candidate's metadata begin with: nothing is known but what is given.
pub(super) fn blank(version: Version, uuid: Uuid, super_sector: u64) -> MemberMetadata {
    MemberMetadata {
        version,
        set_uuid: uuid,
        device_uuid: None,
        name: String::new(),
        created: Timestamp::default(),
        updated: Timestamp::default(),
        level: 0,
        layout: 0,
        chunk_sectors: 0,
        raid_disks: 0,
        used_sectors: 0,
        data_offset: 0,
        data_sectors: 0,
        super_sector,
        events: 0,
        resync_offset: None,
        dev_number: 0,
        role: Role::Spare,
        roles: Vec::new(),
        recovery_offset: None,
        replacement: false,
        write_mostly: false,
        failfast: false,
        bitmap: None,
        bad_blocks: None,
        ppl: None,
        log_area: None,
        has_journal: false,
        journal_tail: None,
        reshape: None,
        foreign: Some(Box::new(ForeignVolume::default())),
    }
}

impl Shape {
    /// Puts it into a candidate's metadata; `room` is what is reserved on the member.
    pub(super) fn apply(&self, to: &mut MemberMetadata, room: u64) {
        let striped = self.level == Level::Raid0.number();
        to.level = self.level;
        to.layout = self.layout;
        to.chunk_sectors = self.chunk_sectors;
        to.used_sectors = if striped { 0 } else { self.component_sectors };
        to.data_sectors = if striped { self.component_sectors } else { room };
    }
}
