//! A disk of a user-mode kernel: vhost-user-blk with notifications in the protocol's own messages
//! (VHOST_USER_PROTOCOL_F_INBAND_NOTIFICATIONS), so that both sides agree on when they happened.
//!
//! Invariant: a request ends once, with its bytes moved; what it moves is moved when it is taken,
//! and the kernel learns of it when the drive's model says so. Nothing of the kernel's decides an
//! address of this process. Called by `world`.

use std::fs::File;
use std::io::{self, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use drive::{Op, OpKind};
use export::vhost_user::{Chain, Memory, SEG_MAX};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use slab::Slab;
use virtio_bindings::virtio_blk as blk;
use virtio_bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestRegionMmap, MmapRegion};

const SECTOR: u64 = 512;
/// Entries of the ring, as the kernel has them.
const RING_MAX: u16 = 256;
/// A virtio-blk header.
const HEADER_BYTES: u64 = 16;
/// Longest body of a message.
const BODY_MAX: usize = 4096;
const CONFIG_BYTES: usize = 256;
/// VHOST_USER_F_PROTOCOL_FEATURES.
const PROTOCOL_FEATURES: u64 = 1 << 30;
const FEATURES: u64 = PROTOCOL_FEATURES
    | 1 << VIRTIO_F_VERSION_1
    | 1 << VIRTIO_RING_F_INDIRECT_DESC
    | 1 << blk::VIRTIO_BLK_F_FLUSH
    | 1 << blk::VIRTIO_BLK_F_SEG_MAX;
/// REPLY_ACK, BACKEND_REQ, CONFIG, INBAND_NOTIFICATIONS.
const PROTOCOL: u64 = 1 << 3 | 1 << 5 | 1 << 9 | 1 << 14;
/// Of a message's flags: version 1, a reply, a reply is required.
const VERSION: u32 = 1;
const REPLY: u32 = 4;
const NEED_REPLY: u32 = 8;

/// Requests of the front end.
mod request {
    pub(super) const GET_FEATURES: u32 = 1;
    pub(super) const SET_MEM_TABLE: u32 = 5;
    pub(super) const SET_VRING_NUM: u32 = 8;
    pub(super) const SET_VRING_ADDR: u32 = 9;
    pub(super) const SET_VRING_BASE: u32 = 10;
    pub(super) const GET_VRING_BASE: u32 = 11;
    pub(super) const GET_PROTOCOL_FEATURES: u32 = 15;
    pub(super) const GET_QUEUE_NUM: u32 = 17;
    pub(super) const SET_BACKEND_REQ_FD: u32 = 21;
    pub(super) const GET_CONFIG: u32 = 24;
    pub(super) const VRING_KICK: u32 = 35;
}
/// Request of the back end: VHOST_USER_BACKEND_VRING_CALL.
const VRING_CALL: u32 = 4;

/// A request in flight.
struct Taken {
    head: u16,
    status: GuestAddress,
    written: u32,
    result: u8,
}

/// A region of the kernel's memory, as its addresses in rings are given.
struct Region {
    user: u64,
    bytes: u64,
    guest: u64,
}

/// See the module documentation.
pub(super) struct Disk {
    listener: UnixListener,
    socket: Option<UnixStream>,
    /// Where interrupts go.
    back: Option<UnixStream>,
    memory: Option<Memory>,
    regions: Vec<Region>,
    ring: Queue,
    store: File,
    bytes: u64,
    in_flight: Slab<Taken>,
    /// There are ends of which the kernel has had no interrupt.
    ended: bool,
}

/// What a message requires of the caller.
pub(super) enum Received {
    /// Nothing more; it is answered.
    Nothing,
    /// There are requests in the ring: to be taken, and answered afterwards.
    Kick(Reply),
    /// The kernel has closed the device.
    Gone,
}

/// An answer that is due.
pub(super) struct Reply {
    request: u32,
    wanted: bool,
}

impl Disk {
    /// A disk of `bytes` whose contents are in `store`; `listener` is the socket that the kernel
    /// has been given.
    pub(super) fn new(listener: UnixListener, store: File, bytes: u64) -> io::Result<Disk> {
        Ok(Disk {
            listener,
            socket: None,
            back: None,
            memory: None,
            regions: Vec::new(),
            ring: Queue::new(RING_MAX).map_err(io::Error::other)?,
            store,
            bytes,
            in_flight: Slab::new(),
            ended: false,
        })
    }

