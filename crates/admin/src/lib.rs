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

mod create;
mod opened;
pub mod rescue;
mod start;

pub use create::{Change, CreateFailed, CreateOptions, create, refuse_what_is_there};
pub use opened::Opened;
pub use start::{StartError, StartOptions, start, start_shards};
