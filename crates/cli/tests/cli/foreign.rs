//! BIOS RAID: golden arrays with Intel's metadata and DDF are read from every sufficient set of
//! members, and refused in words from every other.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::corpus::{self, Case};
use crate::support::{Dir, Ran, raidlab};

/// The members left when those whose bits are set are lost.
fn left(case: &Case, lost: u32) -> String {
    let images = case.images.iter().enumerate();
    let left = images.filter(|(index, _)| lost >> index & 1 == 0);
    left.map(|(_, image)| image.as_str()).collect::<Vec<_>>().join(" ")
}

fn dump(case: &Case, volume: &Value, lost: u32, options: &str) -> Ran {
    let name = volume["name"].as_str().expect("a name");
    raidlab(&format!("dump --sha256 {options} --array {name} {}", left(case, lost)))
}

fn is_right(ran: &Ran, volume: &Value) -> bool {
    ran.stdout.split_whitespace().next() == volume["sha256"].as_str()
}

/// Whether a member serves a slot: it did not fail, and was not a spare.
fn serves(case: &Case, index: usize) -> bool {
    let serial = &case.members()[index]["serial"];
    *serial != case.json["failed"] && *serial != case.json["spare"]
}

fn case(name: &str) -> &'static Case {
    corpus::foreign().iter().find(|case| case.name == name).expect("a golden array")
}

#[test]
fn every_sufficient_set_of_members_gives_the_contents() {
    let (mut right, mut refused) = (0, 0);
    for case in corpus::foreign() {
        let count = case.images.len();
        // In its first synchronisation redundancy is not relied on: asked for below.
        let is_initial = case.name.ends_with("-initial");
        for volume in case.json["volumes"].as_array().expect("a list") {
            let slots = volume["slots"].as_u64().expect("a number") as usize;
            let tolerates = volume["tolerates"].as_u64().expect("a number") as usize;
            let serving = (0..count).filter(|&index| serves(case, index)).count();
            for lost in 0..1_u32 << count {
                if lost.count_ones() as usize == count {
                    continue;
                }
                let gone = (0..count).filter(|&at| lost >> at & 1 == 1 && serves(case, at));
                let missing = gone.count() + (slots - serving);
                let ran = dump(case, volume, lost, "");
                let context = format!("{}, lost {lost:b}: {}", case.name, ran.stderr);
                if missing == 0 || missing <= tolerates && !is_initial {
                    assert_eq!(ran.code, 0, "{context}");
                }
                if ran.code == 2 {
                    assert!(ran.stdout.is_empty(), "{context}");
                    refused += 1;
                } else {
                    assert!(is_right(&ran, volume), "{context}");
                    right += 1;
                }
            }
        }
    }
    println!("{right} dumps were right, {refused} were refused");
    assert!(right >= 100 && refused > 50, "{right} {refused}");
}

