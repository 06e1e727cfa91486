//! What the page shows, as plain data, and whose it is: a [`Feed`].
//!
//! Invariant: a value that is not known is `None`, never 0; lists are bounded by their makers, so
//! that a frame stays small.

use std::sync::Arc;

use admin::serving::api::ScrubAction;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::page::curve::Curve;

/// Where views come from and orders go to.
pub trait Feed: Send + Sync + 'static {
    /// What there is to show now. It may block; it is called by one thread at a time, a few times a
    /// second while the page has viewers.
    fn view(&self) -> View;

    /// Whether views are taken without viewers, too: what they collect is to be complete.
    fn is_always_on(&self) -> bool {
        false
    }

    /// The report, an HTML document without scripts; `None`: there is none, or not yet.
    fn report(&self) -> Option<Arc<str>> {
        None
    }

    /// Carries out an order; what was done, as a sentence. It may block.
    ///
    /// # Errors
    /// Why it is refused.
    fn order(&self, _order: &Order) -> Result<String, Refused> {
        Err(Refused("nothing can be changed here".into()))
    }
}

/// Why an order was refused, a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refused(pub String);

/// An order of the page.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", tag = "order", deny_unknown_fields)]
pub enum Order {
    /// Takes a member out of service.
    Fail {
        /// The array's name.
        array: String,
        /// The device, as the view names it.
        device: String,
    },
    /// Has a device join; one that holds data is refused.
    Add {
        /// The array's name.
        array: String,
        /// An absolute path on the server's host.
        device: String,
    },
    /// Begins, holds or ends a scrub.
    Scrub {
        /// The array's name.
        array: String,
        /// What to do.
        action: ScrubAction,
    },
}

/// Everything that the page shows at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct View {
    /// The heading: an array, a host, a sweep.
    pub title: String,
    /// `serve`, `watch`, `sweep`.
    pub source: &'static str,
    /// When it was taken, milliseconds since 1970.
    pub at_ms: u64,
    /// Why nothing of it is known; the rest is then of the time before.
    pub error: Option<String>,
    /// The machine.
    pub machine: Option<Machine>,
    /// Arrays.
    pub arrays: Vec<Array>,
    /// Disks in none of them.
    pub disks: Vec<Disk>,
    /// A sweep.
    pub sweep: Option<Sweep>,
    /// What happened, the newest last.
    pub events: Vec<Event>,
    /// There is a report at `/report`.
    pub has_report: bool,
}

/// Shares of all CPU time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    /// Programs.
    pub user: f64,
    /// The kernel.
    pub system: f64,
    /// Nothing to do but wait for disks.
    pub iowait: f64,
    /// Used by other virtual machines of the host; `None`: the kernel does not count it.
    pub steal: Option<f64>,
}

/// An array.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// `raid5`.
    pub level: Option<String>,
    /// `left-symmetric`.
    pub layout: Option<String>,
    /// Chunk, KiB.
    pub chunk_kib: Option<u64>,
    /// Size, bytes.
    pub bytes: Option<u64>,
    /// `clean`, `active, degraded`.
    pub state: Option<String>,
    /// How bad that is.
    pub severity: Severity,
    /// Slots.
    pub slots: Option<u32>,
    /// Slots without a member in sync.
    pub degraded: Option<u32>,
    /// Slots with their members in order, then spares, then devices out of service.
    pub members: Vec<Disk>,
    /// Background work, that which runs first.
    pub work: Vec<Work>,
    /// What its users do.
    pub rates: Option<Rates>,
    /// The same over the last minutes.
    pub curve: Option<Curve>,
    /// What [`Disk::heat`] is.
    pub heat: Heat,
    /// Further facts: a name and a value each.
    pub facts: Vec<(String, String)>,
    /// Sentences.
    pub notes: Vec<String>,
}

/// How bad a state is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    #[default]
    Fine,
    /// Work is in progress, or something is of interest.
    Notice,
    /// Redundancy is lost.
    Warning,
    /// Data cannot be served.
    Bad,
}

/// What the heat of an array's members is: one scale for all of them. A member that is out of
/// service has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Heat {
    /// The share of the time with an operation in flight.
    #[default]
    Busy,
    /// Its bytes per second, as a share of those of the array's busiest member: of none of them is
    /// the time measured.
    Relative,
}

