//! A member that is an export of an NBD server, on this host or another.
//!
//! ```text
//!  submit -> the export's connection, a thread of its own -> server
//!  complete <- io_uring: poll of an eventfd <- ends       <-
//! ```
//! Bytes are copied between the array's buffers and those of the connection: no other thread and no
//! server ever has the array's memory, so that a reply that comes late can do no harm.
//!
//! Invariant: a poll of the eventfd is in flight in the ring as long as an operation is, and only
//! then. Every operation ends, with the connection at the latest. What the server does not offer,
//! or offers and refuses, is done in another way: FUA as a flush, zeroes as writes, a discard not
//! at all (TRIM promises nothing, and the array relies on nothing); without flushes, writes count
//! as durable.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use engine::{IoError, MemberError, Token};
use host::sys::{EventFd, Looks};
use host::{Completes, Device, Disk, ExportError, NbdExport, Transfer};
use md::Sector;
use nbd::Operation;
use rustix::io::Errno;

use super::file::{errno_of, error_of};
use super::traits::{Cause, Load, io_error};
use super::uring::FileOp;
use super::{
    Counters, Cqe, FileId, Io, Leaf, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed,
    error_text,
};
use crate::buf::Span;
use crate::table::Table;

/// Payload of one of the writes that stand for zeroes.
const ZEROES_BYTES: u64 = 1 << 20;
/// Buffers that are kept for other operations.
const SPARE: usize = 64;

/// Ends of operations, for the thread of the driver.
struct Port {
    ended: Mutex<Vec<Ended>>,
    wake: EventFd,
}

struct Ended {
    id: u32,
    buffer: Vec<u8>,
    result: Result<(), ExportError>,
}

impl Completes for Port {
    fn completed(&self, id: u32, buffer: Vec<u8>, result: Result<(), ExportError>) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push(Ended { id, buffer, result });
        if ended.len() == 1 {
            self.wake.signal();
        }
    }
}

/// An operation in flight.
struct Pending {
    token: Token,
    kind: OpKind,
    /// The first byte, in the export, of what is left.
    at: u64,
    left: u64,
    /// Length of the part at the front that is in flight.
    part: u64,
    /// What is in flight is a WRITE_ZEROES or a TRIM.
    clearing: bool,
    /// Everything is written, and the flush that makes it durable is in flight.
    syncing: bool,
    spans: Vec<Span>,
}

/// A member on an NBD export; see the module documentation.
pub struct NbdMember {
    export: Arc<NbdExport>,
    /// First byte of the member in the export.
    start: u64,
    /// The area of its partial parity log: first byte, and sectors.
    log: (u64, u64),
    info: MemberInfo,
    id: FileId,
    leaf: u32,
    pending: Table<Pending>,
    /// Made with the first operation.
    port: Option<Arc<Port>>,
    /// Whether the poll is in flight.
    is_polling: bool,
    /// Empty span lists, and buffers, for reuse.
    spare: Vec<Vec<Span>>,
    buffers: Vec<Vec<u8>>,
    taken: Vec<Ended>,
    counters: Counters,
    load: Load,
}

impl NbdMember {
    /// Makes a member of a running array from the sectors `area` of a device; `None`: it is no
    /// export.
    ///
    /// # Panics
    /// When the area is not inside the device.
    pub fn of_device(device: &Device, area: Range<u64>) -> Option<NbdMember> {
        assert!(area.start <= area.end && area.end <= device.sectors(), "outside the device");
        let export = device.export()?.clone();
        let info = MemberInfo {
            sectors: area.end - area.start,
            logical_block: device.logical_block(),
            // TRIM promises nothing of what is read afterwards.
            discard_zeroes: false,
            keeps_data: true,
            uses_ring: true,
            in_memory: false,
            synchronous: false,
        };
        let start = device.start_byte() + area.start * md::SECTOR_BYTES;
        let bytes = start..start + info.sectors * md::SECTOR_BYTES;
        let id = FileId { bytes, ..device.id().clone() };
        Some(NbdMember::new(export, start, (0, 0), info, id))
    }

    fn new(
        export: Arc<NbdExport>,
        start: u64,
        log: (u64, u64),
        info: MemberInfo,
        id: FileId,
    ) -> NbdMember {
        NbdMember {
            export,
            start,
            log,
            info,
            id,
            leaf: 0,
            pending: Table::new(),
            port: None,
            is_polling: false,
            spare: Vec::new(),
            buffers: Vec::new(),
            taken: Vec::new(),
            counters: Counters::default(),
            load: Load::default(),
        }
    }

    fn port(&mut self) -> std::io::Result<Arc<Port>> {
        if self.port.is_none() {
            let wake = EventFd::new()?;
            self.port = Some(Arc::new(Port { ended: Mutex::default(), wake }));
        }
        Ok(self.port.clone().expect("it was made"))
    }

