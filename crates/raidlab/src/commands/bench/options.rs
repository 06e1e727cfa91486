//! Options of `bench` and `sweep`, by what they apply to.
//!
//! Invariant: a struct has the options that apply to the same thing, so that `unused_options` needs
//! no list of them. [`MatrixOptions`] is what a sweep file may set; the rest concerns this process
//! and is for the command line only. Called from `bench` and `sweep`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use md::nested::ArrayExpr;
use parity::Kernels;
use spec::bench_plan::BenchOptions;
use spec::buses::Buses;
use spec::case::{BenchLevel, RunConfig};
use spec::matrix::Options;
use spec::members::MemberSet;
use spec::program::ProgramSpec;
use spec::program::Sizing;
use spec::program::timing::Timing;
use spec::target::TargetExpr;
use spec::units::parse_seconds;
use spec::workload::{BackgroundWork, Kind, Rate, RateProcess};

use super::RUNS;
use super::programs::WorkloadName;
use crate::size_args::parse_bytes;

/// Default of `--seconds`: length of a sample.
const SAMPLE_SECONDS: f64 = 0.7;
/// Default of `--warm-up`: time before the first sample.
const WARM_UP_SECONDS: f64 = 0.3;
/// Default of `--interval`: sampling interval of the members' counters.
const INTERVAL_SECONDS: f64 = 10.0;

/// The options that a sweep file may set; every combination of their values is run.
#[derive(Args)]
pub struct MatrixOptions {
    #[command(flatten)]
    arrays: ArrayOptions,
    #[command(flatten)]
    engine: EngineOptions,
    /// Workloads: seq-read, seq-write, rand-read, rand-write [default: these]; seq-mixed,
    /// rand-mixed (reads and writes, see --read-percent); none, where --background work is to run
    /// alone; or programs, as in bonnie++, dd:bs=2M:fdatasync (`raidlab programs` lists them)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    workload: Vec<WorkloadName>,
    /// Targets, measured one after the other: engine; path:DIR (any file system);
    /// device:/dev/NAME (overwritten; refused while it is in use or holds data; only read, whatever
    /// it holds, if all workloads read); fs:KIND,OPTION,... (a new file system on an array of the
    /// engine, as in fs:ext4,data=journal; root); md:/dev/X+/dev/Y (a new Linux md array; root), or
    /// md alone, on the devices of --members
    #[arg(long, default_value = "engine")]
    pub target: Vec<TargetExpr>,
    /// Used size of the array, members are sized to fit; for programs, total size of all files
    /// [default: members of 128M, fully used, on block devices of 1G; on other targets 1G, for
    /// programs twice the memory; all of a device that is only read]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_bytes)]
    size: Vec<u64>,
    /// Samples per cell; a program is run N times, each time in a clean state, and each run is one
    /// sample of its phases [default: 5; for programs 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: Option<u32>,
    #[command(flatten)]
    blocks: BlockOptions,
    #[command(flatten)]
    mixed: MixedOptions,
    #[command(flatten)]
    background: BackgroundOptions,
    #[command(flatten)]
    programs: ProgramOptions,
    #[command(flatten)]
    samples: SampleOptions,
}

/// Options of arrays, of the engine and of Linux md.
#[derive(Args)]
pub struct ArrayOptions {
    /// Levels: single (one disk), linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[arg(long, value_delimiter = ',', value_name = "LEVEL")]
    level: Vec<BenchLevel>,
    /// Numbers of members [default: 4, or the number in --members]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = parse_count)]
    disks: Vec<u32>,
    /// Chunk sizes [default: 256K]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_bytes)]
    chunk: Vec<u64>,
    /// Layouts by md's names, as in left-symmetric, n2, f2, o2 [default: md's default]
    #[arg(long, value_delimiter = ',', value_name = "LAYOUT", help_heading = "Arrays")]
    layout: Vec<String>,
    /// Arrays as expressions, nested ones too: raid1(raid0(2),raid0(2)), raid10,f2,64K(4)
    #[arg(long, value_name = "EXPR", help_heading = "Arrays")]
    array: Vec<ArrayList>,
    /// Fail N members after prefill; of nested arrays, outermost members
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = parse_count,
          help_heading = "Arrays")]
    degraded: Vec<u32>,
}

