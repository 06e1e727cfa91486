//! How fast background work (resync, rebuild, scrub) runs: the foreground's share of the time, and
//! md's `speed_limit_min` and `speed_limit_max`.
//!
//! ```text
//! hosts use the array   | slice |    rest     | slice |    rest     |
//! no host does          | ranges one after the other, as many as the depth |
//! ```
//! A slice is a few ranges that are in flight together. When they have ended, nothing begins for as
//! long as the foreground's share demands. A request that comes during a slice waits about as long
//! as that takes. Where a range takes long, and two take twice as long, on disks that seek, it is a
//! slice of its own; elsewhere slices grow and shrink so that each takes about [`SLICE_NANOS`],
//! since few requests come during one that is rare.
//!
//! Invariant: background work never starves: a rest has a bound, and below the least rate nothing
//! is held back. Pure; the executor gives the time.

/// What a slice of several ranges should take: 30 ms.
pub const SLICE_NANOS: u64 = 30_000_000;

/// Ranges that take longer are slices of their own, unless two take little longer than one.
const SHORT_RANGE_NANOS: u64 = 4_000_000;

/// Two are tried after this number of slices of one.
const TRIED_AFTER: u32 = 64;

/// Longest time that a slice is counted with, for its rest.
const LONGEST_SLICE_NANOS: u64 = 4 * SLICE_NANOS;

/// Most ranges of a slice.
const MOST_RANGES: u32 = 64;

/// A rate limit looks back so far: what was not used before is lost.
const LIMIT_WINDOW_NANOS: u64 = 100_000_000;

/// The pace of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The foreground's share of the time while hosts use the array, in thousandths, at most 990.
    /// 0: background work is held back by nothing but the depth.
    pub foreground_share: u16,
    /// Rate below which the share holds nothing back, as md's `speed_limit_min`, in KiB/s; in the
    /// units of the work's position: of a member on levels with parity, of the array in a resync
    /// of mirrors.
    pub least_kib_per_s: u64,
    /// Rate that is never exceeded for long, as md's `speed_limit_max`; `None`: no limit.
    pub most_kib_per_s: Option<u64>,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { foreground_share: 750, least_kib_per_s: 1000, most_kib_per_s: None }
    }
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub struct Pacer {
    pace: Pace,
    ranges: u32,
    in_flight: u32,
    /// Of the current slice.
    begun: u32,
    began_at: u64,
    rest_until: u64,
    /// What the last slice of one range took, and how many there were since two were tried.
    alone_nanos: u64,
    alone: u32,
    /// The limits' schedules: what has begun would be done then at exactly the limit's rate.
    least_until: u64,
    most_until: u64,
}

impl Default for Pacer {
    fn default() -> Pacer {
        Pacer {
            pace: Pace::default(),
            ranges: 1,
            in_flight: 0,
            begun: 0,
            began_at: 0,
            rest_until: 0,
            alone_nanos: 0,
            alone: 0,
            least_until: 0,
            most_until: 0,
        }
    }
}

