//! The byte range of a file or disk that a location names.
//!
//! Invariant: the range lies inside the disk, in whole sectors. A part without a size that begins
//! where a partition of the disk's table begins ends where that does, elsewhere with the disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use md::SECTOR_BYTES;

use crate::Location;
use crate::partitions::{WholeDisk, partition_end};
use crate::problem::DeviceProblem;

/// The range in a file of `bytes` bytes without a partition table.
pub(crate) fn span(location: &Location, bytes: u64) -> Result<Range<u64>, DeviceProblem> {
    let end = location.size.map_or(Some(bytes), |size| location.offset.checked_add(size));
    let Some(end) = end.filter(|&end| end <= bytes && location.offset <= bytes) else {
        return Err(DeviceProblem::Window { path: location.path.clone(), bytes });
    };
    let len = (end - location.offset) / SECTOR_BYTES * SECTOR_BYTES;
    if len == 0 {
        return Err(DeviceProblem::Empty);
    }
    Ok(location.offset..location.offset + len)
}

/// The range on a disk of `bytes` bytes with such logical blocks, whose table is `read`.
pub(crate) fn window(
    location: &Location,
    bytes: u64,
    block: u32,
    read: impl Fn(u64, &mut [u8]) -> io::Result<()> + Send + Sync,
) -> Result<Range<u64>, DeviceProblem> {
    let Range { start, end } = span(location, bytes)?;
    if location.size.is_some() || location.offset == 0 {
        return Ok(start..end);
    }
    let disk = WholeDisk { sectors: end / SECTOR_BYTES, block, read };
    let partition = partition_end(&disk, start / SECTOR_BYTES);
    Ok(start..partition.map_or(end, |sector| (sector * SECTOR_BYTES).min(end)))
}

/// The same of a file that is opened for it: `O_DIRECT` does not read single sectors.
pub(crate) fn window_of_file(
    location: &Location,
    bytes: u64,
    block: u32,
) -> Result<Range<u64>, DeviceProblem> {
    let read = |at, bytes: &mut [u8]| File::open(&location.path)?.read_exact_at(bytes, at);
    window(location, bytes, block, read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_within_the_disk_also_where_its_end_is_no_number() {
        let range = |offset, size| span(&Location { path: "d".into(), offset, size }, 4096).ok();
        assert_eq!(range(512, Some(1024)), Some(512..1536));
        assert_eq!(range(512, None), Some(512..4096));
        assert_eq!(range(512, Some(4096)), None);
        assert_eq!(range(8192, None), None);
        assert_eq!(range(u64::MAX - 511, Some(1024)), None);
        assert_eq!(range(1 << 62, Some(u64::MAX >> 1)), None);
    }
}
