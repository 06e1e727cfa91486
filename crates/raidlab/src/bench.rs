//! `raidlab bench`.
//!
//! Invariant: with `--json -` stdout holds the record and nothing else; otherwise the table.

mod programs;
mod unused_options;
mod work;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args};
use lab::bench::Settings;
use lab::matrix::{BenchLevel, Options, Plan};
use lab::members::MemberSet;
use lab::program::ProgramSpec;
use lab::provision::TargetExpr;
use lab::quantity::{parse_rate, parse_seconds, parse_size, show_seconds};
use lab::record::Cell;
use lab::workload::Kind;
use md::nested::ArrayExpr;
use parity::Kernels;

use crate::Ending;
use crate::console::{print_lines, say};
use crate::output::Outputs;
use crate::results::{DbArgument, RunRecorder};
use crate::signal;
use programs::WorkloadName;
pub use programs::{Engine, ProgramRunner};
pub use unused_options::unused_options;
pub use work::{BenchPlan, Target};

/// Default of `--seconds`: length of a sample.
const SAMPLE_SECONDS: f64 = 0.7;
/// Default of `--runs`: samples per cell.
const RUNS: u32 = 5;
/// Default of `--warm-up`: time before the first sample.
const WARM_UP_SECONDS: f64 = 0.3;
/// Default of `--interval`: sampling interval of the members' counters.
const INTERVAL_SECONDS: f64 = 10.0;
/// Length of a sample with `--engine`: it has many rows, and memory members are steady.
const ENGINE_SAMPLE_SECONDS: f64 = 0.25;
/// Used size of each array with `--engine`: far larger than any CPU cache.
const ENGINE_AREA_BYTES: u64 = 4 << 30;
/// Minimum of `--size` with `--engine`: less fits into CPU caches and cannot feed two cores.
const ENGINE_LEAST_BYTES: u64 = 64 << 20;

/// Without options: the table of the Linux RAID wiki on modelled disks of 2007, in about four
/// minutes. List options may be repeated or take a comma-separated list; every combination is
/// run. Sizes take the suffixes K, M, G (powers of 1024).
#[derive(Args)]
pub struct BenchArguments {
    /// A sweep: a TOML file with the options of this command, as in sweeps/wiki-2-disks.toml.
    /// Results are stored; run the same command to resume an interrupted sweep
    #[arg(value_name = "SWEEP", conflicts_with_all = ["kernels", "engine"])]
    sweep: Option<PathBuf>,
    /// Show the cells and the estimated time, measure nothing
    #[arg(long, help_heading = "Results", conflicts_with_all = ["kernels", "engine"])]
    pub dry_run: bool,
    /// Start the sweep over, as a new run
    #[arg(long, requires = "sweep", help_heading = "Results")]
    pub again: bool,
    #[command(flatten)]
    pub db: DbArgument,

