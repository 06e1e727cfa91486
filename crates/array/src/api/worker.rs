//! A shard, its thread, and callers, which run it for short requests while the thread sleeps.
//!
//! ```text
//!  caller --- long, or the shard is at work --> inbox --(eventfd)--> thread: submit, poll, answer
//!        \--- short, and the thread sleeps ---> submit, poll, answer: no thread is woken
//! ```
//! Invariants:
//! - The holder of the lock of the [`Worker`] runs the shard. A caller never waits for the lock.
//! - The thread releases the lock only while it sleeps, and only when nothing but the clock and
//!   callers can give the shard work.
//! - A caller leaves the thread awake if it leaves work, or work that is due before the thread's
//!   sleep ends.
//! - No wakeup is lost: the thread sets `asleep` under the inbox lock before it sleeps, and a
//!   caller that finds it set writes to the eventfd.

use std::cell::Cell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use engine::HostOp;
use host::sys::{EventFd, clock_nanos};
use md::{Level, SECTOR_BYTES, Sector};
use rustix::event::{PollFd, PollFlags};

use super::{ArrayError, Completer, RequestResult};
use crate::buf::Lease;
use crate::driver::{Completion, Driver, poll_for};
use crate::table::Table;

/// Longest sleep of an idle worker thread.
const IDLE: Duration = Duration::from_secs(1);
/// The longest request that its caller may run where it is more than one copy: waking a thread
/// takes longer than such a request.
const SHORT_SECTORS: u64 = (32 << 10) / SECTOR_BYTES;

thread_local! {
    /// The thread runs a shard for a request of its own, or ends it: a request that its queue then
    /// submits must not be run inside of it.
    static RUNS_ITS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// A request for a shard.
pub(super) struct Job {
    pub(super) op: HostOp,
    pub(super) at: Sector,
    pub(super) sectors: u64,
    pub(super) lease: Option<Lease>,
    pub(super) to: Completer,
}

/// A closure that the worker runs between two polls.
pub(super) type Call = Box<dyn FnOnce(&mut Driver) + Send>;

#[derive(Default)]
pub(super) struct Inbox {
    jobs: Vec<Job>,
    pub(super) calls: Vec<Call>,
    /// The worker sleeps, or is about to: it must be woken through the eventfd.
    asleep: bool,
    /// No more requests are accepted.
    pub(super) stopping: bool,
    /// No other shard needs this one any more.
    pub(super) leaving: bool,
    /// The metadata are to be marked clean before the end.
    pub(super) closing: bool,
    stopped: bool,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: EventFd,
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().expect("the inbox lock is not poisoned")
    }

    /// Changes the inbox and wakes the worker if it sleeps. `None` when the worker has ended.
    fn put<T>(&self, change: impl FnOnce(&mut Inbox) -> T) -> Option<T> {
        let mut inbox = self.inbox();
        if inbox.stopped {
            return None;
        }
        let result = change(&mut inbox);
        let ring = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if ring {
            self.wake.signal();
        }
        Some(result)
    }

    /// The worker does not sleep any more. A caller that found it asleep may write to the eventfd
    /// only later: then that ends the next sleep, which resets it. So it must be reset whenever it
    /// may be readable, also when `asleep` was still set.
    fn wakes(&self, may_be_readable: bool) {
        self.inbox().asleep = false;
        if may_be_readable {
            self.wake.reset();
        }
    }
}

/// Count of shards that may still have host requests.
pub(super) struct Busy {
    shards: Mutex<usize>,
    none: Condvar,
}

impl Busy {
    pub(super) fn of(shards: usize) -> Arc<Busy> {
        Arc::new(Busy { shards: Mutex::new(shards), none: Condvar::new() })
    }

    fn one_less(&self) {
        *self.shards.lock().expect("the count lock is not poisoned") -= 1;
        self.none.notify_all();
    }

