//! What the commands have in common that work on an array which is not running: opening its
//! members, and letting the resync of a start come to its end.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use array::{Driver, HostOp, RequestError};
use device::{
    Access, Device, DeviceError, DeviceOptions, Disk, OverlayError, open_overlay, superblocks,
};
use md::Sector;
use md::assemble::{Array, Found, Source};
use md::ondisk::bitmap::sync_sectors;
use thiserror::Error;

use crate::Opened;
use crate::copies::{CopyError, writable};
use crate::members::{ChooseError, choose, in_words, names};
use crate::shared_storage::{SharedStorage, shared, shared_by};

/// Polling interval of the progress.
pub(crate) const STEP: Duration = Duration::from_millis(100);

/// Maximum time that a resync or a rebuild rests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why members are not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// A name is not a location, or that of a copy with a map.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A member cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Two members share bytes.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// A member has no superblock.
    #[error("{name}: no md superblock that can be used")]
    NoSuperblock {
        /// Its name.
        name: String,
    },
}

/// Devices that are opened, none of them twice.
#[derive(Default)]
pub(crate) struct OpenDevices(Vec<Arc<Device>>);

impl OpenDevices {
    /// Opens one more.
    pub(crate) fn open(&mut self, name: &OsString) -> Result<Arc<Device>, OpenError> {
        self.open_as(name, DeviceOptions { access: Access::ReadWrite, direct: true })
    }

    /// Opens one more, in this way: no copy with a map, of which parts are missing.
    pub(crate) fn open_as(
        &mut self,
        name: &OsString,
        options: DeviceOptions,
    ) -> Result<Arc<Device>, OpenError> {
        let location = writable(name)?;
        let device =
            Device::open(&location, options).map_err(|error| match shared_by(&error, &self.0) {
                Some(shared) => OpenError::Shared(shared),
                None => OpenError::Device(error),
            });
        let device = Arc::new(device?);
        if let Some(shared) = shared(&device, &self.0) {
            return Err(shared.into());
        }
        self.0.push(device.clone());
        Ok(device)
    }

    /// Opens members, which are only read, below the overlay at `path`, which all writes go to.
    pub(crate) fn overlaid<E: From<OpenError> + From<OverlayError>>(
        &mut self,
        names: &[OsString],
        path: &Path,
    ) -> Result<Vec<Opened>, E> {
        let options = DeviceOptions { access: Access::ReadOnly, direct: false };
        let mut bases: Vec<Arc<dyn Disk>> = Vec::new();
        for name in names {
            bases.push(self.open_as(name, options)?);
        }
        let over = open_overlay(path, &bases, Access::ReadWrite)?;
        let opened = over.into_iter().map(|disk| {
            let name = disk.name();
            Opened::disk(Arc::new(disk)).ok_or_else(|| OpenError::NoSuperblock { name }.into())
        });
        opened.collect()
    }

    /// Opens members, which have superblocks.
    pub(crate) fn members(&mut self, names: &[OsString]) -> Result<Vec<Opened>, OpenError> {
        self.members_as(names, Access::ReadWrite)
    }

    /// Opens members, which have superblocks, and which nothing else may write to.
    pub(crate) fn members_as(
        &mut self,
        names: &[OsString],
        access: Access,
    ) -> Result<Vec<Opened>, OpenError> {
        let mut members = Vec::new();
        for name in names {
            let device = self.open_as(name, DeviceOptions { access, direct: true })?;
            if access == Access::ReadOnly {
                device.check_unused()?;
            }
            let name = device.location().to_string();
            members.push(Opened::device(device).ok_or(OpenError::NoSuperblock { name })?);
        }
        Ok(members)
    }
}

/// The array that is to be written to; of members that carry several superblocks, the newest ones.
///
/// # Errors
/// As [`choose`]; or the array that is named has older superblocks than another on the members.
pub(crate) fn choose_to_write<'a>(
    found: &'a Found,
    wanted: Option<&str>,
    members: &[Opened],
) -> Result<&'a Array, ChooseError> {
    let chosen = choose(found, wanted);
    let is_former = |wanted: &str| {
        let carries = |member: &Opened| {
            let detection = superblocks(&*member.disk);
            detection
                .others()
                .any(|(_, other, checksum)| checksum.is_correct() && names(other, wanted))
        };
        members.iter().any(carries)
    };
    match (chosen, wanted) {
        (Err(ChooseError::NoSuch { .. }), Some(wanted)) if is_former(wanted) => {
            Err(ChooseError::Former)
        }
        (chosen, _) => chosen,
    }
}

/// Sentences about members that carry superblocks of other arrays, too.
pub(crate) fn with_two(array: &Array, members: &[Opened]) -> Vec<String> {
    let sentence = |member: &md::assemble::Member| {
        let member = &members[member.candidate];
        let detection = superblocks(&*member.disk);
        let others = detection.others().map(|(_, other, checksum)| in_words(other, checksum));
        let others = others.collect::<Vec<_>>().join(", ");
        let name = member.disk.name();
        (!others.is_empty()).then(|| format!("{name} also carries {others}, which is left alone"))
    };
    array.members.iter().filter_map(sentence).collect()
}

/// A resync that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the array is not in sync, and its resync stopped at {done} of {sectors} sectors{}", 
    .why.map(|why| format!(": {why}")).unwrap_or_default())]
pub struct NotInSync {
    /// Sectors that are in sync.
    pub done: u64,
    /// Sectors in all.
    pub sectors: u64,
    /// Error of the last range that could not be synced.
    pub why: Option<RequestError>,
}

/// Lets a resync that the start has begun come to its end. `false`: stopped. `observe` is called
/// with the sectors that are in sync, and all; `check` may end it.
pub(crate) fn resync<E: From<NotInSync>>(
    driver: &mut Driver,
    stop: &AtomicBool,
    mut observe: impl FnMut(&mut Driver, Option<(u64, u64)>) -> Result<(), E>,
) -> Result<bool, E> {
    let sectors = sync_sectors(driver.geometry()).unwrap_or(0);
    let mut completions = Vec::new();
    let mut last_at_work = Instant::now();
    loop {
        driver.poll(&mut completions);
        observe(driver, None)?;
        let status = driver.metadata();
        let Some(done) = status.and_then(|status| status.resync_offset) else { return Ok(true) };
        let why = status.and_then(|status| status.resync_stalled);
        if driver.is_resyncing() && why.is_none() {
            last_at_work = Instant::now();
        } else if last_at_work.elapsed() > PATIENCE || why.is_some() {
            return Err(NotInSync { done, sectors, why }.into());
        }
        observe(driver, Some((done, sectors)))?;
        if stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        driver.wait(STEP, None);
    }
}

/// Makes what was written durable. Whether it is.
pub(crate) fn flush(driver: &mut Driver) -> bool {
    let mut completions = Vec::new();
    if driver.submit(HostOp::Flush, Sector(0), 0, None, 0).is_err() {
        return false;
    }
    loop {
        driver.poll(&mut completions);
        if let Some(completion) = completions.pop() {
            return completion.result.is_ok();
        }
        driver.wait(STEP, None);
    }
}

/// By slot: the name of its member, and where its data begin.
pub(crate) fn places(array: &Array, members: &[Opened]) -> Vec<Option<(String, u64)>> {
    let place = |source: &Option<Source>| {
        let source = source.as_ref()?;
        Some((members[source.candidate].disk.name(), source.data_offset))
    };
    array.read_write.slots.iter().map(place).collect()
}
