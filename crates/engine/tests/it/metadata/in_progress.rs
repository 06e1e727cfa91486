//! What happens while metadata writes are in progress: failures, and losses of redundancy.

use md::{Level, MemberIdx};
use raidlab_engine::{ControlEvent, MemberError, MetadataConfig, MetadataEffect, MetadataInput};

use super::harness::{Harness, config, with_bitmap};

#[test]
fn a_lost_device_is_not_waited_for() {
    let mut harness = Harness::new(config(Level::Raid5, 3, 0));
    harness.ask(0, 1);
    assert_eq!(harness.out(), "SSS");
    harness.finish(0, Ok(()));
    harness.finish(0, Ok(()));
    assert_eq!(harness.granted(), 0);
    // The write to device 2 never returns, until a shard or an administrator fails the device.
    harness.fail(2, 1);
    let hung = harness.pending.remove(0);
    harness.run();
    assert!(harness.recorded());
    assert_eq!((harness.granted(), harness.events()), (1, vec![13, 13]));
    // It returns after all: the device is stale.
    assert_eq!(hung.superblock().expect("one").events, 11);
    harness.tell(MetadataInput::MetaDone { token: hung.token, result: Ok(()) });
    harness.release(0, 1);
    harness.tell(MetadataInput::Stop);
    harness.run();
    assert_eq!(harness.others.last(), Some(&MetadataEffect::Stopped { clean: true }));
    assert!(harness.pending.is_empty() && !harness.superblocks.contains_key(&2));
}

#[test]
fn a_device_that_hangs_in_a_flush_or_a_page_is_not_waited_for_either() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 3, 0)));
    harness.ask(5, 1);
    harness.run();
    harness.ask(6, 1);
    assert_eq!(harness.out(), "BBB");
    harness.finish(2, Ok(()));
    harness.finish(1, Ok(()));
    harness.fail(0, 1);
    harness.pending.remove(0);
    harness.run();
    assert_eq!(harness.granted(), 2);
    harness.release(5, 1);
    harness.release(6, 1);
    assert_eq!(harness.out(), "FF");
    harness.finish(1, Ok(()));
    harness.fail(1, 2);
    harness.pending.remove(0);
    harness.run();
    assert_eq!(harness.out(), "");
    assert_eq!(harness.superblocks[&2].resync_offset, None, "clean, on the only member left");
}

#[test]
fn a_long_superblock_of_a_lost_device_is_waited_for() {
    let mut harness =
        Harness::new(MetadataConfig { superblocks_in_turn: true, ..config(Level::Raid6, 5, 0) });
    harness.ask(0, 1);
    harness.fail(0, 1);
    assert_eq!(harness.out(), "S", "it may be torn, and no other may be then");
    assert_eq!(harness.pending[0].device, 0);
    harness.finish(0, Err(MemberError::Gone));
    assert_eq!((harness.out().as_str(), harness.pending[0].device), ("S", 1));
    harness.run();
    assert!(harness.recorded() && harness.granted() == 1);
}

#[test]
fn a_flush_that_fails_while_the_array_is_being_marked_clean_is_never_called_clean() {
    let mut config = config(Level::Raid1, 2, 0);
    config.devices.remove(1);
    let mut harness = Harness::new(with_bitmap(config));
    harness.ask(5, 1);
    harness.run();
    harness.release(5, 1);
    assert_eq!(harness.out(), "F");
    harness.finish(0, Ok(()));
    assert_eq!(harness.out(), "B", "the header, before the superblocks");
    harness.event(ControlEvent::NotDurable { member: MemberIdx(0) });
    while !harness.pending.is_empty() {
        harness.finish(0, Ok(()));
        assert_eq!(harness.superblocks[&0].resync_offset, Some(0));
    }
    assert!((0..128).all(|bit| harness.bit(0, bit)));
}

#[test]
fn bits_that_are_being_cleared_are_set_again_when_their_data_are_lost() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    harness.ask(7, 1);
    harness.ask(8, 1);
    harness.run();
    harness.release(7, 1);
    for _ in 0..3 {
        harness.now = harness.timer.take().expect("the daemon ticks");
        harness.tell(MetadataInput::Timer);
    }
    for _ in 0..4 {
        harness.finish(0, Ok(()));
    }
    assert_eq!(harness.out(), "BB", "bit 7 is being cleared");
    // A flush fails on both members: one is lost, the other must stay.
    harness.fail(0, 1);
    harness.event(ControlEvent::NotDurable { member: MemberIdx(1) });
    harness.run();
    assert!((0..128).all(|bit| harness.bit(1, bit)));
    assert!(harness.recorded());
}
