//! Whole disks, their partitions, and which of them the members are: the same for every verb, also
//! where a table or a superblock is of a former array, or of the array's own contents.

use testkit::Rng;

use crate::copies::{hash, spoil};
use crate::serve::Server;
use crate::support::{Dir, Ran, raidlab, until};
use crate::tables::{boot_record, write, write_gpt};

const MIB: u64 = 1 << 20;

fn image(dir: &Dir, name: &str, bytes: u64) -> String {
    let path = dir.file(name);
    std::fs::File::create(&path).expect("an image").set_len(bytes).expect("its size");
    path
}

/// Bytes of which no two blocks are alike.
fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    Rng::new(seed).bytes(bytes as usize)
}

fn read(path: &str) -> Vec<u8> {
    std::fs::read(path).expect("an image")
}

fn dumped(members: &str) -> Ran {
    raidlab(&format!("dump --sha256 {members}"))
}

#[test]
fn a_whole_disk_mirror_0_90_with_a_table_is_read_from_its_start() {
    for unequal in [true, false] {
        let dir = Dir::new();
        let a = image(&dir, "a.img", 40 * MIB);
        let b = image(&dir, "b.img", if unequal { 17 } else { 40 } * MIB);
        raidlab(&format!("create -l 1 -n 2 -e 0.90 {a} {b}")).code(0);
        // What the array holds: an MBR, whose partition is longer in blocks of 4096 bytes.
        let mut contents = noise(1, 16 * MIB);
        contents[..512].copy_from_slice(&boot_record(&[(0x83, 2048, 30000)]));
        write(&a, 0, &contents);
        write(&b, 0, &contents);
        for members in [format!("{a} {b}"), a.clone(), format!("{b} {a}")] {
            let out = dir.file("out");
            raidlab(&format!("dump {members} -o {out}")).code(0);
            let out = std::fs::read(&out).expect("it");
            assert!(out[..contents.len()] == contents, "{members}");
            std::fs::remove_file(dir.file("out")).expect("it");
        }
        let status = raidlab(&format!("status {a} {b}")).stdout;
        assert!(!status.contains('@') && status.contains("[2/2] [UU]"), "{status}");
    }
}

#[test]
fn a_partitioned_array_of_whole_disks_0_90_is_read_whatever_is_missing() {
    for (level, disks, may_miss) in [("0", 3, 0), ("5", 4, 1), ("6", 5, 2), ("10", 4, 1)] {
        for (kind, unequal) in [("mbr", false), ("mbr", true), ("gpt", false)] {
            // 0.90 has no place for the layout of RAID 0, which matters there.
            if level == "0" && unequal {
                continue;
            }
            let dir = Dir::new();
            let size = |at: u64| 12 * MIB + if unequal { at * 2 * MIB } else { 0 };
            let members: Vec<String> =
                (0..disks).map(|at| image(&dir, &format!("d{at}.img"), size(at))).collect();
            let all = members.join(" ");
            let create = "create -e 0.90 -c 64K --assume-clean --force";
            raidlab(&format!("{create} -l {level} -n {disks} {all}")).code(0);
            // A table that the first member holds, of an array that is longer than a disk.
            let table = image(&dir, "table", 20 * MIB);
            match kind {
                "mbr" => write(&table, 0, &boot_record(&[(0x83, 2048, 38000)])),
                _ => write_gpt(&table, 512, &[(MIB, 18 * MIB)]),
            }
            write(&members[0], 0, &read(&table)[..64 << 10]);
            let exact: Vec<String> =
                (0..disks).map(|at| format!("{}@0+{}", members[at as usize], size(at))).collect();
            let truth = raidlab(&format!("dump --no-check --sha256 {}", exact.join(" "))).code(0);
            for missing in 0..=may_miss {
                // Not the disk with the table.
                let there = members[..members.len() - missing].join(" ");
                let ran = raidlab(&format!("dump --no-check --sha256 {there}")).code(0);
                if missing == 0 {
                    assert_eq!(hash(&ran), hash(&truth), "{level} {kind} {unequal}");
                }
                let status = raidlab(&format!("status {there}")).stdout;
                assert!(!status.contains('@') && !status.contains("(F)"), "{status}");
            }
        }
    }
}

