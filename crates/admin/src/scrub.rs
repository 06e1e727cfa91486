//! A scrub of an array that is not running. A check reads the members as they are; a repair
//! corrects what redundancy names, and resyncs the array after that if it was not in sync.
//!
//! Invariant: only a complete array is scrubbed, and a check writes nothing: its members are open
//! for reading only. Findings name members as they were given. An interrupted scrub reports where
//! it can be resumed.

use std::ffi::OsString;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use array::{Driver, Event, Mismatch, MismatchKind, RequestError, ScrubMode};
use host::Access;
use md::assemble::{Array, Candidate, Options, assemble};
use md::geometry::Copy;
use md::{Geometry, Kind, Level, SECTOR_BYTES, Sector};
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::members::ChooseError;
use crate::offline::{
    Absent, NotInSync, OpenDevices, OpenError, STEP, about_members, choose_to_write, flush, places,
    resync,
};
use crate::start::{AsFound, start_as_found};
use crate::{Opened, StartError, StartOptions, start};

/// Findings that a report lists at most; all are counted.
pub const MAX_FINDINGS: usize = 100_000;

/// What md's RAID 4, 5 and 6 count in.
const PAGE_SECTORS: u64 = 8;

/// Pages at which copies are compared to see whether they were ever in sync.
const SAMPLES: u64 = 4096;

/// What to scrub, and how.
#[derive(Clone, Debug)]
pub struct ScrubOptions {
    /// What is done with a mismatch.
    pub mode: ScrubMode,
    /// Where to begin, as [`ScrubReport::position`] of an interrupted one.
    pub from: u64,
    /// The array, by name or UUID, where the members form several.
    pub array: Option<String>,
    /// Of [`ScrubMode::RepairOrResync`], the side that wins: parity is computed (`true`), or the
    /// first copy is. An array of the other kind is refused. `None`: either.
    pub has_parity: Option<bool>,
    /// How the array is started.
    pub start: StartOptions,
}

impl Default for ScrubOptions {
    fn default() -> ScrubOptions {
        ScrubOptions {
            mode: ScrubMode::Check,
            from: 0,
            array: None,
            has_parity: None,
            start: StartOptions::default(),
        }
    }
}

/// What a scrub reports while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrubEvent {
    /// The array is resynced, after what could be corrected was.
    Resync {
        /// Sectors that are in sync.
        done: u64,
        /// Sectors in all.
        sectors: u64,
    },
    /// It has come to this position.
    Progress {
        /// Positions that are done.
        done: u64,
        /// Positions in all.
        sectors: u64,
    },
    /// A note of the array.
    Note(String),
}

/// A mismatch, on members by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Block that is wrong, where that is known.
    #[serde(serialize_with = "kind")]
    pub kind: MismatchKind,
    /// First array sector; see [`Mismatch::array_sector`].
    pub array_sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// The member that holds the wrong block, as it was named; `None`: nothing proves which one.
    pub member: Option<String>,
    /// First sector of that member, counted from its begin; where it is not known, of all members,
    /// if the block is at the same sector of each.
    pub member_sector: Option<u64>,
    /// Redundancy should have agreed there: it was in sync.
    pub in_sync: bool,
    /// It has been repaired.
    pub repaired: bool,
}

fn kind<S: Serializer>(kind: &MismatchKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match kind {
        MismatchKind::Data => "data",
        MismatchKind::P => "p",
        MismatchKind::Q => "q",
        MismatchKind::Copy => "copy",
        MismatchKind::Unknown => "unknown",
    })
}

/// A block that could not be read, and was recovered; a check does not write it back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Corrected {
    /// The member, as it was named.
    pub member: String,
    /// First sector of that member, counted from its begin.
    pub member_sector: u64,
    /// Number of sectors.
    pub sectors: u64,
}

