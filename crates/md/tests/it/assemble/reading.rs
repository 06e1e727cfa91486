//! What can be read of an array that cannot run.

use super::support::*;
use raidlab_md::assemble::{Array, MemberState, Options, Shape, Software, Verdict};
use raidlab_md::geometry::{Generation, Kind};
use raidlab_md::ondisk::ReshapeState;
use raidlab_md::{Geometry, MemberIdx, Sector};

/// The readable sectors, by walking the whole array.
fn readable(array: &Array) -> Vec<bool> {
    let shape = array.shape.as_ref().unwrap();
    let mut map = Vec::new();
    while (map.len() as u64) < shape.array_sectors() {
        let run = array.read_only.readable(shape, Sector(map.len() as u64));
        assert!(run.sectors > 0);
        map.resize(map.len() + run.sectors as usize, run.readable);
    }
    assert_eq!(map.len() as u64, shape.array_sectors());
    map
}

fn geometry(array: &Array) -> &Geometry {
    let Ok(Shape::Settled(geometry)) = &array.shape else { panic!("no geometry") };
    geometry
}

#[test]
fn what_is_left_of_raid0_and_linear_is_on_the_members_that_are_left() {
    for (level, layout) in [(0, 1), (-1, 0)] {
        let mut all = members(level, layout, 3);
        all.remove(1);
        let array = one(&all);
        assert_eq!(both(&array), ["refused", "needs Partial"]);
        let array = one_with(&all, &partial());
        assert_eq!(both(&array), ["refused", "partial"]);
        let Kind::Striped(striped) = geometry(&array).kind() else { panic!("not striped") };
        for (at, readable) in readable(&array).into_iter().enumerate() {
            let on = striped.locate(Sector(at as u64)).member;
            assert_eq!(readable, on != MemberIdx(1), "sector {at}");
        }
        // Of different sizes: the location of the missing one's data is unknown.
        all[0].metadata.data_sectors -= 128;
        let array = one_with(&all, &partial());
        assert_eq!(both(&array), ["refused", "refused"]);
        assert!(array.shape.unwrap_err().to_string().contains("give the geometry explicitly"));
    }
}

#[test]
fn raid5_without_two_members_still_has_the_other_chunks() {
    let mut all = raid5(4);
    all.remove(3);
    all.remove(1);
    let array = one_with(&all, &partial());
    assert_eq!(both(&array), ["refused", "partial"]);
    let Verdict::RunPartial { lost } = &array.read_only.verdict else { unreachable!() };
    assert!(lost.contains("without slots 1 and 3"), "{lost}");
    let Kind::Parity(parity) = geometry(&array).kind() else { panic!("no parity") };
    for (at, readable) in readable(&array).into_iter().enumerate() {
        let pos = parity.locate(Sector(at as u64));
        let on = parity.row(pos.stripe).data[usize::from(pos.index)];
        assert_eq!(readable, [0, 2].contains(&on.0), "sector {at}");
    }
}

#[test]
fn a_rebuild_that_was_cut_short_serves_what_it_has() {
    let mut all = raid5(4);
    all.remove(3);
    all[1].metadata.recovery_offset = Some(300);
    let array = one(&all);
    assert_eq!(state_of(&array, 1), &MemberState::Recovering { slot: MemberIdx(1), up_to: 300 });
    assert_eq!(both(&array), ["refused", "needs Partial"]);
    let array = one_with(&all, &partial());
    let Kind::Parity(parity) = geometry(&array).kind() else { panic!("no parity") };
    for (at, readable) in readable(&array).into_iter().enumerate() {
        let pos = parity.locate(Sector(at as u64));
        let on = parity.row(pos.stripe).data[usize::from(pos.index)];
        let below = parity.member_sector(pos.stripe, pos.offset).0 < 300;
        // Below: only slot 3 is missing. From there on: two are, and chunks stand for themselves.
        assert_eq!(readable, below || [0, 2].contains(&on.0), "sector {at}");
    }
    // A mirror that is being rebuilt, alone.
    let mut all = members(1, 0, 2);
    all[1].metadata.recovery_offset = Some(100);
    let array = one_with(&all[1..], &partial());
    assert_eq!(both(&array), ["refused", "partial"]);
    let map = readable(&array);
    assert!(map[..100].iter().all(|&here| here) && map[100..].iter().all(|&here| !here));
}

