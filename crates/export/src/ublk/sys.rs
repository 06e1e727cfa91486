//! Commands to the ublk driver, which takes them through io_uring only. One of the few places with
//! `unsafe`.
//!
//! *Invariant*: an entry that refers to memory is complete before the call that submitted it
//! returns; entries of a queue refer to none. Descriptors live as long as the ring.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::ends::Ends;
use super::wire;

/// The control device.
pub(super) struct Control {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: File,
    /// An entry could not be submitted, and is still in the ring.
    broken: bool,
}

impl Control {
    pub(super) fn open() -> io::Result<Control> {
        let device = File::options().read(true).write(true).open("/dev/ublk-control")?;
        Ok(Control { ring: IoUring::builder().build(4)?, device, broken: false })
    }

    /// Sends a command about a device, and waits for its end. The kernel reads or writes `buffer`.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn send(
        &mut self,
        number: u32,
        id: u32,
        buffer: &mut [u8],
        data: u64,
    ) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier command could not be sent"));
        }
        let address = if buffer.is_empty() { 0 } else { buffer.as_mut_ptr() as u64 };
        let command = wire::control(id, address, buffer.len() as u16, data);
        let entry = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), number);
        let entry = entry.cmd(command).build();
        // SAFETY: the only memory that the command refers to is `buffer`, which is borrowed until
        // this call returns: that is after the completion. If the entry is not submitted, the ring
        // is not used any more.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("the control ring is full"))?;
        loop {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != io::ErrorKind::Interrupted
                && !self.ring.submission().is_empty()
            {
                self.broken = true;
                return Err(error);
            }
            if let Some(ended) = self.ring.completion().next() {
                return match ended.result() {
                    error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
                    _ => Ok(()),
                };
            }
        }
    }
}

/// What has happened in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request is there, or there will be none any more.
    Command { tag: u16, result: i32 },
    /// Requests have ended.
    Wakeup,
}

/// The ring of a queue.
pub(super) struct QueueRing {
    ring: IoUring,
    device: Arc<File>,
    ends: Arc<Ends>,
    queue: u16,
}

const WAKEUP: u64 = u64::MAX;

impl QueueRing {
    pub(super) fn new(
        device: Arc<File>,
        ends: Arc<Ends>,
        queue: u16,
        depth: u16,
    ) -> io::Result<QueueRing> {
        let ring = IoUring::new(u32::from(depth) * 2)?;
        Ok(QueueRing { ring, device, ends, queue })
    }

    /// Takes the first request with this tag.
    pub(super) fn fetch(&mut self, tag: u16) -> io::Result<()> {
        self.command(wire::FETCH, tag, 0)
    }

    /// Ends a request, and takes the next one with its tag.
    pub(super) fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.command(wire::COMMIT_AND_FETCH, tag, result)
    }

    /// Waits once for the eventfd of [`Ends`].
    pub(super) fn listen(&mut self) -> io::Result<()> {
        let wakeup = types::Fd(self.ends.wakeup().as_raw_fd());
        let poll = opcode::PollAdd::new(wakeup, rustix::event::PollFlags::IN.bits().into());
        self.push(&poll.build().user_data(WAKEUP))
    }

    /// Submits, waits, and says what has happened.
    pub(super) fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        events.extend(self.ring.completion().map(|ended| match ended.user_data() {
            WAKEUP => Event::Wakeup,
            tag => Event::Command { tag: tag as u16, result: ended.result() },
        }));
        Ok(())
    }

    fn command(&mut self, number: u32, tag: u16, result: i32) -> io::Result<()> {
        let device = types::Fd(self.device.as_raw_fd());
        let command = wire::io(self.queue, tag, result);
        let entry = opcode::UringCmd16::new(device, number).cmd(command);
        self.push(&entry.build().user_data(tag.into()))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: neither kind of entry refers to memory, and their descriptors are kept open by
        // `self`, which has the ring.
        if unsafe { self.ring.submission().push(entry) }.is_ok() {
            return Ok(());
        }
        self.ring.submit()?;
        // SAFETY: as above.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("the ring of a queue is full"))
    }
}
