//! Background work (resync, rebuild, scrub) beside hosts: when a range may begin, and what callers
//! see of it.
//!
//! Invariant: at least one range makes progress under any load: it has a reserved slot, and the
//! pacer's rests are bounded. More are in flight only while there is room for hosts as well, and
//! none where hosts have all buffers and the work needs one. One kind of work begins ranges at a
//! time: a scrub waits for resyncs and rebuilds, since what is out of sync proves nothing. Part of
//! `driver`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::{
    BackgroundEffect, BackgroundLoop, BackgroundRange, BackgroundState, BackgroundStatus,
    BackgroundWork, BufSlice, FailureCoordinator, HostOp, IntentMap, Pace, Pacer, RateMeter,
    Request, RequestError, Walk,
};
use md::{Kind, MemberIdx, Sector};

use super::{Driver, PendingRequest};
use crate::buf::Lease;
use crate::metadata_writer::MetadataWriter;

/// Hosts use an array until so long after their last request.
const RECENT_NANOS: u64 = 50_000_000;

/// Kinds of background work, in their turn.
const KINDS: [BackgroundWork; 3] =
    [BackgroundWork::Resync, BackgroundWork::Rebuild, BackgroundWork::Check];

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
    /// By turn.
    meters: [RateMeter; 3],
    /// By turn: hosts have all buffers, and the work needs one.
    lacks_buffer: [bool; 3],
    /// By turn: loops that no metadata manager orders, of the last scrub and of arrays without
    /// metadata.
    pub(super) local: [Option<BackgroundLoop>; 3],
    /// Effects of rebuilds among them that were not performed yet.
    pub(super) reports: Vec<BackgroundEffect>,
}

