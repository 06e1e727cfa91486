//! Fields of reports that are serialized in another form than they have here.
//!
//! Called from the `serialize_with` of those fields: the JSON of the verbs has units in its names.

use std::ops::Range;
use std::time::Duration;

use md::ondisk::Area;
use serde::{Serialize, Serializer};

/// `sector` and `sectors`.
pub fn as_area<S: Serializer>(range: &Range<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    Area::from(range).serialize(serializer)
}

/// A list of them.
pub fn as_areas<S: Serializer>(all: &[Range<u64>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().map(Area::from))
}

/// Seconds, as a number.
pub fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}
