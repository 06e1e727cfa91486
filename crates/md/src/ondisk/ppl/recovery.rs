//! Recovery from the logs after a crash: steps that restore parity.
//!
//! One step, for a range of one row whose modified data chunks are D0 and D1:
//!
//! ```text
//!   member      0          1          2          3
//!   row      |  D0  |   |  D1  |   |  D2  |   |  P  |   P := partial parity ^ D0 ^ D1
//!              read       read      untouched   write      (= D2 as it was before the crash)
//! ```
//!
//! Invariant: steps are independent of each other's result: they read data and log, and write
//! parity. A reader may do them in memory, a writer on the members, and again after another crash.
//! Rules: docs/format/ppl.md, Recovery.

use std::fmt;
use std::ops::Range;

use super::header::PplEntry;
use super::log::{MemberLog, PplLog, PplStop};
use crate::geometry::{Geometry, Kind, Parity};
use crate::level::Level;
use crate::units::{MemberIdx, SECTOR_BYTES, Sector, StripeNo};

/// Parity to be made from data and partial parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplStep {
    /// The row.
    pub stripe: StripeNo,
    /// The sectors of the members' data areas, the same on all of them.
    pub sectors: Range<u64>,
    /// The member whose parity is to be written; the log is its own.
    pub parity: MemberIdx,
    /// The members whose data is to be combined: those that were being written.
    pub data: Vec<MemberIdx>,
    /// Where the partial parity of the first sector is, from the start of `parity`'s log area; the
    /// rest follows. `None`: all data was being written, and parity is their XOR.
    pub partial_parity: Option<u64>,
}

/// A part of an entry that cannot be recovered: data that was being written is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplSkipped {
    /// The member whose log has the entry.
    pub member: MemberIdx,
    /// Index of the entry.
    pub entry: usize,
    /// The sectors of the members' data areas.
    pub sectors: Range<u64>,
    /// A member that would be needed.
    pub missing: MemberIdx,
}

/// Why the logs are incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PplMismatch {
    /// A member has no log.
    NoLog {
        /// The member.
        member: MemberIdx,
        /// What is there instead.
        stop: PplStop,
    },
    /// The partial parity of an entry has another checksum, or is not in the area.
    PartialParity {
        /// The member.
        member: MemberIdx,
        /// Index of the entry.
        entry: usize,
    },
    /// An entry makes no sense in this array.
    Entry {
        /// The member.
        member: MemberIdx,
        /// Index of the entry.
        entry: usize,
        /// The problem.
        problem: &'static str,
    },
}

impl PplMismatch {
    /// Whose log it is.
    pub fn member(&self) -> MemberIdx {
        match self {
            PplMismatch::NoLog { member, .. }
            | PplMismatch::PartialParity { member, .. }
            | PplMismatch::Entry { member, .. } => *member,
        }
    }

    /// Whether it is what a power cut leaves of a log that was being written: then no write that
    /// the log names had begun, and everything older was durable. Nothing is to be recovered; md
    /// resyncs all the same, where no data is missing.
    pub fn is_torn(&self) -> bool {
        matches!(
            self,
            PplMismatch::NoLog { stop: PplStop::Broken(_), .. } | PplMismatch::PartialParity { .. }
        )
    }

    /// The problem: a clause.
    pub fn problem(&self) -> String {
        match self {
            PplMismatch::NoLog { stop: PplStop::Broken(error), .. } => {
                format!("its newest partial parity log is damaged: {error}")
            }
            PplMismatch::NoLog { stop: PplStop::NoHeader(error), .. } => {
                format!("no partial parity log: {error}")
            }
            PplMismatch::NoLog { .. } => "no partial parity log: the area is too small".into(),
            PplMismatch::PartialParity { entry, .. } => {
                format!("ppl, entry {entry}: wrong partial parity")
            }
            PplMismatch::Entry { entry, problem, .. } => format!("ppl, entry {entry}: {problem}"),
        }
    }
}

impl fmt::Display for PplMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}: {}", self.member(), self.problem())
    }
}

