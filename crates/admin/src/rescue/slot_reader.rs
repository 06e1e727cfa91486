//! Reads one slot of the array from its sources.
//!
//! Invariant: bytes are taken from a source only where it is in sync and has no bad block; a read
//! error loses only the blocks that really fail.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use md::SECTOR_BYTES;
use serde::Serialize;

use super::ranges::{Ranges, add_range, union};
use crate::fields::as_area;
use host::Disk;

/// A device that holds a slot, or a part of it.
#[derive(Clone)]
pub struct Source {
    /// The device.
    pub disk: Arc<dyn Disk>,
    /// Start of its data area, in sectors of the device.
    pub data_offset: u64,
    /// In-sync sectors of its data area, from its start on; `u64::MAX`: all.
    pub in_sync: u64,
    /// Bad sectors of the device, which must not be read, and those that are known not to be there;
    /// sorted and disjoint.
    pub bad: Arc<[Range<u64>]>,
    /// A write-mostly member, which is read where no other has the data: md completes writes behind
    /// it, so that it may lack what has been acknowledged.
    pub write_mostly: bool,
}

/// Reads of a disk while what fails is skipped.
#[derive(Clone, Copy, Debug, Default)]
struct Health {
    reads: u64,
    failed: u64,
}

/// Failed reads after which a disk may be left to the others.
const MANY_FAILED: u64 = 8;

impl Health {
    /// Whether it fails much: one read in eight.
    fn is_failing(self) -> bool {
        self.failed >= MANY_FAILED && self.failed * 8 >= self.reads
    }
}

impl Source {
    /// A source that is in sync everywhere.
    pub fn whole(disk: Arc<dyn Disk>, data_offset: u64) -> Source {
        Source::new(disk, data_offset, u64::MAX, &[])
    }

    /// A source with bad sectors, sorted and disjoint.
    pub fn new(disk: Arc<dyn Disk>, data_offset: u64, in_sync: u64, bad: &[Range<u64>]) -> Source {
        let bad = union(bad, disk.known_unread()).into();
        Source { disk, data_offset, in_sync, bad, write_mostly: false }
    }
}

/// A range of a member that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Name of the member, as it was given.
    #[serde(rename = "member")]
    pub name: String,
    /// Sectors of the device.
    #[serde(flatten, serialize_with = "as_area")]
    pub sectors: Range<u64>,
    /// The system's error.
    pub error: String,
}

/// Maximum of failures kept: a dead disk has millions.
const MAX_FAILURES: usize = 1000;

/// Read errors, by member and kind of error. Pieces are read concurrently; adjacent ranges are
/// merged.
#[derive(Default)]
pub(super) struct Failures {
    lists: Mutex<BTreeMap<(String, String), Failed>>,
    /// Whether a range that cannot be read in one piece is skipped, and a source that fails much,
    /// too.
    is_skipping: AtomicBool,
    /// Sectors of members that were skipped.
    skipped: AtomicU64,
    /// By the address of the disk, which lives as long as the sources.
    health: Mutex<HashMap<usize, Health>>,
}

#[derive(Default)]
struct Failed {
    /// The first error message.
    error: String,
    ranges: Ranges,
}

impl Failures {
    pub(super) fn set_skipping(&self, is_skipping: bool) {
        self.is_skipping.store(is_skipping, Ordering::Relaxed);
    }

