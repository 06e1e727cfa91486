//! Nested arrays, sector by sector: 1+0, 0+1, 50, 60 and deeper.

use raidlab_md::nested::{ArrayExpr, NestedError, NestedGeometry, Place, PlaceRole};
use raidlab_md::{GeometryError, Sector};
use std::collections::HashMap;

fn make(text: &str, leaf_sectors: &[u64]) -> NestedGeometry {
    let expr: ArrayExpr = text.parse().unwrap();
    NestedGeometry::new(&expr, 8, leaf_sectors).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Expression, leaves, array sectors with 48-sector leaves and 8-sector chunks, data copies of each
/// sector, parity places of each, losses that are always survived.
const ARRAYS: &[(&str, usize, u64, usize, usize, usize)] = &[
    ("raid0(raid1(2),raid1(2))", 4, 96, 2, 0, 1),
    ("raid1(raid0(2),raid0(2))", 4, 96, 2, 0, 1),
    ("raid0(raid1(3),raid1(3),raid1(3))", 9, 144, 3, 0, 2),
    ("raid0(raid5(3),raid5(3))", 6, 192, 1, 1, 1),
    ("raid0(raid6(4),raid6(4))", 8, 192, 1, 2, 2),
    ("raid0(raid6,la6(5),raid6,ddf-zero-restart(5))", 10, 288, 1, 2, 2),
    ("raid5(raid1(2),raid1(2),raid1(2))", 6, 96, 2, 2, 3),
    ("raid1(raid5(3),raid5(3))", 6, 96, 2, 2, 3),
    ("raid5(raid5(3),raid5(3),raid5(3))", 9, 192, 1, 3, 3),
    ("raid1(raid1(raid1(2),raid1(2)),raid1(raid1(2),raid1(2)))", 8, 48, 8, 0, 7),
    ("raid0(raid10,f2(3),raid10,o2(3))", 6, 144, 2, 0, 1),
    ("linear(raid0(2),raid1(2),raid5(3))", 7, 240, 0, 0, 0),
];

#[test]
fn every_sector_has_its_own_places() {
    for &(text, leaves, array_sectors, copies, parities, _) in ARRAYS {
        let nested = make(text, &vec![48; leaves]);
        assert_eq!(nested.leaves(), leaves, "{text}");
        assert_eq!(nested.array_sectors(), array_sectors, "{text}");
        let mut held: HashMap<(usize, u64), Sector> = HashMap::new();
        for at in (0..array_sectors).map(Sector) {
            let places = nested.locate(at);
            let (data, parity): (Vec<&Place>, Vec<&Place>) =
                places.iter().partition(|place| place.role == PlaceRole::Data);
            if !text.starts_with("linear") {
                assert_eq!((data.len(), parity.len()), (copies, parities), "{text} {at}");
            }
            for (index, place) in places.iter().enumerate() {
                assert!(place.sector.0 < nested.leaf_used_sectors(place.leaf));
                assert!(places[..index].iter().all(|other| other.leaf != place.leaf));
            }
            for place in data {
                let other = held.insert((place.leaf, place.sector.0), at);
                assert_eq!(other, None, "{text}: {place:?}");
            }
        }
        // Data and parity never share a place.
        for at in (0..array_sectors).map(Sector) {
            for place in nested.locate(at).iter().filter(|place| place.role != PlaceRole::Data) {
                assert!(!held.contains_key(&(place.leaf, place.sector.0)), "{text}: {place:?}");
            }
        }
    }
}

#[test]
fn losses_are_survived_as_the_nesting_says() {
    for &(text, leaves, array_sectors, _, parities, survived) in ARRAYS {
        let nested = make(text, &vec![48; leaves]);
        let mut fewest_fatal = usize::MAX;
        for present in 0_u32..1 << leaves {
            let here = |leaf: usize| present >> leaf & 1 == 1;
            let enough = nested.enough(&here);
            // Each sector must have a copy on a leaf that is there. In RAID 0+1 that is not enough:
            // the copy may be in an inner array that has failed for lack of another leaf.
            if parities == 0 && !text.starts_with("linear") {
                let served = (0..array_sectors)
                    .all(|at| nested.locate(Sector(at)).iter().any(|place| here(place.leaf)));
                let stripes_inside = text.starts_with("raid1(raid0");
                assert!(enough == served || stripes_inside && served, "{text} {present:b}");
            }
            if !enough {
                fewest_fatal = fewest_fatal.min(leaves - present.count_ones() as usize);
            }
        }
        assert_eq!(fewest_fatal, survived + 1, "{text}");
    }
}

/// 1+0 and 0+1 of four leaves, chunk by chunk.
#[test]
fn one_zero_and_zero_one_lie_as_drawn() {
    let chunk_places = |text: &str, chunk: u64| -> Vec<(usize, u64)> {
        let places = make(text, &[48; 4]).locate(Sector(chunk * 8));
        places.iter().map(|place| (place.leaf, place.sector.0 / 8)).collect()
    };
    for (chunk, row) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        let side = (chunk % 2) as usize;
        let one_zero = chunk_places("raid0(raid1(2),raid1(2))", chunk);
        assert_eq!(one_zero, [(side * 2, row), (side * 2 + 1, row)]);
        let zero_one = chunk_places("raid1(raid0(2),raid0(2))", chunk);
        assert_eq!(zero_one, [(side, row), (side + 2, row)]);
    }
}

