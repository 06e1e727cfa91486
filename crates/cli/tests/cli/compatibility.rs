//! What sweeps, scripts and stored records of before hold is still read.

use crate::support::{Dir, QUICK, raidlab};

/// Words that sweeps and command lines of then may hold.
#[test]
fn names_of_then_are_names_of_today() {
    let members = [
        "mem",
        "null",
        "file",
        "file:/tmp",
        "paced:hdd-2002",
        "paced:hdd-2007",
        "paced:hdd-2009",
        "paced:sata-ssd",
        "paced:nvme-ssd",
        "paced:hdd-2007@0.5",
        "paced:hdd-2007@stretch",
        "paced:hdd-2007:mem",
        "fault:flip@1M:mem",
        "fault:read-error@1M..1088K:mem",
        "fault:write-error@0..4K:mem",
        "fault:gone@1000:mem",
        "fault:torn@1M:mem",
        "fault:delay=5ms:mem",
        "mem*3+fault:flip@1M/gone@3:mem",
        "paced:hdd-2007*3+hdd-2009",
    ];
    for set in members {
        let words = format!("bench --dry-run --level raid0 --disks 4 --size 8M --members {set}");
        raidlab(&words).code(0);
    }
    let programs = [
        "bonnie",
        "bonnie++",
        "bonnie++:n=0:f",
        "dd:bs=2M:fdatasync",
        "dd:bs=512",
        "iozone:auto",
        "iozone:mmap",
        "iozone:pread:e:r=64K",
        "tiobench",
        "streams:files=20",
        "oltp",
        "seeks",
        "bonnie-1.2",
        "bonnie++-2.00",
    ];
    for program in programs {
        raidlab(&format!("bench --dry-run --target path:/tmp --size 1G --workload {program}"))
            .code(0);
    }
    let targets = [
        "engine",
        "path:/tmp",
        "device:/dev/null",
        "fs:ext2",
        "fs:ext3,block=1K",
        "fs:ext4,journal=none",
        "fs:ext4,journal=raid1(2),data=journal,noatime",
        "fs:xfs,unaligned",
        "fs:btrfs,lvm",
        "fs:ext4,read-ahead=1M,scheduler=none,on=device:/dev/null",
        "fs:xfs,on=md:/dev/a+/dev/b,queue-depth=1,stripe-cache=256,assume-clean",
        "md:/dev/a+/dev/b,read-ahead=1M",
    ];
    for target in targets {
        let words = "bench --dry-run --size 64M --level raid0 --workload dd --target";
        let ran = raidlab(&format!("{words} {target}"));
        // Arrays of nothing but existing places have no level.
        let ran = match ran.stderr.contains("--level: no --target creates an array") {
            true => raidlab(&format!("bench --dry-run --workload dd --target {target}")),
            false => ran,
        };
        // The words are taken; a dry run looks at the devices, and these are none.
        match target.contains("/dev/") {
            true => assert!(ran.code(2).stderr.contains("/dev/"), "{target}"),
            false => _ = ran.code(0),
        }
    }
    for array in ["raid1(raid0(2),raid0(2))", "raid10,f2,64K(4)", "raid6,left-symmetric,1M(5)"] {
        raidlab(&format!("bench --dry-run --members mem --array {array}")).code(0);
    }
}

/// Keys of a record's cell, as the documents of then had them.
const KEYS: [&str; 58] = [
    "array",
    "block_kib",
    "bound_mb_per_s",
    "bound_note",
    "bound_share",
    "bus_mb_per_s",
    "cached",
    "caches_dropped",
    "checked_every",
    "chunk_kib",
    "cores",
    "cpu_process_s",
    "cpu_process_share",
    "cpu_s_per_gib",
    "cpu_system_s",
    "cpu_threads",
    "degraded",
    "depth",
    "disks",
    "disks_per_channel",
    "file_bytes",
    "findings",
    "generator_ns_per_op",
    "interval",
    "iops",
    "item",
    "jobs",
    "late_ops",
    "latency_curve",
    "latency_us",
    "layout",
    "level",
    "mb_per_s",
    "member_load",
    "members",
    "members_per_spindle",
    "per_member",
    "phase",
    "place",
    "program",
    "program_bytes",
    "ratio_to_single",
    "read_ahead_kib",
    "read_off_s",
    "rounds_max",
    "samples",
    "series",
    "spread",
    "steady",
    "steady_window",
    "stripe_cache_kib",
    "sync",
    "target",
    "unshared_bound_mb_per_s",
    "verified",
    "warnings",
    "workers_mb_per_s",
    "workload",
];

#[test]
fn keys_of_the_record_stay() {
    let dir = Dir::new();
    let words = "--level raid5 --disks 3 --members mem --size 4M --workload seq-write --cores 1";
    let blocks = raidlab(&format!("bench {QUICK} --json {words} --degraded 0")).code(0).cell();
    let words = format!("--target path:{} --size 64M --workload dd", dir.path());
    let programs = raidlab(&format!("bench --json {words}")).code(0).cells();
    for cell in programs.iter().chain([&blocks]) {
        for key in KEYS {
            assert!(cell.get(key).is_some(), "{key}: {cell}");
        }
    }
    assert_eq!((&blocks["target"], &programs[0]["target"]), (&"engine".into(), &"path".into()));
    for key in ["name", "drives", "metadata", "bitmap"] {
        assert!(programs[0]["place"].get(key).is_some(), "{key}: {}", programs[0]["place"]);
    }
}
