//! The workers of a phase: shared state, start and end, and results of each.
//!
//! Invariant: after an error of one worker, the others do not wait for it at a barrier; and between
//! the stop of a worker's clock and the reading of the counters there is no I/O that no figure
//! covers. Called by `run`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use host::sys::clock_nanos;
use results::stats::LatencyRecorder;
use spec::program::types::{Act, Count, End, Phase, Step, Worker};

use crate::live::LiveCounts;
use crate::program::backend::{WorkerIo, WorkerStats};
use crate::program::error::IoError;
use crate::program::steps::{Gate, Steps};
use crate::verify::VerifyErrors;

/// State shared by the workers of a phase.
pub(super) struct PhaseBarrier {
    /// Barriers: all workers are ready; all start; all have ended.
    pub(super) begin: Barrier,
    pub(super) go: Barrier,
    end: Barrier,
    tickets: AtomicU64,
    /// The clock stops: no worker starts new operations, except for writes that must be completed.
    pub(super) over: AtomicBool,
    /// As `over`, for each worker.
    own_over: Vec<AtomicBool>,
    /// All workers stop, including writes that should be completed.
    stopped: AtomicBool,
    pub(super) ends_with_first: bool,
    /// When the first worker started, by `clock_nanos`: the phase's seconds and its deadlines
    /// count from there. Largest value: none has started.
    started: AtomicU64,
    pub(super) live: Arc<LiveCounts>,
    state: Mutex<State>,
    changed: Condvar,
}

/// Progress of the workers.
pub(super) struct State {
    /// Number of workers in the timed part.
    pub(super) running: usize,
    /// Number of workers that are not finished.
    unfinished: usize,
    /// The counters at the end of the timed part have been read.
    counted: bool,
}

impl PhaseBarrier {
    pub(super) fn new(phase: &Phase, count: usize) -> PhaseBarrier {
        PhaseBarrier {
            begin: Barrier::new(count + 1),
            go: Barrier::new(count + 1),
            end: Barrier::new(count + 1),
            tickets: AtomicU64::new(phase.tickets),
            over: AtomicBool::new(false),
            own_over: (0..count).map(|_| AtomicBool::new(false)).collect(),
            stopped: AtomicBool::new(false),
            ends_with_first: phase.end == End::First,
            started: AtomicU64::new(u64::MAX),
            live: Arc::new(LiveCounts::new(count)),
            state: Mutex::new(State { running: count, unfinished: count, counted: false }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.live.bytes()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while the state is locked")
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    pub(super) fn running(&self) -> usize {
        self.state().running
    }

    pub(super) fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.stopped.store(true, Ordering::Relaxed);
        self.own_over.iter().for_each(|over| over.store(true, Ordering::Relaxed));
    }

    /// Ends the phase, or those of its workers, whose time is over at `now`.
    pub(super) fn pass(&self, phase: &Phase, now: u64) {
        let passed_ms = now.saturating_sub(self.started.load(Ordering::Relaxed)) / 1_000_000;
        if matches!(phase.end, End::Time(ms) if passed_ms >= ms) {
            self.over.store(true, Ordering::Relaxed);
        }
        for (worker, over) in phase.workers.iter().zip(&self.own_over) {
            if worker.ends_ms.is_some_and(|ms| passed_ms >= ms) {
                over.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Whether a worker writes data for later phases, which must not stay incomplete.
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

    /// Waits until the counters of the timed part have been read: I/O before that would be in no
    /// figure.
    fn wait_counted(&self) {
        let counted = self.changed.wait_while(self.state(), |state| !state.counted);
        drop(counted.expect("no panic while the state is locked"));
    }

    /// The counters have been read: workers with writes to complete continue, and are waited for.
    pub(super) fn finish(&self, stop: &dyn Fn() -> bool) {
        self.change(|state| state.counted = true);
        while !self.wait(Duration::from_millis(20), |state| state.unfinished == 0) {
            if stop() {
                self.stop();
            }
        }
        self.end.wait();
    }

    /// Waits for `limit` or a change of the state; returns whether `so` holds.
    pub(super) fn wait(&self, limit: Duration, so: impl Fn(&State) -> bool) -> bool {
        let state = self.state();
        if so(&state) {
            return true;
        }
        let waited = self.changed.wait_timeout(state, limit);
        so(&waited.expect("no panic while the state is locked").0)
    }
}

/// A worker's interface to its phase.
struct WorkerGate<'f> {
    field: &'f PhaseBarrier,
    /// Ends the acts when set; `None` outside the timed part, whose acts are always completed.
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

/// Results of a worker.
pub(super) struct Done {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) bytes: u64,
    pub(super) ops: u64,
    pub(super) latency: LatencyRecorder,
    pub(super) errors: VerifyErrors,
}

/// Results of a worker at the stop of its clock.
struct Clocked {
    end: u64,
    bytes: u64,
    ops: u64,
    latency: LatencyRecorder,
}

impl Clocked {
    fn now(tally: &WorkerStats<'_>) -> Clocked {
        let (end, latency) = (clock_nanos(), tally.latency.clone());
        Clocked { end, bytes: tally.bytes, ops: tally.ops, latency }
    }
}

/// Given in the timed part; filled at its end for a worker that continues afterwards.
type Clock<'c> = Option<&'c mut Option<Clocked>>;

/// Runs a worker's part of a phase, from the first barrier to the acts after the timed part.
pub(super) fn work(
    worker: &Worker,
    index: u32,
    pass: u32,
    files: &[u64],
    hands: Result<Box<dyn WorkerIo + '_>, IoError>,
    field: &PhaseBarrier,
) -> Result<Done, IoError> {
    let mut tally = WorkerStats::new(field.live.of(index as usize));
    let completes = field.completes(worker);
    let over = match worker.ends_ms {
        _ if completes => &field.stopped,
        Some(_) => &field.own_over[index as usize],
        None => &field.over,
    };
    // After any error, the others must not wait for this worker at a barrier.
    let mut unusable = None;
    let mut hands = hands.map_err(|problem| unusable = Some(problem)).ok();
    let mut perform = |acts: &[Act], clock: Clock<'_>, tally: &mut WorkerStats<'_>| {
        let Some(hands) = &mut hands else {
            return Err(unusable.take().expect("nothing is performed after the first error"));
        };
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
    field.started.fetch_min(start, Ordering::Relaxed);
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
    Ok(Done { start, end, bytes, ops, latency, errors: tally.errors })
}

/// Ends the timed part of a worker before its acts are finished: completes the operations that it
/// has started and, if the sync is inside the timed part, syncs them.
fn end_early(
    acts: &[Act],
    hands: &mut dyn WorkerIo,
    tally: &mut WorkerStats<'_>,
) -> Result<(), IoError> {
    hands.settle(tally)?;
    let mut syncs = acts.iter().filter_map(|act| match act {
        Act::Sync { file, data_only } => Some(Step::Sync { file: *file, data_only: *data_only }),
        _ => None,
    });
    syncs.try_for_each(|step| hands.carry_out(&step, tally))?;
    hands.settle(tally)
}
