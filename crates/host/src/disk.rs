//! A blocking interface to a device that holds a member with its metadata: bytes by sector of the
//! whole device.
//!
//! All rare or strictly ordered I/O uses it: metadata, rescue, the overlay. The data of a running
//! array use `array::Member`s made from the same disks. A disk that is another one but for some
//! operations is a [`DiskLayer`].
//!
//! Invariant: a disk that was opened read-only refuses every write.

use std::io;
use std::ops::Range;

/// A blocking store of sectors. Sectors count from the member's own start, also if the member is a
/// part of a file. All methods may be called concurrently from several threads.
pub trait Disk: Send + Sync {
    /// Size in sectors.
    fn sectors(&self) -> u64;

    /// Logical block in bytes: 512 to 4096. Smaller transfers are allowed here and cost a read of
    /// the rest of the block.
    fn logical_block(&self) -> u32;

    /// Name for messages.
    fn name(&self) -> String;

    /// Whether it refuses writes.
    fn is_read_only(&self) -> bool;

    /// Whether it is a block device, or is laid over one. A file is more likely to have been
    /// mistaken for an empty image.
    fn is_block_device(&self) -> bool {
        false
    }

    /// Fills `buf`, whole sectors, from `sector` on.
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::UnexpectedEof`] beyond the end.
    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf`, whole sectors, from `sector` on. Durable after [`Disk::sync`].
    ///
    /// # Errors
    /// The system's error; [`io::ErrorKind::ReadOnlyFilesystem`] if it is read-only.
    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes the range read as zeroes.
    ///
    /// # Errors
    /// As [`Disk::write`].
    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()>;

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// The system's error.
    fn sync(&self) -> io::Result<()>;

    /// The end of the hole at `sector`: everything up to there was never written and reads as
    /// zeroes. `sector` itself if there is no hole, or holes cannot be detected.
    fn hole_end(&self, sector: u64) -> u64;

    /// Sectors that are known not to be there, sorted and disjoint: reading one is an error. Other
    /// sectors may fail, too.
    fn known_unread(&self) -> &[Range<u64>] {
        &[]
    }
}

/// Sectors that are taken for data together, where holes are looked for: the end of data is not
/// known.
pub const DATA_STEP: u64 = 128;

/// A disk over another one: it is that disk but for what it does otherwise.
pub trait DiskLayer: Send + Sync {
    /// The disk below.
    fn below(&self) -> &dyn Disk;

    /// As [`Disk::logical_block`].
    fn logical_block(&self) -> u32 {
        self.below().logical_block()
    }

    /// As [`Disk::is_read_only`].
    fn is_read_only(&self) -> bool {
        self.below().is_read_only()
    }

    /// As [`Disk::is_block_device`].
    fn is_block_device(&self) -> bool {
        self.below().is_block_device()
    }

    /// As [`Disk::read`].
    ///
    /// # Errors
    /// As there.
    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below().read(sector, buf)
    }

    /// As [`Disk::write`].
    ///
    /// # Errors
    /// As there.
    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()> {
        self.below().write(sector, buf)
    }

    /// As [`Disk::write_zeroes`].
    ///
    /// # Errors
    /// As there.
    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        self.below().write_zeroes(range)
    }

    /// As [`Disk::sync`].
    ///
    /// # Errors
    /// As there.
    fn sync(&self) -> io::Result<()> {
        self.below().sync()
    }

    /// As [`Disk::hole_end`].
    fn hole_end(&self, sector: u64) -> u64 {
        self.below().hole_end(sector)
    }

    /// As [`Disk::known_unread`].
    fn known_unread(&self) -> &[Range<u64>] {
        self.below().known_unread()
    }
}

impl<T: DiskLayer> Disk for T {
    fn sectors(&self) -> u64 {
        self.below().sectors()
    }

    fn logical_block(&self) -> u32 {
        DiskLayer::logical_block(self)
    }

    fn name(&self) -> String {
        self.below().name()
    }

    fn is_read_only(&self) -> bool {
        DiskLayer::is_read_only(self)
    }

    fn is_block_device(&self) -> bool {
        DiskLayer::is_block_device(self)
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()> {
        DiskLayer::read(self, sector, buf)
    }

    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()> {
        DiskLayer::write(self, sector, buf)
    }

    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()> {
        DiskLayer::write_zeroes(self, range)
    }

    fn sync(&self) -> io::Result<()> {
        DiskLayer::sync(self)
    }

    fn hole_end(&self, sector: u64) -> u64 {
        DiskLayer::hole_end(self, sector)
    }

    fn known_unread(&self) -> &[Range<u64>] {
        DiskLayer::known_unread(self)
    }
}

/// The error of a write to a disk that was opened read-only.
pub fn read_only_error(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, format!("{name} was opened read-only"))
}

/// The error of a range beyond the end of the disk.
pub(crate) fn beyond_the_end(name: &str, sector: u64, sectors: u64, size: u64) -> io::Error {
    let what = format!(
        "{name}: sectors {sector} to {} of {size} do not exist",
        sector.saturating_add(sectors)
    );
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}
