//! The cost of waiting: a test binary of its own, because it measures the process.

#[path = "it/common/mod.rs"]
#[allow(dead_code, reason = "these tests need a part of it")]
mod common;

use std::time::{Duration, Instant};

use drive::{Placement, Profile};
use md::Level;
use raidlab_array::{Array, DriverOptions, MemberSpec, PaceControl, PacedMember};

use crate::common::store::{Kind, Store};
use crate::common::{boxed_mem, mems, spec};

/// CPU time of all threads of this process.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a process has threads");
    let nanos = tasks.map(|task| {
        let path = task.expect("a thread").path().join("schedstat");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().next().map_or(0, |nanos| nanos.parse().unwrap_or(0))
    });
    Duration::from_nanos(nanos.sum())
}

fn share(wall: Duration, work: impl FnOnce()) -> f64 {
    let (before, start) = (cpu(), Instant::now());
    work();
    if let Some(left) = wall.checked_sub(start.elapsed()) {
        std::thread::sleep(left);
    }
    (cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64()
}

#[test]
fn waiting_costs_nothing() {
    if std::fs::read_to_string("/proc/self/schedstat").is_err() {
        println!("skipped: no schedstat here");
        return;
    }
    // Shards, memory, files, and a paced drive that has worked and rests.
    let mut store = Store::new(Kind::Direct).expect("a store");
    let files = (0..3).map(|_| MemberSpec::Ready(store.member(4096))).collect();
    let control = PaceControl::default();
    let profile = Profile::named("hdd-2007").expect("a built-in profile");
    let place = Placement::Window { at: 0.0 };
    let paced = PacedMember::new(boxed_mem(1 << 18), &control, profile, place, None);
    let start = |level, members| Array::start(spec(level, 8, members), &DriverOptions::default());
    let shards = DriverOptions { shards: 2, shard_unit_sectors: 8, ..DriverOptions::default() };
    let arrays = [
        Array::start(spec(Level::Raid0, 8, mems(3, 4096)), &shards).expect("an array in shards"),
        start(Level::Raid5, mems(3, 4096)).expect("an array"),
        start(Level::Raid5, files).expect("an array"),
        start(Level::Raid0, vec![MemberSpec::ready(paced)]).expect("an array"),
    ];
    for array in &arrays {
        array.write_at(&[1; 65536], 0).expect("written");
        array.read_at(&mut [0; 65536], 0).expect("read");
    }
    // Shards that sleep and wake each other, often: a wake-up that comes late must not repeat.
    for round in 0..2000 {
        arrays[0].write_at(&[2; 16384], 8192 * (round % 20)).expect("written");
    }
    let idle = share(Duration::from_millis(300), || {});
    println!("four idle arrays: {:.2} % of a executor", idle * 100.0);
    assert!(idle < 0.05, "{:.1} % of a executor for nothing", idle * 100.0);

    let read = share(Duration::ZERO, || {
        let mut buf = vec![0; 1 << 20];
        for at in 0..40 {
            arrays[3].read_at(&mut buf, at << 20).expect("read");
        }
    });
    println!("one paced sequential reader: {:.2} % of a executor", read * 100.0);
    assert!(read < 0.5, "{:.1} % of a executor", read * 100.0);
}