#[test]
fn a_superblock_0_90_that_fits_a_disk_and_its_partition_is_not_guessed() {
    let dir = Dir::new();
    let disks: Vec<String> = (0..3).map(|at| image(&dir, &format!("d{at}.img"), 8 * MIB)).collect();
    let all = disks.join(" ");
    raidlab(&format!("create -l 0 -n 3 -e 0.90 -c 64K {all}")).code(0);
    // A table that the array holds, whose partition ends where its first member does.
    write(&disks[0], 0, &boot_record(&[(0x83, 2048, 14336)]));
    for verb in ["dump --sha256", "status", "scrub --check", "serve --nbd unix:s", "rebuild"] {
        let ran = raidlab(&format!("{verb} {all}")).code(2);
        let whole = format!("{}@0+{}", disks[0], 8 * MIB);
        let part = format!("{}@1048576+7340032", disks[0]);
        assert!(ran.stderr.contains(&whole) && ran.stderr.contains(&part), "{verb}: {ran:?}");
    }
    dumped(&format!("{}@0+{} {} {}", disks[0], 8 * MIB, disks[1], disks[2])).code(0);
    // Tables of all disks are their own.
    let dir = Dir::new();
    let members = in_second_partitions(&dir, "-l 0 -c 64K", 3);
    let parts: Vec<String> = members.iter().map(|disk| format!("{disk}@3M+8M")).collect();
    let truth = hash(&dumped(&parts.join(" ")).code(0));
    assert_eq!(hash(&dumped(&members.join(" ")).code(0)), truth);
}

#[test]
fn a_file_of_a_directory_that_is_in_use_is_not_left_out() {
    let dir = Dir::new();
    let members = dir.file("members");
    std::fs::create_dir(&members).expect("a directory");
    let [a, b] = ["a", "b"].map(|name| image(&dir, &format!("members/{name}.img"), 8 * MIB));
    raidlab(&format!("create -l 1 -n 2 --assume-clean {a} {b}")).code(0);
    let socket = dir.file("nbd");
    let server = Server::start(&dir, &format!("{a} --name one --nbd unix:{socket}"));
    let before = read(&b);
    let other = dir.file("other");
    let new = image(&dir, "new.img", 8 * MIB);
    for verb in [
        format!("serve --name two --nbd unix:{other}"),
        format!("rebuild --add {new}"),
        "scrub --check".into(),
        "scrub --repair".into(),
        "update --no-bbl".into(),
    ] {
        let ran = raidlab(&format!("{verb} {members}")).code(2);
        assert!(ran.stderr.contains("a.img"), "{verb}: {ran:?}");
    }
    let ran = dumped(&members).code(1);
    assert!(ran.stderr.contains("doubt: ") && ran.stderr.contains("a.img"), "{ran:?}");
    assert!(read(&b) == before);
    assert_eq!(server.end(rustix::process::Signal::TERM).0, Some(0));
}

/// Disks whose second partition ends with them and is a member 0.90; the first is foreign.
fn in_second_partitions(dir: &Dir, create: &str, disks: u64) -> Vec<String> {
    let members: Vec<String> =
        (0..disks).map(|at| image(dir, &format!("d{at}.img"), 11 * MIB)).collect();
    for (at, disk) in members.iter().enumerate() {
        write(disk, MIB, &noise(at as u64 + 7, 2 * MIB));
        write(disk, 0, &boot_record(&[(0x83, 2048, 4096), (0xfd, 6144, 16384)]));
    }
    let parts: Vec<String> = members.iter().map(|disk| format!("{disk}@6144s")).collect();
    let parts = parts.join(" ");
    raidlab(&format!("create -n {disks} -e 0.90 {create} --force {parts}")).code(0);
    members
}

#[test]
fn nothing_outside_of_the_members_partitions_is_written() {
    for (create, disks) in [
        ("-l 1", 2),
        ("-l 5 -c 64K", 4),
        ("-l 6 -c 64K", 5),
        ("-l 10 -c 64K", 4),
        ("-l 10 -p f2 -c 64K", 4),
    ] {
        for verb in
            ["scrub --check", "scrub --repair", "rebuild", "reshape --continue", "zero-superblock"]
        {
            let dir = Dir::new();
            let members = in_second_partitions(&dir, &format!("{create} --no-resync"), disks);
            let fronts = |members: &[String]| -> Vec<Vec<u8>> {
                members.iter().map(|disk| read(disk)[..3 * MIB as usize].to_vec()).collect()
            };
            let (before, all) = (fronts(&members), members.join(" "));
            let truth = dumped(&all);
            let ran = raidlab(&format!("{verb} {all}"));
            assert!(fronts(&members) == before, "{create}: {verb}: {ran:?}");
            // Not clean, so that RAID 1 and 10 may read either copy: the same one, still.
            assert_eq!(hash(&dumped(&all)), hash(&truth), "{create}: {verb}: {ran:?}");
            if verb == "zero-superblock" {
                assert_eq!(ran.code, 2, "{ran:?}");
                assert!(ran.stderr.contains("d0.img@3145728+8388608"), "{ran:?}");
            }
        }
    }
}

