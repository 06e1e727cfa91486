//! What memory allows: the reads and the non-temporal writes of a generator, without its arithmetic
//! (one OR for each load remains, so that the loads are made).
//!
//! Invariant: as many bytes are read and written as by the operation it is the limit of.

use std::arch::x86_64::{
    _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_or_si256,
    _mm256_setzero_si256, _mm256_stream_si256,
};

const GROUP: usize = 128;
const AHEAD: usize = 512;

/// Reads all sources and writes all destinations. Needs AVX2.
pub fn pass(destinations: &mut [&mut [u8]], sources: &[&[u8]]) {
    let len = sources[0].len();
    assert!(std::arch::is_x86_feature_detected!("avx2"));
    assert!(len.is_multiple_of(GROUP) && sources.iter().all(|bytes| bytes.len() == len));
    for bytes in &*destinations {
        assert!(bytes.len() == len && bytes.as_ptr().addr().is_multiple_of(32));
    }
    // SAFETY: the CPU has AVX2, lengths are equal and whole groups, destinations are aligned.
    unsafe { pass_avx2(destinations, sources, len) }
}

#[target_feature(enable = "avx2")]
unsafe fn pass_avx2(destinations: &mut [&mut [u8]], sources: &[&[u8]], len: usize) {
    for at in (0..len).step_by(GROUP) {
        let mut group = [_mm256_setzero_si256(); GROUP / 32];
        for bytes in sources {
            // SAFETY: `at` and a group after it lie inside, as the caller states; a prefetch may
            // name any address.
            unsafe {
                let start = bytes.as_ptr().wrapping_add(at);
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(AHEAD).cast());
                _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(AHEAD + 64).cast());
                for (i, vector) in group.iter_mut().enumerate() {
                    *vector =
                        _mm256_or_si256(*vector, _mm256_loadu_si256(start.add(32 * i).cast()));
                }
            }
        }
        for bytes in &mut *destinations {
            for (i, &vector) in group.iter().enumerate() {
                // SAFETY: as above, and aligned.
                unsafe {
                    _mm256_stream_si256(bytes.as_mut_ptr().add(at + 32 * i).cast(), vector);
                }
            }
        }
    }
    _mm_sfence();
}
