//! A new array: members opened or made, one plan, one look at what they hold, then the writes.
//!
//! ```text
//! NewArray --prepare--> PreparedArray --reserve--> --create--> CreatedArray --resync--> in sync
//!                            `--discard / drop: image files that were made are removed
//! ```
//! Invariant: nothing is written before the plan is complete and every member was checked. An image
//! file that was made here is removed again unless the array was created, or another process has
//! opened it. It is locked from before it can be used until after it is removed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use host::{Access, Device, DeviceError, DeviceOptions, Disk, Location};
use md::SECTOR_BYTES;
use md::create::{CreateError, Plan, Request};
use thiserror::Error;

use crate::create::{CreateFailed, CreateOptions, refuse_what_is_there, write};
use crate::random::random_uuid;
use crate::resync::{ResyncError, ResyncEvent, ResyncReport, resync};
use crate::shared_storage::{SharedStorage, shared, shared_by};

/// What is to be created.
#[derive(Clone, Debug)]
pub struct NewArray {
    /// The array; its devices follow from `members`.
    pub request: Request,
    /// The members of the slots in order, `None` where one is missing, then the spares.
    pub members: Vec<Option<NewMember>>,
    /// Size of the image files that are made where there is no file; `None`: none is made.
    pub file_sectors: Option<u64>,
    /// Overwrite existing data.
    pub overwrite: bool,
    /// Plan only: existing members are opened read-only.
    pub read_only: bool,
}

/// A member of a new array.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Where it is.
    pub location: Location,
    /// Reads prefer other members.
    pub write_mostly: bool,
    /// The first error fails it.
    pub failfast: bool,
}

/// Why there is no new array.
#[derive(Debug, Error)]
pub enum NewArrayError {
    /// A member does not exist, and no size is given to make it as a file.
    #[error("{}: no such file", .0.display())]
    NoFile(PathBuf),
    /// A member in `/dev` does not exist.
    #[error("{}: no such device; image files are not created there", .0.display())]
    NoDevice(PathBuf),
    /// A member cannot be opened or made.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Two members are the same storage, or share bytes.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// The system gives no random UUID.
    #[error("the system gives no random bytes: {}", host::sys::reason(.0))]
    Random(#[source] io::Error),
    /// The request is invalid.
    #[error(transparent)]
    Plan(#[from] CreateError),
    /// The members hold data, or cannot be written.
    #[error(transparent)]
    Create(#[from] CreateFailed),
}

/// A failed step, and the image files that it leaves behind.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct NewArrayFailed {
    /// The reason.
    #[source]
    pub error: Box<NewArrayError>,
    /// Files that were made and could not be removed again.
    pub left: Vec<LeftFile>,
    /// Data that members held, a sentence for each finding, if some of it may be lost.
    pub lost: Vec<String>,
}

/// An image file that was made for an array that is not created, and stays.
#[derive(Debug, Error)]
#[error("{location} stays: {}", match .why {
    None => "another process uses it".to_string(),
    Some(error) => format!("it cannot be removed: {}", host::sys::reason(error)),
})]
pub struct LeftFile {
    /// Where it is.
    pub location: Location,
    /// Why it cannot be removed; `None`: another process uses it.
    #[source]
    pub why: Option<io::Error>,
}

/// An array with its plan, and its members open: ready to be created.
pub struct PreparedArray {
    request: Request,
    plan: Plan,
    members: OpenMembers,
    overwritten: Vec<String>,
}

/// An array that was created.
pub struct CreatedArray {
    /// Plan of the array.
    pub plan: Plan,
    /// The request that it was made from.
    pub request: Request,
    /// What its members held before: a sentence for each finding.
    pub overwritten: Vec<String>,
    devices: Vec<Arc<Device>>,
}

/// How far disk space was reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// For all members.
    All,
    /// It was stopped.
    Stopped {
        /// Existing image files whose space stays reserved: punching holes could lose data.
        kept: Vec<Location>,
        /// Whether image files were made, which are removed.
        made_files: bool,
    },
}

