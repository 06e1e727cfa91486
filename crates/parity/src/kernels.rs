//! The usable instruction sets: [`Kernels`], its selection and its dispatch.
//!
//! Invariant: a `Kernels` value exists only if this CPU can run it and, where it is made of
//! intrinsics, only after it gave the known answers (`self_check`). Each call dispatches once,
//! never per block or per byte. The operations are methods of this type in the files of their
//! formulas.

#[cfg(target_arch = "x86_64")]
use crate::arch::{Avx2, Avx512, GfniAvx2, GfniAvx512};
use crate::arch::{Far, Isa, Op, Portable};

/// A way to run the operations of this crate on this CPU.
///
/// A small `Copy` value: make one at start, hand it down. There is no global choice, so that two
/// of them can be compared in one process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernels(pub(crate) Choice);

/// The instruction sets, each with the proof that it may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Reference,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    GfniAvx2(GfniAvx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    GfniAvx512(GfniAvx512),
    #[cfg(test)]
    Faulty(faulty::Faulty),
}

/// Why [`Kernels`] of a name are not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// No kernels have this name; [`Kernels::NAMES`] has those that exist.
    UnknownName,
    /// They cannot run on this CPU: the missing features.
    Needs(&'static str),
    /// The CPU claims to run them, but they computed something wrong when they were tried.
    Wrong,
}

impl Kernels {
    /// The names of all kernels, in the order in which they are preferred, the last one most,
    /// whether this CPU can run them or not.
    pub const NAMES: [&'static str; 6] =
        ["reference", "portable", "avx2", "gfni-avx2", "avx512", "gfni-avx512"];

    /// Byte by byte, straight from the formulas: what the others are compared with.
    pub const fn reference() -> Kernels {
        Kernels(Choice::Reference)
    }

    /// No intrinsics; runs everywhere, as fast as the compiler can make it.
    pub const fn portable() -> Kernels {
        Kernels(Choice::Portable)
    }

    /// The name, as accepted by [`Kernels::by_name`].
    pub const fn name(self) -> &'static str {
        match self.0 {
            Choice::Reference => "reference",
            Choice::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Choice::GfniAvx2(_) => "gfni-avx2",
            #[cfg(target_arch = "x86_64")]
            Choice::Avx512(_) => "avx512",
            #[cfg(target_arch = "x86_64")]
            Choice::GfniAvx512(_) => "gfni-avx512",
            #[cfg(test)]
            Choice::Faulty(_) => "faulty",
        }
    }

    /// Runs an operation whose operands were checked.
    pub(crate) fn run<O: Op>(self, op: O) -> O::Output {
        match self.0 {
            Choice::Reference => op.plain(),
            Choice::Portable => Portable.run(op),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx2(isa) => run(isa, op),
            #[cfg(target_arch = "x86_64")]
            Choice::GfniAvx2(isa) => run(isa, op),
            #[cfg(target_arch = "x86_64")]
            Choice::Avx512(isa) => run(isa, op),
            #[cfg(target_arch = "x86_64")]
            Choice::GfniAvx512(isa) => run(isa, op),
            #[cfg(test)]
            Choice::Faulty(isa) => run(isa, op),
        }
    }
}

fn run<I: Isa, O: Op>(isa: I, op: O) -> O::Output {
    if op.far() { Far(isa).run(op) } else { isa.run(op) }
}

impl Choice {
    /// What this CPU says about the kernels of a known name.
    pub(crate) fn detect(name: &str) -> Result<Choice, Unavailable> {
        let (choice, needs) = match name {
            "reference" => (Some(Choice::Reference), ""),
            "portable" => (Some(Choice::Portable), ""),
            #[cfg(target_arch = "x86_64")]
            "avx2" => (Avx2::detect().map(Choice::Avx2), "an x86-64 CPU with AVX2"),
            #[cfg(target_arch = "x86_64")]
            "gfni-avx2" => {
                (GfniAvx2::detect().map(Choice::GfniAvx2), "an x86-64 CPU with AVX2 and GFNI")
            }
            #[cfg(target_arch = "x86_64")]
            "avx512" => (Avx512::detect().map(Choice::Avx512), "an x86-64 CPU with AVX-512 F, BW"),
            #[cfg(target_arch = "x86_64")]
            "gfni-avx512" => (
                GfniAvx512::detect().map(Choice::GfniAvx512),
                "an x86-64 CPU with AVX-512 F, BW and GFNI",
            ),
            _ => (None, "another kind of CPU: x86-64"),
        };
        choice.ok_or(Unavailable::Needs(needs))
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
            Unavailable::Wrong => write!(f, "computes wrong results on this CPU, so it is refused"),
        }
    }
}

impl std::error::Error for Unavailable {}

