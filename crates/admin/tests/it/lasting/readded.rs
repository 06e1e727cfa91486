//! Former members that get their slots again: with a bitmap that covers what they missed, only that
//! is rebuilt; without the proof, all of it.

use std::time::{Duration, Instant};

use array::{Array, BackgroundWork, Driver, DriverOptions, MemberFlags};
use host::Access;
use md::assemble::{MemberState, Options};
use md::create::BitmapOption;
use md::ondisk::Version;
use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_admin::{NewDevices, RebuildingMember, StartError, StartOptions, start_replacing};
use testkit::shards;

use super::support::{Members, contents, decide, pattern, small, wait_for};

/// The array without the devices of `out`; those of `add` are put into empty slots, write-mostly.
fn started(members: &Members, out: &[usize], add: &[usize]) -> (Vec<Driver>, RebuildingMembers) {
    try_started(members, out, add).expect("it starts")
}

fn try_started(
    members: &Members,
    out: &[usize],
    add: &[usize],
) -> Result<(Vec<Driver>, RebuildingMembers), StartError> {
    let mut opened = members.opened(Access::ReadWrite);
    let mut number = 0;
    opened.retain(|_| {
        number += 1;
        !out.contains(&(number - 1))
    });
    let array = decide(&opened, &Options::default());
    let add: Vec<_> = add.iter().map(|at| members.device(*at, Access::ReadWrite)).collect();
    let driver = DriverOptions { shards: shards(), shard_unit_sectors: 64, ..small() };
    let options = StartOptions { driver, ..StartOptions::default() };
    let flags = MemberFlags { write_mostly: true, failfast: false };
    let new = NewDevices { add: &add, flags, ..NewDevices::default() };
    start_replacing(&array, &opened, &new, &options)
}

pub type RebuildingMembers = Vec<RebuildingMember>;

pub fn run(members: &Members, out: &[usize], add: &[usize]) -> (Array, RebuildingMembers) {
    let (shards, rebuilding) = started(members, out, add);
    (Array::run_shards(shards).expect("threads"), rebuilding)
}

pub fn created(level: Level, layout: Option<Layout>, version: Version, count: usize) -> Members {
    let all = Members::new(count);
    all.create(level, |request| {
        request.version = version;
        request.layout = layout.or(request.layout);
        request.bitmap = BitmapOption::Internal { chunk_bytes: Some(65536) };
        request.assume_clean = true;
    });
    all
}

fn is_active(members: &Members, slot: usize) -> bool {
    let opened = members.opened(Access::ReadOnly);
    let found = decide(&opened, &Options::default());
    let active = MemberState::Active(MemberIdx(slot as u16));
    found.members.iter().any(|member| member.candidate == slot && member.state == active)
}

