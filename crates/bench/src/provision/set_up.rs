//! Sets a place up, and tears it down.
//!
//! Invariant: everything that is created is undone when the [`ProvisionedTarget`] is dropped, in
//! reverse order. If the process is killed the kernel does it: mounts are in a mount namespace of
//! the calling thread and of the threads that it starts, loop devices are auto-cleared. So the
//! thread that sets a place up must also start the threads that use it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::metrics::host::{chosen, line, mounts, queue_of};
use host::Attachment;
use results::record;
use rustix::io::Errno;
use rustix::mount::FsOpenFlags;
use spec::target::{BlockDeviceSettings, FsExpr, FsKind, Journal, TargetExpr};

use super::engine::{EngineArray, ServedArray};
use super::error::{ProvisionError, UndoError};
use super::kernel::{KernelArray, set_up_kernel};
use super::md_sync::MdArray;
use super::plan::{Stripes, mkfs, mount, rehearsal};
use super::steps::Step;
use super::sysfs::apply_setting;
use super::undo::{Undo, make_directory};
use super::wipe::{open_for_md, open_to_write_over, wipe};

/// Room for what md puts before the data of a member, at most.
const MD_OWN_BYTES: u64 = 256 << 20;

/// The directory or block device of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountOrDevice {
    /// A directory for files.
    Directory(PathBuf),
    /// A block device, as one extent.
    Device(PathBuf),
}

/// A request to set up a place.
pub struct Request<'a> {
    /// The parsed place expression.
    pub place: &'a TargetExpr,
    /// The engine's array, where the place uses one.
    pub engine: Option<EngineArray>,
    /// The kernel's array, where the place uses one.
    pub kernel: Option<KernelArray>,
    /// Overwrite the contents of a `device:`. Below a file system its signatures are erased just
    /// before mkfs; a raw device is left unchanged, and is opened for writing with
    /// [`open_to_write_over`].
    pub destroy: bool,
    /// Polled during long steps; `true` aborts the setup.
    pub stop: &'a dyn Fn() -> bool,
}

/// A place that is set up; torn down when dropped.
pub struct ProvisionedTarget {
    storage: MountOrDevice,
    facts: record::Place,
    arrays: Vec<ServedArray>,
    warnings: Vec<String>,
    undo: Undo,
    md: Option<MdArray>,
}

impl ProvisionedTarget {
    /// Sets a place up.
    ///
    /// # Errors
    /// The missing requirement, or the failed step. Everything created before is undone.
    pub fn set_up(request: Request<'_>) -> Result<ProvisionedTarget, ProvisionError> {
        let mut making = Provisioner::new(request.stop);
        (making.engine, making.kernel) = (request.engine, request.kernel);
        making.destroy = request.destroy;
        let storage = making.storage(request.place)?;
        let Provisioner { mut facts, arrays, warnings, undo, md, .. } = making;
        facts.name = request.place.name();
        facts.memory_bytes = host::sys::memory_bytes();
        match &storage {
            MountOrDevice::Directory(path) => look_at_mount(path, &mut facts),
            MountOrDevice::Device(path) => look_at_queue(path, &mut facts),
        }
        arrays.iter().for_each(|array| array.set_paced(true));
        Ok(ProvisionedTarget { storage, facts, arrays, warnings, undo, md })
    }

    /// The directory or device to use.
    pub fn storage(&self) -> &MountOrDevice {
        &self.storage
    }

    /// Its configuration as the kernel shows it.
    pub fn facts(&self) -> &record::Place {
        &self.facts
    }

    /// The engine's arrays below it: the file system's, then its journal's if it has one.
    pub fn arrays(&self) -> &[ServedArray] {
        &self.arrays
    }

    /// The array of md below it, if one was made.
    pub fn md_array(&self) -> Option<&MdArray> {
        self.md.as_ref()
    }

    /// Warnings that apply to all figures measured here.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Tears the place down.
    ///
    /// # Errors
    /// Everything that could not be undone.
    pub fn take_down(mut self) -> Result<(), UndoError> {
        // Cached data is written to the members at full speed: it is not measured.
        self.arrays.iter().for_each(|array| array.set_paced(false));
        self.undo.take_back()
    }
}

impl Drop for ProvisionedTarget {
    fn drop(&mut self) {
        self.arrays.iter().for_each(|array| array.set_paced(false));
    }
}

/// A place that is partially set up. Dropping it undoes the completed steps.
struct Provisioner<'a> {
    engine: Option<EngineArray>,
    kernel: Option<KernelArray>,
    facts: record::Place,
    arrays: Vec<ServedArray>,
    warnings: Vec<String>,
    undo: Undo,
    destroy: bool,
    stop: &'a dyn Fn() -> bool,
    /// The array of md that was made.
    md: Option<MdArray>,
}

