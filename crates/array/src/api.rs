//! An array in a thread of its own, for programs: blocking calls, and futures for any executor.
//!
//! Invariant: a request that was handed over ends with a result, also when the array is stopped: what
//! is under way then is finished first. Callers and the thread share an inbox; nothing else.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use engine::{HostOp, MAX_REQUEST_SECTORS, RequestError};
use md::{Geometry, MemberIdx, SECTOR_BYTES, Sector};
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;

use crate::buf::{Lease, LeasePool};
use crate::build::{ArraySpec, BuildError};
use crate::core::Event;
use crate::driver::{Completion, Driver, DriverOptions, Full};
use crate::member::{Counters, Facts};

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

#[derive(Default)]
struct TicketState {
    outcome: Option<Result<Option<Lease>, ArrayError>>,
    waker: Option<Waker>,
}

impl Ticket {
    fn end(&self, outcome: Result<Option<Lease>, ArrayError>) {
        let mut state = self.state.lock().expect("nobody panics with a ticket");
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

    fn wait_any(self) -> Result<Option<Lease>, ArrayError> {
        let mut state = self.0.state.lock().expect("nobody panics with a ticket");
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            state = self.0.ended.wait(state).expect("nobody panics with a ticket");
        }
    }
}

impl Future for Pending {
    type Output = Result<Lease, ArrayError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock().expect("nobody panics with a ticket");
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

#[derive(Default)]
struct Inbox {
    jobs: Vec<Job>,
    fail: Vec<MemberIdx>,
    stopping: bool,
    stopped: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
    counters: Mutex<(Vec<Counters>, engine::MemberSet, Vec<Event>)>,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("nobody panics with the inbox")
    }

    fn ring_the_bell(&self) {
        // A full counter is a bell that rings already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// See the module.
pub struct Array {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    leases: LeasePool,
    geometry: Geometry,
    facts: Facts,
}

impl Array {
    /// Puts an array together and starts its thread.
    ///
    /// # Errors
    /// When the specification cannot work, or the system lacks what it needs.
    pub fn start(spec: ArraySpec, options: &DriverOptions) -> Result<Array, BuildError> {
        let driver = Driver::new(spec, options)?;
        let system = |doing| move |source| BuildError::System { doing, source };
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("make an eventfd")(error.into()))?;
        let counters = (driver.leaf_counters(), driver.failed(), Vec::new());
        let shared = Arc::new(Shared {
            inbox: Mutex::new(Inbox::default()),
            wake,
            counters: Mutex::new(counters),
        });
        let (leases, geometry) = (driver.leases().clone(), driver.geometry().clone());
        let facts = driver.facts();
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("raidlab-shard-0".into())
            .spawn(move || Worker::new(driver, for_thread).run())
            .map_err(system("start the array's thread"))?;
        Ok(Array { shared, thread: Some(thread), leases, geometry, facts })
    }

    /// The array's shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Its size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.facts.sectors * SECTOR_BYTES
    }

    /// What offsets and lengths must be multiples of, in bytes.
    pub fn logical_block(&self) -> u32 {
        self.facts.logical_block
    }

    /// A buffer of `len` bytes; waits while all of the array's buffers are out.
    ///
    /// # Panics
    /// When `len` is more than the buffers hold (`DriverOptions::lease_bytes`).
    pub fn lease(&self, len: usize) -> Lease {
        loop {
            if let Some(lease) = self.leases.take(len) {
                return lease;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Reads `lease.len()` bytes at byte `offset` into the lease.
    pub fn read(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Read, offset, Some(lease), 0)
    }

    /// Writes the lease's bytes at byte `offset`.
    pub fn write(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Write { fua: false }, offset, Some(lease), 0)
    }

    /// Like [`Array::write`], and durable when it ends.
    pub fn write_fua(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Write { fua: true }, offset, Some(lease), 0)
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
    /// keeps it.
    pub fn fail_member(&self, member: MemberIdx) {
        self.shared.inbox().fail.push(member);
        self.shared.ring_the_bell();
        // A request that waits for nothing: when it has ended, the order has been carried out.
        let _ = self.flush();
    }

    /// Members out of service, as of the last completed request.
    pub fn failed(&self) -> engine::MemberSet {
        self.shared.counters.lock().expect("nobody panics with the counters").1
    }

    /// What every leaf has moved, as of the last completed request.
    pub fn leaf_counters(&self) -> Vec<Counters> {
        self.shared.counters.lock().expect("nobody panics with the counters").0.clone()
    }

    /// What has happened to members since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.counters.lock().expect("nobody panics with these").2)
    }

