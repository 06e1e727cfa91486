//! Owns the course of events in a rotating drive: what the head does next, and what follows.
//!
//! ```text
//!   idle ---> reading (must: a command waits) --> reading ahead (free to leave) ---> idle
//!     \-----> writing (a slice of the cache, or a FUA write) ------------------------/
//! ```
//!
//! `decide` is called whenever the head is free and something has changed. In order: commands that
//! wait for the medium; destaging when it is urgent (taking turns with commands), or when no read
//! has come for a while; reading ahead. A stream that others wait for reads on a little first
//! (`visit_prefetch`), so that a few concurrent streams do not pay a seek per request.
//!
//! Read data cross the link while they come off the medium: the transfer is begun so that its last
//! slice leaves when the last byte has been read. A write is acknowledged when it is in the cache.
//!
//! Simplifications: a read partly in the write cache reads the medium as a whole; a discard costs
//! its command; a flush on a profile that does not drain the queue waits for later writes as well.
//!
//! Invariant: a head that a command waits for is not diverted, so a planned time stands. Called by
//! `rig`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bus::Bus;
use crate::op::{Command, Finished, NEVER, Nanos, OpKind, transfer_ns};
use crate::placement::{Layout, Placement};
use crate::port::{Port, SLICE_BYTES};
use crate::profile::{Profile, RotatingNumbers};
use crate::rotating::Surface;
use crate::rotating::head::{Head, Leg};
use crate::rotating::queue::{Cost, Pending, Queue};
use crate::rotating::read_cache::ReadCache;
use crate::rotating::shingles::Shingles;
use crate::rotating::write_cache::WriteCache;

/// Slices and commands that alternate when destaging is urgent while commands wait.
const BATCH: u32 = 4;

/// A read that begins no further ahead is taken to be of the stream under the head: a queue full of
/// 1 MiB requests.
const STREAM_AHEAD: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The controller has read the command.
    Decoded(u32),
    /// Enough of a read's data is here to begin its transfer.
    Ready(u32),
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    segment: usize,
    leg: Leg,
    /// Commands wait for all data before this address.
    must: u64,
    /// `must` has been reached: the head may leave.
    free: bool,
    /// Where this visit to the stream began.
    visit_from: u64,
    /// The address to be reached at `wake`.
    goal: u64,
    wake: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    leg: Leg,
    end: u64,
    wake: Nanos,
    /// The FUA write this is for, and where that ends; a slice of the cache otherwise.
    fua: Option<Pending>,
}

#[derive(Clone, Copy, Debug)]
enum Activity {
    Idle,
    Reading(Reading),
    Writing(Writing),
    /// To the media cache.
    Appending(Write, Nanos),
    /// A band, until a time; then comes the write that waits for room.
    Cleaning(Option<Write>, Nanos),
}

/// A write of `at..end`: the FUA write it is for, or a slice of the cache.
#[derive(Clone, Copy, Debug)]
struct Write {
    at: u64,
    end: u64,
    fua: Option<Pending>,
}

/// One rotating drive.
#[derive(Debug)]
pub(crate) struct Rotating {
    numbers: RotatingNumbers,
    overhead: Nanos,
    link: u64,
    controller_free: Nanos,
    port: Port,
    head: Head,
    activity: Activity,
    queue: Queue,
    reads: ReadCache,
    writes: WriteCache,
    last_read: Option<Nanos>,
    shingles: Option<Shingles>,
    /// When the last command was decoded, or the head became free, whichever is later.
    quiet_from: Nanos,
    /// Reads whose end lies in a later run than the one under the head.
    crossing: Vec<u32>,
    batch_destages: bool,
    batch_left: u32,
    commands: Vec<Option<Command>>,
    unused: Vec<u32>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    sequence: u64,
}

