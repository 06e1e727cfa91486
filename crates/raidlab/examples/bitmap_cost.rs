//! What a write-intent bitmap costs: the same load on the same array with a bitmap and without one,
//! in turn, on modelled NVMe SSDs whose metadata writes and flushes take the drive's time as well.
//!
//! ```text
//! cargo run --release -p raidlab --example bitmap_cost [BURSTS [DIRECTORY]]
//! ```
//! Each burst writes for 4 s, at a part of the array of its own, so that its bits are not set yet;
//! then the array rests for 1 s. Members store no data, which the load does not read; metadata are
//! in files below the directory.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use array::{
    ArrayMetadata, ArraySpec, Completion, DataPlaneConfig, Driver, DriverOptions, HostOp, Lease,
    MemberSpec, MetadataDevice, NullMember, PaceControl, PacedMember,
};
use device::{Access, Device, DeviceOptions, Disk, DiskLayer, Location};
use drive::{DriveId, Placement, Profile};
use engine::{DeviceNumber, MetadataConfig, MetadataManager};
use md::assemble::{Candidate, Options, StartMember, StartPlan, assemble};
use md::create::{self, BitmapOption, Request};
use md::ondisk::{MemberMetadata, Timestamp, Uuid};
use md::{Level, SECTOR_BYTES, Sector};

const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 16 << 30;
const BITMAP_CHUNK: u64 = 128 << 10;
/// Parts of the array; each burst writes to one of its own, of 21,845 bits.
const PARTS: u64 = 6;
const CHUNK_SECTORS: u64 = 128;
const DEPTH: usize = 32;
const BURST: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_secs(1);
const PLACEMENT: Placement = Placement::Window { at: 0.0 };

fn main() {
    let mut arguments = std::env::args().skip(1);
    let bursts: u64 = arguments.next().map_or(3, |text| text.parse().expect("a number"));
    assert!(bursts <= PARTS, "at most {PARTS} bursts: each has a part of its own");
    let parent = arguments.next().map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    println!(
        "RAID 5 of {MEMBERS} nvme-ssd, {} GiB each, chunk 64 KiB, bitmap chunk {} KiB, depth \
         {DEPTH}; bursts of {BURST:?}, rests of {PAUSE:?}",
        MEMBER_BYTES >> 30,
        BITMAP_CHUNK >> 10
    );
    for (name, block_sectors) in [("sequential, full stripes", 0), ("random 4 KiB", 8)] {
        let mut rates = [Vec::new(), Vec::new()];
        let mut arrays = [false, true].map(|bitmap| Load::new(&parent, bitmap, block_sectors));
        for burst in 0..bursts {
            for (load, rates) in arrays.iter_mut().zip(&mut rates) {
                let (rate, set) = load.burst(burst);
                rates.push(rate);
                let bits = match load.has_bitmap {
                    true => format!("bitmap, {set} bits newly set"),
                    false => "no bitmap".into(),
                };
                println!("{name}, burst {burst}: {:.1} MB/s, {bits}", rate / 1e6);
            }
        }
        let median = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let [without, with] = rates.each_mut().map(median);
        println!(
            "{name}: {:.1} MB/s without, {:.1} with: {:.1} % less",
            without / 1e6,
            with / 1e6,
            (1.0 - with / without) * 100.0
        );
    }
}

/// The metadata area of a modelled drive: contents in a file, time by the drive's model.
struct PacedDisk {
    device: Arc<Device>,
    /// An array of the one member that takes the time.
    time: Mutex<Driver>,
}

impl PacedDisk {
    fn new(device: Arc<Device>, pace: &PaceControl, disk: DriveId) -> PacedDisk {
        let nothing = Box::new(NullMember::new(device.sectors()));
        let member = PacedMember::part(nothing, pace, disk, 0);
        let spec = ArraySpec {
            level: Level::Linear,
            layout: md::Layout::None,
            chunk_sectors: 0,
            members: vec![MemberSpec::ready(member)],
            data_plane: DataPlaneConfig::default(),
        };
        let options = DriverOptions { leases: 1, ..DriverOptions::default() };
        let time = Driver::new(spec, &options).expect("a valid array");
        PacedDisk { device, time: Mutex::new(time) }
    }

    /// Lets the drive perform an operation.
    fn pass(&self, op: HostOp, sector: u64, bytes: usize) {
        let mut driver = self.time.lock().expect("no panic");
        let whole = bytes.next_multiple_of(SECTOR_BYTES as usize);
        let lease = (bytes > 0).then(|| driver.leases().take(whole).expect("one at a time"));
        let sectors = whole as u64 / SECTOR_BYTES;
        driver.submit(op, Sector(sector), sectors, lease, 0).expect("room");
        let mut done = Vec::new();
        while done.is_empty() {
            driver.poll(&mut done);
            if done.is_empty() {
                driver.wait(Duration::from_millis(100), None);
            }
        }
    }
}

