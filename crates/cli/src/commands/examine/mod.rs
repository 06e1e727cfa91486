//! `raidlab examine`: the superblocks of members.
//!
//! Invariant: members are opened read-only, and looked at also while another process writes to
//! them. A problem with one member does not prevent the others
//! from being shown; the worst result determines the exit code.

mod areas;
mod foreign;
mod found;
mod json;
mod v0;
mod v1;

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow};
use clap::Args;
use found::Row;
use host::{Identity, Location, MapChoice, MemberName};
use md::SECTOR_BYTES;
use md::ondisk::superblock::{Kernels, Outcome, Superblock};
use serde_json::Value;
use spec::shown::Shown;

use crate::console::{JsonOut, say, value_of};
use crate::error::text_of;
use crate::members::Used;
use crate::{Ending, mdadm};

pub use found::Found;

const EXAMPLES: &str = "\
Examples:
  raidlab examine disk0.img disk1.img     as mdadm --examine, without root
  raidlab examine /dev/sda                of a disk with partitions, the members among them
  raidlab examine images                  of a directory, the files with superblocks
  raidlab examine disk.img@2048s          only the one that begins at sector 2048
  raidlab examine --bitmap /dev/sda1      as mdadm --examine-bitmap
  raidlab examine --json disk0.img        every field, for programs

Exit status: 1 when something is wrong with a member: no superblock, a wrong checksum, or anything
else for which the kernel would refuse it; 2 when one cannot be looked at.";

/// Show the superblocks of members, as `mdadm --examine` does. Nothing is written.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ExamineArguments {
    /// Image files, partitions, disks, directories of images; PATH@OFFSET or PATH@OFFSET+SIZE for a
    /// part of one
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// Show the write-intent bitmap instead, as mdadm --examine-bitmap does
    #[arg(long)]
    bitmap: bool,
    /// Show the list of bad blocks instead, as mdadm --examine-badblocks does
    #[arg(long, conflicts_with = "bitmap")]
    bad_blocks: bool,
    /// Home host, by which array names are called local [default: this machine's host name]
    #[arg(long, value_name = "NAME")]
    homehost: Option<String>,
    #[command(flatten)]
    json: JsonOut,
}

/// Runs the command.
pub fn run(arguments: &ExamineArguments) -> Result<Ending> {
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let (mut texts, mut findings) = (String::new(), false);
    let host = arguments.homehost.clone().unwrap_or_else(mdadm::host_name);
    let all = all(&arguments.members);
    for found in all.iter().filter_map(|(_, found)| found.as_ref().ok()) {
        findings |= has_findings(found) || found.is_no_member();
        texts.push_str(&match (arguments.bitmap, arguments.bad_blocks) {
            (true, _) | (_, true) if found.has_members() => String::new(),
            (true, _) => areas::bitmap(found),
            (_, true) => areas::bad_blocks(found),
            _ => text(found, &host),
        });
    }
    arguments.json.put(&texts, || json::Examined::of(&all))?;
    let mut errors: Vec<Error> = all.into_iter().filter_map(|(_, found)| found.err()).collect();
    match errors.pop() {
        Some(last) => {
            errors.iter().for_each(|error| say(format_args!("raidlab: {}", text_of(error))));
            Err(last)
        }
        None if findings => Ok(Ending::Finding),
        None => Ok(Ending::Fine),
    }
}

/// What is named: members, those in their partition tables, those among the files of directories,
/// but for files that are named themselves; or why they cannot be looked at.
fn all(members: &[OsString]) -> Vec<(OsString, Result<Found>)> {
    let parsed = members.iter().filter_map(|member| MemberName::parse(member).ok());
    let whole = parsed.filter(|it| it.location == Location::whole(&it.location.path));
    let named: Vec<Identity> = whole.filter_map(|it| Identity::at(&it.location.path)).collect();
    let each = |member: &OsString| match Path::new(member).is_dir() {
        true => of_directory(member, &named),
        false => of_member(member),
    };
    members.iter().flat_map(each).collect()
}

