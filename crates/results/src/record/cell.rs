//! A cell of a record: its case, what was measured of it, what follows from both.
//!
//! Invariant: every field is in one of the three; in a document they stand side by side, so that
//! the names of a cell are those of its parts. What none of them has is passed over, and takes no
//! more memory than its text.

use std::collections::BTreeMap;

use md::Level;
use serde::de::DeserializeOwned;
use serde::de::value::MapDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use spec::case::{BenchLevel, Knobs};
use spec::target::TargetKind;
use spec::workload::AccessKind;

use super::{
    DirectionFigures, Finding, MemberLoad, MemberTraffic, Place, Sample, Spread, StripeCacheUse,
    SyncRun, ThreadTime,
};
use crate::bins::LatencyBins;
use crate::foreground::ForegroundAlone;
use crate::load::{ItemTimes, Load};
use crate::series::Series;
use crate::stats::{self, Latency, LatencyPoint};
use crate::words::{LayoutName, Word};

/// One array under one workload. In a document its fields stand side by side, in this order.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// What was chosen.
    #[serde(flatten)]
    pub case: CellCase,
    /// What was found.
    #[serde(flatten)]
    pub measured: CellMeasured,
    /// What follows from both.
    #[serde(flatten)]
    pub derived: CellDerived,
}

/// The case that was measured: the settings of a cell, each with a line in
/// [`SETTINGS`](crate::settings::SETTINGS). What is absent in a record of another tool, or of an
/// older version, reads as `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellCase {
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
    /// The expression of a nested array: `raid1(raid0(2),raid0(2))`.
    #[serde(default)]
    pub array: Option<String>,
    /// Read-ahead above the array, KiB.
    #[serde(default)]
    pub read_ahead_kib: Option<u64>,
    /// Knobs of the engine for the array, side by side with the other fields; [`Cell`] reads them.
    #[serde(flatten, skip_deserializing)]
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
    /// Size of a member, bytes (the smallest, if they differ).
    #[serde(default)]
    pub member_bytes: Option<u64>,
    /// Where the members lie on their drives: `window@0`, `window@0.5`, `stretch`.
    #[serde(default)]
    pub placement: Option<String>,
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
    /// Stated load: requests per second that arrive on a schedule, of all jobs and CPUs together;
    /// `None`: a closed loop.
    #[serde(default)]
    pub rate_iops: Option<u32>,
    /// Intervals between the arrivals: `linear` or `poisson`.
    #[serde(default)]
    pub rate_process: Option<String>,
    /// Of a mixed block workload: the share of its requests that read, percent.
    #[serde(default)]
    pub read_percent: Option<u8>,
    /// Background work of the array while the workload ran: `rebuild` (a member more than
    /// `degraded` says is replaced), `scrub`, `resync`.
    #[serde(default)]
    pub background: Option<String>,
    /// Share of the time that the work was to leave to the workload, percent.
    #[serde(default)]
    pub foreground_percent: Option<u8>,
    /// Whether times are those of modelled disks, and of nothing else of this machine.
    #[serde(default)]
    pub model_time: bool,
    /// The host that measured it, one of the record's `hosts`, or several with `+` between them;
    /// `None`: the record's `host`.
    #[serde(default)]
    pub host: Option<String>,
}

