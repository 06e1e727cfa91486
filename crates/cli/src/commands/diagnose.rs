//! `raidlab diagnose`: why an array is slow.
//!
//! ```text
//!   target (md, a server, members), --facts, --measured or a live sample, --calibration
//!        '--> Case --> diagnose --> verdict, or a probe --(--probe: run it)--> Case ...
//! ```
//!
//! Invariant: members are opened read-only, and nothing is written but the JSON.

mod sample;
mod shown;
mod source;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use array::{FileMember, Member};
use bench::metrics::Roots;
use bench::probed::ProbedDisks;
use clap::Args;
use host::{Access, Device, DeviceOptions, Disk, Location};
use predict::calibrate::MachineError;
use predict::diagnose::{
    Case, Document, Measured, Probe, ProbeFigures, SYNC_SPEED_MIN, State, Sync, Wait, access_of,
    calibration_of, rate_of, write_back,
};
use predict::fitted::Fitted;
use predict::law::{Array, Machine, Single, Source, Work};
use predict::tables::file_system;
use spec::units::{parse_any_seconds, show_size};

use crate::commands::predict::read_text;
use crate::console::{JsonOut, say};
use crate::error::Context;
use crate::members::Used;
use crate::size_args::parse_bytes;
use crate::{Ending, signal};

const EXAMPLES: &str = "\
Examples:
  raidlab diagnose md0 --measured seq-read=180MB/s          an array of this machine, a figure
  raidlab diagnose md0 --seconds 10                         what runs on it now
  raidlab diagnose md0 --measured seq-read=180MB/s --probe  read the members until it is decided
  raidlab diagnose data --measured random-read=300/s        an array that raidlab serves
  raidlab diagnose --facts box.json                         facts in a file, a figure among them
  raidlab diagnose --array mdstat.txt                       a rebuild, as /proc/mdstat shows it

The figure is compared with every ceiling: members, buses, network, CPU, read-ahead, stripe cache,
queue. docs/models/diagnose.md lists the causes, what shows each, and the keys of --facts. Exit
code: 1 if a bottleneck is named or the figure is unexplained, 0 otherwise.";

/// Find out why an array is slow: a figure, or what runs now, against every ceiling; read-only.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DiagnoseArguments {
    /// An array of md, by name or path; a server, by name or control socket; or the members of an
    /// array
    #[arg(value_name = "ARRAY|NAME|MEMBER")]
    targets: Vec<OsString>,
    /// The array as mdadm --detail, mdadm --examine or /proc/mdstat print it, in a file; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with = "targets")]
    array: Option<PathBuf>,
    /// Facts in a JSON or TOML file (docs/models/diagnose.md); - is JSON on stdin
    #[arg(long, value_name = "FILE")]
    facts: Option<PathBuf>,
    /// What was measured on the array, as in seq-read=180MB/s, random-read=300/s
    #[arg(long, value_name = "WORKLOAD=RATE", value_parser = parse_measured)]
    measured: Option<Measured>,
    /// Size of the workload's requests
    #[arg(long, value_name = "SIZE", value_parser = parse_block)]
    block: Option<u64>,
    /// Its requests in flight
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    depth: Option<u32>,
    /// It uses O_DIRECT: no read-ahead
    #[arg(long)]
    direct: bool,
    /// Its file system, or raw [default: ext4]
    #[arg(long, value_name = "NAME")]
    fs: Option<String>,
    /// Sample what runs on an array of md, for this time [default without a figure: 5]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    seconds: Option<Duration>,
    /// What runs in the sample [default: by the direction and the size of its requests]
    #[arg(long, value_name = "WORKLOAD", conflicts_with = "measured")]
    workload: Option<String>,
    /// The network interface that the figure went through
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// The control group of the workload: its limits of I/O (io.max) on the array and its members
    #[arg(long, value_name = "NAME")]
    cgroup: Option<String>,
    /// What raidlab calibrate -o wrote of the members
    #[arg(long, value_name = "FILE.toml")]
    calibration: Option<PathBuf>,
    /// Run the probes that decide: the members are read, a few seconds each
    #[arg(long)]
    probe: bool,
    #[command(flatten)]
    json: JsonOut,
    /// Reads proc and sys below this directory instead of /
    #[arg(long, value_name = "DIR", hide = true)]
    root: Option<PathBuf>,
}

