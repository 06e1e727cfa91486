//! Requests of a session, from the socket to the store, and replies back.
//!
//! ```text
//!  input --- header ---> check ---> running[slot] --- parts, each with a buffer ---> Port
//!        --- payload --> buffer                       by their numbers               |
//!  outbox <---------------- reply, or a chunk of it <------------------ completions <--+
//! ```
//! *Invariant*: all is done on the connection's thread, which waits only in `sleep` (and where
//! `Port` says). A request that cannot get a buffer stops the reading of further ones, so that
//! what a connection holds is bounded by its share; one buffer is enough for any request.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::{ArrayError, Lease};
use nbd::server::{ALLOCATION_CONTEXT_ID, Session};
use nbd::wire::allocation;
use nbd::{Errno, Extent, Head, Limits, Operation, ReplyTo, Request, Style, Violation};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::BorrowedFd;
use slab::Slab;
use thiserror::Error;

use super::completions::{Completion, Completions, Ending, Got};
use super::input::{Input, Received};
use super::outbox::{Body, Outbox};
use super::serving::{Served, Serving};
use super::shares::Share;
use crate::access::{Data, Port};
use crate::store::{self, StoreExtent};

/// A payload up to this length is received as a whole before it gets a buffer.
const SMALL_BYTES: usize = 64 << 10;
/// After a long payload, this much is received behind it: the next request, and little of its
/// payload, which would be copied.
const NARROW_WINDOW: usize = 512;
/// Parts of reads from this length on may be sent from where they are; the store copies shorter
/// ones, which costs less.
const IN_PLACE_BYTES: usize = 32 << 10;
/// TRIM and WRITE_ZEROES are done in pieces of this length, so that others come in between.
const PIECE_BYTES: u64 = 64 << 20;
/// How soon a buffer is looked for again that another front has taken.
const RETRY: Duration = Duration::from_millis(2);
/// How soon it is looked again whether another connection needs what a stalled one holds.
const LOOK: Duration = Duration::from_secs(1);

