//! Members that are NBD exports, of a server that does not do what it offers.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::host::{Access, Device, DeviceOptions, Location, MemoryDisk};
use md::ondisk::{Area, BadBlockArea};
use md::{Level, MemberIdx};
use nbd::server::{Event as Step, Handshake, Tls};
use nbd::wire::command;
use nbd::{BlockSizes, Errno, Export, Features, ReplyTo, Request};
use raidlab_array::{
    BadBlockList, BadBlockMember, DriverOptions, Event, HostOp, MemberError, MemberSpec, NbdMember,
};

use crate::common::{SECTOR, Shards, driver, host, mem, options, spec};

const SECTORS: u64 = 8192;

/// What a server has: its bytes, the commands that it got, the error of WRITE_ZEROES.
struct Store {
    bytes: Vec<u8>,
    seen: Vec<u16>,
    error: Errno,
}

/// Serves one client.
fn serve(mut stream: UnixStream, store: &Mutex<Store>) -> std::io::Result<()> {
    let features = Features { flush: true, trim: true, write_zeroes: true, ..Features::default() };
    let blocks = BlockSizes { minimum: 512, preferred: 4096, maximum: 1 << 20 };
    let (name, description, bytes) = (String::new(), String::new(), SECTORS * SECTOR as u64);
    let exports = [Export { name, description, bytes, features, blocks }];
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut handshake = Handshake::new(Tls::Off, &mut out);
    let style = loop {
        stream.write_all(&std::mem::take(&mut out))?;
        let progress = handshake.receive(&input, &exports, &mut out);
        input.drain(..progress.consumed);
        match progress.event {
            Step::Ready(session) => break session.style,
            Step::NeedMore => {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                input.push(byte[0]);
            }
            Step::Handled => {}
            other => panic!("{other:?}"),
        }
    };
    stream.write_all(&out)?;
    loop {
        let mut header = vec![0; Request::header_bytes(style)];
        stream.read_exact(&mut header)?;
        let request = Request::decode(style, &header).expect("a request").expect("whole");
        let mut payload = vec![0; request.payload_bytes(style) as usize];
        stream.read_exact(&mut payload)?;
        let mut store = store.lock().expect("whole");
        store.seen.push(request.command);
        let to = ReplyTo::new(style, &request);
        let range = request.offset as usize..(request.offset + request.length) as usize;
        let mut reply = Vec::new();
        match request.command {
            command::READ => {
                let length = request.length as u32;
                reply.extend_from_slice(&to.data_part(request.offset, length, true));
                reply.extend_from_slice(&store.bytes[range]);
            }
            command::WRITE => {
                store.bytes[range].copy_from_slice(&payload);
                reply.extend_from_slice(&to.done());
            }
            command::WRITE_ZEROES => reply.extend_from_slice(&to.error(store.error)),
            _ => reply.extend_from_slice(&to.done()),
        }
        drop(store);
        stream.write_all(&reply)?;
    }
}

/// An export of a server for one client, opened, and what the server has.
fn export(socket: &Path, error: Errno) -> (Device, Arc<Mutex<Store>>) {
    let bytes = vec![8; SECTORS as usize * SECTOR];
    let store = Arc::new(Mutex::new(Store { bytes, seen: Vec::new(), error }));
    let listener = UnixListener::bind(socket).expect("a socket");
    let shared = store.clone();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a client");
        // It ends with the session.
        let _ = serve(stream, &shared);
    });
    let location = Location::whole(format!("nbd+unix:///?socket={}", socket.display()));
    let options = DeviceOptions { access: Access::ReadWrite, direct: true };
    (Device::open(&location, options).expect("it opens"), store)
}

#[test]
fn a_member_whose_server_refuses_write_zeroes_is_written_to_and_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    for error in [Errno::NotSupported, Errno::Invalid] {
        let (mut members, mut stores) = (Vec::new(), Vec::new());
        for number in 0..3 {
            let socket = directory.path().join(format!("{error}{number}").replace(' ', "-"));
            let (device, store) = export(&socket, error);
            let member = NbdMember::of_device(&device, 0..SECTORS).expect("an export");
            members.push(MemberSpec::ready(member));
            stores.push(store);
        }
        let mut driver = driver(spec(Level::Raid5, 128, members));
        let sectors = driver.info().sectors;
        let mut expected = vec![8; sectors as usize * SECTOR];
        for (at, part) in expected.chunks(1 << 20).enumerate() {
            host::write(&mut driver, at as u64 * 2048, part);
        }
        // Whole rows and parts of chunks, several at once on each member.
        for range in [0..sectors - 512, sectors - 500..sectors - 3] {
            let len = range.end - range.start;
            let (result, _) = host::call(&mut driver, HostOp::WriteZeroes, range.start, len, None);
            assert_eq!(result, Ok(()), "{error}");
            expected[range.start as usize * SECTOR..range.end as usize * SECTOR].fill(0);
        }
        assert!(driver.failed().is_empty() && driver.take_events().is_empty(), "{error}");
        for from in (0..sectors).step_by(1024) {
            let len = 1024.min(sectors - from);
            let range = from as usize * SECTOR..(from + len) as usize * SECTOR;
            assert!(host::read(&mut driver, from, len) == expected[range], "{error}: {from}");
        }
        let tried = |store: &Arc<Mutex<Store>>| {
            let seen = &store.lock().expect("whole").seen;
            seen.iter().filter(|it| **it == command::WRITE_ZEROES).count()
        };
        // What was in flight when the first refusal came was refused, too.
        assert!(stores.iter().all(|store| tried(store) >= 1), "the server was tried");
    }
}

#[test]
fn a_member_with_a_bad_block_list_loses_its_connection_in_the_time_of_its_operations() {
    let directory = tempfile::tempdir().expect("a directory");
    let limit = Duration::from_millis(500);
    for has_list in [false, true] {
        let socket = directory.path().join(format!("list-{has_list}"));
        let (device, store) = export(&socket, Errno::NotSupported);
        let member = NbdMember::of_device(&device, 0..SECTORS).expect("an export");
        let member = match has_list {
            false => MemberSpec::ready(member),
            true => {
                let disk = Arc::new(MemoryDisk::new("list", vec![0; 4096]));
                let area = Area { sector: 0, sectors: 8 };
                let place = BadBlockArea { area, shift: 0, in_use: false };
                let list = BadBlockList::read(disk, place, 0).expect("an empty list");
                MemberSpec::ready(BadBlockMember::new(Box::new(member), list))
            }
        };
        let spec = spec(Level::Raid1, 0, vec![mem(SECTORS), member]);
        let options = DriverOptions { member_timeout: Some(limit), ..options() };
        let mut driver = Shards::new(spec, &options).expect("a valid array");
        host::write(&mut driver, 0, &[7; 8 * SECTOR]);
        assert!(driver.take_events().is_empty() && driver.failed().is_empty());
        // The server does nothing any more.
        let hangs = store.lock().expect("whole");
        let began = Instant::now();
        host::write(&mut driver, 0, &[9; 8 * SECTOR]);
        let events = driver.take_events();
        let [Event::MemberFailed { member: MemberIdx(1), error: Some(error) }] = events[..] else {
            panic!("{events:?}")
        };
        assert!(error.kind == MemberError::Timeout && began.elapsed() >= limit, "{error:?}");
        let export = device.export().expect("an export");
        // 30 s, where the connection does not know the time of the array.
        while export.lost().is_none() {
            assert!(began.elapsed() < Duration::from_secs(15), "it is kept, list: {has_list}");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(hangs);
        assert_eq!(host::read(&mut driver, 0, 8), [9; 8 * SECTOR]);
    }
}
