//! Counters over the time of a cell.
//!
//! Invariant: plain data, as in `record`, of which it is a part.

use serde::{Deserialize, Serialize};

/// Counters over the time of a cell, at equal steps. All lists have one value per step, or are
/// empty where the value is not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Series {
    /// Length of a step, seconds.
    pub step_s: f64,
    /// One per member, in slot order; or per disk, by name.
    pub members: Vec<MemberSeries>,
    /// Busy CPUs of the whole machine (2.0: two CPUs all the time).
    pub busy_cpus: Vec<f32>,
    /// CPU time stolen by other virtual machines, in CPUs.
    pub stolen_cpus: Vec<f32>,
    /// Interrupts per second.
    pub interrupts_per_s: Vec<f32>,
}

/// One member over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberSeries {
    /// `0`, `1`, ... or the disk's name.
    pub name: String,
    /// MB/s read.
    pub read_mb_per_s: Vec<f32>,
    /// MB/s written.
    pub write_mb_per_s: Vec<f32>,
    /// Operations per second, both directions.
    pub iops: Vec<f32>,
    /// Mean number of operations in flight.
    pub in_flight: Vec<f32>,
    /// Share of the time with at least one operation in flight, 0 to 1.
    pub busy: Vec<f32>,
}
