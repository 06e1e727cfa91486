//! `raidlab calibrate`: what disks do, measured, and drive profiles that behave alike.
//!
//! Invariant: members are opened read-only; what is written is a scratch file without a name, and
//! the profiles.

mod listed;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use array::{FileMember, MAX_MEMBERS, Member};
use bench::probed::{ProbedDisks, scratch_file};
use clap::Args;
use host::{Access, Device, DeviceOptions, Disk, Location};
use indicatif::{ProgressBar, ProgressStyle};
use predict::calibrate::{
    Calibration, DiskFigures, Figures, Machine, MachineError, Progress, ScratchFigures, Settings,
    WiringFigures, document_path,
};
use serde::Serialize;
use spec::shown::Shown;
use spec::units::show_size;

use crate::console::{JsonOut, check_replaceable, replace_record, say, to_thousandths};
use crate::error::{Context, of_option};
use crate::members::{Used, overlaps};
use crate::size_args::parse_bytes;
use crate::{Ending, signal};

/// A file may have this share of holes, which is not said.
const HOLES_MAX: f64 = 0.01;

const EXAMPLES: &str = "\
Examples:
  raidlab calibrate /dev/sd[b-e]                    read-only, about a minute on disks
  raidlab calibrate /dev/sd[b-e] -o mine.toml       the profile of the first disk in a file
  raidlab calibrate /dev/sdb --scratch /mnt/sdb     and writes, in a file on a file system there
  raidlab bench --members paced:mine.toml           arrays of disks that behave like it
  raidlab calibrate --list                          the profiles that are built in
  raidlab calibrate --list 'ironwolf 8'             disks by shop name, for advise --disk

The first disk gets all probes; of the others the rate at the beginning is measured, and of all at a
time which of them share a bus. Members may hold data, and be in use: then the figures are those of
a busy disk. Without --scratch, numbers about writes are those of the disk's class, and the profile
says so for each. Exit status: 1 if -o FILE was not written, for figures that no drive has; 2 if a
disk cannot be read.";

/// Measure what disks do: a drive profile for bench and predict, and which disks share a bus.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CalibrateArguments {
    /// Disks, partitions, image files; read only
    #[arg(required_unless_present = "list", value_name = "MEMBER")]
    members: Vec<OsString>,
    /// List the drive profiles that bench, predict and advise have, and with a WORD the disks by
    /// name that predict and advise have (--disk); with --json all of them. Measure nothing
    #[arg(long, value_name = "WORD", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["members", "scratch", "quick", "output"])]
    list: Option<String>,
    /// Also measure writes, in a file in this directory, which is on the first disk
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Size of that file
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "2G",
          requires = "scratch")]
    scratch_size: u64,
    /// Shorter probes: a quarter of the time, less exact figures
    #[arg(long)]
    quick: bool,
    /// Write the drive profile here; those of disks that are not like the first one beside it
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    #[command(flatten)]
    json: JsonOut,
}

/// A scratch file must have room for the probes.
const SCRATCH_MIN: u64 = 64 << 20;

