//! The record: what `bench --json` writes, and what reports, comparisons and other tools read.
//!
//! Invariant: the names and meanings here are stable. Fields are only ever added; a field that is
//! missing in an older record reads as unknown, an unknown field is ignored.
//! Unknown values are `null`, never a made-up number. Bytes and seconds are stored; rates are
//! 10^6 bytes per second.
//!
//! Written by the runner; read by `pivot`, `table` and `html`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use md::Level;
use serde::{Deserialize, Serialize, Serializer};
use spec::case::{BenchLevel, Knobs};
use spec::target::TargetKind;
use spec::workload::AccessKind;

pub use crate::bins::LatencyBins;
pub use crate::foreground::ForegroundAlone;
use crate::host::Host;
pub use crate::load::{ItemTimes, Load, LoadPoint, LoadWindow};
pub use crate::series::{MemberSeries, Series};
use crate::stats;
pub use crate::stats::{Latency, LatencyPoint};
use crate::words::{LayoutName, Word};

/// A run of `bench`: host, start time, and every measured cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of raidlab that wrote the record.
    pub raidlab: String,
    /// The machine.
    pub host: Host,
    /// Start time of the run, RFC 3339 in UTC ([`rfc3339`]).
    pub started: String,
    /// The cells, in the order measured.
    pub cells: Vec<Cell>,
    /// Where several machines have measured: each of them, by host name; `host` is empty then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
}

