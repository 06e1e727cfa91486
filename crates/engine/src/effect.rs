//! What the engine wants done: the only way it touches the world.
//!
//! Effects of one batch are in the order in which they were decided, but an executor may perform
//! them in any order: the engine never issues an effect before the ones that it depends on are
//! reported done. Every effect carries its size, so that a model can price it.

use md::{MemberIdx, Sector};
use std::ops::Range;

use crate::{BufSlice, MemberError, MemberSet, RequestError, Token};

/// A computation over buffer slices of equal length. Ranges index [`Effects`]' own arenas.
#[derive(Clone, Debug)]
pub enum Compute {
    /// P and/or Q from all data blocks of a row (`sources`, by ascending exponent).
    Generate {
        /// Where P goes.
        p: Option<BufSlice>,
        /// Where Q goes.
        q: Option<BufSlice>,
        /// Range in [`Effects::sources`].
        sources: Range<u32>,
    },
    /// P and/or Q brought up to date in place: `P ^= old ^ new`, `Q ^= g^e (old ^ new)`.
    Update {
        /// Old P in, new P out.
        p: Option<BufSlice>,
        /// Old Q in, new Q out.
        q: Option<BufSlice>,
        /// Range in [`Effects::deltas`].
        deltas: Range<u32>,
    },
    /// One data block from P: `D = P ^ others`.
    RecoverFromP {
        /// Where the block goes.
        dst: BufSlice,
        /// P.
        p: BufSlice,
        /// Every other data block.
        sources: Range<u32>,
    },
    /// One data block from Q.
    RecoverFromQ {
        /// Exponent of the lost block, and where it goes.
        dst: Source,
        /// Q.
        q: BufSlice,
        /// Every other data block, by ascending exponent.
        sources: Range<u32>,
    },
    /// Two data blocks from P and Q.
    RecoverTwo {
        /// One lost block.
        x: Source,
        /// The other.
        y: Source,
        /// P.
        p: BufSlice,
        /// Q.
        q: BufSlice,
        /// Every other data block, by ascending exponent.
        sources: Range<u32>,
    },
}

/// A data block of a row: its Q exponent and where it is.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Its coefficient in Q is 2 to this power.
    pub exponent: u8,
    /// The block, or as much of it as the computation covers.
    pub slice: BufSlice,
}

/// A data block that changes.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    /// Its coefficient in Q is 2 to this power.
    pub exponent: u8,
    /// What the member holds.
    pub old: BufSlice,
    /// What it will hold.
    pub new: BufSlice,
}

/// Something that the control plane must hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlEvent {
    /// A member was taken out of service. Writes that rely on it are held back until
    /// [`crate::Control::Recorded`] with this epoch comes.
    MemberFailed {
        /// Who.
        member: MemberIdx,
        /// What it did, or `None` when it was told to go.
        error: Option<MemberError>,
        /// Configuration epoch that begins with this failure.
        epoch: u64,
    },
    /// Writes wait until the members say that something may be written here:
    /// [`crate::Control::Granted`] answers. Bits of [`crate::IntentMap`].
    Intent {
        /// First bit.
        first_bit: u32,
        /// How many.
        bits: u32,
    },
    /// Granted bits that nobody has used for a while; they must be asked for again.
    Released {
        /// First bit.
        first_bit: u32,
        /// How many.
        bits: u32,
    },
    /// A write failed half-way: what these bits cover may be inconsistent for good, until it is
    /// resynced. Comes before the bits are released.
    OutOfSync {
        /// First bit.
        first_bit: u32,
        /// How many.
        bits: u32,
    },
    /// A flush failed on a member that the array cannot do without: writes that it had completed
    /// may be lost, and a later flush that ends well says nothing of them.
    NotDurable {
        /// Which.
        member: MemberIdx,
    },
    /// Shard 0 begins to flush: every other shard is to get [`crate::Control::GiveWritten`].
    CollectDirtyMembers,
    /// Answer to [`crate::Control::GiveWritten`], for shard 0 as [`crate::Control::Written`]. From
    /// now on shard 0 answers for these members.
    Written {
        /// See [`crate::Control::Written`].
        members: MemberSet,
        /// See [`crate::Control::Written`].
        kept: bool,
    },
    /// A range could not be read, was reconstructed and written back.
    Corrected {
        /// Whose range.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
}

