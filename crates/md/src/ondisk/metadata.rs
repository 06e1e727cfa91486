//! The metadata of one member, independent of the superblock's version.
//!
//! The codecs of metadata 0.90 and 1.x keep every field in their own plain values; this is what
//! they have in common, in one set of units, for the decisions that follow: [`crate::ondisk`] makes
//! it, the assembly decision and the array's control plane use it.
//!
//! Invariant: nothing here is judged. A value that makes no sense (an unknown level, a role beyond
//! the array) is passed on as it is; whether an array can be made of it is for the assembly to say.

use std::fmt;
use std::ops::Range;

use serde::{Serialize, Serializer};

use super::Uuid;

/// A version of md's metadata: what it looks like and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.90: in the last complete 64 KiB block, host-endian, at most 27 members.
    V0_90,
    /// 1.0: 8 to 12 KiB before the end.
    V1_0,
    /// 1.1: at the start.
    V1_1,
    /// 1.2: 4 KiB from the start.
    V1_2,
    /// Not md's: Intel's metadata of BIOS RAID, at the end.
    Imsm,
    /// Not md's: SNIA's DDF, at the end.
    Ddf,
}

impl Version {
    /// All of md's own.
    pub const ALL: [Version; 4] = [Version::V0_90, Version::V1_0, Version::V1_1, Version::V1_2];

    /// As mdadm prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Version::V0_90 => "0.90",
            Version::V1_0 => "1.0",
            Version::V1_1 => "1.1",
            Version::V1_2 => "1.2",
            Version::Imsm => "imsm",
            Version::Ddf => "ddf",
        }
    }

    /// Whether it is another format than md's own: its arrays are read, not run.
    pub const fn is_foreign(self) -> bool {
        matches!(self, Version::Imsm | Version::Ddf)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The role of a device in its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It serves this slot (md: raid disk).
    Slot(u16),
    /// It waits, or its entry is empty: metadata 1.x does not tell the two apart.
    Spare,
    /// It failed.
    Faulty,
    /// It is the journal of a RAID 4, 5 or 6.
    Journal,
}

/// A moment as md stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970 (UTC).
    pub seconds: u64,
    /// Microseconds of the second; mdadm and the kernel write 0.
    pub micros: u32,
}

/// `2026-11-26 22:18:15 UTC`, with the microseconds where there are any.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.seconds / 86_400, self.seconds % 86_400);
        // The calendar repeats every 146,097 days; years begin in March, so that leap days are
        // last.
        let shifted = days + 719_468;
        let (era, day) = (shifted / 146_097, shifted % 146_097);
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year + u64::from(month < 3);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")?;
        if self.micros > 0 {
            write!(f, ".{:06}", self.micros)?;
        }
        f.write_str(" UTC")
    }
}

/// A range of the whole device, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// First sector of the device.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u64,
}

impl From<&Range<u64>> for Area {
    fn from(range: &Range<u64>) -> Area {
        Area { sector: range.start, sectors: range.end - range.start }
    }
}

/// The bad-block log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlockArea {
    /// Sectors of the log.
    pub area: Area,
    /// Entries count in units of 2^shift sectors.
    pub shift: u8,
    /// Whether it has entries that must be read.
    pub in_use: bool,
}

/// The partial parity log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PplArea {
    /// Sectors of the log.
    pub area: Area,
    /// Whether the area is a ring of several logs.
    pub multiple: bool,
}

/// A reshape in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReshapeState {
    /// Array sector up to which (forwards) or from which on (backwards) the new geometry holds.
    pub position: u64,
    /// From the end to the start.
    pub backwards: bool,
    /// New minus old number of slots; [`MemberMetadata::raid_disks`] is the new number.
    pub delta_disks: i32,
    /// The new level; [`MemberMetadata::level`] is the old one.
    pub new_level: i32,
    /// The new layout.
    pub new_layout: u32,
    /// The new chunk size, in sectors.
    pub new_chunk_sectors: u32,
    /// Data offset of this member in the new geometry, in sectors.
    pub new_data_offset: u64,
}