/// One array under one workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Kind of place: `engine`, `path`, `device`, `fs` or `kernel`.
    pub target: Word<TargetKind>,
    /// `single`, `linear`, `raid0`, `raid1`, `raid4`, `raid5`, `raid6`, `raid10`; of a nested array
    /// the outermost level. Empty where it is unknown.
    pub level: Word<BenchLevel>,
    /// md's name of the layout (RAID 10: `n2`, `f2`, `o2`); `None` for levels without layouts.
    pub layout: Option<Word<LayoutName>>,
    /// Members of the array (nested: leaves).
    pub disks: u32,
    /// The member set, as on the command line: `paced:hdd-2007`, `mem`.
    pub members: String,
    /// Chunk size in KiB; `None` for levels without chunks.
    pub chunk_kib: Option<u64>,
    /// Number of missing members.
    pub degraded: u32,
    /// `seq-read`, `seq-write`, `rand-read`, `rand-write`, `seq-mixed`, `rand-mixed`; of a phase of
    /// a program also others.
    pub workload: Word<AccessKind>,
    /// Request size, in KiB.
    #[serde(serialize_with = "short_number")]
    pub block_kib: f64,
    /// Requests that each job keeps in flight.
    pub depth: u32,
    /// Number of jobs.
    pub jobs: u32,
    /// Every sample, in the order taken.
    pub samples: Vec<Sample>,
    /// Median of the samples' rates, MB/s.
    pub mb_per_s: f64,
    /// Median of the samples' requests per second.
    pub iops: f64,
    /// Latency of the requests, over all samples: from submission to completion; under a stated
    /// load (`rate_iops`) the response time, from the scheduled arrival to completion.
    pub latency_us: Option<Latency>,
    /// CPU time of this process over the samples, user and system, seconds.
    pub cpu_process_s: Option<f64>,
    /// CPU time of the whole machine over the samples, seconds: this process, the kernel's threads
    /// and interrupts, without other processes. `None`, with the reason in `cpu_system_note`, where
    /// it cannot be determined.
    pub cpu_system_s: Option<f64>,
    /// `cpu_process_s` per GiB (2^30 bytes) that the samples moved.
    pub cpu_s_per_gib: Option<f64>,
    /// Whether the last five samples are a steady window ([`stats::steady`]); `None` with too few
    /// samples to say.
    pub steady: Option<bool>,
    /// Whether all read data matched the written data; `None` where nothing can be verified,
    /// because the members store nothing.
    pub verified: Option<bool>,
    /// Traffic at each member, below the engine, in slot order (nested: leaf order).
    pub per_member: Vec<MemberTraffic>,
    /// Warnings about the figure, each with a remedy.
    pub warnings: Vec<String>,

    // What follows is additive: absent in a record of another tool, it reads as `None`.
    /// The expression of a nested array: `raid1(raid0(2),raid0(2))`.
    #[serde(default)]
    pub array: Option<String>,
    /// Read-ahead above the array, KiB.
    #[serde(default)]
    pub read_ahead_kib: Option<u64>,
    /// Knobs of the engine for the array.
    #[serde(flatten)]
    pub knobs: Knobs,
    /// CPU cores that the run was pinned to.
    #[serde(default)]
    pub cores: Option<u32>,
    /// Rate of the bus that the members share, MB/s.
    #[serde(default)]
    pub bus_mb_per_s: Option<f64>,
    /// Buses of some of the members each, as on the command line: `133MB/s*4+250MB/s*2`.
    #[serde(default)]
    pub buses: Option<String>,
    /// Disks on each channel, which serves one command at a time.
    #[serde(default)]
    pub disks_per_channel: Option<u32>,
    /// Members that are parts of one disk.
    #[serde(default)]
    pub members_per_spindle: Option<u32>,
    /// Bound of the members if each were a separate disk on a separate channel, MB/s; only where
    /// they share disks or channels.
    #[serde(default)]
    pub unshared_bound_mb_per_s: Option<f64>,
    /// Size of a member, bytes (the smallest, if they differ).
    #[serde(default)]
    pub member_bytes: Option<u64>,
    /// Where the members lie on their drives: `window@0`, `window@0.5`, `stretch`.
    #[serde(default)]
    pub placement: Option<String>,
    /// What the members could deliver together for this access pattern, MB/s (`model::bound`).
    #[serde(default)]
    pub bound_mb_per_s: Option<f64>,
    /// `mb_per_s / bound_mb_per_s`; `None` also where the stated load is less than the bound.
    #[serde(default)]
    pub bound_share: Option<f64>,
    /// The limiting factor at the bound.
    #[serde(default)]
    pub bound_note: Option<String>,
    /// `mb_per_s` over that of the ordinary disk under the same workload.
    #[serde(default)]
    pub ratio_to_single: Option<f64>,
    /// Number of operations that the backing store served later than modelled.
    #[serde(default)]
    pub late_ops: Option<u64>,
    /// Every how many-th read was checked while the clock ran (1: all). More than 1, and after
    /// writes: everything was read back and checked afterwards.
    #[serde(default)]
    pub checked_every: Option<u32>,
    /// The generator's own cost against a null target, ns per request.
    #[serde(default)]
    pub generator_ns_per_op: Option<f64>,
    /// Smallest and largest of the samples' rates.
    #[serde(default)]
    pub spread: Option<Spread>,
    /// The program that the cell is a phase of: `bonnie++-2.00`.
    #[serde(default)]
    pub program: Option<String>,
    /// The phase: `put-block`, `seeks`. `workload` says which kind of access it is.
    #[serde(default)]
    pub phase: Option<String>,
    /// The program as given, with its options: `dd:bs=64K:fdatasync`; the same for all
    /// its phases.
    #[serde(default)]
    pub item: Option<String>,
    /// The place and its configuration; `None` for the engine in process.
    #[serde(default)]
    pub place: Option<Place>,
    /// Size of all files of the program, bytes; of a block workload on a target that is not the
    /// engine, size of the area that it uses.
    #[serde(default)]
    pub file_bytes: Option<u64>,
    /// Confidence interval of the median rate, MB/s, with the level `interval_coverage`; `None`
    /// where there are too few samples for one of 90 %.
    #[serde(default)]
    pub interval: Option<Spread>,
    /// Confidence level of `interval`; `None` also in older records, whose intervals were
    /// bootstrapped.
    #[serde(default)]
    pub interval_coverage: Option<f64>,
    /// `cpu_process_s` over the wall clock: what bonnie prints as %CPU, as a fraction.
    #[serde(default)]
    pub cpu_process_share: Option<f64>,
    /// `cpu_system_s` per GiB (2^30 bytes) that the samples moved.
    #[serde(default)]
    pub machine_cpu_s_per_gib: Option<f64>,
    /// Why `cpu_system_s` is unknown.
    #[serde(default)]
    pub cpu_system_note: Option<String>,
    /// CPUs that other processes used during the samples, on average.
    #[serde(default)]
    pub others_cpus: Option<f64>,
    /// CPU time of each thread that used any over the samples, the busiest first: of this process,
    /// and of the kernel.
    #[serde(default)]
    pub cpu_threads: Vec<ThreadTime>,
    /// Rate of each worker of a program's phase over its own time, MB/s.
    #[serde(default)]
    pub workers_mb_per_s: Vec<f64>,
    /// The cache that the figure measures instead of the members.
    #[serde(default)]
    pub cached: Option<String>,
    /// Counters over time.
    #[serde(default)]
    pub series: Option<Series>,
    /// Findings that the evidence in this cell supports.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Utilization of each member during the samples, in the order of `per_member`.
    #[serde(default)]
    pub member_load: Vec<MemberLoad>,
    /// Background work of an array of Linux md during the cell.
    #[serde(default)]
    pub sync: Option<SyncRun>,
    /// The stripe cache of an array of Linux md during the cell.
    #[serde(default)]
    pub stripe_cache: Option<StripeCacheUse>,
    /// Limit of samples with `--until-steady`; `None`: a fixed number was taken.
    #[serde(default)]
    pub rounds_max: Option<u32>,
    /// The samples are intervals inside the run in which all its workers were active. CPU time,
    /// load and latency cover the whole run, so they cannot be combined with the samples.
    #[serde(default)]
    pub steady_window: bool,
    /// Of a program: whether the kernel's caches were dropped before the phase; `None` where I/O
    /// does not pass through them.
    #[serde(default)]
    pub caches_dropped: Option<bool>,
    /// Of a phase that is sampled while it runs: the interval, seconds.
    #[serde(default)]
    pub read_off_s: Option<f64>,
    /// Bytes that the program moved during samples which count the members' bytes: these include
    /// copies, parity and other use of the disks, and exclude data that stayed in a cache. `None`:
    /// the samples count the program's bytes.
    #[serde(default)]
    pub program_bytes: Option<u64>,
    /// Number of the repetition of the whole matrix, from 1; `None`: there was only one.
    #[serde(default)]
    pub repetition: Option<u32>,
    /// Seed of addresses and data: a different one in each repetition.
    #[serde(default)]
    pub random_seed: Option<u64>,
    /// Time before the first sample, seconds.
    #[serde(default)]
    pub warm_up_s: Option<f64>,
    /// Each sample is a separate run, on newly created files.
    #[serde(default)]
    pub samples_are_runs: bool,
    /// Latency distribution by percentile, which `latency_us` summarizes.
    #[serde(default)]
    pub latency_curve: Vec<LatencyPoint>,
    /// The distribution of `latency_us`, reads and writes together; `None` in records of older
    /// versions.
    #[serde(default)]
    pub latency_bins: Option<LatencyBins>,
    /// The distribution of `service_us`.
    #[serde(default)]
    pub service_bins: Option<LatencyBins>,
    /// Stated load: requests per second that arrive on a schedule, of all jobs and CPUs together;
    /// `None`: a closed loop.
    #[serde(default)]
    pub rate_iops: Option<u32>,
    /// Intervals between the arrivals: `linear` or `poisson`.
    #[serde(default)]
    pub rate_process: Option<String>,
    /// Under a stated load: service time of the requests, from submission to completion, without
    /// the time that they waited to be submitted.
    #[serde(default)]
    pub service_us: Option<Latency>,
    /// Under a stated load: number of requests that arrived during the samples.
    #[serde(default)]
    pub arrivals: Option<u64>,
    /// Under a stated load: arrivals that were not submitted when the samples ended, because
    /// `depth` times `jobs` (and CPUs) were in flight.
    #[serde(default)]
    pub waiting: Option<u64>,
    /// Of a mixed block workload: the share of its requests that read, percent.
    #[serde(default)]
    pub read_percent: Option<u8>,
    /// Of a mixed block workload: its reads. All other figures are of reads and writes together.
    #[serde(default)]
    pub reads_apart: Option<DirectionFigures>,
    /// Of a mixed block workload: its writes.
    #[serde(default)]
    pub writes_apart: Option<DirectionFigures>,
    /// Background work of the array while the workload ran: `rebuild` (a member more than
    /// `degraded` says is replaced), `scrub`, `resync`.
    #[serde(default)]
    pub background: Option<String>,
    /// Share of the time that the work was to leave to the workload, percent.
    #[serde(default)]
    pub foreground_percent: Option<u8>,
    /// Rate of the background work beside the workload, MB/s of each member.
    #[serde(default)]
    pub background_mb_per_s: Option<f64>,
    /// The same without the workload.
    #[serde(default)]
    pub background_idle_mb_per_s: Option<f64>,
    /// Rate of the workload over that on the same array without the work.
    #[serde(default)]
    pub foreground_share: Option<f64>,
    /// The workload on the same array (a member missing, or redundancy not trusted) without the
    /// work.
    #[serde(default)]
    pub foreground_alone: Option<ForegroundAlone>,
    /// The host that measured it, one of the record's `hosts`, or several with `+` between them;
    /// `None`: the record's `host`.
    #[serde(default)]
    pub host: Option<String>,
    /// Of a sweep over several hosts: when the item was measured.
    #[serde(default)]
    pub times: Option<ItemTimes>,
    /// Load of several hosts on one target at the same time.
    #[serde(default)]
    pub load: Option<Load>,
}