/// How a scrub ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScrubReport {
    /// The array's level.
    #[serde(skip)]
    pub level: Level,
    /// Sectors of the members that were compared, all members together.
    pub checked_sectors: u64,
    /// Sectors of requests of which not everything could be compared.
    pub unchecked_sectors: u64,
    /// Reason why they were not compared.
    #[serde(skip)]
    pub error: Option<RequestError>,
    /// Sectors in findings.
    pub mismatch_sectors: u64,
    /// Of these, sectors that were repaired.
    pub repaired_sectors: u64,
    /// What md's `mismatch_cnt` shows after a check: RAID 4, 5 and 6 count 8 sectors of a member
    /// for each page of a row that does not agree. `None`: RAID 1 and 10, whose unit depends on the
    /// kernel's requests.
    pub mismatch_cnt: Option<u64>,
    /// The findings, at most [`MAX_FINDINGS`], in ascending order.
    pub findings: Vec<Finding>,
    /// Findings that are not listed.
    #[serde(rename = "omitted_findings")]
    pub omitted: u64,
    /// Blocks that could not be read, and were recovered; written back, but by a check.
    pub corrected: Vec<Corrected>,
    /// Members that failed in the meantime.
    #[serde(rename = "failed_members")]
    pub failed: Vec<String>,
    /// Whether what was written is durable.
    #[serde(rename = "durable")]
    pub is_durable: bool,
    /// Everything below has been scrubbed.
    #[serde(skip)]
    pub position: u64,
    /// The end.
    #[serde(skip)]
    pub span: u64,
    /// Sectors of the members that were not in sync when the scrub began: a crash may have left
    /// them different. All members together.
    pub out_of_sync_sectors: u64,
    /// Of the sectors in findings, those there.
    pub out_of_sync_mismatch_sectors: u64,
    /// Of these, sectors that the resync after a repair has made agree: data and the first copy
    /// were taken for right.
    pub resynced_sectors: u64,
    /// Of a repair of an array that was not in sync: whether the resync came to its end. `None`:
    /// there was none.
    pub resynced: Option<bool>,
    /// Whether the array was stopped clean; a check leaves it as it was.
    #[serde(rename = "stopped_clean")]
    pub is_clean: bool,
}

impl ScrubReport {
    /// Whether the scrub has come to the end.
    pub fn is_complete(&self) -> bool {
        self.position >= self.span
    }
}

/// Why there is no scrub.
#[derive(Debug, Error)]
pub enum ScrubError {
    /// The members cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No array is selected.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// It cannot be started.
    #[error("cannot start the array: {0}")]
    Start(#[from] StartError),
    /// The level has nothing to compare.
    #[error("this {level} array has no redundancy: there is nothing to compare")]
    NoRedundancy {
        /// Level of the array.
        level: Level,
    },
    /// What should win is not there.
    #[error("this policy is not for a {level} array")]
    Policy {
        /// Level of the array.
        level: Level,
    },
    /// A member is missing.
    #[error(transparent)]
    Degraded(#[from] Degraded),
    /// The position is behind the end.
    #[error("position {from} is behind the end of the array's members, {span}")]
    Behind {
        /// The given position.
        from: u64,
        /// The end.
        span: u64,
    },
    /// The resync makes no progress.
    #[error(transparent)]
    NotInSync(#[from] NotInSync),
}

/// An array without all of its members is not scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the array is degraded, {missing} of {members} members missing: nothing is proven by \
     redundancy that is not there. Add the missing members first"
)]
pub struct Degraded {
    /// Missing members.
    pub missing: usize,
    /// Members in all.
    pub members: usize,
}

/// Scrubs the array of these members, until it is done or `stop` is set.
///
/// A check opens them read-only and compares them as they are. A repair of an array that is not in
/// sync first writes what redundancy names, and resyncs it then: a resync trusts data and the first
/// copy, and what it has overwritten cannot be located any more.
///
/// # Errors
/// See [`ScrubError`].
pub fn scrub(
    names: &[OsString],
    options: &ScrubOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ScrubEvent),
) -> Result<ScrubReport, ScrubError> {
    let is_check = options.mode == ScrubMode::Check;
    let access = if is_check { Access::ReadOnly } else { Access::ReadWrite };
    let wanted = options.array.as_deref();
    let members = OpenDevices::default().members(names, wanted, Absent::Refused, access)?;
    members.notes().into_iter().for_each(|note| observe(ScrubEvent::Note(note)));
    let members = members.opened;
    let candidates: Vec<Candidate> = members.iter().map(Opened::candidate).collect();
    let found = assemble(&candidates, &Options::default());
    let array = choose_to_write(&found, options.array.as_deref(), &members)?;
    about_members(array, &candidates, &members)
        .into_iter()
        .for_each(|note| observe(ScrubEvent::Note(note)));
    let AsFound { mut driver, out_of_sync, notes } =
        start_as_found(array, &members, access, &options.start)?;
    let is_in_sync = out_of_sync.is_empty();
    if is_check || !is_in_sync {
        notes.into_iter().for_each(|note| observe(ScrubEvent::Note(note)));
    } else {
        drop(driver);
        driver = start(array, &members, &options.start)?;
    }
    let mut mode = options.mode;
    if !is_check
        && !is_in_sync
        && let Some(why) = proves_nothing(array, &members, driver.geometry(), &out_of_sync)
    {
        observe(ScrubEvent::Note(why.into()));
        mode = ScrubMode::Check;
    }
    let places = places(array, &members);
    let options = &ScrubOptions { mode, ..options.clone() };
    let result = run(&mut driver, options, &out_of_sync, stop, observe);
    let mut is_clean = driver.stop();
    pass_notes(&mut driver, observe);
    let run = result?;
    let geometry = driver.geometry().clone();
    drop(driver);
    let mut report = report(&run, &geometry, &places, &out_of_sync);
    if !is_check && !is_in_sync && report.is_complete() && report.failed.is_empty() {
        let mut driver = start(array, &members, &options.start)?;
        let resynced = resync(&mut driver, stop, |driver, progress| {
            pass_notes(driver, observe);
            if let Some((done, sectors)) = progress {
                observe(ScrubEvent::Resync { done, sectors });
            }
            refuse_degraded(driver, geometry.members())
        });
        is_clean = driver.stop();
        pass_notes(&mut driver, observe);
        let resynced = resynced?;
        report.resynced = Some(resynced);
        if resynced {
            report.resynced_sectors = run.counts.out_of_sync - run.counts.out_of_sync_repaired;
        }
    }
    report.is_clean = is_clean;
    Ok(report)
}

