//! The partial parity log: what must be durable before data and parity of a row are written.
//!
//! ```text
//! parity computed --> waiting --> log written --> data and parity --> ended --> flushed, next log
//!                        ^  several operations of the parity's member     |
//!                        +----------- joins: the log names its row -------+
//! ```
//! Invariant: a recovery uses only the newest log of a member, so a log is followed by another one
//! only when data and parity of all its operations are durable, and every loss of a member so far
//! is recorded. Every write of a row whose parity is in service is named in the newest log of the
//! parity's member, so that no older log contradicts the row. Called only from `ops`, and once per
//! batch from `Stripes::plan_batch`. See decision 0018.

use std::collections::VecDeque;

use md::ondisk::ppl::{
    ENTRIES_MAX, MULTIPLE_LEAST_SECTORS, PARTIAL_PARITY_BYTES_MAX, PPL_HEADER_SECTORS, PplEntry,
    place_log,
};
use md::{MemberIdx, SECTOR_BYTES, Sector, StripeNo};

use super::op::{OpKind, Phase, member_at};
use super::plan::ParityWork;
use super::rows::{ChunkIo, Rows};
use super::scratch::Block;
use super::{Context, Stripes};
use crate::slab::Key;
use crate::token::Kind;
use crate::{
    BufSlice, Compute, ControlEvent, Effect, IoError, MemberSet, RequestError, Source, Token,
};

/// Rows that one log names ahead of a stream of full stripes, at most.
const AHEAD: usize = ENTRIES_MAX;

/// A range of a chunk row that a log names.
#[derive(Clone, Copy)]
struct Named {
    stripe: StripeNo,
    /// Sectors of the chunk.
    start: u64,
    end: u64,
}

/// The log of one member.
#[derive(Default)]
struct MemberLog {
    /// The next log is being written.
    is_writing: bool,
    /// The end of the newest log, in sectors of the area.
    end: u64,
    /// The end of the log that is being written.
    end_next: u64,
    /// What the newest log names as written in all data blocks.
    named: Vec<Named>,
    /// What it has partial parity of: true until the blocks are written that it is made of.
    partial: Vec<Named>,
    /// Operations that wait for the next log.
    waiting: VecDeque<u32>,
    /// Operations of the log that is being written.
    in_log: Vec<u32>,
    /// Partial parity of a write of the log that is late.
    late: Vec<Block>,
    /// Operations that write under the newest log.
    open: u32,
    /// Members that they have written since their last flush.
    unflushed: MemberSet,
    /// Flushes that the next log waits for: member, and the number of its flush.
    awaited: Vec<(u16, u64)>,
    /// A write of the newest log has failed half-way: until the superblocks say that a resync is
    /// needed, only this log mends the row.
    holds_doubt: bool,
}

/// The flushes of one member, numbered.
#[derive(Clone, Copy, Default)]
struct MemberFlushes {
    begun: u64,
    ended: u64,
    /// Another one begins when this one has ended.
    again: bool,
}

/// The logs of all members.
pub(crate) struct PartialParityLog {
    area_sectors: u64,
    /// Of the last log of any member.
    generation: u64,
    /// By slot.
    members: Vec<MemberLog>,
    /// By slot.
    flushes: Vec<MemberFlushes>,
    /// Operations without a log, whose parity's member is lost: they wait until that is recorded.
    unrecorded: Vec<u32>,
    /// Operations wait.
    is_busy: bool,
    /// Something has changed since the last step.
    has_news: bool,
}

impl PartialParityLog {
    /// Every member has an area of this size, which is empty.
    pub(crate) fn new(area_sectors: u64, members: usize) -> PartialParityLog {
        PartialParityLog {
            area_sectors,
            generation: 0,
            members: (0..members).map(|_| MemberLog::default()).collect(),
            flushes: vec![MemberFlushes::default(); members],
            unrecorded: Vec::new(),
            is_busy: false,
            has_news: false,
        }
    }

    /// A log holds this much partial parity at most.
    fn room_bytes(&self) -> u64 {
        let area = self.area_sectors.saturating_sub(PPL_HEADER_SECTORS) * SECTOR_BYTES;
        area.min(PARTIAL_PARITY_BYTES_MAX.into())
    }

