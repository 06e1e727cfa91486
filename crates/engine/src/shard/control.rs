//! Control messages and flushes of a shard: what changes which members serve, which writes may
//! start and which completions may be reported.
//!
//! Invariant: a member that one shard drops is dropped by all, and until the loss is recorded no
//! write that relies on it completes. Called only from `shard`.

use std::ops::Range;

use md::MemberIdx;

use super::{Personality, Shard};
use crate::{Control, ControlEvent, Effect, Effects, IoError, RequestError, Token};

impl Shard {
    pub(super) fn flush_done(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) {
        let kept_error = match result {
            Ok(()) => None,
            // A lack of space or memory does not take the member out of service.
            Err(error) if error.kind.lacks().is_some() => error.kind.lacks(),
            Err(error) => {
                let (geometry, member) = (&self.config.geometry, token.slot());
                let dropped = self.health.drop_member(geometry, member, Some(error), out);
                if !dropped {
                    self.not_durable(member, out);
                }
                (!dropped).then_some(RequestError::Io)
            }
        };
        self.flush_ended(token, kept_error, out);
    }

    /// A flush has not completed in time, or was not sent because an earlier operation has not. Of
    /// a member that the array cannot run without, nothing is lost by that: the next flush covers
    /// its writes.
    pub(super) fn flush_timed_out(&mut self, token: Token, error: IoError, out: &mut Effects) {
        let (geometry, member) = (&self.config.geometry, token.slot());
        let dropped = self.health.drop_member(geometry, member, Some(error), out);
        self.flush_ended(token, (!dropped).then_some(RequestError::Io), out);
    }

    fn flush_ended(&mut self, token: Token, kept_error: Option<RequestError>, out: &mut Effects) {
        let failed = self.health.failed();
        self.flushes.flush_done(token, kept_error, failed, out, &mut self.flushed);
        self.end_flushes(out);
    }

    /// Completed writes on a member that the array cannot run without may be lost.
    pub(super) fn not_durable(&mut self, member: u16, out: &mut Effects) {
        let member = MemberIdx(member);
        out.list.push(Effect::Control(ControlEvent::NotDurable { member }));
        self.doubt_all();
    }

    /// Marks all parity as out of sync. (Copies have their position, see `Health`.)
    fn doubt_all(&mut self) {
        let span = crate::intent_map::span(&self.config.geometry);
        if let Personality::Parity(stripes) = &mut self.personality {
            stripes.sync.doubt_all(span);
            stripes.log.iter_mut().for_each(|log| log.doubt_all());
        }
    }

    /// Flushes what complete FUA writes depend on.
    #[inline]
    pub(super) fn flush_for_fua(&mut self, out: &mut Effects) {
        if !self.requests.to_flush.is_empty() {
            self.flush_waiting(out);
        }
    }

    fn flush_waiting(&mut self, out: &mut Effects) {
        let failed = self.health.failed();
        for request in std::mem::take(&mut self.requests.to_flush) {
            self.flushes.request(request, failed, out, &mut self.flushed);
        }
        self.end_flushes(out);
    }

    pub(super) fn end_flushes(&mut self, out: &mut Effects) {
        for (request, error) in self.flushed.drain(..) {
            if let Some(error) = error {
                self.requests.fail(request, error);
            }
            self.requests.end(request, &self.health, out);
        }
    }

    pub(super) fn control(&mut self, now: u64, control: Control, out: &mut Effects) {
        match control {
            Control::FailMember(place) => {
                if usize::from(place.0) < 2 * self.config.geometry.members() {
                    self.health.drop_place(&self.config.geometry, place.0, out);
                }
            }
            Control::Recorded { epoch } => {
                if self.health.is_unrecordable() {
                    return;
                }
                self.health.record(epoch);
                if self.health.is_recorded() {
                    self.requests.release_held_back(None, &self.health, out);
                }
            }
            Control::NotRecorded { .. } => {
                self.health.give_up_recording();
                self.requests.release_held_back(Some(RequestError::Io), &self.health, out);
            }
            Control::NoSpaceToRecord => {
                if let (Personality::Parity(stripes), mut cx) = self.split(now, out) {
                    stripes.fail_waiting(&mut cx, RequestError::NoSpace);
                }
                self.requests.release_held_back(Some(RequestError::NoSpace), &self.health, out);
            }
            Control::Granted { first_bit, bits } => self.granted(now, first_bit, bits, out),
            Control::NotGranted { first_bit, bits } => {
                self.not_granted(now, first_bit..first_bit + bits, out);
            }
            Control::ReadOnly => self.make_read_only(out),
            Control::NotDurable => self.doubt_all(),
            Control::DoubtRecorded { reports } => {
                let is_known = reports == self.health.reports();
                if let (Personality::Parity(stripes), true) = (&mut self.personality, is_known) {
                    stripes.log.iter_mut().for_each(|log| log.doubt_recorded());
                }
            }
            Control::TakeDirtyMembers => {
                let kept = !self.health.is_unrecordable();
                let members = self.flushes.give_written();
                out.list.push(Effect::Control(ControlEvent::Written { members, kept }));
            }
            Control::Written { members, kept } => {
                let failed = self.health.failed();
                self.flushes.other_written(members, kept, failed, out, &mut self.flushed);
                self.end_flushes(out);
            }
            Control::BeginRebuild(member) => self.begin_rebuild(member, out),
            Control::BeginReplacement(place) => self.begin_replacement(place, out),
            Control::OutOfSyncOnly { member, ranges } => {
                let block = u64::from(self.config.logical_block) / md::SECTOR_BYTES;
                self.health.out_of_sync_only(member.0, &ranges, block);
            }
            Control::SetFlags { member: place, flags } => {
                let slot = self.health.slot_of(place.0);
                let has_slot = self.health.place(slot) == place.0;
                if let (Personality::NonParity(non_parity), true) =
                    (&mut self.personality, has_slot)
                {
                    non_parity.set_flags(slot, flags);
                }
            }
            Control::RebuiltBelow { member, sector } => {
                self.health.rebuilt_below(member.0, sector);
            }
            Control::EndRebuild(place) => {
                self.health.end_rebuild(self.health.slot_of(place.0));
            }
            Control::EndReplacement(place) => self.end_replacement(now, place, out),
            Control::InSyncBelow { position, reports } => {
                let known = self.health.set_in_sync_below(position, reports);
                if let (Personality::Parity(stripes), true) = (&mut self.personality, known) {
                    stripes.sync.resynced_below(position);
                }
            }
        }
    }

