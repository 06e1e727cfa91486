//! Literal bytes in both directions: every field at its place, and one real superblock of each
//! kind, word by word.

use raidlab_md::ondisk::superblock::{
    ByteOrder, Checksum, DiskV0, Superblock, SuperblockV0, SuperblockV1, feature,
};
use raidlab_md::ondisk::{Role, Timestamp, Uuid, Version};

/// A 1.x header in which byte i has the value i, with three roles; only magic, version, checksum
/// and the number of roles are what they must be.
fn counting_v1() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..=255).collect();
    bytes[0..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    bytes[220..224].copy_from_slice(&[3, 0, 0, 0]);
    bytes.extend([0x01, 0x00, 0xfe, 0xff, 0xff, 0xff]);
    bytes[216..220].copy_from_slice(&COUNTING_V1_SUM.to_le_bytes());
    bytes
}

/// From outside: the 65 words and the half one, added and folded by another program.
const COUNTING_V1_SUM: u32 = 0x4388_70e8;

fn up<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|index| first + index as u8)
}

fn counting_v1_value() -> SuperblockV1 {
    SuperblockV1 {
        version: Version::V1_2,
        feature_map: 0x0b0a_0908,
        pad0: 0x0f0e_0d0c,
        set_uuid: Uuid(up(16)),
        set_name: up(32),
        ctime: Timestamp { seconds: 0x44_4342_4140, micros: 0x47_4645 },
        level: 0x4b4a_4948,
        layout: 0x4f4e_4d4c,
        size: 0x5756_5554_5352_5150,
        chunksize: 0x5b5a_5958,
        raid_disks: 0x5f5e_5d5c,
        bitmap_offset: 0x6362_6160,
        new_level: 0x6766_6564,
        reshape_position: 0x6f6e_6d6c_6b6a_6968,
        delta_disks: 0x7372_7170,
        new_layout: 0x7776_7574,
        new_chunk: 0x7b7a_7978,
        new_offset: 0x7f7e_7d7c,
        data_offset: 0x8786_8584_8382_8180,
        data_size: 0x8f8e_8d8c_8b8a_8988,
        super_offset: 0x9796_9594_9392_9190,
        recovery_offset: 0x9f9e_9d9c_9b9a_9998,
        dev_number: 0xa3a2_a1a0,
        cnt_corrected_read: 0xa7a6_a5a4,
        device_uuid: Uuid(up(168)),
        devflags: 0xb8,
        bblog_shift: 0xb9,
        bblog_size: 0xbbba,
        bblog_offset: 0xbfbe_bdbc_u32.cast_signed(),
        utime: Timestamp { seconds: 0xc4_c3c2_c1c0, micros: 0xc7_c6c5 },
        events: 0xcfce_cdcc_cbca_c9c8,
        resync_offset: 0xd7d6_d5d4_d3d2_d1d0,
        logical_block_size: 0xe3e2_e1e0,
        pad3: up(228),
        dev_roles: vec![1, 0xfffe, 0xffff],
    }
}

#[test]
fn every_field_of_1_x_is_at_its_place() {
    let bytes = counting_v1();
    let (value, checksum) = SuperblockV1::decode(&bytes, Version::V1_2).unwrap();
    assert_eq!(value, counting_v1_value());
    assert_eq!(checksum, Checksum::Correct { stored: COUNTING_V1_SUM });
    assert_eq!((value.ppl_offset(), value.ppl_size()), (0x6160, 0x6362));
    let encoded = value.encode(512);
    assert_eq!(encoded.len(), 512);
    assert_eq!(encoded[..bytes.len()], bytes);
    assert!(encoded[bytes.len()..].iter().all(|&byte| byte == 0));
    assert_eq!(value.encode(4096).len(), 4096);
}

/// Word i has the value 0x01000000 + i.
fn counting_v0() -> [u32; 1024] {
    let mut words: [u32; 1024] = std::array::from_fn(|index| 0x0100_0000 + index as u32);
    (words[0], words[1]) = (0xa92b_4efc, 0);
    words[38] = COUNTING_V0_SUM;
    words
}

/// From outside: all words but this one, added and folded by another program.
const COUNTING_V0_SUM: u32 = 0xa633_4cd9;

fn word(index: u32) -> u32 {
    0x0100_0000 + index
}

fn words<const N: usize>(first: u32) -> [u32; N] {
    std::array::from_fn(|index| word(first + index as u32))
}

fn counting_disk(first: u32) -> DiskV0 {
    let [number, major, minor, raid_disk, state] = words(first);
    DiskV0 { number, major, minor, raid_disk, state, reserved: words(first + 5) }
}

fn counting_v0_value() -> SuperblockV0 {
    let mut uuid = Uuid::default();
    for (bytes, index) in uuid.0.chunks_mut(4).zip([5, 13, 14, 15]) {
        bytes.copy_from_slice(&[1, 0, 0, index]);
    }
    SuperblockV0 {
        sector: 128,
        byte_order: ByteOrder::Little,
        minor_version: word(2),
        patch_version: word(3),
        gvalid_words: word(4),
        set_uuid: uuid,
        ctime: word(6),
        level: word(7).cast_signed(),
        size: word(8),
        nr_disks: word(9),
        raid_disks: word(10),
        md_minor: word(11),
        not_persistent: word(12),
        constant_reserved: words(16),
        utime: word(32),
        state: word(33),
        active_disks: word(34),
        working_disks: word(35),
        failed_disks: word(36),
        spare_disks: word(37),
        events: 0x0100_0028_0100_0027,
        cp_events: 0x0100_002a_0100_0029,
        recovery_cp: word(43),
        reshape_position: 0x0100_002d_0100_002c,
        new_level: word(46).cast_signed(),
        delta_disks: word(47).cast_signed(),
        new_layout: word(48),
        new_chunk: word(49),
        state_reserved: words(50),
        layout: word(64),
        chunk_size: word(65),
        personality_reserved: words(66),
        disks: std::array::from_fn(|index| counting_disk(128 + 32 * index as u32)),
        this_disk: counting_disk(992),
    }
}

