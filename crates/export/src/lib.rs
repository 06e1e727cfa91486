//! Fronts: what makes an array usable for others than this process. So far: [`fuse`].
//!
//! *Invariant*: a front decides nothing about the array; it takes requests, hands them to
//! [`array::Array`] without waiting for earlier ones, and answers from their completions. Every
//! queue is bounded: who asks for more than there is room for waits.
#![deny(unsafe_code)]

pub mod fuse;
