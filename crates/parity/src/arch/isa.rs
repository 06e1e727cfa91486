//! The primitives of an instruction set, and the walk over the bytes that all operations share.
//!
//! Invariant: an [`Isa`] value is the proof that this CPU has the instructions, which makes calls
//! of its methods sound. Everything here is `#[inline(always)]` except the tails, so that it is
//! compiled into [`Isa::run`] with the instruction set switched on. For the same reason there are
//! no closures on the hot path: a closure would be compiled without it.
//!
//! # The walk
//!
//! An operation visits each position once and, at this position, all its blocks: every byte is
//! read once, and the sums stay in registers.
//!
//! ```text
//!            at                      walk: groups of WIDE vectors, then single vectors,
//!             |                      the last of which may be short (a *tail*)
//! D0  ........[v0 v1 v2 v3]........
//! D1  ........[v0 v1 v2 v3]........  one group = WIDE independent chains of instructions,
//! D2  ........[v0 v1 v2 v3]........  which hides the latency of each
//! ```
//!
//! A tail is loaded into a vector padded with zeroes, and only its bytes are stored. This is sound
//! because each operation treats each byte position alone and maps zeroes to zeroes.

use crate::gf;

/// The constant h = 0x1d / 3, for which 2h + 0x1d = h.
///
/// A doubling is a shift, then a reduction by 0x1d of the bytes that had bit 7. The byte shuffle
/// gives zero for an index with bit 7 and else the byte looked up, so in a table of 0x1d only it
/// gives, in one instruction, 0x1d where there is *no* bit 7:
///
/// ```text
/// 2q = (q + q) ^ shuffle(q) ^ 0x1d           the sum q + q modulo 256 is the shift
/// ```
///
/// To save adding that constant each time, a value q is kept as q' = q + h:
///
/// ```text
/// (q' + q') ^ shuffle(q') ^ d  =  2q' + 0x1d + d  =  2q + d + (2h + 0x1d)  =  (2q + d) + h
/// ```
///
/// which is the step of Horner's rule, again with h added.
pub(crate) const HORNER_OFFSET: u8 = horner_offset();

const fn horner_offset() -> u8 {
    let mut h = 0;
    while gf::double(h) ^ gf::REDUCTION != h {
        h += 1;
    }
    h
}

/// The vectors of a step; independent of each other.
pub(crate) type Group<I, const N: usize> = [<I as Isa>::Vector; N];

/// The vectors of a group on the wide part of the walk: enough to hide latencies, few enough that
/// P, Q and what a doubling needs fit into 16 registers.
pub(crate) const WIDE: usize = 4;

/// Bound of `WIDE * BYTES` over all instruction sets, for buffers on the stack.
pub(crate) const GROUP_BYTES_MAX: usize = 256;

/// An operation on at least this many bytes is `far` ([`Op::far`]): no second-level cache holds
/// them, and the share of the last level that one core may count on hardly does. Below, streaming
/// loses up to 15 % (docs/perf/NOTES.md).
pub(crate) const FAR_BYTES: usize = 16 << 20;

/// An instruction set: vectors of `BYTES` field elements and what can be done to them.
pub(crate) trait Isa: Copy {
    /// A register full of bytes.
    type Vector: Copy;
    /// A constant, made ready for multiplication.
    type Factor: Copy;
    /// The bytes in a vector.
    const BYTES: usize;
    /// Whether `xor3` is one instruction.
    const ADDS_THREE: bool = false;

