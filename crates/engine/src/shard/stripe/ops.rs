//! The states of an operation on a row: plan, read, recover, compute, write, end.
//!
//! ```text
//! begin --> Reading --> Recovering --> Computing --> Writing --> end       (a write)
//!                                (PartialParity, Logging with a log)
//!   ^          |                 \                      |
//!   |          |                  \                     +--> Reverting --> RollingBack --> end
//!   |          | a read failed     +--> WritingBack --> end                (a read)
//!   +----------+ plan again without that member, or cut into granules
//! ```
//! Invariant: an operation that writes has an exclusive lock on its range of the row (`rows`).
//! Parity is written together with the data, never before all of it is computed. A crash during
//! `Writing` leaves any subset of the writes done: the write hole, which only a resync, a bitmap or
//! a log closes.
//!
//! A write that fails half-way while the array runs is rolled back where lost blocks that it does
//! not cover depend on the old contents. A range that cannot be rolled back is out of sync from
//! then on (`in_sync`): nothing is recovered from it until it has been written or resynced.

use std::ops::Range;

use md::Row;

use super::super::in_sync::InSync;
use super::op::{Basis, Class, Grain, Op, OpKind, Phase, Work, member_at, positions_of};
use super::plan::{
    ExecPlan, ParityWork, ReadPlan, RebuildPlan, StripeState, WritePlan, plan_read, plan_rebuild,
    plan_resync, plan_write,
};
use super::rows::CacheAfter;
use super::{Context, Stripes};
use crate::token::Kind;
use crate::{
    BufSlice, Compute, Delta, Effect, Effects, IoError, MemberError, MemberSet, RequestError,
    Source, Token,
};

impl Stripes {
    /// Starts a new operation, or queues it for stripe memory.
    pub(crate) fn start_or_queue(&mut self, cx: &mut Context<'_>, op: u32) {
        if !self.awaiting_memory.is_empty() || !self.start(cx, op) {
            self.awaiting_memory.push_back(op);
        }
    }

    /// Starts operations that waited for stripe memory.
    pub(crate) fn retry_awaiting_memory(&mut self, cx: &mut Context<'_>) {
        while let Some(op) = self.awaiting_memory.front().copied() {
            let is_started = self.start(cx, op);
            if !is_started && !self.is_all_memory_late() {
                return;
            }
            self.awaiting_memory.pop_front();
            if !is_started {
                self.do_with_less_memory(cx, op);
            }
        }
    }

