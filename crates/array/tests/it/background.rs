//! Background work below a load: its order, pause and resume, the pace while it runs, progress and
//! rate; and resyncs of arrays without metadata.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use engine::IntentMap;
use md::{Layout, Level, MemberIdx, Raid10Layout};
use raidlab_array::{
    Array, BackgroundState, BackgroundWork, DriverOptions, Fault, FaultMember, MemberSpec, Pace,
    ScrubMode,
};
use testkit::Rng;

use crate::common::host::{self, Host};
use crate::common::store::{self, Kind, Store};
use crate::common::{self, SECTOR, Shards, boxed_mem, driver, mems, spec};

const SECTORS: u64 = 1024;
/// Several ranges of background work.
const LARGE: u64 = 8192;
const CHUNK: u64 = 16;
const PATIENCE: Duration = Duration::from_secs(20);

fn array_spec(
    level: Level,
    layout: Option<Layout>,
    members: Vec<MemberSpec>,
) -> raidlab_array::ArraySpec {
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let mut spec = spec(level, chunk, members);
    spec.layout = layout.unwrap_or(spec.layout);
    spec
}

/// Members that take their time, so that requests come while background work runs.
fn slow(count: usize) -> Vec<MemberSpec> {
    let faults = || vec![Fault::Delay { nanos: 100_000 }];
    let member = |_| MemberSpec::ready(FaultMember::new(boxed_mem(SECTORS), faults()));
    (0..count).map(member).collect()
}

fn states(driver: &Shards) -> Vec<(BackgroundWork, BackgroundState)> {
    driver.background().iter().map(|status| (status.work, status.state)).collect()
}

fn wait_until(driver: &mut Shards, is_so: impl Fn(&Shards) -> bool) {
    let (start, mut done) = (Instant::now(), Vec::new());
    while !is_so(driver) {
        assert!(start.elapsed() < PATIENCE, "{:?}", driver.background());
        driver.poll(&mut done);
        assert!(done.is_empty(), "nothing was submitted");
        driver.wait(Duration::from_millis(10), None);
    }
}

fn poll(driver: &mut Shards, times: usize) {
    for _ in 0..times {
        driver.poll(&mut Vec::new());
        driver.wait(Duration::from_millis(1), None);
    }
}

#[test]
fn a_scrub_waits_for_the_resync_and_paused_work_keeps_its_turn() {
    use BackgroundState::{Paused, Running, Waiting};
    use BackgroundWork::{Check, Resync};
    let far = Layout::Raid10(Raid10Layout::far(2));
    for (number, (level, layout)) in [
        (Level::Raid1, None),
        (Level::Raid4, None),
        (Level::Raid5, None),
        (Level::Raid6, None),
        (Level::Raid10, None),
        (Level::Raid10, Some(far)),
    ]
    .into_iter()
    .enumerate()
    {
        let mut rng = Rng::new(number as u64);
        let mut driver = driver(array_spec(level, layout, slow(4)));
        let contents = Host::new(&mut driver, 1).into_contents();
        assert_eq!(states(&driver), []);
        assert!(driver.start_resync() && !driver.start_resync(), "one at a time");
        assert!(driver.start_scrub(ScrubMode::Check, 0));
        assert_eq!(states(&driver), [(Resync, Running), (Check, Waiting)]);
        driver.pause_background(Resync, true);
        poll(&mut driver, 20);
        assert_eq!(states(&driver), [(Resync, Paused), (Check, Waiting)]);
        assert_eq!((driver.background_done(Resync), driver.background_done(Check)), (0, 0));
        driver.pause_background(Check, true);
        driver.pause_background(Resync, false);
        // Reads and writes beside the resync, and each read is compared.
        let mut host = Host::with_contents(&mut driver, 12, contents);
        host.run(&mut rng, 300);
        let contents = host.into_contents();
        wait_until(&mut driver, |driver| states(driver) == [(Check, Paused)]);
        poll(&mut driver, 20);
        assert_eq!(driver.background_done(Check), 0);
        driver.pause_background(Check, false);
        let mut host = Host::with_contents(&mut driver, 12, contents);
        host.run(&mut rng, 300);
        let contents = host.into_contents();
        wait_until(&mut driver, |driver| states(driver).is_empty());
        assert_eq!(driver.take_mismatches(), [], "{level}");
        let status = driver.scrub().expect("it was started");
        assert_eq!((status.checked, status.skipped), (status.span, 0), "{level}");
        driver.fail_member(MemberIdx(1));
        wait_until(&mut driver, |driver| driver.failed().contains(1));
        Host::with_contents(&mut driver, 12, contents).check_all();
    }
}

