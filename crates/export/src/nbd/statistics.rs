//! Counts of what clients requested of an export.

use std::sync::atomic::{AtomicU64, Ordering};

/// What clients requested of an export since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Sessions that chose the export.
    pub sessions: u64,
    /// Sessions now.
    pub open_sessions: u64,
    /// READ requests.
    pub reads: u64,
    /// Bytes that they requested.
    pub read_bytes: u64,
    /// WRITE requests.
    pub writes: u64,
    /// Bytes that they carried.
    pub written_bytes: u64,
    /// FLUSH requests.
    pub flushes: u64,
    /// TRIM and WRITE_ZEROES requests.
    pub discards: u64,
    /// Requests of any kind that were answered with an error.
    pub errors: u64,
}

/// The counters, which all connections add to.
#[derive(Debug, Default)]
pub(super) struct Counters {
    sessions: AtomicU64,
    open_sessions: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    errors: AtomicU64,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn session_began(&self) {
        add(&self.sessions, 1);
        add(&self.open_sessions, 1);
    }

    pub(super) fn session_ended(&self) {
        self.open_sessions.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.read_bytes, bytes);
    }

    pub(super) fn write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.written_bytes, bytes);
    }

    pub(super) fn flush(&self) {
        add(&self.flushes, 1);
    }

    pub(super) fn discard(&self) {
        add(&self.discards, 1);
    }

    pub(super) fn error(&self) {
        add(&self.errors, 1);
    }

    pub(super) fn snapshot(&self) -> Statistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            sessions: get(&self.sessions),
            open_sessions: get(&self.open_sessions),
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
            flushes: get(&self.flushes),
            discards: get(&self.discards),
            errors: get(&self.errors),
        }
    }
}
