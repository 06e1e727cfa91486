//! Ranges that only members have which must not serve their slots: stale ones, of any age, failed
//! or
//! removed ones, and those that were not rebuilt there.
//!
//! ```text
//! d0  ....................    d1  ....xx..............    d2 is gone, an older d2 is there:
//!                                     rows in which d1 has a hole are lost, or are made with it
//! ```
//! Invariant: nothing is read from such a member where the others suffice, or without consent; what
//! is made with one is listed with it. Where several combinations of them give a range, one that
//! the
//! redundancy of the row agrees with is preferred, then fewer of them, then younger ones. Called
//! from `readable_array`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;

use md::SECTOR_BYTES;
use serde::Serialize;

use super::Source;
use super::compare::Comparison;
use super::part::Part;
use super::ranges::{Ranges, add_range, without_all};
use crate::fields::as_area;

/// Reads a part from an array sector on into a buffer; returns what of it is lost.
type ReadPart<'a> = &'a dyn Fn(&Part, u64, &mut [u8], Option<&Comparison>) -> Vec<Range<u64>>;

/// A source that nothing else must be taken from.
#[derive(Clone)]
pub struct OutOfDateSource {
    /// Where its data are.
    pub source: Source,
    /// Slot of the member.
    pub slot: usize,
    /// What it is: `d2.img (slot 2, 20 updates behind)`.
    pub what: String,
}

/// What an array has, or would have, of a member that is out of date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutOfDateRange {
    /// What the member is.
    #[serde(rename = "member")]
    pub what: String,
    /// Array sectors.
    #[serde(flatten, serialize_with = "as_area")]
    pub sectors: Range<u64>,
}

/// Combinations that are tried for a range.
const MAX_COMBINATIONS: usize = 32;

/// A range is divided into these, because each may be of another age.
const GRANULE_SECTORS: u64 = 8;

/// A part of the array with some of the members that are out of date.
struct Combination {
    part: Part,
    what: Vec<String>,
}

/// The members of an array that are out of date.
pub(super) struct OutOfDate {
    /// Of each part of the array, fewer and younger ones first.
    parts: Vec<Vec<Combination>>,
    /// Whether they serve; else what they would serve is noted.
    pub(super) may_serve: bool,
    found: Mutex<BTreeMap<String, Ranges>>,
    /// Ranges that were served and not taken yet; `None`: they are not kept.
    fresh: Mutex<Option<Vec<Range<u64>>>>,
}

impl OutOfDate {
    /// `sources` of each part, the youngest first.
    pub(super) fn new(parts: &[Part], sources: &[Vec<OutOfDateSource>]) -> OutOfDate {
        let parts = parts.iter().zip(sources).map(|(part, all)| combinations(part, all)).collect();
        let may_serve = false;
        OutOfDate { parts, may_serve, found: Mutex::default(), fresh: Mutex::default() }
    }

    /// What was served, or could have been.
    pub(super) fn found(&self) -> Vec<OutOfDateRange> {
        let found = self.found.lock().expect("the list lock is not poisoned");
        let of = |(what, ranges): (&String, &Ranges)| {
            let range = |sectors: &Range<u64>| OutOfDateRange {
                what: what.clone(),
                sectors: sectors.clone(),
            };
            ranges.list.iter().map(range).collect::<Vec<_>>()
        };
        found.iter().flat_map(of).collect()
    }

    pub(super) fn take_fresh(&self) -> Vec<Range<u64>> {
        let mut fresh = self.fresh.lock().expect("the list lock is not poisoned");
        fresh.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn track(&mut self) {
        *self.fresh.get_mut().expect("the list lock is not poisoned") = Some(Vec::new());
    }

    pub(super) fn forget(&self) {
        self.found.lock().expect("the list lock is not poisoned").clear();
        self.take_fresh();
    }

    /// Fills what is `lost` of a part, as far as these members have it, and they may serve; `at` is
    /// the array sector that `buf` begins with. Returns what stays lost. `read` reads a part from
    /// an array sector on, and returns what of it is lost.
    pub(super) fn fill(
        &self,
        part: usize,
        at: u64,
        buf: &mut [u8],
        lost: Vec<Range<u64>>,
        kernels: parity::Kernels,
        read: ReadPart<'_>,
    ) -> Vec<Range<u64>> {
        let Some(combinations) = self.parts.get(part).filter(|list| !list.is_empty()) else {
            return lost;
        };
        let mut served: Vec<Range<u64>> = Vec::new();
        for range in &lost {
            let mut from = range.start;
            while from < range.end {
                let end = ((from / GRANULE_SECTORS + 1) * GRANULE_SECTORS).min(range.end);
                if let Some((what, bytes)) = made(combinations, from, end - from, kernels, read) {
                    let first = ((from - at) * SECTOR_BYTES) as usize;
                    if self.may_serve {
                        buf[first..first + bytes.len()].copy_from_slice(&bytes);
                        add_range(&mut served, from..end);
                    }
                    let mut found = self.found.lock().expect("the list lock is not poisoned");
                    for what in what {
                        found.entry(what.clone()).or_default().insert(from..end);
                    }
                }
                from = end;
            }
        }
        let mut fresh = self.fresh.lock().expect("the list lock is not poisoned");
        fresh.iter_mut().for_each(|fresh| fresh.extend(served.iter().cloned()));
        without_all(&lost, &served)
    }
}

/// The bytes of a range by the best combination that has it, and its members.
fn made<'c>(
    combinations: &'c [Combination],
    from: u64,
    sectors: u64,
    kernels: parity::Kernels,
    read: ReadPart<'_>,
) -> Option<(&'c [String], Vec<u8>)> {
    let mut best: Option<(&[String], Vec<u8>)> = None;
    for Combination { part, what } in combinations {
        let comparison = Comparison::new(u64::MAX, kernels);
        let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
        if !read(part, from, &mut bytes, Some(&comparison)).is_empty() {
            continue;
        }
        let compared = comparison.get();
        if compared.sectors > 0 && compared.differing.is_empty() {
            return Some((what, bytes));
        }
        if best.is_none() {
            best = Some((what, bytes));
        }
    }
    best
}

/// The combinations of one source, or none, for each slot.
fn combinations(part: &Part, sources: &[OutOfDateSource]) -> Vec<Combination> {
    let mut all: Vec<Vec<usize>> = vec![Vec::new()];
    for (index, source) in sources.iter().enumerate() {
        let is_free =
            |chosen: &&Vec<usize>| chosen.iter().all(|other| sources[*other].slot != source.slot);
        let with = |chosen: &Vec<usize>| chosen.iter().copied().chain([index]).collect();
        let more: Vec<Vec<usize>> = all.iter().filter(is_free).map(with).collect();
        all.extend(more);
        all.sort_by_key(|chosen| (chosen.len(), chosen.iter().sum::<usize>()));
        all.truncate(MAX_COMBINATIONS + 1);
    }
    let combination = |chosen: &Vec<usize>| {
        let mut slots = part.slots.clone();
        for source in chosen.iter().map(|index| &sources[*index]) {
            slots.get_mut(source.slot)?.push(source.source.clone());
        }
        let what = chosen.iter().map(|index| sources[*index].what.clone()).collect();
        let (array, geometry) = (part.array.clone(), part.geometry.clone());
        Some(Combination { part: Part { array, geometry, slots }, what })
    };
    all.iter().filter(|chosen| !chosen.is_empty()).filter_map(combination).collect()
}