/// The reads or the writes of a mixed block workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DirectionFigures {
    /// Their part of each sample of the cell, over its whole time.
    pub samples: Vec<Sample>,
    /// Their part of the cell's `mb_per_s`, by their share of the bytes of its samples: those of
    /// reads and writes add up to it.
    pub mb_per_s: f64,
    /// Their part of the cell's `iops`.
    pub iops: f64,
    /// Their latency, as the cell's `latency_us` is defined.
    pub latency_us: Option<Latency>,
    /// The distribution of `latency_us`.
    pub latency_bins: Option<LatencyBins>,
}

/// Utilization of a member; `None` where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberLoad {
    /// Share of the time with at least one operation in flight, 0 to 1.
    pub busy: Option<f64>,
    /// Mean number of operations in flight.
    pub in_flight: Option<f64>,
}

/// Background work of an array of Linux md while a cell ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncRun {
    /// md's word: `idle`, `resync`, `recover`, `check`, `repair`, `reshape`.
    pub action: String,
    /// Progress at the start of the cell, 0 to 1; `None` when nothing ran.
    pub begin: Option<f64>,
    /// Progress at its end, 0 to 1.
    pub end: Option<f64>,
}

/// The stripe cache of an array of Linux md while a cell ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StripeCacheUse {
    /// `stripe_cache_size` at the start of the cell: the minimum of entries that md keeps, each of
    /// one page per member.
    pub entries_begin: u64,
    /// `stripe_cache_size` at the end of the cell.
    pub entries_end: u64,
    /// Maximum of entries in use: more than the above where md allocated more when it ran out.
    pub active_max: Option<u64>,
}

