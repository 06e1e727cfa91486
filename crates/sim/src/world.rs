//! A deterministic executor for the engine: members and buffers in memory, a virtual clock, seeded
//! delays and faults, and a model of what every sector may hold.
//!
//! Invariant: an effect is performed only when its time has come, so that the order in which
//! concurrent effects take place is the executor's choice. Whatever the engine may not do panics.

mod bad_blocks;
mod channels;
mod compute;
mod control_plane;
mod in_flight;
mod joins;
mod late;
mod perform;

use std::collections::VecDeque;
use std::ops::Range;

use engine::{
    BufSlice, Control, ControlEvent, Effect, Effects, HostOp, Input, IoError, MemberError,
    MemberOp, MemberSet, Request, RequestError, ScrubMode, Shard, ShardConfig,
};
use md::{Geometry, GeometrySpec, Layout, Level, MemberIdx, Sector};
use testkit::Rng;

use crate::in_place::InPlaceReads;
use crate::marks::{Mark, Marks, RowState};
use crate::member::{Member, SECTOR};
use crate::memory::Memory;
use crate::model::{self, Model};
use crate::mutant::Mutant;
use crate::operation::{Operation, Work};
use crate::request::LiveRequest;
use channels::Channels;
pub use control_plane::ControlPlane;
pub(crate) use joins::Bought;
use joins::Ordered;
pub use late::MEMBER_TIMEOUT;

/// Operations of the engine whose reads are remembered.
const REMEMBERED: usize = 64;
/// Steps without an end are a deadlock or a livelock.
const MAX_STEPS: u64 = 2_000_000;

/// The geometry of an array with members of these sizes.
///
/// # Panics
/// If there is none.
pub fn geometry(level: Level, layout: Layout, chunk_sectors: u64, sizes: &[u64]) -> Geometry {
    let member_sectors = sizes.to_vec();
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors })
        .expect("the geometry is sound")
}

/// How long effects take, in nanoseconds: low and high.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    /// Member operations.
    pub io: (u64, u64),
    /// Computations.
    pub compute: (u64, u64),
    /// Recording the loss of a member, in an array without metadata.
    pub record: (u64, u64),
}

impl Delays {
    /// Any order.
    pub const SPREAD: Delays =
        Delays { io: (1_000, 200_000), compute: (500, 30_000), record: (10_000, 500_000) };
    /// Nearly the order of the requests.
    pub const EVEN: Delays =
        Delays { io: (50_000, 60_000), compute: (1_000, 2_000), record: (90_000, 100_000) };
}

