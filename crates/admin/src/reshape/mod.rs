//! A reshape that stopped, finished or reverted without the kernel.
//!
//! ```text
//! members --assemble--> md::reshape::Subject --plan--> Save   backup.rs: a copy, durable
//!                                                      Move   rows.rs: old rows read, new written
//!                                                      Record run.rs: flush, every superblock
//! ```
//! *Invariant*: a step begins when the one before is durable where the plan says so, so that after
//! a crash anywhere the kernel, mdadm or this module can continue. Which step comes next is decided
//! in `md::reshape`, never here.

mod backup;
mod open;
mod rows;
mod run;
mod standing;
mod types;

pub use backup::BackupStore;
pub use open::reshape;
pub use run::{ReshapeJob, reshape_members};
pub(crate) use standing::old_rows_stand;
pub use types::{ReshapeError, ReshapeEvent, ReshapeOptions, ReshapeReport, ReshapeState, Where};
