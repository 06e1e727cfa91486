//! The members of a new array: opened for writing, or created as image files.
//!
//! Invariant: an image file created here is removed again unless the array was created, or another
//! process has opened it. It is locked from before it can be used until after it is removed. Called
//! from `create`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::{
    Access, Device as OpenDevice, DeviceError, DeviceOptions, DeviceProblem, Disk, Identity,
    Location, Overlap,
};
use md::SECTOR_BYTES;
use md::create::Device;

use super::{CreateArguments, random_uuid};
use crate::console::say;
use crate::members::is_missing;

/// See the module.
pub struct Given {
    /// By number in the request, `None` for a missing one.
    pub devices: Vec<Option<Device>>,
    /// The same, opened.
    pub disks: Vec<Option<Arc<dyn Disk>>>,
    /// Those that are there.
    pub opened: Vec<Arc<OpenDevice>>,
    /// Files to be removed when there will be no array, locked.
    made: Vec<Arc<OpenDevice>>,
    kept: Cell<bool>,
}

impl Drop for Given {
    fn drop(&mut self) {
        if !self.kept.get() {
            for file in &self.made {
                let stays = match file.remove() {
                    Ok(true) => continue,
                    Ok(false) => "another process uses it".to_string(),
                    Err(error) => format!("it cannot be removed: {error}"),
                };
                say(format_args!("raidlab: {} stays: {stays}", file.location()));
            }
        }
    }
}

/// Opens existing members and creates missing ones.
pub fn open(arguments: &CreateArguments) -> Result<Given, String> {
    let mut given = Given {
        devices: Vec::new(),
        disks: Vec::new(),
        opened: Vec::new(),
        made: Vec::new(),
        kept: Cell::new(false),
    };
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    for (at, member) in arguments.members.iter().enumerate() {
        if is_missing(member) {
            given.devices.push(None);
            given.disks.push(None);
            continue;
        }
        let location = Location::parse(member).map_err(|error| error.to_string())?;
        let device = match location.path.exists() {
            false => given.make(&location, arguments.file_size)?,
            true => {
                let opened = OpenDevice::open(&location, DeviceOptions { access, direct: false });
                Arc::new(opened.map_err(|error| given.why_not(&location, error))?)
            }
        };
        given.refuse_overlaps(&device)?;
        given.devices.push(Some(Device {
            label: location.to_string(),
            sectors: device.sectors(),
            logical_block: device.logical_block(),
            uuid: random_uuid()?,
            data_offset: None,
            write_mostly: arguments.marks.write_mostly.is_some_and(|from| at >= from),
            failfast: arguments.marks.failfast.is_some_and(|from| at >= from),
        }));
        given.disks.push(Some(device.clone()));
        given.opened.push(device);
    }
    Ok(given)
}

impl Given {
    fn make(
        &mut self,
        location: &Location,
        sectors: Option<u64>,
    ) -> Result<Arc<OpenDevice>, String> {
        let path = &location.path;
        let Some(sectors) = sectors else {
            return Err(format!(
                "{}: no such file; --file-size SIZE creates it as an image file",
                path.display()
            ));
        };
        // A mistyped device name must not create a file in devtmpfs.
        if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
            let path = path.display();
            return Err(format!("{path}: no such device; image files are not created there"));
        }
        let device = OpenDevice::make(location, sectors.saturating_mul(SECTOR_BYTES));
        let device = Arc::new(device.map_err(|error| error.to_string())?);
        self.made.push(device.clone());
        Ok(device)
    }

    /// Whether all members are files created here, that is, zero-filled.
    pub fn are_new(&self) -> bool {
        let present = self.devices.iter().flatten().count();
        present == self.made.len() && self.devices.len() == present
    }

    /// Why a member cannot be opened. A member given twice is locked by this process.
    fn why_not(&self, location: &Location, error: DeviceError) -> String {
        let identity = Identity::at(&location.path);
        if !matches!(error.problem, DeviceProblem::Locked { .. } | DeviceProblem::InUse { .. }) {
            return error.to_string();
        }
        let twins = || self.opened.iter().filter(|it| Some(it.identity()) == identity);
        let bytes = |at: &Location| {
            let end = at.size.map_or(u64::MAX, |size| at.offset.saturating_add(size));
            at.offset..end
        };
        let own = bytes(location);
        let shares = |it: &&Arc<OpenDevice>| {
            let its = bytes(it.location());
            own.start < its.end && its.start < own.end
        };
        match (twins().find(shares), twins().next()) {
            (Some(twin), _) => twice(location, twin.location(), own == bytes(twin.location())),
            (None, Some(twin)) => format!(
                "{location}: {} is another part of the same device, which is opened for one member \
                 alone; partitions and loop devices can be members side by side",
                twin.location()
            ),
            (None, None) => error.to_string(),
        }
    }

    /// Refuses devices that can be opened separately but are the same storage, such as two loop
    /// devices over one file.
    fn refuse_overlaps(&self, device: &OpenDevice) -> Result<(), String> {
        let twin = self.opened.iter().find_map(|it| Some((it, device.overlap(it)?)));
        match twin {
            None => Ok(()),
            Some((twin, how)) => {
                Err(twice(device.location(), twin.location(), how == Overlap::Same))
            }
        }
    }

    /// Preallocates the disk space of image files, so that it cannot run out under the array.
    /// Returns `false` if it was stopped.
    pub fn reserve(&self, arguments: &CreateArguments, stop: &AtomicBool) -> Result<bool, String> {
        if arguments.no_prealloc {
            return Ok(!stop.load(Ordering::Relaxed));
        }
        let running = || !stop.load(Ordering::Relaxed);
        for (at, device) in self.opened.iter().enumerate() {
            let kept = || {
                // Files created here are removed. Existing ones are not: punching holes could lose
                // data.
                let made =
                    |it: &Arc<OpenDevice>| self.made.iter().any(|file| Arc::ptr_eq(file, it));
                let kept =
                    self.opened[..=at].iter().filter(|it| !it.is_block_device() && !made(it));
                let kept: Vec<String> = kept.map(|it| it.location().to_string()).collect();
                match kept.is_empty() {
                    true => String::new(),
                    false => format!("; space reserved so far stays reserved: {}", kept.join(", ")),
                }
            };
            let reserved = device.preallocate(running).map_err(|error| {
                format!(
                    "{}: cannot reserve its disk space: {error}; nothing was written; \
                     --no-prealloc does without{}",
                    device.location(),
                    kept()
                )
            })?;
            if !reserved || !running() {
                let gone = match self.made.is_empty() {
                    true => "",
                    false => "; the created files are removed",
                };
                say(format_args!("raidlab: stopped: nothing was written{gone}{}", kept()));
                return Ok(false);
            }
        }
        Ok(running())
    }

    /// Keeps the files: the array was created.
    pub fn keep(&self) {
        self.kept.set(true);
    }
}

fn twice(location: &Location, twin: &Location, same: bool) -> String {
    match same {
        true if location == twin => format!("{location}: given twice"),
        true => format!("{location}: given twice: it is the same as {twin}"),
        false => format!("{location}: it shares bytes with {twin}"),
    }
}
