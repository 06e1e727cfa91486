//! The ublk front: a store as a block device of this kernel, /dev/ublkbN (Linux 6.5 or later;
//! the kernel's Documentation/block/ublk.rst).
//!
//! ```text
//!  program -> /dev/ublkbN -> ublk_drv --- io_uring --> queue -> Access -> Store
//!                                 \<- copies to and from the request, commits
//! ```
//! *Invariant*: a thread of a queue never waits for the store's I/O. When the process dies, the
//! device stays, and its requests wait: a server that recovers it gets those in flight anew.
//!
//! This is not the crate `libublk`: it generates its numbers from C headers, so that building it
//! needs libclang.

mod device;
mod ends;
mod queue;
#[allow(unsafe_code)]
mod sys;
mod wire;

pub use device::{Ublk, UblkError, UblkOptions, UblkProblem};
