//! Servers that the tests talk to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};

use array::Array;
use export::nbd::{Listener, NbdExport, Server, ServerLimits};
use export::store::{Buffer, Limits, Store, StoreError, Then};

use crate::support_array::raid5;

/// A RAID 5 in memory, of 64 MiB, with this many buffers.
pub fn array(leases: usize) -> Arc<Array> {
    Arc::new(raid5(32 << 11, 128, leases))
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
