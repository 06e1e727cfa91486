//! The data pattern of workloads and programs, by which every byte read can be checked.
//!
//! The content of a unit (256 bytes to 4 KiB) is a function of its place and of its version:
//!
//! ```text
//! a unit after a full write:
//! | place ^ salt (8) | version (8) | a window of a pseudo-random pool ^ key of place and fill |
//!
//! after a rewrite, which reads a unit and changes a part of it:
//! | place ^ salt (8) | version (8) | unchanged ... | word ^ rewrites | unchanged ... |
//!                                                  ^ begin of every further sector
//! ```
//! So a misplaced block, a stale block, a torn block and a single wrong bit are all detected, at
//! the speed of a copy and a comparison. Neighbouring units differ everywhere, so that parity
//! errors cannot cancel out; and no two units have bytes in common, so that layers below (zfs,
//! btrfs, a drive) can neither compress nor deduplicate them.
//!
//! A rewrite changes one word of each sector, as the tools that it stands for (bonnie++) change a
//! byte of the block that they have read: new contents would add a pass over the buffer to what is
//! timed. A device stores whole sectors, so a rewrite of which only a part was stored is detected.
//!
//! Invariant: filling and checking agree on every byte. Pure.

use md::SECTOR_BYTES;
use spec::rng::SplitMix64;

/// Windows begin at multiples of 8 bytes in the first 32 KiB of the pool.
const WINDOWS: u64 = 4096;
const STAMP_BYTES: usize = 16;
const SECTOR: usize = SECTOR_BYTES as usize;

/// The number of writes of a unit, in one number that grows with each:
///
/// ```text
/// bits   29 ... 4   3 ... 0
///          fills    rewrites since the last fill
/// ```
/// 0: never written. After 15 rewrites the next one is a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u32);

impl Version {
    /// Of a unit that was never written.
    pub const UNWRITTEN: Version = Version(0);
    /// Of a unit that was written once.
    pub const FIRST: Version = Version(1 << Version::REWRITE_BITS);
    /// Bits of a version; more in the same word are the map's.
    pub const BITS: u32 = 30;
    const REWRITE_BITS: u32 = 4;
    const REWRITES: u32 = (1 << Version::REWRITE_BITS) - 1;

    /// The version with this number.
    pub(super) fn from_bits(bits: u32) -> Version {
        Version(bits)
    }

    /// The number of a version.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    /// The version after a write of the whole unit.
    pub fn next_fill(self) -> Version {
        Version(self.0 | Version::REWRITES).successor()
    }

    /// The version after a rewrite. If it is the first of a fill, the unit must be filled.
    pub fn next_rewrite(self) -> Version {
        match self.fills() {
            0 => Version::FIRST,
            _ => self.successor(),
        }
    }

    /// 0 is reserved for unwritten units.
    fn successor(self) -> Version {
        match self.0 + 1 {
            next if next >> Version::BITS == 0 => Version(next),
            _ => Version::FIRST,
        }
    }

    fn fills(self) -> u32 {
        self.0 >> Version::REWRITE_BITS
    }

    fn rewrites(self) -> u32 {
        self.0 & Version::REWRITES
    }
}

/// Generates and checks the data of a run, from its seed.
pub struct DataPattern {
    pool: Vec<u8>,
    salt: u64,
    unit_bytes: usize,
}

