//! Kernel versions, as published tables state them: a version, a distribution, a year.

use std::fmt;

/// A version of Linux: 2.6.31 or 5.15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kernel(pub u32, pub u32, pub u32);

/// First and last year that a release was the newest, with that release in the year's middle.
const BY_YEAR: [(u32, Kernel); 27] = [
    (1999, Kernel(2, 2, 10)),
    (2000, Kernel(2, 2, 16)),
    (2001, Kernel(2, 4, 5)),
    (2002, Kernel(2, 4, 18)),
    (2003, Kernel(2, 4, 21)),
    (2004, Kernel(2, 6, 7)),
    (2005, Kernel(2, 6, 12)),
    (2006, Kernel(2, 6, 17)),
    (2007, Kernel(2, 6, 21)),
    (2008, Kernel(2, 6, 25)),
    (2009, Kernel(2, 6, 30)),
    (2010, Kernel(2, 6, 34)),
    (2011, Kernel(2, 6, 39)),
    (2012, Kernel(3, 4, 0)),
    (2013, Kernel(3, 9, 0)),
    (2014, Kernel(3, 15, 0)),
    (2015, Kernel(4, 1, 0)),
    (2016, Kernel(4, 6, 0)),
    (2017, Kernel(4, 11, 0)),
    (2018, Kernel(4, 17, 0)),
    (2019, Kernel(5, 1, 0)),
    (2020, Kernel(5, 7, 0)),
    (2021, Kernel(5, 12, 0)),
    (2022, Kernel(5, 18, 0)),
    (2023, Kernel(6, 3, 0)),
    (2024, Kernel(6, 9, 0)),
    (2025, Kernel(6, 15, 0)),
];

impl Kernel {
    /// The release of a year's middle; years before and after the list count as its ends.
    pub fn of_year(year: u32) -> Kernel {
        let at = BY_YEAR.partition_point(|(of, _)| *of <= year).max(1) - 1;
        BY_YEAR[at].1
    }

    /// The kernel that a text speaks of: a version (`2.6.31-20-generic`), Ubuntu's year
    /// (`Ubuntu 10.04`) or a year (`2009`, `2008-07`).
    pub fn parse(text: &str) -> Option<Kernel> {
        let words = || text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
        let ubuntu = text.to_ascii_lowercase().contains("ubuntu");
        for word in words() {
            let parts = numbers(word.trim_start_matches('v'));
            match parts[..] {
                [year @ 6..=30, month @ (4 | 10)] if ubuntu && month > 0 => {
                    return Some(Kernel::of_year(2000 + year));
                }
                [2, minor @ 0..=6, patch] => return Some(Kernel(2, minor, patch)),
                // `2.6` alone may be any of eight years.
                [2, minor @ 0..=5] => return Some(Kernel(2, minor, 0)),
                [major @ 3..=9, minor @ 0..=40, ref rest @ ..] => {
                    return Some(Kernel(major, minor, rest.first().copied().unwrap_or(0)));
                }
                _ => {}
            }
        }
        let year = words().filter(|word| word.len() == 4).filter_map(|word| word.parse().ok());
        year.into_iter().find(|year| (1995..=2100).contains(year)).map(Kernel::of_year)
    }

    /// Whether reads of parity arrays go to the members directly (since 2.6.20).
    pub fn has_aligned_reads(self) -> bool {
        self >= Kernel(2, 6, 20)
    }

    /// Whether the write-back is that of 2.4 and before, which the law does not describe.
    pub fn is_before_2_6(self) -> bool {
        self < Kernel(2, 6, 0)
    }
}

/// The numbers of `2.6.31`; of a part such as `31rc2`, those it begins with. Empty: it has none.
fn numbers(word: &str) -> Vec<u32> {
    let mut all = Vec::new();
    for part in word.split('.').take(3) {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        match part[..digits].parse() {
            Ok(number) => all.push(number),
            Err(_) => break,
        }
    }
    if word.contains('.') { all } else { Vec::new() }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel(2, minor, patch) => write!(f, "2.{minor}.{patch}"),
            Kernel(major, minor, _) => write!(f, "{major}.{minor}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_in_what_tables_say() {
        for (text, kernel) in [
            ("2.6.12-26mdk", Some(Kernel(2, 6, 12))),
            ("Linux 5.15.0-91-generic", Some(Kernel(5, 15, 0))),
            ("v6.1", Some(Kernel(6, 1, 0))),
            ("Ubuntu 10.04 LTS", Some(Kernel(2, 6, 34))),
            ("recent FC7 kernel (Feb 2008)", Some(Kernel(2, 6, 25))),
            ("2008-07 (not stated in the seed)", Some(Kernel(2, 6, 25))),
            ("2.4.18", Some(Kernel(2, 4, 18))),
            ("2.2.7 with RAID patches", Some(Kernel(2, 2, 7))),
            ("2.6.x", None),
            ("2.6 (2008)", Some(Kernel(2, 6, 25))),
            ("not stated", None),
            ("", None),
            ("99999999999.1", None),
            ("1.é", None),
        ] {
            assert_eq!(Kernel::parse(text), kernel, "{text}");
        }
    }
}
