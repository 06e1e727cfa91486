//! Programs on file systems that are made for them: real mounts, so root, FUSE and loop devices.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Dir, raidlab, run_programs};

/// What is missing here, on stdout.
pub fn cannot() -> bool {
    let has = |tool: &str| {
        let places = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        places.iter().any(|place| Path::new(place).join(tool).exists())
    };
    let why = match () {
        () if !rustix::process::geteuid().is_root() => "not root",
        () if !Path::new("/dev/fuse").exists() => "no /dev/fuse",
        () if !Path::new("/dev/loop-control").exists() => "no loop devices",
        () if !has("losetup") || !has("mke2fs") => "no losetup, or no mke2fs",
        () => return false,
    };
    println!("skipped: {why}");
    true
}

/// Whether a file system of this process is mounted, in the mount namespace that is its own.
fn has_mounted(process: u32) -> bool {
    let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo"));
    mounts.is_ok_and(|mounts| mounts.contains(&format!("/raidlab-mount-{process}-")))
}

const ARRAY: &str = "--level raid5 --disks 4 --chunk 64K --members mem --size 16M";

#[test]
fn a_file_system_on_an_array_is_created_measured_and_removed() {
    if cannot() {
        return;
    }
    let ran =
        run_programs(&format!("--target fs:ext4,noatime {ARRAY} --workload dd:bs=64K:fdatasync"));
    let cells = ran.code(0).cells();
    let phases: Vec<&str> = cells.iter().filter_map(|cell| cell["phase"].as_str()).collect();
    assert_eq!(phases, ["write", "read"]);
    for cell in &cells {
        assert_eq!(cell["verified"], Value::Bool(true), "{}", cell["phase"]);
        assert_eq!((cell["target"].as_str(), cell["level"].as_str()), (Some("fs"), Some("raid5")));
        assert_eq!(cell["place"]["name"], "fs:ext4,noatime");
        assert_eq!(cell["per_member"].as_array().map(Vec::len), Some(4));
        let options = cell["place"]["mount_options"].as_str().expect("mounted");
        assert!(options.contains("noatime") && options.contains("stripe=48"), "{options}");
        assert_eq!(cell["series"]["members"].as_array().map(Vec::len), Some(4));
    }
    let names = |cell: &Value| -> Vec<String> {
        let findings = cell["findings"].as_array().expect("a list").iter();
        findings.map(|finding| finding["name"].as_str().expect("a name").to_string()).collect()
    };
    // What was synced has reached the members; what is read again comes from memory.
    assert!(!names(&cells[0]).contains(&"page-cache".to_string()), "{:?}", names(&cells[0]));
    assert!(names(&cells[1]).contains(&"page-cache".to_string()), "{:?}", names(&cells[1]));
}

/// The slow ones only with `RAIDLAB_TEST=all`: each phase is repeated until it can be timed.
#[test]
fn every_program_finds_on_a_file_system_what_it_wrote() {
    if cannot() {
        return;
    }
    let dir = Dir::new();
    let job = dir.file("job.fio");
    std::fs::write(&job, "[mixed]\nrw=randrw\nbs=4k\nsize=1m\n").expect("a job file");
    let job = format!("fio:{job}");
    let mut programs = vec!["dd:bs=64K:fdatasync", "oltp:time=1", &job];
    if std::env::var("RAIDLAB_TEST").is_ok_and(|value| value == "all") {
        programs.extend(["bonnie:seeks=100", "bonnie++:n=1:seeks=100", "iozone:r=64K", "seeks"]);
        programs.extend(["streams:files=3:size=256K", "tiobench:random=20"]);
    }
    for program in programs {
        let ran = run_programs(&format!("--target fs:ext4 {ARRAY} --workload {program}"));
        let cells = ran.code(0).cells();
        assert!(!cells.is_empty(), "{program}");
        for cell in &cells {
            let ran = !crate::support::warnings(cell).contains("not applicable");
            assert_eq!(cell["verified"] == Value::Bool(true), ran, "{program}: {cell}");
        }
    }
}

