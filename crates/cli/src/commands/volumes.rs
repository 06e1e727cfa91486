//! `raidlab volumes`: what lies on the arrays among members: partitions, logical volumes, file
//! systems.
//!
//! Invariant: nothing is written. The names printed are those that `dump --volume` takes.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;

use admin::Members;
use admin::rescue::{Check, RescueError, RescueOptions};
use admin::volumes::{Access, ArrayBelow, Volume, Volumes};
use anyhow::{Error, Result};
use clap::Args;
use content::Identified;
use md::assemble::Options;
use md::ondisk::Uuid;
use md::{SECTOR_BYTES, show_size};
use parity::Kernels;
use serde::Serialize;
use spec::shown::Shown;

use crate::commands::source::refusal_text;
use crate::console::{JsonOut, columns};
use crate::members::{Used, choice_text};
use crate::{Ending, mdadm};

const EXAMPLES: &str = "\
Examples:
  raidlab volumes disk*.img                        all volumes on the arrays among these members
  raidlab volumes /dev/sd[a-d]                     all disks of a NAS
  raidlab volumes .                                the files of this directory
  raidlab dump disk*.img --volume vg1/lv -o lv.img the contents of one of them

OFFSET is the volume's first byte on the array, if it is one piece of it. Exit status: 1 when an
array or a volume cannot be read, or when contents may be wrong (doubt).";

/// List what lies on arrays: partitions, logical volumes of LVM, file systems. Members are opened
/// read-only.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct VolumesArguments {
    /// Image files, partitions or disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of one; or a
    /// directory, whose files are examined
    #[arg(required = true, value_name = "MEMBER|DIR")]
    members: Vec<OsString>,
    #[command(flatten)]
    json: JsonOut,
    /// Only the volumes on the array of this UUID or name
    #[arg(long, value_name = "UUID|NAME")]
    array: Option<String>,
    /// Use members with older event counts where no other is left: their data may be stale
    #[arg(long, help_heading = "Member selection")]
    ignore_events: bool,
    /// Accept superblocks with a wrong checksum
    #[arg(long, help_heading = "Member selection")]
    ignore_checksums: bool,
    /// Read arrays that are refused as too risky; implies --ignore-events
    #[arg(long, help_heading = "Member selection")]
    force: bool,
    /// Read arrays of which a part is lost
    #[arg(long, help_heading = "Member selection")]
    partial: bool,
    /// Read through an overlay written by an earlier run
    #[arg(long, value_name = "FILE", help_heading = "Member selection")]
    overlay: Option<PathBuf>,
}

/// Runs the command.
pub fn run(arguments: &VolumesArguments) -> Result<Ending> {
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let members = Members::open(&arguments.members, arguments.overlay.as_deref())?;
    let assemble = Options {
        ignore_events: arguments.ignore_events,
        force: arguments.force,
        ignore_checksums: arguments.ignore_checksums,
        partial: arguments.partial,
        order: None,
    };
    let array = arguments.array.clone();
    let check = Check::Nothing;
    let options = RescueOptions { array, assemble, order: None, check, correct: false };
    let volumes =
        Volumes::on_arrays(&members, &options, Kernels::best()).map_err(|error| match error {
            RescueError::Choose { error, non_members } => {
                let others: String = non_members.iter().map(|it| format!("; {it}")).collect();
                let text = choice_text(&error, arguments.array.as_deref()) + &others;
                Error::new(error).context(text)
            }
            other => other.into(),
        })?;
    let mut text = String::new();
    for array in &volumes.arrays {
        if !text.is_empty() {
            text.push('\n');
        }
        show(&mut text, array);
    }
    for note in &volumes.notes {
        let _ = writeln!(text, "note: {}", Shown(note));
    }
    arguments.json.put(&text, || VolumesDocument::of(&volumes))?;
    let is_fine = volumes.arrays.iter().all(is_fine);
    Ok(if is_fine { Ending::Fine } else { Ending::Finding })
}

fn is_fine(array: &ArrayBelow) -> bool {
    let is_read = |volume: &Volume| {
        let whole = volume.access == Access::Readable || volume.part_of.is_some();
        whole && volume.doubts.is_empty()
    };
    array.refusal.is_none() && array.doubts.is_empty() && array.volumes.iter().all(is_read)
}

