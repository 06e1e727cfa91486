//! One operation on a range of a chunk row: the blocks that it covers, and its state.
//!
//! Invariant: every data position is either covered over the whole range or not at all, so that one
//! plan fits the whole range. Made by `rows`, driven by `ops`.
//!
//! ```text
//! chunk row     idx 0      idx 1      idx 2       P
//!             |........|  |........|  |........|  |........|
//! range [a,b)   ^^^^        ^^^^                              covered = {0, 1}
//! ```

use md::{MemberIdx, Row, RowRole, StripeNo};

use super::super::in_sync::InSync;
use super::plan::ParityWork;
use super::scratch::Block;
use crate::{BufSlice, GRANULE_SECTORS, MemberSet, RequestError, ScrubMode, Verdict};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Planned again as soon as there is stripe memory.
    #[default]
    Starting,
    /// Member reads are in flight.
    Reading,
    /// Lost blocks are being recovered.
    Recovering,
    /// Partial parity for the log is being computed.
    PartialParity,
    /// Parity is being computed.
    Computing,
    /// Waits until the log is durable.
    Logging,
    /// Data and parity are being written.
    Writing,
    /// Reconstructed data are being written back to a member that could not read them.
    WritingBack,
    /// A write has failed half-way: the old parity is being computed.
    Reverting,
    /// Old data and old parity are being written.
    RollingBack,
    /// A scrub or a resync compares the row.
    Checking,
    /// A scrub computes right contents.
    Repairing,
    /// A scrub writes them.
    WritingRepair,
}

/// The requested work on a range of a data block, or for [`Intent::Resync`] on the whole row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OpKind {
    #[default]
    Read,
    Write,
    /// Whole rows only, and only if members guarantee zeroes afterwards.
    Discard,
    /// Without host data: parity is compared with the members' data, and computed from them where
    /// it differs.
    Resync,
    /// Without host data: blocks of members that are being rebuilt are computed and written.
    Rebuild,
    /// Without host data: the row is compared; see `scrub`.
    Scrub(ScrubMode),
}

impl OpKind {
    /// Whether it is a host's: others come to the same row.
    pub(crate) fn is_host_write(self) -> bool {
        matches!(self, OpKind::Write | OpKind::Discard)
    }

    /// Whether pieces have data of hosts.
    pub(crate) fn has_host_data(self) -> bool {
        !matches!(self, OpKind::Resync | OpKind::Rebuild | OpKind::Scrub(_))
    }
}

/// Maximum size of the operations that a row is split into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grain {
    /// As coarsely as buffers allow.
    #[default]
    Span,
    /// Single granules: a longer range had a bad block, or only a part of it is in sync.
    Granule,
    /// Single logical blocks: only a part of a granule is in sync.
    Block,
}

/// Only pieces of equal class are combined into one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) kind: OpKind,
    pub(crate) grain: Grain,
}

impl Class {
    /// Whether the range must be locked exclusively.
    pub(crate) fn is_exclusive(self) -> bool {
        self.kind != OpKind::Read || self.grain != Grain::Span
    }
}

/// Location of the block at one position of the row during the operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    /// Range in `Op::host`: the host's slices, in order, for a covered data position.
    pub(crate) host_first: u32,
    pub(crate) host_count: u32,
    /// Offset in the stripe memory, for blocks that the operation reads, recovers or computes.
    pub(crate) scratch: Option<u64>,
}

/// The member at a position of a row.
pub(super) fn member_at(row: &Row, position: u16) -> MemberIdx {
    match usize::from(position) {
        at if at < row.data.len() => row.data[at],
        at if at == row.data.len() => row.p,
        _ => row.q.expect("only a row with Q has a position for it"),
    }
}

/// The positions of a row whose members are in `members`.
pub(super) fn positions_of(row: &Row, members: MemberSet) -> MemberSet {
    if members.is_empty() {
        return members;
    }
    let position = |member: u16| match row.role[usize::from(member)] {
        RowRole::Data(index) => index,
        RowRole::P => row.data.len() as u16,
        RowRole::Q => row.data.len() as u16 + 1,
    };
    members.iter().map(position).collect()
}

