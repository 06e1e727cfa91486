//! `raidlab guess`: the geometry of an array from the contents of its members.
//!
//! Invariant: members are opened read-only; nothing is written but the JSON. The exit code is 0
//! only for an exact answer.

mod json;
mod text;

use std::ffi::OsString;
use std::time::Instant;

use admin::{GuessOptions, GuessReport, Members, guess_geometry};
use anyhow::{Result, bail};
use clap::Args;
use guess::{Judgement, Known};
use md::{Level, SECTOR_BYTES};
use serde_json::Value;

use crate::Ending;
use crate::console::{JsonOut, say, value_of};
use crate::members::{Used, is_missing};
use crate::size_args::{parse_bytes, parse_layout, parse_level, parse_sectors};

use json::GuessDocument;
pub use text::{summary, text};

const EXAMPLES: &str = "\
Examples:
  raidlab guess *.img                           the geometry, with what speaks for it
  raidlab guess *.img --json                    the same for programs
  raidlab guess a.img b.img --level 5           what is known narrows the search
  raidlab guess *.img --thorough                read more, compare all of the redundancy
  raidlab dump *.img --guess -o array.img       guess, then dump the array that was found

The order of the members has no influence. Superblocks are only hypotheses here: what they say is
compared with the contents. Sizes of --chunk and --data-offset are KiB, or have a unit. Exit status:
0 if the geometry is exact, 1 if several are possible or none was found, 2 if the members cannot be
read.";

/// Find the geometry of an array from the contents of its members: level, layout, chunk, order,
/// data offset; missing, stale and foreign members.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct GuessArguments {
    /// Image files, partitions or disks; PATH@OFFSET or PATH@OFFSET+SIZE for a part of one
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<OsString>,
    #[command(flatten)]
    effort: Effort,
    #[command(flatten)]
    known: KnownArguments,
    #[command(flatten)]
    json: JsonOut,
}

/// How much is read.
#[derive(Args, Clone)]
pub struct Effort {
    /// Read more, and compare all of the redundancy before an answer is called exact
    #[arg(long)]
    pub thorough: bool,
    /// Most bytes that are read of each member [default: 256M, with --thorough 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub budget: Option<u64>,
}

/// What is known of the array.
#[derive(Args, Clone)]
pub struct KnownArguments {
    /// RAID level
    #[arg(long, value_parser = parse_level, help_heading = "What is known")]
    level: Option<Level>,
    /// Layout, by md's name or number; needs --level
    #[arg(long, requires = "level", help_heading = "What is known")]
    layout: Option<String>,
    /// Chunk size
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "What is known")]
    chunk: Option<u64>,
    /// Data offset of the members
    #[arg(long, value_name = "SIZE", value_parser = parse_sectors, help_heading = "What is known")]
    data_offset: Option<u64>,
    /// Number of slots
    #[arg(long, value_name = "N", help_heading = "What is known")]
    raid_devices: Option<u16>,
}

impl KnownArguments {
    fn known(&self) -> Result<Known> {
        let layout = match (self.level, &self.layout) {
            (Some(level), Some(layout)) => Some(parse_layout(level, layout)?),
            _ => None,
        };
        if self.chunk == Some(0) {
            bail!("--chunk 0: a chunk has at least 4K");
        }
        Ok(Known {
            level: self.level,
            layout,
            chunk: self.chunk.map(|sectors| sectors * SECTOR_BYTES),
            data_offset: self.data_offset.map(|sectors| sectors * SECTOR_BYTES),
            raid_devices: self.raid_devices.map(usize::from),
        })
    }
}

/// A search that ended, with the seconds that it took.
pub struct Searched {
    /// What was found.
    pub report: GuessReport,
    /// How long it took.
    pub seconds: f64,
}

impl Effort {
    /// Bytes that may be read of each member.
    fn budget(&self) -> u64 {
        self.budget.unwrap_or(if self.thorough { 1 << 30 } else { 256 << 20 })
    }
}

/// Searches the members that were opened, until `stopped` says so.
pub fn search(
    members: &Members,
    effort: &Effort,
    known: Known,
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<Searched> {
    let started = Instant::now();
    let options = GuessOptions { known, thorough: effort.thorough, budget: effort.budget() };
    let mut last = Instant::now();
    let mut show = |what: &str| {
        // Short searches say nothing.
        if started.elapsed().as_secs() >= 2 && last.elapsed().as_secs() >= 1 {
            say(format_args!("raidlab: {what} ({} s)", started.elapsed().as_secs()));
            last = Instant::now();
        }
    };
    let report = guess_geometry(members, &options, &mut show, stopped)?;
    Ok(Searched { report, seconds: started.elapsed().as_secs_f64() })
}

/// Opens the members, and searches them until `stopped` says so.
fn searched(arguments: &GuessArguments, stopped: &(dyn Fn() -> bool + Sync)) -> Result<Searched> {
    if arguments.members.iter().any(|member| is_missing(member)) {
        bail!("'missing' is for dump; leave out what is missing, it is found");
    }
    arguments.json.refuse_overlap(&Used::members(&arguments.members))?;
    let members = Members::open_as_named(&arguments.members, None)?;
    search(&members, &arguments.effort, arguments.known.known()?, stopped)
}

/// The JSON of the verb.
pub fn document(arguments: &GuessArguments, stopped: &(dyn Fn() -> bool + Sync)) -> Result<Value> {
    Ok(value_of(&GuessDocument::of(&searched(arguments, stopped)?)))
}

/// Runs the command.
pub fn run(arguments: &GuessArguments) -> Result<Ending> {
    let searched = searched(arguments, &|| false)?;
    arguments.json.put(&text(&searched), || GuessDocument::of(&searched))?;
    Ok(match searched.report.answer.verdict {
        Judgement::Exact => Ending::Fine,
        Judgement::Ambiguous | Judgement::None => Ending::Finding,
    })
}
