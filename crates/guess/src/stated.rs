//! Does an array, as a geometry reads it, hold blocks where they say that they belong?
//!
//! Redundancy cannot tell: the XOR of a row is the same in every order. File systems can: blocks
//! that state their address stand there in the right geometry, and elsewhere, often in the same row
//! on another member, in a wrong one.
//!
//! Invariant: a geometry is refuted only by blocks that are not where they belong although that
//! place was read: copies in journals and images in files have an original that is. Reads at most
//! some MiB. Called by `admin` before an array is read.

use std::collections::BTreeMap;

use content::{Bytes, FileSystems, Kind, Part, PredictionKind, Scan, Sighting, identify};
use md::Geometry;

use crate::shape::{Role, places};

/// What the contents say of the geometry by which they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stated {
    /// Too little of it is known.
    Nothing,
    /// A file system is where it says: a clause.
    Agrees(String),
    /// It is not: a clause.
    Refutes(String),
}

/// The unit of what is read.
const UNIT: u64 = 64 << 10;
/// Bytes read from the start of the array and of a file system.
const HEAD: u64 = 4 << 20;
/// Units read of the rest.
const REST: u64 = 64;
/// Predicted contents that are read.
const PREDICTIONS: usize = 120;

/// Reads some of an array's contents, and compares addresses that blocks state with where they are.
pub fn stated(contents: &dyn Bytes, geometry: &Geometry) -> Stated {
    let mut read = Read::default();
    read.windows(contents, &[0]);
    let tables = read.regions();
    read.windows(contents, &tables);
    let Some(placed) = read.placed(contents, &tables) else { return Stated::Nothing };
    let found = read.found(contents, geometry, &placed);
    found.verdict(read.file_systems.list()[placed.file_system].kind, placed.has_start)
}

/// What was read, and what was found in it.
#[derive(Default)]
struct Read {
    windows: Vec<(u64, Vec<u8>)>,
    file_systems: FileSystems,
    sightings: Vec<Sighting>,
}

/// A file system, and where it begins.
struct Placed {
    file_system: usize,
    base: u64,
    /// Whether it begins where it may: at the start, or where a table says.
    has_start: bool,
}

impl Read {
    /// Reads what follows these places, and once some of the rest.
    fn windows(&mut self, contents: &dyn Bytes, starts: &[u64]) {
        let size = contents.size();
        let mut wanted: Vec<(u64, u64)> = starts.iter().map(|&at| (at, HEAD)).collect();
        if self.windows.is_empty() {
            let step = (size / REST).max(UNIT) / UNIT * UNIT;
            wanted.extend((1..REST).map(|number| (number * step, UNIT)));
        }
        for (at, len) in wanted {
            let len = len.min(size.saturating_sub(at)) / 512 * 512;
            if len == 0 || self.has(at, len) {
                continue;
            }
            let mut bytes = vec![0; len as usize];
            if contents.read(at, &mut bytes).is_ok() {
                if bytes.iter().any(|&byte| byte != 0) {
                    self.sightings.extend(self.file_systems.find(&bytes, at));
                }
                self.windows.push((at, bytes));
            }
        }
    }

    /// Whether a range was read.
    fn has(&self, at: u64, len: u64) -> bool {
        let mut windows = self.windows.iter();
        windows.any(|(from, bytes)| at >= *from && at + len <= from + bytes.len() as u64)
    }

    /// Where partition tables at the start say that something begins.
    fn regions(&self) -> Vec<u64> {
        let list = self.file_systems.list();
        let at_start = |it: &&Sighting| it.address.is_none_or(|address| address == it.at);
        let tables = self.sightings.iter().filter(at_start).map(|it| &list[it.file_system]);
        let tables = tables.filter(|it| matches!(it.kind, Kind::Gpt | Kind::Mbr));
        let mut starts: Vec<u64> =
            tables.flat_map(|it| it.regions.iter().take(8).map(|region| region.start)).collect();
        starts.sort_unstable();
        starts.dedup();
        starts.truncate(8);
        starts
    }

    /// The largest file system that begins where it may. Without one, and where nothing else is
    /// known at the start, the one that the array was large enough for.
    fn placed(&self, contents: &dyn Bytes, tables: &[u64]) -> Option<Placed> {
        /// The first superblock of all kinds lies before it.
        const FIRST: u64 = 128 << 10;
        let list = self.file_systems.list();
        let starts = self.sightings.iter().filter_map(|it| {
            let address = it.address.unwrap_or(0);
            let base = it.at.checked_sub(address)?;
            (address < FIRST && !list[it.file_system].kind.is_table())
                .then_some((it.file_system, base))
        });
        let largest = |it: &(usize, u64)| list[it.0].bytes;
        let begun = starts.clone().filter(|(_, base)| *base == 0 || tables.contains(base));
        if let Some((file_system, base)) = begun.max_by_key(largest) {
            return Some(Placed { file_system, base, has_start: true });
        }
        let starts = starts.filter(|it| {
            let (bytes, size) = (largest(it), contents.size());
            bytes >= size / 2 && bytes <= size.saturating_mul(2)
        });
        let (file_system, _) = starts.max_by_key(largest)?;
        let is_unknown = tables.is_empty() && identify(&contents).is_none();
        // It was at the start, which is now on another member.
        is_unknown.then_some(Placed { file_system, base: 0, has_start: false })
    }

