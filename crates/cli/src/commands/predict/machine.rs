//! The machine of a prediction: drive profiles, measured figures, facts of a file.
//!
//! Invariant: every input keeps its source, and what was assumed is listed. Shared by `predict` and
//! `advise`.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::Args;
use drive::Profile;
use predict::diagnose::{ignored_facts, rate_of};
use predict::disks::Disk;
use predict::law::{
    Array, Bus, FILE_BYTES, Kernel, Machine, Sheet, Single, Source, WhyNot, Work, WriteBack,
};
use predict::pasted::Pasted;
use predict::question::{CURRENT_KERNEL, Question};
use predict::tables::{Facts, file_system, usual_media, workload, write_back};
use serde_json::Value;
use spec::buses::Buses;
use spec::members::MemberSet;
use spec::units::QuantityError;

use super::calibrated::Calibrated;
use super::read_text;
use super::shop::{Bought, counted};
use crate::error::Context;

/// Options that describe the machine.
#[derive(Args, Clone)]
pub struct MachineArguments {
    /// The disks: names of drive profiles as in hdd-2016, counted as in hdd-2009*3+hdd-2016*2, or
    /// FILE.toml of a profile
    #[arg(long, value_name = "SET")]
    pub members: Option<String>,
    /// The disks by shop name or model number, counted as in 'IronWolf 8 TB*6'; they are listed by
    /// `raidlab calibrate --list WORD`
    #[arg(long, value_name = "DISK", conflicts_with_all = ["members", "facts", "calibration"])]
    pub disk: Option<String>,
    /// The disks as `smartctl -i` prints them (also -x, and --json), of one or several, in a file
    /// or on stdin (-); FILE*6 is six like the one in it. Where the catalogue has no such disk,
    /// what the text says counts
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["members", "facts", "calibration", "disk"])]
    pub smartctl: Vec<String>,
    /// Disks that `raidlab calibrate -o` has measured: its FILE.toml; or FILE.toml*6, six disks
    /// like its first
    #[arg(long, value_name = "FILE", conflicts_with_all = ["members", "facts"])]
    pub calibration: Option<String>,
    /// A figure of one disk: MB/s, or operations per second, as in seq-read=182, seeks=95,
    /// rand-read=110; a rate may have a unit, also of bits
    #[arg(long, value_name = "WORKLOAD=RATE", value_parser = parse_measured)]
    pub measured: Vec<(Work, f64)>,
    /// Facts of the machine and figures of one disk from a JSON file: the object `facts` of
    /// docs/models/tables.md
    #[arg(long, value_name = "FILE")]
    pub facts: Option<PathBuf>,
    /// File system, or raw
    #[arg(long, value_name = "NAME")]
    pub fs: Option<String>,
    /// Kernel of the machine, as in 5.15, or its year [default: 6.1]
    #[arg(long, value_name = "VERSION", value_parser = parse_kernel)]
    pub kernel: Option<Kernel>,
    /// Rate of a path that all disks share, as in 400MB/s; or of some of them, as in 193MB/s*3;
    /// of bits, as in 1Gb/s
    #[arg(long, value_name = "RATE")]
    pub bus: Option<Buses>,
    /// Read-ahead of the array [default: md's, two rows or more]
    #[arg(long, value_name = "SIZE", value_parser = crate::size_args::parse_bytes)]
    pub read_ahead: Option<u64>,
    /// md's stripe_cache_size, pages per member [default: 256; grows by itself since 4.1]
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u32).range(17..=32768))]
    pub stripe_cache: Option<u32>,
    /// The array's bitmap: none, or internal, which mdadm makes above 100 GiB a member [default:
    /// internal; none before Linux 3.12]
    #[arg(long, value_name = "KIND", value_parser = parse_bitmap)]
    pub bitmap: Option<bool>,
    /// Part of the array that random writes reach, which counts where it has a bitmap [default: a
    /// file of 4 GB; all of a raw device]
    #[arg(long, value_name = "SIZE", value_parser = crate::size_args::parse_bytes)]
    pub area: Option<u64>,
    /// md's sync_speed_max, as in 400MB/s [default: 200,000 KiB/s]
    #[arg(long, value_name = "RATE", value_parser = parse_sync_speed)]
    pub sync_speed_max: Option<f64>,
    /// md's group_thread_cnt: threads of a parity array beside the first [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=8192))]
    pub group_threads: Option<u32>,
    /// Requests in flight of random workloads, per job [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub depth: Option<u32>,
    /// Jobs [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub jobs: Option<u32>,
}

