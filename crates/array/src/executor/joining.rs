//! Devices that join while the array runs: bound when their places are free.
//!
//! Invariant: nothing is in service at a place where a device is bound, and no operation on the
//! device that was there before is in flight. Part of `executor`.

use engine::Control;
use md::MemberIdx;

use super::Executor;
use crate::member::{Io, Member};

/// A device for a place of a slot.
pub(crate) struct JoiningMember {
    pub(crate) place: u16,
    /// It is to replace the slot's member.
    pub(crate) replaces: bool,
    pub(crate) member: Box<dyn Member>,
}

impl Executor {
    /// Puts a device into a place where nothing is in service, when no operation on the former one
    /// is in flight any more.
    pub(crate) fn join(&mut self, joining: JoiningMember) {
        if joining.replaces {
            self.add_second_places();
        }
        self.joining.push(joining);
    }

    /// Binds the devices whose places are free now: this shard has dropped the former one, and has
    /// nothing in flight on it.
    pub(super) fn bind_joining(&mut self, io: &mut Io) {
        let mut at = 0;
        while let Some(JoiningMember { place, replaces, .. }) = self.joining.get(at) {
            let slot = &self.slots[usize::from(*place)];
            let is_quiet = slot.member.as_ref().is_none_or(|member| member.is_quiet());
            let is_dropped = match replaces {
                true => !self.shard.is_in_service(MemberIdx(*place)),
                false => self.shard.status().failed.contains(*place),
            };
            let is_busy = slot.in_flight.count() > 0 || !slot.queued.is_empty();
            if !is_dropped || is_busy || !is_quiet || self.is_busy_elsewhere(at) {
                at += 1;
                continue;
            }
            let JoiningMember { place, replaces, mut member } = self.joining.swap_remove(at);
            self.drop_member(place, io);
            self.unbinding.retain(|other| *other != place);
            self.number_more(place, &mut *member, io);
            self.note_info(&*member);
            let limit = member.set_timeout(self.late.limit);
            let slot = &mut self.slots[usize::from(place)];
            slot.in_flight.set_limit(limit);
            slot.gathers = member.gathers();
            slot.member = Some(member);
            slot.in_flight.restart();
            self.drop_commanded.remove(place);
            let place = MemberIdx(place);
            let slot = self.shard.slot_of(place);
            if replaces && !self.shard.status().failed.contains(slot.0) {
                self.replacing.insert(place.0);
            }
            self.control(match replaces {
                true => Control::BeginReplacement(place),
                false => Control::BeginRebuild(place),
            });
        }
    }

    /// The device at a place has left the array: it is dropped when none of its operations is in
    /// flight any more.
    pub(crate) fn unbind(&mut self, place: u16) {
        self.unbinding.push(place);
    }

    pub(super) fn unbind_left(&mut self, io: &mut Io) {
        for place in std::mem::take(&mut self.unbinding) {
            match self.may_unbind(place) {
                true => self.drop_member(place, io),
                false => self.unbinding.push(place),
            }
        }
    }

    /// Whether nothing of a place's device is in flight.
    pub(super) fn may_unbind(&self, place: u16) -> bool {
        let Some(slot) = self.slots.get(usize::from(place)) else { return true };
        let is_quiet = slot.member.as_ref().is_none_or(|member| member.is_quiet());
        let is_busy = slot.in_flight.count() > 0 || !slot.queued.is_empty() || !is_quiet;
        !is_busy && !self.shard.is_in_service(MemberIdx(place))
    }

    /// Drops the handle at a place, and what the ring has of its files. Its counters stay.
    fn drop_member(&mut self, place: u16, io: &mut Io) {
        let Some(slot) = self.slots.get_mut(usize::from(place)) else { return };
        let mut counted = Vec::new();
        slot.leaf_counters(&mut counted);
        slot.former = counted.pop().filter(|_| counted.is_empty());
        slot.gathers = false;
        slot.member = None;
        let leaves = (self.first_leaf..).zip(&self.slot_of_leaf);
        let leaves = leaves.filter(|(_, at)| **at == place).map(|(leaf, _)| leaf);
        if let Some(ring) = &mut io.ring {
            leaves.for_each(|leaf| ring.forget(leaf));
        }
    }
}
