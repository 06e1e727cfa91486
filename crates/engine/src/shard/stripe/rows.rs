//! The chunk rows in use: their queued pieces, their operations in progress, their caches, and the
//! stripe memory that operations take.
//!
//! Invariant: of two overlapping ranges of a row, one of which is written (or repaired), the one
//! that came first is processed first, exclusively. Ranges that do not overlap are processed
//! concurrently, and pieces that wait for the same row are merged before they are planned. A cache
//! entry has the members' contents (or what a lost member would have) at that position of the row.
//! Parity stays valid because it is updated in place; other entries that a write covers are dropped
//! before the write begins. An operation allocates all of its memory or none, so that two of them
//! can never deadlock. [`Plug`] holds rows of streams back for adjacent writes (decision 0002).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use md::{SECTOR_BYTES, StripeNo};

use super::Stripes;
use super::op::{Cell, Class, Grain, Op, OpKind};
use super::scratch::Block;
use crate::slab::Slab;
use crate::{BufSlice, GRANULE_SECTORS, MAX_SPAN_SECTORS, MemberSet, REGION_ZERO};

/// The event that a row with pending writes waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Completion of this number of writing operations: those in flight when the wait began.
    Ends(u64),
    /// A time.
    Until(u64),
}

/// Entries of one row's cache; the oldest is evicted first.
const MAX_CACHED_PER_ROW: usize = 256;

/// A request's part in one chunk.
#[derive(Clone, Copy, Default)]
pub(crate) struct ChunkIo {
    pub(crate) request: u32,
    pub(crate) index: u16,
    /// The range inside the chunk, in sectors.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) slice: BufSlice,
    pub(crate) class: Class,
    pub(crate) fua: bool,
    pub(crate) stream: bool,
    /// Operations in progress on parts of it.
    pub(crate) open: u32,
}

impl ChunkIo {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }

    fn is_host_write(&self) -> bool {
        self.class.kind.is_host_write()
    }
}

/// A cached block of the row, with the members' contents.
pub(crate) struct Cached {
    /// Assigned by `Rows::remember`; never reused.
    pub(crate) id: u64,
    pub(crate) position: u16,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) block: Block,
    /// Operations that use it in place.
    pub(crate) users: u32,
    /// To be freed as soon as it is unused.
    pub(crate) dead: bool,
}

impl Cached {
    /// Whether it covers the whole range.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        !self.dead && self.start <= start && end <= self.end
    }
}

#[derive(Default)]
pub(crate) struct Row {
    pub(crate) stripe: StripeNo,
    /// In order of arrival.
    pub(crate) pending: Vec<u32>,
    /// Operations in progress.
    pub(crate) active: Vec<u32>,
    pub(crate) cached: Vec<Cached>,
    /// Sectors that pending writes cover (counting overlaps twice).
    pub(crate) pending_write_sectors: u64,
    /// What the row's writes wait for while adjacent writes may still come.
    pub(crate) wait: Option<Wait>,
    /// Is in `Rows::touched`.
    pub(crate) listed: bool,
    idle_since: u64,
}

/// Stripe numbers are dense and not chosen by an attacker: one multiplication is sufficient.
#[derive(Default)]
pub(crate) struct StripeHasher(u64);

