//! The distribution of latencies in bins, as records keep it: compact, and on fio's grid, so that
//! fio's tools read it.
//!
//! ```text
//!   ns   0 1 2 ... 127 | 128 130 132 ... 254 | 256 260 ... 508 | 512 ...
//!        one each      | 64 of each octave, 1.6 % wide at most
//! ```
//! Invariant: bins are ascending, none is empty, and their counts are all requests. Made by
//! `stats::LatencyRecorder`; read by reports and by `fio_json`.

use serde::{Deserialize, Serialize};

/// Bins of each octave, as a power of two: fio's FIO_IO_U_PLAT_BITS.
const BITS: u32 = 6;

/// A distribution of latencies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyBins {
    /// Lower end of each bin that is not empty, ns, ascending.
    pub from_ns: Vec<u64>,
    /// Number of requests in each.
    pub count: Vec<u64>,
}

/// The bin of a latency: its lower end and its width, ns.
fn bin_of(ns: u64) -> (u64, u64) {
    let octave = 63 - (ns | 1).leading_zeros();
    let shift = octave.saturating_sub(BITS);
    (ns >> shift << shift, 1 << shift)
}

impl LatencyBins {
    /// Bins of latencies with their counts, ascending.
    pub fn of(latencies: impl Iterator<Item = (u64, u64)>) -> LatencyBins {
        let mut bins = LatencyBins::default();
        for (ns, count) in latencies.filter(|(_, count)| *count > 0) {
            let (from, _) = bin_of(ns);
            match (bins.from_ns.last(), bins.count.last_mut()) {
                (Some(last), Some(sum)) if *last == from => *sum += count,
                _ => {
                    bins.from_ns.push(from);
                    bins.count.push(count);
                }
            }
        }
        bins
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.from_ns.is_empty()
    }

    /// Number of requests.
    pub fn total(&self) -> u64 {
        self.count.iter().sum()
    }

    /// The middle of each bin in ns, as fio names it, and its count.
    pub fn middles(&self) -> impl Iterator<Item = (u64, u64)> + Clone {
        let middle = |from: &u64| from + bin_of(*from).1 / 2;
        self.from_ns.iter().map(middle).zip(self.count.iter().copied())
    }

    /// The latency that `percent` of the requests did not exceed, ns, to the middle of its bin;
    /// `None` without any.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        let rank = ((self.total() as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut passed = 0;
        let mut middles = self.middles();
        let found = middles.find(|(_, count)| {
            passed += count;
            passed >= rank
        });
        found.map(|(ns, _)| ns)
    }

    /// Mean and standard deviation, ns, within half a bin (0.8 %); `None` without any.
    pub fn mean_and_deviation_ns(&self) -> Option<(f64, f64)> {
        let total = self.total() as f64;
        let mean = self.middles().map(|(ns, count)| ns as f64 * count as f64).sum::<f64>() / total;
        let squares = self.middles().map(|(ns, count)| (ns as f64 - mean).powi(2) * count as f64);
        (total > 0.0).then(|| (mean, (squares.sum::<f64>() / total).sqrt()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::LatencyRecorder;

    #[test]
    fn bins_are_fios() {
        // What fio 3.33 prints for a request of 11,610 ns, and of 55.
        let bins = LatencyBins::of([(55, 2), (11_610, 1)].into_iter());
        assert_eq!(bins.middles().collect::<Vec<_>>(), [(55, 2), (11_584, 1)]);
        assert_eq!((bin_of(127), bin_of(128), bin_of(131)), ((127, 1), (128, 2), (130, 2)));
        assert_eq!(bin_of(u64::MAX).1, 1 << 57);
    }

    #[test]
    fn bins_hold_every_request_and_give_its_percentiles() {
        let mut recorder = LatencyRecorder::new();
        (1..=100_000u64).for_each(|at| recorder.record(at * 37));
        let bins = recorder.bins();
        assert_eq!(bins.total(), 100_000);
        assert!(bins.from_ns.len() < 1200, "{}", bins.from_ns.len());
        assert!(bins.from_ns.windows(2).all(|pair| pair[0] < pair[1]));
        for percent in [1.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
            let (bin, exact) = (bins.percentile_ns(percent), recorder.percentile_us(percent) * 1e3);
            let bin = bin.expect("there are some") as f64;
            assert!((bin / exact - 1.0).abs() < 0.01, "{percent}: {bin} for {exact}");
        }
        let (mean, deviation) = bins.mean_and_deviation_ns().expect("there are some");
        assert!((mean / 1_850_018.0 - 1.0).abs() < 0.005, "{mean}");
        assert!((deviation / (3_700_000.0 / 12f64.sqrt()) - 1.0).abs() < 0.005, "{deviation}");
        let none = LatencyRecorder::new().bins();
        assert_eq!((none.percentile_ns(50.0), none.mean_and_deviation_ns()), (None, None));
    }
}
