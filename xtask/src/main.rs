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
mod source;
mod tidy;
mod tree;
mod workspace;
mod write_path;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

use workspace::Workspace;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy [--bin PATH]   the house rules; PATH is the raidlab binary whose --help is compared with the
                      documents (default: the newest one in the target directory)
  ci [--only STEP]    every step a change must pass, in order; see `ci --list`
  ci --list           the steps
  gate [--lower]      what a request costs, in instructions, allocations, locks and system calls,
                      beside the budgets; --lower: those that may shrink do
  sim [ARG...]        the simulator: `sim --help`; with --mutants also the planted bugs

exit status: 0 fine, 1 findings or a failed step, 2 xtask itself could not run";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all is fine.
fn run(words: &[&str]) -> Result<bool> {
    match words {
        [] | ["help" | "--help" | "-h"] => println!("{USAGE}"),
        ["ci", "--list"] => print!("{}", ci::list()),
        ["tidy"] => return tidy::run(&Workspace::load()?, None),
        ["tidy", "--bin", path] => return tidy::run(&Workspace::load()?, Some(Path::new(path))),
        ["ci"] => return ci::run(None),
        ["ci", "--only", step] => return ci::run(Some(step)),
        ["gate", lower @ ..] if matches!(lower, [] | ["--lower"]) => {
            return match gate::missing() {
                Some(why) => bail!("{why}"),
                None => gate::run(&Workspace::load()?, !lower.is_empty()),
            };
        }
        ["sim", words @ ..] => {
            let status = Workspace::load()?.simulator().args(words).status()?;
            return match status.code() {
                Some(0 | 1) => Ok(status.success()),
                _ => bail!("scripts/sim: {status}"),
            };
        }
        other => bail!("what is `{}`?\n{USAGE}", other.join(" ")),
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_refused() {
        assert!(run(&["help"]).unwrap() && run(&["ci", "--list"]).unwrap());
        for bad in
            ["x", "tidy --bin", "tidy --jsn", "ci fmt", "ci --only", "ci --only a b", "gate x"]
        {
            let words: Vec<&str> = bad.split(' ').collect();
            assert!(run(&words).is_err(), "{bad} must be refused");
        }
    }
}
