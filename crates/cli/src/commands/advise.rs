//! `raidlab advise`: which arrays suit disks and a mix of workloads.
//!
//! Invariant: every figure is a prediction, an arithmetic bound or a stated assumption, and says
//! which; nothing is measured but by `--verify`, which says so.

mod iostat;
mod mix;
mod page;
mod verify;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use predict::advise::{Advice, Assumptions, Candidate, Question, Share, advise};
use predict::law::{Constants, Work};
use report::doc::wrap;
use serde_json::{Value, json};
use spec::program::tools::{is_fio_command_line, resolved_fio_job};
use spec::units::{digits, kib};

use self::verify::{Drives, Verification};
use super::predict::{
    Described, MachineArguments, fitted, inputs, level_name, parse_work, read_text,
};
use crate::console::{JsonOut, check_replaceable, columns, is_stdout, replace_record};
use crate::error::of_option;
use crate::size_args::parse_disk_bytes;
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab advise --members hdd-2016*6
  raidlab advise --members hdd-2016*6 --mix seq-read=30,random-write=70 --price 210
  raidlab advise --members hdd-2020*4 --size 8T,8T,18T,18T      disks of several sizes
  raidlab advise --measured seq-read=540 --measured seq-write=480 --size 1T,1T,1T,1T \\
      --mix seq-read=50,seq-write=50 --json
  raidlab advise --calibration mine.toml --job mail.fio    measured disks, a job file of fio's
  iostat -x 60 2 > now && raidlab advise --members hdd-2016*6 --iostat now:md0
  raidlab advise --members hdd-2009*4 --verify --html advice.html

Speeds are predictions of the law (docs/models), those of a degraded array count disk operations.
The order is clear from a predicted ratio of 1.2 on, probable from 1.1 on, else too close to call.
Arrays survive the failure of a disk; --survive 0 ranks RAID 0, too.";

/// Rank levels, layouts and chunks for given disks and a mix of workloads: capacity, healthy and
/// degraded speed, rebuild time, the chance of loss, and how sure the order is.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AdviseArguments {
    #[command(flatten)]
    machine: MachineArguments,
    /// Capacity of each disk, as shops have it: 8T is 8 x 10^12 bytes, 8TiB is binary [default:
    /// that of the profiles]
    #[arg(long, value_name = "SIZE", value_parser = parse_disk_bytes, value_delimiter = ',')]
    size: Vec<u64>,
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
    /// Rank arrays that survive the failure of any N disks; 0 ranks RAID 0, too
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(0..=15))]
    survive: u32,
    /// Price of a disk: adds the cost and the cost per TB
    #[arg(long, value_name = "PRICE", value_parser = parse_positive)]
    price: Option<f64>,
    /// Failures of a disk in a year, percent [default: 1.5, of flash 1]
    #[arg(long, value_name = "PERCENT", help_heading = "Assumptions", value_parser = parse_percent)]
    annual_failures: Option<f64>,
    /// Unrecoverable read errors per bit [default: 1e-15, of flash 1e-16]
    #[arg(long, value_name = "RATE", help_heading = "Assumptions", value_parser = parse_positive)]
    read_errors: Option<f64>,
    /// Failures while a member is missing, of those at other times
    #[arg(long, value_name = "FACTOR", help_heading = "Assumptions", default_value = "4",
          value_parser = parse_positive)]
    correlation: f64,
    /// Hours until a failed disk has been replaced
    #[arg(long, value_name = "HOURS", help_heading = "Assumptions", default_value = "24",
          value_parser = parse_positive)]
    replacement: f64,
    /// Constants of the law to use [default: those of the published tables]
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
    let all = Answer {
        arguments,
        described: &asked.described,
        depth_from: asked.depth_from,
        question: &question,
        advice: &advice,
        verified,
    };
    arguments.json.put(&text(&all), || all.document())?;
    if let Some(path) = &arguments.html {
        let page = report::doc::html(&all.page());
        replace_record(path, page).map_err(of_option("--html"))?;
    }
    Ok(Ending::Fine)
}

