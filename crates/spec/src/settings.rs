//! How a plan is measured: durations, number of samples, seed, CPUs.
//!
//! Invariant: pure data.

use std::path::Path;
use std::time::Duration;

/// Settings of a bench.
pub struct Settings<'a> {
    /// Warm-up before the first sample of each cell.
    pub warm_up: Duration,
    /// Length of a sample.
    pub sample: Duration,
    /// Whether the length was given by option: then it is kept even if a stream reaches the end of
    /// the array during the samples and restarts.
    pub sample_given: bool,
    /// Samples per cell.
    pub runs: u32,
    /// Limit of further samples until they are steady; `None`: no further samples.
    pub until_steady: Option<u32>,
    /// Default directory of member files.
    pub directory: &'a Path,
    /// Number of CPUs that the process is pinned to, and of lanes of each array. `None`: one lane,
    /// not pinned.
    pub cores: Option<u32>,
    /// Seed of addresses and data.
    pub seed: u64,
    /// Parity kernels.
    pub kernels: parity::Kernels,
    /// Whether the kernels were given by option, instead of the fastest.
    pub kernels_chosen: bool,
}

impl Settings<'static> {
    /// One short sample of each cell, on members that have no files.
    pub fn quick() -> Settings<'static> {
        Settings {
            warm_up: Duration::ZERO,
            sample: Duration::from_millis(5),
            sample_given: true,
            runs: 1,
            until_steady: None,
            directory: Path::new("/nonexistent"),
            cores: None,
            seed: 1,
            kernels: parity::Kernels::best(),
            kernels_chosen: false,
        }
    }
}

impl Settings<'_> {
    /// Number of lanes of each array.
    pub fn lanes(&self) -> u16 {
        // No host has more CPUs than u16::MAX.
        self.cores.map_or(1, |cores| u16::try_from(cores).unwrap_or(u16::MAX))
    }
}
