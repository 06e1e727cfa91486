//! Administration of arrays with md's metadata: created and started on devices, and read when they
//! are damaged.
//!
//! ```text
//! open --> Opened --(md::assemble decides)--> start --> array::Driver, which keeps the metadata
//!                        |         create --> the same devices, with superblocks
//!                        +--> rescue --> the contents, from what is left of the members
//! ```
//! *Invariant*: nothing is written to a member before the assembly has decided to run the array;
//! while it runs, metadata are written only as the metadata manager (`engine`) orders.
#![forbid(unsafe_code)]

mod addition;
mod bad_block_log;
mod bitmap;
mod copies;
mod create;
mod describe;
mod fields;
mod guessed;
mod live;
mod members;
mod new_array;
mod offline;
mod on_paper;
mod opened;
mod opening;
mod partitioned;
mod placement;
mod random;
mod rebuild;
pub mod rescue;
pub mod reshape;
mod resync;
mod scrub;
pub mod serving;
mod shared_storage;
mod start;
pub mod volumes;
mod worse;
mod zero_superblock;

pub use addition::{JoinError, NewDevices};
pub use bad_block_log::{BadBlockLogs, LogError, RemovedLog};
pub use bitmap::BitmapFailed;
pub use create::{Change, CreateFailed, CreateOptions, create, refuse_what_is_there};
pub use describe::{ArrayDescription, Counts, Health, ListedBad, Pending, describe, left_over};
pub use guessed::{
    GuessError, GuessOptions, GuessReport, MAX_MEMBERS as MAX_GUESSED_MEMBERS, described,
    guess_geometry,
};
pub use live::{LiveAddition, LiveError, LiveJoined, add_live};
pub use members::{ChooseError, Member, Members, MembersError, array_name, choose, is_named};
pub use new_array::{
    CreatedArray, LeftFile, NewArray, NewArrayError, NewArrayFailed, NewMember, PreparedArray,
    ReserveError, Reserved,
};
pub use offline::{NotInSync, OpenError};
pub use opened::Opened;
pub use opening::files_of;
pub use partitioned::{Inside, Part, in_another_unit};
pub use random::random_uuid;
pub use rebuild::{
    AddedBad, NotRebuilt, RebuildError, RebuildEvent, RebuildOptions, RebuildReport, RebuiltMember,
    rebuild,
};
pub use resync::{ResyncError, ResyncEvent, ResyncReport};
pub use scrub::{
    Corrected, Degraded, Finding, MAX_FINDINGS, ScrubError, ScrubEvent, ScrubOptions, ScrubReport,
    scrub,
};
pub use shared_storage::{SharedStorage, Sharing};
pub use start::{
    RebuildingMember, StartError, StartOptions, start, start_rebuilding, start_replacing,
    start_shards,
};
pub use worse::Worse;
pub use zero_superblock::{Erased, FoundSuperblocks, ZeroError};
