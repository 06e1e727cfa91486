//! Host buffers, which pass between a host and the driver.

use std::sync::{Arc, Condvar, Mutex};

use engine::BufSlice;

use super::region::Region;

struct Pool {
    region: Arc<Region>,
    number: u16,
    lease_bytes: usize,
    count: u32,
    free: Mutex<Free>,
    returned: Condvar,
}

struct Free {
    slots: Vec<u32>,
    /// Buffers that replace others which late operations of members still use. There are as many as
    /// hosts have.
    reserve: Vec<u32>,
    /// Number of threads that wait for a buffer.
    waiting: usize,
}

/// A fixed number of equal buffers.
#[derive(Clone)]
pub struct LeasePool(Arc<Pool>);

/// A buffer of the pool. The holder owns its bytes: submitting it with a request passes it to the
/// driver, and the completion returns it. Dropping it returns it to the pool.
pub struct Lease {
    pool: LeasePool,
    slot: u32,
    len: usize,
    /// Another one went to the host in its place.
    was_replaced: bool,
}

impl LeasePool {
    /// `count` buffers for hosts; the region has room for as many again.
    pub(crate) fn new(
        region: Arc<Region>,
        number: u16,
        lease_bytes: usize,
        count: u32,
    ) -> LeasePool {
        assert!(2 * count as usize * lease_bytes <= region.len());
        let (slots, reserve) = ((0..count).rev().collect(), (count..2 * count).rev().collect());
        let free = Mutex::new(Free { slots, reserve, waiting: 0 });
        let returned = Condvar::new();
        LeasePool(Arc::new(Pool { region, number, lease_bytes, count, free, returned }))
    }

    /// A lease of `len` bytes, or `None` while all are in use.
    ///
    /// # Panics
    /// When `len` exceeds the size of the pool's buffers.
    pub fn take(&self, len: usize) -> Option<Lease> {
        assert!(len <= self.0.lease_bytes, "the pool's leases hold {} bytes", self.0.lease_bytes);
        let slot = self.0.free.lock().expect("the list lock is not poisoned").slots.pop()?;
        Some(Lease { pool: self.clone(), slot, len, was_replaced: false })
    }

    /// A lease of `len` bytes; blocks while all are in use.
    ///
    /// # Panics
    /// When `len` exceeds the size of the pool's buffers.
    pub fn wait(&self, len: usize) -> Lease {
        assert!(len <= self.0.lease_bytes, "the pool's leases hold {} bytes", self.0.lease_bytes);
        let mut free = self.0.free.lock().expect("the list lock is not poisoned");
        loop {
            if let Some(slot) = free.slots.pop() {
                return Lease { pool: self.clone(), slot, len, was_replaced: false };
            }
            free.waiting += 1;
            free = self.0.returned.wait(free).expect("the list lock is not poisoned");
            free.waiting -= 1;
        }
    }

    /// A lease in place of one that a late operation uses; `None` while all in reserve are in use.
    pub(crate) fn replacement(&self, len: usize) -> Option<Lease> {
        let slot = self.0.free.lock().expect("the list lock is not poisoned").reserve.pop()?;
        Some(Lease { pool: self.clone(), slot, len, was_replaced: false })
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.0.region
    }

    /// Number of leases, in use or not.
    pub fn count(&self) -> usize {
        self.0.count as usize
    }

    /// Maximum length of a lease in bytes.
    pub fn lease_bytes(&self) -> usize {
        self.0.lease_bytes
    }
}

impl Lease {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes the length, up to the size of the pool's buffers.
    ///
    /// # Panics
    /// When `len` is more than that.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.pool.0.lease_bytes);
        self.len = len;
    }

    /// The buffer's bytes.
    pub fn bytes(&self) -> &[u8] {
        let span = self.pool.0.region.span(self.offset(), self.len);
        // SAFETY: the pool hands out a slot once, and a request takes the lease along, so that only
        // the holder of `self` reaches these bytes.
        unsafe { span.bytes() }
    }

    /// The buffer's bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let span = self.pool.0.region.span(self.offset(), self.len);
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { span.bytes_mut() }
    }

    pub(crate) fn slice(&self) -> BufSlice {
        let len = u32::try_from(self.len).expect("a lease is shorter than 4 GiB");
        BufSlice { region: self.pool.0.number, len, offset: self.offset() }
    }

    pub(crate) fn is_of(&self, pool: &LeasePool) -> bool {
        Arc::ptr_eq(&self.pool.0, &pool.0)
    }

    /// The buffer was replaced, and is free now: it is in reserve from now on.
    pub(crate) fn into_reserve(mut self) {
        self.was_replaced = true;
    }

    fn offset(&self) -> u64 {
        u64::from(self.slot) * self.pool.0.lease_bytes as u64
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Ok(mut free) = self.pool.0.free.lock() {
            if self.was_replaced {
                return free.reserve.push(self.slot);
            }
            free.slots.push(self.slot);
            // Waking costs a system call, even without waiting threads.
            if free.waiting > 0 {
                self.pool.0.returned.notify_one();
            }
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({}, {} bytes)", self.slot, self.len)
    }
}
