//! Input and output types of the assembly decision.
//!
//! Invariant: candidates are identified by their index in the input list.

use super::candidate::Source;
use super::messages;
use super::shape::{Shape, ShapeError};
use crate::ondisk::superblock::Policy;
use crate::ondisk::{Uuid, Version};
use crate::units::MemberIdx;
use std::fmt;

/// Overrides of the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Read-only: members that missed updates may fill slots that nothing else can fill.
    pub ignore_events: bool,
    /// Override [`Verdict::NeedsForce`]; implies `ignore_events`.
    pub force: bool,
    /// Accept superblocks with a wrong checksum.
    pub ignore_checksums: bool,
    /// Read-only: serve readable data, with errors for lost ranges.
    pub partial: bool,
    /// The candidate of each slot, instead of what the superblocks say. Candidates that it does
    /// not name are left out, and it applies to the array that its candidates belong to.
    pub order: Option<Vec<Option<usize>>>,
}

/// Result of an assembly: arrays and floating spares.
#[derive(Clone, Debug)]
pub struct Found {
    /// The arrays, by their first candidate.
    pub arrays: Vec<Array>,
    /// Candidates with a set uuid of zeros: spares that belong to no array yet.
    pub floating_spares: Vec<usize>,
}

/// State of a candidate in its array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// The member is in sync in this slot.
    Active(MemberIdx),
    /// The member is being rebuilt.
    Recovering {
        /// The slot that it fills.
        slot: MemberIdx,
        /// Recovery offset, in sectors of the data area: below it the member is in sync.
        up_to: u64,
    },
    /// The member is being filled to replace the slot's member, which still serves.
    Replacement {
        /// The slot of both.
        slot: MemberIdx,
        /// Recovery offset, in sectors of the data area; `None`: complete.
        up_to: Option<u64>,
    },
    /// A spare.
    Spare,
    /// The array's journal.
    Journal,
    /// The member is out of date: its event count is behind, or another moment has the same.
    Stale {
        /// The slot that it had.
        slot: Option<MemberIdx>,
        /// Difference of the event counts; 0: equal or one behind, and last updated at another
        /// time than fresh members with its event count.
        events_behind: u64,
    },
    /// The freshest superblock says that it failed.
    Faulty,
    /// The superblock is of the same array, and contradicts the one that defines it.
    Foreign {
        /// The field, and both values.
        differs: String,
    },
    /// Another candidate is the same member, or has the slot; of two equally fresh ones neither is
    /// used.
    Duplicate {
        /// Index of the other candidate.
        of: usize,
    },
    /// It cannot be used, for the reason given beside.
    Unusable,
}

/// In a few words: `slot 2`, `slot 2, rebuilt up to sector 4096`, `spare`.
impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemberState::Active(slot) => write!(f, "slot {slot}"),
            MemberState::Recovering { slot, up_to } => {
                write!(f, "slot {slot}, rebuilt up to sector {up_to}")
            }
            MemberState::Replacement { slot, up_to: None } => {
                write!(f, "replacement for slot {slot}")
            }
            MemberState::Replacement { slot, up_to: Some(up_to) } => {
                write!(f, "replacement for slot {slot}, up to sector {up_to}")
            }
            MemberState::Spare => f.write_str("spare"),
            MemberState::Journal => f.write_str("journal"),
            MemberState::Stale { slot: Some(slot), events_behind } => {
                write!(f, "stale, was slot {slot}, {}", messages::behind(*events_behind))
            }
            MemberState::Stale { slot: None, events_behind } => {
                write!(f, "stale, {}", messages::behind(*events_behind))
            }
            MemberState::Faulty => f.write_str("faulty"),
            MemberState::Foreign { .. } => f.write_str("foreign"),
            MemberState::Duplicate { .. } => f.write_str("duplicate"),
            MemberState::Unusable => f.write_str("unusable"),
        }
    }
}

/// A candidate of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index of the candidate.
    pub candidate: usize,
    /// State in the array.
    pub state: MemberState,
    /// Reason for the state: a sentence.
    pub why: String,
}

/// Other software that may decide otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Software {
    /// Linux md.
    Kernel,
    /// mdadm 4.2.
    Mdadm,
}

impl fmt::Display for Software {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Software::Kernel => "Linux",
            Software::Mdadm => "mdadm",
        })
    }
}

/// A decision of Linux or mdadm that differs: a refusal, or another action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherVerdict {
    /// The software that decides differently.
    pub by: Software,
    /// The decision and its reason: a sentence without its subject.
    pub what: String,
}

/// The whole sentence.
impl fmt::Display for OtherVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.by, self.what)
    }
}

