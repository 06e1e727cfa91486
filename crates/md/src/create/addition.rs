//! A device that joins an array that exists: where its metadata are, and its first superblock.
//!
//! Invariant: everything is where it is on the other members, counted from the superblock or from
//! the begin of the device; only what depends on the device's size differs. Nothing says that the
//! device has a slot: that is written when the array runs with it.

use std::fmt;

use super::device_layout;
use super::request::Device;
use crate::ondisk::ppl::PplHeader;
use crate::ondisk::superblock::{
    DISKS_MAX, DeviceState, Policy, ROLES_MAX, Superblock, SuperblockV1, feature,
};
use crate::ondisk::{Area, Role, Version, Write};
use crate::units::SECTOR_BYTES;

/// A device that joins an array.
#[derive(Clone, Debug)]
pub struct Addition {
    /// What its superblocks are made from: a spare.
    pub superblock: Superblock,
    /// What must be on the device before its superblock is.
    pub preparations: Vec<Write>,
}

/// Why a device cannot join an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdditionError {
    /// It is too small.
    TooSmall {
        /// The device's label.
        label: String,
        /// Sectors that it would have for data.
        room: u64,
        /// Sectors that the array uses.
        used: u64,
    },
    /// The metadata cannot describe one more device.
    Number {
        /// The number that it would have.
        number: u32,
        /// The array's metadata.
        version: Version,
        /// The maximum.
        most: usize,
    },
}

impl fmt::Display for AdditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdditionError::TooSmall { label, room, used } => write!(
                f,
                "{label}: has room for {room} sectors of data, and the array uses {used} sectors \
                 of each member"
            ),
            AdditionError::Number { number, version, most } => {
                write!(f, "device number {number}: metadata {version} describes at most {most}")
            }
        }
    }
}

impl std::error::Error for AdditionError {}

/// The addition of a device to an array with redundancy that this superblock is of, as device
/// `number`.
///
/// # Errors
/// The device is too small, or there are too many.
pub fn addition(
    defining: &Superblock,
    number: u32,
    device: &Device,
) -> Result<Addition, AdditionError> {
    let version = defining.version();
    let metadata = defining.metadata();
    let used = metadata.used_sectors;
    let super_sector = device_layout::super_sector(version, device.sectors);
    let too_small = |room| AdditionError::TooSmall { label: device.label.clone(), room, used };
    let super_sector = super_sector.ok_or_else(|| too_small(0))?;
    let most = if version == Version::V0_90 { DISKS_MAX } else { ROLES_MAX };
    if number as usize >= most {
        return Err(AdditionError::Number { number, version, most });
    }
    let superblock: Superblock = match defining {
        Superblock::V0(v0) => {
            let room = super_sector;
            if room < used {
                return Err(too_small(room));
            }
            let mut v0 = v0.clone();
            v0.sector = super_sector;
            // A device number of another device would be misleading.
            (v0.this_disk.major, v0.this_disk.minor) = (0, 0);
            Superblock::V0(v0)
        }
        Superblock::V1(v1) => {
            let room = room(v1, super_sector, device.sectors);
            let room =
                room.filter(|room| *room >= used).ok_or_else(|| too_small(room.unwrap_or(0)));
            let mut v1 = v1.clone();
            v1.feature_map &= !(feature::RECOVERY_OFFSET
                | feature::RECOVERY_BITMAP
                | feature::BAD_BLOCKS
                | feature::REPLACEMENT);
            v1.super_offset = super_sector;
            v1.data_size = room?;
            v1.dev_number = number;
            v1.device_uuid = device.uuid;
            v1.cnt_corrected_read = 0;
            v1.recovery_offset = 0;
            v1.devflags = 0;
            Superblock::V1(v1)
        }
    };
    let mut state = superblock.state();
    let at = number as usize;
    state.devices.resize(state.devices.len().max(at + 1), None);
    let mut me = DeviceState::new(Role::Spare);
    (me.write_mostly, me.failfast) = (device.write_mostly, device.failfast);
    state.devices[at] = Some(me);
    let superblock = superblock.with_state(&state, at).expect("a spare fits");
    let preparations = preparations(&superblock, state.policy);
    Ok(Addition { superblock, preparations })
}

/// Sectors for data, if everything is where it is on the member with this superblock.
fn room(member: &SuperblockV1, super_sector: u64, device_sectors: u64) -> Option<u64> {
    match member.version {
        // What lies between the data and the superblock does so here, too.
        Version::V1_0 => {
            let behind = member.super_offset.checked_sub(member.data_offset + member.data_size);
            super_sector.checked_sub(member.data_offset)?.checked_sub(behind.unwrap_or(0))
        }
        _ => device_sectors.checked_sub(member.data_offset),
    }
}

fn preparations(superblock: &Superblock, policy: Policy) -> Vec<Write> {
    let Superblock::V1(v1) = superblock else { return Vec::new() };
    let area = |offset: i64, sectors: u64| Area {
        sector: v1.super_offset.saturating_add_signed(offset),
        sectors,
    };
    let mut writes = Vec::new();
    if v1.bblog_offset != 0 && v1.bblog_size != 0 {
        let Area { sector, sectors } = area(v1.bblog_offset.into(), v1.bblog_size.into());
        let bytes = vec![super::types::NO_BAD_BLOCK; (sectors * SECTOR_BYTES) as usize];
        writes.push(Write::Bytes { sector, bytes });
    }
    if policy == Policy::Ppl {
        let log = area(v1.ppl_offset().into(), v1.ppl_size().into());
        let bytes = PplHeader::empty(v1.set_uuid).encode();
        let header = (bytes.len() as u64 / SECTOR_BYTES).min(log.sectors);
        let rest = Area { sector: log.sector + header, sectors: log.sectors - header };
        writes.push(Write::Zeroes(rest));
        writes.push(Write::Bytes { sector: log.sector, bytes });
    }
    writes
}
