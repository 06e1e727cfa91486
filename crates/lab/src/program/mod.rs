//! Programs: the operations of bonnie, bonnie++, dd, IOzone and other tools, as values.
//!
//! ```text
//! choice ("bonnie++:n=16") -> Program: stages of phases of workers of acts     pure
//!                                |
//!                             steps: one thing to do after the other           pure
//!                                |
//!                runner: threads, barrier, clock, checks                       run
//!                                |
//!            ground: files in a directory | extents of an array                files, extents
//!                                |
//!                     outcomes -> record cells -> the tool's own table         cells, tables
//! ```
//!
//! Invariant: programs are independent of the backend, and backends of the programs.

pub mod backend;
pub mod cells;
pub mod content;
pub mod extents;
pub mod files;
mod lane;
pub mod metered;
pub mod names;
pub mod run;
pub mod session;
pub mod spec;
pub mod steps;
pub mod tables;
mod timing;
pub mod tools;
pub mod types;

pub use spec::{ProgramSpec, Sizing, canonical_id};
pub use types::{Act, Order, Phase, Program, Stage, Step, Worker};
