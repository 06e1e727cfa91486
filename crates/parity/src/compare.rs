//! Questions about bytes that need no field: are they equal, are they zero.
//!
//! Here because scrubbing a mirror and skipping zeroes run at the same speed as parity does, and
//! the SIMD of the workspace lives in this crate.

use crate::Kernels;
use crate::arch::{Isa, Op, any, load, walk};

impl Kernels {
    /// Whether two blocks hold the same bytes. Blocks of different lengths do not.
    pub fn equal(self, a: &[u8], b: &[u8]) -> bool {
        // The platform's memcmp is at the limit of the machine already.
        a == b
    }

    /// Whether all bytes are zero; true for no bytes.
    pub fn is_zero(self, bytes: &[u8]) -> bool {
        self.run(IsZero { bytes })
    }
}

struct IsZero<'a> {
    bytes: &'a [u8],
}

impl Op for IsZero<'_> {
    type Output = bool;

    fn plain(self) -> bool {
        self.bytes.iter().all(|&byte| byte == 0)
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) -> bool {
        walk!(I, self.bytes.len(), |at, N| {
            if any(isa, load::<I, N>(isa, self.bytes, at)) {
                return false;
            }
        });
        true
    }
}
