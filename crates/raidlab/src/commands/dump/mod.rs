//! `raidlab dump`: an array's contents, read from the remaining members.
//!
//! Invariant: members are opened read-only and only the output is written. Zeroes in place of lost
//! data are written only with `--partial`; they are then listed, and the exit code is 1. The exit
//! code is also 1 if members contradict each other, or if the redundancy does not match the data.

mod output;
mod source;
#[cfg(test)]
mod sweep;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use admin::rescue::{Compared, Failure, Piece, Rescue, StreamError, StreamOptions, stream};
use anyhow::{Result, bail};
use clap::Args;
use md::{Level, show_size};
use output::{Output, Stop};
use report::shown::Shown;
use serde_json::{Value, json};

use crate::console::{JsonOut, print_raw, say};
use crate::error::reworded;
use crate::members::{Used, overlaps};
use crate::meter::Meter;
use crate::size_args::{parse_level, parse_sectors};
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab dump disk*.img -o array.img               the contents, from the members that exist
  raidlab dump disk0.img disk2.img --sha256         only the checksum of the contents
  raidlab dump disk*.img --check                    only compare the redundancy
  raidlab dump disk.img@2048s other.img@2048s -o -  members inside images of whole disks
  raidlab dump a.img b.img:map=b.map --sha256       b.img is a copy that ddrescue made, with holes
  raidlab dump disk*.img --array data -o data.img   of several arrays, the one named data
  raidlab dump disk*.img --partial -o array.img     lost data cannot be recovered: dump the rest
  raidlab dump a.img missing c.img --level 5 --raid-devices 3 --chunk 64K --data-offset 1M \\
      -o array.img                                  the superblocks are lost

Sizes are KiB, or have a unit: 64K, 1M, 10G, 2T, 2048s (sectors). Exit code: 1 if data was lost
(--partial), members contradict each other, or the redundancy does not match the data; 2 if the
array cannot be read as requested; 130 if stopped by a signal.";

/// Write the contents of an array to a file or to stdout. Members are opened read-only.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArguments {
    /// Image files, partitions or disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of one;
    /// :map=FILE behind it for ddrescue's mapfile of a copy, :map=none for none; with --level also
    /// 'missing'
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// Output: a new file, or - for stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Overwrite FILE if it exists, or a block device
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// Print the SHA-256 of the contents; can be used without -o
    #[arg(long)]
    sha256: bool,
    /// Compare all redundancy, also ranges that were never in sync; can be used without -o and
    /// --sha256
    #[arg(long)]
    check: bool,
    /// Do not compare the redundancy: read only what the contents need
    #[arg(long, conflicts_with = "check", help_heading = "Output")]
    no_check: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Queue depth: pieces read concurrently
    #[arg(long, value_name = "N", default_value = "8", help_heading = "Output",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,

    /// Select one of several arrays by its UUID or name
    #[arg(long, value_name = "UUID|NAME")]
    array: Option<String>,
    /// The member of each slot, as indexes into the list of members, from 0: 0,2,missing,1
    #[arg(long, value_delimiter = ',', value_name = "PLACES")]
    order: Vec<String>,
    /// Use members with older event counts where no other is left: their data may be stale
    #[arg(long, help_heading = "Member selection")]
    ignore_events: bool,
    /// Accept superblocks with a wrong checksum
    #[arg(long, help_heading = "Member selection")]
    ignore_checksums: bool,
    /// Read an array that is refused as too risky, and print the risk; implies --ignore-events
    #[arg(long)]
    force: bool,
    /// Dump what can be read; lost ranges are written as zeroes and listed
    #[arg(long)]
    partial: bool,
    /// Read through an overlay written by an earlier run
    #[arg(long, value_name = "FILE", help_heading = "Member selection")]
    overlay: Option<PathBuf>,

    /// RAID level, if superblocks are lost or wrong: they are ignored, and members are given in
    /// slot order
    #[arg(long, value_parser = parse_level, requires = "raid_devices",
          conflicts_with_all = ["array", "ignore_events", "ignore_checksums", "force"],
          help_heading = "Without superblocks")]
    level: Option<Level>,
    /// Layout, by md's name or number [default: md's default]
    #[arg(long, requires = "level", help_heading = "Without superblocks")]
    layout: Option<String>,
    /// Chunk size [default: 512K]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    chunk: Option<u64>,
    /// Number of slots
    #[arg(long, value_name = "N", requires = "level", help_heading = "Without superblocks")]
    raid_devices: Option<u16>,
    /// Data offset of each member [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    data_offset: Option<u64>,
    /// Space used on each member [default: that of the smallest member]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    size: Option<u64>,
}

/// The range in which the redundancy is compared.
fn range_text(below: u64) -> String {
    match below {
        u64::MAX => "all of it".into(),
        below => format!("below sector {below}"),
    }
}

