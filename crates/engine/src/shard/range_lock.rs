//! Locks on array ranges, for the levels whose writes need no parity.
//!
//! Invariant: two holders never overlap (in 4 KiB granules), and overlapping ranges are granted in
//! the order of their requests. Called only from `non_parity`.
//!
//! Nearly no write overlaps another, so that case must be cheap: a small table counts the holders
//! and waiters per 1 MiB region (hashed). The ranges themselves are compared only where a count is
//! not zero.

use std::collections::VecDeque;

use md::Sector;

use crate::GRANULE_SECTORS;

/// 1 MiB.
const REGION_SHIFT: u32 = 11;
const REGIONS: usize = 1024;

/// Index of a holder's range; kept in the holder's own record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HolderSlot(u32);

#[derive(Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    fn new(at: Sector, sectors: u64) -> Span {
        let end = (at.0 + sectors.max(1)).div_ceil(GRANULE_SECTORS) * GRANULE_SECTORS;
        Span { start: at.0 / GRANULE_SECTORS * GRANULE_SECTORS, end }
    }

    fn overlaps(self, other: Span) -> bool {
        self.start < other.end && other.start < self.end
    }

    fn regions(self) -> impl Iterator<Item = usize> {
        let last = (self.end - 1) >> REGION_SHIFT;
        let first = self.start >> REGION_SHIFT;
        // A long range counts once at most in every hashed region.
        (first..=last.min(first + REGIONS as u64 - 1)).map(|region| region as usize % REGIONS)
    }
}

pub(crate) struct RangeLocks {
    touched: Box<[u32; REGIONS]>,
    held: Vec<Option<Span>>,
    free: Vec<u32>,
    waiting: VecDeque<(Span, u32)>,
}

impl RangeLocks {
    pub(crate) fn new() -> RangeLocks {
        RangeLocks {
            touched: Box::new([0; REGIONS]),
            held: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Grants the range to `owner` now, or queues the owner and returns `None`.
    pub(crate) fn acquire(&mut self, at: Sector, sectors: u64, owner: u32) -> Option<HolderSlot> {
        let span = Span::new(at, sectors);
        let quiet = span.regions().all(|region| self.touched[region] == 0);
        for region in span.regions() {
            self.touched[region] += 1;
        }
        let free = quiet
            || !(self.held.iter().flatten().any(|held| held.overlaps(span))
                || self.waiting.iter().any(|(waiting, _)| waiting.overlaps(span)));
        if free {
            return Some(self.hold(span));
        }
        self.waiting.push_back((span, owner));
        None
    }

    /// Releases a range and appends to `granted` the owners that get theirs now.
    pub(crate) fn release(&mut self, slot: HolderSlot, granted: &mut Vec<(u32, HolderSlot)>) {
        let span = self.held[slot.0 as usize].take().expect("a holder releases once");
        self.free.push(slot.0);
        for region in span.regions() {
            self.touched[region] -= 1;
        }
        let mut at = 0;
        while at < self.waiting.len() {
            let (wanted, owner) = self.waiting[at];
            if !wanted.overlaps(span) {
                // It waits for another range.
                at += 1;
                continue;
            }
            let behind = self.waiting.iter().take(at).any(|(earlier, _)| earlier.overlaps(wanted));
            if behind || self.held.iter().flatten().any(|held| held.overlaps(wanted)) {
                at += 1;
                continue;
            }
            self.waiting.remove(at);
            let slot = self.hold(wanted);
            granted.push((owner, slot));
        }
    }

    fn hold(&mut self, span: Span) -> HolderSlot {
        match self.free.pop() {
            Some(slot) => {
                self.held[slot as usize] = Some(span);
                HolderSlot(slot)
            }
            None => {
                self.held.push(Some(span));
                HolderSlot(self.held.len() as u32 - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_granted_in_order_of_asking() {
        let mut guard = RangeLocks::new();
        let first = guard.acquire(Sector(0), 8, 1).expect("the range is free");
        assert!(guard.acquire(Sector(4), 16, 2).is_none());
        // Behind 2 although it does not touch 1.
        assert!(guard.acquire(Sector(16), 8, 3).is_none());
        let far = guard.acquire(Sector(1 << 30), 8, 4).expect("far from all others");
        let mut granted = Vec::new();
        guard.release(far, &mut granted);
        assert!(granted.is_empty());
        guard.release(first, &mut granted);
        assert_eq!(granted.iter().map(|(owner, _)| *owner).collect::<Vec<_>>(), [2]);
        let second = granted.pop().expect("granted above").1;
        guard.release(second, &mut granted);
        assert_eq!(granted.iter().map(|(owner, _)| *owner).collect::<Vec<_>>(), [3]);
        guard.release(granted[0].1, &mut Vec::new());
        assert!(guard.touched.iter().all(|count| *count == 0));
    }

    #[test]
    fn neighbours_in_one_granule_exclude_each_other() {
        let mut guard = RangeLocks::new();
        assert!(guard.acquire(Sector(8), 1, 1).is_some());
        assert!(guard.acquire(Sector(9), 1, 2).is_none());
        assert!(guard.acquire(Sector(16), 1, 3).is_some());
    }
}
