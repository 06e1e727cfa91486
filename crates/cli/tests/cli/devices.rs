//! Block devices, as loop devices over files: what is in use, what lies on what, what is too small,
//! what is erased.
//!
//! All of this needs root, and is skipped where no loop device can be had.

use std::process::Command;

use testkit::Loop;

use crate::support::{Dir, raidlab};

fn run(program: &str, arguments: &[&str]) -> bool {
    // runs: callers of run
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Two partitions of 4 MiB, from 1 MiB and 5 MiB on.
pub fn partitions(disk: &Loop) -> Option<(String, String)> {
    let first = disk.partition(1, 1 << 20, 4 << 20)?;
    Some((first, disk.partition(2, 5 << 20, 4 << 20)?))
}

pub fn image(dir: &Dir, name: &str, mib: u64) -> String {
    let path = dir.file(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(mib << 20)).expect("a file");
    path
}

fn refused(words: &str, named: &[&str]) {
    let ran = raidlab(words).code(2);
    for name in named {
        assert!(ran.stderr.contains(name), "{words}: '{name}' is not named: {}", ran.stderr);
    }
}

pub fn bytes(path: &str) -> Vec<u8> {
    std::fs::read(path).expect("a file")
}

/// A mirror of two new files of 16 MiB.
fn mirror(dir: &Dir) -> (String, String) {
    let (a, b) = (dir.file("a0"), dir.file("a1"));
    raidlab(&format!("create -l 1 -n 2 --file-size 16M {a} {b}")).code(0);
    (a, b)
}

#[test]
fn a_loop_device_and_its_file_are_one() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let (Some(first), Some(second)) = (Loop::over(&a), Loop::over(&a)) else { return };
    let before = bytes(&a);
    let (one, two) = (&first.0, &second.0);
    refused(&format!("dump {a} {b} --overwrite -o {one}"), &[one, "it is the member", &a]);
    refused(&format!("dump {one} {b} --overwrite -o {a}"), &["it is the member", one]);
    refused(&format!("dump {one} {b} --overwrite -o {two}"), &["it is the member", one]);
    refused(&format!("dump {b} --overwrite -o {a}"), &[&a, "it is attached to"]);
    refused(&format!("dump {b} --sha256 --json={a}"), &[&a, "it is attached to"]);
    let described = "dump --sha256 --level 1 --raid-devices 2";
    refused(&format!("{described} {a} {one}"), &[one, "the same device as", &a]);
    refused(&format!("create -l 1 -n 2 --force {a} {b}"), &[&a, "it is attached to"]);
    refused(&format!("create -l 1 -n 2 --force {one} {two}"), &[two, "given twice"]);
    assert!(bytes(&a) == before, "it was written to");
    let ran = raidlab(&format!("dump --sha256 {one} {a} {b}")).code(0);
    assert!(ran.stderr.contains("the same file as"), "{}", ran.stderr);
}

#[test]
fn parts_of_one_file_are_members_side_by_side() {
    let dir = Dir::new();
    let disk = image(&dir, "disk", 48);
    let parts = [1, 17].map(|mib| Loop::over_part(&disk, mib << 20, 16 << 20));
    let [Some(first), Some(second)] = parts else { return };
    let Some(across) = Loop::over_part(&disk, 9 << 20, 16 << 20) else { return };
    let (first, second, across) = (&first.0, &second.0, &across.0);
    raidlab(&format!("create -l 1 -n 2 {first} {second}")).code(0);
    let before = bytes(&disk);
    for one in [first, second] {
        refused(&format!("create -l 1 -n 2 --force {one} {across}"), &[across, "shares bytes"]);
    }
    let parts = format!("create -l 1 -n 2 --force {across}@0+4M {across}");
    refused(&format!("{parts}@8M"), &["@8388608", "another part of the same device"]);
    refused(&format!("{parts}@2M"), &["@2097152", "it shares bytes with"]);
    assert!(bytes(&disk) == before, "it was written to");
    let whole = raidlab(&format!("dump --sha256 {first} {second}")).code(0);
    assert!(!whole.stderr.contains("the same"), "{}", whole.stderr);
    let described = "dump --sha256 --level 1 --raid-devices 2 --data-offset 2048s";
    raidlab(&format!("{described} {first} {second}")).code(0);
    refused(&format!("{described} {first} {across}"), &[across, "it shares bytes with"]);
    refused(&format!("{described} {first} {disk}@1M+16M"), &["@1048576+16777216", "the same"]);
    refused(
        &format!("{described} {first} {disk}@4M+16M"),
        &["@4194304+16777216", "it shares bytes with"],
    );
}

