//! Clients that do harm, or try: nothing changes, they are cut off, and viewers go on viewing.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};

use host::tls::ServerTls;
use raidlab_export::page::{Feed, PageError, PageOptions, PageServer, Token};

use crate::support::{
    Counting, PATIENCE, as_another_user, connect, get, is_cut_off, options, page, request, status,
    viewer,
};

/// Connections that the server accepts of one peer: half of all.
const OF_PEER: usize = 64;
/// Viewers of one peer: half of all.
const VIEWERS_OF_PEER: usize = 24;
/// The limits of the server are 5 s each; a test on a busy machine waits much longer.
const CUT_OFF: Duration = Duration::from_secs(90);

/// Memory of this process now, bytes.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

#[test]
fn pages_of_other_origins_and_other_names_are_refused() {
    let (server, feed) = page(1);
    let at = server.address();
    let port = at.port();
    assert_eq!(status(&get(at, "/", "")), 200);
    assert_eq!(status(&get(at, "/", &format!("Host: localhost:{port}\r\n"))), 200);
    // A name that was made to lead here.
    for host in ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "[::2]"] {
        let answer = get(at, "/", &format!("Host: {host}\r\n"));
        assert_eq!(status(&answer), 421, "{host}: {answer}");
    }
    let both = format!("Host: {at}\r\nHost: evil.example\r\n");
    assert!([400, 421].contains(&status(&get(at, "/", &both))));
    for line in [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        &format!("Origin: https://{at}"),
    ] {
        for path in ["/events", "/session", "/page.js"] {
            let answer = get(at, path, &format!("{line}\r\n"));
            assert_eq!(status(&answer), 403, "{path} {line}: {answer}");
        }
    }
    // A link from elsewhere leads to the page, which has no data in it.
    assert_eq!(status(&get(at, "/", "Sec-Fetch-Site: cross-site\r\n")), 200);
    let embedded = "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n";
    assert_eq!(status(&get(at, "/report", embedded)), 403);
    let answer = get(at, "/", "").to_lowercase();
    for line in [
        "default-src 'none'",
        "frame-ancestors 'none'",
        "nosniff",
        "no-store",
        "cross-origin-resource-policy: same-origin",
        "referrer-policy: no-referrer",
    ] {
        assert!(answer.contains(line), "{line}: {answer}");
    }
    assert!(!answer.contains("access-control"), "no other origin reads it");
    assert_eq!(feed.views.load(Ordering::Relaxed), 0, "without a viewer nothing is looked at");
}

#[test]
fn orders_are_refused_to_all_who_may_not_give_them() {
    let (server, feed) = page(1);
    let json = "Content-Type: application/json\r\n";
    let order = r#"{"order":"fail","array":"data","device":"0"}"#;
    let answer = request(server.address(), "POST /order", json, order);
    assert_eq!(status(&answer), 403, "read-only: {answer}");
    let token = Token::random();
    let open = PageOptions { control: true, ..options() };
    let refused = PageServer::start(open, feed.clone()).err().expect("it needs a token");
    assert!(matches!(refused, PageError::ControlWithoutToken), "{refused}");
    let open = PageOptions { control: true, token: Some(token.clone()), ..options() };
    let server = PageServer::start(open, feed.clone()).expect("a page");
    let at = server.address();
    for path in ["/events", "/report"] {
        assert_eq!(status(&get(at, path, "")), 401, "{path}");
    }
    let bearer = format!("Authorization: Bearer {}\r\n", token.text());
    let good = format!("{json}{bearer}");
    let post = |lines: &str, body: &str| status(&request(at, "POST /order", lines, body));
    assert_eq!(post(json, order), 401);
    assert_eq!(post(&format!("{json}Authorization: Bearer x\r\n"), order), 401);
    assert_eq!(post(&bearer, order), 415, "a form of another origin is no JSON");
    assert_eq!(post(&format!("{good}Origin: http://evil.example\r\n"), order), 403);
    assert_eq!(post(&format!("{good}Sec-Fetch-Site: cross-site\r\n"), order), 403);
    // The cookie reads and does not order.
    let signed = request(at, "POST /session", &bearer, "");
    let cookie = signed.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = cookie.unwrap_or_else(|| panic!("{signed}"));
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = format!("Cookie: {}\r\n", cookie.split(';').next().expect("a pair"));
    assert_eq!(status(&get(at, "/report", &cookie)), 200);
    assert_eq!(post(&format!("{json}{cookie}"), order), 401);
    // What is no order.
    for body in [
        "",
        "{}",
        "[",
        r#"{"order":"stop"}"#,
        r#"{"order":"fail","array":"a"}"#,
        r#"{"order":"fail","array":"a","device":"b","overwrite":true}"#,
    ] {
        assert_eq!(post(&good, body), 422, "{body}");
    }
    assert_eq!(post(&good, &" ".repeat(1 << 20)), 413, "a long body");
    assert_eq!(feed.orders.load(Ordering::Relaxed), 0, "none was carried out");
    assert_eq!(post(&good, order), 200);
    assert_eq!(feed.orders.load(Ordering::Relaxed), 1);
}

