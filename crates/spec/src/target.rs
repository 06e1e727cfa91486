//! Place expressions: `engine`, `path:DIR`, `device:/dev/X`, `fs:ext4,data=journal,block=1K`,
//! `md:/dev/X+/dev/Y`, `linux`.
//!
//! ```text
//! PLACE  = engine | path:DIR | device:PATH | fs:KIND[,OPTION]... | md[:PATH[+PATH]...][,KNOB]...
//!                                                    without PATH: the devices of --members
//!        | device:URI                                an NBD export
//!        | linux[,memory=SIZE][,cpu=SPEED][,KNOB]... md of another kernel, in model time
//! KIND   = ext2 | ext3 | ext4 | xfs | btrfs
//! OPTION = block=SIZE | journal=ARRAY | unaligned | lvm | KNOB | on=PLACE (the last one)
//!        | anything else, which mount gets as it is: noatime, data=journal, barrier=0
//! ARRAY  = an array expression, as in raid1(2): the journal lies on it; or none
//! KNOB   = read-ahead=SIZE | scheduler=NAME | queue-depth=N | stripe-cache=PAGES |
//!          group-threads=N | sync-speed-min=KIB | sync-speed-max=KIB | bitmap=internal |
//!          bitmap-chunk=SIZE | assume-clean
//! ```
//! Invariant: parsing reports the first error; nothing is accessed or created here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use md::nested::{ArrayExpr, ExprError};
use md::{BareNumber, SizeError, parse_size};
use thiserror::Error;

use crate::units::exact_size;

/// The place of a measurement.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TargetExpr {
    /// The engine in this process, without a file system.
    #[default]
    Engine,
    /// An existing directory.
    Path(PathBuf),
    /// An existing block device, or the URI of an NBD export ([`is_export`]).
    Device(PathBuf),
    /// A file system, created for the measurement.
    FileSystem(FsExpr),
    /// An array of the kernel, created for the measurement.
    Kernel(KernelExpr),
}

/// Whether a device is an export of an NBD server, on this host or another: `nbd://HOST/EXPORT`,
/// `nbd+unix://...`, with TLS `nbds://...`. Hosts share it, and the kernel does not know it.
pub fn is_export(device: &Path) -> bool {
    let scheme = device.to_str().and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| ["nbd", "nbds", "nbd+unix", "nbds+unix"].contains(&scheme))
}

/// Kind of a target, as records name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    /// The engine in this process, without a file system.
    Engine,
    /// A directory.
    Path,
    /// A block device.
    Device,
    /// A file system, created for the measurement.
    FileSystem,
    /// An array of the kernel, created for the measurement.
    Kernel,
    /// The same in a user-mode kernel on modelled disks, in model time.
    Linux,
}

impl TargetKind {
    /// All kinds.
    pub const ALL: [TargetKind; 6] = [
        TargetKind::Engine,
        TargetKind::Path,
        TargetKind::Device,
        TargetKind::FileSystem,
        TargetKind::Kernel,
        TargetKind::Linux,
    ];

    /// Its name in messages and labels: that of the option.
    pub const fn shown(self) -> &'static str {
        match self {
            TargetKind::Kernel => "md",
            other => other.name(),
        }
    }

    /// Its name in records: an md array is `kernel` there, as the option was called once.
    pub const fn name(self) -> &'static str {
        match self {
            TargetKind::Engine => "engine",
            TargetKind::Path => "path",
            TargetKind::Device => "device",
            TargetKind::FileSystem => "fs",
            TargetKind::Kernel => "kernel",
            TargetKind::Linux => "linux",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<TargetKind> {
        TargetKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A file system to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct FsExpr {
    /// Type of the file system.
    pub kind: FsKind,
    /// Its block size, in bytes.
    pub block_bytes: Option<u64>,
    /// Location of its journal.
    pub journal: Journal,
    /// Whether mkfs gets no stripe geometry.
    pub unaligned: bool,
    /// Whether it is on an LVM volume on the array.
    pub lvm: bool,
    /// Mount options, as for mount(8).
    pub mount_options: Vec<String>,
    /// Settings of the block device.
    pub knobs: BlockDeviceSettings,
    /// The place below it.
    pub on: Box<TargetExpr>,
}

/// File systems that can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FsKind {
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
}

/// Location of a file system's journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Journal {
    /// Internal, where the file system has a journal.
    #[default]
    Internal,
    /// No journal.
    None,
    /// External, on a separate array over members like the others.
    On(ArrayExpr),
}