/// A volume that was stopped in its first synchronisation: without a member its data can only be
/// computed from parity that may never have been written.
#[test]
fn a_first_synchronisation_that_has_not_ended_needs_force() {
    let case = case("imsm-raid5-3d-initial");
    let volume = &case.json["volumes"][0];
    assert!(is_right(&dump(case, volume, 0, "").code(0), volume));
    let refused = dump(case, volume, 2, "").code(2);
    assert!(refused.stderr.contains("initial synchronisation"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--force"), "{}", refused.stderr);
    // By force it is read with the doubt, and ends with it.
    let forced = dump(case, volume, 2, "--force").code(1);
    assert!(forced.stderr.contains("doubt: The initial synchronisation"), "{}", forced.stderr);
}

/// Copies of images under names that say nothing.
fn anonymous(case: &Case, dir: &Dir) -> Vec<String> {
    let copy = |(index, image): (usize, &String)| {
        let to = dir.file(&format!("disk{index}.img"));
        fs::copy(image, &to).expect("a copy");
        to
    };
    case.images.iter().enumerate().map(copy).collect()
}

#[test]
fn intel_disks_that_cannot_be_told_apart_need_their_order() {
    let case = case("imsm-raid5-4d-c16");
    let dir = Dir::new();
    let images = anonymous(case, &dir);
    let named = images.join(" ");
    let refused = raidlab(&format!("dump --sha256 {named}")).code(2);
    assert!(refused.stderr.contains("serial numbers alone"), "{}", refused.stderr);
    assert!(refused.stderr.contains("slot 2 is 'GOLD02DISK"), "{}", refused.stderr);
    // The table of slots is in the metadata; the images are in the order of the serial numbers.
    let json = raidlab(&format!("examine --json {}", images[0])).code(0).record();
    let table = &json["members"][0]["foreign"]["metadata"];
    let slots = table["volumes"][0]["map"]["slots"].as_array().expect("slots");
    let order = slots.iter().map(|slot| {
        let serial = &table["disks"][slot["disk"].as_u64().expect("an index") as usize]["serial"];
        let place = case.members().iter().position(|member| member["serial"] == *serial);
        place.expect("a member").to_string()
    });
    let order: Vec<String> = order.collect();
    let ran = raidlab(&format!("dump --sha256 --order {} {named}", order.join(","))).code(0);
    assert!(is_right(&ran, &case.json["volumes"][0]), "{}", ran.stderr);
    assert!(ran.stderr.contains("their order is as given"), "{}", ran.stderr);
    // Without one of them, too; and a pair that is exchanged is seen by the parity.
    let lost = format!("{},{},missing,{}", order[0], order[1], order[3]);
    let ran = raidlab(&format!("dump --sha256 --order {lost} {named}")).code(0);
    assert!(is_right(&ran, &case.json["volumes"][0]), "{}", ran.stderr);
}

/// All slots of a mirror hold the same.
#[test]
fn disks_of_a_mirror_need_no_serial_numbers() {
    let case = case("imsm-raid1-2d-spare");
    let dir = Dir::new();
    let images = anonymous(case, &dir);
    for members in [images[..2].join(" "), images[0].clone(), images[1].clone()] {
        let ran = raidlab(&format!("dump --sha256 {members}")).code(0);
        assert!(is_right(&ran, &case.json["volumes"][0]), "{}", ran.stderr);
    }
}

#[test]
fn examine_detail_and_status_show_volumes() {
    let case = case("imsm-matrix-3d");
    let all = case.images.join(" ");
    let shown = raidlab(&format!("examine {}", case.images[0])).code(0);
    for text in ["Intel Raid ISM", "[vol0]", "[vol1]", "GOLD04DISK02", "RAID Level : 5"] {
        assert!(shown.stdout.contains(text), "{text}: {}", shown.stdout);
    }
    let status = raidlab(&format!("status {all}")).code(0);
    assert!(status.stdout.contains("vol0") && status.stdout.contains("vol1"), "{}", status.stdout);
    let detail = raidlab(&format!("detail --array vol1 {all}")).code(0);
    for text in ["Version : imsm", "raid5", "left-asymmetric", "active sync", "read here, not run"]
    {
        assert!(detail.stdout.contains(text), "{text}: {}", detail.stdout);
    }
    // Two volumes, none chosen.
    let several = raidlab(&format!("dump --sha256 {all}")).code(2);
    assert!(several.stderr.contains("vol0") && several.stderr.contains("--array"));

    let case = self::case("ddf-raid5-3d-failed");
    let shown = raidlab(&format!("examine {}", case.images[0])).code(0);
    for text in ["DDF", "[vol0]", "rotating from the last, data continue", "all correct"] {
        assert!(shown.stdout.contains(text), "{text}: {}", shown.stdout);
    }
    let detail = raidlab(&format!("detail {}", case.images.join(" "))).code(1);
    assert!(detail.stdout.contains("degraded"), "{}", detail.stdout);
    let json = raidlab(&format!("detail --json {}", case.images.join(" "))).code(1).record();
    assert_eq!(json["arrays"][0]["version"], "ddf");
}

#[test]
fn members_of_bios_raid_are_in_use() {
    let case = case("ddf-raid1-2d");
    let dir = Dir::new();
    let images = anonymous(case, &dir);
    let before = fs::read(&images[0]).expect("an image");
    let create = format!("create --level 1 --raid-devices 2 {} {}", images[0], images[1]);
    let refused = raidlab(&create).code(2);
    assert!(refused.stderr.contains("DDF"), "{}", refused.stderr);
    let refused = raidlab(&format!("zero-superblock {}", images[0])).code(2);
    assert!(refused.stderr.contains("DDF metadata"), "{}", refused.stderr);
    assert!(fs::read(&images[0]).expect("an image") == before, "it was written to");
}

/// A volume begins where its disks do: its partition table is not theirs.
#[test]
fn a_table_in_a_volume_is_the_volumes() {
    let case = case("ddf-raid1-2d");
    let dir = Dir::new();
    let images = anonymous(case, &dir);
    let mut record = [0_u8; 512];
    record[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 8, 0, 0, 0, 0, 4, 0, 0]);
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    for image in &images {
        let file = fs::OpenOptions::new().write(true).open(image).expect("an image");
        file.write_all_at(&record, 0).expect("written");
    }
    let all = images.join(" ");
    let out = dir.file("volume.img");
    raidlab(&format!("dump -o {out} {all}")).code(0);
    assert_eq!(fs::read(&out).expect("the volume")[..512], record);
    raidlab(&format!("detail {all}")).code(0);
}

#[test]
fn dm_raids_superblock_is_named() {
    let dir = Dir::new();
    let image = dir.file("rmeta.img");
    let mut bytes = vec![0; 4 << 20];
    let words: [u32; 4] = [u32::from_le_bytes(*b"DmRd"), 0, 3, 1];
    words.iter().enumerate().for_each(|(at, word)| {
        bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
    });
    bytes[48] = 5;
    fs::write(&image, bytes).expect("an image");
    let shown = raidlab(&format!("examine {image}")).code(1);
    assert!(shown.stdout.contains("leg 1 of 3 of a raid5 volume"), "{}", shown.stdout);
    let refused = raidlab(&format!("dump --sha256 {image}")).code(2);
    assert!(refused.stderr.contains("dm-raid"), "{}", refused.stderr);
}
