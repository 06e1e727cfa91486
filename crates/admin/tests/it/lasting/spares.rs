//! Spares that take the slots of members that fail while the array runs, on devices with metadata:
//! what they hold afterwards, what is recorded, and what a crash in between leaves.

use std::time::{Duration, Instant};

use array::{Array, Driver, DriverOptions, Event};
use host::Access;
use md::assemble::{MemberState, Options};
use md::create::BitmapOption;
use md::ondisk::Version;
use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_admin::{StartOptions, start_rebuilding};
use testkit::shards;

use super::support::{Members, contents, decide, pattern, small, wait_for};

/// The array of these devices, with rebuilds.
fn started(members: &Members, without: &[usize]) -> Vec<Driver> {
    let mut opened = members.opened(Access::ReadWrite);
    let mut number = 0;
    opened.retain(|_| {
        number += 1;
        !without.contains(&(number - 1))
    });
    let array = decide(&opened, &Options::default());
    let driver = DriverOptions { shards: shards(), shard_unit_sectors: 64, ..small() };
    let options = StartOptions { driver, ..StartOptions::default() };
    start_rebuilding(&array, &opened, &[], false, &options).expect("it starts").0
}

fn created(level: Level, version: Version, bitmap: BitmapOption, members: usize) -> Members {
    let all = Members::new(members + 1);
    all.create(level, |request| {
        request.version = version;
        request.bitmap = bitmap;
        request.raid_devices = members;
        request.assume_clean = true;
        if version == Version::V0_90 {
            request.name = String::new();
        }
    });
    all
}