/// The same leaves, the same two failures: RAID 1+0 survives, RAID 0+1 has lost both of its sides.
#[test]
fn zero_one_fails_where_one_zero_survives() {
    let crossed = |leaf: usize| ![1, 2].contains(&leaf);
    assert!(make("raid0(raid1(2),raid1(2))", &[48; 4]).enough(&crossed));
    assert!(!make("raid1(raid0(2),raid0(2))", &[48; 4]).enough(&crossed));
}

/// What carries an outer parity is parity on every leaf below, and the outermost one counts.
#[test]
fn the_outermost_parity_names_the_place() {
    let nested = make("raid6(raid5(3),raid5(3),raid5(3),raid5(3))", &[48; 12]);
    for at in (0..nested.array_sectors()).map(Sector) {
        let roles: Vec<PlaceRole> = nested.locate(at).iter().map(|place| place.role).collect();
        let (data, p, q) = (PlaceRole::Data, PlaceRole::P, PlaceRole::Q);
        // The data and its inner P; the outer P and the inner P over it; the same for Q.
        assert_eq!(roles, [data, p, p, p, q, q]);
    }
}

/// RAID 60 loses two leaves of one side, and two more of the other, but not three of one.
#[test]
fn raid60_survives_two_on_each_side() {
    let nested = make("raid0(raid6(4),raid6(4))", &[48; 8]);
    assert!(nested.enough(&|leaf| ![0, 1, 6, 7].contains(&leaf)));
    assert!(!nested.enough(&|leaf| ![0, 1, 2].contains(&leaf)));
    assert_eq!(nested.inner().len(), 2);
    assert_eq!(nested.geometry().members(), 2);
}

#[test]
fn a_refused_inner_array_is_named() {
    let expr: ArrayExpr = "raid1(raid0(2),raid6(3))".parse().unwrap();
    let error = NestedGeometry::new(&expr, 8, &[48; 5]).unwrap_err();
    assert_eq!(error.to_string(), "raid6(3): members: raid6 needs at least 4, given 3");
    assert!(matches!(
        error,
        NestedError::Array { source: GeometryError::TooFewMembers { members: 3, .. }, .. }
    ));
    let error = NestedGeometry::new(&expr, 8, &[48; 4]).unwrap_err();
    assert_eq!(error.to_string(), "leaves: the array has 5, given 4");
}
