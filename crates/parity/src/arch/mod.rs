//! The instruction sets, and the shape that a generic operation has.
//!
//! Invariant: `unsafe` occurs in this directory only, and only in the files of instruction sets.

mod isa;
mod portable;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
pub(crate) use isa::{
    GROUP_BYTES_MAX, Group, Isa, Op, WIDE, any, double, load, mul, store, walk, xor,
};
pub(crate) use portable::Portable;