fn parse_measured(text: &str) -> Result<Measured> {
    let (name, rate) = text
        .split_once('=')
        .ok_or_else(|| anyhow!("a workload and its rate are required, as in seq-read=180MB/s"))?;
    let usual = write_back(None, None);
    let work = access_of(name, usual)?.work;
    Ok(Measured::of(name, usual, rate_of(rate, work)?)?)
}

fn parse_block(text: &str) -> Result<u64> {
    match parse_bytes(text)? {
        0 => bail!("a request has at least one byte"),
        bytes => Ok(bytes),
    }
}

fn parse_duration(text: &str) -> Result<Duration> {
    let seconds = parse_any_seconds(text)?;
    // CPU time is counted in hundredths of a second, a member's requests by the hundred.
    match (1.0..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => bail!("a sample takes 1s to 3600s"),
    }
}

/// How long a sample takes where nothing is said.
const SAMPLE: Duration = Duration::from_secs(5);
/// Requests per second that no drive does one at a time: each would take less than 6.7 us.
const ONE_AT_A_TIME: f64 = 150e3;
/// Members must have room for the probes.
const MEMBER_MIN: u64 = 64 << 20;

/// Runs the command.
pub fn run(arguments: &DiagnoseArguments) -> Result<Ending> {
    arguments.json.refuse_overlap(&Used::members(&arguments.targets))?;
    let roots = arguments.root.as_deref().map_or_else(Roots::default, Roots::below);
    let mut document = arguments.facts.as_deref().map(facts).transpose()?;
    if let Some(path) = &arguments.array {
        let pasted = crate::commands::predict::pasted(path)?;
        document.get_or_insert_default().describe(Some(pasted));
    }
    let stop = signal::watch()?;
    let stop = || stop.load(Ordering::Relaxed);
    let mut target = source::of(&arguments.targets, &roots)?;
    if target.is_served {
        target.notes.push(source::SERVED.to_string());
    }
    let Some(mut case) = case(arguments, document, &mut target, &roots, &stop)? else {
        return Ok(Ending::Stopped);
    };
    if let Some(path) = &arguments.calibration {
        let found = calibration_of(&read_text(path)?)
            .map_err(|problem| anyhow!("--calibration {}: {problem}", path.display()))?;
        let disks = found.alone_mb_per_s.as_ref().map_or(0, Vec::len);
        if disks != case.array.members as usize {
            let (name, members) = (path.display(), case.array.members);
            target.notes.push(format!("{name} is of {disks} disks, the array has {members}"));
        }
        case.probes = merged(found, std::mem::take(&mut case.probes));
    }
    let fitted = Fitted::built_in();
    let mut found = predict::diagnose::diagnose(&case, &fitted);
    if arguments.probe {
        if target.paths.is_empty() {
            bail!("--probe: the members are unknown; name the array, or its members");
        }
        if target.is_served {
            bail!("--probe: {}", source::SERVED);
        }
        let mut machine = ProbedDisks::new(opened(&target.paths, &mut target.notes)?, None, &stop)?;
        let mut ran: Vec<Probe> = Vec::new();
        while let Some(probe) = found.next_probe.filter(|probe| !ran.contains(probe)) {
            say(format_args!("[{}] {}", ran.len() + 1, probe.words()));
            match predict::diagnose::run(probe, &mut machine, &mut case.probes) {
                Ok(()) => {}
                Err(MachineError::Stopped) => return Ok(Ending::Stopped),
                Err(error) => return Err(error.into()),
            }
            ran.push(probe);
            found = predict::diagnose::diagnose(&case, &fitted);
        }
        if let Some(probe) = found.next_probe {
            target.notes.push(format!("the probe '{}' gave no figure", probe.name()));
        }
    }
    let result = shown::Shown { target: &target, case: &case, found: &found };
    arguments.json.put(&result.text(arguments.probe), || result.document())?;
    Ok(match found.verdict {
        predict::diagnose::Verdict::Cause(_) | predict::diagnose::Verdict::Unexplained => {
            Ending::Finding
        }
        _ => Ending::Fine,
    })
}

