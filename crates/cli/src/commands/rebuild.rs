//! `raidlab rebuild`: members of an array that does not run are rebuilt from the others, or
//! replaced.
//!
//! Invariant: a device that holds data is taken for an empty slot only with `--overwrite`, and an
//! array that is dirty and degraded is started only with `--force`.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::{
    AddedBad, Corrected, JoinError, NotRebuilt, RebuildError, RebuildEvent, RebuildOptions,
    RebuildReport, RebuiltMember,
};
use anyhow::{Error, Result};
use array::MemberFlags;
use clap::Args;
use host::MemberName;
use md::show_size;
use serde::Serialize;
use spec::shown::Shown;

use crate::console::{JsonOut, say};
use crate::error::reworded;
use crate::members::{Used, choice_text};
use crate::meter::Stages;
use crate::size_args::{parse_member_timeout, parse_speed_limit};
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab rebuild disk*.img                      with a spare among them, or to continue
  raidlab rebuild disk[0-2].img --add new.img    a new device for the empty slot
  raidlab rebuild /dev/sd[b-d]1 --add /dev/sde1 --add /dev/sdf1
  raidlab rebuild disk*.img --replace disk1.img=new.img

The array must not be running. It is started, resynced if it was not stopped clean, rebuilt and
stopped. Rebuilds that had begun, here or in Linux, are continued; spares among the members are
taken for empty slots, and then the devices of --add. Two members of RAID 6 are rebuilt in one pass.
A former member named with --add gets only what it missed, if the array's bitmap covers that.
--replace copies a member that still serves to a new device, which then has its slot; what the
member cannot read is recovered from the others.

Ctrl-C ends a rebuild in order; the same command continues it (a device of --add is a member then).
After a crash it continues from the last checkpoint: every 1/16 of a member, or 5 minutes.

What nothing can be read of any more is listed in the new member's bad-block log; reads of it fail
until it is written.

Exit status: 1 when something could not be rebuilt, a slot stays empty, or a member fails.";

/// Rebuild members of an array that is degraded, from spares or new devices.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct RebuildArguments {
    /// The members and spares of the array: image files, partitions, disks; PATH@OFFSET for a part
    /// of a device
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// A new device for an empty slot; may be repeated
    #[arg(long, value_name = "NEW")]
    add: Vec<OsString>,
    /// Mark the devices of --add write-mostly (RAID 1 and 10)
    #[arg(short = 'W', long, requires = "add")]
    write_mostly: bool,
    /// Mark the devices of --add failfast (RAID 1 and 10)
    #[arg(long, requires = "add")]
    failfast: bool,
    /// A member, as it is named among the members, and a new device that replaces it; may be
    /// repeated
    #[arg(long, value_name = "OLD=NEW")]
    replace: Vec<OsString>,
    /// Give a RAID 1 this number of members; --add, or spares, fill the new slots
    #[arg(short = 'n', long, value_name = "NUMBER")]
    raid_devices: Option<u32>,
    /// Overwrite data that the devices of --add and --replace hold
    #[arg(long)]
    overwrite: bool,
    /// Start an array that is dirty and degraded: the message without it says what may be lost
    #[arg(long)]
    force: bool,
    /// Limit of the rate at which each new member is written, as in 50MB/s; no limit without it
    #[arg(long, value_name = "RATE", value_parser = parse_speed_limit)]
    speed_limit_max: Option<u64>,
    /// How long an operation of a member may take, in seconds: a member that takes longer fails
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_member_timeout)]
    member_timeout: Duration,
    /// The array, by name or UUID, if the members form several
    #[arg(long, value_name = "NAME|UUID")]
    array: Option<String>,
    #[command(flatten)]
    json: JsonOut,
}

/// What programs read.
#[derive(Serialize)]
struct Outcome<'r> {
    #[serde(flatten)]
    report: &'r RebuildReport,
    complete: bool,
}

