//! Buses between the members' disks and the host: `133MB/s`, `133MB/s*4+250MB/s`,
//! `160MB/s*3+none*3`.
//!
//! ```text
//! BUSES = BUS [+ BUS]...      of adjacent disks, in the order of the array's slots
//! BUS   = RATE [* DISKS]      without a number: all disks that are left
//!       | none [* DISKS]      disks that are attached directly
//! ```
//! Disks behind the last bus are attached directly, whether `none` says so or not.
//!
//! Invariant: every disk is on one bus at most. Pure. Called by `topology` and the command line.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::units::{QuantityError, parse_rate};

/// Limit of buses of one array.
const MAX_BUSES: usize = 8;

/// The buses of an array's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buses {
    groups: [Bus; MAX_BUSES],
    count: usize,
}

/// Adjacent disks on one bus, or on none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bus {
    bytes_per_s: Option<u64>,
    /// Disks on it; `None`: all that are left.
    disks: Option<u32>,
}

/// Why a text names no buses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BusesError {
    /// A rate is none.
    #[error(transparent)]
    Rate(#[from] QuantityError),
    /// A number of disks is none.
    #[error("'*{0}': a number of disks is 1 to 4096")]
    Disks(String),
    /// A bus behind one that takes all disks.
    #[error("no disk is left for the bus behind '{0}': a number of disks is missing, as in {0}*4")]
    NoneLeft(String),
    /// Too many buses.
    #[error("more than {MAX_BUSES} buses")]
    TooMany,
    /// No bus at all.
    #[error("no disk is on a bus")]
    NoBus,
}

impl Buses {
    /// One bus that all disks share.
    pub fn shared(bytes_per_s: u64) -> Buses {
        let mut groups = [Bus::default(); MAX_BUSES];
        groups[0].bytes_per_s = Some(bytes_per_s);
        Buses { groups, count: 1 }
    }

    /// The rate of the bus that all disks share; `None`: there are several, or it is of some only.
    pub fn of_all(&self) -> Option<u64> {
        let first = self.groups[0];
        (self.count == 1 && first.disks.is_none()).then_some(first.bytes_per_s).flatten()
    }

    /// The rate of each bus, bytes per second.
    pub fn rates(&self) -> impl Iterator<Item = u64> + '_ {
        self.groups().filter_map(|bus| bus.bytes_per_s)
    }

    /// The bus of a disk, as an index into [`Buses::rates`]; `None`: it is attached directly.
    pub fn of_disk(&self, disk: usize) -> Option<usize> {
        let (mut first, mut index) = (0, 0);
        for bus in self.groups() {
            let end = bus.disks.map_or(usize::MAX, |disks| first + disks as usize);
            if disk < end {
                return bus.bytes_per_s.map(|_| index);
            }
            first = end;
            index += usize::from(bus.bytes_per_s.is_some());
        }
        None
    }

    /// The first disk that only the last bus could have.
    pub fn last_begins_at(&self) -> usize {
        self.groups().take(self.count - 1).filter_map(|bus| bus.disks).sum::<u32>() as usize
    }

    fn groups(&self) -> impl Iterator<Item = &Bus> {
        self.groups[..self.count].iter()
    }
}

impl FromStr for Buses {
    type Err = BusesError;

    fn from_str(text: &str) -> Result<Buses, BusesError> {
        let mut buses = Buses { groups: [Bus::default(); MAX_BUSES], count: 0 };
        let mut taken: Option<&str> = None;
        for part in text.split('+') {
            if let Some(all) = taken {
                return Err(BusesError::NoneLeft(all.into()));
            }
            let (rate, disks) = match part.split_once('*') {
                Some((rate, disks)) => {
                    let counted = disks.trim().parse().ok().filter(|n| (1..=4096).contains(n));
                    (rate, Some(counted.ok_or_else(|| BusesError::Disks(disks.into()))?))
                }
                None => (part, None),
            };
            let bytes_per_s = match rate.trim() {
                "none" => None,
                rate => Some(parse_rate(rate)?),
            };
            taken = disks.is_none().then_some(part);
            let group = buses.groups.get_mut(buses.count).ok_or(BusesError::TooMany)?;
            *group = Bus { bytes_per_s, disks };
            buses.count += 1;
        }
        while buses.groups().last().is_some_and(|last| last.bytes_per_s.is_none()) {
            buses.count -= 1;
            buses.groups[buses.count] = Bus::default();
        }
        if buses.count == 0 {
            return Err(BusesError::NoBus);
        }
        Ok(buses)
    }
}

/// As on the command line: `133MB/s*4+none*2`.
impl fmt::Display for Buses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, bus) in self.groups().enumerate() {
            let plus = if index > 0 { "+" } else { "" };
            match bus.bytes_per_s {
                Some(rate) => write!(f, "{plus}{}MB/s", rate as f64 / 1e6)?,
                None => write!(f, "{plus}none")?,
            }
            if let Some(disks) = bus.disks {
                write!(f, "*{disks}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buses(text: &str) -> Buses {
        text.parse().expect(text)
    }

    #[test]
    fn disks_are_on_the_buses_in_order() {
        let of = |text: &str| (0..6).map(|disk| buses(text).of_disk(disk)).collect::<Vec<_>>();
        assert_eq!(of("133MB/s"), [Some(0); 6]);
        let split = [Some(0), Some(0), Some(0), Some(0), Some(1), Some(1)];
        assert_eq!(of("133MB/s*4+250MB/s*2"), split);
        assert_eq!(of("133MB/s*4+250MB/s"), split);
        assert_eq!(of("none*4+250MB/s*2"), [None, None, None, None, Some(0), Some(0)]);
        assert_eq!(of("160MB/s*3"), [Some(0), Some(0), Some(0), None, None, None]);
        assert_eq!(
            buses("133MB/s*4+none*1+250").rates().collect::<Vec<_>>(),
            [133e6 as u64, 250e6 as u64]
        );
    }

    #[test]
    fn one_bus_of_all_disks_is_a_rate() {
        assert_eq!(buses("133MB/s"), Buses::shared(133_000_000));
        assert_eq!(buses("133MB/s").of_all(), Some(133_000_000));
        assert_eq!(buses("133MB/s*6").of_all(), None);
        for text in ["133MB/s", "133MB/s*4", "none*2+133MB/s*4", "160MB/s*3+300.5MB/s"] {
            assert_eq!(buses(text).to_string(), text);
        }
        for text in ["133MB/s*4+none*2", "133MB/s*4+none", "133MB/s*4+none*1+none"] {
            assert_eq!(buses(text), buses("133MB/s*4"), "one wiring has one name");
        }
        assert_eq!(buses("133MB/s*4+250MB/s*2").last_begins_at(), 4);
    }

    #[test]
    fn what_names_no_buses_is_refused() {
        for (text, part) in [
            ("fast", "fast"),
            ("133MB/s*0", "*0"),
            ("133MB/s*x", "1 to 4096"),
            ("133MB/s+250MB/s", "as in 133MB/s*4"),
            ("none*4", "no disk is on a bus"),
            ("none", "no disk is on a bus"),
            ("", "''"),
            ("1*1+1*1+1*1+1*1+1*1+1*1+1*1+1*1+1*1", "more than 8"),
        ] {
            let error = text.parse::<Buses>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
