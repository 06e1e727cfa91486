//! The engine's own speed as one table: figure, target, copy ceiling, verdict. What
//! `make bench-engine` prints.
//!
//! ```text
//! for each array:  fill | row: figure, ceiling, figure, ceiling, ... | check everything | next row
//!                                paired: a disturbance affects both
//! ```
//! Six `mem` members, 64 KiB chunks, one pinned core that generates, fills, checks and runs the
//! engine. A row is *met* when its figure reaches its target, or three quarters of its ceiling
//! (`memcpy_limit.rs`) where that is less: no engine moves bytes faster than the machine
//! copies.
//!
//! Invariant: a figure is the median of its rounds, all of which are in the document; a row whose
//! data was wrong is never met. Called by the program beside it, with its arguments.

#![forbid(unsafe_code)]

mod memcpy_limit;

use std::time::{Duration, SystemTime};

use bench::measurement::Measurement;
use bench::runner::{self, Timing};
use bench::target::{Requests, Target};
use bench::verify::VerifyErrors;
use bench::{RunnerError, TargetError};
use md::Level;
use md::nested::ArrayExpr;
use results::host::Host;
use results::record::{Latency, ThreadTime, rfc3339};
use results::stats::{self, LatencyRecorder};
use serde::Serialize;
use spec::case::{ArrayConfig, Knobs, RunConfig};
use spec::members::{MemberSet, MembersError};
use spec::units::show_size;
use spec::workload::{Kind, Spec};

pub use crate::memcpy_limit::MapError;
use crate::memcpy_limit::{CopySet, Work};

const CHUNK_BYTES: u64 = 64 << 10;
const STRIPE_CACHE_BYTES: u64 = 32 << 20;
/// Every how many-th read is checked, as in every bench on members in memory.
const CHECK_EVERY: u32 = 16;
const WARM_UP: Duration = Duration::from_millis(50);
/// The share of the ceiling that is sufficient, whatever the target.
const CEILING_SHARE: f64 = 0.75;

/// Least share of the core's time: below it other processes ran there and disturbed the figure.
/// Members in memory never block, so a shard has no reason to sleep.
const QUIET_SHARE: f64 = 0.97;

/// Target of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goal {
    /// Requests per second.
    Iops(f64),
    /// Bytes per second.
    Rate(f64),
    /// Median and 99.9th percentile of the latency, microseconds, at most.
    Latency { p50: f64, p999: f64 },
    /// Speedup of two cores over one.
    Cores(f64),
    /// No target; requests per second are reported.
    None,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
struct Plan {
    kind: Kind,
    block_kib: u64,
    depth: u32,
    goal: Goal,
}

/// An array, and the rows that are measured on it.
#[derive(Clone, Copy, Debug)]
struct Case {
    array: &'static str,
    members: &'static str,
    degraded: bool,
    shards: u16,
    rows: &'static [Plan],
}

const fn iops(kind: Kind, goal: Goal) -> Plan {
    Plan { kind, block_kib: 4, depth: 32, goal }
}

const fn large(kind: Kind, block_kib: u64, gb_per_s: f64) -> Plan {
    Plan { kind, block_kib, depth: 16, goal: Goal::Rate(gb_per_s * 1e9) }
}

const fn latency(kind: Kind) -> Plan {
    Plan { kind, block_kib: 4, depth: 1, goal: Goal::Latency { p50: 3.0, p999: 30.0 } }
}

const NULL_ROWS: &[Plan] = &[iops(Kind::RandRead, Goal::None), iops(Kind::RandWrite, Goal::None)];

