//! The expected contents of every unit that a run writes: of the area of block workloads (file 0),
//! or of the files of a program.
//!
//! Two rules of access, on the same map:
//!
//! - Block workloads: a block belongs to one generator from before its write until the write has
//!   completed (see [`crate::addresses::Share`]), so no generator reads a version that another is
//!   about to increment. The new version is expected from [`ShadowMap::fill_next`] on.
//! - Programs: workers may write and read the same unit. Its version is that of its last completed
//!   write. A write claims its units, and a reader that races with it accepts the versions before
//!   and after the write.
//!
//! Invariant: a version that was expected once is never expected again. Called by `target`, by the
//! generators of `runner` and by the backends of programs.

use std::sync::atomic::{AtomicU32, Ordering};

use super::errors::Miscompare;
use super::pattern::{DataPattern, Version};

/// Set while a write of the unit is in flight.
const BUSY: u32 = 1 << 31;
/// Set when the file was emptied after the unit was written.
const GONE: u32 = 1 << 30;
const _: () = assert!(Version::BITS == 30, "the flags are above the version");

/// A place is the number of a unit, with that of its file above this bit.
const FILE_SHIFT: u32 = 40;

/// How a write makes the contents of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// All new.
    Fill,
    /// A unit that was read, with a word of each sector changed.
    Rewrite,
}

/// The data pattern, and the version of every unit.
pub struct ShadowMap {
    pattern: DataPattern,
    files: Vec<Box<[AtomicU32]>>,
    unit_shift: u32,
}

impl ShadowMap {
    /// The map of unwritten files of these sizes, in bytes, in units of `unit_bytes` bytes.
    ///
    /// # Panics
    /// When the size of a unit is no power of two, or too small for its stamp.
    pub fn new(seed: u64, unit_bytes: usize, files: &[u64]) -> ShadowMap {
        let unwritten = || AtomicU32::new(Version::UNWRITTEN.bits());
        let versions = |bytes: &u64| {
            let units = bytes.div_ceil(unit_bytes as u64);
            (0..units).map(|_| unwritten()).collect()
        };
        ShadowMap {
            pattern: DataPattern::new(seed, unit_bytes),
            files: files.iter().map(versions).collect(),
            unit_shift: unit_bytes.trailing_zeros(),
        }
    }

    /// Memory of the versions of a map, bytes.
    pub fn needs_bytes(files: &[u64], unit_bytes: u64) -> u64 {
        let version = size_of::<AtomicU32>() as u64;
        files.iter().map(|bytes| bytes.div_ceil(unit_bytes) * version).sum()
    }

    /// Smallest unit that is read or written, in bytes.
    pub fn unit_bytes(&self) -> usize {
        self.pattern.unit_bytes()
    }

    /// Size of a file, in whole units, bytes.
    pub fn file_bytes(&self, file: u32) -> u64 {
        (self.files[file as usize].len() as u64) << self.unit_shift
    }

    // What both rules share.

    /// Fills a buffer with the expected contents of a file from byte `at` on.
    pub fn fill(&self, file: u32, at: u64, bytes: &mut [u8]) {
        let versions = self.versions(file, at, bytes.len());
        self.pattern.fill(bytes, self.place(file, at), versions.iter().map(expected));
    }

