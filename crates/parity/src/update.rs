//! Parity after data blocks have changed: read-modify-write.
//!
//! Both sums are linear. If D(e) becomes D(e) + delta(e), where delta = old + new, then
//!
//! ```text
//! P becomes P + sum of       delta(e)
//! Q becomes Q + sum of g^e * delta(e)          over the blocks that change
//! ```
//!
//! Each delta is multiplied by its own g^e. Horner's rule (`syndrome`) would be cheaper for
//! neighbours and dearer for all else, and blocks that change together may have any exponents.
//!
//! Invariant: the other data blocks are not needed, and each block that is given, P and Q among
//! them, is read once, however many blocks change.

use crate::arch::{Group, Isa, Op, load, mul, store, walk, xor, xor3};
use crate::block::{assert_changes, assert_len};
use crate::{Change, Kernels, gf};

impl Kernels {
    /// P += old + new of each change. Nothing happens without a change. Panics if lengths differ.
    pub fn p_update(self, p: &mut [u8], changes: &[Change]) {
        assert_changes(changes, p.len());
        if !changes.is_empty() {
            self.run(PUpdate { p, changes });
        }
    }

    /// Q += g^exponent * (old + new) of each change, in any order of exponents. Nothing happens
    /// without a change. Panics if lengths differ or an exponent is 255.
    pub fn q_update(self, q: &mut [u8], changes: &[Change]) {
        assert_changes(changes, q.len());
        if !changes.is_empty() {
            self.run(QUpdate { q, changes });
        }
    }

    /// Both of the above in one pass. Panics as they do.
    pub fn pq_update(self, p: &mut [u8], q: &mut [u8], changes: &[Change]) {
        assert_len(q, p.len());
        assert_changes(changes, p.len());
        if !changes.is_empty() {
            self.run(PqUpdate { p, q, changes });
        }
    }

    /// As [`pq_update`](Kernels::pq_update), with the old parity somewhere else, where it stays:
    /// what would be copied first is only read. Panics as that does.
    pub fn pq_update_from(
        self,
        p: &mut [u8],
        q: &mut [u8],
        (old_p, old_q): (&[u8], &[u8]),
        changes: &[Change],
    ) {
        [&*q, old_p, old_q].iter().for_each(|block| assert_len(block, p.len()));
        assert_changes(changes, p.len());
        self.run(PqUpdateFrom { p, q, old_p, old_q, changes });
    }

    /// dst += factor * source: the update where the delta is at hand, with factor
    /// [`pow2(e)`](gf::pow2). Panics if lengths differ.
    pub fn mul_into(self, dst: &mut [u8], factor: u8, source: &[u8]) {
        assert_len(source, dst.len());
        self.run(MulInto { dst, factor, source });
    }
}

impl Change<'_> {
    /// old + new at one byte.
    fn delta_at(&self, at: usize) -> u8 {
        self.old[at] ^ self.new[at]
    }

    /// old + new at one group.
    #[inline(always)]
    fn delta<I: Isa, const N: usize>(&self, isa: I, at: usize) -> Group<I, N> {
        xor(isa, load(isa, self.old, at), load(isa, self.new, at))
    }

    /// The same with the ends of both blocks at the end of the parity, where the compiler sees
    /// them: they are looked at once, and not in each group.
    #[inline(always)]
    fn up_to(&self, len: usize) -> Self {
        Change { exponent: self.exponent, old: &self.old[..len], new: &self.new[..len] }
    }

    /// The factor of the delta in Q.
    #[inline(always)]
    fn coefficient(&self) -> u8 {
        gf::pow2(self.exponent)
    }
}

struct PUpdate<'a> {
    p: &'a mut [u8],
    changes: &'a [Change<'a>],
}

impl Op for PUpdate<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.p.len() {
            self.p[at] = self.changes.iter().fold(self.p[at], |p, c| p ^ c.delta_at(at));
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        if let [change] = self.changes {
            let change = change.up_to(self.p.len());
            walk!(I, self.p.len(), |at, N| {
                let p = load::<I, N>(isa, self.p, at);
                let p = xor3(isa, p, load(isa, change.old, at), load(isa, change.new, at));
                store(isa, self.p, at, p);
            });
            return;
        }
        walk!(I, self.p.len(), |at, N| {
            let mut p = load::<I, N>(isa, self.p, at);
            for change in self.changes {
                p = xor3(isa, p, load(isa, change.old, at), load(isa, change.new, at));
            }
            store(isa, self.p, at, p);
        });
    }
}