/// A certificate for `localhost`, as files.
fn certificates(directory: &Path) -> ServerTls {
    let made = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("made");
    let write = |name: &str, text: String| {
        std::fs::write(directory.join(name), text).expect("written");
    };
    write("server-cert.pem", made.cert.pem());
    write("server-key.pem", made.signing_key.serialize_pem());
    ServerTls::load(directory, false).expect("certificates")
}

#[test]
fn other_hosts_need_a_token_and_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let tls = certificates(dir.path());
    let feed = Arc::new(Counting::default());
    let start = |address: &str, tls: Option<&ServerTls>, token: bool| {
        let address = address.parse().expect("an address");
        let token = token.then(Token::random);
        let options = PageOptions { address, tls: tls.cloned(), token, control: false };
        PageServer::start(options, feed.clone() as Arc<dyn Feed>)
    };
    for address in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
        for (tls, token) in [(None, false), (None, true), (Some(&tls), false)] {
            let refused = start(address, tls, token).err();
            assert!(matches!(refused, Some(PageError::Open(_))), "{address} {token}");
        }
    }
    let server = start("0.0.0.0:0", Some(&tls), true).expect("both are there");
    let at = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    // Without TLS there is no answer in HTTP; a handshake that does not come ends.
    assert_eq!(status(&get(at, "/", "")), 0);
    assert!(is_cut_off(&mut connect(at), CUT_OFF), "a handshake that never comes");
}

