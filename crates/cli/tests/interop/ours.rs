//! raidlab's side of each exchange with the kernel: what is made, seen and written here.
//!
//! Invariant: this is the only file of these tests that uses raidlab's metadata code and engine, so
//! that a test cannot mistake our own opinion for the kernel's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use admin::{
    self as run, CreateOptions, LiveAddition, Opened, RebuildEvent, RebuildOptions, RebuildReport,
    StartOptions,
};
use array::{
    BackgroundWork, DeviceCondition, DeviceNumber, Driver, DriverOptions, HostOp, Lease, Pace,
};
use host::{Access, Device, DeviceOptions, Disk, Location, read_bad_blocks};
use md::assemble::{self, Array as Assembled, Options};
use md::create::{self, BitmapOption, Plan, Request};
use md::ondisk::bad_blocks::BadBlocks;
use md::ondisk::superblock::Policy;
use md::ondisk::{MemberMetadata, Timestamp, Uuid, Version};
use md::{Layout, MemberIdx, SECTOR_BYTES, Sector};
use sha2::{Digest as _, Sha256};

use crate::matrix::{Log, Shape};

const LOGICAL_BLOCK: u32 = 512;

/// What `raidlab create` would do for this shape.
pub fn plan(shape: &Shape, assume_clean: bool) -> Plan {
    let device = |member| create::Device {
        label: format!("member {member}"),
        sectors: shape.member_bytes(member) / SECTOR_BYTES,
        logical_block: LOGICAL_BLOCK,
        uuid: uuid(&format!("{} member {member}", shape.name())),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let devices = (0..shape.disks).map(device).collect();
    let now = Timestamp { seconds: 1_750_000_000, micros: 0 };
    let mut request = Request::new(shape.level, devices, uuid(&shape.name()), now);
    let parse = |name: &str| Layout::parse(shape.level, name).unwrap_or_else(|e| panic!("{e}"));
    request.layout = (!shape.layout.is_empty()).then(|| parse(shape.layout));
    request.chunk_sectors = (shape.chunk_kib > 0).then_some(shape.chunk_kib as u64 * 2);
    let named = |version: &Version| version.name() == shape.metadata;
    request.version = Version::ALL.into_iter().find(named).expect("a version of md");
    request.assume_clean = assume_clean;
    request.name = "interop".into();
    match shape.log {
        Log::None => request.bitmap = BitmapOption::None,
        Log::Bitmap => {
            let chunk_bytes = Some((shape.bitmap_chunk_kib() << 10) as u64);
            request.bitmap = BitmapOption::Internal { chunk_bytes };
        }
        Log::Ppl => request.policy = Some(Policy::Ppl),
    }
    create::plan(&request).unwrap_or_else(|error| panic!("{}: {error}", shape.name()))
}

/// Another one for each name: arrays that run side by side must not be taken for one.
fn uuid(name: &str) -> Uuid {
    let hash = Sha256::digest(name.as_bytes());
    Uuid(std::array::from_fn(|index| hash[index]))
}

/// Makes the planned array over these images, whatever they hold.
pub fn create(plan: &Plan, images: &[PathBuf]) {
    let device = |path: &PathBuf| Some(open(path, Access::ReadWrite) as Arc<dyn Disk>);
    let disks: Vec<_> = images.iter().map(device).collect();
    let made = run::create(plan, &disks, CreateOptions { force: true });
    made.unwrap_or_else(|error| panic!("{error}"));
}

fn open(path: &Path, access: Access) -> Arc<Device> {
    let options = DeviceOptions { access, direct: false };
    let device = Device::open(&Location::whole(path), options);
    Arc::new(device.unwrap_or_else(|error| panic!("{error}")))
}

fn opened(images: &[PathBuf], access: Access) -> Vec<Opened> {
    let opened = |path: &PathBuf| {
        let opened = Opened::device(open(path, access));
        opened.unwrap_or_else(|| panic!("{}: no superblock", path.display()))
    };
    images.iter().map(opened).collect()
}

fn decide(opened: &[Opened]) -> Assembled {
    let candidates: Vec<_> = opened.iter().map(Opened::candidate).collect();
    let mut found = assemble::assemble(&candidates, &Options::default());
    assert_eq!(found.arrays.len(), 1, "{:?}", found.arrays);
    found.arrays.remove(0)
}

/// The array that the superblocks of these images make up, as we would assemble it.
pub fn assembled(images: &[PathBuf]) -> Assembled {
    decide(&opened(images, Access::ReadOnly))
}

/// What the superblock of each image says.
pub fn superblocks(images: &[PathBuf]) -> Vec<MemberMetadata> {
    let opened = opened(images, Access::ReadOnly);
    opened.iter().map(|opened| opened.superblock.metadata()).collect()
}

/// The array of these images, run by the engine with its keeper. All images are given, also those
/// of members that are out: to leave them out is the assembly's business.
pub fn start(images: &[PathBuf]) -> array::Array {
    let opened = opened(images, Access::ReadWrite);
    let options = StartOptions::default();
    let driver = run::start(&decide(&opened), &opened, &options);
    let driver = driver.unwrap_or_else(|error| panic!("{}: {error}", images[0].display()));
    array::Array::run(driver).unwrap_or_else(|error| panic!("{error}"))
}

/// Rebuilds, with new devices `add`, what `raidlab rebuild` would. When at least this part of the
/// new members is in sync, `reached` is called, and the rebuild is stopped as Ctrl-C stops it.
pub fn rebuild_until(
    part: (u64, u64),
    images: &[PathBuf],
    add: &[PathBuf],
    reached: impl FnMut(),
) -> RebuildReport {
    let add = add.iter().map(|path| path.clone().into()).collect();
    rebuild_part(part, images, RebuildOptions { add, ..RebuildOptions::default() }, reached)
}

/// The same with new devices that replace members: of each the old one and the new one.
pub fn replace_until(
    part: (u64, u64),
    images: &[PathBuf],
    replace: &[(PathBuf, PathBuf)],
) -> RebuildReport {
    let replace = replace.iter().map(|(old, new)| (old.clone().into(), new.clone().into()));
    let options = RebuildOptions { replace: replace.collect(), ..RebuildOptions::default() };
    rebuild_part(part, images, options, || ())
}

/// The same with a RAID 1 that gets this number of slots.
pub fn grow_until(
    part: (u64, u64),
    images: &[PathBuf],
    slots: u32,
    add: &[PathBuf],
) -> RebuildReport {
    let add = add.iter().map(|path| path.clone().into()).collect();
    let raid_devices = Some(slots);
    rebuild_part(part, images, RebuildOptions { add, raid_devices, ..Default::default() }, || ())
}

fn rebuild_part(
    (part, of): (u64, u64),
    images: &[PathBuf],
    options: RebuildOptions,
    mut reached: impl FnMut(),
) -> RebuildReport {
    let options = RebuildOptions { start: in_small_steps(), ..options };
    let stop = AtomicBool::new(false);
    let images: Vec<_> = images.iter().map(|path| path.clone().into()).collect();
    let report = run::rebuild(&images, &options, &stop, &mut |event| {
        if let RebuildEvent::Progress { done, sectors } = event
            && done * of >= sectors * part
        {
            reached();
            stop.store(true, Ordering::Relaxed);
        }
    });
    report.unwrap_or_else(|error| panic!("{error}"))
}

/// The array of these images as `raidlab serve` runs it: rebuilds that had begun are continued, and
/// spares take the slots of members that fail. A rebuild takes a second or two.
pub fn serve(images: &[PathBuf]) -> array::Array {
    let opened = opened(images, Access::ReadWrite);
    let started = run::start_rebuilding(&decide(&opened), &opened, &[], false, &in_small_steps());
    let mut drivers = started.unwrap_or_else(|error| panic!("{}: {error}", images[0].display())).0;
    let array = array::Array::run(drivers.remove(0)).unwrap_or_else(|error| panic!("{error}"));
    array.set_pace(Pace { most_kib_per_s: Some(6 << 10), ..Pace::default() });
    array
}

/// As `raidlab fail`.
pub fn fail(array: &array::Array, slot: u16) {
    array.fail_member(MemberIdx(slot));
    assert!(array.failed().contains(slot), "slot {slot} is not failed");
}

/// As `raidlab add`, or `raidlab replace --with`: the device gets the slot, or is a spare. Waits
/// until no other has it open, and until the superblocks record a spare.
pub fn add_live(array: &array::Array, image: &Path, replaces: Option<u16>) {
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    let mut device = None;
    wait(array, "nothing has the device open", || {
        device = Device::open(&Location::whole(image), options).ok();
        device.is_some()
    });
    let device = Arc::new(device.expect("it is open"));
    let replaces = replaces.map(MemberIdx);
    let how = LiveAddition { replaces, ..LiveAddition::default() };
    let joined = run::add_live(array, &device, &how);
    let number = joined.unwrap_or_else(|error| panic!("{error}")).number;
    wait(array, "the device has joined", || {
        let devices = array.devices();
        let mine = devices.iter().find(|it| it.status.number == number);
        mine.is_some_and(|it| it.status.condition != DeviceCondition::Joining)
    });
}

/// As `raidlab remove`, of a device that has failed.
pub fn remove_live(array: &array::Array, number: u32) {
    let number = DeviceNumber(number);
    let removed = array.remove_device(number).expect("it runs");
    removed.unwrap_or_else(|error| panic!("{error}"));
    wait(array, "it has left", || array.devices().iter().all(|it| it.status.number != number));
}

/// Waits until every slot has a member in sync.
pub fn wait_complete(array: &array::Array) {
    wait(array, "it is complete", || {
        let status = array.metadata().expect("the array has metadata");
        status.degraded == 0 && status.replacing.is_empty()
    });
}

/// Waits until half of a rebuild is done.
pub fn wait_half_rebuilt(array: &array::Array) {
    wait(array, "half is rebuilt", || {
        let (sectors, done) = array.metadata().expect("the array has metadata").rebuild_sectors;
        sectors > 0 && done * 2 >= sectors
    });
}

fn wait(array: &array::Array, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        let long = start.elapsed() > Duration::from_secs(120);
        assert!(!long, "never: {what}: {:?}, {:?}", array.metadata(), array.devices());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A rebuild goes in small steps, one at a time: where it is stopped does not depend on the
/// machine.
fn in_small_steps() -> StartOptions {
    let driver = DriverOptions { max_requests: 1, lease_bytes: 256 << 10, ..Default::default() };
    StartOptions { driver, ..StartOptions::default() }
}

/// Rebuilds half of the members that need it, and stops the array. After a quarter `new` is
/// written to each of these places of the array, while the rebuild rests.
pub fn rebuild_half_and_write(images: &[PathBuf], places: &[usize], new: &[u8]) {
    let opened = opened(images, Access::ReadWrite);
    let started = run::start_rebuilding(&decide(&opened), &opened, &[], false, &in_small_steps());
    let mut driver = started.unwrap_or_else(|error| panic!("{error}")).0.remove(0);
    let mut completions = Vec::new();
    let step = Duration::from_millis(100);
    let mut rebuild_until = |driver: &mut Driver, part: u64, of: u64| loop {
        driver.poll(&mut completions);
        let (sectors, done) = driver.metadata().expect("the array has metadata").rebuild_sectors;
        if done * of >= sectors * part {
            return;
        }
        driver.wait(step, None);
    };
    rebuild_until(&mut driver, 1, 4);
    driver.pause_background(BackgroundWork::Rebuild, true);
    places.iter().for_each(|at| write(&mut driver, *at, new));
    driver.pause_background(BackgroundWork::Rebuild, false);
    rebuild_until(&mut driver, 1, 2);
    assert!(driver.stop(), "{}: not stopped clean", images[0].display());
}

fn write(driver: &mut Driver, at: usize, new: &[u8]) {
    let mut lease = driver.leases().take(new.len()).expect("a buffer");
    lease.bytes_mut().copy_from_slice(new);
    call(driver, HostOp::Write { fua: false }, at, lease);
}

/// Submits a request, and gives its buffer back when it has ended.
fn call(driver: &mut Driver, op: HostOp, at: usize, lease: Lease) -> Lease {
    let (step, bytes) = (Duration::from_millis(100), lease.len() as u64);
    let (at, sectors) = (at as u64 / SECTOR_BYTES, bytes / SECTOR_BYTES);
    let (mut completions, mut lease) = (Vec::new(), Some(lease));
    while let Err(full) = driver.submit(op, Sector(at), sectors, lease.take(), 0) {
        lease = full.0;
        driver.wait(step, None);
        driver.poll(&mut completions);
    }
    while completions.is_empty() {
        driver.poll(&mut completions);
        driver.wait(step, None);
    }
    let ended = completions.remove(0);
    ended.result.expect("the engine does it");
    ended.lease.expect("the buffer")
}

/// Resyncs half of an array that holds anything, and stops it. After a quarter `new` is written
/// below the position, about there, and above, while the resync rests. Gives the contents.
pub fn resync_half_and_write(images: &[PathBuf], new: &[u8]) -> Vec<u8> {
    let opened = opened(images, Access::ReadWrite);
    let started = run::start(&decide(&opened), &opened, &in_small_steps());
    let mut driver = started.unwrap_or_else(|error| panic!("{error}"));
    driver.pause_background(BackgroundWork::Resync, true);
    let mut contents = Vec::new();
    while contents.len() < driver.geometry().array_sectors() as usize * 512 {
        let rest = driver.geometry().array_sectors() as usize * 512 - contents.len();
        let lease = driver.leases().take(rest.min(256 << 10)).expect("a buffer");
        let mut lease = call(&mut driver, HostOp::Read, contents.len(), lease);
        contents.extend_from_slice(lease.bytes_mut());
    }
    driver.pause_background(BackgroundWork::Resync, false);
    let mut completions = Vec::new();
    let mut resync_until = |driver: &mut Driver, done: &dyn Fn(u64) -> bool| loop {
        driver.poll(&mut completions);
        let position = driver.metadata().expect("the array has metadata").resync_offset;
        if done(position.expect("the resync has not ended")) {
            return;
        }
        driver.wait(Duration::from_millis(100), None);
    };
    let geometry = driver.geometry();
    let span = match geometry.level().has_parity() {
        true => geometry.member_used_sectors(md::MemberIdx(0)),
        false => geometry.array_sectors(),
    };
    resync_until(&mut driver, &|at| at >= span / 4);
    driver.pause_background(BackgroundWork::Resync, true);
    let len = contents.len();
    for at in [77, len / 2048 - 100, len / 512 * 3 / 4 + 3].map(|sector| sector * 512) {
        write(&mut driver, at, new);
        contents[at..][..new.len()].copy_from_slice(new);
    }
    driver.pause_background(BackgroundWork::Resync, false);
    resync_until(&mut driver, &|at| at >= span / 2);
    assert!(driver.stop(), "{}: not stopped clean", images[0].display());
    contents
}

/// Waits until all redundancy holds.
pub fn wait_in_sync(array: &array::Array) {
    let start = Instant::now();
    loop {
        let status = array.metadata().expect("the array has metadata");
        if status.resync_offset.is_none() {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "no end of the resync: {status:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The contents, read by the engine.
pub fn contents(array: &array::Array) -> Vec<u8> {
    let mut bytes = vec![0; array.len_bytes() as usize];
    array.read_at(&mut bytes, 0).expect("the engine reads");
    bytes
}

/// A member's list of bad blocks: first sector of the device and number of each range.
pub fn bad_blocks(image: &Path) -> Vec<(u64, u64)> {
    let device = open(image, Access::ReadOnly);
    let place = superblocks(&[image.to_owned()])[0].bad_blocks.expect("room for a list");
    let bad = read_bad_blocks(&*device, place).unwrap_or_else(|error| panic!("{error}"));
    bad.ranges().iter().map(|range| (range.start, range.end - range.start)).collect()
}

/// Makes a member say that it is being rebuilt, up to this sector of its data.
pub fn mark_rebuilt(image: &Path, sector: u64) {
    let device = open(image, Access::ReadWrite);
    let superblock = Opened::device(device.clone()).expect("a superblock").superblock;
    let (own, mut state) = (superblock.metadata().dev_number as usize, superblock.state());
    state.devices[own].as_mut().expect("itself").recovery_offset = Some(sector);
    let superblock = superblock.with_state(&state, own).expect("a superblock");
    device.write(superblock.sector(), &superblock.encode(512)).expect("written");
}

/// Writes a member's list of bad blocks, and that it is in use.
pub fn list_bad(image: &Path, entries: &[(u64, u64)]) {
    let device = open(image, Access::ReadWrite);
    let superblock = Opened::device(device.clone()).expect("a superblock").superblock;
    let (metadata, mut state) = (superblock.metadata(), superblock.state());
    let own = metadata.dev_number as usize;
    state.devices[own].as_mut().expect("itself").bad_blocks_in_use = true;
    let superblock = superblock.with_state(&state, own).expect("a superblock");
    let mut bad = BadBlocks::new();
    bad.extend(entries.iter().map(|(sector, sectors)| *sector..sector + sectors));
    let place = metadata.bad_blocks.expect("room for a list");
    let log = bad.encode(place.area.sectors, place.shift).expect("room for all");
    device.write(place.area.sector, &log).expect("the list is written");
    device.write(superblock.sector(), &superblock.encode(512)).expect("the superblock is written");
}
