//! RAID levels and md's numbers and names for them.
//!
//! Invariant: `Level::from_number(l.number()) == Some(l)` and `l.to_string().parse() == Ok(l)`.
//! Used by everything that names an array.

use std::fmt;
use std::str::FromStr;

/// A level that md runs and that this project serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after the other.
    Linear,
    /// Striping, no redundancy.
    Raid0,
    /// Mirroring: every member holds everything.
    Raid1,
    /// Striping with XOR parity on the last member.
    Raid4,
    /// Striping with rotating XOR parity.
    Raid5,
    /// Striping with P (XOR) and Q (Reed-Solomon).
    Raid6,
    /// md's own striped mirrors: near, far and offset copies over any number of members.
    Raid10,
}

impl Level {
    /// Every level, in the order of md's numbers.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// md's number, as the superblock holds it.
    pub const fn number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }

    /// The level of a superblock's number; `None` for numbers md does not have or has dropped
    /// (multipath -4, faulty -5).
    pub fn from_number(number: i32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.number() == number)
    }

    /// The name that md and mdadm print.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        }
    }

    /// Whether rows carry parity (4, 5, 6).
    pub const fn has_parity(self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// Whether the level cuts the array into chunks (linear and RAID 1 do not).
    pub const fn has_chunks(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid1)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelError {
    /// The text.
    pub given: String,
}

impl fmt::Display for LevelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "level: '{}' is none of linear, raid0, raid1, raid4, raid5, raid6, raid10",
            self.given
        )
    }
}

impl std::error::Error for LevelError {}

/// Accepts `raid5`, `5`, `RAID5`, `linear`, `-1`, and mdadm's `stripe` and `mirror`.
impl FromStr for Level {
    type Err = LevelError;
    fn from_str(text: &str) -> Result<Level, LevelError> {
        let lower = text.to_ascii_lowercase();
        let plain = lower.strip_prefix("raid").unwrap_or(&lower);
        match plain {
            "0" | "stripe" => Ok(Level::Raid0),
            "1" | "mirror" => Ok(Level::Raid1),
            "4" => Ok(Level::Raid4),
            "5" => Ok(Level::Raid5),
            "6" => Ok(Level::Raid6),
            "10" => Ok(Level::Raid10),
            _ if lower == "linear" || lower == "-1" => Ok(Level::Linear),
            _ => Err(LevelError { given: text.to_string() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_both_ways() {
        for level in Level::ALL {
            assert_eq!(Level::from_number(level.number()), Some(level));
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(level.to_string().to_uppercase().parse(), Ok(level));
            assert_eq!(level.number().to_string().parse(), Ok(level));
        }
        for number in [-5, -4, -2, 2, 3, 7, 50] {
            assert_eq!(Level::from_number(number), None);
        }
        for text in ["", "raid", "raid7", "raid-1", "raidlinear", "55", " raid5"] {
            assert!(text.parse::<Level>().is_err(), "{text:?}");
        }
    }
}
