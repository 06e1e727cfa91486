//! What is refused, in which words, and what stands at the edges of the limits.

use raidlab_md::geometry::{MAX_MEMBERS, MAX_PARITY_MEMBERS, MAX_SECTORS};
use raidlab_md::{Geometry, GeometryError, GeometrySpec, Kind, Layout, Level, MemberIdx, Sector};

fn make(
    level: Level,
    layout: &str,
    chunk_sectors: u64,
    member_sectors: &[u64],
) -> Result<Geometry, GeometryError> {
    let layout = match layout {
        "" => Layout::default_for(level),
        name => Layout::parse(level, name).unwrap(),
    };
    let member_sectors = member_sectors.to_vec();
    Geometry::new(&GeometrySpec { level, layout, chunk_sectors, member_sectors })
}

#[test]
fn a_refusal_names_the_field_and_the_problem() {
    use Level::*;
    let many = vec![1024; 2000];
    #[rustfmt::skip]
    let table: &[(Level, &str, u64, &[u64], &str)] = &[
        (Raid0, "", 8, &[], "members: raid0 needs at least 1, given 0"),
        (Raid5, "", 8, &[64], "members: raid5 needs at least 2, given 1"),
        (Raid6, "", 8, &[64; 3], "members: raid6 needs at least 4, given 3"),
        (Raid10, "", 8, &[64], "members: raid10 needs at least 2, given 1"),
        (Raid5, "", 8, &many[..256], "members: raid5 takes at most 255, given 256"),
        (Raid1, "", 0, &many[..1921], "members: raid1 takes at most 1920, given 1921"),
        (Raid5, "", 0, &[64; 3], "chunk: 0 sectors for raid5: smaller than 8 sectors (4 KiB)"),
        (Raid5, "", 24, &[64; 3], "chunk: 24 sectors for raid5: not a power of two"),
        (Raid10, "", 24, &[64; 3], "chunk: 24 sectors for raid10: not a power of two"),
        (Raid0, "", 25, &[64; 3],
         "chunk: 25 sectors for raid0: not a multiple of 8 sectors (4 KiB)"),
        (Raid0, "", 262144, &[64; 3],
         "chunk: 262144 sectors for raid0: larger than 131072 sectors (64 MiB)"),
        (Raid0, "", 128, &[256, 127],
         "member 1: 127 sectors (63.50 KiB), needs at least 128 (64.00 KiB)"),
        (Raid1, "", 0, &[9, 0], "member 1: 0 sectors (0B), needs at least 1 (512B)"),
        (Linear, "", 0, &[9, 0], "member 1: 0 sectors (0B), needs at least 1 (512B)"),
        (Raid5, "", 128, &[256, 256, 127],
         "member 2: 127 sectors (63.50 KiB), needs at least 128 (64.00 KiB)"),
        (Raid10, "f2", 128, &[256, 255],
         "member 1: 255 sectors (127.50 KiB), needs at least 256 (128.00 KiB)"),
        (Raid10, "n3", 8, &[64; 2],
         "layout: 'n3' makes 3 copies, which is not between 2 and the number of members, 2"),
        (Raid10, "n2o2", 8, &[64; 5],
         "layout: 'n2o2' with 5 members: a near copy that wraps into the next row would \
         overwrite an offset copy"),
        (Raid10, "f3-old-far-sets", 8, &[64; 6],
         "layout: 'f3-old-far-sets' with 6 members: a far set is smaller than the number \
         of copies: two on one member"),
        (Raid10, "n2f2-far-sets", 8, &[64; 9],
         "layout: 'n2f2-far-sets' with 9 members: far copies would overwrite each other \
         where far sets meet"),
        (Raid0, "unrecorded", 8, &[8, 24, 24],
         "layout: not recorded, but member sizes differ so that it matters: say 'original' \
         or 'alternate'"),
        (Raid1, "", 0, &[MAX_SECTORS + 1],
         "member 0: 18014398509481985 sectors, more than 18014398509481984"),
        (Raid0, "", 8, &[MAX_SECTORS; 2],
         "array: 36028797018963968 sectors, more than 18014398509481984"),
        (Raid5, "", 8, &[MAX_SECTORS; 3],
         "array: 36028797018963968 sectors, more than 18014398509481984"),
        (Raid10, "", 8, &[MAX_SECTORS; 4],
         "array: 36028797018963968 sectors, more than 18014398509481984"),
        (Linear, "", 0, &[MAX_SECTORS; 2],
         "array: 36028797018963968 sectors, more than 18014398509481984"),
    ];
    for (level, layout, chunk, members, message) in table {
        match make(*level, layout, *chunk, members) {
            Ok(_) => panic!("{level} {layout} is accepted, not refused with '{message}'"),
            Err(error) => assert_eq!(&error.to_string(), message),
        }
    }
    let other = Geometry::new(&GeometrySpec {
        level: Level::Raid6,
        layout: Layout::default_for(Level::Raid5),
        chunk_sectors: 8,
        member_sectors: vec![64; 4],
    });
    assert!(matches!(other, Err(GeometryError::LayoutOfOtherLevel { .. })));
}