/// Instruction sets of which one primitive is wrong.
#[cfg(test)]
pub(crate) mod faulty {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {
        /// The field of AES, whose polynomial is 0x11b: the likeliest slip with GFNI.
        WrongField,
        /// Wrong for one factor and one byte only.
        OneProduct,
        Doubling,
        Xor,
        Xor3,
        Or,
        IsZero,
        NeverZero,
        Store,
    }

    pub(crate) const FAULTS: [Fault; 9] = [
        Fault::WrongField,
        Fault::OneProduct,
        Fault::Doubling,
        Fault::Xor,
        Fault::Xor3,
        Fault::Or,
        Fault::IsZero,
        Fault::NeverZero,
        Fault::Store,
    ];

    #[derive(Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Faulty(Fault);

    impl Kernels {
        pub(crate) fn faulty(fault: Fault) -> Kernels {
            Kernels(Choice::Faulty(Faulty(fault)))
        }
    }

    type Vector = <Portable as Isa>::Vector;

    impl Isa for Faulty {
        type Vector = Vector;
        type Factor = (u8, <Portable as Isa>::Factor);
        const BYTES: usize = Portable::BYTES;
        const ADDS_THREE: bool = true;

        fn zero(self) -> Vector {
            Portable.zero()
        }

        fn load(self, bytes: &[u8]) -> Vector {
            Portable.load(bytes)
        }

        fn store(self, bytes: &mut [u8], mut vector: Vector) {
            vector[15] ^= u8::from(self.0 == Fault::Store);
            Portable.store(bytes, vector);
        }

        fn xor(self, a: Vector, b: Vector) -> Vector {
            if self.0 == Fault::Xor { Portable.or(a, b) } else { Portable.xor(a, b) }
        }

        fn xor3(self, a: Vector, b: Vector, c: Vector) -> Vector {
            let sum = Portable.xor(a, b);
            if self.0 == Fault::Xor3 { sum } else { Portable.xor(sum, c) }
        }

        fn or(self, a: Vector, b: Vector) -> Vector {
            if self.0 == Fault::Or { a } else { Portable.or(a, b) }
        }

        fn is_zero(self, vector: Vector) -> bool {
            match self.0 {
                Fault::IsZero => true,
                Fault::NeverZero => false,
                _ => Portable.is_zero(vector),
            }
        }

        fn offset(self) -> Vector {
            Portable.offset()
        }

        fn horner(self, q: Vector, d: Vector) -> Vector {
            let broken = self.0 == Fault::Doubling;
            if broken { Portable.xor(q.map(|q| q << 1), d) } else { Portable.horner(q, d) }
        }

        fn factor(self, constant: u8) -> Self::Factor {
            (constant, Portable.factor(constant))
        }

        fn mul(self, factor: Self::Factor, vector: Vector) -> Vector {
            match (self.0, factor.0) {
                (Fault::WrongField, c) => vector.map(|a| aes_mul(c, a)),
                (Fault::OneProduct, 0xb7) => {
                    let right = Portable.mul(factor.1, vector);
                    std::array::from_fn(|i| right[i] ^ u8::from(vector[i] == 0x9e))
                }
                _ => Portable.mul(factor.1, vector),
            }
        }

        fn run<O: Op>(self, op: O) -> O::Output {
            op.vector(self)
        }
    }

    fn aes_mul(c: u8, mut a: u8) -> u8 {
        let mut product = 0;
        for bit in 0..8 {
            product ^= if c >> bit & 1 == 1 { a } else { 0 };
            a = (a << 1) ^ if a & 0x80 != 0 { 0x1b } else { 0 };
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    #[test]
    fn names_find_their_kernels() {
        for name in Kernels::NAMES {
            match Kernels::by_name(name) {
                Ok(kernels) => assert_eq!(kernels.name(), name),
                Err(Unavailable::Wrong) => panic!("{name} computes wrong results"),
                Err(problem) => println!("{name} skipped: {problem}"),
            }
        }
        assert_eq!(Kernels::by_name("abacus"), Err(Unavailable::UnknownName));
        assert_eq!(Kernels::by_name("faulty"), Err(Unavailable::UnknownName));
    }

    #[test]
    fn the_best_is_the_last_available() {
        assert_eq!(Kernels::available().last(), Some(Kernels::best()));
        assert!(Kernels::available().any(|kernels| kernels == Kernels::reference()));
        assert!(Kernels::available().any(|kernels| kernels == Kernels::portable()));
    }

    #[test]
    fn kernels_that_compute_wrong_results_are_refused() {
        for fault in faulty::FAULTS {
            let passed = OnceLock::new();
            let kernels = Kernels::faulty(fault);
            assert_eq!(kernels.admitted(&passed), Err(Unavailable::Wrong), "{fault:?}");
            // The verdict is remembered.
            assert_eq!(passed.get(), Some(&false));
            assert_eq!(kernels.admitted(&passed), Err(Unavailable::Wrong), "{fault:?}");
        }
    }
}
