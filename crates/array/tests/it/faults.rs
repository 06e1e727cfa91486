//! Every kind of scripted fault, alone.

use std::time::Instant;

use md::{Level, MemberIdx};
use raidlab_array::{Event, Fault, HostOp, MemberSpec, RequestError};

use crate::common::host::{self, call};
use crate::common::{self, SECTOR, driver, faulty, mem, spec};

const SECTORS: u64 = 1024;

fn alone(faults: Vec<Fault>) -> common::Shards {
    driver(spec(Level::Linear, 0, vec![faulty(SECTORS, faults)]))
}

fn mirror(faults: Vec<Fault>) -> common::Shards {
    driver(spec(Level::Raid1, 0, vec![faulty(SECTORS, faults), mem(SECTORS)]))
}

fn write_result(driver: &mut common::Shards, at: u64, sectors: u64) -> Result<(), RequestError> {
    let data = vec![7; sectors as usize * SECTOR];
    call(driver, HostOp::Write { fua: false }, at, sectors, Some(&data)).0
}

#[test]
fn a_flipped_read_differs_in_one_bit() {
    let mut driver = alone(vec![Fault::FlipRead { at: 5000 }]);
    host::write(&mut driver, 0, &[0x55; 64 * SECTOR]);
    for (at, sectors) in [(0, 64), (9, 1), (8, 8), (0, 10)] {
        let got = host::read(&mut driver, at, sectors);
        let wrong: Vec<_> = got.iter().enumerate().filter(|(_, byte)| **byte != 0x55).collect();
        let place = 5000 - at as usize * SECTOR;
        assert_eq!(wrong, [(place, &0x54)], "{sectors} sectors at {at}");
    }
    // Its neighbours, and the member itself, are as they were.
    assert_eq!(host::read(&mut driver, 10, 54), [0x55; 54 * SECTOR]);
    assert_eq!(host::read(&mut driver, 0, 9), [0x55; 9 * SECTOR]);
    host::write(&mut driver, 9, &[0; SECTOR]);
    assert_eq!(host::read(&mut driver, 9, 1).iter().map(|b| b.count_ones()).sum::<u32>(), 1);
}

