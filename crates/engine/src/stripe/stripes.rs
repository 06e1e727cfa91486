//! The parity levels of a shard: their state, and the entry points for `shard`.
//!
//! Invariant: between two batches, every piece waits for adjacent pieces, for an operation on its
//! range, or for stripe memory; none is lost. Called only from `shard`.

use std::collections::VecDeque;

use md::{Geometry, Kind as GeometryKind, Parity};

use super::in_sync::SyncMap;
use super::op::Op;
use super::ops::ExecPlan;
use super::plan::StripeState;
use super::plug::Plug;
use super::rows::Rows;
use super::scratch::Scratch;
use crate::coalesce::Coalescer;
use crate::health::Health;
use crate::requests::Requests;
use crate::slab::Slab;
use crate::{Effects, ShardConfig};

/// Amount of I/O begun per batch, in sectors of all members: it completes before more is begun, so
/// that its data are still in the CPU's caches. Members that complete asynchronously are not
/// affected: the executor begins the rest before it waits for them.
const BEGIN_SECTORS: u64 = (256 << 10) / md::SECTOR_BYTES;

/// State that the shard lends to the stripe code for one call.
pub(crate) struct Context<'a> {
    pub(crate) now: u64,
    pub(crate) geometry: &'a Geometry,
    pub(crate) requests: &'a mut Requests,
    pub(crate) health: &'a mut Health,
    pub(crate) out: &'a mut Effects,
    /// Called with members that completed a write, for the shard's flushes.
    pub(crate) written: &'a mut dyn FnMut(u16),
}

impl<'a> Context<'a> {
    pub(crate) fn parity(&self) -> &'a Parity {
        match self.geometry.kind() {
            GeometryKind::Parity(parity) => parity,
            _ => unreachable!("levels without parity belong to `flat`"),
        }
    }
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
    /// The sync map.
    pub(crate) sync: SyncMap,
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
            rows: Rows::new(config.geometry.chunk_sectors(), data, block),
            sync: SyncMap::new(&config.out_of_sync, block),
            ops: Slab::with_capacity(1024),
            scratch: Scratch::new(config.stripe_cache_bytes),
            region: config.scratch_region,
            awaiting_memory: VecDeque::new(),
            formed: Vec::new(),
            scatter: Coalescer::default(),
            exec_plans: [None; 16],
            discard_zeroes: config.discard_zeroes,
            neighbours: Plug::new(config.merge_wait_nanos.min(crate::MAX_MERGE_WAIT_NANOS)),
        }
    }

    /// Unused stripe memory in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.scratch.free_bytes()
    }

    /// Number of operations in progress or waiting for memory.
    pub(crate) fn operations(&self) -> usize {
        self.ops.live()
    }

    /// Whether `plan_batch` has left operations to begin.
    pub(crate) fn has_more(&self) -> bool {
        !self.rows.touched.is_empty()
    }

    /// Plans the pieces of the batch, or a part of them (`has_more`); returns the next deadline.
    pub(crate) fn plan_batch(&mut self, cx: &mut Context<'_>, timer: bool) -> Option<u64> {
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
            if self.ops[op].is_write() {
                self.neighbours.write_begun();
            }
            self.start_or_queue(cx, op);
        }
        self.formed = formed;
        begun
    }
}
