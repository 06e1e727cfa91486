//! Runs one workload on one target and returns its samples, latencies and errors.
//!
//! ```text
//! | warm-up | sample 1 | sample 2 | ... | sample n | drain | check everything |
//!             ^ counters, latencies and CPU meters ^
//!
//! on several cores, each with a shard of the array and a generator of its own:
//! core 0  | warm-up | sample 1 | ... | sample n | drain -- | \
//! core 1  | warm-up | sample 1 | ... | sample n | drain -- | / joined; then one thread checks all
//! ```
//! The samples follow each other without a pause, so that no sample has a slow start or a tail.
//! Each lasts from a completion to a completion: the bytes between two completions over the time
//! between them, so that a sample of fifty blocks is not wrong by one of them. A run that is
//! stopped adds the incomplete sample to the last one: samples, counters of members and CPU meters
//! always cover the same time.
//!
//! Invariant: requests counted in a sample completed in that sample without an error; data that was
//! not checked as planned is not reported as checked. Called from `bench` and `engine_table`.

mod arrivals;
mod directions;
mod generator;

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use array::Driver;
use host::sys::clock_nanos;
use results::record::Sample;
use results::stats::{self, LatencyRecorder};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use spec::rng::SplitMix64;
use spec::workload::Spec;

use self::generator::{Generator, Part, Together, Watched};
use crate::addresses::{Share, Workload};
use crate::live::LiveCounts;
use crate::measurement::{Measurement, OpenLoop, add_counters};
use crate::target::Target;
use crate::target_error::RunnerError;
use crate::verify::{DataPattern, Version};

/// Timing of a run: lengths, number of samples, strictness of checks.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Warm-up before the first sample.
    pub warm_up: Duration,
    /// Length of a sample.
    pub sample: Duration,
    /// Number of samples.
    pub runs: u32,
    /// Upper limit of samples, beyond `runs`, until they are steady; `None`: exactly `runs`.
    pub until_steady: Option<u32>,
    /// Every how many-th read is checked during the samples; 1: all of them.
    pub check_every: u32,
    /// Whether to leave the final check to the caller, for several consecutive runs.
    pub check_later: bool,
    /// Seed of the random addresses.
    pub seed: u64,
}

impl Timing {
    /// Warm-up and samples together.
    pub fn total(&self) -> Duration {
        self.warm_up + self.sample * self.rounds_max()
    }

    /// Upper limit of samples.
    pub fn rounds_max(&self) -> u32 {
        self.until_steady.unwrap_or(0).max(self.runs)
    }

    /// Whether these samples are sufficient.
    fn enough(&self, samples: &[Sample]) -> bool {
        if samples.len() < self.runs as usize {
            return false;
        }
        let rates: Vec<f64> = samples.iter().map(Sample::mb_per_s).collect();
        samples.len() >= self.rounds_max() as usize || stats::steady(&rates) == Some(true)
    }
}

/// Progress of a run.
pub struct Running<'r> {
    /// Elapsed seconds, warm-up included.
    pub seconds: f64,
    /// What the generators have done so far.
    pub live: &'r Arc<LiveCounts>,
}

/// Interval at which a run on several cores polls `stop`.
const LOOK: Duration = Duration::from_millis(50);

