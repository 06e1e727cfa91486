//! Runs requests in a closed loop on a rig of modelled drives, in virtual time.
//!
//! Invariant: the same cell gives the same outcome (seeded choice of blocks, no hash order). Called
//! by `bound` only.

use drive::{Completion, DriveId, Nanos, Op, Rig};
use spec::rng::SplitMix64;
use spec::topology::StorageTopology;

use super::demand::{LeafOp, Phases, Policy, State};
use super::{CellShape, MemberDrive};

/// Limit of member operations of a run, which bounds the CPU time of a bound.
const OPS_MAX: u64 = 30_000;

/// Requests of a random pattern, per leaf and in all.
const RANDOM_REQUESTS_PER_LEAF: u64 = 700;
const RANDOM_REQUESTS_MAX: u64 = 4_000;

/// Bytes that a sequential pattern moves, per leaf's worth of user data.
const STREAM_BYTES_PER_LEAF: u64 = 192 << 20;

/// A stream keeps [`WINDOWS_IN_FLIGHT`] requests in flight, windows of at least this size per leaf.
const WINDOW_BYTES_PER_LEAF: u64 = 512 << 10;
const WINDOWS_IN_FLIGHT: usize = 4;

/// Requests that a deep stream has in flight at most: longer ones stand for more.
const DEEP_IN_FLIGHT: u32 = 64;

/// Long runs on a member are split into pieces of at most this length.
pub(super) const PIECE_SECTORS: u64 = 512;

/// How requests follow each other.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// Sectors of a request: the cell's block, or a window of a stream.
    sectors: u64,
    /// Sectors that are used: of the array (random), or of each stream.
    span: u64,
    in_flight: usize,
    streams: usize,
    /// Requests after which the run ends, and before which reads are not counted.
    requests: u64,
    warm_up: u64,
}

impl Pace {
    /// `None` when the span does not hold a request.
    pub fn of(cell: &CellShape<'_>) -> Option<Pace> {
        let span = cell.span_bytes.map_or(cell.shape.bytes(), |span| span.min(cell.shape.bytes()));
        let span = span / md::SECTOR_BYTES;
        let block = cell.block_bytes.div_ceil(md::SECTOR_BYTES);
        if span < block {
            return None;
        }
        let pace = if cell.pattern.sequential() {
            Pace::streaming(cell, span, block)
        } else {
            let leaves = cell.shape.leaves() as u64;
            let requests = (leaves * RANDOM_REQUESTS_PER_LEAF).min(RANDOM_REQUESTS_MAX);
            Pace {
                sectors: block,
                span,
                in_flight: cell.depth as usize * cell.jobs as usize,
                streams: 1,
                requests,
                warm_up: requests / 10,
            }
        };
        Some(pace)
    }

    /// Of one deep stream, with what the cell has in flight and no more.
    pub fn with_depth_of(self, cell: &CellShape<'_>) -> Pace {
        let block = cell.block_bytes.div_ceil(md::SECTOR_BYTES);
        let in_flight = cell.depth.min(DEEP_IN_FLIGHT);
        let sectors = (block * u64::from(cell.depth.div_ceil(in_flight))).min(self.span);
        let requests = (self.requests * self.sectors).div_ceil(sectors);
        let in_flight = in_flight as usize * self.streams;
        // Within one pass, unless that is over before the queue says anything.
        let pass = self.span / sectors * self.streams as u64;
        let requests = requests.min(pass).max(6 * in_flight as u64);
        let warm_up = (requests / 8).max(2 * in_flight as u64);
        Pace { sectors, in_flight, requests, warm_up, ..self }
    }

    fn streaming(cell: &CellShape<'_>, span: u64, block: u64) -> Pace {
        let leaves = cell.shape.leaves() as u64;
        let stripe = cell.shape.stripe_sectors();
        let window = (block * u64::from(cell.depth))
            .div_ceil(WINDOWS_IN_FLIGHT as u64)
            .max(leaves * WINDOW_BYTES_PER_LEAF / md::SECTOR_BYTES)
            .next_multiple_of(stripe);
        let streams = u64::from(cell.jobs);
        let span = (span / streams / stripe * stripe).max(block.min(span));
        let sectors = window.min(span);
        let leaf_bytes = cell.members.iter().flatten().map(|drive| drive.member_bytes).max();
        let leaf_sectors = leaf_bytes.unwrap_or(1).max(1) as f64 / md::SECTOR_BYTES as f64;
        let share = cell.shape.bytes() as f64 / md::SECTOR_BYTES as f64 / leaf_sectors;
        let moved = share * STREAM_BYTES_PER_LEAF as f64 / md::SECTOR_BYTES as f64;
        let wanted = (moved / sectors as f64).ceil() as u64;
        // Within one pass, unless that is too short to be representative: a restart costs a seek.
        let in_flight = WINDOWS_IN_FLIGHT * cell.jobs as usize;
        let pass = (span / sectors * streams * 7 / 8).saturating_sub(in_flight as u64);
        let requests = if pass > wanted / 4 { wanted.min(pass) } else { wanted };
        let requests = requests.max(16 * streams);
        let warm_up = (requests / 8).max(in_flight as u64);
        Pace { sectors, span, in_flight, streams: cell.jobs as usize, requests, warm_up }
    }
}

