//! The write-intent bitmap: which bits are requested, which are durable, and which may be cleared.
//!
//! Invariant: `durable` holds only bits that are set on every serving member, and a bit is in
//! `image` from before it is granted until all data under it are durable. Bits fade: a bit that no
//! shard holds is cleared after two whole daemon periods, as in md. Called only from `manager`.

use std::ops::Range;
use std::sync::Arc;

use super::event_counts::HeaderCounts;
use super::types::{BITMAP_PAGE_BYTES, BitmapPage, ManagedBitmap};
use crate::IntentMap;

/// Header bytes in page 0.
const HEADER_BYTES: usize = 256;

/// Daemon ticks for which a bit must be unused before it is cleared: the first tick may come
/// immediately, so that two whole periods lie between the first and the last.
const FADED: u8 = 3;

/// The most bits that are set together with one that a request needs.
const MOST_AHEAD: u32 = 1024;
/// Intervals without new bits after which none is set ahead any more.
const RESTS: u64 = 10;

/// A set of bits.
struct Set(Vec<u64>);

impl Set {
    fn new(bits: u32) -> Set {
        Set(vec![0; bits.div_ceil(64) as usize])
    }

    fn has(&self, bit: u32) -> bool {
        self.0[bit as usize / 64] >> (bit % 64) & 1 == 1
    }

    fn insert(&mut self, bit: u32) {
        self.0[bit as usize / 64] |= 1 << (bit % 64);
    }

    fn remove(&mut self, bit: u32) {
        self.0[bit as usize / 64] &= !(1 << (bit % 64));
    }

    fn byte(&self, at: usize) -> u8 {
        self.0.get(at / 8).map_or(0, |word| (word >> (at % 8 * 8)) as u8)
    }

