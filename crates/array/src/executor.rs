//! Runs one array: the engine shard, its members, and the I/O between them.
//!
//! ```text
//!   submit --> inputs --> shard.handle --> effects --> members, parity kernels
//!                ^                                        |
//!                +------------- done ---------------------+
//! ```
//! Invariant: after `turn` has been called until `has_work` is false, only the kernel or the clock
//! can bring more work. Used by `driver` for the array that hosts see, and by `member::nested` for
//! arrays inside it.
//!
//! Work is done *depth first*, in steps that fit the CPU's caches: operations that have begun
//! complete before more are begun, and a request completes to its host while its bytes are still
//! cached. Members that complete asynchronously are not affected: nothing waits between two steps.

mod allocation;
mod events;
mod joining;
mod late;
mod leaves;
mod log;
mod replacements;

use std::collections::VecDeque;
use std::sync::Arc;

use engine::{
    BufSlice, Control, ControlEvent, Effect, Effects, HostOp, Input, IoError, MemberError,
    MemberSet, Mismatch, Request, RequestError, Shard, Token,
};
use md::{Geometry, Level, MemberIdx, Sector};

pub use self::allocation::ArrayExtent;
use self::events::Events;
pub use self::events::{Event, Report};
use crate::buf::{self, Growing, InPlaceSources, LEND_FROM_BYTES, LeasePool};
use crate::in_flight::InFlight;
use crate::member::{Counters, Cqe, Io, Member, MemberCompletion, MemberInfo, Op, OpKind};

pub(crate) use joining::JoiningMember;

/// An operation that waits because its member is at its queue depth.
struct Queued {
    token: Token,
    kind: OpKind,
    sector: Sector,
    sectors: u64,
    slices: Vec<BufSlice>,
}

/// In this order, what each operation looks at is in two cache lines.
#[repr(C, align(64))]
struct MemberSlot {
    /// `None`: missing from the start.
    member: Option<Box<dyn Member>>,
    /// Whether it needs `submit_batch` after submissions; that of an array does.
    gathers: bool,
    queued: VecDeque<Queued>,
    in_flight: InFlight,
    /// Counters of former members of the slot, where each was one leaf.
    former: Option<Counters>,
}

impl MemberSlot {
    /// Counters of the slot's leaves, those of former members included.
    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        let first = out.len();
        match &self.member {
            Some(member) => member.leaf_counters(out),
            None => out.push(Counters::default()),
        }
        if let (Some(former), [only]) = (&self.former, &mut out[first..]) {
            only.add(former);
        }
    }

    /// Name of its device, as it was given; `None` of one in memory, or of several.
    fn device(&self) -> Option<String> {
        let member = self.member.as_ref()?;
        let mut files = Vec::new();
        member.files(&mut files);
        match &files[..] {
            [only] => Some(only.name.clone()),
            _ => member.place().map(|(device, _)| device),
        }
    }

    /// Calls the member; operations that complete during the call are no longer in flight. Returns
    /// how many of these had not been in flight before.
    fn call(
        &mut self,
        done: &mut Vec<MemberCompletion>,
        call: impl FnOnce(&mut dyn Member, &mut Vec<MemberCompletion>),
    ) -> usize {
        let member = self.member.as_mut().expect("only members are called");
        let first = done.len();
        call(member.as_mut(), done);
        if self.gathers {
            member.take_held(&mut |held| self.in_flight.hold(held));
        }
        self.in_flight.end(done, first)
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.in_flight.submit();
        let now = io.looks.time();
        if self.call(done, |member, done| member.submit(op, io, done)) == 0 {
            self.in_flight.begin(op, now);
        }
    }
}

/// Work per step, in bytes of requests or of member I/O.
const STEP_BYTES: u64 = 256 << 10;

