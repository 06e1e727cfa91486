//! When the superblocks say dirty and clean, and what has become durable before.

use md::Level;
use md::ondisk::superblock::Policy;
use raidlab_engine::{Control, ControlEvent, MetadataEffect, MetadataInput, ReadOnlyReason};

use super::harness::{Harness, config, with_bitmap};

#[test]
fn dirty_is_durable_on_all_serving_members_before_the_first_grant() {
    let mut harness = Harness::new(config(Level::Raid5, 3, 1));
    assert_eq!(harness.out(), "", "a start leaves no trace");
    harness.ask(0, 1);
    assert_eq!(harness.out(), "SSS", "the spare is left alone");
    for left in (0..3).rev() {
        assert_eq!(harness.granted(), 0);
        harness.finish(left, Ok(()));
    }
    assert_eq!(harness.granted(), 1);
    assert_eq!(harness.events(), [11; 3]);
    assert!(harness.superblocks.values().all(|state| state.resync_offset == Some(0)));
    harness.ask(0, 1);
    assert_eq!((harness.granted(), harness.out().as_str()), (2, ""), "another shard's is free");
}

#[test]
fn bitmap_bits_are_durable_on_all_members_before_the_grant() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    harness.ask(5, 2);
    assert_eq!(harness.out(), "BB", "the bitmap comes before the superblocks");
    harness.run();
    assert_eq!((harness.done.as_str(), harness.granted()), ("BBSS", 1));
    // The array is dirty already: bits alone.
    harness.ask(9, 1);
    assert_eq!(harness.out(), "BB");
    harness.finish(0, Ok(()));
    assert_eq!(harness.granted(), 1);
    harness.finish(0, Ok(()));
    assert_eq!(harness.granted(), 2);
    for device in 0..2 {
        let set: Vec<u32> = (0..128).filter(|bit| harness.bit(device, *bit)).collect();
        assert_eq!(set, [5, 6, 9]);
    }
    harness.release(5, 2);
    harness.ask(6, 1);
    assert_eq!(
        (harness.granted(), harness.out().as_str()),
        (3, ""),
        "it is still set on the members"
    );
}

#[test]
fn clean_is_written_only_after_all_intents_are_back_and_the_members_are_flushed() {
    let mut config = config(Level::Raid1, 2, 0);
    config.shards = 2;
    let mut harness = Harness::new(config);
    harness.ask(0, 1);
    harness.run();
    harness.tell(MetadataInput::FromShard {
        shard: 1,
        event: ControlEvent::Intent { first_bit: 0, bits: 1 },
    });
    harness.release(0, 1);
    assert_eq!(harness.out(), "", "shard 1 still holds it");
    harness.tell(MetadataInput::FromShard {
        shard: 1,
        event: ControlEvent::Released { first_bit: 0, bits: 1 },
    });
    assert_eq!(harness.out(), "FF");
    harness.finish(0, Ok(()));
    assert_eq!(harness.out(), "F", "the other member may still lose what was written");
    harness.finish(0, Ok(()));
    assert_eq!(harness.out(), "SS");
    harness.run();
    assert!(harness.superblocks.values().all(|state| state.resync_offset.is_none()));
}

#[test]
fn a_write_that_comes_while_members_are_flushed_calls_the_clean_off() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 0));
    harness.ask(0, 1);
    harness.run();
    harness.release(0, 1);
    assert_eq!(harness.out(), "FF");
    harness.ask(0, 1);
    assert_eq!(harness.granted(), 2, "the members still say dirty");
    harness.run();
    assert_eq!(harness.done, "SSFF");
    assert!(harness.manager.status().dirty);
    // Too late to call off: the grant waits until the members say dirty again.
    harness.release(0, 1);
    harness.finish(0, Ok(()));
    harness.finish(0, Ok(()));
    assert_eq!(harness.out(), "SS");
    harness.ask(0, 1);
    assert_eq!(harness.granted(), 2);
    harness.run();
    assert_eq!((harness.granted(), &harness.done[4..]), (3, "FFSSSS"));
    assert!(harness.superblocks.values().all(|state| state.resync_offset == Some(0)));
}

#[test]
fn clean_and_dirty_take_turns_between_two_counts_so_that_spares_may_sleep() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 1));
    for _ in 0..3 {
        harness.ask(0, 1);
        harness.run();
        assert_eq!(harness.events(), [11; 2]);
        harness.release(0, 1);
        harness.run();
        assert_eq!(harness.events(), [10; 2]);
    }
    // Anything else counts up, and goes to spares too.
    harness.ask(0, 1);
    harness.run();
    harness.tell(MetadataInput::Stop);
    harness.release(0, 1);
    harness.run();
    assert_eq!(harness.events(), [12; 3]);
}

