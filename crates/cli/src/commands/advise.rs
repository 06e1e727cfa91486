//! `raidlab advise`: which arrays suit disks and a mix of workloads.
//!
//! Invariant: every figure is a prediction, an arithmetic bound or a stated assumption, and says
//! which; nothing is measured but by `--verify`, which says so.

mod asked;
mod document;
mod iostat;
mod mix;
mod page;
mod sentence;
mod text;
mod verify;
mod words;

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use predict::advise::{
    Advice, Alternative, Candidate, Change, NamedMix, Outlook, Question, advise, alternatives,
    changes, named_mix, outlook, recommended,
};
use predict::law::{Constants, Work};

use self::verify::{Drives, Verification};
use super::predict::{MachineArguments, fitted, parse_work};
use crate::console::{JsonOut, check_replaceable, is_stdout, replace_record};
use crate::error::of_option;
use crate::size_args::parse_disk_bytes;
use crate::{Ending, signal};

pub use asked::Asked;

const EXAMPLES: &str = "\
Examples:
  raidlab advise --disk 'IronWolf 8 TB*6' --workload file-server
  raidlab advise --disk 'IronWolf 8 TB' --usable 20TB --survive 2       how many disks it takes
  smartctl -i /dev/sda | raidlab advise --smartctl '-*6' --workload vm   six disks like this one
  raidlab advise --members hdd-2016*6 --mix seq-read=30,random-write=70 --price 210
  raidlab advise --members hdd-2020*4 --size 8T,8T,18T,18T      disks of several sizes
  raidlab advise --measured seq-read=540 --measured seq-write=480 --size 1T,1T,1T,1T \\
      --mix seq-read=50,seq-write=50 --json
  raidlab advise --calibration mine.toml --job mail.fio    measured disks, a job file of fio's
  iostat -x 60 2 > now && raidlab advise --members hdd-2016*6 --iostat now:md0
  raidlab advise --members hdd-2009*4 --verify --html advice.html

The fastest array that has what is needed, and loses anything at most once in --years, is
recommended; of those too close to call the one that survives two failures, takes fewer disks, or
holds more. Speeds are predictions of the law
(docs/models), those of a degraded array count disk operations. The order is clear from a predicted
ratio of 1.2 on, probable from 1.1 on, else too close to call.
Mixes of --workload: file-server, virtual-machines, database, mail, backup, media.";