    /// Waits until there is none.
    pub(super) fn wait(&self) {
        let mut shards = self.shards.lock().expect("the count lock is not poisoned");
        while *shards > 0 {
            shards = self.none.wait(shards).expect("the count lock is not poisoned");
        }
    }
}

/// Which requests their callers may run.
struct ByCallers {
    longest_read: u64,
    longest_write: u64,
}

impl ByCallers {
    fn of(driver: &Driver) -> ByCallers {
        let has_arrays = driver.leaf_counters().len() > driver.geometry().members();
        let (longest_read, longest_write) = match driver.geometry().level() {
            // One copy, at most, of what the caller has touched or will.
            Level::Linear | Level::Raid0 if !has_arrays => (u64::MAX, u64::MAX),
            Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid10 if !has_arrays => {
                (SHORT_SECTORS, SHORT_SECTORS)
            }
            // Writes that wait for the shard become whole stripes there.
            _ => (SHORT_SECTORS, 0),
        };
        ByCallers { longest_read, longest_write }
    }

    fn permit(&self, job: &Job) -> bool {
        match job.op {
            HostOp::Read => job.sectors <= self.longest_read,
            HostOp::Write { .. } => job.sectors <= self.longest_write,
            _ => false,
        }
    }
}

/// A shard for its callers.
pub(super) struct Shard {
    shared: Arc<Shared>,
    worker: Arc<Mutex<Option<Worker>>>,
    by_callers: ByCallers,
    /// Returns whether the shard left the array clean.
    thread: Option<JoinHandle<bool>>,
}

impl Shard {
    /// A shard whose thread is not started: until then it counts as one that sleeps.
    ///
    /// # Errors
    /// When the system has no eventfd for it.
    pub(super) fn new(driver: Driver, busy: &Arc<Busy>) -> std::io::Result<Shard> {
        let shared = Arc::new(Shared { inbox: Mutex::default(), wake: EventFd::new()? });
        let by_callers = ByCallers::of(&driver);
        let worker = Worker::new(driver, shared.clone(), busy.clone());
        let worker = Arc::new(Mutex::new(Some(worker)));
        Ok(Shard { shared, worker, by_callers, thread: None })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system cannot.
    pub(super) fn start(&mut self, number: usize) -> std::io::Result<()> {
        let (shared, worker) = (self.shared.clone(), self.worker.clone());
        let thread = std::thread::Builder::new().name(format!("raidlab-shard-{number}"));
        self.thread = Some(thread.spawn(move || run(&shared, &worker))?);
        Ok(())
    }

    /// Changes the inbox and wakes the worker if it sleeps. `None` when the worker has ended.
    pub(super) fn put<T>(&self, change: impl FnOnce(&mut Inbox) -> T) -> Option<T> {
        self.shared.put(change)
    }

    /// Hands a request over. Its answer may come on any thread.
    pub(super) fn submit(&self, job: Job) {
        let mut job = Some(job);
        self.put(|inbox| inbox.jobs.extend(job.take()));
        if let Some(Job { to, .. }) = job {
            to.complete(Err(ArrayError::Stopped));
        }
    }

    /// As `submit`; a short request may be run, and answered, on the caller's thread.
    pub(super) fn submit_or_run(&self, job: Job) {
        let may_run = self.by_callers.permit(&job) && !RUNS_ITS_OWN.get();
        if may_run && let Ok(worker) = self.worker.try_lock() {
            return self.run_here(worker, job);
        }
        // It is long, or the shard is at work.
        self.submit(job);
    }

    fn run_here(&self, mut lock: MutexGuard<'_, Option<Worker>>, job: Job) {
        let Some(worker) = lock.as_mut().filter(|worker| worker.is_free()) else {
            drop(lock);
            return self.submit(job);
        };
        RUNS_ITS_OWN.set(true);
        let _ends = Ends;
        let run = AssertUnwindSafe(|| (worker.run_one(job), worker.is_due()));
        let Ok((answer, is_due)) = std::panic::catch_unwind(run) else {
            // As after a panic on the shard's thread, which finds no worker: all requests end.
            let broken = lock.take();
            drop(lock);
            return drop(broken);
        };
        // Its queue may take long, and may want the shard.
        drop(lock);
        if is_due {
            // `None`: the worker has ended, and with it everything that it had.
            let _ = self.put(|_| ());
        }
        if let Some((to, result)) = answer {
            to.complete(result);
        }
    }

    /// Waits for the thread's end; returns whether the shard left the array clean, `None` without a
    /// thread.
    pub(super) fn join(&mut self) -> Option<bool> {
        // A thread that panicked has printed the reason; its callers get [`ArrayError::Stopped`].
        self.thread.take().map(|thread| thread.join().unwrap_or(false))
    }
}

/// Ends the run of a shard on a caller's thread, also when that panics.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        RUNS_ITS_OWN.set(false);
    }
}

