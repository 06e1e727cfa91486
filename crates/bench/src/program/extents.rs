//! Programs on an array, or on a device, without a file system: file n is the n-th extent.
//!
//! ```text
//! | file 0 | file 1   | file 2 | ...        each from a multiple of 64 KiB on
//! ```
//! Invariant: operations that need a file system (names, single bytes) are refused, never imitated.
//! A worker keeps as many requests in flight as its depth; two that overlap, one of them a write,
//! are never in flight together.

use std::fs::File;
use std::num::NonZeroU64;
use std::sync::Arc;

use array::{Array, ArrayError, Counters, Lease};
use host::sys::clock_nanos;
use rustix::fs::Advice;
use spec::program::types::{Act, Calls, EXTENT_BYTES, How, Op, Phase, Program, Step};

use super::array_access::{ArrayAccess, MakeDriver, OwnDriver};
use super::backend::{IoBackend, WorkerIo, WorkerStats};
use super::error::IoError;
use super::files::{advice_for, check_units};
use crate::verify::{ShadowMap, VerifyErrors, Version, WriteKind};

/// A target without a file system: each file is an extent.
pub struct Extents {
    array: Array,
    /// Creates a separate driver for each worker; `None`: workers share the array.
    own: Option<MakeDriver>,
    /// First byte of each file.
    starts: Vec<u64>,
    shadow: ShadowMap,
    calls: Calls,
    lease_bytes: u64,
    /// Drops the kernel's caches.
    drop_caches: Option<fn() -> Result<(), IoError>>,
}

impl Extents {
    /// Lays a program's files out over an array whose buffers hold `lease_bytes` each.
    ///
    /// # Errors
    /// When they do not fit.
    pub fn new(
        array: Array,
        lease_bytes: u64,
        program: &Program,
        seed: u64,
        drop_caches: Option<fn() -> Result<(), IoError>>,
    ) -> Result<Extents, IoError> {
        let mut starts = Vec::new();
        let mut next: u64 = 0;
        for bytes in &program.files {
            starts.push(next);
            next += bytes.next_multiple_of(EXTENT_BYTES);
        }
        let end = starts.last().map_or(0, |start| start + program.files[starts.len() - 1]);
        if end > array.len_bytes() {
            return Err(IoError::TooLarge { needed: end, available: array.len_bytes() });
        }
        let unit_bytes = program.unit_bytes()?;
        let shadow = ShadowMap::new(seed, unit_bytes as usize, &program.files);
        let calls = program.calls;
        Ok(Extents { array, own: None, starts, shadow, calls, lease_bytes, drop_caches })
    }

    /// Gives each worker a separate driver, over the same bytes as the array.
    pub fn with_own_drivers(self, make: MakeDriver) -> Extents {
        Extents { own: Some(make), ..self }
    }
}

impl IoBackend for Extents {
    fn refuses(&self, phase: &Phase) -> Option<String> {
        if self.calls == Calls::Mapped {
            return Some("there is no file system: nothing can be mapped".into());
        }
        let block = u64::from(self.array.logical_block());
        for act in phase.acts() {
            match act {
                Act::Names { .. } | Act::MakeDirectory(_) | Act::RemoveDirectory(_) => {
                    return Some("there is no file system: names cannot be made".into());
                }
                Act::Remove { .. } | Act::SyncAll => {
                    return Some("there is no file system: files cannot be removed".into());
                }
                Act::Bytes { .. } => {
                    return Some("there is no file system: single bytes cannot be moved".into());
                }
                Act::Transfer(transfer)
                    if transfer.block % block != 0 || transfer.span.end % block != 0 =>
                {
                    return Some(format!("the target works in blocks of {block} bytes"));
                }
                _ => {}
            }
        }
        None
    }

    /// `false`: workers share the array's rings and files.
    fn worker_owns_descriptors(&self) -> bool {
        false
    }

