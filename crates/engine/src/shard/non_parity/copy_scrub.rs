//! A scrub of a range of an array with copies.
//!
//! ```text
//! whole range:  read all copies --> compare --> alike: done
//!                     |                |
//! each granule:       +--------------->+--> read, compare block by block --> report, or write the
//!                                           right blocks, report
//! ```
//! The request's buffer has room for each copy, one after the other.
//!
//! Invariant: a copy is written only where most others are alike and it differs, where the mode
//! says that the first copy wins, or where it could not be read and it is known what belongs there.
//! Blocks are logical blocks: members transfer nothing smaller. The range is locked from the reads
//! to the writes. Called only from `non_parity`.

use md::geometry::Copy;
use md::{MemberIdx, Sector};

use super::{Context, NonParity, write_failed};
use crate::token::Kind;
use crate::{
    BufSlice, Compute, ControlEvent, Effect, GRANULE_SECTORS, HostOp, IoError, MemberSet, Mismatch,
    MismatchKind, RequestError, ScrubMode, Source, Token, Verdict,
};

/// The scrub of one request.
pub(super) struct CopyScrub {
    request: u32,
    mode: ScrubMode,
    /// The granule at work; `None`: the whole range is.
    cursor: Option<u64>,
    /// Members that could not read their copy of it.
    unread: MemberSet,
    /// Members whose copy of the granule is being written, or was.
    written: MemberSet,
    /// Members of which a write has failed.
    failed: MemberSet,
    is_writing: bool,
    /// A read has ended for a lack of memory.
    lacks: bool,
    /// By logical block of the granule.
    verdicts: [Verdict; GRANULE_SECTORS as usize],
}

impl NonParity {
    /// Reads all copies of the range.
    pub(super) fn scrub(&mut self, cx: &mut Context<'_>, request: u32) {
        let Some(HostOp::Scrub(mode)) = cx.requests[request].op else { unreachable!("a scrub") };
        if !cx.health.lacking().is_empty() || cx.health.in_sync_below() < cx.requests[request].end()
        {
            cx.requests.fail(request, RequestError::Io);
            return self.unlock_and_end(cx, request);
        }
        self.scrubs.push(CopyScrub {
            request,
            mode,
            cursor: None,
            unread: MemberSet::EMPTY,
            written: MemberSet::EMPTY,
            failed: MemberSet::EMPTY,
            is_writing: false,
            lacks: false,
            verdicts: [Verdict::Agree; GRANULE_SECTORS as usize],
        });
        let (at, end) = (cx.requests[request].at.0, cx.requests[request].end());
        self.read_copies(cx, request, at, end);
    }

