//! The member ranges of an array range are the places of its sectors, found one by one, and few.

use std::collections::HashSet;

use raidlab_md::geometry::{Copy, Geometry, GeometrySpec, Kind};
use raidlab_md::{FarSets, Layout, Level, Raid0Layout, Raid10Layout, Sector};

fn geometry(level: Level, layout: Layout, sizes: Vec<u64>) -> Option<Geometry> {
    let chunk_sectors = if level.has_chunks() { 8 } else { 0 };
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors: sizes }).ok()
}

fn arrays() -> Vec<Geometry> {
    let uneven = |members: u64| (0..members).map(|at| 20 + 24 * (at % 3)).collect::<Vec<u64>>();
    let mut arrays = Vec::new();
    for members in 1..=6 {
        arrays.extend(geometry(Level::Linear, Layout::None, uneven(members)));
        for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
            arrays.extend(geometry(Level::Raid0, Layout::Raid0(layout), uneven(members)));
        }
        arrays.extend(geometry(Level::Raid1, Layout::None, uneven(members)));
        for (near, far) in (1..=3).flat_map(|near| (1..=3).map(move |far| (near, far))) {
            for (offset, far_sets) in [
                (false, FarSets::None),
                (true, FarSets::None),
                (false, FarSets::Old),
                (true, FarSets::Current),
            ] {
                let layout = Raid10Layout { near, far, offset, far_sets };
                let sizes = vec![75; members as usize];
                arrays.extend(geometry(Level::Raid10, Layout::Raid10(layout), sizes));
            }
        }
    }
    arrays
}

/// Every place of every sector of the range, once.
fn check(geometry: &Geometry, from: u64, to: u64) {
    let mut expected = HashSet::new();
    for at in (from..to).map(Sector) {
        match geometry.kind() {
            Kind::Striped(striped) => {
                let extent = striped.locate(at);
                expected.insert((extent.member, extent.sector));
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![Copy::default(); mirrored.copies()];
                mirrored.locate(at, &mut copies);
                expected.extend(copies.iter().map(|copy| (copy.member, copy.sector)));
            }
            Kind::Parity(_) => unreachable!("none is made"),
        }
    }
    let mut found = HashSet::new();
    let emit = |member, sector: Sector, sectors: u64| {
        assert!(sectors > 0);
        for at in sector.0..sector.0 + sectors {
            assert!(found.insert((member, Sector(at))), "{member} {at} twice");
        }
    };
    match geometry.kind() {
        Kind::Striped(striped) => striped.member_ranges(from..to, emit),
        Kind::Mirrored(mirrored) => mirrored.member_ranges(from..to, emit),
        Kind::Parity(_) => unreachable!("none is made"),
    }
    assert_eq!(found, expected, "{} {:?} {from}..{to}", geometry.level(), geometry.layout());
}

#[test]
fn every_range_of_every_small_array() {
    let arrays = arrays();
    for geometry in &arrays {
        let size = geometry.array_sectors();
        for from in (0..size).step_by(3) {
            (from..=size).step_by(5).for_each(|to| check(geometry, from, to));
        }
        check(geometry, 0, size);
    }
    println!("{} arrays", arrays.len());
    assert!(arrays.len() > 60);
}
