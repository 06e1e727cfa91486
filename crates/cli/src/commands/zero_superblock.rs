//! `raidlab zero-superblock`: members that are no array's any more, as `mdadm --zero-superblock`.
//!
//! Invariant: nothing is written before every member was examined; data are never overwritten.

use std::ffi::OsString;
use std::fmt::Write;

use admin::{Erased, FoundSuperblocks, ZeroError};
use anyhow::{Error, Result};
use clap::Args;
use host::Access;
use serde::Serialize;
use spec::shown::Shown;

use crate::Ending;
use crate::console::{JsonOut, say};
use crate::error::reworded;
use crate::members::Used;

const EXAMPLES: &str = "\
Examples:
  raidlab zero-superblock --dry-run /dev/sdb1      what would be erased
  raidlab zero-superblock /dev/sdb1 /dev/sdc1
  raidlab zero-superblock --array 3a2b1c00:11111111:22222222:33333333 /dev/sd[bc]1

Only the superblocks are overwritten, 4 KiB each, at every place where one is; bitmaps, logs and
data stay. Nothing is written unless every member has one. A member in use is refused. To undo it,
create the array again with the same options, --assume-clean and --force.";

/// Erase the md superblocks of members, as mdadm --zero-superblock does.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ZeroSuperblockArguments {
    /// Image files, partitions, disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of a device
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// Erase only the superblocks of this array; others on the same members stay
    #[arg(long, value_name = "UUID|NAME")]
    array: Option<String>,
    /// Also erase damaged superblocks, and those that belong to another place
    #[arg(short, long)]
    force: bool,
    /// Show what would be erased, write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
pub fn run(arguments: &ZeroSuperblockArguments) -> Result<Ending> {
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let access = if arguments.dry_run { Access::ReadOnly } else { Access::ReadWrite };
    let array = arguments.array.as_deref();
    let found =
        FoundSuperblocks::of(&arguments.members, arguments.force, array, access).map_err(failed)?;
    let erased = match arguments.dry_run {
        true => found.list(),
        false => found.erase().map_err(failed)?,
    };
    let is_done = !arguments.dry_run;
    let outcome = || Outcome { erased: is_done, superblocks: &erased };
    arguments.json.put(&text(&erased, is_done), outcome)?;
    Ok(Ending::Fine)
}

fn failed(error: ZeroError) -> Error {
    match error {
        ZeroError::Odd { .. } => reworded(error, |text| format!("{text}; --force erases it")),
        ZeroError::Write { ref done, .. } => {
            text(done, true).lines().for_each(|line| say(format_args!("raidlab: {line}")));
            error.into()
        }
        error => error.into(),
    }
}

/// What programs read.
#[derive(Serialize)]
struct Outcome<'e> {
    erased: bool,
    superblocks: &'e [Erased],
}

fn text(erased: &[Erased], is_done: bool) -> String {
    let mut out = String::new();
    let end = if is_done { "erased" } else { "would be erased" };
    for Erased { member, sector, version, array_uuid } in erased {
        let what = match version.zip(*array_uuid) {
            Some((version, uuid)) => format!("superblock {version} of array {uuid}"),
            None => "damaged superblock".into(),
        };
        let _ = writeln!(out, "{}", Shown(format!("{member}: {what} at sector {sector} {end}")));
    }
    out
}