/// What advice is for, as the options say.
pub struct Asked {
    /// With the depth and the jobs of a job file or of iostat's figures.
    machine: MachineArguments,
    described: Described,
    bytes: Vec<u64>,
    mix: Vec<Share>,
    survive: u32,
    /// `None`: the mix has no random requests.
    depth_from: Option<DepthFrom>,
    assumptions: Assumptions,
}

impl Asked {
    /// Reads what the options name.
    ///
    /// # Errors
    /// The disks are not described, or the mix has a workload without a figure of one disk.
    pub fn of(arguments: &AdviseArguments) -> Result<Asked> {
        let of_jobs = arguments.job.as_deref().map(jobs).transpose()?;
        let load = arguments.iostat.as_deref().map(load).transpose()?;
        let mut machine = arguments.machine.clone();
        let depth_from = depth_from(&mut machine, of_jobs.as_ref(), load.as_ref())?;
        let mut described = machine.described()?;
        let bytes = sizes(arguments, &described)?;
        if load.as_ref().is_some_and(|load| load.is_single) {
            described.assumed.push(
                "the mix is the mean since the system was started, unless iostat had -y: \
                 --iostat has a single report"
                    .to_string(),
            );
        }
        let usual = Assumptions::usual(&described.question.machine);
        let assumptions = Assumptions {
            annual_failure_rate: arguments.annual_failures.unwrap_or(usual.annual_failure_rate),
            errors_per_bit: arguments.read_errors.unwrap_or(usual.errors_per_bit),
            correlation: arguments.correlation,
            replacement_h: arguments.replacement,
        };
        let is_usual = arguments.mix.is_empty() && of_jobs.is_none() && load.is_none();
        let mix = match (of_jobs, load) {
            (Some(found), _) => {
                described.assumed.extend(found.notes);
                found.mix
            }
            (None, Some(load)) => {
                described.assumed.extend(load.notes);
                mix::of_flows(&load.flows, &described.question.single)?
            }
            (None, None) => mix(arguments, &described)?,
        };
        let survive = arguments.survive;
        let mut asked =
            Asked { machine, described, bytes, mix, survive, depth_from: None, assumptions };
        if is_usual {
            asked.leave_out_what_is_outside()?;
        }
        let Asked { mix, described, .. } = &mut asked;
        let is_random = |share: &Share| matches!(share.work, Work::RandomRead | Work::RandomWrite);
        let in_flight = described.question.depth * described.question.jobs;
        let depth_from = mix.iter().any(is_random).then_some(depth_from);
        if depth_from == Some(DepthFrom::Nothing) {
            described.assumed.push(format!("random requests: {in_flight} in flight (--depth)"));
        }
        asked.depth_from = depth_from;
        Ok(asked)
    }

    /// Of the usual mix, workloads for which no array has a figure are left out, and named.
    fn leave_out_what_is_outside(&mut self) -> Result<()> {
        let constants = Constants::published();
        let mut reasons = Vec::new();
        for share in std::mem::take(&mut self.mix) {
            let alone = [share];
            let question = Question { mix: &alone, ..self.question() };
            match advise(&question, &constants) {
                Ok(_) => self.mix.push(share),
                Err(why) => reasons.push((share.work, why)),
            }
        }
        if self.mix.is_empty() {
            let first = reasons.first().map_or(String::new(), |(_, why)| format!(": {why}"));
            bail!("no advice: every workload of the usual mix is outside the law{first}");
        }
        for (work, why) in reasons {
            let name = work.option_name();
            self.described.assumed.push(format!("the mix has no {name}, which is outside: {why}"));
        }
        Ok(())
    }

