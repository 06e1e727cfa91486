//! Model of the contents that every sector of the array may have.
//!
//! A write fills its sectors with a pattern that names it, so any sector read back identifies its
//! write. Per sector the model keeps the writers that may still be there, in order of submission: a
//! write that is acknowledged rules out all before it; one in flight may or may not be there yet.

use std::ops::Range;

use engine::{HostOp, RequestError};
use md::{Geometry, Kind, MemberIdx, Sector};
use parity::{Block, Kernels};
use testkit::mix;

use crate::member::{Member, SECTOR};
use crate::request::LiveRequest;

/// The sector's contents after the write with this tag.
pub fn pattern(tag: u64, sector: u64) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    for (word, value) in bytes.chunks_exact_mut(8).zip(words(tag, sector)) {
        word.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

/// The words of [`pattern`].
fn words(tag: u64, sector: u64) -> impl Iterator<Item = u64> {
    let seed = mix(tag << 32 ^ sector);
    let rest = (2..SECTOR as u64 / 8).map(move |at| seed.wrapping_mul(2 * at + 1));
    [tag, sector].into_iter().chain(rest)
}

/// Fills a write's buffer.
pub fn fill(tag: u64, at: u64, bytes: &mut [u8]) {
    for (sector, bytes) in (at..).zip(bytes.chunks_exact_mut(SECTOR)) {
        bytes.copy_from_slice(&pattern(tag, sector));
    }
}

/// A read in flight and what it found possible when it was submitted.
#[derive(Clone)]
struct Reading {
    tag: u64,
    at: u64,
    /// Per sector, the candidates at submission, and those that were ruled out since.
    before: Vec<Vec<Writer>>,
    /// Some of it may have been lost since it was submitted.
    may_fail: bool,
}

/// A write in flight.
#[derive(Clone)]
struct Writing {
    tag: u64,
    stake: Range<u64>,
    /// What other writes that failed in the meantime had at stake: they may have come later to a
    /// row than this one.
    spoiled: Vec<Range<u64>>,
}

/// Tag, and whether it left zeroes.
type Writer = (u64, bool);

/// What every sector may hold; see the module documentation.
#[derive(Clone)]
pub struct Model {
    candidates: Vec<Vec<Writer>>,
    readings: Vec<Reading>,
    discard_zeroes: bool,
    /// Errors that requests may end with; anything else panics.
    pub tolerated: Vec<RequestError>,
    /// By sector, where the test keeps account of it: whether its contents may be known as lost, so
    /// that a read may end with an error and must not end with anything else that is wrong.
    pub may_be_lost: Option<Vec<bool>>,
    /// A write that fails may cost all blocks of the rows that it touches, by their width in
    /// sectors; `None`: only what it covers itself.
    pub rows_at_stake: Option<u64>,
    /// All blocks of all members can be read.
    pub is_whole: bool,
    /// A member breaks promises: reads may return anything.
    pub is_unchecked: bool,
    writes: Vec<Writing>,
}

/// A writer that stands for whatever the disks held before.
pub const ANYTHING: Writer = (u64::MAX, false);

impl Model {
    /// Of an array that is all zeroes. `discard_zeroes`: discarded sectors may be.
    pub fn new(sectors: u64, discard_zeroes: bool) -> Model {
        Model {
            candidates: vec![vec![(0, true)]; sectors as usize],
            readings: Vec::new(),
            discard_zeroes,
            tolerated: Vec::new(),
            may_be_lost: None,
            rows_at_stake: None,
            is_whole: true,
            is_unchecked: false,
            writes: Vec::new(),
        }
    }

    /// What members may hold after a power cut, as what the next life begins with.
    pub fn next_life(&self, discard_zeroes: bool) -> Model {
        Model {
            candidates: self.candidates.clone(),
            tolerated: self.tolerated.clone(),
            ..Model::new(0, discard_zeroes)
        }
    }

    /// The disks held something before: until they are written, all sectors may hold anything.
    pub fn begin_with_anything(&mut self) {
        self.candidates.iter_mut().for_each(|list| list.push(ANYTHING));
    }

    /// A sector may hold anything until it is written.
    pub fn may_hold_anything(&mut self, sector: u64) {
        self.candidates[sector as usize].push(ANYTHING);
    }

    /// Rules out all contents of a sector but those that were found.
    pub fn narrow(&mut self, sector: u64, found: &[&[u8]]) {
        let list = &mut self.candidates[sector as usize];
        if list.len() > 1 && !list.contains(&ANYTHING) {
            let is_found = |writer: &Writer| {
                found.iter().any(|bytes| matches(bytes, sector, std::iter::once(*writer)))
            };
            list.retain(is_found);
            assert!(!list.is_empty(), "sector {sector} holds nothing that it may hold");
        }
    }

    /// Whether some sectors may hold anything.
    pub fn allows_anything(&self) -> bool {
        self.candidates.iter().any(|list| list.contains(&ANYTHING))
    }

    /// What a write of this range may cost when it fails.
    fn stake(&self, at: u64, sectors: u64) -> Range<u64> {
        let (from, to) = (at, at.saturating_add(sectors));
        let (from, to) = match self.rows_at_stake {
            Some(row) => (from / row * row, to.next_multiple_of(row)),
            None => (from, to),
        };
        let size = self.candidates.len() as u64;
        from.min(size)..to.min(size)
    }

    /// A write has ended: when it failed, what it put at stake may be lost.
    fn write_done(&mut self, live: &LiveRequest, failed: bool) {
        let mine = self.writes.iter().position(|write| write.tag == live.tag);
        let spoiled = mine.map(|mine| self.writes.swap_remove(mine).spoiled).unwrap_or_default();
        let range = match failed {
            true => self.stake(live.at, live.sectors),
            false => live.at..live.at + live.sectors,
        };
        let Some(lost) = &mut self.may_be_lost else { return };
        // What is written beside a lost block of a row that is not in sync has no parity, and may
        // be lost with its member.
        if failed || self.is_whole || self.rows_at_stake.is_none() {
            lost[range.start as usize..range.end as usize].fill(failed);
        }
        for other in spoiled {
            let (from, to) = (other.start.max(range.start), other.end.min(range.end));
            lost[from as usize..to.max(from) as usize].fill(true);
        }
        for other in self.writes.iter_mut().filter(|_| failed) {
            other.spoiled.push(range.clone());
        }
        for reading in self.readings.iter_mut().filter(|_| failed) {
            let end = reading.at + reading.before.len() as u64;
            reading.may_fail |= reading.at < range.end && range.start < end;
        }
    }

    fn may_fail(&self, reading: &Reading) -> bool {
        let Some(lost) = &self.may_be_lost else { return true };
        let range = reading.at..reading.at + reading.before.len() as u64;
        let overlaps =
            |write: &Writing| write.stake.start < range.end && range.start < write.stake.end;
        reading.may_fail
            || lost[range.start as usize..range.end as usize].contains(&true)
            || self.writes.iter().any(overlaps)
    }

    fn range(&mut self, at: u64, sectors: u64) -> &mut [Vec<Writer>] {
        let size = self.candidates.len() as u64;
        let (from, to) = (at.min(size), at.saturating_add(sectors).min(size));
        &mut self.candidates[from as usize..to as usize]
    }

    /// A request begins.
    pub fn submit(&mut self, tag: u64, op: HostOp, at: u64, sectors: u64) {
        let is_plain_write =
            matches!(op, HostOp::Write { .. } | HostOp::WriteZeroes | HostOp::Discard);
        if is_plain_write {
            let stake = self.stake(at, sectors);
            self.writes.push(Writing { tag, stake, spoiled: Vec::new() });
        }
        match op {
            HostOp::Read => {
                let before = self.range(at, sectors).to_vec();
                let mut reading = Reading { tag, at, before, may_fail: false };
                reading.may_fail = self.may_fail(&reading);
                self.readings.push(reading);
            }
            HostOp::Write { .. } => {
                self.range(at, sectors).iter_mut().for_each(|list| list.push((tag, false)));
            }
            HostOp::Discard if !self.discard_zeroes => {}
            HostOp::WriteZeroes | HostOp::Discard => {
                self.range(at, sectors).iter_mut().for_each(|list| list.push((tag, true)));
            }
            HostOp::Flush | HostOp::Resync | HostOp::Rebuild | HostOp::Scrub(_) => {}
        }
    }

    /// A request has ended; `bytes`: what a read has returned.
    ///
    /// # Panics
    /// When it must not end so.
    pub fn complete(&mut self, live: &LiveRequest, bytes: &[u8], result: Result<(), RequestError>) {
        if let Err(error) = result {
            let what = (live.op, live.at, live.sectors);
            // Nothing is compared, or recovered, where redundancy is missing or out of sync.
            let is_scrub = matches!(live.op, HostOp::Scrub(_) | HostOp::Rebuild)
                && matches!(error, RequestError::Io | RequestError::ReadOnly);
            assert!(is_scrub || self.tolerated.contains(&error), "{what:?} ends with {error:?}");
        }
        match live.op {
            HostOp::Write { .. } | HostOp::WriteZeroes => self.write_done(live, result.is_err()),
            HostOp::Discard if result.is_err() => self.write_done(live, true),
            HostOp::Discard => self.writes.retain(|write| write.tag != live.tag),
            _ => {}
        }
        match live.op {
            HostOp::Read => {
                let mine = self.readings.iter().position(|reading| reading.tag == live.tag);
                let reading = self.readings.swap_remove(mine.expect("submitted before"));
                match result {
                    Ok(()) => self.check_read(live.at, &reading, bytes),
                    Err(error) => {
                        let range = reading.at..reading.at + live.sectors;
                        let may = self.may_fail(&reading);
                        assert!(may, "{range:?} ends with {error:?}, and nothing of it is lost");
                    }
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
        if self.is_unchecked {
            return;
        }
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

    /// Sectors that are not settled.
    pub fn unsettled(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.candidates.len() as u64).filter(|at| !self.is_settled(*at))
    }

    /// Whether only one writer can have been the last, so that no write is in flight.
    pub fn is_settled(&self, sector: u64) -> bool {
        let list = &self.candidates[sector as usize];
        list.len() == 1 && !list.contains(&ANYTHING)
    }

    /// Whether the sector may hold these bytes.
    pub fn allows(&self, sector: u64, bytes: &[u8]) -> bool {
        matches(bytes, sector, self.candidates[sector as usize].iter().copied())
    }

    /// What it holds, and what it may hold.
    pub fn describe(&self, sector: u64, bytes: &[u8]) -> String {
        let found = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        format!("it holds {found:#x}, legal: {:?}", self.candidates[sector as usize])
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

/// This is where the simulator spends its time: words are compared as they are made.
fn matches(bytes: &[u8], sector: u64, mut legal: impl Iterator<Item = Writer>) -> bool {
    let mut found =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let tag = found.clone().next().expect("a sector has words");
    let zero = tag == 0 && bytes == [0; SECTOR];
    let named = tag != 0 && words(tag, sector).all(|word| found.next() == Some(word));
    legal.any(|writer| writer == ANYTHING || zero && writer.1 || named && writer == (tag, false))
}
