//! Requests of a driver that does what it may.

use std::sync::Arc;

use raidlab_export::store::Rescued;
use virtio_bindings::virtio_blk as blk;

use super::driver::{Data, IO_ERROR, Machine, NOTHING, OK, Served, UNSUPPORTED, array};
use crate::support_damaged::Damaged;

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251 + seed * 13) as u8).collect()
}

#[test]
fn what_is_written_through_one_ring_is_read_through_another() {
    let store = array(8);
    let served = Served::start(store.clone());
    let mut machine = Machine::connect(served.path(), 8);
    for ring in 0..8 {
        // Whole blocks and sectors, within a buffer of the array.
        let bytes = pattern(512 * (1 + ring * 211), ring);
        machine.write(ring, 3 + ring as u64 * 4096, &bytes);
        assert_eq!(machine.calls(ring), 1);
    }
    for ring in 0..8 {
        let bytes = pattern(512 * (1 + ring * 211), ring);
        let back = machine.read(7 - ring, 3 + ring as u64 * 4096, bytes.len());
        assert!(back == bytes, "ring {ring}");
        let mut below = vec![0; bytes.len()];
        store.read_at(&mut below, (3 + ring as u64 * 4096) * 512).unwrap();
        assert!(below == bytes, "ring {ring}, below");
    }
    assert_eq!(machine.request(0, blk::VIRTIO_BLK_T_FLUSH, 0, NOTHING), OK);
    let identity = machine.request(0, blk::VIRTIO_BLK_T_GET_ID, 0, Data::Incoming(20));
    assert_eq!(identity, OK);
    assert_eq!(machine.get(Machine::data(0) + 4096, 7), b"a-disk\0");
}

#[test]
fn a_request_longer_than_a_buffer_is_done_in_parts() {
    let served = Served::start(array(4));
    let mut machine = Machine::connect(served.path(), 1);
    // Its memory is below that of other rings, which are not started.
    let bytes = pattern(12 << 20, 1);
    machine.write(0, 5, &bytes);
    assert!(machine.read(0, 5, bytes.len()) == bytes);
}

#[test]
fn ranges_are_discarded_and_zeroed() {
    let store = array(8);
    let served = Served::start(store.clone());
    let mut machine = Machine::connect(served.path(), 1);
    machine.write(0, 0, &vec![0xaa; 256 << 10]);
    let segment = |sector: u64, sectors: u32, flags: u32| {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    let zeroes = [segment(1, 3, 0), segment(100, 64, 1), segment(9, 0, 0)].concat();
    let kind = blk::VIRTIO_BLK_T_WRITE_ZEROES;
    assert_eq!(machine.request(0, kind, 0, Data::Outgoing(&zeroes)), OK);
    let back = machine.read(0, 0, 256 << 10);
    for (sector, bytes) in back.chunks(512).enumerate() {
        let zero = (1..4).contains(&sector) || (100..164).contains(&sector);
        assert!(bytes.iter().all(|byte| *byte == if zero { 0 } else { 0xaa }), "sector {sector}");
    }
    let discard = blk::VIRTIO_BLK_T_DISCARD;
    assert_eq!(machine.request(0, discard, 0, Data::Outgoing(&segment(0, 8, 0))), OK);
    let end = store.len_bytes() / 512;
    for (kind, data, status) in [
        // A flag that means nothing, and one that a discard has not got.
        (kind, segment(0, 8, 2), UNSUPPORTED),
        (discard, segment(0, 8, 1), UNSUPPORTED),
        (discard, segment(end - 1, 2, 0), IO_ERROR),
        (discard, segment(u64::MAX, 2, 0), IO_ERROR),
        (kind, segment(u64::MAX / 512, u32::MAX, 0), IO_ERROR),
        (discard, segment(0, u32::MAX, 0), IO_ERROR),
        (discard, segment(0, 8, 0)[..15].to_vec(), IO_ERROR),
        (discard, segment(0, 8, 0).repeat(17), IO_ERROR),
        (discard, Vec::new(), IO_ERROR),
    ] {
        assert_eq!(machine.request(0, kind, 0, Data::Outgoing(&data)), status, "{kind} {data:?}");
    }
}

#[test]
fn what_is_not_inside_or_not_known_is_refused() {
    let store = array(8);
    let served = Served::start(store.clone());
    let mut machine = Machine::connect(served.path(), 1);
    let end = store.len_bytes() / 512;
    let (read, write) = (blk::VIRTIO_BLK_T_IN, blk::VIRTIO_BLK_T_OUT);
    for (kind, sector, data, status) in [
        (read, end, Data::Incoming(512), IO_ERROR),
        (read, end - 1, Data::Incoming(1024), IO_ERROR),
        (read, u64::MAX, Data::Incoming(512), IO_ERROR),
        (read, u64::MAX / 512, Data::Incoming(512), IO_ERROR),
        (read, 0, Data::Incoming(511), IO_ERROR),
        (write, end, Data::Outgoing(&[1; 512]), IO_ERROR),
        (write, 0, Data::Outgoing(&[1; 513]), IO_ERROR),
        (blk::VIRTIO_BLK_T_GET_ID, 0, Data::Incoming(19), IO_ERROR),
        (blk::VIRTIO_BLK_T_SECURE_ERASE, 0, NOTHING, UNSUPPORTED),
        (4711, 0, NOTHING, UNSUPPORTED),
    ] {
        assert_eq!(machine.request(0, kind, sector, data), status, "{kind} at {sector}");
    }
    assert_eq!(machine.read(0, 0, 512), [0; 512], "nothing was written");
    machine.write(0, end - 1, &[5; 512]);
    assert_eq!(machine.read(0, end - 1, 512), [5; 512]);
}

#[test]
fn the_configuration_space_is_read() {
    let store = array(8);
    let served = Served::start(store.clone());
    let mut machine = Machine::connect(served.path(), 1);
    let space = machine.configuration();
    assert_eq!(space[..8], (store.len_bytes() / 512).to_le_bytes());
    assert_eq!(space[20..24], store.logical_block().to_le_bytes());
    assert_eq!(space[34..36], [16, 0]);
}

#[test]
fn what_is_read_only_takes_no_writes_and_says_what_is_lost() {
    let source = Damaged { sectors: 4096, lost: 100..110 };
    let served = Served::start(Arc::new(Rescued::new(Arc::new(source), 2).unwrap()));
    let mut machine = Machine::connect(served.path(), 2);
    assert_ne!(machine.features & 1 << blk::VIRTIO_BLK_F_RO, 0);
    assert_eq!(machine.read(1, 7, 1024), [vec![7; 512], vec![8; 512]].concat());
    let lost = machine.request(0, blk::VIRTIO_BLK_T_IN, 99, Data::Incoming(1024));
    assert_eq!(lost, IO_ERROR);
    let write = machine.request(0, blk::VIRTIO_BLK_T_OUT, 0, Data::Outgoing(&[1; 512]));
    assert_eq!(write, IO_ERROR);
    let segment = [0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
    for kind in [blk::VIRTIO_BLK_T_DISCARD, blk::VIRTIO_BLK_T_WRITE_ZEROES] {
        assert_eq!(machine.request(0, kind, 0, Data::Outgoing(&segment)), IO_ERROR);
    }
    assert_eq!(machine.request(0, blk::VIRTIO_BLK_T_FLUSH, 0, NOTHING), OK);
}
