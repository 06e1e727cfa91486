//! From what an array is to its members' superblocks: both versions, through a member's life.

use raidlab_md::ondisk::superblock::{
    ArrayState, DeviceState, Policy, StateError, SuperblockV0, SuperblockV1, feature,
};
use raidlab_md::ondisk::{Role, Timestamp, Version};

fn v1() -> SuperblockV1 {
    let bytes = include_bytes!("../fuzz/corpus/superblock-1/spare.bin");
    SuperblockV1::decode(bytes, Version::V1_2).unwrap().0
}

/// Slots 0 and 1 of a RAID 1.
fn v0() -> SuperblockV0 {
    let bytes = include_bytes!("../fuzz/corpus/superblock-0.90/raid1.bin");
    SuperblockV0::decode(bytes, 16256).unwrap().0
}

fn device(role: Role) -> Option<DeviceState> {
    Some(DeviceState::new(role))
}

fn slots(slots: u16) -> ArrayState {
    ArrayState {
        events: 40,
        updated: Timestamp { seconds: 1_800_000_000, micros: 0 },
        resync_offset: None,
        policy: Policy::Resync,
        devices: (0..slots).map(|slot| device(Role::Slot(slot))).collect(),
    }
}

#[test]
fn dirty_clean_and_checkpoints() {
    for (offset, v1_stored, clean, v0_stored) in [
        (None, u64::MAX, true, u32::MAX),
        (Some(0), 0, false, 0),
        (Some(8192), 8192, false, 8192),
        // Does not fit into 0.90: rounded down, and not to "complete".
        (Some(1 << 33), 1 << 33, false, u32::MAX - 1),
    ] {
        let state = ArrayState { resync_offset: offset, ..slots(2) };
        let next = v1().with_state(&state, 0).unwrap();
        assert_eq!((next.resync_offset, next.events), (v1_stored, 40));
        assert_eq!(next.utime, state.updated);
        let next = v0().with_state(&state, 0).unwrap();
        assert_eq!((next.state & 1 == 1, next.recovery_cp), (clean, v0_stored));
        assert_eq!((next.events, next.cp_events), (40, 40));
        assert_eq!(next.utime, 1_800_000_000);
        let decoded = next.metadata().resync_offset;
        assert_eq!(decoded.is_none(), clean);
        assert!(decoded.is_none_or(|decoded| decoded <= offset.unwrap()));
    }
    // A checkpoint of an earlier write says nothing.
    let mut stale =
        v0().with_state(&ArrayState { resync_offset: Some(8192), ..slots(2) }, 0).unwrap();
    stale.events += 1;
    assert_eq!(stale.metadata().resync_offset, Some(0));
}

#[test]
fn a_member_fails_and_a_spare_takes_its_slot_in_1_x() {
    // Slots 0, 1, 2; device 3 is the spare.
    let mut state = slots(3);
    state.devices.push(device(Role::Spare));
    let roles = |state: &ArrayState, me: usize| {
        let next = v1().with_state(state, me).unwrap();
        assert_eq!(next.dev_number as usize, me);
        assert_eq!(next.dev_roles.len(), 128);
        assert!(next.dev_roles[4..].iter().all(|&role| role == 0xffff));
        (next.dev_roles[..4].to_vec(), next.feature_map, next.recovery_offset)
    };
    assert_eq!(roles(&state, 0), (vec![0, 1, 2, 0xffff], 0, 0));

    state.devices[1] = device(Role::Faulty);
    state.devices[3] =
        Some(DeviceState { recovery_offset: Some(4096), ..DeviceState::new(Role::Slot(1)) });
    let expected = vec![0, 0xfffe, 2, 1];
    assert_eq!(roles(&state, 0), (expected.clone(), 0, 0));
    assert_eq!(roles(&state, 3), (expected, feature::RECOVERY_OFFSET, 4096));

    // Removed, and the rebuild has ended.
    state.devices[1] = None;
    state.devices[3] = device(Role::Slot(1));
    assert_eq!(roles(&state, 3), (vec![0, 0xffff, 2, 1], 0, 0));
    assert_eq!(v1().with_state(&state, 1), Err(StateError::NoSuchDevice { dev_number: 1 }));
}

