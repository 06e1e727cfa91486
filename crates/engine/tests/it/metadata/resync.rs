//! What a resync has done, and what needs one, as the superblocks record it.

use md::{Geometry, GeometrySpec, Layout, Level, Raid6Layout};
use raidlab_engine::{Control, ControlEvent, MetadataEffect, MetadataInput, MetadataManager};

use super::harness::{Harness, SECOND, config, with_bitmap};

#[test]
fn resync_is_recorded_in_steps_behind_a_flush_and_at_a_stop() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.resync_offset = Some(0);
    let mut harness = Harness::new(config);
    let resync = harness.manager.resync().expect("it is needed");
    let run = resync.run();
    harness.tell(MetadataInput::ResyncAt { run, position: 8, stalled: None });
    assert_eq!(harness.out(), "", "not a sixteenth yet");
    harness.tell(MetadataInput::ResyncAt { run, position: 72, stalled: None });
    assert_eq!(harness.out(), "FFF");
    harness.run();
    assert_eq!(harness.superblocks[&0].resync_offset, Some(72));
    harness.tell(MetadataInput::ResyncAt { run: run + 1, position: 1024, stalled: None });
    assert_eq!(harness.manager.status().resync_offset, Some(72), "of a run that was never begun");
    harness.tell(MetadataInput::ResyncAt { run, position: 80, stalled: None });
    harness.tell(MetadataInput::Stop);
    harness.run();
    assert_eq!(harness.superblocks[&0].resync_offset, Some(80));
}

#[test]
fn a_resync_that_ends_makes_the_array_clean_everywhere() {
    let mut config = config(Level::Raid5, 3, 0);
    config.state.resync_offset = Some(512);
    let mut harness = Harness::new(config);
    assert_eq!(harness.manager.in_sync_below(), 512);
    let run = harness.manager.resync().expect("it is needed").run();
    harness.tell(MetadataInput::ResyncAt { run, position: 1024, stalled: None });
    harness.run();
    assert_eq!(harness.superblocks[&0].resync_offset, None);
    assert_eq!(harness.answers, [Control::InSyncBelow { position: u64::MAX, reports: 0 }]);
    assert!(harness.manager.resync().is_none());
}

#[test]
fn a_write_that_ended_half_way_leaves_the_array_in_need_of_a_resync() {
    let mut harness = Harness::new(with_bitmap(config(Level::Raid1, 2, 0)));
    harness.ask(5, 1);
    harness.run();
    harness.event(ControlEvent::OutOfSync { first_bit: 5, bits: 1 });
    assert_eq!(harness.others, [MetadataEffect::ResyncNeeded]);
    let raised = Control::InSyncBelow { position: 40, reports: 1 };
    assert!(harness.answers.contains(&raised), "{:?}", harness.answers);
    harness.release(5, 1);
    harness.run();
    harness.wait(100 * SECOND);
    assert!(harness.bit(0, 5) && harness.bit(1, 5));
    assert_eq!(harness.superblocks[&0].resync_offset, Some(40), "clean, but not in sync");
    let mut resync = harness.manager.resync().expect("it is needed");
    assert_eq!(resync.next_range(), Some((md::Sector(40), 8)));
    assert_eq!(resync.next_range(), None);
    resync.done(0, md::Sector(40), Ok(()));
    let (run, position) = (resync.run(), resync.position());
    harness.tell(MetadataInput::ResyncAt { run, position, stalled: None });
    harness.run();
    harness.wait(100 * SECOND);
    assert!(!harness.bit(0, 5));
    assert_eq!(harness.superblocks[&0].resync_offset, None);
}

/// RAID 6 with Q on one disk: what lacks only that is started dirty without force.
#[test]
fn a_degraded_array_is_out_of_sync_where_its_metadata_say_so_and_force_trusts_only_its_parity() {
    for (missing, by_force) in [(4, None), (1, Some(1))] {
        let mut config = config(Level::Raid6, 5, 0);
        let layout = Layout::Raid6(Raid6Layout::LeftSymmetric6);
        let member_sectors = vec![1024; 5];
        let spec = GeometrySpec { level: Level::Raid6, layout, chunk_sectors: 8, member_sectors };
        config.geometry = Geometry::new(&spec).expect("sound");
        config.state.resync_offset = Some(0);
        config.devices.retain(|device| device.number.0 != missing);
        let manager = MetadataManager::new(config);
        assert_eq!(manager.out_of_sync(), vec![0..1024; 1], "without {missing}");
        let expected = by_force.into_iter().collect();
        assert_eq!(manager.missing_by_force(), expected, "without {missing}");
    }
}

/// RAID 5 without a member has nothing to resync: only force starts it, and a stop writes nothing.
#[test]
fn a_start_by_force_leaves_superblocks_active_until_the_first_write() {
    for writes in [false, true] {
        let mut config = config(Level::Raid5, 3, 0);
        config.found.resync_offset = Some(0);
        config.devices.retain(|device| device.number.0 != 1);
        let mut harness = Harness::new(config);
        let status = harness.manager.status();
        assert_eq!((status.resync_offset, status.found_active), (None, true));
        if writes {
            harness.ask(0, 1);
            harness.run();
            assert!(!harness.manager.status().found_active, "dirty by this start");
            harness.release(0, 1);
        }
        harness.tell(MetadataInput::Stop);
        harness.run();
        assert_eq!(harness.manager.status().found_active, !writes);
        assert_eq!(harness.superblocks.is_empty(), !writes);
        assert!(harness.superblocks.values().all(|state| state.resync_offset.is_none()));
    }
}

#[test]
fn bits_side_by_side_are_one_range_that_is_out_of_sync() {
    let mut config = with_bitmap(config(Level::Raid5, 3, 0));
    config.state.resync_offset = Some(0);
    let bitmap = config.bitmap.as_mut().expect("just made");
    bitmap.bits[0] = 0b0110_0111;
    let ranges = MetadataManager::new(config).out_of_sync();
    assert_eq!(ranges, [0..24, 40..56]);
}

#[test]
fn nothing_is_out_of_sync_behind_a_position_that_lies_behind_the_end() {
    for position in [1024, 16383] {
        let mut config = config(Level::Raid1, 2, 0);
        let end = config.geometry.member_used_sectors(md::MemberIdx(0));
        config.state.resync_offset = Some(end + position);
        assert!(MetadataManager::new(config).out_of_sync().is_empty(), "{position}");
    }
}
