//! Members without room for metadata: nothing fails that can wait, and counts stay together.

use md::Level;
use raidlab_engine::{Control, MemberError, MetadataEffect, MetadataInput, ReadOnlyReason};

use super::harness::{Harness, SECOND, config, with_bitmap};

#[test]
fn metadata_without_space_fails_no_member_and_refuses_waiting_requests() {
    for bitmap in [false, true] {
        let mut config = config(Level::Raid5, 3, 0);
        if bitmap {
            config = with_bitmap(config);
        }
        let mut harness = Harness::new(config);
        let refused = Control::NotGranted { first_bit: 0, bits: 1 };
        for _ in 0..3 {
            harness.ask(0, 1);
            let full = harness.pending.iter().position(|pending| pending.device == 1);
            harness.finish(full.expect("retried"), Err(MemberError::NoSpace));
            harness.run();
            assert_eq!((harness.answers.last(), harness.granted()), (Some(&refused), 0));
            assert_eq!(harness.manager.status().degraded, 0);
            assert_eq!(harness.out(), "", "it is not retried repeatedly");
        }
        harness.ask(0, 1);
        harness.run();
        assert_eq!(harness.granted(), 1);
        assert!(harness.superblocks.values().all(|state| state.resync_offset == Some(0)));
        // Bits alone.
        if bitmap {
            harness.ask(9, 1);
            harness.finish(0, Err(MemberError::NoSpace));
            harness.run();
            let refused = Control::NotGranted { first_bit: 9, bits: 1 };
            assert_eq!((harness.answers.last(), harness.granted()), (Some(&refused), 1));
            harness.ask(9, 1);
            harness.run();
            assert_eq!(harness.granted(), 2);
            assert!((0..3).all(|device| harness.bit(device, 9)));
        }
    }
}

#[test]
fn superblocks_that_only_some_members_had_room_for_are_written_again_with_the_same_count() {
    let mut harness = Harness::new(config(Level::Raid1, 3, 0));
    harness.ask(0, 1);
    harness.finish(1, Err(MemberError::NoSpace));
    harness.run();
    assert_eq!(harness.events(), [11, 11], "devices 0 and 2");
    // Without a request: on the timer.
    harness.wait(2 * SECOND);
    assert_eq!(harness.events(), [10; 3], "and clean again");
    assert_eq!(harness.done, "SSSFFFSSS", "what is on a member is not written to it again");
    assert!(harness.superblocks.values().all(|state| state.resync_offset.is_none()));
    // A stop without room is reported.
    harness.ask(0, 1);
    harness.run();
    harness.release(0, 1);
    (0..3).for_each(|_| harness.finish(0, Ok(())));
    harness.finish(0, Err(MemberError::NoSpace));
    harness.run();
    harness.tell(MetadataInput::Stop);
    harness.finish(0, Err(MemberError::NoSpace));
    harness.run();
    assert_eq!(harness.others, [MetadataEffect::Stopped { clean: false }]);
}

#[test]
fn a_loss_without_space_to_record_it_fails_waiting_requests_and_is_retried() {
    let mut harness = Harness::new(config(Level::Raid5, 4, 0));
    harness.ask(0, 1);
    harness.run();
    harness.fail(2, 1);
    harness.finish(0, Err(MemberError::NoSpace));
    harness.run();
    assert_eq!(harness.answers.last(), Some(&Control::NoSpaceToRecord));
    assert!(!harness.recorded() && harness.out().is_empty());
    assert_eq!(harness.manager.status().degraded, 1, "no other member is lost");
    harness.wait(2 * SECOND);
    assert!(harness.recorded());
    assert_eq!(harness.events(), [13, 13, 11, 13]);
}

#[test]
fn a_loss_that_a_read_only_array_cannot_record_blocks_no_request() {
    let mut harness = Harness::new(config(Level::Raid5, 4, 0));
    harness.ask(0, 1);
    harness.run();
    harness.fail(2, 1);
    harness.finish(0, Err(MemberError::NoSpace));
    harness.run();
    harness.tell(MetadataInput::ReadOnly);
    harness.release(0, 1);
    // Tried once more, in vain.
    harness.finish(0, Err(MemberError::NoSpace));
    harness.run();
    let why = ReadOnlyReason::Ordered;
    assert_eq!(harness.others[1..], [MetadataEffect::BecameReadOnly { why }]);
    assert_eq!(harness.answers.last(), Some(&Control::NotRecorded { epoch: 1 }));
}

#[test]
fn a_spare_without_space_gets_the_next_update() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 1));
    harness.ask(0, 1);
    harness.run();
    harness.fail(0, 1);
    let spare =
        harness.pending.iter().position(|pending| pending.device == 2).expect("it is updated");
    harness.finish(spare, Err(MemberError::NoSpace));
    harness.run();
    assert!(
        harness.recorded() && harness.others.len() == 1,
        "only device 0 is lost: {:?}",
        harness.others
    );
    assert_eq!(harness.superblocks[&2].events, 13, "by the second step");
}

#[test]
fn a_flush_without_space_fails_no_member_and_leaves_the_array_dirty() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 0));
    harness.ask(0, 1);
    harness.run();
    harness.release(0, 1);
    harness.finish(0, Err(MemberError::NoSpace));
    harness.run();
    assert!(harness.manager.status().dirty && harness.manager.status().degraded == 0);
    harness.wait(2 * SECOND);
    assert!(!harness.manager.status().dirty, "retried");
}