#[test]
fn file_systems_are_an_axis_of_a_sweep() {
    let scratch = Dir::new();
    let (db, sweep) = (scratch.file("results.db"), scratch.file("sweep.toml"));
    let array = "level = 'raid5'\ndisks = [3, 4]\nchunk = '64K'\nmembers = 'file'\nsize = '8M'\n";
    let targets = "target = ['fs:ext4', 'fs:ext4,data=journal,journal=raid1(2)']\n";
    let text = format!("title = 'x'\n[[run]]\n{array}{targets}workload = 'dd:fdatasync'\n");
    std::fs::write(&sweep, text).expect("written");
    let dry = raidlab(&format!("sweep {sweep} --dry-run --db={db}")).code(0).stdout;
    for what in [
        "raid5(3) 64 KiB, file, fs:ext4: dd:fdatasync",
        "raid5(4) 64 KiB, file, fs:ext4,data=journal,journal=raid1(2): dd:fdatasync",
        "4 items, 0 of them done",
    ] {
        assert!(dry.contains(what), "{what}: {dry}");
    }
    if cannot() {
        return;
    }
    // The members' files are made by threads with descriptors of their own: the results stay whole.
    let cells = raidlab(&format!("sweep {sweep} --db={db} --json")).code(0).cells();
    assert_eq!(cells.len(), 2 * 4);
    let journals = |name: &str| cells.iter().filter(|c| c["place"]["journal"] == name).count();
    assert_eq!(journals("raid1(2)"), 4);
    assert!(cells.iter().all(|cell| cell["verified"] == Value::Bool(true)), "{cells:?}");
    let again = raidlab(&format!("sweep {sweep} --db={db} --json")).code(0);
    assert!(again.stderr.contains("all items were measured before"), "{}", again.stderr);
    let report = raidlab(&format!("report --db={db}")).code(0).stdout;
    assert!(report.contains("By place\ndd write"), "{report}");
    let heads = report.lines().filter(|line| line.starts_with("array  "));
    let journals = heads.filter(|line| line.contains("fs:ext4,data=journal,journal=raid1(2)"));
    assert!(journals.count() > 0, "{report}");
}

#[test]
fn what_cannot_be_set_up_is_said_in_one_line() {
    for (words, said) in [
        ("--target fs:ext9 --workload dd", "unknown file system"),
        ("--target fs:ext4,block=3K --workload dd", "a block is a power of two"),
        ("--target fs:xfs,journal=none --workload dd", "xfs cannot have its journal there"),
        ("--target fs:ext4,on=path:/tmp --workload dd", "needs a block device under it"),
        ("--target kernel --level raid1 --workload dd", "needs its devices"),
        ("--target md --level raid1 --members mem", "needs its devices"),
        ("--target md:/dev/null+/dev/zero --level raid1 --workload dd", "no block device"),
        ("--target md:/dev/null+/dev/zero --workload dd", "needs the level of the md array"),
        ("--target fs:xfs,on=md:/dev/null --workload dd", "needs the level of the md array"),
        // As many members as there are devices, unless it is said.
        ("--target md:/dev/null+/dev/zero --level raid6 --workload dd", "raid6(2)"),
        ("--target md:/dev/null --level raid6 --disks 3 --workload dd", "raid6(3)"),
    ] {
        let ran = raidlab(&format!("bench {words}")).code(2);
        assert!(ran.stderr.contains(said), "{words}: {}", ran.stderr);
    }
}

#[test]
fn a_full_file_system_is_an_error_and_all_is_removed() {
    if cannot() {
        return;
    }
    // The array is small, whatever the job wants.
    let scratch = Dir::new();
    let job = scratch.file("big.fio");
    std::fs::write(&job, "[j]\nrw=write\nbs=1m\nsize=3G\n").expect("written");
    let ran = run_programs(&format!("--target fs:ext4 {ARRAY} --workload fio:{job}")).code(2);
    assert!(ran.stderr.contains("fs:ext4: fio, lay-out: "), "{}", ran.stderr);
    assert!(ran.stderr.contains("No space left on device"), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("could not be undone").count(), 0, "{}", ran.stderr);
}

/// Starts a long run, and waits until its file system is mounted.
fn started() -> std::process::Child {
    let words = format!("bench --target fs:ext4 {ARRAY} --workload bonnie++:n=1:c=8");
    let child = Command::new(env!("CARGO_BIN_EXE_raidlab"))
        .args(words.split_whitespace())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("started");
    let patience = Instant::now() + Duration::from_secs(60);
    while !has_mounted(child.id()) {
        assert!(Instant::now() < patience, "its file system is mounted at last");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

/// The process ends, with all its threads: none waits for its own mount.
fn ends(child: &mut std::process::Child) -> Option<std::process::ExitStatus> {
    let patience = Instant::now() + Duration::from_secs(60);
    while Instant::now() < patience {
        if let Some(status) = child.try_wait().expect("a child") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

fn left_in_temporary(process: u32) -> Vec<String> {
    let entries = std::fs::read_dir(std::env::temp_dir()).expect("readable").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let ours = ["front", "mount"].map(|what| format!("raidlab-{what}-{process}-"));
    names.filter(|name| ours.iter().any(|start| name.starts_with(start))).collect()
}

#[test]
fn stopping_takes_everything_away_and_killing_leaves_empty_directories() {
    if cannot() {
        return;
    }
    let mut stopped = started();
    let id = rustix::process::Pid::from_child(&stopped);
    let sent = Instant::now();
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("sent");
    assert_eq!(ends(&mut stopped).and_then(|status| status.code()), Some(130));
    // Eight times three million bytes, one call each, would take longer than this.
    assert!(sent.elapsed() < Duration::from_secs(10), "{:?}", sent.elapsed());
    assert_eq!(left_in_temporary(stopped.id()), [""; 0]);
    let mut killed = started();
    killed.kill().expect("killed");
    assert!(ends(&mut killed).is_some(), "it ends");
    for name in left_in_temporary(killed.id()) {
        std::fs::remove_dir(std::env::temp_dir().join(&name)).expect("empty, nothing mounted");
    }
}