/// A disk, a member, or a slot without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Disk {
    /// Its name; `None`: the slot has no device.
    pub name: Option<String>,
    /// Its slot; `None`: spare, out of service, or in no array.
    pub slot: Option<u32>,
    /// `in_sync`, `rebuilding`, `spare`, `faulty`, `missing`, `gone`, `unknown`; `None`: a disk.
    pub state: Option<String>,
    /// How bad that is.
    pub severity: Severity,
    /// It replaces the slot's member when it is in sync.
    pub replaces: bool,
    /// The share of it that is in sync, 0 to 1, while it is rebuilt.
    pub synced: Option<f64>,
    /// What it does.
    pub rates: Option<Rates>,
    /// 0 to 1; see [`Heat`].
    pub heat: Option<f64>,
}

/// What a device does, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
    /// MB (10^6 bytes) read.
    pub read_mb: f64,
    /// MB written.
    pub write_mb: f64,
    /// Mean time of an operation, ms; `None`: there was none, or the time is not measured.
    pub latency_ms: Option<f64>,
    /// Share of the time with an operation in flight, 0 to 1.
    pub busy: Option<f64>,
    /// Mean number of operations in flight.
    pub queue: Option<f64>,
}

/// Background work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// `resync`, `recover`, `check`, `repair`, `reshape`.
    pub action: String,
    /// `running`, `paused`, `waiting`, `stalled`.
    pub state: String,
    /// The share that is done, 0 to 1.
    pub done: Option<f64>,
    /// Bytes per second.
    pub bytes_per_s: Option<f64>,
    /// Seconds that it takes at this rate.
    pub eta_s: Option<u64>,
    /// Why it is stalled.
    pub error: Option<String>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its number: another one for each event.
    pub number: u64,
    /// When, milliseconds since 1970.
    pub at_ms: u64,
    /// `Fail`, `RebuildFinished`; of a finding its name.
    pub kind: String,
    /// How bad it is.
    pub severity: Severity,
    /// The device or the cell that it concerns.
    pub subject: Option<String>,
    /// The same as a sentence.
    pub text: String,
}

/// A sweep.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sweep {
    /// Items in all, of this call.
    pub items: usize,
    /// Those that were measured.
    pub done: usize,
    /// Those that could not be measured.
    pub failed: usize,
    /// How it has ended: `finished`; `None` while it runs.
    pub ended: Option<&'static str>,
    /// Seconds since its start.
    pub elapsed_s: f64,
    /// What remains, as text: `2m30s and 2 program(s)`.
    pub left: Option<String>,
    /// What it does between cells: `raid5 x4: filling 30 %`.
    pub doing: Option<String>,
    /// The running cell.
    pub running: Option<Running>,
    /// The last cells that were measured, the newest last.
    pub measured: Vec<Measured>,
    /// Cells that were measured in all.
    pub cells: usize,
}

/// A cell or phase that runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Running {
    /// Its number: another one for each cell.
    pub number: u64,
    /// What it is.
    pub cell: Cell,
    /// Seconds since it began.
    pub seconds: f64,
    /// MB/s now; `None`: it moves no bytes, or nothing is known yet.
    pub mb_per_s: Option<f64>,
    /// Operations per second now.
    pub iops: Option<f64>,
    /// Median of the latency now, ms.
    pub p50_ms: Option<f64>,
    /// 99th percentile of the latency now, ms.
    pub p99_ms: Option<f64>,
    /// Its course: `mb`, `p50`, `p99`.
    pub curve: Curve,
    /// What the members could do together.
    pub bound: Option<Bound>,
}

/// Names of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The array, or the program.
    pub array: String,
    /// The workload, or the phase.
    pub workload: String,
}

/// The bound of a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Bound {
    /// MB/s of the workload; `None`: there is no bound.
    pub mb_per_s: Option<f64>,
    /// What limits, or why there is none.
    pub note: Option<String>,
}

/// A cell that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// What it is.
    pub cell: Cell,
    /// MB/s.
    pub mb_per_s: f64,
    /// Operations per second.
    pub iops: f64,
    /// 99th percentile of the latency, ms.
    pub p99_ms: Option<f64>,
    /// Share of the bound, 0 to 1.
    pub bound_share: Option<f64>,
    /// Whether all data that were read were those that were written; `None`: not compared.
    pub verified: Option<bool>,
    /// Number of warnings about it.
    pub warnings: usize,
}
