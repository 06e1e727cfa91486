//! The clock of a user-mode kernel: the calendar of `time-travel=ext:SOCKET` with shared memory
//! (`include/uapi/linux/um_timetravel.h`, Linux 6.11 and later).
//!
//! ```text
//!   kernel                                  calendar
//!     START            ------------------->
//!            <- ACK, with the shared memory
//!     runs until `free_until`, which is in it, and writes `current_time`
//!     WAIT, its request in it ---------------->
//!            <- RUN, at the requested time, or of an interrupt
//! ```
//!
//! Invariant: time never runs backwards, and the kernel never runs past `free_until`: what a disk
//! will do next happens before.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use host::sys::FileMap;
use rustix::fs::MemfdFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

const ACK: u32 = 0;
const START: u32 = 1;
const REQUEST: u32 = 2;
const WAIT: u32 = 3;
const GET: u32 = 4;
const UPDATE: u32 = 5;
const RUN: u32 = 6;
const GET_TOD: u32 = 8;

/// Version of the shared memory.
const SHARED_VERSION: u32 = 2;
/// Its header; an entry for each client follows.
const HEADER_BYTES: u64 = 4096;
const CLIENT_BYTES: u64 = 128;
/// Entry 0 is this calendar's, entry 1 the kernel's.
const KERNEL: u16 = 1;
const SHARED_BYTES: u64 = HEADER_BYTES + 2 * CLIENT_BYTES;
/// Offsets in the header.
const FREE_UNTIL: u64 = 8;
const CURRENT_TIME: u64 = 16;
const RUNNING: u64 = 24;
/// Offsets in an entry.
const CAPABILITIES: u64 = 0;
const FLAGS: u64 = 4;
const REQUESTED: u64 = 8;
/// The client keeps its time and its request in the memory.
const SHARES_TIME: u32 = 1;
/// The client requests to run.
const HAS_REQUEST: u32 = 1;

/// Time of day at the start, seconds: any would do, as long as it is always the same.
const TIME_OF_DAY_SECONDS: u64 = 1_200_000_000;

/// See the module documentation.
pub(super) struct Calendar {
    socket: UnixStream,
    shared: FileMap,
    waiting: bool,
}

/// A message of the calendar's protocol.
struct Message {
    op: u32,
    number: u32,
    time: u64,
}

impl Calendar {
    /// Accepts the connection of a kernel that begins at time 0.
    pub(super) fn accept(listener: &UnixListener) -> io::Result<Calendar> {
        let (socket, _) = listener.accept()?;
        let file = rustix::fs::memfd_create("raidlab-calendar", MemfdFlags::CLOEXEC)?;
        let file = File::from(file);
        file.set_len(SHARED_BYTES)?;
        let mut shared = FileMap::new(&file, true)?;
        shared.write(0, &SHARED_VERSION.to_le_bytes())?;
        shared.write(4, &(SHARED_BYTES as u32).to_le_bytes())?;
        shared.write(RUNNING, &KERNEL.to_le_bytes())?;
        shared.write(RUNNING + 2, &2u16.to_le_bytes())?;
        shared.write(HEADER_BYTES + CAPABILITIES, &SHARES_TIME.to_le_bytes())?;
        let mut calendar = Calendar { socket, shared, waiting: false };
        let start = calendar.receive()?.filter(|message| message.op == START);
        let start = start.ok_or_else(|| invalid("no START"))?;
        // The log of the kernel is not kept.
        let log = File::options().write(true).open("/dev/null")?;
        calendar.answer_start(start.number, &file, &log)?;
        Ok(calendar)
    }

    fn answer_start(&mut self, number: u32, memory: &File, log: &File) -> io::Result<()> {
        let bytes = Message { op: ACK, number, time: u64::from(KERNEL) }.bytes();
        let fds = [memory.as_fd(), log.as_fd()];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(invalid("no room for two descriptors"));
        }
        let sent = rustix::net::sendmsg(
            &self.socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        if sent == bytes.len() { Ok(()) } else { Err(invalid("a short answer")) }
    }

    /// What is polled.
    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Receives a message and answers it. Returns `false` when the kernel is gone.
    pub(super) fn serve(&mut self) -> io::Result<bool> {
        let Some(Message { op, number, time }) = self.receive()? else { return Ok(false) };
        let answer = match op {
            ACK => return Ok(true),
            // Without an answer: the memory says what it waits for.
            WAIT => {
                self.waiting = true;
                return Ok(true);
            }
            GET => self.now()?,
            GET_TOD => TIME_OF_DAY_SECONDS * 1_000_000_000,
            REQUEST => {
                self.shared.write(HEADER_BYTES + CLIENT_BYTES + REQUESTED, &time.to_le_bytes())?;
                let flags = HAS_REQUEST.to_le_bytes();
                self.shared.write(HEADER_BYTES + CLIENT_BYTES + FLAGS, &flags)?;
                0
            }
            UPDATE => {
                self.set_now(time)?;
                0
            }
            other => return Err(invalid(&format!("message {other}"))),
        };
        self.socket.write_all(&Message { op: ACK, number, time: answer }.bytes())?;
        Ok(true)
    }