#[test]
fn a_device_that_was_cut_off_is_only_read() {
    let mut all = members(1, 0, 2);
    all[0].device_sectors -= 280;
    let array = one(&all);
    assert!(why(&array, 0).contains("ends 280 sectors before its data does"), "{array:?}");
    assert_eq!(both(&array), ["degraded 0", "degraded 0"]);
    assert_eq!(array.read_write.slots[0], None);
    let array = one_with(&all[..1], &partial());
    assert_eq!(both(&array), ["refused", "partial"]);
    assert_eq!(readable(&array).iter().filter(|&&here| here).count(), 1000);
}

#[test]
fn old_members_serve_only_if_asked_and_only_where_needed() {
    let mut all = raid5(4);
    all[1].metadata.events = 40;
    all[3].metadata.events = 45;
    assert_eq!(both(&one(&all)), ["needs Force", "needs IgnoreEvents"]);
    let options = Options { ignore_events: true, ..Options::default() };
    let array = one_with(&all, &options);
    assert_eq!(both(&array), ["needs Force", "degraded 1"]);
    assert!(array.read_only.slots[3].as_ref().unwrap().stale);
    assert!(array.read_only.slots[1].is_none(), "parity is preferred to an older member");
    assert!(array.read_only.doubts[0].contains("disk3 (slot 3, 5 updates behind)"));
    assert!(readable(&array).iter().all(|&here| here));
}

#[test]
fn reading_what_was_in_use_warns() {
    for (level, layout, slots, part) in [
        (1, 0, 2, "its copies may differ"),
        (10, 0x102, 4, "its copies may differ"),
        (5, 2, 3, "slot 0 is missing"),
    ] {
        let mut all = members(level, layout, slots);
        dirty(&mut all);
        let array = one(&all[1..]);
        assert_eq!(short(&array.read_only.verdict), "degraded 0");
        // What may be wrong is a doubt; that copies may differ is seen where they are compared.
        let said = if level == 5 { &array.read_only.doubts } else { &array.read_only.warnings };
        assert!(said[0].contains(part), "{said:?}");
        assert!(array.read_only.repairs == Default::default(), "reading repairs nothing");
    }
}

/// RAID 5 that grows from three members to four, up to array sector `position`.
fn growing(position: u64) -> Vec<raidlab_md::assemble::Candidate> {
    let mut all = raid5(4);
    for one in &mut all {
        one.metadata.reshape = Some(ReshapeState {
            position,
            backwards: false,
            delta_disks: 1,
            new_level: 5,
            new_layout: 2,
            new_chunk_sectors: 128,
            new_data_offset: 1024,
        });
    }
    all
}

#[test]
fn an_array_in_mid_reshape_is_read_but_not_run() {
    let array = one(&growing(768));
    assert_eq!(both(&array), ["refused", "run"]);
    let Verdict::Refused { why } = &array.read_write.verdict else { unreachable!() };
    assert_eq!(
        why,
        "The array is in the middle of a reshape (3 to 4 members), at array sector 768. It can be \
         read here; to write to it, finish the reshape first."
    );
    let Ok(Shape::Reshaping(reshaping)) = &array.shape else { panic!("settled") };
    assert_eq!(reshaping.array_sectors(), USED * 2);
    assert_eq!(reshaping.data_start(Generation::New, MemberIdx(3)), Some(1024));
    assert_eq!(array.other_verdicts, []);
    assert!(array.read_only.warnings[1].contains("may have moved more than it recorded"));
    // A position that the kernel would never have written; a reshape in place.
    let mut all = growing(700);
    for one in &mut all {
        one.metadata.reshape.as_mut().unwrap().new_data_offset = 2048;
    }
    let array = one(&all);
    assert_eq!(short(&array.read_only.verdict), "run");
    let by: Vec<Software> = array.other_verdicts.iter().map(|note| note.by).collect();
    assert_eq!(by, [Software::Kernel, Software::Mdadm]);
    assert!(array.read_only.warnings[1].contains("only in mdadm's backup file"));
}

