//! An array as it can be read: the geometry of each range, and the members of each slot. It may be
//! damaged or degraded, and nothing is written to it.

use std::ops::Range;

use md::geometry::Copy;
use md::{Kind, SECTOR_BYTES, Sector};
use parity::Kernels;

use super::compare::{Compared, Comparison, Held};
use super::log_overlay::Patches;
use super::out_of_date::{OutOfDate, OutOfDateRange, OutOfDateSource};
use super::part::Part;
use super::ranges::{add_range, intersection, without_all};
use super::rows;
use super::slot_reader::{self, Failure, Failures};

/// A readable array; see the module documentation.
pub struct ReadableArray {
    parts: Vec<Part>,
    /// Array sectors whose newest contents are on no member.
    newest: Patches,
    kernels: Kernels,
    failures: Failures,
    comparison: Option<Comparison>,
    out_of_date: Option<OutOfDate>,
}

impl ReadableArray {
    /// Makes an array of parts, which are contiguous from sector 0 on.
    ///
    /// # Panics
    /// When they are not, when a part's geometry has fewer sectors than the part needs, or when the
    /// number of slots differs.
    pub fn new(parts: Vec<Part>, kernels: Kernels) -> ReadableArray {
        let mut at = 0;
        for part in &parts {
            assert_eq!(part.array.start, at, "parts follow each other");
            assert!(part.array.end <= part.geometry.array_sectors(), "a part is in its geometry");
            assert_eq!(part.slots.len(), part.geometry.members(), "every slot is given");
            at = part.array.end;
        }
        let (newest, failures) = (Patches::new(), Failures::default());
        let (comparison, out_of_date) = (None, None);
        ReadableArray { parts, newest, kernels, failures, comparison, out_of_date }
    }

    /// Adds members that are out of date, of each part: what they could serve of what is lost is
    /// noted.
    pub fn with_out_of_date(self, sources: Vec<Vec<OutOfDateSource>>) -> ReadableArray {
        let is_there = sources.iter().any(|sources| !sources.is_empty());
        let out_of_date = is_there.then(|| OutOfDate::new(&self.parts, &sources));
        ReadableArray { out_of_date, ..self }
    }

    /// Serves from members that are out of date what nothing else has.
    pub fn with_stale_ranges(mut self) -> ReadableArray {
        if let Some(members) = &mut self.out_of_date {
            members.may_serve = true;
        }
        self
    }

    /// Whether members that are out of date serve what nothing else has.
    pub fn may_be_stale(&self) -> bool {
        self.out_of_date.as_ref().is_some_and(|it| it.may_serve)
    }

    /// What members that are out of date have served so far, or could have, if they may not.
    pub fn out_of_date(&self) -> Vec<OutOfDateRange> {
        self.out_of_date.as_ref().map(OutOfDate::found).unwrap_or_default()
    }

    /// The ranges that they have served since the last call: array sectors, in no order.
    pub fn take_stale(&self) -> Vec<Range<u64>> {
        self.out_of_date.as_ref().map(OutOfDate::take_fresh).unwrap_or_default()
    }

    /// Adds sectors that only a journal has. Neither the members nor the parity contain them: a row
    /// is recovered in its old state, and these sectors replace it.
    pub(super) fn with_newest(self, newest: Patches) -> ReadableArray {
        ReadableArray { newest, ..self }
    }

    /// Enables comparing the redundancy while reading: copies with each other, data with parity. It
    /// is valid below sector `below`, of each member for parity levels, else of the array;
    /// `u64::MAX`: everywhere. All members are read then.
    pub fn compared(self, below: u64) -> ReadableArray {
        let comparison = Some(Comparison::new(below, self.kernels));
        ReadableArray { comparison, ..self }
    }

    /// Serves what is proven right in place of blocks that are proven wrong, where redundancy is
    /// compared: by P and Q together, or by most of the copies.
    pub fn correcting(mut self) -> ReadableArray {
        if let Some(comparison) = &mut self.comparison {
            comparison.corrects = true;
        }
        self
    }

    /// Keeps every range that differs, or that members have served which are out of date, until
    /// [`ReadableArray::take_differing`] or [`ReadableArray::take_stale`] takes it, however many
    /// there are.
    pub fn tracking(mut self) -> ReadableArray {
        if let Some(comparison) = &mut self.comparison {
            comparison.track();
        }
        if let Some(members) = &mut self.out_of_date {
            members.track();
        }
        self
    }

