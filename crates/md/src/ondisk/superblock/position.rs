//! Where each version of the superblock lies on a device.

use crate::ondisk::Version;

/// Less than this mdadm does not look at.
const DEVICE_SECTORS_MIN: u64 = 24;

/// Where a version has its superblock on a device of this length, if it can have one.
pub fn location(version: Version, device_sectors: u64) -> Option<u64> {
    match version {
        Version::V0_90 => (device_sectors / 128 * 128).checked_sub(128),
        Version::Imsm | Version::Ddf => None,
        _ if device_sectors < DEVICE_SECTORS_MIN => None,
        Version::V1_0 => Some((device_sectors - 16) / 8 * 8),
        Version::V1_1 => Some(0),
        Version::V1_2 => Some(8),
    }
}