/// The result of a dump.
struct Outcome {
    name: String,
    sectors: u64,
    done_sectors: u64,
    /// Lost ranges: start and end, in array sectors.
    lost: Vec<(u64, u64)>,
    sha256: Option<String>,
    notes: Vec<String>,
    doubts: Vec<String>,
    /// The range in which the redundancy was compared, as text.
    compares: Option<String>,
    compared: Compared,
    stop: Option<Stop>,
    failures: (Vec<Failure>, u64),
}

impl Outcome {
    /// The exit status of a complete dump.
    fn ending(&self) -> Ending {
        let fine = self.lost.is_empty() && self.doubts.is_empty();
        if fine && self.compared.differing.is_empty() { Ending::Fine } else { Ending::Finding }
    }
}

/// Runs the command.
pub fn run(arguments: &DumpArguments) -> Result<Ending> {
    if arguments.output.is_none() && !arguments.sha256 && !arguments.check {
        let what = "--output FILE (- for stdout), --sha256 for the checksum alone, or --check to \
                    compare the redundancy alone";
        bail!("no output selected: give {what}");
    }
    let to_stdout = arguments.output.as_deref().is_some_and(crate::console::is_stdout);
    if to_stdout && arguments.json.is_stdout() {
        bail!("--json and -o - both go to stdout; use --json=FILE");
    }
    if arguments.output.as_deref().is_some_and(|path| arguments.json.is(path)) {
        bail!("--json and -o name the same file");
    }
    let mut used = Used::members(&arguments.members);
    if let Some(path) = arguments.overlay.as_deref()
        && let Some(how) = overlaps(&used, path)
    {
        bail!("--overlay {}: {how}; name another file", path.display());
    }
    used.extend(arguments.overlay.as_deref().and_then(|path| Used::file("overlay", path)));
    arguments.json.refuse_overlap(&used)?;
    let source = source::open(arguments)?;
    source.notes.iter().for_each(|note| say(format_args!("raidlab: {note}")));
    source.doubts.iter().for_each(|doubt| say(format_args!("raidlab: doubt: {doubt}")));
    let mut output = Output::open(
        arguments.output.as_deref(),
        arguments.overwrite,
        arguments.sha256,
        source.view.sectors(),
        &used,
    )?;
    let outcome = copy(arguments, source, &mut output)?;
    report(arguments, outcome, to_stdout)
}

fn copy(arguments: &DumpArguments, source: Rescue, output: &mut Output) -> Result<Outcome> {
    let stop = signal::watch()?;
    let view = &source.view;
    let sectors = view.sectors();
    let mut meter = Meter::new("read", sectors);
    let mut outcome = Outcome {
        name: source.name,
        sectors,
        done_sectors: 0,
        lost: Vec::new(),
        sha256: None,
        notes: source.notes,
        doubts: source.doubts,
        compares: source.compares_below.map(range_text),
        compared: Compared::default(),
        stop: None,
        failures: Default::default(),
    };
    let options = StreamOptions { pieces: arguments.depth.into(), ..StreamOptions::default() };
    let result = stream(view, 0..sectors, options, |piece| {
        if stop.load(Ordering::Relaxed) {
            return Err(Stop::Signal);
        }
        let end = match piece {
            Piece::Hole { at, sectors } => {
                output.zeroes(sectors, &stop)?;
                at + sectors
            }
            Piece::Data { at, bytes, lost } => {
                if let Some(first) = lost.first().filter(|_| !arguments.partial) {
                    return Err(Stop::Lost {
                        sector: first.start,
                        sectors: first.end - first.start,
                    });
                }
                output.data(bytes)?;
                for range in lost {
                    note_lost(&mut outcome.lost, range.start, range.end);
                }
                at + bytes.len() as u64 / md::SECTOR_BYTES
            }
        };
        outcome.done_sectors = end;
        meter.set(end);
        Ok(())
    });
    meter.finish();
    outcome.failures = view.failures();
    outcome.compared = view.comparison();
    match result {
        Ok(()) => outcome.sha256 = output.finish()?,
        Err(StreamError::System { doing, source }) => {
            return Err(reworded(source, |reason| {
                format!(
                    "cannot read the array: cannot {doing}: {reason}; a limit of memory or of \
                     processes is reached (ulimit -v, ulimit -u, a cgroup)"
                )
            }));
        }
        Err(StreamError::Consumer(stop)) => outcome.stop = Some(stop),
    }
    Ok(outcome)
}

fn note_lost(list: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match list.last_mut().filter(|(_, last)| *last == start) {
        Some((_, last)) => *last = end,
        None => list.push((start, end)),
    }
}

