//! An array as a member of another array.
//!
//! Invariant: an operation of the outer array completes when all requests that it was split into in
//! the inner array have completed, and fails if one of them fails. Operations that the inner array
//! has no room for are queued here in order. Submissions are gathered until `submit_batch`, so that
//! the inner engine sees adjacent ones together, as the outer one does.

use std::collections::VecDeque;
use std::ops::Range;

use engine::{BufSlice, HostOp, IoError, MemberError, Request, RequestError, Token};
use md::Sector;

use super::traits::io_error;
use super::{
    Counters, Cqe, FileId, FormerLeaf, Io, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed,
};
use crate::executor::Executor;
use crate::table::Table;

struct Outer {
    token: Token,
    open: u32,
    /// The first error of a part, as the error of the whole operation.
    error: Option<IoError>,
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
}

impl NestedMember {
    pub(crate) fn new(executor: Executor) -> NestedMember {
        NestedMember { executor, outer: Table::new(), waiting: VecDeque::new(), ended: Vec::new() }
    }

    /// Submits as much as the inner array has room for, and passes completions on.
    fn turn(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        loop {
            while self.executor.room() > 0 {
                let Some(part) = self.waiting.pop_front() else { break };
                self.executor.submit(part);
            }
            self.executor.turn(io, &mut self.ended);
            if self.ended.is_empty() {
                return;
            }
            for (outer, result) in self.ended.drain(..) {
                let entry = self.outer.get(outer as u32);
                entry.open -= 1;
                if let Err(error) = result {
                    let cause = outer_error(error).into();
                    let error = io_error(entry.op, entry.sector, entry.sectors, cause);
                    entry.error.get_or_insert(error);
                }
                if entry.open == 0 {
                    let Outer { token, error, .. } = self.outer.remove(outer as u32);
                    done.push(MemberCompletion { token, result: error.map_or(Ok(()), Err) });
                }
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
        self.executor.info()
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        // The inner array runs in one shard only.
        None
    }

    fn submit(&mut self, op: &Op<'_>, _io: &mut Io, _done: &mut Vec<MemberCompletion>) {
        let Op { token, kind, sector, sectors, .. } = *op;
        let outer = Outer { token, open: 0, error: None, op: kind, sector, sectors };
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

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        if !self.waiting.is_empty() {
            self.turn(io, done);
        }
    }

    fn gathers(&self) -> bool {
        true
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
