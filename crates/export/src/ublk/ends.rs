//! Requests of a queue that have ended, from the store's threads to the thread of the queue.
//!
//! *Invariant*: the bell rings after an end was put into an empty list, so that none is left there.
//! The list is bounded by the requests of the queue.

use std::io;
use std::sync::{Mutex, MutexGuard};

use rustix::event::EventfdFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

/// The list; see the module documentation.
pub(super) struct Ends {
    list: Mutex<Vec<(u16, i32)>>,
    bell: OwnedFd,
}

impl Ends {
    pub(super) fn new() -> io::Result<Ends> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Ends { list: Mutex::default(), bell: rustix::event::eventfd(0, flags)? })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u16, i32)>> {
        self.list.lock().expect("the list lock is not poisoned")
    }

    /// A request has ended: with bytes, or a negative errno.
    pub(super) fn put(&self, tag: u16, result: i32) {
        let mut list = self.lock();
        list.push((tag, result));
        let first = list.len() == 1;
        drop(list);
        if first {
            // A write fails only when the counter is full, and then the bell rings.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Moves all ends to `into`.
    pub(super) fn take(&self, into: &mut Vec<(u16, i32)>) {
        into.append(&mut self.lock());
    }

    /// Stops the bell.
    pub(super) fn hush(&self) {
        // Fails only when it does not ring.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