struct QUpdate<'a> {
    q: &'a mut [u8],
    changes: &'a [Change<'a>],
}

impl Op for QUpdate<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.q.len() {
            for change in self.changes {
                self.q[at] ^= gf::mul(change.coefficient(), change.delta_at(at));
            }
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        walk!(I, self.q.len(), |at, N| {
            let mut q = load::<I, N>(isa, self.q, at);
            for change in self.changes {
                let factor = isa.factor(change.coefficient());
                q = xor(isa, q, mul(isa, factor, change.delta(isa, at)));
            }
            store(isa, self.q, at, q);
        });
    }
}

struct PqUpdate<'a> {
    p: &'a mut [u8],
    q: &'a mut [u8],
    changes: &'a [Change<'a>],
}

impl Op for PqUpdate<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.p.len() {
            for change in self.changes {
                let delta = change.delta_at(at);
                self.p[at] ^= delta;
                self.q[at] ^= gf::mul(change.coefficient(), delta);
            }
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        if let [change] = self.changes {
            let (change, q) = (change.up_to(self.p.len()), &mut self.q[..self.p.len()]);
            let factor = isa.factor(change.coefficient());
            walk!(I, self.p.len(), |at, N| {
                let old = (load::<I, N>(isa, self.p, at), load::<I, N>(isa, q, at));
                let new = plus(isa, old, factor, change.delta(isa, at));
                store(isa, self.p, at, new.0);
                store(isa, q, at, new.1);
            });
            return;
        }
        walk!(I, self.p.len(), |at, N| {
            let old = (load::<I, N>(isa, self.p, at), load::<I, N>(isa, self.q, at));
            let (p, q) = changed(isa, old, self.changes, at);
            store(isa, self.p, at, p);
            store(isa, self.q, at, q);
        });
    }
}

/// The new P and Q of one group.
#[inline(always)]
fn changed<I: Isa, const N: usize>(
    isa: I,
    (mut p, mut q): (Group<I, N>, Group<I, N>),
    changes: &[Change],
    at: usize,
) -> (Group<I, N>, Group<I, N>) {
    for change in changes {
        let factor = isa.factor(change.coefficient());
        (p, q) = plus(isa, (p, q), factor, change.delta(isa, at));
    }
    (p, q)
}

/// P + delta and Q + factor * delta.
#[inline(always)]
fn plus<I: Isa, const N: usize>(
    isa: I,
    (p, q): (Group<I, N>, Group<I, N>),
    factor: I::Factor,
    delta: Group<I, N>,
) -> (Group<I, N>, Group<I, N>) {
    (xor(isa, p, delta), xor(isa, q, mul(isa, factor, delta)))
}

struct PqUpdateFrom<'a> {
    p: &'a mut [u8],
    q: &'a mut [u8],
    old_p: &'a [u8],
    old_q: &'a [u8],
    changes: &'a [Change<'a>],
}

impl Op for PqUpdateFrom<'_> {
    type Output = ();

    fn plain(self) {
        self.p.copy_from_slice(self.old_p);
        self.q.copy_from_slice(self.old_q);
        PqUpdate { p: self.p, q: self.q, changes: self.changes }.plain();
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        if let [change] = self.changes {
            let len = self.p.len();
            let (change, q) = (change.up_to(len), &mut self.q[..len]);
            let (old_p, old_q) = (&self.old_p[..len], &self.old_q[..len]);
            let factor = isa.factor(change.coefficient());
            walk!(I, len, |at, N| {
                let old = (load::<I, N>(isa, old_p, at), load::<I, N>(isa, old_q, at));
                let new = plus(isa, old, factor, change.delta(isa, at));
                store(isa, self.p, at, new.0);
                store(isa, q, at, new.1);
            });
            return;
        }
        walk!(I, self.p.len(), |at, N| {
            let old = (load::<I, N>(isa, self.old_p, at), load::<I, N>(isa, self.old_q, at));
            let (p, q) = changed(isa, old, self.changes, at);
            store(isa, self.p, at, p);
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
