//! A range of an array with one geometry, and where its members are read.

use std::ops::Range;

use md::geometry::{Copy, Mirrored};
use md::{Geometry, Sector};

use super::slot_reader::Source;

/// A range of the array with one geometry. An array has one part, or two in the middle of a
/// reshape.
pub struct Part {
    /// Array sectors.
    pub array: Range<u64>,
    /// The geometry of the range.
    pub geometry: Geometry,
    /// The sources of each slot, the best first; empty if the member is missing.
    pub slots: Vec<Vec<Source>>,
}

impl Part {
    /// The copies of an array sector, write-mostly members' behind the others, and how far they are
    /// contiguous.
    pub(super) fn copies(&self, mirrored: &Mirrored, at: u64) -> (Vec<Copy>, u64) {
        let mut copies = vec![Copy::default(); mirrored.copies()];
        let run = mirrored.locate(Sector(at), &mut copies);
        let is_last = |copy: &Copy| {
            self.slots[copy.member.index()].first().is_some_and(|source| source.write_mostly)
        };
        copies.sort_by_key(is_last);
        (copies, run)
    }
}