/// What is done, with the state that only this kind of work has. Its kind stands in a byte of its
/// own, because every step looks at it.
#[derive(Default)]
#[repr(u8)]
pub(crate) enum Work {
    #[default]
    Read,
    Write(Write),
    Resync(Resync),
    Rebuild(Rebuild),
    Scrub(Scrub),
}

/// The parity of a row whose redundancy is not trusted.
#[derive(Default)]
pub(crate) struct Resync {
    /// It is read, too, and written only where it differs.
    pub(crate) compares: bool,
    /// It has been compared, and agrees.
    pub(crate) agrees: bool,
}

/// A write, a write of zeroes or a discard.
#[derive(Default)]
pub(crate) struct Write {
    pub(crate) fua: bool,
    /// Only zeroes are written, to every data block of the row.
    pub(crate) zeroes: bool,
    /// Memory for the partial parity.
    pub(crate) partial: Option<Block>,
    /// The newest log of the parity's member names it.
    pub(crate) in_log: bool,
}

#[derive(Default)]
pub(crate) struct Rebuild {
    /// Positions that are computed and written, or cannot be, and are listed as bad.
    pub(crate) targets: MemberSet,
    /// Positions whose members' replacements are written.
    pub(crate) copies: MemberSet,
    /// Positions that cannot be computed, and are added to bad-block logs.
    pub(crate) unreadable: MemberSet,
    /// A member could not be read for another reason than its medium.
    pub(crate) unsure: bool,
    /// `Health::changes` when the first plan was made.
    pub(crate) since: u64,
}

pub(crate) struct Scrub {
    pub(crate) mode: ScrubMode,
    /// What was found in each sector of a granule; for a longer range the first one.
    pub(crate) verdicts: [Verdict; GRANULE_SECTORS as usize],
}

impl Work {
    /// New work of a kind, made where it stays: the kinds differ in size.
    fn begin(&mut self, kind: OpKind) {
        match kind {
            OpKind::Read => *self = Work::Read,
            OpKind::Write | OpKind::Discard => *self = Work::Write(Write::default()),
            OpKind::Resync => *self = Work::Resync(Resync::default()),
            OpKind::Rebuild => *self = Work::Rebuild(Rebuild::default()),
            OpKind::Scrub(mode) => {
                let verdicts = [Verdict::Agree; GRANULE_SECTORS as usize];
                *self = Work::Scrub(Scrub { mode, verdicts });
            }
        }
    }
}

/// What a plan was made for, and what depends on that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Basis {
    /// The array's failure epoch.
    pub(crate) epoch: u64,
    /// Positions that could not be read.
    pub(crate) read_failed: MemberSet,
    /// Positions whose members are not written: out of service, or being rebuilt and not in sync.
    pub(crate) absent: MemberSet,
    /// How much of the range is in sync, as far as the plan depends on it.
    pub(crate) in_sync: InSync,
    /// P is read or cached before the recovery. (It also has memory if it is only computed.)
    pub(crate) p_known: bool,
    /// Lost blocks of the row depend on its old contents, which are therefore kept in memory until
    /// the writes have completed; but parity that is updated, which a second update restores.
    pub(crate) keeps_old: bool,
}

#[derive(Default)]
pub(crate) struct Op {
    pub(crate) row: u32,
    pub(crate) stripe: StripeNo,
    /// The range inside the chunk, in sectors.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) class: Class,
    pub(crate) work: Work,
    pub(crate) covered: MemberSet,
    /// Part of a stream: its blocks in memory are worth caching.
    pub(crate) stream: bool,
    pub(crate) cells: Vec<Cell>,
    pub(crate) host: Vec<BufSlice>,
    pub(crate) pieces: Vec<u32>,
    /// Blocks of stripe memory that the operation owns, by position.
    pub(crate) blocks: Vec<(u16, Block)>,
    /// Cache entries of the row that it uses, by position and entry.
    pub(crate) borrowed: Vec<(u16, u64)>,