    /// What the law is given.
    pub fn question(&self) -> Question<'_> {
        Question {
            machine: &self.described.question.machine,
            single: &self.described.question.single,
            bytes: &self.bytes,
            mix: &self.mix,
            write_back: self.described.question.write_back,
            depth: self.described.question.depth * self.described.question.jobs,
            jobs: self.described.question.jobs,
            survive: self.survive,
            assumptions: self.assumptions,
        }
    }
}

impl AdviseArguments {
    /// What the disks cost together, at the price of `--price`.
    pub fn cost(&self, disks: usize) -> Option<f64> {
        self.price.map(|price| price * disks as f64)
    }
}

/// What a terabyte of an array costs, of disks that cost so much together.
pub fn cost_per_tb(candidate: &Candidate, cost: Option<f64>) -> Option<f64> {
    let bytes = candidate.capacity.bytes;
    cost.filter(|_| bytes > 0).map(|cost| cost / (bytes as f64 / 1e12))
}

/// All that the outputs show.
struct Answer<'a> {
    arguments: &'a AdviseArguments,
    described: &'a Described,
    /// `None`: the mix has no random requests.
    depth_from: Option<DepthFrom>,
    question: &'a Question<'a>,
    advice: &'a Advice,
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
    check_replaceable(html).map_err(of_option("--html"))
}

fn jobs(path: &Path) -> Result<mix::OfJobs> {
    let given = path.display().to_string();
    let (name, text) = match is_fio_command_line(&given) && !path.exists() {
        true => ("fio", given),
        false => (given.as_str(), read_text(path)?),
    };
    let text = resolved_fio_job(name, &text, &|name| std::env::var(name).ok())?;
    mix::of_jobs(name, &text)
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

/// What the depth of random requests was taken from.
#[derive(Clone, Copy, PartialEq)]
enum DepthFrom {
    Option,
    Job,
    Iostat,
    Nothing,
}

impl DepthFrom {
    /// `--depth`, `--job`, `--iostat`, `assumed`.
    const fn name(self) -> &'static str {
        match self {
            DepthFrom::Option => "--depth",
            DepthFrom::Job => "--job",
            DepthFrom::Iostat => "--iostat",
            DepthFrom::Nothing => "assumed",
        }
    }
}

/// Fills in the depth and the jobs that no option gives, and says where the depth is from.
fn depth_from(
    machine: &mut MachineArguments,
    of_jobs: Option<&mix::OfJobs>,
    load: Option<&iostat::Load>,
) -> Result<DepthFrom> {
    if let Some(found) = of_jobs {
        machine.jobs = machine.jobs.or(Some(found.jobs));
    }
    if machine.depth.is_some() {
        return Ok(DepthFrom::Option);
    }
    if let Some(depth) = of_jobs.and_then(|found| found.depth) {
        machine.depth = Some(depth);
        return Ok(DepthFrom::Job);
    }
    if let Some(in_flight) = load.and_then(|load| load.in_flight) {
        // The queue is that of all jobs.
        let jobs = f64::from(machine.jobs.unwrap_or(1));
        let each = (in_flight / jobs).round().clamp(1.0, 65535.0);
        if jobs > 1.0 && (each * jobs - in_flight).abs() > 0.5 {
            bail!(
                "--iostat: {in_flight} requests are in flight, which {jobs} jobs do not divide \
                 into whole depths: name --depth"
            );
        }
        machine.depth = Some(each as u32);
        return Ok(DepthFrom::Iostat);
    }
    Ok(DepthFrom::Nothing)
}

/// The load of `FILE`, or of `FILE:DEVICE`.
fn load(text: &str) -> Result<iostat::Load> {
    let split = text.rsplit_once(':').filter(|_| !Path::new(text).exists());
    let (path, device) = split.map_or((text, None), |(path, device)| (path, Some(device)));
    iostat::load(&read_text(path.as_ref())?, device)
        .map_err(of_option(&format!("--iostat {path}:")))
}