fn facts(path: &std::path::Path) -> Result<Document> {
    let text = read_text(path)?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    Document::parse(&text, is_toml).with_context(|| format!("--facts {}", path.display()))
}

/// The limit of a network interface of this machine; a note where its speed is unknown.
fn network_limit(
    roots: &Roots,
    interface: &str,
    target: &mut source::Target,
) -> Result<Option<f64>> {
    if !roots.sys.join("class/net").join(interface).exists() {
        bail!("--interface {interface}: this machine has no such network interface");
    }
    let limit = sample::network_limit(roots, interface);
    if limit.is_none() {
        target.notes.push(format!("{interface}: its speed is unknown"));
    }
    Ok(limit)
}

/// What one disk does, as far as facts say it, for the workload that was measured.
fn of_one_disk(
    facts: Option<&Document>,
    measured: &Measured,
    members: u32,
    machine: &Machine,
) -> Single {
    // A figure of one disk counts as it is where the workload's requests in flight are unknown.
    let depth = (!measured.depth_is_unknown).then_some(measured.access.depth);
    let mut single = facts.map_or_else(Single::default, |facts| facts.single(depth));
    // Flash has as many in flight on each member as the one disk of the figure.
    let (work, members) = (measured.access.work, f64::from(members));
    if let (Some(facts), Some(depth), Err(_)) = (facts, depth, single.figure(work)) {
        let on_each = facts.single(Some((depth / members).max(1.0))).figure(work);
        // One of no stated depth is of many, where it is more than one at a time can be.
        let as_it_is = facts.single(None).figure(work).ok();
        let deep = as_it_is.filter(|one| one.rate > ONE_AT_A_TIME);
        if let Some(one) = on_each.ok().or(deep) {
            single.replace(work, Some(one.rate), one.source);
        }
    }
    // Seeks of a platter, which the facts had assumed.
    if !machine.media.rotates() && facts.is_some_and(|facts| !facts.says_media) {
        single.access_s = None;
    }
    // What a disk reads in order it also writes so, where nothing else is known.
    if let (Some(read), None) = (single.get(Work::Read), single.get(Work::Write))
        && machine.media.rotates()
    {
        single.offer(Work::Write, read.rate, Source::Assumed);
    }
    single
}

