//! Linux md itself on modelled disks, in model time: a user-mode kernel (`ARCH=um`) with md, page
//! cache and file systems, whose clock and disks are ours.
//!
//! ```text
//!   plan --> guest: a command of this program, which runs inside of the kernel, on its array
//!        --> world: the kernel, its calendar, its disks: modelled drives that keep what is written
//!        <-- the record that the command has written; its cells are those of the plan
//! ```
//!
//! The clock jumps over waiting, and computing takes what a modelled CPU takes: what a cell says is
//! what md makes of its disks, however busy this machine is.
//!
//! Invariant: nothing outside of the run's own directory and the members' stores is written.
//! `scripts/linux-lab` builds the kernel. Called by `blocks` and by the programs' cases.

mod calendar;
mod cpu;
mod disk;
mod guest;
mod lab;
mod world;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use drive::Kind as DriveKind;
use predict::bound::{MemberDrive, wired};
use results::findings;
use results::record::{Cell, Record};
use rustix::fs::MemfdFlags;
use spec::case::{ArrayConfig, BenchLevel, RunConfig};
use spec::members::{MemberExpr, placement_for};
use spec::program::ProgramSpec;
use spec::target::{ModelTimeKernel, TargetExpr};
use spec::units::show_size;
use spec::workload::{Kind, Spec};
use thiserror::Error;

use crate::arrays::placement_name;
use crate::runner::Timing;
use guest::{DISKS_MAX, DiskSettings, ENDED, MESSAGES, RECORD};
use world::{OneCpu, Start, World};

pub use lab::{Lab, LabError};

/// Scheduler of rotating disks, and of others, as the kernel chooses it.
const SCHEDULER_OF_ROTATING: &str = "mq-deadline";
const SCHEDULER_OF_FLASH: &str = "none";
/// What md keeps in front of the data: a mebibyte, and a 1024th of larger disks.
const MD_OWN_BYTES: u64 = 2 << 20;
const MD_OWN_SHARE: u64 = 512;
/// Requests that a disk without a queue of its own is given at a time.
const QUEUE_MAX: u32 = 128;
/// Last lines of what a kernel or a command has said, in an error.
const LAST_LINES: usize = 6;

/// What a kernel says of its own end.
const CAUSES: [&str; 3] = ["Kernel panic", "Out of memory", "oom-kill"];

/// Why nothing is measured in a kernel.
#[derive(Debug, Error)]
pub enum LinuxError {
    /// The kernel is not there.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The array has more disks than a kernel is given.
    #[error("{0} disks: a kernel in model time has {DISKS_MAX} at most")]
    TooManyDisks(usize),
    /// A member has no drive.
    #[error("{0}: model time passes on modelled disks only, as in paced:hdd-2007")]
    NotModelled(String),
    /// The kernel, or what it is given, fails.
    #[error("{doing}: {source}{said}")]
    Io {
        /// What failed.
        doing: &'static str,
        /// The reason.
        source: io::Error,
        /// What the kernel said, after `: `; or nothing.
        said: String,
    },
    /// A path cannot be given to a kernel, whose options end there.
    #[error("{}: a kernel takes no path with blanks, commas, colons or quotes", .0.display())]
    Path(PathBuf),
    /// A setting has nothing to apply to.
    #[error("{0}")]
    Setting(String),
    /// This machine has too little memory.
    #[error(
        "a kernel with memory={} needs as much here, and {} are available",
        show_size(*wanted), show_size(*available)
    )]
    Memory {
        /// Memory of the kernel.
        wanted: u64,
        /// Available bytes.
        available: u64,
    },
    /// The command inside has failed.
    #[error("in the kernel: {0}")]
    Command(String),
    /// Its record cannot be read.
    #[error("the record from the kernel: {0}")]
    Record(String),
}

/// What a run in a kernel needs besides its plan.
pub(crate) struct Run<'r> {
    /// The target: `linux`, or a file system on it.
    pub place: &'r TargetExpr,
    /// What distinguishes it from others of its name.
    pub label: &'r str,
    /// How it is measured.
    pub run: &'r RunConfig,
    /// Polled; `true` ends the run.
    pub stop: &'r dyn Fn() -> bool,
}

