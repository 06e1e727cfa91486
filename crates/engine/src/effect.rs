//! Effects: requests of the engine to its executor, and its only output.
//!
//! The effects of a batch are in the order in which they were decided, but an executor may perform
//! them in any order: the engine issues an effect only after those that it depends on have been
//! reported complete. Every effect carries its size, so that a model can compute its cost.

use md::ondisk::ppl::PplEntry;
use md::{MemberIdx, Sector};
use std::ops::Range;

use crate::{BufSlice, IoError, MemberSet, Mismatch, RequestError, Token};

/// A computation over buffer slices of equal length. Ranges refer to the arenas of [`Effects`].
#[derive(Clone, Debug)]
pub enum Compute {
    /// Generates P and/or Q from all data blocks of a row (`sources`, by ascending exponent).
    Generate {
        /// Destination of P.
        p: Option<BufSlice>,
        /// Destination of Q.
        q: Option<BufSlice>,
        /// Range in [`Effects::sources`].
        sources: Range<u32>,
    },
    /// Updates P and/or Q in place: `P ^= old ^ new`, `Q ^= g^e (old ^ new)`.
    Update {
        /// Old P as input, new P as output.
        p: Option<BufSlice>,
        /// Old Q as input, new Q as output.
        q: Option<BufSlice>,
        /// Range in [`Effects::deltas`].
        deltas: Range<u32>,
    },
    /// Recovers one data block from P: `D = P ^ others`.
    RecoverFromP {
        /// Destination of the block.
        dst: BufSlice,
        /// P.
        p: BufSlice,
        /// Every other data block.
        sources: Range<u32>,
    },
    /// Recovers one data block from Q.
    RecoverFromQ {
        /// Exponent and destination of the lost block.
        dst: Source,
        /// Q.
        q: BufSlice,
        /// Every other data block, by ascending exponent.
        sources: Range<u32>,
    },
    /// Recovers two data blocks from P and Q.
    RecoverTwo {
        /// The first lost block.
        x: Source,
        /// The second lost block.
        y: Source,
        /// P.
        p: BufSlice,
        /// Q.
        q: BufSlice,
        /// Every other data block, by ascending exponent.
        sources: Range<u32>,
    },
    /// The XOR of blocks.
    Xor {
        /// Destination.
        dst: BufSlice,
        /// Range in [`Effects::sources`]; exponents mean nothing.
        sources: Range<u32>,
    },
    /// Compares all data blocks of a row (by ascending exponent) with P, Q or both; completed by
    /// [`crate::Input::Checked`].
    Check {
        /// P.
        p: Option<BufSlice>,
        /// Q.
        q: Option<BufSlice>,
        /// Range in [`Effects::sources`].
        sources: Range<u32>,
    },
    /// Compares copies of the same block; completed by [`crate::Input::Checked`].
    Compare {
        /// Range in [`Effects::sources`]; exponents mean nothing.
        sources: Range<u32>,
    },
}

/// A data block of a row: its Q exponent and its location.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Exponent e of its coefficient 2^e in Q, 0 to 254.
    pub exponent: u8,
    /// The block, or the part of it that the computation covers.
    pub slice: BufSlice,
}

/// A changed data block.
#[derive(Clone, Copy, Debug)]
pub struct Delta {
    /// Exponent e of its coefficient 2^e in Q, 0 to 254.
    pub exponent: u8,
    /// Contents on the member.
    pub old: BufSlice,
    /// Contents that are to be written.
    pub new: BufSlice,
}

