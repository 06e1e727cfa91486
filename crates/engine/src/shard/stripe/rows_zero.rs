//! Discards and writes of zeroes of several whole rows: one operation per member, however many rows
//! there are. The parity of zeroes is zero.
//!
//! ```text
//! row      |  0 |  1 |  2 |  3 |  4 |  5 |
//! earlier       [op]                          the run waits until no row of it is in use
//! run           |----- rows 1..5 ----|
//! later              piece  piece             held back, queued at their rows when the run ends
//! ```
//! Invariant: a run has its rows for itself. Work on a row that came before it has ended when the
//! run begins; what comes later is held back by the latest run over its row, in order of arrival.
//! Nothing waits in a circle, because everything waits only for what came before it. Called only
//! from `stripe`.

use std::collections::VecDeque;
use std::ops::Range;

use md::{MemberIdx, Sector, StripeNo};

use super::rows::{ChunkIo, Rows};
use super::scratch::Scratch;
use super::{Context, Stripes};
use crate::slab::Slab;
use crate::token::Kind;
use crate::{Effect, HostOp, IoError, MemberError, MemberSet, RequestError, Token};

#[derive(Default)]
pub(super) struct Run {
    request: u32,
    discards: bool,
    rows: Range<u64>,
    has_begun: bool,
    /// Member operations in flight.
    open: u32,
    /// Members that may have other contents than before.
    changed: MemberSet,
    error: Option<RequestError>,
    /// Pieces that came later.
    held_back: Vec<(StripeNo, ChunkIo)>,
}

pub(super) struct RowsZero {
    pub(super) runs: Slab<Run>,
    /// All runs, in order of arrival.
    order: VecDeque<u32>,
}

impl RowsZero {
    pub(super) fn new() -> RowsZero {
        RowsZero { runs: Slab::with_capacity(0), order: VecDeque::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Keeps a piece that must wait for a run; `false`: it need not.
    #[inline]
    pub(super) fn hold_back(&mut self, stripe: StripeNo, piece: &ChunkIo) -> bool {
        let runs = &self.runs;
        let covers = |at: &&u32| runs[**at].rows.contains(&stripe.0);
        let Some(at) = self.order.iter().rev().find(covers).copied() else { return false };
        self.runs[at].held_back.push((stripe, *piece));
        true
    }

    /// A run that may begin now.
    fn ready(&self, rows: &Rows) -> Option<u32> {
        let waiting = |number: &usize| !self.runs[self.order[*number]].has_begun;
        let may_begin = |number: &usize| {
            let run = &self.runs[self.order[*number]];
            let mut earlier = self.order.range(..*number).map(|at| &self.runs[*at].rows);
            !earlier.any(|rows| rows.start < run.rows.end && run.rows.start < rows.end)
                && !rows.any_in_use(&run.rows)
        };
        (0..self.order.len()).filter(waiting).find(may_begin).map(|number| self.order[number])
    }
}

impl Stripes {
    /// Queues a discard or a write of zeroes of these rows, as one part of the request.
    pub(super) fn zero_rows(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        op: HostOp,
        rows: Range<u64>,
    ) {
        cx.requests[request].open += 1;
        let at = self.rows_zero.runs.take().index;
        let run = &mut self.rows_zero.runs[at];
        debug_assert!(run.held_back.is_empty() && run.open == 0);
        let held_back = std::mem::take(&mut run.held_back);
        *run = Run { request, discards: op == HostOp::Discard, rows, held_back, ..Run::default() };
        self.rows_zero.order.push_back(at);
    }

    /// Begins the runs whose rows are free now.
    pub(super) fn begin_rows_zero(&mut self, cx: &mut Context<'_>) {
        while let Some(at) = self.rows_zero.ready(&self.rows) {
            let chunk = cx.parity().chunk_sectors();
            let key = self.rows_zero.runs.key(at);
            let run = &mut self.rows_zero.runs[at];
            run.has_begun = true;
            self.rows.drop_caches(&run.rows, &mut self.scratch);
            let sector = Sector(run.rows.start * chunk);
            let sectors = (run.rows.end - run.rows.start) * chunk;
            let all = (0..cx.geometry.members() as u16).map(MemberIdx);
            for member in all.filter(|member| !cx.health.is_failed(member.0)) {
                run.open += 1;
                let token = Token::new(Kind::RowsZero, member.0, key);
                cx.out.list.push(match run.discards {
                    true => Effect::Discard { token, member, sector, sectors },
                    false => Effect::WriteZeroes { token, member, sector, sectors },
                });
            }
            // The array cannot run without any member.
            debug_assert!(run.open > 0);
        }
    }

    /// A member's operation of a run has completed.
    pub(crate) fn rows_zeroed(
        &mut self,
        cx: &mut Context<'_>,
        token: Token,
        result: Result<(), IoError>,
    ) {
        let (key, member) = (token.key(), token.slot());
        assert!(self.rows_zero.runs.is_live(key), "{token:?} belongs to nothing");
        let run = &mut self.rows_zero.runs[key.index];
        let is_untouched = result.is_err_and(|error| error.kind == MemberError::NoSpace);
        if !is_untouched {
            // A part of a failed operation may be in the member's cache, too.
            cx.flushes.note_written(member);
        }
        if let Err(error) = result {
            let lacks = error.kind.lacks();
            let is_out =
                lacks.is_none() && cx.health.drop_member(cx.geometry, member, Some(error), cx.out);
            if !is_out {
                run.error = lacks.or(run.error).or(Some(RequestError::Io));
            }
            if !is_out && !is_untouched {
                run.changed.insert(member);
            }
        } else {
            run.changed.insert(member);
        }
        run.open -= 1;
        if run.open == 0 {
            self.end_rows_zero(cx, key.index);
        }
    }

    /// Ends a run, and queues what it has held back.
    fn end_rows_zero(&mut self, cx: &mut Context<'_>, at: u32) {
        let chunk = cx.parity().chunk_sectors();
        let run = &mut self.rows_zero.runs[at];
        let positions = run.rows.start * chunk..run.rows.end * chunk;
        let (request, error) = (run.request, run.error);
        let mut held_back = std::mem::take(&mut run.held_back);
        match error {
            None => self.sync.set(positions),
            Some(error) if run.changed.is_empty() => cx.requests.fail(request, error),
            Some(error) => {
                self.sync.clear(positions);
                cx.requests.fail_half_way(request, error);
            }
        }
        self.rows_zero.order.retain(|other| *other != at);
        // Later runs over these rows wait for the pieces, too.
        for (stripe, piece) in held_back.drain(..) {
            self.rows.enqueue(stripe, piece);
        }
        self.rows_zero.runs[at].held_back = held_back;
        self.rows_zero.runs.release(at);
        self.request_part_done(cx, request);
    }
}

impl Rows {
    /// Whether any of these rows has work that waits or is in progress.
    fn any_in_use(&self, rows: &Range<u64>) -> bool {
        let mut here = self.by_stripe.iter().filter(|(stripe, _)| rows.contains(stripe));
        here.any(|(_, row)| {
            let row = &self.table[*row];
            !row.pending.is_empty() || !row.active.is_empty()
        })
    }

    /// Empties the caches of these rows, which are not in use.
    fn drop_caches(&mut self, rows: &Range<u64>, scratch: &mut Scratch) {
        let here = self.by_stripe.iter().filter(|(stripe, _)| rows.contains(stripe));
        let cached: Vec<u32> = here.map(|(_, row)| *row).collect();
        for row in cached {
            self.table[row].cached.drain(..).for_each(|entry| scratch.give_back(entry.block));
            self.retire(row);
        }
    }
}
