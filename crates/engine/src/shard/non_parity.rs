//! The levels without parity: linear, RAID 0, RAID 1 and RAID 10.
//!
//! A write locks its array range, is sent to every copy and completes when all have completed. A
//! read takes no lock and goes to one copy. A read that a copy cannot serve becomes a *repair*: it
//! locks its range like a write, processes it granule by granule, reading from the next copy, and
//! writes back to the copies that failed, so that bad blocks at different places of two mirrors do
//! not add up.
//!
//! A *resync* locks its range too, reads it from the copy that reads use where copies may differ
//! (the first one in service) and writes it to the others; where that copy is unreadable it
//! continues as a repair that writes to all.
//!
//! A *rebuild* works as a resync does, and writes only to what lacks the range (`rebuild`). A
//! granule that no copy can be read of is added to the bad-block logs of that (`unreadable`).
//!
//! Invariant: all copies of a block see the same writes in the same order, because overlapping
//! writes and repairs hold the range lock one after the other. Called only from `shard`.

mod copy_scrub;
mod rebuild;
mod unreadable;

use std::ops::Range;

use md::geometry::Copy;
use md::{Geometry, Kind as GeometryKind, MemberIdx, Sector};

use self::copy_scrub::CopyScrub;
use self::rebuild::with_replacements;
use super::balance::Balance;
use super::coalesce::Coalescer;
use super::range_lock::{HolderSlot, RangeLocks};
use super::stream::Seen;
use super::{Context, Repair};
use crate::token::Kind;
use crate::{
    ControlEvent, Effect, GRANULE_SECTORS, HostOp, IoError, MAX_SPAN_SECTORS, MemberError,
    MemberFlags, MemberSet, RequestError, ShardConfig, Token,
};

pub(crate) struct NonParity {
    range_locks: RangeLocks,
    balance: Balance,
    scatter: Coalescer,
    /// Ranges of members for a request without data; empty between calls.
    ranges: Vec<(u16, Range<u64>)>,
    /// The copies of what was last located.
    copies: Vec<Copy>,
    /// Scrubs in progress.
    scrubs: Vec<CopyScrub>,
    granted: Vec<(u32, HolderSlot)>,
    discard_zeroes: bool,
    /// Members that a failed read takes out of service.
    failfast: MemberSet,
    /// Members whose copies come last, and are the ones that others replace where copies differ: a
    /// write-mostly one may lack what has been acknowledged, because md completes a write behind
    /// it. Never changes, for what has been read of the first copy is written to the others.
    last: Option<Box<MemberSet>>,
    /// Sectors of a logical block.
    block: u64,
}

impl NonParity {
    pub(crate) fn new(config: &ShardConfig) -> NonParity {
        let geometry = &config.geometry;
        let copies = match geometry.kind() {
            GeometryKind::Mirrored(mirrored) => mirrored.copies(),
            _ => 1,
        };
        let prefer_first = matches!(
            geometry.layout(),
            md::Layout::Raid10(layout) if layout.far > 1 && !layout.offset
        );
        let balance = match copies {
            1 => Balance::none(),
            _ => Balance::new(geometry.members(), prefer_first, config.write_mostly),
        };
        NonParity {
            range_locks: RangeLocks::new(),
            balance,
            failfast: config.failfast,
            last: (!config.write_mostly.is_empty()).then(|| Box::new(config.write_mostly)),
            scatter: Coalescer::default(),
            ranges: Vec::new(),
            copies: vec![Copy { member: MemberIdx(0), sector: Sector(0) }; copies],
            scrubs: Vec::new(),
            granted: Vec::new(),
            discard_zeroes: config.discard_zeroes,
            block: u64::from(config.logical_block) / md::SECTOR_BYTES,
        }
    }

