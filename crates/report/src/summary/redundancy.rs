//! What an array offers of its members, and how many of them it may lose, by md's geometry.
//!
//! Invariant: nothing is derived from a level, a layout or an expression that is not md's.

use md::nested::{ArrayExpr, Members, NestedGeometry};
use md::{Layout, Level, SECTOR_BYTES};
use results::record::Cell;

/// Up to this many members, every combination of lost ones is tried.
const TRIED_MAX: usize = 12;
/// Size of a member where the record does not say it: large enough for any chunk.
const MEMBER_BYTES: u64 = 1 << 40;
/// md's default, where the record does not say the chunk.
const CHUNK_KIB: u64 = 512;

/// Capacity and redundancy of an array.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Redundancy {
    /// Usable share of all members together, 0 to 1.
    pub usable: f64,
    /// Members that may be lost, whichever they are.
    pub any: usize,
    /// Members that may be lost in the best case.
    pub at_most: usize,
}

impl Redundancy {
    /// Of a cell's array without missing members; `None` where it is not known well enough.
    pub fn of(cell: &Cell) -> Option<Redundancy> {
        let (geometry, sectors) = geometry(cell)?;
        let all = sectors as f64 * geometry.leaves() as f64;
        let (any, at_most) = survives(&geometry);
        Some(Redundancy { usable: geometry.array_sectors() as f64 / all, any, at_most })
    }
}

/// Size of a cell's array in sectors, as far as that is known.
pub(super) fn array_sectors(cell: &Cell) -> Option<u64> {
    cell.case.member_bytes?;
    Some(geometry(cell)?.0.array_sectors())
}

/// The geometry, and the sectors of a member.
fn geometry(cell: &Cell) -> Option<(NestedGeometry, u64)> {
    let expression = expression(cell)?;
    let leaves = expression.leaves();
    if leaves != cell.case.disks as usize {
        return None;
    }
    let sectors = cell.case.member_bytes.unwrap_or(MEMBER_BYTES) / SECTOR_BYTES;
    let chunk = cell.case.chunk_kib.unwrap_or(CHUNK_KIB) * 1024 / SECTOR_BYTES;
    let geometry = NestedGeometry::new(&expression, chunk, &vec![sectors; leaves]).ok()?;
    Some((geometry, sectors))
}

fn expression(cell: &Cell) -> Option<ArrayExpr> {
    if let Some(array) = &cell.case.array {
        return array.parse().ok();
    }
    let level = cell.md_level()?;
    let layout = match (level, &cell.case.layout) {
        // A word that is not md's says nothing; RAID 10 depends on it.
        (Level::Raid5 | Level::Raid6 | Level::Raid10, Some(layout)) => {
            Some(Layout::parse(level, &layout.text()).ok()?)
        }
        _ => None,
    };
    Some(ArrayExpr {
        level,
        layout,
        chunk: None,
        members: Members::Leaves(cell.case.disks as usize),
    })
}

/// How many leaves may be lost: whichever they are, and at most.
fn survives(geometry: &NestedGeometry) -> (usize, usize) {
    let leaves = geometry.leaves();
    if leaves > TRIED_MAX {
        return (fatal(geometry) - 1, one_after_the_other(geometry));
    }
    let lost = (0_u32..1 << leaves).map(|lost| {
        let served = geometry.enough(&|leaf| lost >> leaf & 1 == 0);
        (lost.count_ones() as usize, served)
    });
    lost.fold((leaves, 0), |(any, at_most), (lost, served)| match served {
        true => (any, at_most.max(lost)),
        false => (any.min(lost - 1), at_most),
    })
}

/// The fewest lost leaves that end the array, if its members are alike.
fn fatal(geometry: &NestedGeometry) -> usize {
    let own = geometry.geometry();
    let mut members: Vec<usize> = match geometry.inner() {
        [] => vec![1; own.members()],
        inner => inner.iter().map(fatal).collect(),
    };
    members.sort_unstable();
    members.iter().take(own.tolerates() + 1).sum()
}

/// Leaves that may be lost in the order of their slots, leaving out those that are needed: the
/// copies of a chunk lie on neighbours, and of an inner array that has failed no leaf is needed.
fn one_after_the_other(geometry: &NestedGeometry) -> usize {
    let mut lost = vec![false; geometry.leaves()];
    for leaf in 0..lost.len() {
        lost[leaf] = true;
        lost[leaf] = geometry.enough(&|leaf| !lost[leaf]);
    }
    lost.iter().filter(|lost| **lost).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(level: &str, layout: Option<&str>, disks: u32) -> Option<(f64, usize, usize)> {
        let cell = Cell::default().with(|it| {
            it.case.level = level.into();
            it.case.layout = layout.map(Into::into);
            it.case.disks = disks;
            it.case.chunk_kib = Some(64);
            it.case.member_bytes = Some(64 << 20);
        });
        Redundancy::of(&cell).map(|of| (of.usable, of.any, of.at_most))
    }

    #[test]
    fn capacity_and_failures_are_those_of_the_geometry() {
        for (level, layout, disks, expected) in [
            ("linear", None, 3, (1.0, 0, 0)),
            ("raid0", Some("original"), 4, (1.0, 0, 0)),
            ("raid1", None, 3, (1.0 / 3.0, 2, 2)),
            ("raid4", None, 4, (0.75, 1, 1)),
            ("raid5", Some("left-symmetric"), 4, (0.75, 1, 1)),
            ("raid6", Some("left-symmetric"), 4, (0.5, 2, 2)),
            ("raid10", Some("n2"), 4, (0.5, 1, 2)),
            ("raid10", Some("f2"), 4, (0.5, 1, 2)),
            ("raid10", Some("n3"), 6, (1.0 / 3.0, 2, 4)),
            ("raid10", Some("n2"), 16, (0.5, 1, 8)),
            ("raid6", Some("left-symmetric"), 16, (0.875, 2, 2)),
        ] {
            let found = of(level, layout, disks).expect(level);
            assert!((found.0 - expected.0).abs() < 0.002, "{level} {disks}: {found:?}");
            assert_eq!((found.1, found.2), (expected.1, expected.2), "{level} {layout:?} {disks}");
        }
        for (level, layout, disks) in
            [("raidz2", None, 4), ("raid10", Some("x9"), 4), ("raid6", None, 3), ("raid5", None, 0)]
        {
            assert_eq!(of(level, layout, disks), None, "{level} {layout:?} {disks}");
        }
    }

    #[test]
    fn nested_arrays_fail_as_real_ones_do() {
        let nested = |array: &str, disks| {
            let (array, chunk_kib) = (Some(array.to_string()), Some(64));
            let cell = Cell::default().with(|it| {
                it.case.array = array;
                it.case.disks = disks;
                it.case.chunk_kib = chunk_kib;
            });
            Redundancy::of(&cell).map(|of| (of.any, of.at_most))
        };
        assert_eq!(nested("raid1(raid0(2),raid0(2))", 4), Some((1, 2)));
        assert_eq!(nested("raid0(raid1(2),raid1(2))", 4), Some((1, 2)));
        assert_eq!(nested("raid5(raid1(2),raid1(2),raid1(2))", 6), Some((3, 4)));
        // More than are tried one by one.
        assert_eq!(nested("raid0(raid1(7),raid1(7))", 14), Some((6, 12)));
        assert_eq!(nested("raid1(raid0(7),raid0(7))", 14), Some((1, 7)));
        assert_eq!(nested("raid1(raid0(2),raid0(2))", 5), None, "not these leaves");
        assert_eq!(nested("zpool(2)", 2), None);
    }
}
