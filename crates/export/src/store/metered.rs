//! A store whose requests are counted: what the users of an array do, whichever front they use.
//!
//! Invariant: a request costs two additions to shared counters; one of [`EACH`] is timed, which
//! costs it a box and two readings of the clock. Made only where its figures are shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sys::clock_nanos;

use super::{Buffer, Limits, Store, StoreError, StoreExtent, Then, ThenSend};

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

    fn ended(&self, begun: u64) {
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.timed_ns.fetch_add(clock_nanos().saturating_sub(begun), Ordering::Relaxed);
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

    fn timed(&self, then: Then) -> Then {
        let (meter, begun) = (self.meter.clone(), clock_nanos());
        Box::new(move |outcome| {
            meter.ended(begun);
            then(outcome);
        })
    }
}

impl Store for Metered {
    fn limits(&self) -> Limits {
        self.store.limits()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.store.buffer(bytes)
    }

    fn try_buffer(&self, bytes: usize) -> Option<Buffer> {
        self.store.try_buffer(bytes)
    }

    fn read(&self, buffer: Buffer, offset: u64, then: Then) {
        let is_timed = count(&self.meter.reads, &self.meter.read_bytes, buffer.len());
        let then = if is_timed { self.timed(then) } else { then };
        self.store.read(buffer, offset, then);
    }

    fn read_to_send(&self, buffer: Buffer, offset: u64, then: ThenSend) {
        let is_timed = count(&self.meter.reads, &self.meter.read_bytes, buffer.len());
        if !is_timed {
            return self.store.read_to_send(buffer, offset, then);
        }
        let (meter, begun) = (self.meter.clone(), clock_nanos());
        let timed = move |outcome: Result<super::ToSend, StoreError>| {
            meter.ended(begun);
            then(outcome);
        };
        self.store.read_to_send(buffer, offset, Box::new(timed));
    }

    fn write(&self, buffer: Buffer, offset: u64, fua: bool, then: Then) {
        let is_timed = count(&self.meter.writes, &self.meter.written_bytes, buffer.len());
        let then = if is_timed { self.timed(then) } else { then };
        self.store.write(buffer, offset, fua, then);
    }

    fn flush(&self, then: Then) {
        self.store.flush(then);
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        self.store.discard(offset, bytes)
    }

    fn allocation(
        &self,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<StoreExtent>, StoreError> {
        self.store.allocation(offset, bytes, most)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        self.store.write_zeroes(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, MemberSpec};
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
        let (sender, ended) = mpsc::channel();
        for round in 0..40 {
            let sender = sender.clone();
            let then: Then = Box::new(move |outcome| sender.send(outcome.is_ok()).unwrap());
            match round % 2 {
                0 => store.write(store.buffer(4096), 8192, false, then),
                _ => store.read(store.buffer(512), 8192, then),
            }
            assert!(ended.recv().unwrap());
        }
        let reading = store.meter().read();
        assert_eq!((reading.writes, reading.written_bytes), (20, 20 * 4096));
        assert_eq!((reading.reads, reading.read_bytes), (20, 20 * 512));
        assert_eq!(reading.timed, 4, "the first and the 17th of each");
        assert!(reading.timed_ns > 0 && reading.timed_ns < 4_000_000_000);
    }
}
