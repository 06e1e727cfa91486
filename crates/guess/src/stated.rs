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

use content::{
    Bytes, FileSystems, Kind, Part, Prediction, PredictionKind, Scan, Sighting, WitnessKind,
    identify,
};
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
/// The first superblock of all kinds lies before it.
const FIRST: u64 = 128 << 10;
/// The weight of blocks that prove a slot.
const PROVES: f64 = 2.0;
/// Predicted contents that are taken, and how many of one kind are read: hundreds of inodes side by
/// side say no more than a few.
const PREDICTIONS: usize = 480;
const OF_A_KIND: usize = 48;

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
        let list = self.file_systems.list();
        let starts = self.sightings.iter().filter_map(|it| {
            let address = it.address.unwrap_or(0);
            let base = it.at.checked_sub(address)?;
            (address < FIRST && !list[it.file_system].kind.is_table())
                .then_some((it.file_system, base))
        });
        let largest = |it: &(usize, u64)| list[it.0].bytes;
        // What was there before a file system, LUKS or LVM may have left its superblock.
        let is_in_use = |&(file_system, base): &(usize, u64)| {
            let there = identify(&Part::new(contents, base, list[file_system].bytes));
            there.is_some_and(|it| it.kind == list[file_system].kind)
        };
        let begun = starts.clone().filter(|(_, base)| *base == 0 || tables.contains(base));
        let begun = begun.filter(is_in_use);
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
        let mut first_in_row = false;
        let mut of_address: BTreeMap<u64, (bool, bool)> = BTreeMap::new();
        let witnesses = self.file_systems.witnesses(&scan);
        let own = witnesses.iter().filter(|it| it.file_system == placed.file_system && it.strong);
        for witness in own {
            let belongs = |address: u64| address.checked_add(placed.base);
            let Some(address) = belongs(witness.address) else { continue };
            let entry = of_address.entry(address).or_default();
            let is_there =
                address == witness.at || witness.also.and_then(belongs) == Some(witness.at);
            let is_in_row = !is_there && same_row(geometry, address, witness.at);
            entry.0 |= is_there;
            entry.1 |= is_in_row;
            let is_first = witness.kind == WitnessKind::Superblock && witness.address < FIRST;
            first_in_row |= is_in_row && is_first;
        }
        let mut found = Found { first_in_row, ..Found::default() };
        let mut proven = vec![0.0; geometry.members()];
        for (address, (is_there, is_in_row)) in of_address {
            found.right += usize::from(is_there);
            if is_there {
                prove(geometry, address, 1.0, &mut proven);
            }
            found.in_row += usize::from(!is_there && is_in_row);
            found.elsewhere += usize::from(!is_there && self.has(address, 512));
        }
        if placed.has_start {
            let file_systems = &self.file_systems;
            for question in questions(file_systems, placed.file_system, &part) {
                let mut there = vec![0; question.len as usize];
                let is_read = part.read(question.address, &mut there).is_ok();
                let holds = is_read && question.holds(&there);
                found.asked += 1;
                found.held += usize::from(holds);
                let address = placed.base + question.address;
                if holds {
                    prove(geometry, address, f64::from(question.weight), &mut proven);
                } else if question.strong {
                    found.moved += usize::from(is_moved(contents, geometry, address, &question));
                }
            }
        }
        found.unproven = (0..proven.len())
            .filter(|&slot| proven[slot] < PROVES && holds_data(geometry, slot))
            .count();
        found
    }
}