/// What was measured of a case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellMeasured {
    /// Every sample, in the order taken.
    pub samples: Vec<Sample>,
    /// Latency of the requests, over all samples: from submission to completion; under a stated
    /// load (`rate_iops`) the response time, from the scheduled arrival to completion.
    pub latency_us: Option<Latency>,
    /// CPU time of this process over the samples, user and system, seconds.
    pub cpu_process_s: Option<f64>,
    /// CPU time of the whole machine over the samples, seconds: this process, the kernel's threads
    /// and interrupts, without other processes. `None`, with the reason in `cpu_system_note`, where
    /// it cannot be determined.
    pub cpu_system_s: Option<f64>,
    /// Whether all read data matched the written data; `None` where nothing can be verified,
    /// because the members store nothing.
    pub verified: Option<bool>,
    /// Traffic at each member, below the engine, in slot order (nested: leaf order).
    pub per_member: Vec<MemberTraffic>,
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
    /// Utilization of each member during the samples, in the order of `per_member`.
    #[serde(default)]
    pub member_load: Vec<MemberLoad>,
    /// Background work of an array of Linux md during the cell.
    #[serde(default)]
    pub sync: Option<SyncRun>,
    /// The stripe cache of an array of Linux md during the cell.
    #[serde(default)]
    pub stripe_cache: Option<StripeCacheUse>,
    /// Bytes that the program moved during samples which count the members' bytes: these include
    /// copies, parity and other use of the disks, and exclude data that stayed in a cache. `None`:
    /// the samples count the program's bytes.
    #[serde(default)]
    pub program_bytes: Option<u64>,
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
    /// Of a mixed block workload: its reads. All other figures are of reads and writes together.
    #[serde(default)]
    pub reads_apart: Option<DirectionFigures>,
    /// Of a mixed block workload: its writes.
    #[serde(default)]
    pub writes_apart: Option<DirectionFigures>,
    /// Rate of the background work beside the workload, MB/s of each member.
    #[serde(default)]
    pub background_mb_per_s: Option<f64>,
    /// The same without the workload.
    #[serde(default)]
    pub background_idle_mb_per_s: Option<f64>,
    /// The workload on the same array (a member missing, or redundancy not trusted) without the
    /// work.
    #[serde(default)]
    pub foreground_alone: Option<ForegroundAlone>,
    /// Of a sweep over several hosts: when the item was measured.
    #[serde(default)]
    pub times: Option<ItemTimes>,
    /// Load of several hosts on one target at the same time.
    #[serde(default)]
    pub load: Option<Load>,
}

/// What is computed of a case and its measurement: medians, bounds, findings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellDerived {
    /// Median of the samples' rates, MB/s.
    pub mb_per_s: f64,
    /// Median of the samples' requests per second.
    pub iops: f64,
    /// `cpu_process_s` per GiB (2^30 bytes) that the samples moved.
    pub cpu_s_per_gib: Option<f64>,
    /// Whether the last five samples are a steady window ([`stats::steady`]); `None` with too few
    /// samples to say.
    pub steady: Option<bool>,
    /// Warnings about the figure, each with a remedy.
    pub warnings: Vec<String>,
    /// Bound of the members if each were a separate disk on a separate channel, MB/s; only where
    /// they share disks or channels.
    #[serde(default)]
    pub unshared_bound_mb_per_s: Option<f64>,
    /// What the members could deliver together for this access pattern, MB/s (`predict::bound`).
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
    /// Smallest and largest of the samples' rates.
    #[serde(default)]
    pub spread: Option<Spread>,
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
    /// Findings that the evidence in this cell supports.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Rate of the workload over that on the same array without the work.
    #[serde(default)]
    pub foreground_share: Option<f64>,
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Cell, D::Error> {
        let fields = BTreeMap::<String, Box<RawValue>>::deserialize(from)?;
        let case = CellCase { knobs: part(&fields)?, ..part(&fields)? };
        Ok(Cell { case, measured: part(&fields)?, derived: part(&fields)? })
    }
}

/// A part of a cell, from the fields of all parts.
fn part<P: DeserializeOwned, E: serde::de::Error>(
    fields: &BTreeMap<String, Box<RawValue>>,
) -> Result<P, E> {
    let fields = fields.iter().map(|(name, value)| (name.as_str(), &**value));
    serde_path_to_error::deserialize(MapDeserializer::new(fields)).map_err(|error| {
        let inner: &serde_json::Error = error.inner();
        let why = inner.to_string();
        // The place in the field's own text says nothing of the document.
        let place = format!(" at line {} column {}", inner.line(), inner.column());
        let why = why.strip_suffix(&place).unwrap_or(&why);
        E::custom(format_args!("{}: {why}", error.path()))
    })
}

impl Cell {
    /// The same with other values in some fields.
    #[must_use]
    pub fn with(mut self, set: impl FnOnce(&mut Cell)) -> Cell {
        set(&mut self);
        self
    }