    /// Levels: single (an ordinary disk), linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(long, value_delimiter = ',', value_name = "LEVEL", help_heading = "Arrays")]
    level: Vec<BenchLevel>,
    /// Layouts by md's names, as in left-symmetric, n2, f2, o2 [default: md's default]
    #[arg(long, value_delimiter = ',', value_name = "LAYOUT", help_heading = "Arrays")]
    layout: Vec<String>,
    /// Numbers of members [default: 4, or what --members counts]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = parse_count,
          help_heading = "Arrays")]
    disks: Vec<u32>,
    /// Chunk sizes [default: 256K]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Arrays")]
    chunk: Vec<u64>,
    /// Arrays as expressions, nested ones too: raid1(raid0(2),raid0(2)), raid10,f2,64K(4)
    #[arg(long, value_name = "EXPR", help_heading = "Arrays")]
    array: Vec<ArrayList>,
    /// Fail N members after prefill; of nested arrays, outermost members
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = parse_count,
          help_heading = "Arrays")]
    degraded: Vec<u32>,
    /// Stripe cache size of RAID 4, 5 and 6 [default: 32M]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Arrays")]
    stripe_cache: Vec<u64>,

    /// Member sets: mem, null, file, file:DIR, paced:PROFILE, paced:FILE.toml, paced:PROFILE@0.5,
    /// paced:PROFILE@stretch, paced:PROFILE:MEMBER, fault:RULE:MEMBER; counted sets as
    /// paced:hdd-2007*3+hdd-2009*2 [default: paced:hdd-2007]
    #[arg(long, value_delimiter = ',', value_name = "SET", help_heading = "Members")]
    members: Vec<MemberSet>,
    /// Bandwidth of a bus shared by all paced members, as in 133MB/s
    #[arg(long, value_delimiter = ',', value_name = "RATE", value_parser = parse_rate,
          help_heading = "Members")]
    bus: Vec<u64>,
    /// Paced members per channel, as on parallel ATA: of N adjacent members, one at a time has a
    /// command outstanding
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Members",
          value_parser = clap::value_parser!(u32).range(1..=255))]
    channel: Vec<u32>,
    /// Paced members per disk: N adjacent members are partitions of one disk and share its head
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Members",
          value_parser = clap::value_parser!(u32).range(1..=255))]
    spindle: Vec<u32>,
    /// Queue depth of each member: maximum of operations in flight [default: unlimited]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Members",
          value_parser = clap::value_parser!(u32).range(1..))]
    queue_depth: Vec<u32>,
    /// Directory for member files without a directory of their own [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR", help_heading = "Members")]
    pub dir: Option<PathBuf>,

    /// Workloads: seq-read, seq-write, rand-read, rand-write [default: these]; or programs, as in
    /// bonnie++, dd:bs=2M:fdatasync (--programs lists them)
    #[arg(long, value_delimiter = ',', value_name = "NAME", help_heading = "Workload")]
    workload: Vec<WorkloadName>,
    /// List the programs and their options
    #[arg(long, help_heading = "Workload")]
    programs: bool,
    /// Targets of programs, measured one after the other: engine; path:DIR (any file system);
    /// device:/dev/NAME (overwritten; refused while it is in use or holds data);
    /// fs:KIND,OPTION,... (a new file system on an array of the engine, as in
    /// fs:ext4,data=journal; root); kernel:/dev/X+/dev/Y (a new Linux md array; root)
    #[arg(long, default_value = "engine", help_heading = "Workload")]
    pub target: Vec<TargetExpr>,
    /// Drop the kernel's page cache before each phase of a program; needs root
    #[arg(long, help_heading = "Workload")]
    drop_caches: bool,
    /// Overwrite existing data on a --target device
    #[arg(long, help_heading = "Workload")]
    pub destroy_contents: bool,
    /// Block sizes [default: 1M, or whole stripes near it for sequential writes; 4K for random]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_block,
          help_heading = "Workload")]
    block: Vec<u64>,
    /// I/O depth: blocks in flight per job [default: 4 sequential, 16 random; more on mem]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: Vec<u32>,
    /// Concurrent jobs; sequential jobs work on separate parts of the array [default: 1]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    jobs: Vec<u32>,
    /// Read-ahead of sequential readers, beyond their I/O depth [default: 0]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Workload")]
    read_ahead: Vec<u64>,
    /// Used size of the array, members are sized to fit; for programs, total size of all files
    /// [default: members of 128M, fully used; on other targets twice the memory]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_size,
          help_heading = "Workload")]
    size: Vec<u64>,

    /// Measure only the parity kernels: operation x kernel x block size, GB/s of data, next to
    /// the limit of memory bandwidth
    #[arg(long, help_heading = "Parity", conflicts_with_all = [
          "db", "level", "layout", "disks", "chunk", "array", "degraded", "stripe_cache", "members",
          "bus", "channel", "spindle", "queue_depth", "workload", "block", "depth", "jobs",
          "read_ahead", "size", "html", "until_steady", "target", "drop_caches", "destroy_contents",
          "interval"])]
    kernels: bool,
    /// Parity kernels: reference, portable, avx2, gfni-avx2, avx512, gfni-avx512 [default: the
    /// fastest on this CPU, by a calibration of a few milliseconds; with --kernels, all but the
    /// reference]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = parse_kernels,
          help_heading = "Parity")]
    kernel: Vec<Kernels>,

    /// Measure only the engine, on memory members: every row of its table next to its target and
    /// the limit of plain memory copies. --level and --workload select rows; --size is the used
    /// part of each array [default: 4G], --runs the number of sample pairs
    #[arg(long, help_heading = "Engine", conflicts_with_all = [
          "db", "layout", "disks", "chunk", "array", "degraded", "stripe_cache", "members", "bus",
          "channel", "spindle", "queue_depth", "block", "depth", "jobs", "read_ahead", "html",
          "kernels", "cores", "warm_up", "dir", "until_steady", "target", "drop_caches",
          "destroy_contents", "interval"])]
    engine: bool,

    /// Length of a sample [default: 0.7; of sequential workloads on modelled disks, as long as a
    /// pass over the array allows; with --engine 0.25]
    #[arg(long, value_name = "TIME", value_parser = parse_sample, help_heading = "Measuring")]
    seconds: Option<f64>,
    /// Samples per cell; a program is run N times, each time in a clean state, and each run is one
    /// sample of its phases [default: 5; for programs 1]
    #[arg(long, value_name = "N", help_heading = "Measuring",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    /// Take samples (or run a program), at most MAX, until the last five are in steady state
    #[arg(long, value_name = "MAX", num_args = 0..=1, default_missing_value = "25",
          help_heading = "Measuring", value_parser = clap::value_parser!(u32).range(5..=10_000))]
    until_steady: Option<u32>,
    /// Repeat the whole run N times, each with new arrays and another seed; `compare` needs
    /// several [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "sweep", help_heading = "Measuring",
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Time before the first sample [default: 0.3]
    #[arg(long, value_name = "TIME", value_parser = parse_warm_up, help_heading = "Measuring")]
    warm_up: Option<f64>,
    /// Sampling interval of device counters (steady-state programs) [default: 10]
    #[arg(long, value_name = "TIME", value_parser = parse_sample, help_heading = "Measuring")]
    interval: Option<f64>,
    /// Pin to N CPUs, one thread each; --depth and --jobs apply per thread [default: one unpinned
    /// thread]
    #[arg(long, value_name = "N", value_parser = parse_cores, help_heading = "Measuring")]
    pub cores: Option<u32>,
    /// Seed of random offsets and of the written data; incremented by 1 per repetition
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Measuring")]
    seed: u64,

    /// Write the record to FILE; with - to stdout, all other output then goes to stderr
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write the report to FILE: one offline HTML page with charts and every sample
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

