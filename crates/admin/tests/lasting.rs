//! Persistent arrays: created, started, stopped, dropped as by a crash, started again.

#[path = "lasting/devices_gone.rs"]
mod devices_gone;
#[path = "lasting/slow_metadata.rs"]
mod slow_metadata;
#[path = "lasting/starts.rs"]
mod starts;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use admin::rescue::{Piece, StreamOptions, prepare, stream};
use admin::{CreateFailed, CreateOptions, Opened, StartError, StartOptions, create, start_shards};
use array::{Array, ArrayError, Driver, DriverOptions, Event, HostOp, RequestError};
use device::{Access, Device, DeviceOptions, Disk, Location, open_overlay};
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

/// How many shards the arrays have: one, and several as a module of `in_shards.rs`.
fn shards() -> u16 {
    if module_path!().starts_with("in_shards") { 3 } else { 1 }
}

fn started(opened: &[Opened], options: &Options) -> Result<Vec<Driver>, StartError> {
    started_as(opened, options, DriverOptions::default())
}

fn started_as(
    opened: &[Opened],
    options: &Options,
    driver: DriverOptions,
) -> Result<Vec<Driver>, StartError> {
    let (shards, shard_unit_sectors) = (shards(), 64);
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
