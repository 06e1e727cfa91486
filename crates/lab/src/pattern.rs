//! What the benchmarks write, so that every byte read can be checked.
//!
//! The content of a unit (4 KiB, or a sector where blocks are smaller) is a function of its place
//! in the array and of how often it has been written:
//!
//! ```text
//! | place ^ salt (8) | version (8) | a window of a pseudo-random pool, by place and version |
//! ```
//! So a block in the wrong place, an old block, and a single wrong bit are all seen, at the speed
//! of a copy and a comparison. Neighbouring units differ everywhere, so that parity mistakes cannot
//! cancel out.
//!
//! Invariant: filling and checking agree on every byte. Pure.

use crate::stats::SplitMix64;

/// Windows begin at multiples of 8 bytes in the first 32 KiB of the pool.
const WINDOWS: u64 = 4096;
const STAMP_BYTES: usize = 16;

/// The pool, and the seed that makes a run's data its own.
pub struct Pattern {
    pool: Vec<u8>,
    salt: u64,
    unit_bytes: usize,
}

/// Where a check failed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Unit, counted from the start of the array.
    pub unit: u64,
    /// First wrong byte inside it.
    pub byte: usize,
}

impl Pattern {
    /// Data of units of `unit_bytes` bytes, for `seed`.
    ///
    /// # Panics
    /// When a unit has no room for its stamp.
    pub fn new(seed: u64, unit_bytes: usize) -> Pattern {
        assert!(unit_bytes > STAMP_BYTES && unit_bytes.is_multiple_of(8));
        let mut random = SplitMix64(seed);
        let words = WINDOWS as usize + unit_bytes / 8;
        let pool = (0..words).flat_map(|_| random.draw().to_le_bytes()).collect();
        Pattern { pool, salt: random.draw(), unit_bytes }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Fills `out` with unit after unit from `first`; `version` says how often each was written.
    pub fn fill(&self, out: &mut [u8], first: u64, version: impl Fn(u64) -> u32) {
        for (unit, bytes) in (first..).zip(out.chunks_exact_mut(self.unit_bytes)) {
            let version = version(unit);
            bytes.copy_from_slice(self.window(unit, version));
            bytes[..STAMP_BYTES].copy_from_slice(&self.stamp(unit, version));
        }
    }

    /// Checks unit after unit.
    ///
    /// # Errors
    /// The first byte that is not what was written last.
    pub fn check(
        &self,
        bytes: &[u8],
        first: u64,
        version: impl Fn(u64) -> u32,
    ) -> Result<(), Mismatch> {
        for (unit, bytes) in (first..).zip(bytes.chunks_exact(self.unit_bytes)) {
            let version = version(unit);
            let (stamp, window) = (self.stamp(unit, version), self.window(unit, version));
            let good =
                bytes[..STAMP_BYTES] == stamp && bytes[STAMP_BYTES..] == window[STAMP_BYTES..];
            if !good {
                let wanted = stamp.iter().chain(&window[STAMP_BYTES..]);
                let byte = bytes.iter().zip(wanted).position(|(got, wanted)| got != wanted);
                return Err(Mismatch { unit, byte: byte.unwrap_or(0) });
            }
        }
        Ok(())
    }

    fn window(&self, unit: u64, version: u32) -> &[u8] {
        let mixed =
            (unit ^ u64::from(version) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.salt;
        let start = ((mixed >> 32) % WINDOWS) as usize * 8;
        &self.pool[start..start + self.unit_bytes]
    }

    fn stamp(&self, unit: u64, version: u32) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&(unit ^ self.salt).to_le_bytes());
        stamp[8..].copy_from_slice(&u64::from(version).to_le_bytes());
        stamp
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sees_a_wrong_bit_a_wrong_place_and_an_old_version() {
        let pattern = Pattern::new(1, 4096);
        let mut bytes = vec![0; 4 * 4096];
        pattern.fill(&mut bytes, 10, |unit| unit as u32);
        assert_eq!(pattern.check(&bytes, 10, |unit| unit as u32), Ok(()));
        for byte in [0, 15, 16, 4095] {
            bytes[2 * 4096 + byte] ^= 0x40;
            let seen = pattern.check(&bytes, 10, |unit| unit as u32);
            assert_eq!(seen, Err(Mismatch { unit: 12, byte }));
            bytes[2 * 4096 + byte] ^= 0x40;
        }
        assert!(pattern.check(&bytes, 11, |unit| unit as u32 - 1).is_err());
        assert!(pattern.check(&bytes, 10, |_| 10).is_err());
        assert!(Pattern::new(2, 4096).check(&bytes, 10, |unit| unit as u32).is_err());
    }

    #[test]
    fn neighbours_differ_nearly_everywhere() {
        let pattern = Pattern::new(7, 512);
        let mut bytes = vec![0; 64 * 512];
        pattern.fill(&mut bytes, 0, |_| 1);
        for (a, b) in bytes.chunks(512).zip(bytes.chunks(512).skip(1)) {
            let same = a[16..].iter().zip(&b[16..]).filter(|(a, b)| a == b).count();
            assert!(same < 30, "{same} of 496 bytes are the same by chance");
        }
    }

    proptest! {
        /// Any bit, any unit, any version: found where it is.
        #[test]
        fn no_flipped_bit_escapes(
            seed: u64, first in 0u64..1 << 50, version: u32, at in 0usize..8 * 4096, sector: bool,
        ) {
            let unit = if sector { 512 } else { 4096 };
            let pattern = Pattern::new(seed, unit);
            let mut bytes = vec![0; 2 * unit];
            pattern.fill(&mut bytes, first, |_| version);
            prop_assert_eq!(pattern.check(&bytes, first, |_| version), Ok(()));
            let at = at % (8 * bytes.len());
            bytes[at / 8] ^= 1 << (at % 8);
            let wanted = Mismatch { unit: first + (at / 8 / unit) as u64, byte: at / 8 % unit };
            prop_assert_eq!(pattern.check(&bytes, first, |_| version), Err(wanted));
        }

        /// A write that tore at a sector is seen, whichever version came before it.
        #[test]
        fn no_torn_unit_escapes(seed: u64, unit: u32, version in 2u32.., sectors in 1usize..8) {
            let (pattern, unit) = (Pattern::new(seed, 4096), u64::from(unit));
            let (mut old, mut new) = (vec![0; 4096], vec![0; 4096]);
            pattern.fill(&mut old, unit, |_| version - 1);
            pattern.fill(&mut new, unit, |_| version);
            // Windows repeat by chance, once in 4096 times; then there is nothing to see.
            prop_assume!(old[16..] != new[16..]);
            new[sectors * 512..].copy_from_slice(&old[sectors * 512..]);
            prop_assert!(pattern.check(&new, unit, |_| version).is_err());
            prop_assert!(pattern.check(&old, unit, |_| version).is_err());
        }
    }
}
