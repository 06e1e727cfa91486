//! The write-intent bitmap: bits are set before the grant and cleared over durable data.

use md::ondisk::superblock::Policy;
use md::{Geometry, GeometrySpec, Layout, Level};
use raidlab_engine::{
    BitmapPage, ControlEvent, ManagedBitmap, MetadataConfig, MetadataEffect, MetadataInput,
};

use super::harness::{Harness, SECOND, config, with_bitmap};

#[test]
fn bitmap_header_is_never_older_than_the_superblocks() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    for round in 0..3 {
        harness.ask(round, 1);
        harness.run();
        harness.release(round, 1);
        while !harness.pending.is_empty() {
            harness.finish(0, Ok(()));
            for (device, state) in &harness.superblocks {
                let header = harness.pages[&(*device, 0)].header.expect("page 0 has it");
                assert!(header.events >= state.events, "{header:?} and {}", state.events);
            }
        }
    }
    // A header is written before superblocks with its count, by every update.
    assert_eq!(&harness.done[..12], "BBSSFFBBSSBB");
}

#[test]
fn bits_fade_after_two_idle_periods_behind_a_flush_and_never_while_degraded() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 3, 0)));
    harness.ask(5, 2);
    harness.run();
    harness.release(6, 1);
    harness.wait(10 * SECOND);
    assert!(harness.bit(0, 6), "two whole periods");
    harness.done.clear();
    harness.wait(6 * SECOND);
    assert!(!harness.bit(0, 6) && !harness.bit(2, 6) && harness.bit(1, 5));
    // The count at which bits went is durable before they go.
    assert_eq!(harness.done, "FFFBBBBBB");
    assert_eq!(harness.pages[&(0, 0)].header.expect("page 0").events_cleared, 11);
    harness.release(5, 1);
    harness.run();
    let header = harness.pages[&(0, 0)].header.expect("page 0");
    assert_eq!((harness.events(), header.events_cleared), (vec![10; 3], 10), "as md: never ahead");
    harness.fail(0, 1);
    harness.run();
    harness.wait(100 * SECOND);
    assert!(harness.bit(1, 5), "a member that comes back needs it");
    harness.tell(MetadataInput::Stop);
    harness.run();
    assert!(harness.bit(1, 5));
}

#[test]
fn bits_requested_while_being_cleared_are_set_again_before_the_grant() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    harness.ask(7, 1);
    harness.ask(8, 1);
    harness.run();
    harness.release(7, 1);
    for _ in 0..3 {
        harness.now = harness.timer.take().expect("the daemon ticks");
        harness.tell(MetadataInput::Timer);
    }
    assert_eq!(harness.out(), "FF");
    for _ in 0..4 {
        harness.finish(0, Ok(()));
    }
    assert_eq!(harness.out(), "BB", "the page without the bit");
    let granted = harness.granted();
    harness.ask(7, 1);
    harness.finish(0, Ok(()));
    assert!(harness.granted() == granted && !harness.bit(0, 7));
    harness.run();
    assert!(harness.granted() == granted + 1 && harness.bit(0, 7) && harness.bit(1, 7));
}

#[test]
fn a_bit_requested_after_it_has_faded_is_not_cleared_for_ever() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    harness.ask(7, 1);
    harness.ask(8, 1);
    harness.run();
    harness.release(7, 1);
    for _ in 0..2 {
        harness.now = harness.timer.take().expect("the daemon ticks");
        harness.tell(MetadataInput::Timer);
    }
    harness.now = harness.timer.take().expect("the daemon ticks");
    let event = ControlEvent::Intent { first_bit: 7, bits: 1 };
    harness.done.clear();
    harness.tell_all(vec![MetadataInput::FromShard { shard: 0, event }, MetadataInput::Timer]);
    harness.run();
    assert_eq!(harness.done, "", "there is nothing to clear");
    assert!(harness.bit(0, 7), "it is held");
    // Given back, it fades as before.
    harness.release(7, 1);
    harness.wait(30 * SECOND);
    assert!(!harness.bit(0, 7) && harness.bit(0, 8));
}

#[test]
fn a_stop_ends_while_bits_are_in_need_of_a_resync() {
    let mut config = with_bitmap(config(Level::Raid1, 2, 0));
    config.state.resync_offset = Some(0);
    config.bitmap.as_mut().expect("it has one").bits = vec![0b1010_0000; 16];
    let mut harness = Harness::new(config);
    // Bit 5 is in need, and written to as well; bit 6 is written to only.
    harness.ask(5, 2);
    harness.run();
    harness.release(5, 2);
    harness.tell(MetadataInput::Stop);
    harness.run();
    assert_eq!(harness.others, [MetadataEffect::Stopped { clean: true }]);
    assert!(harness.bit(0, 5) && harness.bit(0, 7) && !harness.bit(0, 6));
    assert_eq!(harness.superblocks[&0].resync_offset, Some(0));
}

/// A mirror whose bitmap has two pages: what every device has of it is written by `run`.
fn with_two_pages(stale: bool) -> MetadataConfig {
    let mut config = config(Level::Raid1, 2, 0);
    let member_sectors = vec![8 * 32_000; 2];
    let (level, layout) = (Level::Raid1, Layout::None);
    let spec = GeometrySpec { level, layout, chunk_sectors: 0, member_sectors };
    config.geometry = Geometry::new(&spec).expect("sound");
    config.state.resync_offset = Some(0);
    config.state.policy = Policy::Bitmap;
    config.bitmap = Some(ManagedBitmap {
        chunk_sectors: 8,
        daemon_sleep_nanos: 5 * SECOND,
        events_cleared: 3,
        bits: vec![if stale { 0 } else { 0xff }; 4000],
        stale,
    });
    config
}

#[test]
fn a_stale_bitmap_gets_all_its_bits_before_its_header() {
    for (by_resync, order) in [(false, "BBBBBBSS"), (true, "FFBBBBBBSS")] {
        let mut harness = Harness::new(with_two_pages(true));
        if by_resync {
            let run = harness.manager.resync().expect("it is needed").run();
            harness.tell(MetadataInput::ResyncAt { run, position: 800, stalled: None });
            harness.wait(20 * SECOND);
            assert_eq!(harness.done, "", "nothing is cleared while the others are not set");
            harness.tell(MetadataInput::ResyncAt { run, position: 8 * 10_000, stalled: None });
        } else {
            harness.ask(0, 1);
        }
        let mut fresh = 0;
        for _ in 0..order.len() {
            harness.finish(0, Ok(()));
            for device in 0..2 {
                let page = |number| harness.pages.get(&(device, number));
                // A crash may tear the page with the header, too.
                let set = |page: &BitmapPage, from: usize| {
                    page.bits[from..].iter().all(|byte| *byte == 0xff)
                };
                let is_fresh = page(0).is_some_and(|page| page.header.is_some());
                let first = page(0).is_some_and(|page| set(page, 1300));
                let all = first && page(1).is_some_and(|page| set(page, 0));
                assert!(all || !is_fresh, "device {device}");
                fresh += u32::from(is_fresh);
            }
        }
        assert!(fresh > 0 && harness.done == order, "{fresh} {}", harness.done);
        harness.run();
    }
}

#[test]
fn a_bitmap_that_is_not_stale_gets_bits_and_header_in_one_phase() {
    let mut harness = Harness::new(with_two_pages(false));
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.done, "BBBBSS");
}