impl Rotating {
    pub fn new(
        profile: &Profile,
        numbers: &RotatingNumbers,
        placement: Placement,
        member_bytes: u64,
        spindle: u32,
    ) -> Rotating {
        let capacity = profile.capacity_bytes().max(member_bytes);
        let surface = Surface::new(numbers, capacity, spindle);
        let layout = Layout::new(placement, member_bytes, capacity);
        Rotating {
            numbers: numbers.clone(),
            overhead: profile.command_overhead(),
            link: profile.link_bytes_per_s(),
            controller_free: 0,
            port: Port::default(),
            head: Head::new(surface, layout, numbers.write_settle, numbers.position_margin),
            activity: Activity::Idle,
            queue: Queue::new(numbers.age_limit),
            reads: ReadCache::new(numbers.read_segments, numbers.segment_bytes),
            writes: WriteCache::new(numbers.write_cache_bytes, numbers.write_cache_extents),
            last_read: None,
            shingles: numbers.shingles.as_ref().map(|shingles| {
                let stretched = placement == Placement::Stretch;
                let share = if stretched { member_bytes as f64 / capacity as f64 } else { 1.0 };
                Shingles::new(shingles, share.min(1.0))
            }),
            quiet_from: 0,
            crossing: Vec::new(),
            batch_destages: false,
            batch_left: 0,
            commands: Vec::new(),
            unused: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
        }
    }

    pub fn issue(&mut self, now: Nanos, command: Command, _bus: Option<&mut Bus>) {
        let key = self.unused.pop().unwrap_or_else(|| {
            self.commands.push(None);
            self.commands.len() as u32 - 1
        });
        self.commands[key as usize] = Some(command);
        self.controller_free = self.controller_free.max(now) + self.overhead;
        self.plan(self.controller_free, Event::Decoded(key));
    }

    pub fn next(&self) -> Nanos {
        let event = self.events.peek().map_or(NEVER, |Reverse((at, ..))| *at);
        event.min(self.port.next()).min(self.head_next())
    }

    fn head_next(&self) -> Nanos {
        match &self.activity {
            Activity::Reading(reading) => reading.wake,
            Activity::Writing(writing) => writing.wake,
            Activity::Appending(_, wake) | Activity::Cleaning(_, wake) => *wake,
            Activity::Idle if self.writes.has_dirty() => self.destage_from(),
            Activity::Idle => self.clean_from(),
        }
    }

    /// Performs one event, at `next()`.
    pub fn step(&mut self, mut bus: Option<&mut Bus>, finished: &mut Vec<Finished>) {
        let now = self.next();
        if self.port.next() == now {
            if let Some(key) = self.port.step(bus.as_deref_mut()) {
                self.transferred(now, key, finished);
            }
        } else if self.events.peek().is_some_and(|Reverse((at, ..))| *at == now) {
            let Reverse((_, _, event)) = self.events.pop().expect("just seen");
            match event {
                Event::Decoded(key) => self.decoded(now, key, bus, finished),
                Event::Ready(key) => {
                    let bytes = self.command(key).op.bytes;
                    self.port.push(now, key, bytes, self.link, bus);
                }
            }
        } else {
            match self.activity {
                Activity::Reading(reading) => self.goal_reached(now, reading),
                Activity::Writing(writing) => self.written(now, writing, bus, finished),
                Activity::Appending(write, _) => self.appended(now, write, bus, finished),
                Activity::Cleaning(then, _) => self.band_cleaned(now, then),
                Activity::Idle => self.decide(now),
            }
        }
    }

    fn decoded(
        &mut self,
        now: Nanos,
        key: u32,
        bus: Option<&mut Bus>,
        finished: &mut Vec<Finished>,
    ) {
        self.quiet_from = self.quiet_from.max(now);
        let op = self.command(key).op;
        let (at, end) = (op.at_bytes, op.end());
        match op.kind {
            OpKind::Read => self.read_decoded(now, key, at, end),
            OpKind::Write { fua: true } => self.port.push(now, key, op.bytes, self.link, bus),
            OpKind::Write { fua: false } => {
                self.writes.waiters.push_back((key, at, end));
                self.admit(now, bus);
                self.decide(now);
            }
            OpKind::Flush if !self.writes.is_clean() => {
                self.writes.flushes.push(key);
                self.decide(now);
            }
            OpKind::Flush => self.finish(now, key, finished),
            OpKind::Discard => {
                self.writes.forget(at, end);
                self.finish(now, key, finished);
                self.finish_flushes(now, finished);
            }
        }
    }

