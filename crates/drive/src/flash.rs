//! Owns the state of a solid drive's flash: what the SLC cache holds, where each page lies, what
//! garbage collection has to move, and how long the flash is busy with a write.
//!
//! ```text
//!   write --> SLC cache has room --> at the rate of the data sheet --> folded when the drive idles
//!         \-> it is full ---------> at the rate of three bits a cell --\
//!                                       pages --> open block --> blocks <-- garbage collection
//! ```
//!
//! - The cache takes what is written until it is full, and is emptied (*folded*) at the slower rate
//!   while nothing else is to be programmed. Written through when full, as reviews show of drives
//!   whose rate falls once and stays.
//! - A drive whose flash is *mapped* is scaled to its member: the member is the whole drive, cache
//!   and spare flash are as much smaller as it is. Pages are written to the next free place; an old
//!   copy stays until its block is collected. When few blocks are erased, the one with the fewest
//!   valid pages (greedy; Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012) is
//!   read and programmed again elsewhere, which takes its time from the host's writes.
//! - A drive that is not mapped is empty but for the member: nothing is ever to be collected.
//!
//! Invariant: a page lies in one place; a block's count of valid pages is that of its places that
//! pages lie in. Called by `solid`.

use std::collections::VecDeque;

use crate::op::{Nanos, transfer_ns};
use crate::profile::SolidNumbers;

/// What is mapped: as most drives do. Larger members are mapped in larger pages.
const PAGE_MIN: u64 = 4096;
const PAGES_MAX: u64 = 1 << 24;

/// Blocks of a scaled drive, about as many as a drive has across all its dies; and the least that a
/// block holds.
const BLOCKS: u32 = 1024;
const BLOCK_PAGES_MIN: u32 = 16;

/// Erased blocks below which garbage is collected; one of them is for what is collected.
const ERASED_MIN: usize = 3;

/// Times its capacity that a drive is written after the first time, until what is to be collected
/// changes no more.
const PRECONDITION_PASSES: u64 = 3;

/// Where a page lies that is not in a block.
const NOWHERE: u32 = u32::MAX;
const IN_CACHE: u32 = u32::MAX - 1;

/// The flash of one drive.
#[derive(Debug)]
pub(crate) struct Flash {
    cache_bytes: u64,
    /// Bytes in the SLC cache, current or not.
    cached: u64,
    cache_rate: u64,
    direct_rate: u64,
    read_rate: u64,
    /// Time in which nothing was programmed, not yet used for folding.
    idle: Nanos,
    map: Option<Map>,
}

/// Pages and blocks of a drive that is scaled to its member.
#[derive(Debug)]
struct Map {
    page_bytes: u64,
    /// Page -> place.
    places: Vec<u32>,
    /// Place -> page.
    owners: Vec<u32>,
    valid: Vec<u32>,
    block_pages: u32,
    erased: Vec<u32>,
    /// The blocks that are being filled, by the host and by collection, and how far.
    open: [(u32, u32); 2],
    /// What was put into the cache, in order.
    cache: VecDeque<u32>,
}

const HOST: usize = 0;
const COLLECTION: usize = 1;

impl Flash {
    /// Erased flash. `member_bytes`: of a drive that is scaled to its member.
    pub fn new(numbers: &SolidNumbers, capacity: u64, member_bytes: Option<u64>) -> Flash {
        let scaled = |bytes: u64, member: u64| {
            (u128::from(bytes) * u128::from(member) / u128::from(capacity.max(1))) as u64
        };
        let cache_bytes = numbers.slc_cache_bytes;
        Flash {
            cache_bytes: member_bytes.map_or(cache_bytes, |member| scaled(cache_bytes, member)),
            cached: 0,
            cache_rate: numbers.program_bytes_per_s,
            direct_rate: numbers.direct_bytes_per_s,
            read_rate: numbers.read_bytes_per_s,
            idle: 0,
            map: member_bytes.map(|member| Map::new(member, numbers.spare)),
        }
    }

