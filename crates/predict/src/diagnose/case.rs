//! What a diagnosis is made from.
//!
//! Invariant: plain data; what is not known is `None`, never 0.

use crate::law::{Access, Array, Machine, Single, Work};
use serde::Serialize;

use crate::diagnose::probe::ProbeFigures;

/// An array, a workload, what was measured, and what is known besides.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// md's name of the array, where it is known: its raid thread is called after it.
    pub md: Option<String>,
    /// It is run by this project's engine: what md's stripe cache and file systems cost does not
    /// apply.
    pub ours: bool,
    /// The array; `missing` counts members that are missing now.
    pub array: Array,
    /// Kernel, media, settings and known paths.
    pub machine: Machine,
    /// The workload. `depth` counts where `direct` is set, and for random workloads.
    pub access: Access,
    /// The workload's depth is not stated: that of `access` is no figure.
    pub depth_is_unknown: bool,
    /// Mean size of its requests, KiB; `None`: large, or unknown.
    pub request_kib: Option<f64>,
    /// What one disk does, as far as it is known without probes.
    pub single: Single,
    /// What was measured: MB/s, or operations per second, by the workload.
    pub measured: f64,
    /// What the array is doing besides.
    pub state: State,
    /// What was counted during the measurement.
    pub sample: Option<Sample>,
    /// What probes found so far.
    pub probes: ProbeFigures,
}

impl Case {
    /// Whether its background work is a rebuild, as far as that is known.
    pub fn is_rebuild(&self) -> bool {
        match &self.state.sync {
            Some(sync) => sync.action == "recover",
            None => self.access.work == Work::Resync && self.array.missing > 0,
        }
    }

    /// What md counts for a sector of each member in the background.
    pub fn counted_by_md(&self) -> f64 {
        self.array.counted_by_md(self.is_rebuild())
    }
}

/// State and settings that the law has no input for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Background work that runs.
    pub sync: Option<Sync>,
    /// The array has a write-intent bitmap.
    pub bitmap: Option<bool>,
    /// Write caches of the members are on; of any of them off: false.
    pub write_cache: Option<bool>,
    /// Rate of the network between the array and the program, MB/s of payload.
    pub network_mb_per_s: Option<f64>,
    /// Links of members that run below what both ends can do.
    pub narrow_links: Vec<NarrowLink>,
    /// `sync_speed_min`, MB/s as md counts; `None`: md's own.
    pub sync_speed_min: Option<f64>,
    /// Limits of the control group of the workload.
    pub io_limits: Vec<IoLimit>,
    /// Devices of the device mapper above and below the array.
    pub layers: Vec<Layer>,
    /// Number of CPUs.
    pub cpus: Option<f64>,
    /// The machine's stripe cache was stated, or read from sysfs: it is not md's own.
    pub stripe_cache_is_stated: bool,
    /// Nothing says what the members are made of: the machine's media is assumed.
    pub media_is_assumed: bool,
}

/// A limit of a control group: of the array, or of one member.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IoLimit {
    /// Where it was found: `backup: 9:0 wbps=104857600`.
    pub words: String,
    /// It is of a member, not of the array.
    pub is_of_a_member: bool,
    /// Read, MB/s.
    pub read_mb: Option<f64>,
    /// Written, MB/s.
    pub write_mb: Option<f64>,
    /// Reads per second.
    pub reads: Option<f64>,
    /// Writes per second.
    pub writes: Option<f64>,
}

impl IoLimit {
    /// A line of `io.max`: `9:0 rbps=104857600 wbps=max riops=max wiops=max`; `None`: it has no
    /// limit.
    pub fn parse(line: &str) -> Option<IoLimit> {
        let of = |key: &str| -> Option<f64> {
            let value = line.split_whitespace().find_map(|word| word.strip_prefix(key))?;
            value.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0)
        };
        let limit = IoLimit {
            words: line.trim().to_string(),
            is_of_a_member: false,
            read_mb: of("rbps=").map(|bytes| bytes / 1e6),
            write_mb: of("wbps=").map(|bytes| bytes / 1e6),
            reads: of("riops="),
            writes: of("wiops="),
        };
        let all = [limit.read_mb, limit.write_mb, limit.reads, limit.writes];
        all.iter().any(Option::is_some).then_some(limit)
    }
}

/// A device of the device mapper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// `dm-0 (luks-data)`.
    pub name: String,
    /// `253:0`.
    pub number: String,
    /// It encrypts.
    pub is_crypt: bool,
}

