//! Tables of measured figures with the facts of their machines: the JSON of docs/models/tables.md.
//!
//! ```text
//!   text --document--> systems, records --words, facts--> Table { rows: Row { case or why not } }
//! ```
//!
//! Invariant: any JSON ends in tables or in one error; a row that cannot be understood carries the
//! reason, an unknown fact is left out, and nothing panics.

mod document;
mod facts;
mod known;
mod lenient;
mod words;

pub use document::{
    Case, Health, Predicted, Role, Row, Table, TablesError, of_facts, parse, published,
    same_configuration,
};
pub use facts::{FASTEST_DISK_MB_PER_S, Facts, is_of_a_disk, usual_media};
pub use known::SingleSource;
pub use words::{
    LevelWord, Unit, WorkWord, file_system, level_and_copies, unit, workload, write_back,
};