    /// A device at this place has an empty slot from now on.
    fn begin_rebuild(&mut self, place: MemberIdx, out: &mut Effects) {
        let slot = self.slot_of(place);
        let span = self.config.geometry.member_used_sectors(slot);
        let block = u64::from(self.config.logical_block) / md::SECTOR_BYTES;
        self.health.begin_rebuild(place.0, std::slice::from_ref(&(0..span)), block);
        if let Personality::NonParity(non_parity) = &mut self.personality {
            non_parity.member_joined(slot.0);
        }
        if let Personality::Parity(stripes) = &mut self.personality {
            stripes.log.iter_mut().for_each(|log| log.begin_member(slot.0));
        }
        out.list.push(Effect::Control(ControlEvent::RebuildBegan { member: place }));
    }

    /// A device at this place replaces its slot's member. If that has failed, it has the slot.
    fn begin_replacement(&mut self, place: MemberIdx, out: &mut Effects) {
        let slot = self.slot_of(place);
        if self.health.is_failed(slot.0) {
            return self.begin_rebuild(place, out);
        }
        assert_eq!(self.health.second_place(slot.0), place.0, "the place of a member is taken");
        let span = self.config.geometry.member_used_sectors(slot);
        let block = u64::from(self.config.logical_block) / md::SECTOR_BYTES;
        self.health.begin_replacement(slot.0, std::slice::from_ref(&(0..span)), block);
        out.list.push(Effect::Control(ControlEvent::RebuildBegan { member: place }));
    }

    fn end_replacement(&mut self, now: u64, place: MemberIdx, out: &mut Effects) {
        let former = self.health.end_replacement(&self.config.geometry, place.0);
        // What it has in flight is late soon.
        let left = former.map(|former| self.abandoned(now, former));
        out.list.extend(left);
    }

    fn granted(&mut self, now: u64, first_bit: u32, bits: u32, out: &mut Effects) {
        let mut ready = std::mem::take(&mut self.ready);
        let intents = self.intents.as_mut().expect("only what was requested is granted");
        intents.granted(now, first_bit..first_bit + bits, &mut ready);
        for index in ready.drain(..) {
            self.start(now, index, self.requests[index].stream, out);
        }
        self.ready = ready;
    }

    fn not_granted(&mut self, now: u64, bits: Range<u32>, out: &mut Effects) {
        let mut refused = std::mem::take(&mut self.ready);
        let intents = self.intents.as_mut().expect("only what was requested is refused");
        intents.not_granted(bits, &mut refused);
        self.refuse(&mut refused, RequestError::NoSpace, out);
        // Other writes may have waited only for their turn behind these.
        let intents = self.intents.as_mut().expect("just used");
        intents.granted(now, 0..0, &mut refused);
        for index in refused.drain(..) {
            self.start(now, index, self.requests[index].stream, out);
        }
        self.ready = refused;
    }

    fn make_read_only(&mut self, out: &mut Effects) {
        self.health.make_read_only();
        let mut refused = std::mem::take(&mut self.ready);
        if let Some(intents) = &mut self.intents {
            intents.refuse(&mut refused);
        }
        self.refuse(&mut refused, RequestError::ReadOnly, out);
        self.ready = refused;
    }

    /// Completes requests with an error that have not begun.
    fn refuse(&mut self, refused: &mut Vec<u32>, error: RequestError, out: &mut Effects) {
        for index in refused.drain(..) {
            self.requests.fail(index, error);
            // It has changed nothing, so it depends on no recorded loss.
            self.requests.complete(index, out);
        }
    }
}
