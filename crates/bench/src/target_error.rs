//! Why an array of the engine cannot be measured with blocks.
//!
//! Invariant: texts are one line; each includes the text of its cause.

use std::io;
use std::path::PathBuf;

use array::BuildError;
use md::nested::NestedError;
use spec::matrix::CannotServe;
use spec::members::UnknownProfile;
use spec::units::show_size;
use thiserror::Error;

/// Why an array of the engine cannot be made, filled or degraded.
#[derive(Debug, Error)]
pub enum TargetError {
    /// A member file cannot be made.
    #[error(
        "{}: cannot {doing} (a member of {}): {}",
        directory.display(), show_size(*bytes), host::sys::reason(source)
    )]
    MemberFile {
        /// Directory of the member.
        directory: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// Size of the member.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// There is no memory for a member in memory.
    #[error("cannot map {} for a mem member: {}", show_size(*bytes), host::sys::reason(source))]
    MemberMemory {
        /// Size of the member.
        bytes: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The drive profile of a member cannot be used.
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
    /// There are more or fewer members than the array has leaves.
    #[error("the member set does not fit the array")]
    MemberCount,
    /// The geometry is invalid.
    #[error(transparent)]
    Geometry(#[from] NestedError),
    /// The array cannot be assembled or started.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Blocks are smaller than the members' units.
    #[error("--block: these members work in units of {unit_bytes} bytes; use multiples of that")]
    BlockUnit {
        /// The unit.
        unit_bytes: u32,
    },
    /// A request of the fill failed: an array that cannot be filled cannot be measured.
    #[error("filling the array failed: {0}")]
    Fill(#[source] array::RequestError),
    /// What was written before a workload cannot be flushed.
    #[error("flushing before the workload failed: {0}")]
    Flush(#[source] array::RequestError),
    /// The array cannot serve with the missing members that were requested.
    #[error(transparent)]
    Degraded(#[from] CannotServe),
    /// A block device cannot be a member.
    #[error("{0}")]
    Device(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A modelled drive has not come to rest.
    #[error("a modelled drive is still at work long after the last request")]
    DriveBusy,
}

/// Why a workload of blocks cannot be performed.
#[derive(Debug, Error)]
pub enum RunnerError {
    /// A job has no block.
    #[error(
        "{workload}: {jobs} job(s){} with blocks of {} do not fit into {}; use a larger --size",
        match shards {
            1 => String::new(),
            shards => format!(" on each of {shards} cores"),
        },
        show_size(*block_bytes), show_size(*area_bytes)
    )]
    TooSmall {
        /// The workload.
        workload: &'static str,
        /// Number of jobs on each core.
        jobs: u32,
        /// Number of cores.
        shards: u16,
        /// The block.
        block_bytes: u64,
        /// The used area of the array.
        area_bytes: u64,
    },
    /// The array has fewer buffers than the workload keeps in flight.
    #[error("the target has too few buffers")]
    Buffers,
    /// There are fewer CPUs than cores required.
    #[error("{wanted} cores are required, and there are {available}")]
    Cores {
        /// Cores required.
        wanted: usize,
        /// CPUs that the process may run on.
        available: usize,
    },
    /// The CPUs of the thread cannot be read.
    #[error("--cores: {}", host::sys::reason(.0))]
    Affinity(#[source] io::Error),
    /// The thread cannot be pinned.
    #[error("--cores: CPU(s) {cpus:?}: {}", host::sys::reason(source))]
    Pin {
        /// The CPUs.
        cpus: Vec<usize>,
        /// The system's error.
        source: io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread for shard {shard}: {}", host::sys::reason(source))]
    Thread {
        /// Its shard.
        shard: usize,
        /// The system's error.
        source: io::Error,
    },
}

/// A plan needs more memory than is available.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{array}: needs {} of memory, {} of it for {part}, and {} are available; use less {option}",
    show_size(*needed), show_size(*largest), show_size(*available)
)]
pub struct MemoryError {
    /// The array.
    pub array: String,
    /// Bytes that it needs.
    pub needed: u64,
    /// Bytes of the largest part.
    pub largest: u64,
    /// Name of that part.
    pub part: &'static str,
    /// Available bytes.
    pub available: u64,
    /// The option that reduces the part.
    pub option: &'static str,
}
