//! `raidlab bench`.
//!
//! Invariant: with `--json` stdout holds the record and nothing else; otherwise the table.

mod kernels;
mod listed;
mod options;
mod programs;
mod unused_options;
mod work;

use std::path::Path;
use std::sync::atomic::Ordering;

use anyhow::{Error, Result, anyhow};
use bench::bench_run::{self, BenchEvent, BenchRun};
use bench::provision::check_devices;
use clap::{ArgMatches, Args, Subcommand};
use host::Access;
use serde::Serialize;
use spec::bench_plan::{BenchPlan, BlockPlan};
use spec::case::RunConfig;
use spec::matrix::{LeftOut, Plan};
use spec::shown::counted;
use spec::units::show_seconds;

use crate::commands::results::{DbArgument, RunRecorder};
use crate::console::{JsonOut, say};
use crate::error::{Context, reworded, text_of};
use crate::output::{Outputs, json_of};
use crate::{Ending, signal};
use work::Screen;

pub use options::{
    HostOptions, Matrix, MatrixOptions, SampleOptions, fastest_kernels, parse_kernels,
};
pub use programs::run_program;
pub use unused_options::unused_options;
pub use work::plan;

/// Default of `--runs`: samples per cell.
pub const RUNS: u32 = 5;

const EXAMPLES: &str = "\
Examples:
  raidlab bench                                            the table of the Linux RAID wiki
  raidlab bench --level raid5,raid6 --disks 4,6 --members mem --workload seq-write,rand-write
  raidlab bench --level raid5 --degraded 0,1 --workload seq-read    normal and degraded
  raidlab bench --level raid5 --background rebuild --workload none,rand-read    rebuilding
  raidlab bench --members /dev/sdb+/dev/sdc --level raid0,raid1     on disks of one's own
  raidlab bench --target engine --target md --members /dev/sdb+/dev/sdc --level raid1
                                                           our engine beside Linux md on them
  raidlab bench --target engine --target linux --level raid5       md of a kernel, on modelled disks
  raidlab bench --target device:/dev/sdb --workload seq-read,rand-read    a disk, only read
  raidlab bench --target path:/mnt/array --workload bonnie++        a program in a directory
  raidlab bench kernels                                    the parity kernels alone
  raidlab sweep sweeps/wiki-2-disks.toml                   a file of cases, stored and resumable

Sizes have a unit: 64K or 64KiB, 1M, 1.5G (powers of 1024).";

/// Without options: the table of the Linux RAID wiki on modelled disks of 2007, in seconds. List
/// options may be repeated or take a comma-separated list; every combination is run.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true,
          after_help = EXAMPLES)]
pub struct BenchArguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    matrix: MatrixOptions,
    #[command(flatten)]
    host: HostOptions,
    /// Repeat the whole run N times, each with new arrays and the next seed; `compare` needs
    /// several [default: 1]
    #[arg(long, value_name = "N", help_heading = "Measuring",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: Option<u32>,
    #[command(flatten)]
    results: ResultOptions,
}

/// What `bench` measures besides arrays.
#[derive(Subcommand)]
enum What {
    /// Measure the parity kernels alone: operation x kernel x block size.
    Kernels(kernels::KernelsArguments),
}

/// Where results go; of `bench` and `sweep`.
#[derive(Args)]
pub struct ResultOptions {
    /// Show the cells and the estimated time, measure nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub json: JsonOut,
    /// Write the report to FILE: one offline HTML page with charts and every sample
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
    /// Print the latency distribution of each cell as bars, below the tables
    #[arg(long)]
    pub histogram: bool,
    #[command(flatten)]
    pub db: DbArgument,
}

impl ResultOptions {
    /// Outputs of `--dry-run`: nothing is measured, so `--html` is refused.
    pub fn outputs_of_a_list(&self) -> Result<Outputs> {
        match &self.html {
            Some(_) => Err(anyhow!("--html: nothing is measured, so there is no report")),
            None => Outputs::open(&self.json, None),
        }
    }

    /// Outputs of a run.
    pub fn outputs(&self) -> Result<Outputs> {
        let mut outputs = Outputs::open(&self.json, self.html.as_deref())?;
        outputs.histogram = self.histogram;
        Ok(outputs)
    }
}

