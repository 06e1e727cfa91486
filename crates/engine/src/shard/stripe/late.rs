//! Operations on a row of which a member is late.
//!
//! Invariant: stripe memory that a late operation of a member uses is neither used again by the
//! operation on the row nor returned before that has completed. An operation that has ended keeps
//! its place in the table as long as it has such memory. Called from `quarantine` and `ops`.

use md::{Geometry, Kind as GeometryKind};

use super::failed_ops::clip;
use super::op::{Grain, Phase, member_at};
use super::partial_parity::PartialParityLog;
use super::{Context, Stripes};
use crate::{RequestError, Token};

impl Stripes {
    /// The member that an operation went to.
    pub(crate) fn member_of(&self, geometry: &Geometry, token: Token) -> u16 {
        let GeometryKind::Parity(parity) = geometry.kind() else { unreachable!("it has parity") };
        member_at(parity.row(self.ops[token.key().index].stripe), token.slot()).0
    }

    /// A member's part of an operation is late.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>, token: Token) {
        let position = position_of(cx, token);
        let op = &mut self.ops[token.key().index];
        op.late.positions.insert(position);
        let uses_host = op.covered.contains(position)
            && match op.phase {
                Phase::Reading => op.is_read(),
                phase => matches!(phase, Phase::Writing | Phase::WritingBack),
            };
        for piece in op.pieces.iter().filter(|_| uses_host) {
            let piece = &self.rows.pieces[*piece];
            if piece.index == position {
                op.late.hosts.push((position, piece.request));
                cx.requests.hold(piece.request, cx.out);
            }
        }
    }

    /// A late part has completed.
    pub(crate) fn release(&mut self, cx: &mut Context<'_>, token: Token) {
        let (at, position) = (token.key().index, position_of(cx, token));
        let late = &mut self.ops[at].late;
        late.positions.remove(position);
        for (_, request) in late.hosts.extract_if(.., |(of, _)| *of == position) {
            cx.requests.release(request, cx.out);
        }
        if !late.has_ended {
            return;
        }
        self.return_late_memory(at, position);
        if self.ops[at].late.positions.is_empty() {
            self.held -= 1;
            self.ops.release(at);
        }
    }

    /// Releases the memory that an operation that has ended has at a position.
    fn return_late_memory(&mut self, at: u32, position: u16) {
        let Stripes { ops, rows, scratch, .. } = self;
        let op = &mut ops[at];
        for (_, block) in op.blocks.extract_if(.., |(of, _)| *of == position) {
            scratch.give_back(block);
        }
        for (_, id) in op.borrowed.extract_if(.., |(of, _)| *of == position) {
            let entries = &mut rows.table[op.row].cached;
            let entry = entries.iter().position(|entry| entry.id == id);
            let entry = entry.expect("an entry in use stays in its row");
            entries[entry].users -= 1;
            if entries[entry].users == 0 {
                scratch.give_back(entries.remove(entry).block);
            }
            rows.retire(op.row);
        }
    }

    /// A member has not read in time: its memory, which may still be filled, is left behind. Queues
    /// the work again, except that of reads whose own buffers may still be filled: these are begun
    /// anew by the executor. (Rare, so it may allocate.)
    pub(super) fn begin_anew(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &mut self.ops[at];
        // What reads have returned so far decides nothing.
        op.error = None;
        let (start, end, grain, is_read) = (op.start, op.end, op.class.grain, op.is_read());
        let mut again = Vec::new();
        for piece in &op.pieces {
            let piece = &self.rows.pieces[*piece];
            if is_read && cx.requests.is_held(piece.request) {
                cx.requests.fail(piece.request, RequestError::Io);
            } else {
                cx.requests[piece.request].open += 1;
                again.push(clip(piece, start, end, grain));
            }
        }
        self.rows.requeue_front(op.row, &again);
        self.end(cx, at);
    }

    /// Whether late operations have all memory that is in use: no other operation will return any.
    pub(super) fn is_all_memory_late(&self) -> bool {
        // Runs of rows that are zeroed have no memory, and may wait for rows of those that wait
        // here.
        let is_late = self.held > 0 || self.log.as_ref().is_some_and(PartialParityLog::is_late);
        is_late && self.ops.live() - self.held == self.awaiting_memory.len()
    }

    /// There is not enough memory for an operation as long as others are late.
    pub(super) fn do_with_less_memory(&mut self, cx: &mut Context<'_>, at: u32) {
        if self.ops[at].can_be_cut() {
            return self.split_into(cx, at, Grain::Granule);
        }
        self.ops[at].error = Some(RequestError::NoMemory);
        self.end(cx, at);
    }
}

/// The position whose memory an operation uses: what is copied to a replacement, that of its
/// member.
fn position_of(cx: &Context<'_>, token: Token) -> u16 {
    token.slot() % cx.geometry.members() as u16
}
