//! Statistics of samples and latencies.
//!
//! Invariant: pure and deterministic; nothing here is ever NaN for finite input. Called by the
//! runner and by `record::Cell::summarise`.

use hdrhistogram::Histogram;

use serde::{Deserialize, Serialize};

use crate::bins::LatencyBins;

/// Samples in a steady window, as in SNIA's measurement window.
pub const STEADY_ROUNDS: usize = 5;

/// The arithmetic mean. `None` without values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median; of an even number, the mean of the two in the middle. `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    percentile(values, 50.0)
}

/// The smallest and the largest value. `None` without values.
pub fn range(values: &[f64]) -> Option<(f64, f64)> {
    let min = values.iter().copied().reduce(f64::min)?;
    let max = values.iter().copied().reduce(f64::max)?;
    Some((min, max))
}

/// (max - min) / median. `None` without values or with median 0.
pub fn relative_spread(values: &[f64]) -> Option<f64> {
    let (min, max) = range(values)?;
    let middle = median(values)?;
    (middle != 0.0).then(|| (max - min) / middle)
}

/// The value below which `percent` of the values lie (0 to 100), interpolated between neighbours
/// (Hyndman and Fan's type 7, the default of R and NumPy). `None` without values.
///
/// # Panics
/// When `percent` is not between 0 and 100.
pub fn percentile(values: &[f64], percent: f64) -> Option<f64> {
    assert!((0.0..=100.0).contains(&percent), "percentile {percent}");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = percent / 100.0 * last as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - place.floor()))
}

/// Whether the last [`STEADY_ROUNDS`] samples are a steady window: their range is at most 20 % of
/// their mean, and their least-squares line rises or falls at most 10 % of the mean over the
/// window. `None` with fewer samples, and where nothing moved.
///
/// The arithmetic is that of "Steady State" in SNIA's Solid State Storage Performance Test
/// Specification. Its test is more: rounds of a minute, after writing twice the capacity.
pub fn steady(values: &[f64]) -> Option<bool> {
    let window = &values[values.len().checked_sub(STEADY_ROUNDS)?..];
    let (min, max) = range(window)?;
    let mean = window.iter().sum::<f64>() / STEADY_ROUNDS as f64;
    if mean <= 0.0 {
        return None; // Nothing moved: that is no state at all.
    }
    let excursion = slope(window).abs() * (STEADY_ROUNDS - 1) as f64;
    Some(max - min <= 0.2 * mean && excursion <= 0.1 * mean)
}

/// Least-squares slope of values at 0, 1, 2, ...
fn slope(values: &[f64]) -> f64 {
    let centre = (values.len() - 1) as f64 / 2.0;
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let x = index as f64 - centre;
        products += x * value;
        squares += x * x;
    }
    products / squares
}

/// An interval of the median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianInterval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Confidence level: the chance that it contains the median of the distribution, at least 0.9.
    pub coverage: f64,
}

/// The narrowest interval between two order statistics, as far from either end, that holds the
/// median with a chance of at least 90 %, and that chance. It is exact for independent values of
/// any distribution: as many of n values lie below the median as heads come in n throws of a coin
/// (the sign test; Hollander and Wolfe, Nonparametric Statistical Methods, section 3.6). `None`
/// with fewer than five values: from the smallest to the largest of four it is 87.5 %.
pub fn median_interval(values: &[f64]) -> Option<MedianInterval> {
    const WANTED: f64 = 0.9;
    // 2^-n is 0 beyond that; the normal distribution is exact enough long before.
    const EXACT_MAX: usize = 1000;
    let n = values.len();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    if n > EXACT_MAX {
        let half_width = 1.645 * (n as f64).sqrt() / 2.0;
        let cut = (n as f64 / 2.0 - half_width).floor() as usize - 1;
        return Some(MedianInterval { low: sorted[cut], high: sorted[n - 1 - cut], coverage: 0.9 });
    }
    // P(fewer than `cut` + 1 heads), doubled, is what an interval without `cut` values misses.
    let (mut term, mut missed) = (0.5_f64.powi(i32::try_from(n).ok()?), 0.0);
    let mut found = None;
    for cut in 0..n.div_ceil(2) {
        missed += 2.0 * term;
        if 1.0 - missed < WANTED {
            break;
        }
        found = Some((cut, 1.0 - missed));
        term *= (n - cut) as f64 / (cut + 1) as f64;
    }
    let (cut, coverage) = found?;
    Some(MedianInterval { low: sorted[cut], high: sorted[n - 1 - cut], coverage })
}