#[test]
fn a_former_member_gets_what_it_missed_and_no_more() {
    let raid10 = |layout| Some(Layout::Raid10(layout));
    for (level, layout, version, count) in [
        (Level::Raid1, None, Version::V1_2, 2),
        (Level::Raid5, None, Version::V1_2, 3),
        (Level::Raid6, None, Version::V1_0, 5),
        (Level::Raid10, raid10(Raid10Layout::near(2)), Version::V1_2, 4),
        (Level::Raid10, raid10(Raid10Layout::far(2)), Version::V1_1, 3),
        (Level::Raid10, raid10(Raid10Layout::offset(2)), Version::V1_2, 4),
    ] {
        let context = format!("{level} {layout:?} {version}");
        let members = created(level, layout, version, count);
        let (array, _) = run(&members, &[], &[]);
        let mut expected = pattern(11, array.len_bytes() as usize);
        array.write_at(&expected, 0).expect("written");
        array.stop().expect("stopped clean");

        let (array, _) = run(&members, &[1], &[]);
        for (seed, at) in (20..).zip([0, 600_064, 601_088, 3 << 20]) {
            let data = pattern(seed, 8192);
            array.write_at(&data, at as u64).expect("written");
            expected[at..at + data.len()].copy_from_slice(&data);
        }
        array.stop().expect("stopped clean");

        let (array, rebuilding) = run(&members, &[1], &[1]);
        let [RebuildingMember { slot: MemberIdx(1), by_bitmap: true, lacking, .. }] =
            rebuilding[..]
        else {
            panic!("{context}: {rebuilding:?}")
        };
        // Four writes, at most two bits each, of 128 sectors.
        assert!((1..=8 * 128).contains(&lacking), "{context}: {lacking}");
        // Beside a load.
        for (seed, at) in (40..).zip([2048, 610_304, 2 << 20]) {
            let data = pattern(seed, 4096);
            array.write_at(&data, at as u64).expect("written");
            expected[at..at + data.len()].copy_from_slice(&data);
        }
        wait_for(&array, &context, |status| status.degraded == 0 && status.rebuilding.is_empty());
        array.stop().expect("stopped clean");
        assert!(is_active(&members, 1), "{context}");
        let opened = members.opened(Access::ReadOnly);
        let marked: Vec<bool> =
            opened.iter().map(|it| it.superblock.metadata().write_mostly).collect();
        assert_eq!(marked, (0..count).map(|at| at == 1).collect::<Vec<_>>(), "{context}");
        drop(opened);
        assert!(contents(&members, &[0]) == expected, "{context}");
        assert!(contents(&members, &[]) == expected, "{context}");
    }
}

#[test]
fn a_crash_in_the_middle_continues_by_the_bitmap() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid10, 4)] {
        let members = created(level, None, Version::V1_2, count);
        let (array, _) = run(&members, &[], &[]);
        let mut expected = pattern(5, array.len_bytes() as usize);
        array.write_at(&expected, 0).expect("written");
        array.stop().expect("stopped clean");
        let (array, _) = run(&members, &[1], &[]);
        let half = expected.len() / 2;
        let data = pattern(6, half);
        array.write_at(&data, 0).expect("written");
        expected[..half].copy_from_slice(&data);
        array.stop().expect("stopped clean");
        // The first write has the superblocks written; then no more.
        let (mut shards, _) = started(&members, &[1], &[1]);
        shards[0].pause_background(BackgroundWork::Rebuild, true);
        let array = Array::run_shards(shards).expect("threads");
        array.write_at(&expected[..4096], 0).expect("written");
        drop(array);
        let (mut shards, rebuilding) = started(&members, &[], &[]);
        let [RebuildingMember { by_bitmap: true, lacking, .. }] = rebuilding[..] else {
            panic!("{rebuilding:?}")
        };
        let used = shards[0].geometry().member_used_sectors(MemberIdx(1));
        assert!(lacking > 0 && lacking < used * 3 / 4, "{lacking} of {used}");
        let (start, mut none) = (Instant::now(), Vec::new());
        while shards.iter().any(|shard| !shard.lacking().is_empty()) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", shards[0].metadata());
            shards.iter_mut().for_each(|shard| {
                shard.poll(&mut none);
                shard.wait(Duration::from_millis(1), None);
            });
        }
        Array::run_shards(shards).expect("threads").stop().expect("stopped clean");
        assert!(contents(&members, &[0]) == expected, "{level}");
    }
}

#[test]
fn a_member_that_missed_nothing_is_in_sync_at_once() {
    let members = created(Level::Raid1, None, Version::V1_2, 2);
    let (array, _) = run(&members, &[], &[]);
    let expected = pattern(5, array.len_bytes() as usize);
    array.write_at(&expected, 0).expect("written");
    array.fail_member(MemberIdx(1));
    wait_for(&array, "its loss is recorded", |status| status.degraded == 1);
    array.stop().expect("stopped clean");
    let (array, rebuilding) = run(&members, &[1], &[1]);
    assert!(rebuilding[0].by_bitmap, "{rebuilding:?}");
    wait_for(&array, "it is in sync", |status| status.degraded == 0);
    array.stop().expect("stopped clean");
    assert!(contents(&members, &[0]) == expected);
}

