//! The lengths that requests and operations are cut by, in sectors.
//!
//! Invariant: each is a multiple of the granule.

/// Ranges are locked, merged and repaired in units of 4 KiB.
pub const GRANULE_SECTORS: u64 = 8;

/// The longest request: 16 MiB. Frontends split longer ones.
pub const MAX_REQUEST_SECTORS: u64 = 32_768;

/// The longest discard: 1 TiB of the array. Frontends split longer ones. Zeroes are no longer than
/// other requests: a device that has no command for them writes them.
pub const MAX_DISCARD_SECTORS: u64 = 1 << 31;

/// The longest range of a chunk row for a single stripe operation: 128 KiB.
pub const MAX_SPAN_SECTORS: u64 = 256;

const _: () = assert!(
    MAX_REQUEST_SECTORS.is_multiple_of(GRANULE_SECTORS)
        && MAX_DISCARD_SECTORS.is_multiple_of(GRANULE_SECTORS)
        && MAX_SPAN_SECTORS.is_multiple_of(GRANULE_SECTORS)
);
