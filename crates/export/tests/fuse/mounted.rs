//! The FUSE front, as programs meet it: a file that is an array.
//!
//! Mounting needs root (or fusermount3) and /dev/fuse; where they are missing, the tests say so.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use array::{
    Array, ArraySpec, DataPlaneConfig, DriverOptions, Fault, FaultControl, FaultMember, MemMember,
    Member, MemberSpec,
};
use md::{Layout, Level, MemberIdx};
use raidlab_export::fuse::{Front, FrontError, FrontOptions, MakeError};
use rustix::fs::FallocateFlags;

const MEMBER_SECTORS: u64 = 16 << 11;

fn array(level: Level, members: usize, faults: Vec<Fault>) -> Result<Array, MakeError> {
    let control = FaultControl::default();
    let member = |_| {
        let memory = MemMember::new(MEMBER_SECTORS)?;
        let member: Box<dyn Member> = match faults.is_empty() {
            true => Box::new(memory),
            false => Box::new(FaultMember::switched(Box::new(memory), faults.clone(), &control)),
        };
        Ok(MemberSpec::Ready(member))
    };
    let spec = ArraySpec {
        level,
        layout: Layout::default_for(level),
        chunk_sectors: 128,
        members: (0..members).map(member).collect::<Result<_, MakeError>>()?,
        data_plane: DataPlaneConfig { stripe_cache_bytes: 8 << 20, ..DataPlaneConfig::default() },
    };
    Ok(Array::start(spec, &DriverOptions { leases: 32, ..DriverOptions::default() })?)
}

/// A mounted array, or `None` and the reason on stdout.
fn mounted(
    directory: &Path,
    make: impl FnOnce() -> Result<Array, MakeError> + Send + 'static,
) -> Option<Front> {
    match Front::start(FrontOptions::new(directory), make) {
        Ok(front) => Some(front),
        Err(error) if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn open(front: &Front) -> File {
    OpenOptions::new().read(true).write(true).open(front.file()).expect("the file opens")
}

fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let byte = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 56) as u8
    };
    (0..len).map(byte).collect()
}

#[test]
fn the_file_is_the_array_at_any_offset_and_length() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = mounted(directory.path(), || array(Level::Raid5, 4, vec![]));
    let Some(mut front) = made else { return };
    let file = open(&front);
    let size = file.metadata().expect("a size").len();
    assert_eq!(size, front.ask(Array::len_bytes).expect("the array answers"));
    let mut expected = vec![0; 4 << 20];
    file.read_exact_at(&mut expected, 0).expect("read");
    // Whole blocks, parts of blocks, across blocks, longer than one request.
    for (round, (at, len)) in
        [(0, 512), (513, 1), (1000, 100), (4095, 2), (65_000, 70_001), (100_001, 2 << 20)]
            .into_iter()
            .enumerate()
    {
        let data = noise(len, round as u64);
        file.write_all_at(&data, at as u64).expect("written");
        expected[at..at + len].copy_from_slice(&data);
    }
    let mut back = vec![0; expected.len()];
    file.read_exact_at(&mut back, 0).expect("read");
    assert!(back == expected);
    // An odd piece of it, and what the array itself says.
    let mut odd = vec![0; 99_999];
    file.read_exact_at(&mut odd, 777).expect("read");
    assert!(odd == expected[777..777 + odd.len()]);
    let own = front.ask(|array| {
        let mut bytes = vec![0; 4 << 20];
        array.read_at(&mut bytes, 0).map(|()| bytes)
    });
    assert!(own.expect("the array answers").expect("read") == expected);

    // The end of the file is the array's.
    assert_eq!(file.write_at(&[1; 4096], size - 512).expect("short"), 512);
    assert_eq!(errno(file.write_at(&[1], size)), rustix::io::Errno::NOSPC);
    assert_eq!(file.read_at(&mut [0; 4096], size - 100).expect("short"), 100);
    assert_eq!(file.read_at(&mut [0; 4096], size).expect("nothing"), 0);
    assert_eq!(errno(file.set_len(size / 2)), rustix::io::Errno::PERM);
    assert_eq!(errno(file.set_len(size + 1)), rustix::io::Errno::PERM);
    drop(file);
    front.stop().expect("stopped");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> rustix::io::Errno {
    let error = result.expect_err("an error");
    rustix::io::Errno::from_io_error(&error).expect("the system's")
}

#[test]
fn fsync_flushes_the_members_and_holes_read_as_zeroes() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(front) = mounted(directory.path(), || array(Level::Raid6, 5, vec![])) else { return };
    let file = open(&front);
    let flushes = |front: &Front| {
        let counters = front.ask(Array::leaf_counters).expect("the array answers");
        counters.iter().map(|leaf| leaf.flushes).sum::<u64>()
    };
    let mut expected = noise(3 << 20, 5);
    file.write_all_at(&expected, 0).expect("written");
    let before = flushes(&front);
    file.sync_all().expect("flushed");
    assert!(flushes(&front) >= before + 3, "members that were written to are flushed");
    let (hole, zeroes) = (100_000..1_700_001, 2_000_000..2_000_300);
    let keep = FallocateFlags::KEEP_SIZE;
    for (flags, range) in [
        (FallocateFlags::PUNCH_HOLE | keep, hole),
        (FallocateFlags::ZERO_RANGE | keep, zeroes.clone()),
        (FallocateFlags::ZERO_RANGE, zeroes),
    ] {
        let len = (range.end - range.start) as u64;
        rustix::fs::fallocate(&file, flags, range.start as u64, len).expect("zeroed");
        expected[range].fill(0);
    }
    let mut back = vec![0; expected.len()];
    file.read_exact_at(&mut back, 0).expect("read");
    assert!(back == expected);
    let size = file.metadata().expect("a size").len();
    let beyond = rustix::fs::fallocate(&file, FallocateFlags::empty(), size, 1);
    assert_eq!(beyond, Err(rustix::io::Errno::NOSPC));
    // Durable writes are: each is followed by the members' own promise, not by a later flush.
    let synchronous = OpenOptions::new().write(true).custom_flags(SYNC).open(front.file());
    synchronous.expect("opens").write_all_at(&[3; 4096], 0).expect("written");
}

