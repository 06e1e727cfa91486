//! Disks that have superblocks at two places, of the whole disk and of its partitions: each place
//! is listed with what is its own, in directories and below overlays, too.

use rustix::process::Signal;

use crate::copies::hash;
use crate::serve::Server;
use crate::support::{Dir, raidlab};
use crate::tables::{boot_record, write};

const MIB: u64 = 1 << 20;

fn images(dir: &Dir, count: usize, bytes: u64) -> Vec<String> {
    let image = |at: usize| {
        let path = dir.file(&format!("d{at}.img"));
        std::fs::File::create(&path).expect("an image").set_len(bytes).expect("its size");
        path
    };
    (0..count).map(image).collect()
}

/// A later second.
fn later() {
    std::thread::sleep(std::time::Duration::from_millis(1200));
}

fn uuid(number: u8) -> String {
    format!("{number:08x}:00000000:00000000:00000000")
}

fn create(level: &str, version: &str, number: u8, members: &str) {
    let members_of = members.split_whitespace().count();
    let more = if level == "0" { "-c 64K" } else { "--assume-clean" };
    let create = format!("create --homehost none -l {level} -n {members_of} -e {version} --force");
    raidlab(&format!("{create} {more} --uuid {} {members}", uuid(number))).code(0);
}

fn parts(disks: &[String], place: &str) -> String {
    disks.iter().map(|disk| format!("{disk}@{place}")).collect::<Vec<_>>().join(" ")
}

/// UUID, first member and whether it is a former one, of each array.
fn listed(members: &str) -> Vec<(String, String, bool)> {
    let status = raidlab(&format!("status --json {members}")).record();
    let arrays = status["arrays"].as_array().expect("a list").iter();
    let text = |value: &serde_json::Value| value.as_str().expect("a text").to_string();
    let of = arrays.map(|it| {
        (text(&it["array_uuid"]), text(&it["members"][0]), it["former"].as_bool().unwrap())
    });
    of.collect()
}

fn read_all(disks: &[String]) -> Vec<Vec<u8>> {
    disks.iter().map(|disk| std::fs::read(disk).expect("an image")).collect()
}

#[test]
fn a_partitions_0_90_at_the_end_of_a_disk_does_not_hide_the_disks_own() {
    for (version, level) in [("1.2", "1"), ("1.2", "0")] {
        let dir = Dir::new();
        let disks = images(&dir, 2, 8 * MIB);
        let all = disks.join(" ");
        create(level, version, 1, &all);
        later();
        for disk in &disks {
            write(disk, 0, &boot_record(&[(0xfd, 8192, 8192)]));
        }
        create(level, "0.90", 2, &parts(&disks, "8192s+4M"));
        let before = read_all(&disks);
        let part = format!("{}@4194304+4194304", disks[0]);
        let seen = [(uuid(2), part, false), (uuid(1), disks[0].clone(), true)];
        assert_eq!(listed(&all), seen, "{version} {level}");
        let ran = raidlab(&format!("dump --no-check --sha256 {all}")).code(1);
        assert!(ran.stderr.contains(&uuid(1)), "{}", ran.stderr);
        let named = format!("dump --no-check --sha256 {}", parts(&disks, "8192s"));
        let part = hash(&raidlab(&named).code(0));
        assert_eq!(hash(&ran), part);
        let named = format!("dump --no-check --sha256 --array {} {all}", uuid(1));
        let ran = raidlab(&named).code(1);
        assert!(ran.stderr.contains("may be in place of the data"), "{}", ran.stderr);
        assert_ne!(hash(&ran), part);
        for verb in ["scrub --check", "rebuild", "zero-superblock"] {
            raidlab(&format!("{verb} {all}")).code(2);
        }
        assert!(before == read_all(&disks), "{version} {level}");
    }
}

#[test]
fn a_disk_of_a_directory_that_was_another_arrays_hides_no_other_disk() {
    let dir = Dir::new();
    let disks = images(&dir, 2, 8 * MIB);
    let all = disks.join(" ");
    create("0", "1.2", 1, &all);
    let truth = hash(&raidlab(&format!("dump --sha256 {all}")).code(0));
    later();
    write(&disks[0], 0, &boot_record(&[(0xfd, 8192, 6144)]));
    let create = "create --homehost none -l 1 -n 2 --assume-clean --force";
    raidlab(&format!("{create} --bitmap none {}@8192s missing", disks[0])).code(0);
    for names in [all.as_str(), dir.path()] {
        let ran = raidlab(&format!("dump --sha256 --array {} {names}", uuid(1))).code(1);
        // The new superblock lies in the data.
        assert_ne!(hash(&ran), truth, "{names}");
        assert_eq!(ran.stderr.matches("doubt: ").count(), 1, "{names}: {}", ran.stderr);
        let status = raidlab(&format!("status {names}")).code(1).stdout;
        assert_eq!(status.matches("doubt: ").count(), 1, "{names}: {status}");
    }
}

