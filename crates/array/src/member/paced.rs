//! A member slowed down to the pace of a modelled drive: real bytes, somebody else's seconds.
//!
//! The member inside does the work at once; the drive model says when the work would have been done,
//! and the completion waits until then. Where the member inside is slower than the model, the
//! operation is counted as late, because the figure is then the backing store's.
//!
//! Invariant: with the pace on, no operation completes before its model time.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use drive::{BusId, DriveId, Placement, Profile, Rig};
use engine::{MemberError, Token};

use super::{Counters, Done, Facts, Io, KernelDone, Member, Op, OpKind};

/// How much later than the model an operation may end without being counted: a scheduling delay,
/// not a slow store.
const LATE_NANOS: u64 = 1_000_000;

struct Shared {
    rig: Rig,
    /// Finished operations that their member has not fetched, by drive.
    inbox: Vec<Vec<drive::Done>>,
    scratch: Vec<drive::Done>,
}

/// The drives and buses that the paced members of an array share, and their switch.
#[derive(Clone)]
pub struct PaceControl {
    shared: Arc<Mutex<Shared>>,
    on: Arc<AtomicBool>,
}

impl Default for PaceControl {
    fn default() -> PaceControl {
        let shared = Shared { rig: Rig::new(), inbox: Vec::new(), scratch: Vec::new() };
        PaceControl { shared: Arc::new(Mutex::new(shared)), on: Arc::new(AtomicBool::new(true)) }
    }
}

impl PaceControl {
    /// Adds a bus that drives can share; transfers on it take turns.
    pub fn add_bus(&self, bytes_per_second: u64) -> BusId {
        self.lock().rig.add_bus(bytes_per_second)
    }

    /// Switches the pace on or off: data to be measured later is filled in at full speed.
    pub fn set_on(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("nobody panics with the drives")
    }
}

/// What an operation still waits for.
#[derive(Clone, Copy, Default)]
struct Waiting {
    model_done: Option<u64>,
    inner_done: Option<Result<(), MemberError>>,
}

/// See the module.
pub struct PacedMember {
    inner: Box<dyn Member>,
    control: PaceControl,
    drive: DriveId,
    waiting: HashMap<u64, Waiting>,
    finished: Vec<Done>,
    late: u64,
}

impl PacedMember {
    /// Puts a drive's pace over a member; `bus`, if any, was added to the same control.
    pub fn new(
        inner: Box<dyn Member>,
        control: &PaceControl,
        profile: &Profile,
        placement: Placement,
        bus: Option<BusId>,
    ) -> PacedMember {
        let bytes = inner.facts().sectors * md::SECTOR_BYTES;
        let mut shared = control.lock();
        let drive = shared.rig.add_drive(profile, placement, bytes, bus);
        shared.inbox.resize_with(drive.index() + 1, Vec::new);
        drop(shared);
        PacedMember {
            inner,
            control: control.clone(),
            drive,
            waiting: HashMap::new(),
            finished: Vec::new(),
            late: 0,
        }
    }

    /// Takes over what the member inside has finished.
    fn inner_finished(&mut self, io: &Io, done: &mut Vec<Done>) {
        let mut finished = std::mem::take(&mut self.finished);
        for end in finished.drain(..) {
            let Some(waiting) = self.waiting.get_mut(&end.token.to_bits()) else {
                // The pace was off when it was submitted.
                done.push(end);
                continue;
            };
            waiting.inner_done = Some(end.result);
            if let Some(at) = waiting.model_done {
                self.late += u64::from(io.now > at + LATE_NANOS);
                self.waiting.remove(&end.token.to_bits());
                done.push(end);
            }
        }
        self.finished = finished;
    }

    fn model_finished(&mut self, ended: drive::Done, done: &mut Vec<Done>) {
        let waiting = self.waiting.get_mut(&ended.tag).expect("the model ends what it was given");
        waiting.model_done = Some(ended.at);
        if let Some(result) = waiting.inner_done {
            self.waiting.remove(&ended.tag);
            done.push(Done { token: Token::from_bits(ended.tag), result });
        }
    }
}

impl Member for PacedMember {
    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<Done>) {
        if self.control.is_on() {
            let tag = op.token.to_bits();
            self.waiting.insert(tag, Waiting::default());
            let kind = match op.kind {
                OpKind::Read => drive::OpKind::Read,
                OpKind::Write { fua } => drive::OpKind::Write { fua },
                OpKind::WriteZeroes => drive::OpKind::Write { fua: false },
                OpKind::Flush => drive::OpKind::Flush,
                OpKind::Discard => drive::OpKind::Discard,
            };
            let at_bytes = op.sector.0 * md::SECTOR_BYTES;
            let modelled = drive::Op { kind, at_bytes, bytes: op.bytes() };
            self.control.lock().rig.submit(io.now, self.drive, tag, modelled);
        }
        self.inner.submit(op, io, &mut self.finished);
        self.inner_finished(io, done);
    }

    fn reap(&mut self, io: &mut Io, done: &mut Vec<Done>) {
        if self.inner.deadline().is_some() {
            self.inner.reap(io, &mut self.finished);
            self.inner_finished(io, done);
        }
        let mut shared = self.control.lock();
        let Shared { rig, inbox, scratch } = &mut *shared;
        rig.advance(io.now, scratch);
        for ended in scratch.drain(..) {
            inbox[ended.drive.index()].push(ended);
        }
        let mut mine = std::mem::take(&mut inbox[self.drive.index()]);
        drop(shared);
        for ended in mine.drain(..) {
            self.model_finished(ended, done);
        }
        self.control.lock().inbox[self.drive.index()] = mine;
    }

    fn kernel_done(&mut self, event: KernelDone, io: &mut Io, done: &mut Vec<Done>) {
        self.inner.kernel_done(event, io, &mut self.finished);
        self.inner_finished(io, done);
    }

    fn deadline(&self) -> Option<u64> {
        let shared = self.control.lock();
        let mail = !shared.inbox[self.drive.index()].is_empty();
        let model = if mail { Some(0) } else { shared.rig.next_event() };
        drop(shared);
        [model, self.inner.deadline()].into_iter().flatten().min()
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.inner.number_leaves(next)
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        let first = out.len();
        self.inner.leaf_counters(out);
        if let Some(leaf) = out.get_mut(first) {
            leaf.late += self.late;
        }
    }
}
