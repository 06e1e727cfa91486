//! Persistent arrays: created, started, stopped, dropped as by a crash, started again.

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use array::rescue::{Piece, StreamOptions, prepare, stream};
use array::run::{
    CreateFailed, CreateOptions, Opened, StartError, StartOptions, create, start_shards,
};
use array::store::{Access, Device, DeviceOptions, Disk, Location, open_overlay};
use array::{Array, ArrayError, Driver, DriverOptions, Event, RequestError};
use engine::MemberError;
use md::assemble::{Candidate, MemberState, Options, Verdict, assemble};
use md::create::{BitmapOption, Request};
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::ppl::{PplEntry, PplHeader};
use md::ondisk::superblock::{ArrayState, DeviceState, Policy, SuperblockV1};
use md::ondisk::{Area, MemberMetadata, Role, Timestamp, Uuid, Version};
use md::{Layout, Level, MemberIdx};
use rustix::io::Errno;

const SECTORS: u64 = 16 << 11;

struct Members {
    dir: tempfile::TempDir,
    count: usize,
}

impl Members {
    fn new(count: usize) -> Members {
        let dir = tempfile::tempdir().unwrap();
        let members = Members { dir, count };
        for number in 0..count {
            let file = std::fs::File::create(members.path(number)).unwrap();
            file.set_len(SECTORS * 512).unwrap();
        }
        members
    }

    fn path(&self, number: usize) -> PathBuf {
        self.dir.path().join(format!("m{number}"))
    }

    fn device(&self, number: usize, access: Access) -> Arc<Device> {
        let location = Location::whole(self.path(number));
        Arc::new(Device::open(&location, DeviceOptions { access, direct: false }).unwrap())
    }

    fn devices(&self, access: Access) -> Vec<Arc<Device>> {
        (0..self.count).map(|number| self.device(number, access)).collect()
    }

    fn opened(&self, access: Access) -> Vec<Opened> {
        self.devices(access).into_iter().map(|d| Opened::device(d).expect("superblock")).collect()
    }

    fn create(&self, level: Level, change: impl FnOnce(&mut Request)) -> Vec<String> {
        let disks: Vec<Arc<dyn Disk>> =
            self.devices(Access::ReadWrite).into_iter().map(|d| d as Arc<dyn Disk>).collect();
        let device = |(number, disk): (usize, &Arc<dyn Disk>)| md::create::Device {
            label: disk.name(),
            sectors: disk.sectors(),
            logical_block: 512,
            uuid: Uuid([number as u8 + 1; 16]),
            data_offset: None,
            write_mostly: false,
            failfast: false,
        };
        let devices = disks.iter().enumerate().map(device).collect();
        let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
        let mut request = Request::new(level, devices, Uuid([7; 16]), now);
        request.name = "lasting".into();
        change(&mut request);
        let plan = md::create::plan(&request).unwrap();
        let disks: Vec<_> = disks.into_iter().map(Some).collect();
        create(&plan, &disks, CreateOptions { force: true }).unwrap()
    }

    fn hashes(&self) -> Vec<Vec<u8>> {
        (0..self.count).map(|number| std::fs::read(self.path(number)).unwrap()).collect()
    }
}

fn decide(opened: &[Opened], options: &Options) -> md::assemble::Array {
    let candidates: Vec<Candidate> = opened.iter().map(Opened::candidate).collect();
    let mut found = assemble(&candidates, options);
    assert_eq!(found.arrays.len(), 1);
    found.arrays.remove(0)
}

fn started(opened: &[Opened], options: &Options) -> Result<Vec<Driver>, StartError> {
    started_as(opened, options, DriverOptions::default())
}

fn started_as(
    opened: &[Opened],
    options: &Options,
    driver: DriverOptions,
) -> Result<Vec<Driver>, StartError> {
    let (shards, shard_unit_sectors) = (common::shards::shards(), 64);
    let driver = DriverOptions { shards, shard_unit_sectors, ..driver };
    let how = StartOptions { driver, ..StartOptions::default() };
    start_shards(&decide(opened, options), opened, &how)
}

fn run(opened: &[Opened]) -> Array {
    Array::run_shards(started(opened, &Options::default()).unwrap()).unwrap()
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64 / 8).flat_map(|at| (at.wrapping_mul(seed) ^ seed).to_le_bytes()).collect()
}

/// The contents by the rescue reader, which shares nothing with the engine but the mapping.
fn contents(members: &Members, without: &[usize]) -> Vec<u8> {
    let opened = members.opened(Access::ReadOnly);
    let kept: Vec<Opened> = (opened.into_iter().enumerate())
        .filter(|(number, _)| !without.contains(number))
        .map(|(_, opened)| opened)
        .collect();
    let array = decide(&kept, &Options::default());
    assert!(array.read_only.verdict.runs(), "{:?}", array.read_only.verdict);
    let candidates: Vec<Candidate> = kept.iter().map(Opened::candidate).collect();
    let disks: Vec<_> = kept.iter().map(|opened| opened.disk.clone()).collect();
    let kernels = parity::Kernels::best();
    let prepared = prepare(&array, &array.read_only, &candidates, &disks, kernels).unwrap();
    let (view, mut bytes) = (&prepared.view, Vec::new());
    stream(view, 0..view.sectors(), StreamOptions::default(), |piece| {
        match piece {
            Piece::Data { bytes: part, lost, .. } => {
                assert_eq!(lost, []);
                bytes.extend_from_slice(part);
            }
            Piece::Hole { sectors, .. } => bytes.resize(bytes.len() + sectors as usize * 512, 0),
        }
        Ok::<(), ()>(())
    })
    .unwrap();
    bytes
}

