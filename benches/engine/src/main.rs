//! `engine-table`: the arguments and the exit status of the table.
//!
//! Invariant: exit status 0 all targets met, 1 one missed, 2 wrong usage or no memory. Called by
//! `make bench-engine` and scripts/engine-against.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use engine_table::Settings;
use md::{BareNumber, Level};
use parity::Kernels;
use spec::workload::Kind;

/// Least `--size`: less fits into CPU caches and cannot feed two cores.
const LEAST_BYTES: u64 = 64 << 20;

/// Measures the engine on memory members: each row beside its target and the limit of plain memory
/// copies. Exit status 1 when a target is missed.
#[derive(Parser)]
#[command(name = "engine-table")]
struct Arguments {
    /// Only rows of these levels
    #[arg(long, value_delimiter = ',', value_name = "LEVEL")]
    level: Vec<Level>,
    /// Only rows of these block workloads
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    workload: Vec<Kind>,
    /// Used size of each array
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_area)]
    size: u64,
    /// Sample pairs of each row
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Length of a sample: there are many rows, and members in memory are steady
    #[arg(long, value_name = "SECONDS", default_value_t = 0.25, value_parser = parse_seconds)]
    seconds: f64,
    /// Seed of random offsets and of the written data
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Implementation of the parity computation [default: the fastest on this CPU]
    #[arg(long, value_name = "NAME", value_parser = Kernels::by_name)]
    parity_impl: Option<Kernels>,
    /// Show the rows and the estimated time, measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Write every sample to FILE as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn parse_area(text: &str) -> Result<u64> {
    let bytes = md::parse_size(text, BareNumber::Refused)
        .map_err(|error| anyhow::anyhow!("{}", error.problem))?;
    if bytes < LEAST_BYTES {
        bail!("the table needs 64M or more");
    }
    Ok(bytes)
}

fn parse_seconds(text: &str) -> Result<f64> {
    let seconds: f64 = text.parse().context("a number of seconds")?;
    if !(0.001..=3600.0).contains(&seconds) {
        bail!("0.001 to 3600 s");
    }
    Ok(seconds)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("engine-table: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether every row reached its target.
fn run(arguments: &Arguments) -> Result<bool> {
    let settings = Settings {
        sample: Duration::from_secs_f64(arguments.seconds),
        rounds: arguments.runs,
        area_bytes: arguments.size,
        kernels: arguments.parity_impl.unwrap_or_else(Kernels::best),
        seed: arguments.seed,
        cpus: bench::runner::allowed_cpus()?,
        levels: arguments.level.clone(),
        workloads: arguments.workload.clone(),
    };
    if !settings.has_rows() {
        bail!("no row has this --level and this --workload");
    }
    if arguments.dry_run {
        let (rows, seconds) = settings.plan();
        let time = spec::units::show_seconds(seconds);
        println!("{}\n{} rows, about {time} and filling", rows.join("\n"), rows.len());
        return Ok(true);
    }
    if let Some(available) = host::sys::available_memory_bytes() {
        settings.check_memory(available)?;
    }
    let table = engine_table::run(&settings, &|| false, &mut |row| eprintln!("{row}"))?;
    print!("{}", table.text());
    if let Some(path) = &arguments.json {
        std::fs::write(path, table.to_json()).with_context(|| path.display().to_string())?;
    }
    Ok(table.is_met())
}
