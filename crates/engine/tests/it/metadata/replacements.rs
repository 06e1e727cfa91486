//! Replacements that come, take over and are lost: event counts and contents of the superblocks.

use std::collections::BTreeMap;

use md::ondisk::Role;
use md::ondisk::superblock::{ArrayState, DeviceState};
use md::{Level, MemberIdx};
use raidlab_engine::{
    ControlEvent, DeviceNumber, MemberError, MemberFlags, MetadataConfig, MetadataInput,
};

use super::harness::{Harness, SECOND, config};

/// Two members, and a replacement for each: devices 2 and 3, up to this sector in sync.
fn both_replaced(from: u64) -> MetadataConfig {
    let mut config = config(Level::Raid1, 2, 2);
    for (at, slot) in [(2, 0), (3, 1)] {
        config.devices[at].slot = Some(MemberIdx(slot));
        config.devices[at].replaces = true;
        let state = DeviceState::new(Role::Slot(slot));
        let recovery_offset = Some(from);
        config.state.devices[at] =
            Some(DeviceState { replacement: true, recovery_offset, ..state });
    }
    config.found = config.state.clone();
    config
}

fn replace(harness: &mut Harness, number: u32, slot: u16) {
    let (number, member, flags) = (DeviceNumber(number), MemberIdx(slot), MemberFlags::default());
    harness.tell(MetadataInput::Replace { number, member, flags });
}

/// All of the replacement at this place is in sync up to this sector.
fn copied(harness: &mut Harness, place: u16, position: u64) {
    harness.manager.rebuilds();
    let member = Some(MemberIdx(place));
    // The number of the last run is not public: reports of others are ignored.
    let at = |run| MetadataInput::RebuildAt { run, member, position, stalled: None };
    harness.tell_all((1..10).map(at).chain([MetadataInput::Checkpoint]).collect());
}

/// Device 2 takes over, and device 3 is lost while it does. Returns the lowest count written since.
fn lost_while_another_takes_over(harness: &mut Harness) -> u64 {
    copied(harness, 2, 1024);
    assert_eq!(harness.out(), "FFFF");
    (0..4).for_each(|_| harness.finish(0, Ok(())));
    assert_eq!(harness.out(), "S", "the replacement is first");
    harness.tell(MetadataInput::CancelReplacement { member: MemberIdx(1) });
    let mut contents: BTreeMap<u64, ArrayState> = BTreeMap::new();
    let mut lowest = u64::MAX;
    while !harness.pending.is_empty() {
        let events = harness.pending[0].superblock().map(|state| state.events);
        lowest = lowest.min(events.unwrap_or(u64::MAX));
        harness.finish(0, Ok(()));
        for (device, state) in &harness.superblocks {
            let first = contents.entry(state.events).or_insert_with(|| state.clone());
            assert_eq!(first, state, "device {device}: one count, other contents");
        }
    }
    assert_eq!(harness.superblocks[&2].devices[3], Some(DeviceState::new(Role::Faulty)));
    lowest
}

#[test]
fn a_replacement_lost_while_another_takes_over_takes_no_count_back() {
    let mut harness = Harness::new(both_replaced(512));
    harness.ask(0, 1);
    harness.run();
    for position in [600, 700, 800] {
        copied(&mut harness, 3, position);
        harness.run();
    }
    assert_eq!(harness.events(), [14; 4]);
    assert_eq!(lost_while_another_takes_over(&mut harness), 15, "not what the start found");
}

#[test]
fn a_replacement_lost_while_another_takes_over_gives_no_other_contents_to_a_count() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 0));
    for (number, slot) in [(2, 0), (3, 1)] {
        replace(&mut harness, number, slot);
        harness.event(ControlEvent::RebuildBegan { member: MemberIdx(2 + slot) });
    }
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.events(), [11; 4]);
    assert_eq!(lost_while_another_takes_over(&mut harness), 12);
}

#[test]
fn a_replacement_bound_after_a_count_went_back_gets_the_update_that_lists_it() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 0));
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.events(), [11; 2]);
    replace(&mut harness, 2, 0);
    harness.release(0, 1);
    harness.run();
    assert_eq!(harness.events(), [10; 2]);
    harness.event(ControlEvent::RebuildBegan { member: MemberIdx(2) });
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.events(), [11; 3]);
}

#[test]
fn a_replacement_lost_without_room_to_take_over_leaves_the_slot_to_its_member() {
    let mut harness = Harness::new(both_replaced(512));
    harness.ask(0, 1);
    harness.run();
    copied(&mut harness, 2, 1024);
    (0..4).for_each(|_| harness.finish(0, Ok(())));
    assert_eq!(harness.out(), "S", "the replacement is first");
    harness.finish(0, Err(MemberError::NoSpace));
    harness.tell(MetadataInput::CancelReplacement { member: MemberIdx(0) });
    harness.now += 2 * SECOND;
    harness.tell(MetadataInput::Timer);
    assert_ne!(harness.out(), "");
    while !harness.pending.is_empty() {
        harness.finish(0, Ok(()));
        let members = harness.superblocks.values().map(|state| state.devices[0].clone());
        let expected = Some(DeviceState::new(Role::Slot(0)));
        members.for_each(|member| assert_eq!(member, expected, "it has everything"));
    }
    assert_eq!(harness.superblocks[&1].devices[2], Some(DeviceState::new(Role::Faulty)));
}
