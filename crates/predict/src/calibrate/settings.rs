//! How long probes last, and how many requests they make.

use crate::calibrate::load::Limit;

/// How long probes last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Seconds of each sequential probe.
    pub stream_seconds: f64,
    /// Random reads of a disk with platters at depth 1; others get ten times as many.
    pub random_reads: u64,
    /// Upper limit of any probe, seconds: a disk may be far slower than expected.
    pub most_seconds: f64,
    /// Seconds in which the cache of a disk that was written is empty again.
    pub cache_rest_seconds: f64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            stream_seconds: 2.0,
            random_reads: 400,
            most_seconds: 15.0,
            cache_rest_seconds: 4.0,
        }
    }
}

impl Settings {
    /// A quarter of the time, and less exact.
    pub fn quick() -> Settings {
        Settings {
            stream_seconds: 0.5,
            random_reads: 100,
            most_seconds: 4.0,
            cache_rest_seconds: 1.0,
        }
    }

    pub(crate) fn stream(&self) -> Limit {
        Limit::seconds(self.stream_seconds)
    }

    pub(crate) fn requests(&self, rotates: bool, depth: u64) -> Limit {
        let each = if rotates { self.random_reads } else { 10 * self.random_reads };
        let nanos = (self.most_seconds * 1e9) as u64;
        Limit { nanos, requests: each * depth.min(4) }
    }
}
