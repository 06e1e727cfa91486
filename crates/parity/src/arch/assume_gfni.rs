//! GFNI kernels on a CPU that lacks the instructions, for tests that emulate them.
//!
//! Invariant: as `gfni`, but the caller answers for the instructions.

use std::sync::OnceLock;

use super::{GfniAvx2, GfniAvx512};
use crate::kernels::{Choice, Kernels, Unavailable};

impl Kernels {
    /// The GFNI kernels of that name on a CPU that may lack GFNI; all else that they need is looked
    /// for, and they must pass their self-check. For `tests/gfni_emulated`.
    ///
    /// # Safety
    ///
    /// In this process, `vgf2p8affineqb` on registers of the base does what Intel's manual says:
    /// the CPU has it, or the trap of a CPU that lacks it is handled so. Compilers take the
    /// instruction to be harmless and move it where they like, hence from this call on.
    #[doc(hidden)]
    pub unsafe fn assume_gfni(name: &str) -> Result<Kernels, Unavailable> {
        let (choice, needs) = match name {
            "gfni-avx2" => {
                // SAFETY: passed on to the caller.
                (unsafe { GfniAvx2::assume() }.map(Choice::GfniAvx2), "an x86-64 CPU with AVX2")
            }
            "gfni-avx512" => (
                // SAFETY: passed on to the caller.
                unsafe { GfniAvx512::assume() }.map(Choice::GfniAvx512),
                "an x86-64 CPU with AVX-512 F, BW",
            ),
            _ => return Err(Unavailable::UnknownName),
        };
        Kernels(choice.ok_or(Unavailable::Needs(needs))?).admitted(&OnceLock::new())
    }
}
