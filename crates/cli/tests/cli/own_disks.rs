//! Block workloads on all targets, and block devices as members: loop devices stand for disks.
//!
//! Invariant: what a device held before a run that is refused, or only reads, is there after it.

use std::process::Command;

use serde_json::Value;
use testkit::Loop;

use crate::devices::{bytes, image, partitions};
use crate::places;
use crate::support::{Dir, Ran, raidlab, warnings};

/// One short sample of each workload.
const BRIEFLY: &str = "--seconds 0.2 --warm-up 0 --runs 1 --json";

fn bench(words: &str) -> Ran {
    raidlab(&format!("bench {BRIEFLY} {words}"))
}

fn workloads(cells: &[Value]) -> Vec<&str> {
    cells.iter().filter_map(|cell| cell["workload"].as_str()).collect()
}

/// The four columns, all of them checked.
fn four_columns(cells: &[Value], target: &str) {
    assert_eq!(workloads(cells), ["seq-read", "rand-read", "seq-write", "rand-write"], "{target}");
    for cell in cells {
        assert_eq!((&cell["target"], &cell["verified"]), (&target.into(), &true.into()), "{cell}");
        if ["engine", "device"].contains(&target) {
            assert_eq!(warnings(cell), "", "{target}");
        }
        assert!(cell["mb_per_s"].as_f64() > Some(0.0) && cell["iops"].as_f64() > Some(0.0));
        assert!(cell["latency_us"]["p99"].as_f64() > Some(0.0), "{cell}");
        assert!(cell["cpu_s_per_gib"].as_f64().is_some(), "{cell}");
        let members = cell["per_member"].as_array().expect("a list");
        let name = if cell["workload"].as_str().is_some_and(|name| name.ends_with("read")) {
            "read_bytes"
        } else {
            "written_bytes"
        };
        let moved: u64 = members.iter().filter_map(|member| member[name].as_u64()).sum();
        assert!(moved > 0, "{target}: {cell}");
    }
}

/// Both ends are as on a new device.
fn counts_as_empty(file: &str) {
    let bytes = bytes(file);
    for end in [&bytes[..1 << 20], &bytes[bytes.len() - (1 << 20)..]] {
        assert!(end.iter().all(|byte| *byte == 0), "{file}");
    }
}

#[test]
fn the_four_columns_run_on_the_engine_a_device_a_directory_and_a_file_system() {
    if places::cannot() {
        return;
    }
    let dir = Dir::new();
    let file = image(&dir, "disk", 12);
    let Some(disk) = Loop::over(&file) else { return };
    let targets = format!(
        "--target engine --target device:{} --target path:{} --target fs:ext4",
        disk.0,
        dir.path()
    );
    let array = "--level raid1 --disks 2 --members mem --size 8M";
    let cells = bench(&format!("{targets} {array}")).code(0).cells();
    assert_eq!(cells.len(), 16);
    for (cells, target) in cells.chunks(4).zip(["engine", "device", "path", "fs"]) {
        four_columns(cells, target);
    }
    assert_eq!(cells[4]["place"]["name"], format!("device:{}", &disk.0["/dev/".len()..]));
    assert_eq!((&cells[12]["level"], &cells[12]["disks"]), (&"raid1".into(), &2.into()));
    counts_as_empty(&file);
    let left = std::fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 1, "the file of path: is gone");
    let mixed = bench(&format!("{targets} {array} --workload seq-mixed,rand-mixed")).code(0);
    let cells = mixed.cells();
    assert_eq!(cells.len(), 8);
    for cell in &cells {
        assert_eq!(cell["verified"], true, "{cell}");
        for part in ["reads_apart", "writes_apart"] {
            assert!(cell[part]["iops"].as_f64() > Some(0.0), "{cell}");
        }
    }
    let line =
        mixed.stderr.lines().find(|line| line.contains("rand-mixed") && line.contains("path:"));
    assert!(line.is_some(), "lines name the place: {}", mixed.stderr);
    counts_as_empty(&file);
}

