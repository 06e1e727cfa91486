//! A scrub of a range of a chunk row, and the comparison of a resync.
//!
//! ```text
//! whole range:  read all blocks --> compare --> agrees: done
//!                     |                |
//! each granule:       +--------------->+--> read, recover what cannot be read, compare sector by
//!                                           sector --> report, or compute, write, report
//! ```
//! Invariant: by a scrub, a block is written only where the verdict of its sector names it, where
//! the mode says that parity follows the data, or where it could not be read and the rest of the
//! row agrees. The range is locked from the reads to the writes. Called only from `ops`.

use md::MemberIdx;

use super::super::in_sync::InSync;
use super::op::{Grain, Phase, Scrub, Work, member_at, positions_of};
use super::ops::positions;
use super::{Context, Stripes};
use crate::token::Kind;
use crate::{
    BufSlice, Compute, ControlEvent, Effect, Effects, MemberSet, Mismatch, MismatchKind,
    RequestError, ScrubMode, Source, Token, Verdict,
};

/// Resyncs after one that found parity different: parity of an array that never was in sync need
/// not be read.
const UNREAD_RESYNCS: u32 = 31;

impl Stripes {
    /// Reads all blocks. `false`: there is not enough memory for it now.
    pub(super) fn start_scrub(&mut self, cx: &mut Context<'_>, at: u32) -> bool {
        let in_sync = self.sync.state(positions(cx, &self.ops[at]));
        self.ops[at].basis.in_sync = in_sync;
        if in_sync != InSync::All || !cx.health.lacking().is_empty() {
            // Nothing is proven by redundancy that is missing, or out of sync.
            self.give_up(cx, at);
            return true;
        }
        let all = self.all_positions(cx, at);
        if !self.take_memory(at, all, false) {
            return false;
        }
        let op = &mut self.ops[at];
        op.phase = Phase::Reading;
        op.open = 0;
        self.send_reads(cx, at, all);
        true
    }

    fn all_positions(&self, cx: &Context<'_>, at: u32) -> MemberSet {
        let row = cx.parity().row(self.ops[at].stripe);
        MemberSet::range(0, row.data.len() as u16 + 1 + u16::from(row.q.is_some()))
    }

    /// All reads have ended: data that could not be read are recovered, a granule at a time.
    pub(super) fn scrub_read(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        if op.error.is_some() {
            return self.end(cx, at);
        }
        let row = cx.parity().row(op.stripe);
        let data = row.data.len() as u16;
        if !positions_of(row, cx.health.lacking()).is_empty() {
            return self.give_up(cx, at);
        }
        if op.read_failed.is_empty() {
            return self.compare(cx, at);
        }
        if op.can_be_cut() {
            return self.split_into(cx, at, Grain::Granule);
        }
        let lost = op.read_failed.intersection(MemberSet::range(0, data));
        let parity = self.all_positions(cx, at).minus(MemberSet::range(0, data));
        if lost.len() > parity.minus(op.read_failed).len() {
            return self.give_up(cx, at);
        }
        let op = &mut self.ops[at];
        op.recover = lost;
        op.basis.p_known = !op.read_failed.contains(data);
        if lost.is_empty() {
            return self.compare(cx, at);
        }
        let jobs = self.jobs(row, at).recover(cx.out);
        let op = &mut self.ops[at];
        op.phase = Phase::Recovering;
        op.open = jobs;
    }

    /// Compares the data with the parity that is left: the whole range at once, or each sector of a
    /// granule.
    pub(super) fn compare(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let row = cx.parity().row(op.stripe);
        let (p, q) = (row.data.len() as u16, row.data.len() as u16 + 1);
        // Parity that has recovered a block agrees with it.
        let spent = match (op.recover.len(), op.basis.p_known) {
            (0, _) => MemberSet::EMPTY,
            (1, true) => MemberSet::one(p),
            (1, false) => MemberSet::one(q),
            _ => MemberSet::range(p, q + 1),
        };
        let left = self.all_positions(cx, at).minus(op.read_failed).minus(spent);
        let (with_p, with_q) = (left.contains(p), left.contains(q));
        let step = if op.can_be_cut() { op.sectors() } else { 1 };
        let (start, end) = (op.start, op.end);
        let mut open = 0;
        if with_p || with_q {
            for from in (start..end).step_by(step as usize) {
                let sources = self.sources(cx, at, from, step, None);
                let p = with_p.then(|| self.part(at, p, from, step));
                let q = with_q.then(|| self.part(at, q, from, step));
                self.emit(cx.out, at, open, Compute::Check { p, q, sources });
                open += 1;
            }
        }
        let op = &mut self.ops[at];
        op.phase = Phase::Checking;
        op.open = u32::from(open);
        if open == 0 {
            self.judged(cx, at);
        }
    }