/// Why most copies may not be written over the others where these are not in sync: if they never
/// were, as those of a new array of a disk with data and of empty ones; and if some may lag. Parity
/// says by itself whether it has been computed.
fn proves_nothing(
    array: &Array,
    members: &[Opened],
    geometry: &Geometry,
    out_of_sync: &[Range<u64>],
) -> Option<&'static str> {
    let Kind::Mirrored(mirrored) = geometry.kind() else { return None };
    let mut copies = vec![Copy::default(); mirrored.copies()];
    if copies.len() < 3 {
        return None;
    }
    let metadata = |candidate: usize| members[candidate].superblock.metadata();
    let mut slots = array.read_write.slots.iter().flatten();
    let may_lag = geometry.level() == Level::Raid1 && metadata(array.defining).bitmap.is_some();
    if may_lag && slots.any(|source| metadata(source.candidate).write_mostly) {
        return Some(
            "write-mostly copies may lack what has been acknowledged (--write-behind), so most \
             copies prove nothing where they are not in sync; the first one that is not \
             write-mostly is copied to the others",
        );
    }
    let read = |copy: &Copy| {
        let source = array.read_write.slots.get(copy.member.index())?.as_ref()?;
        let mut bytes = vec![0; (PAGE_SECTORS * SECTOR_BYTES) as usize];
        let disk = &members[source.candidate].disk;
        disk.read(source.data_offset + copy.sector.0, &mut bytes).ok()?;
        Some(bytes)
    };
    let (mut alike, mut differing) = (0, 0);
    let positions: u64 = out_of_sync.iter().map(|range| range.end - range.start).sum();
    let every = (positions / SAMPLES).next_multiple_of(PAGE_SECTORS).max(PAGE_SECTORS);
    for range in out_of_sync {
        for at in (range.start / PAGE_SECTORS * PAGE_SECTORS..range.end).step_by(every as usize) {
            if mirrored.locate(Sector(at), &mut copies) < PAGE_SECTORS {
                continue;
            }
            let Some(all) = copies.iter().map(read).collect::<Option<Vec<_>>>() else { continue };
            let is_plain = |bytes: &Vec<u8>| bytes.iter().all(|byte| *byte == bytes[0]);
            match all.iter().all(|other| *other == all[0]) {
                true => alike += u64::from(!is_plain(&all[0])),
                false => differing += 1,
            }
        }
    }
    (alike <= differing).then_some(
        "where the copies are not in sync, no more blocks with contents agree than differ: they \
         seem never to have been in sync, and most of them prove nothing; the first one is copied \
         to the others",
    )
}

