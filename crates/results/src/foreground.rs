//! What a cell with background work has of its workload without the work.
//!
//! Invariant: plain data, as in `record`, of which it is a part.

use serde::{Deserialize, Serialize};

use crate::stats::Latency;

/// A workload without background work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ForegroundAlone {
    /// Median of its samples' rates, MB/s.
    pub mb_per_s: f64,
    /// Median of its samples' requests per second.
    pub iops: f64,
    /// Its latency, as the cell's `latency_us` is defined.
    pub latency_us: Option<Latency>,
}
