//! Access to a store by bytes: whole blocks go straight to it, the rest is read, modified and
//! written.
//!
//! ```text
//!  a front's threads --- whole blocks: read, write -------------------------> Store
//!   |  by a Port    \--- parts of blocks, ranges to zero --> slow thread ---> Store, one at a time
//!   |                \-- what is stored -------------------/
//!   +<-- the front's queue: the number that it gave, and the result <--- either
//! ```
//! Invariant: a front never waits for the store's I/O; it waits only for a buffer (as many as the
//! store has), for room in the slow thread's queue, or for one write of less than a block.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use array::{
    ArrayError, Completer, CompletionQueue, Filled, HostOp, Lease, Pending, RequestResult,
};
use host::sys::OutSlice;

use crate::gate::Gate;
use crate::store::{Limits, READ_ONLY, Store, StoreExtent};

/// Queue length of the slow thread; beyond it the caller waits.
const MAX_SLOW: usize = 64;

/// What is done when what is stored has been looked at; as [`CompletionQueue::complete`].
type Found = Box<dyn FnOnce(Result<Vec<StoreExtent>, ArrayError>) + Send>;

/// A store, read and written by bytes; see the module documentation. A store has one, which all of
/// its fronts use: a part of a block that is written through one and a part of the same block that
/// is written through another are both kept.
pub struct Access {
    store: Arc<dyn Store>,
    limits: Limits,
    gate: Arc<Gate>,
    slow: SyncSender<Slow>,
    slow_thread: Mutex<Option<JoinHandle<()>>>,
}

/// A front's way to a store. What it submits ends in the front's queue, by the number that it gave.
/// Reads return their lease; writes return it to the store.
pub struct Port {
    access: Arc<Access>,
    queue: Arc<dyn CompletionQueue>,
    exit: Arc<Exit>,
}

/// Where a port's writes of whole blocks end.
struct Exit {
    gate: Arc<Gate>,
    queue: Arc<dyn CompletionQueue>,
}

impl CompletionQueue for Exit {
    fn complete(&self, user_data: u64, result: RequestResult) {
        self.gate.leave();
        // A front that waits for the slow thread must not have buffers in its queue, of which that
        // thread may need one.
        let ended = result.map(|lease| {
            drop(lease);
            None
        });
        self.queue.complete(user_data, ended);
    }
}

/// A job of the slow thread.
enum Slow {
    Write { offset: u64, data: Vec<u8>, durable: bool, to: Completer },
    Zero { offset: u64, len: u64, durable: bool, may_discard: bool, to: Completer },
    Discard { offset: u64, len: u64, to: Completer },
    Allocation { range: Range<u64>, most: usize, then: Found },
    End,
}

/// The bytes that a read returns, without those of its blocks that were not requested.
pub struct Data {
    filled: Filled,
    range: Range<usize>,
}

impl Data {
    /// What a read has returned in this lease: `len` bytes behind the first `skip`, or those that
    /// it had room for.
    pub(crate) fn new(lease: Lease, skip: usize, len: usize) -> Data {
        let range = skip..(skip + len).min(lease.len());
        Data { filled: Filled::new(lease), range }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The bytes.
    ///
    /// # Panics
    /// When they were read by [`Port::read_to_send`].
    pub fn bytes(&self) -> &[u8] {
        let bytes = self.filled.bytes().expect("it was read to be copied");
        &bytes[self.range.clone()]
    }

    /// Calls `each` with its bytes, in order, until that says to stop; returns whether it did not.
    pub(crate) fn each_slice<'a>(&'a self, mut each: impl FnMut(OutSlice<'a>) -> bool) -> bool {
        match self.filled.bytes() {
            Some(bytes) => each(OutSlice::new(&bytes[self.range.clone()])),
            // Whole blocks.
            None => self.filled.out_slices().all(each),
        }
    }
}

impl Access {
    /// Serves `store` by bytes.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn new(store: Arc<dyn Store>) -> io::Result<Access> {
        let (slow, jobs) = mpsc::sync_channel(MAX_SLOW);
        let gate = Arc::new(Gate::default());
        let worker =
            SlowWorker { limits: store.limits(), store: store.clone(), gate: gate.clone() };
        let slow_thread = std::thread::Builder::new()
            .name("raidlab-slow".into())
            .spawn(move || worker.run(&jobs))?;
        let slow_thread = Mutex::new(Some(slow_thread));
        Ok(Access { limits: store.limits(), store, gate, slow, slow_thread })
    }

