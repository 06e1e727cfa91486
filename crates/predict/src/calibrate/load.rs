//! A load: streams of requests on the disks of a machine, each with its own addresses and depth.
//!
//! Invariant: the requests of a stream are a function of its description alone, so that a modelled
//! drive gets the same ones.

use spec::rng::SplitMix64;

/// Where the requests of a stream go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// One after another from `at`; after `run` bytes, `skip` bytes are left out.
    Sequential {
        /// First byte.
        at: u64,
        /// Bytes between two gaps.
        run: u64,
        /// Length of a gap; 0: none.
        skip: u64,
    },
    /// Each before the one before it, from `at` downwards.
    Backwards {
        /// Where the first request ends.
        at: u64,
    },
    /// Anywhere in a range.
    Random {
        /// First byte of the range.
        at: u64,
        /// Its length.
        span: u64,
        /// Another sequence of addresses.
        seed: u64,
    },
    /// In turn anywhere in a range, and anywhere in one of the same length that ends at `far`.
    Alternating {
        /// The first range's beginning.
        near: u64,
        /// The other one's end.
        far: u64,
        /// Their length.
        span: u64,
    },
    /// Always the same bytes: a cache has them.
    Same {
        /// First byte.
        at: u64,
    },
}

/// A stream of requests to a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Index of the disk.
    pub disk: usize,
    /// Its addresses.
    pub access: Access,
    /// Bytes of each request.
    pub block: u64,
    /// Requests in flight.
    pub depth: usize,
    /// They are writes.
    pub write: bool,
    /// A flush follows each write.
    pub flush: bool,
}

impl Stream {
    /// A stream of reads.
    pub fn reads(disk: usize, access: Access, block: u64, depth: usize) -> Stream {
        Stream { disk, access, block, depth, write: false, flush: false }
    }

    /// A stream of writes.
    pub fn writes(disk: usize, access: Access, block: u64, depth: usize) -> Stream {
        Stream { write: true, ..Stream::reads(disk, access, block, depth) }
    }
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// At this time after its start, ns.
    pub nanos: u64,
    /// When each stream has completed this many requests.
    pub requests: u64,
}

impl Limit {
    /// By time only.
    pub fn seconds(seconds: f64) -> Limit {
        Limit { nanos: (seconds * 1e9) as u64, requests: u64::MAX }
    }
}

/// What a stream did, over its own time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Time from the start to the last completion that counts, ns.
    pub nanos: u64,
    /// When each request was completed, ns after the start, in order.
    pub completed_at: Vec<u64>,
    /// Latency of each request, ns, in the same order.
    pub latencies: Vec<u64>,
    /// Bytes of a request.
    pub block: u64,
}

impl Measured {
    /// Requests that were completed.
    pub fn requests(&self) -> u64 {
        self.completed_at.len() as u64
    }

    /// Mean latency, ms; `None` without a request.
    pub fn latency_ms(&self) -> Option<f64> {
        let sum: u64 = self.latencies.iter().sum();
        (!self.latencies.is_empty()).then(|| sum as f64 / self.latencies.len() as f64 / 1e6)
    }

    /// Median latency, ms; `None` without a request.
    pub fn median_latency_ms(&self) -> Option<f64> {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).map(|median| *median as f64 / 1e6)
    }

    /// Least latency, ms: that of a request which nothing has delayed.
    pub fn least_latency_ms(&self) -> Option<f64> {
        self.latencies.iter().min().map(|least| *least as f64 / 1e6)
    }

    /// Requests per second in the part of the time behind `share` of it: from a completion to a
    /// completion. `None` with fewer than two of them.
    pub fn iops_after(&self, share: f64) -> Option<f64> {
        let from = (self.nanos as f64 * share) as u64;
        let first = self.completed_at.partition_point(|at| *at < from);
        let counted = self.completed_at.get(first..).filter(|counted| counted.len() > 1)?;
        let took = counted[counted.len() - 1].saturating_sub(counted[0]);
        (took > 0).then(|| (counted.len() - 1) as f64 * 1e9 / took as f64)
    }

    /// The rate in that part, MB/s.
    pub fn mb_per_s_after(&self, share: f64) -> Option<f64> {
        self.iops_after(share).map(|iops| iops * self.block as f64 / 1e6)
    }
}

