//! Host buffers, which pass between a host and the driver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use engine::BufSlice;

use super::growing::Growing;
use super::lent::LentPart;
use super::region::Region;

/// How often one that waits for a buffer looks whether there are more.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

struct Pool {
    growing: Arc<Growing>,
    number: u16,
    lease_bytes: usize,
    count: u32,
    /// Buffers that there were from the start.
    at_first: u32,
    free: Mutex<Free>,
    returned: Condvar,
    /// By slot.
    lent: Vec<LentTo>,
}

/// What members have lent in place of a buffer's bytes.
#[derive(Default)]
struct LentTo {
    /// The buffer's holder takes it.
    wanted: AtomicBool,
    parts: Mutex<Vec<LentPart>>,
}

struct Free {
    slots: Vec<u32>,
    /// Those that were added later; used when there is no other, because the kernel does not know
    /// their memory beforehand.
    later: Vec<u32>,
    /// How many there are of both, in use or not.
    known: u32,
    /// Buffers that replace others which late operations of members still use. There are as many as
    /// hosts have.
    reserve: Vec<u32>,
    /// Number of threads that wait for a buffer.
    waiting: usize,
}

impl Free {
    /// A free buffer. When there is none, one of those added since; and more are requested.
    fn pop(&mut self, pool: &Pool) -> Option<u32> {
        if let Some(slot) = self.slots.pop().or_else(|| self.later.pop()) {
            return Some(slot);
        }
        if self.known == pool.count {
            return None;
        }
        pool.growing.request();
        let usable = (pool.growing.usable() / pool.lease_bytes) as u32;
        self.later.extend((self.known..usable).rev());
        self.known = usable;
        self.later.pop()
    }
}

/// Equal buffers: a fixed number, or more with time, up to one.
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
    /// Members may lend what a read returns, instead of copying it here.
    borrows: bool,
}

impl LeasePool {
    /// `count` buffers for hosts, `at_first` of them from the start, and as many again in reserve.
    ///
    /// # Errors
    /// When the system has no addresses for them.
    pub(crate) fn new(
        number: u16,
        lease_bytes: usize,
        count: u32,
        at_first: u32,
        huge_pages: bool,
    ) -> std::io::Result<LeasePool> {
        let bytes = |leases: u32| leases as usize * lease_bytes;
        let (first, most) = (bytes(at_first.min(count)), bytes(count));
        let region = Region::of_parts(first as u64, 2 * most as u64, huge_pages)?;
        let growing = Growing::new(Arc::new(region), first, most);
        Ok(LeasePool::with_reserve(growing, number, lease_bytes, count))
    }

    /// Buffers that are of no array, for what is read from elsewhere.
    ///
    /// # Errors
    /// When the system has no addresses for them; memory is taken when they are used.
    pub fn without_array(lease_bytes: usize, count: u32) -> std::io::Result<LeasePool> {
        let region = Region::with_pages(u64::from(count) * lease_bytes as u64, false)?;
        let all = region.len();
        let growing = Growing::new(Arc::new(region), all, all);
        Ok(LeasePool::with_reserve(growing, 0, lease_bytes, count))
    }

    /// What the region has room for beyond `count` is in reserve.
    fn with_reserve(
        growing: Arc<Growing>,
        number: u16,
        lease_bytes: usize,
        count: u32,
    ) -> LeasePool {
        let all = (growing.region().len() / lease_bytes) as u32;
        let known = ((growing.usable() / lease_bytes) as u32).min(count);
        let (slots, reserve) = ((0..known).rev().collect(), (count..all).rev().collect());
        let free = Mutex::new(Free { slots, later: Vec::new(), known, reserve, waiting: 0 });
        let returned = Condvar::new();
        let lent = (0..all).map(|_| LentTo::default()).collect();
        LeasePool(Arc::new(Pool {
            growing,
            number,
            lease_bytes,
            count,
            at_first: known,
            free,
            returned,
            lent,
        }))
    }

    /// A lease of `len` bytes, or `None` while all are in use.
    ///
    /// # Panics
    /// When `len` exceeds the size of the pool's buffers.
    pub fn take(&self, len: usize) -> Option<Lease> {
        assert!(len <= self.0.lease_bytes, "the pool's leases hold {} bytes", self.0.lease_bytes);
        let mut free = self.0.free.lock().expect("the list lock is not poisoned");
        let slot = free.pop(&self.0)?;
        drop(free);
        Some(self.lease(slot, len))
    }

    /// A lease of `len` bytes; blocks while all are in use.
    ///
    /// # Panics
    /// When `len` exceeds the size of the pool's buffers.
    pub fn wait(&self, len: usize) -> Lease {
        assert!(len <= self.0.lease_bytes, "the pool's leases hold {} bytes", self.0.lease_bytes);
        let mut free = self.0.free.lock().expect("the list lock is not poisoned");
        loop {
            if let Some(slot) = free.pop(&self.0) {
                return self.lease(slot, len);
            }
            free.waiting += 1;
            free = match free.known < self.0.count {
                true => {
                    let waited = self.0.returned.wait_timeout(free, LOOK_AGAIN);
                    waited.expect("the list lock is not poisoned").0
                }
                false => self.0.returned.wait(free).expect("the list lock is not poisoned"),
            };
            free.waiting -= 1;
        }
    }