    /// Plans an operation and sends its first I/O. `false`: there is not enough memory for it now.
    #[expect(clippy::too_many_lines, reason = "one decision for each kind of operation")]
    fn start(&mut self, cx: &mut Context<'_>, at: u32) -> bool {
        if self.ops[at].writes_no_data() {
            self.drop_cached(at, MemberSet::EMPTY);
            self.log_then_write(cx, at);
            return true;
        }
        if self.ops[at].is_scrub() {
            return self.start_scrub(cx, at);
        }
        let op = &self.ops[at];
        let range = positions(cx, op);
        let row = cx.parity().row(op.stripe);
        let data = row.data.len() as u16;
        let absent = positions_of(row, cx.health.absent(range.clone()));
        let is_rebuild = op.is_rebuild();
        let mut in_sync = self.sync.state(range.clone());
        let is_doubtful = in_sync != InSync::All;
        if (!op.is_read() && !is_rebuild || is_doubtful)
            && cx.health.is_partly_rebuilt(range.clone())
        {
            // The part that is in sync must be written, the rest must not. Where parity may not
            // match, it must not replace the part that is in sync.
            let grain = op.smaller().expect("a block is in sync or not");
            self.split_into(cx, at, grain);
            return true;
        }
        if is_rebuild {
            let targets = absent.minus(positions_of(row, cx.health.failed()));
            let copies = positions_of(row, cx.health.to_copy(range.clone()));
            if targets.union(copies).is_empty() {
                self.end(cx, at);
                return true;
            }
            let op = &mut self.ops[at];
            let is_first = op.read_failed.is_empty();
            let rebuild = op.rebuild_mut().expect("it is one");
            (rebuild.targets, rebuild.copies) = (targets, copies);
            rebuild.unreadable = MemberSet::EMPTY;
            if is_first {
                rebuild.since = cx.health.changes();
            }
        }
        self.ops[at].basis.absent = absent;
        let op = &self.ops[at];
        if in_sync != InSync::All {
            // After a start by force, parity defines what is missing: then nothing else may be.
            let defined = positions_of(row, self.sync.defined_by_parity(range));
            let defined = defined.intersection(absent);
            let only_these = absent.union(op.read_failed).minus(defined).is_empty();
            let lacks_data = !defined.intersection(MemberSet::range(0, data)).is_empty();
            if lacks_data && only_these {
                in_sync = InSync::All;
            }
        }
        self.ops[at].basis.in_sync = in_sync;
        let op = &self.ops[at];
        let lost = absent.union(op.read_failed).intersection(MemberSet::range(0, data));
        let lost = lost.minus(op.covered);
        // Memory must not have the only copy of a block: a write that depended on it could not be
        // rolled back.
        let only_copy = match !op.is_read() && in_sync == InSync::All && !is_rebuild {
            true => lost,
            false => MemberSet::EMPTY,
        };
        let situation = StripeState {
            data,
            has_q: row.q.is_some(),
            covered: op.covered,
            failed: absent,
            read_failed: op.read_failed,
            // A rebuild computes from what is on members.
            cached: match is_rebuild {
                true => MemberSet::EMPTY,
                false => self.cached_positions(at).minus(only_copy),
            },
            stream: op.stream,
            in_sync: in_sync == InSync::All,
            fixed_parity: cx.parity().rotation() == 1,
        };
        let mut course = self.exec_plan(at, &situation);
        if course.is_none() {
            course = self.unreadable(cx, at, &situation);
        }
        let Some(course) = &course else {
            self.give_up(cx, at);
            return true;
        };
        let logs = self.wants_partial_parity(at, course.parity);
        if logs && course.parity == Some(ParityWork::Update) && in_sync == InSync::Part {
            // Partial parity from old parity is wrong where that was: the log would undo a resync.
            let grain = self.ops[at].smaller().expect("a block is in sync or not");
            self.split_into(cx, at, grain);
            return true;
        }
        self.borrow_cached(at, course.borrow);
        if !self.take_memory(at, course.own, logs) {
            return false;
        }
        if !self.ops[at].is_read() {
            self.drop_cached(at, MemberSet::range(0, data).minus(situation.covered));
        }
        let ExecPlan { parity, reads, recover, parity_out, unrecoverable, unreadable, .. } =
            *course;
        let op = &mut self.ops[at];
        let read_failed = op.read_failed;
        if let Work::Resync(resync) = &mut op.work {
            resync.compares = !parity_out.is_empty() && parity_out.minus(reads).is_empty();
            resync.compares &= recover.is_empty();
            self.unread_resyncs = self.unread_resyncs.saturating_sub(1);
        }
        if let Some(rebuild) = op.rebuild_mut() {
            rebuild.unreadable = unreadable;
            if unreadable.is_empty() {
                // What a member cannot read that is being replaced, only its replacement gets.
                let unread = rebuild.copies.intersection(read_failed);
                let mended = recover.intersection(read_failed).minus(absent);
                rebuild.targets = rebuild.targets.union(parity_out).union(mended).minus(unread);
            }
        }
        // Parity generated without a recovery depends on no lost blocks except the covered ones.
        let depends = parity == Some(ParityWork::Update) || !recover.is_empty();
        (op.parity, op.recover, op.unrecoverable) = (parity, recover, unrecoverable);
        op.basis = Basis {
            epoch: cx.health.epoch(),
            read_failed,
            absent,
            in_sync,
            p_known: reads.union(situation.cached).contains(data),
            keeps_old: !op.is_read() && !is_rebuild && depends && !lost.is_empty(),
        };
        op.phase = Phase::Reading;
        op.open = 0;
        self.send_reads(cx, at, reads);
        if self.ops[at].open == 0 {
            self.reads_done(cx, at);
        }
        true
    }