fn report(arguments: &DumpArguments, mut outcome: Outcome, to_stdout: bool) -> Result<Ending> {
    say_failures(&outcome);
    say_differing(&outcome);
    let done = show_size(outcome.done_sectors);
    let all = show_size(outcome.sectors);
    let partial = match &arguments.output {
        Some(path) if !to_stdout => format!("; {} is partial", path.display()),
        _ => String::new(),
    };
    match outcome.stop.take() {
        None => {}
        Some(Stop::Signal) => {
            say(format_args!("raidlab: stopped after {done} of {all}{partial}"));
            return Ok(Ending::Stopped);
        }
        Some(Stop::Output(error)) => {
            return Err(reworded(error, |text| format!("{text} (after {done} of {all}){partial}")));
        }
        Some(Stop::Lost { sector, sectors }) => {
            bail!(
                "array sectors {sector} to {} cannot be read from the available members \
                 (after {done} of {all}); --partial writes zeroes in their place{partial}",
                sector + sectors
            );
        }
    }
    let lost: u64 = outcome.lost.iter().map(|(start, end)| end - start).sum();
    for (start, end) in outcome.lost.iter().take(20) {
        say(format_args!("raidlab: lost: array sectors {start} to {end}, zeroes in the output"));
    }
    if outcome.lost.len() > 20 {
        say(format_args!(
            "raidlab: lost: {} more ranges (all with --json)",
            outcome.lost.len() - 20
        ));
    }
    let mut text = String::new();
    if let Some(sha256) = &outcome.sha256 {
        let file = arguments.output.as_deref().unwrap_or("-".as_ref());
        text = format!("{sha256}  {}\n", Shown(file.display()));
    }
    let lost_text = if lost > 0 { format!(", {} lost", show_size(lost)) } else { String::new() };
    if arguments.output.is_some() {
        say(format_args!("raidlab: {}: {all} written{lost_text}", outcome.name));
    }
    if to_stdout {
        say(format_args!("{}", text.trim_end()));
        arguments.json.put_aside(|| json(&outcome))?;
    } else if arguments.json.is_stdout() {
        print_raw(&format!("{:#}\n", json(&outcome)))?;
    } else {
        arguments.json.put(&text, || json(&outcome))?;
    }
    Ok(outcome.ending())
}

fn say_failures(outcome: &Outcome) {
    let (failures, more) = &outcome.failures;
    for failure in failures.iter().take(20) {
        let Failure { name, sectors, error } = failure;
        say(format_args!(
            "raidlab: {name}: sectors {} to {} cannot be read: {error}",
            sectors.start, sectors.end
        ));
    }
    let rest = failures.len().saturating_sub(20) as u64 + more;
    if rest > 0 {
        say(format_args!("raidlab: {rest} more ranges of members cannot be read"));
    }
}

/// Prints the ranges in which the redundancy does not match the data.
fn say_differing(outcome: &Outcome) {
    let Compared { sectors, differing, more } = &outcome.compared;
    for range in differing.iter().take(20) {
        say(format_args!(
            "raidlab: array sectors {} to {} do not agree with their redundancy",
            range.start, range.end
        ));
    }
    let rest = differing.len().saturating_sub(20) as u64 + more;
    if rest > 0 {
        say(format_args!("raidlab: {rest} more ranges do not agree (the first 1000 with --json)"));
    }
    let compared = show_size(*sectors);
    if !differing.is_empty() {
        say(format_args!(
            "raidlab: {}: mismatches in {compared} compared: either the data or the redundancy is \
             wrong there; to find the wrong member, repeat the dump without one member at a time",
            outcome.name
        ));
    } else if let Some(what) = outcome.compares.as_ref().filter(|_| outcome.stop.is_none()) {
        let name = &outcome.name;
        say(format_args!("raidlab: {name}: the redundancy agrees ({what}: {compared})"));
    }
}

fn json(outcome: &Outcome) -> Value {
    let lost = outcome.lost.iter();
    let lost = lost.map(|(start, end)| json!({"sector": start, "sectors": end - start}));
    let failures = outcome.failures.0.iter().map(|failure| {
        json!({
            "member": failure.name, "sector": failure.sectors.start,
            "sectors": failure.sectors.end - failure.sectors.start, "error": failure.error,
        })
    });
    let differing = outcome.compared.differing.iter();
    let differing = differing.map(|it| json!({"sector": it.start, "sectors": it.end - it.start}));
    json!({
        "array": outcome.name,
        "array_sectors": outcome.sectors,
        "sha256": outcome.sha256,
        "lost": lost.collect::<Vec<_>>(),
        "member_failures": failures.collect::<Vec<_>>(),
        "notes": outcome.notes,
        "doubts": outcome.doubts,
        "compared_sectors": outcome.compared.sectors,
        "differing": differing.collect::<Vec<_>>(),
        "differing_more": outcome.compared.more,
    })
}