/// What a scrub has found, with members by name.
fn report(
    run: &Run,
    geometry: &Geometry,
    places: &[Option<(String, u64)>],
    out_of_sync: &[Range<u64>],
) -> ScrubReport {
    let Run { status, mismatches, events, counts, is_durable } = run;
    let (mut corrected, mut failed) = (Vec::new(), Vec::new());
    for event in events {
        match *event {
            Event::MemberFailed { member, .. } => {
                failed.extend(places[member.index()].as_ref().map(|(name, _)| name.clone()));
            }
            // Those that are late are reported as notes.
            Event::MemberInSync { .. }
            | Event::ReplacementFailed { .. }
            | Event::BadBlocksAdded { .. }
            | Event::MemberLate { .. }
            | Event::MemberBack { .. }
            | Event::DeviceRemoved { .. } => {}
            Event::Corrected { member, sector, sectors } => {
                let Some((name, offset)) = &places[member.index()] else { continue };
                let (member, member_sector) = (name.clone(), offset + sector.0);
                corrected.push(Corrected { member, member_sector, sectors });
            }
        }
    }
    let in_sync = |found: &Mismatch| !is_within(out_of_sync, position(found, geometry), found);
    let mut findings: Vec<Finding> =
        mismatches.iter().map(|it| finding(it, places, geometry, in_sync(it))).collect();
    findings.sort_by_key(|finding| finding.array_sector);
    let each = match geometry.level().has_parity() {
        true => geometry.members() as u64,
        false => copies(geometry),
    };
    ScrubReport {
        level: geometry.level(),
        checked_sectors: status.checked * each,
        unchecked_sectors: status.skipped * each,
        error: status.error,
        mismatch_sectors: counts.sectors,
        repaired_sectors: counts.repaired,
        mismatch_cnt: counts.mismatch_cnt(geometry.level()),
        omitted: counts.findings - findings.len() as u64,
        findings,
        corrected,
        failed,
        is_durable: *is_durable,
        position: status.position,
        span: status.span,
        out_of_sync_sectors: out_of_sync.iter().map(|range| range.end - range.start).sum::<u64>()
            * each,
        out_of_sync_mismatch_sectors: counts.out_of_sync,
        resynced_sectors: 0,
        resynced: None,
        is_clean: true,
    }
}

/// Where a mismatch is, as ranges out of sync count: on levels with parity in sectors of a member,
/// else of the array.
fn position(found: &Mismatch, geometry: &Geometry) -> u64 {
    match geometry.level().has_parity() {
        true => found.member_sector.0,
        false => found.array_sector.0,
    }
}

fn is_within(ranges: &[Range<u64>], start: u64, found: &Mismatch) -> bool {
    let first = ranges.partition_point(|range| range.end <= start);
    let covers = |range: &Range<u64>| range.start <= start && start + found.sectors <= range.end;
    ranges.get(first).is_some_and(covers)
}

fn copies(geometry: &Geometry) -> u64 {
    match geometry.kind() {
        Kind::Mirrored(mirrored) => mirrored.copies() as u64,
        _ => 1,
    }
}

struct Run {
    status: array::ScrubStatus,
    mismatches: Vec<Mismatch>,
    events: Vec<Event>,
    counts: Counts,
    is_durable: bool,
}

/// What a scrub has found so far.
#[derive(Default)]
pub(crate) struct Counts {
    findings: u64,
    pub(crate) sectors: u64,
    repaired: u64,
    /// Sectors where the array was not in sync, and of these repaired.
    out_of_sync: u64,
    out_of_sync_repaired: u64,
    /// Pages of rows, and the last one; what is found in one comes together.
    pages: u64,
    last_page: Option<u64>,
}

