//! What a run of a block workload and a phase of a program have in common: the measured figures,
//! and the fields of a cell that follow from them.
//!
//! Invariant: the fields that cells of block workloads and of programs share are filled here alone.
//! Filled by `runner` and `program::run`, turned into cells by `blocks` and `program::cells`.

use crate::metrics::Recorded;
use crate::metrics::meter::CpuUsed;
use array::{Counters, Event};
use results::findings;
use results::record::{Cell, CellCase, CellMeasured, DirectionFigures, Sample, ThreadTime};
use results::stats::LatencyRecorder;
use spec::workload::AccessKind;

use crate::verify::VerifyErrors;

/// Name prefix of io_uring's worker threads of a process.
const KERNEL_WORKERS: &str = "iou-";

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The samples, in order.
    pub samples: Vec<Sample>,
    /// Latency of the requests or operations that completed in the samples.
    pub latency: LatencyRecorder,
    /// Of a mixed block workload.
    pub directions: Option<ByDirection>,
    /// Of an open loop.
    pub open_loop: Option<OpenLoop>,
    /// CPU time of process and machine.
    pub cpu: Option<CpuUsed>,
    /// Exact CPU time of each generating thread of a block workload, in the order of the shards.
    pub shards: Vec<ThreadTime>,
    /// Whether other threads of the process may serve what lies below the target.
    pub served_below: bool,
    /// Counters of the members (nested: leaves) over the samples.
    pub members: Vec<Counters>,
    /// Counters over time.
    pub recorded: Option<Recorded>,
    /// Wrong data and failed requests: in the samples, and where written data was compared later.
    pub errors: VerifyErrors,
    /// Whether everything was checked as planned; `false` if it was stopped before.
    pub checked: bool,
    /// Events of members of a block workload's array.
    pub events: Vec<Event>,
    /// Whether it was stopped early.
    pub stopped: bool,
    /// Rate of background work over the samples, of each member.
    pub background_mb_per_s: Option<f64>,
    /// Sectors in which redundancy did not agree with the data, after or in background work.
    pub mismatch_sectors: u64,
}

/// The reads and the writes of a mixed block workload.
#[derive(Clone, Debug, Default)]
pub struct ByDirection {
    /// The reads.
    pub reads: Direction,
    /// The writes.
    pub writes: Direction,
}

/// The requests of one direction.
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Their part of each sample, over its whole time.
    pub samples: Vec<Sample>,
    /// Their latency.
    pub latency: LatencyRecorder,
}

impl Direction {
    fn add(&mut self, more: Direction) {
        self.samples.extend(more.samples);
        self.latency.merge(&more.latency);
    }

    fn figures(&self) -> DirectionFigures {
        DirectionFigures {
            samples: self.samples.clone(),
            latency_us: self.latency.latency(),
            latency_bins: Some(self.latency.bins()).filter(|bins| !bins.is_empty()),
            ..DirectionFigures::default()
        }
    }
}

/// What an open loop has besides: its latencies are from the scheduled arrivals.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    /// Times from submission to completion.
    pub service: LatencyRecorder,
    /// Requests that arrived during the samples.
    pub arrivals: u64,
    /// Arrivals that were not submitted when the samples ended, because all that may be in flight
    /// was.
    pub waiting: u64,
}

impl OpenLoop {
    /// Adds another shard's.
    pub fn join(sum: &mut Option<OpenLoop>, more: Option<OpenLoop>) {
        match (sum, more) {
            (Some(sum), Some(more)) => {
                sum.service.merge(&more.service);
                sum.arrivals += more.arrivals;
                sum.waiting += more.waiting;
            }
            (sum @ None, more) => *sum = more,
            (Some(_), None) => {}
        }
    }
}

/// The load on the target.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Kind of access.
    pub workload: AccessKind,
    /// Longest request, bytes; 0: there was none.
    pub block_bytes: u64,
    /// I/O depth of a job or worker.
    pub depth: u32,
    /// Number of jobs or workers.
    pub jobs: u32,
}

impl Measurement {
    /// A measurement without samples: nothing is wrong, and nothing is left to be checked.
    pub fn none() -> Measurement {
        Measurement {
            samples: Vec::new(),
            latency: LatencyRecorder::new(),
            directions: None,
            open_loop: None,
            cpu: None,
            shards: Vec::new(),
            served_below: false,
            members: Vec::new(),
            recorded: None,
            errors: VerifyErrors::default(),
            checked: true,
            events: Vec::new(),
            stopped: false,
            background_mb_per_s: None,
            mismatch_sectors: 0,
        }
    }

