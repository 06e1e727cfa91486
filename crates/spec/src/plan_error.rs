//! Why a combination of options is not planned, or none is.
//!
//! Invariant: an error names the option, or the array, that is at fault.

use md::LayoutError;
use md::nested::NestedError;
use thiserror::Error;

use crate::members::MembersError;
use crate::topology::TopologyError;
use crate::units::{exact_size, show_size};

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No array has this size.
    #[error("--size {0}: an array has 1 byte to 1024T")]
    Size(u64),
    /// The option belongs to `--level`, and only `--array` is given.
    #[error("{option} is for --level: an --array expression says it itself")]
    NotForArrays {
        /// The option.
        option: &'static str,
    },
    /// A Linux md array without a level.
    #[error("md: needs the level of the md array, as in --level raid5")]
    MdWithoutLevel,
    /// A Linux md array without devices.
    #[error("md: needs its devices, as in md:/dev/sdb+/dev/sdc, or --members /dev/sdb+/dev/sdc")]
    MdWithoutDevices,
    /// The array of a journal, next to one on block devices.
    #[error(
        "fs: journal={0}: its array has members like the other, and a device is a member of one \
         array only; leave it out, or use other --members"
    )]
    JournalOnDevices(String),
    /// A program on an NBD export, which is no file and no device of the kernel.
    #[error("{0}: programs need a device of the kernel, as nbd-client makes one; blocks do not")]
    ProgramOnExport(String),
    /// What a program does in the page cache would take no time.
    #[error("{0}: cpu=free is for block workloads: a program in the page cache would take no time")]
    ProgramWithoutCpu(String),
    /// Background work of what is no array that is made for the measurement.
    #[error("--background: {0}: arrays of the engine and of md, without a file system, have it")]
    BackgroundElsewhere(String),
    /// Nothing is dirty, so that md passes over everything.
    #[error("--background resync: {0}: with a bitmap md resyncs only what is dirty")]
    ResyncWithBitmap(String),
    /// A share of the time, which md does not have.
    #[error(
        "--foreground-share: {0}: md has limits of its own instead: sync-speed-min=KIB and \
         sync-speed-max=KIB after the target"
    )]
    ShareOfMd(String),
    /// Background work beside programs.
    #[error("--background: beside block workloads only, and programs are among the workloads")]
    BackgroundOfPrograms,
    /// All combinations are left out; the first of them.
    #[error(transparent)]
    AllLeftOut(LeftOut),
    /// There are no combinations.
    #[error("nothing to run")]
    Nothing,
}

/// A combination that is left out of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}{problem}", self.prefix())]
pub struct LeftOut {
    /// The array; `None`: there is none with these options.
    pub array: Option<String>,
    /// The reason.
    #[source]
    pub problem: CaseProblem,
}

impl LeftOut {
    /// The array's name, unless the reason begins with it.
    fn prefix(&self) -> String {
        match (&self.array, &self.problem) {
            (Some(name), CaseProblem::Geometry(NestedError::Array { array, .. }))
                if array == name =>
            {
                String::new()
            }
            (Some(name), _) => format!("{name}: "),
            (None, _) => String::new(),
        }
    }
}

/// Why a combination makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CaseProblem {
    /// The number of members is out of range.
    #[error("--disks {disks}: an array has 1 to {most} members")]
    Disks {
        /// Members requested.
        disks: u32,
        /// The engine's limit.
        most: u32,
    },
    /// The level has no such layout.
    #[error("--{0}")]
    Layout(#[source] LayoutError),
    /// The chunk is no multiple of a page.
    #[error("--chunk {}: a chunk is a multiple of 4 KiB", exact_size(*.0))]
    ChunkUnit(u64),
    /// The chunk is too large.
    #[error("--chunk {}: a chunk has at most 64 MiB", exact_size(*.0))]
    ChunkSize(u64),
    /// The geometry is invalid.
    #[error(transparent)]
    Geometry(#[from] NestedError),
    /// The array cannot serve with this number of missing members.
    #[error("--degraded {0}: the array cannot serve without that many")]
    Degraded(u32),
    /// The member set does not fit the array, or its faults never occur.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The option is about drives, and no member has one.
    #[error("{option}: no member of '{set}' is paced; run without")]
    NotPaced {
        /// The option.
        option: &'static str,
        /// The member set.
        set: String,
    },
    /// Linux md has no such array: a clause.
    #[error("md: {0}")]
    NotForMd(&'static str),
    /// A kernel in model time has no such array: a clause.
    #[error("linux: {0}")]
    NotForLinux(&'static str),
    /// The members cannot share disks.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The array has no such background work.
    #[error("--background {work}: {why}")]
    Background {
        /// The work.
        work: &'static str,
        /// Why not.
        why: &'static str,
    },
    /// No requests, and no background work.
    #[error("none: no workload, and no --background work that could be measured alone")]
    NothingToDo,
    /// The workload does not fit into the area.
    #[error(
        "{workload}: {jobs} job(s) with blocks of {} do not fit into {}; use a larger --size",
        show_size(*block_bytes), show_size(*area_bytes)
    )]
    TooSmall {
        /// The workload.
        workload: &'static str,
        /// Number of jobs.
        jobs: u32,
        /// The block.
        block_bytes: u64,
        /// Usable bytes.
        area_bytes: u64,
    },
}
