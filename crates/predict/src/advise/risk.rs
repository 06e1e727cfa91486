//! What failures cost: rebuild time, unreadable sectors, loss in a year.
//!
//! Members fail at the annual rate; while one is missing, the others fail at a multiple of it:
//! batches are correlated, and a rebuild is work. One rebuild runs at a time. A Markov chain counts
//! missing members up to the loss:
//!
//! ```text
//!   0 --n a--> 1 --(n-1) a f--> 2 --(n-2) a f--> lost        (RAID 6)
//!     <--1/T--   <--1/T---
//! ```
//!
//! Mirrors are chains of their own copies, as many as there are groups. An unreadable sector
//! without redundancy left loses that sector, not the array: it is a probability of its own.
//!
//! Invariant: probabilities are within 0 and 1, and more redundancy never raises them.

use md::Level;

use crate::law::{Array, Copies, Machine};

/// What is assumed of the disks and of their replacement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Assumptions {
    /// Failures of a disk in a year.
    pub annual_failure_rate: f64,
    /// Unrecoverable read errors per bit read.
    pub errors_per_bit: f64,
    /// Factor on failures while a member is missing.
    pub correlation: f64,
    /// Time until a replacement is in place, h.
    pub replacement_h: f64,
}

impl Assumptions {
    /// Usual values: disks 1.5 % a year and 1e-15 a bit, flash 1 % and 1e-16; four times as many
    /// failures while one is missing; a day until the replacement.
    pub fn usual(machine: &Machine) -> Assumptions {
        let flash = machine.media.is_flash();
        Assumptions {
            annual_failure_rate: if flash { 0.01 } else { 0.015 },
            errors_per_bit: if flash { 1e-16 } else { 1e-15 },
            correlation: 4.0,
            replacement_h: 24.0,
        }
    }
}

/// What failures cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Risk {
    /// Members that may fail, whichever they are.
    pub tolerates: u32,
    /// Time of a rebuild without other load, h; `None`: there is none.
    pub rebuild_h: Option<f64>,
    /// Chance that the array is lost while one member is replaced and rebuilt.
    pub loss_in_rebuild: f64,
    /// Chance that a sector cannot be read in that rebuild, and has no other copy.
    pub unreadable_in_rebuild: f64,
    /// Chance that the array is lost within a year.
    pub loss_in_year: f64,
    /// Chance that one more failure, while one member is missing, loses the array.
    pub second_failure: f64,
}

const HOURS: f64 = 8766.0;

/// The average rate over a disk, of that at its outer edge.
const MEAN_ZONE: f64 = 0.75;

/// What failures of members of that size cost.
pub fn risk(
    array: &Array,
    machine: &Machine,
    member_bytes: u64,
    rebuild_mb_per_s: f64,
    assumptions: &Assumptions,
) -> Risk {
    let n = f64::from(array.members);
    let zone = if machine.media.is_flash() { 1.0 } else { MEAN_ZONE };
    let rebuild_h = member_bytes as f64 / 1e6 / (rebuild_mb_per_s * zone) / 3600.0;
    let window = rebuild_h + assumptions.replacement_h;
    // An annual rate of failures as a rate per hour: 1 - exp(-a) of the disks fail in a year.
    let fail = -(1.0 - assumptions.annual_failure_rate.clamp(0.0, 0.999)).ln() / HOURS;
    let after = fail * assumptions.correlation;
    let bits = |members: f64| 8.0 * member_bytes as f64 * members;
    let unreadable = |members: f64| 1.0 - (-bits(members) * assumptions.errors_per_bit).exp();
    let within_window = |rate: f64| 1.0 - (-rate * window).exp();
    let repair = 1.0 / window;
    match array.level {
        Level::Linear | Level::Raid0 => Risk {
            tolerates: 0,
            rebuild_h: None,
            loss_in_rebuild: 1.0,
            unreadable_in_rebuild: 1.0,
            loss_in_year: 1.0 - (-n * fail * HOURS).exp(),
            second_failure: 1.0,
        },
        Level::Raid4 | Level::Raid5 => Risk {
            tolerates: 1,
            rebuild_h: Some(rebuild_h),
            loss_in_rebuild: within_window((n - 1.0) * after),
            unreadable_in_rebuild: unreadable(n - 1.0),
            loss_in_year: chain(&[n * fail, (n - 1.0) * after], repair),
            second_failure: 1.0,
        },
        Level::Raid6 => Risk {
            tolerates: 2,
            rebuild_h: Some(rebuild_h),
            loss_in_rebuild: within_window((n - 1.0) * after) * within_window((n - 2.0) * after),
            unreadable_in_rebuild: 0.0,
            loss_in_year: chain(&[n * fail, (n - 1.0) * after, (n - 2.0) * after], repair),
            second_failure: 0.0,
        },
        Level::Raid1 | Level::Raid10 => {
            mirrors(array, fail, after, repair, &within_window, &unreadable, rebuild_h)
        }
    }
}

