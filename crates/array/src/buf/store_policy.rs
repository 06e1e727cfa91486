//! Decides whether long stores to memory go through the CPU caches or past them (non-temporal), by
//! measuring which is cheaper at present.
//!
//! ```text
//! | past | near | past | near | ...            the cheaper one            | past | near | ...
//!   TRY_BYTES each, the second half timed       KEEP_BYTES                  tried again
//! ```
//! A non-temporal store moves half of the bytes, but each waits for memory. Which of the two is
//! faster depends on the machine, on the memory bandwidth that its other guests leave, and on the
//! data: on one machine full stripes took 0.6 and 1.4 times as long past the caches on two days. So
//! both are tried with the real workload, and compared by the CPU time that the thread spends
//! during the trial. The first half of each trial is not timed: it is affected by what the other
//! method has left in the first two levels of caches. (Effects on a larger cache are ignored.)
//!
//! Invariant: the decision affects only speed. Used by memory members.

use rustix::time::{ClockId, clock_gettime};

/// Bytes per trial: half of it is more than a second-level cache, and long enough that reading the
/// clock is negligible.
const TRY_BYTES: u64 = 4 << 20;
/// Number of trials, both methods in turn; the best of each method counts.
const TRIALS: u8 = 8;
/// Bytes stored before the methods are tried again: some tenths of a second.
const KEEP_BYTES: u64 = 1 << 30;
/// Minimum gain in per cent for a change of method: noise does not count.
const GAIN_PERCENT: u64 = 3;

/// Chooses the cheaper method; see the module documentation.
pub(crate) struct StorePolicy {
    /// CPU time of the thread in nanoseconds.
    clock: fn() -> u64,
    /// The thread that stored last: see [`host::sys::thread_mark`].
    thread: usize,
    past: bool,
    /// The current trial; `None` while a method is in use.
    trial: Option<Trial>,
    /// Bytes stored since the trial began, or since the method was chosen.
    stored: u64,
}

struct Trial {
    number: u8,
    /// Start of its second half; `None` in the first half.
    began: Option<u64>,
    /// Another thread has stored in it: two clocks give no result.
    is_moved: bool,
    /// Least nanoseconds for half a trial's bytes so far, near and past.
    least: [Option<u64>; 2],
}

impl Default for StorePolicy {
    fn default() -> StorePolicy {
        StorePolicy::new(thread_nanos)
    }
}

impl StorePolicy {
    fn new(clock: fn() -> u64) -> StorePolicy {
        // As if KEEP_BYTES were stored: the first store begins the trials.
        StorePolicy { clock, thread: 0, past: true, trial: None, stored: KEEP_BYTES }
    }

    /// Whether the next `bytes` bytes go past the caches.
    #[inline]
    pub(crate) fn goes_past(&mut self, bytes: u64) -> bool {
        let enough = if self.trial.is_some() { TRY_BYTES / 2 } else { KEEP_BYTES };
        if self.stored >= enough {
            self.next();
        }
        self.stored += bytes;
        let Some(trial) = &mut self.trial else { return self.past };
        let thread = host::sys::thread_mark();
        if std::mem::replace(&mut self.thread, thread) != thread {
            trial.is_moved = true;
        }
        trial.is_past()
    }

    /// Continues with the second half of a trial, the next trial, or the winner.
    #[cold]
    fn next(&mut self) {
        let now = (self.clock)();
        let stored = std::mem::take(&mut self.stored);
        let Some(trial) = &mut self.trial else {
            self.trial = Some(Trial { number: 0, began: None, is_moved: false, least: [None; 2] });
            return;
        };
        let Some(began) = trial.began.take() else {
            trial.began = Some(now);
            trial.is_moved = false;
            return;
        };
        let is_same = !trial.is_moved && self.thread == host::sys::thread_mark();
        if let Some(nanos) = now.checked_sub(began).filter(|_| is_same) {
            let nanos = nanos.saturating_mul(TRY_BYTES / 2) / stored;
            let least = &mut trial.least[usize::from(trial.number.is_multiple_of(2))];
            *least = Some(least.map_or(nanos, |least| least.min(nanos)));
        }
        trial.number += 1;
        if trial.number < TRIALS {
            return;
        }
        let [mine, other] = [self.past, !self.past].map(|past| trial.least[usize::from(past)]);
        self.trial = None;
        if let (Some(mine), Some(other)) = (mine, other)
            && other.saturating_mul(100) < mine.saturating_mul(100 - GAIN_PERCENT)
        {
            self.past = !self.past;
        }
    }
}