impl Background {
    pub(super) fn new(load: HostLoad, pace: Pace) -> Background {
        let mut pacer = Pacer::default();
        pacer.set_pace(pace);
        Background {
            ranges: 0,
            load,
            pacer,
            began_at: 0,
            meters: Default::default(),
            lacks_buffer: [false; 3],
            local: [None, None, None],
            reports: Vec::new(),
        }
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
    pub(super) fn ended(&mut self, now: u64, work: BackgroundWork, sectors: u64, done: bool) {
        self.ranges -= 1;
        if done {
            self.meters[work.turn()].add(self.began_at, now, sectors);
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
        let now = host::sys::clock_nanos();
        let mut all: Vec<BackgroundStatus> = Vec::new();
        let only_replaces = |status: engine::MetadataStatus| {
            status.rebuilding.is_empty() && !status.replacing.is_empty()
        };
        for (work, meter) in KINDS.into_iter().zip(&self.background.meters) {
            let Some(background) = self.loop_of(work) else { continue };
            let Some((mut state, progress)) = background.progress() else { continue };
            let work = match background.op() {
                HostOp::Rebuild if self.metadata().is_some_and(only_replaces) => {
                    BackgroundWork::Replace
                }
                op => BackgroundWork::of(op),
            };
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
        self.background.meters[work.turn()].done()
    }

    /// Pauses or resumes background work of a kind. Ranges in flight complete. In shard 0.
    pub fn pause_background(&mut self, work: BackgroundWork, paused: bool) {
        if let Some(background) = self.loop_mut(work) {
            tracing::debug!(work = work.name(), paused, "background work paused or resumed");
            background.pause(paused);
        }
    }

    /// Cancels background work of a kind. Ranges in flight complete; how far it has come is
    /// recorded in the superblocks; and it no longer keeps other kinds waiting. A resync or a
    /// rebuild, which the array still needs, begins again by [`Driver::begin_background`] or at the
    /// next start, a scrub by [`Driver::start_scrub`]. In shard 0.
    pub fn cancel_background(&mut self, work: BackgroundWork) {
        tracing::info!(work = work.name(), "background work cancelled");
        self.cancel(work);
    }

    pub(super) fn cancel(&mut self, work: BackgroundWork) {
        match (&mut self.background.local[work.turn()], &mut self.metadata_writer) {
            // Nothing is recorded of it.
            (Some(local), _) => local.cancel(&mut Vec::new()),
            (None, Some(writer)) => writer.cancel(work),
            (None, None) => {}
        }
    }

    /// Begins a resync or rebuilds again that were cancelled, where they were. Returns whether
    /// there were any. In shard 0.
    pub fn begin_background(&mut self, work: BackgroundWork) -> bool {
        let begins = self.loop_mut(work).is_some_and(BackgroundLoop::begin_again);
        tracing::info!(work = work.name(), begins, "background work ordered to begin again");
        begins
    }

    /// Whether a resync is running or paused, and not cancelled; see
    /// [`engine::MetadataStatus::resync_offset`] for its position.
    pub fn is_resyncing(&self) -> bool {
        self.loop_of(BackgroundWork::Resync).is_some_and(BackgroundLoop::is_active)
    }

    /// Whether members are being rebuilt or replaced, or are to be; see
    /// [`engine::MetadataStatus::rebuild_sectors`] for the progress.
    pub fn is_rebuilding(&self) -> bool {
        self.has_rebuilds_to_do() || !self.executor.rebuilding().is_empty()
    }

    /// Whether rebuilds can continue: ranges are in flight, or to come.
    pub fn has_rebuilds_to_do(&self) -> bool {
        self.loop_of(BackgroundWork::Rebuild).is_some_and(BackgroundLoop::is_active)
    }

    /// Ranges that could not be rebuilt so far, in sectors of the members' data areas: the member
    /// (`None`: all that are being rebuilt; by its place, see [`engine::Effect`]), first sector,
    /// length.
    pub fn not_rebuilt(&self) -> Vec<(Option<MemberIdx>, Sector, u64)> {
        self.loop_of(BackgroundWork::Rebuild).map(BackgroundLoop::failed).unwrap_or_default()
    }

    /// The loop of a kind of work, if there is one.
    pub(super) fn loop_of(&self, work: BackgroundWork) -> Option<&BackgroundLoop> {
        let local = self.background.local[work.turn()].as_ref();
        local.or_else(|| self.metadata_writer.as_ref()?.loops.get(work.turn()))
    }

    fn loop_mut(&mut self, work: BackgroundWork) -> Option<&mut BackgroundLoop> {
        let local = self.background.local[work.turn()].as_mut();
        local.or_else(|| self.metadata_writer.as_mut()?.loops.get_mut(work.turn()))
    }

    /// Begins one run over all positions that no metadata manager orders.
    pub(super) fn begin_once(&mut self, op: HostOp, step: u64, from: u64) {
        let (geometry, unit) = (self.geometry().clone(), self.background_unit());
        tracing::info!(?op, from, "background work begins");
        let turn = BackgroundWork::of(op).turn();
        self.background.lacks_buffer[turn] = false;
        self.background.local[turn] = Some(BackgroundLoop::once(op, geometry, step, unit, from));
    }

    /// No range of background work crosses a multiple of this: each belongs to one shard.
    pub(super) fn background_unit(&self) -> u64 {
        match self.sharding().shards() {
            1 => u64::MAX,
            _ => {
                let map = IntentMap::whole_array(self.geometry());
                map.unit_positions(self.sharding().unit_sectors())
            }
        }
    }

    /// Maximum of positions per range: a host buffer has room for all copies of them.
    pub(super) fn background_step(&self, copies: u64) -> u64 {
        let lease = self.leases.lease_bytes() as u64 / md::SECTOR_BYTES;
        (lease / copies).min(engine::DEFAULT_RESYNC_STEP) / 8 * 8
    }

    /// Whether a range could begin, and no other work has its turn before.
    fn may_continue(&self, work: BackgroundWork) -> bool {
        let waits_for = |other: BackgroundWork| {
            let progress = self.loop_of(other).and_then(BackgroundLoop::progress);
            progress.is_some_and(|(state, _)| work.waits_for(other, state))
        };
        let writer = self.metadata_writer.as_ref();
        let waits = || match work {
            BackgroundWork::Resync => false,
            BackgroundWork::Rebuild | BackgroundWork::Replace => {
                writer.is_some_and(MetadataWriter::is_before_rebuild)
            }
            BackgroundWork::Check | BackgroundWork::Repair => KINDS.into_iter().any(waits_for),
        };
        self.loop_of(work).is_some_and(BackgroundLoop::has_room) && !waits()
    }

    /// Whether `poll` would submit a range although nothing has completed.
    fn is_due(&self, work: BackgroundWork) -> bool {
        self.loop_of(work).is_some_and(BackgroundLoop::has_next)
            && !self.background.lacks_buffer[work.turn()]
            && self.may_continue(work)
    }

    /// Whether one more range of background work may begin.
    fn may_begin_range(&self, now: u64) -> bool {
        let has_room = self.background.ranges == 0 || self.max_requests > self.requests() + 1;
        has_room && self.background.may_begin(now)
    }

    /// When background work is to continue although nothing completes: `Some(0)` for now.
    pub(super) fn background_deadline(&self, now: u64) -> Option<u64> {
        let is_due = KINDS.iter().any(|work| self.is_due(*work));
        is_due.then(|| if self.may_begin_range(now) { 0 } else { self.background.begins_at(now) })
    }

    /// Issues the next ranges.
    pub(super) fn feed_background(&mut self) {
        for work in &KINDS {
            if self.loop_of(*work).is_some() {
                self.feed(*work);
            }
        }
    }

    fn feed(&mut self, work: BackgroundWork) {
        if let Some(local) = &mut self.background.local[work.turn()] {
            local.tick(self.io.now);
        }
        let needs_memory = !self.executor.geometry().level().has_parity();
        while self.may_continue(work) && self.may_begin_range(self.io.now) {
            let mut lease = None;
            if needs_memory {
                let kept = self.resync_lease.take_if(|_| work < BackgroundWork::Check);
                lease = kept.or_else(|| self.leases.take(self.leases.lease_bytes()));
                self.background.lacks_buffer[work.turn()] = lease.is_none();
                if lease.is_none() {
                    return;
                }
            }
            let Some(range) = self.next_range(work) else {
                return self.keep_lease(work, lease);
            };
            if let Some(lease) = &mut lease {
                let copies = match (range.op, self.executor.geometry().kind()) {
                    (HostOp::Scrub(_), Kind::Mirrored(mirrored)) => mirrored.copies() as u64,
                    _ => 1,
                };
                lease.set_len((copies * range.sectors * md::SECTOR_BYTES) as usize);
            }
            self.submit_range(range, lease);
        }
    }

    /// Keeps a buffer for the next range of a resync or a rebuild; a scrub has none of its own, and
    /// gives it back. Either may have lacked it.
    fn keep_lease(&mut self, work: BackgroundWork, lease: Option<Lease>) {
        if work < BackgroundWork::Check || lease.is_some() {
            self.background.lacks_buffer = [false; 3];
        }
        if work < BackgroundWork::Check {
            self.resync_lease = self.resync_lease.take().or(lease);
        }
    }

    fn next_range(&mut self, work: BackgroundWork) -> Option<BackgroundRange> {
        let Some(local) = &mut self.background.local[work.turn()] else {
            return self.metadata_writer.as_mut()?.next_range(work);
        };
        let failures = self.failures.as_mut();
        // Other work has one run.
        let rebuilds = || failures.map_or_else(Vec::new, FailureCoordinator::rebuilds);
        match work {
            BackgroundWork::Rebuild => local.next_range(rebuilds, &mut self.background.reports),
            _ => local.next_range(rebuilds, &mut Vec::new()),
        }
    }

    /// Submits a range.
    fn submit_range(&mut self, range: BackgroundRange, lease: Option<Lease>) {
        let BackgroundRange { op, at, sectors, .. } = range;
        self.background.began(self.io.now, sectors);
        let buf = lease.as_ref().map_or(BufSlice::default(), Lease::slice);
        let own = Some(Box::new(range));
        let held = super::late::Held::default();
        let request = PendingRequest { tag: 0, lease, own, open: 1, error: None, read: None, held };
        let host = self.hosts.insert(request);
        self.route(Request { tag: u64::from(host), op, at, sectors, buf });
    }

    /// A range has ended.
    pub(super) fn range_done(
        &mut self,
        range: BackgroundRange,
        result: Result<(), RequestError>,
        lease: Option<Lease>,
    ) {
        let work = BackgroundWork::of(range.op);
        self.keep_lease(work, lease);
        let (now, Background { local, reports, .. }) = (self.io.now, &mut self.background);
        let Some(local) = &mut local[work.turn()] else {
            let writer = self.metadata_writer.as_mut().expect("its range has ended");
            return writer.range_done(now, range, result);
        };
        if work == BackgroundWork::Rebuild {
            return local.done(now, range, result, reports);
        }
        let before = local.walk().map(Walk::position);
        local.done(now, range, result, &mut Vec::new());
        let walk = local.walk().expect("its range has ended");
        let (position, is_done) = (walk.position(), walk.is_done());
        if is_done {
            let (done, (skipped, _)) = (walk.succeeded(), walk.skipped());
            tracing::info!(op = ?range.op, done, skipped, "background work ended");
        }
        if work == BackgroundWork::Resync && Some(position) > before {
            self.in_sync_below(if is_done { u64::MAX } else { position });
        }
        if work == BackgroundWork::Resync && is_done {
            // Hosts get the buffer back.
            self.resync_lease = None;
        }
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
        background.ended(100_000_000, BackgroundWork::Check, 1024, true);
        assert!(!background.may_begin(100_000_000));
        let rest = background.begins_at(100_000_000);
        assert!(background.may_begin(rest) && !background.may_begin(rest - 1));
        load.all_ended(100_000_000);
        assert_eq!(background.begins_at(100_000_000), 100_000_000 + RECENT_NANOS);
    }
}