/// Options of arrays of the engine.
#[derive(Args)]
pub struct EngineOptions {
    /// Member sets: mem, null, file, file:DIR, paced:PROFILE, paced:FILE.toml, paced:PROFILE@0.5,
    /// paced:PROFILE@stretch, paced:PROFILE:MEMBER, fault:RULE:MEMBER; counted sets as
    /// paced:hdd-2007*3+hdd-2009*2; block devices as /dev/sdb+/dev/sdc (overwritten; refused while
    /// in use or with data), of which each array has the first [default: paced:hdd-2007]
    #[arg(long, value_delimiter = ',', value_name = "SET")]
    members: Vec<MemberSet>,
    /// Stripe cache size of RAID 4, 5 and 6 [default: 32M]
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_bytes,
          help_heading = "Arrays")]
    stripe_cache: Vec<u64>,
    /// Bandwidth of a bus shared by all paced members, as in 133MB/s; or of buses of some of
    /// them, as in 133MB/s*4+250MB/s*2
    #[arg(long, value_delimiter = ',', value_name = "RATE", help_heading = "Members")]
    bus: Vec<Buses>,
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
}

/// Options of block workloads.
#[derive(Args)]
pub struct BlockOptions {
    /// Block sizes [default: 1M, or whole stripes near it for seq-write and seq-mixed; 4K for
    /// random]
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
    #[arg(long, value_delimiter = ',', value_name = "SIZE", value_parser = parse_bytes,
          help_heading = "Workload")]
    read_ahead: Vec<u64>,
    /// Stated load, open loop: requests per second that arrive on a schedule, of all jobs and CPUs
    /// together; latency counts from the arrival, --depth limits those in flight
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          value_parser = parse_rate_iops)]
    rate_iops: Vec<u32>,
    /// Intervals between these arrivals: linear (equal), poisson (independent arrivals)
    #[arg(
        long,
        value_name = "PROCESS",
        default_value = "linear",
        help_heading = "Workload",
        requires = "rate_iops"
    )]
    rate_process: RateProcess,
    /// Length of a sample [default: 0.7; of sequential workloads on modelled disks, as long as a
    /// pass over the array allows]
    #[arg(long, value_name = "TIME", value_parser = parse_sample, help_heading = "Measuring")]
    seconds: Option<f64>,
    /// Time before the first sample [default: 0.3]
    #[arg(long, value_name = "TIME", value_parser = parse_warm_up, help_heading = "Measuring")]
    warm_up: Option<f64>,
}

/// Options of mixed block workloads.
#[derive(Args)]
pub struct MixedOptions {
    /// Share of the requests of seq-mixed and rand-mixed that read, percent; the others write
    /// [default: 70]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          value_parser = clap::value_parser!(u8).range(1..=99))]
    read_percent: Vec<u8>,
}

/// Background work of arrays of the engine.
#[derive(Args)]
pub struct BackgroundOptions {
    /// Background work of the array while block workloads run: rebuild (a member is replaced),
    /// scrub, resync; --workload none measures it alone
    #[arg(long, value_delimiter = ',', value_name = "WORK", help_heading = "Workload")]
    pub background: Vec<BackgroundWork>,
    /// Share of the time that background work leaves to the workload, percent [default: 75]
    #[arg(long, value_delimiter = ',', value_name = "N", help_heading = "Workload",
          requires = "background", value_parser = clap::value_parser!(u8).range(0..=99))]
    foreground_share: Vec<u8>,
}

/// Options of the samples of a cell.
#[derive(Args)]
pub struct SampleOptions {
    /// Take samples (of programs: runs), at most MAX, until the last five are in steady state
    #[arg(long, value_name = "MAX", num_args = 0..=1, default_missing_value = "25",
          help_heading = "Measuring", value_parser = clap::value_parser!(u32).range(5..=10_000))]
    pub until_steady: Option<u32>,
    /// Seed of random offsets and of the written data; incremented by 1 per repetition
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Measuring")]
    pub seed: u64,
}

/// Options of programs.
#[derive(Args)]
pub struct ProgramOptions {
    /// Drop the kernel's page cache before each phase of a program; needs root
    #[arg(long, help_heading = "Workload")]
    drop_caches: bool,
    /// Sampling interval of device counters (steady-state programs) [default: 10]
    #[arg(long, value_name = "TIME", value_parser = parse_sample, help_heading = "Measuring")]
    interval: Option<f64>,
}

