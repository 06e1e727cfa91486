//! One shard of an array: takes a batch of inputs, returns a batch of effects.
//!
//! Invariant: every admitted request completes exactly once, in bounded memory. The caller keeps
//! within [`Shard::room`] and queues the rest, which is the back-pressure on frontends.
//!
//! A shard is the only owner of its part of the array's address space (`sharding`) and shares no
//! state. Shards interact only through control messages: shard 0 collects the written members of
//! the others when it flushes, and a member that one drops is dropped by all (`metadata` manager,
//! or `failure_coordinator` for arrays without metadata).

use std::ops::Range;

use md::{Geometry, Kind as GeometryKind, MemberIdx, Sector};

use crate::flush::{Ended, Flushes};
use crate::health::Health;
use crate::intent::Intents;
use crate::non_parity::{self, NonParity};
use crate::requests::Requests;
use crate::stream::{Seen, Streams};
use crate::stripe::Stripes;
use crate::token::Kind;
use crate::{
    ConfigError, Control, ControlEvent, Effect, Effects, HostOp, Input, IoError, MAX_MEMBERS,
    MAX_REQUEST_SECTORS, MemberSet, Request, RequestError, ShardConfig, Token,
};

/// Status of a shard, for monitoring and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Members out of service.
    pub failed: MemberSet,
    /// Configuration epoch: the number of member failures since the start.
    pub epoch: u64,
    /// Requests in the shard.
    pub requests: usize,
    /// Number of these that are writes waiting for their intents.
    pub waiting_for_intents: usize,
    /// Stripe operations in progress or waiting for memory.
    pub stripe_operations: usize,
    /// Free stripe memory in bytes (cache entries count as used).
    pub stripe_memory_free: u64,
}

#[allow(clippy::large_enum_variant, reason = "there is one per shard")]
enum Personality {
    NonParity(NonParity),
    Parity(Stripes),
}

/// A shard; see the crate documentation.
pub struct Shard {
    config: ShardConfig,
    requests: Requests,
    health: Health,
    streams: Streams,
    flushes: Flushes,
    flushed: Vec<Ended>,
    intents: Option<Intents>,
    /// Requests released from `intents`; empty between calls.
    ready: Vec<u32>,
    /// Time that the timer is set to.
    timer: Option<u64>,
    personality: Personality,
}

impl Shard {
    /// Creates a shard.
    ///
    /// # Errors
    /// When the configuration is invalid; the error names the value.
    pub fn new(config: ShardConfig) -> Result<Shard, ConfigError> {
        let members = config.geometry.members();
        if members > MAX_MEMBERS {
            return Err(ConfigError::TooManyMembers { given: members });
        }
        let block = config.logical_block;
        if !block.is_power_of_two() || !(512..=4096).contains(&block) {
            return Err(ConfigError::LogicalBlock { given: block });
        }
        let shards = config.sharding.shards();
        if config.number >= shards {
            return Err(ConfigError::NoSuchShard { given: config.number, shards });
        }
        let others = if config.number == 0 { shards - 1 } else { 0 };
        if !config.geometry.enough(|member| !config.missing.contains(member.0)) {
            return Err(ConfigError::TooFewMembers { missing: config.missing.len() });
        }
        let personality = if matches!(config.geometry.kind(), GeometryKind::Parity(_)) {
            let least = ShardConfig::least_stripe_cache_bytes(&config.geometry);
            let given = config.stripe_cache_bytes;
            if given < least {
                return Err(ConfigError::StripeCacheTooSmall { given, least });
            }
            Personality::Parity(Stripes::new(&config))
        } else {
            Personality::NonParity(NonParity::new(&config.geometry, config.discard_zeroes))
        };
        Ok(Shard {
            requests: Requests::with_capacity(config.max_requests),
            health: Health::new(config.missing, config.in_sync_below),
            streams: Streams::default(),
            flushes: Flushes::with_others(others),
            flushed: Vec::new(),
            intents: config.intents.map(|map| Intents::new(map, config.safe_mode_nanos)),
            ready: Vec::new(),
            timer: None,
            personality,
            config,
        })
    }

    /// How many more requests may be in the next batch.
    pub fn room(&self) -> usize {
        self.config.max_requests - self.requests.live()
    }

    /// Whether the last batch has left operations to begin: `handle` must be called again before
    /// the caller waits, preferably with the completions since then.
    pub fn has_more(&self) -> bool {
        matches!(&self.personality, Personality::Parity(stripes) if stripes.has_more())
    }

