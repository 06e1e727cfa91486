//! The data that programs write, and its verification.
//!
//! ```text
//! a unit (256 bytes to 4 KiB):  | file and place (8) | version (8) | random bytes ^ key of place |
//! ```
//! The tools check one word when they read, to keep the timed part cheap. So does this module;
//! every byte is compared afterwards, outside the timed part, which finds misplaced units, stale
//! units and any wrong bit. The tools write the same buffer repeatedly, which a compressing file
//! system (zfs, btrfs) hardly stores at all; here each unit has different bytes, which costs a pass
//! over the buffer. A rewrite changes the version only.
//!
//! Invariant: a unit's version in the [`VersionMap`] is that of its last completed write. A reader
//! that races with a writer accepts the versions before and after the write.

use std::sync::atomic::{AtomicU32, Ordering};

use spec::rng::SplitMix64;

use crate::pattern::{copy_with_key, key, same_with_key};

const STAMP_BYTES: usize = 16;
/// Set in the map while a write of the unit is in flight.
const BUSY: u32 = 1 << 31;
/// Set when the file was emptied after the unit was written.
const GONE: u32 = 1 << 30;

/// Position of data that differs from the written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscompare {
    /// Number of the file.
    pub file: u32,
    /// Byte offset in the file.
    pub at: u64,
}

/// Generates and verifies units.
pub struct DataPattern {
    unit: Vec<u8>,
    salt: u64,
}

