//! The arrivals of an open loop: when each request of a shard should start, whatever became of the
//! earlier ones.
//!
//! ```text
//! scheduled   |     |     |     |     |        equal intervals (linear), or random (poisson)
//! submitted   |     |          ||     |        later where all that may be in flight was
//!                        waits ^
//! ```
//! Invariant: an arrival is taken once, in order, and never before its time; the schedule does not
//! depend on completions. Called only from `generator`.

use std::collections::VecDeque;

use spec::rng::SplitMix64;
use spec::workload::{Rate, RateProcess};

/// The schedule of one shard.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    process: RateProcess,
    /// Mean interval, ns.
    interval: f64,
    /// The first instant of the schedule, in ns of the shared clock.
    begin: u64,
    /// The next arrival that is not in `due`, ns after `begin`.
    next: f64,
    /// Number of arrivals before `next`.
    passed: u64,
    random: SplitMix64,
    /// Arrivals whose time has come, at most as many as there is room for in flight.
    due: VecDeque<u64>,
}

impl Arrivals {
    /// A shard's part of `rate`: of equal intervals, those of all shards interleave; random ones
    /// are independent, so that together they are again random arrivals at the whole rate.
    pub(super) fn new(rate: Rate, shard: usize, shards: usize, begin: u64, seed: u64) -> Arrivals {
        let whole = 1e9 / f64::from(rate.iops);
        let mut arrivals = Arrivals {
            process: rate.process,
            interval: whole * shards as f64,
            begin,
            next: whole * shard as f64,
            passed: 0,
            random: SplitMix64(seed),
            due: VecDeque::new(),
        };
        if rate.process == RateProcess::Poisson {
            arrivals.next = arrivals.gap();
        }
        arrivals
    }

    /// Number of arrivals that can be taken at `now`, counted up to `most`.
    pub(super) fn due(&mut self, now: u64, most: usize) -> usize {
        while self.due.len() < most && self.next_at() <= now {
            self.due.push_back(self.next_at());
            self.advance();
        }
        self.due.len().min(most)
    }

    /// Takes the earliest arrival, which `due` has counted.
    pub(super) fn take(&mut self) -> u64 {
        self.due.pop_front().expect("counted by `due`")
    }

    /// Time until the next arrival, ns; `None` where one is already due.
    pub(super) fn until_next(&self, now: u64) -> Option<u64> {
        self.due.is_empty().then(|| self.next_at().saturating_sub(now))
    }

    /// Number of arrivals up to `now`, and how many of them have not been taken.
    pub(super) fn counts(&self, now: u64) -> (u64, u64) {
        let mut ahead = self.clone();
        while ahead.next_at() <= now {
            ahead.advance();
        }
        let taken = self.passed - self.due.len() as u64;
        (ahead.passed, ahead.passed - taken)
    }

    fn next_at(&self) -> u64 {
        self.begin + self.next as u64
    }

    fn advance(&mut self) {
        self.passed += 1;
        self.next += match self.process {
            RateProcess::Linear => self.interval,
            RateProcess::Poisson => self.gap(),
        };
    }

    /// An exponentially distributed interval with the mean, ns.
    fn gap(&mut self) -> f64 {
        // In (0, 1]: the logarithm is finite.
        let uniform = ((self.random.draw() >> 11) + 1) as f64 / 2f64.powi(53);
        -uniform.ln() * self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(rate: Rate, shard: usize, shards: usize, until: u64) -> Vec<u64> {
        let mut arrivals = Arrivals::new(rate, shard, shards, 0, 7 + shard as u64);
        let count = arrivals.due(until, usize::MAX);
        (0..count).map(|_| arrivals.take()).collect()
    }

    #[test]
    fn equal_intervals_of_all_shards_interleave() {
        let rate = Rate { iops: 1000, process: RateProcess::Linear };
        assert_eq!(all(rate, 0, 1, 3_000_000), [0, 1_000_000, 2_000_000, 3_000_000]);
        assert_eq!(all(rate, 0, 2, 4_500_000), [0, 2_000_000, 4_000_000]);
        assert_eq!(all(rate, 1, 2, 4_500_000), [1_000_000, 3_000_000]);
        // No rounding adds up: a third of a second, a thousand times.
        let thirds = Rate { iops: 3, process: RateProcess::Linear };
        assert_eq!(all(thirds, 0, 1, 1_000_000_000_000).len(), 3001);
    }

    #[test]
    fn random_intervals_have_the_mean_and_the_spread_of_a_poisson_process() {
        let rate = Rate { iops: 10_000, process: RateProcess::Poisson };
        for (shards, expected) in [(1, 100_000.0), (4, 400_000.0)] {
            let times = all(rate, 0, shards, 10_000_000_000);
            let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let squares: f64 = gaps.iter().map(|gap| (gap - mean).powi(2)).sum();
            let deviation = (squares / gaps.len() as f64).sqrt();
            assert!((mean / expected - 1.0).abs() < 0.02, "{mean} for {expected}");
            assert!((deviation / mean - 1.0).abs() < 0.03, "exponential: {deviation} for {mean}");
        }
    }

    #[test]
    fn what_finds_no_room_keeps_its_time_and_is_counted() {
        let rate = Rate { iops: 1000, process: RateProcess::Linear };
        let mut arrivals = Arrivals::new(rate, 0, 1, 500, 1);
        assert_eq!((arrivals.due(0, 8), arrivals.until_next(0)), (0, Some(500)));
        assert_eq!(arrivals.due(10_000_500, 2), 2, "no more than there is room for");
        assert_eq!(arrivals.until_next(10_000_500), None);
        assert_eq!(arrivals.counts(10_000_500), (11, 11));
        assert_eq!((arrivals.take(), arrivals.take()), (500, 1_000_500));
        assert_eq!(arrivals.counts(10_000_500), (11, 9));
        assert_eq!(arrivals.due(10_000_500, 1), 1);
        assert_eq!(arrivals.take(), 2_000_500, "in order");
    }
}
