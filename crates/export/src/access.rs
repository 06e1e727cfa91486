//! Access to a store by bytes: whole blocks go straight to it, the rest is read, modified and
//! written.
//!
//! ```text
//!  a front's threads --- whole blocks: read, write, then answer ------------> Store
//!                   \--- parts of blocks, ranges to zero --> slow thread ---> Store, one at a time
//!                    \-- what is stored -------------------/
//! ```
//! Invariant: a caller never waits for the store's I/O; it waits only for a buffer (as many as the
//! store has), for room in the slow thread's queue, or for one write of less than a block.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use crate::gate::Gate;
use crate::store::{Buffer, Limits, Outcome, Store, StoreError, StoreExtent, ToSend};

/// Queue length of the slow thread; beyond it the caller waits.
const MAX_SLOW: usize = 64;

/// What is done when a request without data has ended; see [`crate::store::Then`].
type Done = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// The same of a look at what is stored.
type Found = Box<dyn FnOnce(Result<Vec<StoreExtent>, StoreError>) + Send>;

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

/// A job of the slow thread.
enum Slow {
    Write { offset: u64, data: Vec<u8>, durable: bool, then: Done },
    Zero { offset: u64, len: u64, durable: bool, may_discard: bool, then: Done },
    Discard { offset: u64, len: u64, then: Done },
    Allocation { range: Range<u64>, most: usize, then: Found },
    End,
}

/// The bytes that a read returns.
pub struct Data {
    buffer: Buffer,
    range: Range<usize>,
}

