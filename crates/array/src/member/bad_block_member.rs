//! A member with a list of bad blocks, as md keeps it beside the superblock.
//!
//! Invariant: a listed sector is never read, so its data come from the other members; a write that
//! covers it is tried, and when it has succeeded and is durable the sector leaves the list, with
//! forced unit access before the write is reported done, otherwise with the next flush. The
//! list on disk may name sectors that are good again, never the other way round. Sectors are added
//! by Linux alone: here a write that fails costs the member its place. Used by `run::start`.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use engine::{MemberError, Token};
use md::ondisk::BadBlockArea;
use md::ondisk::bad_blocks::BadBlocks;

use super::file::io_error_of;
use super::{Counters, Cqe, FileId, Io, Member, MemberCompletion, MemberInfo, Op, OpKind, Sealed};
use crate::store::{Disk, read_bad_blocks};
use crate::table::Table;

/// The list of one member: one for all handles on it.
pub struct BadBlockList {
    disk: Arc<dyn Disk>,
    place: BadBlockArea,
    /// Where the member's data area starts: the list counts sectors of the device.
    data_offset: u64,
    bad: BadBlocks,
    /// What the list on disk says.
    on_disk: BadBlocks,
    /// Counts the changes of `bad`.
    version: u64,
    /// The version that is on disk.
    written: u64,
}

impl BadBlockList {
    /// Reads the list that a superblock points to, of a member whose data area starts at sector
    /// `data_offset` of the device.
    ///
    /// # Errors
    /// It cannot be read, or is not one: a sentence without its end.
    pub fn read(
        disk: Arc<dyn Disk>,
        place: BadBlockArea,
        data_offset: u64,
    ) -> Result<BadBlockList, String> {
        let bad = read_bad_blocks(&*disk, place)?;
        let on_disk = bad.clone();
        Ok(BadBlockList { disk, place, data_offset, bad, on_disk, version: 0, written: 0 })
    }

    /// What the list calls so many sectors of the data area, from `sector` on.
    fn on_device(&self, sector: u64, sectors: u64) -> Range<u64> {
        let start = self.data_offset.saturating_add(sector);
        start..start.saturating_add(sectors)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.bad.is_empty()
    }

    fn remove(&mut self, sectors: Range<u64>) {
        if self.bad.remove(sectors) {
            self.version += 1;
        }
    }

    /// Takes sectors out whose data are durable, also on disk.
    fn remove_durably(&mut self, sectors: Range<u64>) -> std::io::Result<()> {
        self.remove(sectors.clone());
        if !self.on_disk.overlaps(sectors.clone()) {
            return Ok(());
        }
        let mut bad = self.on_disk.clone();
        bad.remove(sectors);
        self.write_to_disk(bad)
    }

    /// Writes what was good when this version was the latest.
    fn write(&mut self, version: u64, good: &[Range<u64>]) -> std::io::Result<()> {
        if version <= self.written {
            return Ok(());
        }
        // From what is on disk: it may lack more than the list of that time did.
        let mut bad = self.on_disk.clone();
        for range in good {
            bad.remove(range.clone());
        }
        self.write_to_disk(bad)?;
        self.written = version;
        Ok(())
    }

    fn write_to_disk(&mut self, bad: BadBlocks) -> std::io::Result<()> {
        // Fewer sectors can need more entries. A list that has no room for them stays as it is.
        if let Ok(log) = bad.encode(self.place.area.sectors, self.place.shift) {
            self.disk.write(self.place.area.sector, &log)?;
            self.disk.sync()?;
            self.on_disk = bad;
        }
        Ok(())
    }

    /// What is on disk and good by now.
    fn good(&self) -> Vec<Range<u64>> {
        let mut good = self.on_disk.clone();
        for range in self.bad.ranges() {
            good.remove(range.clone());
        }
        good.ranges().to_vec()
    }
}

/// An operation that the member inside has.
struct AtWork {
    token: Token,
    then: Then,
}

/// What a success means for the list.
enum Then {
    Nothing,
    /// These sectors have been written.
    Good(Range<u64>),
    /// These sectors have been written, and are durable.
    GoodAndDurable(Range<u64>),
    /// What had been written when the flush began is durable: this version of the list, in which
    /// these sectors are good.
    Durable(u64, Vec<Range<u64>>),
}

/// See the module.
pub struct BadBlockMember {
    inner: Box<dyn Member>,
    list: Arc<Mutex<BadBlockList>>,
    /// By number, which is the inner member's token.
    at_work: Table<AtWork>,
    finished: Vec<MemberCompletion>,
}

impl BadBlockMember {
    /// Puts a list over the member whose data area it speaks of.
    pub fn new(inner: Box<dyn Member>, list: BadBlockList) -> BadBlockMember {
        BadBlockMember::shared(inner, Arc::new(Mutex::new(list)))
    }

    fn shared(inner: Box<dyn Member>, list: Arc<Mutex<BadBlockList>>) -> BadBlockMember {
        BadBlockMember { inner, list, at_work: Table::new(), finished: Vec::new() }
    }

    fn list(&self) -> MutexGuard<'_, BadBlockList> {
        self.list.lock().expect("the list lock is not poisoned")
    }

    /// Ends what the member inside has finished.
    fn pass_on(&mut self, done: &mut Vec<MemberCompletion>) {
        let mut finished = std::mem::take(&mut self.finished);
        for MemberCompletion { token, mut result } in finished.drain(..) {
            let AtWork { token, then } = self.at_work.remove(token.to_bits() as u32);
            match then {
                Then::Good(sectors) if result.is_ok() => self.list().remove(sectors),
                // The list comes before the answer: a start after a crash would not read them.
                Then::GoodAndDurable(sectors) if result.is_ok() => {
                    result = self
                        .list()
                        .remove_durably(sectors)
                        .map_err(|error| io_error_of(&error, OpKind::Write { fua: true }));
                }
                Then::Durable(version, good) if result.is_ok() => {
                    result = self
                        .list()
                        .write(version, &good)
                        .map_err(|error| io_error_of(&error, OpKind::Flush));
                }
                _ => {}
            }
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

    fn submit(&mut self, op: &Op<'_>, io: &mut Io, done: &mut Vec<MemberCompletion>) {
        let list = self.list();
        let sectors = list.on_device(op.sector.0, op.sectors);
        let then = match op.kind {
            OpKind::Read if list.bad.overlaps(sectors.clone()) => {
                done.push(MemberCompletion { token: op.token, result: Err(MemberError::Medium) });
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

    fn files(&self, out: &mut Vec<FileId>) {
        self.inner.files(out);
    }

    fn leaf_counters(&self, out: &mut Vec<Counters>) {
        self.inner.leaf_counters(out);
    }
}
