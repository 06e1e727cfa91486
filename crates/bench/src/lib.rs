//! The runner: provisions targets, performs workloads and programs on them, checks what was read,
//! and returns cells.
//!
//! ```text
//!   Plan --> blocks:  target (an array of the engine, or placed: one file or device of another
//!                     target) --> runner: generator per shard --> cells
//!   Program -> program: provision (file system, md, device) -> run: workers, barrier --> cells
//!   bench_run: both, repeated
//!   sweep:  the items of both, one by one, resumed after any kind of end
//!   metrics: what ran beside it: /proc, /sys, members, CPUs (also `raidlab watch`)
//!   both:   verify (pattern, expected versions), measurement (figures --> cell), progress
//! ```
//!
//! Invariant: every cell of a plan ends up in the record, or the reason why not.

#![forbid(unsafe_code)]

pub mod addresses;
pub mod arrays;
mod background;
mod background_run;
pub mod bench_run;
pub mod blocks;
mod bounds;
mod error;
pub mod kernels;
pub mod linux;
pub mod live;
pub mod measurement;
pub mod member_factory;
pub mod metrics;
pub mod model_time;
mod placed;
pub mod probed;
pub mod program;
mod progress;
pub mod provision;
pub mod runner;
pub mod sweep;
pub mod target;
mod target_error;
pub mod verify;

pub use error::{RunError, TooLarge};
pub use progress::Progress;
pub use target_error::{MemoryError, RunnerError, TargetError};

// What `spec` gives as the default is the engine's.
const _: () = assert!(spec::case::DEFAULT_STRIPE_CACHE_BYTES == array::DEFAULT_STRIPE_CACHE_BYTES);
