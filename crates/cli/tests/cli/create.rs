//! `create`: plans, refusals, and arrays that mdadm and `examine` read alike.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Dir, Ran, mdadm, raidlab};

fn create(arguments: &str) -> Ran {
    raidlab(&format!("create {arguments}"))
}

fn files(dir: &Dir, count: usize) -> String {
    let names = (0..count).map(|index| dir.file(&format!("disk{index}.img")));
    names.collect::<Vec<_>>().join(" ")
}

fn examine_json(members: &str) -> Vec<Value> {
    let ran = raidlab(&format!("examine --json {members}")).code(0);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    json["members"].as_array().expect("a list").clone()
}

#[test]
fn an_array_on_new_files_is_complete_and_reads_as_zeroes() {
    for (words, count, members) in [
        ("--level 5 --chunk 64K", 3, "3"),
        ("--level raid6 --layout ra --metadata 1.0 --bitmap internal", 5, "5"),
        ("--level 10 --layout f2 --chunk 64 --metadata 1.1", 4, "4"),
        ("--level 1 --metadata 0.90", 2, "2"),
        ("--level 5 --consistency-policy ppl --chunk 64K", 4, "4"),
        ("--level 0 --chunk 64K", 2, "2"),
        ("--level linear", 2, "2"),
        ("--level 4 --chunk 32K --spare-devices 1", 5, "4"),
    ] {
        let dir = Dir::new();
        let all = files(&dir, count);
        let options = "--file-size 16M --name test --homehost none";
        let ran = create(&format!("{words} --raid-devices {members} {options} {all}")).code(0);
        assert!(ran.stderr.contains("Array Size"), "{words}: {}", ran.stderr);
        for member in examine_json(&all) {
            assert_eq!(member["superblock"]["clean"], true, "{words}");
            assert_eq!(member["kernel_refusals"].as_array().map(Vec::len), Some(0), "{words}");
        }
        let detail = raidlab(&format!("detail --json {all}")).code(0);
        let json: Value = serde_json::from_str(&detail.stdout).expect("JSON");
        let array = &json["arrays"][0];
        assert_eq!(array["to_run"]["can"], true, "{words}");
        let sectors = array["array_sectors"].as_u64().expect("a size");
        let out = dir.file("out");
        raidlab(&format!("dump -o {out} {all}")).code(0);
        let bytes = std::fs::read(&out).expect("the contents");
        assert_eq!(bytes.len() as u64, sectors * 512, "{words}");
        assert!(bytes.iter().all(|&byte| byte == 0), "{words}");
    }
}

/// mdadm reads what was created, and agrees with `examine` about it.
#[test]
fn mdadm_reads_our_arrays_as_examine_does() {
    let mut compared = 0;
    for metadata in ["0.90", "1.0", "1.1", "1.2"] {
        for words in [
            "--level 5 --chunk 64K --raid-devices 3 --spare-devices 1",
            "--level 10 --layout o2 --chunk 64K --raid-devices 4",
            "--level 6 --bitmap internal --raid-devices 4",
            "--level 1 --raid-devices 4 --size 12M",
        ] {
            let dir = Dir::new();
            let all = files(&dir, 4);
            let options = format!("--metadata {metadata} --file-size 16M --homehost here");
            create(&format!("{words} {options} {all}")).code(0);
            for member in all.split(' ') {
                let Some(theirs) = mdadm(&["--examine", member]) else { return };
                let ours = raidlab(&format!("examine {member}")).code(0).stdout;
                assert_eq!(ours.trim_end(), theirs.trim_end(), "{words} {metadata}");
                assert!(theirs.contains(" - correct"), "{theirs}");
                compared += 1;
            }
        }
    }
    println!("{compared} members compared");
}

#[test]
fn a_dry_run_writes_nothing() {
    let dir = Dir::new();
    let all = files(&dir, 3);
    for path in all.split(' ') {
        std::fs::write(path, vec![0; 16 << 20]).expect("a file");
    }
    let words = format!("--level 5 --raid-devices 3 --dry-run --json {all}");
    let ran = create(&words).code(0);
    let json: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&json["dry_run"], &json["raid_disks"]), (&Value::Bool(true), &Value::from(3)));
    // What is there is not known to be in sync.
    assert_eq!(json["resync"], true);
    for path in all.split(' ') {
        assert!(std::fs::read(path).expect("it").iter().all(|&byte| byte == 0));
    }
}

