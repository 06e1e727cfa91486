//! `raidlab programs`: the programs that `bench --workload` runs, and their options.

use anyhow::Result;
use clap::Args;

use crate::Ending;
use crate::console::JsonOut;
use crate::output::{Outputs, json_of};

/// List the programs that bench --workload and sweeps run, with their options.
#[derive(Args)]
pub struct ProgramsArguments {
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
///
/// # Errors
/// If the list cannot be written.
pub fn run(arguments: &ProgramsArguments) -> Result<Ending> {
    let tools = spec::program::tools::described();
    let text = spec::program::tools::describe();
    Outputs::open(&arguments.json, None)?.write_texts(&text, &json_of(&tools), None)?;
    Ok(Ending::Fine)
}
