//! A member with a bad block list, as md keeps it beside the superblock.
//!
//! Invariant: a listed sector is never read; its data are recovered from the other members. A write
//! that covers it is attempted; once it has succeeded and is durable, the sector is removed from
//! the list: with FUA before the write completes, otherwise with the next flush. The list on disk
//! may name sectors that are good again, never the reverse. Only Linux adds sectors: here a failed
//! write takes the member out of service. Used by `run::start`.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{IoError, MemberError, Token};
use md::ondisk::BadBlockArea;
use md::ondisk::bad_blocks::BadBlocks;

use super::error_text;
use super::file::cause_of;
use super::{Counters, Cqe, FileId, Io, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed};
use crate::table::Table;
use device::{AreaError, Disk, read_bad_blocks};

/// The bad block list of one member, shared by all handles on it.
pub struct BadBlockList {
    disk: Arc<dyn Disk>,
    place: BadBlockArea,
    /// Start of the member's data area: the list counts sectors of the device.
    data_offset: u64,
    bad: BadBlocks,
    /// The list as it is on disk.
    on_disk: BadBlocks,
    /// Incremented by every change of `bad`.
    version: u64,
    /// The version of the list that is on disk.
    written: u64,
}

impl BadBlockList {
    /// Reads the list that a superblock points to, of a member whose data area starts at sector
    /// `data_offset` of the device.
    ///
    /// # Errors
    /// It cannot be read, or has a wrong format: a clause without its subject.
    pub fn read(
        disk: Arc<dyn Disk>,
        place: BadBlockArea,
        data_offset: u64,
    ) -> Result<BadBlockList, AreaError> {
        let bad = read_bad_blocks(&*disk, place)?;
        let on_disk = bad.clone();
        Ok(BadBlockList { disk, place, data_offset, bad, on_disk, version: 0, written: 0 })
    }

    /// Device sectors of a range of the data area, `sectors` long, from `sector` on.
    fn on_device(&self, sector: u64, sectors: u64) -> Range<u64> {
        let start = self.data_offset.saturating_add(sector);
        start..start.saturating_add(sectors)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.bad.is_empty()
    }

    fn remove(&mut self, sectors: Range<u64>) {
        if self.bad.remove(sectors) {
            self.version += 1;
        }
    }

    /// Removes sectors whose data are durable, also from the list on disk.
    fn remove_durably(&mut self, sectors: Range<u64>) -> std::io::Result<()> {
        self.remove(sectors.clone());
        if !self.on_disk.overlaps(sectors.clone()) {
            return Ok(());
        }
        let mut bad = self.on_disk.clone();
        bad.remove(sectors);
        self.write_to_disk(bad)
    }

    /// Writes the list of this version to disk; `good` are the sectors that it no longer has.
    fn write(&mut self, version: u64, good: &[Range<u64>]) -> std::io::Result<()> {
        if version <= self.written {
            return Ok(());
        }
        // Based on the list on disk: it may lack more sectors than this version did.
        let mut bad = self.on_disk.clone();
        for range in good {
            bad.remove(range.clone());
        }
        self.write_to_disk(bad)?;
        self.written = version;
        Ok(())
    }

    fn write_to_disk(&mut self, bad: BadBlocks) -> std::io::Result<()> {
        // Fewer sectors can need more entries. If the area has no room for them, the list on disk
        // is kept.
        if let Ok(log) = bad.encode(self.place.area.sectors, self.place.shift) {
            self.disk.write(self.place.area.sector, &log)?;
            self.disk.sync()?;
            self.on_disk = bad;
            let (device, ranges) = (self.disk.name(), self.on_disk.ranges().len());
            tracing::info!(
                device,
                ranges,
                "bad-block log written: blocks that were rewritten are good"
            );
        }
        Ok(())
    }

    /// Sectors that are in the list on disk and good by now.
    fn good(&self) -> Vec<Range<u64>> {
        let mut good = self.on_disk.clone();
        for range in self.bad.ranges() {
            good.remove(range.clone());
        }
        good.ranges().to_vec()
    }
}

/// An operation in flight in the inner member.
struct AtWork {
    token: Token,
    then: Then,
}

/// Change of the list when an operation succeeds.
enum Then {
    Nothing,
    /// These sectors have been written.
    Good(Range<u64>),
    /// These sectors have been written, and are durable.
    GoodAndDurable(Range<u64>),
    /// All writes that had completed when the flush began are durable: this version of the list, in
    /// which these sectors are good.
    Durable(u64, Vec<Range<u64>>),
}

/// A member with a bad block list; see the module documentation.
pub struct BadBlockMember {
    inner: Box<dyn Member>,
    list: Arc<Mutex<BadBlockList>>,
    /// By number, which is the token in the inner member.
    at_work: Table<AtWork>,
    finished: Vec<MemberCompletion>,
}

impl BadBlockMember {
    /// Adds a list to the member whose data area it describes.
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
        for MemberCompletion { token, mut result } in finished.drain(..) {
            let AtWork { token, then } = self.at_work.remove(token.to_bits() as u32);
            match then {
                Then::Good(sectors) if result.is_ok() => self.list().remove(sectors),
                // The list is written before the completion: otherwise a start after a crash would
                // not read the sectors.
                Then::GoodAndDurable(sectors) if result.is_ok() => {
                    result = self
                        .list()
                        .remove_durably(sectors)
                        .map_err(|error| of_list(&error, OpKind::Write { fua: true }));
                }
                Then::Durable(version, good) if result.is_ok() => {
                    result = self
                        .list()
                        .write(version, &good)
                        .map_err(|error| of_list(&error, OpKind::Flush));
                }
                _ => {}
            }
            done.push(MemberCompletion { token, result });
        }
        self.finished = finished;
    }
}

/// The error of writing the list, in an operation of this kind.
fn of_list(error: &std::io::Error, kind: OpKind) -> IoError {
    let cause = cause_of(error, kind);
    IoError::of_metadata(cause.kind, cause.errno)
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

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let list = self.list();
        let sectors = list.on_device(op.sector.0, op.sectors);
        let then = match op.kind {
            OpKind::Read if list.bad.overlaps(sectors.clone()) => {
                drop(list);
                let error = op.error(MemberError::Medium);
                error_text::log(&error, self.place());
                done.push(MemberCompletion { token: op.token, result: Err(error) });
                return;
            }
            OpKind::Write { fua: true } => Then::GoodAndDurable(sectors),
            OpKind::Write { fua: false } | OpKind::WriteZeroes => Then::Good(sectors),
            OpKind::Flush if list.version > list.written => {
                Then::Durable(list.version, list.good())
            }
            OpKind::Read | OpKind::Discard | OpKind::Flush => Then::Nothing,
        };
        drop(list);
        let number = self.at_work.insert(AtWork { token: op.token, then });
        let inner = Op { token: Token::from_bits(u64::from(number)), ..*op };
        self.inner.submit(&inner, io, &mut self.finished);
        self.pass_on(done);
    }

    fn prefetch(&self, sector: md::Sector) {
        self.inner.prefetch(sector);
    }

    fn submit_batch(&mut self, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        self.inner.submit_batch(io, &mut self.finished);
        self.pass_on(done);
    }

    fn gathers(&self) -> bool {
        self.inner.gathers()
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

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        self.inner.leaf_counters(out);
    }
}
