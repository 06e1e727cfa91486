//! Which kernels are the fastest here, by a clock that the caller brings.
//!
//! Invariant: the answer is one of those that were offered, and every answer computes the same
//! bytes; a bad measurement costs speed, never data. Called from [`Kernels::calibrated`].
//!
//! What is measured is P and Q of eight blocks of 4 KiB, about what the first-level cache holds:
//! further out, memory decides, and there all vector kernels are alike. Kernels take turns, so that
//! a change of the clock rate meets all of them, and the least of several times counts, for what
//! disturbs a measurement only ever adds to it.

use crate::{Block, Kernels};

const LEN: usize = 4096;
const BLOCKS: usize = 8;
const ROUNDS: usize = 7;
/// Calls in a sample: some microseconds, more than it takes to read a clock.
const CALLS: usize = 3;

/// The fastest of those offered, which are in ascending order of preference; a less preferred one
/// must be ahead by a twentieth.
pub(crate) fn fastest(
    offered: impl Iterator<Item = Kernels>,
    mut clock: impl FnMut() -> u64,
) -> Kernels {
    // The reference is here to be compared with, not to be used.
    let offered = offered.filter(|&kernels| kernels != Kernels::reference());
    let mut candidates = [(Kernels::portable(), u64::MAX); Kernels::NAMES.len()];
    let mut count = 0;
    for (candidate, kernels) in candidates.iter_mut().zip(offered) {
        candidate.0 = kernels;
        count += 1;
    }
    let candidates = &mut candidates[..count];
    for round in 0..=ROUNDS {
        for (kernels, least) in &mut *candidates {
            let ticks = sample(*kernels, &mut clock);
            // The first round only wakes up the vector units.
            if round > 0 {
                *least = ticks.min(*least);
            }
        }
    }
    choose(candidates)
}

fn sample(kernels: Kernels, clock: &mut impl FnMut() -> u64) -> u64 {
    static ZEROES: [u8; LEN] = [0; LEN];
    let data: [Block; BLOCKS] =
        std::array::from_fn(|i| Block { exponent: i as u8, bytes: &ZEROES });
    let (mut p, mut q) = ([0; LEN], [0; LEN]);
    let start = clock();
    for _ in 0..CALLS {
        kernels.pq_gen(&mut p, &mut q, std::hint::black_box(&data));
        std::hint::black_box((&mut p, &mut q));
    }
    clock().saturating_sub(start)
}

/// From (kernels, ticks), the most preferred last.
fn choose(candidates: &[(Kernels, u64)]) -> Kernels {
    let mut preferred = candidates.iter().rev();
    let Some(&(mut best, mut ticks)) = preferred.next() else {
        return Kernels::portable();
    };
    for &(kernels, other) in preferred {
        if other < ticks - ticks / 20 {
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

    #[test]
    fn the_fastest_is_chosen_if_it_is_clearly_ahead() {
        let (a, b) = (Kernels::reference(), Kernels::portable());
        assert_eq!(choose(&[(a, 100), (b, 50)]), b);
        assert_eq!(choose(&[(a, 50), (b, 100)]), a);
        assert_eq!(choose(&[(a, 96), (b, 100)]), b);
        assert_eq!(choose(&[]), Kernels::portable());
    }

    #[test]
    fn the_time_of_each_is_its_own() {
        // One kind of kernels alone is measured, whatever the clock says.
        let mut now = 0;
        let clock = || {
            now += 10;
            now
        };
        assert_eq!(fastest([Kernels::portable()].into_iter(), clock), Kernels::portable());
        assert_eq!(now, 10 * 2 * (ROUNDS as u64 + 1));
    }
}
