//! A member that runs at the pace of a modelled drive: real data, modelled time.
//!
//! The inner member does the I/O immediately; the drive model computes when it would have been
//! completed, and the completion is delayed until then. If the inner member is slower than the
//! model, the operation is counted as late, because the result then measures the backing store.
//!
//! Invariant: with the pace on, no operation completes before its model time.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drive::{BusId, ChannelId, DriveId, Placement, Profile, Rig};
use engine::{IoError, Token};
use host::sys::clock_nanos;
use md::Sector;

use super::traits::{Load, WAKE_NANOS};
use super::{
    Counters, Cqe, FileId, FormerLeaf, Io, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed,
};
use crate::table::Table;

/// Tolerance before an operation counts as late: a scheduling delay, not a slow store.
const LATE_NANOS: u64 = 1_000_000;

/// Longer operations may complete a little later, by the wake-up latency, which is 1 % of them.
/// Reads and writes of a disk's cache are shorter, and requests in flight behind them would be
/// delayed.
const LONG_NANOS: u64 = 2_000_000;

struct Shared {
    rig: Rig,
    /// Completed operations that have not been collected, by the handle that they were submitted
    /// through. The handle's number and its own operation number make up the model's tag.
    ports: Vec<Port>,
    /// By drive number.
    loads: Vec<Load>,
    scratch: Vec<drive::Completion>,
}

struct Port {
    drive: DriveId,
    ended: Vec<drive::Completion>,
    /// Whether there is any, readable without the lock.
    has_ended: Arc<AtomicBool>,
}

impl Shared {
    /// Adds a port for the completions of one handle.
    fn add_port(&mut self, drive: DriveId) -> (usize, Arc<AtomicBool>) {
        let has_ended = Arc::new(AtomicBool::new(false));
        self.ports.push(Port { drive, ended: Vec::new(), has_ended: has_ended.clone() });
        (self.ports.len() - 1, has_ended)
    }

    /// Advances the drives' time and puts completions into their members' ports.
    fn advance(&mut self, now: u64) {
        self.rig.advance(now, &mut self.scratch);
        for ended in self.scratch.drain(..) {
            let port = &mut self.ports[(ended.tag >> 32) as usize];
            port.ended.push(ended);
            let load = &mut self.loads[port.drive.index()];
            load.pass(ended.at);
            load.under_way -= 1;
            port.has_ended.store(true, Ordering::Release);
        }
    }
}

/// The drives, buses and channels that the paced members of an array share, and their on/off
/// switch.
#[derive(Clone)]
pub struct PaceControl {
    shared: Arc<Mutex<Shared>>,
    on: Arc<AtomicBool>,
    /// Time of the rig's next event, readable without the lock; `NEVER` if there is none.
    next: Arc<AtomicU64>,
}

const NEVER: u64 = u64::MAX;

impl Default for PaceControl {
    fn default() -> PaceControl {
        let shared =
            Shared { rig: Rig::new(), ports: Vec::new(), loads: Vec::new(), scratch: Vec::new() };
        PaceControl {
            shared: Arc::new(Mutex::new(shared)),
            on: Arc::new(AtomicBool::new(true)),
            next: Arc::new(AtomicU64::new(NEVER)),
        }
    }
}

impl PaceControl {
    /// Adds a bus that drives can share; transfers on it are serialised.
    pub fn add_bus(&self, bytes_per_second: u64) -> BusId {
        self.lock().rig.add_bus(bytes_per_second)
    }

    /// Adds a disk of `bytes`, of which paced members are parts. `bus` and `channel`, if any, were
    /// added to this control.
    pub fn add_disk(
        &self,
        profile: &Profile,
        placement: Placement,
        bytes: u64,
        bus: Option<BusId>,
        channel: Option<ChannelId>,
    ) -> DriveId {
        let mut shared = self.lock();
        let drive = shared.rig.add_drive(profile, placement, bytes, bus);
        if let Some(channel) = channel {
            shared.rig.put_on_channel(drive, channel);
        }
        let drives = shared.rig.drives();
        shared.loads.resize(drives, Load::default());
        drive
    }

    /// Gives a disk another placement and resets its state to power-on; see [`Rig::renew`]. Returns
    /// `false` while operations of the disk are in flight.
    pub fn renew(&self, disk: DriveId, placement: Placement) -> bool {
        let mut shared = self.lock();
        // Operations that have ended by now are not in flight, even if not collected.
        shared.advance(clock_nanos());
        let renewed = shared.rig.renew(disk, placement);
        self.note_next(&shared);
        renewed
    }

    /// Adds a channel for disks: one disk on it executes a command at a time, the others wait.
    pub fn add_channel(&self) -> ChannelId {
        self.lock().rig.add_channel()
    }

