//! Locks on storage that has several names: loop devices, their partitions, device-mapper.
//!
//! All of this needs root, and is skipped where no loop device can be had.

use std::path::Path;
use std::process::Command;

use raidlab_host::{Access, Device, DeviceError, DeviceOptions, DeviceProblem, Disk, Location};
use testkit::Loop;

const MIB: u64 = 1 << 20;

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    // runs: dmsetup
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A device-mapper device that is a linear part of another, gone when dropped.
struct Linear(String);

impl Linear {
    fn over(device: &str, bytes: u64) -> Option<Linear> {
        let name = format!("raidlab-locks-{}", std::process::id());
        let table = format!("0 {} linear {device} 0", bytes / 512);
        let made = run("dmsetup", &["create", &name, "--table", &table]);
        let is_there = made.is_some() && Path::new(&format!("/dev/mapper/{name}")).exists();
        if !is_there {
            eprintln!("device-mapper skipped: it cannot be had here");
        }
        made.filter(|_| is_there).map(|_| Linear(name))
    }

    fn path(&self) -> String {
        format!("/dev/mapper/{}", self.0)
    }
}

impl Drop for Linear {
    fn drop(&mut self) {
        run("dmsetup", &["remove", "--retry", &self.0]);
    }
}

fn open(path: impl AsRef<Path>, access: Access) -> Result<Device, DeviceError> {
    Device::open(&Location::whole(path.as_ref()), DeviceOptions { access, direct: false })
}

fn write(path: impl AsRef<Path>) -> Result<Device, DeviceError> {
    open(path, Access::ReadWrite)
}

/// Two names of one storage: what is written under one is neither written nor read under the other,
/// in both orders.
fn exclude(one: &str, other: &str) {
    for (first, second) in [(one, other), (other, one)] {
        let held = write(first).unwrap_or_else(|error| panic!("{first} is free: {error}"));
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let error = open(second, access).err();
            let error = error.unwrap_or_else(|| panic!("{first}, then {second} ({access:?})"));
            assert!(
                matches!(error.problem, DeviceProblem::Locked { .. } | DeviceProblem::InUse { .. }),
                "{first}, then {second}: {error}"
            );
        }
        drop(held);
        drop(write(second).unwrap_or_else(|error| panic!("{second} is free again: {error}")));
        let _read = open(first, Access::ReadOnly).expect("it is only read");
        open(second, Access::ReadOnly).expect("both are only read");
        write(second).expect_err("it is read under the other name");
    }
}

#[test]
fn two_loop_devices_over_one_file_exclude_each_other_where_they_overlap() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("disk");
    std::fs::File::create(&file).and_then(|file| file.set_len(32 * MIB)).expect("a file");
    let loops = [(0, 32), (0, 16), (16, 16)];
    let [Some(whole), Some(first), Some(second)] =
        loops.map(|(from, mib)| Loop::over_part(&file, from * MIB, mib * MIB))
    else {
        return;
    };
    exclude(&whole.0, &first.0);
    exclude(&whole.0, &second.0);
    let (one, other) = (write(&first.0).expect("free"), write(&second.0).expect("other bytes"));
    one.write(0, &[1; 512]).expect("it is there");
    other.write(0, &[2; 512]).expect("it is there");
    drop((one, other));
    let bytes = std::fs::read(&file).expect("a file");
    assert_eq!((bytes[0], bytes[16 << 20]), (1, 2));
}

#[test]
fn a_file_that_is_open_is_not_written_through_a_loop_device() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("disk");
    std::fs::File::create(&file).and_then(|file| file.set_len(16 * MIB)).expect("a file");
    // The part that a served file is, and one beside it.
    let part = Location { offset: 4 * MIB, size: Some(4 * MIB), ..Location::whole(&file) };
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    let served = Device::open(&part, options).expect("free");
    let Some(over) = Loop::over_part(&file, 2 * MIB, 6 * MIB) else { return };
    let Some(beside) = Loop::over_part(&file, 8 * MIB, 4 * MIB) else { return };
    let error = write(&over.0).expect_err("it shares bytes").to_string();
    assert!(error.contains(&format!("as {}", file.display())), "{error}");
    open(&over.0, Access::ReadOnly).expect_err("it would read what is being written");
    Device::open_output(Path::new(&over.0)).expect_err("an output is written as well");
    let beside = write(&beside.0).expect("other bytes");
    if let Some(partition) = over.partition(1, 2 * MIB, 2 * MIB) {
        write(&partition).expect_err("it lies on the part as well");
        // The rest of the loop device is free where the part has ended.
        drop(served);
        let held = write(&partition).expect("free");
        write(&over.0).expect_err("its partition is open");
        open(&over.0, Access::ReadOnly).expect_err("its partition is written");
        open(&file, Access::ReadOnly).expect_err("its partition is written");
        drop(held);
        let held = open(&over.0, Access::ReadOnly).expect("free");
        write(&partition).expect_err("its bytes are read");
        drop(held);
        let held = open(&file, Access::ReadOnly);
        held.expect_err("the loop device beside it is written");
        drop(beside);
        exclude(&over.0, &partition);
    }
}

#[test]
fn what_device_mapper_lies_on_is_locked_as_a_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("disk");
    std::fs::File::create(&file).and_then(|file| file.set_len(16 * MIB)).expect("a file");
    let Some(below) = Loop::over_part(&file, 0, 16 * MIB) else { return };
    let Some(second) = Loop::over_part(&file, 8 * MIB, 8 * MIB) else { return };
    let Some(linear) = Linear::over(&below.0, 4 * MIB) else { return };
    let held = write(linear.path()).expect("free");
    for name in [&below.0, &second.0] {
        write(name).expect_err("device-mapper lies on it");
    }
    drop(held);
    let held = write(&second.0).expect("free");
    write(linear.path()).expect_err("what it lies on is open");
    drop(held);
    write(linear.path()).expect("free again");
}
