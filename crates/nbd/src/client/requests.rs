//! Requests in flight of a client, and what the server's bytes say of them.
//!
//! ```text
//!  start(operation) -> header to send      receive(bytes) -> Data(cookie, ..), then the caller
//!                                          takes the data itself -> .. -> Done(cookie, result)
//! ```
//! *Invariant*: a READ is done with success only when every byte of it has come exactly once; what
//! is said of a request lies within it.

use thiserror::Error;

use super::coverage::Coverage;
use super::handshake::Negotiated;
use crate::extent::MAX_EXTENTS;
use crate::wire::{
    EXTENDED_REPLY_MAGIC, Fields, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk, text,
};
use crate::{
    Errno, Extent, Limits, MAX_STRING_BYTES, Operation, Refusal, Style, Violation, decode_extents,
};

/// Why a request was not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unsent {
    /// All requests that may be in flight are.
    #[error("as many requests are in flight as there may be")]
    Full,
    /// The session does not permit it.
    #[error("{}", .0.problem)]
    Refused(Refusal),
}

/// Why a request failed, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{errno}{}{}", at(*offset), said(text))]
pub struct Failure {
    /// The error.
    pub errno: Errno,
    /// The first byte of the export that it is about, if the server says it.
    pub offset: Option<u64>,
    /// The server's text, with control characters escaped; often empty.
    pub text: String,
}

fn at(offset: Option<u64>) -> String {
    offset.map_or(String::new(), |offset| format!(" at byte {offset}"))
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// What the server's bytes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// More bytes are needed; the same ones must be given again, with more.
    NeedMore,
    /// Nothing that is of interest.
    Handled,
    /// The next `length` bytes of the stream are data of a READ; the caller takes them before it
    /// calls [`Requests::receive`] again.
    Data {
        /// The request.
        cookie: u64,
        /// Where they belong, from the request's first byte.
        at: u32,
        /// How many they are.
        length: u32,
    },
    /// A part of a READ is zeroes.
    Zeroes {
        /// The request.
        cookie: u64,
        /// Where they belong, from the request's first byte.
        at: u32,
        /// How many they are.
        length: u32,
    },
    /// The extents of a BLOCK_STATUS, from the request's first byte.
    Status {
        /// The request.
        cookie: u64,
        /// At least one.
        extents: Vec<Extent>,
    },
    /// The request has ended, and its cookie is free.
    Done {
        /// The request.
        cookie: u64,
        /// Result of the request.
        result: Result<(), Failure>,
    },
}

#[derive(Clone, Debug)]
struct InFlight {
    operation: Operation,
    coverage: Coverage,
    status_came: bool,
    failure: Option<Failure>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    /// Counts the requests that had this slot, so that a late reply to one of them is found out.
    generation: u32,
    request: Option<InFlight>,
}

/// Requests in flight; see the module documentation.
#[derive(Clone, Debug)]
pub struct Requests {
    session: Negotiated,
    limits: Limits,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// What was said last ended this request, which the next call says.
    ends_next: Option<u64>,
}

struct Chunk {
    kind: u16,
    last: bool,
    cookie: u64,
    length: u64,
}

impl Requests {
    /// An input buffer needs this size.
    pub const INPUT_BYTES: usize = 32 + MAX_CHUNK_BYTES;

    /// Without a request; at most `most` will be in flight.
    pub fn new(session: Negotiated, most: u32) -> Requests {
        let slots = vec![Slot::default(); most as usize];
        let limits = Limits::of_session(&session);
        Requests { session, limits, slots, free: (0..most).rev().collect(), ends_next: None }
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Starts a request; the first [`header_bytes`](crate::Request::header_bytes) of the array are
    /// to be sent, and after them the payload of a WRITE. There is no reply to
    /// [`Operation::Disconnect`].
    ///
    /// # Errors
    /// When too many requests are in flight, or the session does not permit this one.
    pub fn start(&mut self, operation: Operation) -> Result<(u64, [u8; 32]), Unsent> {
        let style = self.session.style;
        self.limits.check(&operation.request(style, 0)).map_err(Unsent::Refused)?;
        if operation == Operation::Disconnect {
            return Ok((0, operation.request(style, 0).encode(style)));
        }
        let slot = self.free.pop().ok_or(Unsent::Full)?;
        let place = &mut self.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        let cookie = u64::from(place.generation) << 32 | u64::from(slot);
        let coverage = Coverage::default();
        place.request = Some(InFlight { operation, coverage, status_came: false, failure: None });
        Ok((cookie, operation.request(style, cookie).encode(style)))
    }

    /// Gives the cookies of all requests in flight, which will get no reply, and forgets them.
    pub fn abandon(&mut self) -> Vec<u64> {
        let mut cookies = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.request.take().is_some() {
                cookies.push(u64::from(slot.generation) << 32 | number as u64);
                self.free.push(number as u32);
            }
        }
        self.ends_next = None;
        cookies
    }

