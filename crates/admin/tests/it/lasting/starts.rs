//! Starts after a crash, of degraded arrays and of rebuilds that had begun: what is refused, and
//! what the members say afterwards.

use std::sync::Arc;

use array::{Array, Driver};
use host::{Access, Device, Disk};
use md::assemble::{MemberState, Options};
use md::create::Request;
use md::ondisk::ppl::{PplEntry, PplHeader};
use md::ondisk::superblock::{ArrayState, DeviceState, Policy, SuperblockV1};
use md::ondisk::{Area, MemberMetadata, Role, Uuid, Version};
use md::{Layout, Level, MemberIdx};
use raidlab_admin::{Opened, StartError};
use rustix::io::Errno;

use super::flawed::Flawed;
use super::support::{Members, contents, decide, pattern, run, started, wait_for};

/// Changes what the superblock of a member says.
fn change(members: &Members, number: usize, change: impl FnOnce(&mut ArrayState, usize)) {
    let device = members.device(number, Access::ReadWrite);
    let superblock = Opened::device(device.clone()).expect("superblock").superblock;
    let (own, mut state) = (superblock.metadata().dev_number as usize, superblock.state());
    change(&mut state, own);
    let superblock = superblock.with_state(&state, own).unwrap();
    device.write(superblock.sector(), &superblock.encode(512)).unwrap();
}

/// Makes the members of an array say that it was in use, from this position on.
fn make_dirty(members: &Members, resync_offset: u64) {
    for number in 0..members.count {
        change(members, number, |state, _| state.resync_offset = Some(resync_offset));
    }
}

/// A RAID 5 with partial parity logs, which are empty, that was in use, and what it holds.
fn with_logs(change: impl FnOnce(&mut Request)) -> (Members, Vec<u8>) {
    let members = Members::new(4);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.policy = Some(Policy::Ppl);
        change(request);
    });
    let array = run(&members.opened(Access::ReadWrite));
    let expected = pattern(0x5151_7373, array.len_bytes() as usize);
    array.write_at(&expected, 0).unwrap();
    array.stop().unwrap();
    make_dirty(&members, 0);
    for number in 0..members.count {
        let (device, area, set_uuid) = log_of(&members, number);
        device.write_zeroes(area.sector..area.sector + area.sectors).unwrap();
        device.write(area.sector, &PplHeader::empty(set_uuid).encode()).unwrap();
    }
    (members, expected)
}

/// The log area of a member, opened to be changed.
fn log_of(members: &Members, number: usize) -> (Arc<Device>, Area, Uuid) {
    let device = members.device(number, Access::ReadWrite);
    let metadata = Opened::device(device.clone()).expect("superblock").superblock.metadata();
    (device, metadata.ppl.expect("a log").area, metadata.set_uuid)
}

/// An array without its member 2.
fn started_without_2(members: &Members) -> Result<Vec<Driver>, StartError> {
    let mut opened = members.opened(Access::ReadWrite);
    opened.remove(2);
    started(&opened, &Options::default())
}

fn refused_without_2(members: &Members) -> String {
    let before = members.hashes();
    let error = started_without_2(members).err().expect("a refusal").to_string();
    assert!(members.hashes() == before, "nothing was written");
    error
}

/// An entry of this many bytes of partial parity, in the row whose parity is on member 0 or 1.
fn entry(parity_slot: u32, pp_bytes: u32, checksum: u32) -> PplEntry {
    let data_sector = u64::from(3 - parity_slot) * 3 * 128;
    let data_bytes = if pp_bytes == 0 { 3 * 4096 } else { 4096 };
    PplEntry { data_sector, pp_bytes, data_bytes, parity_slot, checksum }
}

fn write_log(members: &Members, slot: usize, entry: PplEntry) {
    let (device, area, set_uuid) = log_of(members, slot);
    let log = PplHeader { entries: vec![entry], ..PplHeader::empty(set_uuid) };
    device.write(area.sector, &log.encode()).unwrap();
}

