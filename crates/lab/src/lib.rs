//! The laboratory: workloads, targets, the runner, meters, statistics, records, reports.
//!
//! ```text
//!   runner -> samples, meters -> record::Cell  <- bound (what the members could deliver)
//!                                     |
//!            sweep -> results (SQLite): runs -> report -> grid -> table, markdown, html
//!                                        \-> compare (two records)
//! ```
//!
//! Invariant: a figure is never shown without its unit, its samples and its provenance.

#![forbid(unsafe_code)]

pub mod bench;
pub mod bound;
pub mod compare;
pub mod engine_table;
pub mod findings;
#[cfg(test)]
mod fixture;
pub mod host;
pub mod html;
pub mod kernels;
pub mod markdown;
pub mod matrix;
pub mod members;
pub mod memcpy_limit;
pub mod meter;
pub mod pattern;
pub mod pivot;
pub mod program;
pub mod provision;
pub mod published;
pub mod quantity;
pub mod record;
pub mod repeat;
pub mod report;
pub mod results;
pub mod runner;
pub mod shadow_map;
pub mod shown;
pub mod stats;
pub mod sweep;
pub mod table;
pub mod target;
pub mod topology;
pub mod watch;
pub mod workload;
