//! Carries a plan out: makes each array, fills it, runs its cells, and writes the record.
//!
//! Invariant: every cell of the plan ends up in the record, or the reason why not in its warnings or
//! in the error; a run that is stopped keeps what it has.

use std::path::Path;
use std::time::{Duration, SystemTime};

use md::nested::{ArrayExpr, Members, NestedGeometry};

use crate::bound::{self, CellShape, MemberDrive, Pattern, Shape};
use crate::host::Host;
use crate::matrix::{ArrayCase, BenchLevel, Plan};
use crate::members::MemberExpr;
use crate::meter::IdleBaseline;
use crate::quantity::show_size;
use crate::record::{Cell, MemberTraffic, Record};
use crate::runner::{self, Outcome, Timing};
use crate::target::{Target, TargetSpec};
use crate::workload::{Kind, Spec};

/// How a bench is run.
pub struct Settings<'a> {
    /// Before the first sample of each cell.
    pub warm_up: Duration,
    /// Length of a sample.
    pub sample: Duration,
    /// Samples per cell.
    pub runs: u32,
    /// Where member files go that name no directory.
    pub directory: &'a Path,
    /// CPUs that the process has been held to, for the record.
    pub cores: Option<u32>,
    /// Makes the run's data its own.
    pub seed: u64,
}

/// What happens meanwhile.
pub enum Progress<'p> {
    /// An array is being filled.
    Filling {
        /// Its name.
        array: &'p str,
        /// Share that is done.
        done: f64,
    },
    /// A cell is running.
    Running {
        /// The array's name.
        array: &'p str,
        /// The workload's.
        workload: &'p str,
        /// Cells before this one.
        cell: usize,
        /// Seconds that it has been running.
        seconds: f64,
    },
    /// A cell is done.
    Measured(&'p Cell),
}

/// How strictly reads are checked while the clock runs on members that are nothing but memory: there
/// the engine's own speed is measured, and everything is checked afterwards.
const MEMORY_CHECK_EVERY: u32 = 16;
/// More operations than this share being late makes the figure the backing store's.
const LATE_SHARE: f64 = 0.01;

/// Seconds that a plan will take, fills and checks aside.
pub fn measuring_seconds(plan: &Plan, settings: &Settings<'_>) -> f64 {
    plan.cells() as f64 * timing(settings, 1).total().as_secs_f64()
}

fn timing(settings: &Settings<'_>, check_every: u32) -> Timing {
    Timing { warm_up: settings.warm_up, sample: settings.sample, runs: settings.runs, check_every }
}

/// Runs a plan.
///
/// # Errors
/// One clear line when an array cannot be made or filled.
pub fn run(
    plan: &Plan,
    settings: &Settings<'_>,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Record, String> {
    let baseline = IdleBaseline::measure(Duration::from_millis(300));
    let uses_files = plan.arrays.iter().flat_map(|a| &a.members).any(|m| m.directory().is_some());
    let backing = uses_files.then_some(settings.directory);
    let kernels = array::DriverOptions::default().kernels;
    let host = Host::probe(Some(kernels.name()), backing);
    let mut record = Record::new(host, SystemTime::now());
    let mut before = 0;
    for case in &plan.arrays {
        if stop() {
            break;
        }
        let name = case_name(case);
        let mut target = make_target(case, settings)?;
        target
            .fill(stop, &mut |done| progress(Progress::Filling { array: &name, done }))
            .map_err(|e| format!("{name}: {e}"))?;
        if stop() {
            break;
        }
        target.degrade(case.degraded)?;
        for spec in &case.cells {
            let mut tell = |seconds| {
                let workload = spec.kind.name();
                progress(Progress::Running { array: &name, workload, cell: before, seconds });
            };
            let memory = case.members.iter().all(MemberExpr::is_memory);
            let every = if memory { MEMORY_CHECK_EVERY } else { 1 };
            let timing = timing(settings, every);
            let outcome = runner::run(&mut target, *spec, timing, baseline, stop, &mut tell)
                .map_err(|e| format!("{name}: {e}"))?;
            if outcome.stopped && outcome.samples.is_empty() {
                break;
            }
            let cell = make_cell(case, spec, settings, &target, &outcome, every);
            progress(Progress::Measured(&cell));
            record.cells.push(cell);
            before += 1;
        }
        if let Some(last) = record.cells.last_mut().filter(|_| !stop()) {
            prove_redundancy(&mut target, last, stop);
        }
    }
    record.set_ratios();
    Ok(record)
}

/// `raid5 x4, 1 missing`: for progress and messages.
pub fn case_name(case: &ArrayCase) -> String {
    let mut name = match case.level {
        BenchLevel::Single => "ordinary disk".to_string(),
        BenchLevel::Md(_) => case.expr.to_string(),
    };
    if case.degraded > 0 {
        name.push_str(&format!(", {} missing", case.degraded));
    }
    name
}

