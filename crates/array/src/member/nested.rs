//! An array as a member of another array.
//!
//! Invariant: an operation of the outer array completes when all requests that it was split into in
//! the inner array have completed, and fails if one of them fails. Operations that the inner array
//! has no room for are queued here in order. Submissions are gathered until `submit_batch`, so that
//! the inner engine sees adjacent ones together, as the outer one does.
//!
//! Deadlines: members of the inner array have that of any disk, so that it drops what hangs, and
//! serves. Its own operations have several times as long. An operation whose buffers a late one of
//! the inner array's members uses ends for the outer array, and completes when they are free.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use engine::{BufSlice, HostOp, IoError, MemberError, Request, RequestError, Token};
use md::Sector;

use super::traits::{io_error, no_bad_block_log};
use super::{
    Counters, Cqe, FileId, FormerLeaf, Io, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed,
};
use crate::executor::Executor;
use crate::table::Table;

/// How many times as long as one of its members the array may take: RAID 6 loses two members that
/// hang one after the other, and can wait for a third.
const TIMES: u32 = 4;

struct Outer {
    token: Token,
    open: u32,
    /// The first error of a part, as the error of the whole operation.
    error: Option<IoError>,
    /// Parts whose buffers late operations use.
    held: u32,
    /// There were some.
    was_held: bool,
    /// All parts have ended after that: whether the outer array has got it as late.
    ended: Option<bool>,
    op: OpKind,
    sector: Sector,
    sectors: u64,
}

/// An array as a member; see the module documentation.
pub struct NestedMember {
    executor: Executor,
    outer: Table<Outer>,
    /// Requests that the inner array has no room for; the tag is the outer operation.
    waiting: VecDeque<Request>,
    ended: Vec<(u64, Result<(), RequestError>)>,
    /// Operations that have ended, and complete later.
    held: Vec<MemberCompletion>,
    /// Number of those that wait for others with the same token.
    unreported: usize,
}

impl NestedMember {
    pub(crate) fn new(executor: Executor) -> NestedMember {
        NestedMember {
            executor,
            outer: Table::new(),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            held: Vec::new(),
            unreported: 0,
        }
    }

    /// Submits as much as the inner array has room for, and passes completions on.
    fn turn(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        loop {
            while self.executor.room() > 0 {
                let Some(part) = self.waiting.pop_front() else { break };
                self.executor.submit(part);
            }
            self.executor.turn(io, &mut self.ended);
            self.note_held();
            let is_over = self.ended.is_empty();
            let mut ended = std::mem::take(&mut self.ended);
            for (outer, result) in ended.drain(..) {
                self.part_done(outer as u32, result, done);
            }
            self.ended = ended;
            self.note_free(done);
            if is_over {
                return;
            }
        }
    }

    fn part_done(
        &mut self,
        outer: u32,
        result: Result<(), RequestError>,
        done: &mut Vec<MemberCompletion>,
    ) {
        let entry = self.outer.get(outer);
        entry.open -= 1;
        if let Err(error) = result {
            let cause = outer_error(error).into();
            let error = io_error(entry.op, entry.sector, entry.sectors, cause);
            entry.error.get_or_insert(error);
        }
        if entry.open > 0 {
            return;
        }
        let token = entry.token;
        if !entry.was_held {
            done.push(self.complete_outer(outer));
            if self.unreported > 0 {
                self.report_held(token, done);
            }
            return;
        }
        if entry.op == OpKind::Read {
            // It has no result: a late operation may still fill its buffers, or has done it.
            let error = io_error(entry.op, entry.sector, entry.sectors, MemberError::Medium.into());
            entry.error = Some(error);
        }
        entry.ended = Some(false);
        self.unreported += 1;
        self.report_held(token, done);
    }

    fn complete_outer(&mut self, outer: u32) -> MemberCompletion {
        let Outer { token, error, .. } = self.outer.remove(outer);
        MemberCompletion { token, result: error.map_or(Ok(()), Err) }
    }

    /// Passes on operations that have ended with buffers in use, when no operation with the same
    /// token is left that has not ended. (Rare, so it may take long.)
    fn report_held(&mut self, token: Token, done: &mut Vec<MemberCompletion>) {
        let same = self.outer.entries().filter(|(_, entry)| entry.token == token);
        let same: Vec<(u32, bool)> =
            same.map(|(outer, entry)| (outer, entry.ended.is_some())).collect();
        if same.iter().any(|(_, has_ended)| !has_ended) {
            return;
        }
        for (outer, _) in same {
            let entry = self.outer.get(outer);
            if entry.ended.replace(true) == Some(false) {
                let result = entry.error.map_or(Ok(()), Err);
                self.held.push(MemberCompletion { token, result });
                self.unreported -= 1;
            }
            if entry.held == 0 {
                done.push(self.complete_outer(outer));
            }
        }
    }

