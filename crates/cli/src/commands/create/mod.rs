//! `raidlab create`: a new array over devices and image files, in mdadm's terms.
//!
//! Invariant: nothing is written before the plan is complete and every member was checked; existing
//! data of a member is overwritten only with `--force`.

pub mod mdadm_only;
mod show;

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use admin::{
    CreateFailed, CreatedArray, LeftFile, NewArray, NewArrayError, NewArrayFailed, NewMember,
    Reserved, ResyncEvent, ResyncReport, random_uuid,
};
use anyhow::{Error, Result, anyhow, bail};
use clap::{ArgMatches, Args};
use host::{Location, MapChoice, MemberName};
use md::create::{BitmapOption, Plan, Request};
use md::ondisk::superblock::Policy;
use md::ondisk::{Timestamp, Uuid, Version};
use md::{Level, SECTOR_BYTES, show_size};
use spec::shown::{Shown, counted};

use crate::console::{JsonOut, say, say_lines, value_of};
use crate::error::{Context, reworded};
use crate::members::{Used, is_missing};
use crate::meter::Stages;
use crate::size_args::{parse_layout, parse_level, parse_sectors};
use crate::{Ending, mdadm, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab create --level 5 --raid-devices 4 --file-size 64M disk0.img disk1.img disk2.img disk3.img
  raidlab create --level 6 --raid-devices 5 --chunk 64K --bitmap internal --dry-run /dev/sd[b-f]1
  raidlab create --level 1 --raid-devices 2 --name data a.img missing

As with mdadm --create, members are given in slot order, then the spares; numbers without a unit are
KiB. New image files are zero-filled and therefore in sync: they need no resync.

Without --force nothing is overwritten: no superblock, file system, partition table or compressed
image on any member, and no data of any kind in files (the first 64 MiB, the last and 256 positions
in between are checked). Disks with data of unknown type are accepted, as with mdadm.

Options of mdadm that need a kernel (-a/--auto, --write-journal, --nodes and others) are refused by
name.";

/// Create an array with md metadata, as mdadm --create does.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CreateArguments {
    /// Image files, partitions or disks in slot order, then spares; 'missing' for a slot without a
    /// member; PATH@OFFSET or PATH@OFFSET+SIZE for a part of a device
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// RAID level: linear, 0, 1, 4, 5, 6, 10
    #[arg(short, long, value_parser = parse_level)]
    level: Level,
    /// Layout, by mdadm's name or md's number [default: as mdadm]
    #[arg(short = 'p', long, visible_alias = "parity", help_heading = "Array")]
    layout: Option<String>,
    /// Chunk size [default: 512K]
    #[arg(short, long, alias = "rounding", value_name = "SIZE", value_parser = parse_sectors)]
    chunk: Option<u64>,
    /// Number of active devices
    #[arg(short = 'n', long, alias = "raid-disks", value_name = "N")]
    raid_devices: u16,
    /// Number of spare devices, listed after the active ones
    #[arg(short = 'x', long, alias = "spare-disks", value_name = "N", default_value = "0")]
    spare_devices: u16,
    /// Space to use from each member [default: that of the smallest member]
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_sectors,
          help_heading = "Array")]
    size: Option<u64>,
    /// Name of the array [default: none]
    #[arg(short = 'N', long, default_value = "", hide_default_value = true)]
    name: String,
    /// Home host, the prefix of the name; 'none' for none [default: this machine's host name]
    #[arg(long, value_name = "NAME", help_heading = "Array")]
    homehost: Option<String>,
    /// UUID of the array [default: random]
    #[arg(short, long, value_parser = parse_uuid, help_heading = "Array")]
    uuid: Option<Uuid>,
    /// Mark the following devices write-mostly
    #[arg(short = 'W', long, help_heading = "Array")]
    write_mostly: bool,
    /// Mark the following devices failfast: fail them at the first error (RAID 1 and 10)
    #[arg(long, help_heading = "Array")]
    failfast: bool,
    /// Maximum number of outstanding write-behind writes [default: 256]; RAID 1 only
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "256", requires = "write_mostly", help_heading = "Array")]
    write_behind: Option<u32>,

    /// Metadata version: 0.90, 1.0, 1.1, 1.2
    #[arg(short = 'e', long, value_parser = parse_version, default_value = "1.2")]
    metadata: Version,
    /// Write-intent bitmap: internal or none [default: internal above 100 GiB a member, as mdadm]
    #[arg(short, long, value_parser = parse_bitmap)]
    bitmap: Option<BitmapOption>,
    /// Chunk size of the bitmap [default: as mdadm]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "Metadata")]
    bitmap_chunk: Option<u64>,
    /// Consistency policy: resync, bitmap, ppl
    #[arg(short = 'k', long, value_name = "POLICY", value_parser = parse_policy,
          help_heading = "Metadata")]
    consistency_policy: Option<Policy>,
    /// Data offset of each member [default: as mdadm]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "Metadata")]
    data_offset: Option<u64>,

    /// Skip the initial resync (assume the members are in sync)
    #[arg(long, help_heading = "Creation")]
    assume_clean: bool,
    /// Overwrite existing data or superblocks; as with mdadm, also allow a single-device array
    #[arg(short, long)]
    force: bool,
    /// Accepted for compatibility with mdadm, without effect: there are no prompts
    #[arg(short = 'R', long, help_heading = "Creation")]
    run: bool,
    /// Create missing members as image files of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors)]
    file_size: Option<u64>,
    /// Create sparse image files: they are not preallocated, and the disk can run full while the
    /// array is in use
    #[arg(long, help_heading = "Creation")]
    no_prealloc: bool,
    /// Preallocate the disk space of image files (the default)
    #[arg(long, conflicts_with = "no_prealloc", help_heading = "Creation")]
    prealloc: bool,
    /// Do not run the initial resync; it runs when the array is started
    #[arg(long, help_heading = "Creation")]
    no_resync: bool,
    /// Show the plan, write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Positions of the options that apply to the following members.
    #[arg(skip)]
    marks: Marks,
}

