//! Memory that is present before it is used, from the start and later: requests cause next to no
//! page faults.

use std::time::{Duration, Instant};

use md::{Level, Sector};
use raidlab_array::{
    Array, ArraySpec, Completion, DataPlaneConfig, Driver, DriverOptions, HostOp, Lease,
    MemberSpec, MemoryUse,
};
use testkit::Rng;

use crate::common::store::{Kind, Store, file};
use crate::common::{SECTOR, mems, spec};

const BUFFERS: usize = 16;
const BUFFER_BYTES: usize = 1 << 20;
const STRIPE_BYTES: u64 = 3 << 20;

/// Page faults of this thread that no device had to serve, so far.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("the thread's counters");
    let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
    fields.split_whitespace().nth(7).and_then(|count| count.parse().ok()).expect("a count")
}

/// Page faults of writes through all buffers, which all need stripe memory.
fn faults_of_writes(populate: bool) -> u64 {
    let store = Store::new(Kind::Direct).expect("a store");
    let member = |at| MemberSpec::ready(file(&store.path(&format!("f{at}")), 40960, true));
    let plane = DataPlaneConfig { stripe_cache_bytes: STRIPE_BYTES, ..DataPlaneConfig::default() };
    let spec =
        ArraySpec { data_plane: plane, ..spec(Level::Raid5, 128, (0..3).map(member).collect()) };
    let options = DriverOptions {
        leases: BUFFERS,
        lease_bytes: BUFFER_BYTES,
        huge_pages: false,
        populate,
        ..DriverOptions::default()
    };
    let mut driver = Driver::new(spec, &options).expect("an array");
    let before = faults();
    // Less than a stripe: the rest of it is read.
    for at in 0..BUFFERS as u64 {
        let mut lease = driver.leases().take(BUFFER_BYTES).expect("a buffer");
        lease.bytes_mut().fill(7);
        let sectors = (BUFFER_BYTES / SECTOR) as u64;
        let op = HostOp::Write { fua: false };
        driver.submit(op, Sector(at * sectors + 8), sectors, Some(lease), at).expect("room");
    }
    let mut done: Vec<Completion> = Vec::new();
    while done.len() < BUFFERS {
        driver.poll(&mut done);
    }
    assert!(done.iter().all(|completion| completion.result.is_ok()), "{done:?}");
    faults() - before
}

#[test]
fn memory_that_is_populated_takes_no_page_faults_later() {
    let pages = (BUFFERS * BUFFER_BYTES / 4096) as u64;
    let (populated, other) = (faults_of_writes(true), faults_of_writes(false));
    println!("{populated} page faults, {other} without populated memory");
    assert!(other >= pages, "{other}");
    // The rest is the heap: requests and what they wait for.
    assert!(populated < pages / 16, "{populated}");
}

/// Buffers and stripes of which there are few from the start.
fn growing(populate: bool) -> Array {
    let plane = DataPlaneConfig {
        stripe_cache_bytes: 64 << 20,
        stripe_bytes_at_first: 1,
        ..DataPlaneConfig::default()
    };
    let spec = ArraySpec { data_plane: plane, ..spec(Level::Raid5, 128, mems(3, 65536)) };
    let options = DriverOptions {
        leases: 40,
        leases_at_first: 2,
        lease_bytes: BUFFER_BYTES,
        populate,
        ..DriverOptions::default()
    };
    Array::start(spec, &options).expect("an array")
}

#[test]
fn buffers_are_added_as_they_are_needed() {
    for populate in [true, false] {
        let array = growing(populate);
        // Stripe memory of one stripe is the least.
        let MemoryUse { now, most } = array.memory();
        assert_eq!((now, most), ((2 << 20) + (256 << 10), 104 << 20));
        let fill = |at: usize| {
            let mut lease = array.lease(BUFFER_BYTES);
            lease.bytes_mut().fill(at as u8 + 1);
            lease
        };
        let leases: Vec<Lease> = (0..40).map(fill).collect();
        assert!(array.try_lease(1).is_none(), "there are no more");
        assert!(array.memory().now >= 40 << 20);
        for (at, lease) in leases.into_iter().enumerate() {
            assert!(lease.bytes().iter().all(|byte| *byte == at as u8 + 1));
            array.write(lease, (at * BUFFER_BYTES) as u64).wait().expect("written");
        }
        let mut back = vec![0; BUFFER_BYTES];
        for at in 0..40 {
            array.read_at(&mut back, (at * BUFFER_BYTES) as u64).expect("read");
            assert!(back.iter().all(|byte| *byte == at as u8 + 1));
        }
        assert!(array.memory().now <= most);
    }
}

#[test]
fn stripe_memory_is_added_when_what_is_cached_would_be_given_up() {
    let array = growing(true);
    let mut rng = Rng::new(1);
    let blocks = array.len_bytes() / 4096;
    let before = array.memory().now;
    let mut expected = vec![0u8; blocks as usize];
    let end = Instant::now() + Duration::from_secs(120);
    // Far more stripes than the first part has room for.
    while array.memory().now < before + (32 << 20) && Instant::now() < end {
        for _ in 0..500 {
            let (at, byte) = (rng.below(blocks), rng.draw() as u8);
            array.write_at(&[byte; 4096], at * 4096).expect("written");
            expected[at as usize] = byte;
        }
    }
    assert!(array.memory().now >= before + (32 << 20), "{:?}", array.memory());
    let mut back = [0; 4096];
    for (at, byte) in (0..).zip(&expected) {
        array.read_at(&mut back, at * 4096).expect("read");
        assert!(back.iter().all(|found| found == byte), "block {at}");
    }
}
