//! AVX2 and AVX-512 vectors with the Galois field instructions (GFNI).
//!
//! Invariant: a value holds the proof of its base and comes only from its `detect`, which also
//! looks for GFNI, or from `assume`, where a test answers for it; it is the proof that each
//! `unsafe` call below relies on. No pointers here: loads and stores are those of the base.
//!
//! # The instruction
//!
//! GFNI's multiplication is that of another field (AES, 0x11b) and of no use here. Its affine
//! transformation multiplies each byte, as a vector of 8 bits, by any matrix of 8 x 8 bits.
//! Multiplication by a constant is linear in the bits of the other operand, in every field, hence
//! such a matrix ([`gf::MATRICES`]). One instruction takes the place of two look-ups and of what
//! prepares them, and a doubling needs no offset:
//!
//! ```text
//! c * a = M(c) a         2q + d = M(2) q + d
//! ```

use std::arch::x86_64::{
    __m256i, __m512i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x,
    _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64,
};

use super::{Avx2, Avx512, Isa, Op};
use crate::gf;

/// `gfni!(Name, Base, vector, features, set1, affine)`: the base with its multiplication replaced.
macro_rules! gfni {
    ($name:ident, $base:ident, $vector:ty, $features:literal, $set1:ident, $affine:ident) => {
        /// The base's proof, and that of GFNI.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name($base);

        impl $name {
            pub(crate) fn detect() -> Option<$name> {
                let gfni = std::arch::is_x86_feature_detected!("gfni");
                $base::detect().filter(|_| gfni).map($name)
            }

            /// # Safety
            ///
            /// As [`crate::Kernels::assume_gfni`].
            pub(super) unsafe fn assume() -> Option<$name> {
                $base::detect().map($name)
            }

            /// M(c), once for each group of 8 bytes.
            #[inline]
            #[target_feature(enable = $features)]
            fn matrix(constant: u8) -> $vector {
                $set1(gf::MATRICES[constant as usize].cast_signed())
            }

            #[inline]
            #[target_feature(enable = $features)]
            fn product(matrix: $vector, a: $vector) -> $vector {
                $affine::<0>(a, matrix)
            }

            #[target_feature(enable = $features)]
            fn enabled<O: Op>(self, op: O) -> O::Output {
                op.vector(self)
            }
        }

        impl Isa for $name {
            type Vector = $vector;
            type Factor = $vector;
            const BYTES: usize = $base::BYTES;
            const ADDS_THREE: bool = $base::ADDS_THREE;

            #[inline(always)]
            fn zero(self) -> $vector {
                self.0.zero()
            }

            #[inline(always)]
            fn load(self, bytes: &[u8]) -> $vector {
                self.0.load(bytes)
            }

            #[inline(always)]
            fn store(self, bytes: &mut [u8], vector: $vector) {
                self.0.store(bytes, vector);
            }

            #[inline(always)]
            fn stream(self, bytes: &mut [u8], vector: $vector) {
                self.0.stream(bytes, vector);
            }

            #[inline(always)]
            fn prefetch(self, bytes: &[u8], ahead: usize) {
                self.0.prefetch(bytes, ahead);
            }

            #[inline(always)]
            fn fence(self) {
                self.0.fence();
            }

            #[inline(always)]
            fn xor(self, a: $vector, b: $vector) -> $vector {
                self.0.xor(a, b)
            }

            #[inline(always)]
            fn xor3(self, a: $vector, b: $vector, c: $vector) -> $vector {
                self.0.xor3(a, b, c)
            }

            #[inline(always)]
            fn or(self, a: $vector, b: $vector) -> $vector {
                self.0.or(a, b)
            }

            #[inline(always)]
            fn is_zero(self, vector: $vector) -> bool {
                self.0.is_zero(vector)
            }

            #[inline(always)]
            fn offset(self) -> $vector {
                self.0.zero()
            }

            #[inline(always)]
            fn horner(self, q: $vector, d: $vector) -> $vector {
                // SAFETY: `self` is the proof of the base and of GFNI.
                let doubled = unsafe { $name::product($name::matrix(2), q) };
                self.0.xor(doubled, d)
            }

            #[inline(always)]
            fn factor(self, constant: u8) -> $vector {
                // SAFETY: `self` is the proof of the base and of GFNI.
                unsafe { $name::matrix(constant) }
            }

            #[inline(always)]
            fn mul(self, factor: $vector, vector: $vector) -> $vector {
                // SAFETY: `self` is the proof of the base and of GFNI.
                unsafe { $name::product(factor, vector) }
            }

            #[inline(always)]
            fn run<O: Op>(self, op: O) -> O::Output {
                // SAFETY: `self` is the proof of the base and of GFNI.
                unsafe { self.enabled(op) }
            }
        }
    };
}

gfni!(GfniAvx2, Avx2, __m256i, "avx2,gfni", _mm256_set1_epi64x, _mm256_gf2p8affine_epi64_epi8);
gfni!(
    GfniAvx512,
    Avx512,
    __m512i,
    "avx512f,avx512bw,gfni",
    _mm512_set1_epi64,
    _mm512_gf2p8affine_epi64_epi8
);
