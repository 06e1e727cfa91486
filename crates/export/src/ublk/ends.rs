//! Requests of a queue that have ended, from the store's threads to the thread of the queue.
//!
//! *Invariant*: the eventfd is signalled after an end was put into an empty list, so that none is
//! left there. The list is bounded by the requests of the queue.

use std::io;
use std::sync::{Mutex, MutexGuard};

use host::sys::EventFd;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;

/// The list; see the module documentation.
pub(super) struct Ends {
    list: Mutex<Vec<(u16, i32)>>,
    wakeup: EventFd,
}

impl Ends {
    pub(super) fn new() -> io::Result<Ends> {
        Ok(Ends { list: Mutex::default(), wakeup: EventFd::new()? })
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
            self.wakeup.signal();
        }
    }

    /// A request has failed.
    pub(super) fn failed(&self, tag: u16, errno: Errno) {
        self.put(tag, -errno.raw_os_error());
    }

    /// Moves all ends to `into`.
    pub(super) fn take(&self, into: &mut Vec<(u16, i32)>) {
        into.append(&mut self.lock());
    }

    /// Clears the eventfd.
    pub(super) fn reset(&self) {
        self.wakeup.reset();
    }

    pub(super) fn wakeup(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}
