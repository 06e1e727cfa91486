//! The walk over more bytes than the caches hold.
//!
//! Invariant: [`Far`] changes where bytes pass, never what they are. Every operation is generic, so
//! an instruction set that stores and loads in another way is all that is needed. Chosen by
//! `kernels` for operations whose operands are large ([`Op::far`]).
//!
//! - What is stored goes past the caches: a store to a line that is not cached would first read it
//!   from memory, and then push out something that is.
//! - What is loaded is prefetched [`AHEAD`] bytes earlier. The CPU's own prefetchers stop at each
//!   page of 4 KiB, and there are as many streams as blocks.
//!
//! docs/perf/NOTES.md has the measurements.

use super::{Isa, Op};

/// Prefetch distance in bytes.
const AHEAD: usize = 512;

/// An instruction set as used beyond the caches.
#[derive(Clone, Copy)]
pub(crate) struct Far<I>(pub(crate) I);

/// An operation as run beyond the caches.
struct FarOp<O>(O);

impl<O: Op> Op for FarOp<O> {
    type Output = O::Output;

    fn plain(self) -> O::Output {
        self.0.plain()
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) -> O::Output {
        let output = self.0.vector(Far(isa));
        isa.fence();
        output
    }
}

impl<I: Isa> Isa for Far<I> {
    type Vector = I::Vector;
    type Factor = I::Factor;
    const BYTES: usize = I::BYTES;
    const ADDS_THREE: bool = I::ADDS_THREE;

    #[inline(always)]
    fn zero(self) -> I::Vector {
        self.0.zero()
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> I::Vector {
        self.0.prefetch(bytes, AHEAD);
        self.0.load(bytes)
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8], vector: I::Vector) {
        self.0.stream(bytes, vector);
    }

    #[inline(always)]
    fn xor(self, a: I::Vector, b: I::Vector) -> I::Vector {
        self.0.xor(a, b)
    }

    #[inline(always)]
    fn xor3(self, a: I::Vector, b: I::Vector, c: I::Vector) -> I::Vector {
        self.0.xor3(a, b, c)
    }

    #[inline(always)]
    fn or(self, a: I::Vector, b: I::Vector) -> I::Vector {
        self.0.or(a, b)
    }

    #[inline(always)]
    fn is_zero(self, vector: I::Vector) -> bool {
        self.0.is_zero(vector)
    }

    #[inline(always)]
    fn offset(self) -> I::Vector {
        self.0.offset()
    }

    #[inline(always)]
    fn horner(self, q: I::Vector, d: I::Vector) -> I::Vector {
        self.0.horner(q, d)
    }

    #[inline(always)]
    fn factor(self, constant: u8) -> I::Factor {
        self.0.factor(constant)
    }

    #[inline(always)]
    fn mul(self, factor: I::Factor, vector: I::Vector) -> I::Vector {
        self.0.mul(factor, vector)
    }

    #[inline(always)]
    fn run<O: Op>(self, op: O) -> O::Output {
        self.0.run(FarOp(op))
    }
}
