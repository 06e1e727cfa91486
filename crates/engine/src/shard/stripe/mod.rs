//! The levels with parity: RAID 4, 5 and 6: their state, and the entry points for `shard`.
//!
//! ```text
//! request --split--> pieces --rows--> operations --ops--> member I/O and parity work
//!                    (one chunk       (one range of a     plan, read, recover,
//!                     of one row)      row, all its        compute, write
//!                                      blocks alike)
//! ```
//! Where a row is healthy, reads go to the members directly; all else is split into pieces.
//!
//! Invariant: the direct reads and the pieces together cover a request exactly once. Between two
//! batches, every piece waits for adjacent pieces, for an operation on its range, or for stripe
//! memory; none is lost. Called only from `shard`.

mod failed_ops;
mod filling;
mod late;
mod op;
mod ops;
mod partial_parity;
mod plan;
mod rows;
mod rows_zero;
pub(super) mod scratch;
mod scrub;

use std::collections::VecDeque;
use std::ops::Range;

use md::{Kind as GeometryKind, MemberIdx, Parity, RowRole, Sector, StripeNo};

pub(crate) use self::op::OpKind;
use self::op::{Class, Grain, Op};
use self::partial_parity::PartialParityLog;
use self::plan::{ExecPlan, StripeState};
use self::rows::{ChunkIo, Plug, Rows};
use self::rows_zero::RowsZero;
use self::scratch::Scratch;
use super::Context;
use super::coalesce::Coalescer;
use super::in_sync::SyncMap;
use crate::slab::Slab;
use crate::token::Kind;
use crate::{
    BufSlice, Effect, HostOp, IoError, MemberSet, REGION_ZERO, RequestError, ShardConfig, Token,
};

/// Amount of I/O begun per batch, in sectors of all members: it completes before more is begun, so
/// that its data are still in the CPU's caches. Members that complete asynchronously are not
/// affected: the executor begins the rest before it waits for them.
const BEGIN_SECTORS: u64 = (256 << 10) / md::SECTOR_BYTES;

impl<'a> Context<'a> {
    pub(crate) fn parity(&self) -> &'a Parity {
        match self.geometry.kind() {
            GeometryKind::Parity(parity) => parity,
            _ => unreachable!("levels without parity belong to `non_parity`"),
        }
    }
}

/// One chunk's part of a request.
#[derive(Clone, Copy)]
struct ChunkPart {
    stripe: StripeNo,
    index: u16,
    offset: u64,
    sectors: u64,
    /// Array sector at which the part begins.
    at: u64,
}

pub(crate) struct Stripes {
    pub(crate) rows: Rows,
    pub(crate) ops: Slab<Op>,
    pub(crate) scratch: Scratch,
    pub(crate) region: u16,
    /// Operations that wait for stripe memory, in order of arrival.
    pub(crate) awaiting_memory: VecDeque<u32>,
    pub(crate) formed: Vec<u32>,
    pub(crate) scatter: Coalescer,
    pub(crate) discard_zeroes: bool,
    pub(crate) neighbours: Plug,
    /// Discards and writes of zeroes of several rows.
    rows_zero: RowsZero,
    /// The sync map.
    pub(crate) sync: SyncMap,
    /// The partial parity log, if the array has one.
    pub(crate) log: Option<PartialParityLog>,
    /// How many more resyncs write parity without having read it: the one before found it
    /// different.
    pub(crate) unread_resyncs: u32,
    /// The last execution plans of plain writes, by a hash of their inputs.
    pub(crate) exec_plans: [Option<(StripeState, ExecPlan)>; 16],
}

impl Stripes {
    pub(crate) fn new(config: &ShardConfig) -> Stripes {
        let data = match config.geometry.kind() {
            GeometryKind::Parity(parity) => parity.data_disks() as u16,
            _ => 1,
        };
        let block = u64::from(config.logical_block) / md::SECTOR_BYTES;
        Stripes {
            rows: Rows::new(
                config.geometry.chunk_sectors(),
                data,
                block,
                config.partial_parity_log.is_some(),
            ),
            log: config
                .partial_parity_log
                .map(|area| PartialParityLog::new(area, config.geometry.members())),
            sync: SyncMap::new(&config.out_of_sync, block, config.missing_by_force)
                .with_rebuilding(&config.rebuilding),
            ops: Slab::with_capacity(1024),
            scratch: Scratch::new(config.stripe_cache_bytes, config.usable_stripe_bytes()),
            region: config.scratch_region,
            awaiting_memory: VecDeque::new(),
            formed: Vec::new(),
            scatter: Coalescer::default(),
            unread_resyncs: 0,
            exec_plans: [None; 16],
            discard_zeroes: config.discard_zeroes,
            rows_zero: RowsZero::new(),
            neighbours: Plug::new(config.merge_wait_nanos.min(crate::MAX_MERGE_WAIT_NANOS)),
        }
    }

