//! Which members an array without metadata has lost, when several shards serve it: a member that
//! one shard drops is dropped by all.
//!
//! ```text
//! shard A   MemberFailed -->          --> FailMember   shard B
//!                           `FailureCoordinator`  <-- MemberFailed (its answer)
//! shard A       Recorded <--          --> Recorded
//! ```
//! The part that the metadata manager plays for arrays with metadata, without anything to write. A shard that
//! drops a member holds its writes back until it hears that all shards know.
//!
//! Two shards may drop different members at once, each of which the array can live without, but not
//! both. The first to be heard of is lost. The shard that dropped the other is *apart*: it cannot
//! follow, because its own rows need the first. It serves what it still can, and acknowledges no
//! write any more.
//!
//! Invariant: all shards that acknowledge writes have lost the same members, and the array can
//! serve all of its data without them. Called by an executor with the events of all shards, those
//! of one shard in their order.

use md::{Geometry, MemberIdx};

use crate::{Control, ControlEvent, MemberSet};

/// See the module's documentation.
pub struct FailureCoordinator {
    geometry: Geometry,
    lost: MemberSet,
    shards: Vec<Known>,
}

/// What is known of a shard.
struct Known {
    /// Members that it has dropped, as far as it has said so.
    dropped: MemberSet,
    /// The last epoch of which it waits to hear.
    waits: Option<u64>,
    apart: bool,
}

impl FailureCoordinator {
    /// Of an array that begins without the members in `missing`.
    pub fn new(geometry: Geometry, shards: u16, missing: MemberSet) -> FailureCoordinator {
        let known = || Known { dropped: missing, waits: None, apart: false };
        FailureCoordinator {
            geometry,
            lost: missing,
            shards: (0..shards).map(|_| known()).collect(),
        }
    }

    /// Members that the array has lost.
    pub fn lost(&self) -> MemberSet {
        self.lost
    }

    /// Whether a shard has lost a member and has not been told how it stands.
    pub fn is_waiting(&self) -> bool {
        self.shards.iter().any(|known| known.waits.is_some())
    }

    /// Takes an event of a shard and adds the orders that follow from it, each with its shard.
    /// Events that are about something else are ignored.
    pub fn event(&mut self, shard: u16, event: &ControlEvent, out: &mut Vec<(u16, Control)>) {
        let ControlEvent::MemberFailed { member, epoch, .. } = *event else { return };
        let from = &mut self.shards[usize::from(shard)];
        from.dropped.insert(member.0);
        from.waits = Some(epoch);
        if !self.lost.contains(member.0) && !from.apart {
            self.lose(shard, member, out);
        }
        self.answer(out);
    }

    fn lose(&mut self, shard: u16, member: MemberIdx, out: &mut Vec<(u16, Control)>) {
        let lost = self.lost.union(MemberSet::one(member.0));
        if !self.geometry.enough(|other| !lost.contains(other.0)) {
            self.shards[usize::from(shard)].apart = true;
            return;
        }
        self.lost = lost;
        for (other, known) in (0..).zip(&self.shards) {
            if !known.dropped.contains(member.0) && !known.apart {
                out.push((other, Control::FailMember(member)));
            }
        }
    }

    /// Tells those that wait how it stands.
    fn answer(&mut self, out: &mut Vec<(u16, Control)>) {
        let knows = |known: &Known| known.apart || self.lost.minus(known.dropped).is_empty();
        let all_know = self.shards.iter().all(knows);
        for (shard, known) in (0..).zip(&mut self.shards) {
            if known.apart {
                let epoch = known.waits.take();
                out.extend(epoch.map(|epoch| (shard, Control::NotRecorded { epoch })));
            } else if all_know {
                let epoch = known.waits.take();
                out.extend(epoch.map(|epoch| (shard, Control::Recorded { epoch })));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use md::{GeometrySpec, Layout, Level};

    use super::*;

    fn failures(level: Level, shards: u16) -> FailureCoordinator {
        let geometry = Geometry::new(&GeometrySpec {
            level,
            layout: Layout::default_for(level),
            chunk_sectors: 8,
            member_sectors: vec![80; 5],
        });
        FailureCoordinator::new(geometry.expect("sound"), shards, MemberSet::EMPTY)
    }

    fn says(
        failures: &mut FailureCoordinator,
        shard: u16,
        member: u16,
        epoch: u64,
    ) -> Vec<(u16, Control)> {
        let mut out = Vec::new();
        let member = MemberIdx(member);
        let event = ControlEvent::MemberFailed { member, error: None, epoch };
        failures.event(shard, &event, &mut out);
        out
    }

    fn fail(shard: u16, member: u16) -> (u16, Control) {
        (shard, Control::FailMember(MemberIdx(member)))
    }

    fn recorded(shard: u16, epoch: u64) -> (u16, Control) {
        (shard, Control::Recorded { epoch })
    }

    fn not_recorded(shard: u16, epoch: u64) -> (u16, Control) {
        (shard, Control::NotRecorded { epoch })
    }

    #[test]
    fn a_loss_is_recorded_when_every_shard_knows() {
        let mut failures = failures(Level::Raid5, 3);
        assert_eq!(says(&mut failures, 1, 4, 1), [fail(0, 4), fail(2, 4)]);
        assert_eq!(says(&mut failures, 2, 4, 1), []);
        assert!(failures.is_waiting());
        assert_eq!(says(&mut failures, 0, 4, 1), [recorded(0, 1), recorded(1, 1), recorded(2, 1)]);
        assert_eq!(failures.lost(), MemberSet::one(4));
        assert!(!failures.is_waiting());
    }

    #[test]
    fn two_losses_that_the_array_survives_wait_for_each_other() {
        let mut failures = failures(Level::Raid6, 2);
        assert_eq!(says(&mut failures, 0, 1, 1), [fail(1, 1)]);
        assert_eq!(says(&mut failures, 1, 2, 1), [fail(0, 2)]);
        assert_eq!(says(&mut failures, 1, 1, 2), []);
        assert_eq!(says(&mut failures, 0, 2, 2), [recorded(0, 2), recorded(1, 2)]);
    }

    #[test]
    fn who_dropped_another_member_than_the_array_can_lose_is_apart() {
        let mut failures = failures(Level::Raid5, 3);
        assert_eq!(says(&mut failures, 0, 0, 1), [fail(1, 0), fail(2, 0)]);
        assert_eq!(says(&mut failures, 1, 1, 1), [not_recorded(1, 1)]);
        assert_eq!(says(&mut failures, 2, 0, 1), [recorded(0, 1), recorded(2, 1)]);
        assert_eq!(failures.lost(), MemberSet::one(0));
    }

    #[test]
    fn who_is_apart_is_never_told_that_all_is_well() {
        let mut failures = failures(Level::Raid6, 3);
        says(&mut failures, 0, 0, 1);
        says(&mut failures, 1, 1, 1);
        // It has dropped a third, before it heard of the others.
        assert_eq!(says(&mut failures, 2, 2, 1), [not_recorded(2, 1)]);
        says(&mut failures, 0, 1, 2);
        assert_eq!(says(&mut failures, 1, 0, 2), [recorded(0, 2), recorded(1, 2)]);
        // Of the first it may still hear, and follow.
        assert_eq!(says(&mut failures, 2, 0, 2), [not_recorded(2, 2)]);
    }
}
