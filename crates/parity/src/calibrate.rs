//! Selects the fastest kernels on this CPU, with a clock of the caller.
//!
//! Invariant: the answer is one of those that were offered, and every answer computes the same
//! bytes; a bad measurement costs speed, never data. Called from [`Kernels::calibrated`].
//!
//! What is measured is what an array does most: a small write (P and Q after one block of 4 KiB has
//! changed) and a full stripe (P and Q of eight blocks of 16 KiB: they fill a good part of the
//! second-level cache, as blocks of 64 KiB do, and fit on the stack; further out, memory decides,
//! and there all vector kernels are alike). Kernels take turns, so that a change of the clock rate
//! meets all of them, and the least of several times counts, for what disturbs a measurement only
//! ever adds to it.
//!
//! The two are weighed as *ratios*: kernels are ahead by the geometric mean of how much faster they
//! are at each. The preferred ones (`Kernels::NAMES`: the widest) stay unless others are clearly
//! ahead, so that two runs on one machine choose alike.

use crate::{Block, Change, Kernels};

/// Bytes of a small write.
const SMALL: usize = 4 << 10;
/// Bytes of each block of a full stripe.
const LARGE: usize = 16 << 10;
const BLOCKS: usize = 8;
const ROUNDS: usize = 7;
/// Calls in a sample: some ten microseconds, much more than it takes to read a clock.
const SMALL_CALLS: usize = 24;
const LARGE_CALLS: usize = 3;

/// Kernels are clearly ahead if the product of their two times is less than this share of that of
/// the preferred ones, in percent: nine tenths for each.
const CLEARLY_AHEAD_PERCENT: u128 = 81;

/// The least ticks that kernels took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    small: u64,
    large: u64,
}

/// The fastest of those offered, which are in ascending order of preference.
pub(crate) fn fastest(
    offered: impl Iterator<Item = Kernels>,
    mut clock: impl FnMut() -> u64,
) -> Kernels {
    // The reference is here to be compared with, and the portable ones need ten times as long as
    // any vector: they are measured only where there is nothing else.
    let plain = |kernels: &Kernels| [Kernels::reference(), Kernels::portable()].contains(kernels);
    let nothing = (Kernels::portable(), Ticks { small: u64::MAX, large: u64::MAX });
    let mut candidates = [nothing; Kernels::NAMES.len()];
    let mut count = 0;
    for (candidate, kernels) in candidates.iter_mut().zip(offered.filter(|k| !plain(k))) {
        candidate.0 = kernels;
        count += 1;
    }
    let candidates = &mut candidates[..count];
    // A single candidate needs no measurement.
    if candidates.len() > 1 {
        measure(candidates, &mut clock);
    }
    choose(candidates)
}

fn measure(candidates: &mut [(Kernels, Ticks)], clock: &mut impl FnMut() -> u64) {
    // Written to, so that there are pages of its own and not the system's one page of zeroes.
    let row = std::hint::black_box([0x5a; BLOCKS * LARGE]);
    for round in 0..=ROUNDS {
        for (kernels, least) in &mut *candidates {
            let ticks =
                Ticks { small: small(*kernels, &row, clock), large: large(*kernels, &row, clock) };
            // The first round only wakes up the vector units and fetches the data.
            if round > 0 {
                least.small = ticks.small.min(least.small);
                least.large = ticks.large.min(least.large);
            }
        }
    }
}

fn small(kernels: Kernels, row: &[u8], clock: &mut impl FnMut() -> u64) -> u64 {
    let (mut p, mut q) = ([0; SMALL], [0; SMALL]);
    let change = Change { exponent: 3, old: &row[..SMALL], new: &row[SMALL..2 * SMALL] };
    let start = clock();
    for _ in 0..SMALL_CALLS {
        kernels.pq_update(&mut p, &mut q, std::hint::black_box(&[change]));
        std::hint::black_box((&mut p, &mut q));
    }
    clock().saturating_sub(start)
}

