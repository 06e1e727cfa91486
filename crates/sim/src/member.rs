//! One member: a device's bytes, its volatile cache, and the faults that it has been given.
//!
//! Invariant: `image` is what was last written, also where a sector is unreadable, so that a check
//! may look behind the faults. What a power cut leaves is in [`Cache`]: all that is durable, and
//! any part of the rest.

use std::collections::BTreeSet;
use std::ops::Range;

use engine::{BadBlockLog, BadBlockStep, LogWrite, MemberError, MemberOp};
use md::Sector;
use testkit::Rng;

/// Bytes of a sector.
pub const SECTOR: usize = md::SECTOR_BYTES as usize;

/// A member; see the module documentation. Sectors are those of its data area, unless a description
/// says otherwise.
#[derive(Clone, Default)]
pub struct Member {
    /// The whole device.
    image: Vec<u8>,
    /// First sector of the data area, in sectors of the device.
    data_offset: u64,
    /// Sectors of the data area.
    data_sectors: u64,
    /// Sectors of a logical block, which is written whole or not at all.
    pub block_sectors: u64,
    /// Sectors that cannot be read until they are written again.
    pub bad: BTreeSet<u64>,
    /// Sectors that fail one read and are fine afterwards.
    pub flaky: BTreeSet<u64>,
    /// Sectors that a read has found unreadable, and that were not written since.
    pub found_bad: BTreeSet<u64>,
    /// Its bad-block log, if there is room for one.
    pub log: Option<BadBlockLog>,
    /// Everything fails from this time on.
    pub gone_at: Option<u64>,
    /// Writes fail with this from then on.
    pub write_error: Option<(u64, MemberError)>,
    /// Writes that touch these sectors find no space.
    pub full: Range<u64>,
    /// How many writes will find no space there before there is some; `None`: the shortage lasts.
    pub shortages: Option<u32>,
    /// Writes of metadata find no space.
    pub metadata_full: bool,
    /// Of a write that finds no space, this many sectors are written first.
    pub short: u64,
    /// Operations take this many times as long.
    pub slowness: u64,
    /// Operations that begin from this time on hang.
    pub hangs_at: Option<u64>,
    /// How many members its slot had before.
    pub predecessors: u64,
    /// Flushes fail.
    pub flush_fails: bool,
    /// Reads end with a timeout.
    pub reads_time_out: bool,
    /// It breaks a promise of disks without an error.
    pub lie: Option<Lie>,
    /// Writes completed (by number) that no flush has covered; see `World`.
    pub unflushed: Vec<u64>,
    /// I/O counters.
    pub counts: Counts,
    /// The volatile cache, where a power cut may come.
    pub cache: Option<Cache>,
}

/// A promise of disks that a member breaks without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Flushes make nothing durable.
    Flush,
    /// One write in a while goes elsewhere.
    Misdirected,
    /// One read in a while returns wrong bytes.
    Corrupt,
}

/// What is durable, and what is only in the member's volatile cache.
#[derive(Clone, Default)]
pub struct Cache {
    /// The device without the writes in the cache.
    durable: Vec<u8>,
    /// The writes since, in their order.
    writes: Vec<CachedWrite>,
}

/// A write that has completed.
#[derive(Clone, Debug)]
pub struct CachedWrite {
    /// Its number.
    pub number: u64,
    /// First sector of the device.
    pub first: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// It was performed with FUA: a power cut leaves all of it.
    pub is_durable: bool,
}

impl CachedWrite {
    /// Applies it to an image of the device.
    pub fn apply(&self, image: &mut [u8]) {
        let at = self.first as usize * SECTOR;
        image[at..at + self.bytes.len()].copy_from_slice(&self.bytes);
    }

