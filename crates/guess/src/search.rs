//! The search: reads more and more of the members until the geometry is exact.
//!
//! Invariant: stages read the same places of all members, and nothing is read twice. A stage that
//! gives an exact answer is the last.

use std::collections::BTreeSet;

use content::{FileSystems, Kind, Part, Scan, Sighting};

use crate::answer::Answer;
use crate::attempt::{Attempt, attempt};
use crate::conclude::{conclude, nothing};
use crate::known::Options;
use crate::points::Point;
use crate::redundancy::Masks;
use crate::source::{ByteRange, Pages};
use crate::view::View;

/// The unit of what is scanned.
const UNIT: u64 = 64 << 10;
/// Members up to this size are scanned whole.
const SMALL: u64 = 64 << 20;
/// Longest window.
const WINDOW: u64 = 4 << 20;

/// Finds the geometry of an array from the contents of its members. `progress` is called with what
/// is being done.
pub fn guess(pages: &Pages, options: &Options, progress: &mut dyn FnMut(&str)) -> Answer {
    let mut search = Search::new(pages, options);
    let mut last = None;
    for stage in 0..4 {
        progress(&format!("stage {stage}: looking for blocks that state their address"));
        if !search.read(stage) {
            break;
        }
        progress(&format!("stage {stage}: looking for a geometry"));
        let mut attempt = search.attempt();
        // What only the right hypothesis can read: the map of btrfs, whose nodes chunks cut.
        if !attempt.is_exact() && search.learn_through(&attempt) {
            attempt = search.attempt();
        }
        let exact = attempt.is_exact();
        last = Some(attempt);
        if exact {
            break;
        }
    }
    if last.as_ref().is_none_or(Attempt::is_empty) {
        progress("looking for the sum of all members");
        if let Some(attempt) = search.by_sum() {
            last = Some(attempt);
        }
    }
    if last.as_ref().is_some_and(|attempt| !attempt.is_empty() && !attempt.is_exact()) {
        progress("looking for a table on a missing member");
        if search.find_table_of_missing() {
            last = Some(search.attempt());
        }
    }
    match last.filter(|attempt| !attempt.is_empty()) {
        Some(attempt) => conclude(pages, options, &search.file_systems, attempt),
        None => nothing(pages, options, &search.file_systems),
    }
}

/// What was found until now.
pub(crate) struct Search<'a> {
    pages: &'a Pages<'a>,
    options: &'a Options,
    pub file_systems: FileSystems,
    /// Members that are scanned; one more is their sum.
    members: usize,
    scans: Vec<Scan>,
    sightings: Vec<Vec<Sighting>>,
    /// Units scanned of every member.
    scanned: BTreeSet<u64>,
    /// Where members hold partition tables of their own.
    own_tables: Masks,
}