/// The table. A degraded case follows the healthy one of the same array, which it continues to use.
const CASES: &[Case] = &[
    Case {
        array: "raid5(6)",
        members: "mem",
        degraded: false,
        shards: 1,
        rows: &[
            iops(Kind::RandRead, Goal::Iops(1.5e6)),
            iops(Kind::RandWrite, Goal::Iops(0.45e6)),
            large(Kind::SeqRead, 1024, 8.0),
            large(Kind::SeqWrite, 1280, 5.0),
            latency(Kind::RandRead),
            latency(Kind::RandWrite),
        ],
    },
    Case {
        array: "raid5(6)",
        members: "mem",
        degraded: true,
        shards: 1,
        rows: &[
            iops(Kind::RandRead, Goal::Iops(0.6e6)),
            large(Kind::SeqRead, 1024, 4.0),
            iops(Kind::RandWrite, Goal::Iops(0.35e6)),
        ],
    },
    Case {
        array: "raid6(6)",
        members: "mem",
        degraded: false,
        shards: 1,
        rows: &[iops(Kind::RandWrite, Goal::Iops(0.3e6)), large(Kind::SeqWrite, 1280, 4.0)],
    },
    Case {
        array: "raid0(6)",
        members: "mem",
        degraded: false,
        shards: 1,
        rows: &[iops(Kind::RandRead, Goal::Iops(1.8e6)), iops(Kind::RandWrite, Goal::Iops(1.8e6))],
    },
    Case {
        array: "raid1(2)",
        members: "mem",
        degraded: false,
        shards: 1,
        rows: &[iops(Kind::RandRead, Goal::Iops(1.8e6)), iops(Kind::RandWrite, Goal::Iops(1.2e6))],
    },
    Case {
        array: "raid10(6)",
        members: "mem",
        degraded: false,
        shards: 1,
        rows: &[iops(Kind::RandRead, Goal::Iops(1.8e6)), iops(Kind::RandWrite, Goal::Iops(1.1e6))],
    },
    Case {
        array: "raid5(6)",
        members: "mem",
        degraded: false,
        shards: 2,
        rows: &[iops(Kind::RandRead, Goal::Cores(1.8)), iops(Kind::RandWrite, Goal::Cores(1.8))],
    },
    Case { array: "raid0(6)", members: "null", degraded: false, shards: 1, rows: NULL_ROWS },
    Case { array: "raid1(2)", members: "null", degraded: false, shards: 1, rows: NULL_ROWS },
    Case { array: "raid5(6)", members: "null", degraded: false, shards: 1, rows: NULL_ROWS },
    Case { array: "raid6(6)", members: "null", degraded: false, shards: 1, rows: NULL_ROWS },
    Case { array: "raid10(6)", members: "null", degraded: false, shards: 1, rows: NULL_ROWS },
];

/// How the table is measured.
pub struct Settings {
    /// Length of a sample, of figures and of ceilings.
    pub sample: Duration,
    /// Pairs of samples for each row.
    pub rounds: u32,
    /// How much of each array is used.
    pub area_bytes: u64,
    /// Parity kernels.
    pub kernels: parity::Kernels,
    /// Seed of the run's data.
    pub seed: u64,
    /// Usable CPUs: a row uses the first one, or two of them.
    pub cpus: Vec<usize>,
    /// Only these levels; empty: all.
    pub levels: Vec<Level>,
    /// Only these workloads; empty: all.
    pub workloads: Vec<Kind>,
}

/// A row with its measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The array as an expression, `raid5(6)`.
    pub array: String,
    /// Its members, `mem` or `null`.
    pub members: String,
    /// Members that were missing.
    pub degraded: u32,
    /// `rand-read` and so on.
    pub workload: String,
    /// Bytes of a request, in KiB.
    pub block_kib: u64,
    /// Queue depth on each core.
    pub depth: u32,
    /// Cores, each with a generator of its own.
    pub cores: u32,
    /// Of `figure`, `target`, `memcpy_limit` and `needed`: `iops`, `mb_per_s` (10^6 bytes), `us` or
    /// `ratio`.
    pub unit: &'static str,
    /// The median of `figures`; of a latency, the p50 of all rounds together.
    pub figure: f64,
    /// One for each round.
    pub figures: Vec<f64>,
    /// The target; of a latency, its maximum.
    pub target: Option<f64>,
    /// The median of `ceilings`.
    pub ceiling: Option<f64>,
    /// One for each round, taken in turn with the figures.
    pub ceilings: Vec<f64>,
    /// The median of the rounds' figure over ceiling.
    pub ceiling_share: Option<f64>,
    /// Threshold of the verdict: the target, or 75 % of the ceiling where that is less.
    pub needed: Option<f64>,
    /// Whether `needed` was reached; `null` without a target.
    pub met: Option<bool>,
    /// Whether all data was right; `null` where nothing can be verified.
    pub verified: Option<bool>,
    /// Over all rounds.
    pub latency_us: Option<Latency>,
    /// CPU time for each request on all cores together, ns.
    pub cpu_ns_per_op: Option<f64>,
    /// CPU time of all cores over their wall time: less than 1 where other processes ran on them.
    pub core_share: Option<f64>,
    /// CPU time of each core's thread over all rounds.
    pub cpu_threads: Vec<ThreadTime>,
    /// Warnings about the figure.
    pub warnings: Vec<String>,
}