/// An event for the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlEvent {
    /// A member was taken out of service. Writes that rely on it are held back until
    /// [`crate::Control::Recorded`] with this epoch.
    MemberFailed {
        /// The member's place (see [`Effect`]), or that of what was to replace it.
        member: MemberIdx,
        /// The error, or `None` if it was failed on request.
        error: Option<IoError>,
        /// Configuration epoch that begins with this failure.
        epoch: u64,
    },
    /// Writes wait until the metadata record write intents for these bits of [`crate::IntentMap`];
    /// answered by [`crate::Control::Granted`].
    Intent {
        /// First bit.
        first_bit: u32,
        /// Number of bits.
        bits: u32,
    },
    /// Granted bits that have been unused for a while; the shard must request them again.
    Released {
        /// First bit.
        first_bit: u32,
        /// Number of bits.
        bits: u32,
    },
    /// A write failed half-way: the range of these bits may be out of sync until it is resynced.
    /// Sent before the bits are released.
    OutOfSync {
        /// First bit.
        first_bit: u32,
        /// Number of bits.
        bits: u32,
    },
    /// A flush failed on a member that the array cannot run without: completed writes on it may be
    /// lost, and a later successful flush does not prove otherwise.
    NotDurable {
        /// The member's slot.
        member: MemberIdx,
    },
    /// Shard 0 begins a flush: every other shard must get [`crate::Control::TakeDirtyMembers`].
    CollectDirtyMembers,
    /// Answer to [`crate::Control::TakeDirtyMembers`], passed to shard 0 as
    /// [`crate::Control::Written`]. From now on shard 0 is responsible for flushing these members.
    Written {
        /// See [`crate::Control::Written`].
        members: MemberSet,
        /// See [`crate::Control::Written`].
        kept: bool,
    },
    /// A range could not be read; it was reconstructed and written back.
    Corrected {
        /// The member's slot.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// A range of a device that is being filled could not be computed, because what it is computed
    /// from cannot be read: it is in the device's bad-block log, durably, and counts as in sync.
    /// Sent before the range completes: no superblock may record the range as in sync that does not
    /// also say that the log is in use.
    BadBlocksAdded {
        /// The device's place (see [`Effect`]).
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// Answer to [`crate::Control::BeginRebuild`] and [`crate::Control::BeginReplacement`].
    RebuildBegan {
        /// Place of the device (see [`Effect`]).
        member: MemberIdx,
    },
    /// A scrub has found blocks that do not agree.
    Mismatch(Mismatch),
}

// A batch has several for each request.
const _: () = assert!(size_of::<Effect>() == 48);

/// One effect. Member sectors are relative to the start of the member's data area.
///
/// Operations name the *place* of a device: the slot of a member. A device that replaces the member
/// of slot `s` is at `s + members`; after it has taken the slot, too.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Read a contiguous member range into slices, in order.
    Read {
        /// Token of the completion.
        token: Token,
        /// The member's place.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Range in [`Effects::slices`].
        slices: Range<u32>,
        /// The data may be lent instead of copied: they are only the input of computations of the
        /// same operation, or a parity that these update, and the sectors do not change until the
        /// computations are complete, of a parity until all of it has been updated. So an executor
        /// may leave the bytes in place and compute from there; the result of a parity update goes
        /// into the slice.
        in_place_ok: bool,
    },
    /// Write slices, in order, to a contiguous member range.
    Write {
        /// Token of the completion.
        token: Token,
        /// The member's place.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Range in [`Effects::slices`].
        slices: Range<u32>,
        /// Force unit access: durable when complete.
        fua: bool,
    },
    /// Writes a log to the member's partial parity area: a header of
    /// [`md::ondisk::ppl::PPL_HEADER_BYTES`], then the slices. It is durable when complete; if it
    /// fails, any part of it may be there.
    WriteLog {
        /// Token of the completion.
        token: Token,
        /// The member's slot.
        member: MemberIdx,
        /// First sector of the area to write.
        sector: Sector,
        /// Generation in the header.
        generation: u64,
        /// Range in [`Effects::log_entries`]. The executor computes their checksums, of the slices
        /// in order: one for each entry with partial parity.
        entries: Range<u32>,
        /// Range in [`Effects::slices`]: the partial parity.
        slices: Range<u32>,
    },
    /// Makes everything that the member has completed durable.
    Flush {
        /// Token of the completion.
        token: Token,
        /// The member's slot.
        member: MemberIdx,
    },
    /// Discards a range of the member; it reads as zeroes from then on.
    Discard {
        /// Token of the completion.
        token: Token,
        /// The member's slot.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// Makes a range read as zeroes.
    WriteZeroes {
        /// Token of the completion.
        token: Token,
        /// The member's slot.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// Adds a range to the member's bad-block log, durably: from then on reads of it end with
    /// [`crate::MemberError::BadBlock`], until it is written. A member without a log, and one whose
    /// log is full, have no space for it.
    AddBadBlocks {
        /// Token of the completion.
        token: Token,
        /// The member's place.
        member: MemberIdx,
        /// First member sector.
        sector: Sector,
        /// Length in sectors.
        sectors: u64,
    },
    /// Computes over buffers.
    Compute {
        /// Token of the completion.
        token: Token,
        /// Index in [`Effects::jobs`].
        job: u32,
    },
    /// Requests [`crate::Input::Timer`] at or after `at`. A later one replaces an earlier one.
    SetTimer {
        /// Nanoseconds of the clock that `handle` is called with.
        at: u64,
    },
    /// Completes a host request.
    Complete {
        /// The host's tag of the request.
        tag: u64,
        /// The request's result.
        result: Result<(), RequestError>,
    },
    /// An operation that is late uses the buffer of this request, also when the request has
    /// completed: until [`Effect::Release`] nothing else may use it. A read of a host that has been
    /// held has no result, whatever it completes with: it is to be begun anew, with a buffer that
    /// is not held.
    Hold {
        /// The host's tag of the request. It must not be used again before the buffer is released.
        tag: u64,
    },
    /// No operation uses the buffer of this request any more, except those of the request itself.
    Release {
        /// The host's tag of the request.
        tag: u64,
    },
    /// A device is out of service: its operations that have not completed at `at` are late.
    Abandon {
        /// Place of the device.
        member: MemberIdx,
        /// Nanoseconds of the clock that `handle` is called with.
        at: u64,
    },
    /// An event for the control plane.
    Control(ControlEvent),
}

/// A batch of effects with its arenas. Reused from batch to batch, so that a warm one does not
/// allocate.
#[derive(Debug, Default)]
pub struct Effects {
    /// Effects in the order in which they were decided.
    pub list: Vec<Effect>,
    /// Computations, in a list of their own: they are longer than all other effects.
    pub jobs: Vec<Compute>,
    /// Buffer slices of reads and writes.
    pub slices: Vec<BufSlice>,
    /// Inputs of computations.
    pub sources: Vec<Source>,
    /// Inputs of parity updates.
    pub deltas: Vec<Delta>,
    /// Entries of partial parity logs, without checksums.
    pub log_entries: Vec<PplEntry>,
}

impl Effects {
    /// An empty batch.
    pub fn new() -> Effects {
        Effects::default()
    }

    /// Removes all effects and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.jobs.clear();
        self.slices.clear();
        self.sources.clear();
        self.deltas.clear();
        self.log_entries.clear();
    }

    /// A computation.
    pub fn job(&self, index: u32) -> &Compute {
        &self.jobs[index as usize]
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

    /// The entries of a log.
    pub fn log_entries(&self, range: &Range<u32>) -> &[PplEntry] {
        &self.log_entries[range.start as usize..range.end as usize]
    }

    pub(crate) fn complete(&mut self, tag: u64, result: Result<(), RequestError>) {
        self.list.push(Effect::Complete { tag, result });
    }

    pub(crate) fn compute(&mut self, token: Token, job: Compute) {
        let index = self.jobs.len() as u32;
        self.jobs.push(job);
        self.list.push(Effect::Compute { token, job: index });
    }

    /// Appends slices and returns their range.
    pub(crate) fn push_slices(&mut self, slices: impl IntoIterator<Item = BufSlice>) -> Range<u32> {
        let start = self.slices.len() as u32;
        self.slices.extend(slices);
        start..self.slices.len() as u32
    }
}