impl Hasher for StripeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only stripe numbers are hashed")
    }

    fn write_u64(&mut self, stripe: u64) {
        let mixed = stripe.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[derive(Default)]
struct Skipped {
    start: u64,
    end: u64,
    exclusive: bool,
}

pub(crate) struct Rows {
    pub(crate) table: Slab<Row>,
    pub(super) by_stripe: HashMap<u64, u32, BuildHasherDefault<StripeHasher>>,
    pub(crate) pieces: Slab<ChunkIo>,
    /// Rows to be processed before the batch ends.
    pub(crate) touched: VecDeque<u32>,
    /// Idle rows with a cache, as (row, `idle_since`), oldest first; entries may be out of date.
    idle: VecDeque<(u32, u64)>,
    clock: u64,
    chunk: u64,
    data: u16,
    /// Sectors of a logical block.
    block: u64,
    /// Pieces that operations are being made of.
    pub(super) taken: Vec<u32>,
    skipped: Vec<Skipped>,
    cuts: Vec<u64>,
    /// Writes are logged.
    is_logged: bool,
}

impl Rows {
    pub(crate) fn new(chunk: u64, data: u16, block: u64, is_logged: bool) -> Rows {
        Rows {
            table: Slab::with_capacity(1024),
            by_stripe: HashMap::default(),
            pieces: Slab::with_capacity(1024),
            touched: VecDeque::new(),
            idle: VecDeque::new(),
            clock: 0,
            chunk,
            data,
            block,
            taken: Vec::new(),
            skipped: Vec::new(),
            cuts: Vec::new(),
            is_logged,
        }
    }

    /// Queues a piece behind all waiting pieces of its row.
    pub(crate) fn enqueue(&mut self, stripe: StripeNo, piece: ChunkIo) {
        let row = self.row_of(stripe);
        let at = self.pieces.take().index;
        self.pieces[at] = piece;
        let entry = &mut self.table[row];
        entry.pending.push(at);
        if piece.is_host_write() {
            entry.pending_write_sectors += piece.end - piece.start;
        }
        self.touch(row);
    }

    /// Queues pieces in front of all waiting ones; they were here before.
    pub(crate) fn requeue_front(&mut self, row: u32, pieces: &[ChunkIo]) {
        for (order, piece) in pieces.iter().enumerate() {
            let at = self.pieces.take().index;
            self.pieces[at] = *piece;
            self.table[row].pending.insert(order, at);
            if piece.is_host_write() {
                self.table[row].pending_write_sectors += piece.end - piece.start;
            }
        }
        self.touch(row);
    }

    pub(crate) fn touch(&mut self, row: u32) {
        let entry = &mut self.table[row];
        if !entry.listed {
            entry.listed = true;
            self.touched.push_back(row);
        }
    }

    fn row_of(&mut self, stripe: StripeNo) -> u32 {
        if let Some(row) = self.by_stripe.get(&stripe.0) {
            return *row;
        }
        let row = self.table.take().index;
        let entry = &mut self.table[row];
        debug_assert!(entry.pending.is_empty() && entry.active.is_empty());
        debug_assert!(entry.cached.is_empty() && !entry.listed);
        entry.stripe = stripe;
        entry.pending_write_sectors = 0;
        entry.wait = None;
        self.by_stripe.insert(stripe.0, row);
        row
    }

    /// Whether a stream may add writes to the row's pending ones: the row is not complete, and its
    /// end, where an ascending stream leaves it, was not reached yet.
    pub(crate) fn wants_neighbours(&self, row: u32) -> bool {
        let entry = &self.table[row];
        let full = self.chunk * u64::from(self.data);
        let may_grow = |at: &u32| {
            let piece = &self.pieces[*at];
            piece.stream && !(piece.index + 1 == self.data && piece.end == self.chunk)
        };
        entry.pending_write_sectors > 0
            && entry.pending_write_sectors < full
            && entry.pending.iter().all(may_grow)
    }

    /// An operation has ended: its row is checked for waiting pieces, or is released.
    pub(crate) fn left(&mut self, row: u32, op: u32) {
        let entry = &mut self.table[row];
        entry.active.retain(|active| *active != op);
        if entry.pending.is_empty() {
            self.retire(row);
        } else {
            self.touch(row);
        }
    }

    /// Releases an unused row, or records since when it is only a cache.
    pub(crate) fn retire(&mut self, row: u32) {
        let entry = &self.table[row];
        if entry.listed || !entry.pending.is_empty() || !entry.active.is_empty() {
            return;
        }
        if entry.cached.is_empty() {
            self.by_stripe.remove(&entry.stripe.0);
            self.table.release(row);
        } else {
            self.clock += 1;
            self.table[row].idle_since = self.clock;
            self.idle.push_back((row, self.clock));
            if self.idle.len() > 4 * self.table.live() + 64 {
                let table = &self.table;
                self.idle.retain(|(row, since)| {
                    table.is_live(table.key(*row)) && table[*row].idle_since == *since
                });
            }
        }
    }

    /// Evicts the cache of the row that has been idle longest; passes its blocks to `free`. Returns
    /// whether there was one.
    pub(crate) fn evict(&mut self, mut free: impl FnMut(Block)) -> bool {
        while let Some((row, since)) = self.idle.pop_front() {
            if !self.table.is_live(self.table.key(row)) {
                continue;
            }
            let entry = &mut self.table[row];
            let idle = entry.pending.is_empty() && entry.active.is_empty();
            if entry.idle_since != since || !idle || entry.cached.is_empty() {
                continue;
            }
            entry.cached.drain(..).for_each(|cached| free(cached.block));
            if !entry.listed {
                self.retire(row);
            }
            return true;
        }
        false
    }

    /// Evicts all unused cache entries, also of rows in use: the last resort of operations that
    /// would otherwise wait for each other's rows. Returns whether there were any.
    pub(crate) fn evict_unused(&mut self, mut free: impl FnMut(Block)) -> bool {
        let mut any = false;
        for row in self.table.live_values_mut() {
            row.cached.retain(|entry| {
                if entry.users == 0 {
                    free(entry.block);
                    any = true;
                }
                entry.users > 0
            });
        }
        any
    }

    /// Caches a block of a row, unless it is cached already; if there are too many, the oldest
    /// unused entry is evicted.
    pub(crate) fn remember(&mut self, row: u32, mut cached: Cached, mut free: impl FnMut(Block)) {
        self.clock += 1;
        cached.id = self.clock;
        let entries = &mut self.table[row].cached;
        let known = entries.iter().any(|entry| {
            entry.position == cached.position && entry.holds(cached.start, cached.end)
        });
        if known {
            return free(cached.block);
        }
        if entries.len() >= MAX_CACHED_PER_ROW {
            match entries.iter().position(|entry| entry.users == 0) {
                Some(oldest) => free(entries.remove(oldest).block),
                None => return free(cached.block),
            }
        }
        entries.push(cached);
    }

    /// Moves pieces of one class that may be processed now from the row's queue to `taken`.
    fn select(&mut self, row: u32, ops: &Slab<Op>) {
        let Rows { table, pieces, taken, skipped, .. } = self;
        let entry = &mut table[row];
        taken.clear();
        skipped.clear();
        if entry.active.is_empty() && entry.pending.len() == 1 {
            // No other piece overlaps it.
            taken.append(&mut entry.pending);
            entry.pending_write_sectors = 0;
            return;
        }
        entry.pending.retain(|at| {
            let piece = &pieces[*at];
            let excludes = |start, end, exclusive| {
                piece.overlaps(start, end) && (exclusive || piece.class.is_exclusive())
            };
            let blocked = entry.active.iter().any(|op| {
                let op = &ops[*op];
                excludes(op.start, op.end, op.is_exclusive())
            }) || skipped.iter().any(|s| excludes(s.start, s.end, s.exclusive))
                || taken.first().is_some_and(|first| pieces[*first].class != piece.class)
                || taken.iter().any(|other| {
                    let other = &pieces[*other];
                    other.index == piece.index && piece.overlaps(other.start, other.end)
                });
            if blocked {
                let (start, end) = (piece.start, piece.end);
                skipped.push(Skipped { start, end, exclusive: piece.class.is_exclusive() });
            } else {
                taken.push(*at);
            }
            blocked
        });
        for at in taken.iter() {
            let piece = &pieces[*at];
            if piece.is_host_write() {
                entry.pending_write_sectors -= piece.end - piece.start;
            }
        }
    }

    /// Makes operations of all pieces in the row's queue that may be processed now; appends them to
    /// `formed`.
    pub(crate) fn form(&mut self, row: u32, ops: &mut Slab<Op>, formed: &mut Vec<u32>) {
        loop {
            let entry = &self.table[row];
            let alone = entry.pending.len() == 1 && entry.active.is_empty();
            self.select(row, ops);
            if self.is_logged {
                self.take_neighbours_only(row);
            }
            if self.taken.is_empty() {
                return;
            }
            if alone && self.form_single(row, ops, formed) {
                return;
            }
            self.cut();
            let cuts = std::mem::take(&mut self.cuts);
            for span in cuts.windows(2) {
                self.form_span(row, (span[0], span[1]), ops, formed);
            }
            self.cuts = cuts;
        }
    }

    /// Makes the operation of a single short piece, the usual case of random requests.
    fn form_single(&mut self, row: u32, ops: &mut Slab<Op>, formed: &mut Vec<u32>) -> bool {
        let ChunkIo { start, end, class, .. } = self.pieces[self.taken[0]];
        let step = self.step(class);
        let short = start / step == (end - 1) / step && class.kind != OpKind::Discard;
        if short {
            self.form_span(row, (start, end), ops, formed);
        }
        short
    }

    /// No operation crosses a multiple of this.
    fn step(&self, class: Class) -> u64 {
        match class.grain {
            Grain::Span => MAX_SPAN_SECTORS,
            Grain::Granule => GRANULE_SECTORS,
            Grain::Block => self.block,
        }
    }

    /// Finds the sectors of the chunk at which the taken pieces must be cut into operations.
    fn cut(&mut self) {
        let step = self.step(self.pieces[self.taken[0]].class);
        let Rows { pieces, taken, cuts, .. } = self;
        cuts.clear();
        let first = pieces[taken[0]];
        let alike =
            taken.iter().all(|at| (pieces[*at].start, pieces[*at].end) == (first.start, first.end));
        let whole_row = alike && taken.len() == usize::from(self.data);
        let no_data = first.class.kind.has_host_data()
            && taken.iter().all(|at| pieces[*at].slice.region == REGION_ZERO);
        let (mut low, mut high) = (u64::MAX, 0);
        for at in taken.iter() {
            let piece = &pieces[*at];
            cuts.extend([piece.start, piece.end]);
            low = low.min(piece.start);
            high = high.max(piece.end);
        }
        cuts.sort_unstable();
        cuts.dedup();
        if whole_row && no_data && first.class.grain == Grain::Span {
            return;
        }
        // Inner boundaries are kept only where the set of covered positions changes.
        if cuts.len() > 2 {
            let covered = |from: u64| -> MemberSet {
                let here = taken.iter().filter(|at| pieces[**at].overlaps(from, from + 1));
                here.map(|at| pieces[*at].index).collect()
            };
            let mut before = MemberSet::EMPTY;
            cuts.retain(|cut| {
                let after = if *cut < high { covered(*cut) } else { MemberSet::EMPTY };
                let changes = after != before;
                before = after;
                changes
            });
        }
        if high - low > step || low / step != (high - 1) / step {
            let mut at = (low / step + 1) * step;
            while at < high {
                cuts.push(at);
                at += step;
            }
            cuts.sort_unstable();
            cuts.dedup();
        }
    }

    /// Makes the operation for one range of the taken pieces, unless it is a gap between them.
    fn form_span(
        &mut self,
        row: u32,
        (start, end): (u64, u64),
        ops: &mut Slab<Op>,
        formed: &mut Vec<u32>,
    ) {
        let Rows { table, pieces, taken, .. } = self;
        if !taken.iter().any(|at| pieces[*at].overlaps(start, end)) {
            return;
        }
        let class = pieces[taken[0]].class;
        let at = ops.take().index;
        let op = &mut ops[at];
        op.reset(row, table[row].stripe, (start, end), class);
        op.cells.resize(usize::from(self.data) + 2, Cell::default());
        let mut fua = false;
        for at in taken.iter() {
            let piece = &mut pieces[*at];
            if piece.overlaps(start, end) {
                piece.open += 1;
                op.pieces.push(*at);
                if class.kind.has_host_data() {
                    op.covered.insert(piece.index);
                }
                fua |= piece.fua;
                op.stream |= piece.stream;
            }
        }
        // By position, then by address: so the slices of a position are in order.
        op.pieces.sort_unstable_by_key(|at| (pieces[*at].index, pieces[*at].start));
        let with_host = if class.kind.has_host_data() { op.pieces.as_slice() } else { &[] };
        for at in with_host {
            let piece = &pieces[*at];
            let (from, to) = (piece.start.max(start), piece.end.min(end));
            let cell = &mut op.cells[usize::from(piece.index)];
            if cell.host_count == 0 {
                cell.host_first = op.host.len() as u32;
            }
            cell.host_count += 1;
            op.host.push(piece.slice.part(from - piece.start, to - from));
        }
        let zeroes = op.covered.len() == usize::from(self.data)
            && op.host.iter().all(|slice| slice.region == REGION_ZERO);
        if let Some(write) = op.write_mut() {
            (write.fua, write.zeroes) = (fua, zeroes);
        }
        table[row].active.push(at);
        formed.push(at);
    }
}

/// Plugging: delays writes of a stream until adjacent writes complete the stripe.
///
/// ```text
/// new piece --> by_ends: earlier writes are still in flight; when they complete, the host
///    |               |    submits more
///    |               v
///    |            clocks: at most `merge_wait_nanos`, and about as long as a write takes
///    v               v
///   row complete, or the stream has passed its end, or no other write --> planned
/// ```
/// Without the first stage a member slower than the clock would break every stream: a host at its
/// queue depth cannot send the rest of a row before an earlier request completes.
///
///
/// Invariant: a waiting row is in `by_ends` or in `clocks`, and the event that it waits for occurs:
/// operations complete, and the shard sets the timer.
pub(crate) struct Plug {
    merge_wait_nanos: u64,
    /// Number of operations of host writes so far: scrubs and resyncs lead to no write of a host.
    begun: u64,
    ended: u64,
    /// Duration of a writing operation, as a moving average.
    typical_nanos: u64,
    /// (operations that must have completed, row), in ascending order.
    by_ends: VecDeque<(u64, u32)>,
    /// (deadline, row), in ascending order.
    clocks: VecDeque<(u64, u32)>,
}

impl Plug {
    pub(crate) fn new(merge_wait_nanos: u64) -> Plug {
        Plug {
            merge_wait_nanos,
            begun: 0,
            ended: 0,
            typical_nanos: merge_wait_nanos,
            by_ends: VecDeque::new(),
            clocks: VecDeque::new(),
        }
    }

    /// Whether no row waits.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.by_ends.is_empty() && self.clocks.is_empty()
    }

    pub(crate) fn write_begun(&mut self) {
        self.begun += 1;
    }

    pub(crate) fn write_ended(&mut self, took_nanos: u64) {
        self.ended += 1;
        self.typical_nanos = self.typical_nanos - self.typical_nanos / 8 + took_nanos / 8;
    }

    /// Whether the row's writes continue to wait. `alone`: no other write is in the shard, so that
    /// no adjacent one can come.
    pub(crate) fn waits(&mut self, rows: &mut Rows, row: u32, now: u64, alone: bool) -> bool {
        if alone || self.merge_wait_nanos == 0 || !rows.wants_neighbours(row) {
            return false;
        }
        match rows.table[row].wait {
            Some(Wait::Until(deadline)) => now < deadline,
            Some(Wait::Ends(_)) => true,
            None => {
                rows.table[row].wait = Some(Wait::Ends(self.begun));
                self.by_ends.push_back((self.begun, row));
                true
            }
        }
    }

    /// Wakes the rows whose deadline has passed, after a timer event.
    pub(crate) fn timer_due(&mut self, rows: &mut Rows, now: u64) {
        while let Some((deadline, row)) = self.clocks.front().copied() {
            if deadline > now {
                break;
            }
            self.clocks.pop_front();
            if is_waiting(rows, row, Wait::Until(deadline)) {
                rows.touch(row);
            }
        }
    }

    /// Starts the clocks of rows with no more writes in flight to wait for; returns the next
    /// deadline.
    pub(crate) fn unplug_due(&mut self, rows: &mut Rows, now: u64) -> Option<u64> {
        while let Some((ends, row)) = self.by_ends.front().copied() {
            let waiting = is_waiting(rows, row, Wait::Ends(ends));
            if waiting && ends > self.ended {
                break;
            }
            self.by_ends.pop_front();
            if waiting {
                let span = self.merge_wait_nanos.min(2 * self.typical_nanos);
                let last = self.clocks.back().map_or(0, |(deadline, _)| *deadline);
                let deadline = last.max(now + span);
                rows.table[row].wait = Some(Wait::Until(deadline));
                self.clocks.push_back((deadline, row));
            }
        }
        while let Some((deadline, row)) = self.clocks.front().copied() {
            if is_waiting(rows, row, Wait::Until(deadline)) {
                break;
            }
            self.clocks.pop_front();
        }
        self.clocks.front().map(|(deadline, _)| *deadline)
    }
}

