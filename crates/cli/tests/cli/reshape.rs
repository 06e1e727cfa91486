//! `reshape`: an array in mid-reshape is finished or reverted, over an overlay or in place.

use std::fs;

use md::ondisk::Version;
use md::ondisk::superblock::{SuperblockV1, feature};
use serde_json::Value;
use testkit::Rng;

use crate::support::{Dir, raidlab};

/// First byte of a superblock 1.2.
const SUPERBLOCK: usize = 4096;

struct Images {
    dir: Dir,
    members: Vec<String>,
    /// SHA-256 of the contents.
    sha256: String,
}

impl Images {
    /// A RAID 5 in sync whose superblocks say that its chunks are about to become smaller, and its
    /// data to move down by 512 KiB. `moves`: whether they move; then raidlab wrote them.
    fn new(moves: bool) -> Images {
        let dir = Dir::new();
        let members: Vec<String> = (0..4).map(|at| dir.file(&format!("m{at}"))).collect();
        for (number, member) in (1_u64..).zip(&members) {
            fs::write(member, Rng::new(number).bytes(5 << 20)).expect("an image");
        }
        let all = members.join(" ");
        let options = "-e 1.2 --data-offset 1M -l 5 -n 4 -c 64 --bitmap none";
        raidlab(&format!("create --force {options} {all}")).code(0);
        for member in &members {
            let mut image = fs::read(member).expect("an image");
            let read = &image[SUPERBLOCK..][..4096];
            let (mut superblock, _) =
                SuperblockV1::decode(read, Version::V1_2).expect("a superblock");
            superblock.feature_map |= feature::RESHAPE_ACTIVE;
            if moves {
                superblock.feature_map |= feature::NEW_OFFSET;
                superblock.new_offset = -1024;
                superblock.utime.micros = 1;
            }
            superblock.new_level = superblock.level;
            superblock.new_layout = superblock.layout;
            superblock.new_chunk = 64;
            superblock.delta_disks = 0;
            superblock.reshape_position = 0;
            let bytes = superblock.encode(512);
            image[SUPERBLOCK..][..bytes.len()].copy_from_slice(&bytes);
            fs::write(member, image).expect("an image");
        }
        let mut images = Images { dir, members, sha256: String::new() };
        images.sha256 = images.dumped("", if moves { 0 } else { 1 });
        images
    }

    /// The superblocks are as Linux writes them.
    fn written_by_linux(&self) {
        for member in &self.members {
            let mut image = fs::read(member).expect("an image");
            let read = &image[SUPERBLOCK..][..4096];
            let (mut superblock, _) =
                SuperblockV1::decode(read, Version::V1_2).expect("a superblock");
            superblock.utime.micros = 0;
            let bytes = superblock.encode(512);
            image[SUPERBLOCK..][..bytes.len()].copy_from_slice(&bytes);
            fs::write(member, image).expect("an image");
        }
    }

    fn all(&self) -> String {
        self.members.join(" ")
    }

    /// The hash of the contents; in mid-reshape without room there is a doubt, and the code is 1.
    fn dumped(&self, words: &str, code: i32) -> String {
        let ran = raidlab(&format!("dump --sha256 {words} {}", self.all())).code(code);
        ran.stdout.split_whitespace().next().expect("a hash").to_string()
    }

    fn bytes(&self) -> Vec<Vec<u8>> {
        self.members.iter().map(|member| fs::read(member).expect("an image")).collect()
    }
}

fn value(stdout: &str) -> Value {
    serde_json::from_str(stdout).expect("JSON")
}

#[test]
fn a_rehearsal_leaves_the_members_and_the_real_thing_does_not() {
    let images = Images::new(true);
    let (all, before) = (images.all(), images.bytes());
    let ran = raidlab(&format!("reshape --continue {all}")).code(2);
    assert!(ran.stderr.contains("--overlay FILE") && ran.stderr.contains("--in-place"), "{ran:?}");
    let overlay = images.dir.file("try.ovl");
    let ran = raidlab(&format!("reshape --continue --json --overlay {overlay} {all}")).code(0);
    let said = value(&ran.stdout);
    assert_eq!(said["finished"], true, "{said}");
    assert_eq!(said["change"], "chunk 128 to 64 sectors", "{said}");
    assert_eq!(said["moved_sectors"], said["array_sectors"], "{said}");
    assert!(images.bytes() == before, "a rehearsal wrote to members");
    assert_eq!(images.dumped(&format!("--overlay {overlay}"), 0), images.sha256);
    assert!(!images.dir.names().contains(&"try.ovl.backup".to_string()), "no copy was needed");

    let ran = raidlab(&format!("reshape --continue --in-place {all}")).code(0);
    assert!(ran.stdout.contains("chunk 128 to 64 sectors: done"), "{}", ran.stdout);
    assert_eq!(images.dumped("", 0), images.sha256);
    let detail = raidlab(&format!("detail {all}")).code(0).stdout;
    assert!(detail.contains("Chunk Size : 32K") && !detail.contains("Reshape"), "{detail}");
    raidlab(&format!("scrub --check {all}")).code(0);
    let ran = raidlab(&format!("reshape --continue --in-place {all}")).code(2);
    assert!(ran.stderr.contains("no reshape is in progress"), "{ran:?}");
}

