//! Runs a plan on a target: creates each array, fills it, runs its cells, and writes the record.
//!
//! Invariant: every cell of the plan ends up in the record, or the reason why not in its warnings
//! or in the error; a run that is stopped, or ends with an error, keeps the cells measured so far.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::metrics::meter::CpuUsed;
use crate::metrics::{CounterSource, Recorder, Watched};
use array::{Event, io_error_text};
use host::sys::ModelClock;
use md::Level;
use results::findings;
use results::host::Host;
use results::record::{Cell, Record};
use spec::case::{ArrayConfig, RunConfig};
use spec::matrix::{ArrayPlan, Plan};
use spec::members::MemberExpr;
use spec::target::TargetExpr;
use spec::workload::{BackgroundWork, Kind, Spec};

use crate::addresses::Share;
use crate::arrays::{describe, extent_of, placement_name, requests};
use crate::background::Before;
use crate::bounds::{lost_slots, missing_leaves, set_bound};
use crate::error::RunError;
use crate::linux;
use crate::measurement::{Load, Measurement};
use crate::placed::{Placed, notes_of_found};
use crate::program::in_memory;
use crate::progress::Progress;
use crate::provision::fitted;
use crate::runner::{self, Running, Timing};
use crate::target::{RedundancyReport, Requests, Target};
use crate::target_error::{MemoryError, RunnerError, TargetError};
use crate::verify::VerifyErrors;

/// Every how many-th read is checked during the samples on members in memory: there the engine's
/// own speed is measured, and everything is checked afterwards.
const MEMORY_CHECK_EVERY: u32 = 16;
/// Above this share of late operations the backing store was the bottleneck.
const LATE_SHARE: f64 = 0.01;

/// Begin of model time, nanoseconds: the same in each run.
const MODEL_TIME_BEGINS: u64 = 1_000_000_000;

/// The clock of a measurement in model time, of the calling thread.
///
/// # Panics
/// When the thread is on a model clock already.
pub fn model_clock() -> ModelClock {
    ModelClock::start_at(MODEL_TIME_BEGINS)
}

/// Why the CPU time of the machine is unknown.
const MACHINE_IN_MODEL_TIME: &str = "model time: the samples have no time of this machine";
/// Duration of a cell in model time, of memory that is copied: only for the ETA.
const MODEL_CELL_SECONDS: f64 = 0.05;
/// The same in a kernel, which is started for it; flash, with its many requests, takes longer.
const KERNEL_CELL_SECONDS: f64 = 1.5;

/// Rate of filling and reading back, bytes per second of members: only for the ETA.
const BULK_RATE: f64 = 1e9;
/// The same for block devices, a few of which work at a time.
const DEVICE_RATE: f64 = 4e8;
/// Further time to create an array, seconds.
const PER_ARRAY_SECONDS: f64 = 0.3;

/// Estimated duration of a plan, seconds: warm-ups and samples, fills and checks.
pub fn estimate_seconds(place: &TargetExpr, plan: &Plan, run: &RunConfig) -> f64 {
    // With background work: the workload alone, the work alone, both.
    let parts = |spec: &Spec| match (spec.background, spec.kind) {
        (None, _) | (_, Kind::None) => 1.0,
        _ => 3.0,
    };
    let total = |array: &ArrayConfig, spec: &Spec| match run.is_model_time(place, array) {
        true if place.model_time().is_some() => KERNEL_CELL_SECONDS,
        true => parts(spec) * MODEL_CELL_SECONDS,
        false => parts(spec) * with_arrivals(timing(run, 1), spec, run).total().as_secs_f64(),
    };
    let of = |planned: &ArrayPlan| -> f64 {
        planned.cells.iter().map(|spec| total(&planned.array, spec)).sum()
    };
    let cells: f64 = plan.arrays.iter().map(of).sum();
    let arrays = plan.arrays.iter().map(|ArrayPlan { array, cells }| {
        let read_back = |cell: &&Spec| cell.kind.writes() || check_every(array) > 1;
        // Filled once, and with redundancy read several times without some members.
        let proofs = if matches!(array.expr.level, Level::Linear | Level::Raid0) { 0 } else { 3 };
        let passes = 1 + proofs + cells.iter().filter(read_back).count();
        let bytes = array.member_bytes as f64 * array.members.len() as f64;
        let rate = if array.members.iter().any(|m| m.device().is_some()) {
            DEVICE_RATE
        } else {
            BULK_RATE
        };
        let passes = if array.read_only { 0 } else { passes };
        PER_ARRAY_SECONDS + passes as f64 * bytes / rate
    });
    cells + arrays.sum::<f64>()
}