#[test]
fn each_half_of_a_reshape_needs_its_own_members() {
    // Without slots 2 and 3: of the new four too few, of the old three enough.
    let array = one_with(&growing(768)[..2], &partial());
    assert_eq!(short(&array.read_only.verdict), "partial");
    let map = readable(&array);
    assert!(map[768..].iter().all(|&here| here));
    assert!(map[..768].iter().any(|&here| !here), "two of four are too few");
    // As long as nothing has been moved, that is enough for all.
    assert_eq!(short(&one(&growing(0)[..2]).read_only.verdict), "degraded 2,3");
    // When everything has been, it is not, and the old geometry does not count.
    let array = one(&growing(USED * 3)[..2]);
    assert_eq!(short(&array.read_only.verdict), "needs Partial");
    // A mirror has no reshape.
    let mut all = growing(768);
    all.iter_mut().for_each(|one| one.metadata.level = 1);
    assert!(one(&all).shape.unwrap_err().to_string().contains("a raid1 is in a reshape"));
}

#[test]
fn old_members_are_never_used_beyond_what_they_ever_held() {
    let ignore = Options { ignore_events: true, ..Options::default() };
    let stale = |change: &dyn Fn(&mut raidlab_md::ondisk::MemberMetadata)| {
        let mut all = raid5(4);
        all[1].metadata.events = 40;
        change(&mut all[1].metadata);
        all.remove(3);
        one_with(&all, &ignore)
    };
    assert_eq!(short(&stale(&|_| {}).read_only.verdict), "degraded 3");
    // It left in the middle of its rebuild; it is from before the array became larger.
    let array = stale(&|one| one.recovery_offset = Some(300));
    assert_eq!(short(&array.read_only.verdict), "needs Partial");
    let array = stale(&|one| one.used_sectors = 640);
    assert_eq!(short(&array.read_only.verdict), "needs Partial");
    // From before a grow; from the middle of a reshape that is over.
    let array = stale(&|one| one.raid_disks = 3);
    assert_eq!(short(&array.read_only.verdict), "needs Partial");
    let array = stale(&|one| one.reshape = growing(0)[0].metadata.reshape);
    assert_eq!(short(&array.read_only.verdict), "needs Partial");
    // In a reshape: from when it had come less far.
    let mut all = growing(768);
    all.remove(0);
    all[0].metadata.events -= 5;
    assert_eq!(short(&one_with(&all, &ignore).read_only.verdict), "degraded 0");
    all[0].metadata.reshape.as_mut().unwrap().position = 384;
    assert_eq!(short(&one_with(&all, &ignore).read_only.verdict), "needs Partial");
}

#[test]
fn a_member_one_update_before_the_end_of_a_reshape_has_its_data_in_the_new_place() {
    let mut all = growing(USED * 3);
    for one in &mut all {
        let new_start = one.metadata.reshape.take().unwrap().new_data_offset;
        one.metadata.data_offset = new_start;
    }
    let before = growing(USED * 3)[2].metadata.clone();
    all[2].metadata.reshape = before.reshape;
    all[2].metadata.data_offset = before.data_offset;
    all[2].metadata.events -= 1;
    let array = one(&all);
    assert_eq!(both(&array), ["run", "run"]);
    assert!(array.contradictions.is_empty(), "{:?}", array.contradictions);
    for plan in [&array.read_only, &array.read_write] {
        let starts = plan.slots.iter().flatten().map(|source| source.data_offset);
        assert_eq!(starts.collect::<Vec<_>>(), [1024; 4]);
    }
}

#[test]
fn a_raid0_that_was_caught_growing_is_read() {
    // To md it is a RAID 4 whose parity is missing while it grows, from two members to three: slot
    // 2 has what has been moved, slot 3 would be the parity.
    let mut all = members(4, 5, 4);
    for one in &mut all {
        one.metadata.reshape = Some(ReshapeState {
            position: 768,
            backwards: false,
            delta_disks: 1,
            new_level: 4,
            new_layout: 5,
            new_chunk_sectors: 128,
            new_data_offset: 1024,
        });
        one.metadata.roles[3] = raidlab_md::ondisk::Role::Spare;
    }
    all.truncate(3);
    all[2].metadata.recovery_offset = Some(256);
    let array = one(&all);
    assert_eq!(short(&array.read_only.verdict), "degraded 2,3", "{:?}", array.read_only.verdict);
    assert!(readable(&array).iter().all(|&here| here));
    // Less than what has been moved is not enough.
    all[2].metadata.recovery_offset = Some(255);
    assert_eq!(short(&one(&all).read_only.verdict), "needs Partial");
}
