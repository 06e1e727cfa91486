//! What the store's threads tell a connection's thread: a queue, and an eventfd to wake it.
//!
//! *Invariant*: no wakeup is lost. The connection's thread sets `asleep` under the lock, with the
//! queue empty, before it sleeps; a thread that puts something in and finds it set writes to the
//! eventfd.
//! The queue is bounded by the requests that the connection has in flight.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use array::{ArrayError, CompletionQueue, Lease, RequestResult};
use host::sys::EventFd;
use rustix::fd::{AsFd, BorrowedFd};

use crate::store::StoreExtent;

/// The end of a part of a request.
pub(super) struct Completion {
    /// The part's place in the connection's table.
    pub(super) part: u32,
    pub(super) result: Result<Got, ArrayError>,
}

/// What a part of a request has got.
pub(super) enum Got {
    Nothing,
    Lease(Lease),
    Extents(Vec<StoreExtent>),
}

/// How a connection is to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    /// Not at all.
    #[default]
    None,
    /// When the requests in flight have been answered.
    Drain,
    /// At once.
    Now,
}

#[derive(Default)]
struct Queue {
    done: Vec<Completion>,
    asleep: bool,
    /// Something else has changed: a share was returned, or the ending.
    nudged: bool,
    ending: Ending,
}

/// The queue of a connection; see the module documentation.
pub(super) struct Completions {
    queue: Mutex<Queue>,
    event: EventFd,
    gives_way: AtomicBool,
}

impl CompletionQueue for Completions {
    fn complete(&self, user_data: u64, result: RequestResult) {
        let result = result.map(|lease| lease.map_or(Got::Nothing, Got::Lease));
        self.put(Completion { part: user_data as u32, result });
    }
}

impl Completions {
    pub(super) fn new() -> io::Result<Completions> {
        let gives_way = AtomicBool::new(false);
        Ok(Completions { queue: Mutex::default(), event: EventFd::new()?, gives_way })
    }

    /// Whether the connection is given up where another needs what it has: its client has been
    /// negotiating, or has neither read nor sent anything, for long.
    pub(super) fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Relaxed)
    }

    pub(super) fn set_gives_way(&self, gives_way: bool) {
        self.gives_way.store(gives_way, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("the queue lock is not poisoned")
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let mut queue = self.lock();
        change(&mut queue);
        let ring = std::mem::take(&mut queue.asleep);
        drop(queue);
        if ring {
            self.event.signal();
        }
    }

    /// Adds a completion.
    pub(super) fn put(&self, completion: Completion) {
        self.change(|queue| queue.done.push(completion));
    }

    /// Wakes the connection's thread, to look at shares again.
    pub(super) fn nudge(&self) {
        self.change(|queue| queue.nudged = true);
    }

    /// Makes the connection end; an earlier order to end sooner stays.
    pub(super) fn end(&self, ending: Ending) {
        self.change(|queue| {
            queue.nudged = true;
            queue.ending = queue.ending.max(ending);
        });
    }

    /// Moves all completions to `into`, and says how the connection is to end.
    pub(super) fn take(&self, into: &mut Vec<Completion>) -> Ending {
        let mut queue = self.lock();
        queue.nudged = false;
        into.append(&mut queue.done);
        queue.ending
    }

    /// Whether the caller may sleep until the eventfd is readable; it must call
    /// [`Completions::awake`] afterwards.
    pub(super) fn fall_asleep(&self) -> bool {
        let mut queue = self.lock();
        queue.asleep = queue.done.is_empty() && !queue.nudged;
        queue.asleep
    }

    /// The caller is awake. `readable`: the eventfd is, and is reset. A thread that found the
    /// caller asleep may write to it only later, and ends the next sleep.
    pub(super) fn awake(&self, readable: bool) {
        self.lock().asleep = false;
        if readable {
            self.event.reset();
        }
    }

    pub(super) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goes to sleep as a connection does, without waiting; returns whether it was woken.
    fn sleeps_and_is_woken(completions: &Completions) -> bool {
        assert!(completions.fall_asleep());
        let readable = completions.event.is_readable();
        completions.awake(readable);
        readable
    }

    #[test]
    fn a_wake_up_that_comes_late_ends_one_sleep() {
        let completions = Completions::new().expect("an eventfd");
        assert!(completions.fall_asleep());
        // A completion is in, and its thread is about to write; the socket wakes the connection.
        assert!(std::mem::take(&mut completions.lock().asleep));
        completions.awake(false);
        completions.event.signal();
        let woken = (0..10).filter(|_| sleeps_and_is_woken(&completions)).count();
        assert_eq!(woken, 1);
    }
}
