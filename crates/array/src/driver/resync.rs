//! Resyncs: the driver submits their ranges. An array with metadata resyncs what its metadata
//! manager says; one without when a caller says that it was not stopped clean.
//!
//! Invariant: on an array without metadata, redundancy is out of sync in every shard before the
//! first range of a resync is submitted, and in sync again below its position only. Part of
//! `driver`.

use engine::{
    BackgroundEffect, BackgroundLoop, BackgroundProgress, BackgroundRange, BackgroundState,
    BackgroundWork, Control, HostOp, IntentMap, MetadataInput, RequestError, Resync,
};
use md::Kind;

use super::{Driver, OwnRange};
use crate::buf::Lease;
use crate::metadata_writer::MetadataWriter;

/// The resync of an array without metadata.
pub(super) struct LocalResync {
    resync: BackgroundLoop,
    effects: Vec<BackgroundEffect>,
    /// Hosts have all buffers.
    lacks_buffer: bool,
    /// The shards know that everything below is in sync.
    below: u64,
}

impl LocalResync {
    /// Whether it makes progress, and how far it has come; `None`: it has ended.
    pub(super) fn progress(&self) -> Option<(BackgroundState, BackgroundProgress)> {
        self.resync.progress()
    }

    pub(super) fn deadline(&self) -> Option<u64> {
        self.resync.deadline()
    }

    fn next(&mut self) -> Option<BackgroundRange> {
        self.resync.next_range(Vec::new, &mut self.effects)
    }
}

impl Driver {
    /// Whether a resync is running or paused, and not cancelled; see
    /// [`engine::MetadataStatus::resync_offset`] for its position.
    pub fn is_resyncing(&self) -> bool {
        self.local_resync.as_ref().is_some_and(|local| local.resync.is_active())
            || self.metadata_writer.as_ref().is_some_and(MetadataWriter::resyncs)
    }

    /// Pauses or resumes the resync.
    pub fn pause_resync(&mut self, paused: bool) {
        if let Some(metadata_writer) = &mut self.metadata_writer {
            tracing::debug!(paused, "resync paused or resumed");
            metadata_writer.pause(BackgroundWork::Resync, paused);
        }
        if let Some(local) = &mut self.local_resync {
            local.resync.pause(paused);
        }
    }

    pub(super) fn cancel_resync(&mut self) {
        if let Some(metadata_writer) = &mut self.metadata_writer {
            metadata_writer.cancel(BackgroundWork::Resync);
        }
        if let Some(local) = &mut self.local_resync {
            local.resync.cancel(&mut local.effects);
        }
    }

    pub(super) fn begin_resync_again(&mut self) -> bool {
        match (&mut self.metadata_writer, &mut self.local_resync) {
            (Some(metadata_writer), _) => metadata_writer.begin_again(BackgroundWork::Resync),
            (None, Some(local)) => local.resync.begin_again(),
            (None, None) => false,
        }
    }

