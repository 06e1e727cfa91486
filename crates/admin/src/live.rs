//! Devices that join an array while it runs: checked, prepared, and given to the array.
//!
//! Invariant: nothing is written to a device before all that can refuse it has been checked;
//! then old superblocks are erased durably before anything else is written. A former member that
//! lacks only what the bitmap marks gets its slot as it is; any other device is filled whole.

use std::sync::Arc;

use array::{
    AddError, Array, ArrayDevice, BadBlockList, BadBlockMember, DeviceCondition, DeviceNumber,
    JoinAs, Member, MemberFlags, MetadataDevice, MetadataTemplate,
};
use host::{AreaError, Device, Disk, superblocks};
use md::MemberIdx;
use md::assemble::Readdition;
use md::ondisk::MemberMetadata;
use thiserror::Error;

use crate::addition::{
    JoinError, blank, has_bad_blocks, refuse_what_is_there, was_member, write_preparations,
};
use crate::opened::Opened;

/// How a device joins a running array.
#[derive(Clone, Copy, Debug, Default)]
pub struct LiveAddition {
    /// The slot whose member it replaces. `None`: it gets the first empty slot, or is a spare.
    pub replaces: Option<MemberIdx>,
    /// Flags of the device.
    pub flags: MemberFlags,
    /// Also if it holds data.
    pub overwrite: bool,
}

/// What a device has become of a running array. It is filled, or recorded as a spare, from now on:
/// [`Array::devices`] says how far that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveJoined {
    /// Number of the device.
    pub number: DeviceNumber,
    /// Role of the device.
    pub joins: JoinAs,
    /// It was the slot's member, and gets only what the bitmap marks.
    pub by_bitmap: bool,
}

