//! Members that do not complete operations in time: what is reported to the engine, and when.
//!
//! Invariant: the engine decides what follows. An operation that is late is still in flight: its
//! member is not replaced, and is not put into another slot, before it has completed. Deadlines are
//! in the time that the driver's thread may charge ([`Looks`]), and are judged after what has
//! completed was received. Part of `executor`.

use std::time::Duration;

use engine::{Input, IoError, MemberError};
use host::sys::Looks;
use md::MemberIdx;

use super::{Event, Executor};
use crate::all_late::AllLate;
use crate::member::{FileId, Io, Op, late_text};

/// How much later than its deadline an operation may be reported, as a part of its time.
const COARSENESS: u64 = 128;

pub(super) struct Late {
    /// How long operations of members may take; `None`: for ever.
    pub(super) limit: Option<Duration>,
    /// Those of the driver's thread, as of the last turn.
    pub(super) looks: Looks,
    /// When the deadlines are checked next, in charged time.
    check_at: u64,
    all_late: AllLate,
    /// Something has been late, or may be without a report of this executor.
    has_been: bool,
    /// Requests whose buffers late operations use from now on, and do not use any more.
    pub(super) held: Vec<u64>,
    pub(super) free: Vec<u64>,
    /// An operation of each device that is late, by place, which the engine has not seen yet.
    reported: Vec<(u16, IoError)>,
    /// Places of members that stay in service, with late operations.
    staying: Vec<u16>,
    /// What the administrator should know of that.
    notes: Vec<String>,
}

impl Late {
    pub(super) fn new() -> Late {
        Late {
            limit: None,
            looks: Looks::new(None, 0),
            check_at: 0,
            all_late: AllLate::default(),
            has_been: false,
            held: Vec::new(),
            free: Vec::new(),
            reported: Vec::new(),
            staying: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[inline]
    pub(super) fn has_reported(&self) -> bool {
        !self.reported.is_empty()
    }
}

impl Executor {
    /// Sets how long operations of members may take from now on.
    pub(crate) fn set_member_timeout(&mut self, limit: Option<Duration>) {
        self.late.limit = limit;
        for slot in &mut self.slots {
            let own = slot.member.as_mut().map_or(limit, |member| member.set_timeout(limit));
            self.late.has_been |= own > limit;
            slot.in_flight.set_limit(own);
        }
    }

    pub(crate) fn member_timeout(&self) -> Option<Duration> {
        self.late.limit
    }

    /// Number of operations that are late, those inside of arrays that are members included.
    pub(crate) fn late_operations(&self) -> usize {
        let inside = |slot: &super::MemberSlot| {
            slot.member.as_ref().map_or(0, |member| member.late_operations())
        };
        self.slots.iter().map(|slot| slot.in_flight.late() + inside(slot)).sum()
    }

    /// Requests whose buffers late operations use from now on.
    pub(crate) fn take_held(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.late.held)
    }

    /// Requests whose buffers they do not use any more.
    pub(crate) fn take_free(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.late.free)
    }

    /// Leaves the members as they are, for ever: the kernel still uses their files.
    pub(crate) fn leave_members(&mut self) {
        self.slots.iter_mut().for_each(|slot| std::mem::forget(slot.member.take()));
    }

