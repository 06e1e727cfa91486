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
//! without redundancy left loses that sector, not the array: it is a probability of its own, and in
//! the chance of losing anything a rebuild from the last redundancy that meets one is a loss, too.
//!
//! Invariant: probabilities are within 0 and 1, and more redundancy never raises them.

use md::Level;

use crate::disks::failure_rate;
use crate::law::{Array, Copies, Machine, WhyNot};

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
    /// Usual values: the published failures of the class; 1e-15 errors a bit, of flash 1e-16; four
    /// times as many failures while one is missing; a day until the replacement.
    pub fn usual(machine: &Machine) -> Assumptions {
        let flash = machine.media.is_flash();
        Assumptions {
            annual_failure_rate: failure_rate(None, flash).annual,
            errors_per_bit: if flash { 1e-16 } else { 1e-15 },
            correlation: 4.0,
            replacement_h: 24.0,
        }
    }
}

/// What failures cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Risk {
    /// Members that may fail, whichever they are.
    pub tolerates: u32,
    /// Of replacing one member; `None` without redundancy, where the array is lost with it, and
    /// where nothing is known of its rate.
    pub rebuild: Option<Rebuild>,
    /// Why the rate of a rebuild is not known; `None`: it is, or there is no rebuild.
    pub rate_unknown: Option<WhyNot>,
    /// Chance that the array is lost within a year; `None`: it depends on a rebuild whose rate is
    /// not known.
    pub loss_in_year: Option<f64>,
    /// Chance that anything is lost within a year: the array, or a sector that cannot be read in a
    /// rebuild from the last redundancy. `None` as `loss_in_year`.
    pub anything_in_year: Option<f64>,
}

impl Risk {
    /// Why there is no [`Rebuild`]; `None`: there is one.
    pub fn why_no_rebuild(&self) -> Option<String> {
        match (self.rebuild, self.rate_unknown) {
            (Some(_), _) => None,
            (None, Some(why)) => Some(why.to_string()),
            (None, None) => Some(NO_REBUILD.to_string()),
        }
    }
}

/// Failures of members that an array survives, whichever they are.
pub fn tolerates(array: &Array) -> u32 {
    match array.level {
        Level::Linear | Level::Raid0 => 0,
        Level::Raid4 | Level::Raid5 | Level::Raid6 => array.parities(),
        Level::Raid1 | Level::Raid10 => array.copy_count() - 1,
    }
}

/// What the failure of one member costs until it has been replaced and rebuilt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebuild {
    /// Time of the rebuild without other load, h.
    pub hours: f64,
    /// Chance that the array is lost until its end.
    pub loss: f64,
    /// Chance that a sector cannot be read in it, and has no other copy.
    pub unreadable: f64,
    /// Chance that one more failure loses the array.
    pub second_failure: f64,
}

/// Why an array without redundancy has no [`Rebuild`].
const NO_REBUILD: &str = "without redundancy there is no rebuild: a lost member loses the array";

const HOURS: f64 = 8766.0;

/// The average rate over a disk, of that at its outer edge.
const MEAN_ZONE: f64 = 0.75;

