//! Guests that write anything into their rings: it ends in an error of the request, or in a ring
//! that is not served any more, and in nothing else.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use virtio_bindings::virtio_blk as blk;

use super::driver::{
    Data, Descriptor, INDIRECT, IO_ERROR, MEMORY_BYTES, Machine, NEXT, Served, WRITE, array, raw,
};

/// Long enough for an answer that does not come.
const SILENCE: Duration = Duration::from_millis(150);
const PATIENCE: Duration = Duration::from_secs(30);

/// Submits a chain on ring 0 whose first descriptor is a header of a read of sector 0.
fn submit(machine: &mut Machine, descriptors: &[Descriptor]) {
    let head = machine.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(512), 512);
    machine.describe(0, head, descriptors);
    machine.submit(0, head);
}

#[test]
fn chains_that_are_no_requests_stop_their_ring_and_no_other() {
    let served = Served::start(array(8));
    let at = Machine::data(0);
    let outside = MEMORY_BYTES as u64;
    for malformed in [
        // A loop, of one and of two.
        vec![(at, 16, NEXT, 0)],
        vec![(at, 16, NEXT, 1), (at + 4096, 512, NEXT | WRITE, 1)],
        // No status.
        vec![(at, 16, 0, 0)],
        // The next descriptor is outside of the table.
        vec![(at, 16, NEXT, 999)],
        // Readable behind writable.
        vec![(at, 16, NEXT, 1), (at + 512, 1, NEXT | WRITE, 2), (at, 16, 0, 0)],
        // Tables of descriptors: outside, of odd length, too long, and in themselves.
        vec![(outside, 32, INDIRECT, 0)],
        vec![(at, 33, INDIRECT, 0)],
        vec![(at, !15, INDIRECT, 0)],
        vec![(0x4000, 16, INDIRECT, 0)],
        // Longer than 4 GiB.
        vec![
            (at, 16, NEXT, 1),
            (at, u32::MAX, NEXT | WRITE, 2),
            (at, u32::MAX, NEXT | WRITE, 3),
            (at + 512, 1, WRITE, 0),
        ],
    ] {
        let mut machine = Machine::connect(served.path(), 2);
        submit(&mut machine, &malformed);
        assert_eq!(machine.ended(0, SILENCE), None, "{malformed:?}");
        // It stays so.
        let head = machine.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(512), 512);
        machine.submit(0, head);
        assert_eq!(machine.ended(0, SILENCE), None, "{malformed:?}");
        machine.write(1, 0, &[1; 512]);
    }
}

#[test]
fn addresses_outside_of_memory_are_errors_of_their_request() {
    let served = Served::start(array(8));
    let at = Machine::data(0);
    let outside = MEMORY_BYTES as u64;
    let status = (at + 512, 1, WRITE, 0);
    let mut machine = Machine::connect(served.path(), 1);
    for wrong in [
        vec![(outside, 16, NEXT, 1), (at + 4096, 512, NEXT | WRITE, 2), status],
        vec![(u64::MAX - 4, 16, NEXT, 1), (at + 4096, 512, NEXT | WRITE, 2), status],
        vec![(at, 16, NEXT, 1), (outside, 512, NEXT | WRITE, 2), status],
        vec![(at, 16, NEXT, 1), (outside - 100, 512, NEXT | WRITE, 2), status],
        vec![(at, 16, NEXT, 1), (u64::MAX - 100, 512, NEXT | WRITE, 2), status],
        // Half a header.
        vec![(at, 8, NEXT, 1), (at + 4096, 512, NEXT | WRITE, 2), status],
        // More than the store has.
        vec![(at, 16, NEXT, 1), (at, 128 << 20, NEXT | WRITE, 2), status],
    ] {
        submit(&mut machine, &wrong);
        let ended = machine.ended(0, PATIENCE);
        assert!(ended.is_some(), "{wrong:?}");
        assert_eq!(machine.status(0), IO_ERROR, "{wrong:?}");
    }
    // Where to write the status is unknown: it ends, and that is all.
    submit(&mut machine, &[(at, 16, NEXT, 1), (at, 512, NEXT | WRITE, 2), (outside, 1, WRITE, 0)]);
    assert_eq!(machine.ended(0, PATIENCE), Some((0, 0)));
    // A write whose data are outside writes nothing.
    machine.write(0, 0, &[7; 512]);
    machine.prepare(0, blk::VIRTIO_BLK_T_OUT, 0, Data::Outgoing(&[1; 512]), 512);
    machine.describe(0, 1, &[(outside - 256, 512, NEXT, 2)]);
    machine.submit(0, 0);
    assert!(machine.ended(0, PATIENCE).is_some());
    assert_eq!(machine.status(0), IO_ERROR);
    assert_eq!(machine.read(0, 0, 512), [7; 512]);
}

#[test]
fn a_chain_with_more_descriptors_than_offered_is_refused() {
    let served = Served::start(array(8));
    let mut machine = Machine::connect(served.path(), 1);
    let (at, table) = (Machine::data(0), 8 << 20);
    machine.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(512), 512);
    let pieces = 60_000;
    machine.put(table, &raw(&(at, 16, NEXT, 1)));
    for number in 1..=pieces {
        let piece = (at + 4096, 512, NEXT | WRITE, number + 1);
        machine.put(table + 16 * u64::from(number), &raw(&piece));
    }
    machine.put(table + 16 * u64::from(pieces + 1), &raw(&(at + 512, 1, WRITE, 0)));
    machine.describe(0, 0, &[(table, 16 * (u32::from(pieces) + 2), INDIRECT, 0)]);
    machine.submit(0, 0);
    assert!(machine.ended(0, PATIENCE).is_some());
    assert_eq!(machine.status(0), IO_ERROR);
}

#[test]
fn an_index_that_jumps_does_not_keep_others_out() {
    let served = Served::start(array(8));
    let mut machine = Machine::connect(served.path(), 2);
    machine.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(512), 512);
    // The same chain, as often as a ring can hold it.
    machine.set_available(0, 128);
    (0..128).for_each(|_| assert_eq!(machine.ended(0, PATIENCE), Some((0, 513))));
    // More than that; and the same behind it.
    machine.set_available(0, 40_000);
    machine.set_available(0, 20_000);
    assert_eq!(machine.ended(0, SILENCE), None);
    machine.write(1, 0, &[9; 512]);
    drop(machine);
    let mut next = Machine::connect(served.path(), 1);
    assert_eq!(next.read(0, 0, 512), [9; 512]);
}

#[test]
fn bytes_that_are_no_messages_end_their_connection() {
    let served = Served::start(array(8));
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 4096], &[1, 0, 0, 0, 1]] {
        let mut stream = UnixStream::connect(served.path()).unwrap();
        // It may have been closed already.
        let _ = stream.write_all(bytes);
        drop(stream);
        let mut machine = Machine::connect(served.path(), 1);
        machine.write(0, 0, &[3; 512]);
    }
}

#[test]
fn connections_leave_nothing_behind() {
    let served = Served::start(array(8));
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    // Others of this process's tests run beside: no exact numbers.
    let before = (descriptors(), threads());
    for _ in 0..100 {
        let mut machine = Machine::connect(served.path(), 1);
        machine.write(0, 0, &[3; 512]);
    }
    let after = (descriptors(), threads());
    assert!(after.0 < before.0 + 90 && after.1 < before.1 + 90, "{before:?} {after:?}");
}
