//! The stripe side of a shard: its state, and the doors through which `shard` comes in.
//!
//! Invariant: between two batches, every piece is waiting for its neighbours, for an operation at work
//! on its range, or for stripe memory; nothing is forgotten. Called only from `shard`.

use std::collections::VecDeque;

use md::{Geometry, Kind as GeometryKind, Parity};

use super::op::Op;
use super::rows::Rows;
use super::scratch::Scratch;
use crate::health::Health;
use crate::requests::Requests;
use crate::scatter::Scatter;
use crate::slab::Slab;
use crate::{Effect, Effects, ShardConfig};

/// What the stripe side works on besides its own state; lent by the shard for one call.
pub(crate) struct Context<'a> {
    pub(crate) now: u64,
    pub(crate) geometry: &'a Geometry,
    pub(crate) requests: &'a mut Requests,
    pub(crate) health: &'a mut Health,
    pub(crate) out: &'a mut Effects,
    /// Members that completed a write since; the shard's flushes must know.
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
    /// Operations that wait for stripe memory, first come first served.
    pub(crate) starved: VecDeque<u32>,
    pub(crate) formed: Vec<u32>,
    pub(crate) scatter: Scatter,
    pub(crate) discard_zeroes: bool,
    merge_wait_nanos: u64,
    /// Rows whose writes wait for neighbours, as (deadline, row), earliest first.
    waits: VecDeque<(u64, u32)>,
    timer: Option<u64>,
}

impl Stripes {
    pub(crate) fn new(config: &ShardConfig) -> Stripes {
        let data = match config.geometry.kind() {
            GeometryKind::Parity(parity) => parity.data_disks() as u16,
            _ => 1,
        };
        Stripes {
            rows: Rows::new(config.geometry.chunk_sectors(), data),
            ops: Slab::with_capacity(1024),
            scratch: Scratch::new(config.stripe_cache_bytes),
            region: config.scratch_region,
            starved: VecDeque::new(),
            formed: Vec::new(),
            scatter: Scatter::default(),
            discard_zeroes: config.discard_zeroes,
            merge_wait_nanos: config.merge_wait_nanos.min(crate::MAX_MERGE_WAIT_NANOS),
            waits: VecDeque::new(),
            timer: None,
        }
    }

    /// Stripe memory that is not in use, in bytes.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.scratch.free_bytes()
    }

    /// Operations at work or waiting for memory.
    pub(crate) fn operations(&self) -> usize {
        self.ops.live()
    }

    /// Plans what has gathered during the batch. `alone`: no other write is in the shard, so that no
    /// neighbour can come.
    pub(crate) fn settle(&mut self, cx: &mut Context<'_>, timer: bool) {
        if timer {
            self.timer = None;
            self.expire(cx.now);
        }
        let alone = cx.requests.writes_open() <= 1;
        loop {
            // In the order in which they were touched, so that a stream goes out in its own order.
            while let Some(row) = self.rows.touched.pop_front() {
                self.rows.table[row].listed = false;
                if !self.waits_for_neighbours(row, cx.now, alone) {
                    self.form_and_start(cx, row);
                }
                self.rows.retire(row);
            }
            self.feed_starved(cx);
            if self.rows.touched.is_empty() {
                break;
            }
        }
        self.set_timer(cx.out);
    }

    fn form_and_start(&mut self, cx: &mut Context<'_>, row: u32) {
        let mut formed = std::mem::take(&mut self.formed);
        self.rows.form(row, &mut self.ops, &mut formed);
        for op in formed.drain(..) {
            self.begin(cx, op);
        }
        self.formed = formed;
        let entry = &mut self.rows.table[row];
        if entry.pending.is_empty() {
            // Who comes now may wait again; its row is not in `waits` any more.
            entry.deadline = None;
        }
    }

    fn waits_for_neighbours(&mut self, row: u32, now: u64, alone: bool) -> bool {
        if alone || self.merge_wait_nanos == 0 || !self.rows.wants_neighbours(row) {
            return false;
        }
        let deadline = self.rows.table[row].deadline;
        match deadline {
            Some(deadline) => now < deadline,
            None => {
                let deadline = now + self.merge_wait_nanos;
                self.rows.table[row].deadline = Some(deadline);
                self.waits.push_back((deadline, row));
                true
            }
        }
    }

    /// Looks again at the rows whose waiting time is over.
    fn expire(&mut self, now: u64) {
        while let Some((deadline, row)) = self.waits.front().copied() {
            if deadline > now {
                break;
            }
            self.waits.pop_front();
            if self.is_waiting(row, deadline) {
                self.rows.touch(row);
            }
        }
    }

    fn is_waiting(&self, row: u32, deadline: u64) -> bool {
        let table = &self.rows.table;
        table.is_live(table.key(row)) && table[row].deadline == Some(deadline)
    }

    fn set_timer(&mut self, out: &mut Effects) {
        while let Some((deadline, row)) = self.waits.front().copied() {
            if self.is_waiting(row, deadline) && !self.rows.table[row].pending.is_empty() {
                break;
            }
            self.waits.pop_front();
        }
        let Some((deadline, _)) = self.waits.front().copied() else { return };
        if self.timer != Some(deadline) {
            self.timer = Some(deadline);
            out.list.push(Effect::SetTimer { at: deadline });
        }
    }
}
