//! Results of measurements: records, statistics, findings, the results file, exports.
//!
//! ```text
//!   bench, sweep --(a cell as soon as it is final)--> store (SQLite) --> Record --> report
//!                                                                          \-> export (CSV)
//! ```
//!
//! Invariant: a figure is never stored without its unit, its samples and its provenance. A cell is
//! stored completely or not at all: each is written in its own transaction, so a crash loses only
//! the cell that was being measured.

#![forbid(unsafe_code)]

pub mod bins;
mod columns;
mod error;
mod export;
pub mod findings;
#[cfg(test)]
mod fixture;
mod foreground;
pub mod host;
pub mod hosts;
mod load;
mod locks;
mod ratios;
pub mod record;
mod record_file;
mod schema;
mod series;
pub mod settings;
pub mod stats;
mod store;
mod value;
pub mod words;

pub use columns::{Column, columns};
pub use error::{StoreError, StoreProblem};
pub use export::{csv, parquet};
pub use locks::LockHolder;
pub use record_file::{RecordFileError, parquet_of_record, record_of_parquet};
pub use store::{NewRun, NotRun, RunInfo, Sequence, Store, default_path, tell_of_waits};
pub use value::{Unit, Value};
