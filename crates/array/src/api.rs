//! An array in threads of its own, one for each shard, for programs: blocking calls, and futures for
//! any executor.
//!
//! Invariant: a request that was handed over ends with a result, also when the array is stopped:
//! what is under way then is finished first. Callers and a thread share an inbox; nothing else.
//! Nobody sleeps on what is in the inbox: the thread says under its lock that it goes to sleep, and
//! whoever hands something over then rings the bell. A request goes to the shard that owns its first
//! sector.
//!
//! An array ends in this order: all shards are idle; the first one stops (metadata, which the others
//! must hear of and answer); the others end.

use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use engine::{HostOp, MAX_REQUEST_SECTORS, RequestError, Sharding};
use md::{Geometry, MemberIdx, SECTOR_BYTES, Sector};
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;

use crate::buf::{Lease, LeasePool};
use crate::build::{ArraySpec, BuildError};
use crate::driver::{Completion, Driver, DriverOptions};
use crate::executor::Event;
use crate::member::{Counters, MemberInfo};
use crate::table::Table;

/// How long the thread sleeps at most without anything to do.
const IDLE: Duration = Duration::from_secs(1);

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayError {
    /// The array could not serve or keep the range.
    Request(RequestError),
    /// Offset or length is not a multiple of the array's logical block, or outside the array.
    Range {
        /// First byte that was asked for.
        offset: u64,
        /// How many.
        len: usize,
        /// The array's size in bytes.
        array_bytes: u64,
        /// What both must be multiples of, in bytes.
        block: u32,
    },
    /// The array has been stopped.
    Stopped,
    /// The array has been stopped, but the next start finds it as a crash would leave it.
    Unclean,
}

impl std::fmt::Display for ArrayError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ArrayError::Request(error) => error.fmt(f),
            ArrayError::Range { offset, len, array_bytes, block } => write!(
                f,
                "{len} bytes at {offset}: the array has {array_bytes} bytes in blocks of {block}"
            ),
            ArrayError::Stopped => f.write_str("the array has been stopped"),
            ArrayError::Unclean => f.write_str(
                "the array has been stopped, but its metadata cannot say so: the next start finds \
                 it as after a crash",
            ),
        }
    }
}

impl std::error::Error for ArrayError {}

/// What a caller and the thread know of one request.
#[derive(Default)]
struct Ticket {
    state: Mutex<TicketState>,
    ended: Condvar,
}

/// How a request ended, with its lease if it had one.
type Outcome = Result<Option<Lease>, ArrayError>;

#[derive(Default)]
struct TicketState {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
    /// Takes the outcome instead of somebody who waits for it.
    then: Option<Box<dyn FnOnce(Outcome) + Send>>,
}

