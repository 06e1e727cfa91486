//! Arrays, capacities and chances in words, for sentences, tables and pages.

use predict::advise::{Candidate, Count};
use predict::disks::{Basis, FailureRate};
use predict::law::Array;
use spec::units::{digits, kib, short};

use crate::commands::predict::level_name;

/// A capacity, as shops count.
pub fn terabytes(bytes: u64) -> String {
    format!("{} TB", short(bytes as f64 / 1e12))
}

/// A chance in percent.
pub fn chance(probability: f64) -> String {
    match probability * 100.0 {
        percent if percent >= 99.995 => "100 %".to_string(),
        percent if percent >= 0.01 => format!("{} %", digits(percent)),
        0.0 => "0".to_string(),
        percent => format!("{percent:.0e} %"),
    }
}

/// A level with its layout and chunk.
pub fn array_name(candidate: &Candidate) -> String {
    let array = &candidate.array;
    match array.level.has_chunks() {
        true => format!("{}, {}", level_name(array), kib(array.chunk_kib)),
        false => level_name(array),
    }
}

/// What is known of the failures of the disks: `1.4 % of the disks fail in a year (80 %: ...)`.
pub fn failure_words(rate: &FailureRate) -> String {
    let percent = |share: f64| short(100.0 * share);
    let annual = percent(rate.annual);
    match rate.basis {
        Basis::Stated => format!("{annual} % of the disks fail in a year"),
        Basis::Model | Basis::Class => {
            let of = match rate.basis {
                Basis::Class => "no counts of the model; ",
                _ => "",
            };
            format!(
                "{annual} % of the disks fail in a year (80 %: {} to {} %; {of}{} failures in \
                 {:.0} disk years: {})",
                percent(rate.low),
                percent(rate.high),
                rate.failures,
                rate.disk_years,
                rate.source,
            )
        }
    }
}

/// `RAID 6`, `RAID 10 f2`.
pub fn array(array: &Array) -> String {
    match level_name(array).strip_prefix("raid") {
        Some(rest) => format!("RAID {rest}"),
        None => level_name(array),
    }
}

/// Whether the number of disks was to be found.
pub fn is_counted(count: Count) -> bool {
    count != Count::Given
}
