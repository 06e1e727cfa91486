//! Options of arrays and block workloads, by what they apply to: what the command line, a sweep
//! file and a library's caller set, each once.
//!
//! Invariant: a field has the name of its option, and its values multiply; an empty list is the
//! default. A struct has the options that apply to the same thing, so that unused ones are found
//! without a list of them. With the feature `clap` they are arguments of a command.

use std::str::FromStr;
use std::time::Duration;

use md::nested::{ArrayExpr, ExprError};

#[cfg(feature = "clap")]
use super::parse::{
    parse_block, parse_bytes, parse_count, parse_rate_iops, parse_sample, parse_warm_up,
};
use crate::buses::Buses;
use crate::case::{BenchLevel, Knobs, RunConfig};
use crate::members::MemberSet;
use crate::workload::{BackgroundWork, Kind, RateProcess};

/// Default of `--seconds`: length of a sample.
const SAMPLE_SECONDS: f64 = 0.7;
/// Default of `--warm-up`: time before the first sample.
const WARM_UP_SECONDS: f64 = 0.3;

/// Options of arrays and of their block workloads.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Options {
    /// The arrays.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub arrays: ArrayOptions,
    /// Their members, and what is the engine's.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub engine: EngineOptions,
    /// Block workloads; a verb has an option `--workload` of its own.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub workloads: Vec<Kind>,
    /// Bytes used of the array; a verb has an option `--size` of its own.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub sizes: Vec<u64>,
    /// The requests of the workloads.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub blocks: BlockOptions,
    /// Those of mixed workloads.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub mixed: MixedOptions,
    /// What the array does besides.
    #[cfg_attr(feature = "clap", command(flatten))]
    pub background: BackgroundOptions,
}

impl Options {
    /// The same with other values in some options.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Options)) -> Options {
        set(&mut self);
        self
    }
}

/// Options of arrays, of the engine and of Linux md.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ArrayOptions {
    /// Levels: single (one disk), linear, raid0, raid1, raid4, raid5, raid6, raid10
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "LEVEL"))]
    pub level: Vec<BenchLevel>,
    /// Numbers of members [default: 4, or the number in --members]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        value_parser = parse_count))]
    pub disks: Vec<u32>,
    /// Chunk sizes [default: 256K]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "SIZE",
        value_parser = parse_bytes))]
    pub chunk: Vec<u64>,
    /// Layouts by md's names, as in left-symmetric, n2, f2, o2 [default: md's default]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_delimiter = ',', value_name = "LAYOUT", help_heading = "Arrays")
    )]
    pub layout: Vec<String>,
    /// Arrays as expressions, nested ones too: raid1(raid0(2),raid0(2)), raid10,f2,64K(4)
    #[cfg_attr(feature = "clap", arg(long, value_name = "EXPR", help_heading = "Arrays"))]
    pub array: Vec<ArrayList>,
    /// Fail N members after prefill; of nested arrays, outermost members
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        value_parser = parse_count, help_heading = "Arrays"))]
    pub degraded: Vec<u32>,
}

impl ArrayOptions {
    /// The arrays that are given as expressions.
    pub fn exprs(&self) -> impl Iterator<Item = &ArrayExpr> {
        self.array.iter().flat_map(|list| &list.0)
    }
}

/// Options of arrays of the engine.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct EngineOptions {
    /// Member sets: mem, null, file, file:DIR, paced:PROFILE, paced:FILE.toml, paced:PROFILE@0.5,
    /// paced:PROFILE@stretch, paced:PROFILE:MEMBER, fault:RULE:MEMBER; counted sets as
    /// paced:hdd-2007*3+hdd-2009*2; block devices as /dev/sdb+/dev/sdc (overwritten; refused while
    /// in use or with data), of which each array has the first [default: paced:hdd-2007]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "SET"))]
    pub members: Vec<MemberSet>,
    /// Stripe cache size of RAID 4, 5 and 6 [default: 32M]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "SIZE",
        value_parser = parse_bytes, help_heading = "Arrays"))]
    pub stripe_cache: Vec<u64>,
    /// Bandwidth of a bus shared by all paced members, as in 133MB/s; or of buses of some of
    /// them, as in 133MB/s*4+250MB/s*2
    #[cfg_attr(
        feature = "clap",
        arg(long, value_delimiter = ',', value_name = "RATE", help_heading = "Members")
    )]
    pub bus: Vec<Buses>,
    /// Paced members per channel, as on parallel ATA: of N adjacent members, one at a time has a
    /// command outstanding
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Members", value_parser = clap::value_parser!(u32).range(1..=255)))]
    pub channel: Vec<u32>,
    /// Paced members per disk: N adjacent members are partitions of one disk and share its head
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Members", value_parser = clap::value_parser!(u32).range(1..=255)))]
    pub spindle: Vec<u32>,
    /// Queue depth of each member: maximum of operations in flight [default: unlimited]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Members", value_parser = clap::value_parser!(u32).range(1..)))]
    pub queue_depth: Vec<u32>,
}