    /// All bytes zero.
    fn zero(self) -> Self::Vector;
    /// The vector of exactly `BYTES` bytes, of any alignment.
    fn load(self, bytes: &[u8]) -> Self::Vector;
    /// Writes exactly `BYTES` bytes, of any alignment.
    fn store(self, bytes: &mut [u8], vector: Self::Vector);
    /// As `store`, past the caches if the address allows it. `fence` must follow.
    #[inline(always)]
    fn stream(self, bytes: &mut [u8], vector: Self::Vector) {
        self.store(bytes, vector);
    }
    /// Prefetches the cache line `ahead` bytes after the start, which may lie outside the slice.
    #[inline(always)]
    fn prefetch(self, _bytes: &[u8], _ahead: usize) {}
    /// Orders what was streamed before all that follows.
    #[inline(always)]
    fn fence(self) {}
    /// a + b in the field.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// a + b + c.
    #[inline(always)]
    fn xor3(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector {
        self.xor(self.xor(a, b), c)
    }
    /// Non-zero where a or b is.
    fn or(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Whether all bytes are zero.
    fn is_zero(self, vector: Self::Vector) -> bool;
    /// What `horner` keeps added to its values: zero, or [`HORNER_OFFSET`] in each byte.
    fn offset(self) -> Self::Vector;
    /// 2q + d, for a q that has the offset, with a result that has it.
    fn horner(self, q: Self::Vector, d: Self::Vector) -> Self::Vector;
    /// Makes a constant ready for `mul`.
    fn factor(self, constant: u8) -> Self::Factor;
    /// constant * each byte.
    fn mul(self, factor: Self::Factor, vector: Self::Vector) -> Self::Vector;
    /// Runs the operation in a function for which these instructions are switched on.
    fn run<O: Op>(self, op: O) -> O::Output;
}

/// One operation with its operands, of which all demands are met.
pub(crate) trait Op {
    /// Its result.
    type Output;
    /// The formula, byte by byte.
    fn plain(self) -> Self::Output;
    /// Whether it writes blocks that it does not read, among more bytes than the caches keep.
    #[inline(always)]
    fn far(&self) -> bool {
        false
    }
    /// The same in vectors. Must be `#[inline(always)]`.
    fn vector<I: Isa>(self, isa: I) -> Self::Output;
}

/// `walk!(I, len, |at, N| { body })`: the body for groups of N = [`WIDE`] vectors of `I` at
/// positions `at` while they fit, then for N = 1 up to the end, where [`load`] and [`store`] see
/// the tail.
///
/// A macro and not a function that takes a closure: see the head of this file. `return` in the
/// body leaves the function that surrounds the walk.
macro_rules! walk {
    ($isa:ty, $len:expr, |$at:ident, $n:ident| $body:block) => {{
        let len: usize = $len;
        let mut $at = 0;
        {
            const $n: usize = $crate::arch::WIDE;
            let step = $n * <$isa>::BYTES;
            while len - $at >= step {
                $body
                $at += step;
            }
        }
        {
            const $n: usize = 1;
            while $at < len {
                $body
                $at += <$isa>::BYTES.min(len - $at);
            }
        }
    }};
}
pub(crate) use walk;

/// The group at `at`. A single vector may be a tail.
#[inline(always)]
pub(crate) fn load<I: Isa, const N: usize>(isa: I, bytes: &[u8], at: usize) -> Group<I, N> {
    let mut group = [isa.zero(); N];
    let rest = &bytes[at..];
    if N == 1 && rest.len() < I::BYTES {
        group[0] = load_tail(isa, rest);
        return group;
    }
    let bytes = &rest[..N * I::BYTES];
    for i in 0..N {
        group[i] = isa.load(&bytes[i * I::BYTES..(i + 1) * I::BYTES]);
    }
    group
}

/// Writes the group at `at`. A single vector may be a tail.
#[inline(always)]
pub(crate) fn store<I: Isa, const N: usize>(
    isa: I,
    bytes: &mut [u8],
    at: usize,
    group: Group<I, N>,
) {
    let rest = &mut bytes[at..];
    if N == 1 && rest.len() < I::BYTES {
        store_tail(isa, rest, group[0]);
        return;
    }
    let bytes = &mut rest[..N * I::BYTES];
    for i in 0..N {
        isa.store(&mut bytes[i * I::BYTES..(i + 1) * I::BYTES], group[i]);
    }
}

/// a + b.
#[inline(always)]
pub(crate) fn xor<I: Isa, const N: usize>(isa: I, a: Group<I, N>, b: Group<I, N>) -> Group<I, N> {
    let mut sum = a;
    for i in 0..N {
        sum[i] = isa.xor(a[i], b[i]);
    }
    sum
}

/// a + b + c.
#[inline(always)]
pub(crate) fn xor3<I: Isa, const N: usize>(
    isa: I,
    a: Group<I, N>,
    b: Group<I, N>,
    c: Group<I, N>,
) -> Group<I, N> {
    let mut sum = a;
    for i in 0..N {
        sum[i] = isa.xor3(a[i], b[i], c[i]);
    }
    sum
}

/// 2q + d; q and the result are offset ([`Isa::offset`]).
#[inline(always)]
pub(crate) fn horner<I: Isa, const N: usize>(
    isa: I,
    mut q: Group<I, N>,
    d: Group<I, N>,
) -> Group<I, N> {
    for i in 0..N {
        q[i] = isa.horner(q[i], d[i]);
    }
    q
}

/// Adds the offset of `horner` to `a`, or removes it (both are XOR).
#[inline(always)]
pub(crate) fn offset<I: Isa, const N: usize>(isa: I, a: Group<I, N>) -> Group<I, N> {
    xor(isa, a, [isa.offset(); N])
}

/// constant * a.
#[inline(always)]
pub(crate) fn mul<I: Isa, const N: usize>(
    isa: I,
    factor: I::Factor,
    a: Group<I, N>,
) -> Group<I, N> {
    let mut product = a;
    for i in 0..N {
        product[i] = isa.mul(factor, a[i]);
    }
    product
}

/// Whether any byte of the group is not zero.
#[inline(always)]
pub(crate) fn any<I: Isa, const N: usize>(isa: I, a: Group<I, N>) -> bool {
    let mut bits = isa.zero();
    for i in 0..N {
        bits = isa.or(bits, a[i]);
    }
    !isa.is_zero(bits)
}

#[cold]
#[inline(never)]
fn load_tail<I: Isa>(isa: I, bytes: &[u8]) -> I::Vector {
    let mut padded = [0; GROUP_BYTES_MAX];
    padded[..bytes.len()].copy_from_slice(bytes);
    isa.load(&padded[..I::BYTES])
}

#[cold]
#[inline(never)]
fn store_tail<I: Isa>(isa: I, bytes: &mut [u8], vector: I::Vector) {
    let mut padded = [0; GROUP_BYTES_MAX];
    isa.store(&mut padded[..I::BYTES], vector);
    bytes.copy_from_slice(&padded[..bytes.len()]);
}
