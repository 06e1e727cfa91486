//! The data pattern of the benchmarks, by which every byte read can be checked.
//!
//! The content of a unit (4 KiB, or a sector where blocks are smaller) is a function of its address
//! in the array and of its version, the number of its writes:
//!
//! ```text
//! | place ^ salt (8) | version (8) | a window of a pseudo-random pool ^ key of place and version |
//! ```
//! So a misplaced block, a stale block, and a single wrong bit are all detected, at the speed of a
//! copy and a comparison. Neighbouring units differ everywhere, so that parity errors cannot cancel
//! out; and no two units have bytes in common, so that layers below (zfs, btrfs, a drive) can
//! neither compress nor deduplicate them.
//!
//! Invariant: filling and checking agree on every byte. Pure.

use spec::rng::SplitMix64;

/// Windows begin at multiples of 8 bytes in the first 32 KiB of the pool.
const WINDOWS: u64 = 4096;
const STAMP_BYTES: usize = 16;

/// Generates and checks the data of a run, from its seed.
pub struct Pattern {
    pool: Vec<u8>,
    salt: u64,
    unit_bytes: usize,
}

/// Position of the first wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscompare {
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

    /// Fills `out` with unit after unit from `first`; `version` returns the number of writes of
    /// each.
    pub fn fill(&self, out: &mut [u8], first: u64, version: impl Fn(u64) -> u32) {
        for (unit, bytes) in (first..).zip(out.chunks_exact_mut(self.unit_bytes)) {
            let version = version(unit);
            copy_with_key(bytes, self.window(unit, version), key(self.salt, unit, version));
            bytes[..STAMP_BYTES].copy_from_slice(&self.stamp(unit, version));
        }
    }

    /// Checks unit after unit.
    ///
    /// # Errors
    /// The first byte that differs from the last write.
    pub fn check(
        &self,
        bytes: &[u8],
        first: u64,
        version: impl Fn(u64) -> u32,
    ) -> Result<(), Miscompare> {
        for (unit, bytes) in (first..).zip(bytes.chunks_exact(self.unit_bytes)) {
            let version = version(unit);
            let (stamp, window) = (self.stamp(unit, version), self.window(unit, version));
            let key = key(self.salt, unit, version);
            let body = (&bytes[STAMP_BYTES..], &window[STAMP_BYTES..]);
            if bytes[..STAMP_BYTES] != stamp || !same_with_key(body.0, body.1, key) {
                let mut wanted = vec![0; bytes.len()];
                copy_with_key(&mut wanted, window, key);
                wanted[..STAMP_BYTES].copy_from_slice(&stamp);
                let byte = bytes.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
                return Err(Miscompare { unit, byte: byte.unwrap_or(0) });
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

/// A key per address and version: bytes of two units are equal only by chance.
pub(crate) fn key(salt: u64, place: u64, version: u32) -> u64 {
    SplitMix64(place ^ salt.rotate_left(32) ^ u64::from(version) << 32).draw()
}

/// Copies words of eight bytes, each with the key.
pub(crate) fn copy_with_key(to: &mut [u8], from: &[u8], key: u64) {
    let key = key.to_ne_bytes();
    let (words, rest) = to.as_chunks_mut::<8>();
    let whole = words.len() * 8;
    for (to, from) in words.iter_mut().zip(from.as_chunks::<8>().0) {
        *to = (u64::from_ne_bytes(*from) ^ u64::from_ne_bytes(key)).to_ne_bytes();
    }
    let from = from.get(whole..).unwrap_or_default();
    rest.iter_mut().zip(from).zip(key).for_each(|((to, from), key)| *to = from ^ key);
}

/// Whether `copy_with_key` has made `bytes` of `from`.
pub(crate) fn same_with_key(bytes: &[u8], from: &[u8], key: u64) -> bool {
    let mut differs = 0;
    let (words, rest) = bytes.as_chunks::<8>();
    for (got, from) in words.iter().zip(from.as_chunks::<8>().0) {
        differs |= u64::from_ne_bytes(*got) ^ u64::from_ne_bytes(*from) ^ key;
    }
    let from = from.get(words.len() * 8..).unwrap_or_default();
    let rest = rest.iter().zip(from).zip(key.to_ne_bytes());
    differs == 0 && rest.into_iter().all(|((got, from), key)| *got == from ^ key)
}

#[cfg(test)]
pub(crate) mod tests {
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
            assert_eq!(seen, Err(Miscompare { unit: 12, byte }));
            bytes[2 * 4096 + byte] ^= 0x40;
        }
        assert!(pattern.check(&bytes, 11, |unit| unit as u32 - 1).is_err());
        assert!(pattern.check(&bytes, 10, |_| 10).is_err());
        assert!(Pattern::new(2, 4096).check(&bytes, 10, |unit| unit as u32).is_err());
    }

    /// Share of places where eight bytes begin that were there before: what LZ77 of any window, and
    /// deduplication, live on.
    pub(crate) fn repeated_share(bytes: &[u8]) -> f64 {
        let mut seen = std::collections::HashSet::new();
        let mut repeated = 0;
        for at in 0..bytes.len() - 8 {
            repeated += usize::from(!seen.insert(&bytes[at..at + 8]));
        }
        repeated as f64 / bytes.len() as f64
    }

    /// Several times the pool, written twice.
    #[test]
    fn nothing_in_a_megabyte_is_there_twice() {
        for unit in [512, 4096] {
            let pattern = Pattern::new(3, unit);
            let mut bytes = vec![0; 1 << 20];
            let (once, again) = bytes.split_at_mut(1 << 19);
            pattern.fill(once, 0, |_| 1);
            pattern.fill(again, 0, |_| 2);
            // Stamps alone: the place without its low bytes, and the version.
            let share = repeated_share(&bytes);
            assert!(share <= 16.0 / unit as f64, "{unit}: {share}");
        }
    }

    #[test]
    fn odd_lengths_are_copied_and_compared_to_their_ends() {
        let from: Vec<u8> = (0..41).collect();
        for len in 0..=41 {
            let mut to = vec![0; len];
            copy_with_key(&mut to, &from, 0x0102_0304_0506_0708);
            assert!(same_with_key(&to, &from, 0x0102_0304_0506_0708), "{len}");
            for at in 0..len {
                to[at] ^= 1;
                assert!(!same_with_key(&to, &from, 0x0102_0304_0506_0708), "{len} {at}");
                to[at] ^= 1;
            }
        }
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
            let wanted = Miscompare { unit: first + (at / 8 / unit) as u64, byte: at / 8 % unit };
            prop_assert_eq!(pattern.check(&bytes, first, |_| version), Err(wanted));
        }

        /// A write that tore at a sector is seen, whichever version came before it.
        #[test]
        fn no_torn_unit_escapes(seed: u64, unit: u32, version in 2u32.., sectors in 1usize..8) {
            let (pattern, unit) = (Pattern::new(seed, 4096), u64::from(unit));
            let (mut old, mut new) = (vec![0; 4096], vec![0; 4096]);
            pattern.fill(&mut old, unit, |_| version - 1);
            pattern.fill(&mut new, unit, |_| version);
            new[sectors * 512..].copy_from_slice(&old[sectors * 512..]);
            prop_assert!(pattern.check(&new, unit, |_| version).is_err());
            prop_assert!(pattern.check(&old, unit, |_| version).is_err());
        }
    }
}