/// An array and everything around it; see the module documentation.
pub struct World {
    /// Shard 0.
    pub shard: Shard,
    /// The others, from shard 1 on.
    pub others: Vec<Shard>,
    channels: Channels,
    /// The members, by slot, and behind them what replaces them.
    pub members: Vec<Member>,
    /// Members that a bad block drops.
    pub failfast: MemberSet,
    /// What every sector may hold.
    pub model: Model,
    /// The time.
    pub now: u64,
    /// How long effects take.
    pub delays: Delays,
    /// All random choices.
    pub rng: Rng,
    live: Vec<Option<LiveRequest>>,
    /// Buffers of requests that have completed, which late operations use.
    kept: Vec<late::Kept>,
    /// Reads to be begun anew.
    again: Vec<LiveRequest>,
    memory: Memory,
    in_place: InPlaceReads,
    /// Devices that were taken out, of which something was read in place.
    former: Vec<Member>,
    operations: Vec<Operation>,
    /// Commands on their way to the shards: (time, shard, command).
    controls: Vec<(u64, u16, Control)>,
    /// By shard, as the inputs.
    timers: Vec<Option<u64>>,
    inputs: Vec<Vec<Input>>,
    effects: Effects,
    /// Of the shard that processes a batch: where the members of slots in sync were before.
    places: Vec<Option<u16>>,
    due: Vec<Operation>,
    /// Member writes completed so far.
    writes_done: u64,
    /// Shard and epoch.
    unrecorded: Vec<(u16, u64)>,
    /// Members that each shard has reported as dropped.
    announced: Vec<(u16, u16)>,
    /// Those of them whose loss is recorded.
    recorded: Vec<usize>,
    /// Of the next request; never used twice.
    pub next_tag: u64,
    steps: u64,
    /// Tags and results of completed requests, in their order.
    pub completed: Vec<(u64, Result<(), RequestError>)>,
    /// Blocks of a row, or copies, may differ without a mark.
    pub may_mismatch: bool,
    /// Events of all shards for the control plane.
    pub events: Vec<ControlEvent>,
    /// Operations of members as they were issued, with [`World::keep_log`].
    pub log: Vec<Logged>,
    /// Whether `log` is kept.
    pub keep_log: bool,
    /// A planted bug.
    pub mutant: Option<Mutant>,
    /// States of the engine that were reached.
    pub marks: Marks,
    /// Operations of the engine that have read, by shard: the latest.
    have_read: VecDeque<(u16, u64)>,
    /// Blank devices that were bought for slots.
    pub(crate) bought: Vec<Bought>,
    /// Spares, and what was one and has left: by place behind those of the slots.
    pub(crate) spares: Vec<Option<Member>>,
    /// Numbers of spares that have failed as such.
    failed_spares: Vec<u32>,
    /// Spares that are to replace members: number, place.
    pub(crate) coming: Vec<(u32, usize)>,
    /// Devices that the metadata manager has ordered to be put in.
    ordered: Vec<Ordered>,
    /// Numbers of devices that have left.
    pub(crate) has_left: Vec<u32>,
    /// The highest event count of a device with a slot that was taken out.
    pub(crate) taken_out: u64,
    /// Those that were put in.
    pub(crate) replaced: Vec<(usize, bool)>,
    /// The array's metadata and what keeps them, if it has any.
    pub control_plane: Option<ControlPlane>,
}

/// A member operation as it was issued.
#[derive(Clone, Debug)]
pub struct Logged {
    /// When.
    pub issued: u64,
    /// The member's slot.
    pub member: u16,
    /// Sectors of its data area.
    pub sectors: Range<u64>,
    /// The operation.
    pub what: What,
}

/// The operation of a [`Logged`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Read.
    Read,
    /// Write.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Write of the partial parity log.
    Log,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write of zeroes.
    WriteZeroes,
    /// Entry of the bad-block log.
    AddBadBlocks,
}

impl World {
    /// All shards of the array that the configuration is of, over members of zeroes.
    ///
    /// # Panics
    /// If the configuration is invalid.
    pub fn new(config: ShardConfig, seed: u64) -> World {
        let members = (0..config.geometry.members()).map(|at| {
            let sectors = config.geometry.member_used_sectors(MemberIdx(at as u16));
            match config.missing.contains(at as u16) {
                true => Member::missing(sectors),
                false => Member::of_zeroes(sectors),
            }
        });
        let members = members.collect();
        World::of_members(config, members, seed)
    }

    /// All shards of the array that the configuration is of, over these members.
    ///
    /// # Panics
    /// If the configuration is invalid.
    pub fn of_members(config: ShardConfig, members: Vec<Member>, seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let shards = config.sharding.shards();
        let (discard_zeroes, failfast) = (config.discard_zeroes, config.failfast);
        let slots = config.geometry.members();
        let model = Model::new(config.geometry.array_sectors(), discard_zeroes);
        let memory = Memory::new(shards, config.usable_stripe_bytes());
        let channels = Channels::new(&config);
        let shard = |number: u16| {
            let scratch_region = Memory::stripe_region(number);
            let config = ShardConfig { number, scratch_region, ..config.clone() };
            Shard::new(config).expect("the configuration is valid")
        };
        World {
            shard: shard(0),
            others: (1..shards).map(shard).collect(),
            members,
            failfast,
            model,
            channels,
            now: 1 + rng.below(1 << 40),
            delays: Delays::SPREAD,
            rng,
            live: Vec::new(),
            kept: Vec::new(),
            again: Vec::new(),
            memory,
            in_place: InPlaceReads::default(),
            former: Vec::new(),
            operations: Vec::new(),
            controls: Vec::new(),
            timers: vec![None; usize::from(shards)],
            inputs: vec![Vec::new(); usize::from(shards)],
            effects: Effects::new(),
            places: Vec::new(),
            due: Vec::new(),
            writes_done: 0,
            unrecorded: Vec::new(),
            announced: Vec::new(),
            recorded: Vec::new(),
            next_tag: 1,
            steps: 0,
            completed: Vec::new(),
            may_mismatch: false,
            events: Vec::new(),
            log: Vec::new(),
            keep_log: false,
            mutant: None,
            marks: Marks::default(),
            have_read: VecDeque::new(),
            bought: Vec::new(),
            spares: std::iter::repeat_with(|| None).take(slots).collect(),
            failed_spares: Vec::new(),
            coming: Vec::new(),
            has_left: Vec::new(),
            taken_out: 0,
            ordered: Vec::new(),
            replaced: Vec::new(),
            control_plane: None,
        }
    }

