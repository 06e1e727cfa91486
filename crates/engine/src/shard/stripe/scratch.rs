//! The stripe memory: a bounded region cut into blocks of 4 KiB times a power of two (a buddy
//! system).
//!
//! Invariant: allocated blocks never overlap, and freeing everything gives one whole region again.
//! It allocates offsets; the bytes are the executor's. A region may begin with a part of its pages:
//! the others are added later ([`Scratch::grow`]). A block that late operations use is not
//! allocated again before they have completed.
//!
//! ```text
//! order 2  |               A               |      A (16 KiB) is split for a request of 4 KiB:
//! order 1  |       B       |     free      |      B and a free half, then the block and a free
//! order 0  | block | free  |                      quarter; freeing joins the halves again
//! ```

const PAGE_BYTES: u64 = 4096;
/// Freed single pages that are kept as they are: merging them with their buddies, only to split
/// those again, would take most of the time. Merged when a larger block is needed.
const LOOSE_PAGES: usize = 64;
const NIL: u32 = u32::MAX;
/// In `order_of`: this page begins no free block.
const NOT_FREE: u8 = u8::MAX;

/// An allocated block: its offset in the region, and its order (size = 4 KiB << order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) offset: u64,
    order: u8,
}

/// A block that late operations of members use.
struct Held {
    block: Block,
    operations: u32,
    /// Nothing else uses it any more.
    is_given_back: bool,
}

pub(crate) struct Scratch {
    /// First free block of each order.
    heads: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
    order_of: Vec<u8>,
    free_pages: u64,
    /// The region's first pages, which may be used.
    pages: usize,
    /// An operation waited, or a cached block was given up, while the region has more pages.
    is_short: bool,
    /// Free, but not in the lists above; the most recently freed one is reused first.
    loose: Vec<u32>,
    held: Vec<Held>,
}

impl Scratch {
    /// A region of `bytes`, rounded down to a power of two pages, of which the first `usable` bytes
    /// may be used.
    pub(crate) fn new(bytes: u64, usable: u64) -> Scratch {
        let pages = (bytes / PAGE_BYTES).max(1);
        let top = pages.ilog2();
        let pages = 1usize << top;
        let mut scratch = Scratch {
            heads: vec![NIL; top as usize + 1],
            next: vec![NIL; pages],
            prev: vec![NIL; pages],
            order_of: vec![NOT_FREE; pages],
            free_pages: 0,
            pages: 0,
            is_short: false,
            loose: Vec::with_capacity(LOOSE_PAGES),
            held: Vec::new(),
        };
        scratch.grow(usable.max(PAGE_BYTES));
        scratch
    }

    /// The region's first `bytes` may be used, down to a whole page.
    pub(crate) fn grow(&mut self, bytes: u64) {
        let end = usize::try_from(bytes / PAGE_BYTES).unwrap_or(usize::MAX).min(self.next.len());
        while self.pages < end {
            // The largest block that begins here.
            let aligned = self.pages.trailing_zeros().min((end - self.pages).ilog2());
            let (page, order) = (self.pages as u32, aligned.min(self.next.len().ilog2()) as u8);
            self.pages += 1 << order;
            self.free_pages += 1 << order;
            self.join(page, order);
        }
        self.is_short = false;
    }

    /// There was no block, or only one that something else gave up for it, and the region has more
    /// pages than may be used.
    pub(crate) fn note_short(&mut self) {
        self.is_short = self.pages < self.next.len();
    }

    /// Whether it was short of pages since it has grown.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    #[inline]
    pub(crate) fn take(&mut self, bytes: u64) -> Option<Block> {
        if bytes <= PAGE_BYTES
            && let Some(page) = self.loose.pop()
        {
            self.free_pages -= 1;
            return Some(Block { offset: u64::from(page) * PAGE_BYTES, order: 0 });
        }
        self.take_pages(bytes.div_ceil(PAGE_BYTES).max(1))
    }

    fn take_pages(&mut self, pages: u64) -> Option<Block> {
        let order = pages.next_power_of_two().ilog2() as u8;
        let found = self.find(order).or_else(|| {
            while let Some(page) = self.loose.pop() {
                self.join(page, 0);
            }
            self.find(order)
        })?;
        let page = self.heads[usize::from(found)];
        self.unlink(page);
        for half in (order..found).rev() {
            self.push(page + (1 << half), half);
        }
        self.free_pages -= 1 << order;
        Some(Block { offset: u64::from(page) * PAGE_BYTES, order })
    }

    /// The lowest order, from this one on, of which a block is free.
    fn find(&self, order: u8) -> Option<u8> {
        (order..self.heads.len() as u8).find(|order| self.heads[usize::from(*order)] != NIL)
    }

    /// Frees a block; one that late operations use when the last of them has completed.
    pub(crate) fn give_back(&mut self, block: Block) {
        if let Some(held) = self.held.iter_mut().find(|held| held.block == block) {
            assert!(!held.is_given_back, "{block:?} is freed twice");
            held.is_given_back = true;
            return;
        }
        self.free_pages += 1 << block.order;
        let page = (block.offset / PAGE_BYTES) as u32;
        if block.order == 0 && self.loose.len() < LOOSE_PAGES {
            debug_assert!(!self.loose.contains(&page), "page {page} is freed twice");
            return self.loose.push(page);
        }
        self.join(page, block.order);
    }

    /// A late operation uses a block, until [`let_go`](Scratch::let_go).
    pub(crate) fn hold(&mut self, block: Block) {
        match self.held.iter_mut().find(|held| held.block == block) {
            Some(held) => held.operations += 1,
            None => self.held.push(Held { block, operations: 1, is_given_back: false }),
        }
    }