impl<'a> Provisioner<'a> {
    fn new(stop: &'a dyn Fn() -> bool) -> Provisioner<'a> {
        Provisioner {
            stop,
            destroy: false,
            engine: None,
            kernel: None,
            facts: record::Place::default(),
            arrays: Vec::new(),
            warnings: Vec::new(),
            undo: Undo::default(),
            md: None,
        }
    }

    fn storage(&mut self, place: &TargetExpr) -> Result<MountOrDevice, ProvisionError> {
        match place {
            TargetExpr::Path(path) if path.is_dir() => Ok(MountOrDevice::Directory(path.clone())),
            TargetExpr::Path(path) => Err(ProvisionError::NoDirectory(path.clone())),
            TargetExpr::FileSystem(fs) => self.file_system(fs).map(MountOrDevice::Directory),
            _ => {
                let device = self.device(place)?.0;
                self.arrays.iter().try_for_each(ServedArray::begin)?;
                Ok(MountOrDevice::Device(device))
            }
        }
    }

    /// A block device, with its stripe geometry where known.
    fn device(&mut self, place: &TargetExpr) -> Result<(PathBuf, Option<Stripes>), ProvisionError> {
        match place {
            TargetExpr::Engine => {
                need_root("an array as a block device")?;
                let array = self.engine.take().ok_or(ProvisionError::NoArray)?;
                self.serve(array)
            }
            TargetExpr::Device(path) => {
                open_to_write_over(path, self.destroy)?;
                Ok((path.clone(), None))
            }
            TargetExpr::Kernel(kernel) => {
                need_root("an array of the kernel's")?;
                let mut array = self.kernel.take().ok_or(ProvisionError::NoArray)?;
                let mut kernel = kernel.clone();
                // An array of fewer members has the first devices.
                kernel.devices.truncate(array.leaves());
                let mut smallest = u64::MAX;
                for path in &kernel.devices {
                    let opened = open_for_md(path)?;
                    smallest = smallest.min(opened.device().bytes());
                }
                let fits = |bytes: &u64| bytes.saturating_add(MD_OWN_BYTES) <= smallest;
                array.limit(&fits);
                let device = set_up_kernel(&kernel, &array, self.stop, &mut self.undo)?;
                self.md = Some(array.for_sync(&kernel, &device));
                let set = kernel.knobs.md.iter();
                let set = set.map(|(knob, value)| (knob.attribute().into(), value.to_string()));
                self.facts.knobs.extend(set);
                Ok((device, array.stripes()?))
            }
            TargetExpr::Path(_) | TargetExpr::FileSystem(_) => Err(ProvisionError::DeviceWanted),
        }
    }

    fn serve(&mut self, array: EngineArray) -> Result<(PathBuf, Option<Stripes>), ProvisionError> {
        let array = ServedArray::set_up(array, &mut self.undo)?;
        let found = (array.device.clone(), array.stripes);
        for sentence in &array.missing_protections {
            if !self.warnings.contains(sentence) {
                self.warnings.push(sentence.clone());
            }
        }
        self.arrays.push(array);
        Ok(found)
    }

    fn file_system(&mut self, fs: &FsExpr) -> Result<PathBuf, ProvisionError> {
        need_root(&format!("a file system of our own (fs:{})", fs.kind.name()))?;
        if fs.lvm {
            super::lvm::can_map(Path::new(super::lvm::CONTROL))?;
        }
        can_make(fs)?;
        export::fuse::private_mounts().map_err(ProvisionError::PrivateMounts)?;
        let for_journal = match (&fs.journal, &self.engine) {
            (Journal::On(expr), Some(array)) => array.for_journal(expr),
            _ => None,
        };
        let (mut device, stripes) = self.device(&fs.on)?;
        let journal = match for_journal {
            Some(array) => {
                self.facts.journal = Some(array.config.expr.to_string());
                Some(self.serve(array)?.0)
            }
            None => None,
        };
        apply_settings(&device, &fs.knobs, &mut self.undo, &mut self.facts.knobs)?;
        look_at_queue(&device, &mut self.facts);
        self.wipe_signatures(fs, &device, stripes, journal.as_deref())?;
        if fs.lvm {
            let ours = self.arrays.iter().any(|array| array.device == device);
            device = super::lvm::volume(&device, stripes, ours, &mut self.undo)?;
        }
        self.facts.lvm = Some(fs.lvm);
        let steps = mkfs(fs, stripes, &device, journal.as_deref())?;
        let commands = steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        self.facts.mkfs_options = Some(commands);
        for step in &steps {
            step.perform()?;
        }
        let directory = make_directory("mount", &mut self.undo)?;
        mount(fs, &device, journal.as_deref(), &directory).perform()?;
        self.undo.push(Step::Unmount(directory.clone()));
        Ok(directory)
    }

    /// Erases what the existing devices below a file system hold, after every check that could
    /// refuse has passed, and registers that they are erased again at the end.
    fn wipe_signatures(
        &mut self,
        fs: &FsExpr,
        path: &Path,
        stripes: Option<Stripes>,
        journal: Option<&Path>,
    ) -> Result<(), ProvisionError> {
        let is_theirs = matches!(&*fs.on, TargetExpr::Device(_));
        if !is_theirs && !self.arrays.iter().any(|array| array.on_devices) {
            return Ok(());
        }
        // The last step formats the device itself; the journal's device is our own, and the
        // rehearsal expects it.
        let steps = mkfs(fs, stripes, path, journal)?;
        let (last, before) = steps.split_last().expect("a file system is made by something");
        for step in before {
            step.perform()?;
        }
        rehearsal(last).perform()?;
        if !is_theirs {
            return self.arrays.iter().try_for_each(ServedArray::begin);
        }
        let opened = open_to_write_over(path, self.destroy)?;
        let was = Attachment::of(opened.device().identity());
        opened.wipe_signatures()?;
        // Only if something was written; and undone after the layers above it.
        let (what, path) = (format!("erasing {}", path.display()), path.to_path_buf());
        self.undo.push_call(what, move || wipe(&path, was));
        Ok(())
    }
}

/// Checks that the tools of a file system are installed and that the kernel has it, before a device
/// is written to.
fn can_make(fs: &FsExpr) -> Result<(), ProvisionError> {
    let program = match fs.kind {
        FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4 => "mke2fs",
        FsKind::Xfs => "mkfs.xfs",
        FsKind::Btrfs => "mkfs.btrfs",
    };
    Step::run(program, ["-V"]).perform()?; // runs: mke2fs, mkfs.xfs, mkfs.btrfs
    if fs.lvm {
        Step::run("lvm", ["version"]).perform()?;
    }
    // Loads its module. Kernels before 5.2 do not have the call, and mount reports it.
    match rustix::mount::fsopen(fs.kind.name(), FsOpenFlags::FSOPEN_CLOEXEC) {
        Err(Errno::NODEV) => Err(ProvisionError::NoFileSystem(fs.kind.name())),
        _ => Ok(()),
    }
}

fn need_root(what: &str) -> Result<(), ProvisionError> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(ProvisionError::NeedsRoot { what: what.to_string() }),
    }
}