fn of_member(member: &OsStr) -> Vec<(OsString, Result<Found>)> {
    let name = MemberName::parse(member).map_err(Error::new);
    of_name(member, name.and_then(|name| Found::read(&name)))
}

fn of_name(member: &OsStr, found: Result<Vec<Result<Found>>>) -> Vec<(OsString, Result<Found>)> {
    let found = found.unwrap_or_else(|error| vec![Err(error)]);
    found.into_iter().map(|found| (member.to_os_string(), found)).collect()
}

/// The files of a directory that are members and are not named themselves, and what cannot be
/// looked at.
fn of_directory(directory: &OsStr, named: &[Identity]) -> Vec<(OsString, Result<Found>)> {
    let (files, unread) = match admin::files_of(Path::new(directory)) {
        Ok(files) => files,
        Err(error) => return vec![(directory.to_os_string(), Err(error.into()))],
    };
    let has_a_sector =
        |file: &PathBuf| file.metadata().is_ok_and(|there| there.len() >= SECTOR_BYTES);
    let each = |file: PathBuf| {
        let member = file.clone().into_os_string();
        // What is behind an `@` is a part of the file's name.
        let name = MemberName { location: Location::whole(file), map: MapChoice::Beside };
        of_name(&member, Found::read(&name))
    };
    let is_named = |file: &PathBuf| Identity::at(file).is_some_and(|it| named.contains(&it));
    let (twice, files): (Vec<_>, Vec<_>) = files.into_iter().partition(is_named);
    let mut all: Vec<_> = files.into_iter().filter(has_a_sector).flat_map(each).collect();
    all.retain(|(_, found)| !found.as_ref().is_ok_and(Found::is_no_member));
    all.extend(unread.into_iter().map(|why| (directory.to_os_string(), Err(anyhow!(why)))));
    if all.is_empty() && twice.is_empty() {
        let why = anyhow!("{}: none of its files is a member", Path::new(directory).display());
        all.push((directory.to_os_string(), Err(why)));
    }
    all
}

/// The JSON of the verb, and what members could not be looked at.
pub fn document(members: &[OsString]) -> (Value, Vec<(String, Error)>) {
    let all = all(members);
    let value = value_of(&json::Examined::of(&all));
    let error = |(member, found): (OsString, Result<Found>)| {
        Some((member.to_string_lossy().into_owned(), found.err()?))
    };
    (value, all.into_iter().filter_map(error).collect())
}

/// Whether there is a finding. A member refused only by some kernels is noted, not a finding.
fn has_findings(found: &Found) -> bool {
    let refused = found.refusals.iter().any(|refusal| refusal.kernels() == Kernels::All);
    let bitmap = match &found.bitmap {
        Some(Ok(bitmap)) => bitmap.wrong().is_some(),
        Some(Err(_)) => true,
        None => false,
    };
    let bad_blocks = matches!(found.bad_blocks, Some(Err(_)));
    refused || bitmap || bad_blocks || foreign::has_findings(&found.foreign)
}

fn text(found: &Found, host: &str) -> String {
    let mut out = String::new();
    match found.superblock() {
        None => {
            let other = foreign::text(&found.foreign);
            let is_member = found.foreign.metadata.is_some();
            let what = if is_member { "" } else { " no md superblock" };
            let _ = writeln!(out, "{}:{what}", Shown(&found.name));
            out.push_str(&other);
            if other.is_empty() {
                out.push_str(&instead(found));
            }
            return out;
        }
        Some((superblock, checksum)) => {
            let _ = writeln!(out, "{}:", Shown(&found.name));
            out.push_str(&match superblock {
                Superblock::V0(superblock) => v0::text(superblock, checksum, host),
                Superblock::V1(superblock) => {
                    let bitmap = found.bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
                    let header = bitmap.map(|bitmap| &bitmap.header);
                    v1::text(superblock, checksum, found.sectors, header, host)
                }
            });
        }
    }
    out.push_str(&remarks(found));
    out
}

