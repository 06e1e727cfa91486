//! Every level x layout x member count up to 8, over every sector of small members.
//!
//! What must hold: array sectors and places correspond one to one (or one to `copies`), every used
//! place that holds nothing is slack that the formulas leave over, copies and parity are on
//! different members, and placement agrees with the reference's formulas, written here a second
//! time as they stand there.

use raidlab_md::geometry::{Copy, Geometry, GeometryError, GeometrySpec, Kind, Mirrored, Parity};
use raidlab_md::{
    FarSets, Layout, Level, MemberIdx, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout,
    RowRole, Sector, StripeNo,
};
use std::collections::HashMap;

fn spec(
    level: Level,
    layout: Layout,
    chunk_sectors: u64,
    member_sectors: Vec<u64>,
) -> GeometrySpec {
    GeometrySpec { level, layout, chunk_sectors, member_sectors }
}

fn slots(geometry: &Geometry) -> impl Iterator<Item = MemberIdx> + use<> {
    (0..geometry.members() as u16).map(MemberIdx)
}

// --- parity --------------------------------------------------------------------------------------

fn parity_layouts() -> Vec<(Level, Layout)> {
    let mut layouts = vec![(Level::Raid4, Layout::None)];
    layouts.extend(Raid5Layout::all().map(|layout| (Level::Raid5, Layout::Raid5(layout))));
    layouts.extend(Raid6Layout::all().map(|layout| (Level::Raid6, Layout::Raid6(layout))));
    layouts
}

#[test]
fn parity_places_are_one_to_one_and_every_row_is_whole() {
    let mut arrays = 0;
    for (level, layout) in parity_layouts() {
        let least = if level == Level::Raid6 { 4 } else { 2 };
        for members in least..=8 {
            // Sizes with slack; the smallest member counts.
            for size in [8, 15, 8 * members * 2 + 3, 8 * 5 + 7] {
                let mut sizes = vec![size as u64 + 9; members];
                sizes[members / 2] = size as u64;
                let geometry = Geometry::new(&spec(level, layout, 8, sizes)).unwrap();
                let Kind::Parity(parity) = geometry.kind() else { panic!() };
                assert_eq!(geometry.member_used_sectors(MemberIdx(0)), size as u64 / 8 * 8);
                let lost = if level == Level::Raid6 { 2 } else { 1 };
                assert_eq!(geometry.tolerates(), lost);
                assert_eq!(geometry.data_members(), members - lost);
                assert_eq!(geometry.stripe_sectors(), 8 * (members - lost) as u64);
                assert_eq!(
                    geometry.array_sectors(),
                    (size as u64 / 8 * 8) * (members - lost) as u64
                );
                check_rows(parity, members);
                check_parity_bijection(&geometry, parity);
                arrays += 1;
            }
        }
    }
    println!("{arrays} parity arrays, every sector");
}

fn check_rows(parity: &Parity, members: usize) {
    for stripe in 0..parity.rotation() as u64 + 2 {
        let row = parity.row(StripeNo(stripe));
        assert_eq!(row.role.len(), members);
        assert_eq!(row.role.iter().filter(|role| **role == RowRole::P).count(), 1);
        let qs = row.role.iter().filter(|role| **role == RowRole::Q).count();
        assert_eq!(qs, usize::from(parity.has_q()));
        assert_eq!(row.role[row.p.index()], RowRole::P);
        assert!(row.q.is_none_or(|q| row.role[q.index()] == RowRole::Q));
        assert_eq!(row.data.len(), parity.data_disks());
        for (index, member) in row.data.iter().enumerate() {
            assert_eq!(row.role[member.index()], RowRole::Data(index as u16));
        }
        check_exponents(&row.exponent, &row.by_exponent);
    }
}

/// Different, below 255 (the order of the generator), and listed in ascending order.
fn check_exponents(exponent: &[u8], by_exponent: &[u16]) {
    assert_eq!(exponent.len(), by_exponent.len());
    let ascending: Vec<u8> = by_exponent.iter().map(|&i| exponent[usize::from(i)]).collect();
    assert!(ascending.windows(2).all(|pair| pair[0] < pair[1]), "{ascending:?}");
    assert!(ascending.last().is_none_or(|&largest| largest < 255));
}

