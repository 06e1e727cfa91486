//! New devices for the empty slots of an array, or in place of members: checked, and prepared.
//!
//! Invariant: a device that holds data is refused unless the caller says otherwise; one that was a
//! member of the same array, and is none any more, is taken. If its superblock and the bitmap prove
//! what it lacks, it gets its slot again as it is; of all others, old superblocks are erased
//! durably before anything else is written.

use std::sync::Arc;

use array::{BadBlockList, MemberFlags};
use host::{Device, Disk, Location, partition_tables, superblocks};
use md::assemble::{Array, Member, MemberState, StartBitmap, StartPlan, StartRefusal};
use md::create::{Addition, AdditionError, addition};
use md::ondisk::superblock::{Outcome, READ_BYTES, Superblock};
use md::ondisk::{MemberMetadata, Uuid, Write};
use md::{MemberIdx, SECTOR_BYTES};
use thiserror::Error;

use crate::bitmap;
use crate::create::what_it_holds;
use crate::opened::{Opened, start_members};
use crate::partitioned::location_of;
use crate::random::random_uuid;
use crate::rescue::laid_over;

/// Why a device cannot be put into a slot.
#[derive(Debug, Error)]
pub enum JoinError {
    /// No slot is empty.
    #[error("{name}: the array has no empty slot for it")]
    NoEmptySlot {
        /// Name of the device.
        name: String,
    },
    /// What it is to replace serves no slot.
    #[error("{name}: serves no slot of the array, or is being replaced already")]
    NotReplaceable {
        /// Name of the member that is to be replaced.
        name: String,
    },
    /// It is in use as a member of the array.
    #[error("{name}: is in sync in slot {slot} of this array: name it among the members")]
    Active {
        /// Name of the device.
        name: String,
        /// Slot of the device.
        slot: u16,
    },
    /// It has the superblock of a member that is in use.
    #[error(
        "{name}: has the superblock of the member in slot {slot}, which is in use: it is that \
         member by another name, or a copy of it"
    )]
    Copy {
        /// Name of the device.
        name: String,
        /// The slot.
        slot: u16,
    },
    /// It has the superblock of another device that is to join.
    #[error(
        "{name}: has the same superblock as {with}: it is that device by another name, or a copy"
    )]
    Twice {
        /// Name of the device.
        name: String,
        /// Name of the other one.
        with: String,
    },
    /// It is a member of the array with newer metadata than those that it is to be rebuilt from.
    #[error(
        "{name}: is a member of this array and newer than the members named (event count {events}, \
         theirs {theirs}): name it among the members"
    )]
    Newer {
        /// Name of the device.
        name: String,
        /// Event count of the device.
        events: u64,
        /// That of the freshest member.
        theirs: u64,
    },
    /// It holds data: a sentence for each finding.
    #[error("{}", .0.join(" "))]
    Holds(Vec<String>),
    /// The array is not started at all.
    #[error("cannot start the array: {0}")]
    Start(#[from] StartRefusal),
    /// It does not fit.
    #[error(transparent)]
    Unfit(#[from] AdditionError),
    /// The system gives no random UUID.
    #[error("the system gives no random bytes: {}", host::sys::reason(.0))]
    Random(#[source] std::io::Error),
}

/// Devices that join an array.
#[derive(Clone, Copy, Default)]
pub struct NewDevices<'a> {
    /// For empty slots.
    pub add: &'a [Arc<Device>],
    /// Flags that those for empty slots get, besides what they have as former members.
    pub flags: MemberFlags,
    /// For members that are replaced: the index of the member, and the device.
    pub replace: &'a [(usize, Arc<Device>)],
    /// Also devices that hold data.
    pub overwrite: bool,
}

/// A device that is put into an empty slot, or replaces the member of a slot.
pub(crate) struct NewDevice {
    pub(crate) slot: MemberIdx,
    /// It replaces the slot's member.
    pub(crate) replaces: bool,
    /// With the superblock that those to be written are made from.
    pub(crate) opened: Opened,
    how: How,
}

enum How {
    /// It was the slot's member, and lacks what the bitmap's set bits cover.
    ByBitmap,
    /// All of it is rebuilt, when this has been written.
    Whole(Vec<Write>),
}

impl NewDevice {
    /// The devices for the slots that are empty when rebuilds have been continued and spares have
    /// been taken, and those that replace members. Writes nothing.
    pub(crate) fn of(
        array: &Array,
        members: &[Opened],
        devices: &NewDevices<'_>,
    ) -> Result<Vec<NewDevice>, JoinError> {
        let NewDevices { add: devices, flags, replace, overwrite } = *devices;
        if devices.is_empty() && replace.is_empty() {
            return Ok(Vec::new());
        }
        refuse_twice(devices.iter().chain(replace.iter().map(|(_, device)| device)))?;
        let metadata: Vec<MemberMetadata> =
            members.iter().map(|member| member.superblock.metadata()).collect();
        let labels: Vec<String> = members.iter().map(|member| member.disk.name()).collect();
        let plan = StartPlan::new(array, start_members(members, &metadata, &labels))?;
        let plan = plan.with_rebuilds()?;
        let defining = &members[plan.defining_candidate()].superblock;
        let mut slots = plan.empty_slots();
        // If it cannot be used, the start says so.
        let bitmap = bitmap::head(&plan, members).ok().flatten();
        let (mut new, mut numbers) = (Vec::new(), Vec::new());
        // Former members first: each of them has one slot only.
        let mut others = Vec::new();
        for device in devices {
            refuse_active(array, &**device, plan.defining())?;
            let former = bitmap.as_ref().and_then(|bitmap| former_member(&plan, bitmap, device));
            match former.filter(|(slot, _)| slots.contains(slot)) {
                Some((slot, mut opened)) => {
                    opened.add_flags(flags);
                    slots.retain(|other| *other != slot);
                    numbers.push(opened.superblock.metadata().dev_number);
                    new.push(NewDevice { slot, replaces: false, opened, how: How::ByBitmap });
                }
                None => others.push(device),
            }
        }
        let mut slots = slots.into_iter();
        let mut whole = Vec::new();
        for device in others {
            let slot = slots.next().ok_or(JoinError::NoEmptySlot { name: device.name() })?;
            whole.push((slot, None, device));
        }
        for (candidate, device) in replace {
            refuse_active(array, &**device, plan.defining())?;
            let serving = plan.serving().iter().find(|(_, it)| it.candidate == *candidate);
            let slot = serving.map(|(slot, _)| *slot).filter(|slot| plan.may_be_replaced(*slot));
            let name = || members[*candidate].disk.name();
            let slot = slot.ok_or_else(|| JoinError::NotReplaceable { name: name() })?;
            if whole.iter().any(|(other, ..)| *other == slot) {
                return Err(JoinError::NotReplaceable { name: name() });
            }
            whole.push((slot, Some(&metadata[*candidate]), device));
        }
        for (slot, replaced, device) in whole {
            let flags = replaced.map_or(flags, |old| MemberFlags {
                write_mostly: old.write_mostly,
                failfast: old.failfast,
            });
            let number = plan.free_number(&numbers);
            let (opened, preparations) = blank(defining, number, device, flags)?;
            if !overwrite && !was_member(&**device, plan.defining().set_uuid) {
                refuse_what_is_there(&opened)?;
            }
            let replaces = replaced.is_some();
            new.push(NewDevice { slot, replaces, opened, how: How::Whole(preparations) });
            numbers.push(number);
        }
        Ok(new)
    }

    /// The device as it will be when it has joined, on paper: without its old superblocks, and the
    /// superblock that it gets.
    pub(crate) fn on_paper(&self) -> (Arc<dyn Disk>, Superblock) {
        let Opened { disk, superblock, .. } = &self.opened;
        if self.is_by_bitmap() {
            return (disk.clone(), superblock.recovering_by_bitmap());
        }
        let old = superblocks(&**disk).outcomes.into_iter();
        let old = old.filter(|(_, outcome)| !matches!(outcome, Outcome::NoMagic));
        let zeroes = [0; READ_BYTES];
        let sectors = disk.sectors();
        let erased = old.map(|(candidate, _)| {
            let bytes = (sectors.saturating_sub(candidate.sector) * SECTOR_BYTES) as usize;
            (candidate.sector, &zeroes[..bytes.min(READ_BYTES)])
        });
        (laid_over(disk.clone(), erased), superblock.clone())
    }

    /// Whether it was the slot's member, and lacks only what the bitmap's set bits cover.
    pub(crate) fn is_by_bitmap(&self) -> bool {
        matches!(self.how, How::ByBitmap)
    }

    /// Erases old superblocks, and writes empty logs, on a device that is rebuilt whole; its
    /// superblock is written when the array runs. That of a former member says from now on that it
    /// is being rebuilt.
    ///
    /// # Errors
    /// What could not be done, and why.
    pub(crate) fn prepare(&self) -> Result<(), (&'static str, std::io::Error)> {
        let disk = &self.opened.disk;
        let How::Whole(preparations) = &self.how else {
            let doing = "record that it is being rebuilt";
            self.opened.mark_recovering().map_err(|error| (doing, error))?;
            tracing::info!(device = disk.name(), slot = self.slot.0, "former member put back");
            return Ok(());
        };
        write_preparations(&**disk, preparations)?;
        let (device, slot, replaces) = (disk.name(), self.slot.0, self.replaces);
        tracing::info!(device, slot, replaces, "device joins");
        Ok(())
    }
}

/// A device as one that joins the array whose superblock this is, as `number`: with its superblock,
/// which is not on it yet, and what must be written before that is.
pub(crate) fn blank(
    defining: &Superblock,
    number: u32,
    device: &Arc<Device>,
    flags: MemberFlags,
) -> Result<(Opened, Vec<Write>), JoinError> {
    let like = md::create::Device {
        label: device.name(),
        sectors: device.sectors(),
        logical_block: device.logical_block(),
        uuid: random_uuid().map_err(JoinError::Random)?,
        data_offset: None,
        write_mostly: flags.write_mostly,
        failfast: flags.failfast,
    };
    let Addition { superblock, preparations } =
        addition(defining, number, &like).map_err(JoinError::Unfit)?;
    Ok((Opened::new_device(device, superblock), preparations))
}

/// Refuses a device that holds data.
pub(crate) fn refuse_what_is_there(new: &Opened) -> Result<(), JoinError> {
    let Opened { disk, superblock, .. } = new;
    let metadata = superblock.metadata();
    let superblock = superblock.sector()..superblock.sector() + READ_BYTES as u64 / SECTOR_BYTES;
    let ppl = metadata.ppl.map(|ppl| ppl.area);
    let bad_blocks = metadata.bad_blocks.map(|place| place.area);
    let areas = [metadata.bitmap, bad_blocks, ppl].into_iter().flatten();
    let areas = areas.map(|area| area.sector..area.sector + area.sectors);
    let areas: Vec<_> = [superblock].into_iter().chain(areas).collect();
    let name = disk.name();
    let holds = what_it_holds(&**disk, &areas);
    match holds.is_empty() {
        true => Ok(()),
        false => {
            let mut holds: Vec<String> =
                holds.iter().map(|what| format!("{name} {what}.")).collect();
            let part = partition_that_would_do(new);
            holds.extend(part.map(|it| format!("Its partition {it} is large enough and empty.")));
            Err(JoinError::Holds(holds))
        }
    }
}

/// The first partition of a disk that could join in its place.
fn partition_that_would_do(new: &Opened) -> Option<Location> {
    let device = new.device.as_ref()?;
    let number = new.superblock.metadata().dev_number;
    let tables = partition_tables(&**device);
    let mut partitions = tables.first()?.partitions.iter();
    partitions.find_map(|partition| {
        let location = location_of(device, partition);
        // The lock of the disk is in the way of one on its part.
        let part = Arc::new(Device::look(&location, None).ok()?);
        let is_empty = what_it_holds(&*part, &[]).is_empty();
        let fits = blank(&new.superblock, number, &part, MemberFlags::default()).is_ok();
        (is_empty && fits).then_some(location)
    })
}

/// Erases old superblocks durably, and then writes empty logs, on a device that is filled whole.
///
/// # Errors
/// What could not be done, and why.
pub(crate) fn write_preparations(
    disk: &dyn Disk,
    preparations: &[Write],
) -> Result<(), (&'static str, std::io::Error)> {
    let erase = || {
        for (candidate, outcome) in superblocks(disk).outcomes {
            if !matches!(outcome, Outcome::NoMagic) {
                let end = candidate.sector + READ_BYTES as u64 / SECTOR_BYTES;
                disk.write_zeroes(candidate.sector..end.min(disk.sectors()))?;
            }
        }
        disk.sync()
    };
    erase().map_err(|error| ("erase its old superblock", error))?;
    let prepare = || {
        for write in preparations {
            match write {
                Write::Zeroes(area) => disk.write_zeroes(area.sector..area.sector + area.sectors),
                Write::Bytes { sector, bytes } => disk.write(*sector, bytes),
            }?;
        }
        disk.sync()
    };
    prepare().map_err(|error| ("write its logs", error))
}

/// Refuses a member of the array that missed nothing; also where a member that is used has the same
/// superblock: two names of one NBD export look like two disks.
fn refuse_active(
    array: &Array,
    disk: &dyn Disk,
    defining: &MemberMetadata,
) -> Result<(), JoinError> {
    let detection = superblocks(disk);
    let Some((superblock, _)) = detection.superblock() else { return Ok(()) };
    let own = superblock.metadata();
    if own.set_uuid == defining.set_uuid && own.events > defining.events {
        let (events, theirs) = (own.events, defining.events);
        return Err(JoinError::Newer { name: disk.name(), events, theirs });
    }
    let md::ondisk::Role::Slot(slot) = own.role else { return Ok(()) };
    let is_fresh =
        own.set_uuid == defining.set_uuid && own.events.saturating_add(1) >= defining.events;
    let listed = defining.roles.get(own.dev_number as usize);
    let serves = |member: &Member| member.state == MemberState::Active(MemberIdx(slot));
    if is_fresh && own.recovery_offset.is_none() && listed == Some(&own.role) {
        let name = disk.name();
        return Err(match array.members.iter().any(serves) {
            true => JoinError::Copy { name, slot },
            false => JoinError::Active { name, slot },
        });
    }
    Ok(())
}

/// Refuses two devices that have one superblock: two names of one NBD export look like two disks,
/// and one that gets two slots has the data of neither.
fn refuse_twice<'a>(devices: impl Iterator<Item = &'a Arc<Device>>) -> Result<(), JoinError> {
    let mut seen: Vec<(MemberMetadata, &Arc<Device>)> = Vec::new();
    for device in devices {
        let detection = superblocks(&**device);
        let Some((superblock, _)) = detection.superblock() else { continue };
        let own = superblock.metadata();
        let identity =
            |it: &MemberMetadata| (it.set_uuid, it.device_uuid, it.dev_number, it.events);
        if let Some((_, with)) = seen.iter().find(|(it, _)| identity(it) == identity(&own)) {
            return Err(JoinError::Twice { name: device.name(), with: with.name() });
        }
        seen.push((own, device));
    }
    Ok(())
}

/// A device that was a member, with its slot, if the bitmap covers all that it lacks.
fn former_member(
    plan: &StartPlan<'_>,
    bitmap: &StartBitmap,
    device: &Arc<Device>,
) -> Option<(MemberIdx, Opened)> {
    let opened = Opened::device(device.clone())?;
    let slot = plan.readdition(&opened.candidate(), bitmap)?;
    (!has_bad_blocks(&opened) && !device.is_read_only()).then_some((slot, opened))
}

/// Whether a device lists bad blocks, or its list cannot be read.
pub(crate) fn has_bad_blocks(device: &Opened) -> bool {
    let metadata = device.superblock.metadata();
    metadata.bad_blocks.is_some_and(|place| {
        let list = BadBlockList::read(device.disk.clone(), place, metadata.data_offset);
        list.map_or(true, |list| !list.is_empty())
    })
}

/// Whether a device was a member of the same array: what it holds is that array's.
pub(crate) fn was_member(disk: &dyn Disk, array: Uuid) -> bool {
    let detection = superblocks(disk);
    let superblock = detection.superblock().map(|(superblock, _)| superblock.metadata());
    superblock.is_some_and(|own| own.set_uuid == array)
}
