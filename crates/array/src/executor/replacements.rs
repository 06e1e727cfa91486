//! What replaces members: bound at the second places of their slots.
//!
//! Invariant: `replacing` has the places of what replaces members and has not taken their slots.
//! Part of `executor`.

use std::collections::VecDeque;

use engine::IoError;
use md::MemberIdx;

use super::{Event, Executor, MemberSlot};
use crate::in_flight::InFlight;
use crate::member::{Io, Member};

impl Executor {
    /// Binds what replaces a slot's member, before anything runs.
    pub(crate) fn bind_replacement(
        &mut self,
        slot: MemberIdx,
        mut member: Box<dyn Member>,
        io: &mut Io,
    ) {
        self.add_second_places();
        let place = slot.index() + self.geometry().members();
        self.number_more(place as u16, &mut *member, io);
        self.note_info(&*member);
        self.slots[place].gathers = member.gathers();
        self.slots[place].member = Some(member);
        self.replacing.insert(place as u16);
    }

    /// From now on, slots have second places.
    pub(super) fn add_second_places(&mut self) {
        let empty = || MemberSlot {
            member: None,
            gathers: false,
            in_flight: InFlight::new(),
            queued: VecDeque::new(),
            former: None,
        };
        let places = 2 * self.geometry().members();
        if self.slots.len() < places {
            self.slots.resize_with(places, empty);
            self.set_member_timeout(self.member_timeout());
        }
    }

    /// What was at a place is out of service.
    pub(super) fn note_failure(&mut self, place: MemberIdx, error: Option<IoError>) {
        let slots = self.geometry().members() as u16;
        let other = MemberIdx((place.0 + slots) % (2 * slots));
        let was_replacement = self.replacing.contains(place.0);
        self.replacing.remove(place.0);
        if !was_replacement && self.shard.is_in_service(other) {
            // What replaced it has its slot.
            self.replacing.remove(other.0);
        }
        if self.drop_commanded.contains(place.0) {
            return;
        }
        self.log_failure(place, error.as_ref());
        let (member, device) = (self.shard.slot_of(place), self.device_at(place));
        let event = match was_replacement {
            true => Event::ReplacementFailed { member, error },
            false => Event::MemberFailed { member, error },
        };
        self.events.push(event, device);
    }
}