fn parse_measured(text: &str) -> Result<(Work, f64)> {
    let syntax = || anyhow!("a workload and its rate are required, as in seq-read=182");
    let (name, rate) = text.split_once('=').ok_or_else(syntax)?;
    let work = parse_work(name)?;
    let rate = match rate.trim().parse::<f64>() {
        Ok(rate) => rate,
        // A unit, which may be of bits.
        Err(_) if !work.is_rate_of_operations() && rate.contains(|c: char| c.is_ascii_digit()) => {
            match spec::units::parse_rate(rate) {
                Ok(bytes) => bytes as f64 / 1e6,
                Err(error @ QuantityError::BitsOrBytes(_)) => return Err(error.into()),
                // As tables and facts have it: `kB/s`, `K/s`.
                Err(error) => rate_of(rate, work).map_err(|_| error)?,
            }
        }
        Err(_) => return Err(syntax()),
    };
    match rate.is_finite() && (1e-3..=1e9).contains(&rate) {
        true => Ok((work, rate)),
        false => bail!("{rate}: a rate is 0.001 to 1e9"),
    }
}

fn parse_kernel(text: &str) -> Result<Kernel> {
    Kernel::parse(text).ok_or_else(|| anyhow!("a version as in 5.15 or 2.6.32, or a year"))
}

fn parse_bitmap(text: &str) -> Result<bool> {
    match text {
        "none" => Ok(false),
        "internal" => Ok(true),
        _ => bail!("none or internal"),
    }
}

fn parse_sync_speed(text: &str) -> Result<f64> {
    Ok(spec::units::parse_rate(text)? as f64 / 1e6)
}

/// A workload by the names of tables or of bench.
pub fn parse_work(text: &str) -> Result<Work> {
    let known = || {
        let names = Work::ALL.map(Work::option_name);
        anyhow!("'{text}': no such workload; there are {}", names.join(", "))
    };
    let exact = Work::ALL.into_iter().find(|work| work.name() == text.replace('-', " "));
    exact.map_or_else(|| Ok(workload(text).map_err(|_| known())?.work), Ok)
}

/// What the options describe.
pub struct Described {
    /// The machine, one disk, how workloads run.
    pub question: Question,
    /// Capacity of each disk, bytes; empty if unknown.
    pub bytes: Vec<u64>,
    /// The disks in words.
    pub disks: String,
    /// Number of disks that `--members` counts.
    pub count: Option<u32>,
    /// File system in words.
    pub fs: String,
    /// What was assumed, in words.
    pub assumed: Vec<String>,
    /// Disks by name, and how many of each.
    pub bought: Vec<(Disk, u32)>,
}

/// What is assumed of disks of which only figures are known, by their streams.
const PLATTERS: &str = "members are disks of 7200 rpm";
/// The same of faster ones.
const FLASH: &str = "members are flash";
/// What is assumed where no bitmap is stated.
const BITMAP: &str = "an internal bitmap, which mdadm makes above 100 GiB a member (--bitmap)";
/// How it begins what is assumed of the area of random writes.
const AREA: &str = "random writes reach";
/// Bytes of an array from which on mdadm makes one.
const LARGE_BYTES: u64 = 100_000_000_000;
/// mdadm makes them since 2013.
const WITH_BITMAP: Kernel = Kernel(3, 12, 0);

/// What is known of the disks.
#[derive(Clone, Copy)]
struct Known<'k> {
    sheets: &'k [(Sheet, Option<u32>, String)],
    facts: Option<&'k (Facts, Single)>,
    calibrated: Option<&'k Calibrated>,
}

