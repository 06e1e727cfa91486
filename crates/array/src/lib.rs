//! The data plane: real members, real buffers, and the loop that performs the engine's effects.
//!
//! *Invariant*: no decision about the array is made here. Unsafe code lives only in `buf` and
//! `member/uring`.
//!
//! An array with its own threads, for programs that read and write:
//!
//! ```
//! use raidlab_array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, MemberSpec};
//! use md::{Layout, Level};
//!
//! let members = (0..4).map(|_| MemMember::new(8192).map(MemberSpec::ready));
//! let spec = ArraySpec {
//!     level: Level::Raid5,
//!     layout: Layout::default_for(Level::Raid5),
//!     chunk_sectors: 128,
//!     members: members.collect::<Result<_, _>>()?,
//!     data_plane: DataPlaneConfig::default(),
//! };
//! let array = Array::start(spec, &DriverOptions::default())?;
//! array.write_at(&[7; 4096], 64 * 1024)?;
//! array.fail_member(md::MemberIdx(1));
//!
//! // Blocking, and degraded by now: the lost blocks are recovered from parity.
//! let mut back = [0; 4096];
//! array.read_at(&mut back, 64 * 1024)?;
//! assert_eq!(back, [7; 4096]);
//!
//! // The same as a future, for any executor.
//! let lease = array.lease(4096);
//! let pending = array.read(lease, 64 * 1024);
//! let lease = pending.wait()?;
//! assert_eq!(lease.bytes(), [7; 4096]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same array without a thread is a [`Driver`]: submit, poll, wait.

mod all_late;
mod api;
#[allow(unsafe_code)]
mod buf;
mod build;
mod driver;
mod executor;
mod in_flight;
mod managed;
mod member;
mod metadata_threads;
mod metadata_writer;
mod shard_channels;
mod table;

pub use api::{Array, ArrayError, Completer, CompletionQueue, MemoryUse, Pending, RequestResult};
pub use buf::{Filled, Lease, LeasePool};
pub use build::{ArraySpec, BuildError, DataPlaneConfig, MemberSpec, PartialParityArea};
pub use driver::{
    AddError, Completion, Driver, DriverOptions, Full, JoinAs, RemoveError, ScrubStatus,
};
pub use engine::{
    BackgroundProgress, BackgroundState, BackgroundStatus, BackgroundWork,
    DEFAULT_STRIPE_CACHE_BYTES, DeviceCondition, DeviceNumber, DeviceStatus, HostOp, IoError,
    MAX_MEMBERS, MemberError, MemberFlags, Mismatch, MismatchKind, Pace, RateMeter, RemoveRefusal,
    ReplaceRefusal, RequestError, ScrubMode, ShardPart, Sharding,
};
pub use executor::{ArrayExtent, Event, Report};
pub use managed::ArrayMetadata;
pub use member::{
    BadBlockList, BadBlockMember, Counters, Cqe, DiskMember, Fault, FaultControl, FaultMember,
    FileMember, FileOptions, FormerLeaf, Io, Known, MemMember, Member, MemberCompletion,
    MemberInfo, NbdMember, NullMember, Op, OpKind, OpenError, PaceControl, PacedMember,
    UnwrittenMember, io_error_text,
};
pub use metadata_threads::MetadataDevice;
pub use metadata_writer::{ArrayDevice, MetadataTemplate};
