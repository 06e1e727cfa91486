//! A store that keeps its reads until it may end them.

use std::sync::{Arc, Condvar, Mutex};

use array::Array;
use export::store::{Buffer, Limits, Store, StoreError, Then};

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