    /// The array that the shard serves.
    pub fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    /// The shard's status.
    pub fn status(&self) -> Status {
        let (operations, free) = match &self.personality {
            Personality::NonParity(_) => (0, 0),
            Personality::Parity(stripes) => (stripes.operations(), stripes.free_bytes()),
        };
        Status {
            failed: self.health.failed(),
            epoch: self.health.epoch(),
            requests: self.requests.live(),
            waiting_for_intents: self.intents.as_ref().map_or(0, Intents::parked),
            stripe_operations: operations,
            stripe_memory_free: free,
        }
    }

    /// Processes a batch of inputs at time `now` (nanoseconds of any monotonic clock) and appends
    /// effects to `out`. `inputs` is left empty. Of a large batch it begins only a part; see
    /// [`has_more`](Shard::has_more).
    ///
    /// # Panics
    /// When there are more requests than [`room`](Shard::room) allows, or a completion has no
    /// operation: both are bugs of the executor.
    pub fn handle(&mut self, now: u64, inputs: &mut Vec<Input>, out: &mut Effects) {
        let mut timer = false;
        for input in inputs.drain(..) {
            match input {
                Input::Request(request) => self.request(now, &request, out),
                Input::IoDone { token, result } => self.io_done(now, token, result, out),
                Input::ComputeDone { token } => self.compute_done(now, token, out),
                Input::Timer => timer = true,
                Input::Control(control) => self.control(now, control, out),
            }
        }
        let Shard { config, requests, health, flushes, personality, .. } = self;
        let mut deadline = None;
        if let Personality::Parity(stripes) = personality {
            let written = &mut |member| flushes.note_written(member);
            let geometry = &config.geometry;
            let mut cx = crate::stripe::Context { now, geometry, requests, health, out, written };
            deadline = stripes.plan_batch(&mut cx, timer);
        }
        if timer {
            self.timer = None;
        }
        deadline = deadline.into_iter().chain(self.run_intent_timers(now, out)).min();
        if deadline.is_some() && deadline != self.timer {
            self.timer = deadline;
            out.list.extend(deadline.map(|at| Effect::SetTimer { at }));
        }
    }

    /// Removes completed writes from the users of their intents, and releases unused intents;
    /// returns when the timer is due next.
    fn run_intent_timers(&mut self, now: u64, out: &mut Effects) -> Option<u64> {
        let Shard { requests, health, intents, .. } = self;
        let intents = intents.as_mut()?;
        for (at, sectors, unsettled) in requests.intents_ended.drain(..) {
            if unsettled {
                health.report_out_of_sync(intents.map().position_of(at));
            }
            intents.ended(now, at, sectors, unsettled, out);
        }
        intents.run_timers(now, out);
        intents.deadline()
    }

    fn request(&mut self, now: u64, request: &Request, out: &mut Effects) {
        assert!(self.room() > 0, "more requests than `room` allows");
        let local = match self.check(request) {
            Ok(local) => local,
            Err(error) => return out.complete(request.tag, Err(error)),
        };
        let writes = !matches!(request.op, HostOp::Read | HostOp::Flush);
        if writes && self.health.is_read_only() {
            return out.complete(request.tag, Err(RequestError::ReadOnly));
        }
        let index = self.requests.admit(request).index;
        if request.op == HostOp::Flush {
            let failed = self.health.failed();
            self.flushes.request(index, failed, out, &mut self.flushed);
            return self.end_flushes(out);
        }
        if request.sectors == 0 {
            return self.requests.end(index, &self.health, out);
        }
        let Request { op, at, sectors, .. } = *request;
        if op == HostOp::Resync {
            return self.start(now, index, false, out);
        }
        let seen = self.streams.observe(local, sectors);
        if op == HostOp::Read {
            return self.start_read(now, index, seen, out);
        }
        // A discard without effect cannot leave anything out of sync.
        let idle = op == HostOp::Discard && !self.config.discard_zeroes;
        if let Some(intents) = self.intents.as_mut().filter(|_| !idle) {
            let record = &mut self.requests[index];
            record.intent = true;
            record.stream = seen.is_stream();
            if !intents.admit(index, at, sectors, out) {
                return;
            }
        }
        self.start(now, index, seen.is_stream(), out);
    }

