//! Which instructions may run: [`Kernels`], its choice and its dispatch.
//!
//! Invariant: a `Kernels` value exists only if this CPU can run it, and each call dispatches once,
//! never per block or per byte. The operations are methods of this type in the files of their
//! formulas.

#[cfg(target_arch = "x86_64")]
use crate::arch::Avx2;
use crate::arch::{Isa, Op, Portable};

/// A way to run the operations of this crate on this CPU.
///
/// A small `Copy` value: make one at start, hand it down. There is no global choice, so that two
/// of them can be compared in one process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernels(Choice);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Reference,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// Why there are no [`Kernels`] of a name here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// No kernels have this name; [`Kernels::NAMES`] has those that exist.
    UnknownName,
    /// They exist, but not here: what is missing.
    Needs(&'static str),
}

impl Kernels {
    /// The names of all kernels, the slowest first, whether this CPU can run them or not.
    pub const NAMES: [&'static str; 3] = ["reference", "portable", "avx2"];

    /// The fastest kernels of this CPU.
    pub fn best() -> Kernels {
        Kernels::avx2().unwrap_or(Kernels::portable())
    }

    /// Byte by byte, straight from the formulas: what the others are compared with.
    pub const fn reference() -> Kernels {
        Kernels(Choice::Reference)
    }

    /// No intrinsics; runs everywhere, as fast as the compiler can make it.
    pub const fn portable() -> Kernels {
        Kernels(Choice::Portable)
    }

    /// 32-byte vectors with byte shuffles; x86-64 with AVX2.
    pub fn avx2() -> Option<Kernels> {
        #[cfg(target_arch = "x86_64")]
        let kernels = Avx2::detect().map(|isa| Kernels(Choice::Avx2(isa)));
        #[cfg(not(target_arch = "x86_64"))]
        let kernels = None;
        kernels
    }

    /// All kernels that this CPU can run, the slowest first.
    pub fn available() -> impl Iterator<Item = Kernels> {
        Kernels::NAMES.iter().filter_map(|name| Kernels::by_name(name).ok())
    }

    /// The kernels of that name (see [`Kernels::NAMES`]), or why they cannot be had.
    pub fn by_name(name: &str) -> Result<Kernels, Unavailable> {
        match name {
            "reference" => Ok(Kernels::reference()),
            "portable" => Ok(Kernels::portable()),
            "avx2" => Kernels::avx2().ok_or(Unavailable::Needs("an x86-64 CPU with AVX2")),
            _ => Err(Unavailable::UnknownName),
        }
    }

    /// The name that [`Kernels::by_name`] knows.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Choice::Reference => "reference",
            Choice::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(_) => "avx2",
        }
    }

    /// Runs an operation whose operands were checked.
    pub(crate) fn run<O: Op>(self, op: O) -> O::Output {
        match self.0 {
            Choice::Reference => op.plain(),
            Choice::Portable => Portable.run(op),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(isa) => isa.run(op),
        }
    }
}

impl std::fmt::Debug for Kernels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kernels({})", self.name())
    }
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unavailable::UnknownName => {
                write!(f, "no such parity kernels; there are {}", Kernels::NAMES.join(", "))
            }
            Unavailable::Needs(what) => write!(f, "needs {what}"),
        }
    }
}

impl std::error::Error for Unavailable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_kernels() {
        for name in Kernels::NAMES {
            match Kernels::by_name(name) {
                Ok(kernels) => assert_eq!(kernels.name(), name),
                Err(problem) => println!("{name} skipped: {problem}"),
            }
        }
        assert_eq!(Kernels::by_name("abacus"), Err(Unavailable::UnknownName));
    }

    #[test]
    fn the_best_is_the_last_available() {
        assert_eq!(Kernels::available().last(), Some(Kernels::best()));
        assert!(Kernels::available().any(|kernels| kernels == Kernels::reference()));
        assert!(Kernels::available().any(|kernels| kernels == Kernels::portable()));
    }
}
