//! Why nothing is measured, or not all.
//!
//! ```text
//!   TargetError   an array of the engine cannot be made, filled or degraded
//!   RunnerError   a workload of blocks cannot be performed on it
//!   RunError      either, or what keeps a program from running: set-up, sizes, a failed operation
//! ```
//! Invariant: texts are one line; each includes the text of its cause.

use std::path::PathBuf;

use md::nested::NestedError;
use spec::program::ProgramError;
use spec::units::show_size;
use thiserror::Error;

use crate::linux::LinuxError;
use crate::program::IoError;
use crate::provision::{ProvisionError, UndoError};
use crate::target_error::{RunnerError, TargetError};

/// Why a program is too large for this machine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TooLarge {
    /// A shuffle has more blocks than it can number.
    #[error(
        "{blocks} blocks in random order, each once, are more than 2^32; use larger blocks or a \
         smaller --size"
    )]
    Shuffle {
        /// Number of blocks.
        blocks: u64,
    },
    /// The map of block versions does not fit into memory.
    #[error(
        "needs {} of memory for the map of expected block versions, and {} are available; use a \
         smaller --size",
        show_size(*needed), show_size(*available)
    )]
    Memory {
        /// Bytes that it needs.
        needed: u64,
        /// Available bytes.
        available: u64,
    },
}

/// Why a measurement failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// The array cannot be made, filled or degraded.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The geometry of the array is invalid.
    #[error(transparent)]
    Geometry(#[from] NestedError),
    /// The workload cannot be performed.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// The place cannot be set up.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// The place cannot be torn down.
    #[error(transparent)]
    Undo(#[from] UndoError),
    /// The program makes no sense on this target.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The files of the program cannot be made.
    #[error(transparent)]
    Io(#[from] IoError),
    /// An operation of a phase failed.
    #[error("{program}, {phase}: {problem}")]
    Phase {
        /// The program.
        program: String,
        /// The phase.
        phase: String,
        /// The reason.
        #[source]
        problem: Box<IoError>,
    },
    /// The program is too large for this machine.
    #[error("{program}: {problem}")]
    TooLarge {
        /// The program.
        program: String,
        /// The reason.
        #[source]
        problem: TooLarge,
    },
    /// The same, where the program is named by its context.
    #[error(transparent)]
    ProgramTooLarge(#[from] TooLarge),
    /// A case of a block workload was given as a program.
    #[error("block workloads are no program")]
    NotAProgram,
    /// An option of the array has no meaning for an array of md: a clause.
    #[error("md: {0}")]
    NotForMd(&'static str),
    /// Nothing is measured in a kernel in model time.
    #[error("linux: {0}")]
    Linux(#[from] LinuxError),
    /// An error on a device.
    #[error("{}: {problem}", path.display())]
    OnDevice {
        /// The device.
        path: PathBuf,
        /// The reason.
        #[source]
        problem: Box<RunError>,
    },
    /// An error on an array of a plan.
    #[error("{array}: {problem}")]
    OnArray {
        /// The array.
        array: String,
        /// The reason.
        #[source]
        problem: Box<RunError>,
    },
    /// The run failed, and then the tear-down.
    #[error("{run}; {undo}")]
    RunAndUndo {
        /// Why the run failed.
        #[source]
        run: Box<RunError>,
        /// What could not be undone.
        undo: UndoError,
    },
}