fn check_every(array: &ArrayConfig) -> u32 {
    let memory = array.members.iter().all(MemberExpr::is_memory);
    if memory { MEMORY_CHECK_EVERY } else { 1 }
}

fn timing(run: &RunConfig, check_every: u32) -> Timing {
    Timing {
        warm_up: run.warm_up,
        sample: run.sample,
        runs: run.runs,
        until_steady: run.until_steady,
        check_every,
        check_later: false,
        seed: run.seed,
    }
}

/// Arrivals of a stated load in a sample, on each core: with fewer the figure would be noise, or 0.
const LEAST_ARRIVALS: f64 = 10.0;

/// Samples of a stated load last for [`LEAST_ARRIVALS`], however short they were to be.
fn with_arrivals(timing: Timing, spec: &Spec, run: &RunConfig) -> Timing {
    let Some(rate) = spec.rate else { return timing };
    let each_core = f64::from(rate.iops) / f64::from(run.shards());
    let least = Duration::from_secs_f64(LEAST_ARRIVALS / each_core);
    Timing { sample: timing.sample.max(least), ..timing }
}

/// The share of a pass over the array that the samples of a stream may take, warm-up included.
const PASS_SHARE: f64 = 0.93;
/// Samples are not made shorter than this: then the stream restarts.
const LEAST_SAMPLE: Duration = Duration::from_millis(100);

/// On modelled disks a stream ends before it would restart at the array's beginning, which costs a
/// long seek on one disk while the disk of another copy is already there: warm-up and samples are
/// shortened, unless their length was given by option.
fn within_a_pass(
    timing: Timing,
    array: &ArrayConfig,
    spec: &Spec,
    run: &RunConfig,
    bound: &Cell,
    area_bytes: u64,
) -> Timing {
    let rotates = |member: &MemberExpr| {
        member.drive().is_some_and(|(profile, _)| profile.kind() == drive::Kind::Rotating)
    };
    let streams = spec.kind.is_sequential() && array.members.iter().all(rotates);
    let given = run.sample_given || run.until_steady.is_some();
    let Some(rate) = bound.derived.bound_mb_per_s.filter(|_| streams && !given) else {
        return timing;
    };
    let stated = spec.rate.map(|rate| f64::from(rate.iops) * spec.block_bytes as f64 / 1e6);
    let rate = stated.map_or(rate, |stated| stated.min(rate));
    let pass = area_bytes as f64 / (rate * 1e6) * PASS_SHARE;
    let share = pass / timing.total().as_secs_f64();
    let sample = timing.sample.mul_f64(share.min(1.0));
    if share >= 1.0 || sample < LEAST_SAMPLE {
        return timing;
    }
    Timing { warm_up: timing.warm_up.mul_f64(share), sample, ..timing }
}

/// Runs a plan on arrays of the engine. Cells measured before an error are in the record, too.
///
/// # Errors
/// Besides the record: one line when an array cannot be created, filled or measured.
pub fn run(
    plan: &Plan,
    run: &RunConfig,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> (Record, Result<(), RunError>) {
    run_on((&TargetExpr::Engine, ""), plan, run, stop, progress)
}

/// Runs a plan on a target; its label distinguishes it from others of the same name, in the cells.
///
/// # Errors
/// As [`run`]; or the target cannot be set up or taken down.
pub fn run_on(
    (place, label): (&TargetExpr, &str),
    plan: &Plan,
    run: &RunConfig,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> (Record, Result<(), RunError>) {
    let mut bench = Bench { place, label, run, stop, progress, record: head(plan, run) };
    let mut cases = plan.arrays.iter();
    let ended = cases.try_for_each(|planned| match stop() {
        true => Ok(()),
        false => bench.array(planned).map_err(|problem| RunError::OnArray {
            array: shown(place, &planned.array),
            problem: Box::new(problem),
        }),
    });
    bench.record.set_ratios();
    (bench.record, ended)
}

/// `raid5(4)`, `raid5(4), md`, `device`: the array and the target, for progress and messages.
pub fn shown(place: &TargetExpr, array: &ArrayConfig) -> String {
    match place {
        TargetExpr::Engine => array.name(),
        place if place.uses_array() => format!("{}, {}", array.name(), place.shown()),
        place => place.shown(),
    }
}

/// The head of the record that [`run`] would write: host and start time, without cells.
pub fn head(plan: &Plan, run: &RunConfig) -> Record {
    Record::new(probe_host(plan, run), SystemTime::now())
}

fn probe_host(plan: &Plan, run: &RunConfig) -> Host {
    let members = plan.arrays.iter().flat_map(|planned| &planned.array.members);
    let backing = members.filter_map(|member| member.directory()).next();
    crate::metrics::host::probe(
        Some(run.kernels.name()),
        backing.map(|dir| dir.unwrap_or(&run.directory)),
    )
}

struct Bench<'a, 'p> {
    place: &'a TargetExpr,
    label: &'a str,
    run: &'a RunConfig,
    stop: &'a dyn Fn() -> bool,
    progress: &'a mut (dyn FnMut(Progress<'_>) + 'p),
    record: Record,
}

/// What the cells of an array share.
struct Shared<'s> {
    name: String,
    /// The array that the generator works on.
    array: &'s ArrayConfig,
    cells: &'s [Spec],
    /// Fields of each cell.
    base: Cell,
    /// Placement of modelled members below the target, for random workloads.
    random_placement: Option<String>,
    watched: Watched,
}