    /// What is polled: the connection, or before there is one the listening socket.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_ref().map_or(self.listener.as_fd(), AsFd::as_fd)
    }

    /// Whether the kernel has connected.
    pub(super) fn is_connected(&self) -> bool {
        self.socket.is_some()
    }

    /// Accepts the kernel's connection.
    pub(super) fn accept(&mut self) -> io::Result<()> {
        self.socket = Some(self.listener.accept()?.0);
        Ok(())
    }

    /// Receives a message.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        let Some(socket) = &mut self.socket else { return Ok(Received::Gone) };
        let Some((header, fds)) = header_of(socket)? else {
            self.socket = None;
            return Ok(Received::Gone);
        };
        let [request, flags, length] = header;
        if length as usize > BODY_MAX {
            return Err(invalid("a message is too long"));
        }
        let mut body = vec![0; length as usize];
        socket.read_exact(&mut body)?;
        let reply = Reply { request, wanted: flags & NEED_REPLY != 0 };
        let answer = match request {
            request::GET_FEATURES => Some(FEATURES.to_le_bytes().to_vec()),
            request::GET_PROTOCOL_FEATURES => Some(PROTOCOL.to_le_bytes().to_vec()),
            request::GET_QUEUE_NUM => Some(1u64.to_le_bytes().to_vec()),
            request::SET_MEM_TABLE => self.set_memory(&body, fds).map(|()| None)?,
            request::SET_VRING_NUM => {
                let size = u16::try_from(u32_at(&body, 4)?).map_err(io::Error::other)?;
                self.ring.try_set_size(size).map_err(io::Error::other)?;
                None
            }
            request::SET_VRING_ADDR => self.set_ring(&body).map(|()| None)?,
            request::SET_VRING_BASE => {
                self.ring.set_next_avail(u32_at(&body, 4)? as u16);
                None
            }
            request::GET_VRING_BASE => {
                let mut base = u32_at(&body, 0)?.to_le_bytes().to_vec();
                base.extend(u32::from(self.ring.next_avail()).to_le_bytes());
                Some(base)
            }
            request::SET_BACKEND_REQ_FD => {
                let fd = fds.into_iter().next().ok_or_else(|| invalid("no descriptor"))?;
                self.back = Some(UnixStream::from(fd));
                None
            }
            request::GET_CONFIG => Some(self.configuration(&body)?),
            request::VRING_KICK => return Ok(Received::Kick(reply)),
            _ => None,
        };
        match answer {
            Some(answer) => self.send(request, &answer)?,
            None => self.reply(&reply)?,
        }
        Ok(Received::Nothing)
    }

    /// Answers what has been done, where an answer is required.
    pub(super) fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        match reply.wanted {
            true => self.send(reply.request, &0u64.to_le_bytes()),
            false => Ok(()),
        }
    }

    fn send(&mut self, request: u32, body: &[u8]) -> io::Result<()> {
        let socket = self.socket.as_mut().ok_or_else(|| invalid("no connection"))?;
        let mut bytes = Vec::with_capacity(12 + body.len());
        for word in [request, VERSION | REPLY, body.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(body);
        socket.write_all(&bytes)
    }

    fn set_memory(&mut self, body: &[u8], fds: Vec<OwnedFd>) -> io::Result<()> {
        let count = u32_at(body, 0)? as usize;
        if count != fds.len() {
            return Err(invalid("regions without descriptors"));
        }
        let (mut regions, mut mapped) = (Vec::new(), Vec::new());
        for (at, fd) in fds.into_iter().enumerate() {
            let number = |field: usize| u64_at(body, 8 + 32 * at + 8 * field);
            let (guest, bytes, user, offset) = (number(0)?, number(1)?, number(2)?, number(3)?);
            let length = usize::try_from(bytes).map_err(io::Error::other)?;
            let file = FileOffset::new(File::from(fd), offset);
            let region = MmapRegion::from_file(file, length).map_err(io::Error::other)?;
            let region = GuestRegionMmap::new(region, GuestAddress(guest));
            mapped.push(Arc::new(region.ok_or_else(|| invalid("a region has no address"))?));
            regions.push(Region { user, bytes, guest });
        }
        mapped.sort_by_key(|region| vm_memory::GuestMemoryRegion::start_addr(&**region));
        self.memory = Some(Memory::from_arc_regions(mapped).map_err(io::Error::other)?);
        self.regions = regions;
        Ok(())
    }

    fn set_ring(&mut self, body: &[u8]) -> io::Result<()> {
        let address = |field: usize| {
            let user = u64_at(body, 8 + 8 * field)?;
            let of = |region: &&Region| {
                user.checked_sub(region.user).is_some_and(|at| at < region.bytes)
            };
            let region = self.regions.iter().find(of).ok_or_else(|| invalid("a ring's address"))?;
            Ok::<_, io::Error>(GuestAddress(region.guest + (user - region.user)))
        };
        let (table, used, available) = (address(0)?, address(1)?, address(2)?);
        self.ring.try_set_desc_table_address(table).map_err(io::Error::other)?;
        self.ring.try_set_used_ring_address(used).map_err(io::Error::other)?;
        self.ring.try_set_avail_ring_address(available).map_err(io::Error::other)?;
        self.ring.set_ready(true);
        Ok(())
    }

    fn configuration(&self, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut space = [0; CONFIG_BYTES];
        space[..8].copy_from_slice(&(self.bytes / SECTOR).to_le_bytes());
        space[12..16].copy_from_slice(&SEG_MAX.to_le_bytes());
        let (from, length) = (u32_at(body, 0)? as usize, u32_at(body, 4)? as usize);
        let part = from.checked_add(length).and_then(|end| space.get(from..end));
        let part = part.ok_or_else(|| invalid("a range outside the configuration space"))?;
        Ok([&body[..12], part].concat())
    }

    /// Takes all requests of the ring: moves their bytes, and gives what the drive has to do, with
    /// the number of the request.
    pub(super) fn take(&mut self, mut each: impl FnMut(u32, Op)) -> io::Result<()> {
        let memory = self.memory.clone().ok_or_else(|| invalid("a kick without memory"))?;
        while let Some(descriptors) = self.ring.pop_descriptor_chain(&memory) {
            let head = descriptors.head_index();
            let chain = Chain::of(descriptors).ok_or_else(|| invalid("a malformed request"))?;
            let (op, written) = self.moved(&memory, &chain);
            let (result, op) = match op {
                Ok(op) => (blk::VIRTIO_BLK_S_OK as u8, op),
                Err(result) => (result, Op { kind: OpKind::Flush, at_bytes: 0, bytes: 0 }),
            };
            let taken = Taken { head, status: chain.status, written: written + 1, result };
            each(self.in_flight.insert(taken) as u32, op);
        }
        Ok(())
    }

    /// Moves the bytes of a request; what the drive has to do, or the status of the failure; and
    /// how much was written to the kernel's memory.
    fn moved(&self, memory: &Memory, chain: &Chain) -> (Result<Op, u8>, u32) {
        let mut header = [0; HEADER_BYTES as usize];
        let failed = blk::VIRTIO_BLK_S_IOERR as u8;
        if chain.readable.read(memory, 0, &mut header).is_err() {
            return (Err(failed), 0);
        }
        let (Ok(kind), Ok(sector)) = (u32_at(&header, 0), u64_at(&header, 8)) else {
            return (Err(failed), 0);
        };
        let inside = |bytes: u64| {
            let at = sector.checked_mul(SECTOR).filter(|_| bytes.is_multiple_of(SECTOR))?;
            at.checked_add(bytes).filter(|end| *end <= self.bytes).map(|_| at)
        };
        match kind {
            blk::VIRTIO_BLK_T_IN => {
                let bytes = chain.writable.bytes();
                let Some(at) = inside(bytes) else { return (Err(failed), 0) };
                let mut data = vec![0; bytes as usize];
                let read = self.store.read_exact_at(&mut data, at).is_ok();
                match read && chain.writable.write(memory, 0, &data).is_ok() {
                    true => (Ok(Op { kind: OpKind::Read, at_bytes: at, bytes }), bytes as u32),
                    false => (Err(failed), 0),
                }
            }
            blk::VIRTIO_BLK_T_OUT => {
                let bytes = chain.readable.bytes() - HEADER_BYTES;
                let Some(at) = inside(bytes) else { return (Err(failed), 0) };
                let mut data = vec![0; bytes as usize];
                let read = chain.readable.read(memory, HEADER_BYTES, &mut data).is_ok();
                let kind = OpKind::Write { fua: false };
                match read && self.store.write_all_at(&data, at).is_ok() {
                    true => (Ok(Op { kind, at_bytes: at, bytes }), 0),
                    false => (Err(failed), 0),
                }
            }
            blk::VIRTIO_BLK_T_FLUSH => (Ok(Op { kind: OpKind::Flush, at_bytes: 0, bytes: 0 }), 0),
            _ => (Err(blk::VIRTIO_BLK_S_UNSUPP as u8), 0),
        }
    }

    /// Ends a request; the kernel is notified by [`Disk::interrupt`].
    pub(super) fn end(&mut self, number: u32) -> io::Result<()> {
        let memory = self.memory.as_ref().ok_or_else(|| invalid("an end without memory"))?;
        let Taken { head, status, written, result } = self.in_flight.remove(number as usize);
        memory.write_obj(result, status).map_err(io::Error::other)?;
        self.ring.add_used(memory, head, written).map_err(io::Error::other)?;
        self.ended = true;
        Ok(())
    }

    /// Interrupts the kernel if there are ends; returns the connection on which the kernel answers
    /// if `answered`: which is to be read before it runs again.
    pub(super) fn interrupt(&mut self, answered: bool) -> io::Result<Option<&mut UnixStream>> {
        if !std::mem::take(&mut self.ended) {
            return Ok(None);
        }
        let back = self.back.as_mut().ok_or_else(|| invalid("no connection for interrupts"))?;
        let mut bytes = Vec::with_capacity(20);
        let flags = if answered { VERSION | NEED_REPLY } else { VERSION };
        for word in [VRING_CALL, flags, 8, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        back.write_all(&bytes)?;
        Ok(Some(back))
    }
}

/// The words of a message's header, and the descriptors that came with it; `None`: closed.
fn header_of(socket: &mut UnixStream) -> io::Result<Option<([u32; 3], Vec<OwnedFd>)>> {
    let mut bytes = [0; 12];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received =
        rustix::net::recvmsg(&*socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if received == 0 {
        return Ok(None);
    }
    socket.read_exact(&mut bytes[received..])?;
    let words = [0, 4, 8].map(|at| u32_at(&bytes, at).expect("12 bytes"));
    Ok(Some((words, fds)))
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    word.map(u32::from_le_bytes).ok_or_else(|| invalid("a short message"))
}

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    Ok(u64::from(u32_at(bytes, at)?) | u64::from(u32_at(bytes, at + 4)?) << 32)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a disk of the kernel: {what}"))
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;

    use host::sys::FileMap;
    use rustix::fs::MemfdFlags;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    use super::*;

    const MEMORY_BYTES: u64 = 1 << 16;
    const TABLE: u64 = 0x1000;
    const AVAILABLE: u64 = 0x2000;
    const USED: u64 = 0x3000;
    const HEADER: u64 = 0x4000;
    const DATA: u64 = 0x5000;
    const STATUS: u64 = 0x6000;
    /// Where the front end has the memory.
    const USER: u64 = 0x60_0000;

    fn memfd(bytes: u64) -> File {
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        let file = File::from(file);
        file.set_len(bytes).expect("a length");
        file
    }

    fn message(request: u32, body: &[u8]) -> Vec<u8> {
        let header = [request, VERSION | NEED_REPLY, body.len() as u32];
        let header = header.iter().flat_map(|word| word.to_le_bytes());
        header.chain(body.iter().copied()).collect()
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A disk with its ring set up, the front end's socket, and the memory.
    fn set_up(store: File) -> (Disk, UnixStream, FileMap) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("disk");
        let bytes = store.metadata().expect("its length").len();
        let mut disk =
            Disk::new(UnixListener::bind(&path).expect("bound"), store, bytes).expect("a disk");
        let mut front = UnixStream::connect(&path).expect("connected");
        disk.accept().expect("accepted");
        let shared = memfd(MEMORY_BYTES);
        let table = message(request::SET_MEM_TABLE, &words(&[1, 0, MEMORY_BYTES, USER, 0]));
        let fds = [shared.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
        let parts = [IoSlice::new(&table)];
        rustix::net::sendmsg(&front, &parts, &mut control, SendFlags::empty()).expect("sent");
        disk.receive().expect("memory");
        for (request, body) in [
            (request::SET_VRING_NUM, [0u32, 4].iter().flat_map(|it| it.to_le_bytes()).collect()),
            (request::SET_VRING_ADDR, words(&[0, USER + TABLE, USER + USED, USER + AVAILABLE, 0])),
        ] {
            front.write_all(&message(request, &body)).expect("sent");
            disk.receive().expect("served");
        }
        let mut answers = [0; 3 * 20];
        front.read_exact(&mut answers).expect("three answers");
        (disk, front, FileMap::new(&shared, true).expect("mapped"))
    }

    /// Puts a request into the ring as number `at`: its kind, its sector, 512 bytes of data.
    fn put(memory: &mut FileMap, at: u16, kind: u32, sector: u64, reads: bool) {
        let mut write = |at: u64, bytes: &[u8]| memory.write(at, bytes).expect("inside");
        write(HEADER, &kind.to_le_bytes());
        write(HEADER + 8, &sector.to_le_bytes());
        let data = if reads { 3u16 } else { 1 };
        let descriptors = [(HEADER, 16u32, 1u16, 1u16), (DATA, 512, data, 2), (STATUS, 1, 2, 0)];
        for (number, (address, bytes, flags, next)) in (0u64..).zip(descriptors) {
            let at = TABLE + 16 * number;
            write(at, &address.to_le_bytes());
            write(at + 8, &bytes.to_le_bytes());
            write(at + 12, &flags.to_le_bytes());
            write(at + 14, &next.to_le_bytes());
        }
        write(AVAILABLE + 4 + 2 * u64::from(at % 4), &0u16.to_le_bytes());
        write(AVAILABLE + 2, &(at + 1).to_le_bytes());
        write(STATUS, &[0xff]);
    }

    #[test]
    fn bytes_are_moved_and_requests_end_when_they_are_ended() {
        let store = memfd(4096);
        store.write_all_at(&[7; 512], 512).expect("written");
        let (mut disk, mut front, mut memory) = set_up(store.try_clone().expect("a copy"));
        let kick = message(request::VRING_KICK, &words(&[0]));
        let mut taken = Vec::new();
        let mut data = [0; 512];

        put(&mut memory, 0, blk::VIRTIO_BLK_T_IN, 1, true);
        front.write_all(&kick).expect("sent");
        let Received::Kick(reply) = disk.receive().expect("a kick") else { panic!("a kick") };
        disk.take(|number, op| taken.push((number, op))).expect("taken");
        disk.reply(&reply).expect("replied");
        let (number, op) = taken.pop().expect("a request");
        assert_eq!((op.kind, op.at_bytes, op.bytes), (OpKind::Read, 512, 512));
        memory.read(DATA, &mut data).expect("inside");
        assert_eq!(data, [7; 512]);
        let used = |memory: &FileMap| {
            let mut index = [0; 2];
            memory.read(USED + 2, &mut index).expect("inside");
            u16::from_le_bytes(index)
        };
        assert_eq!(used(&memory), 0, "its model has not ended it");
        disk.end(number).expect("ended");
        assert_eq!(used(&memory), 1);
        assert!(disk.interrupt(true).is_err(), "this front end takes none");

        memory.write(DATA, &[9; 512]).expect("inside");
        put(&mut memory, 1, blk::VIRTIO_BLK_T_OUT, 3, false);
        disk.take(|number, op| taken.push((number, op))).expect("taken");
        assert_eq!(taken.pop().expect("a request").1.kind, OpKind::Write { fua: false });
        store.read_exact_at(&mut data, 1536).expect("read");
        assert_eq!(data, [9; 512]);

        // Beyond the end: an error of the request, when the drive has ended it.
        put(&mut memory, 2, blk::VIRTIO_BLK_T_IN, 8, true);
        disk.take(|number, op| taken.push((number, op))).expect("taken");
        disk.end(taken.pop().expect("a request").0).expect("ended");
        let mut status = [0];
        memory.read(STATUS, &mut status).expect("inside");
        assert_eq!(u32::from(status[0]), blk::VIRTIO_BLK_S_IOERR);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let (mut disk, mut front, _memory) = set_up(memfd(4096));
        let outside = words(&[0, 0, USER, USER, 0]);
        front.write_all(&message(request::SET_VRING_ADDR, &outside)).expect("sent");
        assert!(disk.receive().is_err_and(|why| why.to_string().contains("a ring's address")));
        front.write_all(&message(request::GET_CONFIG, &words(&[u64::MAX, 0]))).expect("sent");
        assert!(disk.receive().is_err_and(|why| why.to_string().contains("configuration space")));
        front.write_all(&[0xff; 12]).expect("sent");
        assert!(disk.receive().is_err_and(|why| why.to_string().contains("too long")));
        drop(front);
        assert!(matches!(disk.receive(), Ok(Received::Gone)));
    }
}
