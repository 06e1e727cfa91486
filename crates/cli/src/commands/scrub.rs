//! `raidlab scrub`: compares the redundancy of an array with its data, and repairs what is proven
//! wrong.
//!
//! Invariant: `--check` writes nothing. `--repair` changes nothing of what is in sync that P and Q
//! or most copies do not name, unless `--policy` says which side wins.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use admin::{Corrected, Finding, ScrubError, ScrubEvent, ScrubOptions, ScrubReport};
use anyhow::{Error, Result, bail};
use array::{MismatchKind, ScrubMode};
use clap::{Args, ValueEnum};
use export::control::api::ScrubAction;
use md::show_size;
use serde::Serialize;
use spec::shown::Shown;

use crate::commands::dump::{self, DumpArguments};
use crate::commands::served;
use crate::console::{JsonOut, say};
use crate::error::reworded;
use crate::members::{Used, choice_text};
use crate::meter::Stages;
use crate::size_args::{parse_member_timeout, parse_speed_limit};
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab scrub --check disk*.img          compare and report
  raidlab scrub --repair disk*.img         repair the blocks that are named
  raidlab scrub --repair --policy parity /dev/sd[b-e]1
  raidlab scrub --check data               the array that the server named data runs
  raidlab scrub --running stop data        end that scrub

On RAID 6, P and Q show which block of a row is wrong, for each 512 bytes; of three or more copies,
most of them do. RAID 4, 5 and two copies only show that something differs: --repair leaves that as
it is, and --policy says which side wins. --repair also writes back blocks that cannot be read.

Unless a server is named, the array must not be running. --check opens the members for reading only
and writes nothing, whatever state they are in. What was not in sync when the array stopped is
compared, too, and counted apart. --repair of such an array first repairs what is named, and then
resyncs the rest as md does: data and the first copy win. Ctrl-C ends a scrub in order; --from
continues it.

A server checks the array while it runs: it continues to write what its clients write, and
writes back blocks that cannot be read.

Copies with maps (:map=FILE) are only read, by --check.

Ends with 1 when --check finds something (also blocks that could not be read), when --repair leaves
something, when something could not be compared, and when a member fails.";