impl Bench<'_, '_> {
    /// Sets the target of an array up, runs its cells and takes it down.
    fn array(&mut self, planned: &ArrayPlan) -> Result<(), RunError> {
        let (name, cells) = (shown(self.place, &planned.array), &planned.cells[..]);
        if *self.place == TargetExpr::Engine {
            let array = &fitted(&planned.array)?;
            let modelled = self.run.is_model_time(self.place, array) && !ModelClock::is_running();
            let _clock = modelled.then(model_clock);
            let mut target = Target::new(array, self.run, requests(cells))?;
            let mut base = describe(array, self.run, target.geometry());
            base.case.model_time = ModelClock::is_running();
            let (watched, random_placement) = (Watched::default(), None);
            let shared = Shared { name, array, cells, base, random_placement, watched };
            self.cells(&mut target, &shared)?;
            return Ok(target.release()?);
        }
        if self.place.model_time().is_some() {
            return self.in_a_kernel(planned, &name);
        }
        let mut placed = Placed::set_up(self.place, planned, self.run, self.stop)?;
        let (mut base, watched) = (placed.base.clone(), placed.watched.clone());
        if let Some(place) = &mut base.case.place {
            place.name.push_str(self.label);
        }
        let (array, random_placement) = (placed.config.clone(), placed.random_placement.take());
        let target = placed.target.as_mut().expect("it is there until it is taken down");
        let shared = Shared { name, array: &array, cells, base, random_placement, watched };
        let ran = self.cells(target, &shared);
        match (ran, placed.take_down()) {
            (Err(run), Err(RunError::Undo(undo))) => {
                Err(RunError::RunAndUndo { run: Box::new(run), undo })
            }
            (ran, taken_down) => ran.and(taken_down),
        }
    }

    /// Runs the cells of an array in a user-mode kernel: those that differ only in their kind in
    /// one, on new disks.
    fn in_a_kernel(&mut self, planned: &ArrayPlan, name: &str) -> Result<(), RunError> {
        let ArrayPlan { array, cells } = planned;
        let area_bytes =
            array.area_bytes.map_or_else(|| Ok(extent_of(array)?.0), Ok::<_, RunError>)?;
        let timing = timing(self.run, 1);
        let missing = lost_slots(array)?;
        for group in linux::groups(cells) {
            if (self.stop)() {
                return Ok(());
            }
            let specs = &cells[group.clone()];
            let mut bounds = vec![Cell::default(); specs.len()];
            let own = bounds.iter_mut().zip(specs).map(|(bound, spec)| {
                if spec.background.is_none() {
                    set_bound(bound, array, spec, area_bytes, &missing);
                }
                let own = within_a_pass(timing, array, spec, self.run, bound, area_bytes);
                with_arrivals(own, spec, self.run)
            });
            let shortest = own.min_by_key(|own| own.sample).expect("a group has a workload");
            let run =
                linux::Run { place: self.place, label: self.label, run: self.run, stop: self.stop };
            let progress = &mut *self.progress;
            let what = format!("{name}: {}", specs[0].kind.name());
            let model_time = !self.run.real_time;
            let mut look = |now: Duration| {
                let (what, seconds) = (&*what, now.as_secs_f64());
                progress(Progress::InKernel { what, seconds, model_time });
            };
            let measured = run.blocks(array, area_bytes, specs, &shortest, &mut look)?;
            for ((entry, bound), cell) in group.zip(bounds).zip(measured) {
                let mut cell = cell;
                // Beside background work there is none; see `Before::put_into`.
                if cell.case.background.is_none() {
                    cell.derived.bound_mb_per_s = bound.derived.bound_mb_per_s;
                    cell.derived.bound_note = bound.derived.bound_note;
                    cell.derived.unshared_bound_mb_per_s = bound.derived.unshared_bound_mb_per_s;
                }
                cell.summarise();
                // With the bound, and of modelled disks: inside they are any devices.
                cell.derived.findings = findings::find(&cell);
                (self.progress)(Progress::Measured(&cell));
                (self.progress)(Progress::Final { entry, cells: std::slice::from_ref(&cell) });
                self.record.cells.push(cell);
            }
        }
        Ok(())
    }