/// Puts together what is known. `None`: it was stopped while it sampled.
fn case(
    arguments: &DiagnoseArguments,
    document: Option<Document>,
    target: &mut source::Target,
    roots: &Roots,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Case>> {
    let facts = document.as_ref();
    target.notes.extend(facts.into_iter().flat_map(notes_of));
    let array = target.array.or(facts.and_then(|facts| facts.array));
    let array = array.ok_or_else(|| {
        anyhow!(
            "the array is unknown: name one of md, a server or members, or put it into --array or \
             --facts"
        )
    })?;
    let fs = match &arguments.fs {
        Some(text) => {
            let known = || anyhow!("--fs {text}: ext2, ext3, ext4, xfs, btrfs, jfs or raw");
            Some(file_system(text).ok_or_else(known)?)
        }
        None => None,
    };
    let (machine, own) = target.machine(facts);
    let mut measured = facts.and_then(|facts| facts.measured);
    if let Some(mut stated) = arguments.measured {
        stated.access.write_back = write_back(fs, machine.kernel);
        measured = Some(stated);
    }
    let mut sampled = facts.and_then(|facts| facts.sample.clone());
    let seconds =
        arguments.seconds.or((measured.is_none() && target.md.is_some()).then_some(SAMPLE));
    if let Some(seconds) = seconds {
        let Some(md) = &target.md else {
            bail!("--seconds: only an array of md can be sampled; state --measured");
        };
        let interface = arguments.interface.as_deref();
        let Some(sample) = sample::take(roots, md, seconds, interface, stop)? else {
            return Ok(None);
        };
        if measured.is_none() {
            let write_back = write_back(fs, machine.kernel);
            let named = arguments.workload.as_deref();
            let sync = own.sync.as_ref();
            measured = Some(sample::measured(&sample, named, write_back, sync)?);
        }
        sampled = Some(sample);
    } else if arguments.workload.is_some() {
        bail!("--workload: nothing is sampled; name an array of md, or --seconds");
    }
    // Of a served array that is rebuilt, the server says how fast.
    let measured = measured.or_else(|| own.sync.as_ref().and_then(Measured::of_sync));
    let sync = facts.and_then(|facts| facts.state.sync.as_ref()).or(own.sync.as_ref());
    let least = facts.and_then(|facts| facts.state.sync_speed_min).or(own.sync_speed_min);
    let least = least.unwrap_or(SYNC_SPEED_MIN);
    let mut measured = measured.ok_or_else(|| nothing_measured(sync, least))?;
    if let Some(fs) = fs {
        measured.access.write_back = write_back(Some(fs), machine.kernel);
    }
    measured.access.direct |= arguments.direct;
    if let Some(depth) = arguments.depth {
        measured.access.depth = f64::from(depth);
        measured.depth_is_unknown = false;
        measured.access.depth_is_stated = true;
    }
    measured.request_kib =
        arguments.block.map(|bytes| bytes as f64 / 1024.0).or(measured.request_kib);
    let mut state = seen(facts.map(|facts| facts.state.clone()).unwrap_or_default(), own);
    if let Some(group) = &arguments.cgroup {
        if target.md.is_none() {
            bail!("--cgroup: only limits on an array of md are known; facts have io_max");
        }
        state.io_limits.extend(source::io_limits(roots, group, target)?);
    }
    target.notes.extend(state.layers.iter().filter(|layer| layer.is_crypt).map(|layer| {
        let name = &layer.name;
        format!("{name} encrypts (dm-crypt): requests come in smaller pieces, at the cost of CPU")
    }));
    if let Some(interface) = &arguments.interface {
        let limit = network_limit(roots, interface, target)?;
        state.network_mb_per_s = state.network_mb_per_s.or(limit);
    }
    if let Some(note) = counted_in_the_array(&array, state.sync.as_ref()) {
        target.notes.push(note);
    }
    let single = of_one_disk(facts, &measured, array.members, &machine);
    Ok(Some(Case {
        ours: target.ours,
        md: target.md.clone(),
        array,
        machine,
        access: measured.access,
        depth_is_unknown: measured.depth_is_unknown,
        request_kib: measured.request_kib,
        single,
        measured: measured.value,
        state,
        sample: sampled,
        probes: document.map(|document| document.probes).unwrap_or_default(),
    }))
}

/// What is not understood of a document, and what is assumed of its array.
fn notes_of(facts: &Document) -> Vec<String> {
    let ignored = Some(facts.ignored.join(", ")).filter(|list| !list.is_empty());
    let ignored = ignored.map(|list| format!("not understood: {list}"));
    let assumed = facts.assumed.iter().map(|words| format!("assumed: {words}"));
    ignored.into_iter().chain(assumed).collect()
}

/// How md's rate of background work is that of a member, where it is not.
fn counted_in_the_array(array: &Array, sync: Option<&Sync>) -> Option<String> {
    let sync = sync.filter(|sync| sync.mb_per_s.is_some_and(|rate| rate > 0.0))?;
    let counted = match &*sync.action {
        "resync" | "check" | "repair" => array.counted_by_md(false),
        _ => 1.0,
    };
    let share = format!("each member does {:.3} of it", 1.0 / counted);
    (counted > 1.0).then(|| format!("the speed of a {} is md's of the array: {share}", sync.word()))
}

/// Why background work, if any runs, is no figure.
fn nothing_measured(sync: Option<&Sync>, least: f64) -> anyhow::Error {
    let other = "state --measured, as in seq-read=180MB/s, or --seconds";
    let Some(sync) = sync else { return anyhow!("nothing was measured: {other}") };
    let action = sync.word();
    match (sync.waits, sync.mb_per_s) {
        (Some(Wait::OtherArray), _) => anyhow!(
            "{action} waits (DELAYED) until another array on the same disks has ended its own: \
             diagnose that one, or {other}"
        ),
        (Some(Wait::FirstWrite), _) => {
            anyhow!("{action} is PENDING: it begins with the first write; {other}")
        }
        (None, rate) if sync.action == "reshape" => reshape(sync, rate, least),
        (None, Some(rate)) if rate > 0.0 => {
            anyhow!("{action} at {rate:.1} MB/s has no equation: {other}")
        }
        (None, Some(_)) => anyhow!("{action} stands still (speed=0): {other}"),
        (None, None) => {
            anyhow!("the rate of the {action} is not stated: paste /proc/mdstat, or {other}")
        }
    }
}

/// What is known of a reshape; `least`: `sync_speed_min`.
fn reshape(sync: &Sync, rate: Option<f64>, least: f64) -> anyhow::Error {
    let place = sync.position.map(|place| format!(" at {:.1} %", place * 100.0));
    let place = place.unwrap_or_default();
    let known = match rate {
        Some(rate) => format!("the reshape is{place}, {rate:.2} MB/s as md counts it"),
        None => format!("the reshape is{place}, its rate unknown"),
    };
    let why = match rate {
        Some(rate) if rate < least => format!(
            "below sync_speed_min ({least:.2} MB/s) md does not hold it back: the members do \
             (iostat -x), or a backup that mdadm has stopped to write"
        ),
        _ => "iostat -x shows whether a member is busy all of the time".to_string(),
    };
    anyhow!("{known}; there is no equation of what it should do: {why}")
}

/// What a document states of the array's state, and what was seen of the rest.
fn seen(stated: State, own: State) -> State {
    State {
        sync: stated.sync.or(own.sync),
        bitmap: stated.bitmap.or(own.bitmap),
        write_cache: stated.write_cache.or(own.write_cache),
        sync_speed_min: stated.sync_speed_min.or(own.sync_speed_min),
        stripe_cache_is_stated: stated.stripe_cache_is_stated || own.stripe_cache_is_stated,
        cpus: stated.cpus.or(own.cpus),
        network_mb_per_s: stated.network_mb_per_s,
        io_limits: stated.io_limits,
        ..own
    }
}

/// Figures of a calibration, and those of a document before them.
fn merged(calibration: ProbeFigures, own: ProbeFigures) -> ProbeFigures {
    ProbeFigures {
        alone_mb_per_s: own.alone_mb_per_s.or(calibration.alone_mb_per_s),
        together_mb_per_s: own.together_mb_per_s.or(calibration.together_mb_per_s),
        buses: own.buses.or(calibration.buses),
        seeks: own.seeks.or(calibration.seeks),
        seeks_together: own.seeks_together.or(calibration.seeks_together),
        transfer: own.transfer.or(calibration.transfer),
        gap_ms: own.gap_ms.or(calibration.gap_ms),
        cpu_us_per_kib: own.cpu_us_per_kib.or(calibration.cpu_us_per_kib),
        cpu_us_per_request: own.cpu_us_per_request.or(calibration.cpu_us_per_request),
        write_mb_per_s: own.write_mb_per_s.or(calibration.write_mb_per_s),
        random_write_iops: own.random_write_iops.or(calibration.random_write_iops),
        cached_write_us: own.cached_write_us.or(calibration.cached_write_us),
        sync_ms: own.sync_ms.or(calibration.sync_ms),
    }
}

/// The members, opened for reading.
fn opened(paths: &[OsString], notes: &mut Vec<String>) -> Result<Vec<(String, Box<dyn Member>)>> {
    let mut disks = Vec::new();
    for path in paths {
        let location = Location::parse(path)?;
        let device =
            Device::open(&location, DeviceOptions { access: Access::ReadOnly, direct: true })?;
        let (name, bytes) = (location.to_string(), device.bytes());
        if !device.is_direct() {
            let why = "its file system has no direct I/O: figures are of the page cache";
            notes.push(format!("{name}: {why}"));
        }
        if bytes < MEMBER_MIN {
            let least = show_size(MEMBER_MIN);
            bail!("{name}: {} are too few to probe: {least} at least", show_size(bytes));
        }
        let member = FileMember::of_device(&device, 0..device.sectors());
        disks.push((name, Box::new(member) as Box<dyn Member>));
    }
    Ok(disks)
}