/// Index of the first member to which each option applies.
#[derive(Default)]
struct Marks {
    write_mostly: Option<usize>,
    failfast: Option<usize>,
}

impl CreateArguments {
    /// Derives from the order of the command line which members an option applies to.
    pub fn take_positions(&mut self, matches: &ArgMatches) {
        let members: Vec<usize> =
            matches.indices_of("members").map(Iterator::collect).unwrap_or_default();
        let from = |word: &str, given: bool| {
            let at = matches.index_of(word).filter(|_| given)?;
            Some(members.iter().filter(|&&member| member < at).count())
        };
        self.marks = Marks {
            write_mostly: from("write_mostly", self.write_mostly),
            failfast: from("failfast", self.failfast),
        };
    }
}

fn parse_uuid(text: &str) -> Result<Uuid> {
    let wanted = "32 hexadecimal digits, as 01234567:89abcdef:01234567:89abcdef";
    text.parse().map_err(|_| anyhow!(wanted))
}

fn parse_version(text: &str) -> Result<Version> {
    let short = match text {
        "0" => "0.90",
        "1" | "default" => "1.2",
        other => other,
    };
    let found = Version::ALL.into_iter().find(|version| version.name() == short);
    found.context("0.90, 1.0, 1.1 or 1.2")
}

fn parse_bitmap(text: &str) -> Result<BitmapOption> {
    match text {
        "internal" => Ok(BitmapOption::Internal { chunk_bytes: None }),
        "none" => Ok(BitmapOption::None),
        _ => Err(anyhow!("internal or none; a bitmap file is not supported")),
    }
}

fn parse_policy(text: &str) -> Result<Policy> {
    match text {
        "resync" => Ok(Policy::Resync),
        "bitmap" => Ok(Policy::Bitmap),
        "ppl" => Ok(Policy::Ppl),
        "journal" => Err(anyhow!("creating an array with a journal is not supported")),
        _ => Err(anyhow!("resync, bitmap or ppl")),
    }
}