fn check_parity_bijection(geometry: &Geometry, parity: &Parity) {
    let mut places: HashMap<(MemberIdx, u64), Sector> = HashMap::new();
    for at in (0..geometry.array_sectors()).map(Sector) {
        let pos = parity.locate(at);
        assert_eq!(parity.array_sector(pos.stripe, pos.index, pos.offset), at);
        let sector = parity.member_sector(pos.stripe, pos.offset);
        assert_eq!(parity.row_of(sector), (pos.stripe, pos.offset));
        let member = parity.row(pos.stripe).data[usize::from(pos.index)];
        assert!(sector.0 < geometry.member_used_sectors(member));
        assert!(places.insert((member, sector.0), at).is_none());
    }
    // The other way: every used sector of every member is what its row says.
    for member in slots(geometry) {
        for sector in 0..geometry.member_used_sectors(member) {
            let (stripe, offset) = parity.row_of(Sector(sector));
            let expected = match parity.row(stripe).role[member.index()] {
                RowRole::Data(index) => Some(parity.array_sector(stripe, index, offset)),
                RowRole::P | RowRole::Q => None,
            };
            assert_eq!(places.get(&(member, sector)).copied(), expected);
        }
    }
}

/// Over one rotation, P (and Q) visit every member equally often: all of them, or all but the last
/// in RAID 6's `-6` layouts; in the fixed layouts, always the same one.
#[test]
fn parity_rotates_evenly() {
    for (level, layout) in parity_layouts() {
        let least = if level == Level::Raid6 { 4 } else { 2 };
        for members in (least..=8).chain([16, 255]) {
            let geometry = Geometry::new(&spec(level, layout, 8, vec![8; members])).unwrap();
            let Kind::Parity(parity) = geometry.kind() else { panic!() };
            let rotation = parity.rotation();
            let number = layout.number();
            let expected = match (level, number) {
                (Level::Raid4, _) | (_, 4 | 5 | 20) => 1,
                (Level::Raid6, 16..=19) => members - 1,
                _ => members,
            };
            assert_eq!(rotation, expected);
            let mut p_count = vec![0; members];
            let mut q_count = vec![0; members];
            for stripe in 0..rotation as u64 {
                let row = parity.row(StripeNo(stripe));
                p_count[row.p.index()] += 1;
                if let Some(q) = row.q {
                    q_count[q.index()] += 1;
                }
                check_exponents(&row.exponent, &row.by_exponent);
            }
            if rotation > 1 {
                assert!(p_count[..rotation].iter().all(|&count| count == 1), "{layout} {members}");
            }
            if level == Level::Raid6 && rotation == members {
                assert!(q_count.iter().all(|&count| count == 1), "{layout} {members}");
            } else if level == Level::Raid6 {
                assert_eq!(q_count.iter().filter(|&&count| count > 0).count(), 1);
            }
        }
    }
}

#[test]
fn parity_arrays_serve_with_as_many_losses_as_they_tolerate() {
    for (level, layout) in parity_layouts() {
        let geometry = Geometry::new(&spec(level, layout, 8, vec![8; 6])).unwrap();
        for present in 0_u32..1 << 6 {
            let enough = geometry.enough(|member| present >> member.0 & 1 == 1);
            let lost = 6 - present.count_ones() as usize;
            assert_eq!(enough, lost <= geometry.tolerates());
        }
    }
}

// --- mirrors -------------------------------------------------------------------------------------

fn raid10_layouts(members: usize) -> Vec<Raid10Layout> {
    let mut layouts = Vec::new();
    for near in 1..=members as u8 {
        for far in 1..=members as u8 {
            for offset in [false, true] {
                for far_sets in [FarSets::None, FarSets::Old, FarSets::Current] {
                    let layout = Raid10Layout { near, far, offset, far_sets };
                    if (2..=members).contains(&layout.copies()) {
                        layouts.push(layout);
                    }
                }
            }
        }
    }
    layouts
}

/// docs/format/geometry.md, RAID 10, Sizes: array sectors, member sectors, stride.
fn raid10_sizes(layout: Raid10Layout, n: u64, c: u64, size: u64) -> (u64, u64, u64) {
    let (nc, fc) = (u64::from(layout.near), u64::from(layout.far));
    let chunks = ((size / c) / fc) * n / nc;
    let per = (chunks * nc * fc).div_ceil(n);
    let stride = if layout.offset { c } else { (per / fc) * c };
    (((per / fc) * n / nc) * c, per * c, stride)
}

