//! Real mounts: root, FUSE, loop devices and mkfs are needed; where they are missing the tests say
//! so.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use raidlab_bench::provision::{
    EngineArray, MountOrDevice, ProvisionError, ProvisionedTarget, Request, Step, StepError,
    StepProblem,
};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use spec::case::{ArrayConfig, Knobs, RunConfig};
use spec::members::MemberSet;
use spec::target::TargetExpr;
use testkit::Loop;

fn engine(array: &str, member_bytes: u64) -> EngineArray {
    let expr: md::nested::ArrayExpr = array.parse().expect("an expression");
    let set: MemberSet = "mem".parse().expect("a set");
    let config = ArrayConfig {
        chunk_bytes: 65_536,
        knobs: Knobs { stripe_cache_bytes: Some(16 << 20), ..Knobs::default() },
        ..ArrayConfig::new(expr, &set, member_bytes).expect("an array")
    };
    EngineArray { config, run: RunConfig { directory: std::env::temp_dir(), ..RunConfig::quick() } }
}

/// What is missing here, on stdout.
fn cannot(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| {
        let paths = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
        !paths.iter().any(|path| Path::new(path).join(tool).exists())
    });
    let why = match missing {
        _ if !rustix::process::geteuid().is_root() => "not root".to_string(),
        _ if !Path::new("/dev/fuse").exists() => "no /dev/fuse".into(),
        _ if !Path::new("/dev/loop-control").exists() => "no loop devices".into(),
        Some(tool) => format!("{tool} is not installed"),
        None => return false,
    };
    println!("skipped: {why}");
    true
}

fn set_up(place: &str, engine: EngineArray) -> ProvisionedTarget {
    let place: TargetExpr = place.parse().expect("a place");
    ProvisionedTarget::set_up(request(&place, Some(engine))).expect("set up")
}

fn request(place: &TargetExpr, engine: Option<EngineArray>) -> Request<'_> {
    Request { place, engine, kernel: None, destroy: false, stop: &|| false }
}

fn directory(place: &ProvisionedTarget) -> PathBuf {
    match place.storage() {
        MountOrDevice::Directory(path) => path.clone(),
        MountOrDevice::Device(path) => panic!("{} is no directory", path.display()),
    }
}

fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Files of many lengths; number `from` and on.
fn write_files(directory: &Path, from: u64) {
    for number in from..from + 40 {
        let len = [1, 100, 4095, 70_000, 1_000_001][number as usize % 5];
        let path = directory.join(format!("file-{number}"));
        std::fs::write(path, noise(len, number)).expect("written");
    }
}

fn check_files(directory: &Path, from: u64) {
    for number in from..from + 40 {
        let len = [1, 100, 4095, 70_000, 1_000_001][number as usize % 5];
        let found = std::fs::read(directory.join(format!("file-{number}"))).expect("read");
        assert!(found == noise(len, number), "file {number}");
    }
}

fn run(program: &str, args: &[&str]) -> String {
    // runs: callers of run
    Step::run(program, args.iter().copied()).perform().expect("runs")
}

/// Loop devices: which, of which file system, and its file. The file's path is cut short when its
/// mount has gone: a loop device that is left behind is known by the others.
fn loops() -> Vec<(String, String, String)> {
    let columns = "NAME,BACK-MAJ:MIN,BACK-FILE";
    let mut list = Command::new("losetup");
    list.args(["--list", "--noheadings", "--output", columns]);
    let listed = String::from_utf8(list.output().expect("losetup").stdout).expect("text");
    let row = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_string);
        Some((words.next()?, words.next()?, words.next()?))
    };
    listed.lines().filter_map(row).collect()
}

#[test]
fn ext4_on_raid5_survives_a_failed_member_and_a_remount() {
    if cannot(&["losetup", "mkfs.ext4", "fsck.ext4", "mount"]) {
        return;
    }
    export::fuse::private_mounts().expect("root may");
    let place = set_up("engine", engine("raid5(4)", 48 << 20));
    let MountOrDevice::Device(device) = place.storage().clone() else { panic!("a device") };
    let device = device.display().to_string();
    let mount = tempfile::tempdir().expect("a directory");
    let there = mount.path().display().to_string();
    run("mkfs.ext4", &["-q", "-F", "-E", "stride=16,stripe_width=48", &device]);
    run("mount", &[&device, &there]);
    write_files(mount.path(), 0);
    run("sync", &["-f", &there]);
    place.arrays()[0].degrade(1).expect("one can be spared");
    write_files(mount.path(), 40);
    run("umount", &[&there]);
    run("fsck.ext4", &["-fn", &device]);
    run("mount", &[&device, &there]);
    check_files(mount.path(), 0);
    check_files(mount.path(), 40);
    run("umount", &[&there]);
    let written: Vec<u64> =
        place.arrays()[0].leaf_counters().iter().map(|leaf| leaf.written_bytes).collect();
    assert!(written.iter().all(|bytes| *bytes > 1 << 20), "all members were written: {written:?}");
    place.take_down().expect("nothing is left");
}

