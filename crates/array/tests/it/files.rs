//! Members in files: what opening refuses and keeps, and kernel I/O on them.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use engine::MemberError;
use md::{Level, MemberIdx, Sector};
use raidlab_array::{
    ArraySpec, BuildError, DriverOptions, Event, FileMember, FileOptions, HostOp, MemberSpec,
    OpenError, RequestError,
};
use testkit::{Rng, print_replay, seeds};

use crate::common::host::{self, Host, drain_until};
use crate::common::store::{Kind, Store, file};
use crate::common::{self, SECTOR, Shards, driver, spec};

/// A file system of its own, until it is dropped; needs root.
struct Mount(PathBuf);

impl Mount {
    fn new(kind: &str, at: PathBuf, options: &str) -> Option<Mount> {
        std::fs::create_dir(&at).expect("a directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options, "none"]).arg(&at);
        match mount.output() {
            Ok(output) if output.status.success() => Some(Mount(at)),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                println!("skipped: cannot mount a {kind}: {why}");
                None
            }
            Err(error) => {
                println!("skipped: cannot mount a {kind}: {error}");
                None
            }
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

fn open(path: &Path, sectors: u64) -> Result<FileMember, OpenError> {
    FileMember::open(path, FileOptions { sectors, direct: true })
}

fn refusal(path: &Path, sectors: u64) -> String {
    let error = open(path, sectors).err().expect("a refusal");
    assert_eq!(error.path, path);
    let text = error.to_string();
    assert!(text.starts_with(&format!("{}: cannot ", path.display())), "{text}");
    text
}

fn files(store: &Store, count: usize, sectors: u64, direct: bool) -> Vec<MemberSpec> {
    let member = |at| file(&store.path(&format!("f{at}")), sectors, direct);
    (0..count).map(|at| MemberSpec::ready(member(at))).collect()
}

#[test]
fn a_full_disk_shows_when_the_member_is_made() {
    let store = Store::new(Kind::Direct).expect("a store");
    let Some(mount) = Mount::new("tmpfs", store.path("small"), "size=1m") else { return };
    let old = mount.0.join("old");
    std::fs::write(&old, [7; 5000]).expect("a file");
    let text = refusal(&mount.0.join("new"), 4096);
    assert!(text.contains("preallocate") && text.contains("No space left"), "{text}");
    assert!(!mount.0.join("new").exists(), "an unusable file is removed again");
    refusal(&old, 4096);
    assert_eq!(std::fs::read(&old).expect("still there"), [7; 5000]);
    open(&mount.0.join("new"), 1024).expect("half of it fits");
}

#[test]
fn a_disk_that_fills_up_fails_the_write_and_no_member() {
    let store = Store::new(Kind::Direct).expect("a store");
    let Some(mount) = Mount::new("tmpfs", store.path("small"), "size=1m") else { return };
    // Sparse, and long enough already: nothing is reserved.
    let path = mount.0.join("sparse");
    std::fs::File::create(&path).and_then(|file| file.set_len(4 << 20)).expect("a sparse file");
    let members = vec![MemberSpec::ready(file(&path, 8192, false)), common::mem(8192)];
    let mut driver = driver(spec(Level::Raid1, 0, members));
    let data = vec![3; 1 << 20];
    let mut results = Vec::new();
    for at in 0..4 {
        let write = HostOp::Write { fua: false };
        results.push(host::call(&mut driver, write, at * 2048, 2048, Some(&data)).0);
    }
    assert!(results.contains(&Err(RequestError::NoSpace)), "{results:?}");
    assert!(driver.failed().is_empty());
}

#[test]
fn only_regular_files_are_accepted() {
    let store = Store::new(Kind::Direct).expect("a store");
    std::fs::create_dir(store.path("directory")).expect("a directory");
    assert!(refusal(&store.path("directory"), 64).contains("Is a directory"));
    assert!(refusal(Path::new("/dev/null"), 64).contains("not a regular file"));
    assert!(refusal(&store.path("nowhere/file"), 64).contains("No such file"));
    let text = refusal(&store.path("huge"), u64::MAX / 2);
    assert!(text.contains("too large"), "{text}");
    assert!(!store.path("huge").exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_refused() {
    let store = Store::new(Kind::Direct).expect("a store");
    let Some(mount) = Mount::new("tmpfs", store.path("fixed"), "ro,size=1m") else { return };
    assert!(refusal(&mount.0.join("file"), 64).contains("Read-only file system"));
}

#[test]
fn existing_file_contents_are_kept() {
    let store = Store::new(Kind::Direct).expect("a store");
    for (name, len) in [("shorter", 3 * SECTOR), ("longer", 100 * SECTOR)] {
        let path = store.path(name);
        let mut data = vec![0; len];
        Rng::new(1).fill(&mut data);
        std::fs::write(&path, &data).expect("a file");
        drop(file(&path, 64, true));
        let after = std::fs::read(&path).expect("still there");
        assert_eq!(after.len(), len.max(64 * SECTOR), "{name}");
        assert!(after[..len] == data, "{name}");
        assert!(after[len..].iter().all(|byte| *byte == 0), "{name}");
    }
}

#[test]
fn one_file_cannot_be_two_members() {
    let store = Store::new(Kind::Direct).expect("a store");
    drop(file(&store.path("a"), 256, true));
    std::os::unix::fs::symlink(store.path("a"), store.path("link")).expect("a link");
    let member = |name: &str| MemberSpec::ready(file(&store.path(name), 256, true));
    let error = |members| {
        let error = Shards::new(spec(Level::Raid0, 8, members), &common::options()).err();
        let error = error.expect("a refusal");
        assert!(matches!(error, BuildError::SameFile { .. }));
        error.to_string()
    };
    assert!(error(vec![member("a"), member("b"), member("a")]).contains("twice"));
    assert!(error(vec![member("a"), member("link")]).contains("one file"));
    let inner =
        |name: &str| MemberSpec::Array(spec(Level::Raid1, 0, vec![member(name), common::mem(256)]));
    assert!(error(vec![inner("a"), inner("b"), inner("link")]).contains("one file"));
}

#[test]
fn without_direct_io_a_member_goes_through_the_cache() {
    let store = Store::new(Kind::Direct).expect("a store");
    let Some(mount) = Mount::new("ramfs", store.path("ram"), "mode=700") else { return };
    let path = mount.0.join("file");
    let member = open(&path, 256).expect("a file without direct I/O");
    if member.is_direct() {
        println!("skipped: direct I/O works on a ramfs here");
        return;
    }
    let mut driver = driver(spec(Level::Linear, 0, vec![MemberSpec::ready(member)]));
    host::write(&mut driver, 3, &[9; SECTOR]);
    assert_eq!(host::read(&mut driver, 3, 1), [9; SECTOR]);
    let (zeroed, _) = host::call(&mut driver, HostOp::WriteZeroes, 0, 256, None);
    assert_eq!(zeroed, Ok(()), "also where the file system cannot make zeroes up");
    assert_eq!(host::read(&mut driver, 0, 256), [0; 256 * SECTOR]);
}

#[test]
fn blocks_below_4k_are_written_alone() {
    for kind in [Kind::Direct, Kind::Buffered, Kind::Tmpfs] {
        let Some(mut store) = Store::new(kind) else { continue };
        let member = store.member(64);
        let block = u64::from(member.info().logical_block) / SECTOR as u64;
        let mut driver = driver(spec(Level::Linear, 0, vec![MemberSpec::Ready(member)]));
        let mut expected = vec![0; 64 * SECTOR];
        for at in (0..64).step_by(3 * block as usize) {
            let bytes = at as usize * SECTOR..(at + block) as usize * SECTOR;
            expected[bytes.clone()].fill(at as u8 + 1);
            host::write(&mut driver, at, &expected[bytes]);
        }
        assert!(host::read(&mut driver, 0, 64) == expected, "{kind:?}");
    }
}

#[test]
fn a_file_cut_short_fails_its_member_and_is_not_made_longer() {
    for direct in [true, false] {
        let store = Store::new(Kind::Direct).expect("a store");
        let cut = |sectors: u64| {
            let file = std::fs::File::options().write(true).open(store.path("f0"));
            file.and_then(|file| file.set_len(sectors * 512)).expect("cut short");
        };
        let mut alone = driver(spec(Level::Linear, 0, files(&store, 1, 256, direct)));
        host::write(&mut alone, 0, &[5; 256 * SECTOR]);
        cut(100);
        for sectors in [96, 256] {
            // Also where it is there: behind a cut, another write may have left zeroes.
            let (result, _) = host::call(&mut alone, HostOp::Read, 0, sectors, None);
            assert_eq!(result, Err(RequestError::Io), "{sectors} sectors of a file that was cut");
        }
        let (result, _) = host::call(&mut alone, HostOp::Read, 128, 64, None);
        assert_eq!(result, Err(RequestError::Io), "nothing of it is there");
        drop(alone);

        let mut mirror = driver(spec(Level::Raid1, 0, files(&store, 2, 256, direct)));
        host::write(&mut mirror, 0, &[6; 256 * SECTOR]);
        cut(100);
        for _ in 0..4 {
            assert_eq!(host::read(&mut mirror, 0, 256), [6; 256 * SECTOR]);
        }
        host::write(&mut mirror, 128, &[7; 128 * SECTOR]);
        assert_eq!(host::read(&mut mirror, 128, 128), [7; 128 * SECTOR]);
        let [Event::MemberFailed { member: MemberIdx(0), error: Some(error) }] =
            mirror.take_events()[..]
        else {
            panic!("member 0 has failed");
        };
        assert_eq!(error.kind, MemberError::Gone);
        let len = std::fs::metadata(store.path("f0")).expect("it is there").len();
        assert_eq!(len, 100 * 512, "nothing is written behind the cut");
    }
}

#[test]
fn discards_and_zeroes_read_as_zeroes() {
    for kind in [Kind::Mem, Kind::Direct, Kind::Buffered, Kind::Tmpfs] {
        let Some(mut store) = Store::new(kind) else { continue };
        let members = (0..2).map(|_| MemberSpec::Ready(store.member(1024))).collect();
        let mut driver = driver(spec(Level::Raid0, 128, members));
        assert!(driver.info().discard_zeroes);
        for op in [HostOp::Discard, HostOp::WriteZeroes] {
            host::write(&mut driver, 0, &[8; 1024 * SECTOR]);
            let (result, _) = host::call(&mut driver, op, 8, 1000, None);
            assert_eq!(result, Ok(()));
            let mut expected = [8; 1024 * SECTOR];
            expected[8 * SECTOR..1008 * SECTOR].fill(0);
            assert!(host::read(&mut driver, 0, 1024) == expected, "{kind:?} {op:?}");
        }
        // Longer than any request's data: 1 MiB of zeroes at a time where they are made by hand.
        let sectors = driver.info().sectors;
        assert_eq!(host::call(&mut driver, HostOp::WriteZeroes, 0, sectors, None).0, Ok(()));
        assert!(host::read(&mut driver, 0, 1024).iter().all(|byte| *byte == 0));
    }
}

#[test]
fn an_array_over_a_parity_array_does_not_rely_on_its_discards() {
    // The inner array discards whole rows only; parity that counted on zeroes would be wrong.
    for lost in 0..6 {
        let inner = MemberSpec::Array(spec(Level::Raid5, 128, common::mems(3, 1024)));
        let members = common::mems(5, 2048).into_iter().chain([inner]).collect();
        let mut driver = driver(spec(Level::Raid5, 64, members));
        let row = driver.geometry().stripe_sectors();
        let mut data = vec![0; row as usize * SECTOR];
        Rng::new(3).fill(&mut data);
        for at in 0..32 {
            host::write(&mut driver, at * row, &data);
        }
        assert_eq!(host::call(&mut driver, HostOp::Discard, 0, 32 * row, None).0, Ok(()));
        // One block of each row: parity is brought up to date from what it was.
        let place = |at: u64| at * row + at % 5 * 64;
        for at in 0..32 {
            host::write(&mut driver, place(at), &data[..8 * SECTOR]);
        }
        driver.fail_member(MemberIdx(lost));
        for at in 0..32 {
            let got = host::read(&mut driver, place(at), 8);
            assert!(got == data[..8 * SECTOR], "row {at} without member {lost}");
        }
    }
}

#[test]
fn more_pieces_than_one_call_can_carry() {
    for kind in [Kind::Direct, Kind::Buffered, Kind::Tmpfs] {
        let Some(mut store) = Store::new(kind) else { continue };
        // 16 MiB in chunks of 4 KiB: 2048 pieces for each of two members.
        let members = (0..2).map(|_| MemberSpec::Ready(store.member(1 << 15))).collect();
        let options = DriverOptions { leases: 2, lease_bytes: 16 << 20, ..Default::default() };
        let mut driver = Shards::new(spec(Level::Raid0, 8, members), &options).expect("an array");
        let mut data = vec![0; 16 << 20];
        Rng::new(4).fill(&mut data);
        for fua in [false, true] {
            data.rotate_left(4096 + 512);
            let op = HostOp::Write { fua };
            let sectors = (16 << 20) / 512;
            assert_eq!(host::call(&mut driver, op, 0, sectors, Some(&data)).0, Ok(()), "{kind:?}");
            assert!(host::read(&mut driver, 0, sectors) == data, "{kind:?}");
        }
        assert!(driver.failed().is_empty());
    }
}

/// A driver with thousands of requests in flight.
fn deep(spec: ArraySpec) -> Shards {
    let (max_requests, leases, lease_bytes) = (8192, 6000, 4096);
    let options = DriverOptions { max_requests, leases, lease_bytes, ..DriverOptions::default() };
    Shards::new(spec, &options).expect("a valid array")
}

fn submit_blocks(driver: &mut Shards, op: HostOp, count: u64) {
    for block in 0..count {
        let mut lease = driver.leases().take(4096).expect("a lease");
        lease.bytes_mut().fill(block as u8);
        driver.submit(op, Sector(block * 8), 8, Some(lease), block).expect("room");
    }
}

#[test]
fn more_operations_than_the_ring_holds() {
    for kind in [Kind::Direct, Kind::Buffered, Kind::Tmpfs] {
        let Some(mut store) = Store::new(kind) else { continue };
        let members = (0..2).map(|_| MemberSpec::Ready(store.member(6000 * 4))).collect();
        let mut driver = deep(spec(Level::Raid0, 8, members));
        let mut done = Vec::new();
        for op in [HostOp::Write { fua: false }, HostOp::Read] {
            submit_blocks(&mut driver, op, 6000);
            driver.poll(&mut done);
            // The kernel completes most of them before they are reaped: more than its queue holds.
            std::thread::sleep(Duration::from_millis(50));
            drain_until(&mut driver, &mut done, |done| done.len() == 6000);
            for end in done.drain(..) {
                assert_eq!(end.result, Ok(()));
                let lease = end.lease.expect("its lease");
                assert!(lease.bytes().iter().all(|byte| *byte == end.tag as u8), "{kind:?}");
            }
        }
    }
}

#[test]
fn a_driver_can_go_while_the_kernel_works_for_it() {
    for seed in seeds(12) {
        print_replay!("a_driver_can_go_while_the_kernel_works_for_it", seed);
        let mut rng = Rng::new(seed);
        let direct = rng.one_in(2);
        let store = Store::new(Kind::Direct).expect("a store");
        let level = rng.pick(&[Level::Raid5, Level::Raid6, Level::Raid1, Level::Raid0]);
        let mut driver = deep(spec(level, 8, files(&store, 4, 4000, direct)));
        let pool = driver.leases().clone();
        let mut mine = pool.take(4096).expect("a lease");
        mine.bytes_mut().fill(1);
        // Small writes: reads into the stripe memory are in flight when the driver is dropped.
        let count = 1 + rng.below(400);
        submit_blocks(&mut driver, HostOp::Write { fua: rng.one_in(3) }, count);
        let mut done = Vec::new();
        for _ in 0..rng.below(3) {
            driver.poll(&mut done);
        }
        drop(driver);
        drop(done);
        assert_eq!(mine.bytes(), [1; 4096], "a lease outlives its driver");
        drop(mine);
        let all: Vec<_> = std::iter::from_fn(|| pool.take(4096)).collect();
        assert_eq!(all.len(), 6000, "every lease is back");
    }
}

#[test]
fn written_data_are_in_the_files() {
    let mut store = Store::new(Kind::Direct).expect("a store");
    let members = (0..3).map(|_| MemberSpec::Ready(store.member(1024))).collect();
    let mut driver = driver(spec(Level::Raid5, 8, members));
    let mut rng = Rng::new(5);
    Host::new(&mut driver, 8).run(&mut rng, 200);
    let mut array = host::read(&mut driver, 0, 2000);
    assert_eq!(host::call(&mut driver, HostOp::Flush, 0, 0, None).0, Ok(()));
    drop(driver);
    // RAID 5, left-symmetric, chunk 4 KiB: the first chunk is on the first member, and a row's
    // blocks add up to nothing.
    let mut rows = vec![0; 1024 * SECTOR];
    for at in 1..=3 {
        let mut file = std::fs::File::open(store.path(&format!("member-{at}"))).expect("a file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("its bytes");
        if at == 1 {
            assert!(bytes[..4096] == array[..4096]);
        }
        rows.iter_mut().zip(&bytes).for_each(|(sum, byte)| *sum ^= byte);
    }
    assert!(rows.iter().all(|byte| *byte == 0));
    // And what stands in the files is what the next driver reads.
    let mut first =
        std::fs::File::options().write(true).open(store.path("member-1")).expect("a file");
    first.seek(SeekFrom::Start(100)).and_then(|_| first.write_all(b"rot")).expect("written");
    array[100..103].copy_from_slice(b"rot");
    let again = (1..=3)
        .map(|at| MemberSpec::ready(file(&store.path(&format!("member-{at}")), 1024, false)));
    let mut driver = common::driver(spec(Level::Raid5, 8, again.collect()));
    assert!(host::read(&mut driver, 0, 2000) == array);
}

testkit::repeat_in_shards! {
    a_full_disk_shows_when_the_member_is_made,
    a_disk_that_fills_up_fails_the_write_and_no_member,
    only_regular_files_are_accepted,
    a_directory_that_cannot_be_written_is_refused,
    existing_file_contents_are_kept,
    one_file_cannot_be_two_members,
    without_direct_io_a_member_goes_through_the_cache,
    blocks_below_4k_are_written_alone,
    a_file_cut_short_fails_its_member_and_is_not_made_longer,
    discards_and_zeroes_read_as_zeroes,
    an_array_over_a_parity_array_does_not_rely_on_its_discards,
    more_pieces_than_one_call_can_carry,
    more_operations_than_the_ring_holds,
    a_driver_can_go_while_the_kernel_works_for_it,
    written_data_are_in_the_files,
}