    /// Unused stripe memory in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.scratch.free_bytes()
    }

    /// Number of operations in progress or waiting for memory.
    pub(crate) fn operations(&self) -> usize {
        self.ops.live() + self.rows_zero.len()
    }

    /// Whether `plan_batch` has left operations to begin.
    pub(crate) fn has_more(&self) -> bool {
        !self.rows.touched.is_empty()
    }

    /// Plans the pieces of the batch, or a part of them (`has_more`); returns the next deadline.
    #[inline]
    pub(crate) fn plan_batch(&mut self, cx: &mut Context<'_>, timer: bool) -> Option<u64> {
        // As after most completions.
        let has_nothing = self.rows.touched.is_empty()
            && self.awaiting_memory.is_empty()
            && self.neighbours.is_idle()
            && self.rows_zero.len() == 0
            && self.log.is_none();
        if has_nothing { None } else { self.plan_rows(cx, timer) }
    }

    fn plan_rows(&mut self, cx: &mut Context<'_>, timer: bool) -> Option<u64> {
        if timer {
            self.neighbours.timer_due(&mut self.rows, cx.now);
        }
        let alone = cx.requests.writes_open() <= 1;
        let mut begun = 0;
        loop {
            // In the order in which they were touched, so that a stream is sent in its own order.
            while begun < BEGIN_SECTORS
                && let Some(row) = self.rows.touched.pop_front()
            {
                self.rows.table[row].listed = false;
                let key = self.rows.table.key(row);
                if !self.neighbours.waits(&mut self.rows, row, cx.now, alone) {
                    begun += self.form_and_start(cx, row);
                }
                // Unless its operations have completed already, and the row was released.
                if self.rows.table.is_live(key) {
                    self.rows.retire(row);
                }
            }
            self.retry_awaiting_memory(cx);
            if self.rows.touched.is_empty() || begun >= BEGIN_SECTORS {
                break;
            }
        }
        self.begin_rows_zero(cx);
        loop {
            self.run_log(cx);
            // What has ended has released memory.
            self.retry_awaiting_memory(cx);
            if !self.log.as_ref().is_some_and(PartialParityLog::has_news) {
                break;
            }
        }
        self.neighbours.unplug_due(&mut self.rows, cx.now)
    }

    /// Returns the amount of I/O begun, in sectors of all members.
    fn form_and_start(&mut self, cx: &mut Context<'_>, row: u32) -> u64 {
        let mut begun = 0;
        let mut formed = std::mem::take(&mut self.formed);
        self.rows.form(row, &mut self.ops, &mut formed);
        let entry = &mut self.rows.table[row];
        if entry.pending.is_empty() {
            // Pieces that come from now on may wait again.
            entry.wait = None;
        }
        for op in formed.drain(..) {
            self.ops[op].begun_at = cx.now;
            begun += self.ops[op].sectors() * cx.geometry.members() as u64;
            if self.ops[op].class.kind.is_host_write() {
                self.neighbours.write_begun();
            }
            self.start_or_queue(cx, op);
        }
        self.formed = formed;
        begun
    }

    /// Sends a read to the members; rows that need recovery go through operations.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, request: u32, stream: bool) {
        let range = cx.requests[request].at.0..cx.requests[request].end();
        if cx.health.lacking().is_empty() {
            if read_in_one(cx, request) {
                return;
            }
            self.each_part(cx, range, |stripes, cx, part| {
                let row = cx.parity().row(part.stripe);
                let member = row.data[usize::from(part.index)];
                stripes.direct(cx, request, part, member);
            });
        } else {
            self.each_part(cx, range, |stripes, cx, part| {
                let row = cx.parity().row(part.stripe);
                let member = row.data[usize::from(part.index)];
                let sector = cx.parity().member_sector(part.stripe, part.offset).0;
                let is_absent = cx.health.is_absent(member.0, sector, part.sectors);
                if !is_absent && !request_touches_lost(cx, request, part) {
                    return stripes.direct(cx, request, part, member);
                }
                stripes.read_piece(cx, request, part, stream, Grain::Span);
            });
        }
        let key = cx.requests.key(request);
        let requests = &mut *cx.requests;
        self.scatter.drain(cx.out, |run, out| {
            requests[request].open += 1;
            out.list.push(run.read(key));
        });
    }

    /// A direct read completed. Ranges that a member could not read are read again through
    /// operations; granule by granule if the member is still in service, so that only bad blocks
    /// are reconstructed.
    pub(crate) fn read_done(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        member: u16,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            cx.requests[request].unread.insert(member);
            if error.kind.fails_reader() {
                cx.health.drop_member(cx.geometry, member, Some(error), cx.out);
            }
        }
        self.request_part_done(cx, request);
    }

    /// A part of a request completed: a direct read, or a piece of a row. With the last part the
    /// request completes, or the ranges that its direct reads failed to read are read again.
    pub(crate) fn request_part_done(&mut self, cx: &mut Context<'_>, request: u32) {
        if !cx.requests.part_done(request) {
            return;
        }
        let unread = std::mem::replace(&mut cx.requests[request].unread, MemberSet::EMPTY);
        if !unread.is_empty() && cx.requests.is_held(request) {
            // The buffer is not free for another read.
            cx.requests.fail(request, RequestError::Io);
        }
        if unread.is_empty() || cx.requests[request].error.is_some() {
            return cx.requests.end(request, cx.health, cx.out);
        }
        let range = cx.requests[request].at.0..cx.requests[request].end();
        self.each_part(cx, range, |stripes, cx, part| {
            let member = cx.parity().row(part.stripe).data[usize::from(part.index)];
            if unread.contains(member.0) {
                let grain = match cx.health.is_failed(member.0) {
                    true => Grain::Span,
                    false => Grain::Granule,
                };
                stripes.read_piece(cx, request, part, false, grain);
            }
        });
    }

    /// Queues a write, a write of zeroes or a discard.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>, request: u32, stream: bool) {
        let op = cx.requests[request].op.expect("a request in the table has its operation");
        let range = cx.requests[request].at.0..cx.requests[request].end();
        if matches!(op, HostOp::Write { .. }) {
            return self.write_parts(cx, request, range, stream);
        }
        let has_no_effect = !self.discard_zeroes || self.log.is_some();
        if op == HostOp::Discard && has_no_effect {
            return cx.requests.end(request, cx.health, cx.out);
        }
        let width = cx.geometry.stripe_sectors();
        let whole = range.start.next_multiple_of(width)..range.end / width * width;
        if whole.is_empty() {
            return match op {
                HostOp::Discard => cx.requests.end(request, cx.health, cx.out),
                _ => self.write_parts(cx, request, range, stream),
            };
        }
        // One part more, so that the request cannot end before all of them are queued.
        cx.requests[request].open += 1;
        if op == HostOp::WriteZeroes {
            self.write_parts(cx, request, range.start..whole.start, stream);
            self.write_parts(cx, request, whole.end..range.end, stream);
        }
        // With a log, each row is named before it is written.
        match whole.end - whole.start == width || self.log.is_some() {
            true => self.write_parts(cx, request, whole, stream),
            false => self.zero_rows(cx, request, op, whole.start / width..whole.end / width),
        }
        self.request_part_done(cx, request);
    }

    /// Queues a part of a write, of a write of zeroes, or of a discard of whole rows.
    fn write_parts(&mut self, cx: &mut Context<'_>, request: u32, range: Range<u64>, stream: bool) {
        let op = cx.requests[request].op;
        let kind = match op {
            Some(HostOp::Discard) => OpKind::Discard,
            _ => OpKind::Write,
        };
        self.each_part(cx, range, |stripes, cx, part| {
            let record = &mut cx.requests[request];
            let slice = match op {
                Some(HostOp::Write { .. }) => record.slice(part.at, part.sectors),
                _ => {
                    let len = (part.sectors * md::SECTOR_BYTES) as u32;
                    BufSlice { region: REGION_ZERO, len, offset: 0 }
                }
            };
            record.open += 1;
            let piece = ChunkIo {
                request,
                index: part.index,
                start: part.offset,
                end: part.offset + part.sectors,
                slice,
                class: Class { kind, grain: Grain::Span },
                fua: record.fua(),
                stream,
                open: 0,
            };
            stripes.enqueue(part.stripe, piece);
        });
    }

    /// Queues a piece behind all earlier work on its row.
    fn enqueue(&mut self, stripe: StripeNo, piece: ChunkIo) {
        if !self.rows_zero.hold_back(stripe, &piece) {
            self.rows.enqueue(stripe, piece);
        }
    }

    /// Queues a resync or a scrub of a range of member sectors.
    pub(crate) fn each_row(&mut self, cx: &mut Context<'_>, request: u32, kind: OpKind) {
        let chunk = cx.geometry.chunk_sectors();
        let record = &mut cx.requests[request];
        let (mut at, end) = (record.at.0, record.end());
        while at < end {
            let offset = at % chunk;
            let sectors = (chunk - offset).min(end - at);
            record.open += 1;
            // Only the length counts.
            let len = (sectors * md::SECTOR_BYTES) as u32;
            let piece = ChunkIo {
                request,
                index: 0,
                start: offset,
                end: offset + sectors,
                slice: BufSlice { region: REGION_ZERO, len, offset: 0 },
                class: Class { kind, grain: Grain::Span },
                fua: false,
                stream: false,
                open: 0,
            };
            self.enqueue(StripeNo(at / chunk), piece);
            at += sectors;
        }
    }

    fn direct(&mut self, cx: &mut Context<'_>, request: u32, part: ChunkPart, member: MemberIdx) {
        let sector = cx.parity().member_sector(part.stripe, part.offset);
        let slice = cx.requests[request].slice(part.at, part.sectors);
        self.scatter.add(member.0, sector.0, slice);
    }

    fn read_piece(
        &mut self,
        cx: &mut Context<'_>,
        request: u32,
        part: ChunkPart,
        stream: bool,
        grain: Grain,
    ) {
        let record = &mut cx.requests[request];
        record.open += 1;
        let piece = ChunkIo {
            request,
            index: part.index,
            start: part.offset,
            end: part.offset + part.sectors,
            slice: record.slice(part.at, part.sectors),
            class: Class { kind: OpKind::Read, grain },
            fua: false,
            stream,
            open: 0,
        };
        self.enqueue(part.stripe, piece);
    }

    fn each_part(
        &mut self,
        cx: &mut Context<'_>,
        range: Range<u64>,
        mut act: impl FnMut(&mut Stripes, &mut Context<'_>, ChunkPart),
    ) {
        let Range { start: mut at, end } = range;
        if at == end {
            return;
        }
        let chunk = cx.geometry.chunk_sectors();
        let data = cx.parity().data_disks() as u16;
        let first = cx.parity().locate(Sector(at));
        let (mut stripe, mut index, mut offset) = (first.stripe, first.index, first.offset);
        while at < end {
            let sectors = (chunk - offset).min(end - at);
            act(self, cx, ChunkPart { stripe, index, offset, sectors, at });
            at += sectors;
            offset = 0;
            index += 1;
            if index == data {
                index = 0;
                stripe = StripeNo(stripe.0 + 1);
            }
        }
    }
}

