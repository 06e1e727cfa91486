//! The laboratory on file systems in the guest: ext4 on arrays of the kernel's and of ours, with
//! LVM between and without.
//!
//! Invariant: as in `laboratory`: what an array, a volume or a mount is like, and what is left, is
//! asked of the machine, never of raidlab.

use std::time::Duration;

use serde_json::Value;

use super::said::{
    Said, fields_are, findings, laboratory, members, said, user_bytes, with_laboratory,
};
use super::support::{guest_of_the_whole, run};
use crate::guest::{ArrayJob, ArrayReport, Job, Step};
use crate::scratch::Scratch;

/// A member: room for an extent of LVM's and a journal.
const MEMBER_BYTES: u64 = 24 << 20;
const STREAM: &str = "--workload dd:bs=64K:fdatasync";
/// Three members of data: no power of two, so that what begins at whole stripes does so on purpose.
const RAID5: &str = "--level raid5 --disks 4 --chunk 16K --size 4M";

/// File systems that raidlab makes.
fn made() -> Vec<Step> {
    let bench = |how: &str, target: &str, array: &str| {
        laboratory(format!("{how} bench --target {target} {array} {STREAM}"))
    };
    let left = || laboratory("left @0 @1 @2 @3");
    let kernel = "on=md:@0+@1+@2+@3";
    let ours = format!("{RAID5} --members mem");
    vec![
        bench("measured", &format!("fs:ext4,noatime,read-ahead=1M,{kernel}"), RAID5),
        left(),
        bench("mapped", &format!("fs:ext4,lvm,{kernel}"), RAID5),
        left(),
        bench(
            "interrupted written",
            &format!("fs:ext4,lvm,{kernel}"),
            "--level raid5 --disks 4 --chunk 16K --size 32M",
        ),
        left(),
        bench("measured", "fs:ext4,lvm", &ours),
        left(),
        bench("measured", "fs:ext4,lvm,on=device:@0", "--size 4M"),
        left(),
        // It holds nothing any more.
        bench("measured", "device:@0", "--size 4M"),
    ]
}

/// Directories and volumes that were there before.
fn found() -> Vec<Step> {
    let create = "--create @md --run --level=5 --raid-devices=3 --spare-devices=1 --chunk=16 \
                  --bitmap=none --metadata=1.2 @0 @1 @2 @3";
    let bench =
        |target: &str| laboratory(format!("measured bench --target {target} --size 4M {STREAM}"));
    let command = |words: &str| Step::Command(words.into());
    vec![
        Step::mdadm(create),
        Step::Settle { degraded: 0 },
        laboratory("mounted @md /mnt"),
        bench("path:/mnt --drop-caches"),
        bench("path:/mnt"),
        command("ls -A /mnt"),
        command("umount /mnt"),
        command("dd if=/dev/zero of=@md bs=64k count=1"),
        laboratory("volume @md"),
        laboratory("mounted /dev/mapper/there-data /mnt"),
        bench("path:/mnt --drop-caches"),
        command("umount /mnt"),
        bench("device:/dev/mapper/there-data --destroy-contents"),
        laboratory("no_volume @md"),
        Step::stop(),
    ]
}

