//! One shard of an array: takes a batch of inputs, answers with a batch of effects.
//!
//! Invariant: everything that is admitted completes exactly once, in bounded memory. The caller
//! keeps within [`Shard::room`]; what it cannot admit it keeps, so that the front is pushed back.
//!
//! A shard owns a part of the array's address space alone and shares nothing; today there is one,
//! which owns all of it.

use md::{Geometry, Kind as GeometryKind};

use crate::flat::{self, Flat};
use crate::flush::{Ended, Flushes};
use crate::health::Health;
use crate::requests::Requests;
use crate::stream::Streams;
use crate::stripe::Stripes;
use crate::token::Kind;
use crate::{
    ConfigError, Control, Effects, HostOp, Input, MAX_MEMBERS, MAX_REQUEST_SECTORS, MemberError,
    MemberSet, Request, RequestError, ShardConfig, Token,
};

/// What a shard is doing, for people and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Members out of service.
    pub failed: MemberSet,
    /// Configuration epoch: how many members have failed since the start.
    pub epoch: u64,
    /// Requests in the shard.
    pub requests: usize,
    /// Stripe operations at work or waiting for memory.
    pub stripe_operations: usize,
    /// Stripe memory that is free, in bytes (what is only cached counts as used).
    pub stripe_memory_free: u64,
}

#[allow(clippy::large_enum_variant, reason = "there is one per shard")]
enum Way {
    Flat(Flat),
    Stripe(Stripes),
}

/// A shard. See the crate's documentation for its place.
pub struct Shard {
    config: ShardConfig,
    requests: Requests,
    health: Health,
    streams: Streams,
    flushes: Flushes,
    flushed: Vec<Ended>,
    way: Way,
}

impl Shard {
    /// Sets a shard up.
    ///
    /// # Errors
    /// When the configuration cannot work; the error names the value.
    pub fn new(config: ShardConfig) -> Result<Shard, ConfigError> {
        let members = config.geometry.members();
        if members > MAX_MEMBERS {
            return Err(ConfigError::TooManyMembers { given: members });
        }
        let block = config.logical_block;
        if !block.is_power_of_two() || !(512..=4096).contains(&block) {
            return Err(ConfigError::LogicalBlock { given: block });
        }
        if !config.geometry.enough(|member| !config.missing.contains(member.0)) {
            return Err(ConfigError::TooFewMembers { missing: config.missing.len() });
        }
        let way = if matches!(config.geometry.kind(), GeometryKind::Parity(_)) {
            let least = ShardConfig::least_stripe_cache_bytes(&config.geometry);
            let given = config.stripe_cache_bytes;
            if given < least {
                return Err(ConfigError::StripeCacheTooSmall { given, least });
            }
            Way::Stripe(Stripes::new(&config))
        } else {
            Way::Flat(Flat::new(&config.geometry, config.discard_zeroes))
        };
        Ok(Shard {
            requests: Requests::with_capacity(config.max_requests),
            health: Health::new(config.missing),
            streams: Streams::default(),
            flushes: Flushes::default(),
            flushed: Vec::new(),
            way,
            config,
        })
    }

    /// How many more requests may be put into the next batch.
    pub fn room(&self) -> usize {
        self.config.max_requests - self.requests.live()
    }

    /// The array that the shard serves.
    pub fn geometry(&self) -> &Geometry {
        &self.config.geometry
    }

    /// What it is doing.
    pub fn status(&self) -> Status {
        let (operations, free) = match &self.way {
            Way::Flat(_) => (0, 0),
            Way::Stripe(stripes) => (stripes.operations(), stripes.free_bytes()),
        };
        Status {
            failed: self.health.failed(),
            epoch: self.health.epoch(),
            requests: self.requests.live(),
            stripe_operations: operations,
            stripe_memory_free: free,
        }
    }

    /// Takes a batch of inputs at time `now` (nanoseconds of any steady clock) and adds what is to
    /// be done to `out`. `inputs` is left empty.
    ///
    /// # Panics
    /// When more requests come in than there is [`room`](Shard::room) for, or a completion that
    /// belongs to nothing: both are bugs of the executor.
    pub fn handle(&mut self, now: u64, inputs: &mut Vec<Input>, out: &mut Effects) {
        let mut timer = false;
        for input in inputs.drain(..) {
            match input {
                Input::Request(request) => self.request(now, &request, out),
                Input::IoDone { token, result } => self.io_done(now, token, result, out),
                Input::ComputeDone { token } => self.compute_done(now, token, out),
                Input::Timer => timer = true,
                Input::Control(control) => self.control(control, out),
            }
        }
        let Shard { config, requests, health, flushes, way, .. } = self;
        if let Way::Stripe(stripes) = way {
            let written = &mut |member| flushes.note_written(member);
            let geometry = &config.geometry;
            let mut cx = crate::stripe::Context { now, geometry, requests, health, out, written };
            stripes.settle(&mut cx, timer);
        }
    }

