//! An effect of the engine in flight, and which others it must not meet.
//!
//! Invariant: of two operations in flight that touch the same bytes of a buffer, neither writes
//! them; of two that touch the same sectors of a member, neither writes them, except that a read
//! without a lock may meet a write.

use std::ops::Range;

use engine::{
    BadBlockChange, BufSlice, Compute, Delta, Effect, Effects, MemberOp, REGION_ZERO, Source, Token,
};
use md::ondisk::ppl::PplEntry;
use md::{MemberIdx, SECTOR_BYTES, Sector};

use crate::member::Member;

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Work {
    /// Read of a member.
    Read {
        /// The bytes may stay in place; see [`Effect::Read`].
        in_place: bool,
    },
    /// Write of a member.
    Write {
        /// Force unit access.
        fua: bool,
    },
    /// Write of a member's partial parity log.
    WriteLog {
        /// First sector of the area.
        sector: u64,
        /// Of its header.
        generation: u64,
        /// Its entries, without checksums.
        entries: Vec<PplEntry>,
    },
    /// Flush of a member: of its writes up to this number.
    Flush {
        /// Number of the last write that it covers.
        covers: u64,
    },
    /// Discard of a range of a member.
    Discard,
    /// Write of zeroes to a range of a member.
    WriteZeroes,
    /// Addition of a range to a member's bad-block log.
    AddBadBlocks,
    /// P and Q from all data blocks.
    Generate {
        /// Destination of P.
        p: Option<BufSlice>,
        /// Destination of Q.
        q: Option<BufSlice>,
        /// The data blocks.
        sources: Vec<Source>,
    },
    /// The XOR of blocks.
    Xor {
        /// Destination.
        dst: BufSlice,
        /// The blocks.
        sources: Vec<Source>,
    },
    /// P and Q updated in place.
    Update {
        /// P.
        p: Option<BufSlice>,
        /// Q.
        q: Option<BufSlice>,
        /// The changes.
        deltas: Vec<Delta>,
    },
    /// A data block from P and the others.
    FromP {
        /// Destination.
        dst: BufSlice,
        /// P.
        p: BufSlice,
        /// The other data blocks.
        sources: Vec<Source>,
    },
    /// A data block from Q and the others.
    FromQ {
        /// Destination.
        dst: Source,
        /// Q.
        q: BufSlice,
        /// The other data blocks.
        sources: Vec<Source>,
    },
    /// Two data blocks from P, Q and the others.
    Two {
        /// Destination of one.
        x: Source,
        /// Destination of the other.
        y: Source,
        /// P.
        p: BufSlice,
        /// Q.
        q: BufSlice,
        /// The other data blocks.
        sources: Vec<Source>,
    },
    /// P, Q or both compared with all data blocks.
    Check {
        /// P.
        p: Option<BufSlice>,
        /// Q.
        q: Option<BufSlice>,
        /// The data blocks.
        sources: Vec<Source>,
    },
    /// Copies compared.
    Compare {
        /// The copies.
        sources: Vec<Source>,
    },
}

/// Member and sectors of its data area; empty for flushes.
pub type Place = (u16, Range<u64>);

/// An operation of a member, or a computation.
#[derive(Clone, Debug)]
pub struct Operation {
    /// When it was issued.
    pub issued: u64,
    /// When it takes place.
    pub ready_at: u64,
    /// The shard that issued it.
    pub shard: u16,
    /// Its token.
    pub token: Token,
    /// That of the engine's level.
    pub origin: Token,
    /// `None` for computations.
    pub place: Option<Place>,
    /// What is to be done.
    pub work: Work,
    /// Slices that it only reads.
    pub reads: Vec<BufSlice>,
    /// Slices that it writes.
    pub writes: Vec<BufSlice>,
    /// When it is late.
    pub late_at: u64,
    /// It was reported to the engine as late.
    pub is_late: bool,
    /// A planted bug has reported its memory as free.
    pub is_freed: bool,
    /// How many members the slot had before.
    pub predecessors: u64,
    /// What it changes in the member's bad-block log.
    pub change: Option<BadBlockChange>,
}

impl Work {
    /// What it is to a member.
    pub fn of_member(&self) -> MemberOp {
        match self {
            Work::Read { .. } => MemberOp::Read,
            Work::Flush { .. } => MemberOp::Flush,
            Work::Discard => MemberOp::Discard,
            Work::WriteZeroes => MemberOp::WriteZeroes,
            Work::AddBadBlocks => MemberOp::Metadata,
            _ => MemberOp::Write,
        }
    }
}

