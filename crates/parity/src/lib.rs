//! The arithmetic of RAID parity: XOR, P+Q, their updates, every recovery, and the check.
//!
//! Invariant: this crate works on byte slices only. It allocates nothing, has no notion of chunks
//! or members, and its only state is which instructions have passed their self-check. A
//! [`Kernels`] value says which instructions may run, and holding one is the proof that this CPU
//! has them and computes the right sums with them. It is the only home of SIMD in the workspace.
//!
//! # The sums
//!
//! A byte is an element of the field GF(2^8) ([`gf`]). With D(e) the data block that carries
//! exponent e, a row of a RAID 4, 5 or 6 array satisfies, byte by byte,
//!
//! ```text
//! P = sum over e of         D(e)          (RAID 4, 5, 6)
//! Q = sum over e of  g^e *  D(e)          (RAID 6)          sum = XOR, g = 2
//! ```
//!
//! Exponents are distinct and lie in 0..=254, for g has order 255. Which member carries which
//! exponent is a matter of the md layout, and not of this crate: md's own layouts number the data
//! blocks 0, 1, 2, ..., its DDF layouts use slot numbers and leave holes. A set of blocks is
//! always given in ascending order of its exponents; a set that is not is a bug of the caller and
//! panics, as do slices of different lengths. Any length (0 too) and any alignment will do.
//!
//! # From the formula to the instruction
//!
//! Each operation stands in one file with its derivation, a *plain* version that follows the
//! formula byte by byte, and one *vector* version that is generic over the instruction set
//! (`arch`). The test runner (`tests/common`) compares all of them.
//!
//! | file | operations |
//! |---|---|
//! | `xor` | [`xor_gen`](Kernels::xor_gen), [`xor_into`](Kernels::xor_into), lost data from P |
//! | `syndrome` | [`pq_gen`](Kernels::pq_gen), [`q_gen`](Kernels::q_gen); Horner's rule |
//! | `update` | [`pq_update`](Kernels::pq_update) and its parts |
//! | `recover` | the recoveries that need Q |
//! | `check` | [`check`](Kernels::check): does the row agree, and if not, who is to blame |
//! | `compare` | [`equal`](Kernels::equal), [`is_zero`](Kernels::is_zero) |
//!
//! ```
//! use raidlab_parity::{Block, Kernels, Verdict};
//!
//! let kernels = Kernels::best();
//! let (d0, d1) = ([1u8, 2, 3], [4u8, 5, 0x80]);
//! let data = [Block { exponent: 0, bytes: &d0 }, Block { exponent: 1, bytes: &d1 }];
//! let (mut p, mut q) = ([0; 3], [0; 3]);
//! kernels.pq_gen(&mut p, &mut q, &data);
//! assert_eq!(p, [1 ^ 4, 2 ^ 5, 3 ^ 0x80]);
//! assert_eq!(q, [1 ^ 8, 2 ^ 10, 3 ^ 0x1d]);
//! assert_eq!(kernels.check(&data, &p, &q), Verdict::Agree);
//!
//! // Both data blocks are lost.
//! let (mut x, mut y) = ([0; 3], [0; 3]);
//! kernels.recover_dd(&mut x, 0, &mut y, 1, &[], &p, &q);
//! assert_eq!((x, y), (d0, d1));
//! ```

#![cfg_attr(
    not(target_arch = "x86_64"),
    allow(dead_code, reason = "streaming past the caches is for vectors")
)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub(crate) mod arch;
mod block;
mod calibrate;
mod check;
mod compare;
pub mod gf;
mod kernels;
mod recover;
mod selection;
mod self_check;
mod syndrome;
mod update;
mod xor;

pub use block::{Block, Change};
pub use check::Verdict;
pub use kernels::{Kernels, Unavailable};
