//! A store that keeps its reads until it may end them.

use std::sync::{Arc, Condvar, Mutex};

use array::{Array, ArrayError, Completer, HostOp, Lease};
use raidlab_export::store::{Limits, Store};

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

    fn lease(&self, bytes: usize) -> Lease {
        self.0.array.lease(bytes)
    }

    fn try_lease(&self, bytes: usize) -> Option<Lease> {
        self.0.array.try_lease(bytes)
    }

    fn submit(&self, op: HostOp, offset: u64, lease: Option<Lease>, to: Completer) {
        if op != HostOp::Read {
            return self.0.array.submit(op, offset, 0, lease, to);
        }
        let held = self.0.clone();
        std::thread::spawn(move || {
            let closed = held.closed.lock().unwrap();
            drop(held.opened.wait_while(closed, |closed| *closed).unwrap());
            held.array.submit(op, offset, 0, lease, to);
        });
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        Store::discard(&*self.0.array, offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<(), ArrayError> {
        Store::write_zeroes(&*self.0.array, offset, bytes)
    }
}