/// Settings of a block device; `None` leaves a setting unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDeviceSettings {
    /// Read-ahead, in bytes.
    pub read_ahead_bytes: Option<u64>,
    /// I/O scheduler of the members.
    pub scheduler: Option<String>,
    /// Queue depth of the members.
    pub queue_depth: Option<u32>,
    /// Attributes of an array of md.
    pub md: BTreeMap<MdKnob, u32>,
}

/// An attribute of an array of md, which is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MdKnob {
    /// Stripe cache, in pages of each member.
    StripeCache,
    /// Threads for stripes besides the raid thread.
    GroupThreads,
    /// Rate of a resync, a rebuild or a check that it keeps beside other requests, KiB/s: of each
    /// member; of a resync or check of RAID 10, in positions of the array.
    SyncSpeedMin,
    /// Rate that it does not exceed, in the same.
    SyncSpeedMax,
}

impl MdKnob {
    /// All of them.
    pub const ALL: [MdKnob; 4] =
        [MdKnob::StripeCache, MdKnob::GroupThreads, MdKnob::SyncSpeedMin, MdKnob::SyncSpeedMax];

    /// Its name in a target: `stripe-cache`.
    pub fn word(self) -> &'static str {
        match self {
            MdKnob::StripeCache => "stripe-cache",
            MdKnob::GroupThreads => "group-threads",
            MdKnob::SyncSpeedMin => "sync-speed-min",
            MdKnob::SyncSpeedMax => "sync-speed-max",
        }
    }

    /// Its attribute in sysfs, below the device.
    pub fn attribute(self) -> &'static str {
        match self {
            MdKnob::StripeCache => "md/stripe_cache_size",
            MdKnob::GroupThreads => "md/group_thread_cnt",
            MdKnob::SyncSpeedMin => "md/sync_speed_min",
            MdKnob::SyncSpeedMax => "md/sync_speed_max",
        }
    }

    /// What an array must have, if md is to have the attribute.
    pub fn needs_parity(self) -> bool {
        matches!(self, MdKnob::StripeCache | MdKnob::GroupThreads)
    }
}

/// An array of the kernel to be created; level, layout and chunk come from the same options as the
/// engine's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KernelExpr {
    /// Its members, in slot order; none: the block devices of `--members`, which planning puts
    /// here. An array of fewer members has the first.
    pub devices: Vec<PathBuf>,
    /// Settings of the array and its members.
    pub knobs: BlockDeviceSettings,
    /// Whether the members are assumed to be in sync, which only zeroed ones are.
    pub assume_clean: bool,
    /// Whether it has an internal write-intent bitmap, where its level has any.
    pub bitmap: bool,
    /// Bytes of the members for each bit of that bitmap; `None`: as mdadm chooses.
    pub bitmap_chunk_bytes: Option<u64>,
    /// The kernel, if it is not that of this machine: its members are modelled disks then, and
    /// `devices` is empty until it runs.
    pub model_time: Option<ModelTimeKernel>,
}

/// A user-mode kernel whose clock and disks are models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelTimeKernel {
    /// Its memory, bytes; `None`: [`ModelTimeKernel::MEMORY_BYTES`].
    pub memory_bytes: Option<u64>,
    /// Speed of its CPU, thousandths of a core of the 2020s; 0: computing takes no time; `None`:
    /// such a core.
    pub cpu_permille: Option<u32>,
}

impl ModelTimeKernel {
    /// Memory of a kernel that is given none.
    pub const MEMORY_BYTES: u64 = 512 << 20;
    /// With less it does not start.
    pub const LEAST_BYTES: u64 = 64 << 20;

    /// Its memory, bytes.
    pub fn memory(self) -> u64 {
        self.memory_bytes.unwrap_or(ModelTimeKernel::MEMORY_BYTES)
    }

    /// Speed of its CPU, thousandths of a core of the 2020s; 0: computing takes no time.
    pub fn cpu(self) -> u32 {
        self.cpu_permille.unwrap_or(1000)
    }

