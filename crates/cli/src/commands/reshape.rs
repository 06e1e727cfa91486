//! `raidlab reshape`: a reshape that stopped is finished or reverted.
//!
//! Invariant: members are written to only with `--in-place`; with `--overlay` all writes go to the
//! overlay and a file beside it.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use admin::reshape::{
    ReshapeError, ReshapeEvent, ReshapeOptions, ReshapeReport, ReshapeState, Where,
};
use anyhow::{Error, Result, bail};
use clap::{ArgGroup, Args};
use md::reshape::{Goal, ReshapeRefusal};
use md::show_size;
use serde::Serialize;
use spec::shown::Shown;

use crate::console::{JsonOut, say};
use crate::error::reworded;
use crate::members::{Used, choice_text, overlaps};
use crate::meter::Stages;
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab reshape --continue --overlay try.ovl /dev/sd[b-e]1    rehearse: nothing is written to them
  raidlab dump --overlay try.ovl -o md0.img /dev/sd[b-e]1       look at what would come of it
  raidlab reshape --continue --in-place /dev/sd[b-e]1           carry it out
  raidlab reshape --revert --in-place --backup-file grow.bak disk*.img

The array must not be running. Its number of members, chunk, layout or data offset is moved from
where the superblocks say that it is, as the kernel does it: RAID 4, 5, 6 and 10, metadata 0.90 and
1.x, also with as many members missing as both geometries can do without. At the end the array is as
after a reshape of the kernel's, which can run it; the kernel can also take over at any position
where no backup file is in use. A grown file system is not part of it.

Where the new rows lie over old ones that are not moved yet, their contents are copied first to
--backup-file, in mdadm's format; name the file that mdadm was given, if there was one: what was
under way when the reshape stopped is restored from it.

Ctrl-C stops at a position that is recorded; the same command continues from there, and so it does
after a crash. A revert that has turned round is continued with --continue.

Ends with 0 when the reshape is over, with 130 when it was stopped.";

