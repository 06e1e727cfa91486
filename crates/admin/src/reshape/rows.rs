//! Reads array sectors in the old geometry, and writes them in the new one with their redundancy.
//!
//! Invariant: whole rows are written, on every member that is there; a member that is not in sync
//! in the old geometry is not read. Called by `run`.

use std::ops::Range;
use std::sync::Arc;

use host::Disk;
use md::geometry::{Copy, Generation};
use md::reshape::{Participant, Subject};
use md::{Geometry, Kind, Parity, SECTOR_BYTES, Sector, StripeNo};
use parity::{Block, Kernels};

use super::types::ReshapeError;
use crate::rescue::{Part, ReadableArray, Source};

/// The old geometry, readable, of the members that are in sync in it.
pub(super) fn old_array(
    subject: &Subject,
    disks: &[Arc<dyn Disk>],
    kernels: Kernels,
) -> ReadableArray {
    readable(subject, Generation::Old, disks, kernels)
}

/// The new geometry, readable as far as it was moved.
pub(super) fn new_array(
    subject: &Subject,
    disks: &[Arc<dyn Disk>],
    kernels: Kernels,
) -> ReadableArray {
    readable(subject, Generation::New, disks, kernels)
}

fn readable(
    subject: &Subject,
    generation: Generation,
    disks: &[Arc<dyn Disk>],
    kernels: Kernels,
) -> ReadableArray {
    let geometry = subject.reshaping.geometry(generation).clone();
    let is_new = generation == Generation::New;
    let slots = subject.slots.iter().take(geometry.members()).map(|member| {
        let there = member.iter().filter(|member| member.is_whole || is_new && member.follows);
        let start = |it: &Participant| if is_new { it.starts.new } else { it.starts.old };
        there.map(|it| Source::whole(disks[it.candidate].clone(), start(it))).collect()
    });
    let slots = slots.collect();
    let array = 0..geometry.array_sectors();
    ReadableArray::new(vec![Part { array, geometry, slots }], kernels)
}

/// Writes array sectors in the new geometry. `bytes` begins at the first of them.
pub(super) fn write_new(
    subject: &Subject,
    disks: &[Arc<dyn Disk>],
    kernels: Kernels,
    range: &Range<u64>,
    bytes: &[u8],
) -> Result<(), ReshapeError> {
    let geometry = subject.reshaping.geometry(Generation::New);
    let write = |slot: usize, sector: u64, bytes: &[u8]| {
        let Some(member) = &subject.slots[slot] else { return Ok(()) };
        let disk = &disks[member.candidate];
        disk.write(member.starts.new + sector, bytes).map_err(|source| ReshapeError::System {
            name: disk.name(),
            doing: "write to it",
            source,
        })
    };
    match geometry.kind() {
        Kind::Parity(parity) => {
            let (first, columns) = columns(parity, geometry, kernels, range, bytes);
            for (slot, column) in columns.iter().enumerate() {
                write(slot, first, column)?;
            }
            Ok(())
        }
        Kind::Mirrored(mirrored) => {
            let mut copies = vec![Copy::default(); mirrored.copies()];
            let mut at = range.start;
            while at < range.end {
                let run = mirrored.locate(Sector(at), &mut copies).min(range.end - at);
                let from = ((at - range.start) * SECTOR_BYTES) as usize;
                let bytes = &bytes[from..from + (run * SECTOR_BYTES) as usize];
                for copy in &copies {
                    write(copy.member.index(), copy.sector.0, bytes)?;
                }
                at += run;
            }
            Ok(())
        }
        Kind::Striped(_) => unreachable!("no reshape of md's"),
    }
}

/// The contents of each slot for whole rows, and the member sector at which they begin.
fn columns(
    parity: &Parity,
    geometry: &Geometry,
    kernels: Kernels,
    range: &Range<u64>,
    bytes: &[u8],
) -> (u64, Vec<Vec<u8>>) {
    let chunk = (parity.chunk_sectors() * SECTOR_BYTES) as usize;
    let wide = parity.data_disks();
    let row_sectors = parity.chunk_sectors() * wide as u64;
    assert!(range.start.is_multiple_of(row_sectors) && range.end.is_multiple_of(row_sectors));
    let rows = range.start / row_sectors..range.end / row_sectors;
    let count = (rows.end - rows.start) as usize;
    let mut columns = vec![vec![0; count * chunk]; geometry.members()];
    let (mut p, mut q) = (vec![0; chunk], vec![0; chunk]);
    for (number, data) in bytes.chunks_exact(chunk * wide).enumerate() {
        let row = parity.row(StripeNo(rows.start + number as u64));
        let place = number * chunk..(number + 1) * chunk;
        let data: Vec<&[u8]> = data.chunks_exact(chunk).collect();
        for (member, data) in row.data.iter().zip(&data) {
            columns[member.index()][place.clone()].copy_from_slice(data);
        }
        if let Some(member) = row.q {
            let blocks = row.by_exponent.iter().map(|index| usize::from(*index));
            let blocks: Vec<Block<'_>> = blocks
                .map(|index| Block { exponent: row.exponent[index], bytes: data[index] })
                .collect();
            kernels.pq_gen(&mut p, &mut q, &blocks);
            columns[member.index()][place.clone()].copy_from_slice(&q);
        } else {
            kernels.xor_gen(&mut p, &data);
        }
        columns[row.p.index()][place].copy_from_slice(&p);
    }
    (rows.start * parity.chunk_sectors(), columns)
}
