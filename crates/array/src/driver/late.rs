//! Requests whose buffers late operations of members use.
//!
//! ```text
//! completes, held:  a read is begun anew with another buffer; all else completes, and its host
//!                   gets another buffer. The old one waits in the table for its release.
//! ```
//! Invariant: a buffer that a late operation uses belongs to the driver until the engine has
//! released it; then it is in reserve. Without a buffer in reserve a request waits for one. Part of
//! `driver`.

use std::collections::VecDeque;
use std::time::Duration;

use engine::{HostOp, Request};

use super::{Completion, Driver, PendingRequest};
use crate::buf::Lease;
use crate::member::Ring;
use crate::shard_channels::Message;

/// Of a request in the table.
#[derive(Default)]
pub(super) struct Held {
    /// Shards in which late operations use its buffer.
    now: u32,
    /// There was one: a read has no result.
    pub(super) was: bool,
    /// The request has completed; only its buffer is left.
    has_ended: bool,
}

impl Held {
    /// Whether the request has completed: only its buffer is left.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

#[derive(Default)]
pub(super) struct LateRequests {
    /// Requests in the table that have completed.
    ended: usize,
    /// Requests that wait for a buffer.
    waiting: VecDeque<u32>,
    /// What other shards have reported of requests of this one.
    pub(super) held: Vec<u32>,
    pub(super) free: Vec<u32>,
}

impl LateRequests {
    /// All requests have ended, and no buffer is in use.
    pub(super) fn clear(&mut self) {
        *self = LateRequests::default();
    }
}

impl Driver {
    /// Number of requests that have not completed.
    pub(super) fn requests(&self) -> usize {
        self.hosts.len() - self.late.ended
    }

    /// Member operations of this shard that have not completed in time, and have not completed yet.
    pub fn late_operations(&self) -> usize {
        self.executor.late_operations()
    }

    /// Buffers that late operations use; before completions are processed.
    pub(super) fn note_held(&mut self, out: &mut Vec<Completion>) {
        for tag in self.executor.take_held() {
            match self.shard_of_tag(tag) {
                Some((shard, host)) => self.send_to(shard, Message::Hold { host }),
                None => self.late.held.push(tag as u32),
            }
        }
        for host in self.late.held.drain(..) {
            let held = &mut self.hosts.get(host).held;
            held.now += 1;
            held.was = true;
        }
        for _ in 0..self.late.waiting.len() {
            let host = self.late.waiting.pop_front().expect("counted");
            self.held_done(host, out);
        }
    }

    /// Buffers that they do not use any more; after completions have been processed.
    pub(super) fn note_released(&mut self) {
        for tag in self.executor.take_free() {
            match self.shard_of_tag(tag) {
                Some((shard, host)) => self.send_to(shard, Message::Release { host }),
                None => self.late.free.push(tag as u32),
            }
        }
        while let Some(host) = self.late.free.pop() {
            let held = &mut self.hosts.get(host).held;
            held.now -= 1;
            if held.now == 0 && held.has_ended {
                self.late.ended -= 1;
                self.hosts.remove(host).lease.into_iter().for_each(Lease::into_reserve);
            }
        }
    }

    /// The other shard that a request came from, and its number there.
    fn shard_of_tag(&self, tag: u64) -> Option<(u16, u32)> {
        let shard = ((tag >> 32) as u16).checked_sub(1)?;
        self.channels.is_some().then_some((shard, tag as u32))
    }

    fn send_to(&mut self, shard: u16, message: Message) {
        self.channels.as_mut().expect("of another shard").send(shard, message);
    }

