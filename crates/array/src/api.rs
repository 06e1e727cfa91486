//! An array for application threads: blocking calls and futures. One worker thread per shard.
//!
//! Invariant: every submitted request completes with a result, also when the array is stopped:
//! requests in flight are finished first. A request goes to the shard that owns its first sector;
//! `worker` has how it gets there, and which thread runs the shard.
//!
//! Shutdown order: all shards become idle; shard 0 stops (it writes the metadata, for which the
//! other shards must still process control messages); then the other shards end.

mod background;
mod completion;
mod worker;

use std::sync::{Arc, mpsc};

use engine::{HostOp, MAX_REQUEST_SECTORS, RequestError, Sharding};
use md::{Geometry, MemberIdx, SECTOR_BYTES, Sector};
use worker::{Busy, Call, Job, Shard};

pub use completion::{Completer, CompletionQueue, Pending, RequestResult};

use crate::buf::{Growing, Lease, LeasePool};
use crate::build::{ArraySpec, BuildError};
use crate::driver::{Driver, DriverOptions};
use crate::executor::{ArrayExtent, Event, Report};
use crate::member::{Counters, MemberInfo};

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// The array could not serve the range, or could not store it.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No member has a part of the range; of an array that is only read.
    #[error("sectors {first} to {last} can be read from no member")]
    Lost {
        /// The first sector that is lost.
        first: u64,
        /// The last sector of that part.
        last: u64,
    },
    /// Offset or length is not a multiple of the array's logical block, or outside the array.
    #[error("{len} bytes at {offset}: the array has {array_bytes} bytes in blocks of {block}")]
    Range {
        /// First byte of the request.
        offset: u64,
        /// Length of the request in bytes.
        len: usize,
        /// The array's size in bytes.
        array_bytes: u64,
        /// The logical block in bytes; offset and length must be multiples of it.
        block: u32,
    },
    /// The array has been stopped.
    #[error("the array has been stopped")]
    Stopped,
    /// The array has been stopped but is not clean: the next start treats it as after a crash.
    #[error(
        "the array has been stopped, but its metadata cannot say so: the next start finds it as \
         after a crash"
    )]
    Unclean,
}

/// Memory of an array for data, in bytes. It grows with load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes that can be used now.
    pub now: u64,
    /// Bytes at most.
    pub most: u64,
}

/// An array with its worker threads; see the module documentation.
pub struct Array {
    shards: Vec<Shard>,
    busy: Arc<Busy>,
    sharding: Sharding,
    leases: LeasePool,
    memory: Vec<Arc<Growing>>,
    geometry: Geometry,
    info: MemberInfo,
    leaves: usize,
}

impl Array {
    /// Assembles an array and starts its threads, [`DriverOptions::shards`] of them.
    ///
    /// # Errors
    /// When the specification is invalid, or a system resource is missing.
    pub fn start(spec: ArraySpec, options: &DriverOptions) -> Result<Array, BuildError> {
        Array::run_shards(Driver::shards(spec, options)?)
    }

    /// Starts a worker thread for an assembled array (`admin` starts one from devices).
    ///
    /// # Errors
    /// When a system resource is missing.
    pub fn run(driver: Driver) -> Result<Array, BuildError> {
        Array::run_shards(vec![driver])
    }

    /// Starts a worker thread for every shard of an array (see [`Driver::shards`]).
    ///
    /// # Errors
    /// When a system resource is missing.
    ///
    /// # Panics
    /// Without a shard.
    pub fn run_shards(shards: Vec<Driver>) -> Result<Array, BuildError> {
        let system = |doing| move |source| BuildError::System { doing, source };
        let first = shards.first().expect("an array has a shard");
        let mut array = Array {
            leases: first.leases().clone(),
            memory: Driver::memory(&shards).cloned().collect(),
            geometry: first.geometry().clone(),
            sharding: first.sharding(),
            info: first.info(),
            leaves: first.leaf_counters().len(),
            busy: Busy::of(shards.len()),
            shards: Vec::new(),
        };
        // All workers exist before the first thread starts: a worker that never runs counts as
        // idle.
        let mut workers = Vec::new();
        for driver in shards {
            workers.push(Shard::new(driver, &array.busy).map_err(system("make an eventfd"))?);
        }
        for (number, mut shard) in workers.into_iter().enumerate() {
            shard.start(number).map_err(system("start the array's thread"))?;
            array.shards.push(shard);
        }
        Ok(array)
    }