    /// Reads the message at the start of `input`; returns how many of its bytes are done with. It
    /// is called until it needs more: also without input it may say the end of a request.
    ///
    /// # Errors
    /// When the server breaks a rule; the connection is of no use then.
    pub fn receive(&mut self, input: &[u8]) -> Result<(usize, Received), Violation> {
        if let Some(cookie) = self.ends_next.take() {
            return self.end(cookie).map(|done| (0, done));
        }
        let mut fields = Fields(input);
        let Some(magic) = fields.u32() else { return Ok((0, Received::NeedMore)) };
        match (magic, self.session.style) {
            (SIMPLE_REPLY_MAGIC, Style::Simple | Style::Structured) => self.simple(fields),
            (STRUCTURED_REPLY_MAGIC, Style::Structured)
            | (EXTENDED_REPLY_MAGIC, Style::Extended) => self.chunk(fields),
            (found, _) => Err(Violation::Magic { message: "reply", found: u64::from(found) }),
        }
    }

    fn simple(&mut self, mut fields: Fields<'_>) -> Result<(usize, Received), Violation> {
        const BYTES: usize = 16;
        let Some((error, cookie)) = fields.u32().zip(fields.u64()) else {
            return Ok((0, Received::NeedMore));
        };
        let structured = self.session.style == Style::Structured;
        let request = self.find(cookie)?;
        let needs_chunks =
            matches!(request.operation, Operation::Read { .. } | Operation::BlockStatus { .. });
        if structured && needs_chunks {
            return Err(wrong("a simple reply to a request that needs chunks"));
        }
        if request.failure.is_some() || request.status_came {
            return Err(wrong("a simple reply after chunks"));
        }
        if let Some(errno) = Errno::from_number(error) {
            request.failure = Some(Failure { errno, offset: None, text: String::new() });
        } else if let Operation::Read { offset, length, .. } = request.operation {
            request.coverage.add(offset..offset + u64::from(length));
            self.ends_next = Some(cookie);
            return Ok((BYTES, Received::Data { cookie, at: 0, length }));
        }
        self.end(cookie).map(|done| (BYTES, done))
    }

    fn chunk(&mut self, mut fields: Fields<'_>) -> Result<(usize, Received), Violation> {
        let extended = self.session.style == Style::Extended;
        let Some(head) = chunk_head(&mut fields, extended) else {
            return Ok((0, Received::NeedMore));
        };
        let front = if extended { 32 } else { 20 };
        let request = self.find(head.cookie)?;
        if head.kind == chunk::OFFSET_DATA {
            let Some(offset) = fields.u64() else { return Ok((0, Received::NeedMore)) };
            let length = head.length.checked_sub(8).ok_or(wrong("data without an offset"))?;
            let (at, length) = piece(request, offset, length)?;
            if head.last {
                self.ends_next = Some(head.cookie);
            }
            return Ok((front + 8, Received::Data { cookie: head.cookie, at, length }));
        }
        if head.length > MAX_CHUNK_BYTES as u64 {
            return Err(Violation::TooLong { what: "a chunk", bytes: head.length });
        }
        let Some(payload) = fields.take(head.length as usize) else {
            return Ok((0, Received::NeedMore));
        };
        let received = self.payload(&head, payload)?;
        let consumed = front + payload.len();
        match (head.last, received) {
            (false, received) => Ok((consumed, received)),
            (true, Received::Handled) => self.end(head.cookie).map(|done| (consumed, done)),
            (true, received) => {
                self.ends_next = Some(head.cookie);
                Ok((consumed, received))
            }
        }
    }