/// docs/format/geometry.md, RAID 10, The map: every copy, in its order and step by step.
fn raid10_copies(layout: Raid10Layout, n: u64, c: u64, stride: u64, s: u64) -> Vec<(u64, u64)> {
    let (nc, fc) = (u64::from(layout.near), u64::from(layout.far));
    let set = match layout.far_sets {
        FarSets::None => n,
        FarSets::Old => n / fc,
        FarSets::Current => nc * fc,
    };
    let last = (n / set - 1) * set;
    let (k, o) = (s / c, s % c);
    let x = k * nc;
    let (mut dev, mut row) = (x % n, x / n);
    if layout.offset {
        row *= fc;
    }
    let mut a = row * c + o;
    let mut copies = Vec::new();
    for _ in 0..nc {
        copies.push((dev, a));
        let mut e = dev;
        for f in 1..fc {
            let mut on = e + nc;
            if !n.is_multiple_of(set) && on > last {
                on = last + (on - last) % (set + n % set);
            } else {
                on = on % set + set * (e / set);
            }
            e = on;
            copies.push((e, a + f * stride));
        }
        dev += 1;
        if dev == n {
            dev = 0;
            a += c;
        }
    }
    copies
}

/// Whether the page's formulas put two copies on one member, or two chunks on one place.
fn raid10_collides(layout: Raid10Layout, n: u64, size: u64) -> bool {
    let (array, _, stride) = raid10_sizes(layout, n, 8, size);
    let mut places = HashMap::new();
    (0..array / 8).any(|chunk| {
        let copies = raid10_copies(layout, n, 8, stride, chunk * 8);
        let mut members: Vec<u64> = copies.iter().map(|copy| copy.0).collect();
        members.sort_unstable();
        members.dedup();
        members.len() < copies.len()
            || copies.iter().any(|&copy| places.insert(copy, chunk).is_some())
    })
}

#[test]
fn raid10_agrees_with_the_formulas_and_refuses_only_what_collides() {
    let (mut accepted, mut refused) = (0, 0);
    for members in 2..=8_usize {
        for layout in raid10_layouts(members) {
            for rows in [1, 2, 5, 12, 23] {
                let size = (rows * u64::from(layout.far)) * 8 + 5;
                let spec = spec(Level::Raid10, Layout::Raid10(layout), 8, vec![size; members]);
                match Geometry::new(&spec) {
                    Ok(geometry) => {
                        accepted += 1;
                        check_raid10(&geometry, layout, size);
                    }
                    Err(GeometryError::LayoutUnsafe { .. }) => {
                        refused += 1;
                        let long = 8 * 64 * u64::from(layout.far);
                        assert!(raid10_collides(layout, members as u64, long), "{spec:?}");
                    }
                    Err(error) => panic!("{spec:?}: {error}"),
                }
            }
        }
    }
    println!("{accepted} raid10 arrays over every sector, {refused} refused and shown to collide");
}

fn check_raid10(geometry: &Geometry, layout: Raid10Layout, size: u64) {
    let Kind::Mirrored(mirrored) = geometry.kind() else { panic!() };
    let n = geometry.members() as u64;
    let (array_sectors, used, stride) = raid10_sizes(layout, n, 8, size);
    assert_eq!(geometry.array_sectors(), array_sectors, "{layout} on {n}");
    assert_eq!(geometry.member_used_sectors(MemberIdx(0)), used, "{layout} on {n}");
    assert!(used <= size);
    assert_eq!(geometry.tolerates(), layout.copies() - 1);
    assert_eq!(geometry.data_members(), n as usize / layout.copies());
    for at in 0..array_sectors {
        let mut out = [Copy::default(); 8];
        assert_eq!(mirrored.locate(Sector(at), &mut out), 8 - at % 8);
        let found: Vec<_> = out[..mirrored.copies()]
            .iter()
            .map(|copy| (u64::from(copy.member.0), copy.sector.0))
            .collect();
        assert_eq!(found, raid10_copies(layout, n, 8, stride, at), "{layout} on {n}, sector {at}");
    }
    check_mirrored_bijection(geometry, mirrored);
    check_enough(geometry, mirrored);
}

