//! A member with a bad-block log: executes the decisions of `engine::BadBlockLog`.
//!
//! Invariant: the log is read, changed and written under one lock, which all handles on the member
//! share; an operation that changes the log on disk completes after that write. Used by
//! `admin::start`.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use engine::{BadBlockChange, BadBlockLog, BadBlockStep, IoError, LogWrite, Token};
use md::Sector;
use md::ondisk::BadBlockArea;

use super::error_text;
use super::file::cause_of;
use super::{
    Counters, Cqe, FileId, FormerLeaf, Io, Known, Member, MemberCompletion, MemberInfo, Op, OpKind,
    Sealed,
};
use crate::table::Table;
use host::{AreaError, Disk, read_bad_blocks};

/// The bad-block log of one member and the disk that it is on, shared by all handles on it.
pub struct BadBlockList {
    disk: Arc<dyn Disk>,
    log: BadBlockLog,
}

impl BadBlockList {
    /// Reads the log that a superblock points to, of a member whose data area starts at sector
    /// `data_offset` of the device. One that is not in use is empty, whatever its area holds.
    ///
    /// # Errors
    /// It cannot be read, or has a wrong format: a clause without its subject.
    pub fn read(
        disk: Arc<dyn Disk>,
        place: BadBlockArea,
        data_offset: u64,
    ) -> Result<BadBlockList, AreaError> {
        let bad = read_bad_blocks(&*disk, place)?;
        Ok(BadBlockList { disk, log: BadBlockLog::new(bad, place, data_offset) })
    }

    /// Whether no sector is listed.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// The member has completed an operation of this kind, to which `change` belongs. Returns the
    /// result to complete it with.
    fn done(
        &mut self,
        kind: OpKind,
        change: BadBlockChange,
        result: Result<(), IoError>,
    ) -> Result<(), IoError> {
        match self.log.done(change, result) {
            BadBlockStep::Complete(result) => result,
            BadBlockStep::Write(write) => {
                self.write(write, kind, "blocks that were rewritten are good")
            }
        }
    }

    /// Adds sectors of the data area.
    fn add(&mut self, sector: Sector, sectors: u64) -> Result<(), IoError> {
        let write = self.log.add(sector, sectors);
        let write = write.map_err(|kind| IoError::of_metadata(kind, None))?;
        self.write(write, OpKind::Write { fua: true }, "blocks that could not be rebuilt are bad")
    }

    /// Writes the log, for an operation of this kind, and returns the result of the operation.
    fn write(&mut self, write: LogWrite, kind: OpKind, why: &str) -> Result<(), IoError> {
        let written = self.write_out(&write).map_err(|error| {
            let cause = cause_of(&error, kind);
            IoError::of_metadata(cause.kind, cause.errno)
        });
        if written.is_ok() {
            let (device, ranges) = (self.disk.name(), write.ranges());
            tracing::info!(device, ranges, "bad-block log written: {why}");
        }
        self.log.log_written(write, written)
    }

    fn write_out(&self, write: &LogWrite) -> io::Result<()> {
        self.disk.write(write.sector, &write.bytes)?;
        self.disk.sync()
    }
}

/// An operation in flight in the inner member.
struct AtWork {
    token: Token,
    kind: OpKind,
    change: Option<BadBlockChange>,
}

/// A member with a bad-block log; see the module documentation.
pub struct BadBlockMember {
    inner: Box<dyn Member>,
    list: Arc<Mutex<BadBlockList>>,
    /// By number, which is the token in the inner member.
    at_work: Table<AtWork>,
    finished: Vec<MemberCompletion>,
}

impl BadBlockMember {
    /// Adds a log to the member whose data area it describes.
    pub fn new(inner: Box<dyn Member>, list: BadBlockList) -> BadBlockMember {
        BadBlockMember::shared(inner, Arc::new(Mutex::new(list)))
    }

    fn shared(inner: Box<dyn Member>, list: Arc<Mutex<BadBlockList>>) -> BadBlockMember {
        BadBlockMember { inner, list, at_work: Table::new(), finished: Vec::new() }
    }

    fn list(&self) -> MutexGuard<'_, BadBlockList> {
        self.list.lock().expect("the list lock is not poisoned")
    }

    /// Completes operations that the inner member has completed.
    fn pass_on(&mut self, done: &mut Vec<MemberCompletion>) {
        let mut finished = std::mem::take(&mut self.finished);
        for MemberCompletion { token, result } in finished.drain(..) {
            let AtWork { token, kind, change } = self.at_work.remove(token.to_bits() as u32);
            let result = match change {
                Some(change) => self.list().done(kind, change, result),
                None => result,
            };
            done.push(MemberCompletion { token, result });
        }
        self.finished = finished;
    }
}

impl Sealed for BadBlockMember {}

impl Member for BadBlockMember {
    fn info(&self) -> MemberInfo {
        self.inner.info()
    }

    fn share(&self) -> Option<Box<dyn Member>> {
        let inner = self.inner.share()?;
        Some(Box::new(BadBlockMember::shared(inner, self.list.clone())))
    }

    /// A listed block is served from elsewhere, whatever is here.
    fn known(&self, sector: Sector, limit: Sector) -> Known {
        match self.list().is_empty() {
            true => self.inner.known(sector, limit),
            false => Known { is_hole: false, end: limit },
        }
    }

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let is_fua = op.kind == OpKind::Write { fua: true };
        // The list is of the data area.
        let begun = match op.kind {
            OpKind::WriteLog => Ok(None),
            kind => self.list().log.begin(kind.named(), is_fua, op.sector, op.sectors),
        };
        let change = match begun {
            Ok(change) => change,
            Err(kind) => {
                let error = op.error(kind);
                error_text::log(&error, self.place());
                done.push(MemberCompletion { token: op.token, result: Err(error) });
                return;
            }
        };
        let number = self.at_work.insert(AtWork { token: op.token, kind: op.kind, change });
        let inner = Op { token: Token::from_bits(u64::from(number)), ..*op };
        self.inner.submit(&inner, io, &mut self.finished);
        self.pass_on(done);
    }

    fn add_bad_blocks(&mut self, sector: Sector, sectors: u64) -> Result<(), IoError> {
        self.list().add(sector, sectors)
    }

    fn prefetch(&self, sector: Sector) {
        self.inner.prefetch(sector);
    }

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.inner.submit_batch(io, &mut self.finished);
        self.pass_on(done);
    }

    fn gathers(&self) -> bool {
        self.inner.gathers()
    }

    fn take_held(&mut self, held: &mut dyn FnMut(MemberCompletion)) {
        let at_work = &mut self.at_work;
        self.inner.take_held(&mut |MemberCompletion { token, result }| {
            let AtWork { token, .. } = *at_work.get(token.to_bits() as u32);
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
        self.inner.reap(io, &mut self.finished);
        self.pass_on(done);
    }

    fn complete(&mut self, event: Cqe, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.inner.complete(event, io, &mut self.finished);
        self.pass_on(done);
    }

    fn wake_at(&self) -> Option<u64> {
        self.inner.wake_at()
    }

    fn deadline(&self) -> Option<u64> {
        self.inner.deadline()
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

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        self.inner.leaf_counters(out);
    }
}
