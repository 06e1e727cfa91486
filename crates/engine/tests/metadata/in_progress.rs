//! What happens while metadata writes are in progress: failures, and losses of redundancy.

use super::*;

#[test]
fn a_lost_device_is_not_waited_for() {
    let mut desk = Desk::new(config(Level::Raid5, 3, 0));
    desk.ask(0, 1);
    assert_eq!(desk.out(), "SSS");
    desk.finish(0, Ok(()));
    desk.finish(0, Ok(()));
    assert_eq!(desk.granted(), 0);
    // The write to device 2 never returns, until a shard or an administrator fails the device.
    desk.fail(2, 1);
    let hung = desk.pending.remove(0);
    desk.run();
    assert!(desk.recorded());
    assert_eq!((desk.granted(), desk.events()), (1, vec![13, 13]));
    // It returns after all: the device is stale.
    assert_eq!(hung.superblock().expect("one").events, 11);
    desk.tell(MetadataInput::MetaDone { token: hung.token, result: Ok(()) });
    desk.release(0, 1);
    desk.tell(MetadataInput::Stop);
    desk.run();
    assert_eq!(desk.others.last(), Some(&MetadataEffect::Stopped { clean: true }));
    assert!(desk.pending.is_empty() && !desk.superblocks.contains_key(&2));
}

#[test]
fn a_device_that_hangs_in_a_flush_or_a_page_is_not_waited_for_either() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 3, 0)));
    desk.ask(5, 1);
    desk.run();
    desk.ask(6, 1);
    assert_eq!(desk.out(), "BBB");
    desk.finish(2, Ok(()));
    desk.finish(1, Ok(()));
    desk.fail(0, 1);
    desk.pending.remove(0);
    desk.run();
    assert_eq!(desk.granted(), 2);
    desk.release(5, 1);
    desk.release(6, 1);
    assert_eq!(desk.out(), "FF");
    desk.finish(1, Ok(()));
    desk.fail(1, 2);
    desk.pending.remove(0);
    desk.run();
    assert_eq!(desk.out(), "");
    assert_eq!(desk.superblocks[&2].resync_offset, None, "clean, on the only member left");
}

#[test]
fn a_long_superblock_of_a_lost_device_is_waited_for() {
    let mut desk =
        Desk::new(MetadataConfig { superblocks_in_turn: true, ..config(Level::Raid6, 5, 0) });
    desk.ask(0, 1);
    desk.fail(0, 1);
    assert_eq!(desk.out(), "S", "it may be torn, and no other may be then");
    assert_eq!(desk.pending[0].device, 0);
    desk.finish(0, Err(MemberError::Gone));
    assert_eq!((desk.out().as_str(), desk.pending[0].device), ("S", 1));
    desk.run();
    assert!(desk.recorded() && desk.granted() == 1);
}

#[test]
fn a_flush_that_fails_while_the_array_is_being_marked_clean_is_never_called_clean() {
    let mut config = config(Level::Raid1, 2, 0);
    config.devices.remove(1);
    let mut desk = Desk::new(with_bitmap(config));
    desk.ask(5, 1);
    desk.run();
    desk.release(5, 1);
    assert_eq!(desk.out(), "F");
    desk.finish(0, Ok(()));
    assert_eq!(desk.out(), "B", "the header, before the superblocks");
    desk.event(ControlEvent::NotDurable { member: MemberIdx(0) });
    while !desk.pending.is_empty() {
        desk.finish(0, Ok(()));
        assert_eq!(desk.superblocks[&0].resync_offset, Some(0));
    }
    assert!((0..128).all(|bit| desk.bit(0, bit)));
}

#[test]
fn bits_that_are_being_cleared_are_set_again_when_their_data_are_lost() {
    let mut desk = Desk::new(with_bitmap(config(Level::Raid1, 2, 0)));
    desk.ask(7, 1);
    desk.ask(8, 1);
    desk.run();
    desk.release(7, 1);
    for _ in 0..3 {
        desk.now = desk.timer.take().expect("the daemon ticks");
        desk.tell(MetadataInput::Timer);
    }
    for _ in 0..4 {
        desk.finish(0, Ok(()));
    }
    assert_eq!(desk.out(), "BB", "bit 7 is being cleared");
    // A flush fails on both members: one is lost, the other must stay.
    desk.fail(0, 1);
    desk.event(ControlEvent::NotDurable { member: MemberIdx(1) });
    desk.run();
    assert!((0..128).all(|bit| desk.bit(1, bit)));
    assert!(desk.recorded());
}
