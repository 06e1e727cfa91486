//! Bad-block logs of members: entries that the engine orders, and what is left to read where it
//! does.
//!
//! Invariant: an entry comes only where the devices in service that have not ended a read as
//! unreadable do not give the data; anything else is a finding.

use std::ops::Range;

use engine::MemberError;
use md::geometry::Copy;
use md::{Kind, MemberIdx, Sector, StripeNo};

use super::World;
use crate::operation::{Operation, Work};

impl World {
    /// Adds a range to a member's bad-block log.
    pub(super) fn add_bad_blocks(
        &mut self,
        member: usize,
        sectors: &Range<u64>,
    ) -> Result<(), MemberError> {
        let number = self.writes_done + 1;
        let target = &mut self.members[member];
        if target.metadata_full {
            return Err(MemberError::NoSpace);
        }
        if let Some(error) = target.write_fault(self.now, &(0..0)) {
            return Err(error);
        }
        target.list(number, sectors)?;
        self.writes_done = number;
        Ok(())
    }

    /// The range of the array that a write must cover so that this sector of a member is written,
    /// whatever else of its row cannot be read: first sector, length.
    pub(crate) fn extent_of(&self, slot: MemberIdx, sector: u64) -> Option<(u64, u64)> {
        match self.geometry().kind() {
            Kind::Mirrored(mirrored) => {
                let at = mirrored.array_sector_of(slot, Sector(sector))?;
                Some((at.0 / 8 * 8, 8))
            }
            Kind::Parity(parity) => {
                let row = sector / parity.chunk_sectors();
                let length = parity.row(StripeNo(row)).data.len() as u64 * parity.chunk_sectors();
                Some((row * length, length))
            }
            Kind::Striped(_) => None,
        }
    }

    /// An operation of a member has been performed: what that changes in its bad-block log.
    pub(super) fn log_step(&mut self, member: usize, operation: &Operation) {
        let Some(change) = operation.change.clone() else { return };
        let target = &mut self.members[member];
        let Some(log) = &mut target.log else { return };
        let step = log.done(change, Ok(()));
        self.writes_done += u64::from(target.log_step(self.writes_done + 1, step));
    }

    /// Before a shard processes a batch, which may give a slot to another device after the shard
    /// has decided about an entry. What is being rebuilt is left out of account.
    pub(super) fn note_places(&mut self, shard: u16) {
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        let shard = self.shard_of(shard);
        let lacking = shard.status().lacking;
        let slots = (0..self.geometry().members() as u16).map(MemberIdx);
        places.extend(slots.map(|slot| {
            let is_in_sync = !lacking.contains(slot.0);
            is_in_sync.then(|| shard.place_of(slot).0)
        }));
        self.places = places;
    }

    /// Whether a slot's member may have a range that a read has not found to be unreadable.
    fn is_readable(&self, slot: MemberIdx, sectors: &Range<u64>) -> bool {
        let place = self.places[slot.index()];
        place.is_some_and(|place| {
            let found = &self.members[usize::from(place)].found_bad;
            found.range(sectors.clone()).next().is_none()
        })
    }

    /// # Panics
    /// If an operation adds bad blocks, and enough can be read of what they are computed from.
    pub(super) fn assert_unreadable(&self, operation: &Operation) {
        let (Work::AddBadBlocks, Some((device, sectors))) = (&operation.work, &operation.place)
        else {
            return;
        };
        let device = usize::from(*device);
        let geometry = self.geometry();
        let slot = MemberIdx((device % geometry.members()) as u16);
        // Of a replacement, its member is a source, too.
        let place = self.places[slot.index()];
        let replaces = place.is_some_and(|place| usize::from(place) != device);
        let is_own = replaces && self.is_readable(slot, sectors);
        let is_lost = match geometry.kind() {
            Kind::Mirrored(mirrored) => sectors.clone().all(|sector| {
                let at = mirrored.array_sector_of(slot, Sector(sector)).expect("it is used");
                let mut copies = vec![Copy::default(); mirrored.copies()];
                let length = mirrored.locate(at, &mut copies).min(sectors.end - sector);
                // A read of a granule says that something of it is unreadable.
                let back = sector - sectors.start;
                copies.iter().filter(|copy| copy.member != slot).all(|copy| {
                    let granule = copy.sector.0.saturating_sub(back)..copy.sector.0 + length;
                    !self.is_readable(copy.member, &granule)
                })
            }),
            Kind::Parity(parity) => {
                let row = parity.row(StripeNo(sectors.start / parity.chunk_sectors()));
                let members = (0..geometry.members() as u16).map(MemberIdx);
                let others = members.filter(|member| *member != slot);
                let readable = others.filter(|member| self.is_readable(*member, sectors));
                readable.count() < row.data.len()
            }
            Kind::Striped(_) => unreachable!("nothing is rebuilt"),
        };
        assert!(
            is_lost && !is_own,
            "bad blocks of device {device} at {sectors:?}, and its sources can be read"
        );
    }
}
