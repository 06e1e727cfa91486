//! What can be read of an array, or of a volume on arrays, as a store: read-only, by threads of its
//! own, because such reads wait for members.
//!
//! Invariant: a read of which a sector is lost is an error.

use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

use admin::rescue::{DATA_STEP, Readable};
use array::{ArrayError, ArrayExtent, Completer, HostOp, Lease, LeasePool, RequestResult};
use md::SECTOR_BYTES;

use super::of_array::in_bytes;
use super::{Limits, READ_ONLY, Store, StoreExtent};

/// Longest read: the blocks of 1 MiB, wherever it begins.
const REQUEST_BYTES: usize = (1 << 20) + 4096;
/// The most holes and steps over data that are looked at in one call.
const MOST_LOOKS: usize = 1024;
/// Buffers of that length.
const LEASES: u32 = 64;

/// The threads and the source; see the module documentation.
pub struct Rescued {
    source: Arc<dyn Readable>,
    leases: LeasePool,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

struct Job {
    lease: Lease,
    offset: u64,
    to: Completer,
}

impl Rescued {
    /// Serves `source` by this many threads.
    ///
    /// # Errors
    /// When the system cannot start a thread, or has no addresses for the buffers.
    pub fn new(source: Arc<dyn Readable>, threads: usize) -> std::io::Result<Rescued> {
        let (sender, jobs) = mpsc::channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut it = Rescued {
            source,
            leases: LeasePool::without_array(REQUEST_BYTES, LEASES)?,
            jobs: Mutex::new(Some(sender)),
            threads: Vec::new(),
        };
        for number in 0..threads.max(1) {
            let (source, jobs) = (it.source.clone(), jobs.clone());
            let work = move || {
                loop {
                    let job = jobs.lock().expect("no job panics while it is received").recv();
                    let Ok(Job { lease, offset, to }) = job else { return };
                    to.complete(read(&*source, lease, offset));
                }
            };
            let name = format!("raidlab-read-{number}");
            it.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        }
        Ok(it)
    }

    fn is_inside(&self, offset: u64, bytes: u64) -> bool {
        let blocks = offset.is_multiple_of(SECTOR_BYTES) && bytes.is_multiple_of(SECTOR_BYTES);
        let end = offset.checked_add(bytes);
        blocks && end.is_some_and(|end| end <= self.source.sectors() * SECTOR_BYTES)
    }

    fn outside(&self, offset: u64, len: usize) -> ArrayError {
        let array_bytes = self.source.sectors() * SECTOR_BYTES;
        ArrayError::Range { offset, len, array_bytes, block: SECTOR_BYTES as u32 }
    }
}

fn read(source: &dyn Readable, mut lease: Lease, offset: u64) -> RequestResult {
    lease.own();
    match source.read(offset / SECTOR_BYTES, lease.bytes_mut()).first() {
        None => Ok(Some(lease)),
        Some(lost) => Err(ArrayError::Lost { first: lost.start, last: lost.end - 1 }),
    }
}

impl Store for Rescued {
    fn limits(&self) -> Limits {
        Limits {
            bytes: self.source.sectors() * SECTOR_BYTES,
            block: SECTOR_BYTES as u32,
            request_bytes: REQUEST_BYTES,
            buffers: self.leases.count(),
            read_only: true,
            discard_zeroes: false,
        }
    }

    fn lease(&self, bytes: usize) -> Lease {
        self.leases.wait(bytes)
    }

    fn try_lease(&self, bytes: usize) -> Option<Lease> {
        self.leases.take(bytes)
    }

    fn submit(&self, op: HostOp, offset: u64, lease: Option<Lease>, to: Completer) {
        let lease = match (op, lease) {
            (HostOp::Read, Some(lease)) => lease,
            (HostOp::Flush, None) => return to.complete(Ok(None)),
            _ => return to.complete(Err(READ_ONLY)),
        };
        if !self.is_inside(offset, lease.len() as u64) {
            return to.complete(Err(self.outside(offset, lease.len())));
        }
        let jobs = self.jobs.lock().expect("the channel lock is not poisoned").clone();
        let jobs = jobs.expect("it is taken on drop only");
        if let Err(mpsc::SendError(job)) = jobs.send(Job { lease, offset, to }) {
            job.to.complete(Err(ArrayError::Stopped));
        }
    }

    fn allocation(
        &self,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<StoreExtent>, ArrayError> {
        if !self.is_inside(offset, bytes) {
            return Err(self.outside(offset, bytes as usize));
        }
        let (mut at, end) = (offset / SECTOR_BYTES, (offset + bytes) / SECTOR_BYTES);
        let mut extents: Vec<ArrayExtent> = Vec::new();
        for _ in 0..MOST_LOOKS {
            if at >= end {
                break;
            }
            let hole = self.source.hole_end(at, end).min(end);
            let is_hole = hole > at;
            let next = if is_hole { hole } else { (at / DATA_STEP + 1) * DATA_STEP };
            let sectors = next.min(end) - at;
            if !ArrayExtent::push_to(&mut extents, ArrayExtent { sectors, is_hole }, most) {
                break;
            }
            at += sectors;
        }
        Ok(in_bytes(extents))
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), ArrayError> {
        Err(READ_ONLY)
    }

    fn write_zeroes(&self, _offset: u64, _bytes: u64) -> Result<(), ArrayError> {
        Err(READ_ONLY)
    }
}

impl Drop for Rescued {
    fn drop(&mut self) {
        drop(self.jobs.lock().expect("the channel lock is not poisoned").take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the reason.
            let _ = thread.join();
        }
    }
}
