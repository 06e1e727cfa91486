//! Runs a program on a backend: threads, one barrier and one clock per phase, checks in between.
//!
//! ```text
//! opening etc. | barrier | acts ..................| barrier | closing etc. | compare old data
//!                        ^ first start   last end ^
//! ```
//! Invariant: a phase's time is from the first worker's start to the last one's end, and includes
//! only its acts. Data that a phase has written is compared byte by byte before it is overwritten
//! or removed, at the latest after the last phase, always outside the timed part.

mod iteration;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use array::Counters;
use metrics::meter::{CpuMeter, CpuUsed};
use metrics::{CounterSource, Recorded, Recorder, Watched};
use results::record::Sample;
use results::stats::{self, LatencyRecorder};
use spec::program::timing::Timing;
use spec::program::types::{Act, Phase, Program, ReadOff, Stage, Worker};
use sys::clock_nanos;

use self::iteration::{Measured, Watch, add, since};
use self::workers::{Done, PhaseBarrier, State, work};
use super::backend::{IoBackend, VerifyErrors};
use super::error::IoError;
use super::timing::Repetition;
use crate::error::RunError;

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
    pub mistakes: VerifyErrors,
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

/// A progress event.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'m> {
    /// A phase is running.
    Running {
        /// Its name.
        phase: &'m str,
        /// Bytes moved so far in this pass.
        bytes: u64,
    },
    /// Written data is being compared.
    Checking {
        /// Number of the file.
        file: u32,
    },
}

/// Runs a program. Returns also the phases measured before an error, or a stop.
pub fn run(
    program: &Program,
    ground: &dyn IoBackend,
    timing: Timing,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> (Vec<PhaseOutcome>, Result<(), RunError>) {
    let writers = vec![None; program.files.len()];
    let unwritten = vec![None; program.files.len()];
    let outcomes = Vec::new();
    let mut run = Run { program, ground, timing, stop, tell, outcomes, writers, unwritten };
    let mut ended = program.stages.iter().try_for_each(|stage| run.stage(stage));
    if ended.is_ok() {
        ended = (0..program.files.len() as u32).try_for_each(|file| run.compare(file));
    }
    // Data left uncompared by an error is not reported as compared.
    for writer in run.writers.iter().flatten() {
        run.outcomes[*writer].checked = false;
    }
    (run.outcomes, ended)
}

struct Run<'a> {
    program: &'a Program,
    ground: &'a dyn IoBackend,
    timing: Timing,
    stop: &'a dyn Fn() -> bool,
    tell: &'a mut dyn FnMut(Progress<'_>),
    outcomes: Vec<PhaseOutcome>,
    /// For each file: the outcome of the last phase that wrote it, until it is compared.
    writers: Vec<Option<usize>>,
    /// For each file: the refused phase that should have written its contents.
    unwritten: Vec<Option<String>>,
}