#[test]
fn what_is_mounted_or_too_small_is_not_written_over() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let (small, large) = (image(&dir, "small", 8), image(&dir, "large", 20));
    let (Some(small_loop), Some(large_loop)) = (Loop::over(&small), Loop::over(&large)) else {
        return;
    };
    let (small_loop, large_loop) = (&small_loop.0, &large_loop.0);
    let dump = format!("dump {a} {b} --overwrite -o");
    refused(&format!("{dump} {small_loop}"), &["it has 8.00 MiB, the array has 15.00 MiB"]);
    assert!(bytes(&small).iter().all(|&byte| byte == 0), "it was written to");
    refused(&format!("dump {a} {b} -o {large_loop}"), &["--overwrite"]);
    raidlab(&format!("{dump} {large_loop}")).code(0);
    if !run("mkfs.ext4", &["-q", large_loop]) {
        return eprintln!("mounted devices skipped: mkfs.ext4 is not installed");
    }
    let mounted = dir.file("mounted");
    std::fs::create_dir(&mounted).expect("a directory");
    if !run("mount", &[large_loop, &mounted]) {
        return eprintln!("mounted devices skipped: none can be mounted");
    }
    let is_in_use = raidlab(&format!("{dump} {large_loop}"));
    // Its file system lies on the member: to write there is to write to the member.
    let described = format!("dump --level 1 --raid-devices 1 {large_loop} -o {mounted}/out");
    let lies_on = raidlab(&described);
    let left = std::path::Path::new(&mounted).join("out").exists();
    run("umount", &[&mounted]);
    assert!(is_in_use.stderr.contains("it is in use: it is mounted on"), "{is_in_use:?}");
    assert!(lies_on.stderr.contains(&format!("it lies on the member {large_loop}")), "{lies_on:?}");
    assert_eq!((is_in_use.code, lies_on.code, left), (2, 2, false));
}

#[test]
fn a_disk_and_its_partitions_touch_each_other() {
    let dir = Dir::new();
    let whole = image(&dir, "whole", 16);
    let Some(disk) = Loop::over(&whole) else { return };
    let Some((first, second)) = partitions(&disk) else { return };
    let disk = &disk.0;
    refused(&format!("create -l 1 -n 2 {disk} {second}"), &[&second, "it shares bytes with"]);
    raidlab(&format!("create -l 1 -n 2 {first} {second}")).code(0);
    let before = bytes(&whole);
    let dump = format!("dump {first} --overwrite -o");
    refused(&format!("{dump} {disk}"), &[&format!("the member {first} lies on it")]);
    refused(&format!("{dump} {whole}"), &[&format!("the member {first} lies on it")]);
    refused(&format!("{dump} {second}"), &["it is a member of md array"]);
    for member in [&whole, disk] {
        let dump = format!("dump {member}@1M --overwrite -o");
        refused(&format!("{dump} {first}"), &["it lies on the member"]);
    }
    assert!(bytes(&whole) == before, "it was written to");
    // Another partition is another device.
    let blank = std::fs::OpenOptions::new().write(true).open(&second).expect("it");
    std::os::unix::fs::FileExt::write_all_at(&blank, &vec![0; 4 << 20], 0).expect("written");
    drop(blank);
    raidlab(&format!("{dump} {second}")).code(0);
}

