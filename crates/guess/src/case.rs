//! What a judgement rests on.
//!
//! Invariant: it is the same for all candidates.

use content::FileSystems;

use crate::points::Set;
use crate::redundancy::Masks;
use crate::source::Pages;

/// All that a judgement rests on.
pub(crate) struct Case<'a> {
    pub pages: &'a Pages<'a>,
    pub set: &'a Set,
    pub file_systems: &'a FileSystems,
    pub masks: &'a Masks,
    pub recreated: bool,
    /// Compare all of the redundancy.
    pub thorough: bool,
    /// Members that were given.
    pub members: usize,
}

impl Case<'_> {
    /// Bytes of the file system.
    pub fn bytes(&self) -> u64 {
        self.file_systems.list()[self.set.file_system].bytes
    }
}