impl Run<'_> {
    fn stage(&mut self, stage: &Stage) -> Result<(), RunError> {
        let first = self.outcomes.len();
        let interval = self.timing.interval.as_secs_f64();
        self.outcomes.extend(stage.phases.iter().map(|phase| PhaseOutcome {
            read_off_s: (phase.read_off == ReadOff::SteadyWindow).then_some(interval),
            ..PhaseOutcome::new(phase)
        }));
        let begin = clock_nanos();
        let stopped = |outcomes: &mut [PhaseOutcome]| {
            outcomes[first..].iter_mut().for_each(|outcome| outcome.stopped = true);
        };
        for pass in 0.. {
            for (phase, number) in stage.phases.iter().zip(first..) {
                if (self.stop)() {
                    stopped(&mut self.outcomes);
                    return Ok(());
                }
                let refused = match self.ground.refuses(phase) {
                    None => self.fill_unwritten(phase, number)?,
                    refused => refused,
                };
                match refused {
                    None if (self.stop)() => {
                        stopped(&mut self.outcomes);
                        return Ok(());
                    }
                    None => self.in_pass(stage, phase, number, pass)?,
                    Some(why) if pass == 0 => self.is_refused(phase, number, why),
                    // The files have the data of the first pass.
                    Some(_) => {}
                }
            }
            let passed = Duration::from_nanos(clock_nanos() - begin);
            if !self.timing.again(stage, &self.outcomes[first..], pass + 1, passed) {
                break;
            }
        }
        Ok(())
    }

    fn is_refused(&mut self, phase: &Phase, number: usize, why: String) {
        for file in written(phase) {
            self.unwritten[file as usize] = Some(phase.name.clone());
        }
        self.outcomes[number].refused = Some(why);
    }

    /// Fills the files of a phase that a refused one should have written, outside the timed part:
    /// unwritten data can be neither measured nor compared. Returns the reason why the phase cannot
    /// run, if the files cannot be filled either.
    fn fill_unwritten(&mut self, phase: &Phase, number: usize) -> Result<Option<String>, RunError> {
        let mut files = used(phase);
        files.retain(|file| self.unwritten[*file as usize].is_some());
        let emptied: Vec<u32> = phase.empties().collect();
        emptied.iter().for_each(|file| self.unwritten[*file as usize] = None);
        files.retain(|file| !emptied.contains(file));
        let Some(first) = files.first() else { return Ok(None) };
        let writer = self.unwritten[*first as usize].clone().expect("it is one of these");
        let fillers = files.iter().map(|file| (*file, self.program.files[*file as usize]));
        let fillers = fillers.map(|(file, bytes)| Worker::filler(file, bytes));
        // Sequentially: their order on the target is that of a single writer.
        let acts = fillers.flat_map(|filler| [filler.before, filler.acts, filler.after].concat());
        let acts = acts.collect();
        let filler = Phase::preparing("fill", vec![Worker::new(Vec::new(), acts, Vec::new())]);
        if let Some(why) = self.ground.refuses(&filler) {
            return Ok(Some(format!("it works on what {writer} writes, which cannot run: {why}")));
        }
        // No first pass: nothing is recorded.
        let filled = self.measure(&filler, 1)?;
        self.outcomes[number].mistakes.add(&filled.mistakes);
        self.outcomes[number].filled_for = Some(writer);
        for file in files {
            self.writers[file as usize] = Some(number);
            self.unwritten[file as usize] = None;
        }
        Ok(None)
    }

    /// Runs a phase in a pass of its stage; a phase that changes nothing is repeated until it has
    /// taken long enough. Its stage is not repeated for it: creating and removing the same files
    /// repeatedly changes the cost of creating them. For the same reason phases that have taken
    /// long enough are not measured again when others of their stage have not.
    fn in_pass(
        &mut self,
        stage: &Stage,
        phase: &Phase,
        number: usize,
        pass: u32,
    ) -> Result<(), RunError> {
        let looks = stage.repeatable && phase.changes_nothing();
        let short = |run: &Run<'_>| run.timing.too_short(phase, &run.outcomes[number]);
        if pass > 0 {
            let counts = !phase.measured || (short(self) && !looks);
            return self.phase(phase, number, pass, counts);
        }
        let begin = clock_nanos();
        for pass in 0.. {
            self.phase(phase, number, pass, true)?;
            let passed = Duration::from_nanos(clock_nanos() - begin);
            let more = looks && short(self) && self.timing.patient(pass + 1, passed);
            if more && (self.stop)() {
                self.outcomes[number].stopped = true;
            } else if more {
                continue;
            }
            break;
        }
        Ok(())
    }

    /// `counts`: the measurement is added to the figures; wrong data is counted in any case.
    fn phase(
        &mut self,
        phase: &Phase,
        number: usize,
        pass: u32,
        counts: bool,
    ) -> Result<(), RunError> {
        for file in phase.empties() {
            self.compare(file)?;
        }
        if self.timing.drop_caches && phase.measured {
            self.ground.drop_caches()?;
        }
        if pass == 0 {
            std::thread::sleep(Duration::from_millis(phase.pause_ms));
        }
        for file in written(phase) {
            self.writers[file as usize] = Some(number);
        }
        let before = self.ground.members();
        let mut measured = self.measure(phase, pass)?;
        let after = measured.after.take().unwrap_or_else(|| self.ground.members());
        let outcome = &mut self.outcomes[number];
        // Complete passes are more exact than complete ones and a partial one.
        if !counts || (measured.cut && outcome.passes > 0) {
            outcome.mistakes.add(&measured.mistakes);
            return Ok(());
        }
        let moved = measured.window.take().unwrap_or_else(|| since(&after, &before));
        add(&mut outcome.members, &moved);
        outcome.add(measured);
        Ok(())
    }

    /// Compares the contents of a file, if it was written since the last comparison.
    fn compare(&mut self, file: u32) -> Result<(), RunError> {
        let Some(writer) = self.writers[file as usize] else { return Ok(()) };
        (self.tell)(Progress::Checking { file });
        let found = self.ground.check(file, self.stop)?;
        if !(self.stop)() {
            self.writers[file as usize] = None;
            self.outcomes[writer].mistakes.add(&found);
        }
        Ok(())
    }

    fn measure(&mut self, phase: &Phase, pass: u32) -> Result<Measured, RunError> {
        let count = phase.workers.len();
        let field = PhaseBarrier::new(phase, count);
        let shared = share_files(phase);
        let apart = phase.processes && self.ground.hands_are_apart();
        let mut cpu = None;
        let mut watch = Watch::default();
        let mut after = None;
        let mut cut = false;
        let (program, ground, timing) = (self.program, self.ground, self.timing);
        let (stop, tell) = (self.stop, &mut *self.tell);
        let eyes = (pass == 0).then(|| Sampler::open(ground));
        let done: Vec<Result<Done, IoError>> = std::thread::scope(|scope| {
            let workers = phase.workers.iter().enumerate().map(|(index, worker)| {
                let (field, files) = (&field, &program.files);
                let thread = std::thread::Builder::new().name(format!("worker-{index}"));
                let job = move || {
                    let hands = ground.hands(worker.depth, shared);
                    work(worker, index as u32, pass, files, hands, field)
                };
                match apart {
                    true => sys::spawn_with_own_fd_table(scope, thread, job),
                    false => thread.spawn_scoped(scope, job),
                }
                .expect("the system has threads")
            });
            let workers: Vec<_> = workers.collect();
            field.begin.wait();
            let meter = CpuMeter::with_kernel();
            field.go.wait();
            let begin = clock_nanos();
            watch.note(ground, &field, begin);
            eyes.iter().for_each(|eyes| eyes.begin(ground, begin));
            let mut last_event = begin;
            let ended = |state: &State| state.running == 0;
            while !field.wait(until(begin, &watch, timing.interval), ended) {
                let now = clock_nanos();
                field.pass(phase, (now - begin) / 1_000_000);
                if stop() {
                    cut = true;
                    field.stop();
                }
                if now - begin >= timing.interval.as_nanos() as u64 * watch.count() {
                    watch.note(ground, &field, now);
                }
                eyes.iter().for_each(|eyes| eyes.note(ground, now));
                if now - last_event >= 100_000_000 {
                    last_event = now;
                    tell(Progress::Running { phase: &phase.name, bytes: field.bytes() });
                }
            }
            cpu = Some(meter.stop());
            eyes.iter().for_each(|eyes| eyes.end(ground, clock_nanos()));
            after = field.ends_with_first.then(|| ground.members());
            field.finish(stop);
            workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
        });
        let done: Vec<Done> =
            done.into_iter().collect::<Result<_, _>>().map_err(|problem| RunError::Phase {
                program: program.name.to_string(),
                phase: phase.name.clone(),
                problem: Box::new(problem),
            })?;
        let recorded = eyes.map(|eyes| eyes.recorder.stop());
        Ok(Measured { recorded, after, cut, ..Measured::new(phase, done, cpu, &watch) })
    }
}

