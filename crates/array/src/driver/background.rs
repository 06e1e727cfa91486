//! Background work (resync, rebuild, scrub) beside hosts: when a range may begin, and what callers
//! see of it.
//!
//! Invariant: at least one range makes progress under any load: it has a reserved slot, and the
//! pacer's rests are bounded. More are in flight only while there is room for hosts as well. One
//! kind of work begins ranges at a time. Part of `driver`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::{
    BackgroundProgress, BackgroundState, BackgroundStatus, BackgroundWork, BufSlice, HostOp, Pace,
    Pacer, RateMeter, Request,
};
use md::Sector;

use super::membership::LocalRebuilds;
use super::resync::LocalResync;
use super::{Driver, OwnRange, PendingRequest};
use crate::buf::Lease;
use crate::metadata_writer::MetadataWriter;

/// Hosts use an array until so long after their last request.
const RECENT_NANOS: u64 = 50_000_000;

/// A shard's hosts have requests in flight.
const IN_FLIGHT: u64 = u64::MAX;

/// When a shard last had a host's request: [`IN_FLIGHT`], or the time at which the last one ended.
/// In a cache line of its own: each shard writes its own, and the one with background work reads
/// all of them.
#[derive(Default)]
#[repr(align(128))]
struct LastHost(AtomicU64);

/// Whether hosts use an array, of all its shards.
#[derive(Clone)]
pub(super) struct HostLoad {
    shards: Arc<[LastHost]>,
    own: usize,
}

impl HostLoad {
    /// One for each shard of an array.
    pub(super) fn of_shards(shards: u16) -> impl Iterator<Item = HostLoad> {
        let all: Arc<[LastHost]> = (0..shards).map(|_| LastHost::default()).collect();
        (0..usize::from(shards)).map(move |own| HostLoad { shards: all.clone(), own })
    }

    pub(super) fn began(&self) {
        self.shards[self.own].0.store(IN_FLIGHT, Relaxed);
    }

    /// The shard has no host request in flight any more.
    pub(super) fn all_ended(&self, now: u64) {
        self.shards[self.own].0.store(now, Relaxed);
    }

    /// Hosts use the array until this time, if no further request comes.
    fn loaded_until(&self) -> u64 {
        let last = self.shards.iter().map(|shard| shard.0.load(Relaxed)).max().unwrap_or(0);
        if last == 0 { 0 } else { last.saturating_add(RECENT_NANOS) }
    }
}

/// The background work of a driver.
pub(super) struct Background {
    /// Ranges in flight.
    pub(super) ranges: usize,
    pub(super) load: HostLoad,
    pacer: Pacer,
    /// When the first of the ranges in flight began.
    began_at: u64,
    /// Of resyncs, rebuilds and scrubs.
    meters: [RateMeter; 3],
}

impl Background {
    pub(super) fn new(load: HostLoad, pace: Pace) -> Background {
        let mut pacer = Pacer::default();
        pacer.set_pace(pace);
        Background { ranges: 0, load, pacer, began_at: 0, meters: Default::default() }
    }

    fn is_loaded(&self, now: u64) -> bool {
        now < self.load.loaded_until()
    }

    fn may_begin(&self, now: u64) -> bool {
        self.pacer.may_begin(now, self.is_loaded(now))
    }

    fn began(&mut self, now: u64, sectors: u64) {
        if self.ranges == 0 {
            self.began_at = now;
        }
        self.ranges += 1;
        self.pacer.began(now, sectors);
    }

    /// A range has ended; `done`: it was not in vain.
    pub(super) fn ended(&mut self, now: u64, own: &OwnRange, done: bool) {
        self.ranges -= 1;
        let (kind, sectors) = match own {
            OwnRange::Resync(range) => (0, range.sectors),
            OwnRange::Rebuild(range) => (1, range.sectors),
            OwnRange::Scrub(_, sectors) => (2, *sectors),
        };
        if done {
            self.meters[kind].add(self.began_at, now, sectors);
        }
        let is_loaded = self.is_loaded(now);
        self.pacer.ended(now, is_loaded);
    }