fn sizes(arguments: &AdviseArguments, described: &Described) -> Result<Vec<u64>> {
    let bytes = match (arguments.size.is_empty(), described.count) {
        (false, Some(count)) if arguments.size.len() != count as usize => {
            bail!("--size: {} sizes for {count} disks", arguments.size.len())
        }
        (false, _) => arguments.size.clone(),
        (true, Some(_)) => described.bytes.clone(),
        (true, None) => {
            bail!("the disks are not counted: name them as in --members hdd-2016*4, or each --size")
        }
    };
    let sum = bytes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size));
    if sum.is_none() {
        bail!("--size: together the disks have more than 2^64 bytes");
    }
    match bytes.len() {
        0..2 => bail!("an array needs two disks or more"),
        2..=1920 => Ok(bytes),
        count => bail!("{count} disks: the most is 1920"),
    }
}

fn mix(arguments: &AdviseArguments, described: &Described) -> Result<Vec<Share>> {
    let usual = [Work::Read, Work::Write, Work::RandomRead, Work::RandomWrite];
    let known = |work: &Work| described.question.single.get(*work).is_some();
    let mix: Vec<Share> = match arguments.mix.is_empty() {
        true => usual.into_iter().filter(known).map(|work| Share { work, weight: 1.0 }).collect(),
        false => arguments.mix.iter().map(|&(work, weight)| Share { work, weight }).collect(),
    };
    if mix.is_empty() {
        bail!("no figure of one disk is known: --measured, or --members with a drive profile");
    }
    Ok(mix)
}

fn terabytes(bytes: u64) -> String {
    format!("{} TB", digits(bytes as f64 / 1e12))
}

fn chance(probability: f64) -> String {
    match probability * 100.0 {
        percent if percent >= 99.995 => "100 %".to_string(),
        percent if percent >= 0.01 => format!("{} %", digits(percent)),
        0.0 => "0".to_string(),
        percent => format!("{percent:.0e} %"),
    }
}

fn array_name(candidate: &Candidate) -> String {
    let array = &candidate.array;
    match array.level.has_chunks() {
        true => format!("{}, {}", level_name(array), kib(array.chunk_kib)),
        false => level_name(array),
    }
}

impl Answer<'_> {
    fn document(&self) -> Value {
        let Answer { arguments, described, depth_from, question, advice, verified } = self;
        let mut document = document(arguments, described, question, advice);
        document["depth_from"] = json!(depth_from.map(DepthFrom::name));
        document["verified"] = verified.as_ref().map_or(Value::Null, Verification::document);
        document
    }
}

/// The mix in words: `seq-read 30 %, random-write 70 %`.
fn mix_in_words(question: &Question<'_>) -> String {
    let total: f64 = question.mix.iter().map(|share| share.weight).sum();
    let mix = question.mix.iter().map(|share| {
        let percent = 100.0 * share.weight / total;
        format!("{} {percent:.0} %", share.work.option_name())
    });
    mix.collect::<Vec<_>>().join(", ")
}

const HEADS: [&str; 8] = [
    "array",
    "capacity",
    "x one disk",
    "behind the best",
    "may fail",
    "rebuild",
    "unreadable",
    "lost in a year",
];

/// A line of each candidate, below [`HEADS`].
fn ranked(all: &[Candidate]) -> impl Iterator<Item = [String; 8]> {
    all.iter().enumerate().map(|(place, candidate)| {
        let risk = &candidate.risk;
        [
            array_name(candidate),
            terabytes(candidate.capacity.bytes),
            format!("{:.2}", candidate.score),
            if place == 0 { "best".into() } else { candidate.confidence.name().to_string() },
            risk.tolerates.to_string(),
            risk.rebuild.map_or("-".into(), |rebuild| format!("{} h", digits(rebuild.hours))),
            risk.rebuild.map_or("-".into(), |rebuild| chance(rebuild.unreadable)),
            risk.loss_in_year.map_or("-".into(), chance),
        ]
    })
}