    fn read_decoded(&mut self, now: Nanos, key: u32, at: u64, end: u64) {
        self.last_read = Some(now);
        if at == end || self.writes.covers(at, end) {
            self.plan(now, Event::Ready(key));
        } else if let Some(complete) = self.cached(now, at, end) {
            self.send_when(now, key, complete);
        } else {
            let position = self.head.position_of(at);
            self.queue.push(Pending { key, at, end, write: false, position, arrived: now });
        }
        self.decide(now);
    }

    /// When a read is complete that needs no decision: it is in a segment, or about to be.
    fn cached(&mut self, now: Nanos, at: u64, end: u64) -> Option<Nanos> {
        if let Activity::Reading(reading) = self.activity {
            let reached = self.reached(now, &reading);
            let segment = self.reads.segment(reading.segment);
            let held = at >= segment.start_at(reached, self.reads.segment_bytes);
            let coming = !reading.free && end <= reading.must.min(reading.leg.end);
            if held && (end <= reached || coming) {
                self.reads.note(reading.segment, at, end);
                let complete = (end > reached).then(|| self.head.passes(&reading.leg, end));
                return Some(complete.unwrap_or(now).max(now));
            }
        }
        let index = self.reads.holding(at, end)?;
        self.reads.note(index, at, end);
        Some(now)
    }

    /// Plans the transfer of a read whose last byte comes off the medium at `complete`.
    fn send_when(&mut self, now: Nanos, key: u32, complete: Nanos) {
        let early = self.command(key).op.bytes.saturating_sub(SLICE_BYTES);
        let begin = complete.saturating_sub(transfer_ns(early, self.link));
        self.plan(begin.max(now), Event::Ready(key));
    }

    /// Lets waiting writes into the cache, in order, while there is room.
    fn admit(&mut self, now: Nanos, mut bus: Option<&mut Bus>) {
        while let Some(&(key, at, end)) = self.writes.waiters.front() {
            if !self.writes.reserve(at, end) {
                break;
            }
            self.writes.waiters.pop_front();
            self.port.push(now, key, end - at, self.link, bus.as_deref_mut());
        }
    }

    fn transferred(&mut self, now: Nanos, key: u32, finished: &mut Vec<Finished>) {
        let op = self.command(key).op;
        let (at, end) = (op.at_bytes, op.end());
        match op.kind {
            OpKind::Write { fua: true } if at < end => {
                let position = self.head.position_of(at);
                self.queue.push(Pending { key, at, end, write: true, position, arrived: now });
                self.decide(now);
            }
            OpKind::Write { fua: false } => {
                self.writes.arrive(at, end);
                self.finish(now, key, finished);
                self.finish_flushes(now, finished);
                self.decide(now);
            }
            _ => self.finish(now, key, finished),
        }
    }

    /// The head has read up to its goal.
    fn goal_reached(&mut self, now: Nanos, mut reading: Reading) {
        self.reads.grow(reading.segment, reading.goal);
        self.head.leave(now, &reading.leg, reading.goal);
        if !reading.free && reading.must > reading.goal {
            // The member's addresses are contiguous here, the drive's are not.
            reading.leg = self.head.depart(now, reading.goal, false);
            self.aim(reading, reading.must);
            let mut crossing = std::mem::take(&mut self.crossing);
            crossing.retain(|&key| !self.send_from_leg(now, key, &reading.leg));
            self.crossing = crossing;
            return;
        }
        reading.free = true;
        self.activity = Activity::Reading(reading);
        self.decide(now);
    }

    /// Plans a read's transfer if its end lies in `leg`.
    fn send_from_leg(&mut self, now: Nanos, key: u32, leg: &Leg) -> bool {
        let end = self.command(key).op.end();
        if end > leg.end {
            return false;
        }
        let complete = self.head.passes(leg, end.max(leg.from)).max(now);
        self.send_when(now, key, complete);
        true
    }