#[test]
fn an_unrecorded_raid0_layout_is_fine_while_it_does_not_matter() {
    // One zone; a second zone of one member; a second zone that starts on a whole turn.
    for sizes in [&[64, 64, 64][..], &[64, 128], &[16, 32, 32]] {
        let unrecorded = make(Level::Raid0, "unrecorded", 8, sizes).unwrap();
        let Kind::Striped(unrecorded) = unrecorded.kind() else { panic!() };
        assert!(!unrecorded.layout_matters());
        for layout in ["original", "alternate"] {
            let recorded = make(Level::Raid0, layout, 8, sizes).unwrap();
            let Kind::Striped(striped) = recorded.kind() else { panic!() };
            for at in 0..recorded.array_sectors() {
                assert_eq!(striped.locate(Sector(at)), unrecorded.locate(Sector(at)));
            }
        }
    }
}

#[test]
fn the_smallest_and_largest_arrays_are_accepted() {
    make(Level::Linear, "", 0, &[1]).unwrap();
    make(Level::Raid0, "", 8, &[8]).unwrap();
    // 24 AND NOT 23, see docs/format/geometry.md, Sizes.
    assert_eq!(make(Level::Raid0, "", 24, &[24]).unwrap().array_sectors(), 8);
    make(Level::Raid1, "", 0, &[1]).unwrap();
    // md ignores whatever chunk a RAID 1 superblock holds.
    assert_eq!(make(Level::Raid1, "", 77, &[64]).unwrap().chunk_sectors(), 0);
    make(Level::Raid4, "", 8, &[8; 2]).unwrap();
    make(Level::Raid5, "", 8, &[8; 2]).unwrap();
    make(Level::Raid6, "", 8, &[8; 4]).unwrap();
    make(Level::Raid10, "n2", 8, &[8; 2]).unwrap();
    for level in [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid10] {
        let geometry = make(level, "", 131072, &[1 << 30; MAX_MEMBERS]).unwrap();
        assert_eq!(geometry.members(), MAX_MEMBERS);
    }
    for level in [Level::Raid4, Level::Raid5, Level::Raid6] {
        let geometry = make(level, "", 131072, &[1 << 30; MAX_PARITY_MEMBERS]).unwrap();
        let lost = geometry.tolerates();
        assert_eq!(geometry.data_members(), MAX_PARITY_MEMBERS - lost);
        assert!(geometry.enough(|member| member.index() >= lost));
        assert!(!geometry.enough(|member| member.index() > lost));
    }
}

/// The arithmetic holds at the last sector of the largest arrays.
#[test]
fn the_last_sector_of_the_largest_array_is_found() {
    let cases = [
        (Level::Linear, "", 1),
        (Level::Raid0, "", 1),
        (Level::Raid1, "", 2),
        (Level::Raid5, "", 2),
        (Level::Raid6, "", 3),
        (Level::Raid10, "n3", 3),
        (Level::Raid10, "f3", 3),
        (Level::Raid10, "o3", 3),
    ];
    for (level, layout, members) in cases {
        for chunk in [8, 131072] {
            // RAID 6 needs four members: two of data, so half the size each.
            let (members, size) =
                if level == Level::Raid6 { (4, MAX_SECTORS / 2) } else { (members, MAX_SECTORS) };
            let geometry = make(level, layout, chunk, &vec![size; members]).unwrap();
            let last = Sector(geometry.array_sectors() - 1);
            let used = geometry.member_used_sectors(MemberIdx(0));
            match geometry.kind() {
                Kind::Striped(striped) => assert_eq!(striped.locate(last).sector, Sector(used - 1)),
                Kind::Mirrored(mirrored) => {
                    let mut copies = vec![Default::default(); mirrored.copies()];
                    assert_eq!(mirrored.locate(last, &mut copies), 1);
                    for copy in copies {
                        assert!(copy.sector.0 < used);
                        assert_eq!(mirrored.array_sector_of(copy.member, copy.sector), Some(last));
                    }
                }
                Kind::Parity(parity) => {
                    let pos = parity.locate(last);
                    assert_eq!(parity.member_sector(pos.stripe, pos.offset), Sector(used - 1));
                    assert_eq!(parity.array_sector(pos.stripe, pos.index, pos.offset), last);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "outside of the array")]
fn a_sector_behind_a_striped_array_is_a_bug() {
    let geometry = make(Level::Raid0, "", 8, &[8; 2]).unwrap();
    let Kind::Striped(striped) = geometry.kind() else { panic!() };
    striped.locate(Sector(16));
}

#[test]
#[should_panic(expected = "outside of the array")]
fn a_sector_behind_a_mirrored_array_is_a_bug() {
    let geometry = make(Level::Raid10, "", 8, &[8; 2]).unwrap();
    let Kind::Mirrored(mirrored) = geometry.kind() else { panic!() };
    mirrored.locate(Sector(8), &mut [Default::default(); 2]);
}

#[test]
#[should_panic(expected = "outside of the array")]
fn a_sector_behind_a_parity_array_is_a_bug() {
    let geometry = make(Level::Raid5, "", 8, &[8; 3]).unwrap();
    let Kind::Parity(parity) = geometry.kind() else { panic!() };
    parity.locate(Sector(16));
}
