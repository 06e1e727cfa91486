//! What every sector of the array may hold, told from outside.
//!
//! A write fills its sectors with a pattern that names it, so any sector read back says who wrote
//! it. Per sector the model keeps the writers that may still be there, in order of submission: a
//! write that is acknowledged rules out all before it; one in flight may or may not be there yet.

use engine::{HostOp, RequestError};
use md::{Geometry, Kind, MemberIdx, Sector};
use parity::{Block, Kernels};

use super::Live;
use super::member::{Member, SECTOR};
use super::rng::mix;

/// The sector's contents after the write with this tag.
pub fn pattern(tag: u64, sector: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    let seed = mix(tag << 32 ^ sector);
    for (at, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match at {
            0 => tag,
            1 => sector,
            _ => seed.wrapping_mul(2 * at as u64 + 1),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// Fills a write's buffer.
pub fn fill(tag: u64, at: u64, bytes: &mut [u8]) {
    for (sector, bytes) in (at..).zip(bytes.chunks_exact_mut(SECTOR)) {
        bytes.copy_from_slice(&pattern(tag, sector));
    }
}

/// A read in flight and what it found possible when it was submitted.
struct Reading {
    tag: u64,
    at: u64,
    /// Per sector, the candidates at submission, and those that were ruled out since.
    before: Vec<Vec<Writer>>,
}

/// Tag, and whether it left zeroes.
type Writer = (u64, bool);

pub struct Model {
    candidates: Vec<Vec<Writer>>,
    readings: Vec<Reading>,
    discard_zeroes: bool,
    /// Errors that requests may end with; anything else panics.
    pub tolerated: Vec<RequestError>,
}

impl Model {
    pub fn new(sectors: u64, discard_zeroes: bool) -> Model {
        Model {
            candidates: vec![vec![(0, true)]; sectors as usize],
            readings: Vec::new(),
            discard_zeroes,
            tolerated: Vec::new(),
        }
    }

    fn range(&mut self, at: u64, sectors: u64) -> &mut [Vec<Writer>] {
        let size = self.candidates.len() as u64;
        let (from, to) = (at.min(size), at.saturating_add(sectors).min(size));
        &mut self.candidates[from as usize..to as usize]
    }

    pub fn submit(&mut self, tag: u64, op: HostOp, at: u64, sectors: u64) {
        match op {
            HostOp::Read => {
                let before = self.range(at, sectors).to_vec();
                self.readings.push(Reading { tag, at, before });
            }
            HostOp::Write { .. } => {
                self.range(at, sectors).iter_mut().for_each(|list| list.push((tag, false)));
            }
            HostOp::Discard if !self.discard_zeroes => {}
            HostOp::WriteZeroes | HostOp::Discard => {
                self.range(at, sectors).iter_mut().for_each(|list| list.push((tag, true)));
            }
            HostOp::Flush | HostOp::Resync => {}
        }
    }

    pub fn complete(&mut self, live: &Live, bytes: &[u8], result: Result<(), RequestError>) {
        if let Err(error) = result {
            let what = (live.op, live.at, live.sectors);
            assert!(self.tolerated.contains(&error), "{what:?} ends with {error:?}");
        }
        match live.op {
            HostOp::Read => {
                let mine = self.readings.iter().position(|reading| reading.tag == live.tag);
                let reading = self.readings.swap_remove(mine.expect("submitted before"));
                if result.is_ok() {
                    self.check_read(live.at, &reading, bytes);
                }
            }
            HostOp::Write { .. } | HostOp::WriteZeroes if result.is_ok() => {
                for sector in live.at..live.at + live.sectors {
                    self.rule_out_before(sector, live.tag);
                }
            }
            // A discard leaves either; a write that failed, too.
            _ => {}
        }
    }

    /// The write with this tag is acknowledged. Reads in flight may still have seen older ones.
    fn rule_out_before(&mut self, sector: u64, tag: u64) {
        let list = &mut self.candidates[sector as usize];
        // Not there any more: a later one was acknowledged first.
        let Some(mine) = list.iter().position(|writer| writer.0 == tag) else { return };
        for old in list.drain(..mine) {
            for reading in &mut self.readings {
                let inside = sector.checked_sub(reading.at);
                if let Some(seen) = inside.and_then(|at| reading.before.get_mut(at as usize)) {
                    seen.push(old);
                }
            }
        }
    }

    fn check_read(&self, at: u64, reading: &Reading, bytes: &[u8]) {
        for (sector, (bytes, before)) in (at..).zip(bytes.chunks_exact(SECTOR).zip(&reading.before))
        {
            let since = &self.candidates[sector as usize];
            let legal = before.iter().chain(since).copied();
            let found = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
            assert!(
                matches(bytes, sector, legal),
                "sector {sector} holds what {found:#x} wrote; legal: {before:?} {since:?}"
            );
        }
    }

    /// This write, and with it everything before, is durable.
    pub fn settle(&mut self, tag: u64, at: u64, sectors: u64) {
        for sector in at..at + sectors {
            self.rule_out_before(sector, tag);
        }
    }

    /// Whether the sector may hold these bytes.
    pub fn allows(&self, sector: u64, bytes: &[u8]) -> bool {
        matches(bytes, sector, self.candidates[sector as usize].iter().copied())
    }

    /// Whether nothing but this one writer can have been the last.
    fn settled(&self, sector: u64) -> Option<Vec<u8>> {
        match self.candidates[sector as usize].as_slice() {
            [(_, true)] => Some(vec![0; SECTOR]),
            [(tag, false)] => Some(pattern(*tag, sector).to_vec()),
            _ => None,
        }
    }

    /// Compares the members with the model: copies alike, data as written, parity true. To be
    /// called when nothing is in flight.
    pub fn check_members(
        &self,
        geometry: &Geometry,
        members: &[Member],
        failed: &dyn Fn(u16) -> bool,
    ) {
        match geometry.kind() {
            Kind::Striped(striped) => {
                for sector in 0..geometry.array_sectors() {
                    let place = striped.locate(Sector(sector));
                    let bytes = members[place.member.index()].view(one(place.sector.0));
                    self.assert_holds(sector, bytes, place.member.0);
                }
            }
            Kind::Mirrored(mirrored) => {
                let mut copies = vec![md::geometry::Copy::default(); mirrored.copies()];
                for sector in 0..geometry.array_sectors() {
                    mirrored.locate(Sector(sector), &mut copies);
                    let mut first: Option<&[u8]> = None;
                    for copy in copies.iter().filter(|copy| !failed(copy.member.0)) {
                        let bytes = members[copy.member.index()].view(one(copy.sector.0));
                        self.assert_holds(sector, bytes, copy.member.0);
                        let alike = first.replace(bytes).is_none_or(|first| first == bytes);
                        assert!(alike, "copies of sector {sector} differ");
                    }
                }
            }
            Kind::Parity(parity) => {
                for stripe in 0..parity.stripes() {
                    for offset in 0..parity.chunk_sectors() {
                        self.check_row(parity, md::StripeNo(stripe), offset, members, failed);
                    }
                }
            }
        }
    }

    fn assert_holds(&self, sector: u64, bytes: &[u8], member: u16) {
        let legal = self.candidates[sector as usize].iter().copied();
        assert!(
            matches(bytes, sector, legal),
            "sector {sector} on member {member} holds the wrong bytes; legal: {:?}",
            self.candidates[sector as usize]
        );
    }

    fn check_row(
        &self,
        parity: &md::Parity,
        stripe: md::StripeNo,
        offset: u64,
        members: &[Member],
        failed: &dyn Fn(u16) -> bool,
    ) {
        let row = parity.row(stripe);
        let place = one(parity.member_sector(stripe, offset).0);
        let view = |member: MemberIdx| members[member.index()].view(place.clone());
        let mut data: Vec<(u8, Vec<u8>)> = Vec::new();
        for index in &row.by_exponent {
            let member = row.data[usize::from(*index)];
            let sector = parity.array_sector(stripe, *index, offset).0;
            let bytes = if failed(member.0) {
                // What it would hold; unknown where the model allows several.
                let Some(bytes) = self.settled(sector) else { return };
                bytes
            } else {
                self.assert_holds(sector, view(member), member.0);
                view(member).to_vec()
            };
            data.push((row.exponent[usize::from(*index)], bytes));
        }
        let blocks: Vec<Block<'_>> =
            data.iter().map(|(exponent, bytes)| Block { exponent: *exponent, bytes }).collect();
        let (mut p, mut q) = ([0; SECTOR], [0; SECTOR]);
        Kernels::best().pq_gen(&mut p, &mut q, &blocks);
        let right = failed(row.p.0) || view(row.p) == p;
        assert!(right, "P of row {stripe:?} at sector {offset} is not the sum of its data");
        let right = row.q.is_none_or(|member| failed(member.0) || view(member) == q);
        assert!(right, "Q of row {stripe:?} at sector {offset} is not the sum of its data");
    }
}

fn one(sector: u64) -> std::ops::Range<u64> {
    sector..sector + 1
}

fn matches(bytes: &[u8], sector: u64, mut legal: impl Iterator<Item = Writer>) -> bool {
    let tag = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    if tag == 0 {
        let zero = bytes.iter().all(|byte| *byte == 0);
        return zero && legal.any(|(_, zero)| zero);
    }
    let named = legal.any(|writer| writer == (tag, false));
    named && bytes == pattern(tag, sector)
}
