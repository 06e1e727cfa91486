//! What the kernel refuses of one member: each rule alone, and its neighbour that is accepted.

use raidlab_md::ondisk::Version;
use raidlab_md::ondisk::superblock::{
    ByteOrder, Checksum, Kernels, Refusal, SuperblockV0, SuperblockV1, feature,
};

const SECTORS: u64 = 16384;
const RIGHT: Checksum = Checksum::Correct { stored: 0 };

fn v1(version: Version) -> SuperblockV1 {
    let bytes = include_bytes!("../fuzz/corpus/superblock-1/spare.bin");
    let (mut superblock, _) = SuperblockV1::decode(bytes, version).unwrap();
    if version == Version::V1_0 {
        (superblock.super_offset, superblock.data_offset) = (SECTORS - 16, 0);
    }
    superblock
}

/// The refusals after a change of a 1.2 superblock.
fn of(change: impl FnOnce(&mut SuperblockV1)) -> Vec<Refusal> {
    let mut superblock = v1(Version::V1_2);
    change(&mut superblock);
    superblock.kernel_refusals(RIGHT, SECTORS, 512)
}

#[test]
fn a_member_that_is_right_is_not_refused() {
    for version in [Version::V1_0, Version::V1_2] {
        assert_eq!(v1(version).kernel_refusals(RIGHT, SECTORS, 512), []);
    }
    // What one could think wrong, and the kernel takes.
    assert_eq!(of(|sb| sb.devflags = 0xff), []);
    assert_eq!(of(|sb| sb.size = sb.data_size + 1), []);
    assert_eq!(of(|sb| sb.dev_roles.truncate(5)), []);
    assert_eq!(of(|sb| sb.set_name = [0xff; 32]), []);
    assert_eq!(of(|sb| sb.bblog_offset = 0), []);
}

#[test]
fn each_rule_of_1_x_refuses_alone() {
    let wrong = Checksum::Wrong { stored: 1, computed: 2 };
    let refusals = v1(Version::V1_2).kernel_refusals(wrong, SECTORS, 512);
    assert_eq!(refusals, [Refusal::Checksum { stored: 1, computed: 2 }]);
    assert_eq!(of(|sb| sb.super_offset = 9), [Refusal::Misplaced { says: 9, belongs: Some(8) }]);
    assert_eq!(of(|sb| sb.feature_map = 0x2000), [Refusal::UnknownFeatures { bits: 0x2000 }]);
    assert_eq!(of(|sb| sb.pad0 = 1), [Refusal::Pad0 { value: 1 }]);
    assert_eq!(of(|sb| sb.pad3[27] = 1), [Refusal::Pad3 { offset: 255 }]);
    assert_eq!(of(|sb| sb.data_size = 9), [Refusal::DataTooSmall { sectors: 9 }]);
    assert_eq!(of(|sb| sb.data_size = 10), []);
    let raid0 = of(|sb| sb.feature_map = feature::RAID0_LAYOUT);
    assert_eq!(raid0, [Refusal::Raid0Layout { level: 5 }]);
    let bad_blocks = |offset, size, shift| {
        of(|sb| {
            sb.feature_map = feature::BAD_BLOCKS;
            (sb.bblog_offset, sb.bblog_size, sb.bblog_shift) = (offset, size, shift);
        })
    };
    assert_eq!(bad_blocks(16, 8, 63), []);
    assert_eq!(bad_blocks(0, 8, 0), [Refusal::BadBlocksNowhere]);
    assert_eq!(bad_blocks(16, 9, 0), [Refusal::BadBlocksTooLong { sectors: 9 }]);
    assert_eq!(bad_blocks(16, 8, 64), [Refusal::BadBlockShift { shift: 64 }]);
}