#[test]
fn a_degraded_array_is_not_started_without_its_partial_parity_logs() {
    let (members, expected) = with_logs(|_| ());
    // Empty logs, as of a new array that was never in sync.
    let error = refused_without_2(&members);
    assert!(error.contains("no partial parity log names a write"), "{error}");
    assert!(error.contains("slot 2 is missing"), "{error}");

    write_log(&members, 1, entry(1, 0, 0));
    let (device, area, _) = log_of(&members, 0);
    device.write_zeroes(area.sector..area.sector + area.sectors).unwrap();
    drop(device);
    let error = refused_without_2(&members);
    assert!(error.contains("m0: ") && error.contains("log"), "{error}");

    // With all members, what a log cannot say is resynced.
    let array = run(&members.opened(Access::ReadWrite));
    wait_for(&array, "resync", |status| status.resync_offset.is_none());
    array.stop().unwrap();
    for lost in 0..4 {
        assert!(contents(&members, &[lost]) == expected, "without {lost}");
    }
}

#[test]
fn a_degraded_array_starts_where_a_log_was_being_written() {
    for is_header_torn in [true, false] {
        let (members, expected) = with_logs(|_| ());
        write_log(&members, 1, entry(1, 0, 0));
        if is_header_torn {
            let (device, area, _) = log_of(&members, 0);
            let mut header = vec![0; 4096];
            device.read(area.sector, &mut header).unwrap();
            header[532] ^= 1;
            device.write(area.sector, &header).unwrap();
        } else {
            // Partial parity with another checksum.
            write_log(&members, 0, entry(0, 4096, 0x1234));
        }
        let array = Array::run_shards(started_without_2(&members).unwrap()).unwrap();
        let mut bytes = vec![0; expected.len()];
        array.read_at(&mut bytes, 0).unwrap();
        assert!(bytes == expected);
        array.stop().unwrap();
    }
}

#[test]
fn a_damaged_log_does_not_matter_where_no_data_is_missing() {
    // All parity is on the last member.
    let (members, expected) =
        with_logs(|request| request.layout = Some(Layout::Raid5(md::Raid5Layout::ParityLast)));
    for number in 0..4 {
        let (device, area, _) = log_of(&members, number);
        device.write(area.sector, &[0x5a; 4096]).unwrap();
    }
    let mut opened = members.opened(Access::ReadWrite);
    opened.pop();
    let array = run(&opened);
    let mut bytes = vec![0; expected.len()];
    array.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected);
    array.stop().unwrap();
}

#[test]
fn a_partial_parity_log_does_not_stand_for_a_resync_that_never_finished() {
    let (members, _) = with_logs(|_| ());
    make_dirty(&members, 2048);
    let error = refused_without_2(&members);
    assert!(error.contains("may be wrong"), "{error}");
    let mut opened = members.opened(Access::ReadWrite);
    opened.remove(2);
    let forced = Options { force: true, ..Options::default() };
    let array = Array::run_shards(started(&opened, &forced).unwrap()).unwrap();
    array.stop().unwrap();
}

#[test]
fn a_forced_start_does_not_call_the_array_clean_with_the_count_at_which_it_was_not() {
    let members = Members::new(4);
    members.create_clean(Level::Raid5);
    make_dirty(&members, 0);
    for number in [0, 3] {
        change(&members, number, |state, _| state.events += 1);
    }
    let mut opened = members.opened(Access::ReadWrite);
    let events = opened[0].superblock.metadata().events;
    let behind = Arc::new(Flawed::new(opened[1].device.clone().expect("a device")));
    opened[1] = Opened::disk(behind.clone()).expect("superblock");
    opened.remove(2);
    let forced = Options { force: true, ..Options::default() };
    let array = Array::run_shards(started(&opened, &forced).unwrap()).unwrap();
    array.write_at(&[1; 4096], 0).unwrap();
    drop(array);
    // The power goes when the member that was behind has been brought up to date.
    let written = behind.metadata.lock().unwrap();
    let superblocks = written.iter().map(|(_, bytes)| SuperblockV1::decode(bytes, Version::V1_2));
    let superblocks: Vec<_> = superblocks.map(|it| it.expect("superblocks").0.state()).collect();
    let caught_up = &superblocks[0];
    assert_eq!((caught_up.events, caught_up.resync_offset), (events, Some(0)));
    assert_eq!(superblocks[1].events, events + 1);
}