    /// Fills a target, runs its cells, and verifies the redundancy.
    fn cells(&mut self, target: &mut Target, shared: &Shared<'_>) -> Result<(), RunError> {
        let Shared { name, array, cells, .. } = shared;
        let stop = self.stop;
        // The fill erases what the devices hold: a workload that has no room is refused before it.
        cells.iter().try_for_each(|spec| has_room(target, spec))?;
        if !array.read_only {
            let progress = &mut *self.progress;
            target.fill(stop, &mut |done| progress(Progress::Filling { array: name, done }))?;
        }
        if stop() {
            return Ok(());
        }
        target.degrade(array.degraded)?;
        let found = match array.read_only {
            true => notes_of_found(array, self.run.seed),
            false => Vec::new(),
        };
        let mut count = 0;
        for (entry, spec) in cells.iter().enumerate() {
            let (measured, mut cell) = self.cell(target, shared, spec)?;
            if measured.stopped && measured.samples.is_empty() {
                break;
            }
            cell.derived.warnings.extend_from_slice(&found);
            (self.progress)(Progress::Measured(&cell));
            // The last one is final only after the array's redundancy has been verified.
            if !measured.stopped && entry + 1 < cells.len() {
                (self.progress)(Progress::Final { entry, cells: std::slice::from_ref(&cell) });
            }
            self.record.cells.push(cell);
            count += 1;
        }
        match self.record.cells.last_mut().filter(|_| count > 0 && !stop()) {
            Some(last) => {
                verify_redundancy(target, last, stop)?;
                if !stop() {
                    let (entry, cells) = (cells.len() - 1, std::slice::from_ref(last));
                    (self.progress)(Progress::Final { entry, cells });
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Measures a cell.
    fn cell(
        &mut self,
        target: &mut Target,
        shared: &Shared<'_>,
        spec: &Spec,
    ) -> Result<(Measurement, Cell), RunError> {
        let Shared { name, array, base, random_placement, watched, .. } = shared;
        let progress = RefCell::new(&mut *self.progress);
        let every = check_every(array);
        let mut base = base.clone();
        if let Some(background) = &spec.background {
            target.prepare_background(background)?;
        }
        set_bound(&mut base, array, spec, target.area_bytes(), &missing_leaves(array, target));
        // Beside background work there is none; see `Before::put_into`.
        let alone = spec.background.is_none();
        let (bound_mb_per_s, note) = (
            base.derived.bound_mb_per_s.filter(|_| alone),
            base.derived.bound_note.clone().filter(|_| alone),
        );
        let mut tell = |Running { seconds, live }: Running<'_>| {
            let (workload, bound_note) = (spec.kind.name(), note.as_deref());
            (progress.borrow_mut())(Progress::Running {
                array: name,
                workload,
                seconds,
                live,
                bound_mb_per_s,
                bound_note,
            });
        };
        let timing = timing(self.run, every);
        let timing = within_a_pass(timing, array, spec, self.run, &base, target.area_bytes());
        let timing = with_arrivals(timing, spec, self.run);
        let before = match spec.background {
            Some(_) => target.before_background(spec, timing, self.stop, &mut tell)??,
            None => Before::default(),
        };
        let tap = Arc::new(CounterSource::default());
        target.tap = Some(tap.clone());
        let random = !spec.kind.is_sequential() && spec.kind != Kind::None;
        target.flush(self.stop)?;
        target.rest_until_bitmap_is_clear(self.stop);
        target.renew_drives(random)?;
        target.resume_background()?;
        if let Some(placement) = random_placement.as_ref().filter(|_| random) {
            base.case.placement = Some(placement.clone());
        }
        if target.is_buffered() {
            base.case.caches_dropped = Some(target.drop_cached());
        }
        (progress.borrow_mut())(Progress::Ready);
        let recorder = Recorder::start(Watched { tap: Some(tap), ..watched.clone() });
        let mut measured = runner::run(target, *spec, timing, self.stop, &mut tell)?;
        let mut recorded = recorder.stop();
        if let Some(cpu) = &mut measured.cpu {
            cpu.kernel = recorded.kernel.take();
        }
        if ModelClock::is_running() {
            // Neither the other processes of the machine nor what its clock saw is of the samples.
            measured.cpu = measured.cpu.map(|cpu| CpuUsed { busy_s: None, kernel: None, ..cpu });
            recorded.series.busy_cpus.clear();
            recorded.series.stolen_cpus.clear();
            recorded.series.interrupts_per_s.clear();
        }
        measured.recorded = Some(recorded);
        if spec.background.is_some() {
            target.end_background(&mut measured, self.stop)?;
        }
        let mut cell = make_cell(array, spec, self.run, target, &measured, every, base);
        if ModelClock::is_running() {
            cell.measured.cpu_system_note = Some(MACHINE_IN_MODEL_TIME.into());
            cell.derived.cpu_process_share = None;
        }
        if let Some(background) = &spec.background {
            before.put_into(&mut cell, background, &measured);
            // md leaves the workload what is above its own limits.
            cell.case.foreground_percent =
                cell.case.foreground_percent.filter(|_| target.md.is_none());
        }
        Ok((measured, cell))
    }
}

/// Checks that each job has a block in every shard.
///
/// # Errors
/// [`RunnerError::TooSmall`].
fn has_room(target: &Target, spec: &Spec) -> Result<(), RunnerError> {
    let (sharding, area_bytes) = (target.shards[0].sharding(), target.area_bytes());
    let (blocks, sectors) = (area_bytes / spec.block_bytes, spec.block_bytes / md::SECTOR_BYTES);
    let enough =
        |shard| Share::of_shard(blocks, sectors, sharding, shard).count() >= u64::from(spec.jobs);
    match (0..sharding.shards()).all(enough) {
        true => Ok(()),
        false => Err(RunnerError::TooSmall {
            workload: spec.kind.name(),
            jobs: spec.jobs,
            shards: sharding.shards(),
            block_bytes: spec.block_bytes,
            area_bytes,
        }),
    }
}

/// Checks that every array of the plan fits into memory with its buffers, before the machine swaps
/// or the OOM killer runs. `available` is free memory in bytes; `shards` is the number of threads
/// that submit requests.
///
/// # Errors
/// One line that names the array, the largest consumer, and the option that reduces it.
pub fn check_memory(plan: &Plan, shards: u32, available: u64) -> Result<(), MemoryError> {
    for ArrayPlan { array, cells } in &plan.arrays {
        let is_here = |m: &&MemberExpr| m.directory().is_none() && m.device().is_none();
        let in_memory = array.members.iter().filter(is_here).filter(|m| m.keeps_data());
        let in_memory = in_memory.count() as u128;
        // The new one, while the old one is there.
        let is_rebuilt = |cell: &Spec| {
            cell.background.is_some_and(|it| it.work == BackgroundWork::Rebuild) && in_memory > 0
        };
        let in_memory = in_memory + u128::from(cells.iter().any(is_rebuilt));
        let members = u128::from(array.member_bytes) * in_memory;
        let Requests { block_bytes, unit_bytes, in_flight, spare } = requests(cells);
        let (leases, lease_bytes) =
            crate::target::buffers(block_bytes, in_flight * shards as usize);
        let leases = leases + spare;
        let buffers = leases as u128 * u128::from(lease_bytes);
        let cache = u128::from(array.knobs.stripe_cache_bytes.unwrap_or(0));
        // Four bytes for the version of each unit.
        let all = u128::from(array.member_bytes) * array.members.len() as u128;
        let versions = array.area_bytes.map_or(all, u128::from) / unit_bytes as u128 * 4;
        let versions = if array.read_only { 0 } else { versions };
        let parts = [
            (members, "members in memory", "--size"),
            (buffers, "buffers of requests in flight", "--depth, --jobs, --block or --read-ahead"),
            (cache, "the stripe cache", "--stripe-cache"),
            (versions, "the map of expected block versions", "--size"),
        ];
        let needed: u128 = parts.iter().map(|(bytes, ..)| bytes).sum();
        let most = parts.iter().max_by_key(|(bytes, ..)| *bytes).expect("four parts");
        if needed > u128::from(available) {
            let bytes = |bytes: u128| u64::try_from(bytes).unwrap_or(u64::MAX);
            let (largest, part, option) = *most;
            return Err(MemoryError {
                array: array.name(),
                needed: bytes(needed),
                largest: bytes(largest),
                part,
                available,
                option,
            });
        }
    }
    Ok(())
}

fn make_cell(
    array: &ArrayConfig,
    spec: &Spec,
    run: &RunConfig,
    target: &Target,
    measured: &Measurement,
    check_every: u32,
    base: Cell,
) -> Cell {
    let late: u64 = measured.members.iter().map(|leaf| leaf.late).sum();
    let drive = array.members.iter().find_map(MemberExpr::drive);
    let base = base.with(|it| {
        it.case.random_seed = Some(run.seed);
        it.case.warm_up_s = Some(run.warm_up.as_secs_f64());
        it.case.read_ahead_kib =
            (spec.read_ahead_bytes > 0).then_some(spec.read_ahead_bytes / 1024);
        it.case.read_percent = spec.mix();
        it.case.rate_iops = spec.rate.map(|rate| rate.iops);
        it.case.rate_process = spec.rate.map(|rate| rate.process.name().into());
        if let Some((profile, given)) = drive {
            let random = !spec.kind.is_sequential() && spec.kind != Kind::None;
            it.case.placement = Some(placement_name(profile, given, random));
        }
        it.measured.late_ops = drive.is_some().then_some(late);
        it.measured.checked_every =
            (target.keeps_data() && spec.kind.reads()).then_some(check_every);
        it.measured.generator_ns_per_op = (spec.kind != Kind::None)
            .then(|| runner::calibrate(*spec, target.unit_bytes(), check_every));
        it.measured.cached = cached(it, target);
    });
    let load = Load {
        workload: spec.kind.into(),
        block_bytes: spec.block_bytes,
        depth: spec.depth,
        jobs: spec.jobs,
    };
    let mut cell = measured.cell(load, base);
    warn(&mut cell, target, measured, late);
    cell
}

/// The cache that the figures measure: the file system's own memory, or the page cache, where it
/// has no direct I/O and all of the file fits.
fn cached(base: &Cell, target: &Target) -> Option<String> {
    if let Some(name) = in_memory(base) {
        return Some(name.to_string());
    }
    let memory = host::sys::memory_bytes().unwrap_or(u64::MAX);
    (target.is_buffered() && target.area_bytes() < memory).then(|| "page cache".into())
}

/// After the last cell of an array: a wrong copy or parity block counts as wrong data, even if no
/// read of the workloads has reached it.
fn verify_redundancy(
    target: &mut Target,
    last: &mut Cell,
    stop: &dyn Fn() -> bool,
) -> Result<(), TargetError> {
    let Some(RedundancyReport { lost_inside, without, found }) = target.verify_redundancy(stop)?
    else {
        return Ok(());
    };
    let words =
        |leaves: &[usize]| leaves.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    if !lost_inside.is_empty() {
        last.derived.warnings.push(format!(
            "leaf {} of a nested array failed, in this cell or before: the figures are of a \
             degraded array; replace the member and measure again",
            words(&lost_inside)
        ));
    }
    let without = words(&without);
    if found.wrong_reads > 0 {
        last.measured.verified = Some(false);
        last.derived.warnings.push(format!(
            "with member(s) {without} removed after the run, {} read(s) returned wrong data: \
             copies or parity are wrong, and a member failure would lose data",
            found.wrong_reads
        ));
    }
    if let Some(error) = &found.first_error {
        last.derived.warnings.push(format!(
            "with members removed after the run, lastly {without}, {} request(s) failed ({error}): \
             other members have unreadable sectors that no request had reached; a member failure \
             would lose data",
            found.failed_requests
        ));
    }
    Ok(())
}

/// Sets the warnings of a cell, each with a remedy.
fn warn(cell: &mut Cell, target: &Target, measured: &Measurement, late: u64) {
    let mut warnings = Vec::new();
    if measured.mismatch_sectors > 0 {
        warnings.push(format!(
            "{} sector(s) of redundancy do not agree with the data: copies or parity are wrong, \
             and a member failure would lose data",
            measured.mismatch_sectors
        ));
    }
    warn_of_errors(&mut warnings, cell, &measured.errors);
    if target.reads_what_it_found() {
        // What is to be said of it is said by `placed`.
    } else if !target.keeps_data() {
        warnings.push("null members discard writes: nothing could be verified".into());
    } else if !measured.checked {
        warnings.push("stopped before all data was read back: written data is not verified".into());
    }
    warn_of_events(&mut warnings, &measured.events);
    let ops: u64 = cell.measured.per_member.iter().map(|member| member.reads + member.writes).sum();
    if late as f64 > ops as f64 * LATE_SHARE {
        warnings.push(format!(
            "{late} of {ops} member operations were later than the modelled drive: the backing \
             store was the bottleneck; use --dir on a faster file system, or paced:PROFILE:mem"
        ));
    }
    if measured.stopped {
        warnings.push("stopped early: fewer or shorter samples than requested".into());
    }
    if cell.measured.samples.iter().all(|sample| sample.ops == 0) {
        warnings.push("no request was completed in any sample: use longer --seconds".into());
    } else if let (Some(false), Some(most)) = (cell.derived.steady, cell.case.rounds_max) {
        warnings.push(format!(
            "the last five of {} samples are no steady window (--until-steady {most}): that is the \
             result; the members' speed varies",
            cell.measured.samples.len()
        ));
    } else if cell.derived.steady == Some(false) {
        warnings.push("no steady window: use a longer --seconds or more --runs".into());
    }
    if let Some(name) = in_memory(cell).filter(|_| cell.measured.cached.is_some()) {
        warnings.push(format!("{name} is memory, not disks: name a directory that is on disks"));
    } else if target.is_buffered() {
        warnings.push(
            "the file system has no direct I/O: through the page cache, which was dropped before; \
             use a --size of twice the memory"
                .into(),
        );
    }
    cell.derived.warnings.append(&mut warnings);
}

fn warn_of_errors(warnings: &mut Vec<String>, cell: &Cell, errors: &VerifyErrors) {
    if let Some(error) = &errors.first_error {
        warnings.push(format!(
            "{} request(s) failed ({error}): the figure leaves them out",
            errors.failed_requests
        ));
    }
    let Some(wrong) = errors.first_wrong else { return };
    let why = match errors.failed_requests > 0 && (cell.writes() || cell.is_mixed()) {
        true => "the contents after a failed write are undefined",
        false => {
            "a member corrupts data silently; test the members one by one, each as --level single"
        }
    };
    warnings.push(format!(
        "{} read(s) returned data that differs from the data written, the first at byte {} of the \
         array: {why}",
        errors.wrong_reads, wrong.at
    ));
}

fn warn_of_events(warnings: &mut Vec<String>, events: &[Event]) {
    let mut corrected = 0;
    for event in events {
        match event {
            Event::Corrected { .. } => corrected += 1,
            Event::MemberInSync { .. }
            | Event::ReplacementFailed { .. }
            | Event::BadBlocksAdded { .. }
            | Event::MemberBack { .. }
            | Event::DeviceRemoved { .. } => {}
            Event::MemberLate { member, error } => {
                let (member, what) = (member.0, io_error_text(error, 0));
                warnings.push(format!(
                    "member {member} was not used for a time, until its operation completed \
                     ({what}): requests that needed it failed"
                ));
            }
            Event::MemberFailed { member, error } => {
                let why = error.map_or("it was removed on request".to_string(), |error| {
                    io_error_text(&error, 0)
                });
                let member = member.0;
                warnings.push(format!(
                    "member {member} failed ({why}): this figure and those that follow on the \
                     array are of a degraded array; replace the member and measure again"
                ));
            }
        }
    }
    if corrected > 0 {
        warnings.push(format!(
            "{corrected} unreadable range(s) were reconstructed and written back: check the \
             members' health"
        ));
    }
}

#[cfg(test)]
mod tests {
    use spec::matrix::{self, Options};
    use spec::workload::{Rate, RateProcess};

    use super::*;

    fn plan(words: &str, level: &str, more: Options) -> Plan {
        let members = vec![words.parse().expect("a set")];
        let levels = vec![level.parse().expect("a level")];
        let options = more.with(|it| {
            it.arrays.level = levels;
            it.engine.members = members;
        });
        matrix::plan(&options).expect("a plan")
    }

    #[test]
    fn memory_is_needed_for_members_buffers_cache_and_notes() {
        // Four members of 128 MiB, 32 buffers of 1 MiB, 32 MiB of stripe cache, 4 bytes of 4 KiB.
        let mem = plan("mem", "raid5", Options::default());
        let needed = (512 << 20) + (32 << 20) + (32 << 20) + (512 << 10);
        assert_eq!(check_memory(&mem, 1, needed), Ok(()));
        let error = check_memory(&mem, 1, needed - 1).expect_err("a byte is missing").to_string();
        assert!(error.contains("512 MiB of it for members in memory"), "{error}");
        assert!(error.starts_with("raid5(4): ") && error.ends_with("use less --size"), "{error}");
        // Files are not memory.
        let file = plan("paced:hdd-2007", "raid0", Options::default());
        assert_eq!(check_memory(&file, 1, 17 << 20), Ok(()));
        let deep = Options::default().with(|it| {
            it.blocks.depth = vec![1024];
            it.blocks.block = vec![16 << 20];
        });
        let error =
            check_memory(&plan("file", "raid0", deep), 1, 8 << 30).expect_err("16 GiB").to_string();
        assert!(error.contains("16 GiB of it for buffers") && error.contains("--depth"), "{error}");
    }

    #[test]
    fn the_estimate_knows_of_fills_and_checks() {
        let run = |runs| RunConfig {
            warm_up: Duration::from_secs(1),
            sample: Duration::from_secs(2),
            runs,
            ..RunConfig::quick()
        };
        let sizes = |sizes: &[u64]| Options { sizes: sizes.to_vec(), ..Options::default() };
        let small = plan("file", "raid0", sizes(&[64 << 20]));
        let large = plan("file", "raid0", sizes(&[64 << 30]));
        let one = estimate_seconds(&TargetExpr::Engine, &small, &run(1));
        assert!((12.0..14.0).contains(&one), "4 cells of 3 s, and a little: {one}");
        assert!((estimate_seconds(&TargetExpr::Engine, &small, &run(2)) - one - 8.0).abs() < 1e-6);
        assert!(estimate_seconds(&TargetExpr::Engine, &large, &run(1)) > one + 100.0);
    }

    #[test]
    fn samples_of_a_low_stated_load_last_for_some_arrivals() {
        let mut plan = plan("mem", "raid0", Options::default());
        let mut seconds = |iops, cores| {
            let rate = Some(Rate { iops, process: RateProcess::Linear });
            let cells = plan.arrays.iter_mut().flat_map(|planned| &mut planned.cells);
            cells.for_each(|spec| spec.rate = rate);
            let sample = Duration::from_millis(200);
            let run = RunConfig { sample, runs: 5, cores, ..RunConfig::quick() };
            let timing = with_arrivals(timing(&run, 1), &plan.arrays[0].cells[0], &run);
            assert!(
                estimate_seconds(&TargetExpr::Engine, &plan, &run)
                    >= timing.total().as_secs_f64() * 4.0
            );
            timing.sample.as_secs_f64()
        };
        assert_eq!((seconds(1, None), seconds(100, None)), (10.0, 0.2));
        assert_eq!(seconds(20, Some(2)), 1.0, "ten on each core");
    }

    #[test]
    fn what_was_measured_before_an_error_is_in_the_record() {
        let set = |set: &str| set.parse().expect("a set");
        let options = Options::default().with(|it| {
            it.arrays.level = vec!["raid5".parse().expect("a level")];
            it.engine.members = vec![set("mem*3+fault:gone@2:mem"), set("file")];
            it.sizes = vec![4 << 20];
            it.workloads = vec![Kind::RandRead];
        });
        let plan = matrix::plan(&options).expect("a plan");
        let (record, ended) = run(&plan, &RunConfig::quick(), &|| false, &mut |_| {});
        let error = ended.expect_err("there is no such directory").to_string();
        assert!(error.starts_with("raid5(4): /dev/null/none: cannot make a member"), "{error}");
        assert_eq!(record.cells.len(), 1);
        assert_eq!(record.cells[0].measured.verified, Some(true));
        assert!(record.cells[0].derived.warnings[0].contains("member 3 failed"));
    }

    proptest::proptest! {
        #[test]
        fn no_size_is_too_absurd_to_be_checked(
            level in proptest::sample::select(vec!["raid0", "raid1", "raid5", "raid6", "raid10"]),
            size in proptest::prelude::any::<u64>(),
            blocks in 1u64..32_769,
            jobs in 1u32..257,
            read_ahead in proptest::prelude::any::<u64>(),
            cache in proptest::prelude::any::<u64>(),
        ) {
            let plan = matrix::plan(&Options::default().with(|it| {
                it.arrays.level = vec![level.parse().expect("a level")];
                it.engine.members = vec!["mem".parse().expect("a set")];
                it.sizes = vec![size];
                it.blocks.block = vec![blocks * 512];
                it.blocks.jobs = vec![jobs];
                it.blocks.read_ahead = vec![read_ahead];
                it.engine.stripe_cache = vec![cache];
            }));
            if let Ok(plan) = plan {
                let _ = check_memory(&plan, 1, 1 << 30);
            }
        }
    }
}