    /// Buffers that late operations use; before ends are processed.
    fn note_held(&mut self) {
        for outer in self.executor.take_held() {
            let entry = self.outer.get(outer as u32);
            entry.held += 1;
            entry.was_held = true;
        }
    }

    /// Buffers that they do not use any more.
    fn note_free(&mut self, done: &mut Vec<MemberCompletion>) {
        for outer in self.executor.take_free() {
            let entry = self.outer.get(outer as u32);
            entry.held -= 1;
            if entry.held == 0 && entry.ended == Some(true) {
                done.push(self.complete_outer(outer as u32));
            }
        }
    }
}

fn outer_error(error: RequestError) -> MemberError {
    match error {
        RequestError::Io => MemberError::Medium,
        // Some members of the inner array may have written their part.
        RequestError::NoSpace => MemberError::ShortWrite,
        RequestError::NoMemory => MemberError::NoMemory,
        RequestError::Invalid | RequestError::ReadOnly => MemberError::Invalid,
    }
}

impl Sealed for NestedMember {}

impl Member for NestedMember {
    fn info(&self) -> MemberInfo {
        // Its shard has a timer.
        MemberInfo { synchronous: false, ..self.executor.info() }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        // The inner array runs in one shard only.
        None
    }

    fn submit(&mut self, op: &Op<'_>, _io: &mut Io, _done: &mut Vec<MemberCompletion>) {
        let Op { token, kind, sector, sectors, .. } = *op;
        let (error, ended) = (None, None);
        let (held, was_held) = (0, false);
        let outer =
            Outer { token, open: 0, error, held, was_held, ended, op: kind, sector, sectors };
        let outer = self.outer.insert(outer);
        let mut open = 0;
        let mut part = |op, at, sectors, buf| {
            open += 1;
            self.waiting.push_back(Request { tag: u64::from(outer), op, at, sectors, buf });
        };
        match op.kind {
            OpKind::Flush => part(HostOp::Flush, Sector(0), 0, BufSlice::default()),
            OpKind::Discard | OpKind::WriteZeroes => {
                let kind = match op.kind {
                    OpKind::Discard => HostOp::Discard,
                    _ => HostOp::WriteZeroes,
                };
                let mut at = op.sector.0;
                let end = at + op.sectors;
                while at < end {
                    let sectors = (end - at).min(kind.max_sectors());
                    part(kind, Sector(at), sectors, BufSlice::default());
                    at += sectors;
                }
            }
            OpKind::WriteLog => unreachable!("nested arrays have no metadata"),
            OpKind::Read | OpKind::Write { .. } => {
                let kind = match op.kind {
                    OpKind::Write { fua } => HostOp::Write { fua },
                    _ => HostOp::Read,
                };
                let mut at = op.sector.0;
                for slice in op.slices {
                    let sectors = u64::from(slice.len) / md::SECTOR_BYTES;
                    part(kind, Sector(at), sectors, *slice);
                    at += sectors;
                }
            }
        }
        self.outer.get(outer).open = open;
    }

    fn add_bad_blocks(&mut self, _: Sector, _: u64) -> Result<(), IoError> {
        Err(no_bad_block_log())
    }

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        if !self.waiting.is_empty() {
            self.turn(io, done);
        }
    }

    fn gathers(&self) -> bool {
        true
    }

    fn take_held(&mut self, held: &mut dyn FnMut(MemberCompletion)) {
        self.held.drain(..).for_each(held);
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration> {
        self.executor.set_member_timeout(limit);
        Some(limit?.saturating_mul(TIMES))
    }

    fn late_operations(&self) -> usize {
        self.executor.late_operations()
    }

    fn reap(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.executor.reap_members(io);
        self.turn(io, done);
    }

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.executor.kernel_done(event, io);
        self.turn(io, done);
    }

    fn wake_at(&self) -> Option<u64> {
        self.executor.wake_at()
    }

    fn deadline(&self) -> Option<u64> {
        self.executor.deadline()
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.executor.number_leaves(next)
    }

    fn place(&self) -> Option<(String, u64)> {
        None
    }

    fn files(&self, out: &mut Vec<FileId>) {
        self.executor.files(out);
    }

    fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.ended.is_empty() && self.executor.is_quiet()
    }

    fn disassemble(&mut self, in_service: bool, out: &mut Vec<FormerLeaf>) -> bool {
        self.executor.disassemble(in_service, out);
        true
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        self.executor.leaf_counters(out);
    }
}
