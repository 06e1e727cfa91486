//! The laboratory: workloads, targets, the runner, meters, statistics, records, reports.
//!
//! ```text
//!   runner -> samples, meters -> record::Cell  <- bound (what the members could deliver)
//!                                     |
//!                                   grid -> table (terminal), html (one offline file)
//! ```
//!
//! Invariant: a figure is never shown without its unit, its samples and its provenance.

#![forbid(unsafe_code)]

pub mod bound;
pub mod host;
pub mod meter;
pub mod record;
pub mod stats;