/// The place of a cell that was not measured on the engine in process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// As on the command line, without directories of the user: `fs:ext4,data=journal`.
    pub name: String,
    /// `ext4`.
    pub file_system: Option<String>,
    /// Command line of mkfs.
    pub mkfs_options: Option<String>,
    /// Options of the mount, as the kernel shows them.
    pub mount_options: Option<String>,
    /// Block of the file system, bytes.
    pub block_bytes: Option<u64>,
    /// Location of an external journal: `raid1 of 2`.
    pub journal: Option<String>,
    /// Whether LVM is between array and file system.
    pub lvm: Option<bool>,
    /// Read-ahead of the block device, KiB.
    pub read_ahead_kib: Option<u64>,
    /// Its I/O scheduler.
    pub scheduler: Option<String>,
    /// Other knobs that were set, by their names in sysfs.
    pub knobs: std::collections::BTreeMap<String, String>,
    /// Memory of the machine, bytes, for comparison with file sizes.
    pub memory_bytes: Option<u64>,
    /// The disks below it, in slot order; none below an array of the engine.
    pub drives: Vec<DriveFacts>,
    /// Version of md's metadata, where an array of md is below: `1.2`.
    pub metadata: Option<String>,
    /// Location of that array's write-intent bitmap: `+8` sectors behind the superblock, or `none`.
    pub bitmap: Option<String>,
}

/// A disk, as reported by its driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriveFacts {
    /// `sda1`.
    pub name: String,
    /// `ST3500418AS`.
    pub model: Option<String>,
    /// Its firmware.
    pub firmware: Option<String>,
    /// Its link: `SATA 3.0 Gbps`, `PCIe 8.0 GT/s x4`, `virtio`.
    pub link: Option<String>,
    /// Size of the whole disk, bytes.
    pub bytes: Option<u64>,
    /// A rotating disk.
    pub rotational: Option<bool>,
    /// Queue depth of the disk or its driver.
    pub queue_depth: Option<u64>,
    /// Its I/O scheduler.
    pub scheduler: Option<String>,
    /// Its own read-ahead, KiB.
    pub read_ahead_kib: Option<u64>,
    /// `write back` where it has a volatile write cache.
    pub write_cache: Option<String>,
    /// Logical block size, bytes.
    pub block_bytes: Option<u64>,
}

/// CPU time of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// Its name: `lane-0`, `md127_raid5`, `iou-wrk-4711`.
    pub name: String,
    /// User and system, seconds.
    pub seconds: f64,
}

/// A finding: a conclusion from the evidence, and the option that would change it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name: `page-cache`, `shared-bus`, `read-modify-write`.
    pub name: String,
    /// One sentence with the numbers in it.
    pub text: String,
    /// The numbers by name, for programs.
    pub evidence: std::collections::BTreeMap<String, f64>,
    /// The command that would change it, where there is one.
    pub command: Option<String>,
}

/// One timed stretch of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Duration, seconds.
    pub seconds: f64,
    /// Bytes that the requests moved.
    pub bytes: u64,
    /// Number of completed requests.
    pub ops: u64,
}

/// Traffic of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberTraffic {
    /// Bytes read from it.
    pub read_bytes: u64,
    /// Bytes written to it.
    pub written_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
}

/// The range of the samples' rates, MB/s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The slowest sample.
    pub min: f64,
    /// The fastest sample.
    pub max: f64,
}

impl Record {
    /// An empty record of this build, begun at `started`.
    pub fn new(host: Host, started: SystemTime) -> Record {
        let raidlab = env!("CARGO_PKG_VERSION").to_string();
        Record { raidlab, host, started: rfc3339(started), cells: Vec::new(), hosts: Vec::new() }
    }

    /// The document: indented JSON with a newline at its end.
    pub fn to_json(&self) -> String {
        // Strings, numbers and lists only: there is nothing in it that could fail.
        let mut text = serde_json::to_string_pretty(self).expect("a record is plain data");
        text.push('\n');
        text
    }

    /// Reads a document.
    ///
    /// # Errors
    /// The first field that is missing or of another type, with line and column.
    pub fn from_json(text: &str) -> Result<Record, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// Whether no cell read data that differs from the written data.
    pub fn verified(&self) -> bool {
        self.cells.iter().all(|cell| cell.verified != Some(false))
    }
}