fn make_target(case: &ArrayCase, settings: &Settings<'_>) -> Result<Target, String> {
    check_memory(case)?;
    let block_bytes = case.cells.iter().map(|cell| cell.block_bytes).max().unwrap_or(4096);
    let in_flight = case.cells.iter().map(Spec::in_flight).max().unwrap_or(1);
    let whole_pages = case.cells.iter().all(|cell| cell.block_bytes % 4096 == 0);
    Target::new(&TargetSpec {
        expr: &case.expr,
        chunk_sectors: case.chunk_bytes / md::SECTOR_BYTES,
        members: &case.members,
        directory: settings.directory,
        bus_bytes_per_s: case.bus_bytes_per_s,
        member_bytes: case.member_bytes,
        stripe_cache_bytes: case.stripe_cache_bytes,
        queue_depth: case.queue_depth.map_or(usize::MAX, |depth| depth as usize),
        block_bytes,
        in_flight,
        area_bytes: case.area_bytes,
        unit_bytes: if whole_pages { 4096 } else { 512 },
        seed: settings.seed,
    })
    .map_err(|e| format!("{}: {e}", case_name(case)))
}

/// Members in memory must fit, before the machine begins to swap or to kill.
fn check_memory(case: &ArrayCase) -> Result<(), String> {
    let in_memory = case.members.iter().filter(|m| m.directory().is_none() && m.keeps_data());
    let needed = in_memory.count() as u64 * case.member_bytes;
    match crate::host::available_memory_bytes() {
        Some(available) if needed > available => Err(format!(
            "{}: members in memory need {}, and {} are available; use --size",
            case_name(case),
            show_size(needed),
            show_size(available)
        )),
        _ => Ok(()),
    }
}

fn make_cell(
    case: &ArrayCase,
    spec: &Spec,
    settings: &Settings<'_>,
    target: &Target,
    outcome: &Outcome,
    check_every: u32,
) -> Cell {
    let geometry = target.driver.geometry();
    let bytes: u64 = outcome.samples.iter().map(|sample| sample.bytes).sum();
    let gib = bytes as f64 / f64::from(1 << 30);
    let has_chunks = case.expr.level.has_chunks() && case.level != BenchLevel::Single;
    let layout = geometry.layout();
    let late: u64 = outcome.leaves.iter().map(|leaf| leaf.late).sum();
    let drive = case.members.first().and_then(MemberExpr::drive);
    let mut cell = Cell {
        target: "engine".into(),
        level: match case.level {
            BenchLevel::Single => "single".into(),
            BenchLevel::Md(level) => level.to_string(),
        },
        layout: (layout != md::Layout::None).then(|| layout.to_string()),
        disks: case.expr.leaves() as u32,
        members: case.set.to_string(),
        chunk_kib: has_chunks.then(|| geometry.chunk_sectors() * md::SECTOR_BYTES / 1024),
        degraded: case.degraded,
        workload: spec.kind.name().into(),
        block_kib: spec.block_bytes as f64 / 1024.0,
        depth: spec.depth,
        jobs: spec.jobs,
        samples: outcome.samples.clone(),
        latency_us: outcome.latency,
        cpu_process_s: Some(outcome.cpu.process_s),
        cpu_system_s: outcome.cpu.system_s,
        cpu_s_per_gib: (gib > 0.0).then(|| outcome.cpu.process_s / gib),
        verified: (target.keeps_data() || !outcome.findings.is_clean())
            .then_some(outcome.findings.is_clean()),
        per_member: outcome
            .leaves
            .iter()
            .map(|leaf| MemberTraffic {
                read_bytes: leaf.read_bytes,
                written_bytes: leaf.written_bytes,
                reads: leaf.reads,
                writes: leaf.writes,
            })
            .collect(),
        array: case.nested.then(|| case.expr.to_string()),
        read_ahead_kib: (spec.read_ahead_bytes > 0).then_some(spec.read_ahead_bytes / 1024),
        stripe_cache_kib: case.expr.level.has_parity().then_some(case.stripe_cache_bytes / 1024),
        queue_depth: case.queue_depth,
        cores: settings.cores,
        bus_mb_per_s: case.bus_bytes_per_s.map(|rate| rate as f64 / 1e6),
        member_bytes: Some(case.member_bytes),
        placement: drive.map(|(_, placement)| placement_name(placement)),
        late_ops: drive.is_some().then_some(late),
        generator_ns_per_op: Some(runner::calibrate(
            *spec,
            4096.min(spec.block_bytes as usize),
            check_every,
        )),
        ..Cell::default()
    };
    cell.summarise();
    set_bound(&mut cell, case, spec, target);
    warn(&mut cell, target, outcome, late);
    cell
}

/// After the last cell of an array: a copy or a parity block that is wrong counts as wrong data,
/// though no read of the workloads has met it.
fn prove_redundancy(target: &mut Target, last: &mut Cell, stop: &dyn Fn() -> bool) {
    let Some((gone, found)) = target.check_redundancy(stop) else { return };
    if found.is_clean() {
        return;
    }
    let gone: Vec<String> = gone.iter().map(u16::to_string).collect();
    last.verified = Some(false);
    last.warnings.push(format!(
        "with member(s) {} taken out after the run, {} unit(s) were not what was written and {} \
         request(s) failed: copies or parity are wrong, and a failing member would cost data",
        gone.join(", "),
        found.wrong_units,
        found.failed_requests
    ));
}

