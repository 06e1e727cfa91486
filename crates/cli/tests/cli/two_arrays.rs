//! Two arrays on the same disks, one of metadata 0.90 and a newer one of 1.2: both are listed, each
//! can be chosen, and only the newer one is written to.

use serde_json::Value;

use crate::copies::{dump, hash, spoil};
use crate::support::{Dir, raidlab};

const MEMBER: usize = 8 << 20;

struct Both {
    dir: Dir,
    members: Vec<String>,
    /// UUIDs.
    old: String,
    new: String,
    /// Contents of the old one before the new one was made.
    contents: Vec<u8>,
}

impl Both {
    fn new() -> Both {
        let dir = Dir::new();
        let members: Vec<String> = (0..3).map(|at| dir.file(&format!("m{at}.img"))).collect();
        for (seed, member) in members.iter().enumerate() {
            let mut state = seed as u64 + 1;
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33) as u8
            };
            let bytes: Vec<u8> = (0..MEMBER).map(|_| draw()).collect();
            std::fs::write(member, bytes).expect("an image");
        }
        let all = members.join(" ");
        raidlab(&format!("create --force -e 0.90 -l 5 -c 64K -n 3 {all}")).code(0);
        let out = dir.file("old");
        dump(&format!("-o {out} {all}")).code(0);
        let contents = std::fs::read(out).expect("it");
        let old = uuids(&all)[0].clone();
        let at = (MEMBER / 65536 - 1) * 65536;
        let superblocks: Vec<Vec<u8>> = members
            .iter()
            .map(|member| std::fs::read(member).expect("it")[at..at + 4096].to_vec())
            .collect();
        // Its creation time is the next second's.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        let create = "create --force --assume-clean -e 1.2 --data-offset 1M -l 5 -c 64K -n 3";
        raidlab(&format!("{create} {all}")).code(0);
        for (member, superblock) in members.iter().zip(superblocks) {
            spoil(member, at as u64, &superblock);
        }
        let new = uuids(&all).into_iter().find(|uuid| *uuid != old).expect("two arrays");
        Both { dir, members, old, new, contents }
    }

    fn all(&self) -> String {
        self.members.join(" ")
    }
}

fn uuids(members: &str) -> Vec<String> {
    let json = raidlab(&format!("status --json {members}")).record();
    let arrays = json["arrays"].as_array().expect("a list").iter();
    arrays.map(|array| array["array_uuid"].as_str().expect("a UUID").to_string()).collect()
}

#[test]
fn both_are_listed_and_each_can_be_read() {
    let both = Both::new();
    let all = both.all();
    for verb in ["status", "detail"] {
        let json = raidlab(&format!("{verb} --json {all}")).code(1).record();
        let arrays = json["arrays"].as_array().expect("a list").iter();
        let seen: Vec<(&Value, &Value, usize)> = arrays
            .map(|it| {
                let members = it["members"].as_array().expect("a list").len();
                (&it["array_uuid"], &it["former"], members)
            })
            .collect();
        let (new, old) = (Value::from(both.new.clone()), Value::from(both.old.clone()));
        assert_eq!(seen, [(&new, &false.into(), 3), (&old, &true.into(), 3)], "{verb}");
        let text = raidlab(&format!("{verb} {all}")).code(1).stdout;
        assert!(text.contains("older superblocks of members"), "{verb}: {text}");
    }
    let text = raidlab(&format!("detail --array {} {all}", both.old)).code(1).stdout;
    assert!(text.contains("Version : 0.90") && !text.contains("Version : 1.2"), "{text}");
    let text = raidlab(&format!("examine {}", both.members[0])).stdout;
    assert!(text.contains("Also There"), "{text}");
    // The newer one is used, with a doubt that its UUID removes.
    let ran = dump(&format!("--sha256 --no-check {all}")).code(1);
    assert!(
        ran.stderr.contains("doubt: ") && ran.stderr.contains("also carries"),
        "{}",
        ran.stderr
    );
    let named = dump(&format!("--sha256 --no-check --array {} {all}", both.new)).code(0);
    assert_eq!(hash(&ran), hash(&named));
    // The older one is read when it is named. What the newer superblocks are written over is not
    // what it was: never without a doubt.
    let out = both.dir.file("out");
    let ran = dump(&format!("--no-check --array {} -o {out} {all}", both.old)).code(1);
    assert!(ran.stderr.contains("may be in place of the data"), "{}", ran.stderr);
    let read = std::fs::read(out).expect("it");
    assert_eq!(read.len(), both.contents.len());
    let differ = read.iter().zip(&both.contents).filter(|(one, other)| one != other).count();
    assert!(differ > 0 && differ < 256 << 10, "{differ} bytes");
    let ran = dump(&format!("--check --array {} {all}", both.old)).code(1);
    assert!(ran.stderr.contains("do not agree"), "{}", ran.stderr);
    let ran = dump(&format!("--sha256 --array other {all}")).code(2);
    assert!(ran.stderr.contains("no such array"), "{}", ran.stderr);
}

