//! Virtual machines that come and go.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use vhost::VhostBackend;
use virtio_bindings::virtio_blk as blk;

use super::driver::{Data, Machine, OK, Served, array};
use crate::support_held::{Held, HeldStore};

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn one_at_a_time_and_the_next_when_it_has_ended() {
    let served = Served::start(array(8));
    let mode = std::fs::metadata(served.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut first = Machine::connect(served.path(), 1);
    first.write(0, 9, &[1; 512]);
    assert!(Machine::try_connect(served.path(), 1).is_err(), "a second one is turned away");
    first.write(0, 10, &[2; 512]);
    drop(first);
    let mut second = Machine::connect(served.path(), 1);
    assert_eq!(second.read(0, 9, 1024), [[1; 512], [2; 512]].concat());
}

#[test]
fn a_ring_is_stopped_when_nothing_of_it_is_in_flight() {
    let held = Held::new(array(8));
    held.array.write_at(&[5; 4096], 0).unwrap();
    let served = Served::start(Arc::new(HeldStore(held.clone())));
    let mut machine = Machine::connect(served.path(), 1);
    let head = machine.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(4096), 4096);
    machine.submit(0, head);
    assert_eq!(machine.ended(0, Duration::from_millis(200)), None);
    let stopped = Arc::new(AtomicBool::new(false));
    let stopping = {
        let (frontend, stopped) = (machine.frontend.clone(), stopped.clone());
        std::thread::spawn(move || {
            let base = frontend.get_vring_base(0).unwrap();
            stopped.store(true, Ordering::SeqCst);
            base
        })
    };
    std::thread::sleep(Duration::from_millis(200));
    assert!(!stopped.load(Ordering::SeqCst), "a read is in flight");
    held.open();
    assert_eq!(stopping.join().unwrap(), 1);
    // It has ended before the ring was said to be stopped.
    assert_eq!(machine.ended(0, Duration::ZERO), Some((0, 4097)));
    assert_eq!(
        (machine.status(0), machine.get(Machine::data(0) + 4096, 4096)),
        (OK, vec![5; 4096])
    );
    // Nothing is taken from a ring that is stopped.
    machine.submit(0, head);
    assert_eq!(machine.ended(0, Duration::from_millis(200)), None);
}

#[test]
fn the_next_machine_comes_when_nothing_of_the_former_is_in_flight() {
    let held = Held::new(array(8));
    let served = Served::start(Arc::new(HeldStore(held.clone())));
    let mut first = Machine::connect(served.path(), 1);
    let head = first.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(4096), 4096);
    first.submit(0, head);
    assert_eq!(first.ended(0, Duration::from_millis(200)), None);
    drop(first);
    assert!(Machine::try_connect(served.path(), 1).is_err(), "a read is in flight");
    held.open();
    let mut second = Machine::connect(served.path(), 1);
    second.write(0, 0, &[1; 512]);
}

#[test]
fn a_stop_lets_go_of_the_store_and_the_socket() {
    let store = array(8);
    let served = Served::start(store.clone());
    let path = served.path().to_owned();
    let mut machine = Machine::connect(&path, 4);
    machine.write(2, 0, &[1; 512]);
    machine.prepare(0, blk::VIRTIO_BLK_T_IN, 0, Data::Incoming(512), 512);
    machine.set_available(0, 30_000);
    let Served { front, directory } = served;
    let (stopped, stop) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop(front);
        stopped.send(()).unwrap();
    });
    stop.recv_timeout(PATIENCE).expect("it ends");
    assert!(!path.exists());
    let array = Arc::into_inner(store).expect("the front has let go of it");
    array.stop().unwrap();
    drop(directory);
}