#[test]
fn raidlab_measures_file_systems_on_arrays_of_the_kernels_and_volumes() {
    let Some(guest) = guest_of_the_whole() else { return };
    let scratch = Scratch::new("file-systems");
    let guest = match guest.with_file_systems(scratch.path()) {
        Ok(guest) => with_laboratory(&guest, &scratch),
        Err(why) => return println!("skipped: {why}"),
    };
    let image = |disk: u32| scratch.image(&format!("disk.{disk}.img"), MEMBER_BYTES);
    let mut steps = vec![laboratory("drivers")];
    steps.extend(made());
    steps.extend(found());
    let disks = (0..4).map(image).collect();
    let array = ArrayJob { name: "file-systems".into(), disks, steps };
    let mut job = Job::new("file-systems", vec![array]);
    job.limit = Duration::from_secs(300);
    // The members of an array of ours are in it.
    job.memory_mib = 1536;
    let report = run(&guest, &job, &scratch);
    let report = report.array("file-systems");

    for (number, left) in report.outputs_of("laboratory left").into_iter().enumerate() {
        assert_eq!(left, "", "after run {number}");
    }
    let measured = said(report, "measured bench");
    assert_eq!(measured.len(), 8);
    for run in &measured {
        assert_eq!(run.get("status"), "0", "{:?}", run.values);
    }
    let [on_kernel, on_ours, on_device, _, cold, warm, mapped, volume] = &measured[..] else {
        panic!("eight runs")
    };
    a_file_system_on_md(on_kernel);
    a_volume_on_md(report, on_kernel);
    a_volume_elsewhere(on_ours, on_device);
    a_directory_on_md(cold, warm, "path");
    assert_eq!(report.output_of("ls -A"), "lost+found\n", "nothing of ours is left in it");
    a_directory_on_md(mapped, mapped, "path");
    is_on_the_array_there(volume.cell("write"), "device");
}

/// ext4 on RAID 5, with stripe options.
fn a_file_system_on_md(run: &Said) {
    for phase in ["write", "read"] {
        let cell = run.cell(phase);
        fields_are(
            cell,
            &[
                ("target", Value::from("fs")),
                ("level", "raid5".into()),
                ("layout", "left-symmetric".into()),
                ("disks", 4.into()),
                ("chunk_kib", 16.into()),
                ("members", "device".into()),
                ("verified", true.into()),
            ],
        );
        let place = &cell["place"];
        assert_eq!(place["name"], "fs:ext4,noatime,read-ahead=1M,on=kernel");
        assert_eq!((&place["file_system"], &place["lvm"]), (&"ext4".into(), &false.into()));
        assert_eq!(place["read_ahead_kib"], 1024);
        let mkfs = place["mkfs_options"].as_str().expect("options");
        assert!(mkfs.contains("stride=4,stripe_width=12,"), "{mkfs}");
        assert!(mkfs.ends_with(" /dev/md200"), "{mkfs}");
        let mount = place["mount_options"].as_str().expect("options");
        assert!(mount.contains("noatime") && mount.contains("stripe=12"), "{mount}");
        assert_eq!(names_of_members(cell).len(), 4);
        assert!(!findings(cell).contains(&"resync-running"), "{cell:#}");
    }
    has_written_parity(run.cell("write"), 3);
}

/// The members' bytes are the file's and its parity's, and what little the file system and md write
/// for themselves; figures are those of the bytes and the time.
fn has_written_parity(cell: &Value, data_members: u64) {
    let (user, written) = (user_bytes(cell), members(cell, "written_bytes"));
    assert_eq!(written.len() as u64, data_members + 1, "{cell:#}");
    let all: u64 = written.iter().sum();
    let least = user * (data_members + 1) / data_members;
    assert!(all >= least && all < least * 3 / 2, "{user} bytes, {written:?}");
    assert!(written.iter().all(|member| *member > user / data_members / 2), "{written:?}");
    assert!(!findings(cell).contains(&"page-cache"), "synced: {cell:#}");
    let sample = &cell["samples"][0];
    let rate = sample["bytes"].as_f64().expect("bytes") / sample["seconds"].as_f64().expect("s");
    let shown = cell["mb_per_s"].as_f64().expect("MB/s") * 1e6;
    let samples = cell["samples"].as_array().map_or(0, Vec::len);
    assert!(shown > 0.0 && (samples > 1 || (shown / rate - 1.0).abs() < 0.01), "{shown} {rate}");
}

fn names_of_members(cell: &Value) -> Vec<&str> {
    let members = cell["series"]["members"].as_array().expect("members over time");
    members.iter().map(|member| member["name"].as_str().expect("a name")).collect()
}

