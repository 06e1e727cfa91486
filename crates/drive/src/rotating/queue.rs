//! Owns the commands that wait for the medium, and which of them is next.
//!
//! Shortest positioning time first (Jacobson and Wilkes, "Disk scheduling algorithms based on
//! rotational position", HPL-CSP-91-7, 1991), which is what native command queueing is for; a
//! command that has waited past the age limit goes first, so that none starves.
//!
//! Invariant: entries are in order of arrival. At most the drive's queue depth. Called by `drive`.

use crate::op::Nanos;
use crate::rotating::head::Place;

/// A command that needs the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub key: u32,
    pub at: u64,
    pub end: u64,
    /// A FUA write; else a read.
    pub write: bool,
    pub place: Place,
    pub arrived: Nanos,
}

/// What it would take to serve a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub wait: Nanos,
    /// The head gets there by reading on.
    pub continues: bool,
    /// It belongs to the stream under the head, now or soon.
    pub same_stream: bool,
}

/// The commands that wait for the medium.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: Vec<Pending>,
    age_limit: Nanos,
}

impl Queue {
    pub fn new(age_limit: Nanos) -> Queue {
        Queue { entries: Vec::new(), age_limit }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn push(&mut self, pending: Pending) {
        self.entries.push(pending);
    }

    pub fn remove(&mut self, index: usize) -> Pending {
        self.entries.remove(index)
    }

    /// The entry to serve next, and its cost. `sated` says that the stream under the head has had
    /// its turn, and goes on only if nothing else waits. `None` when empty.
    pub fn choose(
        &self,
        now: Nanos,
        sated: bool,
        cost: impl Fn(&Pending) -> Cost,
    ) -> Option<(usize, Cost)> {
        let oldest = self.entries.first()?;
        if now - oldest.arrived > self.age_limit {
            return Some((0, cost(oldest)));
        }
        let costs = self.entries.iter().map(cost).enumerate();
        costs.min_by_key(|(_, cost)| (sated && cost.same_stream, cost.wait))
    }

    /// Whether the oldest entry has waited past the age limit.
    pub fn is_overdue(&self, now: Nanos) -> bool {
        self.entries.first().is_some_and(|oldest| now - oldest.arrived > self.age_limit)
    }
}
