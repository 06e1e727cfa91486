//! Resyncs of arrays without metadata, when a caller says that one was not stopped clean. One with
//! metadata resyncs what its metadata manager says.
//!
//! Invariant: redundancy is out of sync in every shard before the first range of such a resync is
//! submitted, and in sync again below its position only. Part of `driver`.

use engine::{Control, HostOp};
use md::Kind;

use super::Driver;

impl Driver {
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
        self.begin_once(HostOp::Resync, self.background_step(1), 0);
        self.command_all(Control::NotDurable);
        self.in_sync_below(0);
        true
    }

    /// A shard in which a write has failed half-way lowers its position, and never raises it again:
    /// nothing but its own count of such reports would prove that this one accounts for it.
    pub(super) fn in_sync_below(&mut self, position: u64) {
        self.command_all(Control::InSyncBelow { position, reports: 0 });
    }

    fn command_all(&mut self, control: Control) {
        let others: Vec<u16> = self.channels.iter().flat_map(|all| all.others()).collect();
        std::iter::once(0).chain(others).for_each(|shard| self.command(shard, control.clone()));
    }
}
