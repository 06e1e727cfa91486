//! Why a place cannot be set up, or be torn down.
//!
//! Invariant: an error names the device, the file or the command. What is refused because it would
//! destroy data is a kind of its own, and nothing has been written then.

use std::io;
use std::path::PathBuf;

use export::fuse::FrontError;
use md::Level;
use spec::matrix::CannotServe;
use spec::units::show_size;
use thiserror::Error;

use super::steps::StepError;
use crate::target_error::TargetError;

impl From<ProvisionError> for TargetError {
    fn from(problem: ProvisionError) -> TargetError {
        TargetError::Device(Box::new(problem))
    }
}

/// Why a place cannot be set up.
#[derive(Debug, Error)]
pub enum ProvisionError {
    /// The kernel has no such file system.
    #[error("fs:{0}: unknown filesystem type: the kernel does not have it")]
    NoFileSystem(&'static str),
    /// There is no kernel for a target in model time.
    #[error(transparent)]
    Lab(#[from] crate::linux::LabError),
    /// The device holds data that would be overwritten.
    #[error(
        "{}: {}, and would be overwritten; if that is no longer needed, wipe it first, or with \
         device: and --members give --destroy-contents",
        path.display(), it_holds(contents)
    )]
    WouldDestroy {
        /// The device.
        path: PathBuf,
        /// What was found on it: `holds an ext4 file system`.
        contents: Vec<String>,
    },
    /// A device for an array of md holds data.
    #[error(
        "{}: {}, and md takes only devices that hold nothing; if that is no longer needed, wipe it \
         first, as with wipefs --all", path.display(), it_holds(contents)
    )]
    HoldsDataForMd {
        /// The device.
        path: PathBuf,
        /// What was found on it.
        contents: Vec<String>,
    },
    /// Only root may do it.
    #[error("{what} needs root: mounts and block devices are the kernel's")]
    NeedsRoot {
        /// What was requested.
        what: String,
    },
    /// The process cannot have mounts that others do not see.
    #[error("cannot have mounts of its own (CAP_SYS_ADMIN): {}", host::sys::reason(.0))]
    PrivateMounts(#[source] io::Error),
    /// The kernel's device-mapper cannot be used.
    #[error("lvm: {} cannot be opened: {}", path.display(), host::sys::reason(source))]
    NoDeviceMapper {
        /// Its control node.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// `path:` of something else.
    #[error("path:{}: is no directory", .0.display())]
    NoDirectory(PathBuf),
    /// `device:` of something else.
    #[error("{}: it is no block device; use path:DIR for a directory", .0.display())]
    NoBlockDevice(PathBuf),
    /// The device is smaller than the member of the array.
    #[error(
        "{}: it has {}, and {} are needed here; use a smaller --size",
        path.display(), show_size(*bytes), show_size(*wanted)
    )]
    SmallDevice {
        /// The device.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// The member's.
        wanted: u64,
    },
    /// A directory is given where a block device is needed.
    #[error("a block device is required")]
    DeviceWanted,
    /// The place needs an array, and none is given.
    #[error("no array is given for the place")]
    NoArray,
    /// The array has another number of members than devices are given.
    #[error("md: {given} device(s) are given, the array has {wanted}")]
    DeviceCount {
        /// Devices given.
        given: usize,
        /// Members of the array.
        wanted: usize,
    },
    /// The kernel has no md.
    #[error("md: this kernel has no md: no /proc/mdstat, and no module for {0}")]
    NoMd(Level),
    /// All numbers for arrays of md are in use.
    #[error("md: md200 to md255 all exist; stop one that is unused")]
    NoFreeNumber,
    /// The chunk is no multiple of the file system's block.
    #[error("block={block_bytes}: chunks of {chunk_bytes} bytes are no multiple")]
    ChunkOfBlocks {
        /// Block of the file system.
        block_bytes: u64,
        /// Chunk of the array.
        chunk_bytes: u64,
    },
    /// The geometry of md's array is invalid.
    #[error(transparent)]
    Geometry(#[from] md::GeometryError),
    /// The device cannot be opened: missing, in use, no permission.
    #[error(transparent)]
    Device(#[from] host::DeviceError),
    /// The part of an export is none.
    #[error(transparent)]
    Location(#[from] host::LocationError),
    /// The old signatures of the device cannot be erased.
    #[error("cannot erase what the device holds: {}", host::sys::reason(.0))]
    Erase(#[source] io::Error),
    /// The signatures that the measurement has left on a device cannot be erased.
    #[error("{}", host::sys::reason(.0))]
    EraseAgain(#[source] io::Error),
    /// The name of a device is that of another one by now.
    #[error("{}: it is not the device that was measured; it was left as it is", .0.display())]
    OtherDevice(PathBuf),
    /// A temporary directory cannot be created.
    #[error("{}: cannot be made: {}", path.display(), host::sys::reason(source))]
    MakeDirectory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file or a device cannot be examined or opened.
    #[error("{}: {}", path.display(), host::sys::reason(source))]
    Io {
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The device has no such attribute in sysfs.
    #[error("{}: the kernel has no {name} here", device.display())]
    NoSetting {
        /// The device.
        device: PathBuf,
        /// The attribute.
        name: String,
    },
    /// No loop device could be made of a file.
    #[error(
        "cannot make a loop device of {file}: {} (Linux 5.8 or newer?)",
        host::sys::reason(source)
    )]
    LoopDevice {
        /// The file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The loop device would go through the page cache.
    #[error("{}: the kernel refuses direct I/O on {file}", device.display())]
    NoDirectIo {
        /// The loop device.
        device: PathBuf,
        /// The file below it.
        file: String,
    },
    /// Arrays of the level have no bitmap.
    #[error("md: {0} has no bitmap: leave bitmap=internal out")]
    NoBitmap(Level),
    /// Arrays of the level have no such attribute.
    #[error("md: {level} has no {knob}: leave it out")]
    NoSuchKnob {
        /// `stripe-cache`.
        knob: &'static str,
        /// The level.
        level: Level,
    },
    /// A step failed: a command, or an access to sysfs or a mount.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The array of md does not get in sync.
    #[error("{}: {problem}", device.display())]
    Sync {
        /// The array.
        device: PathBuf,
        /// The reason.
        #[source]
        problem: SyncError,
    },
    /// The array of the engine cannot be made.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The array of the engine cannot be mounted, or be stopped.
    #[error(transparent)]
    Front(#[from] FrontError),
    /// The thread that serves the array has ended.
    #[error("the front's thread has ended")]
    FrontEnded,
    /// The array has been stopped.
    #[error("the array has been stopped")]
    ArrayStopped,
    /// The array cannot serve with the missing members that were requested.
    #[error(transparent)]
    Degraded(#[from] CannotServe),
    /// A loop device has users after it should have none.
    #[error("still in use")]
    StillInUse,
}

fn it_holds(contents: &[String]) -> String {
    format!("it {}", contents.join(", it "))
}

/// Why an array of md does not get in sync.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SyncError {
    /// The array has gone.
    #[error("the array was stopped by another process before its resync finished")]
    ArrayStopped,
    /// The set-up was stopped, by a signal for example.
    #[error("stopped while md brought the array up to date")]
    Interrupted,
    /// The array is idle and not in sync.
    #[error(
        "md does nothing to bring the array up to date (sync_action {action}, degraded \
         {degraded}, resync_start {resync_start}); see dmesg"
    )]
    Idle {
        /// `md/sync_action`.
        action: String,
        /// `md/degraded`.
        degraded: String,
        /// `md/resync_start`.
        resync_start: String,
    },
}

/// Changes of the system that could not be undone.
#[derive(Debug, Error)]
#[error("could not be undone: {}", texts(left))]
pub struct UndoError {
    /// Each change, in the order in which it was tried.
    pub left: Vec<LeftChange>,
}

/// A change of the system that could not be undone.
#[derive(Debug, Error)]
#[error("{}{problem}", match names(problem, what) {
    true => String::new(),
    false => format!("{what}: "),
})]
pub struct LeftChange {
    /// What was tried.
    pub what: String,
    /// The reason.
    #[source]
    pub problem: ProvisionError,
}

fn texts(left: &[LeftChange]) -> String {
    left.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Whether the text of the error begins with `what` already.
fn names(problem: &ProvisionError, what: &str) -> bool {
    matches!(problem, ProvisionError::Step(failed) if failed.step.to_string() == what)
}
