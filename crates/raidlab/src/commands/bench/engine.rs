//! `raidlab bench engine`: this project's acceptance table, hidden from the help.
//!
//! Called from `bench`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use parity::Kernels;
use spec::case::BenchLevel;
use spec::workload::Kind;

use super::RUNS;
use super::options::{fastest_kernels, parse_kernels, parse_sample};
use super::programs::WorkloadName;
use crate::console::{JsonOut, say};
use crate::output::{Outputs, json_of};
use crate::size_args::parse_bytes;
use crate::{Ending, signal};

/// Length of a sample: there are many rows, and memory members are steady.
const SAMPLE_SECONDS: f64 = 0.25;
/// Used size of each array: far larger than any CPU cache.
const AREA_BYTES: u64 = 4 << 30;
/// Minimum of `--size`: less fits into CPU caches and cannot feed two cores.
const LEAST_BYTES: u64 = 64 << 20;

/// Measure the engine on memory members: every row of its table next to its target and the limit
/// of plain memory copies. Exit 1 when a target is missed.
#[derive(Args)]
pub struct EngineArguments {
    /// Only rows of these levels
    #[arg(long, value_delimiter = ',', value_name = "LEVEL")]
    level: Vec<BenchLevel>,
    /// Only rows of these block workloads
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = parse_kind)]
    workload: Vec<Kind>,
    /// Used size of each array [default: 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_area)]
    size: Option<u64>,
    /// Number of sample pairs [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Length of a sample [default: 0.25]
    #[arg(long, value_name = "TIME", value_parser = parse_sample)]
    seconds: Option<f64>,
    /// Seed of random offsets and of the written data
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Implementation of the parity computation [default: the fastest on this CPU]
    #[arg(long, value_name = "NAME", value_parser = parse_kernels)]
    parity_impl: Option<Kernels>,
    /// Show the rows and the estimated time, measure nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOut,
}

fn parse_kind(text: &str) -> Result<Kind> {
    match text.parse()? {
        WorkloadName::Blocks(kind) => Ok(kind),
        WorkloadName::Program(_) => Err(anyhow!("only block workloads are measured here")),
    }
}

fn parse_area(text: &str) -> Result<u64> {
    let bytes = parse_bytes(text)?;
    if bytes < LEAST_BYTES { Err(anyhow!("the table needs 64M or more")) } else { Ok(bytes) }
}

/// Runs the command.
///
/// # Errors
/// If no row is selected, memory is short, or the outputs cannot be written.
pub fn run(arguments: &EngineArguments) -> Result<Ending> {
    let levels = arguments.level.iter().map(|level| match level {
        BenchLevel::Md(level) => Ok(*level),
        BenchLevel::Single => Err(anyhow!("--level single: the table has rows of arrays only")),
    });
    let settings = engine_table::Settings {
        sample: Duration::from_secs_f64(arguments.seconds.unwrap_or(SAMPLE_SECONDS)),
        rounds: arguments.runs.unwrap_or(RUNS),
        area_bytes: arguments.size.unwrap_or(AREA_BYTES),
        kernels: arguments.parity_impl.unwrap_or_else(fastest_kernels),
        seed: arguments.seed,
        cpus: bench::runner::allowed_cpus()?,
        levels: levels.collect::<Result<_>>()?,
        workloads: arguments.workload.clone(),
    };
    if !settings.has_rows() {
        bail!("bench engine: no row has this --level and this --workload");
    }
    if arguments.dry_run {
        let (rows, seconds) = settings.plan();
        let time = spec::units::show_seconds(seconds);
        let text = format!("{}\n{} rows, about {time} and filling\n", rows.join("\n"), rows.len());
        let json = json_of(&serde_json::json!({"rows": rows, "seconds": seconds}));
        let outputs = Outputs::open(&arguments.json, None)?;
        return outputs.write_texts(&text, &json, None).map(|()| Ending::Fine);
    }
    if let Some(available) = sys::available_memory_bytes() {
        settings.check_memory(available)?;
    }
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let outputs = Outputs::open(&arguments.json, None)?;
    let mut tell = |what: &str| say(format_args!("{what}"));
    let table = engine_table::run(&settings, &stopped, &mut tell)?;
    outputs.write_texts(&table.text(), &table.to_json(), None)?;
    Ok(match (stopped(), table.is_met()) {
        (true, _) => Ending::Stopped,
        (false, true) => Ending::Fine,
        (false, false) => Ending::Finding,
    })
}