    /// The settings that are not at their default, as after `linux`.
    fn words(self) -> impl Iterator<Item = String> {
        let memory = self.memory_bytes.map(|bytes| format!("memory={}", exact_size(bytes)));
        let cpu = self.cpu_permille.map(|permille| match permille {
            0 => "cpu=free".to_string(),
            _ => format!("cpu={}", f64::from(permille) / 1000.0),
        });
        memory.into_iter().chain(cpu)
    }
}

/// The reason why a text is not a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("target '{part}': {problem}")]
pub struct TargetExprError {
    /// The invalid part.
    pub part: String,
    /// The reason.
    #[source]
    pub problem: TargetProblem,
}

/// What is wrong with a part of a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetProblem {
    /// There is no such kind of target.
    #[error(
        "unknown; there are engine, path:DIR, device:/dev/X, fs:KIND, md:/dev/X+/dev/Y and linux"
    )]
    UnknownKind,
    /// `path` without a directory.
    #[error("a directory is required, as in path:/mnt/array")]
    NoDirectory,
    /// `device` without a device.
    #[error("a block device is required, as in device:/dev/md0")]
    NoDevice,
    /// `fs` without a file system.
    #[error("a file system is required, as in fs:ext4")]
    NoFileSystem,
    /// A member of `md` is no path of a device.
    #[error("a device's whole path is required, as in /dev/sdb")]
    NotAPath,
    /// `md` has no such option.
    #[error(
        "unknown; there are read-ahead=SIZE, stripe-cache=PAGES, queue-depth=N, scheduler=NAME, \
         group-threads=N, sync-speed-min=KIB, sync-speed-max=KIB, bitmap=internal, \
         bitmap-chunk=SIZE and assume-clean"
    )]
    UnknownOption,
    /// A chunk of a bitmap is given, and no bitmap.
    #[error("only with bitmap=internal")]
    NoBitmap,
    /// A bitmap cannot have such chunks.
    #[error("a power of two from 4K on is required")]
    BitmapChunk,
    /// The kernel cannot have so little memory.
    #[error("a kernel needs memory of {} at least", exact_size(ModelTimeKernel::LEAST_BYTES))]
    SmallMemory,
    /// The CPU has no such speed.
    #[error("a CPU's speed is 0.001 to 100, as a share of a core of the 2020s, or free")]
    CpuSpeed,
    /// The value of an option is no number above 0.
    #[error("a number from 1 on is required")]
    Number,
    /// The value of an option is no size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The read-ahead is no multiple of 1 KiB.
    #[error("the kernel counts read-ahead in KiB")]
    ReadAheadUnit,
    /// The scheduler has no name.
    #[error("a scheduler's name is required")]
    NoScheduler,
    /// There is no such file system.
    #[error("unknown file system; there are ext2, ext3, ext4, xfs and btrfs")]
    UnknownFileSystem,
    /// An option has no text.
    #[error("an option between two commas is empty")]
    EmptyOption,
    /// The block is one that no file system has.
    #[error("a block is a power of two from 512 to 64K")]
    Block,
    /// The block is too small for this file system.
    #[error("the ext file systems have blocks of 1K at least")]
    SmallBlock,
    /// The array of the journal is none.
    #[error(transparent)]
    JournalArray(#[from] ExprError),
    /// The file system cannot have such a journal.
    #[error("{} cannot have its journal there", .0.name())]
    Journal(FsKind),
    /// A journal on an array of its own, below a file system that is not on the engine.
    #[error("an array for the journal is made for the engine's only")]
    JournalWithoutEngine,
    /// The file system is to be on something that is no block device.
    #[error("a file system needs a block device under it")]
    NotOnABlockDevice,
    /// Options of an array, given to a file system.
    #[error(
        "queue-depth, stripe-cache and md's other attributes belong to the array: give them after \
         on=md:/dev/X+/dev/Y, or with --queue-depth and --stripe-cache"
    )]
    ArrayOption,
}

fn error(part: &str, problem: impl Into<TargetProblem>) -> TargetExprError {
    TargetExprError { part: part.into(), problem: problem.into() }
}

impl FsKind {
    const ALL: [FsKind; 5] = [FsKind::Ext2, FsKind::Ext3, FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs];