/// What failures of members of that size cost.
pub fn risk(
    array: &Array,
    machine: &Machine,
    member_bytes: u64,
    rebuild_mb_per_s: Result<f64, WhyNot>,
    assumptions: &Assumptions,
) -> Risk {
    let n = f64::from(array.members);
    let tolerates = tolerates(array);
    let rebuild_mb_per_s = match rebuild_mb_per_s {
        Ok(rate) => rate,
        Err(why) if tolerates > 0 => {
            let rate_unknown = Some(why);
            let (loss_in_year, anything_in_year) = (None, None);
            return Risk { tolerates, rebuild: None, rate_unknown, loss_in_year, anything_in_year };
        }
        // Nothing is rebuilt.
        Err(_) => f64::INFINITY,
    };
    let zone = if machine.media.is_flash() { 1.0 } else { MEAN_ZONE };
    let mean = (rebuild_mb_per_s * zone).min(machine.sync_speed_max);
    let rebuild_h = member_bytes as f64 / 1e6 / mean / 3600.0;
    let window = rebuild_h + assumptions.replacement_h;
    // An annual rate of failures as a rate per hour: 1 - exp(-a) of the disks fail in a year.
    let fail = -(1.0 - assumptions.annual_failure_rate.clamp(0.0, 0.999)).ln() / HOURS;
    // No sum of rates is infinite, whatever the assumption.
    let after = (fail * assumptions.correlation).min(RATE_MAX);
    let bits = |members: f64| 8.0 * member_bytes as f64 * members;
    let unreadable = |members: f64| 1.0 - (-bits(members) * assumptions.errors_per_bit).exp();
    let repair = (1.0 / window).min(RATE_MAX);
    // `last`: members that are read where no other redundancy is left.
    let redundant = |rates: &[f64], last: f64, second_failure: f64| Risk {
        tolerates,
        rate_unknown: None,
        rebuild: Some(Rebuild {
            hours: rebuild_h,
            loss: chain(&rates[1..], 0.0, 0.0, window),
            unreadable: if tolerates == 1 { unreadable(last) } else { 0.0 },
            second_failure,
        }),
        loss_in_year: Some(chain(rates, repair, 0.0, HOURS)),
        anything_in_year: Some(chain(rates, repair, unreadable(last), HOURS)),
    };
    match array.level {
        Level::Linear | Level::Raid0 => {
            let loss = Some(chain(&[n * fail], 0.0, 0.0, HOURS));
            Risk {
                tolerates,
                rebuild: None,
                rate_unknown: None,
                loss_in_year: loss,
                anything_in_year: loss,
            }
        }
        Level::Raid4 | Level::Raid5 => redundant(&[n * fail, (n - 1.0) * after], n - 1.0, 1.0),
        Level::Raid6 => redundant(&[n * fail, (n - 1.0) * after, (n - 2.0) * after], n - 2.0, 0.0),
        Level::Raid1 | Level::Raid10 => {
            let partners = partners(array);
            let mut rates = vec![n * fail];
            for missing in 1..array.copy_count() {
                let left = partners - f64::from(missing - 1);
                rates.push(left.max(1.0) * after);
            }
            let two = array.copy_count() == 2;
            let second = if two { (partners / (n - 1.0)).min(1.0) } else { 0.0 };
            redundant(&rates, 1.0, second)
        }
    }
}

/// Members that hold copies of what a member of mirrors holds.
fn partners(array: &Array) -> f64 {
    let (n, copies) = (f64::from(array.members), array.copy_count());
    let c = f64::from(copies);
    let near = array.level == Level::Raid1 || matches!(array.copies, Copies::Near(_));
    let whole = array.members.is_multiple_of(copies);
    // The copies of a member lie on its group; else on neighbours on both sides.
    if near && whole { c - 1.0 } else { (2.0 * (c - 1.0)).min(n - 1.0) }
}

/// Failures per hour of a member that are the most a chain is computed with: each in a microsecond.
const RATE_MAX: f64 = 1e9 * 3600.0;

/// The chance that a chain of failures reaches its end within some hours: `rates[i]` per hour from
/// i missing members to i + 1, one repair at a time; of the repairs with most members missing, that
/// share ends in a loss. The matrix of a time so short that no state is
/// left with a chance above one half is squared until it is that of the whole time. What leaves a
/// state is a sum of positive numbers, and what stays is the rest of 1: so no error grows.
fn chain(rates: &[f64], repair: f64, lost_in_repair: f64, hours: f64) -> f64 {
    const SQUARINGS: i32 = 30;
    let states = rates.len() + 1;
    let fastest = rates.iter().copied().fold(0.0, f64::max) + repair;
    let needed = (2.0 * fastest * hours).log2().ceil();
    let squarings = SQUARINGS.max(needed.clamp(0.0, 1000.0) as i32);
    let short = hours / 2f64.powi(squarings);
    let mut step = vec![vec![0.0; states]; states];
    for (from, rate) in rates.iter().enumerate() {
        step[from][from + 1] = rate * short;
        if from > 0 {
            let lost = if from + 1 == rates.len() { lost_in_repair } else { 0.0 };
            step[from][from - 1] = repair * (1.0 - lost) * short;
            step[from][states - 1] += repair * lost * short;
        }
    }
    stay(&mut step);
    for _ in 0..squarings {
        step = squared(&step);
        stay(&mut step);
    }
    step[0][states - 1].clamp(0.0, 1.0)
}

