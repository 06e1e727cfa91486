//! Reads members a little at a time, within a budget, and keeps what was read.
//!
//! Invariant: a range that could not be read is never read again and never zeroes; no member is
//! read beyond the budget. Everything in this crate that looks at bytes does it through [`Pages`].

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use content::Unreadable;
use parity::Kernels;

/// Where the bytes of the members come from.
pub trait Disks: Sync {
    /// The size of each member in bytes.
    fn sizes(&self) -> Vec<u64>;

    /// Reads ranges, ordered by member and offset; `None` for a range that cannot be read whole.
    /// Every range lies inside of its member.
    fn read(&self, ranges: &[ByteRange]) -> Vec<Option<Vec<u8>>>;
}

/// A range of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteRange {
    /// The member, an index.
    pub member: usize,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub len: usize,
}

/// The unit of what is kept.
pub(crate) const PAGE: u64 = 4096;
/// Longest single read; one that fails is lost whole.
const LONGEST: u64 = 256 << 10;
/// Pages kept in memory, of all members: 512 MiB.
const KEPT: usize = 128 << 10;

/// The members, with a memory of what was read.
///
/// A member more than there are is the *sum*: the XOR of all. With one member of RAID 4 or 5
/// missing it is that member.
pub struct Pages<'a> {
    disks: &'a dyn Disks,
    sizes: Vec<u64>,
    budget: u64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// `None`: could not be read.
    pages: HashMap<(usize, u64), Option<Box<[u8]>>>,
    order: VecDeque<(usize, u64)>,
    read: Vec<u64>,
    failed: Vec<ByteRange>,
    exhausted: bool,
}

