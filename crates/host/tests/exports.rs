//! NBD exports as devices, against a server that does what a test says.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nbd::server::{Event, Handshake, Tls};
use nbd::wire::{command, command_flags};
use nbd::{BlockSizes, Errno, Export, Features, Operation, ReplyTo, Request, Style};
use raidlab_host::{
    Access, Completes, Device, DeviceError, DeviceOptions, Disk, ExportError, Location, MemberName,
    Overlap,
};

/// What a server does with a request: the bytes of its reply; `None`: it closes the connection.
type Answer = fn(&mut Store, &Request, &[u8]) -> Option<Vec<u8>>;

struct Store {
    bytes: Vec<u8>,
    /// Command and flags of each request.
    seen: Vec<(u16, u16)>,
    sessions: usize,
}

struct Server {
    _directory: tempfile::TempDir,
    socket: String,
    store: Arc<Mutex<Store>>,
}

const BYTES: usize = 1 << 20;

fn all_features() -> Features {
    let can = Features { flush: true, fua: true, trim: true, ..Features::default() };
    Features { write_zeroes: true, ..can }
}

fn small_blocks() -> BlockSizes {
    BlockSizes { minimum: 1, preferred: 4096, maximum: 64 << 10 }
}

impl Server {
    fn start(blocks: BlockSizes, features: Features, answer: Answer) -> Server {
        Server::start_sized(BYTES as u64, blocks, features, answer)
    }

    /// Of a size that is said, and not there: for requests that move no data.
    fn start_sized(bytes: u64, blocks: BlockSizes, features: Features, answer: Answer) -> Server {
        let said = bytes;
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("s").to_str().expect("UTF-8").to_owned();
        let listener = UnixListener::bind(&socket).expect("a socket");
        let bytes = (0..BYTES).map(|at| (at / 512 + at % 251) as u8).collect();
        let store = Arc::new(Mutex::new(Store { bytes, seen: Vec::new(), sessions: 0 }));
        let (name, description) = ("data".into(), String::new());
        let export = Export { name, description, bytes: said, features, blocks };
        let shared = store.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (store, export) = (shared.clone(), export.clone());
                let stream = stream.expect("a client");
                std::thread::spawn(move || serve(stream, &store, &export, answer));
            }
        });
        Server { _directory: directory, socket, store }
    }

    fn uri(&self) -> String {
        format!("nbd+unix:///data?socket={}", self.socket)
    }

    fn open(&self) -> Device {
        open(&self.uri(), Access::ReadWrite).expect("it opens")
    }

    fn seen(&self) -> Vec<(u16, u16)> {
        self.store.lock().expect("whole").seen.clone()
    }

    fn sessions(&self) -> usize {
        self.store.lock().expect("whole").sessions
    }
}

fn open(name: &str, access: Access) -> Result<Device, DeviceError> {
    let location = MemberName::parse(name.as_ref()).expect("a location").location;
    Device::open(&location, DeviceOptions { access, direct: true })
}

