//! The I/O of members is what the geometry requires, and no more.

use md::{Level, MemberIdx};
use raidlab_array::{Counters, HostOp, MemberSpec};

use crate::common::host::{self, call};
use crate::common::{self, SECTOR, Shards, driver, mem, mems, spec};

const SECTORS: u64 = 1 << 13;
const CHUNK: u64 = 128;

fn since(driver: &Shards, before: &[Counters]) -> Vec<Counters> {
    driver.leaf_counters().iter().zip(before).map(|(now, before)| now.since(before)).collect()
}

/// The members' I/O while `work` ran.
fn traffic(driver: &mut Shards, work: impl FnOnce(&mut Shards)) -> Vec<Counters> {
    let before = driver.leaf_counters();
    work(driver);
    since(driver, &before)
}

fn sum(counters: &[Counters], of: impl Fn(&Counters) -> u64) -> u64 {
    counters.iter().map(of).sum()
}

#[test]
fn full_stripes_are_written_without_reads() {
    for (level, members, data) in
        [(Level::Raid4, 4, 3), (Level::Raid5, 4, 3), (Level::Raid5, 6, 5), (Level::Raid6, 6, 4)]
    {
        let mut driver = driver(spec(level, CHUNK, mems(members, SECTORS)));
        let stripe = driver.geometry().stripe_sectors();
        let bytes = vec![1; 3 * stripe as usize * SECTOR];
        let moved = traffic(&mut driver, |driver| host::write(driver, 2 * stripe, &bytes));
        let expected = bytes.len() as u64 / data * members as u64;
        assert_eq!(sum(&moved, |c| c.written_bytes), expected, "{level} {members}");
        assert_eq!(sum(&moved, |c| c.reads), 0, "{level} {members}");
        let share = expected / members as u64;
        assert!(moved.iter().all(|c| c.written_bytes == share), "{level} {members}: {moved:?}");
    }
}

#[test]
fn a_stream_of_small_writes_becomes_full_stripes() {
    let mut driver = driver(spec(Level::Raid5, CHUNK, mems(5, SECTORS)));
    let (mut done, mut ended) = (Vec::new(), 0);
    let requests = 4 * 4 * 32;
    let moved = traffic(&mut driver, |driver| {
        let mut at = 0;
        while ended < requests {
            while let Some(lease) = (at < requests).then(|| driver.leases().take(4096)).flatten() {
                let write = HostOp::Write { fua: false };
                driver.submit(write, md::Sector(at * 8), 8, Some(lease), 0).expect("room");
                at += 1;
            }
            host::drain_until(driver, &mut done, |done| !done.is_empty());
            ended += done.drain(..).count() as u64;
        }
    });
    let written = sum(&moved, |c| c.written_bytes);
    let ideal = requests * 4096 / 4 * 5;
    assert!(written >= ideal && written < ideal * 5 / 4, "{written} bytes, {ideal} at best");
    let read = sum(&moved, |c| c.read_bytes);
    assert!(read < ideal / 10, "{read} bytes were read before writing");
}

#[test]
fn a_small_write_reads_and_writes_data_and_parity() {
    for (level, members, parities) in [(Level::Raid5, 6, 1), (Level::Raid6, 8, 2)] {
        let mut driver = driver(spec(level, CHUNK, mems(members, SECTORS)));
        let moved = traffic(&mut driver, |driver| host::write(driver, 80, &[1; 8 * SECTOR]));
        let ops = (sum(&moved, |c| c.reads), sum(&moved, |c| c.writes));
        assert_eq!(ops, (1 + parities, 1 + parities), "{level}");
        let bytes = (sum(&moved, |c| c.read_bytes), sum(&moved, |c| c.written_bytes));
        assert_eq!(bytes, (4096 * (1 + parities), 4096 * (1 + parities)), "{level}");
    }
}

#[test]
fn a_healthy_read_moves_each_byte_once() {
    for level in [Level::Linear, Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid10] {
        let unit = if level == Level::Linear { 0 } else { CHUNK };
        let mut driver = driver(spec(level, unit, mems(4, SECTORS)));
        let moved = traffic(&mut driver, |driver| drop(host::read(driver, 40, 2000)));
        assert_eq!(sum(&moved, |c| c.read_bytes), 2000 * 512, "{level}");
        assert_eq!(sum(&moved, |c| c.writes), 0, "{level}");
    }
}

#[test]
fn a_degraded_read_reads_the_rest_of_its_row() {
    let mut driver = driver(spec(Level::Raid5, CHUNK, mems(5, SECTORS)));
    // Left-symmetric: the first chunk is on member 0.
    driver.fail_member(MemberIdx(0));
    let moved = traffic(&mut driver, |driver| drop(host::read(driver, 0, 8)));
    let expected = [0, 4096, 4096, 4096, 4096];
    assert_eq!(moved.iter().map(|c| c.read_bytes).collect::<Vec<_>>(), expected);
    let moved = traffic(&mut driver, |driver| drop(host::read(driver, CHUNK, 8)));
    assert_eq!(moved.iter().map(|c| c.read_bytes).collect::<Vec<_>>(), [0, 4096, 0, 0, 0]);
}

#[test]
fn every_copy_is_written() {
    for (level, members, copies) in [(Level::Raid1, 3, 3), (Level::Raid10, 4, 2)] {
        let mut driver = driver(spec(level, CHUNK, mems(members, SECTORS)));
        let data = vec![1; 2000 * SECTOR];
        let moved = traffic(&mut driver, |driver| host::write(driver, 8, &data));
        assert_eq!(sum(&moved, |c| c.written_bytes), copies * data.len() as u64, "{level}");
        assert_eq!(sum(&moved, |c| c.reads), 0, "{level}");
    }
}

