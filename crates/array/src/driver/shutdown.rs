//! How a driver ends: stopped, disassembled, dropped, or because a shard that it needs is gone.
//!
//! Invariant: a host gets a buffer back only when no shard and no kernel operation uses it any
//! more, also when the array breaks. Part of `driver`.

use std::time::Duration;

use engine::{BackgroundWork, MemberSet, RequestError};

use super::{Completion, Driver, Parts, PendingRequest};
use crate::member::FormerLeaf;
use crate::metadata_writer::MetadataWriter;
use crate::shard_channels::ShardChannels;

impl Driver {
    /// Whether a shard that others need is gone: nothing can be served any more.
    pub(super) fn is_broken(&self) -> bool {
        self.channels.as_ref().is_some_and(ShardChannels::is_broken)
    }

    /// On a broken array: starts no more work, waits for the kernel, and, when all shards do so,
    /// completes the pending host requests with errors.
    pub(super) fn end_broken(&mut self, out: &mut Vec<Completion>) {
        let channels = self.channels.as_mut().expect("only shards break");
        channels.clear_inboxes();
        if let Some(ring) = self.io.ring.as_mut().filter(|ring| ring.in_flight() > 0) {
            ring.submit();
            ring.reap(&mut self.kernel);
            self.kernel.clear();
            if ring.in_flight() > 0 {
                return;
            }
        }
        if !channels.be_quiet() {
            return;
        }
        self.late.clear();
        for PendingRequest { tag, lease, own, held, .. } in self.hosts.drain() {
            if own.is_none() && !held.has_ended() {
                out.push(Completion { tag, result: Err(RequestError::Io), lease });
            }
        }
    }

    /// Stops an array with metadata: requests in flight complete, all data are made durable, and
    /// the superblocks are marked clean. A driver that is dropped without this leaves the array as
    /// after a crash. Returns whether the array is clean; an array without metadata is.
    ///
    /// With several shards, shard 0 stops the array, while the others are still polled.
    ///
    /// # Panics
    /// When host requests are in flight.
    pub fn stop(&mut self) -> bool {
        let none = |out: &[Completion]| assert!(out.is_empty(), "requests are in flight");
        let (mut out, step) = (Vec::new(), Duration::from_millis(100));
        self.pause_background(BackgroundWork::Resync, true);
        self.pause_background(BackgroundWork::Rebuild, true);
        self.stop_scrub();
        self.poll(&mut out);
        while !self.is_broken() && self.background.ranges > 0 {
            self.wait(step, None);
            self.poll(&mut out);
            none(&out);
        }
        none(&out);
        if self.is_broken() {
            return false;
        }
        assert_eq!(self.requests(), 0, "requests are in flight");
        let Some(metadata_writer) = &mut self.metadata_writer else { return true };
        metadata_writer.stop();
        loop {
            self.poll(&mut out);
            if let Some(clean) = self.metadata_writer.as_ref().and_then(MetadataWriter::stopped) {
                return clean;
            }
            if self.is_broken() {
                return false;
            }
            self.wait(step, None);
        }
    }

    /// Disassembles the array and returns its leaf members, in slot order, so that another array
    /// can be assembled from them. Waits for member operations that are still in flight behind
    /// completed requests.
    ///
    /// # Panics
    /// When requests are in flight.
    pub fn into_leaves(self) -> Vec<FormerLeaf> {
        assert!(self.channels.is_none(), "all shards are disassembled together");
        Driver::shards_into_leaves(vec![self])
    }

    /// Like [`Driver::into_leaves`], for all shards of an array. The leaves' counters are those of
    /// shard 0.
    ///
    /// # Panics
    /// When requests are in flight, or a shard is missing.
    pub fn shards_into_leaves(mut shards: Vec<Driver>) -> Vec<FormerLeaf> {
        let count = shards[0].channels.as_ref().map_or(1, |channels| 1 + channels.others().count());
        assert_eq!(shards.len(), count, "all shards are disassembled together");
        assert!(shards.iter().all(|shard| shard.requests() == 0), "requests are in flight");
        let (mut none, step) =
            (Vec::new(), Duration::from_millis(if count == 1 { 100 } else { 1 }));
        loop {
            shards.iter_mut().for_each(|shard| shard.poll(&mut none));
            if shards.iter().all(|shard| shard.executor.is_quiet()) {
                break;
            }
            shards.iter_mut().for_each(|shard| shard.wait(step, None));
        }
        let failed = shards.iter().fold(MemberSet::EMPTY, |all, shard| all.union(shard.failed()));
        let mut first = shards.swap_remove(0);
        // Their handles are closed before the members are handed out.
        drop(shards);
        let mut leaves = Vec::new();
        first.executor.disassemble(true, &mut leaves);
        if count > 1 {
            for (slot, leaf) in (0..).zip(&mut leaves) {
                leaf.in_service &= !failed.contains(slot);
            }
        }
        leaves
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let has_requests = self.requests() > 0;
        // Waits for operations in the kernel while their files are open and their memory is mapped.
        if self.is_free_of_the_kernel() {
            self.io.ring = None;
        } else {
            self.leave_to_the_kernel();
        }
        let Some(channels) = &mut self.channels else { return };
        let has_parts = |parts: &Parts| parts.at_work > 0 || !parts.waiting.is_empty();
        let plane_has_work = self.failures.as_ref().is_some_and(|failures| failures.is_waiting())
            || self
                .metadata_writer
                .as_ref()
                .is_some_and(|metadata_writer| metadata_writer.stopped().is_none());
        let at_work = has_requests
            || has_parts(&self.own)
            || has_parts(&self.others)
            || self.executor.has_work()
            || plane_has_work
            || std::thread::panicking();
        channels.leave(at_work, self.hosts.drain().filter_map(|host| host.lease));
    }
}
