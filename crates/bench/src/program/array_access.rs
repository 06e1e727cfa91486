//! The path of a worker's requests to an array.
//!
//! ```text
//! Shared   worker --request--> the array's thread --wakes--> worker     several workers, one array
//! Own      worker: submits, polls, waits                                a driver for each worker
//! ```
//! A file or a device accepts requests from any thread, so each worker has its own driver, as the
//! original tools do: no request is passed between threads. An array of several members has range
//! locks on its rows, and therefore one thread that serves all workers.
//!
//! Invariant: every submitted request is returned by [`ArrayAccess::next`] exactly once. Used by
//! `extents`.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use array::{Array, ArrayError, BuildError, Completion, Driver, HostOp, Lease, Pending};
use md::Sector;

/// Creates a separate driver for a worker, with the given queue depth.
pub type MakeDriver = Box<dyn Fn(usize) -> Result<OwnDriver, BuildError> + Send + Sync>;

/// The separate driver of a worker.
pub struct OwnDriver {
    /// The driver.
    pub driver: Driver,
    /// The open file below it, and the offset of the array in it, where I/O passes through the page
    /// cache.
    pub cached: Option<(Arc<File>, u64)>,
}

/// A completed request: its slot, and its buffer.
type Ended = (usize, Result<Lease, ArrayError>);

/// The slot of a synchronous request.
const AT_ONCE: u64 = u64::MAX;
/// Longest wait; it ends with the first completion.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// A worker's access to an array.
pub(super) enum ArrayAccess<'g> {
    /// Through the array's own thread.
    Shared(Shared<'g>),
    /// Through the worker's own driver.
    Own(Box<Own>),
}

/// State for requests through the array's own thread.
pub(super) struct Shared<'g> {
    array: &'g Array,
    pending: Vec<Option<Pending>>,
    wakers: Vec<Waker>,
    woken: mpsc::Receiver<usize>,
    ended: VecDeque<Ended>,
}

/// State for requests through the worker's own driver.
pub(super) struct Own {
    driver: Driver,
    done: Vec<Completion>,
    ended: VecDeque<Ended>,
}

/// Waker that sends the slot of a completed request to the worker.
struct SlotWaker {
    slot: usize,
    woken: mpsc::Sender<usize>,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<SlotWaker>) {
        // The worker may have ended.
        let _ = self.woken.send(self.slot);
    }
}

impl<'g> ArrayAccess<'g> {
    /// A access to a shared array, with `slots` slots.
    pub(super) fn shared(array: &'g Array, slots: usize) -> ArrayAccess<'g> {
        let (sender, woken) = mpsc::channel();
        let wakers = (0..slots).map(|slot| {
            let sender = sender.clone();
            Waker::from(Arc::new(SlotWaker { slot, woken: sender }))
        });
        let wakers = wakers.collect();
        let pending = (0..slots).map(|_| None).collect();
        ArrayAccess::Shared(Shared { array, pending, wakers, woken, ended: VecDeque::new() })
    }

    /// A access to the worker's own driver.
    pub(super) fn own(driver: Driver) -> ArrayAccess<'g> {
        host::sys::wait_precisely();
        ArrayAccess::Own(Box::new(Own { driver, done: Vec::new(), ended: VecDeque::new() }))
    }

    /// A buffer; there are as many as slots.
    pub(super) fn lease(&self, len: usize) -> Lease {
        match self {
            ArrayAccess::Shared(shared) => shared.array.lease(len),
            ArrayAccess::Own(own) => own.driver.leases().wait(len),
        }
    }

    /// Submits a read or write at a byte offset of the array.
    pub(super) fn begin(&mut self, slot: usize, writes: bool, lease: Lease, place: u64) {
        match self {
            ArrayAccess::Shared(shared) => {
                shared.pending[slot] = Some(match writes {
                    true => shared.array.write(lease, place),
                    false => shared.array.read(lease, place),
                });
                // Leaves the waker with it, or finds it done.
                shared.look(slot);
            }
            ArrayAccess::Own(own) => {
                let op = if writes { HostOp::Write { fua: false } } else { HostOp::Read };
                own.submit(op, Some(lease), place, slot as u64);
                // Submits it now, as the tools do: one call for each request.
                own.poll();
            }
        }
    }

    /// Waits for the next completion. A request must be in flight.
    pub(super) fn next(&mut self) -> Ended {
        loop {
            let ended = match self {
                ArrayAccess::Shared(shared) => &mut shared.ended,
                ArrayAccess::Own(own) => &mut own.ended,
            };
            if let Some(ended) = ended.pop_front() {
                return ended;
            }
            match self {
                ArrayAccess::Shared(shared) => {
                    let slot = shared.woken.recv().expect("the wakers hold the other end");
                    shared.look(slot);
                }
                ArrayAccess::Own(own) => own.wait(),
            }
        }
    }

    /// Reads synchronously, whatever else is in flight.
    pub(super) fn read_now(&mut self, lease: Lease, place: u64) -> Result<Lease, ArrayError> {
        match self {
            ArrayAccess::Shared(shared) => shared.array.read(lease, place).wait(),
            ArrayAccess::Own(own) => {
                let lease = own.now(HostOp::Read, Some(lease), place)?;
                Ok(lease.expect("a read has a lease"))
            }
        }
    }

    /// Flushes written data. No request may be in flight.
    pub(super) fn flush(&mut self) -> Result<(), ArrayError> {
        match self {
            ArrayAccess::Shared(shared) => shared.array.flush(),
            ArrayAccess::Own(own) => own.now(HostOp::Flush, None, 0).map(drop),
        }
    }
}

impl Shared<'_> {
    /// Checks the request in a slot for completion.
    fn look(&mut self, slot: usize) {
        let Some(pending) = &mut self.pending[slot] else { return };
        let mut context = Context::from_waker(&self.wakers[slot]);
        if let Poll::Ready(ended) = Pin::new(pending).poll(&mut context) {
            self.pending[slot] = None;
            self.ended.push_back((slot, ended));
        }
    }
}

impl Own {
    fn submit(&mut self, op: HostOp, lease: Option<Lease>, place: u64, tag: u64) {
        let sectors = lease.as_ref().map_or(0, |lease| lease.len() as u64 / md::SECTOR_BYTES);
        let submitted =
            self.driver.submit(op, Sector(place / md::SECTOR_BYTES), sectors, lease, tag);
        assert!(submitted.is_ok(), "the driver has room for all slots");
    }

    /// Processes completions. Returns the result of the synchronous request, if it is complete.
    fn poll(&mut self) -> Option<Result<Option<Lease>, ArrayError>> {
        let mut answer = None;
        self.driver.poll(&mut self.done);
        for Completion { tag, result, lease } in self.done.drain(..) {
            let result = result.map_err(ArrayError::from);
            if tag == AT_ONCE {
                answer = Some(result.map(|()| lease));
            } else {
                let ended = result.map(|()| lease.expect("reads and writes have a lease"));
                self.ended.push_back((tag as usize, ended));
            }
        }
        answer
    }

    fn wait(&mut self) {
        self.poll();
        if self.ended.is_empty() {
            self.driver.wait(LONGEST_WAIT, None);
        }
    }

    fn now(
        &mut self,
        op: HostOp,
        lease: Option<Lease>,
        at: u64,
    ) -> Result<Option<Lease>, ArrayError> {
        self.submit(op, lease, at, AT_ONCE);
        loop {
            if let Some(answer) = self.poll() {
                return answer;
            }
            self.driver.wait(LONGEST_WAIT, None);
        }
    }
}