/// Latency of requests in microseconds, from submission to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Maximum.
    pub max: f64,
}

/// A point of the distribution of latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// Percentile, 1 to 100.
    pub percent: f64,
    /// Latency at this percentile, microseconds.
    pub us: f64,
}

/// Collects latencies in nanoseconds and returns percentiles in microseconds, to three digits, in
/// bounded memory. Latencies above [`LatencyRecorder::LONGEST_NS`] count as that.
#[derive(Clone, Debug)]
pub struct LatencyRecorder {
    histogram: Histogram<u64>,
    max_ns: u64,
}

impl Default for LatencyRecorder {
    fn default() -> LatencyRecorder {
        LatencyRecorder::new()
    }
}

impl LatencyRecorder {
    /// Percentiles of a latency distribution.
    pub const CURVE: [f64; 13] =
        [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.99, 100.0];
    /// The longest latency that is distinguished, ns (10 minutes); longer ones count as this.
    pub const LONGEST_NS: u64 = 600_000_000_000;

    /// An empty recorder. Allocates all of its memory here.
    pub fn new() -> LatencyRecorder {
        let histogram = Histogram::new_with_bounds(1, LatencyRecorder::LONGEST_NS, 3);
        LatencyRecorder { histogram: histogram.expect("bounds and digits are in range"), max_ns: 0 }
    }

    /// Records one latency.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the latencies of another recorder, for example of another job.
    pub fn merge(&mut self, other: &LatencyRecorder) {
        self.histogram.add(&other.histogram).expect("all recorders have the same bounds");
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Removes all latencies.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.max_ns = 0;
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The latency that `percent` of the requests did not exceed, microseconds.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        // The histogram returns the upper end of a bucket, which may be above the largest value.
        self.histogram.value_at_percentile(percent).min(self.max_ns) as f64 / 1e3
    }

    /// The record's percentiles; `None` without latencies. The largest is exact.
    pub fn latency(&self) -> Option<Latency> {
        (self.count() > 0).then(|| Latency {
            p50: self.percentile_us(50.0),
            p99: self.percentile_us(99.0),
            p999: self.percentile_us(99.9),
            max: self.max_ns as f64 / 1e3,
        })
    }

    /// The whole distribution, in bins.
    pub fn bins(&self) -> LatencyBins {
        let recorded = self.histogram.iter_recorded();
        LatencyBins::of(recorded.map(|at| (at.value_iterated_to(), at.count_at_value())))
    }

    /// The distribution; empty without latencies.
    pub fn curve(&self) -> Vec<LatencyPoint> {
        let shares = LatencyRecorder::CURVE.iter().filter(|_| self.count() > 0);
        shares.map(|&percent| LatencyPoint { percent, us: self.percentile_us(percent) }).collect()
    }
}

#[cfg(test)]
mod tests {
    use spec::rng::SplitMix64;

    use super::*;

    #[test]
    fn medians_and_percentiles() {
        let table: [(&[f64], f64, Option<f64>); 8] = [
            (&[], 50.0, None),
            (&[7.0], 50.0, Some(7.0)),
            (&[7.0], 100.0, Some(7.0)),
            (&[3.0, 1.0, 2.0], 50.0, Some(2.0)),
            (&[4.0, 1.0, 2.0, 3.0], 50.0, Some(2.5)),
            (&[0.0, 10.0], 25.0, Some(2.5)),
            (&[5.0, 1.0, 3.0], 0.0, Some(1.0)),
            (&[5.0, 1.0, 3.0], 100.0, Some(5.0)),
        ];
        for (values, percent, expected) in table {
            assert_eq!(percentile(values, percent), expected, "{values:?} {percent}");
        }
        assert_eq!(range(&[2.0, -1.0, 5.0]), Some((-1.0, 5.0)));
        assert_eq!(relative_spread(&[9.0, 10.0, 12.0]), Some(0.3));
        assert_eq!(relative_spread(&[0.0, 0.0]), None);
    }