    /// Whether the kernel waits for RUN.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// The time, nanoseconds.
    pub(super) fn now(&self) -> io::Result<u64> {
        self.number(CURRENT_TIME)
    }

    /// Lets time pass while the kernel waits.
    pub(super) fn set_now(&mut self, now: u64) -> io::Result<()> {
        self.shared.write(CURRENT_TIME, &now.to_le_bytes())
    }

    /// When the kernel is to run.
    pub(super) fn requested(&self) -> io::Result<Option<u64>> {
        let mut flags = [0; 4];
        self.shared.read(HEADER_BYTES + CLIENT_BYTES + FLAGS, &mut flags)?;
        match u32::from_le_bytes(flags) & HAS_REQUEST {
            0 => Ok(None),
            _ => Ok(Some(self.number(HEADER_BYTES + CLIENT_BYTES + REQUESTED)?)),
        }
    }

    /// Until when the kernel may run without asking.
    pub(super) fn set_free_until(&mut self, time: u64) -> io::Result<()> {
        self.shared.write(FREE_UNTIL, &time.to_le_bytes())
    }

    /// Lets the waiting kernel run from `now` on, until `free_until`.
    pub(super) fn run(&mut self, now: u64, free_until: u64) -> io::Result<()> {
        self.set_now(now)?;
        self.set_free_until(free_until)?;
        self.waiting = false;
        self.socket.write_all(&Message { op: RUN, number: 0, time: now }.bytes())
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.shared.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn receive(&mut self) -> io::Result<Option<Message>> {
        let mut bytes = [0; 16];
        match self.socket.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error),
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]));
        let time = u64::from(word(8)) | u64::from(word(12)) << 32;
        Ok(Some(Message { op: word(0), number: word(4), time }))
    }
}

impl Message {
    fn bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.op.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.time.to_le_bytes());
        bytes
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the kernel's calendar: {what}"))
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::mem::MaybeUninit;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

    use super::*;

    /// Connects as a kernel does; returns its socket and the memory that it was given.
    fn kernel(path: &std::path::Path) -> (UnixStream, FileMap) {
        let mut socket = UnixStream::connect(path).expect("a listener");
        socket.write_all(&Message { op: START, number: 7, time: u64::MAX }.bytes()).expect("sent");
        let mut bytes = [0; 16];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&socket, &mut parts, &mut control, RecvFlags::empty()).expect("ACK");
        let fds = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds.collect::<Vec<_>>()),
            _ => None,
        });
        let mut fds = fds.expect("descriptors").into_iter();
        let memory = File::from(fds.next().expect("the memory"));
        assert!(fds.next().is_some(), "a log");
        assert_eq!((bytes[0], bytes[4], bytes[8]), (ACK as u8, 7, KERNEL as u8));
        (socket, FileMap::new(&memory, true).expect("mapped"))
    }

    fn number(memory: &FileMap, at: u64) -> u64 {
        let mut bytes = [0; 8];
        memory.read(at, &mut bytes).expect("inside");
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn a_kernel_waits_for_its_requested_time_and_runs() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("clock");
        let listener = UnixListener::bind(&path).expect("bound");
        let inside = std::thread::spawn(move || kernel(&path));
        let mut calendar = Calendar::accept(&listener).expect("a kernel");
        let (mut socket, mut memory) = inside.join().expect("no panic");
        assert_eq!(number(&memory, 0) as u32, SHARED_VERSION);

        let own = HEADER_BYTES + CLIENT_BYTES;
        memory.write(CURRENT_TIME, &100u64.to_le_bytes()).expect("inside");
        memory.write(own + REQUESTED, &500u64.to_le_bytes()).expect("inside");
        memory.write(own + FLAGS, &HAS_REQUEST.to_le_bytes()).expect("inside");
        assert!(!calendar.is_waiting());
        socket.write_all(&Message { op: WAIT, number: 8, time: 0 }.bytes()).expect("sent");
        assert!(calendar.serve().expect("served") && calendar.is_waiting());
        assert_eq!(
            (calendar.now().expect("100"), calendar.requested().expect("read")),
            (100, Some(500))
        );

        calendar.run(500, 900).expect("sent");
        let mut run = [0; 16];
        socket.read_exact(&mut run).expect("RUN");
        assert_eq!(run, Message { op: RUN, number: 0, time: 500 }.bytes());
        assert_eq!((number(&memory, CURRENT_TIME), number(&memory, FREE_UNTIL)), (500, 900));

        socket.write_all(&Message { op: 77, number: 9, time: 0 }.bytes()).expect("sent");
        assert!(calendar.serve().expect_err("unknown").to_string().contains("message 77"));
        drop(socket);
        assert!(!calendar.serve().expect("the end"));
    }
}
