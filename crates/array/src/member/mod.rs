//! What an array is made of: things that read and write sectors.
//!
//! ```text
//! leaves: mem  null  file  nbd  disk   wrappers: paced(m)  fault(m)  bad_block(m)  unwritten(m)
//! arrays: nested
//! ```
//! Leaves count what they are to move, so that the figures are taken below everything.

mod bad_block_member;
mod disk;
mod error_text;
mod fault;
mod file;
mod mem;
mod nbd;
mod nested;
mod null;
mod paced;
mod traits;
mod unwritten;
#[allow(unsafe_code)]
mod uring;

pub use self::nbd::NbdMember;
pub use bad_block_member::{BadBlockList, BadBlockMember};
pub use disk::DiskMember;
pub use drive::Fault;
pub use error_text::io_error_text;
pub(crate) use error_text::late_text;
pub use fault::{FaultControl, FaultMember};
pub use file::{FileMember, FileOptions, OpenError};
pub use mem::MemMember;
pub use nested::NestedMember;
pub use null::NullMember;
pub use paced::{PaceControl, PacedMember};
pub use traits::{
    Counters, FormerLeaf, Io, Known, Member, MemberCompletion, MemberInfo, Op, OpKind,
};
pub use unwritten::UnwrittenMember;
pub use uring::Cqe;

pub(crate) use file::cause_of;
pub(crate) use host::FileId;
pub(crate) use traits::{Leaf, Sealed};
#[cfg(test)]
pub(crate) use uring::FileOp;
pub(crate) use uring::Ring;
