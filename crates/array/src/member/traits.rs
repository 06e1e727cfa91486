//! The contract between the driver and its members.

use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use engine::{BufSlice, IoError, MemberError, MemberOp, Token};
use host::FileId;
use host::sys::Looks;
use md::Sector;

use super::{Cqe, Ring};
use crate::buf::{Region, Regions, StorePolicy};

/// Wake-up latency: the last stretch before an exact deadline is spent polling.
pub(super) const WAKE_NANOS: u64 = 20_000;

/// Properties of a member that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// Size in sectors.
    pub sectors: u64,
    /// Reads and writes must be multiples of this, in bytes: a power of two from 512 to 4096.
    pub logical_block: u32,
    /// Whether a discarded range is guaranteed to read as zeroes.
    pub discard_zeroes: bool,
    /// Whether written data can be read back. `null` members drop them.
    pub keeps_data: bool,
    /// Whether it works through the driver's io_uring.
    pub uses_ring: bool,
    /// Whether its operations wait for no device and no system call.
    pub in_memory: bool,
    /// Whether its operations complete in the context of their submission, as those of a block
    /// device with BLK_FEAT_SYNCHRONOUS: it never has a deadline.
    pub synchronous: bool,
}

/// I/O counters of a leaf since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations, including writes of zeroes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Operations of a paced member that completed after their model time, because the backing
    /// store was slower than the modelled drive.
    pub late: u64,
    /// Nanoseconds with at least one operation in flight; `None` if not measured. Measured by the
    /// model for paced members, by the driver's clock for files and fault members.
    pub busy_ns: Option<u64>,
    /// Integral of the queue depth over time, in nanoseconds: divided by the elapsed time it is the
    /// mean queue depth. `None` if not measured.
    pub queued_ns: Option<u64>,
}

impl Counters {
    /// Counts an operation.
    pub(crate) fn count(&mut self, op: &Op<'_>) {
        match op.kind {
            OpKind::Read => {
                self.reads += 1;
                self.read_bytes += op.bytes();
            }
            OpKind::Write { .. } | OpKind::WriteZeroes | OpKind::WriteLog => {
                self.writes += 1;
                self.written_bytes += op.bytes();
            }
            OpKind::Flush => self.flushes += 1,
            OpKind::Discard => self.discards += 1,
        }
    }

    /// Adds the counters of another handle on the same member.
    pub fn add(&mut self, other: &Counters) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.late += other.late;
        self.busy_ns = sum(self.busy_ns, other.busy_ns);
        self.queued_ns = sum(self.queued_ns, other.queued_ns);
    }

    /// The difference to earlier counters.
    #[must_use]
    pub fn since(&self, before: &Counters) -> Counters {
        Counters {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            flushes: self.flushes - before.flushes,
            discards: self.discards - before.discards,
            late: self.late - before.late,
            busy_ns: self.busy_ns.map(|now| now - before.busy_ns.unwrap_or(0)),
            queued_ns: self.queued_ns.map(|now| now - before.queued_ns.unwrap_or(0)),
        }
    }
}

/// Busy time and queue depth of a member, by a clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Load {
    pub(crate) under_way: u64,
    since: u64,
    pub(crate) busy_ns: u64,
    pub(crate) queued_ns: u64,
}

impl Load {
    /// Accounts for the time up to `at`, in which nothing changed. A completion that is seen only
    /// after a later submission counts up to that submission.
    pub(crate) fn pass(&mut self, at: u64) {
        let passed = at.saturating_sub(self.since);
        self.busy_ns += if self.under_way > 0 { passed } else { 0 };
        self.queued_ns += passed * self.under_way;
        self.since = self.since.max(at);
    }

    /// An operation begins.
    pub(crate) fn begin(&mut self, at: u64) {
        self.pass(at);
        self.under_way += 1;
    }

    /// `ended` operations have completed.
    pub(crate) fn end(&mut self, at: u64, ended: u64) {
        self.pass(at);
        self.under_way = self.under_way.saturating_sub(ended);
    }
}

