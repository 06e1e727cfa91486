//! Why a meter gives no value.
//!
//! Invariant: an error of a file names it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the counters of disks and machine cannot be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// A file cannot be read.
    #[error("{}: cannot read: {}", path.display(), host::sys::reason(source))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has another format.
    #[error("{}: {problem}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        #[source]
        problem: FormatError,
    },
}

/// What is wrong in a file of `/proc`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// A field of `/proc/diskstats` is no number.
    #[error("line {line}: field {field}, '{text}', is no number")]
    NotANumber {
        /// The line, from 1.
        line: usize,
        /// The field, from 1.
        field: usize,
        /// Its text.
        text: String,
    },
    /// `/proc/stat` has no sum of all CPUs.
    #[error("there is no line 'cpu'")]
    NoCpuLine,
    /// The sum of all CPUs in `/proc/stat` is too short.
    #[error("'cpu {0}' has fewer than 7 numbers")]
    ShortCpuLine(String),
}

/// Why there is nothing to watch.
#[derive(Debug, Error)]
pub enum SelectionError {
    /// The counters cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There are neither arrays nor disks.
    #[error("there is no disk to watch")]
    NoDisks,
    /// A name is not that of a block device.
    #[error("{given}: no such block device; there are {}", match known.is_empty() {
        true => "none".to_string(),
        false => known.join(", "),
    })]
    Unknown {
        /// The given name.
        given: String,
        /// The existing block devices.
        known: Vec<String>,
    },
}

/// Why the CPU time of the whole machine is unreliable.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MachineCpuError {
    /// `/proc/stat` shows zeros, as in some containers.
    #[error("/proc/stat counts no CPU time here")]
    NotCounted,
    /// The kernel's threads are in another PID namespace.
    #[error("the kernel's threads cannot be seen from here")]
    NoKernelThreads,
    /// Other processes ran, so that a part of the kernel's time was theirs.
    #[error("other processes used {cpus:.2} CPUs during the measurement")]
    OtherProcesses {
        /// CPUs that they used, on average.
        cpus: f64,
    },
    /// The machine's counters are below the sum of its parts.
    #[error(
        "/proc/stat counts {busy_s:.2} s of CPU time, and this process and the kernel's threads \
         {own_s:.2} s"
    )]
    Contradiction {
        /// CPU time of all CPUs.
        busy_s: f64,
        /// CPU time of this process, the kernel's threads and interrupts.
        own_s: f64,
    },
}
