//! A range of an array with one geometry, and where its members are read.

use std::ops::Range;

use md::Geometry;

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
