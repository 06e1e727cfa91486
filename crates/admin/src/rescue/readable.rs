//! What can be read in order: an array, or a volume on arrays.

use std::ops::Range;

use super::ReadableArray;

/// Sectors from 0 on, of which some may be lost. All methods may be called concurrently.
pub trait Readable: Send + Sync {
    /// Its size in sectors.
    fn sectors(&self) -> u64;

    /// Fills `buf`, whole sectors, from `sector` on. Returns the lost sectors, in order; their
    /// bytes are zero.
    fn read(&self, at: u64, buf: &mut [u8]) -> Vec<Range<u64>>;

    /// The end of the hole at `at`, at most `limit`: everything up to there reads as zeroes and was
    /// never written. `at` if there is none.
    fn hole_end(&self, at: u64, limit: u64) -> u64;

    /// Sectors of the longest full stripe of parity levels: reads that begin and end with stripes
    /// read no degraded row twice.
    fn stripe_sectors(&self) -> Option<u64>;

    /// Where a read of at most `sectors` sectors from `at` on ends, best at a multiple of them of
    /// the array below; behind `at`.
    fn piece_end(&self, at: u64, sectors: u64) -> u64;
}

impl Readable for ReadableArray {
    fn sectors(&self) -> u64 {
        ReadableArray::sectors(self)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Vec<Range<u64>> {
        ReadableArray::read(self, at, buf)
    }

    fn hole_end(&self, at: u64, limit: u64) -> u64 {
        ReadableArray::hole_end(self, at, limit)
    }

    fn stripe_sectors(&self) -> Option<u64> {
        ReadableArray::stripe_sectors(self)
    }

    fn piece_end(&self, at: u64, sectors: u64) -> u64 {
        (at / sectors + 1) * sectors
    }
}