    /// Computes what follows from samples, CPU time and bound: medians, spread, steady state,
    /// CPU per GiB, share of the bound.
    pub fn summarise(&mut self) {
        let rates: Vec<f64> = self.measured.samples.iter().map(Sample::mb_per_s).collect();
        self.derived.steady = stats::steady(&rates);
        let window = self.window();
        let rates: Vec<f64> = window.iter().map(Sample::mb_per_s).collect();
        let iops: Vec<f64> = window.iter().map(Sample::iops).collect();
        let figure = match self.is_of_window() {
            true => stats::mean,
            false => stats::median,
        };
        self.derived.mb_per_s = figure(&rates).unwrap_or(0.0);
        self.derived.iops = figure(&iops).unwrap_or(0.0);
        self.derived.spread = stats::range(&rates).map(|(min, max)| Spread { min, max });
        // The window was selected for its similar samples: they say nothing of other windows.
        match self.is_of_window() {
            true => (self.derived.interval, self.derived.interval_coverage) = (None, None),
            false => self.put_interval(&rates),
        }
        let gib = self.user_bytes() as f64 / f64::from(1 << 30);
        let comparable = gib > 0.0 && !self.case.steady_window;
        let per_gib = |cpu: Option<f64>| cpu.filter(|_| comparable).map(|cpu| cpu / gib);
        self.derived.cpu_s_per_gib = per_gib(self.measured.cpu_process_s);
        self.derived.machine_cpu_s_per_gib = per_gib(self.measured.cpu_system_s);
        self.put_bound_share();
        self.put_directions();
    }

    /// The parts of reads and of writes in the rates of a mixed workload.
    pub fn put_directions(&mut self) {
        let window = self.window();
        let (count, bytes) = (window.len(), window.iter().map(|sample| sample.bytes).sum::<u64>());
        let ops: u64 = window.iter().map(|sample| sample.ops).sum();
        let (mb_per_s, iops) = (self.derived.mb_per_s, self.derived.iops);
        let part = |of: u64, all: u64| if all > 0 { of as f64 / all as f64 } else { 0.0 };
        for direction in
            [&mut self.measured.reads_apart, &mut self.measured.writes_apart].into_iter().flatten()
        {
            let window = &direction.samples[direction.samples.len().saturating_sub(count)..];
            let sum = |of: fn(&Sample) -> u64| window.iter().map(of).sum::<u64>();
            direction.mb_per_s = mb_per_s * part(sum(|sample| sample.bytes), bytes);
            direction.iops = iops * part(sum(|sample| sample.ops), ops);
        }
    }

    /// The reads and the writes of a mixed block workload; `None` of any other, and of a program.
    pub fn directions(&self) -> Option<(&DirectionFigures, &DirectionFigures)> {
        self.measured.reads_apart.as_ref().zip(self.measured.writes_apart.as_ref())
    }

    /// The share of the bound; none where the stated load is less than the bound, because nothing
    /// tried to reach it.
    pub fn put_bound_share(&mut self) {
        let stated =
            self.case.rate_iops.map(|iops| f64::from(iops) * self.case.block_kib * 1024.0 / 1e6);
        let tried = |bound: &f64| *bound > 0.0 && stated.is_none_or(|stated| stated >= *bound);
        self.derived.bound_share =
            self.derived.bound_mb_per_s.filter(tried).map(|bound| self.derived.mb_per_s / bound);
    }

    /// The interval of the median of these rates, MB/s.
    pub fn put_interval(&mut self, rates: &[f64]) {
        let interval = stats::median_interval(rates);
        self.derived.interval =
            interval.map(|interval| Spread { min: interval.low, max: interval.high });
        self.derived.interval_coverage = interval.map(|interval| interval.coverage);
    }

    /// Whether its figure is the mean of the last five samples, taken with `--until-steady`;
    /// otherwise it is the median of all.
    pub fn is_of_window(&self) -> bool {
        self.case.rounds_max.is_some() && self.measured.samples.len() >= stats::STEADY_ROUNDS
    }

    /// The samples that its figure covers.
    pub fn window(&self) -> &[Sample] {
        match self.is_of_window() {
            true => &self.measured.samples[self.measured.samples.len() - stats::STEADY_ROUNDS..],
            false => &self.measured.samples,
        }
    }

    /// Completed requests over the arrivals of the same time: 1 where the array keeps up with the
    /// stated load. `None` in a closed loop.
    pub fn load_share(&self) -> Option<f64> {
        let arrivals = self.measured.arrivals.filter(|arrivals| *arrivals > 0)?;
        let completed: u64 = self.measured.samples.iter().map(|sample| sample.ops).sum();
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
        let arrivals = self.measured.arrivals.filter(|_| self.case.rate_iops.is_some())?;
        let completed: u64 = self.measured.samples.iter().map(|sample| sample.ops).sum();
        // What arrived and was not completed is the growth of the backlog, and what failed.
        let queues = u64::from(self.case.disks.max(1)) * SHORT_QUEUE;
        Some((completed + queues) as f64 >= arrivals as f64 * ENOUGH)
    }

    /// Bytes that the samples moved for the workload.
    pub fn user_bytes(&self) -> u64 {
        self.measured.samples.iter().map(|sample| sample.bytes).sum()
    }