#[test]
fn a_count_is_not_taken_back_while_a_resync_is_needed() {
    // As md: a spare has the count of the clean array, and says that no resync is needed.
    let mut harness = Harness::new(config(Level::Raid5, 3, 1));
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.events(), [11; 3]);
    harness.event(ControlEvent::OutOfSync { first_bit: 0, bits: 1 });
    harness.release(0, 1);
    harness.run();
    assert_eq!(harness.events(), [12; 4], "spares, too: they would be two behind");
    assert!(harness.superblocks.values().all(|state| state.resync_offset == Some(0)));
}

#[test]
fn superblocks_of_levels_without_redundancy_are_never_written() {
    let mut harness = Harness::new(config(Level::Raid0, 2, 0));
    assert_eq!(harness.manager.intent_map(), None);
    harness.ask(0, 1);
    assert_eq!(harness.granted(), 1);
    harness.release(0, 1);
    harness.tell(MetadataInput::Stop);
    assert_eq!(harness.others, [MetadataEffect::Stopped { clean: true }]);
    assert_eq!(harness.out(), "");
}

#[test]
fn stop_clears_the_bits_flushes_and_leaves_clean_superblocks() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    harness.ask(5, 2);
    harness.run();
    harness.tell(MetadataInput::Stop);
    assert_eq!(harness.answers.last(), Some(&Control::ReadOnly), "shards give back what they hold");
    assert_eq!(harness.out(), "");
    harness.done.clear();
    harness.release(5, 2);
    harness.run();
    assert_eq!(harness.others, [MetadataEffect::Stopped { clean: true }]);
    assert_eq!(harness.done, "FFBBBBFFBBSS");
    assert!((0..128).all(|bit| !harness.bit(0, bit)));
    assert!(harness.superblocks.values().all(|state| state.resync_offset.is_none()));
    let mut untouched = Harness::new(config(Level::Raid1, 2, 0));
    untouched.tell(MetadataInput::Stop);
    assert_eq!((untouched.out().as_str(), untouched.others.len()), ("", 1), "nothing to say");
}

#[test]
fn a_partial_parity_log_is_named_while_dirty_and_empty_before_the_first_write() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.policy = Policy::Ppl;
    let mut harness = Harness::new(config);
    harness.ask(0, 1);
    harness.run();
    assert_eq!((harness.done.as_str(), harness.granted()), ("EEEPPPSSS", 1));
    let is_named = |harness: &Harness, offset: Option<u64>| {
        let mut states = harness.superblocks.values();
        states.all(|it| it.policy == Policy::Ppl && it.resync_offset == offset)
    };
    assert!(is_named(&harness, Some(0)));
    harness.release(0, 1);
    harness.run();
    assert!(is_named(&harness, None), "idle");
    harness.done.clear();
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.done, "SSS", "the logs are in use");
    harness.release(0, 1);
    harness.tell(MetadataInput::Stop);
    harness.run();
    assert!(is_named(&harness, None));
}

#[test]
fn a_log_is_not_named_while_a_resync_is_needed_from_the_start_on() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.policy = Policy::Ppl;
    config.state.resync_offset = Some(0);
    let mut harness = Harness::new(config);
    let run = harness.manager.resync().expect("it is needed").run();
    harness.ask(0, 1);
    harness.run();
    let says = |harness: &Harness, policy: Policy, offset: Option<u64>| {
        let mut states = harness.superblocks.values();
        assert!(states.all(|it| it.policy == policy && it.resync_offset == offset));
    };
    says(&harness, Policy::Resync, Some(0));
    harness.done.clear();
    harness.tell(MetadataInput::ResyncAt { run, position: 8, stalled: None });
    harness.run();
    assert_eq!(harness.done, "FFFSSS", "a part is in sync, durably");
    says(&harness, Policy::Ppl, Some(8));
    // A write fails half-way: its log must stay until the superblocks call for a resync.
    let event = ControlEvent::OutOfSync { first_bit: 0, bits: 1 };
    harness.tell(MetadataInput::FromShard { shard: 0, event });
    let settled = Control::DoubtRecorded { reports: 1 };
    assert!(!harness.answers.contains(&settled));
    harness.run();
    says(&harness, Policy::Resync, Some(0));
    assert!(harness.answers.contains(&settled));
}

#[test]
fn read_only_by_order_makes_the_metadata_clean_first() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 0));
    harness.ask(0, 1);
    harness.run();
    harness.tell(MetadataInput::ReadOnly);
    harness.ask(0, 1);
    assert_eq!((harness.granted(), harness.answers.last()), (1, Some(&Control::ReadOnly)));
    harness.release(0, 1);
    harness.run();
    let why = ReadOnlyReason::Ordered;
    assert_eq!(harness.others, [MetadataEffect::BecameReadOnly { why }]);
    assert!(!harness.manager.status().dirty);
    harness.tell(MetadataInput::Stop);
    assert_eq!(harness.others.last(), Some(&MetadataEffect::Stopped { clean: true }));
}
