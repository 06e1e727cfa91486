//! What lies on arrays: `volumes`, and `dump --volume`.

use std::process::Command;
use std::sync::Arc;

use admin::{Opened, StartOptions, start};
use host::{Access, Device, DeviceOptions, Location};
use md::assemble::{Options, assemble};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::Rng;

use crate::lvm::{group, logical, physical_volume, uuid};
use crate::support::{Dir, Ran, raidlab};
use crate::tables::write_gpt;

const MIB: usize = 1 << 20;
/// Extents of the groups of these tests.
const EXTENT: usize = 64 << 10;

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn checksum_in(ran: &Ran) -> String {
    ran.stdout.split_whitespace().next().expect("a checksum").to_string()
}

/// Bytes of which no block repeats.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    Rng::new(seed).bytes(bytes)
}

/// Makes an array of new files that holds these contents; returns its members.
fn array(dir: &Dir, name: &str, level: &str, count: usize, contents: &[u8]) -> Vec<String> {
    let members: Vec<String> = (0..count).map(|at| dir.file(&format!("{name}.{at}.img"))).collect();
    let data = match level {
        "1" => 1,
        _ => count - 1,
    };
    let size = contents.len() / MIB / data + 2;
    let words = format!("--raid-devices {count} --chunk 64K --file-size {size}M");
    let words = if level == "1" { words.replace("--chunk 64K ", "") } else { words };
    let create = format!("create --homehost none --name {name} --level {level} {words}");
    raidlab(&format!("{create} {}", members.join(" "))).code(0);
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    let opened = members.iter().map(|path| {
        let device = Device::open(&Location::whole(path), options).expect("it opens");
        Opened::device(Arc::new(device)).expect("a superblock")
    });
    let opened: Vec<Opened> = opened.collect();
    let candidates: Vec<_> = opened.iter().map(Opened::candidate).collect();
    let found = assemble(&candidates, &Options::default());
    let driver = start(&found.arrays[0], &opened, &StartOptions::default()).expect("it starts");
    let array = array::Array::run(driver).expect("it runs");
    array.write_at(contents, 0).expect("it is written");
    array.stop().expect("it stops");
    members
}

/// An ext4 with a label, as an image of this many MiB.
fn ext4(dir: &Dir, label: &str, mib: usize) -> Vec<u8> {
    let path = dir.file("ext4.img");
    let size = format!("{mib}M");
    let mut mke2fs = Command::new("mke2fs");
    mke2fs.args(["-q", "-F", "-t", "ext4", "-L", label, &path, &size]);
    assert!(
        mke2fs.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin").status().expect("mke2fs").success()
    );
    let image = std::fs::read(&path).expect("an image");
    std::fs::remove_file(&path).expect("removed");
    image
}

/// 30 MiB with a GPT: an ext4 of 8 MiB at 1 MiB, noise at 16 MiB.
fn partitioned(dir: &Dir) -> Vec<u8> {
    let path = dir.file("table.img");
    let mut contents = vec![0; 30 * MIB];
    contents[MIB..9 * MIB].copy_from_slice(&ext4(dir, "data", 8));
    contents[16 * MIB..20 * MIB].copy_from_slice(&noise(1, 4 * MIB));
    std::fs::write(&path, &contents).expect("written");
    let mib = MIB as u64;
    write_gpt(&path, 512, &[(mib, 8 * mib), (16 * mib, 4 * mib)]);
    let contents = std::fs::read(&path).expect("read");
    std::fs::remove_file(&path).expect("removed");
    contents
}

fn volumes(words: &str) -> Value {
    let ran = raidlab(&format!("volumes --json {words}"));
    serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}{}", ran.stdout, ran.stderr))
}

fn named<'j>(json: &'j Value, name: &str) -> &'j Value {
    let arrays = json["arrays"].as_array().expect("a list").iter();
    let mut all = arrays.flat_map(|array| array["volumes"].as_array().expect("a list"));
    all.find(|volume| volume["name"] == name).unwrap_or_else(|| panic!("{name}: {json:#}"))
}

fn names(json: &Value) -> Vec<&str> {
    let arrays = json["arrays"].as_array().expect("a list").iter();
    let all = arrays.flat_map(|array| array["volumes"].as_array().expect("a list"));
    all.map(|volume| volume["name"].as_str().expect("a name")).collect()
}