/// Whether this is still what the row waits for.
fn is_waiting(rows: &Rows, row: u32, wait: Wait) -> bool {
    rows.table.is_live(rows.table.key(row)) && rows.table[row].wait == Some(wait)
}

/// State of an operation's memory when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheAfter {
    /// No member was changed yet.
    AsBefore,
    /// The members' current contents, except the old contents of written blocks.
    OnMembers,
    /// A write failed half-way.
    Unknown,
}

impl Stripes {
    /// Allocates a block for each position, evicting unused cache entries. `false`: there is not
    /// enough; everything is released, including borrowed entries.
    /// `partial`: also one for partial parity.
    pub(crate) fn take_memory(&mut self, at: u32, positions: MemberSet, partial: bool) -> bool {
        let bytes = self.ops[at].sectors() * SECTOR_BYTES;
        if partial {
            let block = self.take_block(bytes);
            if let Some(write) = self.ops[at].write_mut() {
                write.partial = block;
            }
            if block.is_none() {
                self.return_memory(at, CacheAfter::AsBefore);
                return false;
            }
        }
        for position in positions.iter() {
            let Some(block) = self.take_block(bytes) else {
                self.return_memory(at, CacheAfter::AsBefore);
                return false;
            };
            let op = &mut self.ops[at];
            op.blocks.push((position, block));
            op.cells[usize::from(position)].scratch = Some(block.offset);
        }
        true
    }