    /// The execution plan of an operation. `None`: there is no plan for the whole range. Most
    /// operations repeat an earlier one, so the last plans of plain writes are cached.
    fn exec_plan(&mut self, at: u32, situation: &StripeState) -> Option<ExecPlan> {
        let op = &self.ops[at];
        if op.class != (Class { kind: OpKind::Write, grain: Grain::Span }) {
            return self
                .choose(at, situation)
                .map(|course| self.with_memory(at, situation, course));
        }
        let place = |set: MemberSet| usize::from(set.iter().next().unwrap_or(0));
        let slot = (place(situation.covered) + 5 * place(situation.failed)) % self.exec_plans.len();
        if let Some((known, course)) = &self.exec_plans[slot]
            && known == situation
        {
            return Some(*course);
        }
        let course = self.with_memory(at, situation, self.choose(at, situation)?);
        self.exec_plans[slot] = Some((*situation, course));
        Some(course)
    }

    /// Adds the memory that the plan needs.
    pub(super) fn with_memory(
        &self,
        at: u32,
        situation: &StripeState,
        course: ExecPlan,
    ) -> ExecPlan {
        let ExecPlan { parity, reads, recover, parity_out, .. } = course;
        let data_positions = MemberSet::range(0, situation.data);
        // Blocks that are not in host buffers: from the row's cache, or in newly allocated memory.
        let in_host = if self.ops[at].is_read() { situation.covered } else { MemberSet::EMPTY };
        let sources = match (parity, recover.is_empty()) {
            (Some(ParityWork::Generate), true) => data_positions.minus(situation.covered),
            (Some(ParityWork::Update), true) => situation.covered,
            (_, true) => MemberSet::EMPTY,
            (_, false) => data_positions.union(situation.parity_positions()),
        };
        let borrow = sources.union(parity_out).minus(in_host).intersection(situation.cached);
        let own = reads.union(recover).union(parity_out).minus(in_host).minus(borrow);
        ExecPlan { borrow, own, ..course }
    }

    /// Selects an execution plan. `None`: there is no plan for the whole range.
    fn choose(&self, at: u32, situation: &StripeState) -> Option<ExecPlan> {
        let op = &self.ops[at];
        if let Some(rebuild) = op.rebuild() {
            let RebuildPlan { reads, recover, parity_out } =
                plan_rebuild(situation, rebuild.targets, rebuild.copies)?;
            let parity = match parity_out.is_empty() {
                true => ParityWork::None,
                false => ParityWork::Generate,
            };
            let parity = Some(parity);
            return Some(ExecPlan { parity, reads, recover, parity_out, ..ExecPlan::default() });
        }
        if !op.is_read() {
            let WritePlan { parity, reads, recover } = match op.work {
                Work::Resync(_) => plan_resync(situation, self.unread_resyncs == 0)?,
                _ => plan_write(situation)?,
            };
            let parity_out = match parity {
                ParityWork::None => MemberSet::EMPTY,
                _ => situation.parity_positions().minus(situation.failed),
            };
            let parity = Some(parity);
            return Some(ExecPlan { parity, reads, recover, parity_out, ..ExecPlan::default() });
        }
        if let Some(ReadPlan { reads, recover }) = plan_read(situation) {
            return Some(ExecPlan { reads, recover, ..ExecPlan::default() });
        }
        // Requests share the operation: readable blocks are served, even if others are not.
        let unrecoverable = op.covered.intersection(situation.failed.union(op.read_failed));
        let reads = op.covered.minus(unrecoverable);
        let serves = op.finer().is_none() && !reads.is_empty();
        serves.then(|| ExecPlan { reads, unrecoverable, ..ExecPlan::default() })
    }

