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

use crate::metrics::meter::CpuMeter;
use crate::metrics::{CounterSource, Recorder, Watched};
use host::sys::clock_nanos;
use spec::program::timing::Timing;
use spec::program::types::{Act, Phase, Program, ReadOff, Stage, Worker};

use self::iteration::{Pass, Watch, since};
use self::workers::{Done, PhaseBarrier, State, work};
use super::backend::IoBackend;
use super::error::IoError;
use super::outcome::{PhaseOutcome, sum};
use super::timing::Repetition;
use crate::error::RunError;
use crate::progress::Progress;

/// Runs a program. Returns also the phases measured before an error, or a stop.
pub fn run(
    program: &Program,
    backend: &dyn IoBackend,
    timing: Timing,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> (Vec<PhaseOutcome>, Result<(), RunError>) {
    let writers = vec![None; program.files.len()];
    let unwritten = vec![None; program.files.len()];
    let outcomes = Vec::new();
    let mut run = Run { program, backend, timing, stop, tell, outcomes, writers, unwritten };
    let mut ended = program.stages.iter().try_for_each(|stage| run.stage(stage));
    if ended.is_ok() {
        ended = (0..program.files.len() as u32).try_for_each(|file| run.compare(file));
    }
    // Data left uncompared by an error is not reported as compared.
    for writer in run.writers.iter().flatten() {
        run.outcomes[*writer].measured.checked = false;
    }
    (run.outcomes, ended)
}

struct Run<'a> {
    program: &'a Program,
    backend: &'a dyn IoBackend,
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
            outcomes[first..].iter_mut().for_each(|outcome| outcome.measured.stopped = true);
        };
        for pass in 0.. {
            for (phase, number) in stage.phases.iter().zip(first..) {
                if (self.stop)() {
                    stopped(&mut self.outcomes);
                    return Ok(());
                }
                let refused = match self.backend.refuses(phase) {
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
        if let Some(why) = self.backend.refuses(&filler) {
            return Ok(Some(format!("it works on what {writer} writes, which cannot run: {why}")));
        }
        // No first pass: nothing is recorded.
        let filled = self.measure(&filler, 1)?;
        self.outcomes[number].measured.errors.add(&filled.measured.errors);
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
                self.outcomes[number].measured.stopped = true;
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
            self.backend.drop_caches()?;
        }
        if pass == 0 {
            std::thread::sleep(Duration::from_millis(phase.pause_ms));
        }
        for file in written(phase) {
            self.writers[file as usize] = Some(number);
        }
        let before = self.backend.members();
        let mut pass = self.measure(phase, pass)?;
        let after = pass.after.take().unwrap_or_else(|| self.backend.members());
        let outcome = &mut self.outcomes[number];
        // Complete passes are more exact than complete ones and a partial one.
        if !counts || (pass.cut && outcome.passes > 0) {
            outcome.measured.errors.add(&pass.measured.errors);
            return Ok(());
        }
        pass.measured.members = pass.window.take().unwrap_or_else(|| since(&after, &before));
        outcome.add(pass);
        Ok(())
    }

    /// Compares the contents of a file, if it was written since the last comparison.
    fn compare(&mut self, file: u32) -> Result<(), RunError> {
        let Some(writer) = self.writers[file as usize] else { return Ok(()) };
        (self.tell)(Progress::Checking { program: &self.program.name, file });
        let found = self.backend.check(file, self.stop)?;
        if !(self.stop)() {
            self.writers[file as usize] = None;
            self.outcomes[writer].measured.errors.add(&found);
        }
        Ok(())
    }

    fn measure(&mut self, phase: &Phase, pass: u32) -> Result<Pass, RunError> {
        let count = phase.workers.len();
        let field = PhaseBarrier::new(phase, count);
        let shared = share_files(phase);
        let apart = phase.processes && self.backend.worker_owns_descriptors();
        let mut cpu = None;
        let mut watch = Watch::default();
        let mut after = None;
        let mut cut = false;
        let (program, backend, timing) = (self.program, self.backend, self.timing);
        let (stop, tell) = (self.stop, &mut *self.tell);
        let eyes = (pass == 0).then(|| Sampler::open(backend));
        let done: Vec<Result<Done, IoError>> = std::thread::scope(|scope| {
            let workers = phase.workers.iter().enumerate().map(|(index, worker)| {
                let (field, files) = (&field, &program.files);
                let thread = std::thread::Builder::new().name(format!("worker-{index}"));
                let job = move || {
                    let io = backend.worker_io(worker.depth, shared);
                    work(worker, index as u32, pass, files, io, field)
                };
                match apart {
                    true => host::sys::spawn_with_own_fd_table(scope, thread, job),
                    false => thread.spawn_scoped(scope, job),
                }
                .expect("the system has threads")
            });
            let workers: Vec<_> = workers.collect();
            field.begin.wait();
            let meter = CpuMeter::with_kernel();
            field.go.wait();
            let begin = clock_nanos();
            watch.note(backend, &field, begin);
            eyes.iter().for_each(|eyes| eyes.begin(backend, begin));
            let mut last_event = begin;
            let ended = |state: &State| state.running == 0;
            while !field.wait(until(begin, &watch, timing.interval), ended) {
                let now = clock_nanos();
                field.pass(phase, now);
                if stop() {
                    cut = true;
                    field.stop();
                }
                if now - begin >= timing.interval.as_nanos() as u64 * watch.count() {
                    watch.note(backend, &field, now);
                }
                eyes.iter().for_each(|eyes| eyes.note(backend, now));
                if now - last_event >= 100_000_000 {
                    last_event = now;
                    let (name, phase) = (&program.name, &phase.name);
                    let (bytes, live) = (field.bytes(), &field.live);
                    tell(Progress::Phase { program: name, phase, bytes, live });
                }
            }
            cpu = Some(meter.stop());
            eyes.iter().for_each(|eyes| eyes.end(backend, clock_nanos()));
            after = field.ends_with_first.then(|| backend.members());
            field.finish(stop);
            workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
        });
        let done: Vec<Done> =
            done.into_iter().collect::<Result<_, _>>().map_err(|problem| RunError::Phase {
                program: program.name.to_string(),
                phase: phase.name.clone(),
                problem: Box::new(problem),
            })?;
        let mut pass = Pass { after, cut, ..Pass::new(phase, done, cpu, &watch) };
        pass.measured.recorded = eyes.map(|eyes| eyes.recorder.stop());
        Ok(pass)
    }
}

