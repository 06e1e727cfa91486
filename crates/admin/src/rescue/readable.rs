//! What can be read in order: an array, or a volume on arrays.

use std::io;
use std::ops::Range;

use content::{Bytes, Unreadable};
use host::{Disk, read_only_error};
use md::SECTOR_BYTES;

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

/// Any contents as bytes and as a disk that refuses writes.
pub(crate) struct Contents<'v>(pub(crate) &'v dyn Readable);

impl Bytes for Contents<'_> {
    fn size(&self) -> u64 {
        self.0.sectors() * SECTOR_BYTES
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Unreadable> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.size());
        let sectors = at / SECTOR_BYTES..end.ok_or(Unreadable)?.div_ceil(SECTOR_BYTES);
        let skip = (at % SECTOR_BYTES) as usize;
        let bytes = (sectors.end - sectors.start) * SECTOR_BYTES;
        if bytes == into.len() as u64 {
            return self.0.read(sectors.start, into).is_empty().then_some(()).ok_or(Unreadable);
        }
        let mut buf = vec![0; bytes as usize];
        if !self.0.read(sectors.start, &mut buf).is_empty() {
            return Err(Unreadable);
        }
        into.copy_from_slice(&buf[skip..skip + into.len()]);
        Ok(())
    }
}

impl Disk for Contents<'_> {
    fn sectors(&self) -> u64 {
        self.0.sectors()
    }

    fn logical_block(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    fn name(&self) -> String {
        "the array".into()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = sector.checked_add(buf.len() as u64 / SECTOR_BYTES);
        if end.is_none_or(|end| end > self.0.sectors()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match self.0.read(sector, buf).as_slice() {
            [] => Ok(()),
            _ => Err(io::Error::other("lost with the members that are missing")),
        }
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(read_only_error(&self.name()))
    }

    fn write_zeroes(&self, _: Range<u64>) -> io::Result<()> {
        Err(read_only_error(&self.name()))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn hole_end(&self, sector: u64) -> u64 {
        self.0.hole_end(sector, self.0.sectors())
    }
}