/// Runs the command.
pub fn run(arguments: &CalibrateArguments) -> Result<Ending> {
    if let Some(word) = &arguments.list {
        return listed::run(word, &arguments.json);
    }
    let used = Used::members(&arguments.members);
    arguments.json.refuse_overlap(&used)?;
    if let Some(path) = &arguments.output {
        check_output(path, &used, arguments)?;
    }
    if arguments.members.len() > MAX_MEMBERS {
        bail!("{} members are too many: {MAX_MEMBERS} at most", arguments.members.len());
    }
    let stop = signal::watch()?;
    let stop = || stop.load(Ordering::Relaxed);
    let (mut notes, mut disks, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for member in &arguments.members {
        let location = Location::parse(member)?;
        let device =
            Device::open(&location, DeviceOptions { access: Access::ReadOnly, direct: true })?;
        let name = location.to_string();
        if !device.is_direct() {
            let why = "its file system has no direct I/O: figures are of the page cache";
            notes.push(format!("{name}: {why}"));
        }
        if let Some(share) = share_of_holes(&location.path) {
            let percent = (share * 100.0).ceil();
            notes.push(format!(
                "{name}: {percent:.0} % of the file was never written: such blocks are read \
                 without a disk, and figures are of memory; write it once"
            ));
        }
        let (least, bytes) = (256 << 20, device.bytes());
        if bytes < least {
            bail!("{name}: {} are too few to measure: 256 MiB at least", show_size(bytes));
        }
        let member = FileMember::of_device(&device, 0..device.sectors());
        disks.push((name.clone(), Box::new(member) as Box<dyn Member>));
        names.push(name);
    }
    let scratch = match &arguments.scratch {
        Some(_) if arguments.scratch_size < SCRATCH_MIN => {
            bail!("--scratch-size: at least {}", show_size(SCRATCH_MIN));
        }
        Some(directory) => {
            Some(scratch_file(directory, arguments.scratch_size).context("--scratch")?)
        }
        None => None,
    };
    let mut machine = ProbedDisks::new(disks, scratch, &stop)?;
    let area = machine.scratch();
    let settings = if arguments.quick { Settings::quick() } else { Settings::default() };
    let bar = Bar::new(&names);
    let begin = Instant::now();
    let figures = machine.prepare_scratch().and_then(|()| {
        predict::calibrate::measure(&mut machine, settings, &mut |progress| bar.show(&progress))
    });
    bar.finish();
    let figures = match figures {
        Ok(figures) => figures,
        Err(MachineError::Stopped) => return Ok(Ending::Stopped),
        Err(error) => return Err(error.into()),
    };
    let seconds = begin.elapsed().as_secs_f64();
    drop(machine);
    let disks = predict::calibrate::fit(&figures, area, settings);
    let calibration = Calibration { disks, figures };
    let mut documents = Vec::new();
    for (disk, name) in names.iter().enumerate() {
        if let Err(error) = calibration.disks[disk].profile("measured") {
            notes.push(format!("{name}: no drive profile: {error}"));
        } else if let Some(path) = &arguments.output
            && (disk == 0 || !is_alike(&calibration, disk))
        {
            let path = document_path(path, disk);
            let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let description = format!("measured by raidlab calibrate on {name}");
            let text = calibration.document(disk, &stem.unwrap_or_default(), &description);
            replace_record(&path, text).map_err(of_option("--output"))?;
            documents.push(path);
        }
    }
    let found = Found { names: &names, calibration: &calibration, documents, notes, seconds };
    arguments.json.put(&text(&found), || CalibrateDocument::of(&found))?;
    let unwritten = arguments.output.is_some() && found.documents.is_empty();
    Ok(if unwritten { Ending::Finding } else { Ending::Fine })
}

/// What of a file's length has no blocks on its disk; `None`: next to nothing, or it is no file.
fn share_of_holes(path: &Path) -> Option<f64> {
    let found = std::fs::metadata(path).ok().filter(|found| found.is_file() && found.len() > 0)?;
    let share = 1.0 - (found.blocks() * md::SECTOR_BYTES) as f64 / found.len() as f64;
    (share > HOLES_MAX).then_some(share)
}

fn check_output(path: &Path, used: &[Used], arguments: &CalibrateArguments) -> Result<()> {
    if path.extension().is_none_or(|extension| extension != "toml") {
        bail!("--output {}: a drive profile's name ends with .toml", path.display());
    }
    for disk in 0..arguments.members.len() {
        let path = document_path(path, disk);
        if let Some(how) = overlaps(used, &path) {
            bail!("--output {}: {how}; name another file", path.display());
        }
        check_replaceable(&path, b"name = ").map_err(of_option("--output"))?;
        if arguments.json.is(&path) {
            bail!("--json and --output name the same file");
        }
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match directory.is_none_or(Path::is_dir) {
        true => Ok(()),
        false => Err(anyhow!("--output {}: there is no such directory", path.display())),
    }
}

/// Whether a disk has the numbers of the first one, but for its size.
fn is_alike(calibration: &Calibration, disk: usize) -> bool {
    let numbers = |disk: usize| {
        let all = &calibration.disks[disk].numbers;
        let others = all.iter().filter(|number| number.field != "capacity_bytes");
        others.map(|number| number.value).collect::<Vec<f64>>()
    };
    numbers(0) == numbers(disk)
}

/// A bar with an ETA on a terminal, a line per probe elsewhere.
struct Bar<'n> {
    bar: Option<ProgressBar>,
    names: &'n [String],
}

impl<'n> Bar<'n> {
    fn new(names: &'n [String]) -> Bar<'n> {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(1);
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta} left {wide_msg}");
            style.into_iter().for_each(|style| bar.set_style(style));
            bar
        });
        Bar { bar, names }
    }

    fn show(&self, progress: &Progress) {
        let disk = progress.disk.and_then(|disk| self.names.get(disk));
        let disk = disk.map(|name| format!("{}: ", Shown(name))).unwrap_or_default();
        match &self.bar {
            Some(bar) => {
                bar.set_length(progress.of as u64);
                bar.set_position(progress.number as u64);
                bar.set_message(format!("{disk}{}", progress.name));
            }
            None => {
                let (number, of) = (progress.number + 1, progress.of);
                say(format_args!("[{number}/{of}] {disk}{}", progress.name));
            }
        }
    }

    fn finish(&self) {
        self.bar.iter().for_each(ProgressBar::finish_and_clear);
    }
}

