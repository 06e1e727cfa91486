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
mod evidence;
mod open;
mod rows;
mod run;
mod types;

pub use backup::BackupStore;
pub(crate) use evidence::old_rows_stand;
pub use open::reshape;
pub use run::{ReshapeJob, reshape_members};
pub use types::{ReshapeError, ReshapeEvent, ReshapeOptions, ReshapeReport, ReshapeState, Where};
