//! P and Q of a set of data blocks.
//!
//! ```text
//! P = sum of D(e)        Q = sum of g^e * D(e)
//! ```
//!
//! # Horner's rule
//!
//! Multiplying each block by its own g^e would cost a table per block. With e0 < e1 < ... < ek the
//! exponents of the set, factor out powers of g = 2 instead:
//!
//! ```text
//! Q = g^e0 * (D(e0) + g^(e1-e0) * (D(e1) + ... g^(ek-ek-1) * D(ek) ...))
//! ```
//!
//! so one walks from the highest exponent down, and between two blocks doubles as often as their
//! exponents differ: once if they are neighbours, once more for each hole (DDF layouts, a lost
//! block). The final sum is doubled e0 times.
//!
//! Invariant: every data byte is read once, for P and for Q.

use crate::arch::{FAR_BYTES, Group, Isa, Op, horner, load, offset, store, walk, xor, xor3};
use crate::block::{assert_len, assert_set};
use crate::{Block, Kernels, gf};

impl Kernels {
    /// P and Q of the data blocks; both zero if there are none. Panics if lengths differ or the
    /// exponents do not ascend.
    pub fn pq_gen(self, p: &mut [u8], q: &mut [u8], data: &[Block]) {
        assert_set(data, p.len());
        assert_len(q, p.len());
        self.run(PqGen { p, q, data });
    }

    /// Q alone, as when P's member is lost; zero if there are no blocks. Panics as `pq_gen` does.
    pub fn q_gen(self, q: &mut [u8], data: &[Block]) {
        assert_set(data, q.len());
        self.run(QGen { q, data });
    }
}

/// The sums of P and Q at one byte, by their definition.
pub(crate) fn sums_at(blocks: &[Block], at: usize) -> (u8, u8) {
    blocks.iter().fold((0, 0), |(p, q), block| {
        let byte = block.bytes[at];
        (p ^ byte, q ^ gf::mul(gf::pow2(block.exponent), byte))
    })
}

/// The sums of P and Q at one group, by Horner's rule; zero for an empty set.
#[inline(always)]
pub(crate) fn sums<I: Isa, const N: usize>(
    isa: I,
    blocks: &[Block],
    at: usize,
) -> (Group<I, N>, Group<I, N>) {
    if blocks.len() < 2 {
        return one_or_none(isa, blocks, at);
    }
    // Tested once for a group, and then not for each block: an exponent that is looked at costs as
    // much as a vector. (Measured: not with AVX-512, see docs/perf/NOTES.md.)
    if !I::ADDS_THREE && are_neighbours(blocks) {
        chain::<I, N, true>(isa, blocks, at)
    } else {
        chain::<I, N, false>(isa, blocks, at)
    }
}

/// Whether the exponents of the blocks have no holes.
#[inline(always)]
fn are_neighbours(blocks: &[Block]) -> bool {
    match blocks {
        [lowest, .., highest] => {
            usize::from(highest.exponent - lowest.exponent) + 1 == blocks.len()
        }
        _ => true,
    }
}

/// The sums of fewer than two blocks.
#[inline(always)]
fn one_or_none<I: Isa, const N: usize>(
    isa: I,
    blocks: &[Block],
    at: usize,
) -> (Group<I, N>, Group<I, N>) {
    let Some(block) = blocks.first() else {
        return ([isa.zero(); N], [isa.zero(); N]);
    };
    let p = load::<I, N>(isa, block.bytes, at);
    (p, offset(isa, raise(isa, offset(isa, p), block.exponent)))
}