/// All rows. As JSON, the document that `--json` gives.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Version of raidlab.
    pub raidlab: String,
    /// The machine.
    pub host: Host,
    /// Start time, RFC 3339 in UTC.
    pub started: String,
    /// Bytes of each array that were used.
    pub area_bytes: u64,
    /// Seconds of a sample.
    pub sample_s: f64,
    /// The rows, in the order measured.
    pub rows: Vec<Row>,
}

/// Measures the table, until `stop`. `progress` receives the current step.
///
/// # Errors
/// One line when an array cannot be created or filled, or memory is too small.
pub fn run(
    settings: &Settings,
    stop: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Table, TableError> {
    let mut table = Table {
        raidlab: env!("CARGO_PKG_VERSION").to_string(),
        host: bench::metrics::host::probe(Some(settings.kernels.name()), None),
        started: rfc3339(SystemTime::now()),
        area_bytes: settings.area_bytes,
        sample_s: settings.sample.as_secs_f64(),
        rows: Vec::new(),
    };
    let mut kept: Option<(&str, Bench)> = None;
    for case in CASES {
        let rows: Vec<&Plan> = case.rows.iter().filter(|row| settings.wants(case, row)).collect();
        if rows.is_empty() || stop() {
            continue;
        }
        let before = kept.take().filter(|(array, _)| case.degraded && *array == case.array);
        let mut bench = match before {
            Some((_, bench)) => bench,
            None => Bench::new(case, settings, stop, progress)?,
        };
        if case.degraded {
            bench.target.degrade(1)?;
        }
        for row in rows {
            if stop() {
                break;
            }
            progress(&format!("{} {} {}", case.name(), row.kind.name(), case.members));
            table.rows.extend(bench.row(case, row, settings, stop)?);
        }
        kept = Some((case.array, bench));
    }
    Ok(table)
}

/// Why the table cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The arrays and their copies do not fit into memory.
    #[error(
        "{} of memory are needed, twice the members of an array of {}, and {} are available; \
         use less --size",
        show_size(*needed), show_size(*area_bytes), show_size(*available)
    )]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Size of the largest array.
        area_bytes: u64,
        /// Available bytes.
        available: u64,
    },
    /// A row needs more CPUs.
    #[error("{case}: {available} CPU(s); leave the row out with --level")]
    Cpus {
        /// The row's array.
        case: String,
        /// CPUs given.
        available: usize,
    },
    /// The members of an array.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// An array cannot be made, filled or degraded.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A workload cannot be performed.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// There is no memory for the copies.
    #[error(transparent)]
    Map(#[from] MapError),
}

impl Settings {
    fn wants(&self, case: &Case, row: &Plan) -> bool {
        let level = case.expr().level;
        (self.levels.is_empty() || self.levels.contains(&level))
            && (self.workloads.is_empty() || self.workloads.contains(&row.kind))
    }