    /// Compares what was read at byte `at` of a file with its expected contents. What was never
    /// written is wrong.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, file: u32, at: u64, bytes: &[u8]) -> Result<(), Miscompare> {
        let versions = self.versions(file, at, bytes.len());
        let found = self.pattern.check(bytes, self.place(file, at), versions.iter().map(expected));
        found.map_err(|byte| Miscompare { file, at: at + byte as u64 })
    }

    // Block workloads.

    /// Makes the first version of everything the expected one.
    pub fn expect_first(&mut self) {
        let units = self.files.iter_mut().flatten();
        units.for_each(|unit| *unit.get_mut() = Version::FIRST.bits());
    }

    /// Fills a buffer with the next version of the area from byte `at` on, which becomes the
    /// expected one. No ordering is needed: relaxed atomics cost no more than plain integers here.
    pub fn fill_next(&self, at: u64, bytes: &mut [u8]) {
        for unit in self.versions(0, at, bytes.len()) {
            let next = expected(unit).next_fill();
            unit.store(next.bits(), Ordering::Relaxed);
        }
        self.fill(0, at, bytes);
    }

    /// Prefetches the version of a unit for [`ShadowMap::fill_next`], with a load whose result is
    /// unused.
    pub fn touch(&self, at: u64) {
        std::hint::black_box(expected(self.unit(0, at)));
    }

    // Programs.

    /// Claims the units of a write of `len` bytes and returns the versions to be written. If
    /// several workers may write them (`shared`), their writes are serialized.
    pub fn claim(
        &self,
        kind: WriteKind,
        file: u32,
        at: u64,
        len: u64,
        shared: bool,
        versions: &mut Vec<Version>,
    ) {
        versions.clear();
        versions.extend(self.versions(file, at, len as usize).iter().map(|unit| {
            if !shared {
                return next(unit.load(Ordering::Relaxed), kind);
            }
            loop {
                let before = unit.fetch_or(BUSY, Ordering::Acquire);
                if before & BUSY == 0 {
                    return next(before, kind);
                }
                std::thread::yield_now();
            }
        }));
    }

    /// As [`ShadowMap::claim`], shared; `false` while another write of one of the units is in
    /// flight.
    pub fn try_claim(
        &self,
        kind: WriteKind,
        file: u32,
        at: u64,
        len: u64,
        versions: &mut Vec<Version>,
    ) -> bool {
        versions.clear();
        let units = self.versions(file, at, len as usize);
        for unit in units {
            let before = unit.fetch_or(BUSY, Ordering::Acquire);
            if before & BUSY != 0 {
                for mine in &units[..versions.len()] {
                    mine.fetch_and(!BUSY, Ordering::Release);
                }
                return false;
            }
            versions.push(next(before, kind));
        }
        true
    }

    /// Makes the contents of claimed units. For a rewrite the buffer holds what was read.
    pub fn make(
        &self,
        kind: WriteKind,
        file: u32,
        at: u64,
        bytes: &mut [u8],
        versions: &[Version],
    ) {
        let (place, versions) = (self.place(file, at), versions.iter().copied());
        match kind {
            WriteKind::Fill => self.pattern.fill(bytes, place, versions),
            WriteKind::Rewrite => self.pattern.rewrite(bytes, place, versions),
        }
    }

    /// Claims units, and fills a buffer for them.
    pub fn begin_write(
        &self,
        file: u32,
        at: u64,
        bytes: &mut [u8],
        shared: bool,
        versions: &mut Vec<Version>,
    ) {
        self.claim(WriteKind::Fill, file, at, bytes.len() as u64, shared, versions);
        self.make(WriteKind::Fill, file, at, bytes, versions);
    }

    /// Completes the write of claimed units.
    pub fn end_write(&self, file: u32, at: u64, versions: &[Version]) {
        let units = &self.files[file as usize][(at >> self.unit_shift) as usize..];
        for (unit, version) in units.iter().zip(versions) {
            unit.store(version.bits(), Ordering::Release);
        }
    }

    /// The oldest version of the unit at byte `at` that a read started now may return; `None` if
    /// the unit is unwritten or its file was truncated. Must be called before the read.
    pub fn before_read(&self, file: u32, at: u64) -> Option<Version> {
        let bits = self.unit(file, at).load(Ordering::Acquire) & !BUSY;
        let version = Version::from_bits(bits);
        (version != Version::UNWRITTEN && bits & GONE == 0).then_some(version)
    }

    /// Checks the stamp of the first unit of a read that was started at `before`: cheap enough for
    /// the timed part, as the tools check one word. All bytes are compared later.
    pub fn glance(
        &self,
        file: u32,
        at: u64,
        bytes: &[u8],
        before: Option<Version>,
    ) -> Option<Miscompare> {
        let before = before?;
        let found = self.pattern.stamped_version(bytes, self.place(file, at));
        let right = found.is_some_and(|found| self.may_be(file, at, before, found));
        (!right).then_some(Miscompare { file, at })
    }

    /// Whether a read started at `before` may return `found`.
    fn may_be(&self, file: u32, at: u64, before: Version, found: Version) -> bool {
        let bits = self.unit(file, at).load(Ordering::Acquire);
        let after = Version::from_bits(bits & !(BUSY | GONE));
        let in_flight = [WriteKind::Fill, WriteKind::Rewrite].map(|kind| next(bits, kind));
        (before..=after).contains(&found) || (bits & BUSY != 0 && in_flight.contains(&found))
    }

    /// Records that a file was truncated. Versions keep counting when it is written again, so that
    /// old data is never accepted as new.
    pub fn forget(&self, file: u32) {
        for unit in &self.files[file as usize] {
            if expected(unit) != Version::UNWRITTEN {
                unit.fetch_or(GONE, Ordering::Relaxed);
            }
        }
    }

    fn place(&self, file: u32, at: u64) -> u64 {
        u64::from(file) << FILE_SHIFT ^ at >> self.unit_shift
    }

    fn unit(&self, file: u32, at: u64) -> &AtomicU32 {
        &self.files[file as usize][(at >> self.unit_shift) as usize]
    }

    /// The units of a range.
    fn versions(&self, file: u32, at: u64, len: usize) -> &[AtomicU32] {
        let end = (at + len as u64).div_ceil(1 << self.unit_shift);
        &self.files[file as usize][(at >> self.unit_shift) as usize..end as usize]
    }
}

