//! Reads whose bytes are sent from where members in memory have them.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use md::Level;
use raidlab_array::{Array, ArrayError, DriverOptions, Filled, HostOp, MemberSpec, Pending};
use testkit::{Rng, print_replay, seeds};

use crate::common::{self, faulty, mem, mems, spec};

const SECTORS: u64 = 8192;
const LEASE_BYTES: usize = 256 << 10;

fn array(level: Level, chunk_sectors: u64, members: Vec<MemberSpec>) -> Array {
    let options = DriverOptions { leases: 4, lease_bytes: LEASE_BYTES, ..DriverOptions::default() };
    common::shards::start(spec(level, chunk_sectors, members), &options).expect("an array")
}

/// An array with contents, and these.
fn filled(level: Level, chunk_sectors: u64, members: Vec<MemberSpec>) -> (Array, Vec<u8>) {
    let array = array(level, chunk_sectors, members);
    let mut content = vec![0; array.len_bytes() as usize];
    Rng::new(7).fill(&mut content);
    array.write_at(&content, 0).expect("written");
    (array, content)
}

fn read_to_send(array: &Array, offset: u64, len: usize) -> Result<Filled, ArrayError> {
    let (pending, to) = Pending::new();
    let mut lease = array.lease(len);
    lease.borrow();
    array.submit(HostOp::Read, offset, 0, Some(lease), to);
    pending.wait().map(Filled::new)
}

/// The bytes that are sent.
fn sent(filled: &Filled) -> Vec<u8> {
    let (from, mut to) = UnixStream::pair().expect("sockets");
    let mut got = vec![0; filled.len()];
    std::thread::scope(|scope| {
        let got = &mut got;
        scope.spawn(move || to.read_exact(got).expect("received"));
        for mut slice in filled.out_slices() {
            while !slice.is_empty() {
                match ::host::sys::send(from.as_fd(), &[slice]) {
                    Ok(sent) => slice = slice.skip(sent),
                    Err(_) => std::thread::yield_now(),
                }
            }
        }
    });
    got
}

#[test]
fn what_is_sent_is_what_was_written_wherever_it_is() {
    for seed in seeds(20) {
        print_replay!("what_is_sent_is_what_was_written_wherever_it_is", seed);
        let mut rng = Rng::new(seed);
        let chunk = [8, 32, 128, 1024][rng.below(4) as usize];
        let faulty = || faulty(SECTORS, Vec::new());
        let (level, members) = match rng.below(5) {
            0 => (Level::Linear, mems(2, SECTORS)),
            1 => (Level::Raid0, mems(3, SECTORS)),
            2 => (Level::Raid0, vec![mem(SECTORS), faulty(), mem(SECTORS)]),
            3 => (Level::Raid1, mems(2, SECTORS)),
            _ => (Level::Raid5, mems(3, SECTORS)),
        };
        let chunk = if matches!(level, Level::Linear | Level::Raid1) { 0 } else { chunk };
        let (array, content) = filled(level, chunk, members);
        for _ in 0..30 {
            let len = 512 * (1 + rng.below(LEASE_BYTES as u64 / 512));
            let at = 512 * rng.below((array.len_bytes() - len) / 512 + 1);
            let filled = read_to_send(&array, at, len as usize).expect("read");
            assert_eq!(filled.len() as u64, len);
            assert!(sent(&filled) == content[at as usize..][..len as usize]);
        }
    }
}

#[test]
fn members_in_memory_without_redundancy_lend_long_parts() {
    let lends = |level, chunk, members, len| {
        let (array, _) = filled(level, chunk, members);
        read_to_send(&array, 0, len).expect("read").is_lent()
    };
    assert!(lends(Level::Raid0, 32, mems(3, SECTORS), LEASE_BYTES));
    assert!(lends(Level::Linear, 0, mems(2, SECTORS), LEASE_BYTES));
    assert!(!lends(Level::Raid0, 32, mems(3, SECTORS), 8192), "short");
    assert!(!lends(Level::Raid0, 8, mems(3, SECTORS), LEASE_BYTES), "in short parts");
    assert!(!lends(Level::Raid1, 0, mems(2, SECTORS), LEASE_BYTES));
    let faulty = (0..2).map(|_| faulty(SECTORS, Vec::new())).collect();
    assert!(!lends(Level::Raid0, 32, faulty, LEASE_BYTES));
}

#[test]
fn what_is_lent_counts_as_read() {
    let (array, _) = filled(Level::Raid0, 128, mems(2, SECTORS));
    let bytes = |array: &Array| -> u64 {
        array.leaf_counters().iter().map(|counters| counters.read_bytes).sum()
    };
    let before = bytes(&array);
    assert!(read_to_send(&array, 0, LEASE_BYTES).expect("read").is_lent());
    assert_eq!(bytes(&array) - before, LEASE_BYTES as u64);
}

#[test]
fn what_is_lent_outlives_the_array_and_its_buffer_is_used_again() {
    let (array, content) = filled(Level::Raid0, 128, mems(2, SECTORS));
    // Lent and dropped: the next holder of the buffer has its own bytes in it.
    for at in [0, 4096] {
        drop(read_to_send(&array, at, LEASE_BYTES).expect("read"));
        let lease = array.read(array.lease(LEASE_BYTES), at).wait().expect("read");
        assert!(lease.bytes() == &content[at as usize..][..LEASE_BYTES]);
    }
    let kept = read_to_send(&array, 8192, LEASE_BYTES).expect("read");
    assert!(kept.is_lent());
    drop(array);
    assert!(sent(&kept) == content[8192..][..LEASE_BYTES]);
}

#[test]
fn a_write_before_they_are_sent_gives_new_bytes() {
    let (array, content) = filled(Level::Raid0, 128, mems(2, SECTORS));
    let filled = read_to_send(&array, 0, LEASE_BYTES).expect("read");
    array.write_at(&[1; 8192], 4096).expect("written");
    let sent = sent(&filled);
    assert!(sent[..4096] == content[..4096] && sent[12288..] == content[12288..LEASE_BYTES]);
    assert!(sent[4096..12288] == [1; 8192], "old ones would be right, too");
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let array = array(Level::Raid0, 128, mems(2, SECTORS));
    let beyond = read_to_send(&array, array.len_bytes(), 65536);
    assert!(matches!(beyond, Err(ArrayError::Range { .. })));
    assert!(matches!(read_to_send(&array, 100, 65536), Err(ArrayError::Range { .. })));
}

testkit::repeat_in_shards! {
    what_is_sent_is_what_was_written_wherever_it_is,
    members_in_memory_without_redundancy_lend_long_parts,
    what_is_lent_counts_as_read,
    what_is_lent_outlives_the_array_and_its_buffer_is_used_again,
    a_write_before_they_are_sent_gives_new_bytes,
    what_cannot_be_read_is_an_error,
}
