//! `identify` against blkid, on what the real tools make.

use raidlab_content::{Checksum, Identified, Kind, identify};

use crate::images::{self, Image};

/// What blkid says of an image: (type, label, UUID).
fn blkid(image: &Image) -> Option<(String, Option<String>, Option<String>)> {
    let said = images::output("blkid", &["-p", "-o", "export"], &image.path)?;
    let field = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        // Blanks are escaped there.
        line.map(|value| value.replace('\\', ""))
    };
    let uuid = field("UUID").or_else(|| field("PTUUID"));
    Some((field("TYPE").or_else(|| field("PTTYPE"))?, field("LABEL"), uuid))
}

/// Identifies an image and compares it with blkid, where there is one.
fn agreed(image: &Image) -> Identified {
    let found = identify(&image.bytes()).expect("it is known");
    match blkid(image) {
        Some((kind, label, uuid)) => {
            assert_eq!((found.kind.name(), &found.label), (kind.as_str(), &label));
            assert_eq!(found.uuid, uuid);
        }
        None => println!("blkid skipped: it is not installed, or does not know this"),
    }
    found
}

const MIB: u64 = 1 << 20;

#[test]
fn ext_by_its_features() {
    for (kind, checksum, arguments) in [
        (Kind::Ext2, Checksum::Absent, vec!["-t", "ext2", "-b", "1024"]),
        (Kind::Ext3, Checksum::Absent, vec!["-t", "ext3"]),
        (Kind::Ext4, Checksum::Good, vec!["-t", "ext4"]),
        (Kind::Ext4, Checksum::Good, vec!["-t", "ext4", "-O", "bigalloc", "-b", "4096"]),
        (Kind::Ext4, Checksum::Absent, vec!["-t", "ext4", "-O", "^metadata_csum,^64bit"]),
        (Kind::ExtJournal, Checksum::Absent, vec!["-O", "journal_dev"]),
    ] {
        let image = Image::new(24 * MIB);
        let arguments = [&["-q", "-F", "-L", "some data"], &arguments[..]].concat();
        if !images::run("mke2fs", &arguments, &image.path) {
            return;
        }
        let found = agreed(&image);
        assert_eq!((found.kind, found.bytes), (kind, Some(24 * MIB)), "{arguments:?}");
        assert!(found.checksum == checksum || kind == Kind::ExtJournal, "{arguments:?}");
        let mut damaged = image.bytes();
        damaged[1024 + 130] ^= 1;
        let found = identify(&damaged).expect("still an ext");
        let expected = if checksum == Checksum::Good { Checksum::Bad } else { found.checksum };
        assert_eq!(found.checksum, expected, "{arguments:?}");
    }
}

#[test]
fn xfs_of_both_versions() {
    for (crc, checksum) in [("crc=1", Checksum::Good), ("crc=0,finobt=0", Checksum::Absent)] {
        let image = Image::new(320 * MIB);
        if !images::run("mkfs.xfs", &["-q", "-f", "-L", "vol one", "-m", crc], &image.path) {
            return;
        }
        let found = agreed(&image);
        assert_eq!((found.kind, found.bytes), (Kind::Xfs, Some(320 * MIB)), "{crc}");
        assert_eq!(found.checksum, checksum, "{crc}");
    }
}

#[test]
fn btrfs_with_its_checksum() {
    let image = Image::new(128 * MIB);
    if !images::run("mkfs.btrfs", &["-q", "-f", "-L", "tank"], &image.path) {
        return;
    }
    let found = agreed(&image);
    assert_eq!((found.kind, found.bytes), (Kind::Btrfs, Some(128 * MIB)));
    assert_eq!(found.checksum, Checksum::Good);
}

#[test]
fn ntfs_with_the_label_of_its_volume() {
    let image = Image::new(16 * MIB);
    if !images::run("mkntfs", &["-F", "-Q", "-q", "-L", "Daten 1"], &image.path) {
        return;
    }
    let found = agreed(&image);
    assert_eq!((found.kind, found.label.as_deref()), (Kind::Ntfs, Some("Daten 1")));
    assert_eq!(found.bytes, Some(16 * MIB));
}

#[test]
fn fat_of_each_width() {
    for (width, mib) in [("12", 4), ("16", 32), ("32", 64)] {
        let image = Image::new(mib * MIB);
        let arguments = ["-F", width, "-n", "PHOTOS", "-i", "c0ffee01"];
        if !images::run("mkfs.vfat", &arguments, &image.path) {
            return;
        }
        let found = agreed(&image);
        assert_eq!((found.kind, found.bytes), (Kind::Fat, Some(mib * MIB)), "FAT{width}");
        assert_eq!(found.label.as_deref(), Some("PHOTOS"), "FAT{width}");
    }
}

