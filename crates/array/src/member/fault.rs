//! Fault injection: a member that fails as a script says, for tests and demonstrations.
//!
//! Invariant: operations that the script does not name behave as on the inner member.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use drive::Fault;
use engine::{IoError, MemberError, Token};
use md::Sector;
use rustix::io::Errno;

use super::error_text;
use super::file::errno_of;
use super::traits::{Cause, Load};
use super::{
    Counters, Cqe, FileId, FormerLeaf, Io, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed,
};
use crate::table::Table;

/// Turns the scripts of fault members on and off, so that data can be filled in without faults.
#[derive(Clone, Debug)]
pub struct FaultControl(Arc<AtomicBool>);

impl Default for FaultControl {
    fn default() -> FaultControl {
        FaultControl(Arc::new(AtomicBool::new(true)))
    }
}

impl FaultControl {
    /// Turns the scripts on or off. While they are off, members behave as the inner ones,
    /// operations are not counted, and no range heals.
    pub fn set_on(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An operation in flight in the inner member.
struct AtWork {
    token: Token,
    /// Where its buffers are to be corrupted: slice, and byte in it.
    flips: Vec<(engine::BufSlice, usize)>,
}

/// An operation that begins at this time.
struct Hanging {
    at: u64,
    token: Token,
    kind: OpKind,
    sector: Sector,
    sectors: u64,
    slices: Vec<engine::BufSlice>,
}

/// The script and its progress, shared by all handles on the member.
struct Script {
    faults: Vec<Fault>,
    ops: u64,
}

/// A member with scripted faults; see the module documentation.
pub struct FaultMember {
    inner: Box<dyn Member>,
    script: Arc<Mutex<Script>>,
    control: FaultControl,
    /// By number, which is the token in the inner member: an array may use a token for several
    /// operations of one member concurrently.
    at_work: Table<AtWork>,
    hanging: Vec<Hanging>,
    delayed: std::collections::VecDeque<(u64, MemberCompletion)>,
    finished: Vec<MemberCompletion>,
    load: Load,
}

/// The error that the block layer would report.
fn cause(kind: MemberError, errno: Errno) -> Cause {
    Cause { kind, errno: errno_of(errno) }
}

fn overlaps(op: &Op<'_>, range: &Range<u64>) -> bool {
    let start = op.sector.0 * md::SECTOR_BYTES;
    start < range.end && range.start < start + op.bytes()
}

impl Script {
    /// A write makes the sectors that it covers readable again.
    fn heal(&mut self, op: &Op<'_>) {
        let start = op.sector.0 * md::SECTOR_BYTES;
        let end = start + op.bytes();
        let mut rest = Vec::new();
        self.faults.retain_mut(|fault| {
            let Fault::ReadError { range } = fault else { return true };
            if range.end <= start || end <= range.start {
                return true;
            }
            if end < range.end {
                rest.push(Fault::ReadError { range: end..range.end });
            }
            range.end = start.max(range.start);
            range.start < range.end
        });
        self.faults.append(&mut rest);
    }
}

impl FaultMember {
    /// Adds a script to a member.
    pub fn new(inner: Box<dyn Member>, faults: Vec<Fault>) -> FaultMember {
        FaultMember::switched(inner, faults, &FaultControl::default())
    }

    /// Adds a script to a member, which the control turns on and off.
    pub fn switched(
        inner: Box<dyn Member>,
        faults: Vec<Fault>,
        control: &FaultControl,
    ) -> FaultMember {
        let script = Arc::new(Mutex::new(Script { faults, ops: 0 }));
        FaultMember::with_script(inner, script, control)
    }

    fn with_script(
        inner: Box<dyn Member>,
        script: Arc<Mutex<Script>>,
        control: &FaultControl,
    ) -> FaultMember {
        FaultMember {
            inner,
            script,
            control: control.clone(),
            at_work: Table::new(),
            hanging: Vec::new(),
            delayed: std::collections::VecDeque::new(),
            finished: Vec::new(),
            load: Load::default(),
        }
    }

    /// The script if it is on, locked for this call: fault members need not be fast.
    fn script(&self) -> Option<MutexGuard<'_, Script>> {
        let script = || self.script.lock().expect("the script lock is not poisoned");
        self.control.is_on().then(script)
    }

    /// The scripted error of the operation, if any.
    fn scripted_error(&self, op: &Op<'_>) -> Option<Cause> {
        let mut script = self.script()?;
        script.ops += 1;
        let ops = script.ops;
        let is_write = matches!(op.kind, OpKind::Write { .. } | OpKind::WriteZeroes);
        let error = script.faults.iter().find_map(|fault| match fault {
            Fault::Gone { after } if ops > *after => Some(cause(MemberError::Gone, Errno::NODEV)),
            Fault::ReadError { range } if op.kind == OpKind::Read && overlaps(op, range) => {
                Some(cause(MemberError::Medium, Errno::IO))
            }
            Fault::WriteError { range } if is_write && overlaps(op, range) => {
                Some(cause(MemberError::Medium, Errno::IO))
            }
            _ => None,
        });
        if is_write && error.is_none() {
            script.heal(op);
        }
        error
    }

    /// The bytes of a read that are to be corrupted.
    fn flips(&self, op: &Op<'_>) -> Vec<(engine::BufSlice, usize)> {
        let mut places = Vec::new();
        for fault in self.script().iter().flat_map(|script| &script.faults) {
            let Fault::FlipRead { at } = fault else { continue };
            let mut start = op.sector.0 * md::SECTOR_BYTES;
            for slice in op.slices {
                if (start..start + u64::from(slice.len)).contains(at) {
                    places.push((*slice, (at - start) as usize));
                }
                start += u64::from(slice.len);
            }
        }
        places
    }

    /// The byte at which a write is to be torn, relative to its start.
    fn tear(&self, op: &Op<'_>) -> Option<u64> {
        let start = op.sector.0 * md::SECTOR_BYTES;
        self.script()?.faults.iter().find_map(|fault| match fault {
            Fault::TornWrite { at } if overlaps(op, &(*at..at + 1)) => {
                Some((at - start) / md::SECTOR_BYTES * md::SECTOR_BYTES)
            }
            _ => None,
        })
    }

    /// How long the operation hangs that was counted last.
    fn hang(&self) -> Option<u64> {
        let script = self.script()?;
        let number = script.ops - 1;
        script.faults.iter().find_map(|fault| match fault {
            Fault::Hang { ops, nanos } if ops.contains(&number) => Some(*nanos),
            _ => None,
        })
    }

    fn delay(&self) -> u64 {
        let Some(script) = self.script() else { return 0 };
        let delays = script.faults.iter().map(|fault| match fault {
            Fault::Delay { nanos } => *nanos,
            _ => 0,
        });
        delays.sum()
    }

    fn own_deadline(&self) -> Option<u64> {
        let hanging = self.hanging.iter().map(|op| op.at);
        self.delayed.front().map(|(at, _)| *at).into_iter().chain(hanging).min()
    }

    fn give_to_inner(&mut self, op: &Op<'_>, io: &mut Io) {
        let flips = if op.kind == OpKind::Read { self.flips(op) } else { Vec::new() };
        let number = self.at_work.insert(AtWork { token: op.token, flips });
        let inner = Op { token: Token::from_bits(u64::from(number)), ..*op };
        self.inner.submit(&inner, io, &mut self.finished);
    }

    /// Stores the data before the tear; the rest keeps its contents.
    fn give_torn(&mut self, op: &Op<'_>, kept: u64, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let mut left = kept;
        let slices = op.slices.iter().map_while(|slice| {
            let len = left.min(u64::from(slice.len));
            left -= len;
            (len > 0).then_some(engine::BufSlice { len: len as u32, ..*slice })
        });
        let slices: Vec<_> = slices.collect();
        if slices.is_empty() {
            return self.end(op.token, Ok(()), io, done);
        }
        let torn = Op { slices: &slices, sectors: kept / md::SECTOR_BYTES, ..*op };
        self.give_to_inner(&torn, io);
    }

    /// Completes an operation, now or after the delay.
    fn end(
        &mut self,
        token: Token,
        result: Result<(), IoError>,
        io: &Io,
        done: &mut Vec<MemberCompletion>,
    ) {
        match self.delay() {
            0 => {
                self.load.end(io.now, 1);
                done.push(MemberCompletion { token, result });
            }
            delay => self.delayed.push_back((io.now + delay, MemberCompletion { token, result })),
        }
    }

    /// Passes on operations that the inner member has completed: corrupted, delayed or unchanged.
    fn pass_on(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let mut finished = std::mem::take(&mut self.finished);
        for MemberCompletion { token, result } in finished.drain(..) {
            let AtWork { token, flips } = self.at_work.remove(token.to_bits() as u32);
            for (slice, offset) in flips {
                io.regions.span(slice).flip_bit(offset);
            }
            self.end(token, result, io, done);
        }
        self.finished = finished;
    }
}

impl Sealed for FaultMember {}

impl Member for FaultMember {
    fn info(&self) -> MemberInfo {
        MemberInfo { synchronous: false, ..self.inner.info() }
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let inner = self.inner.share()?;
        let script = self.script.clone();
        Some(Box::new(FaultMember::with_script(inner, script, &self.control)))
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.load.begin(io.now);
        let is_write = matches!(op.kind, OpKind::Write { .. });
        if let Some(cause) = self.scripted_error(op) {
            let error = op.error(cause);
            error_text::log(&error, self.place());
            self.end(op.token, Err(error), io, done);
        } else if let Some(nanos) = self.hang() {
            let (Op { token, kind, sector, sectors, .. }, at) = (*op, io.now + nanos);
            let slices = op.slices.to_vec();
            self.hanging.push(Hanging { at, token, kind, sector, sectors, slices });
        } else if let Some(kept) = self.tear(op).filter(|_| is_write) {
            self.give_torn(op, kept, io, done);
        } else {
            self.give_to_inner(op, io);
        }
        self.pass_on(io, done);
    }

