//! Runs a program on a ground: threads, one barrier and one clock per phase, checks between.
//!
//! ```text
//! opening etc. | barrier | acts ..................| barrier | closing etc. | compare what is to go
//!                        ^ first start   last end ^
//! ```
//! Invariant: a phase's time is from the first worker's start to the last one's end, and nothing
//! but its acts is in it. What a phase has written is compared byte by byte before it is lost, at
//! the latest after the last phase, always outside the clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use array::{Counters, clock_nanos};

use super::ground::{Ground, Hands, Mistakes, Tally};
use super::steps::{Gate, Steps};
pub use super::timing::Timing;
use super::types::{Act, Count, End, Phase, Program, ReadOff, Stage, Step, Worker};
use crate::meter::{CpuMeter, CpuUsed};
use crate::record::Sample;
use crate::stats::LatencyRecorder;
use crate::watch::{MemberTap, Recorded, Recorder, Watched};

/// What a phase brought.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The phase's name.
    pub phase: String,
    /// One for each time that it was run, or for each interval of its steady window.
    pub samples: Vec<Sample>,
    /// Its times, all passes together, seconds.
    pub seconds: f64,
    /// Of its operations.
    pub latency: LatencyRecorder,
    /// CPU over all passes.
    pub cpu: Option<CpuUsed>,
    /// Rate of each worker in the last pass, bytes per second of its own time.
    pub workers: Vec<f64>,
    /// What the members moved while the samples were taken, all passes together.
    pub members: Vec<Counters>,
    /// What was wrong in it, or in what it wrote.
    pub mistakes: Mistakes,
    /// Whether all that it wrote was compared.
    pub checked: bool,
    /// Why it was not run.
    pub refused: Option<String>,
    /// How often it was run.
    pub passes: u32,
    /// Length of its first pass, seconds.
    pub first_pass_s: f64,
    /// No interval lay inside its steady window: the figure is that of the whole.
    pub no_window: bool,
    /// Samples are intervals inside its steady window: time, CPU and latency are of more than that.
    pub windowed: bool,
    /// How often it was read off, seconds, if it was to be.
    pub read_off_s: Option<f64>,
    /// What the workers moved while the samples were taken, if the samples are the members'.
    pub worked_bytes: Option<u64>,
    /// Counters over the time of its first pass.
    pub recorded: Option<Recorded>,
}

/// What happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum Meanwhile<'m> {
    /// A phase is running.
    Running {
        /// Its name.
        phase: &'m str,
        /// Bytes moved so far in this pass.
        bytes: u64,
    },
    /// What it wrote is being compared.
    Checking {
        /// The file.
        file: u32,
    },
}

/// Runs a program. What was measured before an error, or a stop, is there too.
pub fn run(
    program: &Program,
    ground: &dyn Ground,
    timing: Timing,
    stop: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Meanwhile<'_>),
) -> (Vec<Outcome>, Result<(), String>) {
    let writers = vec![None; program.files.len()];
    let mut run = Run { program, ground, timing, stop, tell, outcomes: Vec::new(), writers };
    let mut ended = program.stages.iter().try_for_each(|stage| run.stage(stage));
    if ended.is_ok() {
        ended = (0..program.files.len() as u32).try_for_each(|file| run.compare(file));
    }
    // What an error left uncompared is not reported as compared.
    for writer in run.writers.iter().flatten() {
        run.outcomes[*writer].checked = false;
    }
    (run.outcomes, ended)
}

struct Run<'a> {
    program: &'a Program,
    ground: &'a dyn Ground,
    timing: Timing,
    stop: &'a dyn Fn() -> bool,
    tell: &'a mut dyn FnMut(Meanwhile<'_>),
    outcomes: Vec<Outcome>,
    /// Of each file: the outcome of the last phase that wrote it, while that is not compared yet.
    writers: Vec<Option<usize>>,
}

