//! Known-answer tests that kernels must pass before they can be used.
//!
//! Invariant: kernels of vector instructions are handed out only after [`passes`] said so on this
//! CPU in this process, so that an instruction which does not work as expected (our mistake on
//! untested hardware, a bug of an emulator, a broken CPU) cannot corrupt data.
//! Called once per process and kernels, from `kernels`; takes some hundred microseconds.
//!
//! The answers are those of the reference, which follows the formulas byte by byte. Every
//! primitive of an instruction set takes part: wide groups, single vectors and tails, chains with
//! and without holes, every factor, and the verdicts in both directions.

use crate::{Block, Change, Kernels, Verdict, gf};

/// Two wide groups of the widest vectors, a few single ones, and a tail of every set.
const LEN: usize = 2 * 256 + 128 + 64 + 32 + 16 + 7;
const EXPONENTS: [u8; 6] = [0, 1, 2, 5, 6, 11];
const COUNT: usize = EXPONENTS.len();

/// Whether these kernels compute what the reference does.
pub(crate) fn passes(kernels: Kernels) -> bool {
    let mut data = [[0; LEN]; COUNT];
    let mut state = 1u64;
    for byte in data.as_flattened_mut() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (state >> 56) as u8;
    }
    let (mut p, mut q) = ([0; LEN], [0; LEN]);
    Kernels::reference().pq_gen(&mut p, &mut q, &blocks(&data));
    generates(kernels, &data, &p, &q)
        && recovers(kernels, &data, &p, &q)
        && multiplies(kernels)
        && updates(kernels, &data)
        && judges(kernels, &data, &p, &q)
}

fn blocks(data: &[[u8; LEN]; COUNT]) -> [Block<'_>; COUNT] {
    std::array::from_fn(|i| Block { exponent: EXPONENTS[i], bytes: &data[i] })
}

fn generates(kernels: Kernels, data: &[[u8; LEN]; COUNT], p: &[u8], q: &[u8]) -> bool {
    let (mut new_p, mut new_q, mut sum) = ([1; LEN], [2; LEN], [3; LEN]);
    kernels.pq_gen(&mut new_p, &mut new_q, &blocks(data));
    kernels.xor_gen(&mut sum, &data.each_ref().map(<[u8; LEN]>::as_slice));
    new_p == p && new_q == q && sum == p
}

fn recovers(kernels: Kernels, data: &[[u8; LEN]; COUNT], p: &[u8], q: &[u8]) -> bool {
    let (mut x, mut y) = ([0; LEN], [0; LEN]);
    let [first, others @ .., last] = blocks(data);
    kernels.recover_dd(&mut x, first.exponent, &mut y, last.exponent, &others, p, q);
    x == data[0] && y == data[COUNT - 1]
}

/// Every factor with every byte.
fn multiplies(kernels: Kernels) -> bool {
    let source: [u8; 256] = std::array::from_fn(|a| a as u8);
    (0..=255).all(|factor| {
        let mut product = [0; 256];
        kernels.mul_into(&mut product, factor, &source);
        source.iter().zip(product).all(|(&a, product)| product == gf::mul(factor, a))
    })
}

fn updates(kernels: Kernels, data: &[[u8; LEN]; COUNT]) -> bool {
    let [a, b, p, q, ..] = data;
    let changes = [
        Change { exponent: 77, old: a, new: b },
        Change { exponent: 254, old: b, new: p },
        Change { exponent: 0, old: q, new: a },
    ];
    let ((mut p, mut q), (mut right_p, mut right_q)) = ((*p, *q), (*p, *q));
    kernels.pq_update(&mut p, &mut q, &changes);
    Kernels::reference().pq_update(&mut right_p, &mut right_q, &changes);
    let (mut from_p, mut from_q) = ([1; LEN], [2; LEN]);
    kernels.pq_update_from(&mut from_p, &mut from_q, (&data[2], &data[3]), &changes);
    p == right_p && q == right_q && from_p == right_p && from_q == right_q
}

/// The row agrees; and each of three places where one bit is wrong is seen, and blamed rightly.
fn judges(kernels: Kernels, data: &[[u8; LEN]; COUNT], p: &[u8], q: &[u8]) -> bool {
    let zero = [0; LEN];
    kernels.is_zero(&zero)
        && kernels.check(&blocks(data), p, q) == Verdict::Agree
        && [3, 600, LEN - 1].into_iter().all(|at| {
            let (mut wrong, mut set) = (*data, zero);
            wrong[3][at] ^= 0x20;
            set[at] = 0x20;
            !kernels.is_zero(&set)
                && kernels.check(&blocks(&wrong), p, q) == Verdict::Data { index: 3 }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::faulty::FAULTS;

    #[test]
    fn right_kernels_pass() {
        assert!(passes(Kernels::reference()));
        assert!(passes(Kernels::portable()));
    }

    #[test]
    fn every_fault_is_found() {
        for fault in FAULTS {
            assert!(!passes(Kernels::faulty(fault)), "{fault:?}");
        }
    }
}