/// The addresses of a stream, one after another; `limit` is the size of the disk.
#[derive(Clone, Debug)]
pub struct Addresses {
    access: Access,
    block: u64,
    limit: u64,
    count: u64,
    random: SplitMix64,
}

impl Addresses {
    /// Those of a stream on a disk of `limit` bytes.
    pub fn new(stream: &Stream, limit: u64) -> Addresses {
        let seed = match stream.access {
            Access::Random { seed, .. } => seed,
            _ => 0,
        };
        let Stream { access, block, .. } = *stream;
        Addresses { access, block, limit, count: 0, random: SplitMix64(seed) }
    }

    /// The next one; it starts again at the beginning where the disk ends.
    pub fn next_one(&mut self) -> u64 {
        let (number, block) = (self.count, self.block);
        self.count += 1;
        let last = self.limit.saturating_sub(block);
        let at = match self.access {
            Access::Sequential { at, run, skip } => {
                let each = (run / block).max(1);
                let offset = number / each * (each * block + skip) + number % each * block;
                let room = (last.saturating_sub(at) + 1).max(1);
                at + offset % room / block * block
            }
            Access::Backwards { at } => at.saturating_sub((number + 1) * block),
            Access::Random { at, span, .. } => {
                at + self.random.draw() % (span / block).max(1) * block
            }
            // Anywhere: after equal seeks to equal places a platter would always be at one angle.
            Access::Alternating { near, far, span } => {
                let offset = self.random.draw() % (span / block).max(1) * block;
                if number % 2 == 0 { near + offset } else { far.saturating_sub(offset + block) }
            }
            Access::Same { at } => at,
        };
        at.min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(access: Access, block: u64, count: usize) -> Vec<u64> {
        let mut addresses = Addresses::new(&Stream::reads(0, access, block, 1), 1 << 20);
        (0..count).map(|_| addresses.next_one()).collect()
    }

    #[test]
    fn addresses_follow_their_description() {
        let gaps = Access::Sequential { at: 4096, run: 8192, skip: 4096 };
        assert_eq!(first(gaps, 4096, 5), [4096, 8192, 16384, 20480, 28672]);
        assert_eq!(first(Access::Backwards { at: 12288 }, 4096, 4), [8192, 4096, 0, 0]);
        let alternating = Access::Alternating { near: 0, far: 1 << 20, span: 8192 };
        for (number, at) in first(alternating, 4096, 100).into_iter().enumerate() {
            let range = if number % 2 == 0 { 0..8192 } else { (1 << 20) - 8192..1 << 20 };
            assert!(range.contains(&at), "{number}: {at}");
        }
        assert_eq!(first(Access::Same { at: 7 }, 4096, 2), [7, 7]);
        for at in first(Access::Random { at: 8192, span: 16384, seed: 3 }, 4096, 100) {
            assert!((8192..24576).contains(&at) && at % 4096 == 0);
        }
        // At the end of the disk a stream starts again.
        let end = Access::Sequential { at: (1 << 20) - 8192, run: 4096, skip: 0 };
        assert_eq!(first(end, 4096, 3).last(), Some(&((1 << 20) - 8192)));
    }

    #[test]
    fn rates_are_from_a_completion_to_a_completion() {
        let measured = Measured {
            nanos: 1000,
            completed_at: vec![100, 600, 700, 800, 900],
            latencies: Vec::new(),
            block: 1000,
        };
        assert_eq!(measured.iops_after(0.5), Some(1e7));
        assert_eq!(measured.mb_per_s_after(0.5), Some(1e4));
        assert_eq!(measured.iops_after(0.95), None);
    }
}
