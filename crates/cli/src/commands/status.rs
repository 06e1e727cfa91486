//! `raidlab status`: every array among members, or among the files of a directory, or that servers
//! run, as /proc/mdstat shows those that run.
//!
//! Invariant: nothing is started and nothing is written.

use std::ffi::OsString;
use std::fmt::Write;
use std::time::Duration;

use admin::{Members, array_name, describe};
use anyhow::{Result, bail};
use clap::Args;
use md::assemble::{Array, Found, MemberState, Options, Shape};
use md::ondisk::{Uuid, Version};
use serde::Serialize;
use spec::shown::Shown;

use crate::commands::detail::{BadBlocksDocument, bad_blocks, mdstat_level};
#[cfg(feature = "served")]
use crate::commands::served;
use crate::console::JsonOut;
use crate::members::Used;
use crate::{Ending, mdadm};

const EXAMPLES: &str = "\
Examples:
  raidlab status                the arrays that servers of this user run
  raidlab status .              the arrays among the files of this directory
  raidlab status disk*.img      the arrays among these members
  raidlab status data           the array that the server named data runs; --watch keeps it live
  raidlab status data --events  what happens to it, as 'mdadm --monitor' reports it

Exit status: 1 when one of them is degraded, was not stopped, or cannot be started, when a member
that is named has no superblock, and when a file of the directory cannot be looked at. Files of a
directory that are no members are fine.";

/// Show all arrays among members, one paragraph each, in the style of /proc/mdstat.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct StatusArguments {
    /// Image files, partitions or disks; or a directory, whose files are examined; or a server: its
    /// name, or the path of its control socket [default: all servers of this user that have a name]
    #[arg(value_name = "MEMBER|DIR|NAME", required = !cfg!(feature = "served"))]
    members: Vec<OsString>,
    /// Of a server: show the state again, at this interval
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true,
          default_missing_value = "1", value_parser = parse_interval, conflicts_with = "json",
          hide = !cfg!(feature = "served"))]
    watch: Option<Duration>,
    /// Of a server: print its events as they happen, with --json one document a line
    #[arg(long, conflicts_with = "watch", hide = !cfg!(feature = "served"))]
    events: bool,
    #[command(flatten)]
    json: JsonOut,
}

fn parse_interval(text: &str) -> Result<Duration> {
    let seconds = spec::units::parse_any_seconds(text)?;
    match (0.05..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => bail!("an interval is from 50ms to 3600s"),
    }
}

/// Runs the command.
pub fn run(arguments: &StatusArguments) -> Result<Ending> {
    #[cfg(feature = "served")]
    if let Some(server) = served::server_of(&arguments.members) {
        return match arguments.watch {
            Some(every) => served::watch(server, every),
            None if arguments.events => served::events(server, &arguments.json),
            None => served::status(server, false, &arguments.json),
        };
    }
    if arguments.watch.is_some() || arguments.events {
        bail!("--watch, --events: only for an array that a server runs, given by its name");
    }
    #[cfg(feature = "served")]
    if arguments.members.is_empty() {
        return served::status_of_all(&arguments.json);
    }
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let members = Members::open(&arguments.members, None)?;
    let found = members.assemble(&Options::default());
    let mut text = String::new();
    for array in &found.arrays {
        text.push_str(&show(array, &members));
    }
    let former = members.former_arrays();
    for (members, array) in &former {
        text.push_str(show(array, members).trim_end());
        let newer = "older superblocks of members that are in other arrays now; --array chooses it";
        let _ = writeln!(text, "\n      {newer}\n");
    }
    let unused = unused(&found, &members);
    let list = if unused.is_empty() { "<none>".into() } else { unused.join(" ") };
    let _ = writeln!(text, "unused devices: {}", Shown(list));
    for doubt in found.arrays.iter().flat_map(|array| describe(array, &members).doubts) {
        let _ = writeln!(text, "doubt: {}", Shown(doubt));
    }
    for why in members.unread() {
        let _ = writeln!(text, "not examined: {}", Shown(why));
    }
    for why in &members.unseen {
        let _ = writeln!(text, "not examined: {}", Shown(why));
    }
    arguments.json.put(&text, || {
        let arrays = found.arrays.iter().map(|array| ArrayDocument::of(array, &members));
        let older = former.iter().map(|(members, array)| ArrayDocument::of(array, members));
        StatusDocument {
            arrays: arrays.chain(older).collect(),
            unused: &unused,
            unseen: members.unseen.iter().cloned().chain(members.unread()).collect(),
        }
    })?;
    let is_odd = |array: &Array| describe(array, &members).needs_attention(array);
    let unseen = !members.unseen.is_empty() || !members.unread().is_empty();
    let finding = unseen || members.has_non_members() || found.arrays.iter().any(is_odd);
    Ok(if finding { Ending::Finding } else { Ending::Fine })
}

fn unused(found: &Found, members: &Members) -> Vec<String> {
    let spares = found.floating_spares.iter();
    let spares = spares.map(|&candidate| members.candidates[candidate].label.clone());
    let without = members.all.iter().filter(|member| !member.has_metadata());
    let without = without.filter(|member| member.disk.is_some());
    spares.chain(without.map(|member| member.name.clone())).collect()
}