    fn worker_io<'g>(
        &'g self,
        depth: u32,
        shared: bool,
    ) -> Result<Box<dyn WorkerIo + 'g>, IoError> {
        let depth = depth.max(1) as usize;
        let flights = (0..depth).map(|_| None).collect();
        let (access, cached) = match &self.own {
            None => (ArrayAccess::shared(&self.array, depth), None),
            Some(make) => {
                let OwnDriver { driver, cached } = make(depth)?;
                (ArrayAccess::own(driver), cached)
            }
        };
        Ok(Box::new(ExtentIo { extents: self, shared, flights, access, cached }))
    }

    fn check(&self, file: u32, stop: &dyn Fn() -> bool) -> Result<VerifyErrors, IoError> {
        let mut errors = VerifyErrors::default();
        let start = self.starts[file as usize];
        let block = u64::from(self.array.logical_block());
        let end = self
            .shadow
            .file_bytes(file)
            .next_multiple_of(block)
            .min(self.array.len_bytes() - start);
        let read_at = |bytes: &mut [u8], at: u64| {
            let len = (bytes.len() as u64).min(end.saturating_sub(at)) as usize;
            let read = self.array.read_at(&mut bytes[..len], start + at);
            read.map(|()| len).map_err(failed(file, "check it"))
        };
        check_units(&self.shadow, file, stop, &read_at, &mut errors)?;
        Ok(errors)
    }

    fn drop_caches(&self) -> Result<(), IoError> {
        self.drop_caches.map_or(Ok(()), |drop| drop())
    }

    /// Empty with separate drivers, whose requests are not counted in one place.
    fn members(&self) -> Vec<Counters> {
        if self.own.is_some() { Vec::new() } else { self.array.leaf_counters() }
    }
}

/// An error of the array, with the operation on a file that failed.
fn failed(file: u32, doing: impl Into<String>) -> impl FnOnce(ArrayError) -> IoError {
    move |source| IoError::Extent { file, doing: doing.into(), source }
}

/// The same, with the place of a read or write.
fn failed_at(op: Op, file: u32, at: u64) -> impl FnOnce(ArrayError) -> IoError {
    let doing = if op == Op::Read { "read" } else { "write" };
    move |source| failed(file, format!("{doing} at byte {at}"))(source)
}

struct Flight {
    op: Op,
    file: u32,
    at: u64,
    len: u64,
    started: u64,
    /// For a read: the version from [`ShadowMap::before_read`].
    before: Option<Version>,
    /// For a write: the versions written.
    versions: Vec<Version>,
}

struct ExtentIo<'g> {
    extents: &'g Extents,
    shared: bool,
    flights: Vec<Option<Flight>>,
    access: ArrayAccess<'g>,
    /// The open file below the access, and the offset of the array in it.
    cached: Option<(Arc<File>, u64)>,
}

