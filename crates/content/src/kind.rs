//! The formats that are known by name.

use std::fmt;

/// A format of a file system, a table or a volume manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Kind {
    /// ext2: no journal, nothing that only ext4 has.
    Ext2,
    /// ext3: a journal, nothing that only ext4 has.
    Ext3,
    /// ext4.
    Ext4,
    /// The journal of another ext3 or ext4.
    ExtJournal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// NTFS.
    Ntfs,
    /// FAT with 12, 16 or 32 bits.
    Fat,
    /// exFAT.
    ExFat,
    /// Swap space of Linux.
    Swap,
    /// Swap space with an image of a suspended system.
    Hibernation,
    /// LUKS, version 1.
    Luks1,
    /// LUKS, version 2.
    Luks2,
    /// BitLocker.
    BitLocker,
    /// LVM2 physical volume.
    LvmPhysicalVolume,
    /// Member of an md array, metadata version 0.90 or 1.x.
    MdMember,
    /// bcache device.
    Bcache,
    /// F2FS.
    F2fs,
    /// ReiserFS.
    ReiserFs,
    /// JFS.
    Jfs,
    /// Member of a ZFS pool.
    ZfsMember,
    /// ISO 9660.
    Iso9660,
    /// SquashFS.
    SquashFs,
    /// EROFS.
    Erofs,
    /// VMFS.
    VmfsVolume,
    /// GUID partition table.
    Gpt,
    /// MBR (DOS) partition table.
    Mbr,
}

impl Kind {
    /// What blkid calls it: `ext4`, `crypto_LUKS`, `LVM2_member`; of partition tables the PTTYPE.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Ext2 => "ext2",
            Kind::Ext3 => "ext3",
            Kind::Ext4 => "ext4",
            Kind::ExtJournal => "jbd",
            Kind::Xfs => "xfs",
            Kind::Btrfs => "btrfs",
            Kind::Ntfs => "ntfs",
            Kind::Fat => "vfat",
            Kind::ExFat => "exfat",
            Kind::Swap => "swap",
            Kind::Hibernation => "swsuspend",
            Kind::Luks1 | Kind::Luks2 => "crypto_LUKS",
            Kind::BitLocker => "BitLocker",
            Kind::LvmPhysicalVolume => "LVM2_member",
            Kind::MdMember => "linux_raid_member",
            Kind::Bcache => "bcache",
            Kind::F2fs => "f2fs",
            Kind::ReiserFs => "reiserfs",
            Kind::Jfs => "jfs",
            Kind::ZfsMember => "zfs_member",
            Kind::Iso9660 => "iso9660",
            Kind::SquashFs => "squashfs",
            Kind::Erofs => "erofs",
            Kind::VmfsVolume => "VMFS",
            Kind::Gpt => "gpt",
            Kind::Mbr => "dos",
        }
    }

    /// For sentences: `ext4`, `XFS`, `LUKS 2 (encrypted)`, `LVM physical volume`.
    pub fn title(self) -> &'static str {
        match self {
            Kind::ExtJournal => "external journal of ext",
            Kind::Xfs => "XFS",
            Kind::Ntfs => "NTFS",
            Kind::Fat => "FAT",
            Kind::ExFat => "exFAT",
            Kind::Hibernation => "hibernation image",
            Kind::Luks1 => "LUKS 1 (encrypted)",
            Kind::Luks2 => "LUKS 2 (encrypted)",
            Kind::BitLocker => "BitLocker (encrypted)",
            Kind::LvmPhysicalVolume => "LVM physical volume",
            Kind::MdMember => "member of an md array",
            Kind::F2fs => "F2FS",
            Kind::ReiserFs => "ReiserFS",
            Kind::Jfs => "JFS",
            Kind::ZfsMember => "member of a ZFS pool",
            Kind::Iso9660 => "ISO 9660",
            Kind::SquashFs => "SquashFS",
            Kind::Erofs => "EROFS",
            Kind::Gpt => "GPT partition table",
            Kind::Mbr => "MBR partition table",
            _ => self.name(),
        }
    }

    /// Whether it divides what it lies on into regions for others, with addresses in clear.
    pub fn is_table(self) -> bool {
        matches!(self, Kind::Gpt | Kind::Mbr | Kind::LvmPhysicalVolume)
    }

    /// Whether it encrypts what it holds.
    pub fn is_encrypted(self) -> bool {
        matches!(self, Kind::Luks1 | Kind::Luks2 | Kind::BitLocker)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}