#[test]
fn slow_and_silent_clients_are_cut_off() {
    let (server, _feed) = page(400);
    let at = server.address();
    let mut silent = connect(at);
    // A head that never ends, a byte at a time.
    let mut drip = connect(at);
    let mut body = connect(at);
    body.write_all(
        format!("POST /session HTTP/1.1\r\nHost: {at}\r\nContent-Length: 9\r\n\r\n1").as_bytes(),
    )
    .expect("sent");
    let mut idle = connect(at);
    idle.write_all(format!("GET /icon.svg HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())
        .expect("sent");
    let dripping = std::thread::spawn(move || {
        let begun = Instant::now();
        let head = b"GET / HTTP/1.1\r\nX: ";
        let bytes = head.iter().chain(std::iter::repeat(&b'x'));
        for byte in bytes {
            if begun.elapsed() > CUT_OFF || drip.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        begun.elapsed() < CUT_OFF
    });
    assert!(is_cut_off(&mut silent, CUT_OFF), "one that sends nothing");
    assert!(is_cut_off(&mut body, CUT_OFF), "a body that does not come");
    assert!(is_cut_off(&mut idle, CUT_OFF), "a connection that is not used");
    assert!(dripping.join().expect("no panic"), "a head that never ends");
}

#[test]
fn viewers_that_do_not_read_are_cut_off_and_take_no_memory() {
    let (server, feed) = page(2000);
    let at = server.address();
    let mut good = viewer(at);
    let (begun, reads) = (Instant::now(), Duration::from_secs(12));
    let reading = std::thread::spawn(move || {
        let (mut frames, mut part) = (0, vec![0; 1 << 16]);
        while begun.elapsed() < reads {
            let count = good.read(&mut part).expect("frames");
            assert!(count > 0, "one that reads is not cut off");
            frames += part[..count].windows(7).filter(|bytes| bytes == b"data: {").count();
        }
        frames
    });
    let before = memory();
    // With room for little: frames of 200 KB come 4 times a second for each of them.
    let mut stuck: Vec<TcpStream> = (0..20).map(|_| small_viewer(at)).collect();
    std::thread::sleep(Duration::from_secs(8));
    let grown = memory().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes");
    let took = feed.views.load(Ordering::Relaxed);
    assert!(took <= begun.elapsed().as_millis() as u64 / 250 + 8, "{took}: one view for all");
    let cut = stuck.iter_mut().filter_map(|it| is_cut_off(it, CUT_OFF).then_some(())).count();
    assert_eq!(cut, stuck.len());
    let frames = reading.join().expect("no panic");
    println!("{frames} frames in {reads:?}, of 48");
    assert!(frames > 2, "{frames} frames in {reads:?}");
}

/// A viewer whose receive buffer is as small as it can be, and which does not read.
fn small_viewer(at: SocketAddr) -> TcpStream {
    let stream = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let stream = stream.expect("a socket");
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096).expect("its buffer");
    rustix::net::connect(&stream, &at).expect("it listens");
    let mut stream = TcpStream::from(stream);
    let head = format!("GET /events HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("sent");
    stream
}

#[test]
fn ten_thousand_requests_and_half_open_sockets_leave_room_for_viewers() {
    let (server, _feed) = page(4);
    let at = server.address();
    let mut watching = viewer(at);
    let before = memory();
    // More than one peer may have; those beyond are closed at once.
    let mut open: Vec<TcpStream> = (0..OF_PEER + 40).map(|_| connect(at)).collect();
    let mut closed = open.iter_mut().rev().take(40);
    assert!(closed.all(|it| is_cut_off(it, CUT_OFF)));
    // With another address it is the same user.
    assert!(is_cut_off(&mut connect_from([127, 0, 0, 2], at), CUT_OFF));
    // Another one still gets in.
    let theirs = as_another_user(|| status(&get(at, "/session", "")));
    assert!(theirs.is_none_or(|theirs| theirs == 200), "{theirs:?}");
    // Half-closed ones end, too.
    open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Write)));
    drop(open);
    let begun = Instant::now();
    let until_free = || status(&get(at, "/session", "")) == 200;
    while !until_free() {
        assert!(begun.elapsed() < CUT_OFF, "their places are not given back");
        std::thread::sleep(Duration::from_millis(50));
    }
    let paths = ["/", "/page.js", "/events/../x", "/%00", "/order", "/report", "//", "/session?a"];
    let answered: usize = std::thread::scope(|scope| {
        let workers = (0..8).map(|worker| {
            scope.spawn(move || {
                let mut count = 0;
                let mut stream = connect(at);
                for round in 0..1250 {
                    let path = paths[(round + worker) % paths.len()];
                    // Some leave without reading the answer.
                    let line = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n");
                    if stream.write_all(line.as_bytes()).is_err() || round % 5 == 0 {
                        stream = connect(at);
                        continue;
                    }
                    let mut part = [0; 65536];
                    if stream.read(&mut part).is_ok_and(|read| read > 0) {
                        count += 1;
                    }
                    if path == "/page.js" || path == "/" {
                        stream = connect(at);
                    }
                }
                count
            })
        });
        workers.collect::<Vec<_>>().into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    // Of a busy machine some connections are closed that come before the last ones have ended.
    println!("{answered} of 10000 answered, of which 2000 do not read");
    assert!(answered > 2_000, "{answered} of 10000");
    let grown = memory().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes");
    // The viewer that was there has its frames.
    let mut part = [0; 4096];
    let begun = Instant::now();
    let mut seen = 0;
    while seen < 4 {
        let read = watching.read(&mut part).expect("frames");
        assert!(read > 0 && begun.elapsed() < PATIENCE);
        seen += String::from_utf8_lossy(&part[..read]).matches("data: ").count();
    }
}

/// A connection from this address of loopback.
fn connect_from(own: [u8; 4], at: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddr::from((own, 0))).expect("an address");
    rustix::net::connect(&socket, &at).expect("it listens");
    TcpStream::from(socket)
}

#[test]
fn one_user_leaves_places_for_other_viewers() {
    let (server, _feed) = page(1);
    let at = server.address();
    let viewers: Vec<TcpStream> = (0..VIEWERS_OF_PEER).map(|_| viewer(at)).collect();
    let one_more = get(at, "/events", "");
    assert_eq!(status(&one_more), 503, "{one_more}");
    assert!(get(at, "/session", "").contains(r#""has_place":false"#));
    let theirs = as_another_user(|| {
        let session = get(at, "/session", "");
        drop(viewer(at));
        session
    });
    assert!(theirs.is_none_or(|session| session.contains(r#""has_place":true"#)));
    // It is noticed with one of the next frames that a viewer has gone.
    drop(viewers);
    let begun = Instant::now();
    while get(at, "/session", "").contains(r#""has_place":false"#) {
        assert!(begun.elapsed() < CUT_OFF, "their places are not given back");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(viewer(at));
}

#[test]
fn a_page_is_served_at_the_address_that_it_prints() {
    let feed = Arc::new(Counting::default());
    for address in ["127.0.0.1:0", "127.0.0.2:0", "[::ffff:127.0.0.1]:0", "[::1]:0"] {
        let given = PageOptions { address: address.parse().expect("an address"), ..options() };
        let server = match PageServer::start(given, feed.clone()) {
            Ok(server) => server,
            Err(error) => {
                println!("{address} skipped: {error}");
                continue;
            }
        };
        let url = server.url();
        let name = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
        let name = name.unwrap_or_else(|| panic!("{url}"));
        let at = name.parse().expect("an address");
        for host in [name.to_string(), server.address().to_string()] {
            let lines = format!("Host: {host}\r\nOrigin: http://{host}\r\n");
            assert_eq!(status(&get(at, "/session", &lines)), 200, "{address}: {host}");
        }
        assert_eq!(status(&get(at, "/", "Host: 127.0.0.9:80\r\n")), 421, "{address}");
    }
}

#[test]
fn a_report_is_there_once_for_all_who_read_it_slowly() {
    let feed = Arc::new(Counting { report: 16 << 20, ..Counting::default() });
    let server = PageServer::start(options(), feed.clone()).expect("a page");
    let at = server.address();
    assert!(get(at, "/report", "").len() > 16 << 20);
    let before = memory();
    let readers: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = connect(at);
            let head = format!("GET /report HTTP/1.1\r\nHost: {at}\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("sent");
            // The answer has begun; the rest is not read.
            assert!(stream.read(&mut [0; 512]).is_ok_and(|read| read > 0));
            stream
        })
        .collect();
    let grown = memory().saturating_sub(before);
    println!("{grown} bytes for 40 readers of 16 MiB");
    assert!(grown < 100 << 20, "{grown} bytes");
    drop(readers);
}

#[test]
fn a_page_without_viewers_looks_at_nothing_and_ends_in_time() {
    let (server, feed) = page(1);
    let watching = viewer(server.address());
    drop(watching);
    // It is noticed with one of the next frames.
    let (begun, mut before) = (Instant::now(), 0);
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let views = feed.views.load(Ordering::Relaxed);
        if std::mem::replace(&mut before, views) == views {
            break;
        }
        assert!(begun.elapsed() < CUT_OFF, "views are taken without a viewer");
    }
    let held = viewer(server.address());
    let begun = Instant::now();
    drop(server);
    println!("it ended within {:?}", begun.elapsed());
    assert!(begun.elapsed() < CUT_OFF, "{:?}", begun.elapsed());
    assert_eq!(Arc::strong_count(&feed), 1, "nothing of it is left");
    drop(held);
}