/// Why a client was given up.
#[derive(Debug, Error)]
pub(super) enum Lost {
    #[error("it broke the protocol: {0}")]
    Violation(#[from] Violation),
    #[error("it left in the middle of a request")]
    Half,
    #[error("it did not continue a request, or did not read its replies, and others waited")]
    Stalled,
    #[error("it sent a request with a payload that is too long to be thrown away")]
    Flood,
    #[error("the server stopped before it was done")]
    Stopped,
    #[error(transparent)]
    Socket(#[from] io::Error),
}

/// A request that was accepted and has not been answered.
struct Running {
    to: ReplyTo,
    work: Work,
    /// Parts that the store has.
    parts: u32,
    failure: Option<ArrayError>,
}

/// A part of a request that the store has.
struct Part {
    /// The request's place.
    slot: u32,
    offset: u64,
    /// Length of a read in bytes.
    len: usize,
}

enum Work {
    /// From `next` to `end`, parts are to be read; each is answered by itself.
    Read { next: u64, end: u64 },
    /// The same, but all of it is one reply.
    Assemble { next: u64, end: u64, bytes: Vec<u8> },
    /// `left` bytes are to be received.
    Write { left: u64 },
    /// Durable when it ends.
    Flush,
    /// What is stored from `start` to `end`; with `one`, the first extent is enough.
    Status { start: u64, end: u64, one: bool, extents: Vec<StoreExtent> },
    /// From `next` to `end`, pieces are to be zeroed or discarded.
    Range { next: u64, end: u64, change: Change, fua: bool },
}

#[derive(Clone, Copy)]
enum Change {
    Zero { may_discard: bool },
    Discard,
}

impl Running {
    /// What comes before the data of the part that ended just now, of a read.
    fn head_of_part(&self, offset: u64, len: usize) -> Head {
        let Work::Read { next, end } = self.work else { unreachable!("parts of reads are sent") };
        let (len, last) = (len as u32, self.parts == 0 && next == end);
        match u64::from(len) == end - self.to.offset {
            true => self.to.data(len),
            false => self.to.data_part(offset, len, last),
        }
    }

    /// Whether the store has all of it, and has ended it.
    fn is_over(&self) -> bool {
        let left = match self.work {
            Work::Write { left } => left > 0,
            // The rest of what has failed is not begun.
            _ if self.failure.is_some() => false,
            Work::Read { next, end } | Work::Assemble { next, end, .. } => next < end,
            Work::Range { next, end, fua, .. } => next < end || fua,
            Work::Flush | Work::Status { .. } => false,
        };
        self.parts == 0 && !left
    }
}

/// What comes next from the socket.
enum Payload {
    /// A request.
    None,
    /// Bytes of a WRITE.
    Write { slot: u32, offset: u64, left: u64, fua: bool, part: Option<(Lease, usize)> },
    /// Bytes of a request that was refused.
    Refused { left: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Something was done.
    Done,
    /// More input is needed.
    Starved,
    /// A buffer, a reply sent, or the end of a request is needed.
    Blocked,
}

/// The transmission phase of a session; see the module documentation.
pub(super) struct Transmission<'a> {
    socket: BorrowedFd<'a>,
    serving: &'a Serving,
    served: &'a Served,
    port: Port,
    limits: Limits,
    style: Style,
    completions: Arc<Completions>,
    input: Input,
    payload: Payload,
    /// Input behind a payload is limited to this.
    window: usize,
    outbox: Outbox,
    running: Vec<Option<Running>>,
    free: Vec<u32>,
    /// Parts that the store has, of all requests, by the numbers that it has them by.
    parts: Slab<Part>,
    /// A read of which parts are left, and which needs a buffer or memory.
    reading: Option<u32>,
    /// Requests of which a piece is to be zeroed, discarded or looked at; one is at it, if
    /// `is_slow`: the store does one thing of the kind at a time, for all connections.
    ranges: VecDeque<u32>,
    is_slow: bool,
    buffers: Share,
    assembled: Share,
    /// Another front has the buffer that this connection may have.
    retries: bool,
    /// The socket had input, and took output, when that was tried last, or waited for.
    is_readable: bool,
    is_writable: bool,
    /// No more requests will come.
    input_ended: bool,
    draining: bool,
    /// Since when the rest of a request has been missing.
    starved_since: Option<Instant>,
    /// Since when no reply could be sent.
    unread_since: Option<Instant>,
}

impl<'a> Transmission<'a> {
    pub(super) fn new(
        socket: BorrowedFd<'a>,
        serving: &'a Serving,
        session: &Session,
        input: Input,
        completions: &Arc<Completions>,
    ) -> Transmission<'a> {
        let served = &serving.exports[session.export];
        let offered = &serving.offered[session.export];
        let slots = serving.limits.requests.max(1);
        Transmission {
            socket,
            serving,
            served,
            port: served.access.port(completions.clone()),
            limits: Limits::new(offered, session.style, session.allocation),
            style: session.style,
            completions: completions.clone(),
            input,
            payload: Payload::None,
            window: usize::MAX,
            outbox: Outbox::default(),
            running: (0..slots).map(|_| None).collect(),
            free: (0..slots as u32).rev().collect(),
            parts: Slab::new(),
            reading: None,
            ranges: VecDeque::new(),
            is_slow: false,
            buffers: Share::new(&served.buffers, completions),
            assembled: Share::new(&serving.assembled, completions),
            retries: false,
            is_readable: true,
            is_writable: true,
            input_ended: false,
            draining: false,
            starved_since: None,
            unread_since: None,
        }
    }

    /// Serves until the client leaves or is given up; when it returns, the store has nothing of
    /// this connection any more.
    pub(super) fn run(mut self) -> Result<(), Lost> {
        let end = self.serve();
        self.outbox.clear();
        self.payload = Payload::None;
        // The store ends every request; its buffers come back with them.
        let mut done = Vec::new();
        while !self.parts.is_empty() {
            if self.completions.fall_asleep() {
                let event = self.completions.event();
                let mut fds = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
                // An error of it is that of a signal, or passes.
                let _ = rustix::event::poll(&mut fds, None);
                self.completions.awake(fds[0].revents().contains(PollFlags::IN));
            }
            self.completions.take(&mut done);
            for completion in done.drain(..) {
                self.parts.remove(completion.part as usize);
            }
        }
        end
    }

    fn serve(&mut self) -> Result<(), Lost> {
        let mut done = Vec::new();
        loop {
            match self.completions.take(&mut done) {
                Ending::None => {}
                Ending::Drain => self.draining = true,
                Ending::Now => return Err(Lost::Stopped),
            }
            done.drain(..).for_each(|completion| self.completed(completion));
            self.send()?;
            let (step, received) = self.advance()?;
            self.send()?;
            if self.is_over() {
                return Ok(());
            }
            if !received {
                self.sleep(step)?;
            }
        }
    }

    fn requests(&self) -> usize {
        self.running.len() - self.free.len()
    }

    fn is_over(&self) -> bool {
        let ends = self.input_ended || (self.draining && matches!(self.payload, Payload::None));
        ends && self.requests() == 0 && self.outbox.is_empty()
    }

    fn send(&mut self) -> Result<(), Lost> {
        if self.outbox.is_empty() || !self.is_writable {
            return Ok(());
        }
        let (sent, more) = self.outbox.send(self.socket)?;
        self.is_writable = more;
        if sent > 0 {
            self.unread_since = None;
        }
        let returned = self.outbox.returned();
        self.buffers.put(returned.buffers);
        self.assembled.put(returned.assembled);
        Ok(())
    }

    /// Handles what has been received, and receives once. Says why it stopped, and whether
    /// something was received.
    fn advance(&mut self) -> Result<(Step, bool), Lost> {
        let mut received = false;
        loop {
            match self.step()? {
                Step::Done => {}
                Step::Blocked => return Ok((Step::Blocked, received)),
                // What was received is answered before more is.
                Step::Starved if received || !self.is_readable || self.input_ended => {
                    return Ok((Step::Starved, received));
                }
                Step::Starved => {
                    received = self.receive()?;
                    if !received {
                        return Ok((Step::Starved, self.input_ended));
                    }
                }
            }
        }
    }

    fn receive(&mut self) -> Result<bool, Lost> {
        let payload = match &mut self.payload {
            Payload::Write { part: Some((buffer, filled)), .. } => {
                &mut buffer.bytes_mut()[*filled..]
            }
            _ => &mut [],
        };
        let room = payload.len();
        match self.input.receive(self.socket, payload, self.window)? {
            Received::Nothing => {
                self.is_readable = false;
                Ok(false)
            }
            Received::Bytes(bytes) => {
                self.starved_since = None;
                if let Payload::Write { part: Some((_, filled)), .. } = &mut self.payload {
                    *filled += bytes.min(room);
                }
                Ok(true)
            }
            Received::End if self.is_mid_request() => Err(Lost::Half),
            Received::End => {
                self.input_ended = true;
                Ok(false)
            }
        }
    }

    fn is_mid_request(&self) -> bool {
        !matches!(self.payload, Payload::None) || !self.input.bytes().is_empty()
    }

    fn step(&mut self) -> Result<Step, Lost> {
        if let Some(slot) = self.reading {
            return Ok(self.read_on(slot));
        }
        match &mut self.payload {
            Payload::None => self.next_request(),
            Payload::Write { .. } => Ok(self.fill()),
            Payload::Refused { left } => {
                let there =
                    self.input.bytes().len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= there as u64;
                let over = *left == 0;
                self.input.consume(there);
                if over {
                    self.payload = Payload::None;
                }
                Ok(if over || there > 0 { Step::Done } else { Step::Starved })
            }
        }
    }

    fn next_request(&mut self) -> Result<Step, Lost> {
        if self.input_ended {
            return Ok(Step::Starved);
        }
        if self.free.is_empty() || self.requests() + self.outbox.len() >= self.running.len() {
            return Ok(Step::Blocked);
        }
        let Some(request) = Request::decode(self.style, self.input.bytes())? else {
            return Ok(Step::Starved);
        };
        self.input.consume(Request::header_bytes(self.style));
        let to = ReplyTo::new(self.style, &request);
        match self.limits.check(&request) {
            Ok(Operation::Disconnect) => {
                self.input_ended = true;
                let rest = self.input.bytes().len();
                self.input.consume(rest);
            }
            Ok(_) if self.draining => {
                let payload = request.payload_bytes(self.style);
                self.refuse(to, Errno::Shutdown, "the server is stopping", payload);
            }
            Ok(operation) => self.begin(to, operation),
            Err(refusal) if refusal.must_disconnect() => return Err(Lost::Flood),
            Err(refusal) => self.refuse(to, refusal.errno, refusal.problem, refusal.payload),
        }
        Ok(Step::Done)
    }

    fn refuse(&mut self, to: ReplyTo, errno: Errno, problem: &str, payload: u64) {
        self.answer_error(to, errno, problem);
        if payload > 0 {
            self.payload = Payload::Refused { left: payload };
        }
    }

    fn answer_error(&mut self, to: ReplyTo, errno: Errno, text: &str) {
        self.served.counters.error();
        let mut bytes = Vec::new();
        to.error_text(errno, text, &mut bytes);
        self.outbox.push_bytes(bytes);
    }

    fn begin(&mut self, to: ReplyTo, operation: Operation) {
        let counters = &self.served.counters;
        match operation {
            Operation::Read { offset: next, length, one_piece } => {
                counters.read(u64::from(length));
                let end = next + u64::from(length);
                let whole = self.longest_part(next, u64::from(length)) == length as usize;
                let parts = self.style != Style::Simple && !one_piece;
                let work = match whole || parts {
                    true => Work::Read { next, end },
                    false => Work::Assemble { next, end, bytes: Vec::new() },
                };
                self.reading = Some(self.insert(to, work));
            }
            Operation::Write { offset, length, fua } => {
                counters.write(u64::from(length));
                let left = u64::from(length);
                let slot = self.insert(to, Work::Write { left });
                self.payload = Payload::Write { slot, offset, left, fua, part: None };
            }
            Operation::Flush => {
                counters.flush();
                let slot = self.insert(to, Work::Flush);
                self.flush(slot);
            }
            Operation::Trim { offset, length, fua } => {
                counters.discard();
                self.begin_range(to, offset, length, Change::Discard, fua);
            }
            Operation::WriteZeroes { offset, length, fua, no_hole, fast } => {
                counters.discard();
                if fast && (no_hole || !self.port.limits().discard_zeroes) {
                    let text = "zeroing is not faster than writing here";
                    return self.answer_error(to, Errno::NotSupported, text);
                }
                let change = Change::Zero { may_discard: !no_hole };
                self.begin_range(to, offset, length, change, fua);
            }
            // There is no cache to fill.
            Operation::Cache { .. } => self.outbox.push(to.done(), Body::None),
            Operation::BlockStatus { offset, length, one } => {
                let (start, end, extents) = (offset, offset + length, Vec::new());
                let slot = self.insert(to, Work::Status { start, end, one, extents });
                self.ranges.push_back(slot);
                self.start_range();
            }
            // It has no reply, and no place here.
            Operation::Disconnect => {}
        }
    }

    fn begin_range(&mut self, to: ReplyTo, next: u64, length: u64, change: Change, fua: bool) {
        let slot = self.insert(to, Work::Range { next, end: next + length, change, fua });
        self.ranges.push_back(slot);
        self.start_range();
    }

    fn insert(&mut self, to: ReplyTo, work: Work) -> u32 {
        let slot = self.free.pop().expect("there is room: it was looked for");
        self.running[slot as usize] = Some(Running { to, work, parts: 0, failure: None });
        slot
    }

    fn at(&mut self, slot: u32) -> &mut Running {
        self.running[slot as usize].as_mut().expect("the slot is in use")
    }

    /// How much of `left` bytes at `offset` one buffer can hold.
    fn longest_part(&self, offset: u64, left: u64) -> usize {
        let limits = self.port.limits();
        let block = u64::from(limits.block);
        let longest = limits.request_bytes as u64 / block * block - offset % block;
        left.min(longest) as usize
    }

    fn take_buffer(&mut self, bytes: usize) -> Option<Lease> {
        if !self.buffers.take(1) {
            return None;
        }
        let buffer = self.port.try_lease(bytes);
        if buffer.is_none() {
            self.buffers.put(1);
            self.retries = true;
        }
        buffer
    }

    /// The store gets a part of the request; returns its number there.
    fn part(&mut self, slot: u32, offset: u64, len: usize) -> u64 {
        self.at(slot).parts += 1;
        self.parts.insert(Part { slot, offset, len }) as u64
    }

    /// Submits the next part of a read.
    fn read_on(&mut self, slot: u32) -> Step {
        let running = self.at(slot);
        let (next, end) = match running.work {
            Work::Read { next, end } | Work::Assemble { next, end, .. } => (next, end),
            _ => unreachable!("only reads are continued"),
        };
        if running.failure.is_some() {
            self.reading = None;
            if self.at(slot).is_over() {
                self.finish(slot);
            }
            return Step::Done;
        }
        if let Work::Assemble { bytes, .. } = &self.at(slot).work
            && bytes.is_empty()
        {
            let total = (end - next) as usize;
            if !self.assembled.take(total) {
                return Step::Blocked;
            }
            if let Work::Assemble { bytes, .. } = &mut self.at(slot).work {
                *bytes = vec![0; total];
            }
        }
        let len = self.longest_part(next, end - next);
        let span = self.port.span(next, len as u64) as usize;
        let Some(buffer) = self.take_buffer(span) else { return Step::Blocked };
        match &mut self.at(slot).work {
            Work::Read { next, .. } | Work::Assemble { next, .. } => *next += len as u64,
            _ => unreachable!("only reads are continued"),
        }
        if next + len as u64 == end {
            self.reading = None;
        }
        let is_sent = matches!(self.at(slot).work, Work::Read { .. });
        let part = self.part(slot, next, len);
        match is_sent && len >= IN_PLACE_BYTES && span == len {
            true => self.port.read_to_send(buffer, next, part),
            false => self.port.read(buffer, next, part),
        }
        Step::Done
    }

    /// Moves payload into a buffer, and gives full ones to the store.
    fn fill(&mut self) -> Step {
        let Payload::Write { offset, left, ref part, .. } = self.payload else {
            return Step::Done;
        };
        if part.is_none() {
            let size = self.longest_part(offset, left);
            if size <= SMALL_BYTES && self.input.bytes().len() < size {
                self.window = usize::MAX;
                return Step::Starved;
            }
            let Some(buffer) = self.take_buffer(size) else { return Step::Blocked };
            self.window = if size > SMALL_BYTES { NARROW_WINDOW } else { usize::MAX };
            if let Payload::Write { part, .. } = &mut self.payload {
                *part = Some((buffer, 0));
            }
        }
        let Payload::Write { slot, offset, left, fua, part: Some((mut buffer, filled)) } =
            std::mem::replace(&mut self.payload, Payload::None)
        else {
            unreachable!("it has a buffer by now");
        };
        let size = buffer.len();
        let there = self.input.bytes().len().min(size - filled);
        buffer.bytes_mut()[filled..filled + there].copy_from_slice(&self.input.bytes()[..there]);
        self.input.consume(there);
        let filled = filled + there;
        if filled < size {
            let part = Some((buffer, filled));
            self.payload = Payload::Write { slot, offset, left, fua, part };
            return Step::Starved;
        }
        let left = left - size as u64;
        self.at(slot).work = Work::Write { left };
        if left > 0 {
            let offset = offset + size as u64;
            self.payload = Payload::Write { slot, offset, left, fua, part: None };
        }
        let part = self.part(slot, offset, 0);
        self.port.write(buffer, offset, fua, part);
        Step::Done
    }

    fn flush(&mut self, slot: u32) {
        let part = self.part(slot, 0, 0);
        self.port.flush(part);
    }

    /// Begins a piece of the first range that has one left, unless one is being done.
    fn start_range(&mut self) {
        if self.is_slow {
            return;
        }
        let Some(slot) = self.ranges.pop_front() else { return };
        self.is_slow = true;
        let (from, end, change, fua) = match self.at(slot).work {
            Work::Range { next, end, change, fua } => (next, end, change, fua),
            Work::Status { start, end, one, .. } => {
                let most = if one { 1 } else { usize::MAX };
                let part = self.part(slot, start, 0) as u32;
                let completions = self.completions.clone();
                return self.port.allocation(start..end, most, move |found| {
                    let result = found.map(Got::Extents);
                    completions.put(Completion { part, result });
                });
            }
            _ => unreachable!("only ranges are queued here"),
        };
        if from == end && fua {
            // Discarded, and to be durable.
            self.at(slot).work = Work::Range { next: end, end, change, fua: false };
            return self.flush(slot);
        }
        let to = end.min(from.saturating_add(PIECE_BYTES));
        self.at(slot).work = Work::Range { next: to, end, change, fua };
        let part = self.part(slot, from, 0);
        match change {
            Change::Zero { may_discard } => self.port.zero(from..to, may_discard, false, part),
            Change::Discard => self.port.discard(from..to, part),
        }
    }

    fn completed(&mut self, completion: Completion) {
        let Part { slot, offset, len } = self.parts.remove(completion.part as usize);
        let running = self.running[slot as usize].as_mut().expect("the slot is in use");
        running.parts -= 1;
        // A buffer that does not go to the outbox is returned.
        let mut returned = usize::from(matches!(
            running.work,
            Work::Read { .. } | Work::Assemble { .. } | Work::Write { .. }
        ));
        match completion.result {
            Err(error) => drop(running.failure.get_or_insert(error)),
            Ok(Got::Nothing) => {}
            Ok(Got::Extents(found)) => {
                if let Work::Status { extents, .. } = &mut running.work {
                    *extents = found;
                }
            }
            Ok(Got::Lease(lease)) => match &mut running.work {
                Work::Assemble { bytes, .. } => {
                    let data = Data::new(lease, self.port.skip(offset), len);
                    let at = (offset - running.to.offset) as usize;
                    bytes[at..at + data.len()].copy_from_slice(data.bytes());
                }
                Work::Read { .. } if running.failure.is_none() => {
                    let data = Data::new(lease, self.port.skip(offset), len);
                    self.outbox.push(running.head_of_part(offset, data.len()), Body::Data(data));
                    returned = 0;
                }
                _ => {}
            },
        }
        self.buffers.put(returned);
        if matches!(self.at(slot).work, Work::Range { .. } | Work::Status { .. }) {
            self.is_slow = false;
            if !self.at(slot).is_over() {
                self.ranges.push_back(slot);
            }
            self.start_range();
        }
        if self.at(slot).is_over() && self.reading != Some(slot) {
            self.finish(slot);
        }
    }

    /// Answers a request that has ended, and frees its place.
    fn finish(&mut self, slot: u32) {
        let running = self.running[slot as usize].take().expect("the slot is in use");
        self.free.push(slot);
        if let Work::Assemble { bytes, .. } = &running.work
            && running.failure.is_some()
        {
            self.assembled.put(bytes.len());
        }
        match (running.failure, running.work) {
            (Some(error), _) => self.answer_error(running.to, errno(&error), &error.to_string()),
            // Its last part was its last chunk.
            (None, Work::Read { .. }) => {}
            (None, Work::Assemble { bytes, .. }) => {
                self.outbox.push(running.to.data(bytes.len() as u32), Body::Assembled(bytes));
            }
            (None, Work::Status { extents, .. }) => {
                let extents: Vec<Extent> = extents.iter().map(extent).collect();
                let mut bytes = Vec::new();
                running.to.block_status(ALLOCATION_CONTEXT_ID, &extents, &mut bytes);
                self.outbox.push_bytes(bytes);
            }
            (None, _) => self.outbox.push(running.to.done(), Body::None),
        }
    }

    /// Waits for the socket, completions, shares, or the time at which the client is given up.
    fn sleep(&mut self, step: Step) -> Result<(), Lost> {
        let now = Instant::now();
        let mut flags = PollFlags::empty();
        let starved = step == Step::Starved && !self.input_ended;
        if starved {
            flags |= PollFlags::IN;
        }
        if !self.outbox.is_empty() {
            flags |= PollFlags::OUT;
        }
        let since = |was: Option<Instant>, is: bool| is.then_some(was.unwrap_or(now));
        self.starved_since = since(self.starved_since, starved && self.is_mid_request());
        self.unread_since = since(self.unread_since, !self.outbox.is_empty());
        let oldest = self.starved_since.into_iter().chain(self.unread_since).min();
        let left = oldest.map(|since| self.serving.limits.stall.saturating_sub(now - since));
        // It keeps its connection as long as that costs no other client anything: it may be
        // stopped, or on a suspended host.
        let stalled = left == Some(Duration::ZERO);
        let gave_way = self.completions.gives_way();
        if stalled != gave_way {
            self.completions.set_gives_way(stalled);
        } else if stalled && (self.buffers.is_wanted() || self.assembled.is_wanted()) {
            // By one whose client is not stopped: all that have been gave way a look ago.
            return Err(Lost::Stalled);
        }
        let mut timeout = if stalled { Some(LOOK) } else { left };
        if std::mem::take(&mut self.retries) {
            timeout = Some(timeout.map_or(RETRY, |left| left.min(RETRY)));
        }
        if !self.completions.fall_asleep() {
            return Ok(());
        }
        let event = self.completions.event();
        let mut fds = [
            PollFd::from_borrowed_fd(event, PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket, flags),
        ];
        let count = if flags.is_empty() { 1 } else { 2 };
        // A socket of which nothing is expected would say that it is closed, again and again.
        let timeout = timeout.and_then(|left| left.try_into().ok());
        let polled = rustix::event::poll(&mut fds[..count], timeout.as_ref());
        self.completions.awake(fds[0].revents().contains(PollFlags::IN));
        // An error of the socket is found when it is read or written.
        let found = fds[1].revents();
        let failed = found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        self.is_readable |= failed || found.intersects(PollFlags::IN);
        self.is_writable |= failed || found.intersects(PollFlags::OUT);
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Lost::Socket(error.into())),
        }
    }
}

/// As the protocol says it.
fn extent(of: &StoreExtent) -> Extent {
    let flags = if of.is_hole { allocation::HOLE | allocation::ZERO } else { 0 };
    Extent { length: of.bytes, flags }
}

/// The protocol's number for an error of the store.
fn errno(error: &ArrayError) -> Errno {
    use rustix::io::Errno as System;
    match store::errno(error) {
        System::ROFS => Errno::Permission,
        System::NOSPC => Errno::NoSpace,
        System::NOMEM => Errno::NoMemory,
        System::INVAL => Errno::Invalid,
        System::SHUTDOWN => Errno::Shutdown,
        _ => Errno::Io,
    }
}
