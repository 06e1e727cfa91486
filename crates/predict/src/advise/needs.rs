//! What an array must have: redundancy, room, a price; and mixes of workloads by one word.
//!
//! Invariant: what does not have it is left out with that reason; nothing else is.

use md::Level;

use super::{WhyLeftOut, capacity, risk};
use crate::law::{Array, Work};

/// What an array must have to be ranked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Needs {
    /// Failures of any disk that it survives; 0 ranks RAID 0, too.
    pub survive: u32,
    /// Bytes that it holds at least.
    pub usable: Option<u64>,
    /// What its disks cost together, at most.
    pub budget: Option<f64>,
    /// What a disk costs.
    pub price: Option<f64>,
    /// How many disks there are.
    pub count: Count,
    /// Anything may be lost once in these years; an array that loses more often is ranked, and
    /// recommended only where all do.
    pub years: f64,
}

/// The years where nothing is stated.
pub const YEARS: f64 = 100.0;

/// Where the number of disks comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// All that are given.
    Given,
    /// For each level the fewest that have what is needed, up to those that are given.
    Fewest,
    /// As many as the budget pays, up to those that are given.
    Affordable,
}

impl Default for Needs {
    fn default() -> Needs {
        let (usable, budget, price) = (None, None, None);
        Needs { survive: 1, usable, budget, price, count: Count::Given, years: YEARS }
    }
}

impl Needs {
    /// An array that survives N failures, of all disks.
    pub fn surviving(survive: u32) -> Needs {
        Needs { survive, ..Needs::default() }
    }

    /// What that number of disks costs.
    pub fn cost(&self, disks: u32) -> Option<f64> {
        self.price.map(|price| price * f64::from(disks))
    }

    /// The array with as many of the disks as it takes.
    ///
    /// # Errors
    /// No number of them has what is needed.
    pub(super) fn array(&self, array: Array, disks: &[u64]) -> Result<Array, WhyLeftOut> {
        let of = |members: u32| Array { members, ..array };
        let most = disks.len() as u32;
        match self.count {
            Count::Given => self.check(of(most), disks),
            Count::Affordable => {
                let pays = self.budget.zip(self.price).map(|(budget, price)| budget / price);
                let pays = pays.map_or(most, |disks| (disks + 1e-9) as u32);
                // A mirror of more disks holds no more.
                let useful =
                    if array.level == Level::Raid1 { self.survive.max(1) + 1 } else { most };
                let members = pays.min(most).min(useful);
                let least = fewest(&array, self.survive);
                if members < least {
                    let cost = self.cost(least).unwrap_or(f64::INFINITY);
                    return Err(WhyLeftOut::Costs(cost));
                }
                self.check(of(members), &disks[..members as usize])
            }
            Count::Fewest => {
                let mut last = Err(WhyLeftOut::Survives(0));
                for members in fewest(&of(most), self.survive)..=most {
                    last = self.check(of(members), &disks[..members as usize]);
                    let is_mirror = array.level == Level::Raid1;
                    // With more disks it costs more, and a mirror holds no more.
                    if last.is_ok() || is_mirror || matches!(last, Err(WhyLeftOut::Costs(_))) {
                        break;
                    }
                }
                last
            }
        }
    }

    fn check(&self, array: Array, disks: &[u64]) -> Result<Array, WhyLeftOut> {
        let survives = risk::tolerates(&array);
        if survives < self.survive {
            return Err(WhyLeftOut::Survives(survives));
        }
        let holds = capacity(&array, disks).bytes;
        if self.usable.is_some_and(|usable| holds < usable) && array.has_enough_members() {
            return Err(WhyLeftOut::Holds(holds, array.members));
        }
        match (self.cost(array.members), self.budget) {
            (Some(cost), Some(budget)) if cost > budget * (1.0 + 1e-9) => {
                Err(WhyLeftOut::Costs(cost))
            }
            _ => Ok(array),
        }
    }
}

/// The fewest members that an array of that level is made of.
fn fewest(array: &Array, survive: u32) -> u32 {
    match array.level {
        Level::Raid1 => survive.max(1) + 1,
        // Of two it is a mirror.
        Level::Raid4 | Level::Raid5 => 3,
        Level::Raid6 => 4,
        Level::Raid10 => array.copy_count() + 1,
        Level::Raid0 | Level::Linear => 2,
    }
}

/// A mix of workloads by one word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedMix {
    /// The word.
    pub name: &'static str,
    /// Other words for it.
    pub others: &'static [&'static str],
    /// Who has such a mix.
    pub what: &'static str,
    /// Workloads and their weights, of 100.
    pub mix: &'static [(Work, f64)],
}