fn large(kernels: Kernels, row: &[u8], clock: &mut impl FnMut() -> u64) -> u64 {
    let block = |i| Block { exponent: i as u8, bytes: &row[i * LARGE..(i + 1) * LARGE] };
    let data: [Block; BLOCKS] = std::array::from_fn(block);
    let (mut p, mut q) = ([0; LARGE], [0; LARGE]);
    let start = clock();
    for _ in 0..LARGE_CALLS {
        kernels.pq_gen(&mut p, &mut q, std::hint::black_box(&data));
        std::hint::black_box((&mut p, &mut q));
    }
    clock().saturating_sub(start)
}

/// From (kernels, ticks), the most preferred last.
fn choose(candidates: &[(Kernels, Ticks)]) -> Kernels {
    let mut preferred = candidates.iter().rev();
    let Some(&(mut best, mut ticks)) = preferred.next() else {
        return Kernels::portable();
    };
    for &(kernels, other) in preferred {
        let product = |ticks: Ticks| u128::from(ticks.small) * u128::from(ticks.large);
        if product(other) < product(ticks) / 100 * CLEARLY_AHEAD_PERCENT {
            (best, ticks) = (kernels, other);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stands_leaves_the_preferred() {
        assert_eq!(Kernels::calibrated(|| 7), Kernels::best());
    }

    #[test]
    fn a_clock_that_runs_backwards_does_no_harm() {
        let mut now = u64::MAX;
        let kernels = Kernels::calibrated(|| {
            now -= 1;
            now
        });
        assert!(Kernels::available().any(|available| available == kernels));
    }

    fn ticks(small: u64, large: u64) -> Ticks {
        Ticks { small, large }
    }

    #[test]
    fn others_are_chosen_only_if_they_are_clearly_ahead() {
        let (a, b) = (Kernels::reference(), Kernels::portable());
        let choose = |of_a, of_b| choose(&[(a, of_a), (b, of_b)]);
        assert_eq!(choose(ticks(1000, 10_000), ticks(500, 5_000)), b);
        assert_eq!(choose(ticks(500, 5_000), ticks(1000, 10_000)), a);
        assert_eq!(choose(ticks(920, 9_200), ticks(1000, 10_000)), b, "not clearly");
        // Much better at one, as much worse at the other: the preferred stay.
        assert_eq!(choose(ticks(500, 20_000), ticks(1000, 10_000)), b);
        // A little worse at the one that takes longer, much better at the other.
        assert_eq!(choose(ticks(500, 11_000), ticks(1000, 10_000)), a);
        assert_eq!(choose(ticks(0, 0), ticks(0, 0)), b, "a clock that is too coarse");
        let endless = ticks(u64::MAX, u64::MAX);
        assert_eq!(choose(endless, endless), b);
    }

    #[test]
    fn without_vectors_there_is_nothing_to_measure() {
        let plain = [Kernels::reference(), Kernels::portable()];
        assert_eq!(fastest(plain.into_iter(), || panic!("asked")), Kernels::portable());
        assert_eq!(fastest([].into_iter(), || panic!("asked")), Kernels::portable());
    }

    /// With a clock that advances ten times faster while the slower of two kernels runs.
    #[test]
    fn kernels_that_take_longer_lose() {
        let vectors: Vec<Kernels> = Kernels::available().skip(2).collect();
        let [.., first, second] = vectors[..] else {
            println!("skipped: fewer than two kinds of vectors on this CPU");
            return;
        };
        for slow in [first, second] {
            // Four readings for each of the two in a round, first and second in turn.
            let (mut now, mut reading) = (0, 0);
            let clock = || {
                let whose = if reading / 4 % 2 == 0 { first } else { second };
                reading += 1;
                now += if whose == slow { 1000 } else { 100 };
                now
            };
            let fast = if slow == first { second } else { first };
            assert_eq!(fastest([first, second].into_iter(), clock), fast);
        }
    }
}