/// The sum of the counters that are measured; of several handles on one drive only one has them.
fn sum(one: Option<u64>, two: Option<u64>) -> Option<u64> {
    match (one, two) {
        (Some(one), Some(two)) => Some(one + two),
        (one, two) => one.or(two),
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// Read into the slices.
    Read,
    /// Write the slices; with `fua`, durably.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Write the slices durably to the member's partial parity log: sectors are those of its area.
    WriteLog,
    /// Make completed writes durable.
    Flush,
    /// Discard the range.
    Discard,
    /// Make the range read as zeroes.
    WriteZeroes,
}

/// One operation. The slices belong to it until its completion.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// Returned in [`MemberCompletion`].
    pub token: Token,
    /// Kind of the operation.
    pub kind: OpKind,
    /// First sector.
    pub sector: Sector,
    /// Length in sectors; 0 for a flush.
    pub sectors: u64,
    /// Buffers of reads and writes, in order; together as long as the operation.
    pub slices: &'a [BufSlice],
}

impl Op<'_> {
    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.sectors * md::SECTOR_BYTES
    }

    /// The error of this operation, as a whole.
    pub(crate) fn error(&self, cause: impl Into<Cause>) -> IoError {
        io_error(self.kind, self.sector, self.sectors, cause.into())
    }

    /// Its completion with an error.
    pub(crate) fn failed(&self, cause: impl Into<Cause>) -> MemberCompletion {
        MemberCompletion { token: self.token, result: Err(self.error(cause)) }
    }
}

impl OpKind {
    /// Whether one operation may cover much more than buffers do.
    pub(crate) fn is_long(self) -> bool {
        matches!(self, OpKind::Discard | OpKind::WriteZeroes)
    }

    /// The operation, as errors name it.
    pub(super) fn named(self) -> MemberOp {
        match self {
            OpKind::Read => MemberOp::Read,
            OpKind::Write { .. } | OpKind::WriteLog => MemberOp::Write,
            OpKind::Flush => MemberOp::Flush,
            OpKind::Discard => MemberOp::Discard,
            OpKind::WriteZeroes => MemberOp::WriteZeroes,
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) kind: MemberError,
    /// The system's error number.
    pub(crate) errno: Option<NonZeroU16>,
}

impl From<MemberError> for Cause {
    fn from(kind: MemberError) -> Cause {
        Cause { kind, errno: None }
    }
}

/// The error of an operation, or of a part of one.
pub(crate) fn io_error(kind: OpKind, sector: Sector, sectors: u64, cause: Cause) -> IoError {
    let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
    IoError { kind: cause.kind, op: kind.named(), errno: cause.errno, sectors, sector }
}

/// Completion of an operation.
#[derive(Clone, Copy, Debug)]
pub struct MemberCompletion {
    /// Token of the operation.
    pub token: Token,
    /// Result of the operation.
    pub result: Result<(), IoError>,
}

/// What is known of sectors that follow each other, without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Nothing is stored for them, and they read as zeroes. Otherwise there may be data.
    pub is_hole: bool,
    /// The sector behind them.
    pub end: Sector,
}

/// A leaf of an array that has been disassembled.
pub struct FormerLeaf {
    /// The member, with its contents; `None` if it was missing from the start.
    pub member: Option<Box<dyn Member>>,
    /// Whether it and all arrays that it was in were in service: otherwise its contents are out of
    /// date.
    pub in_service: bool,
}

/// State that members share while the driver calls them: memory, the ring, the time.
pub struct Io {
    // The ring drops first: it waits for kernel operations on the memory.
    pub(crate) ring: Option<Ring>,
    pub(crate) regions: Regions,
    pub(crate) kernels: parity::Kernels,
    /// Nanoseconds of the driver's clock, as of this round.
    pub(crate) now: u64,
    /// Of the driver's thread: what of its time is charged to members.
    pub(crate) looks: Looks,
    /// Whether long stores to memory bypass the caches.
    pub(crate) store_policy: StorePolicy,
    /// A member has used non-temporal stores since the last store fence.
    pub(crate) stored_past: bool,
}

/// Restricts [`Member`] to this crate.
pub trait Sealed {}