fn wait_in_sync(array: &Array, slot: u16) {
    let start = Instant::now();
    let is_it = |event: &Event| match event {
        Event::MemberInSync { member, .. } => member.0 == slot,
        _ => false,
    };
    while !array.take_events().iter().any(is_it) {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", array.metadata());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_spare_takes_the_slot_of_a_member_that_fails() {
    let internal = || BitmapOption::Internal { chunk_bytes: Some(65536) };
    for (level, version, bitmap, count) in [
        (Level::Raid1, Version::V1_2, BitmapOption::None, 2),
        (Level::Raid5, Version::V1_2, internal(), 3),
        (Level::Raid5, Version::V1_0, BitmapOption::None, 4),
        (Level::Raid6, Version::V1_1, internal(), 4),
        (Level::Raid6, Version::V0_90, BitmapOption::None, 5),
        (Level::Raid10, Version::V1_2, BitmapOption::None, 4),
    ] {
        let context = format!("{level} {version} {bitmap:?}");
        let members = created(level, version, bitmap, count);
        let array = Array::run_shards(started(&members, &[])).expect("threads");
        let mut expected = vec![0; array.len_bytes() as usize];
        let mut write = |at: usize, len: usize| {
            let data = pattern(at as u64 + 0x9e37_79b9, len);
            array.write_at(&data, at as u64).expect("written");
            expected[at..at + len].copy_from_slice(&data);
        };
        write(0, 4 << 20);
        array.fail_member(MemberIdx(1));
        for at in 0..64 {
            write(at * 70_000 / 512 * 512, 8192);
        }
        wait_in_sync(&array, 1);
        write(5 << 20, 1 << 20);
        wait_for(&array, "complete", |status| status.degraded == 0);
        array.stop().expect("stopped clean");
        // The spare is needed for this.
        assert!(contents(&members, &[0, 1]) == expected, "{context}");
        assert!(contents(&members, &[1]) == expected, "{context}");
        let opened = members.opened(Access::ReadOnly);
        let found = decide(&opened, &Options::default());
        let state = |at: usize| {
            let mut all = found.members.iter();
            all.find(|member| member.candidate == at).map(|member| member.state.clone())
        };
        assert_eq!(state(count), Some(MemberState::Active(MemberIdx(1))), "{context}");
        assert!(!matches!(state(1), Some(MemberState::Active(_))), "{context}: {:?}", state(1));
    }
}

#[test]
fn a_spare_that_takes_a_slot_is_used_as_its_superblock_says() {
    let members = Members::new(3);
    members.create(Level::Raid1, |request| {
        request.raid_devices = 2;
        request.assume_clean = true;
        request.devices[2].as_mut().expect("a spare").write_mostly = true;
    });
    let array = Array::run_shards(started(&members, &[])).expect("threads");
    let data = pattern(11, 1 << 20);
    array.write_at(&data, 0).expect("written");
    array.fail_member(MemberIdx(1));
    wait_in_sync(&array, 1);
    wait_for(&array, "complete", |status| status.degraded == 0);
    let reads = || array.leaf_counters()[1].reads;
    let (before, mut bytes) = (reads(), vec![0; 4096]);
    for at in (0..data.len()).step_by(4096) {
        array.read_at(&mut bytes, at as u64).expect("read");
        assert!(bytes == data[at..at + 4096]);
    }
    assert_eq!(reads(), before, "another member has the data");
    array.stop().expect("stopped clean");
    let opened = members.opened(Access::ReadOnly);
    assert!(opened[2].superblock.metadata().write_mostly);
}

#[test]
fn a_rebuild_that_a_crash_ends_goes_on_at_the_next_start() {
    let far = Layout::Raid10(Raid10Layout::far(2));
    for (level, layout, count) in
        [(Level::Raid5, None, 3), (Level::Raid1, None, 2), (Level::Raid10, Some(far), 4)]
    {
        let members = Members::new(count + 1);
        members.create(level, |request| {
            request.raid_devices = count;
            request.layout = layout.or(request.layout);
            request.assume_clean = true;
        });
        let array = Array::run_shards(started(&members, &[])).expect("threads");
        let data = pattern(7, array.len_bytes() as usize);
        array.write_at(&data, 0).expect("written");
        array.stop().expect("stopped clean");
        // Slot 1 is empty, and the spare takes it. Dropped without a stop, at some point.
        for polls in [3, 10, 40] {
            let mut shards = started(&members, &[1]);
            let mut none = Vec::new();
            for _ in 0..polls {
                shards.iter_mut().for_each(|shard| shard.poll(&mut none));
                std::thread::sleep(Duration::from_micros(200));
            }
            drop(shards);
        }
        let mut shards = started(&members, &[1]);
        let start = Instant::now();
        let mut none = Vec::new();
        while shards.iter().any(|shard| !shard.lacking().is_empty()) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", shards[0].metadata());
            shards.iter_mut().for_each(|shard| {
                shard.poll(&mut none);
                shard.wait(Duration::from_millis(1), None);
            });
        }
        let array = Array::run_shards(shards).expect("threads");
        array.stop().expect("stopped clean");
        assert!(contents(&members, &[0, 1]) == data, "{level}");
    }
}

#[test]
fn two_failures_take_two_spares_and_a_third_waits() {
    let members = Members::new(7);
    members.create(Level::Raid6, |request| {
        request.raid_devices = 5;
        request.assume_clean = true;
    });
    let array = Array::run_shards(started(&members, &[])).expect("threads");
    let data = pattern(3, array.len_bytes() as usize);
    array.write_at(&data, 0).expect("written");
    array.fail_member(MemberIdx(0));
    array.fail_member(MemberIdx(3));
    wait_for(&array, "both are rebuilt", |status| {
        status.degraded == 0 && status.rebuilding.is_empty()
    });
    array.fail_member(MemberIdx(4));
    wait_for(&array, "no spare is left", |status| status.degraded == 1);
    let mut bytes = vec![0; data.len()];
    array.read_at(&mut bytes, 0).expect("read");
    assert!(bytes == data);
    array.stop().expect("stopped clean");
    assert!(contents(&members, &[0, 3, 4]) == data);
}

testkit::repeat_in_shards! {
    a_spare_takes_the_slot_of_a_member_that_fails,
    a_spare_that_takes_a_slot_is_used_as_its_superblock_says,
    a_rebuild_that_a_crash_ends_goes_on_at_the_next_start,
    two_failures_take_two_spares_and_a_third_waits,
}