    /// Adds the sectors of its partial parity log, of the device that it was made of.
    ///
    /// # Panics
    /// When the area is not inside the device.
    #[must_use]
    pub fn with_log(self, device: &Device, log: Range<u64>) -> NbdMember {
        assert!(log.start <= log.end && log.end <= device.sectors(), "outside the device");
        let start = device.start_byte() + log.start * md::SECTOR_BYTES;
        NbdMember { log: (start, log.end - log.start), ..self }
    }

    /// Sends the next request of an operation; `false`: nothing is left to be done.
    fn push(&mut self, id: u32, port: &Arc<Port>) -> bool {
        let features = self.export.features();
        let pending = self.pending.get(id);
        let (offset, left) = (pending.at, pending.left);
        let mut buffer = self.buffers.pop().unwrap_or_default();
        let (data, none) =
            (self.export.longest(Transfer::Data), self.export.longest(Transfer::None));
        let (part, operation) = match pending.kind {
            _ if pending.syncing => (0, Operation::Flush),
            OpKind::Flush if features.flush => (0, Operation::Flush),
            OpKind::Discard if features.trim && left > 0 => {
                let length = left.min(none);
                (length, Operation::Trim { offset, length, fua: false })
            }
            OpKind::Flush | OpKind::Discard => {
                self.buffers.push(buffer);
                return false;
            }
            _ if left == 0 => {
                self.buffers.push(buffer);
                return false;
            }
            OpKind::Read => {
                let length = left.min(data);
                (length, Operation::Read { offset, length: length as u32, one_piece: false })
            }
            OpKind::Write { fua } => {
                let length = left.min(data);
                buffer.clear();
                gather(&pending.spans, length as usize, &mut buffer);
                let fua = fua && features.fua;
                (length, Operation::Write { offset, length: length as u32, fua })
            }
            OpKind::WriteLog => unreachable!("written as an ordinary write"),
            OpKind::WriteZeroes if features.write_zeroes => {
                let length = left.min(none);
                let (fua, no_hole, fast) = (false, true, false);
                (length, Operation::WriteZeroes { offset, length, fua, no_hole, fast })
            }
            OpKind::WriteZeroes => {
                let length = left.min(ZEROES_BYTES).min(data);
                buffer.clear();
                buffer.resize(length as usize, 0);
                (length, Operation::Write { offset, length: length as u32, fua: false })
            }
        };
        pending.part = part;
        pending.clearing =
            matches!(operation, Operation::WriteZeroes { .. } | Operation::Trim { .. });
        self.export.submit(operation, buffer, id, port.clone());
        true
    }

    /// A request of an operation has succeeded. Returns whether the operation has.
    fn part_done(&mut self, id: u32, buffer: &[u8], port: &Arc<Port>) -> bool {
        let features = self.export.features();
        let pending = self.pending.get(id);
        if pending.kind == OpKind::Read {
            scatter(&pending.spans, buffer);
        }
        if !pending.spans.is_empty() {
            skip(&mut pending.spans, pending.part as usize);
        }
        (pending.at, pending.left) = (pending.at + pending.part, pending.left - pending.part);
        if pending.left > 0 {
            return !self.push(id, port);
        }
        let by_flush = !features.fua && features.flush && !pending.syncing;
        if pending.kind == (OpKind::Write { fua: true }) && by_flush {
            pending.syncing = true;
            return !self.push(id, port);
        }
        true
    }

    /// Whether the server has refused a request that it offers: what is left is done without.
    #[cold]
    fn is_refused(&mut self, id: u32, error: &ExportError) -> bool {
        let pending = self.pending.get(id);
        let is_refused = pending.clearing
            && match pending.kind {
                OpKind::Discard => self.export.refuses_trim(error),
                _ => self.export.refuses_zeroes(error),
            };
        if is_refused {
            let (device, kind) = (self.export.uri().to_string(), pending.kind);
            tracing::warn!(device, ?kind, %error, "the server refuses what it offers");
        }
        is_refused
    }

    /// The error of what is left of an operation.
    #[cold]
    fn failed(&mut self, id: u32, error: &ExportError) -> IoError {
        let (start, pending) = (self.start, self.pending.get(id));
        let kind = if pending.syncing { OpKind::Flush } else { pending.kind };
        let (sector, sectors) = match kind {
            OpKind::Flush => (0, 0),
            // In a log, from the start of the member on.
            _ => {
                let sector = pending.at.saturating_sub(start) / md::SECTOR_BYTES;
                (sector, pending.left.div_ceil(md::SECTOR_BYTES))
            }
        };
        let error = io_error(kind, Sector(sector), sectors, cause(error, kind));
        error_text::log(&error, Leaf::place(self));
        error
    }

    /// Has the ring watch for ends.
    fn watch(&mut self, port: &Port, io: &mut Io) {
        if !self.is_polling {
            let ring = io.ring.as_mut().expect("a driver with exports has a ring");
            ring.push(&port.wake, FileOp::PollIn, self.leaf, 0);
            self.is_polling = true;
        }
    }
}

