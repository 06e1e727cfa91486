//! The instruction sets, and the shape that a generic operation has.
//!
//! Invariant: `unsafe` occurs in this directory only, and only in the files of instruction sets.

mod far;
mod isa;
mod portable;

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod assume_gfni;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx2;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod avx512;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod gfni;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use far::Far;
#[cfg(target_arch = "x86_64")]
pub(crate) use gfni::{GfniAvx2, GfniAvx512};
#[cfg(target_arch = "x86_64")]
pub(crate) use isa::HORNER_OFFSET;
pub(crate) use isa::{
    FAR_BYTES, GROUP_BYTES_MAX, Group, Isa, Op, WIDE, any, horner, load, mul, offset, store, walk,
    xor, xor3,
};
pub(crate) use portable::Portable;
