//! Servers that the tests talk to.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use admin::rescue::Readable;
use array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, Member, MemberSpec};
use export::nbd::{Listener, NbdExport, Server, ServerLimits};
use export::store::{Buffer, Limits, Store, StoreError, Then};
use md::{Layout, Level};

/// A RAID 5 in memory, of 64 MiB, with this many buffers.
pub fn array(leases: usize) -> Arc<Array> {
    let member = |_| {
        let member: Box<dyn Member> = Box::new(MemMember::new(32 << 11).expect("memory"));
        MemberSpec::Ready(member)
    };
    let spec = ArraySpec {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk_sectors: 128,
        members: (0..3).map(member).collect(),
        data_plane: DataPlaneConfig { stripe_cache_bytes: 8 << 20, ..DataPlaneConfig::default() },
    };
    let options = DriverOptions { leases, ..DriverOptions::default() };
    Arc::new(Array::start(spec, &options).expect("it starts"))
}

/// Sectors whose bytes are their number; those of a range are lost.
pub struct Damaged {
    pub sectors: u64,
    pub lost: Range<u64>,
}

impl Readable for Damaged {
    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
        for (sector, bytes) in (at..).zip(buf.chunks_mut(512)) {
            bytes.fill(if self.lost.contains(&sector) { 0 } else { sector as u8 });
        }
        let end = at + buf.len() as u64 / 512;
        let lost = at.max(self.lost.start)..end.min(self.lost.end);
        if lost.is_empty() { Vec::new() } else { vec![lost] }
    }

    fn hole_end(&self, at: u64, _limit: u64) -> u64 {
        at
    }

    fn stripe_sectors(&self) -> Option<u64> {
        None
    }

    fn piece_end(&self, at: u64, sectors: u64) -> u64 {
        at + sectors
    }
}

/// A store whose reads end when they may.
pub struct Held {
    pub array: Arc<Array>,
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Held {
    pub fn new(array: Arc<Array>) -> Arc<Held> {
        Arc::new(Held { array, closed: Mutex::new(true), opened: Condvar::new() })
    }

    pub fn open(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }
}

/// A gate of its own, so that a read that waits does not keep the store.
pub struct HeldStore(pub Arc<Held>);

impl Store for HeldStore {
    fn limits(&self) -> Limits {
        self.0.array.limits()
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        Store::buffer(&*self.0.array, bytes)
    }

    fn try_buffer(&self, bytes: usize) -> Option<Buffer> {
        Store::try_buffer(&*self.0.array, bytes)
    }

    fn read(&self, buffer: Buffer, offset: u64, then: Then) {
        let held = self.0.clone();
        std::thread::spawn(move || {
            let closed = held.closed.lock().unwrap();
            drop(held.opened.wait_while(closed, |closed| *closed).unwrap());
            Store::read(&*held.array, buffer, offset, then);
        });
    }

    fn write(&self, buffer: Buffer, offset: u64, fua: bool, then: Then) {
        Store::write(&*self.0.array, buffer, offset, fua, then);
    }

    fn flush(&self, then: Then) {
        Store::flush(&*self.0.array, then);
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        Store::discard(&*self.0.array, offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), StoreError> {
        Store::write_zeroes(&*self.0.array, offset, bytes)
    }
}

/// A server on a unix socket in a directory of its own.
pub struct Served {
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub directory: tempfile::TempDir,
}

impl Served {
    pub fn start(exports: Vec<NbdExport>, limits: ServerLimits) -> Served {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("socket");
        let listener = Listener::unix(&socket).expect("it listens");
        let server = Server::start(vec![listener], exports, limits).expect("it starts");
        Served { server: Some(server), socket, directory }
    }

    /// With one export, of the empty name.
    pub fn one(store: Arc<dyn Store>) -> Served {
        Served::start(vec![export("", store)], ServerLimits::default())
    }

    pub fn path(&self) -> &Path {
        &self.socket
    }

    pub fn stop(mut self) {
        self.server.take().expect("it runs").stop();
    }
}

pub fn export(name: &str, store: Arc<dyn Store>) -> NbdExport {
    NbdExport { name: name.into(), description: String::new(), store, read_only: false }
}