    /// A comparison has ended.
    pub(crate) fn checked(&mut self, cx: &mut Context<'_>, token: Token, verdict: Verdict) {
        let at = token.key().index;
        match &mut self.ops[at].work {
            Work::Scrub(scrub) => scrub.verdicts[usize::from(token.slot())] = verdict,
            Work::Resync(resync) => resync.agrees = verdict == Verdict::Agree,
            _ => {}
        }
        if self.part_done(at) {
            match self.ops[at].is_scrub() {
                true => self.judged(cx, at),
                false => self.compared(cx, at),
            }
        }
    }

    /// A resync compares the parity in service with the data: after a crash nearly all of it
    /// agrees, and a disk that only reads reads on.
    pub(super) fn compare_parity(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let row = cx.parity().row(op.stripe);
        let (start, sectors) = (op.start, op.sectors());
        let data = row.data.len() as u16;
        let in_service = self.all_positions(cx, at).minus(op.basis.absent);
        let of = |position: u16| {
            in_service.contains(position).then(|| self.part(at, position, start, sectors))
        };
        let (p, q) = (of(data), of(data + 1));
        let sources = self.sources(cx, at, start, sectors, None);
        self.emit(cx.out, at, 0, Compute::Check { p, q, sources });
        let op = &mut self.ops[at];
        op.phase = Phase::Checking;
        op.open = 1;
    }

    /// A resync has compared the parity: what differs is written.
    fn compared(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        if !matches!(&op.work, Work::Resync(resync) if resync.agrees) {
            self.unread_resyncs = UNREAD_RESYNCS;
            return self.compute_parity(cx, at);
        }
        // What agrees may be in the members' caches, from before the crash. (Where parity differs,
        // the metadata manager's flush of all members covers the data.)
        let row = cx.parity().row(op.stripe);
        for position in self.all_positions(cx, at).minus(op.basis.absent).iter() {
            cx.flushes.note_written(member_at(row, position).0);
        }
        self.end(cx, at);
    }

    /// All verdicts are there.
    fn judged(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let Scrub { mode, verdicts } = op.scrub();
        let (mode, agrees) = (*mode, verdicts.iter().all(|verdict| *verdict == Verdict::Agree));
        if op.can_be_cut() {
            return match agrees {
                true => self.end(cx, at),
                false => self.split_into(cx, at, Grain::Granule),
            };
        }
        // What was recovered is no proof of anything if the rest of the row disagrees.
        let is_unproven = !agrees && !op.read_failed.is_empty();
        let is_check = !agrees && mode == ScrubMode::Check;
        if agrees && op.read_failed.is_empty()
            || is_unproven
            || is_check
            || cx.health.is_read_only()
        {
            return self.repaired(cx, at);
        }
        let targets = match agrees {
            true => self.compute_unread(cx, at),
            false => self.compute_right(cx, at, mode),
        };
        let op = &mut self.ops[at];
        op.recover = targets;
        op.phase = Phase::Repairing;
        if op.open == 0 {
            self.write_repair(cx, at);
        }
    }

    /// Parity that could not be read is computed from the data. Returns the blocks to be written.
    fn compute_unread(&mut self, cx: &mut Context<'_>, at: u32) -> MemberSet {
        let op = &self.ops[at];
        let data = cx.parity().row(op.stripe).data.len() as u16;
        let unread = op.read_failed;
        let (start, sectors) = (op.start, op.sectors());
        let of = |position: u16| unread.contains(position);
        self.ops[at].open = 0;
        if of(data) || of(data + 1) {
            let p = of(data).then(|| self.part(at, data, start, sectors));
            let q = of(data + 1).then(|| self.part(at, data + 1, start, sectors));
            let sources = self.sources(cx, at, start, sectors, None);
            self.emit(cx.out, at, 0, Compute::Generate { p, q, sources });
            self.ops[at].open = 1;
        }
        unread
    }

    /// Computes right contents of the blocks that the verdicts name. Returns these.
    fn compute_right(&mut self, cx: &mut Context<'_>, at: u32, mode: ScrubMode) -> MemberSet {
        let op = &self.ops[at];
        let row = cx.parity().row(op.stripe);
        let (p, q) = (row.data.len() as u16, row.data.len() as u16 + 1);
        let (start, end, verdicts) = (op.start, op.end, op.scrub().verdicts);
        let has_q = row.q.is_some();
        let mut targets = MemberSet::EMPTY;
        let mut open = 0;
        for (from, verdict) in (start..end).zip(verdicts) {
            let (with_p, with_q) = match verdict {
                Verdict::P => (true, false),
                Verdict::Q => (false, true),
                Verdict::Unknown if mode == ScrubMode::RepairOrResync => (true, has_q),
                Verdict::Data(index) => {
                    let wrong = row.by_exponent[usize::from(index)];
                    let sources = self.sources(cx, at, from, 1, Some(wrong));
                    let (dst, p) = (self.part(at, wrong, from, 1), self.part(at, p, from, 1));
                    self.emit(cx.out, at, 0, Compute::RecoverFromP { dst, p, sources });
                    targets.insert(wrong);
                    open += 1;
                    continue;
                }
                _ => continue,
            };
            for (position, is_wrong) in [(p, with_p), (q, with_q)] {
                if is_wrong {
                    targets.insert(position);
                }
            }
            let sources = self.sources(cx, at, from, 1, None);
            let p = with_p.then(|| self.part(at, p, from, 1));
            let q = with_q.then(|| self.part(at, q, from, 1));
            self.emit(cx.out, at, 0, Compute::Generate { p, q, sources });
            open += 1;
        }
        self.ops[at].open = open;
        targets
    }