/// Disk space cannot be reserved.
#[derive(Debug, Error)]
#[error(
    "{location}: cannot reserve its disk space: {}; nothing was written",
    host::sys::reason(source)
)]
pub struct ReserveError {
    /// The member.
    pub location: Location,
    /// The system's error.
    pub source: io::Error,
    /// See [`Reserved::Stopped`].
    pub kept: Vec<Location>,
}

impl NewArray {
    /// Opens the members, makes missing image files, plans the array and looks at what the members
    /// hold. Writes nothing.
    ///
    /// # Errors
    /// See [`NewArrayError`].
    pub fn prepare(self) -> Result<PreparedArray, NewArrayFailed> {
        let mut members = OpenMembers::default();
        match self.prepare_with(&mut members) {
            Ok((request, plan, overwritten)) => {
                Ok(PreparedArray { request, plan, members, overwritten })
            }
            Err(error) => {
                let (error, left) = (Box::new(error), members.discard());
                Err(NewArrayFailed { error, left, lost: Vec::new() })
            }
        }
    }

    fn prepare_with(
        self,
        members: &mut OpenMembers,
    ) -> Result<(Request, Plan, Vec<String>), NewArrayError> {
        let access = if self.read_only { Access::ReadOnly } else { Access::ReadWrite };
        let mut devices = Vec::new();
        for member in self.members {
            let Some(member) = member else {
                devices.push(None);
                members.disks.push(None);
                continue;
            };
            let device = members.open(&member.location, access, self.file_sectors)?;
            devices.push(Some(md::create::Device {
                label: member.location.to_string(),
                sectors: device.sectors(),
                logical_block: device.logical_block(),
                uuid: random_uuid().map_err(NewArrayError::Random)?,
                data_offset: None,
                write_mostly: member.write_mostly,
                failfast: member.failfast,
            }));
        }
        let mut request = Request { devices, ..self.request };
        request.members_are_zero = members.are_new();
        let plan = md::create::plan(&request)?;
        let options = CreateOptions { force: self.overwrite };
        let overwritten = refuse_what_is_there(&plan, &members.disks, options)?;
        Ok((request, plan, overwritten))
    }
}

impl PreparedArray {
    /// The request, with its devices.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Data that would be overwritten: a sentence for each finding.
    pub fn overwritten(&self) -> &[String] {
        &self.overwritten
    }

    /// Reserves the disk space of image files, so that it cannot run out under the array. Ends
    /// early when `go_on` returns `false`.
    ///
    /// # Errors
    /// When there is not enough space.
    pub fn reserve(&self, go_on: impl Fn() -> bool) -> Result<Reserved, ReserveError> {
        for (at, device) in self.members.opened.iter().enumerate() {
            let made =
                |it: &Arc<Device>| self.members.made.iter().any(|file| Arc::ptr_eq(file, it));
            let kept = || {
                let so_far = self.members.opened[..=at].iter();
                let kept = so_far.filter(|it| !it.is_block_device() && !made(it));
                kept.map(|it| it.location().clone()).collect()
            };
            let reserved = device.preallocate(&go_on).map_err(|source| {
                let location = device.location().clone();
                ReserveError { location, source, kept: kept() }
            })?;
            if !reserved || !go_on() {
                let made_files = !self.members.made.is_empty();
                return Ok(Reserved::Stopped { kept: kept(), made_files });
            }
        }
        Ok(Reserved::All)
    }