#[test]
fn members_that_hold_something_are_refused_by_name() {
    let dir = Dir::new();
    let all = files(&dir, 2);
    let paths: Vec<&str> = all.split(' ').collect();
    let mut bytes = vec![0; 16 << 20];
    std::fs::write(paths[1], &bytes).expect("a file");
    bytes[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(paths[0], &bytes).expect("a file");
    let words = format!("--level 1 --raid-devices 2 --assume-clean {all}");
    let ran = create(&words).code(2);
    assert!(ran.stderr.contains(paths[0]) && ran.stderr.contains("ext2"), "{}", ran.stderr);
    assert!(ran.stderr.contains("--force"), "{}", ran.stderr);
    assert!(std::fs::read(paths[0]).expect("it") == bytes, "it was written to");
    create(&format!("--force {words}")).code(0);
    // Now both hold an array.
    let ran = create(&words).code(2);
    assert_eq!(ran.stderr.matches("is a member of md array").count(), 2, "{}", ran.stderr);
    // A superblock with invalid field values still counts as existing data.
    let mut bytes = std::fs::read(paths[0]).expect("it");
    bytes[4096 + 4] = 2;
    std::fs::write(paths[0], &bytes).expect("it");
    let ran = create(&words).code(2);
    assert!(ran.stderr.contains("may be a member of an md array"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_is_refused_and_nothing_is_left_behind() {
    for (words, named) in [
        ("--level 5 --raid-devices 3 --file-size 16M a b", &["3 members, 2 given"][..]),
        ("--level 5 --raid-devices 2 --file-size 16M --layout n2 a b", &["--layout n2", "raid5"]),
        ("--level 7 --raid-devices 2 a b", &["--level", "raid5 is 5"]),
        ("--level 1 --raid-devices 2 a b", &["a", "no such file", "--file-size"]),
        ("--level 1 --raid-devices 2 --file-size 64K a b", &["a"]),
        ("--level 0 --raid-devices 2 --file-size 16M a missing", &["raid0", "missing"]),
        ("--level 6 --raid-devices 4 --file-size 16M a missing missing missing", &["missing"]),
        ("--level 0 --raid-devices 2 --file-size 16M --bitmap internal a b", &["bitmap"]),
        ("--level 1 --raid-devices 2 --bitmap /some/file --file-size 16M a b", &["--bitmap"]),
        ("--level 1 --raid-devices 2 --consistency-policy ppl --file-size 16M a b", &["raid5"]),
        ("--level 1 --raid-devices 2 --metadata 2.0 --file-size 16M a b", &["--metadata", "1.2"]),
        ("--level 1 --raid-devices 2 --size 1G --file-size 16M a b", &["1"]),
    ] {
        let dir = Dir::new();
        let placed: Vec<String> = words
            .split(' ')
            .map(|word| if ["a", "b"].contains(&word) { dir.file(word) } else { word.into() })
            .collect();
        let ran = create(&placed.join(" ")).code(2);
        for name in named {
            assert!(ran.stderr.to_lowercase().contains(*name), "{words}: {}", ran.stderr);
        }
        assert_eq!(dir.names(), [""; 0], "{words}");
    }
}

#[test]
fn of_two_creates_at_once_over_the_same_new_files_the_loser_takes_nothing_from_the_winner() {
    let mut made = 0;
    for round in 0..40 {
        let dir = Dir::new();
        let names: Vec<String> = ["a", "b", "c", "d"].map(|name| dir.file(name)).into();
        let start = |reversed: bool, seed: u32| {
            let mut members = names.clone();
            if reversed {
                members.reverse();
            }
            let uuid = format!("{seed:08x}:00000000:00000000:00000000");
            let words = format!("create -l 5 -n 4 --file-size 4M --no-resync -u {uuid}");
            let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
            command.args(words.split(' ')).args(members).stdin(Stdio::null());
            (command.stderr(Stdio::null()).spawn().expect("it starts"), uuid)
        };
        let both = [start(false, 1), start(round % 2 == 1, 2)];
        let won = both.map(|(mut child, uuid)| {
            let code = child.wait().expect("it ends").code().expect("a code");
            assert!(code == 0 || code == 2, "{code}");
            (code == 0).then_some(uuid)
        });
        let won: Vec<String> = won.into_iter().flatten().collect();
        assert!(won.len() < 2, "round {round}: both have made an array of the same files");
        let Some(uuid) = won.first() else {
            // Each had a file that the other one wanted.
            assert_eq!(dir.names(), [""; 0], "round {round}");
            continue;
        };
        made += 1;
        for member in examine_json(&names.join(" ")) {
            let array = &member["superblock"]["array_uuid"];
            assert_eq!(array, uuid, "round {round}: {}", member["member"]);
        }
    }
    assert!(made > 0, "no array was made at all");
}

#[test]
fn a_create_that_is_stopped_before_it_has_written_removes_its_files() {
    let dir = Dir::new();
    let (new, old) = (dir.file("new"), dir.file("old"));
    std::fs::File::create(&old).and_then(|file| file.set_len(16 << 20)).expect("a file");
    // It waits with the plan, which it shows before the disk space is reserved: stderr is full.
    let (mut stderr, mut full) = std::io::pipe().expect("a pipe");
    let room = rustix::pipe::fcntl_setpipe_size(&full, 4096).expect("smaller");
    full.write_all(&vec![b'.'; room]).expect("filled");
    let mut command = Command::new(env!("CARGO_BIN_EXE_raidlab"));
    command.args(["create", "-l", "1", "-n", "2", "--file-size", "16M", &new, &old]);
    let mut child = command.stdout(Stdio::piped()).stderr(full).spawn().expect("it starts");
    drop(command);
    while !std::path::Path::new(&new).exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).expect("it is there");
    let mut said = String::new();
    stderr.read_to_string(&mut said).expect("UTF-8");
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(said.contains("stopped: nothing was written"), "{said}");
    assert!(said.contains("the created files are removed"), "{said}");
    assert_eq!(dir.names(), ["old"]);
    assert!(std::fs::read(&old).expect("read").iter().all(|byte| *byte == 0));
}

#[test]
fn a_missing_member_leaves_a_degraded_array() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    let words = "--level 5 --raid-devices 3 --file-size 16M --chunk 64K";
    create(&format!("{words} {a} missing {b}")).code(0);
    let ran = raidlab(&format!("status {a} {b}")).code(1);
    assert!(ran.stdout.contains("[3/2] [U_U]"), "{}", ran.stdout);
}

/// A published array: 9.3 TB of RAID 5 over six disks of 2 TB.
#[test]
fn a_raid_5_of_six_files_of_2_tb_is_made_at_once() {
    let dir = Dir::new();
    let all = files(&dir, 6);
    let started = std::time::Instant::now();
    // 2000398934016 bytes, as such disks have.
    let words = "--level 5 --raid-devices 6 --file-size 3907029168s --no-prealloc --homehost none";
    let ran = create(&format!("{words} {all}"));
    if ran.stderr.contains("File too large") {
        return eprintln!("skipped: no files of 2 TB in the temporary directory");
    }
    ran.code(0);
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
    let members = examine_json(&all);
    for member in &members {
        let sb = &member["superblock"];
        assert_eq!((&sb["level"], &sb["raid_disks"]), (&5.into(), &6.into()));
        // mdadm's bitmap for members of more than 100 GiB.
        assert_eq!(member["bitmap"]["chunk_bytes"], 64 << 20);
        assert!(member["bitmap"]["problem"].is_null());
    }
    let detail = raidlab(&format!("detail --json {all}")).code(0);
    let json: Value = serde_json::from_str(&detail.stdout).expect("JSON");
    let bytes = json["arrays"][0]["array_sectors"].as_u64().expect("a size") * 512;
    // 5 x 2 TB are 10 TB, or 9.1 TiB; the table has 9.3 TB for its drives.
    assert_eq!(bytes / 1_000_000_000, 10_001);
}

/// A published array: RAID 5 of eleven members, chunks of 32 KiB, one hot spare.
#[test]
fn a_raid_5_of_eleven_with_a_hot_spare_is_made_and_examined() {
    let dir = Dir::new();
    let all = files(&dir, 11);
    let words = "--level 5 --chunk 32 --raid-devices 10 --spare-devices 1 --file-size 1G \
                 --no-prealloc --homehost none";
    create(&format!("{words} {all}")).code(0);
    let members = examine_json(&all);
    let is = |what: &str| {
        members.iter().filter(|member| member["superblock"]["role"]["is"] == what).count()
    };
    assert_eq!((is("active"), is("spare")), (10, 1));
    assert!(members.iter().all(|member| member["superblock"]["chunk_sectors"] == 64));
    let ran = raidlab(&format!("status {all}")).code(0);
    assert!(ran.stdout.contains("32k chunk, algorithm 2 [10/10] [UUUUUUUUUU]"), "{}", ran.stdout);
    assert!(ran.stdout.contains("(S)"), "{}", ran.stdout);
}

/// Members that hold old bytes without a name: the first resync makes their parity right.
#[test]
fn old_bytes_are_resynced_and_then_every_member_can_be_lost() {
    let dir = Dir::new();
    let all = files(&dir, 3);
    let paths: Vec<&str> = all.split(' ').collect();
    for (index, path) in paths.iter().enumerate() {
        let byte = |at: usize| ((at >> 9) * 31 + at * 7 + index * 101) as u8;
        std::fs::write(path, (0..16 << 20).map(byte).collect::<Vec<u8>>()).expect("a file");
    }
    let words = format!("--level 5 --chunk 64K --raid-devices 3 --force {all}");
    let ran = create(&words).code(0);
    assert!(ran.stdout.contains("raid5 with 3 devices created"), "{}", ran.stdout);
    for member in examine_json(&all) {
        assert_eq!(member["superblock"]["clean"], true);
    }
    let hash = |members: &str| raidlab(&format!("dump --sha256 {members}")).code(0).stdout;
    let whole = hash(&all);
    for lost in 0..3 {
        let left: Vec<&str> =
            paths.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, path)| *path).collect();
        assert_eq!(hash(&left.join(" ")), whole, "without member {lost}");
    }
}

#[test]
fn a_resync_can_be_left_to_others() {
    let dir = Dir::new();
    let all = files(&dir, 2);
    for path in all.split(' ') {
        std::fs::write(path, vec![7; 16 << 20]).expect("a file");
    }
    let ran = create(&format!("--level 1 --raid-devices 2 --no-resync --force {all}")).code(0);
    assert!(ran.stdout.contains("resync pending"), "{}", ran.stdout);
    for member in examine_json(&all) {
        assert_eq!(member["superblock"]["resync_offset_sectors"], 0);
    }
    assert!(raidlab(&format!("status {all}")).code(1).stdout.contains("resync pending"));
}
