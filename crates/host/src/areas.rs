//! The areas that a superblock points to, read from a disk.
//!
//! Invariant: nothing is written, and superblock fields are validated: an area that is outside the
//! disk, or too long, is an error (a clause without its subject). Called by the code that shows,
//! starts or rescues an array.

use md::SECTOR_BYTES;
use md::ondisk::bad_blocks::{BadBlocks, LOG_SECTORS_MAX};
use md::ondisk::{Area, BadBlockArea, DecodeError};
use thiserror::Error;

use crate::Disk;

/// Why an area cannot be used: a clause without its subject.
#[derive(Debug, Error)]
pub enum AreaError {
    /// It is not on the device.
    #[error(
        "{} sectors from {} are not on a device of {device_sectors}", area.sectors, area.sector
    )]
    Outside {
        /// The area.
        area: Area,
        /// Size of the device.
        device_sectors: u64,
    },
    /// It cannot be read.
    #[error("{} sectors from {}: {}", area.sectors, area.sector, crate::sys::reason(source))]
    Read {
        /// The area.
        area: Area,
        /// The system's error.
        source: std::io::Error,
    },
    /// A bad block log of an impossible size.
    #[error("a log of {sectors} sectors, 1 to {LOG_SECTORS_MAX} are possible")]
    LogSize {
        /// Its size by the superblock.
        sectors: u64,
    },
    /// Its contents have a wrong format.
    #[error(transparent)]
    Format(#[from] DecodeError),
}

/// The bytes of an area.
///
/// # Errors
/// It is outside the disk, or cannot be read: names the sectors.
pub fn read_area(disk: &dyn Disk, area: Area) -> Result<Vec<u8>, AreaError> {
    let Area { sector, sectors } = area;
    if sector.checked_add(sectors).is_none_or(|end| end > disk.sectors()) {
        return Err(AreaError::Outside { area, device_sectors: disk.sectors() });
    }
    let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
    match disk.read(sector, &mut bytes) {
        Ok(()) => Ok(bytes),
        Err(source) => Err(AreaError::Read { area, source }),
    }
}

/// A member's bad block list, as sectors of the device; empty if it has none.
///
/// # Errors
/// It cannot be read, or has a wrong format.
pub fn read_bad_blocks(disk: &dyn Disk, log: BadBlockArea) -> Result<BadBlocks, AreaError> {
    if !log.in_use {
        return Ok(BadBlocks::new());
    }
    let sectors = log.area.sectors;
    if sectors == 0 || sectors > LOG_SECTORS_MAX {
        return Err(AreaError::LogSize { sectors });
    }
    let bytes = read_area(disk, log.area)?;
    Ok(BadBlocks::decode(&bytes, log.shift)?)
}