/// Lines that mdadm does not print: refusals of the kernel, other superblocks on the member.
fn remarks(found: &Found) -> String {
    let mut lines = Vec::new();
    for refusal in &found.refusals {
        let who = match refusal.kernels() {
            Kernels::All => " Kernel Refuses",
            Kernels::UpTo6_18 => "    Kernel Note",
        };
        lines.push(format!("{who} : {refusal}"));
    }
    if let Some(Err(error)) = &found.bitmap {
        lines.push(format!(" Bitmap Problem : {}", text_of(error)));
    }
    if let Some(Ok(bitmap)) = &found.bitmap {
        lines.extend(bitmap.wrong().map(|problem| format!(" Bitmap Problem : {problem}")));
        if bitmap.states.is_some() {
            lines.push(format!("    Kernel Note : {LOCKLESS}"));
        }
    }
    if let Some(Err(error)) = &found.bad_blocks {
        lines.push(format!(" Bad Blocks     : {}", text_of(error)));
    }
    if let Some(user) = &found.in_use {
        lines.push(format!("         In Use : by {user}; what is shown may be of several moments"));
    }
    if let Some(unread) = &found.unread {
        lines.push(format!("     Rescue Map : {}", unread.note(&found.name)));
    }
    if let Some(metadata) = &found.foreign.metadata {
        lines.push(format!("     Also There : {}", metadata.name()));
    }
    for (index, (place, outcome)) in found.detection.outcomes.iter().enumerate() {
        if Some(index) == found.detection.chosen || matches!(outcome, Outcome::NoMagic) {
            continue;
        }
        lines.push(format!("     Also There : sector {}, {outcome}", place.sector));
    }
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.iter().map(|line| format!("{}\n", Shown(line)));
    format!("\n{}", lines.collect::<String>())
}

/// Note about a bitmap version that older kernels do not support.
pub const LOCKLESS: &str = "the bitmap is lockless (version 6): Linux 6.18 and later; \
    older kernels refuse it, raidlab reads the array and does not start it";

/// The contents of a member without a superblock.
fn instead(found: &Found) -> String {
    let mut out = String::new();
    for (place, outcome) in &found.detection.outcomes {
        if !matches!(outcome, Outcome::NoMagic) {
            let version = place.version;
            let _ =
                writeln!(out, "   sector {} (version {version}): {}", place.sector, Shown(outcome));
        }
    }
    if let Some(user) = &found.in_use {
        let _ = writeln!(out, "   it is in use by {}", Shown(user));
    }
    if let Some(unread) = &found.unread {
        let _ = writeln!(out, "   {}", Shown(unread.note(&found.name)));
    }
    for sign in &found.contents {
        let _ = writeln!(out, "   it holds: {} (at byte {})", Shown(sign), sign.at);
    }
    if let Some(packed) = found.packed_as {
        let _ = writeln!(out, "   it is {packed}");
    }
    if let Some(elsewhere) = &found.elsewhere {
        let _ = writeln!(out, "   {}", Shown(elsewhere));
    }
    match found.table.as_ref().map(|table| (&table.kind, &table.rows)) {
        None => {}
        Some((Err(why), _)) => {
            let _ = writeln!(out, "   its partition table cannot be read: {why}");
        }
        Some((Ok((kind, block)), rows)) => {
            let _ = writeln!(out, "   {kind}, blocks of {block} bytes:");
            for Row { number, name, may_be_member, .. } in rows {
                let what = if *may_be_member { "see below" } else { "no md superblock" };
                let _ = writeln!(out, "   {number:>5}  {}  {what}", Shown(name));
            }
        }
    }
    if out.is_empty() {
        out.push_str("   no known signature was found\n");
    }
    out
}
