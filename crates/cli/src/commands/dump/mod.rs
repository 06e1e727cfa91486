//! `raidlab dump`: the contents of an array, or of a volume on arrays, read from the remaining
//! members.
//!
//! Invariant: members are opened read-only and only the output is written. Zeroes in place of lost
//! data are written only with `--partial`; they are then listed, and the exit code is 1. The exit
//! code is also 1 if members contradict each other, or if the redundancy does not match the data.

#[cfg(test)]
mod foreign_sweep;
mod output;
mod report;
mod resumable;
#[cfg(test)]
mod sweep;
pub(in crate::commands) mod volume;

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use admin::rescue::{
    Check, Compared, Failure, Gaps, OutOfDateRange, Piece, Readable, Rescue, StreamError,
    StreamOptions, gaps, stream,
};
use anyhow::{Result, bail};
use clap::Args;
use output::{Output, Stop};

use super::source::{self, Opened, ReadOptions, SourceArguments};
use crate::console::{JsonOut, is_stream, say, say_lines};
use crate::error::reworded;
use crate::members::{Used, overlaps};
use crate::meter::Meter;
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab dump disk*.img -o array.img               the contents, from the members that exist
  raidlab dump disk0.img disk2.img --sha256         only the checksum of the contents
  raidlab dump disk*.img --check                    only compare the redundancy
  raidlab dump disk.img@2048s other.img@2048s -o -  members inside images of whole disks
  raidlab dump a.img b.img:map=b.map --sha256       b.img is a copy that ddrescue made, with holes
  raidlab dump disk*.img --array data -o data.img   of several arrays, the one named data
  raidlab dump a.img b.img c.img --wanted again     what to read again of copies with maps
  raidlab dump disk*.img -o a.img --map a.map       failing disks; the same again continues it
  raidlab dump disk*.img --volume vg1/lv -o lv.img  one of those that 'raidlab volumes' lists
  raidlab dump disk*.img --partial -o array.img     lost data cannot be recovered: dump the rest
  raidlab dump a.img missing c.img --level 5 --raid-devices 3 --chunk 64K --data-offset 1M \\
      -o array.img                                  the superblocks are lost
  raidlab dump disk*.img --guess -o array.img       the same, and the geometry is not known

Sizes are KiB, or have a unit: 64K, 1M, 10G, 2T, 2048s (sectors). Exit status: 1 if data was lost
(--partial), members contradict each other, or the redundancy does not match the data; 2 if the
array cannot be read as requested; 130 if stopped by a signal.";

/// Write the contents of an array, or of a volume on arrays, to a file or to stdout. Members are
/// opened read-only.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// Output: a new file, or - for stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep a map of what was read in this file: a dump that was stopped continues, and reads only
    /// what is missing; large reads first, small ones later
    #[arg(long, value_name = "FILE", requires = "output", conflicts_with_all = ["volume", "guess"])]
    map: Option<PathBuf>,
    /// Seconds between two times that the map is stored
    #[arg(long, value_name = "SECONDS", default_value = "10", hide = true)]
    map_interval: u64,
    /// Overwrite FILE if it exists, or a block device
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// Begin also where the file system of FILE may have too little space; zeroes take none
    #[arg(long, requires = "output", help_heading = "Output")]
    ignore_space: bool,
    /// Print the SHA-256 of the contents; can be used without -o
    #[arg(long)]
    sha256: bool,
    /// Compare all redundancy, also ranges that were never in sync; can be used without -o and
    /// --sha256
    #[arg(long)]
    check: bool,
    /// Where P and Q of a RAID 6, or most of three or more copies, prove a block wrong: dump what
    /// they prove right instead
    #[arg(long, conflicts_with = "no_check")]
    correct: bool,
    /// Write, for each copy with a map, a mapfile of what of it would bring lost data back into
    /// this directory, for ddrescue -m; can be used without -o
    #[arg(long, value_name = "DIR", conflicts_with_all = ["volume", "guess"])]
    wanted: Option<PathBuf>,
    /// Do not compare the redundancy: read only what the contents need
    #[arg(long, conflicts_with = "check", help_heading = "Output")]
    no_check: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Queue depth: pieces read concurrently
    #[arg(long, value_name = "N", default_value = "8", help_heading = "Output",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    depth: u16,
    /// Dump what can be read; lost ranges are written as zeroes and listed
    #[arg(long)]
    partial: bool,
    /// Dump this volume only: a partition, a logical volume, an array; 'raidlab volumes' names them
    #[arg(long, value_name = "NAME", conflicts_with = "guess")]
    volume: Option<String>,
}