    /// The array's geometry.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The array's size in bytes.
    pub fn len_bytes(&self) -> u64 {
        self.info.sectors * SECTOR_BYTES
    }

    /// The logical block in bytes: offsets and lengths must be multiples of it.
    pub fn logical_block(&self) -> u32 {
        self.info.logical_block
    }

    /// Takes a buffer of `len` bytes; blocks while all buffers are in use. An async task that holds
    /// some of them should use [`Array::try_lease`].
    ///
    /// # Panics
    /// When `len` is more than the buffers hold (`DriverOptions::lease_bytes`).
    pub fn lease(&self, len: usize) -> Lease {
        self.leases.wait(len)
    }

    /// Takes a buffer of `len` bytes, or `None` while all buffers are in use.
    ///
    /// # Panics
    /// When `len` is more than the buffers hold (`DriverOptions::lease_bytes`).
    pub fn try_lease(&self, len: usize) -> Option<Lease> {
        self.leases.take(len)
    }

    /// Reads `lease.len()` bytes at byte `offset` into the lease.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn read(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Read, offset, 0, Some(lease))
    }

    /// Writes the lease's bytes at byte `offset`.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn write(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Write { fua: false }, offset, 0, Some(lease))
    }

    /// Like [`Array::write`], and durable when it ends.
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn write_fua(&self, lease: Lease, offset: u64) -> Pending {
        self.hand_over(HostOp::Write { fua: true }, offset, 0, Some(lease))
    }

    /// Submits a request, which ends in a queue: for frontends that serve many clients without a
    /// thread for each. Reads and writes bring a lease of their length, which is returned with the
    /// result; other requests give their length in `bytes` (0 for a flush). A read for bytes that
    /// are only sent may be given memory of members instead of a copy: see [`Lease::borrow`].
    ///
    /// # Panics
    /// When the lease is of another array.
    pub fn submit(&self, op: HostOp, offset: u64, bytes: u64, lease: Option<Lease>, to: Completer) {
        self.hand_over_by(Shard::submit_or_run, op, offset, bytes, lease, to);
    }

    /// The longest read or write in bytes: the capacity of a lease.
    pub fn max_request_bytes(&self) -> usize {
        self.part_bytes()
    }

    /// Number of buffers, in use or not; see [`DriverOptions::leases`].
    pub fn lease_count(&self) -> usize {
        self.leases.count()
    }

    /// Memory for data: buffers and stripes.
    pub fn memory(&self) -> MemoryUse {
        let memory = self.memory.iter();
        let (now, most) = memory.fold((0, 0), |(now, most), growing| {
            (now + growing.usable() as u64, most + growing.most() as u64)
        });
        MemoryUse { now, most }
    }

    /// True: a discarded range is guaranteed to read as zeroes.
    pub fn discard_zeroes(&self) -> bool {
        self.info.discard_zeroes
    }

    /// Fills `buf` from byte `offset`; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), ArrayError> {
        self.check(offset, buf.len())?;
        let mut at = offset;
        for part in buf.chunks_mut(self.part_bytes()) {
            let lease = self.read(self.lease(part.len()), at).wait()?;
            part.copy_from_slice(lease.bytes());
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Writes `buf` at byte `offset`; blocks. Visible to all readers when it returns, durable after
    /// [`Array::flush`].
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), ArrayError> {
        self.check(offset, buf.len())?;
        let mut at = offset;
        for part in buf.chunks(self.part_bytes()) {
            let mut lease = self.lease(part.len());
            lease.bytes_mut().copy_from_slice(part);
            self.write(lease, at).wait()?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes all completed writes durable; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn flush(&self) -> Result<(), ArrayError> {
        self.hand_over(HostOp::Flush, 0, 0, None).result().map(drop)
    }

    /// Makes a range read as zeroes; blocks.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn write_zeroes(&self, offset: u64, len: u64) -> Result<(), ArrayError> {
        self.each_range(HostOp::WriteZeroes, offset, len)
    }

    /// Discards a range; blocks. Its contents are undefined afterwards.
    ///
    /// # Errors
    /// See [`ArrayError`].
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), ArrayError> {
        self.each_range(HostOp::Discard, offset, len)
    }

    /// Extents of a range of blocks, without reading it: at least one, at most `most`,
    /// and perhaps not all of the range. A write that has completed is seen.
    ///
    /// # Errors
    /// [`ArrayError::Range`] and [`ArrayError::Stopped`].
    pub fn allocation(
        &self,
        offset: u64,
        len: u64,
        most: usize,
    ) -> Result<Vec<ArrayExtent>, ArrayError> {
        self.check(offset, len as usize)?;
        let range = offset / SECTOR_BYTES..(offset + len) / SECTOR_BYTES;
        self.call(0, move |driver| driver.allocation(range, most)).ok_or(ArrayError::Stopped)
    }

    /// Takes a member out of service, as `mdadm --fail` does. Ignored if the array cannot run
    /// without the member. Requests submitted afterwards see the member as failed.
    pub fn fail_member(&self, member: MemberIdx) {
        self.call(0, move |driver| driver.fail_member(member));
    }

    /// Takes what replaces a member out of service; the member stays.
    pub fn fail_replacement(&self, member: MemberIdx) {
        self.call(0, move |driver| driver.fail_replacement(member));
    }

    /// Members out of service.
    pub fn failed(&self) -> engine::MemberSet {
        self.call(0, |driver| driver.failed()).unwrap_or_default()
    }

    /// I/O counters of every leaf member.
    pub fn leaf_counters(&self) -> Vec<Counters> {
        let mut all = vec![Counters::default(); self.leaves];
        for shard in 0..self.shards.len() {
            let counters = self.call(shard, |driver| driver.leaf_counters()).unwrap_or_default();
            all.iter_mut().zip(&counters).for_each(|(sum, shard)| sum.add(shard));
        }
        all
    }

    /// Member events since the last call, in the order in which they happened.
    pub fn take_events(&self) -> Vec<Event> {
        self.take_reports().into_iter().map(|report| report.what).collect()
    }

    /// The same, with the names that devices had when the events happened.
    pub fn take_reports(&self) -> Vec<Report> {
        let mut all: Vec<Report> = Vec::new();
        for shard in 0..self.shards.len() {
            for report in self.call(shard, Driver::take_reports).unwrap_or_default() {
                let same = |other: &Report| match (other.what, report.what) {
                    (Event::MemberFailed { member: a, .. }, Event::MemberFailed { member, .. }) => {
                        a == member && other.device == report.device
                    }
                    _ => false,
                };
                // Two shards may have detected the failure concurrently.
                if !all.iter().any(same) {
                    all.push(report);
                }
            }
        }
        all.sort_by_key(|report| report.at);
        all
    }

    /// Runs a closure on a shard's worker between two polls and waits for its result; `None` when
    /// the worker has ended.
    fn call<T: Send + 'static>(
        &self,
        shard: usize,
        call: impl FnOnce(&mut Driver) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        // `send` fails only when the caller has gone.
        let call: Call = Box::new(move |driver| drop(answer.send(call(driver))));
        self.shards[shard].put(|inbox| inbox.calls.push(call))?;
        answered.recv().ok()
    }

    /// The array's metadata status; `None` for an array without metadata.
    pub fn metadata(&self) -> Option<engine::MetadataStatus> {
        self.call(0, |driver| driver.metadata()).flatten()
    }

    /// Problems with the metadata since the last call, one sentence each.
    pub fn take_notes(&self) -> Vec<String> {
        self.call(0, Driver::take_notes).unwrap_or_default()
    }

    /// Completes requests in flight, flushes, marks the metadata clean, and ends the threads. An
    /// array that is dropped instead leaves its metadata as after a crash.
    ///
    /// # Errors
    /// When the flush fails; [`ArrayError::Unclean`] when the metadata cannot be marked clean.
    pub fn stop(mut self) -> Result<(), ArrayError> {
        let flushed = self.flush();
        self.shards[0].put(|inbox| inbox.closing = flushed.is_ok());
        let clean = self.end_threads();
        flushed.and(if clean { Ok(()) } else { Err(ArrayError::Unclean) })
    }

    /// Ends the worker threads; returns whether the array was stopped clean.
    fn end_threads(&mut self) -> bool {
        if self.shards.is_empty() {
            // No thread could be started.
            return false;
        }
        for shard in &self.shards {
            shard.put(|inbox| inbox.stopping = true);
        }
        self.busy.wait();
        // Shard 0 first, while the others still answer it; then the others.
        let mut clean = true;
        let (first, others) = self.shards.split_at_mut(1);
        for shards in [first, others] {
            for shard in shards.iter() {
                shard.put(|inbox| inbox.leaving = true);
            }
            for ended in shards.iter_mut().filter_map(Shard::join) {
                clean &= ended;
            }
        }
        clean
    }

    fn part_bytes(&self) -> usize {
        self.leases.lease_bytes().min((MAX_REQUEST_SECTORS * SECTOR_BYTES) as usize)
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), ArrayError> {
        let block = u64::from(self.info.logical_block);
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len_bytes());
        if inside && offset.is_multiple_of(block) && (len as u64).is_multiple_of(block) {
            return Ok(());
        }
        let (array_bytes, block) = (self.len_bytes(), self.info.logical_block);
        Err(ArrayError::Range { offset, len, array_bytes, block })
    }

    fn each_range(&self, op: HostOp, offset: u64, len: u64) -> Result<(), ArrayError> {
        self.check(offset, len as usize)?;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let part = (end - at).min(self.sharding.max_sectors(op) * SECTOR_BYTES);
            self.hand_over(op, at, part, None).result()?;
            at += part;
        }
        Ok(())
    }

    fn hand_over(&self, op: HostOp, offset: u64, bytes: u64, lease: Option<Lease>) -> Pending {
        let (pending, to) = Pending::new();
        self.hand_over_by(Shard::submit, op, offset, bytes, lease, to);
        pending
    }

    fn hand_over_by(
        &self,
        submit: impl FnOnce(&Shard, Job),
        op: HostOp,
        offset: u64,
        bytes: u64,
        mut lease: Option<Lease>,
        to: Completer,
    ) {
        let bytes = lease.as_mut().map_or(bytes, |lease| {
            assert!(lease.is_of(&self.leases), "the lease is of another array");
            if op != HostOp::Read {
                lease.own();
            }
            lease.len() as u64
        });
        // A flush is of no range.
        if op != HostOp::Flush
            && let Err(error) = self.check(offset, bytes as usize)
        {
            return to.complete(Err(error));
        }
        let (at, sectors) = (Sector(offset / SECTOR_BYTES), bytes / SECTOR_BYTES);
        if sectors > self.sharding.max_sectors(op) {
            return to.complete(Err(ArrayError::Request(RequestError::Invalid)));
        }
        let shard = if op == HostOp::Flush { 0 } else { self.sharding.shard_of(at) };
        submit(&self.shards[usize::from(shard)], Job { op, at, sectors, lease, to });
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        self.end_threads();
    }
}