    /// The ranges that were found to differ since the last call: array sectors, in no order.
    pub fn take_differing(&self) -> Vec<Range<u64>> {
        self.comparison.as_ref().map(Comparison::take_differing).unwrap_or_default()
    }

    /// Sets whether what fails is skipped, as in the first pass of ddrescue: a read of a member
    /// that fails is not narrowed down to the blocks that fail, and a member that fails much is not
    /// read. What cannot be recovered from the others is lost, and is to be read again without
    /// skipping.
    pub fn set_skipping(&self, is_skipping: bool) {
        self.failures.set_skipping(is_skipping);
    }

    /// Sectors of members that were skipped.
    pub fn skipped(&self) -> u64 {
        self.failures.skipped()
    }

    /// Whether redundancy can prove which block is wrong: P and Q, or three copies.
    pub fn can_prove(&self) -> bool {
        self.parts.iter().filter(|part| !part.array.is_empty()).any(|part| {
            match part.geometry.kind() {
                Kind::Striped(_) => false,
                Kind::Mirrored(mirrored) => mirrored.copies() > 2,
                Kind::Parity(parity) => {
                    parity.has_q() && part.slots.iter().all(|sources| !sources.is_empty())
                }
            }
        })
    }

    /// The result of the comparison so far; empty without [`ReadableArray::compared`].
    pub fn comparison(&self) -> Compared {
        self.comparison.as_ref().map(Comparison::get).unwrap_or_default()
    }

    /// Begins anew to collect read errors and what the comparison finds.
    pub fn forget_findings(&self) {
        self.failures.forget();
        self.comparison.iter().for_each(Comparison::forget);
        self.out_of_date.iter().for_each(OutOfDate::forget);
    }

    /// Whether there is redundancy to compare: more copies, or more parity, than missing members.
    pub fn has_redundancy(&self) -> bool {
        self.parts.iter().filter(|part| !part.array.is_empty()).any(|part| {
            let missing = part.slots.iter().filter(|sources| sources.is_empty()).count();
            match part.geometry.kind() {
                Kind::Striped(_) => false,
                Kind::Mirrored(_) => part.slots.len() - missing > 1,
                Kind::Parity(_) => missing < part.geometry.tolerates(),
            }
        })
    }