#[test]
fn block_devices_are_members_one_array_after_the_other() {
    if places::cannot() {
        return;
    }
    let dir = Dir::new();
    let files = ["a", "b", "c"].map(|name| image(&dir, name, 12));
    let disks: Vec<Loop> = files.iter().filter_map(Loop::over).collect();
    let [a, b, c] = &disks[..] else { return };
    let members = format!("--members {}+{}+{}", a.0, b.0, c.0);
    let arrays = "--level raid5,raid1 --disks 2,3 --size 4M --chunk 64K";
    let cells = bench(&format!("{members} {arrays}")).code(0).cells();
    assert_eq!(cells.len(), 16);
    for (cells, disks) in cells.chunks(4).zip([2, 3, 2, 3]) {
        four_columns(cells, "engine");
        assert_eq!((&cells[0]["disks"], &cells[0]["members"]), (&disks.into(), &"device".into()));
    }
    files.iter().for_each(|file| counts_as_empty(file));
    // As large as the devices are; what the file system leaves is erased, too.
    let cells = bench(&format!("--target fs:ext4 {members} --level raid1")).code(0).cells();
    four_columns(&cells, "fs");
    assert_eq!(cells[0]["disks"], 3);
    files.iter().for_each(|file| counts_as_empty(file));
    let program = format!("bench --json {members} --level raid1 --workload dd:bs=64K --size 4M");
    let cells = raidlab(&program).code(0).cells();
    assert!(cells.iter().all(|cell| cell["verified"] == true), "{cells:?}");
    files.iter().for_each(|file| counts_as_empty(file));
    let refused = bench(&format!("{members} --level raid1 --size 64M")).code(2);
    assert!(refused.stderr.contains("it has 12 MiB, and 64 MiB are needed"), "{}", refused.stderr);
}

/// A file system's magic, or a partition table, among other bytes.
fn inhabit(file: &str, table: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..12 << 20).map(|at: u32| (at / 7 % 251) as u8).collect();
    bytes[..2048].fill(0);
    if table {
        bytes[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 9, 0, 8, 0, 0, 0, 0, 32, 0, 0]);
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    } else {
        bytes[1024 + 56..][..2].copy_from_slice(&[0x53, 0xef]);
    }
    std::fs::write(file, &bytes).expect("written");
    bytes
}

#[test]
fn a_device_that_holds_something_is_never_written_to_and_can_be_read() {
    let dir = Dir::new();
    for (name, table) in [("file-system", false), ("table", true)] {
        let (file, other) = (dir.file(name), image(&dir, "other", 12));
        let held = inhabit(&file, table);
        let (Some(disk), Some(empty)) = (Loop::over(&file), Loop::over(&other)) else { return };
        let (disk, empty) = (&disk.0, &empty.0);
        for words in [
            format!("--target device:{disk}"),
            format!("--target device:{disk} --workload rand-read,rand-write"),
            format!("--target device:{disk} --workload rand-mixed --read-percent 99"),
            format!("--members {disk} --level single"),
            // An array is filled, whatever runs on it.
            format!("--members {empty}+{disk} --level raid0 --workload seq-read"),
            format!("--target md --members {empty}+{disk} --level raid1 --workload seq-read"),
            format!("--target fs:ext4,on=device:{disk} --workload seq-read"),
            // The first target could be measured: nothing is before all are checked.
            format!("--target device:{empty} --target device:{disk}"),
        ] {
            let refused = bench(&words).code(2);
            let named = format!("{disk}: it holds");
            assert!(refused.stderr.contains(&named), "{words}: {}", refused.stderr);
            let advised = refused.stderr.contains("--destroy-contents");
            assert_eq!(advised, !words.contains("md"), "{words}: {}", refused.stderr);
            assert!(bytes(&file) == held, "{words}");
        }
        let md = format!("--target md --members {empty}+{disk} --level raid1 --destroy-contents");
        let refused = bench(&md).code(2);
        assert!(refused.stderr.contains("only devices that hold nothing"), "{}", refused.stderr);
        assert!(bytes(&other).iter().all(|byte| *byte == 0), "refused before anything is written");
        for words in [
            format!("--target device:{disk} --workload seq-read,rand-read"),
            format!("--members {disk}+{empty} --level single --workload seq-read,rand-read"),
        ] {
            let cells = bench(&words).code(0).cells();
            assert_eq!(workloads(&cells), ["seq-read", "rand-read"]);
            for cell in &cells {
                assert_eq!(
                    (&cell["verified"], &cell["checked_every"]),
                    (&Value::Null, &Value::Null)
                );
                assert!(cell["mb_per_s"].as_f64() > Some(0.0), "{cell}");
                let warnings = warnings(cell);
                assert!(warnings.contains("the data cannot be verified"), "{warnings}");
                assert!(!warnings.contains("zeroes"), "{warnings}");
            }
            assert!(bytes(&file) == held, "{words}");
        }
    }
}

/// Bytes without any signature.
fn unsigned(file: &str) -> Vec<u8> {
    let bytes: Vec<u8> = (0..12 << 20).map(|at: u32| (at / 7 % 251) as u8 | 1).collect();
    std::fs::write(file, &bytes).expect("written");
    bytes
}