/// The volume's data begins at a whole stripe, on the array; nothing of it is left when the run is
/// interrupted, either.
fn a_volume_on_md(report: &ArrayReport, without: &Said) {
    let runs = said(report, "mapped bench");
    let [run] = &runs[..] else { panic!("one run") };
    assert_eq!(run.get("status"), "0", "{:?}", run.values);
    let (begin, on) = run.get("volume").split_once(' ').expect("a volume");
    assert_eq!(on.trim(), "/dev/md200");
    let begin: u64 = begin.parse().expect("bytes");
    assert!(begin >= 1 << 20 && begin.is_multiple_of(3 * 16 * 1024), "{begin}");
    let write = run.cell("write");
    assert_eq!(write["place"]["name"], "fs:ext4,lvm,on=kernel");
    assert_eq!(write["place"]["lvm"], true);
    let mkfs = write["place"]["mkfs_options"].as_str().expect("options");
    assert!(mkfs.contains("stripe_width=12,") && mkfs.contains(" /dev/mapper/raidlab"), "{mkfs}");
    assert_eq!(names_of_members(write), names_of_members(without.cell("write")));
    fields_are(write, &[("level", "raid5".into()), ("disks", 4.into()), ("verified", true.into())]);
    has_written_parity(write, 3);
    let interrupted = said(report, "interrupted written");
    assert_eq!(interrupted.len(), 1);
    assert_eq!(interrupted[0].get("status"), "130", "{:?}", interrupted[0].values);
}

/// On an array of ours, and on a disk.
fn a_volume_elsewhere(on_ours: &Said, on_device: &Said) {
    let write = on_ours.cell("write");
    fields_are(
        write,
        &[
            ("target", Value::from("fs")),
            ("level", "raid5".into()),
            ("disks", 4.into()),
            ("members", "mem".into()),
            ("verified", true.into()),
        ],
    );
    assert_eq!(
        (&write["place"]["name"], &write["place"]["lvm"]),
        (&"fs:ext4,lvm".into(), &true.into())
    );
    has_written_parity(write, 3);
    let write = on_device.cell("write");
    assert_eq!(write["place"]["name"], "fs:ext4,lvm,on=device");
    let written = members(write, "written_bytes");
    assert!(written.len() == 1 && written[0] >= user_bytes(write), "{write:#}");
    assert_eq!(write["verified"], true);
}

/// A directory on an array that runs: its members, without the spare, in both phases.
fn a_directory_on_md(cold: &Said, warm: &Said, target: &str) {
    for cell in [cold.cell("write"), cold.cell("read"), warm.cell("write")] {
        is_on_the_array_there(cell, target);
        assert_eq!(cell["place"]["name"], "path:ext4");
        assert_eq!(cell["place"]["file_system"], "ext4");
    }
    has_written_parity(cold.cell("write"), 2);
    let read = cold.cell("read");
    assert_eq!(read["caches_dropped"], true);
    let bytes: u64 = members(read, "read_bytes").iter().sum();
    assert!(bytes >= user_bytes(read), "{read:#}");
    assert!(!findings(read).contains(&"page-cache"), "{read:#}");
    if !std::ptr::eq(cold, warm) {
        let read = warm.cell("read");
        assert!(findings(read).contains(&"page-cache"), "{read:#}");
        let bytes: u64 = members(read, "read_bytes").iter().sum();
        assert!(bytes < user_bytes(read), "{read:#}");
    }
}

fn is_on_the_array_there(cell: &Value, target: &str) {
    fields_are(
        cell,
        &[
            ("target", Value::from(target)),
            ("level", "raid5".into()),
            ("layout", "left-symmetric".into()),
            ("disks", 3.into()),
            ("chunk_kib", 16.into()),
            ("degraded", 0.into()),
            ("verified", true.into()),
        ],
    );
    let names = names_of_members(cell);
    assert!(names.len() == 3 && names.iter().all(|name| name.starts_with("sd")), "{names:?}");
    assert_eq!(members(cell, "written_bytes").len(), 3, "a spare is no member yet");
}
