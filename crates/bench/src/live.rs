//! Counters of a running cell, for a display while it runs: bytes, operations, and latencies in
//! coarse logarithmic buckets.
//!
//! ```text
//!   generator or worker --> LiveCounter (its own) --\
//!   generator or worker --> LiveCounter (its own) ---+--> LiveCounts::read, a few times a second
//! ```
//! Invariant: a counter has one writer, which never waits: plain loads and stores of its own cache
//! lines. What is read is for display only; the record has exact figures. Written by `runner` and
//! `program::run`, read by the command line.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use host::sys::clock_nanos;

/// Buckets per octave, as a power of two: a bucket is 12 % wide at most.
const BITS: u32 = 3;
/// Latencies up to 2^40 ns (18 minutes) are distinguished.
const OCTAVES: usize = 40;
const BUCKETS: usize = (OCTAVES - BITS as usize + 1) << BITS;

/// The counter of one generator or worker, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct LiveCounter {
    bytes: AtomicU64,
    ops: AtomicU64,
    latencies: [AtomicU32; BUCKETS],
}

impl Default for LiveCounter {
    fn default() -> LiveCounter {
        LiveCounter {
            bytes: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            latencies: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

impl LiveCounter {
    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts operations that took `ns` together. Only its own writer may call this: it does not
    /// use atomic additions.
    #[inline]
    pub fn count(&self, bytes: u64, ops: u64, ns: u64) {
        let add = |counter: &AtomicU64, more| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.bytes, bytes);
        add(&self.ops, ops);
        let bucket = &self.latencies[bucket_of(ns)];
        bucket.store(bucket.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// Buckets of equal width within an octave: linear up to 2^BITS.
fn bucket_of(ns: u64) -> usize {
    let ns = ns.min((1 << OCTAVES) - 1);
    let octave = 63 - (ns | 1).leading_zeros();
    match octave.checked_sub(BITS) {
        None => ns as usize,
        Some(shift) => ((shift as usize) << BITS) + (ns >> shift) as usize,
    }
}

/// The middle of a bucket, ns.
fn middle_of(bucket: usize) -> f64 {
    let linear = 1 << BITS;
    if bucket < linear {
        return bucket as f64;
    }
    let shift = (bucket >> BITS) - 1;
    let first = ((bucket - (shift << BITS)) as u64) << shift;
    first as f64 + (1u64 << shift) as f64 / 2.0
}

/// The counters of all generators of a cell, or of all workers of a phase.
#[derive(Debug)]
pub struct LiveCounts(Vec<LiveCounter>);

/// What had been counted at an instant.
#[derive(Clone, Debug)]
pub struct LiveState {
    /// ns of the shared clock.
    at: u64,
    bytes: u64,
    ops: u64,
    latencies: Vec<u32>,
}

/// What was done between two instants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LiveInterval {
    /// Its length, seconds.
    pub seconds: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Operations completed.
    pub ops: u64,
    /// Median and 99th percentile of their latencies, us, within 6 %; `None` without any.
    pub latency_us: Option<(f64, f64)>,
}

impl LiveCounts {
    /// Counters of `writers` generators or workers.
    pub fn new(writers: usize) -> LiveCounts {
        LiveCounts((0..writers).map(|_| LiveCounter::default()).collect())
    }

    /// The counter of one of them.
    pub fn of(&self, writer: usize) -> &LiveCounter {
        &self.0[writer]
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(LiveCounter::bytes).sum()
    }

    /// Operations so far.
    pub fn ops(&self) -> u64 {
        self.0.iter().map(|counter| counter.ops.load(Ordering::Relaxed)).sum()
    }

    /// All of it so far.
    pub fn read(&self) -> LiveState {
        let mut latencies = vec![0u32; BUCKETS];
        for counter in &self.0 {
            for (sum, bucket) in latencies.iter_mut().zip(&counter.latencies) {
                *sum = sum.wrapping_add(bucket.load(Ordering::Relaxed));
            }
        }
        LiveState { at: clock_nanos(), bytes: self.bytes(), ops: self.ops(), latencies }
    }
}

impl LiveState {
    /// What was done since `before`.
    pub fn since(&self, before: &LiveState) -> LiveInterval {
        let buckets: Vec<u64> = self
            .latencies
            .iter()
            .zip(&before.latencies)
            .map(|(now, before)| u64::from(now.wrapping_sub(*before)))
            .collect();
        let percentile = |share| percentile_us(&buckets, share);
        LiveInterval {
            seconds: self.at.saturating_sub(before.at) as f64 / 1e9,
            bytes: self.bytes.saturating_sub(before.bytes),
            ops: self.ops.saturating_sub(before.ops),
            latency_us: percentile(0.5).zip(percentile(0.99)),
        }
    }
}

fn percentile_us(buckets: &[u64], share: f64) -> Option<f64> {
    let all: u64 = buckets.iter().sum();
    let rank = ((all as f64 * share).ceil() as u64).max(1);
    let mut passed = 0;
    let found = buckets.iter().position(|count| {
        passed += count;
        passed >= rank
    });
    found.map(|bucket| middle_of(bucket) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_bucket_of_its_size() {
        let all =
            (0..5000).chain((10..63).flat_map(|bit| [(1 << bit) - 1, 1 << bit, 3 << (bit - 1)]));
        for ns in all {
            let middle = middle_of(bucket_of(ns));
            let most = (1u64 << OCTAVES) as f64;
            let error = (middle - ns as f64).abs() / ns.max(1) as f64;
            assert!(
                error <= 0.0626 || (ns as f64 >= most && middle > most * 0.9),
                "{ns}: {middle}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn an_interval_has_what_all_writers_did_in_it() {
        let counts = LiveCounts::new(2);
        counts.of(0).count(4096, 1, 9_000_000);
        let before = counts.read();
        (0..98).for_each(|_| counts.of(0).count(4096, 1, 100_000));
        (0..2).for_each(|_| counts.of(1).count(512, 3, 5_000_000));
        let interval = counts.read().since(&before);
        assert_eq!((interval.bytes, interval.ops), (98 * 4096 + 1024, 98 + 6));
        let (p50, p99) = interval.latency_us.expect("there were some");
        assert!((p50 / 100.0 - 1.0).abs() < 0.07 && (p99 / 5000.0 - 1.0).abs() < 0.07);
        assert_eq!(counts.bytes(), 99 * 4096 + 1024);
        let none = counts.read().since(&counts.read());
        assert_eq!((none.bytes, none.ops, none.latency_us), (0, 0, None));
    }
}