#[test]
fn newer_kernels_block_size_is_refused_by_old_ones_only() {
    let refused = of(|sb| sb.logical_block_size = 512);
    assert_eq!(refused, [Refusal::TooNew { logical_block_size: 512 }]);
    assert_eq!(refused[0].kernels(), Kernels::UpTo6_18);
    for value in [1, 256, 513, 8192] {
        let refused = of(|sb| sb.logical_block_size = value);
        assert_eq!(refused, [Refusal::LogicalBlockSize { value }]);
        assert_eq!(refused[0].kernels(), Kernels::All);
    }
}

#[test]
fn features_that_exclude_each_other() {
    use feature::{BITMAP_OFFSET, JOURNAL, MULTIPLE_PPLS, PPL};
    for bits in [BITMAP_OFFSET, JOURNAL, PPL, MULTIPLE_PPLS] {
        assert_eq!(of(|sb| sb.feature_map = bits), []);
    }
    for bits in [PPL | MULTIPLE_PPLS, PPL | BITMAP_OFFSET, MULTIPLE_PPLS | JOURNAL] {
        assert_eq!(of(|sb| sb.feature_map = bits), [Refusal::FeatureConflict { bits }]);
    }
}

#[test]
fn data_must_fit_beside_the_superblock() {
    let short = |data_offset| of(|sb| (sb.data_offset, sb.data_size) = (data_offset, 100));
    assert_eq!(short(9), []);
    assert_eq!(short(8), [Refusal::DataInSuperblock { data: 8, superblock_end: 9 }]);
    // On a device with 4 KiB blocks the superblock has 8 sectors.
    let refused = SuperblockV1 { data_offset: 15, data_size: 100, ..v1(Version::V1_2) }
        .kernel_refusals(RIGHT, SECTORS, 4096);
    assert_eq!(refused, [Refusal::DataInSuperblock { data: 15, superblock_end: 16 }]);
    // Where a reshape will bring them counts too.
    let reshaped = of(|sb| {
        sb.feature_map = feature::RESHAPE_ACTIVE | feature::NEW_OFFSET;
        sb.new_offset = -2040;
    });
    assert_eq!(reshaped, [Refusal::DataInSuperblock { data: 8, superblock_end: 9 }]);
    let (wanted, room) = (14337, 14336);
    assert_eq!(of(|sb| sb.data_size = 14337), [Refusal::DataBeyondEnd { wanted, room }]);

    let v1_0 = |data_size| {
        SuperblockV1 { data_size, ..v1(Version::V1_0) }.kernel_refusals(RIGHT, SECTORS, 512)
    };
    assert_eq!(v1_0(SECTORS - 16), []);
    let (wanted, room) = (SECTORS - 15, SECTORS - 16);
    assert_eq!(v1_0(SECTORS - 15), [Refusal::DataBeyondEnd { wanted, room }]);
}

#[test]
fn each_rule_of_0_90_refuses_alone() {
    let bytes = include_bytes!("../fuzz/corpus/superblock-0.90/raid1.bin");
    let of = |change: fn(&mut SuperblockV0)| {
        let (mut superblock, checksum) = SuperblockV0::decode(bytes, 16256).unwrap();
        change(&mut superblock);
        superblock.kernel_refusals(checksum, SECTORS)
    };
    assert_eq!(of(|_| {}), []);
    assert_eq!(of(|sb| sb.minor_version = 91), []);
    assert_eq!(of(|sb| sb.minor_version = 92), [Refusal::MinorVersion { minor: 92 }]);
    assert_eq!(of(|sb| sb.raid_disks = 0), [Refusal::NoRaidDisks]);
    assert_eq!(of(|sb| sb.byte_order = ByteOrder::Big), [Refusal::BigEndian]);
    let (wanted, room) = (16258, 16256);
    assert_eq!(of(|sb| sb.size = 8129), [Refusal::DataBeyondEnd { wanted, room }]);
    assert_eq!(of(|sb| (sb.size, sb.level) = (8129, 0)), []);
    let misplaced = Refusal::Misplaced { says: 0, belongs: Some(16256) };
    assert!(of(|sb| sb.sector = 0).contains(&misplaced));
}