    pub(super) fn send_reads(&mut self, cx: &mut Context<'_>, at: u32, reads: MemberSet) {
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        for position in reads.iter() {
            let into_host = op.is_read() && op.covered.contains(position);
            let slices = if into_host {
                cx.out.push_slices(op.host_slices(position).iter().copied())
            } else {
                let sectors = op.sectors();
                cx.out.push_slices([op.scratch_slice(self.region, position, op.start, sectors)])
            };
            op.open += 1;
            cx.out.list.push(Effect::Read {
                token: Token::new(Kind::StripeIo, position, key),
                member: member_at(row, position),
                sector,
                slices,
                in_place_ok: !into_host && op.may_borrow(position),
            });
        }
    }

    /// A member I/O of an operation completed.
    pub(crate) fn io_done(
        &mut self,
        cx: &mut Context<'_>,
        token: Token,
        result: Result<(), IoError>,
    ) {
        let (at, position) = (token.key().index, token.slot());
        let (position, is_copy) = match position.checked_sub(cx.geometry.members() as u16) {
            Some(position) => (position, true),
            None => (position, false),
        };
        let member = member_at(cx.parity().row(self.ops[at].stripe), position).0;
        let writing = self.ops[at].phase != Phase::Reading;
        if writing && !result.is_err_and(|error| error.kind == MemberError::NoSpace) {
            // A part of a failed write may be in the member's cache, too.
            cx.flushes.note_written(member);
        }
        match result {
            Ok(()) if is_copy => {}
            Ok(()) if writing => match self.ops[at].phase {
                Phase::WritingBack => self.corrected(cx, at, member),
                Phase::Writing | Phase::WritingRepair => self.ops[at].changed.insert(position),
                _ => {}
            },
            Ok(()) => {}
            // The replacement is out by now, or its bad-block log has no room.
            Err(_) if is_copy => {
                self.ops[at].error.get_or_insert(RequestError::Io);
            }
            Err(error) if error.kind.lacks().is_some() && self.ops[at].is_unreadable(position) => {
                self.ops[at].error.get_or_insert(RequestError::Io);
            }
            Err(error) if writing => self.write_failed(cx, at, position, error),
            Err(error) => {
                let op = &mut self.ops[at];
                op.read_failed.insert(position);
                match &mut op.work {
                    // It says nothing about the member: nothing is written back.
                    Work::Scrub(_) => op.error = op.error.or(error.kind.lacks()),
                    Work::Rebuild(rebuild) => rebuild.unsure |= !error.kind.is_unreadable(),
                    _ => {}
                }
                if error.kind.fails_reader() {
                    cx.health.drop_member(cx.geometry, member, Some(error), cx.out);
                }
            }
        }
        if self.part_done(at) {
            match self.ops[at].phase {
                Phase::Reading => self.reads_done(cx, at),
                Phase::Writing => self.writes_done(cx, at),
                Phase::WritingBack | Phase::RollingBack => self.end(cx, at),
                Phase::WritingRepair => self.repaired(cx, at),
                other => unreachable!("member I/O ends while the operation is {other:?}"),
            }
        }
    }

    /// All writes of an operation have completed.
    fn writes_done(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        match op.error.is_none() || op.changed.is_empty() {
            true => self.end(cx, at),
            false => self.half_written(cx, at),
        }
    }

    pub(super) fn part_done(&mut self, at: u32) -> bool {
        let op = &mut self.ops[at];
        assert!(op.open > 0, "an operation ends more parts than it has");
        op.open -= 1;
        op.open == 0
    }