/// Compare redundancy with data, and repair blocks that are wrong.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ScrubArguments {
    /// All members of the array: image files, partitions, disks; PATH@OFFSET for a part of a
    /// device; or a server: its name, or the path of its control socket
    #[arg(required = true, value_name = "MEMBER|NAME")]
    members: Vec<OsString>,
    /// Report mismatches, and write nothing (the default)
    #[arg(long, conflicts_with = "repair")]
    check: bool,
    /// Repair mismatches whose wrong block is known, and resync what was not in sync
    #[arg(long)]
    repair: bool,
    /// Of a server: hold background work, resume it, or end the scrub
    #[arg(long, value_enum, value_name = "ACTION", conflicts_with_all = ["check", "repair"])]
    running: Option<RunningAction>,
    /// What wins where the wrong block is not known, as in md's repair
    #[arg(long, value_enum, requires = "repair", conflicts_with_all = ["check", "running"])]
    policy: Option<PolicyArgument>,
    /// Begin at this position, which a scrub prints when it is stopped
    #[arg(long, value_name = "POSITION", default_value = "0", hide_default_value = true)]
    from: u64,
    /// Limit of the rate at which each member is read (of RAID 1 and 10: the array), as in 50MB/s;
    /// no limit without it
    #[arg(long, value_name = "RATE", value_parser = parse_speed_limit)]
    speed_limit_max: Option<u64>,
    /// How long an operation of a member may take, in seconds: a member that takes longer fails
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_member_timeout)]
    member_timeout: Option<Duration>,
    /// The array, by name or UUID, if the members form several
    #[arg(long, value_name = "NAME|UUID")]
    array: Option<String>,
    #[command(flatten)]
    json: JsonOut,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RunningAction {
    /// Hold resync, rebuild and scrub
    Pause,
    /// Resume them
    Resume,
    /// End the scrub
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PolicyArgument {
    /// RAID 4, 5 and 6: parity is computed from the data
    Parity,
    /// RAID 1 and 10: the first copy is written to the others
    First,
}

/// Gives the order to a server.
fn of_server(arguments: &ScrubArguments, server: &OsStr) -> Result<Ending> {
    let options = [
        ("--policy", arguments.policy.is_some()),
        ("--from", arguments.from != 0),
        ("--speed-limit-max", arguments.speed_limit_max.is_some()),
        ("--member-timeout", arguments.member_timeout.is_some()),
        ("--array", arguments.array.is_some()),
    ];
    if let Some((option, _)) = options.iter().find(|(_, given)| *given) {
        bail!("{option}: not for an array that a server runs ('raidlab set' has its rates)");
    }
    let action = match (arguments.running, arguments.repair) {
        (Some(RunningAction::Pause), _) => ScrubAction::Pause,
        (Some(RunningAction::Resume), _) => ScrubAction::Resume,
        (Some(RunningAction::Stop), _) => ScrubAction::Stop,
        (None, true) => ScrubAction::Repair,
        (None, false) => ScrubAction::Check,
    };
    served::scrub(server, action, &arguments.json)
}

/// Runs the command.
pub fn run(arguments: &ScrubArguments) -> Result<Ending> {
    if let Some(server) = served::server_of(&arguments.members) {
        return of_server(arguments, server);
    }
    if arguments.running.is_some() {
        bail!("--running: only for an array that a server runs");
    }
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    if !arguments.repair && Used::has_map(&arguments.members) {
        return check_copies(arguments);
    }
    let stop = signal::watch()?;
    let options = options(arguments);
    let mode = options.mode;
    let mut stages = Stages::default();
    let mut observe = |event| match event {
        ScrubEvent::Progress { done, sectors } => stages.set("scrubbed", done, sectors),
        ScrubEvent::Resync { done, sectors } => stages.set("resynced", done, sectors),
        ScrubEvent::Note(note) => say(format_args!("raidlab: {note}")),
    };
    let scrubbed = admin::scrub(&arguments.members, &options, &stop, &mut observe);
    stages.finish();
    let report = scrubbed.map_err(|error| failed(error, arguments))?;
    arguments.json.put(&text(&report, mode), || Outcome::of(&report, mode))?;
    if !report.is_clean {
        say(format_args!("raidlab: the array could not be stopped clean"));
    }
    if !report.is_durable {
        say(format_args!("raidlab: the flush failed: what was repaired may not be durable"));
    }
    let is_left = !report.is_complete() || report.resynced == Some(false);
    if is_left && report.failed.is_empty() && stop.load(Ordering::Relaxed) {
        return Ok(Ending::Stopped);
    }
    let left = report.mismatch_sectors - report.repaired_sectors - report.resynced_sectors;
    let is_fine = report.is_complete()
        && report.is_clean
        && left == 0
        && (mode != ScrubMode::Check
            || report.mismatch_sectors == 0 && report.corrected.is_empty())
        && report.is_durable
        && report.failed.is_empty()
        && report.unchecked_sectors == 0;
    Ok(if is_fine { Ending::Fine } else { Ending::Finding })
}

/// Copies with maps are only read.
fn check_copies(arguments: &ScrubArguments) -> Result<Ending> {
    if arguments.from > 0 {
        bail!("--from: members are copies with maps, which are compared as a whole");
    }
    let (members, array) = (arguments.members.clone(), arguments.array.clone());
    say(format_args!(
        "raidlab: members are copies with maps: they are only read, as by dump --check"
    ));
    dump::run(&DumpArguments::check(members, array, arguments.json.clone()))
}

fn options(arguments: &ScrubArguments) -> ScrubOptions {
    let mode = match (arguments.repair, arguments.policy) {
        (false, _) => ScrubMode::Check,
        (true, None) => ScrubMode::Repair,
        (true, Some(_)) => ScrubMode::RepairOrResync,
    };
    let mut options = ScrubOptions {
        mode,
        from: arguments.from,
        array: arguments.array.clone(),
        has_parity: arguments.policy.map(|policy| policy == PolicyArgument::Parity),
        ..ScrubOptions::default()
    };
    options.start.driver.pace.most_kib_per_s = arguments.speed_limit_max;
    if arguments.member_timeout.is_some() {
        options.start.driver.member_timeout = arguments.member_timeout;
    }
    options
}

fn failed(error: ScrubError, arguments: &ScrubArguments) -> Error {
    match error {
        ScrubError::Choose(error) => {
            let text = choice_text(&error, arguments.array.as_deref());
            Error::new(error).context(text)
        }
        ScrubError::Policy { level } => {
            let other = if level.has_parity() { "parity" } else { "first" };
            reworded(error, |text| format!("{text}; --policy {other} does"))
        }
        ScrubError::Behind { .. } => reworded(error, |text| format!("--from: {text}")),
        error => error.into(),
    }
}

/// What programs read.
#[derive(Serialize)]
struct Outcome<'r> {
    #[serde(flatten)]
    report: &'r ScrubReport,
    mode: &'static str,
    complete: bool,
    /// Where to continue.
    from: Option<u64>,
}

impl Outcome<'_> {
    fn of(report: &ScrubReport, mode: ScrubMode) -> Outcome<'_> {
        let mode = if mode == ScrubMode::Check { "check" } else { "repair" };
        let (complete, is_resynced) = (report.is_complete(), report.resynced != Some(false));
        let is_over = complete && is_resynced || !report.failed.is_empty();
        Outcome { report, mode, complete, from: (!is_over).then_some(report.position) }
    }
}