/// A member. One thread at a time calls it: the one that runs the driver that owns it.
///
/// Only this crate implements it: a member that uses other memory than it was given, or that
/// completes an operation while the kernel still works on it, would be unsound.
///
/// A member is a leaf, an array, or wraps another one. What has a default here a wrapper may
/// leave out, or leaves out because nothing may pass it by; everything else it passes on.
pub trait Member: Send + Sealed {
    /// Constant properties of the member.
    fn info(&self) -> MemberInfo;

    /// Another handle on the same member, for another shard; each is called by its shard's thread
    /// only. `None` if that is not possible: a nested array. Each handle counts its own I/O.
    fn share(&self) -> Option<Box<dyn Member>>;

    /// Starts an operation. Immediate completions are appended to `done` before this returns.
    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>);

    /// Registers its memory as a region that computations may read, if it is a member in memory.
    fn get_ready_to_lend(&mut self, _regions: &mut Regions) {}

    /// Returns the location of these bytes in member memory, instead of reading them; counts as a
    /// read. They stay unchanged until a write to them is submitted. `None`: submit a read.
    fn lend(&mut self, _sector: Sector, _bytes: u64) -> Option<BufSlice> {
        None
    }

    /// Returns the region and the offset of these bytes in member memory, for a host that sends
    /// them from there instead of having them copied; counts as a read. Unlike what is lent to
    /// computations, they may change until they are sent. `None`: submit a read.
    fn lend_to_host(&mut self, _sector: Sector, _bytes: u64) -> Option<(Arc<Region>, u64)> {
        None
    }

    /// Adds a range to its bad-block log, durably; see [`engine::Effect::AddBadBlocks`].
    ///
    /// # Errors
    /// It has no log, or no room in it (a lack of space), or the log cannot be written.
    fn add_bad_blocks(&mut self, sector: Sector, sectors: u64) -> Result<(), IoError>;

    /// What is known of the sectors from `sector` on, which is below `limit`: see [`Known`]. It
    /// never calls a sector a hole that could be read as anything but zeroes; a write that has
    /// completed is no hole any more.
    fn known(&self, _sector: Sector, limit: Sector) -> Known {
        Known { is_hole: false, end: limit }
    }

    /// Announces that a read from this sector is next.
    fn prefetch(&self, _sector: Sector) {}

    /// Starts the operations that `submit` has gathered, and appends immediate completions. Called
    /// after every batch of submissions if [`Member::gathers`].
    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>);

    /// Whether `submit` leaves work to `submit_batch`.
    fn gathers(&self) -> bool;

    /// Passes on operations that have ended, with their results, and whose buffers are still in
    /// use: each completes when they are free. Those with equal tokens have all ended. For arrays,
    /// of which members are late; called after every call, if [`Member::gathers`].
    fn take_held(&mut self, held: &mut dyn FnMut(MemberCompletion));

    /// Sets how long an operation of a disk may take. Returns how long one of this member may take
    /// then: an array has to serve without disks that are late.
    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration>;

    /// Operations inside of it that have not completed in time: of an array.
    fn late_operations(&self) -> usize;

    /// Appends completions that are due by the clock. Called once per round when `deadline` has
    /// passed.
    fn reap(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>);

    /// Processes a kernel completion for one of this member's leaves.
    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>);

    /// When a wait for `deadline` should end: earlier by the wake-up latency. Members with long
    /// operations return a later time, and are not polled for.
    fn wake_at(&self) -> Option<u64> {
        self.deadline().map(|at| at.saturating_sub(WAKE_NANOS))
    }

    /// When `reap` should be called next, if the clock alone can complete something.
    fn deadline(&self) -> Option<u64>;

    /// Numbers its leaves, counting up in `next`; returns the range of its own.
    fn number_leaves(&mut self, next: &mut u32) -> Range<u32>;

    /// The device or file that it is in, and the first sector of its data area there; `None` if it
    /// is in memory, or in several.
    fn place(&self) -> Option<(String, u64)>;

    /// The files that its leaves keep their data in.
    fn files(&self, out: &mut Vec<FileId>);

    /// Whether no operation is in flight inside, for nested arrays.
    fn is_quiet(&self) -> bool;

    /// Returns the members of a nested array, and whether this is one. `in_service` says whether it
    /// was in service itself.
    fn disassemble(&mut self, in_service: bool, out: &mut Vec<FormerLeaf>) -> bool;

    /// I/O counters of each of its leaves.
    fn leaf_counters(&self, out: &mut Vec<Counters>);
}