    /// Writes the array. What the members hold was looked at in [`NewArray::prepare`], and they
    /// have been locked since.
    ///
    /// # Errors
    /// A member cannot be written; until the last step there is no superblock.
    ///
    /// # Panics
    /// When it was prepared read-only: then it is to be discarded.
    pub fn create(mut self) -> Result<CreatedArray, NewArrayFailed> {
        assert!(self.members.opened.iter().all(|it| !it.is_read_only()), "prepared to be shown");
        if let Err(error) = write(&self.plan, &self.members.disks) {
            let lost = if error.changed().is_empty() { Vec::new() } else { self.overwritten };
            let left = self.members.discard();
            return Err(NewArrayFailed { error: Box::new(error.into()), left, lost });
        }
        self.members.made.clear();
        let devices = std::mem::take(&mut self.members.opened);
        let PreparedArray { request, plan, overwritten, .. } = self;
        Ok(CreatedArray { plan, request, overwritten, devices })
    }

    /// Closes the members and removes the image files that were made; returns those that stay.
    pub fn discard(mut self) -> Vec<LeftFile> {
        self.members.discard()
    }
}

impl CreatedArray {
    /// Whether redundancy is still to be written.
    pub fn needs_resync(&self) -> bool {
        self.plan.resync_offset.is_some()
    }

    /// Runs the first resync until it has ended, is stopped or makes no progress, and stops the
    /// array. An interrupted resync resumes from its checkpoint at the next start.
    ///
    /// # Errors
    /// The array cannot be started.
    pub fn resync(
        &self,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(ResyncEvent),
    ) -> Result<ResyncReport, ResyncError> {
        resync(&self.devices, stop, observe)
    }
}

/// The members of an array that does not exist yet.
#[derive(Default)]
struct OpenMembers {
    /// By number in the request, `None` for a missing one.
    disks: Vec<Option<Arc<dyn Disk>>>,
    /// Those that are there.
    opened: Vec<Arc<Device>>,
    /// Files to be removed if there will be no array, locked.
    made: Vec<Arc<Device>>,
}

impl OpenMembers {
    fn open(
        &mut self,
        location: &Location,
        access: Access,
        file_sectors: Option<u64>,
    ) -> Result<Arc<Device>, NewArrayError> {
        let device = match location.exists() {
            false => self.make(location, file_sectors)?,
            true => {
                let opened = Device::open(location, DeviceOptions { access, direct: false });
                Arc::new(opened.map_err(|error| match shared_by(&error, &self.opened) {
                    Some(shared) => NewArrayError::Shared(shared),
                    None => NewArrayError::Device(error),
                })?)
            }
        };
        if access == Access::ReadOnly {
            device.check_unused()?;
        }
        // Devices that can be opened separately may still be the same storage, such as two loop
        // devices over one file.
        if let Some(shared) = shared(&device, &self.opened) {
            return Err(shared.into());
        }
        self.disks.push(Some(device.clone()));
        self.opened.push(device.clone());
        Ok(device)
    }

    fn make(
        &mut self,
        location: &Location,
        sectors: Option<u64>,
    ) -> Result<Arc<Device>, NewArrayError> {
        let path = &location.path;
        let Some(sectors) = sectors else { return Err(NewArrayError::NoFile(path.clone())) };
        // A mistyped device name must not create a file in devtmpfs.
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            return Err(NewArrayError::NoDevice(path.clone()));
        }
        let device = Arc::new(Device::make(location, sectors.saturating_mul(SECTOR_BYTES))?);
        self.made.push(device.clone());
        Ok(device)
    }

    /// Whether all members are there and were made here, that is, are zero-filled.
    fn are_new(&self) -> bool {
        self.disks.iter().all(Option::is_some) && self.disks.len() == self.made.len()
    }

    fn discard(&mut self) -> Vec<LeftFile> {
        let left = self.made.drain(..).filter_map(|file| {
            let why = match file.remove() {
                Ok(true) => return None,
                Ok(false) => None,
                Err(error) => Some(error),
            };
            Some(LeftFile { location: file.location().clone(), why })
        });
        left.collect()
    }
}

impl Drop for OpenMembers {
    fn drop(&mut self) {
        // A caller that reports what stays has called `discard`.
        self.discard();
    }
}
