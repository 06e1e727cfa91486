//! The kernel's asynchronous I/O, one ring for all file members of a driver.
//!
//! Invariant: memory that the kernel was given stays mapped and is not handed to anybody else until
//! its completion has been reaped; `Drop` waits for what is still out, so a ring is dropped before
//! the files and the memory that it works on. One of the few addresses of `unsafe`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::KernelDone;
use crate::buf::Span;

/// Submissions that wait for the next `submit`. The kernel makes the completion side twice as
/// long and keeps what does not fit there.
const ENTRIES: u32 = 1024;

/// The most pieces of memory that one operation can have; the kernel's UIO_MAXIOV.
pub(crate) const MAX_VECTORS: usize = 1024;

/// The layout of a C `struct iovec`.
#[repr(C)]
struct IoVec {
    start: *mut u8,
    len: usize,
}

struct Slot {
    leaf: u32,
    id: u32,
    vectors: Vec<IoVec>,
}

// SAFETY: the pointers are only ever given to the kernel.
unsafe impl Send for Slot {}

/// What a file is asked to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileOp<'a> {
    Read { at: u64, spans: &'a [Span] },
    Write { at: u64, spans: &'a [Span], durable: bool },
    Sync,
    PunchHole { at: u64, len: u64 },
    ZeroRange { at: u64, len: u64 },
}

pub(crate) struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// What neither the queue nor the kernel had room for, in order.
    backlog: VecDeque<squeue::Entry>,
    in_flight: usize,
}

impl Ring {
    /// Sets a ring up.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, or forbids it.
    pub(crate) fn new() -> std::io::Result<Ring> {
        let ring = IoUring::builder().build(ENTRIES)?;
        let (slots, free, backlog) = (Vec::new(), Vec::new(), VecDeque::new());
        Ok(Ring { ring, slots, free, backlog, in_flight: 0 })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// For waiting on: readable when there is something to reap.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the ring, which `self` borrows.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Whether the kernel refused something for now: try again soon, nothing may wake us.
    pub(crate) fn is_pushed_back(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    /// Queues an operation on a file; it goes to the kernel with the next `submit`. Of more than
    /// [`MAX_VECTORS`] spans, only the first are moved: to the caller, a short transfer.
    pub(crate) fn push(&mut self, file: impl AsFd, op: FileOp<'_>, leaf: u32, id: u32) {
        let at = self.take_slot(leaf, id);
        let fd = types::Fd(file.as_fd().as_raw_fd() as RawFd);
        let vectors = &mut self.slots[at as usize].vectors;
        let entry = match op {
            FileOp::Read { at, spans: [span] } => {
                opcode::Read::new(fd, span.as_ptr(), span.len() as u32).offset(at).build()
            }
            FileOp::Write { at, spans: [span], durable } => {
                opcode::Write::new(fd, span.as_ptr(), span.len() as u32)
                    .offset(at)
                    .rw_flags(sync_flag(durable))
                    .build()
            }
            FileOp::Read { at, spans } => {
                fill(vectors, spans);
                let count = vectors.len() as u32;
                opcode::Readv::new(fd, vectors.as_ptr().cast(), count).offset(at).build()
            }
            FileOp::Write { at, spans, durable } => {
                fill(vectors, spans);
                let count = vectors.len() as u32;
                opcode::Writev::new(fd, vectors.as_ptr().cast(), count)
                    .offset(at)
                    .rw_flags(sync_flag(durable))
                    .build()
            }
            FileOp::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            FileOp::PunchHole { at, len } => {
                let mode =
                    rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, len).offset(at).mode(mode.bits() as i32).build()
            }
            FileOp::ZeroRange { at, len } => {
                let mode =
                    rustix::fs::FallocateFlags::ZERO_RANGE | rustix::fs::FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(fd, len).offset(at).mode(mode.bits() as i32).build()
            }
        };
        self.in_flight += 1;
        self.push_entry(entry.user_data(u64::from(at)));
    }

    fn push_entry(&mut self, entry: squeue::Entry) {
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
            self.submit();
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: the memory that the entry points to belongs to the operation until its completion
        // is reaped (the module's invariant); vectors live in the slot.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }

    /// Gives the kernel what has been queued, as far as it has room; see `is_pushed_back`.
    pub(crate) fn submit(&mut self) {
        loop {
            while let Some(entry) = self.backlog.pop_front() {
                if !self.try_push(&entry) {
                    self.backlog.push_front(entry);
                    break;
                }
            }
            if self.ring.submission().is_empty() {
                return;
            }
            match self.ring.submit() {
                Ok(_) if self.backlog.is_empty() => return,
                // The queue was full; now there is room for more of the backlog.
                Ok(taken) if taken > 0 => {}
                Ok(_) => return,
                Err(error) if is_for_now(&error) => return,
                Err(error) if error.raw_os_error() == Some(EINTR) => {}
                Err(error) => panic!("io_uring does not take submissions any more: {error}"),
            }
        }
    }

    /// Whether something can be reaped.
    pub(crate) fn has_ended(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Adds everything that the kernel has finished.
    pub(crate) fn reap(&mut self, out: &mut Vec<KernelDone>) {
        loop {
            for entry in self.ring.completion() {
                let at = entry.user_data() as u32;
                let slot = &self.slots[at as usize];
                out.push(KernelDone { leaf: slot.leaf, id: slot.id, result: entry.result() });
                self.free.push(at);
                self.in_flight -= 1;
            }
            // More than the queue holds has ended: the kernel keeps the rest until it is called.
            if !self.ring.submission().cq_overflow() || self.ring.submit().is_err() {
                return;
            }
        }
    }

    fn take_slot(&mut self, leaf: u32, id: u32) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { leaf, id, vectors: Vec::new() });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[at as usize];
        slot.leaf = leaf;
        slot.id = id;
        slot.vectors.clear();
        at
    }
}

const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();

/// The completion side is congested, or there is no memory at the moment: reaping makes room.
fn is_for_now(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::BUSY, Errno::AGAIN]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn fill(vectors: &mut Vec<IoVec>, spans: &[Span]) {
    let spans = spans.iter().take(MAX_VECTORS);
    vectors.extend(spans.map(|span| IoVec { start: span.as_ptr(), len: span.len() }));
}

/// RWF_DSYNC, which rustix names but types for other calls.
fn sync_flag(durable: bool) -> i32 {
    if durable { rustix::io::ReadWriteFlags::DSYNC.bits() as i32 } else { 0 }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            self.submit();
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_for_now(&error) => {}
                Err(error) if error.raw_os_error() == Some(EINTR) => continue,
                // Nothing more can be learnt; to stop is safer than to free what may be written.
                Err(_) => std::process::abort(),
            }
            self.reap(&mut done);
            done.clear();
        }
    }
}
