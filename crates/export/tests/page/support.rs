//! A page of a test, and a client that is no browser.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::Uid;

use raidlab_export::page::{Disk, Feed, Order, PageOptions, PageServer, Refused, View};

/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A feed that counts what is requested of it.
#[derive(Default)]
pub struct Counting {
    pub views: AtomicU64,
    pub orders: AtomicU64,
    /// Disks in each view.
    pub disks: usize,
    /// Bytes of the report, about.
    pub report: usize,
    pub made: OnceLock<Arc<str>>,
}

impl Feed for Counting {
    fn view(&self) -> View {
        let number = self.views.fetch_add(1, Ordering::Relaxed);
        let disk = |at: usize| Disk { name: Some(format!("disk{at:05}")), ..Disk::default() };
        View {
            title: format!("view {number}"),
            source: "watch",
            disks: (0..self.disks).map(disk).collect(),
            ..View::default()
        }
    }

    fn report(&self) -> Option<Arc<str>> {
        let report = self.made.get_or_init(|| {
            format!("<!doctype html><h1>report</h1>{}", "<hr>".repeat(self.report / 4)).into()
        });
        Some(report.clone())
    }

    fn order(&self, _order: &Order) -> Result<String, Refused> {
        self.orders.fetch_add(1, Ordering::Relaxed);
        Ok("done".into())
    }
}

/// On loopback, at a free port.
pub fn options() -> PageOptions {
    let address = "127.0.0.1:0".parse().expect("an address");
    PageOptions { address, tls: None, token: None, control: false }
}

/// A page with this number of disks.
pub fn page(disks: usize) -> (PageServer, Arc<Counting>) {
    let feed = Arc::new(Counting { disks, ..Counting::default() });
    (PageServer::start(options(), feed.clone()).expect("a page"), feed)
}

/// What another user of this machine does; `None`, said: only root can be another one.
pub fn as_another_user<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    let other = || {
        let nobody = Uid::from_raw(65534);
        // Of this thread only.
        match rustix::thread::set_thread_res_uid(nobody, nobody, nobody) {
            Ok(()) => Some(work()),
            Err(error) => {
                println!("another user skipped: {error}");
                None
            }
        }
    };
    std::thread::scope(|scope| scope.spawn(other).join().expect("no panic"))
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("a limit");
    stream
}

/// A request with these lines behind the first, and this body; everything that is answered.
pub fn request(address: SocketAddr, first: &str, lines: &str, body: &str) -> String {
    let mut stream = connect(address);
    let host = if lines.contains("Host:") { "" } else { &format!("Host: {address}\r\n") };
    let length = match body.len() {
        0 => String::new(),
        length => format!("Content-Length: {length}\r\n"),
    };
    let head = format!("{first} HTTP/1.1\r\n{host}{lines}{length}Connection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    // What refuses a body may close before all of it is sent.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub fn get(address: SocketAddr, path: &str, lines: &str) -> String {
    request(address, &format!("GET {path}"), lines, "")
}

/// The status of an answer; 0: there is none.
pub fn status(answer: &str) -> u16 {
    let word = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A viewer that has read its head and one frame.
pub fn viewer(address: SocketAddr) -> TcpStream {
    let mut stream = connect(address);
    let head = format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"title\":") {
        let mut part = [0; 4096];
        let count = stream.read(&mut part).expect("a part");
        assert!(count > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&part[..count]);
    }
    stream
}

/// Whether the server closes a connection within `limit`; what comes before is dropped.
pub fn is_cut_off(stream: &mut TcpStream, limit: Duration) -> bool {
    let until = std::time::Instant::now() + limit;
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    let mut part = vec![0; 65536];
    while std::time::Instant::now() < until {
        match stream.read(&mut part) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return true,
            Err(_) => {}
        }
    }
    false
}
