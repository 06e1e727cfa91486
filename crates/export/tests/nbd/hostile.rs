//! Clients that do harm, and others beside them that must not notice.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use nbd::{Operation, Request, Style};
use raidlab_export::nbd::ServerLimits;

use super::client::Client;
use super::serve::{Served, array, export};

fn limits() -> ServerLimits {
    ServerLimits {
        connections: 16,
        negotiation: Duration::from_millis(500),
        stall: Duration::from_secs(2),
        ..ServerLimits::default()
    }
}

/// Works as a client of good faith does, and says how long it took.
fn work(socket: &Path, style: Style) -> Duration {
    let began = Instant::now();
    let mut client = Client::connect(socket, "", style);
    let data: Vec<u8> = (0..3 << 20).map(|at: u32| (at / 512) as u8).collect();
    for round in 0..3 {
        client.write(round << 20, &data).unwrap();
        assert!(client.read(round << 20, 3 << 20).unwrap() == data);
    }
    began.elapsed()
}

/// Waits until the server closes the connection, at most ten seconds.
fn is_closed(mut stream: UnixStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut rest = vec![0; 1 << 20];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn clients_that_never_read_keep_others_from_nothing() {
    // One buffer for each connection, and as many to share.
    let served = Served::start(vec![export("", array(32))], limits());
    let mut hogs: Vec<Client> =
        (0..12).map(|_| Client::connect(served.path(), "", Style::Structured)).collect();
    for hog in &mut hogs {
        for number in 0..60 {
            let read = Operation::Read { offset: number << 20, length: 1 << 20, one_piece: false };
            hog.send(read, &[]);
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    for style in [Style::Simple, Style::Structured, Style::Extended] {
        let took = work(served.path(), style);
        assert!(took < Duration::from_secs(20), "{took:?}");
    }
    // Those that hold what others wait for are given up.
    let deadline = Instant::now() + Duration::from_secs(40);
    while served.server.as_ref().unwrap().connections() > 11 {
        assert!(Instant::now() < deadline, "a client that does not read stays for ever");
        work(served.path(), Style::Structured);
    }
    drop(hogs);
}

#[test]
fn a_client_that_was_stopped_gets_its_replies_where_no_other_waits() {
    let limits = ServerLimits { stall: Duration::from_millis(200), ..limits() };
    let served = Served::start(vec![export("", array(32))], limits);
    let mut stopped = Client::connect(served.path(), "", Style::Structured);
    let data: Vec<u8> = (0..1_u32 << 20).map(|at| (at / 512) as u8).collect();
    stopped.write(0, &data).unwrap();
    let read = Operation::Read { offset: 0, length: 1 << 20, one_piece: true };
    let sent: Vec<u64> = (0..20).map(|_| stopped.send(read, &[])).collect();
    let mut half = Client::connect(served.path(), "", Style::Simple).stream;
    let write = Operation::Write { offset: 1 << 20, length: 4096, fua: false };
    let request = write.request(Style::Simple, 1).encode(Style::Simple);
    half.write_all(&request[..28]).unwrap();
    half.write_all(&[7; 1000]).unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    for _ in &sent {
        let (_, answer) = stopped.receive();
        assert!(answer.unwrap().data == data);
    }
    half.write_all(&[7; 3096]).unwrap();
    let mut reply = [0; 16];
    half.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
}

#[test]
fn long_simple_reads_that_are_never_read_leave_memory_for_others() {
    let served = Served::start(vec![export("", array(32))], limits());
    let mut hogs: Vec<Client> =
        (0..8).map(|_| Client::connect(served.path(), "", Style::Simple)).collect();
    for hog in &mut hogs {
        hog.send(Operation::Read { offset: 0, length: 32 << 20, one_piece: false }, &[]);
    }
    std::thread::sleep(Duration::from_millis(300));
    // Before the first of them is given up.
    let took = work(served.path(), Style::Simple);
    assert!(took < limits().stall, "{took:?}");
    drop(hogs);
}

#[test]
fn half_requests_keep_others_from_nothing_and_end() {
    let served = Served::start(vec![export("", array(32))], limits());
    let write = Operation::Write { offset: 0, length: 4 << 20, fua: false };
    let header = write.request(Style::Simple, 1).encode(Style::Simple);
    let half = |bytes: usize| {
        let mut hog = Client::connect(served.path(), "", Style::Simple).stream;
        hog.write_all(&header[..bytes.min(28)]).unwrap();
        hog.write_all(&vec![9; bytes.saturating_sub(28)]).unwrap();
        hog
    };
    let hogs: Vec<UnixStream> = [1, 27, 28, 29, 28 + 100_000, 28 + (1 << 20), 28 + 1_500_000]
        .map(half)
        .into_iter()
        .collect();
    let took = work(served.path(), Style::Structured);
    assert!(took < Duration::from_secs(20), "{took:?}");
    // Their places are those of clients that come when all are taken.
    std::thread::sleep(limits().stall + Duration::from_millis(500));
    let others = (0..16).map(|_| Client::connect(served.path(), "", Style::Simple));
    let others: Vec<Client> = others.collect();
    assert!(hogs.into_iter().all(is_closed));
    drop(others);
    // What came whole was written, what did not was not.
    let mut client = Client::connect(served.path(), "", Style::Extended);
    assert!(client.read(8 << 20, 4096).unwrap() == [0; 4096]);
}

#[test]
fn payloads_that_are_refused_are_thrown_away() {
    let served = Served::start(vec![export("", array(8))], limits());
    let mut client = Client::connect(served.path(), "", Style::Simple);
    let bytes = client.session.bytes;
    for (offset, length) in [(bytes, 4096), (0, 40 << 20), (bytes - 4096, 3 << 20)] {
        let request = Request { flags: 0, command: 1, cookie: 77, offset, length };
        client.stream.write_all(&request.encode(Style::Simple)[..28]).unwrap();
        client.stream.write_all(&vec![5; length as usize]).unwrap();
        let mut reply = [0; 16];
        client.stream.read_exact(&mut reply).unwrap();
        let expected = if length > 32 << 20 { 22 } else { 28 };
        assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, expected]);
    }
    client.read(0, 4096).unwrap();
    let request = Request { flags: 0, command: 1, cookie: 77, offset: 0, length: 0xffff_ffff };
    client.stream.write_all(&request.encode(Style::Simple)[..28]).unwrap();
    client.closes();
}

#[test]
fn garbage_ends_its_own_session() {
    let served = Served::start(vec![export("", array(8))], limits());
    let mut beside = Client::connect(served.path(), "", Style::Extended);
    let garbage: Vec<u8> = (0..100_000_u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    for known in [&b""[..], b"\0\0\0\x03", b"\0\0\0\x03IHAVEOPT", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut stream = UnixStream::connect(served.path()).unwrap();
        // It may be closed before all of it is sent.
        let _ = stream.write_all(&[known, &garbage].concat());
        assert!(is_closed(stream));
        beside.read(0, 4096).unwrap();
    }
    let mut ready = Client::connect(served.path(), "", Style::Structured);
    let _ = ready.stream.write_all(&garbage);
    assert!(is_closed(ready.stream));
    beside.read(0, 4096).unwrap();
}

#[test]
fn a_negotiation_does_not_last_for_ever() {
    let served = Served::start(vec![export("", array(8))], limits());
    let silent = UnixStream::connect(served.path()).unwrap();
    let mut talking = UnixStream::connect(served.path()).unwrap();
    talking.write_all(b"\0\0\0\x03").unwrap();
    let began = Instant::now();
    // It lists the exports again and again, and reads no reply.
    talking.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    while began.elapsed() < Duration::from_secs(5) {
        if talking.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").is_err() {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "it was not given up");
    assert!(is_closed(silent));
    // One that also reads the replies gets no longer.
    let mut talking = UnixStream::connect(served.path()).unwrap();
    talking.write_all(b"\0\0\0\x03").unwrap();
    let began = Instant::now();
    let mut replies = [0; 18 + 20 + 4 + 20];
    while began.elapsed() < Duration::from_secs(5) {
        let sent = talking.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0");
        if sent.is_err() || talking.read(&mut replies).unwrap_or(0) == 0 {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "it was not given up");
}

#[test]
fn ten_thousand_connections_are_no_more_than_one_after_the_other() {
    let served = Served::start(vec![export("", array(8))], limits());
    let mut beside = Client::connect(served.path(), "", Style::Structured);
    let mut open = Vec::new();
    for number in 0..10_000 {
        // Some stay, without a word.
        if let Ok(stream) = UnixStream::connect(served.path())
            && number % 50 == 0
        {
            open.push(stream);
        }
        if number % 1000 == 0 {
            beside.read(0, 4096).unwrap();
            let connections = served.server.as_ref().unwrap().connections();
            assert!(connections <= 16 + 1, "{connections}");
        }
    }
    beside.read(0, 4096).unwrap();
    drop(open);
    // The places of those that negotiate come back.
    std::thread::sleep(Duration::from_millis(700));
    work(served.path(), Style::Extended);
}