impl Cell {
    /// Computes what follows from samples, CPU time and bound: medians, spread, steady state,
    /// CPU per GiB, share of the bound.
    pub fn summarise(&mut self) {
        let rates: Vec<f64> = self.samples.iter().map(Sample::mb_per_s).collect();
        self.steady = stats::steady(&rates);
        let window = self.window();
        let rates: Vec<f64> = window.iter().map(Sample::mb_per_s).collect();
        let iops: Vec<f64> = window.iter().map(Sample::iops).collect();
        let figure = match self.is_of_window() {
            true => stats::mean,
            false => stats::median,
        };
        self.mb_per_s = figure(&rates).unwrap_or(0.0);
        self.iops = figure(&iops).unwrap_or(0.0);
        self.spread = stats::range(&rates).map(|(min, max)| Spread { min, max });
        // The window was selected for its similar samples: they say nothing of other windows.
        match self.is_of_window() {
            true => (self.interval, self.interval_coverage) = (None, None),
            false => self.put_interval(&rates),
        }
        let gib = self.user_bytes() as f64 / f64::from(1 << 30);
        let comparable = gib > 0.0 && !self.steady_window;
        let per_gib = |cpu: Option<f64>| cpu.filter(|_| comparable).map(|cpu| cpu / gib);
        self.cpu_s_per_gib = per_gib(self.cpu_process_s);
        self.machine_cpu_s_per_gib = per_gib(self.cpu_system_s);
        self.put_bound_share();
        self.put_apart();
    }

    /// The parts of reads and of writes in the rates of a mixed workload.
    pub fn put_apart(&mut self) {
        let window = self.window();
        let (count, bytes) = (window.len(), window.iter().map(|sample| sample.bytes).sum::<u64>());
        let ops: u64 = window.iter().map(|sample| sample.ops).sum();
        let (mb_per_s, iops) = (self.mb_per_s, self.iops);
        let part = |of: u64, all: u64| if all > 0 { of as f64 / all as f64 } else { 0.0 };
        for apart in [&mut self.reads_apart, &mut self.writes_apart].into_iter().flatten() {
            let window = &apart.samples[apart.samples.len().saturating_sub(count)..];
            let sum = |of: fn(&Sample) -> u64| window.iter().map(of).sum::<u64>();
            apart.mb_per_s = mb_per_s * part(sum(|sample| sample.bytes), bytes);
            apart.iops = iops * part(sum(|sample| sample.ops), ops);
        }
    }

    /// The reads and the writes of a mixed block workload; `None` of any other, and of a program.
    pub fn apart(&self) -> Option<(&DirectionFigures, &DirectionFigures)> {
        self.reads_apart.as_ref().zip(self.writes_apart.as_ref())
    }

    /// The share of the bound; none where the stated load is less than the bound, because nothing
    /// tried to reach it.
    pub fn put_bound_share(&mut self) {
        let stated = self.rate_iops.map(|iops| f64::from(iops) * self.block_kib * 1024.0 / 1e6);
        let tried = |bound: &f64| *bound > 0.0 && stated.is_none_or(|stated| stated >= *bound);
        self.bound_share = self.bound_mb_per_s.filter(tried).map(|bound| self.mb_per_s / bound);
    }

    /// The interval of the median of these rates, MB/s.
    pub fn put_interval(&mut self, rates: &[f64]) {
        let interval = stats::median_interval(rates);
        self.interval = interval.map(|interval| Spread { min: interval.low, max: interval.high });
        self.interval_coverage = interval.map(|interval| interval.coverage);
    }

    /// Whether its figure is the mean of the last five samples, taken with `--until-steady`;
    /// otherwise it is the median of all.
    pub fn is_of_window(&self) -> bool {
        self.rounds_max.is_some() && self.samples.len() >= stats::STEADY_ROUNDS
    }

    /// The samples that its figure covers.
    pub fn window(&self) -> &[Sample] {
        match self.is_of_window() {
            true => &self.samples[self.samples.len() - stats::STEADY_ROUNDS..],
            false => &self.samples,
        }
    }

    /// Completed requests over the arrivals of the same time: 1 where the array keeps up with the
    /// stated load. `None` in a closed loop.
    pub fn load_share(&self) -> Option<f64> {
        let arrivals = self.arrivals.filter(|arrivals| *arrivals > 0)?;
        let completed: u64 = self.samples.iter().map(|sample| sample.ops).sum();
        Some(completed as f64 / arrivals as f64)
    }

    /// Whether the array kept up with the stated load: the backlog (in flight and waiting) grew
    /// during the samples by no more than a short queue of each disk. `None` in a closed loop.
    ///
    /// The depth is no measure: an array that does not keep up fills it, however deep it is.
    pub fn meets_load(&self) -> Option<bool> {
        const ENOUGH: f64 = 0.98;
        /// What waits at a disk that serves nine tenths of its rate.
        const SHORT_QUEUE: u64 = 10;
        let arrivals = self.arrivals.filter(|_| self.rate_iops.is_some())?;
        let completed: u64 = self.samples.iter().map(|sample| sample.ops).sum();
        // What arrived and was not completed is the growth of the backlog, and what failed.
        let queues = u64::from(self.disks.max(1)) * SHORT_QUEUE;
        Some((completed + queues) as f64 >= arrivals as f64 * ENOUGH)
    }

    /// Bytes that the samples moved for the workload.
    pub fn user_bytes(&self) -> u64 {
        self.samples.iter().map(|sample| sample.bytes).sum()
    }

    /// Whether it is an ordinary disk, without an array.
    pub fn is_single(&self) -> bool {
        self.level == BenchLevel::Single
    }

