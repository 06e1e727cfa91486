//! Options of `bench` and `sweep`: those of arrays and block workloads, which are `spec`'s, with
//! those of targets, programs, samples and this process.
//!
//! Invariant: a struct has the options that apply to the same thing, so that `unused_options` needs
//! no list of them. [`MatrixOptions`] is what a sweep file may set; the rest concerns this process
//! and is for the command line only. Called from `bench` and `sweep`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};
use parity::Kernels;
use spec::bench_plan::BenchOptions;
use spec::case::RunConfig;
use spec::matrix::Options;
use spec::matrix::parse::parse_sample;
use spec::members::MemberSet;
use spec::program::ProgramSpec;
use spec::program::Sizing;
use spec::program::timing::Timing;
use spec::target::TargetExpr;
use spec::workload::Kind;

use super::RUNS;
use super::programs::WorkloadName;
use crate::size_args::parse_bytes;

/// Default of `--interval`: sampling interval of the members' counters.
const INTERVAL_SECONDS: f64 = 10.0;

/// The options that a sweep file may set; every combination of their values is run.
#[derive(Args)]
pub struct MatrixOptions {
    #[command(flatten)]
    matrix: Options,
    /// Workloads: seq-read, seq-write, rand-read, rand-write [default: these]; seq-mixed,
    /// rand-mixed (reads and writes, see --read-percent); none, where --background work is to run
    /// alone; or programs, as in bonnie++, dd:bs=2M:fdatasync (`raidlab programs` lists them)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    workload: Vec<WorkloadName>,
    /// Targets, measured one after the other: engine; path:DIR (any file system);
    /// device:/dev/NAME (overwritten; refused while it is in use or holds data; only read, whatever
    /// it holds, if all workloads read); fs:KIND,OPTION,... (a new file system on an array of the
    /// engine, as in fs:ext4,data=journal; root); md:/dev/X+/dev/Y (a new Linux md array; root), or
    /// md alone, on the devices of --members; linux (md of a kernel in model time, on the modelled
    /// disks of --members)
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
    programs: ProgramOptions,
    #[command(flatten)]
    samples: SampleOptions,
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
    /// Keep modelled disks in step with the clock of this machine: without it their block workloads
    /// take model time, which a busy machine does not change
    #[arg(long, help_heading = "Measuring")]
    pub real_time: bool,
    /// Implementation of the parity computation: reference, portable, avx2, gfni-avx2, avx512,
    /// gfni-avx512 [default: the fastest on this CPU, by a calibration of a few milliseconds]
    #[arg(long, value_name = "NAME", value_parser = parse_one_kernels, help_heading = "Measuring")]
    pub parity_impl: Option<Kernels>,
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

/// A number of CPUs.
pub fn parse_cores(text: &str) -> Result<u32> {
    // Shards are numbered with 16 bits.
    match text.parse::<u32>() {
        Ok(cores @ 1..=0xffff) => Ok(cores),
        _ => Err(anyhow!("a number of CPUs is required, 1 or more")),
    }
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
        self.matrix.engine.has_devices()
    }

    /// Whether a set of members has modelled disks; that of no option has.
    pub fn has_modelled(&self) -> bool {
        let sets = &self.matrix.engine.members;
        let mut kinds = sets.iter().flat_map(MemberSet::kinds);
        sets.is_empty() || kinds.any(|member| member.drive().is_some())
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
            matrix: self.matrix.clone().with(|it| {
                it.workloads = self.kinds();
                it.sizes.clone_from(&self.size);
            }),
            targets: self.target.clone(),
            programs: self.choices(),
        }
    }

    /// How all cases are measured; the seed is that of the first repetition.
    pub fn run_config(&self, host: &HostOptions, kernels: Kernels) -> RunConfig {
        let interval = self.programs.interval.unwrap_or(INTERVAL_SECONDS);
        self.matrix.blocks.time(RunConfig {
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
            real_time: host.real_time,
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
        let memory_bytes = host::sys::memory_bytes().unwrap_or(0);
        for size in self.sizes() {
            let scale = Sizing { memory_bytes, size, page_cache: true, ..Sizing::default() };
            for choice in self.choices() {
                choice.program(&scale)?;
            }
        }
        Ok(())
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