/// Options of this process: never in a sweep file.
#[derive(Args)]
pub struct HostOptions {
    /// Directory for member files without a directory of their own [default: $TMPDIR or /tmp]
    #[arg(long, value_name = "DIR", help_heading = "Members")]
    pub dir: Option<PathBuf>,
    /// Overwrite existing data on the device of --target device: and on devices of --members
    #[arg(long, help_heading = "Workload")]
    pub destroy_contents: bool,
    /// Pin to N CPUs, one thread each; --depth and --jobs apply per thread [default: one unpinned
    /// thread]
    #[arg(long, value_name = "N", value_parser = parse_cores, help_heading = "Measuring")]
    pub cores: Option<u32>,
    /// Implementation of the parity computation: reference, portable, avx2, gfni-avx2, avx512,
    /// gfni-avx512 [default: the fastest on this CPU, by a calibration of a few milliseconds]
    #[arg(long, value_name = "NAME", value_parser = parse_one_kernels, help_heading = "Measuring")]
    pub parity_impl: Option<Kernels>,
}

/// A comma-separated list of array expressions. Expressions contain commas: the list is split only
/// at commas after a closing bracket.
#[derive(Clone)]
struct ArrayList(Vec<ArrayExpr>);

impl FromStr for ArrayList {
    type Err = Error;

    fn from_str(text: &str) -> Result<ArrayList> {
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
        let exprs = parts.into_iter().map(|part| part.parse().map_err(Error::new));
        Ok(ArrayList(exprs.collect::<Result<_>>()?))
    }
}

/// Parity kernels by name.
pub fn parse_kernels(name: &str) -> Result<Kernels> {
    Kernels::by_name(name).map_err(Error::msg)
}

fn parse_one_kernels(name: &str) -> Result<Kernels> {
    if name.contains(',') {
        bail!("one at a time; `raidlab bench kernels` takes several");
    }
    parse_kernels(name)
}

fn parse_block(text: &str) -> Result<u64> {
    let bytes = parse_bytes(text)?;
    if bytes == 0 || bytes % 512 != 0 || bytes > 16 << 20 {
        bail!("a block is a multiple of 512 bytes, at most 16M");
    }
    Ok(bytes)
}

fn parse_rate_iops(text: &str) -> Result<u32> {
    match text.parse::<u32>() {
        Ok(rate @ 1..=Rate::MOST) => Ok(rate),
        _ => Err(anyhow!("requests per second, 1 to {}", Rate::MOST)),
    }
}

/// A number of CPUs.
pub fn parse_cores(text: &str) -> Result<u32> {
    // Shards are numbered with 16 bits.
    match text.parse::<u32>() {
        Ok(cores @ 1..=0xffff) => Ok(cores),
        _ => Err(anyhow!("a number of CPUs is required, 1 or more")),
    }
}

/// The length of a sample, seconds.
pub fn parse_sample(text: &str) -> Result<f64> {
    let seconds = parse_seconds(text)?;
    if (1e-3..=86_400.0).contains(&seconds) {
        return Ok(seconds);
    }
    Err(anyhow!("a sample takes 1ms to 86400s (a day)"))
}

fn parse_warm_up(text: &str) -> Result<f64> {
    if matches!(text, "0" | "0s") {
        return Ok(0.0);
    }
    Ok(parse_seconds(text)?)
}

/// A number of members.
fn parse_count(text: &str) -> Result<u32> {
    let wanted = || anyhow!("a whole number; several are written with commas, as in 4,5,6");
    text.parse().map_err(|_| wanted())
}

/// Long names of the options of a struct.
pub fn names_of<A: Args>() -> Vec<String> {
    let command = A::augment_args(Command::default());
    command.get_arguments().filter_map(|argument| argument.get_long()).map(String::from).collect()
}

/// One matrix of a command line or a sweep file.
pub struct Matrix {
    /// Its options.
    pub options: MatrixOptions,
    /// Long names of the options that are given.
    given: Vec<String>,
}

impl Matrix {
    /// `matches` are those that the options were made of.
    pub fn new(options: MatrixOptions, matches: &ArgMatches) -> Matrix {
        let command = MatrixOptions::augment_args(Command::default());
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let arguments = command.get_arguments().filter(|arg| is_given(arg.get_id().as_str()));
        let given = arguments.filter_map(|argument| argument.get_long()).map(String::from);
        Matrix { given: given.collect(), options }
    }

    /// Whether an option is given.
    pub fn has(&self, option: &str) -> bool {
        self.given.iter().any(|given| given == option)
    }
}

