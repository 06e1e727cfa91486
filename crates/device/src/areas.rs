//! The areas that a superblock points to, read from a disk.
//!
//! Invariant: nothing is written, and superblock fields are validated: an area that is outside the
//! disk, or too long, is an error (a clause without its subject). Called by the code that shows,
//! starts or rescues an array.

use md::SECTOR_BYTES;
use md::ondisk::bad_blocks::{BadBlocks, LOG_SECTORS_MAX};
use md::ondisk::{Area, BadBlockArea};

use crate::Disk;

/// The bytes of an area.
///
/// # Errors
/// It is outside the disk, or cannot be read: names the sectors.
pub fn read_area(disk: &dyn Disk, area: Area) -> Result<Vec<u8>, String> {
    let Area { sector, sectors } = area;
    let end = sector.checked_add(sectors).filter(|&end| end <= disk.sectors());
    if end.is_none() {
        let size = disk.sectors();
        return Err(format!("{sectors} sectors from {sector} are not on a device of {size}"));
    }
    let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
    match disk.read(sector, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(error) => Err(format!("{sectors} sectors from {sector}: {error}")),
    }
}

/// A member's bad block list, as sectors of the device; empty if it has none.
///
/// # Errors
/// It cannot be read, or has a wrong format.
pub fn read_bad_blocks(disk: &dyn Disk, log: BadBlockArea) -> Result<BadBlocks, String> {
    if !log.in_use {
        return Ok(BadBlocks::new());
    }
    if log.area.sectors == 0 || log.area.sectors > LOG_SECTORS_MAX {
        return Err(format!("a log of {} sectors, 1 to 8 are possible", log.area.sectors));
    }
    let bytes = read_area(disk, log.area)?;
    BadBlocks::decode(&bytes, log.shift).map_err(|error| error.to_string())
}
