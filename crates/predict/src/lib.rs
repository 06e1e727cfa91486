//! How fast an array should be, and why it is not: what Linux md is expected to deliver on a
//! healthy machine, by a law of named ceilings from facts of the hardware and from what one disk
//! does; what our engine could deliver at most ([`bound`]); what disks do ([`calibrate`]); what
//! holds an array back ([`diagnose`]).
//!
//! ```text
//!   published tables --tables--> cases (array, machine, workload, single disk) --law--> prediction
//!          |                                                        ^
//!          '------------------ fit (priors) --> constants ----------'
//!          '--- leave one table out --> residuals --> intervals
//! ```
//!
//! Equations, units and sources: docs/models. A bound is of our own engine on modelled drives; the
//! law says what md did deliver on machines of the field.
//!
//! Invariant: pure; the same input gives the same numbers. No file is opened here.

#![forbid(unsafe_code)]

pub mod advise;
pub mod bound;
pub mod calibrate;
pub mod diagnose;
pub mod fit;
pub mod intervals;
pub mod law;
pub mod question;
pub mod score;
pub mod tables;
