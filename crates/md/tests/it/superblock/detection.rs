//! Which superblock a device has, and what is said of the other places.

use raidlab_md::ondisk::superblock::{
    Candidate, Checksum, Detection, Outcome, SuperblockV0, SuperblockV1, candidates, detect,
    location,
};
use raidlab_md::ondisk::{Timestamp, Version};

const SECTORS: u64 = 16384;

fn v1(version: Version, created: u64) -> SuperblockV1 {
    let bytes = include_bytes!("../fuzz/corpus/superblock-1/spare.bin");
    let (mut superblock, _) = SuperblockV1::decode(bytes, version).unwrap();
    superblock.super_offset = location(version, SECTORS).unwrap();
    superblock.ctime = Timestamp { seconds: created, micros: 0 };
    superblock
}

fn v0(created: u32) -> SuperblockV0 {
    let bytes = include_bytes!("../fuzz/corpus/superblock-0.90/raid1.bin");
    let (mut superblock, _) = SuperblockV0::decode(bytes, 16256).unwrap();
    superblock.ctime = created;
    superblock
}

/// A device with these bytes at these sectors.
fn look(parts: &[(u64, Vec<u8>)]) -> Detection {
    let mut device = vec![0; SECTORS as usize * 512];
    for (sector, bytes) in parts {
        device[*sector as usize * 512..][..bytes.len()].copy_from_slice(bytes);
    }
    detect(SECTORS, |at| Ok::<Vec<u8>, String>(device[at.sector as usize * 512..][..4096].to_vec()))
}

fn version(found: &Detection) -> Option<Version> {
    found.superblock().map(|(superblock, _)| superblock.version())
}

#[test]
fn superblocks_are_where_the_reference_says() {
    let places = |sectors: u64| -> Vec<(Version, u64)> {
        candidates(sectors).iter().map(|at| (at.version, at.sector)).collect()
    };
    use Version::{V0_90, V1_0, V1_1, V1_2};
    assert_eq!(places(16384), [(V0_90, 16256), (V1_0, 16368), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(places(16391), [(V0_90, 16256), (V1_0, 16368), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(places(16511), [(V0_90, 16256), (V1_0, 16488), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(places(24), [(V1_0, 8), (V1_1, 0), (V1_2, 8)]);
    assert_eq!(places(23), []);
    // All places can be read: 4096 bytes lie on the device.
    for sectors in (0..2000).chain([1 << 32, (1 << 32) + 7, 1 << 40]) {
        for at in candidates(sectors) {
            assert!(at.sector + 8 <= sectors, "{sectors}: {at:?}");
        }
    }
}

#[test]
fn the_latest_creation_wins_and_the_first_of_equals() {
    let at = |version| location(version, SECTORS).unwrap();
    let all = |times: [u64; 4]| {
        look(&[
            (at(Version::V0_90), v0(times[0] as u32).encode()),
            (at(Version::V1_0), v1(Version::V1_0, times[1]).encode(512)),
            (at(Version::V1_1), v1(Version::V1_1, times[2]).encode(512)),
            (at(Version::V1_2), v1(Version::V1_2, times[3]).encode(512)),
        ])
    };
    for (index, &expected) in Version::ALL.iter().enumerate() {
        let mut times = [1000; 4];
        times[index] = 1001;
        let found = all(times);
        assert_eq!(version(&found), Some(expected));
        assert_eq!(found.others().count(), 3);
    }
    assert_eq!(version(&all([1000; 4])), Some(Version::V0_90));
    assert_eq!(version(&all([999, 1000, 1000, 1000])), Some(Version::V1_0));
}

#[test]
fn every_place_says_what_was_there() {
    let nothing = look(&[]);
    assert_eq!(nothing.superblock(), None);
    assert!(nothing.outcomes.iter().all(|(_, outcome)| *outcome == Outcome::NoMagic));

    // Wrong checksum: still the device's, newer than a whole one of a former array.
    let mut torn = v1(Version::V1_2, 2000).encode(512);
    torn[200] ^= 1;
    let found = look(&[(8, torn), (16256, v0(1000).encode())]);
    let (superblock, checksum) = found.superblock().unwrap();
    assert_eq!(superblock.version(), Version::V1_2);
    assert!(matches!(checksum, Checksum::Wrong { stored, computed } if stored + 1 == computed
        || computed + 1 == stored));
    assert_eq!(found.outcomes[3].1.to_string(), "superblock 1.2, checksum wrong");

    // A copy at another place is ignored.
    let found = look(&[(0, v1(Version::V1_2, 2000).encode(512))]);
    assert_eq!(found.superblock(), None);
    assert_eq!(found.outcomes[2].1.to_string(), "a superblock that belongs to sector 8");

    // The magic, and then nonsense.
    let mut broken = v1(Version::V1_2, 2000).encode(512);
    broken[220..224].copy_from_slice(&1921_u32.to_le_bytes());
    let found = look(&[(8, broken)]);
    let message = "superblock-1, field max_dev at byte 220: 1921 is more than 1920";
    assert_eq!(found.outcomes[3].1.to_string(), message);

    // A member that cannot be read there.
    let found = detect(SECTORS, |at: Candidate| match at.version {
        Version::V1_0 => Err("Input/output error"),
        _ => Ok([0; 4096]),
    });
    assert_eq!(found.outcomes[1].1.to_string(), "cannot be read: Input/output error");
    assert_eq!(found.superblock(), None);
}

#[test]
fn too_few_bytes_are_an_error_that_says_so() {
    let text = |error: raidlab_md::ondisk::DecodeError| error.to_string();
    let bytes = v1(Version::V1_2, 1).encode(512);
    let short =
        |length: usize| text(SuperblockV1::decode(&bytes[..length], Version::V1_2).unwrap_err());
    assert_eq!(short(0), "superblock-1, field magic at byte 0: only 0 bytes to read");
    assert!(short(255).contains("only 255 bytes"), "{}", short(255));
    assert!(short(511).contains("128 roles do not fit into 511 bytes"), "{}", short(511));
    assert!(SuperblockV1::decode(&bytes[..512], Version::V1_2).is_ok());
    let bytes = v0(1).encode();
    let error = text(SuperblockV0::decode(&bytes[..4095], 0).unwrap_err());
    assert!(error.contains("only 4095 bytes"), "{error}");
}
