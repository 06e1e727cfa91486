//! What a program runs on.
//!
//! ```text
//! Ground (shared)  --hands-->  Hands, one per worker: carries its steps out
//! ```
//! Invariant: every step ends with what it moved in the worker's tally, or with an error that names
//! the file and what was tried; data that is wrong is counted, never passed over.
//!
//! Implemented by `files` and `extents`; driven by `run`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use array::{Counters, clock_nanos};

use super::content::Miscompare;
use super::types::{Phase, Step};
use crate::stats::LatencyRecorder;
use crate::watch::Watched;

/// What carries programs out.
pub trait IoBackend: Sync {
    /// Why a phase makes no sense here, if it does not.
    fn refuses(&self, phase: &Phase) -> Option<String>;

    /// Whether hands use no descriptors but those that they open themselves, and close them: then
    /// a worker may have a table of its own ([`array::spawn_apart`]).
    fn hands_are_apart(&self) -> bool;

    /// Whoever carries out the steps of one worker. `shared`: others write to the same files.
    ///
    /// # Errors
    /// When there is no memory or no ring for it.
    fn hands<'g>(&'g self, depth: u32, shared: bool) -> Result<Box<dyn WorkerIo + 'g>, String>;

    /// Compares all that a file holds with what was written, past the page cache where that is
    /// possible. `stop` is asked now and then.
    ///
    /// # Errors
    /// When it cannot be read at all.
    fn check(&self, file: u32, stop: &dyn Fn() -> bool) -> Result<VerifyErrors, String>;

    /// Makes the caches of the machine forget.
    ///
    /// # Errors
    /// Why they cannot be made to.
    fn drop_caches(&self) -> Result<(), String>;

    /// What each member has moved, where members can be told apart.
    fn members(&self) -> Vec<Counters>;

    /// What a recorder is to look at besides machine and members: disks, an array of the kernel's.
    fn watched(&self) -> Watched {
        Watched::default()
    }
}

/// The hands of a worker.
pub trait WorkerIo: Send {
    /// Carries a step out, or begins it where several may be under way.
    ///
    /// # Errors
    /// Says what could not be done with which file.
    fn carry_out(&mut self, step: &Step, tally: &mut WorkerStats<'_>) -> Result<(), String>;

    /// Waits for all that is under way.
    ///
    /// # Errors
    /// As above.
    fn settle(&mut self, _tally: &mut WorkerStats<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// Data that was not what had been written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyErrors {
    /// How many reads, or units in a check.
    pub count: u64,
    /// The first.
    pub first: Option<Miscompare>,
}

impl VerifyErrors {
    /// Notes one.
    pub fn note(&mut self, wrong: Miscompare) {
        self.count += 1;
        self.first.get_or_insert(wrong);
    }

    /// Adds others.
    pub fn add(&mut self, others: &VerifyErrors) {
        self.count += others.count;
        self.first = self.first.or(others.first);
    }
}

/// What a worker has done.
pub struct WorkerStats<'a> {
    /// Bytes moved for the program.
    pub bytes: u64,
    /// Blocks, bytes or names.
    pub ops: u64,
    /// How long each took.
    pub latency: LatencyRecorder,
    /// What was wrong.
    pub mistakes: VerifyErrors,
    /// Set where a step that takes long is to be left early, once it is true.
    pub over: Option<&'a AtomicBool>,
    /// Bytes so far, for whoever watches.
    progress: &'a AtomicU64,
}

impl<'a> WorkerStats<'a> {
    /// Nothing yet.
    pub fn new(progress: &'a AtomicU64) -> WorkerStats<'a> {
        WorkerStats {
            bytes: 0,
            ops: 0,
            latency: LatencyRecorder::new(),
            mistakes: VerifyErrors::default(),
            over: None,
            progress,
        }
    }

    /// Whether a long step is to be left.
    pub fn is_over(&self) -> bool {
        self.over.is_some_and(|over| over.load(Ordering::Relaxed))
    }

    /// One operation has ended that began at `started` ([`clock_nanos`]); gives the time.
    pub fn done(&mut self, bytes: u64, started: u64) -> u64 {
        let now = clock_nanos();
        self.latency.record(now - started);
        self.ops += 1;
        self.bytes += bytes;
        self.progress.store(self.bytes, Ordering::Relaxed);
        now
    }

    /// Many single bytes have been moved since `started`, too quickly to time each; gives the time.
    pub fn done_many(&mut self, bytes: u64, started: u64) -> u64 {
        self.ops += bytes.saturating_sub(1);
        self.done(bytes, started)
    }
}

/// Memory that begins at a page, as O_DIRECT wants it.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Aligned {
    /// Zeroes.
    pub fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        assert!(start < PAGE, "a pointer to bytes can be aligned");
        Aligned { bytes, start, len }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// Its bytes, to fill.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// Makes it at least this long; says whether that lost what it held.
    pub fn at_least(&mut self, len: usize) -> bool {
        let longer = len > self.len;
        if longer {
            *self = Aligned::new(len);
        }
        longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_begins_at_a_page() {
        let mut memory = Aligned::new(5);
        assert_eq!(memory.bytes().as_ptr() as usize % PAGE, 0);
        assert!(!memory.at_least(3));
        assert!(memory.at_least(10_000));
        assert_eq!(memory.bytes_mut().as_ptr() as usize % PAGE, 0);
        assert_eq!(memory.bytes().len(), 10_000);
    }
}