impl Data {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.range.clone()]
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

    /// Length of the buffer that a read of `len` bytes at `offset` needs: whole blocks around it.
    pub fn span(&self, offset: u64, len: u64) -> u64 {
        let block = u64::from(self.limits.block);
        (offset + len).next_multiple_of(block) - (offset - offset % block)
    }

    /// A buffer; blocks while all are in use.
    pub fn buffer(&self, bytes: usize) -> Buffer {
        self.store.buffer(bytes)
    }

    /// A buffer, or `None` while all are in use.
    pub fn try_buffer(&self, bytes: usize) -> Option<Buffer> {
        self.store.try_buffer(bytes)
    }

    /// Reads `len` bytes at `offset` through a buffer of [`Access::span`] bytes. With a shorter
    /// one, what fits into it is read.
    pub fn read(
        &self,
        buffer: Buffer,
        offset: u64,
        len: usize,
        then: impl FnOnce(Result<Data, StoreError>) + Send + 'static,
    ) {
        // The store may run on this thread, whose stack must not need memory later.
        sys::touch_stack_once();
        let first = offset - offset % u64::from(self.limits.block);
        let skip = (offset - first) as usize;
        let range = skip..(skip + len).min(buffer.len());
        let answer = move |outcome: Outcome| {
            let buffer = outcome.map(|buffer| buffer.expect("a read has a buffer"));
            then(buffer.map(|buffer| Data { buffer, range }));
        };
        self.store.read(buffer, first, Box::new(answer));
    }

    /// Reads whole blocks at `offset`, a buffer's length, for bytes that are only sent: see
    /// [`Store::read_to_send`].
    pub fn read_to_send(
        &self,
        buffer: Buffer,
        offset: u64,
        then: impl FnOnce(Result<ToSend, StoreError>) + Send + 'static,
    ) {
        sys::touch_stack_once();
        self.store.read_to_send(buffer, offset, Box::new(then));
    }

    /// Writes the buffer's bytes at `offset`; durable at its end if `fua`.
    pub fn write(
        &self,
        buffer: Buffer,
        offset: u64,
        fua: bool,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        if self.limits.read_only {
            return then(Err(StoreError::ReadOnly));
        }
        sys::touch_stack_once();
        let block = u64::from(self.limits.block);
        if !offset.is_multiple_of(block) || !(buffer.len() as u64).is_multiple_of(block) {
            let (data, then) = (buffer.bytes().to_vec(), Box::new(then));
            drop(buffer);
            return self.slowly(Slow::Write { offset, data, durable: fua, then });
        }
        let pass = self.gate.enter();
        let answer = move |outcome: Outcome| {
            drop(pass);
            then(outcome.map(drop));
        };
        self.store.write(buffer, offset, fua, Box::new(answer));
    }

    /// Writes bytes that are no whole blocks, or are not in a buffer of the store.
    pub fn write_part(
        &self,
        data: Vec<u8>,
        offset: u64,
        fua: bool,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        self.slowly(Slow::Write { offset, data, durable: fua, then: Box::new(then) });
    }

    /// Makes a range read as zeroes; with `may_discard` by a discard where that is guaranteed to.
    pub fn zero(
        &self,
        range: Range<u64>,
        may_discard: bool,
        fua: bool,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        let (offset, len) = (range.start, range.end - range.start);
        let then = Box::new(then);
        self.slowly(Slow::Zero { offset, len, durable: fua, may_discard, then });
    }

    /// Discards the whole blocks of a range.
    pub fn discard(
        &self,
        range: Range<u64>,
        then: impl FnOnce(Result<(), StoreError>) + Send + 'static,
    ) {
        let (offset, len) = (range.start, range.end - range.start);
        self.slowly(Slow::Discard { offset, len, then: Box::new(then) });
    }

    /// What is known of a range, not empty, without reading it: extents from its start on, at least
    /// one and at most `most`, which may end before it does. A write that has ended is seen.
    pub fn allocation(
        &self,
        range: Range<u64>,
        most: usize,
        then: impl FnOnce(Result<Vec<StoreExtent>, StoreError>) + Send + 'static,
    ) {
        self.queue(Slow::Allocation { range, most, then: Box::new(then) });
    }

    /// Makes all writes that have ended durable.
    pub fn flush(&self, then: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        self.store.flush(Box::new(move |outcome| then(outcome.map(drop))));
    }

    /// Queues a job for the slow thread; waits while its queue is full.
    fn slowly(&self, job: Slow) {
        match self.limits.read_only {
            true => job.refuse(StoreError::ReadOnly),
            false => self.queue(job),
        }
    }

    fn queue(&self, job: Slow) {
        if let Err(mpsc::SendError(job)) = self.slow.send(job) {
            job.refuse(StoreError::Stopped);
        }
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
    fn refuse(self, error: StoreError) {
        match self {
            Slow::Write { then, .. } | Slow::Zero { then, .. } | Slow::Discard { then, .. } => {
                then(Err(error));
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
        sys::touch_stack();
        for job in jobs {
            match job {
                Slow::Write { offset, data, durable, then } => {
                    then(self.write(offset, &data, durable));
                }
                Slow::Zero { offset, len, durable, may_discard, then } => {
                    then(self.zero(offset, len, durable, may_discard));
                }
                Slow::Discard { offset, len, then } => then(self.discard(offset, len)),
                Slow::Allocation { range, most, then } => then(self.allocation(range, most)),
                Slow::End => return,
            }
        }
    }

    /// Writes partial blocks by read-modify-write. A crash in between leaves the old or the new
    /// bytes of each block.
    fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), StoreError> {
        let block = u64::from(self.limits.block);
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let first = at - at % block;
            let skip = (at - first) as usize;
            let longest = self.limits.request_bytes - skip;
            let (part, behind) = rest.split_at(rest.len().min(longest));
            let bytes = (at + part.len() as u64).next_multiple_of(block) - first;
            let buffer = self.store.buffer(bytes as usize);
            self.gate.alone(|| {
                let mut buffer = self.waited(|then| self.store.read(buffer, first, then))?;
                let filled = buffer.as_mut().expect("a read has a buffer").bytes_mut();
                filled[skip..skip + part.len()].copy_from_slice(part);
                let buffer = buffer.expect("a read has a buffer");
                self.waited(|then| self.store.write(buffer, first, false, then))
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
    ) -> Result<(), StoreError> {
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

    fn discard(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let block = u64::from(self.limits.block);
        let (start, end) = (offset.next_multiple_of(block), (offset + len) / block * block);
        if start < end { self.store.discard(start, end - start) } else { Ok(()) }
    }

    /// The extents of the blocks around a range, cut to it.
    fn allocation(&self, range: Range<u64>, most: usize) -> Result<Vec<StoreExtent>, StoreError> {
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

    fn flush_if(&self, durable: bool) -> Result<(), StoreError> {
        if durable { self.waited(|then| self.store.flush(then)).map(drop) } else { Ok(()) }
    }

    fn waited(&self, request: impl FnOnce(crate::store::Then)) -> Outcome {
        let (ended, end) = mpsc::channel();
        // The receiver waits below.
        request(Box::new(move |outcome| drop(ended.send(outcome))));
        end.recv().unwrap_or(Err(StoreError::Stopped))
    }
}