/// Splits `OLD=NEW` where OLD is one of the members: a URI has `=` in it, too. Names of files need
/// not be UTF-8.
fn old_and_new(given: &OsStr, members: &[OsString]) -> Result<(OsString, OsString)> {
    let bytes = given.as_bytes();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_os_string();
    let at = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'=').map(|(at, _)| at);
    let splits = at.map(|at| (name(&bytes[..at]), name(&bytes[at + 1..])));
    let splits = splits.filter(|(old, new)| !old.is_empty() && !new.is_empty());
    let splits: Vec<(OsString, OsString)> = splits.collect();
    let given = given.to_string_lossy();
    let is_there = |old: &OsString| MemberName::parse(old).is_ok_and(|name| name.location.exists());
    let of_members = splits.iter().filter(|(old, _)| members.contains(old));
    let of_files = splits.iter().filter(|(old, _)| is_there(old));
    // A member's file may be named by its directory.
    let possible = [of_members.collect::<Vec<_>>(), of_files.collect(), splits.iter().collect()];
    match possible.iter().find(|splits| !splits.is_empty()).map(Vec::as_slice) {
        None => anyhow::bail!("--replace {given}: a member and a new device are needed, OLD=NEW"),
        Some([split]) => Ok((*split).clone()),
        Some([(one, _), (other, _), ..]) => anyhow::bail!(
            "--replace {given}: OLD can be {} and {}; another path of one of them has no '='",
            one.to_string_lossy(),
            other.to_string_lossy()
        ),
        Some([]) => unreachable!("it is not empty"),
    }
}

/// Runs the command.
pub fn run(arguments: &RebuildArguments) -> Result<Ending> {
    let all: Vec<OsString> = arguments.members.iter().chain(&arguments.add).cloned().collect();
    let replace = arguments.replace.iter().map(|given| old_and_new(given, &arguments.members));
    let replace = replace.collect::<Result<Vec<_>>>()?;
    let new = replace.iter().map(|(_, new)| new.clone());
    let all: Vec<OsString> = all.into_iter().chain(new).collect();
    if arguments.overwrite && arguments.add.is_empty() && arguments.replace.is_empty() {
        anyhow::bail!("--overwrite: only with --add or --replace, whose devices it is about");
    }
    arguments.json.refuse_overlap(&Used::members(&all))?;
    let stop = signal::watch()?;
    let options = options(arguments, replace);
    let mut stages = Stages::default();
    let mut observe = |event| match event {
        RebuildEvent::Resync { done, sectors } => stages.set("resynced", done, sectors),
        RebuildEvent::Progress { done, sectors } => stages.set("rebuilt", done, sectors),
        RebuildEvent::Note(note) => say(format_args!("raidlab: {note}")),
    };
    let rebuilt = admin::rebuild(&arguments.members, &options, &stop, &mut observe);
    stages.finish();
    let report = rebuilt.map_err(|error| failed(error, arguments))?;
    let outcome = || Outcome { report: &report, complete: report.is_complete() };
    arguments.json.put(&text(&report), outcome)?;
    if !report.is_clean {
        say(format_args!("raidlab: the array could not be stopped clean"));
    }
    let was_stopped = stop.load(Ordering::Relaxed);
    if !report.is_complete() && report.failed.is_empty() && report.error.is_none() && was_stopped {
        return Ok(Ending::Stopped);
    }
    let has_all = report.is_complete() && report.listed_bad.is_empty();
    let is_fine = has_all && report.is_clean && report.failed.is_empty();
    Ok(if is_fine { Ending::Fine } else { Ending::Finding })
}

fn options(arguments: &RebuildArguments, replace: Vec<(OsString, OsString)>) -> RebuildOptions {
    let mut options = RebuildOptions {
        add: arguments.add.clone(),
        flags: MemberFlags { write_mostly: arguments.write_mostly, failfast: arguments.failfast },
        replace,
        raid_devices: arguments.raid_devices,
        overwrite: arguments.overwrite,
        force: arguments.force,
        array: arguments.array.clone(),
        ..RebuildOptions::default()
    };
    options.start.driver.pace.most_kib_per_s = arguments.speed_limit_max;
    options.start.driver.member_timeout = Some(arguments.member_timeout);
    options
}