#[test]
fn partitions_of_an_array_are_listed_and_dumped_also_degraded() {
    let dir = Dir::new();
    let contents = partitioned(&dir);
    let members = array(&dir, "7", "5", 3, &contents);
    let all = members.join(" ");
    let json = volumes(&all);
    assert_eq!(names(&json), ["md7", "md7/p1", "md7/p2"]);
    let array = &json["arrays"][0];
    assert_eq!((&array["name"], &array["level"]), (&json!("md7"), &json!("raid5")));
    assert_eq!(array["bytes"].as_u64().map(|it| it >= contents.len() as u64), Some(true));
    assert_eq!(named(&json, "md7")["kind"], "whole");
    assert_eq!(named(&json, "md7")["content"]["type"], "gpt");
    let first = named(&json, "md7/p1");
    let wanted = json!({
        "name": "md7/p1", "kind": "partition", "offset": MIB, "bytes": 8 * MIB,
        "readable": true, "in_part": false, "why": null, "note": null, "doubts": [],
        "part_of": null, "arrays": ["md7"], "content": first["content"],
    });
    assert_eq!(*first, wanted);
    let content = &first["content"];
    assert_eq!((&content["type"], &content["label"]), (&json!("ext4"), &json!("data")));
    assert_eq!(content["uuid"].as_str().map(str::len), Some(36));
    assert_eq!(named(&json, "md7/p2")["content"], Value::Null);
    // People get the same, and exit code 0.
    let ran = raidlab(&format!("volumes {all}")).code(0);
    assert!(ran.stdout.starts_with("md7 : raid5, "), "{}", ran.stdout);
    let line = ran.stdout.lines().find(|line| line.contains("md7/p1")).expect("a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    let shown = ["md7/p1", "partition", "1048576", "8.00", "MiB", "ext4", "data"];
    assert_eq!(words[..7], shown, "{}", ran.stdout);
    for without in 0..3 {
        let mut left = members.clone();
        left.remove(without);
        for (name, range) in [("md7/p1", MIB..9 * MIB), ("md7/p2", 16 * MIB..20 * MIB)] {
            let words = format!("dump --sha256 --volume {name} {}", left.join(" "));
            assert_eq!(checksum_in(&raidlab(&words).code(0)), sha256(&contents[range]));
        }
    }
    // As a file, which is the volume and nothing else.
    let out = dir.file("out.img");
    let ran = raidlab(&format!("dump --volume md7/p1 -o {out} {all}")).code(0);
    assert!(ran.stderr.contains("md7/p1: the redundancy agrees (all of it: "), "{}", ran.stderr);
    assert!(std::fs::read(&out).expect("read") == contents[MIB..9 * MIB]);
    // All of the array, by its name here.
    let whole = checksum_in(&raidlab(&format!("dump --sha256 --volume md7 {all}")).code(0));
    assert_eq!(whole, checksum_in(&raidlab(&format!("dump --sha256 {all}")).code(0)));
}

/// Flips bytes of a member where a text that is in the contents once lies.
fn damage(members: &[String], text: &[u8]) {
    for member in members {
        let mut bytes = std::fs::read(member).expect("read");
        let at = bytes.windows(text.len()).position(|window| window == text);
        let Some(at) = at else { continue };
        bytes[at..at + 16].iter_mut().for_each(|byte| *byte ^= 0xff);
        return std::fs::write(member, bytes).expect("written");
    }
    panic!("it is on no member");
}

#[test]
fn redundancy_is_compared_where_the_volume_lies() {
    let dir = Dir::new();
    let contents = partitioned(&dir);
    let members = array(&dir, "data", "5", 3, &contents);
    let all = members.join(" ");
    // 1 MiB behind the begin of the second partition.
    damage(&members, &contents[17 * MIB..17 * MIB + 64]);
    let ran = raidlab(&format!("dump --sha256 --volume data/p1 {all}")).code(0);
    assert!(ran.stderr.contains("the redundancy agrees"), "{}", ran.stderr);
    let ran = raidlab(&format!("dump --sha256 --volume data/p2 {all}")).code(1);
    assert!(
        ran.stderr.contains("volume sectors 2048 to 2056 do not agree with their redundancy"),
        "{}",
        ran.stderr
    );
    let ran = raidlab(&format!("dump --check --json --volume data/p2 {all}")).code(1);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&json["volume"], &json["arrays"]), (&json!("data/p2"), &json!(["data"])));
    assert_eq!(json["volume_sectors"], 8192);
    let differing = json["differing"].as_array().expect("a list");
    assert!(differing.contains(&json!({"sector": 2048, "sectors": 8})), "{json:#}");
    let ran = raidlab(&format!("dump --no-check --sha256 --volume data/p2 {all}")).code(0);
    assert!(!ran.stderr.contains("redundancy"), "{}", ran.stderr);
    // Nothing is left to compare.
    let left = members[1..].join(" ");
    let ran = raidlab(&format!("dump --check --volume data/p2 {left}")).code(2);
    assert!(ran.stderr.contains("data/p2: --check: these members have no redundancy"));
}