fn wait_for(array: &Array, what: &str, is_so: impl Fn(&engine::MetadataStatus) -> bool) {
    let start = Instant::now();
    while !is_so(&array.metadata().unwrap()) {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", array.metadata());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn shapes() -> Vec<(Level, Version, BitmapOption, Option<Policy>, usize)> {
    use BitmapOption::{Internal, None as NoBitmap};
    let internal = || Internal { chunk_bytes: Some(65536) };
    vec![
        (Level::Raid0, Version::V1_2, NoBitmap, None, 3),
        (Level::Raid1, Version::V1_0, NoBitmap, None, 2),
        (Level::Raid1, Version::V0_90, internal(), None, 2),
        (Level::Raid4, Version::V1_1, NoBitmap, None, 4),
        (Level::Raid5, Version::V1_2, NoBitmap, None, 3),
        (Level::Raid5, Version::V1_2, internal(), None, 4),
        (Level::Raid5, Version::V1_2, NoBitmap, Some(Policy::Ppl), 4),
        (Level::Raid6, Version::V1_2, internal(), None, 5),
        (Level::Raid6, Version::V0_90, NoBitmap, None, 4),
        (Level::Raid10, Version::V1_2, internal(), None, 4),
    ]
}

#[test]
fn written_data_are_there_after_a_clean_stop_and_after_a_loss() {
    for (level, version, bitmap, policy, count) in shapes() {
        let context = format!("{level} {version} {bitmap:?} {policy:?}");
        let members = Members::new(count);
        members.create(level, |request| {
            request.version = version;
            request.bitmap = bitmap;
            request.policy = policy;
            request.chunk_sectors = level.has_chunks().then_some(128);
            if version == Version::V0_90 {
                request.name = String::new();
            }
        });
        let opened = members.opened(Access::ReadWrite);
        let array = run(&opened);
        let mut expected = vec![0; array.len_bytes() as usize];
        for (at, len) in [(0, 1 << 20), (3 << 20, 4096), (5 << 20, 3 << 20)] {
            let data = pattern(at as u64 + 0x9e37_79b9, len);
            array.write_at(&data, at as u64).unwrap();
            expected[at..at + len].copy_from_slice(&data);
        }
        if level != Level::Raid0 {
            wait_for(&array, &context, |status| status.resync_offset.is_none());
        }
        array.stop().unwrap();
        drop(opened);
        let opened = members.opened(Access::ReadOnly);
        let array = decide(&opened, &Options::default());
        assert_eq!(array.read_write.verdict, Verdict::Run, "{context}");
        let metadata: Vec<_> = opened.iter().map(|o| o.superblock.metadata()).collect();
        for (opened, metadata) in opened.iter().zip(&metadata) {
            assert!(opened.checksum.is_correct(), "{context}");
            assert_eq!(metadata.resync_offset, None, "{context}: clean");
        }
        assert!(metadata.iter().all(|m| m.events == metadata[0].events), "{context}: one count");
        drop(opened);
        assert!(contents(&members, &[]) == expected, "{context}");
        if level != Level::Raid0 {
            for lost in 0..count {
                assert!(contents(&members, &[lost]) == expected, "{context} without {lost}");
            }
        }
        mdadm_agrees(&members, &context);
    }
}

#[test]
fn a_resync_comes_on_also_where_hosts_have_all_there_is() {
    for level in [Level::Raid1, Level::Raid5] {
        let members = Members::new(3);
        members.create(level, |request| {
            request.chunk_sectors = level.has_chunks().then_some(128);
        });
        let opened = members.opened(Access::ReadWrite);
        let driver = DriverOptions { max_requests: 1, leases: 1, ..DriverOptions::default() };
        let shards = started_as(&opened, &Options::default(), driver).unwrap();
        let array = Array::run_shards(shards).unwrap();
        let lease = array.lease(4096);
        wait_for(&array, "resync", |status| status.resync_offset.is_none());
        let lease = array.write(lease, 0).wait().unwrap();
        drop(lease);
        array.stop().unwrap();
    }
}

#[test]
fn a_stop_says_when_the_metadata_cannot_be_made_clean() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let members = Members::new(2);
    // Files that can be made to refuse writes while they are open.
    let files: Vec<_> = (0..2)
        .map(|number| {
            let file = memfd_create("member", MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, SECTORS * 512).unwrap();
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            std::fs::remove_file(members.path(number)).unwrap();
            let path = format!("/proc/self/fd/{fd}");
            std::os::unix::fs::symlink(path, members.path(number)).unwrap();
            file
        })
        .collect();
    members.create(Level::Raid1, |request| request.assume_clean = true);
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    array.write_at(&[1; 4096], 0).unwrap();
    array.flush().unwrap();
    files.iter().for_each(|file| fcntl_add_seals(file, SealFlags::WRITE).unwrap());
    assert_eq!(array.stop(), Err(array::ArrayError::Unclean));
}

/// mdadm finds nothing wrong with a member's superblock, where it is installed.
fn mdadm_agrees(members: &Members, context: &str) {
    for number in 0..members.count {
        let mut examine = std::process::Command::new("mdadm");
        let Ok(output) = examine.arg("--examine").arg(members.path(number)).output() else {
            println!("mdadm skipped: it is not installed");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(" - correct"), "{context}: {text}");
        assert!(text.contains("State : clean"), "{context}: {text}");
    }
}

#[test]
fn a_start_without_writes_leaves_no_trace() {
    let members = Members::new(3);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.chunk_sectors = Some(128);
    });
    let before = members.hashes();
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    let mut bytes = vec![1; 8192];
    array.read_at(&mut bytes, 4096).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    array.stop().unwrap();
    assert!(members.hashes() == before);
}

#[test]
fn an_examination_older_than_a_write_does_not_start_the_array() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    let opened = members.opened(Access::ReadWrite);
    let decision = decide(&opened, &Options::default());
    let start = || start_shards(&decision, &opened, &StartOptions::default());
    // As often as one likes while nothing is written.
    for _ in 0..2 {
        let array = Array::run_shards(start().unwrap()).unwrap();
        array.read_at(&mut [0; 4096], 0).unwrap();
        array.stop().unwrap();
    }
    let array = Array::run_shards(start().unwrap()).unwrap();
    array.write_at(&[1; 4096], 0).unwrap();
    array.fail_member(MemberIdx(0));
    array.write_at(&[2; 4096], 0).unwrap();
    array.stop().unwrap();
    let before = members.hashes();
    let error = start().err().expect("member 0 is stale").to_string();
    assert!(error.contains("m0: its superblock has changed since it was examined"), "{error}");
    assert!(members.hashes() == before, "nothing was written");
    // Examined again, it is what it was.
    drop(opened);
    let array = run(&members.opened(Access::ReadWrite));
    let mut bytes = [0; 4096];
    array.read_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, [2; 4096]);
    array.stop().unwrap();
}

#[test]
fn a_member_without_its_superblock_is_not_started_from_an_earlier_examination() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    let opened = members.opened(Access::ReadWrite);
    let sector = opened[1].superblock.sector();
    opened[1].disk.write(sector, &[0; 4096]).unwrap();
    let error = started(&opened, &Options::default()).err().expect("it is gone").to_string();
    assert!(error.contains("m1: its superblock has changed"), "{error}");
}

#[test]
fn a_killed_array_is_dirty_and_is_resynced_when_it_starts_again() {
    for bitmap in [BitmapOption::None, BitmapOption::Internal { chunk_bytes: Some(65536) }] {
        let members = Members::new(3);
        members.create(Level::Raid5, |request| {
            request.assume_clean = true;
            request.bitmap = bitmap;
            request.chunk_sectors = Some(128);
        });
        // The child is killed in the middle of its work. This file may be a module of another.
        let inside = module_path!().split_once("::").map(|(_, module)| format!("{module}::"));
        let child = format!("{}child_that_is_killed", inside.unwrap_or_default());
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &child, "--nocapture"])
            .env("RAIDLAB_TEST_MEMBERS", members.dir.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let sign = members.dir.path().join("written");
        let start = Instant::now();
        while !sign.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "the child writes nothing");
            std::thread::sleep(Duration::from_millis(5));
        }
        // While it lives, no other process can open its members.
        let location = Location::whole(members.path(1));
        let options = DeviceOptions { access: Access::ReadWrite, direct: false };
        let error = Device::open(&location, options).unwrap_err();
        assert!(error.to_string().contains("another process has it open"), "{error}");
        child.kill().unwrap();
        child.wait().unwrap();
        let opened = members.opened(Access::ReadWrite);
        let array = decide(&opened, &Options::default());
        for opened in &opened {
            assert_eq!(opened.superblock.metadata().resync_offset, Some(0), "dirty");
        }
        let resync = array.read_write.repairs.resync.expect("a resync");
        assert_eq!(resync.by_bitmap, bitmap != BitmapOption::None);
        // Dirty and degraded is not started, unless forced.
        let two = [opened[0].clone(), opened[2].clone()];
        let error = started(&two, &Options::default()).err().unwrap();
        assert!(error.to_string().contains("may be wrong"), "{error}");
        let array = run(&opened);
        wait_for(&array, "resync", |status| status.resync_offset.is_none());
        let mut bytes = vec![0; 4096];
        array.read_at(&mut bytes, 1 << 20).unwrap();
        assert!(bytes == vec![0x77; 4096], "what was flushed is there");
        array.stop().unwrap();
        drop((opened, two));
        let all = contents(&members, &[]);
        for lost in 0..3 {
            assert!(contents(&members, &[lost]) == all, "parity is right without {lost}");
        }
    }
}