    pub(super) fn is_skipping(&self) -> bool {
        self.is_skipping.load(Ordering::Relaxed)
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The health of a source's disk, with one more read that failed or did not.
    fn health(&self, source: &Source, more: Option<bool>) -> Health {
        let mut all = self.health.lock().expect("the list lock is not poisoned");
        let key = Arc::as_ptr(&source.disk).cast::<()>() as usize;
        let health = all.entry(key).or_default();
        if let Some(has_failed) = more {
            health.reads += 1;
            health.failed += u64::from(has_failed);
        }
        *health
    }

    fn skip(&self, range: &Range<u64>) {
        self.skipped.fetch_add(range.end - range.start, Ordering::Relaxed);
    }

    fn note(&self, source: &Source, sectors: Range<u64>, error: &io::Error) {
        let mut lists = self.lists.lock().expect("the list lock is not poisoned");
        let others: usize = lists.values().map(|failed| failed.ranges.list.len()).sum();
        let kind = format!("{:?} {:?}", error.kind(), error.raw_os_error());
        let failed = lists.entry((source.disk.name(), kind)).or_default();
        if failed.error.is_empty() {
            failed.error = error.to_string();
        }
        let room = MAX_FAILURES.saturating_sub(others - failed.ranges.list.len());
        failed.ranges.insert_below(sectors, room);
    }

    /// The ranges, and the number of further ones that were not kept.
    pub(super) fn get(&self) -> (Vec<Failure>, u64) {
        let lists = self.lists.lock().expect("the list lock is not poisoned");
        let mut failures = Vec::new();
        for ((name, _), Failed { error, ranges }) in lists.iter() {
            failures.extend(ranges.list.iter().map(|sectors| Failure {
                name: name.clone(),
                sectors: sectors.clone(),
                error: error.clone(),
            }));
        }
        (failures, lists.values().map(|failed| failed.ranges.more).sum())
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        self.lists.lock().expect("the list lock is not poisoned").clear();
        self.health.lock().expect("the list lock is not poisoned").clear();
        self.skipped.store(0, Ordering::Relaxed);
    }
}

/// Reads `buf` from `sector` of the data area on, from the first source that has it. Appends the
/// unreadable sectors to `lost`, relative to `sector`, ascending; their bytes are undefined.
pub(super) fn read(
    sources: &[Source],
    sector: u64,
    buf: &mut [u8],
    failures: &Failures,
    lost: &mut Vec<Range<u64>>,
) {
    let all = 0..buf.len() as u64 / SECTOR_BYTES;
    let mut wanted = Vec::from([all]);
    for source in sources {
        let mut left = Vec::new();
        for range in wanted {
            read_source(source, sector, &range, buf, failures, &mut left);
        }
        wanted = left;
        if wanted.is_empty() {
            return;
        }
    }
    wanted.into_iter().for_each(|range| add_range(lost, range));
}

/// Reads the part of `range` that the source has; the rest is appended to `left`.
fn read_source(
    source: &Source,
    sector: u64,
    range: &Range<u64>,
    buf: &mut [u8],
    failures: &Failures,
    left: &mut Vec<Range<u64>>,
) {
    let end = source.in_sync.saturating_sub(sector).clamp(range.start, range.end);
    let first = source.data_offset + sector;
    let mut at = range.start;
    for bad in bad_within(&source.bad, first + at..first + end) {
        let bad = bad.start.max(first + at) - first..bad.end.min(first + end) - first;
        read_good(source, first, at..bad.start, buf, failures, left);
        add_range(left, bad.clone());
        at = bad.end;
    }
    read_good(source, first, at..end, buf, failures, left);
    add_range(left, end..range.end);
}

/// The source that a sector of a slot is read from.
pub(super) fn serving(sources: &[Source], sector: u64) -> Option<&Source> {
    let serves = |source: &&Source| {
        let at = source.data_offset + sector;
        sector < source.in_sync && bad_within(&source.bad, at..at + 1).is_empty()
    };
    sources.iter().find(serves).or(sources.first())
}

/// The bad ranges that touch `range`.
fn bad_within(bad: &[Range<u64>], range: Range<u64>) -> &[Range<u64>] {
    let from = bad.partition_point(|bad| bad.end <= range.start);
    let to = bad.partition_point(|bad| bad.start < range.end);
    &bad[from..to.max(from)]
}

/// Reads a range that should be readable; on errors bisects it, down to the failing block.
fn read_good(
    source: &Source,
    first: u64,
    range: Range<u64>,
    buf: &mut [u8],
    failures: &Failures,
    left: &mut Vec<Range<u64>>,
) {
    if range.is_empty() {
        return;
    }
    let is_skipping = failures.is_skipping();
    if is_skipping && failures.health(source, None).is_failing() {
        failures.skip(&range);
        return add_range(left, range);
    }
    let bytes = (range.start * SECTOR_BYTES) as usize..(range.end * SECTOR_BYTES) as usize;
    let read = source.disk.read(first + range.start, &mut buf[bytes]);
    if is_skipping {
        failures.health(source, Some(read.is_err()));
    }
    let Err(error) = read else { return };
    let block = u64::from(source.disk.logical_block()) / SECTOR_BYTES;
    let sectors = range.end - range.start;
    if sectors <= block || is_for_good(&error) {
        failures.note(source, first + range.start..first + range.end, &error);
        return add_range(left, range);
    }
    if is_skipping {
        failures.skip(&range);
        return add_range(left, range);
    }
    // Aligned to the device's blocks, so that no block is read twice.
    let middle = first + range.start + sectors / 2;
    let middle = (middle / block * block).saturating_sub(first).max(range.start + 1);
    read_good(source, first, range.start..middle, buf, failures, left);
    read_good(source, first, middle..range.end, buf, failures, left);
}

/// Whether a smaller read would fail as well: the device is gone, or ends before the range.
fn is_for_good(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::NODEV | Errno::NXIO | Errno::BADF))
}

/// The end of the hole that a slot has at `sector` of its data area; `sector` if it has data there,
/// or must not be read. At most `limit`.
pub(super) fn hole_end(sources: &[Source], sector: u64, limit: u64) -> u64 {
    let Some(source) = sources.first() else { return sector };
    let first = source.data_offset + sector;
    let bad = bad_within(&source.bad, first..first + (limit - sector));
    let clear = bad.first().map_or(u64::MAX, |bad| bad.start.max(first));
    let end = source.disk.hole_end(first).min(clear) - source.data_offset;
    end.min(source.in_sync.max(sector)).min(limit)
}