#[test]
fn whole_disks_are_served_and_rebuilt_where_they_are_read() {
    let dir = Dir::new();
    let members = in_second_partitions(&dir, "-l 5 -c 64K --assume-clean", 3);
    let all = members.join(" ");
    let truth = hash(&dumped(&all).code(0));
    let before = read(&members[0])[..3 * MIB as usize].to_vec();
    // One of them is lost, and a partition of another disk takes its place.
    let new = image(&dir, "new.img", 11 * MIB);
    write(&new, 0, &boot_record(&[(0x83, 2048, 4096), (0xfd, 6144, 16384)]));
    let two = members[..2].join(" ");
    let ran = raidlab(&format!("rebuild {two} --add {new}@6144s")).code(0);
    assert!(ran.stdout.contains("new.img@"), "{}", ran.stdout);
    let ran = dumped(&format!("{two} {new}")).code(0);
    assert_eq!(hash(&ran), truth);
    assert!(read(&members[0])[..3 * MIB as usize] == before, "the front");
}

#[test]
fn an_offset_where_a_partition_begins_ends_where_it_ends() {
    let dir = Dir::new();
    let disks: Vec<String> =
        (0..3).map(|at| image(&dir, &format!("d{at}.img"), 24 * MIB)).collect();
    for disk in &disks {
        write(disk, 0, &boot_record(&[(0xfd, 2048, 20480), (0xfd, 22528, 26624)]));
    }
    let parts = |at: &str| -> Vec<String> { disks.iter().map(|it| format!("{it}@{at}")).collect() };
    let create = "create -n 3 -l 5 -c 64K -e 0.90 --assume-clean --force";
    raidlab(&format!("{create} {}", parts("1M+10M").join(" "))).code(0);
    let truth = hash(&dumped(&parts("1M+10M").join(" ")).code(0));
    raidlab(&format!("{create} {}", parts("22528s").join(" "))).code(0);
    for at in ["2048s", "1M"] {
        assert_eq!(hash(&dumped(&parts(at).join(" ")).code(0)), truth);
        assert_eq!(hash(&dumped(&parts(at)[..2].join(" ")).code(0)), truth);
    }
    // Elsewhere it ends with the disk.
    let second = hash(&dumped(&parts("22528s").join(" ")).code(0));
    assert_eq!(hash(&dumped(&parts("11M+13M").join(" ")).code(0)), second);
}

/// Disks that were whole members of one array, and have another in their partitions since.
fn of_two_times(dir: &Dir, version: &str, level: &str) -> (Vec<String>, [String; 2]) {
    let disks: Vec<String> = (0..3).map(|at| image(dir, &format!("d{at}.img"), 24 * MIB)).collect();
    let all = disks.join(" ");
    let create = format!("create --homehost none -n 3 -l {level} -c 64K --assume-clean --force");
    raidlab(&format!("{create} -e {version} --name old {all}")).code(0);
    std::thread::sleep(std::time::Duration::from_millis(1200));
    for disk in &disks {
        write(disk, 0, &boot_record(&[(0xfd, 2048, 40960)]));
    }
    let parts: Vec<String> = disks.iter().map(|disk| format!("{disk}@1M+20M")).collect();
    let parts = parts.join(" ");
    raidlab(&format!("{create} -e 1.2 --name new {parts}")).code(0);
    (disks, [hash(&raidlab(&format!("dump --no-check --sha256 {parts}")).code(0)), parts])
}

#[test]
fn bad_block_logs_are_taken_off_where_the_members_are() {
    let dir = Dir::new();
    let disks: Vec<String> =
        (0..2).map(|at| image(&dir, &format!("d{at}.img"), 11 * MIB)).collect();
    for disk in &disks {
        write(disk, 0, &noise(1, 11 * MIB));
        write(disk, 0, &boot_record(&[(0x83, 2048, 4096), (0xfd, 6144, 16384)]));
    }
    let parts: Vec<String> = disks.iter().map(|disk| format!("{disk}@6144s")).collect();
    raidlab(&format!("create -l 1 -n 2 --no-resync --force {}", parts.join(" "))).code(0);
    let before: Vec<Vec<u8>> = disks.iter().map(|disk| read(disk)).collect();
    let ran = raidlab(&format!("update --no-bbl {}", disks.join(" "))).code(0);
    let removed = format!("{}@3145728+8388608: empty bad-block log removed", disks[1]);
    assert!(ran.stdout.contains(&removed), "{ran:?}");
    for (disk, before) in disks.iter().zip(before) {
        let after = read(disk);
        let mut changed = (0..after.len()).filter(|&at| after[at] != before[at]);
        let superblock = 3 * MIB as usize + 4096;
        assert!(changed.all(|at| (superblock..superblock + 512).contains(&at)), "{disk}");
    }
}