#[test]
fn ext4_learns_the_stripes_and_the_record_how_it_is_mounted() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    let place = set_up("fs:ext4,noatime,data=journal,read-ahead=1M", engine("raid6(5)", 32 << 20));
    let here = directory(&place);
    write_files(&here, 0);
    check_files(&here, 0);
    let facts = place.facts().clone();
    assert_eq!(facts.name, "fs:ext4,noatime,data=journal,read-ahead=1M");
    assert_eq!(facts.file_system.as_deref(), Some("ext4"));
    let options = facts.mount_options.expect("options");
    let has = |option: &str| options.split(',').any(|other| other == option);
    assert!(has("noatime") && has("data=journal") && has("stripe=48"), "{options}");
    assert_eq!((facts.block_bytes, facts.read_ahead_kib), (Some(4096), Some(1024)));
    assert!(facts.mkfs_options.expect("options").contains("stride=16,stripe_width=48"));
    place.take_down().expect("nothing is left");
    assert!(!here.exists(), "{} is still there", here.display());
}

#[test]
fn a_journal_lies_on_an_array_of_its_own() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    let text = "fs:ext3,data=journal,block=1K,journal=raid1(2)";
    let place = set_up(text, engine("raid5(4)", 32 << 20));
    let here = directory(&place);
    let before: Vec<_> = place.arrays().iter().map(|array| array.leaf_counters()).collect();
    write_files(&here, 0);
    run("sync", &["-f", &here.display().to_string()]);
    check_files(&here, 0);
    assert_eq!(place.arrays().len(), 2);
    assert_eq!(place.facts().journal.as_deref(), Some("raid1(2)"));
    assert_eq!(place.facts().block_bytes, Some(1024));
    // All data go through the journal: to both of its members.
    for (leaf, before) in place.arrays()[1].leaf_counters().iter().zip(&before[1]) {
        let written = leaf.since(before).written_bytes;
        assert!(written > 8 << 20, "{written} bytes of journal");
    }
    place.take_down().expect("nothing is left");
}

#[test]
fn xfs_learns_the_stripes() {
    if cannot(&["losetup", "mkfs.xfs", "mount"]) {
        return;
    }
    // mkfs.xfs wants a log of 64 MiB at least, and chooses one by the size of the whole.
    let place = set_up("fs:xfs", engine("raid10(4)", 1 << 30));
    let here = directory(&place);
    write_files(&here, 0);
    check_files(&here, 0);
    let options = place.facts().mount_options.clone().expect("options");
    assert!(options.contains("sunit=128,swidth=256"), "{options}");
    place.take_down().expect("nothing is left");
}

#[test]
fn what_fails_half_way_leaves_nothing_behind() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    let place: TargetExpr = "fs:ext4,no-such-option".parse().expect("a place");
    let spec = engine("raid0(2)", 32 << 20);
    let error =
        ProvisionedTarget::set_up(request(&place, Some(spec))).err().expect("mount refuses");
    let text = error.to_string();
    assert!(text.starts_with("mount -t ext4 -o no-such-option /dev/loop"), "{text}");
    let ProvisionError::Step(StepError { problem, .. }) = &error else { panic!("{error:?}") };
    assert!(matches!(problem, StepProblem::Failed { .. }), "{problem:?}");
    let name = format!("raidlab-mount-{}", std::process::id());
    let mounts = std::fs::read_to_string("/proc/thread-self/mounts").expect("proc");
    assert!(!mounts.contains(&name), "{mounts}");
}

/// A loop device over a new file.
fn device_over(file: &Path, bytes: u64) -> Loop {
    let made = std::fs::File::create(file).expect("a file");
    made.set_len(bytes).expect("it grows");
    Loop::over(file).expect("losetup was there")
}