fn mirrors(
    array: &Array,
    fail: f64,
    after: f64,
    repair: f64,
    within_window: &dyn Fn(f64) -> f64,
    unreadable: &dyn Fn(f64) -> f64,
    rebuild_h: f64,
) -> Risk {
    let (n, copies) = (f64::from(array.members), array.copy_count());
    let c = f64::from(copies);
    let near = array.level == Level::Raid1 || matches!(array.copies, Copies::Near(_));
    let whole = array.members.is_multiple_of(copies);
    // The copies of a member lie on its group; else on neighbours on both sides.
    let partners = if near && whole { c - 1.0 } else { (2.0 * (c - 1.0)).min(n - 1.0) };
    let mut rates = vec![n * fail];
    let mut lost_in_window = 1.0;
    for missing in 1..copies {
        let left = partners - f64::from(missing - 1);
        rates.push(left.max(1.0) * after);
        lost_in_window *= within_window(left.max(1.0) * after);
    }
    Risk {
        tolerates: copies - 1,
        rebuild_h: Some(rebuild_h),
        loss_in_rebuild: lost_in_window,
        unreadable_in_rebuild: if copies == 2 { unreadable(1.0) } else { 0.0 },
        loss_in_year: chain(&rates, repair),
        second_failure: if copies == 2 { (partners / (n - 1.0)).min(1.0) } else { 0.0 },
    }
}

/// The chance that a chain of failures reaches its end within a year: `rates[i]` per hour from i
/// missing members to i + 1, one repair at a time. The matrix of a very short time is squared until
/// it is that of a year.
fn chain(rates: &[f64], repair: f64) -> f64 {
    const SQUARINGS: i32 = 30;
    let states = rates.len() + 1;
    let short = HOURS / 2f64.powi(SQUARINGS);
    let mut step = vec![vec![0.0; states]; states];
    for (from, rate) in rates.iter().enumerate() {
        step[from][from + 1] = rate * short;
        if from > 0 {
            step[from][from - 1] = repair * short;
        }
        step[from][from] = 1.0 - (rate + if from > 0 { repair } else { 0.0 }) * short;
    }
    step[states - 1][states - 1] = 1.0;
    for _ in 0..SQUARINGS {
        step = squared(&step);
    }
    step[0][states - 1].clamp(0.0, 1.0)
}

fn squared(step: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let states = step.len();
    let cell = |row: usize, column: usize| {
        (0..states).map(|middle| step[row][middle] * step[middle][column]).sum()
    };
    (0..states).map(|row| (0..states).map(|column| cell(row, column)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::law::Media;

    fn of(level: Level, members: u32) -> Risk {
        let machine = Machine::new(Media::Rotating { rpm: 7200.0 });
        let array = Array::new(level, members, 512.0);
        risk(&array, &machine, 12_000_000_000_000, 200.0, &Assumptions::usual(&machine))
    }

    #[test]
    fn a_chain_of_one_step_is_an_exponential() {
        let found = chain(&[1e-5], 0.1);
        assert!((found - (1.0 - (-1e-5f64 * HOURS).exp())).abs() < 1e-6);
    }

    #[test]
    fn the_chain_agrees_with_the_rare_failure_formula() {
        // n (n-1) a^2 f T for small rates.
        let (a, f, t) = (1e-6, 4.0, 40.0);
        let exact = chain(&[5.0 * a, 4.0 * a * f], 1.0 / t);
        let formula = 5.0 * 4.0 * a * a * f * t * HOURS;
        assert!((exact / formula - 1.0).abs() < 0.02, "{exact} {formula}");
    }

    #[test]
    fn more_redundancy_is_safer() {
        // 12 TB at 150 MB/s: 22 hours.
        let five = of(Level::Raid5, 6);
        assert!((five.rebuild_h.unwrap() - 22.2).abs() < 0.1);
        // 5 members of 96e12 bits at 1e-15: 38 %.
        assert!((five.unreadable_in_rebuild - 0.381).abs() < 0.01);
        let all = [of(Level::Raid0, 6), five, of(Level::Raid10, 6), of(Level::Raid6, 6)];
        let losses: Vec<f64> = all.iter().map(|risk| risk.loss_in_year).collect();
        assert!(losses.is_sorted_by(|a, b| a > b), "{losses:?}");
        assert_eq!(of(Level::Raid10, 6).second_failure, 0.2);
        assert_eq!(of(Level::Raid6, 6).second_failure, 0.0);
        assert_eq!(of(Level::Raid1, 3).tolerates, 2);
    }
}
