//! Vectors without intrinsics: arrays that the compiler keeps in whatever registers it has.
//!
//! Invariant: no unsafe code and no dependence on byte order, for all is done byte by byte.

use super::{Isa, Op};
use crate::gf;

/// Runs on every CPU.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Portable;

const BYTES: usize = 16;

/// 2a. The arithmetic shift spreads bit 7 over the byte: the mask for the reduction.
#[inline(always)]
fn double(mut a: [u8; BYTES]) -> [u8; BYTES] {
    for i in 0..BYTES {
        let carry = (a[i].cast_signed() >> 7).cast_unsigned();
        a[i] = (a[i] << 1) ^ (carry & gf::REDUCTION);
    }
    a
}

impl Isa for Portable {
    type Vector = [u8; BYTES];
    /// For each bit of the constant, 0xff if it is set.
    type Factor = [u8; 8];
    const BYTES: usize = BYTES;

    #[inline(always)]
    fn zero(self) -> Self::Vector {
        [0; BYTES]
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> Self::Vector {
        bytes.try_into().expect("one vector")
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: Self::Vector) {
        bytes.copy_from_slice(&vector);
    }

    #[inline(always)]
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        (u128::from_ne_bytes(a) ^ u128::from_ne_bytes(b)).to_ne_bytes()
    }

    #[inline(always)]
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector {
        (u128::from_ne_bytes(a) | u128::from_ne_bytes(b)).to_ne_bytes()
    }

    #[inline(always)]
    fn is_zero(self, vector: Self::Vector) -> bool {
        u128::from_ne_bytes(vector) == 0
    }

    #[inline(always)]
    fn offset(self) -> Self::Vector {
        [0; BYTES]
    }

    #[inline(always)]
    fn horner(self, q: Self::Vector, d: Self::Vector) -> Self::Vector {
        let mut sum = double(q);
        for i in 0..BYTES {
            sum[i] ^= d[i];
        }
        sum
    }

    #[inline(always)]
    fn factor(self, constant: u8) -> Self::Factor {
        let mut masks = [0; 8];
        for bit in 0..8 {
            masks[bit] = if constant >> bit & 1 == 1 { 0xff } else { 0 };
        }
        masks
    }

    /// With c = sum of c_i 2^i, Horner's rule: c * a = (...(c_7 a) * 2 + c_6 a) * 2 + ... + c_0 a.
    /// A table look-up would go byte by byte; this stays in vectors.
    #[inline(always)]
    fn mul(self, factor: Self::Factor, vector: Self::Vector) -> Self::Vector {
        let mut product = [0; BYTES];
        for bit in (0..8).rev() {
            product = double(product);
            for i in 0..BYTES {
                product[i] ^= vector[i] & factor[bit];
            }
        }
        product
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        op.vector(self)
    }
}
