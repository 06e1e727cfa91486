//! Members and replacements that are being filled: what of a row is copied, and what nothing is
//! left to compute from. That is added to their bad-block logs, and counts as in sync.
//!
//! Invariant: an entry covers a granule, or what is in sync of one, where medium errors of members
//! leave too few blocks, parity matches the data, and nothing has changed since the first read
//! about which devices serve. Anything else leaves the range out of sync, and it is tried again.
//! Called only from `ops`.

use md::MemberIdx;

use super::super::in_sync::InSync;
use super::op::{Phase, member_at};
use super::ops::positions;
use super::plan::{ExecPlan, ParityWork, StripeState};
use super::{Context, Stripes};
use crate::token::Kind;
use crate::{ControlEvent, Effect, MemberSet, RequestError, Token};

impl Stripes {
    /// Sends what replacements of members lack. A member that is written at the same time passes it
    /// on to its replacement.
    pub(super) fn send_copies(&mut self, cx: &mut Context<'_>, at: u32) {
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        let Some(rebuild) = op.rebuild() else { return };
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        let slots = cx.geometry.members() as u16;
        // One may have taken the slot by now.
        let may = |position: &u16| cx.health.has_second(member_at(row, *position).0);
        let here: MemberSet = rebuild.copies.iter().filter(may).collect();
        let unreadable = rebuild.unreadable;
        let written = rebuild.targets.minus(unreadable);
        let copies = rebuild.copies.intersection(here.union(written));
        for position in copies.minus(written).iter() {
            let member = MemberIdx(slots + member_at(row, position).0);
            let token = Token::new(Kind::StripeIo, slots + position, key);
            op.open += 1;
            if unreadable.contains(position) {
                let sectors = op.sectors();
                cx.out.list.push(Effect::AddBadBlocks { token, member, sector, sectors });
                continue;
            }
            let copy = op.scratch_slice(self.region, position, op.start, op.sectors());
            let slices = cx.out.push_slices([copy]);
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
        }
        if let Some(rebuild) = op.rebuild_mut() {
            rebuild.copies = copies;
        }
    }

    /// A plan for a rebuild that has none because members could not be read: what can be read of
    /// members that are being replaced is copied, and the rest is unreadable.
    pub(super) fn unreadable(
        &self,
        cx: &Context<'_>,
        at: u32,
        situation: &StripeState,
    ) -> Option<ExecPlan> {
        let op = &self.ops[at];
        let rebuild = op.rebuild()?;
        let is_sure = op.finer().is_none()
            && op.basis.in_sync == InSync::All
            && !op.read_failed.is_empty()
            && !rebuild.unsure
            && rebuild.since == cx.health.changes();
        if !is_sure || cx.health.is_read_only() {
            return None;
        }
        let lost = situation.failed.union(situation.read_failed);
        let unreadable = rebuild.targets.union(rebuild.copies.intersection(lost));
        let reads = rebuild.copies.minus(unreadable);
        let parity = Some(ParityWork::None);
        let mut plan = ExecPlan::default();
        (plan.parity, plan.reads, plan.unreadable) = (parity, reads, unreadable);
        Some(self.with_memory(at, situation, plan))
    }

    /// Before the first write: a slot may have another device since the reads, which can be read.
    /// There are no entries then; the range stays out of sync, and is tried again.
    pub(super) fn drop_entries_in_doubt(&mut self, cx: &Context<'_>, at: u32) {
        self.check_listed(cx, at);
        let op = &mut self.ops[at];
        if op.error.is_none() {
            return;
        }
        if let Some(rebuild) = op.rebuild_mut() {
            let unreadable = std::mem::take(&mut rebuild.unreadable);
            rebuild.targets = rebuild.targets.minus(unreadable);
            rebuild.copies = rebuild.copies.minus(unreadable);
        }
    }

    /// Entries of bad-block logs mean nothing if the devices have changed since the reads.
    pub(super) fn check_listed(&mut self, cx: &Context<'_>, at: u32) {
        let op = &mut self.ops[at];
        let Some(rebuild) = op.rebuild() else { return };
        if !rebuild.unreadable.is_empty() && rebuild.since != cx.health.changes() {
            op.error.get_or_insert(RequestError::Io);
        }
    }

    /// All of an operation has been written, or added to bad-block logs.
    pub(super) fn report_listed(&self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let Some(rebuild) = op.rebuild().filter(|_| op.phase == Phase::Writing) else { return };
        let row = cx.parity().row(op.stripe);
        let sector = md::Sector(positions(cx, op).start);
        let mut added = MemberSet::EMPTY;
        for position in rebuild.unreadable.iter() {
            let slot = member_at(row, position).0;
            if rebuild.targets.contains(position) {
                added.insert(cx.health.place(slot));
            }
            if rebuild.copies.contains(position) {
                added.insert(cx.health.second_place(slot));
            }
        }
        for place in added.iter() {
            let (member, sectors) = (MemberIdx(place), op.sectors());
            let event = ControlEvent::BadBlocksAdded { member, sector, sectors };
            cx.out.list.push(Effect::Control(event));
        }
    }
}