    /// Its level, if that is one of md; of a nested array the outermost.
    pub fn md_level(&self) -> Option<Level> {
        match self.level.known()? {
            BenchLevel::Md(level) => Some(level),
            BenchLevel::Single => None,
        }
    }

    /// Whether its kind of access is known, and the test holds for it.
    fn access(&self, test: fn(AccessKind) -> bool) -> bool {
        self.workload.known().is_some_and(test)
    }

    /// Whether the workload writes; `seq-rewrite` does, and reads the blocks that it overwrites.
    pub fn writes(&self) -> bool {
        self.access(AccessKind::writes)
    }

    /// Whether it writes and does not read.
    pub fn only_writes(&self) -> bool {
        self.access(AccessKind::only_writes)
    }

    /// Whether some of it is read and some is written.
    pub fn is_mixed(&self) -> bool {
        self.access(AccessKind::is_mixed)
    }

    /// Whether blocks are moved one behind the other.
    pub fn is_sequential(&self) -> bool {
        self.access(AccessKind::is_sequential)
    }

    /// Whether blocks are moved at random addresses.
    pub fn is_random(&self) -> bool {
        self.access(AccessKind::is_random)
    }

    /// Whether the figure is in requests per second rather than MB/s: where addresses are random,
    /// and where no bytes are moved, as in creating files, even if that could not be run.
    pub fn counts_requests(&self) -> bool {
        let no_bytes = self.iops > 0.0 && self.user_bytes() == 0;
        self.is_random() || self.access(AccessKind::is_of_names) || no_bytes
    }

    /// Whether bytes were moved: files are created and deleted without any.
    pub fn moves_data(&self) -> bool {
        self.user_bytes() > 0 || self.mb_per_s > 0.0
    }

    /// Whether anything was done: a phase that does not apply has no rate, rather than a rate of 0.
    pub fn did_something(&self) -> bool {
        self.moves_data() || self.iops > 0.0
    }

    /// The unit of its figure: `MB/s` or `per second`.
    pub fn unit(&self) -> &'static str {
        if self.counts_requests() { "per second" } else { "MB/s" }
    }

    /// Its figure, in its unit.
    pub fn rate(&self) -> f64 {
        if self.counts_requests() { self.iops } else { self.mb_per_s }
    }

    /// One of its samples in the same unit.
    pub fn rate_of(&self, sample: &Sample) -> f64 {
        if self.counts_requests() { sample.iops() } else { sample.mb_per_s() }
    }

    /// Bytes that the members moved per byte of the workload: 1 for a healthy read, 2 for a
    /// mirrored write, 4 for a RAID 5 read-modify-write.
    pub fn amplification(&self) -> Option<f64> {
        let moved: u64 = self.per_member.iter().map(MemberTraffic::bytes).sum();
        let user = self.program_bytes.unwrap_or_else(|| self.user_bytes());
        (user > 0 && !self.per_member.is_empty()).then(|| moved as f64 / user as f64)
    }

    /// Traffic of the busiest member over that of the idlest one: 1 is even. `None` where a member
    /// that is present moved nothing ([`Cell::idle_members`]): there is no such ratio.
    pub fn imbalance(&self) -> Option<f64> {
        if self.idle_members() > 0 {
            return None;
        }
        let busy = || self.per_member.iter().map(MemberTraffic::bytes).filter(|bytes| *bytes > 0);
        Some(busy().max()? as f64 / busy().min()? as f64)
    }

    /// Whether other processes used the CPU during its samples.
    pub fn had_a_busy_machine(&self) -> bool {
        self.findings.iter().any(|finding| finding.name == "busy-machine")
    }

    /// Whether other processes spoiled the figure: they used the CPU, and the samples are far
    /// apart. Nothing is derived from it: no ratio, no winner.
    pub fn is_spoiled(&self) -> bool {
        const FAR: f64 = 0.5;
        let apart = self.spread.is_some_and(|spread| {
            self.mb_per_s <= 0.0 || (spread.max - spread.min) / self.mb_per_s > FAR
        });
        apart && self.had_a_busy_machine()
    }

    /// Number of present members that moved nothing.
    pub fn idle_members(&self) -> usize {
        let idle = self.per_member.iter().filter(|member| member.bytes() == 0).count();
        idle.saturating_sub(self.degraded as usize)
    }

    /// Name of its place in the record: the file system with its options.
    pub fn place_name(&self) -> Option<&str> {
        self.place.as_ref().map(|place| place.name.as_str())
    }

    /// The same for labels, where `kernel` is `md`.
    pub fn place_shown(&self) -> Option<String> {
        self.place_name().map(spec::target::shown_name)
    }

    /// Kind of its target, for labels.
    pub fn target_shown(&self) -> String {
        self.target.known().map_or_else(|| self.target.to_string(), |kind| kind.shown().to_string())
    }
}

impl Sample {
    /// Its rate in MB/s (10^6 bytes); 0 for a sample without duration.
    pub fn mb_per_s(&self) -> f64 {
        per_second(self.bytes as f64 / 1e6, self.seconds)
    }

    /// Its requests per second; 0 for a sample without duration.
    pub fn iops(&self) -> f64 {
        per_second(self.ops as f64, self.seconds)
    }
}

