//! Arrays in the caller's words.

use raidlab_md::assemble::{ExplicitMember, ExplicitSpec, Shape, Verdict, explicit};
use raidlab_md::{Level, MemberIdx, Sector};

fn disk(sectors: u64) -> Option<ExplicitMember> {
    Some(ExplicitMember {
        label: format!("disk of {sectors}"),
        device_sectors: sectors,
        data_offset: None,
        data_sectors: None,
    })
}

fn spec(level: Level, members: Vec<Option<ExplicitMember>>) -> ExplicitSpec {
    ExplicitSpec {
        level,
        layout: None,
        chunk_sectors: 128,
        raid_disks: members.len(),
        data_offset: 2048,
        used_sectors: None,
        members,
    }
}

#[test]
fn the_smallest_member_gives_the_size_and_offsets_may_differ() {
    let mut spec = spec(Level::Raid5, vec![disk(4096), disk(3328), None, disk(4096)]);
    spec.members[0].as_mut().unwrap().data_offset = Some(1024);
    let array = explicit(&spec).unwrap();
    assert_eq!(array.shape.array_sectors(), 1280 * 3);
    assert_eq!(array.read_only.verdict, Verdict::RunDegraded { missing: vec![MemberIdx(2)] });
    let offsets = |slot: usize| array.read_only.slots[slot].as_ref().unwrap().data_offset;
    assert_eq!((offsets(0), offsets(1), offsets(3)), (1024, 2048, 2048));
    let Shape::Settled(geometry) = &array.shape else { panic!("reshaping") };
    assert_eq!(geometry.layout().to_string(), "left-symmetric");
    // Less than all of it on request.
    spec.used_sectors = Some(640);
    assert_eq!(explicit(&spec).unwrap().shape.array_sectors(), 640 * 3);
}

#[test]
fn too_many_missing_members_leave_a_part() {
    let spec = spec(Level::Raid0, vec![disk(3328), None]);
    let array = explicit(&spec).unwrap();
    assert!(matches!(array.read_only.verdict, Verdict::RunPartial { .. }));
    let readable = |at| array.read_only.readable(&array.shape, Sector(at)).readable;
    assert!(readable(0) && !readable(128) && readable(256));
}

#[test]
fn a_description_that_is_wrong_is_refused_with_the_member() {
    let good = spec(Level::Raid0, vec![disk(3328), disk(4096), None]);
    let text = |change: &dyn Fn(&mut ExplicitSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        explicit(&spec).unwrap_err().to_string()
    };
    assert_eq!(
        text(&|_| {}),
        "slot 2: missing, and members have different sizes; give the used size"
    );
    assert!(text(&|spec| spec.raid_disks = 4).starts_with("members: 4 slots, but 3 members"));
    assert_eq!(text(&|spec| spec.members = vec![None; 3]), "members: all of them are missing");
    assert_eq!(
        text(&|spec| spec.data_offset = 3328),
        "disk of 3328: data offset 3328, but it has 3328 sectors"
    );
    assert_eq!(
        text(&|spec| spec.used_sectors = Some(2000)),
        "disk of 3328: has 1280 sectors from its data offset on, and needs 2000"
    );
    let geometry = |spec: &mut ExplicitSpec| (spec.chunk_sectors, spec.level) = (24, Level::Raid5);
    assert_eq!(text(&geometry), "chunk: 24 sectors for raid5: not a power of two");
}