/// Records counters of machine and members during a phase.
struct Sampler {
    recorder: Recorder,
    /// Counters of the engine's members, where these can be distinguished.
    tap: Option<Arc<CounterSource>>,
}

impl Sampler {
    fn open(ground: &dyn IoBackend) -> Sampler {
        let watched = ground.watched();
        // For disks the recorder has more data: busy times, and names.
        let counts = watched.disks.is_empty() && !ground.members().is_empty();
        let tap = counts.then(|| Arc::new(CounterSource::default()));
        let recorder = Recorder::start(Watched { tap: tap.clone(), ..watched });
        Sampler { recorder, tap }
    }

    fn begin(&self, ground: &dyn IoBackend, now: u64) {
        self.tap.iter().for_each(|tap| tap.begin(0, now, &ground.members()));
    }

    fn note(&self, ground: &dyn IoBackend, now: u64) {
        self.tap.iter().for_each(|tap| tap.note(0, now, || ground.members()));
    }

    fn end(&self, ground: &dyn IoBackend, now: u64) {
        self.tap.iter().for_each(|tap| tap.end(0, now, &ground.members()));
    }
}

/// Time until the next poll.
fn until(begin: u64, watch: &Watch, interval: Duration) -> Duration {
    let next = begin + interval.as_nanos() as u64 * watch.count();
    Duration::from_nanos(next.saturating_sub(clock_nanos())).min(Duration::from_millis(20))
}