impl<'a> Search<'a> {
    fn new(pages: &'a Pages<'a>, options: &'a Options) -> Search<'a> {
        let members = pages.members();
        Search {
            pages,
            options,
            file_systems: FileSystems::new(),
            members,
            scans: vec![Scan::new(); members],
            sightings: vec![Vec::new(); members],
            scanned: BTreeSet::new(),
            own_tables: own_tables(pages),
        }
    }

    /// Reads and scans the places of a stage; false if there is nothing new.
    fn read(&mut self, stage: usize) -> bool {
        let new = self.units(stage);
        if new.is_empty() {
            return false;
        }
        self.scan(&new);
        // Around what was found: group descriptors, the first inodes.
        if stage == 0 {
            let around: BTreeSet<u64> =
                self.around(2 << 20).difference(&self.scanned).copied().collect();
            if !around.is_empty() {
                self.scan(&around);
            }
        }
        true
    }

    /// The largest member's size.
    fn size(&self) -> u64 {
        (0..self.pages.members()).map(|member| self.pages.size(member)).max().unwrap_or(0)
    }

    /// The units of a stage that were not scanned.
    fn units(&self, stage: usize) -> BTreeSet<u64> {
        const MIB: u64 = 1 << 20;
        let size = self.size();
        let mut units = BTreeSet::new();
        let mut add = |from: u64, len: u64| {
            units.extend(from / UNIT..(from + len).min(size).div_ceil(UNIT));
        };
        if size <= SMALL {
            add(0, if stage == 0 { size } else { 0 });
        } else if stage == 0 {
            add(0, 256 << 10);
            (0..=260).for_each(|mib| add(mib * MIB, UNIT));
        } else {
            let random = 8 << (2 * stage);
            let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ stage as u64;
            for _ in 0..random {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                add(state % size / UNIT * UNIT, 256 << 10);
            }
            units.extend(self.around((2 * MIB) << (2 * stage)));
        }
        units.difference(&self.scanned).copied().collect()
    }

    /// Units behind the places where something begins.
    fn around(&self, len: u64) -> BTreeSet<u64> {
        let starts: BTreeSet<u64> =
            self.sightings.iter().flatten().take(16).map(|it| it.at / UNIT).collect();
        starts.into_iter().take(4).flat_map(|unit| unit..unit + len / UNIT).collect()
    }

    /// Scans units of all members.
    fn scan(&mut self, new: &BTreeSet<u64>) {
        let known = self.file_systems.list().len();
        let windows = windows(new);
        self.each(&windows, |search, member, bytes, at| {
            let found = search.file_systems.find(bytes, at);
            search.sightings[member].extend(found);
        });
        self.scanned.extend(new);
        // What was scanned before is looked at again for file systems that were not known then.
        let mut windows = windows;
        if self.file_systems.list().len() > known && known < 8 {
            windows = self::windows(&self.scanned);
            self.scans = vec![Scan::new(); self.scans.len()];
        }
        self.each(&windows, |search, member, bytes, at| {
            let Search { file_systems, scans, .. } = search;
            file_systems.scan(bytes, at, &mut scans[member]);
        });
        for scan in &self.scans {
            self.file_systems.learn(scan);
        }
    }

    fn each(
        &mut self,
        windows: &[(u64, u64)],
        mut look: impl FnMut(&mut Search, usize, &[u8], u64),
    ) {
        let members = match self.members > self.pages.members() {
            true => self.pages.members()..self.members,
            false => 0..self.members,
        };
        for batch in windows.chunks(32) {
            let ranges = members.clone().flat_map(|member| {
                batch.iter().map(move |&(at, len)| ByteRange { member, at, len: len as usize })
            });
            self.pages.prefetch(&ranges.collect::<Vec<_>>());
            for member in members.clone() {
                for &(at, len) in batch {
                    let len = len.min(self.pages.size(member).saturating_sub(at));
                    self.look(member, at, len, &mut look);
                }
            }
        }
    }

    /// A window, or the parts of it that can be read.
    fn look(
        &mut self,
        member: usize,
        at: u64,
        len: u64,
        look: &mut impl FnMut(&mut Search, usize, &[u8], u64),
    ) {
        if len == 0 {
            return;
        }
        if let Some(bytes) = self.take(member, at, len as usize) {
            look(self, member, &bytes, at);
        } else if len > UNIT {
            for at in (at..at + len).step_by(UNIT as usize) {
                if let Some(bytes) = self.take(member, at, UNIT.min(len) as usize) {
                    look(self, member, &bytes, at);
                }
            }
        }
    }

    /// The bytes of a member, zeroes where it holds a table of its own.
    fn take(&self, member: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = self.pages.take(member, at, len)?;
        let end = at + len as u64;
        for (_, own) in self.own_tables.iter().filter(|it| it.0 == member) {
            let (from, to) = (own.start.clamp(at, end), own.end.clamp(at, end));
            bytes[(from - at) as usize..(to - at) as usize].fill(0);
        }
        Some(bytes)
    }

    /// Reads through the best candidates what their file system says of its addresses.
    fn learn_through(&mut self, attempt: &Attempt) -> bool {
        let (Some(judged), Some(set)) = (&attempt.judged, &attempt.set) else { return false };
        let bytes = self.file_systems.list()[set.file_system].bytes;
        let mut more = false;
        for candidate in std::iter::once(&judged.best).chain(&judged.alternatives).take(8) {
            let view = View::new(candidate, self.pages);
            let part = Part::new(&view, candidate.base, bytes);
            more |= self.file_systems.learn_through(set.file_system, &part);
        }
        more
    }

    fn attempt(&self) -> Attempt {
        let (points, own_tables) = (self.points(), &self.own_tables);
        attempt(self.pages, self.options, &self.file_systems, &points, self.members, own_tables)
    }

    /// Every witness, by file system; addresses count from the file system's start.
    fn points(&self) -> Vec<Vec<Point>> {
        let mut points = vec![Vec::new(); self.file_systems.list().len()];
        for (member, scan) in self.scans.iter().enumerate() {
            for witness in self.file_systems.witnesses(scan) {
                let either = witness.also.is_some();
                for address in [Some(witness.address), witness.also].into_iter().flatten() {
                    points[witness.file_system].push(Point {
                        member,
                        at: witness.at,
                        address,
                        weight: f64::from(witness.weight),
                        strong: witness.strong,
                        either,
                    });
                }
            }
        }
        points
    }

    /// Looks on a member of RAID 4 or 5 that is missing, the XOR of the others, for the table that
    /// says where a file system begins; false if there is none.
    fn find_table_of_missing(&mut self) -> bool {
        let (pages, sum) = (self.pages, self.pages.members());
        if sum < 2 || self.file_systems.list().iter().any(|it| it.kind.is_table()) {
            return false;
        }
        for unit in self.scanned.iter().take((SMALL / UNIT) as usize) {
            let at = unit * UNIT;
            let len = UNIT.min(pages.size(sum).saturating_sub(at)) / 512 * 512;
            let Some(bytes) = pages.take(sum, at, len as usize) else { continue };
            let mut there = FileSystems::new();
            there.find(&bytes, at);
            // An MBR is two bytes: in a sum it is often chance.
            let is_table = |kind: Kind| kind.is_table() && kind != Kind::Mbr;
            if there.list().iter().any(|it| is_table(it.kind)) {
                self.file_systems.find(&bytes, at);
                return true;
            }
        }
        false
    }

    /// With one member of RAID 4 or 5 missing, the XOR of the others is that member: what begins
    /// there is found only so.
    fn by_sum(&mut self) -> Option<Attempt> {
        if self.pages.members() < 2 {
            return None;
        }
        self.members = self.pages.members() + 1;
        self.scans.push(Scan::new());
        self.sightings.push(Vec::new());
        let mut units = std::mem::take(&mut self.scanned);
        // What begins the array lies near the start; the rest would be read twice.
        let most = self.pages.left() / UNIT;
        units = units.into_iter().take((SMALL / UNIT).min(most) as usize).collect();
        self.scan(&units);
        if self.file_systems.list().is_empty() {
            return None;
        }
        // Now that it is known what to look for, on the members themselves.
        self.members = self.pages.members();
        self.scanned.clear();
        self.scan(&units);
        self.members += 1;
        Some(self.attempt())
    }
}

/// Where members hold a GPT that is of the member itself: it is as long, and no other member has
/// the same. It was written over what the array had there, or divides a disk with the array in it.
fn own_tables(pages: &Pages) -> Masks {
    const HEAD: u64 = 24 << 10;
    let mut found: Vec<(usize, Option<String>, u64)> = Vec::new();
    for member in 0..pages.members() {
        let size = pages.size(member);
        let mut tables = FileSystems::new();
        if let Some(bytes) = pages.take(member, 0, HEAD.min(size) as usize) {
            tables.find(&bytes, 0);
        }
        let mut own = tables.list().iter();
        let own = own.find(|it| it.kind == Kind::Gpt && it.bytes == size);
        found.extend(own.map(|it| (member, it.uuid.clone(), u64::from(it.block))));
    }
    let is_only = |uuid: &Option<String>| found.iter().filter(|it| it.1 == *uuid).count() == 1;
    let mut masks = Masks::new();
    for (member, _, block) in found.iter().filter(|it| pages.members() > 1 && is_only(&it.1)) {
        // 128 entries of 128 bytes, a header, and before the first one an MBR.
        let entries = (16_u64 << 10).div_ceil(*block) * block;
        let size = pages.size(*member);
        masks.push((*member, 0..entries + 2 * block));
        masks.push((*member, size.saturating_sub(entries + block)..size));
    }
    masks
}

/// Units as windows.
fn windows(units: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for unit in units {
        let at = unit * UNIT;
        match windows.last_mut() {
            // The next window repeats the last unit, for a block that the end would cut.
            Some((from, len)) if *from + *len == at && *len < WINDOW => *len += UNIT,
            Some((from, len)) if *from + *len == at => windows.push((at - UNIT, 2 * UNIT)),
            _ => windows.push((at, UNIT)),
        }
    }
    windows
}