    /// A device that was prepared has taken the slot: its log is empty.
    pub(crate) fn begin_member(&mut self, member: u16) {
        let log = &mut self.members[usize::from(member)];
        debug_assert!(log.in_log.is_empty(), "the former member's operations have ended");
        self.unrecorded.extend(log.waiting.drain(..));
        *log = MemberLog { open: log.open, ..MemberLog::default() };
    }

    /// Whether another step may change something without an event.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// The superblocks say that a resync is needed, and account for every row in doubt.
    pub(crate) fn doubt_recorded(&mut self) {
        self.members.iter_mut().for_each(|log| log.holds_doubt = false);
    }

    /// Completed writes may be lost.
    pub(crate) fn doubt_all(&mut self) {
        self.members.iter_mut().for_each(|log| log.holds_doubt = true);
    }
}

impl MemberLog {
    /// Whether an operation that writes all data blocks of this range needs no further log.
    fn names(&self, stripe: StripeNo, start: u64, end: u64) -> bool {
        let holds =
            |named: &Named| named.stripe == stripe && named.start <= start && end <= named.end;
        let overlaps =
            |named: &Named| named.stripe == stripe && named.start < end && start < named.end;
        !self.is_writing && self.named.iter().any(holds) && !self.partial.iter().any(overlaps)
    }
}

impl Stripes {
    /// Whether the write of this operation is logged with the data that it leaves alone: not if it
    /// writes all data blocks that are there, nor without parity.
    ///
    /// Where it writes a lost block, only parity has that, and no log can tell old from new; the
    /// entry is one of a full stripe, which a recovery leaves out while the block is lost.
    pub(super) fn wants_partial_parity(&self, at: u32, parity: Option<ParityWork>) -> bool {
        let op = &self.ops[at];
        let data = op.cells.len() - 2;
        self.log.is_some()
            && op.class.kind == OpKind::Write
            && !matches!(parity, None | Some(ParityWork::None))
            && op.covered.len() < data
            && op.covered.intersection(op.absent).is_empty()
    }

    /// Emits the computation of the partial parity, from what is in memory before parity changes.
    pub(super) fn compute_partial_parity(&self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let row = cx.parity().row(op.stripe);
        let data = row.data.len() as u16;
        let from = match op.parity {
            // What is left alone is not in memory: old parity without the old data.
            Some(ParityWork::Update) => op.covered.union(MemberSet::one(data)),
            _ => MemberSet::range(0, data).minus(op.covered),
        };
        let first = cx.out.sources.len() as u32;
        for position in from.iter() {
            let slice = op.scratch_slice(self.region, position, op.start, op.sectors());
            cx.out.sources.push(Source { exponent: 0, slice });
        }
        let sources = first..cx.out.sources.len() as u32;
        let token = Token::new(Kind::StripeCompute, 0, self.ops.key(at));
        let dst = self.partial_parity_slice(at).expect("the plan gave it memory");
        cx.out.list.push(Effect::Compute { token, job: Compute::Xor { dst, sources } });
    }

    fn partial_parity_slice(&self, at: u32) -> Option<BufSlice> {
        let op = &self.ops[at];
        let len = (op.sectors() * SECTOR_BYTES) as u32;
        op.partial.map(|block| BufSlice { region: self.region, len, offset: block.offset })
    }

    /// All that an operation writes is in memory. Writes it, if the log allows that now.
    pub(super) fn log_then_write(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let is_logged = matches!(op.class.kind, OpKind::Write | OpKind::Discard);
        let Some(log) = self.log.as_mut().filter(|_| is_logged) else {
            return self.send_writes(cx, at);
        };
        let row = cx.parity().row(op.stripe);
        let has_log = !cx.health.is_failed(row.p.0)
            && !op.absent.contains(row.data.len() as u16)
            && op.parity != Some(ParityWork::None);
        let member = &mut log.members[row.p.index()];
        if !has_log {
            if cx.health.is_recorded() {
                return self.send_writes(cx, at);
            }
            log.unrecorded.push(at);
        } else if op.partial.is_none()
            && member.waiting.is_empty()
            && member.names(op.stripe, op.start, op.end)
        {
            member.open += 1;
            self.ops[at].in_log = true;
            return self.send_writes(cx, at);
        } else {
            member.waiting.push_back(at);
        }
        (log.is_busy, log.has_news) = (true, true);
        self.ops[at].phase = Phase::Logging;
    }