/// Each program and each target sets its place up anew: what the one before made must be gone.
#[test]
fn file_systems_on_one_device_follow_each_other() {
    if cannot(&["losetup", "mke2fs", "mkfs.xfs", "mkfs.btrfs", "mount"]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let device = device_over(&scratch.path().join("image"), 400 << 20);
    for kind in ["ext3", "ext4", "xfs", "btrfs", "ext2"] {
        let text = format!("fs:{kind},on=device:{}", device.0);
        let place: TargetExpr = text.parse().expect("a place");
        match ProvisionedTarget::set_up(request(&place, None)) {
            Ok(place) => {
                std::fs::write(directory(&place).join("file"), "x").expect("written");
                place.take_down().expect("nothing is left");
            }
            // Not every kernel has every file system, and then nothing may be left either.
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("unknown filesystem type"), "{text}: {error}");
                println!("{kind} skipped: {error}");
            }
        }
        // A child that another test has just started has a copy of our descriptors until it becomes
        // what it is to be, and mounts of its own one of our mounts.
        let free =
            || raidlab_bench::provision::open_to_write_over(Path::new(&device.0), false).map(drop);
        let (mut held, begun) = (free(), Instant::now());
        while held.as_ref().is_err_and(|error| error.to_string().contains("in use"))
            && begun.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(50));
            held = free();
        }
        held.expect(kind);
    }
}

#[test]
fn what_a_device_holds_is_written_over_only_where_that_is_said() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let device = device_over(&scratch.path().join("image"), 64 << 20);
    run("mke2fs", &["-F", "-q", "-L", "theirs", &device.0]);
    let place: TargetExpr = format!("fs:ext4,on=device:{}", device.0).parse().expect("a place");
    let refused = ProvisionedTarget::set_up(request(&place, None)).err().expect("refused");
    let text = refused.to_string();
    assert!(text.contains("theirs") && text.contains("--destroy-contents"), "{text}");
    assert!(matches!(refused, ProvisionError::WouldDestroy { .. }), "{refused:?}");
    let label = || Step::run("blkid", ["-p", "-o", "value", "-s", "LABEL", &device.0]).perform();
    assert_eq!(label().expect("it has one"), "theirs", "it was left alone");
    let destroy = Request { destroy: true, ..request(&place, None) };
    let place = ProvisionedTarget::set_up(destroy).expect("set up");
    place.take_down().expect("nothing is left");
    assert!(!label().is_ok_and(|label| label == "theirs"));
}

/// With shared mount propagation, as systemd sets it: a file system that another process unmounts
/// while a place exists is unmounted in its namespace, too, and its own mounts are invisible
/// outside.
#[test]
fn what_others_unmount_is_not_held_and_what_is_mounted_here_not_seen() {
    if cannot(&["mount"]) {
        return;
    }
    let (theirs, ours) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("two"));
    let (theirs, ours) = (theirs.path().to_path_buf(), ours.path().to_path_buf());
    let mounted = |directory: &Path| {
        run("mount", &["-t", "tmpfs", "raidlab-test", &directory.display().to_string()]);
    };
    let is_there = |directory: &Path| {
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").expect("mounts");
        mounts.contains(&format!(" {} ", directory.display()))
    };
    // Channels: where one of the two panics, the other does not wait for it.
    let (say_mounted, is_mounted) = mpsc::channel();
    let (say_unmounted, is_unmounted) = mpsc::channel();
    std::thread::scope(|scope| {
        let (theirs, ours, mounted, is_there) = (&theirs, &ours, &mounted, &is_there);
        let machine = scope.spawn(move || {
            export::fuse::private_mounts().expect("root may");
            let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
            rustix::mount::mount_change("/", shared).expect("shared");
            mounted(theirs);
            // Its mounts begin as those of the thread that has started it.
            let place = scope.spawn(move || {
                export::fuse::private_mounts().expect("root may");
                mounted(ours);
                let before = is_there(theirs);
                say_mounted.send(()).expect("received");
                is_unmounted.recv().expect("said");
                (before, is_there(theirs), is_there(ours))
            });
            is_mounted.recv().expect("said");
            let seen = is_there(ours);
            rustix::mount::unmount(theirs, UnmountFlags::empty()).expect("not held");
            say_unmounted.send(()).expect("received");
            (seen, place.join().expect("no panic"))
        });
        let (seen, (before, after, own)) = machine.join().expect("no panic");
        assert!(before && own && !after && !seen, "{before} {own} {after} {seen}");
    });
}

