//! What a cell has of the host that measured it, and of several hosts at one target.
//!
//! Invariant: plain data, as in `record`, of which it is a part.

use serde::{Deserialize, Serialize};

/// When a host measured an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ItemTimes {
    /// When the host began with the array or program of the item, seconds since 1970, by its own
    /// clock. Items of one array have the same.
    pub began_unix_s: f64,
    /// When it was done with it.
    pub ended_unix_s: f64,
    /// The host's clock minus that of the machine which directed the sweep, seconds.
    pub clock_offset_s: Option<f64>,
    /// Error of the offset, seconds, at most: half of the round trip that measured it.
    pub clock_error_s: Option<f64>,
}

/// Load of several hosts on one target: of one of them, or of all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// All hosts at the target.
    pub hosts: Vec<String>,
    /// The agreed start, seconds since 1970, by the clock of the machine which directed it.
    pub start_unix_s: f64,
    /// Of one host: its first request, seconds after the agreed start.
    pub began_s: Option<f64>,
    /// Of one host: the end of its samples, seconds after the agreed start.
    pub done_s: Option<f64>,
    /// The host's clock minus that of the machine which directed it, seconds; already subtracted
    /// from all times here.
    pub clock_offset_s: Option<f64>,
    /// Error of the offset, seconds, at most.
    pub clock_error_s: Option<f64>,
    /// Of one host: what it had done by then, warm-up included, a few times a second.
    pub series: Vec<LoadPoint>,
    /// Of all together: the end of the first host that was done, seconds after the agreed start.
    pub first_done_s: Option<f64>,
    /// Of all together: the end of the last host.
    pub last_done_s: Option<f64>,
    /// Of all together: the time in which all of them measured.
    pub window: Option<LoadWindow>,
}

/// What a host had done by an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadPoint {
    /// Seconds after the agreed start.
    pub at_s: f64,
    /// Bytes moved by then.
    pub bytes: u64,
    /// Requests completed by then.
    pub ops: u64,
}

/// A stretch of time, seconds after the agreed start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadWindow {
    /// Its begin.
    pub from_s: f64,
    /// Its end.
    pub to_s: f64,
}

impl LoadWindow {
    /// Its length, seconds.
    pub fn seconds(self) -> f64 {
        self.to_s - self.from_s
    }
}
