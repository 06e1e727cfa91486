//! Arrays that outlive the process: made, and run again, over devices with md's metadata.
//!
//! ```text
//! open, look --> Opened --(md::assemble decides)--> start --> Driver, which keeps the metadata
//!                            create --> the same devices, with superblocks
//! ```
//! *Invariant*: nothing is written to a member before the decision says that the array runs; what
//! is written to metadata while it runs is the metadata manager's order (`engine`).

mod create;
mod opened;
mod start;

pub use create::{
    Change, CreateFailed, CreateOptions, create, is_a_member, refuse_what_is_there, what_is_there,
};
pub use opened::{Opened, look};
pub use start::{StartError, StartOptions, start, start_shards};
