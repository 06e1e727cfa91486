//! Who belongs to an array, and as what.

use super::support::*;
use raidlab_md::MemberIdx;
use raidlab_md::assemble::{Array, MemberState, Options, Software, Verdict, assemble};
use raidlab_md::ondisk::{Role, Uuid, Version};

#[test]
fn arrays_are_distinguished_and_floating_spares_belong_to_none() {
    let mut all = raid5(3);
    let mut other = members(1, 0, 2);
    other.iter_mut().for_each(|one| one.metadata.set_uuid = Uuid([9; 16]));
    all.insert(1, other[0].clone());
    all.push(other[1].clone());
    let mut floating = other[1].clone();
    floating.metadata.set_uuid = Uuid([0; 16]);
    all.push(floating);
    let found = assemble(&all, &Options::default());
    assert_eq!(found.floating_spares, [5]);
    let indices = |array: usize| {
        found.arrays[array].members.iter().map(|member| member.candidate).collect::<Vec<_>>()
    };
    assert_eq!((indices(0), indices(1)), (vec![0, 2, 3], vec![1, 4]));
    assert!(found.arrays.iter().all(|array| both(array) == ["run", "run"]));
}

#[test]
fn one_update_behind_is_fresh_and_two_are_stale() {
    for (behind, fresh) in [(0, true), (1, true), (2, false), (30, false)] {
        let mut all = raid5(3);
        all[1].metadata.events -= behind;
        let array = one(&all);
        let expected = match fresh {
            true => MemberState::Active(MemberIdx(1)),
            false => MemberState::Stale { slot: Some(MemberIdx(1)), events_behind: behind },
        };
        assert_eq!(state_of(&array, 1), &expected);
        assert_eq!(array.missing.is_empty(), fresh);
        let verdict = if fresh { "run" } else { "degraded 1" };
        assert_eq!(both(&array), [verdict, verdict]);
        assert_eq!(array.read_only.slots[1].is_some(), fresh, "stale data is not used unasked");
    }
}

#[test]
fn roles_come_from_the_freshest_superblock() {
    let mut all = raid5(3);
    // One behind, and failed since: its own superblock does not record it.
    all[2].metadata.events -= 1;
    all[0].metadata.roles[2] = Role::Faulty;
    all[1].metadata.roles[2] = Role::Faulty;
    let array = one(&all);
    assert_eq!(state_of(&array, 2), &MemberState::Faulty);
    assert_eq!(why(&array, 2), "disk2 is marked faulty by disk0, the freshest.");
    assert_eq!(both(&array), ["degraded 2", "degraded 2"]);
    // Removed.
    all[0].metadata.roles[2] = Role::Spare;
    all[1].metadata.roles[2] = Role::Spare;
    let array = one(&all);
    assert_eq!(state_of(&array, 2), &MemberState::Spare);
    assert!(why(&array, 2).contains("has removed it"));
    // It may be rebuilt, then.
    let recovery = array.read_write.repairs.recoveries[0];
    assert_eq!((recovery.slot, recovery.candidate, recovery.from), (MemberIdx(2), 2, 0));
}

#[test]
fn spares_need_no_events_and_define_nothing() {
    let mut all = raid5(3);
    let spare = add(&mut all, "spare", Role::Spare);
    for events in [1, 49, 50, 99] {
        all[spare].metadata.events = events;
        let array = one(&all);
        assert_eq!(state_of(&array, spare), &MemberState::Spare, "{events}");
        assert_eq!(array.defining, 0);
        assert_eq!(both(&array), ["run", "run"]);
    }
    // Alone it is no array.
    let array = one(&all[spare..]);
    assert_eq!(both(&array), ["refused", "refused"]);
    assert!(array.shape.unwrap_err().to_string().contains("only spares"));
}

#[test]
fn what_the_kernel_compares_makes_a_member_foreign() {
    type Change = fn(&mut raidlab_md::assemble::Candidate);
    let table: [(Change, &str); 4] = [
        (|one| one.metadata.chunk_sectors = 64, "its chunk is 64 and not 128"),
        (|one| one.metadata.level = 6, "its level is 6 and not 5"),
        (|one| one.metadata.layout = 0, "its layout is 0 and not 2"),
        (|one| one.metadata.version = Version::V1_1, "its metadata version is 1.1 and not 1.2"),
    ];
    for (change, expected) in table {
        let mut all = raid5(3);
        change(&mut all[1]);
        all[1].metadata.data_offset = 2048;
        let array = one(&all);
        assert_eq!(state_of(&array, 1), &MemberState::Foreign { differs: expected.to_string() });
        assert_eq!(both(&array), ["degraded 1", "degraded 1"]);
    }
}