    /// The drive has had nothing to program for so long: the cache is folded.
    pub fn idle(&mut self, time: Nanos) {
        self.idle += time;
        while self.cached > 0 {
            let bytes = self.map.as_ref().map_or(self.cached, |map| map.page_bytes);
            let bytes = bytes.min(self.cached);
            let needed = transfer_ns(bytes, self.direct_rate);
            if self.idle < needed && self.map.is_some() {
                return;
            }
            let folded = if self.idle < needed {
                (u128::from(self.idle) * u128::from(self.direct_rate) / 1_000_000_000) as u64
            } else {
                bytes
            };
            self.idle = self.idle.saturating_sub(needed);
            self.cached -= folded;
            let moved = self.map.as_mut().map_or(0, Map::fold_one);
            self.idle = self.idle.saturating_sub(self.moving(moved));
            if folded < bytes {
                break;
            }
        }
        self.idle = 0;
    }

    /// Programs `bytes` at a member address; returns how long the flash is busy with it.
    pub fn program(&mut self, at: u64, bytes: u64) -> Nanos {
        // Idle time is over; what it did not finish of a page is not begun.
        self.idle = 0;
        let cached = self.cached + bytes <= self.cache_bytes;
        let mut moved = 0;
        if let Some(map) = &mut self.map {
            for page in map.pages(at, bytes) {
                if cached {
                    map.put_into_cache(page);
                } else {
                    moved += map.write(page, HOST);
                }
            }
        }
        if cached {
            self.cached += bytes;
            return transfer_ns(bytes, self.cache_rate);
        }
        transfer_ns(bytes, self.direct_rate) + self.moving(moved)
    }

    /// Time to read `pages` pages and to program them elsewhere.
    fn moving(&self, pages: u64) -> Nanos {
        let bytes = self.map.as_ref().map_or(0, |map| map.page_bytes) * pages;
        transfer_ns(bytes, self.read_rate) + transfer_ns(bytes, self.direct_rate)
    }

    /// The range holds nothing any more.
    pub fn discard(&mut self, at: u64, bytes: u64) {
        if let Some(map) = &mut self.map {
            let page = map.page_bytes;
            for page in at.div_ceil(page)..(at + bytes) / page {
                map.leave(page as u32);
            }
        }
    }

    /// Brings a mapped drive where writing brings it in the long run, in no time: all of it in
    /// order, then so often again in order or at random. Others stay as they are.
    pub fn precondition(&mut self, random: bool) {
        let Some(map) = &mut self.map else { return };
        let pages = map.places.len() as u64;
        let mut state = 0u64;
        for write in 0..(1 + PRECONDITION_PASSES) * pages {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let any = (u128::from(state) * u128::from(pages)) >> 64;
            let page = if random && write >= pages { any as u64 } else { write % pages };
            map.write(page as u32, HOST);
        }
        (self.cached, self.idle) = (self.cache_bytes, 0);
    }
}

impl Map {
    fn new(member_bytes: u64, spare: f64) -> Map {
        let member = member_bytes.max(PAGE_MIN);
        let page_bytes = member.div_ceil(PAGES_MAX).next_power_of_two().max(PAGE_MIN);
        let pages = member.div_ceil(page_bytes) as u32;
        let with_spare = (f64::from(pages) * (1.0 + spare)).ceil() as u32;
        let block_pages = (with_spare / BLOCKS).max(BLOCK_PAGES_MIN);
        let least = pages.div_ceil(block_pages) + ERASED_MIN as u32 + 2;
        let blocks = with_spare.div_ceil(block_pages).max(least);
        Map {
            page_bytes,
            places: vec![NOWHERE; pages as usize],
            owners: vec![NOWHERE; (blocks * block_pages) as usize],
            valid: vec![0; blocks as usize],
            block_pages,
            erased: (2..blocks).rev().collect(),
            open: [(0, 0), (1, 0)],
            cache: VecDeque::new(),
        }
    }

    fn pages(&self, at: u64, bytes: u64) -> std::ops::Range<u32> {
        (at / self.page_bytes) as u32..(at + bytes).div_ceil(self.page_bytes) as u32
    }

    /// The page's place holds nothing that counts any more.
    fn leave(&mut self, page: u32) {
        let place = std::mem::replace(&mut self.places[page as usize], NOWHERE);
        if place < IN_CACHE {
            self.owners[place as usize] = NOWHERE;
            self.valid[(place / self.block_pages) as usize] -= 1;
        }
    }

    fn put_into_cache(&mut self, page: u32) {
        self.leave(page);
        self.places[page as usize] = IN_CACHE;
        self.cache.push_back(page);
    }