/// Runs a workload. `stop` is polled; `progress` is called a few times a second. On a target of
/// several shards, each core has the depth and the jobs of `spec`.
///
/// # Errors
/// When the area is too small for the workload, or there are fewer CPUs than shards.
pub fn run(
    target: &mut Target,
    spec: Spec,
    timing: Timing,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Running<'_>),
) -> Result<Measurement, RunnerError> {
    let (area_bytes, keeps_data) = (target.area_bytes(), target.keeps_data());
    let shards = target.shards.len();
    let live = Arc::new(LiveCounts::new(shards));
    let mut generators = Vec::new();
    let mut background = target.background.as_mut();
    for (shard, driver) in (0..).zip(&mut target.shards) {
        let share = share(driver, &spec, area_bytes, shard)?;
        // Each core has its own random sequence over its share.
        let workload = Workload::new(spec, share, way(timing.seed, shard));
        let watched = Watched {
            tap: target.tap.as_deref(),
            below: target.below.as_ref(),
            live: live.of(usize::from(shard)),
            background: background.take(),
        };
        let shadow = &target.shadow;
        let generator =
            Generator::new(driver, shadow, keeps_data, watched, workload, spec, timing)?;
        generators.push(generator);
    }
    let together = Together::new(shards);
    let mut parts = match generators.len() {
        1 => {
            let only = generators.pop().expect("one shard");
            vec![only.run(0, &together, &mut |elapsed| {
                let stopped = stop();
                if !stopped {
                    progress(Running { seconds: elapsed, live: &live });
                }
                stopped
            })]
        }
        _ => on_threads(generators, &together, stop, progress, &live)?,
    };
    let mut measured = Measurement::none();
    measured.cpu = parts[0].cpu.take();
    measured.served_below = target.below.is_some();
    measured.samples = join(&parts.iter().map(|part| &part.samples[..]).collect::<Vec<_>>());
    let directions = parts.iter_mut().filter_map(|part| part.directions.take()).collect();
    measured.directions = directions::join(directions, &measured.samples);
    measured.background_mb_per_s = parts[0].background_mb_per_s;
    for part in parts {
        measured.errors.add(&part.errors);
        measured.latency.merge(&part.latencies);
        OpenLoop::join(&mut measured.open_loop, part.open_loop);
        add_counters(&mut measured.members, &part.leaves);
        measured.shards.push(part.thread);
    }
    measured.stopped = measured.samples.len() < timing.runs as usize || stop();
    if !timing.check_later && (spec.kind.writes() || timing.check_every > 1) {
        measured.errors.add(&target.check_all(stop));
        measured.checked = !stop();
    }
    measured.checked &= keeps_data;
    measured.events = target.take_events();
    Ok(measured)
}

/// Seed of a shard's addresses: different for each seed and shard.
fn way(seed: u64, shard: u16) -> u64 {
    SplitMix64(seed).draw().wrapping_add(0x5eed + u64::from(shard))
}

/// The blocks of a shard's generator: those that begin in the units of the shard.
fn share(driver: &Driver, spec: &Spec, area_bytes: u64, shard: u16) -> Result<Share, RunnerError> {
    let blocks = area_bytes / spec.block_bytes;
    let sharding = driver.sharding();
    let share = Share::of_shard(blocks, spec.block_bytes / md::SECTOR_BYTES, sharding, shard);
    if share.count() >= u64::from(spec.jobs) {
        return Ok(share);
    }
    Err(RunnerError::TooSmall {
        workload: spec.kind.name(),
        jobs: spec.jobs,
        shards: sharding.shards(),
        block_bytes: spec.block_bytes,
        area_bytes,
    })
}

/// The CPUs that this thread may run on.
///
/// # Errors
/// An error of `sched_getaffinity`.
pub fn allowed_cpus() -> Result<Vec<usize>, RunnerError> {
    let allowed = sched_getaffinity(None).map_err(|error| RunnerError::Affinity(error.into()))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Pins the calling thread, and the threads that it starts later, to these CPUs.
///
/// # Errors
/// An error of `sched_setaffinity`.
pub fn hold_to(cpus: &[usize]) -> Result<(), RunnerError> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set)
        .map_err(|error| RunnerError::Pin { cpus: cpus.to_vec(), source: error.into() })
}

