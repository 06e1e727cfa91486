//! The boot sector of NTFS: the first sector of the volume, and a copy in its last.
//!
//! It does not say which of the two it is.

use crate::field::{le16, le64};

/// A boot sector whose numbers fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    pub serial: u64,
    pub sector: u32,
    pub cluster: u32,
    /// Sectors of the volume without the copy of this sector behind it.
    pub sectors: u64,
    /// First cluster of the MFT, and of the copy of its first records.
    pub mft: u64,
    pub mft_mirror: u64,
    /// Bytes of a record of the MFT, and of an index block.
    pub record: u32,
    pub index: u32,
}

impl Boot {
    /// Decodes 512 bytes.
    pub fn decode(bytes: &[u8]) -> Option<Boot> {
        let bytes = bytes.get(..512)?;
        if &bytes[3..11] != b"NTFS    " || bytes[510..] != [0x55, 0xaa] {
            return None;
        }
        let sector = u32::from(le16(bytes, 11));
        if !sector.is_power_of_two() || !(256..=4096).contains(&sector) {
            return None;
        }
        // Over 128 it is the negated exponent of two.
        let per_cluster = match bytes[13] {
            count @ 0..=128 => u32::from(count),
            exponent => 1_u32.checked_shl(256 - u32::from(exponent))?,
        };
        let cluster = sector.checked_mul(per_cluster).filter(|cluster| *cluster <= 2 << 20)?;
        let size = |at: usize| match bytes[at] as i8 {
            clusters @ 1.. => cluster.checked_mul(clusters as u32),
            exponent => 1_u32.checked_shl(u32::from(exponent.unsigned_abs())),
        };
        let boot = Boot {
            serial: le64(bytes, 72),
            sector,
            cluster,
            sectors: le64(bytes, 40),
            mft: le64(bytes, 48),
            mft_mirror: le64(bytes, 56),
            record: size(64)?,
            index: size(68)?,
        };
        let pow2 = |number: u32| number.is_power_of_two() && (256..=65536).contains(&number);
        let clusters = boot.sectors.checked_mul(sector.into())? / u64::from(cluster.max(1));
        let sane = cluster.is_power_of_two()
            && pow2(boot.record)
            && pow2(boot.index)
            && boot.sectors < i64::MAX as u64 / u64::from(sector)
            && boot.mft < clusters
            && boot.mft_mirror < clusters;
        sane.then_some(boot)
    }

    /// Bytes of the volume with the copy of the boot sector at its end.
    pub fn bytes(&self) -> u64 {
        (self.sectors + 1) * u64::from(self.sector)
    }

    /// The serial number as blkid prints it.
    pub fn uuid(&self) -> Option<String> {
        (self.serial != 0).then(|| format!("{:016X}", self.serial))
    }
}