    /// The array's geometry.
    pub fn geometry(&self) -> &Geometry {
        self.shard.geometry()
    }

    /// Number of requests in flight.
    pub fn outstanding(&self) -> usize {
        self.live.iter().flatten().count()
    }

    /// Number of requests of hosts in flight: all but ranges of a resync or a rebuild.
    pub fn host_requests(&self) -> usize {
        self.live
            .iter()
            .flatten()
            .filter(|live| !matches!(live.op, HostOp::Resync | HostOp::Rebuild))
            .count()
    }

    /// Whether shard 0 has taken a member out of service.
    pub fn is_failed(&self, member: u16) -> bool {
        self.shard.status().failed.contains(member)
    }

    /// A shard by its number.
    pub fn shard_of(&self, number: u16) -> &Shard {
        number.checked_sub(1).map_or(&self.shard, |at| &self.others[usize::from(at)])
    }

    fn shard_mut(&mut self, number: u16) -> &mut Shard {
        match number.checked_sub(1) {
            None => &mut self.shard,
            Some(at) => &mut self.others[usize::from(at)],
        }
    }

    /// The numbers of all shards.
    pub fn numbers(&self) -> Range<u16> {
        0..1 + self.others.len() as u16
    }

    /// Requests that every shard has room for.
    pub fn room(&self) -> usize {
        let room = |number: u16| {
            let queued = self.inputs[usize::from(number)].len();
            self.shard_of(number).room().saturating_sub(queued)
        };
        self.numbers().map(room).min().expect("a shard")
    }

    /// Submits a request to the engine; its completion will be checked against the model.
    pub fn submit(&mut self, op: HostOp, at: u64, sectors: u64) -> u64 {
        let tag = self.queue(op, at, sectors);
        self.hand_over();
        tag
    }

