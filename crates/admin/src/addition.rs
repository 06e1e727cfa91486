//! New devices for the empty slots of an array: checked, and prepared for the rebuild.
//!
//! Invariant: a device that holds data is refused unless the caller says otherwise; one that was a
//! member of the same array, and is none any more, is taken. Old superblocks are erased durably
//! before anything else is written to a device.

use std::sync::Arc;

use device::{Device, Disk, superblocks};
use md::assemble::{Array, Member, MemberState, StartPlan, StartRefusal};
use md::create::{Addition, AdditionError, addition};
use md::ondisk::superblock::{Checksum, Outcome, READ_BYTES};
use md::ondisk::{MemberMetadata, Write};
use md::{MemberIdx, SECTOR_BYTES};
use thiserror::Error;

use crate::create::what_it_holds;
use crate::opened::{Opened, start_members};
use crate::random::random_uuid;

/// Why a device cannot be put into a slot.
#[derive(Debug, Error)]
pub enum JoinError {
    /// No slot is empty.
    #[error("{name}: the array has no empty slot for it")]
    NoEmptySlot {
        /// Name of the device.
        name: String,
    },
    /// It is in use as a member of the array.
    #[error("{name}: is in sync in slot {slot} of this array: name it among the members")]
    Active {
        /// Name of the device.
        name: String,
        /// Its slot.
        slot: u16,
    },
    /// It holds data: a sentence for each finding.
    #[error("{}", .0.join("\n"))]
    Holds(Vec<String>),
    /// The array is not started at all.
    #[error("cannot start the array: {0}")]
    Start(#[from] StartRefusal),
    /// It does not fit.
    #[error(transparent)]
    Unfit(#[from] AdditionError),
    /// The system gives no random UUID.
    #[error("the system gives no random bytes: {}", sys::reason(.0))]
    Random(#[source] std::io::Error),
}

/// A device that is put into an empty slot.
pub(crate) struct NewDevice {
    pub(crate) slot: MemberIdx,
    /// With the superblock that those to be written are made from.
    pub(crate) opened: Opened,
    preparations: Vec<Write>,
}

impl NewDevice {
    /// The devices for the slots that are empty when rebuilds have been continued and spares have
    /// been taken. Writes nothing. `overwrite`: also devices that hold data.
    pub(crate) fn of(
        array: &Array,
        members: &[Opened],
        devices: &[Arc<Device>],
        overwrite: bool,
    ) -> Result<Vec<NewDevice>, JoinError> {
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let metadata: Vec<MemberMetadata> =
            members.iter().map(|member| member.superblock.metadata()).collect();
        let labels: Vec<String> = members.iter().map(|member| member.disk.name()).collect();
        let plan = StartPlan::new(array, start_members(members, &metadata, &labels))?;
        let plan = plan.with_rebuilds()?;
        let defining = &members[plan.defining_candidate()].superblock;
        let (mut slots, mut number) = (plan.empty_slots().into_iter(), plan.free_number());
        let mut new = Vec::new();
        for device in devices {
            let name = device.name();
            refuse_active(array, &**device, plan.defining())?;
            let slot = slots.next().ok_or(JoinError::NoEmptySlot { name: name.clone() })?;
            let like = md::create::Device {
                label: name,
                sectors: device.sectors(),
                logical_block: device.logical_block(),
                uuid: random_uuid().map_err(JoinError::Random)?,
                data_offset: None,
                write_mostly: false,
                failfast: false,
            };
            let Addition { superblock, preparations } =
                addition(defining, number, &like).map_err(JoinError::Unfit)?;
            let checksum = Checksum::Correct { stored: 0 };
            let opened =
                Opened { disk: device.clone(), device: Some(device.clone()), superblock, checksum };
            let it = NewDevice { slot, opened, preparations };
            if !overwrite && !was_member(&**device, plan.defining()) {
                it.refuse_what_is_there()?;
            }
            new.push(it);
            number += 1;
        }
        Ok(new)
    }

    fn refuse_what_is_there(&self) -> Result<(), JoinError> {
        let Opened { disk, superblock, .. } = &self.opened;
        let metadata = superblock.metadata();
        let superblock =
            superblock.sector()..superblock.sector() + READ_BYTES as u64 / SECTOR_BYTES;
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
                Err(JoinError::Holds(holds.iter().map(|what| format!("{name} {what}.")).collect()))
            }
        }
    }

    /// Erases old superblocks, and writes empty logs. The superblock is written when the array
    /// runs.
    ///
    /// # Errors
    /// What could not be done, and why.
    pub(crate) fn prepare(&self) -> Result<(), (&'static str, std::io::Error)> {
        let disk = &self.opened.disk;
        let erase = || {
            for (candidate, outcome) in superblocks(&**disk).outcomes {
                if !matches!(outcome, Outcome::NoMagic) {
                    let end = candidate.sector + READ_BYTES as u64 / SECTOR_BYTES;
                    disk.write_zeroes(candidate.sector..end.min(disk.sectors()))?;
                }
            }
            disk.sync()
        };
        erase().map_err(|error| ("erase its old superblock", error))?;
        let prepare = || {
            for write in &self.preparations {
                match write {
                    Write::Zeroes(area) => {
                        disk.write_zeroes(area.sector..area.sector + area.sectors)
                    }
                    Write::Bytes { sector, bytes } => disk.write(*sector, bytes),
                }?;
            }
            disk.sync()
        };
        prepare().map_err(|error| ("write its logs", error))?;
        tracing::info!(device = disk.name(), slot = self.slot.0, "device put into an empty slot");
        Ok(())
    }
}

/// Refuses a member of the array that missed nothing.
fn refuse_active(
    array: &Array,
    disk: &dyn Disk,
    defining: &MemberMetadata,
) -> Result<(), JoinError> {
    let detection = superblocks(disk);
    let Some((superblock, _)) = detection.superblock() else { return Ok(()) };
    let own = superblock.metadata();
    let md::ondisk::Role::Slot(slot) = own.role else { return Ok(()) };
    let is_fresh =
        own.set_uuid == defining.set_uuid && own.events.saturating_add(1) >= defining.events;
    let listed = defining.roles.get(own.dev_number as usize);
    let serves = |member: &Member| member.state == MemberState::Active(MemberIdx(slot));
    if is_fresh
        && own.recovery_offset.is_none()
        && listed == Some(&own.role)
        && !array.members.iter().any(serves)
    {
        return Err(JoinError::Active { name: disk.name(), slot });
    }
    Ok(())
}

/// Whether a device was a member of the same array: what it holds is that array's.
fn was_member(disk: &dyn Disk, defining: &MemberMetadata) -> bool {
    let detection = superblocks(disk);
    let superblock = detection.superblock().map(|(superblock, _)| superblock.metadata());
    superblock.is_some_and(|own| own.set_uuid == defining.set_uuid)
}
