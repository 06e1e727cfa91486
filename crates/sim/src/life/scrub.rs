//! Scrubs in a scenario.
//!
//! Invariant: a scrub finds what was corrupted, all of it, and nothing else; it changes nothing but
//! that, and what it reports as repaired has the old contents again.

use std::ops::Range;

use engine::{BackgroundLoop, ControlEvent, HostOp, Mismatch, MismatchKind, ScrubMode};
use md::{Kind, MemberIdx, Sector, StripeNo};

use super::Life;
use crate::scenario::Extent;

/// Positions of a request.
const STEP: u64 = 64;

impl Life {
    fn scrub_loop(&self, mode: ScrubMode) -> BackgroundLoop {
        let (geometry, unit) = (self.world.geometry().clone(), self.world.resync_unit());
        BackgroundLoop::once(HostOp::Scrub(mode), geometry, STEP, unit, 0)
    }

    /// Compares everything, beside whatever else is in flight.
    pub(super) fn check(&mut self) {
        let mut scrub = self.scrub_loop(ScrubMode::Check);
        // A request that finds no space leaves copies that differ until it has ended.
        self.world.may_mismatch |= self.troubled;
        while let Some(range) = scrub.next_range(Vec::new, &mut Vec::new()) {
            while self.is_full() {
                assert!(self.world.step(), "nothing is in flight, but the queue is full");
            }
            self.world.submit(range.op, range.at.0, range.sectors);
            scrub.done(0, range, Ok(()), &mut Vec::new());
        }
    }

    /// Runs a scrub to its end. Its findings.
    fn scrub(&mut self, mode: ScrubMode) -> Vec<Mismatch> {
        let first = self.world.events.len();
        let mut scrub = self.scrub_loop(mode);
        while let Some(range) = scrub.next_range(Vec::new, &mut Vec::new()) {
            let result = self.world.run(range.op, range.at.0, range.sectors);
            assert_eq!(result, Ok(()), "a scrub of a healthy array at {}", range.at);
            scrub.done(0, range, result, &mut Vec::new());
        }
        assert_eq!(self.world.run(HostOp::Flush, 0, 0), Ok(()));
        let events = self.world.events[first..].iter();
        let found = events.filter_map(|event| match event {
            ControlEvent::Mismatch(mismatch) => Some(*mismatch),
            _ => None,
        });
        found.collect()
    }

    /// Corrupts sectors of a member, and lets a scrub find and repair them. Whether it was
    /// possible: on a complete array in sync.
    pub(super) fn corrupt(&mut self, member: u16, Extent(at, sectors): Extent) -> bool {
        if self.troubled || self.is_destroyed || self.world.may_mismatch {
            return false;
        }
        self.drain();
        let member = usize::from(member) % self.world.geometry().members();
        let Some(range) = self.scrubbed(at, sectors) else { return false };
        let is_whole = |life: &Life| {
            let members = life.world.members.iter();
            members.clone().all(|it| it.gone_at.is_none() && it.write_error.is_none())
                && members.clone().all(|it| !it.reads_time_out && !it.flush_fails)
                && members.clone().all(|it| it.hangs_at.is_none())
                && life.missing.is_empty()
                // By hand, only the member is put right; and a scrub leaves out what begins to be
                // replaced while it runs.
                && (0..life.world.geometry().members()).all(|slot| !life.world.is_awaited(slot))
                && members.len() == life.world.geometry().members()
                && (0..life.world.geometry().members() as u16).all(|at| !life.world.is_failed(at))
                && !life.is_resyncing()
                // Their messages about it have arrived.
                && life.world.numbers().map(|shard| life.world.shard_of(shard).status()).all(
                    |status| status.lacking.is_empty() && status.in_sync_below == u64::MAX,
                )
        };
        if !is_whole(self) {
            return false;
        }
        let before = self.world.members[member].view(range.clone()).to_vec();
        // Copies are compared in logical blocks.
        let block = match self.world.geometry().kind() {
            Kind::Parity(_) => 1,
            _ => u64::from(self.offline.block) / md::SECTOR_BYTES,
        };
        let blocks = range.start / block * block..range.end.next_multiple_of(block);
        self.flip(member, range.clone(), &before, 0x55);
        self.world.may_mismatch = true;
        let named = self.expected(member, &blocks);
        let found = self.scrub(ScrubMode::Check);
        self.compare_findings(&found, &named, false);
        let found = self.scrub(ScrubMode::Repair);
        let is_provable = named.iter().all(|(member, _)| member.is_some());
        self.compare_findings(&found, &named, is_provable);
        let after = self.world.members[member].view(range.clone());
        let flipped: Vec<u8> = before.iter().map(|byte| byte ^ 0x55).collect();
        match is_provable {
            true => {
                assert!(after == before, "a scrub repairs {range:?} of member {member} wrongly")
            }
            false => {
                assert!(after == flipped, "a scrub changes what it cannot prove");
                self.flip(member, range, &flipped, 0x55);
            }
        }
        self.world.may_mismatch = false;
        assert_eq!(self.scrub(ScrubMode::Repair), [], "the scrub has repaired everything");
        let world = &self.world;
        world.model.check_members(world.geometry(), &world.members, &|_| false);
        true
    }