#[test]
fn a_resync_is_cancelled_before_its_first_range_and_after_its_last() {
    use BackgroundState::{Cancelled, Running};
    use BackgroundWork::Resync;
    for level in [Level::Raid1, Level::Raid5] {
        let mut driver = driver(array_spec(level, None, slow(3)));
        assert!(driver.start_resync());
        driver.cancel_background(Resync);
        assert_eq!(states(&driver), [(Resync, Cancelled)]);
        poll(&mut driver, 5);
        assert_eq!(driver.background_done(Resync), 0);
        assert!(driver.begin_background(Resync));
        assert_eq!(states(&driver), [(Resync, Running)]);
        wait_until(&mut driver, |driver| states(driver).is_empty());
        driver.cancel_background(Resync);
        assert!(driver.begin_background(Resync));
        poll(&mut driver, 5);
        assert_eq!(states(&driver), []);
        // It keeps no buffer of hosts.
        let leases = driver.leases().clone();
        let free: Vec<_> = std::iter::from_fn(|| leases.take(1)).collect();
        assert_eq!(free.len(), leases.count(), "{level}");
    }
}

#[test]
fn a_resync_makes_redundancy_true_and_uses_none_that_may_not_be() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 5), (Level::Raid1, 2)] {
        let store = Store::new(Kind::Buffered).expect("files");
        let path = |at: usize| store.path(&at.to_string());
        let file = |at| MemberSpec::ready(store::file(&path(at), SECTORS, false));
        let mut driver = driver(array_spec(level, None, (0..members).map(file).collect()));
        let size = driver.info().sectors;
        let mut rng = Rng::new(members as u64);
        let mut data: Vec<u8> = (0..size as usize * SECTOR).map(|_| rng.draw() as u8).collect();
        for at in (0..size).step_by(256) {
            let end = size.min(at + 256);
            host::write(&mut driver, at, &data[at as usize * SECTOR..end as usize * SECTOR]);
        }
        // As writes that were in flight when the power went: the last member has the parity of the
        // first row, or a copy.
        let last = std::fs::OpenOptions::new().write(true).open(path(members - 1)).expect("a file");
        last.write_all_at(&[0x5a; 4096], 0).expect("written");
        assert!(driver.start_resync());
        driver.pause_background(BackgroundWork::Resync, true);
        poll(&mut driver, 5);
        // A small write, of a row whose parity is wrong.
        data[..SECTOR].fill(0x11);
        host::write(&mut driver, 0, &data[..SECTOR]);
        driver.pause_background(BackgroundWork::Resync, false);
        wait_until(&mut driver, |driver| driver.background().is_empty());
        driver.fail_member(MemberIdx(0));
        wait_until(&mut driver, |driver| driver.failed().contains(0));
        for at in (0..size).step_by(256) {
            let sectors = 256.min(size - at);
            let expected = &data[at as usize * SECTOR..(at + sectors) as usize * SECTOR];
            assert!(host::read(&mut driver, at, sectors) == expected, "{level}: from {at}");
        }
        assert!(!driver.start_resync(), "a member is missing");
    }
    let mut striped = driver(array_spec(Level::Raid0, None, mems(2, SECTORS)));
    assert!(!striped.start_resync(), "no redundancy");
}

