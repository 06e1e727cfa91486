//! Members that join an array while it runs and are rebuilt, below a load whose every read is
//! compared: what they serve afterwards is what was written before, during and after the rebuild.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::host::{Access, Device, DeviceOptions, Location};
use md::ondisk::{Area, BadBlockArea};
use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_array::{
    AddError, BadBlockList, BadBlockMember, Driver, DriverOptions, Event, Fault, FaultControl,
    FaultMember, HostOp, MemMember, Member, MemberFlags, MemberSpec, RequestError,
};
use testkit::Rng;

use crate::common::host::{self, Host, call};
use crate::common::{SECTOR, Shards, boxed_mem, driver, faulty, mem, mems, spec};

const SECTORS: u64 = 1024;
const CHUNK: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(20);

fn new_array(level: Level, layout: Option<Layout>, members: usize) -> Shards {
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let mut spec = spec(level, chunk, mems(members, SECTORS));
    spec.layout = layout.unwrap_or(spec.layout);
    driver(spec)
}

/// A blank member that takes its time, so that requests come during its rebuild.
fn slow() -> Box<dyn Member> {
    let faults = vec![Fault::Delay { nanos: 300_000 }];
    Box::new(FaultMember::new(boxed_mem(SECTORS), faults))
}

fn in_sync(slot: u16) -> Event {
    Event::MemberInSync { member: MemberIdx(slot), device: None }
}

/// Polls until the event comes.
fn wait_for(driver: &mut Shards, event: Event) {
    let start = Instant::now();
    let mut done = Vec::new();
    loop {
        driver.poll(&mut done);
        assert!(done.is_empty(), "nothing was submitted");
        if driver.take_events().contains(&event) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{event:?} never comes: {:?}", driver.lacking());
        driver.wait(Duration::from_millis(10), None);
    }
}

/// Lets all shards process the end of the rebuilds: the event is that of shard 0.
fn wait_for_all_shards(driver: &mut Shards) {
    let start = Instant::now();
    while !driver.lacking().is_empty() {
        assert!(start.elapsed() < PATIENCE, "{:?} is not rebuilt", driver.lacking());
        driver.poll(&mut Vec::new());
        driver.wait(Duration::from_millis(10), None);
    }
}

/// Fails a member, and lets all shards drop it.
fn fail(driver: &mut Shards, slot: u16) {
    driver.fail_member(MemberIdx(slot));
    let (start, mut done) = (Instant::now(), Vec::new());
    while !driver.failed().contains(slot) {
        assert!(start.elapsed() < PATIENCE, "member {slot} is not dropped");
        driver.poll(&mut done);
    }
}

#[test]
fn a_member_that_joins_below_a_load_carries_the_array_afterwards() {
    let far = Layout::Raid10(Raid10Layout::far(2));
    let offset = Layout::Raid10(Raid10Layout::offset(2));
    for (number, (level, layout, members)) in [
        (Level::Raid1, None, 2),
        (Level::Raid1, None, 3),
        (Level::Raid4, None, 3),
        (Level::Raid5, None, 4),
        (Level::Raid6, None, 5),
        (Level::Raid10, None, 4),
        (Level::Raid10, Some(far), 4),
        (Level::Raid10, Some(offset), 5),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng::new(number as u64);
        let mut driver = new_array(level, layout, members);
        let mut contents = Host::new(&mut driver, 1).into_contents();
        for lost in [0, members as u16 - 1] {
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.run(&mut rng, 100);
            contents = host.into_contents();
            fail(&mut driver, lost);
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.run(&mut rng, 200);
            host.driver.add_member(MemberIdx(lost), slow()).expect("the slot is empty");
            host.run(&mut rng, 400);
            contents = host.into_contents();
            wait_for(&mut driver, in_sync(lost));
            wait_for_all_shards(&mut driver);
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.run(&mut rng, 100);
            // Another one goes: the new member is needed.
            let other = if lost == 0 { members as u16 - 1 } else { 0 };
            contents = host.into_contents();
            fail(&mut driver, other);
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.check_all();
            contents = host.into_contents();
            driver.add_member(MemberIdx(other), boxed_mem(SECTORS)).expect("the slot is empty");
            wait_for(&mut driver, in_sync(other));
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.check_all();
            contents = host.into_contents();
        }
    }
}

#[test]
fn a_member_that_joins_write_mostly_is_read_only_when_the_other_is_gone() {
    let mut rng = Rng::new(31);
    let mut driver = new_array(Level::Raid1, None, 2);
    let mut host = Host::new(&mut driver, 12);
    host.run(&mut rng, 100);
    let mut contents = host.into_contents();
    for write_mostly in [true, false] {
        fail(&mut driver, 1);
        let flags = MemberFlags { write_mostly, failfast: false };
        driver.add_member_as(MemberIdx(1), boxed_mem(SECTORS), flags).expect("the slot is empty");
        wait_for(&mut driver, in_sync(1));
        wait_for_all_shards(&mut driver);
        let before = driver.leaf_counters()[1].reads;
        let mut host = Host::with_contents(&mut driver, 12, contents);
        host.run(&mut rng, 300);
        contents = host.into_contents();
        let reads = driver.leaf_counters()[1].reads - before;
        assert_eq!(reads == 0, write_mostly, "{reads} reads");
    }
}

