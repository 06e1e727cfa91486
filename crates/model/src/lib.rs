//! What an array could deliver: upper bounds from geometry and drive models.
//!
//! Invariant: pure; no engine between the model and the drives.

#![forbid(unsafe_code)]

pub mod bound;
