//! What every unit of a target's area must contain, for as many generators as there are.
//!
//! Invariant: a block is one generator's alone while it is filled or checked (see
//! [`crate::workload::Share`]), so that nobody reads a version that another is about to raise. The
//! versions are atomics only so that generators on several threads may share the book; no order
//! between them is needed, and on the machines at hand they cost nothing over plain numbers.
//!
//! Called by `target` and by the generators of `runner`.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::pattern::{Miscompare, Pattern};

/// See the module.
pub struct ShadowMap {
    pattern: Pattern,
    versions: Vec<AtomicU32>,
}

impl ShadowMap {
    /// Of an area of `area_bytes` bytes in units of `unit_bytes`; nothing is written yet.
    pub fn new(seed: u64, unit_bytes: usize, area_bytes: u64) -> ShadowMap {
        let units = area_bytes / unit_bytes as u64;
        let versions = (0..units).map(|_| AtomicU32::new(0)).collect();
        ShadowMap { pattern: Pattern::new(seed, unit_bytes), versions }
    }

    /// Smallest unit that is read or written, in bytes.
    pub fn unit_bytes(&self) -> usize {
        self.pattern.unit_bytes()
    }

    /// Everything holds this version from now on.
    pub fn set_all(&mut self, version: u32) {
        self.versions.iter_mut().for_each(|unit| *unit.get_mut() = version);
    }

    /// Fills a buffer with the next version of the units from `first` on, which becomes what they
    /// must contain.
    pub fn fill_next(&self, first: u64, bytes: &mut [u8]) {
        let units = bytes.len() / self.unit_bytes();
        for version in &self.versions[first as usize..first as usize + units] {
            let next = version.load(Ordering::Relaxed).wrapping_add(1);
            version.store(next, Ordering::Relaxed);
        }
        self.fill(first, bytes);
    }

    /// Has the CPU fetch what [`Book::fill_next`] needs to know of a unit: a load that nothing
    /// waits for.
    pub fn touch(&self, first: u64) {
        std::hint::black_box(self.version(first));
    }

    /// Fills a buffer with what the units from `first` on must contain.
    pub fn fill(&self, first: u64, bytes: &mut [u8]) {
        self.pattern.fill(bytes, first, |unit| self.version(unit));
    }

    /// Checks the units from `first` on.
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