    /// Resyncs all of an array without metadata that was not stopped clean: from now on redundancy
    /// counts as out of sync where the resync has not passed. In shard 0. `false`: the array has
    /// metadata, which say what is to be resynced; it has no redundancy; a member is missing, so
    /// that what is lost there could not be recovered any more; or a resync is running.
    pub fn start_resync(&mut self) -> bool {
        let geometry = self.geometry();
        let has_redundancy = match geometry.kind() {
            Kind::Striped(_) => false,
            Kind::Mirrored(mirrored) => mirrored.copies() > 1,
            Kind::Parity(_) => true,
        };
        let is_complete = self.lacking().is_empty();
        if self.metadata_writer.is_some()
            || !has_redundancy
            || !is_complete
            || self.is_resyncing()
            || self.channels.as_ref().is_some_and(|channels| channels.number() > 0)
        {
            return false;
        }
        let step = self.leases.lease_bytes() as u64 / md::SECTOR_BYTES;
        let step = step.min(engine::DEFAULT_RESYNC_STEP) / 8 * 8;
        let (span, unit) = (IntentMap::whole_array(geometry).span(), self.background_unit());
        let ranges = Resync::whole(span);
        let mut effects = Vec::new();
        let resync = BackgroundLoop::of_resync(geometry.clone(), step, unit, ranges, &mut effects);
        tracing::info!(span, "resync begins");
        self.command_all(Control::NotDurable);
        self.in_sync_below(0);
        let local = LocalResync { resync, effects, lacks_buffer: false, below: 0 };
        self.local_resync = Some(local);
        true
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

    /// A shard in which a write has failed half-way lowers its position, and never raises it again:
    /// nothing but its own count of such reports would prove that this one accounts for it.
    fn in_sync_below(&mut self, position: u64) {
        self.command_all(Control::InSyncBelow { position, reports: 0 });
    }

    fn command_all(&mut self, control: Control) {
        let others: Vec<u16> = self.channels.iter().flat_map(|all| all.others()).collect();
        std::iter::once(0).chain(others).for_each(|shard| self.command(shard, control.clone()));
    }

    /// Whether a range could begin although nothing has completed.
    pub(super) fn is_resync_due(&self) -> bool {
        let local = self.local_resync.as_ref();
        local.is_some_and(|local| local.resync.has_next() && !local.lacks_buffer)
            || self.metadata_writer.as_ref().is_some_and(MetadataWriter::may_resync)
    }

    fn may_resync(&self) -> bool {
        self.metadata_writer.as_ref().is_some_and(MetadataWriter::resyncs)
            || self.local_resync.as_ref().is_some_and(|local| local.resync.has_room())
    }

    /// Issues the next ranges of the resync.
    pub(super) fn feed_resync(&mut self) {
        if let Some(local) = &mut self.local_resync {
            local.resync.tick(self.io.now);
        }
        let needs_memory = !self.executor.geometry().level().has_parity();
        while self.may_resync() && self.may_begin_range(self.io.now) {
            let mut lease = None;
            if needs_memory {
                let other = || self.leases.take(self.leases.lease_bytes());
                lease = self.resync_lease.take().or_else(other);
                if let Some(local) = &mut self.local_resync {
                    local.lacks_buffer = lease.is_none();
                }
                if lease.is_none() {
                    return;
                }
            }
            let next = match (&mut self.metadata_writer, &mut self.local_resync) {
                (Some(metadata_writer), _) => metadata_writer.next_resync(),
                (None, Some(local)) => local.next(),
                (None, None) => None,
            };
            let Some(range) = next else {
                self.resync_lease = self.resync_lease.take().or(lease);
                return;
            };
            let BackgroundRange { at, sectors, .. } = range;
            if let Some(lease) = &mut lease {
                lease.set_len((sectors * md::SECTOR_BYTES) as usize);
            }
            self.submit_range(OwnRange::Resync(range), HostOp::Resync, (at, sectors), lease);
        }
    }

    pub(super) fn resync_done(
        &mut self,
        range: BackgroundRange,
        result: Result<(), RequestError>,
        lease: Option<Lease>,
    ) {
        self.resync_lease = self.resync_lease.take().or(lease);
        if let Some(metadata_writer) = &mut self.metadata_writer {
            return metadata_writer.range_done(BackgroundWork::Resync, self.io.now, range, result);
        }
        let local = self.local_resync.as_mut().expect("its range has ended");
        local.resync.done(self.io.now, range, result, &mut local.effects);
        let (mut position, mut is_done) = (local.below, false);
        for effect in local.effects.drain(..) {
            match effect {
                BackgroundEffect::Report(MetadataInput::ResyncAt { position: at, .. }) => {
                    position = at;
                }
                BackgroundEffect::Completed { .. } => is_done = true,
                _ => {}
            }
        }
        let has_risen = position > std::mem::replace(&mut local.below, position);
        if is_done {
            tracing::info!("resync completed");
            // Hosts get the buffer back.
            self.resync_lease = None;
        }
        if has_risen {
            self.in_sync_below(if is_done { u64::MAX } else { position });
        }
    }
}
