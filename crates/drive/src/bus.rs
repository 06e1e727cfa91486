//! Owns the shared bus: one server that every slice of every drive behind it passes.
//!
//! ```text
//!   drive 0 --slice--\
//!   drive 1 --slice---+--> | bus: one slice at a time, in order of arrival | --> host
//!   drive 2 --slice--/
//! ```
//!
//! A drive has at most one slice outstanding (`port` sees to that), so first come first served is
//! round robin among the busy drives, at a slice's granularity. Requests arrive in time order
//! because `rig` steps its drives in time order; the queue is then one number.
//!
//! Invariant: slices never overlap, so the bus never carries more than its rate.

use crate::op::{Nanos, transfer_ns};

/// One bus.
#[derive(Debug)]
pub(crate) struct Bus {
    bytes_per_s: u64,
    free_at: Nanos,
}

impl Bus {
    pub fn new(bytes_per_s: u64) -> Bus {
        Bus { bytes_per_s: bytes_per_s.max(1), free_at: 0 }
    }

    /// Queues a slice at `now`; returns when it begins and when the bus is done with it.
    pub fn carry(&mut self, now: Nanos, bytes: u64) -> (Nanos, Nanos) {
        let begin = now.max(self.free_at);
        self.free_at = begin + transfer_ns(bytes, self.bytes_per_s);
        (begin, self.free_at)
    }
}
