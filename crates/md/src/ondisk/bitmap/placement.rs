//! Placement and chunk size of a new bitmap: mdadm 4.2's choices.
//!
//! Invariant: the bitmap fits its room, and the room touches neither superblock nor data nor the
//! bad-block log where mdadm puts them. Formulas: docs/format/bitmap.md, A new one.

use std::fmt;

use super::bits::BitmapShape;
use super::header::HEADER_BYTES;
use crate::ondisk::Version;
use crate::units::SECTOR_BYTES;

const GIB_SECTORS: u64 = 1 << 21;
/// Sectors from a superblock of 0.90, 1.1, 1.2 to the bitmap.
const BEHIND_SUPERBLOCK: i64 = 8;
/// Room of 0.90's bitmap: 60 KiB, between the superblock and the end.
const ROOM_V0_90: u64 = 120;
/// Sectors of the bad-block log, which 1.0 has between bitmap and superblock.
const BAD_BLOCK_LOG: i64 = 8;
/// mdadm's initial value.
const PREFERRED_CHUNK_BYTES: u64 = 64 << 20;
/// The finest that mdadm makes.
const MIN_CHUNK_BYTES: u64 = 4096;

/// Placement of the bitmap of a new array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapPlacement {
    /// Sectors from the superblock (1.x: the field `bitmap_offset`).
    pub offset: i64,
    /// Room, in sectors.
    pub room_sectors: u64,
    /// Bytes that a bit stands for.
    pub chunk_bytes: u32,
}

/// Why a bitmap cannot be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// The members are too small to have room for one.
    NoRoom {
        /// Sectors of each member that the array uses.
        used_sectors: u64,
    },
    /// The chunk requested is no power of two, or finer than fits.
    Chunk {
        /// Bytes requested.
        requested: u64,
        /// The finest that fits.
        least: u64,
    },
    /// Even bits of 2 GiB each do not fit.
    TooLarge {
        /// Sectors to be covered.
        sync_sectors: u64,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::NoRoom { used_sectors } => {
                write!(f, "bitmap: members of {used_sectors} sectors have no room for one")
            }
            PlacementError::Chunk { requested, least } => write!(
                f,
                "bitmap chunk: {requested} bytes, not a power of two from {least} to 2147483648"
            ),
            PlacementError::TooLarge { sync_sectors } => {
                write!(f, "bitmap: {sync_sectors} sectors are too many for its room")
            }
        }
    }
}

impl std::error::Error for PlacementError {}

/// Sectors that mdadm leaves for a bitmap on a device, or over a used size, of `sectors`.
pub fn room_sectors(sectors: u64) -> u64 {
    match sectors {
        0..128 => 0,
        _ if sectors - 128 >= 200 * GIB_SECTORS => 256,
        _ if sectors - 8 > 8 * GIB_SECTORS => 128,
        _ => 8,
    }
}

impl BitmapPlacement {
    /// The bitmap of a new array whose members are used for `used_sectors` each, over
    /// `sync_sectors`, with bits of `requested_chunk_bytes` or mdadm's choice.
    ///
    /// # Errors
    /// No room, or not for the chunk that was requested.
    pub fn new(
        version: Version,
        used_sectors: u64,
        sync_sectors: u64,
        requested_chunk_bytes: Option<u64>,
    ) -> Result<BitmapPlacement, PlacementError> {
        let room_sectors = match version {
            Version::V0_90 => ROOM_V0_90,
            _ => room_sectors(used_sectors),
        };
        if room_sectors == 0 {
            return Err(PlacementError::NoRoom { used_sectors });
        }
        let bits = (room_sectors * SECTOR_BYTES - HEADER_BYTES as u64) * 8;
        let fits = |bytes: &u64| sync_sectors.div_ceil(bytes / SECTOR_BYTES) <= bits;
        let largest = 1_u64 << 31;
        let chunks = || std::iter::successors(Some(MIN_CHUNK_BYTES), |bytes| Some(bytes * 2));
        let Some(least) = chunks().take_while(|&bytes| bytes <= largest).find(fits) else {
            return Err(PlacementError::TooLarge { sync_sectors });
        };
        let chunk_bytes = match requested_chunk_bytes {
            None => least.max(PREFERRED_CHUNK_BYTES),
            Some(bytes) if bytes.is_power_of_two() && (least..=largest).contains(&bytes) => bytes,
            Some(requested) => return Err(PlacementError::Chunk { requested, least }),
        } as u32;
        let shape = BitmapShape::new(sync_sectors, chunk_bytes).expect("a power of two from 4096");
        let page_sectors = (shape.file_bytes().next_multiple_of(4096) / SECTOR_BYTES) as i64;
        let offset = match version {
            Version::V1_0 => -page_sectors - BAD_BLOCK_LOG,
            _ => BEHIND_SUPERBLOCK,
        };
        Ok(BitmapPlacement { offset, room_sectors, chunk_bytes })
    }
}
