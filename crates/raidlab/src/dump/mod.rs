//! `raidlab dump`: an array's contents, read from what is left of it.
//!
//! Invariant: members are opened read-only and nothing is written but the output. Zeroes in the
//! place of data that cannot be served are only ever written with `--partial`, and then they are
//! listed and the command ends with 1. It does so too where members contradict each other, and
//! where the redundancy that is there says something else than what was served.

mod output;
mod source;
#[cfg(test)]
mod sweep;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use array::rescue::{Compared, Failure, Piece, StreamError, StreamOptions, stream};
use clap::Args;
use md::Level;
use serde_json::{Value, json};

use crate::console::{JsonOut, print_raw, say};
use crate::members::{Used, overlaps, show_size};
use crate::meter::Meter;
use crate::size_args::{parse_level, parse_sectors};
use crate::{Ending, signal};
use lab::shown::Shown;
use output::{Output, Stop};
use source::Source;

const EXAMPLES: &str = "\
Examples:
  raidlab dump disk*.img -o array.img               the contents, from whatever members there are
  raidlab dump disk0.img disk2.img --sha256         only the checksum of the contents
  raidlab dump disk*.img --check                    only whether the redundancy agrees
  raidlab dump disk.img@2048s other.img@2048s -o -  members inside images of whole disks
  raidlab dump disk*.img --array data -o data.img   of several arrays, the one that is called data
  raidlab dump disk*.img --partial -o array.img     more is lost than can be recovered: the rest
  raidlab dump a.img missing c.img --level 5 --raid-devices 3 --chunk 64K --data-offset 1M \\
      -o array.img                                  the superblocks are gone

Sizes are KiB, or have a unit: 64K, 1M, 10G, 2T, 2048s (sectors). Ends with 1 when something could
not be served (--partial), members contradict each other, or the redundancy does not agree with what
is read; with 2 when the array cannot be read as asked, with 130 when stopped.";

/// Writes the contents of an array to a file or to stdout. Members are only ever read.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArguments {
    /// Image files, partitions, disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of one; with
    /// --level also 'missing'
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    /// Where the contents go: a new file, or - for stdout
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Write over FILE if it is there, or over a block device
    #[arg(long, requires = "output", help_heading = "Output")]
    overwrite: bool,
    /// Print the SHA-256 of the contents; without -o that is all
    #[arg(long, help_heading = "Output")]
    sha256: bool,
    /// Compare all of the redundancy, also where it is known not to hold yet; without -o and
    /// --sha256 that is all
    #[arg(long, help_heading = "Output")]
    check: bool,
    /// Read no more than the contents need: do not compare the redundancy
    #[arg(long, conflicts_with = "check", help_heading = "Output")]
    no_check: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Pieces that are read at the same time
    #[arg(long, value_name = "N", default_value = "8", help_heading = "Output",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,

    /// Of several arrays, this one: its uuid or its name
    #[arg(long, value_name = "UUID|NAME", help_heading = "Which members")]
    array: Option<String>,
    /// The member of each slot, as places in the list of members, from 0: 0,2,missing,1
    #[arg(long, value_delimiter = ',', value_name = "PLACES", help_heading = "Which members")]
    order: Vec<String>,
    /// Use members that missed updates where there is nobody else: what they hold may be old
    #[arg(long, help_heading = "Which members")]
    ignore_events: bool,
    /// Believe superblocks whose checksum is wrong
    #[arg(long, help_heading = "Which members")]
    ignore_checksums: bool,
    /// Read also what is refused as too risky, with the risk in words; implies --ignore-events
    #[arg(long, help_heading = "Which members")]
    force: bool,
    /// Serve what can be served; the rest is zeroes, and is listed
    #[arg(long, help_heading = "Which members")]
    partial: bool,
    /// Read through an overlay that an earlier run has written
    #[arg(long, value_name = "FILE", help_heading = "Which members")]
    overlay: Option<PathBuf>,
    /// Says what is always so: a dump writes to no member
    #[arg(long, help_heading = "Which members")]
    read_only: bool,

    /// The superblocks are gone, or not to be believed: this is the level, and the members are in
    /// the order of their slots
    #[arg(long, value_parser = parse_level, requires = "raid_devices",
          conflicts_with_all = ["array", "ignore_events", "ignore_checksums", "force"],
          help_heading = "Without superblocks")]
    level: Option<Level>,
    /// The layout by md's name or number [default: md's]
    #[arg(long, requires = "level", help_heading = "Without superblocks")]
    layout: Option<String>,
    /// The chunk [default: 512K]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    chunk: Option<u64>,
    /// How many slots there are
    #[arg(long, value_name = "N", requires = "level", help_heading = "Without superblocks")]
    raid_devices: Option<u16>,
    /// Where data begins on each member [default: 0]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    data_offset: Option<u64>,
    /// How much of each member is used [default: what the smallest has]
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, requires = "level",
          help_heading = "Without superblocks")]
    size: Option<u64>,
}

