//! Members of several moments: copies with an equal event count, halves that ran apart, and members
//! that are out of date where nothing else has a range.

use md::ondisk::Version;
use md::ondisk::superblock::SuperblockV1;

use crate::copies::{DATA, Disks, KIB, dump, hash, ranges, spoil};
use crate::support::raidlab;

const FAULTY: u16 = 0xfffe;

/// Changes the superblock of a member.
fn edit(member: &str, change: impl FnOnce(&mut SuperblockV1)) {
    let mut bytes = std::fs::read(member).expect("an image");
    let (mut superblock, _) =
        SuperblockV1::decode(&bytes[4096..8192], Version::V1_2).expect("a superblock");
    change(&mut superblock);
    let new = superblock.encode(512);
    bytes[4096..4096 + new.len()].copy_from_slice(&new);
    std::fs::write(member, bytes).expect("an image");
}

/// Makes a member one of another day, with other contents in one place.
fn older(disks: &Disks, member: usize) {
    spoil(&disks.members[member], DATA + (3 << 20), &[0x55; 100_000]);
    edit(&disks.members[member], |superblock| superblock.utime.seconds -= 2_600_000);
}

#[test]
fn a_copy_of_another_day_with_the_same_event_count_is_never_mixed_in() {
    let disks = Disks::new("-l 5 -c 64K", 4);
    older(&disks, 1);
    // Complete: read without it, right, and named with both times.
    let all = disks.members.join(" ");
    let ran = dump(&format!("--json --sha256 {all}")).code(1);
    assert_eq!(ran.record()["sha256"], disks.sha256);
    assert!(ran.stderr.contains("m1.img is of another moment than"), "{}", ran.stderr);
    assert_eq!(ran.record()["doubts"].as_array().map(Vec::len), Some(1));
    for verb in ["status", "detail", "volumes"] {
        let ran = raidlab(&format!("{verb} {all}")).code(1);
        let text = ran.stdout + &ran.stderr;
        assert!(text.contains("is of another moment than"), "{verb}: {text}");
    }
    // Without another one it is all there is.
    let few = disks.members[..3].join(" ");
    let ran = dump(&format!("--sha256 {few}")).code(2);
    assert!(ran.stderr.contains("--ignore-events"), "{}", ran.stderr);
    let ran = dump(&format!("--json --sha256 --ignore-events {few}")).code(1);
    assert_eq!(ran.record()["doubts"].as_array().map(Vec::len), Some(2), "{}", ran.stderr);
    // Nothing is rebuilt from it.
    let before: Vec<_> = disks.members.iter().map(|it| std::fs::read(it).expect("it")).collect();
    let new = disks.dir.file("new.img");
    std::fs::write(&new, vec![0; 8 << 20]).expect("an image");
    let ran = raidlab(&format!("rebuild {few} --add {new}")).code(2);
    assert!(ran.stderr.contains("at another moment"), "{}", ran.stderr);
    raidlab(&format!("scrub --repair {few}")).code(2);
    for (member, before) in disks.members.iter().zip(before) {
        assert!(std::fs::read(member).expect("it") == before, "{member} was written to");
    }
}

#[test]
fn halves_that_ran_apart_are_named_and_each_is_read_by_choice() {
    for (events, seconds, code) in [(0, 0, 2), (0, 2_600_000, 1), (30, 0, 1), (3, 2_600_000, 1)] {
        let disks = Disks::new("-l 1", 2);
        spoil(&disks.members[1], DATA + (2 << 20), &[0x66; 4096]);
        for (at, other) in [(0, 1), (1, 0)] {
            edit(&disks.members[at], |superblock| {
                superblock.dev_roles[other] = FAULTY;
                superblock.events += 100 + at as u64 * events;
                superblock.utime.seconds += at as u64 * seconds;
            });
        }
        let [one, other] = [&disks.members[0], &disks.members[1]];
        let each: Vec<String> =
            [one, other].map(|it| hash(&dump(&format!("--sha256 {it}")).code(0))).to_vec();
        assert_ne!(each[0], each[1]);
        for names in [format!("{one} {other}"), format!("{other} {one}")] {
            let ran = dump(&format!("--sha256 {names}")).code(code);
            for part in ["Split brain", "last updated", "name only its members"] {
                assert!(ran.stderr.contains(part), "{}", ran.stderr);
            }
            assert!(code == 2 || hash(&ran) == each[1], "{}", ran.stderr);
            for verb in ["status", "detail", "volumes"] {
                let ran = raidlab(&format!("{verb} {names}")).code(1);
                let text = ran.stdout + &ran.stderr;
                assert!(text.contains("Split brain"), "{verb}: {text}");
                assert!(code == 1 || verb != "status" || text.contains("FAILED"), "{text}");
            }
            let ran = raidlab(&format!("scrub --repair {names}")).code(2);
            assert!(ran.stderr.contains("Split brain"), "{}", ran.stderr);
        }
    }
}

#[test]
fn a_member_that_was_dropped_serves_what_nothing_else_has() {
    let disks = Disks::new("-l 5 -c 64K", 3);
    let at = DATA + 12 * 64 * KIB;
    // Dropped before the others were written to, elsewhere.
    edit(&disks.members[2], |superblock| superblock.events += 100);
    for (member, events) in [(0, 120), (1, 120)] {
        edit(&disks.members[member], |superblock| {
            superblock.events += events;
            superblock.dev_roles[2] = FAULTY;
        });
    }
    let copy = disks.copy(1, &[(at, 8 * KIB)]);
    let whole = disks.dir.file("whole");
    dump(&format!("-o {whole} {} {}", disks.members[0], disks.members[1])).code(0);
    let whole = std::fs::read(whole).expect("it");
    let members = disks.with(&[(1, &copy)]);
    // Not without consent; the message names it, and how much it is.
    let ran = dump(&format!("--sha256 {members}")).code(2);
    assert!(ran.stderr.contains("would be read with"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--ignore-events"), "{}", ran.stderr);
    let ran = dump(&format!("--json --sha256 --partial {members}")).code(1);
    assert_eq!(ranges(&ran.record()["lost"]).iter().map(|it| it.1).sum::<u64>(), 16);
    let out = disks.dir.file("out");
    let ran = dump(&format!("--json --ignore-events -o {out} {members}")).code(1);
    let record = ran.record();
    assert_eq!(ranges(&record["lost"]), []);
    assert_eq!(ranges(&record["stale"]).iter().map(|it| it.1).sum::<u64>(), 16);
    let member = record["stale"][0]["member"].as_str().expect("a name");
    assert!(member.contains("m2.img (slot 2, 20 updates behind)"), "{member}");
    assert!(ran.stderr.contains("that nothing else has are read with"), "{}", ran.stderr);
    assert!(std::fs::read(&out).expect("it") == whole);
    // What it has serves nothing else: elsewhere it is old.
    spoil(&disks.members[2], DATA, &[0x99; 8192]);
    dump(&format!("--ignore-events --overwrite -o {out} {members}")).code(1);
    assert!(std::fs::read(&out).expect("it") == whole);
    // With a map of the dump it is a finding each time.
    let (out, map) = (disks.dir.file("out.img"), disks.dir.file("out.map"));
    for _ in 0..2 {
        let ran = dump(&format!("--ignore-events -o {out} --map {map} {members}")).code(1);
        assert!(!ran.stderr.contains("do not agree"), "{}", ran.stderr);
        assert!(std::fs::read(&out).expect("it") == whole);
    }
}
