//! Coordinates member failures among the shards of an array without metadata: a member that one
//! shard drops is dropped by all.
//!
//! ```text
//! shard A   MemberFailed -->          --> FailMember   shard B
//!                           `FailureCoordinator`  <-- MemberFailed (its answer)
//! shard A       Recorded <--          --> Recorded
//! ```
//! It has the role of the metadata manager for arrays without metadata, but writes nothing. A shard
//! that drops a member holds its writes back until all shards have dropped it.
//!
//! Two shards may concurrently drop different members, of which the array can lose each one but not
//! both. The first reported member is lost. The shard that dropped the other one is *diverged*: it
//! cannot drop the first member, because its own rows need it. It serves what it still can, but
//! acknowledges no more writes.
//!
//! A flush that failed on a member that must stay is reported to all shards: each of them marks its
//! parity as out of sync.
//!
//! Invariant: all shards that acknowledge writes have lost the same members, and the array can
//! serve all of its data without them. Called by an executor with the events of all shards, those
//! of one shard in their order.

use md::{Geometry, MemberIdx};

use crate::{BackgroundRun, Control, ControlEvent, MemberFlags, MemberSet};

/// Coordinates member failures; see the module documentation.
pub struct FailureCoordinator {
    geometry: Geometry,
    lost: MemberSet,
    shards: Vec<Known>,
    /// Members that shards bind to empty slots.
    joining: Vec<Joining>,
    /// Members that are being rebuilt, and the sectors below which they are in sync.
    rebuilding: Vec<(MemberIdx, u64)>,
    rebuild_run: u32,
    is_rebuild_needed: bool,
}

struct Joining {
    member: MemberIdx,
    flags: MemberFlags,
    /// Shards that have bound it.
    bound: Vec<u16>,
    /// Those of them that have dropped it since.
    dropped: Vec<u16>,
}

/// Known state of a shard.
struct Known {
    /// Members that it has reported as dropped.
    dropped: MemberSet,
    /// The last epoch for which it waits for an answer.
    waits: Option<u64>,
    diverged: bool,
}

impl FailureCoordinator {
    /// For an array that starts without the members in `missing`.
    pub fn new(geometry: Geometry, shards: u16, missing: MemberSet) -> FailureCoordinator {
        let known = || Known { dropped: missing, waits: None, diverged: false };
        FailureCoordinator {
            geometry,
            lost: missing,
            shards: (0..shards).map(|_| known()).collect(),
            joining: Vec::new(),
            rebuilding: Vec::new(),
            rebuild_run: 0,
            is_rebuild_needed: false,
        }
    }

    /// Members that the array has lost.
    pub fn lost(&self) -> MemberSet {
        self.lost
    }

    /// Whether a shard has reported a loss that is not answered yet.
    pub fn is_waiting(&self) -> bool {
        self.shards.iter().any(|known| known.waits.is_some())
    }

    /// Processes an event of a shard and appends the resulting commands, each with its shard.
    /// Unrelated events are ignored.
    pub fn event(&mut self, shard: u16, event: &ControlEvent, out: &mut Vec<(u16, Control)>) {
        let (member, epoch) = match *event {
            ControlEvent::MemberFailed { member, epoch, .. } => (member, epoch),
            ControlEvent::NotDurable { .. } => {
                let shards = 0..self.shards.len() as u16;
                return out.extend(shards.map(|shard| (shard, Control::NotDurable)));
            }
            ControlEvent::RebuildBegan { member } => return self.bound(shard, member, out),
            _ => return,
        };
        let from = &mut self.shards[usize::from(shard)];
        from.dropped.insert(member.0);
        from.waits = Some(epoch);
        let mut joining = self.joining.iter_mut();
        // Of a shard that has not bound it, this is of the slot's former member.
        if let Some(joining) = joining.find(|it| it.member == member && it.bound.contains(&shard)) {
            joining.dropped.push(shard);
        }
        if !self.lost.contains(member.0) && !from.diverged {
            self.lose(shard, member, out);
        }
        self.answer(out);
    }