    /// Size, block and abilities.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// A way to it for a front, whose requests end in `queue`.
    pub fn port(self: &Arc<Access>, queue: Arc<dyn CompletionQueue>) -> Port {
        let exit = Arc::new(Exit { gate: self.gate.clone(), queue: queue.clone() });
        Port { access: self.clone(), queue, exit }
    }

    /// Queues a job for the slow thread; waits while its queue is full.
    fn slowly(&self, job: Slow) {
        match self.limits.read_only {
            true => job.refuse(READ_ONLY),
            false => self.queue(job),
        }
    }

    fn queue(&self, job: Slow) {
        if let Err(mpsc::SendError(job)) = self.slow.send(job) {
            job.refuse(ArrayError::Stopped);
        }
    }
}

impl Port {
    /// Size, block and abilities.
    pub fn limits(&self) -> &Limits {
        &self.access.limits
    }

    fn block(&self) -> u64 {
        u64::from(self.access.limits.block)
    }

    /// Length of the buffer that a read of `len` bytes at `offset` needs: whole blocks around it.
    pub fn span(&self, offset: u64, len: u64) -> u64 {
        (offset + len).next_multiple_of(self.block()) - (offset - self.skip(offset) as u64)
    }

    /// How many bytes of its block are before `offset`.
    pub fn skip(&self, offset: u64) -> usize {
        (offset % self.block()) as usize
    }

    /// A buffer; blocks while all are in use.
    pub fn lease(&self, bytes: usize) -> Lease {
        self.access.store.lease(bytes)
    }

    /// A buffer, or `None` while all are in use.
    pub fn try_lease(&self, bytes: usize) -> Option<Lease> {
        self.access.store.try_lease(bytes)
    }

    /// Reads the blocks from that of byte `offset` on, as many as the lease holds: [`Port::span`]
    /// says how many bytes are needed, and [`Port::skip`] how many of them are before `offset`.
    pub fn read(&self, lease: Lease, offset: u64, user_data: u64) {
        let first = offset - self.skip(offset) as u64;
        self.submit(HostOp::Read, first, Some(lease), self.to(user_data));
    }

    /// The same of whole blocks, for bytes that are only sent: they may be in members' memory.
    pub fn read_to_send(&self, mut lease: Lease, offset: u64, user_data: u64) {
        lease.borrow();
        self.submit(HostOp::Read, offset, Some(lease), self.to(user_data));
    }

    /// Writes the lease's bytes at `offset`; durable at its end if `fua`.
    pub fn write(&self, lease: Lease, offset: u64, fua: bool, user_data: u64) {
        if self.limits().read_only {
            return self.to(user_data).complete(Err(READ_ONLY));
        }
        let block = self.block();
        if !offset.is_multiple_of(block) || !(lease.len() as u64).is_multiple_of(block) {
            let data = lease.bytes().to_vec();
            // To wait with it could be to wait for ever: see `Exit`.
            drop(lease);
            return self.write_part(data, offset, fua, user_data);
        }
        self.access.gate.enter();
        let to = Completer::new(self.exit.clone(), user_data);
        self.submit(HostOp::Write { fua }, offset, Some(lease), to);
    }

    /// Writes bytes that are no whole blocks, or are not in a buffer of the store.
    pub fn write_part(&self, data: Vec<u8>, offset: u64, durable: bool, user_data: u64) {
        self.access.slowly(Slow::Write { offset, data, durable, to: self.to(user_data) });
    }

    /// Makes a range read as zeroes; with `may_discard` by a discard where that is guaranteed to.
    pub fn zero(&self, range: Range<u64>, may_discard: bool, durable: bool, user_data: u64) {
        let (offset, len) = (range.start, range.end - range.start);
        let to = self.to(user_data);
        self.access.slowly(Slow::Zero { offset, len, durable, may_discard, to });
    }

    /// Discards the whole blocks of a range.
    pub fn discard(&self, range: Range<u64>, user_data: u64) {
        let (offset, len) = (range.start, range.end - range.start);
        self.access.slowly(Slow::Discard { offset, len, to: self.to(user_data) });
    }

    /// Makes all writes that have ended durable.
    pub fn flush(&self, user_data: u64) {
        self.submit(HostOp::Flush, 0, None, self.to(user_data));
    }

    /// What is known of a range, not empty, without reading it: extents from its start on, at least
    /// one and at most `most`, which may end before it does. A write that has ended is seen.
    pub fn allocation(
        &self,
        range: Range<u64>,
        most: usize,
        then: impl FnOnce(Result<Vec<StoreExtent>, ArrayError>) + Send + 'static,
    ) {
        self.access.queue(Slow::Allocation { range, most, then: Box::new(then) });
    }

