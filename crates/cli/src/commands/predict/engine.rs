//! `raidlab predict --engine`: the engine in model time, and how near a paced run is.
//!
//! Invariant: nothing is measured: every figure is one of model time, and says so.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Error, Result, bail};
use bench::model_time;
use clap::Args;
use report::pivot;
use results::record::{Cell, Latency, Record};
use results::settings::identity;
use results::stats::median;
use serde::Serialize;
use spec::case::RunConfig;
use spec::matrix::{self, Options, Plan};
use spec::shown::counted;
use spec::units::{digits, kib};
use spec::workload::Kind;

use super::calibrated::Calibrated;
use crate::commands::bench::{RUNS, SampleOptions, fastest_kernels};
use crate::commands::results::read_record;
use crate::console::{JsonOut, columns, say, to_thousandths};
use crate::error::of_option;
use crate::progress::Reporter;
use crate::size_args::parse_bytes;
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab predict --engine                             the table of `raidlab bench`, in seconds
  raidlab predict --engine --level raid5,raid6 --disks 6 --members paced:hdd-2020
  raidlab predict --engine --calibration mine.toml     disks that calibrate has measured
  raidlab bench --json=record.json && raidlab predict --engine --against record.json
                                                       a paced run beside its prediction

The engine itself runs, on modelled drives, with a clock that advances where it would wait; the CPU
time of the engine is not in the figures. With the same seed a paced run has the same requests.
Exit status: 1 if --against has a cell that is further off than 3 % (sequential), 5 % (random).";

/// Predict our own engine instead of Linux md: it runs on modelled drives in model time. Options
/// as of bench; every combination is predicted.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct EngineArguments {
    #[command(flatten)]
    matrix: Options,
    /// Workloads: seq-read, seq-write, rand-read, rand-write [default: these]; seq-mixed,
    /// rand-mixed; none, where --background work is to run alone
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    workload: Vec<Kind>,
    /// Used size of the array, members are sized to fit [default: members of 128M, fully used]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_bytes)]
    size: Vec<u64>,
    /// Samples per cell [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    #[command(flatten)]
    samples: SampleOptions,
    /// Disks that `raidlab calibrate -o` has measured, and the buses that it has found: its
    /// FILE.toml; or FILE.toml*6, six disks like its first
    #[arg(long, value_name = "FILE", conflicts_with_all = ["members", "bus"])]
    calibration: Option<String>,
    /// A record of `bench --json` of the same arrays: its figures stand beside the predictions
    #[arg(long, value_name = "RECORD.json")]
    against: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOut,
}

/// How far a sequential and a random cell of a paced run may be from its prediction.
const NEAR: [f64; 2] = [0.03, 0.05];

/// A guess for the first ETA: seconds of a cell.
const SECONDS_OF_A_CELL: f64 = 0.5;

/// A cell in model time, and the same cell of a paced run.
struct Row<'c> {
    name: String,
    cell: &'c Cell,
    measured: Option<f64>,
    /// Seeds of those paced cells, where they say one.
    seeds: BTreeSet<u64>,
}

impl Row<'_> {
    /// Predicted over measured.
    fn ratio(&self) -> Option<f64> {
        self.measured.map(|measured| self.cell.rate() / measured)
    }

    fn allowed(&self) -> f64 {
        NEAR[usize::from(self.cell.counts_requests())]
    }

    fn is_near(&self) -> Option<bool> {
        self.ratio().map(|ratio| (ratio - 1.0).abs() <= self.allowed())
    }
}

/// Runs the command.
///
/// # Errors
/// Options that make no array; members without a model; a record that cannot be read.
pub fn run(arguments: &EngineArguments) -> Result<Ending> {
    let plan = arguments.plan()?;
    let read = |path| read_record(path).map_err(of_option("--against"));
    let against = arguments.against.as_deref().map(read).transpose()?;
    let config = arguments.config();
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    for why in &plan.left_out {
        say(format_args!("left out: {why}"));
    }
    let started = Instant::now();
    let cells = plan.cells();
    let mut reporter = Reporter::new(cells, 0, cells as f64 * SECONDS_OF_A_CELL);
    let found = model_time::run(&plan, &config, &stopped, &mut |progress| reporter.show(&progress));
    reporter.finish();
    let (record, ended) = found?;
    ended.map_err(Error::from)?;
    if stopped() {
        return Ok(Ending::Stopped);
    }
    let rows = rows(&record, against.as_ref());
    if against.is_some() && rows.iter().all(|row| row.measured.is_none()) {
        bail!("--against: the record has none of these cells: arrays and workloads must be alike");
    }
    let (seconds, seed) = (started.elapsed().as_secs_f64(), arguments.samples.seed);
    arguments.json.put(&text(&rows, seed, seconds), || document(&rows, seed, &plan, seconds))?;
    let far = rows.iter().any(|row| row.is_near() == Some(false));
    Ok(if far { Ending::Finding } else { Ending::Fine })
}