    /// Takes the next step of every log with operations that wait.
    pub(super) fn run_log(&mut self, cx: &mut Context<'_>) {
        let Some(log) = self.log.as_mut().filter(|log| log.is_busy) else { return };
        (log.is_busy, log.has_news) = (false, false);
        let members = log.members.len() as u16;
        if cx.health.is_unrecordable() {
            return self.fail_waiting(cx, RequestError::Io);
        }
        if cx.health.is_recorded() {
            for at in std::mem::take(&mut log.unrecorded) {
                self.send_writes(cx, at);
            }
        }
        for member in 0..members {
            self.run_member_log(cx, member);
        }
        let Some(log) = &mut self.log else { return };
        log.is_busy |= !log.unrecorded.is_empty()
            || log.members.iter().any(|member| !member.waiting.is_empty());
    }

    fn run_member_log(&mut self, cx: &mut Context<'_>, at: u16) {
        let Some(log) = &mut self.log else { return };
        let member = &mut log.members[usize::from(at)];
        if member.waiting.is_empty() {
            return;
        }
        if cx.health.is_failed(at) {
            // Parity is lost: there is nothing to protect, once that is recorded.
            log.unrecorded.extend(member.waiting.drain(..));
            (log.is_busy, log.has_news) = (true, true);
            return;
        }
        if member.is_writing || member.open > 0 {
            return;
        }
        if member.awaited.is_empty() && !member.unflushed.is_empty() {
            let written = std::mem::take(&mut member.unflushed);
            for other in written.minus(cx.health.failed()).iter() {
                let flushes = &mut log.flushes[usize::from(other)];
                let number = flushes.begun + 1;
                member.awaited.push((other, number));
                match flushes.begun == flushes.ended {
                    true => begin_flush(flushes, other, cx),
                    false => flushes.again = true,
                }
            }
        }
        let (flushes, failed) = (&log.flushes, cx.health.failed());
        member.awaited.retain(|(other, number)| {
            !failed.contains(*other) && flushes[usize::from(*other)].ended < *number
        });
        let is_flushed = member.awaited.is_empty() && member.unflushed.is_empty();
        if !is_flushed || !cx.health.is_recorded() || member.holds_doubt {
            return;
        }
        self.write_log(cx, at);
    }