pub(crate) struct Executor {
    shard: Shard,
    /// By place: the members by slot, and behind them what replaces them.
    slots: Vec<MemberSlot>,
    /// Places of what replaces members, and has not taken their slots.
    replacing: MemberSet,
    /// The place of each leaf, from `first_leaf` on.
    slot_of_leaf: Vec<u16>,
    first_leaf: u32,
    queue_depth: usize,
    inputs: Vec<Input>,
    /// Requests that were not passed to the shard yet.
    coming: VecDeque<Request>,
    /// The level has parity: its shard begins writes in steps itself, and should see adjacent ones
    /// together.
    parity: bool,
    /// Bytes of member I/O so far.
    moved: u64,
    /// Empty slice lists, for reuse by queued operations.
    spare: Vec<Vec<BufSlice>>,
    /// `None` while they are performed. In a box, because they are moved twice a step.
    effects: Option<Box<Effects>>,
    /// Inputs of computations that stay in member memory instead of the stripe memory.
    in_place: InPlaceSources,
    /// The stripe memory, on levels with parity.
    stripes: Option<Arc<Growing>>,
    /// Hosts' buffers, if what is read into them may be lent instead.
    lending: Option<LeasePool>,
    done: Vec<MemberCompletion>,
    /// When the engine's timer is due.
    timer: Option<u64>,
    /// The timer was due at the end of the last turn, and hosts had one chance to submit more.
    timer_overdue: bool,
    info: MemberInfo,
    events: Events,
    /// What scrubs have found.
    mismatches: Vec<Report<Mismatch>>,
    /// Events for the control plane (metadata manager, other shards), if there is one.
    control_events: Option<Vec<ControlEvent>>,
    /// Members that the control plane has ordered to drop: another shard reports them.
    drop_commanded: MemberSet,
    /// Signature of partial parity logs, and the region of their headers.
    log: Option<(u32, u16)>,
    /// New devices for places where operations on the former ones are in flight.
    joining: Vec<JoiningMember>,
    /// Places whose devices have left the array, and may have operations in flight.
    unbinding: Vec<u16>,
    late: late::Late,
}

impl Executor {
    pub(crate) fn new(
        shard: Shard,
        members: Vec<Option<Box<dyn Member>>>,
        queue_depth: usize,
        info: MemberInfo,
        in_place: InPlaceSources,
        stripes: Option<Arc<Growing>>,
    ) -> Executor {
        let slots = members.into_iter().map(|member| MemberSlot {
            gathers: member.as_ref().is_some_and(|member| member.gathers()),
            member,
            in_flight: InFlight::new(),
            queued: VecDeque::new(),
            former: None,
        });
        let parity = shard.geometry().level().has_parity();
        Executor {
            shard,
            slots: slots.collect(),
            replacing: MemberSet::EMPTY,
            slot_of_leaf: Vec::new(),
            first_leaf: 0,
            queue_depth,
            inputs: Vec::new(),
            coming: VecDeque::new(),
            parity,
            moved: 0,
            spare: Vec::new(),
            effects: Some(Box::default()),
            in_place,
            stripes,
            lending: None,
            done: Vec::new(),
            timer: None,
            timer_overdue: false,
            info,
            events: Events::default(),
            mismatches: Vec::new(),
            control_events: None,
            drop_commanded: MemberSet::EMPTY,
            log: None,
            joining: Vec::new(),
            unbinding: Vec::new(),
            late: late::Late::new(),
        }
    }

    /// The stripe memory, on levels with parity.
    pub(crate) fn stripe_memory(&self) -> Option<&Arc<Growing>> {
        self.stripes.as_ref()
    }

    /// Members in memory may lend what hosts read. Not where there is redundancy: there the engine
    /// uses what was read into a host's buffer, to correct a member that could not be read.
    pub(crate) fn lend_to_hosts(&mut self, leases: &LeasePool) {
        if matches!(self.geometry().level(), Level::Linear | Level::Raid0) {
            self.lending = Some(leases.clone());
        }
    }

    /// From now on a control plane consumes the events.
    pub(crate) fn enable_control_plane(&mut self) {
        self.control_events = Some(Vec::new());
    }