    /// Its name for mount(8).
    pub fn name(self) -> &'static str {
        match self {
            FsKind::Ext2 => "ext2",
            FsKind::Ext3 => "ext3",
            FsKind::Ext4 => "ext4",
            FsKind::Xfs => "xfs",
            FsKind::Btrfs => "btrfs",
        }
    }
}

impl TargetExpr {
    /// Its kind.
    pub fn kind(&self) -> TargetKind {
        match self {
            TargetExpr::Engine => TargetKind::Engine,
            TargetExpr::Path(_) => TargetKind::Path,
            TargetExpr::Device(_) => TargetKind::Device,
            TargetExpr::FileSystem(_) => TargetKind::FileSystem,
            TargetExpr::Kernel(kernel) if kernel.model_time.is_some() => TargetKind::Linux,
            TargetExpr::Kernel(_) => TargetKind::Kernel,
        }
    }

    /// Whether the array of the command line runs in this process's engine.
    pub fn uses_engine(&self) -> bool {
        match self {
            TargetExpr::Engine => true,
            TargetExpr::FileSystem(fs) => fs.on.uses_engine(),
            TargetExpr::Path(_) | TargetExpr::Device(_) | TargetExpr::Kernel(_) => false,
        }
    }

    /// Whether the members of its arrays are made here, as `--members` says.
    pub fn makes_members(&self) -> bool {
        self.uses_engine() || self.model_time().is_some()
    }

    /// The kernel that it runs in, if it is not that of this machine.
    pub fn model_time(&self) -> Option<ModelTimeKernel> {
        self.kernel().and_then(|kernel| kernel.model_time)
    }

    /// Whether an array is created for it, by the engine or by the kernel.
    pub fn uses_array(&self) -> bool {
        match self {
            TargetExpr::Engine | TargetExpr::Kernel(_) => true,
            TargetExpr::FileSystem(fs) => fs.on.uses_array(),
            TargetExpr::Path(_) | TargetExpr::Device(_) => false,
        }
    }

    /// Whether it is, or is on, an existing device.
    pub fn takes_device(&self) -> bool {
        match self {
            TargetExpr::Device(_) => true,
            TargetExpr::FileSystem(fs) => fs.on.takes_device(),
            TargetExpr::Engine | TargetExpr::Path(_) | TargetExpr::Kernel(_) => false,
        }
    }

    /// The array of the kernel's below it, if there is one.
    pub fn kernel(&self) -> Option<&KernelExpr> {
        match self {
            TargetExpr::Kernel(kernel) => Some(kernel),
            TargetExpr::FileSystem(fs) => fs.on.kernel(),
            TargetExpr::Engine | TargetExpr::Path(_) | TargetExpr::Device(_) => None,
        }
    }

    /// The same with the array of the kernel's on these devices, if it names none.
    #[must_use]
    pub fn on_devices(mut self, devices: &[PathBuf]) -> TargetExpr {
        match &mut self {
            TargetExpr::Kernel(kernel)
                if kernel.devices.is_empty() && kernel.model_time.is_none() =>
            {
                kernel.devices = devices.to_vec();
            }
            TargetExpr::FileSystem(fs) => {
                *fs.on = std::mem::take(&mut *fs.on).on_devices(devices);
            }
            _ => {}
        }
        self
    }

    /// Complete identity, which distinguishes it from all other places.
    pub fn identity(&self) -> String {
        match self {
            TargetExpr::Engine => self.name(),
            TargetExpr::Path(path) => format!("path:{}", path.display()),
            TargetExpr::Device(path) => format!("device:{}", path.display()),
            TargetExpr::FileSystem(fs) => format!("fs:{},on={}", fs.words(), fs.on.identity()),
            TargetExpr::Kernel(kernel) if kernel.model_time.is_some() => self.name(),
            TargetExpr::Kernel(kernel) => {
                let devices = kernel.devices.iter().map(|path| path.display().to_string());
                format!("{}:{}", self.name(), devices.collect::<Vec<_>>().join("+"))
            }
        }
    }

    /// Name for messages and labels, without the user's directories.
    pub fn shown(&self) -> String {
        shown_name(&self.name())
    }