impl EngineArguments {
    fn plan(&self) -> Result<Plan> {
        let mut options = self.matrix.clone();
        options.workloads.clone_from(&self.workload);
        options.sizes.clone_from(&self.size);
        if let Some(text) = &self.calibration {
            let calibrated = Calibrated::read(text)?;
            options.engine.members = vec![calibrated.members()?.parse()?];
            options.engine.bus = calibrated.buses()?.into_iter().collect();
            // Arrays of all disks, unless options name others.
            if let (Some(count), true) = (calibrated.count(), options.arrays.array.is_empty())
                && options.arrays.disks.is_empty()
            {
                options.arrays.disks = vec![count];
            }
        }
        let plan = matrix::plan(&options)?;
        // What has no model is refused with its option, before anything runs.
        model_time::modelled(&plan).map_err(Error::new).map_err(of_option("--members"))?;
        Ok(plan)
    }

    fn config(&self) -> RunConfig {
        self.matrix.blocks.time(RunConfig {
            runs: self.runs.unwrap_or(RUNS),
            until_steady: self.samples.until_steady,
            seed: self.samples.seed,
            kernels: fastest_kernels(),
            ..RunConfig::quick()
        })
    }
}

fn rows<'c>(record: &'c Record, against: Option<&Record>) -> Vec<Row<'c>> {
    let labels = pivot::labels(&record.cells, true);
    let each = record.cells.iter().zip(labels);
    each.map(|(cell, label)| {
        let key = identity(cell);
        let same = against.iter().flat_map(|record| &record.cells);
        let same = same.filter(|other| identity(other) == key && other.did_something());
        let same: Vec<&Cell> = same.collect();
        let measured: Vec<f64> = same.iter().map(|other| other.rate()).collect();
        let seeds = same.iter().filter_map(|other| other.case.random_seed).collect();
        Row { name: pivot::with_disks(&label, cell), cell, measured: median(&measured), seeds }
    })
    .collect()
}

