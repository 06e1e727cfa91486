//! The block devices below an array of the engine: opened and checked together, released together.
//!
//! Invariant: all devices of an array are open, locked and checked before anything is written to
//! the first, and nothing is erased before [`ClaimedDevices::begin`], which comes right before the
//! first write: what is refused in between is as it was found. What was written over counts as
//! empty again when it is released. Called by `target`; the check of a whole plan is called before
//! a run.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::{Path, PathBuf};

use host::{Access, Attachment, Device};
use spec::bench_plan::BenchPlan;
use spec::case::ArrayConfig;
use spec::matrix::Plan;
use spec::members::MemberExpr;
use spec::target::{TargetExpr, is_export};

use super::error::ProvisionError;
use super::kernel::kernel_has_md_for;
use super::wipe::{
    WipeTarget, for_md, location, look_at, must_be_block_device, open_for_md, open_to_read,
    open_to_write_over,
};
use crate::linux::Lab;

/// An open device.
#[derive(Debug)]
enum Claim {
    ToRead(Device),
    ToWriteOver(WipeTarget),
}

impl Claim {
    fn device(&self) -> &Device {
        match self {
            Claim::ToRead(device) => device,
            Claim::ToWriteOver(device) => device.device(),
        }
    }
}

/// The block devices of an array, in the order of its members. Dropping it erases the signatures of
/// those that were to be written over, once [`ClaimedDevices::begin`] was called.
#[derive(Debug, Default)]
pub struct ClaimedDevices {
    claims: Vec<Claim>,
    begun: bool,
}

impl ClaimedDevices {
    /// Opens the devices of an array. Nothing is written.
    ///
    /// # Errors
    /// A device is missing, in use, too small, or holds data.
    pub fn open(config: &ArrayConfig, destroy: bool) -> Result<ClaimedDevices, ProvisionError> {
        let claims = claims(config, destroy, Access::ReadWrite)?;
        Ok(ClaimedDevices { claims, begun: false })
    }

    /// The open device of this name.
    pub fn device(&self, path: &Path) -> Option<&Device> {
        let wanted = location(path).ok()?;
        let devices = self.claims.iter().map(Claim::device);
        devices.into_iter().find(|device| *device.location() == wanted)
    }

    /// Erases what was found on the devices, right before the first write.
    ///
    /// # Errors
    /// The write error.
    pub fn begin(&mut self) -> Result<(), ProvisionError> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        self.to_write_over().try_for_each(WipeTarget::wipe_signatures)
    }

    /// Erases the signatures that a measurement has left.
    ///
    /// # Errors
    /// The first write error; the other devices are erased.
    pub fn release(&mut self) -> Result<(), ProvisionError> {
        let begun = std::mem::take(&mut self.begun);
        let erased = self.to_write_over().filter(|_| begun).map(WipeTarget::erase_again);
        erased.fold(Ok(()), Result::and)
    }

    /// The devices, as they are attached.
    pub fn attachments(&self) -> Vec<(PathBuf, Attachment)> {
        let devices = self.claims.iter().map(Claim::device);
        let attachment =
            |device: &Device| (device.location().path.clone(), Attachment::of(device.identity()));
        devices.map(attachment).collect()
    }

    /// Leaves the devices to the members that use them, which keep them open and locked. The caller
    /// erases them at the end.
    pub fn leave_to_members(mut self) {
        self.begun = false;
    }

    fn to_write_over(&self) -> impl Iterator<Item = &WipeTarget> {
        self.claims.iter().filter_map(|claim| match claim {
            Claim::ToRead(_) => None,
            Claim::ToWriteOver(device) => Some(device),
        })
    }
}