/// What was found, for people and programs.
struct Found<'c> {
    names: &'c [String],
    calibration: &'c Calibration,
    documents: Vec<PathBuf>,
    notes: Vec<String>,
    seconds: f64,
}

/// `83.1 MB/s`, or a dash.
fn shown(value: Option<f64>, unit: &str) -> String {
    match value {
        Some(value) if value >= 100.0 => format!("{value:.0} {unit}"),
        Some(value) if value >= 10.0 => format!("{value:.1} {unit}"),
        Some(value) => format!("{value:.2} {unit}"),
        None => "-".to_string(),
    }
}

fn line(out: &mut String, name: &str, text: &str) {
    let _ = writeln!(out, "  {name:24} {text}");
}

fn disk_text(out: &mut String, disk: &DiskFigures) {
    let rate = |value| shown(value, "MB/s");
    let rates = format!(
        "{} at the beginning, {} in the middle, {} at the end",
        rate(disk.outer_mb_per_s),
        rate(disk.middle_mb_per_s),
        rate(disk.inner_mb_per_s)
    );
    line(out, "sequential read", &rates);
    let random = format!(
        "{} at depth 1, {} at depth 4, {} at depth 32",
        shown(disk.random_ms, "ms"),
        shown(disk.random_q4_iops, "/s"),
        shown(disk.random_q32_iops, "/s")
    );
    line(out, "random 4 KiB reads", &random);
    let seeks = format!("{} near, {} across", shown(disk.near_ms, "ms"), shown(disk.full_ms, "ms"));
    line(out, "4 KiB reads", &seeks);
    line(out, "reads of its cache", &shown(disk.cached_us, "us"));
    let streams =
        format!("{}, of 1 MiB {}", rate(disk.streams_mb_per_s), rate(disk.long_streams_mb_per_s));
    line(out, "four streams of 64 KiB", &streams);
    line(out, "a gap of 64 KiB costs", &shown(disk.gap_ms, "ms"));
    let cpu = format!(
        "{} for a request, {} for a KiB",
        shown(disk.cpu_us_per_request, "us"),
        shown(disk.cpu_us_per_kib, "us")
    );
    line(out, "CPU", &cpu);
}

