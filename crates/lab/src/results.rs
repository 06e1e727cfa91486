//! Stored results: runs and their cells in one SQLite file.
//!
//! ```text
//!   bench, sweep --(a cell as soon as it is final)--> Store --> Record --> report, compare, export
//! ```
//!
//! Invariant: a cell is stored completely or not at all: each is written in its own transaction, so
//! a crash loses only the cell that was being measured. Called by the command line.

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
