//! Members that fail, are missing, or are behind: what the survivors record, and when.

use md::ondisk::Role;
use md::ondisk::superblock::DeviceState;
use md::{Level, MemberIdx};
use raidlab_engine::{
    Control, ControlEvent, DeviceNumber, MemberError, MetadataConfig, MetadataEffect,
    MetadataInput, MetadataMode, ReadOnlyReason,
};

use super::harness::{Harness, SECOND, config, with_bitmap};

#[test]
fn a_failure_is_two_counts_up_on_all_survivors_before_it_is_recorded() {
    let mut harness = Harness::new(config(Level::Raid5, 4, 0));
    harness.ask(0, 1);
    harness.run();
    assert_eq!(harness.events(), [11; 4]);
    harness.fail(2, 1);
    while !harness.pending.is_empty() {
        assert!(!harness.recorded());
        // In steps of one: a survivor that is one behind is still accepted by md.
        let counts: Vec<u64> = [0, 1, 3].map(|device| harness.superblocks[&device].events).into();
        let (low, high) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(high - low <= 1, "{counts:?}");
        harness.finish(0, Ok(()));
    }
    assert!(harness.recorded());
    assert_eq!(harness.events(), [13, 13, 11, 13]);
    for device in [0, 1, 3] {
        let state = harness.superblocks[&device].devices[2].as_ref().expect("it had a number");
        assert_eq!(state.role, Role::Faulty);
    }
    // Degraded: no count is ever taken back.
    harness.release(0, 1);
    harness.run();
    assert_eq!(harness.events(), [14, 14, 11, 14]);
    assert_eq!(harness.superblocks[&0].resync_offset, None, "degraded, but clean");
}

#[test]
fn a_failure_after_a_count_went_back_passes_the_highest_that_was_ever_sent() {
    let mut harness = Harness::new(config(Level::Raid1, 3, 0));
    harness.ask(0, 1);
    harness.run();
    harness.release(0, 1);
    harness.run();
    assert_eq!(harness.events(), [10; 3]);
    // Degraded, and clean all the time.
    harness.fail(1, 1);
    harness.run();
    assert_eq!(harness.events(), [13, 10, 13]);
}

#[test]
fn a_failure_while_a_count_goes_back_gives_no_other_contents_to_the_count() {
    for finished in 0..6 {
        for kind in [config(Level::Raid1, 3, 0), with_bitmap(config(Level::Raid1, 3, 0))] {
            let mut harness = Harness::new(kind);
            harness.ask(0, 1);
            harness.run();
            let dirty = harness.events()[0];
            harness.release(0, 1);
            (0..finished).for_each(|_| {
                if !harness.pending.is_empty() {
                    harness.finish(0, Ok(()));
                }
            });
            // It may hold the higher count, with itself in service.
            harness.fail(1, 1);
            while !harness.pending.is_empty() {
                for device in [0, 2] {
                    let state = &harness.superblocks[&device];
                    let role = state.devices[1].as_ref().expect("it has a number").role;
                    let is_other = state.resync_offset.is_none() || role == Role::Faulty;
                    assert!(state.events != dirty || !is_other, "{finished}: {state:?}");
                }
                harness.finish(0, Ok(()));
            }
            assert!(harness.recorded(), "{finished}");
        }
    }
}

#[test]
fn a_member_missing_from_the_start_is_recorded_before_the_first_grant() {
    let mut config = config(Level::Raid5, 3, 0);
    config.devices.remove(1);
    let mut harness = Harness::new(config);
    assert_eq!(harness.out(), "");
    harness.ask(0, 1);
    while !harness.pending.is_empty() {
        assert_eq!(harness.granted(), 0);
        harness.finish(0, Ok(()));
    }
    assert_eq!((harness.granted(), harness.events()), (1, vec![13; 2]));
    let lost = harness.superblocks[&0].devices[1].as_ref().expect("it has a number");
    assert_eq!(lost.role, Role::Faulty);
}

#[test]
fn a_member_that_is_behind_gets_the_contents_of_the_freshest_and_not_the_started_state() {
    // Forced: dirty, and member 3 is missing. The array is started as a clean one.
    let mut config = config(Level::Raid5, 4, 0);
    config.devices.pop();
    config.devices[1].events = 9;
    config.found.resync_offset = Some(0);
    let found = config.found.clone();
    let mut harness = Harness::new(config);
    harness.ask(0, 1);
    assert_eq!((harness.pending.len(), harness.pending[0].device), (1, 1));
    assert_eq!(harness.pending[0].superblock(), Some(&found));
    harness.run();
    assert_eq!((harness.granted(), harness.events()), (1, vec![13; 3]));
}

#[test]
fn a_member_that_the_freshest_gives_no_slot_is_not_made_as_fresh_before_it_has_one() {
    // Forced: member 2 is far behind, and out for the others.
    let mut config = config(Level::Raid5, 4, 0);
    config.devices.pop();
    config.devices[2].events = 3;
    config.found.devices[2] = Some(DeviceState::new(Role::Faulty));
    let mut harness = Harness::new(config);
    harness.ask(0, 1);
    let events: Vec<u64> = harness
        .pending
        .iter()
        .map(|pending| pending.superblock().expect("one each").events)
        .collect();
    assert_eq!(events, [11; 3], "it would say that it has failed");
    harness.run();
    assert_eq!((harness.granted(), harness.events()), (1, vec![13; 3]));
}