    /// When a range may begin, if none ends before and no host submits a request.
    fn begins_at(&self, now: u64) -> u64 {
        let loaded_until = self.load.loaded_until();
        match now < loaded_until {
            true => self.pacer.begins_at(true).min(loaded_until.max(self.pacer.begins_at(false))),
            false => self.pacer.begins_at(false),
        }
    }
}

impl Driver {
    /// Sets how fast background work runs, now and later. In shard 0, which submits all of it.
    pub fn set_pace(&mut self, pace: Pace) {
        tracing::debug!(?pace, "pace of background work set");
        self.background.pacer.set_pace(pace);
    }

    /// How fast background work runs.
    pub fn pace(&self) -> Pace {
        self.background.pacer.pace()
    }

    /// All background work that has not ended, in the order in which it runs. In shard 0.
    pub fn background(&self) -> Vec<BackgroundStatus> {
        let now = sys::clock_nanos();
        let mut all: Vec<BackgroundStatus> = Vec::new();
        let found = [self.resync_progress(), self.rebuild_progress(), self.scrub_progress()];
        for (found, meter) in found.into_iter().zip(&self.background.meters) {
            let Some((work, mut state, progress)) = found else { continue };
            let waits = all.iter().any(|other| work.waits_for(other.work, other.state));
            if waits && state == BackgroundState::Running {
                state = BackgroundState::Waiting;
            }
            let sectors_per_s = meter.sectors_per_s(now);
            all.push(BackgroundStatus { work, state, progress, sectors_per_s });
        }
        all
    }

    /// Positions that background work of a kind has done since the array was assembled, in sectors.
    /// In shard 0.
    pub fn background_done(&self, work: BackgroundWork) -> u64 {
        let kind = match work {
            BackgroundWork::Resync => 0,
            BackgroundWork::Rebuild | BackgroundWork::Replace => 1,
            BackgroundWork::Check | BackgroundWork::Repair => 2,
        };
        self.background.meters[kind].done()
    }

    /// Pauses or resumes background work of a kind. Ranges in flight complete. In shard 0.
    pub fn pause_background(&mut self, work: BackgroundWork, paused: bool) {
        match work {
            BackgroundWork::Resync => self.pause_resync(paused),
            BackgroundWork::Rebuild | BackgroundWork::Replace => self.pause_rebuild(paused),
            BackgroundWork::Check | BackgroundWork::Repair => self.pause_scrub(paused),
        }
    }

    /// Cancels background work of a kind. Ranges in flight complete; how far it has come is
    /// recorded in the superblocks; and it no longer keeps other kinds waiting. A resync or a
    /// rebuild, which the array still needs, begins again by [`Driver::begin_background`] or at the
    /// next start, a scrub by [`Driver::start_scrub`]. In shard 0.
    pub fn cancel_background(&mut self, work: BackgroundWork) {
        tracing::info!(work = work.name(), "background work cancelled");
        match work {
            BackgroundWork::Resync => self.cancel_resync(),
            BackgroundWork::Rebuild | BackgroundWork::Replace => self.cancel_rebuild(),
            BackgroundWork::Check | BackgroundWork::Repair => self.stop_scrub(),
        }
    }

    /// Begins a resync or rebuilds again that were cancelled, where they were. Returns whether
    /// there were any. In shard 0.
    pub fn begin_background(&mut self, work: BackgroundWork) -> bool {
        let begins = match work {
            BackgroundWork::Resync => self.begin_resync_again(),
            BackgroundWork::Rebuild | BackgroundWork::Replace => self.begin_rebuild_again(),
            BackgroundWork::Check | BackgroundWork::Repair => false,
        };
        tracing::info!(work = work.name(), begins, "background work ordered to begin again");
        begins
    }

