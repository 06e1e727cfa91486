//! Time in which the process does not run is not charged to members, and what all of them are late
//! with has a little more. On a clock of the test, which a stopped process finds far ahead.

use engine::IoError;
use host::sys::{ModelClock, clock_nanos};
use md::{Level, Sector};
use raidlab_array::{
    Driver, DriverOptions, Event, Fault, FaultMember, HostOp, MemberError, MemberSpec, RequestError,
};

use crate::common::{SECTOR, boxed_mem, mem, options, spec};

const SECOND: u64 = 1_000_000_000;
const CHUNK: u64 = 16;
const LEVELS: [(Level, usize); 5] = [
    (Level::Raid1, 2),
    (Level::Raid5, 4),
    (Level::Raid6, 5),
    (Level::Raid10, 4),
    (Level::Raid0, 3),
];

/// A member of which the first operation hangs for this long.
fn hanging(nanos: u64) -> MemberSpec {
    let faults = vec![Fault::Hang { ops: 0..1, nanos }];
    MemberSpec::ready(FaultMember::new(boxed_mem(1024), faults))
}

/// An array with the default deadline of 30 s.
fn driver(level: Level, members: Vec<MemberSpec>) -> Driver {
    let chunk = if level == Level::Raid1 { 0 } else { CHUNK };
    let options = DriverOptions { shards: 1, ..options() };
    assert_eq!(options.member_timeout.map(|limit| limit.as_secs()), Some(30));
    Driver::new(spec(level, chunk, members), &options).expect("a valid array")
}

/// Begins to write whole stripes.
fn begin(driver: &mut Driver) {
    let sectors = CHUNK * 6;
    let mut lease = driver.leases().take(sectors as usize * SECTOR).expect("a buffer");
    lease.bytes_mut().fill(7);
    let write = HostOp::Write { fua: false };
    driver.submit(write, Sector(0), sectors, Some(lease), 1).expect("there is room");
    driver.poll(&mut Vec::new());
}

/// The process does not run for this long.
fn stop(nanos: u64) {
    assert!(host::sys::skip_to(None, clock_nanos() + nanos), "the clock is the test's");
}

/// Runs on until the write has ended; its result.
fn end(driver: &mut Driver) -> Result<(), RequestError> {
    let mut done = Vec::new();
    let patience = clock_nanos() + 10_000 * SECOND;
    loop {
        driver.poll(&mut done);
        if let Some(done) = done.pop() {
            return done.result;
        }
        assert!(clock_nanos() < patience, "it does not end");
        driver.wait(std::time::Duration::from_secs(3600), None);
    }
}

#[test]
fn members_have_their_time_when_the_process_goes_on() {
    let _clock = ModelClock::start();
    for (level, members) in LEVELS {
        // The replies come a little after the process goes on, or were there before it did.
        for hang in [35 * SECOND + SECOND / 2, 34 * SECOND] {
            let mut driver = driver(level, (0..members).map(|_| hanging(hang)).collect());
            begin(&mut driver);
            stop(35 * SECOND);
            assert_eq!(end(&mut driver), Ok(()), "{level}");
            assert_eq!(driver.take_events(), [], "{level}");
            assert!(driver.failed().is_empty() && driver.late_operations() == 0, "{level}");
        }
    }
}

#[test]
fn one_member_has_its_time_although_the_others_have_completed() {
    let _clock = ModelClock::start();
    for (level, members) in LEVELS {
        let mut all: Vec<_> = (1..members).map(|_| mem(1024)).collect();
        all.push(hanging(36 * SECOND));
        let mut driver = driver(level, all);
        begin(&mut driver);
        stop(35 * SECOND);
        assert_eq!(end(&mut driver), Ok(()), "{level}");
        assert_eq!(driver.take_events(), [], "{level}");
    }
}

fn failed(events: &[Event]) -> Vec<Option<MemberError>> {
    let failed = events.iter().filter_map(|event| match event {
        Event::MemberFailed { error, .. } => Some(error.map(|IoError { kind, .. }| kind)),
        _ => None,
    });
    failed.collect()
}

#[test]
fn a_member_that_hangs_fails_in_its_time_however_often_the_process_was_stopped() {
    let _clock = ModelClock::start();
    for stops in [0, 1, 5] {
        for (level, members) in LEVELS.into_iter().take(4) {
            let mut all: Vec<_> = (1..members).map(|_| mem(1024)).collect();
            all.push(hanging(1_000_000 * SECOND));
            let mut driver = driver(level, all);
            let began = clock_nanos();
            begin(&mut driver);
            for _ in 0..stops {
                stop(100 * SECOND);
                driver.poll(&mut Vec::new());
            }
            assert_eq!(end(&mut driver), Ok(()), "{level}");
            let ran = clock_nanos() - began - stops * 100 * SECOND;
            // Of each stop a second may be charged.
            let least = 30 - stops;
            assert!((least * SECOND..32 * SECOND).contains(&ran), "{level}: {ran} ns");
            let failed = failed(&driver.take_events());
            assert_eq!(failed, [Some(MemberError::Timeout)], "{level}");
        }
    }
}

#[test]
fn members_that_are_all_late_for_a_moment_stay_and_fail_if_they_are_late_for_longer() {
    let _clock = ModelClock::start();
    for (level, members) in LEVELS {
        let mut late =
            driver(level, (0..members).map(|_| hanging(30 * SECOND + SECOND / 2)).collect());
        begin(&mut late);
        assert_eq!(end(&mut late), Ok(()), "{level}");
        assert_eq!(late.take_events(), [], "{level}");

        let mut dead = driver(level, (0..members).map(|_| hanging(1_000_000 * SECOND)).collect());
        let began = clock_nanos();
        begin(&mut dead);
        assert_eq!(end(&mut dead), Err(RequestError::Io), "{level}");
        let ran = clock_nanos() - began;
        assert!((31 * SECOND..33 * SECOND).contains(&ran), "{level}: {ran} ns");
        assert!(dead.late_operations() > 0, "{level}");
    }
}