impl Ticket {
    fn end(&self, outcome: Outcome) {
        let mut state = self.state.lock().expect("the ticket lock is not poisoned");
        if let Some(then) = state.then.take() {
            drop(state);
            return then(outcome);
        }
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        self.ended.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request under way: wait for it, or await it. It gives the lease back. Dropping it lets the
/// request go on; its lease then returns to the pool.
#[must_use = "a request ends only when somebody waits for it or awaits it"]
pub struct Pending(Arc<Ticket>);

impl Pending {
    /// Blocks until the request has ended.
    ///
    /// # Errors
    /// What the request ended with.
    pub fn wait(self) -> Result<Lease, ArrayError> {
        Ok(self.wait_any()?.expect("reads and writes have a lease"))
    }

    fn wait_any(self) -> Outcome {
        let mut state = self.0.state.lock().expect("the ticket lock is not poisoned");
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            state = self.0.ended.wait(state).expect("the ticket lock is not poisoned");
        }
    }
}

impl Future for Pending {
    type Output = Result<Lease, ArrayError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock().expect("the ticket lock is not poisoned");
        match state.outcome.take() {
            Some(outcome) => {
                Poll::Ready(outcome.map(|lease| lease.expect("reads and writes have a lease")))
            }
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

struct Job {
    op: HostOp,
    at: Sector,
    sectors: u64,
    lease: Option<Lease>,
    ticket: Arc<Ticket>,
}

/// Something that the thread does between two polls.
type Call = Box<dyn FnOnce(&mut Driver) + Send>;

#[derive(Default)]
struct Inbox {
    jobs: Vec<Job>,
    calls: Vec<Call>,
    /// The thread waits, or is about to: it wants the bell.
    asleep: bool,
    /// No more jobs come.
    stopping: bool,
    /// No other shard needs this one any more.
    leaving: bool,
    /// The metadata are to be made clean before the end.
    closing: bool,
    stopped: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("the inbox lock is not poisoned")
    }

    /// Changes the inbox and wakes the thread if it sleeps. Gives `None` when it has ended.
    fn put<T>(&self, change: impl FnOnce(&mut Inbox) -> T) -> Option<T> {
        let mut inbox = self.inbox();
        if inbox.stopped {
            return None;
        }
        let result = change(&mut inbox);
        let ring = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if ring {
            // A full counter is a bell that rings already.
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
        Some(result)
    }
}

/// Shards that may still have requests of hosts.
struct Busy {
    shards: Mutex<usize>,
    none: Condvar,
}

impl Busy {
    fn one_less(&self) {
        *self.shards.lock().expect("the count lock is not poisoned") -= 1;
        self.none.notify_all();
    }

    fn wait(&self) {
        let mut shards = self.shards.lock().expect("the count lock is not poisoned");
        while *shards > 0 {
            shards = self.none.wait(shards).expect("the count lock is not poisoned");
        }
    }
}

struct ShardThread {
    shared: Arc<Shared>,
    /// Ends with whether it leaves the array clean.
    thread: Option<std::thread::JoinHandle<bool>>,
}

/// See the module.
pub struct Array {
    shards: Vec<ShardThread>,
    busy: Arc<Busy>,
    sharding: Sharding,
    leases: LeasePool,
    geometry: Geometry,
    info: MemberInfo,
    leaves: usize,
}

impl Array {
    /// Puts an array together and starts its threads, [`DriverOptions::shards`] of them.
    ///
    /// # Errors
    /// When the specification cannot work, or the system lacks what it needs.
    pub fn start(spec: ArraySpec, options: &DriverOptions) -> Result<Array, BuildError> {
        Array::run_shards(Driver::shards(spec, options)?)
    }

    /// Gives an array that was put together (see [`crate::run`]) its thread.
    ///
    /// # Errors
    /// When the system lacks what it needs.
    pub fn run(driver: Driver) -> Result<Array, BuildError> {
        Array::run_shards(vec![driver])
    }

    /// Gives every shard of an array (see [`Driver::shards`]) its thread.
    ///
    /// # Errors
    /// When the system lacks what it needs.
    ///
    /// # Panics
    /// Without a shard.
    pub fn run_shards(shards: Vec<Driver>) -> Result<Array, BuildError> {
        let system = |doing| move |source| BuildError::System { doing, source };
        let first = shards.first().expect("an array has a shard");
        let mut array = Array {
            leases: first.leases().clone(),
            geometry: first.geometry().clone(),
            sharding: first.sharding(),
            info: first.info(),
            leaves: first.leaf_counters().len(),
            busy: Arc::new(Busy { shards: Mutex::new(shards.len()), none: Condvar::new() }),
            shards: Vec::new(),
        };
        // All of them before the first thread: a worker that never runs counts as idle.
        let mut workers = Vec::new();
        for driver in shards {
            let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let wake = wake.map_err(|error| system("make an eventfd")(error.into()))?;
            let shared = Arc::new(Shared { inbox: Mutex::new(Inbox::default()), wake });
            workers.push(Worker::new(driver, shared, array.busy.clone()));
        }
        for (number, worker) in workers.into_iter().enumerate() {
            let shared = worker.shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("raidlab-shard-{number}"))
                .spawn(move || worker.run())
                .map_err(system("start the array's thread"))?;
            array.shards.push(ShardThread { shared, thread: Some(thread) });
        }
        Ok(array)
    }

    /// The array's shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Its size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.info.sectors * SECTOR_BYTES
    }

    /// What offsets and lengths must be multiples of, in bytes.
    pub fn logical_block(&self) -> u32 {
        self.info.logical_block
    }

    /// A buffer of `len` bytes; blocks while all of the array's buffers are out. A task of an
    /// executor that holds some of them itself should use [`Array::try_lease`].
    ///
    /// # Panics
    /// When `len` is more than the buffers hold (`DriverOptions::lease_bytes`).
    pub fn lease(&self, len: usize) -> Lease {
        self.leases.wait(len)
    }