    /// Its parts, in order.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Size of the array in sectors.
    pub fn sectors(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.array.end)
    }

    /// Sectors of the longest full stripe, for parity levels.
    pub(super) fn stripe_sectors(&self) -> Option<u64> {
        let with_parity = self.parts.iter().filter(|part| part.geometry.level().has_parity());
        with_parity.map(|part| part.geometry.stripe_sectors()).max()
    }

    /// Read errors of members so far, and the number of further ranges that are not in the list.
    pub fn failures(&self) -> (Vec<Failure>, u64) {
        self.failures.get()
    }

    /// Fills `buf`, whole sectors, from array sector `at` on. Returns the lost array sectors, in
    /// order; their bytes are zero.
    ///
    /// # Panics
    /// When the range is outside of the array.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
        let end = at + buf.len() as u64 / SECTOR_BYTES;
        assert!(end <= self.sectors(), "sectors {at} to {end} are outside of the array");
        let mut lost = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            let (from, to) = (at.max(part.array.start), end.min(part.array.end));
            if from >= to {
                continue;
            }
            let bytes = ((from - at) * SECTOR_BYTES) as usize..((to - at) * SECTOR_BYTES) as usize;
            let buf = &mut buf[bytes];
            let mut of_part = self.read_part(part, from, buf, self.comparison.as_ref(), false);
            // What is skipped is read again.
            if let Some(members) = &self.out_of_date
                && !of_part.is_empty()
                && !self.failures.is_skipping()
            {
                let read = |part: &Part, at, buf: &mut [u8], comparison: Option<&Comparison>| {
                    self.read_part(part, at, buf, comparison, true)
                };
                of_part = members.fill(number, from, buf, of_part, self.kernels, &read);
            }
            of_part.into_iter().for_each(|range| add_range(&mut lost, range));
        }
        self.read_newest(at, buf, &mut lost);
        for range in &lost {
            let bytes = |sector| ((sector - at) * SECTOR_BYTES) as usize;
            buf[bytes(range.start)..bytes(range.end)].fill(0);
        }
        lost
    }

    /// Fills `buf` from array sector `from` on, which is of this part; returns what is lost.
    /// `with_rows`: a part of one chunk, with all that its parity is compared with.
    fn read_part(
        &self,
        part: &Part,
        from: u64,
        buf: &mut [u8],
        comparison: Option<&Comparison>,
        with_rows: bool,
    ) -> Vec<Range<u64>> {
        let mut lost = Vec::new();
        match part.geometry.kind() {
            Kind::Striped(striped) => {
                let locate = |at| {
                    let extent = striped.locate(Sector(at));
                    let only = Copy { member: extent.member, sector: extent.sector };
                    (vec![only], extent.sectors)
                };
                self.read_copies(part, from, buf, locate, comparison, &mut lost);
            }
            Kind::Mirrored(mirrored) => {
                let locate = |at| part.copies(mirrored, at);
                self.read_copies(part, from, buf, locate, comparison, &mut lost);
            }
            Kind::Parity(parity) => {
                let rows = rows::Rows {
                    parity,
                    slots: &part.slots,
                    failures: &self.failures,
                    kernels: self.kernels,
                    comparison,
                };
                match with_rows {
                    true => rows.read_with_row(from, buf, &mut lost),
                    false => rows.read(from, buf, &mut lost),
                }
            }
        }
        lost
    }

    /// Replaces sectors by their newest contents; these are not lost.
    fn read_newest(&self, at: u64, buf: &mut [u8], lost: &mut Vec<Range<u64>>) {
        let end = at + buf.len() as u64 / SECTOR_BYTES;
        for (&sector, patch) in self.newest.range(at..end) {
            let byte = ((sector - at) * SECTOR_BYTES) as usize;
            let bytes = &mut buf[byte..byte + SECTOR_BYTES as usize];
            let without = lost.iter().flat_map(|range| {
                let before = range.start..range.end.min(sector).max(range.start);
                let behind = range.start.max(sector + 1).min(range.end)..range.end;
                [before, behind]
            });
            let mut rest = Vec::new();
            without.for_each(|range| add_range(&mut rest, range));
            *lost = rest;
            if patch.read(bytes).is_err() {
                lost.push(sector..sector + 1);
                lost.sort_by_key(|range| range.start);
            }
        }
    }

    /// Reads levels without parity: each run of sectors from the first copy that is readable.
    fn read_copies(
        &self,
        part: &Part,
        mut at: u64,
        buf: &mut [u8],
        locate: impl Fn(u64) -> (Vec<Copy>, u64),
        comparison: Option<&Comparison>,
        lost: &mut Vec<Range<u64>>,
    ) {
        let mut rest = buf;
        while !rest.is_empty() {
            let (copies, run) = locate(at);
            let run = run.min(rest.len() as u64 / SECTOR_BYTES);
            let (buf, behind) = rest.split_at_mut((run * SECTOR_BYTES) as usize);
            let there = copies.iter().filter(|copy| !part.slots[copy.member.index()].is_empty());
            let comparison = comparison.filter(|it| it.covered(at, run) > 0);
            let left = match comparison.filter(|_| there.count() > 1) {
                Some(comparison) => self.compare_copies(comparison, part, at, buf, &copies),
                None => self.read_first_copy(part, buf, &copies),
            };
            left.into_iter().for_each(|r| add_range(lost, r.start + at..r.end + at));
            at += run;
            rest = behind;
        }
    }

    /// Reads a run from the first copy that has it; returns the sectors that none has.
    fn read_first_copy(&self, part: &Part, buf: &mut [u8], copies: &[Copy]) -> Vec<Range<u64>> {
        let all = 0..buf.len() as u64 / SECTOR_BYTES;
        let mut wanted = Vec::from([all]);
        for copy in copies {
            let sources = &part.slots[copy.member.index()];
            let mut left = Vec::new();
            for range in wanted {
                let sector = copy.sector.0 + range.start;
                let mut failed = Vec::new();
                let part = &mut buf[bytes(&range)];
                slot_reader::read(sources, sector, part, &self.failures, &mut failed);
                let failed = failed.into_iter();
                left.extend(failed.map(|f| f.start + range.start..f.end + range.start));
            }
            wanted = left;
            if wanted.is_empty() {
                break;
            }
        }
        wanted
    }

    /// Reads a run of all copies, compares them where they are known to agree, and serves the first
    /// that has a sector, or what most of them hold. Returns the sectors that none has.
    fn compare_copies(
        &self,
        comparison: &Comparison,
        part: &Part,
        at: u64,
        buf: &mut [u8],
        copies: &[Copy],
    ) -> Vec<Range<u64>> {
        let run = buf.len() as u64 / SECTOR_BYTES;
        let there = copies.iter().filter(|copy| !part.slots[copy.member.index()].is_empty());
        let read = |copy: &Copy| {
            let (mut held, mut lost) = (vec![0; buf.len()], Vec::new());
            let sources = &part.slots[copy.member.index()];
            slot_reader::read(sources, copy.sector.0, &mut held, &self.failures, &mut lost);
            (held, lost)
        };
        let all: Vec<_> = there.map(|copy| (copy, read(copy))).collect();
        let mut wanted = Vec::from([Range { start: 0, end: run }]);
        for (_, (held, lost)) in &all {
            for range in without_all(&wanted, lost) {
                buf[bytes(&range)].copy_from_slice(&held[bytes(&range)]);
            }
            wanted = intersection(&wanted, lost);
        }
        let all = all.iter().map(|(copy, (bytes, lost))| {
            let (sources, sector) = (&*part.slots[copy.member.index()], copy.sector.0);
            (Held { bytes, is_read: true, sources, sector }, lost.clone())
        });
        let all: Vec<(Held<'_>, Vec<Range<u64>>)> = all.collect();
        for right in comparison.copies(at, &all, comparison.covered(at, run)) {
            buf[bytes(&(right.sector..right.sector + 1))].copy_from_slice(&right.bytes);
        }
        wanted
    }

    /// The end of the hole at array sector `at`: up to there, all sectors that would be read are
    /// holes in files, so that the array has zeroes. `at` if there is data or a lost sector. At
    /// most `limit`.
    pub fn hole_end(&self, at: u64, limit: u64) -> u64 {
        let newest = self.newest.range(at..).next().map_or(u64::MAX, |(sector, _)| *sector);
        let (mut here, limit) = (at, limit.min(newest));
        while here < limit {
            let part = self.parts.iter().find(|part| part.array.contains(&here));
            let Some(part) = part else { break };
            let limit = limit.min(part.array.end);
            let (end, run_end) = run_hole_end(part, here, limit, self.comparison.is_some());
            here = end;
            if end < run_end {
                break;
            }
        }
        here
    }
}