    /// Adds the figures of another pass, or of another run. What was recorded over time is that of
    /// the first.
    pub fn add(&mut self, more: Measurement) {
        let is_first = self.samples.is_empty();
        self.samples.extend(more.samples);
        self.latency.merge(&more.latency);
        match (&mut self.directions, more.directions) {
            (Some(sum), Some(more)) => {
                sum.reads.add(more.reads);
                sum.writes.add(more.writes);
            }
            (sum @ None, parts) if is_first => *sum = parts,
            // They would be a part of the samples.
            (sum, _) => *sum = None,
        }
        OpenLoop::join(&mut self.open_loop, more.open_loop);
        match (&mut self.cpu, more.cpu) {
            (Some(sum), Some(cpu)) => sum.add(&cpu),
            (sum @ None, cpu) if is_first => *sum = cpu,
            // The sum would be of a part of the samples.
            (sum, _) => *sum = None,
        }
        add_counters(&mut self.members, &more.members);
        self.recorded = self.recorded.take().or(more.recorded);
        self.errors.add(&more.errors);
        self.checked &= more.checked;
        self.events.extend(more.events);
    }

    /// A cell with the fields of `base`, the load, and what was measured, summarised.
    pub fn cell(&self, load: Load, base: Cell) -> Cell {
        let mut cell = Cell {
            case: CellCase {
                workload: load.workload.into(),
                block_kib: load.block_bytes as f64 / 1024.0,
                depth: load.depth,
                jobs: load.jobs,
                ..base.case
            },
            measured: CellMeasured {
                samples: self.samples.clone(),
                latency_us: self.latency.latency(),
                latency_curve: self.latency.curve(),
                latency_bins: Some(self.latency.bins()).filter(|bins| !bins.is_empty()),
                reads_apart: self.directions.as_ref().map(|parts| parts.reads.figures()),
                writes_apart: self.directions.as_ref().map(|parts| parts.writes.figures()),
                service_bins: self.open_loop.as_ref().map(|open| open.service.bins()),
                service_us: self.open_loop.as_ref().and_then(|open| open.service.latency()),
                arrivals: self.open_loop.as_ref().map(|open| open.arrivals),
                waiting: self.open_loop.as_ref().map(|open| open.waiting),
                verified: self.verified(),
                per_member: self.members.iter().map(crate::metrics::traffic).collect(),
                cpu_process_s: self.cpu.as_ref().map(|cpu| cpu.process_s),
                cpu_threads: self.threads(),
                ..base.measured
            },
            ..base
        };
        if let Some(cpu) = &self.cpu {
            cpu.put_machine_into(&mut cell);
        }
        cell.summarise();
        if let Some(recorded) = self.recorded.clone() {
            recorded.put_into(&mut cell);
        }
        if !cell.measured.samples.is_empty() {
            cell.derived.findings = findings::find(&cell);
        }
        cell
    }

    fn verified(&self) -> Option<bool> {
        match self.errors.is_clean() && self.mismatch_sectors == 0 {
            false => Some(false),
            // A phase that was refused has measured nothing.
            true => (self.checked && !self.samples.is_empty()).then_some(true),
        }
    }

    /// CPU time by thread, the busiest first. Generating threads measure their own time exactly;
    /// the time of the others (io_uring's workers, the threads of an array below a file system,
    /// kernel threads) comes from the kernel's clock ticks.
    fn threads(&self) -> Vec<ThreadTime> {
        let mut threads = self.shards.clone();
        let all = self.shards.is_empty() || self.served_below;
        let counted =
            |name: &str| name.starts_with(KERNEL_WORKERS) || (all && !self.is_generator(name));
        let of_process = self.cpu.iter().flat_map(|cpu| &cpu.threads).flatten();
        let of_kernel = self.cpu.iter().flat_map(|cpu| &cpu.kernel).flatten();
        let own = of_process.filter(|thread| counted(&thread.name));
        threads.extend(own.chain(of_kernel).map(ThreadTime::from));
        threads.sort_by(|one, two| two.seconds.total_cmp(&one.seconds));
        threads
    }

    fn is_generator(&self, name: &str) -> bool {
        self.shards.iter().any(|shard| shard.name == name)
    }
}

/// Adds counters of members.
pub fn add_counters(sums: &mut Vec<Counters>, more: &[Counters]) {
    sums.resize(sums.len().max(more.len()), Counters::default());
    sums.iter_mut().zip(more).for_each(|(sum, more)| sum.add(more));
}