/// Result of the counted part of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub user_bytes: u64,
    /// Bytes requested over the whole run, counted or not, and their demand.
    pub issued_bytes: u64,
    pub issued_requests: u64,
    pub leaf_bytes: Vec<u64>,
    pub reads: u64,
    pub writes: u64,
    time: Nanos,
}

impl Outcome {
    pub fn seconds(&self) -> f64 {
        self.time.max(1) as f64 / 1e9
    }

    pub fn mb_per_s(&self) -> f64 {
        self.user_bytes as f64 / 1e6 / self.seconds()
    }
}

/// The drives of the leaves: whether each is there, and how many are faster.
pub(super) struct Drives<'a> {
    pub all: &'a [MemberDrive<'a>],
    pub present: &'a [bool],
    pub ranks: &'a [usize],
}

/// Runs the cell's pattern once.
pub(super) fn run(
    cell: &CellShape<'_>,
    drives: &Drives<'_>,
    pace: &Pace,
    policy: Policy,
    piece_sectors: u64,
) -> Outcome {
    let (mut rig, places) = wired(cell.topology, drives.all);
    // Flash that is scaled to its member is modelled at its sustained rate.
    for (disk, _) in places.iter().filter(|_| cell.pattern.writes()) {
        rig.precondition(*disk, !cell.pattern.sequential());
    }
    let leaves = places.len();
    let state = State {
        present: drives.present.to_vec(),
        ranks: drives.ranks.to_vec(),
        in_flight: vec![0; leaves],
        head: vec![0; leaves],
        policy,
        stream: 0,
    };
    let mut run = Run {
        cell,
        pace,
        piece_sectors,
        rig,
        places,
        state,
        random: SplitMix64(1),
        at: vec![0; pace.streams],
        slots: Vec::new(),
        counts: Outcome { leaf_bytes: vec![0; leaves], ..Outcome::default() },
        ops: 0,
        completed: 0,
        counted_from: (0, 0),
        warm: false,
    };
    run.go()
}

/// The rig of modelled drives, and the disk of each leaf with the leaf's offset on it.
pub fn wired(topology: StorageTopology, drives: &[MemberDrive<'_>]) -> (Rig, Vec<(DriveId, u64)>) {
    let mut rig = Rig::new();
    let rates = topology.buses.iter().flat_map(|buses| buses.rates());
    let buses: Vec<_> = rates.map(|rate| rig.add_bus(rate)).collect();
    let (mut channels, mut places) = (Vec::new(), Vec::new());
    for (part, drive) in topology.parts(drives.len()).iter().zip(drives) {
        let bytes = drive.member_bytes;
        if part.part > 0 {
            let (disk, begin): (DriveId, u64) = places[places.len() - 1];
            places.push((disk, begin + bytes));
            continue;
        }
        let bus = part.bus.map(|bus| buses[bus]);
        let disk = rig.add_drive(drive.profile, drive.placement, bytes * part.parts as u64, bus);
        if let Some(channel) = part.channel {
            if channel == channels.len() {
                channels.push(rig.add_channel());
            }
            rig.put_on_channel(disk, channels[channel]);
        }
        places.push((disk, 0));
    }
    (rig, places)
}

/// A request in flight.
#[derive(Default)]
struct Slot {
    stream: usize,
    /// Phases still to come, the next one last.
    phases: Phases,
    pending: usize,
    bytes: u64,
}

struct Run<'a> {
    cell: &'a CellShape<'a>,
    pace: &'a Pace,
    piece_sectors: u64,
    rig: Rig,
    /// The disk of each leaf, and the leaf's offset on it.
    places: Vec<(DriveId, u64)>,
    state: State,
    random: SplitMix64,
    /// Position of each stream.
    at: Vec<u64>,
    slots: Vec<Slot>,
    counts: Outcome,
    ops: u64,
    completed: u64,
    /// Time and user bytes when counting began.
    counted_from: (Nanos, u64),
    warm: bool,
}

