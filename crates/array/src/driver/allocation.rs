//! What of an array is stored. Part of `driver`.

use std::ops::Range;

use super::Driver;
use crate::executor::ArrayExtent;

impl Driver {
    /// What is known of a range of sectors, which is inside the array, from its start on: of the
    /// moment, at most `most` extents, and perhaps not to its end.
    pub fn allocation(&self, range: Range<u64>, most: usize) -> Vec<ArrayExtent> {
        self.executor.allocation(range, most)
    }
}
