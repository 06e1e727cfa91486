//! The GFNI kernels on CPUs without GFNI: their own machine code, with the one instruction that is
//! missing emulated in the handler of its trap.
//!
//! Invariant: all code but `vgf2p8affineqb` itself is what a CPU with GFNI would run, and that
//! instruction is Intel's definition of it (`affine`). On a CPU with GFNI everything runs natively,
//! which compares the definition with the hardware (`trap/forms.rs`). A process of its own, for a
//! signal's handler belongs to the process.
//!
//! ```text
//! kernel ---- vgf2p8affineqb ----> SIGILL ---> trap: the frame's code ---> decode
//!    ^                                           the frame's registers <-> machine ---> affine
//!    '---------- behind the instruction <---------'
//! ```
//!
//! A trap costs some microseconds, so the rows are fewer and shorter than those of `every_isa`;
//! RAIDLAB_TEST=all runs
//! those.

#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod affine;
#[path = "../common/mod.rs"]
mod common;
mod decode;
mod machine;
#[allow(unsafe_code)]
mod trap;

use std::sync::OnceLock;

use raidlab_parity::{Kernels, Unavailable};

const NAMES: [&str; 2] = ["gfni-avx2", "gfni-avx512"];

/// The kernels of a name, after their self-check in this process.
fn kernels(name: &str) -> Result<Kernels, Unavailable> {
    static TRIED: [OnceLock<Result<Kernels, Unavailable>>; NAMES.len()] =
        [const { OnceLock::new() }; NAMES.len()];
    let index = NAMES.iter().position(|known| *known == name).expect("one of the two");
    *TRIED[index].get_or_init(|| trap::kernels(name))
}

fn for_each_isa(test: impl Fn(Kernels)) {
    let mut ran = 0;
    for name in NAMES {
        match kernels(name) {
            Ok(kernels) => test(kernels),
            Err(problem @ Unavailable::Needs(_)) => println!("{name} skipped: {problem}"),
            Err(problem) => panic!("{name}: {problem}"),
        }
        ran += usize::from(kernels(name).is_ok());
    }
    if ran == 0 {
        println!("skipped: neither AVX2 nor AVX-512 on this CPU");
    }
}

/// Rows in which no product is repeated too often.
fn shapes() -> impl Iterator<Item = (&'static [u8], usize, usize)> {
    common::all_shapes().filter(|&(exponents, len, offset)| {
        // Each exponent up to the highest is a doubling.
        let highest = exponents.iter().copied().max().unwrap_or(0);
        let few = if highest > 8 { len == 65 } else { len < 1000 };
        all() || few && offset == common::OFFSETS[len % common::OFFSETS.len()]
    })
}

/// Few blocks, hence few products, and just long enough for the operations that have three blocks.
fn far_row() -> (&'static [u8], usize, &'static [usize]) {
    (&[0, 1], (16 << 20) / 3 + 77, if all() { &[0, 3] } else { &[0] })
}

/// Whether slow sweeps were asked for.
fn all() -> bool {
    std::env::var("RAIDLAB_TEST").as_deref() == Ok("all")
}

/// Multiplies by each kernels once, and says what ran.
#[test]
fn the_instruction_is_emulated_where_the_cpu_lacks_it() {
    for_each_isa(|kernels| {
        let (before, mut product) = (trap::emulated(), [0; 256]);
        kernels.mul_into(&mut product, 0x8e, &std::array::from_fn::<u8, 256, _>(|a| a as u8));
        assert_eq!(product[..4], [0, 0x8e, 1, 0x8f]);
        let count = trap::emulated() - before;
        match trap::native() {
            true => {
                assert_eq!(count, 0);
                println!("{kernels:?}: this CPU has GFNI, everything runs natively");
            }
            false => {
                assert!(count > 0, "{kernels:?} multiplied without the instruction");
                println!("{kernels:?}: {count} instructions emulated for 256 products");
            }
        }
    });
}