    #[inline]
    fn take_block(&mut self, bytes: u64) -> Option<Block> {
        self.scratch.take(bytes).or_else(|| self.evict_for_block(bytes))
    }

    #[cold]
    fn evict_for_block(&mut self, bytes: u64) -> Option<Block> {
        loop {
            let scratch = &mut self.scratch;
            scratch.note_short();
            let freed = self.rows.evict(|block| scratch.give_back(block))
                || self.rows.evict_unused(|block| scratch.give_back(block));
            if !freed {
                return None;
            }
            if let Some(block) = scratch.take(bytes) {
                return Some(block);
            }
        }
    }

    /// Positions of which the row's cache has the operation's whole range.
    pub(crate) fn cached_positions(&self, at: u32) -> MemberSet {
        let op = &self.ops[at];
        let entries = &self.rows.table[op.row].cached;
        if entries.is_empty() {
            return MemberSet::EMPTY;
        }
        let whole = entries.iter().filter(|entry| entry.holds(op.start, op.end));
        whole.map(|entry| entry.position).collect()
    }

    /// Uses cache entries of the row in place.
    pub(crate) fn borrow_cached(&mut self, at: u32, positions: MemberSet) {
        let op = &mut self.ops[at];
        let entries = &mut self.rows.table[op.row].cached;
        for position in positions.iter() {
            let mut here = entries.iter_mut().filter(|entry| entry.holds(op.start, op.end));
            let entry =
                here.find(|entry| entry.position == position).expect("the entry is in the plan");
            entry.users += 1;
            op.borrowed.push((position, entry.id));
            op.cells[usize::from(position)].scratch =
                Some(entry.block.offset + (op.start - entry.start) * SECTOR_BYTES);
        }
    }