#[test]
fn a_rebuild_is_paused_and_its_pace_set_while_it_runs() {
    let mut driver = driver(array_spec(Level::Raid5, None, mems(3, LARGE)));
    let contents = Host::new(&mut driver, 1).into_contents();
    let written = driver.leaf_counters()[1].written_bytes;
    driver.fail_member(MemberIdx(1));
    wait_until(&mut driver, |driver| driver.failed().contains(1));
    // 4 MiB at 512 KiB/s would take 8 s.
    driver.set_pace(Pace { most_kib_per_s: Some(512), ..Pace::default() });
    driver.add_member(MemberIdx(1), boxed_mem(LARGE)).expect("the slot is empty");
    assert!(driver.start_scrub(ScrubMode::Check, 0));
    let is_rebuilt = |driver: &Shards| driver.background_done(BackgroundWork::Rebuild);
    wait_until(&mut driver, |driver| is_rebuilt(driver) > 0);
    driver.pause_background(BackgroundWork::Rebuild, true);
    poll(&mut driver, 20);
    let done = is_rebuilt(&driver);
    poll(&mut driver, 100);
    assert_eq!(is_rebuilt(&driver), done, "it is paused");
    let status = driver.background();
    assert_eq!(
        (status[0].work, status[0].state),
        (BackgroundWork::Rebuild, BackgroundState::Paused)
    );
    assert_eq!(status[0].progress.total, LARGE);
    assert_eq!(status[0].progress.remaining, LARGE - done);
    assert_eq!(status[1].state, BackgroundState::Waiting, "the scrub");
    driver.pause_background(BackgroundWork::Rebuild, false);
    driver.set_pace(Pace::default());
    let start = Instant::now();
    wait_until(&mut driver, |driver| driver.background().is_empty());
    assert!(start.elapsed() < Duration::from_secs(6), "the new pace holds");
    wait_until(&mut driver, |driver| driver.lacking().is_empty());
    let by_slot = driver.leaf_counters()[1].written_bytes;
    assert_eq!(by_slot, written + LARGE * SECTOR as u64, "those of the former member included");
    assert_eq!(driver.take_mismatches(), []);
    driver.fail_member(MemberIdx(0));
    wait_until(&mut driver, |driver| driver.failed().contains(0));
    Host::with_contents(&mut driver, 12, contents).check_all();
}

#[test]
fn cancelled_work_keeps_no_other_waiting_and_begins_again_where_it_was() {
    use BackgroundState::Cancelled;
    use BackgroundWork::{Check, Rebuild, Resync};
    for (level, members) in [(Level::Raid1, 3), (Level::Raid6, 5)] {
        let mut driver = driver(array_spec(level, None, mems(members, LARGE)));
        let contents = Host::new(&mut driver, 1).into_contents();
        assert!(!driver.begin_background(Resync), "nothing was cancelled");
        driver.set_pace(Pace { most_kib_per_s: Some(2048), ..Pace::default() });
        assert!(driver.start_resync());
        wait_until(&mut driver, |driver| driver.background_done(Resync) > 0);
        driver.cancel_background(Resync);
        wait_until(&mut driver, |driver| states(driver) == [(Resync, Cancelled)]);
        let done = driver.background_done(Resync);
        assert!(done < driver.background()[0].progress.total, "{level}: too fast for the test");
        driver.set_pace(Pace::default());
        // A scrub compares what is in sync, and leaves out the rest.
        assert!(driver.start_scrub(ScrubMode::Check, 0));
        wait_until(&mut driver, |driver| states(driver) == [(Resync, Cancelled)]);
        assert_eq!(driver.take_mismatches(), [], "{level}");
        assert_eq!(driver.background_done(Resync), done, "{level}: it was cancelled");
        assert!(driver.begin_background(Resync) && !driver.begin_background(Resync));
        wait_until(&mut driver, |driver| states(driver).is_empty());
        let total = driver.background_done(Resync);
        assert_eq!(total, IntentMap::whole_array(driver.geometry()).span(), "{level}: once");

        driver.fail_member(MemberIdx(1));
        wait_until(&mut driver, |driver| driver.failed().contains(1));
        driver.set_pace(Pace { most_kib_per_s: Some(2048), ..Pace::default() });
        driver.add_member(MemberIdx(1), boxed_mem(LARGE)).expect("the slot is empty");
        wait_until(&mut driver, |driver| driver.background_done(Rebuild) > 0);
        driver.cancel_background(Rebuild);
        wait_until(&mut driver, |driver| states(driver) == [(Rebuild, Cancelled)]);
        let done = driver.background_done(Rebuild);
        driver.set_pace(Pace::default());
        assert!(driver.start_scrub(ScrubMode::Check, 0));
        wait_until(&mut driver, |driver| driver.background_done(Check) > 0);
        wait_until(&mut driver, |driver| states(driver) == [(Rebuild, Cancelled)]);
        assert_eq!(driver.background_done(Rebuild), done, "{level}: it was cancelled");
        assert!(driver.lacking().contains(1), "{level}");
        let mut host = Host::with_contents(&mut driver, 12, contents);
        host.run(&mut Rng::new(5), 100);
        let contents = host.into_contents();
        assert!(driver.begin_background(Rebuild));
        wait_until(&mut driver, |driver| driver.lacking().is_empty());
        assert!(driver.background_done(Rebuild) <= LARGE, "{level}: nothing twice");
        driver.fail_member(MemberIdx(0));
        wait_until(&mut driver, |driver| driver.failed().contains(0));
        Host::with_contents(&mut driver, 12, contents).check_all();
    }
}