    fn lose(&mut self, shard: u16, member: MemberIdx, out: &mut Vec<(u16, Control)>) {
        let before = self.rebuilding.len();
        self.rebuilding.retain(|(other, _)| *other != member);
        self.is_rebuild_needed |= self.rebuilding.len() < before;
        let lost = self.lost.union(MemberSet::one(member.0));
        let lacking = self.rebuilding.iter().map(|(other, _)| other.0);
        let lacking = lost.union(lacking.collect());
        if !self.geometry.enough(|other| !lacking.contains(other.0)) {
            self.shards[usize::from(shard)].diverged = true;
            return;
        }
        self.lost = lost;
        for (other, known) in (0..).zip(&self.shards) {
            if !known.dropped.contains(member.0) && !known.diverged {
                out.push((other, Control::FailMember(member)));
            }
        }
    }

    /// A new member for a slot whose member is lost: every shard must bind it, and get
    /// [`Control::BeginRebuild`] when none of its operations on the former one is in flight.
    /// `false`: the slot has a member, or a shard is diverged.
    pub fn join(&mut self, member: MemberIdx, flags: MemberFlags) -> bool {
        let is_joining = self.joining.iter().any(|other| other.member == member);
        let is_whole = self.shards.iter().all(|known| !known.diverged);
        let may = self.lost.contains(member.0) && !is_joining && is_whole;
        if may {
            let (bound, dropped) = (Vec::new(), Vec::new());
            self.joining.push(Joining { member, flags, bound, dropped });
        }
        may
    }

    fn bound(&mut self, shard: u16, member: MemberIdx, out: &mut Vec<(u16, Control)>) {
        let mine = self.joining.iter().position(|other| other.member == member);
        let Some(at) = mine else { return };
        self.joining[at].bound.push(shard);
        if self.joining[at].bound.len() < self.shards.len() {
            return;
        }
        let Joining { flags, dropped, .. } = self.joining.swap_remove(at);
        if !dropped.is_empty() {
            // It is lost again: a shard that has dropped it would never write it.
            for (shard, known) in (0..).zip(&mut self.shards) {
                if !dropped.contains(&shard) {
                    known.dropped.remove(member.0);
                    out.push((shard, Control::FailMember(member)));
                }
            }
            return;
        }
        self.lost.remove(member.0);
        self.shards.iter_mut().for_each(|known| known.dropped.remove(member.0));
        self.rebuilding.push((member, 0));
        let shards = 0..self.shards.len() as u16;
        out.extend(shards.map(|shard| (shard, Control::SetFlags { member, flags })));
        // Reports of the running rebuilds do not account for it.
        self.rebuild_run += 1;
        self.is_rebuild_needed = true;
    }

    /// Whether other members are to be rebuilt than before; new [`FailureCoordinator::rebuilds`]
    /// should replace the running ones.
    pub fn take_rebuild_needed(&mut self) -> bool {
        std::mem::take(&mut self.is_rebuild_needed)
    }

    /// The runs of rebuilds that the array needs. They replace earlier ones.
    pub fn rebuilds(&mut self) -> Vec<BackgroundRun> {
        self.rebuild_run += 1;
        let end = |member| self.geometry.member_used_sectors(member);
        let lacks = |&(member, from): &(MemberIdx, u64)| {
            (member, std::iter::once(from..end(member)).collect())
        };
        let members = self.rebuilding.iter().map(lacks);
        BackgroundRun::of_rebuild(self.rebuild_run, &self.geometry, members)
    }

    /// Members that are being rebuilt, and the sectors below which they are in sync.
    pub fn rebuilding(&self) -> &[(MemberIdx, u64)] {
        &self.rebuilding
    }