#[test]
fn a_rebuild_that_had_begun_begins_again_in_its_slot_and_the_start_says_so() {
    let members = Members::new(4);
    members.create_clean(Level::Raid5);
    change(&members, 2, |state, own| {
        state.devices[own].as_mut().expect("itself").recovery_offset = Some(4096);
    });
    let before = members.hashes();
    let array = run(&members.opened(Access::ReadWrite));
    let notes = array.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("m2 is in sync"), "{notes:?}");
    assert!(notes[0].contains("slot 2") && notes[0].contains("4096"), "{notes:?}");
    array.stop().unwrap();
    assert!(members.hashes() == before, "a start leaves no trace");
    // Also when the power goes while it is in use.
    for stops in [false, true] {
        let array = run(&members.opened(Access::ReadWrite));
        array.write_at(&pattern(77, 1 << 20), 0).unwrap();
        array.flush().unwrap();
        if stops {
            array.stop().unwrap();
        } else {
            drop(array);
            for number in 0..4 {
                // Dirty and degraded would not start: this is about the member.
                change(&members, number, |state, _| state.resync_offset = None);
            }
        }
        let opened = members.opened(Access::ReadOnly);
        let metadata: Vec<_> = opened.iter().map(|opened| opened.superblock.metadata()).collect();
        assert!(metadata.iter().all(|other| other.events == metadata[0].events));
        assert_eq!((metadata[2].role, metadata[2].recovery_offset), (Role::Slot(2), Some(0)));
        assert_eq!(metadata[0].roles[2], Role::Slot(2));
        let recovering = MemberState::Recovering { slot: MemberIdx(2), up_to: 0 };
        let found = decide(&opened, &Options::default());
        assert_eq!(found.members[2].state, recovering);
        assert_eq!(found.read_write.repairs.recoveries[0].from, 0);
    }
    assert!(contents(&members, &[2])[..1 << 20] == pattern(77, 1 << 20));
    let examine =
        std::process::Command::new("mdadm").arg("--examine").arg(members.path(2)).output();
    let Ok(output) = examine else { return println!("mdadm skipped: it is not installed") };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Recovery Offset : 0 sectors"), "{text}");
    assert!(text.contains("Device Role : Active device 2"), "{text}");
}

#[test]
fn an_incomplete_replacement_is_not_trusted_after_writes_that_it_missed() {
    let members = Members::new(3);
    members.create(Level::Raid1, |request| {
        request.assume_clean = true;
        request.raid_devices = 2;
    });
    for number in 0..3 {
        change(&members, number, |state, _| {
            let replacement = DeviceState {
                recovery_offset: Some(4096),
                replacement: true,
                ..DeviceState::new(Role::Slot(0))
            };
            state.devices.resize(3, None);
            state.devices[2] = Some(replacement);
        });
    }
    let mut opened = members.opened(Access::ReadWrite);
    let up_to = Some(4096);
    let state = decide(&opened, &Options::default()).members[2].state.clone();
    assert_eq!(state, MemberState::Replacement { slot: MemberIdx(0), up_to });
    let flawed = Arc::new(Flawed::new(opened[2].device.clone().expect("a device")));
    opened[2] = Opened::disk(flawed.clone()).expect("superblock");
    // Its own superblock cannot be changed.
    *flawed.flaw.lock().unwrap() = Some((0, 128, Errno::NOSPC));
    let array = run(&opened);
    array.write_at(&[1; 4096], 0).unwrap();
    drop((array, opened, flawed));
    let events: Vec<u64> =
        members_metadata(&members).iter().map(|metadata| metadata.events).collect();
    assert!(events[0] >= events[2] + 2, "{events:?}: fresh by count alone");
    // It can: superblocks of one update.
    let updated = members_metadata(&members)[0].updated;
    for number in 0..3 {
        change(&members, number, |state, _| (state.events, state.updated) = (50, updated));
    }
    let array = run(&members.opened(Access::ReadWrite));
    for round in 0..3 {
        array.write_at(&[round; 4096], 0).unwrap();
        wait_for(&array, "clean", |status| !status.dirty);
    }
    array.write_at(&[1; 4096], 0).unwrap();
    drop(array);
    let metadata = members_metadata(&members);
    assert!(metadata.iter().all(|other| other.events == metadata[0].events));
    assert_eq!((metadata[2].role, metadata[2].recovery_offset), (Role::Slot(0), Some(0)));
    assert!(metadata[2].replacement);
}