/// What runs a shard.
struct Worker {
    driver: Driver,
    shared: Arc<Shared>,
    busy: Arc<Busy>,
    /// The shard is no longer counted in `Busy`.
    idle: bool,
    /// When the sleep of the thread ends.
    sleeps_until: u64,
    waiting: VecDeque<Job>,
    calls: Vec<Call>,
    /// Where the driver's requests end.
    ends: Table<Completer>,
    completed: Vec<Completion>,
}

enum Turn {
    /// Something was done.
    Again,
    /// There is nothing to do now.
    Sleep,
    /// There will be nothing any more.
    End,
}

/// The thread of a shard; returns whether the shard left the array clean.
fn run(shared: &Shared, shard: &Mutex<Option<Worker>>) -> bool {
    host::sys::wait_precisely();
    host::sys::touch_stack();
    let _ends = EndOfWorker(shard);
    let Ok(mut lock) = shard.lock() else { return false };
    loop {
        // A poll has panicked on the thread of a caller.
        let Some(worker) = lock.as_mut() else { return false };
        match worker.turn() {
            Turn::Again => continue,
            Turn::Sleep if worker.falls_asleep() => {}
            Turn::Sleep => continue,
            Turn::End => {
                let closing = shared.inbox().closing;
                return !closing || worker.driver.stop();
            }
        }
        let mut may_be_readable = true;
        if !worker.driver.waits_for_clock_only() {
            worker.driver.wait(IDLE, Some(shared.wake.as_fd()));
        } else if let Some(until) = worker.driver.next_work(IDLE) {
            worker.sleeps_until = until;
            drop(lock);
            let mut fds = [PollFd::from_borrowed_fd(shared.wake.as_fd(), PollFlags::IN)];
            poll_for(&mut fds, Duration::from_nanos(until.saturating_sub(clock_nanos())));
            may_be_readable = fds[0].revents().contains(PollFlags::IN);
            let Ok(again) = shard.lock() else { return false };
            lock = again;
        }
        shared.wakes(may_be_readable);
    }
}

/// Takes the worker out and drops it, so that its requests end: also when a poll has panicked.
struct EndOfWorker<'a>(&'a Mutex<Option<Worker>>);

impl Drop for EndOfWorker<'_> {
    fn drop(&mut self) {
        let worker = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(worker);
    }
}

impl Worker {
    fn new(driver: Driver, shared: Arc<Shared>, busy: Arc<Busy>) -> Worker {
        Worker {
            driver,
            shared,
            busy,
            idle: false,
            sleeps_until: 0,
            waiting: VecDeque::new(),
            calls: Vec::new(),
            ends: Table::new(),
            completed: Vec::new(),
        }
    }

    /// Does everything that can be done now.
    fn turn(&mut self) -> Turn {
        let (stopping, leaving) = self.fetch();
        for call in self.calls.drain(..) {
            call(&mut self.driver);
        }
        self.feed();
        self.driver.poll(&mut self.completed);
        if !self.completed.is_empty() {
            self.report();
            return Turn::Again;
        }
        if stopping && !self.has_requests() && !self.idle {
            self.idle = true;
            self.busy.one_less();
        }
        if leaving && self.idle { Turn::End } else { Turn::Sleep }
    }