#[test]
fn a_member_fails_and_a_spare_takes_its_slot_in_0_90() {
    let mut state = slots(2);
    state.devices.push(device(Role::Spare));
    let described = |state: &ArrayState, me: usize| {
        let next = v0().with_state(state, me).unwrap();
        let disks: Vec<(u32, u32, u32)> =
            next.disks.iter().map(|disk| (disk.number, disk.raid_disk, disk.state)).collect();
        assert!(disks[4..].iter().all(|disk| *disk == (0, 0, 0)));
        let counts = [next.nr_disks, next.active_disks, next.working_disks, next.failed_disks];
        let own = next.this_disk;
        assert_eq!(next.disks[own.number as usize], own);
        (disks[..4].to_vec(), counts, next.spare_disks, own.number)
    };
    let (disks, counts, spares, own) = described(&state, 2);
    assert_eq!(disks, [(0, 0, 6), (1, 1, 6), (2, 2, 0), (0, 0, 0)]);
    assert_eq!((counts, spares, own), ([3, 2, 3, 0], 1, 2));

    // Device 1 failed; device 2 is being rebuilt, which 0.90 cannot say.
    state.devices[1] = device(Role::Faulty);
    state.devices[2] =
        Some(DeviceState { recovery_offset: Some(4096), ..DeviceState::new(Role::Slot(1)) });
    let (disks, counts, spares, own) = described(&state, 2);
    assert_eq!(disks, [(0, 0, 6), (1, 1, 9), (2, 2, 1), (3, 3, 0)]);
    assert_eq!((counts, spares, own), ([3, 1, 2, 1], 1, 3));
    let rebuilt = v0().with_state(&state, 2).unwrap().metadata();
    assert_eq!((rebuilt.role, rebuilt.recovery_offset), (Role::Spare, None));

    // Rebuilt: it has the slot's number now.
    state.devices[1] = None;
    state.devices[2] = device(Role::Slot(1));
    let (disks, counts, spares, own) = described(&state, 2);
    assert_eq!(disks, [(0, 0, 6), (1, 1, 6), (0, 0, 0), (0, 0, 0)]);
    assert_eq!((counts, spares, own), ([2, 2, 2, 0], 0, 1));
}

#[test]
fn policies_set_their_bits_alone() {
    let with = |change: fn(&mut SuperblockV1), policy| {
        let mut superblock = v1();
        change(&mut superblock);
        superblock.with_state(&ArrayState { policy, ..slots(3) }, 0).map(|next| next.feature_map)
    };
    assert_eq!(with(|sb| sb.bitmap_offset = 8, Policy::Bitmap), Ok(feature::BITMAP_OFFSET));
    let no_bitmap = StateError::NoPlace { what: "bitmap" };
    assert_eq!(with(|sb| sb.bitmap_offset = 0, Policy::Bitmap), Err(no_bitmap));
    assert_eq!(with(|sb| sb.set_ppl(8, 528), Policy::Ppl), Ok(feature::MULTIPLE_PPLS));
    assert_eq!(with(|sb| sb.set_ppl(-264, 527), Policy::Ppl), Ok(feature::PPL));
    let no_log = StateError::NoPlace { what: "partial parity log" };
    assert_eq!(with(|sb| sb.set_ppl(8, 0), Policy::Ppl), Err(no_log));
    assert_eq!(with(|_| {}, Policy::Journal), Ok(feature::JOURNAL));
    // The place of a log is none for a bitmap, and the other way round.
    let has_log: fn(&mut SuperblockV1) = |sb| {
        sb.feature_map = feature::MULTIPLE_PPLS;
        sb.set_ppl(8, 2048);
    };
    assert_eq!(with(has_log, Policy::Ppl), Ok(feature::MULTIPLE_PPLS));
    assert_eq!(with(has_log, Policy::Bitmap), Err(StateError::NoPlace { what: "bitmap" }));
    assert_eq!(with(has_log, Policy::Resync), Ok(0));
    let has_bitmap: fn(&mut SuperblockV1) = |sb| {
        (sb.feature_map, sb.bitmap_offset) = (feature::BITMAP_OFFSET, 0x0010_0010);
    };
    assert!(with(has_bitmap, Policy::Ppl).is_err());
    // What the state does not speak of stays, what it does goes.
    let kept = feature::RESHAPE_ACTIVE | feature::NEW_OFFSET | 0x8000;
    let before: fn(&mut SuperblockV1) =
        |sb| sb.feature_map = feature::RESHAPE_ACTIVE | feature::NEW_OFFSET | 0x8000 | 0x8 | 0x2;
    assert_eq!(with(before, Policy::Resync), Ok(kept));

    let v0_with = |policy| v0().with_state(&ArrayState { policy, ..slots(2) }, 0);
    let with_bitmap = v0_with(Policy::Bitmap).unwrap();
    assert_eq!(with_bitmap.state, 0x101);
    let bitmap = with_bitmap.metadata().bitmap.unwrap();
    assert_eq!((bitmap.sector, bitmap.sectors), (16256 + 8, 120));
    assert_eq!(with_bitmap.with_state(&slots(2), 0).unwrap().state, 1);
    assert!(v0_with(Policy::Ppl).is_err() && v0_with(Policy::Journal).is_err());
}

