//! The thread of a queue: takes the kernel's requests, hands them on, and says how they ended.
//!
//! *Invariant*: a tag is either in the kernel, waiting for a request, or here with one; it is
//! committed exactly once for each request.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::Errno;
use sys::FileMap;

use super::ends::Ends;
use super::sys::{Event, QueueRing};
use super::wire::{self, Request};
use crate::access::Access;
use crate::store::StoreError;

const SECTOR: u64 = 512;

/// A queue; see the module documentation.
pub(super) struct Queue {
    ring: QueueRing,
    /// The kernel's table of requests.
    table: FileMap,
    device: Arc<File>,
    ends: Arc<Ends>,
    access: Arc<Access>,
    number: u16,
    depth: u16,
}

/// Says how a request ended.
struct Answer {
    ends: Arc<Ends>,
    tag: u16,
}

impl Answer {
    fn failed(self, errno: Errno) {
        self.ends.put(self.tag, -errno.raw_os_error());
    }

    fn end(self, result: Result<u32, StoreError>) {
        match result {
            Ok(bytes) => self.ends.put(self.tag, bytes as i32),
            Err(error) => self.failed(error.errno()),
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
        let page = rustix::param::page_size();
        let bytes = (usize::from(depth) * wire::REQUEST_BYTES).next_multiple_of(page);
        let offset = wire::table_offset(number, page as u64);
        Ok(Queue {
            ring: QueueRing::new(device.clone(), ends.clone(), number, depth)?,
            table: FileMap::of_device(device, offset, bytes)?,
            device: device.clone(),
            ends,
            access: access.clone(),
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
                    Event::Bell => {
                        self.ends.hush();
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
        let answer = Answer { ends: self.ends.clone(), tag };
        if request.operation == wire::OP_FLUSH {
            // Of no sectors, wherever it says that they are.
            self.access.flush(move |result| answer.end(result.map(|()| 0)));
            return Ok(());
        }
        let data = wire::data_offset(self.number, tag);
        let length = u64::from(request.sectors) * SECTOR;
        let start = request.start_sector.checked_mul(SECTOR);
        let end = start.and_then(|start| start.checked_add(length));
        let (Some(start), Some(end)) = (start, end.filter(|it| *it <= self.access.limits().bytes))
        else {
            answer.failed(Errno::IO);
            return Ok(());
        };
        let longest = self.access.limits().request_bytes as u64;
        let cleared = move |result: Result<(), StoreError>| answer.end(result.map(|()| 0));
        match request.operation {
            wire::OP_READ if length <= longest => self.read(tag, start, length, data),
            wire::OP_WRITE if length <= longest => {
                self.write(tag, start, length, data, request.flags & wire::FUA != 0);
            }
            wire::OP_DISCARD => self.access.discard(start..end, cleared),
            wire::OP_WRITE_ZEROES => {
                let unmap = request.flags & wire::NO_UNMAP == 0;
                self.access.zero(start..end, unmap, request.flags & wire::FUA != 0, cleared);
            }
            _ => self.ends.put(tag, -Errno::OPNOTSUPP.raw_os_error()),
        }
        Ok(())
    }

    fn read(&self, tag: u16, start: u64, length: u64, data: u64) {
        let answer = Answer { ends: self.ends.clone(), tag };
        let device = self.device.clone();
        // Waits for a buffer, which requests in flight return.
        let buffer = self.access.buffer(self.access.span(start, length) as usize);
        self.access.read(buffer, start, length as usize, move |outcome| match outcome {
            Ok(read) if read.bytes().len() as u64 == length => {
                match device.write_all_at(read.bytes(), data) {
                    Ok(()) => answer.end(Ok(length as u32)),
                    Err(error) => {
                        tracing::warn!(%error, "what was read cannot be given to the kernel");
                        answer.failed(Errno::IO);
                    }
                }
            }
            Ok(_) => answer.failed(Errno::IO),
            Err(error) => answer.end(Err(error)),
        });
    }

    fn write(&self, tag: u16, start: u64, length: u64, data: u64, durable: bool) {
        let answer = Answer { ends: self.ends.clone(), tag };
        if self.access.limits().read_only {
            return answer.end(Err(StoreError::ReadOnly));
        }
        let mut buffer = self.access.buffer(length as usize);
        if let Err(error) = self.device.read_exact_at(buffer.bytes_mut(), data) {
            tracing::warn!(%error, "what is to be written cannot be had from the kernel");
            return answer.failed(Errno::IO);
        }
        let written = move |result: Result<(), _>| answer.end(result.map(|()| length as u32));
        self.access.write(buffer, start, durable, written);
    }
}
