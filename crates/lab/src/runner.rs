//! Runs one workload on one target for a while and says what happened.
//!
//! ```text
//! | warm-up | sample 1 | sample 2 | ... | sample n | drain | check everything |
//!             ^ counters, latencies and CPU meters ^
//! ```
//! The samples follow each other without a pause, so that no sample has a slow start or a tail. A
//! run that is stopped adds what it has begun to its last sample: samples, counters of members
//! and CPU meters always cover the same time.
//!
//! Invariant: what is counted in a sample completed in that sample without an error; what was not
//! checked as the plan says is not reported as checked. Called from `bench`.

use std::time::Duration;

use array::{Completion, Counters, HostOp, Lease, clock_nanos};
use md::Sector;

use crate::meter::{CpuMeter, CpuUsed, IdleBaseline};
use crate::quantity::show_size;
use crate::record::{Latency, Sample};
use crate::stats::{self, LatencyRecorder};
use crate::target::{Findings, Target};
use crate::workload::{Spec, Step, Workload};

/// How long, how often, how strictly.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Before the first sample.
    pub warm_up: Duration,
    /// Length of a sample.
    pub sample: Duration,
    /// Number of samples.
    pub runs: u32,
    /// More samples than `runs`, at most so many, until they are steady.
    pub until_steady: Option<u32>,
    /// Every how many-th read is checked while the clock runs; 1 is all of them.
    pub check_every: u32,
}

impl Timing {
    /// Warm-up and samples together.
    pub fn total(&self) -> Duration {
        self.warm_up + self.sample * self.rounds_max()
    }

    /// Samples that are taken at most.
    pub fn rounds_max(&self) -> u32 {
        self.until_steady.unwrap_or(0).max(self.runs)
    }

    /// Whether these samples will do.
    fn enough(&self, samples: &[Sample]) -> bool {
        if samples.len() < self.runs as usize {
            return false;
        }
        let rates: Vec<f64> = samples.iter().map(Sample::mb_per_s).collect();
        samples.len() >= self.rounds_max() as usize || stats::steady(&rates) == Some(true)
    }
}

/// What a run brought.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In order.
    pub samples: Vec<Sample>,
    /// Of the requests that completed in samples.
    pub latency: Option<Latency>,
    /// CPU over all samples.
    pub cpu: CpuUsed,
    /// What the leaves moved during the samples.
    pub leaves: Vec<Counters>,
    /// What was wrong, during and after.
    pub findings: Findings,
    /// Whether all was checked that the plan says: not where somebody stopped it.
    pub checked: bool,
    /// What happened to members.
    pub events: Vec<array::Event>,
    /// Whether somebody stopped it early.
    pub stopped: bool,
}

struct Flight {
    step: Step,
    started: u64,
}

struct Run<'a> {
    target: &'a mut Target,
    workload: Workload,
    spec: Spec,
    timing: Timing,
    flights: Vec<Option<Flight>>,
    idle: Vec<(usize, Lease)>,
    reads: u32,
    findings: Findings,
    latency: LatencyRecorder,
    bytes: u64,
    ops: u64,
}