#[test]
fn a_member_that_ran_alone_is_rebuilt_whole() {
    let members = created(Level::Raid1, None, Version::V1_2, 2);
    let (array, _) = run(&members, &[], &[]);
    let mut expected = pattern(5, array.len_bytes() as usize);
    array.write_at(&expected, 0).expect("written");
    array.stop().expect("stopped clean");
    // Each has data that the other lacks, where the other's bitmap has no bit.
    let (array, _) = run(&members, &[0], &[]);
    array.write_at(&pattern(8, 8192), 1 << 20).expect("written");
    array.stop().expect("stopped clean");
    for seed in 9..12 {
        let (array, _) = run(&members, &[1], &[]);
        let data = pattern(seed, 8192);
        array.write_at(&data, 2 << 20).expect("written");
        expected[2 << 20..][..8192].copy_from_slice(&data);
        array.stop().expect("stopped clean");
    }
    let (array, rebuilding) = run(&members, &[1], &[1]);
    assert!(!rebuilding[0].by_bitmap, "{rebuilding:?}");
    wait_for(&array, "it is rebuilt", |status| status.degraded == 0);
    array.stop().expect("stopped clean");
    assert!(contents(&members, &[0]) == expected);
}

#[test]
fn without_a_bitmap_or_in_another_slot_a_former_member_is_rebuilt_whole() {
    let members = Members::new(3);
    members.create_clean(Level::Raid5);
    let (array, _) = run(&members, &[1], &[]);
    array.write_at(&pattern(8, 8192), 0).expect("written");
    array.stop().expect("stopped clean");
    let (_, rebuilding) = started(&members, &[1], &[1]);
    assert!(!rebuilding[0].by_bitmap, "{rebuilding:?}");
    // Its slot has another member by now.
    let members = Members::new(5);
    members.create(Level::Raid6, |request| {
        request.raid_devices = 4;
        request.bitmap = BitmapOption::Internal { chunk_bytes: Some(65536) };
        request.assume_clean = true;
    });
    let (array, _) = run(&members, &[1], &[]);
    array.write_at(&pattern(8, 8192), 0).expect("written");
    wait_for(&array, "the spare is in sync", |status| {
        status.degraded == 0 && status.rebuilding.is_empty()
    });
    array.stop().expect("stopped clean");
    let (array, _) = run(&members, &[1, 2], &[]);
    array.write_at(&pattern(9, 8192), 0).expect("written");
    array.stop().expect("stopped clean");
    let (_, rebuilding) = started(&members, &[1, 2], &[1]);
    let [RebuildingMember { slot: MemberIdx(2), by_bitmap: false, .. }] = rebuilding[..] else {
        panic!("{rebuilding:?}")
    };
}

#[test]
fn a_device_and_its_copy_do_not_get_two_slots() {
    let all = created(Level::Raid6, None, Version::V1_2, 4);
    let (array, _) = run(&all, &[2, 3], &[]);
    array.write_at(&pattern(8, 8192), 0).expect("written");
    array.stop().expect("stopped clean");
    // As the device by another name, which looks like another disk.
    std::fs::copy(all.path(2), all.path(4)).expect("copied");
    let members = Members { count: 5, ..all };
    let before = members.hashes();
    let refused = try_started(&members, &[2, 3, 4], &[2, 4]).map(|_| ()).expect_err("one device");
    let text = refused.to_string();
    assert!(text.contains("has the same superblock as") && text.contains("m2"), "{text}");
    assert!(members.hashes() == before, "nothing was written");
    let (_, rebuilding) = started(&members, &[2, 3, 4], &[4, 3]);
    assert_eq!(rebuilding.len(), 2);
}

testkit::repeat_in_shards! {
    a_former_member_gets_what_it_missed_and_no_more,
    a_crash_in_the_middle_continues_by_the_bitmap,
    a_member_that_missed_nothing_is_in_sync_at_once,
    a_member_that_ran_alone_is_rebuilt_whole,
    without_a_bitmap_or_in_another_slot_a_former_member_is_rebuilt_whole,
    a_device_and_its_copy_do_not_get_two_slots,
}