fn show(array: &Array, members: &Members) -> String {
    let description = describe(array, members);
    let metadata = description.metadata;
    let mut out = String::new();
    let state = description.words().join(", ");
    let level = mdadm::level(metadata.level);
    let _ = write!(out, "{} : {state} {level}", Shown(array_name(array)));
    for member in &array.members {
        let candidate = &members.candidates[member.candidate];
        let flag = flag(&member.state);
        let write_mostly = if candidate.metadata.write_mostly { "(W)" } else { "" };
        let number = candidate.metadata.dev_number;
        let _ = write!(out, " {}[{number}]{write_mostly}{flag}", Shown(&candidate.label));
    }
    let size = array.array_sectors / 2;
    let version = match array.version {
        Version::V0_90 => String::new(),
        version => format!(" super {version}"),
    };
    let _ = write!(out, "\n      {size} blocks{version}{}", mdstat_level(array, metadata));
    if metadata.level > 0 {
        let (slots, active) = (letters(array).len(), description.counts.active);
        let _ = write!(out, " [{slots}/{active}] [{}]", letters(array));
    }
    out.push('\n');
    if let Ok(Shape::Reshaping(reshaping)) = &array.shape {
        let (done, all) = reshaping.progress();
        let (bar, change) = (mdadm::bar("reshape", done, all), reshaping.change());
        let _ = writeln!(out, "      {bar}, {change}, stopped: 'raidlab reshape --continue'");
    }
    for line in &description.maps {
        let _ = writeln!(out, "      rescue map: {}", Shown(line));
    }
    for line in bad_blocks(&description, members) {
        let _ = writeln!(out, "      bad blocks: {}", Shown(line));
    }
    out.push('\n');
    out
}

fn flag(state: &MemberState) -> &'static str {
    match state {
        MemberState::Active(_) | MemberState::Recovering { .. } => "",
        MemberState::Replacement { .. } => "(R)",
        MemberState::Spare => "(S)",
        MemberState::Journal => "(J)",
        _ => "(F)",
    }
}

/// `U` for each slot that has a member in sync, `_` for the others.
fn letters(array: &Array) -> String {
    let slots = array.read_only.slots.len();
    let is_up = |slot: usize| {
        array.members.iter().any(|member| match member.state {
            MemberState::Active(at) => at.index() == slot,
            _ => false,
        })
    };
    (0..slots).map(|slot| if is_up(slot) { 'U' } else { '_' }).collect()
}

/// The arrays among members, what of the members is in none, and what was not looked at.
#[derive(Serialize)]
struct StatusDocument<'a> {
    arrays: Vec<ArrayDocument<'a>>,
    unused: &'a [String],
    unseen: Vec<String>,
}

#[derive(Serialize)]
struct ArrayDocument<'a> {
    name: &'a str,
    array_uuid: Uuid,
    version: Version,
    level: &'static str,
    state: Vec<String>,
    slots: String,
    former: bool,
    doubts: Vec<String>,
    reshape: Option<ReshapeDocument>,
    array_sectors: Option<u64>,
    members: Vec<&'a str>,
    bad_blocks: Vec<MemberBadBlocks<'a>>,
}

/// Where a reshape stopped.
#[derive(Serialize)]
struct ReshapeDocument {
    change: String,
    position_sectors: u64,
    backwards: bool,
    done_sectors: u64,
    of_sectors: u64,
}

#[derive(Serialize)]
struct MemberBadBlocks<'a> {
    member: &'a str,
    #[serde(flatten)]
    listed: BadBlocksDocument,
}

impl ReshapeDocument {
    fn of(shape: &Shape) -> Option<ReshapeDocument> {
        let Shape::Reshaping(reshaping) = shape else { return None };
        let (done_sectors, of_sectors) = reshaping.progress();
        Some(ReshapeDocument {
            change: reshaping.change().to_string(),
            position_sectors: reshaping.position().0,
            backwards: reshaping.backwards(),
            done_sectors,
            of_sectors,
        })
    }
}

impl<'a> ArrayDocument<'a> {
    fn of(array: &'a Array, members: &'a Members) -> ArrayDocument<'a> {
        let description = describe(array, members);
        let metadata = description.metadata;
        let label = |candidate: usize| members.candidates[candidate].label.as_str();
        let bad_blocks = description.bad_blocks.iter().map(|it| MemberBadBlocks {
            member: label(it.candidate),
            listed: BadBlocksDocument::of(Some(it)),
        });
        let shape = array.shape.as_ref();
        ArrayDocument {
            name: &array.name,
            array_uuid: array.set_uuid,
            version: array.version,
            level: mdadm::level(metadata.level),
            state: description.words(),
            slots: letters(array),
            former: members.is_former(array),
            reshape: shape.ok().and_then(ReshapeDocument::of),
            array_sectors: shape.ok().map(|_| array.array_sectors),
            members: array.members.iter().map(|member| label(member.candidate)).collect(),
            bad_blocks: bad_blocks.collect(),
            doubts: description.doubts,
        }
    }
}
