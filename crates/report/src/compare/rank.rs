//! How two sets of samples differ: Hodges and Lehmann's estimate of their ratio, and its interval
//! from the Mann-Whitney rank test.
//!
//! The estimate is the median of all ratios b/a. Sorted, those ratios are the interval too: the
//! test says how many may be cut off at each end. So interval and test never disagree, and both
//! hold for any distribution and any number of samples: no normality, which throughput does not
//! have (a stall makes a long tail), and no bootstrap, whose intervals are too narrow below some
//! twenty samples.
//!
//! Sources: Mann and Whitney, Annals of Mathematical Statistics 18 (1947), for the distribution of
//! U; Hollander and Wolfe, Nonparametric Statistical Methods, chapter 4, for estimate and interval.
//!
//! Values are of runs, each on ground made anew with other addresses: the samples of one run are
//! alike, whatever the ground is like, and no test may take them for independent ones.
//!
//! Invariant: pure; if both sets come from one distribution, the interval misses 1 with a chance of
//! at most [`ALPHA`].

use serde::Serialize;

/// Chance of a false verdict, for each cell. 1 %: five samples on each side can just reach it.
pub const ALPHA: f64 = 0.01;

/// More pairs than this are thinned: the exact distribution needs as many steps, and memory.
const SAMPLES_MAX: usize = 200;

/// B over A.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Hodges and Lehmann's estimate.
    pub estimate: f64,
    /// Lower bound of the interval.
    pub low: f64,
    /// Upper bound of the interval.
    pub high: f64,
}

/// The ratio of `b` to `a`, all of them above 0. `None` when there are too few for any verdict.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let (a, b) = (thinned(a), thinned(b));
    let cut = cut(a.len(), b.len(), ALPHA)?;
    let mut ratios: Vec<f64> = a.iter().flat_map(|a| b.iter().map(move |b| b / a)).collect();
    ratios.sort_by(f64::total_cmp);
    let estimate = results::stats::median(&ratios)?;
    Some(Ratio { estimate, low: ratios[cut], high: ratios[ratios.len() - 1 - cut] })
}

/// The chance of a rank sum at least as far from the middle as that of these values, if both sets
/// come from one distribution; ties count for that. `None` without values on either side.
pub fn p_value(a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (thinned(a), thinned(b));
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let count = |holds: fn(f64, f64) -> bool| -> usize {
        a.iter().map(|&a| b.iter().filter(|&&b| holds(a, b)).count()).sum()
    };
    let least = count(|a, b| b >= a).min(count(|a, b| b <= a));
    let below: f64 = distribution(a.len(), b.len()).iter().take(least + 1).sum();
    Some((2.0 * below).min(1.0))
}

/// Which of these may be believed together, so that in at most `alpha` of all cases in which
/// nothing differs any of them is: Holm, Scandinavian Journal of Statistics 6 (1979).
pub fn holm(p_values: &[f64], alpha: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&one, &two| p_values[one].total_cmp(&p_values[two]));
    let mut believed = vec![false; p_values.len()];
    for (rank, &at) in order.iter().enumerate() {
        if p_values[at] > alpha / (p_values.len() - rank) as f64 {
            break;
        }
        believed[at] = true;
    }
    believed
}

/// How many values each side needs before the test can reach `alpha` for one of `cells` at all: the
/// most extreme order of n and n is one of (2n over n), at either end.
pub fn runs_needed(cells: usize, alpha: f64) -> usize {
    let wanted = alpha / cells.max(1) as f64;
    let (mut n, mut share) = (1_usize, 0.5);
    while 2.0 * share > wanted {
        n += 1;
        share *= n as f64 / (2.0 * (2 * n - 1) as f64);
    }
    n
}

/// Every n-th, where there are more than is worth counting.
fn thinned(values: &[f64]) -> Vec<f64> {
    let step = values.len().div_ceil(SAMPLES_MAX).max(1);
    values.iter().copied().step_by(step).collect()
}

