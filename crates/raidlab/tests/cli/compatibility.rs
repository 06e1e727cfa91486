//! Old forms of the command line, documented once: they work as today's forms do, with a note.

use serde_json::Value;

use crate::support::{Dir, QUICK, Ran, raidlab};

const SWEEP: &str = "[[run]]\nlevel = \"raid0\"\ndisks = 2\nmembers = \"mem\"\nsize = \"4M\"\n\
                     workload = \"seq-read\"\nseconds = 0.02\nruns = 1\nwarm-up = 0\n";

/// Old form, today's form, and what the note names.
const SAME: [(&str, &str, &str); 18] = [
    ("bench --programs", "programs", "'raidlab programs'"),
    ("bench --programs --json -", "programs --json", "--json"),
    ("bench --json - --programs", "programs --json", "--json"),
    ("bench @ --dry-run --db @.db", "sweep @ --dry-run --db @.db", "raidlab sweep"),
    ("bench --dry-run --db @.db @", "sweep @ --dry-run --db @.db", "raidlab sweep"),
    ("bench --dry-run --db=@.db --level raid1 @", "sweep @ --dry-run --db=@.db --level raid1", ""),
    ("bench --dry-run --until-steady 9 @", "sweep @ --dry-run --until-steady 9", "raidlab sweep"),
    ("bench @ --dry-run --json -", "sweep @ --dry-run --json", "raidlab sweep"),
    ("bench --again --dry-run --db @.db @", "sweep --again --dry-run --db @.db @", "raidlab sweep"),
    ("bench --kernels --level raid5", "bench kernels --level raid5", "'raidlab bench kernels'"),
    ("bench --engine --level raid4", "bench engine --level raid4", "'raidlab bench engine'"),
    ("bench --kernel sse9", "bench --parity-impl sse9", "--parity-impl"),
    ("bench --kernel=sse9", "bench --parity-impl=sse9", "--parity-impl"),
    ("bench kernels --kernel sse9", "bench kernels --parity-impl sse9", "--parity-impl"),
    ("bench --kernels --kernel sse9", "bench kernels --parity-impl sse9", "--parity-impl"),
    (
        "bench --dry-run --target kernel:/dev/a+/dev/b --level raid1 --workload dd",
        "bench --dry-run --target md:/dev/a+/dev/b --level raid1 --workload dd",
        "md:",
    ),
    (
        "bench --dry-run --target=fs:xfs,on=kernel:/dev/a+/dev/b --level raid1 --workload dd",
        "bench --dry-run --target=fs:xfs,on=md:/dev/a+/dev/b --level raid1 --workload dd",
        "md:",
    ),
    ("status /nonexistent --json -", "status /nonexistent --json", "--json"),
];

