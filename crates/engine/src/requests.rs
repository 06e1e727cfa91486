//! The requests in the shard, and their common handling: counting parts, and completion.
//!
//! Invariant: a request completes exactly once, when all of its parts have completed; a write or a
//! flush completes only when every member failure so far is recorded. Called from `shard`,
//! `non_parity` and `stripe`.

use std::collections::VecDeque;

use md::Sector;

use crate::health::Health;
use crate::range_lock::HolderSlot;
use crate::slab::{Key, Slab};
use crate::{BufSlice, Effects, HostOp, MemberSet, Request, RequestError};

/// A request's record. Reset when its slot is taken.
#[derive(Default)]
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
    pub(crate) repair: Repair,
    /// The request is counted as a user of its intents.
    pub(crate) intent: bool,
    /// A part failed after another was written: the range may be out of sync.
    pub(crate) half_way: bool,
    /// For a write that waits for its intents: whether it continues a stream.
    pub(crate) stream: bool,
}

/// Progress of the granule-by-granule repair of a mirrored range; see `non_parity`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Repair {
    pub(crate) cursor: u64,
    pub(crate) tried: MemberSet,
    pub(crate) writing: bool,
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
    fn is_write(&self) -> bool {
        !matches!(self.op, Some(HostOp::Read))
    }

    fn changes_data(&self) -> bool {
        self.is_write() && !matches!(self.op, Some(HostOp::Flush | HostOp::Resync))
    }

    pub(crate) fn fua(&self) -> bool {
        matches!(self.op, Some(HostOp::Write { fua: true }))
    }
}

pub(crate) struct Requests {
    table: Slab<Record>,
    /// Complete, but held back until a member failure is recorded; in the order of completion.
    held_back: VecDeque<u32>,
    writes_open: u32,
    /// Ranges of completed writes with intents, and whether they failed half-way.
    pub(crate) intents_ended: Vec<(Sector, u64, bool)>,
}

impl Requests {
    pub(crate) fn with_capacity(capacity: usize) -> Requests {
        Requests {
            table: Slab::with_capacity(capacity),
            held_back: VecDeque::new(),
            writes_open: 0,
            intents_ended: Vec::new(),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.table.live()
    }

    /// Number of requests in the shard that change data.
    pub(crate) fn writes_open(&self) -> u32 {
        self.writes_open
    }

    pub(crate) fn admit(&mut self, request: &Request) -> Key {
        let key = self.table.take();
        let record = &mut self.table[key.index];
        *record = Record {
            tag: request.tag,
            op: Some(request.op),
            at: request.at,
            sectors: request.sectors,
            buf: request.buf,
            ..Record::default()
        };
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
        self.complete(index, out);
    }

    /// Completes all requests that were held back, with an error if there is one.
    pub(crate) fn release_held_back(&mut self, error: Option<RequestError>, out: &mut Effects) {
        while let Some(index) = self.held_back.pop_front() {
            if let Some(error) = error {
                self.fail(index, error);
            }
            self.complete(index, out);
        }
    }

    /// Completes a request, regardless of recorded losses.
    pub(crate) fn complete(&mut self, index: u32, out: &mut Effects) {
        let record = &self.table[index];
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
