//! Predictions of the speed of arrays, and reasons why it is not reached. A law of named ceilings
//! says what Linux md delivers on a healthy machine, from facts of the hardware and one disk's own
//! figures. [`bound`] says what our engine can deliver at most, [`calibrate`] what disks do,
//! [`diagnose`] what holds an array back.
//!
//! ```text
//!   tables of figures --tables--> cases (array, machine, workload, one disk) --law--> prediction
//!                                                                               ^
//!   benches/law: cells of Linux md, priors --> constants, intervals (fitted) ---'
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
pub mod disks;
pub mod fitted;
pub mod intervals;
pub mod law;
pub mod pasted;
pub mod question;
pub mod score;
pub mod tables;