fn per_second(amount: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { amount / seconds } else { 0.0 }
}

impl MemberTraffic {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

/// A moment as RFC 3339 in UTC, to the second: `2009-02-13T23:31:30Z`. Moments before 1970 are
/// written as 1970.
pub fn rfc3339(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let moment = i64::try_from(seconds).ok().and_then(|it| Timestamp::from_second(it).ok());
    moment.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Whole numbers without a fraction: `1024`, `0.5`.
fn short_number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *value >= 0.0 && value.fract() == 0.0 && *value < 9e15 {
        serializer.serialize_u64(*value as u64)
    } else {
        serializer.serialize_f64(*value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_until_steady_is_the_mean_of_the_window_and_not_of_what_was_before() {
        let sample = |mb: u64| Sample { seconds: 0.25, bytes: mb * 250_000, ops: mb };
        // A drive with a large write cache, as it was measured: full after fourteen samples.
        let rates = [293, 307, 298, 302, 298, 302, 298, 302, 298, 294, 302, 298, 302, 235];
        let samples: Vec<Sample> =
            rates.into_iter().chain([84, 84, 84, 84, 80]).map(sample).collect();
        let mut cell = Cell { samples, rounds_max: Some(40), ..Cell::default() };
        cell.summarise();
        assert_eq!(cell.steady, Some(true));
        assert!((cell.mb_per_s - 83.2).abs() < 1e-9, "{}", cell.mb_per_s);
        assert!((cell.iops - 4.0 * 83.2).abs() < 1e-9, "{}", cell.iops);
        assert_eq!(cell.spread, Some(Spread { min: 80.0, max: 84.0 }));
        cell.rounds_max = None;
        cell.summarise();
        assert_eq!(cell.mb_per_s, 298.0, "the median of all samples that were asked for");
    }

    const LITERAL: &str = r#"{"raidlab": "0.1.0", "host": {}, "started": "2009-02-13T23:31:30Z",
        "cells": [{"target": "engine", "level": "raid5", "layout": "left-symmetric", "disks": 4,
        "members": "paced:hdd-2007", "chunk_kib": 64, "degraded": 0, "workload": "seq-read",
        "block_kib": 1024, "depth": 4, "jobs": 1,
        "samples": [{"seconds": 2.0, "bytes": 480000000, "ops": 458}],
        "mb_per_s": 240.0, "iops": 229.0,
        "latency_us": {"p50": 1.0, "p99": 2.0, "p999": 3.0, "max": 4.0},
        "cpu_process_s": 0.5, "cpu_system_s": null, "cpu_s_per_gib": 1.1, "steady": null,
        "verified": true,
        "per_member": [{"read_bytes": 1, "written_bytes": 2, "reads": 3, "writes": 4}],
        "warnings": ["page cache"], "of_a_later_version": 1}]}"#;

    #[test]
    fn a_literal_record_is_read_field_by_field() {
        let record = Record::from_json(LITERAL).unwrap();
        assert_eq!(record.host, Host::default());
        let cell = &record.cells[0];
        assert_eq!(cell.layout, Some("left-symmetric".into()));
        assert_eq!((cell.disks, cell.chunk_kib, cell.block_kib), (4, Some(64), 1024.0));
        assert_eq!(cell.samples, [Sample { seconds: 2.0, bytes: 480_000_000, ops: 458 }]);
        assert_eq!(cell.latency_us, Some(Latency { p50: 1.0, p99: 2.0, p999: 3.0, max: 4.0 }));
        assert_eq!((cell.cpu_process_s, cell.cpu_system_s, cell.steady), (Some(0.5), None, None));
        let traffic = MemberTraffic { read_bytes: 1, written_bytes: 2, reads: 3, writes: 4 };
        assert_eq!(cell.per_member, [traffic]);
        assert_eq!((cell.bound_mb_per_s, cell.array.as_deref()), (None, None));
        assert!(cell.latency_curve.is_empty(), "an older record");
    }

    #[test]
    fn what_is_written_reads_back_and_unknown_is_null() {
        let mut record = Record::from_json(LITERAL).unwrap();
        record.cells[0].steady = Some(false);
        record.cells[0].spread = Some(Spread { min: 1.5, max: 2.5 });
        let text = record.to_json();
        assert_eq!(Record::from_json(&text).unwrap(), record);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let cell = &value["cells"][0];
        assert_eq!(cell["block_kib"], serde_json::json!(1024));
        assert_eq!(cell["steady"], serde_json::json!(false));
        for unknown in ["cpu_system_s", "array", "bound_mb_per_s", "late_ops"] {
            assert!(cell.as_object().unwrap().contains_key(unknown), "{unknown}");
            assert!(cell[unknown].is_null(), "{unknown}");
        }
    }

    /// Words of other tools and of newer versions, and other forms of ours.
    #[test]
    fn unknown_words_are_kept_byte_for_byte() {
        let words = [
            ("target", "engine", "nvme-of"),
            ("level", "raid5", "RAID5"),
            ("level", "raid5", "raidz2"),
            ("level", "raid5", ""),
            ("layout", "left-symmetric", "ls"),
            ("layout", "left-symmetric", "Left-Symmetric"),
            ("layout", "left-symmetric", "d4"),
            ("workload", "seq-read", "seq-append"),
            ("workload", "seq-read", "seq-\u{fc}bel"),
        ];
        let ours = Record::from_json(LITERAL).expect("a record").to_json();
        for (field, known, unknown) in words {
            let quoted = |word: &str| format!("\"{field}\": \"{word}\"");
            let text = ours.replacen(&quoted(known), &quoted(unknown), 1);
            assert_ne!(text, ours, "{field}");
            let record = Record::from_json(&text).expect(unknown);
            assert_eq!(record.to_json(), text, "{field} {unknown}");
            let cell = &record.cells[0];
            assert!(!(cell.writes() || cell.counts_requests()), "nothing is derived: {unknown}");
        }
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = Record::from_json(r#"{"raidlab": "0", "host": {}, "cells": []}"#).unwrap_err();
        assert!(error.to_string().contains("started"), "{error}");
    }

    #[test]
    fn summaries_follow_from_the_samples() {
        let sample = |bytes| Sample { seconds: 2.0, bytes, ops: 10 };
        let mut cell = Cell {
            samples: vec![sample(200_000_000), sample(100_000_000), sample(600_000_000)],
            cpu_process_s: Some(1.0),
            bound_mb_per_s: Some(200.0),
            ..Cell::default()
        };
        cell.summarise();
        assert_eq!((cell.mb_per_s, cell.iops), (100.0, 5.0));
        assert_eq!(cell.spread, Some(Spread { min: 50.0, max: 300.0 }));
        assert_eq!(cell.bound_share, Some(0.5));
        // No share of a bound that the stated load does not reach.
        cell.block_kib = 1000.0;
        cell.rate_iops = Some(100);
        cell.put_bound_share();
        assert_eq!(cell.bound_share, None);
        cell.rate_iops = Some(300);
        cell.put_bound_share();
        assert_eq!(cell.bound_share, Some(0.5), "more arrives than the members can serve");
        assert_eq!(cell.steady, None);
        assert_eq!((cell.interval, cell.interval_coverage), (None, None), "three are too few");
        cell.samples.extend([sample(300_000_000), sample(400_000_000)]);
        cell.summarise();
        assert_eq!((cell.interval, cell.interval_coverage), (cell.spread, Some(0.9375)));
        cell.samples.truncate(3);
        cell.summarise();
        assert_eq!(cell.cpu_s_per_gib, Some(f64::from(1 << 30) / 9e8));
    }

    #[test]
    fn what_is_random_or_moves_no_bytes_is_counted_in_requests() {
        let cell = |workload: &str, bytes, ops| {
            let samples = vec![Sample { seconds: 1.0, bytes, ops }];
            let mut cell = Cell { workload: workload.into(), samples, ..Cell::default() };
            cell.summarise();
            cell.unit()
        };
        assert_eq!(cell("seq-read", 4096, 1), "MB/s");
        assert_eq!(cell("rand-mixed", 4096, 1), "per second");
        assert_eq!(cell("seq-create", 0, 1), "per second");
        // A phase in which nothing was done has the same unit as one that ran.
        assert_eq!(cell("seq-read", 0, 0), "MB/s");
        for names in ["create", "stat", "delete"] {
            assert_eq!(cell(names, 0, 0), cell(names, 0, 1), "{names} that could not be run");
        }
        let sample = Sample { seconds: 2.0, bytes: 4_000_000, ops: 10 };
        for (workload, figure) in [("seq-read", 2.0), ("rand-read", 5.0)] {
            let samples = vec![sample];
            let mut cell = Cell { workload: workload.into(), samples, ..Cell::default() };
            cell.summarise();
            assert_eq!((cell.rate(), cell.rate_of(&sample)), (figure, figure), "{workload}");
        }
    }

    #[test]
    fn members_that_move_nothing_are_idle_not_imbalance() {
        let moved = |read_bytes, written_bytes| MemberTraffic {
            read_bytes,
            written_bytes,
            reads: 0,
            writes: 0,
        };
        let cell = Cell {
            samples: vec![Sample { seconds: 1.0, bytes: 100, ops: 1 }],
            per_member: vec![moved(100, 0), moved(100, 100), moved(0, 0), moved(0, 0)],
            degraded: 1,
            ..Cell::default()
        };
        assert_eq!(cell.amplification(), Some(3.0));
        let read_off = Cell { program_bytes: Some(150), ..cell.clone() };
        assert_eq!(read_off.amplification(), Some(2.0), "per byte of the program");
        assert_eq!((cell.imbalance(), cell.idle_members()), (None, 1));
        let two_lost = Cell { degraded: 2, ..cell.clone() };
        assert_eq!((two_lost.imbalance(), two_lost.idle_members()), (Some(2.0), 0));
    }

    #[test]
    fn moments_are_written_in_utc() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (1_234_567_890, "2009-02-13T23:31:30Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, text) in table {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
