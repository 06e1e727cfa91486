//! Eventfds that wake a thread which polls.

use std::io::Result;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

/// A nonblocking eventfd: readable from a signal to the next reset.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// One that is not readable.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> Result<EventFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventFd(rustix::event::eventfd(0, flags)?))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        // A write fails only when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it not readable. A thread that sleeps again must do so whenever it may be readable: a
    /// signal can come after the thread has woken for another reason.
    pub fn reset(&self) {
        // Nothing to read is no problem.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Whether it is readable now.
    pub fn is_readable(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_readable_from_a_signal_to_a_reset() {
        let event = EventFd::new().expect("an eventfd");
        assert!(!event.is_readable());
        event.signal();
        event.signal();
        assert!(event.is_readable());
        event.reset();
        assert!(!event.is_readable(), "one reset is enough");
        event.reset();
    }
}