    pub(crate) begun_at: u64,
    pub(crate) phase: Phase,
    pub(crate) open: u32,
    /// Of the plan; `None` for reads.
    pub(crate) parity: Option<ParityWork>,
    /// Lost blocks to be recovered; of a scrub also those to be written.
    pub(crate) recover: MemberSet,
    /// Requested positions that are unrecoverable.
    pub(crate) unrecoverable: MemberSet,
    pub(crate) basis: Basis,
    /// Positions that could not be read.
    pub(crate) read_failed: MemberSet,
    pub(crate) error: Option<RequestError>,
    /// Positions whose members have the new contents, or may have a part of them.
    pub(crate) changed: MemberSet,
    /// A write has failed, and its changes have not been rolled back.
    pub(crate) half_way: bool,
    /// Operations of members that are late, and use its memory.
    pub(crate) late: u16,
}

impl Op {
    /// Partial parity that is logged before it writes, in sectors.
    pub(crate) fn partial_sectors(&self) -> u64 {
        if self.partial().is_some() { self.sectors() } else { 0 }
    }

    /// Makes the slot ready for a new operation; keeps the vectors' memory.
    pub(crate) fn reset(&mut self, row: u32, stripe: StripeNo, span: (u64, u64), class: Class) {
        // Field by field, because a new value would be built elsewhere and copied; all fields are
        // named here, so that none is missed.
        let is_over =
            self.blocks.is_empty() && self.borrowed.is_empty() && self.partial().is_none();
        assert!(is_over, "an operation ended without giving its memory back");
        let Op {
            row: row_here,
            stripe: stripe_here,
            start,
            end,
            class: class_here,
            work,
            covered,
            stream,
            cells,
            host,
            pieces,
            blocks: _,
            borrowed: _,
            begun_at,
            phase,
            open,
            parity,
            recover,
            unrecoverable,
            basis,
            read_failed,
            error,
            changed,
            half_way,
            late,
        } = self;
        (*row_here, *stripe_here, *class_here) = (row, stripe, class);
        (*start, *end) = span;
        work.begin(class.kind);
        cells.clear();
        host.clear();
        pieces.clear();
        (*stream, *half_way, *late) = (false, false, 0);
        (*begun_at, *phase, *open, *error) = (0, Phase::default(), 0, None);
        (*parity, *basis) = (None, Basis::default());
        for set in [covered, recover, unrecoverable, read_failed, changed] {
            *set = MemberSet::EMPTY;
        }
    }

    pub(crate) fn write(&self) -> Option<&Write> {
        match &self.work {
            Work::Write(write) => Some(write),
            _ => None,
        }
    }

    pub(crate) fn write_mut(&mut self) -> Option<&mut Write> {
        match &mut self.work {
            Work::Write(write) => Some(write),
            _ => None,
        }
    }

    /// Memory for the partial parity of a write.
    pub(crate) fn partial(&self) -> Option<Block> {
        self.write().and_then(|write| write.partial)
    }

    pub(crate) fn take_partial(&mut self) -> Option<Block> {
        self.write_mut().and_then(|write| write.partial.take())
    }

    /// The newest log of the parity's member names a write.
    pub(crate) fn note_logged(&mut self) {
        self.write_mut().expect("only writes are logged").in_log = true;
    }

    pub(crate) fn rebuild(&self) -> Option<&Rebuild> {
        match &self.work {
            Work::Rebuild(rebuild) => Some(rebuild),
            _ => None,
        }
    }

    pub(crate) fn rebuild_mut(&mut self) -> Option<&mut Rebuild> {
        match &mut self.work {
            Work::Rebuild(rebuild) => Some(rebuild),
            _ => None,
        }
    }

    /// The state of a scrub.
    ///
    /// # Panics
    /// If it is none.
    pub(crate) fn scrub(&self) -> &Scrub {
        match &self.work {
            Work::Scrub(scrub) => scrub,
            _ => unreachable!("the operation is not a scrub"),
        }
    }