fn serve(mut stream: UnixStream, store: &Mutex<Store>, export: &Export, answer: Answer) {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = Handshake::new(Tls::Off, &mut out);
    let exports = [export.clone()];
    let style = loop {
        stream.write_all(&std::mem::take(&mut out)).expect("it is sent");
        let progress = handshake.receive(&input, &exports, &mut out);
        input.drain(..progress.consumed);
        match progress.event {
            Event::Ready(session) => break session.style,
            Event::NeedMore => {
                let mut bytes = [0; 1000];
                match stream.read(&mut bytes) {
                    Ok(0) | Err(_) => return,
                    Ok(read) => input.extend_from_slice(&bytes[..read]),
                }
            }
            Event::Handled => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(input.is_empty() && style == Style::Structured);
    stream.write_all(&out).expect("it is sent");
    store.lock().expect("whole").sessions += 1;
    loop {
        let mut header = [0; 28];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let request = Request::decode(style, &header).expect("a request").expect("whole");
        let mut payload = vec![0; request.payload_bytes(style) as usize];
        if stream.read_exact(&mut payload).is_err() {
            return;
        }
        let mut store = store.lock().expect("whole");
        store.seen.push((request.command, request.flags));
        let Some(reply) = answer(&mut store, &request, &payload) else { return };
        drop(store);
        if stream.write_all(&reply).is_err() {
            return;
        }
    }
}

/// What a good server does.
fn good(store: &mut Store, request: &Request, payload: &[u8]) -> Option<Vec<u8>> {
    let to = ReplyTo::new(Style::Structured, request);
    let range = request.offset as usize..(request.offset + request.length) as usize;
    match request.command {
        command::READ => {
            // In two pieces, the second one first, and zeroes as a hole.
            let (length, half) = (request.length as u32, request.length as u32 / 2);
            let middle = request.offset + u64::from(half);
            let mut reply = to.data_part(middle, length - half, false).to_vec();
            reply.extend_from_slice(&store.bytes[middle as usize..range.end]);
            let first = &store.bytes[range.start..middle as usize];
            if first.iter().all(|byte| *byte == 0) && half > 0 {
                reply.extend_from_slice(&to.hole(request.offset, half, true));
            } else {
                reply.extend_from_slice(&to.data_part(request.offset, half, true));
                reply.extend_from_slice(first);
            }
            return Some(reply);
        }
        command::WRITE => store.bytes[range].copy_from_slice(payload),
        command::WRITE_ZEROES => store.bytes[range].fill(0),
        command::DISC => return None,
        _ => {}
    }
    Some(to.done().to_vec())
}

#[test]
fn an_export_is_read_and_written_like_a_disk() {
    let blocks = [1, 512, 4096].map(|minimum| BlockSizes { minimum, ..small_blocks() });
    let no_extras = Features { flush: true, ..Features::default() };
    for (blocks, features) in
        blocks.into_iter().flat_map(|it| [(it, all_features()), (it, no_extras)])
    {
        let server = Server::start(blocks, features, good);
        let device = server.open();
        assert_eq!(device.sectors(), 2048);
        assert_eq!(device.logical_block(), blocks.minimum.max(512));
        assert_eq!(device.name(), server.uri());
        let mut wanted = server.store.lock().expect("whole").bytes.clone();
        // Parts of blocks, and more than one request carries.
        for (sector, sectors) in [(3, 1), (7, 9), (0, 300), (2047, 1)] {
            let (from, len) = (sector * 512, sectors * 512);
            let data: Vec<u8> = (0..len).map(|at| (at * 7 + sector) as u8).collect();
            device.write(sector as u64, &data).expect("it is written");
            wanted[from..from + len].copy_from_slice(&data);
        }
        device.write_zeroes(5..700).expect("it is zeroed");
        wanted[5 * 512..700 * 512].fill(0);
        device.sync().expect("it is durable");
        let mut all = vec![1; BYTES];
        device.read(0, &mut all).expect("it is read");
        assert!(all == wanted && server.store.lock().expect("whole").bytes == wanted);
        let mut one = vec![1; 512];
        device.read(3, &mut one).expect("it is read");
        assert_eq!(one, wanted[3 * 512..4 * 512]);
        assert!(device.read(2048, &mut one).is_err() && device.write(2048, &one).is_err());
        drop(device);
        // The server's thread may not have seen it yet.
        let ends = || server.seen().last() == Some(&(command::DISC, 0));
        let patience = Instant::now() + Duration::from_secs(20);
        while !ends() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let seen = server.seen();
        let zeroes = seen.iter().find(|(command, _)| *command == command::WRITE_ZEROES);
        let no_hole = (command::WRITE_ZEROES, command_flags::NO_HOLE);
        assert_eq!(zeroes, features.write_zeroes.then_some(&no_hole));
        assert_eq!(seen.last(), Some(&(command::DISC, 0)), "the session ends in order");
        assert_eq!(server.sessions(), 1);
    }
}

#[test]
fn parts_of_an_export_share_its_connection_and_are_whole_blocks() {
    let server =
        Server::start(BlockSizes { minimum: 4096, ..small_blocks() }, all_features(), good);
    let device = server.open();
    let location = |offset, size| Location { path: server.uri().into(), offset, size };
    let part = device.open_part(&location(8192, Some(4096))).expect("a part");
    assert!(part.is_read_only());
    let mut bytes = vec![0; 4096];
    part.read(0, &mut bytes).expect("it is read");
    assert_eq!(bytes, server.store.lock().expect("whole").bytes[8192..12288]);
    assert!(part.write(0, &bytes).is_err());
    assert_eq!(server.sessions(), 1);
    assert_eq!(device.overlap(&part), Some(Overlap::Under));
    assert_eq!(device.overlap(&server.open()), Some(Overlap::Same));
    let unaligned = device.open_part(&location(512, None)).expect_err("no block begins there");
    assert!(unaligned.to_string().contains("blocks of 4096 bytes"), "{unaligned}");
    let beyond = device.open_part(&location(0, Some(2 << 20))).expect_err("it is too long");
    assert!(beyond.to_string().contains("1048576 bytes"), "{beyond}");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let read_only = Features { read_only: true, ..Features::default() };
    let server = Server::start(small_blocks(), read_only, good);
    let refused = open(&server.uri(), Access::ReadWrite).expect_err("it is read-only");
    assert!(refused.to_string().ends_with("the server exports it read-only"), "{refused}");
    open(&server.uri(), Access::ReadOnly).expect("it can be read");
    let unknown = server.uri().replace("data", "other");
    let refused = open(&unknown, Access::ReadOnly).expect_err("there is none");
    assert!(refused.to_string().contains("it has no such export"), "{refused}");
    let nowhere = format!("{}x", server.uri());
    let refused = open(&nowhere, Access::ReadOnly).expect_err("there is no server");
    assert!(refused.to_string().contains("cannot connect"), "{refused}");
    let large = BlockSizes { minimum: 8192, preferred: 8192, maximum: 64 << 10 };
    let server = Server::start(large, all_features(), good);
    let refused = open(&server.uri(), Access::ReadOnly).expect_err("its blocks are too large");
    assert!(refused.to_string().contains("blocks of 8192 bytes"), "{refused}");
    // Something that is no NBD server.
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.write_all(b"220 mail.example.org ESMTP\r\n").expect("it is sent");
        let _ = stream.read(&mut [0; 100]);
    });
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let refused = open(&uri, Access::ReadOnly).expect_err("it is no NBD server");
    assert!(refused.to_string().contains("greeting"), "{refused}");
    other.join().expect("it ended");
}