#[test]
fn a_flush_goes_once_to_every_member_that_was_written() {
    let mut driver = driver(spec(Level::Raid0, CHUNK, mems(4, SECTORS)));
    host::write(&mut driver, 0, &[1; 8 * SECTOR]);
    host::write(&mut driver, CHUNK, &[1; 8 * SECTOR]);
    let flush = |driver: &mut Shards| assert_eq!(call(driver, HostOp::Flush, 0, 0, None).0, Ok(()));
    let moved = traffic(&mut driver, flush);
    assert_eq!(moved.iter().map(|c| c.flushes).collect::<Vec<_>>(), [1, 1, 0, 0]);
    let moved = traffic(&mut driver, flush);
    assert_eq!(sum(&moved, |c| c.flushes), 0, "nothing was written since");
}

#[test]
fn leaves_are_counted_in_slot_order_missing_ones_too() {
    let inner = |level| MemberSpec::Array(spec(level, CHUNK, mems(2, SECTORS)));
    let missing = MemberSpec::Missing { sectors: 2 * SECTORS };
    let outer = vec![missing, inner(Level::Raid0), mem(2 * SECTORS), inner(Level::Raid1)];
    let mut linear = outer.into_iter();
    let members = vec![linear.next().unwrap(), linear.next().unwrap(), linear.next().unwrap()];
    let mut driver = driver(spec(Level::Raid1, 0, members));
    let data = vec![1; 2 * CHUNK as usize * SECTOR];
    let moved = traffic(&mut driver, |driver| host::write(driver, 0, &data));
    let chunk = CHUNK * 512;
    let written: Vec<_> = moved.iter().map(|c| c.written_bytes).collect();
    assert_eq!(written, [0, chunk, chunk, 2 * chunk]);
    let nested = vec![inner(Level::Raid1), inner(Level::Raid1)];
    let mut driver = common::driver(spec(Level::Raid0, CHUNK, nested));
    let moved = traffic(&mut driver, |driver| host::write(driver, CHUNK, &[1; 8 * SECTOR]));
    let writes: Vec<_> = moved.iter().map(|c| c.writes).collect();
    assert_eq!(writes, [0, 0, 1, 1]);
}

#[test]
fn no_more_than_the_queue_depth_goes_to_a_member() {
    // A member that is slow by 2 ms per operation, one at a time: eight take at least 16 ms.
    let faults = vec![raidlab_array::Fault::Delay { nanos: 2_000_000 }];
    let mut spec = spec(Level::Linear, 0, vec![common::faulty(SECTORS, faults)]);
    spec.data_plane.queue_depth = 1;
    let mut driver = driver(spec);
    let start = std::time::Instant::now();
    let mut done = Vec::new();
    for at in 0..8 {
        let lease = driver.leases().take(512).expect("a lease");
        driver.submit(HostOp::Read, md::Sector(at * 16), 1, Some(lease), at).expect("room");
    }
    host::drain_until(&mut driver, &mut done, |done| done.len() == 8);
    assert!(start.elapsed().as_millis() >= 16);
    let order: Vec<_> = done.iter().map(|end| end.tag).collect();
    assert_eq!(order, [0, 1, 2, 3, 4, 5, 6, 7], "first come, first served");
}

#[test]
fn operations_queued_for_a_failed_member_never_reach_it() {
    let slow = vec![raidlab_array::Fault::Delay { nanos: 1_000_000 }];
    let mut spec = spec(Level::Raid1, 0, vec![common::faulty(SECTORS, slow), mem(SECTORS)]);
    spec.data_plane.queue_depth = 1;
    let mut driver = driver(spec);
    let mut done = Vec::new();
    for at in 0..16 {
        let lease = driver.leases().take(512).expect("a lease");
        let write = HostOp::Write { fua: false };
        driver.submit(write, md::Sector(at * 16), 1, Some(lease), at).expect("room");
    }
    driver.poll(&mut done);
    driver.fail_member(MemberIdx(0));
    host::drain_until(&mut driver, &mut done, |done| done.len() == 16);
    assert!(done.iter().all(|end| end.result.is_ok()));
    let writes: Vec<_> = driver.leaf_counters().iter().map(|c| c.writes).collect();
    // A second one if the first completed before the command arrived.
    assert!(writes[0] <= 2 && writes[1] == 16, "{writes:?}");
}

#[test]
fn a_discard_of_a_whole_array_is_few_operations_per_member() {
    let layouts = [
        (Level::Raid0, 4),
        (Level::Raid1, 2),
        (Level::Raid10, 4),
        (Level::Raid10, 5),
        (Level::Raid5, 4),
        (Level::Raid6, 5),
    ];
    for (level, members) in layouts {
        let array = spec(level, CHUNK, mems(members, SECTORS));
        let mut driver = driver(array);
        let size = driver.info().sectors;
        let step = driver.geometry().stripe_sectors().max(CHUNK);
        let steps = || (0..size).step_by(step as usize).map(|at| (at, step.min(size - at)));
        for (at, sectors) in steps() {
            host::write(&mut driver, at, &vec![7; sectors as usize * SECTOR]);
        }
        let moved = traffic(&mut driver, |driver| {
            call(driver, HostOp::Discard, 0, size, None).0.expect("the array is healthy");
        });
        for member in &moved {
            let few = (1..=2).contains(&member.discards) && member.reads + member.writes == 0;
            assert!(few, "{level} {members}: {member:?}");
        }
        for (at, sectors) in steps() {
            assert_eq!(host::read(&mut driver, at, sectors), vec![0; sectors as usize * SECTOR]);
        }
    }
}
