//! The partial parity log: what must be durable before data and parity of a row are written.
//!
//! ```text
//! parity computed --> waiting --> log written --> data and parity --> ended --> flushed
//!                        ^  several operations of the parity's member     |
//!                        +----------- joins: the log names its row -------+
//! ```
//! Invariant: a recovery uses only the newest log of a member. So every write of a row whose parity
//! is in service is named in the newest log of the parity's member until its data and parity are
//! durable. The next log names full stripes again that are not durable yet: it has no partial
//! parity of them that could be torn. All else must be durable before it is written, and every loss
//! of a member so far recorded. Called only from `ops`, and once per batch from
//! `Stripes::plan_batch`. See decision 0018.

use std::collections::VecDeque;

use md::ondisk::ppl::{
    ENTRIES_MAX, MULTIPLE_LEAST_SECTORS, PARTIAL_PARITY_BYTES_MAX, PPL_HEADER_SECTORS, PplEntry,
    place_log,
};
use md::{MemberIdx, Parity, SECTOR_BYTES, Sector, StripeNo};

use super::op::{Op, OpKind, Phase, member_at};
use super::plan::ParityWork;
use super::rows::{ChunkIo, Rows};
use super::scratch::Block;
use super::{Context, Stripes};
use crate::slab::Key;
use crate::token::Kind;
use crate::{
    BufSlice, Compute, ControlEvent, Effect, IoError, MemberSet, RequestError, Source, Token,
};

/// The next log is written when a stream of full stripes has fewer named rows ahead of it.
const LEAST_AHEAD: u64 = 48;
/// Members are flushed when this number of full stripes of one log have ended and may not be
/// durable: the next log has to name them again, and names fewer rows ahead.
const UNFLUSHED_MOST: usize = 48;

/// A range of a chunk row that a log names.
#[derive(Clone, Copy)]
struct Named {
    stripe: StripeNo,
    /// Sectors of the chunk.
    start: u64,
    end: u64,
}

/// What a log permits and demands.
#[derive(Default)]
struct Names {
    /// What it names as written in all data blocks.
    full: Vec<Named>,
    /// What it has partial parity of: true until the blocks are written that it is made of.
    partial: Vec<Named>,
    /// Streams of full stripes, and the rows that are named ahead of them.
    ahead: Vec<Ahead>,
}

/// Rows named ahead of a stream of full stripes.
struct Ahead {
    /// The last row that the stream has written.
    at: StripeNo,
    /// The last row that is named; beyond all rows if none is left.
    to: StripeNo,
    /// The stream has written rows of it.
    is_used: bool,
}

/// A write of all data blocks in a range of a row, from the log on until it is durable.
struct FullWrite {
    named: Named,
    end: WriteEnd,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteEnd {
    /// This operation performs it.
    Open(u32),
    /// It is durable when this round of flushes has ended.
    Round(u64),
}

/// The log of one member.
#[derive(Default)]
struct MemberLog {
    /// The end of the newest log, in sectors of the area.
    end: u64,
    newest: Names,
    /// The log that is being written: its end, and its names.
    next: Option<(u64, Names)>,
    /// A stream of full stripes will soon have written all rows that are named.
    is_running_out: bool,
    /// Operations that wait for the next log.
    waiting: VecDeque<u32>,
    /// Operations of the log that is being written.
    in_log: Vec<u32>,
    /// Writes of all data blocks that may not be durable. Each is named by the newest log, and by
    /// the next one.
    full: Vec<FullWrite>,
    /// Other operations that write under the newest log.
    open: u32,
    /// Those that have ended are durable when this round of flushes has ended.
    round: u64,
    /// A write of the newest log has failed half-way: until the superblocks say that a resync is
    /// needed, only this log mends the row.
    holds_doubt: bool,
}

/// Flushes of all members that have been written, one round after the other.
#[derive(Default)]
struct FlushRounds {
    begun: u64,
    /// All writes that had ended before this round began are durable.
    ended: u64,
    /// Members whose flush of this round has not ended.
    open: MemberSet,
    /// A flush of this round had no memory.
    incomplete: bool,
    /// Members written since the last round began.
    written: MemberSet,
}

/// The logs of all members.
pub(crate) struct PartialParityLog {
    area_sectors: u64,
    /// Of the last log of any member.
    generation: u64,
    /// By slot.
    members: Vec<MemberLog>,
    flushes: FlushRounds,
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
            flushes: FlushRounds::default(),
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
        let mut kept = MemberLog { open: log.open, round: log.round, ..MemberLog::default() };
        for write in &log.full {
            match write.end {
                WriteEnd::Open(_) => kept.open += 1,
                WriteEnd::Round(round) => kept.round = kept.round.max(round),
            }
        }
        *log = kept;
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

impl Named {
    fn overlaps(&self, other: &Named) -> bool {
        self.stripe == other.stripe && self.start < other.end && other.start < self.end
    }
}

impl Names {
    /// Whether an operation that writes all data blocks of this range may begin.
    fn permit(&self, range: &Named) -> bool {
        let holds = |named: &Named| {
            named.stripe == range.stripe && named.start <= range.start && range.end <= named.end
        };
        self.full.iter().any(holds) && !self.partial.iter().any(|named| named.overlaps(range))
    }