    /// A lease in place of one that a late operation uses; `None` while all in reserve are in use.
    pub(crate) fn replacement(&self, len: usize) -> Option<Lease> {
        let slot = self.0.free.lock().expect("the list lock is not poisoned").reserve.pop()?;
        Some(self.lease(slot, len))
    }

    fn lease(&self, slot: u32, len: usize) -> Lease {
        Lease { pool: self.clone(), slot, len, was_replaced: false, borrows: false }
    }

    /// Whether the bytes of a slice, which a read is to fill, may be lent instead: either
    /// [`LeasePool::lend`] or [`LeasePool::fill`] follows.
    pub(crate) fn borrows(&self, slice: BufSlice) -> bool {
        slice.region == self.0.number && self.slot(slice).wanted.load(Ordering::Relaxed)
    }

    /// The bytes of a slice are in a region of a member.
    pub(crate) fn lend(&self, slice: BufSlice, region: Arc<Region>, offset: u64) {
        let part = LentPart { at: self.start(slice), len: slice.len as usize, region, offset };
        self.others(slice).push(part);
    }

    /// The bytes of a slice are in the buffer itself, also if they were lent before: a read may be
    /// begun anew.
    pub(crate) fn fill(&self, slice: BufSlice) {
        drop(self.others(slice));
    }

    /// The parts that are lent in place of other bytes of the buffer than these.
    ///
    /// # Panics
    /// When a part is lent of which some bytes are read anew: the rest would be sent from a buffer
    /// that does not have them.
    fn others(&self, slice: BufSlice) -> MutexGuard<'_, Vec<LentPart>> {
        let (start, end) = (self.start(slice), self.start(slice) + slice.len as usize);
        let parts = &self.slot(slice).parts;
        let mut parts = parts.lock().expect("the list lock is not poisoned");
        parts.retain(|part| {
            let is_apart = part.at + part.len <= start || end <= part.at;
            let is_inside = start <= part.at && part.at + part.len <= end;
            assert!(is_apart || is_inside, "a part of lent bytes is read anew");
            is_apart
        });
        parts
    }

    /// Where a slice begins in its buffer.
    fn start(&self, slice: BufSlice) -> usize {
        (slice.offset % self.0.lease_bytes as u64) as usize
    }

    fn slot(&self, slice: BufSlice) -> &LentTo {
        &self.0.lent[(slice.offset / self.0.lease_bytes as u64) as usize]
    }

    pub(crate) fn growing(&self) -> &Arc<Growing> {
        &self.0.growing
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

    /// Members in memory may lend what the next read returns, instead of copying it here: what the
    /// read returns is to be made a [`Filled`](super::Filled), which has those bytes, too.
    pub fn borrow(&mut self) {
        self.borrows = true;
        self.lent_to().wanted.store(true, Ordering::Relaxed);
    }

    /// What the next read returns is to be in the buffer itself: for what has no memory to lend.
    pub fn own(&mut self) {
        drop(self.take_lent());
    }

    /// What members have lent in place of its bytes.
    pub(super) fn take_lent(&mut self) -> Vec<LentPart> {
        if !std::mem::take(&mut self.borrows) {
            return Vec::new();
        }
        let lent = self.lent_to();
        lent.wanted.store(false, Ordering::Relaxed);
        std::mem::take(&mut *lent.parts.lock().expect("the list lock is not poisoned"))
    }

    fn lent_to(&self) -> &LentTo {
        &self.pool.0.lent[self.slot as usize]
    }

    /// The buffer's bytes.
    ///
    /// # Panics
    /// After [`Lease::borrow`], until a [`Filled`](super::Filled) is made of it: they may be
    /// elsewhere.
    pub fn bytes(&self) -> &[u8] {
        assert!(!self.borrows, "what was read may be in memory of members");
        let span = self.pool.0.growing.region().span(self.offset(), self.len);
        // SAFETY: the pool hands out a slot once, and a request takes the lease along, so that only
        // the holder of `self` reaches these bytes.
        unsafe { span.bytes() }
    }

    /// The buffer's bytes, to write.
    ///
    /// # Panics
    /// As [`Lease::bytes`].
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(!self.borrows, "what was read may be in memory of members");
        let span = self.pool.0.growing.region().span(self.offset(), self.len);
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
        drop(self.take_lent());
        if let Ok(mut free) = self.pool.0.free.lock() {
            if self.was_replaced {
                return free.reserve.push(self.slot);
            }
            match self.slot < self.pool.0.at_first {
                true => free.slots.push(self.slot),
                false => free.later.push(self.slot),
            }
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