/// What must stand where, of each kind some.
fn questions(file_systems: &FileSystems, file_system: usize, part: &dyn Bytes) -> Vec<Prediction> {
    let mut all = file_systems.predictions_through(file_system, part, PREDICTIONS);
    all.retain(|it| it.weight > 0.0 && it.kind != PredictionKind::FileStart);
    all.sort_by_key(|it| (it.kind, it.address));
    let kinds = all.chunk_by(|one, other| one.kind == other.kind);
    let some = kinds.flat_map(|kind| kind.iter().step_by(kind.len().div_ceil(OF_A_KIND)));
    some.cloned().collect()
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

/// Weighs a block that is where it belongs, for the slot that it lies on; of copies for each.
fn prove(geometry: &Geometry, address: u64, weight: f64, proven: &mut [f64]) {
    let mut all = Vec::new();
    places(geometry, address, &mut all);
    all.iter().filter(|place| place.role == Role::Data).for_each(|it| proven[it.slot] += weight);
}

/// Whether a slot ever holds data: one with parity alone follows from the others.
fn holds_data(geometry: &Geometry, slot: usize) -> bool {
    let md::Kind::Parity(parity) = geometry.kind() else { return true };
    let mut rows = (0..parity.rotation() as u64).map(|row| parity.row(md::StripeNo(row)));
    rows.any(|row| matches!(row.role[slot], md::RowRole::Data(_)))
}

/// Whether what must stand at an address stands at the same place of another chunk of its row, or
/// is what the geometry takes for the parity, the XOR of the row.
fn is_moved(
    contents: &dyn Bytes,
    geometry: &Geometry,
    address: u64,
    question: &Prediction,
) -> bool {
    let md::Kind::Parity(parity) = geometry.kind() else { return false };
    let (chunk, len) = (parity.chunk_sectors() * md::SECTOR_BYTES, question.len as usize);
    let row = chunk * parity.data_disks() as u64;
    if address % chunk + len as u64 > chunk {
        return false;
    }
    let mut sum = vec![0; len];
    for index in 0..parity.data_disks() as u64 {
        let mut bytes = vec![0; len];
        let at = address / row * row + index * chunk + address % chunk;
        if contents.read(at, &mut bytes).is_err() {
            return false;
        }
        if at != address && question.holds(&bytes) {
            return true;
        }
        sum.iter_mut().zip(&bytes).for_each(|(sum, byte)| *sum ^= byte);
    }
    question.holds(&sum)
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
    /// Of those that do not hold, what is found in another place of its row.
    moved: usize,
    /// Slots of which hardly any block proves that they are in their places.
    unproven: usize,
    /// Whether the file system's own superblock lies in the row that it should begin.
    first_in_row: bool,
}

impl Found {
    fn verdict(self, kind: Kind, has_start: bool) -> Stated {
        let Found { right, elsewhere, in_row, held, asked, moved, unproven, first_in_row } = self;
        let refuted = match has_start {
            true => {
                in_row >= 4 && in_row * 8 > right
                    || elsewhere >= 12 && elsewhere * 4 > right
                    || asked >= 24 && held * 2 < asked && elsewhere + in_row >= 4
                    || moved >= 3 && moved * 20 > held
            }
            // A virtual disk in pieces of an unknown file system does not keep to rows.
            false => first_in_row && in_row >= 3,
        };
        let wrong = elsewhere.max(in_row);
        let all = right + wrong;
        let kind = kind.title();
        // Of a right geometry nearly all hold, unless the file system is damaged.
        if has_start && !refuted && asked >= 24 && held * 4 < asked * 3 {
            return Stated::Refutes(format!(
                "only {held} of {asked} predicted contents of its {kind} are where they belong"
            ));
        }
        if refuted && moved > wrong {
            return Stated::Refutes(format!(
                "{moved} of {asked} predicted contents of its {kind} are found in another place of \
                 their row"
            ));
        }
        if refuted {
            return Stated::Refutes(format!(
                "{wrong} of {all} blocks of its {kind} that state their own address are read at \
                 another one"
            ));
        }
        // What a wrong geometry moves may be little: every member must be proven to be in its
        // place.
        let agrees = has_start && right >= 6 && asked >= 12 && held * 100 >= asked * 97;
        match agrees && unproven == 0 && moved == 0 && wrong * 20 <= right {
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
        let found = Found { right, elsewhere, in_row, held, asked: 40, ..Found::default() };
        found.verdict(Kind::Ext4, true)
    }

    #[test]
    fn blocks_that_are_elsewhere_refute_and_single_ones_do_not() {
        assert!(matches!(verdict(100, 0, 0, 40), Stated::Agrees(_)));
        assert!(matches!(verdict(100, 2, 0, 39), Stated::Agrees(_)));
        assert_eq!(verdict(100, 8, 0, 38), Stated::Nothing);
        assert_eq!(verdict(100, 0, 0, 32), Stated::Nothing);
        assert!(matches!(verdict(100, 0, 0, 20), Stated::Refutes(_)));
        assert!(matches!(verdict(20, 60, 0, 38), Stated::Refutes(_)));
        assert!(matches!(verdict(83, 17, 17, 34), Stated::Refutes(_)), "two of twelve members");
        assert!(matches!(verdict(2, 4, 0, 1), Stated::Refutes(_)));
        assert_eq!(Found::default().verdict(Kind::Ext4, true), Stated::Nothing);
        let unplaced = Found { right: 10, elsewhere: 90, ..Found::default() };
        assert_eq!(unplaced.verdict(Kind::Ext4, false), Stated::Nothing, "a disk in pieces");
        let in_row = Found { in_row: 5, first_in_row: true, ..unplaced };
        assert!(matches!(in_row.verdict(Kind::Ext4, false), Stated::Refutes(_)));
    }

    #[test]
    fn what_is_not_proven_of_every_member_confirms_nothing() {
        let all = Found { right: 120, held: 40, asked: 40, ..Found::default() };
        let verdict = |found: Found| found.verdict(Kind::Ext4, true);
        assert!(matches!(verdict(all), Stated::Agrees(_)));
        assert_eq!(verdict(Found { unproven: 1, ..all }), Stated::Nothing);
        assert_eq!(verdict(Found { held: 37, ..all }), Stated::Nothing);
        assert_eq!(verdict(Found { held: 38, moved: 2, ..all }), Stated::Nothing);
        assert!(matches!(verdict(Found { held: 36, moved: 4, ..all }), Stated::Refutes(_)));
    }
}
