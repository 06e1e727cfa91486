//! How a server ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::{Errno, Operation, Style};
use raidlab_export::nbd::ServerLimits;

use super::client::Client;
use super::serve::{Served, array, export};
use crate::support_held::{Held, HeldStore};

#[test]
fn what_is_in_flight_is_answered_and_what_is_late_is_refused() {
    let held = Held::new(array(8));
    let served = Served::one(Arc::new(HeldStore(held.clone())));
    let mut client = Client::connect(served.path(), "", Style::Structured);
    client.write(4096, &[7; 4096]).unwrap();
    let read = client.send(Operation::Read { offset: 4096, length: 4096, one_piece: false }, &[]);
    // It is answered while the read is held: that one is in flight.
    let write = client.send(Operation::Write { offset: 0, length: 512, fua: false }, &[1; 512]);
    assert_eq!(client.receive().0, write);
    let stopped = std::thread::spawn(move || served.stop());
    // The server begins to stop at some moment: from then on, requests are refused.
    let deadline = Instant::now() + Duration::from_secs(4);
    let refused = loop {
        let late = client.send(Operation::Flush, &[]);
        let (cookie, answer) = client.receive();
        assert_eq!(cookie, late);
        match answer {
            Ok(_) => assert!(Instant::now() < deadline, "nothing is refused"),
            Err(failure) => break failure,
        }
    };
    assert_eq!(refused.errno, Errno::Shutdown);
    held.open();
    let (cookie, answer) = client.receive();
    assert_eq!((cookie, answer.unwrap().data), (read, vec![7; 4096]));
    client.closes();
    stopped.join().unwrap();
}

#[test]
fn a_stop_lets_go_of_the_store() {
    let store = array(8);
    let served = Served::one(store.clone());
    let mut client = Client::connect(served.path(), "", Style::Extended);
    client.write(0, &[3; 10_000]).unwrap();
    let idle = Client::connect(served.path(), "", Style::Simple);
    let negotiating = std::os::unix::net::UnixStream::connect(served.path()).unwrap();
    let began = Instant::now();
    served.stop();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    idle.closes();
    client.closes();
    drop(negotiating);
    let array = Arc::into_inner(store).expect("the server has let go of it");
    array.stop().unwrap();
}

#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_end_for_long() {
    let grace = Duration::from_millis(300);
    let limits = ServerLimits { grace, ..ServerLimits::default() };
    let served = Served::start(vec![export("", array(16))], limits);
    let mut client = Client::connect(served.path(), "", Style::Structured);
    for number in 0..16 {
        let read = Operation::Read { offset: number << 20, length: 1 << 20, one_piece: false };
        client.send(read, &[]);
    }
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    served.stop();
    assert!(began.elapsed() >= grace && began.elapsed() < Duration::from_secs(5));
}
