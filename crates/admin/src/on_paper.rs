//! A state on paper: before superblocks that give members other roles, offsets or positions are
//! written, the array that they describe is assembled over the same members, in memory.
//!
//! Invariant: nothing is written. A state is refused if it serves less than the one before it, or
//! other bytes where they must be the same. Called before the first of the superblocks is written.

use std::ops::Range;
use std::sync::Arc;

use host::Disk;
use md::SECTOR_BYTES;
use md::assemble::{Array, Candidate, MemberState, Options, Verdict, assemble};
use md::ondisk::superblock::Superblock;
use md::show_size;
use parity::Kernels;

use crate::opened::Opened;
use crate::rescue::{ReadableArray, laid_over, prepare};
use crate::worse::Worse;

/// How much is read at each end of the array, in sectors.
const LOOK: u64 = 2048;

/// The state before.
pub(crate) struct Before<'a> {
    pub(crate) array: &'a Array,
    pub(crate) candidates: &'a [Candidate],
    /// By candidate.
    pub(crate) disks: &'a [Arc<dyn Disk>],
    /// How it was assembled.
    pub(crate) options: &'a Options,
}

/// The state that superblocks would describe.
pub(crate) struct OnPaper {
    pub(crate) found: Array,
    pub(crate) candidates: Vec<Candidate>,
}

fn worse<T>(what: impl Into<String>) -> Result<T, Worse> {
    Err(Worse(what.into()))
}

/// Assembles the members with these superblocks, by candidate, in place of theirs, and compares
/// what the array serves. `moving`: array sectors whose contents are not in their new place yet.
///
/// # Errors
/// What is worse than before.
pub(crate) fn on_paper(
    before: &Before<'_>,
    planned: &[(usize, Superblock)],
    moving: &Range<u64>,
    kernels: Kernels,
) -> Result<OnPaper, Worse> {
    let (mut disks, mut candidates) = (before.disks.to_vec(), before.candidates.to_vec());
    for (candidate, superblock) in planned {
        let disk = &before.disks[*candidate];
        let bytes = superblock.encode(disk.logical_block() as usize);
        let over = laid_over(disk.clone(), [(superblock.sector(), &bytes[..])]);
        let read = Opened::disk(over.clone()).map(|opened| opened.candidate());
        let is_planned = |read: &Candidate| {
            let (read, planned) = (&read.metadata, superblock.metadata());
            (read.set_uuid, read.events) == (planned.set_uuid, planned.events)
        };
        let Some(read) = read.filter(is_planned) else {
            return worse(format!("{}: another superblock would be found on it", disk.name()));
        };
        (disks[*candidate], candidates[*candidate]) = (over, read);
    }
    let found = assemble(&candidates, before.options).arrays;
    let same = found.into_iter().find(|array| array.set_uuid == before.array.set_uuid);
    let Some(found) = same else { return worse("the members would form no array") };
    serves_as_much(before, &found)?;
    if rank(&before.array.read_only.verdict) <= 1 {
        let now = view(before.array, before.candidates, before.disks, kernels);
        let then = view(&found, &candidates, &disks, kernels);
        if let (Some(now), Some(then)) = (now, then) {
            same_contents(&now, &then, moving)?;
        }
    }
    Ok(OnPaper { found, candidates })
}

/// The better, the smaller.
fn rank(verdict: &Verdict) -> u32 {
    match verdict {
        Verdict::Run | Verdict::RunDegraded { .. } => 0,
        Verdict::RunPartial { .. } => 1,
        Verdict::NeedsForce { .. } => 2,
        Verdict::Refused { .. } => 3,
    }
}

/// Size, verdict and members of the array.
fn serves_as_much(before: &Before<'_>, found: &Array) -> Result<(), Worse> {
    let verdict = &found.read_only.verdict;
    if rank(verdict) > rank(&before.array.read_only.verdict) {
        return worse(verdict.to_string().replace('\n', " "));
    }
    let (was, is) = (before.array.array_sectors, found.array_sectors);
    if is < was {
        return worse(format!("the array would have {} of {}", show_size(is), show_size(was)));
    }
    let slots = found.shape.as_ref().map_or(0, |shape| shape.members());
    for member in &before.array.members {
        let slot = match &member.state {
            MemberState::Active(slot) | MemberState::Recovering { slot, .. } => *slot,
            _ => continue,
        };
        let mut after = found.members.iter();
        let after = after.find(|after| after.candidate == member.candidate).map(|it| &it.state);
        let keeps = match after {
            Some(MemberState::Active(is)) => *is == slot,
            Some(MemberState::Recovering { slot: is, .. }) => {
                *is == slot && member.state != MemberState::Active(slot)
            }
            // It has left with its slot.
            _ => slot.index() >= slots,
        };
        if !keeps {
            let name = before.disks[member.candidate].name();
            let state = after.map_or("no member".into(), MemberState::to_string);
            return worse(format!("{name}, {}, would be {state}", member.state));
        }
    }
    Ok(())
}

fn view(
    array: &Array,
    candidates: &[Candidate],
    disks: &[Arc<dyn Disk>],
    kernels: Kernels,
) -> Option<ReadableArray> {
    let prepared = prepare(array, &array.read_only, candidates, disks, kernels);
    prepared.ok().map(|prepared| prepared.view)
}

/// The first and the last sectors, and those beside what moves.
fn same_contents(
    before: &ReadableArray,
    after: &ReadableArray,
    moving: &Range<u64>,
) -> Result<(), Worse> {
    let end = before.sectors().min(after.sectors());
    let ends = [
        0..LOOK,
        moving.start.saturating_sub(LOOK)..moving.start,
        moving.end..moving.end.saturating_add(LOOK),
        end.saturating_sub(LOOK)..end,
    ];
    let parts = ends.into_iter().flat_map(|range| {
        [range.start..range.end.min(moving.start), range.start.max(moving.end)..range.end]
    });
    for part in parts.map(|part| part.start..part.end.min(end)) {
        if part.is_empty() {
            continue;
        }
        let read = |array: &ReadableArray| {
            let mut bytes = vec![0; ((part.end - part.start) * SECTOR_BYTES) as usize];
            let lost = array.read(part.start, &mut bytes);
            (bytes, lost)
        };
        let ((was, lost), (is, more)) = (read(before), read(after));
        let is_lost = |ranges: &[Range<u64>], sector| ranges.iter().any(|it| it.contains(&sector));
        for (sector, at) in part.clone().zip((0..was.len()).step_by(SECTOR_BYTES as usize)) {
            let bytes = at..at + SECTOR_BYTES as usize;
            if is_lost(&lost, sector) {
                continue;
            }
            if is_lost(&more, sector) {
                return worse(format!("array sector {sector} could not be read any more"));
            }
            if was[bytes.clone()] != is[bytes] {
                return worse(format!("array sector {sector} would have other contents"));
            }
        }
    }
    Ok(())
}