/// Names of volumes and what they hold.
type Contents = Vec<(&'static str, Vec<u8>)>;

/// Two arrays of 8 and 16 MiB with a group over both; its volumes' contents by name.
fn joined(dir: &Dir) -> ([Vec<String>; 2], Contents) {
    let physical = [('A', 100), ('B', 200)];
    let both = "both {\nid = \"BothBo-thBo-thBo-thBo-thBo-thBo-thBoth\"\n\
                status = [\"READ\", \"WRITE\", \"VISIBLE\"]\n\
                segment1 {\nstart_extent = 0\nextent_count = 30\ntype = \"striped\"\n\
                stripe_count = 1\nstripes = [ \"pv0\", 20 ]\n}\n\
                segment2 {\nstart_extent = 30\nextent_count = 100\ntype = \"striped\"\n\
                stripe_count = 1\nstripes = [ \"pv1\", 90 ]\n}\n}\n";
    let thin = "thin {\nid = \"ThinTh-inTh-inTh-inTh-inTh-inTh-inThin\"\n\
                status = [\"VISIBLE\"]\nsegment1 {\nstart_extent = 0\nextent_count = 9\n\
                type = \"thin\"\nthin_pool = \"first\"\n}\n}\n";
    let text = [
        logical("first", 'f', 20, "\"pv0\", 0"),
        logical("striped", 's', 40, "\"pv0\", 60, \"pv1\", 5"),
        both.to_string(),
        thin.to_string(),
    ];
    let text = group("vg1", 3, &physical, &text.concat());
    let mut pv0 = noise(10, MIB + 100 * EXTENT);
    let mut pv1 = noise(11, MIB + 200 * EXTENT);
    let fs = ext4(dir, "first", 1);
    pv0[MIB..MIB + fs.len()].copy_from_slice(&fs);
    for (bytes, letter) in [(&mut pv0, 'A'), (&mut pv1, 'B')] {
        let head = physical_volume(&uuid(letter), bytes.len() as u64, &text);
        bytes[..MIB].copy_from_slice(&head);
    }
    let extent = |bytes: &[u8], at: usize, count: usize| {
        bytes[MIB + at * EXTENT..MIB + (at + count) * EXTENT].to_vec()
    };
    let stripe = 16 << 10;
    let (a, b) = (extent(&pv0, 60, 20), extent(&pv1, 5, 20));
    let striped = a.chunks(stripe).zip(b.chunks(stripe)).flat_map(|(a, b)| [a, b].concat());
    let contents = vec![
        ("vg1/first", extent(&pv0, 0, 20)),
        ("vg1/striped", striped.collect()),
        ("vg1/both", [extent(&pv0, 20, 30), extent(&pv1, 90, 100)].concat()),
    ];
    let whole = |bytes: Vec<u8>| {
        let size = bytes.len().next_multiple_of(2 * MIB);
        [bytes.as_slice(), &vec![0; size - bytes.len()]].concat()
    };
    let arrays = [array(dir, "2", "1", 2, &whole(pv0)), array(dir, "3", "5", 3, &whole(pv1))];
    (arrays, contents)
}

#[test]
fn a_volume_group_over_two_arrays_is_read() {
    let dir = Dir::new();
    let ([first, second], contents) = joined(&dir);
    let all = format!("{} {}", first.join(" "), second.join(" "));
    let json = volumes(&all);
    let listed = ["md2", "vg1/first", "vg1/striped", "vg1/both", "vg1/thin", "md3"];
    assert_eq!(names(&json), listed, "{json:#}");
    let lv = named(&json, "vg1/first");
    assert_eq!((&lv["kind"], &lv["offset"]), (&json!("lvm"), &json!(MIB)));
    assert_eq!((&lv["content"]["label"], &lv["arrays"]), (&json!("first"), &json!(["md2"])));
    let lv = named(&json, "vg1/both");
    assert_eq!((&lv["offset"], &lv["arrays"]), (&Value::Null, &json!(["md2", "md3"])));
    let thin = named(&json, "vg1/thin");
    assert_eq!(thin["readable"], false);
    assert_eq!(thin["why"], "a thin volume of the pool first: not read here");
    let ran = raidlab(&format!("dump --sha256 --volume vg1/thin {all}")).code(2);
    assert!(ran.stderr.contains("vg1/thin: a thin volume of the pool first"), "{}", ran.stderr);
    for (name, bytes) in &contents {
        // Complete; without a member of each array.
        for members in [&all, &format!("{} {}", first[1], second[1..].join(" "))] {
            let ran = raidlab(&format!("dump --sha256 --volume {name} {members}")).code(0);
            assert_eq!(checksum_in(&ran), sha256(bytes), "{name}: {}", ran.stderr);
        }
    }
    let ran = raidlab(&format!("dump --sha256 --volume vg1/both {all}")).code(0);
    assert!(ran.stderr.contains("agrees (md2 all of it, md3 all of it: "), "{}", ran.stderr);
}

#[test]
fn a_missing_physical_volume_costs_only_what_lies_on_it() {
    let dir = Dir::new();
    let ([first, second], contents) = joined(&dir);
    let there = first.join(" ");
    let ran = raidlab(&format!("volumes {there}")).code(1);
    let missing =
        format!("the physical volume pv1 ({}), last seen as /dev/md1, is missing", uuid('B'));
    assert!(ran.stdout.contains(&format!("vg1/both: only in part: {missing}")), "{}", ran.stdout);
    let json = volumes(&there);
    assert_eq!(named(&json, "vg1/first")["readable"], true);
    let both = named(&json, "vg1/both");
    assert_eq!((&both["readable"], &both["in_part"]), (&json!(false), &json!(true)));
    assert_eq!(both["why"], missing);
    let ran = raidlab(&format!("dump --sha256 --volume vg1/first {there}")).code(0);
    assert_eq!(checksum_in(&ran), sha256(&contents[0].1));
    let ran = raidlab(&format!("dump --sha256 --volume vg1/both {there}")).code(2);
    assert!(
        ran.stderr.contains(&format!("{missing} (--partial dumps the rest)")),
        "{}",
        ran.stderr
    );
    let words = format!("dump --sha256 --json --partial --volume vg1/both {there}");
    let json: Value = serde_json::from_str(&raidlab(&words).code(1).stdout).expect("JSON");
    let mut bytes = contents[2].1.clone();
    bytes[30 * EXTENT..].fill(0);
    assert_eq!(json["sha256"], sha256(&bytes));
    assert_eq!(json["lost"], json!([{"sector": 30 * 128, "sectors": 100 * 128}]));
    // The other array is there, and cannot be read.
    let words = format!("{there} {}", second[0]);
    let json = volumes(&words);
    let array = json["arrays"].as_array().expect("a list").iter().find(|it| it["name"] == "md3");
    let array = array.unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!((&array["readable"], &array["volumes"]), (&json!(false), &json!([])));
    assert!(array["why"].as_str().is_some_and(|why| why.contains("slots 1 and 2")), "{array:#}");
    let ran = raidlab(&format!("dump --sha256 --volume md3/p1 {words}")).code(2);
    assert!(ran.stderr.contains(array["why"].as_str().expect("a text")), "{}", ran.stderr);
}

#[test]
fn an_unknown_volume_is_refused_with_those_that_are_there() {
    let dir = Dir::new();
    let members = array(&dir, "data", "1", 2, &vec![0; 2 * MIB]);
    let all = members.join(" ");
    let ran = raidlab(&format!("dump --sha256 --volume data/p1 {all}")).code(2);
    assert!(ran.stderr.contains("--volume data/p1: no such volume; there is data\n"));
    let out = dir.file("out.img");
    raidlab(&format!("dump --volume data/p1 -o {out} {all}")).code(2);
    assert!(!std::path::Path::new(&out).exists());
    raidlab(&format!("volumes --array other {all}")).code(2);
    let empty = dir.file("empty.img");
    std::fs::write(&empty, vec![0; MIB]).expect("written");
    let ran = raidlab(&format!("volumes {empty}")).code(2);
    assert!(ran.stderr.contains("no array among the members"), "{}", ran.stderr);
    // A directory is examined whole.
    let ran = raidlab(&format!("volumes {}", dir.path())).code(0);
    assert!(ran.stdout.starts_with("data : raid1, "), "{}", ran.stdout);
}

#[test]
fn names_that_are_not_unique_or_cannot_be_typed_give_way_to_uuids() {
    let dir = Dir::new();
    let odd = "\\x1b[31m";
    let text = group("data", 1, &[('A', 20)], &logical("..", 'x', 4, "\"pv0\", 0"));
    let mut pv = noise(3, 2 * MIB);
    let head = physical_volume(&uuid('A'), 2 * MIB as u64, &text);
    pv[..MIB].copy_from_slice(&head);
    let one = array(&dir, "data", "1", 2, &pv);
    let all = one.join(" ");
    let json = volumes(&all);
    let array_uuid = json["arrays"][0]["uuid"].as_str().expect("a UUID").to_string();
    let name = format!("{}/{}", uuid('G'), uuid('x'));
    assert_eq!(names(&json), [array_uuid.as_str(), &name]);
    let ran = raidlab(&format!("dump --sha256 --volume {name} {all}"));
    assert_eq!(checksum_in(&ran), sha256(&pv[MIB..MIB + 4 * EXTENT]), "{}", ran.stderr);
    let ran = raidlab(&format!("dump --sha256 --volume {odd} {all}")).code(2);
    assert!(!ran.stderr.contains('\x1b'), "{}", ran.stderr);
}

#[test]
fn an_array_that_is_described_has_volumes_too() {
    let dir = Dir::new();
    let contents = partitioned(&dir);
    let members = array(&dir, "data", "5", 3, &contents);
    let words = format!(
        "--level 5 --raid-devices 3 --chunk 64K --data-offset 1M {} missing {}",
        members[0], members[2]
    );
    let ran = raidlab(&format!("dump --sha256 --volume array/p1 {words}")).code(0);
    assert_eq!(checksum_in(&ran), sha256(&contents[MIB..9 * MIB]));
    let ran = raidlab(&format!("dump --sha256 --volume nothing {words}")).code(2);
    assert!(ran.stderr.contains("there is array, array/p1, array/p2"), "{}", ran.stderr);
}

#[test]
fn a_file_system_that_is_larger_than_its_volume_is_a_doubt() {
    let dir = Dir::new();
    let contents = ext4(&dir, "cut", 16)[..8 * MIB].to_vec();
    let members = array(&dir, "data", "1", 2, &contents).join(" ");
    let ran = raidlab(&format!("volumes {members}")).code(1);
    assert!(
        ran.stdout.contains("data: doubt: its ext4 says that it has 16.00 MiB, the volume has")
    );
    let ran = raidlab(&format!("dump --sha256 --volume data {members}")).code(1);
    assert!(ran.stderr.contains("doubt: data: its ext4 says"), "{}", ran.stderr);
    // An array as such is not judged by what it holds.
    raidlab(&format!("dump --sha256 {members}")).code(0);
}

#[test]
fn a_partition_that_the_array_cuts_off_is_a_doubt() {
    let dir = Dir::new();
    let (path, mib) = (dir.file("table.img"), MIB as u64);
    std::fs::write(&path, vec![0; 60 * MIB]).expect("written");
    write_gpt(&path, 512, &[(mib, 8 * mib), (16 * mib, 40 * mib)]);
    let contents = std::fs::read(&path).expect("read")[..30 * MIB].to_vec();
    std::fs::remove_file(&path).expect("removed");
    let members = array(&dir, "data", "1", 2, &contents).join(" ");
    let ran = raidlab(&format!("volumes {members}")).code(1);
    let doubt = "data/p2: doubt: its partition table says that it has 40.00 MiB";
    assert!(ran.stdout.contains(doubt), "{}", ran.stdout);
    let ran = raidlab(&format!("dump --sha256 --volume data/p2 {members}")).code(1);
    assert!(ran.stderr.contains("doubt: data/p2: its partition table"), "{}", ran.stderr);
    raidlab(&format!("dump --sha256 --volume data/p1 {members}")).code(0);
}
