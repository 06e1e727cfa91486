//! Lost blocks from Q: one data block, one with P or Q, and two data blocks.
//!
//! The *others* are the data blocks that are present; P' and Q' are the sums over them. What is
//! lost makes the difference (all signs are +, for a + a = 0):
//!
//! ```text
//! p = P + P'  =        D_x +       D_y
//! q = Q + Q'  =  g^x * D_x + g^y * D_y
//! ```
//!
//! | lost | then | and |
//! |---|---|---|
//! | D_x | D_x = p | (see `xor`; P alone suffices) |
//! | D_x, P | D_x = g^-x * q | P = P' + D_x |
//! | D_x, Q | D_x = p | Q = Q' + g^x * D_x |
//! | D_x, D_y | D_x = (q + g^y * p) / (g^x + g^y) | D_y = p + D_x |
//!
//! The last line: eliminate D_y, `q + g^y p = (g^x + g^y) D_x`. The divisor is not zero, because x
//! and y are different exponents below the order of g. It is computed as A p + B q with
//! B = 1 / (g^x + g^y) and A = g^y B, two constants.
//!
//! P, Q or both lost alone: they are computed anew (`xor`, `syndrome`).
//!
//! Invariant: each block that is present is read once, and p and q never leave the registers, so
//! that no scratch memory is needed.

use crate::arch::{FAR_BYTES, Isa, Op, load, mul, store, walk, xor};
use crate::block::{assert_absent, assert_len, assert_set};
use crate::syndrome::{sums, sums_at};
use crate::{Block, Kernels, gf};

impl Kernels {
    /// The data block with that exponent from Q and the others, P lost or not to be trusted.
    /// Panics if lengths differ, exponents do not ascend, or the block is among the others.
    pub fn recover_d_q(self, dst: &mut [u8], exponent: u8, others: &[Block], q: &[u8]) {
        assert_lost(exponent, others, dst.len());
        assert_len(q, dst.len());
        self.run(FromQ { dst, exponent, others, q });
    }

    /// A data block and P, from Q and the others. Panics as `recover_d_q` does.
    pub fn recover_d_and_p(
        self,
        dst_d: &mut [u8],
        exponent: u8,
        dst_p: &mut [u8],
        others: &[Block],
        q: &[u8],
    ) {
        assert_lost(exponent, others, dst_d.len());
        assert_len(dst_p, dst_d.len());
        assert_len(q, dst_d.len());
        self.run(DataAndP { dst_d, exponent, dst_p, others, q });
    }

    /// A data block and Q, from P and the others. Panics as `recover_d_q` does.
    pub fn recover_d_and_q(
        self,
        dst_d: &mut [u8],
        exponent: u8,
        dst_q: &mut [u8],
        others: &[Block],
        p: &[u8],
    ) {
        assert_lost(exponent, others, dst_d.len());
        assert_len(dst_q, dst_d.len());
        assert_len(p, dst_d.len());
        self.run(DataAndQ { dst_d, exponent, dst_q, others, p });
    }

    /// Two data blocks, x and y in any order, from P, Q and the others. Panics as `recover_d_q`
    /// does, and if x and y are the same.
    pub fn recover_dd(
        self,
        dst_x: &mut [u8],
        exponent_x: u8,
        dst_y: &mut [u8],
        exponent_y: u8,
        others: &[Block],
        p: &[u8],
        q: &[u8],
    ) {
        assert_lost(exponent_x, others, dst_x.len());
        assert_absent(exponent_y, others);
        assert!(exponent_x != exponent_y, "two lost blocks with exponent {exponent_x}");
        assert_len(dst_y, dst_x.len());
        assert_len(p, dst_x.len());
        assert_len(q, dst_x.len());
        self.run(TwoData { dst_x, exponent_x, dst_y, exponent_y, others, p, q });
    }
}

fn assert_lost(exponent: u8, others: &[Block], len: usize) {
    assert_set(others, len);
    assert_absent(exponent, others);
}

struct FromQ<'a> {
    dst: &'a mut [u8],
    exponent: u8,
    others: &'a [Block<'a>],
    q: &'a [u8],
}