/// What was there at the end would be found again: sgdisk restores a table from its backup.
#[test]
fn what_a_device_was_known_by_at_its_end_goes_too() {
    if cannot(&["losetup"]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let (image, sectors) = (scratch.path().join("image"), (16 << 20) / 512_usize);
    let device = device_over(&image, 512 * sectors as u64);
    let table = |sectors: &[usize]| {
        let mut bytes = vec![0x5a; 512 * 32768];
        bytes[..2 << 20].fill(0);
        sectors.iter().for_each(|sector| bytes[512 * sector..][..8].copy_from_slice(b"EFI PART"));
        std::fs::write(&device.0, &bytes).expect("written");
        run("blockdev", &["--flushbufs", &device.0]);
        bytes
    };
    let open = |destroy| {
        raidlab_bench::provision::open_to_write_over(Path::new(&device.0), destroy).map(drop)
    };
    let make_way = || {
        raidlab_bench::provision::open_to_write_over(Path::new(&device.0), true)?.wipe_signatures()
    };
    let held = table(&[1, sectors - 1]);
    let refused = open(false).expect_err("refused");
    assert!(refused.to_string().contains("backup of a GPT"), "{refused}");
    assert!(std::fs::read(&device.0).expect("read") == held, "it was left alone");
    open(true).expect("it may be written over");
    assert!(std::fs::read(&device.0).expect("read") == held, "looking erases nothing");
    make_way().expect("erased");
    run("blockdev", &["--flushbufs", &device.0]);
    let mut wanted = held;
    wanted[..1 << 20].fill(0);
    wanted[15 << 20..].fill(0);
    assert!(std::fs::read(&device.0).expect("read") == wanted, "both ends, and nothing else");
    open(false).expect("it holds nothing any more");
    // Where nothing is known, nothing is erased.
    let held = table(&[]);
    make_way().expect("it may be written over");
    run("blockdev", &["--flushbufs", &device.0]);
    assert!(std::fs::read(&device.0).expect("read") == held, "nothing to erase");
}

/// What is erased at the end is the device that was written to, not what its name means by then.
#[test]
fn another_device_of_the_same_name_is_left_as_it_is() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    let scratch = tempfile::tempdir().expect("a directory");
    let images = ["first", "second"].map(|name| scratch.path().join(name));
    let [first, second] = images.each_ref().map(|image| device_over(image, 16 << 20));
    let bytes = vec![0x5a; 16 << 20];
    std::fs::write(&images[1], &bytes).expect("written");
    let name = scratch.path().join("disk");
    let points_to = |device: &Loop| {
        let _ = std::fs::remove_file(&name);
        std::os::unix::fs::symlink(&device.0, &name).expect("a link");
    };
    points_to(&first);
    let text = format!("fs:ext4,on=device:{}", name.display());
    let place: TargetExpr = text.parse().expect("a place");
    let place = ProvisionedTarget::set_up(request(&place, None)).expect("set up");
    points_to(&second);
    let left = place.take_down().expect_err("the device has another name").to_string();
    assert!(left.contains("not the device that was measured"), "{left}");
    run("blockdev", &["--flushbufs", &second.0]);
    assert!(std::fs::read(&images[1]).expect("read") == bytes, "it was erased");
}

