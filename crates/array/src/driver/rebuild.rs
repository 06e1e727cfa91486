//! Rebuilds: the driver submits their ranges, as it does those of a resync.
//!
//! Invariant: a rebuild begins when no resync is at work, and leaves room for hosts: more than one
//! range is in flight only while there is room for requests, and none where hosts have all buffers.
//! Part of `driver`.

use engine::{BackgroundRange, BackgroundWork, HostOp, MemberSet, RequestError};

use super::membership::LocalRebuilds;
use super::{Driver, OwnRange};
use crate::buf::Lease;
use crate::metadata_writer::MetadataWriter;

impl Driver {
    /// Whether members are being rebuilt or replaced, or are to be; see
    /// [`engine::MetadataStatus::rebuild_sectors`] for the progress.
    pub fn is_rebuilding(&self) -> bool {
        self.has_rebuilds_to_do() || !self.executor.rebuilding().is_empty()
    }

    /// Whether rebuilds can continue: ranges are in flight, or to come.
    pub fn has_rebuilds_to_do(&self) -> bool {
        self.metadata_writer.as_ref().is_some_and(MetadataWriter::rebuilds)
            || self.local.as_ref().is_some_and(LocalRebuilds::is_active)
    }

    /// Pauses or resumes rebuilds.
    pub fn pause_rebuild(&mut self, paused: bool) {
        if let Some(metadata_writer) = &mut self.metadata_writer {
            tracing::debug!(paused, "rebuild paused or resumed");
            metadata_writer.pause(BackgroundWork::Rebuild, paused);
        }
        if let Some(local) = &mut self.local {
            local.pause(paused);
        }
    }

    pub(super) fn cancel_rebuild(&mut self) {
        if let Some(metadata_writer) = &mut self.metadata_writer {
            metadata_writer.cancel(BackgroundWork::Rebuild);
        }
        if let Some(local) = &mut self.local {
            local.cancel();
        }
    }

    pub(super) fn begin_rebuild_again(&mut self) -> bool {
        match (&mut self.metadata_writer, &mut self.local) {
            (Some(metadata_writer), _) => metadata_writer.begin_again(BackgroundWork::Rebuild),
            (None, Some(local)) => local.begin_again(),
            (None, None) => false,
        }
    }

    /// Ranges that could not be rebuilt so far, in sectors of the members' data areas: the member
    /// (`None`: all that are being rebuilt; by its place, see [`engine::Effect`]), first sector,
    /// length.
    pub fn not_rebuilt(&self) -> Vec<(Option<md::MemberIdx>, md::Sector, u64)> {
        let local = || self.local.as_ref().map(LocalRebuilds::failed);
        let writer = self.metadata_writer.as_ref().map(MetadataWriter::not_rebuilt);
        writer.or_else(local).unwrap_or_default()
    }

    /// Members that are not in sync everywhere: those out of service, and those being rebuilt.
    pub fn lacking(&self) -> MemberSet {
        self.executor.lacking()
    }

    /// Whether a range could begin although nothing has completed.
    pub(super) fn is_rebuild_due(&self) -> bool {
        !self.lacks_rebuild_buffer
            && self.may_rebuild()
            && match (&self.metadata_writer, &self.local) {
                (Some(writer), _) => writer.is_rebuild_idle(),
                (None, Some(local)) => local.is_idle(),
                (None, None) => false,
            }
    }

    fn may_rebuild(&self) -> bool {
        self.metadata_writer.as_ref().is_some_and(MetadataWriter::may_rebuild)
            || self.local.as_ref().is_some_and(LocalRebuilds::has_room)
    }

    /// Issues the next ranges.
    pub(super) fn feed_rebuild(&mut self) {
        let needs_memory = !self.executor.geometry().level().has_parity();
        if let Some(local) = &mut self.local {
            local.tick(self.io.now);
        }
        while self.may_rebuild() && self.may_begin_range(self.io.now) {
            let mut lease = None;
            if needs_memory {
                // The buffer that is kept for a resync: none is at work.
                let other = || self.leases.take(self.leases.lease_bytes());
                lease = self.resync_lease.take().or_else(other);
                self.lacks_rebuild_buffer = lease.is_none();
                if lease.is_none() {
                    return;
                }
            }
            let next = match (&mut self.metadata_writer, &mut self.local, &mut self.failures) {
                (Some(writer), ..) => writer.next_rebuild(),
                (None, Some(local), Some(failures)) => local.next(failures),
                _ => None,
            };
            let Some(range) = next else {
                self.resync_lease = self.resync_lease.take().or(lease);
                return;
            };
            let BackgroundRange { at, sectors, .. } = range;
            if let Some(lease) = &mut lease {
                lease.set_len((sectors * md::SECTOR_BYTES) as usize);
            }
            self.submit_range(OwnRange::Rebuild(range), HostOp::Rebuild, (at, sectors), lease);
        }
    }

    pub(super) fn rebuild_done(
        &mut self,
        range: BackgroundRange,
        result: Result<(), RequestError>,
        lease: Option<Lease>,
    ) {
        self.resync_lease = self.resync_lease.take().or(lease);
        if let Some(metadata_writer) = &mut self.metadata_writer {
            let work = BackgroundWork::Rebuild;
            metadata_writer.range_done(work, self.io.now, range, result);
        } else if let Some(local) = &mut self.local {
            local.done(self.io.now, range, result);
        }
    }
}
