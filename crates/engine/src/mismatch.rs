//! What a scrub compares, finds and reports.
//!
//! ```text
//! BackgroundLoop --next_range()--> HostOp::Scrub requests --> Compute::Check, Compute::Compare
//!   ^                                    |                            | Verdict
//!   +-------------- done() --------------+      ControlEvent::Mismatch+
//! ```
//! A request reads its range from every member and compares. Where something differs, granule by
//! granule and sector by sector, a verdict says which block is to blame, if that can be known: on
//! RAID 6 from P and Q, of three or more copies by majority. RAID 4, 5 and two copies cannot tell.
//!
//! Invariant: a block is rewritten only if the verdict names it, or if the mode says that one side
//! wins. Only complete rows in sync are compared: after a crash, a resync makes parity right and
//! never locates. Blocks that cannot be read are recovered and written back, unless what is left of
//! the row disagrees. Values only; performed by `shard`.

use md::{MemberIdx, Sector};

/// What a scrub does with a mismatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubMode {
    /// Reports it.
    Check,
    /// Rewrites the block that is proven wrong; reports, and leaves, what cannot be proven.
    Repair,
    /// Rewrites the block that is proven wrong; where none is, parity is computed from the data,
    /// and the first copy is written to the others, as by md's `repair`.
    RepairOrResync,
}

/// What a comparison has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Everything agrees.
    #[default]
    Agree,
    /// P is wrong.
    P,
    /// Q is wrong.
    Q,
    /// One data block is wrong: its index among the sources of the computation.
    Data(u8),
    /// These copies are wrong, by their index among the sources: most others are alike.
    Copies(u64),
    /// Something differs, and no single block explains it.
    Unknown,
}

/// What a mismatch was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MismatchKind {
    /// A data block of a row is wrong.
    Data,
    /// P is wrong.
    P,
    /// Q is wrong.
    Q,
    /// A copy is wrong, or copies differ.
    Copy,
    /// Data and parity of a row differ.
    Unknown,
}

/// Adjacent sectors of a row, or of a copy, that do not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Block that is wrong, where that is known.
    pub kind: MismatchKind,
    /// First array sector: of the wrong block; where it is parity or unknown, of the row's first
    /// data block.
    pub array_sector: Sector,
    /// Number of sectors.
    pub sectors: u64,
    /// The member that holds the wrong block; `None`: nothing proves which one does.
    pub member: Option<MemberIdx>,
    /// First sector in the data area of the member; of one that is not known, of the row on all
    /// members, or of the first copy.
    pub member_sector: Sector,
    /// It has been repaired.
    pub repaired: bool,
}
