//! A generator: one shard of a target, one workload, and the samples of both.
//!
//! Invariant: during `run` a shard is polled by its own generator only; it must keep polling until
//! no shard has requests in flight: a request of one shard may have to be served by another. Called
//! only from `runner`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use crate::metrics::CounterSource;
use crate::metrics::meter::{CpuMeter, CpuUsed};
use array::{Completion, Counters, Driver, HostOp, Lease};
use host::sys::clock_nanos;
use md::Sector;
use results::record::{Sample, ThreadTime};
use results::stats::LatencyRecorder;
use rustix::time::{ClockId, clock_gettime};
use spec::workload::{Rate, Spec};

use super::Timing;
use super::arrivals::Arrivals;
use super::directions::Directions;
use crate::addresses::{Step, Workload};
use crate::background_run::{BackgroundRun, RANGE_BYTES};
use crate::live::LiveCounter;
use crate::measurement::OpenLoop;
use crate::target::CountBelow;
use crate::target_error::RunnerError;
use crate::verify::{ShadowMap, VerifyErrors};

/// Interval at which a generator polls `stop` and reports progress, ns.
const WATCH_NANOS: u64 = 100_000_000;

/// State shared by the generators of a run.
pub(super) struct Together {
    count: usize,
    here: AtomicUsize,
    given_up: AtomicBool,
    begin: OnceLock<u64>,
    /// The samples of each shard so far.
    samples: Mutex<Vec<Vec<Sample>>>,
    /// The samples are sufficient.
    enough: AtomicBool,
    drained: AtomicUsize,
}

impl Together {
    pub(super) fn new(count: usize) -> Together {
        Together {
            count,
            here: AtomicUsize::new(0),
            given_up: AtomicBool::new(false),
            begin: OnceLock::new(),
            samples: Mutex::new(vec![Vec::new(); count]),
            enough: AtomicBool::new(false),
            drained: AtomicUsize::new(0),
        }
    }

    /// Waits until every generator has a thread; `false` if a thread could not be started.
    pub(super) fn all_are_here(&self) -> bool {
        self.here.fetch_add(1, Ordering::AcqRel);
        while self.here.load(Ordering::Acquire) < self.count {
            if self.given_up.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Records a shard's sample. The verdict covers all shards together: the last shard to end a
    /// sample computes it.
    pub(super) fn note(&self, shard: usize, sample: Sample, timing: &Timing) {
        let mut samples = self.samples.lock().expect("no panic while the samples are locked");
        samples[shard].push(sample);
        let taken = samples[shard].len();
        if samples.iter().all(|other| other.len() >= taken) {
            let all: Vec<&[Sample]> = samples.iter().map(|other| &other[..taken]).collect();
            if timing.enough(&super::join(&all)) {
                self.enough.store(true, Ordering::Release);
            }
        }
    }

    /// Whether the samples are sufficient.
    pub(super) fn is_enough(&self) -> bool {
        self.enough.load(Ordering::Acquire)
    }

    /// Signals that not all threads could be started.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }
}

/// Results of one generator.
pub(super) struct Part {
    pub(super) samples: Vec<Sample>,
    pub(super) latencies: LatencyRecorder,
    /// Of an open loop.
    pub(super) open_loop: Option<OpenLoop>,
    /// Of a mixed workload.
    pub(super) directions: Option<Directions>,
    pub(super) errors: VerifyErrors,
    pub(super) leaves: Vec<Counters>,
    pub(super) thread: ThreadTime,
    /// CPU time of the whole process and machine; only the first shard measures it.
    pub(super) cpu: Option<CpuUsed>,
    /// Of background work, over the samples.
    pub(super) background_mb_per_s: Option<f64>,
}

struct Flight {
    step: Step,
    /// When it should have started: its arrival in an open loop, otherwise `submitted`.
    arrived: u64,
    submitted: u64,
}

/// The schedule of an open loop, and the times from submission to completion.
struct Schedule {
    arrivals: Arrivals,
    service: LatencyRecorder,
}

/// What is counted of a shard while it runs.
pub(super) struct Watched<'a> {
    /// Where the members' counters are recorded.
    pub(super) tap: Option<&'a CounterSource>,
    /// The counters of members below the driver's; `None`: those of the driver.
    pub(super) below: Option<&'a CountBelow>,
    /// For a display.
    pub(super) live: &'a LiveCounter,
    /// Background work of the array, in shard 0.
    pub(super) background: Option<&'a mut BackgroundRun>,
}

/// Generates one workload on one shard.
pub(super) struct Generator<'a> {
    driver: &'a mut Driver,
    shadow: &'a ShadowMap,
    /// Whether reads can be verified.
    keeps_data: bool,
    /// The counters of members below the driver's; `None`: those of the driver.
    below: Option<&'a CountBelow>,
    /// Where the members' counters are recorded.
    tap: Option<&'a CounterSource>,
    live: &'a LiveCounter,
    background: Option<&'a mut BackgroundRun>,
    workload: Workload,
    spec: Spec,
    timing: Timing,
    flights: Vec<Option<Flight>>,
    idle: Vec<(usize, Lease)>,
    /// Steps to be submitted; empty between submissions.
    steps: Vec<Step>,
    reads: u32,
    errors: VerifyErrors,
    latencies: LatencyRecorder,
    /// Of an open loop, once it has begun.
    schedule: Option<Schedule>,
    /// Of a mixed workload.
    directions: Option<Directions>,
    bytes: u64,
    ops: u64,
}