/// Which array to make of given disks: a recommendation and what would change it, the chance of
/// losing anything in a year, and all levels, layouts and chunks ranked for a mix of workloads.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArguments {
    #[command(flatten)]
    machine: MachineArguments,
    /// Capacity of each disk, as shops have it: 8T is 8 x 10^12 bytes, 8TiB is binary [default:
    /// that of the profiles]
    #[arg(long, value_name = "SIZE", value_parser = parse_disk_bytes, value_delimiter = ',')]
    size: Vec<u64>,
    /// Rank arrays that survive the failure of any N disks; 0 ranks RAID 0, too
    #[arg(long, value_name = "N", help_heading = "Needs", default_value = "1",
          value_parser = clap::value_parser!(u32).range(0..=15))]
    survive: u32,
    /// Rank arrays that hold so much; of a disk that is not counted, the fewest of them, up to 24
    #[arg(long, value_name = "SIZE", help_heading = "Needs", value_parser = parse_disk_bytes)]
    usable: Option<u64>,
    /// Recommend an array that loses anything at most once in that time, where there is one
    #[arg(long, value_name = "YEARS", help_heading = "Needs", default_value = "100",
          value_parser = parse_positive)]
    years: f64,
    /// Rank arrays whose disks cost no more, at the price of --price; of a disk that is not counted
    /// as many as it pays, or as --usable takes
    #[arg(long, value_name = "PRICE", help_heading = "Needs", requires = "price",
          value_parser = parse_positive)]
    budget: Option<f64>,
    /// Price of a disk: adds the cost and the cost per TB
    #[arg(long, value_name = "PRICE", help_heading = "Needs", value_parser = parse_positive)]
    price: Option<f64>,
    /// What runs on it, in a word: file-server, virtual-machines, database, mail, backup, media;
    /// the answer says which mix that is
    #[arg(long = "workload", id = "named_mix", value_name = "NAME", help_heading = "Needs",
          value_parser = parse_named, conflicts_with_all = ["mix", "job", "iostat"])]
    named_mix: Option<&'static NamedMix>,
    /// Workloads and their weights [default: equal weights of seq-read, seq-write, random-read,
    /// random-write]
    #[arg(long, value_name = "WORKLOAD=WEIGHT", value_parser = parse_share, value_delimiter = ',')]
    mix: Vec<(Work, f64)>,
    /// The mix is that of a job file of fio's, or of a command line, as a file or in quotes: each
    /// section has the weight 1
    #[arg(long, value_name = "FILE", conflicts_with = "mix")]
    job: Option<PathBuf>,
    /// The mix is that of a running system: what `iostat -x` printed (tables or JSON), as a file,
    /// as - or as FILE:DEVICE; requests of up to 64 KiB that were not merged count as random, an
    /// array's by those of its disks, and each workload weighs the time that one disk would need
    /// for it; the mean queue is the depth. A single report is the mean since the system was
    /// started: of several, the first does not count
    #[arg(long, value_name = "FILE", conflicts_with_all = ["mix", "job"])]
    iostat: Option<String>,
    /// Run the first three on paced members with our own engine, half a minute: its figures in
    /// real and in model time stand beside the law's; requires --members or --calibration
    #[arg(long, conflicts_with_all = ["measured", "facts"])]
    verify: bool,
    /// Failures of a disk in a year, percent [default: published ones of the model, or of its
    /// class]
    #[arg(long, value_name = "PERCENT", help_heading = "Assumptions", value_parser = parse_percent)]
    annual_failures: Option<f64>,
    /// Unrecoverable read errors per bit [default: the sheet's; else 1e-15, of flash 1e-16]
    #[arg(long, value_name = "RATE", help_heading = "Assumptions", value_parser = parse_chance)]
    read_errors: Option<f64>,
    /// Failures while a member is missing, of those at other times [default: 4]
    #[arg(long, value_name = "FACTOR", help_heading = "Assumptions", value_parser = parse_positive)]
    correlation: Option<f64>,
    /// Hours until a failed disk has been replaced [default: 24]
    #[arg(long, value_name = "HOURS", help_heading = "Assumptions", value_parser = parse_positive)]
    replacement: Option<f64>,
    /// Constants of the law to use [default: the built-in ones]
    #[arg(long, value_name = "FILE")]
    constants: Option<PathBuf>,
    /// Write the advice to FILE: one offline HTML page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOut,
}

fn parse_share(text: &str) -> Result<(Work, f64)> {
    let syntax = || anyhow!("a workload and its weight are required, as in seq-read=40");
    let (name, weight) = text.split_once('=').ok_or_else(syntax)?;
    Ok((parse_work(name)?, parse_positive(weight).map_err(|_| syntax())?))
}

fn parse_named(text: &str) -> Result<&'static NamedMix> {
    let names = || predict::advise::NAMED_MIXES.map(|mix| mix.name).join(", ");
    named_mix(text).ok_or_else(|| {
        anyhow!("no such workload; there are {}; --mix takes weights of others", names())
    })
}

fn parse_chance(text: &str) -> Result<f64> {
    let chance = parse_positive(text).ok().filter(|chance| *chance < 1.0);
    chance.ok_or_else(|| anyhow!("a chance is above 0 and below 1, as in 1e-15"))
}

fn parse_positive(text: &str) -> Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number < 1e12 => Ok(number),
        _ => Err(anyhow!("a number above 0 and below 1e12 is required")),
    }
}