impl Op for FromQ<'_> {
    type Output = ();

    fn plain(self) {
        let divide = gf::pow2_inv(self.exponent);
        for at in 0..self.dst.len() {
            let (_, q_others) = sums_at(self.others, at);
            self.dst[at] = gf::mul(divide, self.q[at] ^ q_others);
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.others.len() + 2) * self.dst.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let divide = isa.factor(gf::pow2_inv(self.exponent));
        walk!(I, self.dst.len(), |at, N| {
            let (_, q_others) = sums::<I, N>(isa, self.others, at);
            let q = xor(isa, load(isa, self.q, at), q_others);
            store(isa, self.dst, at, mul(isa, divide, q));
        });
    }
}

struct DataAndP<'a> {
    dst_d: &'a mut [u8],
    exponent: u8,
    dst_p: &'a mut [u8],
    others: &'a [Block<'a>],
    q: &'a [u8],
}

impl Op for DataAndP<'_> {
    type Output = ();

    fn plain(self) {
        let divide = gf::pow2_inv(self.exponent);
        for at in 0..self.dst_d.len() {
            let (p_others, q_others) = sums_at(self.others, at);
            self.dst_d[at] = gf::mul(divide, self.q[at] ^ q_others);
            self.dst_p[at] = p_others ^ self.dst_d[at];
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.others.len() + 3) * self.dst_d.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let divide = isa.factor(gf::pow2_inv(self.exponent));
        walk!(I, self.dst_d.len(), |at, N| {
            let (p_others, q_others) = sums::<I, N>(isa, self.others, at);
            let q = xor(isa, load(isa, self.q, at), q_others);
            let data = mul(isa, divide, q);
            store(isa, self.dst_d, at, data);
            store(isa, self.dst_p, at, xor(isa, p_others, data));
        });
    }
}

struct DataAndQ<'a> {
    dst_d: &'a mut [u8],
    exponent: u8,
    dst_q: &'a mut [u8],
    others: &'a [Block<'a>],
    p: &'a [u8],
}

impl Op for DataAndQ<'_> {
    type Output = ();

    fn plain(self) {
        let coefficient = gf::pow2(self.exponent);
        for at in 0..self.dst_d.len() {
            let (p_others, q_others) = sums_at(self.others, at);
            self.dst_d[at] = self.p[at] ^ p_others;
            self.dst_q[at] = q_others ^ gf::mul(coefficient, self.dst_d[at]);
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.others.len() + 3) * self.dst_d.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let coefficient = isa.factor(gf::pow2(self.exponent));
        walk!(I, self.dst_d.len(), |at, N| {
            let (p_others, q_others) = sums::<I, N>(isa, self.others, at);
            let data = xor(isa, load(isa, self.p, at), p_others);
            store(isa, self.dst_d, at, data);
            store(isa, self.dst_q, at, xor(isa, q_others, mul(isa, coefficient, data)));
        });
    }
}

struct TwoData<'a> {
    dst_x: &'a mut [u8],
    exponent_x: u8,
    dst_y: &'a mut [u8],
    exponent_y: u8,
    others: &'a [Block<'a>],
    p: &'a [u8],
    q: &'a [u8],
}

impl Op for TwoData<'_> {
    type Output = ();

    fn plain(self) {
        let (g_x, g_y) = (gf::pow2(self.exponent_x), gf::pow2(self.exponent_y));
        let divide = gf::inv(g_x ^ g_y);
        for at in 0..self.dst_x.len() {
            let (p_others, q_others) = sums_at(self.others, at);
            let (p, q) = (self.p[at] ^ p_others, self.q[at] ^ q_others);
            self.dst_x[at] = gf::mul(divide, q ^ gf::mul(g_y, p));
            self.dst_y[at] = p ^ self.dst_x[at];
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.others.len() + 4) * self.dst_x.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let (g_x, g_y) = (gf::pow2(self.exponent_x), gf::pow2(self.exponent_y));
        let divide = gf::inv(g_x ^ g_y);
        let (a, b) = (isa.factor(gf::mul(g_y, divide)), isa.factor(divide));
        walk!(I, self.dst_x.len(), |at, N| {
            let (p_others, q_others) = sums::<I, N>(isa, self.others, at);
            let p = xor(isa, load(isa, self.p, at), p_others);
            let q = xor(isa, load(isa, self.q, at), q_others);
            let x = xor(isa, mul(isa, a, p), mul(isa, b, q));
            store(isa, self.dst_x, at, x);
            store(isa, self.dst_y, at, xor(isa, p, x));
        });
    }
}
