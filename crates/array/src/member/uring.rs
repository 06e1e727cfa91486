//! io_uring: one ring for all file members of a driver.
//!
//! Invariant: memory given to the kernel stays mapped and has no other user until its CQE has been
//! reaped; `Drop` waits for operations in flight, so a ring is dropped before the files and the
//! memory that it works on. One of the few places with `unsafe`.
//!
//! A ring that is used much registers its files and memory, once ([`Ring::register_buffers`]): the
//! kernel then neither looks up the file nor pins the pages for each operation. If the kernel
//! refuses, as over `RLIMIT_MEMLOCK`, operations continue unregistered. Two modes are deliberately
//! unused: SQPOLL takes a core for its kernel thread, and IOPOLL needs drives with polled queues
//! and no waiting for other events.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::PollFlags;

use crate::buf::{Regions, Span};

/// Size of the submission queue. The kernel makes the completion queue twice as long and keeps
/// overflowing CQEs.
const ENTRIES: u32 = 1024;

/// The most slices per operation; the kernel's UIO_MAXIOV.
pub(crate) const MAX_VECTORS: usize = 1024;

/// Retry delay when the kernel had no room for an operation.
const PUSHED_BACK: std::time::Duration = std::time::Duration::from_millis(1);

/// Operations before a ring registers files and memory: for fewer, pinning costs more than it
/// saves.
const SETTLES_AFTER: u64 = 4096;

/// Leaves that can have registered files; others use their descriptor.
const FILES: u32 = 256;

/// The kernel's limit on one registered buffer.
const MAX_BUFFER_BYTES: usize = 1 << 30;

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

// SAFETY: the pointers are only ever passed to the kernel.
unsafe impl Send for Slot {}

/// A kernel completion for a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Cqe {
    /// Number of the leaf in the whole tree.
    pub leaf: u32,
    /// The leaf's identifier of the operation.
    pub id: u32,
    /// Bytes moved, or a negated errno.
    pub result: i32,
}

/// Kind of a file operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileOp<'a> {
    Read {
        at: u64,
        spans: &'a [Span],
    },
    Write {
        at: u64,
        spans: &'a [Span],
        durable: bool,
    },
    Sync,
    PunchHole {
        at: u64,
        len: u64,
    },
    ZeroRange {
        at: u64,
        len: u64,
    },
    /// Ends when it can be read.
    PollIn,
}

pub(crate) struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Entries that neither the queue nor the kernel had room for, in order.
    backlog: VecDeque<squeue::Entry>,
    in_flight: usize,
    /// Operations so far, up to [`SETTLES_AFTER`].
    carried: u64,
    /// By leaf, once files are registered: whether the leaf's file is in the kernel's table.
    files: Option<Vec<bool>>,
    /// Registered buffers, by their index.
    buffers: Vec<Span>,
}

impl Ring {
    /// Sets up a ring.
    ///
    /// # Errors
    /// When the kernel has no io_uring, or forbids it.
    pub(crate) fn new() -> std::io::Result<Ring> {
        // COOP_TASKRUN: completions are processed when this thread enters the kernel anyway,
        // instead of by an interrupt; since Linux 5.19.
        let cooperative =
            IoUring::builder().setup_coop_taskrun().setup_taskrun_flag().build(ENTRIES);
        let ring = cooperative.or_else(|_| IoUring::new(ENTRIES))?;
        Ok(Ring {
            ring,
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            in_flight: 0,
            carried: 0,
            files: None,
            buffers: Vec::new(),
        })
    }

    /// Registers files and memory now: later the kernel could have to wait for memory.
    pub(crate) fn settle_in(&mut self, regions: &Regions) {
        self.carried = SETTLES_AFTER;
        self.register_buffers(regions);
    }

    /// Registers files and memory, once there were enough operations for it to pay off.
    pub(crate) fn register_buffers(&mut self, regions: &Regions) {
        if self.files.is_some() || self.carried < SETTLES_AFTER {
            return;
        }
        let submitter = self.ring.submitter();
        let has_table = submitter.register_files_sparse(FILES).is_ok();
        self.files = Some(if has_table { vec![false; FILES as usize] } else { Vec::new() });
        let buffers: Vec<Span> =
            regions.first().filter(|span| span.len() <= MAX_BUFFER_BYTES).collect();
        let mut vectors = Vec::new();
        fill(&mut vectors, &buffers);
        // SAFETY: same layout; the type that the crate expects is not exported to us.
        let listed = unsafe { std::slice::from_raw_parts(vectors.as_ptr().cast(), vectors.len()) };
        // SAFETY: regions stay mapped as long as the ring (the module's invariant).
        if unsafe { submitter.register_buffers(listed) }.is_ok() {
            self.buffers = buffers;
        }
    }