    /// Writes the next log of a member, with all operations that fit.
    fn write_log(&mut self, cx: &mut Context<'_>, at: u16) {
        let Some(log) = &mut self.log else { return };
        let (area, room) = (log.area_sectors, log.room_bytes());
        let member = &mut log.members[usize::from(at)];
        let (parity, chunk) = (cx.parity(), cx.geometry.chunk_sectors());
        let data = parity.data_disks() as u64;
        member.named.clear();
        member.partial.clear();
        let first = cx.out.log_entries.len() as u32;
        let first_slice = cx.out.slices.len() as u32;
        let mut bytes = 0;
        let mut last_full = None;
        let mut count = 0;
        while count < ENTRIES_MAX
            && let Some(next) = member.waiting.front().copied()
        {
            let op = &self.ops[next];
            let sectors = op.sectors();
            let pp_bytes = if op.partial.is_some() { sectors * SECTOR_BYTES } else { 0 };
            if count > 0 && bytes + pp_bytes > room {
                break;
            }
            let (mut index, mut start, mut blocks) = (0, op.start, data);
            let mut length = sectors;
            if let Some(block) = op.partial {
                index = op.covered.iter().next().expect("a write covers something");
                blocks = op.covered.len() as u64;
                let len = pp_bytes as u32;
                let slice = BufSlice { region: self.region, len, offset: block.offset };
                cx.out.slices.push(slice);
                member.partial.push(Named { stripe: op.stripe, start: op.start, end: op.end });
            } else {
                if data * chunk * SECTOR_BYTES <= u64::from(u32::MAX) {
                    // The whole row: its other parts may follow without a log of their own.
                    (start, length) = (0, chunk);
                    if op.covered.len() as u64 == data {
                        last_full = Some(op.stripe);
                    }
                }
                let is_named = |named: &Named| named.stripe == op.stripe && start == named.start;
                if member.named.iter().any(is_named) {
                    member.waiting.pop_front();
                    member.in_log.push(next);
                    continue;
                }
                member.named.push(Named { stripe: op.stripe, start, end: start + length });
            }
            cx.out.log_entries.push(PplEntry {
                data_sector: parity.array_sector(op.stripe, index, start).0,
                pp_bytes: pp_bytes as u32,
                data_bytes: (blocks * length * SECTOR_BYTES) as u32,
                parity_slot: at.into(),
                checksum: 0,
            });
            bytes += pp_bytes;
            count += 1;
            member.waiting.pop_front();
            member.in_log.push(next);
        }
        // A stream of full stripes does not wait: rows that it will reach are named, too. That is
        // true of any row at any time, as far as a recovery is concerned.
        let mut ahead = last_full;
        while count < AHEAD
            && let Some(stripe) = ahead
        {
            let next = StripeNo(stripe.0 + parity.rotation() as u64);
            let is_mine = next.0 < parity.stripes() && parity.row(next).p.0 == at;
            ahead = is_mine.then_some(next);
            if is_mine && member.named.iter().all(|named| named.stripe != next) {
                member.named.push(Named { stripe: next, start: 0, end: chunk });
                cx.out.log_entries.push(PplEntry {
                    data_sector: parity.array_sector(next, 0, 0).0,
                    pp_bytes: 0,
                    data_bytes: (data * chunk * SECTOR_BYTES) as u32,
                    parity_slot: at.into(),
                    checksum: 0,
                });
                count += 1;
            }
        }
        let sectors = bytes / SECTOR_BYTES;
        let multiple = area >= MULTIPLE_LEAST_SECTORS;
        let place = place_log(area, multiple, member.end, sectors).expect("a log fits its area");
        member.end_next = place + PPL_HEADER_SECTORS + sectors;
        member.is_writing = true;
        log.generation += 1;
        let token = Token::new(Kind::Log, at, Key { index: 0, generation: 0 });
        cx.out.list.push(Effect::WriteLog {
            token,
            member: MemberIdx(at),
            sector: Sector(place),
            generation: log.generation,
            entries: first..cx.out.log_entries.len() as u32,
            slices: first_slice..cx.out.slices.len() as u32,
        });
    }

    /// The write of a log is late: its partial parity is given to nothing else.
    pub(crate) fn hold_log(&mut self, member: u16) {
        let Some(log) = &mut self.log else { return };
        let mine = &mut log.members[usize::from(member)];
        let blocks = mine.in_log.iter().filter_map(|at| self.ops[*at].partial.take());
        mine.late.extend(blocks);
    }

    /// The late write of a log has completed.
    pub(crate) fn release_log(&mut self, member: u16) {
        let Some(log) = &mut self.log else { return };
        let late = log.members[usize::from(member)].late.drain(..);
        late.for_each(|block| self.scratch.give_back(block));
    }

    /// A log is durable, or could not be written.
    pub(crate) fn log_written(
        &mut self,
        cx: &mut Context<'_>,
        member: u16,
        result: Result<(), IoError>,
    ) {
        let Some(log) = &mut self.log else { unreachable!("only logs are written as logs") };
        let mine = &mut log.members[usize::from(member)];
        mine.is_writing = false;
        let ops = std::mem::take(&mut mine.in_log);
        let Err(error) = result else {
            mine.end = mine.end_next;
            mine.open += ops.len() as u32;
            for at in ops {
                self.ops[at].in_log = true;
                self.send_writes(cx, at);
            }
            return;
        };
        // Nothing is written under it. The next log takes its place, whatever is there now.
        mine.named.clear();
        log.is_busy = true;
        let lacks = error.kind.lacks();
        if lacks.is_none() && cx.health.drop_member(cx.geometry, member, Some(error), cx.out) {
            // Without its parity the rows need no log, once the loss is recorded.
            return log.unrecorded.extend(ops);
        }
        for at in ops {
            self.ops[at].error = lacks.or(Some(RequestError::Io));
            self.end(cx, at);
        }
    }