/// Files whose contents a phase changes.
fn written(phase: &Phase) -> Vec<u32> {
    let mut files: Vec<u32> = Vec::new();
    for act in phase.acts() {
        match act {
            Act::Transfer(transfer) if transfer.op.writes() => files.extend(transfer.files.clone()),
            Act::Bytes { file, how, .. } if how.writes() => files.push(*file),
            _ => {}
        }
    }
    files.sort_unstable();
    files.dedup();
    files
}

/// Files whose contents a phase reads or changes.
fn used(phase: &Phase) -> Vec<u32> {
    let mut files: Vec<u32> = phase.acts().flat_map(files_of).collect();
    files.sort_unstable();
    files.dedup();
    files
}

fn files_of(act: &Act) -> std::ops::Range<u32> {
    match act {
        Act::Transfer(transfer) => transfer.files.clone(),
        Act::Bytes { file, .. } => *file..*file + 1,
        _ => 0..0,
    }
}

/// Whether a file is used by two workers of which one writes.
fn share_files(phase: &Phase) -> bool {
    let used = |worker: &Worker| -> Vec<u32> {
        let acts = worker.before.iter().chain(&worker.acts).chain(&worker.after);
        let mut files: Vec<u32> = acts.flat_map(files_of).collect();
        files.sort_unstable();
        files.dedup();
        files
    };
    let mut all: Vec<u32> = phase.workers.iter().flat_map(used).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    all.len() < count && phase.writes()
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
            mistakes: VerifyErrors::default(),
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
        self.mistakes.add(&run.mistakes);
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

    fn add(&mut self, pass: Measured) {
        if self.passes == 0 {
            self.first_pass_s = pass.seconds;
        }
        self.cut = pass.cut;
        self.passes += 1;
        let longest = pass.samples.iter().map(|sample| sample.bytes).max();
        self.longest_bytes = self.longest_bytes.max(longest.unwrap_or(0));
        self.samples.extend(pass.samples);
        self.seconds += pass.seconds;
        self.latency.merge(&pass.latency);
        match (&mut self.cpu, pass.cpu) {
            (Some(sum), Some(cpu)) => sum.add(&cpu),
            (sum, cpu) => *sum = cpu,
        }
        self.workers = pass.workers;
        self.mistakes.add(&pass.mistakes);
        self.no_window |= pass.no_window;
        self.windowed |= pass.windowed;
        self.worked_bytes = sum(self.worked_bytes, pass.worked_bytes);
        self.recorded = self.recorded.take().or(pass.recorded);
    }
}

fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one + other),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests;
