//! Runs programs: bonnie, bonnie++, dd, IOzone and other tools, described by `spec::program`.
//!
//! ```text
//!      Program: stages of phases of workers of acts (spec)                     pure
//!                                |
//!                             steps: one thing to do after the other           pure
//!                                |
//!                runner: threads, barrier, clock, checks                       run
//!                                |
//!            backend: files in a directory | extents of an array                files, extents
//!                                |
//!                     outcomes -> record cells                                 cells
//! ```
//!
//! Invariant: programs are independent of the backend, and backends of the programs.

mod array_access;
pub mod backend;
pub mod cases;
pub mod cells;
mod error;
pub mod extents;
pub mod files;
pub mod metered;
pub mod outcome;
pub mod run;
pub mod session;
pub mod steps;
mod timing;

pub(crate) use cells::in_memory;
pub use error::IoError;
