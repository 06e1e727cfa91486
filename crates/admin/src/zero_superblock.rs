//! Erasing superblocks, as `mdadm --zero-superblock` does: the members are no array's any more.
//!
//! Invariant: every member is opened and examined before the first one is written. Only blocks that
//! begin with md's magic are overwritten; data are not.

use std::ffi::OsString;
use std::sync::Arc;

use host::{Access, Device, DeviceError, DeviceOptions, Disk, Location};
use host::{foreign, superblocks};
use md::SECTOR_BYTES;
use md::ondisk::superblock::{Outcome, READ_BYTES, Superblock};
use md::ondisk::{Uuid, Version};
use serde::Serialize;
use thiserror::Error;

use crate::copies::{CopyError, writable};
use crate::members::{MembersError, names};
use crate::partitioned::FoundOn;
use crate::placement::{Choice, Place, TwoReadings, choose};
use crate::shared_storage::{SharedStorage, shared, shared_by};

/// A superblock that is erased, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Erased {
    /// The member, as it was named.
    pub member: String,
    /// First sector of the superblock.
    pub sector: u64,
    /// Its version; `None`: damaged.
    pub version: Option<Version>,
    /// The array's UUID; `None`: damaged.
    pub array_uuid: Option<Uuid>,
}

/// Why nothing is erased.
#[derive(Debug, Error)]
pub enum ZeroError {
    /// A name is not a location, or that of a copy with a map.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A member cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Two members share bytes.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// Where superblocks belong to is not known.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// A member has no superblock.
    #[error("{name}: no md superblock{}", other_metadata(*.other))]
    NoSuperblock {
        /// Name of the device.
        name: String,
        /// Metadata of another format that it has.
        other: Option<&'static str>,
    },
    /// A member has none of the array that is named.
    #[error("{name}: no md superblock of the array {array}")]
    NotOfArray {
        /// Name of the device.
        name: String,
        /// The array.
        array: String,
    },
    /// The superblock at the end of a disk may be that of a partition.
    #[error(
        "{name}: the superblock 0.90 at sector {sector} is, or may be, that of the partition that \
         ends there: name {part}"
    )]
    OfPartition {
        /// The disk.
        name: String,
        /// Where.
        sector: u64,
        /// The partition.
        part: Location,
    },
    /// Two arrays have the name.
    #[error(
        "several arrays on these disks have the name {array}: --array UUID is one of {}",
        .uuids.iter().map(Uuid::to_string).collect::<Vec<_>>().join(", ")
    )]
    SeveralOfName {
        /// The name of the arrays.
        array: String,
        /// UUIDs of the arrays.
        uuids: Vec<Uuid>,
    },
    /// A disk has another array in its partitions, and no array is named.
    #[error(
        "{name}: its superblock is that of {own}, and {part} is a member of an array that is, or \
         may be, newer: --array {own} erases the former, the name {part} that of the other"
    )]
    TwoArrays {
        /// The disk.
        name: String,
        /// The UUID of its array.
        own: Uuid,
        /// The partition.
        part: Location,
    },
    /// A member has only one that is damaged, or of another place.
    #[error("{name}: sector {sector}: {why}")]
    Odd {
        /// Name of the device.
        name: String,
        /// Where.
        sector: u64,
        /// What is odd about it.
        why: String,
    },
    /// A place where a superblock can be cannot be read.
    #[error("{name}: cannot read sector {sector}: {why}")]
    Unreadable {
        /// Name of the device.
        name: String,
        /// Where.
        sector: u64,
        /// The reason.
        why: String,
    },
    /// A write failed; what stands in `done` is erased.
    #[error("{name}: cannot write sector {sector}: {}", host::sys::reason(source))]
    Write {
        /// Name of the device.
        name: String,
        /// Where.
        sector: u64,
        /// The system's error.
        source: std::io::Error,
        /// What was erased before.
        done: Vec<Erased>,
    },
}