#[test]
fn swap_of_both_page_sizes() {
    for page in ["4096", "65536"] {
        let image = Image::new(4 * MIB);
        if !images::run("mkswap", &["-L", "paging", "-p", page], &image.path) {
            return;
        }
        let found = agreed(&image);
        assert_eq!((found.kind, found.bytes), (Kind::Swap, Some(4 * MIB)), "{page}");
    }
}

#[test]
fn a_label_of_lvm_and_a_guid_table_need_their_checksums() {
    let image = Image::new(8 * MIB);
    let mut bytes = image.bytes();
    bytes[512..1024].copy_from_slice(include_bytes!("lvm-label.bin"));
    std::fs::write(&image.path, &bytes).expect("written");
    let found = agreed(&image);
    assert_eq!((found.kind, found.checksum), (Kind::LvmPhysicalVolume, Checksum::Good));
    bytes[512 + 100] ^= 1;
    assert_eq!(identify(&bytes), None);
}

#[test]
fn others_by_their_magic_numbers() {
    let table: [(usize, &[u8], Kind); 9] = [
        (3, b"-FVE-FS-", Kind::BitLocker),
        (4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", Kind::Bcache),
        (1024, b"\x10\x20\xf5\xf2", Kind::F2fs),
        (0x1_0034, b"ReIsEr2Fs", Kind::ReiserFs),
        (0x8000, b"JFS1", Kind::Jfs),
        (0x8000, b"\x01CD001", Kind::Iso9660),
        (0x10_0000, b"\x0d\xd0\x01\xc0", Kind::VmfsVolume),
        (128 << 10, b"\x0c\xb1\xba\0\0\0\0\0", Kind::ZfsMember),
        (128 << 10, b"\0\0\0\0\0\xba\xb1\x0c", Kind::ZfsMember),
    ];
    for (at, magic, kind) in table {
        let mut bytes = vec![0; 2 << 20];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        assert_eq!(identify(&bytes).map(|found| found.kind), Some(kind));
        bytes[at] ^= 0x40;
        assert_eq!(identify(&bytes), None, "{kind}");
    }
}

#[test]
fn luks_of_both_versions() {
    for (version, kind) in [(1, Kind::Luks1), (2, Kind::Luks2)] {
        let image = Image::new(MIB);
        let mut bytes = image.bytes();
        bytes[..8].copy_from_slice(&[b'L', b'U', b'K', b'S', 0xba, 0xbe, 0, version]);
        if version == 2 {
            bytes[14] = 0x40;
            bytes[24..28].copy_from_slice(b"safe");
        }
        bytes[168..204].copy_from_slice(b"0eb8b3a1-31f8-4b5e-9a26-d1ffba2b5f10");
        let found = identify(&bytes).expect("LUKS");
        assert_eq!((found.kind, found.kind.name()), (kind, "crypto_LUKS"));
        assert_eq!(found.label.as_deref(), (version == 2).then_some("safe"));
        assert_eq!(found.uuid.as_deref(), Some("0eb8b3a1-31f8-4b5e-9a26-d1ffba2b5f10"));
        bytes[7] = 3;
        assert_eq!(identify(&bytes), None);
    }
}

#[test]
fn partition_tables_come_last() {
    let mut bytes = vec![0; 4 << 20];
    bytes[440..444].copy_from_slice(&0xc0ff_ee01_u32.to_le_bytes());
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&4096_u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let found = identify(&bytes).expect("a table");
    assert_eq!((found.kind.name(), found.uuid.as_deref()), ("dos", Some("c0ffee01")));
    // A status that is none.
    bytes[446] = 1;
    assert_eq!(identify(&bytes), None);
}

#[test]
fn members_of_arrays_by_each_version_of_metadata() {
    let size = 4 << 20;
    for (at, major) in [(0, 1), (4096, 1), (size - 8192, 1), (size - 0x1_0000, 0)] {
        let mut bytes = vec![0; size];
        bytes[at..at + 4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        bytes[at + 4] = major;
        if major == 1 {
            bytes[at + 144..at + 152].copy_from_slice(&(at as u64 / 512).to_le_bytes());
            bytes[at + 32..at + 38].copy_from_slice(b"host:0");
        }
        let found = identify(&bytes).expect("a member");
        assert_eq!(found.kind, Kind::MdMember);
        assert_eq!(found.label.as_deref(), (major == 1).then_some("host:0"));
    }
}