/// Runs the command.
pub fn run(arguments: BenchArguments, matches: &ArgMatches) -> Result<Ending> {
    match &arguments.what {
        Some(What::Kernels(arguments)) => return kernels::run(arguments),
        None => {}
    }
    let BenchArguments { matrix, host, repeat, results, .. } = arguments;
    let matrix = Matrix::new(matrix, matches);
    let config = matrix.options.run_config(&host, host.kernels());
    hold_to_cores(host.cores)?;
    let work = work::checked_plan(&matrix, &host, results.dry_run)?;
    if results.dry_run {
        check_devices(&work, config.destroy_contents, Access::ReadOnly)?;
        return dry_run(&work, &config, &results);
    }
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let outputs = results.outputs()?;
    let mut keeper = RunRecorder::begin(&results.db, || bench_run::head(&work, &config))?;
    let bench = BenchRun { plan: &work, run: &config, repeat: repeat.unwrap_or(1), stop: &stopped };
    let mut screen = Screen::default();
    let (record, ended) = bench_run::run(&bench, &mut |event| {
        if let (BenchEvent::Final(cells), Some(keeper)) = (&event, &mut keeper) {
            keeper.put(cells);
        }
        screen.show(&event);
    });
    let ended = ended.map_err(Error::from);
    let kept = keeper.map(|keeper| keeper.end(ended.is_ok() && !stopped())).transpose();
    // Cells measured before a failure are still written.
    let measured = record.cells.len();
    if ended.is_ok() || measured > 0 {
        outputs.write(&record)?;
    }
    if let Some(run) = kept? {
        say(format_args!("results: {run}"));
    }
    let of_all = match work.programs.is_empty() {
        true => format!(" of {}", work.block_cells()),
        false => String::new(),
    };
    match ended {
        // Ctrl-C also reaches the tools that the run has started, so they may fail because of it.
        Err(error) if stopped() => say(format_args!("raidlab: {}", text_of(&error))),
        Err(error) if measured == 0 => return Err(error),
        Err(error) => {
            let before = format!("{measured}{of_all} cells were measured before the failure");
            return Err(reworded(error, |text| format!("{text}; {before}")));
        }
        Ok(()) => {}
    }
    if stopped() {
        say(format_args!("raidlab: stopped; {measured}{of_all} cells measured"));
        return Ok(Ending::Stopped);
    }
    Ok(if record.verified() { Ending::Fine } else { Ending::Finding })
}

/// Checks that member directories are writable and that the plan fits into memory. `dry`: without
/// making a file.
pub fn check_plan(plan: &Plan, host: &HostOptions, dry: bool) -> Result<()> {
    check_directory(plan, &host.directory(), dry)?;
    check_memory(plan, host)
}

/// Checks that the plan fits into memory; its members may be anywhere.
pub fn check_memory(plan: &Plan, host: &HostOptions) -> Result<()> {
    match host::sys::available_memory_bytes() {
        Some(available) => bench::blocks::check_memory(plan, host.cores.unwrap_or(1), available)
            .map_err(Error::from),
        None => Ok(()),
    }
}

/// Applies `--cores`: pins the process to that many CPUs.
pub fn hold_to_cores(cores: Option<u32>) -> Result<()> {
    cores.map_or(Ok(()), hold_to)
}

/// What would be measured, and how long it would take.
#[derive(Serialize)]
struct ListDocument {
    items: Vec<ListedItem>,
    /// `None`: there is no estimate, as of programs.
    seconds: Option<f64>,
}

#[derive(Serialize)]
struct ListedItem {
    name: String,
    workloads: Vec<String>,
}

/// `--dry-run`: prints arrays, workloads and programs.
fn dry_run(work: &BenchPlan, run: &RunConfig, results: &ResultOptions) -> Result<Ending> {
    let (mut text, mut items) = (String::new(), Vec::new());
    for (name, workloads) in listed::items(work) {
        text += &format!("{name}: {}\n", workloads.join(", "));
        items.push(ListedItem { name, workloads });
    }
    let estimate =
        |BlockPlan { place, plan }: &BlockPlan| bench::blocks::estimate_seconds(place, plan, run);
    let estimate = (!work.blocks.is_empty()).then(|| work.blocks.iter().map(estimate).sum::<f64>());
    let outputs = results.outputs_of_a_list()?;
    if let Some(seconds) = estimate {
        announce(&work.blocks, seconds);
    }
    let listed = ListDocument { items, seconds: estimate };
    outputs.write_texts(&text, &json_of(&listed), None).map(|()| Ending::Fine)
}

fn announce(plans: &[BlockPlan], estimate_seconds: f64) {
    // Most are the same for every target.
    let mut left_out: Vec<&LeftOut> = Vec::new();
    for BlockPlan { plan, .. } in plans {
        let new = plan.left_out.iter().filter(|why| !left_out.contains(why));
        left_out.extend(new.collect::<Vec<_>>());
    }
    left_out.iter().for_each(|why| say(format_args!("left out: {why}")));
    let cells = plans.iter().map(|target| target.plan.cells()).sum();
    let arrays = plans.iter().map(|target| target.plan.arrays.len()).sum();
    let time = show_seconds(estimate_seconds);
    let (arrays, cells) = (counted(arrays, "array"), counted(cells, "cell"));
    say(format_args!("{arrays}, {cells}, about {time}"));
}

/// Checks that every directory of member files exists and is writable.
fn check_directory(plan: &Plan, default: &Path, dry: bool) -> Result<()> {
    let members = plan.arrays.iter().flat_map(|planned| &planned.array.members);
    for directory in members.filter_map(|member| member.directory()) {
        let directory = directory.unwrap_or(default);
        if dry {
            let allowed = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
            allowed.with_context(|| {
                format!("{}: cannot create member files here", directory.display())
            })?;
            continue;
        }
        let probe = directory.join(format!("raidlab-probe-{}", std::process::id()));
        let made = std::fs::File::create(&probe);
        made.with_context(|| format!("{}: cannot create member files here", directory.display()))?;
        std::fs::remove_file(&probe)
            .with_context(|| format!("{}: cannot remove a file here", directory.display()))?;
    }
    Ok(())
}

/// Pins this process to the first CPUs of its affinity mask.
fn hold_to(cores: u32) -> Result<()> {
    let allowed = bench::runner::allowed_cpus()?;
    match allowed.get(..cores as usize) {
        Some(first) => bench::runner::hold_to(first).map_err(Error::from),
        None => Err(anyhow!(
            "--cores {cores}: this process may run on {} CPU(s); use no more",
            allowed.len()
        )),
    }
}
