//! The chance of losing anything in a year: with its interval, and the assumption that decides it.
//!
//! Invariant: the chance lies within its interval; an assumption that is stated has no range.

use super::{Assumptions, Candidate, Question};
use crate::disks::FailureRate;
use spec::units::short;

/// Where assumptions may plausibly lie; both ends are equal where one is stated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges {
    /// Failures of a disk in a year: the interval of its rate.
    pub annual_failure_rate: (f64, f64),
    /// Read errors per bit: a tenth of the sheet's bound, to the bound.
    pub errors_per_bit: (f64, f64),
    /// Failures while one is missing, of those at other times.
    pub correlation: (f64, f64),
    /// Hours until a replacement is in place.
    pub replacement_h: (f64, f64),
}

impl Ranges {
    /// The usual ones: the rate's interval; a tenth of the errors, which disks in the field show,
    /// to the sheet's bound; correlation 1 to 10; a spare at hand within 4 h, to a week.
    pub fn usual(assumed: &Assumptions, rate: &FailureRate) -> Ranges {
        Ranges {
            annual_failure_rate: (rate.low, rate.high),
            errors_per_bit: (assumed.errors_per_bit / 10.0, assumed.errors_per_bit),
            correlation: (1.0, 10.0),
            replacement_h: (4.0, 168.0),
        }
    }

    /// Of an assumption.
    pub fn of(&self, assumption: Assumption) -> (f64, f64) {
        match assumption {
            Assumption::AnnualFailureRate => self.annual_failure_rate,
            Assumption::ErrorsPerBit => self.errors_per_bit,
            Assumption::Correlation => self.correlation,
            Assumption::Replacement => self.replacement_h,
        }
    }
}

/// An assumption of the chances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// Failures of a disk in a year.
    AnnualFailureRate,
    /// Unrecoverable read errors per bit.
    ErrorsPerBit,
    /// Failures while a member is missing, of those at other times.
    Correlation,
    /// Hours until a replacement is in place.
    Replacement,
}

impl Assumption {
    /// All of them.
    pub const ALL: [Assumption; 4] = [
        Assumption::AnnualFailureRate,
        Assumption::ErrorsPerBit,
        Assumption::Correlation,
        Assumption::Replacement,
    ];

    /// Its name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Assumption::AnnualFailureRate => "annual_failure_rate",
            Assumption::ErrorsPerBit => "errors_per_bit",
            Assumption::Correlation => "correlation",
            Assumption::Replacement => "replacement_hours",
        }
    }

    /// What it is, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Assumption::AnnualFailureRate => "how often disks fail",
            Assumption::ErrorsPerBit => "how many sectors cannot be read",
            Assumption::Correlation => "how much more often disks fail while one is missing",
            Assumption::Replacement => "how soon a failed disk is replaced",
        }
    }

    /// A value of it in words: `3 % of the disks failing in a year`.
    pub fn value_in_words(self, value: f64) -> String {
        match self {
            Assumption::AnnualFailureRate => {
                format!("{} % of the disks failing in a year", short(100.0 * value))
            }
            Assumption::ErrorsPerBit => format!("{value:.0e} read errors a bit"),
            Assumption::Correlation => {
                format!("disks failing {} times as often while one is missing", short(value))
            }
            Assumption::Replacement => format!("{} h until the replacement", short(value)),
        }
    }

    /// The assumptions with this one at another value.
    pub fn set(self, assumed: &Assumptions, value: f64) -> Assumptions {
        let mut assumed = *assumed;
        match self {
            Assumption::AnnualFailureRate => assumed.annual_failure_rate = value,
            Assumption::ErrorsPerBit => assumed.errors_per_bit = value,
            Assumption::Correlation => assumed.correlation = value,
            Assumption::Replacement => assumed.replacement_h = value,
        }
        assumed
    }
}

/// The assumption that moves a chance most within its range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decides {
    /// Which it is.
    pub assumption: Assumption,
    /// The end of its range with the smaller chance, and that chance.
    pub best: (f64, f64),
    /// The end with the larger chance, and that chance.
    pub worst: (f64, f64),
}

/// The chance of losing anything within a year.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outlook {
    /// By the assumptions.
    pub chance: f64,
    /// At the lower end of the failure rate's interval.
    pub low: f64,
    /// At its upper end.
    pub high: f64,
    /// The assumption that moves it most; `None`: all are stated, or none moves it.
    pub decides: Option<Decides>,
}

/// The chance of losing anything on an array within a year; `None`: it depends on a rebuild whose
/// rate is not known.
pub fn outlook(one: &Candidate, question: &Question<'_>, ranges: &Ranges) -> Option<Outlook> {
    let assumed = &question.assumptions;
    let chance = one.risk.anything_in_year?;
    let at = |assumption: Assumption, value: f64| {
        one.risk_with(question, &assumption.set(assumed, value)).anything_in_year
    };
    let (low, high) = ranges.annual_failure_rate;
    let low = at(Assumption::AnnualFailureRate, low)?.min(chance);
    let high = at(Assumption::AnnualFailureRate, high)?.max(chance);
    let mut decides: Option<(f64, Decides)> = None;
    for assumption in Assumption::ALL {
        let (from, to) = ranges.of(assumption);
        let ends = [(from, at(assumption, from)?), (to, at(assumption, to)?)];
        let [best, worst] = if ends[0].1 <= ends[1].1 { ends } else { [ends[1], ends[0]] };
        let moved = worst.1 / best.1.max(1e-18);
        if moved > 1.05 && decides.is_none_or(|(most, _)| moved > most) {
            decides = Some((moved, Decides { assumption, best, worst }));
        }
    }
    Some(Outlook { chance, low, high, decides: decides.map(|(_, decides)| decides) })
}

/// A chance within a year in words: `1 in 30 years`.
pub fn in_years(chance: f64) -> String {
    match chance {
        chance if chance >= OFTEN => "more often than not".to_string(),
        chance => format!("1 in {}", years(chance)),
    }
}

/// From this chance on, years do not say it.
const OFTEN: f64 = 0.5;

/// The years of [`in_years`], to two digits: `30 years`.
pub fn years(chance: f64) -> String {
    const MOST: f64 = 1e6;
    match 1.0 / chance.max(1e-30) {
        _ if chance >= OFTEN => "1 year".to_string(),
        years if years > MOST => format!("over {} years", with_commas(MOST)),
        years => {
            let step = 10f64.powf(years.log10().floor() - 1.0).max(1.0);
            format!("{} years", with_commas((years / step).round() * step))
        }
    }
}

fn with_commas(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_said_in_years() {
        for (chance, words) in [
            (0.9, "more often than not"),
            (0.33, "1 in 3 years"),
            (0.0334, "1 in 30 years"),
            (1.0 / 123.0, "1 in 120 years"),
            (1.0 / 4321.0, "1 in 4,300 years"),
            (1.0 / 765_432.0, "1 in 770,000 years"),
            (0.0, "1 in over 1,000,000 years"),
        ] {
            assert_eq!(in_years(chance), words, "{chance}");
        }
    }

    #[test]
    fn a_value_in_words_names_its_unit() {
        let words = |one: Assumption, value| one.value_in_words(value);
        assert_eq!(words(Assumption::Replacement, 168.0), "168 h until the replacement");
        assert_eq!(words(Assumption::ErrorsPerBit, 1e-15), "1e-15 read errors a bit");
    }
}