/// Runs the command.
pub fn run(arguments: &CreateArguments) -> Result<Ending> {
    check_counts(arguments)?;
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    // From here on, files may be created that must be removed after a failure.
    let stop = signal::watch()?;
    let prepared = new_array(arguments)?.prepare().map_err(failed)?;
    let text = show::text(prepared.request(), prepared.plan(), arguments.dry_run);
    let json = show::PlanDocument::of(prepared.request(), prepared.plan(), arguments.dry_run);
    let json = value_of(&json);
    if arguments.dry_run {
        for what in prepared.overwritten() {
            say(format_args!("raidlab: would be lost: {what}"));
        }
        arguments.json.put(&text, || json)?;
        say_skipped(&prepared.discard());
        return Ok(Ending::Fine);
    }
    // The plan is printed before anything is written, so that a wrong one can still be stopped.
    say_lines(&text);
    let running = || !stop.load(Ordering::Relaxed);
    if !arguments.no_prealloc {
        match prepared.reserve(running) {
            Ok(Reserved::All) => {}
            Ok(Reserved::Stopped { kept, made_files }) => {
                let gone = if made_files { "; the created files are removed" } else { "" };
                let kept = kept_text(&kept);
                say(format_args!("raidlab: stopped: nothing was written{gone}{kept}"));
                say_skipped(&prepared.discard());
                return Ok(Ending::Stopped);
            }
            Err(error) => {
                say_skipped(&prepared.discard());
                let kept = kept_text(&error.kept);
                return Err(reworded(error, |text| {
                    format!("{text}; --no-prealloc does without{kept}")
                }));
            }
        }
    }
    if !running() {
        say_skipped(&prepared.discard());
        return Ok(Ending::Stopped);
    }
    let created = prepared.create().map_err(failed)?;
    say_lost(&created.overwritten);
    let wanted = created.needs_resync() && !arguments.no_resync;
    let (left, ending) = match wanted {
        false => (created.needs_resync(), Ending::Fine),
        true => match resync(&created, &stop)? {
            true => (false, Ending::Fine),
            false if !running() => (true, Ending::Stopped),
            false => (true, Ending::Finding),
        },
    };
    arguments.json.put(&done_text(&created.request, &created.plan, left), || json)?;
    Ok(ending)
}

/// Runs the first resync, with its progress. Returns whether the array is in sync and was stopped
/// clean.
fn resync(created: &CreatedArray, stop: &AtomicBool) -> Result<bool> {
    let mut stages = Stages::default();
    let mut observe = |event| match event {
        ResyncEvent::Progress { done, sectors } => stages.set("resynced", done, sectors),
        ResyncEvent::Note(note) => say(format_args!("raidlab: {note}")),
    };
    let report = created.resync(stop, &mut observe)?;
    stages.finish();
    let ResyncReport { in_sync, clean, done, sectors, stalled } = report;
    if !in_sync && !stop.load(Ordering::Relaxed) {
        let why = stalled.map(|why| format!(": {why}")).unwrap_or_default();
        let (here, all) = (show_size(done), show_size(sectors));
        say(format_args!("raidlab: the resync stopped at {here} of {all}{why}"));
    }
    if in_sync && !clean {
        say(format_args!("raidlab: the array could not be stopped clean"));
    }
    Ok(in_sync && clean)
}

/// The error, with the options that override a refusal. What stays behind, and what was lost
/// by then, is reported.
fn failed(failed: NewArrayFailed) -> Error {
    let NewArrayFailed { error, left, lost } = failed;
    say_lost(&lost);
    say_skipped(&left);
    match *error {
        NewArrayError::NoFile(_) => {
            reworded(*error, |text| format!("{text}; --file-size SIZE creates it as an image file"))
        }
        NewArrayError::Create(CreateFailed::Holds(what)) => {
            anyhow!("{} Nothing was written; --force overwrites existing data", what.join(" "))
        }
        error => error.into(),
    }
}

fn say_lost(lost: &[String]) {
    lost.iter().for_each(|what| say(format_args!("raidlab: lost: {what}")));
}

fn say_skipped(left: &[LeftFile]) {
    left.iter().for_each(|file| say(format_args!("raidlab: {file}")));
}

/// Existing image files keep the space that was reserved for them.
fn kept_text(kept: &[Location]) -> String {
    let kept: Vec<String> = kept.iter().map(ToString::to_string).collect();
    match kept.is_empty() {
        true => String::new(),
        false => format!("; space reserved so far stays reserved: {}", kept.join(", ")),
    }
}