#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os("RAIDLAB_TEST_MEMBERS") else { return };
    let dir = Path::new(&dir);
    let opened: Vec<Opened> = (0..3)
        .map(|number| {
            let location = Location::whole(dir.join(format!("m{number}")));
            let options = DeviceOptions { access: Access::ReadWrite, direct: false };
            Opened::device(Arc::new(Device::open(&location, options).unwrap())).unwrap()
        })
        .collect();
    let array = run(&opened);
    array.write_at(&[0x77; 4096], 1 << 20).unwrap();
    array.flush().unwrap();
    std::fs::write(dir.join("written"), "").unwrap();
    for round in 0_u64.. {
        array.write_at(&[round as u8; 4096], (2 << 20) + round % 500 * 4096).unwrap();
    }
}

#[test]
fn a_member_that_fails_is_recorded_and_stale_from_then_on() {
    let members = Members::new(4);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.chunk_sectors = Some(128);
    });
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    array.write_at(&[1; 8192], 0).unwrap();
    array.fail_member(MemberIdx(1));
    array.write_at(&[2; 8192], 4096).unwrap();
    array.stop().unwrap();
    drop(opened);
    let opened = members.opened(Access::ReadWrite);
    let found = decide(&opened, &Options::default());
    let missing = vec![MemberIdx(1)];
    assert_eq!(found.read_write.verdict, Verdict::RunDegraded { missing });
    let events: Vec<_> = opened.iter().map(|o| o.superblock.metadata().events).collect();
    assert!(events[0] >= events[1] + 2, "{events:?}: a difference of 1 would not count");
    let array = run(&opened);
    let mut bytes = vec![0; 12288];
    array.read_at(&mut bytes, 0).unwrap();
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..] == [2; 8192]);
    array.write_at(&[3; 4096], 8 << 20).unwrap();
    array.stop().unwrap();
    drop(opened);
    assert!(contents(&members, &[1])[8 << 20..(8 << 20) + 4096] == [3; 4096]);
}

#[test]
fn over_an_overlay_everything_works_and_the_members_stay() {
    let members = Members::new(3);
    members.create(Level::Raid5, |request| {
        request.chunk_sectors = Some(128);
        request.layout = Some(Layout::default_for(Level::Raid5));
    });
    let before = members.hashes();
    let path = members.dir.path().join("overlay");
    let open = || -> Vec<Opened> {
        let bases: Vec<_> =
            members.devices(Access::ReadOnly).into_iter().map(|d| d as Arc<dyn Disk>).collect();
        let disks = open_overlay(&path, &bases, Access::ReadWrite).unwrap();
        disks.into_iter().map(|disk| Opened::disk(Arc::new(disk)).unwrap()).collect()
    };
    let data = pattern(0xdead_beef, 3 << 20);
    let opened = open();
    let array = run(&opened);
    array.write_at(&data, 1 << 20).unwrap();
    wait_for(&array, "resync", |status| status.resync_offset.is_none());
    array.stop().unwrap();
    drop(opened);
    assert!(members.hashes() == before, "the members are untouched");
    // Again, without one member: what was written is in the overlay.
    let opened = open();
    let array = run(&opened[1..]);
    let mut bytes = vec![0; 3 << 20];
    array.read_at(&mut bytes, 1 << 20).unwrap();
    assert!(bytes == data);
    array.stop().unwrap();
    assert!(members.hashes() == before, "the members are untouched");
}

