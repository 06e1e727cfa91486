//! Tells moments apart that have one event count: by the time of the update.
//!
//! ```text
//!   clean N at 10:00      dirty N + 1      clean N at 10:05      a copy made at 10:01 has N, too
//! ```
//! Invariant: one update writes one time to all members in service, so two of them with one event
//! count and other times are of two states of the array, and only those of one are used. A spare is
//! passed by when an array turns dirty and clean: it proves nothing. Called by `member_state`.

use super::candidate::Candidate;
use crate::ondisk::{Role, Timestamp};

/// A candidate of another moment than those with its event count that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub candidate: usize,
    /// One of those that are used.
    pub used: usize,
}

/// The fresh candidates with a slot.
fn fresh(all: &[Candidate], group: &[usize], able: &dyn Fn(usize) -> bool) -> Vec<usize> {
    let has_slot = |index: usize| {
        let metadata = &all[index].metadata;
        matches!(metadata.role, Role::Slot(_)) && !metadata.version.is_foreign()
    };
    let in_slots: Vec<usize> =
        group.iter().copied().filter(|&index| able(index) && has_slot(index)).collect();
    let events = |index: usize| all[index].metadata.events;
    let latest = in_slots.iter().map(|&index| events(index)).max().unwrap_or(0);
    in_slots.into_iter().filter(|&index| events(index).saturating_add(1) >= latest).collect()
}

/// The times of the highest event count that has several, the newest first; else none.
pub(super) fn moments(
    all: &[Candidate],
    group: &[usize],
    able: &dyn Fn(usize) -> bool,
) -> Option<(u64, Vec<Timestamp>)> {
    let fresh = fresh(all, group, able);
    let metadata = |index: &usize| &all[*index].metadata;
    let mut counts: Vec<u64> = fresh.iter().map(|index| metadata(index).events).collect();
    counts.sort_unstable();
    counts.dedup();
    counts.into_iter().rev().find_map(|events| {
        let of_count = fresh.iter().map(metadata).filter(|it| it.events == events);
        let mut times: Vec<Timestamp> = of_count.map(|it| it.updated).collect();
        times.sort_unstable();
        times.dedup();
        times.reverse();
        (times.len() > 1).then_some((events, times))
    })
}

/// The candidates of other moments than the newest, or than `chosen` of those that [`moments`] has.
pub(super) fn others(
    all: &[Candidate],
    group: &[usize],
    able: &dyn Fn(usize) -> bool,
    chosen: Option<(u64, Timestamp)>,
) -> Vec<Other> {
    let fresh = fresh(all, group, able);
    let metadata = |index: usize| &all[index].metadata;
    let used = |of: usize| {
        let events = metadata(of).events;
        let peers = fresh.iter().copied().filter(move |&it| metadata(it).events == events);
        match chosen.filter(|(count, _)| *count == events) {
            Some((_, time)) => peers.clone().find(|&it| metadata(it).updated == time),
            None => peers.max_by_key(|&it| (metadata(it).updated, std::cmp::Reverse(it))),
        }
    };
    let other = |&candidate: &usize| {
        let used = used(candidate)?;
        let differs = metadata(used).updated != metadata(candidate).updated;
        differs.then_some(Other { candidate, used })
    };
    fresh.iter().filter_map(other).collect()
}
