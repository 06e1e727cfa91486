//! The metadata of one disk: bytes to a plain value.
//!
//! ```text
//!            D - 1 - s          D - 2        D - 1        D     (blocks of the disk)
//!   ... data | bytes 512 to end | bytes 0..512 | not used |
//! ```
//!
//! Invariant: a table that decodes has all its disks, volumes and maps inside of its bytes; whether
//! its checksum is right is said beside it.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::format::*;
use crate::foreign::Unusable;
use crate::foreign::text::{part, text};
use crate::ondisk::superblock::Checksum;
use crate::ondisk::{DecodeError, Field};
use crate::units::SECTOR_BYTES;

/// Longest metadata that are read: mdadm keeps 2210 sectors free for all that is there.
const BYTES_MAX: usize = 2210 * 512;

/// The metadata of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Sector (of 512 bytes) of the disk with the start of it.
    pub sector: u64,
    /// First sector of the rest: what lies below it is free for data.
    #[serde(skip)]
    pub first_sector: u64,
    /// Bytes of a block of the disk: 512 or 4096.
    pub block_bytes: u32,
    /// Whether the sum of all words is what it should be.
    #[serde(rename = "checksum_correct", serialize_with = "is_correct")]
    pub checksum: Checksum,
    /// As text, `1.2.02`.
    pub version: String,
    /// Identity of the container, which changes when a disk joins or leaves it.
    pub family: u32,
    /// Identity that it was created with; 0 in old versions.
    pub orig_family: u32,
    /// Counts the writes of the metadata.
    pub generation: u32,
    /// Attribute bits.
    pub attributes: u32,
    /// Seconds since 1970, 0 in old versions.
    #[serde(rename = "created_unix_s")]
    pub created: u64,
    /// Entries of the log of bad blocks; `None`: there is none that can be read.
    #[serde(rename = "bad_block_ranges")]
    pub bad_blocks: Option<u32>,
    /// The disks of the container.
    pub disks: Vec<DiskEntry>,
    /// Volumes of the container.
    pub volumes: Vec<Volume>,
    /// All bytes: copies of one generation are equal.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

fn is_correct<S: Serializer>(checksum: &Checksum, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(checksum.is_correct())
}

/// A disk of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiskEntry {
    /// The last 16 characters of its serial number.
    pub serial: String,
    /// Its length in sectors.
    pub sectors: u64,
    /// State bits, [`DISK_STATES`].
    pub status: u32,
}

impl DiskEntry {
    /// True: the disk failed.
    pub fn failed(&self) -> bool {
        self.status & DISK_FAILED != 0
    }

    /// Whether it is a spare.
    pub fn spare(&self) -> bool {
        self.status & DISK_SPARE != 0
    }
}

/// A volume: an array on a part of the disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// Name of the volume.
    pub name: String,
    /// The 16 bytes of the name as they are.
    #[serde(skip)]
    pub raw_name: [u8; 16],
    /// Sectors that it offers.
    pub sectors: u64,
    /// State bits.
    pub status: u32,
    /// Whether a migration is in progress.
    pub migrating: bool,
    /// Its kind, [`MIGRATIONS`]; without meaning otherwise.
    pub migration: u8,
    /// How far it has come, in units of its own.
    pub migration_unit: u64,
    /// It was in use when the metadata were written.
    pub dirty: u8,
    /// The map; in a migration the one that it leads to.
    pub map: Map,
    /// In a migration: the map that it began with.
    #[serde(rename = "map_before")]
    pub before: Option<Map>,
}

/// Where a volume is on its disks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Map {
    /// First sector on each disk.
    #[serde(rename = "offset_sectors")]
    pub offset: u64,
    /// Sectors reserved on each disk.
    pub member_sectors: u64,
    /// Number of stripes.
    pub stripes: u64,
    /// Sectors of a chunk.
    pub strip_sectors: u64,
    /// State, [`MAP_STATES`].
    pub state: u8,
    /// 0, 1 (also 1+0), 5, 10.
    pub level: u8,
    /// Copies of each chunk, 1 where there are none.
    pub domains: u8,
    /// Slot of a disk that failed, 255: none.
    pub failed_slot: u8,
    /// The disk of each slot.
    pub slots: Vec<SlotEntry>,
}

/// The disk of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlotEntry {
    /// Index into the table of disks.
    pub disk: u32,
    /// It does not hold its data: it failed, or is being rebuilt.
    pub rebuild: bool,
}

