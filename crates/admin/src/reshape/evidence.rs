//! What the contents say of how far a reshape has come: old rows that stand beside their moved
//! copies, and backups whose rows are in their new place or not.
//!
//! Invariant: only contents count that something else could hardly have: pieces of distinct
//! sectors. Nothing is written. Called by `run` and by `rescue`.

use std::collections::HashSet;
use std::ops::Range;

use md::SECTOR_BYTES;
use md::reshape::MovePlan;

use super::backup::Found;
use super::types::ReshapeError;
use crate::rescue::ReadableArray;

/// Rows that are looked at.
const ROWS: usize = 64;

/// Longest piece of a row that is compared, in sectors.
const PIECE: u64 = 128;

/// Distinct sectors that a piece must have to count.
const DISTINCT: usize = 8;

/// How two contents of the same sectors compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece {
    Same,
    Differs,
    /// They are too plain: other contents may be the same.
    Plain,
}

fn compare(one: &[u8], other: &[u8]) -> Piece {
    let sectors = |bytes| <[u8]>::chunks_exact(bytes, SECTOR_BYTES as usize);
    let is_plain = |sector: &&[u8]| sector.iter().all(|byte| *byte == sector[0]);
    let distinct: HashSet<&[u8]> = sectors(one).filter(|sector| !is_plain(sector)).collect();
    match one == other {
        false => Piece::Differs,
        true if distinct.len() >= DISTINCT => Piece::Same,
        true => Piece::Plain,
    }
}

fn read(array: &ReadableArray, range: &Range<u64>) -> Option<Vec<u8>> {
    if range.end > array.sectors() {
        return None;
    }
    let mut bytes = vec![0; ((range.end - range.start) * SECTOR_BYTES) as usize];
    array.read(range.start, &mut bytes).is_empty().then_some(bytes)
}

/// Whether old rows that were moved stand as well, up to the position: then nothing was written
/// over those from the position on. Some may differ, as what was written to the array since is in
/// the new place only.
pub(crate) fn old_rows_stand(plan: &MovePlan, old: &ReadableArray, new: &ReadableArray) -> bool {
    let (mut same, mut differing) = (0_u32, 0_u32);
    for (number, row) in (0_u64..).zip(plan.doubled(ROWS)) {
        // Another part of each row, so that all members are looked at.
        let parts = (row.end - row.start).div_ceil(PIECE);
        let start = row.start + number % parts * PIECE;
        let piece = start..row.end.min(start + PIECE);
        let (Some(old), Some(new)) = (read(old, &piece), read(new, &piece)) else { continue };
        match compare(&old, &new) {
            Piece::Same => same += 1,
            Piece::Differs => differing += 1,
            Piece::Plain => {}
        }
    }
    same > 0 && differing * 3 <= same
}

/// What the contents say of a backup of mdadm's that covers the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its last rows are not moved yet: what is behind them stands.
    Stands,
    /// What it has of rows that were moved is not in their new place.
    OtherMoment,
    /// All that it has is moved: more may be.
    AllMoved,
    /// It is the same in both geometries, as zeroes are.
    Nothing,
}

/// Compares a backup with what is in the new place of its rows.
pub(super) fn shown(
    plan: &MovePlan,
    backwards: bool,
    new: &ReadableArray,
    found: &Found,
) -> Result<Shown, ReshapeError> {
    let position = plan.recorded();
    let (mut moved, mut ahead) = (Vec::new(), Vec::new());
    for range in found.ranges() {
        let pieces = (range.end - range.start).div_ceil(PIECE);
        let every = pieces.div_ceil(ROWS as u64).max(1);
        for number in (0..pieces).filter(|number| number % every == 0 || number + 1 == pieces) {
            let start = range.start + number * PIECE;
            let piece = start..range.end.min(start + PIECE);
            let mut copy = vec![0; ((piece.end - piece.start) * SECTOR_BYTES) as usize];
            found.read(&piece, &mut copy)?;
            let Some(there) = read(new, &piece) else { continue };
            let is_moved = match backwards {
                false => piece.end <= position,
                true => piece.start >= position,
            };
            let compared = if is_moved { &mut moved } else { &mut ahead };
            compared.push((piece.start, compare(&copy, &there)));
        }
    }
    let count = |pieces: &[(u64, Piece)], kind| pieces.iter().filter(|it| it.1 == kind).count();
    if count(&moved, Piece::Same) == 0 && count(&moved, Piece::Differs) > 0 {
        return Ok(Shown::OtherMoment);
    }
    let telling = ahead.iter().filter(|(_, piece)| *piece != Piece::Plain);
    let last = match backwards {
        false => telling.max_by_key(|(start, _)| *start),
        true => telling.min_by_key(|(start, _)| *start),
    };
    Ok(match last {
        Some((_, Piece::Differs)) => Shown::Stands,
        Some(_) => Shown::AllMoved,
        None => Shown::Nothing,
    })
}
