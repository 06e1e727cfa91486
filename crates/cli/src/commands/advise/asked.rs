//! What advice is for, as the options say: machine, disks, mix, needs, assumptions.
//!
//! Invariant: every input keeps its source, and what was assumed is listed.

use std::path::Path;

use anyhow::{Result, bail};
use predict::advise::{Assumptions, Count, Needs, NoAdvice, Question, Ranges, Share, advise};
use predict::disks::{Disk, FailureRate, failure_rate};
use predict::law::{Constants, Single, WhyNot, Work};
use spec::program::tools::{is_fio_command_line, resolved_fio_job};

use super::{AdviseArguments, iostat, mix};
use crate::commands::predict::{Described, MachineArguments, read_text};
use crate::error::of_option;

/// What advice is for, as the options say.
pub struct Asked {
    /// With the depth and the jobs of a job file or of iostat's figures.
    pub machine: MachineArguments,
    /// What the options describe.
    pub described: Described,
    bytes: Vec<u64>,
    mix: Vec<Share>,
    /// What must be.
    pub needs: Needs,
    /// `None`: the mix has no random requests.
    pub depth_from: Option<DepthFrom>,
    assumptions: Assumptions,
    /// How often its disks fail, by whom.
    pub failures: FailureRate,
    /// Where the assumptions may lie.
    pub ranges: Ranges,
}

/// Disks that are tried, at most, where their number is to be found.
const DISKS_MAX: usize = 24;

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
        let (bytes, count) = sizes(arguments, &described)?;
        if load.as_ref().is_some_and(|load| load.is_single) {
            described.assumed.push(
                "the mix is the mean since the system was started, unless iostat had -y: \
                 --iostat has a single report"
                    .to_string(),
            );
        }
        let failures = failures(arguments, &described);
        let assumptions = assumptions(arguments, &described, &failures);
        let ranges = ranges(arguments, &assumptions, &failures);
        let is_usual = arguments.mix.is_empty() && of_jobs.is_none() && load.is_none();
        let sections = of_jobs.as_ref().map(|found| found.sections.clone());
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
        for (work, _) in arguments.named_mix.map_or(&[][..], |named| named.mix) {
            if mix.iter().all(|share| share.work != *work) {
                let name = work.option_name();
                described
                    .assumed
                    .push(format!("the mix has no {name}: no figure of one disk is known"));
            }
        }
        let AdviseArguments { survive, usable, budget, price, years, .. } = *arguments;
        let needs = Needs { survive, usable, budget, price, count, years };
        let depth = None;
        let mut asked = Asked {
            machine,
            described,
            bytes,
            mix,
            needs,
            depth_from: depth,
            assumptions,
            failures,
            ranges,
        };
        if is_usual || sections.is_some() {
            asked.leave_out_what_is_outside(sections.as_deref())?;
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

    /// Of the usual mix, or of the sections of a job, workloads for which no array has a figure are
    /// left out, and named.
    fn leave_out_what_is_outside(&mut self, sections: Option<&[(Work, String)]>) -> Result<()> {
        let constants = Constants::built_in();
        let mut reasons = Vec::new();
        for share in std::mem::take(&mut self.mix) {
            let alone = [share];
            let question = Question { mix: &alone, ..self.question() };
            match advise(&question, &constants) {
                Err(NoAdvice::Law(why)) => reasons.push((share.work, why)),
                Ok(_) | Err(NoAdvice::Needs(_)) => self.mix.push(share),
            }
        }
        if self.mix.is_empty() {
            let why = |(_, why): &(Work, WhyNot)| format!(": {why}{}", remedy(*why));
            let first = reasons.first().map_or(String::new(), why);
            let of = if sections.is_some() { "the job" } else { "the usual mix" };
            bail!("no advice: every workload of {of} is outside the law{first}");
        }
        for (work, why) in reasons {
            let of = |sections: &[(Work, String)]| {
                sections.iter().find(|(of, _)| *of == work).map(|(_, names)| names.clone())
            };
            self.described.assumed.push(match sections.and_then(of) {
                Some(names) => format!("left out: {names}: {why}{}", remedy(why)),
                None => {
                    format!("the mix has no {}, which is outside: {why}", work.option_name())
                }
            });
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
            area_bytes: self.described.question.area_bytes,
            jobs: self.described.question.jobs,
            needs: self.needs,
            assumptions: self.assumptions,
        }
    }

    /// One disk with N random requests in flight, of all jobs; `None`: its figures are of one
    /// depth, or jobs do not divide it, or what describes it was read from stdin.
    pub fn single_at(&self, depth: f64) -> Option<Single> {
        let each = depth / self.described.question.jobs;
        let is_random = |(work, _): &(Work, f64)| {
            matches!(work, Work::RandomRead | Work::RandomWrite | Work::Seeks)
        };
        let of_one_depth =
            self.machine.reads_stdin() || self.machine.measured.iter().any(is_random);
        if each < 1.0 || each.fract() != 0.0 || of_one_depth {
            return None;
        }
        let depth = Some(each as u32);
        let machine = MachineArguments { depth, ..self.machine.clone() };
        machine.described().ok().map(|described| described.question.single)
    }
}

