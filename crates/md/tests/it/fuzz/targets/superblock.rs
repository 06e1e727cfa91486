//! Superblocks of both versions: round trip, meaning, refusals, location, and the way through an
//! array's state and back.

use super::{Target, Verdict};
use raidlab_md::ondisk::Version;
use raidlab_md::ondisk::superblock::{
    SuperblockV0, SuperblockV1, V0_FIELDS, V1_FIELDS, candidates, detect,
};

pub const V1: Target = Target {
    name: "superblock-1",
    fields: V1_FIELDS,
    bytes_max: 8192,
    repair: repair_v1,
    check: check_v1,
};

pub const V0: Target = Target {
    name: "superblock-0.90",
    fields: V0_FIELDS,
    bytes_max: 8192,
    repair: repair_v0,
    check: check_v0,
};

/// Devices on which a superblock may be found: tiny, ordinary, and impossibly large.
const DEVICE_SECTORS: [u64; 5] = [0, 24, 16384, 1 << 33, u64::MAX];

/// The sum, written down a second time: word by word, as `docs/format` tells it.
fn sum(bytes: &[u8], word_of: fn([u8; 4]) -> u32) -> u32 {
    let mut sum = 0_u64;
    for word in bytes.chunks(4) {
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        sum += u64::from(word_of(padded));
    }
    (sum as u32).wrapping_add((sum >> 32) as u32)
}

fn repair_v1(bytes: &mut [u8]) {
    let Some(max_dev) = bytes.get(220..224) else { return };
    let max_dev = u32::from_le_bytes(max_dev.try_into().unwrap()) as usize;
    let covered = 256_usize.saturating_add(max_dev.saturating_mul(2));
    if covered <= bytes.len() {
        bytes[216..220].fill(0);
        let sum = sum(&bytes[..covered], u32::from_le_bytes);
        bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    }
}

fn repair_v0(bytes: &mut [u8]) {
    if bytes.len() >= 4096 {
        bytes[152..156].fill(0);
        let stored = match bytes[0] {
            0xa9 => sum(&bytes[..4096], u32::from_be_bytes).to_be_bytes(),
            _ => sum(&bytes[..4096], u32::from_le_bytes).to_le_bytes(),
        };
        bytes[152..156].copy_from_slice(&stored);
    }
}

fn check_v1(bytes: &[u8]) -> Verdict {
    look_everywhere(bytes);
    let mut verdict = Verdict::Refused;
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        let Ok((superblock, checksum)) = SuperblockV1::decode(bytes, version) else { continue };
        verdict = Verdict::Decoded;
        for block in [512, 4096] {
            let encoded = superblock.encode(block);
            let (again, verdict) = SuperblockV1::decode(&encoded, version).unwrap();
            assert!(verdict.is_correct(), "its own checksum");
            assert_eq!(again, superblock, "encoded and decoded again");
            if checksum.is_correct() {
                let covered = superblock.covered_bytes();
                assert_eq!(encoded[..covered], bytes[..covered], "the bytes it came from");
            }
        }
        for sectors in DEVICE_SECTORS {
            for refusal in superblock.kernel_refusals(checksum, sectors, 512) {
                assert!(!refusal.to_string().is_empty());
            }
        }
        let (metadata, state) = (superblock.metadata(), superblock.state());
        assert_eq!(metadata.events, state.events);
        let next = match superblock.with_state(&state, superblock.dev_number as usize) {
            Ok(next) => next,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                continue;
            }
        };
        assert_eq!(next.state(), state, "a state survives its superblock");
        let fixed = next.with_state(&state, superblock.dev_number as usize);
        assert_eq!(fixed, Ok(next), "made twice");
    }
    verdict
}

fn check_v0(bytes: &[u8]) -> Verdict {
    look_everywhere(bytes);
    let Ok((superblock, checksum)) = SuperblockV0::decode(bytes, 16256) else {
        return Verdict::Refused;
    };
    let encoded = superblock.encode();
    let (again, verdict) = SuperblockV0::decode(&encoded, 16256).unwrap();
    assert!(verdict.is_correct(), "its own checksum");
    assert_eq!(again, superblock, "encoded and decoded again");
    assert_eq!(encoded[..152], bytes[..152], "the bytes it came from");
    assert_eq!(encoded[156..], bytes[156..4096], "the bytes it came from");
    for sectors in DEVICE_SECTORS {
        for refusal in superblock.kernel_refusals(checksum, sectors) {
            assert!(!refusal.to_string().is_empty());
        }
    }
    let (metadata, state) = (superblock.metadata(), superblock.state());
    assert_eq!(metadata.events, state.events);
    assert_eq!(metadata.roles.len(), 27);
    // Numbers change with the first write, so what is stable is the second.
    if let Ok(next) = superblock.with_state(&state, superblock.this_disk.number as usize)
        && superblock.raid_disks > 0
    {
        let known = next.state();
        assert_eq!(known.resync_offset.is_none(), state.resync_offset.is_none());
        assert_eq!(known.devices.iter().flatten().count(), next.nr_disks as usize);
        let fixed = next.with_state(&known, next.this_disk.number as usize);
        assert_eq!(fixed, Ok(next), "made twice");
    }
    Verdict::Decoded
}

/// A device that has these bytes at every place where a superblock can be.
fn look_everywhere(bytes: &[u8]) {
    for sectors in DEVICE_SECTORS {
        let found = detect(sectors, |_| Ok::<&[u8], String>(bytes));
        assert_eq!(found.outcomes.len(), candidates(sectors).len());
        for (candidate, outcome) in &found.outcomes {
            assert!(!outcome.to_string().is_empty(), "{candidate:?}");
        }
        if let Some((superblock, _)) = found.superblock() {
            let best = superblock.metadata().created;
            for (_, other, _) in found.others() {
                assert!(other.metadata().created <= best, "an older one was chosen");
            }
        }
    }
}
