//! Members that do not complete operations in time, below a load whose every read is compared. What
//! hangs here moves its data only when the hang ends: memory that was given to others by then, or a
//! member that was put back, would get wrong bytes.

use std::time::{Duration, Instant};

use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_array::{
    DriverOptions, Event, Fault, FaultMember, HostOp, MemMember, Member, MemberError, MemberSpec,
    RequestError,
};
use testkit::Rng;

use crate::common::host::{self, Host, call};
use crate::common::{SECTOR, Shards, mem, mems, options, spec};

pub const SECTORS: u64 = 1024;
pub const CHUNK: u64 = 16;
pub const PATIENCE: Duration = Duration::from_secs(20);
const LIMIT: Duration = Duration::from_millis(30);
const HANG: Duration = Duration::from_secs(1);

/// Operations from this number on hang.
pub fn hanging(member: Box<dyn Member>, ops: std::ops::Range<u64>) -> MemberSpec {
    let faults = vec![Fault::Hang { ops, nanos: HANG.as_nanos() as u64 }];
    MemberSpec::ready(FaultMember::new(member, faults))
}

pub fn limited() -> DriverOptions {
    DriverOptions { member_timeout: Some(LIMIT), ..options() }
}

/// An array of which one member hangs from an operation on, and another handle on its memory.
fn new_array(
    level: Level,
    layout: Option<Layout>,
    members: usize,
    slot: usize,
    from: u64,
) -> (Shards, Box<dyn Member>) {
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let inner: Box<dyn Member> = Box::new(MemMember::new(SECTORS).expect("memory"));
    let same = inner.share().expect("memory has many handles");
    let mut all = mems(members, SECTORS);
    all[slot] = hanging(inner, from..u64::MAX);
    let mut spec = spec(level, chunk, all);
    spec.layout = layout.unwrap_or(spec.layout);
    (Shards::new(spec, &limited()).expect("a valid array"), same)
}

fn has_timed_out(event: &Event, slot: usize) -> bool {
    let Event::MemberFailed { member, error: Some(error) } = event else { return false };
    member.index() == slot && error.kind == MemberError::Timeout
}

/// Polls until this is so.
pub fn wait_until(driver: &mut Shards, what: &str, is_so: impl Fn(&mut Shards) -> bool) {
    let start = Instant::now();
    let mut done = Vec::new();
    while !is_so(driver) {
        driver.poll(&mut done);
        assert!(done.is_empty(), "nothing was submitted");
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        driver.wait(Duration::from_millis(5), None);
    }
}

#[test]
fn a_member_that_hangs_is_dropped_and_put_back_when_its_last_operation_has_ended() {
    let far = Layout::Raid10(Raid10Layout::far(2));
    for (number, (level, layout, members)) in [
        (Level::Raid1, None, 2),
        (Level::Raid1, None, 3),
        (Level::Raid4, None, 4),
        (Level::Raid5, None, 4),
        (Level::Raid6, None, 5),
        (Level::Raid10, None, 4),
        (Level::Raid10, Some(far), 4),
    ]
    .into_iter()
    .enumerate()
    {
        for slot in [0, members - 1] {
            let mut rng = Rng::new(number as u64);
            let (mut driver, same) = new_array(level, layout, members, slot, 150);
            let mut host = Host::new(&mut driver, 12);
            let start = Instant::now();
            while host.driver.late_operations() == 0 {
                assert!(start.elapsed() < PATIENCE, "{level}: nothing is late");
                host.run(&mut rng, 20);
            }
            let events = host.driver.take_events();
            assert!(events.iter().any(|event| has_timed_out(event, slot)), "{level}: {events:?}");
            // Service goes on while the operations are still in flight.
            host.run(&mut rng, 100);
            assert!(host.driver.late_operations() > 0, "{level}: ended too early for the test");
            // The same memory again: it waits for them.
            host.driver.add_member(MemberIdx(slot as u16), same).expect("the slot is empty");
            host.run(&mut rng, 100);
            assert!(host.driver.lacking().contains(slot as u16));
            let contents = host.into_contents();
            wait_until(&mut driver, "the member is rebuilt", |driver| driver.lacking().is_empty());
            assert_eq!(driver.late_operations(), 0);
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.run(&mut rng, 100);
            let other = if slot == 0 { members as u16 - 1 } else { 0 };
            host.driver.fail_member(MemberIdx(other));
            host.check_all();
        }
    }
}

#[test]
fn a_second_member_of_raid_6_may_hang_too() {
    let mut rng = Rng::new(6);
    let mut members = mems(4, SECTORS);
    for from in [100, 140] {
        let inner = Box::new(MemMember::new(SECTORS).expect("memory"));
        members.push(hanging(inner, from..u64::MAX));
    }
    let spec = spec(Level::Raid6, CHUNK, members);
    let mut driver = Shards::new(spec, &limited()).expect("a valid array");
    let mut host = Host::new(&mut driver, 12);
    let start = Instant::now();
    while host.driver.failed().len() < 2 {
        assert!(start.elapsed() < PATIENCE, "they are not dropped");
        host.run(&mut rng, 20);
    }
    host.run(&mut rng, 200);
    let contents = host.into_contents();
    wait_until(&mut driver, "all has ended", |driver| driver.late_operations() == 0);
    Host::with_contents(&mut driver, 12, contents).check_all();
}