/// The arguments alone.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    arguments: DumpArguments,
}

impl DumpArguments {
    /// Those of a dump that only compares the redundancy.
    pub fn check(members: Vec<OsString>, array: Option<String>, json: JsonOut) -> DumpArguments {
        let Line { arguments } = clap::Parser::parse_from(["dump", "--check", "member"]);
        let source = SourceArguments { members, array, ..arguments.source };
        DumpArguments { source, json, ..arguments }
    }

    /// Makes the array of opened members readable.
    #[cfg(test)]
    fn rescue(&self, members: &admin::Members) -> Result<Rescue> {
        source::read_from(&self.source, &self.read_options(), members)
    }

    /// What is written to the output.
    fn wanted_output<'a>(&self, view: &'a dyn Readable, used: &'a [Used]) -> output::Wanted<'a> {
        let (overwrite, ignore_space) = (self.overwrite, self.ignore_space);
        output::Wanted { view, overwrite, ignore_space, used }
    }

    /// How the source is read.
    fn read_options(&self) -> ReadOptions {
        let check = match (self.check, self.no_check) {
            (true, _) => Check::Everything,
            (false, true) => Check::Nothing,
            (false, false) => Check::InSync,
        };
        ReadOptions { check, correct: self.correct, partial: self.partial }
    }
}

/// The range in which the redundancy is compared.
fn range_text(below: u64) -> String {
    match below {
        u64::MAX => "all of it".into(),
        below => format!("below sector {below}"),
    }
}

/// The result of a dump.
#[derive(Default)]
struct Outcome {
    name: String,
    /// The arrays that a volume lies on; `None` for an array.
    on: Option<Vec<String>>,
    sectors: u64,
    done_sectors: u64,
    /// Lost ranges: start and end, in array sectors.
    lost: Vec<(u64, u64)>,
    /// Ranges that an earlier run has written from other members, and that these do not have.
    kept: Vec<Range<u64>>,
    /// Ranges that only members have which are out of date.
    stale: Vec<OutOfDateRange>,
    /// Whether these serve them.
    is_stale: bool,
    sha256: Option<String>,
    notes: Vec<String>,
    doubts: Vec<String>,
    /// The range in which the redundancy was compared, as text.
    compares: Option<String>,
    compared: Compared,
    /// What redundancy that agrees does not show.
    unseen: Option<&'static str>,
    /// What copies with maps leave of the array.
    gaps: Option<Gaps>,
    stop: Option<Stop>,
    failures: (Vec<Failure>, u64),
    /// Sectors of members that were skipped, and not needed later.
    skipped: u64,
}

impl Outcome {
    /// That of a dump that has not begun.
    fn of(source: &Rescue) -> Outcome {
        Outcome {
            name: source.name.clone(),
            on: None,
            sectors: source.view.sectors(),
            done_sectors: 0,
            lost: Vec::new(),
            kept: Vec::new(),
            stale: Vec::new(),
            is_stale: source.view.may_be_stale(),
            sha256: None,
            notes: source.notes.clone(),
            doubts: source.doubts.clone(),
            compares: source.compares_below.map(range_text),
            compared: Compared::default(),
            unseen: source.unseen,
            gaps: None,
            stop: None,
            failures: Default::default(),
            skipped: 0,
        }
    }

    /// What sectors in messages are of.
    fn unit(&self) -> &'static str {
        if self.on.is_some() { "volume" } else { "array" }
    }

    /// The exit status of a complete dump.
    fn ending(&self) -> Ending {
        let is_stale = self.is_stale && !self.stale.is_empty();
        let whole = self.lost.is_empty() && self.kept.is_empty() && !is_stale;
        let fine = whole && self.doubts.is_empty();
        let compared = &self.compared;
        if fine && compared.differing.is_empty() && compared.more == 0 {
            Ending::Fine
        } else {
            Ending::Finding
        }
    }
}

