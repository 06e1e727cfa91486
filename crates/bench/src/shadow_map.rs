//! The expected contents of every unit of a target's area, shared by all generators.
//!
//! Invariant: a block belongs to one generator while it is filled or checked (see
//! [`crate::addresses::Share`]), so no generator reads a version that another is about to
//! increment.
//! The versions are atomics only so that generators on several threads may share the map; no
//! ordering between them is needed, and relaxed atomics cost no more than plain integers here.
//!
//! Called by `target` and by the generators of `runner`.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::pattern::{Miscompare, Pattern};

/// The version of every unit that was last written, from which its contents follow.
pub struct ShadowMap {
    pattern: Pattern,
    versions: Vec<AtomicU32>,
}

impl ShadowMap {
    /// The map of an unwritten area of `area_bytes` bytes in units of `unit_bytes` bytes.
    pub fn new(seed: u64, unit_bytes: usize, area_bytes: u64) -> ShadowMap {
        let units = area_bytes / unit_bytes as u64;
        let versions = (0..units).map(|_| AtomicU32::new(0)).collect();
        ShadowMap { pattern: Pattern::new(seed, unit_bytes), versions }
    }

    /// Smallest unit that is read or written, in bytes.
    pub fn unit_bytes(&self) -> usize {
        self.pattern.unit_bytes()
    }

    /// Sets the version of all units.
    pub fn set_all(&mut self, version: u32) {
        self.versions.iter_mut().for_each(|unit| *unit.get_mut() = version);
    }

    /// Fills a buffer with the next version of the units from `first` on, which becomes the
    /// expected one.
    pub fn fill_next(&self, first: u64, bytes: &mut [u8]) {
        let units = bytes.len() / self.unit_bytes();
        for version in &self.versions[first as usize..first as usize + units] {
            let next = version.load(Ordering::Relaxed).wrapping_add(1);
            version.store(next, Ordering::Relaxed);
        }
        self.fill(first, bytes);
    }

    /// Prefetches the version of a unit for [`ShadowMap::fill_next`], with a load whose result is
    /// unused.
    pub fn touch(&self, first: u64) {
        std::hint::black_box(self.version(first));
    }

    /// Fills a buffer with the expected contents of the units from `first` on.
    pub fn fill(&self, first: u64, bytes: &mut [u8]) {
        self.pattern.fill(bytes, first, |unit| self.version(unit));
    }

    /// Compares the units from `first` on with their expected contents.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, first: u64, bytes: &[u8]) -> Result<(), Miscompare> {
        self.pattern.check(bytes, first, |unit| self.version(unit))
    }

    fn version(&self, unit: u64) -> u32 {
        self.versions[unit as usize].load(Ordering::Relaxed)
    }
}