/// The option that gives a figure of one disk that is lacking.
fn remedy(why: WhyNot) -> String {
    match why {
        WhyNot::NoSingle(work) => format!("; --measured {}=RATE states it", work.option_name()),
        _ => String::new(),
    }
}

/// How often the disks fail in a year: as stated, by model, by class.
fn failures(arguments: &AdviseArguments, described: &Described) -> FailureRate {
    if let Some(annual) = arguments.annual_failures {
        return FailureRate::stated(annual);
    }
    let of_disk =
        |(disk, count): &(Disk, u32)| (failure_rate(Some(disk), disk.kind.is_flash()), *count);
    let parts: Vec<(FailureRate, u32)> = described.bought.iter().map(of_disk).collect();
    let is_flash = described.question.machine.media.is_flash();
    FailureRate::of_set(&parts).unwrap_or_else(|| failure_rate(None, is_flash))
}

fn assumptions(
    arguments: &AdviseArguments,
    described: &Described,
    failures: &FailureRate,
) -> Assumptions {
    let usual = Assumptions::usual(&described.question.machine);
    let of_sheets = described.bought.iter().filter_map(|(disk, _)| disk.errors_per_bit);
    let of_sheets = of_sheets.reduce(f64::max);
    Assumptions {
        annual_failure_rate: failures.annual,
        errors_per_bit: arguments.read_errors.or(of_sheets).unwrap_or(usual.errors_per_bit),
        correlation: arguments.correlation.unwrap_or(usual.correlation),
        replacement_h: arguments.replacement.unwrap_or(usual.replacement_h),
    }
}

/// Where the assumptions may lie: what is stated lies there.
fn ranges(arguments: &AdviseArguments, assumed: &Assumptions, failures: &FailureRate) -> Ranges {
    let mut ranges = Ranges::usual(assumed, failures);
    if let Some(rate) = arguments.read_errors {
        ranges.errors_per_bit = (rate, rate);
    }
    if let Some(factor) = arguments.correlation {
        ranges.correlation = (factor, factor);
    }
    if let Some(hours) = arguments.replacement {
        ranges.replacement_h = (hours, hours);
    }
    ranges
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

/// What the depth of random requests was taken from.
#[derive(Clone, Copy, PartialEq)]
pub enum DepthFrom {
    /// `--depth`.
    Option,
    /// A job file.
    Job,
    /// A running system.
    Iostat,
    /// It is assumed.
    Nothing,
}

impl DepthFrom {
    /// `--depth`, `--job`, `--iostat`, `assumed`.
    pub const fn name(self) -> &'static str {
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

/// The sizes of the disks, and whether they are all that there are.
fn sizes(arguments: &AdviseArguments, described: &Described) -> Result<(Vec<u64>, Count)> {
    let (is_found, given) = (described.count.is_none(), &arguments.size);
    let size = match (&given[..], &described.bytes[..]) {
        ([size], _) | ([], [size]) if is_found => Some(*size),
        _ => None,
    };
    if let Some(size) = size {
        let count = match (arguments.usable, arguments.budget) {
            (Some(_), _) => Some(Count::Fewest),
            (None, Some(_)) => Some(Count::Affordable),
            (None, None) => None,
        };
        if let Some(count) = count {
            return Ok((vec![size; DISKS_MAX], count));
        }
    }
    let bytes = match (given.is_empty(), described.count) {
        // One size is that of each.
        (false, Some(count)) if given.len() == 1 => vec![given[0]; count as usize],
        (false, Some(count)) if given.len() != count as usize => {
            bail!("--size: {} sizes for {count} disks", given.len())
        }
        (false, _) => given.clone(),
        (true, Some(_)) => described.bytes.clone(),
        (true, None) => bail!(
            "the disks are not counted: name their number as in {}*4, or each --size; or what is \
             needed, --usable or --budget with --price",
            described.disks
        ),
    };
    let sum = bytes.iter().try_fold(0u64, |sum, size| sum.checked_add(*size));
    if sum.is_none() {
        bail!("--size: together the disks have more than 2^64 bytes");
    }
    match bytes.len() {
        0..2 => bail!("an array needs two disks or more"),
        2..=1920 => Ok((bytes, Count::Given)),
        count => bail!("{count} disks: the most is 1920"),
    }
}

fn mix(arguments: &AdviseArguments, described: &Described) -> Result<Vec<Share>> {
    let usual = [Work::Read, Work::Write, Work::RandomRead, Work::RandomWrite];
    let known = |work: &Work| described.question.single.get(*work).is_some();
    let mix: Vec<Share> = match (arguments.named_mix, arguments.mix.is_empty()) {
        (Some(named), _) => {
            let of_one = |(work, weight): &(Work, f64)| Share { work: *work, weight: *weight };
            named.mix.iter().filter(|(work, _)| known(work)).map(of_one).collect()
        }
        (None, true) => {
            usual.into_iter().filter(known).map(|work| Share { work, weight: 1.0 }).collect()
        }
        (None, false) => {
            arguments.mix.iter().map(|&(work, weight)| Share { work, weight }).collect()
        }
    };
    if mix.is_empty() {
        bail!("no figure of one disk is known: --measured, or --members with a drive profile");
    }
    Ok(mix)
}