/// Records counters of machine and members during a phase.
struct Sampler {
    recorder: Recorder,
    /// Counters of the engine's members, where these can be distinguished.
    tap: Option<Arc<CounterSource>>,
}

impl Sampler {
    fn open(backend: &dyn IoBackend) -> Sampler {
        let watched = backend.watched();
        // For disks the recorder has more data: busy times, and names.
        let counts = watched.disks.is_empty() && !backend.members().is_empty();
        let tap = counts.then(|| Arc::new(CounterSource::default()));
        let recorder = Recorder::start(Watched { tap: tap.clone(), ..watched });
        Sampler { recorder, tap }
    }

    fn begin(&self, backend: &dyn IoBackend, now: u64) {
        self.tap.iter().for_each(|tap| tap.begin(0, now, &backend.members()));
    }

    fn note(&self, backend: &dyn IoBackend, now: u64) {
        self.tap.iter().for_each(|tap| tap.note(0, now, || backend.members()));
    }

    fn end(&self, backend: &dyn IoBackend, now: u64) {
        self.tap.iter().for_each(|tap| tap.end(0, now, &backend.members()));
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
    /// Adds another pass.
    fn add(&mut self, pass: Pass) {
        if self.passes == 0 {
            self.first_pass_s = pass.seconds;
        }
        self.cut = pass.cut;
        self.passes += 1;
        let longest = pass.measured.samples.iter().map(|sample| sample.bytes).max();
        self.longest_bytes = self.longest_bytes.max(longest.unwrap_or(0));
        self.measured.add(pass.measured);
        self.seconds += pass.seconds;
        self.workers = pass.workers;
        self.no_window |= pass.no_window;
        self.windowed |= pass.windowed;
        self.worked_bytes = sum(self.worked_bytes, pass.worked_bytes);
    }
}

#[cfg(test)]
mod tests;