impl ExtentIo<'_> {
    fn place(&self, file: u32, at: u64) -> u64 {
        self.extents.starts[file as usize] + at
    }

    /// Calls `posix_fadvise` on a file's range of the open file, if the page cache is used: arrays
    /// of the engine bypass it.
    fn advise(&self, file: u32, advice: Advice) -> Result<(), IoError> {
        let Some((cached, first)) = &self.cached else { return Ok(()) };
        let bytes = NonZeroU64::new(self.extents.shadow.file_bytes(file));
        let advised = rustix::fs::fadvise(cached, first + self.place(file, 0), bytes, advice);
        advised.map_err(|error| IoError::Advise { file, source: error.into() })
    }

    /// Waits for one more completion.
    fn wait_one(&mut self, tally: &mut WorkerStats<'_>) -> Result<(), IoError> {
        let (slot, ended) = self.access.next();
        let flight = self.flights[slot].take().expect("a request ends once");
        let shadow = &self.extents.shadow;
        let Flight { op, file, at, len, .. } = flight;
        if op != Op::Read {
            shadow.end_write(file, at, &flight.versions);
        }
        let lease = ended.map_err(failed_at(op, file, at))?;
        if op == Op::Read
            && let Some(wrong) = shadow.glance(file, at, lease.bytes(), flight.before)
        {
            tally.errors.wrong(wrong);
        }
        tally.done(len, flight.started);
        Ok(())
    }

    /// A free slot, after waiting until no request in flight conflicts with the range.
    fn free_slot(
        &mut self,
        (op, file, at, len): (Op, u32, u64, u64),
        tally: &mut WorkerStats<'_>,
    ) -> Result<usize, IoError> {
        loop {
            let touches = |flight: &Flight| {
                flight.file == file
                    && flight.at < at + len
                    && at < flight.at + flight.len
                    && (op != Op::Read || flight.op != Op::Read)
            };
            let clear = !self.flights.iter().flatten().any(touches);
            match self.flights.iter().position(Option::is_none).filter(|_| clear) {
                Some(slot) => return Ok(slot),
                None => self.wait_one(tally)?,
            }
        }
    }

    fn take_off(&mut self, slot: usize, lease: Lease, flight: Flight) {
        let place = self.place(flight.file, flight.at);
        self.access.begin(slot, flight.op != Op::Read, lease, place);
        self.flights[slot] = Some(flight);
    }

    /// Claims units to write. Their current writer may be waiting for units of our requests in
    /// flight, so these are completed before waiting.
    fn claim(
        &mut self,
        kind: WriteKind,
        (file, at, len): (u32, u64, u64),
        tally: &mut WorkerStats<'_>,
    ) -> Result<Vec<Version>, IoError> {
        let mut versions = Vec::new();
        let shadow = &self.extents.shadow;
        if !self.shared {
            shadow.claim(kind, file, at, len, false, &mut versions);
        } else if !shadow.try_claim(kind, file, at, len, &mut versions) {
            self.settle(tally)?;
            self.extents.shadow.claim(kind, file, at, len, true, &mut versions);
        }
        Ok(versions)
    }

    /// One request, of at most a buffer's length.
    fn part(
        &mut self,
        part: (Op, u32, u64, u64),
        tally: &mut WorkerStats<'_>,
    ) -> Result<(), IoError> {
        let (op, file, at, len) = part;
        let slot = self.free_slot(part, tally)?;
        let shadow = &self.extents.shadow;
        let mut lease = self.access.lease(len as usize);
        let started = clock_nanos();
        let mut flight = Flight { op, file, at, len, started, before: None, versions: Vec::new() };
        if op == Op::Read {
            flight.before = shadow.before_read(file, at);
            self.take_off(slot, lease, flight);
            return Ok(());
        }
        let kind = if op == Op::Write { WriteKind::Fill } else { WriteKind::Rewrite };
        flight.versions = self.claim(kind, (file, at, len), tally)?;
        if op != Op::Write {
            let before = shadow.before_read(file, at);
            lease = match self.access.read_now(lease, self.place(file, at)) {
                Ok(lease) => lease,
                Err(error) => {
                    shadow.end_write(file, at, &flight.versions);
                    return Err(failed_at(Op::Read, file, at)(error));
                }
            };
            if let Some(wrong) = shadow.glance(file, at, lease.bytes(), before) {
                tally.errors.wrong(wrong);
            }
        }
        shadow.make(kind, file, at, lease.bytes_mut(), &flight.versions);
        self.take_off(slot, lease, flight);
        Ok(())
    }
}

impl WorkerIo for ExtentIo<'_> {
    fn carry_out(&mut self, step: &Step, tally: &mut WorkerStats<'_>) -> Result<(), IoError> {
        match step {
            Step::Open { file, how: How::Create | How::Truncate } => {
                self.extents.shadow.forget(*file);
                Ok(())
            }
            Step::Open { .. } => Ok(()),
            Step::Close { .. } => self.settle(tally),
            Step::Sync { file, .. } => {
                self.settle(tally)?;
                self.access.flush().map_err(failed(*file, "flush"))
            }
            Step::Forget { file } => {
                self.settle(tally)?;
                self.advise(*file, Advice::DontNeed)
            }
            Step::Expect { file, access } => self.advise(*file, advice_for(*access)),
            // Extents are allocated from the start.
            Step::Allocate { .. } => Ok(()),
            Step::Block { op, file, at, len } => {
                let end = at + len;
                let mut at = *at;
                while at < end {
                    let part = (end - at).min(self.extents.lease_bytes);
                    self.part((*op, *file, at, part), tally)?;
                    at += part;
                }
                // At depth 1: wait for the completion.
                if self.flights.len() == 1 { self.settle(tally) } else { Ok(()) }
            }
            Step::Bytes { .. }
            | Step::Remove { .. }
            | Step::SyncAll
            | Step::MakeDirectory(_)
            | Step::RemoveDirectory(_)
            | Step::Name { .. }
            | Step::ListedNames { .. } => Err(IoError::NoFileSystem),
        }
    }

    fn settle(&mut self, tally: &mut WorkerStats<'_>) -> Result<(), IoError> {
        while self.flights.iter().any(Option::is_some) {
            self.wait_one(tally)?;
        }
        Ok(())
    }
}