impl EngineOptions {
    /// Every combination of knobs of an array; those that mean nothing to it do not multiply.
    pub fn knobs(&self, array: &ArrayExpr) -> Vec<Knobs> {
        let usual = Knobs::usual(array);
        let mut all = vec![usual];
        if usual.stripe_cache_bytes.is_some() {
            multiply(&mut all, &self.stripe_cache, |it, bytes| it.stripe_cache_bytes = Some(bytes));
        }
        multiply(&mut all, &self.queue_depth, |it, depth| it.queue_depth = Some(depth));
        all
    }

    /// Whether some members are block devices.
    pub fn has_devices(&self) -> bool {
        let mut kinds = self.members.iter().flat_map(MemberSet::kinds);
        kinds.any(|member| member.device().is_some())
    }
}

/// Each of `all` with each of the given values; as they are where none is given.
fn multiply<T: Copy>(all: &mut Vec<Knobs>, given: &[T], set: fn(&mut Knobs, T)) {
    let with = |one: &Knobs, value| {
        let mut one = *one;
        set(&mut one, value);
        one
    };
    if !given.is_empty() {
        *all =
            all.iter().flat_map(|one| given.iter().map(move |value| with(one, *value))).collect();
    }
}

/// Options of block workloads.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct BlockOptions {
    /// Block sizes [default: 1M, or whole stripes near it for seq-write and seq-mixed; 4K for
    /// random]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "SIZE",
        value_parser = parse_block, help_heading = "Workload"))]
    pub block: Vec<u64>,
    /// I/O depth: blocks in flight per job [default: 4 sequential, 16 random; more on mem]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Workload", value_parser = clap::value_parser!(u32).range(1..=1024)))]
    pub depth: Vec<u32>,
    /// Concurrent jobs; sequential jobs work on separate parts of the array [default: 1]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Workload", value_parser = clap::value_parser!(u32).range(1..=256)))]
    pub jobs: Vec<u32>,
    /// Read-ahead of sequential readers, beyond their I/O depth [default: 0]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "SIZE",
        value_parser = parse_bytes, help_heading = "Workload"))]
    pub read_ahead: Vec<u64>,
    /// Stated load, open loop: requests per second that arrive on a schedule, of all jobs and CPUs
    /// together; latency counts from the arrival, --depth limits those in flight
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Workload", value_parser = parse_rate_iops))]
    pub rate_iops: Vec<u32>,
    /// Intervals between these arrivals: linear (equal), poisson (independent arrivals)
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "PROCESS",
            default_value = "linear",
            help_heading = "Workload",
            requires = "rate_iops"
        )
    )]
    pub rate_process: RateProcess,
    /// Length of a sample [default: 0.7; of sequential workloads on modelled disks, as long as a
    /// pass over the array allows]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = parse_sample,
        help_heading = "Measuring"))]
    pub seconds: Option<f64>,
    /// Time before the first sample [default: 0.3]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = parse_warm_up,
        help_heading = "Measuring"))]
    pub warm_up: Option<f64>,
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

/// Options of mixed block workloads.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct MixedOptions {
    /// Share of the requests of seq-mixed and rand-mixed that read, percent; the others write
    /// [default: 70]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Workload", value_parser = clap::value_parser!(u8).range(1..=99)))]
    pub read_percent: Vec<u8>,
}

/// Background work of arrays of the engine.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct BackgroundOptions {
    /// Background work of the array while block workloads run: rebuild (a member is replaced),
    /// scrub, resync; --workload none measures it alone
    #[cfg_attr(
        feature = "clap",
        arg(long, value_delimiter = ',', value_name = "WORK", help_heading = "Workload")
    )]
    pub background: Vec<BackgroundWork>,
    /// Share of the time that background work leaves to the workload, percent [default: 75]
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "N",
        help_heading = "Workload", requires = "background",
        value_parser = clap::value_parser!(u8).range(0..=99)))]
    pub foreground_share: Vec<u8>,
}

/// A comma-separated list of array expressions. Expressions contain commas: the list is split only
/// at commas after a closing bracket.
#[derive(Clone, Debug)]
pub struct ArrayList(Vec<ArrayExpr>);

impl FromStr for ArrayList {
    type Err = ExprError;

    fn from_str(text: &str) -> Result<ArrayList, ExprError> {
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
        parts.into_iter().map(str::parse).collect::<Result<_, _>>().map(ArrayList)
    }
}