impl Described {
    /// The whole array of a text that was pasted, and what the text says of the machine.
    ///
    /// # Errors
    /// The members are counted, and are others.
    pub fn learn(&mut self, pasted: &Pasted) -> Result<Array> {
        let members = pasted.array.members;
        if let Some(count) = self.count.filter(|count| *count != members) {
            bail!("--array has {members} members: --members counts {count}");
        }
        let machine = &mut self.question.machine;
        let is_assumed = self.assumed.iter().any(|words| words == BITMAP);
        if let Some(has) = pasted.bitmap.filter(|_| is_assumed || machine.bitmap.is_none()) {
            machine.bitmap = Some(has);
            self.assumed.retain(|words| words != BITMAP);
        }
        self.say_area();
        let machine = &mut self.question.machine;
        let is_assumed = self.assumed.iter().any(|words| words == PLATTERS);
        if let Some(media) = pasted.media().filter(|_| is_assumed) {
            (machine.media, self.question.single.access_s) = (media, None);
            self.assumed.retain(|words| words != PLATTERS);
        }
        if pasted.array.missing > 0 {
            let missing = pasted.array.missing;
            self.assumed.push(format!("all members are there: {missing} of {members} are missing"));
        }
        self.assumed.extend(pasted.notes.iter().cloned());
        Ok(Array { missing: 0, ..pasted.array })
    }

    /// What is assumed of the area of random writes, which counts where there is a bitmap.
    fn say_area(&mut self) {
        self.assumed.retain(|words| !words.starts_with(AREA));
        if self.question.machine.bitmap == Some(true) && self.question.area_bytes.is_none() {
            let area = match self.question.write_back {
                WriteBack::Raw => "all of the array".to_string(),
                _ => format!("a file of {:.0} GB", FILE_BYTES / 1e9),
            };
            self.assumed.push(format!(
                "{AREA} {area} (--area): those whose bit of the bitmap is not set wait for it"
            ));
        }
    }

    /// Nothing is assumed of a bitmap where the array has none.
    pub fn forget_bitmap(&mut self) {
        self.assumed.retain(|words| words != BITMAP && !words.starts_with(AREA));
    }
}