    /// Right contents are in memory.
    pub(super) fn write_repair(&mut self, cx: &mut Context<'_>, at: u32) {
        let targets = self.ops[at].recover;
        let key = self.ops.key(at);
        if !targets.is_empty() {
            self.drop_cached(at, MemberSet::EMPTY);
        }
        let op = &mut self.ops[at];
        op.phase = Phase::WritingRepair;
        op.open = 0;
        let row = cx.parity().row(op.stripe);
        let sector = cx.parity().member_sector(op.stripe, op.start);
        for position in targets.iter() {
            let member = member_at(row, position);
            if cx.health.is_failed(member.0) {
                continue;
            }
            op.open += 1;
            let slice = op.scratch_slice(self.region, position, op.start, op.sectors());
            let slices = cx.out.push_slices([slice]);
            let token = Token::new(Kind::StripeIo, position, key);
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
        }
        if self.ops[at].open == 0 {
            self.repaired(cx, at);
        }
    }

    /// Everything has been written: reports it.
    pub(super) fn repaired(&mut self, cx: &mut Context<'_>, at: u32) {
        let op = &self.ops[at];
        let row = cx.parity().row(op.stripe);
        let (mut first, length) = (0, op.sectors() as usize);
        let verdicts = op.scrub().verdicts;
        while first < length {
            let verdict = verdicts[first];
            let alike = verdicts[first..length].iter().take_while(|other| **other == verdict);
            let end = first + alike.count();
            if verdict != Verdict::Agree {
                let mismatch = self.mismatch(cx, at, first as u64, (end - first) as u64, verdict);
                cx.out.list.push(Effect::Control(ControlEvent::Mismatch(mismatch)));
            }
            first = end;
        }
        for position in op.changed.intersection(op.read_failed).iter() {
            self.corrected(cx, at, member_at(row, position).0);
        }
        if !op.read_failed.is_empty() && op.changed.minus(op.read_failed) == op.changed {
            // Unread, and not written back: it was not compared.
            self.ops[at].error.get_or_insert(RequestError::Io);
        }
        self.end(cx, at);
    }

    fn mismatch(
        &self,
        cx: &Context<'_>,
        at: u32,
        from: u64,
        sectors: u64,
        verdict: Verdict,
    ) -> Mismatch {
        let op = &self.ops[at];
        let parity = cx.parity();
        let row = parity.row(op.stripe);
        let data = row.data.len() as u16;
        let offset = op.start + from;
        let array_sector = |index| parity.array_sector(op.stripe, index, offset);
        let (kind, position, array_sector) = match verdict {
            Verdict::P => (MismatchKind::P, Some(data), array_sector(0)),
            Verdict::Q => (MismatchKind::Q, Some(data + 1), array_sector(0)),
            Verdict::Data(index) => {
                let index = row.by_exponent[usize::from(index)];
                (MismatchKind::Data, Some(index), array_sector(index))
            }
            _ => (MismatchKind::Unknown, None, array_sector(0)),
        };
        let all_parity = || self.all_positions(cx, at).minus(MemberSet::range(0, data));
        let blocks = position.map_or_else(all_parity, MemberSet::one);
        let may_be_written = position.is_some() || op.scrub().mode == ScrubMode::RepairOrResync;
        Mismatch {
            kind,
            array_sector,
            sectors,
            member: position.map(|position| MemberIdx(member_at(row, position).0)),
            member_sector: parity.member_sector(op.stripe, offset),
            repaired: op.phase == Phase::WritingRepair
                && may_be_written
                && blocks.minus(op.changed).is_empty(),
        }
    }

    /// The blocks of all data but one, by ascending exponent.
    fn sources(
        &self,
        cx: &mut Context<'_>,
        at: u32,
        from: u64,
        sectors: u64,
        without: Option<u16>,
    ) -> std::ops::Range<u32> {
        let row = cx.parity().row(self.ops[at].stripe);
        let first = cx.out.sources.len() as u32;
        for index in row.by_exponent.iter().filter(|index| Some(**index) != without) {
            let exponent = row.exponent[usize::from(*index)];
            cx.out.sources.push(Source { exponent, slice: self.part(at, *index, from, sectors) });
        }
        first..cx.out.sources.len() as u32
    }

    fn part(&self, at: u32, position: u16, from: u64, sectors: u64) -> BufSlice {
        self.ops[at].scratch_slice(self.region, position, from, sectors)
    }

    fn emit(&self, out: &mut Effects, at: u32, slot: u16, job: Compute) {
        let token = Token::new(Kind::StripeCompute, slot, self.ops.key(at));
        out.compute(token, job);
    }
}