    fn resync_progress(&self) -> Option<(BackgroundWork, BackgroundState, BackgroundProgress)> {
        let local = || self.local_resync.as_ref().and_then(LocalResync::progress);
        let of_writer = self.metadata_writer.as_ref().and_then(MetadataWriter::resync_progress);
        let (state, progress) = of_writer.or_else(local)?;
        Some((BackgroundWork::Resync, state, progress))
    }

    fn rebuild_progress(&self) -> Option<(BackgroundWork, BackgroundState, BackgroundProgress)> {
        let local = || self.local.as_ref().and_then(LocalRebuilds::progress);
        let of_writer = self.metadata_writer.as_ref().and_then(MetadataWriter::rebuild_progress);
        let (state, progress) = of_writer.or_else(local)?;
        let only_replaces = |status: engine::MetadataStatus| {
            status.rebuilding.is_empty() && !status.replacing.is_empty()
        };
        let work = match self.metadata().is_some_and(only_replaces) {
            true => BackgroundWork::Replace,
            false => BackgroundWork::Rebuild,
        };
        Some((work, state, progress))
    }

    /// Whether other work has its turn before a scrub.
    pub(super) fn is_before_scrub(&self) -> bool {
        let before = [self.resync_progress(), self.rebuild_progress()];
        let mut before = before.into_iter().flatten();
        before.any(|(work, state, _)| BackgroundWork::Check.waits_for(work, state))
    }

    /// Whether one more range of background work may begin.
    pub(super) fn may_begin_range(&self, now: u64) -> bool {
        let has_room = self.background.ranges == 0 || self.max_requests > self.requests() + 1;
        has_room && self.background.may_begin(now)
    }

    /// When background work is to continue although nothing completes: `Some(0)` for now.
    pub(super) fn background_deadline(&self, now: u64) -> Option<u64> {
        let is_due = self.is_resync_due() || self.is_rebuild_due() || self.is_scrub_due();
        is_due.then(|| if self.may_begin_range(now) { 0 } else { self.background.begins_at(now) })
    }

    /// Submits a range.
    pub(super) fn submit_range(
        &mut self,
        own: OwnRange,
        op: HostOp,
        (at, sectors): (Sector, u64),
        lease: Option<Lease>,
    ) {
        self.background.began(self.io.now, sectors);
        let buf = lease.as_ref().map_or(BufSlice::default(), Lease::slice);
        let own = Some(own);
        let held = super::late::Held::default();
        let request = PendingRequest { tag: 0, lease, own, open: 1, error: None, read: None, held };
        let host = self.hosts.insert(request);
        self.route(Request { tag: u64::from(host), op, at, sectors, buf });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_in_use_while_any_shard_has_requests_and_for_a_moment_after() {
        let shards: Vec<HostLoad> = HostLoad::of_shards(3).collect();
        let background = Background::new(shards[0].clone(), Pace::default());
        assert!(!background.is_loaded(5));
        shards[2].began();
        assert!(background.is_loaded(u64::MAX - 1));
        shards[2].all_ended(1000);
        assert!(background.is_loaded(1000 + RECENT_NANOS - 1));
        assert!(!background.is_loaded(1000 + RECENT_NANOS));
    }

    #[test]
    fn a_rest_ends_with_the_load() {
        let load = HostLoad::of_shards(1).next().expect("one");
        let mut background = Background::new(load.clone(), Pace::default());
        load.began();
        background.began(0, 1024);
        background.ended(100_000_000, &OwnRange::Scrub(Sector(0), 1024), true);
        assert!(!background.may_begin(100_000_000));
        let rest = background.begins_at(100_000_000);
        assert!(background.may_begin(rest) && !background.may_begin(rest - 1));
        load.all_ended(100_000_000);
        assert_eq!(background.begins_at(100_000_000), 100_000_000 + RECENT_NANOS);
    }
}
