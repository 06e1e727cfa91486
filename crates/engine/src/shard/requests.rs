//! The requests of a shard: their records, and when each completes.
//!
//! Invariant: a request completes when its last part has, a write only when every loss of a member
//! is recorded, a FUA write of a lost block only when the data that define it are durable. What a
//! late operation uses is kept until that has completed. Called only from `shard`.

use std::collections::VecDeque;

use md::Sector;

use super::health::Health;
use super::range_lock::HolderSlot;
use crate::slab::{Key, Slab};
use crate::{BufSlice, Effect, Effects, HostOp, MemberSet, Request, RequestError, ScrubMode};

/// A request's record. Reset when its slot is taken, but for `repair`, which is set when it begins,
/// and is last, because few requests need it: two cache lines serve the others.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Record {
    pub(crate) tag: u64,
    pub(crate) op: Option<HostOp>,
    pub(crate) at: Sector,
    pub(crate) sectors: u64,
    pub(crate) buf: BufSlice,
    /// Member I/Os or row parts in flight.
    pub(crate) open: u32,
    pub(crate) error: Option<RequestError>,
    /// Members that failed to read a part.
    pub(crate) unread: MemberSet,
    /// The range lock if it is held, on levels without parity.
    pub(crate) holder: Option<HolderSlot>,
    /// The request is counted as a user of its intents.
    pub(crate) intent: bool,
    /// A part failed after another was written: the range may be out of sync.
    pub(crate) half_way: bool,
    /// Whether it continues a stream: of a write that waits for its intents; of a read from
    /// copies, if all of it goes to the copy that its stream stays on.
    pub(crate) stream: bool,
    /// A FUA write: the flush that it needs has been requested.
    pub(super) is_flushed: bool,
    /// When a read from copies was issued.
    pub(crate) begun_at: u64,
    pub(crate) repair: Repair,
}

/// Progress of the granule-by-granule repair of a mirrored range; see `non_parity`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Repair {
    pub(crate) cursor: u64,
    pub(crate) tried: MemberSet,
    pub(crate) writing: bool,
    /// A write of the granule has failed.
    pub(crate) has_failed: bool,
    /// Of a rebuild: the members that are written. Others may have joined since.
    pub(crate) targets: MemberSet,
    /// Of a rebuild: the slot whose replacement is written, with what its member has; none: members
    /// that are being rebuilt are written.
    pub(crate) replaced: Option<u16>,
    /// How often a rebuild has begun anew with the rest of what its range lacks.
    pub(crate) pass: u16,
    /// Epoch of the members when they were chosen.
    pub(crate) epoch: u64,
    /// [`Health::changes`] when the granule began.
    pub(crate) since: u64,
    /// A member could not be read for another reason than its medium.
    pub(crate) unsure: bool,
    /// The granule is being added to bad-block logs.
    pub(crate) listing: bool,
}

impl Record {
    /// The end of the range, as an array sector.
    pub(crate) fn end(&self) -> u64 {
        self.at.0 + self.sectors
    }

    /// The part of the buffer that belongs to `sectors` sectors from array sector `at`.
    pub(crate) fn slice(&self, at: u64, sectors: u64) -> BufSlice {
        self.buf.part(at - self.at.0, sectors)
    }

    /// Whether its completion promises something about data on members, and so depends on recorded
    /// losses.
    pub(super) fn is_write(&self) -> bool {
        !matches!(self.op, Some(HostOp::Read | HostOp::Scrub(ScrubMode::Check)))
    }

    pub(super) fn changes_data(&self) -> bool {
        self.is_write()
            && !matches!(
                self.op,
                Some(HostOp::Flush | HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_))
            )
    }

    pub(crate) fn fua(&self) -> bool {
        matches!(self.op, Some(HostOp::Write { fua: true }))
    }
}

/// A request whose buffer a late operation uses, also when it has completed.
pub(super) struct HeldBuffer {
    index: u32,
    tag: u64,
}

pub(crate) struct Requests {
    pub(super) table: Slab<Record>,
    /// Complete, but held back until a member failure is recorded; in the order of completion.
    pub(super) held_back: VecDeque<u32>,
    pub(super) writes_open: u32,
    /// The array has a partial parity log: without a member it starts again after a power cut.
    pub(super) has_log: bool,
    /// Complete FUA writes of which only parity may have blocks: other data in their rows define
    /// those, so these are flushed first.
    pub(super) to_flush: Vec<u32>,
    /// Ranges of completed writes with intents, and whether they failed half-way.
    pub(crate) intents_ended: Vec<(Sector, u64, bool)>,
}