/// One effect. Member sectors count from the start of the member's data area.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read a contiguous member range into slices, in order.
    Read {
        /// Comes back with the outcome.
        token: Token,
        /// Whom.
        member: MemberIdx,
        /// From where.
        sector: Sector,
        /// Range in [`Effects::slices`].
        slices: Range<u32>,
        /// A loan will do: what is read is only the input of computations of the same operation, or
        /// a parity that they bring up to date, and until these are reported done nothing changes
        /// these sectors of the member. So an executor that can may leave the bytes where they lie
        /// and compute from there; where a parity is updated, its result goes into the slice.
        in_place_ok: bool,
    },
    /// Write slices, in order, to a contiguous member range.
    Write {
        /// Comes back with the outcome.
        token: Token,
        /// Whom.
        member: MemberIdx,
        /// To where.
        sector: Sector,
        /// Range in [`Effects::slices`].
        slices: Range<u32>,
        /// Durable when done.
        fua: bool,
    },
    /// Make everything that the member has completed durable.
    Flush {
        /// Comes back with the outcome.
        token: Token,
        /// Whom.
        member: MemberIdx,
    },
    /// Tell the member that a range is not needed; it reads as zeroes from then on.
    Discard {
        /// Comes back with the outcome.
        token: Token,
        /// Whom.
        member: MemberIdx,
        /// From where.
        sector: Sector,
        /// How much.
        sectors: u64,
    },
    /// Make a range read as zeroes.
    WriteZeroes {
        /// Comes back with the outcome.
        token: Token,
        /// Whom.
        member: MemberIdx,
        /// From where.
        sector: Sector,
        /// How much.
        sectors: u64,
    },
    /// Compute over buffers.
    Compute {
        /// Comes back when done.
        token: Token,
        /// What.
        job: Compute,
    },
    /// Send [`crate::Input::Timer`] at or after `at`. A later one replaces an earlier one.
    SetTimer {
        /// In the clock that `handle` is called with.
        at: u64,
    },
    /// A host request has ended.
    Complete {
        /// The request's own tag.
        tag: u64,
        /// How it ended.
        result: Result<(), RequestError>,
    },
    /// For the control plane.
    Control(ControlEvent),
}

/// A batch of effects and the arenas that their ranges point into. Reused from batch to batch, so a
/// warm one does not allocate.
#[derive(Debug, Default)]
pub struct Effects {
    /// In the order of decision.
    pub list: Vec<Effect>,
    /// Buffer slices of reads and writes.
    pub slices: Vec<BufSlice>,
    /// Inputs of computations.
    pub sources: Vec<Source>,
    /// Inputs of parity updates.
    pub deltas: Vec<Delta>,
}

impl Effects {
    /// Nothing to do.
    pub fn new() -> Effects {
        Effects::default()
    }

    /// Forgets the batch and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.slices.clear();
        self.sources.clear();
        self.deltas.clear();
    }

    /// The slices of a read or a write.
    pub fn slices(&self, range: &Range<u32>) -> &[BufSlice] {
        &self.slices[range.start as usize..range.end as usize]
    }

    /// The inputs of a computation.
    pub fn sources(&self, range: &Range<u32>) -> &[Source] {
        &self.sources[range.start as usize..range.end as usize]
    }

    /// The changes of a parity update.
    pub fn deltas(&self, range: &Range<u32>) -> &[Delta] {
        &self.deltas[range.start as usize..range.end as usize]
    }

    pub(crate) fn complete(&mut self, tag: u64, result: Result<(), RequestError>) {
        self.list.push(Effect::Complete { tag, result });
    }

    /// Adds slices and returns where they are.
    pub(crate) fn push_slices(&mut self, slices: impl IntoIterator<Item = BufSlice>) -> Range<u32> {
        let start = self.slices.len() as u32;
        self.slices.extend(slices);
        start..self.slices.len() as u32
    }
}
