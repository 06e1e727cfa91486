//! The members of a new array: opened for writing, or made.
//!
//! Invariant: an image file that was made here is gone again unless the array was made. Called
//! from `create`.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Arc;

use array::store::{Access, Device as OpenDevice, DeviceOptions, Disk, Location};
use md::SECTOR_BYTES;
use md::create::Device;

use super::{CreateArguments, random_uuid};
use crate::members::is_missing;

/// See the module.
pub struct Given {
    /// By number in the request, `None` for a missing one.
    pub devices: Vec<Option<Device>>,
    /// The same, opened.
    pub disks: Vec<Option<Arc<dyn Disk>>>,
    /// Those that are there.
    pub opened: Vec<Arc<OpenDevice>>,
    /// Files to be removed when there will be no array.
    made: Vec<PathBuf>,
    /// Regular files, whose space can be reserved.
    files: Vec<Location>,
    kept: Cell<bool>,
}

impl Drop for Given {
    fn drop(&mut self) {
        if !self.kept.get() {
            for path in &self.made {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Opens what is there and makes what is not.
pub fn open(arguments: &CreateArguments) -> Result<Given, String> {
    let mut given = Given {
        devices: Vec::new(),
        disks: Vec::new(),
        opened: Vec::new(),
        made: Vec::new(),
        files: Vec::new(),
        kept: Cell::new(false),
    };
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    for member in &arguments.members {
        if is_missing(member) {
            given.devices.push(None);
            given.disks.push(None);
            continue;
        }
        let location = Location::parse(member).map_err(|error| error.to_string())?;
        if !location.path.exists() {
            given.make(&location, arguments.file_size)?;
        }
        let options = DeviceOptions { access, direct: false };
        let device = OpenDevice::open(&location, options).map_err(|error| error.to_string())?;
        if !device.is_block_device() {
            given.files.push(location.clone());
        }
        given.devices.push(Some(Device {
            label: location.to_string(),
            sectors: device.sectors(),
            logical_block: device.logical_block(),
            uuid: random_uuid()?,
            data_offset: None,
            write_mostly: false,
            failfast: false,
        }));
        let device = Arc::new(device);
        given.disks.push(Some(device.clone()));
        given.opened.push(device);
    }
    Ok(given)
}

impl Given {
    fn make(&mut self, location: &Location, sectors: Option<u64>) -> Result<(), String> {
        let path = &location.path;
        let Some(sectors) = sectors else {
            return Err(format!(
                "{}: it is not there; --file-size SIZE makes it an image file",
                path.display()
            ));
        };
        let fail = |error| format!("{}: cannot make it: {error}", path.display());
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(fail)?;
        self.made.push(path.clone());
        file.set_len(sectors * SECTOR_BYTES).map_err(fail)
    }

    /// Whether all members are files that were made here: nothing but zeroes.
    pub fn are_new(&self) -> bool {
        let present = self.devices.iter().flatten().count();
        present == self.made.len() && self.devices.len() == present
    }

    /// Reserves the disk space of image files, so that it cannot run out under the array.
    pub fn reserve(&self, arguments: &CreateArguments) -> Result<(), String> {
        if arguments.no_prealloc {
            return Ok(());
        }
        for location in &self.files {
            let path = &location.path;
            let fail = |error: std::io::Error| {
                format!(
                    "{location}: cannot reserve its disk space: {error}; --no-prealloc does without"
                )
            };
            let file = OpenOptions::new().write(true).open(path).map_err(fail)?;
            let end = file.metadata().map_err(fail)?.len();
            let size = location.size.unwrap_or(end.saturating_sub(location.offset));
            let mode = rustix::fs::FallocateFlags::KEEP_SIZE;
            match rustix::fs::fallocate(&file, mode, location.offset, size) {
                // A file system that cannot reserve has nothing to run out of, or cannot know.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => return Err(fail(error.into())),
            }
        }
        Ok(())
    }

    /// The array is there: its files stay.
    pub fn keep(&self) {
        self.kept.set(true);
    }
}
