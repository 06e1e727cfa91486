//! `raidlab predict`: what Linux md is expected to deliver.
//!
//! Four ways: one configuration; rows of a document of tables; the published tables, to judge the
//! law; and, instead of Linux md, the engine in model time. Invariant: nothing is
//! measured, and no file but the outputs is written.

mod calibrated;
mod engine;
mod machine;
mod one;
mod shop;
mod tables;
mod validate;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, Subcommand};
use predict::fitted::Fitted;
use predict::pasted::Pasted;

use crate::Ending;
use crate::console::JsonOut;
use crate::error::Context;

pub use machine::{Described, MachineArguments, parse_work};
pub use one::{ArrayArguments, Input, inputs, level_name};

const EXAMPLES: &str = "\
Examples:
  raidlab predict --level raid5 --disks 6 --members hdd-2016 --fs ext4
  raidlab predict --level raid6 --disk 'IronWolf 8 TB*6'
  raidlab predict --level raid10 --layout f2 --disks 4 --members hdd-2009 --workload seq-read
  raidlab predict --level raid6 --disks 8 --measured seq-read=182 --measured seq-write=175
  raidlab predict --tables tables.json --json      every row of tables that others measured
  raidlab predict --validate                       the published figures beside the law
  raidlab predict --engine --level raid5,raid6     our own engine instead of Linux md

Figures are MB/s (1e6 bytes) or operations per second. docs/models describes the law, its limits
and the document of --tables.";

/// Predict what Linux md delivers: a point, the interval of healthy machines, what limits, and the
/// naive rule beside it. From drive profiles, measured figures or facts in a file; nothing is run.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true,
          after_help = EXAMPLES)]
pub struct PredictArguments {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    array: one::ArrayArguments,
    #[command(flatten)]
    machine: MachineArguments,
    /// Predict every row of a document of tables (docs/models/tables.md); - is stdin
    #[arg(long, value_name = "FILE", help_heading = "Tables",
          conflicts_with_all = ["array", "level", "layout", "disks", "chunk", "workload", "members",
                                "measured", "facts", "calibration", "disk", "smartctl"])]
    tables: Option<PathBuf>,
    /// Print figures beside predictions and the naive rule, and the scores: of the published
    /// tables, which no constant was fitted to, or of --tables
    #[arg(long, help_heading = "Tables", conflicts_with_all = ["level", "members", "measured"])]
    validate: bool,
    /// Constants and intervals to use [default: the built-in ones]
    #[arg(long, value_name = "FILE")]
    constants: Option<PathBuf>,
    /// With --tables or --validate, draw predicted against measured: one offline HTML page
    #[arg(long, value_name = "FILE", conflicts_with_all = ["level", "members"])]
    html: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOut,
}

/// What is predicted besides Linux md.
#[derive(Subcommand)]
enum What {
    #[command(long_flag = "engine")]
    Engine(Box<engine::EngineArguments>),
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read, arguments that make no array.
pub fn run(arguments: &PredictArguments) -> Result<Ending> {
    if let Some(What::Engine(arguments)) = &arguments.what {
        return engine::run(arguments);
    }
    let fitted = fitted(arguments.constants.as_deref())?;
    let tables = arguments.tables.as_deref();
    let outputs = tables::Outputs { json: &arguments.json, html: arguments.html.as_deref() };
    outputs.check()?;
    if arguments.validate {
        return validate::validate(tables, &fitted, &outputs);
    }
    match tables {
        Some(path) => tables::run(path, &fitted, &outputs),
        None => one::run(&arguments.array, &arguments.machine, &fitted, &arguments.json),
    }
}

/// The constants of a file, or the built-in ones.
pub fn fitted(path: Option<&Path>) -> Result<Fitted> {
    let Some(path) = path else { return Ok(Fitted::built_in()) };
    let text = read_text(path)?;
    Fitted::parse(&text).with_context(|| format!("{}", path.display()))
}

/// An array as mdadm and the kernel print it.
///
/// # Errors
/// The file cannot be read, or is of no one array.
pub fn pasted(path: &Path) -> Result<Pasted> {
    let found = predict::pasted::parse(&read_text(path)?);
    found.map_err(|problem| anyhow::anyhow!("--array {}: {problem}", path.display()))
}

/// A text file, or stdin for `-`; of a size that fits documents of tables.
pub fn read_text(path: &Path) -> Result<String> {
    use std::io::Read;
    const MOST: u64 = 64 << 20;
    let failed = || format!("{}: cannot read", path.display());
    let mut text = String::new();
    let read = match crate::console::is_stdout(path) {
        true => std::io::stdin().lock().take(MOST + 1).read_to_string(&mut text),
        false => {
            std::fs::File::open(path).with_context(failed)?.take(MOST + 1).read_to_string(&mut text)
        }
    };
    if read.with_context(failed)? as u64 > MOST {
        anyhow::bail!("{}: larger than 64 MiB", path.display());
    }
    Ok(text)
}