    /// Sends a read to one copy of each of its blocks. Returns the copy that the request's stream
    /// should stay on.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, request: u32, seen: Seen) -> Option<u8> {
        let record = &cx.requests[request];
        let (mut at, end) = (record.at.0, record.end());
        let mut stay = if seen.is_stream() { seen.copy } else { None };
        let mut unservable = false;
        // Copies may differ here, and reads must return the copy that a resync keeps.
        let fixed = end > cx.health.in_sync_below();
        if fixed {
            stay = None;
        }
        let length = end - at;
        let (mut streamed, mut jumps) = (seen.is_stream(), false);
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            // The copy of these blocks that the stream is on.
            let mut on = stay;
            let choice = if fixed {
                let lacking = cx.health.lacking();
                self.copies.iter().position(|copy| !lacking.contains(copy.member.0))
            } else {
                let absent = self.absent(cx, sectors);
                if let Some(copy) = stay.filter(|_| self.copies.len() > 1) {
                    let copy = self.balance.continued(&self.copies, length, copy);
                    on = self.balance.beside(cx.now, &self.copies, absent, copy);
                    if on.is_some() {
                        (stay, jumps) = (on, true);
                    }
                    on = on.or(Some(copy));
                }
                match seen.is_stream() && stay.is_none() {
                    true => self.balance.choose_for_stream(cx.now, &self.copies, absent),
                    false => self.balance.choose(cx.now, &self.copies, absent, on),
                }
            };
            let Some(choice) = choice else {
                unservable = true;
                break;
            };
            if seen.is_stream() && stay.is_none() && !fixed {
                stay = Some(choice as u8);
                on = stay;
            }
            streamed &= on == Some(choice as u8);
            let copy = self.copies[choice];
            self.scatter.add(copy.member.0, copy.sector.0, record.slice(at, sectors));
            at += sectors;
        }
        if unservable {
            self.scatter.clear();
            cx.requests.fail(request, RequestError::Io);
            cx.requests.end(request, cx.health, cx.out);
            return None;
        }
        let key = cx.requests.key(request);
        let record = &mut cx.requests[request];
        (record.begun_at, record.stream) = (cx.now, streamed && !jumps);
        let (balance, requests) = (&mut self.balance, &mut *cx.requests);
        self.scatter.drain(cx.out, |run, out| {
            balance.issued(run.member, run.sector + run.sectors, run.sectors);
            requests[request].open += 1;
            out.list.push(run.read(key));
        });
        stay
    }

    /// A member I/O of a request completed.
    pub(crate) fn io_done(
        &mut self,
        cx: &mut Context<'_>,
        token: Token,
        result: Result<(), IoError>,
    ) {
        let (request, member) = (token.key().index, token.slot());
        let writing = match token.kind() {
            Kind::Read => false,
            Kind::NonParityRepair | Kind::NonParityResync => cx.requests[request].repair.writing,
            Kind::CopyScrub => self.is_writing_scrub(request),
            _ => true,
        };
        if writing {
            cx.flushes.note_written(cx.health.slot_of(member));
        }
        match token.kind() {
            Kind::Read => self.read_done(cx, request, member, result),
            Kind::NonParityRepair => self.repair_done(cx, request, member, result),
            Kind::NonParityResync => self.resync_done(cx, request, member, result),
            Kind::CopyScrub => self.scrub_done(cx, request, member, result),
            _ => self.write_done(cx, request, member, result),
        }
    }

    /// A part of a direct read completed.
    fn read_done(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        member: u16,
        result: Result<(), IoError>,
    ) {
        match result {
            Ok(()) => {
                let record = &cx.requests[request];
                self.balance.read_done(cx.now, member, record.begun_at, record.stream);
            }
            Err(error) => {
                self.balance.done(cx.now, member);
                cx.requests[request].unread.insert(member);
                self.read_failed(cx, member, error);
            }
        }
        if !cx.requests.part_done(request) {
            return;
        }
        if cx.requests[request].unread.is_empty() {
            cx.requests.end(request, cx.health, cx.out);
        } else if self.copies.len() == 1 || cx.requests.is_held(request) {
            cx.requests.fail(request, RequestError::Io);
            cx.requests.end(request, cx.health, cx.out);
        } else {
            let record = &mut cx.requests[request];
            record.repair = Repair { cursor: record.at.0, ..Repair::default() };
            self.lock(cx, request);
        }
    }

    /// A member could not be read. It stays in service after a bad block, which a write may repair,
    /// unless it is failfast; and where it is the last one.
    fn read_failed(&self, cx: &mut Context<'_>, member: u16, error: IoError) {
        let is_fast = error.kind == MemberError::Medium && self.failfast.contains(member);
        if is_fast || error.kind.fails_reader() {
            cx.health.drop_member(cx.geometry, member, Some(error), cx.out);
        }
    }

    /// Another member has the slot, which has no flags until it gets them.
    pub(crate) fn member_joined(&mut self, member: u16) {
        self.balance.forget(member);
        self.set_flags(member, MemberFlags::default());
    }

    pub(crate) fn set_flags(&mut self, member: u16, flags: MemberFlags) {
        let MemberFlags { write_mostly, failfast } = flags;
        self.balance.set_write_mostly(member, write_mostly);
        match failfast {
            true => self.failfast.insert(member),
            false => self.failfast.remove(member),
        }
    }

    /// Locks a request's range and continues with it, immediately or when the lock is granted.
    pub(crate) fn lock(&mut self, cx: &mut Context<'_>, request: u32) {
        let record = &cx.requests[request];
        if let Some(holder) = self.range_locks.acquire(record.at, record.sectors, request) {
            self.locked(cx, request, holder);
        }
    }

    fn locked(&mut self, cx: &mut Context<'_>, request: u32, holder: HolderSlot) {
        cx.requests[request].holder = Some(holder);
        match cx.requests[request].op {
            Some(HostOp::Read) => self.repair_granule(cx, request),
            Some(HostOp::Resync) => self.resync(cx, request),
            Some(HostOp::Rebuild) => self.rebuild(cx, request, 0),
            Some(HostOp::Scrub(_)) => self.scrub(cx, request),
            _ => self.write(cx, request),
        }
    }

    fn unlock_and_end(&mut self, cx: &mut Context<'_>, request: u32) {
        let holder = cx.requests[request].holder.take().expect("a locked request holds its range");
        cx.requests.end(request, cx.health, cx.out);
        let mut granted = std::mem::take(&mut self.granted);
        self.range_locks.release(holder, &mut granted);
        for (next, holder) in granted.drain(..) {
            self.locked(cx, next, holder);
        }
        self.granted = granted;
    }

    /// Sends a write, discard or write of zeroes to every copy that is in service.
    fn write(&mut self, cx: &mut Context<'_>, request: u32) {
        let record = &cx.requests[request];
        let op = record.op.expect("a request in the table has its operation");
        if op == HostOp::Discard && !self.discard_zeroes {
            return self.unlock_and_end(cx, request);
        }
        if !matches!(op, HostOp::Write { .. }) {
            return self.write_without_data(cx, request, op);
        }
        let (mut at, end) = (record.at.0, record.end());
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            let slice = record.slice(at, sectors);
            let alive = self.copies.iter().filter(|copy| !cx.health.is_failed(copy.member.0));
            for copy in alive {
                self.scatter.add(copy.member.0, copy.sector.0, slice);
            }
            at += sectors;
        }
        let key = cx.requests.key(request);
        let fua = record.fua();
        let (balance, requests) = (&mut self.balance, &mut *cx.requests);
        self.scatter.drain(cx.out, |run, out| {
            balance.issued(run.member, run.sector + run.sectors, run.sectors);
            requests[request].open += 1;
            let token = Token::new(Kind::NonParityWrite, run.member, key);
            let (member, sector) = (MemberIdx(run.member), Sector(run.sector));
            out.list.push(Effect::Write { token, member, sector, slices: run.slices, fua });
        });
        if cx.requests[request].open == 0 {
            cx.requests.fail(request, RequestError::Io);
            self.unlock_and_end(cx, request);
        }
    }

    /// Sends a discard or a write of zeroes, in as few operations per member as the placement
    /// allows, however long it is.
    fn write_without_data(&mut self, cx: &mut Context<'_>, request: u32, op: HostOp) {
        let record = &cx.requests[request];
        let range = record.at.0..record.end();
        let mut ranges = std::mem::take(&mut self.ranges);
        let emit = |member: MemberIdx, sector: Sector, sectors: u64| {
            if !cx.health.is_failed(member.0) {
                ranges.push((member.0, sector.0..sector.0 + sectors));
            }
        };
        match cx.geometry.kind() {
            GeometryKind::Striped(striped) => striped.member_ranges(range, emit),
            GeometryKind::Mirrored(mirrored) => mirrored.member_ranges(range, emit),
            GeometryKind::Parity(_) => unreachable!("parity levels belong to `stripe`"),
        }
        join_ranges(&mut ranges);
        let key = cx.requests.key(request);
        for (member, range) in ranges.drain(..) {
            self.balance.issued(member, range.end, range.end - range.start);
            cx.requests[request].open += 1;
            let token = Token::new(Kind::NonParityWrite, member, key);
            let sectors = range.end - range.start;
            let (member, sector) = (MemberIdx(member), Sector(range.start));
            cx.out.list.push(match op {
                HostOp::Discard => Effect::Discard { token, member, sector, sectors },
                _ => Effect::WriteZeroes { token, member, sector, sectors },
            });
        }
        self.ranges = ranges;
        if cx.requests[request].open == 0 {
            cx.requests.fail(request, RequestError::Io);
            self.unlock_and_end(cx, request);
        }
    }

    /// A part of a write completed. With copies a failing member is dropped; without, or when it is
    /// the last one with the data, the request fails.
    fn write_done(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        member: u16,
        result: Result<(), IoError>,
    ) {
        self.balance.done(cx.now, member);
        if let Err(error) = result {
            write_failed(cx, request, member, error);
        }
        if cx.requests.part_done(request) {
            self.unlock_and_end(cx, request);
        }
    }

    /// Members whose copies of what was last located are absent.
    fn absent(&self, cx: &Context<'_>, sectors: u64) -> MemberSet {
        let failed = cx.health.failed();
        if cx.health.lacking() == failed {
            return failed;
        }
        let is_absent = |copy: &&Copy| cx.health.is_absent(copy.member.0, copy.sector.0, sectors);
        let absent = self.copies.iter().filter(is_absent).map(|copy| copy.member.0);
        failed.union(absent.collect())
    }

    /// Reads a range from the first copy that is in sync, to write it to the others.
    fn resync(&mut self, cx: &mut Context<'_>, request: u32) {
        let failed = cx.health.lacking();
        let record = &mut cx.requests[request];
        record.repair = Repair { tried: failed, ..Repair::default() };
        let (mut at, end) = (record.at.0, record.end());
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            let in_service = |copy: &&Copy| !cx.health.is_failed(copy.member.0);
            let mut in_sync = self.copies.iter().filter(|copy| !failed.contains(copy.member.0));
            // A single copy is in sync with itself.
            let others = self.copies.iter().filter(in_service).count() > 1;
            let has_others = |copy: &&Copy| others || cx.health.has_second(copy.member.0);
            if let Some(first) = in_sync.next().filter(has_others) {
                let slice = cx.requests[request].slice(at, sectors);
                self.scatter.add(first.member.0, first.sector.0, slice);
            }
            at += sectors;
        }
        self.send_resync(cx, request, true);
    }

    /// A read or a write of a resync completed.
    fn resync_done(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        member: u16,
        result: Result<(), IoError>,
    ) {
        self.balance.done(cx.now, cx.health.slot_of(member));
        let writing = cx.requests[request].repair.writing;
        match result {
            Ok(()) => {}
            Err(error) if writing => write_failed(cx, request, member, error),
            Err(error) => {
                cx.requests[request].unread.insert(member);
                self.read_failed(cx, member, error);
            }
        }
        if !cx.requests.part_done(request) {
            return;
        }
        let is_held = cx.requests.is_held(request);
        let record = &mut cx.requests[request];
        let is_rebuild = record.op == Some(HostOp::Rebuild);
        if writing {
            let (at, end, error) = (record.at.0, record.end(), record.error);
            if is_rebuild && error.is_none() {
                self.set_rebuilt(cx, request, at, end);
                let pass = cx.requests[request].repair.pass;
                return self.rebuild(cx, request, pass + 1);
            }
            self.unlock_and_end(cx, request);
        } else if record.unread.is_empty() && is_rebuild {
            self.rebuild_write(cx, request);
        } else if record.unread.is_empty() {
            self.resync_write(cx, request);
        } else if is_held {
            cx.requests.fail(request, RequestError::Io);
            self.unlock_and_end(cx, request);
        } else {
            let Repair { replaced, pass, .. } = record.repair;
            record.repair = Repair { cursor: record.at.0, replaced, pass, ..Repair::default() };
            self.repair_granule(cx, request);
        }
    }

    /// Writes the data read by a resync to all copies except those that were read.
    fn resync_write(&mut self, cx: &mut Context<'_>, request: u32) {
        let record = &mut cx.requests[request];
        record.repair.writing = true;
        let failed_before = record.repair.tried;
        let (mut at, end) = (record.at.0, record.end());
        while at < end {
            let sectors = self.locate(cx.geometry, at).min(end - at);
            let slice = cx.requests[request].slice(at, sectors);
            let source = self.copies.iter().position(|copy| !failed_before.contains(copy.member.0));
            for (number, copy) in self.copies.iter().enumerate() {
                let Copy { member, sector } = *copy;
                if source.is_none() || cx.health.is_failed(member.0) {
                    continue;
                }
                if source != Some(number) {
                    self.scatter.add(member.0, sector.0, slice);
                } else if cx.health.has_second(member.0) {
                    // It may have been filled from another copy, which differed.
                    let slots = cx.geometry.members() as u16;
                    self.scatter.add(slots + member.0, sector.0, slice);
                }
            }
            at += sectors;
        }
        self.send_resync(cx, request, false);
    }

    fn send_resync(&mut self, cx: &mut Context<'_>, request: u32, read: bool) {
        let key = cx.requests.key(request);
        let (balance, requests) = (&mut self.balance, &mut *cx.requests);
        let health = &*cx.health;
        self.scatter.drain(cx.out, |run, out| {
            balance.issued(health.slot_of(run.member), run.sector + run.sectors, run.sectors);
            requests[request].open += 1;
            let token = Token::new(Kind::NonParityResync, run.member, key);
            let (member, sector, slices) = (MemberIdx(run.member), Sector(run.sector), run.slices);
            out.list.push(match read {
                true => Effect::Read { token, member, sector, slices, in_place_ok: false },
                false => Effect::Write { token, member, sector, slices, fua: false },
            });
        });
        if cx.requests[request].open > 0 {
            return;
        }
        // What was to be written has left.
        let Repair { replaced, pass, .. } = cx.requests[request].repair;
        match !read && replaced.is_some() {
            true => self.rebuild(cx, request, pass + 1),
            false => self.unlock_and_end(cx, request),
        }
    }

    /// Reads the granule at the repair's cursor from the next copy that has not failed it: first
    /// from those that could not read all of the request, of which most granules may be good.
    fn repair_granule(&mut self, cx: &mut Context<'_>, request: u32) {
        if cx.requests[request].repair.tried.is_empty() {
            cx.requests[request].repair.since = cx.health.changes();
        }
        let repair = cx.requests[request].repair;
        let end = cx.requests[request].end();
        if repair.cursor >= end {
            let record = &cx.requests[request];
            return match record.op == Some(HostOp::Rebuild) && record.error.is_none() {
                true => self.rebuild(cx, request, repair.pass + 1),
                false => self.unlock_and_end(cx, request),
            };
        }
        let sectors = self.granule_at(cx.geometry, repair.cursor, end);
        let lacking = match cx.requests[request].op {
            Some(HostOp::Resync) => cx.health.lacking(),
            _ => self.absent(cx, sectors),
        };
        let unusable = lacking.union(repair.tried);
        let usable = self.copies.iter().filter(|copy| !unusable.contains(copy.member.0));
        let mostly = self.balance.write_mostly();
        let unread = cx.requests[request].unread;
        // A replacement gets what its member has.
        let order = |member: u16| {
            let is_own = repair.replaced == Some(member);
            (!is_own, !unread.contains(member), mostly.contains(member))
        };
        let copy = usable.min_by_key(|copy| order(copy.member.0));
        let Some(copy) = copy.copied() else {
            if cx.requests[request].op == Some(HostOp::Rebuild) {
                return self.is_unreadable(cx, request, sectors);
            }
            cx.requests.fail(request, RequestError::Io);
            return match cx.requests[request].op {
                // Other granules may be readable.
                Some(HostOp::Resync) => self.next_granule(cx, request),
                _ => self.unlock_and_end(cx, request),
            };
        };
        let record = &mut cx.requests[request];
        record.open += 1;
        record.repair.writing = false;
        let slices = cx.out.push_slices([record.slice(repair.cursor, sectors)]);
        let token = Token::new(Kind::NonParityRepair, copy.member.0, cx.requests.key(request));
        let (member, sector) = (copy.member, copy.sector);
        cx.out.list.push(Effect::Read { token, member, sector, slices, in_place_ok: false });
    }

    /// A repair's read or write-back completed.
    fn repair_done(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        member: u16,
        result: Result<(), IoError>,
    ) {
        let Repair { cursor, writing, tried, listing, .. } = cx.requests[request].repair;
        let resync = matches!(cx.requests[request].op, Some(HostOp::Resync | HostOp::Rebuild));
        if writing && result.is_ok() && tried.contains(member) {
            let sectors = self.granule_at(cx.geometry, cursor, cx.requests[request].end());
            let mut copies = self.copies.iter();
            let copy = copies.find(|copy| copy.member.0 == member).expect("it was written to");
            let (member, sector) = (copy.member, copy.sector);
            cx.out.list.push(Effect::Control(ControlEvent::Corrected { member, sector, sectors }));
        }
        if let Err(error) = result {
            cx.requests[request].repair.has_failed |= writing;
            if !writing {
                self.read_failed(cx, member, error);
                let repair = &mut cx.requests[request].repair;
                repair.tried.insert(member);
                repair.unsure |= !error.kind.is_unreadable();
            } else if listing && error.kind.lacks().is_some() {
                // The log has no room: the granule stays out of sync.
                cx.requests.fail(request, RequestError::Io);
            } else if resync {
                write_failed(cx, request, member, error);
            } else if error.kind.lacks().is_none() {
                cx.health.drop_member(cx.geometry, member, Some(error), cx.out);
            }
        }
        if !cx.requests.part_done(request) {
            return;
        }
        match result {
            Err(_) if !writing && cx.requests.is_held(request) => {
                cx.requests.fail(request, RequestError::Io);
                self.unlock_and_end(cx, request);
            }
            Err(_) if !writing => self.repair_granule(cx, request),
            Ok(()) if !writing => self.write_back(cx, request, member),
            _ => self.next_granule(cx, request),
        }
    }

    /// Writes the granule that has just been read from `source` back to the copies that could not
    /// read it; for a resync, to all others.
    fn write_back(&mut self, cx: &mut Context<'_>, request: u32, source: u16) {
        let Repair { cursor, tried, replaced, .. } = cx.requests[request].repair;
        let sectors = self.granule_at(cx.geometry, cursor, cx.requests[request].end());
        let targets = match cx.requests[request].op {
            Some(HostOp::Resync) => {
                let all = MemberSet::range(0, cx.geometry.members() as u16);
                let slots = cx.geometry.members() as u16;
                let second = match cx.health.has_second(source) {
                    true => MemberSet::one(slots + source),
                    false => MemberSet::EMPTY,
                };
                all.minus(MemberSet::one(source)).union(second)
            }
            // Also when the array has become read-only: it has begun before, and its end says that
            // all of it has been written.
            Some(HostOp::Rebuild) => match replaced {
                // What a member cannot read that is being replaced, only its replacement gets.
                Some(slot) => {
                    let own = MemberSet::one(cx.geometry.members() as u16 + slot);
                    self.to_copy(cx, sectors).intersection(own)
                }
                None => self.absent(cx, sectors).union(tried),
            },
            _ if cx.health.is_read_only() => MemberSet::EMPTY,
            _ => tried,
        };
        let targets = targets.minus(cx.health.failed());
        let epoch = cx.health.epoch();
        // What could not read the granule and gets it back lacks nothing else.
        let absent = self.absent(cx, sectors);
        let is_lacking = |target: &u16| {
            usize::from(*target) >= cx.geometry.members() || absent.contains(*target)
        };
        let counted = targets.iter().filter(is_lacking).collect();
        let record = &mut cx.requests[request];
        record.repair = Repair { targets: counted, epoch, ..record.repair };
        let members = self.copies.iter().map(|copy| (copy, copy.member.0));
        let members = members.filter(|(_, member)| targets.contains(*member));
        for (copy, member) in members.chain(with_replacements(&self.copies, cx, targets)) {
            let (member, sector) = (MemberIdx(member), copy.sector);
            let token = Token::new(Kind::NonParityRepair, member.0, cx.requests.key(request));
            let record = &mut cx.requests[request];
            record.open += 1;
            let slices = cx.out.push_slices([record.slice(cursor, sectors)]);
            cx.out.list.push(Effect::Write { token, member, sector, slices, fua: false });
        }
        cx.requests[request].repair.writing = true;
        if cx.requests[request].open == 0 {
            self.next_granule(cx, request);
        }
    }

    fn next_granule(&mut self, cx: &mut Context<'_>, request: u32) {
        let end = cx.requests[request].end();
        let Repair { cursor, writing, replaced, pass, .. } = cx.requests[request].repair;
        let sectors = self.granule_at(cx.geometry, cursor, end);
        if cx.requests[request].repair.listing {
            self.is_listed(cx, request, sectors);
        }
        let has_failed = cx.requests[request].repair.has_failed;
        if cx.requests[request].op == Some(HostOp::Rebuild) && writing && !has_failed {
            self.set_rebuilt(cx, request, cursor, cursor + sectors);
        }
        let cursor = cursor + sectors;
        cx.requests[request].repair = Repair { cursor, replaced, pass, ..Repair::default() };
        self.repair_granule(cx, request);
    }

    /// Finds the copies of the granule at `at`; returns how much of it belongs to the range.
    fn granule_at(&mut self, geometry: &Geometry, at: u64, end: u64) -> u64 {
        let granule_end = (at / GRANULE_SECTORS + 1) * GRANULE_SECTORS;
        self.locate(geometry, at).min(end.min(granule_end) - at)
    }

    /// Fills `copies` for array sector `at`, write-mostly ones behind the others; returns how far
    /// they are contiguous.
    fn locate(&mut self, geometry: &Geometry, at: u64) -> u64 {
        match geometry.kind() {
            GeometryKind::Striped(striped) => {
                let extent = striped.locate(Sector(at));
                self.copies[0] = Copy { member: extent.member, sector: extent.sector };
                extent.sectors
            }
            GeometryKind::Mirrored(mirrored) => {
                let sectors = mirrored.locate(Sector(at), &mut self.copies);
                if let Some(last) = &self.last {
                    order(&mut self.copies, last);
                }
                sectors
            }
            GeometryKind::Parity(_) => unreachable!("parity levels belong to `stripe`"),
        }
    }
}

/// Puts the copies of some members behind the others.
#[cold]
fn order(copies: &mut [Copy], last: &MemberSet) {
    copies.sort_by_key(|copy| last.contains(copy.member.0));
}

/// A failed write takes the member out of service, unless it is the last one with the data.
fn write_failed(cx: &mut Context<'_>, request: u32, member: u16, error: IoError) {
    if usize::from(member) >= cx.geometry.members() {
        // The replacement is out by now.
        return cx.requests.fail(request, RequestError::Io);
    }
    let error = match error.kind.lacks() {
        Some(lack) => lack,
        None if cx.health.drop_member(cx.geometry, member, Some(error), cx.out) => return,
        None => RequestError::Io,
    };
    cx.requests.fail_half_way(request, error);
}

/// Sorts ranges of members and joins those that follow each other.
fn join_ranges(ranges: &mut Vec<(u16, Range<u64>)>) {
    ranges.sort_unstable_by_key(|(member, range)| (*member, range.start));
    ranges.dedup_by(|(member, next), (last, range)| {
        let follows = member == last && next.start == range.end;
        if follows {
            range.end = next.end;
        }
        follows
    });
}

const _: () = assert!(GRANULE_SECTORS <= MAX_SPAN_SECTORS);