    /// Whether it is an ordinary disk, without an array.
    pub fn is_single(&self) -> bool {
        self.case.level == BenchLevel::Single
    }

    /// Its level, if that is one of md; of a nested array the outermost.
    pub fn md_level(&self) -> Option<Level> {
        match self.case.level.known()? {
            BenchLevel::Md(level) => Some(level),
            BenchLevel::Single => None,
        }
    }

    /// Whether its kind of access is known, and the test holds for it.
    fn access(&self, test: fn(AccessKind) -> bool) -> bool {
        self.case.workload.known().is_some_and(test)
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
        let no_bytes = self.derived.iops > 0.0 && self.user_bytes() == 0;
        self.is_random() || self.access(AccessKind::is_of_names) || no_bytes
    }

    /// Whether bytes were moved: files are created and deleted without any.
    pub fn moves_data(&self) -> bool {
        self.user_bytes() > 0 || self.derived.mb_per_s > 0.0
    }

    /// Whether anything was done: a phase that does not apply has no rate, rather than a rate of 0.
    pub fn did_something(&self) -> bool {
        self.moves_data() || self.derived.iops > 0.0
    }

    /// The unit of its figure: `MB/s` or `per second`.
    pub fn unit(&self) -> &'static str {
        if self.counts_requests() { "per second" } else { "MB/s" }
    }

    /// Its figure, in its unit.
    pub fn rate(&self) -> f64 {
        if self.counts_requests() { self.derived.iops } else { self.derived.mb_per_s }
    }

    /// One of its samples in the same unit.
    pub fn rate_of(&self, sample: &Sample) -> f64 {
        if self.counts_requests() { sample.iops() } else { sample.mb_per_s() }
    }

    /// Bytes that the members moved per byte of the workload: 1 for a healthy read, 2 for a
    /// mirrored write, 4 for a RAID 5 read-modify-write.
    pub fn amplification(&self) -> Option<f64> {
        let moved: u64 = self.measured.per_member.iter().map(MemberTraffic::bytes).sum();
        let user = self.measured.program_bytes.unwrap_or_else(|| self.user_bytes());
        (user > 0 && !self.measured.per_member.is_empty()).then(|| moved as f64 / user as f64)
    }

    /// Traffic of the busiest member over that of the idlest one: 1 is even. `None` where a member
    /// that is present moved nothing ([`Cell::idle_members`]): there is no such ratio.
    pub fn imbalance(&self) -> Option<f64> {
        if self.idle_members() > 0 {
            return None;
        }
        let busy =
            || self.measured.per_member.iter().map(MemberTraffic::bytes).filter(|bytes| *bytes > 0);
        Some(busy().max()? as f64 / busy().min()? as f64)
    }

    /// Whether other processes used the CPU during its samples.
    pub fn had_a_busy_machine(&self) -> bool {
        self.derived.findings.iter().any(|finding| finding.name == "busy-machine")
    }

    /// Whether other processes spoiled the figure: they used the CPU, and the samples are far
    /// apart. Nothing is derived from it: no ratio, no winner.
    pub fn is_spoiled(&self) -> bool {
        const FAR: f64 = 0.5;
        let apart = self.derived.spread.is_some_and(|spread| {
            self.derived.mb_per_s <= 0.0 || (spread.max - spread.min) / self.derived.mb_per_s > FAR
        });
        apart && self.had_a_busy_machine()
    }

    /// Number of present members that moved nothing.
    pub fn idle_members(&self) -> usize {
        let idle = self.measured.per_member.iter().filter(|member| member.bytes() == 0).count();
        idle.saturating_sub(self.case.degraded as usize)
    }

    /// Name of its place in the record: the file system with its options.
    pub fn place_name(&self) -> Option<&str> {
        self.case.place.as_ref().map(|place| place.name.as_str())
    }

    /// The same for labels, where `kernel` is `md`.
    pub fn place_shown(&self) -> Option<String> {
        self.place_name().map(spec::target::shown_name)
    }

    /// Kind of its target, for labels.
    pub fn target_shown(&self) -> String {
        self.case
            .target
            .known()
            .map_or_else(|| self.case.target.to_string(), |kind| kind.shown().to_string())
    }
}

/// Whole numbers without a fraction: `1024`, `0.5`.
fn short_number<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if *value >= 0.0 && value.fract() == 0.0 && *value < 9e15 {
        serializer.serialize_u64(*value as u64)
    } else {
        serializer.serialize_f64(*value)
    }
}