#[test]
fn two_members_of_raid_6_are_rebuilt_together_and_one_after_the_other() {
    let mut rng = Rng::new(66);
    let mut driver = new_array(Level::Raid6, None, 5);
    let mut host = Host::new(&mut driver, 12);
    host.run(&mut rng, 200);
    let contents = host.into_contents();
    fail(&mut driver, 1);
    fail(&mut driver, 4);
    let mut host = Host::with_contents(&mut driver, 12, contents);
    host.driver.add_member(MemberIdx(1), slow()).expect("the slot is empty");
    host.run(&mut rng, 60);
    host.driver.add_member(MemberIdx(4), slow()).expect("the slot is empty");
    host.run(&mut rng, 300);
    let contents = host.into_contents();
    wait_for_all_shards(&mut driver);
    fail(&mut driver, 0);
    fail(&mut driver, 2);
    Host::with_contents(&mut driver, 12, contents).check_all();
}

#[test]
fn a_member_that_fails_while_it_is_rebuilt_leaves_the_slot_to_another() {
    for level in [Level::Raid1, Level::Raid5, Level::Raid6] {
        let mut rng = Rng::new(5);
        let mut driver = new_array(level, None, 4);
        let mut host = Host::new(&mut driver, 12);
        host.run(&mut rng, 100);
        let contents = host.into_contents();
        fail(&mut driver, 2);
        let faults = vec![Fault::WriteError { range: 300 << 10..301 << 10 }];
        let bad = Box::new(FaultMember::new(boxed_mem(SECTORS), faults));
        driver.add_member(MemberIdx(2), bad).expect("the slot is empty");
        let start = Instant::now();
        loop {
            driver.poll(&mut Vec::new());
            let events = driver.take_events();
            let is_lost = |event: &Event| {
                matches!(event, Event::MemberFailed { member: MemberIdx(2), error: Some(_) })
            };
            if events.iter().any(is_lost) {
                break;
            }
            assert!(!events.contains(&in_sync(2)), "it cannot be");
            assert!(start.elapsed() < PATIENCE, "the member does not fail");
            driver.wait(Duration::from_millis(10), None);
        }
        let mut host = Host::with_contents(&mut driver, 12, contents);
        host.run(&mut rng, 50);
        let contents = host.into_contents();
        driver.add_member(MemberIdx(2), boxed_mem(SECTORS)).expect("the slot is empty");
        wait_for(&mut driver, in_sync(2));
        fail(&mut driver, 1);
        Host::with_contents(&mut driver, 12, contents).check_all();
    }
}

#[test]
fn what_no_source_can_read_holds_the_rebuild_until_it_is_written() {
    let bad = 40 << 10..44 << 10;
    let members =
        vec![faulty(SECTORS, vec![Fault::ReadError { range: bad }]), mem(SECTORS), mem(SECTORS)];
    let mut driver = driver(spec(Level::Raid5, CHUNK, members));
    fail(&mut driver, 2);
    driver.add_member(MemberIdx(2), boxed_mem(SECTORS)).expect("the slot is empty");
    let start = Instant::now();
    while driver.not_rebuilt().is_empty() {
        assert!(start.elapsed() < PATIENCE, "the rebuild does not come to the bad block");
        driver.poll(&mut Vec::new());
        driver.wait(Duration::from_millis(10), None);
    }
    let (member, at, sectors) = driver.not_rebuilt()[0];
    assert_eq!(member, None, "all that are being rebuilt");
    assert!((at.0..at.0 + sectors).contains(&80), "from {at:?}, {sectors} sectors");
    assert!(driver.lacking().contains(2) && driver.is_rebuilding());
    // Row 5 holds it, and its data are written anew.
    let row = 2 * CHUNK;
    let (result, _) = call(&mut driver, HostOp::Read, 5 * row, row, None);
    assert_eq!(result, Err(RequestError::Io));
    host::write(&mut driver, 5 * row, &vec![0x77; row as usize * SECTOR]);
    wait_for(&mut driver, in_sync(2));
    fail(&mut driver, 0);
    assert_eq!(host::read(&mut driver, 5 * row, row), vec![0x77; row as usize * SECTOR]);
}

/// A blank member with a bad-block log in this directory.
fn with_log(dir: &tempfile::TempDir, name: &str) -> Box<dyn Member> {
    let path = dir.path().join(name);
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(4096).expect("room for a log");
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    let device = Device::open(&Location::whole(path), options).expect("a device");
    let area = Area { sector: 0, sectors: 8 };
    let place = BadBlockArea { area, shift: 0, in_use: false };
    let list = BadBlockList::read(Arc::new(device), place, 0).expect("an empty list");
    Box::new(BadBlockMember::new(slow(), list))
}