    fn start_read(&mut self, now: u64, index: u32, seen: Seen, out: &mut Effects) {
        let Shard { config, requests, health, flushes, personality, streams, .. } = self;
        let geometry = &config.geometry;
        match personality {
            Personality::NonParity(flat) => {
                let mut cx = non_parity::Context { geometry, requests, health, out };
                if let Some(copy) = flat.read(&mut cx, index, seen) {
                    streams.stay_on(seen, copy);
                }
            }
            Personality::Parity(stripes) => {
                let written = &mut |member| flushes.note_written(member);
                let mut cx =
                    crate::stripe::Context { now, geometry, requests, health, out, written };
                stripes.read(&mut cx, index, seen.is_stream());
            }
        }
    }

    /// Starts requests that lock their range: writes that have their intents, and resyncs.
    fn start(&mut self, now: u64, index: u32, stream: bool, out: &mut Effects) {
        let Shard { config, requests, health, flushes, personality, .. } = self;
        let geometry = &config.geometry;
        match personality {
            Personality::NonParity(flat) => {
                flat.lock(&mut non_parity::Context { geometry, requests, health, out }, index);
            }
            Personality::Parity(stripes) => {
                let written = &mut |member| flushes.note_written(member);
                let mut cx =
                    crate::stripe::Context { now, geometry, requests, health, out, written };
                match cx.requests[index].op {
                    Some(HostOp::Resync) => stripes.resync(&mut cx, index),
                    _ => stripes.write(&mut cx, index, stream),
                }
            }
        }
    }

    /// Validates a request and returns its position in the shard's own part.
    fn check(&self, request: &Request) -> Result<Sector, RequestError> {
        let ShardConfig { geometry, sharding, number, .. } = &self.config;
        if request.op == HostOp::Flush {
            return if *number == 0 { Ok(Sector(0)) } else { Err(RequestError::Invalid) };
        }
        let resync = request.op == HostOp::Resync;
        let stripes = matches!(geometry.kind(), GeometryKind::Parity(_));
        if resync && matches!(geometry.kind(), GeometryKind::Striped(_)) {
            return Err(RequestError::Invalid);
        }
        let block = u64::from(self.config.logical_block) / md::SECTOR_BYTES;
        let size = match resync {
            true => crate::intent_map::span(geometry),
            false => geometry.array_sectors(),
        };
        let inside = request.at.0.checked_add(request.sectors).is_some_and(|end| end <= size);
        let aligned = request.at.0.is_multiple_of(block)
            && (request.sectors.is_multiple_of(block)
                || resync && request.at.0 + request.sectors == size);
        let has_data =
            matches!(request.op, HostOp::Read | HostOp::Write { .. }) || resync && !stripes;
        let filled = || u64::from(request.buf.len) == request.sectors * md::SECTOR_BYTES;
        let fits = request.sectors <= MAX_REQUEST_SECTORS && (!has_data || filled());
        if !(inside && aligned && fits) {
            return Err(RequestError::Invalid);
        }
        let own = match resync && sharding.shards() > 1 && request.sectors > 0 {
            true => {
                let map = crate::IntentMap::whole_array(geometry);
                let first = map.array_sector(request.at.0);
                let last = map.array_sector(request.at.0 + request.sectors - 1);
                sharding.own(*number, first, last.0 - first.0 + 1)
            }
            false => sharding.own(*number, request.at, request.sectors),
        };
        own.ok_or(RequestError::Invalid)
    }

    fn io_done(&mut self, now: u64, token: Token, result: Result<(), IoError>, out: &mut Effects) {
        if token.kind() == Kind::Flush {
            return self.flush_done(token, result, out);
        }
        let Shard { config, requests, health, flushes, personality, .. } = self;
        let geometry = &config.geometry;
        let (index, member) = (token.key().index, token.slot());
        match personality {
            Personality::NonParity(flat) => {
                assert!(requests.is_live(token.key()), "{token:?} belongs to no request");
                let mut cx = non_parity::Context { geometry, requests, health, out };
                match token.kind() {
                    Kind::Read => flat.read_done(&mut cx, index, member, result),
                    Kind::FlatRepair => {
                        if cx.requests[index].repair.writing {
                            flushes.note_written(member);
                        }
                        flat.repair_done(&mut cx, index, member, result);
                    }
                    Kind::FlatResync => {
                        if cx.requests[index].repair.writing {
                            flushes.note_written(member);
                        }
                        flat.resync_done(&mut cx, index, member, result);
                    }
                    _ => {
                        flushes.note_written(member);
                        flat.write_done(&mut cx, index, member, result);
                    }
                }
            }
            Personality::Parity(stripes) => {
                let written = &mut |member| flushes.note_written(member);
                if token.kind() == Kind::Read {
                    assert!(requests.is_live(token.key()), "{token:?} belongs to no request");
                    let mut cx =
                        crate::stripe::Context { now, geometry, requests, health, out, written };
                    stripes.read_done(&mut cx, index, member, result);
                } else {
                    assert!(stripes.ops.is_live(token.key()), "{token:?} belongs to nothing");
                    let mut cx =
                        crate::stripe::Context { now, geometry, requests, health, out, written };
                    stripes.io_done(&mut cx, token, result);
                }
            }
        }
    }