    /// Name for the record, without the user's directories: see [`TargetKind::name`].
    pub fn name(&self) -> String {
        match self {
            TargetExpr::Engine => "engine".into(),
            TargetExpr::Path(_) => "path".into(),
            TargetExpr::Device(_) => "device".into(),
            TargetExpr::FileSystem(fs) => {
                let on = (*fs.on != TargetExpr::Engine).then(|| format!(",on={}", fs.on.name()));
                format!("fs:{}{}", fs.words(), on.unwrap_or_default())
            }
            TargetExpr::Kernel(kernel) => {
                let mut words = kernel.knobs.words();
                words.extend(kernel.bitmap.then(|| "bitmap=internal".to_string()));
                let chunk = kernel.bitmap_chunk_bytes;
                words.extend(chunk.map(|bytes| format!("bitmap-chunk={}", exact_size(bytes))));
                words.extend(kernel.assume_clean.then(|| "assume-clean".to_string()));
                words.extend(kernel.model_time.into_iter().flat_map(ModelTimeKernel::words));
                words.insert(0, self.kind().name().into());
                words.join(",")
            }
        }
    }
}

/// What is shown of the name that a record has for a target: `kernel` is `md`, as in the option.
pub fn shown_name(recorded: &str) -> String {
    let (above, lowest) = match recorded.rsplit_once(",on=") {
        Some((file_system, on)) => (format!("{file_system},on="), on),
        None => (String::new(), recorded),
    };
    match lowest.strip_prefix("kernel") {
        Some(knobs) if knobs.is_empty() || knobs.starts_with(',') => format!("{above}md{knobs}"),
        _ => recorded.to_string(),
    }
}

impl FsExpr {
    /// A file system with default settings, on the engine.
    pub fn new(kind: FsKind) -> FsExpr {
        FsExpr {
            kind,
            block_bytes: None,
            journal: Journal::default(),
            unaligned: false,
            lvm: false,
            mount_options: Vec::new(),
            knobs: BlockDeviceSettings::default(),
            on: Box::default(),
        }
    }

    fn words(&self) -> String {
        let mut words = vec![self.kind.name().to_string()];
        words.extend(self.mount_options.iter().cloned());
        words.extend(self.block_bytes.map(|bytes| format!("block={}", exact_size(bytes))));
        words.extend(match &self.journal {
            Journal::Internal => None,
            Journal::None => Some("journal=none".into()),
            Journal::On(array) => Some(format!("journal={array}")),
        });
        words.extend(self.unaligned.then(|| "unaligned".into()));
        words.extend(self.lvm.then(|| "lvm".into()));
        words.extend(self.knobs.words());
        words.join(",")
    }
}

impl BlockDeviceSettings {
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(self.read_ahead_bytes.map(|b| format!("read-ahead={}", exact_size(b))));
        words.extend(self.scheduler.as_ref().map(|name| format!("scheduler={name}")));
        words.extend(self.queue_depth.map(|depth| format!("queue-depth={depth}")));
        words.extend(self.md.iter().map(|(knob, value)| format!("{}={value}", knob.word())));
        words
    }

    /// Applies a word that is a knob; returns whether it is one.
    fn take(&mut self, word: &str) -> Result<bool, TargetExprError> {
        let Some((name, value)) = word.split_once('=') else { return Ok(false) };
        let number = || {
            let number = value.parse().ok().filter(|number| *number > 0);
            number.ok_or_else(|| error(word, TargetProblem::Number))
        };
        match name {
            "read-ahead" => {
                let bytes = parse_size(value, BareNumber::Refused).map_err(|e| error(word, e))?;
                if bytes % 1024 != 0 {
                    return Err(error(word, TargetProblem::ReadAheadUnit));
                }
                self.read_ahead_bytes = Some(bytes);
            }
            "scheduler" if !value.is_empty() && !value.contains('/') => {
                self.scheduler = Some(value.into());
            }
            "scheduler" => return Err(error(word, TargetProblem::NoScheduler)),
            "queue-depth" => self.queue_depth = Some(number()?),
            _ => match MdKnob::ALL.into_iter().find(|knob| knob.word() == name) {
                Some(knob) => drop(self.md.insert(knob, number()?)),
                None => return Ok(false),
            },
        }
        Ok(true)
    }
}

