//! A former member that gets its slot again, with only what it missed: as `mdadm --re-add`.
//!
//! Invariant: pure. A device is allowed only if its superblock and the bitmap prove that it holds
//! everything but what set bits cover: it was in sync in its slot with the members that serve now,
//! and no bit was cleared since that it did not see. Called by `admin`, and by simulations.

use super::agree::difference;
use super::candidate::Candidate;
use super::start::StartPlan;
use super::start_bitmap::StartBitmap;
use crate::ondisk::{MemberMetadata, Role, Version};
use crate::units::MemberIdx;

/// An array to which former members may be added again.
pub struct Readdition<'a> {
    /// A superblock of it: its settings count.
    pub defining: &'a MemberMetadata,
    /// The members that serve: their slots and numbers.
    pub serving: &'a [(MemberIdx, u32)],
}

impl Readdition<'_> {
    /// The slot in which a device was a member, in sync, with all that serve now. What it has
    /// missed since its event count is not looked at.
    pub fn former_slot(&self, device: &Candidate) -> Option<MemberIdx> {
        let (defining, own) = (self.defining, &device.metadata);
        let Role::Slot(slot) = own.role else { return None };
        // 0.90 cannot record that a member follows the bitmap.
        let is_of_array = own.set_uuid == defining.set_uuid
            && own.version != Version::V0_90
            && !difference(own, defining).is_some_and(|difference| difference.matters)
            && own.used_sectors == defining.used_sectors
            && own.data_sectors >= defining.used_sectors
            && own.reshape.is_none();
        let ends = |start: u64, sectors: u64| start.checked_add(sectors);
        let data_end = ends(own.data_offset, defining.used_sectors);
        let bitmap_end = own.bitmap.and_then(|area| ends(area.sector, area.sectors));
        let is_inside = |end: Option<u64>| end.is_some_and(|end| end <= device.device_sectors);
        let is_sound = device.kernel_refuses.is_empty()
            && device.checksum_ok
            && is_inside(data_end)
            && is_inside(bitmap_end);
        let was_in_sync = own.recovery_offset.is_none() && !own.replacement;
        // One that ran without them since then lists them as failed.
        let served_together = self
            .serving
            .iter()
            .all(|(slot, number)| own.roles.get(*number as usize) == Some(&Role::Slot(slot.0)));
        let is_slot = u32::from(slot) < defining.raid_disks;
        let may = is_of_array && is_sound && was_in_sync && served_together && is_slot;
        may.then_some(MemberIdx(slot))
    }
}

impl StartPlan<'_> {
    /// The slot in which a device that was a member is up to date but for what the bits of this
    /// bitmap cover. `None`: it must be rebuilt as a new device.
    pub fn readdition(&self, device: &Candidate, bitmap: &StartBitmap) -> Option<MemberIdx> {
        let (defining, own) = (self.defining(), &device.metadata);
        let number = |candidate: usize| self.members[candidate].metadata.dev_number;
        let serving = self.serving().iter().map(|(slot, it)| (*slot, number(it.candidate)));
        let serving: Vec<(MemberIdx, u32)> = serving.collect();
        let slot = Readdition { defining, serving: &serving }.former_slot(device)?;
        let number = own.dev_number;
        let is_free = match defining.roles.get(number as usize) {
            Some(Role::Slot(listed)) => *listed == slot.0,
            Some(Role::Journal) => false,
            _ => true,
        };
        let is_taken = self.members.iter().any(|member| member.metadata.dev_number == number);
        let saw = |events: u64| {
            !bitmap.stale && (bitmap.header.events_cleared..=defining.events).contains(&events)
        };
        // With the same event count at another time it is of another state of the array.
        let is_other = own.events == defining.events && own.updated != defining.updated;
        let is_empty = slot.index() < self.geometry().members() && !self.has_member(slot);
        (is_free && !is_taken && !is_other && saw(own.events) && is_empty).then_some(slot)
    }
}
