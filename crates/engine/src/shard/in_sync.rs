//! The sync map: which ranges of the chunk rows are in sync (parity matches the data).
//!
//! ```text
//! positions   |--------|~~~~~~~~~~~~~~~~~~~|------------|
//!               in sync   unsynced at start    in sync
//!                  ^stale      ^generated
//! ```
//! The array starts with out-of-sync ranges: above the position of a resync, or under the bits of a
//! bitmap. Inside them, ranges for which parity was generated since, or compared by a resync, are
//! in sync; outside them, ranges that a write left half-way are not. A resync raises the position,
//! and the ranges below it are dropped from the first list.
//!
//! Invariant: a range counts as in sync only where parity was generated from the members' data,
//! compared with them, or matched when the array started, and every write since then has completed
//! or kept it so. Memory is one bit per block in pages that differ from their surroundings: at most
//! 32 MiB per TiB of a member with blocks of 4 KiB, and 256 MiB with blocks of 512 bytes, if the
//! whole array is written at random ahead of its resync. Called only from `ops` and `shard`.

use std::collections::BTreeMap;
use std::ops::Range;

use md::MemberIdx;

use crate::MemberSet;

/// Blocks of a page.
const PAGE: u64 = 4096;
const WORDS: usize = PAGE as usize / 64;

/// How much of a range is in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InSync {
    /// All of it is in sync.
    #[default]
    All,
    /// A part of it is in sync.
    Part,
    /// No part of it is in sync.
    Nothing,
}

pub(crate) struct SyncMap {
    /// Sectors of a block.
    block: u64,
    /// Ranges that were out of sync when the array started and that no resync has passed:
    /// ascending, in sectors.
    unsynced: Vec<Range<u64>>,
    /// Blocks of these ranges for which parity was generated since.
    generated: Blocks,
    /// Blocks left half-way by writes, anywhere.
    stale: Blocks,
    /// See [`crate::ShardConfig::missing_by_force`].
    missing_by_force: MemberSet,
    /// Of those that were being rebuilt at the start: what was out of sync. Elsewhere their own
    /// blocks were served, and parity, which may not match, does not define them.
    lacking_by_force: Vec<(u16, Vec<Range<u64>>)>,
}

impl SyncMap {
    /// `unsynced`: ascending out-of-sync ranges of sectors; `missing_by_force`: see
    /// [`crate::ShardConfig::missing_by_force`].
    pub(crate) fn new(
        unsynced: &[Range<u64>],
        block_sectors: u64,
        missing_by_force: MemberSet,
    ) -> SyncMap {
        debug_assert!(unsynced.is_sorted_by(|a, b| a.end <= b.start));
        SyncMap {
            block: block_sectors,
            unsynced: unsynced.iter().filter(|range| !range.is_empty()).cloned().collect(),
            generated: Blocks::default(),
            stale: Blocks::default(),
            missing_by_force,
            lacking_by_force: Vec::new(),
        }
    }

    /// Members that were being rebuilt at the start, and what was out of sync.
    pub(crate) fn with_rebuilding(
        mut self,
        rebuilding: &[(MemberIdx, Vec<Range<u64>>)],
    ) -> SyncMap {
        let of = rebuilding.iter().map(|(member, ranges)| (member.0, ranges.clone()));
        self.lacking_by_force = of.filter(|(it, _)| self.missing_by_force.contains(*it)).collect();
        self
    }

    /// The state of a range, which must not be empty.
    #[inline]
    pub(crate) fn state(&self, range: Range<u64>) -> InSync {
        if self.unsynced.is_empty() && self.stale.is_empty() {
            return InSync::All;
        }
        self.look_up(range)
    }

    fn look_up(&self, range: Range<u64>) -> InSync {
        let Range { start, end } = self.blocks(&range);
        let sectors = start * self.block..end * self.block;
        let first = self.unsynced.partition_point(|unsynced| unsynced.end <= sectors.start);
        let (mut at, mut good) = (start, 0);
        for unsynced in self.unsynced[first..].iter().take_while(|it| it.start < sectors.end) {
            let inside = self.blocks(unsynced);
            let inside = inside.start.max(at)..inside.end.min(end).max(at);
            good += inside.start - at - self.stale.count(at..inside.start);
            // What is generated is not stale.
            good += self.generated.count(inside.clone());
            at = inside.end;
        }
        good += end - at - self.stale.count(at..end);
        match good {
            0 => InSync::Nothing,
            _ if good == end - start => InSync::All,
            _ => InSync::Part,
        }
    }

    /// The members whose blocks parity defines in this range, as long as no others are lost.
    pub(crate) fn defined_by_parity(&self, range: Range<u64>) -> MemberSet {
        let is_stale = || self.blocks(&range).any(|block| self.stale.has(block));
        match self.missing_by_force.is_empty() || is_stale() {
            true => MemberSet::EMPTY,
            false => {
                let served = self.lacking_by_force.iter().filter(|(_, lacking)| {
                    !lacking.iter().any(|it| it.start <= range.start && range.end <= it.end)
                });
                let served: MemberSet = served.map(|(member, _)| *member).collect();
                self.missing_by_force.minus(served)
            }
        }
    }