impl Run<'_> {
    fn stage(&mut self, stage: &Stage) -> Result<(), String> {
        let first = self.outcomes.len();
        let interval = self.timing.interval.as_secs_f64();
        self.outcomes.extend(stage.phases.iter().map(|phase| Outcome {
            read_off_s: (phase.read_off == ReadOff::SteadyWindow).then_some(interval),
            ..Outcome::new(phase)
        }));
        let begin = clock_nanos();
        for pass in 0.. {
            for (phase, number) in stage.phases.iter().zip(first..) {
                if (self.stop)() {
                    return Ok(());
                }
                match self.ground.refuses(phase) {
                    Some(why) => self.outcomes[number].refused = Some(why),
                    None => self.in_pass(stage, phase, number, pass)?,
                }
            }
            let passed = Duration::from_nanos(clock_nanos() - begin);
            if !self.timing.again(stage, &self.outcomes[first..], pass + 1, passed) {
                break;
            }
        }
        Ok(())
    }

    /// Runs a phase in a pass of its stage; one that leaves all as it was until it has taken long
    /// enough. Its stage is not repeated for its sake: making and removing the same files again and
    /// again changes what making them costs. For the same reason those who have taken long enough
    /// are not measured again where others of their stage have not.
    fn in_pass(
        &mut self,
        stage: &Stage,
        phase: &Phase,
        number: usize,
        pass: u32,
    ) -> Result<(), String> {
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
            if !more || (self.stop)() {
                break;
            }
        }
        Ok(())
    }

    /// `counts`: what is measured goes into the figures; mistakes are noted anyway.
    fn phase(
        &mut self,
        phase: &Phase,
        number: usize,
        pass: u32,
        counts: bool,
    ) -> Result<(), String> {
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
        if !counts {
            outcome.mistakes.add(&measured.mistakes);
            return Ok(());
        }
        let moved = measured.window.take().unwrap_or_else(|| since(&after, &before));
        add(&mut outcome.members, &moved);
        outcome.add(measured);
        Ok(())
    }

    /// Compares what a file holds, if it was written since it was compared last.
    fn compare(&mut self, file: u32) -> Result<(), String> {
        let Some(writer) = self.writers[file as usize] else { return Ok(()) };
        (self.tell)(Meanwhile::Checking { file });
        let found = self.ground.check(file, self.stop)?;
        if !(self.stop)() {
            self.writers[file as usize] = None;
            self.outcomes[writer].mistakes.add(&found);
        }
        Ok(())
    }

    fn measure(&mut self, phase: &Phase, pass: u32) -> Result<Measured, String> {
        let count = phase.workers.len();
        let field = Field::new(phase, count);
        let shared = share_files(phase);
        let apart = phase.processes && self.ground.hands_are_apart();
        let mut cpu = None;
        let mut watch = Watch::default();
        let mut after = None;
        let (program, ground, timing) = (self.program, self.ground, self.timing);
        let (stop, tell) = (self.stop, &mut *self.tell);
        let eyes = (pass == 0).then(|| Eyes::open(ground));
        let done: Vec<Result<Done, String>> = std::thread::scope(|scope| {
            let workers = phase.workers.iter().enumerate().map(|(index, worker)| {
                let (field, files) = (&field, &program.files);
                let thread = std::thread::Builder::new().name(format!("worker-{index}"));
                let job = move || {
                    let hands = ground.hands(worker.depth, shared);
                    work(worker, index as u32, pass, files, hands, field)
                };
                match apart {
                    true => array::spawn_apart(scope, thread, job),
                    false => thread.spawn_scoped(scope, job),
                }
                .expect("the system has threads")
            });
            let workers: Vec<_> = workers.collect();
            field.begin.wait();
            let meter = CpuMeter::start(timing.baseline);
            field.go.wait();
            let begin = clock_nanos();
            watch.note(ground, &field, begin);
            eyes.iter().for_each(|eyes| eyes.begin(ground, begin));
            let mut told = begin;
            let ended = |state: &State| state.running == 0;
            while !field.wait(until(begin, &watch, timing.interval), ended) {
                let now = clock_nanos();
                if let End::Time(ms) = phase.end {
                    field.over.fetch_or(now - begin >= ms * 1_000_000, Ordering::Relaxed);
                }
                if stop() {
                    field.stop();
                }
                if now - begin >= timing.interval.as_nanos() as u64 * watch.marks.len() as u64 {
                    watch.note(ground, &field, now);
                }
                eyes.iter().for_each(|eyes| eyes.note(ground, now));
                if now - told >= 100_000_000 {
                    told = now;
                    tell(Meanwhile::Running { phase: &phase.name, bytes: field.bytes() });
                }
            }
            cpu = Some(meter.stop());
            eyes.iter().for_each(|eyes| eyes.end(ground, clock_nanos()));
            after = field.ends_with_first.then(|| ground.members());
            field.finish(stop);
            workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
        });
        let done: Vec<Done> = done
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|problem| format!("{}, {}: {problem}", program.name, phase.name))?;
        let recorded = eyes.map(|eyes| eyes.recorder.stop());
        Ok(Measured { recorded, after, ..Measured::new(phase, done, cpu, &watch) })
    }
}

/// Records machine and members while a phase runs.
struct Eyes {
    recorder: Recorder,
    /// Where the engine's members can be told apart.
    tap: Option<Arc<MemberTap>>,
}

impl Eyes {
    fn open(ground: &dyn Ground) -> Eyes {
        let watched = ground.watched();
        // Of disks the recorder knows more: how long they were busy, and their names.
        let counts = watched.disks.is_empty() && !ground.members().is_empty();
        let tap = counts.then(|| Arc::new(MemberTap::default()));
        let recorder = Recorder::start(Watched { tap: tap.clone(), ..watched });
        Eyes { recorder, tap }
    }

    fn begin(&self, ground: &dyn Ground, now: u64) {
        self.tap.iter().for_each(|tap| tap.begin(0, now, &ground.members()));
    }

    fn note(&self, ground: &dyn Ground, now: u64) {
        self.tap.iter().for_each(|tap| tap.note(0, now, || ground.members()));
    }

    fn end(&self, ground: &dyn Ground, now: u64) {
        self.tap.iter().for_each(|tap| tap.end(0, now, &ground.members()));
    }
}

/// When to look next.
fn until(begin: u64, watch: &Watch, interval: Duration) -> Duration {
    let next = begin + interval.as_nanos() as u64 * watch.marks.len() as u64;
    Duration::from_nanos(next.saturating_sub(clock_nanos())).min(Duration::from_millis(20))
}

/// What the workers of a phase share.
struct Field {
    /// All are ready to start; all start; all have ended.
    begin: Barrier,
    go: Barrier,
    end: Barrier,
    tickets: AtomicU64,
    /// The clock stops: nobody begins anything new, but what must be written to the end.
    over: AtomicBool,
    /// Not even that.
    stopped: AtomicBool,
    ends_with_first: bool,
    bytes: Vec<AtomicU64>,
    state: Mutex<State>,
    changed: Condvar,
}

/// How far the workers are.
struct State {
    /// Whose clock runs.
    running: usize,
    /// Who has something to do for the phase.
    unfinished: usize,
    /// What happened while clocks ran has been read off.
    counted: bool,
}