#[test]
fn requests_do_not_wait_for_each_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let slow = vec![Fault::Delay { nanos: 100_000_000 }];
    let Some(front) = mounted(directory.path(), || array(Level::Raid0, 4, slow)) else { return };
    let file = open(&front);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for reader in 0..24 {
            let file = &file;
            scope.spawn(move || {
                file.read_exact_at(&mut [0; 4096], reader * 65_536).expect("read");
            });
        }
    });
    let took = start.elapsed();
    // One after the other they would take 2.4 s.
    assert!(took >= Duration::from_millis(100) && took < Duration::from_millis(1500), "{took:?}");
    drop(file);
}

#[test]
fn unservable_ranges_are_io_errors() {
    let directory = tempfile::tempdir().expect("a directory");
    let bad = vec![Fault::ReadError { range: 0..1 << 20 }];
    let Some(front) = mounted(directory.path(), || array(Level::Raid0, 2, bad)) else { return };
    let file = open(&front);
    assert_eq!(errno(file.read_at(&mut [0; 4096], 0)), rustix::io::Errno::IO);
    file.read_exact_at(&mut [0; 4096], 8 << 20).expect("the rest is served");
    // One member of RAID 5 is spared.
    let other = tempfile::tempdir().expect("a directory");
    let front = mounted(other.path(), || array(Level::Raid5, 3, vec![])).expect("root");
    let file = open(&front);
    let data = noise(1 << 20, 9);
    file.write_all_at(&data, 0).expect("written");
    front.ask(|array| array.fail_member(MemberIdx(1))).expect("the array answers");
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 0).expect("read");
    assert!(back == data);
}

#[test]
fn a_mount_in_use_is_not_unmounted_unless_the_front_is_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = mounted(directory.path(), || array(Level::Raid1, 2, vec![]));
    let Some(mut front) = made else { return };
    let mut file = open(&front);
    if !rustix::process::geteuid().is_root() {
        println!("skipped: fusermount3 takes a mount away even if it is in use");
        return;
    }
    let error = front.stop().expect_err("the file is open");
    assert!(matches!(error, FrontError::Busy(_)), "{error}");
    file.read_exact(&mut [0; 4096]).expect("still served");
    file.seek(SeekFrom::Start(0)).expect("still there");
    drop(front);
    assert!(file.read(&mut [0; 4096]).is_err(), "it is not served any more");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn a_failed_mount_says_why() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    File::create(&file).expect("a file");
    let start = |path: &Path| {
        let front = Front::start(FrontOptions::new(path), || Err("no such array".into()));
        front.err().expect("refused").to_string()
    };
    assert!(start(&file).ends_with("file: is not a directory"));
    assert!(start(Path::new("/proc")).contains("something is mounted there already"));
    assert!(start(&directory.path().join("none")).contains("none: No such file"));
    assert_eq!(start(directory.path()), "no such array");
}

/// O_SYNC, as open(2) takes it.
const SYNC: i32 = rustix::fs::OFlags::SYNC.bits() as i32;

const SERVE_AT: &str = "RAIDLAB_TEST_SERVE_AT";

/// Not a test of its own: the process that `a_killed_server_leaves_no_process_waiting` kills.
#[test]
fn server_that_is_killed() {
    let Some(directory) = std::env::var_os(SERVE_AT) else { return };
    let forever = vec![Fault::Delay { nanos: 3_600_000_000_000 }];
    let front = Front::start(FrontOptions::new(directory), || array(Level::Raid0, 2, forever));
    let front = front.expect("mounted");
    let file = open(&front);
    println!("serving");
    // A thread of the server waits for its own mount.
    let _ = file.read_exact_at(&mut [0; 4096], 0);
}

#[test]
fn a_killed_server_leaves_no_process_waiting() {
    let directory = tempfile::tempdir().expect("a directory");
    match mounted(directory.path(), || array(Level::Raid0, 2, vec![])) {
        Some(front) => drop(front),
        None => return,
    }
    let mut server = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "mounted::server_that_is_killed", "--nocapture"])
        .env(SERVE_AT, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut said = String::new();
    let mut out = server.stdout.take().expect("piped");
    while !said.contains("serving\n") {
        let mut byte = [0];
        out.read_exact(&mut byte).expect("it serves");
        said.push(byte[0] as char);
    }
    let path = directory.path().join("array");
    let reader = std::thread::spawn(move || {
        let file = File::open(path).expect("opens");
        file.read_exact_at(&mut [0; 4096], 0)
    });
    std::thread::sleep(Duration::from_millis(300));
    server.kill().expect("killed");
    let patience = Instant::now() + Duration::from_secs(20);
    let mut gone = false;
    while Instant::now() < patience && !(gone && reader.is_finished()) {
        gone |= server.try_wait().expect("a child").is_some();
        std::thread::sleep(Duration::from_millis(20));
    }
    let (ended, answered) = (gone, reader.is_finished());
    // Also where the test fails: nothing may be left that waits.
    let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
    let unmounted = rustix::mount::unmount(directory.path(), flags);
    server.wait().expect("a child");
    assert!(ended, "the server has gone, though a thread of its own waited for its mount");
    assert!(answered, "who waited has an answer");
    assert!(reader.join().expect("it ran").is_err(), "and it is an error");
    unmounted.expect("nothing is left but a dead mount");
}
