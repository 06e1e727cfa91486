//! Carries out a request of the guest's (virtio 1.2, section 5.2.6).
//!
//! *Invariant*: a request succeeds only if each of its parts has ended, with success. Ranges are
//! inside the store before anything is submitted.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use array::{CompletionQueue, Lease, RequestResult};
use slab::Slab;
use virtio_bindings::virtio_blk as blk;

use super::chain::Ranges;
use super::device::{MOST_SECTORS, MOST_SEGMENTS, SECTOR, SEG_MAX, SIZE_MAX};
use super::ring::Taken;
use crate::access::{Access, Data, Port};
use crate::store::Limits;

const HEADER_BYTES: u64 = 16;
/// A range to discard, or to zero.
const SEGMENT_BYTES: u64 = 16;
/// As much as the offered descriptors hold.
const MOST_BYTES: u64 = SIZE_MAX as u64 * SEG_MAX as u64;

/// What requests are carried out on.
pub(super) struct Target {
    port: Port,
    parts: Arc<Parts>,
    identity: [u8; 20],
}

impl Target {
    pub(super) fn new(access: &Arc<Access>, identity: [u8; 20]) -> Target {
        let parts: Arc<Parts> = Arc::default();
        Target { port: access.port(parts.clone()), parts, identity }
    }

    pub(super) fn limits(&self) -> &Limits {
        self.port.limits()
    }
}

/// Ends the parts of requests that the store has, by their numbers there.
#[derive(Default)]
struct Parts(Mutex<Slab<Part>>);

impl Parts {
    fn insert(&self, part: Part) -> u64 {
        self.0.lock().expect("no panic while it is locked").insert(part) as u64
    }
}

impl CompletionQueue for Parts {
    fn complete(&self, user_data: u64, result: RequestResult) {
        let part = self.0.lock().expect("no panic while it is locked").remove(user_data as usize);
        match result.map(|lease| part.is_copied(lease)) {
            Ok(true) => part.succeeded(),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "a request of a guest failed"),
        }
    }
}

/// Why a request is refused at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It is wrong, or not inside the store.
    Invalid,
    /// The device has no such thing.
    Unsupported,
}

/// A request in flight, shared by its parts. When the last of them goes, it ends.
struct Running {
    taken: Option<Taken>,
    /// Bytes of data that a success has written.
    data_bytes: u64,
    /// Parts that have not succeeded.
    left: AtomicUsize,
}

/// A part of a request in flight.
struct Part {
    request: Arc<Running>,
    read: Option<PartRead>,
}

/// Where what a part reads goes.
struct PartRead {
    /// In the request's data.
    at: u64,
    /// Bytes before the first one, in the buffer.
    skip: usize,
    length: usize,
}

impl Running {
    fn part(self: &Arc<Running>, read: Option<PartRead>) -> Part {
        self.left.fetch_add(1, Ordering::Relaxed);
        Part { request: self.clone(), read }
    }
}

impl Part {
    fn succeeded(self) {
        // Pairs with the drop of the last reference, which is ordered behind this.
        self.request.left.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives the guest what was read, if anything was to be; whether that is all of it.
    fn is_copied(&self, lease: Option<Lease>) -> bool {
        let Some(PartRead { at, skip, length }) = self.read else { return true };
        let (Some(lease), Some(taken)) = (lease, &self.request.taken) else { return false };
        let read = Data::new(lease, skip, length);
        let into = &taken.chain.writable;
        read.len() == length && into.write(&taken.memory, at, read.bytes()).is_ok()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(taken) = self.taken.take() else { return };
        let (status, written) = match self.left.load(Ordering::Relaxed) {
            0 => (blk::VIRTIO_BLK_S_OK, self.data_bytes + 1),
            _ => (blk::VIRTIO_BLK_S_IOERR, 0),
        };
        taken.end(status as u8, written as u32);
    }
}

/// Carries out a request; does not wait for it. With `write_through` its writes are durable when
/// they end.
pub(super) fn carry_out(target: &Target, taken: Taken, write_through: bool) {
    if let Err((refusal, taken)) = begin(target, taken, write_through) {
        let status = match refusal {
            Refusal::Invalid => blk::VIRTIO_BLK_S_IOERR,
            Refusal::Unsupported => blk::VIRTIO_BLK_S_UNSUPP,
        };
        taken.end(status as u8, 0);
    }
}

type Begun = Result<(), (Refusal, Taken)>;

fn begin(target: &Target, taken: Taken, write_through: bool) -> Begun {
    let refused = |taken, refusal| Err((refusal, taken));
    let mut header = [0; HEADER_BYTES as usize];
    let chain = &taken.chain;
    if chain.is_too_long() || chain.readable.read(&taken.memory, 0, &mut header).is_err() {
        return refused(taken, Refusal::Invalid);
    }
    let kind = u32::from_le_bytes(header[..4].try_into().expect("four bytes"));
    let sector = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
    let limits = target.limits();
    let read_only = limits.read_only;
    match kind {
        blk::VIRTIO_BLK_T_IN => match inside(limits, sector, chain.writable.bytes()) {
            // Before anything is read: the guest can still be refused.
            Some(range) if chain.writable.are_in(&taken.memory) => read(target, taken, &range),
            _ => return refused(taken, Refusal::Invalid),
        },
        blk::VIRTIO_BLK_T_OUT => {
            let data = chain.readable.behind(HEADER_BYTES);
            match inside(limits, sector, data.bytes()) {
                Some(range) if !read_only => write(target, taken, &data, &range, write_through),
                _ => return refused(taken, Refusal::Invalid),
            }
        }
        blk::VIRTIO_BLK_T_FLUSH => {
            let part = running(taken, 0).part(None);
            target.port.flush(target.parts.insert(part));
        }
        blk::VIRTIO_BLK_T_GET_ID => return identify(target, taken),
        blk::VIRTIO_BLK_T_DISCARD | blk::VIRTIO_BLK_T_WRITE_ZEROES => {
            let segments = match segments(limits, &taken, kind) {
                Ok(segments) if !read_only => segments,
                Ok(_) => return refused(taken, Refusal::Invalid),
                Err(refusal) => return refused(taken, refusal),
            };
            clear(target, taken, kind, segments, write_through);
        }
        _ => return refused(taken, Refusal::Unsupported),
    }
    Ok(())
}

fn running(taken: Taken, data_bytes: u64) -> Arc<Running> {
    Arc::new(Running { taken: Some(taken), data_bytes, left: AtomicUsize::new(0) })
}

/// A range of the store, of whole sectors.
fn inside(limits: &Limits, sector: u64, bytes: u64) -> Option<Range<u64>> {
    let start = sector.checked_mul(SECTOR)?;
    let end = start.checked_add(bytes)?;
    let fits = bytes.is_multiple_of(SECTOR) && bytes <= MOST_BYTES;
    (fits && end <= limits.bytes).then_some(start..end)
}

/// A range in parts of which each fits into a buffer of the store.
fn parts(limits: &Limits, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let (longest, block) = (limits.request_bytes as u64, u64::from(limits.block));
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        let length = (longest - at % block).min(end - at);
        let part = at..at + length;
        at += length;
        (length > 0).then_some(part)
    })
}