#[test]
fn a_member_that_the_array_cannot_run_without_stays_and_is_used_again() {
    let chunk = CHUNK;
    let inner = Box::new(MemMember::new(SECTORS).expect("memory"));
    let hangs = hanging(inner, 4..5);
    let spec = spec(Level::Raid0, chunk, vec![hangs, mem(SECTORS)]);
    let mut driver = Shards::new(spec, &limited()).expect("a valid array");
    let data = vec![7; 2 * chunk as usize * SECTOR];
    let write = HostOp::Write { fua: false };
    // Member 0 has the even chunks. Of a write to both members, one hangs.
    let mut failed = 0;
    for _ in 0..6 {
        failed += u32::from(call(&mut driver, write, 0, 2 * chunk, Some(&data)).0.is_err());
    }
    assert!(failed >= 1, "the operation that hangs ends its request");
    assert!(driver.failed().is_empty());
    let events = driver.take_events();
    let is_late = |event: &Event| matches!(event, Event::MemberLate { member: MemberIdx(0), .. });
    assert!(events.iter().any(is_late), "{events:?}");
    // What needs it fails at once; what does not is served.
    assert_eq!(call(&mut driver, HostOp::Read, 0, 8, None).0, Err(RequestError::Io));
    assert_eq!(call(&mut driver, HostOp::Flush, 0, 0, None).0, Err(RequestError::Io));
    assert!(driver.late_operations() > 0, "refused before the operation has ended");
    assert_eq!(host::read(&mut driver, chunk, 8), [7; 8 * SECTOR]);
    wait_until(&mut driver, "the operation ends", |driver| driver.late_operations() == 0);
    let new = vec![9; 2 * chunk as usize * SECTOR];
    assert_eq!(call(&mut driver, write, 0, 2 * chunk, Some(&new)).0, Ok(()));
    assert_eq!(host::read(&mut driver, 0, 2 * chunk), new);
    assert_eq!(call(&mut driver, HostOp::Flush, 0, 0, None).0, Ok(()));
    let events = driver.take_events();
    assert!(events.contains(&Event::MemberBack { member: MemberIdx(0) }), "{events:?}");
}

#[test]
fn a_late_read_of_a_single_copy_fails_and_its_buffer_is_not_used_again_before_it_ends() {
    let inner = Box::new(MemMember::new(SECTORS).expect("memory"));
    let spec = spec(Level::Linear, 0, vec![hanging(inner, 1..2)]);
    let mut driver = Shards::new(spec, &limited()).expect("a valid array");
    host::write(&mut driver, 0, &[7; 8 * SECTOR]);
    let (result, bytes) = call(&mut driver, HostOp::Read, 0, 8, None);
    assert_eq!(result, Err(RequestError::Io));
    assert_eq!(bytes.len(), 8 * SECTOR, "the host has a buffer, another one");
    // All buffers of hosts, while the read has not moved its data.
    let pool = driver.leases().clone();
    let mut leases: Vec<_> = std::iter::from_fn(|| pool.take(8 * SECTOR)).collect();
    assert_eq!(leases.len(), 64, "hosts have as many as before");
    leases.iter_mut().for_each(|lease| lease.bytes_mut().fill(1));
    wait_until(&mut driver, "the read ends", |driver| driver.late_operations() == 0);
    assert!(leases.iter().all(|lease| lease.bytes() == [1; 8 * SECTOR]), "it fills none of them");
    drop(leases);
    assert_eq!(host::read(&mut driver, 0, 8), [7; 8 * SECTOR]);
}

#[test]
fn without_a_limit_the_array_waits() {
    let inner = Box::new(MemMember::new(SECTORS).expect("memory"));
    let spec = spec(Level::Raid1, 0, vec![hanging(inner, 1..2), mem(SECTORS)]);
    let options = DriverOptions { member_timeout: None, ..options() };
    let mut driver = Shards::new(spec, &options).expect("a valid array");
    let start = Instant::now();
    host::write(&mut driver, 0, &[7; 8 * SECTOR]);
    host::write(&mut driver, 0, &[8; 8 * SECTOR]);
    assert!(start.elapsed() >= HANG && driver.failed().is_empty());
}

testkit::repeat_in_shards! {
    a_member_that_hangs_is_dropped_and_put_back_when_its_last_operation_has_ended,
    a_second_member_of_raid_6_may_hang_too,
    a_member_that_the_array_cannot_run_without_stays_and_is_used_again,
    a_late_read_of_a_single_copy_fails_and_its_buffer_is_not_used_again_before_it_ends,
    without_a_limit_the_array_waits,
}
