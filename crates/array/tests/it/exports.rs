//! Members that are NBD exports, of a server that does not do what it offers.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use array::{HostOp, MemberSpec, NbdMember};
use device::{Access, Device, DeviceOptions, Location};
use md::Level;
use nbd::server::{Event, Handshake, Tls};
use nbd::wire::command;
use nbd::{BlockSizes, Errno, Export, Features, ReplyTo, Request};

use crate::common::{SECTOR, driver, host, spec};

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
            Event::Ready(session) => break session.style,
            Event::NeedMore => {
                let mut byte = [0];
                stream.read_exact(&mut byte)?;
                input.push(byte[0]);
            }
            Event::Handled => {}
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

#[test]
fn a_member_whose_server_refuses_write_zeroes_is_written_to_and_stays() {
    let directory = tempfile::tempdir().expect("a directory");
    for error in [Errno::NotSupported, Errno::Invalid] {
        let (mut members, mut stores) = (Vec::new(), Vec::new());
        for number in 0..3 {
            let bytes = vec![8; SECTORS as usize * SECTOR];
            let store = Arc::new(Mutex::new(Store { bytes, seen: Vec::new(), error }));
            let socket = directory.path().join(format!("{error}{number}").replace(' ', "-"));
            let listener = UnixListener::bind(&socket).expect("a socket");
            let shared = store.clone();
            std::thread::spawn(move || {
                let (stream, _) = listener.accept().expect("a client");
                // It ends with the session.
                let _ = serve(stream, &shared);
            });
            let location = Location::whole(format!("nbd+unix:///?socket={}", socket.display()));
            let options = DeviceOptions { access: Access::ReadWrite, direct: true };
            let device = Device::open(&location, options).expect("it opens");
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