#[test]
fn a_former_array_of_whole_disks_does_not_hide_the_one_in_their_partitions() {
    for version in ["1.2", "1.1", "0.90", "1.0"] {
        let dir = Dir::new();
        let (disks, [new, parts]) = of_two_times(&dir, version, "5");
        if version == "1.1" {
            // It is where the table is.
            continue;
        }
        let all = disks.join(" ");
        let status = raidlab(&format!("status --json {all}")).code(1).record();
        let arrays = status["arrays"].as_array().expect("a list");
        let seen: Vec<(&str, bool)> = arrays
            .iter()
            .map(|it| (it["members"][0].as_str().unwrap(), it["former"].as_bool().unwrap()))
            .collect();
        assert_eq!(seen.len(), 2, "{version}: {status}");
        assert!(seen[0].0.contains("@1048576+") && !seen[0].1, "{version}: {seen:?}");
        assert!(!seen[1].0.contains('@') && seen[1].1, "{version}: {seen:?}");
        let old = arrays[1]["array_uuid"].as_str().expect("a UUID");
        let examined = raidlab(&format!("examine {}", disks[0])).stdout;
        assert!(examined.contains(old) && examined.contains("@1048576+20971520:"), "{examined}");
        let ran = raidlab(&format!("dump --no-check --sha256 {all}")).code(1);
        assert!(ran.stderr.contains("was last written before"), "{}", ran.stderr);
        assert_eq!(hash(&ran), new, "{version}");
        let two = disks[..2].join(" ");
        assert_eq!(hash(&raidlab(&format!("dump --no-check --sha256 {two}")).code(1)), new);
        // The older one is read when it is named, with a doubt.
        let ran = raidlab(&format!("dump --no-check --sha256 --array {old} {all}")).code(1);
        assert!(ran.stderr.contains("doubt: ") && ran.stderr.contains("since"), "{}", ran.stderr);
        assert_ne!(hash(&ran), new);
        // Nothing is written to before one is named, and never to the older one.
        let before: Vec<Vec<u8>> = disks.iter().map(|disk| read(disk)).collect();
        for verb in ["scrub --check", "scrub --repair --policy parity", "rebuild"] {
            let ran = raidlab(&format!("{verb} {all}")).code(2);
            assert!(ran.stderr.contains("before an array is named"), "{verb}: {}", ran.stderr);
            let ran = raidlab(&format!("{verb} --array {old} {all}")).code(2);
            assert!(ran.stderr.contains("older than others"), "{verb}: {}", ran.stderr);
        }
        let ran = raidlab(&format!("zero-superblock {all}")).code(2);
        assert!(ran.stderr.contains(&format!("--array {old} erases")), "{}", ran.stderr);
        assert!(disks.iter().zip(&before).all(|(disk, before)| read(disk) == *before));
        if version != "0.90" {
            raidlab(&format!("scrub --check --array new {all}")).code(0);
        }
        raidlab(&format!("scrub --check {parts}"));
        raidlab(&format!("zero-superblock --array {old} {all}")).code(0);
        assert_eq!(hash(&raidlab(&format!("dump --no-check --sha256 {all}")).code(0)), new);
    }
}

#[test]
fn a_copy_on_something_larger_says_where_its_superblock_is() {
    for version in ["0.90", "1.0"] {
        let dir = Dir::new();
        let disks: Vec<String> =
            (0..3).map(|at| image(&dir, &format!("d{at}.img"), 12 * MIB)).collect();
        let all = disks.join(" ");
        raidlab(&format!("create -l 5 -n 3 -c 64K -e {version} {all}")).code(0);
        std::fs::File::options().write(true).open(&disks[1]).unwrap().set_len(15 * MIB).unwrap();
        let ran = raidlab(&format!("status {all}"));
        let ran_detail = raidlab(&format!("detail {all}")).stdout;
        let place = format!("{}@0+12582912 has a superblock {version}", disks[1]);
        assert!(ran_detail.contains(&place), "{ran_detail}{ran:?}");
        let named = format!("{} {}@0+12582912 {}", disks[0], disks[1], disks[2]);
        assert_eq!(hash(&dumped(&named)), hash(&dumped(&format!("{} {}", disks[0], disks[2]))));
    }
}

