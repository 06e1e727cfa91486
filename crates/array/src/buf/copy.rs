//! Copies memory through the CPU caches or past them (non-temporal stores).
//!
//! Invariant: with either method the destination holds the source's bytes for the thread that
//! copied. For other threads it does after [`store_fence`], which the driver calls before it
//! reports completions. Called only from `region`.
//!
//! - *near*: through the caches. The C library's copy uses `rep movsb` from a few KiB on, which on
//!   some CPUs takes half as long again as plain vectors (docs/perf/engine.md).
//! - *past*: non-temporal stores. A normal store to an uncached line first reads the line from
//!   memory; a non-temporal store does not, so a plain write takes half the time.

/// Up to this size the C library copies with vectors.
const SHORT_BYTES: usize = 4096;

/// Copies `len` bytes.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`] of bytes.
pub(super) unsafe fn near(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len > SHORT_BYTES && len.is_multiple_of(LINE) {
        // SAFETY: the caller's promise; whole lines.
        return unsafe { lines::<false>(source, target, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(source, target, len) }
}

/// Copies `len` bytes past the caches, if the CPU supports it.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`] of bytes. [`store_fence`] must be called before another
/// thread reads them.
pub(super) unsafe fn past(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len.is_multiple_of(LINE) && target.addr().is_multiple_of(LINE) {
        // SAFETY: the caller's promise; whole lines, aligned.
        return unsafe { lines::<true>(source, target, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { near(source, target, len) }
}

/// Store fence: makes non-temporal stores visible to all threads.
pub(crate) fn store_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: x86-64 has the instruction, and it touches no memory of its own.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches bytes that will be read soon.
pub(super) fn prefetch(start: *const u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..len.div_ceil(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address is harmless, and x86-64 has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * LINE).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, len);
}

/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Copies whole lines with SSE2, which every x86-64 CPU has.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`] of bytes; `len` is a multiple of [`LINE`], and so is
/// the target's address where it goes `PAST` the caches.
#[cfg(target_arch = "x86_64")]
unsafe fn lines<const PAST: bool>(source: *const u8, target: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128, _mm_stream_si128};
    let mut at = 0;
    while at < len {
        // SAFETY: inside both ranges, because whole lines are left; aligned where it must be.
        unsafe {
            let (source, target) =
                (source.add(at).cast::<__m128i>(), target.add(at).cast::<__m128i>());
            let line: [__m128i; 4] = std::array::from_fn(|part| _mm_loadu_si128(source.add(part)));
            for (part, vector) in line.into_iter().enumerate() {
                match PAST {
                    true => _mm_stream_si128(target.add(part), vector),
                    false => _mm_storeu_si128(target.add(part), vector),
                }
            }
        }
        at += LINE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both methods, with lengths and alignments around lines and the C library's limit: the bytes
    /// before and behind are unchanged.
    #[test]
    fn every_way_copies_the_same_bytes_and_no_others() {
        let room = 3 * SHORT_BYTES;
        let source: Vec<u8> = (0..room).map(|at| (at * 31 % 251) as u8).collect();
        for len in [0, 1, 63, 64, 512, 4032, 4096, 4097, 4160, 4608, 8192] {
            for (from, to) in [(0, 0), (8, 0), (0, 16), (512, 512), (7, 64), (64, 9)] {
                for past_caches in [false, true] {
                    let mut target = vec![0xa5u8; room + 64];
                    // So that alignments are what they say.
                    let base = target.as_ptr().align_offset(64);
                    let place = &mut target[base..base + room];
                    // SAFETY: both ranges lie in vectors of their own.
                    unsafe {
                        let (source, target) = (source[from..].as_ptr(), place[to..].as_mut_ptr());
                        match past_caches {
                            true => past(source, target, len),
                            false => near(source, target, len),
                        }
                    }
                    store_fence();
                    assert_eq!(place[to..to + len], source[from..from + len], "{len} {from} {to}");
                    let around = place[..to].iter().chain(&place[to + len..]);
                    assert!(around.into_iter().all(|byte| *byte == 0xa5), "{len} {from} {to}");
                }
            }
        }
        prefetch(source.as_ptr(), 100);
    }
}
