//! The command line: arguments, commands, exit codes. Everything else is in the crates below.
//!
//! Invariant: exit codes are decided here and nowhere else: 0 fine, 1 a finding, 2 an error, 130
//! stopped by a signal.
#![forbid(unsafe_code)]

mod bench;
mod output;
mod progress;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Runs, measures, predicts and rescues Linux software RAID, from user space.
#[derive(Parser)]
#[command(name = "raidlab", version, max_term_width = 100, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure arrays: level x layout x chunk x members x workload, every byte checked.
    Bench(Box<bench::BenchArguments>),
}

/// How a command ended when it did not fail.
enum Ending {
    /// Nothing to report.
    Fine,
    /// Something was found: data that is wrong, requests that failed.
    Finding,
    /// Somebody stopped it.
    Stopped,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    let ended = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match ended {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::Finding) => ExitCode::from(1),
        Ok(Ending::Stopped) => ExitCode::from(130),
        Err(problem) => {
            output::say(format_args!("raidlab: {problem}"));
            ExitCode::from(2)
        }
    }
}

/// Help and version as they are; whatever is wrong with the arguments in one line.
fn misused(error: &clap::Error) -> ExitCode {
    let help = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == help {
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    output::say(format_args!("raidlab: {}", one_line(&error.to_string())));
    ExitCode::from(2)
}

/// clap's message without its usage and its pointer to the help.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.take_while(|line| {
        !line.starts_with("Usage:") && !line.starts_with("For more information")
    });
    let text = lines.collect::<Vec<_>>().join("; ").replace(":; ", ": ");
    text.strip_prefix("error: ").unwrap_or(&text).to_string()
}