/// Finish or revert a reshape that stopped, without the kernel.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("where_to").args(["go_on", "revert"]).required(true)))]
pub struct ReshapeArguments {
    /// All members of the array, those that join or leave included: image files, partitions, disks;
    /// PATH@OFFSET for a part of a device
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// Continue it to its end
    #[arg(long = "continue")]
    go_on: bool,
    /// Go back to the geometry from before the reshape
    #[arg(long)]
    revert: bool,
    /// Write to this overlay file and not to the members; created, or reused
    #[arg(long, value_name = "FILE", conflicts_with = "in_place")]
    overlay: Option<PathBuf>,
    /// Write to the members
    #[arg(long)]
    in_place: bool,
    /// Backup of the reshape: mdadm's, and copies of our own; with --overlay it is only read
    #[arg(long, value_name = "FILE")]
    backup_file: Option<PathBuf>,
    /// Continue where the message without it says what may be lost
    #[arg(long)]
    force: bool,
    /// The array, by name or UUID, if the members form several
    #[arg(long, value_name = "NAME|UUID")]
    array: Option<String>,
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
pub fn run(arguments: &ReshapeArguments) -> Result<Ending> {
    let mut used = Used::members(&arguments.members);
    for (option, path) in
        [("--overlay", &arguments.overlay), ("--backup-file", &arguments.backup_file)]
    {
        let Some(path) = path else { continue };
        if let Some(how) = overlaps(&used, path) {
            bail!("{option} {}: {how}; name another file", path.display());
        }
        used.extend(Used::file(&option[2..], path));
    }
    arguments.json.refuse_overlap(&used)?;
    let options = options(arguments)?;
    let stop = signal::watch()?;
    let mut stages = Stages::default();
    let mut observe = |event| match event {
        ReshapeEvent::Begins { change, sectors } => {
            let size = show_size(sectors);
            say(format_args!("raidlab: {change}: {size} of the array are to be moved"));
        }
        ReshapeEvent::Progress { done, sectors } => stages.set("moved", done, sectors),
        ReshapeEvent::Note(note) => say(format_args!("raidlab: {note}")),
    };
    let is_new = arguments.overlay.as_deref().filter(|path| !path.exists());
    let reshaped = admin::reshape::reshape(&arguments.members, &options, &stop, &mut observe);
    stages.finish();
    if let (Err(_), Some(path)) = (&reshaped, is_new) {
        host::remove_unused_overlay(path);
    }
    let report = reshaped.map_err(|error| failed(error, arguments))?;
    let finished = report.state == ReshapeState::Finished;
    let continued_with = (!finished).then(|| continued_with(&report, arguments));
    let reverting = arguments.revert;
    let outcome = || Outcome { report: &report, finished, reverting, continued_with };
    arguments.json.put(&text(&report, arguments), outcome)?;
    Ok(if report.state == ReshapeState::Finished { Ending::Fine } else { Ending::Stopped })
}

fn options(arguments: &ReshapeArguments) -> Result<ReshapeOptions> {
    let to = match (&arguments.overlay, arguments.in_place) {
        (Some(path), _) => Where::Overlay(path.clone()),
        (None, true) => Where::InPlace,
        (None, false) => bail!(
            "a reshape rewrites the members: rehearse it with --overlay FILE, which leaves them as \
             they are, or order it with --in-place"
        ),
    };
    Ok(ReshapeOptions {
        goal: if arguments.revert { Goal::Revert } else { Goal::Continue },
        to,
        backup_file: arguments.backup_file.clone(),
        force: arguments.force,
        array: arguments.array.clone(),
    })
}

fn failed(error: ReshapeError, arguments: &ReshapeArguments) -> Error {
    match error {
        ReshapeError::Choose(error) => {
            let text = choice_text(&error, arguments.array.as_deref());
            Error::new(error).context(text)
        }
        ReshapeError::NeedsBackup { .. } => reworded(error, |text| {
            format!("{text}; name one with --backup-file FILE, on none of these members")
        }),
        ReshapeError::Refused { why: ReshapeRefusal::NeedsForce(_), .. } => {
            let has_file = arguments.backup_file.is_some();
            reworded(error, |text| match has_file {
                true => format!("{text}. --force continues all the same."),
                false => format!(
                    "{text}. --backup-file FILE names a backup, if there is one; --force \
                     continues all the same."
                ),
            })
        }
        ReshapeError::Worse { .. } if arguments.revert => reworded(error, |text| {
            format!("{text} This reshape cannot be reverted here; --continue finishes it.")
        }),
        error => error.into(),
    }
}

/// The option with which the next run continues.
fn continued_with(report: &ReshapeReport, arguments: &ReshapeArguments) -> &'static str {
    match report.state {
        ReshapeState::Finished => "",
        ReshapeState::Stopped if arguments.revert => "--revert",
        ReshapeState::Stopped | ReshapeState::StoppedReverting => "--continue",
    }
}

/// What programs read.
#[derive(Serialize)]
struct Outcome<'r> {
    #[serde(flatten)]
    report: &'r ReshapeReport,
    finished: bool,
    reverting: bool,
    continued_with: Option<&'static str>,
}

fn text(report: &ReshapeReport, arguments: &ReshapeArguments) -> String {
    let mut out = String::new();
    let ReshapeReport { name, change, position, moved, restored, missing, .. } = report;
    for slot in missing {
        let _ = writeln!(out, "slot {slot}: no member");
    }
    if *restored > 0 {
        let _ = writeln!(out, "{} were moved from a backup", show_size(*restored));
    }
    let (moved, size) = (show_size(*moved), show_size(report.array_sectors));
    let seconds = report.elapsed.as_secs_f64();
    let what = match report.state {
        ReshapeState::Finished => {
            format!("{name}: {change}: done, {moved} moved in {seconds:.1} s; the array has {size}")
        }
        _ => {
            let option = continued_with(report, arguments);
            format!(
                "{name}: {change}: stopped at array sector {position}, {moved} moved in \
                 {seconds:.1} s; {option} resumes it"
            )
        }
    };
    let _ = writeln!(out, "{}", Shown(what));
    if let Some(overlay) = &arguments.overlay {
        let what = format!("written to {} only; the members are as before", overlay.display());
        let _ = writeln!(out, "{}", Shown(what));
        if report.copied > 0 {
            let size = show_size(report.copied);
            let _ = writeln!(out, "{size} were copied first: in place, --backup-file is needed");
        }
    }
    out
}