/// Where the metadata would begin on a disk of this length (sectors), with the bytes of a block.
pub fn anchor_sectors(device_sectors: u64) -> impl Iterator<Item = (u64, u32)> {
    [512_u32, 4096].into_iter().filter_map(move |block| {
        let blocks = device_sectors / (u64::from(block) / SECTOR_BYTES);
        let whole = device_sectors.is_multiple_of(u64::from(block) / SECTOR_BYTES);
        let at = blocks.checked_sub(2).filter(|_| whole)?;
        Some((at * (u64::from(block) / SECTOR_BYTES), block))
    })
}

/// Reads the metadata of a disk, if they are there: `read` fills whole sectors.
///
/// # Errors
/// The metadata are there, and cannot be read or decoded.
pub fn read<E: std::fmt::Display>(
    device_sectors: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Option<Result<Table, Unusable>> {
    for (sector, block) in anchor_sectors(device_sectors) {
        let mut bytes = vec![0; 512];
        if read(sector, &mut bytes).is_err() || !bytes.starts_with(SIGNATURE) {
            continue;
        }
        return Some(rest(sector, block, bytes, &mut read));
    }
    None
}

/// Reads what lies before the anchor, and decodes it.
fn rest<E: std::fmt::Display>(
    sector: u64,
    block: u32,
    anchor: Vec<u8>,
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<(), E>,
) -> Result<Table, Unusable> {
    let size = size(&anchor)?;
    let failed = |sector: u64| move |error: E| Unusable::Read { sector, error: error.to_string() };
    // The first block has 512 bytes of the metadata where blocks have 512 bytes, else 4096.
    let mut bytes = anchor;
    if block > 512 {
        bytes.resize(block as usize, 0);
        read(sector, &mut bytes).map_err(failed(sector))?;
    }
    let behind = size.saturating_sub(block as usize);
    let sectors = behind.div_ceil(block as usize) as u64 * u64::from(block) / SECTOR_BYTES;
    let first = sector.checked_sub(sectors);
    let first = first.ok_or(Unusable::Long { bytes: size })?;
    let mut more = vec![0; (sectors * SECTOR_BYTES) as usize];
    if sectors > 0 {
        read(first, &mut more).map_err(failed(first))?;
    }
    bytes.extend(more);
    bytes.truncate(size);
    Ok(decode(&bytes, block, sector)?)
}

fn error(field: Field, base: usize, problem: impl Into<Cow<'static, str>>) -> DecodeError {
    let (field, offset) = (field.name, base + field.offset);
    DecodeError { structure: "imsm", field, offset, problem: problem.into() }
}

/// The length of the metadata, from their first 512 bytes.
fn size(anchor: &[u8]) -> Result<usize, DecodeError> {
    if anchor.len() < HEADER_BYTES {
        return Err(error(SIG, 0, "the header is cut off"));
    }
    let size = SIZE.u32(anchor) as usize;
    if !(HEADER_BYTES..=BYTES_MAX).contains(&size) || !size.is_multiple_of(4) {
        return Err(error(
            SIZE,
            0,
            format!("{size} bytes, {HEADER_BYTES} to {BYTES_MAX} in words"),
        ));
    }
    Ok(size)
}

/// The metadata in these bytes, of which the first 512 are those at `sector`.
///
/// # Errors
/// The signature, or a number that leads out of the bytes.
pub fn decode(bytes: &[u8], block_bytes: u32, sector: u64) -> Result<Table, DecodeError> {
    if !bytes.starts_with(SIGNATURE) {
        return Err(error(SIG, 0, "it is another one"));
    }
    let size = size(bytes)?;
    let Some(bytes) = bytes.get(..size) else {
        return Err(error(SIZE, 0, format!("{size} bytes, {} are there", bytes.len())));
    };
    let unit = u64::from(block_bytes.max(512)) / SECTOR_BYTES;
    let mut at = HEADER_BYTES;
    let disks = (0..DISKS.u8(bytes)).map(|_| {
        let entry = part(bytes, at, DISK_BYTES).ok_or_else(|| error(DISKS, 0, CUT_OFF))?;
        at += DISK_BYTES;
        let total = wide(TOTAL_LOW, TOTAL_HIGH, entry).saturating_mul(unit);
        let status = STATUS.u32(entry);
        Ok(DiskEntry { serial: text(SERIAL.bytes(entry)), sectors: total, status })
    });
    let disks = disks.collect::<Result<Vec<_>, DecodeError>>()?;
    let volumes = (0..VOLUMES.u8(bytes)).map(|_| volume(bytes, &mut at, unit));
    let volumes = volumes.collect::<Result<Vec<_>, DecodeError>>()?;
    let behind = (size.saturating_sub(block_bytes as usize)).div_ceil(block_bytes.max(1) as usize);
    Ok(Table {
        sector,
        first_sector: sector.saturating_sub(behind as u64 * unit),
        block_bytes,
        checksum: checksum(bytes),
        version: text(VERSION.bytes(bytes)),
        family: FAMILY.u32(bytes),
        orig_family: ORIG_FAMILY.u32(bytes),
        generation: GENERATION.u32(bytes),
        attributes: ATTRIBUTE_BITS.u32(bytes),
        created: CREATED.u64(bytes),
        bad_blocks: bad_blocks(bytes),
        disks,
        volumes,
        bytes: bytes.to_vec(),
    })
}

const CUT_OFF: &str = "more than the metadata have room for";

/// The sum of all words but the checksum itself.
fn checksum(bytes: &[u8]) -> Checksum {
    let stored = CHECK_SUM.u32(bytes);
    let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4")));
    let computed = words.fold(0_u32, u32::wrapping_add).wrapping_sub(stored);
    match stored == computed {
        true => Checksum::Correct { stored },
        false => Checksum::Wrong { stored, computed },
    }
}

fn wide(low: Field, high: Field, bytes: &[u8]) -> u64 {
    u64::from(low.u32(bytes)) | u64::from(high.u32(bytes)) << 32
}

fn volume(bytes: &[u8], at: &mut usize, unit: u64) -> Result<Volume, DecodeError> {
    let cut_off = || error(VOLUMES, 0, CUT_OFF);
    let fixed = part(bytes, *at, VOLUME_BYTES).ok_or_else(cut_off)?;
    *at += VOLUME_BYTES;
    let migrating = MIGRATING.u8(fixed) != 0;
    let first = map(bytes, at, unit)?;
    let before = migrating.then(|| map(bytes, at, unit)).transpose()?;
    Ok(Volume {
        name: text(NAME.bytes(fixed)),
        raw_name: NAME.array(fixed),
        sectors: wide(SIZE_LOW, SIZE_HIGH, fixed).saturating_mul(unit),
        status: VOLUME_STATUS.u32(fixed),
        migrating,
        migration: MIGRATION.u8(fixed),
        migration_unit: wide(MIGRATION_UNIT, MIGRATION_UNIT_HIGH, fixed),
        dirty: DIRTY.u8(fixed),
        map: first,
        before,
    })
}

fn map(bytes: &[u8], at: &mut usize, unit: u64) -> Result<Map, DecodeError> {
    let base = *at;
    let fixed = part(bytes, base, MAP_BYTES).ok_or_else(|| error(VOLUMES, 0, CUT_OFF))?;
    let members = usize::from(MEMBERS.u8(fixed));
    // Even of a map without members there is one entry.
    let length = members.max(1) * SLOT_BYTES;
    let slots = part(bytes, base + MAP_BYTES, length);
    let slots = slots.ok_or_else(|| error(MEMBERS, base, CUT_OFF))?;
    *at += MAP_BYTES + length;
    let entry = |entry: &[u8]| SlotEntry {
        disk: u32::from_le_bytes([entry[0], entry[1], entry[2], 0]),
        rebuild: entry[3] & SLOT_REBUILD != 0,
    };
    Ok(Map {
        offset: wide(OFFSET_LOW, OFFSET_HIGH, fixed).saturating_mul(unit),
        member_sectors: wide(MEMBER_LOW, MEMBER_HIGH, fixed).saturating_mul(unit),
        stripes: wide(STRIPES_LOW, STRIPES_HIGH, fixed),
        strip_sectors: u64::from(STRIP.u16(fixed)) * unit,
        state: STATE.u8(fixed),
        level: LEVEL.u8(fixed),
        domains: DOMAINS.u8(fixed),
        failed_slot: FAILED.u8(fixed),
        slots: slots.chunks_exact(SLOT_BYTES).take(members).map(entry).collect(),
    })
}

/// Entries of the log of bad blocks, which is at the end of the metadata.
fn bad_blocks(bytes: &[u8]) -> Option<u32> {
    let size = BAD_BLOCK_LOG_SIZE.u32(bytes) as usize;
    let log = bytes.get(bytes.len().checked_sub(size)?..).filter(|log| log.len() >= 8)?;
    let word = |at: usize| u32::from_le_bytes(log[at..at + 4].try_into().expect("four bytes"));
    (word(0) == 0xabad_b10c).then(|| word(4))
}