    pub(super) fn reads_done(&mut self, cx: &mut Context<'_>, at: u32) {
        if self.ops[at].late > 0 {
            return self.begin_anew(cx, at);
        }
        if self.ops[at].is_scrub() {
            return self.scrub_read(cx, at);
        }
        let op = &self.ops[at];
        if op.read_failed != op.basis.read_failed {
            return self.reads_failed(cx, at);
        }
        if !op.is_read() && !op.basis.keeps_old && op.basis.epoch != cx.health.epoch() {
            // A block that this write does not cover may depend on the row's old contents now,
            // which the plan did not keep.
            return self.replan(cx, at);
        }
        if self.ops[at].recover.is_empty() {
            return self.recovered(cx, at);
        }
        let row = cx.parity().row(self.ops[at].stripe);
        let jobs = self.jobs(row, at).recover(cx.out);
        let op = &mut self.ops[at];
        op.phase = Phase::Recovering;
        op.open = jobs;
    }

    /// A computation of an operation completed.
    pub(crate) fn compute_done(&mut self, cx: &mut Context<'_>, token: Token) {
        let at = token.key().index;
        if !self.part_done(at) {
            return;
        }
        match self.ops[at].phase {
            Phase::Recovering => self.recovered(cx, at),
            Phase::PartialParity => self.compute_parity(cx, at),
            Phase::Computing => self.log_then_write(cx, at),
            Phase::Reverting => self.roll_back(cx, at),
            Phase::Repairing => self.write_repair(cx, at),
            other => unreachable!("a computation ends while the operation is {other:?}"),
        }
    }

    /// All blocks that the operation needs are in memory.
    fn recovered(&mut self, cx: &mut Context<'_>, at: u32) {
        if self.ops[at].is_scrub() {
            return self.compare(cx, at);
        }
        let op = &self.ops[at];
        if op.is_read() {
            return self.write_back(cx, at);
        }
        if op.parity == Some(ParityWork::None) {
            return self.log_then_write(cx, at);
        }
        match &op.work {
            Work::Write(write) if write.partial.is_some() => {}
            Work::Resync(resync) if resync.compares => return self.compare_parity(cx, at),
            _ => return self.compute_parity(cx, at),
        }
        // Before parity, which may be updated in place.
        self.compute_partial_parity(cx, at);
        let op = &mut self.ops[at];
        op.phase = Phase::PartialParity;
        op.open = 1;
    }

    pub(super) fn compute_parity(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let work = op.parity.expect("a write has a plan for its parity");
        let row = cx.parity().row(op.stripe);
        let jobs = self.jobs(row, at).parity(work, cx.out);
        let op = &mut self.ops[at];
        op.phase = Phase::Computing;
        op.open = jobs;
    }

    /// The inputs for the operation's parity work.
    pub(super) fn jobs<'a>(&'a self, row: &'a Row, at: u32) -> Jobs<'a> {
        let token = Token::new(Kind::StripeCompute, 0, self.ops.key(at));
        Jobs { op: &self.ops[at], row, region: self.region, token }
    }

