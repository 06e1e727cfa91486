//! The verbs, one module each, and the results file that some of them share.
//!
//! They are not at the crate's root, where `bench`, `report` and `results` are crates. Called from
//! `main`, which turns what they return into an exit code.

pub mod advise;
pub mod bench;
pub mod calibrate;
pub mod compare;
pub mod create;
pub mod detail;
pub mod diagnose;
pub mod dump;
pub mod examine;
pub mod generate;
pub mod guess;
pub mod predict;
pub mod programs;
pub mod rebuild;
pub mod report;
pub mod reshape;
pub mod results;
pub mod scrub;
pub mod serve;
pub mod served;
pub mod source;
pub mod status;
pub mod sweep;
pub mod update;
pub mod volumes;
pub mod watch;
mod web;
pub mod zero_superblock;