#[test]
fn an_overlay_keeps_the_doubt_about_a_former_array_and_reads_it() {
    let dir = Dir::new();
    let disks = images(&dir, 2, 8 * MIB);
    let all = disks.join(" ");
    create("1", "1.2", 1, &all);
    later();
    for disk in &disks {
        write(disk, 0, &boot_record(&[(0xfd, 8192, 6144)]));
    }
    create("1", "1.2", 2, &parts(&disks, "8192s"));
    let (over, nbd) = (dir.file("over"), dir.file("nbd"));
    let front = format!("--nbd unix:{nbd} --overlay {over}");
    let ran = Server::try_start(&dir, &format!("{all} {front}"));
    let Err(ran) = ran else { panic!("an array was chosen") };
    assert!(ran.stderr.contains("before an array is named"), "{}", ran.stderr);
    let server = Server::start(&dir, &format!("{all} {front} --array {}", uuid(2)));
    assert_eq!(server.end(Signal::INT).0, Some(0));
    let overlaid = format!("dump --sha256 --overlay {over}");
    let ran = raidlab(&format!("{overlaid} {all}")).code(1);
    assert!(ran.stderr.contains("was last written before"), "{}", ran.stderr);
    let former = raidlab(&format!("{overlaid} --array {} {all}", uuid(1))).code(1);
    let plain = raidlab(&format!("dump --sha256 --array {} {all}", uuid(1))).code(1);
    assert_eq!(hash(&former), hash(&plain));
    // A file that is no member changes nothing.
    let images = dir.file("images");
    std::fs::create_dir(&images).expect("a directory");
    for at in 0..2 {
        std::fs::rename(&disks[at], format!("{images}/d{at}.img")).expect("it");
    }
    std::fs::write(format!("{images}/a note"), vec![b'x'; 4096]).expect("a file");
    let ran = raidlab(&format!("{overlaid} --array {} {images}", uuid(2)));
    assert!(ran.code == 0, "{}", ran.stderr);
}

#[test]
fn superblocks_of_one_array_at_both_places_are_a_choice() {
    let dir = Dir::new();
    let disks = images(&dir, 2, 8 * MIB);
    let all = disks.join(" ");
    create("0", "1.2", 1, &all);
    for disk in &disks {
        write(disk, 0, &boot_record(&[(0xfd, 2048, 14336)]));
    }
    create("0", "1.2", 1, &parts(&disks, "1M"));
    let before = read_all(&disks);
    for verb in ["dump --sha256", "status", "scrub --check", "rebuild", "zero-superblock"] {
        let ran = raidlab(&format!("{verb} {all}")).code(2);
        let choices = format!("name {0}@1048576+7340032 or {0}@0+8388608", disks[0]);
        assert!(ran.stderr.contains(&choices), "{verb}: {}", ran.stderr);
    }
    assert!(before == read_all(&disks));
    for place in ["1048576+7340032", "0+8388608"] {
        raidlab(&format!("dump --sha256 {}", parts(&disks, place))).code(0);
    }
}

#[test]
fn members_that_the_array_runs_without_are_named_with_the_reason() {
    let dir = Dir::new();
    let disks = images(&dir, 4, 8 * MIB);
    let all = disks.join(" ");
    create("6", "1.2", 1, &all);
    // A copy of the first in place of the last.
    std::fs::copy(&disks[0], &disks[3]).expect("a copy");
    for verb in ["dump --sha256", "scrub --check", "rebuild"] {
        let ran = raidlab(&format!("{verb} {all}"));
        let said = ran.stderr + &ran.stdout;
        assert!(said.contains("left out: ") && said.contains("d3.img"), "{verb}: {said}");
    }
    let server = Server::start(&dir, &format!("{all} --nbd unix:{}", dir.file("nbd")));
    let (code, said) = server.end(Signal::INT);
    assert!(code == Some(0) && said.contains("left out: "), "{said}");
}