/// State of the array after the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PplVerdict {
    /// It was clean, and there are no steps.
    WasClean,
    /// Parity is right everywhere.
    Clean,
    /// A resync is needed, as without a log.
    Resync,
}

/// The recovery plan from the logs of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplRecovery {
    /// Steps to execute, in order.
    pub steps: Vec<PplStep>,
    /// What cannot be done.
    pub skipped: Vec<PplSkipped>,
    /// Entries that were understood and intact, also those that were skipped in part.
    pub recovered_entries: usize,
    /// Contradictions that were found.
    pub mismatches: Vec<PplMismatch>,
    /// What md makes of it.
    pub verdict: PplVerdict,
}

/// What [`PplRecovery::is_unused`] means for data that is missing: a clause.
pub const UNUSED: &str =
    "no partial parity log names a write, so redundancy may never have been in sync";

impl PplRecovery {
    /// Whether no log names a write: nothing shows that redundancy was in sync when the array was
    /// last used. A new array is like that before its first resync.
    pub fn is_unused(&self) -> bool {
        let names = |it: &PplMismatch| matches!(it, PplMismatch::PartialParity { .. });
        self.recovered_entries == 0 && !self.mismatches.iter().any(names)
    }
}

/// Only RAID 5 has a partial parity log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplRefused {
    /// The level of the array.
    pub level: Level,
}

impl fmt::Display for PplRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partial parity log: raid5 only, the array is {}", self.level)
    }
}

impl std::error::Error for PplRefused {}

/// Makes the steps. `logs` are those of the members that are present; `resync_offset` is the
/// superblocks' (`None`: clean, then nothing is done); `in_sync` says up to which sector of its
/// data area a member can be read: 0 if it is missing, `u64::MAX` if it is whole.
///
/// The array is clean afterwards if it was dirty from the start on (`resync_offset` 0), there was
/// something to recover, and nothing was wrong: md's rule.
///
/// # Errors
/// The array is no RAID 5.
pub fn plan_recovery(
    geometry: &Geometry,
    logs: &[MemberLog],
    resync_offset: Option<u64>,
    in_sync: impl Fn(MemberIdx) -> u64,
) -> Result<PplRecovery, PplRefused> {
    let level = geometry.level();
    let (Level::Raid5, Kind::Parity(parity)) = (level, geometry.kind()) else {
        return Err(PplRefused { level });
    };
    let mut plan = PplRecovery {
        steps: Vec::new(),
        skipped: Vec::new(),
        recovered_entries: 0,
        mismatches: Vec::new(),
        verdict: PplVerdict::WasClean,
    };
    for member_log in logs {
        let member = member_log.member;
        let log = match &member_log.newest {
            Ok(log) => log,
            Err(stop) => {
                plan.mismatches.push(PplMismatch::NoLog { member, stop: stop.clone() });
                continue;
            }
        };
        if resync_offset.is_none() {
            continue;
        }
        for (index, entry) in log.header.entries.iter().enumerate() {
            if !member_log.intact.get(index).is_some_and(|intact| *intact) {
                plan.mismatches.push(PplMismatch::PartialParity { member, entry: index });
                continue;
            }
            match parts_of(parity, member, entry) {
                Err(problem) => {
                    plan.mismatches.push(PplMismatch::Entry { member, entry: index, problem });
                }
                Ok(parts) => {
                    plan.recovered_entries += 1;
                    parts.into_iter().for_each(|part| plan.add(log, index, member, part, &in_sync));
                }
            }
        }
    }
    plan.verdict = match resync_offset {
        None => PplVerdict::WasClean,
        Some(0) if plan.recovered_entries > 0 && plan.mismatches.is_empty() => PplVerdict::Clean,
        Some(_) => PplVerdict::Resync,
    };
    Ok(plan)
}

/// Sectors of a row in which the same data chunks were being written.
struct Part {
    stripe: StripeNo,
    /// Member sectors.
    sectors: Range<u64>,
    data: Vec<MemberIdx>,
    /// Sectors of the entry's partial parity before it.
    skip: u64,
}

