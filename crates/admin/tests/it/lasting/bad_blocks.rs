//! Bad block logs: what is listed is read elsewhere, and is written anew.

use std::ops::Range;

use admin::Opened;
use array::{ArrayError, Event, RequestError};
use device::{Access, Disk};
use md::Level;
use md::assemble::Options;
use md::ondisk::bad_blocks::BadBlocks;

use super::support::{Members, contents, mdadm_agrees, pattern, run, started, wait_for};

/// A member's bad block area from its superblock, and the list.
fn bad_blocks(members: &Members, number: usize) -> (bool, BadBlocks) {
    let device = members.device(number, Access::ReadOnly);
    let opened = Opened::device(device.clone()).expect("superblock");
    let place = opened.superblock.metadata().bad_blocks.expect("room for a list");
    let mut log = vec![0; place.area.sectors as usize * 512];
    device.read(place.area.sector, &mut log).unwrap();
    (place.in_use, BadBlocks::decode(&log, place.shift).unwrap())
}

/// Lists sectors of a member as bad, as Linux would, and puts something else there.
fn spoil(members: &Members, number: usize, ranges: &[Range<u64>]) {
    let device = members.device(number, Access::ReadWrite);
    let superblock = Opened::device(device.clone()).expect("superblock").superblock;
    let (metadata, mut state) = (superblock.metadata(), superblock.state());
    let own = metadata.dev_number as usize;
    state.devices[own].as_mut().expect("itself").bad_blocks_in_use = true;
    let superblock = superblock.with_state(&state, own).unwrap();
    device.write(superblock.sector(), &superblock.encode(512)).unwrap();
    let place = metadata.bad_blocks.expect("room for a list");
    let mut bad = BadBlocks::new();
    let start = metadata.data_offset;
    bad.extend(ranges.iter().map(|range| start + range.start..start + range.end));
    device.write(place.area.sector, &bad.encode(place.area.sectors, place.shift).unwrap()).unwrap();
    for range in ranges {
        let spoiled = vec![0xa5; (range.end - range.start) as usize * 512];
        device.write(metadata.data_offset + range.start, &spoiled).unwrap();
    }
}

#[test]
fn bad_blocks_are_read_elsewhere_and_are_good_again_when_they_have_been_written() {
    let ranges = [7..8, 2048..2064, 5000..5003, 9000..9600];
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 5)] {
        let members = Members::new(count);
        members.create_clean(level);
        let array = run(&members.opened(Access::ReadWrite));
        let mut expected = pattern(0x1234_5677, array.len_bytes() as usize);
        array.write_at(&expected, 0).unwrap();
        array.stop().unwrap();
        spoil(&members, 1, &ranges);
        let listed = bad_blocks(&members, 1);

        let array = run(&members.opened(Access::ReadWrite));
        let mut bytes = vec![0; expected.len()];
        array.read_at(&mut bytes, 0).unwrap();
        assert!(bytes == expected, "{level}: read");
        // Unaligned, and only part of what is bad.
        let new = pattern(0x7654_3211, 512 * 301);
        array.write_at(&new, 512 * 4900).unwrap();
        expected[512 * 4900..][..new.len()].copy_from_slice(&new);
        // A crash: the list on disk names what is good again, or does not, but never the reverse.
        drop(array);
        let (_, bad) = bad_blocks(&members, 1);
        assert!(
            bad.ranges().iter().all(|range| listed.1.within(range.clone()).eq([range.clone()]))
        );
        assert!(contents(&members, &[]) == expected, "{level}: after the crash");

        let array = run(&members.opened(Access::ReadWrite));
        expected = pattern(0x3333_5555, expected.len());
        array.write_at(&expected, 0).unwrap();
        wait_for(&array, "resync", |status| status.resync_offset.is_none());
        array.stop().unwrap();
        assert!(bad_blocks(&members, 1).1.is_empty(), "{level}: all has been written");
        for lost in 0..count {
            assert!(contents(&members, &[lost]) == expected, "{level} without {lost}");
        }
        // The next superblock has no list.
        let array = run(&members.opened(Access::ReadWrite));
        array.write_at(&expected[..4096], 0).unwrap();
        array.stop().unwrap();
        assert!(!bad_blocks(&members, 1).0, "{level}: no list");
        mdadm_agrees(&members, &format!("{level} after bad blocks"));
    }
}