impl FromStr for TargetExpr {
    type Err = TargetExprError;

    fn from_str(text: &str) -> Result<TargetExpr, TargetExprError> {
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        match (kind, rest) {
            ("engine", None) => Ok(TargetExpr::Engine),
            ("path", Some(dir)) if !dir.is_empty() => Ok(TargetExpr::Path(dir.into())),
            ("device", Some(dev)) if !dev.is_empty() => Ok(TargetExpr::Device(dev.into())),
            ("path", _) => Err(error(text, TargetProblem::NoDirectory)),
            ("device", _) => Err(error(text, TargetProblem::NoDevice)),
            ("fs", Some(rest)) => file_system(rest).map(TargetExpr::FileSystem),
            ("fs", None) => Err(error(text, TargetProblem::NoFileSystem)),
            // The older name is `kernel`; records still have it.
            ("md" | "kernel", Some(rest)) => kernel(rest).map(TargetExpr::Kernel),
            _ => match text.split(',').next() {
                Some("md" | "kernel") => kernel_on_members(text).map(TargetExpr::Kernel),
                Some("linux") => kernel_of_models(text).map(TargetExpr::Kernel),
                _ => Err(error(text, TargetProblem::UnknownKind)),
            },
        }
    }
}

/// Splits at commas outside of parentheses; everything after `on=` is one word.
fn words(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut words) = (0i32, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth -= 1,
            b',' if depth == 0 && !text[start..].starts_with("on=") => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    words
}

fn file_system(text: &str) -> Result<FsExpr, TargetExprError> {
    let mut words = words(text).into_iter();
    let name = words.next().unwrap_or("");
    let kind = FsKind::ALL.into_iter().find(|kind| kind.name() == name);
    let kind = kind.ok_or_else(|| error(name, TargetProblem::UnknownFileSystem))?;
    let mut fs = FsExpr::new(kind);
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("block", size) => {
                // As for mkfs, a number alone is bytes.
                let bytes = parse_size(size, BareNumber::Bytes).map_err(|e| error(word, e))?;
                let possible = bytes.is_power_of_two() && (512..=65_536).contains(&bytes);
                let block = possible.then_some(bytes);
                fs.block_bytes = Some(block.ok_or_else(|| error(word, TargetProblem::Block))?);
            }
            ("journal", "none") => fs.journal = Journal::None,
            ("journal", "internal") => fs.journal = Journal::Internal,
            ("journal", array) => {
                let array = array.parse::<ArrayExpr>().map_err(|e| error(word, e))?;
                fs.journal = Journal::On(array);
            }
            ("unaligned", "") => fs.unaligned = true,
            ("lvm", "") => fs.lvm = true,
            ("on", place) => {
                fs.on = Box::new(place.parse()?);
                let export =
                    |on: &TargetExpr| matches!(on, TargetExpr::Device(it) if is_export(it));
                if matches!(*fs.on, TargetExpr::Path(_) | TargetExpr::FileSystem(_))
                    || export(&fs.on)
                {
                    return Err(error(word, TargetProblem::NotOnABlockDevice));
                }
            }
            ("", _) => return Err(error(text, TargetProblem::EmptyOption)),
            _ if fs.knobs.take(word)? => {}
            _ => fs.mount_options.push(word.into()),
        }
    }
    fs.check(text)?;
    Ok(fs)
}

impl FsExpr {
    /// Refuses file systems that mkfs cannot create.
    fn check(&self, text: &str) -> Result<(), TargetExprError> {
        let can = match self.kind {
            FsKind::Ext2 => matches!(self.journal, Journal::Internal | Journal::None),
            FsKind::Ext3 => self.journal != Journal::None,
            FsKind::Ext4 => true,
            FsKind::Xfs => self.journal != Journal::None,
            FsKind::Btrfs => self.journal == Journal::Internal,
        };
        if !can {
            return Err(error(text, TargetProblem::Journal(self.kind)));
        }
        if matches!(self.journal, Journal::On(_)) && !self.on.uses_engine() {
            return Err(error(text, TargetProblem::JournalWithoutEngine));
        }
        if self.knobs.queue_depth.is_some() || !self.knobs.md.is_empty() {
            return Err(error(text, TargetProblem::ArrayOption));
        }
        let extended = matches!(self.kind, FsKind::Ext2 | FsKind::Ext3 | FsKind::Ext4);
        match self.block_bytes {
            Some(bytes) if extended && bytes < 1024 => Err(error(text, TargetProblem::SmallBlock)),
            _ => Ok(()),
        }
    }
}