fn without_notes(ran: &Ran) -> String {
    let lines = ran.stderr.lines().filter(|line| !line.starts_with("raidlab: note: "));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn old_forms_do_what_those_of_today_do() {
    let dir = Dir::new();
    let sweep = dir.file("old.toml");
    std::fs::write(&sweep, SWEEP).expect("a sweep");
    for (old, new, named) in SAME {
        let old = raidlab(&old.replace('@', &sweep));
        let today = raidlab(&new.replace('@', &sweep));
        let note = old.stderr.lines().find(|line| line.starts_with("raidlab: note: "));
        assert!(note.is_some_and(|note| note.contains(" is now ")), "{new}: {}", old.stderr);
        assert!(old.stderr.contains(named), "'{named}': {}", old.stderr);
        assert!(!today.stderr.contains(" is now "), "{}", today.stderr);
        assert_eq!(without_notes(&old), today.stderr.trim_end(), "{new}");
        assert_eq!((old.code, old.stdout), (today.code, today.stdout), "{new}");
    }
}

/// Figures differ from run to run: what is compared is that there are some.
#[test]
fn old_forms_of_tables_run() {
    let kernels = "--kernel portable --runs 1 --json -";
    let engine = "--level raid0 --workload rand-read --size 64M --runs 1 --seconds 0.02 --json -";
    for (old, list) in [
        (format!("bench --kernels {kernels}"), "kernels"),
        (format!("bench --engine {engine}"), "rows"),
    ] {
        let ran = raidlab(&old);
        assert!(ran.code < 2, "{old}: {}", ran.stderr);
        let found = serde_json::from_str::<Value>(&ran.stdout).expect("JSON");
        assert!(found[list].as_array().is_some_and(|list| !list.is_empty()), "{old}: {found}");
    }
}

/// The options of each verb, with a value where they take one.
const OPTIONS: [(&str, &[&str]); 9] = [
    (
        "bench",
        &[
            "--level raid5",
            "--layout ls",
            "--disks 4",
            "--chunk 64K",
            "--array raid0(2)",
            "--degraded 1",
            "--stripe-cache 1M",
            "--members mem",
            "--bus 133MB/s",
            "--channel 2",
            "--spindle 2",
            "--queue-depth 4",
            "--dir /tmp",
            "--workload dd",
            "--programs",
            "--target engine",
            "--drop-caches",
            "--destroy-contents",
            "--block 4K",
            "--depth 2",
            "--jobs 2",
            "--read-ahead 1M",
            "--size 64M",
            "--kernels",
            "--kernel avx2",
            "--engine",
            "--seconds 1",
            "--runs 5",
            "--until-steady",
            "--until-steady 9",
            "--warm-up 0",
            "--interval 1",
            "--cores 1",
            "--seed 7",
            "--json -",
            "--json=-",
            "--html x.html",
            "--db",
        ],
    ),
    ("bench s.toml", &["--dry-run", "--again", "--db x.db"]),
    ("compare a b", &["--max-slowdown 5%", "--markdown x.md", "--json", "--db x.db"]),
    (
        "create a b",
        &[
            "--level 1",
            "-l 1",
            "--layout ls",
            "-p ls",
            "--parity ls",
            "--chunk 64",
            "-c 64",
            "--rounding 64",
            "--raid-devices 2",
            "-n 2",
            "--raid-disks 2",
            "--spare-devices 1",
            "-x 1",
            "--spare-disks 1",
            "--size 1M",
            "-z 1M",
            "--name x",
            "-N x",
            "--homehost x",
            "--uuid 00000000:00000000:00000000:00000000",
            "-W",
            "--write-mostly",
            "--failfast",
            "--write-behind",
            "--write-behind=9",
            "--metadata 1.2",
            "-e 1.2",
            "--bitmap none",
            "-b none",
            "--bitmap-chunk 64M",
            "--consistency-policy resync",
            "-k resync",
            "--data-offset 1M",
            "--assume-clean",
            "--force",
            "-f",
            "--run",
            "-R",
            "--file-size 8M",
            "--no-prealloc",
            "--prealloc",
            "--no-resync",
            "--dry-run",
            "--json",
        ],
    ),
    ("detail a", &["--array x", "--homehost x", "--json"]),
    (
        "dump a",
        &[
            "--output x",
            "-o x",
            "--overwrite",
            "--sha256",
            "--depth 8",
            "--array x",
            "--order a,b",
            "--ignore-events",
            "--ignore-checksums",
            "--force",
            "--partial",
            "--overlay x",
            "--read-only",
            "--level 5",
            "--layout ls",
            "--chunk 64K",
            "--raid-devices 3",
            "--data-offset 1M",
            "--size 1M",
            "--json",
        ],
    ),
    ("examine a", &["--bitmap", "--bad-blocks", "--homehost x", "--json"]),
    (
        "report",
        &[
            "--run last",
            "--list",
            "--published x",
            "--html x",
            "--markdown x",
            "--csv x",
            "--parquet x",
            "--json -",
            "--db x",
        ],
    ),
    ("watch", &["--interval 1", "--count 1", "--json"]),
];

/// The first thing that is wrong with each command line is an option that never was.
#[test]
fn options_of_then_are_options_of_today() {
    for (verb, options) in OPTIONS {
        for option in options {
            let ran = raidlab(&format!("{verb} {option} --never-was")).code(2);
            let named = ran.stderr.contains("unexpected argument '--never-was'");
            assert!(named, "{verb} {option}: {}", ran.stderr);
        }
    }
}

#[test]
fn json_behind_a_blank_is_a_file_or_stdout_in_bench_and_report() {
    let dir = Dir::new();
    let (one, two, list) = (dir.file("one.json"), dir.file("two.json"), dir.file("list.json"));
    let words = format!("bench {QUICK} --level raid0 --disks 2 --members mem --size 4M --db");
    let ran = raidlab(&format!("{words}={} --workload seq-read --json {one}", dir.file("db")));
    assert!(ran.code(0).stderr.contains("'--json FILE' is now --json=FILE"));
    let record = |path: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).expect("it was written")).expect("JSON")
    };
    assert_eq!(record(&one)["cells"][0]["target"], "engine");
    assert_eq!(raidlab(&format!("report {one} --json -")).code(0).record(), record(&one));
    raidlab(&format!("report {one} --json {two}")).code(0);
    assert_eq!(record(&two), record(&one));
    raidlab(&format!("report --db {} --list --json {list}", dir.file("db"))).code(0);
    assert_eq!(record(&list)[0]["id"], 1);
    // A record that is there is either to be read or to be replaced: the words must say which.
    let before = std::fs::read_to_string(&two).expect("it was written");
    let ran = raidlab(&format!("report --db {} --json {two}", dir.file("db"))).code(2);
    for named in ["it exists", &format!("'--json={two}' writes"), &format!("'{two} --json' reads")]
    {
        assert!(ran.stderr.contains(named), "{}", ran.stderr);
    }
    assert_eq!(std::fs::read_to_string(&two).expect("it is there"), before);
}

#[test]
fn words_that_look_like_old_forms_are_left_alone() {
    // An option's value, or a subcommand's name, is no sweep.
    let ran = raidlab("bench --dry-run --members paced:none.toml --level raid0");
    assert!(!ran.stderr.contains("note:"), "{}", ran.stderr);
    let ran = raidlab("bench --json kernels").code(2);
    assert!(!ran.stderr.contains("note:"), "{}", ran.stderr);
    let ran = raidlab("bench nothing").code(2);
    assert!(ran.stderr.contains("nothing") && !ran.stderr.contains("note:"), "{}", ran.stderr);
}

#[test]
fn a_dump_takes_read_only() {
    let dir = Dir::new();
    let (a, b) = (dir.file("a"), dir.file("b"));
    let create = "create --level 1 --raid-devices 2 --homehost none --file-size 8M";
    raidlab(&format!("{create} {a} {b}")).code(0);
    let (old, today) = (
        raidlab(&format!("dump --read-only --sha256 {a} {b}")).code(0),
        raidlab(&format!("dump --sha256 {a} {b}")).code(0),
    );
    assert_eq!(old.stdout, today.stdout);
    assert!(old.stderr.contains("--read-only has no effect"), "{}", old.stderr);
}

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
        "fs:xfs,on=kernel:/dev/a+/dev/b,queue-depth=1,stripe-cache=256,assume-clean",
        "kernel:/dev/a+/dev/b,read-ahead=1M",
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