    /// A flush for the log has ended.
    pub(crate) fn log_flushed(
        &mut self,
        cx: &mut Context<'_>,
        member: u16,
        result: Result<(), IoError>,
    ) {
        let Some(log) = &mut self.log else { unreachable!("only logs flush for the log") };
        let flushes = &mut log.flushes[usize::from(member)];
        let number = flushes.begun;
        flushes.ended = number;
        let is_needed = std::mem::take(&mut flushes.again);
        let is_lost = match result {
            Ok(()) => false,
            // Repeated with the next log.
            Err(error) if error.kind.lacks().is_some() => {
                for log in &mut log.members {
                    if log.awaited.contains(&(member, number)) {
                        log.unflushed.insert(member);
                    }
                }
                false
            }
            Err(error) => !cx.health.drop_member(cx.geometry, member, Some(error), cx.out),
        };
        if is_needed && !cx.health.is_failed(member) {
            begin_flush(&mut log.flushes[usize::from(member)], member, cx);
        }
        log.is_busy = true;
        if is_lost {
            let member = MemberIdx(member);
            cx.out.list.push(Effect::Control(ControlEvent::NotDurable { member }));
            log.doubt_all();
            self.sync.doubt_all(crate::intent_map::span(cx.geometry));
        }
    }

    /// An operation that was logged has ended, as far as members are concerned.
    pub(super) fn left_log(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        if let (Some(log), true) = (&mut self.log, op.in_log) {
            let row = cx.parity().row(op.stripe);
            let mine = &mut log.members[row.p.index()];
            mine.open -= 1;
            if op.half_way {
                // Before its request ends, which may wait for this log in other rows. (An array
                // with a log has a single intent.)
                mine.holds_doubt = true;
                cx.health.report_out_of_sync(0);
                let event = ControlEvent::OutOfSync { first_bit: 0, bits: 1 };
                cx.out.list.push(Effect::Control(event));
            }
            if !op.fua || op.error.is_some() {
                for position in op.changed.iter() {
                    mine.unflushed.insert(member_at(row, position).0);
                }
            }
            (log.is_busy, log.has_news) = (true, true);
        }
    }

    /// What waits for a loss to be recorded has no answer to wait for.
    pub(crate) fn fail_waiting(&mut self, cx: &mut Context<'_>, error: RequestError) {
        let Some(log) = &mut self.log else { return };
        let mut waiting = std::mem::take(&mut log.unrecorded);
        log.members.iter_mut().for_each(|log| waiting.extend(log.waiting.drain(..)));
        for at in waiting {
            self.ops[at].error = Some(error);
            self.end(cx, at);
        }
    }
}

impl Rows {
    /// A log can name only neighbouring blocks: writes that would leave one out between them are
    /// put back, and follow.
    pub(super) fn take_neighbours_only(&mut self, row: u32) {
        let Rows { table, pieces, taken, .. } = self;
        if taken.len() < 2 || pieces[taken[0]].class.kind != OpKind::Write {
            return;
        }
        taken.sort_unstable_by_key(|at| pieces[*at].index);
        let mut kept: Vec<u32> = Vec::with_capacity(taken.len());
        let mut back = 0;
        for at in taken.iter() {
            let piece = &pieces[*at];
            let shared = |start: u64, end: u64, other: &ChunkIo| {
                other.end.min(end).saturating_sub(other.start.max(start))
            };
            let is_next = kept.iter().map(|other| &pieces[*other]).all(|other| {
                let (start, end) = (other.start.max(piece.start), other.end.min(piece.end));
                let before = kept.iter().map(|before| &pieces[*before]);
                let before = before.filter(|before| before.index + 1 == piece.index);
                other.index == piece.index
                    || start >= end
                    || before.map(|before| shared(start, end, before)).sum::<u64>() == end - start
            });
            if is_next {
                kept.push(*at);
            } else {
                table[row].pending.insert(back, *at);
                table[row].pending_write_sectors += piece.end - piece.start;
                back += 1;
            }
        }
        *taken = kept;
    }
}

fn begin_flush(flushes: &mut MemberFlushes, member: u16, cx: &mut Context<'_>) {
    flushes.begun += 1;
    let token = Token::new(Kind::LogFlush, member, Key { index: 0, generation: 0 });
    cx.out.list.push(Effect::Flush { token, member: MemberIdx(member) });
}