    /// Parity of the range has been generated from the members' data.
    #[inline]
    pub(crate) fn set(&mut self, range: Range<u64>) {
        if self.unsynced.is_empty() && self.stale.is_empty() {
            return;
        }
        let blocks = self.blocks(&range);
        self.stale.remove_all(blocks.clone());
        let first = self.unsynced.partition_point(|unsynced| unsynced.end <= range.start);
        for unsynced in self.unsynced[first..].iter().take_while(|it| it.start < range.end) {
            let inside = self.blocks(unsynced);
            let inside = inside.start.max(blocks.start)..inside.end.min(blocks.end);
            self.generated.insert_all(inside);
        }
    }

    /// A write to the range has failed half-way.
    pub(crate) fn clear(&mut self, range: Range<u64>) {
        let blocks = self.blocks(&range);
        self.stale.insert_all(blocks.clone());
        self.generated.remove_all(blocks);
    }

    /// A resync has passed this position: below it, only ranges left half-way since are out of
    /// sync.
    pub(crate) fn resynced_below(&mut self, position: u64) {
        if self.unsynced.first().is_none_or(|range| range.start >= position) {
            return;
        }
        let passed = self.unsynced.partition_point(|range| range.end <= position);
        self.unsynced.drain(..passed);
        if let Some(first) = self.unsynced.first_mut() {
            first.start = first.start.max(position);
        }
        match self.unsynced.is_empty() {
            true => self.generated = Blocks::default(),
            false => self.generated.remove_pages_below(position / self.block),
        }
    }

    /// Writes may have been lost anywhere below this position.
    pub(crate) fn doubt_all(&mut self, span: u64) {
        self.missing_by_force = MemberSet::EMPTY;
        self.unsynced.clear();
        self.unsynced.push(0..span);
        self.generated = Blocks::default();
    }

    fn blocks(&self, range: &Range<u64>) -> Range<u64> {
        debug_assert!(!range.is_empty());
        range.start / self.block..range.end.div_ceil(self.block)
    }
}

/// A set of blocks, in pages.
#[derive(Default)]
struct Blocks(BTreeMap<u64, Box<[u64; WORDS]>>);

impl Blocks {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, block: u64) -> bool {
        self.count(block..block + 1) > 0
    }

    /// How many blocks of a range it has. Costs a step per word.
    fn count(&self, blocks: Range<u64>) -> u64 {
        if self.0.is_empty() {
            return 0;
        }
        let mut all = 0;
        for (number, bits) in pages(blocks) {
            let Some(page) = self.0.get(&number) else { continue };
            each_word(bits, |word, mask| all += u64::from((page[word] & mask).count_ones()));
        }
        all
    }

    /// Costs a step per word, and memory for each page that it touches.
    fn insert_all(&mut self, blocks: Range<u64>) {
        for (number, bits) in pages(blocks) {
            let page = self.0.entry(number).or_insert_with(|| Box::new([0; WORDS]));
            each_word(bits, |word, mask| page[word] |= mask);
        }
    }

    /// Costs a step per page that has blocks.
    fn remove_all(&mut self, blocks: Range<u64>) {
        if self.0.is_empty() || blocks.is_empty() {
            return;
        }
        let numbers = blocks.start / PAGE..=(blocks.end - 1) / PAGE;
        let touched: Vec<u64> = self.0.range(numbers).map(|(number, _)| *number).collect();
        for number in touched {
            let page = self.0.get_mut(&number).expect("it was found above");
            let start = number * PAGE;
            let bits = blocks.start.max(start) - start..blocks.end.min(start + PAGE) - start;
            each_word(bits, |word, mask| page[word] &= !mask);
            if page.iter().all(|word| *word == 0) {
                self.0.remove(&number);
            }
        }
    }

    /// Of the page that `block` lies in, everything stays.
    fn remove_pages_below(&mut self, block: u64) {
        self.0 = self.0.split_off(&(block / PAGE));
    }
}

/// The pages of a range of blocks, each with the part of it.
fn pages(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let mut at = blocks.start;
    std::iter::from_fn(move || {
        let number = at / PAGE;
        let end = blocks.end.min((number + 1) * PAGE);
        let part = (at < blocks.end).then(|| (number, at % PAGE..end - number * PAGE));
        at = end;
        part
    })
}

