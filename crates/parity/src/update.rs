//! Parity after one data block has changed: read-modify-write.
//!
//! Both sums are linear. If D(e) becomes D(e) + delta, where delta = old + new, then
//!
//! ```text
//! P becomes P + delta
//! Q becomes Q + g^e * delta
//! ```
//!
//! Invariant: the other data blocks are not needed, and each block is read once. Blocks that change
//! together are applied one after the other, in any order.

use crate::arch::{Isa, Op, load, mul, store, walk, xor};
use crate::block::assert_len;
use crate::{Kernels, gf};

impl Kernels {
    /// P += old + new. Panics if lengths differ.
    pub fn p_update(self, p: &mut [u8], old: &[u8], new: &[u8]) {
        self.xor_into(p, &[old, new]);
    }

    /// Q += g^exponent * (old + new). Panics if lengths differ or the exponent is 255.
    pub fn q_update(self, q: &mut [u8], exponent: u8, old: &[u8], new: &[u8]) {
        assert_len(old, q.len());
        assert_len(new, q.len());
        self.run(QUpdate { q, coefficient: gf::pow2(exponent), old, new });
    }

    /// Both of the above in one pass. Panics as they do.
    pub fn pq_update(self, p: &mut [u8], q: &mut [u8], exponent: u8, old: &[u8], new: &[u8]) {
        assert_len(q, p.len());
        assert_len(old, p.len());
        assert_len(new, p.len());
        self.run(PqUpdate { p, q, coefficient: gf::pow2(exponent), old, new });
    }

    /// dst += factor * source: the update where the delta is at hand, with factor
    /// [`pow2(e)`](gf::pow2). Panics if lengths differ.
    pub fn mul_into(self, dst: &mut [u8], factor: u8, source: &[u8]) {
        assert_len(source, dst.len());
        self.run(MulInto { dst, factor, source });
    }
}

struct QUpdate<'a> {
    q: &'a mut [u8],
    coefficient: u8,
    old: &'a [u8],
    new: &'a [u8],
}

impl Op for QUpdate<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.q.len() {
            self.q[at] ^= gf::mul(self.coefficient, self.old[at] ^ self.new[at]);
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let coefficient = isa.factor(self.coefficient);
        walk!(I, self.q.len(), |at, N| {
            let delta = xor::<I, N>(isa, load(isa, self.old, at), load(isa, self.new, at));
            let q = xor(isa, load(isa, self.q, at), mul(isa, coefficient, delta));
            store(isa, self.q, at, q);
        });
    }
}

struct PqUpdate<'a> {
    p: &'a mut [u8],
    q: &'a mut [u8],
    coefficient: u8,
    old: &'a [u8],
    new: &'a [u8],
}

impl Op for PqUpdate<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.p.len() {
            let delta = self.old[at] ^ self.new[at];
            self.p[at] ^= delta;
            self.q[at] ^= gf::mul(self.coefficient, delta);
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let coefficient = isa.factor(self.coefficient);
        walk!(I, self.p.len(), |at, N| {
            let delta = xor::<I, N>(isa, load(isa, self.old, at), load(isa, self.new, at));
            let p = xor(isa, load(isa, self.p, at), delta);
            store(isa, self.p, at, p);
            let q = xor(isa, load(isa, self.q, at), mul(isa, coefficient, delta));
            store(isa, self.q, at, q);
        });
    }
}

struct MulInto<'a> {
    dst: &'a mut [u8],
    factor: u8,
    source: &'a [u8],
}

impl Op for MulInto<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.dst.len() {
            self.dst[at] ^= gf::mul(self.factor, self.source[at]);
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let factor = isa.factor(self.factor);
        walk!(I, self.dst.len(), |at, N| {
            let product = mul::<I, N>(isa, factor, load(isa, self.source, at));
            let dst = xor(isa, load(isa, self.dst, at), product);
            store(isa, self.dst, at, dst);
        });
    }
}