impl MachineArguments {
    /// Reads profiles and facts.
    ///
    /// # Errors
    /// Nothing describes the disks; names and files that are none.
    pub fn described(&self) -> Result<Described> {
        // One meaning of a depth: that of random requests, of all jobs.
        let depth = f64::from(self.depth.unwrap_or(32));
        let jobs = f64::from(self.jobs.unwrap_or(1));
        let facts_of = |path| facts_of(path, depth * jobs);
        let (facts, mut assumed) = match self.facts.as_deref().map(facts_of).transpose()? {
            Some(StatedFacts { facts, single, ignored }) => (Some((facts, single)), ignored),
            None => (None, Vec::new()),
        };
        let calibrated = self.calibration.as_deref().map(Calibrated::read).transpose()?;
        let bought = self.bought()?;
        let is_described =
            self.members.is_some() || bought.is_some() || facts.is_some() || calibrated.is_some();
        if !is_described && self.measured.is_empty() {
            bail!(
                "the disks are unknown: name --disk (as in a shop), --smartctl, --members (a drive \
                 profile), --calibration, --measured figures of one disk, or --facts"
            );
        }
        let set = self.members.as_deref().map(parse_set).transpose()?.unwrap_or_default();
        let of_profile = |(profile, count): (Cow<'_, Profile>, Option<u32>)| {
            (Sheet::of(&profile, depth * jobs), count, profile.name().to_string())
        };
        let sheets: Vec<(Sheet, Option<u32>, String)> = match (&calibrated, &bought) {
            (Some(calibrated), _) => calibrated.sheets(depth * jobs),
            (None, Some(bought)) => bought.sheets(depth * jobs)?,
            (None, None) => set.into_iter().map(of_profile).collect(),
        };
        let mut machine = self.machine(facts.as_ref(), sheets.first().map(|(sheet, ..)| sheet));
        let says_media = facts.as_ref().is_some_and(|(facts, _)| facts.media.is_some());
        if sheets.is_empty() && !says_media {
            let flash = machine.media.is_flash();
            assumed.push(if flash { FLASH } else { PLATTERS }.to_string());
        }
        if let Some(calibrated) = &calibrated {
            calibrated.apply(&mut machine);
        }
        assumed.extend(bought.iter().flat_map(Bought::notes));
        machine.is_shingled |= sheets.iter().any(|(sheet, ..)| sheet.is_shingled);
        if machine.is_shingled {
            assumed.push(
                "the disks are shingled: random and small writes, rewrites and rebuilds depend on \
                 what was written before, and become slower by a factor of ten and more"
                    .to_string(),
            );
        }
        let known =
            Known { sheets: &sheets, facts: facts.as_ref(), calibrated: calibrated.as_ref() };
        let single = self.single(&known, depth * jobs, &mut machine)?;
        self.settings(&mut machine);
        if machine.kernel.is_none() {
            machine.kernel = Some(CURRENT_KERNEL);
            assumed.push(format!("the kernel is {CURRENT_KERNEL} (--kernel)"));
        }
        let has_wiring = calibrated.as_ref().is_some_and(Calibrated::has_wiring);
        if machine.buses.is_empty() && !has_wiring {
            assumed.push("controller and buses do not limit (--bus)".to_string());
        }
        let writes = single.get(Work::RandomWrite).map(|value| value.source);
        if calibrated.as_ref().is_some_and(Calibrated::has_short_random_writes)
            && writes == Some(Source::Assumed)
        {
            assumed.push(
                "random writes are those of the fitted profile: the scratch area that was probed \
                 is a small part of the disk"
                    .to_string(),
            );
        }
        let (fs, write_back) =
            self.write_back(facts.as_ref().map(|(facts, _)| facts), machine.kernel)?;
        let counts: Option<Vec<u32>> = sheets.iter().map(|(_, count, _)| *count).collect();
        let count = counts.filter(|counts| !counts.is_empty()).map(|counts| counts.iter().sum());
        let bytes = sheets.iter().flat_map(|(sheet, count, _)| {
            std::iter::repeat_n(sheet.bytes, count.unwrap_or(1) as usize)
        });
        let disks = match sheets.is_empty() {
            false if calibrated.is_some() => {
                calibrated.as_ref().map_or(String::new(), Calibrated::words)
            }
            false if bought.is_some() => bought.as_ref().map_or(String::new(), Bought::words),
            true if facts.is_some() => "disks of the facts".to_string(),
            true => "measured disks".to_string(),
            false => self.members.clone().unwrap_or_default(),
        };
        let bytes: Vec<u64> = bytes.collect();
        let is_small = !bytes.is_empty() && bytes.iter().sum::<u64>() < LARGE_BYTES;
        if machine.bitmap.is_none() && machine.kernel >= Some(WITH_BITMAP) && !is_small {
            machine.bitmap = Some(true);
            assumed.push(BITMAP.to_string());
        }
        machine.member_bytes =
            machine.member_bytes.or(bytes.iter().min().map(|least| *least as f64));
        let area_bytes = self.area.map(|bytes| bytes as f64);
        let question = Question { machine, single, write_back, depth, jobs, area_bytes };
        let bought = bought.map_or(Vec::new(), |bought| bought.disks).into_iter();
        let bought = bought.map(|(disk, count)| (disk, count.unwrap_or(1))).collect();
        let mut described = Described { question, bytes, disks, count, fs, assumed, bought };
        described.say_area();
        Ok(described)
    }

    /// That of the facts; otherwise one with such members.
    fn machine(&self, facts: Option<&(Facts, Single)>, sheet: Option<&Sheet>) -> Machine {
        match (facts, sheet) {
            (Some((facts, _)), sheet) => {
                let of_sheet = sheet.map(|sheet| sheet.media);
                let media = facts.media.or(of_sheet).unwrap_or(facts.machine.media);
                Machine { media, ..facts.machine.clone() }
            }
            (None, Some(sheet)) => Machine::new(sheet.media),
            (None, None) => {
                let of_stream = |(work, rate): &(Work, f64)| {
                    matches!(work, Work::Read | Work::DirectRead).then_some(*rate)
                };
                Machine::new(usual_media(
                    self.measured.iter().filter_map(of_stream).reduce(f64::max),
                ))
            }
        }
    }