/// Sends a read inside one chunk of a healthy array; `false`: the request is not of this kind.
fn read_in_one(cx: &mut Context<'_>, request: u32) -> bool {
    let place = cx.parity().locate(cx.requests[request].at);
    let record = &mut cx.requests[request];
    if record.sectors > cx.geometry.chunk_sectors() - place.offset {
        return false;
    }
    record.open += 1;
    let buf = record.buf;
    let member = cx.parity().row(place.stripe).data[usize::from(place.index)];
    let sector = cx.parity().member_sector(place.stripe, place.offset);
    let token = Token::new(Kind::Read, member.0, cx.requests.key(request));
    let slices = cx.out.push_slices([buf]);
    cx.out.list.push(Effect::Read { token, member, sector, slices, in_place_ok: false });
    true
}

/// Whether the request also needs a block of the same row whose member has failed: then the whole
/// row goes through one operation, so that no block is read twice.
fn request_touches_lost(cx: &Context<'_>, request: u32, part: ChunkPart) -> bool {
    let record = &cx.requests[request];
    let chunk = cx.geometry.chunk_sectors();
    let row = cx.parity().row(part.stripe);
    let row_start = cx.parity().array_sector(part.stripe, 0, 0).0;
    let chunk_start = cx.parity().member_sector(part.stripe, 0).0;
    let absent = cx.health.absent(chunk_start..chunk_start + chunk);
    absent.iter().any(|member| match row.role[usize::from(member)] {
        RowRole::Data(index) => {
            let start = row_start + u64::from(index) * chunk;
            start < record.end() && record.at.0 < start + chunk
        }
        RowRole::P | RowRole::Q => false,
    })
}