#[test]
fn a_device_with_data_is_refused() {
    let members = Members::new(2);
    let disks = || -> Vec<Option<Arc<dyn Disk>>> {
        let devices = members.devices(Access::ReadWrite).into_iter();
        devices.map(|device| Some(device as Arc<dyn Disk>)).collect()
    };
    let device = |number: usize| md::create::Device {
        label: format!("m{number}"),
        sectors: SECTORS,
        logical_block: 512,
        uuid: Uuid([number as u8; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let now = Timestamp { seconds: 1, micros: 0 };
    let request = Request::new(Level::Raid1, vec![device(1), device(2)], Uuid([9; 16]), now);
    let plan = md::create::plan(&request).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(members.path(1)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"XFSB", 0).unwrap();
    let before = members.hashes();
    let error = create(&plan, &disks(), CreateOptions::default()).unwrap_err();
    let CreateFailed::Holds(what) = &error else { panic!("{error}") };
    assert!(what.len() == 1 && what[0].ends_with("m1 holds XFS."), "{what:?}");
    assert!(members.hashes() == before, "nothing was written");
    let seen = create(&plan, &disks(), CreateOptions { force: true }).unwrap();
    assert_eq!(seen, *what);
    // Now they are an array.
    let error = create(&plan, &disks(), CreateOptions::default()).unwrap_err();
    assert!(error.to_string().contains("m0 is a member of md array 09090909"), "{error}");
}

/// A device of which a test can make a range unwritable.
struct Flawed {
    device: Arc<Device>,
    /// First sector, the one behind the last, and the error.
    flaw: Mutex<Option<(u64, u64, Errno)>>,
    /// The next sync fails; the one after it ends well, as the kernel has it.
    sync_fails: AtomicBool,
    logical_block: u32,
    /// All that was written in front of the data, in order: first sector and bytes.
    metadata: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Flawed {
    fn new(device: Arc<Device>) -> Flawed {
        let (flaw, sync_fails) = (Mutex::new(None), AtomicBool::new(false));
        let (logical_block, metadata) = (device.logical_block(), Mutex::default());
        Flawed { device, flaw, sync_fails, logical_block, metadata }
    }

    fn mend(&self) {
        *self.flaw.lock().unwrap() = None;
    }

    fn check(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        match *self.flaw.lock().unwrap() {
            Some((start, end, error)) if range.start < end && start < range.end => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }
}

impl Disk for Flawed {
    fn sectors(&self) -> u64 {
        self.device.sectors()
    }

    fn logical_block(&self) -> u32 {
        self.logical_block
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    fn read(&self, sector: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.device.read(sector, buf)
    }

    fn write(&self, sector: u64, buf: &[u8]) -> std::io::Result<()> {
        self.check(sector..sector + buf.len() as u64 / 512)?;
        if sector < 128 {
            self.metadata.lock().unwrap().push((sector, buf.to_vec()));
        }
        self.device.write(sector, buf)
    }

    fn write_zeroes(&self, range: std::ops::Range<u64>) -> std::io::Result<()> {
        self.check(range.clone())?;
        self.device.write_zeroes(range)
    }

    fn sync(&self) -> std::io::Result<()> {
        if self.sync_fails.swap(false, Ordering::SeqCst) {
            return Err(Errno::IO.into());
        }
        self.device.sync()
    }

    fn hole_end(&self, sector: u64) -> u64 {
        self.device.hole_end(sector)
    }
}

/// An array of which member 1 is flawed in its metadata or in its data.
fn flawed(members: &Members, data: bool, error: Errno) -> (Array, Arc<Flawed>) {
    let mut opened = members.opened(Access::ReadWrite);
    let device = opened[1].device.clone().expect("a device");
    let flawed = Arc::new(Flawed::new(device));
    opened[1] = Opened::disk(flawed.clone()).expect("superblock");
    let data_offset = opened[1].superblock.metadata().data_offset;
    let range = if data { (data_offset, SECTORS) } else { (0, data_offset) };
    *flawed.flaw.lock().unwrap() = Some((range.0, range.1, error));
    (run(&opened), flawed)
}

#[test]
fn a_member_that_is_lost_by_its_metadata_is_an_event_and_a_note() {
    let members = Members::new(3);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.chunk_sectors = Some(128);
    });
    let (array, _) = flawed(&members, false, Errno::IO);
    array.write_at(&[1; 8192], 0).unwrap();
    let failed = Event::MemberFailed { member: MemberIdx(1), error: Some(MemberError::Medium) };
    assert_eq!(array.take_events(), [failed]);
    let notes = array.take_notes();
    assert!(
        notes.len() == 2 && notes[0].contains("m1: its metadata cannot be written"),
        "{notes:?}"
    );
    assert!(notes[1].contains("is out of service"), "{notes:?}");
    // A member dropped by a shard is reported once, too.
    drop(array);
    let members = Members::new(3);
    members.create(Level::Raid5, |request| request.assume_clean = true);
    let array = run(&members.opened(Access::ReadWrite));
    array.fail_member(MemberIdx(2));
    array.write_at(&[1; 8192], 0).unwrap();
    let failed = Event::MemberFailed { member: MemberIdx(2), error: None };
    assert_eq!(array.take_events(), [failed]);
    array.stop().unwrap();
}

#[test]
fn a_member_without_room_for_metadata_costs_a_write_and_not_its_place() {
    for bitmap in [BitmapOption::None, BitmapOption::Internal { chunk_bytes: Some(65536) }] {
        let members = Members::new(3);
        members.create(Level::Raid5, |request| {
            request.assume_clean = true;
            request.bitmap = bitmap;
            request.chunk_sectors = Some(128);
        });
        let (array, flawed) = flawed(&members, false, Errno::NOSPC);
        let full = ArrayError::Request(RequestError::NoSpace);
        for _ in 0..3 {
            assert_eq!(array.write_at(&[1; 8192], 0), Err(full.clone()));
        }
        let mut bytes = [1; 8192];
        array.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes, array.failed().len()), ([0; 8192], 0));
        flawed.mend();
        array.write_at(&[2; 8192], 0).unwrap();
        array.stop().unwrap();
        drop(flawed);
        let opened = members.opened(Access::ReadOnly);
        assert_eq!(decide(&opened, &Options::default()).read_write.verdict, Verdict::Run);
        assert!(opened.iter().all(|o| o.superblock.metadata().resync_offset.is_none()), "clean");
        assert!(contents(&members, &[2])[..8192] == [2; 8192]);
    }
}

#[test]
fn a_resync_without_space_says_why_and_resumes_when_there_is_room() {
    for level in [Level::Raid1, Level::Raid5] {
        let members = Members::new(if level == Level::Raid1 { 2 } else { 3 });
        members.create(level, |request| {
            request.chunk_sectors = level.has_chunks().then_some(128);
        });
        let file = std::fs::OpenOptions::new().write(true).open(members.path(0)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0x33; 4096], 10 << 20).unwrap();
        let (array, flawed) = flawed(&members, true, Errno::NOSPC);
        let stalls = |status: &engine::MetadataStatus| status.resync_stalled.is_some();
        wait_for(&array, "stall", stalls);
        let status = array.metadata().unwrap();
        assert!(status.resync_offset.is_some(), "{status:?}");
        let notes = array.take_notes();
        let stalled = |note: &&String| note.contains("resync is stalled: no space left");
        assert_eq!(notes.iter().filter(stalled).count(), 1, "{notes:?}");
        flawed.mend();
        wait_for(&array, "room", |status| status.resync_offset.is_none());
        assert_eq!(array.metadata().unwrap().resync_stalled, None);
        array.stop().unwrap();
        drop(flawed);
        let all = contents(&members, &[]);
        for lost in 0..members.count {
            assert!(contents(&members, &[lost]) == all, "{level} without {lost}");
        }
    }
}

#[test]
fn devices_opened_read_only_are_not_started() {
    let members = Members::new(2);
    members.create(Level::Raid1, |_| {});
    let before = members.hashes();
    let error = started(&members.opened(Access::ReadOnly), &Options::default()).err().unwrap();
    assert!(error.to_string().ends_with("was opened read-only."), "{error}");
    assert!(members.hashes() == before);
}

/// A member's bad block area from its superblock, and the list.
fn bad_blocks(members: &Members, number: usize) -> (bool, BadBlocks) {
    let device = members.device(number, Access::ReadOnly);
    let opened = Opened::device(device.clone()).expect("superblock");
    let place = opened.superblock.metadata().bad_blocks.expect("room for a list");
    let mut log = vec![0; place.area.sectors as usize * 512];
    device.read(place.area.sector, &mut log).unwrap();
    (place.in_use, BadBlocks::decode(&log, place.shift).unwrap())
}

/// Lists sectors of a member as bad, as Linux would, and puts something else there.
fn spoil(members: &Members, number: usize, ranges: &[std::ops::Range<u64>]) {
    let device = members.device(number, Access::ReadWrite);
    let superblock = Opened::device(device.clone()).expect("superblock").superblock;
    let (metadata, mut state) = (superblock.metadata(), superblock.state());
    let own = metadata.dev_number as usize;
    state.devices[own].as_mut().expect("itself").bad_blocks_in_use = true;
    let superblock = superblock.with_state(&state, own).unwrap();
    device.write(superblock.sector(), &superblock.encode(512)).unwrap();
    let place = metadata.bad_blocks.expect("room for a list");
    let mut bad = BadBlocks::new();
    let start = metadata.data_offset;
    bad.extend(ranges.iter().map(|range| start + range.start..start + range.end));
    device.write(place.area.sector, &bad.encode(place.area.sectors, place.shift).unwrap()).unwrap();
    for range in ranges {
        let spoiled = vec![0xa5; (range.end - range.start) as usize * 512];
        device.write(metadata.data_offset + range.start, &spoiled).unwrap();
    }
}

#[test]
fn bad_blocks_are_read_elsewhere_and_are_good_again_when_they_have_been_written() {
    let ranges = [7..8, 2048..2064, 5000..5003, 9000..9600];
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 5)] {
        let members = Members::new(count);
        members.create(level, |request| {
            request.assume_clean = true;
            request.chunk_sectors = level.has_chunks().then_some(128);
        });
        let array = run(&members.opened(Access::ReadWrite));
        let mut expected = pattern(0x1234_5677, array.len_bytes() as usize);
        array.write_at(&expected, 0).unwrap();
        array.stop().unwrap();
        spoil(&members, 1, &ranges);
        let listed = bad_blocks(&members, 1);

        let array = run(&members.opened(Access::ReadWrite));
        let mut bytes = vec![0; expected.len()];
        array.read_at(&mut bytes, 0).unwrap();
        assert!(bytes == expected, "{level}: read");
        // Unaligned, and only part of what is bad.
        let new = pattern(0x7654_3211, 512 * 301);
        array.write_at(&new, 512 * 4900).unwrap();
        expected[512 * 4900..][..new.len()].copy_from_slice(&new);
        // A crash: the list on disk names what is good again, or does not, but never the reverse.
        drop(array);
        let (_, bad) = bad_blocks(&members, 1);
        assert!(
            bad.ranges().iter().all(|range| listed.1.within(range.clone()).eq([range.clone()]))
        );
        assert!(contents(&members, &[]) == expected, "{level}: after the crash");

        let array = run(&members.opened(Access::ReadWrite));
        expected = pattern(0x3333_5555, expected.len());
        array.write_at(&expected, 0).unwrap();
        wait_for(&array, "resync", |status| status.resync_offset.is_none());
        array.stop().unwrap();
        assert!(bad_blocks(&members, 1).1.is_empty(), "{level}: all has been written");
        for lost in 0..count {
            assert!(contents(&members, &[lost]) == expected, "{level} without {lost}");
        }
        // The next superblock has no list.
        let array = run(&members.opened(Access::ReadWrite));
        array.write_at(&expected[..4096], 0).unwrap();
        array.stop().unwrap();
        assert!(!bad_blocks(&members, 1).0, "{level}: no list");
        mdadm_agrees(&members, &format!("{level} after bad blocks"));
    }
}

