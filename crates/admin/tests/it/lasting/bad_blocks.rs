//! Bad block logs: what is listed is read elsewhere, and is written anew.

use std::ops::Range;
use std::sync::atomic::AtomicBool;

use array::{ArrayError, Event, RequestError};
use host::{Access, Disk};
use md::Level;
use md::assemble::Options;
use md::ondisk::bad_blocks::BadBlocks;
use raidlab_admin::{Opened, RebuildOptions, RebuildReport};

use super::support::{Members, SECTORS, contents, mdadm_agrees, pattern, run, started, wait_for};

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

/// An array in sync, and blank devices behind its members.
fn created(level: Level, count: usize, blank: usize) -> Members {
    let mut members = Members::new(count);
    members.create_clean(level);
    members.count += blank;
    for number in count..members.count {
        let file = std::fs::File::create(members.path(number)).unwrap();
        file.set_len(SECTORS * 512).unwrap();
    }
    members
}

/// The rebuild of a device for each of these slots. Gives its report.
fn rebuilt(members: &Members, slots: &[usize], new: &[usize], replace: bool) -> RebuildReport {
    let name = |number: &usize| members.path(*number).into_os_string();
    let numbers = (0..members.count).filter(|number| !new.contains(number));
    let mut options = RebuildOptions::default();
    let named: Vec<_> = match replace {
        true => {
            options.replace = slots.iter().map(name).zip(new.iter().map(name)).collect();
            numbers.map(|number| name(&number)).collect()
        }
        false => {
            options.add = new.iter().map(name).collect();
            numbers.filter(|number| !slots.contains(number)).map(|number| name(&number)).collect()
        }
    };
    let report = raidlab_admin::rebuild(&named, &options, &AtomicBool::new(false), &mut |_| ());
    report.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_rebuild_lists_what_no_source_can_read_and_nothing_else() {
    struct Case {
        level: Level,
        members: usize,
        /// Slots whose members are lost, or replaced.
        slots: &'static [usize],
        replace: bool,
        /// Members that list [64, 66) and [2048, 2064).
        bad: &'static [usize],
        /// One that lists [9000, 9008).
        poor: Option<usize>,
    }
    let case = |level, members, slots, bad, poor| Case {
        level,
        members,
        slots,
        replace: false,
        bad,
        poor,
    };
    let cases = [
        case(Level::Raid1, 2, &[1], &[0], None),
        case(Level::Raid1, 3, &[1], &[0, 2], Some(0)),
        case(Level::Raid10, 4, &[1], &[0], Some(2)),
        case(Level::Raid4, 3, &[2], &[0], None),
        case(Level::Raid5, 3, &[1], &[0], None),
        case(Level::Raid6, 5, &[1], &[0, 3], Some(4)),
        case(Level::Raid6, 5, &[1, 3], &[0], None),
        Case { replace: true, ..case(Level::Raid1, 2, &[1], &[0, 1], Some(1)) },
        Case { replace: true, ..case(Level::Raid5, 3, &[1], &[0, 1], Some(1)) },
        Case { replace: true, ..case(Level::Raid6, 5, &[1], &[0, 1, 3], Some(1)) },
    ];
    // In granules of 8 sectors.
    let expected = [64..72, 2048..2064];
    for Case { level, members: count, slots, replace, bad, poor } in cases {
        let name = format!("{level} of {count}, {slots:?}, replaced: {replace}");
        let members = created(level, count, slots.len());
        let new: Vec<usize> = (count..count + slots.len()).collect();
        let all = |without: &[usize]| {
            let opened = (0..members.count).filter(|number| !without.contains(number));
            let opened = opened.map(|at| Opened::device(members.device(at, Access::ReadWrite)));
            opened.map(|opened| opened.expect("superblock")).collect::<Vec<_>>()
        };
        let array = run(&all(&new));
        let contents = pattern(0x1234_5677, array.len_bytes() as usize);
        array.write_at(&contents, 0).unwrap();
        array.stop().unwrap();
        for number in bad {
            let more = (poor == Some(*number)).then_some(9000..9008);
            let ranges: Vec<_> = [64..66, 2048..2064].into_iter().chain(more).collect();
            spoil(&members, *number, &ranges);
        }
        if let Some(number) = poor.filter(|number| !bad.contains(number)) {
            spoil(&members, number, std::slice::from_ref(&(9000..9008)));
        }
        let report = rebuilt(&members, slots, &new, replace);
        assert!(report.is_complete() && report.not_rebuilt.is_empty(), "{name}: {report:?}");
        assert!(report.is_clean, "{name}: {report:?}");
        let metadata = all(slots).pop().expect("a new one").superblock.metadata();
        let start = metadata.data_offset;
        for number in &new {
            let (in_use, listed) = bad_blocks(&members, *number);
            let on_device = expected.iter().map(|it| start + it.start..start + it.end);
            assert!(in_use, "{name}: the superblock says so");
            assert_eq!(listed.ranges(), on_device.collect::<Vec<_>>(), "{name}: {number}");
            let path = members.path(*number).display().to_string();
            let of = report.listed_bad.iter().filter(|it| it.member == path);
            let of: Vec<_> = of.map(|it| (it.member_sector, it.sectors)).collect();
            assert_eq!(of, [(start + 64, 8), (start + 2048, 16)], "{name}");
        }
        mdadm_agrees(&members, &name);

        let array = run(&all(slots));
        let mut lost = 0;
        let mut bytes = vec![0; 4096];
        for at in (0..contents.len()).step_by(4096) {
            match array.read_at(&mut bytes, at as u64) {
                Ok(()) => assert!(bytes == contents[at..at + 4096], "{name}: wrong at {at}"),
                Err(error) => {
                    assert_eq!(error, ArrayError::Request(RequestError::Io));
                    lost += 1;
                }
            }
        }
        // Three granules of each member of which the data are lost, once for all copies.
        assert!(lost >= 1 && lost <= 3 * count, "{name}: {lost} blocks cannot be read");
        let contents = pattern(0x7777_5555, contents.len());
        array.write_at(&contents, 0).unwrap();
        array.flush().unwrap();
        let mut bytes = vec![0; contents.len()];
        array.read_at(&mut bytes, 0).unwrap();
        assert!(bytes == contents, "{name}: all of it can be read again");
        array.stop().unwrap();
        let serving = (0..members.count).filter(|number| !slots.contains(number));
        for number in serving {
            assert!(bad_blocks(&members, number).1.is_empty(), "{name}: {number}");
        }
    }
}

#[test]
fn a_mirror_that_grows_lists_what_it_cannot_read() {
    let members = created(Level::Raid1, 2, 1);
    spoil(&members, 0, &[64..72, 300..308]);
    spoil(&members, 1, &[64..72, 400..408]);
    let name = |number: usize| members.path(number).into_os_string();
    let options =
        RebuildOptions { add: vec![name(2)], raid_devices: Some(3), ..RebuildOptions::default() };
    let report =
        raidlab_admin::rebuild(&[name(0), name(1)], &options, &AtomicBool::new(false), &mut |_| ());
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.is_complete(), "{report:?}");
    let start = members.opened(Access::ReadOnly)[2].superblock.metadata().data_offset;
    let only = start + 64..start + 72;
    assert_eq!(bad_blocks(&members, 2).1.ranges(), std::slice::from_ref(&only));
    for source in [0, 1] {
        assert!(bad_blocks(&members, source).1.overlaps(start + 64..start + 72));
    }
}