    /// Progress of a rebuild, as [`crate::MetadataInput::RebuildAt`]. Returns the members that are
    /// in sync now.
    pub fn rebuild_at(
        &mut self,
        run: u32,
        member: Option<MemberIdx>,
        position: u64,
        out: &mut Vec<(u16, Control)>,
    ) -> Vec<MemberIdx> {
        let mut in_sync = Vec::new();
        if run != self.rebuild_run {
            return in_sync;
        }
        let shards = 0..self.shards.len() as u16;
        let FailureCoordinator { rebuilding, geometry, .. } = self;
        rebuilding.retain_mut(|(slot, below)| {
            if member.is_some_and(|member| member != *slot) || position <= *below {
                return true;
            }
            let (member, end) = (*slot, geometry.member_used_sectors(*slot));
            *below = position.min(end);
            let is_over = position >= end;
            let control = match is_over {
                true => Control::EndRebuild(member),
                false => Control::RebuiltBelow { member, sector: position },
            };
            out.extend(shards.clone().map(|shard| (shard, control.clone())));
            in_sync.extend(is_over.then_some(member));
            !is_over
        });
        in_sync
    }

    /// Answers the waiting shards.
    fn answer(&mut self, out: &mut Vec<(u16, Control)>) {
        let is_informed =
            |known: &Known| known.diverged || self.lost.minus(known.dropped).is_empty();
        let all_informed = self.shards.iter().all(is_informed);
        for (shard, known) in (0..).zip(&mut self.shards) {
            if known.diverged {
                let epoch = known.waits.take();
                out.extend(epoch.map(|epoch| (shard, Control::NotRecorded { epoch })));
            } else if all_informed {
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

    #[test]
    fn a_failed_flush_of_a_member_that_must_stay_is_reported_to_all_shards() {
        let (mut failures, mut out) = (failures(Level::Raid5, 3), Vec::new());
        failures.event(0, &ControlEvent::NotDurable { member: MemberIdx(1) }, &mut out);
        assert_eq!(out, [0, 1, 2].map(|shard| (shard, Control::NotDurable)));
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
    fn a_new_member_that_a_shard_drops_before_all_have_bound_it_is_lost() {
        let (mut failures, mut out) = (failures(Level::Raid5, 2), Vec::new());
        says(&mut failures, 0, 4, 1);
        says(&mut failures, 1, 4, 1);
        assert!(failures.join(MemberIdx(4), MemberFlags::default()));
        let began = ControlEvent::RebuildBegan { member: MemberIdx(4) };
        failures.event(0, &began, &mut out);
        says(&mut failures, 0, 4, 2);
        failures.event(1, &began, &mut out);
        assert_eq!(out, [fail(1, 4)]);
        assert_eq!((failures.lost(), failures.rebuilding()), (MemberSet::one(4), &[][..]));
        assert!(!failures.take_rebuild_needed());
        assert_eq!(says(&mut failures, 1, 4, 2), [recorded(1, 2)]);
        assert!(failures.join(MemberIdx(4), MemberFlags::default()), "the slot is empty");
    }

    #[test]
    fn a_loss_is_recorded_when_every_shard_has_dropped_the_member() {
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
    fn a_shard_that_dropped_one_member_too_many_is_diverged() {
        let mut failures = failures(Level::Raid5, 3);
        assert_eq!(says(&mut failures, 0, 0, 1), [fail(1, 0), fail(2, 0)]);
        assert_eq!(says(&mut failures, 1, 1, 1), [not_recorded(1, 1)]);
        assert_eq!(says(&mut failures, 2, 0, 1), [recorded(0, 1), recorded(2, 1)]);
        assert_eq!(failures.lost(), MemberSet::one(0));
    }

    #[test]
    fn a_diverged_shard_gets_no_recorded_answer() {
        let mut failures = failures(Level::Raid6, 3);
        says(&mut failures, 0, 0, 1);
        says(&mut failures, 1, 1, 1);
        // It has dropped a third member before it got the events of the others.
        assert_eq!(says(&mut failures, 2, 2, 1), [not_recorded(2, 1)]);
        says(&mut failures, 0, 1, 2);
        assert_eq!(says(&mut failures, 1, 0, 2), [recorded(0, 2), recorded(1, 2)]);
        // It may still get the event of the first, and drop that member.
        assert_eq!(says(&mut failures, 2, 0, 2), [not_recorded(2, 2)]);
    }
}