fn failed(error: RebuildError, arguments: &RebuildArguments) -> Error {
    match error {
        RebuildError::Choose(error) => {
            let text = choice_text(&error, arguments.array.as_deref());
            Error::new(error).context(text)
        }
        RebuildError::Join(JoinError::Holds(_)) => {
            reworded(error, |text| format!("{text} --overwrite takes it all the same."))
        }
        error => error.into(),
    }
}

fn text(report: &RebuildReport) -> String {
    let RebuildReport { level, members, empty_slots, not_rebuilt, .. } = report;
    let mut out = String::new();
    for Corrected { member, member_sector, sectors } in &report.corrected {
        let what = format!(
            "{member}: {sectors} sectors from sector {member_sector} on could not be read: \
             recovered and written back"
        );
        let _ = writeln!(out, "{}", Shown(what));
    }
    for AddedBad { member, member_sector, sectors } in &report.listed_bad {
        let what = format!(
            "{member}: {sectors} sectors from sector {member_sector} on are in its bad-block log: \
             nothing that they are computed from can be read"
        );
        let _ = writeln!(out, "{}", Shown(what));
    }
    for NotRebuilt { member, sector, sectors } in not_rebuilt {
        let of = member.as_ref().map(|member| format!("{member}: ")).unwrap_or_default();
        let what = format!(
            "{of}{sectors} sectors from sector {sector} of the data area on were not rebuilt \
             completely"
        );
        let _ = writeln!(out, "{}", Shown(what));
    }
    for member in &report.failed {
        let _ = writeln!(out, "{}: failed", Shown(member));
    }
    for member in members {
        let RebuiltMember { name, slot, in_sync, by_bitmap, replaces, lacking, sectors, .. } =
            member;
        let state = if *in_sync { "in sync" } else { "not in sync yet" };
        let how = match by_bitmap {
            true => {
                let (lacking, all) = (show_size(*lacking), show_size(*sectors));
                format!(", by the bitmap: {lacking} of {all}")
            }
            false => String::new(),
        };
        let how = match replaces {
            Some(old) if *in_sync => format!("{how}, replaces {old}, which is out of the array"),
            Some(old) => format!("{how}, to replace {old}"),
            None => how,
        };
        let _ = writeln!(out, "{}", Shown(format!("slot {slot}: {name}: {state}{how}")));
    }
    for slot in empty_slots {
        let _ = writeln!(out, "slot {slot}: empty");
    }
    if members.is_empty() {
        let what = match (report.resynced, report.is_clean) {
            (true, _) => "resynced; no member to rebuild",
            (false, true) => "nothing to rebuild",
            (false, false) => "no member to rebuild; it is not clean",
        };
        let _ = writeln!(out, "{level}: complete, {what}");
        return out;
    }
    let seconds = report.elapsed.as_secs_f64();
    let bytes = (report.rebuilt_sectors * md::SECTOR_BYTES) as f64;
    let rate = if seconds > 0.0 { bytes / seconds / 1e6 } else { 0.0 };
    let size = show_size(report.rebuilt_sectors);
    let _ = writeln!(out, "{level}: {size} rebuilt in {seconds:.1} s, {rate:.0} MB/s");
    if let Some(error) = report.error {
        let _ = writeln!(out, "not everything could be rebuilt: {error}");
    }
    out
}

#[cfg(test)]
mod tests {
    use array::DriverOptions;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: RebuildArguments,
    }

    fn driver_options(words: &str) -> DriverOptions {
        let words = std::iter::once("rebuild").chain(words.split(' '));
        let line = Line::try_parse_from(words).expect("sound");
        options(&line.arguments, Vec::new()).start.driver
    }

    #[test]
    fn the_driver_gets_the_limits_of_the_command_line() {
        let driver = driver_options("--member-timeout 2s --speed-limit-max 64MiB/s disk");
        assert_eq!(driver.member_timeout, Some(Duration::from_secs(2)));
        assert_eq!(driver.pace.most_kib_per_s, Some(65_536));
        let driver = driver_options("disk");
        assert_eq!(driver.member_timeout, DriverOptions::default().member_timeout);
        assert_eq!(driver.pace.most_kib_per_s, None);
    }
}
