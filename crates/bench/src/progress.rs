//! Progress of block workloads and programs.

use std::sync::Arc;

use results::record::Cell;

use crate::live::LiveCounts;

/// A progress event.
pub enum Progress<'p> {
    /// An array is being filled.
    Filling {
        /// The array's name.
        array: &'p str,
        /// Completed share, 0 to 1.
        done: f64,
    },
    /// Everything is prepared for a block workload: its first request follows when the receiver
    /// returns, which may take as long as it likes.
    Ready,
    /// A block workload is running.
    Running {
        /// The array's name.
        array: &'p str,
        /// The workload's.
        workload: &'p str,
        /// Elapsed seconds.
        seconds: f64,
        /// What it has done so far; one object as long as it runs.
        live: &'p Arc<LiveCounts>,
        /// What the members could deliver together, MB/s; `None`: there is no bound.
        bound_mb_per_s: Option<f64>,
        /// What limits there, or why there is none.
        bound_note: Option<&'p str>,
    },
    /// A user-mode kernel is running.
    InKernel {
        /// What it measures.
        what: &'p str,
        /// Its time, seconds.
        seconds: f64,
        /// Whether that is model time.
        model_time: bool,
    },
    /// A phase of a program is running.
    Phase {
        /// The program's name.
        program: &'p str,
        /// The phase's.
        phase: &'p str,
        /// Bytes moved so far in this pass.
        bytes: u64,
        /// What it has done so far; one object for each pass.
        live: &'p Arc<LiveCounts>,
    },
    /// Data that a program wrote is being compared.
    Checking {
        /// The program's name.
        program: &'p str,
        /// Number of the file.
        file: u32,
    },
    /// A cell of a block workload is complete.
    Measured(&'p Cell),
    /// All cells of one entry of [`spec::matrix::ArrayPlan::cells`] are final.
    Final {
        /// Index of the entry.
        entry: usize,
        /// Its cells.
        cells: &'p [Cell],
    },
}
