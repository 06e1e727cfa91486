//! An effect in flight, and what it may not do together with others.
//!
//! Invariant: of two effects in flight that touch the same bytes of a buffer, neither writes them;
//! of two that touch the same sectors of a member, neither writes them, except that a healthy read
//! may meet a write.

use std::ops::Range;

use engine::{BufSlice, Delta, REGION_ZERO, Source, Token};

/// What is to be done, with its slices taken out of the batch.
#[derive(Clone, Debug)]
pub enum Work {
    Read { slices: Vec<BufSlice>, loan: bool },
    Write { slices: Vec<BufSlice>, fua: bool },
    Flush { covers: u64 },
    Discard,
    WriteZeroes,
    Generate { p: Option<BufSlice>, q: Option<BufSlice>, sources: Vec<Source> },
    Update { p: Option<BufSlice>, q: Option<BufSlice>, deltas: Vec<Delta> },
    FromP { dst: BufSlice, p: BufSlice, sources: Vec<Source> },
    FromQ { dst: Source, q: BufSlice, sources: Vec<Source> },
    Two { x: Source, y: Source, p: BufSlice, q: BufSlice, sources: Vec<Source> },
}

#[derive(Clone, Debug)]
pub struct Job {
    pub ready_at: u64,
    /// Whose it is.
    pub shard: u16,
    pub token: Token,
    /// Member and sectors; `None` for computations, an empty range for flushes.
    pub place: Option<(u16, Range<u64>)>,
    pub work: Work,
}

impl Job {
    /// Slices that the job only reads, then those that it writes.
    pub fn slices(&self) -> (Vec<BufSlice>, Vec<BufSlice>) {
        let of = |sources: &[Source]| sources.iter().map(|s| s.slice).collect::<Vec<_>>();
        let with = |mut list: Vec<BufSlice>, more: &[BufSlice]| {
            list.extend_from_slice(more);
            list
        };
        match &self.work {
            Work::Read { slices, .. } => (vec![], slices.clone()),
            Work::Write { slices, .. } => (slices.clone(), vec![]),
            Work::Flush { .. } | Work::Discard | Work::WriteZeroes => (vec![], vec![]),
            Work::Generate { p, q, sources } => (of(sources), p.iter().chain(q).copied().collect()),
            Work::Update { p, q, deltas } => {
                let inputs = deltas.iter().flat_map(|d| [d.old, d.new]).collect();
                (inputs, p.iter().chain(q).copied().collect())
            }
            Work::FromP { dst, p, sources } => (with(of(sources), &[*p]), vec![*dst]),
            Work::FromQ { dst, q, sources } => (with(of(sources), &[*q]), vec![dst.slice]),
            Work::Two { x, y, p, q, sources } => {
                (with(of(sources), &[*p, *q]), vec![x.slice, y.slice])
            }
        }
    }

    /// Names the operation (or request) that the job belongs to: what stands behind kind and slot
    /// in its token.
    pub fn operation(&self) -> u64 {
        self.token.to_bits() & ((1 << 52) - 1)
    }

    pub fn is_member_read(&self) -> bool {
        matches!(self.work, Work::Read { .. })
    }

    fn is_member_write(&self) -> bool {
        matches!(self.work, Work::Write { .. } | Work::Discard | Work::WriteZeroes)
    }

    /// A read that takes no lock: kind 0 of the tokens.
    fn is_healthy_read(&self) -> bool {
        self.is_member_read() && self.token.to_bits() >> 60 == 0
    }

    /// Panics when the two must not be in flight together.
    pub fn assert_compatible(&self, other: &Job) {
        if let (Some((a, here)), Some((b, there))) = (&self.place, &other.place) {
            let meet = a == b && here.start < there.end && there.start < here.end;
            let writes = self.is_member_write() || other.is_member_write();
            let excused = self.is_healthy_read() || other.is_healthy_read();
            assert!(
                !(meet && writes) || excused,
                "in flight together on one range of a member: {self:?} and {other:?}"
            );
        }
        let ((reads, writes), (other_reads, other_writes)) = (self.slices(), other.slices());
        let clash = writes.iter().any(|a| any_overlaps(a, &other_reads))
            || writes.iter().any(|a| any_overlaps(a, &other_writes))
            || reads.iter().any(|a| any_overlaps(a, &other_writes));
        assert!(!clash, "in flight together on the same memory: {self:?} and {other:?}");
    }

    /// Panics when the job's own slices get in each other's way.
    pub fn assert_sound(&self) {
        let (reads, writes) = self.slices();
        for (at, slice) in writes.iter().enumerate() {
            let clash = any_overlaps(slice, &writes[at + 1..]) || any_overlaps(slice, &reads);
            assert!(!clash, "one effect writes what it uses: {self:?}");
            assert!(slice.region != REGION_ZERO, "the zero region is written: {self:?}");
        }
        for slice in reads.iter().filter(|slice| slice.region == REGION_ZERO) {
            let most = engine::MAX_SPAN_SECTORS * md::SECTOR_BYTES;
            assert!(slice.offset == 0 && u64::from(slice.len) <= most, "{self:?}");
        }
        if let (Some((_, range)), Work::Read { .. } | Work::Write { .. }) =
            (&self.place, &self.work)
        {
            let bytes: u64 = reads.iter().chain(&writes).map(|slice| u64::from(slice.len)).sum();
            let length = (range.end - range.start) * md::SECTOR_BYTES;
            assert_eq!(bytes, length, "slices do not fill the range: {self:?}");
        }
    }
}

pub fn overlap(a: &BufSlice, b: &BufSlice) -> bool {
    a.region == b.region
        && a.region != REGION_ZERO
        && a.offset < b.offset + u64::from(b.len)
        && b.offset < a.offset + u64::from(a.len)
}

fn any_overlaps(slice: &BufSlice, others: &[BufSlice]) -> bool {
    others.iter().any(|other| overlap(slice, other))
}