fn members_metadata(members: &Members) -> Vec<MemberMetadata> {
    let opened = members.opened(Access::ReadOnly);
    opened.iter().map(|opened| opened.superblock.metadata()).collect()
}

#[test]
fn an_array_that_ends_inside_of_a_block_is_refused_by_member_and_field() {
    for (level, field) in [(Level::Raid1, "size"), (Level::Linear, "data_size")] {
        let members = Members::new(2);
        members.create(level, |request| {
            request.assume_clean = level == Level::Raid1;
            request.used_sectors = (level == Level::Raid1).then_some(2002);
            for device in request.devices.iter_mut().flatten().filter(|_| level == Level::Linear) {
                device.sectors -= 3;
            }
        });
        let opened = members.opened(Access::ReadWrite);
        let metadata = opened[0].superblock.metadata();
        let sectors = if field == "size" { 2002 } else { metadata.data_sectors };
        assert!(!sectors.is_multiple_of(8), "{sectors}");
        let array = run(&opened);
        array.stop().unwrap();
        // One member with blocks of 4 KiB is enough.
        let mut opened = opened;
        let device = opened[1].device.clone().expect("a device");
        let flawed = Flawed { logical_block: 4096, ..Flawed::new(device) };
        opened[1] = Opened::disk(Arc::new(flawed)).expect("superblock");
        let before = members.hashes();
        let error = started(&opened, &Options::default()).err().expect("a refusal").to_string();
        let says = format!("m0: the array uses {sectors} sectors of it ({field}), which is not");
        assert!(error.contains(&says), "{error}");
        assert!(error.contains("4096 bytes") && error.contains("m1"), "{error}");
        assert!(members.hashes() == before, "nothing was written");
    }
}

#[test]
fn flags_of_members_in_the_superblocks_decide_where_reads_go() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid10, 2)] {
        let members = Members::new(count);
        members.create(level, |request| {
            request.assume_clean = true;
            request.devices[0].as_mut().expect("a device").write_mostly = true;
        });
        // It differs, so that a read of it is seen.
        let device = members.device(0, Access::ReadWrite);
        let start = Opened::device(device.clone()).expect("superblock").superblock;
        device.write(start.metadata().data_offset, &[0xa5; 64 * 512]).unwrap();
        drop(device);
        let array = run(&members.opened(Access::ReadWrite));
        let mut bytes = vec![1; 8 * 512];
        for at in (0..64).step_by(8).chain(0..8) {
            array.read_at(&mut bytes, at * 512).unwrap();
            assert!(bytes == [0; 8 * 512], "{level}: the other member serves");
        }
        array.stop().unwrap();
    }
}

testkit::repeat_in_shards! {
    a_degraded_array_is_not_started_without_its_partial_parity_logs,
    a_degraded_array_starts_where_a_log_was_being_written,
    a_damaged_log_does_not_matter_where_no_data_is_missing,
    a_partial_parity_log_does_not_stand_for_a_resync_that_never_finished,
    a_forced_start_does_not_call_the_array_clean_with_the_count_at_which_it_was_not,
    a_rebuild_that_had_begun_begins_again_in_its_slot_and_the_start_says_so,
    an_incomplete_replacement_is_not_trusted_after_writes_that_it_missed,
    an_array_that_ends_inside_of_a_block_is_refused_by_member_and_field,
    flags_of_members_in_the_superblocks_decide_where_reads_go,
}