    /// The selected rows, in words, and the estimated duration in seconds: samples of figures and
    /// of ceilings, without filling.
    pub fn plan(&self) -> (Vec<String>, f64) {
        let rows = CASES.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row)));
        let rows = rows.filter(|(case, row)| self.wants(case, row)).map(|(case, row)| {
            let degraded = if case.degraded { ", degraded" } else { "" };
            let (kind, kib) = (row.kind.name(), row.block_kib);
            format!(
                "{}{degraded}, {}, {} core(s): {kind} {kib} KiB x {}",
                case.array, case.members, case.shards, row.depth
            )
        });
        let rows: Vec<String> = rows.collect();
        let samples = rows.len() as f64 * f64::from(self.rounds) * 2.0;
        (rows, samples * self.sample.as_secs_f64())
    }

    /// Whether the table has a selected row.
    pub fn has_rows(&self) -> bool {
        CASES.iter().any(|case| case.rows.iter().any(|row| self.wants(case, row)))
    }

    /// Whether the largest array fits into memory with its ceiling's members beside it.
    ///
    /// # Errors
    /// [`TableError::Memory`].
    pub fn check_memory(&self, available: u64) -> Result<(), TableError> {
        let wanted = CASES.iter().filter(|case| case.rows.iter().any(|row| self.wants(case, row)));
        let members = wanted.map(|case| case.member_bytes(self.area_bytes) * case.disks() as u64);
        let most = members.max().unwrap_or(0);
        let needed = 2 * most + self.area_bytes / 1024 + (256 << 20);
        if needed > available {
            let area_bytes = self.area_bytes;
            return Err(TableError::Memory { needed, area_bytes, available });
        }
        Ok(())
    }
}

impl Case {
    fn expr(&self) -> ArrayExpr {
        self.array.parse().expect("the table's arrays are sound")
    }

    fn disks(&self) -> usize {
        self.expr().leaves()
    }

    /// Member size for an array that holds the area, bytes.
    fn member_bytes(&self, area_bytes: u64) -> u64 {
        let level = self.expr().level;
        let data = match level {
            Level::Raid5 => self.disks() - 1,
            Level::Raid6 => self.disks() - 2,
            Level::Raid1 => 1,
            Level::Raid10 => self.disks() / 2,
            _ => self.disks(),
        };
        area_bytes.div_ceil(data as u64).next_multiple_of(CHUNK_BYTES)
    }

    fn name(&self) -> String {
        let degraded = if self.degraded { ", 1 missing" } else { "" };
        let cores = if self.shards > 1 { ", 2 cores" } else { "" };
        format!("{}{degraded}{cores}", self.array)
    }
}

/// An array under measurement.
struct Bench {
    target: Target,
    /// The same array on one core, where cores are compared.
    single: Option<Target>,
    copies: Option<CopySet>,
}

