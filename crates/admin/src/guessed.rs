//! The geometry of an array from the contents of its members.
//!
//! Invariant: members are only read, at most so much as the budget allows; a range that cannot be
//! read is read once. What is decided, `guess` decides.

use std::sync::Arc;
use std::thread;

use guess::{Answer, ByteRange, Disks, Known, Options, Pages};
use host::Disk;
use md::SECTOR_BYTES;
use thiserror::Error;

use crate::rescue::{Check, Description};
use crate::{Members, SharedStorage};

/// How a geometry is sought.
#[derive(Clone, Copy, Debug)]
pub struct GuessOptions {
    /// What is known of it.
    pub known: Known,
    /// Compare all redundancy, and read all stages.
    pub thorough: bool,
    /// Bytes that may be read of each member.
    pub budget: u64,
}

/// What a search gave. Members are numbered as those that were opened.
#[derive(Clone, Debug)]
pub struct GuessReport {
    /// The answer.
    pub answer: Answer,
    /// Name of each member.
    pub members: Vec<String>,
    /// Bytes read of all members.
    pub read_bytes: u64,
    /// Bytes that they have.
    pub of_bytes: u64,
    /// Whether the budget was used up.
    pub exhausted: bool,
    /// Ranges that could not be read, with the member.
    pub failed: Vec<(usize, u64, u64)>,
}

/// Why no search is possible.
#[derive(Debug, Error)]
pub enum GuessError {
    /// A member cannot be opened.
    #[error("{name}: {why}")]
    Unread {
        /// The member.
        name: String,
        /// The reason.
        why: String,
    },
    /// Two members share bytes.
    #[error(transparent)]
    Shared(#[from] SharedStorage),
    /// More members than are searched.
    #[error("{0} members; at most {MAX_MEMBERS} are searched")]
    TooMany(usize),
    /// It was stopped.
    #[error("the search was stopped")]
    Stopped,
}

/// Most members of a search: the geometries that are tried grow with their square.
pub const MAX_MEMBERS: usize = 32;

/// Finds the geometry of the array that these members form. They were opened as named, or as parts
/// of disks; `progress` is called with what is being done. Once `stopped` says so nothing more is
/// read, and the search ends soon.
///
/// # Errors
/// See [`GuessError`].
pub fn guess_geometry(
    members: &Members,
    options: &GuessOptions,
    progress: &mut dyn FnMut(&str),
    stopped: &(dyn Fn() -> bool + Sync),
) -> Result<GuessReport, GuessError> {
    if let Some(unread) = members.all.iter().find(|member| member.disk.is_none()) {
        let (name, why) = (unread.name.clone(), unread.instead.clone());
        return Err(GuessError::Unread { name, why });
    }
    members.refuse_overlaps()?;
    if members.all.len() > MAX_MEMBERS {
        return Err(GuessError::TooMany(members.all.len()));
    }
    let disks = MemberDisks {
        disks: members.all.iter().filter_map(|member| member.disk.clone()).collect(),
        stopped,
    };
    let superblocks = members.all.iter().map(|member| {
        let (superblock, _) = member.superblock.as_ref()?;
        Some(superblock.metadata())
    });
    let options_of_search = Options {
        known: options.known,
        thorough: options.thorough,
        superblocks: superblocks.collect(),
    };
    let pages = Pages::new(&disks, options.budget);
    let answer = guess::guess(&pages, &options_of_search, progress);
    // What was not read was taken for unreadable: it is no answer.
    if stopped() {
        return Err(GuessError::Stopped);
    }
    let failed = pages.failed().into_iter().map(|it| (it.member, it.at, it.len as u64)).collect();
    Ok(GuessReport {
        answer,
        members: members.all.iter().map(|member| member.name.clone()).collect(),
        read_bytes: pages.read_bytes(),
        of_bytes: disks.sizes().iter().sum(),
        exhausted: pages.exhausted(),
        failed,
    })
}

/// A geometry that was found, as a description for [`crate::rescue::rescue_described`].
pub fn described(found: &guess::Guessed, partial: bool, check: Check) -> Description {
    let read = |slot: usize| found.order[slot].filter(|it| !found.exclude.contains(it));
    let sectors = |bytes: u64| bytes / SECTOR_BYTES;
    let areas = (0..found.raid_devices).map(|slot| {
        let size = found.sizes.as_ref().map(|sizes| sectors(sizes[slot]));
        (sectors(found.data_offsets[slot]), size)
    });
    Description {
        spec: md::assemble::ExplicitSpec {
            level: found.level,
            layout: Some(found.layout),
            chunk_sectors: found.chunk.map_or(0, sectors),
            raid_disks: found.raid_devices,
            data_offset: found.data_offsets.first().map_or(0, |&it| sectors(it)),
            used_sectors: found.used.map(sectors),
            members: Vec::new(),
        },
        slots: (0..found.raid_devices).map(read).collect(),
        areas: areas.collect(),
        is_found: true,
        partial,
        check,
        correct: false,
    }
}

/// Members as `guess` reads them.
struct MemberDisks<'s> {
    disks: Vec<Arc<dyn Disk>>,
    stopped: &'s (dyn Fn() -> bool + Sync),
}

impl Disks for MemberDisks<'_> {
    fn sizes(&self) -> Vec<u64> {
        self.disks.iter().map(|disk| disk.sectors() * SECTOR_BYTES).collect()
    }

    /// One thread for each member, each in the order of the offsets.
    fn read(&self, ranges: &[ByteRange]) -> Vec<Option<Vec<u8>>> {
        let of_members: Vec<&[ByteRange]> =
            ranges.chunk_by(|one, other| one.member == other.member).collect();
        let read = |ranges: &[ByteRange]| -> Vec<Option<Vec<u8>>> {
            ranges.iter().map(|range| self.read_one(range)).collect()
        };
        if let [only] = of_members.as_slice() {
            return read(only);
        }
        thread::scope(|scope| {
            let started: Vec<_> = of_members
                .iter()
                .map(|&ranges| (ranges.len(), scope.spawn(move || read(ranges))))
                .collect();
            let ended = started.into_iter().map(|(count, thread)| {
                // A thread that cannot end normally read nothing.
                thread.join().unwrap_or_else(|_| vec![None; count])
            });
            ended.flatten().collect()
        })
    }
}

impl MemberDisks<'_> {
    fn read_one(&self, range: &ByteRange) -> Option<Vec<u8>> {
        if (self.stopped)() {
            return None;
        }
        let disk = &self.disks[range.member];
        let sectors = (range.len as u64).div_ceil(SECTOR_BYTES);
        let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
        disk.read(range.at / SECTOR_BYTES, &mut bytes).ok()?;
        bytes.truncate(range.len);
        Some(bytes)
    }
}
