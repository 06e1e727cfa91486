//! A mount over a file: what is below it takes no writes, at any time.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use array::{Array, ArraySpec, DataPlaneConfig, DriverOptions, MemMember, MemberSpec};
use md::{Layout, Level};
use raidlab_export::Access;
use raidlab_export::fuse::{FileMount, FileMountError, FileMountProblem};

const MEMBER_SECTORS: u64 = 2 << 11;

fn access() -> Arc<Access> {
    let member = || MemberSpec::Ready(Box::new(MemMember::new(MEMBER_SECTORS).expect("memory")));
    let spec = ArraySpec {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk_sectors: 128,
        members: (0..3).map(|_| member()).collect(),
        data_plane: DataPlaneConfig { stripe_cache_bytes: 1 << 20, ..DataPlaneConfig::default() },
    };
    let array = Array::start(spec, &DriverOptions { leases: 32, ..DriverOptions::default() });
    Arc::new(Access::new(Arc::new(array.expect("it starts"))).expect("a thread"))
}

/// Mounts over a file, or says on stdout why that is not possible here.
fn mounted(path: &Path) -> Option<FileMount> {
    match FileMount::start(access(), path, 2) {
        Ok(mount) => Some(mount),
        Err(error) if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Opens and writes until it is stopped, as a program does that tries again. Returns how many
/// writes went to another file system than the array's.
fn writes_below(path: PathBuf, stop: &AtomicBool) -> (u64, u64) {
    let below = path.parent().expect("a directory").metadata().expect("it is there").dev();
    let (mut all, mut wrong) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
        if file.write_all_at(&[7; 512], 0).is_ok() {
            all += 1;
            wrong += u64::from(file.metadata().is_ok_and(|it| it.dev() == below));
        }
    }
    (all, wrong)
}

#[test]
fn a_program_that_opens_it_again_and_again_never_writes_below_the_mount() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("array");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| writes_below(path.clone(), &stop));
        for _ in 0..20 {
            let Some(mut mount) = mounted(&path) else { break };
            std::thread::sleep(std::time::Duration::from_millis(20));
            loop {
                match mount.stop() {
                    Ok(()) => break,
                    Err(FileMountError { problem: FileMountProblem::Busy, .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(!path.exists(), "what was made for the mount goes with it");
        }
        stop.store(true, Ordering::Relaxed);
        let (all, wrong) = writer.join().expect("it ends");
        assert_eq!(wrong, 0, "of {all}");
    });
}

#[test]
fn a_place_that_a_killed_server_has_left_is_used_again_and_other_files_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("array");
    let socket = rustix::fs::FileType::Socket;
    for mode in [0o600, 0] {
        let mode = rustix::fs::Mode::from_raw_mode(mode);
        rustix::fs::mknodat(rustix::fs::CWD, &path, socket, mode, 0).expect("it is made");
        match mode.is_empty() {
            true => {
                let Some(mut mount) = mounted(&path) else { return };
                mount.stop().expect("nothing uses it");
                assert!(!path.exists());
            }
            false => {
                let refused = FileMount::start(access(), &path, 2).map(drop);
                let problem = refused.expect_err("a program's socket").problem;
                assert!(matches!(problem, FileMountProblem::NotAFile), "{problem}");
                std::fs::remove_file(&path).expect("it is there");
            }
        }
    }
    std::fs::write(&path, b"x").expect("it is written");
    let problem = FileMount::start(access(), &path, 2).map(drop).expect_err("it is a file").problem;
    assert!(matches!(problem, FileMountProblem::NotEmpty), "{problem}");
    assert_eq!(std::fs::read(&path).expect("it is there"), b"x");
}
