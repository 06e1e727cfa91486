//! The outcome of a phase: samples, counters, wrong data.
//!
//! Filled by `run`, merged over runs of a program by `session`, turned into record cells by
//! `cells`.

use results::record::Sample;
use results::stats;
use spec::program::types::Phase;

use crate::measurement::Measurement;

/// The outcome of a phase.
#[derive(Clone, Debug)]
pub struct PhaseOutcome {
    /// The phase's name.
    pub phase: String,
    /// What was measured. Samples: one for each pass, or for each interval of its steady window; if
    /// the program is run several times, one for each run. Errors: also those in the data that it
    /// wrote. Recorded: over the time of its first pass. Stopped: before all its repetitions.
    pub measured: Measurement,
    /// Total time of all passes, seconds.
    pub seconds: f64,
    /// Rate of each worker in the last pass, bytes per second of its own time.
    pub workers: Vec<f64>,
    /// Reason why it was not run.
    pub refused: Option<String>,
    /// Number of passes.
    pub passes: u32,
    /// Length of its first pass, seconds.
    pub first_pass_s: f64,
    /// There was no interval inside its steady window: the figure is that of the whole phase.
    pub no_window: bool,
    /// Samples are intervals inside its steady window; time, CPU and latency cover more than that.
    pub windowed: bool,
    /// Sampling interval, seconds; `None`: not sampled.
    pub read_off_s: Option<f64>,
    /// Bytes of the workers during the samples, if the samples count the members' bytes.
    pub worked_bytes: Option<u64>,
    /// Bytes of its longest sample, before the samples of a run were merged.
    pub longest_bytes: u64,
    /// Number of runs of the program, where each run is a sample.
    pub runs: u32,
    /// It was stopped in its first pass: its figure covers only a part of it.
    pub cut: bool,
    /// Whether it is measured; otherwise it only prepares.
    pub timed: bool,
    /// The phase that should have written the data for this one, but cannot run here: the files
    /// were filled before the timed part instead.
    pub filled_for: Option<String>,
}

impl PhaseOutcome {
    pub(super) fn new(phase: &Phase) -> PhaseOutcome {
        PhaseOutcome {
            phase: phase.name.clone(),
            measured: Measurement::none(),
            seconds: 0.0,
            workers: Vec::new(),
            refused: None,
            passes: 0,
            first_pass_s: 0.0,
            no_window: false,
            windowed: false,
            read_off_s: None,
            worked_bytes: None,
            longest_bytes: 0,
            runs: 1,
            cut: false,
            timed: phase.measured,
            filled_for: None,
        }
    }

    /// Whether its samples are in steady state, or steadiness does not apply: it only prepares, or
    /// was not run, or moves no bytes.
    pub(super) fn is_steady(&self) -> bool {
        let moves = self.measured.samples.iter().any(|sample| sample.bytes > 0);
        let rate = if moves { Sample::mb_per_s } else { Sample::iops };
        let rates: Vec<f64> = self.measured.samples.iter().map(rate).collect();
        !self.timed || self.refused.is_some() || stats::steady(&rates) == Some(true)
    }

    /// Merges all samples of the run into one.
    pub(super) fn fold(&mut self) {
        if self.measured.samples.len() > 1 {
            let add = |sum: Sample, more: &Sample| Sample {
                seconds: sum.seconds + more.seconds,
                bytes: sum.bytes + more.bytes,
                ops: sum.ops + more.ops,
            };
            let none = Sample { seconds: 0.0, bytes: 0, ops: 0 };
            self.measured.samples = vec![self.measured.samples.iter().fold(none, add)];
        }
    }

    /// Adds the outcome of the same phase in another run of the program. A phase that was
    /// interrupted there gives no sample beside those of complete runs.
    pub(super) fn add_run(&mut self, run: PhaseOutcome) {
        if run.cut || run.measured.samples.is_empty() {
            self.measured.errors.add(&run.measured.errors);
            self.measured.checked &= run.measured.checked;
            return;
        }
        self.runs += run.runs;
        self.passes += run.passes;
        self.measured.add(run.measured);
        self.seconds += run.seconds;
        self.workers = run.workers;
        self.filled_for = self.filled_for.take().or(run.filled_for);
        self.no_window |= run.no_window;
        self.windowed |= run.windowed;
        self.worked_bytes = sum(self.worked_bytes, run.worked_bytes);
        self.longest_bytes = self.longest_bytes.max(run.longest_bytes);
    }
}

/// The sum of what is known.
pub(super) fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}
