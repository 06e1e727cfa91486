//! A store whose requests are counted: what the users of an array do, whichever front they use.
//!
//! Invariant: a request costs two additions to shared counters; one of [`EACH`] is timed, which
//! costs it an allocation and two readings of the clock. Made only where its figures are shown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use array::{ArrayError, Completer, CompletionQueue, HostOp, Lease, RequestResult};
use host::sys::clock_nanos;

use super::{Limits, Store, StoreExtent};

/// One of this number of reads, and of writes, is timed.
pub const EACH: u64 = 16;

/// The counters of a [`Metered`] store.
#[derive(Debug, Default)]
pub struct Meter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    timed: AtomicU64,
    timed_ns: AtomicU64,
}

/// What had been counted at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterReading {
    /// Reads that were submitted.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Writes that were submitted, without flushes, discards and zeroes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Requests that were timed and have ended.
    pub timed: u64,
    /// How long they took together, from submission to completion, ns.
    pub timed_ns: u64,
}

impl Meter {
    /// What has been counted.
    pub fn read(&self) -> MeterReading {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MeterReading {
            reads: load(&self.reads),
            read_bytes: load(&self.read_bytes),
            writes: load(&self.writes),
            written_bytes: load(&self.written_bytes),
            timed: load(&self.timed),
            timed_ns: load(&self.timed_ns),
        }
    }
}

/// The end of a request that is timed.
struct Timed {
    meter: Arc<Meter>,
    begun: u64,
    to: Mutex<Option<Completer>>,
}

impl CompletionQueue for Timed {
    fn complete(&self, _user_data: u64, result: RequestResult) {
        let took = clock_nanos().saturating_sub(self.begun);
        self.meter.timed.fetch_add(1, Ordering::Relaxed);
        self.meter.timed_ns.fetch_add(took, Ordering::Relaxed);
        let to = self.to.lock().expect("no panic while it is locked").take();
        if let Some(to) = to {
            to.complete(result);
        }
    }
}

/// Counts a request; whether it is to be timed.
fn count(requests: &AtomicU64, bytes: &AtomicU64, len: usize) -> bool {
    bytes.fetch_add(len as u64, Ordering::Relaxed);
    requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(EACH)
}

/// See the module documentation.
pub struct Metered {
    store: Arc<dyn Store>,
    meter: Arc<Meter>,
}

impl Metered {
    /// Counts the requests of `store`.
    pub fn new(store: Arc<dyn Store>) -> Metered {
        Metered { store, meter: Arc::default() }
    }

    /// The counters.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }
}

impl Store for Metered {
    fn limits(&self) -> Limits {
        self.store.limits()
    }

    fn lease(&self, bytes: usize) -> Lease {
        self.store.lease(bytes)
    }

    fn try_lease(&self, bytes: usize) -> Option<Lease> {
        self.store.try_lease(bytes)
    }

    fn submit(&self, op: HostOp, offset: u64, lease: Option<Lease>, to: Completer) {
        let len = lease.as_ref().map_or(0, Lease::len);
        let meter = &self.meter;
        let is_timed = match op {
            HostOp::Read => count(&meter.reads, &meter.read_bytes, len),
            HostOp::Write { .. } => count(&meter.writes, &meter.written_bytes, len),
            _ => false,
        };
        let to = match is_timed {
            false => to,
            true => {
                let (begun, to) = (clock_nanos(), Mutex::new(Some(to)));
                let timed = Timed { meter: meter.clone(), begun, to };
                Completer::new(Arc::new(timed), 0)
            }
        };
        self.store.submit(op, offset, lease, to);
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        self.store.discard(offset, bytes)
    }

    fn allocation(
        &self,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<StoreExtent>, ArrayError> {
        self.store.allocation(offset, bytes, most)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        self.store.write_zeroes(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, MemberSpec, Pending};
    use md::{Layout, Level};

    use super::*;

    #[test]
    fn requests_are_counted_and_some_are_timed() {
        let member =
            || -> MemberSpec { MemberSpec::Ready(Box::new(MemMember::new(2048).expect("memory"))) };
        let spec = ArraySpec {
            level: Level::Raid0,
            layout: Layout::default_for(Level::Raid0),
            chunk_sectors: 128,
            members: vec![member(), member()],
            data_plane: DataPlaneConfig::default(),
        };
        let array = Array::start(spec, &DriverOptions::default()).expect("an array");
        let store = Metered::new(Arc::new(array));
        for round in 0..40 {
            let (pending, to) = Pending::new();
            let (op, bytes) = match round % 2 {
                0 => (HostOp::Write { fua: false }, 4096),
                _ => (HostOp::Read, 512),
            };
            store.submit(op, 8192, Some(store.lease(bytes)), to);
            pending.wait().expect("it ends");
        }
        let reading = store.meter().read();
        assert_eq!((reading.writes, reading.written_bytes), (20, 20 * 4096));
        assert_eq!((reading.reads, reading.read_bytes), (20, 20 * 512));
        assert_eq!(reading.timed, 4, "the first and the 17th of each");
        assert!(reading.timed_ns > 0 && reading.timed_ns < 4_000_000_000);
    }
}