    /// Turns the pace on or off: test data are filled in at full speed.
    pub fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("the drives lock is not poisoned")
    }

    /// Records when the rig must be called next; to be called before the lock is released.
    fn note_next(&self, shared: &Shared) {
        self.next.store(shared.rig.next_event().unwrap_or(NEVER), Ordering::Release);
    }
}

/// What an operation still waits for.
struct Waiting {
    token: Token,
    /// Whether the model has it; otherwise the pace was off when it was submitted.
    paced: bool,
    model_done: Option<u64>,
    inner_done: Option<Result<(), IoError>>,
}

/// A paced member; see the module documentation.
pub struct PacedMember {
    inner: Box<dyn Member>,
    control: PaceControl,
    drive: DriveId,
    /// Start of the member on its disk, in bytes.
    at_bytes: u64,
    /// Number of its port.
    port: usize,
    /// By number. The numbers are the model's tags and the inner member's tokens: an array may use
    /// a token for several operations of one member concurrently.
    waiting: Table<Waiting>,
    has_ended: Arc<AtomicBool>,
    finished: Vec<MemberCompletion>,
    late: u64,
    /// Whether the model holds operations of a batch that is not complete.
    plugged: bool,
    /// Only the first handle on a drive reports the drive's load, so that it is counted once.
    reports_load: bool,
    /// Whether the drive's last operation was so long that the wake-up latency does not matter.
    patient: bool,
}

impl PacedMember {
    /// Adds a drive model to a member; `bus`, if any, was added to the same control.
    pub fn new(
        inner: Box<dyn Member>,
        control: &PaceControl,
        profile: &Profile,
        placement: Placement,
        bus: Option<BusId>,
    ) -> PacedMember {
        let bytes = inner.info().sectors * md::SECTOR_BYTES;
        let disk = control.add_disk(profile, placement, bytes, bus, None);
        PacedMember::part(inner, control, disk, 0)
    }

    /// Adds the drive model of a part of a disk to a member: the part begins at `at_bytes` and is
    /// as long as the member. Each part reports the load of the whole disk.
    ///
    /// # Panics
    /// When `disk` was not added to this control. An operation beyond the disk panics later.
    pub fn part(
        inner: Box<dyn Member>,
        control: &PaceControl,
        disk: DriveId,
        at_bytes: u64,
    ) -> PacedMember {
        let (port, has_ended) = control.lock().add_port(disk);
        let member = PacedMember::with_port(inner, control, disk, port, has_ended);
        PacedMember { at_bytes, reports_load: true, ..member }
    }

    fn with_port(
        inner: Box<dyn Member>,
        control: &PaceControl,
        drive: DriveId,
        port: usize,
        has_ended: Arc<AtomicBool>,
    ) -> PacedMember {
        PacedMember {
            inner,
            control: control.clone(),
            drive,
            at_bytes: 0,
            port,
            waiting: Table::new(),
            has_ended,
            finished: Vec::new(),
            late: 0,
            plugged: false,
            reports_load: false,
            patient: false,
        }
    }

    /// Collects completions of the inner member.
    fn inner_finished(&mut self, io: &Io, done: &mut Vec<MemberCompletion>) {
        for end in self.finished.drain(..) {
            let number = end.token.to_bits() as u32;
            let waiting = self.waiting.get(number);
            if waiting.paced && waiting.model_done.is_none() {
                waiting.inner_done = Some(end.result);
                continue;
            }
            let Waiting { token, model_done, .. } = self.waiting.remove(number);
            self.late += u64::from(model_done.is_some_and(|at| io.now > at + LATE_NANOS));
            done.push(MemberCompletion { token, result: end.result });
        }
    }

    /// Collects completions of the model.
    fn model_finished(&mut self, now: u64, done: &mut Vec<MemberCompletion>) {
        let mut shared = self.control.lock();
        shared.advance(now);
        self.control.note_next(&shared);
        let Shared { ports, .. } = &mut *shared;
        let port = &mut ports[self.port];
        self.has_ended.store(false, Ordering::Release);
        for ended in port.ended.drain(..) {
            let number = ended.tag as u32;
            let waiting = self.waiting.get(number);
            waiting.model_done = Some(ended.at);
            self.patient = ended.service > LONG_NANOS;
            if let Some(result) = waiting.inner_done {
                let Waiting { token, .. } = self.waiting.remove(number);
                done.push(MemberCompletion { token, result });
            }
        }
    }

    /// Time of the model's next event; now if there are completions to collect.
    fn model_deadline(&self) -> Option<u64> {
        let next = if self.waiting.is_empty() {
            NEVER
        } else if self.has_ended.load(Ordering::Acquire) {
            0
        } else {
            self.control.next.load(Ordering::Acquire)
        };
        (next != NEVER).then_some(next)
    }