    fn submit(&self, op: HostOp, offset: u64, lease: Option<Lease>, to: Completer) {
        // The store may run on this thread, whose stack must not need memory later.
        host::sys::touch_stack_once();
        self.access.store.submit(op, offset, lease, to);
    }

    fn to(&self, user_data: u64) -> Completer {
        Completer::new(self.queue.clone(), user_data)
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        // The slow thread may have panicked: then there is no receiver, and nothing to end.
        let _ = self.slow.send(Slow::End);
        let thread = self.slow_thread.lock().expect("the handle lock is not poisoned").take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Slow {
    fn refuse(self, error: ArrayError) {
        match self {
            Slow::Write { to, .. } | Slow::Zero { to, .. } | Slow::Discard { to, .. } => {
                to.complete(Err(error));
            }
            Slow::Allocation { then, .. } => then(Err(error)),
            Slow::End => {}
        }
    }
}

/// Performs jobs of several steps, one after the other.
struct SlowWorker {
    store: Arc<dyn Store>,
    limits: Limits,
    gate: Arc<Gate>,
}

impl SlowWorker {
    fn run(&self, jobs: &Receiver<Slow>) {
        host::sys::touch_stack();
        for job in jobs {
            match job {
                Slow::Write { offset, data, durable, to } => {
                    to.complete(self.write(offset, &data, durable).map(|()| None));
                }
                Slow::Zero { offset, len, durable, may_discard, to } => {
                    to.complete(self.zero(offset, len, durable, may_discard).map(|()| None));
                }
                Slow::Discard { offset, len, to } => {
                    to.complete(self.discard(offset, len).map(|()| None));
                }
                Slow::Allocation { range, most, then } => then(self.allocation(range, most)),
                Slow::End => return,
            }
        }
    }

    /// Writes partial blocks by read-modify-write. A crash in between leaves the old or the new
    /// bytes of each block.
    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), ArrayError> {
        let block = u64::from(self.limits.block);
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let first = at - at % block;
            let skip = (at - first) as usize;
            let longest = self.limits.request_bytes - skip;
            let (part, behind) = rest.split_at(rest.len().min(longest));
            let bytes = (at + part.len() as u64).next_multiple_of(block) - first;
            let lease = self.store.lease(bytes as usize);
            self.gate.alone(|| {
                let read = self.waited(HostOp::Read, first, Some(lease))?;
                let mut lease = read.expect("a read has a lease");
                lease.bytes_mut()[skip..skip + part.len()].copy_from_slice(part);
                self.waited(HostOp::Write { fua: false }, first, Some(lease))
            })?;
            at += part.len() as u64;
            rest = behind;
        }
        self.flush_if(durable)
    }

    fn zero(
        &self,
        offset: u64,
        len: u64,
        durable: bool,
        may_discard: bool,
    ) -> Result<(), ArrayError> {
        let block = u64::from(self.limits.block);
        let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
        if start >= end {
            return self.write(offset, &vec![0; len as usize], durable);
        }
        self.write(offset, &vec![0; (start - offset) as usize], false)?;
        match may_discard && self.limits.discard_zeroes {
            true => self.store.discard(start, end - start)?,
            false => self.store.write_zeroes(start, end - start)?,
        }
        self.write(end, &vec![0; (offset + len - end) as usize], false)?;
        self.flush_if(durable)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), ArrayError> {
        let block = u64::from(self.limits.block);
        let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
        if start < end { self.store.discard(start, end - start) } else { Ok(()) }
    }

    /// The extents of the blocks around a range, cut to it.
    fn allocation(&self, range: Range<u64>, most: usize) -> Result<Vec<StoreExtent>, ArrayError> {
        let block = u64::from(self.limits.block);
        let first = range.start / block * block;
        let bytes = range.end.next_multiple_of(block).min(self.limits.bytes) - first;
        // The first one may end before the range begins.
        let mut extents = self.store.allocation(first, bytes, most.saturating_add(1))?;
        let mut at = first;
        extents.retain_mut(|extent| {
            let (from, to) = (at.max(range.start), (at + extent.bytes).min(range.end));
            at += extent.bytes;
            extent.bytes = to.saturating_sub(from);
            extent.bytes > 0
        });
        extents.truncate(most);
        Ok(extents)
    }

    fn flush_if(&self, durable: bool) -> Result<(), ArrayError> {
        if durable { self.waited(HostOp::Flush, 0, None).map(drop) } else { Ok(()) }
    }

    fn waited(&self, op: HostOp, offset: u64, lease: Option<Lease>) -> RequestResult {
        let (pending, to) = Pending::new();
        self.store.submit(op, offset, lease, to);
        pending.result()
    }
}