#[test]
fn a_position_that_linux_may_have_left_behind_needs_force() {
    let images = Images::new(true);
    images.written_by_linux();
    let (all, before) = (images.all(), images.bytes());
    let ran = raidlab(&format!("dump --sha256 {all}")).code(1);
    assert!(ran.stderr.contains("Linux may have moved more of the array"), "{ran:?}");
    let ran = raidlab(&format!("reshape --continue --in-place {all}")).code(2);
    assert!(ran.stderr.contains("Linux may have moved more than it recorded"), "{ran:?}");
    assert!(ran.stderr.contains("rehearsal over an overlay"), "{ran:?}");
    assert!(images.bytes() == before, "a refusal wrote to members");
    raidlab(&format!("reshape --continue --in-place --force {all}")).code(0);
    assert_eq!(images.dumped("", 0), images.sha256);
}

#[test]
fn a_reshape_in_place_needs_a_backup_file_and_goes_back() {
    let images = Images::new(false);
    let (all, before) = (images.all(), images.bytes());
    let ran = raidlab(&format!("reshape --continue --in-place {all}")).code(2);
    assert!(ran.stderr.contains("--backup-file"), "{ran:?}");
    let ran = raidlab(&format!("reshape --continue --in-place --force {all}")).code(2);
    assert!(ran.stderr.contains("a backup file is needed"), "{ran:?}");
    let file = &images.members[0];
    let words = format!("reshape --continue --in-place --backup-file {file} {all}");
    assert!(raidlab(&words).code(2).stderr.contains("name another file"));
    assert!(images.bytes() == before, "a refusal wrote to members");

    let backup = images.dir.file("chunk.backup");
    fs::write(&backup, vec![1; 8192]).expect("a file");
    let words = format!("--in-place --backup-file {backup} {all}");
    let ran = raidlab(&format!("reshape --continue {words}")).code(2);
    assert!(ran.stderr.contains("holds something that is no backup"), "{ran:?}");
    fs::remove_file(&backup).expect("it is there");

    let overlay = images.dir.file("try.ovl");
    let rehearsed = format!("reshape --continue --force --overlay {overlay} {all}");
    let ran = raidlab(&rehearsed).code(0);
    assert!(ran.stdout.contains("in place, --backup-file is needed"), "{}", ran.stdout);
    assert_eq!(images.dumped(&format!("--overlay {overlay}"), 0), images.sha256);
    assert!(images.bytes() == before, "a rehearsal wrote to members");

    let ran = raidlab(&format!("reshape --revert --force --json {words}")).code(0);
    assert_eq!(value(&ran.stdout)["finished"], true);
    assert_eq!(images.dumped("", 0), images.sha256);
    let detail = raidlab(&format!("detail {all}")).code(0).stdout;
    assert!(detail.contains("Chunk Size : 64K"), "{detail}");
    raidlab(&format!("scrub --check {all}")).code(0);
}

#[test]
fn status_shows_where_a_reshape_stopped() {
    let images = Images::new(true);
    for member in &images.members {
        let mut image = fs::read(member).expect("an image");
        let read = &image[SUPERBLOCK..][..4096];
        let (mut superblock, _) = SuperblockV1::decode(read, Version::V1_2).expect("a superblock");
        // Four rows of three chunks of 64 KiB.
        superblock.reshape_position = 1536;
        let bytes = superblock.encode(512);
        image[SUPERBLOCK..][..bytes.len()].copy_from_slice(&bytes);
        fs::write(member, image).expect("an image");
    }
    let ran = raidlab(&format!("status --json {}", images.all())).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let array = &json["arrays"][0];
    let reshape = &array["reshape"];
    assert_eq!(
        (&reshape["position_sectors"], &reshape["done_sectors"]),
        (&1536.into(), &1536.into())
    );
    assert_eq!(reshape["of_sectors"], array["array_sectors"]);
    let all = array["array_sectors"].as_u64().expect("a number");
    let share = 153_600.0 / all as f64;
    let text = raidlab(&format!("status {}", images.all())).code(1).stdout;
    let wanted = format!("reshape = {share:.1}% (768/{})", all / 2);
    assert!(text.contains(&wanted) && text.contains("reshape --continue"), "{wanted}: {text}");
    assert!(text.contains(reshape["change"].as_str().expect("text")), "{text}");
}