    #[test]
    fn a_steady_window_is_judged_by_snias_arithmetic() {
        let table: [(&[f64], Option<bool>); 9] = [
            (&[], None),
            (&[1.0, 1.0, 1.0, 1.0], None),
            (&[1.0, 1.0, 1.0, 1.0, 1.0], Some(true)),
            // Range exactly 20 % of the mean, no slope.
            (&[110.0, 90.0, 100.0, 90.0, 110.0], Some(true)),
            (&[111.0, 89.0, 100.0, 89.0, 111.0], Some(false)),
            // A slope of 2.5 % a round is the most, up or down.
            (&[95.0, 97.5, 100.0, 102.5, 105.0], Some(true)),
            (&[106.0, 103.0, 100.0, 97.0, 94.0], Some(false)),
            // Only the last five count.
            (&[900.0, 100.0, 100.0, 100.0, 100.0, 100.0], Some(true)),
            (&[100.0, 100.0, 100.0, 100.0, 100.0, 900.0], Some(false)),
        ];
        for (values, expected) in table {
            assert_eq!(steady(values), expected, "{values:?}");
        }
    }

    #[test]
    fn the_interval_is_the_sign_tests() {
        let values: Vec<f64> = (0..41).map(f64::from).collect();
        // Tables of the sign test: 41 values, the 15th and the 27th.
        let MedianInterval { low, high, coverage } = median_interval(&values).unwrap();
        assert_eq!((low, high), (14.0, 26.0));
        assert!((0.9..0.96).contains(&coverage), "{coverage}");
        let six = median_interval(&[3.0, 1.0, 2.0, 6.0, 5.0, 4.0]).unwrap();
        assert_eq!((six.low, six.high, six.coverage), (1.0, 6.0, 1.0 - 2.0 / 64.0));
        let five = median_interval(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert_eq!((five.low, five.high, five.coverage), (1.0, 5.0, 0.9375));
        assert_eq!(median_interval(&[1.0, 2.0, 3.0, 4.0]), None, "87.5 % is not 90 %");
        assert_eq!(median_interval(&[]), None);
        // The approximation for many values continues the exact result smoothly.
        let many = |count: u32| -> Vec<f64> { (0..count).map(f64::from).collect() };
        let (exact, about) = (median_interval(&many(1000)), median_interval(&many(1001)));
        let width = |interval: Option<MedianInterval>| {
            interval.map_or(0.0, |interval| interval.high - interval.low)
        };
        assert!((width(exact) - width(about)).abs() <= 4.0, "{exact:?} {about:?}");
    }

    /// Drawn from a distribution with a long tail: the interval contains the median as often as
    /// claimed.
    #[test]
    fn the_interval_covers_as_often_as_it_says() {
        const TRIALS: u32 = 20_000;
        let mut random = SplitMix64(3);
        for count in [5, 6, 7, 8, 12, 25] {
            let (mut held, mut stated) = (0, 0.0);
            for _ in 0..TRIALS {
                let uniform =
                    |random: &mut SplitMix64| (random.draw() >> 11) as f64 / 2f64.powi(53);
                let values: Vec<f64> =
                    (0..count).map(|_| -(1.0 - uniform(&mut random)).ln()).collect();
                let interval = median_interval(&values).unwrap();
                held += u32::from((interval.low..=interval.high).contains(&2f64.ln()));
                stated = interval.coverage;
            }
            let share = f64::from(held) / f64::from(TRIALS);
            assert!((share - stated).abs() < 0.007, "{count}: {share}, stated {stated}");
        }
    }

    #[test]
    fn latencies_come_back_to_three_digits_and_merge() {
        let (mut one, mut two) = (LatencyRecorder::new(), LatencyRecorder::new());
        assert_eq!(one.latency(), None);
        (1..=500).for_each(|us| one.record(us * 1000));
        (501..=1000).for_each(|us| two.record(us * 1000));
        one.merge(&two);
        assert_eq!(one.count(), 1000);
        let latency = one.latency().unwrap();
        for (got, expected) in [(latency.p50, 500.0), (latency.p99, 990.0), (latency.p999, 999.0)] {
            assert!((got - expected).abs() <= expected / 900.0, "{got} for {expected}");
        }
        assert_eq!(latency.max, 1000.0);
        let curve = one.curve();
        let shares: Vec<f64> = curve.iter().map(|point| point.percent).collect();
        assert_eq!(shares, LatencyRecorder::CURVE);
        for point in &curve {
            let expected = point.percent * 10.0;
            assert!((point.us - expected).abs() <= expected / 900.0 + 1.0, "{point:?}");
        }
        assert_eq!(curve.last().map(|point| point.us), Some(1000.0), "the slowest is exact");
        one.clear();
        assert_eq!((one.latency(), one.curve()), (None, Vec::new()));
        one.record(0);
        one.record(u64::MAX);
        assert_eq!(one.count(), 2);
    }
}