/// How many of the sorted ratios lie outside the interval at each end: the largest c for which
/// 2 P(U <= c) stays within alpha. `None` when even c = 0 does not.
///
/// With ties the test is conservative: the interval only widens.
fn cut(m: usize, n: usize, alpha: f64) -> Option<usize> {
    let mut below = 0.0;
    let mut cut = None;
    for (u, share) in distribution(m, n).into_iter().enumerate() {
        below += share;
        if 2.0 * below > alpha {
            break;
        }
        cut = Some(u);
    }
    cut
}

/// P(U = u) for u = 0, 1, ... if both sets come from one distribution: the coefficients of the
/// Gaussian binomial, built up factor by factor: product of (1 - x^(n+i)) / (1 - x^i) for i =
/// 1..=m. Each factor is scaled by its value at x = 1, i / (n + i), so that the numbers stay
/// shares.
fn distribution(m: usize, n: usize) -> Vec<f64> {
    let size = m * n + 1;
    let mut shares = vec![0.0; size];
    shares[0] = 1.0;
    for i in 1..=m {
        for at in (n + i..size).rev() {
            shares[at] -= shares[at - n - i];
        }
        for at in i..size {
            shares[at] += shares[at - i];
        }
        let scale = i as f64 / (n + i) as f64;
        shares.iter_mut().for_each(|share| *share *= scale);
    }
    shares
}

#[cfg(test)]
mod tests {
    use spec::rng::SplitMix64;

    use super::*;

    #[test]
    fn the_distribution_of_u_is_the_tables() {
        // Counted by hand: 3 against 2, ten orders.
        let shares = distribution(3, 2);
        let orders = [1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0];
        for (share, orders) in shares.iter().zip(orders) {
            assert!((share - orders / 10.0).abs() < 1e-12, "{shares:?}");
        }
        for (m, n) in [(5, 5), (5, 9), (20, 20), (60, 40), (200, 200)] {
            let shares = distribution(m, n);
            let sum: f64 = shares.iter().sum();
            assert!((sum - 1.0).abs() < 1e-6, "{m} {n}: {sum}");
            let mirrored = shares.iter().zip(shares.iter().rev());
            assert!(mirrored.clone().all(|(one, two)| (one - two).abs() < 1e-6), "{m} {n}");
        }
        // Critical values at 1 %, two sides (Mann and Whitney's tables): U must not be above.
        for (m, n, critical) in [(5, 5, 0), (6, 6, 2), (8, 8, 7), (10, 10, 16), (20, 20, 105)] {
            assert_eq!(cut(m, n, 0.01), Some(critical), "{m} {n}");
        }
        assert_eq!(cut(4, 4, 0.01), None);
        assert_eq!(cut(0, 9, 0.01), None);
    }

    /// About log-normal: a sum of twelve uniform numbers, exponentiated.
    fn sample(random: &mut SplitMix64, noise: f64) -> f64 {
        let uniform = |random: &mut SplitMix64| (random.draw() >> 11) as f64 / (1u64 << 53) as f64;
        let sum: f64 = (0..12).map(|_| uniform(random)).sum::<f64>() - 6.0;
        100.0 * (sum * noise).exp()
    }

    /// A long tail: one in ten samples stalls.
    fn stalling(random: &mut SplitMix64) -> f64 {
        let value = sample(random, 0.02);
        if random.below(10) == 0 { value / 3.0 } else { value }
    }

    #[test]
    fn one_distribution_gives_a_difference_no_more_often_than_stated() {
        const TRIALS: usize = 20_000;
        let mut random = SplitMix64(7);
        for (count, tail) in [(5, false), (5, true), (12, false), (12, true)] {
            let mut draw = || match tail {
                true => stalling(&mut random),
                false => sample(&mut random, 0.05),
            };
            let mut wrong = 0;
            for _ in 0..TRIALS {
                let a: Vec<f64> = (0..count).map(|_| draw()).collect();
                let b: Vec<f64> = (0..count).map(|_| draw()).collect();
                let ratio = ratio(&a, &b).expect("enough samples");
                wrong += usize::from(ratio.low > 1.0 || ratio.high < 1.0);
            }
            let share = wrong as f64 / TRIALS as f64;
            // Three standard deviations of a count with this chance.
            let bound = ALPHA + 3.0 * (ALPHA * (1.0 - ALPHA) / TRIALS as f64).sqrt();
            assert!(share <= bound, "{count} samples, tail {tail}: {share}");
            assert!(share > 0.002, "{count}: a test that never says anything is none: {share}");
        }
    }