impl Trial {
    fn is_past(&self) -> bool {
        self.number.is_multiple_of(2)
    }
}

fn thread_nanos() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    const STORE: u64 = 64 << 10;

    /// Stores `bytes`, where a store costs the given nanoseconds near and past; returns how many
    /// bytes went past.
    fn store(ways: &mut StorePolicy, bytes: u64, [near, past]: [u64; 2]) -> u64 {
        let mut gone_past = 0;
        for _ in 0..bytes / STORE {
            let goes_past = ways.goes_past(STORE);
            NOW.set(NOW.get() + if goes_past { past } else { near });
            gone_past += if goes_past { STORE } else { 0 };
        }
        gone_past
    }

    const TRIED: u64 = TRIALS as u64 * TRY_BYTES;

    #[test]
    fn the_cheaper_way_is_kept_until_it_is_not_any_more() {
        let mut ways = StorePolicy::new(|| NOW.get());
        for costs in [[700, 1000], [1000, 700], [980, 1000], [1000, 500]] {
            assert_eq!(store(&mut ways, TRIED, costs), TRIED / 2, "both in turn");
            // 2 per cent are no reason to change.
            let past = costs[1] < costs[0] || costs[0] == 980;
            let kept = store(&mut ways, KEEP_BYTES, costs);
            assert_eq!(kept, if past { KEEP_BYTES } else { 0 }, "{costs:?}");
        }
    }

    /// A trial that something else made long does not decide.
    #[test]
    fn the_best_of_the_trials_counts() {
        let mut ways = StorePolicy::new(|| NOW.get());
        for disturbed in [0, 3, 6] {
            for trial in 0..u64::from(TRIALS) {
                let more = if trial == disturbed { 5000 } else { 0 };
                store(&mut ways, TRY_BYTES, [700 + more, 1000 + more]);
            }
            assert_eq!(store(&mut ways, KEEP_BYTES, [700, 1000]), 0);
        }
    }

    /// What one way leaves behind is not the other's.
    #[test]
    fn the_first_half_of_a_trial_does_not_count() {
        let mut ways = StorePolicy::new(|| NOW.get());
        for trial in 0..u64::from(TRIALS) {
            let dear = if trial % 2 == 0 { 9000 } else { 0 };
            store(&mut ways, TRY_BYTES / 2, [1000 + dear, 700 + dear]);
            store(&mut ways, TRY_BYTES / 2, [1000, 700]);
        }
        assert_eq!(store(&mut ways, KEEP_BYTES, [1000, 700]), KEEP_BYTES);
    }

    /// A driver that moves to another thread sees another clock.
    #[test]
    fn a_clock_that_goes_back_decides_nothing() {
        let mut ways = StorePolicy::new(|| u64::MAX - NOW.get());
        assert_eq!(store(&mut ways, TRIED, [1, 1]), TRIED / 2);
        assert_eq!(store(&mut ways, KEEP_BYTES, [1, 1]), KEEP_BYTES, "as it was");

        // Of the way that is taken now nothing is known, of the other one everything.
        thread_local! {
            static LOOKS: Cell<u64> = const { Cell::new(0) };
        }
        let clock = || {
            LOOKS.set(LOOKS.get() + 1);
            // Looks: the start, then the middle and the end of trials, past and near in turn.
            if LOOKS.get() % 4 == 3 { 0 } else { 1000 + LOOKS.get() }
        };
        let mut ways = StorePolicy::new(clock);
        store(&mut ways, TRIED, [1, 1]);
        assert_eq!(store(&mut ways, KEEP_BYTES, [1, 1]), KEEP_BYTES, "as it was");
    }
}
