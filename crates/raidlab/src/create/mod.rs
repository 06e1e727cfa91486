//! `raidlab create`: a new array over devices and image files, in mdadm's terms.
//!
//! Invariant: nothing is written before the whole plan stands and every member was looked at; what
//! a member holds is only ever replaced with `--force`.

pub mod mdadm_only;
mod members;
mod resync;
mod show;

use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

use array::run::{self, CreateFailed, CreateOptions};
use clap::{ArgMatches, Args};
use lab::shown::Shown;
use md::create::{BitmapOption, Plan, Request};
use md::ondisk::superblock::Policy;
use md::ondisk::{Timestamp, Uuid, Version};
use md::{Level, SECTOR_BYTES};

use crate::console::{JsonOut, say, say_lines};
use crate::members::Used;
use crate::size_args::{parse_layout, parse_level, parse_sectors};
use crate::{Ending, mdadm, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab create --level 5 --raid-devices 4 --file-size 64M disk0.img disk1.img disk2.img disk3.img
  raidlab create --level 6 --raid-devices 5 --chunk 64K --bitmap internal --dry-run /dev/sd[b-f]1
  raidlab create --level 1 --raid-devices 2 --name data a.img missing

As mdadm --create: the members are given in the order of their slots, then the spares; numbers
without a unit are KiB. New files of zeroes need no resync: zeroes are in sync.

Without --force nothing is written over: no superblock, file system, partition table or packed image
anywhere, and in files no data of any kind (their first 64 MiB, their last and 256 places between
are looked at). Disks that hold bytes of no known kind are taken, as
mdadm takes them.

Of mdadm's options -a/--auto, --write-journal, --nodes and others that need a kernel are refused
by name.";

/// Makes an array as mdadm --create does, with md's metadata.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CreateArguments {
    /// Image files, partitions, disks, in the order of their slots, then spares; 'missing' for a
    /// slot without a member; PATH@OFFSET or PATH@OFFSET+SIZE for a part
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// linear, 0, 1, 4, 5, 6, 10
    #[arg(short, long, value_parser = parse_level, help_heading = "Array")]
    level: Level,
    /// The layout by mdadm's name or md's number [default: mdadm's]
    #[arg(short = 'p', long, visible_alias = "parity", help_heading = "Array")]
    layout: Option<String>,
    /// The chunk [default: 512K]
    #[arg(short, long, alias = "rounding", value_name = "SIZE", value_parser = parse_sectors,
          help_heading = "Array")]
    chunk: Option<u64>,
    /// Slots
    #[arg(short = 'n', long, alias = "raid-disks", value_name = "N", help_heading = "Array")]
    raid_devices: u16,
    /// Spares, behind the members of the slots
    #[arg(
        short = 'x',
        long,
        alias = "spare-disks",
        value_name = "N",
        default_value = "0",
        help_heading = "Array"
    )]
    spare_devices: u16,
    /// How much of each member is used [default: what the smallest has]
    #[arg(short = 'z', long, value_name = "SIZE", value_parser = parse_sectors,
          help_heading = "Array")]
    size: Option<u64>,
    /// The array's name [default: none]
    #[arg(short = 'N', long, default_value = "", help_heading = "Array")]
    name: String,
    /// The host that goes before the name; 'none' for none [default: this machine's]
    #[arg(long, value_name = "NAME", help_heading = "Array")]
    homehost: Option<String>,
    /// The array's uuid [default: a new one]
    #[arg(short, long, value_parser = parse_uuid, help_heading = "Array")]
    uuid: Option<Uuid>,
    /// The members behind this word are read only where there is nobody else
    #[arg(short = 'W', long, help_heading = "Array")]
    write_mostly: bool,
    /// The members behind this word are failed at their first error (RAID 1 and 10)
    #[arg(long, help_heading = "Array")]
    failfast: bool,
    /// Writes that members which are write-mostly may lag behind [default: 256]; RAID 1 only
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
          default_missing_value = "256", requires = "write_mostly", help_heading = "Array")]
    write_behind: Option<u32>,

    /// Version of the metadata: 0.90, 1.0, 1.1, 1.2
    #[arg(short = 'e', long, value_parser = parse_version, default_value = "1.2",
          help_heading = "Metadata")]
    metadata: Version,
    /// internal or none [default: internal above 100 GiB a member, as mdadm]
    #[arg(short, long, value_parser = parse_bitmap, help_heading = "Metadata")]
    bitmap: Option<BitmapOption>,
    /// What a bit of the bitmap stands for [default: mdadm's choice]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "Metadata")]
    bitmap_chunk: Option<u64>,
    /// What is done about crashes: resync, bitmap, ppl
    #[arg(short = 'k', long, value_name = "POLICY", value_parser = parse_policy,
          help_heading = "Metadata")]
    consistency_policy: Option<Policy>,
    /// Where data begins on each member [default: mdadm's choice]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "Metadata")]
    data_offset: Option<u64>,

    /// The members are in sync already, or shall be called so
    #[arg(long, help_heading = "Making it")]
    assume_clean: bool,
    /// Also over members that hold something, and, as with mdadm, arrays of a single device
    #[arg(short, long, help_heading = "Making it")]
    force: bool,
    /// Accepted because mdadm has it: nothing is ever asked
    #[arg(short = 'R', long, help_heading = "Making it")]
    run: bool,
    /// Make image files of this size for members that are not there
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "Making it")]
    file_size: Option<u64>,
    /// Do not reserve the disk space of image files: they grow as they are written, and the disk
    /// can become full under the array
    #[arg(long, help_heading = "Making it")]
    no_prealloc: bool,
    /// Reserve the disk space of image files, which is the default
    #[arg(long, conflicts_with = "no_prealloc", help_heading = "Making it")]
    prealloc: bool,
    /// Leave the first resync to whoever starts the array
    #[arg(long, help_heading = "Making it")]
    no_resync: bool,
    /// Show the plan and end
    #[arg(long, help_heading = "Making it")]
    dry_run: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Where the words that hold for the members behind them are.
    #[arg(skip)]
    marks: Marks,
}