    /// Finishes what is under way, flushes, and ends the thread.
    ///
    /// # Errors
    /// When the flush fails.
    pub fn stop(mut self) -> Result<(), ArrayError> {
        let flushed = self.flush();
        self.end_thread();
        flushed
    }

    fn end_thread(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.shared.inbox().stopping = true;
            self.shared.ring_the_bell();
            // A thread that panicked has printed why; its callers find the array stopped.
            let _ = thread.join();
        }
    }

    fn part_bytes(&self) -> usize {
        self.leases.lease_bytes().min((MAX_REQUEST_SECTORS * SECTOR_BYTES) as usize)
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), ArrayError> {
        let block = u64::from(self.facts.logical_block);
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len_bytes());
        if inside && offset % block == 0 && len as u64 % block == 0 {
            return Ok(());
        }
        let (array_bytes, block) = (self.len_bytes(), self.facts.logical_block);
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
        let ticket = Arc::new(Ticket::default());
        let pending = Pending(ticket.clone());
        if let Some(lease) = &lease {
            if let Err(error) = self.check(offset, lease.len()) {
                ticket.end(Err(error));
                return pending;
            }
        }
        let sectors = lease.as_ref().map_or(sectors, |lease| lease.len() as u64 / SECTOR_BYTES);
        let job = Job { op, at: Sector(offset / SECTOR_BYTES), sectors, lease, ticket };
        let mut inbox = self.shared.inbox();
        if inbox.stopped {
            job.ticket.end(Err(ArrayError::Stopped));
            return pending;
        }
        inbox.jobs.push(job);
        drop(inbox);
        self.shared.ring_the_bell();
        pending
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.end_thread();
    }
}

/// The thread's side.
struct Worker {
    driver: Driver,
    shared: Arc<Shared>,
    waiting: std::collections::VecDeque<Job>,
    tickets: Vec<Option<Arc<Ticket>>>,
    free: Vec<u32>,
    under_way: usize,
    completed: Vec<Completion>,
}

impl Worker {
    fn new(driver: Driver, shared: Arc<Shared>) -> Worker {
        Worker {
            driver,
            shared,
            waiting: std::collections::VecDeque::new(),
            tickets: Vec::new(),
            free: Vec::new(),
            under_way: 0,
            completed: Vec::new(),
        }
    }

    fn run(mut self) {
        loop {
            let stopping = self.fetch();
            self.feed();
            self.driver.poll(&mut self.completed);
            if !self.completed.is_empty() {
                self.report();
                continue;
            }
            if stopping && self.waiting.is_empty() && self.under_way == 0 {
                return;
            }
            self.driver.wait(IDLE, Some(self.shared.wake.as_fd()));
        }
    }

    /// Takes what callers have handed over; says whether they want to stop.
    fn fetch(&mut self) -> bool {
        let mut counter = [0; 8];
        // Nothing to read means that the bell has not rung.
        let _ = rustix::io::read(&self.shared.wake, &mut counter);
        let mut inbox = self.shared.inbox();
        self.waiting.extend(inbox.jobs.drain(..));
        for member in inbox.fail.drain(..) {
            self.driver.fail_member(member);
        }
        inbox.stopping
    }

    fn feed(&mut self) {
        while let Some(job) = self.waiting.pop_front() {
            let Job { op, at, sectors, lease, ticket } = job;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.tickets.push(None);
                self.tickets.len() as u32 - 1
            });
            match self.driver.submit(op, at, sectors, lease, u64::from(slot)) {
                Ok(()) => {
                    self.tickets[slot as usize] = Some(ticket);
                    self.under_way += 1;
                }
                Err(Full(lease)) => {
                    self.free.push(slot);
                    self.waiting.push_front(Job { op, at, sectors, lease, ticket });
                    return;
                }
            }
        }
    }

    fn report(&mut self) {
        let mut counters = self.shared.counters.lock().expect("nobody panics with the counters");
        counters.0 = self.driver.leaf_counters();
        counters.1 = self.driver.failed();
        counters.2.extend(self.driver.take_events());
        drop(counters);
        for Completion { tag, result, lease } in self.completed.drain(..) {
            let ticket = self.tickets[tag as usize].take().expect("a ticket ends once");
            self.free.push(tag as u32);
            self.under_way -= 1;
            ticket.end(result.map(|()| lease).map_err(ArrayError::Request));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let mut inbox = self.shared.inbox();
        inbox.stopped = true;
        let left = inbox.jobs.drain(..).chain(self.waiting.drain(..));
        let tickets = left.map(|job| job.ticket).chain(self.tickets.drain(..).flatten());
        tickets.for_each(|ticket| ticket.end(Err(ArrayError::Stopped)));
    }
}
