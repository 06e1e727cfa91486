//! Verifies the redundancy against the data that are read, and says which block is wrong where that
//! is proven.
//!
//! Invariant: only data that members really hold are compared: no data recovered from the same
//! redundancy, and no ranges where redundancy was never generated. The bytes that are served are
//! unchanged, but for blocks that are proven wrong, if the caller requested that. Called from
//! `readable_array` and `rows`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use md::{Row, SECTOR_BYTES};
use parity::{Block, Kernels, Verdict};
use serde::Serialize;

use super::ranges::{Ranges, add_range};
use super::slot_reader::{Source, serving};
use crate::fields::{as_area, as_areas};

/// Resolution of the comparison: 4 KiB. What is wrong is sought by the sector.
const GRANULE_SECTORS: u64 = 8;

const SECTOR: usize = SECTOR_BYTES as usize;

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Array sectors whose redundancy was compared.
    #[serde(rename = "compared_sectors")]
    pub sectors: u64,
    /// Array sectors that differ from their redundancy: sorted and disjoint. One of the members
    /// that hold the data or the redundancy is wrong.
    #[serde(serialize_with = "as_areas")]
    pub differing: Vec<Range<u64>>,
    /// Number of further ranges that are not in the list.
    #[serde(rename = "differing_more")]
    pub more: u64,
    /// Blocks of members that are proven wrong.
    pub wrong: Vec<Blamed>,
    /// Number of further ranges that are not in that list.
    pub wrong_more: u64,
    /// Zeroes of members that their redundancy contradicts: what a copy of a disk has where the
    /// disk could not be read.
    #[serde(rename = "looks_unread")]
    pub zeroes: Vec<ZeroRange>,
    /// Array sectors that are served as their redundancy says, instead of a wrong block.
    pub corrected_sectors: u64,
}

/// A range of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Blamed {
    /// The member, as it was named.
    pub member: String,
    /// What it holds there.
    pub kind: BlockKind,
    /// Sectors of the member.
    #[serde(flatten, serialize_with = "as_area")]
    pub sectors: Range<u64>,
}

/// Zeroes of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZeroRange {
    /// The member, as it was named.
    pub member: String,
    /// Sectors of the member.
    #[serde(flatten, serialize_with = "as_area")]
    pub sectors: Range<u64>,
}

/// What a block is to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockKind {
    /// Data of RAID 4, 5 or 6.
    Data,
    /// The XOR of the data.
    P,
    /// The syndrome of RAID 6.
    Q,
    /// A copy.
    Copy,
}

/// Ranges by member and kind of block.
type ByMember = BTreeMap<(String, BlockKind), Ranges>;

#[derive(Default)]
struct Found {
    sectors: u64,
    differing: Ranges,
    wrong: ByMember,
    /// By member.
    zeroes: BTreeMap<String, Ranges>,
    corrected: u64,
}

/// Compares while the array is read.
pub(super) struct Comparison {
    /// Redundancy is valid below this sector: of each member for parity levels, else of the array.
    below: u64,
    kernels: Kernels,
    /// Whether blocks that are proven wrong are not served.
    pub(super) corrects: bool,
    found: Mutex<Found>,
    /// Ranges that differ and were not taken; `None`: they are not kept.
    fresh: Mutex<Option<Vec<Range<u64>>>>,
}

/// A block of a row as it is compared: what its slot holds from `sector` of the data area on.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) bytes: &'a [u8],
    /// Whether it was read from its member.
    pub(super) is_read: bool,
    pub(super) sources: &'a [Source],
    pub(super) sector: u64,
}

impl Held<'_> {
    fn sector_bytes(&self, sector: u64) -> &[u8] {
        &self.bytes[sector as usize * SECTOR..][..SECTOR]
    }
}

/// A run of a row of a parity level.
pub(super) struct RowRun<'a> {
    pub(super) row: &'a Row,
    /// By data index.
    pub(super) data: Vec<Held<'a>>,
    pub(super) p: Option<Held<'a>>,
    pub(super) q: Option<Held<'a>>,
    /// The data indices that are served, with the array sector of each.
    pub(super) served: Vec<(usize, u64)>,
    /// Blocks that may be missing.
    pub(super) tolerates: usize,
}

/// A sector that is served instead of a wrong one: of the data index or the copy, the sector of the
/// run, and its bytes.
pub(super) struct Correction {
    pub(super) index: usize,
    pub(super) sector: u64,
    pub(super) bytes: Vec<u8>,
}

