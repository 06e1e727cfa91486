//! The placement of metadata and data by mdadm 4.2.
//!
//! Invariant: sectors of the device throughout; numbers and rules: docs/format/placement.md.

use crate::ondisk::Version;
use crate::ondisk::bitmap::room_sectors;

/// Room of a partial parity log.
pub(super) const PPL_SECTORS: u64 = 2048;
/// Room of a bad-block log.
pub(super) const BAD_BLOCK_SECTORS: u64 = 8;
/// A superblock 1.x and what is kept free around it.
pub(super) const SUPER_SECTORS: u64 = 8;

/// Maximum space that mdadm reserves for a later reshape.
const HEADROOM_MAX: u64 = 262_144;
/// Data offsets are whole MiB.
const DATA_ALIGN: u64 = 2048;

/// Room that is kept for a bitmap, or taken by a partial parity log.
pub(super) fn log_room(sectors: u64, ppl: bool) -> u64 {
    if ppl { PPL_SECTORS } else { room_sectors(sectors) }
}

/// Where data starts on 1.1 and 1.2, computed from the first device.
pub(super) fn data_offset(device_sectors: u64, chunk_sectors: u64, ppl: bool) -> u64 {
    let mut headroom = HEADROOM_MAX;
    while headroom * 1024 > device_sectors
        && headroom > 0
        && (chunk_sectors == 0 || headroom / 2 >= 2 * chunk_sectors)
    {
        headroom /= 2;
    }
    (24 + log_room(device_sectors, ppl) + headroom).next_multiple_of(DATA_ALIGN)
}

/// Where the superblock is; `None`: the device is too small for one.
pub(super) fn super_sector(version: Version, device_sectors: u64) -> Option<u64> {
    crate::ondisk::superblock::location(version, device_sectors)
}

/// Sectors of a device that could hold data, before any rounding.
pub(super) fn free_sectors(
    version: Version,
    device_sectors: u64,
    data_offset: u64,
    ppl: bool,
) -> Option<u64> {
    match version {
        Version::V0_90 => super_sector(version, device_sectors)?.checked_sub(data_offset),
        Version::V1_0 => {
            let whole = device_sectors / 8 * 8;
            let behind = 16 + BAD_BLOCK_SECTORS + log_room(device_sectors, ppl);
            whole.checked_sub(behind)?.checked_sub(data_offset)
        }
        Version::V1_1 | Version::V1_2 => device_sectors.checked_sub(data_offset),
        Version::Imsm | Version::Ddf => None,
    }
}

/// Size of a member's data area once the used size is known, in sectors.
///
/// `log_sectors`: of the bitmap in whole pages, of the partial parity log, or kept free for one.
pub(super) fn data_sectors(
    version: Version,
    device_sectors: u64,
    data_offset: u64,
    used_sectors: u64,
    log_sectors: u64,
) -> Option<u64> {
    match version {
        Version::V0_90 => super_sector(version, device_sectors)?.checked_sub(data_offset),
        Version::V1_0 => {
            let before = super_sector(version, device_sectors)?.checked_sub(data_offset)?;
            // With a requested size, metadata gets the remaining space.
            let kept = (log_sectors + BAD_BLOCK_SECTORS).min(before.checked_sub(used_sectors)?);
            Some(before - kept)
        }
        Version::V1_1 | Version::V1_2 => device_sectors.checked_sub(data_offset),
        Version::Imsm | Version::Ddf => None,
    }
}

/// Sectors from the superblock to the bad-block log; `None`: 0.90 has none, and a data offset that
/// was requested may leave no room.
///
/// `log_sectors` are taken, or, if `log_is_there` is not set, only kept free for a later bitmap.
pub(super) fn bad_blocks(
    version: Version,
    super_sector: u64,
    data_offset: u64,
    log_sectors: u64,
    log_is_there: bool,
) -> Option<i64> {
    match version {
        Version::V0_90 | Version::Imsm | Version::Ddf => None,
        Version::V1_0 => Some(-(BAD_BLOCK_SECTORS as i64)),
        Version::V1_1 | Version::V1_2 => {
            let behind_log = SUPER_SECTORS + log_sectors;
            let last = data_offset.checked_sub(super_sector + BAD_BLOCK_SECTORS)?;
            let least = if log_is_there { behind_log } else { SUPER_SECTORS };
            (last >= least).then_some(behind_log.min(last) as i64)
        }
    }
}

/// Sectors from the superblock to the partial parity log (1.x).
pub(super) fn ppl(version: Version) -> i64 {
    match version {
        Version::V1_0 => -((PPL_SECTORS + BAD_BLOCK_SECTORS) as i64),
        _ => SUPER_SECTORS as i64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 2048;
    const GIB: u64 = 1024 * MIB;

    /// Found by running mdadm 4.2; docs/format/placement.md, Data offset.
    #[test]
    fn data_offsets_are_mdadms() {
        let table = [
            (8 * MIB, 0, 2048),
            (1000 * MIB, 0, 2048),
            (16 * MIB, 128, 2048),
            (16 * MIB, 1024, 4096),
            (GIB, 1024, 4096),
            (10 * GIB, 1024, 18432),
            (100 * GIB, 1024, 133_120),
            (150 * GIB, 1024, 264_192),
            (20 << 31, 1024, 264_192),
        ];
        for (device, chunk, expected) in table {
            assert_eq!(data_offset(device, chunk, false), expected, "{device} sectors");
        }
        assert_eq!(data_offset(16 * MIB, 128, true), 4096);
    }
}
