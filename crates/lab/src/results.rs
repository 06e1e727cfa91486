//! The laboratory's memory: runs and their cells in one SQLite file.
//!
//! ```text
//!   bench, sweep --(a cell as soon as it is final)--> Store --> Record --> report, compare, export
//! ```
//!
//! Invariant: a cell is in the file, whole, or it is not: each is written in a transaction of its
//! own, so a crash costs what was being measured and nothing before it. Called by the command line.

mod columns;
mod export;
mod locks;
mod schema;
mod store;

pub use columns::{COLUMNS, Column, Value};
pub use export::{csv, parquet};
pub use locks::LockHolder;
pub use store::{
    Item, ItemKey, NewRun, NotRun, RunInfo, Sequence, Store, StoreError, default_path,
    tell_of_waits,
};