#[test]
fn members_that_are_gone_or_blank_are_left_out_and_named() {
    for lost in ["missing", "blank", "empty"] {
        let dir = Dir::new();
        let disks: Vec<String> =
            (0..3).map(|at| image(&dir, &format!("d{at}.img"), 12 * MIB)).collect();
        let all = disks.join(" ");
        raidlab(&format!("create -l 5 -n 3 -c 64K --assume-clean {all}")).code(0);
        let truth = hash(&dumped(&all).code(0));
        std::fs::remove_file(&disks[1]).expect("it");
        match lost {
            "missing" => {}
            "blank" => drop(image(&dir, "d1.img", 12 * MIB)),
            _ => drop(image(&dir, "d1.img", 0)),
        }
        // What compares members is not for an array without one.
        let ran = raidlab(&format!("scrub --check {all}")).code(2);
        assert!(ran.stderr.contains("d1.img: "), "{}", ran.stderr);
        let new = image(&dir, "new.bin", 12 * MIB);
        let ran = raidlab(&format!("rebuild {all} --add {new}")).code(0);
        let note = format!("left out: {}: ", disks[1]);
        assert!(ran.stderr.contains(&note), "{lost}: {}", ran.stderr);
        assert_eq!(hash(&dumped(&format!("{} {} {new}", disks[0], disks[2])).code(0)), truth);
    }
}

#[test]
fn an_array_that_cannot_start_without_a_lost_member_says_which_it_is() {
    let dir = Dir::new();
    let disks: Vec<String> = (0..2).map(|at| image(&dir, &format!("d{at}.img"), 8 * MIB)).collect();
    raidlab(&format!("create -l 0 -n 2 -c 64K {}", disks.join(" "))).code(0);
    std::fs::remove_file(&disks[1]).expect("it");
    let socket = dir.file("s.sock");
    let ran = raidlab(&format!("serve --nbd unix:{socket} {}", disks.join(" "))).code(2);
    assert!(ran.stderr.contains("Left out: ") && ran.stderr.contains("d1.img: "), "{}", ran.stderr);
}

#[test]
fn every_verb_takes_directories() {
    let dir = Dir::new();
    let two = [dir.file("one"), dir.file("two")];
    two.iter().for_each(|path| std::fs::create_dir(path).expect("a directory"));
    let disks: Vec<String> = (0..4)
        .map(|at| image(&dir, &format!("{}/d{at}.img", ["one", "two"][at % 2]), 8 * MIB))
        .collect();
    raidlab(&format!("create -l 6 -n 4 -c 64K --assume-clean {}", disks.join(" "))).code(0);
    std::fs::write(dir.file("one/notes.txt"), "not a member").expect("written");
    let all = two.join(" ");
    let status = raidlab(&format!("status {all}")).code(0).stdout;
    assert!(status.contains("[4/4] [UUUU]"), "{status}");
    let truth = hash(&dumped(&disks.join(" ")).code(0));
    assert_eq!(hash(&dumped(&all).code(0)), truth);
    raidlab(&format!("scrub --check {all}")).code(0);
    spoil(&disks[1], 2 * MIB, &noise(3, 4096));
    raidlab(&format!("scrub --check {all}")).code(1);
    raidlab(&format!("scrub --repair {all}"));
    assert_eq!(hash(&dumped(&all).code(0)), truth);
}

#[test]
fn a_member_whose_name_has_an_equals_sign_is_replaced() {
    let dir = Dir::new();
    let disks: Vec<String> =
        ["a=1.img", "b=2.img"].iter().map(|name| image(&dir, name, 8 * MIB)).collect();
    raidlab(&format!("create -l 1 -n 2 --assume-clean {}", disks.join(" "))).code(0);
    let new = image(&dir, "new=3.img", 8 * MIB);
    let ran = raidlab(&format!("rebuild {} --replace {}={new}", disks.join(" "), disks[1])).code(0);
    assert!(ran.stdout.contains("new=3.img"), "{}", ran.stdout);
    until("it is one of two", || dumped(&format!("{} {new}", disks[0])).code == 0);
}