    fn has_requests(&self) -> bool {
        !self.waiting.is_empty() || !self.ends.is_empty()
    }

    /// Whether a caller may run a request: the shard has none, and waits for nothing else.
    fn is_free(&self) -> bool {
        let inbox = self.shared.inbox();
        let wanted = inbox.stopping || !inbox.jobs.is_empty() || !inbox.calls.is_empty();
        !wanted && !self.has_requests() && self.driver.waits_for_clock_only()
    }

    /// Runs the only request of the shard as far as that goes now; returns its answer if it ended.
    fn run_one(&mut self, job: Job) -> Option<(Completer, RequestResult)> {
        self.waiting.push_back(job);
        self.feed();
        self.driver.poll(&mut self.completed);
        let Completion { tag, result, lease } = self.completed.pop()?;
        debug_assert!(self.completed.is_empty(), "the shard had no other request");
        let to = self.ends.remove(tag as u32);
        Some((to, result.map(|()| lease).map_err(ArrayError::Request)))
    }

    /// Whether the shard has work before its thread's sleep ends.
    fn is_due(&mut self) -> bool {
        let end = self.sleeps_until;
        self.has_requests() || self.driver.next_work(IDLE).is_none_or(|at| at < end)
    }

    /// Takes submitted requests from the inbox; returns whether to stop, and whether to end the
    /// thread.
    fn fetch(&mut self) -> (bool, bool) {
        let mut inbox = self.shared.inbox();
        self.waiting.extend(inbox.jobs.drain(..));
        self.calls.append(&mut inbox.calls);
        (inbox.stopping, inbox.leaving)
    }

    /// Whether the thread may sleep, until members, the clock or callers end that; not when the
    /// inbox has changed.
    fn falls_asleep(&self) -> bool {
        let mut inbox = self.shared.inbox();
        let woken = match self.idle {
            false => inbox.stopping && !self.has_requests(),
            true => inbox.leaving,
        };
        inbox.asleep = !woken && inbox.jobs.is_empty() && inbox.calls.is_empty();
        inbox.asleep
    }

    fn feed(&mut self) {
        while self.driver.room() > 0 {
            let Some(job) = self.waiting.pop_front() else { return };
            let Job { op, at, sectors, lease, to } = job;
            let tag = u64::from(self.ends.insert(to));
            let submitted = self.driver.submit(op, at, sectors, lease, tag);
            assert!(submitted.is_ok(), "there is room");
        }
    }

    fn report(&mut self) {
        for Completion { tag, result, lease } in self.completed.drain(..) {
            let to = self.ends.remove(tag as u32);
            to.complete(result.map(|()| lease).map_err(ArrayError::Request));
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
        let ends: Vec<Completer> = left.map(|job| job.to).chain(self.ends.drain()).collect();
        drop(inbox);
        ends.into_iter().for_each(|to| to.complete(Err(ArrayError::Stopped)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeps_and_is_woken(shared: &Shared) -> bool {
        shared.inbox().asleep = true;
        let readable = shared.wake.is_readable();
        shared.wakes(readable);
        readable
    }

    #[test]
    fn a_wake_up_that_comes_late_ends_one_sleep() {
        let wake = EventFd::new().expect("an eventfd");
        let shared = Shared { inbox: Mutex::default(), wake };
        shared.inbox().asleep = true;
        // A request is in, and its caller is about to write; the clock wakes the thread.
        assert!(std::mem::take(&mut shared.inbox().asleep));
        shared.wakes(false);
        shared.wake.signal();
        assert_eq!((0..10).filter(|_| sleeps_and_is_woken(&shared)).count(), 1);
    }
}