impl Bench {
    fn new(
        case: &Case,
        settings: &Settings,
        stop: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Bench, TableError> {
        let name = format!("{} of {}", case.name(), case.members);
        if settings.cpus.len() < usize::from(case.shards) {
            return Err(TableError::Cpus { case: name, available: settings.cpus.len() });
        }
        runner::hold_to(&settings.cpus[..1])?;
        let mut make = |shards| {
            progress(&format!("{name}: filling"));
            let mut target = make_target(case, settings, shards)?;
            if target.keeps_data() {
                target.fill(stop, &mut |_| {})?;
            }
            Ok::<Target, TableError>(target)
        };
        let target = make(case.shards)?;
        let single = if case.shards > 1 { Some(make(1)?) } else { None };
        let compared =
            case.rows.iter().any(|row| matches!(row.goal, Goal::Iops(_) | Goal::Rate(_)));
        let copies = match compared {
            true => {
                let bytes = case.member_bytes(settings.area_bytes) as usize;
                Some(CopySet::new(case.disks(), bytes)?)
            }
            false => None,
        };
        Ok(Bench { target, single, copies })
    }

    /// Measures a row; `None` where it was stopped before its first round ended.
    fn row(
        &mut self,
        case: &Case,
        plan: &Plan,
        settings: &Settings,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Row>, TableError> {
        let spec = Spec {
            kind: plan.kind,
            block_bytes: plan.block_kib << 10,
            depth: plan.depth,
            jobs: 1,
            read_ahead_bytes: 0,
            read_percent: None,
            rate: None,
            background: None,
        };
        let work = Work {
            level: case.expr().level,
            kind: plan.kind,
            degraded: case.degraded,
            block_bytes: spec.block_bytes as usize,
            depth: plan.depth as usize,
            chunk_bytes: CHUNK_BYTES as usize,
        };
        let mut rounds = Rounds::default();
        for _ in 0..settings.rounds {
            let one = match &mut self.single {
                Some(single) => {
                    runner::hold_to(&settings.cpus[..1])?;
                    Some(sample(single, spec, settings, stop)?)
                }
                None => None,
            };
            runner::hold_to(&settings.cpus[..usize::from(case.shards)])?;
            let ran = sample(&mut self.target, spec, settings, stop)?;
            let wanted = matches!(plan.goal, Goal::Iops(_) | Goal::Rate(_));
            let copied = self.copies.as_mut().filter(|_| wanted);
            let copied = copied.map(|copies| copies.measure(&work, settings.sample)).transpose()?;
            if ran.stopped || stop() {
                break;
            }
            let in_unit = |sample: &results::record::Sample| match plan.goal {
                Goal::Rate(_) => sample.mb_per_s(),
                _ => sample.iops(),
            };
            let base = one.as_ref().map(|one| one.samples[0].iops());
            let rate = in_unit(&ran.samples[0]);
            let figure = match plan.goal {
                Goal::Latency { .. } => ran.latency.latency().map_or(0.0, |latency| latency.p50),
                Goal::Cores(_) => rate / base.unwrap_or(rate),
                _ => rate,
            };
            rounds.figures.push(figure);
            rounds.ceilings.extend(copied.as_ref().map(in_unit));
            rounds.add(&ran);
            one.iter().for_each(|one| rounds.errors.add(&one.errors));
        }
        // All written data, outside the timed part.
        for target in [Some(&mut self.target), self.single.as_mut()].into_iter().flatten() {
            rounds.errors.add(&target.check_all(stop));
        }
        let verified = match rounds.errors.is_clean() {
            false => Some(false),
            true => (self.target.keeps_data() && !stop()).then_some(true),
        };
        Ok((!rounds.figures.is_empty()).then(|| rounds.row(case, plan, verified)))
    }
}

fn make_target(case: &Case, settings: &Settings, shards: u16) -> Result<Target, TableError> {
    let set: MemberSet = case.members.parse().expect("the table's members are sound");
    let depth = case.rows.iter().map(|row| row.depth).max().unwrap_or(1) as usize;
    let block_kib = case.rows.iter().map(|row| row.block_kib).max().unwrap_or(4);
    let config = ArrayConfig {
        chunk_bytes: CHUNK_BYTES,
        knobs: Knobs { stripe_cache_bytes: Some(STRIPE_CACHE_BYTES), ..Knobs::default() },
        ..ArrayConfig::new(case.expr(), &set, case.member_bytes(settings.area_bytes))?
    };
    let run = RunConfig {
        directory: ".".into(),
        cores: Some(shards.into()),
        seed: settings.seed,
        kernels: settings.kernels,
        ..RunConfig::quick()
    };
    // The degraded rows use the same array, with blocks that are no larger.
    let block_bytes = block_kib.max(1024) << 10;
    let requests = Requests { block_bytes, unit_bytes: 4096, in_flight: depth, spare: 0 };
    Ok(Target::new(&config, &run, requests)?)
}

fn sample(
    target: &mut Target,
    spec: Spec,
    settings: &Settings,
    stop: &dyn Fn() -> bool,
) -> Result<Measurement, RunnerError> {
    let timing = Timing {
        warm_up: WARM_UP,
        sample: settings.sample,
        runs: 1,
        until_steady: None,
        check_every: CHECK_EVERY,
        check_later: true,
        seed: 1,
    };
    runner::run(target, spec, timing, stop, &mut |_| {})
}

/// Results of the rounds of a row.
#[derive(Default)]
struct Rounds {
    figures: Vec<f64>,
    ceilings: Vec<f64>,
    latencies: LatencyRecorder,
    threads: Vec<ThreadTime>,
    ops: u64,
    seconds: f64,
    errors: VerifyErrors,
    events: usize,
}

impl Rounds {
    fn add(&mut self, ran: &Measurement) {
        self.latencies.merge(&ran.latency);
        for sample in &ran.samples {
            self.ops += sample.ops;
            self.seconds += sample.seconds;
        }
        self.errors.add(&ran.errors);
        self.events += ran.events.len();
        for shard in &ran.shards {
            match self.threads.iter_mut().find(|thread| thread.name == shard.name) {
                Some(thread) => thread.seconds += shard.seconds,
                None => self.threads.push(shard.clone()),
            }
        }
    }

    fn row(self, case: &Case, plan: &Plan, verified: Option<bool>) -> Row {
        let latency_us = self.latencies.latency();
        let ceiling = stats::median(&self.ceilings);
        let shares: Vec<f64> =
            self.figures.iter().zip(&self.ceilings).map(|(figure, most)| figure / most).collect();
        let figure = match plan.goal {
            Goal::Latency { .. } => latency_us.map_or(0.0, |latency| latency.p50),
            _ => stats::median(&self.figures).unwrap_or(0.0),
        };
        let verdict = verdict(plan.goal, figure, ceiling, latency_us);
        let cpu: f64 = self.threads.iter().map(|thread| thread.seconds).sum();
        let core_share = cpu / (self.seconds * f64::from(case.shards));
        let core_share = (self.seconds > 0.0).then_some(core_share);
        Row {
            array: case.array.into(),
            members: case.members.into(),
            degraded: u32::from(case.degraded),
            workload: plan.kind.name().into(),
            block_kib: plan.block_kib,
            depth: plan.depth,
            cores: u32::from(case.shards),
            unit: plan.goal.unit(),
            figure,
            target: verdict.target,
            ceiling,
            ceiling_share: stats::median(&shares),
            needed: verdict.needed,
            met: verdict.met.map(|met| met && verified != Some(false)),
            verified,
            latency_us,
            cpu_ns_per_op: (self.ops > 0).then(|| cpu * 1e9 / self.ops as f64),
            core_share,
            cpu_threads: self.threads,
            warnings: warnings(&self.errors, self.events, core_share),
            figures: self.figures,
            ceilings: self.ceilings,
        }
    }
}

fn warnings(errors: &VerifyErrors, events: usize, core_share: Option<f64>) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(share) = core_share.filter(|share| *share < QUIET_SHARE) {
        warnings.push(format!(
            "others ran on the core for {:.0} % of the time: measure on a quiet machine",
            (1.0 - share) * 100.0
        ));
    }
    if let Some(error) = &errors.first_error {
        warnings.push(format!("{} request(s) failed ({error})", errors.failed_requests));
    }
    if errors.wrong_reads > 0 {
        warnings.push(format!("{} read(s) returned wrong data", errors.wrong_reads));
    }
    if events > 0 {
        warnings.push(format!("{events} event(s) at members: the array was not what it is said"));
    }
    warnings
}

impl Goal {
    fn unit(self) -> &'static str {
        match self {
            Goal::Iops(_) | Goal::None => "iops",
            Goal::Rate(_) => "mb_per_s",
            Goal::Latency { .. } => "us",
            Goal::Cores(_) => "ratio",
        }
    }
}

