//! Frontends that make an array accessible to other processes. So far: [`fuse`].
//!
//! *Invariant*: a frontend decides nothing about the array; it submits requests to [`array::Array`]
//! without waiting for earlier ones, and replies from their completions. Every queue is bounded:
//! clients that exceed a limit wait.
#![deny(unsafe_code)]

pub mod fuse;