impl Requests {
    pub(crate) fn with_capacity(capacity: usize) -> Requests {
        Requests {
            table: Slab::with_capacity(capacity),
            held_back: VecDeque::new(),
            writes_open: 0,
            has_log: false,
            to_flush: Vec::new(),
            intents_ended: Vec::new(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.table.live()
    }

    /// Whether a late operation uses the request's buffer.
    pub(crate) fn is_held(&self, index: u32) -> bool {
        self.table.is_held(index)
    }

    /// An operation that uses the request's buffer is late. Returns what
    /// [`let_go`](Requests::let_go) needs.
    pub(super) fn hold(&mut self, index: u32, out: &mut Effects) -> HeldBuffer {
        let tag = self.table[index].tag;
        if self.table.hold(index) {
            out.list.push(Effect::Hold { tag });
        }
        HeldBuffer { index, tag }
    }

    /// A late operation that used the buffer has completed.
    pub(super) fn let_go(&mut self, held: HeldBuffer, out: &mut Effects) {
        if self.table.let_go(held.index) {
            out.list.push(Effect::Release { tag: held.tag });
        }
    }

    /// Number of requests in the shard that change data.
    pub(crate) fn writes_open(&self) -> u32 {
        self.writes_open
    }

    pub(crate) fn admit(&mut self, request: &Request) -> Key {
        let key = self.table.take();
        let record = &mut self.table[key.index];
        // All fields are named, so that none is missed.
        let Record {
            tag,
            op,
            at,
            sectors,
            buf,
            open,
            error,
            unread,
            holder,
            repair: _,
            intent,
            half_way,
            stream,
            is_flushed,
            begun_at,
        } = record;
        (*tag, *op, *at) = (request.tag, Some(request.op), request.at);
        (*sectors, *buf) = (request.sectors, request.buf);
        (*open, *error, *unread, *holder) = (0, None, MemberSet::EMPTY, None);
        (*intent, *half_way, *stream, *is_flushed, *begun_at) = (false, false, false, false, 0);
        self.writes_open += u32::from(record.changes_data());
        key
    }

    pub(crate) fn key(&self, index: u32) -> Key {
        self.table.key(index)
    }

    pub(crate) fn is_live(&self, key: Key) -> bool {
        self.table.is_live(key)
    }

    /// One part has completed; returns whether it was the last.
    pub(crate) fn part_done(&mut self, index: u32) -> bool {
        let record = &mut self.table[index];
        assert!(record.open > 0, "a request ends more parts than it has");
        record.open -= 1;
        record.open == 0
    }

    /// Records the first error of a request; later ones are ignored.
    pub(crate) fn fail(&mut self, index: u32, error: RequestError) {
        self.table[index].error.get_or_insert(error);
    }

    /// Like `fail`, for a write of which some members may have a part.
    pub(crate) fn fail_half_way(&mut self, index: u32, error: RequestError) {
        self.fail(index, error);
        self.table[index].half_way = true;
    }

    /// Completes a request, or holds it back until the losses that it relies on are recorded.
    pub(crate) fn end(&mut self, index: u32, health: &Health, out: &mut Effects) {
        if self.table[index].is_write() && !health.is_recorded() {
            if !health.is_unrecordable() {
                self.held_back.push_back(index);
                return;
            }
            self.fail(index, RequestError::Io);
        }
        self.finish(index, health, out);
    }

    /// Completes a request, unless a flush comes first.
    pub(super) fn finish(&mut self, index: u32, health: &Health, out: &mut Effects) {
        let record = &mut self.table[index];
        let is_durable = record.is_flushed || record.error.is_some() || !record.fua();
        if is_durable || !self.has_log || health.lacking().is_empty() {
            return self.complete(index, out);
        }
        record.is_flushed = true;
        self.to_flush.push(index);
    }

    /// Completes all requests that were held back, with an error if there is one.
    pub(crate) fn release_held_back(
        &mut self,
        error: Option<RequestError>,
        health: &Health,
        out: &mut Effects,
    ) {
        while let Some(index) = self.held_back.pop_front() {
            if let Some(error) = error {
                self.fail(index, error);
            }
            self.finish(index, health, out);
        }
    }

    /// Completes a request, regardless of recorded losses.
    pub(crate) fn complete(&mut self, index: u32, out: &mut Effects) {
        let record = &mut self.table[index];
        debug_assert!(record.open == 0 && record.holder.is_none());
        out.complete(record.tag, record.error.map_or(Ok(()), Err));
        self.writes_open -= u32::from(record.changes_data());
        if record.intent {
            self.intents_ended.push((record.at, record.sectors, record.half_way));
        }
        self.table.release(index);
    }
}

impl std::ops::Index<u32> for Requests {
    type Output = Record;

    fn index(&self, index: u32) -> &Record {
        &self.table[index]
    }
}

impl std::ops::IndexMut<u32> for Requests {
    fn index_mut(&mut self, index: u32) -> &mut Record {
        &mut self.table[index]
    }
}
