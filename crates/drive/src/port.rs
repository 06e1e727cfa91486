//! Owns a drive's link to the host: transfers in order, cut into slices of at most 64 KiB.
//!
//! A slice occupies the drive's link and, where there is one, the shared bus; it ends when the
//! slower of the two has carried it. The next slice needs the bus only when the last has ended,
//! which is what makes the bus fair among drives.
//!
//! Invariant: at most one slice in flight; a transfer's key comes back exactly once. Called by the
//! drive models.

use std::collections::VecDeque;

use crate::bus::Bus;
use crate::op::{NEVER, Nanos, transfer_ns};

/// The largest piece a drive sends without letting another drive have the bus.
pub(crate) const SLICE_BYTES: u64 = 64 << 10;

#[derive(Debug)]
struct Transfer {
    key: u32,
    left: u64,
    bytes_per_s: u64,
}

/// The link of one drive.
#[derive(Debug, Default)]
pub(crate) struct Port {
    queue: VecDeque<Transfer>,
    slice: Option<(u64, Nanos)>,
}

impl Port {
    /// Queues a transfer of `bytes` at no more than `bytes_per_s`.
    pub fn push(
        &mut self,
        now: Nanos,
        key: u32,
        bytes: u64,
        bytes_per_s: u64,
        bus: Option<&mut Bus>,
    ) {
        self.queue.push_back(Transfer { key, left: bytes, bytes_per_s });
        if self.slice.is_none() {
            self.begin(now, bus);
        }
    }

    /// When the slice in flight ends.
    pub fn next(&self) -> Nanos {
        self.slice.map_or(NEVER, |(_, end)| end)
    }

    /// Ends the slice in flight (which must be due) and begins the next; the key of a transfer
    /// that is thereby complete.
    pub fn step(&mut self, bus: Option<&mut Bus>) -> Option<u32> {
        let (bytes, now) = self.slice.take().expect("a slice is in flight when it ends");
        let front = self.queue.front_mut().expect("its transfer leads the queue");
        front.left -= bytes;
        let finished = (front.left == 0).then_some(front.key);
        if finished.is_some() {
            self.queue.pop_front();
        }
        self.begin(now, bus);
        finished
    }

    fn begin(&mut self, now: Nanos, bus: Option<&mut Bus>) {
        let Some(front) = self.queue.front() else { return };
        let bytes = front.left.min(SLICE_BYTES);
        let (begin, carried) = bus.map_or((now, now), |bus| bus.carry(now, bytes));
        let end = carried.max(begin + transfer_ns(bytes, front.bytes_per_s));
        self.slice = Some((bytes, end));
    }
}