    /// Reads on until `goal`, or the end of the run if that comes first.
    fn aim(&mut self, reading: Reading, goal: u64) {
        let goal = goal.min(reading.leg.end);
        let wake = self.head.passes(&reading.leg, goal);
        self.activity = Activity::Reading(Reading { goal, wake, ..reading });
    }

    /// The head has written a slice, or a run of a FUA write.
    fn written(
        &mut self,
        now: Nanos,
        writing: Writing,
        bus: Option<&mut Bus>,
        finished: &mut Vec<Finished>,
    ) {
        self.head.leave(now, &writing.leg, writing.end);
        self.activity = Activity::Idle;
        if let Some(pending) = writing.fua.filter(|pending| writing.end < pending.end) {
            self.write(now, writing.end, pending.end, Some(pending));
            return;
        }
        self.stored(now, writing.fua, bus, finished);
    }

    /// A write is on the medium: of a slice, or all of a FUA write.
    fn stored(
        &mut self,
        now: Nanos,
        fua: Option<Pending>,
        bus: Option<&mut Bus>,
        finished: &mut Vec<Finished>,
    ) {
        match fua {
            Some(pending) => {
                self.writes.forget(pending.at, pending.end);
                self.finish(now, pending.key, finished);
            }
            None => self.writes.slice_done(),
        }
        self.admit(now, bus);
        self.finish_flushes(now, finished);
        self.decide(now);
    }

    /// Gives a free head its next work.
    fn decide(&mut self, now: Nanos) {
        match self.activity {
            Activity::Writing(_) | Activity::Appending(..) | Activity::Cleaning(..) => return,
            Activity::Reading(reading) if !reading.free => return,
            Activity::Reading(_) | Activity::Idle => {}
        }
        let dirty = self.writes.has_dirty();
        let urgent = dirty && self.writes.pressed();
        while !self.queue.is_empty() {
            if urgent && self.turn_to_destage() {
                break;
            }
            if self.serve(now) {
                return;
            }
        }
        let idle = matches!(self.activity, Activity::Idle);
        if urgent || (dirty && idle && now >= self.destage_from()) {
            self.leave_stream(now);
            let head = &self.head;
            let wait = |at| head.expected(now, head.position_of(at), true);
            let (at, end) = self.writes.take_slice(head.at(), wait, |at| head.run_end(at));
            self.write(now, at, end, None);
        } else if idle && now >= self.clean_from() {
            self.clean(now, None);
        } else {
            self.read_ahead(now);
        }
    }

    fn destage_from(&self) -> Nanos {
        self.last_read.map_or(0, |read| read + self.numbers.destage_idle)
    }

    /// Commands and slices take turns, a batch each, when both are urgent.
    fn turn_to_destage(&mut self) -> bool {
        if self.batch_left == 0 {
            self.batch_destages = !self.batch_destages;
            self.batch_left = BATCH;
        }
        self.batch_left -= 1;
        self.batch_destages
    }

    /// Serves the best of the waiting commands; false if that took no head (it had become a hit).
    fn serve(&mut self, now: Nanos) -> bool {
        let stream = match self.activity {
            Activity::Reading(reading) => Some((reading, self.reached(now, &reading))),
            _ => None,
        };
        if let Some((reading, reached)) = stream {
            self.reads.grow(reading.segment, reached);
            self.head.leave(now, &reading.leg, reached);
        }
        let sated =
            stream.is_some_and(|(reading, at)| at - reading.visit_from >= self.numbers.visit_bytes);
        let chosen = self.queue.choose(now, sated, |pending| self.cost(now, stream, pending));
        let (index, cost) = chosen.expect("the queue is not empty");
        match stream {
            Some((reading, reached)) if cost.continues => {
                let pending = self.queue.remove(index);
                self.follow(now, reading, reached, pending)
            }
            Some((reading, reached)) if self.stays(now, &reading, reached) => true,
            _ => {
                let pending = self.queue.remove(index);
                self.activity = Activity::Idle;
                if pending.write {
                    self.write(now, pending.at, pending.end, Some(pending));
                    return true;
                }
                self.read(now, pending)
            }
        }
    }

