//! Reports over records: tables, Markdown, HTML, comparisons, published figures.
//!
//! ```text
//!   Record(s) -> pivot -> table, sections -> Doc -> terminal, Markdown, HTML   (`doc`)
//!            |-> compare: two records         |-> charts: drawings of pages
//!            |-> published, reproduced: figures of others beside ours
//!            |-> summary: the best level for each work, capacity, what degraded mode costs
//!            |-> directions, during: mixed workloads, background work
//!            \-> tool_tables: as bonnie, fio, IOzone print them
//!             |-> histogram: latencies as bars    fio_json: for tools that read fio's json+
//!   bonnie++'s CSV, fio's JSON -> imported -> Record
//! ```
//!
//! Invariant: plain data, read only; a figure is never shown without its unit and its provenance.

#![forbid(unsafe_code)]

mod charts;
pub mod compare;
pub mod directions;
pub mod doc;
pub mod during;
pub mod fio_json;
pub mod histogram;
pub mod html;
pub mod imported;
pub mod pivot;
pub mod predicted;
pub mod published;
pub mod repeat;
pub mod reproduced;
pub mod runs;
mod sections;
pub mod summary;
pub mod table;
pub mod tool_tables;
pub mod work_names;

pub use charts::choices;

// Made-up records: see there.
#[cfg(test)]
#[path = "../../results/src/fixture.rs"]
mod fixture;
#[cfg(test)]
use results::{host, record};