impl DataPattern {
    /// Units of `unit_bytes`, for `seed`.
    ///
    /// # Panics
    /// When a unit has no room for its stamp.
    pub fn new(seed: u64, unit_bytes: u64) -> DataPattern {
        let unit_bytes = unit_bytes as usize;
        assert!(unit_bytes > STAMP_BYTES && unit_bytes.is_multiple_of(8));
        let mut random = SplitMix64(seed);
        let salt = random.draw();
        let unit = (0..unit_bytes / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
        DataPattern { unit, salt }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> u64 {
        self.unit.len() as u64
    }

    /// Generates a unit.
    pub fn fill(&self, unit: &mut [u8], file: u32, number: u64, version: u32) {
        copy_with_key(unit, &self.unit, self.key(file, number));
        let stamped = unit.len().min(STAMP_BYTES);
        unit[..stamped].copy_from_slice(&self.stamp_of(file, number, version)[..stamped]);
    }

    /// Turns a unit of any version into `version`.
    pub fn stamp(&self, unit: &mut [u8], file: u32, number: u64, version: u32) {
        unit[..STAMP_BYTES].copy_from_slice(&self.stamp_of(file, number, version));
    }

    /// The version of a unit, if it is the one of this place.
    pub fn version(&self, unit: &[u8], file: u32, number: u64) -> Option<u32> {
        let word = |at: usize| {
            let bytes = unit.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let (place, version) = (word(0)?, word(8)?);
        if place != self.place(file, number) {
            return None;
        }
        u32::try_from(version ^ self.salt.rotate_left(17)).ok()
    }

    /// Compares all bytes of a unit with a version.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(
        &self,
        unit: &[u8],
        file: u32,
        number: u64,
        version: u32,
    ) -> Result<(), Miscompare> {
        let stamp = self.stamp_of(file, number, version);
        let stamped = unit.len().min(STAMP_BYTES);
        let rest = &self.unit[stamped..unit.len()];
        let key = self.key(file, number);
        if unit[..stamped] == stamp[..stamped] && same_with_key(&unit[stamped..], rest, key) {
            return Ok(());
        }
        let mut wanted = vec![0; unit.len()];
        self.fill(&mut wanted, file, number, version);
        let byte = unit.iter().zip(&wanted).position(|(got, wanted)| got != wanted).unwrap_or(0);
        Err(Miscompare { file, at: number * self.unit_bytes() + byte as u64 })
    }

    fn place(&self, file: u32, number: u64) -> u64 {
        (u64::from(file) << 40 ^ number) ^ self.salt
    }

    fn key(&self, file: u32, number: u64) -> u64 {
        key(self.salt, self.place(file, number), 0)
    }

    fn stamp_of(&self, file: u32, number: u64, version: u32) -> [u8; STAMP_BYTES] {
        let mut stamp = [0; STAMP_BYTES];
        stamp[..8].copy_from_slice(&self.place(file, number).to_le_bytes());
        let version = u64::from(version) ^ self.salt.rotate_left(17);
        stamp[8..].copy_from_slice(&version.to_le_bytes());
        stamp
    }
}

/// The version of every unit of every file; 0: never written.
pub struct VersionMap {
    files: Vec<Vec<AtomicU32>>,
    unit_bytes: u64,
}

impl VersionMap {
    /// An empty map for files of these sizes, in bytes.
    pub fn new(files: &[u64], unit_bytes: u64) -> VersionMap {
        let versions = |bytes: &u64| {
            let units = bytes.div_ceil(unit_bytes);
            (0..units).map(|_| AtomicU32::new(0)).collect()
        };
        VersionMap { files: files.iter().map(versions).collect(), unit_bytes }
    }

    /// Memory of a map, bytes.
    pub fn needs_bytes(files: &[u64], unit_bytes: u64) -> u64 {
        files.iter().map(|bytes| bytes.div_ceil(unit_bytes) * 4).sum()
    }

    /// The units of a range.
    pub fn units(&self, at: u64, len: u64) -> std::ops::Range<u64> {
        at / self.unit_bytes..(at + len).div_ceil(self.unit_bytes)
    }

    /// Starts a write of a unit and returns the version to be written. If several workers may write
    /// it (`shared`), their writes are serialized.
    pub fn begin_write(&self, file: u32, unit: u64, shared: bool) -> u32 {
        let version = self.at(file, unit);
        if !shared {
            return next(version.load(Ordering::Relaxed));
        }
        loop {
            let before = version.fetch_or(BUSY, Ordering::Acquire);
            if before & BUSY == 0 {
                return next(before);
            }
            std::thread::yield_now();
        }
    }

    /// As [`VersionMap::begin_write`]; `None` while another write of the unit is in flight.
    pub fn try_begin_write(&self, file: u32, unit: u64) -> Option<u32> {
        let before = self.at(file, unit).fetch_or(BUSY, Ordering::Acquire);
        (before & BUSY == 0).then(|| next(before))
    }

    /// Cancels a write that was started: the unit is unchanged.
    pub fn give_up(&self, file: u32, unit: u64) {
        self.at(file, unit).fetch_and(!BUSY, Ordering::Release);
    }

    /// Completes a write: `version` was stored.
    pub fn end_write(&self, file: u32, unit: u64, version: u32) {
        self.at(file, unit).store(version, Ordering::Release);
    }

    /// The oldest version that a read started now may return; `None` if the unit is unwritten or
    /// its file was truncated. Must be called before the read.
    pub fn before_read(&self, file: u32, unit: u64) -> Option<u32> {
        let version = self.at(file, unit).load(Ordering::Acquire) & !BUSY;
        (version != 0 && version & GONE == 0).then_some(version)
    }

    /// Whether a read started at `before` may return `version`.
    pub fn may_be(&self, file: u32, unit: u64, before: u32, version: u32) -> bool {
        let after = self.at(file, unit).load(Ordering::Acquire);
        let latest = if after & BUSY == 0 { after } else { next(after) };
        (before..=latest).contains(&version)
    }

    /// Records that a file was truncated. Versions keep counting when it is written again, so that
    /// old data is never accepted as new.
    pub fn forget(&self, file: u32) {
        for version in &self.files[file as usize] {
            if version.load(Ordering::Relaxed) != 0 {
                version.fetch_or(GONE, Ordering::Relaxed);
            }
        }
    }

    /// Units of a file.
    pub fn len(&self, file: u32) -> u64 {
        self.files[file as usize].len() as u64
    }

    fn at(&self, file: u32, unit: u64) -> &AtomicU32 {
        &self.files[file as usize][unit as usize]
    }
}

/// The version after this one; 0 is reserved for unwritten units.
fn next(version: u32) -> u32 {
    (version & !(BUSY | GONE)) % (GONE - 1) + 1
}

/// Data pattern and version map together: used by a worker for each block.
pub struct ShadowMap {
    /// Generator of the units' data.
    pub content: DataPattern,
    /// Version of each unit.
    pub ledger: VersionMap,
}

impl ShadowMap {
    /// An empty map for files of these sizes, in bytes.
    pub fn new(seed: u64, files: &[u64], unit_bytes: u64) -> ShadowMap {
        ShadowMap {
            content: DataPattern::new(seed, unit_bytes),
            ledger: VersionMap::new(files, unit_bytes),
        }
    }

    /// Fills a buffer for a write at byte `at`; the versions go to `versions`.
    pub fn begin_write(
        &self,
        bytes: &mut [u8],
        file: u32,
        at: u64,
        shared: bool,
        versions: &mut Vec<u32>,
    ) {
        self.claim(bytes.len() as u64, file, at, shared, versions);
        self.fill(bytes, file, at, versions);
    }

    /// The first half of [`ShadowMap::begin_write`]: claims the units for the caller.
    pub fn claim(&self, len: u64, file: u32, at: u64, shared: bool, versions: &mut Vec<u32>) {
        versions.clear();
        let units = self.ledger.units(at, len);
        versions.extend(units.map(|unit| self.ledger.begin_write(file, unit, shared)));
    }

    /// As [`ShadowMap::claim`]; `false` while another write of one of the units is in flight.
    pub fn try_claim(&self, len: u64, file: u32, at: u64, versions: &mut Vec<u32>) -> bool {
        versions.clear();
        for unit in self.ledger.units(at, len) {
            match self.ledger.try_begin_write(file, unit) {
                Some(version) => versions.push(version),
                None => {
                    let mine = self.ledger.units(at, len).take(versions.len());
                    mine.for_each(|unit| self.ledger.give_up(file, unit));
                    return false;
                }
            }
        }
        true
    }

    /// The second half of [`ShadowMap::begin_write`]: fills the buffer.
    pub fn fill(&self, bytes: &mut [u8], file: u32, at: u64, versions: &[u32]) {
        let units = self.ledger.units(at, bytes.len() as u64);
        let parts = bytes.chunks_mut(self.content.unit_bytes() as usize);
        for ((unit, part), version) in units.zip(parts).zip(versions) {
            self.content.fill(part, file, unit, *version);
        }
    }

    /// As [`ShadowMap::fill`], for a buffer that was read from this position.
    pub fn stamp(&self, bytes: &mut [u8], file: u32, at: u64, versions: &[u32]) {
        let units = self.ledger.units(at, bytes.len() as u64);
        let parts = bytes.chunks_exact_mut(self.content.unit_bytes() as usize);
        for ((unit, part), version) in units.zip(parts).zip(versions) {
            self.content.stamp(part, file, unit, *version);
        }
    }

    /// Completes the write.
    pub fn end_write(&self, file: u32, at: u64, versions: &[u32]) {
        let first = at / self.content.unit_bytes();
        for (unit, version) in (first..).zip(versions) {
            self.ledger.end_write(file, unit, *version);
        }
    }

    /// The version for [`ShadowMap::glance`]; must be called before the read.
    pub fn before_read(&self, file: u32, at: u64) -> Option<u32> {
        self.ledger.before_read(file, at / self.content.unit_bytes())
    }

    /// Checks the stamp of the first unit of a read: cheap enough for the timed part.
    pub fn glance(
        &self,
        bytes: &[u8],
        file: u32,
        at: u64,
        before: Option<u32>,
    ) -> Option<Miscompare> {
        let before = before?;
        let unit = at / self.content.unit_bytes();
        let right = self.content.version(bytes, file, unit);
        let right = right.is_some_and(|found| self.ledger.may_be(file, unit, before, found));
        (!right).then_some(Miscompare { file, at })
    }

    /// Compares a whole unit with its expected contents, if it was written.
    pub fn check(&self, unit_bytes: &[u8], file: u32, unit: u64) -> Option<Miscompare> {
        let version = self.ledger.before_read(file, unit)?;
        self.content.check(unit_bytes, file, unit, version).err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wrong_byte_is_found_and_so_are_wrong_places_and_old_versions() {
        let content = DataPattern::new(1, 512);
        let mut unit = vec![0; 512];
        content.fill(&mut unit, 3, 7, 1);
        content.stamp(&mut unit, 3, 7, 2);
        assert_eq!(content.check(&unit, 3, 7, 2), Ok(()));
        assert_eq!(content.version(&unit, 3, 7), Some(2));
        for at in 0..512 {
            unit[at] ^= 0x10;
            let wrong = Miscompare { file: 3, at: 7 * 512 + at as u64 };
            assert_eq!(content.check(&unit, 3, 7, 2), Err(wrong));
            unit[at] ^= 0x10;
        }
        for (file, number, version) in [(2, 7, 2), (3, 8, 2), (3, 7, 1)] {
            assert!(content.check(&unit, file, number, version).is_err());
        }
        assert_eq!(content.version(&unit, 3, 8), None);
        // A part of a unit, at the end of a file.
        assert_eq!(content.check(&unit[..100], 3, 7, 2), Ok(()));
        assert!(content.check(&unit[..100], 3, 7, 3).is_err());
        assert!(DataPattern::new(2, 512).check(&unit, 3, 7, 2).is_err());
    }

    /// Two megabytes of one file and the next: nothing for a compressor of any window.
    #[test]
    fn nothing_that_a_program_writes_is_there_twice() {
        for unit_bytes in [256, 512, 4096] {
            let book = ShadowMap::new(5, &[1 << 20; 2], unit_bytes);
            let mut bytes = vec![0; 1 << 20];
            let (one, other) = bytes.split_at_mut(1 << 19);
            book.begin_write(one, 0, 0, false, &mut Vec::new());
            book.begin_write(other, 1, 0, false, &mut Vec::new());
            // Stamps alone.
            let share = crate::pattern::tests::repeated_share(&bytes);
            assert!(share <= 16.0 / unit_bytes as f64, "{unit_bytes}: {share}");
        }
    }

    #[test]
    fn the_ledger_knows_what_a_reader_may_find() {
        let ledger = VersionMap::new(&[1024, 100], 512);
        assert_eq!((ledger.len(0), ledger.len(1)), (2, 1));
        assert_eq!(ledger.units(512, 512), 1..2);
        assert_eq!(ledger.before_read(0, 1), None);
        let version = ledger.begin_write(0, 1, false);
        assert_eq!(version, 1);
        ledger.end_write(0, 1, version);
        let before = ledger.before_read(0, 1).expect("written");
        // While a write is in flight, old and new are both right.
        let version = ledger.begin_write(0, 1, true);
        assert!(ledger.may_be(0, 1, before, 1) && ledger.may_be(0, 1, before, 2));
        assert!(!ledger.may_be(0, 1, before, 3) && !ledger.may_be(0, 1, before, 0));
        ledger.end_write(0, 1, version);
        let before = ledger.before_read(0, 1).expect("written");
        assert!(!ledger.may_be(0, 1, before, 1) && ledger.may_be(0, 1, before, 2));
    }

    #[test]
    fn an_emptied_file_holds_nothing_and_goes_on_counting() {
        let ledger = VersionMap::new(&[512], 512);
        ledger.end_write(0, 0, ledger.begin_write(0, 0, false));
        ledger.forget(0);
        assert_eq!(ledger.before_read(0, 0), None);
        let version = ledger.begin_write(0, 0, true);
        assert_eq!(version, 2);
        ledger.end_write(0, 0, version);
        assert_eq!(ledger.before_read(0, 0), Some(2));
        assert_eq!(next(GONE - 1), 1);
    }

    #[test]
    fn two_writers_of_one_unit_take_turns() {
        let ledger = VersionMap::new(&[512], 512);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        ledger.end_write(0, 0, ledger.begin_write(0, 0, true));
                    }
                });
            }
        });
        assert_eq!(ledger.before_read(0, 0), Some(4000));
    }

    #[test]
    fn a_claim_is_for_all_units_or_for_none() {
        let book = ShadowMap::new(1, &[2048], 512);
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        assert!(book.try_claim(512, 0, 1024, &mut theirs));
        assert!(!book.try_claim(2048, 0, 0, &mut mine));
        book.end_write(0, 1024, &theirs);
        assert!(book.try_claim(2048, 0, 0, &mut mine));
        assert_eq!(mine, [1, 1, 2, 1]);
    }
}