    /// What it takes to bring the head to a waiting command.
    fn cost(&self, now: Nanos, stream: Option<(Reading, u64)>, pending: &Pending) -> Cost {
        let mut same_stream = false;
        if let Some((reading, reached)) = stream.filter(|_| !pending.write) {
            let segment = self.reads.segment(reading.segment);
            let start = segment.start_at(reached, self.reads.segment_bytes);
            same_stream = (start..reached + STREAM_AHEAD).contains(&pending.at);
            if same_stream && pending.at < reading.leg.end && reached < reading.leg.end {
                let ahead = pending.at.max(reading.leg.from);
                let wait = self.head.passes(&reading.leg, ahead).saturating_sub(now);
                if wait <= self.numbers.revolution {
                    return Cost { wait, continues: true, same_stream };
                }
            }
        }
        let wait = self.head.expected(now, pending.position, pending.write);
        Cost { wait, continues: false, same_stream }
    }

    /// Continues reading the same stream for `pending`; false if that has been read already.
    fn follow(&mut self, now: Nanos, mut reading: Reading, reached: u64, pending: Pending) -> bool {
        self.reads.note(reading.segment, pending.at, pending.end);
        if pending.end <= reached {
            self.plan(now, Event::Ready(pending.key));
            return false;
        }
        if !self.send_from_leg(now, pending.key, &reading.leg) {
            self.crossing.push(pending.key);
        }
        reading.must = pending.end;
        reading.free = false;
        self.aim(reading, pending.end);
        true
    }

    /// How far the head has read; at its goal, exactly the goal.
    fn reached(&self, now: Nanos, reading: &Reading) -> u64 {
        if now >= reading.wake { reading.goal } else { self.head.reached(&reading.leg, now) }
    }

    /// A stream that others wait for reads on a little. True if it does so now.
    fn stays(&mut self, now: Nanos, reading: &Reading, reached: u64) -> bool {
        let segment = self.reads.segment(reading.segment);
        if !segment.is_stream() || self.queue.is_overdue(now) {
            return false;
        }
        let goal = (reading.must + self.numbers.visit_prefetch_bytes)
            .min(reading.visit_from + self.numbers.visit_bytes)
            .min(segment.host_end + self.reads.segment_bytes)
            .min(reading.leg.end);
        if reached >= goal {
            return false;
        }
        self.aim(*reading, goal);
        true
    }

    /// Sends an idle head to read for `pending`; false if a segment has it by now.
    fn read(&mut self, now: Nanos, pending: Pending) -> bool {
        let (segment, from) = self.reads.open(pending.at);
        self.reads.note(segment, pending.at, pending.end);
        if pending.end <= from {
            self.plan(now, Event::Ready(pending.key));
            return false;
        }
        let leg = self.head.depart(now, from, false);
        if !self.send_from_leg(now, pending.key, &leg) {
            self.crossing.push(pending.key);
        }
        self.start_reading(segment, leg, pending.end);
        true
    }

    fn start_reading(&mut self, segment: usize, leg: Leg, must: u64) {
        let reading = Reading {
            segment,
            leg,
            must,
            free: false,
            visit_from: leg.from,
            goal: leg.from,
            wake: leg.from_at,
        };
        self.aim(reading, must);
    }

    /// Sends a free head to write; one contiguous run at a time.
    fn write(&mut self, now: Nanos, at: u64, end: u64, fua: Option<Pending>) {
        if self.append(now, Write { at, end, fua }) {
            return;
        }
        let leg = self.head.depart(now, at, true);
        let end = end.min(leg.end);
        let wake = self.head.passes(&leg, end);
        self.activity = Activity::Writing(Writing { leg, end, wake, fua });
    }

