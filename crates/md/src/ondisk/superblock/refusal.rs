//! Reasons why a kernel refuses a member.
//!
//! Owns the acceptance rules for a single superblock (the rules between members belong to
//! the assembly). Invariant: a superblock without a refusal here is imported by the kernel, given
//! that it can read the member; each rule has been tried on one. Called by `examine`, by the
//! assembly, and by `create` on what it is about to write.

use std::fmt;

use super::position::location;
use super::v1::{PAD3, feature};
use super::{ByteOrder, Checksum, SuperblockV0, SuperblockV1};
use crate::ondisk::Version;

/// The kernel versions that refuse a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// All of them.
    All,
    /// Kernels without support for `logical_block_size`.
    UpTo6_18,
}

/// A reason why the kernel refuses a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The checksum is not that of the bytes.
    Checksum {
        /// The stored checksum.
        stored: u32,
        /// The computed checksum.
        computed: u32,
    },
    /// Its `super_offset` is another place: it was copied, or the device was resized.
    Misplaced {
        /// The place that it records, sectors.
        says: u64,
        /// Where the version has it on a device of this size; `None`: too small.
        belongs: Option<u64>,
    },
    /// Unknown feature bits.
    UnknownFeatures {
        /// The unknown bits.
        bits: u32,
    },
    /// Two features that exclude each other; the kernel drops the member's information.
    FeatureConflict {
        /// Both, with others that are in their way.
        bits: u32,
    },
    /// A RAID 0 layout on another level.
    Raid0Layout {
        /// The level.
        level: i32,
    },
    /// `pad0` is not 0.
    Pad0 {
        /// Value of the field.
        value: u32,
    },
    /// Bytes behind `logical_block_size` are not 0.
    Pad3 {
        /// The first such byte.
        offset: usize,
    },
    /// `logical_block_size` is neither 0 nor a block size.
    LogicalBlockSize {
        /// Value of the field.
        value: u32,
    },
    /// `logical_block_size` is set; kernels up to 6.18 take it for garbage.
    TooNew {
        /// Value of the field.
        logical_block_size: u32,
    },
    /// No room for data: less than 10 sectors.
    DataTooSmall {
        /// The room.
        sectors: u64,
    },
    /// Data would begin inside the superblock.
    DataInSuperblock {
        /// Where they begin, now or after the reshape.
        data: u64,
        /// Where the superblock ends.
        superblock_end: u64,
    },
    /// Data would go beyond what the device has for them.
    DataBeyondEnd {
        /// Sectors required.
        wanted: u64,
        /// Sectors that are there.
        room: u64,
    },
    /// There are bad blocks, but nowhere.
    BadBlocksNowhere,
    /// The bad-block log has more than one page of 4 KiB.
    BadBlocksTooLong {
        /// Length of the log in sectors.
        sectors: u16,
    },
    /// Bad blocks are counted in units that cannot be.
    BadBlockShift {
        /// The shift.
        shift: u8,
    },
    /// 0.90 of a machine with the other byte order.
    BigEndian,
    /// Neither 0.90 nor 0.91.
    MinorVersion {
        /// Minor version in the superblock.
        minor: u32,
    },
    /// An array of no members.
    NoRaidDisks,
}

impl Refusal {
    /// The kernel versions that refuse it.
    pub fn kernels(&self) -> Kernels {
        match self {
            Refusal::TooNew { .. } => Kernels::UpTo6_18,
            _ => Kernels::All,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Checksum { stored, computed } => {
                write!(f, "checksum is {stored:08x}, should be {computed:08x}")
            }
            Refusal::Misplaced { says, belongs: Some(belongs) } => write!(
                f,
                "superblock is of sector {says}, but on this device it belongs to sector {belongs}"
            ),
            Refusal::Misplaced { says, belongs: None } => {
                write!(f, "superblock is of sector {says}, but the device is too small for one")
            }
            Refusal::UnknownFeatures { bits } => write!(f, "unknown feature bits {bits:#x}"),
            Refusal::FeatureConflict { bits } => {
                write!(f, "feature bits {bits:#x} exclude each other")
            }
            Refusal::Raid0Layout { level } => {
                write!(f, "feature bit 0x1000 (RAID 0 layout) on level {level}")
            }
            Refusal::Pad0 { value } => write!(f, "pad0 is {value:#x} instead of 0"),
            Refusal::Pad3 { offset } => write!(f, "byte {offset} (pad3) is not 0"),
            Refusal::LogicalBlockSize { value } => {
                write!(f, "logical block size {value} is no power of two of 512 to 4096")
            }
            Refusal::TooNew { logical_block_size } => write!(
                f,
                "logical block size {logical_block_size} is recorded, which Linux before 6.19 \
                 refuses"
            ),
            Refusal::DataTooSmall { sectors } => {
                write!(f, "room for {sectors} sectors of data, 10 is the least")
            }
            Refusal::DataInSuperblock { data, superblock_end } => write!(
                f,
                "data begin at sector {data}, but the superblock ends at sector {superblock_end}"
            ),
            Refusal::DataBeyondEnd { wanted, room } => {
                write!(f, "{wanted} sectors are for data, but the device has only {room}")
            }
            Refusal::BadBlocksNowhere => write!(f, "bad blocks are recorded, but there is no log"),
            Refusal::BadBlocksTooLong { sectors } => {
                write!(f, "bad-block log of {sectors} sectors, 8 is the most")
            }
            Refusal::BadBlockShift { shift } => {
                write!(f, "bad blocks count in units of 2^{shift} sectors")
            }
            Refusal::BigEndian => {
                write!(f, "written by a big-endian machine; only such a machine takes it")
            }
            Refusal::MinorVersion { minor } => write!(f, "version 0.{minor} is not known"),
            Refusal::NoRaidDisks => write!(f, "an array of 0 members"),
        }
    }
}