#[test]
fn writing_back_under_memory_pressure_does_not_wait_for_itself() {
    if cannot(&["losetup", "mke2fs", "mount", "dd"]) {
        return;
    }
    let place = set_up("fs:ext4", engine("raid5(4)", 160 << 20));
    let here = directory(&place);
    // A cgroup of 48 MiB, where the first kind of them is mounted; else the dirty data alone.
    let group = PathBuf::from(format!("/sys/fs/cgroup/memory/raidlab-test-{}", std::process::id()));
    let limited = std::fs::create_dir(&group).is_ok()
        && std::fs::write(group.join("memory.limit_in_bytes"), (48 << 20).to_string()).is_ok();
    if !limited {
        println!("cgroup skipped: no memory controller of the first version here");
    }
    let join = if limited { format!("echo $$ >{}/tasks && ", group.display()) } else { "".into() };
    let file = here.join("big");
    let write = format!("{join}exec dd if=/dev/zero of={} bs=1M count=400", file.display());
    let mut writer = Command::new("sh").args(["-c", &write]).stderr(Stdio::null()).spawn();
    let writer = writer.as_mut().expect("started");
    let patience = Instant::now() + Duration::from_secs(240);
    let ended = loop {
        match writer.try_wait().expect("a child") {
            Some(status) => break Some(status),
            None if Instant::now() > patience => break None,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    if ended.is_none() {
        // It may not exit: a process that waits for its own mount is not killable.
        let _ = writer.kill();
    }
    assert!(ended.expect("it does not hang").success());
    run("sync", &["-f", &here.display().to_string()]);
    assert_eq!(std::fs::metadata(&file).expect("there").len(), 400 << 20);
    place.take_down().expect("nothing is left");
    if limited {
        std::fs::remove_dir(&group).expect("it is empty");
    }
}

const WORK: &str = "RAIDLAB_TEST_WORK_UNTIL_KILLED";

/// Not a test of its own: the process that the next ones kill.
#[test]
fn worker_that_is_killed() {
    if std::env::var_os(WORK).is_none() {
        return;
    }
    let place = set_up("fs:ext4", engine("raid5(3)", 64 << 20));
    let here = directory(&place);
    println!("working");
    for round in 0.. {
        let data = noise(8 << 20, round);
        let file = here.join(format!("{}", round % 8));
        std::fs::write(&file, data).expect("written");
        std::fs::File::open(&file).expect("there").sync_all().expect("synced");
    }
}

/// Kills the worker when `when` says so, and looks for what is left.
fn kill_worker(when: impl FnOnce(&mut Child, &str)) {
    let mut worker = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "mounted::worker_that_is_killed", "--nocapture"])
        .env(WORK, "1")
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("started");
    let id = worker.id();
    let of_worker = format!("/raidlab-front-{id}-");
    let patience = Instant::now() + Duration::from_secs(60);
    let ours = loop {
        let ours: Vec<_> =
            loops().into_iter().filter(|(_, _, file)| file.contains(&of_worker)).collect();
        if !ours.is_empty() {
            break ours;
        }
        assert!(Instant::now() < patience, "it has a loop device: {:?}", loops());
        std::thread::sleep(Duration::from_millis(2));
    };
    when(&mut worker, &ours[0].0);
    worker.kill().expect("killed");
    let left = || {
        let same = |one: &(String, String, String), other: &(String, String, String)| {
            (&one.0, &one.1) == (&other.0, &other.1)
        };
        loops().iter().any(|device| ours.iter().any(|other| same(device, other)))
    };
    let patience = Instant::now() + Duration::from_secs(30);
    let mut gone = false;
    while (!gone || left()) && Instant::now() < patience {
        gone |= worker.try_wait().expect("a child").is_some();
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(gone, "the process has gone");
    worker.wait().expect("a child");
    assert!(!left(), "loop devices are left: {:?}", loops());
    for name in ["front", "mount"] {
        // Nothing but the empty directories is left.
        let path = std::env::temp_dir().join(format!("raidlab-{name}-{id}-0"));
        let other = std::env::temp_dir().join(format!("raidlab-{name}-{id}-1"));
        let _ = std::fs::remove_dir(&path).or_else(|_| std::fs::remove_dir(&other));
    }
}

#[test]
fn a_killed_process_leaves_no_mount_and_no_loop_device() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    kill_worker(|worker, _| {
        let out = BufReader::new(worker.stdout.take().expect("piped"));
        assert!(out.lines().map_while(Result::ok).any(|line| line.contains("working")), "it works");
        std::thread::sleep(Duration::from_millis(500));
    });
}

/// While mkfs runs nothing is mounted that would hold the device.
#[test]
fn a_process_killed_before_its_mount_leaves_no_loop_device() {
    if cannot(&["losetup", "mke2fs", "mount"]) {
        return;
    }
    kill_worker(|worker, device| {
        let armed = device.replacen("/dev", "/sys/block", 1) + "/loop/autoclear";
        let patience = Instant::now() + Duration::from_secs(60);
        while std::fs::read_to_string(&armed).is_ok_and(|text| text.trim() != "1") {
            assert!(Instant::now() < patience, "it ends with its last user");
            std::thread::sleep(Duration::from_millis(1));
        }
        let tasks = std::fs::read_dir(format!("/proc/{}/task", worker.id())).expect("its threads");
        let mounts = tasks.flatten().map(|task| task.path().join("mountinfo"));
        let mounted = format!("/raidlab-mount-{}-", worker.id());
        let mounted = |mounts| {
            let mounts: Result<String, _> = std::fs::read_to_string::<std::path::PathBuf>(mounts);
            mounts.is_ok_and(|mounts| mounts.contains(&mounted))
        };
        assert!(!mounts.into_iter().any(mounted), "before there is a mount");
    });
}