/// Runs a workload. `stop` is asked now and then; `progress` hears the seconds that have passed.
///
/// # Errors
/// When the area is too small for the workload.
pub fn run(
    target: &mut Target,
    spec: Spec,
    timing: Timing,
    baseline: Option<IdleBaseline>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, String> {
    let blocks = target.area_bytes() / spec.block_bytes;
    if blocks < u64::from(spec.jobs) {
        return Err(format!(
            "{}: {} job(s) with blocks of {} do not fit into {}; use a larger --size",
            spec.kind.name(),
            spec.jobs,
            show_size(spec.block_bytes),
            show_size(target.area_bytes())
        ));
    }
    let mut run = Run {
        workload: Workload::new(spec, blocks, 0x5eed),
        flights: Vec::new(),
        idle: Vec::new(),
        reads: 0,
        findings: Findings::default(),
        latency: LatencyRecorder::new(),
        bytes: 0,
        ops: 0,
        target,
        spec,
        timing,
    };
    for slot in 0..spec.in_flight() {
        let lease = run.target.driver.leases().take(spec.block_bytes as usize);
        run.idle.push((slot, lease.ok_or("the target has too few buffers")?));
        run.flights.push(None);
    }
    Ok(run.measure(baseline, stop, progress))
}

impl Run<'_> {
    fn measure(
        mut self,
        baseline: Option<IdleBaseline>,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(f64),
    ) -> Outcome {
        array::wait_precisely();
        let begin = clock_nanos();
        let warm = begin + self.timing.warm_up.as_nanos() as u64;
        self.until(warm, false, stop, &mut |now| progress(seconds(now - begin)));
        let before = self.target.driver.leaf_counters();
        if let Some(tap) = &self.target.tap {
            tap.begin(0, clock_nanos(), &before);
        }
        let meter = CpuMeter::start(baseline);
        let samples = self.samples(begin, stop, progress);
        let cpu = meter.stop();
        let after = self.target.driver.leaf_counters();
        if let Some(tap) = &self.target.tap {
            tap.end(0, clock_nanos(), &after);
        }
        let leaves = after.iter().zip(&before).map(|(after, before)| after.since(before)).collect();
        let stopped = samples.len() < self.timing.runs as usize || stop();
        self.drain();
        drop(std::mem::take(&mut self.idle));
        let mut checked = true;
        if self.spec.kind.is_write() || self.timing.check_every > 1 {
            let found = self.target.check_all(stop);
            self.findings.add(&found);
            checked = !stop();
        }
        Outcome {
            samples,
            latency: self.latency.latency(),
            cpu,
            leaves,
            findings: self.findings,
            checked,
            events: self.target.take_events(),
            stopped,
        }
    }

    fn samples(
        &mut self,
        begin: u64,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(f64),
    ) -> Vec<Sample> {
        let mut samples: Vec<Sample> = Vec::new();
        let mut start = clock_nanos();
        let first = start;
        for run in 1..=self.timing.rounds_max() {
            let end = first + self.timing.sample.as_nanos() as u64 * u64::from(run);
            (self.bytes, self.ops) = (0, 0);
            let now = self.until(end, true, stop, &mut |now| progress(seconds(now - begin)));
            let part = Sample { seconds: seconds(now - start), bytes: self.bytes, ops: self.ops };
            start = now;
            if now >= end {
                samples.push(part);
                if self.timing.enough(&samples) {
                    break;
                }
                continue;
            }
            match samples.last_mut() {
                Some(last) => {
                    last.seconds += part.seconds;
                    last.bytes += part.bytes;
                    last.ops += part.ops;
                }
                None if part.ops > 0 => samples.push(part),
                None => {}
            }
            break;
        }
        samples
    }

    /// Keeps the workload going until `end`; returns the time. Earlier than `end`: stopped.
    fn until(
        &mut self,
        end: u64,
        measured: bool,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> u64 {
        let mut done = Vec::new();
        let mut told = 0;
        loop {
            let now = clock_nanos();
            if now >= end {
                return now;
            }
            if now - told > 100_000_000 {
                if stop() {
                    return now.min(end - 1);
                }
                progress(now);
                if let Some(tap) = &self.target.tap {
                    tap.note(0, now, || self.target.driver.leaf_counters());
                }
                told = now;
            }
            self.submit(now);
            self.target.driver.poll(&mut done);
            if done.is_empty() {
                let limit = Duration::from_nanos(end - now).min(Duration::from_millis(100));
                self.target.driver.wait(limit, None);
            } else {
                let now = clock_nanos();
                done.drain(..).for_each(|completion| self.complete(completion, now, measured));
            }
        }
    }

    fn submit(&mut self, now: u64) {
        while !self.idle.is_empty() {
            let Some(step) = self.workload.begin() else { return };
            let (slot, mut lease) = self.idle.pop().expect("not empty");
            let sectors = self.spec.block_bytes / md::SECTOR_BYTES;
            let op = if self.spec.kind.is_write() {
                self.target.fill_block(step.block, lease.bytes_mut());
                HostOp::Write { fua: false }
            } else {
                HostOp::Read
            };
            self.flights[slot] = Some(Flight { step, started: now });
            let at = Sector(step.block * sectors);
            let submitted = self.target.driver.submit(op, at, sectors, Some(lease), slot as u64);
            assert!(submitted.is_ok(), "the target has room for all that is in flight");
        }
    }

    fn complete(&mut self, completion: Completion, now: u64, measured: bool) {
        let slot = completion.tag as usize;
        let flight = self.flights[slot].take().expect("a flight lands once");
        let lease = completion.lease.expect("reads and writes have a lease");
        self.workload.done(flight.step);
        if measured && completion.result.is_ok() {
            self.latency.record(now - flight.started);
            self.bytes += lease.len() as u64;
            self.ops += 1;
        }
        if let Err(error) = completion.result {
            self.findings.failed_requests += 1;
            self.findings.first_error.get_or_insert_with(|| error.to_string());
        } else if !self.spec.kind.is_write() && self.target.keeps_data() {
            self.reads = self.reads.wrapping_add(1);
            if self.reads.is_multiple_of(self.timing.check_every)
                && let Err(wrong) = self.target.check_block(flight.step.block, lease.bytes())
            {
                self.findings.wrong_reads += 1;
                self.findings.first_wrong.get_or_insert(wrong);
            }
        }
        self.idle.push((slot, lease));
    }

    /// Waits for what is still under way; it counts for nothing but the checks.
    fn drain(&mut self) {
        let mut done = Vec::new();
        while self.idle.len() < self.flights.len() {
            self.target.driver.poll(&mut done);
            if done.is_empty() {
                self.target.driver.wait(Duration::from_millis(100), None);
            }
            let now = clock_nanos();
            done.drain(..).for_each(|completion| self.complete(completion, now, false));
        }
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// What the generator itself costs per request, in nanoseconds: choosing the block, filling or
/// checking it, and the book-keeping, against a target that does nothing.
pub fn calibrate(spec: Spec, unit_bytes: usize, check_every: u32) -> f64 {
    const TIME: Duration = Duration::from_millis(20);
    let pattern = crate::pattern::Pattern::new(1, unit_bytes);
    let blocks = (256 << 20) / spec.block_bytes.max(1);
    let mut workload = Workload::new(spec, blocks.max(u64::from(spec.jobs)), 1);
    let mut latency = LatencyRecorder::new();
    let mut bytes = vec![0; spec.block_bytes as usize];
    let units = bytes.len() as u64 / unit_bytes as u64;
    pattern.fill(&mut bytes, 0, |_| 1);
    let (begin, mut ops) = (clock_nanos(), 0u64);
    loop {
        let started = clock_nanos();
        if started - begin > TIME.as_nanos() as u64 {
            return (started - begin) as f64 / ops.max(1) as f64;
        }
        for _ in 0..spec.in_flight().max(1) {
            let Some(step) = workload.begin() else { break };
            if spec.kind.is_write() {
                pattern.fill(&mut bytes, step.block * units, |_| ops as u32);
            } else if ops % u64::from(check_every) == 0 {
                std::hint::black_box(pattern.check(&bytes, 0, |_| 1).is_ok());
            }
            workload.done(step);
            latency.record(started - begin);
            ops += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::Path;

    use super::*;
    use crate::members::MemberSet;
    use crate::target::TargetSpec;
    use crate::workload::Kind;

    fn filled(members: &str) -> Target {
        let expr = "raid0(2)".parse().expect("an expression");
        let set: MemberSet = members.parse().expect("a set");
        let mut target = Target::new(&TargetSpec {
            expr: &expr,
            chunk_sectors: 128,
            members: &set.expand(2).expect("members"),
            directory: Path::new("/nonexistent"),
            bus_bytes_per_s: None,
            member_bytes: 2 << 20,
            stripe_cache_bytes: 1 << 20,
            queue_depth: usize::MAX,
            block_bytes: 65536,
            in_flight: 4,
            area_bytes: None,
            unit_bytes: 4096,
            kernels: parity::Kernels::best(),
            seed: 1,
        })
        .expect("a target");
        target.fill(&|| false, &mut |_| {}).expect("filled");
        target
    }

    fn spec(kind: Kind) -> Spec {
        Spec { kind, block_bytes: 65536, depth: 4, jobs: 1, read_ahead_bytes: 0 }
    }

    fn timing(sample_ms: u64, runs: u32) -> Timing {
        let sample = Duration::from_millis(sample_ms);
        Timing { warm_up: Duration::ZERO, sample, runs, until_steady: None, check_every: 1 }
    }

    #[test]
    fn samples_follow_each_other_and_count_what_the_members_moved() {
        for kind in Kind::ALL {
            let mut target = filled("mem");
            let begin = clock_nanos();
            let ran = run(&mut target, spec(kind), timing(10, 4), None, &|| false, &mut |_| {});
            let wall = seconds(clock_nanos() - begin);
            let ran = ran.expect("it runs");
            assert_eq!((ran.samples.len(), ran.stopped, ran.checked), (4, false, true));
            let total: f64 = ran.samples.iter().map(|sample| sample.seconds).sum();
            assert!((0.04..=wall).contains(&total), "{total} of {wall} seconds");
            let bytes: u64 = ran.samples.iter().map(|sample| sample.bytes).sum();
            assert!(ran.samples.iter().all(|sample| sample.bytes == sample.ops * 65536));
            // Memory ends everything at once: nothing is under way at an edge.
            let moved: u64 =
                ran.leaves.iter().map(|leaf| leaf.read_bytes + leaf.written_bytes).sum();
            assert_eq!(moved, bytes, "{kind:?}");
            assert!(ran.findings.is_clean() && ran.latency.is_some());
        }
    }

    #[test]
    fn a_stopped_run_covers_the_same_time_with_everything() {
        let (mut target, asked) = (filled("mem"), Cell::new(0));
        // Asked at every start of a sample, and each 100 ms.
        let stop = || asked.replace(asked.get() + 1) >= 4;
        let ran = run(&mut target, spec(Kind::RandWrite), timing(150, 9), None, &stop, &mut |_| {});
        let ran = ran.expect("it runs");
        assert!(ran.stopped && !ran.checked, "what was written was not read back");
        assert!((1..9).contains(&ran.samples.len()));
        let bytes: u64 = ran.samples.iter().map(|sample| sample.bytes).sum();
        let written: u64 = ran.leaves.iter().map(|leaf| leaf.written_bytes).sum();
        assert_eq!(written, bytes);
    }

    #[test]
    fn failed_requests_are_findings_and_no_throughput() {
        let mut target = filled("mem+fault:gone@2:mem");
        let ran =
            run(&mut target, spec(Kind::SeqRead), timing(10, 1), None, &|| false, &mut |_| {});
        let ran = ran.expect("it runs");
        assert!(ran.findings.failed_requests > 0, "{:?}", ran.findings);
        let read: u64 = ran.leaves.iter().map(|leaf| leaf.read_bytes).sum();
        let bytes: u64 = ran.samples.iter().map(|sample| sample.bytes).sum();
        assert_eq!(read, bytes, "what failed counts for nothing");
    }

    #[test]
    fn samples_go_on_until_they_are_steady_or_too_many() {
        let limited = |until_steady| Timing { until_steady, ..timing(10, 5) };
        let sample = |bytes| Sample { seconds: 1.0, bytes, ops: 1 };
        let rising: Vec<Sample> = (1..=9).map(|run| sample(run * 1_000_000)).collect();
        let level = [sample(5_000_000); 5];
        assert!(limited(None).enough(&rising[..5]) && !limited(None).enough(&level[..4]));
        assert!(!limited(Some(9)).enough(&rising[..5]) && limited(Some(9)).enough(&rising[..9]));
        let then = [&rising[..3], &level[..]].concat();
        assert!(!limited(Some(9)).enough(&then[..7]) && limited(Some(9)).enough(&then));
        assert_eq!(limited(Some(3)).rounds_max(), 5, "no fewer than asked for");

        let mut target = filled("mem");
        let until = Timing { until_steady: Some(40), ..timing(20, 5) };
        let ran = run(&mut target, spec(Kind::SeqRead), until, None, &|| false, &mut |_| {});
        let ran = ran.expect("it runs");
        assert!((5..=40).contains(&ran.samples.len()) && !ran.stopped);
        let rates: Vec<f64> = ran.samples.iter().map(Sample::mb_per_s).collect();
        let steady = stats::steady(&rates) == Some(true);
        assert!(steady || rates.len() == 40, "{rates:?}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut target = filled("mem");
        let spec = Spec { jobs: 65, ..spec(Kind::SeqRead) };
        let error = run(&mut target, spec, timing(1, 1), None, &|| false, &mut |_| {});
        let error = error.expect_err("64 blocks");
        assert!(error.contains("65 job(s) with blocks of 64 KiB do not fit into 4 MiB"), "{error}");
    }
}