    fn read_copies(&mut self, cx: &mut Context<'_>, request: u32, from: u64, end: u64) {
        let mut at = from;
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            for (number, copy) in self.copies.iter().enumerate() {
                let slice = slice_of(cx, request, number, at, sectors);
                self.scatter.add(copy.member.0, copy.sector.0, slice);
            }
            at += sectors;
        }
        let key = cx.requests.key(request);
        let requests = &mut *cx.requests;
        self.scatter.drain(cx.out, |run, out| {
            requests[request].open += 1;
            let token = Token::new(Kind::CopyScrub, run.member, key);
            let (member, sector) = (MemberIdx(run.member), Sector(run.sector));
            let slices = run.slices;
            out.list.push(Effect::Read { token, member, sector, slices, in_place_ok: false });
        });
    }

    fn scrub_of(&mut self, request: u32) -> &mut CopyScrub {
        let mine = self.scrubs.iter_mut().find(|scrub| scrub.request == request);
        mine.expect("the request is a scrub")
    }

    /// A read or a write has ended.
    pub(super) fn scrub_done(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        member: u16,
        result: Result<(), IoError>,
    ) {
        let scrub = self.scrub_of(request);
        match result {
            Ok(()) => {}
            Err(error) if scrub.is_writing => {
                scrub.failed.insert(member);
                write_failed(cx, request, member, error);
            }
            Err(error) => {
                scrub.unread.insert(member);
                // It says nothing about the member: nothing is written back.
                if let Some(lack) = error.kind.lacks() {
                    cx.requests.fail(request, lack);
                    scrub.lacks = true;
                }
                if error.kind.fails_reader() {
                    cx.health.drop_member(cx.geometry, member, Some(error), cx.out);
                }
            }
        }
        if !cx.requests.part_done(request) {
            return;
        }
        let scrub = self.scrub_of(request);
        if scrub.lacks {
            return self.end_scrub(cx, request);
        }
        if !cx.health.lacking().is_empty() || cx.requests.is_held(request) {
            if scrub.is_writing {
                self.report(cx, request);
            }
            cx.requests.fail(request, RequestError::Io);
            return self.end_scrub(cx, request);
        }
        let scrub = self.scrub_of(request);
        match (scrub.is_writing, scrub.cursor, scrub.unread.is_empty()) {
            (true, ..) => self.scrub_written(cx, request),
            (_, None, false) => self.scrub_granule(cx, request, None),
            _ => self.compare_copies(cx, request),
        }
    }

    pub(super) fn is_writing_scrub(&mut self, request: u32) -> bool {
        self.scrub_of(request).is_writing
    }

    /// Begins with the granule behind the one at work, or with the first one.
    fn scrub_granule(&mut self, cx: &mut Context<'_>, request: u32, done: Option<u64>) {
        let end = cx.requests[request].end();
        let at = match done {
            Some(at) => at + self.granule_at(cx.geometry, at, end),
            None => cx.requests[request].at.0,
        };
        if at >= end {
            return self.end_scrub(cx, request);
        }
        // A member may have failed while copies were compared.
        if !cx.health.lacking().is_empty() {
            cx.requests.fail(request, RequestError::Io);
            return self.end_scrub(cx, request);
        }
        let sectors = self.granule_at(cx.geometry, at, end);
        let scrub = self.scrub_of(request);
        scrub.cursor = Some(at);
        scrub.is_writing = false;
        for set in [&mut scrub.unread, &mut scrub.written, &mut scrub.failed] {
            *set = MemberSet::EMPTY;
        }
        scrub.verdicts = [Verdict::Agree; GRANULE_SECTORS as usize];
        self.read_copies(cx, request, at, at + sectors);
    }

    fn end_scrub(&mut self, cx: &mut Context<'_>, request: u32) {
        self.scrubs.retain(|scrub| scrub.request != request);
        self.unlock_and_end(cx, request);
    }

    /// Compares the copies that were read: the whole range, or each block of the granule.
    fn compare_copies(&mut self, cx: &mut Context<'_>, request: u32) {
        let (at, end) = (cx.requests[request].at.0, cx.requests[request].end());
        let scrub = self.scrub_of(request);
        let (cursor, unread) = (scrub.cursor, scrub.unread);
        let (first, sectors, step) = match cursor {
            None => (at, end - at, end - at),
            Some(at) => (at, self.granule_at(cx.geometry, at, end), self.block),
        };
        self.locate(cx.geometry, first);
        let readable = self.readable(unread);
        if readable.len() < 2 {
            return match cursor {
                // A single copy agrees with itself.
                None => self.end_scrub(cx, request),
                Some(_) => self.copies_judged(cx, request),
            };
        }
        let key = cx.requests.key(request);
        for (slot, from) in (0..).zip((first..first + sectors).step_by(step as usize)) {
            let begin = cx.out.sources.len() as u32;
            for (number, _) in &readable {
                let length = step.min(first + sectors - from);
                let slice = slice_of(cx, request, *number, from, length);
                cx.out.sources.push(Source { exponent: 0, slice });
            }
            let sources = begin..cx.out.sources.len() as u32;
            let token = Token::new(Kind::CopyCompare, slot, key);
            cx.out.compute(token, Compute::Compare { sources });
            cx.requests[request].open += 1;
        }
    }

    /// The copies of what was last located, by number, that could be read.
    fn readable(&self, unread: MemberSet) -> Vec<(usize, Copy)> {
        let copies = self.copies.iter().copied().enumerate();
        copies.filter(|(_, copy)| !unread.contains(copy.member.0)).collect()
    }

    /// A comparison has ended.
    pub(in crate::shard) fn compared(
        &mut self,
        cx: &mut Context<'_>,
        token: Token,
        verdict: Verdict,
    ) {
        let request = token.key().index;
        let scrub = self.scrub_of(request);
        scrub.verdicts[usize::from(token.slot())] = verdict;
        if !cx.requests.part_done(request) {
            return;
        }
        match (scrub.cursor, scrub.verdicts[0]) {
            (None, Verdict::Agree) => self.end_scrub(cx, request),
            (None, _) => self.scrub_granule(cx, request, None),
            // A member has failed while they were compared.
            _ if !cx.health.lacking().is_empty() => self.scrub_granule(cx, request, None),
            _ => self.copies_judged(cx, request),
        }
    }

    /// The verdicts of a granule are there: writes what they name.
    fn copies_judged(&mut self, cx: &mut Context<'_>, request: u32) {
        let end = cx.requests[request].end();
        let scrub = self.scrub_of(request);
        let at = scrub.cursor.expect("a granule is at work");
        let (mode, unread, verdicts) = (scrub.mode, scrub.unread, scrub.verdicts);
        let sectors = self.granule_at(cx.geometry, at, end);
        let readable = self.readable(unread);
        if readable.is_empty() {
            cx.requests.fail(request, RequestError::Io);
            return self.scrub_granule(cx, request, Some(at));
        }
        let agrees = verdicts.iter().all(|verdict| *verdict == Verdict::Agree);
        let verdicts = &verdicts[..sectors.div_ceil(self.block) as usize];
        // The copy that each block is written from.
        let right: Vec<Option<usize>> =
            verdicts.iter().map(|verdict| right_copy(*verdict, &readable, mode)).collect();
        let is_whole = right.iter().all(Option::is_some) && (agrees || mode != ScrubMode::Check);
        let copies: Vec<(usize, Copy)> = self.copies.iter().copied().enumerate().collect();
        for (number, copy) in copies {
            let reading = readable.iter().position(|(readable, _)| *readable == number);
            let is_wrong = match reading {
                Some(reading) => verdicts.iter().zip(&right).any(|(verdict, right)| {
                    mode != ScrubMode::Check
                        && right.is_some_and(|right| right != number)
                        && is_wrong(*verdict, reading)
                }),
                None => is_whole,
            };
            if !is_wrong || cx.health.is_read_only() {
                continue;
            }
            // Adjacent blocks of one copy are one slice.
            let mut runs: Vec<(usize, u64, u64)> = Vec::new();
            for (from, right) in (at..at + sectors).step_by(self.block as usize).zip(&right) {
                let source = right.unwrap_or(number);
                let length = self.block.min(at + sectors - from);
                match runs.last_mut() {
                    Some((last, _, sectors)) if *last == source => *sectors += length,
                    _ => runs.push((source, from, length)),
                }
            }
            let slices: Vec<BufSlice> = runs
                .into_iter()
                .map(|(source, from, sectors)| slice_of(cx, request, source, from, sectors))
                .collect();
            let slices = cx.out.push_slices(slices);
            let (member, sector) = (copy.member, copy.sector);
            let token = Token::new(Kind::CopyScrub, member.0, cx.requests.key(request));
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
            cx.requests[request].open += 1;
            self.scrub_of(request).written.insert(member.0);
        }
        if !is_whole && !unread.is_empty() {
            // A copy that cannot be read was neither compared nor written back.
            cx.requests.fail(request, RequestError::Io);
        }
        self.scrub_of(request).is_writing = true;
        if cx.requests[request].open == 0 {
            self.scrub_written(cx, request);
        }
    }

    /// A granule is done: reports it, and continues with the next one.
    fn scrub_written(&mut self, cx: &mut Context<'_>, request: u32) {
        self.report(cx, request);
        let done = self.scrub_of(request).cursor;
        self.scrub_granule(cx, request, done);
    }

    /// Reports what was found in the granule at work, and what was written.
    fn report(&mut self, cx: &mut Context<'_>, request: u32) {
        let end = cx.requests[request].end();
        let scrub = self.scrub_of(request);
        let at = scrub.cursor.expect("a granule is at work");
        let (mode, unread, verdicts) = (scrub.mode, scrub.unread, scrub.verdicts);
        let written = scrub.written.minus(scrub.failed);
        let sectors = self.granule_at(cx.geometry, at, end);
        let readable = self.readable(unread);
        let verdicts = &verdicts[..sectors.div_ceil(self.block) as usize];
        let mut first = 0;
        while first < verdicts.len() {
            let verdict = verdicts[first];
            let alike = verdicts[first..].iter().take_while(|other| **other == verdict);
            let run = alike.count();
            let from = first as u64 * self.block;
            let length = (run as u64 * self.block).min(sectors - from);
            for (reading, (_, copy)) in readable.iter().enumerate() {
                let (member, repaired) = match verdict {
                    Verdict::Copies(_) if is_wrong(verdict, reading) => {
                        (Some(copy.member), written.contains(copy.member.0))
                    }
                    // One report for all of them. Others of the granule may be written for blocks
                    // beside this one.
                    Verdict::Unknown if reading == 0 => {
                        let is_written =
                            |(_, copy): &(usize, Copy)| written.contains(copy.member.0);
                        let all = readable[1..].iter().all(is_written);
                        (None, all && mode == ScrubMode::RepairOrResync)
                    }
                    _ => continue,
                };
                let mismatch = Mismatch {
                    kind: MismatchKind::Copy,
                    array_sector: Sector(at + from),
                    sectors: length,
                    member,
                    member_sector: Sector(copy.sector.0 + from),
                    repaired,
                };
                cx.out.list.push(Effect::Control(ControlEvent::Mismatch(mismatch)));
            }
            first += run;
        }
        for copy in self.copies.iter().filter(|copy| unread.contains(copy.member.0)) {
            if written.contains(copy.member.0) {
                let (member, sector) = (copy.member, copy.sector);
                let corrected = ControlEvent::Corrected { member, sector, sectors };
                cx.out.list.push(Effect::Control(corrected));
            }
        }
    }
}

/// Whether a verdict names a copy, by its number among the readable ones. Where copies differ and
/// none is named, all but the first give way.
fn is_wrong(verdict: Verdict, reading: usize) -> bool {
    match verdict {
        Verdict::Copies(wrong) => wrong >> reading & 1 == 1,
        Verdict::Unknown => reading > 0,
        _ => false,
    }
}

/// The number of the copy that is right; `None`: it is not known.
fn right_copy(verdict: Verdict, readable: &[(usize, Copy)], mode: ScrubMode) -> Option<usize> {
    let right = match verdict {
        Verdict::Copies(_) => (0..readable.len()).find(|reading| !is_wrong(verdict, *reading))?,
        Verdict::Unknown if mode != ScrubMode::RepairOrResync => return None,
        _ => 0,
    };
    Some(readable[right].0)
}

/// The part of a request's buffer for a copy of array sector `at`.
fn slice_of(cx: &Context<'_>, request: u32, copy: usize, at: u64, sectors: u64) -> BufSlice {
    let record = &cx.requests[request];
    record.buf.part(copy as u64 * record.sectors + (at - record.at.0), sectors)
}