#[test]
fn a_device_that_writes_pass_by_is_in_sync_nowhere_or_stale_before_the_first_grant() {
    let mut config = config(Level::Raid1, 2, 1);
    let passed_by = |recovery_offset| {
        let role = DeviceState::new(Role::Slot(0));
        Some(DeviceState { recovery_offset, replacement: true, ..role })
    };
    config.found.devices[2] = passed_by(Some(512));
    config.state.devices[2] = passed_by(Some(0));
    let mut harness = Harness::new(config.clone());
    harness.ask(0, 1);
    harness.run();
    assert_eq!((harness.granted(), harness.events()), (1, vec![13; 3]), "it has every update");
    assert_eq!(harness.superblocks[&2].devices[2], passed_by(Some(0)));
    // Without space for it.
    let mut harness = Harness::new(config);
    harness.ask(0, 1);
    while !harness.pending.is_empty() {
        let is_full = harness.pending[0].device == 2;
        harness.finish(0, if is_full { Err(MemberError::NoSpace) } else { Ok(()) });
    }
    assert_eq!((harness.granted(), harness.events()), (1, vec![13; 2]), "still 10, and too old");
}

#[test]
fn a_failed_metadata_write_fails_the_member() {
    let mut harness = Harness::new(config(Level::Raid5, 3, 0));
    harness.ask(0, 1);
    harness.finish(1, Err(MemberError::Medium));
    assert_eq!(harness.answers, [Control::FailMember(MemberIdx(1))]);
    harness.run();
    assert_eq!((harness.granted(), harness.events()), (1, vec![13; 2]));
    // The shard's own failure of it is recorded already.
    harness.fail(1, 1);
    assert!(harness.recorded());
    assert_eq!(harness.out(), "");
}

#[test]
fn too_few_members_with_the_new_count_make_the_array_read_only() {
    let mut harness = Harness::new(config(Level::Raid5, 3, 0));
    harness.ask(0, 1);
    harness.finish(1, Err(MemberError::Gone));
    harness.fail(1, 1);
    harness.finish(0, Err(MemberError::Gone));
    let why = ReadOnlyReason::MetadataUnwritable { device: DeviceNumber(0) };
    assert!(
        harness.others.contains(&MetadataEffect::BecameReadOnly { why }),
        "{:?}",
        harness.others
    );
    assert_eq!(harness.manager.status().mode, MetadataMode::ReadOnly(why));
    assert!(harness.answers.contains(&Control::ReadOnly));
    assert!(harness.answers.contains(&Control::NotRecorded { epoch: 1 }));
    assert!(!harness.recorded() && harness.granted() == 0);
    harness.run();
    harness.ask(0, 1);
    assert_eq!(harness.answers.last(), Some(&Control::ReadOnly));
    harness.tell(MetadataInput::Stop);
    assert_eq!(harness.others.last(), Some(&MetadataEffect::Stopped { clean: false }));
    assert!(!harness.done.contains('B') && harness.out().is_empty());
}

#[test]
fn long_superblocks_are_written_one_after_the_other() {
    let mut harness =
        Harness::new(MetadataConfig { superblocks_in_turn: true, ..config(Level::Raid6, 5, 0) });
    harness.ask(0, 1);
    for _ in 0..5 {
        assert_eq!((harness.out().as_str(), harness.granted()), ("S", 0));
        harness.finish(0, Ok(()));
    }
    assert_eq!(harness.granted(), 1);
}

#[test]
fn no_second_long_superblock_is_written_where_one_may_be_torn() {
    let mut harness =
        Harness::new(MetadataConfig { superblocks_in_turn: true, ..config(Level::Raid6, 5, 0) });
    harness.ask(0, 1);
    harness.finish(0, Ok(()));
    harness.finish(0, Err(MemberError::NoSpace));
    assert_eq!(harness.out(), "", "three members have whole ones");
    let refused = Control::NotGranted { first_bit: 0, bits: 1 };
    assert_eq!((harness.answers.last(), harness.granted()), (Some(&refused), 0));
    harness.ask(0, 1);
    harness.run();
    assert_eq!((harness.granted(), harness.events()), (1, vec![11; 5]));
}

#[test]
fn a_spare_whose_metadata_cannot_be_written_is_lost_alone() {
    let mut harness = Harness::new(config(Level::Raid1, 2, 1));
    harness.ask(0, 1);
    harness.run();
    harness.fail(0, 1);
    let spare =
        harness.pending.iter().position(|pending| pending.device == 2).expect("it is updated");
    assert!(harness.pending[spare].superblock().is_some());
    harness.finish(spare, Err(MemberError::Gone));
    harness.run();
    assert!(harness.recorded());
    assert_eq!(harness.manager.status().mode, MetadataMode::Running);
    let lost = harness.superblocks[&1].devices[2].as_ref().expect("it had a number");
    assert_eq!(lost.role, Role::Faulty);
}

#[test]
fn a_flush_that_failed_on_a_member_that_must_stay_is_never_called_clean() {
    for bitmap in [false, true] {
        let mut config = config(Level::Raid1, 2, 0);
        config.devices.remove(1);
        if bitmap {
            config = with_bitmap(config);
        }
        let mut harness = Harness::new(config);
        let bit = if bitmap { 5 } else { 0 };
        harness.ask(bit, 1);
        harness.run();
        assert_eq!(harness.granted(), 1);
        harness.event(ControlEvent::NotDurable { member: MemberIdx(0) });
        harness.release(bit, 1);
        harness.run();
        harness.wait(400 * SECOND);
        assert!(harness.manager.resync().is_none(), "no resync can make it right");
        let said = |harness: &Harness| harness.superblocks[&0].resync_offset;
        assert_eq!(said(&harness), Some(0));
        harness.tell(MetadataInput::Stop);
        harness.run();
        assert_eq!(harness.others.last(), Some(&MetadataEffect::Stopped { clean: false }));
        assert_eq!(said(&harness), Some(0));
        assert!(!bitmap || (0..128).all(|bit| harness.bit(0, bit)));
    }
}