impl Run<'_> {
    /// Measures block workloads that are alike on one array; `look` receives the model time. No
    /// cells, if it was stopped.
    pub(crate) fn blocks(
        &self,
        array: &ArrayConfig,
        area_bytes: u64,
        cells: &[Spec],
        timing: &Timing,
        look: &mut dyn FnMut(Duration),
    ) -> Result<Vec<Cell>, LinuxError> {
        let random = cells.iter().any(is_random);
        let command = guest::of_blocks(self.place, array, area_bytes, cells, timing);
        self.command(array, random, &command, look)
    }

    /// Runs a program.
    pub(crate) fn program(
        &self,
        array: &ArrayConfig,
        program: &ProgramSpec,
        look: &mut dyn FnMut(Duration),
    ) -> Result<Vec<Cell>, LinuxError> {
        let command = guest::of_program(self.place, array, program, self.run);
        let mut cells = self.command(array, false, &command, look)?;
        // Of modelled disks: inside they are any devices.
        cells.iter_mut().for_each(|cell| cell.derived.findings = findings::find(cell));
        Ok(cells)
    }

    fn command(
        &self,
        array: &ArrayConfig,
        random: bool,
        command: &[String],
        look: &mut dyn FnMut(Duration),
    ) -> Result<Vec<Cell>, LinuxError> {
        let lab = Lab::find()?;
        if array.members.len() > DISKS_MAX {
            return Err(LinuxError::TooManyDisks(array.members.len()));
        }
        let bytes = device_bytes(array);
        let drives = drives(array, bytes, random)?;
        let settings = self.disk_settings(array, &drives);
        let directory = tempfile::Builder::new().prefix("raidlab-linux-").tempdir();
        let directory = directory.map_err(failed("making a directory"))?;
        for path in [directory.path(), &lab.root, &lab.program] {
            takes_path(path)?;
        }
        self.takes_settings(array)?;
        let path = |name: &str| directory.path().join(name);
        let script = guest::script(&lab.program, command, &settings);
        std::fs::write(path("run"), script).map_err(failed("writing the script"))?;
        let stores = array.members.iter().map(|member| store(member, self.run, bytes));
        let stores = stores.collect::<io::Result<_>>().map_err(failed("making a disk"))?;
        let start = Start {
            kernel: &lab.kernel,
            root: &lab.root,
            directory: directory.path(),
            memory_bytes: self.kernel().memory(),
            queue_depth: self.queue_depth(&drives),
            cpu: self.is_model_time().then(|| cpu::parameter(self.kernel().cpu())),
        };
        let _held = self.is_model_time().then(OneCpu::hold);
        let world = World::start(&start, wired(array.topology, &drives), stores);
        let mut world = world.map_err(failed("starting the kernel"))?;
        let ended = world.run(self.stop, look).map_err(|source| LinuxError::Io {
            doing: "the kernel",
            source,
            said: last_lines(&path("console")),
        })?;
        match ended {
            None => Ok(Vec::new()),
            Some(status) => self.cells(array, &lab, &directory, status),
        }
    }

    fn is_model_time(&self) -> bool {
        !self.run.real_time
    }

    fn kernel(&self) -> ModelTimeKernel {
        self.place.model_time().unwrap_or_default()
    }

    /// Refuses settings that would have no effect, and memory that is not there.
    fn takes_settings(&self, array: &ArrayConfig) -> Result<(), LinuxError> {
        let knobs = self.place.kernel().map(|kernel| kernel.knobs.clone()).unwrap_or_default();
        if !self.is_model_time() && self.kernel().cpu_permille.is_some() {
            let why = "cpu: in real time the kernel computes as fast as this machine";
            return Err(LinuxError::Setting(why.into()));
        }
        // The others are refused inside, where the array is made. A single disk is not made.
        let single = array.level == BenchLevel::Single;
        let bitmap = self.place.kernel().is_some_and(|kernel| kernel.bitmap);
        let of_md = knobs.md.keys().map(|knob| knob.word()).chain(bitmap.then_some("bitmap"));
        if let Some(word) = of_md.into_iter().next().filter(|_| single) {
            let why = format!("{}: {word}: it is no array of md", array.name());
            return Err(LinuxError::Setting(why));
        }
        if let Some(depth) = knobs.queue_depth.filter(|depth| *depth > QUEUE_MAX) {
            let why = format!("queue-depth={depth}: at most {QUEUE_MAX} in a kernel in model time");
            return Err(LinuxError::Setting(why));
        }
        let wanted = self.kernel().memory();
        match host::sys::available_memory_bytes() {
            Some(available) if available < wanted => Err(LinuxError::Memory { wanted, available }),
            _ => Ok(()),
        }
    }

    /// Requests that each disk is given at a time: as many as it takes, or what was given.
    fn queue_depth(&self, drives: &[MemberDrive<'_>]) -> u32 {
        let given = self.place.kernel().and_then(|kernel| kernel.knobs.queue_depth);
        let own = drives.iter().map(|drive| drive.profile.queue_depth()).max();
        given.or(own).unwrap_or(1).clamp(1, QUEUE_MAX)
    }

    fn disk_settings(&self, array: &ArrayConfig, drives: &[MemberDrive<'_>]) -> DiskSettings {
        let rotating = drives.iter().any(|drive| drive.profile.kind() == DriveKind::Rotating);
        let usual = if rotating { SCHEDULER_OF_ROTATING } else { SCHEDULER_OF_FLASH };
        let knobs = self.place.kernel().map(|kernel| &kernel.knobs);
        let single = array.level == BenchLevel::Single;
        let read_ahead = knobs.and_then(|knobs| knobs.read_ahead_bytes).filter(|_| single);
        DiskSettings {
            rotating,
            scheduler: knobs.and_then(|it| it.scheduler.clone()).unwrap_or(usual.into()),
            read_ahead_kib: read_ahead.map(|bytes| bytes / 1024),
            disks: drives.len(),
        }
    }

    /// The cells of the record that the command has written.
    fn cells(
        &self,
        array: &ArrayConfig,
        lab: &Lab,
        directory: &tempfile::TempDir,
        status: ExitStatus,
    ) -> Result<Vec<Cell>, LinuxError> {
        let path = |name: &str| directory.path().join(name);
        let code = std::fs::read_to_string(path(ENDED)).unwrap_or_default();
        // 1: a finding, as wrong data, which the cells say.
        if !matches!(code.trim(), "0" | "1") {
            let said = last_lines(&path(MESSAGES)) + &last_lines(&path("console"));
            let why = match code.is_empty() {
                true => format!("it ended ({status}) before its command{said}"),
                false => said.trim_start_matches(": ").to_string(),
            };
            return Err(LinuxError::Command(why));
        }
        let record = std::fs::read_to_string(path(RECORD)).map_err(failed("reading the record"))?;
        let record: Record = serde_json::from_str(&record)
            .map_err(|problem| LinuxError::Record(problem.to_string()))?;
        Ok(record.cells.into_iter().map(|cell| self.cell(cell, array, lab)).collect())
    }

    /// A cell of the kernel's as a cell of the plan: its members are modelled disks, and what
    /// computing costs is not in it.
    fn cell(&self, cell: Cell, array: &ArrayConfig, lab: &Lab) -> Cell {
        let random = cell.case.workload.known().is_some_and(|kind| kind.is_random());
        cell.with(|it| {
            it.case.target = self.place.kind().into();
            it.case.model_time = self.is_model_time();
            if it.case.program.is_none() {
                // The area that is used follows from the members, as on the engine.
                it.case.file_bytes = None;
            }
            it.case.level = array.level.into();
            it.case.members = array.set.recorded();
            it.case.member_bytes = Some(array.member_bytes);
            it.case.disks = array.expr.leaves() as u32;
            let drive = array.members.iter().find_map(MemberExpr::drive);
            it.case.placement =
                drive.map(|(profile, given)| placement_name(profile, given, random));
            let one_bus = array.topology.buses.and_then(|buses| buses.of_all());
            it.case.bus_mb_per_s = one_bus.map(|rate| rate as f64 / 1e6);
            let several = array.topology.buses.filter(|_| one_bus.is_none());
            it.case.buses = several.map(|buses| buses.to_string());
            it.case.disks_per_channel = array.topology.disks_per_channel;
            it.case.members_per_spindle = array.topology.members_per_spindle;
            let mut place = it.case.place.take().unwrap_or_default();
            place.name = format!("{}{}", self.place.name(), self.label);
            place.kernel = Some(lab.release.clone());
            place.drives = Vec::new();
            let depth = self.place.kernel().and_then(|kernel| kernel.knobs.queue_depth);
            place.knobs.extend(depth.map(|depth| ("queue_depth".into(), depth.to_string())));
            it.case.place = Some(place);
            // It computes, which takes no model time.
            it.measured.generator_ns_per_op = None;
            // /proc/stat is sampled by ticks; the threads, which are all that runs there, are not.
            let threads: f64 = it.measured.cpu_threads.iter().map(|thread| thread.seconds).sum();
            if it.measured.cpu_system_s.is_none() && threads > 0.0 {
                it.measured.cpu_system_s = Some(threads);
                it.measured.cpu_system_note = None;
                let per_gib = it.derived.cpu_s_per_gib.zip(it.measured.cpu_process_s);
                it.derived.machine_cpu_s_per_gib = per_gib
                    .filter(|(_, process)| *process > 0.0)
                    .map(|(per_gib, process)| per_gib * threads / process);
            }
            let no_cpu = match (self.is_model_time(), self.kernel().cpu()) {
                (false, _) => Some("of a user-mode kernel, whose calls take a way of their own"),
                (true, 0) => Some("computing takes no model time: linux,cpu=free"),
                _ => None,
            };
            if let Some(why) = no_cpu {
                it.measured.cpu_process_s = None;
                it.measured.cpu_system_s = None;
                it.measured.cpu_system_note = Some(why.into());
                it.measured.cpu_threads.clear();
                it.measured.others_cpus = None;
                it.derived.cpu_s_per_gib = None;
                it.derived.cpu_process_share = None;
                it.derived.machine_cpu_s_per_gib = None;
            }
        })
    }
}

/// Whether the blocks of a workload are all over the array.
pub(crate) fn is_random(spec: &Spec) -> bool {
    !spec.kind.is_sequential() && spec.kind != Kind::None
}

/// Workloads that one run of a kernel can measure: alike, and on disks that are placed alike.
pub(crate) fn groups(cells: &[Spec]) -> Vec<std::ops::Range<usize>> {
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        match groups.last_mut() {
            Some(last)
                if guest::are_alike(&cells[last.start], cell)
                    && is_random(&cells[last.start]) == is_random(cell) =>
            {
                last.end = at + 1;
            }
            _ => groups.push(at..at + 1),
        }
    }
    groups
}