    /// Bits beyond the last one are never requested.
    fn insert_byte(&mut self, at: usize, byte: u8) {
        if let Some(word) = self.0.get_mut(at / 8) {
            *word |= u64::from(byte) << (at % 8 * 8);
        }
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

pub(super) struct Bits {
    count: u32,
    /// Bits that the members should have.
    image: Set,
    /// Bits that every serving member is known to have.
    durable: Set,
    /// Bits to be resynced: not cleared before a resync has passed.
    needed: Set,
    /// Bits requested since the current clearing began.
    touched: Set,
    /// Bits that no shard held when they were added; each at most once.
    fading: Vec<u32>,
    listed: Set,
    /// By bit: ticks since it was released.
    ticks: Vec<u8>,
    /// Bits of the current clearing.
    clearing: Vec<u32>,
    /// Bits that the last clearing has cleared.
    cleared: Vec<u32>,
    /// Pages that a device lacks: it has joined the array.
    unwritten: Vec<u32>,
    pub(super) counts: HeaderCounts,
    /// The header on the members is older than their superblocks, so that the bits are not trusted.
    stale: bool,
    pub(super) sleep_nanos: u64,
    pub(super) next_tick: Option<u64>,
    /// Bits that are set together, and when bits were set last.
    ahead: u32,
    set_at: Option<u64>,
}

impl Bits {
    /// Starts from the bitmap read from one member: the others may have other bits after a crash,
    /// so no bit counts as durable before it has been written to all. `resync`: the position from
    /// which on set bits need a resync; `None`: set bits just have not been cleared yet.
    pub(super) fn new(kept: &ManagedBitmap, map: &IntentMap, resync: Option<u64>) -> Bits {
        let count = map.bits();
        let set = || Set::new(count);
        let mut bits = Bits {
            count,
            image: set(),
            durable: set(),
            needed: set(),
            touched: set(),
            fading: Vec::new(),
            listed: set(),
            ticks: vec![0; count as usize],
            clearing: Vec::new(),
            cleared: Vec::new(),
            unwritten: Vec::new(),
            counts: HeaderCounts::start(kept.events_cleared),
            stale: kept.stale,
            sleep_nanos: kept.daemon_sleep_nanos.max(1),
            next_tick: None,
            ahead: 1,
            set_at: None,
        };
        for bit in 0..count {
            let byte = kept.bits.get(bit as usize / 8).copied().unwrap_or(0xff);
            if kept.stale || byte >> (bit % 8) & 1 == 1 {
                bits.image.insert(bit);
                if resync.is_some_and(|from| map.positions(bit).end > from) {
                    bits.needed.insert(bit);
                } else {
                    bits.fade(bit);
                }
            }
        }
        bits
    }

    /// Whether no bit was cleared that a member with this event count has not seen.
    pub(super) fn covers(&self, events: u64) -> bool {
        !self.stale && self.counts.covers(events)
    }

    /// A device has joined the array, whose bitmap may say anything.
    pub(super) fn write_all(&mut self) {
        self.unwritten = (0..=page_of(self.count.saturating_sub(1))).collect();
    }

    /// Whether the members should have the bit.
    pub(super) fn has(&self, bit: u32) -> bool {
        self.image.has(bit)
    }

    pub(super) fn set_bits(&self) -> u64 {
        self.image.len()
    }

    /// Whether the members' header marks the bitmap as stale. Then it must stay so until all bits
    /// are on all members.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Header and bits are on all members.
    pub(super) fn header_done(&mut self) {
        self.stale = false;
    }

    /// A shard requests the bit for a write.
    pub(super) fn want(&mut self, bit: u32) {
        self.image.insert(bit);
        self.touched.insert(bit);
        // It may be fading: restart its count.
        self.ticks[bit as usize] = 0;
    }

    /// Bits are set at time `now`: the size of the aligned blocks of bits that are set together. It
    /// doubles while bits are set more often than every `within` nanoseconds, so that a burst of
    /// writes waits a few times and not for each bit; a rest ends that.
    pub(super) fn ahead(&mut self, now: u64, within: u64) -> u32 {
        let since = self.set_at.replace(now).map_or(u64::MAX, |at| now.saturating_sub(at));
        if since < within {
            self.ahead = (2 * self.ahead).min(MOST_AHEAD);
        } else if since > RESTS * within {
            self.ahead = 1;
        }
        self.ahead
    }

    /// Sets the bits of the aligned blocks of `size` bits that these bits are in. Those that no
    /// shard requests fade, as others do.
    pub(super) fn set_around(&mut self, bits: Range<u32>, size: u32) {
        let first = bits.start / size * size;
        let end = bits.end.next_multiple_of(size).min(self.count);
        for bit in first..end {
            if !self.image.has(bit) {
                self.image.insert(bit);
                self.touched.insert(bit);
                self.fade(bit);
            }
        }
    }

    /// Whether the bit is on all members.
    pub(super) fn is_durable(&self, bit: u32) -> bool {
        self.durable.has(bit)
    }

    /// No shard holds the bit any more. A bit that needs a resync stays until the resync has passed
    /// it.
    pub(super) fn fade(&mut self, bit: u32) {
        self.ticks[bit as usize] = 0;
        if !self.listed.has(bit) && !self.needed.has(bit) {
            self.listed.insert(bit);
            self.fading.push(bit);
        }
    }

    /// Redundancy was lost under the bit.
    pub(super) fn need(&mut self, bit: u32) {
        self.image.insert(bit);
        self.needed.insert(bit);
    }

    pub(super) fn is_needed(&self, bit: u32) -> bool {
        self.needed.has(bit)
    }

    /// A resync has passed the bit; `held`: by a shard.
    pub(super) fn resynced(&mut self, bit: u32, held: bool) {
        if self.needed.has(bit) {
            self.needed.remove(bit);
            if !held {
                self.fade(bit);
            }
        }
    }

    /// Whether there are bits that may be cleared later.
    pub(super) fn is_fading(&self) -> bool {
        !self.fading.is_empty()
    }

    /// The daemon's tick.
    pub(super) fn tick(&mut self, held: impl Fn(u32) -> bool) {
        let Bits { fading, listed, needed, ticks, .. } = self;
        fading.retain(|bit| {
            let stays = !held(*bit) && !needed.has(*bit);
            if stays {
                ticks[*bit as usize] = (ticks[*bit as usize] + 1).min(FADED);
            } else {
                listed.remove(*bit);
            }
            stays
        });
    }

    /// Bits that have faded; `at_once`: without waiting.
    fn faded(&self, at_once: bool) -> impl Iterator<Item = u32> {
        let old = move |bit: &u32| {
            (at_once || self.ticks[*bit as usize] >= FADED) && !self.needed.has(*bit)
        };
        self.fading.iter().copied().filter(old)
    }

    /// Whether bits have faded.
    pub(super) fn has_faded(&self, at_once: bool) -> bool {
        self.faded(at_once).next().is_some()
    }

    /// Begins to clear faded bits. The data under them must be made durable next.
    pub(super) fn begin_clearing(&mut self, at_once: bool) {
        self.clearing = self.faded(at_once).collect();
        self.cleared.clear();
        self.touched.0.fill(0);
    }

    /// A member is lost. The error of a flush is reported once: a shard may have got what the flush
    /// of the last clearing should have, so that the member lacks data under bits that are clear.
    /// They are set again, for the member may come back by the bitmap.
    pub(super) fn member_lost(&mut self) {
        for bit in std::mem::take(&mut self.cleared) {
            if !self.image.has(bit) {
                self.image.insert(bit);
                self.fade(bit);
            }
        }
    }

    /// The data are durable: clears the bits, except those that were requested in the meantime.
    /// From here on they may be clear on some members.
    ///
    /// None of them counts as faded afterwards, or clearing would never end: bits that are held or
    /// need a resync return through `fade` or `resynced`, and `want` restarts the count of the
    /// others.
    pub(super) fn clear(&mut self, held: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut pages = Vec::new();
        for bit in std::mem::take(&mut self.clearing) {
            if self.needed.has(bit) || held(bit) {
                self.listed.remove(bit);
                continue;
            }
            if self.touched.has(bit) {
                continue;
            }
            self.image.remove(bit);
            self.durable.remove(bit);
            self.listed.remove(bit);
            self.cleared.push(bit);
            pages.push(page_of(bit));
        }
        let Bits { fading, listed, .. } = self;
        fading.retain(|bit| listed.has(*bit));
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Pages with bits that the members should have but may not.
    pub(super) fn pages_to_set(&self) -> Vec<u32> {
        let words = self.image.0.iter().zip(&self.durable.0).enumerate();
        let lacking = words.filter(|(_, (image, durable))| **image & !**durable != 0);
        // A page begins at a word boundary.
        let mut pages: Vec<u32> = lacking.map(|(word, _)| page_of(word as u32 * 64)).collect();
        pages.extend(&self.unwritten);
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// The contents of a page; page 0 with the header for superblocks with this event count, or
    /// without: then the header on disk stays unchanged.
    pub(super) fn page(&mut self, page: u32, events: Option<u64>) -> Arc<BitmapPage> {
        let header = events.filter(|_| page == 0).map(|events| self.counts.header(events));
        let first = first_byte(page);
        let end = first_byte(page + 1).min(self.count.div_ceil(8) as usize);
        let bits = (first..end).map(|at| self.image.byte(at)).collect();
        Arc::new(BitmapPage { page, header, bits })
    }

    /// The page is on all members as it was written.
    pub(super) fn page_done(&mut self, page: &BitmapPage) {
        self.unwritten.retain(|other| *other != page.page);
        for (at, byte) in (first_byte(page.page)..).zip(&page.bits) {
            self.durable.insert_byte(at, *byte);
        }
    }
}

/// Byte of the bits (not of the file) with which a page begins.
fn first_byte(page: u32) -> usize {
    (page as usize * BITMAP_PAGE_BYTES).saturating_sub(HEADER_BYTES)
}

fn page_of(bit: u32) -> u32 {
    ((bit as usize / 8 + HEADER_BYTES) / BITMAP_PAGE_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use md::{Geometry, GeometrySpec, Layout, Level};

    use super::*;
    use crate::metadata::types::BitmapHeader;

    fn map(bits: u64) -> IntentMap {
        let spec = GeometrySpec {
            level: Level::Raid1,
            layout: Layout::None,
            chunk_sectors: 0,
            member_sectors: vec![bits * 8; 2],
        };
        let geometry = Geometry::new(&spec).expect("sound");
        IntentMap::bitmap(&geometry, 8).expect("a bitmap")
    }

    fn kept(bits: Vec<u8>) -> ManagedBitmap {
        ManagedBitmap {
            chunk_sectors: 8,
            daemon_sleep_nanos: 5,
            events_cleared: 1,
            bits,
            stale: false,
        }
    }

    #[test]
    fn pages_are_cut_as_md_cuts_them() {
        // Page 0 holds (4096 - 256) * 8 bits.
        assert_eq!((page_of(30_719), page_of(30_720), page_of(63_487)), (0, 1, 1));
        let count = 30_720 + 12;
        let mut bits = Bits::new(&kept(vec![0; 3842]), &map(count), None);
        bits.want(3);
        bits.want(30_720 + 9);
        assert_eq!(bits.pages_to_set(), [0, 1]);
        let page = bits.page(1, Some(7));
        assert_eq!((page.header, &page.bits[..]), (None, &[0, 2][..]));
        bits.page_done(&page);
        assert!(bits.is_durable(30_729) && !bits.is_durable(3));
        let page = bits.page(0, Some(7));
        assert_eq!(page.header, Some(BitmapHeader { events: 7, events_cleared: 1 }));
        assert_eq!((page.bits.len(), page.bits[0]), (3840, 8));
    }

    #[test]
    fn bits_cover_what_a_member_missed_that_has_seen_the_last_clearing() {
        let mut bits = Bits::new(&kept(vec![0; 2]), &map(16), None);
        assert!(bits.covers(1) && !bits.covers(0));
        assert!(bits.counts.clear(9));
        assert!(bits.covers(9) && !bits.covers(8));
        let stale = Bits::new(&ManagedBitmap { stale: true, ..kept(vec![0; 2]) }, &map(16), None);
        assert!(!stale.covers(u64::MAX));
    }

    #[test]
    fn what_the_last_clearing_has_cleared_is_set_again_when_a_member_is_lost() {
        let mut bits = Bits::new(&kept(vec![0; 2]), &map(16), None);
        bits.want(3);
        let page = bits.page(0, Some(1));
        bits.page_done(&page);
        bits.fade(3);
        bits.begin_clearing(true);
        assert_eq!(bits.clear(|_| false), [0]);
        assert!(!bits.has(3));
        bits.member_lost();
        assert!(bits.has(3) && !bits.is_durable(3));
        assert_eq!(bits.pages_to_set(), [0]);
        // Its turn comes again.
        bits.begin_clearing(true);
        bits.clear(|_| false);
        bits.begin_clearing(true);
        bits.member_lost();
        assert!(!bits.has(3));
    }

    #[test]
    fn a_bit_fades_when_it_was_left_alone_for_two_whole_periods() {
        let mut bits = Bits::new(&kept(vec![0; 2]), &map(16), None);
        bits.want(5);
        bits.fade(5);
        for _ in 0..2 {
            bits.tick(|_| false);
            assert!(!bits.has_faded(false));
        }
        // Held and given back in between: begins anew.
        bits.want(5);
        bits.fade(5);
        for _ in 0..2 {
            bits.tick(|_| false);
        }
        assert!(!bits.has_faded(false) && bits.has_faded(true));
        bits.tick(|_| false);
        assert!(bits.has_faded(false));
        bits.begin_clearing(false);
        assert_eq!(bits.clear(|_| false), [0]);
        assert!(!bits.is_fading() && bits.set_bits() == 0);
    }

    #[test]
    fn bits_requested_during_the_flush_are_not_cleared() {
        let mut bits = Bits::new(&kept(vec![0b11, 0]), &map(16), None);
        bits.begin_clearing(true);
        bits.want(0);
        bits.fade(0);
        bits.clear(|_| false);
        assert!(bits.image.has(0) && !bits.image.has(1));
    }

    #[test]
    fn held_bits_and_bits_that_need_a_resync_are_cleared_once_at_most() {
        let mut bits = Bits::new(&kept(vec![0b111, 0]), &map(16), None);
        bits.begin_clearing(true);
        bits.need(1);
        bits.clear(|bit| bit == 2);
        assert_eq!(bits.set_bits(), 2);
        assert!(!bits.has_faded(true) && !bits.is_fading());
        bits.fade(1);
        assert!(!bits.is_fading(), "it is in need");
        bits.resynced(1, false);
        bits.fade(2);
        assert!(bits.has_faded(true));
        bits.begin_clearing(true);
        bits.clear(|_| false);
        assert_eq!(bits.set_bits(), 0);
    }

    #[test]
    fn a_stale_bitmap_counts_as_set_and_is_on_no_member() {
        let stale = ManagedBitmap { stale: true, ..kept(vec![1, 0]) };
        let bits = Bits::new(&stale, &map(16), Some(0));
        assert_eq!((bits.set_bits(), bits.pages_to_set()), (16, vec![0]));
        assert!((0..16).all(|bit| bits.is_needed(bit) && !bits.is_durable(bit)));
    }
}
