//! Persistent arrays: created and started on devices with md's metadata.
//!
//! ```text
//! open, look --> Opened --(md::assemble decides)--> start --> Driver, which keeps the metadata
//!                            create --> the same devices, with superblocks
//! ```
//! *Invariant*: nothing is written to a member before the assembly has decided to run the array;
//! while it runs, metadata are written only as the metadata manager (`engine`) orders.

mod create;
mod opened;
mod start;

pub use create::{Change, CreateFailed, CreateOptions, create, refuse_what_is_there};
pub use opened::Opened;
pub use start::{StartError, StartOptions, start, start_shards};
