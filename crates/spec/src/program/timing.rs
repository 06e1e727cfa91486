//! Timing of programs: the minimum duration of phases, the number of runs.
//!
//! Invariant: pure data; the runner decides what is repeated.

use std::time::Duration;

/// Timing of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Minimum duration of a phase; shorter ones are repeated.
    pub least: Duration,
    /// Maximum number of repetitions.
    pub repeats_max: u32,
    /// Caches are dropped before each phase.
    pub drop_caches: bool,
    /// Sampling interval of the members.
    pub interval: Duration,
    /// Number of runs of the whole program; each run is a sample of each phase.
    pub runs: u32,
    /// Upper limit of runs, until every phase is steady; `None`: exactly `runs`.
    pub until_steady: Option<u32>,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            least: Duration::from_millis(500),
            repeats_max: 1000,
            drop_caches: false,
            interval: Duration::from_secs(10),
            runs: 1,
            until_steady: None,
        }
    }
}

impl Timing {
    /// Upper limit of runs, where their figures determine the number.
    pub fn runs_max(&self) -> Option<u32> {
        self.until_steady.map(|most| most.max(self.runs))
    }

    /// Whether its samples are whole runs, even if there was only one in the end.
    pub fn counts_runs(&self) -> bool {
        self.runs > 1 || self.until_steady.is_some()
    }
}