fn parse_percent(text: &str) -> Result<f64> {
    let number = parse_positive(text.trim_end_matches('%'))?;
    if number < 100.0 { Ok(number / 100.0) } else { Err(anyhow!("less than 100 percent")) }
}

/// Runs the command.
///
/// # Errors
/// The disks are not described, or the mix has a workload without a figure of one disk.
pub fn run(arguments: &AdviseArguments) -> Result<Ending> {
    check_html(arguments)?;
    let fitted = fitted(arguments.constants.as_deref())?;
    let asked = Asked::of(arguments)?;
    let drives = arguments.verify.then(|| drives(&asked.machine)).transpose()?;
    let question = asked.question();
    let advice = advise(&question, &fitted.constants).map_err(|why| anyhow!("no advice: {why}"))?;
    let verified = match &drives {
        None => None,
        Some(drives) => {
            let stop = signal::watch()?;
            let stopped = || stop.load(Ordering::Relaxed);
            match verify::run(&question, &advice, drives, &stopped)? {
                Some(verified) => Some(verified),
                None => return Ok(Ending::Stopped),
            }
        }
    };
    let answer = Answer {
        arguments,
        asked: &asked,
        question: &question,
        advice: &advice,
        found: Found::of(&asked, &question, &advice, &fitted.constants),
        verified,
    };
    arguments.json.put(&text::text(&answer), || answer.document())?;
    if let Some(path) = &arguments.html {
        let page = report::doc::html(&answer.page());
        replace_record(path, page).map_err(of_option("--html"))?;
    }
    Ok(Ending::Fine)
}

/// What a terabyte of an array costs, where the price of a disk is known.
pub fn cost_per_tb(candidate: &Candidate, question: &Question<'_>) -> Option<f64> {
    let bytes = candidate.capacity.bytes;
    let cost = question.needs.cost(candidate.array.members);
    cost.filter(|_| bytes > 0).map(|cost| cost / (bytes as f64 / 1e12))
}

/// What follows from the ranked arrays.
pub struct Found {
    /// The place of the recommended one.
    pub place: usize,
    /// Others that have what it has not, with their places.
    pub alternatives: Vec<(Alternative, usize)>,
    /// What would change the recommendation.
    pub changes: Vec<Change>,
    /// The chance of losing anything on each array within a year.
    pub outlooks: Vec<Option<Outlook>>,
}

impl Found {
    /// Advises again with other mixes and assumptions.
    pub fn of(
        asked: &Asked,
        question: &Question<'_>,
        advice: &Advice,
        constants: &Constants,
    ) -> Found {
        let place = recommended(advice, &question.needs);
        let chosen = &advice.candidates[place].array;
        let at_depth = |depth| asked.single_at(depth);
        let ranges = &asked.ranges;
        let of = |one: &Candidate| outlook(one, question, ranges);
        Found {
            place,
            alternatives: alternatives(advice, place),
            changes: changes(question, chosen, &at_depth, ranges, constants),
            outlooks: advice.candidates.iter().map(of).collect(),
        }
    }
}

/// All that the outputs show.
struct Answer<'a> {
    arguments: &'a AdviseArguments,
    asked: &'a Asked,
    question: &'a Question<'a>,
    advice: &'a Advice,
    found: Found,
    verified: Option<Verification>,
}

/// Refuses, before anything is computed, a page that cannot be written.
fn check_html(arguments: &AdviseArguments) -> Result<()> {
    let Some(html) = &arguments.html else { return Ok(()) };
    if is_stdout(html) {
        bail!("--html -: the page is written to a file; name one");
    }
    if arguments.json.is(html) {
        bail!("--json and --html: name two files");
    }
    check_replaceable(html, b"<").map_err(of_option("--html"))
}

/// The drives that `--verify` runs on.
fn drives(machine: &MachineArguments) -> Result<Drives> {
    match machine.paced()? {
        Some((members, buses)) => Ok(Drives { members, buses }),
        None => bail!(
            "--verify: the engine runs on modelled drives: --members with a drive profile, or \
             --calibration"
        ),
    }
}