impl Counts {
    pub(crate) fn add(&mut self, found: &Mismatch) {
        self.findings += 1;
        self.sectors += found.sectors;
        self.repaired += if found.repaired { found.sectors } else { 0 };
        let page = Some(found.member_sector.0 / PAGE_SECTORS);
        self.pages += u64::from(page != self.last_page);
        self.last_page = page;
    }

    /// See [`ScrubReport::mismatch_cnt`].
    pub(crate) fn mismatch_cnt(&self, level: Level) -> Option<u64> {
        level.has_parity().then_some(self.pages * PAGE_SECTORS)
    }
}

fn run(
    driver: &mut Driver,
    options: &ScrubOptions,
    out_of_sync: &[Range<u64>],
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ScrubEvent),
) -> Result<Run, ScrubError> {
    let geometry = driver.geometry();
    let (level, members) = (geometry.level(), geometry.members());
    if matches!(level, Level::Linear | Level::Raid0) || !level.has_parity() && copies(geometry) < 2
    {
        return Err(ScrubError::NoRedundancy { level });
    }
    if options.has_parity.is_some_and(|has_parity| has_parity != level.has_parity()) {
        return Err(ScrubError::Policy { level });
    }
    refuse_degraded(driver, members)?;
    // Whole pages: the logical blocks of the members may be as large.
    driver.start_scrub(options.mode, options.from / PAGE_SECTORS * PAGE_SECTORS);
    let mut events = Vec::new();
    let mut counts = Counts::default();
    let mut mismatches = Vec::new();
    let mut completions = Vec::new();
    let mut status = driver.scrub().expect("it has redundancy, and no other scrub runs");
    let span = status.span;
    if options.from > span {
        return Err(ScrubError::Behind { from: options.from, span });
    }
    while !status.is_done {
        driver.poll(&mut completions);
        pass_notes(driver, observe);
        for mismatch in driver.take_mismatches().into_iter().map(|found| found.what) {
            counts.add(&mismatch);
            let position = position(&mismatch, driver.geometry());
            if is_within(out_of_sync, position, &mismatch) {
                counts.out_of_sync += mismatch.sectors;
                counts.out_of_sync_repaired += if mismatch.repaired { mismatch.sectors } else { 0 };
            }
            if mismatches.len() < MAX_FINDINGS {
                mismatches.push(mismatch);
            }
        }
        events.extend(driver.take_events());
        status = driver.scrub().expect("it was started");
        if stop.load(Ordering::Relaxed) || !driver.lacking().is_empty() {
            driver.stop_scrub();
        }
        observe(ScrubEvent::Progress { done: status.position, sectors: span });
        if !status.is_done {
            driver.wait(STEP, None);
        }
    }
    let is_durable = flush(driver);
    Ok(Run { status, mismatches, events, counts, is_durable })
}

fn refuse_degraded(driver: &Driver, members: usize) -> Result<(), ScrubError> {
    match driver.lacking().len() {
        0 => Ok(()),
        missing => Err(Degraded { missing, members }.into()),
    }
}

fn pass_notes(driver: &mut Driver, observe: &mut dyn FnMut(ScrubEvent)) {
    driver.take_notes().into_iter().for_each(|note| observe(ScrubEvent::Note(note)));
}

fn finding(
    mismatch: &Mismatch,
    places: &[Option<(String, u64)>],
    geometry: &Geometry,
    in_sync: bool,
) -> Finding {
    let Mismatch { kind, array_sector, sectors, member, member_sector, repaired } = *mismatch;
    let place = member.and_then(|member| places[member.index()].clone());
    let mut offsets = places.iter().flatten().map(|(_, offset)| *offset);
    let common = offsets.next().filter(|first| offsets.all(|other| other == *first));
    // Copies of RAID 10 are at different sectors.
    let common = common.filter(|_| geometry.level() != Level::Raid10);
    let offset = place.as_ref().map(|(_, offset)| *offset).or(common);
    Finding {
        kind,
        array_sector: array_sector.0,
        sectors,
        member: place.map(|(name, _)| name),
        member_sector: offset.map(|offset| offset + member_sector.0),
        in_sync,
        repaired,
    }
}