/// Pairs of feature bits of which only one may be set.
const CONFLICTS: [(u32, u32); 3] = [
    (feature::PPL, feature::MULTIPLE_PPLS),
    (feature::PPL | feature::MULTIPLE_PPLS, feature::BITMAP_OFFSET),
    (feature::PPL | feature::MULTIPLE_PPLS, feature::JOURNAL),
];

/// The least that a member has for data.
const DATA_SECTORS_MIN: u64 = 10;

/// Maximum size of a bad-block log: one page.
const BBLOG_SECTORS_MAX: u16 = 8;

impl SuperblockV1 {
    /// Everything for which the kernel would not take this member, on a device of this length and
    /// block size (bytes), and with this verdict on its checksum.
    pub fn kernel_refusals(
        &self,
        checksum: Checksum,
        device_sectors: u64,
        logical_block: usize,
    ) -> Vec<Refusal> {
        let mut found = checksum_refusal(checksum);
        let belongs = location(self.version, device_sectors);
        if belongs != Some(self.super_offset) {
            found.push(Refusal::Misplaced { says: self.super_offset, belongs });
        }
        self.refuse_features(&mut found);
        self.refuse_padding(&mut found);
        self.refuse_data(device_sectors, logical_block, &mut found);
        self.refuse_bad_blocks(&mut found);
        found
    }

    fn refuse_features(&self, found: &mut Vec<Refusal>) {
        let unknown = self.feature_map & !feature::KNOWN;
        if unknown != 0 {
            found.push(Refusal::UnknownFeatures { bits: unknown });
        }
        for (one, other) in CONFLICTS {
            let (one, other) = (self.feature_map & one, self.feature_map & other);
            if one != 0 && other != 0 {
                found.push(Refusal::FeatureConflict { bits: one | other });
            }
        }
        if self.has(feature::RAID0_LAYOUT) && self.level != 0 {
            found.push(Refusal::Raid0Layout { level: self.level });
        }
    }

    fn refuse_padding(&self, found: &mut Vec<Refusal>) {
        if self.pad0 != 0 {
            found.push(Refusal::Pad0 { value: self.pad0 });
        }
        if let Some(index) = self.pad3.iter().position(|&byte| byte != 0) {
            found.push(Refusal::Pad3 { offset: PAD3.offset + index });
        }
        match self.logical_block_size {
            0 => {}
            size if size.is_power_of_two() && (512..=4096).contains(&size) => {
                found.push(Refusal::TooNew { logical_block_size: size });
            }
            value => found.push(Refusal::LogicalBlockSize { value }),
        }
    }

    fn refuse_data(&self, device_sectors: u64, logical_block: usize, found: &mut Vec<Refusal>) {
        if self.data_size < DATA_SECTORS_MIN {
            found.push(Refusal::DataTooSmall { sectors: self.data_size });
        }
        if self.version == Version::V1_0 {
            if self.super_offset < self.data_size {
                let (wanted, room) = (self.data_size, self.super_offset);
                found.push(Refusal::DataBeyondEnd { wanted, room });
            }
            return;
        }
        let length = self.covered_bytes().next_multiple_of(logical_block) as u64 / 512;
        let superblock_end = self.super_offset.saturating_add(length);
        let next = self.metadata().reshape.map(|reshape| reshape.new_data_offset);
        for data in [Some(self.data_offset), next].into_iter().flatten() {
            if data < superblock_end {
                found.push(Refusal::DataInSuperblock { data, superblock_end });
            }
        }
        let room = device_sectors.saturating_sub(self.data_offset);
        if room < self.data_size {
            found.push(Refusal::DataBeyondEnd { wanted: self.data_size, room });
        }
    }

    fn refuse_bad_blocks(&self, found: &mut Vec<Refusal>) {
        let in_use = self.has(feature::BAD_BLOCKS);
        if in_use && self.bblog_offset == 0 {
            found.push(Refusal::BadBlocksNowhere);
        }
        if self.bblog_offset != 0 && self.bblog_size > BBLOG_SECTORS_MAX {
            found.push(Refusal::BadBlocksTooLong { sectors: self.bblog_size });
        }
        if (in_use || self.bblog_offset != 0) && self.bblog_shift >= 64 {
            found.push(Refusal::BadBlockShift { shift: self.bblog_shift });
        }
    }
}

impl SuperblockV0 {
    /// Everything for which the kernel (of a little-endian machine) would not take this member, on
    /// a device of this length and with this verdict on its checksum.
    pub fn kernel_refusals(&self, checksum: Checksum, device_sectors: u64) -> Vec<Refusal> {
        let mut found = checksum_refusal(checksum);
        if self.byte_order == ByteOrder::Big {
            found.push(Refusal::BigEndian);
        }
        let belongs = location(Version::V0_90, device_sectors);
        if belongs != Some(self.sector) {
            found.push(Refusal::Misplaced { says: self.sector, belongs });
        }
        if !(90..=91).contains(&self.minor_version) {
            found.push(Refusal::MinorVersion { minor: self.minor_version });
        }
        if self.raid_disks == 0 {
            found.push(Refusal::NoRaidDisks);
        }
        let wanted = u64::from(self.size) * 2;
        if self.level >= 1 && self.sector < wanted {
            found.push(Refusal::DataBeyondEnd { wanted, room: self.sector });
        }
        found
    }
}

fn checksum_refusal(checksum: Checksum) -> Vec<Refusal> {
    match checksum {
        Checksum::Correct { .. } => Vec::new(),
        Checksum::Wrong { stored, computed } => vec![Refusal::Checksum { stored, computed }],
    }
}