impl PplRecovery {
    /// Makes a step of the sectors that all the data can be read of, and skips the rest. Members
    /// that are being rebuilt can be read up to where that got.
    fn add(
        &mut self,
        log: &PplLog,
        entry: usize,
        parity: MemberIdx,
        part: Part,
        in_sync: &impl Fn(MemberIdx) -> u64,
    ) {
        let Part { stripe, sectors, data, skip } = part;
        let (limit, missing) = data
            .iter()
            .map(|&member| (in_sync(member), member))
            .min()
            .expect("a part has modified data");
        let split = limit.clamp(sectors.start, sectors.end);
        if split < sectors.end {
            let sectors = split..sectors.end;
            self.skipped.push(PplSkipped { member: parity, entry, sectors, missing });
        }
        if split > sectors.start {
            let logged = log.header.entries[entry].pp_bytes > 0;
            let partial_parity = logged.then(|| log.partial_parity(entry).start + skip);
            let sectors = sectors.start..split;
            self.steps.push(PplStep { stripe, sectors, parity, data, partial_parity });
        }
    }
}

/// What an entry of `member`'s log says, if it can be meant.
fn parts_of(
    parity: &Parity,
    member: MemberIdx,
    entry: &PplEntry,
) -> Result<Vec<Part>, &'static str> {
    let PplEntry { data_sector, pp_bytes, data_bytes, parity_slot, .. } = *entry;
    let chunk = parity.chunk_sectors();
    let disks = parity.data_disks() as u64;
    let row_sectors = chunk * disks;
    if data_sector >= parity.stripes() * row_sectors {
        return Err("its data is outside of the array");
    }
    let in_sectors = |bytes: u32| {
        let whole = u64::from(bytes).is_multiple_of(SECTOR_BYTES);
        whole.then_some(u64::from(bytes) / SECTOR_BYTES).ok_or("a size is not in whole sectors")
    };
    let (pp, data) = (in_sectors(pp_bytes)?, in_sectors(data_bytes)?);
    let first = parity.locate(Sector(data_sector));
    let row = parity.row(first.stripe);
    if row.p != member || parity_slot != u32::from(member.0) {
        return Err("the parity of its row is on another member");
    }
    let part = |offsets: Range<u64>, chunks: Range<u64>, skip: u64| Part {
        stripe: first.stripe,
        sectors: parity.member_sector(first.stripe, offsets.start).0
            ..parity.member_sector(first.stripe, offsets.start).0 + (offsets.end - offsets.start),
        data: chunks.map(|index| row.data[index as usize]).collect(),
        skip,
    };
    let (index, offset) = (u64::from(first.index), first.offset);
    if pp < chunk {
        // The same rows of consecutive data chunks.
        let (chunks, rows) = match data.checked_div(pp) {
            None => (disks, data / disks),
            Some(chunks) => (chunks, pp),
        };
        if rows == 0 || chunks == 0 || chunks * rows != data {
            return Err("its sizes do not divide");
        }
        if index + chunks > disks || offset + rows > chunk {
            return Err("its data leaves the row");
        }
        return Ok(vec![part(offset..offset + rows, index..index + chunks, 0)]);
    }
    // Consecutive data from the first sector on, which may begin and end inside of a chunk; the
    // partial parity goes once around the chunk, from the first sector's offset.
    let start = index * chunk + offset;
    let end = start + data;
    if pp > chunk {
        return Err("its partial parity is longer than a chunk");
    }
    if data == 0 || end > row_sectors {
        return Err("its data leaves the row");
    }
    let mut cuts = [0, offset, end % chunk, chunk];
    cuts.sort_unstable();
    let mut parts = Vec::new();
    for cut in cuts.windows(2).filter(|cut| cut[0] < cut[1]) {
        let covered = |index: &u64| (start..end).contains(&(index * chunk + cut[0]));
        let mut chunks = (0..disks).filter(covered);
        if let Some(first) = chunks.next() {
            let chunks = first..chunks.next_back().unwrap_or(first) + 1;
            parts.push(part(cut[0]..cut[1], chunks, (cut[0] + chunk - offset) % chunk));
        }
    }
    Ok(parts)
}