/// Runs the command.
pub fn run(arguments: &DumpArguments) -> Result<Ending> {
    let reads = arguments.output.is_some() || arguments.sha256 || arguments.check;
    if !reads && arguments.wanted.is_none() {
        let what = "--output FILE (- for stdout), --sha256 for the checksum alone, --check to \
                    compare the redundancy alone, or --wanted DIR";
        bail!("no output selected: give {what}");
    }
    let to_stdout = arguments.output.as_deref().is_some_and(crate::console::is_stdout);
    if to_stdout && arguments.json.is_stdout() {
        bail!("--json and -o - both go to stdout; use --json=FILE");
    }
    if arguments.output.as_deref().is_some_and(|path| arguments.json.is(path)) {
        bail!("--json and -o name the same file");
    }
    let mut used = Used::members(&arguments.source.members);
    if let Some(path) = arguments.source.overlay.as_deref()
        && let Some(how) = overlaps(&used, path)
    {
        bail!("--overlay {}: {how}; name another file", path.display());
    }
    used.extend(arguments.source.overlay.as_deref().and_then(|path| Used::file("overlay", path)));
    arguments.json.refuse_overlap(&used)?;
    let members = source::members(&arguments.source)?;
    if let Some(name) = &arguments.volume {
        let volume = volume::open(&arguments.source, &arguments.read_options(), &members, name)?;
        let outcome = volume.dump(arguments, &used)?;
        return report::report(arguments, outcome, to_stdout);
    }
    let source = match source::open(&arguments.source, &arguments.read_options(), &members)? {
        Opened::Array(source) => *source,
        Opened::NotExact(text) => {
            say_lines(&text);
            return Ok(Ending::Finding);
        }
    };
    source.notes.iter().for_each(|note| say(format_args!("raidlab: {note}")));
    source.doubts.iter().for_each(|doubt| say(format_args!("raidlab: doubt: {doubt}")));
    let gaps = (!source.copies.is_empty()).then(|| gaps(&source.view, &source.copies));
    gaps.iter().for_each(report::say_gaps);
    if let Some(directory) = &arguments.wanted {
        report::write_wanted(directory, gaps.as_ref())?;
    }
    if !reads {
        return report::only_gaps(arguments, source.name, gaps);
    }
    if arguments.map.is_some() {
        if arguments.output.as_deref().is_some_and(|it| to_stdout || is_stream(it)) {
            bail!("--map: the output is a stream, which cannot be continued; name a file");
        }
        let outcome = Outcome { gaps, ..resumable::copy(arguments, source, &used)? };
        return report::report(arguments, outcome, to_stdout);
    }
    let wanted = arguments.wanted_output(&source.view, &used);
    let mut output = Output::open(arguments.output.as_deref(), arguments.sha256, &wanted)?;
    let outcome = Outcome { gaps, ..copy(arguments, source, &mut output)? };
    report::report(arguments, outcome, to_stdout)
}

fn copy(arguments: &DumpArguments, source: Rescue, output: &mut Output) -> Result<Outcome> {
    let mut outcome = Outcome::of(&source);
    transfer(arguments, &source.view, output, &mut outcome)?;
    outcome.failures = source.view.failures();
    outcome.compared = source.view.comparison();
    outcome.stale = source.view.out_of_date();
    Ok(outcome)
}

/// Reads all of it into the output.
fn transfer(
    arguments: &DumpArguments,
    view: &dyn Readable,
    output: &mut Output,
    outcome: &mut Outcome,
) -> Result<()> {
    let stop = signal::watch()?;
    let sectors = view.sectors();
    let mut meter = Meter::new("read", sectors);
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
    match result {
        Ok(()) => outcome.sha256 = output.finish()?,
        Err(StreamError::System { doing, source }) => return Err(no_resources(&doing, source)),
        Err(StreamError::Consumer(stop)) => outcome.stop = Some(stop),
    }
    Ok(())
}

/// The error of a limit of the system.
fn no_resources(doing: &str, source: std::io::Error) -> anyhow::Error {
    reworded(source, |reason| {
        format!(
            "cannot read the array: cannot {doing}: {reason}; a limit of memory or of processes is \
             reached (ulimit -v, ulimit -u, a cgroup)"
        )
    })
}

fn note_lost(list: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    match list.last_mut().filter(|(_, last)| *last == start) {
        Some((_, last)) => *last = end,
        None => list.push((start, end)),
    }
}
