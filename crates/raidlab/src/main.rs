//! The command line: arguments, commands, exit codes. Everything else is in the crates below.
//!
//! Invariant: exit codes are decided here and nowhere else: 0 fine, 1 a finding, 2 an error, 130
//! stopped by a signal.
#![forbid(unsafe_code)]

mod bench;
mod progress;

use std::process::ExitCode;

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
    let arguments = Arguments::parse();
    let ended = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
    };
    match ended {
        Ok(Ending::Fine) => ExitCode::SUCCESS,
        Ok(Ending::Finding) => ExitCode::from(1),
        Ok(Ending::Stopped) => ExitCode::from(130),
        Err(problem) => {
            eprintln!("raidlab: {problem}");
            ExitCode::from(2)
        }
    }
}
