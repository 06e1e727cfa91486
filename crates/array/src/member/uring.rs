//! The kernel's asynchronous I/O, one ring for all file members of a driver.
//!
//! Invariant: memory that the kernel was given stays mapped and is not handed to anybody else until
//! its completion has been reaped; `Drop` waits for what is still out. One of the few addresses of
//! `unsafe`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::KernelDone;
use crate::buf::Span;

/// Submissions that wait for the next `submit`. The kernel makes the completion side twice as
/// long and keeps what does not fit there.
const ENTRIES: u32 = 1024;

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
    in_flight: usize,
}

impl Ring {
    /// Sets a ring up.
    ///
    /// # Errors
    /// Where the kernel has no io_uring, or forbids it.
    pub(crate) fn new() -> std::io::Result<Ring> {
        let ring = IoUring::builder().build(ENTRIES)?;
        Ok(Ring { ring, slots: Vec::new(), free: Vec::new(), in_flight: 0 })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// For waiting on: readable when there is something to reap.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the ring, which `self` borrows.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Queues an operation on a file; it goes to the kernel with the next `submit`.
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
        self.push_entry(&entry.user_data(u64::from(at)));
        self.in_flight += 1;
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the memory that the entry points to belongs to the operation until its
            // completion is reaped (the module's invariant); vectors live in the slot.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full: the kernel takes it, and there is room again.
            self.submit();
        }
    }

    /// Gives the kernel what has been queued.
    pub(crate) fn submit(&mut self) {
        if self.ring.submission().is_empty() {
            return;
        }
        loop {
            match self.ring.submit() {
                Ok(_) => return,
                Err(error) if error.raw_os_error() == Some(EINTR) => {}
                // The completion side is congested: reaping will make room.
                Err(error) if error.raw_os_error() == Some(EBUSY) => return,
                Err(error) => panic!("io_uring does not take submissions any more: {error}"),
            }
        }
    }

    /// Adds everything that the kernel has finished.
    pub(crate) fn reap(&mut self, out: &mut Vec<KernelDone>) {
        for entry in self.ring.completion() {
            let at = entry.user_data() as u32;
            let slot = &self.slots[at as usize];
            out.push(KernelDone { leaf: slot.leaf, id: slot.id, result: entry.result() });
            self.free.push(at);
            self.in_flight -= 1;
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
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();

fn fill(vectors: &mut Vec<IoVec>, spans: &[Span]) {
    vectors.extend(spans.iter().map(|span| IoVec { start: span.as_ptr(), len: span.len() }));
}

/// RWF_DSYNC, which rustix names but types for other calls.
fn sync_flag(durable: bool) -> i32 {
    if durable { rustix::io::ReadWriteFlags::DSYNC.bits() as i32 } else { 0 }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(EINTR) => continue,
                // Nothing more can be learnt; leaking is safer than freeing what may be written.
                Err(_) => std::process::abort(),
            }
            self.reap(&mut done);
            done.clear();
        }
    }
}
