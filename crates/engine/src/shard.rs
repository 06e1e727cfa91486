//! One shard of an array: takes a batch of inputs, returns a batch of effects.
//!
//! Invariant: every admitted request completes exactly once, when all of its parts have completed,
//! and a write or a flush only when every member failure so far is recorded; in bounded memory. The
//! caller keeps within [`Shard::room`] and queues the rest, which is the back-pressure on
//! frontends.
//!
//! A shard is the only owner of its part of the array's address space (`sharding`) and shares no
//! state. Shards interact only through control messages: shard 0 collects the written members of
//! the others when it flushes, and a member that one drops is dropped by all (`metadata` manager,
//! or `failure_coordinator` for arrays without metadata).

mod balance;
mod coalesce;
mod control;
mod flush;
mod health;
mod in_sync;
mod intent;
mod non_parity;
mod places;
mod quarantine;
mod range_lock;
mod requests;
mod stream;
mod stripe;

use md::{Geometry, Kind as GeometryKind, MemberIdx, Sector};

use self::flush::{Ended, Flushes};
use self::health::Health;
use self::intent::Intents;
use self::non_parity::NonParity;
use self::places::{Half, Places};
use self::quarantine::Quarantine;
pub(crate) use self::requests::{Repair, Requests};
use self::stream::{Seen, Streams};
use self::stripe::{OpKind, Stripes};
use crate::token::Kind;
use crate::{
    ConfigError, Effect, Effects, HostOp, Input, IoError, MAX_MEMBERS, MemberSet, Request,
    RequestError, ScrubMode, ShardConfig, Token, Verdict,
};

/// Status of a shard, for monitoring and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Members out of service.
    pub failed: MemberSet,
    /// Members that are not in sync everywhere: those out of service, and those being rebuilt.
    pub lacking: MemberSet,
    /// Everything is in sync below this position of a resync; `u64::MAX`: everywhere.
    pub in_sync_below: u64,
    /// Members that are being replaced.
    pub replacing: MemberSet,
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
    /// Operations of members that are late; see [`Input::Late`].
    pub late_operations: usize,
}

#[allow(clippy::large_enum_variant, reason = "there is one per shard")]
enum Personality {
    NonParity(NonParity),
    Parity(Stripes),
}

/// What the implementations of the levels work on during one call: the shard's state besides
/// theirs, and its effects.
struct Context<'a> {
    now: u64,
    geometry: &'a Geometry,
    requests: &'a mut Requests,
    health: &'a mut Health,
    flushes: &'a mut Flushes,
    out: &'a mut Effects,
}