    /// Moves the oldest page of the cache into a block, if it still is what counts; returns how
    /// many pages were moved for it.
    fn fold_one(&mut self) -> u64 {
        match self.cache.pop_front() {
            Some(page) if self.places[page as usize] == IN_CACHE => self.write(page, HOST),
            _ => 0,
        }
    }

    /// Writes a page to an open block; returns how many pages were moved to make room.
    fn write(&mut self, page: u32, open: usize) -> u64 {
        self.leave(page);
        let mut moved = 0;
        if self.open[open].1 == self.block_pages {
            if open == HOST {
                moved = self.collect();
            }
            let block = self.erased.pop().expect("collection leaves an erased block");
            self.open[open] = (block, 0);
        }
        let (block, used) = &mut self.open[open];
        let place = *block * self.block_pages + *used;
        *used += 1;
        self.valid[*block as usize] += 1;
        self.owners[place as usize] = page;
        self.places[page as usize] = place;
        moved
    }

    /// Collects garbage until enough blocks are erased; returns how many pages were moved.
    fn collect(&mut self) -> u64 {
        let mut moved = 0;
        while self.erased.len() < ERASED_MIN {
            let is_open = |block: u32| self.open.iter().any(|(open, _)| *open == block);
            let is_erased = |block: u32| self.erased.contains(&block);
            let blocks = (0..self.valid.len() as u32).filter(|b| !is_open(*b) && !is_erased(*b));
            let victim = blocks.min_by_key(|block| self.valid[*block as usize]);
            let victim = victim.expect("there are more blocks than open and erased ones");
            for place in victim * self.block_pages..(victim + 1) * self.block_pages {
                let page = self.owners[place as usize];
                if page != NOWHERE {
                    self.write(page, COLLECTION);
                    moved += 1;
                }
            }
            self.erased.push(victim);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// What a map must be whatever was done to it.
    fn check(map: &Map) {
        let mut valid = vec![0; map.valid.len()];
        for (page, &place) in map.places.iter().enumerate() {
            if place < IN_CACHE {
                assert_eq!(map.owners[place as usize], page as u32);
                valid[(place / map.block_pages) as usize] += 1;
            }
        }
        assert_eq!(valid, map.valid);
        let owned = map.owners.iter().filter(|owner| **owner != NOWHERE).count() as u32;
        assert_eq!(owned, valid.iter().sum::<u32>(), "a place without its page");
    }

    #[test]
    fn pages_are_where_the_map_says_after_any_writes_and_discards() {
        let mut map = Map::new(16 * MIB, 0.07);
        let pages = map.places.len() as u32;
        let mut state = 1u32;
        for step in 0..60_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let page = ((u64::from(state) * u64::from(pages)) >> 32) as u32;
            match step % 10 {
                0..=6 => drop(map.write(page, HOST)),
                7 => map.put_into_cache(page),
                8 => drop(map.fold_one()),
                _ => map.leave(page),
            }
            if step % 5000 == 0 {
                check(&map);
            }
        }
        check(&map);
    }

    #[test]
    fn random_writes_move_as_many_pages_as_the_spare_flash_lets_expect() {
        for (spare, amplification) in [(0.07, 4.5..8.0), (0.28, 1.9..2.8)] {
            let mut map = Map::new(64 * MIB, spare);
            let pages = map.places.len() as u64;
            let (mut state, mut moved) = (1u64, 0);
            for write in 0..6 * pages {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let page = ((u128::from(state) * u128::from(pages)) >> 64) as u32;
                let pages_moved = map.write(page, HOST);
                moved += if write >= 4 * pages { pages_moved } else { 0 };
            }
            // Greedy and uniform: at most (1 + spare) / (2 x spare), 7.6 and 2.3 (Desnoyers 2012).
            let found = 1.0 + moved as f64 / (2 * pages) as f64;
            assert!(amplification.contains(&found), "{spare}: {found}");
        }
    }

    #[test]
    fn writing_in_order_moves_nothing() {
        let mut map = Map::new(64 * MIB, 0.07);
        let pages = map.places.len() as u32;
        let moved: u64 = (0..5 * pages).map(|write| map.write(write % pages, HOST)).sum();
        assert_eq!(moved, 0);
    }
}
