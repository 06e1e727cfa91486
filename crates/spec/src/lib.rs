//! Specifications of measurements: arrays, members, workloads, programs, targets, sweeps, units,
//! random numbers.
//!
//! ```text
//!   options, sweep files -> bench_plan: BenchPlan of matrix: Plan
//!                                        -> case: Case (target, array, workload, run)
//!                                           -> sweep: Item (key of a case)
//!                           program: stages of phases of workers of acts
//!                           target:  where a program runs
//! ```
//!
//! `units` and `shown` have how figures, and text from outside, are shown: every verb uses them.
//! `mail` has what a mail does to a text that is pasted from it.
//!
//! Invariant: pure data and parsers; nothing is opened, measured or changed here.

#![forbid(unsafe_code)]

pub mod bench_plan;
pub mod buses;
pub mod case;
pub mod mail;
pub mod matrix;
pub mod members;
mod plan_error;
pub mod program;
pub mod rng;
pub mod shown;
pub mod sweep;
pub mod target;
pub mod topology;
pub mod units;
pub mod workload;