/// Each row is 1 in all.
fn stay(step: &mut [Vec<f64>]) {
    for (state, row) in step.iter_mut().enumerate() {
        row[state] = 0.0;
        row[state] = (1.0 - row.iter().sum::<f64>()).max(0.0);
    }
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
        risk(&array, &machine, 12_000_000_000_000, Ok(200.0), &Assumptions::usual(&machine))
    }

    /// Failures of a disk with platters in a year.
    fn usual() -> f64 {
        Assumptions::usual(&Machine::new(Media::Rotating { rpm: 7200.0 })).annual_failure_rate
    }

    fn rebuild(risk: Risk) -> Rebuild {
        risk.rebuild.expect("redundancy")
    }

    #[test]
    fn a_chain_of_one_step_is_an_exponential() {
        let found = chain(&[1e-5], 0.1, 0.0, HOURS);
        assert!((found - (1.0 - (-1e-5f64 * HOURS).exp())).abs() < 1e-6);
    }

    #[test]
    fn the_chain_agrees_with_the_rare_failure_formula() {
        // n (n-1) a^2 f T for small rates.
        let (a, f, t) = (1e-6, 4.0, 40.0);
        let exact = chain(&[5.0 * a, 4.0 * a * f], 1.0 / t, 0.0, HOURS);
        let formula = 5.0 * 4.0 * a * a * f * t * HOURS;
        assert!((exact / formula - 1.0).abs() < 0.02, "{exact} {formula}");
    }

    #[test]
    fn more_redundancy_is_safer() {
        // 12 TB at 150 MB/s: 22 hours.
        let five = of(Level::Raid5, 6);
        assert!((rebuild(five).hours - 22.2).abs() < 0.1);
        // 5 members of 96e12 bits at 1e-15: 38 %.
        assert!((rebuild(five).unreadable - 0.381).abs() < 0.01);
        let all = [of(Level::Raid0, 6), five, of(Level::Raid10, 6), of(Level::Raid6, 6)];
        let losses: Vec<f64> = all.iter().filter_map(|risk| risk.loss_in_year).collect();
        assert_eq!(losses.len(), all.len());
        assert!(losses.is_sorted_by(|a, b| a > b), "{losses:?}");
        assert_eq!(rebuild(of(Level::Raid10, 6)).second_failure, 0.2);
        assert_eq!(rebuild(of(Level::Raid6, 6)).second_failure, 0.0);
        assert_eq!(of(Level::Raid1, 3).tolerates, 2);
    }

    #[test]
    fn anything_is_lost_with_the_array_or_with_a_sector_of_the_last_redundancy() {
        let anything = |risk: Risk| risk.anything_in_year.expect("a rate");
        for level in [Level::Raid0, Level::Raid5, Level::Raid10, Level::Raid6] {
            let risk = of(level, 6);
            let loss = risk.loss_in_year.expect("a rate");
            assert!(anything(risk) >= loss, "{level}: {risk:?}");
        }
        // RAID 5: about a first failure and an unreadable sector in its rebuild.
        let five = of(Level::Raid5, 6);
        let first = 1.0 - (1.0 - usual()).powi(6);
        let expected = first * rebuild(five).unreadable + five.loss_in_year.expect("a rate");
        assert!((anything(five) / expected - 1.0).abs() < 0.1, "{} {expected}", anything(five));
        assert!(anything(five) > 20.0 * anything(of(Level::Raid6, 6)));
        // No rebuild reads a sector that cannot be read: only the array is lost.
        let machine = Machine::new(Media::Rotating { rpm: 7200.0 });
        let none = Assumptions { errors_per_bit: 0.0, ..Assumptions::usual(&machine) };
        let array = Array::new(Level::Raid5, 6, 512.0);
        let risk = risk(&array, &machine, 12_000_000_000_000, Ok(200.0), &none);
        assert_eq!(risk.anything_in_year, risk.loss_in_year);
    }

    #[test]
    fn without_redundancy_there_is_no_rebuild() {
        let risk = of(Level::Raid0, 6);
        assert_eq!((risk.tolerates, risk.rebuild), (0, None));
        // 6 disks.
        let loss = risk.loss_in_year.expect("nothing is rebuilt");
        assert!((loss - (1.0 - (1.0 - usual()).powi(6))).abs() < 1e-6, "{risk:?}");
    }

    #[test]
    fn a_rebuild_of_unknown_rate_has_no_hours_and_no_chances() {
        let machine = Machine::new(Media::Rotating { rpm: 5400.0 });
        let why = WhyNot::Shingled(crate::law::Work::Resync);
        let of = |level| {
            let array = Array::new(level, 6, 512.0);
            risk(&array, &machine, 1 << 43, Err(why), &Assumptions::usual(&machine))
        };
        let five = of(Level::Raid5);
        assert_eq!((five.tolerates, five.rebuild, five.loss_in_year), (1, None, None));
        assert!(five.why_no_rebuild().expect("a reason").contains("shingled"));
        assert!(of(Level::Raid0).loss_in_year.is_some());
    }

    #[test]
    fn failures_at_once_lose_what_one_failure_loses() {
        // Whatever follows the first failure at once: the chance of that failure.
        for rate in [1e2, 1e5, 1e6, 1e9, 1e12, 1e15] {
            let found = chain(&[1e-5, rate, rate], 0.02, 0.0, HOURS);
            let expected = 1.0 - (-1e-5f64 * HOURS).exp();
            assert!((found / expected - 1.0).abs() < 1e-3, "{rate}: {found} {expected}");
        }
        // With a repair that is as fast, every second failure.
        let found = chain(&[1e-5, 1e7], 1e7, 0.0, HOURS);
        let expected = 1.0 - (-0.5e-5f64 * HOURS).exp();
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
        let machine = Machine::new(Media::Rotating { rpm: 7200.0 });
        for correlation in [1e9, 1e11, f64::MAX, f64::INFINITY] {
            let usual = Assumptions { correlation, ..Assumptions::usual(&machine) };
            for (level, members) in [(Level::Raid5, 6), (Level::Raid6, 1920), (Level::Raid1, 8)] {
                let array = Array::new(level, members, 512.0);
                let risk = risk(&array, &machine, 12_000_000_000_000, Ok(200.0), &usual);
                let first = 1.0 - (1.0 - self::usual()).powi(members as i32);
                let loss = risk.loss_in_year.expect("a rate");
                assert!((loss / first - 1.0).abs() < 1e-3, "{level} {risk:?}");
            }
        }
    }

    #[test]
    fn both_failures_of_a_rebuild_fall_into_its_time() {
        // Two of five in a window, in this order: 1 - e^-5x - 5/1 (e^-4x - e^-5x) by the chain.
        let (rate, hours) = (1e-3, 40.0);
        let found = chain(&[5.0 * rate, 4.0 * rate], 0.0, 0.0, hours);
        let left = |rate: f64| (-rate * hours).exp();
        let expected = 1.0 - left(5.0 * rate) - 5.0 * (left(4.0 * rate) - left(5.0 * rate));
        assert!((found / expected - 1.0).abs() < 1e-4, "{found} {expected}");
    }
}
