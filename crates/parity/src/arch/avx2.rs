//! 32-byte vectors of x86-64 with AVX2.
//!
//! Invariant: an [`Avx2`] value comes only from [`Avx2::detect`]; it is the proof that each
//! `unsafe` call below relies on. The kernels are safe functions over register values; pointers
//! occur in `load` and `store` only.

use std::arch::x86_64::{
    __m128i, __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm256_add_epi8,
    _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_stream_si256, _mm256_testz_si256, _mm256_xor_si256,
};

use super::{HORNER_OFFSET, Isa, Op};
use crate::gf;

/// The proof that this CPU, and its operating system, run AVX2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Avx2> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Avx2(()))
    }
}

/// c * n and c * (n << 4) for each nibble n; each table twice, as shuffles work in halves.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    low: __m256i,
    high: __m256i,
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference covers 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(bytes: &mut [u8; 32], vector: __m256i) {
    // SAFETY: the reference covers 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

/// Writes past the caches where the address allows it.
#[inline]
#[target_feature(enable = "avx2")]
fn stream(bytes: &mut [u8; 32], vector: __m256i) {
    if !bytes.as_ptr().addr().is_multiple_of(32) {
        return store(bytes, vector);
    }
    // SAFETY: the reference covers 32 writable bytes, and their alignment was just looked at. A
    // fence follows before another thread may read them (`Isa::fence`).
    unsafe { _mm256_stream_si256(bytes.as_mut_ptr().cast(), vector) }
}

/// 2q + d of values that are kept offset: see [`HORNER_OFFSET`].
#[inline]
#[target_feature(enable = "avx2")]
fn horner(q: __m256i, d: __m256i) -> __m256i {
    let no_carry = _mm256_shuffle_epi8(_mm256_set1_epi8(gf::REDUCTION.cast_signed()), q);
    _mm256_xor_si256(_mm256_xor_si256(_mm256_add_epi8(q, q), no_carry), d)
}

#[inline]
#[target_feature(enable = "avx2")]
fn nibbles(constant: u8) -> Nibbles {
    let [low, high] = &gf::NIBBLES[constant as usize];
    Nibbles { low: table(low), high: table(high) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn table(products: &[u8; 16]) -> __m256i {
    // SAFETY: the reference covers 16 readable bytes; the load needs no alignment.
    let half: __m128i = unsafe { _mm_loadu_si128(products.as_ptr().cast()) };
    _mm256_broadcastsi128_si256(half)
}

/// c * a = c * (low nibble) + c * (high nibble): each a look-up in 16 products ([`gf`]).
/// The shift moves whole words, so the mask also drops what came from the neighbour byte.
#[inline]
#[target_feature(enable = "avx2")]
fn mul(c: Nibbles, a: __m256i) -> __m256i {
    let nibble = _mm256_set1_epi8(0x0f);
    let low = _mm256_and_si256(a, nibble);
    let high = _mm256_and_si256(_mm256_srli_epi64::<4>(a), nibble);
    _mm256_xor_si256(_mm256_shuffle_epi8(c.low, low), _mm256_shuffle_epi8(c.high, high))
}

#[target_feature(enable = "avx2")]
fn run<O: Op>(isa: Avx2, op: O) -> O::Output {
    op.vector(isa)
}

/// The bridge from proof to instruction.
impl Isa for Avx2 {
    type Vector = __m256i;
    type Factor = Nibbles;
    const BYTES: usize = 32;

    #[inline(always)]
    fn zero(self) -> __m256i {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m256i {
        let bytes = bytes.try_into().expect("one vector");
        // SAFETY: `self` is the proof of AVX2.
        unsafe { load(bytes) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: __m256i) {
        let bytes = bytes.try_into().expect("one vector");
        // SAFETY: `self` is the proof of AVX2.
        unsafe { store(bytes, vector) }
    }

    #[inline(always)]
    fn stream(self, bytes: &mut [u8], vector: __m256i) {
        let bytes = bytes.try_into().expect("one vector");
        // SAFETY: `self` is the proof of AVX2.
        unsafe { stream(bytes, vector) }
    }

    #[inline(always)]
    fn prefetch(self, bytes: &[u8], ahead: usize) {
        // SAFETY: a prefetch of any address is harmless, and x86-64 has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(ahead).cast()) }
    }

    #[inline(always)]
    fn fence(self) {
        // SAFETY: x86-64 has the instruction, and it touches no memory of its own.
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    fn xor(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    fn or(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: __m256i) -> bool {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { _mm256_testz_si256(vector, vector) == 1 }
    }

    #[inline(always)]
    fn offset(self) -> __m256i {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { _mm256_set1_epi8(HORNER_OFFSET.cast_signed()) }
    }

    #[inline(always)]
    fn horner(self, q: __m256i, d: __m256i) -> __m256i {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { horner(q, d) }
    }

    #[inline(always)]
    fn factor(self, constant: u8) -> Nibbles {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { nibbles(constant) }
    }

    #[inline(always)]
    fn mul(self, factor: Nibbles, vector: __m256i) -> __m256i {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { mul(factor, vector) }
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        // SAFETY: `self` is the proof of AVX2.
        unsafe { run(self, op) }
    }
}