fn other_metadata(other: Option<&str>) -> String {
    let text = |name| format!(", but {name}, which are not erased here: it may be in use");
    other.map(text).unwrap_or_default()
}

/// The superblocks of members, found and not yet erased.
pub struct FoundSuperblocks(Vec<(Arc<Device>, Erased)>);

impl FoundSuperblocks {
    /// Opens the members and finds their superblocks. `odd`: damaged ones too, and those that
    /// belong to another place. `array`: only those of this array, by its UUID or name.
    ///
    /// # Errors
    /// See [`ZeroError`].
    pub fn of(
        names: &[OsString],
        odd: bool,
        array: Option<&str>,
        access: Access,
    ) -> Result<FoundSuperblocks, ZeroError> {
        let mut devices: Vec<Arc<Device>> = Vec::new();
        let mut found = Vec::new();
        let locations = names.iter().map(|name| writable(name)).collect::<Result<Vec<_>, _>>()?;
        let look = DeviceOptions { access: Access::ReadOnly, direct: false };
        // What cannot be opened is an error below.
        let looked = locations.iter().filter_map(|location| Device::open(location, look).ok());
        let looked: Vec<(Device, FoundOn)> = looked
            .map(|device| {
                let found = FoundOn::of(&device);
                (device, found)
            })
            .collect();
        let facts: Vec<_> = looked.iter().map(|(_, found)| found.on_disk.clone()).collect();
        for ((device, found), choice) in looked.iter().zip(&choose(&facts)) {
            refuse_a_partitions(device, found, choice, array)?;
        }
        array.map_or(Ok(()), |array| refuse_two_of_a_name(&looked, array))?;
        // Their locks would be in the way.
        drop(looked);
        for location in locations {
            let options = DeviceOptions { access, direct: false };
            let device = Device::open(&location, options).map_err(|error| {
                match shared_by(&error, &devices) {
                    Some(shared) => ZeroError::Shared(shared),
                    None => ZeroError::Device(error),
                }
            });
            let device = Arc::new(device?);
            if access == Access::ReadOnly {
                device.check_unused()?;
            }
            if let Some(shared) = shared(&device, &devices) {
                return Err(shared.into());
            }
            let here = places(&device, odd, array)?;
            found.extend(here.into_iter().map(|erased| (device.clone(), erased)));
            devices.push(device);
        }
        Ok(FoundSuperblocks(found))
    }

    /// Superblocks that were found.
    pub fn list(&self) -> Vec<Erased> {
        self.0.iter().map(|(_, erased)| erased.clone()).collect()
    }

    /// Erases them, durably.
    ///
    /// # Errors
    /// [`ZeroError::Write`].
    pub fn erase(self) -> Result<Vec<Erased>, ZeroError> {
        let mut done = Vec::new();
        for (device, erased) in self.0 {
            let end = erased.sector + READ_BYTES as u64 / SECTOR_BYTES;
            let range = erased.sector..end.min(device.sectors());
            if let Err(source) = device.write_zeroes(range).and_then(|()| device.sync()) {
                let Erased { member: name, sector, .. } = erased;
                return Err(ZeroError::Write { name, sector, source, done });
            }
            tracing::info!(member = erased.member, sector = erased.sector, "superblock erased");
            done.push(erased);
        }
        Ok(done)
    }
}