fn check_counts(arguments: &CreateArguments) -> Result<()> {
    let (slots, spares) = (arguments.raid_devices, arguments.spare_devices);
    let marks = [
        ("--write-mostly", arguments.marks.write_mostly),
        ("--failfast", arguments.marks.failfast),
    ];
    for (word, from) in marks {
        if from == Some(arguments.members.len()) {
            bail!("{word} applies to the following members, but none follows");
        }
    }
    let wanted = usize::from(slots) + usize::from(spares);
    let given = arguments.members.len();
    let first = arguments.members.first().and_then(|first| first.to_str());
    if let Some(node) = first.filter(|it| it.starts_with("/dev/md") && given == wanted + 1) {
        bail!(
            "{node}: no device node is created, and none is named: the arguments are the members; \
             -N NAME names the array"
        );
    }
    if given != wanted {
        bail!(
            "--raid-devices {slots} and --spare-devices {spares} need {wanted} members, {given} \
             given; use 'missing' for a slot without a member"
        );
    }
    Ok(())
}

fn new_array(arguments: &CreateArguments) -> Result<NewArray> {
    let member = |(at, word): (usize, &OsString)| {
        if is_missing(word) {
            return Ok(None);
        }
        let MemberName { location, map } = MemberName::parse(word)?;
        if let MapChoice::File(map) = map {
            bail!("{location}: a new array takes no map ({})", map.display());
        }
        let applies = |from: Option<usize>| from.is_some_and(|from| at >= from);
        let (write_mostly, failfast) =
            (applies(arguments.marks.write_mostly), applies(arguments.marks.failfast));
        Ok(Some(NewMember { location, write_mostly, failfast }))
    };
    let members = arguments.members.iter().enumerate().map(member).collect::<Result<_>>()?;
    Ok(NewArray {
        request: request(arguments)?,
        members,
        file_sectors: arguments.file_size,
        overwrite: arguments.force,
        read_only: arguments.dry_run,
    })
}

fn request(arguments: &CreateArguments) -> Result<Request> {
    let level = arguments.level;
    let layout = arguments.layout.as_deref().map(|text| parse_layout(level, text)).transpose()?;
    let bitmap = match (arguments.bitmap, arguments.bitmap_chunk) {
        (Some(BitmapOption::None), Some(_)) => {
            bail!("--bitmap-chunk: there is no bitmap (--bitmap none)");
        }
        (_, Some(sectors)) => BitmapOption::Internal { chunk_bytes: Some(sectors * SECTOR_BYTES) },
        (Some(wish), None) => wish,
        (None, None) => BitmapOption::Auto,
    };
    let host = match arguments.homehost.as_deref() {
        Some("none" | "") => None,
        Some(host) => Some(host.to_string()),
        None => Some(mdadm::host_name()),
    };
    let mut set_uuid = arguments.uuid.map_or_else(uuid, Ok)?;
    if let (Version::V0_90, Some(host), None) = (arguments.metadata, &host, arguments.uuid) {
        set_uuid.0[8..].copy_from_slice(&mdadm::home_host_digest(host));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    Ok(Request {
        layout,
        chunk_sectors: arguments.chunk,
        version: arguments.metadata,
        raid_devices: arguments.raid_devices.into(),
        used_sectors: arguments.size,
        data_offset: arguments.data_offset,
        bitmap,
        policy: arguments.consistency_policy,
        assume_clean: arguments.assume_clean,
        force: arguments.force,
        write_behind: arguments.write_behind,
        name: arguments.name.clone(),
        // A home host without a name would become the name; 0.90 has no names.
        homehost: host.filter(|_| !arguments.name.is_empty()),
        ..Request::new(level, Vec::new(), set_uuid, Timestamp { seconds: now, micros: 0 })
    })
}

fn uuid() -> Result<Uuid> {
    Ok(random_uuid().map_err(NewArrayError::Random)?)
}

fn done_text(request: &Request, plan: &Plan, left: bool) -> String {
    let members = plan.places.len();
    let name = match request.name.is_empty() {
        true => request.set_uuid.to_string(),
        false => request.name.clone(),
    };
    let resync = if left { "; resync pending, it resumes when the array is started" } else { "" };
    let members = counted(members, "device");
    format!("{}: {} with {members} created{resync}\n", Shown(name), request.level)
}