#[test]
fn flips_are_kept_apart_when_a_request_reads_a_member_twice() {
    // RAID 10 far: one request reads two places of one member under one token.
    let layout = md::Layout::Raid10(md::Raid10Layout::far(2));
    let faults = vec![Fault::FlipRead { at: 0 }, Fault::FlipRead { at: 4096 }];
    let mut far = spec(Level::Raid10, 8, vec![faulty(SECTORS, faults), mem(SECTORS)]);
    far.layout = layout;
    let mut driver = driver(far);
    let sectors = driver.info().sectors;
    host::write(&mut driver, 0, &vec![0; sectors as usize * SECTOR]);
    driver.fail_member(MemberIdx(1));
    let got = host::read(&mut driver, 0, sectors);
    let wrong: Vec<_> = (0..got.len()).filter(|at| got[*at] != 0).collect();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

#[test]
fn a_read_error_is_healed_by_writing() {
    let mut driver = alone(vec![Fault::ReadError { range: 4096..8192 }]);
    host::write(&mut driver, 0, &[1; 8 * SECTOR]);
    assert_eq!(call(&mut driver, HostOp::Read, 0, 16, None).0, Err(RequestError::Io));
    host::write(&mut driver, 8, &[2; 4 * SECTOR]);
    assert_eq!(host::read(&mut driver, 8, 4), [2; 4 * SECTOR], "the part that was written");
    assert_eq!(call(&mut driver, HostOp::Read, 12, 1, None).0, Err(RequestError::Io));
    host::write(&mut driver, 13, &[3; SECTOR]);
    assert_eq!(call(&mut driver, HostOp::Read, 12, 1, None).0, Err(RequestError::Io));
    assert_eq!(call(&mut driver, HostOp::Read, 15, 1, None).0, Err(RequestError::Io));
    assert_eq!(host::read(&mut driver, 13, 1), [3; SECTOR], "a hole in the middle");
}

#[test]
fn a_mirror_writes_back_blocks_that_one_side_cannot_read() {
    // Nothing was written: a write would heal the range.
    let mut driver = mirror(vec![Fault::ReadError { range: 0..1024 }]);
    for _ in 0..3 {
        assert_eq!(host::read(&mut driver, 0, 8), [0; 8 * SECTOR]);
    }
    let events = driver.take_events();
    let [Event::Corrected { member, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(member, MemberIdx(0));
    driver.fail_member(MemberIdx(1));
    assert_eq!(host::read(&mut driver, 0, 8), [0; 8 * SECTOR], "healed");
}

#[test]
fn a_write_error_fails_the_member_or_the_request() {
    let fault = || vec![Fault::WriteError { range: 5120..5632 }];
    let mut driver = alone(fault());
    assert_eq!(write_result(&mut driver, 0, 10), Ok(()));
    assert_eq!(write_result(&mut driver, 0, 11), Err(RequestError::Io));
    assert_eq!(call(&mut driver, HostOp::WriteZeroes, 10, 1, None).0, Err(RequestError::Io));
    let mut driver = mirror(fault());
    assert_eq!(write_result(&mut driver, 0, 64), Ok(()));
    assert_eq!(driver.failed().iter().collect::<Vec<_>>(), [0]);
    let failed = |event: &Event| matches!(event, Event::MemberFailed { error: Some(_), .. });
    assert!(driver.take_events().iter().any(failed));
    assert_eq!(host::read(&mut driver, 0, 64), [7; 64 * SECTOR]);
}

#[test]
fn a_member_is_gone_after_its_operations() {
    let mut driver = mirror(vec![Fault::Gone { after: 3 }]);
    for at in 0..3 {
        assert_eq!(write_result(&mut driver, at, 1), Ok(()));
        assert!(driver.failed().is_empty());
    }
    assert_eq!(write_result(&mut driver, 9, 1), Ok(()));
    assert_eq!(driver.failed().len(), 1);
    // The last one is kept, whatever it does.
    driver.fail_member(MemberIdx(1));
    assert_eq!(host::read(&mut driver, 0, 1), [7; SECTOR]);
    assert_eq!(driver.failed().len(), 1);
}

#[test]
fn a_torn_write_stores_its_head_and_says_nothing() {
    let mut driver = alone(vec![Fault::TornWrite { at: 8 * 512 + 100 }]);
    assert_eq!(write_result(&mut driver, 4, 10), Ok(()));
    let got = host::read(&mut driver, 4, 10);
    assert_eq!(got[..4 * SECTOR], [7; 4 * SECTOR]);
    assert_eq!(got[4 * SECTOR..], [0; 6 * SECTOR]);
    // Torn at its very first sector: nothing is stored.
    assert_eq!(write_result(&mut driver, 8, 1), Ok(()));
    assert_eq!(host::read(&mut driver, 8, 1), [0; SECTOR]);
}

#[test]
fn a_delay_is_kept_and_the_order_too() {
    let mut driver = alone(vec![Fault::Delay { nanos: 5_000_000 }]);
    let start = Instant::now();
    for at in 0..4 {
        assert_eq!(write_result(&mut driver, at, 1), Ok(()));
    }
    assert!(start.elapsed().as_millis() >= 20);
    let members = vec![faulty(SECTORS, vec![Fault::Delay { nanos: 1_000_000 }]), mem(SECTORS)];
    let inner = MemberSpec::Array(spec(Level::Raid0, 8, members));
    let mut nested = common::driver(spec(Level::Raid1, 0, vec![inner, mem(SECTORS)]));
    let start = Instant::now();
    assert_eq!(write_result(&mut nested, 0, 64), Ok(()));
    assert!(start.elapsed().as_micros() >= 1000, "an inner member's clock is used");
}

#[test]
fn a_mirror_reads_little_from_a_member_that_answers_late() {
    let late = Fault::Delay { nanos: 5_000_000 };
    for is_stream in [false, true] {
        let mut driver = mirror(vec![late.clone()]);
        let before = driver.leaf_counters();
        let reads = |driver: &mut common::Shards, count: u64| {
            for number in 0..count {
                let at = if is_stream { number } else { number * 37 } % (SECTORS / 8);
                host::read(driver, at * 8, 8);
            }
        };
        reads(&mut driver, 1000);
        let now = driver.leaf_counters();
        let of = |member: usize| now[member].since(&before[member]).reads;
        assert_eq!(of(0) + of(1), 1000);
        assert!(of(0) < 100, "{} reads of the one that is late", of(0));
    }
}

#[test]
fn members_of_arrays_without_metadata_can_be_write_mostly() {
    let mut array = spec(Level::Raid1, 0, vec![mem(SECTORS), mem(SECTORS)]);
    array.data_plane.write_mostly.insert(0);
    let mut driver = driver(array);
    host::write(&mut driver, 0, &[3; 64 * SECTOR]);
    (0..64).for_each(|at| assert_eq!(host::read(&mut driver, at, 1), [3; SECTOR]));
    assert_eq!(driver.leaf_counters()[0].reads, 0);
    driver.fail_member(MemberIdx(1));
    assert_eq!(host::read(&mut driver, 0, 64), [3; 64 * SECTOR]);
    assert_eq!(driver.leaf_counters()[0].reads, 1);
}

testkit::repeat_in_shards! {
    a_flipped_read_differs_in_one_bit,
    flips_are_kept_apart_when_a_request_reads_a_member_twice,
    a_read_error_is_healed_by_writing,
    a_mirror_writes_back_blocks_that_one_side_cannot_read,
    a_write_error_fails_the_member_or_the_request,
    a_member_is_gone_after_its_operations,
    a_torn_write_stores_its_head_and_says_nothing,
    a_delay_is_kept_and_the_order_too,
    a_mirror_reads_little_from_a_member_that_answers_late,
    members_of_arrays_without_metadata_can_be_write_mostly,
}
