//! `raidlab update`: superblocks of members that do not run, changed as mdadm's `--update` does.
//!
//! Invariant: nothing is written before every member was examined.

use std::ffi::OsString;
use std::fmt::Write;

use admin::{BadBlockLogs, LogError, RemovedLog};
use anyhow::{Error, Result};
use clap::{ArgGroup, Args};
use host::Access;
use serde::Serialize;
use spec::shown::{Shown, counted};

use crate::Ending;
use crate::console::{JsonOut, say};
use crate::error::reworded;
use crate::members::Used;

const EXAMPLES: &str = "\
Examples:
  raidlab update --no-bbl disk*.img --dry-run      what the logs list
  raidlab update --no-bbl disk*.img                as mdadm --assemble --update=no-bbl
  raidlab update --force-no-bbl disk2.img          as mdadm --assemble --update=force-no-bbl

A bad-block log lists blocks that cannot be read from a member: reads of them are served by the
others, or are errors. Without a log they are read from the member as they are, also where they are
old: before --force-no-bbl, 'raidlab examine --bad-blocks' lists them, and a scrub --check behind it
compares them with the redundancy. The array must not run.

Exit status: 0; 2 if a log lists blocks (--no-bbl), or a member cannot be opened.";

/// Change superblocks of members of an array that does not run, as mdadm --update does.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("what").args(["no_bbl", "force_no_bbl"]).required(true)))]
pub struct UpdateArguments {
    /// Image files, partitions, disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of a device
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// Remove the bad-block logs, which must be empty
    #[arg(long)]
    no_bbl: bool,
    /// Remove the bad-block logs, also those that list blocks: these are read again
    #[arg(long)]
    force_no_bbl: bool,
    /// The array, by name or UUID, if the members form several
    #[arg(long, value_name = "NAME|UUID")]
    array: Option<String>,
    /// Show what would be removed, write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
pub fn run(arguments: &UpdateArguments) -> Result<Ending> {
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let (array, force) = (arguments.array.as_deref(), arguments.force_no_bbl);
    let found = BadBlockLogs::of(&arguments.members, array, force, access).map_err(failed)?;
    let removed = match arguments.dry_run {
        true => found.list(),
        false => found.remove().map_err(failed)?,
    };
    let is_done = !arguments.dry_run;
    let outcome = || Outcome { removed: is_done, members: &removed };
    arguments.json.put(&text(&removed, is_done), outcome)?;
    Ok(Ending::Fine)
}

fn failed(error: LogError) -> Error {
    match error {
        LogError::Listed { .. } | LogError::Unusable { .. } => reworded(error, |text| {
            format!("{text}; 'raidlab examine --bad-blocks' lists them, --force-no-bbl removes it")
        }),
        LogError::Write { ref done, .. } => {
            text(done, true).lines().for_each(|line| say(format_args!("raidlab: {line}")));
            error.into()
        }
        error => error.into(),
    }
}

/// What programs read.
#[derive(Serialize)]
struct Outcome<'r> {
    removed: bool,
    members: &'r [RemovedLog],
}

fn text(removed: &[RemovedLog], is_done: bool) -> String {
    let mut out = String::new();
    let end = if is_done { "removed" } else { "would be removed" };
    for RemovedLog { member, is_there, ranges, sectors } in removed {
        let what = match (is_there, sectors) {
            (false, _) => "no bad-block log".to_string(),
            (true, 0) => format!("empty bad-block log {end}"),
            (true, sectors) => {
                format!("bad-block log of {}, {sectors} sectors {end}", counted(*ranges, "range"))
            }
        };
        let _ = writeln!(out, "{}", Shown(format!("{member}: {what}")));
    }
    out
}