/// An array among the candidates.
#[derive(Clone, Debug)]
pub struct Array {
    /// UUID of the array.
    pub set_uuid: Uuid,
    /// Name in the superblock; empty in 0.90.
    pub name: String,
    /// Version of the metadata.
    pub version: Version,
    /// The candidate whose superblock defines it: the freshest with a slot that most of the other
    /// fresh members agree with.
    pub defining: usize,
    /// All candidates of this array.
    pub members: Vec<Member>,
    /// Slots without a member in sync.
    pub missing: Vec<MemberIdx>,
    /// The array was run in two halves: each says that the other has failed. A sentence of
    /// [`Array::contradictions`] names both.
    pub split: bool,
    /// Size in sectors; 0 without a geometry.
    pub array_sectors: u64,
    /// The geometry, or why there is none.
    pub shape: Result<Shape, ShapeError>,
    /// Plan of a read-write start.
    pub read_write: Plan,
    /// Plan of a read-only start, which changes nothing.
    pub read_only: Plan,
    /// Decisions of Linux or mdadm that differ from the plans.
    pub other_verdicts: Vec<OtherVerdict>,
    /// Contradictions between members with equal event counts, or to the given order: sentences.
    /// The contents of such an array must be checked.
    pub contradictions: Vec<String>,
    /// Members that must not serve, and may have what nothing else has, the youngest first.
    pub out_of_date: Vec<OutOfDate>,
    /// [`Options::force`] was given.
    pub forced: bool,
}

/// A member that must not serve its slot: it missed updates, failed, was removed, or was not
/// rebuilt yet. Ranges that nothing else has are read from it, with consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfDate {
    /// The slot that it had.
    pub slot: MemberIdx,
    /// The data area, up to where the member ever held the slot.
    pub source: Source,
    /// Name, slot and reason: `disk2 (slot 2, 20 updates behind)`.
    pub what: String,
}

/// An option that overrides a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Override {
    /// [`Options::force`].
    Force,
    /// [`Options::ignore_events`].
    IgnoreEvents,
    /// [`Options::partial`].
    Partial,
}

/// The decision about a start. Displays as a sentence or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All members are in sync.
    Run,
    /// All data is served, with less redundancy.
    RunDegraded {
        /// Slots without a member in sync.
        missing: Vec<MemberIdx>,
    },
    /// A part of the data is served (read-only, on request).
    RunPartial {
        /// The lost data: a sentence.
        lost: String,
    },
    /// Only with an override.
    NeedsForce {
        /// The required override.
        with: Override,
        /// The problem and the data at risk: a sentence or two.
        risk: String,
    },
    /// It cannot be started.
    Refused {
        /// The reason, and a remedy: a sentence or two.
        why: String,
    },
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Run => f.write_str("All members are there."),
            Verdict::RunDegraded { missing } => {
                write!(f, "All data is there, without {}.", messages::slots(missing))
            }
            Verdict::RunPartial { lost: text }
            | Verdict::NeedsForce { risk: text, .. }
            | Verdict::Refused { why: text } => f.write_str(text),
        }
    }
}

impl Verdict {
    /// True: the array can be started with the given options.
    pub fn runs(&self) -> bool {
        matches!(self, Verdict::Run | Verdict::RunDegraded { .. } | Verdict::RunPartial { .. })
    }
}

/// A start of the array: who serves, and what is repaired first.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The decision.
    pub verdict: Verdict,
    /// The member of each slot. Read-write: members in sync, and those being rebuilt, up to
    /// [`Source::valid_sectors`]. In a plan that does not run: the members that would be used.
    pub slots: Vec<Option<Source>>,
    /// The journal device.
    pub journal: Option<usize>,
    /// Warnings about the contents: sentences.
    pub warnings: Vec<String>,
    /// Reasons why the contents may be wrong, besides [`Array::contradictions`]: sentences.
    pub doubts: Vec<String>,
    /// Repairs at the start; empty in a read-only plan.
    pub repairs: Repairs,
}

/// Repairs of an array at a read-write start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    /// Consistency policy; `None`: no redundancy.
    pub policy: Option<Policy>,
    /// The log that is replayed before anything is read or written.
    pub replay: Option<Replay>,
    /// The resync before redundancy is relied on; reads and writes may run beside it.
    pub resync: Option<Resync>,
    /// The slots that are rebuilt.
    pub recoveries: Vec<Recovery>,
}

/// Replay of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Apply the newest partial parity log of every member. If at least one entry was applied, none
    /// was damaged, and [`Resync::from`] is 0, the resync beside it is not needed.
    Ppl,
    /// Apply the journal.
    Journal {
        /// The journal device.
        candidate: usize,
        /// Position of its oldest record, in sectors of its data area.
        tail: u64,
    },
    /// The journal is gone: clear its feature bit.
    DropJournal,
}

/// Redundancy to be made right, from data (parity) or from the first copy (mirrors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resync {
    /// First sector: of the members, for RAID 10 of the array.
    pub from: u64,
    /// Only where the bitmap has bits; if the bitmap turns out to be stale or unreadable,
    /// everywhere. With a degraded array whose bitmap was cleared at other events, from 0.
    pub by_bitmap: bool,
}

/// A slot to be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The slot that is filled.
    pub slot: MemberIdx,
    /// Index of the candidate that is rebuilt.
    pub candidate: usize,
    /// First sector of the data area that is rebuilt.
    pub from: u64,
    /// The member that it takes over from, which serves until then.
    pub replaces: Option<usize>,
}
