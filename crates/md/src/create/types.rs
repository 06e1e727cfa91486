//! The plan of a new array: plain data, and what must be written for it.

use crate::geometry::Geometry;
use crate::ondisk::bitmap::Bitmap;
use crate::ondisk::ppl::PplHeader;
use crate::ondisk::superblock::{Policy, Superblock};
use crate::ondisk::{Area, Role, Version, Write};
use crate::units::SECTOR_BYTES;

/// Bytes that an empty bad-block log is filled with.
pub(super) const NO_BAD_BLOCK: u8 = 0xff;

/// The placement of all areas on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLayout {
    /// The device, as an index into [`super::Request::devices`].
    pub device: usize,
    /// Its number in the array.
    pub dev_number: u32,
    /// Its slot, or spare.
    pub role: Role,
    /// `Some(0)`: it is to be rebuilt first.
    pub recovery_offset: Option<u64>,
    /// Data offset in sectors.
    pub data_offset: u64,
    /// Sectors for data.
    pub data_sectors: u64,
    /// Sector of the superblock.
    pub super_sector: u64,
    /// The pages of the bitmap.
    pub bitmap: Option<Area>,
    /// The bad-block log.
    pub bad_blocks: Option<Area>,
    /// The partial parity log.
    pub ppl: Option<Area>,
}

/// A new array.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Geometry of the array.
    pub geometry: Geometry,
    /// Version of the metadata.
    pub version: Version,
    /// Sectors of each member that it uses; 0 for linear and RAID 0.
    pub used_sectors: u64,
    /// Consistency policy; `None`: no redundancy.
    pub policy: Option<Policy>,
    /// Start of the initial resync; `None`: none is needed.
    pub resync_offset: Option<u64>,
    /// The devices, without missing ones, in the order of the request.
    pub places: Vec<DeviceLayout>,
    /// The bitmap's contents: every bit set.
    pub bitmap: Option<Bitmap>,
    /// The initial superblock of each of `places`.
    pub superblocks: Vec<Superblock>,
    /// Warnings for the administrator: sentences.
    pub warnings: Vec<String>,
}

impl Plan {
    /// What must be on a device before its superblock says so, in any order: the bitmap, the empty
    /// logs. A crash before the superblocks are written leaves no array.
    pub fn preparations(&self, places: &DeviceLayout) -> Vec<Write> {
        let mut writes = Vec::new();
        if let (Some(area), Some(bitmap)) = (places.bitmap, &self.bitmap) {
            let pages = (0..bitmap.shape().pages()).flat_map(|page| bitmap.encode_page(page));
            writes.push(Write::Bytes { sector: area.sector, bytes: pages.collect() });
        }
        if let Some(area) = places.bad_blocks {
            let bytes = vec![NO_BAD_BLOCK; (area.sectors * SECTOR_BYTES) as usize];
            writes.push(Write::Bytes { sector: area.sector, bytes });
        }
        if let Some(area) = places.ppl {
            // Whatever an older log left there would be taken for a newer one.
            let bytes = PplHeader::empty(self.superblocks[0].metadata().set_uuid).encode();
            let header = bytes.len() as u64 / SECTOR_BYTES;
            let rest = Area { sector: area.sector + header, sectors: area.sectors - header };
            writes.push(Write::Zeroes(rest));
            writes.push(Write::Bytes { sector: area.sector, bytes });
        }
        writes
    }
}
