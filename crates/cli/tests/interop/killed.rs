//! An array of ours whose process is killed while it writes or rebuilds.
//!
//! Invariant: when [`kill_while_writing`] returns, the process is gone and [`FLUSHED`] had been
//! flushed; what is in [`BUSY`] is one of [`VERSIONS`] versions, or what was there before, block by
//! block. When [`end_in_rebuild`] returns, the process has ended in the middle of the rebuild. The
//! process is this test program again, running only [`the_one_that_is_killed`],
//! [`the_one_that_rebuilds`], or [`the_one_that_lives`].

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use md::MemberIdx;

use crate::guest::pattern;
use crate::ours;
use crate::scratch::Scratch;

/// Bytes of the array that are written once and flushed.
pub const FLUSHED: Range<usize> = 1 << 20..(1 << 20) + 384 * 1024;

/// Bytes of the array that are written until the end.
pub const BUSY: Range<usize> = 3 << 20..(3 << 20) + 512 * 1024;

/// The unit of what is written in [`BUSY`].
pub const BLOCK: usize = 4096;

/// What a block of [`BUSY`] can become.
pub const VERSIONS: usize = 16;

/// What [`FLUSHED`] holds.
pub fn flushed() -> &'static [u8] {
    &pattern()[50 << 20..][..FLUSHED.len()]
}

/// A version of a block of [`BUSY`].
pub fn version(block: usize, version: usize) -> &'static [u8] {
    &pattern()[((60 + version) << 20) + block * BLOCK..][..BLOCK]
}

const IMAGES: &str = "RAIDLAB_TEST_IMAGES";
const SIGN: &str = "RAIDLAB_TEST_SIGN";
const LOSE: &str = "RAIDLAB_TEST_LOSE";

/// Runs the array of these images in a process that is killed while it writes; with `lose`, without
/// a member that it loses first.
pub fn kill_while_writing(scratch: &Scratch, images: &[PathBuf], lose: Option<usize>) {
    let sign = scratch.path().join("sign");
    // Not there, unless from the array before.
    let _ = std::fs::remove_file(&sign);
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "killed::the_one_that_is_killed", "--nocapture"])
        .env(IMAGES, std::env::join_paths(images).expect("paths without colons"))
        .env(SIGN, &sign)
        .env(LOSE, lose.map_or(String::new(), |slot| slot.to_string()))
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let start = Instant::now();
    while !sign.exists() {
        let ended = child.try_wait().expect("the process can be asked");
        assert!(ended.is_none(), "it has ended by itself: {ended:?}");
        assert!(start.elapsed() < Duration::from_secs(60), "the process writes nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it is killed");
    child.wait().expect("it is gone");
}

#[test]
fn the_one_that_is_killed() {
    let Some(images) = std::env::var_os(IMAGES) else { return };
    let images: Vec<PathBuf> = std::env::split_paths(&images).collect();
    let array = ours::start(&images);
    if let Ok(slot) = std::env::var(LOSE).expect("said").parse() {
        array.fail_member(MemberIdx(slot));
    }
    array.write_at(flushed(), FLUSHED.start as u64).expect("written");
    array.flush().expect("flushed");
    let blocks = BUSY.len() / BLOCK;
    for round in 0.. {
        // Neighbours are not written one after the other: each write is one of its own.
        let block = round * 37 % blocks;
        let bytes = version(block, round / blocks % VERSIONS);
        array.write_at(bytes, (BUSY.start + block * BLOCK) as u64).expect("written");
        if round == blocks {
            let sign = std::env::var_os(SIGN).expect("said");
            std::fs::write(sign, "").expect("a sign");
        }
    }
}

const REBUILT: &str = "RAIDLAB_TEST_REBUILT";
/// The exit status of a process that was in the middle of a rebuild.
const IN_REBUILD: i32 = 17;

/// Goes on with the rebuild of these images in a process that ends, without a stop of the array,
/// when two thirds of the new members are in sync.
pub fn end_in_rebuild(images: &[PathBuf]) {
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "killed::the_one_that_rebuilds", "--nocapture"])
        .env(REBUILT, std::env::join_paths(images).expect("paths without colons"))
        .stdout(Stdio::null())
        .status()
        .expect("a process");
    assert_eq!(status.code(), Some(IN_REBUILD), "it has ended elsewhere");
}

#[test]
fn the_one_that_rebuilds() {
    let Some(images) = std::env::var_os(REBUILT) else { return };
    let images: Vec<PathBuf> = std::env::split_paths(&images).collect();
    // As killed: no destructor runs.
    ours::rebuild_until((2, 3), &images, &[], || std::process::exit(IN_REBUILD));
}

const MEMBERS: &str = "RAIDLAB_TEST_MEMBERS";
const NEW: &str = "RAIDLAB_TEST_NEW";

/// Runs the array of these images in a process that loses member 1, puts a new device into its slot
/// while the array runs, and ends when half of that is rebuilt, without a stop of the array.
pub fn end_in_live_rebuild(scratch: &Scratch, images: &[PathBuf], new: &Path) {
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "killed::the_one_that_lives", "--nocapture"])
        .env(MEMBERS, std::env::join_paths(images).expect("paths without colons"))
        .env(NEW, new)
        .current_dir(scratch.path())
        .stdout(Stdio::null())
        .status()
        .expect("a process");
    assert_eq!(status.code(), Some(IN_REBUILD), "it has ended elsewhere");
}

#[test]
fn the_one_that_lives() {
    let Some(images) = std::env::var_os(MEMBERS) else { return };
    let images: Vec<PathBuf> = std::env::split_paths(&images).collect();
    let new = PathBuf::from(std::env::var_os(NEW).expect("said"));
    let array = ours::serve(&images);
    ours::fail(&array, 1);
    ours::add_live(&array, &new, None);
    // What is there already: the array is dirty, and holds what it held.
    let mut bytes = vec![0; 64 << 10];
    for at in [0, array.len_bytes() - bytes.len() as u64] {
        array.read_at(&mut bytes, at).expect("read");
        array.write_at(&bytes, at).expect("written");
    }
    ours::wait_half_rebuilt(&array);
    let status = array.metadata().expect("the array has metadata");
    println!("{status:?}");
    // As killed: no destructor runs.
    std::process::exit(IN_REBUILD);
}