/// Why a request failed.
fn cause(error: &ExportError, kind: OpKind) -> Cause {
    let (number, is_lost) = match error {
        ExportError::Server { errno, .. } => {
            (errno.number() as i32, *errno == nbd::Errno::Shutdown)
        }
        ExportError::Lost { errno, .. } => (*errno, true),
    };
    let errno = Errno::from_raw_os_error(number);
    let kind = match error_of(errno, kind) {
        _ if is_lost => MemberError::Gone,
        // How much was written is unknown.
        MemberError::NoSpace => MemberError::ShortWrite,
        kind => kind,
    };
    Cause { kind, errno: errno_of(errno) }
}

/// Appends the first `len` bytes of the spans.
fn gather(spans: &[Span], len: usize, out: &mut Vec<u8>) {
    let mut left = len;
    for span in spans {
        let part = left.min(span.len());
        span.part(0, part).append_to(out);
        left -= part;
        if left == 0 {
            return;
        }
    }
}

/// Copies `bytes` to the start of the spans.
fn scatter(spans: &[Span], bytes: &[u8]) {
    let mut rest = bytes;
    for span in spans {
        let (part, behind) = rest.split_at(rest.len().min(span.len()));
        span.part(0, part.len()).copy_from_slice(part);
        rest = behind;
        if rest.is_empty() {
            return;
        }
    }
}

/// Takes the first `len` bytes away from the spans.
fn skip(spans: &mut Vec<Span>, mut len: usize) {
    spans.retain_mut(|span| {
        let part = len.min(span.len());
        len -= part;
        *span = span.part(part, span.len() - part);
        span.len() > 0
    });
}

impl Sealed for NbdMember {}

impl Leaf for NbdMember {
    fn info(&self) -> MemberInfo {
        self.info
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let NbdMember { start, log, info, .. } = *self;
        Some(Box::new(NbdMember::new(self.export.clone(), start, log, info, self.id.clone())))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.counters.count(op);
        // A write of the log is an ordinary one in another place.
        let (start, sectors, kind) = match op.kind {
            OpKind::WriteLog => (self.log.0, self.log.1, OpKind::Write { fua: true }),
            kind => (self.start, self.info.sectors, kind),
        };
        if op.sector.0 + op.sectors > sectors {
            done.push(op.failed(MemberError::Invalid));
            return;
        }
        let Ok(port) = self.port() else {
            done.push(op.failed(MemberError::NoMemory));
            return;
        };
        let mut spans = self.spare.pop().unwrap_or_default();
        spans.extend(op.slices.iter().map(|slice| io.regions.span(*slice)));
        let id = self.pending.insert(Pending {
            token: op.token,
            kind,
            at: start + op.sector.0 * md::SECTOR_BYTES,
            left: op.bytes(),
            part: 0,
            clearing: false,
            syncing: false,
            spans,
        });
        if self.push(id, &port) {
            self.load.begin(io.now);
            self.watch(&port, io);
            return;
        }
        // The server does not offer it. A connection that is lost is no success.
        let result = match self.export.lost() {
            Some(lost) => Err(self.failed(id, &lost)),
            None => Ok(()),
        };
        self.pending.remove(id);
        done.push(MemberCompletion { token: op.token, result });
    }

    fn complete(&mut self, _: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.is_polling = false;
        let mut taken = std::mem::take(&mut self.taken);
        let port = self.port.clone().expect("it was polled");
        {
            let mut ended = port.ended.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *ended, &mut taken);
            // Under the lock: what ends from now on is a new event.
            port.wake.reset();
        }
        for Ended { id, buffer, result } in taken.drain(..) {
            let result = match result {
                Ok(()) if !self.part_done(id, &buffer, &port) => {
                    self.keep(buffer);
                    continue;
                }
                Ok(()) => Ok(()),
                Err(error) if self.is_refused(id, &error) => {
                    if self.push(id, &port) {
                        self.keep(buffer);
                        continue;
                    }
                    Ok(())
                }
                Err(error) => Err(self.failed(id, &error)),
            };
            self.keep(buffer);
            let Pending { token, mut spans, .. } = self.pending.remove(id);
            spans.clear();
            self.spare.push(spans);
            self.load.end(io.now, 1);
            done.push(MemberCompletion { token, result });
        }
        self.taken = taken;
        if !self.pending.is_empty() {
            self.watch(&port, io);
        }
    }

    /// The connection has two periods more: the array judges first, which knows whether all members
    /// are late, and what is late ends with the connection.
    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration> {
        self.export.set_timeout(limit.map(|limit| limit + 2 * Looks::period_of(limit)));
        limit
    }

    fn number_leaf(&mut self, number: u32) {
        self.leaf = number;
    }

    fn place(&self) -> Option<(String, u64)> {
        Some((self.id.path.display().to_string(), self.start / md::SECTOR_BYTES))
    }

    fn file(&self) -> Option<&FileId> {
        Some(&self.id)
    }

    fn counters(&self) -> Counters {
        let (busy_ns, queued_ns) = (Some(self.load.busy_ns), Some(self.load.queued_ns));
        Counters { busy_ns, queued_ns, ..self.counters }
    }
}

impl NbdMember {
    fn keep(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < SPARE {
            self.buffers.push(buffer);
        }
    }
}
