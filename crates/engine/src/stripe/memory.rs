//! Memory of operations, and the cache of a row's blocks.
//!
//! Invariant: a cache entry has the members' contents (or what a lost member would have) at that
//! position of the row. Parity stays valid because it is updated in place; other entries that a
//! write covers are dropped before the write begins. An operation allocates all of its memory or
//! none, so that two of them can never deadlock. Called only from `ops`.

use md::SECTOR_BYTES;

use super::rows::Cached;
use super::stripes::Stripes;
use crate::MemberSet;

/// State of an operation's memory when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheAfter {
    /// No member was changed yet.
    AsBefore,
    /// The members' current contents, except the old contents of written blocks.
    OnMembers,
    /// A write failed half-way.
    Unknown,
}

impl Stripes {
    /// Allocates a block for each position, evicting unused cache entries. `false`: there is not
    /// enough; everything is released, including borrowed entries.
    pub(crate) fn take_memory(&mut self, at: u32, positions: MemberSet) -> bool {
        let bytes = self.ops[at].sectors() * SECTOR_BYTES;
        for position in positions.iter() {
            let block = loop {
                let scratch = &mut self.scratch;
                if let Some(block) = scratch.take(bytes) {
                    break block;
                }
                let freed = self.rows.evict(|block| scratch.give_back(block))
                    || self.rows.evict_unused(|block| scratch.give_back(block));
                if !freed {
                    self.return_memory(at, CacheAfter::AsBefore);
                    return false;
                }
            };
            let op = &mut self.ops[at];
            op.blocks.push((position, block));
            op.cells[usize::from(position)].scratch = Some(block.offset);
        }
        true
    }

    /// Positions of which the row's cache has the operation's whole range.
    pub(crate) fn cached_positions(&self, at: u32) -> MemberSet {
        let op = &self.ops[at];
        let entries = &self.rows.table[op.row].cached;
        let whole = entries.iter().filter(|entry| entry.holds(op.start, op.end));
        whole.map(|entry| entry.position).collect()
    }

    /// Uses cache entries of the row in place.
    pub(crate) fn borrow_cached(&mut self, at: u32, positions: MemberSet) {
        let op = &mut self.ops[at];
        let entries = &mut self.rows.table[op.row].cached;
        for position in positions.iter() {
            let mut here = entries.iter_mut().filter(|entry| entry.holds(op.start, op.end));
            let entry =
                here.find(|entry| entry.position == position).expect("the entry is in the plan");
            entry.users += 1;
            op.borrowed.push((position, entry.id));
            op.cells[usize::from(position)].scratch =
                Some(entry.block.offset + (op.start - entry.start) * SECTOR_BYTES);
        }
    }

    /// Drops cache entries of a range that is about to be written. `untouched` data stay valid; so
    /// does parity that the operation has borrowed, because it updates it in place.
    pub(crate) fn drop_cached(&mut self, at: u32, untouched: MemberSet) {
        let Stripes { ops, rows, scratch, .. } = self;
        let op = &ops[at];
        let data = op.cells.len() as u16 - 2;
        rows.table[op.row].cached.retain_mut(|entry| {
            let overlaps = entry.start < op.end && op.start < entry.end;
            let updated = entry.position >= data
                && op.borrowed.iter().any(|(_, borrowed)| *borrowed == entry.id);
            if !overlaps || updated || untouched.contains(entry.position) {
                return true;
            }
            entry.dead = true;
            if entry.users == 0 {
                scratch.give_back(entry.block);
            }
            entry.users > 0
        });
    }

    /// Releases an operation's memory. For a stream of writes, blocks with the members' contents
    /// are cached for the next operation on the row.
    pub(crate) fn return_memory(&mut self, at: u32, afterwards: CacheAfter) {
        let Stripes { ops, rows, scratch, .. } = self;
        let op = &mut ops[at];
        if !op.borrowed.is_empty() {
            rows.table[op.row].cached.retain_mut(|entry| {
                if op.borrowed.iter().any(|(_, borrowed)| *borrowed == entry.id) {
                    entry.users -= 1;
                    entry.dead |= afterwards == CacheAfter::Unknown;
                }
                let gone = entry.dead && entry.users == 0;
                if gone {
                    scratch.give_back(entry.block);
                }
                !gone
            });
            op.borrowed.clear();
        }
        // A full stripe needs nothing again soon, nor does a stream that reads.
        let returns = op.is_write() && op.covered.len() + 2 < op.cells.len();
        let keep = op.stream
            && returns
            && afterwards == CacheAfter::OnMembers
            && op.read_failed.is_empty();
        let stale = if op.is_write() { op.covered } else { MemberSet::EMPTY };
        let (start, end, row) = (op.start, op.end, op.row);
        while let Some((position, block)) = op.blocks.pop() {
            if keep && !stale.contains(position) {
                let cached = Cached { id: 0, position, start, end, block, users: 0, dead: false };
                rows.remember(row, cached, |block| scratch.give_back(block));
            } else {
                scratch.give_back(block);
            }
        }
        for cell in &mut op.cells {
            cell.scratch = None;
        }
    }
}