    fn add_bad_blocks(&mut self, sector: Sector, sectors: u64) -> Result<(), IoError> {
        self.inner.add_bad_blocks(sector, sectors)
    }

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.inner.submit_batch(io, &mut self.finished);
        self.pass_on(io, done);
    }

    fn gathers(&self) -> bool {
        self.inner.gathers()
    }

    fn take_held(&mut self, held: &mut dyn FnMut(MemberCompletion)) {
        let at_work = &mut self.at_work;
        self.inner.take_held(&mut |MemberCompletion { token, result }| {
            let token = at_work.get(token.to_bits() as u32).token;
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
            self.pass_on(io, done);
        }
        while let Some(at) = self.hanging.iter().position(|op| op.at <= io.now) {
            let Hanging { token, kind, sector, sectors, slices, .. } = self.hanging.remove(at);
            let op = Op { token, kind, sector, sectors, slices: &slices };
            self.give_to_inner(&op, io);
            self.inner.submit_batch(io, &mut self.finished);
            self.pass_on(io, done);
        }
        while self.delayed.front().is_some_and(|(at, _)| *at <= io.now) {
            self.load.end(io.now, 1);
            done.extend(self.delayed.pop_front().map(|(_, end)| end));
        }
    }

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.inner.complete(event, io, &mut self.finished);
        self.pass_on(io, done);
    }

    fn wake_at(&self) -> Option<u64> {
        [self.own_deadline(), self.inner.wake_at()].into_iter().flatten().min()
    }

    fn deadline(&self) -> Option<u64> {
        [self.own_deadline(), self.inner.deadline()].into_iter().flatten().min()
    }

    fn number_leaves(&mut self, next: &mut u32) -> Range<u32> {
        self.inner.number_leaves(next)
    }

    fn place(&self) -> Option<(String, u64)> {
        self.inner.place()
    }

    fn files(&self, out: &mut Vec<FileId>) {
        self.inner.files(out);
    }

    fn is_quiet(&self) -> bool {
        self.inner.is_quiet()
    }

    fn disassemble(&mut self, in_service: bool, out: &mut Vec<FormerLeaf>) -> bool {
        self.inner.disassemble(in_service, out)
    }

    /// Includes the time that operations are delayed here.
    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        let first = out.len();
        self.inner.leaf_counters(out);
        if let [leaf] = &mut out[first..] {
            (leaf.busy_ns, leaf.queued_ns) = (Some(self.load.busy_ns), Some(self.load.queued_ns));
        }
    }
}