    /// Drops cache entries of a range that is about to be written. `untouched` data stay valid; so
    /// does parity that the operation has borrowed, because it updates it in place.
    pub(crate) fn drop_cached(&mut self, at: u32, untouched: MemberSet) {
        let Stripes { ops, rows, scratch, .. } = self;
        let op = &ops[at];
        let data = op.cells.len() as u16 - 2;
        rows.table[op.row].cached.retain_mut(|entry| {
            let overlaps = entry.start < op.end && op.start < entry.end;
            let updated = entry.position >= data
                && op.borrowed.iter().any(|(_, borrowed)| *borrowed == entry.id);
            if !overlaps || updated || untouched.contains(entry.position) {
                return true;
            }
            entry.dead = true;
            if entry.users == 0 {
                scratch.give_back(entry.block);
            }
            entry.users > 0
        });
    }

    /// Releases an operation's memory. For a stream of writes, blocks with the members' contents
    /// are cached for the next operation on the row.
    pub(crate) fn return_memory(&mut self, at: u32, afterwards: CacheAfter) {
        let Stripes { ops, rows, scratch, .. } = self;
        let op = &mut ops[at];
        if !op.borrowed.is_empty() {
            rows.table[op.row].cached.retain_mut(|entry| {
                if op.borrowed.iter().any(|(_, borrowed)| *borrowed == entry.id) {
                    entry.users -= 1;
                    entry.dead |= afterwards == CacheAfter::Unknown || scratch.is_held(entry.block);
                }
                let gone = entry.dead && entry.users == 0;
                if gone {
                    scratch.give_back(entry.block);
                }
                !gone
            });
            op.borrowed.clear();
        }
        if let Some(block) = op.take_partial() {
            scratch.give_back(block);
        }
        // A full stripe needs nothing again soon, nor does a stream that reads.
        let returns = !op.is_read() && op.covered.len() + 2 < op.cells.len();
        let keep = op.stream
            && returns
            && afterwards == CacheAfter::OnMembers
            && op.read_failed.is_empty();
        let stale = if op.is_read() { MemberSet::EMPTY } else { op.covered };
        let (start, end, row) = (op.start, op.end, op.row);
        while let Some((position, block)) = op.blocks.pop() {
            if keep && !stale.contains(position) && !scratch.is_held(block) {
                let cached = Cached { id: 0, position, start, end, block, users: 0, dead: false };
                rows.remember(row, cached, |block| scratch.give_back(block));
            } else {
                scratch.give_back(block);
            }
        }
        for cell in &mut op.cells {
            cell.scratch = None;
        }
    }
}