    /// Sends data and parity to every member in service; of a rebuild, what it has computed.
    pub(super) fn send_writes(&mut self, cx: &mut Context<'_>, at: u32) {
        if self.ops[at].writes_no_data() {
            return self.write_without_data(cx, at);
        }
        self.drop_entries_in_doubt(cx, at);
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        op.phase = Phase::Writing;
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        let data = row.data.len() as u16;
        let parity = match op.parity {
            Some(ParityWork::None) | None => MemberSet::EMPTY,
            _ => MemberSet::range(data, data + 1 + u16::from(row.q.is_some())),
        };
        let (positions, is_rebuild) = match op.rebuild() {
            Some(rebuild) => (rebuild.targets, true),
            None => (op.covered.union(parity), false),
        };
        let fua = op.write().is_some_and(|write| write.fua);
        for position in positions.iter() {
            let member = member_at(row, position);
            let computed = is_rebuild || position >= data;
            if cx.health.is_failed(member.0)
                || !is_rebuild && op.basis.absent.contains(position)
                || !is_rebuild && computed && op.cells[usize::from(position)].scratch.is_none()
            {
                continue;
            }
            let token = Token::new(Kind::StripeIo, position, key);
            op.open += 1;
            if op.is_unreadable(position) {
                let sectors = op.sectors();
                cx.out.list.push(Effect::AddBadBlocks { token, member, sector, sectors });
                continue;
            }
            let slices = if computed {
                let sectors = op.sectors();
                cx.out.push_slices([op.scratch_slice(self.region, position, op.start, sectors)])
            } else {
                cx.out.push_slices(op.host_slices(position).iter().copied())
            };
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua });
        }
        self.send_copies(cx, at);
        if self.ops[at].open == 0 {
            // A resync without parity in service has nothing to do, nor has a rebuild of a member
            // that has failed since.
            let op = &mut self.ops[at];
            if op.write().is_some() {
                op.error = Some(RequestError::Io);
            }
            self.end(cx, at);
        }
    }

    /// Discards whole rows, or fills them with zeroes: the parity of zeroes is zero.
    fn write_without_data(&mut self, cx: &mut Context<'_>, at: u32) {
        let key = self.ops.key(at);
        let op = &mut self.ops[at];
        op.phase = Phase::Writing;
        op.parity = Some(ParityWork::Generate);
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        let sectors = op.sectors();
        let positions = row.data.len() as u16 + 1 + u16::from(row.q.is_some());
        for position in 0..positions {
            let member = member_at(row, position);
            if cx.health.is_failed(member.0) {
                continue;
            }
            op.open += 1;
            let token = Token::new(Kind::StripeIo, position, key);
            cx.out.list.push(match op.class.kind {
                OpKind::Discard => Effect::Discard { token, member, sector, sectors },
                _ => Effect::WriteZeroes { token, member, sector, sectors },
            });
        }
        if self.ops[at].open == 0 {
            self.ops[at].error = Some(RequestError::Io);
            self.end(cx, at);
        }
    }

    /// Records whether the parity of an operation's range matches the data now, and what of members
    /// has been rebuilt.
    fn note_sync(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let agrees = matches!(&op.work, Work::Resync(resync) if resync.agrees);
        let generated = op.phase == Phase::Writing && op.parity == Some(ParityWork::Generate);
        if let Some(rebuild) = op.rebuild()
            && op.phase == Phase::Writing
            && op.error.is_none()
        {
            let (row, range) = (cx.parity().row(op.stripe), positions(cx, op));
            for position in rebuild.targets.iter() {
                let member = member_at(row, position);
                cx.health.set_rebuilt(member.0, range.clone(), op.basis.epoch);
            }
            for position in rebuild.copies.iter() {
                let member = member_at(row, position);
                cx.health.set_copied(member.0, range.clone(), op.basis.epoch);
            }
            self.report_listed(cx, at);
        }
        let op = &self.ops[at];
        if op.half_way {
            self.sync.clear(positions(cx, op));
        } else if (generated || agrees) && op.error.is_none() {
            self.sync.set(positions(cx, op));
        }
    }

    /// Ends an operation: completes its pieces, unlocks its range, releases its memory.
    pub(super) fn end(&mut self, cx: &mut Context<'_>, at: u32) {
        self.check_listed(cx, at);
        let known = self.ops[at].error.is_none();
        self.left_log(cx, at);
        self.return_memory(at, if known { CacheAfter::OnMembers } else { CacheAfter::Unknown });
        self.note_sync(cx, at);
        let op = &mut self.ops[at];
        let (row, error, unrecoverable, half_way) =
            (op.row, op.error, op.unrecoverable, op.half_way);
        let pieces = std::mem::take(&mut op.pieces);
        for at in &pieces {
            let piece = &mut self.rows.pieces[*at];
            piece.open -= 1;
            let (request, open) = (piece.request, piece.open);
            let lost = unrecoverable.contains(piece.index).then_some(RequestError::Io);
            match error.or(lost) {
                Some(error) if half_way => cx.requests.fail_half_way(request, error),
                Some(error) => cx.requests.fail(request, error),
                None => {}
            }
            if open == 0 {
                self.rows.pieces.release(*at);
                self.request_part_done(cx, request);
            }
        }
        if self.ops[at].class.kind.is_host_write() {
            self.neighbours.write_ended(cx.now.saturating_sub(self.ops[at].begun_at));
        }
        self.ops[at].pieces = pieces;
        self.ops.release(at);
        self.rows.left(row, at);
    }
}