    pub(crate) fn is_rebuild(&self) -> bool {
        matches!(self.work, Work::Rebuild(_))
    }

    /// Whether the block at a position is added to a bad-block log in place of being written.
    pub(crate) fn is_unreadable(&self, position: u16) -> bool {
        self.rebuild().is_some_and(|rebuild| rebuild.unreadable.contains(position))
    }

    pub(crate) fn is_scrub(&self) -> bool {
        matches!(self.work, Work::Scrub(_))
    }

    /// Whether members are written without their data being sent: a discard, or only zeroes.
    pub(crate) fn writes_no_data(&self) -> bool {
        self.class.kind == OpKind::Discard || self.write().is_some_and(|write| write.zeroes)
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.end - self.start
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.work, Work::Read)
    }

    /// Whether the range is locked exclusively: also for reads in granules, which write back.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.class.is_exclusive()
    }

    /// Whether the work could be split into granules, each with an exclusive lock on its range.
    pub(crate) fn can_be_cut(&self) -> bool {
        self.class.grain == Grain::Span
    }

    /// The next smaller size.
    pub(crate) fn smaller(&self) -> Option<Grain> {
        match self.class.grain {
            Grain::Span => Some(Grain::Granule),
            Grain::Granule => Some(Grain::Block),
            Grain::Block => None,
        }
    }

    /// The next smaller size with which more of the work may be possible.
    pub(crate) fn finer(&self) -> Option<Grain> {
        let part = self.basis.in_sync == InSync::Part;
        match self.class.grain {
            Grain::Span if part || !self.read_failed.is_empty() => Some(Grain::Granule),
            Grain::Granule if part => Some(Grain::Block),
            _ => None,
        }
    }

    /// Whether a block that the operation reads into the stripe memory may be lent by the member
    /// instead: the range is locked until the operation ends, and of the blocks read into memory
    /// (`return_memory`) only other data of a row that a stream writes are used later. Old contents
    /// of written blocks are not, and parity has been recomputed by then, unless a resync found
    /// that it agrees. What is read to be copied to a replacement is written from the memory. Of
    /// what a write that fails half-way is rolled back to, parity that is updated need not be kept:
    /// a second update restores it.
    pub(crate) fn may_borrow(&self, position: u16) -> bool {
        let writes_back = self.is_scrub() && !self.can_be_cut();
        let is_copied = self.rebuild().is_some_and(|rebuild| rebuild.copies.contains(position));
        if writes_back || is_copied {
            return false;
        }
        let data = self.cells.len() as u16 - 2;
        if self.basis.keeps_old {
            return position >= data && self.parity == Some(ParityWork::Update);
        }
        let is_computed = position >= data && !matches!(self.work, Work::Resync(_));
        self.is_read() || !self.stream || self.covered.contains(position) || is_computed
    }

    pub(crate) fn host_slices(&self, position: u16) -> &[BufSlice] {
        let cell = &self.cells[usize::from(position)];
        &self.host[cell.host_first as usize..(cell.host_first + cell.host_count) as usize]
    }

    /// The slice of the stripe memory for `position`, from chunk sector `from` on, `sectors` long.
    pub(crate) fn scratch_slice(
        &self,
        region: u16,
        position: u16,
        from: u64,
        sectors: u64,
    ) -> BufSlice {
        let base = self.cells[usize::from(position)].scratch.expect("the plan gave it memory");
        BufSlice {
            region,
            len: (sectors * md::SECTOR_BYTES) as u32,
            offset: base + (from - self.start) * md::SECTOR_BYTES,
        }
    }

    /// The host's slice for a covered position, from chunk sector `from` on.
    pub(crate) fn host_from(&self, position: u16, from: u64) -> BufSlice {
        let mut at = self.start;
        for slice in self.host_slices(position) {
            let end = at + slice.sectors();
            if from < end {
                return slice.part(from - at, end - from);
            }
            at = end;
        }
        unreachable!("position {position} is not covered at sector {from}")
    }
}