fn show(out: &mut String, array: &ArrayBelow) {
    let size = array.sectors.map_or("size unknown".into(), show_size);
    let _ = write!(out, "{} : {}, {size}", Shown(&array.name), mdadm::level(array.level));
    if let Some(uuid) = array.uuid {
        let _ = write!(out, ", {uuid}");
    }
    out.push('\n');
    if let Some(refusal) = &array.refusal {
        let _ = writeln!(out, "  cannot be read: {}", Shown(refusal_text(refusal)));
    }
    if !array.volumes.is_empty() {
        let header = ["  volume", "kind", "offset", "size", "content", "label", "uuid"];
        let table = columns(header, array.volumes.iter().map(row), &[2, 3]);
        out.push_str(&table);
    }
    for doubt in &array.doubts {
        let _ = writeln!(out, "  doubt: {}", Shown(doubt));
    }
    for volume in &array.volumes {
        let name = Shown(&volume.name);
        match &volume.access {
            Access::Readable => {}
            Access::InPart(why) => {
                let _ = writeln!(out, "  {name}: only in part: {}", Shown(why));
            }
            Access::No(why) => {
                let _ = writeln!(out, "  {name}: not read: {}", Shown(why));
            }
        }
        for doubt in &volume.doubts {
            let _ = writeln!(out, "  {name}: doubt: {}", Shown(doubt));
        }
        if let Some(note) = &volume.note {
            let _ = writeln!(out, "  {name}: {}", Shown(note));
        }
    }
    for note in &array.notes {
        let _ = writeln!(out, "  note: {}", Shown(note));
    }
}

fn row(volume: &Volume) -> [String; 7] {
    let content = volume.content.as_ref();
    let text = |it: Option<&String>| it.map_or("-".into(), |it| Shown(it).to_string());
    let kind = match &volume.part_of {
        Some(of) => format!("{}, part of {}", volume.kind.name(), Shown(of)),
        None => volume.kind.name().into(),
    };
    [
        format!("  {}", Shown(&volume.name)),
        kind,
        volume.offset.map_or("-".into(), |sector| (sector * SECTOR_BYTES).to_string()),
        show_size(volume.sectors),
        content.map_or("-".into(), |it| it.kind.title().to_string()),
        text(content.and_then(|it| it.label.as_ref())),
        text(content.and_then(|it| it.uuid.as_ref())),
    ]
}

/// What lies on the arrays among members.
#[derive(Serialize)]
struct VolumesDocument<'a> {
    arrays: Vec<ArrayDocument<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ArrayDocument<'a> {
    name: &'a str,
    uuid: Option<Uuid>,
    level: &'static str,
    bytes: Option<u64>,
    readable: bool,
    why: Option<String>,
    notes: &'a [String],
    doubts: &'a [String],
    volumes: Vec<VolumeDocument<'a>>,
}

#[derive(Serialize)]
struct VolumeDocument<'a> {
    name: &'a str,
    kind: &'static str,
    /// Of its first byte on the array; `None`: it is in pieces.
    offset: Option<u64>,
    bytes: u64,
    content: Option<ContentDocument<'a>>,
    readable: bool,
    in_part: bool,
    why: Option<&'a str>,
    note: Option<&'a str>,
    doubts: &'a [String],
    part_of: Option<&'a str>,
    arrays: Vec<&'a str>,
}

#[derive(Serialize)]
struct ContentDocument<'a> {
    r#type: &'static str,
    label: Option<&'a str>,
    uuid: Option<&'a str>,
    bytes: Option<u64>,
}

impl<'a> VolumesDocument<'a> {
    fn of(volumes: &'a Volumes) -> VolumesDocument<'a> {
        let arrays = volumes.arrays.iter().map(|it| ArrayDocument::of(it, volumes));
        VolumesDocument { arrays: arrays.collect(), notes: &volumes.notes }
    }
}

impl<'a> ArrayDocument<'a> {
    fn of(array: &'a ArrayBelow, all: &'a Volumes) -> ArrayDocument<'a> {
        ArrayDocument {
            name: &array.name,
            uuid: array.uuid,
            level: mdadm::level(array.level),
            bytes: array.sectors.map(bytes),
            readable: array.refusal.is_none(),
            why: array.refusal.as_ref().map(refusal_text),
            notes: &array.notes,
            doubts: &array.doubts,
            volumes: array.volumes.iter().map(|it| VolumeDocument::of(it, all)).collect(),
        }
    }
}

impl<'a> VolumeDocument<'a> {
    fn of(volume: &'a Volume, all: &'a Volumes) -> VolumeDocument<'a> {
        let why = match &volume.access {
            Access::Readable => None,
            Access::InPart(why) | Access::No(why) => Some(why.as_str()),
        };
        VolumeDocument {
            name: &volume.name,
            kind: volume.kind.name(),
            offset: volume.offset.map(bytes),
            bytes: bytes(volume.sectors),
            content: volume.content.as_ref().map(ContentDocument::of),
            readable: volume.access == Access::Readable,
            in_part: matches!(volume.access, Access::InPart(_)),
            why,
            note: volume.note.as_deref(),
            doubts: &volume.doubts,
            part_of: volume.part_of.as_deref(),
            arrays: volume.on.iter().map(|&index| all.arrays[index].name.as_str()).collect(),
        }
    }
}

impl<'a> ContentDocument<'a> {
    fn of(content: &'a Identified) -> ContentDocument<'a> {
        ContentDocument {
            r#type: content.kind.name(),
            label: content.label.as_deref(),
            uuid: content.uuid.as_deref(),
            bytes: content.bytes,
        }
    }
}

fn bytes(sectors: u64) -> u64 {
    sectors * SECTOR_BYTES
}