fn placement_name(placement: drive::Placement) -> String {
    match placement {
        drive::Placement::Window { at } => format!("window@{at}"),
        drive::Placement::Stretch => "stretch".into(),
    }
}

/// The leaves of the outermost level's members that are out of service.
fn missing_leaves(case: &ArrayCase, target: &Target) -> Vec<usize> {
    let counts: Vec<usize> = match &case.expr.members {
        Members::Leaves(count) => vec![1; *count],
        Members::Arrays(arrays) => arrays.iter().map(ArrayExpr::leaves).collect(),
    };
    let failed = target.driver.failed();
    let mut first = 0;
    let mut missing = Vec::new();
    for (member, leaves) in counts.into_iter().enumerate() {
        if failed.contains(member as u16) {
            missing.extend(first..first + leaves);
        }
        first += leaves;
    }
    missing
}

/// What the members could deliver, where all of them have a drive model.
fn set_bound(cell: &mut Cell, case: &ArrayCase, spec: &Spec, target: &Target) {
    let leaves = vec![case.member_bytes / md::SECTOR_BYTES; case.expr.leaves()];
    let chunk = case.chunk_bytes / md::SECTOR_BYTES;
    let Ok(nested) = NestedGeometry::new(&case.expr, chunk, &leaves) else { return };
    let shape = match case.level {
        BenchLevel::Single => Shape::single(case.member_bytes),
        BenchLevel::Md(_) => Shape::from(&nested),
    };
    let drives = case.members.iter().map(|member| {
        let (profile, placement) = member.drive()?;
        Some(MemberDrive { profile, placement, member_bytes: case.member_bytes })
    });
    let members: Vec<Option<MemberDrive<'_>>> = drives.collect();
    let missing = missing_leaves(case, target);
    let bound = bound::bound(&CellShape {
        shape: &shape,
        members: &members,
        bus_bytes_per_s: case.bus_bytes_per_s,
        missing: &missing,
        pattern: match spec.kind {
            Kind::SeqRead => Pattern::SequentialRead,
            Kind::SeqWrite => Pattern::SequentialWrite,
            Kind::RandRead => Pattern::RandomRead,
            Kind::RandWrite => Pattern::RandomWrite,
        },
        block_bytes: spec.block_bytes,
        depth: spec.depth,
        jobs: spec.jobs,
        span_bytes: Some(target.area_bytes()),
    });
    if let Some(bound) = bound {
        cell.bound_mb_per_s = Some(bound.mb_per_s);
        cell.bound_share = Some(cell.mb_per_s / bound.mb_per_s);
        cell.bound_note = Some(bound.note);
    }
}

/// Says what a reader must know, each with what to do about it.
fn warn(cell: &mut Cell, target: &Target, outcome: &Outcome, late: u64) {
    let findings = &outcome.findings;
    let mut warnings = Vec::new();
    if let Some(wrong) = findings.first_wrong {
        warnings.push(format!(
            "{} unit(s) of data were not what was written, the first at unit {} byte {}: a member \
             corrupts data silently; test the members one by one, each as --level single",
            findings.wrong_units, wrong.unit, wrong.byte
        ));
    }
    if let Some(error) = &findings.first_error {
        warnings.push(format!(
            "{} request(s) failed ({error}): the figure counts them as if they had not",
            findings.failed_requests
        ));
    }
    if !target.keeps_data() {
        warnings.push("null members forget what is written: nothing could be verified".into());
    }
    let failed = outcome.events.iter().filter_map(|event| match event {
        array::Event::MemberFailed { member, error } => Some((member.0, *error)),
        array::Event::Corrected { .. } => None,
    });
    for (member, error) in failed {
        let why = error.map_or("it was told to go".to_string(), |error| error.to_string());
        warnings.push(format!("member {member} dropped out during the run ({why})"));
    }
    let corrected = outcome.events.iter().filter(|e| matches!(e, array::Event::Corrected { .. }));
    let corrected = corrected.count();
    if corrected > 0 {
        warnings.push(format!(
            "{corrected} range(s) could not be read, were reconstructed and written back: look at \
             the members' health"
        ));
    }
    let ops: u64 = cell.per_member.iter().map(|member| member.reads + member.writes).sum();
    if late as f64 > ops as f64 * LATE_SHARE {
        warnings.push(format!(
            "{late} of {ops} member operations were later than the modelled drive: the backing \
             store was the bottleneck; use --dir on a faster file system, or paced:PROFILE:mem"
        ));
    }
    if outcome.stopped {
        warnings.push("stopped early: fewer samples than asked for".into());
    }
    if cell.steady == Some(false) {
        warnings.push("not steady by the SNIA rule: use a longer --seconds or more --runs".into());
    }
    cell.warnings = warnings;
}
