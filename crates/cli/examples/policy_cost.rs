//! What a consistency policy costs: the same load on the same RAID 5 with a write-intent bitmap or
//! a partial parity log and with neither, in turn, on modelled drives, whose time metadata, logs
//! and flushes take as well.
//!
//! ```text
//! cargo run --release -p raidlab-cli --example policy_cost -- --help
//! ```
//! Each burst writes at a part of the array of its own, so that the bits of a bitmap are not set
//! yet; then the array rests for 1 s. Members store no data, which the load does not read; metadata
//! are in files below the directory. The figures are medians of the bursts.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use array::{
    ArrayMetadata, ArraySpec, Completion, DataPlaneConfig, Driver, DriverOptions, HostOp, Lease,
    MemberSpec, MetadataDevice, NullMember, PaceControl, PacedMember, PartialParityArea,
};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use drive::{DriveId, Placement, Profile};
use engine::{DeviceNumber, MetadataConfig, MetadataManager};
use host::{Access, Device, DeviceOptions, Disk, DiskLayer, Location};
use md::assemble::{Candidate, Options, StartMember, StartPlan, assemble};
use md::create::{self, BitmapOption, Request};
use md::ondisk::ppl::PplHeader;
use md::ondisk::superblock::Policy;
use md::ondisk::{MemberMetadata, Timestamp, Uuid};
use md::{Level, SECTOR_BYTES, Sector};

const MEMBERS: usize = 4;
const MEMBER_BYTES: u64 = 16 << 30;
const BITMAP_CHUNK: u64 = 128 << 10;
/// Parts of the array; each burst writes to one of its own, of 21,845 bits.
const PARTS: u64 = 6;
const DEPTH: usize = 32;
const PAUSE: Duration = Duration::from_secs(1);
const PLACEMENT: Placement = Placement::Window { at: 0.0 };

/// What a consistency policy costs on modelled drives.
#[derive(clap::Parser)]
struct Arguments {
    /// The policy beside resync
    #[arg(value_parser = policies())]
    policy: Policy,
    /// Bursts of each array
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=PARTS))]
    bursts: u64,
    /// Length of a burst, in seconds
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Where the metadata are kept
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    directory: PathBuf,
    /// The drives
    #[arg(long, default_value = "nvme-ssd")]
    profile: String,
    /// Chunk size in KiB
    #[arg(long, default_value_t = 64)]
    chunk: u64,
}

fn policies() -> impl TypedValueParser<Value = Policy> {
    PossibleValuesParser::new(["bitmap", "ppl"]).map(|name| match name.as_str() {
        "ppl" => Policy::Ppl,
        _ => Policy::Bitmap,
    })
}

fn main() {
    let arguments = <Arguments as clap::Parser>::parse();
    let Arguments { policy, bursts, seconds, chunk, .. } = arguments;
    let setup = Setup {
        parent: arguments.directory,
        profile: Profile::named(&arguments.profile).expect("a profile"),
        chunk_sectors: (chunk << 10) / SECTOR_BYTES,
        burst: Duration::from_secs(seconds),
    };
    println!(
        "RAID 5 of {MEMBERS} {}, {} GiB each, chunk {chunk} KiB, bitmap chunk {} KiB, depth \
         {DEPTH}; bursts of {seconds} s, rests of {PAUSE:?}",
        arguments.profile,
        MEMBER_BYTES >> 30,
        BITMAP_CHUNK >> 10
    );
    for (name, block_sectors) in [("sequential, full stripes", 0), ("random 4 KiB", 8)] {
        let policies = [Policy::Resync, policy];
        let mut arrays = policies.map(|policy| Load::new(&setup, policy, block_sectors));
        let mut figures = [Vec::new(), Vec::new()];
        for burst in 0..bursts {
            for (load, figures) in arrays.iter_mut().zip(&mut figures) {
                let burst = load.burst(burst, setup.burst);
                println!("{name}, {:?}: {burst}", load.policy);
                figures.push(burst);
            }
        }
        let median = |of: fn(&Burst) -> f64| {
            figures.each_ref().map(|bursts| {
                let mut values: Vec<f64> = bursts.iter().map(of).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            })
        };
        let ([rate, with], [cpu, cpu_with]) = (median(|it| it.rate), median(|it| it.cpu_micros));
        println!(
            "{name}: {:.1} MB/s with Resync, {:.1} with {policy:?}: {:.1} % less; CPU {cpu:.2} and \
             {cpu_with:.2} us per write",
            rate / 1e6,
            with / 1e6,
            (1.0 - with / rate) * 100.0
        );
    }
}

/// Where the metadata are kept, the drives, and the array on them.
struct Setup {
    parent: PathBuf,
    profile: &'static Profile,
    chunk_sectors: u64,
    burst: Duration,
}

/// What a burst of writes did.
struct Burst {
    /// Bytes per second.
    rate: f64,
    /// CPU time of the process per write.
    cpu_micros: f64,
    /// Bits of the bitmap that were set in it.
    bits: u64,
}

impl std::fmt::Display for Burst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (rate, cpu) = (self.rate / 1e6, self.cpu_micros);
        write!(f, "{rate:.1} MB/s, CPU {cpu:.2} us per write, {} bits newly set", self.bits)
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
    policy: Policy,
    leases: Vec<Lease>,
    block: u64,
    is_random: bool,
    state: u64,
    _files: Files,
}

