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
                let PendingRequest { tag, own, error, read, .. } = *request;
                PendingRequest { tag, lease, own, open: 0, error, read, held: Held::default() }
            }
        };
        let Some((at, sectors)) = request.read else { return self.complete(request, out) };
        let buf = request.lease.as_ref().expect("a read has a buffer").slice();
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
        std::mem::forget(self.resync_lease.take());
    }
}