/// What the metadata of another format than md's say of a volume in addition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeignVolume {
    /// Sectors that the volume offers: at most what its geometry has, which ends with whole chunks.
    pub array_sectors: u64,
    /// The member as the metadata name it: a serial number, a reference.
    pub disk: String,
    /// Why the volume has no geometry here: a sentence.
    pub refused: Option<String>,
    /// Its redundancy has never been made to agree with the data everywhere.
    pub never_synced: bool,
    /// Why it is not known which of the volume's members this is: a sentence.
    pub unidentified: Option<String>,
    /// Contradictions: sentences.
    pub doubts: Vec<String>,
}

/// The contents of one member's superblock. Sectors are 512 bytes; positions are of the whole
/// device unless the field's description differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberMetadata {
    /// Version of the metadata.
    pub version: Version,
    /// UUID of the array.
    pub set_uuid: Uuid,
    /// UUID of the member; 0.90 has none.
    pub device_uuid: Option<Uuid>,
    /// The array's name, `host:name` or `name`; empty in 0.90.
    pub name: String,
    /// Creation time of the array.
    pub created: Timestamp,
    /// When this superblock was written.
    pub updated: Timestamp,
    /// md's number of the level.
    pub level: i32,
    /// md's number of the layout. For RAID 0 it is 0 unless it was recorded.
    pub layout: u32,
    /// Chunk; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Slots of the array; during a reshape the new number.
    pub raid_disks: u32,
    /// Sectors used on each member; 0 for linear and RAID 0.
    pub used_sectors: u64,
    /// Data offset of this member, in sectors.
    pub data_offset: u64,
    /// Size of its data area in sectors.
    pub data_sectors: u64,
    /// Sector of this superblock.
    pub super_sector: u64,
    /// Event count.
    pub events: u64,
    /// Resync offset: sectors below it are in sync; `None`: all (the array is clean). Member
    /// sectors, for RAID 10 array sectors.
    pub resync_offset: Option<u64>,
    /// Index of this device in `roles`: its permanent name.
    pub dev_number: u32,
    /// Role of this device.
    pub role: Role,
    /// Role of every device number, according to this superblock.
    pub roles: Vec<Role>,
    /// Recovery offset, in sectors of its data area; `None`: completely in sync.
    pub recovery_offset: Option<u64>,
    /// It replaces another member of the same slot.
    pub replacement: bool,
    /// Write-mostly: reads prefer other members.
    pub write_mostly: bool,
    /// Failfast: the first error fails it.
    pub failfast: bool,
    /// Where the write-intent bitmap begins, and at most how long it can be.
    pub bitmap: Option<Area>,
    /// The bad-block log, if there is room for one.
    pub bad_blocks: Option<BadBlockArea>,
    /// The partial parity log.
    pub ppl: Option<PplArea>,
    /// The area of the partial parity log, also while the policy is another one and the superblock
    /// only keeps the place.
    pub log_area: Option<Area>,
    /// The array has, or should have, a journal.
    pub has_journal: bool,
    /// On the journal: sectors from its data offset to the oldest record.
    pub journal_tail: Option<u64>,
    /// The reshape in progress.
    pub reshape: Option<ReshapeState>,
    /// More of a volume in another format than md's.
    pub foreign: Option<Box<ForeignVolume>>,
}

#[cfg(test)]
mod tests {
    use super::Timestamp;

    #[test]
    fn a_moment_is_shown_by_the_calendar() {
        let shown = |seconds, micros| Timestamp { seconds, micros }.to_string();
        // date -u -d @SECONDS
        for (seconds, wanted) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_609_459_199, "2020-12-31 23:59:59 UTC"),
            (1_795_731_495, "2026-11-26 22:18:15 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(shown(seconds, 0), wanted);
        }
        assert_eq!(shown(1, 5), "1970-01-01 00:00:01.000005 UTC");
    }
}