    /// Names a range of a row as written in all data blocks; `false`: it was named before.
    fn add_full(&mut self, range: Named) -> bool {
        let is_new = !self.full.iter().any(|named| {
            named.stripe == range.stripe && named.start <= range.start && range.end <= named.end
        });
        if is_new {
            self.full.push(range);
        }
        is_new
    }

    /// Names rows ahead of streams of full stripes, so that those need not wait for each log. An
    /// entry of a full stripe is true of any row at any time, as far as a recovery is concerned.
    fn name_ahead(&mut self, cx: &mut Context<'_>, at: u16, streams: &[StripeNo], room: usize) {
        let (parity, chunk) = (cx.parity(), cx.geometry.chunk_sectors());
        let after = |stripe: StripeNo| StripeNo(stripe.0 + parity.rotation() as u64);
        let is_named = |full: &[Named], stripe: StripeNo| {
            full.iter().any(|named| named.stripe == stripe && named.end - named.start == chunk)
        };
        for &stripe in streams {
            let is_new = self.ahead.iter().all(|stream| stream.to != stripe);
            if is_new && !is_named(&self.full, after(stripe)) {
                self.ahead.push(Ahead { at: stripe, to: stripe, is_used: false });
            }
        }
        let mut ahead = std::mem::take(&mut self.ahead);
        let mut left = room;
        while left > 0 && ahead.iter().any(|stream| stream.to.0 < parity.stripes()) {
            for stream in ahead.iter_mut().filter(|stream| stream.to.0 < parity.stripes()) {
                if left == 0 {
                    break;
                }
                let next = after(stream.to);
                let is_mine = next.0 < parity.stripes() && parity.row(next).p.0 == at;
                stream.to = if is_mine { next } else { StripeNo(u64::MAX) };
                let named = whole_row(cx, Named { stripe: next, start: 0, end: chunk });
                if is_mine && self.add_full(named) {
                    cx.out.log_entries.push(full_entry(parity, at, &named));
                    left -= 1;
                }
            }
        }
        self.ahead = ahead;
    }

    /// A stream may have written this row.
    fn pass(&mut self, stripe: StripeNo) -> Option<StripeNo> {
        let stream = self.ahead.iter_mut().find(|it| it.at <= stripe && stripe <= it.to)?;
        (stream.at, stream.is_used) = (stripe, true);
        Some(stream.to)
    }
}

impl MemberLog {
    /// Whether an operation that writes all data blocks of this range needs no further log.
    fn permits(&self, range: &Named) -> bool {
        // Whichever of the two a power cut leaves.
        let next = self.next.as_ref();
        self.newest.permit(range) && next.is_none_or(|(_, names)| names.permit(range))
    }

    /// An operation of a full stripe begins under the names. Returns whether a stream of them needs
    /// the next log soon.
    fn passed(&mut self, stripe: StripeNo, parity: &Parity) -> bool {
        let least = LEAST_AHEAD * parity.rotation() as u64;
        let to = self.newest.pass(stripe);
        match &mut self.next {
            Some((_, names)) => drop(names.pass(stripe)),
            None => self.is_running_out |= to.is_some_and(|to| to.0 - stripe.0 < least),
        }
        self.is_running_out
    }