/// The devices of an array; with `Access::ReadOnly` they are only looked at.
fn claims(
    config: &ArrayConfig,
    destroy: bool,
    access: Access,
) -> Result<Vec<Claim>, ProvisionError> {
    let mut claims = Vec::new();
    for path in config.members.iter().filter_map(MemberExpr::device) {
        let claim = match config.read_only {
            true => Claim::ToRead(open_to_read(path)?),
            false => claim(path, destroy, access)?,
        };
        let bytes = claim.device().bytes();
        if bytes < config.member_bytes {
            let (path, wanted) = (path.to_path_buf(), config.member_bytes);
            return Err(ProvisionError::SmallDevice { path, bytes, wanted });
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// A device that is to be written over.
fn claim(path: &Path, destroy: bool, access: Access) -> Result<Claim, ProvisionError> {
    match access {
        Access::ReadOnly => Ok(Claim::ToRead(look_at(path, destroy)?)),
        Access::ReadWrite => Ok(Claim::ToWriteOver(open_to_write_over(path, destroy)?)),
    }
}

impl Drop for ClaimedDevices {
    fn drop(&mut self) {
        // Where an error matters, `release` has been called. Otherwise the devices hold the data
        // pattern, which is no signature.
        let _ = self.release();
    }
}

/// An array whose members fit on its devices: without a size of its own the members are as large as
/// the smallest device at most, and a device that is only read is used to its end.
///
/// # Errors
/// A device cannot be opened.
pub fn fitted(config: &ArrayConfig) -> Result<ArrayConfig, ProvisionError> {
    let mut fitted = config.clone();
    let mut smallest = u64::MAX;
    for path in config.members.iter().filter_map(MemberExpr::device) {
        smallest = smallest.min(size_of(path)?);
    }
    // Whole units of a file system, and of any chunk that the default is a multiple of.
    let whole = smallest / (1 << 20) * (1 << 20);
    if smallest == u64::MAX || whole == 0 {
        return Ok(fitted);
    }
    if config.area_bytes.is_none() {
        fitted.member_bytes = match config.read_only {
            true => smallest / 4096 * 4096,
            false => config.member_bytes.min(whole),
        };
    } else if config.area_bytes.is_some_and(|area| area <= smallest) && config.members.len() == 1 {
        // The plan has rounded it up.
        fitted.member_bytes = config.member_bytes.min(smallest);
    }
    Ok(fitted)
}

fn size_of(path: &Path) -> Result<u64, ProvisionError> {
    if is_export(path) {
        return Ok(open_to_read(path)?.bytes());
    }
    must_be_block_device(path)?;
    let size = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    size.map_err(|source| ProvisionError::Io { path: path.to_path_buf(), source })
}

/// Opens every block device of a plan as it will be opened, and closes it again: what is refused is
/// refused before anything is measured. With `Access::ReadOnly` they are only looked at, for a dry
/// run.
///
/// # Errors
/// A device is missing, in use, too small, or holds data that would be overwritten; or this kernel
/// has no md for an array.
pub fn check_devices(
    plan: &BenchPlan,
    destroy: bool,
    access: Access,
) -> Result<(), ProvisionError> {
    let blocks = plan.blocks.iter().map(|target| (&target.place, Some(&target.plan)));
    let programs = plan.targets.iter().map(|target| (&target.place, target.arrays.as_ref()));
    let mut all = blocks.chain(programs);
    all.try_for_each(|(place, arrays)| check_devices_of(place, arrays, destroy, access))
}

/// As [`check_devices`], for one target and its arrays.
///
/// # Errors
/// As there.
pub fn check_devices_of(
    place: &TargetExpr,
    arrays: Option<&Plan>,
    destroy: bool,
    access: Access,
) -> Result<(), ProvisionError> {
    let place = match place {
        TargetExpr::FileSystem(fs) => &fs.on,
        place => place,
    };
    let arrays = || arrays.into_iter().flat_map(|plan| &plan.arrays).map(|planned| &planned.array);
    match place {
        TargetExpr::Engine => {
            arrays().try_for_each(|array| claims(&fitted(array)?, destroy, access).map(drop))
        }
        TargetExpr::Device(path) => {
            match arrays().find(|array| array.members.iter().any(|m| m.device().is_some())) {
                Some(own) => claims(&fitted(own)?, destroy, access).map(drop),
                None => claim(path, destroy, access).map(drop),
            }
        }
        TargetExpr::Kernel(kernel) if kernel.model_time.is_some() => Ok(Lab::find().map(drop)?),
        TargetExpr::Kernel(kernel) => {
            kernel.devices.iter().try_for_each(|path| match access {
                Access::ReadOnly => for_md(look_at(path, false)).map(drop),
                Access::ReadWrite => open_for_md(path).map(drop),
            })?;
            arrays().try_for_each(|array| kernel_has_md_for(array.expr.level))
        }
        TargetExpr::Path(_) | TargetExpr::FileSystem(_) => Ok(()),
    }
}