    fn bought(&self) -> Result<Option<Bought>> {
        match (&self.disk, &self.smartctl[..]) {
            (Some(names), _) => Bought::of_names(names).map(Some),
            (None, []) => Ok(None),
            (None, files) => Bought::of_smartctl(files).map(Some),
        }
    }

    /// Whether something is read from stdin, which is there once.
    pub fn reads_stdin(&self) -> bool {
        let is_stdin = |text: &str| text == "-" || text.starts_with("-*");
        self.smartctl.iter().any(|file| is_stdin(file))
            || self.facts.as_deref().is_some_and(crate::console::is_stdout)
            || self.calibration.as_deref().is_some_and(is_stdin)
    }

    fn settings(&self, machine: &mut Machine) {
        machine.kernel = self.kernel.or(machine.kernel);
        if let Some(buses) = &self.bus {
            let rates: Vec<u64> = buses.rates().collect();
            let on =
                |bus: usize| (0..4096).filter(|disk| buses.of_disk(*disk) == Some(bus)).count();
            machine.buses = rates
                .iter()
                .enumerate()
                .map(|(index, rate)| Bus {
                    mb_per_s: *rate as f64 / 1e6,
                    members: u32::try_from(on(index)).ok().filter(|members| *members < 2048),
                })
                .collect();
        }
        if let Some(bytes) = self.read_ahead {
            machine.read_ahead_kib = Some(bytes as f64 / 1024.0);
        }
        if let Some(pages) = self.stripe_cache {
            machine.stripe_cache = f64::from(pages);
        }
        machine.bitmap = self.bitmap.or(machine.bitmap);
        machine.sync_speed_max = self.sync_speed_max.unwrap_or(machine.sync_speed_max);
        if let Some(threads) = self.group_threads {
            machine.group_threads = f64::from(threads);
        }
    }

    /// The disks as `--members` and `--bus` of bench have them; `None`: nothing describes drives
    /// that could be modelled.
    ///
    /// # Errors
    /// A set or a bus that bench cannot have.
    pub fn paced(&self) -> Result<Option<(MemberSet, Option<Buses>)>> {
        let calibrated = self.calibration.as_deref().map(Calibrated::read).transpose()?;
        let (text, buses) = match (&calibrated, &self.members) {
            (Some(calibrated), _) => (calibrated.members()?, calibrated.buses()?),
            (None, Some(text)) => {
                (format!("paced:{}", text.strip_prefix("paced:").unwrap_or(text)), None)
            }
            (None, None) => return Ok(None),
        };
        Ok(Some((text.parse()?, self.bus.or(buses))))
    }

    /// One disk: measured figures first, then facts, then sheets; the slowest sheet counts.
    fn single(&self, known: &Known<'_>, depth: f64, machine: &mut Machine) -> Result<Single> {
        let Known { sheets, facts, calibrated } = *known;
        let mut single = Single::default();
        for (work, rate) in &self.measured {
            single.replace(*work, Some(*rate), Source::Measured);
        }
        if let Some((facts, of_facts)) = facts {
            for work in Work::ALL {
                if let Some(value) = of_facts.get(work) {
                    single.offer(work, value.rate, value.source);
                }
            }
            // That of the usual disk is none of another medium's.
            single.access_s = of_facts.access_s.filter(|_| facts.machine.media == machine.media);
            (single.read_s, single.write_s) = (of_facts.read_s, of_facts.write_s);
            for work in Work::ALL {
                if of_facts.figure(work) == Err(WhyNot::OtherDepth(work)) {
                    single.has_other_depth(work);
                }
            }
        }
        if let Some(calibrated) = calibrated {
            calibrated.offer(&mut single, depth);
        }
        // What a calibration did not measure is that of the drive's class.
        let source = if calibrated.is_some() { Source::Assumed } else { Source::Sheet };
        if sheets.iter().any(|(sheet, ..)| sheet.media.is_flash() != machine.media.is_flash()) {
            bail!("the members: disks and flash in one array have no equation");
        }
        for work in Work::ALL {
            let of_sheet = |(sheet, ..): &(Sheet, Option<u32>, String)| sheet.single.get(work);
            let slowest = sheets.iter().filter_map(of_sheet).map(|value| value.rate);
            if let Some(rate) = slowest.reduce(f64::min) {
                single.offer(work, rate, source);
            }
        }
        let slowest = |time: fn(&Single) -> Option<f64>| {
            sheets.iter().filter_map(|(sheet, ..)| time(&sheet.single)).reduce(f64::max)
        };
        single.access_s = single.access_s.or(slowest(|one| one.access_s));
        single.read_s = single.read_s.or(slowest(|one| one.read_s));
        single.write_s = single.write_s.or(slowest(|one| one.write_s));
        let reads = sheets.iter().map(|(sheet, ..)| sheet.read);
        let (low, high) = (reads.clone().reduce(f64::min), reads.reduce(f64::max));
        if let (Some(low), Some(high)) = (low, high)
            && low < 0.9 * high
        {
            machine.slowest_mb_per_s = Some(low);
        }
        if !machine.media.is_flash() {
            let (read, write) = (single.get(Work::Read), single.get(Work::Write));
            if let (Some(read), None) = (read, write) {
                single.offer(Work::Write, read.rate, Source::Assumed);
            }
            if single.access_s.is_none() {
                single.access_s = Some(0.0085 + 0.5 * machine.media.revolution());
            }
        }
        Ok(single)
    }

