//! Operations on a row of which a member is late.
//!
//! Invariant: stripe memory that a late operation of a member uses is not used again before that
//! has completed: not by the operation on the row, which is begun anew with other memory or ends,
//! and not by others ([`Scratch`](super::scratch::Scratch)). Called from `quarantine` and `ops`.

use md::{Geometry, Kind as GeometryKind};

use super::super::quarantine::Uses;
use super::failed_ops::clip;
use super::op::{Grain, Phase, member_at};
use super::scratch::Block;
use super::{Context, Stripes};
use crate::token::Kind;
use crate::{RequestError, Token};

impl Stripes {
    /// The member that an operation went to.
    pub(crate) fn member_of(&self, geometry: &Geometry, token: Token) -> u16 {
        let GeometryKind::Parity(parity) = geometry.kind() else { unreachable!("it has parity") };
        member_at(parity.row(self.ops[token.key().index].stripe), token.slot()).0
    }

    /// An operation of a member is late: what it uses is kept. Runs of rows that are zeroed have no
    /// memory.
    pub(crate) fn hold(&mut self, cx: &mut Context<'_>, token: Token) -> Uses {
        let at = token.key().index;
        match token.kind() {
            Kind::StripeIo => self.hold_part(cx, token),
            Kind::Log => Uses { blocks: self.leave_log(token.slot()), ..Uses::default() },
            Kind::RowsZero => {
                self.rows_zero.runs.hold(at);
                Uses::default()
            }
            kind => unreachable!("{kind:?} is no operation on rows"),
        }
    }

    fn hold_part(&mut self, cx: &mut Context<'_>, token: Token) -> Uses {
        let (at, members) = (token.key().index, cx.geometry.members() as u16);
        // What is copied to a replacement uses the memory of its member's position.
        let position = token.slot() % members;
        self.ops.hold(at);
        let op = &mut self.ops[at];
        op.late += 1;
        let mut uses = Uses::default();
        let uses_host = op.covered.contains(position)
            && match op.phase {
                Phase::Reading => op.is_read(),
                phase => matches!(phase, Phase::Writing | Phase::WritingBack),
            };
        for piece in op.pieces.iter().filter(|_| uses_host) {
            let piece = &self.rows.pieces[*piece];
            if piece.index == position {
                uses.requests.push(cx.requests.hold(piece.request, cx.out));
            }
        }
        let own = op.blocks.iter().filter(|(of, _)| *of == position).map(|(_, block)| *block);
        uses.blocks.extend(own);
        for (_, id) in op.borrowed.iter().filter(|(of, _)| *of == position) {
            let entry = self.rows.table[op.row].cached.iter().find(|entry| entry.id == *id);
            uses.blocks.push(entry.expect("an entry in use stays in its row").block);
        }
        uses.blocks.iter().for_each(|block| self.scratch.hold(*block));
        uses
    }

    /// A late operation of a member has completed.
    pub(crate) fn let_go(&mut self, token: Token, blocks: Vec<Block>) {
        let key = token.key();
        match token.kind() {
            Kind::StripeIo => {
                if self.ops.is_live(key) {
                    self.ops[key.index].late -= 1;
                }
                self.ops.let_go(key.index);
            }
            Kind::RowsZero => {
                self.rows_zero.runs.let_go(key.index);
            }
            _ => {}
        }
        blocks.into_iter().for_each(|block| self.scratch.let_go(block));
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
        self.scratch.keeps_any() && self.ops.live() == self.awaiting_memory.len()
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
