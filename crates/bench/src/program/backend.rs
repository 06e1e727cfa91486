//! Backends of programs.
//!
//! ```text
//! IoBackend (shared)  --worker_io-->  WorkerIo, one per worker: performs its steps
//! ```
//! Invariant: every step ends with its bytes counted in the worker's statistics, or with an error
//! that names the file and the operation; wrong data is counted, never ignored.
//!
//! Implemented by `files` and `extents`; driven by `run`.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::metrics::Watched;
use array::Counters;
use host::sys::clock_nanos;
use results::stats::LatencyRecorder;
use spec::program::types::{Phase, Step};

use super::error::IoError;
use crate::live::LiveCounter;
use crate::verify::VerifyErrors;

/// A backend that runs programs.
pub trait IoBackend: Sync {
    /// The reason why a phase is not applicable here; `None`: it is.
    fn refuses(&self, phase: &Phase) -> Option<String>;

    /// Whether workers use only descriptors that they open and close themselves: then a worker may
    /// have a separate descriptor table ([`host::sys::spawn_with_own_fd_table`]).
    fn worker_owns_descriptors(&self) -> bool;

    /// The I/O of one worker. `shared`: other workers write to the same files.
    ///
    /// # Errors
    /// When there is no memory or no ring for it.
    fn worker_io<'g>(&'g self, depth: u32, shared: bool)
    -> Result<Box<dyn WorkerIo + 'g>, IoError>;

    /// Compares the contents of a file with the written data, with direct I/O where possible.
    /// `stop` is polled.
    ///
    /// # Errors
    /// When it cannot be read at all.
    fn check(&self, file: u32, stop: &dyn Fn() -> bool) -> Result<VerifyErrors, IoError>;

    /// Drops the kernel's caches.
    ///
    /// # Errors
    /// The reason why they cannot be dropped.
    fn drop_caches(&self) -> Result<(), IoError>;

    /// Counters of each member, where members can be distinguished.
    fn members(&self) -> Vec<Counters>;

    /// Further sources for a recorder besides machine and members: disks, an array of the kernel.
    fn watched(&self) -> Watched {
        Watched::default()
    }
}

/// The I/O of one worker.
pub trait WorkerIo: Send {
    /// Performs a step, or starts it where several may be in flight.
    ///
    /// # Errors
    /// Names the file and the failed operation.
    fn carry_out(&mut self, step: &Step, tally: &mut WorkerStats<'_>) -> Result<(), IoError>;

    /// Waits for all requests in flight.
    ///
    /// # Errors
    /// As above.
    fn settle(&mut self, _tally: &mut WorkerStats<'_>) -> Result<(), IoError> {
        Ok(())
    }
}

/// Statistics of a worker.
pub struct WorkerStats<'a> {
    /// Bytes moved for the program.
    pub bytes: u64,
    /// Number of blocks, bytes or names.
    pub ops: u64,
    /// Latency of each operation.
    pub latency: LatencyRecorder,
    /// Wrong data.
    pub errors: VerifyErrors,
    /// When it becomes true, a long step ends early.
    pub over: Option<&'a AtomicBool>,
    /// The same, for a display while it runs.
    live: &'a LiveCounter,
}

impl<'a> WorkerStats<'a> {
    /// Empty statistics.
    pub fn new(live: &'a LiveCounter) -> WorkerStats<'a> {
        WorkerStats {
            bytes: 0,
            ops: 0,
            latency: LatencyRecorder::new(),
            errors: VerifyErrors::default(),
            over: None,
            live,
        }
    }

    /// Whether a long step is to end early.
    pub fn is_over(&self) -> bool {
        self.over.is_some_and(|over| over.load(Ordering::Relaxed))
    }

    /// Counts one operation that started at `started` ([`clock_nanos`]); returns the current time.
    pub fn done(&mut self, bytes: u64, started: u64) -> u64 {
        self.done_ops(bytes, 1, started)
    }

    /// Counts single bytes moved since `started`, too fast to time each; returns the current time.
    pub fn done_many(&mut self, bytes: u64, started: u64) -> u64 {
        self.done_ops(bytes, bytes.max(1), started)
    }

    fn done_ops(&mut self, bytes: u64, ops: u64, started: u64) -> u64 {
        let now = clock_nanos();
        self.latency.record(now - started);
        self.ops += ops;
        self.bytes += bytes;
        self.live.count(bytes, ops, now - started);
        now
    }
}

/// Page-aligned memory, as O_DIRECT requires.
pub struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Aligned {
    /// A zeroed buffer of `len` bytes.
    pub fn new(len: usize) -> Aligned {
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        assert!(start < PAGE, "a pointer to bytes can be aligned");
        Aligned { bytes, start, len }
    }

    /// The bytes of the buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes of the buffer, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    /// Grows it to at least `len` bytes; returns whether the contents were lost.
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