#[test]
fn fields_that_only_mdadm_compares_are_reported_but_ignored() {
    let mut all = raid5(3);
    all[1].metadata.created.seconds += 1;
    let array = one(&all);
    assert_eq!(both(&array), ["run", "run"]);
    let note = &array.other_verdicts[0];
    assert_eq!(note.by, Software::Mdadm);
    assert!(note.what.contains("disk1 does not match, the creation time"), "{}", note.what);
    // 0.90: the kernel compares it as well.
    for one in &mut all {
        one.metadata.version = Version::V0_90;
        (one.metadata.data_offset, one.metadata.super_sector) = (0, 3200);
    }
    assert!(matches!(state_of(&one(&all), 1), MemberState::Foreign { .. }));
}

#[test]
fn of_two_with_one_number_the_fresher_is_used() {
    let mut all = raid5(3);
    let mut copy = all[1].clone();
    copy.label = "copy".into();
    copy.metadata.events -= 7;
    all.insert(0, copy);
    let array = one(&all);
    assert_eq!(state_of(&array, 0), &MemberState::Duplicate { of: 2 });
    assert!(why(&array, 0).contains("copy and disk1 are both device number 1"));
    assert_eq!(both(&array), ["run", "run"]);
    // Equally fresh: the first.
    all[0].metadata.events += 7;
    let array = one(&all);
    assert_eq!(state_of(&array, 2), &MemberState::Duplicate { of: 0 });
    // Two numbers for one slot, without a replacement.
    let mut all = raid5(3);
    let other = add(&mut all, "other", Role::Slot(1));
    assert_eq!(state_of(&one(&all), other), &MemberState::Duplicate { of: 1 });
}

#[test]
fn a_wrong_checksum_is_accepted_only_on_request() {
    let mut all = raid5(3);
    all[0].checksum_ok = false;
    all[0].metadata.events = 900;
    let array = one(&all);
    assert_eq!(state_of(&array, 0), &MemberState::Unusable);
    assert_eq!((array.defining, both(&array)[0].as_str()), (1, "degraded 0"));
    let options = Options { ignore_checksums: true, ..Options::default() };
    all[0].metadata.events = 50;
    let array = one_with(&all, &options);
    assert_eq!(both(&array), ["run", "run"]);
    assert_eq!(array.other_verdicts[0].by, Software::Kernel);
}

#[test]
fn data_over_the_superblock_is_refused() {
    let mut all = raid5(3);
    all[1].metadata.data_offset = 8;
    assert!(why(&one(&all), 1).contains("inside of its superblock"));
    let mut all = raid5(3);
    for one in &mut all {
        one.metadata.version = Version::V1_0;
        (one.metadata.data_offset, one.metadata.super_sector) = (0, USED);
    }
    assert_eq!(both(&one(&all)), ["run", "run"]);
    all[1].metadata.super_sector -= 8;
    assert!(why(&one(&all), 1).contains("behind its superblock"));
    let mut all = raid5(3);
    all[1].metadata.data_sectors -= 1;
    assert!(why(&one(&all), 1).contains("the array uses 1280 sectors of it"));
}

#[test]
fn halves_that_ran_apart_are_not_joined_in_silence() {
    let mut all = members(1, 0, 2);
    all[0].metadata.roles[1] = Role::Faulty;
    all[1].metadata.roles[0] = Role::Faulty;
    for (events, first) in [([50, 60], 1), ([80, 60], 0)] {
        (all[0].metadata.events, all[1].metadata.events) = (events[0], events[1]);
        let array = one(&all);
        assert!(array.split);
        assert_eq!(array.defining, first);
        let lost = format!("degraded {}", 1 - first);
        assert_eq!(both(&array), ["needs Force".to_string(), lost.clone()], "{events:?}");
        let used = array.read_only.slots.iter().flatten().map(|source| source.candidate);
        assert_eq!(used.collect::<Vec<_>>(), [first]);
        assert_eq!(short(&one_with(&all, &force()).read_write.verdict), lost);
        // Named alone, it is just degraded.
        let alone = one(&all[1..]);
        assert_eq!((alone.split, both(&alone)[0].as_str()), (false, "degraded 0"));
    }
    // As fresh as each other: no side is chosen by the order of the members.
    all.iter_mut().for_each(|one| one.metadata.events = 50);
    for _ in 0..2 {
        let array = one_with(&all, &force());
        assert_eq!(both(&array), ["refused", "refused"]);
        let Verdict::Refused { why } = &array.read_only.verdict else { unreachable!() };
        assert!(
            why.contains("name only its members: only disk0, or only disk1")
                || why.contains("only disk1, or only disk0"),
            "{why}"
        );
        all.reverse();
    }
}