    fn write_back(
        &self,
        facts: Option<&Facts>,
        kernel: Option<Kernel>,
    ) -> Result<(String, WriteBack)> {
        let named = match &self.fs {
            None => facts.and_then(|facts| facts.file_system),
            Some(text) => {
                let known = || anyhow!("--fs {text}: ext2, ext3, ext4, xfs, btrfs, jfs or raw");
                Some(file_system(text).ok_or_else(known)?)
            }
        };
        let name = named.unwrap_or("ext4");
        Ok((name.to_string(), write_back(name, kernel)))
    }
}

/// The profiles of a set, with the number of disks where it is counted.
fn parse_set(text: &str) -> Result<Vec<(Cow<'static, Profile>, Option<u32>)>> {
    let parsed = counted("--members", text)?
        .into_iter()
        .map(|(name, count)| Ok((profile(name.strip_prefix("paced:").unwrap_or(name))?, count)));
    parsed.collect()
}

fn profile(name: &str) -> Result<Cow<'static, Profile>> {
    if name.ends_with(".toml") {
        let text = read_text(name.as_ref())?;
        let profile = Profile::parse(&text).with_context(|| name.to_string())?;
        return Ok(Cow::Owned(profile));
    }
    let names = || Profile::names().collect::<Vec<_>>().join(", ");
    Profile::named(name)
        .map(Cow::Borrowed)
        .ok_or_else(|| anyhow!("--members {name}: no such drive profile; there are {}", names()))
}

/// The facts of a file, and what they say of one disk.
/// What `--facts` says.
struct StatedFacts {
    facts: Facts,
    single: Single,
    /// Sentences on keys that nothing is read of.
    ignored: Vec<String>,
}

fn facts_of(path: &Path, depth: f64) -> Result<StatedFacts> {
    let text = read_text(path)?;
    let value: Value =
        serde_json::from_str(&text).with_context(|| format!("{}: no JSON", path.display()))?;
    let facts = value.get("facts").unwrap_or(&value);
    if !facts.is_object() {
        bail!("{}: an object of facts is required", path.display());
    }
    let ignored = ignored_facts(facts).with_context(|| path.display().to_string())?;
    let ignored = ignored.iter().map(|key| format!("{key} says nothing: it is not understood"));
    let ignored = ignored.collect();
    let (facts, single) = predict::tables::of_facts(facts, Some(depth));
    Ok(StatedFacts { facts, single, ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_units_of_bench_and_of_tables() {
        let of = |text: &str| parse_measured(text).map(|(_, rate)| rate);
        for (text, rate) in [
            ("seq-read=211", 211.0),
            ("seq-read=211000kB/s", 216.064),
            ("seq-read=211000K/s", 216.064),
            ("seq-read=1Gb/s", 125.0),
        ] {
            assert!((of(text).expect(text) - rate).abs() < 1e-9, "{text}");
        }
        for text in ["seq-read=100mb/s", "seq-read=2 furlongs", "rand-read=10kB/s", "seq-read="] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
