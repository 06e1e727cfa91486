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
}
