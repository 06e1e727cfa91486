//! Reads and writes of a mixed workload, counted by direction.
//!
//! Invariant: reads and writes of a sample are together the sample: its requests, its bytes, its
//! time. Filled by `generator`, joined by `runner`.

use results::record::Sample;
use results::stats::LatencyRecorder;

use crate::measurement::{ByDirection, Direction};

/// What one generator counts, besides all requests together.
#[derive(Default)]
pub(super) struct Directions {
    /// Bytes and requests of the reads of the sample under way.
    bytes: u64,
    ops: u64,
    /// The reads of each sample.
    reads: Vec<Sample>,
    read_latency: LatencyRecorder,
    write_latency: LatencyRecorder,
}

impl Directions {
    pub(super) fn count(&mut self, write: bool, bytes: u64, latency_ns: u64) {
        if write {
            self.write_latency.record(latency_ns);
            return;
        }
        self.read_latency.record(latency_ns);
        self.bytes += bytes;
        self.ops += 1;
    }

    /// Takes the reads of the sample that ends, which began with the last call.
    pub(super) fn end_sample(&mut self) {
        let (bytes, ops) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.ops));
        self.reads.push(Sample { seconds: 0.0, bytes, ops });
    }
}

/// Reads and writes of all shards, by the samples of all requests together. What a shard has more
/// is in the last sample, as it is in `samples`.
pub(super) fn join(parts: Vec<Directions>, samples: &[Sample]) -> Option<ByDirection> {
    if parts.is_empty() {
        return None;
    }
    let (mut reads, mut writes) = (Direction::default(), Direction::default());
    reads.samples = samples.iter().map(|all| Sample { bytes: 0, ops: 0, ..*all }).collect();
    for part in &parts {
        for (at, more) in part.reads.iter().enumerate() {
            let Some(last) = reads.samples.len().checked_sub(1) else { break };
            let sum = &mut reads.samples[at.min(last)];
            sum.bytes += more.bytes;
            sum.ops += more.ops;
        }
        reads.latency.merge(&part.read_latency);
        writes.latency.merge(&part.write_latency);
    }
    let rest = samples.iter().zip(&reads.samples).map(|(all, reads)| Sample {
        seconds: all.seconds,
        bytes: all.bytes - reads.bytes,
        ops: all.ops - reads.ops,
    });
    writes.samples = rest.collect();
    Some(ByDirection { reads, writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_of_shards_are_together_the_samples() {
        let part = |reads: &[u64]| {
            let mut part = Directions::default();
            for count in reads {
                (0..*count).for_each(|_| part.count(false, 512, 10));
                part.count(true, 512, 90);
                part.end_sample();
            }
            part
        };
        // The first shard was stopped one sample later.
        let sample = |ops| Sample { seconds: 1.0, bytes: ops * 512, ops };
        let samples = [sample(12), sample(16)];
        let joined = join(vec![part(&[3, 4, 5]), part(&[6, 2])], &samples).expect("two shards");
        let ops = |direction: &Direction| -> Vec<u64> {
            direction.samples.iter().map(|sample| sample.ops).collect()
        };
        assert_eq!((ops(&joined.reads), ops(&joined.writes)), (vec![9, 11], vec![3, 5]));
        assert_eq!((joined.reads.latency.count(), joined.writes.latency.count()), (20, 5));
        assert_eq!(joined.writes.samples[1].bytes, 5 * 512);
        assert!(join(Vec::new(), &samples).is_none());
        assert!(join(vec![part(&[])], &[]).is_some());
    }
}