#[test]
fn what_cannot_be_read_may_be_a_member() {
    let dir = Dir::new();
    let (a, b) = mirror(&dir);
    let cut = image(&dir, "cut", 20);
    let Some(device) = Loop::over(&cut) else { return };
    let device = &device.0;
    // Where superblocks 0.90 and 1.0 would be, reads fail now.
    let file = std::fs::OpenOptions::new().write(true).open(&cut).expect("it");
    file.set_len(16 << 20).expect("a length");
    let may_be = "may be a member of an md array: sector 40832: cannot be read";
    refused(&format!("dump {a} {b} --overwrite -o {device}"), &[device, may_be]);
    let new = dir.file("new");
    let words = format!("create -l 1 -n 2 --file-size 20M {new} {device}");
    refused(&words, &[may_be, "--force"]);
    let ran = raidlab(&format!("status {device}"));
    assert!(ran.stdout.contains(&format!("unused devices: {device}")), "{}", ran.stdout);
}

/// With a mistyped option after --destroy-contents, the device keeps its contents.
#[test]
fn a_bench_that_is_refused_erases_nothing() {
    let dir = Dir::new();
    let (disk, job) = (image(&dir, "disk", 32), dir.file("paced.fio"));
    std::fs::write(&disk, vec![0x5a; 32 << 20]).expect("written");
    std::fs::write(&job, "[j]\nrw=write\nsize=1M\nrate_iops=10\n").expect("written");
    if !run("mke2fs", &["-F", "-q", "-L", "theirs", &disk]) {
        return eprintln!("skipped: mke2fs is not installed");
    }
    let held = std::fs::read(&disk).expect("read");
    let Some(device) = Loop::over(&disk) else { return };
    let bench = |words: &str| raidlab(&format!("bench --json --destroy-contents {words}"));
    let (bare, below) = (format!("device:{}", device.0), format!("on=device:{}", device.0));
    for (words, named) in [
        (format!("--target {bare} --workload fio:{job}"), "rate_iops"),
        (format!("--target {bare} --workload dd --size 1G"), "the target holds"),
        (format!("--target fs:ext4,scheduler=no-such,{below} --workload dd"), "no-such"),
        // Too small for it; or it is not installed.
        (format!("--target fs:xfs,{below} --workload dd"), "mkfs.xfs"),
    ] {
        let ran = bench(&words).code(2);
        assert!(ran.stderr.contains(named), "{words}: {}", ran.stderr);
        run("blockdev", &["--flushbufs", &device.0]);
        assert!(std::fs::read(&disk).expect("read") == held, "{words}: it was written to");
    }
    bench(&format!("--target {bare} --workload dd --size 4M")).code(0);
    run("blockdev", &["--flushbufs", &device.0]);
    let left = std::fs::read(&disk).expect("read");
    assert!(left[31 << 20..].iter().all(|byte| *byte == 0), "now both ends are erased");
    assert!(left[16 << 20..31 << 20] == held[16 << 20..31 << 20], "and what lies between is not");
}

/// Each program on a device that held something else: what it wrote is there, and what could not be
/// written is not called corrupt.
#[test]
fn every_program_that_runs_on_a_device_finds_there_what_it_wrote() {
    let dir = Dir::new();
    let path = dir.file("disk");
    std::fs::write(&path, vec![0x5a; 48 << 20]).expect("a file");
    let Some(device) = Loop::over(&path) else { return };
    let job = dir.file("job.fio");
    std::fs::write(&job, "[mixed]\nrw=randrw\nbs=4k\nsize=1m\n").expect("a job file");
    let programs = [
        "bonnie:seeks=100",
        "bonnie++:n=1:seeks=100",
        "dd:bs=64K:fdatasync",
        "iozone:r=64K",
        "streams:files=3:size=4M",
        "tiobench:t=2:random=20",
        "seeks:time=1",
        "oltp:time=1",
        &format!("fio:{job}"),
    ];
    for program in programs {
        let words = "--destroy-contents --size 16M --json";
        let words = format!("bench --target device:{} --workload {program} {words}", device.0);
        let cells = raidlab(&words).code(0).cells();
        assert!(!cells.is_empty(), "{program}");
        for cell in &cells {
            let ran = !crate::support::warnings(cell).contains("not applicable");
            assert_eq!(cell["verified"] == serde_json::Value::Bool(true), ran, "{program}: {cell}");
        }
    }
}