/// A member that is one disk, or stands for one: nothing is inside of it. What such members have in
/// common is said here; see [`Member`] for what each is.
pub trait Leaf: Send + Sealed {
    /// [`Member::info`].
    fn info(&self) -> MemberInfo;

    /// [`Member::share`].
    fn share(&self) -> Option<Box<dyn Member>>;

    /// [`Member::submit`].
    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>);

    /// [`Member::get_ready_to_lend`].
    fn get_ready_to_lend(&mut self, _regions: &mut Regions) {}

    /// [`Member::lend`].
    fn lend(&mut self, _sector: Sector, _bytes: u64) -> Option<BufSlice> {
        None
    }

    /// [`Member::lend_to_host`].
    fn lend_to_host(&mut self, _sector: Sector, _bytes: u64) -> Option<(Arc<Region>, u64)> {
        None
    }

    /// [`Member::known`].
    fn known(&self, _sector: Sector, limit: Sector) -> Known {
        Known { is_hole: false, end: limit }
    }

    /// [`Member::prefetch`].
    fn prefetch(&self, _sector: Sector) {}

    /// [`Member::set_timeout`].
    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration> {
        limit
    }

    /// [`Member::complete`].
    fn complete(&mut self, _event: Cqe, _io: &mut Io, _done: &mut Vec<MemberCompletion>) {}

    /// [`Member::number_leaves`].
    fn number_leaf(&mut self, _number: u32) {}

    /// [`Member::place`].
    fn place(&self) -> Option<(String, u64)> {
        None
    }

    /// The file that it keeps its data in.
    fn file(&self) -> Option<&FileId> {
        None
    }

    /// I/O counters of the member.
    fn counters(&self) -> Counters;
}

impl<T: Leaf> Member for T {
    fn info(&self) -> MemberInfo {
        Leaf::info(self)
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        Leaf::share(self)
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        Leaf::submit(self, op, io, done);
    }

    fn get_ready_to_lend(&mut self, regions: &mut Regions) {
        Leaf::get_ready_to_lend(self, regions);
    }

    fn lend(&mut self, sector: Sector, bytes: u64) -> Option<BufSlice> {
        Leaf::lend(self, sector, bytes)
    }

    fn lend_to_host(&mut self, sector: Sector, bytes: u64) -> Option<(Arc<Region>, u64)> {
        Leaf::lend_to_host(self, sector, bytes)
    }

    fn add_bad_blocks(&mut self, _: Sector, _: u64) -> Result<(), IoError> {
        Err(no_bad_block_log())
    }

    fn known(&self, sector: Sector, limit: Sector) -> Known {
        Leaf::known(self, sector, limit)
    }

    fn prefetch(&self, sector: Sector) {
        Leaf::prefetch(self, sector);
    }

    fn submit_batch(&mut self, _: &mut Io, _: &mut Vec<MemberCompletion>) {}

    fn gathers(&self) -> bool {
        false
    }

    fn take_held(&mut self, _: &mut dyn FnMut(MemberCompletion)) {}

    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration> {
        Leaf::set_timeout(self, limit)
    }

    fn late_operations(&self) -> usize {
        0
    }

    fn reap(&mut self, _: &mut Io, _: &mut Vec<MemberCompletion>) {}

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        Leaf::complete(self, event, io, done);
    }

    fn deadline(&self) -> Option<u64> {
        None
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        let leaf = *next;
        *next += 1;
        self.number_leaf(leaf);
        leaf..leaf + 1
    }

    fn place(&self) -> Option<(String, u64)> {
        Leaf::place(self)
    }

    fn files(&self, out: &mut Vec<FileId>) {
        out.extend(self.file().cloned());
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn disassemble(&mut self, _: bool, _: &mut Vec<FormerLeaf>) -> bool {
        false
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        out.push(self.counters());
    }
}

/// The error of [`Member::add_bad_blocks`] where there is no log.
pub(super) fn no_bad_block_log() -> IoError {
    IoError::of_metadata(MemberError::NoSpace, None)
}
