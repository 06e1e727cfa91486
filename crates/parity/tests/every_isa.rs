//! Every instruction set of this CPU with the whole runner; the reference by hand; and what callers
//! must not do.
//!
//! Invariant: an instruction set that this CPU lacks is named as skipped, never left out silently.

mod common;

use raidlab_parity::{Block, Change, Kernels, Unavailable};

use common::all_shapes as shapes;

/// At offsets where the alignment lets all vectors pass the caches, or some, or none.
fn far_row() -> (&'static [u8], usize, &'static [usize]) {
    (&[0, 1, 2, 5, 6], (4 << 20) + 77, &[0, 32, 3])
}

fn for_each_isa(test: impl Fn(Kernels)) {
    for name in Kernels::NAMES {
        match Kernels::by_name(name) {
            Ok(kernels) => test(kernels),
            Err(problem @ Unavailable::Needs(_)) => println!("{name} skipped: {problem}"),
            Err(problem) => panic!("{name}: {problem}"),
        }
    }
}

/// Bytes of one bit each, so that the terms of a sum are visible: in Q, a block of 0x80 with
/// exponent e is g^(e+7), and g^7..g^10 are 0x80, 0x1d, 0x3a, 0x74 (x^8 = x^4 + x^3 + x^2 + 1).
#[test]
fn the_reference_agrees_with_sums_done_by_hand() {
    let data = [[0x80, 0x01, 0x00], [0x80, 0x01, 0xff], [0x80, 0x01, 0x00], [0x80, 0x01, 0x00]];
    let blocks = |exponents: [u8; 4]| -> [Block; 4] {
        std::array::from_fn(|i| Block { exponent: exponents[i], bytes: &data[i] })
    };
    let (mut p, mut q) = ([0; 3], [0; 3]);
    Kernels::reference().pq_gen(&mut p, &mut q, &blocks([0, 1, 2, 3]));
    assert_eq!(p, [0x00, 0x00, 0xff]);
    assert_eq!(q, [0x80 ^ 0x1d ^ 0x3a ^ 0x74, 0x0f, 0xfe ^ 0x1d]);
    // Exponents with holes: g^0 + g^2 + g^3 + g^8, and g^2 * 0xff = 2 * (0xfe ^ 0x1d) = 2 * 0xe3.
    Kernels::reference().pq_gen(&mut p, &mut q, &blocks([0, 2, 3, 8]));
    assert_eq!(q[1..], [1 ^ 4 ^ 8 ^ 0x1d, 0xc6 ^ 0x1d]);
}

// What a caller must not do.

#[test]
#[should_panic(expected = "one length")]
fn sources_of_another_length_panic() {
    Kernels::best().xor_gen(&mut [0; 4], &[&[0; 4], &[0; 3]]);
}

#[test]
#[should_panic(expected = "one length")]
fn p_and_q_of_different_lengths_panic() {
    Kernels::best().pq_gen(&mut [0; 4], &mut [0; 5], &[]);
}

#[test]
#[should_panic(expected = "one length")]
fn a_change_of_another_length_panics() {
    let change = Change { exponent: 0, old: &[0; 4], new: &[0; 3] };
    Kernels::best().pq_update(&mut [0; 4], &mut [0; 4], &[change]);
}

#[test]
#[should_panic(expected = "one length")]
fn an_old_parity_of_another_length_panics() {
    let change = Change { exponent: 0, old: &[0; 4], new: &[0; 4] };
    let old: (&[u8], &[u8]) = (&[0; 4], &[0; 5]);
    Kernels::best().pq_update_from(&mut [0; 4], &mut [0; 4], old, &[change]);
}

#[test]
#[should_panic(expected = "two lost blocks")]
fn losing_one_block_twice_panics() {
    Kernels::best().recover_dd(&mut [0], 3, &mut [0], 3, &[], &[0], &[0]);
}
