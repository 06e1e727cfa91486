//! Operations on a row whose reads or writes fail: repair, another plan, smaller ranges, rolling
//! back.
//!
//! Invariant: a write that failed half-way leaves a range that is rolled back or marked out of
//! sync. A read returns only blocks that were read, or recovered from a range that is in sync.
//! Called only from `ops`.

use md::MemberIdx;

use super::op::{Grain, Phase, Work, member_at, positions_of};
use super::plan::ParityWork;
use super::rows::{CacheAfter, ChunkIo};
use super::{Context, Stripes};
use crate::token::Kind;
use crate::{ControlEvent, Effect, IoError, MemberError, RequestError, Token};

impl Stripes {
    /// A failed write takes the member out of service, unless the array cannot run without it: then
    /// the request fails. A lack of space or memory fails only the request.
    pub(super) fn write_failed(
        &mut self,
        cx: &mut Context<'_>,
        at: u32,
        position: u16,
        error: IoError,
    ) {
        let lacks = error.kind.lacks();
        let member = member_at(cx.parity().row(self.ops[at].stripe), position).0;
        if lacks.is_none() && cx.health.drop_member(cx.geometry, member, Some(error), cx.out) {
            return;
        }
        let op = &mut self.ops[at];
        match op.phase {
            Phase::WritingBack => {}
            Phase::RollingBack => op.half_way = true,
            Phase::WritingRepair => op.error = lacks.or(op.error).or(Some(RequestError::Io)),
            _ => {
                if error.kind != MemberError::NoSpace {
                    op.changed.insert(position);
                }
                op.error = lacks.or(op.error).or(Some(RequestError::Io));
            }
        }
    }

    /// Some writes have failed and others have not: the old contents are restored if they are still
    /// in memory and lost blocks depend on them.
    pub(super) fn half_written(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &mut self.ops[at];
        if op.is_rebuild() {
            // What it writes was not in sync before.
            return self.end(cx, at);
        }
        if matches!(op.work, Work::Resync(_)) && !op.recover.is_empty() {
            // The parity that lost blocks were recovered from has been written unchanged.
            return self.end(cx, at);
        }
        // What a late operation uses must not change.
        if !op.basis.keeps_old || op.late > 0 {
            // Without parity nothing can be out of sync.
            op.half_way = op.parity != Some(ParityWork::None);
            return self.end(cx, at);
        }
        op.phase = Phase::Reverting;
        let op = &self.ops[at];
        let work = op.parity.expect("a write has a plan for its parity");
        let row = cx.parity().row(op.stripe);
        self.ops[at].open = self.jobs(row, at).revert(work, cx.out);
    }

    /// Writes old data and old parity to the members that may have other contents.
    pub(super) fn roll_back(&mut self, cx: &mut Context<'_>, at: u32) {
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        op.phase = Phase::RollingBack;
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        for position in op.changed.iter() {
            let member = member_at(row, position);
            if cx.health.is_failed(member.0) {
                continue;
            }
            op.open += 1;
            let old = op.scratch_slice(self.region, position, op.start, op.sectors());
            let slices = cx.out.push_slices([old]);
            let token = Token::new(Kind::StripeIo, position, key);
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
        }
        if self.ops[at].open == 0 {
            self.end(cx, at);
        }
    }

    pub(super) fn corrected(&self, cx: &mut Context<'_>, at: u32, member: u16) {
        let op = &self.ops[at];
        let sector = cx.parity().member_sector(op.stripe, op.start);
        let (member, sectors) = (MemberIdx(member), op.sectors());
        cx.out.list.push(Effect::Control(ControlEvent::Corrected { member, sector, sectors }));
    }

    /// Members could not read blocks that the plan needs.
    pub(super) fn reads_failed(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let row = cx.parity().row(op.stripe);
        let new = op.read_failed.minus(op.basis.read_failed);
        let bad_block = new.minus(positions_of(row, cx.health.failed()));
        let mends = op.is_read() || op.is_rebuild();
        if mends && op.can_be_cut() && !bad_block.is_empty() {
            // So that only granules that are really bad are reconstructed and written back.
            return self.split_into(cx, at, Grain::Granule);
        }
        // Another plan may be possible without these members.
        self.replan(cx, at);
    }

    pub(super) fn replan(&mut self, cx: &mut Context<'_>, at: u32) {
        debug_assert!(self.ops[at].late == 0, "its memory is in use");
        self.return_memory(at, CacheAfter::AsBefore);
        self.ops[at].phase = Phase::Starting;
        self.start_or_queue(cx, at);
    }

    /// Writes reconstructed data back to the members that could not read them.
    pub(super) fn write_back(&mut self, cx: &mut Context<'_>, at: u32) {
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        op.phase = Phase::WritingBack;
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        let recovered = op.recover.intersection(op.read_failed);
        for position in recovered.intersection(op.covered).iter() {
            let member = member_at(row, position);
            if cx.health.is_failed(member.0) || cx.health.is_read_only() {
                continue;
            }
            op.open += 1;
            let slices = cx.out.push_slices(op.host_slices(position).iter().copied());
            let token = Token::new(Kind::StripeIo, position, key);
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
        }
        if self.ops[at].open == 0 {
            self.end(cx, at);
        }
    }

    /// No plan is possible: splits a longer range into granules, where bad blocks of different
    /// members may not coincide, or into blocks, where some are in sync, and fails blocks that
    /// cannot be split.
    pub(super) fn give_up(&mut self, cx: &mut Context<'_>, at: u32) {
        if let Some(grain) = self.ops[at].finer() {
            return self.split_into(cx, at, grain);
        }
        let op = &mut self.ops[at];
        op.error.get_or_insert(RequestError::Io);
        self.end(cx, at);
    }

    /// Ends an operation and queues its work again with a smaller grain. (Rare, so it may
    /// allocate.)
    pub(super) fn split_into(&mut self, cx: &mut Context<'_>, at: u32, grain: Grain) {
        let op = &self.ops[at];
        let (start, end, row) = (op.start, op.end, op.row);
        let clip = |piece: &u32| clip(&self.rows.pieces[*piece], start, end, grain);
        let clipped: Vec<ChunkIo> = op.pieces.iter().map(clip).collect();
        for piece in &clipped {
            cx.requests[piece.request].open += 1;
        }
        self.rows.requeue_front(row, &clipped);
        self.end(cx, at);
    }
}

/// The part of a piece that an operation worked on, for work with a smaller grain.
pub(super) fn clip(piece: &ChunkIo, start: u64, end: u64, grain: Grain) -> ChunkIo {
    let (from, to) = (piece.start.max(start), piece.end.min(end));
    let mut clipped = *piece;
    clipped.slice = piece.slice.part(from - piece.start, to - from);
    clipped.start = from;
    clipped.end = to;
    clipped.class.grain = grain;
    clipped.open = 0;
    clipped
}