    /// Applies the blocks for which `keeps` holds.
    fn apply_part(&self, image: &mut [u8], block_sectors: u64, mut keeps: impl FnMut() -> bool) {
        let block = block_sectors as usize * SECTOR;
        let first = self.first as usize * SECTOR;
        for (at, bytes) in (first..).step_by(block).zip(self.bytes.chunks(block)) {
            if keeps() {
                image[at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl Cache {
    /// An empty cache of a device with this image.
    pub fn new(image: &[u8]) -> Cache {
        Cache { durable: image.to_vec(), writes: Vec::new() }
    }

    /// The device as a power cut leaves it at the least, without the writes in the cache.
    pub fn durable(&self) -> &[u8] {
        &self.durable
    }

    /// The writes in the cache, in their order.
    pub fn writes(&self) -> &[CachedWrite] {
        &self.writes
    }

    fn written(&mut self, number: u64, first: u64, bytes: &[u8], is_durable: bool) {
        if is_durable && self.writes.is_empty() {
            let at = first as usize * SECTOR;
            return self.durable[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.writes.push(CachedWrite { number, first, bytes: bytes.to_vec(), is_durable });
    }

    fn flushed(&mut self, covers: u64) {
        let Cache { durable, writes } = self;
        let count = writes.iter().take_while(|write| write.number <= covers).count();
        for write in writes.drain(..count) {
            write.apply(durable);
        }
    }

    /// An image that a power cut may leave: any blocks of the writes in the cache.
    fn cut(self, block_sectors: u64, rng: &mut Rng) -> Vec<u8> {
        let mut image = self.durable;
        let share = rng.below(4);
        for write in &self.writes {
            let is_durable = write.is_durable;
            write.apply_part(&mut image, block_sectors, || is_durable || rng.below(4) < share);
        }
        image
    }
}

/// I/O counters of a member, as iostat shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Sectors read.
    pub read_sectors: u64,
    /// Writes.
    pub writes: u64,
    /// Sectors written.
    pub write_sectors: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Writes of zeroes.
    pub zeroes: u64,
}

impl Member {
    /// A member that has only a data area, of zeroes.
    pub fn of_zeroes(data_sectors: u64) -> Member {
        Member::of_device(vec![0; data_sectors as usize * SECTOR], 0, data_sectors)
    }

    /// The member of a slot that nothing serves.
    pub fn missing(data_sectors: u64) -> Member {
        Member { gone_at: Some(0), ..Member::of_zeroes(data_sectors) }
    }

    /// A device with a data area at `data_offset`.
    pub fn of_device(image: Vec<u8>, data_offset: u64, data_sectors: u64) -> Member {
        Member { image, data_offset, data_sectors, block_sectors: 1, ..Member::default() }
    }

    /// What a power cut leaves of the device: all that is durable, any part of what is in the
    /// cache.
    pub fn cut(&mut self, rng: &mut Rng) -> Vec<u8> {
        match self.cache.take() {
            Some(cache) => cache.cut(self.block_sectors, rng),
            None => std::mem::take(&mut self.image),
        }
    }

    /// The whole device.
    pub fn image(&self) -> &[u8] {
        &self.image
    }

    /// From now on a power cut may come: what is there is durable.
    pub fn begin_cache(&mut self) {
        self.cache = Some(Cache::new(&self.image));
    }

    /// Sectors of the data area.
    pub fn data_sectors(&self) -> u64 {
        self.data_sectors
    }

    /// A range of the data area, in sectors of the device.
    pub fn on_device(&self, sectors: &Range<u64>) -> Range<u64> {
        sectors.start + self.data_offset..sectors.end + self.data_offset
    }

    /// The error that a read of this range ends with, if any.
    pub fn read_fault(&mut self, now: u64, sectors: &Range<u64>) -> Option<MemberError> {
        if self.is_gone(now) {
            return Some(MemberError::Gone);
        }
        if self.reads_time_out {
            return Some(MemberError::Timeout);
        }
        if self.is_listed(sectors) {
            let is_listed = |at: &u64| self.is_listed(&(*at..*at + 1));
            let listed: Vec<u64> = sectors.clone().filter(is_listed).collect();
            self.found_bad.extend(listed);
            return Some(MemberError::BadBlock);
        }
        if self.bad.is_empty() && self.flaky.is_empty() {
            return None;
        }
        let flaky: Vec<u64> = self.flaky.range(sectors.clone()).copied().collect();
        for sector in &flaky {
            self.flaky.remove(sector);
        }
        let bad: Vec<u64> = self.bad.range(sectors.clone()).copied().collect();
        let is_bad = !flaky.is_empty() || !bad.is_empty();
        self.found_bad.extend(flaky.into_iter().chain(bad));
        is_bad.then_some(MemberError::Medium)
    }

    /// Whether the bad-block log lists any of these sectors.
    pub fn is_listed(&self, sectors: &Range<u64>) -> bool {
        let length = sectors.end - sectors.start;
        let begin =
            |log: &BadBlockLog| log.begin(MemberOp::Read, false, Sector(sectors.start), length);
        self.log.as_ref().is_some_and(|log| begin(log).is_err())
    }

    /// Adds sectors to the bad-block log, durably, as write number `number`.
    ///
    /// # Errors
    /// There is no log, or no room in it.
    pub fn list(&mut self, number: u64, sectors: &Range<u64>) -> Result<(), MemberError> {
        let log = self.log.as_mut().ok_or(MemberError::NoSpace)?;
        let write = log.add(Sector(sectors.start), sectors.end - sectors.start)?;
        self.write_bad_blocks(number, write);
        Ok(())
    }

    /// An operation that changes the bad-block log has been performed; its step, if that writes the
    /// log, as write number `number`. Whether it does.
    pub fn log_step(&mut self, number: u64, step: BadBlockStep) -> bool {
        let BadBlockStep::Write(write) = step else { return false };
        self.write_bad_blocks(number, write);
        true
    }

    fn write_bad_blocks(&mut self, number: u64, write: LogWrite) {
        // Durable before the operation completes, and no data: hosts' flushes are not concerned.
        self.write_device(number, write.sector, &write.bytes, true);
        let log = self.log.as_mut().expect("it has decided that");
        log.log_written(write, Ok(())).expect("it was written");
    }

    /// The error that a write of this range ends with, if any.
    pub fn write_fault(&mut self, now: u64, sectors: &Range<u64>) -> Option<MemberError> {
        if self.is_gone(now) {
            return Some(MemberError::Gone);
        }
        if sectors.start < self.full.end && self.full.start < sectors.end {
            match &mut self.shortages {
                Some(0) => return None,
                Some(left) => *left -= 1,
                None => {}
            }
            return Some(match self.short {
                0 => MemberError::NoSpace,
                _ => MemberError::ShortWrite,
            });
        }
        self.write_error.filter(|(from, _)| now >= *from).map(|(_, error)| error)
    }

    /// Whether everything fails.
    pub fn is_gone(&self, now: u64) -> bool {
        self.gone_at.is_some_and(|at| now >= at)
    }

    /// The bytes of the data area.
    pub fn data(&self) -> &[u8] {
        self.view(0..self.data_sectors)
    }

    /// The bytes of the data area, to be changed behind the back of everything.
    pub fn data_mut(&mut self) -> &mut [u8] {
        let sectors = self.on_device(&(0..self.data_sectors));
        &mut self.image[sectors.start as usize * SECTOR..sectors.end as usize * SECTOR]
    }

    /// The bytes of a range.
    pub fn view(&self, sectors: Range<u64>) -> &[u8] {
        let sectors = self.on_device(&sectors);
        &self.image[sectors.start as usize * SECTOR..sectors.end as usize * SECTOR]
    }

    /// Performs a write of the data area, as number `number`: the range can be read from now on.
    pub fn write(&mut self, number: u64, first: u64, bytes: &[u8], fua: bool) {
        let end = first + (bytes.len() / SECTOR) as u64;
        if !self.bad.is_empty() {
            self.bad.retain(|sector| !(first..end).contains(sector));
        }
        if !self.found_bad.is_empty() {
            self.found_bad.retain(|sector| !(first..end).contains(sector));
        }
        self.write_device(number, first + self.data_offset, bytes, fua);
    }

    /// Performs a write anywhere on the device.
    pub fn write_device(&mut self, number: u64, first: u64, bytes: &[u8], fua: bool) {
        let at = first as usize * SECTOR;
        self.image[at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(cache) = &mut self.cache {
            cache.written(number, first, bytes, fua);
        }
        if !fua {
            self.unflushed.push(number);
        }
    }

    /// Reports a flush that it does not perform.
    pub fn flush_nothing(&mut self, covers: u64) {
        self.unflushed.retain(|number| *number > covers);
    }

    /// Performs a flush of the writes up to number `covers`.
    pub fn flush(&mut self, covers: u64) {
        self.unflushed.retain(|number| *number > covers);
        if let Some(cache) = self.cache.as_mut().filter(|_| self.lie != Some(Lie::Flush)) {
            cache.flushed(covers);
        }
    }
}