#[test]
fn a_bad_block_without_redundancy_is_an_error_and_costs_no_member_its_place() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    spoil(&members, 0, &[64..72, 300..301]);
    spoil(&members, 1, &[68..80, 90..91]);
    let array = run(&members.opened(Access::ReadWrite));
    let mut bytes = vec![1; 8 * 512];
    assert_eq!(array.read_at(&mut bytes, 64 * 512), Err(ArrayError::Request(RequestError::Io)));
    array.read_at(&mut bytes, 296 * 512).unwrap();
    array.read_at(&mut bytes[..4 * 512], 64 * 512).unwrap();
    assert!(bytes == vec![0; 8 * 512], "read from the other copy");
    array.write_at(&[3; 16 * 512], 64 * 512).unwrap();
    array.read_at(&mut bytes, 64 * 512).unwrap();
    assert!(bytes == vec![3; 8 * 512]);
    // What could be read elsewhere was written back; no member was failed.
    let events = array.take_events();
    let is_corrected = |event: &Event| matches!(event, Event::Corrected { .. });
    assert!(!events.is_empty() && events.iter().all(is_corrected), "{events:?}");
    array.stop().unwrap();
    let ranges = |number| bad_blocks(&members, number).1.sectors();
    assert_eq!((ranges(0), ranges(1)), (0, 1), "what was not touched is still bad");
}

#[test]
fn a_fua_write_over_a_listed_bad_block_is_durable_with_the_list() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    spoil(&members, 1, &[64..72, 80..88, 300..301]);
    let opened = members.opened(Access::ReadWrite);
    let metadata = opened[1].superblock.metadata();
    let (place, start) = (metadata.bad_blocks.expect("a list"), metadata.data_offset);
    // What is on the member now, while the array has it.
    let listed = || {
        let log = place.area.sector as usize * 512;
        let bytes = std::fs::read(members.path(1)).unwrap();
        let log = &bytes[log..log + place.area.sectors as usize * 512];
        BadBlocks::decode(log, place.shift).unwrap()
    };
    let on_device = |ranges: &[std::ops::Range<u64>]| -> Vec<_> {
        ranges.iter().map(|range| start + range.start..start + range.end).collect()
    };
    let array = run(&opened);
    // Written, but not durable: it stays on the list.
    array.write_at(&[2; 8 * 512], 80 * 512).unwrap();
    let mut lease = array.lease(4 * 512);
    lease.bytes_mut().fill(3);
    array.write_fua(lease, 66 * 512).wait().unwrap();
    assert_eq!(listed().ranges(), on_device(&[64..66, 70..72, 80..88, 300..301]));
    array.flush().unwrap();
    assert_eq!(listed().ranges(), on_device(&[64..66, 70..72, 300..301]));
    drop(array);
}

#[test]
fn a_flush_that_fails_on_the_last_member_leaves_the_array_unclean() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    let (array, flawed) = flawed(&members, false, Errno::IO);
    flawed.mend();
    array.fail_member(MemberIdx(0));
    array.write_at(&[1; 8192], 0).unwrap();
    flawed.sync_fails.store(true, Ordering::SeqCst);
    assert_eq!(array.flush(), Err(ArrayError::Request(RequestError::Io)));
    array.flush().unwrap();
    assert_eq!(array.stop(), Err(ArrayError::Unclean));
    drop(flawed);
    let opened = members.opened(Access::ReadOnly);
    assert_eq!(opened[1].superblock.state().resync_offset, Some(0), "in sync nowhere");
}

#[test]
fn a_list_of_bad_blocks_that_is_none_is_refused_by_name() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    spoil(&members, 1, &[64..72, 90..91]);
    let device = members.device(1, Access::ReadWrite);
    let place = Opened::device(device.clone()).unwrap().superblock.metadata().bad_blocks.unwrap();
    device.write(place.area.sector, &[0; 512]).unwrap();
    drop(device);
    let before = members.hashes();
    let error = started(&members.opened(Access::ReadWrite), &Options::default()).err().unwrap();
    let text = error.to_string();
    assert!(text.contains("m1: its list of bad blocks: ") && text.contains("entry"), "{text}");
    assert!(members.hashes() == before, "nothing was written");
}

/// Changes what the superblock of a member says.
fn change(members: &Members, number: usize, change: impl FnOnce(&mut ArrayState, usize)) {
    let device = members.device(number, Access::ReadWrite);
    let superblock = Opened::device(device.clone()).expect("superblock").superblock;
    let (own, mut state) = (superblock.metadata().dev_number as usize, superblock.state());
    change(&mut state, own);
    let superblock = superblock.with_state(&state, own).unwrap();
    device.write(superblock.sector(), &superblock.encode(512)).unwrap();
}

