//! XOR: the parity of RAID 4 and 5, the P of RAID 6, and a lost block from P.
//!
//! ```text
//! P   = sum of all D
//! D_x = P + sum of the other D        for P + P = 0: move D_x and P to the other sides
//! ```
//!
//! Both are one operation, *the XOR of some blocks*, so they share a kernel. Invariant: every
//! source byte is read once, whatever the number of sources.

use crate::Kernels;
use crate::arch::{FAR_BYTES, Group, Isa, Op, any, load, store, walk, xor, xor3};
use crate::block::assert_len;

impl Kernels {
    /// dst = XOR of the sources. Panics without a source, or if lengths differ.
    pub fn xor_gen(self, dst: &mut [u8], sources: &[&[u8]]) {
        let (first, rest) = sources.split_first().expect("XOR of at least one block");
        self.recover_d_p(dst, rest, first);
    }

    /// dst = dst XOR the sources. Nothing happens without a source. Panics if lengths differ.
    pub fn xor_into(self, dst: &mut [u8], sources: &[&[u8]]) {
        assert_lens(sources, dst.len());
        if !sources.is_empty() {
            self.run(XorInto { dst, sources });
        }
    }

    /// One data block from P and the others: D = P + sum of the others. For RAID 4, 5 and 6.
    /// Panics if lengths differ.
    pub fn recover_d_p(self, dst: &mut [u8], others: &[&[u8]], p: &[u8]) {
        assert_lens(others, dst.len());
        assert_len(p, dst.len());
        self.run(XorGen { dst, first: p, rest: others });
    }

    /// Whether P is the XOR of the sources (RAID 4 and 5, which cannot tell who is to blame).
    /// Panics if lengths differ.
    pub fn check_p(self, sources: &[&[u8]], p: &[u8]) -> bool {
        assert_lens(sources, p.len());
        self.run(CheckP { sources, p })
    }
}

fn assert_lens(sources: &[&[u8]], len: usize) {
    for source in sources {
        assert_len(source, len);
    }
}

/// The sum of the sources at one byte.
fn sum_at(sources: &[&[u8]], at: usize) -> u8 {
    sources.iter().fold(0, |sum, source| sum ^ source[at])
}

/// sum + the sources at one group; in pairs, for there may be an instruction of three operands.
#[inline(always)]
fn add_all<I: Isa, const N: usize>(
    isa: I,
    mut sum: Group<I, N>,
    sources: &[&[u8]],
    at: usize,
) -> Group<I, N> {
    let pairs = sources.chunks_exact(2);
    let last = pairs.remainder().first();
    for pair in pairs {
        sum = xor3(isa, sum, load(isa, pair[0], at), load(isa, pair[1], at));
    }
    match last {
        Some(source) => xor(isa, sum, load(isa, source, at)),
        None => sum,
    }
}

/// dst = first + sum of the rest.
struct XorGen<'a> {
    dst: &'a mut [u8],
    first: &'a [u8],
    rest: &'a [&'a [u8]],
}

impl Op for XorGen<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.dst.len() {
            self.dst[at] = self.first[at] ^ sum_at(self.rest, at);
        }
    }

    #[inline(always)]
    fn far(&self) -> bool {
        (self.rest.len() + 2) * self.dst.len() >= FAR_BYTES
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        let XorGen { dst, first: p, rest } = self;
        match *rest {
            [a] => sum_few(isa, dst, [p, a]),
            [a, b] => sum_few(isa, dst, [p, a, b]),
            [a, b, c] => sum_few(isa, dst, [p, a, b, c]),
            [a, b, c, d] => sum_few(isa, dst, [p, a, b, c, d]),
            [a, b, c, d, e] => sum_few(isa, dst, [p, a, b, c, d, e]),
            [a, b, c, d, e, f] => sum_few(isa, dst, [p, a, b, c, d, e, f]),
            [a, b, c, d, e, f, g] => sum_few(isa, dst, [p, a, b, c, d, e, f, g]),
            _ => walk!(I, dst.len(), |at, N| {
                let sum = add_all(isa, load::<I, N>(isa, p, at), rest, at);
                store(isa, dst, at, sum);
            }),
        }
    }
}

/// dst = sum of the sources. Their number is a constant, so their ends are looked at once, and not
/// in each group.
#[inline(always)]
fn sum_few<I: Isa, const K: usize>(isa: I, dst: &mut [u8], mut sources: [&[u8]; K]) {
    let len = dst.len();
    for source in &mut sources {
        *source = &source[..len];
    }
    walk!(I, len, |at, N| {
        let mut sum = load::<I, N>(isa, sources[0], at);
        let mut next = 1;
        while next + 1 < K {
            let pair = (load(isa, sources[next], at), load(isa, sources[next + 1], at));
            sum = xor3(isa, sum, pair.0, pair.1);
            next += 2;
        }
        if next < K {
            sum = xor(isa, sum, load(isa, sources[next], at));
        }
        store(isa, dst, at, sum);
    });
}

/// dst = dst + sum of the sources.
struct XorInto<'a> {
    dst: &'a mut [u8],
    sources: &'a [&'a [u8]],
}

impl Op for XorInto<'_> {
    type Output = ();

    fn plain(self) {
        for at in 0..self.dst.len() {
            self.dst[at] ^= sum_at(self.sources, at);
        }
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) {
        walk!(I, self.dst.len(), |at, N| {
            let mut sum = load::<I, N>(isa, self.dst, at);
            sum = add_all(isa, sum, self.sources, at);
            store(isa, self.dst, at, sum);
        });
    }
}

/// Is p + sum of the sources zero everywhere?
struct CheckP<'a> {
    sources: &'a [&'a [u8]],
    p: &'a [u8],
}

impl Op for CheckP<'_> {
    type Output = bool;

    fn plain(self) -> bool {
        (0..self.p.len()).all(|at| sum_at(self.sources, at) == self.p[at])
    }

    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) -> bool {
        walk!(I, self.p.len(), |at, N| {
            let mut sum = load::<I, N>(isa, self.p, at);
            sum = add_all(isa, sum, self.sources, at);
            if any(isa, sum) {
                return false;
            }
        });
        true
    }
}
