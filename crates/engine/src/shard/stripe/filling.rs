//! Members and replacements that are being filled: what of a row is copied, and what nothing is
//! left to compute from. That is added to their bad-block logs, and counts as in sync.
//!
//! Invariant: an entry covers a granule, or what is in sync of one, where medium errors of members
//! leave too few blocks, parity matches the data, and nothing has changed since the first read
//! about which devices serve. Anything else leaves the range out of sync, and it is tried again.
//! Called only from `ops`.

use md::MemberIdx;

use super::super::in_sync::InSync;
use super::op::{OpKind, Phase, member_at};
use super::ops::{ExecPlan, positions};
use super::plan::{ParityWork, StripeState};
use super::{Context, Stripes};
use crate::token::Kind;
use crate::{ControlEvent, Effect, MemberSet, RequestError, Token};

impl Stripes {
    /// Sends what replacements of members lack. A member that is written at the same time passes it
    /// on to its replacement.
    pub(super) fn send_copies(&mut self, cx: &mut Context<'_>, at: u32) {
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        let slots = cx.geometry.members() as u16;
        for position in op.copies.minus(op.targets.minus(op.unreadable)).iter() {
            let member = member_at(row, position).0;
            // It may have taken the slot by now.
            if !cx.health.has_second(member) {
                op.copies.remove(position);
                continue;
            }
            let token = Token::new(Kind::StripeIo, slots + position, key);
            if op.unreadable.contains(position) {
                op.open += 1;
                let (member, sectors) = (MemberIdx(slots + member), op.sectors());
                cx.out.list.push(Effect::AddBadBlocks { token, member, sector, sectors });
                continue;
            }
            let copy = op.scratch_slice(self.region, position, op.start, op.sectors());
            let slices = cx.out.push_slices([copy]);
            let member = MemberIdx(slots + member);
            op.open += 1;
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
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
        let is_sure = op.class.kind == OpKind::Rebuild
            && op.finer().is_none()
            && op.in_sync == InSync::All
            && !op.read_failed.is_empty()
            && !op.unsure
            && op.since == cx.health.changes();
        if !is_sure || cx.health.is_read_only() {
            return None;
        }
        let lost = situation.failed.union(situation.read_failed);
        let unreadable = op.targets.union(op.copies.intersection(lost));
        let reads = op.copies.minus(unreadable);
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
        if op.error.is_some() {
            op.targets = op.targets.minus(op.unreadable);
            op.copies = op.copies.minus(op.unreadable);
            op.unreadable = MemberSet::EMPTY;
        }
    }

    /// Entries of bad-block logs mean nothing if the devices have changed since the reads.
    pub(super) fn check_listed(&mut self, cx: &Context<'_>, at: u32) {
        let op = &mut self.ops[at];
        if !op.unreadable.is_empty() && op.since != cx.health.changes() {
            op.error.get_or_insert(RequestError::Io);
        }
    }

    /// All of an operation has been written, or added to bad-block logs.
    pub(super) fn report_listed(&self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        if op.phase != Phase::Writing {
            return;
        }
        let row = cx.parity().row(op.stripe);
        let sector = md::Sector(positions(cx, op).start);
        let mut added = MemberSet::EMPTY;
        for position in op.unreadable.iter() {
            let slot = member_at(row, position).0;
            if op.targets.contains(position) {
                added.insert(cx.health.place(slot));
            }
            if op.copies.contains(position) {
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