impl Field {
    fn new(phase: &Phase, count: usize) -> Field {
        Field {
            begin: Barrier::new(count + 1),
            go: Barrier::new(count + 1),
            end: Barrier::new(count + 1),
            tickets: AtomicU64::new(phase.tickets),
            over: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            ends_with_first: phase.end == End::First,
            bytes: (0..count).map(|_| AtomicU64::new(0)).collect(),
            state: Mutex::new(State { running: count, unfinished: count, counted: false }),
            changed: Condvar::new(),
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with the state")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn running(&self) -> usize {
        self.state().running
    }

    fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Whether a worker writes what later phases read, and would leave it half written.
    fn completes(&self, worker: &Worker) -> bool {
        let mut transfers = worker.acts.iter().filter_map(|act| match act {
            Act::Transfer(transfer) => Some(transfer),
            _ => None,
        });
        let ends = |count| !matches!(count, Count::Endless | Count::Tickets);
        self.ends_with_first && transfers.all(|t| t.op.writes() && ends(t.count))
    }

    /// A worker's clock has stopped.
    fn leave(&self) {
        self.change(|state| state.running -= 1);
    }

    /// Waits until what happened while clocks ran has been read off: before that, nothing happens
    /// that is in no figure.
    fn wait_counted(&self) {
        let counted = self.changed.wait_while(self.state(), |state| !state.counted);
        drop(counted.expect("nobody panics with the state"));
    }

    /// All is read off: those go on who have something left to write, and are waited for.
    fn finish(&self, stop: &dyn Fn() -> bool) {
        self.change(|state| state.counted = true);
        while !self.wait(Duration::from_millis(20), |state| state.unfinished == 0) {
            if stop() {
                self.stop();
            }
        }
        self.end.wait();
    }

    /// Waits for a while, unless something changes; whether it is so.
    fn wait(&self, limit: Duration, so: impl Fn(&State) -> bool) -> bool {
        let state = self.state();
        if so(&state) {
            return true;
        }
        let waited = self.changed.wait_timeout(state, limit);
        so(&waited.expect("nobody panics with the state").0)
    }
}

/// A worker's way to ask its phase.
struct WorkerGate<'f> {
    field: &'f Field,
    /// Set where it is to end; before and after the clock everything is done.
    over: Option<&'f AtomicBool>,
}