    /// Adds a request to the next batch.
    pub fn queue(&mut self, op: HostOp, at: u64, sectors: u64) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.model.submit(tag, op, at, sectors);
        if let Some(control_plane) = &mut self.control_plane {
            control_plane.submitted(tag, op, at, sectors);
        }
        let writes_before = self.writes_done;
        self.send(tag, 0, op, at, sectors, writes_before);
        tag
    }

    /// Sends a request to the shards, for the first time or anew.
    fn send(&mut self, tag: u64, attempt: u64, op: HostOp, at: u64, sectors: u64, before: u64) {
        let is_kept = |slot: usize| self.kept.iter().any(|kept| kept.slot == slot);
        let free = (0..self.live.len()).find(|slot| self.live[*slot].is_none() && !is_kept(*slot));
        let slot = free.unwrap_or_else(|| {
            self.live.push(None);
            self.live.len() - 1
        });
        let copies = match (op, self.geometry().kind()) {
            (HostOp::Read | HostOp::Write { .. }, _) => 1,
            (HostOp::Resync | HostOp::Rebuild, md::Kind::Mirrored(_) | md::Kind::Striped(_)) => 1,
            (HostOp::Scrub(_), md::Kind::Mirrored(mirrored)) => mirrored.copies(),
            _ => 0,
        };
        let base = self.rng.below(64) * 4096;
        let len = copies * sectors as usize * crate::member::SECTOR;
        let (buf, bytes) = self.memory.lend(slot, base, len);
        if matches!(op, HostOp::Write { .. }) {
            model::fill(tag, at, bytes);
        }
        let parts = self.channels.parts(op, at, sectors);
        let open = parts.len();
        let (error, held, was_held, writes_before) = (None, 0, false, before);
        let live = LiveRequest {
            tag,
            op,
            at,
            sectors,
            open,
            error,
            writes_before,
            attempt,
            held,
            was_held,
        };
        let tag = live.engine_tag();
        self.live[slot] = Some(live);
        for part in parts {
            let skip = (part.at.0 - at) * md::SECTOR_BYTES;
            let all = part.sectors.saturating_mul(copies.max(1) as u64 * md::SECTOR_BYTES);
            let len = all.min(buf.len.into()) as u32;
            let buf = BufSlice { offset: buf.offset + skip, len, ..buf };
            let request = Request { tag, op, at: part.at, sectors: part.sectors, buf };
            self.inputs[usize::from(part.shard)].push(Input::Request(request));
        }
    }

    /// Gives the engine all inputs that have gathered, as one batch.
    pub fn hand_over(&mut self) {
        for number in self.numbers() {
            let mut inputs = std::mem::take(&mut self.inputs[usize::from(number)]);
            if inputs.is_empty() && number > 0 {
                continue;
            }
            let mut effects = std::mem::take(&mut self.effects);
            let now = self.now;
            self.note_places(number);
            let shard = self.shard_mut(number);
            shard.handle(now, &mut inputs, &mut effects);
            while shard.has_more() {
                shard.handle(now, &mut inputs, &mut effects);
            }
            for effect in &effects.list {
                self.take_effect(number, effect, &effects);
            }
            if self.shard_mut(number).is_short_of_stripe_memory() && self.steps.is_multiple_of(4) {
                // Not a power of two.
                let bytes = self.memory.grow_stripe(number, 3 * 4096);
                self.shard_mut(number).grow_stripe_memory(bytes);
                self.marks.reach(Mark::StripeMemoryGrew);
            }
            effects.clear();
            self.effects = effects;
            self.inputs[usize::from(number)] = inputs;
        }
        self.run_manager();
        if self.begin_anew() {
            self.hand_over();
        }
    }

    /// A command for shard 0.
    pub fn control(&mut self, control: Control) {
        self.control_of(0, control);
    }

    /// A command for a shard.
    pub fn control_of(&mut self, shard: u16, control: Control) {
        self.inputs[usize::from(shard)].push(Input::Control(control));
        self.hand_over();
    }

    fn take_effect(&mut self, shard: u16, effect: &Effect, out: &Effects) {
        match effect {
            Effect::SetTimer { at } => self.timers[usize::from(shard)] = Some(*at),
            Effect::Complete { tag, result } => self.part_done(shard, *tag, *result),
            Effect::Hold { tag } => self.hold(*tag),
            Effect::Release { tag } => self.release(*tag),
            Effect::Abandon { member, at } => self.abandon(shard, *member, *at),
            Effect::Control(event) => {
                if let ControlEvent::MemberFailed { member, epoch, .. } = event {
                    self.mark_failure(shard, member.index());
                    self.unrecorded.push((shard, *epoch));
                    self.announced.push((shard, member.0));
                }
                if let ControlEvent::Mismatch(mismatch) = event {
                    assert!(self.may_mismatch, "a scrub finds what is not there: {mismatch:?}");
                }
                self.marks.event(event);
                self.events.push(*event);
                self.control_event(shard, *event);
            }
            other => {
                let mut operation = Operation::new(shard, other, out, self.writes_done);
                operation.origin = self.shard_of(shard).origin(operation.token);
                self.start(operation);
            }
        }
    }

    fn mark_failure(&mut self, shard: u16, place: usize) {
        let status = self.shard_of(shard).status();
        let gets_slot = status.lacking.minus(status.failed).contains(place as u16);
        if place >= self.geometry().members() {
            self.marks.reach(Mark::ReplacementFailed);
        } else if gets_slot {
            self.marks.reach(Mark::ReplacementGetsSlot);
        }
    }

    /// Puts an operation in flight, after every check that can be made now.
    fn start(&mut self, mut operation: Operation) {
        let (mut slowness, mut hangs) = (1, false);
        self.assert_not_late(&operation);
        if let Some((member, sectors)) = &operation.place {
            assert!(!self.is_failed_before(&operation), "a failed member is used: {operation:?}");
            let target = &self.members[usize::from(*member)];
            assert!(sectors.end <= target.data_sectors(), "outside of the member: {operation:?}");
            let block = target.block_sectors;
            assert!(
                sectors.start.is_multiple_of(block) && sectors.end.is_multiple_of(block),
                "of a part of a block: {operation:?}"
            );
            let bytes = block as u32 * SECTOR as u32;
            let mut slices = operation.reads.iter().chain(&operation.writes);
            let whole = slices.all(|slice| slice.len.is_multiple_of(bytes));
            assert!(whole, "a member's slices are no whole blocks: {operation:?}");
            slowness = target.slowness.max(1);
            hangs = target.hangs_at.is_some_and(|at| at <= self.now);
            operation.predecessors = target.predecessors;
            operation.change = operation.log_change(target);
            operation.late_at = self.now + MEMBER_TIMEOUT;
            if self.keep_log {
                self.log.push(Logged {
                    issued: self.now,
                    member: *member,
                    sectors: sectors.clone(),
                    what: what_of(&operation.work),
                });
            }
        }
        operation.assert_sound();
        self.assert_unreadable(&operation);
        self.assert_owned(&operation);
        for other in &self.operations {
            operation.assert_compatible(other);
        }
        self.mark(&operation);
        let span = if operation.place.is_some() { self.delays.io } else { self.delays.compute };
        operation.issued = self.now;
        operation.ready_at = match hangs {
            true => self.hung_until(),
            false => self.now + slowness * self.delay(span),
        };
        self.operations.push(operation);
    }

    fn mark(&mut self, operation: &Operation) {
        let key = (operation.shard, operation.owner());
        let has_read = operation.place.is_none() && self.have_read.contains(&key);
        let shard = self.shard_of(operation.shard);
        let is_degraded = !shard.status().failed.is_empty();
        let has_q = shard.geometry().level() == Level::Raid6;
        self.marks.operation(operation, RowState { has_read, is_degraded, has_q });
        if matches!(operation.work, Work::Read { .. }) && !operation.takes_no_lock() {
            if self.have_read.len() == REMEMBERED {
                self.have_read.pop_front();
            }
            self.have_read.push_back(key);
        }
    }

    /// Whether it goes to a member that was out of service before this batch began.
    fn is_failed_before(&self, operation: &Operation) -> bool {
        let Some((member, _)) = &operation.place else { return false };
        let announced = self.announced.contains(&(operation.shard, *member));
        announced || self.members[usize::from(*member)].gone_at == Some(0)
    }

    /// Host buffers belong to requests in flight, and those of writes are never written to.
    fn assert_owned(&self, operation: &Operation) {
        for slice in &operation.reads {
            self.memory.assert_inside(operation.shard, slice);
        }
        for slice in &operation.writes {
            let Some(host) = self.memory.assert_inside(operation.shard, slice) else { continue };
            let live = self.live[host].as_ref().expect("it has a buffer");
            let filled = matches!(
                live.op,
                HostOp::Read | HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_)
            );
            assert!(filled, "a host's data changed: {operation:?}");
        }
    }

    fn part_done(&mut self, shard: u16, tag: u64, result: Result<(), RequestError>) {
        let live = self.live.iter_mut().flatten().find(|live| live.engine_tag() == tag);
        let live = live.unwrap_or_else(|| panic!("request {tag} completes twice"));
        let promises = !matches!(live.op, HostOp::Read | HostOp::Scrub(ScrubMode::Check));
        if promises && result.is_ok() {
            let open = self.unrecorded.iter().any(|(of, _)| *of == shard);
            assert!(!open, "acknowledged before a failure was recorded");
        }
        live.open -= 1;
        if let Err(error) = result {
            live.error.get_or_insert(error);
        }
        if live.open == 0 {
            let result = live.error.map_or(Ok(()), Err);
            self.complete(tag, result);
        }
    }

    fn complete(&mut self, tag: u64, result: Result<(), RequestError>) {
        let is_it =
            |live: &Option<LiveRequest>| live.as_ref().is_some_and(|l| l.engine_tag() == tag);
        let slot = self.live.iter().position(is_it);
        let slot = slot.unwrap_or_else(|| panic!("request {tag} completes twice"));
        self.assert_buffer_is_free(tag, slot);
        let live = self.live[slot].take().expect("found above");
        if live.held > 0 {
            self.keep(&live, slot);
        }
        if live.was_held && live.op == HostOp::Read {
            if live.held == 0 {
                self.memory.take_back(slot);
            }
            return self.again.push(live);
        }
        let tag = live.tag;
        if live.op == HostOp::Flush && result.is_ok() {
            self.assert_durable(live.writes_before);
        }
        let reads = |member: &Member| {
            let is_listed = member.log.as_ref().is_some_and(|log| !log.is_empty());
            let is_bad = !member.bad.is_empty() || !member.flaky.is_empty();
            !member.is_gone(self.now) && !is_bad && !is_listed
        };
        self.model.is_whole =
            self.shard.status().failed.is_empty() && self.members.iter().all(reads);
        self.marks.result(result);
        let bytes = match live.held {
            0 => self.memory.take_back(slot),
            _ => self.memory.contents(slot),
        };
        self.model.complete(&live, bytes, result);
        if let Some(control_plane) = &mut self.control_plane {
            control_plane.completed(self.now, &live, result);
        }
        self.completed.push((tag, result));
    }

    /// Every member write that had completed before the flush was submitted is durable.
    fn assert_durable(&self, before: u64) {
        for (at, member) in self.members.iter().enumerate() {
            let volatile = member.unflushed.iter().find(|number| **number <= before);
            let is_in_service = self.shard.is_in_service(MemberIdx(at as u16));
            let slots = self.geometry().members();
            // For the engine a write is on a member when it is on the replacement, too.
            let has_two = self.members.len() > slots && {
                self.members[slots + at % slots].gone_at != Some(0)
            };
            let ok = volatile.is_none() || !is_in_service || has_two;
            assert!(ok, "a flush ended, but member {at} holds an older volatile write");
        }
    }

    fn delay(&mut self, (low, high): (u64, u64)) -> u64 {
        self.rng.within(low, high)
    }

    /// Time of the next event, if anything is in flight.
    pub fn next_event(&self) -> Option<u64> {
        let operations = self.operations.iter().filter_map(|operation| {
            let late = (!operation.is_late).then_some(operation.late_at);
            let next = late.into_iter().chain([operation.ready_at]).min();
            next.filter(|at| *at < u64::MAX)
        });
        let controls = self.controls.iter().map(|(at, ..)| *at);
        let timers = self.timers.iter().flatten().copied();
        let control_plane = self.control_plane.as_ref().and_then(ControlPlane::next_event);
        let messages = self.channels.next_event();
        operations.chain(controls).chain(timers).chain(control_plane).chain(messages).min()
    }

    /// Lets the next thing happen. `false`: there is nothing.
    ///
    /// # Panics
    /// When the engine does what it may not do, and after too many steps.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.steps += 1;
        assert!(self.steps < MAX_STEPS, "no end after {MAX_STEPS} steps: a livelock?");
        self.now = self.now.max(next);
        // Now and then several completions come in one batch.
        let until = self.now + if self.rng.one_in(4) { 5_000 } else { 0 };
        let mut due = std::mem::take(&mut self.due);
        due.extend(self.operations.extract_if(.., |operation| operation.ready_at <= until));
        self.now = due.iter().map(|due| due.ready_at).max().unwrap_or(next).max(self.now);
        self.rng.shuffle(&mut due);
        for operation in due.drain(..) {
            let input = self.perform(&operation);
            if let Some(input) = self.ended(&operation, input) {
                self.inputs[usize::from(operation.shard)].push(input);
            }
        }
        self.due = due;
        self.report_late();
        self.deliver();
        let now = self.now;
        let Self { controls, inputs, unrecorded, marks, .. } = self;
        controls.retain(|(at, shard, control)| {
            if *at <= now {
                marks.control(control);
                inputs[usize::from(*shard)].push(Input::Control(control.clone()));
                if let Control::Recorded { epoch } = control {
                    unrecorded.retain(|(of, open)| of != shard || open > epoch);
                }
            }
            *at > now
        });
        if self.unrecorded.is_empty() {
            let announced = self.announced.iter().map(|(_, member)| usize::from(*member));
            let recorded = &mut self.recorded;
            announced.for_each(|member| {
                if !recorded.contains(&member) {
                    recorded.push(member);
                }
            });
        }
        for (timer, inputs) in self.timers.iter_mut().zip(&mut self.inputs) {
            if timer.is_some_and(|at| at <= now) {
                *timer = None;
                inputs.push(Input::Timer);
            }
        }
        self.step_control_plane();
        self.put_in();
        self.hand_over();
        true
    }

    /// Whether a planted bug loses this completion.
    fn loses_completion(&mut self, input: &Input) -> bool {
        let Input::IoDone { result: Err(_), .. } = input else { return false };
        let two = || self.members.iter().filter(|member| member.is_gone(self.now)).count() > 1;
        let loses = self.mutant == Some(Mutant::CompletionLost) && two();
        loses && self.rng.one_in(4)
    }

    /// Changes bytes of a member's data area behind the back of everything, durably.
    pub(crate) fn corrupt(&mut self, member: usize, first: u64, bytes: &[u8]) {
        self.writes_done += 1;
        self.members[member].write(self.writes_done, first, bytes, true);
    }

    /// Runs until nothing is in flight; everything must have completed by then.
    ///
    /// # Panics
    /// When a request never completes.
    pub fn quiesce(&mut self) {
        while self.step() {}
        let stuck: Vec<u64> = self.live.iter().flatten().map(|live| live.tag).collect();
        assert!(stuck.is_empty(), "requests {stuck:?} never complete: {:?}", self.shard.status());
        for number in self.numbers() {
            let status = self.shard_of(number).status();
            assert_eq!((status.requests, status.stripe_operations), (0, 0));
        }
    }

    /// Submits one request, waits for it, and returns its result.
    ///
    /// # Panics
    /// When it never completes.
    pub fn run(&mut self, op: HostOp, at: u64, sectors: u64) -> Result<(), RequestError> {
        let tag = self.submit(op, at, sectors);
        loop {
            if let Some(result) = self.result(tag) {
                return result;
            }
            assert!(self.step(), "request {tag} never completes");
        }
    }

    /// The result of a completed request.
    pub fn result(&self, tag: u64) -> Option<Result<(), RequestError>> {
        let mut latest = self.completed.iter().rev();
        latest.find(|(completed, _)| *completed == tag).map(|(_, result)| *result)
    }

    /// Members that shards have dropped in this life, and whose loss is recorded.
    pub fn recorded_losses(&self) -> &[usize] {
        &self.recorded
    }
}

fn what_of(work: &Work) -> What {
    match work {
        Work::Read { .. } => What::Read,
        Work::Write { fua, .. } => What::Write { fua: *fua },
        Work::WriteLog { .. } => What::Log,
        Work::Flush { .. } => What::Flush,
        Work::Discard => What::Discard,
        Work::WriteZeroes => What::WriteZeroes,
        Work::AddBadBlocks => What::AddBadBlocks,
        other => unreachable!("{other:?} goes to no member"),
    }
}

/// The error of an operation that has no error number.
pub fn io_error(kind: MemberError, op: MemberOp, sectors: &Range<u64>) -> IoError {
    let length = (sectors.end - sectors.start) as u32;
    IoError { kind, op, errno: None, sectors: length, sector: Sector(sectors.start) }
}