/// Why a device does not join a running array.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The array has been stopped.
    #[error("the array has been stopped")]
    Stopped,
    /// It is a device of the array, perhaps by another name.
    #[error("{name}: is device {} of this array, or a copy of it", number.0)]
    InUse {
        /// Name of the device.
        name: String,
        /// The number that its superblock says.
        number: DeviceNumber,
    },
    /// It cannot be written.
    #[error("{name}: is open for reading only")]
    ReadOnly {
        /// Name of the device.
        name: String,
    },
    /// The array does not take it.
    #[error("{name}: {source}")]
    NotTaken {
        /// Name of the device.
        name: String,
        /// The reason.
        source: AddError,
    },
    /// It does not fit, or holds data.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// Its list of bad blocks cannot be used.
    #[error("{name}: its list of bad blocks: {source}")]
    BadBlocks {
        /// Name of the device.
        name: String,
        /// The reason.
        source: AreaError,
    },
    /// It cannot be written.
    #[error("{name}: cannot {doing}: {}", host::sys::reason(source))]
    Device {
        /// Name of the device.
        name: String,
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Adds a device to a running array with metadata, as `mdadm --add` and `--replace --with` do: it
/// gets an empty slot and is rebuilt, or it is a spare; or it replaces the member of a slot.
///
/// # Errors
/// See [`LiveError`]. The device is unchanged, unless it is [`LiveError::Device`], or the array
/// has changed in between.
pub fn add_live(
    array: &Array,
    device: &Arc<Device>,
    how: &LiveAddition,
) -> Result<LiveJoined, LiveError> {
    let name = device.name();
    let not_taken = |source| LiveError::NotTaken { name: name.clone(), source };
    let no_metadata = || not_taken(AddError::NoMetadata);
    let template = array.metadata_template().ok_or_else(no_metadata)?;
    let number = array.free_number().ok_or_else(no_metadata)?;
    if device.is_read_only() {
        return Err(LiveError::ReadOnly { name });
    }
    let metadata = template.superblock.metadata();
    refuse_in_use(array, device, &metadata)?;
    let former = how.replaces.is_none().then(|| former_member(array, device, &metadata));
    if let Some((slot, mut opened)) = former.flatten() {
        opened.add_flags(how.flags);
        // The array may have got more slots since.
        opened.superblock = opened.superblock.with_slots(metadata.raid_disks);
        return re_add(array, slot, number, &opened, &template);
    }
    let joins = match how.replaces {
        Some(slot) => JoinAs::Replacement(slot),
        None => empty_slot(array, metadata.raid_disks).map_or(JoinAs::Spare, JoinAs::Member),
    };
    let (opened, preparations) = blank(&template.superblock, number.0, device, how.flags)?;
    let member = member(&opened, &metadata)?;
    let may = array.may_take(joins, number, member.info()).ok_or(LiveError::Stopped)?;
    may.map_err(not_taken)?;
    if !how.overwrite && !was_member(&**device, metadata.set_uuid) {
        refuse_what_is_there(&opened)?;
    }
    write_preparations(&**device, &preparations).map_err(|(doing, source)| {
        let name = name.clone();
        LiveError::Device { name, doing, source }
    })?;
    let kept = metadata_device(number, &opened, &template);
    let taken = match joins {
        JoinAs::Member(slot) => array.add_device(slot, member, kept),
        JoinAs::Replacement(slot) => array.replace_device(slot, member, kept),
        JoinAs::Spare => array.add_spare(member, kept),
    };
    taken.ok_or(LiveError::Stopped)?.map_err(not_taken)?;
    tracing::info!(device = name, number = number.0, ?joins, "device joins");
    Ok(LiveJoined { number, joins, by_bitmap: false })
}

/// A device that was the member of a slot which is empty now, with the slot, if the bitmap covers
/// all that it has missed.
fn former_member(
    array: &Array,
    device: &Arc<Device>,
    defining: &MemberMetadata,
) -> Option<(MemberIdx, Opened)> {
    let opened = Opened::device(device.clone())?;
    let metadata = opened.superblock.metadata();
    let devices = array.devices();
    let serving: Vec<(MemberIdx, u32)> = devices
        .iter()
        .map(|device| &device.status)
        .filter(|it| it.condition == DeviceCondition::InSync && !it.replaces)
        .filter_map(|it| Some((it.slot?, it.number.0)))
        .collect();
    let slot = Readdition { defining, serving: &serving }.former_slot(&opened.candidate())?;
    let is_empty = slot_is_empty(&devices, slot);
    let is_covered = metadata.events <= array.metadata()?.events
        && array.bitmap_covers(metadata.events)?
        && !has_bad_blocks(&opened);
    (is_empty && is_covered).then_some((slot, opened))
}

/// Gives a former member its slot again, with a new number: a member that fails before it is
/// recorded lists the old number as failed, and this one lists that member so, as after a split
/// brain.
fn re_add(
    array: &Array,
    slot: MemberIdx,
    number: DeviceNumber,
    opened: &Opened,
    template: &MetadataTemplate,
) -> Result<LiveJoined, LiveError> {
    let own = opened.superblock.metadata();
    let joins = JoinAs::Member(slot);
    let member = member(opened, &template.superblock.metadata())?;
    let name = opened.disk.name();
    let not_taken = |source| LiveError::NotTaken { name: name.clone(), source };
    let may = array.may_take(joins, number, member.info()).ok_or(LiveError::Stopped)?;
    may.map_err(not_taken)?;
    opened.mark_recovering().map_err(|source| {
        let (name, doing) = (name.clone(), "record that it is being rebuilt");
        LiveError::Device { name, doing, source }
    })?;
    let kept = metadata_device(number, opened, template);
    let taken = array.re_add_device(slot, member, kept, own.events).ok_or(LiveError::Stopped)?;
    taken.map_err(not_taken)?;
    tracing::info!(device = name, number = number.0, slot = slot.0, "former member put back");
    Ok(LiveJoined { number, joins, by_bitmap: true })
}

/// Refuses a copy of a device that is in use, or the device by another name, and one that has seen
/// more of the array than the array itself.
fn refuse_in_use(
    array: &Array,
    device: &Device,
    defining: &MemberMetadata,
) -> Result<(), LiveError> {
    let detection = superblocks(device);
    let Some((superblock, _)) = detection.superblock() else { return Ok(()) };
    let own = superblock.metadata();
    if own.set_uuid != defining.set_uuid {
        return Ok(());
    }
    let (name, events) = (device.name(), own.events);
    let theirs = array.metadata().ok_or(LiveError::Stopped)?.events;
    // Superblocks are being written: some may be ahead of what is recorded.
    if events > theirs.saturating_add(1) {
        return Err(JoinError::Newer { name, events, theirs }.into());
    }
    let number = DeviceNumber(own.dev_number);
    let is_it = |it: &array::ArrayDevice| {
        it.status.number == number && it.status.condition != DeviceCondition::Failed
    };
    match events.saturating_add(1) >= theirs && array.devices().iter().any(is_it) {
        true => Err(LiveError::InUse { name, number }),
        false => Ok(()),
    }
}

/// The first slot that nothing serves or is to get.
fn empty_slot(array: &Array, slots: u32) -> Option<MemberIdx> {
    let devices = array.devices();
    (0..slots as u16).map(MemberIdx).find(|slot| slot_is_empty(&devices, *slot))
}

fn slot_is_empty(devices: &[ArrayDevice], slot: MemberIdx) -> bool {
    !devices.iter().map(|device| &device.status).any(|it| {
        let is_out = matches!(it.condition, DeviceCondition::Failed | DeviceCondition::PassedBy);
        it.slot == Some(slot) && !it.replaces && !is_out
    })
}

/// A handle on its data area. It may get entries in its bad-block log.
fn member(new: &Opened, array: &MemberMetadata) -> Result<Box<dyn Member>, LiveError> {
    let metadata = new.superblock.metadata();
    let first = metadata.data_offset;
    let log = array.ppl.and(metadata.log_area);
    let member = new.member(first..first + array.used_sectors, log);
    let Some(mut place) = metadata.bad_blocks else { return Ok(member) };
    place.in_use = false;
    let list = BadBlockList::read(new.disk.clone(), place, first)
        .map_err(|source| LiveError::BadBlocks { name: new.disk.name(), source })?;
    Ok(Box::new(BadBlockMember::new(member, list)))
}

fn metadata_device(
    number: DeviceNumber,
    new: &Opened,
    template: &MetadataTemplate,
) -> MetadataDevice {
    let metadata = new.superblock.metadata();
    MetadataDevice {
        number,
        disk: new.disk.clone(),
        superblock: new.superblock.clone(),
        bitmap: metadata.bitmap.zip(template.bitmap.clone()),
        ppl: template.superblock.metadata().ppl.and(metadata.log_area),
    }
}