#[test]
fn a_member_whose_log_is_full_stays_out_of_sync() {
    let members = created(Level::Raid6, 5, 2);
    // As many as a log has room for, and as many more.
    for (number, from) in [(0, 64), (2, 64 + 512 * 16)] {
        let ranges: Vec<_> = (0..512).map(|at| from + at * 16..from + at * 16 + 8).collect();
        spoil(&members, number, &ranges);
    }
    let report = rebuilt(&members, &[1, 3], &[5, 6], false);
    assert!(!report.is_complete() && report.is_clean, "{report:?}");
    assert!(!report.not_rebuilt.is_empty() && report.failed.is_empty(), "{report:?}");
    for number in [5, 6] {
        let (in_use, bad) = bad_blocks(&members, number);
        assert_eq!((in_use, bad.ranges().len()), (true, 512));
        let opened = Opened::device(members.device(number, Access::ReadOnly)).expect("superblock");
        assert!(opened.superblock.metadata().recovery_offset.is_some(), "not in sync");
    }
}

testkit::repeat_in_shards! {
    bad_blocks_are_read_elsewhere_and_are_good_again_when_they_have_been_written,
    a_bad_block_without_redundancy_is_an_error_and_costs_no_member_its_place,
    a_fua_write_over_a_listed_bad_block_is_durable_with_the_list,
    a_list_of_bad_blocks_that_is_none_is_refused_by_name,
    a_rebuild_lists_what_no_source_can_read_and_nothing_else,
    a_mirror_that_grows_lists_what_it_cannot_read,
    a_member_whose_log_is_full_stays_out_of_sync,
}