struct Verdict {
    target: Option<f64>,
    needed: Option<f64>,
    met: Option<bool>,
}

fn verdict(goal: Goal, figure: f64, ceiling: Option<f64>, latency: Option<Latency>) -> Verdict {
    let target = match goal {
        Goal::Iops(iops) => iops,
        Goal::Rate(rate) => rate / 1e6,
        Goal::Latency { p50, .. } => p50,
        Goal::Cores(ratio) => ratio,
        Goal::None => return Verdict { target: None, needed: None, met: None },
    };
    let needed = ceiling.map_or(target, |ceiling| target.min(CEILING_SHARE * ceiling));
    let met = match goal {
        Goal::Latency { p50, p999 } => {
            latency.is_some_and(|latency| latency.p50 <= p50 && latency.p999 <= p999)
        }
        _ => figure >= needed,
    };
    Verdict { target: Some(target), needed: Some(needed), met: Some(met) }
}

impl Table {
    /// Whether every row reached its threshold and all data was right.
    pub fn is_met(&self) -> bool {
        self.rows.iter().all(|row| row.met != Some(false) && row.verified != Some(false))
    }

    /// The document that `--json` gives.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("numbers and names");
        text.push('\n');
        text
    }

    /// The table for the terminal; with `|` between columns, so that it is one in Markdown too.
    pub fn text(&self) -> String {
        let head =
            ["array", "workload", "figure", "lowest .. highest", "target", "ceiling", "of it"]
                .into_iter()
                .chain(["needed", "verdict", "CPU ns/op"]);
        let mut lines: Vec<Vec<String>> = vec![head.map(str::to_string).collect()];
        lines.extend(self.rows.iter().map(Row::cells));
        let columns = lines[0].len();
        let width =
            |at: usize| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            text.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
            if number == 0 {
                let rule = widths.iter().enumerate().map(|(at, width)| match at {
                    0 | 1 => "-".repeat(width + 2),
                    _ => format!("{}:", "-".repeat(width + 1)),
                });
                text.push_str(&format!("|{}|\n", rule.collect::<Vec<_>>().join("|")));
            }
        }
        let size = show_size(self.area_bytes);
        text.push_str(&format!(
            "medians of paired samples of {} s on {size} of each array, chunk 64 KiB; M/s: 10^6 \
             requests, GB/s: 10^9 bytes\nneeded: the target, or 75 % of the copy ceiling where \
             that is less\n",
            self.sample_s
        ));
        for row in &self.rows {
            for warning in &row.warnings {
                text.push_str(&format!("{} {}: {warning}\n", row.array, row.workload));
            }
        }
        text
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let missing = if self.degraded > 0 { ", 1 missing" } else { "" };
        let members = if self.members == "mem" { "" } else { " null" };
        let cores =
            if self.cores > 1 { format!(" on {} cores", self.cores) } else { String::new() };
        let spread = stats::range(&self.figures)
            .map(|(low, high)| format!("{} .. {}", self.plain(low), self.plain(high)));
        let show = |value: Option<f64>| value.map(|value| self.show(value)).unwrap_or_default();
        let p999 = self.latency_us.filter(|_| self.unit == "us");
        let figure = match p999 {
            Some(latency) => format!("{}, p99.9 {:.2}", self.show(self.figure), latency.p999),
            None => self.show(self.figure),
        };
        vec![
            format!("{}{members}{missing}", self.array),
            format!("{} {}K x {}{cores}", self.workload, self.block_kib, self.depth),
            figure,
            spread.unwrap_or_default(),
            show(self.target),
            show(self.ceiling),
            self.ceiling_share.map(|share| format!("{:.0} %", share * 100.0)).unwrap_or_default(),
            show(self.needed),
            match (self.verified, self.met) {
                (Some(false), _) => "WRONG DATA",
                (_, Some(true)) => "met",
                (_, Some(false)) => "missed",
                (_, None) => "",
            }
            .into(),
            self.cpu_ns_per_op.map(|ns| format!("{ns:.0}")).unwrap_or_default(),
        ]
    }

    fn plain(&self, value: f64) -> String {
        match self.unit {
            "iops" => format!("{:.3}", value / 1e6),
            "mb_per_s" => format!("{:.2}", value / 1e3),
            _ => format!("{value:.2}"),
        }
    }

    fn show(&self, value: f64) -> String {
        let unit = match self.unit {
            "iops" => " M/s",
            "mb_per_s" => " GB/s",
            "us" => " us",
            _ => " x",
        };
        format!("{}{unit}", self.plain(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(levels: Vec<Level>, workloads: Vec<Kind>) -> Settings {
        Settings {
            sample: Duration::from_millis(5),
            rounds: 2,
            area_bytes: 64 << 20,
            kernels: parity::Kernels::best(),
            seed: 1,
            cpus: runner::allowed_cpus().expect("the system says"),
            levels,
            workloads,
        }
    }

    #[test]
    fn a_row_needs_its_target_or_three_quarters_of_its_ceiling() {
        let met = |goal, figure, ceiling| verdict(goal, figure, ceiling, None).met;
        assert_eq!(met(Goal::Iops(1e6), 1e6, Some(9e6)), Some(true));
        assert_eq!(met(Goal::Iops(1e6), 0.9e6, Some(9e6)), Some(false));
        // The machine is too slow for the target.
        assert_eq!(met(Goal::Iops(1e6), 0.75e6, Some(1e6)), Some(true));
        assert_eq!(met(Goal::Rate(8e9), 8000.0, None), Some(true));
        assert_eq!(met(Goal::Cores(1.8), 1.79, None), Some(false));
        assert_eq!(met(Goal::None, 1.0, None), None);
        let latency = |p50, p999| Some(Latency { p50, p999, ..Latency::default() });
        let goal = Goal::Latency { p50: 3.0, p999: 30.0 };
        assert_eq!(verdict(goal, 3.0, None, latency(3.0, 30.0)).met, Some(true));
        assert_eq!(verdict(goal, 2.0, None, latency(2.0, 31.0)).met, Some(false));
    }

    #[test]
    fn rows_are_measured_verified_and_beside_their_ceilings() {
        let settings = settings(vec![Level::Raid6], vec![Kind::RandWrite, Kind::SeqWrite]);
        let table = run(&settings, &|| false, &mut |_| {}).expect("it runs");
        let seen: Vec<(&str, &str, u64)> = table
            .rows
            .iter()
            .map(|row| (row.members.as_str(), row.workload.as_str(), row.block_kib))
            .collect();
        assert_eq!(
            seen,
            [("mem", "rand-write", 4), ("mem", "seq-write", 1280), ("null", "rand-write", 4)]
        );
        for row in &table.rows[..2] {
            assert_eq!((row.verified, row.figures.len(), row.ceilings.len()), (Some(true), 2, 2));
            assert!(row.figure > 0.0 && row.ceiling > Some(0.0) && row.met.is_some());
            assert!(row.cpu_ns_per_op > Some(0.0) && row.latency_us.is_some());
        }
        let null = &table.rows[2];
        assert_eq!((null.verified, null.met, null.ceilings.len()), (None, None, 0));
        let text = table.text();
        assert_eq!(text.lines().filter(|line| line.starts_with("| raid6(6)")).count(), 3, "{text}");
        assert!(text.lines().all(|line| line.starts_with('|') || line.len() < 120), "{text}");
        let json: serde_json::Value = serde_json::from_str(&table.to_json()).expect("JSON");
        assert_eq!(json["rows"][0]["figures"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn a_degraded_array_goes_on_and_wrong_data_is_never_met() {
        let settings = settings(vec![Level::Raid5], vec![Kind::SeqRead]);
        let table = run(&settings, &|| false, &mut |_| {}).expect("it runs");
        let degraded: Vec<u32> = table.rows.iter().map(|row| row.degraded).collect();
        assert_eq!(degraded, [0, 1]);
        assert!(table.rows.iter().all(|row| row.verified == Some(true)), "{:?}", table.rows);
        let plan = large(Kind::SeqRead, 1024, 0.0);
        let rounds = Rounds { figures: vec![1.0], ..Rounds::default() };
        assert_eq!(rounds.row(&CASES[0], &plan, Some(false)).met, Some(false));
    }

    #[test]
    fn memory_that_is_too_small_is_refused_before_anything_is_made() {
        let settings = Settings { area_bytes: 4 << 30, ..settings(Vec::new(), Vec::new()) };
        let error = settings.check_memory(16 << 30).expect_err("two mirrored sets of 8 GiB");
        let error = error.to_string();
        assert!(error.contains("16.") && error.contains("--size"), "{error}");
        assert!(settings.check_memory(17 << 30).is_ok());
    }
}