#[test]
fn a_member_that_was_left_behind_is_no_half_when_the_one_that_it_knows_is_missing() {
    // Disk 1 failed first. Device 3 has its slot since, and device 4 that of disk 2.
    let mut all = raid5(3);
    all[1].metadata.events -= 5;
    let later = [Role::Slot(0), Role::Faulty, Role::Faulty, Role::Slot(1), Role::Slot(2)];
    for (at, slot) in [(0, 0), (2, 2)] {
        all[at].metadata.roles = later.to_vec();
        all[at].metadata.role = Role::Slot(slot);
    }
    let mut new = all[0].clone();
    (new.label, new.metadata.dev_number, new.metadata.role) = ("new1".into(), 3, Role::Slot(1));
    new.metadata.device_uuid = Some(Uuid([0x31; 16]));
    (all[2].label, all[2].metadata.dev_number) = ("new2".into(), 4);
    all[2].metadata.device_uuid = Some(Uuid([0x32; 16]));
    all.push(new);
    assert_eq!(both(&one(&all)), ["run", "run"]);
    // Without disk 0 nothing that is there is on its list.
    let without = &all[1..];
    let array = one(without);
    assert_eq!((array.split, both(&array)[0].as_str()), (false, "degraded 0"));
    // It has run alone with disk 0: that is another half.
    let mut all = all.clone();
    all[1].metadata.roles[2] = Role::Faulty;
    all[2].metadata.roles[0] = Role::Faulty;
    all[3].metadata.roles[0] = Role::Faulty;
    assert!(one(&all[1..]).split);
}

#[test]
fn a_number_that_was_no_first_member_before_the_array_grew_proves_no_history() {
    // Four slots now, of devices 4 to 6 and of a device 3 that is not there. The stale one is of a
    // time with three slots: its device 3 was a replacement, whose number may be another one's now.
    let mut all = raid5(4);
    let now = [Role::Faulty, Role::Faulty, Role::Faulty, Role::Slot(1), Role::Slot(0)];
    let now: Vec<Role> = now.into_iter().chain([Role::Slot(2), Role::Slot(3)]).collect();
    for (at, (number, slot)) in [(4, 0), (5, 2), (6, 3)].into_iter().enumerate() {
        let it = &mut all[at + 1].metadata;
        (it.dev_number, it.role, it.roles) = (number, Role::Slot(slot), now.clone());
        it.device_uuid = Some(Uuid([0x40 + number as u8; 16]));
    }
    let stale = &mut all[0].metadata;
    stale.events -= 5;
    stale.raid_disks = 3;
    stale.roles = vec![Role::Slot(0), Role::Faulty, Role::Faulty, Role::Slot(1)];
    assert!(one(&all).split);
    // With as many slots then as now it is the same device.
    all[0].metadata.raid_disks = 4;
    assert!(!one(&all).split);
}

/// Every place for the odd one out: `all` in each rotation.
fn rotations(all: &[raidlab_md::assemble::Candidate]) -> Vec<Vec<raidlab_md::assemble::Candidate>> {
    let turned = |by| {
        let mut turned = all.to_vec();
        turned.rotate_left(by);
        turned
    };
    (0..all.len()).map(turned).collect()
}

fn find<'a>(
    array: &'a Array,
    all: &[raidlab_md::assemble::Candidate],
    label: &str,
) -> &'a MemberState {
    state_of(array, all.iter().position(|one| one.label == label).unwrap())
}

#[test]
fn the_description_of_most_members_is_used_in_any_order() {
    type Change = fn(&mut raidlab_md::ondisk::MemberMetadata);
    let table: [(Change, &str); 7] = [
        (|one| one.raid_disks = 4, "its number of slots is 4 and not 5"),
        (|one| one.layout = 0, "its layout is 0 and not 2"),
        (|one| one.chunk_sectors = 256, "its chunk is 256 and not 128"),
        (|one| one.used_sectors = 1152, "its used size is 1152 and not 1280"),
        (|one| one.roles[0] = Role::Slot(1), "its role of device 0 is slot 1 and not slot 0"),
        (|one| one.roles[3] = Role::Faulty, "its role of device 3 is faulty and not slot 3"),
        (|one| one.has_journal = true, "its journal is there and not missing"),
    ];
    for (change, differs) in table {
        for odd in 0..5 {
            let mut all = raid5(5);
            change(&mut all[odd].metadata);
            let label = all[odd].label.clone();
            for all in rotations(&all) {
                let array = one(&all);
                let foreign = MemberState::Foreign { differs: differs.to_string() };
                assert_eq!(find(&array, &all, &label), &foreign, "{differs}");
                assert_eq!(short(&array.read_only.verdict), format!("degraded {odd}"));
                assert_eq!(array.contradictions.len(), 1, "{:?}", array.contradictions);
                assert!(array.contradictions[0].contains(differs), "{:?}", array.contradictions);
            }
        }
    }
    // What changes nothing that is read is said, and leaves no member out.
    let harmless: [Change; 2] =
        [|one| one.name = "other".into(), |one| one.resync_offset = Some(0)];
    for change in harmless {
        let mut all = raid5(3);
        change(&mut all[0].metadata);
        for all in rotations(&all) {
            let array = one(&all);
            assert_eq!(both(&array), ["run", "run"]);
            assert_eq!(array.contradictions.len(), 1, "{:?}", array.contradictions);
        }
    }
}