impl Operation {
    /// The operation that an effect orders. `writes_done`: member writes completed so far.
    ///
    /// # Panics
    /// If the effect orders none.
    pub fn new(shard: u16, effect: &Effect, out: &Effects, writes_done: u64) -> Operation {
        let place = |member: &MemberIdx, sector: &Sector, sectors: u64| {
            Some((member.0, sector.0..sector.0 + sectors))
        };
        let length =
            |slices: &[BufSlice]| slices.iter().map(|s| u64::from(s.len) / SECTOR_BYTES).sum();
        let none = Vec::new;
        let (token, place, work, reads, writes) = match effect {
            Effect::Read { token, member, sector, slices, in_place_ok } => {
                let slices = out.slices(slices);
                let place = place(member, sector, length(slices));
                (token, place, Work::Read { in_place: *in_place_ok }, none(), slices.to_vec())
            }
            Effect::Write { token, member, sector, slices, fua } => {
                let slices = out.slices(slices);
                let place = place(member, sector, length(slices));
                (token, place, Work::Write { fua: *fua }, slices.to_vec(), none())
            }
            Effect::WriteLog { token, member, sector, generation, entries, slices } => {
                let entries = out.log_entries(entries).to_vec();
                let work = Work::WriteLog { sector: sector.0, generation: *generation, entries };
                let slices = out.slices(slices).to_vec();
                (token, place(member, &Sector(0), 0), work, slices, none())
            }
            Effect::Flush { token, member } => {
                let work = Work::Flush { covers: writes_done };
                (token, place(member, &Sector(0), 0), work, none(), none())
            }
            Effect::Discard { token, member, sector, sectors } => {
                (token, place(member, sector, *sectors), Work::Discard, none(), none())
            }
            Effect::WriteZeroes { token, member, sector, sectors } => {
                (token, place(member, sector, *sectors), Work::WriteZeroes, none(), none())
            }
            Effect::AddBadBlocks { token, member, sector, sectors } => {
                (token, place(member, sector, *sectors), Work::AddBadBlocks, none(), none())
            }
            Effect::Compute { token, job } => {
                let (work, reads, writes) = computation(out.job(*job), out);
                (token, None, work, reads, writes)
            }
            other => unreachable!("{other:?} is no operation"),
        };
        Operation {
            issued: 0,
            ready_at: 0,
            shard,
            token: *token,
            origin: *token,
            place,
            work,
            reads,
            writes,
            late_at: u64::MAX,
            is_late: false,
            is_freed: false,
            predecessors: 0,
            change: None,
        }
    }

    /// The engine's operation (or request) that it belongs to: what stands behind kind and slot in
    /// its token.
    pub fn owner(&self) -> u64 {
        self.origin.to_bits() & ((1 << 52) - 1)
    }

    /// What it will have changed in the bad-block log of its member.
    pub fn log_change(&self, member: &Member) -> Option<BadBlockChange> {
        let (_, sectors) = self.place.as_ref()?;
        let (op, fua) = match self.work {
            Work::Read { .. } | Work::WriteLog { .. } | Work::AddBadBlocks => return None,
            Work::Write { fua } => (MemberOp::Write, fua),
            _ => (self.work.of_member(), false),
        };
        let length = sectors.end - sectors.start;
        let change = member.log.as_ref()?.begin(op, fua, Sector(sectors.start), length);
        change.expect("no read")
    }

    fn writes_member(&self) -> bool {
        matches!(
            self.work,
            Work::Write { .. } | Work::Discard | Work::WriteZeroes | Work::AddBadBlocks
        )
    }

    /// A read that takes no lock.
    pub fn takes_no_lock(&self) -> bool {
        matches!(self.work, Work::Read { .. }) && self.kind() == 0
    }

    /// An operation of a resync on a level with copies.
    pub fn is_of_copies_resync(&self) -> bool {
        self.kind() == 6
    }

    /// A discard or a write of zeroes of several rows.
    pub fn is_of_rows(&self) -> bool {
        self.kind() == 9
    }

    /// The kind in its token: 0 is a direct read, 6 a resync of copies, 9 zeroes of rows.
    fn kind(&self) -> u64 {
        self.origin.to_bits() >> 60
    }

    /// # Panics
    /// When the two must not be in flight together.
    pub fn assert_compatible(&self, other: &Operation) {
        if let (Some((a, here)), Some((b, there))) = (&self.place, &other.place)
            && a == b
            && here.start < there.end
            && there.start < here.end
        {
            let writes = self.writes_member() || other.writes_member();
            assert!(
                !writes || self.takes_no_lock() || other.takes_no_lock(),
                "in flight together on one range of a member: {self:?} and {other:?}"
            );
        }
        let clash = meet(&self.writes, &other.reads)
            || meet(&self.writes, &other.writes)
            || meet(&self.reads, &other.writes);
        assert!(!clash, "in flight together on the same memory: {self:?} and {other:?}");
    }