/// The ends of operations, in their order.
#[derive(Default)]
struct Ends(Mutex<Vec<(u32, Result<(), ExportError>)>>);

impl Completes for Ends {
    fn completed(&self, id: u32, _: Vec<u8>, result: Result<(), ExportError>) {
        self.0.lock().expect("whole").push((id, result));
    }
}

#[test]
fn a_server_that_falls_silent_is_given_up_with_everything_that_is_in_flight() {
    let silent: Answer = |store, request, payload| match request.command {
        command::READ if request.offset == 0 => Some(Vec::new()),
        _ => good(store, request, payload),
    };
    let server = Server::start(small_blocks(), all_features(), silent);
    let device = server.open();
    let export = device.export().expect("an export");
    export.set_timeout(Some(Duration::from_millis(300)));
    let began = Instant::now();
    let ends = Arc::new(Ends::default());
    // More than may be in flight: what waits for its turn ends as well.
    for id in 0..500 {
        let read = Operation::Read { offset: 0, length: 512, one_piece: false };
        export.submit(read, Vec::new(), id, ends.clone());
    }
    let error = device.read(0, &mut [0; 512]).expect_err("no reply comes");
    assert_eq!(error.raw_os_error(), Some(110), "{error}: ETIMEDOUT");
    assert!(began.elapsed() >= Duration::from_millis(300));
    let end = || ends.0.lock().expect("whole").len();
    let patience = Instant::now() + Duration::from_secs(20);
    while end() < 500 && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    let lost = |it: &(u32, Result<(), ExportError>)| matches!(it.1, Err(ExportError::Lost { .. }));
    let ended = ends.0.lock().expect("whole");
    assert!(ended.len() == 500 && ended.iter().all(lost), "{}", ended.len());
    // It is final: nothing connects again.
    let asked = server.seen().len();
    let again = device.read(512, &mut [0; 512]).expect_err("it is lost");
    assert_eq!(again.raw_os_error(), Some(110), "{again}");
    assert!(device.sync().is_err());
    assert_eq!((server.sessions(), server.seen().len()), (1, asked));
}