    /// Begins to write to the media cache, after cleaning if that is full; false if the write is
    /// done in place.
    fn append(&mut self, now: Nanos, write: Write) -> bool {
        let (Some(shingles), Some(numbers)) = (&mut self.shingles, &self.numbers.shingles) else {
            return false;
        };
        let (at, bytes) = (self.head.on_drive(write.at), write.end - write.at);
        let end = write.end.min(self.head.run_end(write.at));
        if shingles.in_place(at, at + (end - write.at)) {
            return false;
        }
        if !shingles.fits(bytes) {
            self.clean(now, Some(write));
            return true;
        }
        shingles.append(at, bytes);
        let wake = now + numbers.append + self.head.passage(0, bytes);
        self.activity = Activity::Appending(write, wake);
        true
    }

    fn appended(
        &mut self,
        now: Nanos,
        write: Write,
        bus: Option<&mut Bus>,
        finished: &mut Vec<Finished>,
    ) {
        self.head.park(0);
        self.activity = Activity::Idle;
        self.stored(now, write.fua, bus, finished);
    }

    /// When the oldest band is cleaned, if nothing else is to be done until then.
    fn clean_from(&self) -> Nanos {
        match (&self.shingles, &self.numbers.shingles) {
            (Some(shingles), Some(numbers)) if !shingles.is_clean() => {
                self.quiet_from + numbers.clean_idle
            }
            _ => NEVER,
        }
    }

    /// Cleans the oldest band, for `then` or because nothing else is to be done.
    fn clean(&mut self, now: Nanos, then: Option<Write>) {
        let oldest = self.shingles.as_ref().and_then(Shingles::oldest);
        let (from, to) = oldest.expect("the media cache is not empty");
        let positioning = self.numbers.seek_average + self.numbers.revolution / 2;
        let wake = now + 2 * (self.head.passage(from, to) + positioning);
        self.activity = Activity::Cleaning(then, wake);
    }

    fn band_cleaned(&mut self, now: Nanos, then: Option<Write>) {
        let shingles = self.shingles.as_mut().expect("a shingled disk cleans");
        let end = shingles.oldest().map_or(0, |(_, to)| to);
        shingles.cleaned();
        self.head.park(end);
        self.activity = Activity::Idle;
        match then {
            Some(write) => self.write(now, write.at, write.end, write.fua),
            None => self.decide(now),
        }
    }

    /// Nothing else to do: read ahead in the stream under the head, or go back to the last stream
    /// when the host has used half of what was read ahead.
    fn read_ahead(&mut self, now: Nanos) {
        let segment_bytes = self.reads.segment_bytes;
        if let Activity::Reading(reading) = self.activity {
            let reached = self.reached(now, &reading);
            let stop = self.reads.segment(reading.segment).host_end + segment_bytes;
            if reached < stop.min(reading.leg.end) {
                self.aim(reading, stop);
                return;
            }
            self.leave_stream(now);
            if self.writes.has_dirty() && now >= self.destage_from() {
                self.decide(now);
                return;
            }
        }
        let Some(index) = self.reads.last_stream() else { return };
        let (end, host_end) = (self.reads.segment(index).end, self.reads.segment(index).host_end);
        if end < host_end + segment_bytes / 2 && end < self.head.member() {
            let leg = self.head.depart(now, end, false);
            self.start_reading(index, leg, end);
        }
    }

    /// Parks the head of a stream that no command waits for.
    fn leave_stream(&mut self, now: Nanos) {
        if let Activity::Reading(reading) = self.activity {
            let reached = self.reached(now, &reading);
            self.reads.grow(reading.segment, reached);
            self.head.leave(now, &reading.leg, reached);
            self.activity = Activity::Idle;
            self.quiet_from = self.quiet_from.max(now);
        }
    }

    fn finish_flushes(&mut self, now: Nanos, finished: &mut Vec<Finished>) {
        while self.writes.is_clean() {
            let Some(key) = self.writes.flushes.pop() else { break };
            self.finish(now, key, finished);
        }
    }

    fn finish(&mut self, now: Nanos, key: u32, finished: &mut Vec<Finished>) {
        let command = self.commands[key as usize].take().expect("a command ends once");
        self.unused.push(key);
        finished.push(Finished { command, at: now });
    }

    fn command(&self, key: u32) -> &Command {
        self.commands[key as usize].as_ref().expect("keys are of commands inside")
    }

    fn plan(&mut self, at: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }
}