    fn compute_done(&mut self, now: u64, token: Token, out: &mut Effects) {
        let Shard { config, requests, health, flushes, personality, .. } = self;
        let Personality::Parity(stripes) = personality else {
            unreachable!("only levels with parity compute");
        };
        assert!(stripes.ops.is_live(token.key()), "{token:?} belongs to nothing");
        let written = &mut |member| flushes.note_written(member);
        let geometry = &config.geometry;
        let mut cx = crate::stripe::Context { now, geometry, requests, health, out, written };
        stripes.compute_done(&mut cx, token);
    }

    fn flush_done(&mut self, token: Token, result: Result<(), IoError>, out: &mut Effects) {
        let kept_error = match result {
            Ok(()) => None,
            // A lack of space or memory does not take the member out of service.
            Err(error) if error.kind.lacks().is_some() => error.kind.lacks(),
            Err(error) => {
                let (geometry, member) = (&self.config.geometry, token.slot());
                let dropped = self.health.drop_member(geometry, member, Some(error), out);
                if !dropped {
                    let member = MemberIdx(member);
                    out.list.push(Effect::Control(ControlEvent::NotDurable { member }));
                    self.doubt_all();
                }
                (!dropped).then_some(RequestError::Io)
            }
        };
        let failed = self.health.failed();
        self.flushes.flush_done(token, kept_error, failed, out, &mut self.flushed);
        self.end_flushes(out);
    }

    /// Marks all parity as out of sync. (Copies have their position, see `Health`.)
    fn doubt_all(&mut self) {
        let span = crate::intent_map::span(&self.config.geometry);
        if let Personality::Parity(stripes) = &mut self.personality {
            stripes.sync.doubt_all(span);
        }
    }

    fn end_flushes(&mut self, out: &mut Effects) {
        for (request, error) in self.flushed.drain(..) {
            if let Some(error) = error {
                self.requests.fail(request, error);
            }
            self.requests.end(request, &self.health, out);
        }
    }

    fn control(&mut self, now: u64, control: Control, out: &mut Effects) {
        match control {
            Control::FailMember(member) => {
                if usize::from(member.0) < self.config.geometry.members() {
                    self.health.drop_member(&self.config.geometry, member.0, None, out);
                }
            }
            Control::Recorded { epoch } => {
                if self.health.is_unrecordable() {
                    return;
                }
                self.health.record(epoch);
                if self.health.is_recorded() {
                    self.requests.release_held_back(None, out);
                }
            }
            Control::NotRecorded { .. } => {
                self.health.give_up_recording();
                self.requests.release_held_back(Some(RequestError::Io), out);
            }
            Control::NoSpaceToRecord => {
                self.requests.release_held_back(Some(RequestError::NoSpace), out);
            }
            Control::Granted { first_bit, bits } => self.granted(now, first_bit, bits, out),
            Control::NotGranted { first_bit, bits } => {
                self.not_granted(now, first_bit..first_bit + bits, out);
            }
            Control::ReadOnly => self.make_read_only(out),
            Control::NotDurable => self.doubt_all(),
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
            Control::InSyncBelow { position, reports } => {
                let known = self.health.set_in_sync_below(position, reports);
                if let (Personality::Parity(stripes), true) = (&mut self.personality, known) {
                    stripes.sync.resynced_below(position);
                }
            }
        }
    }

    fn granted(&mut self, now: u64, first_bit: u32, bits: u32, out: &mut Effects) {
        let mut ready = std::mem::take(&mut self.ready);
        let intents = self.intents.as_mut().expect("only who asks is granted something");
        intents.granted(now, first_bit..first_bit + bits, &mut ready);
        for index in ready.drain(..) {
            self.start(now, index, self.requests[index].stream, out);
        }
        self.ready = ready;
    }

    fn not_granted(&mut self, now: u64, bits: Range<u32>, out: &mut Effects) {
        let mut refused = std::mem::take(&mut self.ready);
        let intents = self.intents.as_mut().expect("only who asks is refused something");
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