#[test]
fn a_bad_block_without_redundancy_is_an_error_and_costs_no_member_its_place() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    spoil(&members, 0, &[64..72, 300..301]);
    spoil(&members, 1, &[68..80, 90..91]);
    let array = run(&members.opened(Access::ReadWrite));
    let mut bytes = vec![1; 8 * 512];
    assert_eq!(array.read_at(&mut bytes, 64 * 512), Err(ArrayError::Request(RequestError::Io)));
    array.read_at(&mut bytes, 296 * 512).unwrap();
    array.read_at(&mut bytes[..4 * 512], 64 * 512).unwrap();
    assert!(bytes == vec![0; 8 * 512], "read from the other copy");
    array.write_at(&[3; 16 * 512], 64 * 512).unwrap();
    array.read_at(&mut bytes, 64 * 512).unwrap();
    assert!(bytes == vec![3; 8 * 512]);
    // What could be read elsewhere was written back; no member was failed.
    let events = array.take_events();
    let is_corrected = |event: &Event| matches!(event, Event::Corrected { .. });
    assert!(!events.is_empty() && events.iter().all(is_corrected), "{events:?}");
    array.stop().unwrap();
    let ranges = |number| bad_blocks(&members, number).1.sectors();
    assert_eq!((ranges(0), ranges(1)), (0, 1), "what was not touched is still bad");
}

#[test]
fn a_fua_write_over_a_listed_bad_block_is_durable_with_the_list() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    spoil(&members, 1, &[64..72, 80..88, 300..301]);
    let opened = members.opened(Access::ReadWrite);
    let metadata = opened[1].superblock.metadata();
    let (place, start) = (metadata.bad_blocks.expect("a list"), metadata.data_offset);
    // What is on the member now, while the array has it.
    let listed = || {
        let log = place.area.sector as usize * 512;
        let bytes = std::fs::read(members.path(1)).unwrap();
        let log = &bytes[log..log + place.area.sectors as usize * 512];
        BadBlocks::decode(log, place.shift).unwrap()
    };
    let on_device = |ranges: &[Range<u64>]| -> Vec<_> {
        ranges.iter().map(|range| start + range.start..start + range.end).collect()
    };
    let array = run(&opened);
    // Written, but not durable: it stays on the list.
    array.write_at(&[2; 8 * 512], 80 * 512).unwrap();
    let mut lease = array.lease(4 * 512);
    lease.bytes_mut().fill(3);
    array.write_fua(lease, 66 * 512).wait().unwrap();
    assert_eq!(listed().ranges(), on_device(&[64..66, 70..72, 80..88, 300..301]));
    array.flush().unwrap();
    assert_eq!(listed().ranges(), on_device(&[64..66, 70..72, 300..301]));
    drop(array);
}

#[test]
fn a_list_of_bad_blocks_that_is_none_is_refused_by_name() {
    let members = Members::new(2);
    members.create_clean(Level::Raid1);
    spoil(&members, 1, &[64..72, 90..91]);
    let device = members.device(1, Access::ReadWrite);
    let place = Opened::device(device.clone()).unwrap().superblock.metadata().bad_blocks.unwrap();
    device.write(place.area.sector, &[0; 512]).unwrap();
    drop(device);
    let before = members.hashes();
    let error = started(&members.opened(Access::ReadWrite), &Options::default()).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("m1: its list of bad blocks: ") && text.contains("entry"), "{text}");
    assert!(members.hashes() == before, "nothing was written");
}

testkit::repeat_in_shards! {
    bad_blocks_are_read_elsewhere_and_are_good_again_when_they_have_been_written,
    a_bad_block_without_redundancy_is_an_error_and_costs_no_member_its_place,
    a_fua_write_over_a_listed_bad_block_is_durable_with_the_list,
    a_list_of_bad_blocks_that_is_none_is_refused_by_name,
}