fn text(rows: &[Row<'_>], seed: u64, seconds: f64) -> String {
    let compared = rows.iter().any(|row| row.measured.is_some());
    let lines = rows.iter().map(|row| {
        let cell = row.cell;
        let share =
            cell.derived.bound_share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
        let requests = u64::from(cell.case.depth) * u64::from(cell.case.jobs);
        let measured = match row.measured.zip(row.ratio()) {
            None if compared => "not measured".to_string(),
            None => cell.derived.bound_note.clone().unwrap_or_else(|| "-".into()),
            Some((measured, ratio)) => {
                let far = if row.is_near() == Some(false) { " *" } else { "" };
                format!(
                    "{} {}, {:+.1} %{far}",
                    digits(measured),
                    cell.unit(),
                    (ratio - 1.0) * 100.0
                )
            }
        };
        [
            row.name.clone(),
            format!("{} {} x {requests}", cell.case.workload, kib(cell.case.block_kib)),
            digits(cell.derived.mb_per_s),
            digits(cell.derived.iops),
            share,
            measured,
        ]
    });
    let last = if compared { "measured, predicted from it" } else { "limit" };
    let header = ["array", "workload", "MB/s", "IOPS", "of its bound", last];
    let mut out = columns(header, lines, &[2, 3, 4]);
    for random in [false, true] {
        if let Some(summary) = Summary::of(rows, random) {
            out += &summary.text();
        }
    }
    let others = other_seeds(rows, seed);
    if !others.is_empty() {
        let others = others.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        out += &format!(
            "\nThe record has seed {others}, the prediction {seed}: random offsets are others."
        );
    }
    out += &format!(
        "\nThe engine on modelled drives, in model time: {} in {seconds:.1} s.\n",
        counted(rows.len(), "cell")
    );
    out
}

/// Seeds of the paced run that the prediction does not have.
fn other_seeds(rows: &[Row<'_>], seed: u64) -> BTreeSet<u64> {
    rows.iter().flat_map(|row| &row.seeds).copied().filter(|other| *other != seed).collect()
}

/// How near the cells of a kind are to those of the record.
struct Summary {
    random: bool,
    cells: usize,
    median: f64,
    max: f64,
    outside: usize,
}

impl Summary {
    fn of(rows: &[Row<'_>], random: bool) -> Option<Summary> {
        let chosen = rows.iter().filter(|row| row.cell.counts_requests() == random);
        let chosen: Vec<&Row<'_>> = chosen.filter(|row| row.measured.is_some()).collect();
        let off = chosen.iter().filter_map(|row| row.ratio());
        let off: Vec<f64> = off.map(|ratio| (ratio - 1.0).abs()).collect();
        Some(Summary {
            random,
            cells: chosen.len(),
            median: median(&off)?,
            max: off.iter().copied().fold(0.0, f64::max),
            outside: chosen.iter().filter(|row| row.is_near() == Some(false)).count(),
        })
    }

    fn text(&self) -> String {
        let kind = if self.random { "random" } else { "sequential" };
        format!(
            "\n{kind}: {}, off by {:.1} % (median), {:.1} % (most); {} by more than {:.0} %",
            counted(self.cells, "cell"),
            self.median * 100.0,
            self.max * 100.0,
            self.outside,
            NEAR[usize::from(self.random)] * 100.0
        )
    }

    fn document(&self) -> AgainstDocument {
        AgainstDocument {
            random: self.random,
            cells: self.cells,
            median_off: self.median,
            max_off: self.max,
            allowed: NEAR[usize::from(self.random)],
            outside: self.outside,
        }
    }
}

/// Cells predicted, and how near those of a record are.
#[derive(Serialize)]
struct EngineDocument<'a> {
    schema: &'static str,
    seed: u64,
    seconds: f64,
    cells: Vec<CellDocument<'a>>,
    left_out: Vec<String>,
    against_other_seeds: BTreeSet<u64>,
    against: Vec<AgainstDocument>,
}

#[derive(Serialize)]
struct CellDocument<'a> {
    array: &'a str,
    level: Cow<'a, str>,
    layout: Option<Cow<'a, str>>,
    disks: u32,
    chunk_kib: Option<u64>,
    degraded: u32,
    members: &'a str,
    workload: Cow<'a, str>,
    block_kib: f64,
    depth: u32,
    jobs: u32,
    predicted_mb_per_s: f64,
    predicted_iops: f64,
    predicted_latency_us: &'a Option<Latency>,
    bound_mb_per_s: Option<f64>,
    bound_share: Option<f64>,
    limit: Option<&'a str>,
    warnings: &'a [String],
    unit: &'static str,
    measured: Option<f64>,
    ratio: Option<f64>,
    near: Option<bool>,
}

/// How near the cells of a kind are: shares of the measured rate.
#[derive(Serialize)]
struct AgainstDocument {
    random: bool,
    cells: usize,
    median_off: f64,
    max_off: f64,
    allowed: f64,
    outside: usize,
}

impl<'a> CellDocument<'a> {
    fn of(row: &'a Row<'a>) -> CellDocument<'a> {
        let (case, derived) = (&row.cell.case, &row.cell.derived);
        CellDocument {
            array: &row.name,
            level: case.level.text(),
            layout: case.layout.as_ref().map(|layout| layout.text()),
            disks: case.disks,
            chunk_kib: case.chunk_kib,
            degraded: case.degraded,
            members: &case.members,
            workload: case.workload.text(),
            block_kib: case.block_kib,
            depth: case.depth,
            jobs: case.jobs,
            predicted_mb_per_s: derived.mb_per_s,
            predicted_iops: derived.iops,
            predicted_latency_us: &row.cell.measured.latency_us,
            bound_mb_per_s: derived.bound_mb_per_s,
            bound_share: derived.bound_share,
            limit: derived.bound_note.as_deref(),
            warnings: &derived.warnings,
            unit: row.cell.unit(),
            measured: row.measured,
            ratio: row.ratio(),
            near: row.is_near(),
        }
    }
}

fn document<'a>(rows: &'a [Row<'a>], seed: u64, plan: &Plan, seconds: f64) -> EngineDocument<'a> {
    let summaries = [false, true].into_iter().filter_map(|random| Summary::of(rows, random));
    EngineDocument {
        schema: "raidlab-predict-engine/1",
        seed,
        seconds: to_thousandths(seconds),
        cells: rows.iter().map(CellDocument::of).collect(),
        left_out: plan.left_out.iter().map(ToString::to_string).collect(),
        against_other_seeds: other_seeds(rows, seed),
        against: summaries.map(|summary| summary.document()).collect(),
    }
}