fn check_mirrored_bijection(geometry: &Geometry, mirrored: &Mirrored) {
    let mut places: HashMap<(MemberIdx, u64), Sector> = HashMap::new();
    let mut copies = vec![Copy::default(); mirrored.copies()];
    for at in (0..geometry.array_sectors()).map(Sector) {
        mirrored.locate(at, &mut copies);
        for (index, copy) in copies.iter().enumerate() {
            assert!(copy.sector.0 < geometry.member_used_sectors(copy.member));
            assert!(copies[..index].iter().all(|other| other.member != copy.member));
            assert!(places.insert((copy.member, copy.sector.0), at).is_none());
        }
    }
    let mut slack = 0;
    for member in slots(geometry) {
        let used = geometry.member_used_sectors(member);
        for sector in 0..used {
            let at = mirrored.array_sector_of(member, Sector(sector));
            assert_eq!(at, places.get(&(member, sector)).copied(), "{member}:{sector}");
            slack += u64::from(at.is_none());
            let run = mirrored.member_run(Sector(sector));
            assert!(run > 0 && sector + run <= used);
            // A run is contiguous in the array as well, or it is slack throughout.
            let end = mirrored.array_sector_of(member, Sector(sector + run - 1));
            assert_eq!(end, at.map(|at| at + (run - 1)));
        }
        assert_eq!(mirrored.array_sector_of(member, Sector(used)), None);
        assert_eq!(mirrored.member_run(Sector(used)), 0);
    }
    let held = geometry.array_sectors() * mirrored.copies() as u64;
    let used: u64 = slots(geometry).map(|member| geometry.member_used_sectors(member)).sum();
    assert_eq!(held + slack, used);
}

/// `enough` against every subset of members and the copies of every chunk; the kernel's own test
/// agrees wherever there are no far sets.
fn check_enough(geometry: &Geometry, mirrored: &Mirrored) {
    let n = geometry.members();
    let chunk = geometry.chunk_sectors().max(1);
    // Shorter arrays do not use every placement.
    let whole_turns = geometry.array_sectors() / chunk >= n as u64;
    let mut copies = vec![Copy::default(); mirrored.copies()];
    let mut fewest_fatal = usize::MAX;
    for present in 0_u32..1 << n {
        let here = |member: MemberIdx| present >> member.0 & 1 == 1;
        let enough = geometry.enough(here);
        let served = (0..geometry.array_sectors()).step_by(chunk as usize).all(|at| {
            mirrored.locate(Sector(at), &mut copies);
            copies.iter().any(|copy| here(copy.member))
        });
        if whole_turns {
            assert_eq!(enough, served, "{:?} {present:b}", geometry.layout());
        } else {
            assert!(!enough || served);
        }
        if !enough {
            fewest_fatal = fewest_fatal.min(n - present.count_ones() as usize);
        }
        if let Layout::Raid10(layout) = geometry.layout()
            && layout.far_sets == FarSets::None
        {
            assert_eq!(enough, kernel_enough(layout, n, here));
        }
    }
    assert_eq!(fewest_fatal, geometry.tolerates() + 1);
}

fn kernel_enough(layout: Raid10Layout, n: usize, here: impl Fn(MemberIdx) -> bool) -> bool {
    let mut first = 0;
    loop {
        if !(0..layout.copies()).any(|step| here(MemberIdx(((first + step) % n) as u16))) {
            return false;
        }
        first = (first + usize::from(layout.near)) % n;
        if first == 0 {
            return true;
        }
    }
}

#[test]
fn raid1_is_the_identity_on_every_member() {
    for members in 1..=8 {
        let mut sizes = vec![50; members];
        sizes[members - 1] = 37;
        let geometry = Geometry::new(&spec(Level::Raid1, Layout::None, 0, sizes)).unwrap();
        assert_eq!(geometry.array_sectors(), 37);
        assert_eq!((geometry.data_members(), geometry.stripe_sectors()), (1, 0));
        let Kind::Mirrored(mirrored) = geometry.kind() else { panic!() };
        assert_eq!(mirrored.copies(), members);
        let mut copies = vec![Copy::default(); members];
        for at in (0..37).map(Sector) {
            assert_eq!(mirrored.locate(at, &mut copies), 37 - at.0);
            assert!(copies.iter().all(|copy| copy.sector == at));
            assert!(copies.iter().enumerate().all(|(i, copy)| copy.member.index() == i));
        }
        check_mirrored_bijection(&geometry, mirrored);
        check_enough(&geometry, mirrored);
    }
}

// --- stripes -------------------------------------------------------------------------------------

/// Deals chunks out one by one, zone by zone: what RAID 0 is, without its formulas.
fn raid0_chunks(layout: Raid0Layout, chunk: u64, sizes: &[u64]) -> Vec<(usize, u64)> {
    let chunks: Vec<u64> = sizes.iter().map(|size| size / chunk).collect();
    let mut dealt = Vec::new();
    let mut row = 0;
    let mut zone_start = 0;
    let mut zone_members = usize::MAX;
    loop {
        let members: Vec<usize> = (0..sizes.len()).filter(|&slot| chunks[slot] > row).collect();
        if members.is_empty() {
            return dealt;
        }
        if members.len() != zone_members {
            (zone_start, zone_members) = (dealt.len(), members.len());
        }
        let first = if layout == Raid0Layout::Original { zone_start } else { 0 };
        for turn in 0..members.len() {
            dealt.push((members[(first + turn) % members.len()], row));
        }
        row += 1;
    }
}