/// What one more failure loses: `any member`.
fn second_failure(candidate: &Candidate) -> Option<String> {
    Some(match candidate.risk.rebuild?.second_failure {
        0.0 => "no member".to_string(),
        all if all >= 1.0 => "any member".to_string(),
        part => format!("{} of the members", chance(part)),
    })
}

fn text(answer: &Answer<'_>) -> String {
    let Answer { arguments, described, question, advice, verified, .. } = answer;
    let all = &advice.candidates;
    let mut out = format!(
        "{} disks ({}), {}; mix: {}\n\n",
        question.bytes.len(),
        described.disks,
        described.fs,
        mix_in_words(question),
    );
    out += &columns(HEADS, ranked(all), &[1, 2, 4, 5, 6, 7]);
    out += "\nHealthy, and with one member missing:\n";
    for candidate in all {
        let speeds = candidate.speeds.iter().map(|speed| {
            let degraded = speed.degraded.map_or("lost".to_string(), digits);
            format!(
                "{} {} / {degraded} {}",
                speed.work.option_name(),
                digits(speed.healthy),
                speed.work.unit(),
            )
        });
        let speeds = speeds.collect::<Vec<_>>().join("; ");
        out += &format!("  {}: {speeds}\n", array_name(candidate));
    }
    out += "\nWhile a member is missing, the array is lost with:\n";
    for candidate in all {
        let Some(second) = second_failure(candidate) else { continue };
        out += &format!("  {}: {second}\n", level_name(&candidate.array));
    }
    out += &verified.as_ref().map_or(String::new(), Verification::text);
    if let Some(line) = no_rebuild(advice) {
        out += &format!("\n{line}\n");
    }
    let left = left_out(advice);
    if !left.is_empty() {
        out += &format!("\nLeft out: {}\n", left.join("\nLeft out: "));
    }
    out += &stacked(all);
    if let Some(cost) = arguments.cost(question.bytes.len()) {
        out += &format!("\nCost: {}", digits(cost));
        for candidate in all.iter().filter(|candidate| candidate.capacity.bytes > 0) {
            let per_tb = cost / (candidate.capacity.bytes as f64 / 1e12);
            out += &format!("; {} {} a TB", level_name(&candidate.array), digits(per_tb));
        }
        out += "\n";
    }
    out += "\n";
    for note in assumed(answer) {
        for line in wrap(&note, WIDTH) {
            out += &format!("{line}\n");
        }
    }
    out
}

/// Columns of what is no table.
const WIDTH: usize = 100;

/// What was assumed, and where figures of one disk and the depth come from: whole sentences.
fn assumed(answer: &Answer<'_>) -> Vec<String> {
    let Answer { described, depth_from, question, .. } = answer;
    let assumed = question.assumptions;
    let mut lines = vec![
        format!(
            "Assumed: {} of the disks fail in a year, {} times as often while a member is missing; \
             {:e} read errors a bit (unreadable: a sector without a copy, in the rebuild); {} h \
             until the replacement; rebuilds without other load.",
            chance(assumed.annual_failure_rate),
            digits(assumed.correlation),
            assumed.errors_per_bit,
            digits(assumed.replacement_h),
        ),
        "Degraded speeds count disk operations: no published table has them.".to_string(),
    ];
    for assumption in &described.assumed {
        lines.push(format!("Assumed: {assumption}."));
    }
    if let Some(given) = depth_from.filter(|from| *from != DepthFrom::Nothing) {
        let (depth, from) = (question.depth, given.name());
        lines.push(format!("Random requests: {depth} in flight ({from})."));
    }
    let inputs = question.mix.iter().filter_map(|share| {
        let value = described.question.single.get(share.work)?;
        let (name, rate) = (share.work.option_name(), digits(value.rate));
        Some(format!("{name} {rate} {} ({})", share.work.unit(), value.source.name()))
    });
    let inputs = inputs.collect::<Vec<_>>().join(", ");
    if !inputs.is_empty() {
        lines.push(format!("One disk: {inputs}."));
    }
    lines
}

