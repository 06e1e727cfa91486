//! The verbs, one module each, and the results file that some of them share.
//!
//! ```text
//!   rescue  create examine detail status volumes dump guess (generate); in every build
//!   run     serve and its clients, scrub rebuild reshape update zero-superblock
//!   lab     bench sweep programs report compare predict advise calibrate diagnose watch
//! ```
//!
//! They are not at the crate's root, where `bench`, `report` and `results` are crates. Called from
//! `main`, which turns what they return into an exit code.

pub mod create;
pub mod detail;
pub mod dump;
pub mod examine;
pub mod generate;
pub mod guess;
pub mod rescue;
pub mod source;
pub mod status;
pub mod volumes;

#[cfg(feature = "run")]
pub mod rebuild;
#[cfg(feature = "run")]
pub mod reshape;
#[cfg(feature = "run")]
pub mod run;
#[cfg(feature = "run")]
pub mod scrub;
#[cfg(feature = "run")]
pub mod serve;
#[cfg(feature = "run")]
pub mod update;
#[cfg(feature = "run")]
pub mod zero_superblock;

#[cfg(feature = "lab")]
pub mod advise;
#[cfg(feature = "lab")]
pub mod bench;
#[cfg(feature = "lab")]
pub mod calibrate;
#[cfg(feature = "lab")]
pub mod compare;
#[cfg(feature = "lab")]
pub mod diagnose;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "lab")]
pub mod predict;
#[cfg(feature = "lab")]
pub mod programs;
#[cfg(feature = "lab")]
pub mod report;
#[cfg(feature = "lab")]
pub mod results;
#[cfg(feature = "lab")]
pub mod sweep;
#[cfg(feature = "lab")]
pub mod watch;

#[cfg(feature = "served")]
pub mod served;
#[cfg(feature = "served")]
mod web;