#[test]
fn every_word_of_0_90_is_at_its_place_in_both_byte_orders() {
    let words = counting_v0();
    let little: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let (value, checksum) = SuperblockV0::decode(&little, 128).unwrap();
    assert_eq!(value, counting_v0_value());
    assert_eq!(checksum, Checksum::Correct { stored: COUNTING_V0_SUM });
    assert!(value.encode() == little);

    // The same values on a big-endian machine: every word swapped, long numbers high word first.
    let mut words = words;
    for low in [39, 41, 44] {
        words.swap(low, low + 1);
    }
    let big: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    let (value, checksum) = SuperblockV0::decode(&big, 128).unwrap();
    let expected = SuperblockV0 { byte_order: ByteOrder::Big, ..counting_v0_value() };
    assert_eq!(value, expected);
    assert!(checksum.is_correct());
    assert!(value.encode() == big);
}

/// mdadm --create /dev/md0 --run --homehost=corpus --level=1 --raid-devices=2 --metadata=0.90
/// /dev/vdb /dev/vdc, filled and stopped; Linux 6.12.100. All words that are not 0.
const REAL_V0: [(usize, u32); 32] = [
    (0, 0xa92b_4efc),
    (2, 90),
    (5, 0x956a_3115),
    (6, 0x6b01_efab),
    (7, 1),
    (8, 8128),
    (9, 2),
    (10, 2),
    (13, 0x4770_6e56),
    (14, 0xf82f_8962),
    (15, 0x5ef4_83a1),
    (32, 0x6b01_efad),
    (33, 1),
    (34, 2),
    (35, 2),
    (38, 0xb32d_fe5b),
    (39, 18),
    (41, 18),
    (43, 0xffff_ffff),
    (129, 254),
    (130, 16),
    (132, 6),
    (160, 1),
    (161, 254),
    (162, 32),
    (163, 1),
    (164, 6),
    (993, 254),
    (994, 16),
    (996, 6),
    // Two that are 0, so that a shift by one would show.
    (992, 0),
    (995, 0),
];

#[test]
fn a_real_0_90_means_what_mdadm_printed() {
    let mut bytes = vec![0; 4096];
    for (index, word) in REAL_V0 {
        bytes[4 * index..4 * index + 4].copy_from_slice(&word.to_le_bytes());
    }
    let (superblock, checksum) = SuperblockV0::decode(&bytes, 16256).unwrap();
    assert_eq!(checksum.to_string(), "b32dfe5b - correct");
    assert!(superblock.encode() == bytes);
    let metadata = Superblock::from(superblock).metadata();
    assert_eq!(metadata.set_uuid.to_string(), "956a3115:47706e56:f82f8962:5ef483a1");
    assert_eq!((metadata.level, metadata.raid_disks, metadata.events), (1, 2, 18));
    assert_eq!((metadata.used_sectors, metadata.data_sectors), (16256, 16256));
    assert_eq!((metadata.resync_offset, metadata.role), (None, Role::Slot(0)));
    assert_eq!(metadata.roles[..3], [Role::Slot(0), Role::Slot(1), Role::Spare]);
    assert_eq!((metadata.bitmap, metadata.reshape), (None, None));

    // As old kernels stored it: the sum folded to 16 bits.
    let folded = 0xb32d + 0xfe5b;
    let folded: u32 = (folded & 0xffff) + (folded >> 16);
    bytes[152..156].copy_from_slice(&folded.to_le_bytes());
    let (_, checksum) = SuperblockV0::decode(&bytes, 16256).unwrap();
    assert_eq!(checksum, Checksum::Correct { stored: folded });
}

/// A member of a RAID 5 that grows from 3 to 4 members, stopped on its way: mdadm --grow
/// --raid-devices=4; what mdadm --examine printed of it is in the assertions.
#[test]
fn a_real_1_2_means_what_mdadm_printed() {
    let bytes = include_bytes!("../fuzz/corpus/superblock-1/reshape-grow.bin");
    let (superblock, checksum) = SuperblockV1::decode(bytes, Version::V1_2).unwrap();
    assert_eq!(checksum.to_string(), "3f1007bd - correct");
    assert_eq!(superblock.encode(512), bytes);
    assert_eq!(superblock.feature_map, feature::RESHAPE_ACTIVE | feature::NEW_OFFSET);
    let metadata = superblock.metadata();
    assert_eq!(metadata.set_uuid.to_string(), "b344c6a9:5e570c76:801aa3c9:048b9497");
    let device = metadata.device_uuid.unwrap().to_string();
    assert_eq!(device, "7ac25367:4e49b793:e069b463:9b6beafc");
    assert_eq!((metadata.name.as_str(), metadata.events), ("corpus:r5rs", 34));
    assert_eq!((metadata.data_offset, metadata.data_sectors), (2048, 30720));
    let reshape = metadata.reshape.unwrap();
    assert_eq!(reshape.new_data_offset, 1664);
    // mdadm prints KiB: 12480.
    assert_eq!((reshape.position, reshape.delta_disks), (2 * 12480, 1));
    assert!(!reshape.backwards);
    let slots = [Role::Slot(0), Role::Slot(1), Role::Spare, Role::Slot(2), Role::Slot(3)];
    assert_eq!(metadata.roles[..5], slots);
}