    #[test]
    fn a_shift_that_is_large_against_the_noise_is_seen_and_measured() {
        let mut random = SplitMix64(11);
        for _ in 0..500 {
            let a: Vec<f64> = (0..5).map(|_| sample(&mut random, 0.02)).collect();
            let b: Vec<f64> = (0..5).map(|_| 0.8 * sample(&mut random, 0.02)).collect();
            let ratio = ratio(&a, &b).expect("enough samples");
            assert!(ratio.high < 1.0, "20 % slower: {ratio:?}");
            assert!((0.75..0.85).contains(&ratio.estimate), "{ratio:?}");
        }
    }

    #[test]
    fn the_interval_holds_the_true_ratio_as_often_as_stated() {
        let mut random = SplitMix64(13);
        let mut missed = 0;
        for _ in 0..5_000 {
            let a: Vec<f64> = (0..8).map(|_| sample(&mut random, 0.1)).collect();
            let b: Vec<f64> = (0..8).map(|_| 1.3 * sample(&mut random, 0.1)).collect();
            let ratio = ratio(&a, &b).expect("enough samples");
            missed += usize::from(ratio.low > 1.3 || ratio.high < 1.3);
        }
        assert!(missed <= 75, "{missed} of 5000 at 1 %");
    }

    #[test]
    fn p_values_agree_with_the_interval_and_with_counting() {
        // Two against two, six orders: the most extreme one, at either end.
        let p = p_value(&[1.0, 2.0], &[3.0, 4.0]).expect("values");
        assert!((p - 2.0 / 6.0).abs() < 1e-12, "{p}");
        assert_eq!(p_value(&[1.0], &[1.0]), Some(1.0));
        assert_eq!(p_value(&[], &[1.0]), None);
        let mut random = SplitMix64(17);
        for _ in 0..2_000 {
            let a: Vec<f64> = (0..6).map(|_| sample(&mut random, 0.05)).collect();
            let b: Vec<f64> = (0..7).map(|_| 0.92 * sample(&mut random, 0.05)).collect();
            let (p, ratio) = (p_value(&a, &b).expect("p"), ratio(&a, &b).expect("a ratio"));
            assert_eq!(p <= ALPHA, ratio.low > 1.0 || ratio.high < 1.0, "{p} {ratio:?}");
        }
    }

    #[test]
    fn holm_believes_what_stands_out_of_all_and_says_how_much_that_takes() {
        assert_eq!(holm(&[0.04, 0.001, 0.02], 0.05), [true, true, true]);
        assert_eq!(holm(&[0.04, 0.001, 0.03], 0.05), [false, true, false]);
        assert_eq!(holm(&[0.02, 0.03], 0.05), [true, true], "0.02 of 0.025, then 0.03 of 0.05");
        assert_eq!(holm(&[], 0.05), [false; 0]);
        // 2 of 252 orders of five and five; 2 of 3432 of seven and seven.
        assert_eq!((runs_needed(1, 0.01), runs_needed(1, 0.05)), (5, 4));
        assert_eq!((runs_needed(52, 0.05), runs_needed(52, 0.01)), (7, 8));
        assert_eq!(runs_needed(0, 0.05), 4);
    }

    #[test]
    fn many_samples_are_thinned_and_few_are_refused() {
        let many: Vec<f64> = (0..5000).map(|at| 100.0 + f64::from(at % 10)).collect();
        let ratio_of_many = ratio(&many, &many).expect("many");
        assert!(ratio_of_many.low <= 1.0 && ratio_of_many.high >= 1.0);
        assert_eq!(ratio(&[1.0; 4], &[1.0; 4]), None);
        assert_eq!(ratio(&[], &[]), None);
        // All the same, as a model in virtual time gives them: the ratio is known, the test cannot
        // see more than order.
        let exact = ratio(&[2.0; 5], &[1.0; 5]).expect("five");
        assert_eq!((exact.estimate, exact.low, exact.high), (0.5, 0.5, 0.5));
    }
}
