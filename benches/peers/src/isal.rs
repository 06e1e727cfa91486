//! ISA-L's two generators, from its raid.h.
//!
//! Invariant: the slices of one call have one length, a multiple of 32, and start at multiples of
//! 64, which is what the library requires.

use std::ffi::{c_int, c_void};

mod raw {
    use super::{c_int, c_void};

    unsafe extern "C" {
        /// The sources, then the destination.
        pub fn xor_gen(vectors: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
        /// The sources, then P, then Q.
        pub fn pq_gen(vectors: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    }
}

pub fn xor_gen(dst: &mut [u8], sources: &[&[u8]]) {
    let mut array = pointers(sources, &mut [dst]);
    let (vectors, len) = (array.len() as c_int, sources[0].len() as c_int);
    // SAFETY: as many pointers as stated, each to `len` bytes, and only the last is written to.
    assert_eq!(unsafe { raw::xor_gen(vectors, len, array.as_mut_ptr()) }, 0);
}

pub fn pq_gen(p: &mut [u8], q: &mut [u8], sources: &[&[u8]]) {
    let mut array = pointers(sources, &mut [p, q]);
    let (vectors, len) = (array.len() as c_int, sources[0].len() as c_int);
    // SAFETY: as many pointers as stated, each to `len` bytes; only the last two are written to.
    assert_eq!(unsafe { raw::pq_gen(vectors, len, array.as_mut_ptr()) }, 0);
}

fn pointers(sources: &[&[u8]], destinations: &mut [&mut [u8]]) -> Vec<*mut c_void> {
    let len = sources[0].len();
    assert!(len.is_multiple_of(32) && i32::try_from(len).is_ok());
    let mut array: Vec<*mut c_void> =
        sources.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
    array.extend(destinations.iter_mut().map(|bytes| bytes.as_mut_ptr().cast::<c_void>()));
    assert!(array.iter().all(|pointer| pointer.addr().is_multiple_of(64)));
    assert!(sources.iter().all(|bytes| bytes.len() == len));
    assert!(destinations.iter().all(|bytes| bytes.len() == len));
    array
}