#[test]
fn a_tie_is_refused_with_the_choices() {
    let mut all = members(0, 1, 2);
    all[0].metadata.chunk_sectors = 64;
    for all in rotations(&all) {
        let array = one_with(&all, &Options { partial: true, force: true, ..Options::default() });
        assert_eq!(both(&array), ["refused", "refused"]);
        let Verdict::Refused { why } = &array.read_only.verdict else { unreachable!() };
        assert!(why.contains("its chunk is ") && why.contains("name only disk"), "{why}");
    }
    // Of five, two against three: the three.
    let mut all = raid5(5);
    all[1].metadata.used_sectors -= 128;
    all[4].metadata.used_sectors -= 128;
    let array = one(&all);
    assert_eq!(array.contradictions.len(), 2);
    assert_eq!(short(&array.read_only.verdict), "needs Partial");
}

#[test]
fn of_two_equally_fresh_members_for_one_place_neither_is_used() {
    let mut all = raid5(4);
    all[2].metadata.dev_number = 1;
    for all in rotations(&all) {
        let array = one(&all);
        assert_eq!(both(&array), ["refused", "refused"]);
        let Verdict::Refused { why } = &array.read_only.verdict else { unreachable!() };
        assert!(why.contains("name only one of them"), "{why}");
        for label in ["disk1", "disk2"] {
            assert!(matches!(find(&array, &all, label), MemberState::Duplicate { .. }));
        }
    }
    // With enough redundancy the array is read without both, and that is said.
    let mut all = members(6, 2, 5);
    all[2].metadata.dev_number = 1;
    for all in rotations(&all) {
        let array = one(&all);
        assert_eq!(short(&array.read_only.verdict), "degraded 1,2");
        assert_eq!(array.contradictions.len(), 1);
    }
}

#[test]
fn a_member_is_what_its_own_superblock_makes_it_too() {
    for own in [Role::Spare, Role::Faulty] {
        // Its number has been given to another device since: what it holds is old.
        let mut all = raid5(3);
        all[2].metadata.role = own;
        all[2].metadata.roles[2] = own;
        all[2].metadata.events = 3;
        let array = one(&all);
        assert_eq!(state_of(&array, 2), &MemberState::Stale { slot: None, events_behind: 47 });
        assert!(why(&array, 2).contains("missed 47 updates"), "{}", why(&array, 2));
        let options = Options { ignore_events: true, ..Options::default() };
        assert_eq!(short(&one_with(&all, &options).read_only.verdict), "degraded 2");
        // As fresh as the others: a contradiction.
        for events in [49, 50] {
            all[2].metadata.events = events;
            let array = one(&all);
            assert!(matches!(state_of(&array, 2), MemberState::Foreign { .. }), "{array:?}");
            assert_eq!(short(&array.read_only.verdict), "degraded 2");
            assert_eq!(array.contradictions.len(), 1);
        }
    }
}

#[test]
fn an_order_against_the_superblocks_is_reported() {
    let all = raid5(3);
    let order = |order: [usize; 3]| {
        let order = Some(order.map(Some).to_vec());
        one_with(&all, &Options { order, ..Options::default() })
    };
    assert_eq!(order([0, 1, 2]).contradictions, [""; 0]);
    let said = order([1, 0, 2]).contradictions;
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("puts disk") && said[0].contains("if they are right"), "{said:?}");
}

#[test]
fn an_explicit_order_overrides_the_roles() {
    let mut all = raid5(3);
    let order = Some(vec![Some(2), None, Some(0)]);
    let array = one_with(&all, &Options { order: order.clone(), ..Options::default() });
    assert_eq!(state_of(&array, 2), &MemberState::Active(MemberIdx(0)));
    assert_eq!(state_of(&array, 0), &MemberState::Active(MemberIdx(2)));
    assert_eq!(state_of(&array, 1), &MemberState::Unusable);
    assert_eq!(both(&array), ["degraded 1", "degraded 1"]);
    // Also of superblocks that have lost their role.
    all.iter_mut().for_each(|one| one.metadata.role = Role::Spare);
    let array = one_with(&all, &Options { order, ..Options::default() });
    assert_eq!(both(&array), ["degraded 1", "degraded 1"]);
}
