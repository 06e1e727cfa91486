//! `cargo xtask`: checks of this repository, for developers and CI.
//!
//! Owns the checks that rustc and clippy do not have (`tidy`) and the one list of steps that a
//! change must pass (`ci`). It depends on no crate of the workspace, so it works when they do not
//! build.

#![forbid(unsafe_code)]

mod ci;
mod finding;
mod gate;
mod page;
mod sim;
mod source;
mod tidy;
mod tools;
mod tree;
mod workspace;
mod write_path;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy [--bin PATH]            the house rules; PATH is the raidlab binary whose --help is compared
                               with the documents (default: the newest one in the target directory)
  ci [--only STEP]             every step a change must pass, in order; see `ci --list`
  ci --list                    the steps
  gate [--lower]               what a request costs, in instructions, allocations, locks and system
                               calls, beside the budgets; --lower: those that may shrink do
  sim [ARG...]                 the simulator: `sim --help`; with --mutants also the planted bugs

exit status: 0 fine, 1 findings or a failed step, 2 xtask itself could not run";

enum Command {
    Help,
    Tidy { bin: Option<PathBuf> },
    Ci { only: Option<String> },
    CiList,
    Gate { lower: bool },
    Sim { args: Vec<String> },
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match parse(&args).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<bool> {
    match command {
        Command::Help => {
            println!("{USAGE}");
            Ok(true)
        }
        Command::Tidy { bin } => tidy::run(&workspace::Workspace::load()?, bin.as_deref()),
        Command::Ci { only } => ci::run(only.as_deref()),
        Command::Gate { lower } => match gate::missing() {
            Some(why) => bail!("{why}"),
            None => gate::run(&workspace::Workspace::load()?, lower),
        },
        Command::Sim { args } => sim::run(&workspace::Workspace::load()?, &args),
        Command::CiList => {
            print!("{}", ci::list());
            Ok(true)
        }
    }
}

fn parse(args: &[String]) -> Result<Command> {
    let mut args = args.iter().map(String::as_str);
    match args.next() {
        None | Some("help" | "--help" | "-h") => Ok(Command::Help),
        Some("tidy") => match (args.next(), args.next(), args.next()) {
            (None, None, None) => Ok(Command::Tidy { bin: None }),
            (Some("--bin"), Some(path), None) => Ok(Command::Tidy { bin: Some(path.into()) }),
            _ => bail!("tidy takes --bin PATH\n{USAGE}"),
        },
        Some("ci") => match (args.next(), args.next(), args.next()) {
            (None, None, None) => Ok(Command::Ci { only: None }),
            (Some("--list"), None, None) => Ok(Command::CiList),
            (Some("--only"), Some(step), None) => Ok(Command::Ci { only: Some(step.into()) }),
            _ => bail!("ci takes --list or --only STEP\n{USAGE}"),
        },
        Some("gate") => match (args.next(), args.next()) {
            (None, None) => Ok(Command::Gate { lower: false }),
            (Some("--lower"), None) => Ok(Command::Gate { lower: true }),
            _ => bail!("gate takes --lower\n{USAGE}"),
        },
        Some("sim") => Ok(Command::Sim { args: args.map(str::to_string).collect() }),
        Some(other) => bail!("no command {other:?}\n{USAGE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Command> {
        parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        assert!(matches!(parse_line("tidy"), Ok(Command::Tidy { bin: None })));
        assert!(matches!(parse_line("tidy --bin a/b"), Ok(Command::Tidy { bin: Some(_) })));
        assert!(matches!(parse_line("sim --seed 1"), Ok(Command::Sim { args }) if args.len() == 2));
        assert!(matches!(parse_line("gate --lower"), Ok(Command::Gate { lower: true })));
        assert!(matches!(parse_line("ci"), Ok(Command::Ci { only: None })));
        assert!(matches!(parse_line("ci --only fmt"), Ok(Command::Ci { only: Some(_) })));
        for bad in ["tidy --bin", "tidy --jsn", "ci fmt", "ci --only", "ci --only a b", "gate x"] {
            assert!(parse_line(bad).is_err(), "{bad} must be refused");
        }
    }
}