fn kernel(text: &str) -> Result<KernelExpr, TargetExprError> {
    let mut kernel = kernel_on_members(text)?;
    for path in text.split(',').next().unwrap_or("").split('+') {
        if !path.starts_with('/') {
            return Err(error(path, TargetProblem::NotAPath));
        }
        kernel.devices.push(path.into());
    }
    Ok(kernel)
}

/// What stands behind the first word: the settings.
fn kernel_on_members(text: &str) -> Result<KernelExpr, TargetExprError> {
    let mut kernel = KernelExpr::default();
    for word in text.split(',').skip(1) {
        match word {
            "assume-clean" => kernel.assume_clean = true,
            "bitmap=internal" => kernel.bitmap = true,
            "bitmap=none" => kernel.bitmap = false,
            _ if kernel.knobs.take(word)? => {}
            _ => match word.strip_prefix("bitmap-chunk=") {
                Some(size) => kernel.bitmap_chunk_bytes = Some(bitmap_chunk(word, size)?),
                None => return Err(error(word, TargetProblem::UnknownOption)),
            },
        }
    }
    match kernel.bitmap_chunk_bytes {
        Some(_) if !kernel.bitmap => Err(error("bitmap-chunk", TargetProblem::NoBitmap)),
        _ => Ok(kernel),
    }
}

/// Bytes of a member for each bit of a bitmap, as mdadm takes them.
fn bitmap_chunk(word: &str, size: &str) -> Result<u64, TargetExprError> {
    match parse_size(size, BareNumber::Refused).map_err(|e| error(word, e))? {
        bytes if bytes.is_power_of_two() && bytes >= 4096 => Ok(bytes),
        _ => Err(error(word, TargetProblem::BitmapChunk)),
    }
}