/// Applies settings, and registers the restoration of the old values.
pub(super) fn apply_settings(
    device: &Path,
    knobs: &BlockDeviceSettings,
    undo: &mut Undo,
    said: &mut BTreeMap<String, String>,
) -> Result<(), ProvisionError> {
    for (name, value) in super::kernel::queue_settings(knobs) {
        apply_setting(device, name, &value, undo)?;
        said.insert(name.to_string(), value);
    }
    Ok(())
}

/// Configuration of an existing place, as the kernel shows it.
pub fn facts_of(name: String, storage: &MountOrDevice) -> record::Place {
    let memory_bytes = host::sys::memory_bytes();
    let mut facts = record::Place { name, memory_bytes, ..record::Place::default() };
    match storage {
        MountOrDevice::Directory(path) => {
            look_at_mount(path, &mut facts);
            let device = std::fs::metadata(path).map(|found| found.dev());
            device.iter().for_each(|device| look_at_queue_of(*device, &mut facts));
        }
        MountOrDevice::Device(path) => look_at_queue(path, &mut facts),
    }
    facts
}

fn look_at_queue(device: &Path, facts: &mut record::Place) {
    let number = std::fs::metadata(device).map(|found| found.rdev());
    number.iter().for_each(|number| look_at_queue_of(*number, facts));
}

fn look_at_queue_of(device: u64, facts: &mut record::Place) {
    let Some(queue) = queue_of(device) else { return };
    let setting = |name: &str| line(format!("{queue}/{name}"));
    facts.read_ahead_kib = setting("read_ahead_kb").and_then(|text| text.parse().ok());
    facts.scheduler = setting("scheduler").map(|text| chosen(&text));
}

fn look_at_mount(path: &Path, facts: &mut record::Place) {
    let mountinfo = std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap_or_default();
    let canonical = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    // The longest mount point above the path, and of several mounts there the last.
    let best = mounts(&mountinfo).filter(|mount| canonical.starts_with(&mount.point));
    let best = best.max_by_key(|mount| mount.point.as_os_str().len());
    if let Some(mount) = best {
        facts.file_system = Some(mount.kind.to_string());
        facts.mount_options = Some(mount.all_options());
    }
    if let Ok(space) = rustix::fs::statvfs(path) {
        facts.block_bytes = Some(space.f_bsize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing_on(place: &TargetExpr) -> Request<'_> {
        Request { place, engine: None, kernel: None, destroy: false, stop: &|| false }
    }

    #[test]
    fn what_is_there_is_described_and_left_alone() {
        let here = TargetExpr::Path(std::env::temp_dir());
        let request = nothing_on(&here);
        let place = ProvisionedTarget::set_up(request).expect("it is there");
        assert_eq!(place.facts().name, "path");
        assert!(place.facts().file_system.is_some(), "{:?}", place.facts());
        assert!(place.facts().memory_bytes.is_some());
        place.take_down().expect("nothing to take down");
        assert!(std::env::temp_dir().is_dir());
        let gone = TargetExpr::Path("/no/such/directory".into());
        let request = nothing_on(&gone);
        let error = ProvisionedTarget::set_up(request).err().expect("refused");
        assert_eq!(error.to_string(), "path:/no/such/directory: is no directory");
    }
}
