//! One changed byte, at every place of a superblock: noticed, or without any meaning.

use raidlab_md::ondisk::Version;
use raidlab_md::ondisk::superblock::{SuperblockV0, SuperblockV1};

/// What became of a change.
enum Seen {
    /// Refused, or the checksum is wrong.
    Noticed,
    /// The value is the same.
    Harmless,
    /// Another value with a right checksum.
    Believed,
}

fn seen<T: PartialEq, E>(before: &T, after: Result<(T, bool), E>) -> Seen {
    match after {
        Err(_) | Ok((_, false)) => Seen::Noticed,
        Ok((value, true)) if value == *before => Seen::Harmless,
        Ok((_, true)) => Seen::Believed,
    }
}

/// The offsets where some change is harmless. None may be believed.
fn harmless(bytes: &[u8], values: &[u8], try_it: impl Fn(&[u8]) -> Seen) -> Vec<usize> {
    let mut bytes = bytes.to_vec();
    let mut harmless = Vec::new();
    for offset in 0..bytes.len() {
        let right = bytes[offset];
        for &change in values {
            bytes[offset] = right ^ change;
            match try_it(&bytes) {
                Seen::Noticed => {}
                Seen::Harmless => harmless.push(offset),
                Seen::Believed => panic!("byte {offset}: {right:#x} -> {:#x}", bytes[offset]),
            }
        }
        bytes[offset] = right;
    }
    harmless.dedup();
    harmless
}

/// Every other value of a byte, or its eight bits alone where that takes too long.
fn changes(all: bool) -> Vec<u8> {
    if all { (1..=255).collect() } else { (0..8).map(|bit| 1 << bit).collect() }
}

fn decode_v1(bytes: &[u8]) -> Result<(SuperblockV1, bool), raidlab_md::ondisk::DecodeError> {
    let (value, checksum) = SuperblockV1::decode(bytes, Version::V1_2)?;
    Ok((value, checksum.is_correct()))
}

#[test]
fn a_changed_byte_of_1_x_is_noticed() {
    let full = include_bytes!("../fuzz/corpus/superblock-1/reshape-grow.bin");
    let ppl = include_bytes!("../fuzz/corpus/superblock-1/ppl.bin");
    let mut odd = decode_v1(full).unwrap().0;
    odd.dev_roles.truncate(5);
    for bytes in [full.to_vec(), ppl.to_vec(), odd.encode(512)] {
        let (value, _) = decode_v1(&bytes).unwrap();
        let found = harmless(&bytes, &changes(true), |bytes| seen(&value, decode_v1(bytes)));
        let outside: Vec<usize> = (value.covered_bytes()..bytes.len()).collect();
        println!(
            "{} roles: {} bytes without meaning, all behind them",
            value.dev_roles.len(),
            found.len()
        );
        assert_eq!(found, outside);
    }
}

#[test]
fn a_changed_byte_of_0_90_is_noticed() {
    let bytes = include_bytes!("../fuzz/corpus/superblock-0.90/raid1.bin");
    let decode = |bytes: &[u8]| {
        SuperblockV0::decode(bytes, 16256).map(|(value, sum)| (value, sum.is_correct()))
    };
    let (value, _) = decode(bytes).unwrap();
    let changes = changes(testkit::runs_all());
    testkit::print_sample("changes of each byte", changes.len() as u64, 255);
    let found = harmless(bytes, &changes, |bytes| seen(&value, decode(bytes)));
    println!("0.90: {} bytes without meaning", found.len());
    assert!(found.is_empty(), "the checksum covers all of it, but not {found:?}");
}