#[test]
fn a_server_that_breaks_the_protocol_is_an_error_and_never_data() {
    let answers: [(&str, Answer); 7] = [
        ("it closes the connection", |_, _, _| None),
        ("garbage", |_, _, _| Some(b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(3))),
        ("a reply to another request", |_, request, _| {
            let other = Request { cookie: request.cookie ^ 1 << 40, ..*request };
            Some(ReplyTo::new(Style::Structured, &other).done().to_vec())
        }),
        ("success without data", |_, request, _| {
            Some(ReplyTo::new(Style::Structured, request).done().to_vec())
        }),
        ("data behind the range", |_, request, _| {
            let to = ReplyTo::new(Style::Structured, request);
            let mut reply = to.data_part(request.offset + 512, 512, true).to_vec();
            reply.extend([7; 512]);
            Some(reply)
        }),
        ("half of the data", |_, request, _| {
            let to = ReplyTo::new(Style::Structured, request);
            let mut reply = to.data_part(request.offset, 256, true).to_vec();
            reply.extend([7; 256]);
            Some(reply)
        }),
        ("empty chunks without an end", |_, request, _| {
            let to = ReplyTo::new(Style::Structured, request);
            let mut error = to.error(Errno::Io).to_vec();
            // Not the last chunk.
            error[5] = 0;
            Some(error.repeat(200_000))
        }),
    ];
    for (what, answer) in answers {
        let server = Server::start(small_blocks(), all_features(), answer);
        let device = server.open();
        device.export().expect("an export").set_timeout(Some(Duration::from_millis(500)));
        let mut bytes = [1; 512];
        let error = device.read(0, &mut bytes).expect_err(what);
        assert_eq!(bytes, [1; 512], "{what}: {error}");
        assert!(device.export().expect("an export").lost().is_some(), "{what}: {error}");
        let again = device.write(0, &bytes).expect_err(what);
        assert_eq!((server.sessions(), again.raw_os_error()), (1, error.raw_os_error()), "{what}");
    }
}

#[test]
fn an_error_of_the_server_is_one_of_the_operation_alone() {
    let failing: Answer = |store, request, payload| match (request.command, request.offset) {
        (command::READ, 4096) => {
            let to = ReplyTo::new(Style::Structured, request);
            // Data may come before the error.
            let mut reply = to.data_part(4096, 512, false).to_vec();
            reply.extend([7; 512]);
            reply.extend_from_slice(&to.error_at(Errno::Io, 4096 + 512));
            Some(reply)
        }
        (command::WRITE, 4096) => {
            let mut reply = Vec::new();
            let to = ReplyTo::new(Style::Structured, request);
            to.error_text(Errno::NoSpace, "the disk is full", &mut reply);
            Some(reply)
        }
        _ => good(store, request, payload),
    };
    let server = Server::start(small_blocks(), all_features(), failing);
    let device = server.open();
    let mut bytes = vec![1; 1024];
    assert_eq!(device.read(8, &mut bytes).expect_err("a bad sector").raw_os_error(), Some(5));
    assert_eq!(bytes, [1; 1024]);
    assert_eq!(device.write(8, &bytes).expect_err("no space").raw_os_error(), Some(28));
    device.read(9, &mut bytes).expect("others can be read");
    device.write(9, &bytes).expect("and written");
    assert!(device.export().expect("an export").lost().is_none());
}