/// Size of a disk below md.
fn device_bytes(array: &ArrayConfig) -> u64 {
    let own = match array.level {
        BenchLevel::Single => 0,
        BenchLevel::Md(_) => MD_OWN_BYTES + array.member_bytes / MD_OWN_SHARE,
    };
    // md rounds a member down to whole chunks, behind its own, which it rounds up.
    (array.member_bytes + own + 2 * array.chunk_bytes).next_multiple_of(1 << 20)
}

fn drives(
    array: &ArrayConfig,
    bytes: u64,
    random: bool,
) -> Result<Vec<MemberDrive<'static>>, LinuxError> {
    let of = |member: &MemberExpr| {
        let (profile, given) = member.drive()?;
        let placement = placement_for(profile, given, random);
        Some(MemberDrive { profile, placement, member_bytes: bytes })
    };
    let drives = array.members.iter().map(of).collect::<Option<Vec<_>>>();
    drives.ok_or_else(|| LinuxError::NotModelled(array.set.recorded()))
}

/// What a disk holds, as its member says: memory, or a file without a name.
fn store(member: &MemberExpr, run: &RunConfig, bytes: u64) -> io::Result<File> {
    let file = match member.directory() {
        Some(directory) => tempfile::tempfile_in(directory.unwrap_or(&run.directory))?,
        None => File::from(rustix::fs::memfd_create("raidlab-disk", MemfdFlags::CLOEXEC)?),
    };
    file.set_len(bytes)?;
    Ok(file)
}

/// Refuses what would end an option of the kernel's, or of a mount.
fn takes_path(path: &Path) -> Result<(), LinuxError> {
    match path.to_string_lossy().contains([' ', '\t', '\n', ',', ':', '"', '\'', '\u{fffd}']) {
        true => Err(LinuxError::Path(path.to_path_buf())),
        false => Ok(()),
    }
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> LinuxError {
    move |source| LinuxError::Io { doing, source, said: String::new() }
}

/// The last lines of a file, in one, after `: `; nothing, if there are none.
fn last_lines(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // Addresses of a panic say nothing.
    let says = |line: &&str| !line.is_empty() && !line.contains("[<");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(says).collect();
    // The cause of an end comes before the kernel's registers and stacks.
    let ends = |line: &&&str| CAUSES.iter().any(|cause| line.contains(cause));
    let causes: Vec<&str> = lines.iter().filter(ends).copied().collect();
    let lines = if causes.is_empty() { lines } else { causes };
    match &lines[lines.len().saturating_sub(LAST_LINES)..] {
        [] => String::new(),
        last => format!(": {}", spec::shown::Shown(last.join("; "))),
    }
}