/// Runs each generator on a separate thread, pinned to a separate CPU; the caller only supervises.
fn on_threads(
    generators: Vec<Generator<'_>>,
    together: &Together,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Running<'_>),
    live: &Arc<LiveCounts>,
) -> Result<Vec<Part>, RunnerError> {
    let (cpus, count) = (allowed_cpus()?, generators.len());
    if cpus.len() < count {
        return Err(RunnerError::Cores { wanted: count, available: cpus.len() });
    }
    let (begin, stopped) = (clock_nanos(), AtomicBool::new(false));
    let mut parts: Vec<Option<Part>> = (0..count).map(|_| None).collect();
    std::thread::scope(|scope| {
        let (ended, ends) = mpsc::channel();
        for ((shard, generator), cpu) in generators.into_iter().enumerate().zip(cpus) {
            let (ended, stopped) = (ended.clone(), &stopped);
            let thread = std::thread::Builder::new().name(format!("lane-{shard}"));
            let body = move || {
                // A thread that cannot be pinned still measures, slightly less exactly.
                let _ = hold_to(&[cpu]);
                let mut watch = |_: f64| stopped.load(Ordering::Relaxed);
                if together.all_are_here() {
                    let part = generator.run(shard, together, &mut watch);
                    let _ = ended.send((shard, part));
                }
            };
            if let Err(source) = thread.spawn_scoped(scope, body) {
                together.give_up();
                return Err(RunnerError::Thread { shard, source });
            }
        }
        drop(ended);
        let mut left = count;
        while left > 0 {
            match ends.recv_timeout(LOOK) {
                Ok((shard, part)) => {
                    parts[shard] = Some(part);
                    left -= 1;
                }
                Err(RecvTimeoutError::Timeout) => {
                    stopped.fetch_or(stop(), Ordering::Relaxed);
                    let seconds = generator::seconds(clock_nanos() - begin);
                    progress(Running { seconds, live });
                }
                // A thread has panicked; the scope propagates the panic.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    })?;
    Ok(parts.into_iter().map(|part| part.expect("every thread has ended")).collect())
}

/// Merges the samples of all shards one by one: they begin and end together, except for the last
/// request. Their rates are added up, each over its own time; the duration of the merged sample
/// gives that rate for the bytes of all. If one shard was stopped earlier than another, the surplus
/// of the other is in the last sample.
fn join(shards: &[&[Sample]]) -> Vec<Sample> {
    let count = shards.iter().map(|samples| samples.len()).min().unwrap_or(0);
    let mut joined = vec![Sample::default(); count];
    let mut rates = vec![0.0; count];
    for samples in shards {
        let mut folded = samples[..count].to_vec();
        if let Some(last) = folded.last_mut() {
            samples[count..].iter().for_each(|more| generator::add(last, more));
        }
        for ((all, rate), sample) in joined.iter_mut().zip(&mut rates).zip(&folded) {
            all.seconds = all.seconds.max(sample.seconds);
            all.bytes += sample.bytes;
            all.ops += sample.ops;
            *rate += sample.mb_per_s() * 1e6;
        }
    }
    for (all, rate) in joined.iter_mut().zip(rates).filter(|(_, rate)| *rate > 0.0) {
        all.seconds = all.bytes as f64 / rate;
    }
    joined
}

/// Overhead of the generator per request, in nanoseconds: choosing the block, filling or checking
/// it, and the bookkeeping, against a null target.
pub fn calibrate(spec: Spec, unit_bytes: usize, check_every: u32) -> f64 {
    const TIME: Duration = Duration::from_millis(20);
    // More than any CPU does in that time: the clock of a kernel in model time stands still then.
    const MOST_BYTES: u64 = 1 << 30;
    let pattern = DataPattern::new(1, unit_bytes);
    let blocks = (256 << 20) / spec.block_bytes.max(1);
    let mut workload = Workload::new(spec, Share::all(blocks.max(u64::from(spec.jobs))), 1);
    let mut latency = LatencyRecorder::new();
    let mut bytes = vec![0; spec.block_bytes as usize];
    let units = bytes.len() as u64 / unit_bytes as u64;
    let first = || iter::repeat(Version::FIRST);
    pattern.fill(&mut bytes, 0, first());
    let mut version = Version::FIRST;
    // The overhead is wall time, whatever clock the thread uses.
    let (begin, mut ops) = (Instant::now(), 0u64);
    loop {
        let passed = begin.elapsed();
        if passed > TIME || ops * spec.block_bytes > MOST_BYTES {
            return passed.as_nanos() as f64 / ops.max(1) as f64;
        }
        for _ in 0..spec.in_flight().max(1) {
            let Some(step) = workload.begin() else { break };
            if step.write {
                version = version.next_fill();
                pattern.fill(&mut bytes, step.block * units, iter::repeat(version));
            } else if ops % u64::from(check_every) == 0 {
                std::hint::black_box(pattern.check(&bytes, 0, first()).is_ok());
            }
            workload.done(step);
            latency.record(passed.as_nanos() as u64);
            ops += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use md::nested::ArrayExpr;
    use spec::case::{ArrayConfig, Knobs, RunConfig};
    use spec::members::MemberSet;
    use spec::workload::{Kind, Rate, RateProcess};

    use super::generator::seconds;
    use super::*;
    use crate::target::Requests;

    fn filled(members: &str) -> Target {
        filled_in_shards("raid0(2)", members, 1)
    }

    fn filled_in_shards(array: &str, members: &str, shards: u16) -> Target {
        filled_with(array, members, shards, u64::from(shards) * (2 << 20))
    }

    fn filled_with(array: &str, members: &str, shards: u16, member_bytes: u64) -> Target {
        let expr: ArrayExpr = array.parse().expect("an expression");
        let set: MemberSet = members.parse().expect("a set");
        let config = ArrayConfig {
            chunk_bytes: 64 << 10,
            knobs: Knobs { stripe_cache_bytes: Some(1 << 20), ..Knobs::default() },
            ..ArrayConfig::new(expr, &set, member_bytes).expect("an array")
        };
        let run = RunConfig { cores: Some(shards.into()), ..RunConfig::quick() };
        let requests = Requests { block_bytes: 65536, unit_bytes: 4096, in_flight: 4, spare: 0 };
        let mut target = Target::new(&config, &run, requests).expect("a target");
        target.fill(&|| false, &mut |_| {}).expect("filled");
        target
    }

    fn spec(kind: Kind) -> Spec {
        Spec {
            kind,
            block_bytes: 65536,
            depth: 4,
            jobs: 1,
            read_ahead_bytes: 0,
            read_percent: None,
            rate: None,
            background: None,
        }
    }

    fn timing(sample_ms: u64, runs: u32) -> Timing {
        let sample = Duration::from_millis(sample_ms);
        Timing {
            warm_up: Duration::ZERO,
            sample,
            runs,
            until_steady: None,
            check_every: 1,
            check_later: false,
            seed: 1,
        }
    }

    #[test]
    fn samples_follow_each_other_and_count_what_the_members_moved() {
        for kind in Kind::ALL {
            let mut target = filled("mem");
            let begin = clock_nanos();
            let ran = run(&mut target, spec(kind), timing(10, 4), &|| false, &mut |_| {});
            let wall = seconds(clock_nanos() - begin);
            let ran = ran.expect("it runs");
            assert_eq!((ran.samples.len(), ran.stopped, ran.checked), (4, false, true));
            let total: f64 = ran.samples.iter().map(|sample| sample.seconds).sum();
            assert!((0.04..=wall).contains(&total), "{total} of {wall} seconds");
            let bytes: u64 = ran.samples.iter().map(|sample| sample.bytes).sum();
            assert!(ran.samples.iter().all(|sample| sample.bytes == sample.ops * 65536));
            // Memory completes everything immediately: nothing is in flight at an edge.
            let moved: u64 =
                ran.members.iter().map(|leaf| leaf.read_bytes + leaf.written_bytes).sum();
            assert_eq!(moved, bytes, "{kind:?}");
            assert!(ran.errors.is_clean() && ran.latency.count() > 0);
        }
    }

    #[test]
    fn shards_generate_side_by_side_and_everything_is_checked() {
        if allowed_cpus().expect("the system says").len() < 2 {
            println!("skipped: two CPUs are required");
            return;
        }
        for kind in Kind::ALL {
            // Units of 4 MiB are 32 rows: blocks of 192 KiB begin in one and end in the next.
            let mut target = filled_in_shards("raid5(3)", "mem", 2);
            let spec = Spec { block_bytes: 192 << 10, ..spec(kind) };
            let spec = if kind.is_sequential() { spec } else { Spec { block_bytes: 4096, ..spec } };
            let ran = run(&mut target, spec, timing(30, 3), &|| false, &mut |_| {});
            let ran = ran.expect("it runs");
            assert_eq!((ran.samples.len(), ran.stopped, ran.checked), (3, false, true));
            assert!(ran.errors.is_clean(), "{kind:?}: {:?}", ran.errors);
            let names: Vec<&str> = ran.shards.iter().map(|shard| shard.name.as_str()).collect();
            assert_eq!(names, ["lane-0", "lane-1"]);
            assert!(ran.shards.iter().all(|shard| shard.seconds > 0.0), "{:?}", ran.shards);
            // A sample that began late, because the machine was busy, is shorter.
            let total: f64 = ran.samples.iter().map(|sample| sample.seconds).sum();
            assert!(total >= 0.045, "three samples of 30 ms: {total}");
            let (bytes, ops) = ran
                .samples
                .iter()
                .fold((0, 0), |(bytes, ops), sample| (bytes + sample.bytes, ops + sample.ops));
            assert!(ops > 0);
            assert_eq!(bytes, ops * spec.block_bytes);
            assert_eq!(ran.latency.count(), ops, "both shards' latencies");
        }
    }

    #[test]
    fn a_wrong_bit_is_found_in_either_shard() {
        if allowed_cpus().expect("the system says").len() < 2 {
            println!("skipped: two CPUs are required");
            return;
        }
        // Units of 4 MiB: the first is shard 0's, the second shard 1's, 2 MiB of each member.
        for at in ["100", "2M"] {
            let members = format!("mem+fault:flip@{at}:mem");
            let mut target = filled_in_shards("raid0(2)", &members, 2);
            let every = Timing { check_later: true, ..timing(100, 1) };
            let ran = run(&mut target, spec(Kind::RandRead), every, &|| false, &mut |_| {});
            assert!(ran.expect("it runs").errors.wrong_reads > 0, "{at}");
        }
    }

    #[test]
    fn reads_and_writes_of_a_mixed_workload_are_together_the_whole() {
        for shards in 1..=allowed_cpus().expect("the system says").len().min(2) as u16 {
            for kind in [Kind::SeqMixed, Kind::RandMixed] {
                let mut target = filled_in_shards("raid5(3)", "mem", shards);
                let spec = Spec { block_bytes: 4096, read_percent: Some(60), ..spec(kind) };
                let ran = run(&mut target, spec, timing(30, 3), &|| false, &mut |_| {});
                let ran = ran.expect("it runs");
                assert!(ran.errors.is_clean() && ran.checked, "{kind:?}: {:?}", ran.errors);
                let by_direction = ran.directions.expect("it is mixed");
                let (reads, writes) = (&by_direction.reads, &by_direction.writes);
                for ((all, reads), writes) in
                    ran.samples.iter().zip(&reads.samples).zip(&writes.samples)
                {
                    assert_eq!(all.ops, reads.ops + writes.ops);
                    assert_eq!(all.bytes, reads.bytes + writes.bytes);
                    assert_eq!((all.seconds, all.seconds), (reads.seconds, writes.seconds));
                }
                let ops = |part: &[Sample]| part.iter().map(|sample| sample.ops).sum::<u64>();
                assert_eq!(reads.latency.count(), ops(&reads.samples));
                assert_eq!(writes.latency.count(), ops(&writes.samples));
                let share = ops(&reads.samples) as f64 / ops(&ran.samples) as f64;
                // Some thousand requests at least, of which the standard deviation is 1 %.
                assert!((share - 0.6).abs() < 0.06, "{kind:?}: {share}");
            }
        }
        let mut target = filled("mem");
        let ran = run(&mut target, spec(Kind::SeqRead), timing(5, 1), &|| false, &mut |_| {});
        assert!(ran.expect("it runs").directions.is_none());
    }

    #[test]
    fn a_wrong_bit_is_found_in_a_mixed_run() {
        for kind in [Kind::SeqMixed, Kind::RandMixed] {
            // Bits that flip on every read, whatever was written before.
            let mut target = filled("mem+fault:flip@100:mem");
            let spec = Spec { read_percent: Some(80), ..spec(kind) };
            let later = Timing { check_later: true, ..timing(100, 1) };
            let ran = run(&mut target, spec, later, &|| false, &mut |_| {});
            let errors = ran.expect("it runs").errors;
            assert!(errors.wrong_reads > 0 && errors.failed_requests == 0, "{kind:?}: {errors:?}");
        }
    }

    #[test]
    fn samples_of_shards_are_joined_and_what_one_had_more_is_in_the_last() {
        let sample = |seconds, ops| Sample { seconds, bytes: ops * 512, ops };
        let one = [sample(1.0, 10), sample(1.0, 20), sample(0.5, 5)];
        let other = [sample(1.25, 7), sample(1.0, 8)];
        let joined = join(&[&one, &other]);
        assert_eq!(joined.iter().map(|sample| sample.ops).collect::<Vec<_>>(), [17, 33]);
        // The merged rate: the sum of each shard's rate over its own time.
        for (sample, rate) in joined.iter().zip([10.0 + 7.0 / 1.25, 25.0 / 1.5 + 8.0]) {
            assert!((sample.iops() / rate - 1.0).abs() < 1e-9, "{sample:?}");
        }
        assert_eq!(join(&[&one, &[]]), []);
    }

    #[test]
    fn a_stopped_run_covers_the_same_time_with_everything() {
        let (mut target, asked) = (filled("mem"), Cell::new(0));
        // Called at every start of a sample, and each 100 ms.
        let stop = || asked.replace(asked.get() + 1) >= 4;
        let ran = run(&mut target, spec(Kind::RandWrite), timing(150, 9), &stop, &mut |_| {});
        let ran = ran.expect("it runs");
        assert!(ran.stopped && !ran.checked, "what was written was not read back");
        assert!((1..9).contains(&ran.samples.len()));
        let bytes: u64 = ran.samples.iter().map(|sample| sample.bytes).sum();
        let written: u64 = ran.members.iter().map(|leaf| leaf.written_bytes).sum();
        assert_eq!(written, bytes);
    }

    #[test]
    fn failed_requests_are_errors_and_no_throughput() {
        let mut target = filled("mem+fault:gone@2:mem");
        let ran = run(&mut target, spec(Kind::SeqRead), timing(10, 1), &|| false, &mut |_| {});
        let ran = ran.expect("it runs");
        assert!(ran.errors.failed_requests > 0, "{:?}", ran.errors);
        let read: u64 = ran.members.iter().map(|leaf| leaf.read_bytes).sum();
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

        for shards in 1..=allowed_cpus().expect("the system says").len().min(2) as u16 {
            let mut target = filled_in_shards("raid0(2)", "mem", shards);
            let until = Timing { until_steady: Some(40), ..timing(20, 5) };
            let ran = run(&mut target, spec(Kind::SeqRead), until, &|| false, &mut |_| {});
            let ran = ran.expect("it runs");
            assert!((5..=40).contains(&ran.samples.len()) && !ran.stopped);
            let rates: Vec<f64> = ran.samples.iter().map(Sample::mb_per_s).collect();
            // Of several shards, one may be ahead when the verdict falls: its sample is joined.
            let steady = shards > 1 || stats::steady(&rates) == Some(true);
            assert!(steady || rates.len() == 40, "{rates:?}");
        }
    }

    #[test]
    fn several_shards_are_steady_when_what_they_do_together_is() {
        let sample = |bytes| Sample { seconds: 1.0, bytes, ops: 1 };
        let judge = |rates: [[u64; 5]; 2]| {
            let limits = Timing { until_steady: Some(9), ..timing(10, 5) };
            let together = generator::Together::new(2);
            for round in 0..5 {
                assert!(!together.is_enough(), "five samples are wanted");
                together.note(0, sample(rates[0][round] * 1_000_000), &limits);
                together.note(1, sample(rates[1][round] * 1_000_000), &limits);
            }
            together.is_enough()
        };
        assert!(judge([[10, 20, 30, 40, 50], [90, 80, 70, 60, 50]]), "one gains what one loses");
        assert!(!judge([[50, 50, 50, 50, 50], [90, 80, 70, 60, 50]]), "the first shard alone");
    }

    #[test]
    fn a_sample_of_a_modelled_disk_is_not_wrong_by_a_block() {
        let clock = host::sys::ModelClock::start();
        let mut target = filled_with("linear(1)", "paced:hdd-2007:mem", 1, 64 << 20);
        target.renew_drives(false).expect("nothing is in flight");
        // A sample is 24 blocks: one more or less would be 4 %.
        let spec = Spec { block_bytes: 1 << 18, ..spec(Kind::SeqRead) };
        let ran = run(&mut target, spec, timing(75, 9), &|| false, &mut |_| {});
        let rates: Vec<f64> = ran.expect("it runs").samples.iter().map(Sample::mb_per_s).collect();
        drop(clock);
        let (min, max) = stats::range(&rates).expect("nine samples");
        assert!(max < 1.005 * 83.0 && min > 0.98 * 83.0, "{rates:?}");
    }

    fn open_loop(iops: u32, depth: u32) -> (Measurement, f64) {
        let clock = host::sys::ModelClock::start();
        let mut target = filled_with("linear(1)", "paced:hdd-2007:mem", 1, 64 << 20);
        target.renew_drives(true).expect("nothing is in flight");
        let rate = Some(Rate { iops, process: RateProcess::Linear });
        let spec = Spec { block_bytes: 4096, depth, rate, ..spec(Kind::RandRead) };
        let ran = run(&mut target, spec, timing(1000, 5), &|| false, &mut |_| {});
        drop(clock);
        let ran = ran.expect("it runs");
        let seconds: f64 = ran.samples.iter().map(|sample| sample.seconds).sum();
        let ops: u64 = ran.samples.iter().map(|sample| sample.ops).sum();
        (ran, ops as f64 / seconds)
    }

    #[test]
    fn requests_arrive_on_schedule_and_latency_counts_from_the_arrival() {
        // A disk that serves 78 a second at depth 1, on a model clock: 10 a second find it idle.
        let (slow, rate) = open_loop(10, 1);
        assert!((rate - 10.0).abs() < 0.3, "{rate}");
        let open = slow.open_loop.as_ref().expect("a schedule");
        assert!((49..=51).contains(&open.arrivals) && open.waiting <= 1, "{open:?}");
        let (response, service) = (slow.latency.latency(), open.service.latency());
        let (response, service) = (response.expect("50"), service.expect("50"));
        assert!(response.max < 30_000.0 && (response.p50 / service.p50 - 1.0).abs() < 0.05);
        // 200 a second: the queue grows for 5 s, which the time from the submission does not show.
        let (full, rate) = open_loop(200, 1);
        assert!((60.0..100.0).contains(&rate), "{rate}");
        let open = full.open_loop.as_ref().expect("a schedule");
        assert!(open.arrivals.abs_diff(1000) < 10 && open.waiting > 400, "{open:?}");
        let (response, service) = (full.latency.latency(), open.service.latency());
        let (response, service) = (response.expect("some"), service.expect("some"));
        assert!(service.max < 30_000.0, "{service:?}");
        assert!(response.max > 2_000_000.0 && response.p50 > 1_000_000.0, "{response:?}");
    }

    #[test]
    fn shards_share_a_stated_load() {
        if allowed_cpus().expect("the system says").len() < 2 {
            println!("skipped: two CPUs are required");
            return;
        }
        for process in RateProcess::ALL {
            let mut target = filled_in_shards("raid5(3)", "mem", 2);
            let rate = Some(Rate { iops: 4000, process });
            let spec = Spec { block_bytes: 4096, rate, ..spec(Kind::RandWrite) };
            let ran = run(&mut target, spec, timing(100, 4), &|| false, &mut |_| {});
            let ran = ran.expect("it runs");
            let open = ran.open_loop.expect("a schedule");
            assert!(ran.errors.is_clean() && open.service.count() == ran.latency.count());
            // 1600 on average; a busy machine makes the samples longer.
            assert!((1200..4000).contains(&open.arrivals), "{process:?}: {}", open.arrivals);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut target = filled("mem");
        let spec = Spec { jobs: 65, ..spec(Kind::SeqRead) };
        let error = run(&mut target, spec, timing(1, 1), &|| false, &mut |_| {});
        let error = error.expect_err("64 blocks").to_string();
        assert!(error.contains("65 job(s) with blocks of 64 KiB do not fit into 4 MiB"), "{error}");
    }
}