impl<'a> Pages<'a> {
    /// Members, of each of which at most `budget` bytes are read.
    pub fn new(disks: &'a dyn Disks, budget: u64) -> Pages<'a> {
        let sizes = disks.sizes();
        let kept = Kept { read: vec![0; sizes.len()], ..Kept::default() };
        Pages { disks, sizes, budget, kept: Mutex::new(kept) }
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.sizes.len()
    }

    /// The size of a member in bytes; of the sum the smallest.
    pub fn size(&self, member: usize) -> u64 {
        let smallest = || self.sizes.iter().copied().min().unwrap_or(0);
        self.sizes.get(member).copied().unwrap_or_else(smallest)
    }

    /// Bytes read of all members.
    pub fn read_bytes(&self) -> u64 {
        self.kept().read.iter().sum()
    }

    /// Bytes that may still be read of the member of which most was read.
    pub fn left(&self) -> u64 {
        self.budget.saturating_sub(self.kept().read.iter().copied().max().unwrap_or(0))
    }

    /// Whether a read was refused because the budget is used up.
    pub fn exhausted(&self) -> bool {
        self.kept().exhausted
    }

    /// The ranges that could not be read.
    pub fn failed(&self) -> Vec<ByteRange> {
        self.kept().failed.clone()
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().expect("no holder of this lock panics")
    }

    /// Reads ranges side by side that will be needed. Ranges beyond a member's end are cut.
    pub fn prefetch(&self, ranges: &[ByteRange]) {
        let mut pages: Vec<(usize, u64)> = Vec::new();
        {
            let kept = self.kept();
            for range in ranges {
                let members = match range.member < self.sizes.len() {
                    true => range.member..range.member + 1,
                    false => 0..self.sizes.len(),
                };
                for member in members {
                    let end = (range.at + range.len as u64).min(self.sizes[member]);
                    let wanted = range.at / PAGE..end.div_ceil(PAGE);
                    let new = wanted.map(|page| (member, page));
                    pages.extend(new.filter(|key| !kept.pages.contains_key(key)));
                }
            }
        }
        pages.sort_unstable();
        pages.dedup();
        let reads = self.within_budget(&pages);
        if reads.is_empty() {
            return;
        }
        // In parts, so that what is held twice stays small.
        for reads in reads.chunks(256) {
            let results = self.disks.read(reads);
            let mut kept = self.kept();
            for (range, bytes) in reads.iter().zip(results) {
                kept.insert(*range, bytes);
            }
        }
    }

    /// Runs of pages as reads, as far as the budget goes.
    fn within_budget(&self, pages: &[(usize, u64)]) -> Vec<ByteRange> {
        let mut kept = self.kept();
        let mut reads: Vec<ByteRange> = Vec::new();
        for &(member, page) in pages {
            let at = page * PAGE;
            let len = PAGE.min(self.sizes[member] - at);
            if kept.read[member] + len > self.budget {
                kept.exhausted = true;
                continue;
            }
            kept.read[member] += len;
            match reads.last_mut() {
                Some(last)
                    if last.member == member
                        && last.at + last.len as u64 == at
                        && (last.len as u64) < LONGEST =>
                {
                    last.len += len as usize;
                }
                _ => reads.push(ByteRange { member, at, len: len as usize }),
            }
        }
        reads
    }

    /// Fills `into` from byte `at` of a member on.
    ///
    /// # Errors
    /// Beyond the end, unreadable, or the budget is used up.
    pub fn read(&self, member: usize, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        if into.is_empty() {
            return Ok(());
        }
        let end = at.checked_add(into.len() as u64).ok_or(Unreadable)?;
        if end > self.size(member) {
            return Err(Unreadable);
        }
        if member >= self.sizes.len() {
            return self.read_sum(at, into);
        }
        if self.copy(member, at, into)? {
            return Ok(());
        }
        self.prefetch(&[ByteRange { member, at, len: into.len() }]);
        if self.copy(member, at, into)? { Ok(()) } else { Err(Unreadable) }
    }

    /// The bytes of a range; `None` as [`Pages::read`].
    pub fn take(&self, member: usize, at: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(member, at, &mut bytes).ok()?;
        Some(bytes)
    }

    fn read_sum(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let mut blocks = Vec::new();
        for member in 0..self.sizes.len() {
            blocks.push(self.take(member, at, into.len()).ok_or(Unreadable)?);
        }
        let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        Kernels::best().xor_gen(into, &blocks);
        Ok(())
    }

    /// Copies from kept pages; false if one is not kept.
    fn copy(&self, member: usize, at: u64, into: &mut [u8]) -> Result<bool, Unreadable> {
        let kept = self.kept();
        let end = at + into.len() as u64;
        let mut from = at;
        while from < end {
            let page = from / PAGE;
            let Some(bytes) = kept.pages.get(&(member, page)) else { return Ok(false) };
            let bytes = bytes.as_ref().ok_or(Unreadable)?;
            let start = (from % PAGE) as usize;
            let len = (PAGE - from % PAGE).min(end - from) as usize;
            let to = (from - at) as usize;
            into[to..to + len].copy_from_slice(&bytes[start..start + len]);
            from += len as u64;
        }
        Ok(true)
    }
}

impl Kept {
    fn insert(&mut self, range: ByteRange, bytes: Option<Vec<u8>>) {
        let first = range.at / PAGE;
        match bytes.filter(|bytes| bytes.len() == range.len) {
            Some(bytes) => {
                for (page, part) in bytes.chunks(PAGE as usize).enumerate() {
                    self.keep((range.member, first + page as u64), Some(part.into()));
                }
            }
            None => {
                self.failed.push(range);
                for page in 0..(range.len as u64).div_ceil(PAGE) {
                    self.keep((range.member, first + page), None);
                }
            }
        }
    }

    fn keep(&mut self, key: (usize, u64), page: Option<Box<[u8]>>) {
        let failed = page.is_none();
        self.pages.insert(key, page);
        // What failed is never forgotten: it would be read again.
        if !failed {
            self.order.push_back(key);
        }
        while self.order.len() > KEPT {
            if let Some(oldest) = self.order.pop_front() {
                self.pages.remove(&oldest);
            }
        }
    }
}
