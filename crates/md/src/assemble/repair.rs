//! Derives the repairs of an array at a read-write start.
//!
//! Invariant: a typed list, in the order in which it must be done; nothing is done here.
//! Rules: docs/format/assembly.md, What a start repairs.

use super::candidate::{Candidate, Source};
use super::types::{Member, MemberState, Recovery, Repairs, Replay, Resync};
use crate::geometry::{Geometry, Kind, RowRole};
use crate::level::Level;
use crate::ondisk::MemberMetadata;
use crate::ondisk::superblock::Policy;
use crate::units::{MemberIdx, StripeNo};

/// Input of the plan.
pub(super) struct Facts<'a> {
    pub all: &'a [Candidate],
    pub metadata: &'a MemberMetadata,
    pub geometry: &'a Geometry,
    pub members: &'a [Member],
    pub slots: &'a [Option<Source>],
    pub missing: &'a [MemberIdx],
    pub journal: Option<usize>,
}

/// The consistency policy of the superblock.
pub(super) fn policy(metadata: &MemberMetadata) -> Option<Policy> {
    match metadata.level {
        ..=0 => None,
        _ if metadata.has_journal => Some(Policy::Journal),
        _ if metadata.ppl.is_some() => Some(Policy::Ppl),
        _ if metadata.bitmap.is_some() => Some(Policy::Bitmap),
        _ => Some(Policy::Resync),
    }
}

/// Whether the slots hold nothing but parity, so that losing them while dirty loses no data.
pub fn only_parity(geometry: &Geometry, slots: &[MemberIdx]) -> bool {
    let Kind::Parity(parity) = geometry.kind() else { return false };
    (0..parity.rotation() as u64).all(|row| {
        let roles = &parity.row(StripeNo(row)).role;
        slots.iter().all(|slot| !matches!(roles[slot.index()], RowRole::Data(_)))
    })
}

/// The repairs of an array that runs.
pub(super) fn repairs(facts: &Facts<'_>) -> Repairs {
    let metadata = facts.metadata;
    let policy = policy(metadata);
    let Some(kind) = policy else { return Repairs::default() };
    let replay = match (kind, facts.journal) {
        (Policy::Ppl, _) => metadata.resync_offset.map(|_| Replay::Ppl),
        (Policy::Journal, Some(candidate)) => {
            let tail = facts.all[candidate].metadata.journal_tail.unwrap_or(0);
            Some(Replay::Journal { candidate, tail })
        }
        (Policy::Journal, None) => Some(Replay::DropJournal),
        _ => None,
    };
    let policy = if replay == Some(Replay::DropJournal) { Policy::Resync } else { kind };
    let resync = resync(facts, &replay, kind);
    Repairs { policy: Some(policy), replay, resync, recoveries: recoveries(facts) }
}

/// A resync, if redundancy is in doubt and there is any left.
fn resync(facts: &Facts<'_>, replay: &Option<Replay>, kind: Policy) -> Option<Resync> {
    // A member that is being rebuilt is redundancy up to where it is in sync.
    let in_part = facts.slots.iter().flatten().filter(|source| source.valid_sectors > 0).count();
    let none_left = match facts.geometry.level() {
        Level::Raid1 => in_part < 2,
        Level::Raid10 => false,
        _ => facts.geometry.members() - in_part >= facts.geometry.tolerates(),
    };
    // What missed updates, or a log that is gone, puts all of it in doubt, bitmap or not.
    let in_doubt = *replay == Some(Replay::DropJournal)
        || facts.slots.iter().flatten().any(|source| source.stale);
    if none_left {
        return None;
    }
    if in_doubt {
        return Some(Resync { from: 0, by_bitmap: false });
    }
    let by_bitmap = kind == Policy::Bitmap;
    facts.metadata.resync_offset.map(|from| Resync { from, by_bitmap })
}

/// Interrupted rebuilds and replacements resume; spares are assigned to empty slots.
fn recoveries(facts: &Facts<'_>) -> Vec<Recovery> {
    let mut recoveries = Vec::new();
    let serves = |slot: MemberIdx| facts.slots[slot.index()].as_ref();
    for member in facts.members {
        let candidate = member.candidate;
        match member.state {
            MemberState::Recovering { slot, up_to }
                if serves(slot).is_some_and(|source| source.candidate == candidate) =>
            {
                recoveries.push(Recovery { slot, candidate, from: up_to, replaces: None });
            }
            MemberState::Replacement { slot, up_to } => {
                let serving = serves(slot).map(|source| source.candidate);
                let replaces = serving.filter(|&serving| serving != candidate);
                // One that is complete has only to take over; alone it is the slot's member.
                if up_to.is_some() || replaces.is_some() {
                    let from = up_to.unwrap_or(facts.metadata.used_sectors);
                    recoveries.push(Recovery { slot, candidate, from, replaces });
                }
            }
            _ => {}
        }
    }
    let fits = |candidate: &usize| {
        let spare = &facts.all[*candidate];
        let room = spare.metadata.data_sectors;
        let on_device = spare.device_sectors.saturating_sub(spare.metadata.data_offset);
        room.min(on_device) >= facts.metadata.used_sectors
    };
    let mut spares = facts
        .members
        .iter()
        .filter(|member| member.state == MemberState::Spare)
        .map(|member| member.candidate)
        .filter(fits);
    for &slot in facts.missing {
        if recoveries.iter().any(|recovery| recovery.slot == slot) {
            continue;
        }
        let Some(candidate) = spares.next() else { break };
        recoveries.push(Recovery { slot, candidate, from: 0, replaces: None });
    }
    recoveries
}
