//! A real Linux kernel with md and mdadm, in a virtual machine, for the tests.
//!
//! Invariant: whatever happens in the guest, [`Guest::run`] comes back within the job's limit, and
//! what it gives back was said by the guest: an array without a verdict counts as failed.
//!
//! ```text
//!   Job (arrays, steps) --script--> job disk --boot--> scripts/guest/init, steps
//!   Report <--parse-- one result file for each lane <-- virtio ports
//! ```

mod boot;
mod job;
mod overlay;
mod report;

pub use boot::{Guest, PATTERN_BYTES, pattern};
pub use job::{ArrayJob, End, FIRST_TARGET, Job, Step};
pub use overlay::Overlay;
pub use report::{ArrayReport, Facts, Report};
