//! What can be read of an array, or of a volume on arrays, as a store: read-only, by threads of its
//! own, because such reads wait for members.
//!
//! Invariant: a read of which a sector is lost is an error.

use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::JoinHandle;

use admin::rescue::{DATA_STEP, Readable};
use array::ArrayExtent;
use md::SECTOR_BYTES;

use super::of_array::in_bytes;
use super::{Buffer, Limits, Memory, Outcome, Store, StoreError, StoreExtent, Then};

/// Longest read.
const REQUEST_BYTES: usize = 4 << 20;
/// The most holes and steps over data that are looked at in one call.
const MOST_LOOKS: usize = 1024;
/// All buffers together.
const BUFFERED_BYTES: usize = 64 << 20;

/// The threads and the source; see the module documentation.
pub struct Rescued {
    source: Arc<dyn Readable>,
    memory: Arc<Budget>,
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    threads: Vec<JoinHandle<()>>,
}

struct Job {
    buffer: Buffer,
    offset: u64,
    then: Then,
}

/// How many bytes of buffers may be in use.
struct Budget {
    free: Mutex<usize>,
    returned: Condvar,
}

/// Memory that is counted in a budget.
pub(super) struct Counted {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl Counted {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        *self.budget.free.lock().expect("the count lock is not poisoned") += self.bytes.len();
        self.budget.returned.notify_all();
    }
}

impl Rescued {
    /// Serves `source` by this many threads.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub fn new(source: Arc<dyn Readable>, threads: usize) -> std::io::Result<Rescued> {
        let memory = Budget { free: Mutex::new(BUFFERED_BYTES), returned: Condvar::new() };
        let (sender, jobs) = mpsc::channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut it = Rescued {
            source,
            memory: Arc::new(memory),
            jobs: Mutex::new(Some(sender)),
            threads: Vec::new(),
        };
        for number in 0..threads.max(1) {
            let (source, jobs) = (it.source.clone(), jobs.clone());
            let work = move || {
                loop {
                    let job = jobs.lock().expect("no job panics while it is received").recv();
                    let Ok(Job { buffer, offset, then }) = job else { return };
                    then(read(&*source, buffer, offset));
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

    fn counted(&self, bytes: usize, wait: bool) -> Option<Buffer> {
        assert!(bytes <= REQUEST_BYTES, "a buffer holds at most {REQUEST_BYTES} bytes");
        let mut free = self.memory.free.lock().expect("the count lock is not poisoned");
        while *free < bytes {
            if !wait {
                return None;
            }
            free = self.memory.returned.wait(free).expect("the count lock is not poisoned");
        }
        *free -= bytes;
        drop(free);
        let budget = self.memory.clone();
        Some(Buffer(Memory::Counted(Counted { bytes: vec![0; bytes], budget })))
    }
}

fn read(source: &dyn Readable, mut buffer: Buffer, offset: u64) -> Outcome {
    match source.read(offset / SECTOR_BYTES, buffer.bytes_mut()).first() {
        None => Ok(Some(buffer)),
        Some(lost) => Err(StoreError::Lost { first: lost.start, last: lost.end - 1 }),
    }
}

impl Store for Rescued {
    fn limits(&self) -> Limits {
        Limits {
            bytes: self.source.sectors() * SECTOR_BYTES,
            block: SECTOR_BYTES as u32,
            request_bytes: REQUEST_BYTES,
            buffers: BUFFERED_BYTES / REQUEST_BYTES,
            read_only: true,
            discard_zeroes: false,
        }
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        self.counted(bytes, true).expect("it was waited for")
    }

    fn try_buffer(&self, bytes: usize) -> Option<Buffer> {
        self.counted(bytes, false)
    }

    fn read(&self, buffer: Buffer, offset: u64, then: Then) {
        let bytes = buffer.len() as u64;
        if !self.is_inside(offset, bytes) {
            return then(Err(StoreError::Range { offset, bytes }));
        }
        let jobs = self.jobs.lock().expect("the channel lock is not poisoned").clone();
        let jobs = jobs.expect("it is taken on drop only");
        if let Err(mpsc::SendError(job)) = jobs.send(Job { buffer, offset, then }) {
            (job.then)(Err(StoreError::Stopped));
        }
    }

    fn write(&self, _buffer: Buffer, _offset: u64, _fua: bool, then: Then) {
        then(Err(StoreError::ReadOnly));
    }

    fn flush(&self, then: Then) {
        then(Ok(None));
    }

    fn allocation(
        &self,
        offset: u64,
        bytes: u64,
        most: usize,
    ) -> Result<Vec<StoreExtent>, StoreError> {
        if !self.is_inside(offset, bytes) {
            return Err(StoreError::Range { offset, bytes });
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

    fn discard(&self, _offset: u64, _bytes: u64) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
    }

    fn write_zeroes(&self, _offset: u64, _bytes: u64) -> Result<(), StoreError> {
        Err(StoreError::ReadOnly)
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