    /// Takes the events for the control plane.
    pub(crate) fn take_control_events(&mut self) -> impl Iterator<Item = ControlEvent> + '_ {
        self.control_events.iter_mut().flat_map(|events| events.drain(..))
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.shard.geometry()
    }

    pub(crate) fn info(&self) -> MemberInfo {
        self.info
    }

    pub(crate) fn failed(&self) -> MemberSet {
        self.shard.status().failed
    }

    /// Whether the engine counts on zeroes after a discard.
    pub(crate) fn discards_leave_zeroes(&self) -> bool {
        self.shard.discards_leave_zeroes()
    }

    /// Members that are being rebuilt, or replaced.
    pub(crate) fn rebuilding(&self) -> MemberSet {
        let status = self.shard.status();
        status.lacking.minus(status.failed).union(status.replacing)
    }

    /// Members that are not in sync everywhere.
    pub(crate) fn lacking(&self) -> MemberSet {
        self.shard.status().lacking
    }

    /// Reports an event that no shard has.
    pub(crate) fn report(&mut self, event: Event, device: Option<String>) {
        self.events.push(event, device);
    }

    pub(crate) fn take_reports(&mut self) -> impl Iterator<Item = Report> + '_ {
        self.events.0.drain(..)
    }

    pub(crate) fn take_mismatches(&mut self) -> Vec<Report<Mismatch>> {
        std::mem::take(&mut self.mismatches)
    }

    /// How many requests it can take now.
    pub(crate) fn room(&self) -> usize {
        self.shard.room() - self.coming.len()
    }

    /// Whether a turn has something to do now.
    pub(crate) fn has_work(&self) -> bool {
        !self.inputs.is_empty()
            || !self.done.is_empty()
            || self.has_late_reports()
            || !self.coming.is_empty()
            || self.unbinding.iter().any(|place| self.may_unbind(*place))
            || self.shard.has_more()
    }

    pub(crate) fn submit(&mut self, request: Request) {
        self.coming.push_back(request);
    }

    pub(crate) fn control(&mut self, control: Control) {
        self.inputs.push(Input::Control(control));
    }

    /// Executes a command of the control plane.
    pub(crate) fn command(&mut self, control: Control) {
        match control {
            Control::FailMember(place) => self.drop_commanded.insert(place.0),
            Control::EndReplacement(place) => self.replacing.remove(place.0),
            _ => {}
        }
        self.control(control);
    }

    /// Takes a slot's member out of service.
    pub(crate) fn fail(&mut self, slot: MemberIdx) {
        if slot.index() < self.geometry().members() {
            self.control(Control::FailMember(self.shard.place_of(slot)));
        }
    }

    /// Takes what replaces a slot's member out of service; the member stays.
    pub(crate) fn fail_replacement(&mut self, slot: MemberIdx) {
        if slot.index() >= self.geometry().members() {
            return;
        }
        let place = self.shard.place_of_replacement(slot);
        if self.replacing.contains(place.0) {
            self.control(Control::FailMember(place));
        }
    }

    /// Leaves are numbered on: those of a former member are not used again.
    fn number_more(&mut self, place: u16, member: &mut dyn Member, io: &mut Io) {
        let mut next = self.first_leaf + self.slot_of_leaf.len() as u32;
        self.slot_of_leaf.extend(member.number_leaves(&mut next).map(|_| place));
        if self.parity {
            member.get_ready_to_lend(&mut io.regions);
        }
    }

    /// Repeats steps until there is nothing to do now, or requests have completed after a step's
    /// work; appends the completions.
    pub(crate) fn turn(&mut self, io: &mut Io, ended: &mut Vec<(u64, Result<(), RequestError>)>) {
        self.late.looks = io.looks;
        if !self.unbinding.is_empty() {
            self.unbind_left(io);
        }
        if !self.joining.is_empty() {
            self.bind_joining(io);
        }
        let before = ended.len();
        let enough = self.moved + STEP_BYTES;
        loop {
            self.take_done(io);
            let completed = ended.len() > before;
            if self.inputs.is_empty() && !self.shard.has_more() {
                if completed && self.moved >= enough {
                    return;
                }
                self.admit();
            }
            if self.inputs.is_empty() && !self.shard.has_more() {
                submit_batches(&mut self.slots, io, &mut self.done);
                if !self.done.is_empty() {
                    continue;
                }
                if !self.timer_fires(io.now, completed) {
                    return;
                }
            }
            self.step(io, ended);
        }
    }

    /// Passes events to the shard and performs its effects.
    fn step(&mut self, io: &mut Io, ended: &mut Vec<(u64, Result<(), RequestError>)>) {
        let mut effects = self.effects.take().expect("one step at a time");
        self.shard.handle(io.now, &mut self.inputs, &mut effects);
        if self.shard.is_short_of_stripe_memory()
            && let Some(stripes) = &self.stripes
        {
            stripes.request();
            self.shard.grow_stripe_memory(stripes.usable() as u64);
        }
        if self.late.has_reported() {
            self.note_staying();
        }
        for (at, effect) in effects.list.iter().enumerate() {
            match effects.list.get(at + 1) {
                Some(Effect::Read { member, sector, in_place_ok: false, .. }) => {
                    if let Some(member) = &self.slots[usize::from(member.0)].member {
                        member.prefetch(*sector);
                    }
                }
                Some(Effect::Compute { job, .. }) => {
                    buf::prefetch(effects.job(*job), &effects, &io.regions, &self.in_place);
                }
                _ => {}
            }
            self.perform(effect, &effects, io, ended);
        }
        effects.clear();
        self.effects = Some(effects);
    }

    /// Turns the next requests into inputs: all writes if the level has parity, else one step's
    /// worth.
    fn admit(&mut self) {
        let mut bytes = 0;
        while bytes < STEP_BYTES
            && let Some(request) = self.coming.pop_front()
        {
            if !self.parity || request.op == HostOp::Read {
                bytes += u64::from(request.buf.len);
            }
            self.inputs.push(Input::Request(request));
        }
    }

    /// Whether the engine's timer fires now. When requests have just completed, hosts get one
    /// chance, and only one, to submit the adjacent writes that the engine may be waiting for.
    fn timer_fires(&mut self, now: u64, completed: bool) -> bool {
        let due = self.timer.is_some_and(|at| at <= now);
        if !due {
            self.timer_overdue = false;
            return false;
        }
        if completed && !self.timer_overdue {
            self.timer_overdue = true;
            return false;
        }
        self.timer = None;
        self.timer_overdue = false;
        self.inputs.push(Input::Timer);
        true
    }

    /// Turns completed member operations into inputs, and starts operations queued behind them.
    fn take_done(&mut self, io: &mut Io) {
        self.report_on_late();
        let mut done = std::mem::take(&mut self.done);
        while !done.is_empty() {
            for end in done.drain(..) {
                self.inputs.push(Input::IoDone { token: end.token, result: end.result });
            }
            if self.queue_depth < usize::MAX {
                self.start_queued(io, &mut done);
                submit_batches(&mut self.slots, io, &mut done);
            }
        }
        self.done = done;
    }

    fn start_queued(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        if self.slots.iter().all(|slot| slot.queued.is_empty()) {
            return;
        }
        let shard = &self.shard;
        for (index, slot) in (0u16..).zip(&mut self.slots) {
            while slot.in_flight.count() < self.queue_depth {
                let Some(queued) = slot.queued.pop_front() else { break };
                let Queued { token, kind, sector, sectors, mut slices } = queued;
                let op = Op { token, kind, sector, sectors, slices: &slices };
                if !shard.is_in_service(MemberIdx(index)) {
                    // The member was taken out of service in between: it gets no more I/O.
                    done.push(op.failed(MemberError::Gone));
                } else {
                    slot.submit(&op, io, done);
                }
                slices.clear();
                self.spare.push(slices);
            }
        }
    }

    fn perform(
        &mut self,
        effect: &Effect,
        effects: &Effects,
        io: &mut Io,
        ended: &mut Vec<(u64, Result<(), RequestError>)>,
    ) {
        match effect {
            Effect::Read { token, member, sector, slices, in_place_ok: loan } => {
                let slices = effects.slices(slices);
                let in_place = match loan {
                    true => self.map_in_place(*token, *member, *sector, slices),
                    false => self.lend_to_host(*token, *member, *sector, slices),
                };
                if !in_place {
                    self.in_place.forget(slices);
                    self.submit_with_data(*token, *member, OpKind::Read, *sector, slices, io);
                }
            }
            Effect::Write { token, member, sector, slices, fua } => {
                let (kind, slices) = (OpKind::Write { fua: *fua }, effects.slices(slices));
                debug_assert!(slices.iter().all(|slice| !self.in_place.is_lent(*slice)));
                self.submit_with_data(*token, *member, kind, *sector, slices, io);
            }
            Effect::WriteLog { .. } => self.write_log(effect, effects, io),
            Effect::Flush { token, member } => {
                self.submit_without_data(*token, *member, OpKind::Flush, Sector(0), 0, io);
            }
            Effect::Discard { token, member, sector, sectors } => {
                self.submit_without_data(*token, *member, OpKind::Discard, *sector, *sectors, io);
            }
            Effect::WriteZeroes { token, member, sector, sectors } => {
                self.submit_without_data(
                    *token,
                    *member,
                    OpKind::WriteZeroes,
                    *sector,
                    *sectors,
                    io,
                );
            }
            Effect::AddBadBlocks { token, member, sector, sectors } => {
                let member = self.slots[usize::from(member.0)].member.as_mut();
                let gone = || Err(IoError::of_metadata(MemberError::Gone, None));
                let result =
                    member.map_or_else(gone, |member| member.add_bad_blocks(*sector, *sectors));
                self.done.push(MemberCompletion { token: *token, result });
            }
            Effect::Compute { token, job } => {
                let job = effects.job(*job);
                let verdict =
                    buf::compute(job, effects, &io.regions, &mut self.in_place, io.kernels);
                let token = *token;
                self.inputs.push(match verdict {
                    Some(verdict) => Input::Checked { token, verdict },
                    None => Input::ComputeDone { token },
                });
            }
            Effect::SetTimer { at } => self.timer = Some(*at),
            Effect::Complete { tag, result } => ended.push((*tag, *result)),
            Effect::Hold { tag } => self.late.held.push(*tag),
            Effect::Release { tag } => self.late.free.push(*tag),
            Effect::Abandon { member, at } => self.abandon(*member, *at, io),
            Effect::Control(event) => self.note(*event),
        }
    }

    fn note(&mut self, event: ControlEvent) {
        if let ControlEvent::Mismatch(mismatch) = event {
            self.log_mismatch(&mismatch);
            let member = mismatch.member.map(|member| self.shard.place_of(member));
            let device = member.and_then(|place| self.device_at(place));
            return self.mismatches.push(Report::now(mismatch, device));
        }
        let plane = self.control_events.as_mut();
        let is_told = plane.map(|events| events.push(event)).is_some();
        match event {
            ControlEvent::MemberFailed { member, error, epoch } => {
                self.note_failure(member, error);
                // Arrays in memory have no metadata that could record the failure.
                if !is_told {
                    self.inputs.push(Input::Control(Control::Recorded { epoch }));
                }
            }
            ControlEvent::Intent { .. } if is_told => {}
            ControlEvent::Intent { first_bit, bits } => {
                // The array has no metadata: the intent is granted immediately.
                self.inputs.push(Input::Control(Control::Granted { first_bit, bits }));
            }
            ControlEvent::Released { .. }
            | ControlEvent::OutOfSync { .. }
            | ControlEvent::NotDurable { .. }
            | ControlEvent::CollectDirtyMembers
            | ControlEvent::RebuildBegan { .. }
            | ControlEvent::Mismatch(_)
            | ControlEvent::Written { .. } => {}
            ControlEvent::Corrected { member, sector, sectors } => {
                let (device, data_offset) = self.place(self.shard.place_of(member));
                let at = data_offset.saturating_add(sector.0);
                tracing::warn!(
                    member = member.0,
                    device,
                    sector = at,
                    sectors,
                    "read error corrected: reconstructed and written back"
                );
                let of = self.device_at(self.shard.place_of(member));
                self.events.push(Event::Corrected { member, sector, sectors }, of);
            }
            ControlEvent::BadBlocksAdded { member: place, sector, sectors } => {
                let (device, data_offset) = self.place(place);
                let member = self.shard.slot_of(place);
                let at = data_offset.saturating_add(sector.0);
                tracing::warn!(
                    member = member.0,
                    device,
                    sector = at,
                    sectors,
                    "cannot be rebuilt, nothing it is computed from can be read: listed as bad"
                );
                let replaces = self.replacing.contains(place.0);
                let event = Event::BadBlocksAdded { member, replaces, sector, sectors };
                self.events.push(event, self.device_at(place));
            }
        }
    }

    /// Device at a place, and the first sector of its data area there, for the log.
    fn place(&self, member: MemberIdx) -> (Option<String>, u64) {
        let slot = &self.slots[usize::from(member.0)];
        let place = slot.member.as_ref().and_then(|member| member.place());
        place.map_or((None, 0), |(device, data_offset)| (Some(device), data_offset))
    }

    /// Name of the device at a place, as it was given.
    pub(crate) fn device_at(&self, place: MemberIdx) -> Option<String> {
        self.slots[place.index()].device()
    }

    fn log_mismatch(&self, mismatch: &Mismatch) {
        let Mismatch { kind, array_sector, sectors, member, member_sector, repaired } = *mismatch;
        let place = member.map(|member| self.place(self.shard.place_of(member)));
        let (device, data_offset) = place.unwrap_or((None, 0));
        tracing::warn!(
            ?kind,
            array_sector = array_sector.0,
            sectors,
            member = member.map(|member| member.0),
            device,
            sector = data_offset.saturating_add(member_sector.0),
            repaired,
            "scrub: mismatch"
        );
    }

    /// Records where a member in memory has the data to be read, instead of copying it. `false`:
    /// the member has no memory to lend.
    fn map_in_place(
        &mut self,
        token: Token,
        member: MemberIdx,
        sector: Sector,
        slices: &[BufSlice],
    ) -> bool {
        let (Some(member), [slice]) = (&mut self.slots[usize::from(member.0)].member, slices)
        else {
            return false;
        };
        let Some(lent) = member.lend(sector, u64::from(slice.len)) else { return false };
        self.in_place.note(*slice, lent);
        self.moved += u64::from(slice.len);
        self.done.push(MemberCompletion { token, result: Ok(()) });
        true
    }

    /// Records where a member in memory has what a host reads, if the host takes it from there.
    fn lend_to_host(
        &mut self,
        token: Token,
        member: MemberIdx,
        sector: Sector,
        slices: &[BufSlice],
    ) -> bool {
        let Some(leases) = &self.lending else { return false };
        if !slices.iter().any(|slice| leases.borrows(*slice)) {
            return false;
        }
        let slot = &mut self.slots[usize::from(member.0)];
        let bytes = slices.iter().map(|slice| u64::from(slice.len)).sum();
        let lent = match slices.iter().all(|slice| slice.len >= LEND_FROM_BYTES) {
            true => slot.member.as_mut().and_then(|member| member.lend_to_host(sector, bytes)),
            false => None,
        };
        let Some((region, mut offset)) = lent else {
            slices.iter().for_each(|slice| leases.fill(*slice));
            return false;
        };
        for slice in slices {
            leases.lend(*slice, region.clone(), offset);
            offset += u64::from(slice.len);
        }
        self.moved += bytes;
        self.done.push(MemberCompletion { token, result: Ok(()) });
        true
    }

    fn submit_without_data(
        &mut self,
        token: Token,
        member: MemberIdx,
        kind: OpKind,
        sector: Sector,
        sectors: u64,
        io: &mut Io,
    ) {
        self.submit_op(member, &Op { token, kind, sector, sectors, slices: &[] }, io);
    }

    fn submit_with_data(
        &mut self,
        token: Token,
        member: MemberIdx,
        kind: OpKind,
        sector: Sector,
        slices: &[BufSlice],
        io: &mut Io,
    ) {
        let bytes: u64 = slices.iter().map(|slice| u64::from(slice.len)).sum();
        self.moved += bytes;
        let sectors = bytes / md::SECTOR_BYTES;
        self.submit_op(member, &Op { token, kind, sector, sectors, slices }, io);
    }

    #[inline]
    fn submit_op(&mut self, member: MemberIdx, op: &Op<'_>, io: &mut Io) {
        let slot = &mut self.slots[usize::from(member.0)];
        let has_room = slot.in_flight.count() < self.queue_depth && slot.queued.is_empty();
        match has_room && slot.member.is_some() {
            true => slot.submit(op, io, &mut self.done),
            false => self.queue_op(member, op),
        }
    }

    /// The operation waits for its member, or ends because there is none.
    fn queue_op(&mut self, member: MemberIdx, op: &Op<'_>) {
        let slot = &mut self.slots[usize::from(member.0)];
        if slot.member.is_none() {
            self.done.push(op.failed(MemberError::Gone));
        } else {
            let Op { token, kind, sector, sectors, .. } = *op;
            let mut slices = self.spare.pop().unwrap_or_default();
            slices.extend_from_slice(op.slices);
            slot.queued.push_back(Queued { token, kind, sector, sectors, slices });
        }
    }

    /// Polls the members with operations due by the clock, and then judges what is late.
    pub(crate) fn reap_members(&mut self, io: &mut Io) {
        let slots = if self.info.synchronous { &mut [] } else { &mut self.slots[..] };
        for slot in slots {
            let deadline = slot.member.as_ref().and_then(|member| member.deadline());
            if deadline.is_some_and(|at| at <= io.now) {
                slot.call(&mut self.done, |member, done| member.reap(io, done));
            }
        }
        self.check_deadlines(&io.looks);
    }

    /// A member that comes later may be of another kind than all others.
    fn note_info(&mut self, member: &dyn Member) {
        let info = member.info();
        self.info.in_memory &= info.in_memory;
        self.info.synchronous &= info.synchronous;
    }

    /// Passes a CQE to the member that it belongs to.
    pub(crate) fn kernel_done(&mut self, event: Cqe, io: &mut Io) {
        let slot = self.slot_of_leaf[(event.leaf - self.first_leaf) as usize];
        let slot = &mut self.slots[usize::from(slot)];
        slot.call(&mut self.done, |member, done| member.complete(event, io, done));
    }

    /// The next time that the clock alone will cause work.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let members = self.slots.iter().filter_map(|slot| slot.member.as_ref()?.deadline());
        members.chain(self.timer).chain(self.next_late()).min()
    }

    /// When a wait for `deadline` should end; see [`Member::wake_at`].
    pub(crate) fn wake_at(&self) -> Option<u64> {
        let members = self.slots.iter().filter_map(|slot| slot.member.as_ref()?.wake_at());
        members.chain(self.timer).chain(self.next_late()).min()
    }

    /// Whether no member operation is in flight, including those behind completed requests.
    pub(crate) fn is_quiet(&self) -> bool {
        let quiet = |slot: &MemberSlot| {
            let inside = slot.member.as_ref().is_none_or(|member| member.is_quiet());
            slot.in_flight.count() == 0 && slot.queued.is_empty() && inside
        };
        !self.has_work() && self.slots.iter().all(quiet)
    }
}

/// Has members with gathered submissions start them.
fn submit_batches(slots: &mut [MemberSlot], io: &mut Io, done: &mut Vec<MemberCompletion>) {
    for slot in slots.iter_mut().filter(|slot| slot.gathers) {
        slot.call(done, |member, done| member.submit_batch(io, done));
    }
}