impl DataPattern {
    /// Data of units of `unit_bytes` bytes, for `seed`.
    ///
    /// # Panics
    /// When a unit has no room for its stamp.
    pub fn new(seed: u64, unit_bytes: usize) -> DataPattern {
        assert!(unit_bytes > STAMP_BYTES && unit_bytes.is_power_of_two());
        let mut random = SplitMix64(seed);
        let words = WINDOWS as usize + unit_bytes / 8;
        let pool = (0..words).flat_map(|_| random.draw().to_le_bytes()).collect();
        DataPattern { pool, salt: random.draw(), unit_bytes }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Fills `out` with the units from `place` on, the last one possibly a part of a unit;
    /// `versions` are theirs.
    pub fn fill(&self, out: &mut [u8], place: u64, versions: impl Iterator<Item = Version>) {
        let units = out.chunks_mut(self.unit_bytes);
        for ((bytes, place), version) in units.zip(place..).zip(versions) {
            self.fill_unit(bytes, place, version);
        }
    }

    /// Turns units that were filled into those of `versions`: changes a word of each sector, or all
    /// of a unit whose version is a fill's.
    pub fn rewrite(&self, out: &mut [u8], place: u64, versions: impl Iterator<Item = Version>) {
        let units = out.chunks_mut(self.unit_bytes);
        for ((bytes, place), version) in units.zip(place..).zip(versions) {
            match version.rewrites() {
                0 => self.fill_unit(bytes, place, version),
                _ => self.mark(bytes, place, version),
            }
        }
    }

    /// Checks the units from `place` on.
    ///
    /// # Errors
    /// The offset of the first byte that differs from the last write.
    pub fn check(
        &self,
        bytes: &[u8],
        place: u64,
        versions: impl Iterator<Item = Version>,
    ) -> Result<(), usize> {
        let units = bytes.chunks(self.unit_bytes).zip(place..).zip(versions);
        for (index, ((bytes, place), version)) in units.enumerate() {
            if !self.is_unit(bytes, place, version) {
                let mut wanted = vec![0; bytes.len()];
                self.fill_unit(&mut wanted, place, version);
                let byte = bytes.iter().zip(&wanted).position(|(got, wanted)| got != wanted);
                return Err(index * self.unit_bytes + byte.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// The version in the stamp of a unit, if it is one of this place.
    pub fn stamped_version(&self, unit: &[u8], place: u64) -> Option<Version> {
        let (words, _) = unit.as_chunks::<8>();
        let [found, version, ..] = words else { return None };
        let version = u32::try_from(u64::from_le_bytes(*version)).ok()?;
        (u64::from_le_bytes(*found) == place ^ self.salt).then_some(Version(version))
    }

    #[inline]
    fn fill_unit(&self, bytes: &mut [u8], place: u64, version: Version) {
        let (window, key) = self.body(place, version);
        copy_with_key(bytes, window, key);
        match version.rewrites() {
            0 => self.stamp(bytes, place, version),
            _ => self.mark(bytes, place, version),
        }
    }

    /// What a rewrite changes of a unit.
    fn mark(&self, bytes: &mut [u8], place: u64, version: Version) {
        self.stamp(bytes, place, version);
        let (window, key) = self.body(place, version);
        let key = key ^ u64::from(version.rewrites());
        let sectors = bytes.chunks_mut(SECTOR).zip(window.chunks(SECTOR)).skip(1);
        for (sector, from) in sectors {
            let word = sector.len().min(8);
            copy_with_key(&mut sector[..word], &from[..word], key);
        }
    }

    #[inline]
    fn stamp(&self, bytes: &mut [u8], place: u64, version: Version) {
        let stamped = bytes.len().min(STAMP_BYTES);
        bytes[..stamped].copy_from_slice(&self.stamp_of(place, version)[..stamped]);
    }

    #[inline]
    fn is_unit(&self, bytes: &[u8], place: u64, version: Version) -> bool {
        let (stamped, rest) = bytes.split_at(bytes.len().min(STAMP_BYTES));
        if stamped != &self.stamp_of(place, version)[..stamped.len()] {
            return false;
        }
        if version.rewrites() == 0 {
            let (window, key) = self.body(place, version);
            return same_with_key(rest, &window[stamped.len()..], key);
        }
        // Rare, and outside the timed part: no loop of its own.
        let mut wanted = vec![0; bytes.len()];
        self.fill_unit(&mut wanted, place, version);
        wanted == bytes
    }

    fn stamp_of(&self, place: u64, version: Version) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&(place ^ self.salt).to_le_bytes());
        stamp[8..].copy_from_slice(&u64::from(version.0).to_le_bytes());
        stamp
    }

    /// A window of the pool, and the key of its words: the fill-th number of a generator that the
    /// place seeds. Bytes of two units, or of two fills, are equal only by chance.
    #[inline]
    fn body(&self, place: u64, version: Version) -> (&[u8], u64) {
        let fill = u64::from(version.fills()).wrapping_mul(SplitMix64::STEP);
        let key = SplitMix64((place ^ self.salt.rotate_left(32)).wrapping_add(fill)).draw();
        let start = (key >> 32) % WINDOWS * 8;
        (&self.pool[start as usize..][..self.unit_bytes], key)
    }
}

/// Copies words of eight bytes, each with the key.
fn copy_with_key(to: &mut [u8], from: &[u8], key: u64) {
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
fn same_with_key(bytes: &[u8], from: &[u8], key: u64) -> bool {
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
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The version after some fills and rewrites.
    fn version(fills: u32, rewrites: u32) -> Version {
        Version(fills << Version::REWRITE_BITS | rewrites)
    }

    fn unit_of(pattern: &DataPattern, place: u64, version: Version) -> Vec<u8> {
        let mut unit = vec![0; pattern.unit_bytes()];
        pattern.fill(&mut unit, place, [version].into_iter());
        unit
    }

    #[test]
    fn sees_a_wrong_bit_a_wrong_place_and_an_old_version() {
        let pattern = DataPattern::new(1, 4096);
        let mut bytes = vec![0; 4 * 4096];
        let versions = || (10..).map(|unit| version(unit, 0));
        pattern.fill(&mut bytes, 10, versions());
        assert_eq!(pattern.check(&bytes, 10, versions()), Ok(()));
        for byte in [0, 15, 16, 4095] {
            let at = 2 * 4096 + byte;
            bytes[at] ^= 0x40;
            assert_eq!(pattern.check(&bytes, 10, versions()), Err(at));
            bytes[at] ^= 0x40;
        }
        assert!(pattern.check(&bytes, 11, versions()).is_err());
        assert!(pattern.check(&bytes, 10, (9..).map(|unit| version(unit, 0))).is_err());
        assert!(DataPattern::new(2, 4096).check(&bytes, 10, versions()).is_err());
    }

    #[test]
    fn every_wrong_byte_of_a_rewritten_unit_is_found() {
        for unit_bytes in [256, 512, 4096] {
            let pattern = DataPattern::new(1, unit_bytes);
            let mut unit = unit_of(&pattern, 7, version(1, 0));
            pattern.rewrite(&mut unit, 7, [version(1, 1)].into_iter());
            let check =
                |unit: &[u8], place, version| pattern.check(unit, place, [version].into_iter());
            assert_eq!(check(&unit, 7, version(1, 1)), Ok(()));
            assert_eq!(pattern.stamped_version(&unit, 7), Some(version(1, 1)));
            assert_eq!(pattern.stamped_version(&unit, 8), None);
            for at in 0..unit_bytes {
                unit[at] ^= 0x10;
                assert_eq!(check(&unit, 7, version(1, 1)), Err(at));
                unit[at] ^= 0x10;
            }
            for (place, other) in [(8, version(1, 1)), (7, version(1, 0)), (7, version(2, 1))] {
                assert!(check(&unit, place, other).is_err());
            }
            // A part of a unit, at the end of a file.
            assert_eq!(check(&unit[..100], 7, version(1, 1)), Ok(()));
            assert!(check(&unit[..100], 7, version(1, 2)).is_err());
        }
    }

    #[test]
    fn versions_grow_and_a_fill_follows_the_last_rewrite() {
        let first = Version::UNWRITTEN.next_fill();
        assert_eq!((first, first.next_fill()), (Version::FIRST, version(2, 0)));
        assert_eq!(Version::UNWRITTEN.next_rewrite(), Version::FIRST, "there is nothing to keep");
        assert_eq!(
            (first.next_rewrite(), version(1, 3).next_fill()),
            (version(1, 1), version(2, 0))
        );
        assert_eq!(version(1, 15).next_rewrite(), version(2, 0));
        let last = Version((1 << Version::BITS) - 1);
        assert_eq!((last.next_fill(), last.next_rewrite()), (Version::FIRST, Version::FIRST));
        // A rewrite that is a fill gives the unit new contents.
        let pattern = DataPattern::new(4, 1024);
        let mut unit = unit_of(&pattern, 3, version(1, 15));
        pattern.rewrite(&mut unit, 3, [version(2, 0)].into_iter());
        assert_eq!(unit, unit_of(&pattern, 3, version(2, 0)));
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
            let pattern = DataPattern::new(3, unit);
            let mut bytes = vec![0; 1 << 20];
            let (once, again) = bytes.split_at_mut(1 << 19);
            pattern.fill(once, 0, std::iter::repeat(version(1, 0)));
            pattern.fill(again, 0, std::iter::repeat(version(2, 0)));
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
        let pattern = DataPattern::new(7, 512);
        let mut bytes = vec![0; 64 * 512];
        pattern.fill(&mut bytes, 0, std::iter::repeat(version(1, 0)));
        for (a, b) in bytes.chunks(512).zip(bytes.chunks(512).skip(1)) {
            let same = a[16..].iter().zip(&b[16..]).filter(|(a, b)| a == b).count();
            assert!(same < 30, "{same} of 496 bytes are the same by chance");
        }
    }

    proptest! {
        /// Any bit, any unit, any version: found where it is.
        #[test]
        fn no_flipped_bit_escapes(
            seed: u64, first in 0u64..1 << 50, bits in 0u32..1 << Version::BITS,
            at in 0usize..8 * 4096, sector: bool,
        ) {
            let unit = if sector { 512 } else { 4096 };
            let pattern = DataPattern::new(seed, unit);
            let mut bytes = vec![0; 2 * unit];
            let versions = || std::iter::repeat(Version(bits));
            pattern.fill(&mut bytes, first, versions());
            prop_assert_eq!(pattern.check(&bytes, first, versions()), Ok(()));
            let at = at % (8 * bytes.len());
            bytes[at / 8] ^= 1 << (at % 8);
            prop_assert_eq!(pattern.check(&bytes, first, versions()), Err(at / 8));
        }

        /// A write or rewrite that tore at a sector is seen, whichever version came before it.
        #[test]
        fn no_torn_unit_escapes(
            seed: u64, place: u32, fills in 1u32..1 << 20, rewrites in 0u32..16, rewrite: bool,
            sectors in 1usize..8,
        ) {
            let (pattern, place) = (DataPattern::new(seed, 4096), u64::from(place));
            let before = version(fills, rewrites);
            let after = if rewrite { before.next_rewrite() } else { before.next_fill() };
            let old = unit_of(&pattern, place, before);
            let mut new = old.clone();
            pattern.rewrite(&mut new, place, [after].into_iter());
            let check = |unit: &[u8]| pattern.check(unit, place, [after].into_iter());
            prop_assert_eq!(check(&new), Ok(()));
            let torn = |first: &[u8], last: &[u8]| {
                [&first[..sectors * 512], &last[sectors * 512..]].concat()
            };
            prop_assert!(check(&torn(&new, &old)).is_err());
            prop_assert!(check(&torn(&old, &new)).is_err());
            prop_assert!(check(&old).is_err());
        }
    }
}