/// A shard; see the crate documentation.
pub struct Shard {
    config: ShardConfig,
    requests: Requests,
    health: Health,
    places: Places,
    streams: Streams,
    flushes: Flushes,
    flushed: Vec<Ended>,
    intents: Option<Intents>,
    quarantine: Quarantine,
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
        let lacks = |member: MemberIdx| {
            let mut rebuilding = config.rebuilding.iter();
            config.missing.contains(member.0) || rebuilding.any(|(other, _)| *other == member)
        };
        if !config.geometry.enough(|member| !lacks(member)) {
            let missing = (0..members as u16).filter(|member| lacks(MemberIdx(*member)));
            return Err(ConfigError::TooFewMembers { missing: missing.count() });
        }
        let personality = if matches!(config.geometry.kind(), GeometryKind::Parity(_)) {
            let least = ShardConfig::least_stripe_cache_bytes(&config.geometry);
            let given = config.stripe_cache_bytes;
            if given < least {
                return Err(ConfigError::StripeCacheTooSmall { given, least });
            }
            if config.partial_parity_log.is_some_and(|area| !may_log(&config, area)) {
                return Err(ConfigError::PartialParityLog);
            }
            Personality::Parity(Stripes::new(&config))
        } else {
            Personality::NonParity(NonParity::new(&config))
        };
        if !config.replacing.is_empty() && 2 * members > MAX_MEMBERS {
            return Err(ConfigError::TooManyMembers { given: 2 * members });
        }
        let mut health = Health::new(config.missing, members as u16, config.in_sync_below);
        let block = u64::from(block) / md::SECTOR_BYTES;
        for (member, out_of_sync) in &config.rebuilding {
            health.begin_rebuild(member.0, out_of_sync, block);
        }
        for (member, lacks) in &config.replacing {
            health.begin_replacement(member.0, lacks, block);
        }
        let mut requests = Requests::with_capacity(config.max_requests);
        requests.has_log =
            matches!(&personality, Personality::Parity(stripes) if stripes.log.is_some());
        Ok(Shard {
            requests,
            health,
            places: Places::new(),
            streams: Streams::default(),
            flushes: Flushes::with_others(others),
            flushed: Vec::new(),
            quarantine: Quarantine::default(),
            intents: config.intents.map(|map| Intents::new(map, config.safe_mode_nanos)),
            ready: Vec::new(),
            timer: None,
            personality,
            config,
        })
    }

    /// The level's implementation, and what it works on.
    fn split<'a>(
        &'a mut self,
        now: u64,
        out: &'a mut Effects,
    ) -> (&'a mut Personality, Context<'a>) {
        let Shard { config, requests, health, flushes, personality, .. } = self;
        let geometry = &config.geometry;
        (personality, Context { now, geometry, requests, health, flushes, out })
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

    /// Whether stripe work waited for memory, or gave up what was cached, and more of the stripe
    /// memory would help: [`Shard::grow_stripe_memory`].
    pub fn is_short_of_stripe_memory(&self) -> bool {
        matches!(&self.personality, Personality::Parity(stripes) if stripes.scratch.is_short())
    }

    /// From now on the first `bytes` of the stripe memory may be used; it never shrinks.
    pub fn grow_stripe_memory(&mut self, bytes: u64) {
        if let Personality::Parity(stripes) = &mut self.personality {
            stripes.scratch.grow(bytes);
        }
    }

    /// The array that the shard serves.
    pub fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    /// [`ShardConfig::discard_zeroes`].
    pub fn discards_leave_zeroes(&self) -> bool {
        self.config.discard_zeroes
    }

    /// The shard's status.
    pub fn status(&self) -> Status {
        let (operations, free) = match &self.personality {
            Personality::NonParity(_) => (0, 0),
            Personality::Parity(stripes) => (stripes.operations(), stripes.free_bytes()),
        };
        Status {
            failed: self.health.failed(),
            lacking: self.health.lacking(),
            in_sync_below: self.health.in_sync_below(),
            replacing: self.health.replacing(),
            epoch: self.health.epoch(),
            requests: self.requests.live(),
            waiting_for_intents: self.intents.as_ref().map_or(0, Intents::parked),
            stripe_operations: operations,
            stripe_memory_free: free,
            late_operations: self.quarantine.len(),
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
        let (first, epoch) = (out.list.len(), self.health.epoch());
        let mut placed = first;
        for input in inputs.drain(..) {
            match input {
                Input::Request(request) => self.request(now, &request, out),
                Input::IoDone { token, result } => self.member_done(now, token, result, out),
                Input::Late { token, result } => self.late(now, token, result, out),
                Input::Released { token, result } => self.released(now, token, result, out),
                Input::ComputeDone { token } => self.compute_done(now, token, out),
                Input::Checked { token, verdict } => self.checked(now, token, verdict, out),
                Input::Timer => timer = true,
                Input::Control(control) => self.control(now, control, out),
            }
            placed = self.place(placed, out);
        }
        let mut plugged = self.plan_batch(now, timer, out);
        self.flush_for_fua(out);
        placed = self.place(placed, out);
        while let Some(so_far) = self.refuse_silent(now, first, out) {
            plugged = self.plan_batch(now, false, out);
            self.flush_for_fua(out);
            placed = self.place(so_far, out);
        }
        self.abandon_failed(now, epoch, first, out);
        if timer {
            self.timer = None;
        }
        let deadline = plugged.into_iter().chain(self.run_intent_timers(now, out)).min();
        if deadline.is_some() && deadline != self.timer {
            self.timer = deadline;
            out.list.extend(deadline.map(|at| Effect::SetTimer { at }));
        }
        self.place(placed, out);
    }

    /// Sends the effects from `first` on to their places; returns how many there are.
    #[inline]
    fn place(&mut self, first: usize, out: &mut Effects) -> usize {
        if self.health.has_places() {
            self.places.place(&self.health, first, out);
        }
        out.list.len()
    }

    /// The operation of a level that an effect's operation belongs to: for executors that relate
    /// what one of them reads, computes and writes.
    pub fn origin(&self, token: Token) -> Token {
        self.places.origin(token)
    }

    /// The place of a slot's member.
    pub fn place_of(&self, slot: MemberIdx) -> MemberIdx {
        MemberIdx(self.health.place(slot.0))
    }

    /// The place of what replaces a slot's member, whether there is anything.
    pub fn place_of_replacement(&self, slot: MemberIdx) -> MemberIdx {
        MemberIdx(self.health.second_place(slot.0))
    }

    /// The slot of a place.
    pub fn slot_of(&self, place: MemberIdx) -> MemberIdx {
        MemberIdx(self.health.slot_of(place.0))
    }

    /// Whether the device at a place is in service: the slot's member, or what replaces it.
    pub fn is_in_service(&self, place: MemberIdx) -> bool {
        self.health.is_in_service(place.0)
    }

    /// The operation of a member has completed: perhaps that of a level.
    fn member_done(
        &mut self,
        now: u64,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) {
        if token.kind() != Kind::Placed && result.is_ok() {
            return self.io_done(now, token, result, out);
        }
        self.ended(now, token, Half { result, is_late: false }, out);
    }

    /// The operation of a member has ended for the array.
    fn ended(&mut self, now: u64, token: Token, half: Half, out: &mut Effects) {
        if token.kind() != Kind::Placed {
            // What was in flight when a slot got its second place went to the first.
            let is_of_former = self.health.has_places() && half.result.is_err() && {
                let slot = self.slot_of_operation(token);
                self.health.is_placed(slot) && self.health.place(slot) != slot
            };
            let half = match is_of_former {
                true => Half { result: half.result.or_else(places::of_former), ..half },
                false => half,
            };
            return self.level_done(now, token, half, out);
        }
        let Shard { health, config, places, .. } = self;
        if let Some(ended) = places.done(health, &config.geometry, token, half, out) {
            self.level_done(now, ended.token, ended.half, out);
            Places::processed(&mut self.health, &ended, out);
        }
    }

    fn level_done(&mut self, now: u64, token: Token, half: Half, out: &mut Effects) {
        match (token.kind(), half) {
            (Kind::Flush, Half { result: Err(error), is_late: true }) => {
                self.flush_timed_out(token, error, out);
            }
            (_, Half { result, .. }) => self.io_done(now, token, result, out),
        }
    }

    /// Begins what the batch has brought; returns the next deadline.
    fn plan_batch(&mut self, now: u64, timer: bool, out: &mut Effects) -> Option<u64> {
        match self.split(now, out) {
            (Personality::Parity(stripes), mut cx) => stripes.plan_batch(&mut cx, timer),
            (Personality::NonParity(_), _) => None,
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
        let writes =
            !matches!(request.op, HostOp::Read | HostOp::Flush | HostOp::Scrub(ScrubMode::Check));
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
        if matches!(op, HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_)) {
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
        let (personality, mut cx) = self.split(now, out);
        let copy = match personality {
            Personality::NonParity(non_parity) => non_parity.read(&mut cx, index, seen),
            Personality::Parity(stripes) => {
                stripes.read(&mut cx, index, seen.is_stream());
                None
            }
        };
        if let Some(copy) = copy {
            self.streams.stay_on(seen, copy);
        }
    }

    /// Starts requests that lock their range: writes that have their intents, resyncs and scrubs.
    fn start(&mut self, now: u64, index: u32, stream: bool, out: &mut Effects) {
        let op = self.requests[index].op;
        match (self.split(now, out), op) {
            ((Personality::NonParity(non_parity), mut cx), _) => non_parity.lock(&mut cx, index),
            ((Personality::Parity(stripes), mut cx), Some(HostOp::Resync)) => {
                stripes.each_row(&mut cx, index, OpKind::Resync);
            }
            ((Personality::Parity(stripes), mut cx), Some(HostOp::Rebuild)) => {
                stripes.each_row(&mut cx, index, OpKind::Rebuild);
            }
            ((Personality::Parity(stripes), mut cx), Some(HostOp::Scrub(mode))) => {
                stripes.each_row(&mut cx, index, OpKind::Scrub(mode));
            }
            ((Personality::Parity(stripes), mut cx), _) => stripes.write(&mut cx, index, stream),
        }
    }

    /// Validates a request and returns its position in the shard's own part.
    fn check(&self, request: &Request) -> Result<Sector, RequestError> {
        let ShardConfig { geometry, sharding, number, .. } = &self.config;
        if request.op == HostOp::Flush {
            return if *number == 0 { Ok(Sector(0)) } else { Err(RequestError::Invalid) };
        }
        let copies = match (request.op, geometry.kind()) {
            (HostOp::Scrub(_), GeometryKind::Mirrored(mirrored)) => mirrored.copies() as u64,
            _ => 1,
        };
        let resync = matches!(request.op, HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_));
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
        let filled = || u64::from(request.buf.len) == copies * request.sectors * md::SECTOR_BYTES;
        let fits = request.sectors <= request.op.max_sectors() && (!has_data || filled());
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
        if matches!(token.kind(), Kind::Log | Kind::LogFlush) {
            return self.log_io_done(now, token, result, out);
        }
        let (index, member) = (token.key().index, token.slot());
        match self.split(now, out) {
            (Personality::NonParity(non_parity), mut cx) => {
                assert!(cx.requests.is_live(token.key()), "{token:?} belongs to no request");
                non_parity.io_done(&mut cx, token, result);
            }
            (Personality::Parity(stripes), mut cx) if token.kind() == Kind::Read => {
                assert!(cx.requests.is_live(token.key()), "{token:?} belongs to no request");
                stripes.read_done(&mut cx, index, member, result);
            }
            (Personality::Parity(stripes), mut cx) if token.kind() == Kind::RowsZero => {
                stripes.rows_zeroed(&mut cx, token, result);
            }
            (Personality::Parity(stripes), mut cx) => {
                assert!(stripes.ops.is_live(token.key()), "{token:?} belongs to nothing");
                stripes.io_done(&mut cx, token, result);
            }
        }
    }

    fn log_io_done(
        &mut self,
        now: u64,
        token: Token,
        result: Result<(), IoError>,
        out: &mut Effects,
    ) {
        let (Personality::Parity(stripes), mut cx) = self.split(now, out) else {
            unreachable!("only levels with parity have a log");
        };
        match token.kind() {
            Kind::Log => stripes.log_written(&mut cx, token.slot(), result),
            _ => stripes.log_flushed(&mut cx, token.slot(), result),
        }
    }

    fn compute_done(&mut self, now: u64, token: Token, out: &mut Effects) {
        let (Personality::Parity(stripes), mut cx) = self.split(now, out) else {
            unreachable!("only levels with parity compute");
        };
        assert!(stripes.ops.is_live(token.key()), "{token:?} belongs to nothing");
        stripes.compute_done(&mut cx, token);
    }

    fn checked(&mut self, now: u64, token: Token, verdict: Verdict, out: &mut Effects) {
        match self.split(now, out) {
            (Personality::NonParity(non_parity), mut cx) => {
                assert!(cx.requests.is_live(token.key()), "{token:?} belongs to no request");
                non_parity.compared(&mut cx, token, verdict);
            }
            (Personality::Parity(stripes), mut cx) => {
                assert!(stripes.ops.is_live(token.key()), "{token:?} belongs to nothing");
                stripes.checked(&mut cx, token, verdict);
            }
        }
    }
}

/// Whether the writes of an array can be logged in areas of this size. The log of a device counts
/// while it has its slot, so none takes the slot of another.
fn may_log(config: &ShardConfig, area_sectors: u64) -> bool {
    let span = crate::MAX_SPAN_SECTORS.min(config.geometry.chunk_sectors());
    let fits = md::ondisk::ppl::place_log(area_sectors, false, 0, span).is_some();
    let is_alone = config.sharding.shards() == 1 && config.replacing.is_empty();
    config.geometry.level() == md::Level::Raid5 && is_alone && fits
}