impl DiskLayer for PacedDisk {
    fn below(&self) -> &dyn Disk {
        &*self.device
    }

    fn write(&self, sector: u64, buf: &[u8]) -> std::io::Result<()> {
        self.pass(HostOp::Write { fua: false }, sector, buf.len());
        self.device.write(sector, buf)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.pass(HostOp::Flush, 0, 0);
        Ok(())
    }
}

/// A new array and its load.
struct Load {
    driver: Driver,
    has_bitmap: bool,
    leases: Vec<Lease>,
    block: u64,
    is_random: bool,
    state: u64,
    _files: Files,
}

struct Files(std::path::PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Load {
    /// `block_sectors`: of random writes; 0: full stripes, one behind the other.
    fn new(parent: &Path, has_bitmap: bool, block_sectors: u64) -> Load {
        let name = format!("raidlab-bitmap-{}-{has_bitmap}-{block_sectors}", std::process::id());
        let files = Files(parent.join(name));
        let driver = start(&files.0, has_bitmap);
        let stripe = driver.geometry().stripe_sectors();
        let block = if block_sectors == 0 { stripe } else { block_sectors };
        let bytes = (block * SECTOR_BYTES) as usize;
        let leases = (0..DEPTH).map(|_| driver.leases().take(bytes).expect("a buffer")).collect();
        let is_random = block_sectors > 0;
        let state = 88_172_645;
        let mut load = Load { driver, has_bitmap, leases, block, is_random, state, _files: files };
        load.settle();
        load
    }

    /// A new bitmap has all bits set. They are cleared after the first write.
    fn settle(&mut self) {
        let mut done = Vec::new();
        let lease = self.leases.pop().expect("a buffer");
        let op = HostOp::Write { fua: false };
        self.driver.submit(op, Sector(0), self.block, Some(lease), 0).expect("room");
        while self.leases.len() < DEPTH || self.bits_set() > 0 {
            self.turn(&mut done, Duration::from_millis(10));
        }
    }

    fn bits_set(&self) -> u64 {
        self.driver.metadata().map_or(0, |status| status.bits_set)
    }

    /// Writes for the length of a burst at its part of the array, and rests: bytes per second, and
    /// bits that were set.
    fn burst(&mut self, burst: u64) -> (f64, u64) {
        let blocks = self.driver.info().sectors / self.block;
        let part = burst * blocks / PARTS..(burst + 1) * blocks / PARTS;
        let (mut next, mut bytes) = (part.start, 0);
        let mut done: Vec<Completion> = Vec::new();
        // Those of earlier bursts fade.
        while self.bits_set() > 0 {
            self.turn(&mut done, Duration::from_millis(10));
        }
        let start = Instant::now();
        while start.elapsed() < BURST {
            while let Some(lease) = self.leases.pop() {
                let block = match self.is_random {
                    true => part.start + self.draw() % (part.end - part.start),
                    false => next,
                };
                next = if next + 1 == part.end { part.start } else { next + 1 };
                let (at, op) = (Sector(block * self.block), HostOp::Write { fua: false });
                self.driver.submit(op, at, self.block, Some(lease), 0).expect("room");
            }
            bytes += self.turn(&mut done, Duration::from_millis(100));
        }
        let rate = bytes as f64 / start.elapsed().as_secs_f64();
        let set = self.bits_set();
        let start = Instant::now();
        while start.elapsed() < PAUSE || self.leases.len() < DEPTH {
            self.turn(&mut done, Duration::from_millis(10));
        }
        (rate, set)
    }

    fn turn(&mut self, done: &mut Vec<Completion>, limit: Duration) -> u64 {
        self.driver.poll(done);
        if done.is_empty() {
            self.driver.wait(limit, None);
        }
        let mut bytes = 0;
        for end in done.drain(..) {
            end.result.expect("written");
            let lease = end.lease.expect("a write has a buffer");
            bytes += lease.len() as u64;
            self.leases.push(lease);
        }
        bytes
    }

    fn draw(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

/// Creates an array below a directory and starts it over modelled drives.
fn start(directory: &Path, has_bitmap: bool) -> Driver {
    std::fs::create_dir(directory).expect("a directory");
    let devices: Vec<Arc<Device>> = (0..MEMBERS).map(|at| device(directory, at)).collect();
    create(&devices, has_bitmap);
    let (pace, profile) = (PaceControl::default(), Profile::named("nvme-ssd").expect("a profile"));
    let drives: Vec<DriveId> = devices
        .iter()
        .map(|_| pace.add_disk(profile, PLACEMENT, MEMBER_BYTES, None, None))
        .collect();
    let disks = devices.iter().zip(&drives);
    let disks = disks.map(|(device, drive)| PacedDisk::new(device.clone(), &pace, *drive));
    let disks: Vec<Arc<dyn Disk>> = disks.map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
    let opened: Vec<admin::Opened> =
        disks.iter().map(|disk| admin::Opened::disk(disk.clone()).expect("it is new")).collect();
    let candidates: Vec<Candidate> = opened.iter().map(admin::Opened::candidate).collect();
    let found = assemble(&candidates, &Options::default()).arrays.remove(0);
    let metadata: Vec<MemberMetadata> = opened.iter().map(|it| it.superblock.metadata()).collect();
    let members = opened.iter().zip(&metadata).map(|(it, metadata)| StartMember {
        label: "member",
        logical_block: it.disk.logical_block(),
        read_only: false,
        superblock: &it.superblock,
        metadata,
    });
    let plan = StartPlan::new(&found, members.collect()).expect("it is clean");
    let bitmap = plan.bitmap().map(|(candidate, area)| {
        let mut file = vec![0; (area.sectors * SECTOR_BYTES) as usize];
        disks[candidate].read(area.sector, &mut file).expect("a bitmap");
        let bitmap = plan.check_bitmap(area, &file[..4096]).expect("a bitmap of ours");
        let bits = bitmap.bits(&file).to_vec();
        (bitmap, bits)
    });
    assert_eq!(bitmap.is_some(), has_bitmap);
    let header = bitmap.as_ref().map(|(bitmap, _)| bitmap.header.clone());
    let kept = bitmap.as_ref().map(|(bitmap, bits)| (bitmap, bits.clone()));
    let manager = MetadataManager::new(MetadataConfig::of_start(&plan, None, &[], kept, 1));
    let devices = opened.iter().zip(&metadata).map(|(it, metadata)| MetadataDevice {
        number: DeviceNumber(metadata.dev_number),
        disk: it.disk.clone(),
        superblock: it.superblock.clone(),
        bitmap: metadata.bitmap.zip(header.clone()),
        ppl: None,
    });
    let devices = devices.collect();
    let members = plan.serving().iter().map(|(_, source)| {
        let area = plan.data_area(source);
        let nothing = Box::new(NullMember::new(area.end - area.start));
        let at = area.start * SECTOR_BYTES;
        MemberSpec::ready(PacedMember::part(nothing, &pace, drives[source.candidate], at))
    });
    let spec = ArraySpec {
        level: Level::Raid5,
        layout: plan.geometry().layout(),
        chunk_sectors: CHUNK_SECTORS,
        members: members.collect(),
        data_plane: DataPlaneConfig::default(),
    };
    let metadata = ArrayMetadata {
        manager,
        devices,
        spares: Vec::new(),
        replacements: Vec::new(),
        log: None,
        notes: Vec::new(),
    };
    let options = DriverOptions::default();
    Driver::managed(spec, &options, metadata).expect("a valid array").remove(0)
}

fn device(directory: &Path, number: usize) -> Arc<Device> {
    let path = directory.join(number.to_string());
    let file = std::fs::File::create(&path).and_then(|file| file.set_len(MEMBER_BYTES));
    file.expect("a sparse file");
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    Arc::new(Device::open(&Location::whole(path), options).expect("it is new"))
}

fn create(devices: &[Arc<Device>], has_bitmap: bool) {
    let device = |(number, device): (usize, &Arc<Device>)| create::Device {
        label: device.name(),
        sectors: device.sectors(),
        logical_block: 512,
        uuid: Uuid([number as u8 + 1; 16]),
        data_offset: None,
        write_mostly: false,
        failfast: false,
    };
    let list = devices.iter().enumerate().map(device).collect();
    let now = Timestamp { seconds: 1_700_000_000, micros: 0 };
    let mut request = Request::new(Level::Raid5, list, Uuid([7; 16]), now);
    request.chunk_sectors = Some(CHUNK_SECTORS);
    request.assume_clean = true;
    request.bitmap = match has_bitmap {
        true => BitmapOption::Internal { chunk_bytes: Some(BITMAP_CHUNK) },
        false => BitmapOption::None,
    };
    let plan = create::plan(&request).expect("a plan");
    let disks = devices.iter().map(|device| Some(device.clone() as Arc<dyn Disk>));
    let disks: Vec<_> = disks.collect();
    admin::create(&plan, &disks, admin::CreateOptions { force: true }).expect("created");
}