    /// Notes since the last call, one sentence each.
    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.late.notes)
    }

    pub(super) fn has_late_reports(&self) -> bool {
        self.late.has_been && self.slots.iter().any(|slot| slot.in_flight.has_reports())
    }

    /// Reports late operations that have completed, or have ended without a report of this one.
    pub(super) fn report_on_late(&mut self) {
        if !self.has_late_reports() {
            return;
        }
        for slot in &mut self.slots {
            slot.in_flight.report(&mut self.inputs);
        }
        let (slots, shard, events) = (&self.slots, &self.shard, &mut self.events);
        self.late.staying.retain(|member| {
            let is_late = slots[usize::from(*member)].in_flight.late() > 0;
            if !is_late {
                tracing::warn!(member, "member is used again: late operations have completed");
                let event = Event::MemberBack { member: shard.slot_of(MemberIdx(*member)) };
                events.push(event, slots[usize::from(*member)].device());
            }
            is_late
        });
    }

    /// When the next look is due, by the clock: an operation may be late then.
    pub(super) fn next_late(&self) -> Option<u64> {
        self.late.limit?;
        let next = self.slots.iter().filter_map(|slot| slot.in_flight.deadline()).min()?;
        Some(self.late.looks.next(next.max(self.late.check_at)))
    }

    /// Reports operations that are late.
    pub(super) fn check_deadlines(&mut self, looks: &Looks) {
        let Some(limit) = self.late.limit else { return };
        self.late.looks = *looks;
        let now = looks.time();
        if now < self.late.check_at {
            return;
        }
        if !looks.is_settled() {
            self.late.check_at = looks.settled_at();
            return;
        }
        self.late.check_at = now + limit.as_nanos() as u64 / COARSENESS;
        let deadlines = self.slots.iter().filter_map(|slot| slot.in_flight.deadline());
        let (late, busy) =
            deadlines.fold((0, 0), |(late, busy), at| (late + usize::from(at <= now), busy + 1));
        if let Some(until) = self.late.all_late.defer(late, busy, looks) {
            tracing::debug!(late, "operations of all members are late: judged a little later");
            self.late.check_at = until;
            return;
        }
        if late == 0 {
            return;
        }
        for member in 0..self.slots.len() as u16 {
            let slot = &self.slots[usize::from(member)];
            if slot.in_flight.deadline().is_some_and(|at| at <= now) {
                self.report_late(member, now);
            }
        }
    }

    fn report_late(&mut self, member: u16, now: u64) {
        let failed = !self.shard.is_in_service(MemberIdx(member));
        // What waits for its turn gets none.
        let why = if failed { MemberError::Gone } else { MemberError::Timeout };
        self.refuse_queued(member, why);
        let before = self.inputs.len();
        self.slots[usize::from(member)].in_flight.report_late(now, &mut self.inputs);
        let late = &self.inputs[before..];
        if let Some(Input::Late { result: Err(error), .. }) = late.first() {
            self.late.has_been = true;
            self.late.reported.push((member, *error));
            tracing::warn!(member, late = late.len(), "operations of a member are late");
        }
    }

    fn refuse_queued(&mut self, member: u16, why: MemberError) {
        for queued in self.slots[usize::from(member)].queued.drain(..) {
            let super::Queued { token, kind, sector, sectors, mut slices } = queued;
            let op = Op { token, kind, sector, sectors, slices: &slices };
            let result = op.failed(why).result;
            self.inputs.push(Input::IoDone { token, result });
            slices.clear();
            self.spare.push(slices);
        }
    }

    /// The engine has taken a member out of service.
    pub(super) fn abandon(&mut self, member: MemberIdx, at: u64, io: &Io) {
        if self.late.limit.is_none() {
            return;
        }
        let now = io.looks.time();
        let at = now + at.saturating_sub(io.now);
        self.slots[member.index()].in_flight.abandon(at);
        if at > now {
            self.late.check_at = self.late.check_at.min(at);
        } else if self.slots[member.index()].in_flight.deadline().is_some() {
            self.report_late(member.0, now);
        } else {
            self.refuse_queued(member.0, MemberError::Gone);
        }
    }

    /// The engine has decided about members with late operations: those that stay in service are
    /// reported once.
    pub(super) fn note_staying(&mut self) {
        for (place, error) in std::mem::take(&mut self.late.reported) {
            let is_in_service = self.shard.is_in_service(MemberIdx(place));
            if self.late.staying.contains(&place) || !is_in_service {
                continue;
            }
            self.late.staying.push(place);
            let (device, data_offset) = self.place(MemberIdx(place));
            let limit = self.slots[usize::from(place)].in_flight.limit();
            let text = late_text(&error, data_offset, limit);
            let member = self.shard.slot_of(MemberIdx(place));
            let slot = member.0;
            tracing::error!(member = slot, device, "not used until it has completed: {text}");
            let device = device.map_or(String::new(), |device| format!(" ({device})"));
            self.late.notes.push(format!(
                "Slot {slot}{device}: {text}. The array cannot run without the member, which is \
                 not used until that has completed."
            ));
            let device = self.device_at(MemberIdx(place));
            self.events.push(Event::MemberLate { member, error }, device);
        }
    }

    pub(super) fn log_failure(&self, member: MemberIdx, error: Option<&IoError>) {
        let (device, data_offset) = self.place(member);
        let why = error.map_or_else(
            || "on request".to_string(),
            |error| late_text(error, data_offset, self.slots[member.index()].in_flight.limit()),
        );
        let errno = error.and_then(|error| error.errno).map(|errno| errno.get());
        let sector = error.map(|error| data_offset.saturating_add(error.sector.0));
        tracing::error!(member = member.0, device, sector, errno, "member failed: {why}");
    }

    /// Whether the device of the joining member with this index has operations in flight in another
    /// slot, where it was a member before.
    pub(super) fn is_busy_elsewhere(&self, joining: usize) -> bool {
        let busy = self.slots.iter().filter(|slot| slot.in_flight.count() > 0);
        let mut here: Vec<FileId> = Vec::new();
        busy.flat_map(|slot| &slot.member).for_each(|member| member.files(&mut here));
        if here.is_empty() {
            return false;
        }
        let mut its = Vec::new();
        self.joining[joining].member.files(&mut its);
        its.iter().any(|file| here.iter().any(|other| other.identity == file.identity))
    }
}