/// A link that was trained below what both of its ends can do.
#[derive(Clone, Debug, PartialEq)]
pub struct NarrowLink {
    /// `nvme1n1: PCIe x1 of x4`.
    pub words: String,
    /// What it carries, MB/s.
    pub mb_per_s: f64,
    /// Members behind it.
    pub members: u32,
}

/// Background work of the array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sync {
    /// `resync`, `recover`, `check`, `repair`, `reshape`.
    pub action: String,
    /// Its rate per member, of a reshape as md counts it, MB/s; 0: it stands still.
    pub mb_per_s: Option<f64>,
    /// Where it is, of the members' length: 0 to 1.
    pub position: Option<f64>,
    /// It is due, and has not begun: for this.
    pub waits: Option<Wait>,
}

/// What background work waits for before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// `DELAYED`: another array on the same disks has work that runs.
    OtherArray,
    /// `PENDING`: the first write to an array that is `auto-read-only`.
    FirstWrite,
}

impl Sync {
    /// Work of an array at a rate as md counts it; that of a reshape stays so.
    pub fn of_md(action: &str, counted_mb: Option<f64>, position: Option<f64>, of: &Array) -> Sync {
        let is_of_members = !["resync", "check", "repair"].contains(&action);
        let mb_per_s = counted_mb.map(|rate| rate / of.counted_by_md(is_of_members));
        Sync { action: action.to_string(), mb_per_s, position, waits: None }
    }

    /// The action in md's words of /proc/mdstat: `recovery`.
    pub fn word(&self) -> &str {
        if self.action == "recover" { "recovery" } else { &self.action }
    }
}

/// What was counted during the measurement, per second of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// What the program did to the array.
    pub array: Traffic,
    /// What the array did to its members, in slot order.
    pub members: Vec<MemberSample>,
    /// CPUs and threads.
    pub cpu: Option<CpuSample>,
    /// The network interface that the figure went through.
    pub network: Option<Network>,
}

/// Traffic of a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    /// Reads per second.
    #[serde(rename = "reads_per_s")]
    pub reads: f64,
    /// Writes per second.
    #[serde(rename = "writes_per_s")]
    pub writes: f64,
    /// MB read per second.
    #[serde(rename = "read_mb_per_s")]
    pub read_mb: f64,
    /// MB written per second.
    #[serde(rename = "write_mb_per_s")]
    pub write_mb: f64,
    /// Flushes per second; `None`: not counted, as of arrays of md and of partitions.
    #[serde(rename = "flushes_per_s")]
    pub flushes: Option<f64>,
    /// Mean number of operations in flight; `None`: not counted.
    pub queue: Option<f64>,
    /// Share of the time with at least one in flight, 0 to 1; `None`: not counted.
    pub busy: Option<f64>,
}

impl Traffic {
    /// Operations per second.
    pub fn operations(&self) -> f64 {
        self.reads + self.writes
    }

    /// MB per second.
    pub fn mb(&self) -> f64 {
        self.read_mb + self.write_mb
    }

    /// Mean size of an operation, KiB; `None` without any.
    pub fn request_kib(&self) -> Option<f64> {
        (self.operations() > 0.0).then(|| self.mb() * 1e6 / 1024.0 / self.operations())
    }

    /// Mean time of an operation, ms, by Little's law; `None` without a queue or operations.
    pub fn wait_ms(&self) -> Option<f64> {
        let queue = self.queue?;
        (self.operations() > 0.0).then(|| queue / self.operations() * 1e3)
    }
}

/// A member's traffic.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemberSample {
    /// Its name.
    pub name: String,
    /// What it did.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// CPU time during the measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CpuSample {
    /// Share of all CPUs that was busy, 0 to 1.
    pub busy: f64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Threads, the busiest first.
    pub threads: Vec<Thread>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Thread {
    /// `md0_raid5`, `rsync`.
    pub name: String,
    /// CPUs that it used: 1 is one of them for all of the time.
    pub cpus: f64,
    /// It is a thread of the kernel.
    pub kernel: bool,
    /// Its process read or wrote in the sample as the workload does; `None`: unknown.
    pub io: Option<bool>,
}

/// A network interface.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Network {
    /// MB per second in the busier direction.
    pub mb_per_s: f64,
    /// What its link carries, MB/s of payload; `None`: unknown.
    pub limit_mb_per_s: Option<f64>,
}