/// The version of a unit that no write in flight changes.
fn expected(unit: &AtomicU32) -> Version {
    Version::from_bits(unit.load(Ordering::Relaxed) & !BUSY)
}

/// The version after that of a unit. There is nothing to rewrite in a file that was emptied.
fn next(bits: u32, kind: WriteKind) -> Version {
    let before = Version::from_bits(bits & !(BUSY | GONE));
    match kind {
        WriteKind::Rewrite if bits & GONE == 0 => before.next_rewrite(),
        _ => before.next_fill(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::pattern::tests::repeated_share;

    fn write(map: &ShadowMap, file: u32, at: u64, shared: bool) -> Vec<Version> {
        let mut versions = Vec::new();
        map.claim(WriteKind::Fill, file, at, 512, shared, &mut versions);
        versions
    }

    /// Two megabytes of one file and the next: nothing for a compressor of any window.
    #[test]
    fn nothing_that_a_program_writes_is_there_twice() {
        for unit_bytes in [256, 512, 4096] {
            let map = ShadowMap::new(5, unit_bytes, &[1 << 20; 2]);
            let mut bytes = vec![0; 1 << 20];
            let halves = bytes.split_at_mut(1 << 19);
            for (file, half) in [(0, halves.0), (1, halves.1)] {
                map.begin_write(file, 0, half, false, &mut Vec::new());
            }
            // Stamps alone.
            let share = repeated_share(&bytes);
            assert!(share <= 16.0 / unit_bytes as f64, "{unit_bytes}: {share}");
        }
    }

    #[test]
    fn a_block_of_another_place_or_time_is_a_miscompare() {
        let mut map = ShadowMap::new(1, 4096, &[1 << 20]);
        map.expect_first();
        let (mut first, mut next) = (vec![0; 8192], vec![0; 8192]);
        map.fill(0, 8192, &mut first);
        assert_eq!(map.check(0, 8192, &first), Ok(()));
        let misplaced = Miscompare { file: 0, at: 0 };
        assert_eq!(map.check(0, 0, &first), Err(misplaced));
        map.fill_next(12288, &mut next[4096..]);
        let stale = Miscompare { file: 0, at: 12288 + 8 };
        assert_eq!(map.check(0, 8192, &first), Err(stale));
        next[..4096].copy_from_slice(&first[..4096]);
        assert_eq!(map.check(0, 8192, &next), Ok(()));
        // A sector of the old block in the new one.
        next[4096 + 512..4096 + 1024].copy_from_slice(&first[4096 + 512..4096 + 1024]);
        let torn = map.check(0, 8192, &next).expect_err("a torn block");
        assert!((12288 + 512..12288 + 520).contains(&torn.at), "{torn:?}");
    }

    #[test]
    fn what_was_never_written_is_wrong() {
        let map = ShadowMap::new(1, 512, &[1024]);
        assert!(map.check(0, 512, &[0; 512]).is_err());
    }

    #[test]
    fn a_rewritten_block_is_checked_like_a_written_one() {
        let map = ShadowMap::new(1, 1024, &[4096]);
        let (mut bytes, mut versions) = (vec![0; 4096], Vec::new());
        map.begin_write(0, 0, &mut bytes, false, &mut versions);
        map.end_write(0, 0, &versions);
        for _ in 0..40 {
            let old = bytes.clone();
            map.claim(WriteKind::Rewrite, 0, 1024, 2048, false, &mut versions);
            map.make(WriteKind::Rewrite, 0, 1024, &mut bytes[1024..3072], &versions);
            map.end_write(0, 1024, &versions);
            assert_eq!(map.check(0, 0, &bytes), Ok(()));
            assert_eq!(map.check(0, 0, &old).map_err(|wrong| wrong.at), Err(1024 + 8));
            let torn = [&bytes[..1536], &old[1536..]].concat();
            assert!(map.check(0, 0, &torn).is_err());
        }
    }

    #[test]
    fn a_reader_that_races_with_a_writer_accepts_both_versions() {
        let map = ShadowMap::new(1, 512, &[1024, 100]);
        assert_eq!((map.file_bytes(0), map.file_bytes(1)), (1024, 512));
        assert_eq!(map.before_read(0, 512), None);
        let versions = write(&map, 0, 512, false);
        assert_eq!(versions, [Version::FIRST]);
        map.end_write(0, 512, &versions);
        let before = map.before_read(0, 512).expect("written");
        assert_eq!(before, Version::FIRST);
        // While a write is in flight, old and new are both right.
        let versions = write(&map, 0, 512, true);
        let (new, rewritten) = (before.next_fill(), before.next_rewrite());
        assert_eq!(versions, [new]);
        let may_be = |version| map.may_be(0, 512, before, version);
        assert!(may_be(before) && may_be(new) && may_be(rewritten));
        assert!(!may_be(new.next_fill()) && !may_be(new.next_rewrite()));
        assert!(!may_be(Version::UNWRITTEN));
        map.end_write(0, 512, &versions);
        let before = map.before_read(0, 512).expect("written");
        let may_be = |version| map.may_be(0, 512, before, version);
        assert!(!may_be(Version::FIRST) && may_be(new) && !may_be(new.next_fill()));
    }

    #[test]
    fn an_emptied_file_holds_nothing_and_its_versions_keep_counting() {
        let map = ShadowMap::new(1, 512, &[512]);
        map.end_write(0, 0, &write(&map, 0, 0, false));
        map.forget(0);
        assert_eq!(map.before_read(0, 0), None);
        let mut versions = Vec::new();
        map.claim(WriteKind::Rewrite, 0, 0, 512, true, &mut versions);
        assert_eq!(versions, [Version::FIRST.next_fill()], "there is nothing to keep");
        map.end_write(0, 0, &versions);
        assert_eq!(map.before_read(0, 0), Some(versions[0]));
    }

    #[test]
    fn two_writers_of_one_unit_take_turns() {
        let map = ShadowMap::new(1, 512, &[512]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        map.end_write(0, 0, &write(&map, 0, 0, true));
                    }
                });
            }
        });
        let last = (0..4000).fold(Version::UNWRITTEN, |version, _| version.next_fill());
        assert_eq!(map.before_read(0, 0), Some(last));
    }

    #[test]
    fn a_claim_is_for_all_units_or_for_none() {
        let map = ShadowMap::new(1, 512, &[2048]);
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        assert!(map.try_claim(WriteKind::Fill, 0, 1024, 512, &mut theirs));
        assert!(!map.try_claim(WriteKind::Fill, 0, 0, 2048, &mut mine));
        map.end_write(0, 1024, &theirs);
        assert!(map.try_claim(WriteKind::Rewrite, 0, 0, 2048, &mut mine));
        let (first, then) = (Version::FIRST, Version::FIRST.next_rewrite());
        assert_eq!(mine, [first, first, then, first]);
    }
}