    /// The part of a range of any member that holds data or parity.
    fn scrubbed(&self, at: u64, sectors: u64) -> Option<Range<u64>> {
        let geometry = self.world.geometry();
        let used = match geometry.kind() {
            Kind::Parity(parity) => parity.stripes() * parity.chunk_sectors(),
            // Other levels round at the end of members: stay in front of that.
            _ => geometry.array_sectors() / geometry.members() as u64,
        };
        let range = at.min(used)..(at + sectors).min(used);
        (!range.is_empty()).then_some(range)
    }

    fn flip(&mut self, member: usize, range: Range<u64>, bytes: &[u8], with: u8) {
        let flipped: Vec<u8> = bytes.iter().map(|byte| byte ^ with).collect();
        self.world.corrupt(member, range.start, &flipped);
    }

    /// What a scrub must find: by sector of the member, the member that it names, and the kind.
    fn expected(
        &self,
        member: usize,
        range: &Range<u64>,
    ) -> Vec<(Option<MemberIdx>, MismatchKind)> {
        let geometry = self.world.geometry();
        let this = Some(MemberIdx(member as u16));
        let of = |sector: u64| match geometry.kind() {
            Kind::Parity(parity) => {
                let row = parity.row(StripeNo(sector / parity.chunk_sectors()));
                match row.q {
                    None => (None, MismatchKind::Unknown),
                    Some(q) if q.index() == member => (this, MismatchKind::Q),
                    Some(_) if row.p.index() == member => (this, MismatchKind::P),
                    Some(_) => (this, MismatchKind::Data),
                }
            }
            Kind::Mirrored(mirrored) if mirrored.copies() > 2 => (this, MismatchKind::Copy),
            _ => (None, MismatchKind::Copy),
        };
        range.clone().map(of).collect()
    }

    fn compare_findings(
        &self,
        found: &[Mismatch],
        expected: &[(Option<MemberIdx>, MismatchKind)],
        repaired: bool,
    ) {
        let sectors: u64 = found.iter().map(|found| found.sectors).sum();
        assert_eq!(sectors, expected.len() as u64, "a scrub finds {found:?} of {expected:?}");
        for mismatch in found {
            let Mismatch { member, kind, .. } = mismatch;
            let is_expected = expected.contains(&(*member, *kind));
            assert!(is_expected, "a scrub finds {mismatch:?} of {expected:?}");
            assert_eq!(mismatch.repaired, repaired, "a scrub: {mismatch:?}");
            let at = Sector(mismatch.array_sector.0 + mismatch.sectors);
            assert!(at.0 <= self.world.geometry().array_sectors(), "a scrub: {mismatch:?}");
        }
    }
}