    /// The file of an entry: its index in the table, or its descriptor.
    fn name_of(&mut self, file: BorrowedFd<'_>, leaf: u32) -> (types::Fd, squeue::Flags) {
        let descriptor = file.as_raw_fd() as RawFd;
        if let Some(known) = self.files.as_mut().and_then(|files| files.get_mut(leaf as usize)) {
            *known =
                *known || self.ring.submitter().register_files_update(leaf, &[descriptor]).is_ok();
            if *known {
                return (types::Fd(leaf as RawFd), squeue::Flags::FIXED_FILE);
            }
        }
        (types::Fd(descriptor), squeue::Flags::empty())
    }

    /// A leaf gets no more operations, and none is in flight: the kernel's table is not to keep its
    /// file open, and with it the file's lock.
    pub(crate) fn forget(&mut self, leaf: u32) {
        let Some(known) = self.files.as_mut().and_then(|files| files.get_mut(leaf as usize)) else {
            return;
        };
        if std::mem::take(known) {
            let none = [-1];
            if let Err(error) = self.ring.submitter().register_files_update(leaf, &none) {
                tracing::warn!(leaf, "a file stays open until the array ends: {error}");
            }
        }
    }

    /// The registered buffer that contains the whole span.
    fn buffer_of(&self, span: Span) -> Option<u16> {
        let at = self.buffers.iter().position(|buffer| buffer.contains(span))?;
        Some(at as u16)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// For `poll`: readable when there are CQEs to reap.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the ring, which `self` borrows.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Whether the kernel refused submissions for now: retry soon, there may be no wakeup.
    pub(crate) fn is_pushed_back(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    /// Queues an operation on a file; it is submitted with the next `submit`. Of more than
    /// [`MAX_VECTORS`] spans, only the first are transferred: the caller sees a short transfer.
    pub(crate) fn push(&mut self, file: impl AsFd, op: FileOp<'_>, leaf: u32, id: u32) {
        let at = self.take_slot(leaf, id);
        let (fd, flags) = self.name_of(file.as_fd(), leaf);
        let registered = match op {
            FileOp::Read { spans: [span], .. } | FileOp::Write { spans: [span], .. } => {
                self.buffer_of(*span)
            }
            _ => None,
        };
        let vectors = &mut self.slots[at as usize].vectors;
        let entry = match op {
            FileOp::Read { at, spans: [span] } => {
                let (start, len) = (span.as_ptr(), span.len() as u32);
                match registered {
                    Some(buffer) => {
                        opcode::ReadFixed::new(fd, start, len, buffer).offset(at).build()
                    }
                    None => opcode::Read::new(fd, start, len).offset(at).build(),
                }
            }
            FileOp::Write { at, spans: [span], durable } => {
                let (start, len, how) = (span.as_ptr(), span.len() as u32, sync_flag(durable));
                match registered {
                    Some(buffer) => opcode::WriteFixed::new(fd, start, len, buffer)
                        .offset(at)
                        .rw_flags(how)
                        .build(),
                    None => opcode::Write::new(fd, start, len).offset(at).rw_flags(how).build(),
                }
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
            FileOp::PollIn => opcode::PollAdd::new(fd, u32::from(PollFlags::IN.bits())).build(),
        };
        self.in_flight += 1;
        self.carried += u64::from(self.carried < SETTLES_AFTER);
        self.push_entry(entry.flags(flags).user_data(u64::from(at)));
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

    /// Submits queued operations, as far as the kernel has room; see `is_pushed_back`.
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

    /// Whether there are CQEs to reap.
    pub(crate) fn has_ended(&mut self) -> bool {
        !self.ring.completion().is_empty() || self.ring.submission().taskrun()
    }

    /// Appends all completions.
    pub(crate) fn reap(&mut self, out: &mut Vec<Cqe>) {
        loop {
            let before = self.in_flight;
            for entry in self.ring.completion() {
                let at = entry.user_data() as u32;
                let slot = &self.slots[at as usize];
                out.push(Cqe { leaf: slot.leaf, id: slot.id, result: entry.result() });
                self.free.push(at);
                self.in_flight -= 1;
            }
            // The completion queue has overflowed: the kernel keeps the rest until it is entered.
            // Or it has completions to process, which the next submission does as well.
            let queue = self.ring.submission();
            let calls = queue.cq_overflow() || queue.taskrun() && self.in_flight == before;
            drop(queue);
            if !calls || self.ring.submit().is_err() {
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

/// The completion queue is congested, or there is no memory at the moment: reaping makes room.
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

/// RWF_DSYNC, which rustix defines for other calls only.
fn sync_flag(durable: bool) -> i32 {
    if durable { rustix::io::ReadWriteFlags::DSYNC.bits() as i32 } else { 0 }
}

impl Ring {
    /// Waits until nothing is in flight, for this long at most; completions are dropped. Returns
    /// whether nothing is.
    pub(crate) fn drain(&mut self, limit: std::time::Duration) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec};
        let (start, mut done) = (std::time::Instant::now(), Vec::new());
        let mut looks = host::sys::Looks::new(Some(limit), 0);
        while self.in_flight > 0 {
            self.submit();
            let left = limit.saturating_sub(std::time::Duration::from_nanos(looks.time()));
            if left.is_zero() {
                return false;
            }
            let left = left.min(std::time::Duration::from_nanos(looks.period()));
            // The kernel may have refused submissions for now.
            let left = if self.is_pushed_back() { PUSHED_BACK.min(left) } else { left };
            let timeout =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
            // An interrupted wait is a short one.
            let _ = rustix::event::poll(&mut fds, Some(&timeout));
            looks.look(start.elapsed().as_nanos() as u64);
            self.reap(&mut done);
            done.clear();
        }
        true
    }
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
                // There is no more information; aborting is safer than freeing memory that may be
                // written.
                Err(_) => std::process::abort(),
            }
            self.reap(&mut done);
            done.clear();
        }
        // The kernel releases a closed ring only some time later, and the files' locks with it.
        if self.files.is_some() {
            let _ = self.ring.submitter().unregister_files();
        }
        if !self.buffers.is_empty() {
            let _ = self.ring.submitter().unregister_buffers();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use rustix::fs::FlockOperation;

    use super::*;
    use crate::buf::Region;

    const BLOCK: u64 = 4096;

    struct Bench {
        regions: Regions,
        /// Before the file and the memory: see the module.
        ring: Option<Ring>,
        file: File,
    }

    impl Bench {
        /// Performs one operation and waits for it.
        fn call(&mut self, op: FileOp<'_>) -> i32 {
            let (ring, mut done) = (self.ring.as_mut().expect("a ring"), Vec::new());
            ring.push(&self.file, op, 3, 77);
            while done.is_empty() {
                ring.submit();
                ring.register_buffers(&self.regions);
                ring.reap(&mut done);
            }
            assert_eq!((done.len(), done[0].leaf, done[0].id), (1, 3, 77));
            done[0].result
        }
    }

    #[test]
    fn registered_files_and_memory_are_the_same_and_released_with_the_ring() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("member");
        File::create(&path).expect("a file");
        let open = || File::options().read(true).write(true).open(&path);
        let mut regions = Regions::new().expect("memory");
        regions.add(Arc::new(Region::new(64 * BLOCK).expect("memory")));
        let memory = regions.first().next().expect("a region");
        let file = open().expect("a file");
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).expect("ours alone");
        let mut bench = Bench { regions, ring: Some(Ring::new().expect("io_uring")), file };
        let (from, to) = (memory.part(0, 4096), memory.part(32 << 12, 4096));
        for number in 0..SETTLES_AFTER + 64 {
            let at = number % 512 * BLOCK;
            from.copy_from_slice(&[number as u8; 4096]);
            let write = FileOp::Write { at, spans: &[from], durable: number % 100 == 0 };
            assert_eq!(bench.call(write), 4096);
            // In two slices, which never use a registered buffer.
            let read = FileOp::Read { at, spans: &[to.part(0, 512), to.part(512, 3584)] };
            assert_eq!(bench.call(read), 4096);
            assert_eq!(bench.call(FileOp::Read { at, spans: &[memory.part(8 << 12, 4096)] }), 4096);
            let (mut one, mut two, mut on_disk) = (Vec::new(), Vec::new(), [0; 4096]);
            to.append_to(&mut one);
            memory.part(8 << 12, 4096).append_to(&mut two);
            bench.file.read_exact_at(&mut on_disk, at).expect("read");
            assert!(one == two && one == on_disk && one[0] == number as u8, "block {number}");
        }
        assert_eq!(bench.call(FileOp::Sync), 0);
        let ring = bench.ring.as_ref().expect("a ring");
        assert_eq!(ring.files.as_ref().map(|files| files[3]), Some(true), "the file has its place");
        // RLIMIT_MEMLOCK may forbid it; then the above used pointers.
        match ring.buffers.len() {
            2 => assert_eq!((ring.buffer_of(from), ring.buffer_of(to)), (Some(0), Some(0))),
            _ => println!("skipped: registered memory: it cannot be locked here"),
        }
        drop(bench.ring.take());
        drop(bench.file);
        let again = open().expect("a file");
        rustix::fs::flock(&again, FlockOperation::NonBlockingLockExclusive).expect("let go");
    }
}