    /// All parts of a request have completed whose buffer was held.
    pub(super) fn held_done(&mut self, host: u32, out: &mut Vec<Completion>) {
        let request = self.hosts.get(host);
        let is_held = request.held.now > 0;
        let mut lease = None;
        if let Some(old) = request.lease.as_ref().filter(|_| is_held) {
            lease = self.leases.replacement(old.len());
            match &mut lease {
                None => return self.late.waiting.push_back(host),
                // A host may use what it has written again. The kernel only reads it, too.
                Some(new) if request.own.is_none() && request.read.is_none() => {
                    new.bytes_mut().copy_from_slice(old.bytes());
                }
                Some(_) => {}
            }
        }
        let request = match is_held {
            false => PendingRequest { held: Held::default(), ..self.hosts.remove(host) },
            true => {
                request.held.has_ended = true;
                self.late.ended += 1;
                let (own, held) = (request.own.clone(), Held::default());
                let PendingRequest { tag, error, read, .. } = *request;
                PendingRequest { tag, lease, own, open: 0, error, read, held }
            }
        };
        let Some(at) = request.read else {
            let PendingRequest { tag, lease, own, error, .. } = request;
            let result = error.map_or(Ok(()), Err);
            return self.complete(Completion { tag, result, lease }, own, out);
        };
        let buf = request.lease.as_ref().expect("a read has a buffer").slice();
        let sectors = u64::from(buf.len) / md::SECTOR_BYTES;
        let again = PendingRequest { open: 1, error: None, ..request };
        let host = self.hosts.insert(again);
        tracing::debug!(at = at.0, sectors, "a read is begun anew: a member was late");
        if !self.is_broken() {
            self.route(Request { tag: u64::from(host), op: HostOp::Read, at, sectors, buf });
        }
    }
}

impl Driver {
    /// Waits for the kernel, as long as operations of members may take. Returns whether it uses no
    /// memory any more.
    pub(super) fn is_free_of_the_kernel(&mut self) -> bool {
        let Some(limit) = self.executor.member_timeout() else { return true };
        let Some(ring) = &mut self.io.ring else { return true };
        // Late operations have had their time.
        let limit = if self.executor.late_operations() > 0 { Duration::ZERO } else { limit };
        ring.drain(limit)
    }

