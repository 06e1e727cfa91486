//! One member of the tests' executor: bytes, and the faults that it has been given.
//!
//! Invariant: `bytes` is what was last written, also where a sector is unreadable, so that a check
//! may look behind the faults.

use std::collections::BTreeSet;
use std::ops::Range;

use engine::MemberError;

pub const SECTOR: usize = md::SECTOR_BYTES as usize;

#[derive(Default)]
pub struct Member {
    pub bytes: Vec<u8>,
    /// Sectors that cannot be read until they are written again.
    pub bad: BTreeSet<u64>,
    /// Sectors that fail one read and are fine afterwards.
    pub flaky: BTreeSet<u64>,
    /// Answers nothing any more from this time on.
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
    /// Writes completed (by number) that no flush has covered; see `World`.
    pub unflushed: Vec<u64>,
    pub counts: Counts,
    /// What survives a power cut, where a test keeps account of it.
    pub platter: Option<Platter>,
}

/// What is durable, and what is only in the member's cache.
#[derive(Default)]
pub struct Platter {
    pub bytes: Vec<u8>,
    /// (number of the write, sector, contents), oldest first.
    pub cache: Vec<(u64, u64, Vec<u8>)>,
}

impl Platter {
    /// A write has completed.
    pub fn written(&mut self, number: u64, first: u64, bytes: &[u8], fua: bool) {
        let end = first + (bytes.len() / SECTOR) as u64;
        if fua {
            self.cache.retain(|(_, sector, _)| !(first..end).contains(sector));
            let at = first as usize * SECTOR;
            self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            return;
        }
        for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
            self.cache.push((number, sector, bytes.to_vec()));
        }
    }

    /// A flush has completed that was issued when `covers` writes had.
    pub fn flushed(&mut self, covers: u64) {
        let Platter { bytes, cache } = self;
        cache.retain(|(number, sector, new)| {
            if *number <= covers {
                let at = *sector as usize * SECTOR;
                bytes[at..at + SECTOR].copy_from_slice(new);
            }
            *number > covers
        });
    }
}

/// I/O counters of a member, as iostat shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub read_sectors: u64,
    pub writes: u64,
    pub write_sectors: u64,
    pub flushes: u64,
    pub discards: u64,
    pub zeroes: u64,
}

impl Member {
    pub fn read_fault(&mut self, now: u64, sectors: Range<u64>) -> Option<MemberError> {
        if self.is_gone(now) {
            return Some(MemberError::Gone);
        }
        let flaky: Vec<u64> = self.flaky.range(sectors.clone()).copied().collect();
        for sector in &flaky {
            self.flaky.remove(sector);
        }
        let bad = !flaky.is_empty() || self.bad.range(sectors).next().is_some();
        bad.then_some(MemberError::Medium)
    }

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

    pub fn is_gone(&self, now: u64) -> bool {
        self.gone_at.is_some_and(|at| now >= at)
    }

    /// The bytes of a range that is being written; the range can be read from now on.
    pub fn rewrite(&mut self, sectors: Range<u64>) -> &mut [u8] {
        let again: Vec<u64> = self.bad.range(sectors.clone()).copied().collect();
        for sector in again {
            self.bad.remove(&sector);
        }
        &mut self.bytes[sectors.start as usize * SECTOR..sectors.end as usize * SECTOR]
    }

    pub fn view(&self, sectors: Range<u64>) -> &[u8] {
        &self.bytes[sectors.start as usize * SECTOR..sectors.end as usize * SECTOR]
    }
}