/// Time that sectors take at a rate.
fn nanos(sectors: u64, kib_per_s: u64) -> u64 {
    let nanos = u128::from(sectors) * 500_000_000 / u128::from(kib_per_s.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

impl Pacer {
    /// Sets the pace, also while ranges are in flight.
    pub fn set_pace(&mut self, pace: Pace) {
        self.pace = Pace { foreground_share: pace.foreground_share.min(990), ..pace };
        (self.least_until, self.most_until) = (0, 0);
    }

    /// The pace.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Whether one more range may begin at time `now`; `is_loaded`: hosts use the array.
    pub fn may_begin(&self, now: u64, is_loaded: bool) -> bool {
        if now < self.most_until {
            return false;
        }
        !self.is_held_back(is_loaded)
            || now >= self.rest_until && (self.in_flight == 0 || self.begun < self.ranges)
            || self.pace.least_kib_per_s > 0 && now >= self.least_until
    }

    fn is_held_back(&self, is_loaded: bool) -> bool {
        is_loaded && self.pace.foreground_share > 0
    }

    /// The time at which [`Pacer::may_begin`] becomes `true`, unless a range ends before.
    pub fn begins_at(&self, is_loaded: bool) -> u64 {
        if !self.is_held_back(is_loaded) {
            return self.most_until;
        }
        let rest = if self.in_flight == 0 { self.rest_until } else { u64::MAX };
        let least = if self.pace.least_kib_per_s > 0 { self.least_until } else { u64::MAX };
        rest.min(least).max(self.most_until)
    }

    /// A range begins, of `sectors` positions.
    pub fn began(&mut self, now: u64, sectors: u64) {
        if self.in_flight == 0 {
            (self.began_at, self.begun) = (now, 0);
        }
        self.in_flight += 1;
        self.begun = self.begun.saturating_add(1);
        let from = now.saturating_sub(LIMIT_WINDOW_NANOS);
        if let Some(most) = self.pace.most_kib_per_s {
            self.most_until = self.most_until.max(from).saturating_add(nanos(sectors, most));
        }
        if self.pace.least_kib_per_s > 0 {
            let took = nanos(sectors, self.pace.least_kib_per_s);
            // A fast time before the load is not counted against the work for long.
            let latest = now.saturating_add(took.max(LIMIT_WINDOW_NANOS));
            self.least_until = self.least_until.max(from).saturating_add(took).min(latest);
        }
    }

    /// A range has ended.
    pub fn ended(&mut self, now: u64, is_loaded: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight > 0 || !is_loaded {
            return;
        }
        let took = now.saturating_sub(self.began_at).min(LONGEST_SLICE_NANOS);
        if self.begun == 1 {
            (self.alone_nanos, self.alone) = (took, self.alone.saturating_add(1));
        }
        // Where the way is long, ranges that are in flight together take little longer than one.
        let are_parallel = self.begun > 1 && 2 * took < 3 * self.alone_nanos;
        let are_short = took < u64::from(self.begun) * SHORT_RANGE_NANOS || are_parallel;
        if took > SLICE_NANOS || !are_short {
            self.ranges = (self.ranges / 2).max(1);
        } else if took < SLICE_NANOS / 2 && self.begun >= self.ranges {
            self.ranges = (2 * self.ranges).min(MOST_RANGES);
        }
        if self.ranges == 1 && self.alone >= TRIED_AFTER && took < SLICE_NANOS / 2 {
            (self.ranges, self.alone) = (2, 0);
        }
        let share = u64::from(self.pace.foreground_share);
        self.rest_until = now + took * share / (1000 - share);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Sectors of a range.
    const RANGE: u64 = 1024;

    fn pacer(pace: Pace) -> Pacer {
        let mut pacer = Pacer::default();
        pacer.set_pace(pace);
        pacer
    }

    /// Without a least rate, so that a range can take any time.
    fn by_share(foreground_share: u16) -> Pacer {
        pacer(Pace { foreground_share, least_kib_per_s: 0, most_kib_per_s: None })
    }

    /// Runs background work below a load, if there is one; a slice of n ranges takes n times
    /// `range_nanos`. Returns the foreground's share of the time, and the rate in KiB/s.
    fn run(pacer: &mut Pacer, range_nanos: u64, is_loaded: bool) -> (f64, f64) {
        let began = pacer.begins_at(true);
        let (mut now, mut at_work, mut all) = (began, 0, 0);
        for _ in 0..1000 {
            let mut ranges = 0;
            while ranges < 1000 && pacer.may_begin(now, is_loaded) {
                pacer.began(now, RANGE);
                ranges += 1;
            }
            assert!(ranges > 0);
            now += ranges * range_nanos;
            at_work += ranges * range_nanos;
            all += ranges;
            (0..ranges).for_each(|_| pacer.ended(now, is_loaded));
            now = now.max(pacer.begins_at(is_loaded));
        }
        let took = (now - began) as f64;
        (1.0 - at_work as f64 / took, (all * RANGE) as f64 / 2.0 * 1e9 / took)
    }

    #[test]
    fn the_foreground_has_its_share_whatever_a_range_takes() {
        for range_nanos in [10_000, MS, 7 * MS, 25 * MS, 60 * MS] {
            let (got, _) = run(&mut by_share(750), range_nanos, true);
            assert!((0.74..=0.76).contains(&got), "{range_nanos}: {got}");
        }
        assert!((0.49..=0.51).contains(&run(&mut by_share(500), 7 * MS, true).0));
        assert!(run(&mut by_share(0), 7 * MS, true).0 < 0.01);
    }

    #[test]
    fn ranges_that_take_no_longer_together_than_alone_are_put_together() {
        let (mut pacer, mut now) = (by_share(750), 0);
        for _ in 0..200 {
            let mut ranges = 0;
            while ranges < 1000 && pacer.may_begin(now, true) {
                pacer.began(now, RANGE);
                ranges += 1;
            }
            now += 5 * MS;
            (0..ranges).for_each(|_| pacer.ended(now, true));
            now = now.max(pacer.begins_at(true));
        }
        assert_eq!(pacer.ranges, MOST_RANGES);
    }

    #[test]
    fn slices_take_about_as_long_as_they_should() {
        let mut pacer = by_share(750);
        run(&mut pacer, 3 * MS, true);
        assert!((2..=8).contains(&pacer.ranges), "{}", pacer.ranges);
        for range_nanos in [100 * MS, 10 * MS, 5 * MS] {
            run(&mut pacer, range_nanos, true);
            assert_eq!(pacer.ranges, 1, "{range_nanos}");
        }
        run(&mut pacer, 1000, true);
        assert_eq!(pacer.ranges, MOST_RANGES);
    }

    #[test]
    fn without_a_load_nothing_is_held_back_and_a_long_run_costs_one_bounded_rest() {
        let mut pacer = by_share(750);
        for now in 0..100 {
            assert!(pacer.may_begin(now * MS, false));
            pacer.began(now * MS, RANGE);
        }
        for _ in 0..100 {
            pacer.ended(1_000_000 * MS, true);
        }
        assert!(!pacer.may_begin(1_000_000 * MS, true));
        assert!(pacer.begins_at(true) <= 1_000_000 * MS + 3 * LONGEST_SLICE_NANOS);
        assert!(pacer.may_begin(1_000_000 * MS, false));
    }

    #[test]
    fn the_limits_hold_with_and_without_a_load() {
        let most = Pace { most_kib_per_s: Some(10_000), ..Pace::default() };
        for is_loaded in [false, true] {
            let (_, rate) = run(&mut pacer(most), 10_000, is_loaded);
            assert!((9_900.0..=10_200.0).contains(&rate), "{is_loaded}: {rate}");
        }
        // A range of 1 s and its rest of 360 ms: 376 KiB/s by the share alone.
        let slow = |least| {
            let pace = Pace { least_kib_per_s: least, ..Pace::default() };
            run(&mut pacer(pace), 1000 * MS, true).1
        };
        assert!((370.0..=380.0).contains(&slow(100)), "{}", slow(100));
        assert!(slow(1000) > 500.0, "{}", slow(1000));
    }

    #[test]
    fn a_fast_time_without_a_load_does_not_cost_the_least_rate() {
        let mut pacer = pacer(Pace { foreground_share: 990, ..Pace::default() });
        for _ in 0..10_000 {
            pacer.began(0, RANGE);
        }
        (0..10_000).for_each(|_| pacer.ended(MS, true));
        let range = nanos(RANGE, 1000);
        assert!(pacer.begins_at(true) <= MS + range, "{}", pacer.begins_at(true));
    }
}