    /// Forgets the writes that are durable.
    fn trim(&mut self, flushes: &FlushRounds) {
        self.full.retain(|write| match write.end {
            WriteEnd::Open(_) => true,
            WriteEnd::Round(round) => round > flushes.ended,
        });
    }

    /// Full stripes that the next round would make durable.
    fn unflushed(&self, flushes: &FlushRounds) -> usize {
        let next = WriteEnd::Round(flushes.begun + 1);
        self.full.iter().filter(|write| write.end == next).count()
    }
}

impl FlushRounds {
    /// The round after which what ends now is durable.
    fn next(&self) -> u64 {
        self.begun + 1
    }

    fn is_under_way(&self) -> bool {
        self.ended < self.begun && !self.incomplete
    }

    /// Begins a round, unless one is under way: that ends first. Returns whether it has ended,
    /// since no member that is in service has been written.
    fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        if self.is_under_way() || !self.open.minus(cx.health.failed()).is_empty() {
            return false;
        }
        self.begun += 1;
        self.incomplete = false;
        self.open = std::mem::take(&mut self.written).minus(cx.health.failed());
        for member in self.open.iter() {
            let token = Token::new(Kind::LogFlush, member, Key { index: 0, generation: 0 });
            cx.out.list.push(Effect::Flush { token, member: MemberIdx(member) });
        }
        self.end_if_done(cx);
        self.ended == self.begun
    }

    fn end_if_done(&mut self, cx: &Context<'_>) {
        if self.open.minus(cx.health.failed()).is_empty() && !self.incomplete {
            self.ended = self.begun;
        }
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
            && op.covered.intersection(op.basis.absent).is_empty()
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
        cx.out.compute(token, Compute::Xor { dst, sources });
    }

    fn partial_parity_slice(&self, at: u32) -> Option<BufSlice> {
        let op = &self.ops[at];
        let len = (op.sectors() * SECTOR_BYTES) as u32;
        op.partial().map(|block| BufSlice { region: self.region, len, offset: block.offset })
    }