    /// Operations have not completed: what the kernel may still use stays as it is, until the
    /// process ends. Leaking it is deliberate: memory that was freed could be given to others while
    /// a device writes to it, and a device that was closed could be started again before its last
    /// write. Its lock is kept.
    pub(super) fn leave_to_the_kernel(&mut self) {
        let ring = self.io.ring.take();
        let operations = ring.as_ref().map_or(0, Ring::in_flight);
        tracing::error!(
            operations,
            "operations of members have not completed: their memory and files are left open until \
             the process ends"
        );
        std::mem::forget((ring, self.io.regions.clone()));
        self.executor.leave_members();
        self.hosts.drain().filter_map(|host| host.lease).for_each(std::mem::forget);
        self.late.clear();
        std::mem::forget(self.resync_lease.take());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::UnixStream;
    use std::sync::{Arc, Weak};
    use std::time::Instant;

    use engine::{RequestError, Token};
    use md::{Layout, Level, Sector};

    use super::*;
    use crate::buf::Region;
    use crate::build::{ArraySpec, DataPlaneConfig, MemberSpec};
    use crate::driver::DriverOptions;
    use crate::member::{
        Counters, Cqe, FileOp, Io, Leaf, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed,
    };

    const PATIENCE: Duration = Duration::from_secs(20);
    const LIMIT: Duration = Duration::from_millis(200);

    /// A member whose reads end when something is written to a socket.
    struct Stuck {
        socket: OwnedFd,
        leaf: u32,
        token: Option<Token>,
    }

    impl Sealed for Stuck {}

    impl Leaf for Stuck {
        fn info(&self) -> MemberInfo {
            MemberInfo {
                sectors: 1024,
                logical_block: 512,
                discard_zeroes: false,
                keeps_data: true,
                uses_ring: true,
                in_memory: false,
                synchronous: false,
            }
        }

        fn share(&self) -> Option<Box<dyn Member>> {
            None
        }

        fn submit(&mut self, op: &Op<'_>, io: &mut Io, _: &mut Vec<MemberCompletion>) {
            assert_eq!(op.kind, OpKind::Read);
            self.token = Some(op.token);
            let spans: Vec<_> = op.slices.iter().map(|slice| io.regions.span(*slice)).collect();
            let read = FileOp::Read { at: 0, spans: &spans };
            io.ring.as_mut().expect("a ring").push(&self.socket, read, self.leaf, 0);
        }

        fn complete(&mut self, event: Cqe, _: &mut Io, done: &mut Vec<MemberCompletion>) {
            assert_eq!(event.result, 4096);
            let token = self.token.take().expect("it was begun");
            done.push(MemberCompletion { token, result: Ok(()) });
        }

        fn number_leaf(&mut self, number: u32) {
            self.leaf = number;
        }

        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    /// A driver with a read in the kernel, what ends the read, the memory of hosts' buffers, and
    /// the address of the read's.
    fn reading() -> (Driver, UnixStream, Weak<Region>, u64) {
        let (socket, other) = UnixStream::pair().expect("sockets");
        let stuck = Stuck { socket: socket.into(), leaf: 0, token: None };
        let spec = ArraySpec {
            level: Level::Linear,
            layout: Layout::None,
            chunk_sectors: 0,
            members: vec![MemberSpec::ready(stuck)],
            data_plane: DataPlaneConfig::default(),
        };
        let options =
            DriverOptions { leases: 2, member_timeout: Some(LIMIT), ..DriverOptions::default() };
        let mut driver = Driver::new(spec, &options).expect("an array");
        let region = Arc::downgrade(driver.leases().growing().region());
        let mut lease = driver.leases().take(4096).expect("a buffer");
        lease.bytes_mut().fill(1);
        let address = lease.bytes().as_ptr() as u64;
        driver.submit(HostOp::Read, Sector(0), 8, Some(lease), 1).expect("there is room");
        driver.poll(&mut Vec::new());
        (driver, other, region, address)
    }

    /// The bytes at an address of this process.
    fn memory(address: u64) -> Option<[u8; 4096]> {
        let (memory, mut bytes) = (std::fs::File::open("/proc/self/mem").ok()?, [0; 4096]);
        memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// The kernel ends the read of a driver that is gone, into memory that is still its own.
    fn is_left_as_it_was(mut socket: UnixStream, region: &Weak<Region>, address: u64) {
        assert!(memory(address) == Some([1; 4096]), "it is gone, or something else has it");
        socket.write_all(&[7; 4096]).expect("the member's file is open");
        let start = Instant::now();
        while memory(address) != Some([7; 4096]) {
            assert!(start.elapsed() < PATIENCE, "the kernel does not fill it");
        }
        assert!(region.upgrade().is_some());
    }

    #[test]
    fn what_a_late_operation_uses_outlives_a_driver_that_is_dropped() {
        let (mut driver, socket, region, address) = reading();
        let (start, mut done) = (Instant::now(), Vec::new());
        while done.is_empty() {
            assert!(start.elapsed() < PATIENCE, "the read is not late");
            driver.wait(Duration::from_millis(10), None);
            driver.poll(&mut done);
        }
        assert!(done[0].result == Err(RequestError::Io) && driver.late_operations() == 1);
        drop(done);
        let start = Instant::now();
        drop(driver);
        assert!(start.elapsed() < LIMIT, "it waits no longer");
        is_left_as_it_was(socket, &region, address);
    }

    #[test]
    fn a_driver_that_is_dropped_waits_for_the_kernel_as_long_as_an_operation_may_take() {
        let (driver, socket, region, address) = reading();
        let start = Instant::now();
        drop(driver);
        assert!(start.elapsed() >= LIMIT, "{:?}", start.elapsed());
        is_left_as_it_was(socket, &region, address);

        // Where the operation ends in time, nothing is left.
        let (driver, mut socket, region, _) = reading();
        let start = Instant::now();
        socket.write_all(&[7; 4096]).expect("it is open");
        drop(driver);
        assert!(start.elapsed() < LIMIT && region.upgrade().is_none());
        assert!(socket.write_all(&[7; 4096]).is_err(), "the member's file is closed");
    }
}