impl Comparison {
    pub(super) fn new(below: u64, kernels: Kernels) -> Comparison {
        Comparison {
            below,
            kernels,
            corrects: false,
            found: Mutex::default(),
            fresh: Mutex::default(),
        }
    }

    pub(super) fn track(&mut self) {
        *self.fresh.get_mut().expect("the list lock is not poisoned") = Some(Vec::new());
    }

    pub(super) fn take_differing(&self) -> Vec<Range<u64>> {
        let mut fresh = self.fresh.lock().expect("the list lock is not poisoned");
        fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How many of `sectors` from `sector` on have valid redundancy.
    pub(super) fn covered(&self, sector: u64, sectors: u64) -> u64 {
        self.below.saturating_sub(sector).min(sectors)
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        *self.found.lock().expect("the list lock is not poisoned") = Default::default();
        self.take_differing();
    }

    /// The result so far.
    pub(super) fn get(&self) -> Compared {
        let found = self.found.lock().expect("the list lock is not poisoned");
        let wrong = found.wrong.iter().flat_map(|((member, kind), ranges)| {
            let blamed = |sectors: &Range<u64>| Blamed {
                member: member.clone(),
                kind: *kind,
                sectors: sectors.clone(),
            };
            ranges.list.iter().map(blamed)
        });
        let zeroes = found.zeroes.iter().flat_map(|(member, ranges)| {
            let range = |sectors: &Range<u64>| ZeroRange {
                member: member.clone(),
                sectors: sectors.clone(),
            };
            ranges.list.iter().map(range)
        });
        Compared {
            sectors: found.sectors,
            differing: found.differing.list.clone(),
            more: found.differing.more,
            wrong: wrong.collect(),
            wrong_more: found.wrong.values().map(|ranges| ranges.more).sum(),
            zeroes: zeroes.collect(),
            corrected_sectors: found.corrected,
        }
    }

    /// Compares the copies of the array's sectors from `at` on, each with the sectors that it does
    /// not have; the first one that has a sector is served. Returns what is to be served instead,
    /// by the place of the copy that has it.
    pub(super) fn copies(
        &self,
        at: u64,
        copies: &[(Held<'_>, Vec<Range<u64>>)],
        sectors: u64,
    ) -> Vec<Correction> {
        let mut found = Found::default();
        let mut corrections = Vec::new();
        let has = |copy: &(Held<'_>, Vec<Range<u64>>), sector: u64| {
            let at = copy.1.partition_point(|lost| lost.end <= sector);
            copy.1.get(at).is_none_or(|lost| sector < lost.start)
        };
        let mut granule = 0;
        while granule < sectors {
            let end = (granule + GRANULE_SECTORS).min(sectors);
            let bytes = granule as usize * SECTOR..end as usize * SECTOR;
            let is_whole = copies.iter().all(|(_, lost)| lost.is_empty());
            let first = &copies[0].0.bytes[bytes.clone()];
            let agree =
                |(copy, _): &(Held<'_>, _)| self.kernels.equal(first, &copy.bytes[bytes.clone()]);
            if is_whole && copies[1..].iter().all(agree) {
                found.sectors += (end - granule) * (copies.len() as u64 - 1);
                granule = end;
                continue;
            }
            let mut differs = false;
            for sector in granule..end {
                let there: Vec<usize> =
                    (0..copies.len()).filter(|copy| has(&copies[*copy], sector)).collect();
                found.sectors += (there.len() as u64).saturating_sub(1);
                differs |=
                    self.copies_of_sector(copies, sector, &there, &mut found, &mut corrections);
            }
            if differs {
                found.differing.insert_all(at + granule..at + end);
            }
            granule = end;
        }
        self.note(found);
        corrections
    }

    /// Whether they differ, which are wrong, and what is to be served.
    fn copies_of_sector(
        &self,
        copies: &[(Held<'_>, Vec<Range<u64>>)],
        sector: u64,
        there: &[usize],
        found: &mut Found,
        corrections: &mut Vec<Correction>,
    ) -> bool {
        let bytes = |copy: usize| copies[copy].0.sector_bytes(sector);
        let Some(&first) = there.first() else { return false };
        if there.iter().all(|copy| bytes(*copy) == bytes(first)) {
            return false;
        }
        let votes = |copy: usize| there.iter().filter(|it| bytes(**it) == bytes(copy)).count();
        let most = there.iter().copied().find(|copy| votes(*copy) * 2 > there.len());
        let is_zero = |copy: &&usize| self.kernels.is_zero(bytes(**copy));
        match most {
            Some(right) => {
                for &copy in there.iter().filter(|copy| bytes(**copy) != bytes(right)) {
                    found.note_wrong(&copies[copy].0, BlockKind::Copy, sector);
                    if is_zero(&&copy) {
                        found.note_zeroes(&copies[copy].0, sector);
                    }
                }
                if self.corrects && bytes(first) != bytes(right) {
                    found.corrected += 1;
                    let bytes = bytes(right).to_vec();
                    corrections.push(Correction { index: right, sector, bytes });
                }
            }
            // They differ, so that not all of them are zero.
            None => there.iter().filter(is_zero).for_each(|copy| {
                found.note_zeroes(&copies[*copy].0, sector);
            }),
        }
        true
    }

    /// Compares the data blocks of a run of a row with the parities that are available. Returns
    /// what is to be served instead of data that are proven wrong.
    pub(super) fn row(&self, run: &RowRun<'_>) -> Vec<Correction> {
        let bytes = run.data.first().map_or(0, |block| block.bytes.len());
        let mut differing = Ranges::default();
        let mut made = vec![0; bytes];
        if let Some(p) = run.p {
            let data: Vec<&[u8]> = run.data.iter().map(|block| block.bytes).collect();
            self.kernels.xor_gen(&mut made, &data);
            self.differing(&made, p.bytes)
                .into_iter()
                .for_each(|range| differing.insert_all(range));
        }
        if let Some(q) = run.q {
            self.kernels.q_gen(&mut made, &run.blocks(0..bytes));
            self.differing(&made, q.bytes)
                .into_iter()
                .for_each(|range| differing.insert_all(range));
        }
        let mut found = Found::default();
        let mut corrections = Vec::new();
        found.sectors = bytes as u64 / SECTOR_BYTES * run.served.len() as u64;
        for range in &differing.list {
            for (_, start) in &run.served {
                found.differing.insert_all(start + range.start..start + range.end);
            }
            for sector in range.clone() {
                corrections.extend(self.sector_of_row(run, sector, &mut found));
            }
        }
        self.note(found);
        corrections
    }

    /// What is wrong in a sector of a run, and what is to be served of it.
    fn sector_of_row(
        &self,
        run: &RowRun<'_>,
        sector: u64,
        found: &mut Found,
    ) -> Option<Correction> {
        let bytes = sector as usize * SECTOR..(sector as usize + 1) * SECTOR;
        let blocks = run.blocks(bytes.clone());
        // A block that was recovered proves nothing.
        let all_read = run.data.iter().all(|block| block.is_read);
        let verdict = match (run.p, run.q) {
            (Some(p), Some(q)) if all_read => {
                self.kernels.check(&blocks, &p.bytes[bytes.clone()], &q.bytes[bytes])
            }
            _ if self.agrees(run, sector, &blocks) => Verdict::Agree,
            _ => Verdict::Unexplained,
        };
        // Two data blocks of zeroes where they were equal look like a wrong Q: holes of two copies.
        let is_zero = |block: &&Held<'_>| self.kernels.is_zero(block.sector_bytes(sector));
        let verdict = match verdict {
            Verdict::PDiffers | Verdict::QDiffers
                if run.data.iter().filter(is_zero).count() > 1 =>
            {
                Verdict::Unexplained
            }
            verdict => verdict,
        };
        let wrong = match verdict {
            Verdict::Agree => return None,
            Verdict::PDiffers => run.p.map(|p| (p, BlockKind::P)),
            Verdict::QDiffers => run.q.map(|q| (q, BlockKind::Q)),
            Verdict::Data { index } => {
                Some((run.data[usize::from(run.row.by_exponent[index])], BlockKind::Data))
            }
            Verdict::Unexplained => None,
        };
        let Some((block, kind)) = wrong else {
            self.zeroes_of_row(run, sector, found);
            return None;
        };
        found.note_wrong(&block, kind, sector);
        if self.kernels.is_zero(block.sector_bytes(sector)) {
            found.note_zeroes(&block, sector);
        }
        let Verdict::Data { index } = verdict else { return None };
        let index = usize::from(run.row.by_exponent[index]);
        if !self.corrects || !run.served.iter().any(|(served, _)| *served == index) {
            return None;
        }
        let others = run.data.iter().enumerate().filter(|(other, _)| *other != index);
        let others: Vec<&[u8]> = others.map(|(_, block)| block.sector_bytes(sector)).collect();
        let mut right = vec![0; SECTOR];
        // Q says the same, or this block would not explain both.
        self.kernels.recover_d_p(&mut right, &others, run.p?.sector_bytes(sector));
        found.corrected += 1;
        Some(Correction { index, sector, bytes: right })
    }

    /// Whether a sector agrees with what is there of its parity.
    fn agrees(&self, run: &RowRun<'_>, sector: u64, blocks: &[Block<'_>]) -> bool {
        let mut made = vec![0; SECTOR];
        let p = run.p.is_none_or(|p| {
            let data: Vec<&[u8]> = blocks.iter().map(|block| block.bytes).collect();
            self.kernels.xor_gen(&mut made, &data);
            made == p.sector_bytes(sector)
        });
        p && run.q.is_none_or(|q| {
            self.kernels.q_gen(&mut made, blocks);
            made == q.sector_bytes(sector)
        })
    }

    /// Notes the members of a row whose blocks are zeroes, if they are not more than may be
    /// missing: then the others say something else; where more are zero nothing can be said.
    fn zeroes_of_row(&self, run: &RowRun<'_>, sector: u64, found: &mut Found) {
        let all = run.data.iter().copied().chain(run.p).chain(run.q);
        let is_zero =
            |block: &Held<'_>| block.is_read && self.kernels.is_zero(block.sector_bytes(sector));
        let zero: Vec<Held<'_>> = all.filter(is_zero).collect();
        if zero.len() <= run.tolerates {
            zero.iter().for_each(|block| found.note_zeroes(block, sector));
        }
    }

    /// Sectors that differ, in granules.
    fn differing(&self, one: &[u8], other: &[u8]) -> Vec<Range<u64>> {
        if self.kernels.equal(one, other) {
            return Vec::new();
        }
        let granule = (GRANULE_SECTORS * SECTOR_BYTES) as usize;
        let mut ranges = Vec::new();
        let pairs = one.chunks(granule).zip(other.chunks(granule));
        for (at, (one, other)) in pairs.enumerate().filter(|(_, (one, other))| one != other) {
            let (start, sectors) =
                (at as u64 * GRANULE_SECTORS, one.len().max(other.len()) as u64 / SECTOR_BYTES);
            add_range(&mut ranges, start..start + sectors);
        }
        ranges
    }

    fn note(&self, found: Found) {
        if let Some(fresh) = &mut *self.fresh.lock().expect("the list lock is not poisoned") {
            fresh.extend(found.differing.list.iter().cloned());
        }
        let all = &mut *self.found.lock().expect("the list lock is not poisoned");
        all.sectors += found.sectors;
        all.corrected += found.corrected;
        all.differing.add(found.differing);
        for (key, ranges) in found.wrong {
            all.wrong.entry(key).or_default().add(ranges);
        }
        for (member, ranges) in found.zeroes {
            all.zeroes.entry(member).or_default().add(ranges);
        }
    }
}

impl RowRun<'_> {
    /// The data blocks, ascending by exponent.
    fn blocks(&self, bytes: Range<usize>) -> Vec<Block<'_>> {
        let indices = self.row.by_exponent.iter().map(|index| usize::from(*index));
        let block = |index: usize| Block {
            exponent: self.row.exponent[index],
            bytes: &self.data[index].bytes[bytes.clone()],
        };
        indices.map(block).collect()
    }
}

/// The member that a sector of a block was read from, and its sector.
fn place(block: &Held<'_>, sector: u64) -> Option<(String, Range<u64>)> {
    let sector = block.sector + sector;
    let source = serving(block.sources, sector)?;
    let at = source.data_offset + sector;
    Some((source.disk.name(), at..at + 1))
}

impl Found {
    fn note_wrong(&mut self, block: &Held<'_>, kind: BlockKind, sector: u64) {
        if let Some((member, range)) = place(block, sector) {
            self.wrong.entry((member, kind)).or_default().insert(range);
        }
    }

    fn note_zeroes(&mut self, block: &Held<'_>, sector: u64) {
        if let Some((member, range)) = place(block, sector) {
            self.zeroes.entry(member).or_default().insert(range);
        }
    }
}