    fn request(&mut self, now: u64, request: &Request, out: &mut Effects) {
        assert!(self.room() > 0, "more requests than `room` allows");
        if let Err(error) = self.check(request) {
            return out.complete(request.tag, Err(error));
        }
        let index = self.requests.admit(request).index;
        if request.op == HostOp::Flush {
            let failed = self.health.failed();
            self.flushes.ask(index, failed, out, &mut self.flushed);
            return self.end_flushes(out);
        }
        if request.sectors == 0 {
            return self.requests.end(index, &self.health, out);
        }
        let seen = self.streams.observe(request.at, request.sectors);
        let Shard { config, requests, health, flushes, way, streams, .. } = self;
        let geometry = &config.geometry;
        match way {
            Way::Flat(flat) => {
                let mut cx = flat::Context { geometry, requests, health, out };
                match request.op {
                    HostOp::Read => {
                        if let Some(copy) = flat.read(&mut cx, index, seen) {
                            streams.stay_on(seen, copy);
                        }
                    }
                    _ => flat.lock(&mut cx, index),
                }
            }
            Way::Stripe(stripes) => {
                let written = &mut |member| flushes.note_written(member);
                let mut cx =
                    crate::stripe::Context { now, geometry, requests, health, out, written };
                match request.op {
                    HostOp::Read => stripes.read(&mut cx, index, seen.is_stream()),
                    _ => stripes.write(&mut cx, index, seen.is_stream()),
                }
            }
        }
    }

    fn check(&self, request: &Request) -> Result<(), RequestError> {
        if request.op == HostOp::Flush {
            return Ok(());
        }
        let block = u64::from(self.config.logical_block) / md::SECTOR_BYTES;
        let size = self.config.geometry.array_sectors();
        let inside = request.at.0.checked_add(request.sectors).is_some_and(|end| end <= size);
        let aligned = request.at.0.is_multiple_of(block) && request.sectors.is_multiple_of(block);
        let has_data = matches!(request.op, HostOp::Read | HostOp::Write { .. });
        let filled = || u64::from(request.buf.len) == request.sectors * md::SECTOR_BYTES;
        let fits = request.sectors <= MAX_REQUEST_SECTORS && (!has_data || filled());
        if inside && aligned && fits { Ok(()) } else { Err(RequestError::Invalid) }
    }

    fn io_done(
        &mut self,
        now: u64,
        token: Token,
        result: Result<(), MemberError>,
        out: &mut Effects,
    ) {
        if token.kind() == Kind::Flush {
            return self.flush_done(token, result, out);
        }
        let Shard { config, requests, health, flushes, way, .. } = self;
        let geometry = &config.geometry;
        let (index, member) = (token.key().index, token.slot());
        match way {
            Way::Flat(flat) => {
                assert!(requests.is_live(token.key()), "{token:?} belongs to no request");
                let mut cx = flat::Context { geometry, requests, health, out };
                match token.kind() {
                    Kind::Read => flat.read_done(&mut cx, index, member, result),
                    Kind::FlatRepair => {
                        if cx.requests[index].repair.writing {
                            flushes.note_written(member);
                        }
                        flat.repair_done(&mut cx, index, member, result);
                    }
                    _ => {
                        flushes.note_written(member);
                        flat.write_done(&mut cx, index, member, result);
                    }
                }
            }
            Way::Stripe(stripes) => {
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
        let Shard { config, requests, health, flushes, way, .. } = self;
        let Way::Stripe(stripes) = way else {
            unreachable!("only levels with parity compute");
        };
        assert!(stripes.ops.is_live(token.key()), "{token:?} belongs to nothing");
        let written = &mut |member| flushes.note_written(member);
        let geometry = &config.geometry;
        let mut cx = crate::stripe::Context { now, geometry, requests, health, out, written };
        stripes.compute_done(&mut cx, token);
    }

    fn flush_done(&mut self, token: Token, result: Result<(), MemberError>, out: &mut Effects) {
        let kept_error = match result {
            Ok(()) => None,
            // A full backing store costs nobody his place.
            Err(MemberError::NoSpace) => Some(RequestError::NoSpace),
            Err(error) => {
                let (geometry, member) = (&self.config.geometry, token.slot());
                let dropped = self.health.drop_member(geometry, member, Some(error), out);
                (!dropped).then_some(RequestError::Io)
            }
        };
        let failed = self.health.failed();
        self.flushes.flush_done(token, kept_error, failed, out, &mut self.flushed);
        self.end_flushes(out);
    }

    fn end_flushes(&mut self, out: &mut Effects) {
        for (request, error) in self.flushed.drain(..) {
            if let Some(error) = error {
                self.requests.fail(request, error);
            }
            self.requests.end(request, &self.health, out);
        }
    }

    fn control(&mut self, control: Control, out: &mut Effects) {
        match control {
            Control::FailMember(member) => {
                if usize::from(member.0) < self.config.geometry.members() {
                    self.health.drop_member(&self.config.geometry, member.0, None, out);
                }
            }
            Control::Recorded { epoch } => {
                self.health.record(epoch);
                if self.health.is_recorded() {
                    self.requests.release_held_back(out);
                }
            }
        }
    }
}
