//! `raidlab bench` with programs: their names and their progress.
//!
//! Called from `bench` and `sweep`.

use std::str::FromStr;

use anyhow::{Error, Result};
use bench::Progress;
use bench::program::cases::Host;
use bench::program::session::RunResult;
use spec::case::Case;
use spec::program::ProgramSpec;
use spec::workload::Kind;

use crate::console::say;
use crate::error::reworded;

/// One value of `--workload`: a block workload or a program.
#[derive(Clone, Debug)]
pub enum WorkloadName {
    /// A block workload, directly on the array.
    Blocks(Kind),
    /// A program, as in `bonnie++`.
    Program(ProgramSpec),
}

impl FromStr for WorkloadName {
    type Err = Error;

    fn from_str(text: &str) -> Result<WorkloadName> {
        if ProgramSpec::is_meant(text) {
            return Ok(WorkloadName::Program(text.parse()?));
        }
        let also = "; and programs: raidlab programs lists them";
        let kind = text.parse::<Kind>();
        let kind = kind.map_err(|error| reworded(error, |text| format!("{text}{also}")))?;
        Ok(WorkloadName::Blocks(kind))
    }
}

/// Runs a case that is a program; `show` receives its progress.
pub fn run_program(
    case: &Case,
    label: &str,
    destroy: bool,
    stop: &dyn Fn() -> bool,
    show: &dyn Fn(&Progress<'_>),
) -> RunResult {
    let progress = |event: Progress<'_>| show(&event);
    let remark = |text: &str| say(format_args!("{text}"));
    let host = Host { destroy, stop, progress: &progress, remark: &remark };
    bench::program::cases::run(case, label, &host)
}
