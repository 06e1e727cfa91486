//! How a worker's requests reach an array.
//!
//! ```text
//! Shared   worker --request--> the array's thread --wakes--> worker     several workers, one array
//! Own      worker: submits, polls, waits                                a driver for each worker
//! ```
//! A file or a device can be asked by anybody, so a worker that has it to itself is its own driver,
//! as the original tools are: nothing is handed from thread to thread. An array of several members
//! has locks on its rows, and so one thread that all workers ask.
//!
//! Invariant: every request that was begun comes out of [`Lane::next`] once. Used by `extents`.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use array::{Array, Completion, Driver, HostOp, Lease, Pending};
use md::Sector;

/// Makes a driver of a worker's own, for so many requests at once.
pub type MakeDriver = Box<dyn Fn(usize) -> Result<OwnDriver, String> + Send + Sync>;

/// A driver of a worker's own.
pub struct OwnDriver {
    /// The driver.
    pub driver: Driver,
    /// The open file that it asks, and the array's first byte in it, where the page cache lies
    /// between.
    pub cached: Option<(Arc<File>, u64)>,
}

/// A request that has ended: its slot, and its buffer.
type Ended = (usize, Result<Lease, String>);

/// The slot of a request that is waited for at once.
const AT_ONCE: u64 = u64::MAX;
/// How long a wait lasts at most; it ends with the first request that ends.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// See the module.
pub(super) enum Lane<'g> {
    /// See the module.
    Shared(Shared<'g>),
    /// See the module.
    Own(Box<Own>),
}

/// By the array's own thread.
pub(super) struct Shared<'g> {
    array: &'g Array,
    pending: Vec<Option<Pending>>,
    wakers: Vec<Waker>,
    rung: mpsc::Receiver<usize>,
    ended: VecDeque<Ended>,
}

/// By the worker itself.
pub(super) struct Own {
    driver: Driver,
    done: Vec<Completion>,
    ended: VecDeque<Ended>,
}

/// Tells a worker which of its requests has ended.
struct Bell {
    slot: usize,
    bell: mpsc::Sender<usize>,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        // Whoever had asked may be gone.
        let _ = self.bell.send(self.slot);
    }
}

impl<'g> Lane<'g> {
    /// To an array that others use too, for requests in `slots` slots.
    pub(super) fn shared(array: &'g Array, slots: usize) -> Lane<'g> {
        let (bell, rung) = mpsc::channel();
        let wakers = (0..slots).map(|slot| {
            let bell = bell.clone();
            Waker::from(Arc::new(Bell { slot, bell }))
        });
        let wakers = wakers.collect();
        let pending = (0..slots).map(|_| None).collect();
        Lane::Shared(Shared { array, pending, wakers, rung, ended: VecDeque::new() })
    }

    /// To a driver of the worker's own.
    pub(super) fn own(driver: Driver) -> Lane<'g> {
        array::wait_precisely();
        Lane::Own(Box::new(Own { driver, done: Vec::new(), ended: VecDeque::new() }))
    }

    /// A buffer; there are as many as slots.
    pub(super) fn lease(&self, len: usize) -> Lease {
        match self {
            Lane::Shared(shared) => shared.array.lease(len),
            Lane::Own(own) => own.driver.leases().wait(len),
        }
    }

    /// Begins to read or write at a byte of the array.
    pub(super) fn begin(&mut self, slot: usize, writes: bool, lease: Lease, place: u64) {
        match self {
            Lane::Shared(shared) => {
                shared.pending[slot] = Some(match writes {
                    true => shared.array.write(lease, place),
                    false => shared.array.read(lease, place),
                });
                // Leaves the waker with it, or finds it done.
                shared.look(slot);
            }
            Lane::Own(own) => {
                let op = if writes { HostOp::Write { fua: false } } else { HostOp::Read };
                own.submit(op, Some(lease), place, slot as u64);
                // So that it is on its way, as with the tools: one call for each request.
                own.poll();
            }
        }
    }

    /// One that has ended, and waits for it. Something must be under way.
    pub(super) fn next(&mut self) -> Ended {
        loop {
            let ended = match self {
                Lane::Shared(shared) => &mut shared.ended,
                Lane::Own(own) => &mut own.ended,
            };
            if let Some(ended) = ended.pop_front() {
                return ended;
            }
            match self {
                Lane::Shared(shared) => {
                    let slot = shared.rung.recv().expect("the wakers hold the other end");
                    shared.look(slot);
                }
                Lane::Own(own) => own.wait(),
            }
        }
    }

    /// Reads at once, whatever else is under way.
    pub(super) fn read_now(&mut self, lease: Lease, place: u64) -> Result<Lease, String> {
        match self {
            Lane::Shared(shared) => {
                shared.array.read(lease, place).wait().map_err(|error| error.to_string())
            }
            Lane::Own(own) => {
                let lease = own.now(HostOp::Read, Some(lease), place)?;
                Ok(lease.expect("a read has a lease"))
            }
        }
    }

    /// Makes durable what was written. Nothing is under way.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        match self {
            Lane::Shared(shared) => shared.array.flush().map_err(|error| error.to_string()),
            Lane::Own(own) => own.now(HostOp::Flush, None, 0).map(drop),
        }
    }
}

impl Shared<'_> {
    /// Whether the request in a slot has ended.
    fn look(&mut self, slot: usize) {
        let Some(pending) = &mut self.pending[slot] else { return };
        let mut context = Context::from_waker(&self.wakers[slot]);
        if let Poll::Ready(ended) = Pin::new(pending).poll(&mut context) {
            self.pending[slot] = None;
            self.ended.push_back((slot, ended.map_err(|error| error.to_string())));
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

    /// Does what can be done now. The request that is waited for at once is answered.
    fn poll(&mut self) -> Option<Result<Option<Lease>, String>> {
        let mut answer = None;
        self.driver.poll(&mut self.done);
        for Completion { tag, result, lease } in self.done.drain(..) {
            let result = result.map_err(|error| error.to_string());
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

    fn now(&mut self, op: HostOp, lease: Option<Lease>, at: u64) -> Result<Option<Lease>, String> {
        self.submit(op, lease, at, AT_ONCE);
        loop {
            if let Some(answer) = self.poll() {
                return answer;
            }
            self.driver.wait(LONGEST_WAIT, None);
        }
    }
}
