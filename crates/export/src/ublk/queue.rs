//! The thread of a queue: takes the kernel's requests, hands them on, and says how they ended.
//!
//! *Invariant*: a tag is either in the kernel, waiting for a request, or here with one; it is
//! committed exactly once for each request.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use array::{CompletionQueue, Lease, RequestResult};
use host::sys::FileMap;
use rustix::io::Errno;

use super::ends::Ends;
use super::sys::{Event, QueueRing};
use super::wire::{self, Request};
use crate::access::{Access, Data, Port};
use crate::store;

const SECTOR: u64 = 512;

/// A queue; see the module documentation.
pub(super) struct Queue {
    ring: QueueRing,
    /// The kernel's table of requests.
    table: FileMap,
    device: Arc<File>,
    ends: Arc<Ends>,
    tags: Arc<Tags>,
    port: Port,
    number: u16,
    depth: u16,
}

/// Ends the store's requests, by their tags: what was read is given to the kernel.
struct Tags {
    ends: Arc<Ends>,
    device: Arc<File>,
    /// By tag.
    begun: Mutex<Vec<Begun>>,
}

/// What the store has of a tag.
#[derive(Clone, Copy, Default)]
struct Begun {
    /// Length in bytes of what is read or written; 0 of other requests.
    length: u32,
    /// Of a read: bytes before the first one, in its buffer.
    skip: usize,
    /// Of a read: where the kernel takes the bytes.
    data: Option<u64>,
}

impl Tags {
    fn set(&self, tag: u16, begun: Begun) {
        self.begun.lock().expect("no panic while it is locked")[usize::from(tag)] = begun;
    }

    fn give(&self, lease: Lease, begun: Begun, data: u64) -> Result<(), Errno> {
        let read = Data::new(lease, begun.skip, begun.length as usize);
        if read.len() != begun.length as usize {
            return Err(Errno::IO);
        }
        self.device.write_all_at(read.bytes(), data).map_err(|error| {
            tracing::warn!(%error, "what was read cannot be given to the kernel");
            Errno::IO
        })
    }
}

impl CompletionQueue for Tags {
    fn complete(&self, user_data: u64, result: RequestResult) {
        let tag = user_data as u16;
        let begun = self.begun.lock().expect("no panic while it is locked")[usize::from(tag)];
        let result = match (result, begun.data) {
            (Ok(Some(lease)), Some(data)) => self.give(lease, begun, data),
            (Ok(None), Some(_)) => Err(Errno::IO),
            (Ok(_), None) => Ok(()),
            (Err(error), _) => Err(store::errno(&error)),
        };
        match result {
            Ok(()) => self.ends.put(tag, begun.length as i32),
            Err(errno) => self.ends.failed(tag, errno),
        }
    }
}

impl Queue {
    pub(super) fn new(
        device: &Arc<File>,
        access: &Arc<Access>,
        number: u16,
        depth: u16,
    ) -> io::Result<Queue> {
        let ends = Arc::new(Ends::new()?);
        let begun = Mutex::new(vec![Begun::default(); usize::from(depth)]);
        let tags = Arc::new(Tags { ends: ends.clone(), device: device.clone(), begun });
        let page = rustix::param::page_size();
        let bytes = (usize::from(depth) * wire::REQUEST_BYTES).next_multiple_of(page);
        let offset = wire::table_offset(number, page as u64);
        Ok(Queue {
            ring: QueueRing::new(device.clone(), ends.clone(), number, depth)?,
            table: FileMap::of_device(device, offset, bytes)?,
            device: device.clone(),
            ends,
            port: access.port(tags.clone()),
            tags,
            number,
            depth,
        })
    }

    /// Serves the queue until the device is stopped.
    pub(super) fn run(mut self) {
        if let Err(error) = self.serve() {
            tracing::error!(%error, queue = self.number, "a queue of a ublk device has ended");
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        (0..self.depth).try_for_each(|tag| self.ring.fetch(tag))?;
        self.ring.listen()?;
        let (mut left, mut events, mut ended) = (self.depth, Vec::new(), Vec::new());
        while left > 0 {
            self.ring.wait(&mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Command { tag, result: 0 } => self.begin(tag)?,
                    // The device is being stopped: the tag gets no more requests.
                    Event::Command { .. } => left -= 1,
                    Event::Wakeup => {
                        self.ends.reset();
                        self.ring.listen()?;
                    }
                }
            }
            self.ends.take(&mut ended);
            for (tag, result) in ended.drain(..) {
                self.ring.commit(tag, result)?;
            }
        }
        Ok(())
    }

    /// Hands on the request that is at a tag.
    fn begin(&mut self, tag: u16) -> io::Result<()> {
        let mut bytes = [0; wire::REQUEST_BYTES];
        self.table.read(u64::from(tag) * wire::REQUEST_BYTES as u64, &mut bytes)?;
        let request = Request::decode(&bytes);
        self.tags.set(tag, Begun::default());
        let user_data = u64::from(tag);
        if request.operation == wire::OP_FLUSH {
            // Of no sectors, wherever it says that they are.
            self.port.flush(user_data);
            return Ok(());
        }
        let data = wire::data_offset(self.number, tag);
        let length = u64::from(request.sectors) * SECTOR;
        let start = request.start_sector.checked_mul(SECTOR);
        let end = start.and_then(|start| start.checked_add(length));
        let (Some(start), Some(end)) = (start, end.filter(|it| *it <= self.port.limits().bytes))
        else {
            self.ends.failed(tag, Errno::IO);
            return Ok(());
        };
        let longest = self.port.limits().request_bytes as u64;
        match request.operation {
            wire::OP_READ if length <= longest => self.read(tag, start, length, data),
            wire::OP_WRITE if length <= longest => {
                self.write(tag, start, length, data, request.flags & wire::FUA != 0);
            }
            wire::OP_DISCARD => self.port.discard(start..end, user_data),
            wire::OP_WRITE_ZEROES => {
                let unmap = request.flags & wire::NO_UNMAP == 0;
                self.port.zero(start..end, unmap, request.flags & wire::FUA != 0, user_data);
            }
            _ => self.ends.failed(tag, Errno::OPNOTSUPP),
        }
        Ok(())
    }

    fn read(&self, tag: u16, start: u64, length: u64, data: u64) {
        let skip = self.port.skip(start);
        self.tags.set(tag, Begun { length: length as u32, skip, data: Some(data) });
        // Waits for a buffer, which requests in flight return.
        let lease = self.port.lease(self.port.span(start, length) as usize);
        self.port.read(lease, start, u64::from(tag));
    }

    fn write(&self, tag: u16, start: u64, length: u64, data: u64, durable: bool) {
        if self.port.limits().read_only {
            return self.ends.failed(tag, store::errno(&store::READ_ONLY));
        }
        let mut lease = self.port.lease(length as usize);
        if let Err(error) = self.device.read_exact_at(lease.bytes_mut(), data) {
            tracing::warn!(%error, "what is to be written cannot be had from the kernel");
            return self.ends.failed(tag, Errno::IO);
        }
        self.tags.set(tag, Begun { length: length as u32, ..Begun::default() });
        self.port.write(lease, start, durable, u64::from(tag));
    }
}