/// Refuses a whole disk of which a superblock is, or may be, that of a partition, or is that of an
/// array that its partitions' members have replaced.
fn refuse_a_partitions(
    device: &Device,
    found: &FoundOn,
    choice: &Result<Choice, TwoReadings>,
    array: Option<&str>,
) -> Result<(), ZeroError> {
    let name = device.name();
    let (owner, newer) = match *choice {
        Err(TwoReadings::End(at)) => (Some(at), None),
        Err(two) => return Err(found.two_readings(device, two).into()),
        Ok(Choice { place: Place::Parts(at), former: Some(_), owner }) => (owner, Some(at)),
        Ok(Choice { place: Place::Both(at), owner, .. }) => (owner, Some(at)),
        Ok(Choice { owner, .. }) => (owner, None),
    };
    let detection = superblocks(device);
    let is_erased = |it: &Superblock| array.is_none_or(|array| names(it, array));
    let lent = owner.and_then(|at| Some((found.ending(at)?, found.part(at).clone())));
    let mut here = detection.outcomes.iter().filter_map(|(place, outcome)| match outcome {
        Outcome::Found { superblock, .. } if is_erased(superblock) => Some(place.sector),
        _ => None,
    });
    if let Some((sector, part)) = lent.filter(|(sector, _)| here.any(|it| it == *sector)) {
        return Err(ZeroError::OfPartition { name, sector, part });
    }
    let newer = newer.filter(|_| array.is_none()).and_then(|at| found.first_member(at));
    if let (Some(part), Some(own)) = (newer, found.on_disk.own.first()) {
        return Err(ZeroError::TwoArrays { name, own: own.uuid, part: part.clone() });
    }
    Ok(())
}

/// Refuses a name of several arrays on the disks, or in their partitions.
fn refuse_two_of_a_name(looked: &[(Device, FoundOn)], array: &str) -> Result<(), ZeroError> {
    let mut uuids: Vec<Uuid> = Vec::new();
    for (device, found) in looked {
        for detection in std::iter::once(superblocks(device)).chain(found.in_partitions()) {
            let superblocks = detection.outcomes.iter().filter_map(|(_, outcome)| match outcome {
                Outcome::Found { superblock, .. } => Some(superblock),
                _ => None,
            });
            for uuid in superblocks.filter(|it| names(it, array)).map(|it| it.metadata().set_uuid) {
                if !uuids.contains(&uuid) {
                    uuids.push(uuid);
                }
            }
        }
    }
    match uuids.len() {
        ..2 => Ok(()),
        _ => Err(ZeroError::SeveralOfName { array: array.into(), uuids }),
    }
}

/// The superblocks of a device.
fn places(device: &Device, odd: bool, array: Option<&str>) -> Result<Vec<Erased>, ZeroError> {
    let name = device.name();
    let mut found = Vec::new();
    let mut refused = None;
    for (place, outcome) in superblocks(device).outcomes {
        let sector = place.sector;
        let (superblock, why) = match outcome {
            Outcome::NoMagic => continue,
            Outcome::Unreadable(why) => return Err(ZeroError::Unreadable { name, sector, why }),
            Outcome::Found { superblock, .. } => (Some(superblock), None),
            Outcome::Misplaced { superblock, .. } => {
                (Some(superblock), Some("a superblock of another place".to_string()))
            }
            Outcome::Invalid(error) => (None, Some(format!("a damaged superblock: {error}"))),
        };
        let is_of = |array| superblock.as_ref().is_some_and(|it| names(it, array));
        if array.is_some_and(|array| !is_of(array)) {
            continue;
        }
        if let Some(why) = why.filter(|_| !odd) {
            refused = Some(ZeroError::Odd { name: name.clone(), sector, why });
            continue;
        }
        let superblock = superblock.map(|superblock| {
            let metadata = superblock.metadata();
            (metadata.version, metadata.set_uuid)
        });
        let (version, array_uuid) = superblock.unzip();
        found.push(Erased { member: name.clone(), sector, version, array_uuid });
    }
    if let Some(array) = array.filter(|_| found.is_empty() && refused.is_none()) {
        return Err(ZeroError::NotOfArray { name, array: array.to_string() });
    }
    match (found.is_empty(), refused) {
        (true, Some(refused)) => Err(refused),
        (true, None) => {
            let other = foreign(device).metadata.map(|metadata| metadata.name());
            Err(ZeroError::NoSuperblock { name, other })
        }
        _ => Ok(found),
    }
}