#[test]
fn raid0_deals_chunks_zone_by_zone() {
    let mut arrays = 0;
    for chunk in [8, 16, 24, 40, 48] {
        for members in 1..=5_u32 {
            for choice in 0..4_u32.pow(members) {
                let size = |slot: u32| [1, 2, 3, 5][(choice / 4_u32.pow(slot) % 4) as usize];
                // Slack behind the last whole chunk, different for each member.
                let sizes: Vec<u64> =
                    (0..members).map(|slot| size(slot) * chunk + u64::from(slot)).collect();
                for layout in [Raid0Layout::Original, Raid0Layout::Alternate] {
                    check_raid0(layout, chunk, &sizes);
                    arrays += 1;
                }
            }
        }
    }
    for members in 6..=8 {
        let sizes: Vec<u64> = (0..members).map(|slot| 8 * (1 + slot * slot % 5)).collect();
        check_raid0(Raid0Layout::Original, 8, &sizes);
        check_raid0(Raid0Layout::Alternate, 8, &sizes);
        check_raid0(Raid0Layout::Original, 8, &vec![64; members as usize]);
        arrays += 3;
    }
    println!("{arrays} raid0 arrays, every sector");
}

fn check_raid0(layout: Raid0Layout, chunk: u64, sizes: &[u64]) {
    let spec = spec(Level::Raid0, Layout::Raid0(layout), chunk, sizes.to_vec());
    let geometry = Geometry::new(&spec).unwrap();
    let Kind::Striped(striped) = geometry.kind() else { panic!() };
    let dealt = raid0_chunks(layout, chunk, sizes);
    let masked: u64 = sizes.iter().map(|size| (size / chunk * chunk) & !(chunk - 1)).sum();
    assert_eq!(geometry.array_sectors(), masked);
    assert!(masked <= dealt.len() as u64 * chunk);
    if chunk.is_power_of_two() {
        assert_eq!(masked, dealt.len() as u64 * chunk);
    }
    for at in 0..masked {
        let extent = striped.locate(Sector(at));
        let (member, row) = dealt[(at / chunk) as usize];
        assert_eq!(extent.member.index(), member, "{spec:?}, sector {at}");
        assert_eq!(extent.sector, Sector(row * chunk + at % chunk), "{spec:?}, sector {at}");
        assert_eq!(extent.sectors, (chunk - at % chunk).min(masked - at));
        assert!(extent.sector.0 < geometry.member_used_sectors(extent.member));
    }
    let alternate = raid0_chunks(Raid0Layout::Alternate, chunk, sizes);
    let original = raid0_chunks(Raid0Layout::Original, chunk, sizes);
    assert_eq!(striped.layout_matters(), alternate != original, "{spec:?}");
    assert!(geometry.enough(|_| true));
    assert!(!geometry.enough(|member| member.0 != 0));
    assert_eq!((geometry.tolerates(), geometry.data_members()), (0, sizes.len()));
}

#[test]
fn linear_puts_members_one_after_the_other() {
    for rounding in [0, 1, 8, 24] {
        for sizes in [vec![30], vec![30, 24, 77], vec![24; 8], vec![100, 25, 25, 99]] {
            let unit = rounding.max(1);
            let used: Vec<u64> = sizes.iter().map(|size| size / unit * unit).collect();
            let spec = spec(Level::Linear, Layout::None, rounding, sizes);
            let geometry = Geometry::new(&spec).unwrap();
            let Kind::Striped(striped) = geometry.kind() else { panic!() };
            assert_eq!(geometry.array_sectors(), used.iter().sum::<u64>());
            let mut at = 0;
            for (slot, &used) in used.iter().enumerate() {
                assert_eq!(geometry.member_used_sectors(MemberIdx(slot as u16)), used);
                for sector in 0..used {
                    let extent = striped.locate(Sector(at));
                    assert_eq!((extent.member.index(), extent.sector.0), (slot, sector));
                    assert_eq!(extent.sectors, used - sector);
                    at += 1;
                }
            }
        }
    }
}
