//! Verbs that sound as if they only read do: no byte of a member changes, and no time of its last
//! write, in whatever state the array is.

use std::fs;
use std::time::SystemTime;

use md::ondisk::Version;
use md::ondisk::superblock::{SuperblockV1, feature};
use testkit::Rng;

use crate::support::{Dir, raidlab};

/// What is run with the members behind it; some of it is refused.
const VERBS: [&str; 24] = [
    "examine",
    "examine --json",
    "detail",
    "detail --json",
    "status",
    "status --json",
    "guess",
    "guess --json",
    "volumes",
    "volumes --json",
    "dump --sha256",
    "dump --sha256 --partial --ignore-events",
    "dump --check",
    "dump --check --correct",
    "scrub",
    "scrub --check",
    "scrub --check --json",
    "scrub --check --from 8",
    "reshape --continue",
    "reshape --revert",
    "zero-superblock --dry-run",
    "create --dry-run --force -l 5 -n 4",
    "create --dry-run -l 5 -n 4",
    "diagnose --probe --measured seq-read=1MB/s",
];

/// The superblock of an image, changed.
fn change(member: &str, how: impl Fn(&mut SuperblockV1)) {
    let mut image = fs::read(member).expect("an image");
    let decoded = SuperblockV1::decode(&image[4096..8192], Version::V1_2);
    let (mut superblock, _) = decoded.expect("a superblock");
    how(&mut superblock);
    let bytes = superblock.encode(512);
    image[4096..][..bytes.len()].copy_from_slice(&bytes);
    fs::write(member, image).expect("an image");
}

fn in_use(superblock: &mut SuperblockV1) {
    superblock.resync_offset = 0;
}

fn reshaping(superblock: &mut SuperblockV1) {
    superblock.feature_map |= feature::RESHAPE_ACTIVE | feature::NEW_OFFSET;
    superblock.new_offset = -1024;
    superblock.utime.micros = 1;
    superblock.new_level = superblock.level;
    superblock.new_layout = superblock.layout;
    superblock.new_chunk = 64;
    superblock.reshape_position = 0;
}

#[test]
fn verbs_that_sound_as_if_they_only_read_do() {
    type Change = fn(&mut SuperblockV1);
    let unchanged: Change = |_| {};
    let states: [(&str, Change, bool, usize); 7] = [
        ("clean", unchanged, false, 0),
        ("clean, a row differs", unchanged, true, 0),
        ("in use", in_use, false, 0),
        ("in use, a row differs", in_use, true, 0),
        ("degraded", unchanged, false, 1),
        ("in use and degraded", in_use, true, 1),
        ("reshaping", reshaping, false, 0),
    ];
    for (state, how, spoilt, left_out) in states {
        let dir = Dir::new();
        let mut members: Vec<String> = (0..4).map(|at| dir.file(&format!("m{at}"))).collect();
        for (number, member) in (1_u64..).zip(&members) {
            fs::write(member, Rng::new(number).bytes(4 << 20)).expect("an image");
        }
        let all = members.join(" ");
        let options = "-e 1.2 --data-offset 1M -l 5 -n 4 -c 64 --bitmap none";
        raidlab(&format!("create --force {options} {all}")).code(0);
        for member in &members {
            change(member, how);
        }
        if spoilt {
            let mut image = fs::read(&members[1]).expect("an image");
            image[2 << 20..][..4096].fill(7);
            fs::write(&members[1], image).expect("an image");
        }
        members.truncate(members.len() - left_out);
        for member in &members {
            let mut mode = fs::metadata(member).expect("an image").permissions();
            mode.set_readonly(true);
            fs::set_permissions(member, mode).expect("its mode");
        }
        let seen = || -> Vec<(Vec<u8>, SystemTime)> {
            let of = |member: &String| {
                let written = fs::metadata(member).and_then(|it| it.modified()).expect("it is");
                (fs::read(member).expect("an image"), written)
            };
            members.iter().map(of).collect()
        };
        let before = seen();
        for verb in VERBS {
            let ran = raidlab(&format!("{verb} {}", members.join(" ")));
            assert!(seen() == before, "{state}: {verb} wrote to a member: {ran:?}");
        }
    }
}