/// The positions of an operation's range.
pub(super) fn positions(cx: &Context<'_>, op: &Op) -> Range<u64> {
    let start = cx.parity().member_sector(op.stripe, op.start).0;
    start..start + op.sectors()
}

/// Selects the contents of a block: before or after the write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

/// The parity work of one operation, as computations over slices of equal length: together they
/// cover its range once. A covered block may be scattered over several host buffers; the range is
/// cut wherever one of them ends.
pub(super) struct Jobs<'a> {
    op: &'a Op,
    row: &'a Row,
    region: u16,
    token: Token,
}

impl Jobs<'_> {
    /// Emits the recovery of all positions in `Op::recover`; returns the number of jobs.
    pub(super) fn recover(&self, out: &mut Effects) -> u32 {
        self.each_run(out, |jobs, from, sectors, out| {
            let lost: Vec2 = jobs.op.recover.iter().collect();
            let sources = jobs.known_sources(from, sectors, out);
            let p = || jobs.scratch(jobs.p(), from, sectors);
            let q = || jobs.scratch(jobs.q(), from, sectors);
            match (lost.second, jobs.op.basis.p_known) {
                (None, true) => {
                    let dst = jobs.block(lost.first, When::Before, from, sectors);
                    Compute::RecoverFromP { dst, p: p(), sources }
                }
                (None, false) => {
                    let dst = jobs.source(lost.first, When::Before, from, sectors);
                    Compute::RecoverFromQ { dst, q: q(), sources }
                }
                (Some(second), _) => {
                    let x = jobs.source(lost.first, When::Before, from, sectors);
                    let y = jobs.source(second, When::Before, from, sectors);
                    Compute::RecoverTwo { x, y, p: p(), q: q(), sources }
                }
            }
        })
    }

    /// Emits the parity work of a write; returns the number of jobs.
    fn parity(&self, work: ParityWork, out: &mut Effects) -> u32 {
        match work {
            ParityWork::Generate => self.generate(When::After, out),
            ParityWork::Update => self.each_run(out, |jobs, from, sectors, out| {
                let (p, q) = jobs.parities(from, sectors);
                Compute::Update { p, q, deltas: jobs.deltas(from, sectors, out) }
            }),
            ParityWork::None => unreachable!("a write without parity computes nothing"),
        }
    }

    fn generate(&self, when: When, out: &mut Effects) -> u32 {
        self.each_run(out, |jobs, from, sectors, out| {
            let (p, q) = jobs.parities(from, sectors);
            Compute::Generate { p, q, sources: jobs.all_sources(when, from, sectors, out) }
        })
    }

    /// The slices of P and Q, if the operation computes them.
    fn parities(&self, from: u64, sectors: u64) -> (Option<BufSlice>, Option<BufSlice>) {
        let parity = |position: u16| {
            let cell = self.op.cells.get(usize::from(position))?;
            if let Some(rebuild) = self.op.rebuild() {
                let unread = rebuild.copies.intersection(self.op.read_failed);
                if !rebuild.targets.union(unread).contains(position) {
                    return None;
                }
            }
            cell.scratch.map(|_| self.scratch(position, from, sectors))
        };
        (parity(self.p()), parity(self.q()))
    }

    /// Emits the computations that restore the parity of before the write. Returns the number of
    /// jobs.
    pub(super) fn revert(&self, work: ParityWork, out: &mut Effects) -> u32 {
        match work {
            // `P ^= old ^ new` once more gives the old P, and so with Q.
            ParityWork::Update => self.parity(work, out),
            ParityWork::Generate => self.generate(When::Before, out),
            ParityWork::None => unreachable!("a write without parity keeps nothing"),
        }
    }

    /// Splits the range into runs in which no host slice ends.
    fn each_run(
        &self,
        out: &mut Effects,
        job: impl Fn(&Self, u64, u64, &mut Effects) -> Compute,
    ) -> u32 {
        let (mut from, mut count) = (self.op.start, 0);
        while from < self.op.end {
            let ends = self.op.covered.iter().map(|at| self.op.host_from(at, from).sectors());
            let sectors = ends.min().unwrap_or(u64::MAX).min(self.op.end - from);
            let job = job(self, from, sectors, out);
            out.compute(self.token, job);
            from += sectors;
            count += 1;
        }
        count
    }

    /// All data blocks that are not being recovered, by ascending exponent.
    fn known_sources(&self, from: u64, sectors: u64, out: &mut Effects) -> Range<u32> {
        let first = out.sources.len() as u32;
        for index in self.row.by_exponent.iter().filter(|at| !self.op.recover.contains(**at)) {
            out.sources.push(self.source(*index, When::Before, from, sectors));
        }
        first..out.sources.len() as u32
    }

    /// All data blocks, by ascending exponent.
    fn all_sources(&self, when: When, from: u64, sectors: u64, out: &mut Effects) -> Range<u32> {
        let first = out.sources.len() as u32;
        for index in &self.row.by_exponent {
            out.sources.push(self.source(*index, when, from, sectors));
        }
        first..out.sources.len() as u32
    }

    fn deltas(&self, from: u64, sectors: u64, out: &mut Effects) -> Range<u32> {
        let first = out.deltas.len() as u32;
        for index in self.op.covered.iter() {
            out.deltas.push(Delta {
                exponent: self.row.exponent[usize::from(index)],
                old: self.block(index, When::Before, from, sectors),
                new: self.block(index, When::After, from, sectors),
            });
        }
        first..out.deltas.len() as u32
    }

    fn source(&self, index: u16, when: When, from: u64, sectors: u64) -> Source {
        let exponent = self.row.exponent[usize::from(index)];
        Source { exponent, slice: self.block(index, when, from, sectors) }
    }

    /// A data block: the new contents of a write, and all blocks that a read covers, are in the
    /// host's buffers; the others are in the stripe memory.
    fn block(&self, index: u16, when: When, from: u64, sectors: u64) -> BufSlice {
        let in_host = when == When::After || self.op.is_read();
        if in_host && self.op.covered.contains(index) {
            self.op.host_from(index, from).part(0, sectors)
        } else {
            self.scratch(index, from, sectors)
        }
    }

    fn scratch(&self, position: u16, from: u64, sectors: u64) -> BufSlice {
        self.op.scratch_slice(self.region, position, from, sectors)
    }

    fn p(&self) -> u16 {
        self.row.data.len() as u16
    }

    fn q(&self) -> u16 {
        self.row.data.len() as u16 + 1
    }
}

/// The one or two lost positions.
struct Vec2 {
    first: u16,
    second: Option<u16>,
}

impl FromIterator<u16> for Vec2 {
    fn from_iter<I: IntoIterator<Item = u16>>(positions: I) -> Vec2 {
        let mut positions = positions.into_iter();
        let first = positions.next().expect("something is lost");
        let second = positions.next();
        assert!(positions.next().is_none(), "no more than two blocks can be recovered");
        Vec2 { first, second }
    }
}