struct Files(PathBuf);

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Load {
    /// `block_sectors`: of random writes; 0: full stripes, one behind the other.
    fn new(setup: &Setup, policy: Policy, block_sectors: u64) -> Load {
        let name = format!("raidlab-cost-{}-{policy:?}-{block_sectors}", std::process::id());
        let files = Files(setup.parent.join(name));
        let driver = start(&files.0, policy, setup);
        let stripe = driver.geometry().stripe_sectors();
        let block = if block_sectors == 0 { stripe } else { block_sectors };
        let bytes = (block * SECTOR_BYTES) as usize;
        let leases = (0..DEPTH).map(|_| driver.leases().take(bytes).expect("a buffer")).collect();
        let is_random = block_sectors > 0;
        let state = 88_172_645;
        let mut load = Load { driver, policy, leases, block, is_random, state, _files: files };
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
        self.driver.metadata().and_then(|status| status.bits_set).unwrap_or(0)
    }

    /// Writes for the length of a burst at its part of the array, and rests.
    fn burst(&mut self, burst: u64, length: Duration) -> Burst {
        let blocks = self.driver.info().sectors / self.block;
        let part = burst * blocks / PARTS..(burst + 1) * blocks / PARTS;
        let (mut next, mut bytes) = (part.start, 0);
        let mut done: Vec<Completion> = Vec::new();
        // Those of earlier bursts fade.
        while self.bits_set() > 0 {
            self.turn(&mut done, Duration::from_millis(10));
        }
        let (start, cpu_before) = (Instant::now(), cpu_micros());
        while start.elapsed() < length {
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
        let cpu_micros = (cpu_micros() - cpu_before) / (bytes / (self.block * SECTOR_BYTES)) as f64;
        let bits = self.bits_set();
        let start = Instant::now();
        while start.elapsed() < PAUSE || self.leases.len() < DEPTH {
            self.turn(&mut done, Duration::from_millis(10));
        }
        Burst { rate, cpu_micros, bits }
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

/// CPU time of the process so far.
fn cpu_micros() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Creates an array below a directory and starts it over modelled drives.
fn start(directory: &Path, policy: Policy, setup: &Setup) -> Driver {
    std::fs::create_dir(directory).expect("a directory");
    let devices: Vec<Arc<Device>> = (0..MEMBERS).map(|at| device(directory, at)).collect();
    create(&devices, policy, setup.chunk_sectors);
    let pace = PaceControl::default();
    let drives: Vec<DriveId> = devices
        .iter()
        .map(|_| pace.add_disk(setup.profile, PLACEMENT, MEMBER_BYTES, None, None))
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
    assert_eq!(bitmap.is_some(), policy == Policy::Bitmap);
    let header = bitmap.as_ref().map(|(bitmap, _)| bitmap.header.clone());
    let kept = bitmap.as_ref().map(|(bitmap, bits)| (bitmap, bits.clone()));
    let manager = MetadataManager::new(MetadataConfig::of_start(&plan, None, &[], kept, 1));
    let devices = opened.iter().zip(&metadata).map(|(it, metadata)| MetadataDevice {
        number: DeviceNumber(metadata.dev_number),
        disk: it.disk.clone(),
        superblock: it.superblock.clone(),
        bitmap: metadata.bitmap.zip(header.clone()),
        ppl: metadata.ppl.and(metadata.log_area),
    });
    let devices: Vec<MetadataDevice> = devices.collect();
    let log = (policy == Policy::Ppl).then(|| PartialParityArea {
        sectors: devices.iter().filter_map(|it| it.ppl).map(|it| it.sectors).min().expect("a log"),
        signature: PplHeader::signature_of(plan.defining().set_uuid),
    });
    let members = plan.serving().iter().map(|(_, source)| {
        let area = plan.data_area(source);
        let nothing = Box::new(NullMember::new(area.end - area.start));
        let at = area.start * SECTOR_BYTES;
        MemberSpec::ready(PacedMember::part(nothing, &pace, drives[source.candidate], at))
    });
    let spec = ArraySpec {
        level: Level::Raid5,
        layout: plan.geometry().layout(),
        chunk_sectors: setup.chunk_sectors,
        members: members.collect(),
        data_plane: DataPlaneConfig::default(),
    };
    let metadata = ArrayMetadata {
        manager,
        devices,
        spares: Vec::new(),
        replacements: Vec::new(),
        log,
        notes: Vec::new(),
    };
    let stripe = (MEMBERS as u64 - 1) * setup.chunk_sectors * SECTOR_BYTES;
    let lease_bytes = (stripe as usize).max(1 << 20);
    let options = DriverOptions { leases: DEPTH + 1, lease_bytes, ..DriverOptions::default() };
    Driver::managed(spec, &options, metadata).expect("a valid array").remove(0)
}

fn device(directory: &Path, number: usize) -> Arc<Device> {
    let path = directory.join(number.to_string());
    let file = std::fs::File::create(&path).and_then(|file| file.set_len(MEMBER_BYTES));
    file.expect("a sparse file");
    let options = DeviceOptions { access: Access::ReadWrite, direct: false };
    Arc::new(Device::open(&Location::whole(path), options).expect("it is new"))
}

fn create(devices: &[Arc<Device>], policy: Policy, chunk_sectors: u64) {
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
    request.chunk_sectors = Some(chunk_sectors);
    request.assume_clean = true;
    request.policy = Some(policy);
    request.bitmap = match policy {
        Policy::Bitmap => BitmapOption::Internal { chunk_bytes: Some(BITMAP_CHUNK) },
        _ => BitmapOption::None,
    };
    let plan = create::plan(&request).expect("a plan");
    let disks = devices.iter().map(|device| Some(device.clone() as Arc<dyn Disk>));
    let disks: Vec<_> = disks.collect();
    admin::create(&plan, &disks, admin::CreateOptions { force: true }).expect("created");
}