fn text(found: &Found<'_>) -> String {
    let Figures { disks, scratch, wiring } = &found.calibration.figures;
    let mut out = String::new();
    for (number, (name, disk)) in found.names.iter().zip(disks).enumerate() {
        let kind = if disk.rotates { "a disk with platters" } else { "a solid-state drive" };
        let _ = writeln!(out, "{}: {}, {kind}", Shown(name), show_size(disk.bytes));
        match number {
            0 => disk_text(&mut out, disk),
            _ => line(&mut out, "sequential read", &shown(disk.outer_mb_per_s, "MB/s")),
        }
        if let (0, Some(written)) = (number, scratch) {
            line(&mut out, "sequential write", &shown(written.write_mb_per_s, "MB/s"));
            line(&mut out, "random 4 KiB writes", &shown(written.random_write_iops, "/s"));
            line(&mut out, "a write and a flush", &shown(written.sync_ms, "ms"));
            line(&mut out, "reads beside writes", &shown(written.rewrite_mb_per_s, "MB/s"));
        }
    }
    if let Some(wiring) = wiring {
        let sum: f64 = wiring.together_mb_per_s.iter().sum();
        let alone: f64 = disks.iter().filter_map(|disk| disk.outer_mb_per_s).sum();
        let _ = writeln!(out, "all disks at a time: {sum:.0} MB/s, of {alone:.0} MB/s alone");
        for bus in &wiring.buses {
            let names: Vec<&str> = bus.disks.iter().map(|disk| &*found.names[*disk]).collect();
            let names = Shown(names.join(", "));
            let _ = writeln!(out, "  {names} share a bus of {:.0} MB/s", bus.mb_per_s);
        }
    }
    if let Some(first) = found.calibration.disks.first() {
        let fields: Vec<&str> = first.assumed().map(|number| &*number.field).collect();
        let _ = writeln!(out, "not measured, but those of its class: {}", fields.join(", "));
    }
    for note in &found.notes {
        let _ = writeln!(out, "note: {}", Shown(note));
    }
    for path in &found.documents {
        let _ = writeln!(out, "profile: {}", Shown(path.display()));
    }
    if let Some(buses) = buses(found) {
        let _ = writeln!(out, "buses for bench: --bus {buses}");
    }
    let _ = writeln!(out, "took {:.0} s", found.seconds);
    out
}

/// The buses as `bench --bus` has them, where adjacent disks share them.
fn buses(found: &Found<'_>) -> Option<String> {
    found.calibration.figures.wiring.as_ref()?.as_option()
}

/// What was measured, and the profiles that were written.
#[derive(Serialize)]
struct CalibrateDocument<'a> {
    schema: &'static str,
    disks: Vec<DiskDocument<'a>>,
    scratch: &'a Option<ScratchFigures>,
    wiring: &'a Option<WiringFigures>,
    buses: Option<String>,
    profiles: &'a [PathBuf],
    notes: &'a [String],
    seconds: f64,
}

#[derive(Serialize)]
struct DiskDocument<'a> {
    path: &'a str,
    figures: &'a DiskFigures,
    profile: BTreeMap<&'a str, Number<'a>>,
}

/// A number of a profile, and where it is from.
#[derive(Serialize)]
struct Number<'a> {
    value: f64,
    source: &'a str,
}

impl<'a> CalibrateDocument<'a> {
    fn of(found: &'a Found<'_>) -> CalibrateDocument<'a> {
        let Calibration { disks, figures } = found.calibration;
        let disks = found.names.iter().zip(disks).zip(&figures.disks);
        let disks = disks.map(|((name, disk), figures)| {
            let numbers = disk.numbers.iter().map(|number| {
                (number.field.as_str(), Number { value: number.value, source: &number.source })
            });
            DiskDocument { path: name, figures, profile: numbers.collect() }
        });
        CalibrateDocument {
            schema: "raidlab-calibrate/1",
            disks: disks.collect(),
            scratch: &figures.scratch,
            wiring: &figures.wiring,
            buses: buses(found),
            profiles: &found.documents,
            notes: &found.notes,
            seconds: to_thousandths(found.seconds),
        }
    }
}