/// What came of it.
struct Outcome {
    name: String,
    sectors: u64,
    done_sectors: u64,
    /// Array sectors that could not be served.
    lost: Vec<(u64, u64)>,
    sha256: Option<String>,
    notes: Vec<String>,
    doubts: Vec<String>,
    /// What the redundancy was compared with, in words.
    compares: Option<String>,
    compared: Compared,
    stop: Option<Stop>,
    failures: (Vec<Failure>, u64),
}

impl Outcome {
    /// What is to be found of what was dumped to its end.
    fn ending(&self) -> Ending {
        let fine = self.lost.is_empty() && self.doubts.is_empty();
        if fine && self.compared.differing.is_empty() { Ending::Fine } else { Ending::Finding }
    }
}

/// Runs the command.
pub fn run(arguments: &DumpArguments) -> Result<Ending, String> {
    if arguments.output.is_none() && !arguments.sha256 && !arguments.check {
        let what = "--output FILE (- for stdout), --sha256 for the checksum alone, or --check to \
                    compare the redundancy alone";
        return Err(format!("say what the contents are for: {what}"));
    }
    let to_stdout = arguments.output.as_deref().is_some_and(crate::console::is_stdout);
    if to_stdout && arguments.json.is_stdout() {
        return Err("--json and -o - both go to stdout; use --json=FILE".into());
    }
    if arguments.output.as_deref().is_some_and(|path| arguments.json.is(path)) {
        return Err("--json and -o name the same file".into());
    }
    let mut used = Used::members(&arguments.members);
    if let Some(path) = arguments.overlay.as_deref()
        && let Some(how) = overlaps(&used, path)
    {
        return Err(format!("--overlay {}: {how}; name another file", path.display()));
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
    report(arguments, &outcome, to_stdout)
}

fn copy(arguments: &DumpArguments, source: Source, output: &mut Output) -> Result<Outcome, String> {
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
        compares: source.compared,
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
            return Err(format!(
                "cannot read the array: cannot {doing}: {source}; a limit of memory or of \
                 processes is reached (ulimit -v, ulimit -u, a cgroup)"
            ));
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

fn report(arguments: &DumpArguments, outcome: &Outcome, to_stdout: bool) -> Result<Ending, String> {
    say_failures(outcome);
    say_differing(outcome);
    let done = show_size(outcome.done_sectors);
    let all = show_size(outcome.sectors);
    let partial = match &arguments.output {
        Some(path) if !to_stdout => format!("; {} is partial", path.display()),
        _ => String::new(),
    };
    match &outcome.stop {
        None => {}
        Some(Stop::Signal) => {
            say(format_args!("raidlab: stopped after {done} of {all}{partial}"));
            return Ok(Ending::Stopped);
        }
        Some(Stop::Output(error)) => {
            return Err(format!("{error} (after {done} of {all}){partial}"));
        }
        Some(Stop::Lost { sector, sectors }) => {
            return Err(format!(
                "array sectors {sector} to {} cannot be served from the members that are there \
                 (after {done} of {all}); --partial goes on with zeroes in their place{partial}",
                sector + sectors
            ));
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
        arguments.json.put_aside(|| json(outcome))?;
    } else if arguments.json.is_stdout() {
        print_raw(&format!("{:#}\n", json(outcome)))?;
    } else {
        arguments.json.put(&text, || json(outcome))?;
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

/// Where the redundancy does not agree with what was served.
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
            "raidlab: {}: of {compared} that were compared some do not agree: what was read there \
             may be wrong, or the redundancy is; a dump without one member after the other shows \
             which",
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