    fn give_to_model(&self, op: &Op<'_>, number: u32, now: u64) {
        let kind = match op.kind {
            OpKind::Read => drive::OpKind::Read,
            OpKind::Write { fua } => drive::OpKind::Write { fua },
            OpKind::WriteLog => drive::OpKind::Write { fua: true },
            OpKind::WriteZeroes => drive::OpKind::Write { fua: false },
            OpKind::Flush => drive::OpKind::Flush,
            OpKind::Discard => drive::OpKind::Discard,
        };
        let at_bytes = self.at_bytes + op.sector.0 * md::SECTOR_BYTES;
        let modelled = drive::Op { kind, at_bytes, bytes: op.bytes() };
        let mut shared = self.control.lock();
        let tag = (self.port as u64) << 32 | u64::from(number);
        let load = &mut shared.loads[self.drive.index()];
        load.pass(now);
        load.under_way += 1;
        shared.rig.plug(now, self.drive, tag, modelled);
    }

    /// Gives the drive the operations of a batch, those merged that continue each other.
    fn unplug(&mut self, now: u64) {
        if !std::mem::take(&mut self.plugged) {
            return;
        }
        let mut shared = self.control.lock();
        shared.rig.unplug(now, self.drive);
        self.control.note_next(&shared);
    }
}

impl Sealed for PacedMember {}

impl Member for PacedMember {
    fn info(&self) -> MemberInfo {
        MemberInfo { synchronous: false, ..self.inner.info() }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let inner = self.inner.share()?;
        let (port, has_ended) = self.control.lock().add_port(self.drive);
        let (control, drive) = (&self.control, self.drive);
        let member = PacedMember::with_port(inner, control, drive, port, has_ended);
        Some(Box::new(PacedMember { at_bytes: self.at_bytes, ..member }))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let paced = self.control.is_on();
        let waiting = Waiting { token: op.token, paced, model_done: None, inner_done: None };
        let number = self.waiting.insert(waiting);
        if paced {
            self.give_to_model(op, number, io.now);
            self.plugged = true;
        }
        let inner = Op { token: Token::from_bits(u64::from(number)), ..*op };
        self.inner.submit(&inner, io, &mut self.finished);
        self.inner_finished(io, done);
    }

    fn add_bad_blocks(&mut self, sector: Sector, sectors: u64) -> Result<(), IoError> {
        self.inner.add_bad_blocks(sector, sectors)
    }

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.unplug(io.now);
        self.inner.submit_batch(io, &mut self.finished);
        self.inner_finished(io, done);
    }

    fn gathers(&self) -> bool {
        true
    }

    fn take_held(&mut self, held: &mut dyn FnMut(MemberCompletion)) {
        let waiting = &mut self.waiting;
        self.inner.take_held(&mut |MemberCompletion { token, result }| {
            let token = waiting.get(token.to_bits() as u32).token;
            held(MemberCompletion { token, result });
        });
    }

    fn set_timeout(&mut self, limit: Option<Duration>) -> Option<Duration> {
        self.inner.set_timeout(limit)
    }

    fn late_operations(&self) -> usize {
        self.inner.late_operations()
    }

    fn reap(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        if self.inner.deadline().is_some_and(|at| at <= io.now) {
            self.inner.reap(io, &mut self.finished);
            self.inner_finished(io, done);
        }
        if !self.waiting.is_empty() {
            self.model_finished(io.now, done);
        }
    }

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.inner.complete(event, io, &mut self.finished);
        self.inner_finished(io, done);
    }

    fn wake_at(&self) -> Option<u64> {
        let model = self.model_deadline().map(|at| match self.patient {
            true => at,
            false => at.saturating_sub(WAKE_NANOS),
        });
        [model, self.inner.wake_at()].into_iter().flatten().min()
    }

    fn deadline(&self) -> Option<u64> {
        [self.model_deadline(), self.inner.deadline()].into_iter().flatten().min()
    }

    fn place(&self) -> Option<(String, u64)> {
        self.inner.place()
    }

    fn files(&self, out: &mut Vec<FileId>) {
        self.inner.files(out);
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.inner.number_leaves(next)
    }

    fn is_quiet(&self) -> bool {
        self.inner.is_quiet()
    }

    fn disassemble(&mut self, in_service: bool, out: &mut Vec<FormerLeaf>) -> bool {
        self.inner.disassemble(in_service, out)
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        let first = out.len();
        self.inner.leaf_counters(out);
        if let Some(leaf) = out.get_mut(first) {
            leaf.late += self.late;
            if self.reports_load {
                let load = self.control.lock().loads[self.drive.index()];
                (leaf.busy_ns, leaf.queued_ns) = (Some(load.busy_ns), Some(load.queued_ns));
            }
        }
    }
}
