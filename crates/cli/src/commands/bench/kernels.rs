//! `raidlab bench kernels`: the parity kernels alone, without arrays.
//!
//! Called from `bench`.

use std::sync::atomic::Ordering;

use anyhow::Result;
use bench::kernels::Settings;
use clap::Args;
use parity::Kernels;
use serde::Serialize;
use spec::units;

use super::options::{parse_cores, parse_kernels};
use super::{RUNS, hold_to_cores};
use crate::console::JsonOut;
use crate::output::{Outputs, json_of};
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab bench kernels                          every kernel that this CPU can run
  raidlab bench kernels --parity-impl avx2,gfni-avx2
  raidlab bench kernels --json=kernels.json";

/// Measure the parity kernels: operation x kernel x block size, GB/s of data, next to the limit of
/// memory bandwidth.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct KernelsArguments {
    /// Kernels to measure: reference, portable, avx2, gfni-avx2, avx512, gfni-avx512 [default: all
    /// that this CPU can run, but the reference]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = parse_kernels)]
    parity_impl: Vec<Kernels>,
    /// Samples of each figure [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Pin to N CPUs [default: unpinned]
    #[arg(long, value_name = "N", value_parser = parse_cores)]
    cores: Option<u32>,
    /// Show what would be measured and the estimated time, measure nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
///
/// # Errors
/// If the outputs cannot be written.
pub fn run(arguments: &KernelsArguments) -> Result<Ending> {
    let all = || Kernels::available().filter(|&kernels| kernels != Kernels::reference()).collect();
    let chosen = match arguments.parity_impl.is_empty() {
        true => all(),
        false => arguments.parity_impl.clone(),
    };
    hold_to_cores(arguments.cores)?;
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let settings = Settings::usual(chosen, arguments.runs.unwrap_or(RUNS) as usize);
    let outputs = Outputs::open(&arguments.json, None)?;
    if arguments.dry_run {
        return dry_run(&settings, outputs);
    }
    let table = bench::kernels::run(&settings, &stopped)?;
    outputs.write_texts(&table.text(), &table.to_json(), None)?;
    Ok(if stopped() { Ending::Stopped } else { Ending::Fine })
}

/// What would be measured, and how long it would take.
#[derive(Serialize)]
struct ListDocument<'a> {
    operations: Vec<&'a str>,
    kernels: Vec<&'a str>,
    data_blocks: &'a [usize],
    block_bytes: &'a [usize],
    figures: usize,
    seconds: f64,
}

fn dry_run(settings: &Settings, outputs: Outputs) -> Result<Ending> {
    let joined = |parts: Vec<String>| parts.join(", ");
    let kernels: Vec<&str> = settings.kernels.iter().map(|kernels| kernels.name()).collect();
    let operations: Vec<&str> = Settings::operations().collect();
    let sizes = settings.block_bytes.iter().map(|bytes| units::bytes(*bytes as u64));
    let counts = settings.data_blocks.iter().map(ToString::to_string);
    let (figures, seconds) = (settings.figures(), settings.estimate_seconds());
    let text = format!(
        "operations: {}\nkernels: {}\ndata blocks: {}\nblock sizes: {}\n\
         {figures} figures, about {}\n",
        operations.join(", "),
        kernels.join(", "),
        joined(counts.collect()),
        joined(sizes.collect()),
        units::show_seconds(seconds)
    );
    let (data_blocks, block_bytes) = (&settings.data_blocks, &settings.block_bytes);
    let listed = ListDocument { operations, kernels, data_blocks, block_bytes, figures, seconds };
    outputs.write_texts(&text, &json_of(&listed), None).map(|()| Ending::Fine)
}
