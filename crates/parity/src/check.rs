//! Does a RAID 6 row agree with its P and Q, and if not, which block is to blame?
//!
//! P' and Q' are the sums over the data as read; the *syndromes* p = P + P' and q = Q + Q' are zero
//! where the row agrees. If exactly one block is wrong, by a difference w (not zero) at some byte,
//! then at this byte
//!
//! ```text
//! P wrong:     p = w    q = 0
//! Q wrong:     p = 0    q = w
//! D(z) wrong:  p = w    q = g^z * w     so    z = log q - log p  (modulo 255)
//! ```
//!
//! Each byte that differs names one suspect. A block is found guilty only if all bytes that differ
//! name the same one, and if that exponent is in use. Two wrong blocks can look like a third one at
//! a byte, by chance; the more bytes differ, the less likely all of them agree.
//!
//! Invariant: a verdict speaks about the whole slices of one call. Different blocks may be wrong in
//! different places, so a caller checks the unit that it repairs (md: a page).

use crate::arch::{GROUP_BYTES_MAX, Group, Isa, Op, any, load, store, walk, xor};
use crate::block::{assert_len, assert_set};
use crate::syndrome::{sums, sums_at};
use crate::{Block, Kernels, gf};

/// The verdict of [`Kernels::check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// P and Q are those of the data.
    Agree,
    /// Only P differs: P is wrong.
    PDiffers,
    /// Only Q differs: Q is wrong.
    QDiffers,
    /// One data block explains every difference.
    Data {
        /// Its index in the set that was given (not its exponent).
        index: usize,
    },
    /// No single block explains every difference.
    Unexplained,
}

impl Kernels {
    /// Compares a row with its P and Q and looks for the culprit. Stops at the first byte that
    /// makes the differences unexplained. Panics if lengths differ or exponents do not ascend.
    pub fn check(self, data: &[Block], p: &[u8], q: &[u8]) -> Verdict {
        assert_set(data, p.len());
        assert_len(q, p.len());
        match self.run(Check { data, p, q }) {
            Suspect::None => Verdict::Agree,
            Suspect::P => Verdict::PDiffers,
            Suspect::Q => Verdict::QDiffers,
            Suspect::Many => Verdict::Unexplained,
            Suspect::Data { exponent } => {
                match data.binary_search_by_key(&exponent, |block| block.exponent) {
                    Ok(index) => Verdict::Data { index },
                    Err(_) => Verdict::Unexplained,
                }
            }
        }
    }
}

/// The block that explains the mismatches so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suspect {
    None,
    P,
    Q,
    Data { exponent: u8 },
    Many,
}

impl Suspect {
    /// Whom the syndromes at one byte name.
    fn named_by(p: u8, q: u8) -> Suspect {
        match (p, q) {
            (0, 0) => Suspect::None,
            (_, 0) => Suspect::P,
            (0, _) => Suspect::Q,
            (_, _) => Suspect::Data { exponent: gf::log(gf::mul(q, gf::inv(p))) },
        }
    }

    /// The block that explains both.
    fn and(self, other: Suspect) -> Suspect {
        match (self, other) {
            (suspect, Suspect::None) | (Suspect::None, suspect) => suspect,
            (suspect, other) if suspect == other => suspect,
            _ => Suspect::Many,
        }
    }

    /// The block that also explains these syndromes.
    fn and_bytes(mut self, p: &[u8], q: &[u8]) -> Suspect {
        for (&p, &q) in p.iter().zip(q) {
            self = self.and(Suspect::named_by(p, q));
        }
        self
    }
}

struct Check<'a> {
    data: &'a [Block<'a>],
    p: &'a [u8],
    q: &'a [u8],
}

impl Op for Check<'_> {
    type Output = Suspect;

    fn plain(self) -> Suspect {
        let mut suspect = Suspect::None;
        for at in 0..self.p.len() {
            let (p, q) = sums_at(self.data, at);
            suspect = suspect.and(Suspect::named_by(self.p[at] ^ p, self.q[at] ^ q));
        }
        suspect
    }

    /// A group whose syndromes are zero, the ordinary case, costs one test; others are judged byte
    /// by byte.
    #[inline(always)]
    fn vector<I: Isa>(self, isa: I) -> Suspect {
        let mut suspect = Suspect::None;
        walk!(I, self.p.len(), |at, N| {
            let (p, q) = sums::<I, N>(isa, self.data, at);
            let p = xor(isa, load(isa, self.p, at), p);
            let q = xor(isa, load(isa, self.q, at), q);
            if any(isa, p) || any(isa, q) {
                suspect = judge(isa, suspect, p, q);
                if suspect == Suspect::Many {
                    return suspect;
                }
            }
        });
        suspect
    }
}

/// Evaluates each byte of a group. Zero padding of a tail yields no suspect.
#[inline(always)]
fn judge<I: Isa, const N: usize>(
    isa: I,
    suspect: Suspect,
    p: Group<I, N>,
    q: Group<I, N>,
) -> Suspect {
    const { assert!(N * I::BYTES <= GROUP_BYTES_MAX) };
    let (mut p_bytes, mut q_bytes) = ([0; GROUP_BYTES_MAX], [0; GROUP_BYTES_MAX]);
    store(isa, &mut p_bytes, 0, p);
    store(isa, &mut q_bytes, 0, q);
    suspect.and_bytes(&p_bytes[..N * I::BYTES], &q_bytes[..N * I::BYTES])
}