impl Run<'_> {
    fn go(&mut self) -> Outcome {
        for index in 0..self.pace.in_flight {
            self.slots.push(Slot { stream: index % self.pace.streams, ..Slot::default() });
            self.next_request(index, 0);
        }
        let mut done: Vec<Completion> = Vec::new();
        let mut last = 0;
        while let Some(now) = self.rig.next_event() {
            self.rig.advance(now, &mut done);
            for done in done.drain(..) {
                last = done.at;
                self.state.in_flight[(done.tag >> 32) as usize] -= 1;
                let slot = done.tag as u32 as usize;
                self.slots[slot].pending -= 1;
                if self.slots[slot].pending == 0 {
                    self.next_phase(slot, done.at);
                }
            }
            // Reads stop at the last counted request; writes continue until all is on the media.
            if self.over() && !self.cell.pattern.writes() {
                break;
            }
        }
        if self.cell.pattern.writes() {
            last = self.flush(last);
        }
        self.outcome(last)
    }

    fn over(&self) -> bool {
        self.completed >= self.pace.requests || self.ops >= OPS_MAX
    }

    fn outcome(&mut self, last: Nanos) -> Outcome {
        let mut outcome = std::mem::take(&mut self.counts);
        let (from, bytes) = self.counted_from;
        outcome.user_bytes -= bytes;
        outcome.time = last - from;
        outcome
    }

    /// Flushes the drives' caches to the media; returns the time of completion.
    fn flush(&mut self, now: Nanos) -> Nanos {
        for ((disk, _), present) in self.places.iter().zip(&self.state.present) {
            if *present {
                self.rig.submit(now, *disk, 0, Op::flush());
            }
        }
        let (mut done, mut last) = (Vec::new(), now);
        while let Some(next) = self.rig.next_event() {
            self.rig.advance(next, &mut done);
            last = done.drain(..).map(|done: Completion| done.at).fold(last, Nanos::max);
        }
        last
    }

    fn next_request(&mut self, slot: usize, now: Nanos) {
        let sectors = self.pace.sectors;
        let stream = self.slots[slot].stream;
        let (at, sectors) = if self.cell.pattern.sequential() {
            let at = self.at[stream];
            let sectors = sectors.min(self.pace.span - at);
            self.at[stream] = (at + sectors) % self.pace.span;
            (stream as u64 * self.pace.span + at, sectors)
        } else {
            (self.random.below(self.pace.span / sectors) * sectors, sectors)
        };
        self.state.stream = stream;
        let mut phases = if self.cell.pattern.writes() {
            self.cell.shape.write(at, sectors, &self.state)
        } else {
            self.cell.shape.read(at, sectors, &self.state)
        };
        phases.reverse();
        let bytes = sectors * md::SECTOR_BYTES;
        self.counts.issued_bytes += bytes;
        self.counts.issued_requests += 1;
        self.slots[slot] = Slot { stream, phases, pending: 0, bytes };
        self.next_phase(slot, now);
    }

    fn next_phase(&mut self, slot: usize, now: Nanos) {
        match self.slots[slot].phases.pop() {
            Some(ops) => {
                for op in ops {
                    self.submit(slot, now, op);
                }
            }
            None => self.complete(slot, now),
        }
    }

    fn complete(&mut self, slot: usize, now: Nanos) {
        self.completed += 1;
        self.counts.user_bytes += self.slots[slot].bytes;
        // Small pieces reach the limit of operations before the warm-up of the whole is over.
        let warm = self.completed >= self.pace.warm_up || self.ops >= OPS_MAX / 8;
        if warm && !self.warm && !self.cell.pattern.writes() {
            self.counted_from = (now, self.counts.user_bytes);
            self.warm = true;
        }
        if !self.over() {
            self.next_request(slot, now);
        }
    }

    fn submit(&mut self, slot: usize, now: Nanos, op: LeafOp) {
        let (mut at, end) = (op.at, op.at + op.sectors);
        let (disk, begin) = self.places[op.leaf];
        let tag = (op.leaf as u64) << 32 | slot as u64;
        while at < end {
            let sectors = self.piece_sectors.min(end - at);
            let at_bytes = begin + at * md::SECTOR_BYTES;
            let bytes = sectors * md::SECTOR_BYTES;
            let piece =
                if op.write { Op::write(at_bytes, bytes) } else { Op::read(at_bytes, bytes) };
            self.rig.submit(now, disk, tag, piece);
            self.slots[slot].pending += 1;
            self.state.in_flight[op.leaf] += 1;
            self.counts.leaf_bytes[op.leaf] += bytes;
            self.ops += 1;
            at += sectors;
        }
        self.state.head[op.leaf] = end;
        *(if op.write { &mut self.counts.writes } else { &mut self.counts.reads }) += 1;
    }
}