/// Horner's rule over two blocks or more; `NEIGHBOURS` says that their exponents have no holes.
#[inline(always)]
fn chain<I: Isa, const N: usize, const NEIGHBOURS: bool>(
    isa: I,
    blocks: &[Block],
    at: usize,
) -> (Group<I, N>, Group<I, N>) {
    let (highest, rest) = blocks.split_last().expect("two blocks or more");
    let mut p = load::<I, N>(isa, highest.bytes, at);
    let mut q = offset(isa, p);
    let mut exponent = highest.exponent;
    // In pairs where P + D + D is one instruction; elsewhere a pair would only take registers.
    let (singles, pairs) = rest.split_at(if I::ADDS_THREE { rest.len() % 2 } else { rest.len() });
    for pair in pairs.rchunks_exact(2) {
        let (low, high) = (&pair[0], &pair[1]);
        let (low_bytes, high_bytes) = (load(isa, low.bytes, at), load(isa, high.bytes, at));
        p = xor3(isa, p, high_bytes, low_bytes);
        q = next::<I, N, NEIGHBOURS>(isa, q, exponent, high.exponent, high_bytes);
        q = next::<I, N, NEIGHBOURS>(isa, q, high.exponent, low.exponent, low_bytes);
        exponent = low.exponent;
    }
    for block in singles.iter().rev() {
        let bytes = load(isa, block.bytes, at);
        p = xor(isa, p, bytes);
        q = next::<I, N, NEIGHBOURS>(isa, q, exponent, block.exponent, bytes);
        exponent = block.exponent;
    }
    (p, offset(isa, raise(isa, q, exponent)))
}

/// g^(from - to) * q + d, where from > to: they ascend. q and the result are offset.
#[inline(always)]
fn next<I: Isa, const N: usize, const NEIGHBOURS: bool>(
    isa: I,
    q: Group<I, N>,
    from: u8,
    to: u8,
    d: Group<I, N>,
) -> Group<I, N> {
    let q = if NEIGHBOURS { q } else { raise(isa, q, from - to - 1) };
    horner(isa, q, d)
}

/// g^exponent * q; q and the result are offset.
#[inline(always)]
fn raise<I: Isa, const N: usize>(isa: I, mut q: Group<I, N>, exponent: u8) -> Group<I, N> {
    for _ in 0..exponent {
        q = horner(isa, q, [isa.zero(); N]);
    }
    q
}

struct PqGen<'a> {
    p: &'a mut [u8],
    q: &'a mut [u8],
    data: &'a [Block<'a>],
}

impl Op for PqGen<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.p.len() {
            (self.p[at], self.q[at]) = sums_at(self.data, at);
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.data.len() + 2) * self.p.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let PqGen { p, q, data } = self;
        if !I::ADDS_THREE && are_neighbours(data) {
            match *data {
                [a, b] => return pq_few(isa, p, q, [a, b]),
                [a, b, c] => return pq_few(isa, p, q, [a, b, c]),
                [a, b, c, d] => return pq_few(isa, p, q, [a, b, c, d]),
                [a, b, c, d, e] => return pq_few(isa, p, q, [a, b, c, d, e]),
                [a, b, c, d, e, f] => return pq_few(isa, p, q, [a, b, c, d, e, f]),
                [a, b, c, d, e, f, g] => return pq_few(isa, p, q, [a, b, c, d, e, f, g]),
                [a, b, c, d, e, f, g, h] => return pq_few(isa, p, q, [a, b, c, d, e, f, g, h]),
                _ => {}
            }
        }
        walk!(I, p.len(), |at, N| {
            let sums = sums::<I, N>(isa, data, at);
            store(isa, p, at, sums.0);
            store(isa, q, at, sums.1);
        });
    }
}

/// P and Q of neighbours. Their number is a constant, so their ends are looked at once, and not in
/// each group.
#[inline(always)]
fn pq_few<I: Isa, const K: usize>(isa: I, p: &mut [u8], q: &mut [u8], mut data: [Block<'_>; K]) {
    let len = p.len();
    let q = &mut q[..len];
    for block in &mut data {
        block.bytes = &block.bytes[..len];
    }
    walk!(I, len, |at, N| {
        let sums = chain::<I, N, true>(isa, &data, at);
        store(isa, p, at, sums.0);
        store(isa, q, at, sums.1);
    });
}

struct QGen<'a> {
    q: &'a mut [u8],
    data: &'a [Block<'a>],
}

impl Op for QGen<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.q.len() {
            (_, self.q[at]) = sums_at(self.data, at);
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.data.len() + 1) * self.q.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        walk!(I, self.q.len(), |at, N| {
            let (_, q) = sums::<I, N>(isa, self.data, at);
            store(isa, self.q, at, q);
        });
    }
}
