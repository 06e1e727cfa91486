//! Arrays as members of others, of which a disk hangs: the array that it is in does without it.

use std::time::Instant;

use md::Level;
use raidlab_array::{MemMember, MemberSpec};
use testkit::Rng;

use super::deadlines::{CHUNK, PATIENCE, SECTORS, hanging, limited, wait_until};
use crate::common::host::Host;
use crate::common::{Shards, mems, spec};

/// An array of arrays, of which the first one has a member that hangs from an operation on.
fn nested(outer: Level, inner: Level, members: usize, from: u64) -> Shards {
    let chunk = |level| if level == Level::Raid1 { 0 } else { CHUNK };
    let array = |mut all: Vec<MemberSpec>, hangs: bool| {
        if hangs {
            all[1] = hanging(Box::new(MemMember::new(SECTORS).expect("memory")), from..u64::MAX);
        }
        MemberSpec::Array(spec(inner, chunk(inner), all))
    };
    let count = if outer == Level::Raid5 { 3 } else { 2 };
    let all = (0..count).map(|at| array(mems(members, SECTORS), at == 0)).collect();
    Shards::new(spec(outer, chunk(outer), all), &limited()).expect("a valid array")
}

#[test]
fn a_disk_that_hangs_costs_the_array_that_it_is_in_a_member_and_the_outer_one_nothing() {
    for (number, (outer, inner, members)) in [
        (Level::Raid0, Level::Raid1, 2),
        (Level::Raid0, Level::Raid5, 3),
        (Level::Raid1, Level::Raid1, 2),
        (Level::Raid1, Level::Raid5, 3),
        (Level::Raid1, Level::Raid6, 4),
        (Level::Raid5, Level::Raid1, 2),
        (Level::Raid5, Level::Raid5, 3),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{outer} of {inner}");
        let mut rng = Rng::new(number as u64);
        let mut driver = nested(outer, inner, members, 40 + number as u64);
        let mut host = Host::new(&mut driver, 12);
        let start = Instant::now();
        while host.driver.late_operations() == 0 {
            assert!(start.elapsed() < PATIENCE, "{what}: nothing is late");
            host.run(&mut rng, 20);
        }
        host.run(&mut rng, 200);
        assert!(host.driver.late_operations() > 0, "{what}: ended too early for the test");
        let contents = host.into_contents();
        wait_until(&mut driver, "all has ended", |driver| driver.late_operations() == 0);
        let mut host = Host::with_contents(&mut driver, 12, contents);
        host.run(&mut rng, 100);
        host.check_all();
        let events = driver.take_events();
        assert!(driver.failed().is_empty(), "{what}: {events:?}");
        assert!(events.is_empty(), "{what}: {events:?}");
    }
}

#[test]
fn an_array_without_redundancy_whose_disk_hangs_is_dropped_by_the_outer_one() {
    let mut rng = Rng::new(3);
    let mut driver = nested(Level::Raid1, Level::Raid0, 2, 60);
    let mut host = Host::new(&mut driver, 12);
    let start = Instant::now();
    while !host.driver.failed().contains(0) {
        assert!(start.elapsed() < PATIENCE, "it stays in service");
        host.run(&mut rng, 20);
    }
    host.run(&mut rng, 100);
    let contents = host.into_contents();
    wait_until(&mut driver, "all has ended", |driver| driver.late_operations() == 0);
    Host::with_contents(&mut driver, 12, contents).check_all();
}
