//! The outcome of a phase: samples, counters, wrong data.
//!
//! Filled by `run`, merged over runs of a program by `session`, turned into record cells by
//! `cells`.

use array::Counters;
use metrics::Recorded;
use metrics::meter::CpuUsed;
use results::record::Sample;
use results::stats::{self, LatencyRecorder};
use spec::program::types::Phase;

use crate::verify::VerifyErrors;

/// The outcome of a phase.
#[derive(Clone, Debug)]
pub struct PhaseOutcome {
    /// The phase's name.
    pub phase: String,
    /// One for each pass, or for each interval of its steady window; if the program is run several
    /// times, one for each run.
    pub samples: Vec<Sample>,
    /// Total time of all passes, seconds.
    pub seconds: f64,
    /// Latency of its operations.
    pub latency: LatencyRecorder,
    /// CPU time over all passes.
    pub cpu: Option<CpuUsed>,
    /// Rate of each worker in the last pass, bytes per second of its own time.
    pub workers: Vec<f64>,
    /// Counters of the members during the samples, all passes together.
    pub members: Vec<Counters>,
    /// Wrong data in it, or in the data that it wrote.
    pub errors: VerifyErrors,
    /// Whether all data that it wrote was compared.
    pub checked: bool,
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
    /// Counters over the time of its first pass.
    pub recorded: Option<Recorded>,
    /// Bytes of its longest sample, before the samples of a run were merged.
    pub longest_bytes: u64,
    /// Number of runs of the program, where each run is a sample.
    pub runs: u32,
    /// It was stopped in its first pass: its figure covers only a part of it.
    pub cut: bool,
    /// It was stopped before all its repetitions.
    pub stopped: bool,
    /// Whether it is measured; otherwise it only prepares.
    pub measured: bool,
    /// The phase that should have written the data for this one, but cannot run here: the files
    /// were filled before the timed part instead.
    pub filled_for: Option<String>,
}

impl PhaseOutcome {
    pub(super) fn new(phase: &Phase) -> PhaseOutcome {
        PhaseOutcome {
            phase: phase.name.clone(),
            samples: Vec::new(),
            seconds: 0.0,
            latency: LatencyRecorder::new(),
            cpu: None,
            workers: Vec::new(),
            members: Vec::new(),
            errors: VerifyErrors::default(),
            checked: true,
            refused: None,
            passes: 0,
            first_pass_s: 0.0,
            no_window: false,
            windowed: false,
            read_off_s: None,
            worked_bytes: None,
            recorded: None,
            longest_bytes: 0,
            runs: 1,
            cut: false,
            stopped: false,
            measured: phase.measured,
            filled_for: None,
        }
    }

    /// Whether its samples are in steady state, or steadiness does not apply: it only prepares, or
    /// was not run, or moves no bytes.
    pub(super) fn is_steady(&self) -> bool {
        let moves = self.samples.iter().any(|sample| sample.bytes > 0);
        let rate = if moves { Sample::mb_per_s } else { Sample::iops };
        let rates: Vec<f64> = self.samples.iter().map(rate).collect();
        !self.measured || self.refused.is_some() || stats::steady(&rates) == Some(true)
    }

    /// Merges all samples of the run into one.
    pub(super) fn fold(&mut self) {
        if self.samples.len() > 1 {
            let add = |sum: Sample, more: &Sample| Sample {
                seconds: sum.seconds + more.seconds,
                bytes: sum.bytes + more.bytes,
                ops: sum.ops + more.ops,
            };
            let none = Sample { seconds: 0.0, bytes: 0, ops: 0 };
            self.samples = vec![self.samples.iter().fold(none, add)];
        }
    }

    /// Adds the outcome of the same phase in another run of the program. A phase that was
    /// interrupted there gives no sample beside those of complete runs.
    pub(super) fn add_run(&mut self, run: PhaseOutcome) {
        self.errors.add(&run.errors);
        self.checked &= run.checked;
        if run.cut || run.samples.is_empty() {
            return;
        }
        self.runs += run.runs;
        self.passes += run.passes;
        self.samples.extend(run.samples);
        self.seconds += run.seconds;
        self.latency.merge(&run.latency);
        match (&mut self.cpu, run.cpu) {
            (Some(sum), Some(cpu)) => sum.add(&cpu),
            (sum, cpu) => *sum = cpu,
        }
        self.workers = run.workers;
        self.filled_for = self.filled_for.take().or(run.filled_for);
        add(&mut self.members, &run.members);
        self.no_window |= run.no_window;
        self.windowed |= run.windowed;
        self.worked_bytes = sum(self.worked_bytes, run.worked_bytes);
        self.longest_bytes = self.longest_bytes.max(run.longest_bytes);
    }
}

/// Adds counters of members.
pub(super) fn add(sums: &mut Vec<Counters>, more: &[Counters]) {
    sums.resize(sums.len().max(more.len()), Counters::default());
    sums.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
}

/// The sum of what is known.
pub(super) fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}
