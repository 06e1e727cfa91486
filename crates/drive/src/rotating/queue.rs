//! Owns the commands that wait for the medium, and which of them is next.
//!
//! Shortest positioning time first (Jacobson and Wilkes, "Disk scheduling algorithms based on
//! rotational position", HPL-CSP-91-7, 1991), which is what native command queueing is for. The
//! firmware's knowledge of the angle has a margin (`Head::expected`). A command that has waited
//! past the age limit goes first, so that none starves.
//!
//! Invariant: entries are in order of arrival. At most the drive's queue depth. Called by `drive`.

use crate::op::Nanos;
use crate::rotating::head::HeadPosition;

/// The largest gap inside a run of commands, as a multiple of the command behind it.
const GAP_MAX: u64 = 4;

/// A command that needs the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub key: u32,
    pub at: u64,
    pub end: u64,
    /// A FUA write; else a read.
    pub write: bool,
    pub position: HeadPosition,
    pub arrived: Nanos,
}

/// The cost of serving a command.
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
    /// its turn, and continues only if nothing else waits. `None` when empty.
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
        let costs = self.entries.iter().map(&cost).enumerate();
        let best = costs.min_by_key(|(_, cost)| (sated && cost.same_stream, cost.wait))?;
        if best.1.continues {
            return Some(best);
        }
        let first = self.first_of_run(best.0);
        Some((first, cost(&self.entries[first])))
    }

    /// The first of the commands that lead up to the chosen one, end to start: a stream that is
    /// entered in its middle would be served backwards, a turn for each piece. Small gaps (a parity
    /// chunk that the host skips) do not end the run.
    fn first_of_run(&self, chosen: usize) -> usize {
        let mut first = chosen;
        loop {
            let Pending { at, end, write, .. } = self.entries[first];
            let reach = at.saturating_sub((end - at) * GAP_MAX);
            let leads = |other: &Pending| {
                other.write == write && other.at < at && (reach..=at).contains(&other.end)
            };
            match self.entries.iter().position(leads) {
                Some(index) => first = index,
                None => return first,
            }
        }
    }

    /// Whether the oldest entry has waited past the age limit.
    pub fn is_overdue(&self, now: Nanos) -> bool {
        self.entries.first().is_some_and(|oldest| now - oldest.arrived > self.age_limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Layout, Placement};
    use crate::profile::{Mechanics, Profile};
    use crate::rotating::Surface;
    use crate::rotating::head::Head;

    /// Entries at these addresses, 4 KiB each, which arrived at 0, 1, 2, ...
    fn queue(starts: &[u64]) -> Queue {
        let profile = Profile::named("hdd-2007").unwrap();
        let Mechanics::Rotating(numbers) = profile.mechanics() else { panic!("it rotates") };
        let capacity = profile.capacity_bytes();
        let layout = Layout::new(Placement::Window { at: 0.0 }, 1 << 30, capacity);
        let head = Head::new(Surface::new(numbers, capacity, 0), layout, 0, 0);
        let mut queue = Queue::new(100);
        for (key, &at) in starts.iter().enumerate() {
            let (key, arrived, position) = (key as u32, key as Nanos, head.position_of(at));
            queue.push(Pending { key, at, end: at + 4096, write: false, position, arrived });
        }
        queue
    }

    /// Costs as much as the address, and belongs to the stream under the head below `stream`.
    fn choose(queue: &Queue, now: Nanos, sated: bool, stream: u64) -> usize {
        let cost = |pending: &Pending| {
            let same_stream = pending.at < stream;
            Cost { wait: pending.at, continues: same_stream, same_stream }
        };
        queue.choose(now, sated, cost).unwrap().0
    }

    #[test]
    fn the_shortest_wait_goes_first_unless_another_is_overdue_or_the_stream_sated() {
        let queue = queue(&[900_000, 300_000, 100_000, 500_000]);
        assert_eq!(choose(&queue, 50, false, 0), 2);
        assert_eq!(choose(&queue, 101, false, 0), 0);
        assert_eq!(choose(&queue, 50, true, 200_000), 1);
        assert_eq!(choose(&queue, 50, true, 1_000_000), 2, "nothing else waits");
    }

    #[test]
    fn a_run_is_entered_at_its_first_command() {
        let mut queue = queue(&[20_480, 12_288, 1_000_000, 65_536, 0]);
        let downwards = |pending: &Pending| Cost {
            wait: 2_000_000 - pending.at,
            continues: false,
            same_stream: false,
        };
        let mut order = Vec::new();
        while let Some((index, _)) = queue.choose(50, false, downwards) {
            order.push(queue.remove(index).at);
        }
        assert_eq!(order, [1_000_000, 65_536, 0, 12_288, 20_480]);
    }
}