#[test]
fn only_the_newer_one_is_written_to_and_either_can_be_erased() {
    let both = Both::new();
    let all = both.all();
    let bytes: Vec<Vec<u8>> =
        both.members.iter().map(|member| std::fs::read(member).expect("it")).collect();
    for verb in ["scrub --check", "scrub --repair", "rebuild"] {
        let ran = raidlab(&format!("{verb} --array {} {all}", both.old)).code(2);
        assert!(ran.stderr.contains("are older than others on the same members"), "{}", ran.stderr);
    }
    let same = |(member, bytes): (&String, &Vec<u8>)| std::fs::read(member).expect("it") == *bytes;
    assert!(both.members.iter().zip(&bytes).all(same), "it was written to");
    let ran = raidlab(&format!("scrub --check {all}"));
    assert!(ran.stderr.contains("which is left alone"), "{}", ran.stderr);
    let ran = raidlab(&format!("zero-superblock --array {} {all}", both.new)).code(0);
    assert_eq!(ran.stdout.lines().count(), 3, "{}", ran.stdout);
    assert_eq!(uuids(&all).join(" "), both.old);
    raidlab(&format!("scrub --repair --policy parity {all}"));
    raidlab(&format!("scrub --check {all}")).code(0);
    let ran = raidlab(&format!("zero-superblock --array {} {all}", both.new)).code(2);
    assert!(ran.stderr.contains("no md superblock of the array"), "{}", ran.stderr);
}

#[test]
fn a_disk_that_was_left_out_of_the_newer_array_is_of_the_older_one() {
    let both = Both::new();
    // The third was never in the newer array.
    let mut bytes = std::fs::read(&both.members[2]).expect("it");
    bytes[4096..8192].fill(0);
    std::fs::write(&both.members[2], bytes).expect("it");
    let all = both.all();
    let text = raidlab(&format!("detail --array {} {all}", both.old)).stdout;
    assert!(text.contains("complete, can be started"), "{text}");
    let ran = dump(&format!("--no-check --sha256 --array {} {all}", both.old)).code(1);
    assert!(!ran.stderr.contains("degraded"), "{}", ran.stderr);
}

/// The member of a RAID 0 begins as the array does, with the superblock of a mirror over it.
#[test]
fn a_part_of_the_array_below_is_not_written_to_as_the_member_above() {
    let dir = Dir::new();
    let [a, b, c, low] = ["a.img", "b.img", "c.img", "low.img"].map(|name| dir.file(name));
    let create = "create --homehost none --file-size 16M -n 2";
    raidlab(&format!("{create} -l 0 -e 1.0 -c 64K -N low {a} {b}")).code(0);
    raidlab(&format!("dump {a} {b} -o {low}")).code(0);
    // Superblocks say in seconds when they were made.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let bytes = std::fs::metadata(&low).expect("it").len();
    std::fs::File::create(&c).expect("a file").set_len(bytes).expect("a size");
    raidlab(&format!("{create} -l 1 -z 10M -N up --assume-clean {low} {c}")).code(0);
    let [left, right] = [&a, &b].map(|member| crate::serve::open(member));
    for (chunk, text) in std::fs::read(&low).expect("it").chunks(64 << 10).enumerate() {
        let member = if chunk % 2 == 0 { &left } else { &right };
        let at = (chunk / 2 * (64 << 10)) as u64;
        std::os::unix::fs::FileExt::write_all_at(member, text, at).expect("written");
    }
    let before = [&a, &b, &c].map(|file| std::fs::read(file).expect("it"));
    for words in [
        format!("scrub --repair --policy first {a} {b} {c} --array up"),
        format!("scrub --repair {a} {c}"),
        format!("rebuild {a} {c}"),
        format!("serve {a} {c} --nbd unix:{}", dir.file("nbd")),
    ] {
        let ran = raidlab(&words).code(2);
        assert!(ran.stderr.contains("it is a part of a member"), "{words}: {}", ran.stderr);
    }
    assert!([&a, &b, &c].map(|file| std::fs::read(file).expect("it")) == before);
    // The mirror as it lies on the array below is fine.
    raidlab(&format!("scrub --repair {low} {c}")).code(0);
}