    /// All that an operation writes is in memory. Writes it, if the log allows that now.
    pub(super) fn log_then_write(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let is_logged = op.write().is_some();
        let Some(log) = self.log.as_mut().filter(|_| is_logged) else {
            return self.send_writes(cx, at);
        };
        let row = cx.parity().row(op.stripe);
        let has_log = !cx.health.is_failed(row.p.0)
            && !op.basis.absent.contains(row.data.len() as u16)
            && op.parity != Some(ParityWork::None);
        let member = &mut log.members[row.p.index()];
        if !has_log {
            if cx.health.is_recorded() {
                return self.send_writes(cx, at);
            }
            log.unrecorded.push(at);
        } else {
            let range = Named { stripe: op.stripe, start: op.start, end: op.end };
            // It writes a lost block beside data that it leaves alone. Until the loss is on record,
            // a recovery takes the old block for that data's.
            let leaves_data = op.covered.len() < row.data.len();
            let is_early = leaves_data && !cx.health.is_recorded();
            if op.partial().is_none() && !is_early && member.permits(&range) {
                if member.passed(op.stripe, cx.parity()) {
                    (log.is_busy, log.has_news) = (true, true);
                }
                member.full.push(FullWrite { named: range, end: WriteEnd::Open(at) });
                self.ops[at].note_logged();
                return self.send_writes(cx, at);
            }
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
        let is_busy = |log: &MemberLog| !log.waiting.is_empty() || log.is_running_out;
        // A round that has ended at once is looked at in one more step, also if nothing waits.
        log.is_busy |=
            log.has_news || !log.unrecorded.is_empty() || log.members.iter().any(is_busy);
    }

    fn run_member_log(&mut self, cx: &mut Context<'_>, at: u16) {
        let Some(log) = &mut self.log else { return };
        let member = &mut log.members[usize::from(at)];
        if cx.health.is_failed(at) {
            // Parity is lost: there is nothing to protect, once that is recorded.
            member.is_running_out = false;
            if !member.waiting.is_empty() {
                log.unrecorded.extend(member.waiting.drain(..));
                (log.is_busy, log.has_news) = (true, true);
            }
            return;
        }
        log.flushes.end_if_done(cx);
        member.trim(&log.flushes);
        if member.unflushed(&log.flushes) >= UNFLUSHED_MOST {
            log.has_news |= log.flushes.begin(cx);
        }
        let has_work = !member.waiting.is_empty() || member.is_running_out;
        if !has_work || member.next.is_some() || member.open > 0 {
            return;
        }
        if member.round > log.flushes.ended {
            log.has_news |= log.flushes.begin(cx);
            return;
        }
        if cx.health.is_recorded() && !member.holds_doubt {
            self.write_log(cx, at);
        }
    }

    /// Writes the next log of a member, with all operations that fit, unless flushes come first.
    fn write_log(&mut self, cx: &mut Context<'_>, at: u16) {
        let Some(log) = &mut self.log else { return };
        let (area, room) = (log.area_sectors, log.room_bytes());
        let member = &mut log.members[usize::from(at)];
        let mut names = Names::default();
        for write in &member.full {
            names.add_full(whole_row(cx, write.named));
        }
        let multiple = area >= MULTIPLE_LEAST_SECTORS;
        let demand: u64 = member.waiting.iter().map(|at| self.ops[*at].partial_sectors()).sum();
        let place = place_log(area, multiple, member.end, demand.min(room / SECTOR_BYTES));
        // A log at the start of the area hides all others if it is torn.
        let hides = place == Some(0) && member.end > 0 && !member.full.is_empty();
        // Others are still being written.
        let has_ended = member.full.iter().any(|it| matches!(it.end, WriteEnd::Round(_)));
        if hides || names.full.len() >= ENTRIES_MAX {
            log.has_news |= has_ended && log.flushes.begin(cx);
            return;
        }
        let (first, first_slice) = (cx.out.log_entries.len(), cx.out.slices.len());
        for named in &names.full {
            cx.out.log_entries.push(full_entry(cx.parity(), at, named));
        }
        let mut cursors: Vec<StripeNo> = Vec::new();
        let mut bytes = 0;
        let mut is_full = false;
        for next in std::mem::take(&mut member.waiting) {
            let op = &self.ops[next];
            let range = Named { stripe: op.stripe, start: op.start, end: op.end };
            let pp_bytes = op.partial_sectors() * SECTOR_BYTES;
            is_full |= cx.out.log_entries.len() - first >= ENTRIES_MAX;
            is_full |= bytes > 0 && bytes + pp_bytes > room;
            // Partial parity is of blocks that are durable.
            let is_doubtful =
                op.partial().is_some() && member.full.iter().any(|it| it.named.overlaps(&range));
            if is_full || is_doubtful {
                member.waiting.push_back(next);
                if is_doubtful {
                    log.has_news |= has_ended && log.flushes.begin(cx);
                }
                continue;
            }
            member.in_log.push(next);
            if let Some(block) = op.partial() {
                let len = pp_bytes as u32;
                cx.out.slices.push(BufSlice { region: self.region, len, offset: block.offset });
                cx.out.log_entries.push(partial_entry(cx.parity(), at, op));
                names.partial.push(range);
                bytes += pp_bytes;
                continue;
            }
            if op.covered.len() == op.cells.len() - 2 {
                cursors.push(op.stripe);
            }
            let named = whole_row(cx, range);
            if names.add_full(named) {
                cx.out.log_entries.push(full_entry(cx.parity(), at, &named));
            }
        }
        let is_ahead = std::mem::take(&mut member.is_running_out);
        if member.in_log.is_empty() && !is_ahead {
            return cx.out.log_entries.truncate(first);
        }
        cursors.extend(member.newest.ahead.iter().filter(|it| it.is_used).map(|it| it.at));
        names.name_ahead(cx, at, &cursors, ENTRIES_MAX + first - cx.out.log_entries.len());
        let sectors = bytes / SECTOR_BYTES;
        let place = place_log(area, multiple, member.end, sectors).expect("a log fits its area");
        member.next = Some((place + PPL_HEADER_SECTORS + sectors, names));
        log.generation += 1;
        let token = Token::new(Kind::Log, at, Key { index: 0, generation: 0 });
        cx.out.list.push(Effect::WriteLog {
            token,
            member: MemberIdx(at),
            sector: Sector(place),
            generation: log.generation,
            entries: first as u32..cx.out.log_entries.len() as u32,
            slices: first_slice as u32..cx.out.slices.len() as u32,
        });
    }

    /// The write of a log is late: its partial parity is left behind. Returns the blocks.
    pub(super) fn leave_log(&mut self, member: u16) -> Vec<Block> {
        let log = self.log.as_ref().expect("only logs are written as logs");
        let in_log = &log.members[usize::from(member)].in_log;
        let blocks: Vec<Block> =
            in_log.iter().filter_map(|at| self.ops[*at].take_partial()).collect();
        for block in &blocks {
            self.scratch.hold(*block);
            self.scratch.give_back(*block);
        }
        blocks
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
        let (end, names) = mine.next.take().expect("it was being written");
        let ops = std::mem::take(&mut mine.in_log);
        log.is_busy = true;
        let Err(error) = result else {
            (mine.end, mine.newest) = (end, names);
            for at in &ops {
                let op = &mut self.ops[*at];
                op.note_logged();
                if op.partial().is_some() {
                    mine.open += 1;
                    continue;
                }
                let named = Named { stripe: op.stripe, start: op.start, end: op.end };
                mine.full.push(FullWrite { named, end: WriteEnd::Open(*at) });
            }
            ops.into_iter().for_each(|at| self.send_writes(cx, at));
            return;
        };
        // No operation of it begins. The next log takes its place, whatever is there now: that is
        // this log or the one before, and nothing begins that only one of them names.
        mine.newest = Names::default();
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
        log.flushes.open.remove(member);
        let is_lost = match result {
            Ok(()) => false,
            // Repeated with the next round.
            Err(error) if error.kind.lacks().is_some() => {
                log.flushes.written.insert(member);
                log.flushes.incomplete = true;
                false
            }
            Err(error) => !cx.health.drop_member(cx.geometry, member, Some(error), cx.out),
        };
        log.flushes.end_if_done(cx);
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
        if let (Some(log), Some(write)) = (&mut self.log, op.write())
            && write.in_log
        {
            let row = cx.parity().row(op.stripe);
            let mine = &mut log.members[row.p.index()];
            let is_flushed = write.fua && op.error.is_none();
            let round = log.flushes.next();
            match mine.full.iter().position(|write| write.end == WriteEnd::Open(at)) {
                Some(index) if is_flushed => drop(mine.full.swap_remove(index)),
                Some(index) => mine.full[index].end = WriteEnd::Round(round),
                None => {
                    mine.open -= 1;
                    mine.round = if is_flushed { mine.round } else { round };
                }
            }
            if op.half_way {
                // Before its request ends, which may wait for this log in other rows. (An array
                // with a log has a single intent.)
                mine.holds_doubt = true;
                cx.health.report_out_of_sync(0);
                let event = ControlEvent::OutOfSync { first_bit: 0, bits: 1 };
                cx.out.list.push(Effect::Control(event));
            }
            if !is_flushed {
                for position in op.changed.iter() {
                    log.flushes.written.insert(member_at(row, position).0);
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

/// The range of a row that an entry of a full stripe names: all of it, so that its other parts may
/// follow without a log of their own, if the entry can hold that many bytes.
fn whole_row(cx: &Context<'_>, range: Named) -> Named {
    let chunk = cx.geometry.chunk_sectors();
    let bytes = cx.parity().data_disks() as u64 * chunk * SECTOR_BYTES;
    match u32::try_from(bytes) {
        Ok(_) => Named { start: 0, end: chunk, ..range },
        Err(_) => range,
    }
}

/// Says that parity is the XOR of all data.
fn full_entry(parity: &Parity, member: u16, named: &Named) -> PplEntry {
    let sectors = parity.data_disks() as u64 * (named.end - named.start);
    PplEntry {
        data_sector: parity.array_sector(named.stripe, 0, named.start).0,
        pp_bytes: 0,
        data_bytes: (sectors * SECTOR_BYTES) as u32,
        parity_slot: member.into(),
        checksum: 0,
    }
}

/// Says that parity is the XOR of the blocks that the operation writes and of what is logged.
fn partial_entry(parity: &Parity, member: u16, op: &Op) -> PplEntry {
    let first = op.covered.iter().next().expect("a write covers something");
    let bytes = op.sectors() * SECTOR_BYTES;
    PplEntry {
        data_sector: parity.array_sector(op.stripe, first, op.start).0,
        pp_bytes: bytes as u32,
        data_bytes: (op.covered.len() as u64 * bytes) as u32,
        parity_slot: member.into(),
        checksum: 0,
    }
}