fn text(report: &ScrubReport, mode: ScrubMode) -> String {
    let ScrubReport { level, checked_sectors, mismatch_sectors, repaired_sectors, .. } = report;
    let mut out = String::new();
    for finding in &report.findings {
        let _ = writeln!(out, "{}", line(finding, mode));
    }
    let is_check = mode == ScrubMode::Check;
    for Corrected { member, member_sector, sectors } in &report.corrected {
        let end = if is_check { "can be recovered" } else { "recovered and written back" };
        let what = format!(
            "{member}: {sectors} sectors from sector {member_sector} on could not be read: {end}"
        );
        let _ = writeln!(out, "{}", Shown(what));
    }
    for member in &report.failed {
        let _ = writeln!(out, "{}: failed", Shown(member));
    }
    if report.omitted > 0 {
        let _ = writeln!(out, "{} more are not listed", report.omitted);
    }
    let checked = show_size(*checked_sectors);
    let _ = write!(out, "{level}: {checked} of members compared: ");
    let disagree = match mismatch_sectors {
        0 => "no mismatch".into(),
        1 => "1 sector does not agree".into(),
        sectors => format!("{sectors} sectors do not agree"),
    };
    let repaired = match (*mismatch_sectors, mode) {
        (0, _) | (_, ScrubMode::Check) => String::new(),
        _ => format!(", {repaired_sectors} repaired"),
    };
    let _ = write!(out, "{disagree}{repaired}");
    if let Some(count) = report.mismatch_cnt.filter(|count| *count > 0) {
        let _ = write!(out, " (md's mismatch_cnt: {count})");
    }
    out.push('\n');
    if report.out_of_sync_sectors > 0 {
        let _ = writeln!(out, "{}", not_in_sync(report, mode));
    }
    if report.unchecked_sectors > 0 {
        let why = report.error.map(|error| format!(": {error}")).unwrap_or_default();
        let size = show_size(report.unchecked_sectors);
        let _ = writeln!(out, "{size} in requests that could not be compared completely{why}");
    }
    if !report.is_complete() && report.failed.is_empty() {
        let _ = writeln!(out, "stopped; --from {} continues", report.position);
    }
    out
}

/// What is said of an array that was not in sync.
fn not_in_sync(report: &ScrubReport, mode: ScrubMode) -> String {
    let ScrubReport { out_of_sync_mismatch_sectors: differing, resynced_sectors, .. } = report;
    let size = show_size(report.out_of_sync_sectors);
    let found = match differing {
        0 => "nothing differs there".into(),
        1 => "1 sector differs there".into(),
        sectors => format!("{sectors} sectors differ there"),
    };
    let end = match (mode, report.resynced) {
        (ScrubMode::Check, _) => "; nothing was written, --repair resyncs it".into(),
        (_, Some(true)) if *resynced_sectors > 0 => {
            format!("; {resynced_sectors} made to agree by the resync, with data and first copy")
        }
        (_, Some(true)) => "; resynced".into(),
        (_, Some(false)) => format!("; stopped while resyncing, --from {} continues", report.span),
        (_, None) => "; not resynced".into(),
    };
    format!("not stopped clean: {size} of members were not in sync: {found}{end}")
}

fn line(finding: &Finding, mode: ScrubMode) -> String {
    let Finding { kind, array_sector, sectors, member, member_sector, repaired, .. } = finding;
    let at = member_sector.map(|sector| format!(" at sector {sector}")).unwrap_or_default();
    let what = match (kind, member) {
        (MismatchKind::Data, Some(member)) => format!("data of {member}{at} are wrong"),
        (MismatchKind::P, Some(member)) => format!("P on {member}{at} is wrong"),
        (MismatchKind::Q, Some(member)) => format!("Q on {member}{at} is wrong"),
        (MismatchKind::Copy, Some(member)) => format!("the copy of {member}{at} is wrong"),
        (MismatchKind::Copy, None) => format!("copies differ{at}, which is wrong is not known"),
        _ => format!("data and parity differ{at}, which is wrong is not known"),
    };
    let end = match (mode, repaired) {
        (ScrubMode::Check, _) => "",
        (_, true) => ": repaired",
        (_, false) => ": not repaired",
    };
    let unit = if *sectors == 1 { "sector" } else { "sectors" };
    Shown(format!("array sector {array_sector}, {sectors} {unit}: {what}{end}")).to_string()
}

#[cfg(test)]
mod tests {
    use array::DriverOptions;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ScrubArguments,
    }

    fn driver_options(words: &str) -> DriverOptions {
        let words = std::iter::once("scrub").chain(words.split(' '));
        let line = Line::try_parse_from(words).expect("sound");
        options(&line.arguments).start.driver
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
