//! An array of the engine, served as a block device: FUSE file, loop device on it.
//!
//! Invariant: the array is owned by the front's own threads (see `export::fuse`); its state is
//! queried there.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use array::{Array, Counters, DriverOptions, FaultControl, PaceControl};
use export::fuse::{Front, FrontOptions};
use host::Attachment;
use host::sys::LoopDevice;
use md::nested::ArrayExpr;
use spec::case::{ArrayConfig, RunConfig};
use spec::matrix::tolerated_losses;
use spec::topology::StorageTopology;

use super::claimed::ClaimedDevices;
use super::error::ProvisionError;
use super::plan::Stripes;
use super::sysfs::setting;
use super::undo::{Undo, make_directory};
use super::wipe::wipe;
use crate::member_factory::Disk;
use crate::target::{Requests, array_spec};
use crate::target_error::TargetError;

/// Queue depth of a loop device and its array.
const IN_FLIGHT: usize = 128;
/// Size of each member of the array that holds an external journal, bytes.
const JOURNAL_MEMBER_BYTES: u64 = 128 << 20;

thread_local! {
    /// The block devices of the array that this thread serves, until [`ServedArray::begin`]: their
    /// descriptors belong to the front's thread.
    static UNCHANGED: RefCell<Option<ClaimedDevices>> = const { RefCell::new(None) };
}

/// Block devices that may have been written to, by name, as they were attached then.
type BegunDevices = Arc<Mutex<Vec<(PathBuf, Attachment)>>>;

/// An array of the engine that is served as a block device.
#[derive(Clone, Debug)]
pub struct EngineArray {
    /// The array.
    pub config: ArrayConfig,
    /// Where its member files lie, and its parity kernels.
    pub run: RunConfig,
}

impl EngineArray {
    /// The array of a journal, over members like the first of this one. Its stripe cache is that of
    /// this one, or the default where this one has no parity.
    pub(super) fn for_journal(&self, expr: &ArrayExpr) -> Option<EngineArray> {
        let member = self.config.members.first()?.clone();
        let config = ArrayConfig {
            expr: expr.clone(),
            members: vec![member; expr.leaves()],
            member_bytes: JOURNAL_MEMBER_BYTES,
            // Separate disks, behind separate buses of the same rates.
            topology: StorageTopology {
                buses: self.config.topology.buses,
                ..StorageTopology::default()
            },
            ..self.config.clone()
        };
        Some(EngineArray { config, run: self.run.clone() })
    }

    /// The array, and in `disks` its modelled disks. What its block devices hold is unchanged until
    /// [`ServedArray::begin`].
    fn make(
        &self,
        pace: &PaceControl,
        faults: &FaultControl,
        disks: &OnceLock<Vec<Disk>>,
    ) -> Result<Array, TargetError> {
        let config = ArrayConfig { area_bytes: None, ..self.config.clone() };
        // One shard, whatever the number of CPUs.
        let run = RunConfig { cores: None, ..self.run.clone() };
        let requests =
            Requests { block_bytes: 1 << 20, unit_bytes: 4096, in_flight: IN_FLIGHT, spare: 0 };
        let made = array_spec(&config, &run, requests, (pace, faults))?;
        let (spec, options, modelled, devices) = made;
        let _ = disks.set(modelled);
        // A file system of this kernel will be on it.
        let array = Array::start(spec, &DriverOptions { populate: true, ..options })?;
        UNCHANGED.set(Some(devices));
        Ok(array)
    }
}

/// Handle to an array that a place serves, for its counters and for failing members.
#[derive(Clone)]
pub struct ServedArray {
    front: Arc<Mutex<Option<Front>>>,
    pace: PaceControl,
    /// Its modelled disks.
    disks: Arc<OnceLock<Vec<Disk>>>,
    /// The block devices that may have been written to.
    begun: BegunDevices,
    /// Whether some of its members are block devices.
    pub(super) on_devices: bool,
    /// The block device.
    pub(super) device: PathBuf,
    pub(super) stripes: Option<Stripes>,
    pub(super) missing_protections: Vec<String>,
}