    /// A chunk of any kind but data.
    fn payload(&mut self, head: &Chunk, payload: &[u8]) -> Result<Received, Violation> {
        let (style, context) = (self.session.style, self.session.allocation);
        let cookie = head.cookie;
        let request = self.find(cookie)?;
        let mut fields = Fields(payload);
        match head.kind {
            chunk::NONE if !payload.is_empty() || !head.last => {
                Err(wrong("an empty chunk that has a payload, or is not the last"))
            }
            chunk::NONE => Ok(Received::Handled),
            chunk::OFFSET_HOLE => {
                let hole = fields.u64().zip(fields.u32()).filter(|_| fields.0.is_empty());
                let (offset, length) = hole.ok_or(wrong("a hole of another length"))?;
                let (at, length) = piece(request, offset, u64::from(length))?;
                Ok(Received::Zeroes { cookie, at, length })
            }
            chunk::BLOCK_STATUS | chunk::BLOCK_STATUS_EXT => {
                let extended = head.kind == chunk::BLOCK_STATUS_EXT;
                let Operation::BlockStatus { length, .. } = request.operation else {
                    return Err(wrong("block status of another request"));
                };
                if extended != (style == Style::Extended) || request.status_came {
                    return Err(wrong("block status in the wrong form, or twice"));
                }
                let (id, extents) = decode_extents(style, payload, length)?;
                if Some(id) != context {
                    return Err(wrong("block status of an unknown context"));
                }
                request.status_came = true;
                Ok(Received::Status { cookie, extents })
            }
            kind if kind & chunk::ERROR_BIT != 0 => {
                let failure = failure(kind, payload)?;
                // The first error is kept.
                request.failure.get_or_insert(failure);
                Ok(Received::Handled)
            }
            _ => Err(wrong("a chunk of an unknown kind")),
        }
    }

    fn find(&mut self, cookie: u64) -> Result<&mut InFlight, Violation> {
        let slot = self.slots.get_mut((cookie & 0xffff_ffff) as usize);
        let slot = slot.filter(|slot| u64::from(slot.generation) == cookie >> 32);
        slot.and_then(|slot| slot.request.as_mut()).ok_or(Violation::UnknownCookie(cookie))
    }

    fn end(&mut self, cookie: u64) -> Result<Received, Violation> {
        let request = self.find(cookie)?.clone();
        let result = match (request.failure, request.operation) {
            (Some(failure), _) => Err(failure),
            (None, Operation::Read { offset, length, .. })
                if !request.coverage.is(offset..offset + u64::from(length)) =>
            {
                return Err(wrong("a read succeeds without all of its data"));
            }
            (None, Operation::BlockStatus { .. }) if !request.status_came => {
                return Err(wrong("block status succeeds without an extent"));
            }
            _ => Ok(()),
        };
        let slot = (cookie & 0xffff_ffff) as u32;
        self.slots[slot as usize].request = None;
        self.free.push(slot);
        Ok(Received::Done { cookie, result })
    }
}

/// Longest payload of a chunk that is not data: extents, or an error's text.
const MAX_CHUNK_BYTES: usize = 8 + 16 * MAX_EXTENTS;
const _: () = assert!(MAX_CHUNK_BYTES > 14 + MAX_STRING_BYTES);

fn wrong(problem: &'static str) -> Violation {
    Violation::contents("reply", problem)
}

fn chunk_head(fields: &mut Fields<'_>, extended: bool) -> Option<Chunk> {
    let (flags, kind, cookie) = (fields.u16()?, fields.u16()?, fields.u64()?);
    let length = match extended {
        // The request's offset comes first; a server may get it wrong without harm.
        true => (fields.u64()?, fields.u64()?).1,
        false => u64::from(fields.u32()?),
    };
    Some(Chunk { kind, last: flags & chunk::DONE != 0, cookie, length })
}

/// Accounts for a piece of a READ; returns its place in the request.
fn piece(request: &mut InFlight, offset: u64, bytes: u64) -> Result<(u32, u32), Violation> {
    let Operation::Read { offset: start, length, .. } = request.operation else {
        return Err(wrong("data of a request that is no read"));
    };
    let end = offset.checked_add(bytes).filter(|end| *end <= start + u64::from(length));
    let end = end.filter(|_| offset >= start && bytes > 0).ok_or(wrong("data beyond the read"))?;
    if !request.coverage.add(offset..end) {
        return Err(wrong("data twice, or in too many pieces"));
    }
    Ok(((offset - start) as u32, bytes as u32))
}

fn failure(kind: u16, payload: &[u8]) -> Result<Failure, Violation> {
    let mut fields = Fields(payload);
    let parse = || {
        let errno = Errno::from_number(fields.u32()?)?;
        let length = usize::from(fields.u16()?);
        let text = text(fields.take(length)?).unwrap_or("").escape_debug().to_string();
        let offset = if kind == chunk::ERROR_OFFSET { Some(fields.u64()?) } else { None };
        Some(Failure { errno, offset, text })
    };
    let mut parse = parse;
    parse().ok_or(wrong("an error that is malformed"))
}