/// Makes the members of an array say that it was in use, from this position on.
fn make_dirty(members: &Members, resync_offset: u64) {
    for number in 0..members.count {
        change(members, number, |state, _| state.resync_offset = Some(resync_offset));
    }
}

/// A RAID 5 with partial parity logs that was in use, and what it holds.
fn with_logs(change: impl FnOnce(&mut Request)) -> (Members, Vec<u8>) {
    let members = Members::new(4);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.chunk_sectors = Some(128);
        request.policy = Some(Policy::Ppl);
        change(request);
    });
    let array = run(&members.opened(Access::ReadWrite));
    let expected = pattern(0x5151_7373, array.len_bytes() as usize);
    array.write_at(&expected, 0).unwrap();
    array.stop().unwrap();
    make_dirty(&members, 0);
    (members, expected)
}

/// The log area of a member, opened to be changed.
fn log_of(members: &Members, number: usize) -> (Arc<Device>, Area, Uuid) {
    let device = members.device(number, Access::ReadWrite);
    let metadata = Opened::device(device.clone()).expect("superblock").superblock.metadata();
    (device, metadata.ppl.expect("a log").area, metadata.set_uuid)
}

/// An array without its member 2.
fn started_without_2(members: &Members) -> Result<Vec<Driver>, StartError> {
    let mut opened = members.opened(Access::ReadWrite);
    opened.remove(2);
    started(&opened, &Options::default())
}

fn refused_without_2(members: &Members) -> String {
    let before = members.hashes();
    let error = started_without_2(members).err().expect("a refusal").to_string();
    assert!(members.hashes() == before, "nothing was written");
    error
}

#[test]
fn a_degraded_array_is_not_started_from_a_damaged_partial_parity_log() {
    let (members, expected) = with_logs(|_| ());
    // Empty logs that are right: no write was in flight.
    let array = Array::run_shards(started_without_2(&members).unwrap()).unwrap();
    let mut bytes = vec![0; expected.len()];
    array.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected);
    array.stop().unwrap();

    let (device, area, set_uuid) = log_of(&members, 0);
    let mut header = vec![0; 4096];
    device.read(area.sector, &mut header).unwrap();
    let mut damaged = header.clone();
    damaged[532] ^= 1;
    device.write(area.sector, &damaged).unwrap();
    drop(device);
    let error = refused_without_2(&members);
    assert!(error.contains("m0: ") && error.contains("log is damaged"), "{error}");
    assert!(error.contains("slot 2 is missing"), "{error}");

    // An entry whose partial parity is another one. Row 3 has its parity on member 0.
    let entry = PplEntry {
        data_sector: 3 * 3 * 128,
        pp_bytes: 4096,
        data_bytes: 4096,
        parity_slot: 0,
        checksum: 0x1234,
    };
    let (device, ..) = log_of(&members, 0);
    let log = PplHeader { entries: vec![entry], ..PplHeader::empty(set_uuid) };
    device.write(area.sector, &log.encode()).unwrap();
    drop(device);
    let error = refused_without_2(&members);
    assert!(error.contains("m0: ") && error.contains("partial parity"), "{error}");

    // No log at all.
    let (device, ..) = log_of(&members, 0);
    device.write_zeroes(area.sector..area.sector + area.sectors).unwrap();
    drop(device);
    let error = refused_without_2(&members);
    assert!(error.contains("m0: ") && error.contains("log"), "{error}");

    // With all members, what a log cannot say is resynced.
    let array = run(&members.opened(Access::ReadWrite));
    wait_for(&array, "resync", |status| status.resync_offset.is_none());
    array.stop().unwrap();
    for lost in 0..4 {
        assert!(contents(&members, &[lost]) == expected, "without {lost}");
    }
}

#[test]
fn a_damaged_log_does_not_matter_where_no_data_is_missing() {
    // All parity is on the last member.
    let (members, expected) =
        with_logs(|request| request.layout = Some(Layout::Raid5(md::Raid5Layout::ParityLast)));
    for number in 0..4 {
        let (device, area, _) = log_of(&members, number);
        device.write(area.sector, &[0x5a; 4096]).unwrap();
    }
    let mut opened = members.opened(Access::ReadWrite);
    opened.pop();
    let array = run(&opened);
    let mut bytes = vec![0; expected.len()];
    array.read_at(&mut bytes, 0).unwrap();
    assert!(bytes == expected);
    array.stop().unwrap();
}

#[test]
fn a_partial_parity_log_does_not_stand_for_a_resync_that_never_finished() {
    let (members, _) = with_logs(|_| ());
    make_dirty(&members, 2048);
    let error = refused_without_2(&members);
    assert!(error.contains("may be wrong"), "{error}");
    let mut opened = members.opened(Access::ReadWrite);
    opened.remove(2);
    let forced = Options { force: true, ..Options::default() };
    let array = Array::run_shards(started(&opened, &forced).unwrap()).unwrap();
    array.stop().unwrap();
}

#[test]
fn a_forced_start_does_not_call_the_array_clean_with_the_count_at_which_it_was_not() {
    let members = Members::new(4);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.chunk_sectors = Some(128);
    });
    make_dirty(&members, 0);
    for number in [0, 3] {
        change(&members, number, |state, _| state.events += 1);
    }
    let mut opened = members.opened(Access::ReadWrite);
    let events = opened[0].superblock.metadata().events;
    let behind = Arc::new(Flawed::new(opened[1].device.clone().expect("a device")));
    opened[1] = Opened::disk(behind.clone()).expect("superblock");
    opened.remove(2);
    let forced = Options { force: true, ..Options::default() };
    let array = Array::run_shards(started(&opened, &forced).unwrap()).unwrap();
    array.write_at(&[1; 4096], 0).unwrap();
    drop(array);
    // The power goes when the member that was behind has been brought up to date.
    let written = behind.metadata.lock().unwrap();
    let superblocks = written.iter().map(|(_, bytes)| SuperblockV1::decode(bytes, Version::V1_2));
    let superblocks: Vec<_> = superblocks.map(|it| it.expect("superblocks").0.state()).collect();
    let caught_up = &superblocks[0];
    assert_eq!((caught_up.events, caught_up.resync_offset), (events, Some(0)));
    assert_eq!(superblocks[1].events, events + 1);
}