impl ServedArray {
    /// Creates the array and its block device. Nothing is written until [`ServedArray::begin`],
    /// also where members are block devices: what these hold shows through. The pace of paced
    /// members is off until [`ServedArray::set_paced`]: setting the place up is not measured.
    pub(super) fn set_up(
        array: EngineArray,
        undo: &mut Undo,
    ) -> Result<ServedArray, ProvisionError> {
        let directory = make_directory("front", undo)?;
        let (pace, faults) = (PaceControl::default(), FaultControl::default());
        pace.set_on(false);
        let disks = Arc::new(OnceLock::new());
        // After the array has ended; by their names, because the front's threads have descriptors
        // of their own. What was not written to is left alone.
        let on_devices = array.config.members.iter().any(|member| member.device().is_some());
        let begun = BegunDevices::default();
        for path in array.config.members.iter().filter_map(|member| member.device()) {
            let (path, begun) = (path.to_path_buf(), begun.clone());
            undo.push_call(format!("erasing {}", path.display()), move || {
                let begun = begun.lock().expect("no panic while the list is locked");
                let was = begun.iter().find(|(begun, _)| *begun == path);
                was.map_or(Ok(()), |(_, was)| wipe(&path, *was))
            });
        }
        let front = {
            let (pace, disks) = (pace.clone(), disks.clone());
            let make = move || Ok(array.make(&pace, &faults, &disks)?);
            Front::start(FrontOptions::new(&directory), make)
        };
        let front = front?;
        let file = front.file().display().to_string();
        let missing_protections = front.missing_protections().to_vec();
        let asked = front.ask(|array| (Stripes::of(array.geometry()), array.logical_block()));
        let (stripes, block) = asked.ok_or(ProvisionError::FrontEnded)?;
        let front = Arc::new(Mutex::new(Some(front)));
        let stop = front.clone();
        undo.push_call(format!("stopping the array mounted at {file}"), move || {
            let front = stop.lock().expect("no panic while the front is locked").take();
            front.map_or(Ok(()), |mut front| Ok(front.stop()?))
        });
        let device = loop_device(&file, block, undo)?;
        Ok(ServedArray {
            front,
            pace,
            disks,
            begun,
            on_devices,
            device,
            stripes,
            missing_protections,
        })
    }

    /// Erases what was found on its block devices, right before the first write to the array.
    ///
    /// # Errors
    /// The write error, or the array has been stopped.
    pub(super) fn begin(&self) -> Result<(), ProvisionError> {
        let begun = self.begun.clone();
        let erased = self.ask(move |_| {
            let Some(mut devices) = UNCHANGED.take() else { return Ok(()) };
            *begun.lock().expect("no panic while the list is locked") = devices.attachments();
            let erased = devices.begin();
            devices.leave_to_members();
            erased
        });
        erased.unwrap_or(Err(ProvisionError::ArrayStopped))
    }

    /// Counters of every leaf so far; empty when the array has been stopped.
    pub fn leaf_counters(&self) -> Vec<Counters> {
        self.ask(Array::leaf_counters).unwrap_or_default()
    }

    /// Fails the first members that the array can lose.
    ///
    /// # Errors
    /// The array cannot serve with that many missing members.
    pub fn degrade(&self, count: u32) -> Result<(), ProvisionError> {
        let degraded = self.ask(move |array| {
            let gone = tolerated_losses(array.geometry(), count, &|_| false)?;
            gone.into_iter().for_each(|member| array.fail_member(member));
            Ok(())
        });
        degraded.unwrap_or(Err(ProvisionError::ArrayStopped))
    }

    /// Switches the pace of all paced members on or off.
    pub fn set_paced(&self, on: bool) {
        self.pace.set_on(on);
    }

    /// Resets the modelled disks for a workload, as after power-on; their contents stay, because
    /// a placement is of the model only. `false` while one of them is busy.
    pub fn renew(&self, random: bool) -> bool {
        let mut disks = self.disks.get().into_iter().flatten();
        disks.all(|disk| disk.renew(&self.pace, random))
    }

    fn ask<T: Send + 'static>(&self, call: impl FnOnce(&Array) -> T + Send + 'static) -> Option<T> {
        let front = self.front.lock().expect("no panic while the front is locked");
        front.as_ref()?.ask(call)
    }
}

/// Sets up a loop device on a file, with direct I/O: the page cache would hold everything twice and
/// write it back outside the measurement. Auto-clear removes it with its last user, which is this
/// process at first: if that is killed, the device is removed.
fn loop_device(file: &str, block: u32, undo: &mut Undo) -> Result<PathBuf, ProvisionError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ProvisionError::Io { path, source }
    };
    let opened = File::options().read(true).write(true).open(file);
    let opened = opened.map_err(failed(Path::new(file)))?;
    let file_system = opened.metadata().map_err(failed(Path::new(file)))?.dev();
    let held = LoopDevice::attach(&opened, block)
        .map_err(|source| ProvisionError::LoopDevice { file: file.to_string(), source })?;
    let device = held.path().to_path_buf();
    let detached = device.clone();
    undo.push_call(format!("loop device {}", device.display()), move || {
        drop(held);
        wait_detached(&detached, file_system)
    });
    let direct = setting(&device, "loop/dio").unwrap_or_default();
    if direct != "1" {
        return Err(ProvisionError::NoDirectIo { device, file: file.to_string() });
    }
    Ok(device)
}

/// Waits until auto-clear has removed a loop device. Its number may be reused by another process
/// immediately: ours is the one on a file of this file system, which no other loop device uses.
fn wait_detached(device: &Path, file_system: u64) -> Result<(), ProvisionError> {
    for _ in 0..100 {
        match LoopDevice::backing_device(device) {
            Ok(backing) if backing == Some(file_system) => {}
            _ => return Ok(()),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Err(ProvisionError::StillInUse)
}
