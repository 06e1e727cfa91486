//! Devices that are put in while the array runs.
//!
//! Invariant: nothing is in flight on what was at a place before when a device is put there. The
//! number of a device is its place.

use engine::Control;
use md::MemberIdx;

use super::World;
use crate::member::Member;
use crate::mutant::Mutant;
use crate::operation::Operation;

impl World {
    /// Puts in new devices whose slots are free: nothing is in flight on the former members.
    pub(super) fn put_in(&mut self) {
        let ordered = std::mem::take(&mut self.ordered);
        for (device, replaces) in ordered {
            let used = |op: &Operation| op.place.as_ref().map(|(at, _)| usize::from(*at));
            let early = self.mutant == Some(Mutant::JoinedTooEarly);
            let in_flight = |op: &Operation| used(op) == Some(device) && !(early && op.is_late);
            let is_used = self.operations.iter().any(in_flight);
            let keeps = self.control_plane.as_ref();
            let place = MemberIdx(device as u16);
            let is_dropped = |shard| match replaces {
                true => !self.shard_of(shard).is_in_service(place),
                false => self.shard_of(shard).status().failed.contains(place.0),
            };
            let is_free = !is_used && self.numbers().all(is_dropped);
            if !is_free || keeps.is_some_and(|it| it.is_used(device)) {
                self.ordered.push((device, replaces));
                continue;
            }
            let at = self.bought.iter().position(|(at, ..)| *at == device);
            let (_, mut member, encoder) = self.bought.swap_remove(at.expect("it was bought"));
            member.begin_cache();
            if replaces {
                self.add_second_places();
            }
            member.predecessors = self.members[device].predecessors + 1;
            let former = std::mem::replace(&mut self.members[device], member);
            if self.in_place.take_out(device, self.former.len()) {
                self.former.push(former);
            }
            self.control_plane().replace_encoder(device, encoder);
            self.announced.retain(|(_, member)| usize::from(*member) != device);
            self.recorded.retain(|member| *member != device);
            self.replaced.push((device, replaces));
            for shard in self.numbers() {
                self.send_control(
                    shard,
                    match replaces {
                        true => Control::BeginReplacement(place),
                        false => Control::BeginRebuild(place),
                    },
                );
            }
        }
    }

    /// From now on there are places for what replaces members.
    fn add_second_places(&mut self) {
        let slots = self.geometry().members();
        let sectors = self.members[0].data_sectors();
        self.members.resize_with(2 * slots, || Member::missing(sectors));
    }

    /// Where a device would replace the member of a slot: all shards agree. By place.
    pub(crate) fn free_place(&self, slot: usize) -> Option<usize> {
        let slot = MemberIdx(slot as u16);
        let slots = self.geometry().members();
        let place = self.shard.place_of(slot).index();
        let is_moving = self.controls.iter().any(|(.., control)| {
            matches!(control, Control::EndReplacement(at) if at.index() % slots == slot.index())
        });
        let is_alike = |shard| self.shard_of(shard).place_of(slot).index() == place;
        let is_known = !is_moving && self.numbers().all(is_alike);
        is_known.then_some((place + slots) % (2 * slots))
    }
}