impl<'a> Generator<'a> {
    /// Allocates the buffers; nothing is in flight yet.
    pub(super) fn new(
        driver: &'a mut Driver,
        shadow: &'a ShadowMap,
        keeps_data: bool,
        watched: Watched<'a>,
        workload: Workload,
        spec: Spec,
        timing: Timing,
    ) -> Result<Generator<'a>, RunnerError> {
        let (mut flights, mut idle) = (Vec::new(), Vec::new());
        for slot in 0..spec.in_flight() {
            let lease = driver.leases().take(spec.block_bytes as usize);
            idle.push((slot, lease.ok_or(RunnerError::Buffers)?));
            flights.push(None);
        }
        Ok(Generator {
            driver,
            shadow,
            keeps_data,
            below: watched.below,
            tap: watched.tap,
            live: watched.live,
            background: watched.background,
            workload,
            spec,
            timing,
            flights,
            idle,
            steps: Vec::with_capacity(spec.in_flight()),
            reads: 0,
            errors: VerifyErrors::default(),
            latencies: LatencyRecorder::new(),
            schedule: None,
            directions: spec.kind.is_mixed().then(Directions::default),
            bytes: 0,
            ops: 0,
        })
    }

    /// Runs warm-up, samples and drain. `watch` receives the elapsed seconds and returns whether to
    /// stop.
    pub(super) fn run(
        mut self,
        shard: usize,
        together: &Together,
        watch: &mut dyn FnMut(f64) -> bool,
    ) -> Part {
        host::sys::wait_precisely();
        let begin = *together.begin.get_or_init(clock_nanos);
        self.schedule = self.spec.rate.map(|rate| self.schedule(rate, shard, together, begin));
        let mut watch = |now: u64| watch(seconds(now - begin));
        let warm = begin + self.timing.warm_up.as_nanos() as u64;
        self.until(warm, false, shard, &mut watch);
        let before = self.counters(shard);
        if let Some(tap) = self.tap {
            tap.begin(shard as u16, clock_nanos(), &before);
        }
        let meter = (shard == 0).then(CpuMeter::of_other_threads);
        let cpu_before = thread_seconds();
        let arrived_before = self.arrivals(clock_nanos()).0;
        let (sampled_at, passed) = (clock_nanos(), self.background_bytes());
        let samples = self.samples(shard, together, &mut watch);
        let (took, passed) =
            (clock_nanos() - sampled_at, self.background_bytes().saturating_sub(passed));
        let cpu_after = thread_seconds();
        let cpu = meter.map(|meter| meter.stop());
        let (arrived, waiting) = self.arrivals(clock_nanos());
        let after = self.counters(shard);
        if let Some(tap) = self.tap {
            tap.end(shard as u16, clock_nanos(), &after);
        }
        self.drain(together);
        let has_background = self.background.is_some() && took > 0;
        let open_loop = self.schedule.map(|schedule| OpenLoop {
            service: schedule.service,
            arrivals: arrived - arrived_before,
            waiting,
        });
        Part {
            samples,
            latencies: self.latencies,
            open_loop,
            directions: self.directions,
            errors: self.errors,
            leaves: after.iter().zip(&before).map(|(after, before)| after.since(before)).collect(),
            thread: ThreadTime { name: format!("lane-{shard}"), seconds: cpu_after - cpu_before },
            cpu,
            background_mb_per_s: has_background.then(|| passed as f64 / 1e6 / seconds(took)),
        }
    }

    /// What background work has done so far, in bytes of each member.
    fn background_bytes(&self) -> u64 {
        self.background.as_ref().map_or(0, |run| run.member_bytes(self.driver))
    }

    /// The shard's part of a stated load, from the start of the warm-up.
    fn schedule(&self, rate: Rate, shard: usize, together: &Together, begin: u64) -> Schedule {
        let seed = super::way(self.timing.seed, shard as u16).rotate_left(32);
        let arrivals = Arrivals::new(rate, shard, together.count, begin, seed);
        Schedule { arrivals, service: LatencyRecorder::new() }
    }

    /// Arrivals up to `now`, and those that wait to be submitted; none in a closed loop.
    fn arrivals(&self, now: u64) -> (u64, u64) {
        self.schedule.as_ref().map_or((0, 0), |schedule| schedule.arrivals.counts(now))
    }

    /// The counters of the members: what lies below the driver is counted by the first shard.
    fn counters(&self, shard: usize) -> Vec<Counters> {
        match self.below {
            Some(below) if shard == 0 => below(),
            Some(_) => Vec::new(),
            None => self.driver.leaf_counters(),
        }
    }

    fn samples(
        &mut self,
        shard: usize,
        together: &Together,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> Vec<Sample> {
        let mut samples: Vec<Sample> = Vec::new();
        let mut start = clock_nanos();
        let first = start;
        for run in 1..=self.timing.rounds_max() {
            let end = first + self.timing.sample.as_nanos() as u64 * u64::from(run);
            (self.bytes, self.ops) = (0, 0);
            let passed = self.background_bytes();
            let now = self.until(end, true, shard, watch);
            if self.flights.is_empty() {
                // The figure of a workload without requests is that of the background work.
                self.bytes = self.background_bytes().saturating_sub(passed);
                self.ops = self.bytes / RANGE_BYTES;
            }
            let part = Sample { seconds: seconds(now - start), bytes: self.bytes, ops: self.ops };
            self.directions.iter_mut().for_each(Directions::end_sample);
            start = now;
            if now >= end {
                samples.push(part);
                together.note(shard, part, &self.timing);
                let runs = self.timing.runs as usize;
                if samples.len() >= runs && together.is_enough() {
                    break;
                }
                continue;
            }
            match samples.last_mut() {
                Some(last) => add(last, &part),
                None if part.ops > 0 => samples.push(part),
                None => {}
            }
            break;
        }
        samples
    }

    /// Runs the workload until the first request that completes at `end` or later, and returns the
    /// time of that completion: a sample lasts from a completion to a completion, so that its rate
    /// does not depend on its offset within a request. If nothing completes for a sample's length,
    /// it ends without a completion. A time before `end` means that the run was stopped.
    fn until(
        &mut self,
        end: u64,
        measured: bool,
        shard: usize,
        watch: &mut dyn FnMut(u64) -> bool,
    ) -> u64 {
        let mut done = Vec::new();
        let mut last_watch = 0;
        // Without requests there is no completion to wait for.
        let patience = if self.flights.is_empty() { Duration::ZERO } else { self.timing.sample };
        let last = end + patience.as_nanos() as u64;
        loop {
            let now = clock_nanos();
            if now >= last {
                return now;
            }
            if now - last_watch > WATCH_NANOS {
                if watch(now) {
                    return now;
                }
                if let Some(tap) = self.tap {
                    tap.note(shard as u16, now, || self.counters(shard));
                }
                last_watch = now;
            }
            self.submit(now);
            if let Some(run) = &mut self.background {
                run.tend(self.driver);
            }
            self.driver.poll(&mut done);
            if done.is_empty() {
                let limit = self.until_next(now).min(last - now).min(WATCH_NANOS);
                self.driver.wait(Duration::from_nanos(limit), None);
            } else {
                let now = clock_nanos();
                done.drain(..).for_each(|completion| self.complete(completion, now, measured));
                if now >= end {
                    return now;
                }
            }
        }
    }

    /// Time until an arrival that could be submitted, ns; in a closed loop only completions are
    /// waited for.
    fn until_next(&self, now: u64) -> u64 {
        match &self.schedule {
            Some(schedule) if !self.idle.is_empty() => {
                schedule.arrivals.until_next(now).unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        }
    }

    fn submit(&mut self, now: u64) {
        // All steps are drawn before the first is submitted, so that the cache misses of their
        // versions in the map overlap.
        let mut steps = std::mem::take(&mut self.steps);
        let room = match &mut self.schedule {
            Some(schedule) => schedule.arrivals.due(now, self.idle.len()),
            None => self.idle.len(),
        };
        let drawn = std::iter::from_fn(|| self.workload.begin()).take(room);
        steps.extend(drawn);
        let block_bytes = self.spec.block_bytes;
        let sectors = block_bytes / md::SECTOR_BYTES;
        let writes = steps.iter().filter(|step| step.write);
        writes.for_each(|step| self.shadow.touch(step.block * block_bytes));
        for step in steps.drain(..) {
            let (slot, mut lease) = self.idle.pop().expect("as many as steps");
            let op = if step.write {
                self.shadow.fill_next(step.block * block_bytes, lease.bytes_mut());
                HostOp::Write { fua: false }
            } else {
                HostOp::Read
            };
            let schedule = self.schedule.as_mut();
            let arrived = schedule.map_or(now, |schedule| schedule.arrivals.take());
            self.flights[slot] = Some(Flight { step, arrived, submitted: now });
            let at = Sector(step.block * sectors);
            let submitted = self.driver.submit(op, at, sectors, Some(lease), slot as u64);
            assert!(submitted.is_ok(), "the target has room for all that is in flight");
        }
        self.steps = steps;
    }

    fn complete(&mut self, completion: Completion, now: u64, measured: bool) {
        let slot = completion.tag as usize;
        let flight = self.flights[slot].take().expect("a flight lands once");
        let lease = completion.lease.expect("reads and writes have a lease");
        self.workload.done(flight.step);
        if completion.result.is_ok() {
            self.live.count(lease.len() as u64, 1, now - flight.arrived);
        }
        if measured && completion.result.is_ok() {
            self.latencies.record(now - flight.arrived);
            if let Some(directions) = &mut self.directions {
                directions.count(flight.step.write, lease.len() as u64, now - flight.arrived);
            }
            if let Some(schedule) = &mut self.schedule {
                schedule.service.record(now - flight.submitted);
            }
            self.bytes += lease.len() as u64;
            self.ops += 1;
        }
        if let Err(error) = completion.result {
            self.errors.failed(error);
        } else if self.keeps_data && !flight.step.write {
            self.reads = self.reads.wrapping_add(1);
            let at = flight.step.block * self.spec.block_bytes;
            if self.reads.is_multiple_of(self.timing.check_every)
                && let Err(position) = self.shadow.check(0, at, lease.bytes())
            {
                self.errors.wrong(position);
            }
        }
        self.idle.push((slot, lease));
    }

    /// Waits for the requests in flight, here and in all other shards; these are checked, but not
    /// counted in samples.
    fn drain(&mut self, together: &Together) {
        let mut done = Vec::new();
        let mut counted = false;
        loop {
            if self.idle.len() == self.flights.len() && !counted {
                counted = true;
                together.drained.fetch_add(1, Ordering::AcqRel);
            }
            if counted && together.drained.load(Ordering::Acquire) == together.count {
                return;
            }
            self.driver.poll(&mut done);
            if done.is_empty() {
                let limit = if together.count == 1 { 100 } else { 1 };
                self.driver.wait(Duration::from_millis(limit), None);
            }
            let now = clock_nanos();
            done.drain(..).for_each(|completion| self.complete(completion, now, false));
        }
    }
}

pub(super) fn add(sample: &mut Sample, more: &Sample) {
    sample.seconds += more.seconds;
    sample.bytes += more.bytes;
    sample.ops += more.ops;
}

pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// CPU time of the calling thread.
fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