#[test]
fn a_rebuild_that_had_begun_begins_again_in_its_slot_and_the_start_says_so() {
    let members = Members::new(4);
    members.create(Level::Raid5, |request| {
        request.assume_clean = true;
        request.chunk_sectors = Some(128);
    });
    change(&members, 2, |state, own| {
        state.devices[own].as_mut().expect("itself").recovery_offset = Some(4096);
    });
    let before = members.hashes();
    let array = run(&members.opened(Access::ReadWrite));
    let notes = array.take_notes();
    assert!(notes.len() == 1 && notes[0].contains("m2 is in sync"), "{notes:?}");
    assert!(notes[0].contains("slot 2") && notes[0].contains("4096"), "{notes:?}");
    array.stop().unwrap();
    assert!(members.hashes() == before, "a start leaves no trace");
    // Also when the power goes while it is in use.
    for stops in [false, true] {
        let array = run(&members.opened(Access::ReadWrite));
        array.write_at(&pattern(77, 1 << 20), 0).unwrap();
        array.flush().unwrap();
        if stops {
            array.stop().unwrap();
        } else {
            drop(array);
            for number in 0..4 {
                // Dirty and degraded would not start: this is about the member.
                change(&members, number, |state, _| state.resync_offset = None);
            }
        }
        let opened = members.opened(Access::ReadOnly);
        let metadata: Vec<_> = opened.iter().map(|opened| opened.superblock.metadata()).collect();
        assert!(metadata.iter().all(|other| other.events == metadata[0].events));
        assert_eq!((metadata[2].role, metadata[2].recovery_offset), (Role::Slot(2), Some(0)));
        assert_eq!(metadata[0].roles[2], Role::Slot(2));
        let recovering = MemberState::Recovering { slot: MemberIdx(2), up_to: 0 };
        let found = decide(&opened, &Options::default());
        assert_eq!(found.members[2].state, recovering);
        assert_eq!(found.read_write.repairs.recoveries[0].from, 0);
    }
    assert!(contents(&members, &[2])[..1 << 20] == pattern(77, 1 << 20));
    let examine =
        std::process::Command::new("mdadm").arg("--examine").arg(members.path(2)).output();
    let Ok(output) = examine else { return println!("mdadm skipped: it is not installed") };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("Recovery Offset : 0 sectors"), "{text}");
    assert!(text.contains("Device Role : Active device 2"), "{text}");
}

#[test]
fn an_incomplete_replacement_is_not_trusted_after_writes_that_it_missed() {
    let members = Members::new(3);
    members.create(Level::Raid1, |request| {
        request.assume_clean = true;
        request.raid_devices = 2;
    });
    for number in 0..3 {
        change(&members, number, |state, _| {
            let replacement = DeviceState {
                recovery_offset: Some(4096),
                replacement: true,
                ..DeviceState::new(Role::Slot(0))
            };
            state.devices.resize(3, None);
            state.devices[2] = Some(replacement);
        });
    }
    let mut opened = members.opened(Access::ReadWrite);
    let up_to = Some(4096);
    let standing = decide(&opened, &Options::default()).members[2].state.clone();
    assert_eq!(standing, MemberState::Replacement { slot: MemberIdx(0), up_to });
    let flawed = Arc::new(Flawed::new(opened[2].device.clone().expect("a device")));
    opened[2] = Opened::disk(flawed.clone()).expect("superblock");
    // Its own superblock cannot be changed.
    *flawed.flaw.lock().unwrap() = Some((0, 128, Errno::NOSPC));
    let array = run(&opened);
    array.write_at(&[1; 4096], 0).unwrap();
    drop((array, opened, flawed));
    let events: Vec<u64> =
        members_metadata(&members).iter().map(|metadata| metadata.events).collect();
    assert!(events[0] >= events[2] + 2, "{events:?}: fresh by count alone");
    // It can.
    for number in 0..3 {
        change(&members, number, |state, _| state.events = 50);
    }
    let array = run(&members.opened(Access::ReadWrite));
    for round in 0..3 {
        array.write_at(&[round; 4096], 0).unwrap();
        wait_for(&array, "clean", |status| !status.dirty);
    }
    array.write_at(&[1; 4096], 0).unwrap();
    drop(array);
    let metadata = members_metadata(&members);
    assert!(metadata.iter().all(|other| other.events == metadata[0].events));
    assert_eq!((metadata[2].role, metadata[2].recovery_offset), (Role::Slot(0), Some(0)));
    assert!(metadata[2].replacement);
}

fn members_metadata(members: &Members) -> Vec<MemberMetadata> {
    let opened = members.opened(Access::ReadOnly);
    opened.iter().map(|opened| opened.superblock.metadata()).collect()
}

#[test]
fn an_array_that_ends_inside_of_a_block_is_refused_by_member_and_field() {
    for (level, field) in [(Level::Raid1, "size"), (Level::Linear, "data_size")] {
        let members = Members::new(2);
        members.create(level, |request| {
            request.assume_clean = level == Level::Raid1;
            request.used_sectors = (level == Level::Raid1).then_some(2002);
            for device in request.devices.iter_mut().flatten().filter(|_| level == Level::Linear) {
                device.sectors -= 3;
            }
        });
        let opened = members.opened(Access::ReadWrite);
        let metadata = opened[0].superblock.metadata();
        let sectors = if field == "size" { 2002 } else { metadata.data_sectors };
        assert!(!sectors.is_multiple_of(8), "{sectors}");
        let array = run(&opened);
        array.stop().unwrap();
        // One member with blocks of 4 KiB is enough.
        let mut opened = opened;
        let device = opened[1].device.clone().expect("a device");
        let flawed = Flawed { logical_block: 4096, ..Flawed::new(device) };
        opened[1] = Opened::disk(Arc::new(flawed)).expect("superblock");
        let before = members.hashes();
        let error = started(&opened, &Options::default()).err().expect("a refusal").to_string();
        let says = format!("m0: the array uses {sectors} sectors of it ({field}), which is not");
        assert!(error.contains(&says), "{error}");
        assert!(error.contains("4096 bytes") && error.contains("m1"), "{error}");
        assert!(members.hashes() == before, "nothing was written");
    }
}

/// One of the blocks that `Written` keeps account of, in bytes.
const BLOCK: u64 = 16 << 10;

/// What was written over and over, at random, with the seed of each block.
struct Written {
    seeds: Vec<u64>,
    rng: u64,
}

impl Written {
    fn all_of(array: &Array) -> Written {
        let blocks = array.len_bytes() / BLOCK;
        let mut written = Written { seeds: vec![0; blocks as usize], rng: 1 };
        for at in 0..blocks {
            written.write(array, at).unwrap();
        }
        array.flush().unwrap();
        written
    }

    fn random(&mut self) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng
    }

    fn write(&mut self, array: &Array, at: u64) -> Result<(), ArrayError> {
        let seed = self.random();
        array.write_at(&pattern(seed, BLOCK as usize), at * BLOCK)?;
        self.seeds[at as usize] = seed;
        Ok(())
    }

    fn write_some(&mut self, array: &Array, count: usize) {
        for _ in 0..count {
            let at = self.random() % self.seeds.len() as u64;
            self.write(array, at).unwrap();
        }
    }

    fn check(&self, array: &Array) {
        let mut bytes = vec![0; BLOCK as usize];
        for (at, seed) in (0..).zip(&self.seeds) {
            array.read_at(&mut bytes, at * BLOCK).unwrap();
            assert!(bytes == pattern(*seed, BLOCK as usize), "block {at}");
        }
    }
}