/// Why arrays with redundancy have no rebuild time and no chance of loss.
fn no_rebuild(advice: &Advice) -> Option<String> {
    let why = advice.candidates.iter().find_map(|one| one.risk.rate_unknown)?;
    Some(format!("No rebuild time and no chance of loss: {why}."))
}

/// The levels and layouts without advice, by reason.
fn left_out(advice: &Advice) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for one in &advice.left_out {
        let (why, name) = (one.why.to_string(), level_name(&one.array));
        match reasons.iter_mut().find(|(reason, _)| *reason == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.into_iter().map(|(why, names)| format!("{}: {why}", names.join(", "))).collect()
}

/// What stacking arrays by size would give, where disks differ.
fn stacked(all: &[Candidate]) -> String {
    let more = all.iter().filter(|one| one.capacity.stacked > one.capacity.bytes);
    let lines = more
        .map(|one| format!("  {}: {}\n", level_name(&one.array), terabytes(one.capacity.stacked)));
    let lines = lines.collect::<String>();
    match lines.is_empty() {
        true => lines,
        false => {
            format!("\nStacked by size, an array over the disks that still have room:\n{lines}")
        }
    }
}

fn document(
    arguments: &AdviseArguments,
    described: &Described,
    question: &Question<'_>,
    advice: &Advice,
) -> Value {
    let assumed = question.assumptions;
    let cost = arguments.cost(question.bytes.len());
    let speed = |speed: &predict::advise::Speed| {
        json!({"workload": speed.work.name(), "unit": speed.work.unit(),
               "healthy": speed.healthy, "degraded": speed.degraded})
    };
    let candidate = |one: &Candidate| {
        json!({
            "level": one.array.level.name(),
            "array": level_name(&one.array),
            "chunk_kib": one.array.level.has_chunks().then_some(one.array.chunk_kib),
            "capacity_bytes": one.capacity.bytes,
            "stacked_bytes": one.capacity.stacked,
            "score": one.score,
            "confidence": one.confidence.name(),
            "speeds": one.speeds.iter().map(speed).collect::<Vec<_>>(),
            "tolerates": one.risk.tolerates,
            "rebuild_hours": one.risk.rebuild.map(|rebuild| rebuild.hours),
            "loss_in_rebuild": one.risk.rebuild.map(|rebuild| rebuild.loss),
            "unreadable_in_rebuild": one.risk.rebuild.map(|rebuild| rebuild.unreadable),
            "second_failure_loses": one.risk.rebuild.map(|rebuild| rebuild.second_failure),
            "no_rebuild": one.risk.why_no_rebuild(),
            "loss_in_year": one.risk.loss_in_year,
            "cost_per_tb": cost_per_tb(one, cost),
        })
    };
    json!({
        "disks": question.bytes.len(),
        "cost": cost,
        "mix": question.mix.iter()
            .map(|share| json!({"workload": share.work.name(), "weight": share.weight}))
            .collect::<Vec<_>>(),
        "depth": question.depth,
        "jobs": question.jobs,
        "survive": question.survive,
        "inputs": inputs(described),
        "assumptions": {
            "annual_failure_rate": assumed.annual_failure_rate,
            "errors_per_bit": assumed.errors_per_bit,
            "correlation": assumed.correlation,
            "replacement_hours": assumed.replacement_h,
            "machine": described.assumed,
        },
        "candidates": advice.candidates.iter().map(candidate).collect::<Vec<_>>(),
        "left_out": advice.left_out.iter().map(|one| json!({
            "level": one.array.level.name(),
            "array": level_name(&one.array),
            "why": one.why.to_string(),
        })).collect::<Vec<_>>(),
    })
}
