//! What holds a member with its metadata: bytes by sector of the whole device.
//!
//! Everything that is done rarely or must be done in a certain order goes through here, blocking:
//! metadata, rescue, the overlay. The data of a running array go through [`crate::Member`]s made
//! from the same disks.
//!
//! Invariant: a disk that was opened read-only refuses every write, whoever asks.

use std::io;
use std::ops::Range;

/// Something that stores sectors. Sectors count from the member's own start, also where the member
/// is a part of a file. All calls may come from several threads at once.
pub trait Disk: Send + Sync {
    /// Its size in sectors.
    fn sectors(&self) -> u64;

    /// What it reads and writes at the least, in bytes: 512 to 4096. Smaller pieces are allowed
    /// here and cost a read of the rest.
    fn logical_block(&self) -> u32;

    /// How it is called in messages.
    fn name(&self) -> String;

    /// Whether it refuses writes.
    fn is_read_only(&self) -> bool;

    /// Whether it is a block device, or lies over one. A file is more likely to be something that
    /// somebody took for an empty image.
    fn is_block_device(&self) -> bool {
        false
    }

    /// Fills `buf`, whole sectors, from `sector` on.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::UnexpectedEof`] beyond the end.
    fn read(&self, sector: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes `buf`, whole sectors, from `sector` on. Durable after [`Disk::sync`].
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::ReadOnlyFilesystem`] where it is read-only.
    fn write(&self, sector: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes the range read as zeroes.
    ///
    /// # Errors
    /// As [`Disk::write`].
    fn write_zeroes(&self, range: Range<u64>) -> io::Result<()>;

    /// Makes durable what has been written.
    ///
    /// # Errors
    /// What the system says.
    fn sync(&self) -> io::Result<()>;

    /// The end of the hole that `sector` is in: everything up to there was never written and reads
    /// as zeroes. `sector` itself where there is no hole, or nobody knows.
    fn hole_end(&self, sector: u64) -> u64;
}

pub(crate) fn read_only_error(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, format!("{name} was opened read-only"))
}

/// The error of a range that does not fit the disk.
pub(crate) fn beyond_the_end(name: &str, sector: u64, sectors: u64, size: u64) -> io::Error {
    let what = format!(
        "{name}: sectors {sector} to {} of {size} do not exist",
        sector.saturating_add(sectors)
    );
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}
