//! A ring of the guest's: takes requests from it, and puts their ends into it.
//!
//! *Invariant*: a ring that is being stopped has no request in flight when [`Ring::drained`]
//! returns, and none is taken afterwards until the driver starts it anew: a guest that is reset may
//! use its memory for something else. At most [`MOST_RUNNING`] requests are in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use vhost_user_backend::{VringMutex, VringT};
use virtio_queue::{Error, QueueT};
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic};

use super::chain::{Chain, Memory};
use super::device::QUEUE_SIZE;

/// The guest's memory, which QEMU may replace.
pub(super) type SharedMemory = GuestMemoryAtomic<Memory>;
/// A ring, as the vhost-user daemon keeps it.
pub(super) type Vring = VringMutex<SharedMemory>;

/// Requests of a ring that are in flight; the ring has no room for more.
const MOST_RUNNING: usize = QUEUE_SIZE as usize;

/// How many requests of a ring are in flight; see the module documentation.
#[derive(Default)]
pub(super) struct Ring {
    running: Mutex<usize>,
    ended: Condvar,
    /// The driver has put something into it that is no request. It is not served until it is
    /// started anew.
    broken: AtomicBool,
}

/// A request that was taken from a ring. Dropped when nothing of it is in flight.
pub(super) struct Taken {
    ring: Arc<Ring>,
    vring: Vring,
    head: u16,
    /// The memory in which its descriptors are.
    pub(super) memory: Arc<Memory>,
    /// Its descriptors.
    pub(super) chain: Chain,
}

impl Ring {
    fn lock(&self) -> MutexGuard<'_, usize> {
        self.running.lock().expect("the count lock is not poisoned")
    }

    /// Takes all requests that the driver has put into the ring, and gives them to `each`, which
    /// must not wait for other requests of the ring. Returns early when `ending` is set.
    pub(super) fn serve(
        self: &Arc<Ring>,
        vring: &Vring,
        memory: &SharedMemory,
        ending: &AtomicBool,
        each: impl Fn(Taken),
    ) -> Result<(), Error> {
        let mut promised = false;
        while !self.broken.load(Ordering::Relaxed) {
            vring.disable_notification()?;
            let mut nothing = true;
            while let Some(taken) = self.take(vring, memory)? {
                nothing = false;
                each(taken);
                if ending.load(Ordering::Relaxed) {
                    return Ok(());
                }
            }
            if nothing && promised {
                // Stopped by now; or the index says more than a ring can hold.
                if vring.get_ref().get_queue().ready() {
                    self.break_down("an index that is none");
                }
                break;
            }
            promised = vring.enable_notification()?;
            if !promised {
                break;
            }
        }
        Ok(())
    }

    /// Takes the next request; waits while too many are in flight.
    fn take(
        self: &Arc<Ring>,
        vring: &Vring,
        memory: &SharedMemory,
    ) -> Result<Option<Taken>, Error> {
        let full = |running: &mut usize| *running >= MOST_RUNNING;
        drop(self.ended.wait_while(self.lock(), full).expect("the count lock is not poisoned"));
        let mut state = vring.get_mut();
        // Under the lock: a ring that was stopped is not taken from any more.
        if !state.get_queue().ready() || self.broken.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let memory = memory.memory().into_inner();
        let queue = state.get_queue_mut();
        let Some(descriptors) = queue.pop_descriptor_chain(memory.clone()) else { return Ok(None) };
        let head = descriptors.head_index();
        let Some(chain) = Chain::of(descriptors) else {
            self.break_down("descriptors that are no request");
            return Ok(None);
        };
        *self.lock() += 1;
        drop(state);
        Ok(Some(Taken { ring: self.clone(), vring: vring.clone(), head, memory, chain }))
    }

    fn break_down(&self, reason: &'static str) {
        self.broken.store(true, Ordering::Relaxed);
        tracing::warn!(reason, "a guest's ring is not served any more");
    }

    /// Waits until nothing is in flight. A ring that is started anew is served again.
    pub(super) fn drained(&self) {
        let busy = |running: &mut usize| *running > 0;
        drop(self.ended.wait_while(self.lock(), busy).expect("the count lock is not poisoned"));
        self.broken.store(false, Ordering::Relaxed);
    }
}

impl Taken {
    /// Says to the driver that the request has ended, of which `written` bytes of the writable
    /// ranges were written.
    pub(super) fn end(self, status: u8, written: u32) {
        use vm_memory::Bytes;
        let known = self.memory.write_obj(status, self.chain.status).is_ok();
        let mut state = self.vring.get_mut();
        let used = state.add_used(self.head, if known { written } else { 0 });
        let wanted = used.and_then(|()| state.needs_notification());
        // On errors the driver has made its ring unusable: it may wait for ever.
        if wanted.unwrap_or(true)
            && let Err(error) = state.signal_used_queue()
        {
            tracing::debug!(%error, "a guest cannot be notified");
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut running = self.ring.lock();
        *running -= 1;
        // Room for one more, or none in flight.
        self.ring.ended.notify_all();
    }
}