fn bytes(sectors: &Range<u64>) -> Range<usize> {
    (sectors.start * SECTOR_BYTES) as usize..(sectors.end * SECTOR_BYTES) as usize
}

/// The end of the hole at `at`, and how far this check reaches: to the end of the run, or of
/// several rows that are holes on all members. With `all`, only if all copies and whole rows are
/// holes.
fn run_hole_end(part: &Part, at: u64, limit: u64, all: bool) -> (u64, u64) {
    let column = |slot: usize, sector: u64, run: u64| {
        slot_reader::hole_end(&part.slots[slot], sector, sector + run) - sector
    };
    match part.geometry.kind() {
        Kind::Striped(striped) => {
            let extent = striped.locate(Sector(at));
            let run = extent.sectors.min(limit - at);
            (at + column(extent.member.index(), extent.sector.0, run), at + run)
        }
        Kind::Mirrored(mirrored) => {
            let (copies, run) = part.copies(mirrored, at);
            let run = run.min(limit - at);
            // Otherwise only the copy that would be read: after a crash the others may have old
            // contents.
            let read = copies.iter().filter(|copy| !part.slots[copy.member.index()].is_empty());
            let read = read.take(if all { copies.len() } else { 1 });
            let hole = read.map(|copy| column(copy.member.index(), copy.sector.0, run)).min();
            (at + hole.unwrap_or(0), at + run)
        }
        Kind::Parity(parity) => {
            let pos = parity.locate(Sector(at));
            let first = parity.member_sector(pos.stripe, 0).0;
            let chunk = parity.chunk_sectors();
            let left = parity.stripes() * chunk - first;
            let missing = part.slots.iter().filter(|sources| sources.is_empty()).count();
            if missing <= part.geometry.tolerates() {
                // Holes on all present members: whole rows of zeroes, including lost blocks.
                let present = part.slots.iter().enumerate().filter(|(_, s)| !s.is_empty());
                let hole = present.map(|(slot, _)| column(slot, first, left)).min().unwrap_or(0);
                if hole >= chunk {
                    let row = parity.array_sector(pos.stripe, 0, 0).0;
                    let end = row + hole / chunk * chunk * parity.data_disks() as u64;
                    return (end.min(limit), end.min(limit));
                }
            }
            if all {
                return (at, at + 1);
            }
            let run = (chunk - pos.offset).min(limit - at);
            let slot = parity.row(pos.stripe).data[usize::from(pos.index)].index();
            (at + column(slot, first + pos.offset, run), at + run)
        }
    }
}