/// A comma-separated list of array expressions. Expressions contain commas: the list is split only
/// at commas after a closing bracket.
#[derive(Clone)]
struct ArrayList(Vec<ArrayExpr>);

impl FromStr for ArrayList {
    type Err = String;

    fn from_str(text: &str) -> Result<ArrayList, String> {
        let (mut depth, mut start, mut parts) = (0i32, 0, Vec::new());
        let bytes = text.as_bytes();
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                b',' if depth == 0 && at > 0 && bytes[at - 1] == b')' => {
                    parts.push(&text[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        parts.push(&text[start..]);
        let exprs = parts.into_iter().map(|part| part.parse().map_err(|e| format!("{e}")));
        Ok(ArrayList(exprs.collect::<Result<_, String>>()?))
    }
}

fn parse_kernels(name: &str) -> Result<Kernels, String> {
    Kernels::by_name(name).map_err(|problem| problem.to_string())
}

fn parse_block(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|e| e.to_string())?;
    if bytes == 0 || bytes % 512 != 0 || bytes > 16 << 20 {
        return Err("a block is a multiple of 512 bytes, at most 16M".into());
    }
    Ok(bytes)
}

fn parse_cores(text: &str) -> Result<u32, String> {
    // Lanes are numbered with 16 bits.
    match text.parse::<u32>() {
        Ok(cores @ 1..=0xffff) => Ok(cores),
        _ => Err("a number of CPUs is wanted, 1 or more".into()),
    }
}

fn parse_sample(text: &str) -> Result<f64, String> {
    let seconds = parse_seconds(text).map_err(|e| e.to_string())?;
    if (1e-3..=86_400.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err("a sample takes 1ms to 86400s (a day)".into())
}

fn parse_warm_up(text: &str) -> Result<f64, String> {
    if matches!(text, "0" | "0s") {
        return Ok(0.0);
    }
    parse_seconds(text).map_err(|e| e.to_string())
}

impl BenchArguments {
    fn kinds(&self) -> Vec<Kind> {
        let kinds = self.workload.iter().filter_map(|workload| match workload {
            WorkloadName::Blocks(kind) => Some(*kind),
            WorkloadName::Program(_) => None,
        });
        kinds.collect()
    }

    /// The programs to run.
    pub fn choices(&self) -> Vec<ProgramSpec> {
        let choices = self.workload.iter().filter_map(|workload| match workload {
            WorkloadName::Program(choice) => Some(choice.clone()),
            WorkloadName::Blocks(_) => None,
        });
        choices.collect()
    }

    /// Measurement settings of all cells.
    pub fn settings<'a>(&self, directory: &'a Path, kernels: Kernels) -> Settings<'a> {
        Settings {
            warm_up: Duration::from_secs_f64(self.warm_up.unwrap_or(WARM_UP_SECONDS)),
            sample: Duration::from_secs_f64(self.seconds.unwrap_or(SAMPLE_SECONDS)),
            sample_given: self.seconds.is_some() || self.warm_up.is_some(),
            runs: self.runs.unwrap_or(RUNS),
            until_steady: self.until_steady,
            directory,
            cores: self.cores,
            seed: self.seed,
            kernels,
            kernels_chosen: self.kernels_chosen(),
        }
    }

    /// Outputs of a listing (`--dry-run`, `--programs`): nothing is measured, so `--html` is
    /// refused.
    pub fn outputs_of_a_list(&self) -> Result<Outputs, String> {
        match &self.html {
            Some(_) => Err("--html: nothing is measured, so there is no report".into()),
            None => Outputs::open(self.json.as_deref(), None),
        }
    }

    /// Whether `--kernel` was given.
    pub fn kernels_chosen(&self) -> bool {
        !self.kernel.is_empty()
    }

    /// The options that span the matrix.
    pub fn options(&self) -> Options {
        Options {
            levels: self.level.clone(),
            layouts: self.layout.clone(),
            disks: self.disks.clone(),
            chunks: self.chunk.clone(),
            arrays: self.array.iter().flat_map(|list| list.0.clone()).collect(),
            members: self.members.clone(),
            degraded: self.degraded.clone(),
            buses: self.bus.clone(),
            channels: self.channel.clone(),
            spindles: self.spindle.clone(),
            read_aheads: self.read_ahead.clone(),
            stripe_caches: self.stripe_cache.clone(),
            queue_depths: self.queue_depth.clone(),
            workloads: self.kinds(),
            blocks: self.block.clone(),
            depths: self.depth.clone(),
            jobs: self.jobs.clone(),
            sizes: self.size.clone(),
        }
    }
}

/// Runs the command.
pub fn run(arguments: &BenchArguments, matches: &ArgMatches) -> Result<Ending, String> {
    if arguments.programs {
        let tools = lab::program::tools::described();
        let (text, json) = (lab::program::tools::describe(), crate::output::json_of(&tools));
        return arguments
            .outputs_of_a_list()?
            .write_texts(&text, &json, None)
            .map(|()| Ending::Fine);
    }
    if arguments.kernels {
        return kernels(arguments);
    }
    if arguments.engine {
        return engine(arguments);
    }
    if let Some(file) = &arguments.sweep {
        return crate::sweep::run(arguments, file, matches);
    }
    let kernels = kernels_of(arguments)?;
    let directory = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let settings = arguments.settings(&directory, kernels);
    hold_to_cores(arguments)?;
    let work = BenchPlan::plan(arguments)?;
    if arguments.dry_run {
        return dry_run(&work, &settings);
    }
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let outputs = Outputs::open(arguments.json.as_deref(), arguments.html.as_deref())?;
    let mut keeper = RunRecorder::begin(&arguments.db, || work.head(&settings))?;
    let mut keep = |cells: &[Cell]| {
        if let Some(keeper) = &mut keeper {
            keeper.put(cells);
        }
    };
    let (record, ended) = work.carry_out(arguments, &settings, &stopped, &mut keep);
    let kept = keeper.map(|keeper| keeper.end(ended.is_ok() && !stopped())).transpose();
    // Cells measured before a failure are still written.
    let measured = record.cells.len();
    if ended.is_ok() || measured > 0 {
        outputs.write(&record)?;
    }
    if let Some(run) = kept? {
        say(format_args!("results: {run}"));
    }
    let of_all = work.blocks.as_ref().filter(|_| work.choices.is_empty());
    let of_all = of_all.map_or(String::new(), |plan| format!(" of {}", plan.cells()));
    match ended {
        // Ctrl-C also reaches the tools that the run has started, so they may fail because of it.
        Err(problem) if stopped() => say(format_args!("raidlab: {problem}")),
        Err(problem) if measured == 0 => return Err(problem),
        Err(problem) => {
            let before = format!("{measured}{of_all} cells were measured before the failure");
            return Err(format!("{problem}; {before}"));
        }
        Ok(()) => {}
    }
    if stopped() {
        say(format_args!("raidlab: stopped; {measured}{of_all} cells measured"));
        return Ok(Ending::Stopped);
    }
    Ok(if record.verified() { Ending::Fine } else { Ending::Finding })
}

/// The parity kernels of `--kernel`, or the fastest.
pub fn kernels_of(arguments: &BenchArguments) -> Result<Kernels, String> {
    match arguments.kernel[..] {
        [] => Ok(fastest_kernels()),
        [kernels] => Ok(kernels),
        _ => Err("--kernel: one at a time, except with --kernels".into()),
    }
}

/// Checks that member directories are writable and that the plan fits into memory.
pub fn check_plan(plan: &Plan, arguments: &BenchArguments) -> Result<(), String> {
    let directory = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    check_directory(plan, &directory)?;
    match lab::host::available_memory_bytes() {
        Some(available) => lab::bench::check_memory(plan, arguments.cores.unwrap_or(1), available),
        None => Ok(()),
    }
}

/// Applies `--cores`: pins the process to that many CPUs.
pub fn hold_to_cores(arguments: &BenchArguments) -> Result<(), String> {
    arguments.cores.map_or(Ok(()), hold_to)
}

/// Calibrates the parity kernels, once per process; all other code receives the result.
fn fastest_kernels() -> Kernels {
    let start = Instant::now();
    Kernels::calibrated(|| start.elapsed().as_nanos() as u64)
}

/// `--kernels`: measures the parity kernels, without arrays.
fn kernels(arguments: &BenchArguments) -> Result<Ending, String> {
    let all = || Kernels::available().filter(|&kernels| kernels != Kernels::reference()).collect();
    let chosen = if arguments.kernel.is_empty() { all() } else { arguments.kernel.clone() };
    hold_to_cores(arguments)?;
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let settings = lab::kernels::Settings::usual(chosen, arguments.runs.unwrap_or(RUNS) as usize);
    let outputs = Outputs::open(arguments.json.as_deref(), None)?;
    let table = lab::kernels::run(&settings, &stopped)?;
    outputs.write_texts(&table.text(), &table.to_json(), None)?;
    Ok(if stopped() { Ending::Stopped } else { Ending::Fine })
}

/// `--engine`: measures the engine next to its targets and copy ceilings.
fn engine(arguments: &BenchArguments) -> Result<Ending, String> {
    if let Some(choice) = arguments.choices().first() {
        return Err(format!(
            "--engine: measures block workloads only, and '{choice}' is a program"
        ));
    }
    let area_bytes = match arguments.size[..] {
        [] => ENGINE_AREA_BYTES,
        [bytes] if bytes >= ENGINE_LEAST_BYTES => bytes,
        [_] => return Err("--size: --engine wants 64M or more".into()),
        _ => return Err("--size: one at a time with --engine".into()),
    };
    let kernels = kernels_of(arguments)?;
    let levels = arguments.level.iter().map(|level| match level {
        BenchLevel::Md(level) => Ok(*level),
        BenchLevel::Single => Err("--level single: --engine has rows of arrays only".to_string()),
    });
    let settings = lab::engine_table::Settings {
        sample: Duration::from_secs_f64(arguments.seconds.unwrap_or(ENGINE_SAMPLE_SECONDS)),
        rounds: arguments.runs.unwrap_or(RUNS),
        area_bytes,
        kernels,
        seed: arguments.seed,
        cpus: lab::runner::allowed_cpus()?,
        levels: levels.collect::<Result<_, _>>()?,
        workloads: arguments.kinds(),
    };
    if !settings.has_rows() {
        return Err("--engine: no row has this --level and this --workload".into());
    }
    if let Some(available) = lab::host::available_memory_bytes() {
        settings.check_memory(available)?;
    }
    let stop = signal::watch()?;
    let stopped = || stop.load(Ordering::Relaxed);
    let outputs = Outputs::open(arguments.json.as_deref(), None)?;
    let mut tell = |what: &str| say(format_args!("{what}"));
    let table = lab::engine_table::run(&settings, &stopped, &mut tell)?;
    outputs.write_texts(&table.text(), &table.to_json(), None)?;
    Ok(match (stopped(), table.is_met()) {
        (true, _) => Ending::Stopped,
        (false, true) => Ending::Fine,
        (false, false) => Ending::Finding,
    })
}

/// `--dry-run`: prints arrays, workloads and programs.
fn dry_run(work: &BenchPlan, settings: &Settings<'_>) -> Result<Ending, String> {
    let mut text = String::new();
    for case in work.blocks.iter().flat_map(|plan| &plan.arrays) {
        let names = case.cells.iter().map(|cell| cell.kind.name());
        let names = names.collect::<Vec<_>>().join(", ");
        text += &format!("{}: {names}\n", lab::bench::case_name(case));
    }
    for target in &work.targets {
        let programs = work.choices.iter().map(ToString::to_string);
        let programs = programs.collect::<Vec<_>>().join(", ");
        text += &format!("{}: {programs}\n", target.place.name());
    }
    if let Some(plan) = &work.blocks {
        announce(plan, lab::bench::estimate_seconds(plan, settings));
    }
    print_lines(&text).map(|()| Ending::Fine)
}

fn announce(plan: &Plan, estimate_seconds: f64) {
    for left_out in &plan.left_out {
        say(format_args!("left out: {left_out}"));
    }
    let (arrays, cells) = (plan.arrays.len(), plan.cells());
    let time = show_seconds(estimate_seconds);
    let (arrays, cells) = (counted(arrays, "array"), counted(cells, "cell"));
    say(format_args!("{arrays}, {cells}, about {time}"));
}

/// A number of members.
fn parse_count(text: &str) -> Result<u32, String> {
    let wanted = "a whole number; several are written with commas, as in 4,5,6";
    text.parse().map_err(|_| wanted.to_string())
}

/// `1 array`, `2 arrays`.
fn counted(count: usize, what: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {what}{ending}")
}

/// Checks that every directory of member files exists and is writable.
fn check_directory(plan: &Plan, default: &Path) -> Result<(), String> {
    let members = plan.arrays.iter().flat_map(|array| &array.members);
    for directory in members.filter_map(|member| member.directory()) {
        let directory = directory.unwrap_or(default);
        let probe = directory.join(format!("raidlab-probe-{}", std::process::id()));
        let made = std::fs::File::create(&probe);
        made.map_err(|e| format!("{}: cannot create member files here: {e}", directory.display()))?;
        std::fs::remove_file(&probe)
            .map_err(|e| format!("{}: cannot remove a file here: {e}", directory.display()))?;
    }
    Ok(())
}

/// Pins this process to the first CPUs of its affinity mask.
fn hold_to(cores: u32) -> Result<(), String> {
    let allowed = lab::runner::allowed_cpus()?;
    match allowed.get(..cores as usize) {
        Some(first) => lab::runner::hold_to(first),
        None => Err(format!(
            "--cores {cores}: this process may run on {} CPU(s); use no more",
            allowed.len()
        )),
    }
}
