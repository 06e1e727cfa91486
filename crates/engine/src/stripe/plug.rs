//! Plugging: delays writes of a stream until adjacent writes complete the stripe.
//!
//! ```text
//! new piece --> by_ends: earlier writes are still in flight; when they complete, the host
//!    |               |    submits more
//!    |               v
//!    |            clocks: at most `merge_wait_nanos`, and about as long as a write takes
//!    v               v
//!   row complete, or the stream has passed its end, or no other write --> planned
//! ```
//! Without the first stage a member slower than the clock would break every stream: a host at its
//! queue depth cannot send the rest of a row before an earlier request completes.
//!
//! Invariant: a waiting row is in `by_ends` or in `clocks`, and the event that it waits for occurs:
//! operations complete, and the shard sets the timer. Called only from `stripes` and `ops`.

use std::collections::VecDeque;

use super::rows::{Rows, Wait};

pub(crate) struct Plug {
    merge_wait_nanos: u64,
    /// Number of writing operations so far.
    begun: u64,
    ended: u64,
    /// Duration of a writing operation, as a moving average.
    typical_nanos: u64,
    /// (operations that must have completed, row), in ascending order.
    by_ends: VecDeque<(u64, u32)>,
    /// (deadline, row), in ascending order.
    clocks: VecDeque<(u64, u32)>,
}

impl Plug {
    pub(crate) fn new(merge_wait_nanos: u64) -> Plug {
        Plug {
            merge_wait_nanos,
            begun: 0,
            ended: 0,
            typical_nanos: merge_wait_nanos,
            by_ends: VecDeque::new(),
            clocks: VecDeque::new(),
        }
    }

    pub(crate) fn write_begun(&mut self) {
        self.begun += 1;
    }

    pub(crate) fn write_ended(&mut self, took_nanos: u64) {
        self.ended += 1;
        self.typical_nanos = self.typical_nanos - self.typical_nanos / 8 + took_nanos / 8;
    }

    /// Whether the row's writes continue to wait. `alone`: no other write is in the shard, so that
    /// no adjacent one can come.
    pub(crate) fn waits(&mut self, rows: &mut Rows, row: u32, now: u64, alone: bool) -> bool {
        if alone || self.merge_wait_nanos == 0 || !rows.wants_neighbours(row) {
            return false;
        }
        match rows.table[row].wait {
            Some(Wait::Until(deadline)) => now < deadline,
            Some(Wait::Ends(_)) => true,
            None => {
                rows.table[row].wait = Some(Wait::Ends(self.begun));
                self.by_ends.push_back((self.begun, row));
                true
            }
        }
    }

    /// Wakes the rows whose deadline has passed, after a timer event.
    pub(crate) fn timer_due(&mut self, rows: &mut Rows, now: u64) {
        while let Some((deadline, row)) = self.clocks.front().copied() {
            if deadline > now {
                break;
            }
            self.clocks.pop_front();
            if is_waiting(rows, row, Wait::Until(deadline)) {
                rows.touch(row);
            }
        }
    }

    /// Starts the clocks of rows with no more writes in flight to wait for; returns the next
    /// deadline.
    pub(crate) fn unplug_due(&mut self, rows: &mut Rows, now: u64) -> Option<u64> {
        while let Some((ends, row)) = self.by_ends.front().copied() {
            let waiting = is_waiting(rows, row, Wait::Ends(ends));
            if waiting && ends > self.ended {
                break;
            }
            self.by_ends.pop_front();
            if waiting {
                let span = self.merge_wait_nanos.min(2 * self.typical_nanos);
                let last = self.clocks.back().map_or(0, |(deadline, _)| *deadline);
                let deadline = last.max(now + span);
                rows.table[row].wait = Some(Wait::Until(deadline));
                self.clocks.push_back((deadline, row));
            }
        }
        while let Some((deadline, row)) = self.clocks.front().copied() {
            if is_waiting(rows, row, Wait::Until(deadline)) {
                break;
            }
            self.clocks.pop_front();
        }
        self.clocks.front().map(|(deadline, _)| *deadline)
    }
}

/// Whether this is still what the row waits for.
fn is_waiting(rows: &Rows, row: u32, wait: Wait) -> bool {
    rows.table.is_live(rows.table.key(row)) && rows.table[row].wait == Some(wait)
}
