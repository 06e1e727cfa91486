//! A host request in flight.

use engine::{HostOp, RequestError};

/// A request between submission and completion.
pub struct LiveRequest {
    /// Its tag.
    pub tag: u64,
    /// Its operation.
    pub op: HostOp,
    /// First array sector.
    pub at: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// Its parts, one for each shard that it touches, that have not ended.
    pub(crate) open: usize,
    pub(crate) error: Option<RequestError>,
    /// Member writes completed when it was submitted.
    pub(crate) writes_before: u64,
    /// How often it was begun anew.
    pub(crate) attempt: u64,
    /// Shards in which late operations use its buffer.
    pub(crate) held: u32,
    /// There was one.
    pub(crate) was_held: bool,
}

impl LiveRequest {
    /// The tag that shards have of it.
    pub(crate) fn engine_tag(&self) -> u64 {
        self.tag | self.attempt << 48
    }
}
