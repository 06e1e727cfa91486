//! Why a specification names no program, or none that a target can run.
//!
//! Invariant: an error names the option, or the line of the job file, and what is valid there.

use std::borrow::Cow;
use std::io;

use md::SizeError;
use thiserror::Error;

use crate::units::{QuantityError, show_size};

/// Why there is no program.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// No tool has this name.
    #[error("no program '{name}'; there are {}", known.join(", "))]
    UnknownTool {
        /// The given name.
        name: String,
        /// The tools.
        known: Vec<&'static str>,
    },
    /// A tool that reads a job file was named without one.
    #[error("name the job file, as in {tool}:JOBFILE")]
    NoJobFile {
        /// The tool.
        tool: &'static str,
    },
    /// The job file cannot be read.
    #[error("{tool}:{path}: cannot read it: {source}")]
    JobFile {
        /// The tool.
        tool: &'static str,
        /// Path of the job file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The job file is invalid, or holds what is not supported.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The tool has no such option.
    #[error("{tool}: no option '{name}'; there are {}", known.join(", "))]
    UnknownOption {
        /// The tool.
        tool: &'static str,
        /// The given option.
        name: String,
        /// The tool's options.
        known: Vec<&'static str>,
    },
    /// An option is given more than once.
    #[error("{tool}: '{name}' is given twice")]
    OptionTwice {
        /// The tool.
        tool: &'static str,
        /// The option.
        name: String,
    },
    /// The value of an option is invalid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Options that exclude each other, or values that do not fit each other: a clause.
    #[error("{0}")]
    Conflict(&'static str),
    /// The size does not suit the program or the target.
    #[error(transparent)]
    Sizing(#[from] SizingError),
    /// Blocks or sizes are no multiples of the smallest unit.
    #[error("{}{} must be multiples of 256 bytes", program, match phase {
        Some(phase) => format!(", {phase}: blocks and sizes"),
        None => ": sizes".to_string(),
    })]
    Unit {
        /// The program.
        program: String,
        /// The phase with such a block; `None`: a file has such a size.
        phase: Option<String>,
    },
    /// A specification that was parsed makes no program for this target.
    #[error("{spec}: {problem}")]
    Spec {
        /// The specification.
        spec: String,
        /// The reason.
        #[source]
        problem: Box<ProgramError>,
    },
}

/// Why the value of an option is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OptionError {
    /// It has none.
    #[error("'{name}' needs a value{}", match example {
        Some(example) => format!(", as in {name}={example}"),
        None => String::new(),
    })]
    NoValue {
        /// The option.
        name: String,
        /// A valid value.
        example: Option<&'static str>,
    },
    /// It has one, and takes none.
    #[error("'{name}' takes no value ('{value}')")]
    NotAFlag {
        /// The option.
        name: String,
        /// The given value.
        value: String,
    },
    /// The value is not one of the valid ones.
    #[error("{name}={value}: {wanted}")]
    Value {
        /// The option.
        name: String,
        /// The given value.
        value: String,
        /// The valid values.
        wanted: Cow<'static, str>,
    },
    /// The size is not one of the valid ones.
    #[error("{name}: {wanted}")]
    Bytes {
        /// The option.
        name: String,
        /// The valid sizes.
        wanted: &'static str,
    },
    /// The value is not a size.
    #[error("{name}: {source}")]
    Size {
        /// The option.
        name: String,
        /// The reason.
        source: SizeError,
    },
    /// The value is not a duration.
    #[error("{name}: {source}")]
    Duration {
        /// The option.
        name: String,
        /// The reason.
        source: QuantityError,
    },
}

/// Why a size does not suit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SizingError {
    /// The given size is more than the target holds.
    #[error("--size {}: the target holds {}", show_size(*bytes), show_size(*capacity))]
    TooLarge {
        /// The given size.
        bytes: u64,
        /// Capacity of the target.
        capacity: u64,
    },
    /// The size is less than a block.
    #[error("--size {}: it must hold at least a block of {}", show_size(*bytes), show_size(*block))]
    TooSmall {
        /// The size.
        bytes: u64,
        /// The block.
        block: u64,
    },
    /// IOzone's matrix has no file of this size or less.
    #[error("auto begins with files of 64K: use a larger --size")]
    NoFiles,
    /// The files together are more than the target holds.
    #[error("{count} files of {bytes} bytes do not fit; use fewer, or a smaller size")]
    Files {
        /// Number of files.
        count: u64,
        /// Size of each.
        bytes: u64,
    },
    /// The files of all numbers of threads together are more than the target holds.
    #[error(
        "with {fewest} to {most} threads the files take more than there is; use a smaller --size"
    )]
    Threads {
        /// The smallest number of threads.
        fewest: u64,
        /// The largest.
        most: u64,
    },
}

/// An error in a job file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{path}:{} {problem}", line.map_or(String::new(), |line| format!("{line}:")))]
pub struct JobError {
    /// Path of the job file.
    pub path: String,
    /// The line, from 1; `None`: it has none.
    pub line: Option<usize>,
    /// The reason.
    #[source]
    pub problem: JobProblem,
}

/// What is wrong in a job file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JobProblem {
    /// A line that begins as the name of a section, and is none.
    #[error("'{0}' is no section")]
    NotASection(String),
    /// An option stands before all sections.
    #[error("options come after a [section]")]
    NoSection,
    /// There is no section besides `[global]`.
    #[error("it has no job: a section besides [global]")]
    NoJob,
    /// fio has no such option.
    #[error("'{0}' is no option of fio's")]
    UnknownOption(String),
    /// A word of a command line is no option.
    #[error("'{0}' is no option; a job file is named itself")]
    NotAnOption(String),
    /// An option that stands on a line of its own, away from a command line.
    #[error("'{0}' is of no command line; join it to the line that it continues")]
    LeftOver(String),
    /// The load would be another one without the option.
    #[error("{option}: not carried out here: {why}")]
    NotCarriedOut {
        /// The option, with its value.
        option: String,
        /// What would be different.
        why: &'static str,
    },
    /// The value names a variable that the environment does not have.
    #[error("{option}: {variable} is not set in the environment")]
    Unset {
        /// The option, with its value.
        option: String,
        /// The variable.
        variable: String,
    },
    /// A file that the job includes cannot be read.
    #[error("include {name}: {why}")]
    Include {
        /// The file.
        name: String,
        /// The system's error.
        why: String,
    },
    /// The value of an option is invalid.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Some jobs bypass the page cache, and some do not.
    #[error("direct is the same for all jobs here; write two job files")]
    MixedDirect,
    /// Some jobs use a memory map, and some do not, or they bypass the page cache.
    #[error("ioengine=mmap is that of all jobs here, and without direct")]
    MixedMmap,
    /// Of several files of a job, others use a part.
    #[error("[{job}]: other sections use a part of its files; give each file a section")]
    SharedFiles {
        /// The job.
        job: String,
    },
    /// The size of a job is less than its block.
    #[error("[{job}]: its size is less than a block")]
    BelowBlock {
        /// The job.
        job: String,
    },
}