impl Gate for WorkerGate<'_> {
    fn going(&mut self) -> bool {
        !self.over.is_some_and(|over| over.load(Ordering::Relaxed))
    }

    fn ticket(&mut self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.field.tickets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// What a worker has done.
struct Done {
    start: u64,
    end: u64,
    bytes: u64,
    ops: u64,
    latency: LatencyRecorder,
    mistakes: Mistakes,
}

/// What it had done when its clock stopped.
struct Clocked {
    end: u64,
    bytes: u64,
    ops: u64,
    latency: LatencyRecorder,
}

impl Clocked {
    fn now(tally: &Tally<'_>) -> Clocked {
        let (end, latency) = (clock_nanos(), tally.latency.clone());
        Clocked { end, bytes: tally.bytes, ops: tally.ops, latency }
    }
}

/// Given while the clock runs, to be filled where it stops for a worker that goes on.
type Clock<'c> = Option<&'c mut Option<Clocked>>;

fn work(
    worker: &Worker,
    index: u32,
    pass: u32,
    files: &[u64],
    hands: Result<Box<dyn Hands + '_>, String>,
    field: &Field,
) -> Result<Done, String> {
    let mut tally = Tally::new(&field.bytes[index as usize]);
    let completes = field.completes(worker);
    let over = if completes { &field.stopped } else { &field.over };
    // Whatever goes wrong, the others must not wait for this one at a barrier.
    let mut hands = hands;
    let mut perform = |acts: &[Act], clock: Clock<'_>, tally: &mut Tally<'_>| {
        let hands = hands.as_mut().map_err(|problem| problem.clone())?;
        let mut steps = Steps::new(acts, files, index, pass);
        let mut gate = WorkerGate { field, over: clock.is_some().then_some(over) };
        let mut unclocked = clock.filter(|_| completes);
        while let Some(step) = steps.next(&mut gate) {
            if field.over.load(Ordering::Relaxed)
                && let Some(clocked) = unclocked.take()
            {
                end_early(acts, &mut **hands, tally)?;
                *clocked = Some(Clocked::now(tally));
                field.leave();
                field.wait_counted();
            }
            hands.carry_out(&step, tally)?;
        }
        hands.settle(tally)
    };
    let before = perform(&worker.before, None, &mut tally);
    field.begin.wait();
    field.go.wait();
    let start = clock_nanos();
    let (bytes, ops) = (tally.bytes, tally.ops);
    tally.latency.clear();
    tally.over = Some(over);
    let mut clocked = None;
    let acts = before.and_then(|()| perform(&worker.acts, Some(&mut clocked), &mut tally));
    let last = Clocked::now(&tally);
    tally.over = None;
    match &acts {
        Err(_) => field.stop(),
        Ok(()) if field.ends_with_first => field.over.store(true, Ordering::Relaxed),
        Ok(()) => {}
    }
    let clocked = clocked.unwrap_or_else(|| {
        field.leave();
        last
    });
    field.change(|state| state.unfinished -= 1);
    let (bytes, ops) = (clocked.bytes - bytes, clocked.ops - ops);
    field.end.wait();
    acts.and_then(|()| perform(&worker.after, None, &mut tally))?;
    let Clocked { end, latency, .. } = clocked;
    Ok(Done { start, end, bytes, ops, latency, mistakes: tally.mistakes })
}

/// What counts of a worker whose clock stops before it is through: what it has begun, and, where
/// syncing is inside the clock, that this is on disk.
fn end_early(acts: &[Act], hands: &mut dyn Hands, tally: &mut Tally<'_>) -> Result<(), String> {
    hands.settle(tally)?;
    let mut syncs = acts.iter().filter_map(|act| match act {
        Act::Sync { file, data_only } => Some(Step::Sync { file: *file, data_only: *data_only }),
        _ => None,
    });
    syncs.try_for_each(|step| hands.carry_out(&step, tally))?;
    hands.settle(tally)
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

/// Whether a file is used by two workers of which one writes.
fn share_files(phase: &Phase) -> bool {
    let used = |worker: &Worker| -> Vec<u32> {
        let acts = worker.before.iter().chain(&worker.acts).chain(&worker.after);
        let files = acts.flat_map(|act| match act {
            Act::Transfer(transfer) => transfer.files.clone(),
            Act::Bytes { file, .. } => *file..*file + 1,
            _ => 0..0,
        });
        let mut files: Vec<u32> = files.collect();
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

/// The bytes moved, read off again and again: those of the members, or of the workers where no
/// member was known when the phase began.
#[derive(Default)]
struct Watch {
    marks: Vec<Mark>,
}

struct Mark {
    at: u64,
    /// What the workers had moved by then.
    worked: u64,
    /// What each member had moved by then; empty where they could not be read off.
    members: Vec<Counters>,
    running: usize,
}

/// What members have moved since.
fn since(after: &[Counters], before: &[Counters]) -> Vec<Counters> {
    after.iter().zip(before).map(|(after, before)| after.since(before)).collect()
}

fn add(sums: &mut Vec<Counters>, more: &[Counters]) {
    sums.resize(sums.len().max(more.len()), Counters::default());
    sums.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
}

impl Watch {
    fn note(&mut self, ground: &dyn Ground, field: &Field, at: u64) {
        let (worked, members) = (field.bytes(), ground.members());
        self.marks.push(Mark { at, worked, members, running: field.running() });
    }

    /// Intervals in which all of `workers` were at work. Where there were members to begin with,
    /// only those at whose ends all of these could be read off: one figure is not of both.
    fn steady(&self, workers: usize) -> Window {
        let known = self.marks.first().map_or(0, |mark| mark.members.len());
        let mut window = Window { of_members: known > 0, ..Window::default() };
        for pair in self.marks.windows(2).filter(|pair| pair[1].running == workers) {
            let read_off = pair.iter().all(|mark| mark.members.len() == known);
            if known > 0 && !read_off {
                continue;
            }
            let worked = pair[1].worked.saturating_sub(pair[0].worked);
            let moved = match known {
                0 => Vec::new(),
                _ => since(&pair[1].members, &pair[0].members),
            };
            let bytes = match known {
                0 => worked,
                _ => moved.iter().map(|member| member.read_bytes + member.written_bytes).sum(),
            };
            let seconds = (pair[1].at - pair[0].at) as f64 / 1e9;
            window.samples.push(Sample { seconds, bytes, ops: 0 });
            window.worked += worked;
            add(&mut window.members, &moved);
        }
        window
    }
}

/// The intervals of a steady window.
#[derive(Default)]
struct Window {
    samples: Vec<Sample>,
    /// Whether bytes are the members', as the Linux RAID wiki read them off.
    of_members: bool,
    /// What the workers moved in them.
    worked: u64,
    /// What each member moved in them.
    members: Vec<Counters>,
}

/// One pass of a phase.
struct Measured {
    samples: Vec<Sample>,
    seconds: f64,
    latency: LatencyRecorder,
    cpu: Option<CpuUsed>,
    workers: Vec<f64>,
    mistakes: Mistakes,
    no_window: bool,
    /// What the members moved in its steady window, where the samples are of that.
    window: Option<Vec<Counters>>,
    /// What they had moved when the clock stopped, where workers go on after that.
    after: Option<Vec<Counters>>,
    windowed: bool,
    worked_bytes: Option<u64>,
    recorded: Option<Recorded>,
}

impl Measured {
    fn new(phase: &Phase, done: Vec<Done>, cpu: Option<CpuUsed>, watch: &Watch) -> Measured {
        let start = done.iter().map(|done| done.start).min().unwrap_or(0);
        let end = done.iter().map(|done| done.end).max().unwrap_or(0);
        let seconds = (end - start) as f64 / 1e9;
        let whole = Sample {
            seconds,
            bytes: done.iter().map(|done| done.bytes).sum(),
            ops: done.iter().map(|done| done.ops).sum(),
        };
        let (mut samples, mut window, mut worked_bytes) = (vec![whole], None, None);
        let steady_wanted = phase.read_off == ReadOff::SteadyWindow;
        if steady_wanted {
            let steady = watch.steady(phase.workers.len());
            if !steady.samples.is_empty() {
                worked_bytes = steady.of_members.then_some(steady.worked);
                (samples, window) = (steady.samples, Some(steady.members));
            }
        }
        let (mut latency, mut mistakes) = (LatencyRecorder::new(), Mistakes::default());
        for done in &done {
            latency.merge(&done.latency);
            mistakes.add(&done.mistakes);
        }
        let rate = |done: &Done| done.bytes as f64 * 1e9 / (done.end - done.start).max(1) as f64;
        let workers = done.iter().map(rate).collect();
        Measured {
            samples,
            seconds,
            latency,
            cpu,
            workers,
            mistakes,
            no_window: steady_wanted && window.is_none(),
            windowed: window.is_some(),
            window,
            after: None,
            worked_bytes,
            recorded: None,
        }
    }
}

impl Outcome {
    pub(super) fn new(phase: &Phase) -> Outcome {
        Outcome {
            phase: phase.name.clone(),
            samples: Vec::new(),
            seconds: 0.0,
            latency: LatencyRecorder::new(),
            cpu: None,
            workers: Vec::new(),
            members: Vec::new(),
            mistakes: Mistakes::default(),
            checked: true,
            refused: None,
            passes: 0,
            first_pass_s: 0.0,
            no_window: false,
            windowed: false,
            read_off_s: None,
            worked_bytes: None,
            recorded: None,
        }
    }

    fn add(&mut self, pass: Measured) {
        if self.passes == 0 {
            self.first_pass_s = pass.seconds;
        }
        self.passes += 1;
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
        self.worked_bytes = match (self.worked_bytes, pass.worked_bytes) {
            (Some(sum), Some(more)) => Some(sum + more),
            (one, other) => one.or(other),
        };
        self.recorded = self.recorded.take().or(pass.recorded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::choice::{Choice, Scale};
    use crate::program::extents::Extents;
    use crate::program::files::Files;
    use crate::program::files::tests::{is_cached, tells_what_is_cached};
    use crate::program::placed::Placed;
    use crate::program::session::{Needs, alone, single};
    use crate::program::types::{Calls, How, Op, Order, Transfer};
    use array::{Fault, FaultMember, FileMember, FileOptions, MemMember, Member, MemberSpec};
    use std::path::Path;

    fn program(text: &str, bytes: u64) -> Program {
        let scale = Scale { size: Some(bytes), ..Scale::default() };
        text.parse::<Choice>().expect(text).program(&scale).expect(text)
    }

    fn quick() -> Timing {
        let least = Duration::from_millis(20);
        Timing { least, interval: Duration::from_millis(5), ..Timing::default() }
    }

    fn ran(program: &Program, ground: &dyn Ground) -> Vec<Outcome> {
        let (outcomes, ended) = run(program, ground, quick(), &|| false, &mut |_| {});
        ended.expect("it runs");
        outcomes
    }

    fn memory(bytes: u64, program: &Program) -> Extents {
        let member = MemMember::new(bytes / 512).expect("memory");
        on_member(MemberSpec::ready(member), program)
    }

    /// Where each worker has a driver of its own.
    fn on_file(directory: &Path, bytes: u64, program: &Program) -> Extents {
        let options = FileOptions { sectors: bytes / 512, direct: false };
        let member = FileMember::open(&directory.join("file"), options).expect("a file");
        alone(member, &Needs::of(program), program, 1, None).expect("it fits")
    }

    fn on_member(member: MemberSpec, program: &Program) -> Extents {
        let needs = Needs::of(program);
        let array = single(member, &needs).expect("an array");
        Extents::new(array, needs.lease_bytes, program, 1, None).expect("it fits")
    }

    #[test]
    fn every_program_runs_on_files_and_all_it_wrote_is_compared() {
        let directory = tempfile::tempdir().expect("a directory");
        for text in [
            "dd:bs=64K:fdatasync",
            "bonnie:volumes=2:seeks=50",
            "bonnie++:n=1:c=2:seeks=50",
            "iozone:r=4K",
            "iozone:t=3:r=4K:pread",
            "iozone:t=2:r=4K:mmap:e",
            "iozone:auto",
            "streams:files=5:size=256K",
            "tiobench:random=20",
        ] {
            let mut program = program(text, 1 << 20);
            program.stages.iter_mut().flat_map(|stage| &mut stage.phases).for_each(|phase| {
                phase.pause_ms = 0;
            });
            let files = Files::new(directory.path(), &program, 1).expect("a place");
            // Too short on every machine: again, as often as allowed. The matrix of file sizes is
            // run as it is, once.
            let least = Duration::from_secs(3600);
            let timing = Timing { least, repeats_max: 2, ..quick() };
            let (outcomes, ended) = run(&program, &files, timing, &|| false, &mut |_| {});
            ended.expect(text);
            assert_eq!(outcomes.len(), program.phases().count(), "{text}");
            let repeatable = text != "iozone:auto";
            for outcome in outcomes {
                let phase = &outcome.phase;
                assert_eq!(outcome.mistakes, Mistakes::default(), "{text}: {phase}");
                assert!(outcome.checked && outcome.refused.is_none(), "{text}: {phase}");
                let repeated = repeatable && phase != "remove";
                assert_eq!(outcome.passes, 1 + u32::from(repeated), "{text}: {phase}");
                assert!(outcome.latency.count() > 0, "{text}: {phase}");
            }
            drop(files);
            let left = std::fs::read_dir(directory.path()).expect("there").count();
            assert_eq!(left, 0, "{text}");
        }
    }

    /// The first phase takes long enough, the second does not.
    #[test]
    fn a_phase_that_was_long_enough_is_not_measured_again_for_anothers_sake() {
        let read = |name: &str, blocks| {
            let same = Transfer {
                order: Order::Same,
                count: Count::Blocks(blocks),
                ..Transfer::forward(0..1, 0..4096, 4096, Op::Read)
            };
            let open = vec![Act::Open { file: 0, how: How::Keep }];
            let close = vec![Act::Close { file: 0 }];
            let worker = Worker::new(open, vec![Act::Transfer(same)], close);
            Phase::new(name, "seq-read", vec![worker])
        };
        let mut program = Program::new("x", String::new(), vec![4096]);
        let fill = Phase::preparing("fill", vec![Worker::filler(0, 4096)]);
        let both = Stage { phases: vec![read("long", 20), read("short", 1)], repeatable: true };
        program.stages = vec![Stage::once(fill), both];
        let member = MemMember::new(4096).expect("memory");
        // Every read finds the same wrong bit, in the stamp.
        let script = vec![Fault::Delay { nanos: 2_000_000 }, Fault::FlipRead { at: 0 }];
        let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
        let ground = on_member(MemberSpec::Ready(member), &program);
        let outcomes = ran(&program, &ground);
        let (long, short) = (&outcomes[1], &outcomes[2]);
        assert_eq!((long.passes, long.samples.len()), (1, 1));
        assert!(short.passes > 1 || short.seconds >= 0.02, "{short:?}");
        let stage_passes = u64::from(short.passes);
        assert_eq!(long.mistakes.count, 20 * stage_passes, "what is not measured is checked");
    }

    #[test]
    fn what_changes_nothing_is_repeated_by_itself() {
        let program = program("bonnie++:n=1:f", 1 << 20);
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program, 1).expect("a place");
        let mut names = program.clone();
        names.stages.retain(|stage| stage.phases[0].name.ends_with("create"));
        let timing =
            |repeats_max| Timing { least: Duration::from_secs(3600), repeats_max, ..quick() };
        let passes = |repeats_max| -> Vec<u32> {
            let timing = timing(repeats_max);
            let (outcomes, ended) = run(&names, &files, timing, &|| false, &mut |_| {});
            ended.expect("it runs");
            outcomes.iter().map(|outcome| outcome.passes).collect()
        };
        assert_eq!(passes(3), [3; 6], "all are too short");
        let stat = names.phases().nth(1).expect("there");
        assert!(
            stat.changes_nothing() && names.phases().filter(|p| p.changes_nothing()).count() == 2
        );
        // Where only it is too short its stage is not run again.
        let stage = &names.stages[0];
        let mut outcomes: Vec<Outcome> = stage.phases.iter().map(Outcome::new).collect();
        outcomes[0].seconds = 3600.0;
        outcomes[2].seconds = 3600.0;
        assert!(!timing(9).again(stage, &outcomes, 1, Duration::ZERO));
        outcomes[2].seconds = 0.0;
        assert!(timing(9).again(stage, &outcomes, 1, Duration::ZERO));
    }

    /// What is open under `/proc/self/task/TASK/fd`, for the task that has a file open.
    fn open_beside(path: &Path) -> Option<Vec<std::path::PathBuf>> {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
        let mut open = tasks.map(|task| -> Vec<_> {
            let entries = std::fs::read_dir(task.path().join("fd")).into_iter().flatten().flatten();
            entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
        });
        open.find(|open| open.iter().any(|other| other == path))
    }

    #[test]
    fn workers_that_are_processes_share_no_descriptors() {
        let mut program = program("bonnie++:n=0", 1 << 20);
        program.stages.truncate(1);
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program, 1).expect("a place");
        // As a session has it.
        let files = Placed::new(Box::new(files), directory.path(), &[]);
        let path = directory.path().join(crate::program::files::own_name()).join("file-0");
        // Somebody's claim, in the table of all others.
        let claim = tempfile::NamedTempFile::new().expect("a file");
        let mut seen = None;
        let mut look = |meanwhile: Meanwhile<'_>| {
            if matches!(meanwhile, Meanwhile::Running { .. }) {
                seen = seen.take().or(open_beside(&path));
            }
        };
        let once = Timing { least: Duration::from_secs(1), ..quick() };
        let (outcomes, ended) = run(&program, &files, once, &|| false, &mut look);
        ended.expect("it runs");
        assert!(outcomes[0].checked && outcomes[0].mistakes.count == 0);
        let seen = seen.expect("bytes take long enough to be looked at");
        if seen.iter().any(|open| open == claim.path()) {
            println!("skipped: no close_range with CLOSE_RANGE_UNSHARE here");
            return;
        }
        assert!(seen.len() <= 4, "its file, and 0 to 2: {seen:?}");
        let ours = std::fs::read_dir("/proc/self/fd").expect("Linux").flatten();
        let mut ours = ours.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        assert!(ours.any(|open| open == claim.path()), "and ours are where they were");
    }

    #[test]
    fn extents_do_what_needs_no_file_system() {
        for text in
            ["dd:bs=64K", "bonnie++:n=0:seeks=200:seekers=4", "iozone:r=4K:async=8", "tiobench"]
        {
            let program = program(text, 2 << 20);
            let mut program = program;
            program.stages.iter_mut().flat_map(|stage| &mut stage.phases).for_each(|phase| {
                phase.pause_ms = 0;
            });
            let directory = tempfile::tempdir().expect("a directory");
            let own = on_file(directory.path(), 8 << 20, &program);
            for (ground, shared) in [(memory(8 << 20, &program), true), (own, false)] {
                for outcome in ran(&program, &ground) {
                    let what = format!("{text}: {}, shared: {shared}", outcome.phase);
                    let by_byte = ["putc", "getc", "remove"].contains(&outcome.phase.as_str());
                    assert_eq!(outcome.refused.is_some(), by_byte, "{what}");
                    assert_eq!(outcome.mistakes.count, 0, "{what}");
                    assert!(outcome.checked || by_byte, "{what}");
                    let moved: u64 =
                        outcome.members.iter().map(|m| m.read_bytes + m.written_bytes).sum();
                    let asked: u64 = outcome.samples.iter().map(|sample| sample.bytes).sum();
                    assert!(moved >= asked || !shared, "{what}: {moved} of {asked}");
                }
            }
        }
    }

    #[test]
    fn below_extents_a_file_is_forgotten_and_nobody_elses() {
        const BYTES: u64 = 1 << 20;
        let directory = tempfile::tempdir().expect("a directory");
        let program = Program {
            calls: Calls::Queued,
            ..Program::new("x", String::new(), vec![BYTES, BYTES])
        };
        let ground = on_file(directory.path(), 2 * BYTES, &program);
        let (path, other) = (directory.path().join("file"), directory.path().join("other"));
        std::fs::write(&other, [1; 4096]).expect("written");
        std::fs::File::open(&other).and_then(|file| file.sync_all()).expect("on disk");
        let progress = AtomicU64::new(0);
        let mut tally = Tally::new(&progress);
        let mut hands = ground.hands(2, false).expect("hands");
        let block = |op, file| Step::Block { op, file, at: 0, len: BYTES };
        let sync = Step::Sync { file: 0, data_only: false };
        let steps = [block(Op::Write, 0), block(Op::Write, 1), sync];
        let mut go = |step: &Step| hands.carry_out(step, &mut tally).expect("done");
        steps.iter().for_each(&mut go);
        let cached = || {
            [(&path, 0), (&path, BYTES - 4096), (&path, BYTES), (&other, 0)]
                .map(|(path, at)| is_cached(path, at) == Some(true))
        };
        if !tells_what_is_cached(directory.path(), &path) {
            println!("skipped: this file system does not tell what is cached, or is all cache");
            return;
        }
        // Somebody else may have emptied the whole cache just now; not three times.
        let seen = (0..3).find_map(|_| {
            [block(Op::Read, 0), block(Op::Read, 1)].iter().for_each(&mut go);
            go(&Step::Close { file: 0 });
            let _ = std::fs::read(&other);
            let before = cached();
            go(&Step::Forget { file: 0 });
            let after = cached();
            (after != [false; 4]).then_some((before, after))
        });
        let (before, after) = seen.expect("what was not to be forgotten is there");
        assert_eq!((before, after), ([true; 4], [false, false, true, true]));
    }

    #[test]
    fn a_driver_of_a_workers_own_names_the_file_that_it_could_not_write() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = program("dd:bs=64K", 1 << 20);
        let ground = on_file(directory.path(), 1 << 20, &program);
        let file = std::fs::File::options().write(true).open(directory.path().join("file"));
        // Reads behind the end of a file that somebody cut short.
        file.expect("there").set_len(0).expect("it can be cut");
        let cut = |phase: &str| {
            let mut program = program.clone();
            program.stages.retain(|stage| stage.phases[0].name == phase);
            let (_, ended) = run(&program, &ground, quick(), &|| false, &mut |_| {});
            ended
        };
        let problem = cut("read").expect_err("there is nothing to read");
        assert!(problem.contains("file 0: cannot read at byte 0"), "{problem}");
    }

    /// Random writes and rewrites of several workers on the same few blocks, many at once: whoever
    /// comes first, every unit ends as the last write left it.
    #[test]
    fn writers_of_the_same_blocks_do_not_confuse_the_comparison() {
        for depth in [1, 8] {
            let mut program = Program::new("x", String::new(), vec![16 * 4096]);
            let worker = |seed| {
                let transfer = Transfer {
                    op: Op::ReadPercent(30),
                    order: Order::Uniform,
                    count: Count::Blocks(2000),
                    seed,
                    ..Transfer::forward(0..1, 0..16 * 4096, 4096, Op::Read)
                };
                let rewrites = Transfer { op: Op::RewritePercent(50), ..transfer.clone() };
                let acts = vec![Act::Transfer(transfer), Act::Transfer(rewrites)];
                let open = vec![Act::Open { file: 0, how: How::Keep }];
                Worker { depth, ..Worker::new(open, acts, vec![Act::Close { file: 0 }]) }
            };
            let phase = Phase::new("all", "rand-mixed", (0..4).map(worker).collect());
            let fill = Act::Transfer(Transfer::forward(0..1, 0..16 * 4096, 4096, Op::Write));
            let open = vec![Act::Open { file: 0, how: How::Create }];
            let fill = Worker::new(open, vec![fill], vec![Act::Close { file: 0 }]);
            let fill = Phase::preparing("fill", vec![fill]);
            program.stages = vec![Stage::once(fill), Stage::once(phase)];
            let directory = tempfile::tempdir().expect("a directory");
            let own = on_file(directory.path(), 1 << 20, &program);
            for ground in [memory(1 << 20, &program), own] {
                let outcome = &ran(&program, &ground)[1];
                assert_eq!(outcome.mistakes, Mistakes::default(), "depth {depth}");
                assert_eq!(outcome.samples[0].ops, 4 * 4000);
            }
            if depth == 1 {
                let files = Files::new(directory.path(), &program, 1).expect("a place");
                assert_eq!(ran(&program, &files)[1].mistakes, Mistakes::default());
            }
        }
    }

    #[test]
    fn a_bit_that_flips_below_is_found_after_the_clock() {
        let program = program("dd:bs=64K", 1 << 20);
        let member = MemMember::new(4096).expect("memory");
        let script = vec![Fault::FlipRead { at: 300_000 }];
        let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
        let ground = on_member(MemberSpec::Ready(member), &program);
        let outcomes = ran(&program, &ground);
        let mistakes = outcomes[0].mistakes;
        assert!(mistakes.count > 0 && mistakes.first.is_some_and(|wrong| wrong.at == 300_000));
    }

    #[test]
    fn a_file_that_somebody_changed_is_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let program = program("dd:bs=64K", 1 << 20);
        let files = Files::new(directory.path(), &program, 1).expect("a place");
        let once = Timing { least: Duration::ZERO, ..quick() };
        let spoil = |meanwhile: Meanwhile<'_>| {
            if matches!(meanwhile, Meanwhile::Checking { .. }) {
                let inside = std::fs::read_dir(directory.path()).expect("there").next();
                let path = inside.expect("one").expect("readable").path().join("file-0");
                let file = std::fs::File::options().write(true).open(path).expect("there");
                std::os::unix::fs::FileExt::write_at(&file, b"x", 70_000).expect("written");
            }
        };
        let mut spoil = spoil;
        let (outcomes, ended) = run(&program, &files, once, &|| false, &mut spoil);
        ended.expect("it runs");
        assert_eq!(outcomes[0].mistakes.count, 1);
        assert_eq!(outcomes[0].mistakes.first.map(|wrong| wrong.at), Some(70_000));
    }

    #[test]
    fn a_full_place_is_an_error_that_names_the_file() {
        let program = program("dd:bs=64K", 1 << 20);
        let member = MemMember::new(4096).expect("memory");
        let script = vec![Fault::WriteError { range: 0..4096 }];
        let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
        let ground = on_member(MemberSpec::Ready(member), &program);
        let (outcomes, ended) = run(&program, &ground, quick(), &|| false, &mut |_| {});
        let problem = ended.expect_err("nothing can be written");
        assert!(problem.starts_with("dd, write: file 0: cannot write at byte 0"), "{problem}");
        assert!(outcomes.iter().all(|outcome| outcome.samples.is_empty()));
        assert!(!outcomes[0].checked);
    }

    #[test]
    fn a_phase_ends_by_time_or_with_its_first_worker() {
        let endless = |end| {
            let mut program = Program::new("x", String::new(), vec![1 << 20; 2]);
            let worker = |file: u32| {
                let count =
                    if file == 0 && end == End::First { Count::Pass } else { Count::Endless };
                let write = Transfer::forward(file..file + 1, 0..1 << 20, 4096, Op::Write);
                let open = vec![Act::Open { file, how: How::Create }];
                let acts = vec![Act::Transfer(Transfer { count, ..write })];
                Worker::new(open, acts, vec![Act::Close { file }])
            };
            let phase = Phase::new("all", "seq-write", vec![worker(0), worker(1)]);
            program.stages = vec![Stage::once(Phase { end, ..phase })];
            let ground = memory(4 << 20, &program);
            ran(&program, &ground).remove(0)
        };
        let timed = endless(End::Time(60));
        // It would go on for ever; how late it ends is the machine's matter.
        assert!(timed.seconds >= 0.06, "{}", timed.seconds);
        assert!(timed.samples[0].bytes > 0 && timed.passes == 1);
        let first = endless(End::First);
        assert!(first.samples[0].ops >= 256 && first.checked);
        assert_eq!(first.mistakes.count, 0);
    }

    /// Two writers of different lengths: the clock stops with the shorter one, and the other's file
    /// is whole nevertheless, for whoever reads it next.
    #[test]
    fn files_are_written_to_the_end_though_the_clock_stops_with_the_first() {
        let mut program = Program::new("x", String::new(), vec![4096, 1 << 20]);
        let phase = |name: &str, how, op| {
            let worker = |file: u32| {
                let bytes = [4096, 1 << 20][file as usize];
                let transfer = Transfer::forward(file..file + 1, 0..bytes, 4096, op);
                let open = vec![Act::Open { file, how }];
                Worker::new(open, vec![Act::Transfer(transfer)], vec![Act::Close { file }])
            };
            Phase::new(name, "seq-write", vec![worker(0), worker(1)])
        };
        let write = Phase { end: End::First, ..phase("write", How::Create, Op::Write) };
        let read = phase("read", How::Read, Op::Read);
        program.stages = vec![Stage::once(write), Stage::once(read)];
        // On an array a block takes long enough for one worker to be far ahead of the other.
        let member = MemMember::new(9 << 11).expect("memory");
        let script = vec![Fault::Delay { nanos: 1_000_000 }];
        let member: Box<dyn Member> = Box::new(FaultMember::new(Box::new(member), script));
        let array = on_member(MemberSpec::Ready(member), &program);
        let directory = tempfile::tempdir().expect("a directory");
        let files = Files::new(directory.path(), &program, 1).expect("a place");
        for ground in [&array as &dyn Ground, &files] {
            let outcomes = ran(&program, ground);
            assert_eq!(outcomes[1].samples[0].bytes, 4096 + (1 << 20), "all is read");
            assert!(outcomes.iter().all(|o| o.mistakes.count == 0 && o.checked));
            // What was written after the clock is in no figure.
            let written: u64 = outcomes[0].members.iter().map(|m| m.written_bytes).sum();
            let counted = outcomes[0].samples[0].bytes;
            assert!(outcomes[0].members.is_empty() || written == counted, "{written}, {counted}");
        }
    }

    #[test]
    fn a_steady_window_holds_only_intervals_in_which_all_worked() {
        // Two copies of everything.
        let mark = |at, worked: u64, running| Mark {
            at,
            worked,
            members: vec![Counters { written_bytes: worked, ..Counters::default() }; 2],
            running,
        };
        let watch = Watch {
            marks: vec![
                mark(0, 0, 3),
                mark(10_000_000_000, 500, 3),
                mark(20_000_000_000, 1500, 3),
                mark(30_000_000_000, 1600, 2),
            ],
        };
        let window = watch.steady(3);
        let written: Vec<u64> = window.members.iter().map(|member| member.written_bytes).collect();
        assert_eq!(written, [1500; 2], "nor what the members moved later");
        assert_eq!((window.worked, window.of_members), (1500, true));
        let bytes = |window: &Window| -> Vec<u64> {
            window.samples.iter().map(|sample| sample.bytes).collect()
        };
        assert_eq!(bytes(&window), [1000, 2000]);
        assert!(window.samples.iter().all(|sample| sample.seconds == 10.0));
        // Members that cannot be read off any more are not taken for ones that moved nothing.
        let mut gone = watch;
        gone.marks[2].members.clear();
        let window = gone.steady(3);
        assert_eq!((bytes(&window), window.worked), (vec![1000], 500));
        gone.marks[1].members.clear();
        assert!(gone.steady(3).samples.is_empty());
        // Who had none to begin with has the workers', also when some come.
        gone.marks[0].members.clear();
        gone.marks[2].members = vec![Counters::default()];
        let window = gone.steady(3);
        assert_eq!((bytes(&window), window.of_members), (vec![500, 1000], false));
        assert!(window.members.is_empty());
    }

    #[test]
    fn whoever_stops_it_gets_what_there_is() {
        let program = program("dd:bs=64K", 1 << 20);
        let ground = memory(4 << 20, &program);
        let (outcomes, ended) = run(&program, &ground, quick(), &|| true, &mut |_| {});
        assert_eq!(ended, Ok(()));
        assert!(outcomes.iter().all(|outcome| outcome.passes == 0));
    }
}