#[test]
fn a_device_that_is_dropped_with_requests_in_flight_ends_them() {
    let silent: Answer = |_, _, _| Some(Vec::new());
    let server = Server::start(small_blocks(), all_features(), silent);
    let device = server.open();
    let ends = Arc::new(Ends::default());
    let length = 64 << 10;
    for id in 0..200 {
        let write = Operation::Write { offset: 0, length, fua: true };
        let export = device.export().expect("an export");
        export.submit(write, vec![9; length as usize], id, ends.clone());
    }
    drop(device);
    let ended = ends.0.lock().expect("whole");
    assert_eq!(ended.len(), 200);
    assert!(ended.iter().all(|(_, result)| result.is_err()));
}

#[test]
fn zeroes_that_a_server_offers_and_refuses_are_written() {
    let answers: [Answer; 2] = [
        |store, request, payload| match request.command {
            command::WRITE_ZEROES => {
                Some(ReplyTo::new(Style::Structured, request).error(Errno::NotSupported).to_vec())
            }
            _ => good(store, request, payload),
        },
        |store, request, payload| match request.command {
            command::WRITE_ZEROES => {
                Some(ReplyTo::new(Style::Structured, request).error(Errno::Invalid).to_vec())
            }
            _ => good(store, request, payload),
        },
    ];
    for answer in answers {
        let server = Server::start(small_blocks(), all_features(), answer);
        let device = server.open();
        let mut wanted = server.store.lock().expect("whole").bytes.clone();
        for range in [3..700, 900..901] {
            device.write_zeroes(range.clone()).expect("it is zeroed");
            wanted[range.start as usize * 512..range.end as usize * 512].fill(0);
        }
        assert!(server.store.lock().expect("whole").bytes == wanted);
        let seen = server.seen();
        let tried = seen.iter().filter(|(command, _)| *command == command::WRITE_ZEROES).count();
        assert_eq!(tried, 1, "it is not tried again");
        assert!(!device.export().expect("an export").features().write_zeroes);
    }
    // Any other error is that of the range.
    let failing: Answer = |store, request, payload| match request.command {
        command::WRITE_ZEROES => {
            Some(ReplyTo::new(Style::Structured, request).error(Errno::NoSpace).to_vec())
        }
        _ => good(store, request, payload),
    };
    let server = Server::start(small_blocks(), all_features(), failing);
    let device = server.open();
    assert_eq!(device.write_zeroes(3..700).expect_err("no space").raw_os_error(), Some(28));
    assert!(device.export().expect("an export").features().write_zeroes);
}

#[test]
fn a_long_range_to_zero_gets_more_time_than_a_read() {
    const MIB: u64 = 1 << 20;
    let limit = Duration::from_millis(200);
    let slow: Answer = |store, request, payload| match (request.command, request.offset) {
        // For ever.
        (command::WRITE_ZEROES, MIB) => Some(Vec::new()),
        (command::WRITE_ZEROES, _) => {
            std::thread::sleep(Duration::from_millis(800));
            Some(ReplyTo::new(Style::Structured, request).done().to_vec())
        }
        _ => good(store, request, payload),
    };
    let server = Server::start_sized(128 * MIB, small_blocks(), all_features(), slow);
    let device = server.open();
    device.export().expect("an export").set_timeout(Some(limit));
    device.write_zeroes(0..128 * MIB / 512).expect("eight seconds more");
    let began = Instant::now();
    let error = device.write_zeroes(MIB / 512..17 * MIB / 512).expect_err("no reply comes");
    assert_eq!(error.raw_os_error(), Some(110), "{error}: ETIMEDOUT");
    assert!(began.elapsed() >= limit + Duration::from_secs(1), "{:?}", began.elapsed());
}
