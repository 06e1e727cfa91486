//! Makes a new array: what `md::create` has planned, written in an order that is safe.
//!
//! Invariant: superblocks are written last, one device after the other, when everything that they
//! speak of is durable. A crash before leaves no array; a crash among them leaves fewer members
//! than the array has, all of which say so. Old superblocks are erased first, so that no older
//! array can be assembled from a part of the devices.

use std::sync::Arc;

use md::create::{Plan, Write};
use md::ondisk::superblock::{Outcome, READ_BYTES};

use super::look;
use crate::store::{Disk, signatures};

/// How an array is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct CreateOptions {
    /// Also over what is there.
    pub force: bool,
}

/// Why an array was not made.
#[derive(Debug)]
pub enum CreateFailed {
    /// A device holds something: each a sentence.
    Holds(Vec<String>),
    /// A device could not be written.
    Device {
        /// Which.
        name: String,
        /// What was tried.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl std::fmt::Display for CreateFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CreateFailed::Holds(what) => f.write_str(&what.join("\n")),
            CreateFailed::Device { name, doing, source } => {
                write!(f, "{name}: cannot {doing}: {source}")
            }
        }
    }
}

impl std::error::Error for CreateFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CreateFailed::Holds(_) => None,
            CreateFailed::Device { source, .. } => Some(source),
        }
    }
}

/// What the devices hold that somebody may miss: a sentence for each thing.
///
/// # Errors
/// When there is anything, and `force` is not given.
pub fn refuse_what_is_there(
    disks: &[Arc<dyn Disk>],
    options: CreateOptions,
) -> Result<Vec<String>, CreateFailed> {
    let mut seen = Vec::new();
    for disk in disks {
        let name = disk.name();
        seen.extend(signatures(&**disk).iter().map(|what| format!("{name} holds {what}.")));
        for (_, outcome) in look(&**disk).outcomes {
            match outcome {
                Outcome::NoMagic => {}
                Outcome::Found { superblock, .. } => {
                    let metadata = superblock.metadata();
                    let (uuid, version) = (metadata.set_uuid, metadata.version);
                    let member = format!("is a member of md array {uuid} (metadata {version})");
                    seen.push(format!("{name} {member}."));
                }
                other => seen.push(format!("{name} may be a member of an md array: {other}.")),
            }
        }
    }
    if seen.is_empty() || options.force { Ok(seen) } else { Err(CreateFailed::Holds(seen)) }
}

/// Writes a planned array to its devices: `disks` by their number in the request (`None` where a
/// device is missing). Gives what was there before, a sentence for each.
///
/// # Errors
/// What a device holds, unless forced; or what could not be written. Until the last step, no
/// superblock is there then.
///
/// # Panics
/// When the plan has a device that is not among `disks`.
pub fn create(
    plan: &Plan,
    disks: &[Option<Arc<dyn Disk>>],
    options: CreateOptions,
) -> Result<Vec<String>, CreateFailed> {
    let planned: Vec<Arc<dyn Disk>> = plan
        .places
        .iter()
        .map(|places| disks[places.device].clone().expect("the plan's devices are there"))
        .collect();
    let seen = refuse_what_is_there(&planned, options)?;
    let failed = |disk: &Arc<dyn Disk>, doing| {
        let name = disk.name();
        move |source| CreateFailed::Device { name, doing, source }
    };
    for disk in &planned {
        erase_superblocks(&**disk).map_err(failed(disk, "erase what was there"))?;
    }
    for (disk, places) in planned.iter().zip(&plan.places) {
        for write in plan.preparations(places) {
            let written = match write {
                Write::Zeroes(area) => disk.write_zeroes(area.sector..area.sector + area.sectors),
                Write::Bytes { sector, bytes } => disk.write(sector, &bytes),
            };
            written.map_err(failed(disk, "write its bitmap and logs"))?;
        }
        disk.sync().map_err(failed(disk, "write its bitmap and logs"))?;
    }
    // From here on a crash leaves members of an array that lacks the others.
    for (disk, superblock) in planned.iter().zip(&plan.superblocks) {
        let bytes = superblock.encode(disk.logical_block() as usize);
        let written = disk.write(superblock.sector(), &bytes).and_then(|()| disk.sync());
        written.map_err(failed(disk, "write its superblock"))?;
    }
    Ok(seen)
}

/// Takes away every superblock that is there, also those of other versions: mdadm would choose
/// between them by their age.
fn erase_superblocks(disk: &dyn Disk) -> std::io::Result<()> {
    for (candidate, outcome) in look(disk).outcomes {
        if !matches!(outcome, Outcome::NoMagic) {
            let end = candidate.sector + READ_BYTES as u64 / md::SECTOR_BYTES;
            disk.write_zeroes(candidate.sector..end.min(disk.sectors()))?;
        }
    }
    disk.sync()
}