impl MatrixOptions {
    /// The block workloads to run.
    pub fn kinds(&self) -> Vec<Kind> {
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

    /// Whether members of the engine's arrays are block devices.
    pub fn has_devices(&self) -> bool {
        let mut kinds = self.engine.members.iter().flat_map(MemberSet::kinds);
        kinds.any(|member| member.device().is_some())
    }

    /// Whether block workloads read and write.
    pub fn mixes(&self) -> bool {
        self.kinds().into_iter().any(Kind::is_mixed)
    }

    /// Whether block workloads run.
    pub fn moves_blocks(&self) -> bool {
        self.bench_options().moves_blocks()
    }

    /// All that is measured.
    pub fn bench_options(&self) -> BenchOptions {
        BenchOptions {
            arrays: self.options(),
            targets: self.target.clone(),
            programs: self.choices(),
        }
    }

    /// How all cases are measured; the seed is that of the first repetition.
    pub fn run_config(&self, host: &HostOptions, kernels: Kernels) -> RunConfig {
        let interval = self.programs.interval.unwrap_or(INTERVAL_SECONDS);
        self.blocks.time(RunConfig {
            runs: self.runs.unwrap_or(RUNS),
            until_steady: self.samples.until_steady,
            phases: Timing {
                drop_caches: self.programs.drop_caches,
                interval: Duration::from_secs_f64(interval),
                runs: self.runs.unwrap_or(1),
                until_steady: self.samples.until_steady,
                ..Timing::default()
            },
            directory: host.directory(),
            cores: host.cores,
            seed: self.samples.seed,
            destroy_contents: host.destroy_contents,
            kernels,
            kernels_chosen: host.parity_impl.is_some(),
            // Times are those of the options.
            ..RunConfig::quick()
        })
    }

    /// Sizes of a program's files, bytes; one `None` without `--size`.
    fn sizes(&self) -> Vec<Option<u64>> {
        match self.size[..] {
            [] => vec![None],
            _ => self.size.iter().copied().map(Some).collect(),
        }
    }

    /// Refuses programs that are invalid on every target.
    ///
    /// # Errors
    /// Names the program and its option.
    pub fn check_programs(&self) -> Result<()> {
        let memory_bytes = sys::memory_bytes().unwrap_or(0);
        for size in self.sizes() {
            let scale = Sizing { memory_bytes, size, page_cache: true, ..Sizing::default() };
            for choice in self.choices() {
                choice.program(&scale)?;
            }
        }
        Ok(())
    }

    /// The options that span the matrix.
    fn options(&self) -> Options {
        let MatrixOptions { arrays, engine, blocks, mixed, background, .. } = self;
        spanned(arrays, engine, (blocks, mixed, background), self.kinds(), &self.size)
    }
}

/// The matrix of arrays and workloads that groups of options span.
pub fn spanned(
    arrays: &ArrayOptions,
    engine: &EngineOptions,
    (blocks, mixed, background): (&BlockOptions, &MixedOptions, &BackgroundOptions),
    workloads: Vec<Kind>,
    sizes: &[u64],
) -> Options {
    Options {
        levels: arrays.level.clone(),
        layouts: arrays.layout.clone(),
        disks: arrays.disks.clone(),
        chunks: arrays.chunk.clone(),
        arrays: arrays.array.iter().flat_map(|list| list.0.clone()).collect(),
        members: engine.members.clone(),
        degraded: arrays.degraded.clone(),
        buses: engine.bus.clone(),
        channels: engine.channel.clone(),
        spindles: engine.spindle.clone(),
        read_aheads: blocks.read_ahead.clone(),
        stripe_caches: engine.stripe_cache.clone(),
        queue_depths: engine.queue_depth.clone(),
        workloads,
        blocks: blocks.block.clone(),
        depths: blocks.depth.clone(),
        jobs: blocks.jobs.clone(),
        read_percents: mixed.read_percent.clone(),
        rates: blocks.rate_iops.clone(),
        rate_process: blocks.rate_process,
        backgrounds: background.background.clone(),
        foreground_percents: background.foreground_share.clone(),
        sizes: sizes.to_vec(),
    }
}

impl BlockOptions {
    /// Warm-up and length of a sample of block workloads, in a configuration of a run.
    pub fn time(&self, run: RunConfig) -> RunConfig {
        RunConfig {
            warm_up: Duration::from_secs_f64(self.warm_up.unwrap_or(WARM_UP_SECONDS)),
            sample: Duration::from_secs_f64(self.seconds.unwrap_or(SAMPLE_SECONDS)),
            sample_given: self.seconds.is_some() || self.warm_up.is_some(),
            ..run
        }
    }
}

impl HostOptions {
    /// The directory of member files.
    pub fn directory(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The parity kernels of `--parity-impl`, or the fastest.
    pub fn kernels(&self) -> Kernels {
        self.parity_impl.unwrap_or_else(fastest_kernels)
    }
}

/// Calibrates the parity kernels, once per process; all other code receives the result.
pub fn fastest_kernels() -> Kernels {
    let start = Instant::now();
    Kernels::calibrated(|| start.elapsed().as_nanos() as u64)
}