/// A refusal after the devices were opened, too, and also where overwriting is permitted.
#[test]
fn what_is_refused_late_has_erased_nothing() {
    let dir = Dir::new();
    let (file, other) = (dir.file("unsigned"), dir.file("inhabited"));
    let (bare, held) = (unsigned(&file), inhabit(&other, false));
    let Some(disk) = Loop::with(&["--sector-size", "4096", &file]) else { return };
    let Some(signed) = Loop::over(&other) else { return };
    let (disk, signed) = (&disk.0, &signed.0);
    let mut late = vec![
        (format!("--target device:{disk} --block 512B"), "in units of 4096 bytes"),
        (format!("--members {disk}+{signed} --level raid1 --block 512B"), "in units of 4096 bytes"),
        // The devices are smaller than the plan assumes.
        (format!("--target device:{signed} --block 16M"), "do not fit into"),
        (format!("--members {signed} --level single --block 16M"), "do not fit into"),
    ];
    if !places::cannot() {
        let small = format!("--target fs:xfs --members {disk}+{signed} --level raid1");
        late.push((small, "mkfs.xfs"));
        late.push((format!("--target fs:xfs,on=device:{signed}"), "mkfs.xfs"));
    }
    for (words, named) in late {
        let refused = bench(&format!("{words} --destroy-contents")).code(2);
        assert!(refused.stderr.contains(named), "{words}: {}", refused.stderr);
        assert!(bytes(&file) == bare && bytes(&other) == held, "{words}");
    }
}

#[test]
fn block_workloads_on_devices_need_memory_too() {
    for words in ["device:/dev/no-such", "md:/dev/no-such+/dev/none --level raid1"] {
        let refused = bench(&format!("--target {words} --size 1000T --workload rand-write"));
        let stderr = refused.code(2).stderr;
        assert!(stderr.contains("the map of expected block versions"), "{words}: {stderr}");
    }
}

#[test]
fn reading_a_disk_with_a_mounted_partition_is_warned_of() {
    if places::cannot() {
        return;
    }
    let dir = Dir::new();
    let file = image(&dir, "disk", 12);
    let Some(disk) = Loop::over(&file) else { return };
    let Some((first, _)) = partitions(&disk) else { return };
    let run = |words: &[&str]| {
        // runs: mke2fs, mount, umount
        let ran = Command::new(words[0]).args(&words[1..]).output().expect("it is installed");
        assert!(ran.status.success(), "{words:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    run(&["mke2fs", "-F", "-q", &first]);
    let here = dir.file("mounted");
    std::fs::create_dir(&here).expect("made");
    run(&["mount", &first, &here]);
    let ran = bench(&format!("--target device:{} --workload rand-read", disk.0));
    run(&["umount", &here]);
    let cells = ran.code(0).cells();
    let name = &first["/dev/".len()..];
    let named = format!("its partition {name} is mounted on {here}: other requests");
    assert!(warnings(&cells[0]).contains(&named), "{}", warnings(&cells[0]));
}

#[test]
fn what_is_no_block_device_is_refused_without_being_opened() {
    let dir = Dir::new();
    let fifo = dir.file("fifo");
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).expect("made");
    for words in ["--workload seq-read", "", "--size 4M"] {
        let refused = bench(&format!("--members {fifo} --level single {words}")).code(2);
        assert!(refused.stderr.contains("it is no block device"), "{words}: {}", refused.stderr);
    }
}

/// The sweep has an item that could be measured, before the one that is refused.
#[test]
fn a_sweep_checks_its_devices_before_the_first_item() {
    let dir = Dir::new();
    let (file, other) = (image(&dir, "empty", 12), dir.file("inhabited"));
    let held = inhabit(&other, false);
    let (Some(empty), Some(disk)) = (Loop::over(&file), Loop::over(&other)) else { return };
    let (sweep, db) = (dir.file("disks.toml"), dir.file("results.db"));
    let text = format!(
        "title = \"Disks\"\n[defaults]\nseconds = 0.2\nwarm-up = 0\nruns = 1\n\
         workload = \"rand-write\"\n\
         [[run]]\ntarget = \"engine\"\nlevel = \"raid0\"\ndisks = 2\n\
         members = \"mem\"\nsize = \"4M\"\n\
         [[run]]\ntarget = [\"device:{}\", \"device:{}\"]\n",
        empty.0, disk.0
    );
    std::fs::write(&sweep, text).expect("written");
    let command = format!("sweep {sweep} --db {db} --json");
    let refused = raidlab(&command).code(2);
    assert!(refused.stderr.contains(&format!("{}: it holds", disk.0)), "{}", refused.stderr);
    assert!(!refused.stderr.contains("run 1 in"), "{}", refused.stderr);
    assert!(bytes(&other) == held && bytes(&file).iter().all(|byte| *byte == 0));
    std::fs::write(&other, vec![0; 12 << 20]).expect("written");
    assert_eq!(raidlab(&command).code(0).cells().len(), 3);
    // Nothing is left that would use the device.
    std::fs::write(&other, &held).expect("written");
    raidlab(&command).code(0);
}
