//! Progress of block workloads and programs.

use results::record::Cell;

/// A progress event.
pub enum Progress<'p> {
    /// An array is being filled.
    Filling {
        /// The array's name.
        array: &'p str,
        /// Completed share, 0 to 1.
        done: f64,
    },
    /// A block workload is running.
    Running {
        /// The array's name.
        array: &'p str,
        /// The workload's.
        workload: &'p str,
        /// Elapsed seconds.
        seconds: f64,
    },
    /// A phase of a program is running.
    Phase {
        /// The program's name.
        program: &'p str,
        /// The phase's.
        phase: &'p str,
        /// Bytes moved so far in this pass.
        bytes: u64,
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