/// From which member on a word holds, counted from 0.
#[derive(Default)]
struct Marks {
    write_mostly: Option<usize>,
    failfast: Option<usize>,
}

impl CreateArguments {
    /// Reads from the command line what the order of its words says.
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

fn parse_uuid(text: &str) -> Result<Uuid, String> {
    text.parse().map_err(|_| "32 hexadecimal digits, as 01234567:89abcdef:01234567:89abcdef".into())
}

fn parse_version(text: &str) -> Result<Version, String> {
    let short = match text {
        "0" => "0.90",
        "1" | "default" => "1.2",
        other => other,
    };
    let found = Version::ALL.into_iter().find(|version| version.name() == short);
    found.ok_or_else(|| "0.90, 1.0, 1.1 or 1.2".into())
}

fn parse_bitmap(text: &str) -> Result<BitmapOption, String> {
    match text {
        "internal" => Ok(BitmapOption::Internal { chunk_bytes: None }),
        "none" => Ok(BitmapOption::None),
        _ => Err("internal or none; a bitmap in a file cannot be made".into()),
    }
}

fn parse_policy(text: &str) -> Result<Policy, String> {
    match text {
        "resync" => Ok(Policy::Resync),
        "bitmap" => Ok(Policy::Bitmap),
        "ppl" => Ok(Policy::Ppl),
        "journal" => Err("an array with a journal cannot be made here".into()),
        _ => Err("resync, bitmap or ppl".into()),
    }
}

/// Runs the command.
pub fn run(arguments: &CreateArguments) -> Result<Ending, String> {
    check_counts(arguments)?;
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    // From here on there may be files that have to be removed again.
    let stop = signal::watch()?;
    let members = members::open(arguments)?;
    let mut request = request(arguments, &members)?;
    let mut plan = md::create::plan(&request).map_err(|error| error.to_string())?;
    // Zeroes are in sync on every level: their parity is zero.
    let zeroes = members.are_new() && !request.assume_clean;
    if zeroes {
        // Nothing is claimed that is not so: the plan's warning about that is left out.
        let warnings = plan.warnings;
        request.assume_clean = true;
        plan = md::create::plan(&request).map_err(|error| error.to_string())?;
        plan.warnings = warnings;
    }
    let options = CreateOptions { force: arguments.force };
    let seen = run::refuse_what_is_there(&plan, &members.disks, options).map_err(holds)?;
    let text = show::text(&request, &plan, arguments.dry_run, zeroes);
    let json = || show::json(&request, &plan, arguments.dry_run);
    if arguments.dry_run {
        seen.iter().for_each(|what| say(format_args!("raidlab: would be lost: {what}")));
        arguments.json.put(&text, json)?;
        return Ok(Ending::Fine);
    }
    // The plan first: whoever sees that it is wrong can still look at what was there.
    say_lines(&text);
    if !members.reserve(arguments, &stop)? {
        return Ok(Ending::Stopped);
    }
    let made = run::create(&plan, &members.disks, options);
    // What was there is told also where it is gone for nothing.
    let lost = made.as_ref().err().is_none_or(changed_something);
    seen.iter().filter(|_| lost).for_each(|what| say(format_args!("raidlab: lost: {what}")));
    made.map_err(holds)?;
    members.keep();
    let wanted = plan.resync_offset.is_some() && !arguments.no_resync;
    let (left, ending) = match wanted {
        false => (plan.resync_offset.is_some(), Ending::Fine),
        true => match resync::resync(&members.opened, &stop)? {
            true => (false, Ending::Fine),
            false if stop.load(Ordering::Relaxed) => (true, Ending::Stopped),
            false => (true, Ending::Finding),
        },
    };
    arguments.json.put(&done_text(&request, &plan, left), json)?;
    Ok(ending)
}

fn changed_something(error: &CreateFailed) -> bool {
    matches!(error, CreateFailed::Device { changed, .. } if !changed.is_empty())
}

/// One line that says what members hold and how to go on.
fn holds(error: CreateFailed) -> String {
    match error {
        CreateFailed::Holds(what) => {
            format!("{} Nothing was written; --force makes the array all the same", what.join(" "))
        }
        error => error.to_string(),
    }
}

fn check_counts(arguments: &CreateArguments) -> Result<(), String> {
    let (slots, spares) = (arguments.raid_devices, arguments.spare_devices);
    let marks = [
        ("--write-mostly", arguments.marks.write_mostly),
        ("--failfast", arguments.marks.failfast),
    ];
    for (word, from) in marks {
        if from == Some(arguments.members.len()) {
            return Err(format!("{word} holds for the members behind it, and there is none"));
        }
    }
    let wanted = usize::from(slots) + usize::from(spares);
    let given = arguments.members.len();
    if given != wanted {
        return Err(format!(
            "--raid-devices {slots} and --spare-devices {spares} are {wanted} members, {given} \
             are given; a slot without one is called 'missing'"
        ));
    }
    Ok(())
}

fn request(arguments: &CreateArguments, members: &members::Given) -> Result<Request, String> {
    let level = arguments.level;
    let layout = arguments.layout.as_deref().map(|text| parse_layout(level, text)).transpose()?;
    let bitmap = match (arguments.bitmap, arguments.bitmap_chunk) {
        (Some(BitmapOption::None), Some(_)) => {
            return Err("--bitmap-chunk: there is no bitmap (--bitmap none)".into());
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
    let mut set_uuid = arguments.uuid.map_or_else(random_uuid, Ok)?;
    if let (Version::V0_90, Some(host), None) = (arguments.metadata, &host, arguments.uuid) {
        set_uuid.0[8..].copy_from_slice(&mdadm::home_host_digest(host));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    Ok(Request {
        layout,
        chunk_sectors: arguments.chunk,
        version: arguments.metadata,
        raid_devices: arguments.raid_devices.into(),
        devices: members.devices.clone(),
        used_sectors: arguments.size,
        data_offset: arguments.data_offset,
        bitmap,
        policy: arguments.consistency_policy,
        assume_clean: arguments.assume_clean,
        force: arguments.force,
        write_behind: arguments.write_behind,
        name: arguments.name.clone(),
        // 0.90 has no names; a host without a name would be one.
        homehost: host.filter(|_| !arguments.name.is_empty()),
        ..Request::new(level, Vec::new(), set_uuid, Timestamp { seconds: now, micros: 0 })
    })
}

/// A new identity, as random as it should be.
fn random_uuid() -> Result<Uuid, String> {
    let mut uuid = Uuid::default();
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::rand::getrandom(&mut uuid.0, flags) {
        Ok(16) => Ok(uuid),
        Ok(_) => Err("the system gave too few random bytes".into()),
        Err(error) => Err(format!("the system gives no random bytes: {error}")),
    }
}

fn done_text(request: &Request, plan: &Plan, left: bool) -> String {
    let members = plan.places.len();
    let name = match request.name.is_empty() {
        true => request.set_uuid.to_string(),
        false => request.name.clone(),
    };
    let resync = if left { "; its resync goes on when it is started" } else { "" };
    format!("{}: {} over {members} devices made{resync}\n", Shown(name), request.level)
}