#[test]
fn an_array_with_threads_has_the_same_and_says_how_long_it_takes() {
    let spec = spec(Level::Raid6, CHUNK, mems(5, LARGE));
    let array: Array = common::shards::start(spec, &DriverOptions::default()).expect("an array");
    array.write_at(&vec![7; 64 * SECTOR], 0).expect("written");
    array.set_pace(Pace { most_kib_per_s: Some(1024), ..Pace::default() });
    assert_eq!(array.pace().most_kib_per_s, Some(1024));
    assert!(array.start_scrub(ScrubMode::Check, 0) && !array.start_scrub(ScrubMode::Check, 0));
    let start = Instant::now();
    let status = loop {
        let status = array.background().pop().expect("it runs");
        if status.sectors_per_s.is_some() {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "no rate");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((status.work, status.state), (BackgroundWork::Check, BackgroundState::Running));
    assert!(status.eta().is_some_and(|eta| eta > Duration::ZERO), "{status:?}");
    array.pause_background(BackgroundWork::Check, true);
    assert_eq!(array.background()[0].state, BackgroundState::Paused);
    array.stop_scrub();
    let start = Instant::now();
    while !array.background().is_empty() {
        assert!(start.elapsed() < PATIENCE, "it is cancelled");
        std::thread::sleep(Duration::from_millis(1));
    }
    let position = array.scrub().expect("the last one").position;
    assert!(position < LARGE, "it was cancelled before its end");
    array.set_pace(Pace::default());
    assert!(array.start_scrub(ScrubMode::Check, position));
    let start = Instant::now();
    while !array.background().is_empty() {
        assert!(start.elapsed() < PATIENCE, "the rest");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(array.scrub().expect("the last one").checked, LARGE - position);
    assert_eq!(array.take_mismatches(), []);
    assert!(array.start_resync());
    array.fail_member(MemberIdx(4));
    let joined = array.add_member(MemberIdx(4), boxed_mem(LARGE));
    drop(joined.expect("it runs"));
    array.stop().expect("stopped");
}

testkit::repeat_in_shards! {
    a_scrub_waits_for_the_resync_and_paused_work_keeps_its_turn,
    a_resync_is_cancelled_before_its_first_range_and_after_its_last,
    a_resync_makes_redundancy_true_and_uses_none_that_may_not_be,
    a_rebuild_is_paused_and_its_pace_set_while_it_runs,
    cancelled_work_keeps_no_other_waiting_and_begins_again_where_it_was,
    an_array_with_threads_has_the_same_and_says_how_long_it_takes,
}
