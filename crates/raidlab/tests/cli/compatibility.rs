//! Old forms of the command line, documented once: they work as today's forms do, with a note.

use serde_json::Value;

use crate::support::{Dir, QUICK, Ran, raidlab};

const SWEEP: &str = "[[run]]\nlevel = \"raid0\"\ndisks = 2\nmembers = \"mem\"\nsize = \"4M\"\n\
                     workload = \"seq-read\"\nseconds = 0.02\nruns = 1\nwarm-up = 0\n";

/// Old form, today's form, and what the note names.
const SAME: [(&str, &str, &str); 16] = [
    ("bench --programs", "programs", "'raidlab programs'"),
    ("bench --programs --json -", "programs --json", "--json"),
    ("bench --json - --programs", "programs --json", "--json"),
    ("bench @ --dry-run --db @.db", "sweep @ --dry-run --db @.db", "raidlab sweep"),
    ("bench --dry-run --db @.db @", "sweep @ --dry-run --db @.db", "raidlab sweep"),
    ("bench --dry-run --db=@.db --level raid1 @", "sweep @ --dry-run --db=@.db --level raid1", ""),
    ("bench --dry-run --until-steady 9 @", "sweep @ --dry-run --until-steady 9", "raidlab sweep"),
    ("bench @ --dry-run --json -", "sweep @ --dry-run --json", "raidlab sweep"),
    ("bench --kernels --level raid5", "bench kernels --level raid5", "'raidlab bench kernels'"),
    ("bench --engine --level raid4", "bench engine --level raid4", "'raidlab bench engine'"),
    ("bench --kernel sse9", "bench --parity-impl sse9", "--parity-impl"),
    ("bench --kernel=sse9", "bench --parity-impl=sse9", "--parity-impl"),
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
        ran.code(0);
    }
    for array in ["raid1(raid0(2),raid0(2))", "raid10,f2,64K(4)", "raid6,left-symmetric,1M(5)"] {
        raidlab(&format!("bench --dry-run --members mem --array {array}")).code(0);
    }
}

/// Keys of a record's cell, as the documents of then had them.
#[test]
fn keys_of_the_record_stay() {
    let words = "--level raid5 --disks 3 --members mem --size 4M --workload seq-write --cores 1";
    let ran = raidlab(&format!("bench {QUICK} --json {words} --degraded 0")).code(0);
    let cell = ran.cell();
    let keys = [
        "target",
        "level",
        "layout",
        "disks",
        "members",
        "chunk_kib",
        "degraded",
        "workload",
        "block_kib",
        "depth",
        "jobs",
        "samples",
        "mb_per_s",
        "iops",
        "spread",
        "steady",
        "latency_us",
        "latency_curve",
        "cpu_process_s",
        "cpu_system_s",
        "cpu_s_per_gib",
        "cores",
        "cpu_threads",
        "checked_every",
        "generator_ns_per_op",
        "per_member",
        "bus_mb_per_s",
        "disks_per_channel",
        "members_per_spindle",
        "bound_mb_per_s",
        "bound_share",
        "bound_note",
        "ratio_to_single",
        "late_ops",
        "warnings",
        "verified",
        "findings",
    ];
    for key in keys {
        assert!(cell.get(key).is_some(), "{key}: {cell}");
    }
    assert_eq!(cell["target"], "engine");
}
