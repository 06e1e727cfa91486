//! 64-byte vectors of x86-64 with AVX-512 (F and BW).
//!
//! Invariant: an [`Avx512`] value comes only from [`Avx512::detect`]; it is the proof that each
//! `unsafe` call below relies on. The kernels are safe functions over register values; pointers
//! occur in the load and store helpers only.

use std::arch::x86_64::{
    __m128i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm512_add_epi8,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_or_si512,
    _mm512_set1_epi8, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_test_epi64_mask,
    _mm512_xor_si512,
};

use super::{HORNER_OFFSET, Isa, Op};
use crate::gf;

/// The truth table of a ^ b ^ c, for the three-operand logic instruction.
const XOR3: i32 = 0x96;

/// The proof that this CPU, and its operating system, run AVX-512 F and BW.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Avx512> {
        let f = std::arch::is_x86_feature_detected!("avx512f");
        let bw = std::arch::is_x86_feature_detected!("avx512bw");
        (f && bw).then_some(Avx512(()))
    }
}

/// c * n and c * (n << 4) for each nibble n; each table four times, as shuffles work in quarters.
#[derive(Clone, Copy)]
pub(crate) struct Nibbles {
    low: __m512i,
    high: __m512i,
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference covers 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store(bytes: &mut [u8; 64], vector: __m512i) {
    // SAFETY: the reference covers 64 writable bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

/// Writes past the caches where the address allows it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn stream(bytes: &mut [u8; 64], vector: __m512i) {
    if !bytes.as_ptr().addr().is_multiple_of(64) {
        return store(bytes, vector);
    }
    // SAFETY: the reference covers 64 writable bytes, and their alignment was just looked at. A
    // fence follows before another thread may read them (`Isa::fence`).
    unsafe { _mm512_stream_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<XOR3>(a, b, c)
}

/// 2q + d of values that are kept offset: see [`HORNER_OFFSET`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn horner(q: __m512i, d: __m512i) -> __m512i {
    let no_carry = _mm512_shuffle_epi8(_mm512_set1_epi8(gf::REDUCTION.cast_signed()), q);
    xor3(_mm512_add_epi8(q, q), no_carry, d)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn nibbles(constant: u8) -> Nibbles {
    let [low, high] = &gf::NIBBLES[constant as usize];
    Nibbles { low: table(low), high: table(high) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn table(products: &[u8; 16]) -> __m512i {
    // SAFETY: the reference covers 16 readable bytes; the load needs no alignment.
    let quarter: __m128i = unsafe { _mm_loadu_si128(products.as_ptr().cast()) };
    _mm512_broadcast_i32x4(quarter)
}

/// c * a = c * (low nibble) + c * (high nibble): each a look-up in 16 products ([`gf`]).
/// The shift moves whole words, so the mask also drops what came from the neighbour byte.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn mul(c: Nibbles, a: __m512i) -> __m512i {
    let nibble = _mm512_set1_epi8(0x0f);
    let low = _mm512_and_si512(a, nibble);
    let high = _mm512_and_si512(_mm512_srli_epi64::<4>(a), nibble);
    _mm512_xor_si512(_mm512_shuffle_epi8(c.low, low), _mm512_shuffle_epi8(c.high, high))
}

#[target_feature(enable = "avx512f,avx512bw")]
fn run<O: Op>(isa: Avx512, op: O) -> O::Output {
    op.vector(isa)
}

/// The bridge from proof to instruction.
impl Isa for Avx512 {
    type Vector = __m512i;
    type Factor = Nibbles;
    const BYTES: usize = 64;
    const ADDS_THREE: bool = true;

    #[inline(always)]
    fn zero(self) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> __m512i {
        let bytes = bytes.try_into().expect("one vector");
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { load(bytes) }
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: __m512i) {
        let bytes = bytes.try_into().expect("one vector");
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { store(bytes, vector) }
    }

    #[inline(always)]
    fn stream(self, bytes: &mut [u8], vector: __m512i) {
        let bytes = bytes.try_into().expect("one vector");
        // SAFETY: `self` is the proof of AVX-512.
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
    fn xor(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    fn xor3(self, a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { xor3(a, b, c) }
    }

    #[inline(always)]
    fn or(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    fn is_zero(self, vector: __m512i) -> bool {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { _mm512_test_epi64_mask(vector, vector) == 0 }
    }

    #[inline(always)]
    fn offset(self) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { _mm512_set1_epi8(HORNER_OFFSET.cast_signed()) }
    }

    #[inline(always)]
    fn horner(self, q: __m512i, d: __m512i) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { horner(q, d) }
    }

    #[inline(always)]
    fn factor(self, constant: u8) -> Nibbles {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { nibbles(constant) }
    }

    #[inline(always)]
    fn mul(self, factor: Nibbles, vector: __m512i) -> __m512i {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { mul(factor, vector) }
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        // SAFETY: `self` is the proof of AVX-512.
        unsafe { run(self, op) }
    }
}