    /// A buffer of `len` bytes, or `None` while all of the array's buffers are out.
    ///
    /// # Panics
    /// When `len` is more than the buffers hold (`DriverOptions::lease_bytes`).
    pub fn try_lease(&self, len: usize) -> Option<Lease> {
        self.leases.take(len)
    }

    /// Reads `lease.len()` bytes at byte `offset` into the lease.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn read(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Read, offset, Some(lease), 0)
    }

    /// Writes the lease's bytes at byte `offset`.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn write(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Write { fua: false }, offset, Some(lease), 0)
    }

    /// Like [`Array::write`], and durable when it ends.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn write_fua(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Write { fua: true }, offset, Some(lease), 0)
    }

    /// Hands a request over and has `then` called with its end, for fronts that answer many clients
    /// without a thread for each. Reads and writes bring a lease of their length, which comes back;
    /// other requests say how many `bytes` they are about (none for a flush).
    ///
    /// `then` runs on a thread of the array, or on the caller's where the request is refused at
    /// once. The array stands still meanwhile: it must not block, and must not drop the array.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn request(
        &self,
        op: HostOp,
        offset: u64,
        bytes: u64,
        lease: Option<Lease>,
        then: impl FnOnce(Result<Option<Lease>, ArrayError>) + Send + 'static,
    ) {
        let ticket = Ticket::default();
        ticket.state.lock().expect("it is new").then = Some(Box::new(then));
        if op != HostOp::Flush
            && lease.is_none()
            && let Err(error) = self.check(offset, bytes as usize)
        {
            return ticket.end(Err(error));
        }
        // Nobody waits for it: `then` takes the outcome.
        drop(self.hand_over_as(ticket, op, offset, lease, bytes / SECTOR_BYTES));
    }

    /// The longest read or write, in bytes: what a lease holds.
    pub fn max_request_bytes(&self) -> usize {
        self.part_bytes()
    }

    /// Whether a discarded range is sure to read as zeroes.
    pub fn discard_zeroes(&self) -> bool {
        self.info.discard_zeroes
    }

    /// Fills `buf` from byte `offset`; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), ArrayError> {
        self.check(offset, buf.len())?;
        let mut at = offset;
        for part in buf.chunks_mut(self.part_bytes()) {
            let lease = self.read(self.lease(part.len()), at).wait()?;
            part.copy_from_slice(lease.bytes());
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes `buf` at byte `offset`; blocks. Readable by everybody when it returns, durable after
    /// [`Array::flush`].
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), ArrayError> {
        self.check(offset, buf.len())?;
        let mut at = offset;
        for part in buf.chunks(self.part_bytes()) {
            let mut lease = self.lease(part.len());
            lease.bytes_mut().copy_from_slice(part);
            self.write(lease, at).wait()?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes everything durable that has been written; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn flush(&self) -> Result<(), ArrayError> {
        self.hand_over(HostOp::Flush, 0, None, 0).wait_any().map(drop)
    }

    /// Makes a range read as zeroes; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), ArrayError> {
        self.each_range(HostOp::WriteZeroes, offset, len)
    }

    /// Says that a range is not needed any more; blocks. Its contents are undefined afterwards.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), ArrayError> {
        self.each_range(HostOp::Discard, offset, len)
    }

    /// Takes a member out of service, as `mdadm --fail` does. An array that cannot do without it
    /// keeps it. Whatever is asked afterwards finds it gone.
    pub fn fail_member(&self, member: MemberIdx) {
        self.call(0, move |driver| driver.fail_member(member));
    }

    /// Members out of service.
    pub fn failed(&self) -> engine::MemberSet {
        self.call(0, |driver| driver.failed()).unwrap_or_default()
    }

    /// What every leaf has moved.
    pub fn leaf_counters(&self) -> Vec<Counters> {
        let mut all = vec![Counters::default(); self.leaves];
        for shard in 0..self.shards.len() {
            let counters = self.call(shard, |driver| driver.leaf_counters()).unwrap_or_default();
            all.iter_mut().zip(&counters).for_each(|(sum, shard)| sum.add(shard));
        }
        all
    }

    /// What has happened to members since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        let mut all: Vec<Event> = Vec::new();
        for shard in 0..self.shards.len() {
            for event in self.call(shard, Driver::take_events).unwrap_or_default() {
                let same = |other: &Event| match (other, &event) {
                    (Event::MemberFailed { member: a, .. }, Event::MemberFailed { member, .. }) => {
                        a == member
                    }
                    _ => false,
                };
                // Two shards may have found out at once.
                if !all.iter().any(same) {
                    all.push(event);
                }
            }
        }
        all
    }

    /// Has a shard's thread do something between two polls, and waits for the answer; `None` when
    /// the thread has ended.
    fn call<T: Send + 'static>(
        &self,
        shard: usize,
        call: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        // Nobody waits for the answer only when the caller is gone.
        let call: Call = Box::new(move |driver| drop(answer.send(call(driver))));
        self.shards[shard].shared.put(|inbox| inbox.calls.push(call))?;
        answered.recv().ok()
    }

    /// What the array's metadata say; `None` for an array without any.
    pub fn metadata(&self) -> Option<engine::MetadataStatus> {
        self.call(0, |driver| driver.metadata()).flatten()
    }

    /// What has gone wrong with metadata since the last call: sentences.
    pub fn take_notes(&self) -> Vec<String> {
        self.call(0, Driver::take_notes).unwrap_or_default()
    }

    /// Finishes what is under way, flushes, makes the metadata clean, and ends the thread. An array
    /// that is dropped instead leaves its metadata as a crash would.
    ///
    /// # Errors
    /// When the flush fails; [`ArrayError::Unclean`] when the metadata cannot be made clean.
    pub fn stop(mut self) -> Result<(), ArrayError> {
        let flushed = self.flush();
        self.shards[0].shared.put(|inbox| inbox.closing = flushed.is_ok());
        let clean = self.end_threads();
        flushed.and(if clean { Ok(()) } else { Err(ArrayError::Unclean) })
    }

    /// Says whether the array was stopped and is clean.
    fn end_threads(&mut self) -> bool {
        if self.shards.is_empty() {
            // Not even one thread could be started.
            return false;
        }
        for shard in &self.shards {
            shard.shared.put(|inbox| inbox.stopping = true);
        }
        self.busy.wait();
        // The first one, while the others still answer it; then the others.
        let mut clean = true;
        let (first, others) = self.shards.split_at_mut(1);
        for shards in [first, others] {
            for shard in shards.iter() {
                shard.shared.put(|inbox| inbox.leaving = true);
            }
            for thread in shards.iter_mut().filter_map(|shard| shard.thread.take()) {
                // A thread that panicked has printed why; its callers find the array stopped.
                clean &= thread.join().unwrap_or(false);
            }
        }
        clean
    }

    fn part_bytes(&self) -> usize {
        self.leases.lease_bytes().min((MAX_REQUEST_SECTORS * SECTOR_BYTES) as usize)
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), ArrayError> {
        let block = u64::from(self.info.logical_block);
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len_bytes());
        if inside && offset.is_multiple_of(block) && (len as u64).is_multiple_of(block) {
            return Ok(());
        }
        let (array_bytes, block) = (self.len_bytes(), self.info.logical_block);
        Err(ArrayError::Range { offset, len, array_bytes, block })
    }

    fn each_range(&self, op: HostOp, offset: u64, len: u64) -> Result<(), ArrayError> {
        self.check(offset, len as usize)?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let part = (end - at).min(MAX_REQUEST_SECTORS * SECTOR_BYTES);
            self.hand_over(op, at, None, part / SECTOR_BYTES).wait_any()?;
            at += part;
        }
        Ok(())
    }

    fn hand_over(&self, op: HostOp, offset: u64, lease: Option<Lease>, sectors: u64) -> Pending {
        self.hand_over_as(Ticket::default(), op, offset, lease, sectors)
    }

    fn hand_over_as(
        &self,
        ticket: Ticket,
        op: HostOp,
        offset: u64,
        lease: Option<Lease>,
        sectors: u64,
    ) -> Pending {
        let ticket = Arc::new(ticket);
        let pending = Pending(ticket.clone());
        if let Some(lease) = &lease {
            assert!(lease.is_of(&self.leases), "the lease is of another array");
            if let Err(error) = self.check(offset, lease.len()) {
                ticket.end(Err(error));
                return pending;
            }
        }
        let sectors = lease.as_ref().map_or(sectors, |lease| lease.len() as u64 / SECTOR_BYTES);
        if sectors > MAX_REQUEST_SECTORS {
            ticket.end(Err(ArrayError::Request(RequestError::Invalid)));
            return pending;
        }
        let job = Job { op, at: Sector(offset / SECTOR_BYTES), sectors, lease, ticket };
        let shard = match op {
            HostOp::Flush => 0,
            _ => self.sharding.shard_of(Sector(offset / SECTOR_BYTES)),
        };
        let shared = &self.shards[usize::from(shard)].shared;
        if shared.put(|inbox| inbox.jobs.push(job)).is_none() {
            pending.0.end(Err(ArrayError::Stopped));
        }
        pending
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// A thread's side.
struct Worker {
    driver: Driver,
    shared: Arc<Shared>,
    busy: Arc<Busy>,
    /// It has said that it is not busy any more.
    idle: bool,
    waiting: VecDeque<Job>,
    calls: Vec<Call>,
    tickets: Table<Arc<Ticket>>,
    completed: Vec<Completion>,
}

impl Worker {
    fn new(driver: Driver, shared: Arc<Shared>, busy: Arc<Busy>) -> Worker {
        Worker {
            driver,
            shared,
            busy,
            idle: false,
            waiting: VecDeque::new(),
            calls: Vec::new(),
            tickets: Table::new(),
            completed: Vec::new(),
        }
    }

    /// Says whether the array is clean, as far as this shard is asked.
    fn run(mut self) -> bool {
        crate::clock::wait_precisely();
        loop {
            let (stopping, leaving) = self.fetch();
            for call in self.calls.drain(..) {
                call(&mut self.driver);
            }
            self.feed();
            self.driver.poll(&mut self.completed);
            if !self.completed.is_empty() {
                self.report();
                continue;
            }
            if stopping && !self.has_requests() && !self.idle {
                self.idle = true;
                self.busy.one_less();
            }
            if leaving && self.idle {
                let closing = self.shared.inbox().closing;
                return !closing || self.driver.stop();
            }
            self.sleep();
        }
    }

    fn has_requests(&self) -> bool {
        !self.waiting.is_empty() || !self.tickets.is_empty()
    }

    /// Takes what callers have handed over; says whether they want to stop, and to end the thread.
    fn fetch(&mut self) -> (bool, bool) {
        let mut inbox = self.shared.inbox();
        self.waiting.extend(inbox.jobs.drain(..));
        self.calls.append(&mut inbox.calls);
        (inbox.stopping, inbox.leaving)
    }

    /// Waits for members, the clock or callers; not at all when a caller was here meanwhile.
    fn sleep(&mut self) {
        let mut inbox = self.shared.inbox();
        let woken = match self.idle {
            false => inbox.stopping && !self.has_requests(),
            true => inbox.leaving,
        };
        if woken || !inbox.jobs.is_empty() || !inbox.calls.is_empty() {
            return;
        }
        inbox.asleep = true;
        drop(inbox);
        self.driver.wait(IDLE, Some(self.shared.wake.as_fd()));
        self.shared.inbox().asleep = false;
        // Silences the bell. One that rings only now wakes the next sleep once: no harm.
        let _ = rustix::io::read(&self.shared.wake, &mut [0; 8]);
    }

    fn feed(&mut self) {
        while self.driver.room() > 0 {
            let Some(job) = self.waiting.pop_front() else { return };
            let Job { op, at, sectors, lease, ticket } = job;
            let tag = u64::from(self.tickets.insert(ticket));
            let submitted = self.driver.submit(op, at, sectors, lease, tag);
            assert!(submitted.is_ok(), "there is room");
        }
    }

    fn report(&mut self) {
        for Completion { tag, result, lease } in self.completed.drain(..) {
            let ticket = self.tickets.remove(tag as u32);
            ticket.end(result.map(|()| lease).map_err(ArrayError::Request));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.idle {
            self.busy.one_less();
        }
        let mut inbox = self.shared.inbox();
        inbox.stopped = true;
        inbox.calls.clear();
        let left = inbox.jobs.drain(..).chain(self.waiting.drain(..));
        let tickets: Vec<_> = left.map(|job| job.ticket).chain(self.tickets.drain()).collect();
        drop(inbox);
        tickets.into_iter().for_each(|ticket| ticket.end(Err(ArrayError::Stopped)));
    }
}