/// It ends at a part that fails, so that the guest's memory may be filled in part.
fn read(target: &Target, taken: Taken, range: &Range<u64>) {
    let port = &target.port;
    let request = running(taken, range.end - range.start);
    for part in parts(port.limits(), range) {
        let (at, length) = (part.start - range.start, part.end - part.start);
        // Waits for a buffer, which requests in flight return.
        let lease = port.lease(port.span(part.start, length) as usize);
        let read = PartRead { at, skip: port.skip(part.start), length: length as usize };
        let number = target.parts.insert(request.part(Some(read)));
        port.read(lease, part.start, number);
    }
}

fn write(target: &Target, taken: Taken, data: &Ranges, range: &Range<u64>, durable: bool) {
    let port = &target.port;
    let memory = taken.memory.clone();
    let request = running(taken, 0);
    for part in parts(port.limits(), range) {
        let (at, length) = (part.start - range.start, part.end - part.start);
        let mut lease = port.lease(length as usize);
        let request = request.part(None);
        if data.read(&memory, at, lease.bytes_mut()).is_err() {
            // The part has not succeeded, nor has the request.
            return;
        }
        port.write(lease, part.start, durable, target.parts.insert(request));
    }
}

fn identify(target: &Target, taken: Taken) -> Begun {
    let length = target.identity.len() as u64;
    let data = &taken.chain.writable;
    if data.bytes() < length || data.write(&taken.memory, 0, &target.identity).is_err() {
        return Err((Refusal::Invalid, taken));
    }
    taken.end(blk::VIRTIO_BLK_S_OK as u8, length as u32 + 1);
    Ok(())
}

/// A range to discard or to zero.
#[derive(Debug, PartialEq, Eq)]
struct Segment {
    range: Range<u64>,
    unmap: bool,
}

/// The ranges that a request names.
fn segments(limits: &Limits, taken: &Taken, kind: u32) -> Result<Vec<Segment>, Refusal> {
    let data = taken.chain.readable.behind(HEADER_BYTES);
    let count = data.bytes() / SEGMENT_BYTES;
    if !data.bytes().is_multiple_of(SEGMENT_BYTES)
        || !(1..=u64::from(MOST_SEGMENTS)).contains(&count)
    {
        return Err(Refusal::Invalid);
    }
    let segment = |number: u64| {
        let mut bytes = [0; SEGMENT_BYTES as usize];
        let copied = data.read(&taken.memory, number * SEGMENT_BYTES, &mut bytes);
        copied.map_err(|_| Refusal::Invalid)?;
        let sector = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let (sectors, flags) = (word(8), word(12));
        // Bit 0 of a write of zeroes: it may discard. No other bit has a meaning.
        let known = if kind == blk::VIRTIO_BLK_T_WRITE_ZEROES { 1 } else { 0 };
        if flags & !known != 0 {
            return Err(Refusal::Unsupported);
        }
        let start = sector.checked_mul(SECTOR).ok_or(Refusal::Invalid)?;
        let end = start.checked_add(u64::from(sectors) * SECTOR).ok_or(Refusal::Invalid)?;
        if sectors > MOST_SECTORS || end > limits.bytes {
            return Err(Refusal::Invalid);
        }
        Ok(Segment { range: start..end, unmap: flags & 1 != 0 })
    };
    (0..count).map(segment).collect()
}

fn clear(target: &Target, taken: Taken, kind: u32, segments: Vec<Segment>, durable: bool) {
    let request = running(taken, 0);
    for Segment { range, unmap } in segments.into_iter().filter(|it| !it.range.is_empty()) {
        let part = target.parts.insert(request.part(None));
        match kind {
            blk::VIRTIO_BLK_T_DISCARD => target.port.discard(range, part),
            _ => target.port.zero(range, unmap, durable, part),
        }
    }
}
