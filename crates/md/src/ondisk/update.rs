//! The bytes of a device's metadata updates.
//!
//! Invariant: an update is based on the superblock as found at assembly, and changes only what the
//! array's state says. The caller orders the writes and makes them durable. Called by `array`, on
//! the threads that write metadata, and by simulations of them.

use std::fmt;

use super::bitmap::{BitmapHeader, PAGE_BYTES};
use super::ppl::{PPL_HEADER_SECTORS, PplHeader};
use super::superblock::{ArrayState, StateError, Superblock};
use super::{Area, Timestamp};
use crate::units::SECTOR_BYTES;

/// Something to be written to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Write zeroes to an area.
    Zeroes(Area),
    /// Bytes, a multiple of the device's logical block.
    Bytes {
        /// First sector.
        sector: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
}

/// Why an update cannot be encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateError {
    /// The superblock cannot hold the state.
    State(StateError),
    /// The area of the bitmap ends before this page does.
    BitmapRoom {
        /// The page.
        page: u32,
    },
}

impl fmt::Display for UpdateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpdateError::State(error) => error.fmt(f),
            UpdateError::BitmapRoom { page } => {
                write!(f, "the bitmap has no room for the bits of its page {page}")
            }
        }
    }
}

impl std::error::Error for UpdateError {}

/// Encodes the updates of one device's metadata.
#[derive(Clone, Debug)]
pub struct MetadataEncoder {
    /// Its superblock as found at assembly: a log that is turned off for now keeps its place.
    pub superblock: Superblock,
    /// Its number in the array.
    pub number: u32,
    /// Logical block of the device in bytes.
    pub logical_block: u32,
    /// The bitmap's area, and its header as read or as last encoded.
    pub bitmap: Option<(Area, BitmapHeader)>,
    /// The area of the partial parity log.
    pub ppl: Option<Area>,
}

impl MetadataEncoder {
    /// The superblock of the array in this state, last updated at this time.
    ///
    /// # Errors
    /// The superblock cannot hold the state.
    pub fn superblock(&self, state: &ArrayState, updated: Timestamp) -> Result<Write, UpdateError> {
        let state = ArrayState { updated, ..state.clone() };
        let next = self.superblock.with_state(&state, self.number as usize);
        let next = next.map_err(UpdateError::State)?;
        let bytes = next.encode(self.logical_block as usize);
        Ok(Write::Bytes { sector: next.sector(), bytes })
    }

    /// A page of the bitmap; `None` if the device has none. `header`: the event counts (current,
    /// and as of the last cleared bits) of a header that is valid from now on; without them the
    /// one on the device stays.
    ///
    /// # Errors
    /// The page does not fit the bitmap's area.
    pub fn bitmap_page(
        &mut self,
        page: u32,
        header: Option<(u64, u64)>,
        bits: &[u8],
    ) -> Result<Option<Write>, UpdateError> {
        let Some((area, known)) = &mut self.bitmap else { return Ok(None) };
        if let Some((events, events_cleared)) = header {
            known.events = events;
            known.events_cleared = events_cleared;
            known.state = 0;
        }
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        if page == 0 {
            bytes.extend_from_slice(&known.encode());
        }
        bytes.extend_from_slice(bits);
        // Bits behind the last one: clear, as the kernel leaves them.
        let block = (self.logical_block as usize).max(SECTOR_BYTES as usize);
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        let first = u64::from(page) * (PAGE_BYTES as u64 / SECTOR_BYTES);
        let sectors = bytes.len() as u64 / SECTOR_BYTES;
        if first + sectors > area.sectors {
            return Err(UpdateError::BitmapRoom { page });
        }
        Ok(Some(Write::Bytes { sector: area.sector + first, bytes }))
    }

    /// What ends the use of the partial parity log: a header before which all others are older.
    /// `None`: the device has no log.
    pub fn end_ppl(&self) -> Option<Write> {
        let header = PplHeader::last(self.superblock.metadata().set_uuid);
        self.ppl.map(|area| Write::Bytes { sector: area.sector, bytes: header.encode() })
    }

    /// What empties the area behind that header, once it is durable: generations begin again, and
    /// what an earlier use left behind would look newer. (With the header still to be written, a
    /// torn write of zeroes could leave an older log as the newest one.)
    pub fn empty_ppl(&self) -> Option<Write> {
        let sectors = PPL_HEADER_SECTORS;
        let behind = |area: Area| Area {
            sector: area.sector + sectors,
            sectors: area.sectors.saturating_sub(sectors),
        };
        self.ppl.map(|area| Write::Zeroes(behind(area)))
    }
}