/// The words of a range of bits of a page, each with the mask of its bits.
fn each_word(bits: Range<u64>, mut act: impl FnMut(usize, u64)) {
    let mut at = bits.start;
    while at < bits.end {
        let end = bits.end.min((at / 64 + 1) * 64);
        let mask = u64::MAX >> (64 - (end - at)) << (at % 64);
        act((at / 64) as usize, mask);
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_sync_at_the_start_stay_so_until_a_write_fails_half_way() {
        let mut map = SyncMap::new(&[], 1, MemberSet::EMPTY);
        assert_eq!(map.state(0..1 << 40), InSync::All);
        map.clear(100..108);
        assert_eq!(map.state(100..108), InSync::Nothing);
        assert_eq!(map.state(96..104), InSync::Part);
        assert_eq!(map.state(108..200), InSync::All);
        map.resynced_below(1000);
        assert_eq!(map.state(100..108), InSync::Nothing, "the resync may have passed before");
        map.set(100..104);
        assert_eq!(map.state(100..108), InSync::Part);
        map.set(96..112);
        assert!(map.stale.is_empty() && map.generated.is_empty());
    }

    #[test]
    fn ranges_generated_ahead_of_a_resync_are_in_sync() {
        let mut map = SyncMap::new(&[64..128, 4096..1 << 30], 8, MemberSet::EMPTY);
        assert_eq!(map.state(0..64), InSync::All);
        assert_eq!(map.state(56..72), InSync::Part);
        assert_eq!(map.state(64..128), InSync::Nothing);
        assert_eq!(map.state(128..4096), InSync::All);
        map.set(1 << 20..(1 << 20) + 16);
        assert_eq!(map.state(1 << 20..(1 << 20) + 16), InSync::All);
        assert_eq!(map.state(1 << 20..(1 << 20) + 24), InSync::Part);
        map.clear(1 << 20..(1 << 20) + 8);
        assert_eq!(map.state(1 << 20..(1 << 20) + 16), InSync::Part);
        map.resynced_below(1 << 29);
        assert_eq!(map.state(64..1 << 20), InSync::All);
        assert_eq!(map.state(1 << 20..(1 << 20) + 8), InSync::Nothing);
        assert_eq!(map.state(1 << 29..(1 << 29) + 8), InSync::Nothing);
        map.set(1 << 20..(1 << 20) + 8);
        map.resynced_below(1 << 30);
        assert_eq!(map.state(0..1 << 30), InSync::All);
        assert!(map.unsynced.is_empty() && map.generated.is_empty() && map.stale.is_empty());
    }

    /// Against one bit after the other.
    #[test]
    fn long_ranges_are_set_and_cleared_to_the_block() {
        let edges = [0, 1, 63, 64, 65, 4095, 4096, 4097, 8192, 12_300];
        for (from, to) in edges.iter().flat_map(|from| edges.map(|to| (*from, to))) {
            let mut blocks = Blocks::default();
            blocks.insert_all(from..to.max(from));
            (0..13_000).for_each(|at| assert_eq!(blocks.has(at), from <= at && at < to, "{at}"));
            blocks.insert_all(0..13_000);
            blocks.remove_all(from..to.max(from));
            (0..13_000).for_each(|at| assert_eq!(blocks.has(at), at < from || at >= to, "{at}"));
            blocks.remove_all(0..13_000);
            assert!(blocks.is_empty());
        }
    }

    /// The state of a range, one block after the other.
    fn by_blocks(map: &SyncMap, range: Range<u64>) -> InSync {
        let is_good = |block: u64| {
            let (start, end) = (block * map.block, (block + 1) * map.block);
            let inside = map.unsynced.iter().any(|it| it.start < end && start < it.end);
            !map.stale.has(block) && (!inside || map.generated.has(block))
        };
        let good = map.blocks(&range).filter(|block| is_good(*block)).count() as u64;
        match map.blocks(&range) {
            _ if good == 0 => InSync::Nothing,
            blocks if good == blocks.end - blocks.start => InSync::All,
            _ => InSync::Part,
        }
    }

    #[test]
    fn the_state_of_a_range_is_that_of_its_blocks() {
        for seed in 0..200 {
            let mut rng = testkit::Rng::new(seed);
            let mut edges: Vec<u64> = (0..6).map(|_| rng.below(40_000)).collect();
            edges.sort_unstable();
            let unsynced: Vec<Range<u64>> =
                edges.chunks(2).map(|pair| pair[0]..pair[1]).filter(|it| !it.is_empty()).collect();
            let mut map = SyncMap::new(&unsynced, [1, 8][seed as usize % 2], MemberSet::EMPTY);
            for _ in 0..60 {
                let start = rng.below(40_000);
                let range = start..start + 1 + {
                    let most = rng.pick(&[10, 200, 9_000]);
                    rng.below(most)
                };
                match rng.below(8) {
                    0 | 1 => map.set(range),
                    2 => map.clear(range),
                    3 => map.resynced_below(start / 8 * 8 / 4),
                    _ => assert_eq!(map.state(range.clone()), by_blocks(&map, range)),
                }
            }
        }
    }

    #[test]
    fn a_position_inside_a_page_keeps_the_blocks_behind_it() {
        let mut map = SyncMap::new(std::slice::from_ref(&(0..10_000)), 1, MemberSet::EMPTY);
        map.set(5_000..5_001);
        map.resynced_below(4_500);
        assert_eq!(map.state(5_000..5_001), InSync::All);
        assert_eq!(map.state(5_001..5_002), InSync::Nothing);
    }
}
