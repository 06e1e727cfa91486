//! Memory that is present from the start: requests cause next to no page faults.

use array::{ArraySpec, Completion, DataPlaneConfig, Driver, DriverOptions, HostOp, MemberSpec};
use md::{Level, Sector};

use crate::common::store::{Kind, Store, file};
use crate::common::{SECTOR, spec};

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