#[test]
fn what_no_source_can_read_is_listed_as_bad_below_a_load_until_it_is_written() {
    let bad = || Fault::ReadError { range: 40 << 10..44 << 10 };
    let dir = tempfile::tempdir().expect("a directory");
    for (level, members, sources) in [
        (Level::Raid1, 2, &[0][..]),
        (Level::Raid10, 4, &[0]),
        (Level::Raid5, 4, &[3]),
        (Level::Raid6, 5, &[0, 2]),
    ] {
        let mut listed = 0;
        for seed in 0..4 {
            let (mut rng, control) = (Rng::new(seed), FaultControl::default());
            control.set_on(false);
            let member = |at: usize| {
                let faults = if sources.contains(&at) { vec![bad()] } else { Vec::new() };
                let member = FaultMember::switched(boxed_mem(SECTORS), faults, &control);
                MemberSpec::ready(member)
            };
            let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
            let mut driver = driver(spec(level, chunk, (0..members).map(member).collect()));
            let mut host = Host::new(&mut driver, 12);
            host.run(&mut rng, 100);
            let contents = host.into_contents();
            fail(&mut driver, 1);
            control.set_on(true);
            let new = with_log(&dir, &format!("{level}-{seed}"));
            driver.add_member(MemberIdx(1), new).expect("the slot is empty");
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.may_fail = true;
            host.run(&mut rng, 12);
            let start = Instant::now();
            let (mut is_in_sync, mut contents) = (false, host.into_contents());
            while !is_in_sync {
                assert!(start.elapsed() < PATIENCE, "{level}: {:?}", driver.not_rebuilt());
                for event in driver.take_events() {
                    is_in_sync |= event == in_sync(1);
                    if let Event::BadBlocksAdded { member, replaces, sector, sectors } = event {
                        assert_eq!((member, replaces, sectors), (MemberIdx(1), false, 8));
                        assert_eq!(sector.0, 80, "{level}: where the sources are bad");
                        listed += 1;
                    }
                }
                let mut host = Host::with_contents(&mut driver, 12, contents);
                host.may_fail = true;
                host.run(&mut rng, 1);
                contents = host.into_contents();
            }
            wait_for_all_shards(&mut driver);
            let mut host = Host::with_contents(&mut driver, 12, contents);
            host.may_fail = true;
            host.check_all();
            // A write takes the entry out, and makes the sources good.
            host.write_all(&mut rng);
            host.may_fail = false;
            host.check_all();
            let contents = host.into_contents();
            fail(&mut driver, 0);
            Host::with_contents(&mut driver, 12, contents).check_all();
        }
        assert!(listed > 0, "{level}: nothing was listed as bad");
    }
}

#[test]
fn what_cannot_join_is_refused_with_the_reason() {
    let mut driver = new_array(Level::Raid5, None, 3);
    let refused = driver.add_member(MemberIdx(1), boxed_mem(SECTORS));
    assert!(matches!(refused, Err(AddError::NotEmpty(MemberIdx(1)))));
    fail(&mut driver, 1);
    let small = driver.add_member(MemberIdx(1), boxed_mem(SECTORS - 8)).expect_err("too small");
    assert_eq!(small.to_string(), "the member has 1016 sectors, and the array uses 1024");
    driver.add_member(MemberIdx(1), slow()).expect("the slot is empty");
    let again = driver.add_member(MemberIdx(1), boxed_mem(SECTORS));
    assert!(matches!(again, Err(AddError::NotEmpty(MemberIdx(1)))));
    wait_for(&mut driver, in_sync(1));
    let mut striped = new_array(Level::Raid0, None, 2);
    let member = Box::new(MemMember::new(SECTORS).expect("memory"));
    let refused = striped.add_member(MemberIdx(0), member);
    assert!(matches!(refused, Err(AddError::NoRedundancy)));
}

#[test]
fn an_array_without_metadata_stops_in_the_middle_of_a_rebuild() {
    let spec = spec(Level::Raid5, CHUNK, mems(4, SECTORS));
    let mut driver = Driver::new(spec, &DriverOptions::default()).expect("an array");
    driver.fail_member(MemberIdx(1));
    driver.poll(&mut Vec::new());
    driver.add_member(MemberIdx(1), slow()).expect("the slot is empty");
    let (start, mut done) = (Instant::now(), Vec::new());
    while !driver.failed().is_empty() {
        assert!(start.elapsed() < PATIENCE, "it is not bound");
        driver.poll(&mut done);
    }
    (0..20).for_each(|_| driver.poll(&mut done));
    assert!(driver.stop());
}

testkit::repeat_in_shards! {
    an_array_without_metadata_stops_in_the_middle_of_a_rebuild,
    a_member_that_joins_below_a_load_carries_the_array_afterwards,
    a_member_that_joins_write_mostly_is_read_only_when_the_other_is_gone,
    two_members_of_raid_6_are_rebuilt_together_and_one_after_the_other,
    a_member_that_fails_while_it_is_rebuilt_leaves_the_slot_to_another,
    what_no_source_can_read_holds_the_rebuild_until_it_is_written,
    what_no_source_can_read_is_listed_as_bad_below_a_load_until_it_is_written,
    what_cannot_join_is_refused_with_the_reason,
}