/// The settings behind `linux`: those of md on devices, and the kernel's own.
fn kernel_of_models(text: &str) -> Result<KernelExpr, TargetExprError> {
    let mut own = ModelTimeKernel::default();
    let mut words = Vec::new();
    for word in text.split(',') {
        match word.split_once('=') {
            Some(("memory", size)) => {
                let bytes = parse_size(size, BareNumber::Refused).map_err(|e| error(word, e))?;
                if bytes < ModelTimeKernel::LEAST_BYTES {
                    return Err(error(word, TargetProblem::SmallMemory));
                }
                own.memory_bytes = Some(bytes);
            }
            Some(("cpu", "free")) => own.cpu_permille = Some(0),
            Some(("cpu", speed)) => {
                let speed = speed.parse().ok().filter(|speed| (0.001..=100.0).contains(speed));
                let speed: f64 = speed.ok_or_else(|| error(word, TargetProblem::CpuSpeed))?;
                own.cpu_permille = Some((speed * 1000.0).round() as u32);
            }
            _ => words.push(word),
        }
    }
    Ok(KernelExpr { model_time: Some(own), ..kernel_on_members(&words.join(","))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_in_model_time() {
        let text = "linux,read-ahead=4M,stripe-cache=4096,group-threads=2,sync-speed-min=20000,\
                    sync-speed-max=90000,bitmap=internal,bitmap-chunk=64K,assume-clean,memory=256M,\
                    cpu=0.35";
        let target: TargetExpr = text.parse().expect("a target");
        assert_eq!((target.name().as_str(), target.kind()), (text, TargetKind::Linux));
        assert!(target.makes_members() && target.uses_array() && !target.uses_engine());
        let target = target.on_devices(&["/dev/sdb".into()]);
        assert_eq!(target.identity(), text, "its disks are models");
        let above: TargetExpr = "fs:ext3,noatime,on=linux,queue-depth=1".parse().expect("a target");
        assert_eq!(above.model_time(), Some(ModelTimeKernel::default()));
        assert_eq!(above.name(), "fs:ext3,noatime,on=linux,queue-depth=1");
        for (text, named) in [
            ("linux,memory=1M", "64M at least"),
            ("linux,cpu=0", "0.001 to 100"),
            ("linux,stripe=1", "unknown; there are read-ahead"),
            ("linux,bitmap-chunk=64K", "only with bitmap=internal"),
            ("linux,bitmap=internal,bitmap-chunk=2K", "a power of two from 4K on"),
            ("linux,bitmap=internal,bitmap-chunk=96K", "a power of two from 4K on"),
            ("linux:/dev/sda", "unknown; there are engine"),
        ] {
            let error = text.parse::<TargetExpr>().expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    fn fs(text: &str) -> FsExpr {
        match text.parse() {
            Ok(TargetExpr::FileSystem(fs)) => fs,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_file_system_with_everything() {
        let text = "fs:ext3,data=journal,block=1K,journal=raid1,64K(2),lvm,read-ahead=4M,noatime";
        assert!(text.parse::<TargetExpr>().is_err(), "a comma before the parenthesis is one more");
        let text = "fs:ext3,data=journal,block=1K,journal=raid1(2),lvm,read-ahead=4M,noatime";
        let fs = fs(text);
        assert_eq!((fs.kind, fs.block_bytes, fs.lvm), (FsKind::Ext3, Some(1024), true));
        assert_eq!(fs.mount_options, ["data=journal", "noatime"]);
        assert_eq!(fs.journal, Journal::On("raid1(2)".parse().expect("an array")));
        assert_eq!(fs.knobs.read_ahead_bytes, Some(4 << 20));
        assert!(fs.on.uses_engine());
        let name = TargetExpr::FileSystem(fs.clone()).name();
        assert_eq!(name.parse(), Ok(TargetExpr::FileSystem(fs)), "{name}");
    }

    /// Places are identified by name in the results: two places must not share a name.
    #[test]
    fn sizes_in_names_are_exact() {
        for text in ["fs:ext4,read-ahead=1540K", "fs:ext4,read-ahead=1541K", "fs:xfs,block=512"] {
            assert_eq!(text.parse::<TargetExpr>().expect(text).name(), text);
        }
    }

    #[test]
    fn a_file_system_on_something_else() {
        let fs = fs("fs:xfs,on=md:/dev/sdb+/dev/sdc,stripe-cache=4096,assume-clean");
        let TargetExpr::Kernel(kernel) = &*fs.on else { panic!("{fs:?}") };
        assert_eq!(kernel.devices.len(), 2);
        assert_eq!(kernel.knobs.md, BTreeMap::from([(MdKnob::StripeCache, 4096)]));
        assert!(kernel.assume_clean && fs.mount_options.is_empty());
        let name = TargetExpr::FileSystem(fs).name();
        assert_eq!(name, "fs:xfs,on=kernel,stripe-cache=4096,assume-clean", "no paths in it");
        assert_eq!(shown_name(&name), "fs:xfs,on=md,stripe-cache=4096,assume-clean");
    }

    #[test]
    fn nonsense_is_named() {
        for (text, named) in [
            ("disk", "unknown; there are engine"),
            ("path:", "a directory is required"),
            ("fs:vfat", "unknown file system"),
            ("fs:ext4,block=3K", "a power of two"),
            ("fs:ext4,block=512", "1K at least"),
            ("fs:ext3,journal=none", "cannot have its journal there"),
            ("fs:ext4,journal=raid9(2)", "raid9"),
            ("fs:ext4,,noatime", "empty"),
            ("fs:ext4,on=path:/mnt", "block device under it"),
            ("fs:ext4,on=device:nbd://h/x", "block device under it"),
            ("fs:ext4,journal=raid1(2),on=device:/dev/sda", "engine's only"),
            ("fs:ext4,queue-depth=0", "from 1 on"),
            ("fs:ext4,queue-depth=4", "belong to the array"),
            ("fs:ext4,stripe-cache=256,on=md:/dev/sda", "belong to the array"),
            ("md:sda", "whole path"),
            ("md:", "whole path"),
            ("mdadm", "unknown; there are"),
            ("md,stripe=1", "unknown; there are read-ahead"),
            ("md:/dev/sda,stripe=1", "unknown; there are read-ahead"),
        ] {
            let error = text.parse::<TargetExpr>().expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
