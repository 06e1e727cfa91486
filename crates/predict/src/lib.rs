//! What Linux md is expected to deliver on a healthy machine: a law of named ceilings, computed
//! from facts of the hardware and from what one disk does.
//!
//! ```text
//!   published tables --tables--> cases (array, machine, workload, single disk) --law--> prediction
//!          |                                                        ^
//!          '------------------ fit (priors) --> constants ----------'
//!          '--- leave one table out --> residuals --> intervals
//! ```
//!
//! Equations, units and sources: docs/models. `model` bounds what our own engine could deliver on
//! modelled drives; this crate says what md did deliver on machines of the field.
//!
//! Invariant: pure; the same input gives the same numbers. No file is opened here.

#![forbid(unsafe_code)]

pub mod advise;
pub mod fit;
pub mod intervals;
pub mod law;
pub mod score;
pub mod tables;