    /// Where its blocks are.
    fn found(&mut self, contents: &dyn Bytes, geometry: &Geometry, placed: &Placed) -> Found {
        let Read { windows, file_systems, .. } = self;
        let mut scan = Scan::new();
        for (at, bytes) in windows.iter() {
            if bytes.iter().any(|&byte| byte != 0) {
                file_systems.scan(bytes, *at, &mut scan);
            }
        }
        file_systems.learn(&scan);
        let bytes = file_systems.list()[placed.file_system].bytes;
        let part = Part::new(contents, placed.base, bytes);
        file_systems.learn_through(placed.file_system, &part);
        let mut of_address: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
        let witnesses = self.file_systems.witnesses(&scan);
        let own = witnesses.iter().filter(|it| it.file_system == placed.file_system && it.strong);
        for witness in own {
            let belongs = |address: u64| address.checked_add(placed.base);
            let Some(address) = belongs(witness.address) else { continue };
            let entry = of_address.entry(address).or_default();
            let is_there =
                address == witness.at || witness.also.and_then(belongs) == Some(witness.at);
            entry.0 |= is_there;
            entry.1 |= !is_there && same_row(geometry, address, witness.at);
        }
        let mut found = Found::default();
        for (address, (is_there, is_in_row)) in of_address {
            found.right += usize::from(is_there);
            found.in_row += usize::from(!is_there && is_in_row);
            found.elsewhere += usize::from(!is_there && self.has(address, 512));
        }
        if placed.has_start {
            let file_systems = &self.file_systems;
            let asked = file_systems.predictions_through(placed.file_system, &part, PREDICTIONS);
            for question in asked {
                if question.weight <= 0.0 || question.kind == PredictionKind::FileStart {
                    continue;
                }
                let mut there = vec![0; question.len as usize];
                let is_read = part.read(question.address, &mut there).is_ok();
                found.asked += 1;
                found.held += usize::from(is_read && question.holds(&there));
            }
        }
        found
    }
}

/// Whether two addresses lie at one offset of two members: they change places in another order.
fn same_row(geometry: &Geometry, one: u64, other: u64) -> bool {
    let (mut first, mut second) = (Vec::new(), Vec::new());
    places(geometry, one, &mut first);
    places(geometry, other, &mut second);
    let data = |places: &[crate::shape::Place]| {
        let mut data = places.iter().filter(|place| place.role == Role::Data);
        data.next().map(|place| (place.slot, place.at))
    };
    match (data(&first), data(&second)) {
        (Some(one), Some(other)) => one.0 != other.0 && one.1 == other.1,
        _ => false,
    }
}

/// How many blocks are where.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// At their addresses.
    right: usize,
    /// Only elsewhere, and what they belong into was read.
    elsewhere: usize,
    /// Of those that are only elsewhere, what lies in the row where it belongs.
    in_row: usize,
    /// Predicted contents that hold, of those that were read.
    held: usize,
    asked: usize,
}

impl Found {
    fn verdict(self, kind: Kind, has_start: bool) -> Stated {
        let Found { right, elsewhere, in_row, held, asked } = self;
        let refuted = match has_start {
            true => {
                in_row >= 4 && in_row * 8 > right
                    || elsewhere >= 12 && elsewhere * 4 > right
                    || asked >= 24 && held * 2 < asked && elsewhere + in_row >= 4
            }
            // A virtual disk in pieces of an unknown file system does not keep to rows.
            false => in_row >= 8 && in_row * 4 > right,
        };
        let wrong = elsewhere.max(in_row);
        let all = right + wrong;
        let kind = kind.title();
        if refuted {
            return Stated::Refutes(format!(
                "{wrong} of {all} blocks of its {kind} that state their own address are read at \
                 another one"
            ));
        }
        let agrees = has_start && right >= 6 && asked >= 12 && held * 100 >= asked * 85;
        match agrees && wrong * 20 <= right {
            true => Stated::Agrees(format!(
                "{right} of {all} blocks of its {kind} that state their own address, and {held} of \
                 {asked} predicted contents, are where they belong"
            )),
            false => Stated::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(right: usize, elsewhere: usize, in_row: usize, held: usize) -> Stated {
        Found { right, elsewhere, in_row, held, asked: 40 }.verdict(Kind::Ext4, true)
    }

    #[test]
    fn blocks_that_are_elsewhere_refute_and_single_ones_do_not() {
        assert!(matches!(verdict(100, 0, 0, 40), Stated::Agrees(_)));
        assert!(matches!(verdict(100, 2, 0, 38), Stated::Agrees(_)));
        assert_eq!(verdict(100, 8, 0, 38), Stated::Nothing);
        assert_eq!(verdict(100, 0, 0, 20), Stated::Nothing);
        assert!(matches!(verdict(20, 60, 0, 38), Stated::Refutes(_)));
        assert!(matches!(verdict(83, 17, 17, 34), Stated::Refutes(_)), "two of twelve members");
        assert!(matches!(verdict(2, 4, 0, 1), Stated::Refutes(_)));
        assert_eq!(verdict(0, 0, 0, 0), Stated::Nothing);
        let unplaced = Found { right: 10, elsewhere: 90, in_row: 0, held: 0, asked: 0 };
        assert_eq!(unplaced.verdict(Kind::Ext4, false), Stated::Nothing, "a disk in pieces");
    }
}