#[test]
fn a_member_file_that_is_cut_short_is_gone_and_nothing_is_written_behind_the_cut() {
    for (level, count, version, direct) in [
        (Level::Raid5, 4, Version::V1_2, false),
        (Level::Raid5, 4, Version::V1_0, true),
        (Level::Raid1, 2, Version::V1_2, true),
        (Level::Raid1, 2, Version::V1_0, false),
    ] {
        let members = Members::new(count);
        members.create(level, |request| {
            request.assume_clean = true;
            request.version = version;
            request.chunk_sectors = (level == Level::Raid5).then_some(128);
        });
        let opened: Vec<Opened> = (0..count)
            .map(|number| {
                let options = DeviceOptions { access: Access::ReadWrite, direct };
                let device = Device::open(&Location::whole(members.path(number)), options).unwrap();
                Opened::device(Arc::new(device)).expect("superblock")
            })
            .collect();
        let array = run(&opened);
        let mut written = Written::all_of(&array);
        let cut = 6 << 20;
        let file = std::fs::File::options().write(true).open(members.path(1)).unwrap();
        file.set_len(cut).unwrap();
        let context = format!("{level:?} {version:?} {direct}");
        // The last block comes first: the file would be as long as before.
        written.write(&array, array.len_bytes() / BLOCK - 1).unwrap();
        written.write_some(&array, 300);
        written.check(&array);
        let failed = Event::MemberFailed { member: MemberIdx(1), error: Some(MemberError::Gone) };
        assert_eq!(array.take_events(), [failed], "{context}");
        array.stop().unwrap();
        assert_eq!(file.metadata().unwrap().len(), cut, "{context}");
        drop(opened);
    }
}

#[test]
fn a_cut_that_reads_meet_first_is_no_bad_sector() {
    let members = Members::new(2);
    members.create(Level::Raid1, |request| request.assume_clean = true);
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    let written = Written::all_of(&array);
    let file = std::fs::File::options().write(true).open(members.path(0)).unwrap();
    file.set_len(6 << 20).unwrap();
    for _ in 0..3 {
        written.check(&array);
    }
    let failed = Event::MemberFailed { member: MemberIdx(0), error: Some(MemberError::Gone) };
    assert_eq!(array.take_events(), [failed]);
    array.stop().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 6 << 20);
}

#[test]
fn without_redundancy_a_cut_is_an_error_and_the_file_stays_as_short() {
    let members = Members::new(2);
    members.create(Level::Raid0, |request| request.chunk_sectors = Some(128));
    let opened = members.opened(Access::ReadWrite);
    let array = run(&opened);
    let last = array.len_bytes() - 4096;
    array.write_at(&[1; 4096], last).unwrap();
    let files = [0, 1].map(|number| {
        let file = std::fs::File::options().write(true).open(members.path(number)).unwrap();
        file.set_len(6 << 20).unwrap();
        file
    });
    for at in [last, last - (64 << 10), last] {
        let error = array.write_at(&[2; 4096], at).unwrap_err();
        assert!(matches!(error, ArrayError::Request(RequestError::Io)), "{error:?}");
    }
    assert!(array.read_at(&mut [0; 4096], last).is_err());
    assert!(files.iter().all(|file| file.metadata().unwrap().len() == 6 << 20));
}

/// A loop device, gone when dropped.
struct Loop(String);

impl Loop {
    fn over(path: &Path) -> Option<Loop> {
        let output =
            std::process::Command::new("losetup").args(["--show", "-f"]).arg(path).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(Loop(String::from_utf8_lossy(&output.stdout).trim().to_string()))
    }

    fn run(&self, argument: &str) {
        let _ = std::process::Command::new("losetup").args([argument, &self.0]).output();
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.run("-d");
    }
}

#[test]
fn a_disk_that_is_pulled_is_gone_and_costs_no_request() {
    for (level, count) in [(Level::Raid5, 4), (Level::Raid1, 2)] {
        for direct in [false, true] {
            let members = Members::new(count);
            members.create(level, |request| {
                request.assume_clean = true;
                request.chunk_sectors = (level == Level::Raid5).then_some(128);
            });
            let loops: Option<Vec<Loop>> =
                (0..count).map(|number| Loop::over(&members.path(number))).collect();
            let Some(loops) = loops else {
                println!("skipped: no loop device can be had here");
                return;
            };
            let opened: Vec<Opened> = (loops.iter())
                .map(|device| {
                    let options = DeviceOptions { access: Access::ReadWrite, direct };
                    let device = Device::open(&Location::whole(&device.0), options).unwrap();
                    Opened::device(Arc::new(device)).expect("superblock")
                })
                .collect();
            let array = run(&opened);
            let mut written = Written::all_of(&array);
            // What a pulled disk looks like: its capacity is 0.
            let file = std::fs::File::options().write(true).open(members.path(1)).unwrap();
            file.set_len(0).unwrap();
            loops[1].run("-c");
            written.write_some(&array, 300);
            written.check(&array);
            array.flush().unwrap();
            let gone = Some(MemberError::Gone);
            let failed = Event::MemberFailed { member: MemberIdx(1), error: gone };
            assert_eq!(array.take_events(), [failed], "{level:?} {direct}");
            array.stop().unwrap();
        }
    }
}

/// Array bytes that lie on a member in the first rows of RAID 5, left-symmetric, of `members` with
/// chunks of 64 KiB: a list of (offset of the chunk, member).
fn chunks(members: usize, rows: u64) -> Vec<(u64, u16)> {
    let layout = Layout::Raid5(md::Raid5Layout::LeftSymmetric);
    let member_sectors = vec![rows * 128; members];
    let spec = md::GeometrySpec { level: Level::Raid5, layout, chunk_sectors: 128, member_sectors };
    let geometry = md::Geometry::new(&spec).unwrap();
    let md::Kind::Parity(parity) = geometry.kind() else { unreachable!("RAID 5") };
    let chunk = |number: u64| {
        let place = parity.locate(md::Sector(number * 128));
        (number << 16, parity.row(place.stripe).data[usize::from(place.index)].0)
    };
    (0..rows * (members as u64 - 1)).map(chunk).collect()
}

#[test]
fn on_used_disks_only_data_written_ahead_of_the_resync_survive_a_loss() {
    let members = Members::new(5);
    for number in 0..5 {
        std::fs::write(members.path(number), pattern(number as u64 + 3, SECTORS as usize * 512))
            .unwrap();
    }
    members.create(Level::Raid5, |request| request.chunk_sectors = Some(128));
    let opened = members.opened(Access::ReadWrite);
    let mut shards = started(&opened, &Options::default()).unwrap();
    shards[0].pause_resync(true);
    let array = Array::run_shards(shards).unwrap();
    for lost in 0..4u16 {
        let on_lost = chunks(5, 8).into_iter().filter(|(_, member)| *member == lost);
        for (offset, _) in on_lost {
            array.write_at(&pattern(offset + 7, 4096), offset + 8192).unwrap();
        }
    }
    array.flush().unwrap();
    array.fail_member(MemberIdx(2));
    while array.failed().is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut bytes = vec![0; 4096];
    for (offset, member) in chunks(5, 8).into_iter().filter(|(_, member)| *member < 4) {
        array.read_at(&mut bytes, offset + 8192).unwrap();
        assert_eq!(bytes, pattern(offset + 7, 4096), "chunk at {offset} on member {member}");
        let beside = array.read_at(&mut bytes, offset + 32768);
        assert_eq!(beside.is_err(), member == 2, "chunk at {offset} on member {member}");
    }
    array.stop().unwrap();
}
