//! The time that may be charged to what a thread waits for: that in which the thread looked after
//! it.
//!
//! ```text
//!  clock   |--|--|--|--|------ stopped ------|--|--|
//!  looks   ^  ^  ^  ^  ^                     ^  ^  ^
//!  time    0  1  2  3  4                     5  6  7     judged again from here on
//! ```
//! A thread with something in flight looks at least once a period. Where two looks are further
//! apart, the thread did not run: its process was stopped, the machine was suspended, or had no CPU
//! for it. What came in that time could not be received, and what threads of the same process had
//! to do was not done. A gap counts as one period, and deadlines are judged when one more has
//! passed, in which others hand over what they have got.
//!
//! Invariant: the time never grows by more than the clock, nor by more than two periods from one
//! look to the next. It grows by a period at least every time that looks are a period apart, and of
//! two looks after gaps the second one may judge: so what never ends is late in the end. Called by
//! the threads of `array` and `device` that wait for members.

use std::time::Duration;

/// A period is this part of the time that an operation may take,
const PARTS: u32 = 16;
/// but not shorter than threads wait for a CPU on a machine that is busy,
const SHORTEST: Duration = Duration::from_millis(10);
/// and not longer than a second.
const LONGEST: Duration = Duration::from_secs(1);

/// The looks of one thread; see the module documentation. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    period: u64,
    /// The clock at the last look.
    last: u64,
    time: u64,
    settled_at: u64,
}

impl Looks {
    /// Looks of a thread that waits for operations which may take this long each; `None`: for ever.
    /// The time begins as the clock, at `now`.
    pub fn new(limit: Option<Duration>, now: u64) -> Looks {
        let mut looks = Looks { period: 0, last: now, time: now, settled_at: now };
        looks.set_limit(limit);
        looks
    }

    /// The longest time between two looks, where operations may take `limit`.
    pub fn period_of(limit: Duration) -> Duration {
        (limit / PARTS).clamp(SHORTEST, LONGEST)
    }

    /// How long an operation may take from now on.
    pub fn set_limit(&mut self, limit: Option<Duration>) {
        // Without a limit there is no gap.
        self.period = limit.map_or(1 << 62, |limit| Looks::period_of(limit).as_nanos() as u64);
    }

    /// Looks, at this time of the clock.
    #[inline]
    pub fn look(&mut self, now: u64) {
        let passed = now.saturating_sub(self.last);
        self.last = self.last.max(now);
        if passed > 2 * self.period {
            return self.gap();
        }
        self.time += passed;
    }

    #[cold]
    fn gap(&mut self) {
        let was_settled = self.is_settled();
        self.time += self.period;
        if was_settled {
            self.settled_at = self.time + self.period;
        }
    }

    /// The time that may be charged, as of the last look.
    #[inline]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The period.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// Whether deadlines may be judged: not right after a gap.
    pub fn is_settled(&self) -> bool {
        self.time >= self.settled_at
    }

    /// The time from which on they may be.
    pub fn settled_at(&self) -> u64 {
        self.settled_at
    }

    /// When the thread should look next, as the clock counts, for something that is due at `due` of
    /// the charged time.
    pub fn next(&self, due: u64) -> u64 {
        self.last.saturating_add(due.saturating_sub(self.time).min(self.period))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(8);
    const PERIOD: u64 = 500_000_000;

    fn looks() -> Looks {
        let looks = Looks::new(Some(LIMIT), 1_000);
        assert_eq!((looks.period(), looks.time(), looks.is_settled()), (PERIOD, 1_000, true));
        looks
    }

    #[test]
    fn a_period_is_a_part_of_the_limit_within_bounds() {
        for (limit, period) in [(10, 10), (30, 10), (1_600, 100), (30_000, 1_000)] {
            let period_of = Looks::period_of(Duration::from_millis(limit));
            assert_eq!(period_of, Duration::from_millis(period), "{limit} ms");
        }
    }

    #[test]
    fn time_between_looks_is_charged_and_a_gap_is_one_period() {
        let (mut looks, mut now) = (looks(), 1_000);
        for _ in 0..10 {
            now += 2 * PERIOD;
            looks.look(now);
            assert!(looks.time() == now && looks.is_settled());
        }
        let before = looks.time();
        now += 35_000_000_000;
        looks.look(now);
        assert_eq!((looks.time(), looks.is_settled()), (before + PERIOD, false));
        // The next look is due in a period, whatever is due now.
        assert_eq!(looks.next(before), now);
        assert_eq!(looks.next(looks.settled_at()), now + PERIOD);
        assert_eq!(looks.next(u64::MAX), now + PERIOD);
        looks.look(now + PERIOD - 1);
        assert!(!looks.is_settled());
        looks.look(now + PERIOD);
        assert!(looks.is_settled());
        assert_eq!(looks.time(), before + 2 * PERIOD);
    }

    #[test]
    fn a_clock_that_stands_still_or_is_read_by_another_thread_first_takes_nothing_back() {
        let mut looks = looks();
        looks.look(5_000);
        looks.look(4_000);
        looks.look(5_000);
        assert_eq!(looks.time(), 5_000);
    }

    #[test]
    fn a_thread_that_never_runs_for_long_judges_in_the_end() {
        let (mut looks, mut now, mut judged) = (looks(), 1_000, 0);
        let due = looks.time() + LIMIT.as_nanos() as u64;
        for _ in 0..40 {
            now += 60_000_000_000;
            looks.look(now);
            judged += u32::from(looks.is_settled() && looks.time() >= due);
        }
        assert_eq!(judged, 13, "every second look of those that are late");
    }

    #[test]
    fn without_a_limit_all_time_is_charged() {
        let mut looks = Looks::new(None, 0);
        looks.look(1 << 61);
        assert!(looks.time() == 1 << 61 && looks.is_settled());
    }
}
