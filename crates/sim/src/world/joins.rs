//! Devices that are put in while the array runs, spares, and devices that leave.
//!
//! Invariant: nothing is in flight on what was at a place before when a device is put there. Slots
//! have two places each, as for the engine; behind them are those of spares. A device that has left
//! stays where it is until another one is put there: nothing may be written to it.

use engine::{Control, DeviceCondition, DeviceStatus, MetadataEffect, MetadataInput};
use md::MemberIdx;
use md::ondisk::{MetadataEncoder, Role};

use super::World;
use crate::assembly;
use crate::marks::Mark;
use crate::member::Member;
use crate::mutant::Mutant;
use crate::operation::Operation;

/// A device that was bought, and has no place yet.
pub(crate) struct Bought {
    pub(crate) number: u32,
    /// Where it is to be.
    pub(crate) place: usize,
    pub(crate) device: Member,
    pub(crate) encoder: MetadataEncoder,
}

/// A device that the metadata manager has ordered to be put in.
pub(super) struct Ordered {
    pub(super) number: u32,
    pub(super) place: usize,
    pub(super) replaces: bool,
    /// Where a spare is until then, whatever becomes of its number.
    pub(super) from: Option<usize>,
}

impl World {
    /// Puts in devices whose places are free: nothing is in flight on the former members.
    pub(super) fn put_in(&mut self) {
        let ordered = std::mem::take(&mut self.ordered);
        for it in ordered {
            let Ordered { number, place: at, replaces, from } = it;
            let used = |op: &Operation| op.place.as_ref().map(|(at, _)| usize::from(*at));
            let early = self.mutant == Some(Mutant::JoinedTooEarly);
            let in_flight = |op: &Operation| used(op) == Some(at) && !(early && op.is_late);
            let is_used = self.operations.iter().any(in_flight);
            let keeps = self.control_plane.as_ref();
            let place = MemberIdx(at as u16);
            let is_dropped = |shard| match replaces {
                true => !self.shard_of(shard).is_in_service(place),
                false => self.shard_of(shard).status().failed.contains(place.0),
            };
            let is_free = !is_used && self.numbers().all(is_dropped);
            if !is_free || keeps.is_some_and(|it| it.is_used(at)) {
                self.ordered.push(it);
                continue;
            }
            let (mut member, encoder) = self.take_device(number, from);
            if replaces {
                self.add_second_places();
            }
            member.predecessors = self.members[at].predecessors + 1;
            let former = std::mem::replace(&mut self.members[at], member);
            self.note_former(&former);
            if self.in_place.take_out(at, self.former.len()) {
                self.former.push(former);
            }
            let from = from.unwrap_or(at);
            self.control_plane().set_place(at, encoder, from);
            self.announced.retain(|(_, member)| usize::from(*member) != at);
            self.recorded.retain(|member| *member != at);
            if !replaces {
                self.forget_in_sync(at);
            }
            self.replaced.push((at, replaces));
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

    /// The device that has this number and is to be put into a place: one that was bought for it,
    /// or a spare.
    fn take_device(&mut self, number: u32, from: Option<usize>) -> (Member, MetadataEncoder) {
        let Some(from) = from else {
            let at = self.bought.iter().position(|it| it.number == number);
            let bought = self.bought.swap_remove(at.expect("it was bought"));
            let Bought { mut device, encoder, .. } = bought;
            device.begin_cache();
            return (device, encoder);
        };
        let first = 2 * self.geometry().members();
        let spare = self.spares[from - first].take().expect("it has a place");
        self.coming.retain(|(other, _)| *other != number);
        (spare, self.control_plane().take_encoder(from))
    }

    /// From now on there are places for what replaces members.
    fn add_second_places(&mut self) {
        let slots = self.geometry().members();
        let sectors = self.members[0].data_sectors();
        self.members.resize_with(2 * slots, || Member::missing(sectors));
    }

    /// A device by its place.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn device(&self, place: usize) -> &Member {
        match place.checked_sub(2 * self.geometry().members()) {
            None => &self.members[place],
            Some(spare) => self.spares[spare].as_ref().expect("it is there"),
        }
    }

    pub(super) fn device_mut(&mut self, place: usize) -> &mut Member {
        match place.checked_sub(2 * self.geometry().members()) {
            None => &mut self.members[place],
            Some(spare) => self.spares[spare].as_mut().expect("it is there"),
        }
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

    /// Whether a device is on its way into a place of a slot.
    pub(crate) fn is_awaited(&self, slot: usize) -> bool {
        let slots = self.geometry().members();
        let bought = self.bought.iter().map(|it| it.place);
        let ordered = self.ordered.iter().map(|it| it.place);
        let coming = self.coming.iter().map(|(_, place)| *place);
        bought.chain(ordered).chain(coming).any(|place| place % slots == slot)
    }

    // ---- spares, and devices that leave

    /// The metadata manager has chosen a device for a place. A spare that has failed before is not
    /// there any more.
    pub(super) fn order(&mut self, ordered: Ordered) {
        if self.failed_spares.contains(&ordered.number) {
            let place = MemberIdx(ordered.place as u16);
            return self.control_plane().input(MetadataInput::JoinFailed { place });
        }
        let from = self.spare_with(ordered.number);
        let ordered = Ordered { from, ..ordered };
        if from.is_some() {
            self.marks.reach(match ordered.replaces {
                true => Mark::SpareReplaces,
                false => Mark::SpareTaken,
            });
        }
        self.ordered.push(ordered);
    }

    /// The place of a spare.
    pub(crate) fn spare_with(&self, number: u32) -> Option<usize> {
        let first = 2 * self.geometry().members();
        let place = self.control_plane.as_ref()?.place_of(number)?;
        (place >= first).then_some(place)
    }

    /// The number of a spare that may replace a member.
    pub(crate) fn free_spare(&self) -> Option<u32> {
        let manager = &self.control_plane.as_ref()?.manager;
        let spares = manager.devices().into_iter();
        let mut spares =
            spares.filter(|it| it.condition == DeviceCondition::Spare && it.slot.is_none());
        spares.find(|it| self.spare_with(it.number.0).is_some()).map(|it| it.number.0)
    }

    /// A place for one more spare: free, or of one that has left. `kept`: places of devices that
    /// have left in earlier lives, which are taken last.
    pub(crate) fn place_for_spare(&self, kept: impl Fn(usize) -> bool) -> Option<usize> {
        let slots = self.geometry().members();
        let control_plane = self.control_plane.as_ref()?;
        let is_free = |at: &usize| {
            let place = 2 * slots + at;
            let is_awaited = self.ordered.iter().any(|it| it.from == Some(place));
            !is_awaited && !control_plane.has_place(place) && !control_plane.is_used(place)
        };
        let free: Vec<usize> = (0..slots).filter(is_free).collect();
        let is_empty = |at: &&usize| self.spares[**at].is_none() && !kept(**at);
        let at = free.iter().find(is_empty).or(free.first())?;
        Some(2 * slots + at)
    }

    /// A blank device becomes a spare as soon as its superblock says so.
    pub(crate) fn put_spare(&mut self, bought: Bought) {
        let Bought { place, mut device, encoder, .. } = bought;
        device.begin_cache();
        let slots = self.geometry().members();
        let former = self.spares[place - 2 * slots].replace(device);
        former.iter().for_each(|former| self.note_former(former));
        self.failed_spares.retain(|number| *number != encoder.number);
        self.control_plane().set_place(place, encoder, place);
    }

    /// A device that has no slot is out of service: a spare, or one that was to have a slot.
    pub(super) fn spare_failed(&mut self, number: u32) {
        if self.spare_with(number).is_some() {
            self.marks.reach(Mark::SpareFailed);
            self.failed_spares.push(number);
        }
        let is_ordered = self.ordered.iter().any(|it| it.number == number);
        if !is_ordered {
            self.bought.retain(|it| it.number != number);
            self.coming.retain(|(other, _)| *other != number);
        }
    }

    /// # Panics
    /// When a member's superblock still lists a device that has left, or it is still in service.
    pub(super) fn removed(&mut self, number: u32, place: Option<MemberIdx>) {
        self.marks.reach(match (place, self.spare_with(number)) {
            (_, Some(_)) => Mark::SpareRemoved,
            _ => Mark::DeviceRemoved,
        });
        let left = self.control_plane().forget_number(number);
        self.has_left.push(number);
        if let Some((at, place)) = left.zip(place) {
            assert_eq!(at, place.index(), "the place of device {number}, which has left");
        }
        let serves = |it: &DeviceStatus| {
            matches!(it.condition, DeviceCondition::InSync | DeviceCondition::Rebuilding { .. })
        };
        let control_plane = self.control_plane();
        let serving = control_plane.manager.devices().into_iter().filter(serves);
        let places = serving.filter_map(|it| control_plane.place_of(it.number.0));
        for at in places.collect::<Vec<usize>>() {
            let member = self.device(at);
            let block = member.block_sectors as u32 * md::SECTOR_BYTES as u32;
            let found = assembly::examine(&[Some(member.image())], block);
            let Some(found) = found.first().filter(|found| found.is_whole) else { continue };
            let state = found.superblock.state();
            let listed = state.devices.get(number as usize).and_then(Option::as_ref);
            let listed = listed.filter(|state| state.role != Role::Spare);
            assert_eq!(listed, None, "device {number} has left, and place {at} lists it");
        }
    }

    /// What was taken out must be stale by any rule from now on.
    fn note_former(&mut self, former: &Member) {
        let block = former.block_sectors as u32 * md::SECTOR_BYTES as u32;
        let found = assembly::examine(&[Some(former.image())], block);
        let Some(found) = found.first().filter(|found| found.is_whole) else { return };
        if matches!(found.metadata.role, Role::Slot(_)) {
            self.taken_out = self.taken_out.max(found.metadata.events);
        }
    }

    /// A slot's member is being rebuilt anew: what was reported of the former one is over.
    pub(crate) fn forget_in_sync(&mut self, slot: usize) {
        self.control_plane().reports.retain(|report| {
            !matches!(report, MetadataEffect::MemberInSync { member, .. } if member.index() == slot)
        });
    }
}