    /// A late operation that used a block has completed.
    pub(crate) fn let_go(&mut self, block: Block) {
        let at = self.held.iter().position(|held| held.block == block);
        let at = at.expect("a late operation uses the block");
        self.held[at].operations -= 1;
        if self.held[at].operations == 0 && self.held.swap_remove(at).is_given_back {
            self.give_back(block);
        }
    }

    /// Whether late operations use the block.
    pub(crate) fn is_held(&self, block: Block) -> bool {
        self.held.iter().any(|held| held.block == block)
    }

    /// Whether late operations use blocks that nothing else does.
    pub(crate) fn keeps_any(&self) -> bool {
        self.held.iter().any(|held| held.is_given_back)
    }

    /// Merges a free block with its buddy as long as that is free too.
    fn join(&mut self, mut page: u32, mut order: u8) {
        while usize::from(order) + 1 < self.heads.len() {
            let buddy = page ^ (1 << order);
            if self.order_of[buddy as usize] != order {
                break;
            }
            self.unlink(buddy);
            page = page.min(buddy);
            order += 1;
        }
        self.push(page, order);
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.free_pages * PAGE_BYTES
    }

    fn push(&mut self, page: u32, order: u8) {
        let head = self.heads[usize::from(order)];
        self.next[page as usize] = head;
        self.prev[page as usize] = NIL;
        if head != NIL {
            self.prev[head as usize] = page;
        }
        self.heads[usize::from(order)] = page;
        assert!(self.order_of[page as usize] == NOT_FREE, "block at page {page} is freed twice");
        self.order_of[page as usize] = order;
    }

    fn unlink(&mut self, page: u32) {
        let order = self.order_of[page as usize];
        let (prev, next) = (self.prev[page as usize], self.next[page as usize]);
        if prev == NIL {
            self.heads[usize::from(order)] = next;
        } else {
            self.next[prev as usize] = next;
        }
        if next != NIL {
            self.prev[next as usize] = prev;
        }
        self.order_of[page as usize] = NOT_FREE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_overlap_and_everything_comes_back() {
        let total = 1 << 20;
        let mut scratch = Scratch::new(total, total);
        let mut out: Vec<(Block, u64)> = Vec::new();
        let mut state = 7u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let choice = state >> 40;
            if choice.is_multiple_of(3) && !out.is_empty() {
                let (block, _) = out.swap_remove(choice as usize % out.len());
                scratch.give_back(block);
            } else {
                let bytes = 1 + choice % 70_000;
                let Some(block) = scratch.take(bytes) else { continue };
                let size = bytes.div_ceil(4096).next_power_of_two() * 4096;
                let end = block.offset + size;
                assert!(end <= total && block.offset % size == 0);
                for (other, size) in &out {
                    assert!(end <= other.offset || other.offset + size <= block.offset);
                }
                out.push((block, size));
            }
        }
        for (block, _) in out {
            scratch.give_back(block);
        }
        assert_eq!(scratch.free_bytes(), total);
        assert!(scratch.take(total).is_some(), "all halves joined again");
        assert!(scratch.take(1).is_none());
    }

    #[test]
    fn a_block_that_late_operations_use_is_free_when_the_last_one_has_completed() {
        let mut scratch = Scratch::new(2 * PAGE_BYTES, 2 * PAGE_BYTES);
        let block = scratch.take(1).expect("a block");
        scratch.hold(block);
        scratch.hold(block);
        assert!(scratch.is_held(block) && !scratch.keeps_any());
        scratch.give_back(block);
        assert!(scratch.keeps_any() && scratch.free_bytes() == PAGE_BYTES);
        scratch.let_go(block);
        assert!(scratch.take(2 * PAGE_BYTES).is_none());
        scratch.let_go(block);
        assert!(!scratch.keeps_any() && scratch.take(2 * PAGE_BYTES).is_some());

        // The late operation completes before the others have ended.
        let mut scratch = Scratch::new(PAGE_BYTES, PAGE_BYTES);
        let block = scratch.take(1).expect("a block");
        scratch.hold(block);
        scratch.let_go(block);
        assert!(!scratch.is_held(block) && scratch.take(1).is_none());
        scratch.give_back(block);
        assert!(scratch.take(1).is_some());
    }

    #[test]
    fn a_region_that_grows_is_one_whole_region_in_the_end() {
        let page = PAGE_BYTES;
        let mut scratch = Scratch::new(16 * page, 3 * page);
        assert_eq!(scratch.free_bytes(), 3 * page);
        assert!(scratch.take(4 * page).is_none());
        scratch.note_short();
        assert!(scratch.is_short());
        let block = scratch.take(2 * page).expect("the first two pages");
        assert_eq!(block.offset, 0);
        // Not a power of two, and in the middle of a page.
        scratch.grow(11 * page + 5);
        assert!(!scratch.is_short());
        assert_eq!(scratch.free_bytes(), 9 * page);
        assert_eq!(scratch.take(4 * page).expect("a block of four").offset, 4 * page);
        scratch.give_back(block);
        scratch.grow(u64::MAX);
        scratch.note_short();
        assert!(!scratch.is_short(), "there is no more");
        scratch.give_back(Block { offset: 4 * page, order: 2 });
        assert_eq!(scratch.free_bytes(), 16 * page);
        assert!(scratch.take(16 * page).is_some(), "all parts have joined");
    }
}