#[test]
fn what_only_one_member_says() {
    let mut state = slots(3);
    state.devices[1] = Some(DeviceState {
        recovery_offset: Some(1000),
        recovery_by_bitmap: true,
        replacement: true,
        write_mostly: true,
        failfast: true,
        bad_blocks_in_use: true,
        ..DeviceState::new(Role::Slot(1))
    });
    let mut before = v1();
    before.devflags = 0xf0;
    let other = before.with_state(&state, 0).unwrap();
    assert_eq!((other.feature_map, other.devflags, other.recovery_offset), (0, 0xf0, 0));
    let next = before.with_state(&state, 1).unwrap();
    assert_eq!(next.feature_map, 0x2 | 0x8 | 0x10 | 0x80);
    assert_eq!((next.devflags, next.recovery_offset), (0xf3, 1000));
    let decoded = next.metadata();
    assert!(decoded.replacement && decoded.write_mostly && decoded.failfast);
    assert_eq!(decoded.recovery_offset, Some(1000));
    assert!(decoded.bad_blocks.unwrap().in_use);
    before.bblog_offset = 0;
    assert_eq!(before.with_state(&state, 1), Err(StateError::NoPlace { what: "bad-block log" }));

    let journal = DeviceState { journal_tail: Some(64), ..DeviceState::new(Role::Journal) };
    state.devices[2] = Some(journal);
    state.policy = Policy::Journal;
    let next = before.with_state(&state, 2).unwrap();
    assert_eq!((next.dev_roles[2], next.recovery_offset), (0xfffd, 64));
    assert_eq!(next.metadata().journal_tail, Some(64));
}

#[test]
fn limits_are_errors() {
    // More devices than roles: room is made as mdadm makes it.
    let next = v1().with_state(&slots(129), 128).unwrap();
    assert_eq!((next.dev_roles.len(), next.dev_roles[128]), (384, 128));
    assert_eq!(next.encode(512).len(), 1024);
    assert!(v1().with_state(&slots(1920), 0).is_ok());
    let error = v1().with_state(&slots(1921), 0).unwrap_err();
    assert_eq!(error, StateError::TooManyDevices { devices: 1921, most: 1920 });

    let mut two = slots(2);
    two.devices.push(device(Role::Slot(1)));
    assert_eq!(v0().with_state(&two, 0), Err(StateError::Slot { slot: 1 }));
    assert_eq!(v0().with_state(&slots(3), 0), Err(StateError::Slot { slot: 2 }));
    let mut spares = slots(2);
    spares.devices.extend((0..25).map(|_| device(Role::Spare)));
    assert!(v0().with_state(&spares, 0).is_ok());
    spares.devices.push(device(Role::Spare));
    let error = v0().with_state(&spares, 0).unwrap_err();
    assert_eq!(error, StateError::TooManyDevices { devices: 28, most: 27 });
    for change in [
        |device: &mut DeviceState| device.replacement = true,
        |device: &mut DeviceState| device.bad_blocks_in_use = true,
        |device: &mut DeviceState| device.role = Role::Journal,
    ] {
        let mut state = slots(2);
        change(state.devices[1].as_mut().unwrap());
        assert!(matches!(v0().with_state(&state, 0), Err(StateError::NotInV0 { .. })));
    }
}

#[test]
fn areas_end_where_the_next_thing_begins() {
    let area = |change: fn(&mut SuperblockV1)| {
        let mut superblock = v1();
        superblock.feature_map = feature::BITMAP_OFFSET;
        change(&mut superblock);
        superblock.metadata().bitmap.map(|area| (area.sector, area.sectors))
    };
    // Superblock at 8, bad-block log at 24, data at 2048.
    assert_eq!(area(|sb| sb.bitmap_offset = 8), Some((16, 8)));
    assert_eq!(area(|sb| (sb.bitmap_offset, sb.bblog_offset) = (8, 0)), Some((16, 2032)));
    assert_eq!(area(|sb| sb.bitmap_offset = 0), None);
    // Before the device's start, or behind everything: promised, but without room.
    assert_eq!(area(|sb| sb.bitmap_offset = -9), Some((0, 0)));
    assert_eq!(area(|sb| sb.bitmap_offset = 4000), Some((4008, 0)));
    let at_the_end: fn(&mut SuperblockV1) = |sb| {
        sb.version = Version::V1_0;
        (sb.super_offset, sb.data_offset, sb.bblog_offset) = (16368, 0, -8);
        sb.bitmap_offset = -16;
    };
    assert_eq!(area(at_the_end), Some((16352, 8)));
}