    /// # Panics
    /// When its own slices overlap, or do not fill its range.
    pub fn assert_sound(&self) {
        for (at, slice) in self.writes.iter().enumerate() {
            let slice = std::slice::from_ref(slice);
            let clash = meet(slice, &self.writes[at + 1..]) || meet(slice, &self.reads);
            assert!(!clash, "one effect writes what it uses: {self:?}");
            assert!(slice[0].region != REGION_ZERO, "the zero region is written: {self:?}");
        }
        for slice in self.reads.iter().filter(|slice| slice.region == REGION_ZERO) {
            let most = engine::MAX_SPAN_SECTORS * SECTOR_BYTES;
            assert!(slice.offset == 0 && u64::from(slice.len) <= most, "{self:?}");
        }
        if let (Some((_, range)), Work::Read { .. } | Work::Write { .. }) =
            (&self.place, &self.work)
        {
            let slices = self.reads.iter().chain(&self.writes);
            let bytes: u64 = slices.map(|slice| u64::from(slice.len)).sum();
            let length = (range.end - range.start) * SECTOR_BYTES;
            assert_eq!(bytes, length, "slices do not fill the range: {self:?}");
        }
    }
}

/// A computation, the slices that it only reads, and those that it writes.
fn computation(job: &Compute, out: &Effects) -> (Work, Vec<BufSlice>, Vec<BufSlice>) {
    let of = |sources: &[Source]| sources.iter().map(|source| source.slice).collect::<Vec<_>>();
    let with = |sources: &[Source], more: &[BufSlice]| {
        let mut slices = of(sources);
        slices.extend_from_slice(more);
        slices
    };
    match job {
        Compute::Generate { p, q, sources } => {
            let sources = out.sources(sources).to_vec();
            let (reads, writes) = (of(&sources), p.iter().chain(q).copied().collect());
            (Work::Generate { p: *p, q: *q, sources }, reads, writes)
        }
        Compute::Xor { dst, sources } => {
            let sources = out.sources(sources).to_vec();
            let reads = of(&sources);
            (Work::Xor { dst: *dst, sources }, reads, vec![*dst])
        }
        Compute::Update { p, q, deltas } => {
            let deltas = out.deltas(deltas).to_vec();
            let reads = deltas.iter().flat_map(|delta| [delta.old, delta.new]).collect();
            let writes = p.iter().chain(q).copied().collect();
            (Work::Update { p: *p, q: *q, deltas }, reads, writes)
        }
        Compute::RecoverFromP { dst, p, sources } => {
            let sources = out.sources(sources).to_vec();
            let reads = with(&sources, &[*p]);
            (Work::FromP { dst: *dst, p: *p, sources }, reads, vec![*dst])
        }
        Compute::RecoverFromQ { dst, q, sources } => {
            let sources = out.sources(sources).to_vec();
            let reads = with(&sources, &[*q]);
            (Work::FromQ { dst: *dst, q: *q, sources }, reads, vec![dst.slice])
        }
        Compute::RecoverTwo { x, y, p, q, sources } => {
            let sources = out.sources(sources).to_vec();
            let reads = with(&sources, &[*p, *q]);
            let writes = vec![x.slice, y.slice];
            (Work::Two { x: *x, y: *y, p: *p, q: *q, sources }, reads, writes)
        }
        Compute::Check { p, q, sources } => {
            let sources = out.sources(sources).to_vec();
            let parity: Vec<BufSlice> = p.iter().chain(q).copied().collect();
            let reads = with(&sources, &parity);
            (Work::Check { p: *p, q: *q, sources }, reads, Vec::new())
        }
        Compute::Compare { sources } => {
            let sources = out.sources(sources).to_vec();
            let reads = of(&sources);
            (Work::Compare { sources }, reads, Vec::new())
        }
    }
}

/// Whether two slices share bytes that can change.
pub fn overlap(a: &BufSlice, b: &BufSlice) -> bool {
    a.region == b.region
        && a.region != REGION_ZERO
        && a.offset < b.offset + u64::from(b.len)
        && b.offset < a.offset + u64::from(a.len)
}

fn meet(some: &[BufSlice], others: &[BufSlice]) -> bool {
    some.iter().any(|slice| others.iter().any(|other| overlap(slice, other)))
}