/// All of them. The weights are shares of a disk's time, by what such servers do; no one measured
/// mix stands behind them.
pub const NAMED_MIXES: [NamedMix; 6] = [
    NamedMix {
        name: "file-server",
        others: &["nas", "files"],
        what: "documents and media of an office or a home",
        mix: &[
            (Work::Read, 40.0),
            (Work::Write, 20.0),
            (Work::RandomRead, 25.0),
            (Work::RandomWrite, 15.0),
        ],
    },
    NamedMix {
        name: "virtual-machines",
        others: &["vm", "vms"],
        what: "disks of virtual machines",
        mix: &[
            (Work::Read, 10.0),
            (Work::Write, 5.0),
            (Work::RandomRead, 50.0),
            (Work::RandomWrite, 35.0),
        ],
    },
    NamedMix {
        name: "database",
        others: &["db"],
        what: "transactions and their log",
        mix: &[(Work::RandomRead, 60.0), (Work::RandomWrite, 30.0), (Work::SyncWrite, 10.0)],
    },
    NamedMix {
        name: "mail",
        others: &[],
        what: "many small files, each synced",
        mix: &[(Work::RandomRead, 45.0), (Work::RandomWrite, 40.0), (Work::SyncWrite, 15.0)],
    },
    NamedMix {
        name: "backup",
        others: &[],
        what: "what others send, seldom read",
        mix: &[(Work::Write, 75.0), (Work::Read, 25.0)],
    },
    NamedMix {
        name: "media",
        others: &["archive"],
        what: "large files, written once",
        mix: &[(Work::Read, 80.0), (Work::Write, 20.0)],
    },
];

/// The mix of that word.
pub fn named_mix(name: &str) -> Option<&'static NamedMix> {
    let lower = name.trim().to_ascii_lowercase().replace(['_', ' '], "-");
    let is = |one: &&NamedMix| one.name == lower || one.others.contains(&lower.as_str());
    NAMED_MIXES.iter().find(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TB: u64 = 1_000_000_000_000;

    fn of(level: Level, needs: Needs, disks: usize) -> Result<u32, WhyLeftOut> {
        let disks = vec![8 * TB; disks];
        let array = Array::new(level, disks.len() as u32, 512.0);
        needs.array(array, &disks).map(|array| array.members)
    }

    #[test]
    fn what_does_not_hold_enough_or_costs_too_much_is_left_out() {
        let needs = Needs { usable: Some(30 * TB), ..Needs::default() };
        assert_eq!(of(Level::Raid5, needs, 6), Ok(6));
        assert_eq!(of(Level::Raid6, needs, 6), Ok(6));
        assert_eq!(of(Level::Raid10, needs, 6), Err(WhyLeftOut::Holds(24 * TB, 6)));
        assert_eq!(of(Level::Raid0, needs, 6), Err(WhyLeftOut::Survives(0)));
        let budget = Needs { budget: Some(1000.0), price: Some(210.0), ..Needs::default() };
        assert_eq!(of(Level::Raid5, budget, 6), Err(WhyLeftOut::Costs(1260.0)));
        assert_eq!(of(Level::Raid5, budget, 4), Ok(4));
    }

    #[test]
    fn the_fewest_disks_are_found() {
        let needs = Needs { usable: Some(20 * TB), count: Count::Fewest, ..Needs::default() };
        assert_eq!(of(Level::Raid5, needs, 24), Ok(4));
        assert_eq!(of(Level::Raid6, needs, 24), Ok(5));
        // Of an odd number of members md's RAID 10 makes pairs of neighbours: 2.5 x 8 TB.
        assert_eq!(of(Level::Raid10, needs, 24), Ok(5));
        assert_eq!(of(Level::Raid1, needs, 24), Err(WhyLeftOut::Holds(8 * TB, 2)));
        let large = Needs { usable: Some(500 * TB), ..needs };
        assert_eq!(of(Level::Raid5, large, 24), Err(WhyLeftOut::Holds(184 * TB, 24)));
        let pays = Needs { budget: Some(900.0), price: Some(210.0), ..needs };
        assert_eq!(of(Level::Raid5, pays, 24), Ok(4));
        assert_eq!(of(Level::Raid6, pays, 24), Err(WhyLeftOut::Costs(1050.0)));
        let most = Needs { usable: None, count: Count::Affordable, ..pays };
        assert_eq!(of(Level::Raid6, most, 24), Ok(4));
        assert_eq!(of(Level::Raid1, most, 24), Ok(2));
        let little = Needs { budget: Some(100.0), ..most };
        assert_eq!(of(Level::Raid5, little, 24), Err(WhyLeftOut::Costs(630.0)));
    }

    #[test]
    fn mixes_are_found_by_their_words() {
        assert_eq!(named_mix("VM").map(|mix| mix.name), Some("virtual-machines"));
        assert_eq!(named_mix("file server").map(|mix| mix.name), Some("file-server"));
        assert_eq!(named_mix("dance"), None);
        for mix in &NAMED_MIXES {
            let total: f64 = mix.mix.iter().map(|(_, weight)| weight).sum();
            assert!((total - 100.0).abs() < 1e-9, "{}", mix.name);
        }
    }
}
